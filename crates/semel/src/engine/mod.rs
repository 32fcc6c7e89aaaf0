//! How a run flows: one way, through the rules of [`semel_core`].
//!
//! ```text
//! claim ──▶ hold ─────────────────────────────────▶ settle ──▶ report
//! load+swap  one select! over ended, lease lost,     swap
//!            signals, timeout; renewals in between
//! ```
//!
//! The engine knows the store, the rules and a clock. It starts no process, prints nothing and reads no
//! environment: what is to be done comes in as a [`Task`], what happens goes out as [`Event`]s and a [`Report`].
//!
//! A fresh run costs one `load` and one durable `swap` before the task starts and one durable `swap` after it.
//! Nothing here may add a third.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use semel_core::claim::Busy;
use semel_core::definition::Definition;
use semel_core::entry::{CommandMark, Ending, Entry, Forgotten};
use semel_core::lease::Before;
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::payload::{FieldChange, Fingerprint};
use semel_core::plan::Plan;
use semel_core::policy::Policy;
use semel_core::token::{Grant, Nonce};
use semel_core::work::Work;
use serde_json::Value;

use crate::clock::{Clock, Moment};
use crate::store::Store;

pub mod alarm;
pub mod batch;
pub mod calendar;
mod claim;
pub mod copy;
pub mod desk;
mod hold;
pub mod journal;
pub mod lease;
pub mod ledger;
pub mod plan;
pub mod proof;
mod rehearse;
mod run;
mod settle;
pub mod socket;
pub mod sweep;
pub mod verdict;
pub mod view;

pub use calendar::{Excuse, MissedSlot, Scheduled};
pub use hold::Held;
pub use plan::{PlanAsk, Unplanned};
pub use run::Kept;
pub use settle::Unsettled;

use desk::Desk;

/// Everything that a run needs of its surroundings.
#[derive(Clone)]
pub struct Engine {
    /// Where the records live.
    pub store: Arc<dyn Store>,
    /// The holder's watch.
    pub clock: Arc<dyn Clock>,
    /// What can be known about other processes.
    pub neighbours: Arc<dyn Neighbours>,
    /// Who we are.
    pub me: Owner,
}

/// What can be known about the processes of this host.
pub trait Neighbours: Send + Sync {
    /// Is this owner, and all that it started under the grant with this nonce, provably gone? Asked only of owners
    /// on the same host, boot and pid namespace. In doubt: no.
    fn is_gone(&self, owner: &Owner, nonce: &Nonce) -> bool;
}

/// Knows nothing about anybody: only clocks decide.
#[derive(Clone, Copy, Debug)]
pub struct Strangers;

impl Neighbours for Strangers {
    fn is_gone(&self, _: &Owner, _: &Nonce) -> bool {
        false
    }
}

/// What is to be run: resolved, checked, immutable.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// The intent; `None` for a lease without a ledger.
    pub work: Option<Work>,
    /// What the lease is held for, in words: the readable form of the work, where there is one.
    pub what: String,
    /// The resources, in order of preference.
    pub resources: Vec<Name>,
    /// The policies.
    pub policy: Policy,
    /// The payload that is bound to the key.
    pub payload: Option<Fingerprint>,
    /// The command, by its mark.
    pub command: Option<CommandMark>,
    /// How the job is defined, so that a change of it can be shown.
    pub definition: Option<Definition>,
    /// The folder for the socket over which commands inside the run reach it; without one they cannot.
    pub nested: Option<PathBuf>,
    /// Not begun once so many milliseconds have passed since it was asked for; what is done is still found done.
    pub start_within_ms: Option<u64>,
    /// The occurrence of a schedule that it is for: slots that were missed before it are put on record.
    pub scheduled: Option<Scheduled>,
    /// The lanes on which anomalies of the job are to be told, by their names; none if nobody is.
    pub lanes: Vec<String>,
}

/// What a task is told of the attempt that it makes.
#[derive(Clone, Debug)]
pub struct Begin {
    /// The intent; `None` for a lease without a ledger.
    pub work: Option<Work>,
    /// The resource that was taken.
    pub resource: Name,
    /// Its grant: the token and the nonce.
    pub grant: Grant,
    /// 1 for the first.
    pub attempt: u32,
    /// The plan that is pinned to the work, if one is: the same for every attempt.
    pub plan: Option<Plan>,
    /// What is held around it: an item with a resource of its own runs under its runner's lease too.
    pub within: Option<(Name, Grant)>,
}

/// The thing that is to happen once. What its methods return may be dropped at any await and asked for again.
pub trait Task {
    /// What the attempts at this work are to decide, decided; nothing if they decide for themselves.
    ///
    /// Asked at most once in a run, before its claim is written, and only if the work may be claimed and no plan is
    /// pinned to it. Another run may be faster: what is pinned in the end is in [`Begin::plan`].
    fn plan(
        &mut self,
        _engine: &Engine,
        _work: &Work,
    ) -> impl Future<Output = Result<Option<Plan>, Unplanned>> {
        std::future::ready(Ok(None))
    }
    /// A claim with this nonce is about to be written. Whatever the start needs and the claim does not decide may be made
    /// ready now, beside the wait for the store; nothing may begin.
    fn make_ready(&mut self, _nonce: &Nonce) {}
    /// Begin; what happens inside goes through the desk. An error is the exit code, 126 or 127, of a command that
    /// cannot be started.
    fn start(&mut self, begin: &Begin, desk: &Arc<Desk>) -> impl Future<Output = Result<(), NotStarted>>;
    /// The lease is trusted until then: whatever happens to this process, nothing may go on after it.
    fn trust_until(&mut self, moment: Moment);
    /// Wait until it has ended.
    fn ended(&mut self) -> impl Future<Output = TaskEnd>;
    /// Hand a signal on.
    fn signal(&mut self, signal: Caught);
    /// Stop it, politely for the time given, then by force. Returns when nothing of it is left.
    fn stop(&mut self, grace: Duration) -> impl Future<Output = TaskEnd>;
    /// It has ended: end whatever it left behind. Returns how many there were.
    fn clear(&mut self, grace: Duration) -> impl Future<Output = usize>;
    /// What it wrote as its result.
    fn result(&mut self) -> Option<Value>;
    /// Ask the world whether an earlier attempt had its effect.
    fn probe(&mut self, begin: &Begin) -> impl Future<Output = Probed>;
}

