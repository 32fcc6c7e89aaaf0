//! NATS JetStream passes the suite, on a recent server, on Debian's and on a cluster; faults, clocks, wrong setups, cost.
#![cfg(feature = "nats")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod cost;
mod faults;
mod records;
mod setups;
mod times;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel::core::record::{Expect, RecordKey, Version};
use semel::store::conformance::{self, Helper, Later, Subject};
use semel::store::{Change, Durability, Record, Settings, Store, StoreError, open};
use semel_testkit::{NatsVersion, Server, nats};

struct Bucket {
    port: u16,
    name: String,
    made: Arc<AtomicU64>,
}

impl Bucket {
    fn of(server: &Server) -> Bucket {
        Bucket { port: server.port(0), name: "ledger".to_owned(), made: Arc::default() }
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}/{}", self.port, self.name)
    }
}

impl Subject for Bucket {
    fn open(&self) -> Later<'_, Result<Arc<dyn Store>, String>> {
        Box::pin(async { open(&self.url(), &Settings::default()).map_err(|why| why.to_string()) })
    }

    fn isolated(&self) -> Later<'_, Result<Arc<dyn Subject>, String>> {
        let name = format!("isolated-{}", self.made.fetch_add(1, Ordering::SeqCst));
        let other = Bucket { port: self.port, name, made: Arc::clone(&self.made) };
        Box::pin(async { Ok(Arc::new(other) as Arc<dyn Subject>) })
    }

    fn helper(&self) -> Option<Helper> {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_semel-store-probe"));
        Some(Helper { program, url: self.url() })
    }
}

#[tokio::test]
async fn nats_passes_the_suite() {
    let server = nats(NatsVersion::Recent, "");
    let report = conformance::run(Arc::new(Bucket::of(&server))).await;
    assert!(report.holds(), "{report}\n{}", server.log());
    assert!(report.skipped.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nats_of_debian_passes_the_suite() {
    let server = nats(NatsVersion::Debian, "");
    let report = conformance::run(Arc::new(Bucket::of(&server))).await;
    assert!(report.holds(), "{report}\n{}", server.log());
    assert!(report.skipped.is_empty(), "{report}");
}

pub(crate) const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

pub(crate) fn key(name: &str) -> RecordKey {
    RecordKey::from_stored(name.to_owned())
}

pub(crate) fn put(name: &str, expect: Expect, value: &str, ttl: Option<Duration>) -> Change {
    Change::Put { key: key(name), expect, value: value.as_bytes().to_vec(), ttl }
}

/// A handle that gives up soon.
pub(crate) fn handle(port: u16, deadline: Duration) -> Arc<dyn Store> {
    let settings = Settings { deadline, ..Settings::default() };
    open(&format!("nats://127.0.0.1:{port}/ledger"), &settings).unwrap()
}

pub(crate) async fn write(store: &dyn Store, change: Change) -> Result<Version, StoreError> {
    store.swap(&[change], Durability::Durable).await.map(|mut versions| versions.remove(0))
}

pub(crate) async fn read(store: &dyn Store, name: &str) -> Option<Record> {
    store.load(&[key(name)]).await.unwrap().records.remove(0)
}
