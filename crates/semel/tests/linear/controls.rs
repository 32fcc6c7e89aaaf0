//! The checker says no to what is broken: stores that are broken on purpose, and histories made by hand.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::core::record::{Expect, RecordKey, Version};
use semel::store::memory::Memory;
use semel::store::{Change, Durability, Loaded, Pending, Record, Store, StoreError};
use tokio::task::yield_now;

use crate::arena::{Arena, Outcome, untried};
use crate::history::{Answer, Call, Promise, steps};
use crate::local::Yielding;
use crate::spec::{Act, Asked, NEVER, Part, Said, Verdict, Want, Write, check, check_within};

/// How often a broken store is looked at until it is found out.
const TRIES: u32 = 5;

/// What a store does wrong now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// A load answers what this handle loaded before.
    StaleReads,
    /// One in fifty expectations of a version is not looked at.
    LostUpdates,
    /// One in fifty swaps is done and said not to be.
    FalseUnavailable,
    /// It says that a swap is a whole, and makes the changes one by one.
    TornSwaps,
    /// It says that it was refused, and did it.
    FalseRefusals,
    /// A load reads one record after the other.
    TornLoads,
    /// It takes what comes, and no load is answered.
    Silent,
}

#[derive(Debug)]
struct Broken {
    sound: Memory,
    wrong: Wrong,
    calls: AtomicU64,
    cache: Mutex<HashMap<RecordKey, Option<Record>>>,
}

impl Broken {
    fn now(&self, one_in: u64) -> bool {
        self.calls.fetch_add(1, Ordering::SeqCst) % one_in == one_in - 1
    }

    async fn load_wrongly(&self, keys: &[RecordKey]) -> Result<Loaded, StoreError> {
        if self.wrong == Wrong::Silent {
            return Err(StoreError::Unavailable("it says nothing".to_owned()));
        }
        if self.wrong == Wrong::TornLoads {
            let mut records = Vec::new();
            for key in keys {
                records.extend(self.sound.load(std::slice::from_ref(key)).await?.records);
                yield_now().await;
            }
            return Ok(Loaded { records, token_floor: 0 });
        }
        let mut loaded = self.sound.load(keys).await?;
        if self.wrong == Wrong::StaleReads {
            let stale = self.now(20);
            let mut cache = self.cache.lock().unwrap();
            for (key, record) in keys.iter().zip(&mut loaded.records) {
                match cache.get(key) {
                    Some(cached) if stale => record.clone_from(cached),
                    _ => drop(cache.insert(key.clone(), record.clone())),
                }
            }
        }
        Ok(loaded)
    }

    async fn swap_wrongly(&self, changes: &[Change]) -> Result<Vec<Version>, StoreError> {
        match self.wrong {
            Wrong::TornSwaps => {
                let mut versions = Vec::new();
                for (index, change) in changes.iter().enumerate() {
                    match self.swap(std::slice::from_ref(change)).await {
                        Ok(version) => versions.extend(version),
                        // as a sound store would say it
                        Err(StoreError::Refused(at)) => {
                            return Err(StoreError::refused(index, at.key, at.stands));
                        }
                        Err(why) => return Err(why),
                    }
                    yield_now().await;
                }
                Ok(versions)
            }
            Wrong::LostUpdates if self.now(50) => {
                let mut changes = changes.to_vec();
                for change in &mut changes {
                    if let Change::Put { key, expect: expect @ Expect::Version(_), .. } = change {
                        let stands = self.sound.load(std::slice::from_ref(key)).await?.records.remove(0);
                        *expect = stands.map_or(Expect::Absent, |record| Expect::Version(record.version));
                    }
                }
                self.swap(&changes).await
            }
            Wrong::FalseUnavailable if self.now(50) => {
                self.swap(changes).await?;
                Err(StoreError::Unavailable("it was done".to_owned()))
            }
            Wrong::FalseRefusals if self.now(50) => {
                let key = changes[0].key().clone();
                let stands = self.sound.load(std::slice::from_ref(&key)).await?.records.remove(0);
                self.swap(changes).await?;
                Err(StoreError::refused(0, key, stands))
            }
            _ => self.swap(changes).await,
        }
    }

