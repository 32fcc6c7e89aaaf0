//! How a run came out, by what the caller does next.

use std::time::Duration;

use semel_core::claim;
use semel_core::entry::{Ending, Entry, RESULT_LIMIT, State};
use semel_core::name::{Name, Slot};
use semel_core::payload::FieldChange;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::drive::Driven;
use crate::engine::Report;

/// How a run came out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a run may not have run at all"]
pub enum Outcome<T, E> {
    /// It is done, by this run, and the value is on record.
    Done(T),
    /// It is done, by this run, and will not be done again; but the value is not on record (it is larger than
    /// [`RESULT_LIMIT`], or no JSON), so this is the only time that anybody sees it.
    DoneNotKept {
        /// The value.
        value: T,
        /// Why it was not kept.
        why: String,
    },
    /// It was done before: nothing was run. With the value, if there is one on record.
    AlreadyDone(Option<T>),
    /// Somebody else is at it: nothing was run. Come again.
    Busy {
        /// The resource that is held.
        resource: Name,
        /// What for: this very work, or another one.
        held_for: String,
        /// It is free after this time at the latest, unless it is renewed.
        free_in: Duration,
    },
    /// A person is needed: look at it with `semel why`, then say what happened with `semel resolve`.
    NeedsPerson {
        /// The work, or the step of it, in its readable form.
        what: String,
        /// Why.
        why: String,
        /// What the body said last, if it ran.
        error: Option<E>,
    },
    /// The body failed. The next run tries again, and replays the steps that are done.
    Failed(E),
    /// The body ran longer than it may, and was dropped. The next run tries again.
    TimedOut,
    /// The work is bound to another payload: nothing was run. Use another key.
    Mismatch(Vec<FieldChange>),
    /// The lease was lost while the body ran, and it was dropped. Somebody else may be at it by now: do nothing more.
    LeaseLost(String),
    /// The body came to its end and that could not be recorded: the next run takes it for lost.
    Unrecorded {
        /// What the body said.
        value: Result<T, E>,
        /// Why it is not on record.
        why: String,
    },
    /// The slot that is due fell due longer ago than [`JobBuilder::max_late`] allows: nothing was run, and nothing is
    /// on record. The next slot is not affected.
    ///
    /// [`JobBuilder::max_late`]: super::JobBuilder::max_late
    TooLate {
        /// The slot.
        slot: Slot,
        /// When it fell due, in milliseconds since 1970.
        due_ms: u64,
    },
    /// No slot of the schedule is due by the engine's clock (the scheduled time lies ahead of it): nothing was run.
    NotDue(String),
    /// The store cannot be reached: nothing was run. Come again.
    StoreDown(String),
    /// The store holds something that this build cannot use, or a value that is no `T`: nothing was run.
    Unusable(String),
}

impl<T, E> Outcome<T, E> {
    /// Is it done, by this run or by an earlier one?
    pub fn is_done(&self) -> bool {
        matches!(self, Outcome::Done(_) | Outcome::DoneNotKept { .. } | Outcome::AlreadyDone(_))
    }

    /// The value, of this run or of an earlier one.
    pub fn value(self) -> Option<T> {
        match self {
            Outcome::Done(value) | Outcome::DoneNotKept { value, .. } => Some(value),
            Outcome::AlreadyDone(value) => value,
            _ => None,
        }
    }
}

/// Why a value cannot be kept.
pub(super) struct Unkept {
    pub(super) why: String,
    /// Its size as JSON; nothing if it is none.
    pub(super) bytes: u64,
}

/// A value as the ledger keeps it.
pub(super) fn keep<T: Serialize>(value: &T) -> Result<Value, Unkept> {
    let no_json = |why: serde_json::Error| Unkept { why: format!("it is no JSON: {why}"), bytes: 0 };
    let value = serde_json::to_value(value).map_err(no_json)?;
    let bytes = value.to_string().len();
    if bytes > RESULT_LIMIT {
        let why = format!("it has {bytes} bytes as JSON, more than {RESULT_LIMIT}");
        return Err(Unkept { why, bytes: u64::try_from(bytes).unwrap_or(u64::MAX) });
    }
    Ok(value)
}

/// As [`keep`], or why not.
pub(super) fn keep_or_say<T: Serialize>(value: &T) -> Result<Value, String> {
    keep(value).map_err(|unkept| unkept.why)
}

pub(super) fn of<T: DeserializeOwned, E>(driven: Driven<T, E>) -> Outcome<T, E> {
    made(driven, already)
}

/// As [`of`], where there is no entry with a value.
pub(super) fn of_lease<T, E>(driven: Driven<T, E>) -> Outcome<T, E> {
    made(driven, |_| Outcome::AlreadyDone(None))
}

fn made<T, E>(driven: Driven<T, E>, already: fn(Entry) -> Outcome<T, E>) -> Outcome<T, E> {
    let Driven { report, said, not_kept } = driven;
    match (report, said) {
        (Report::AlreadyDone(entry), _) => already(entry),
        (Report::Yielded(busy) | Report::Busy(busy), _) => {
            let claim::Busy { resource, held, .. } = busy;
            let free_in = Duration::from_millis(held.wait_ms);
            Outcome::Busy { resource, held_for: held.hold.what, free_in }
        }
        (Report::NeedsPerson { entry, .. } | Report::Blocked { step: entry, .. }, said) => {
            let error = said.and_then(Result::err);
            Outcome::NeedsPerson { what: entry.work.to_string(), why: why(&entry), error }
        }
        (Report::Mismatch { changes, .. }, _) => Outcome::Mismatch(changes),
        (Report::LeaseLost { why, .. }, _) => Outcome::LeaseLost(why),
        (Report::Unrecorded { why, .. }, Some(value)) => Outcome::Unrecorded { value, why },
        (Report::Unrecorded { why, .. }, None) => Outcome::LeaseLost(why),
        (Report::StoreDown(why), _) => Outcome::StoreDown(why),
        (Report::Unusable(why) | Report::NoPlan(why), _) => Outcome::Unusable(why),
        // a lease has no such limit, and a slot's run is told apart before
        (Report::TooLate, _) => Outcome::Unusable("it was not begun in time".to_owned()),
        (Report::Interrupted(signal), _) => Outcome::Unusable(format!("interrupted by signal {signal}")),
        (Report::Ran { .. }, Some(Ok(value))) => match not_kept {
            None => Outcome::Done(value),
            Some(why) => Outcome::DoneNotKept { value, why },
        },
        (Report::Ran { .. }, Some(Err(error))) => Outcome::Failed(error),
        (Report::Ran { ran, .. }, None) => match ran.ending {
            Ending::TimedOut => Outcome::TimedOut,
            ending => Outcome::LeaseLost(format!("the body was dropped: {ending:?}")),
        },
    }
}

fn already<T: DeserializeOwned, E>(entry: Entry) -> Outcome<T, E> {
    match entry.result.map(serde_json::from_value).transpose() {
        Ok(value) => Outcome::AlreadyDone(value),
        Err(why) => {
            let work = entry.work;
            Outcome::Unusable(format!("{work} is done, and its value on record is of another type: {why}"))
        }
    }
}

/// Why a person is needed.
pub(super) fn why(entry: &Entry) -> String {
    match &entry.state {
        State::InDoubt { why } => why.clone(),
        State::Quarantined => format!("it failed {} times in a row", entry.failures),
        state => format!("it is {}", state.word()),
    }
}