/// A command that could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStarted {
    /// 126 or 127.
    pub code: i32,
    /// What went wrong, in one line.
    pub why: String,
    /// Neither the command's doing nor the work's: this machine has no room, no process or no descriptor left for it.
    pub of_machine: bool,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// What a probe answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probed {
    /// It happened.
    Happened,
    /// It did not.
    DidNot,
    /// It cannot be told, for this reason.
    Unknown(String),
    /// It was not asked, because this machine has no room, no process or no descriptor left for that.
    NotAsked(String),
}

/// A signal that reached this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Which.
    pub signal: i32,
    /// It came from the terminal, and so to the whole foreground group.
    pub from_terminal: bool,
    /// It asks for an end, not only for attention.
    pub ends: bool,
}

/// The signals that reach this process. What `next` returns may be dropped and asked for again.
pub trait Signals {
    /// The next one.
    fn next(&mut self) -> impl Future<Output = Caught>;
}

/// No signals at all.
#[derive(Clone, Copy, Debug)]
pub struct Undisturbed;

impl Signals for Undisturbed {
    async fn next(&mut self) -> Caught {
        std::future::pending().await
    }
}

/// What happens on the way, for those who watch.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// Somebody else is at it, and the run waits.
    Waiting(&'a Busy),
    /// Slots before this one were found to have passed without a run.
    Missed(&'a [MissedSlot]),
    /// The claim was written.
    Claimed {
        /// What the task is told.
        begin: &'a Begin,
        /// What stood in the lease's place.
        before: Before,
        /// An earlier attempt was lost.
        after_lost: bool,
        /// It was done before, and that was forgotten.
        forgotten: Option<&'a Forgotten>,
    },
    /// The probe was asked.
    Probed(&'a Probed),
    /// The lease was renewed.
    Renewed,
    /// A renewal failed and is tried again.
    RenewalFailed(&'a str),
    /// A try failed and the next one follows.
    Retrying {
        /// How it ended.
        ending: &'a Ending,
        /// After this pause.
        pause_ms: u64,
    },
    /// Processes that the command left behind were ended.
    LeftBehind(usize),
    /// There is something to be told on the job's lanes.
    Notices,
    /// The journal could not be written.
    JournalFailed(&'a str),
    /// The commands inside the run cannot reach it.
    Unreachable(&'a str),
}

/// Watches a run.
pub type Tell<'a> = &'a mut (dyn FnMut(Event<'_>) + Send);

/// How a run came out.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // one per run
pub enum Report {
    /// It was done before.
    AlreadyDone(Entry),
    /// Somebody else is at it, and the policy is to yield.
    Yielded(Busy),
    /// Somebody else is at it, and the policy is to fail.
    Busy(Busy),
    /// A person is needed. Nothing was run, unless `ending` says how it ended.
    NeedsPerson {
        /// The entry that needs one.
        entry: Entry,
        /// What ran before that was known.
        ran: Option<Ran>,
    },
    /// The key is bound to another payload. Nothing was run.
    Mismatch {
        /// What differs.
        changes: Vec<FieldChange>,
        /// What became of the first.
        entry: Entry,
    },
    /// It ran, and the outcome is on record.
    Ran {
        /// How.
        ran: Ran,
        /// The entry as it stands now; `None` for a lease without a ledger.
        entry: Option<Entry>,
    },
    /// It ran until one of its steps needed a person.
    Blocked {
        /// How.
        ran: Ran,
        /// The step's entry.
        step: Entry,
    },
    /// The lease was lost while it ran; it was stopped.
    LeaseLost {
        /// How.
        ran: Ran,
        /// Why.
        why: String,
    },
    /// It ran, and the outcome could not be recorded: the next run will take this attempt for lost.
    Unrecorded {
        /// How.
        ran: Ran,
        /// Why.
        why: String,
    },
    /// It was not begun within the time it had for that. Nothing was run; the slot of a schedule is on record as missed.
    TooLate,
    /// The store cannot be reached. Nothing was run.
    StoreDown(String),
    /// The plan could not be made. Nothing was run.
    NoPlan(String),
    /// A signal came before anything was run.
    Interrupted(i32),
    /// The store holds something that this build cannot use. Nothing was run.
    Unusable(String),
}

/// An attempt that ran.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What the task was told.
    pub begin: Begin,
    /// How it ended.
    pub ending: Ending,
    /// How the task itself ended, if it was started.
    pub end: Option<TaskEnd>,
    /// Why it was not started.
    pub not_started: Option<NotStarted>,
    /// Tries inside this invocation.
    pub tries: u32,
    /// How many of them failed before the last one.
    pub failed_tries: u32,
    /// How long it took.
    pub took: Duration,
}

/// Random bytes for a nonce.
pub(crate) fn draw_nonce() -> Result<Nonce, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|why| format!("no random bytes: {why}"))?;
    Ok(Nonce::from_bytes(bytes))
}
