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

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::store::conformance::{self, Helper, Later, Subject};
use semel::store::{self, Settings, Store};
use semel_testkit::Redis;

struct OnServer {
    server: Arc<Redis>,
    prefix: String,
}

/// Ledgers on one server, told apart by their prefix.
static LEDGERS: AtomicU32 = AtomicU32::new(0);

impl OnServer {
    fn on(server: Arc<Redis>) -> OnServer {
        OnServer { server, prefix: format!("ledger-{}", LEDGERS.fetch_add(1, Ordering::Relaxed)) }
    }

    fn url(&self) -> String {
        format!("{}?prefix={}", self.server.url(), self.prefix)
    }
}

impl Subject for OnServer {
    fn open(&self) -> Later<'_, Result<Arc<dyn Store>, String>> {
        let opened = store::open(&self.url(), &Settings::default()).map_err(|why| why.to_string());
        Box::pin(async { opened })
    }

    fn isolated(&self) -> Later<'_, Result<Arc<dyn Subject>, String>> {
        let other = OnServer::on(Arc::clone(&self.server));
        Box::pin(async { Ok(Arc::new(other) as Arc<dyn Subject>) })
    }

    fn helper(&self) -> Option<Helper> {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_semel-store-probe"));
        Some(Helper { program, url: self.url() })
    }
}

#[tokio::test]
async fn redis_passes_the_suite_on_one_thread() {
    let report = conformance::run(Arc::new(OnServer::on(Arc::new(Redis::start())))).await;
    assert!(report.holds(), "{report}");
    assert!(report.skipped.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_passes_the_suite_on_many_threads() {
    let report = conformance::run(Arc::new(OnServer::on(Arc::new(Redis::start())))).await;
    assert!(report.holds(), "{report}");
}
