//! The suite.

use std::sync::Arc;

use semel::store::conformance;
use semel_testkit::PgServer;

use crate::stage::Served;

#[tokio::test]
async fn postgres_passes_the_suite() {
    let server = PgServer::start();
    let report = conformance::run(Arc::new(Served::at(server.url()))).await;
    assert!(report.holds(), "{report}");
    assert!(report.skipped.is_empty(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_behind_a_pooler_passes_the_suite() {
    let server = PgServer::start();
    // fewer sessions than clients, so that they are handed around
    let pooler = server.pooler(5);
    let report = conformance::run(Arc::new(Served::at(server.url_at(pooler.port())))).await;
    assert!(report.holds(), "{report}\n{}", pooler.log());
    assert!(report.skipped.is_empty(), "{report}");
}
