//! The one seam to every store: conditional writes.
//!
//! A store keeps records, bytes under a name, each with a version and, for a lease, a clock. It does five things
//! and knows no rule:
//!
//! | verb | meaning |
//! |---|---|
//! | [`load`](Store::load) | the records as they stand |
//! | [`swap`](Store::swap) | replace records that still are as the caller saw them |
//! | [`touch`](Store::touch) | restart a lease's clock |
//! | [`scan`](Store::scan) | a page of the records under a prefix |
//! | [`changed`](Store::changed) | wait until a record is no longer at a version |
//!
//! A relaxed swap whose answer nobody needs is [posted](Store::post): where a store can, it is not waited for.
//!
//! Time is the store's: whether a clock has run out is decided where the record lies, never by the client.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use semel_core::record::{Expect, RecordKey, Standing, Version};

pub mod conformance;
#[cfg(feature = "dir")]
pub mod dir;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "objects")]
pub mod objects;
mod open;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod outbox;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "tls")]
mod tls;

pub use open::{Address, Settings, open};

/// What a verb returns.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A place where records live.
pub trait Store: Send + Sync + fmt::Debug {
    /// The records under these keys as they stand at one moment, in the order asked for, `None` where there is
    /// none, each with what the store's own clock says of it.
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded>;

    /// In order, make each change if its record still is as expected; stop at the first that is not and refuse
    /// with what stands there. One round trip, one durable commit, all or nothing (where a store cannot, its page
    /// says so; the order of the changes is then what keeps the promises).
    ///
    /// Answers the new version of each change, in order; a guard's or a removal's is what it had.
    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>>;

    /// Make changes that nobody depends on, such as a note in the journal: when this is answered they have left this
    /// process, and will be made although it ends. A server that fails meanwhile, or refuses them, makes none of them
    /// and nobody is told. A store that cannot do so makes a relaxed swap, and waits for its answer.
    fn post<'a>(&'a self, changes: &'a [Change]) -> Pending<'a, ()> {
        Box::pin(async move { self.swap(changes, Durability::Relaxed).await.map(drop) })
    }

    /// Restart a record's clock if it is at this version and has not lapsed. The version stays, so that guards
    /// survive renewals. Refused with what stands there.
    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()>;

    /// At most `limit` records whose key starts with `prefix`, after `after`, in the order of their keys.
    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>>;

    /// Wait until the record is no longer at this version (`None`: no longer absent), at most so long. Answers
    /// whether it has changed; a spurious `true` is allowed.
    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool>;

    /// From now on several will ask at once: a hint, for a store that can serve them together better than in turns.
    fn expect_many(&self) {}

    /// This process ends now, and asks nothing more: what the system does anyway then, to close and to free, need not be
    /// done before.
    fn leave(&self) {}

    /// Does a swap happen as a whole, or one change after the other?
    fn swaps(&self) -> Swaps {
        Swaps::Whole
    }

    /// How large a swap may be.
    fn most(&self) -> Most {
        Most::default()
    }

    /// What a person should know of this store as it is set up: its version, its durability, what is wrong with it
    /// and how to mend it. Asked by `semel doctor`, and by nothing that is in a hurry.
    fn examine(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Throw away what the store itself keeps no longer than it must: old versions, a long log. Asked by `semel gc`.
    fn tidy(&self) -> Pending<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// How the changes of a swap are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swaps {
    /// All of them or none, at one moment.
    Whole,
    /// One after the other, in their order: a refusal leaves those before it in place, and so does a crash. The order
    /// of the changes is then what keeps the promises.
    InOrder,
}

/// The most that one swap may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// So many changes.
    pub changes: usize,
    /// So many bytes of names and values together; one change always fits.
    pub bytes: usize,
}

impl Most {
    /// Changes that need not be made together, in parts that fit.
    pub fn parts<'a>(&self, mut changes: &'a [Change]) -> Vec<&'a [Change]> {
        let mut parts = Vec::new();
        while !changes.is_empty() {
            let mut bytes = 0usize;
            let fitting = changes.iter().take(self.changes).take_while(|change| {
                bytes = bytes.saturating_add(change.size());
                bytes <= self.bytes
            });
            let (part, rest) = changes.split_at(fitting.count().max(1));
            parts.push(part);
            changes = rest;
        }
        parts
    }
}

impl Default for Most {
    /// No limit.
    fn default() -> Most {
        Most { changes: usize::MAX, bytes: usize::MAX }
    }
}

/// What [`Store::examine`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about, in a word or two.
    pub name: &'static str,
    /// How bad it is.
    pub grade: Grade,
    /// What was found, in one line.
    pub what: String,
    /// What to do about it; empty if nothing.
    pub mend: String,
}

impl Finding {
    /// Nothing is wrong with it.
    pub fn good(name: &'static str, what: impl Into<String>) -> Finding {
        Finding { name, grade: Grade::Good, what: what.into(), mend: String::new() }
    }

    /// It works, and a person should know.
    pub fn note(name: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { name, grade: Grade::Note, what: what.into(), mend: mend.into() }
    }

    /// A promise does not hold as it is.
    pub fn wrong(name: &'static str, what: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { name, grade: Grade::Wrong, what: what.into(), mend: mend.into() }
    }
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// As it should be.
    Good,
    /// It works, and a person should know.
    Note,
    /// A promise does not hold.
    Wrong,
}

