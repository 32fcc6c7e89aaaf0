//! `bench_ledger DIR SIZE…`: the latency of a claim in ledgers of different sizes, in turns.
//!
//! Called by `cargo xtask bench ledger`. Each ledger is filled with that many done entries of the usual
//! shape, unless it is there already; then every round claims and settles one fresh work in each, and times the claim: one load, one durable swap.

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
use semel::core::record::{RecordKey, encode};
use semel::core::token::Nonce;
use semel::core::work::Work;
use semel::engine::view::changes;
use semel::engine::{Engine, Strangers};
use semel::store::memory::Memory;
use semel::store::sqlite::Sqlite;
use semel::store::{Durability, Store};
use semel_testkit::{Ratio, median};

const ROUNDS: usize = 400;
const WARM_UP: usize = 20;

fn main() {
    let mut words = std::env::args().skip(1);
    let dir = words.next().unwrap();
    let sizes: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(bench(Path::new(&dir), &sizes));
}

async fn bench(dir: &Path, sizes: &[u64]) {
    let (done, mut engines) = (done().await, Vec::new());
    for size in sizes {
        let began = Instant::now();
        let path = dir.join(format!("ledger-{size}.db"));
        // one of an earlier time will do
        if !path.exists() {
            fill(&path, &done, *size);
            println!("filled a ledger with {size} entries in {:.1} s", began.elapsed().as_secs_f64());
        }
        let engine = engine(Arc::new(Sqlite::open(&path).unwrap()));
        engines.push(engine);
    }
    // what the filling left to be written must not be written during the measurement
    Command::new("sync").status().unwrap();
    let mut times = vec![Vec::new(); sizes.len()];
    for round in 0..ROUNDS + WARM_UP {
        for turn in 0..sizes.len() {
            // another one first each time: who comes after whom matters
            let who = (round + turn) % sizes.len();
            let (engine, times) = (&engines[who], &mut times[who]);
            let work = work(&format!("fresh-{}-{round}", std::process::id()));
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
    for (size, took) in sizes.iter().zip(&times) {
        let (p50, ratio) = (median(took) * 1e3, Ratio::new(took, &times[0]));
        println!("a claim among {size} entries / among {}: p50 {p50:.3} ms, {ratio}", sizes[0]);
    }
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

/// Done entries of the usual shape, in the order in which they came, as in a ledger that grew: their keys are in none.
/// Past the store, without a log: ten million by its own writes would take longer than all else.
fn fill(path: &Path, done: &Entry, size: u64) {
    Sqlite::open(path).unwrap().close();
    let mut filler = rusqlite::Connection::open(path).unwrap();
    // all of the tree over the keys in memory: it is written at random
    filler
        .execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -2097152")
        .unwrap();
    let filling = filler.transaction().unwrap();
    {
        let mut insert =
            filling.prepare("INSERT INTO records (key, version, value) VALUES (?1, ?2, ?3)").unwrap();
        for n in 0..size {
            let entry = Entry { work: work(&format!("old-{n}")), ..done.clone() };
            let key = RecordKey::entry(&entry.work);
            insert.execute((key.as_str(), n as i64, encode(&key, &entry).unwrap())).unwrap();
        }
    }
    filling.commit().unwrap();
}

/// An entry as it is when its work is done.
async fn done() -> Entry {
    let (first, engine) = (work("old"), engine(Arc::new(Memory::new())));
    let view = engine.look(Some(&first), std::slice::from_ref(first.job())).await.unwrap();
    let claimed = take(&engine, &first, &view, 0);
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
    settle(&claimed.intent.unwrap().entry, &ask).unwrap()
}
