//! A ledger carried to another store: everything arrives, counters never go back, and nothing of a stranger's is
//! touched.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::core::lease::Lease;
use semel::core::name::Name;
use semel::core::record::{Expect, RecordKey, Version, decode};
use semel::engine::copy::{CopyError, copy};
use semel::store::memory::Memory;
use semel::store::sqlite::Sqlite;
use semel::store::{Change, Durability, Loaded, Most, Pending, Record, Store, StoreError};
use semel::{Job, Outcome, Run, Semel};
use tokio::sync::Notify;

type Any = Box<dyn std::error::Error + Send + Sync>;

async fn publish(run: Run) -> Result<u32, Any> {
    Ok(run.step("build", async || Ok::<_, Any>(7)).await?)
}

fn day(n: u32) -> Job {
    Job::named("publish").slot(&format!("day-{n}")).resource("site").build().unwrap()
}

async fn ledger_of(days: u32) -> Arc<Memory> {
    let store = Arc::new(Memory::new());
    let semel = Semel::on(store.clone());
    for n in 1..=days {
        assert!(matches!(semel.run(&day(n), publish).await, Outcome::Done(7)));
    }
    store
}

async fn token_of(store: &dyn Store) -> u64 {
    let key = RecordKey::lease(&Name::new("site").unwrap());
    let record = store.load(std::slice::from_ref(&key)).await.unwrap().records.pop().flatten().unwrap();
    decode::<Lease>(&key, &record.value).unwrap().grant.token.value()
}

fn put(key: &str, value: &[u8]) -> Change {
    let key = RecordKey::from_stored(key.to_owned());
    Change::Put { key, expect: Expect::Absent, value: value.to_vec(), ttl: None }
}

#[tokio::test]
async fn what_was_done_stays_done_and_tokens_go_on() {
    let source = ledger_of(9).await;
    let folder = tempfile::tempdir().unwrap();
    let target = Arc::new(Sqlite::open(&folder.path().join("ledger.db")).unwrap());
    let mut told = 0;
    let carried = copy(&*source, &*target, &mut |records| told = records).await.unwrap();
    // a lease, and an entry and a step for each day
    assert_eq!((carried.written, carried.there, carried.compared), (19, 0, 19));
    assert_eq!(told, 19);
    let before = token_of(&*source).await;
    let moved = Semel::on(target.clone());
    for n in 1..=9 {
        assert!(
            matches!(moved.run(&day(n), publish).await, Outcome::AlreadyDone(Some(7))),
            "day {n} ran again"
        );
    }
    assert!(matches!(moved.run(&day(10), publish).await, Outcome::Done(7)));
    assert!(token_of(&*target).await > before);
    // once more: what the target knows beyond the source is a stranger's now
    assert!(matches!(copy(&*source, &*target, &mut |_| ()).await, Err(CopyError::Stranger(_))));
}

#[tokio::test]
async fn a_higher_counter_in_the_target_stays() {
    let (source, target) = (ledger_of(2).await, Arc::new(Memory::new()));
    let mine = Semel::on(target.clone());
    let always = Job::named("other").always().resource("site").build().unwrap();
    for _ in 0..5 {
        let _ = mine.run(&always, async |_: Run| Ok::<_, Any>(())).await;
    }
    // a counter is no stranger; an entry would be
    for record in target.scan("entry/", None, 10).await.unwrap() {
        let remove = Change::Remove { expect: Expect::Version(record.version), key: record.key };
        target.swap(&[remove], Durability::Durable).await.unwrap();
    }
    let before = token_of(&*target).await;
    copy(&*source, &*target, &mut |_| ()).await.unwrap();
    assert_eq!(token_of(&*target).await, before);
}

