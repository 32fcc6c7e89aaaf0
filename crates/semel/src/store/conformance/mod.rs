//! The suite that every store passes, through one entry point.
//!
//! A store's test describes itself as a [`Subject`] and calls [`run`]; the [`Report`] names every case that did
//! not hold. Decorators pass it too. The cases know the seam and the rules of [`semel_core`], and no driver.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use semel::store::conformance::{self, Later, Subject};
//! # use semel::store::{Store, memory::Memory};
//! struct InMemory(Memory);
//!
//! impl Subject for InMemory {
//!     fn open(&self) -> Later<'_, Result<Arc<dyn Store>, String>> {
//!         let store: Arc<dyn Store> = Arc::new(self.0.clone());
//!         Box::pin(async move { Ok(store) })
//!     }
//!
//!     fn isolated(&self) -> Later<'_, Result<Arc<dyn Subject>, String>> {
//!         let subject: Arc<dyn Subject> = Arc::new(InMemory(Memory::new()));
//!         Box::pin(async move { Ok(subject) })
//!     }
//! }
//!
//! # async fn test() {
//! let report = conformance::run(Arc::new(InMemory(Memory::new()))).await;
//! assert!(report.holds(), "{report}");
//! # }
//! ```
//!
//! | cases | what they are about |
//! |---|---|
//! | `swaps` | conditions, guards, order, all or nothing |
//! | `clocks` | lapse and touch, by the store's clock |
//! | `zombies` | stale renewals, settlements and releases; tokens; lost replies |
//! | `reads` | pages, prefixes, values, waiting for a change |
//! | `crowds` | many tasks, many handles |
//! | `processes` | many processes, and killed ones; with the feature `test-helpers` and a [`Helper`] |

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use semel_core::record::{Expect, RecordKey, Version};

use super::{Change, Conflict, Durability, Record, Store, StoreError};

/// A condition that must hold, else the case fails with this message.
macro_rules! check {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err(format!($($message)+));
        }
    };
}

#[cfg(feature = "test-helpers")]
pub mod calls;
pub mod claims;
mod clocks;
mod crowds;
#[cfg(feature = "test-helpers")]
mod processes;
mod reads;
mod swaps;
mod zombies;

/// Something that is there later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is tested.
pub trait Subject: Send + Sync {
    /// A fresh handle onto the same records.
    fn open(&self) -> Later<'_, Result<Arc<dyn Store>, String>>;

    /// Another subject of the same kind, with no records at all.
    fn isolated(&self) -> Later<'_, Result<Arc<dyn Subject>, String>>;

    /// A ttl that is soon over, but that the store can still keep.
    fn short_ttl(&self) -> Duration {
        Duration::from_millis(30)
    }

    /// Let so much of the store's time pass.
    fn pass(&self, time: Duration) -> Later<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    /// How another process gets at the same records; `None` where none can.
    fn helper(&self) -> Option<Helper> {
        None
    }
}

/// The helper program, and what to tell it.
#[derive(Clone, Debug)]
pub struct Helper {
    /// The program `semel-store-probe`.
    pub program: PathBuf,
    /// The store's URL.
    pub url: String,
}

/// What came of every case.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The cases that held.
    pub held: Vec<&'static str>,
    /// The cases that did not, and why.
    pub broken: Vec<(&'static str, String)>,
    /// The cases that do not apply, and why.
    pub skipped: Vec<(&'static str, &'static str)>,
}

impl Report {
    /// Did every case hold?
    pub fn holds(&self) -> bool {
        self.broken.is_empty()
    }

    /// Is this case among those that did not hold?
    pub fn names(&self, case: &str) -> bool {
        self.broken.iter().any(|(name, _)| *name == case)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} held, {} broken, {} skipped",
            self.held.len(),
            self.broken.len(),
            self.skipped.len()
        )?;
        self.broken.iter().try_for_each(|(name, why)| writeln!(f, "BROKEN  {name}: {why}"))?;
        self.skipped.iter().try_for_each(|(name, why)| writeln!(f, "SKIPPED {name}: {why}"))
    }
}

/// What a case comes to.
type Verdict = Result<(), String>;

struct Case {
    name: &'static str,
    run: fn(Bench) -> Later<'static, Verdict>,
    needs_helper: bool,
}

/// Cases of a module, each a function of that name.
macro_rules! cases {
    ($module:ident: $($name:ident),+ $(,)?) => {
        [$($crate::store::conformance::Case {
            name: stringify!($name),
            run: |bench| Box::pin($module::$name(bench)),
            needs_helper: false,
        }),+]
    };
}

fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    all.extend(cases!(swaps: a_record_is_created_once, another_version_is_refused_with_what_stands_there,
        a_swap_is_all_or_nothing, the_first_refusal_is_the_one_told,
        a_record_that_comes_twice_in_a_swap_is_refused, guards_hold_and_write_nothing,
        a_version_never_comes_back, an_empty_swap_is_nothing, a_removal_is_conditional, relaxed_and_durable_swaps_keep_order,
        what_is_posted_is_made_on_its_condition));
    all.extend(cases!(clocks: a_lease_lapses_by_the_stores_clock, live_and_lapsed_are_asked_at_the_write,
        a_record_without_a_clock_is_neither_live_nor_lapsed, a_touch_keeps_the_version_and_restarts_the_clock,
        a_touch_is_refused_when_it_comes_too_late, a_write_without_a_ttl_takes_the_clock_away));
    all.extend(cases!(zombies: a_token_grows_over_release_lapse_and_reopening, a_stale_renewal_is_refused,
        a_stale_settlement_is_refused, a_stale_release_is_refused, a_lost_reply_is_recognised_by_its_nonce));
    all.extend(cases!(reads: a_load_answers_in_the_order_asked, a_scan_pages_in_order, a_prefix_reaches_nothing_else,
        long_names_keep_their_order, every_byte_comes_back, a_large_value_comes_back, a_change_wakes_who_waits, a_wait_without_a_change_ends));
    all.extend(cases!(crowds: one_of_a_thousand_tasks_wins, handles_see_each_others_writes,
        a_handle_may_be_reopened_between_any_two_calls));
    #[cfg(feature = "test-helpers")]
    {
        let processes = cases!(processes: one_of_a_hundred_processes_wins, what_was_answered_survives_a_kill_between_calls,
            what_was_answered_survives_a_kill_in_the_middle);
        all.extend(processes.into_iter().map(|case| Case { needs_helper: true, ..case }));
    }
    all
}

/// The longest that one case may take.
const CASE_LIMIT: Duration = Duration::from_secs(180);

/// Run every case, one after the other, whatever the others came to.
pub async fn run(subject: Arc<dyn Subject>) -> Report {
    let mut report = Report::default();
    for case in cases() {
        if case.needs_helper && subject.helper().is_none() {
            report.skipped.push((case.name, "no other process can get at these records"));
            continue;
        }
        let verdict = match Bench::new(case.name, &subject).await {
            Ok(bench) => tokio::time::timeout(CASE_LIMIT, (case.run)(bench))
                .await
                .unwrap_or_else(|_| Err(format!("did not end within {CASE_LIMIT:?}"))),
            Err(why) => Err(format!("cannot begin: {why}")),
        };
        match verdict {
            Ok(()) => report.held.push(case.name),
            Err(why) => report.broken.push((case.name, why)),
        }
    }
    report
}

/// What a case works with: a handle, and names that no other case uses.
#[derive(Clone)]
struct Bench {
    subject: Arc<dyn Subject>,
    store: Arc<dyn Store>,
    room: String,
}

/// A ttl that is not over before the case is.
const LONG: Duration = Duration::from_secs(600);

impl Bench {
    async fn new(case: &str, subject: &Arc<dyn Subject>) -> Result<Bench, String> {
        let nonce = getrandom::u64().map_err(|why| why.to_string())?;
        let room = format!("conformance/{case}/{nonce:016x}");
        Ok(Bench { subject: Arc::clone(subject), store: subject.open().await?, room })
    }

    fn key(&self, name: &str) -> RecordKey {
        RecordKey::from_stored(format!("{}/{name}", self.room))
    }

    /// The same names, through another handle.
    async fn reopened(&self) -> Result<Bench, String> {
        Ok(Bench { store: self.subject.open().await?, ..self.clone() })
    }

    async fn swap(&self, changes: &[Change]) -> Result<Vec<Version>, StoreError> {
        self.store.swap(changes, Durability::Durable).await
    }

    /// Put a record that is not there yet.
    async fn create(&self, name: &str, value: &str, ttl: Option<Duration>) -> Result<Version, String> {
        let made = self.swap(&[put(&self.key(name), Expect::Absent, value, ttl)]).await;
        made.map_err(said)?.pop().ok_or_else(|| "a swap answered no version".to_owned())
    }

    async fn load(&self, name: &str) -> Result<Option<Record>, String> {
        let loaded = self.store.load(&[self.key(name)]).await.map_err(said)?;
        check!(loaded.records.len() == 1, "a load of one key answered {} records", loaded.records.len());
        Ok(loaded.records.into_iter().next().flatten())
    }

    /// The value, as text.
    async fn value(&self, name: &str) -> Result<Option<String>, String> {
        Ok(self.load(name).await?.map(|record| String::from_utf8_lossy(&record.value).into_owned()))
    }
}

fn put(key: &RecordKey, expect: Expect, value: &str, ttl: Option<Duration>) -> Change {
    Change::Put { key: key.clone(), expect, value: value.as_bytes().to_vec(), ttl }
}

fn said(why: impl fmt::Display) -> String {
    why.to_string()
}

/// The conflict of a refusal; anything else fails the case.
fn conflict<T: fmt::Debug>(what: &str, answer: Result<T, StoreError>) -> Result<Conflict, String> {
    match answer {
        Err(StoreError::Refused(conflict)) => Ok(*conflict),
        other => Err(format!("{what} must be refused, but the answer was {other:?}")),
    }
}