    async fn swap(&self, changes: &[Change]) -> Result<Vec<Version>, StoreError> {
        self.sound.swap(changes, Durability::Durable).await
    }
}

impl Store for Broken {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(self.load_wrongly(keys))
    }

    fn swap<'a>(&'a self, changes: &'a [Change], _: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(self.swap_wrongly(changes))
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        self.sound.touch(key, version)
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.sound.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.sound.changed(key, version, within)
    }
}

/// What comes of so many calls of a store that does this wrong.
fn outcome(name: &'static str, wrong: Wrong, calls: u64) -> Outcome {
    let memory = Memory::new();
    let handle = |_| {
        let sound = memory.clone();
        let broken = Broken { sound, wrong, calls: AtomicU64::new(0), cache: Mutex::default() };
        Arc::new(Yielding(broken)) as Arc<dyn Store>
    };
    let handles = (0..4).map(handle).collect();
    let outcome = Arena { name, handles, deck: Vec::new() }.run_for(calls);
    println!("{}", outcome.line);
    outcome
}

/// How many islands fit no order.
fn broken(name: &'static str, wrong: Wrong) -> usize {
    let outcome = outcome(name, wrong, 3_000);
    assert!(outcome.too_long.is_empty(), "{}", outcome.too_long[0]);
    outcome.broken.len()
}

#[test]
fn a_store_that_is_broken_on_purpose_is_found_out() {
    assert_eq!(broken("nothing wrong", Wrong::Nothing), 0);
    for (name, wrong) in [
        ("stale reads", Wrong::StaleReads),
        ("lost updates", Wrong::LostUpdates),
        ("false unavailable", Wrong::FalseUnavailable),
        ("torn swaps", Wrong::TornSwaps),
        ("false refusals", Wrong::FalseRefusals),
        ("torn loads", Wrong::TornLoads),
    ] {
        // one in fifty of the wrong kind may meet nobody who notices
        let found = (0..TRIES).any(|_| broken(name, wrong) > 0);
        assert!(found, "{name} pass for linearizable");
    }
}

#[test]
fn what_nobody_could_look_at_is_not_passed() {
    let outcome = outcome("silent", Wrong::Silent, 1);
    assert!(outcome.broken.is_empty() && !outcome.unseen.is_empty(), "{}", outcome.line);
}

#[test]
fn a_run_without_its_faults_is_not_passed() {
    let faults = BTreeMap::from([("cuts", 3)]);
    assert_eq!(untried(&["cuts"], &faults, 1), [""; 0]);
    assert_eq!(untried(&["cuts", "kills"], &faults, 1), ["there were no kills\n"]);
    assert_eq!(untried(&["cuts"], &faults, 0), ["no answer was unknown\n"]);
    assert_eq!(untried(&[], &BTreeMap::new(), 0), [""; 0], "the store in memory meets none");
}

fn write(number: u32) -> Write {
    Write { number, clocked: false }
}

fn put(slot: usize, want: Want, number: u32) -> Part {
    Part { slot, want, act: Act::Put(write(number)) }
}

fn swap(parts: &[Part]) -> Asked {
    Asked::Swap(parts.to_vec())
}

fn remove(slot: usize, number: u32) -> Asked {
    swap(&[Part { slot, want: Want::At(write(number)), act: Act::Remove }])
}

fn saw(numbers: &[Option<u32>]) -> Answer {
    Answer::Said(Said::Saw(numbers.iter().map(|number| number.map(write)).collect()))
}

fn refused(index: usize, number: Option<u32>) -> Answer {
    Answer::Said(Said::Refused { index, stands: number.map(write) })
}

const DONE: Answer = Answer::Said(Said::Done);

/// Calls as (begin, end, what, answer).
fn verdict(promise: Promise, calls: &[(u64, u64, Asked, Answer)]) -> Verdict {
    let call = |(begun, ended, asked, answer): &(u64, u64, Asked, Answer)| Call {
        client: 0,
        begun: *begun,
        ended: if *answer == Answer::Unknown { NEVER } else { *ended },
        asked: asked.clone(),
        answer: answer.clone(),
    };
    check(&steps(&calls.iter().map(call).collect::<Vec<_>>(), promise))
}