#[tokio::test]
async fn nobody_may_hold_a_lease_meanwhile() {
    for held_in_target in [false, true] {
        let (source, target) = (ledger_of(1).await, Arc::new(Memory::new()));
        let held = Semel::on(if held_in_target { target.clone() } else { source.clone() });
        let job = Job::named("long").once().build().unwrap();
        let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (told, goes) = (begun.clone(), go.clone());
        let running = tokio::spawn(async move {
            let body = async |_: Run| {
                told.notify_one();
                goes.notified().await;
                Ok::<_, Any>(())
            };
            let _ = held.run(&job, body).await;
        });
        begun.notified().await;
        let refused = copy(&*source, &*target, &mut |_| ()).await.unwrap_err();
        assert!(matches!(&refused, CopyError::Held(name, _) if name == "long"), "{refused}");
        go.notify_one();
        running.await.unwrap();
        if !held_in_target {
            copy(&*source, &*target, &mut |_| ()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_interrupted_copy_goes_on_and_a_changed_source_is_told() {
    let (source, target) = (ledger_of(200).await, Arc::new(Memory::new()));
    for after in [1, 2, 3, 4] {
        let dying = Dying { inner: target.clone(), left: AtomicU32::new(after) };
        assert!(copy(&*source, &dying, &mut |_| ()).await.is_err(), "it did not die after {after} swaps");
    }
    // meanwhile the source went on: what was carried of it before is the copy's own, and is carried anew
    let semel = Semel::on(source.clone());
    assert!(matches!(semel.run(&day(27), publish).await, Outcome::AlreadyDone(_)));
    let extra = Job::named("extra").once().build().unwrap();
    let _ = semel.run(&extra, publish).await;
    let carried = copy(&*source, &*target, &mut |_| ()).await.unwrap();
    assert!(carried.there > 0 && carried.written > 0, "{carried:?}");
    let again = copy(&*source, &*target, &mut |_| ()).await.unwrap();
    assert_eq!((again.written, again.digest), (0, carried.digest));
}

/// A record of the target by the name of its job, as it stands.
async fn entry_of(store: &dyn Store, job: &Job) -> Vec<u8> {
    let key = RecordKey::entry(job.work().unwrap());
    store.load(std::slice::from_ref(&key)).await.unwrap().records.pop().flatten().unwrap().value
}

#[tokio::test]
async fn what_was_done_in_a_target_that_was_used_too_early_is_not_written_over() {
    let (source, target) = (ledger_of(200).await, Arc::new(Memory::new()));
    let failing = Job::named("late").once().resource("site").build().unwrap();
    let failed = async |_: Run| Err::<u32, Any>("not yet".into());
    assert!(matches!(Semel::on(source.clone()).run(&failing, failed).await, Outcome::Failed(_)));
    let dying = Dying { inner: target.clone(), left: AtomicU32::new(4) };
    assert!(copy(&*source, &dying, &mut |_| ()).await.is_err(), "it did not die");
    // half of it is there, and somebody runs on it: the work that failed in the source is done here
    assert!(matches!(Semel::on(target.clone()).run(&failing, publish).await, Outcome::Done(7)));
    let done = entry_of(&*target, &failing).await;
    let refused = copy(&*source, &*target, &mut |_| ()).await.unwrap_err();
    assert!(matches!(refused, CopyError::Used(_)), "{refused}");
    assert_eq!(entry_of(&*target, &failing).await, done, "the outcome stands");
    assert!(matches!(Semel::on(target.clone()).run(&failing, publish).await, Outcome::AlreadyDone(Some(7))));
}

#[tokio::test]
async fn what_the_copy_wrote_itself_is_carried_anew_when_the_source_went_on() {
    let (source, target) = (ledger_of(100).await, Arc::new(Memory::new()));
    let failing = Job::named("a-late").once().resource("site").build().unwrap();
    let failed = async |_: Run| Err::<u32, Any>("not yet".into());
    let semel = Semel::on(source.clone());
    assert!(matches!(semel.run(&failing, failed).await, Outcome::Failed(_)));
    let before = entry_of(&*source, &failing).await;
    let mut after = 0;
    // as soon as its entry was carried
    loop {
        after += 1;
        let dying = Dying { inner: target.clone(), left: AtomicU32::new(after) };
        assert!(copy(&*source, &dying, &mut |_| ()).await.is_err(), "it did not die after {after} swaps");
        let key = RecordKey::entry(failing.work().unwrap());
        let carried = target.load(std::slice::from_ref(&key)).await.unwrap().records.pop().flatten();
        if carried.is_some_and(|carried| carried.value == before) {
            break;
        }
    }
    assert!(matches!(semel.run(&failing, publish).await, Outcome::Done(7)));
    copy(&*source, &*target, &mut |_| ()).await.unwrap();
    assert_eq!(entry_of(&*target, &failing).await, entry_of(&*source, &failing).await);
    let left = target.scan("copy/", None, 10).await.unwrap();
    assert!(left.is_empty(), "the copy left something of its own: {left:?}");
}

/// Somebody writes into the target between the copy's look and its write.
#[tokio::test]
async fn a_record_that_changes_under_the_copy_is_not_written_over() {
    let (source, target) = (ledger_of(3).await, Meddled(Memory::new()));
    let refused = copy(&*source, &target, &mut |_| ()).await.unwrap_err();
    assert!(matches!(refused, CopyError::Used(_)), "{refused}");
    let entries = target.scan("entry/", None, 10).await.unwrap();
    assert!(entries.iter().any(|record| record.value == b"theirs"), "{entries:?}");
}

/// Swaps hold no more than the target says that it takes.
#[tokio::test]
async fn a_target_that_takes_little_at_once_gets_little_at_once() {
    for most in [Most { changes: 3, bytes: usize::MAX }, Most { changes: usize::MAX, bytes: 2_000 }] {
        let source = ledger_of(50).await;
        let target = Picky { inner: Memory::new(), most };
        let carried = copy(&*source, &target, &mut |_| ()).await.unwrap();
        assert_eq!(carried.written, 101);
    }
}

#[tokio::test]
async fn a_strangers_ledger_is_not_touched() {
    let (source, target) = (ledger_of(1).await, Arc::new(Memory::new()));
    target.swap(&[put("entry/x/", b"theirs")], Durability::Durable).await.unwrap();
    assert!(matches!(copy(&*source, &*target, &mut |_| ()).await, Err(CopyError::Stranger(_))));
    let left = target.scan("", None, 100).await.unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// A store into which somebody else writes the first entry just before we do.
#[derive(Debug)]
struct Meddled(Memory);

impl Store for Meddled {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        self.0.load(keys)
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        let entry = changes.iter().find(|change| change.key().as_str().starts_with("entry/"));
        Box::pin(async move {
            if let Some(entry) = entry {
                let _ = self.0.swap(&[put(entry.key().as_str(), b"theirs")], durability).await;
            }
            self.0.swap(changes, durability).await
        })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        self.0.touch(key, version)
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.0.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.0.changed(key, version, within)
    }
}

/// A store that takes so much in one swap, and panics at more.
#[derive(Debug)]
struct Picky {
    inner: Memory,
    most: Most,
}

impl Store for Picky {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        self.inner.load(keys)
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        let bytes: usize = changes.iter().map(Change::size).sum();
        assert!(changes.len() <= self.most.changes, "{} changes", changes.len());
        assert!(bytes <= self.most.bytes || changes.len() == 1, "{bytes} bytes");
        self.inner.swap(changes, durability)
    }

    fn most(&self) -> Most {
        self.most
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        self.inner.touch(key, version)
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.inner.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.inner.changed(key, version, within)
    }
}

/// A store that dies after some swaps, as its copier would.
#[derive(Debug)]
struct Dying {
    inner: Arc<Memory>,
    left: AtomicU32,
}

impl Store for Dying {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        self.inner.load(keys)
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        let lives = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match lives {
            Ok(_) => self.inner.swap(changes, durability),
            Err(_) => Box::pin(async { Err(StoreError::Unavailable("gone".to_owned())) }),
        }
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        self.inner.touch(key, version)
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.inner.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.inner.changed(key, version, within)
    }
}
