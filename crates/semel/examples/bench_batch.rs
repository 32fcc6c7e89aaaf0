//! `bench_batch DIR [ITEMS]`: in-process items of a batch, durable, against the store's own commits; and a resume over
//! items that are all done.
//!
//! The floor is as many durable commits as the batch made, of one record each, in the same store, and nothing else.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // a bench that cannot go on should say where

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use semel::core::record::{Expect, RecordKey};
use semel::engine::batch::{BatchReport, Batched};
use semel::store::sqlite::Sqlite;
use semel::store::{Change, Durability, Store};
use semel::{Job, Semel};

const WORKERS: usize = 32;

fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let items: u64 = std::env::args().nth(2).map_or(200_000, |text| text.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Sqlite::open(&Path::new(&dir).join("batch.db")).unwrap());
        let semel = Semel::on(store.clone());
        let job = Job::named("bench").once().build().unwrap();
        let (ran, took) = run(&semel, &job, items).await;
        let per_second = ran.counts.done as f64 / took;
        println!("{} items done, {WORKERS} at once: {per_second:.0} items/s", ran.counts.done);
        let per_commit = ran.counts.done as f64 / ran.commits as f64;
        println!("{} commits, {per_commit:.1} items each", ran.commits);
        let commits = ran.commits.clamp(1, 2_000);
        let began = Instant::now();
        for n in 0..commits {
            let key = RecordKey::from_stored(format!("floor/{n:064}"));
            let change = Change::Put { key, expect: Expect::Absent, value: vec![b'x'; 600], ttl: None };
            store.swap(&[change], Durability::Durable).await.unwrap();
        }
        let floor = began.elapsed().as_secs_f64() / commits as f64;
        println!(
            "floor: {:.3} ms a commit; the batch took {:.3} ms for each of its own",
            floor * 1e3,
            took / ran.commits as f64 * 1e3
        );
        let (ran, took) = run(&semel, &job, items).await;
        println!(
            "resume: {} items found done, {:.0} items/s",
            ran.counts.skipped,
            ran.counts.skipped as f64 / took
        );
    });
}

async fn run(semel: &Semel, job: &Job, items: u64) -> (Batched, f64) {
    let began = Instant::now();
    let all = (0..items).map(|id| (id, id));
    let outcome = semel.batch(job).workers(WORKERS).run(all, async |id| Ok::<_, &str>(*id)).await;
    assert!(outcome.is_all_done(), "{:?}", outcome.report);
    match outcome.report {
        BatchReport::Ran(ran) => (ran, began.elapsed().as_secs_f64()),
        BatchReport::NotRun(report) => unreachable!("{report:?}"),
    }
}
