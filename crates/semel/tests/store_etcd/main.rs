//! etcd passes the suite, against a real server; and what is etcd's own: faults, clocks, costs, wrong setups.
#![cfg(feature = "etcd")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

mod clocks;
mod costs;
mod faults;
mod setups;
mod tap;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use semel::core::record::{Expect, RecordKey, Version};
use semel::store::conformance::{self, Helper, Later, Subject};
use semel::store::{self, Change, Durability, Record, Settings, Store, StoreError};
use semel_testkit::Etcd;

struct OnEtcd {
    server: Arc<Etcd>,
    prefix: String,
}

impl OnEtcd {
    fn url(&self) -> String {
        self.server.url(&self.prefix)
    }
}

impl Subject for OnEtcd {
    fn open(&self) -> Later<'_, Result<Arc<dyn Store>, String>> {
        let opened = store::open(&self.url(), &Settings::default()).map_err(|why| why.to_string());
        Box::pin(async { opened })
    }

    fn isolated(&self) -> Later<'_, Result<Arc<dyn Subject>, String>> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let prefix = format!("isolated-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let other = OnEtcd { server: Arc::clone(&self.server), prefix };
        Box::pin(async { Ok(Arc::new(other) as Arc<dyn Subject>) })
    }

    fn short_ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn helper(&self) -> Option<Helper> {
        Some(Helper { program: probe(), url: self.url() })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_passes_the_suite() {
    let server = Arc::new(Etcd::start());
    let report = conformance::run(Arc::new(OnEtcd { server, prefix: "suite".to_owned() })).await;
    println!("{report}");
    assert!(report.holds(), "{report}");
    assert!(report.skipped.is_empty(), "{report}");
}

pub(crate) fn probe() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_semel-store-probe"))
}

pub(crate) fn open(url: &str) -> Arc<dyn Store> {
    open_for(url, Settings::DEADLINE)
}

pub(crate) fn open_for(url: &str, deadline: Duration) -> Arc<dyn Store> {
    store::open(url, &Settings { deadline, ..Settings::default() }).unwrap()
}

pub(crate) fn key(text: &str) -> RecordKey {
    RecordKey::from_stored(text.to_owned())
}

pub(crate) fn put(name: &str, expect: Expect, value: &str, ttl: Option<Duration>) -> Change {
    Change::Put { key: key(name), expect, value: value.as_bytes().to_vec(), ttl }
}

pub(crate) async fn write(store: &dyn Store, change: Change) -> Result<Version, StoreError> {
    store.swap(&[change], Durability::Durable).await.map(|mut versions| versions.remove(0))
}

pub(crate) async fn read(store: &dyn Store, name: &str) -> Option<Record> {
    store.load(&[key(name)]).await.unwrap().records.remove(0)
}

pub(crate) const MINUTE: Option<Duration> = Some(Duration::from_secs(60));
pub(crate) const SECOND: Option<Duration> = Some(Duration::from_secs(1));