/// What [`Store::load`] found.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The records, in the order asked for.
    pub records: Vec<Option<Record>>,
    /// The least token that a new grant may have: the store's epoch, where it has one.
    pub token_floor: u64,
}

/// A record as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub key: RecordKey,
    /// Its version.
    pub version: Version,
    /// Its bytes.
    pub value: Vec<u8>,
    /// What the store's clock says, if it has one.
    pub standing: Option<Standing>,
}

/// One change of a swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write this record.
    Put {
        /// Its name.
        key: RecordKey,
        /// What must stand there.
        expect: Expect,
        /// Its new bytes.
        value: Vec<u8>,
        /// Its clock, started now; without one it never lapses.
        ttl: Option<Duration>,
    },
    /// Write nothing, but only go on if this record is as expected.
    Guard {
        /// Its name.
        key: RecordKey,
        /// What must stand there.
        expect: Expect,
    },
    /// Remove this record. Only retention does so, and never to a lease: its counter must survive.
    Remove {
        /// Its name.
        key: RecordKey,
        /// What must stand there.
        expect: Expect,
    },
}

impl Change {
    /// The record that it is about.
    pub fn key(&self) -> &RecordKey {
        match self {
            Change::Put { key, .. } | Change::Guard { key, .. } | Change::Remove { key, .. } => key,
        }
    }

    /// How many bytes it carries: its name, and its value if it has one.
    pub fn size(&self) -> usize {
        let value = match self {
            Change::Put { value, .. } => value.len(),
            Change::Guard { .. } | Change::Remove { .. } => 0,
        };
        self.key().as_str().len() + value
    }

    /// What must stand there.
    pub fn expect(&self) -> &Expect {
        match self {
            Change::Put { expect, .. } | Change::Guard { expect, .. } | Change::Remove { expect, .. } => {
                expect
            }
        }
    }
}

/// The records that the changes before wrote: no version that was seen before the swap is theirs any more. For drivers
/// that look at all expectations before they write.
#[derive(Debug, Default)]
pub struct Written<'a>(std::collections::HashSet<&'a RecordKey>);

impl<'a> Written<'a> {
    /// Is this change about one of them? Else what it writes is one from now on.
    pub fn comes_again(&mut self, change: &'a Change) -> bool {
        match change {
            Change::Guard { key, .. } => self.0.contains(key),
            Change::Put { key, .. } | Change::Remove { key, .. } => !self.0.insert(key),
        }
    }
}

/// Does a record, as it stands, meet what a change expects? The one place where a driver may ask.
pub fn meets(expect: &Expect, stands: Option<(&Version, Option<Standing>)>) -> bool {
    match (expect, stands) {
        (Expect::Absent, stands) => stands.is_none(),
        (Expect::Version(expected), Some((version, _))) => version == expected,
        (Expect::Live(expected), Some((version, standing))) => {
            version == expected && matches!(standing, Some(Standing::Live { .. }))
        }
        (Expect::Lapsed(expected), Some((version, standing))) => {
            version == expected && matches!(standing, Some(Standing::Lapsed { .. }))
        }
        (_, None) => false,
    }
}

/// How well a swap must be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// It survives a power cut once it was answered.
    Durable,
    /// It survives a crash of the process; a power cut may forget it. For the journal of what was *not* done.
    Relaxed,
}

/// What a caller may do next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A record is not as the caller expected: look at what stands there and decide anew.
    #[error("refused: {} is not as it was", .0.key)]
    Refused(Box<Conflict>),
    /// Surely not applied: it may be asked again.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Perhaps applied: reload and look.
    #[error("the store gave no answer: {0}")]
    Unknown(String),
}

/// What stood in the way of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Which of the changes was refused.
    pub index: usize,
    /// The record that it was about.
    pub key: RecordKey,
    /// What stands there.
    pub stands: Option<Record>,
}

impl StoreError {
    /// A refusal of the change at this index.
    pub fn refused(index: usize, key: RecordKey, stands: Option<Record>) -> StoreError {
        StoreError::Refused(Box::new(Conflict { index, key, stands }))
    }
}

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address or the place is wrong: no retry helps, a person must change something.
    #[error("{0}")]
    Configuration(String),
    /// It cannot be reached or used now.
    #[error("{0}")]
    Unavailable(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_and_hold_everything_in_order() {
        let changes: Vec<Change> = (0..10)
            .map(|i| Change::Put {
                key: RecordKey::from_stored(i.to_string()),
                expect: Expect::Absent,
                value: vec![0; if i == 4 { 100 } else { 9 }],
                ttl: None,
            })
            .collect();
        let sizes = |most: Most| most.parts(&changes).iter().map(|part| part.len()).collect::<Vec<_>>();
        assert_eq!(sizes(Most::default()), [10]);
        assert_eq!(sizes(Most { changes: 4, bytes: usize::MAX }), [4, 4, 2]);
        assert_eq!(sizes(Most { changes: 9, bytes: 30 }), [3, 1, 1, 3, 2], "one change always fits");
        assert_eq!(Most { changes: 4, bytes: 30 }.parts(&changes).concat(), changes);
        assert!(Most::default().parts(&[]).is_empty());
    }
}
