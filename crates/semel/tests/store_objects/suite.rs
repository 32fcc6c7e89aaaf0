//! S3 (moto), Azure (Azurite) and GCS (a server of our own, for lack of another) pass the suite.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel::store::conformance::{self, Helper, Later, Report, Subject};
use semel::store::{Settings, Store};
use semel_testkit::{Azurite, Moto, OnDisk};

use crate::stage::settings;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A ledger in a bucket.
struct InBucket {
    /// Makes the address of a ledger.
    url: Arc<dyn Fn(&str) -> String + Send + Sync>,
    variables: &'static [(&'static str, &'static str)],
    prefix: String,
}

impl InBucket {
    fn settings(&self) -> Settings {
        // a thousand tasks queue before a server that serves one at a time
        Settings { deadline: Duration::from_secs(60), ..settings(self.variables) }
    }
}

impl Subject for InBucket {
    fn open(&self) -> Later<'_, Result<Arc<dyn Store>, String>> {
        let opened = semel::store::open(&(self.url)(&self.prefix), &self.settings());
        Box::pin(async { opened.map_err(|why| why.to_string()) })
    }

    fn isolated(&self) -> Later<'_, Result<Arc<dyn Subject>, String>> {
        let prefix = format!("isolated/{}", NEXT.fetch_add(1, Ordering::SeqCst));
        let other = InBucket { url: Arc::clone(&self.url), variables: self.variables, prefix };
        Box::pin(async { Ok(Arc::new(other) as Arc<dyn Subject>) })
    }

    /// Services count in whole seconds.
    fn short_ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn helper(&self) -> Option<Helper> {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_semel-store-probe"));
        Some(Helper { program, url: (self.url)(&self.prefix) })
    }
}

fn run(subject: InBucket) -> Report {
    // the helper reads them from around it; no other thread runs yet
    for (name, value) in subject.variables {
        unsafe { std::env::set_var(name, value) };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let begun = std::time::Instant::now();
    let report = runtime.block_on(conformance::run(Arc::new(subject)));
    println!("the suite took {:?}", begun.elapsed());
    report
}

#[test]
fn s3_passes_the_suite() {
    let moto = Moto::start();
    let at = moto.0.address(0);
    let url = Arc::new(move |prefix: &str| Moto::url_at(at, prefix));
    let report = run(InBucket { url, variables: &Moto::VARIABLES, prefix: "ledger".to_owned() });
    assert!(report.holds(), "{report}");
    assert!(report.skipped.is_empty(), "{report}");
}

#[test]
fn azure_passes_the_suite() {
    let azurite = Azurite::start();
    let at = azurite.0.address(0);
    let url = Arc::new(move |prefix: &str| Azurite::url_at(at, prefix));
    let report = run(InBucket { url, variables: &Azurite::VARIABLES, prefix: "ledger".to_owned() });
    assert!(report.holds(), "{report}");
    assert!(report.skipped.is_empty(), "{report}");
}

#[test]
fn gcs_passes_the_suite() {
    let server = OnDisk::start();
    let at = server.0.address(0);
    let url = Arc::new(move |prefix: &str| OnDisk::gs_url_at(at, prefix));
    let report = run(InBucket { url, variables: &[], prefix: "ledger".to_owned() });
    assert!(report.holds(), "{report}");
    assert!(report.skipped.is_empty(), "{report}");
}
