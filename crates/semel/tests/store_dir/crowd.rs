//! Many at once on one record: no write is lost, none is made twice, and removals do not let an old one back in.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use semel::core::record::Expect;
use semel::store::dir::Dir;
use semel::store::{Change, Durability, Store, StoreError};

use crate::support::{Folder, MINUTE, key, load, put};

const TASKS: u64 = 8;
const TIME: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Tally {
    made: AtomicU64,
    unknown: AtomicU64,
    /// Creations less removals.
    standing: AtomicI64,
}

/// Add one to a number until the time is over.
async fn count(store: Arc<Dir>, tally: Arc<Tally>, durability: Durability) {
    let begun = Instant::now();
    while begun.elapsed() < TIME {
        let record = load(&*store, "count").await.unwrap();
        let number: u64 = String::from_utf8(record.value).unwrap().parse().unwrap();
        let next = put("count", Expect::Live(record.version), &(number + 1).to_string(), MINUTE);
        match store.swap(&[next], durability).await {
            Ok(_) => tally.made.fetch_add(1, Ordering::Relaxed),
            Err(StoreError::Refused(_)) => 0,
            Err(StoreError::Unknown(_)) => tally.unknown.fetch_add(1, Ordering::Relaxed),
            Err(why) => panic!("{why}"),
        };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_addition_is_lost_while_the_clock_is_restarted_all_the_time() {
    let folder = Folder::new();
    let tally = Arc::new(Tally::default());
    let first = folder.store();
    first.swap(&[put("count", Expect::Absent, "0", MINUTE)], Durability::Durable).await.unwrap();
    let mut tasks = Vec::new();
    for i in 0..TASKS {
        let durability = if i % 2 == 0 { Durability::Durable } else { Durability::Relaxed };
        tasks.push(tokio::spawn(count(Arc::new(folder.store()), Arc::clone(&tally), durability)));
    }
    let (begun, mut touched) = (Instant::now(), 0);
    while begun.elapsed() < TIME {
        let version = load(&first, "count").await.unwrap().version;
        match first.touch(&key("count"), &version).await {
            Ok(()) => touched += 1,
            Err(StoreError::Refused(_) | StoreError::Unknown(_)) => {}
            Err(why) => panic!("{why}"),
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    let last = load(&first, "count").await.unwrap();
    let number: u64 = String::from_utf8(last.value).unwrap().parse().unwrap();
    let (made, unknown) = (tally.made.load(Ordering::Relaxed), tally.unknown.load(Ordering::Relaxed));
    println!("{made} additions, {unknown} of which nothing is known, {touched} renewals");
    assert!((made..=made + unknown).contains(&number), "{number} stands there after {made} and {unknown}");
    assert!(made > 20 && folder.names("records/=count").len() < 100);
}

/// Make it if it is not there, remove it if it is.
async fn come_and_go(store: Arc<Dir>, tally: Arc<Tally>) {
    let begun = Instant::now();
    while begun.elapsed() < TIME {
        let record = load(&*store, "a/b").await;
        let (change, by) = match record {
            None => (put("a/b", Expect::Absent, "x", None), 1),
            Some(record) => (Change::Remove { key: key("a/b"), expect: Expect::Version(record.version) }, -1),
        };
        match store.swap(&[change], Durability::Durable).await {
            Ok(_) => {
                tally.made.fetch_add(1, Ordering::Relaxed);
                tally.standing.fetch_add(by, Ordering::Relaxed);
            }
            Err(StoreError::Refused(_)) => {}
            Err(StoreError::Unknown(_)) => drop(tally.unknown.fetch_add(1, Ordering::Relaxed)),
            Err(why) => panic!("{why}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn creations_and_removals_take_turns() {
    let folder = Folder::new();
    let tally = Arc::new(Tally::default());
    let tasks: Vec<_> =
        (0..TASKS).map(|_| tokio::spawn(come_and_go(Arc::new(folder.store()), Arc::clone(&tally)))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let store = folder.store();
    let stands = i64::from(load(&store, "a/b").await.is_some());
    let (made, unknown) = (tally.made.load(Ordering::Relaxed), tally.unknown.load(Ordering::Relaxed));
    println!("{made} creations and removals, {unknown} of which nothing is known");
    let off = (tally.standing.load(Ordering::Relaxed) - stands).unsigned_abs();
    assert!(off <= unknown, "creations less removals is off by {off}");
    assert!(made > 20);
    store.tidy().await.unwrap();
    assert_eq!(folder.names("records/@a").len(), usize::try_from(stands).unwrap());
}
