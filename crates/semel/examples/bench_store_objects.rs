//! What the object store driver costs beside the same requests made by hand: claim and settle, which are four conditional
//! writes, by one task and by 16, in rounds that take turns.
//!
//! `cargo run --release -p semel --features objects --example bench_store_objects` with the test servers installed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutOptions, PutPayload, UpdateVersion};
use semel::core::record::{Expect, RecordKey};
use semel::store::{Change, Durability, Settings, Store};
use semel_testkit::{BUCKET, Moto, OnDisk, Ratio, median};

/// About what a lease or an entry takes.
const VALUE: usize = 400;
/// What the driver writes before it.
const HEADER: usize = 120;
const ROUNDS: usize = 6;
const ROUND: Duration = Duration::from_secs(2);

fn put(key: &str, expect: Expect, ttl: Option<Duration>) -> Change {
    Change::Put { key: RecordKey::from_stored(key.to_owned()), expect, value: vec![b'x'; VALUE], ttl }
}

/// Claim and settle through the driver, until the time is over; answers how often.
async fn ours(store: Arc<dyn Store>, task: String, end: Instant) -> u32 {
    let (ttl, lease) = (Some(Duration::from_secs(60)), format!("lease/{task}"));
    let (mut held, mut done) = (Expect::Absent, 0);
    while Instant::now() < end {
        let entry = format!("entry/{task}/{done}");
        let claim = [put(&lease, held, ttl), put(&entry, Expect::Absent, None)];
        let claimed = store.swap(&claim, Durability::Durable).await.unwrap();
        let settle = [
            put(&entry, Expect::Version(claimed[1].clone()), None),
            put(&lease, Expect::Live(claimed[0].clone()), None),
        ];
        held = Expect::Version(store.swap(&settle, Durability::Durable).await.unwrap().remove(1));
        done += 1;
    }
    done
}

/// The same requests by hand.
async fn bare(client: Arc<dyn ObjectStore>, task: String, end: Instant) -> u32 {
    let write = async |name: &str, over: Option<UpdateVersion>| {
        let bytes: Vec<u8> =
            (0..VALUE + HEADER).map(|_| getrandom::u32().unwrap().to_le_bytes()[0]).collect();
        let mode = over.map_or(PutMode::Create, PutMode::Update);
        let path = Path::from(format!("bare/{name}"));
        let written = client.put_opts(&path, PutPayload::from(bytes), PutOptions::from(mode)).await.unwrap();
        Some(UpdateVersion::from(written))
    };
    let (mut held, mut done, lease) = (None, 0, format!("lease-{task}"));
    while Instant::now() < end {
        let entry = format!("entry-{task}-{done}");
        let claimed = write(&lease, held).await;
        let entered = write(&entry, None).await;
        write(&entry, entered).await;
        held = write(&lease, claimed).await;
        done += 1;
    }
    done
}

async fn compare(name: &str, url: &str, endpoint: &str) {
    let variables = Moto::VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let store = semel::store::open(url, &Settings { variables, ..Settings::default() }).unwrap();
    let client: Arc<dyn ObjectStore> = Arc::new(
        AmazonS3Builder::new()
            .with_bucket_name(BUCKET)
            .with_region("us-east-1")
            .with_endpoint(endpoint)
            .with_allow_http(true)
            .with_access_key_id(Moto::VARIABLES[0].1)
            .with_secret_access_key(Moto::VARIABLES[1].1)
            .build()
            .unwrap(),
    );
    for tasks in [1, 16] {
        let (mut by_us, mut by_hand) = (Vec::new(), Vec::new());
        let rate = |done: u32| f64::from(done) / ROUND.as_secs_f64();
        for round in 0..ROUNDS {
            let end = Instant::now() + ROUND;
            let names = (0..tasks).map(|task| format!("{tasks}-{round}-{task}"));
            if round % 2 == 0 {
                let all: Vec<_> =
                    names.map(|task| tokio::spawn(ours(Arc::clone(&store), task, end))).collect();
                let mut done = 0;
                for task in all {
                    done += task.await.unwrap();
                }
                by_us.push(rate(done));
            } else {
                let all: Vec<_> =
                    names.map(|task| tokio::spawn(bare(Arc::clone(&client), task, end))).collect();
                let mut done = 0;
                for task in all {
                    done += task.await.unwrap();
                }
                by_hand.push(rate(done));
            }
        }
        println!(
            "claim + settle, {tasks} tasks, {name}: ours {:.0}/s, bare {:.0}/s, {}",
            median(&by_us),
            median(&by_hand),
            Ratio::new(&by_us, &by_hand)
        );
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // whoever uses the client as it comes chooses the cryptography so
    let _ = rustls::crypto::ring::default_provider().install_default();
    let moto = Moto::start();
    compare("moto", &moto.url("ledger"), &format!("http://{}", moto.0.address(0))).await;
    let disk = OnDisk::start();
    compare("synced files", &disk.s3_url("ledger"), &format!("http://{}", disk.0.address(0))).await;
}
