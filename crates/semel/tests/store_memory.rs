//! The store in memory passes the suite, by the machine's clock and by one that a test steps; and the suite fails
//! stores that are broken on purpose.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::clock::{Clock, Moment};
use semel::core::record::{Expect, RecordKey, Standing, Version};
use semel::store::conformance::{self, Later, Report, Subject};
use semel::store::memory::Memory;
use semel::store::{Change, Durability, Loaded, Pending, Record, Store};

/// A clock that goes only when it is told to.
#[derive(Default)]
struct Stepped {
    now: Mutex<Duration>,
    moved: tokio::sync::Notify,
}

impl Stepped {
    fn step(&self, time: Duration) {
        *self.now.lock().unwrap() += time;
        self.moved.notify_waiters();
    }
}

impl Clock for Stepped {
    fn now(&self) -> Moment {
        Moment::since_boot(*self.now.lock().unwrap())
    }

    fn wall_ms(&self) -> u64 {
        0
    }

    fn sleep_until(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let moved = self.moved.notified();
                tokio::pin!(moved);
                moved.as_mut().enable();
                if self.now() >= moment {
                    return;
                }
                moved.await;
            }
        })
    }
}

type Decorate = fn(Memory) -> Arc<dyn Store>;

/// The store in memory, with whatever a test puts around it.
struct InMemory {
    memory: Memory,
    stepped: Option<Arc<Stepped>>,
    decorate: Decorate,
}

impl InMemory {
    fn decorated(decorate: Decorate) -> InMemory {
        InMemory { memory: Memory::new(), stepped: None, decorate }
    }
}

impl Subject for InMemory {
    fn open(&self) -> Later<'_, Result<Arc<dyn Store>, String>> {
        Box::pin(async { Ok((self.decorate)(self.memory.clone())) })
    }

    fn isolated(&self) -> Later<'_, Result<Arc<dyn Subject>, String>> {
        let memory = match &self.stepped {
            Some(clock) => Memory::with_clock(Arc::clone(clock) as Arc<dyn Clock>),
            None => Memory::new(),
        };
        let subject = InMemory { memory, stepped: self.stepped.clone(), decorate: self.decorate };
        Box::pin(async { Ok(Arc::new(subject) as Arc<dyn Subject>) })
    }

    fn pass(&self, time: Duration) -> Later<'_, ()> {
        match &self.stepped {
            Some(clock) => {
                clock.step(time);
                Box::pin(async {})
            }
            None => Box::pin(tokio::time::sleep(time)),
        }
    }
}

async fn report(decorate: Decorate) -> Report {
    conformance::run(Arc::new(InMemory::decorated(decorate))).await
}

#[tokio::test]
async fn memory_passes_the_suite() {
    let report = report(|memory| Arc::new(memory)).await;
    assert!(report.holds(), "{report}");
    assert!(report.held.len() >= 25, "{report}");
}

#[tokio::test]
async fn memory_counts_by_the_clock_it_is_given() {
    let clock = Arc::new(Stepped::default());
    let store = Memory::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let key = RecordKey::from_stored("lease/a".to_owned());
    let ttl = Some(Duration::from_secs(60));
    let change = Change::Put { key: key.clone(), expect: Expect::Absent, value: vec![], ttl };
    let version = store.swap(&[change], Durability::Durable).await.unwrap().remove(0);
    let keys = [key.clone()];
    let standing = async || store.load(&keys).await.unwrap().records[0].as_ref().unwrap().standing;
    clock.step(Duration::from_millis(59_999));
    assert_eq!(standing().await, Some(Standing::Live { left_ms: 1 }));
    store.touch(&key, &version).await.unwrap();
    clock.step(Duration::from_secs(60));
    assert_eq!(standing().await, Some(Standing::Lapsed { for_ms: 0 }));
    clock.step(Duration::from_millis(7));
    assert_eq!(standing().await, Some(Standing::Lapsed { for_ms: 7 }));
    assert!(store.touch(&key, &version).await.is_err());
    let waiting = store.changed(&key, Some(&version), Duration::from_secs(5));
    let (woken, ()) = tokio::join!(waiting, async { clock.step(Duration::from_secs(5)) });
    assert!(!woken.unwrap());
}

/// A store with one fault; everything else is passed on.
#[derive(Debug)]
struct Broken {
    inner: Memory,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    IgnoresExpectations,
    ForgetsTheTtl,
    TouchesAnyVersion,
    TouchesWhatLapsed,
    StopsAtTheFirstMisfitButKeepsWhatCameBefore,
    ForgetsGuards,
    ScansWithoutTheSlash,
    NeverWakes,
    ReusesVersions,
}

impl Broken {
    fn current(&self, key: &RecordKey) -> Pending<'_, Option<Record>> {
        let key = key.clone();
        Box::pin(async move { Ok(self.inner.load(&[key]).await?.records.remove(0)) })
    }

    /// The change as the broken store understands it.
    async fn bend(&self, change: &Change) -> Change {
        let mut change = change.clone();
        if self.fault == Fault::IgnoresExpectations {
            let stands = self.current(change.key()).await.unwrap();
            let fits = stands.map_or(Expect::Absent, |record| Expect::Version(record.version));
            match &mut change {
                Change::Put { expect, .. } | Change::Guard { expect, .. } | Change::Remove { expect, .. } => {
                    *expect = fits
                }
            }
        }
        if self.fault == Fault::ReusesVersions {
            let stands = self.current(change.key()).await.unwrap();
            if let Some(stands) = stands {
                match &mut change {
                    Change::Put { expect, .. }
                    | Change::Guard { expect, .. }
                    | Change::Remove { expect, .. } => {
                        translate(expect, &stands);
                    }
                }
            }
        }
        if let (Fault::ForgetsTheTtl, Change::Put { ttl, .. }) = (self.fault, &mut change) {
            *ttl = None;
        }
        change
    }
}

