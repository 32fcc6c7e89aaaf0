//! What tests of several crates share: real servers, private to one test, chance from a printed seed, ratios, and counted
//! costs. Not part of the product.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// the rooms are the product's: a test starts processes and looks at the clock
#![allow(clippy::disallowed_methods)]
// and says its seed
#![allow(clippy::print_stdout)]

mod chance;
#[cfg(target_os = "linux")]
pub mod cost;
mod etcd;
mod nats;
mod objects;
mod pg_server;
mod postgres;
mod proxy;
mod ratio;
mod redis;
mod server;

pub use chance::{Chance, counted, rounds};
pub use etcd::{Etcd, EtcdCluster};
pub use nats::{NatsVersion, nats, nats_cluster, nats_without_jetstream};
pub use objects::{Azurite, BUCKET, Careless, Fault, Moto, OnDisk, S3rver};
pub use pg_server::{PgBouncer, PgServer};
pub use postgres::Postgres;
pub use proxy::Proxy;
pub use ratio::{Ratio, median, quantile};
pub use redis::{Redis, RedisCluster};
pub use server::{Recipe, Server, faketime, free_ports, needed, program};
