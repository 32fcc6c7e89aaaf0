//! What the SQLite store costs on this machine: `cargo xtask bench sqlite` prints it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::core::record::{Expect, RecordKey, Version};
use semel::store::sqlite::Sqlite;
use semel::store::{Change, Durability, Store};

fn key(text: impl Into<String>) -> RecordKey {
    RecordKey::from_stored(text.into())
}

fn put(name: RecordKey, expect: Expect, ttl: Option<Duration>) -> Change {
    // about what a lease or an entry takes
    Change::Put { key: name, expect, value: vec![b'x'; 400], ttl }
}

/// A claim as the engine makes it: look at lease and entry, then write both.
async fn claim(store: &Sqlite, lease: &RecordKey, entry: RecordKey) -> Duration {
    let begun = Instant::now();
    let keys = [lease.clone(), entry.clone()];
    let loaded = store.load(&keys).await.unwrap();
    let expect =
        |i: usize| loaded.records[i].as_ref().map_or(Expect::Absent, |r| Expect::Version(r.version.clone()));
    let changes = [put(lease.clone(), expect(0), Some(Duration::from_secs(60))), put(entry, expect(1), None)];
    store.swap(&changes, Durability::Durable).await.unwrap();
    begun.elapsed()
}

fn summary(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!("{name}: p50 {:?}, p99 {:?}, longest {:?} ({} times)", at(0.5), at(0.99), at(1.0), times.len());
}

fn alone() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn a_process_that_opens_claims_and_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let runtime = alone();
    runtime.block_on(async { claim(&Sqlite::open(&path).unwrap(), &key("lease/a"), key("entry/a/0")).await });
    let (mut opens, mut loads, mut swaps, mut closes, mut all) = (vec![], vec![], vec![], vec![], vec![]);
    for i in 0..500 {
        let begun = Instant::now();
        let store = Sqlite::open(&path).unwrap();
        opens.push(begun.elapsed());
        runtime.block_on(async {
            let keys = [key("lease/a"), key(format!("entry/a/{}", i + 1))];
            let at = Instant::now();
            let loaded = store.load(&keys).await.unwrap();
            loads.push(at.elapsed());
            let at = Instant::now();
            let lease = Expect::Version(loaded.records[0].as_ref().unwrap().version.clone());
            let changes = [
                put(keys[0].clone(), lease, Some(Duration::from_secs(60))),
                put(keys[1].clone(), Expect::Absent, None),
            ];
            store.swap(&changes, Durability::Durable).await.unwrap();
            swaps.push(at.elapsed());
        });
        let at = Instant::now();
        store.close();
        closes.push(at.elapsed());
        all.push(begun.elapsed());
    }
    for (name, times) in [
        ("open", opens),
        ("first load", loads),
        ("durable swap", swaps),
        ("close", closes),
        ("all of it", all),
    ] {
        summary(name, times);
    }
}

fn opening_after_a_long_log() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = alone();
    for frames in [2, 32, 64, 128, 256, 512, 1000] {
        let path = folder.path().join(format!("{frames}.db"));
        Sqlite::open(&path).unwrap().close();
        // by hand: the store itself does not let its log grow
        let filler = rusqlite::Connection::open(&path).unwrap();
        filler.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        filler.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF").unwrap();
        let sql = "INSERT INTO records (key, version, value) VALUES (?1, 1, 'x')";
        for i in 2..frames {
            filler.execute(sql, [format!("x/{i}")]).unwrap();
        }
        drop(filler);
        let times = (0..100).map(|_| {
            let begun = Instant::now();
            let store = Sqlite::open(&path).unwrap();
            runtime.block_on(async { store.load(&[key("x/0")]).await.unwrap() });
            let time = begun.elapsed();
            store.close();
            time
        });
        summary(&format!("open and load with {frames} frames in the log"), times.collect());
    }
}

