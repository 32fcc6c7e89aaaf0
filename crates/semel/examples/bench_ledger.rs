//! `bench_ledger DIR SIZE…`: the latency of a claim in ledgers of different sizes, in turns.
//!
//! Called by `cargo xtask bench ledger`. Each ledger is filled with that many done entries of the usual shape;
//! then every round claims and settles one fresh work in each, and times the claim: one load, one durable swap.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // a bench that cannot go on should say where

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use semel::clock::SystemClock;
use semel::core::claim::{Ask, Decision, claim};
use semel::core::entry::{Ending, Entry, Settle, settle};
use semel::core::name::Name;
use semel::core::owner::Owner;
use semel::core::policy::Policy;
use semel::core::record::{Expect, RecordKey, encode};
use semel::core::token::Nonce;
use semel::core::work::{Key, Work};
use semel::engine::view::changes;
use semel::engine::{Engine, Strangers};
use semel::store::sqlite::Sqlite;
use semel::store::{Change, Durability, Store};

const ROUNDS: usize = 400;
const WARM_UP: usize = 20;
const BATCH: usize = 5_000;

fn main() {
    let mut words = std::env::args().skip(1);
    let dir = words.next().unwrap();
    let sizes: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(bench(Path::new(&dir), &sizes));
}

async fn bench(dir: &Path, sizes: &[u64]) {
    let mut engines = Vec::new();
    for size in sizes {
        let began = Instant::now();
        let store = Sqlite::open(&dir.join(format!("ledger-{size}.db"))).unwrap();
        let engine = engine(Arc::new(store));
        fill(&engine, *size).await;
        println!("filled a ledger with {size} entries in {:.1} s", began.elapsed().as_secs_f64());
        engines.push(engine);
    }
    // what the filling left to be written must not be written during the measurement
    Command::new("sync").status().unwrap();
    let mut times = vec![Vec::new(); sizes.len()];
    for round in 0..ROUNDS + WARM_UP {
        for (engine, times) in engines.iter().zip(&mut times) {
            let work = work(&format!("fresh-{round}"));
            let began = Instant::now();
            let view = engine.look(Some(&work), std::slice::from_ref(work.job())).await.unwrap();
            let claimed = take(engine, &work, &view, round as u8);
            let writes = changes(&claimed.writes()).unwrap();
            engine.store.swap(&writes, Durability::Durable).await.unwrap();
            if round >= WARM_UP {
                times.push(began.elapsed().as_secs_f64());
            }
            give_back(engine, &work).await;
        }
    }
    let medians: Vec<f64> = times.iter_mut().map(|times| middle(times)).collect();
    for (size, median) in sizes.iter().zip(&medians) {
        let ratio = median / medians[0];
        println!("  claim among {size:>9} entries   p50 {:.3} ms   {ratio:.2} x the smallest", median * 1e3);
    }
    let worst = medians.last().unwrap() / medians[0];
    println!(
        "  largest / smallest {worst:.2} x, target 1.3 x: {}",
        if worst <= 1.3 { "reached" } else { "MISSED" }
    );
}

fn middle(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn engine(store: Arc<dyn Store>) -> Engine {
    let me = Owner { host: "bench".into(), boot: "b".into(), pidns: 1, pid: 1, start: 1 };
    Engine { store, clock: Arc::new(SystemClock), neighbours: Arc::new(Strangers), me }
}

fn work(key: &str) -> Work {
    Work::keyed(Name::new("bench").unwrap(), key, None, Default::default()).unwrap()
}

fn take(
    engine: &Engine,
    work: &Work,
    view: &semel::core::claim::View,
    nonce: u8,
) -> semel::core::claim::Claim {
    let policy = Policy::default();
    let ask = Ask {
        work: Some(work),
        what: "bench",
        resources: std::slice::from_ref(work.job()),
        policy: &policy,
        owner: &engine.me,
        nonce: Nonce::from_bytes([nonce; 16]),
        payload: None,
        command: None,
        plan: None,
        definition: None,
        occurrence: None,
        now_ms: 1_750_000_000_000,
    };
    match claim(view, &ask) {
        Decision::Claim(claim) => claim,
        other => unreachable!("a fresh work can be claimed: {other:?}"),
    }
}

async fn give_back(engine: &Engine, work: &Work) {
    let seen = engine.lease_of(work.job()).await.unwrap().unwrap();
    engine.release(work.job(), seen.record.value.grant.token).await.unwrap().unwrap();
}

/// Done entries of the usual shape, many to a swap.
async fn fill(engine: &Engine, size: u64) {
    let first = work("old");
    let view = engine.look(Some(&first), std::slice::from_ref(first.job())).await.unwrap();
    let claimed = take(engine, &first, &view, 0);
    let grant = claimed.grant();
    let ask = Settle {
        grant: &grant,
        ending: Ending::Succeeded,
        result: None,
        output: None,
        failed_tries: 0,
        missed_renewals: 0,
        unrenewed_ms: 0,
        now_ms: 1_750_000_000_500,
    };
    let done = settle(&claimed.intent.unwrap().entry, &ask).unwrap();
    // in the order of their keys: a tree that is filled at random is read and written again and again
    let mut works: Vec<(Key, u64)> = (0..size).map(|n| (work(&format!("old-{n}")).key(), n)).collect();
    works.sort_unstable();
    // in two passes, so that pages are split and half full as in a ledger that grew
    let (first, second): (Vec<_>, Vec<_>) = works.into_iter().partition(|(_, n)| n % 2 == 0);
    for batch in first.chunks(BATCH).chain(second.chunks(BATCH)) {
        let puts: Vec<Change> = batch
            .iter()
            .map(|(_, n)| {
                let entry = Entry { work: work(&format!("old-{n}")), ..done.clone() };
                let key = RecordKey::entry(&entry.work);
                let value = encode(&key, &entry).unwrap();
                Change::Put { key, expect: Expect::Absent, value, ttl: None }
            })
            .collect();
        engine.store.swap(&puts, Durability::Relaxed).await.unwrap();
    }
}
