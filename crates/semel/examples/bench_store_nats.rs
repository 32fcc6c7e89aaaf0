//! Claim and settle on NATS, against the same messages published by hand on the same client library.
//!
//! `cargo run --release -p semel --features nats --example bench_store_nats [SECONDS]`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::{Client, HeaderMap, Request};
use futures_util::future::join_all;
use semel::core::record::{Expect, RecordKey};
use semel::store::{Change, Durability, Settings, Store, open};
use semel_testkit::{NatsVersion, Ratio, median, nats};

const ROUNDS: u32 = 10;
const TTL: Duration = Duration::from_secs(60);

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20.0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for version in [NatsVersion::Recent, NatsVersion::Debian] {
        let server = nats(version, "");
        let url = format!("nats://127.0.0.1:{}/ledger", server.port(0));
        for tasks in [1, 16] {
            let name = format!("claim + settle, {tasks} tasks, {version:?} server");
            runtime.block_on(measure(&name, &url, server.port(0), tasks, seconds / 4.0));
        }
    }
}

/// In turns, so that both meet the same machine.
async fn measure(name: &str, url: &str, port: u16, tasks: u32, seconds: f64) {
    let store = open(url, &Settings::default()).unwrap();
    store.load(&[RecordKey::from_stored("warm".to_owned())]).await.unwrap();
    let client = async_nats::connect(format!("127.0.0.1:{port}")).await.unwrap();
    let each = Duration::from_secs_f64(seconds / f64::from(ROUNDS) / 2.0);
    let next = Arc::new(AtomicU64::new(u64::from(tasks) << 32));
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let rate = |made: Vec<Result<u64, _>>, begun: Instant| {
        made.into_iter().map(Result::unwrap).sum::<u64>() as f64 / begun.elapsed().as_secs_f64()
    };
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let work =
            (0..tasks).map(|_| tokio::spawn(ours_until(Arc::clone(&store), Arc::clone(&next), begun + each)));
        ours.push(rate(join_all(work).await, begun));
        let begun = Instant::now();
        let work =
            (0..tasks).map(|_| tokio::spawn(bare_until(client.clone(), Arc::clone(&next), begun + each)));
        bare.push(rate(join_all(work).await, begun));
    }
    println!(
        "{name}: ours {:.0}/s, bare {:.0}/s, {}",
        median(&ours),
        median(&bare),
        Ratio::new(&ours, &bare)
    );
}

/// As large as a lease and an entry are.
fn bytes() -> (Vec<u8>, Vec<u8>) {
    (vec![b'l'; 250], vec![b'e'; 600])
}

async fn ours_until(store: Arc<dyn Store>, next: Arc<AtomicU64>, end: Instant) -> u64 {
    let (lease, entry) = bytes();
    let mut made = 0;
    while Instant::now() < end {
        let i = next.fetch_add(1, Ordering::Relaxed);
        let keys = [format!("lease/{i}"), format!("entry/{i}")].map(RecordKey::from_stored);
        let put = |at: usize, expect, value: &[u8], ttl| Change::Put {
            key: keys[at].clone(),
            expect,
            value: value.to_vec(),
            ttl,
        };
        let claim = [put(0, Expect::Absent, &lease, Some(TTL)), put(1, Expect::Absent, &entry, None)];
        let versions = store.swap(&claim, Durability::Durable).await.unwrap();
        let settle = [
            put(1, Expect::Version(versions[1].clone()), &entry, None),
            put(0, Expect::Version(versions[0].clone()), &lease, None),
        ];
        store.swap(&settle, Durability::Durable).await.unwrap();
        made += 1;
    }
    made
}

/// One message as the driver writes it.
async fn publish(
    client: &Client,
    subject: String,
    expected: u64,
    ids: (String, Option<String>),
    value: &[u8],
) -> u64 {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Last-Subject-Sequence", expected.to_string());
    headers.insert("Nats-Msg-Id", ids.0.as_str());
    headers.insert("Semel-Version", ids.0.as_str());
    headers.insert("Semel-Ttl-Us", "60000000");
    if let Some(before) = ids.1 {
        headers.insert("Nats-Expected-Last-Msg-Id", before.as_str());
    }
    let request = Request::new().headers(headers).payload(value.to_vec().into());
    let answer = client.send_request(subject, request).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
    answer["seq"].as_u64().filter(|seq| *seq > 0).expect("a number")
}

async fn bare_until(client: Client, next: Arc<AtomicU64>, end: Instant) -> u64 {
    let (lease, entry) = bytes();
    let mut made = 0;
    while Instant::now() < end {
        let i = next.fetch_add(1, Ordering::Relaxed);
        let subjects = [format!("$KV.ledger.lease.{i}"), format!("$KV.ledger.entry.{i}")];
        let id = |part: u64| format!("{:032x}", u128::from(i) << 8 | u128::from(part));
        let (first, second) = tokio::join!(
            publish(&client, subjects[0].clone(), 0, (id(0), None), &lease),
            publish(&client, subjects[1].clone(), 0, (id(1), Some(id(0))), &entry)
        );
        tokio::join!(
            publish(&client, subjects[1].clone(), second, (id(2), None), &entry),
            publish(&client, subjects[0].clone(), first, (id(3), Some(id(2))), &lease)
        );
        made += 1;
    }
    made
}