async fn claims_per_second(path: &Path, tasks: usize) -> f64 {
    let store = Arc::new(Sqlite::open(path).unwrap());
    let begun = Instant::now();
    let each = 4000 / tasks;
    let mut running = Vec::new();
    for task in 0..tasks {
        let store = Arc::clone(&store);
        running.push(tokio::spawn(async move {
            let lease = key(format!("lease/{tasks}-{task}"));
            let mut times = Vec::new();
            for i in 0..each {
                times.push(claim(&store, &lease, key(format!("entry/{tasks}/{task}/{i}"))).await);
            }
            times
        }));
    }
    let mut times = Vec::new();
    for task in running {
        times.extend(task.await.unwrap());
    }
    summary(&format!("claim with {tasks} tasks"), times);
    (each * tasks) as f64 / begun.elapsed().as_secs_f64()
}

fn claims_in_a_second() {
    let folder = tempfile::tempdir().unwrap();
    for tasks in [1, 32] {
        let rate = alone().block_on(claims_per_second(&folder.path().join("state.db"), tasks));
        println!("{tasks} tasks: {rate:.0} claims a second");
    }
}

fn claims_in_a_large_database() {
    let folder = tempfile::tempdir().unwrap();
    for rows in [1_000, 1_000_000] {
        let path = folder.path().join(format!("{rows}.db"));
        Sqlite::open(&path).unwrap().close();
        let mut filler = rusqlite::Connection::open(&path).unwrap();
        let filling = filler.transaction().unwrap();
        {
            let sql = "INSERT INTO records (key, version, value) VALUES (?1, ?2, ?3)";
            let mut insert = filling.prepare(sql).unwrap();
            for i in 0..rows {
                let slot = format!("entry/job{}/2026-01-{:02}/{:064x}", i % 50, i % 28, i * 7919);
                insert.execute((slot, i64::from(i), vec![b'x'; 400])).unwrap();
            }
        }
        filling.commit().unwrap();
        drop(filler);
        let runtime = alone();
        let store = Sqlite::open(&path).unwrap();
        runtime.block_on(store.checkpoint()).unwrap();
        // what the filling left behind is not what is measured
        std::process::Command::new("sync").status().unwrap();
        let spread = |i: u64| {
            key(format!("entry/job{}/2026-02-01/{:016x}", i % 50, i.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        };
        let times = (0..1000).map(|i| runtime.block_on(claim(&store, &key("lease/a"), spread(i))));
        summary(&format!("claim among {rows} records"), times.collect());
        store.close();
        let opened = (0..200).map(|i| {
            let begun = Instant::now();
            let store = Sqlite::open(&path).unwrap();
            runtime.block_on(claim(&store, &key("lease/a"), spread(i + 5000)));
            store.close();
            begun.elapsed()
        });
        summary(&format!("open, claim and close among {rows} records"), opened.collect());
        let size = std::fs::metadata(&path).unwrap().len();
        println!("{rows} records: {} MiB", size >> 20);
    }
}

fn a_skip_and_a_renewal() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = alone();
    let store = Sqlite::open(&folder.path().join("state.db")).unwrap();
    runtime.block_on(async {
        let lease = key("lease/a");
        let change = put(lease.clone(), Expect::Absent, Some(Duration::from_secs(60)));
        let version: Version = store.swap(&[change], Durability::Durable).await.unwrap().remove(0);
        let mut times = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            let at = Instant::now();
            store.load(std::slice::from_ref(&lease)).await.unwrap();
            times.0.push(at.elapsed());
            let at = Instant::now();
            store.touch(&lease, &version).await.unwrap();
            times.1.push(at.elapsed());
        }
        summary("load", times.0);
        summary("touch", times.1);
    });
}

fn main() {
    a_process_that_opens_claims_and_leaves();
    opening_after_a_long_log();
    claims_in_a_second();
    claims_in_a_large_database();
    a_skip_and_a_renewal();
}
