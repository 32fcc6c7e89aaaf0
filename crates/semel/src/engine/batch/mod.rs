//! A batch: many items, each done once, under one lease and one heartbeat.
//!
//! ```text
//! source ──page──▶ look ──▶ claim ─┐            ┌─▶ work ─┐
//!   (lazily)   one load     one    ├─ one swap ─┤  N at   ├─▶ outcomes, in one swap with the next claims
//!                           ahead  ┘            └  once   ┘
//! ```
//!
//! Items are known by their keys, never by their position. A claim is durable before its item begins; an outcome is
//! written within a few milliseconds together with whatever else is to be written, and nobody waits for it: the next
//! item begins meanwhile. So a process that dies leaves those items `running` that were under way, claimed ahead, or
//! ended within those milliseconds; the next runner takes them over by the policy for what is lost.
//!
//! Everything is one future: whoever drops it has stopped it, and nothing of it goes on. The items are polled in
//! turns by one task; what needs more than one processor spawns its own.
//!
//! An item may name a resource of its own ([`ItemIn::resource`]). It is leased by the swap that claims the item and given
//! back by the swap that settles it, so that it costs no commit; the runner's one loop renews what its items hold. Two
//! items of one resource never overlap, here or elsewhere: the second one waits, and others go first. Nothing is claimed
//! ahead of a worker then: nobody else could use what is only waited with.
//!
//! Memory does not grow with the input: a page is read at a time, and at most [`LATER_LIMIT`] items that other runners
//! have under way are kept in mind; those beyond need a second pass over the input ([`ItemSource::restart`]). As many
//! may wait for resources; then the input waits. Each list is bounded in bytes as well ([`BYTES_LIMIT`]).
//!
//! Not guaranteed: that two runners of which only one shares keep out of each other's way in the very moment in which
//! both start. Each item is done once all the same.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use semel_core::definition::Definition;
use semel_core::entry::{CommandMark, Entry};
use semel_core::name::Name;
use semel_core::payload::{FieldChange, Fingerprint};
use semel_core::policy::Policy;
use semel_core::work::{Fields, Key, Work};

pub use self::foresee::Foreseen;
use super::{Event, Report, Task};

mod commit;
mod dispatch;
mod fill;
mod foresee;
mod later;
mod look;
mod notice;
mod own;
mod pool;
mod runner;
mod state;
mod waiting;
mod worker;

/// The most items of other runners that are kept in mind, to be looked at again.
pub const LATER_LIMIT: usize = 4_096;
/// The most bytes of items ([`ItemIn::bytes`]) that are kept in one list.
pub const BYTES_LIMIT: usize = 16 * 1024 * 1024;
/// The most runners that share a batch.
pub const RUNNERS_LIMIT: u32 = 64;
/// The most items of one runner that are under way at a time.
pub const WORKERS_LIMIT: usize = 1_024;

/// What is to be run: resolved, checked, immutable.
#[derive(Clone, Debug)]
pub struct BatchPlan {
    /// The work that the items are of.
    pub work: Work,
    /// What the runner holds, in order of preference; not asked for where runners share.
    pub resources: Vec<Name>,
    /// Other runners may be at the same batch.
    pub share: bool,
    /// How many items are under way at a time.
    pub workers: usize,
    /// The policies, of the runner and of each item.
    pub policy: Policy,
    /// The command, by its mark.
    pub command: Option<CommandMark>,
    /// How the job is defined.
    pub definition: Option<Definition>,
    /// The folder for the sockets over which commands inside the items reach them; without one they cannot.
    pub nested: Option<PathBuf>,
    /// So many failures in a row, over all workers, and nothing more is begun; 0 for never.
    pub stop_after: u32,
    /// For so long; then one item is tried. For good if there is none.
    pub pause_ms: Option<u64>,
    /// How long to wait at the end for items that other runners have under way; as long as it takes if none is said.
    pub wait_ms: Option<u64>,
    /// How long it may take to begin, from now on; as long as the policy waits if none is said.
    pub start_within_ms: Option<u64>,
    /// The lanes on which anomalies of the job are to be told, by their names; none if nobody is.
    pub lanes: Vec<String>,
}

/// An item as its source has it.
#[derive(Clone, Debug)]
pub struct ItemIn<D> {
    /// What it is known by.
    pub fields: Fields,
    /// What is bound to that.
    pub payload: Option<Fingerprint>,
    /// What it names to be leased for it alone, on top of what the runner holds.
    pub resource: Option<Name>,
    /// Where it stands in the input, for people.
    pub line: Option<u64>,
    /// How much memory it takes, roughly, besides its fields.
    pub bytes: usize,
    /// What the doer needs of it.
    pub data: D,
}

/// Something in the input that is no item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Where.
    pub line: Option<u64>,
    /// What is wrong with it.
    pub why: String,
    /// Nothing behind it can be read: more items may be there.
    pub is_last: bool,
}

/// Where the items come from.
pub trait ItemSource {
    /// What the doer needs of an item.
    type Data: Send;
    /// The next one. What it returns may be dropped at any await and asked for again: no item may be lost by that.
    fn next(&mut self) -> impl Future<Output = Option<Result<ItemIn<Self::Data>, Bad>>>;
    /// Begin again. `false` if that cannot be.
    fn restart(&mut self) -> bool {
        false
    }
}

