//! Stores that are servers: killed, stopped, and spoken to through proxies that misbehave.
//!
//! Killed -9 is only who syncs each write before it answers: PostgreSQL as it comes, Redis with `appendfsync always`,
//! NATS with `sync_interval: always`. Debian's NATS cannot, and is only stopped. So is etcd: the 3.4.23 of Debian, killed under
//! load, once came back without writes that it had answered, and with other revisions for older ones
//! (`docs/stores/etcd.md`); what Semel's records survive of its deaths is in `store_etcd`.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::store::{Settings, Store, open};
use semel_testkit::{Etcd, NatsVersion, PgServer, Proxy, Redis, nats};

use crate::arena::Arena;
use crate::nemesis;

/// How long a verb may take: longer than a server needs to start again would only make the test wait.
const DEADLINE: Duration = Duration::from_secs(2);
/// Handles that go straight to the server, and as many through a proxy each.
const HANDLES: usize = 3;

/// Handles without and with a proxy, and the proxies.
pub(crate) fn handles(
    server: SocketAddr,
    settings: &Settings,
    url: impl Fn(SocketAddr) -> String,
) -> (Vec<Arc<dyn Store>>, Arc<Vec<Proxy>>) {
    let settings = Settings { deadline: DEADLINE, ..settings.clone() };
    let proxies: Vec<Proxy> = (0..HANDLES).map(|_| Proxy::before(server)).collect();
    let straight = (0..HANDLES).map(|_| server);
    let all = straight.chain(proxies.iter().map(Proxy::address));
    let handles = all.map(|at| open(&url(at), &settings).unwrap()).collect();
    (handles, Arc::new(proxies))
}

#[test]
fn postgres_is_linearizable() {
    let server = PgServer::start();
    let at = SocketAddr::from(([127, 0, 0, 1], server.port()));
    let (handles, proxies) = handles(at, &Settings::default(), |at| server.url_at(at.port()));
    let mut deck = nemesis::network(&proxies);
    deck.extend(nemesis::server(&Arc::new(Mutex::new(server)), PgServer::server));
    Arena { name: "postgres", handles, deck }.run().holds();
}

#[test]
fn redis_is_linearizable() {
    let server = Redis::start();
    let (handles, proxies) = handles(server.address(), &Settings::default(), |at| format!("redis://{at}"));
    let mut deck = nemesis::network(&proxies);
    deck.extend(nemesis::server(&Arc::new(Mutex::new(server)), |redis| &mut redis.server));
    Arena { name: "redis", handles, deck }.run().holds();
}

#[test]
fn etcd_is_linearizable() {
    let server = Etcd::start();
    let url = |at| format!("etcd://{at}/linear");
    let (handles, proxies) = handles(server.address(), &Settings::default(), url);
    let mut deck = nemesis::network(&proxies);
    deck.extend(nemesis::stops(&Arc::new(Mutex::new(server)), Etcd::server));
    Arena { name: "etcd", handles, deck }.run().holds();
}

#[test]
fn nats_is_linearizable() {
    let server = nats(NatsVersion::Recent, "");
    let url = |at| format!("nats://{at}/ledger");
    let (handles, proxies) = handles(server.address(0), &Settings::default(), url);
    let mut deck = nemesis::network(&proxies);
    deck.extend(nemesis::server(&Arc::new(Mutex::new(server)), |server| server));
    Arena { name: "nats", handles, deck }.run().holds();
}

#[test]
fn nats_of_debian_is_linearizable() {
    let server = nats(NatsVersion::Debian, "");
    let url = |at| format!("nats://{at}/ledger");
    let (handles, proxies) = handles(server.address(0), &Settings::default(), url);
    let mut deck = nemesis::network(&proxies);
    deck.extend(nemesis::stops(&Arc::new(Mutex::new(server)), |server| server));
    Arena { name: "nats of debian", handles, deck }.run().holds();
}