fn whole(calls: &[(u64, u64, Asked, Answer)]) -> bool {
    verdict(Promise::Whole, calls) == Verdict::Fits
}

fn load(slots: &[usize]) -> Asked {
    Asked::Load(slots.to_vec())
}

#[test]
fn what_comes_after_a_write_sees_it() {
    let create = (0, 1, swap(&[put(0, Want::Absent, 1)]), DONE);
    assert!(whole(&[create.clone(), (2, 3, load(&[0]), saw(&[Some(1)]))]));
    assert!(!whole(&[create.clone(), (2, 3, load(&[0]), saw(&[None]))]));
    // at the same time, either
    let during = |seen| (1, 2, load(&[0]), saw(&[seen]));
    let long = (0, 3, swap(&[put(0, Want::Absent, 1)]), DONE);
    assert!(whole(&[long.clone(), during(None)]) && whole(&[long.clone(), during(Some(1))]));
    // but not back again
    assert!(!whole(&[
        (0, 9, long.2, DONE),
        (1, 2, load(&[0]), saw(&[Some(1)])),
        (3, 4, load(&[0]), saw(&[None]))
    ]));
    assert!(!whole(&[(0, 1, load(&[0]), saw(&[Some(7)]))]), "nobody wrote it");
}

#[test]
fn two_that_replace_the_same_do_not_both_win() {
    let create = (0, 1, swap(&[put(0, Want::Absent, 1)]), DONE);
    let replace = |number, answer| (2, 5, swap(&[put(0, Want::At(write(1)), number)]), answer);
    let second = |number, answer| (3, 4, swap(&[put(0, Want::At(write(1)), number)]), answer);
    assert!(!whole(&[create.clone(), replace(2, DONE), second(3, DONE)]));
    assert!(whole(&[create.clone(), replace(2, DONE), second(3, refused(0, Some(2)))]));
    assert!(
        !whole(&[create.clone(), replace(2, DONE), second(3, refused(0, Some(1)))]),
        "it would have fitted"
    );
    assert!(!whole(&[create, replace(2, DONE), second(3, refused(0, None))]), "something stood there");
}

#[test]
fn what_is_unknown_was_done_once_later_or_never() {
    let create = (0, 1, swap(&[put(0, Want::Absent, 1)]), DONE);
    let unknown = (2, 3, swap(&[put(0, Want::At(write(1)), 2)]), Answer::Unknown);
    let look = |at, number| (at, at + 1, load(&[0]), saw(&[Some(number)]));
    assert!(whole(&[create.clone(), unknown.clone(), look(4, 1), look(6, 1)]), "never");
    assert!(whole(&[create.clone(), unknown.clone(), look(4, 1), look(6, 2)]), "later");
    assert!(!whole(&[create.clone(), unknown.clone(), look(4, 2), look(6, 1)]), "it is not undone");
    let before = (2, 3, load(&[0]), saw(&[Some(2)]));
    assert!(
        !whole(&[create.clone(), before, (4, 5, unknown.2.clone(), Answer::Unknown)]),
        "nor done before it began"
    );
    let unavailable = (2, 3, unknown.2, Answer::Unavailable);
    assert!(whole(&[create.clone(), unavailable.clone(), look(4, 1)]));
    assert!(!whole(&[create.clone(), unavailable, look(4, 2)]), "it was said not to be done");
    let removal = (2, 3, remove(0, 1), Answer::Unknown);
    let gone = |at| (at, at + 1, load(&[0]), saw(&[None]));
    assert!(whole(&[create.clone(), removal.clone(), look(4, 1), gone(6)]), "a removal comes later");
    assert!(whole(&[create.clone(), removal.clone(), look(4, 1), look(6, 1)]), "or never");
    assert!(!whole(&[create, removal, gone(4), look(6, 1)]), "and is not undone");
}

