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
//! Time is the store's: whether a clock has run out is decided where the record lies, never by the client.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use semel_core::record::{Expect, RecordKey, Standing, Version};

pub mod conformance;
pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;

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
