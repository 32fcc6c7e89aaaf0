//! Redis passes the suite; and what is Redis' own: lost replies, a killed server, clocks, waiting, wrong setups.
#![cfg(feature = "redis")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod clocks;
mod costs;
mod faults;
mod setups;
mod stage;

use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::store::conformance::{self, Helper, Later, Subject};
use semel::store::{self, Settings, Store};
use semel_testkit::{Redis, RedisCluster};

struct OnServer {
    /// Kept for as long as it is needed.
    server: Arc<dyn Any + Send + Sync>,
    address: String,
    prefix: String,
}

/// Ledgers on one server, told apart by their prefix.
static LEDGERS: AtomicU32 = AtomicU32::new(0);

impl OnServer {
    fn on(server: Redis) -> Arc<OnServer> {
        let address = server.url();
        Arc::new(OnServer::at(address, Arc::new(server)))
    }

    fn at(address: String, server: Arc<dyn Any + Send + Sync>) -> OnServer {
        let prefix = format!("ledger-{}", LEDGERS.fetch_add(1, Ordering::Relaxed));
        OnServer { server, address, prefix }
    }

    fn url(&self) -> String {
        format!("{}?prefix={}", self.address, self.prefix)
    }
}

impl Subject for OnServer {
    fn open(&self) -> Later<'_, Result<Arc<dyn Store>, String>> {
        let opened = store::open(&self.url(), &Settings::default()).map_err(|why| why.to_string());
        Box::pin(async { opened })
    }

    fn isolated(&self) -> Later<'_, Result<Arc<dyn Subject>, String>> {
        let other = OnServer::at(self.address.clone(), Arc::clone(&self.server));
        Box::pin(async { Ok(Arc::new(other) as Arc<dyn Subject>) })
    }

    fn helper(&self) -> Option<Helper> {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_semel-store-probe"));
        Some(Helper { program, url: self.url() })
    }
}

#[tokio::test]
async fn redis_passes_the_suite_on_one_thread() {
    let report = conformance::run(OnServer::on(Redis::start())).await;
    assert!(report.holds(), "{report}");
    assert!(report.skipped.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_passes_the_suite_on_many_threads() {
    let report = conformance::run(OnServer::on(Redis::start())).await;
    assert!(report.holds(), "{report}");
}

#[tokio::test]
async fn valkey_passes_the_suite() {
    let report = conformance::run(OnServer::on(Redis::valkey())).await;
    assert!(report.holds(), "{report}");
    assert!(report.skipped.is_empty(), "{report}");
}

/// Through one node, whichever has the slot of a ledger.
#[tokio::test]
async fn a_cluster_passes_the_suite_through_any_of_its_nodes() {
    let cluster = RedisCluster::start();
    let address = cluster.nodes[1].url();
    let report = conformance::run(Arc::new(OnServer::at(address, Arc::new(cluster)))).await;
    assert!(report.holds(), "{report}");
    assert!(report.skipped.is_empty(), "{report}");
}
