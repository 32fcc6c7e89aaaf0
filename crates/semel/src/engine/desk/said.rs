//! What is asked at a desk, and what it answers.

use semel_core::claim::First;
use semel_core::entry::{CommandMark, Ending, Entry, Output};
use semel_core::name::Name;
use semel_core::policy::OnLost;
use semel_core::record::{RecordKey, Seen};
use semel_core::token::Nonce;
use semel_core::work::{Key, Work};
use serde_json::Value;

/// A step, as its run asks for it.
#[derive(Clone, Debug)]
pub struct StepPlan {
    /// Its name.
    pub name: Name,
    /// Which use of the name this is, from 1.
    pub nth: u32,
    /// What to do if the last attempt is lost.
    pub on_lost: OnLost,
    /// The command, by its mark.
    pub command: Option<CommandMark>,
}

/// What may be done with a step.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one per step
pub enum StepBegin {
    /// The intent is on record: do it, then settle.
    Run(Ticket),
    /// It is done.
    Replay(Entry),
    /// A person is needed.
    Person(Entry),
    /// In a rehearsal: this would be done with it, to be read after "it would".
    Would(String),
}

/// A step that was claimed and is to be settled.
#[derive(Debug)]
pub struct Ticket {
    pub(super) key: Key,
    pub(super) record: RecordKey,
    pub(super) seen: Seen<Entry>,
    /// What to do first.
    pub first: First,
    /// What the pieces of its output are known by.
    pub of: Nonce,
}

impl Ticket {
    /// The step, as a work.
    pub fn work(&self) -> &Work {
        &self.seen.value.work
    }

    /// 1 for the first attempt.
    pub fn attempt(&self) -> u32 {
        self.seen.value.attempts
    }
}

/// How a step ended.
#[derive(Clone, Debug)]
pub struct StepEnd {
    /// How.
    pub ending: Ending,
    /// What it wrote.
    pub output: Option<Output>,
    /// The last piece of that, with its number.
    pub last_piece: Option<(u32, Vec<u8>)>,
    /// What came out, of a step in this process.
    pub result: Option<Value>,
}

impl StepEnd {
    /// An ending, and nothing more.
    pub fn of(ending: Ending) -> StepEnd {
        StepEnd { ending, output: None, last_piece: None, result: None }
    }
}

/// Why a step may not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepRefusal {
    /// The run no longer holds its lease.
    #[error("{0}")]
    Stale(String),
    /// The name is used twice.
    #[error(
        "the step {name} is used twice in this run: rename the second use, or number it with --nth {next} (which stays its number on every retry)"
    )]
    Twice {
        /// The name, with its number if it has one.
        name: String,
        /// A number for the second use.
        next: u32,
    },
    /// There is no ledger to remember the step in, or nothing that could be retried.
    #[error("{0}")]
    NoStepsHere(&'static str),
    /// It is no step.
    #[error("{0}")]
    Wrong(String),
    /// The store cannot be reached.
    #[error("{0}")]
    StoreDown(String),
}

/// The lease, verified with the store just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// It lives so long without a renewal, less the margin.
    pub left_ms: u64,
}

/// Why a gate stays closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shut {
    /// The run no longer holds its lease.
    #[error("{0}")]
    Stale(String),
    /// The lease never lives that long.
    #[error(
        "{need_ms} ms are needed, and the lease lives {most_ms} ms without a renewal: give the run a longer --ttl"
    )]
    TooShort {
        /// What is needed.
        need_ms: u64,
        /// What there can be.
        most_ms: u64,
    },
    /// The store cannot be asked.
    #[error("{0}")]
    StoreDown(String),
}
