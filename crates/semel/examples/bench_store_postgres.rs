//! What the PostgreSQL store costs beside the bare statement: `cargo run --release -p semel --features postgres
//! --example bench_store_postgres`. A private server with durable settings is started for it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::core::record::{Expect, RecordKey, Version};
use semel::store::postgres::Postgres;
use semel::store::{Change, Durability, Settings, Store};
use semel_testkit::{PgServer, Ratio, median};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};

const ROUNDS: usize = 6;
const ROUND: Duration = Duration::from_millis(1000);
/// About what a lease or an entry takes.
const VALUE: [u8; 400] = [b'x'; 400];
const SWAP: &str = "SELECT misfit, stands, value, left_us FROM semel.swap_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

fn put(name: &str, expect: Expect, ttl: Option<Duration>) -> Change {
    Change::Put { key: RecordKey::from_stored(name.to_owned()), expect, value: VALUE.to_vec(), ttl }
}

/// Claim and settle, again and again, until the time is over.
async fn ours(store: Arc<Postgres>, task: usize, round: usize, end: Instant) -> u32 {
    let lease = format!("lease/ours-{task}");
    let found = store.load(&[RecordKey::from_stored(lease.clone())]).await.unwrap().records.remove(0);
    let mut held = found.map(|record| record.version);
    let expect = |version: Option<Version>| version.map_or(Expect::Absent, Expect::Version);
    let mut count = 0;
    while Instant::now() < end {
        let entry = format!("entry/ours-{task}/{round}/{count}");
        let claim = [
            put(&lease, expect(held.take()), Some(Duration::from_secs(60))),
            put(&entry, Expect::Absent, None),
        ];
        let mut made = store.swap(&claim, Durability::Durable).await.unwrap();
        let (entered, leased) = (made.pop().unwrap(), made.pop().unwrap());
        let settle = [put(&entry, Expect::Version(entered), None), put(&lease, Expect::Live(leased), None)];
        held = store.swap(&settle, Durability::Durable).await.unwrap().pop();
        count += 1;
    }
    count
}

async fn call(
    client: &Client,
    keys: [&str; 2],
    wants: [i16; 2],
    seen: [&str; 2],
    made: [&str; 2],
    ttls: [Option<i64>; 2],
) {
    let (keys, verbs, wants, seen, made) =
        (keys.to_vec(), vec![1_i16, 1], wants.to_vec(), seen.to_vec(), made.to_vec());
    let (values, epoch) = (vec![&VALUE[..], &VALUE[..]], i64::from(ttls[0].is_some()));
    let ttls = ttls.to_vec();
    let makes: i32 = wants.iter().map(|want| i32::from(*want == 0)).sum();
    let params: [(&(dyn ToSql + Sync), Type); 13] = [
        (&keys, Type::TEXT_ARRAY),
        (&verbs, Type::INT2_ARRAY),
        (&wants, Type::INT2_ARRAY),
        (&seen, Type::TEXT_ARRAY),
        (&made, Type::TEXT_ARRAY),
        (&values, Type::BYTEA_ARRAY),
        (&ttls, Type::INT8_ARRAY),
        (&makes, Type::INT4),
        (&0_i32, Type::INT4),
        (&(2 - makes), Type::INT4),
        (&"5000", Type::TEXT),
        (&false, Type::BOOL),
        (&epoch, Type::INT8),
    ];
    let rows = client.query_typed(SWAP, &params).await.unwrap();
    assert!(rows.is_empty());
}

/// The same bytes in the same statement, by hand.
async fn bare(client: Arc<Client>, task: usize, round: usize, end: Instant) -> u32 {
    let lease = format!("lease/bare-{task}-{round}");
    let mut held = String::new();
    let mut count = 0;
    while Instant::now() < end {
        let entry = format!("entry/bare-{task}/{round}/{count}");
        let [a, b, c, d] = [1, 2, 3, 4].map(|n| format!("{task:08x}{round:08x}{count:08x}{n:08x}"));
        let first = i16::from(!held.is_empty());
        call(&client, [&lease, &entry], [first, 0], [&held, ""], [&a, &b], [Some(60_000), None]).await;
        call(&client, [&entry, &lease], [1, 2], [&b, &a], [&c, &d], [None, None]).await;
        held = d;
        count += 1;
    }
    count
}

async fn together<F: Future<Output = u32> + Send + 'static>(
    many: usize,
    one: impl Fn(usize, Instant) -> F,
) -> f64 {
    let begun = Instant::now();
    let tasks: Vec<_> = (0..many).map(|i| tokio::spawn(one(i, begun + ROUND))).collect();
    let mut count = 0;
    for task in tasks {
        count += task.await.unwrap();
    }
    f64::from(count) / begun.elapsed().as_secs_f64()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = PgServer::start();
    let store = Arc::new(Postgres::new(&server.url(), &Settings::default()).unwrap());
    store.load(&[]).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let client = Arc::new(client);
    for many in [1, 16] {
        let (mut our, mut their) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            our.push(together(many, |i, end| ours(Arc::clone(&store), i, many * 100 + round, end)).await);
            their.push(together(many, |i, end| bare(Arc::clone(&client), i, many * 100 + round, end)).await);
        }
        println!(
            "claim + settle, {many} tasks: ours {:.0}/s, bare {:.0}/s, {}",
            median(&our),
            median(&their),
            Ratio::new(&our, &their)
        );
    }
}