#[test]
fn a_swap_is_a_whole_where_it_is_promised_and_a_prefix_where_not() {
    let both = swap(&[put(0, Want::Absent, 1), put(1, Want::Absent, 2)]);
    let half = [(0, 9, both.clone(), DONE), (1, 2, load(&[0, 1]), saw(&[Some(1), None]))];
    assert!(!whole(&half));
    assert_eq!(verdict(Promise::InOrder, &half), Verdict::Fits);
    // two looks, one after the other: the second change was there and the first was not
    let other = |promise| {
        let looks = [(1, 2, load(&[1]), saw(&[Some(2)])), (3, 4, load(&[0]), saw(&[None]))];
        verdict(promise, &[&[(0, 9, both.clone(), DONE)], &looks[..]].concat())
    };
    assert_eq!(other(Promise::InOrder), Verdict::FitsNoOrder);
    let cut_off = |seen: &[Option<u32>]| {
        verdict(
            Promise::InOrder,
            &[
                (0, 1, both.clone(), Answer::Unknown),
                (2, 3, load(&[0, 1]), saw(seen)),
                (4, 5, load(&[0, 1]), saw(seen)),
            ],
        )
    };
    assert_eq!(cut_off(&[Some(1), None]), Verdict::Fits);
    assert_eq!(cut_off(&[None, Some(2)]), Verdict::FitsNoOrder);
    // refused at the second: the first may be there
    let taken = (0, 1, swap(&[put(1, Want::Absent, 7)]), DONE);
    let late = |seen| {
        let calls =
            [taken.clone(), (2, 3, both.clone(), refused(1, Some(7))), (4, 5, load(&[0]), saw(&[seen]))];
        (verdict(Promise::Whole, &calls), verdict(Promise::InOrder, &calls))
    };
    assert_eq!(late(None), (Verdict::Fits, Verdict::Fits));
    assert_eq!(late(Some(1)), (Verdict::FitsNoOrder, Verdict::Fits));
}

#[test]
fn guards_touches_and_clocks_are_looked_at() {
    let clocked = Write { number: 1, clocked: true };
    let create = (0, 1, swap(&[Part { slot: 0, want: Want::Absent, act: Act::Put(clocked) }]), DONE);
    let touch = |answer| (2, 3, Asked::Touch(0, clocked), answer);
    let stands = Answer::Said(Said::Refused { index: 0, stands: Some(clocked) });
    assert!(whole(&[create.clone(), touch(DONE)]) && !whole(&[create.clone(), touch(stands.clone())]));
    let guard = |want, answer| (2, 3, swap(&[Part { slot: 0, want, act: Act::Guard }]), answer);
    assert!(whole(&[create.clone(), guard(Want::Live(clocked), DONE)]));
    assert!(!whole(&[create.clone(), guard(Want::Lapsed(clocked), DONE)]));
    assert!(whole(&[create, guard(Want::Lapsed(clocked), stands)]));
    let timeless = (0, 1, swap(&[put(0, Want::Absent, 1)]), DONE);
    assert!(!whole(&[timeless, (2, 3, Asked::Touch(0, write(1)), DONE)]), "it has no clock to restart");
}

#[test]
fn a_check_that_takes_too_long_is_told_and_not_passed() {
    // forty looks at the same time may come in any order, and none of them helps the last one
    let look =
        |begun, ended, number| Call { client: 0, begun, ended, asked: load(&[0]), answer: saw(&[number]) };
    let mut calls: Vec<Call> = (0..40).map(|at| look(at, 100 + at, None)).collect();
    calls.push(look(200, 201, Some(1)));
    assert_eq!(check_within(&steps(&calls, Promise::Whole), 1_000), Verdict::TooLong);
    // in one place after the other it is decided at once, however long it is
    let calls: Vec<Call> = calls
        .into_iter()
        .enumerate()
        .map(|(at, call)| Call { begun: 2 * at as u64, ended: 2 * at as u64 + 1, ..call })
        .collect();
    assert_eq!(check_within(&steps(&calls, Promise::Whole), 1_000), Verdict::FitsNoOrder);
}