impl Store for Broken {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(async move {
            let mut loaded = self.inner.load(keys).await?;
            if self.fault == Fault::ReusesVersions {
                loaded.records.iter_mut().flatten().for_each(|record| record.version = hash(&record.value));
            }
            Ok(loaded)
        })
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(async move {
            let mut bent = Vec::new();
            for change in changes {
                let guard = matches!(change, Change::Guard { .. });
                if !(guard && self.fault == Fault::ForgetsGuards) {
                    bent.push(self.bend(change).await);
                }
            }
            if self.fault == Fault::ReusesVersions {
                let versions = self.inner.swap(&bent, durability).await?;
                let written = bent.iter().zip(versions).map(|(change, version)| match change {
                    Change::Put { value, .. } => hash(value),
                    _ => version,
                });
                return Ok(written.collect());
            }
            if self.fault != Fault::StopsAtTheFirstMisfitButKeepsWhatCameBefore {
                return self.inner.swap(&bent, durability).await;
            }
            let mut versions = Vec::new();
            for change in bent {
                versions.extend(self.inner.swap(&[change], durability).await?);
            }
            Ok(versions)
        })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(async move {
            let stands = self.current(key).await?;
            match (self.fault, stands) {
                (Fault::TouchesAnyVersion, Some(record)) => self.inner.touch(key, &record.version).await,
                (Fault::TouchesWhatLapsed, Some(Record { standing: Some(Standing::Lapsed { .. }), .. })) => {
                    Ok(())
                }
                _ => self.inner.touch(key, version).await,
            }
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        let trimmed = prefix.trim_end_matches('/');
        self.inner.scan(
            if self.fault == Fault::ScansWithoutTheSlash { trimmed } else { prefix },
            after,
            limit,
        )
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        match self.fault {
            Fault::NeverWakes => Box::pin(async { Ok(false) }),
            _ => self.inner.changed(key, version, within),
        }
    }
}

/// From the version that was told to the one that stands there.
fn translate(expect: &mut Expect, stands: &Record) {
    match expect {
        Expect::Version(version) | Expect::Live(version) | Expect::Lapsed(version)
            if *version == hash(&stands.value) =>
        {
            *version = stands.version.clone();
        }
        _ => {}
    }
}

fn hash(value: &[u8]) -> Version {
    Version::from(value.iter().fold(7i64, |sum, byte| sum.wrapping_mul(31).wrapping_add(i64::from(*byte))))
}

macro_rules! fails {
    ($($test:ident: $fault:ident breaks $($case:literal),+;)+) => {$(
        #[tokio::test]
        async fn $test() {
            let report = report(|inner| Arc::new(Broken { inner, fault: Fault::$fault })).await;
            for case in [$($case),+] {
                assert!(report.names(case), "{case} did not notice:\n{report}");
            }
        }
    )+};
}

fails! {
    a_store_that_ignores_expectations_fails: IgnoresExpectations breaks
        "a_record_is_created_once", "another_version_is_refused_with_what_stands_there", "a_swap_is_all_or_nothing",
        "guards_hold_and_write_nothing", "live_and_lapsed_are_asked_at_the_write", "a_stale_settlement_is_refused",
        "a_stale_release_is_refused", "a_lost_reply_is_recognised_by_its_nonce", "one_of_a_thousand_tasks_wins",
        "what_is_posted_is_made_on_its_condition";
    a_store_that_forgets_the_ttl_fails: ForgetsTheTtl breaks
        "a_lease_lapses_by_the_stores_clock", "a_touch_keeps_the_version_and_restarts_the_clock",
        "a_token_grows_over_release_lapse_and_reopening";
    a_store_whose_touch_ignores_the_version_fails: TouchesAnyVersion breaks
        "a_touch_is_refused_when_it_comes_too_late", "a_stale_renewal_is_refused";
    a_store_that_renews_what_lapsed_fails: TouchesWhatLapsed breaks "a_touch_is_refused_when_it_comes_too_late";
    a_store_that_writes_half_a_swap_fails: StopsAtTheFirstMisfitButKeepsWhatCameBefore breaks
        "a_swap_is_all_or_nothing", "guards_hold_and_write_nothing";
    a_store_that_forgets_guards_fails: ForgetsGuards breaks
        "guards_hold_and_write_nothing", "live_and_lapsed_are_asked_at_the_write", "a_stale_settlement_is_refused";
    a_store_that_reads_prefixes_loosely_fails: ScansWithoutTheSlash breaks "a_prefix_reaches_nothing_else";
    a_store_that_never_wakes_fails: NeverWakes breaks "a_change_wakes_who_waits";
    a_store_whose_versions_come_back_fails: ReusesVersions breaks "a_version_never_comes_back";
}
