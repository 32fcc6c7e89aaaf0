//! `bench_batch DIR [ITEMS [rate]]`: in-process items of a batch, durable, against the store's own commits, in turns; and a
//! resume over items that are all done.
//!
//! Called by `cargo xtask bench batch`. An item is two records, its claim and its outcome. The floor is as many durable
//! swaps as the batch made, each of as many records as one of its commits had on average, half of them new and half
//! written again, in the same store, and nothing else. With `rate` only the items per second of one batch are printed.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // a bench that cannot go on should say where

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use semel::core::record::{Expect, RecordKey, Version};
use semel::engine::batch::{BatchReport, Batched};
use semel::store::sqlite::Sqlite;
use semel::store::{Change, Durability, Store};
use semel::{Job, Semel};
use semel_testkit::{Ratio, median};

const WORKERS: usize = 32;
const ROUNDS: u64 = 5;
/// Bytes of an item's record.
const RECORD: usize = 600;

fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let items: u64 = std::env::args().nth(2).map_or(200_000, |text| text.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Sqlite::open(&Path::new(&dir).join("batch.db")).unwrap());
        let semel = Semel::on(store.clone());
        let job = Job::named("bench").once().build().unwrap();
        if std::env::args().nth(3).is_some_and(|word| word == "rate") {
            let (ran, seconds) = run(&semel, &job, 0..items).await;
            println!("{}", ran.counts.done as f64 / seconds);
            return;
        }
        let part = (items / ROUNDS).max(1);
        let (mut done, mut commits) = (0, 0);
        let (mut took, mut floor) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let (ran, seconds) = run(&semel, &job, round * part..(round + 1) * part).await;
            floor.push(swaps(&store, round, ran.commits, ran.counts.done).await);
            done += ran.counts.done;
            commits += ran.commits;
            took.push(seconds);
        }
        let (done, commits) = (done as f64, commits as f64);
        println!("{done} items of the library, {WORKERS} at once, {ROUNDS} rounds");
        let rate = |took: &[f64]| part as f64 / median(took);
        println!(
            "an item in the library, {WORKERS} at once / the same commits, and nothing else: {:.0} and {:.0} items/s, {}",
            rate(&took),
            rate(&floor),
            Ratio::new(&took, &floor)
        );
        println!("items per commit: {:.1}", done / commits);
        println!("items per second: {:.0}", rate(&took));
        let (ran, took) = run(&semel, &job, 0..ROUNDS * part).await;
        let rate = ran.counts.skipped as f64 / took;
        println!("items per second found done: {rate:.0}");
    });
}

/// Durable swaps, in which so many records are each written twice: seconds.
async fn swaps(store: &Sqlite, round: u64, commits: u64, records: u64) -> f64 {
    let each = records.div_ceil(commits.max(1));
    let value = || vec![b'x'; RECORD];
    let mut before: Vec<(RecordKey, Version)> = Vec::new();
    let began = Instant::now();
    for n in 0..commits {
        let again = before.drain(..).map(|(key, version)| (key, Expect::Version(version)));
        let mut puts: Vec<_> = again.collect();
        let old = puts.len();
        // keys are spread as those of items are
        let key = |m: u64| {
            let n = ((round << 40) + n * each + m).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            RecordKey::from_stored(format!("floor/{n:016x}{n:048x}"))
        };
        puts.extend((0..each).map(|m| (key(m), Expect::Absent)));
        let keys: Vec<RecordKey> = puts.iter().map(|(key, _)| key.clone()).collect();
        let put = |(key, expect)| Change::Put { key, expect, value: value(), ttl: None };
        let changes: Vec<Change> = puts.into_iter().map(put).collect();
        let versions = store.swap(&changes, Durability::Durable).await.unwrap();
        before = keys.into_iter().zip(versions).skip(old).collect();
    }
    began.elapsed().as_secs_f64()
}

async fn run(semel: &Semel, job: &Job, ids: std::ops::Range<u64>) -> (Batched, f64) {
    let began = Instant::now();
    let all = ids.map(|id| (id, id));
    let outcome = semel.batch(job).workers(WORKERS).run(all, async |id| Ok::<_, &str>(*id)).await;
    assert!(outcome.is_all_done(), "{:?}", outcome.report);
    match outcome.report {
        BatchReport::Ran(ran) => (ran, began.elapsed().as_secs_f64()),
        BatchReport::NotRun(report) => unreachable!("{report:?}"),
    }
}