/// The items of an iterator.
#[derive(Clone, Debug)]
pub struct Iterated<I>(pub I);

impl<D: Send, I: Iterator<Item = Result<ItemIn<D>, Bad>>> ItemSource for Iterated<I> {
    type Data = D;

    fn next(&mut self) -> impl Future<Output = Option<Result<ItemIn<D>, Bad>>> {
        std::future::ready(self.0.next())
    }
}

/// Makes the task of each item. A task is as one of a run: it is started under the item's own [`Begin`](super::Begin),
/// and its effects go through a desk of the item's own.
pub trait Doer<D> {
    /// What does an item.
    type Task: Task;
    /// The task of this one.
    fn task(&mut self, item: &Item<D>) -> Self::Task;
}

/// An item that is known by its key.
#[derive(Clone, Debug)]
pub struct Item<D> {
    /// As a work.
    pub work: Work,
    /// Its key.
    pub key: Key,
    /// What is bound to it.
    pub payload: Option<Fingerprint>,
    /// What is leased for it alone.
    pub resource: Option<Name>,
    /// Where it stands in the input, for people.
    pub line: Option<u64>,
    /// How much memory it takes, roughly, besides its fields.
    pub bytes: usize,
    /// What the doer needs of it.
    pub data: D,
}

/// What happens on the way, for those who watch.
#[derive(Debug)]
pub enum BatchEvent<'a, D> {
    /// To the runner and its lease. [`Event::Notices`]: something for people is on record, and waits to be told.
    Runner(Event<'a>),
    /// The runner has its lease: whatever comes, it is told how the batch ends.
    Started,
    /// An item begins.
    Began {
        /// Which.
        item: &'a Item<D>,
        /// 1 for the first.
        attempt: u32,
    },
    /// What became of an item.
    Item {
        /// Which.
        item: &'a Item<D>,
        /// What.
        fate: Fate<'a>,
    },
    /// What became of so many items at once of which nothing else is kept in mind.
    Several {
        /// How many.
        count: u64,
        /// What.
        fate: Fate<'a>,
    },
    /// Something in the input is no item.
    Bad(&'a Bad),
    /// So many failed in a row, and nothing is begun for so long.
    Paused {
        /// Failures.
        row: u32,
        /// Milliseconds.
        for_ms: u64,
    },
    /// The input has ended.
    Read,
}

/// Watches a batch.
pub type TellBatch<'a, D> = &'a mut (dyn FnMut(BatchEvent<'_, D>) + Send);

/// What became of an item.
#[derive(Clone, Debug)]
pub enum Fate<'a> {
    /// It was done.
    Done(&'a Entry),
    /// It had been done before, or by another runner.
    Skipped,
    /// Its key came before in this input.
    Duplicate,
    /// It failed.
    Failed(&'a Entry),
    /// It needs a person: it failed too often, or its outcome is unknown.
    Person(&'a Entry),
    /// Its key is bound to another payload.
    Mismatch {
        /// What differs.
        changes: &'a [FieldChange],
        /// What became of the first, if that is known already.
        entry: Option<&'a Entry>,
    },
    /// Another runner is at it.
    Busy,
    /// Somebody holds the resource that it names.
    Held,
    /// It was stopped, or not begun because the batch was.
    Interrupted,
    /// It ended, and that could not be recorded: the next runner takes it for lost.
    Unrecorded(&'a str),
}

/// How many items came to what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Done by this runner.
    pub done: u64,
    /// Done before, or by another runner.
    pub skipped: u64,
    /// Keys that had come before in this input.
    pub duplicates: u64,
    /// Failed.
    pub failed: u64,
    /// Failed too often: a person is needed.
    pub quarantined: u64,
    /// Of unknown outcome: a person is needed.
    pub in_doubt: u64,
    /// With another payload than the key is bound to.
    pub mismatched: u64,
    /// Under way with another runner when this one left.
    pub busy: u64,
    /// Not run, because somebody held the resource that they name.
    pub held: u64,
    /// Stopped in the middle.
    pub interrupted: u64,
    /// Ended, and not on record.
    pub unrecorded: u64,
    /// No items at all.
    pub bad: u64,
}

/// Why a batch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// There was nothing left to do.
    AtTheEnd,
    /// By this signal.
    Interrupted(i32),
    /// The runner's lease was lost; what was under way was stopped.
    LeaseLost(String),
    /// The store could not be reached.
    StoreDown(String),
    /// So many items failed in a row.
    Breaker(u32),
    /// This machine could not begin an item, which is as it was before: no room, no process, no descriptor left.
    Machine(String),
    /// The store holds something that this build cannot use.
    Unusable(String),
}

/// How a batch came out.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // one per batch
pub enum BatchReport {
    /// The runner came to its end.
    Ran(Batched),
    /// Nothing was begun: somebody else is at it, or the store cannot be reached.
    NotRun(Report),
}

/// A batch that ran.
#[derive(Clone, Debug)]
pub struct Batched {
    /// What came of the items.
    pub counts: Counts,
    /// Why it ended.
    pub stopped: Stopped,
    /// How long it took.
    pub took: Duration,
    /// Durable writes that it made.
    pub commits: u64,
    /// Writes that were refused, because another was faster.
    pub conflicts: u64,
}
