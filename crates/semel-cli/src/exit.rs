//! Exit codes: an interface, decided here and nowhere else.

use semel::engine::batch::Stopped;
use semel::engine::{Report, TaskEnd};
use semel::sink::git::GitSinkError;
use semel_core::entry::Ending;

use crate::batch::progress::Counts;

/// `lease acquire`: held by another.
pub(crate) const HELD: u8 = 11;
/// `lease renew`, `lease release`: lost.
pub(crate) const LOST: u8 = 12;
/// `check`: something was found; `batch`: some items failed.
pub(crate) const FOUND: u8 = 1;
/// The input is wrong.
pub(crate) const INPUT: u8 = 65;
/// The store cannot be reached: nothing was run.
pub(crate) const STORE: u8 = 69;
/// The lease was lost while running, busy with `fail`, too late for its slot, or this machine cannot begin an item.
pub(crate) const BUSY: u8 = 75;
/// A sink refused a stale token, or the run is gone: nothing was written.
pub(crate) const STALE: u8 = 77;
/// The configuration is wrong.
pub(crate) const CONFIG: u8 = 78;
/// A person is needed.
pub(crate) const PERSON: u8 = 79;
/// It ran longer than it may.
pub(crate) const TIMEOUT: u8 = 124;

/// The code for how a run came out; `skip` is the one for a rightly skipped run.
pub(crate) fn code(report: &Report, skip: u8) -> u8 {
    match report {
        Report::AlreadyDone(_) | Report::Yielded(_) => skip,
        Report::Busy(_) | Report::LeaseLost { .. } | Report::TooLate => BUSY,
        Report::Mismatch { .. } | Report::NoPlan(_) => INPUT,
        Report::StoreDown(_) => STORE,
        Report::Unusable(_) => CONFIG,
        Report::Interrupted(signal) => by_signal(*signal),
        Report::NeedsPerson { ran: None, .. } | Report::Blocked { .. } => PERSON,
        Report::Ran { ran, .. } | Report::NeedsPerson { ran: Some(ran), .. } => match &ran.ending {
            Ending::TimedOut => TIMEOUT,
            Ending::Interrupted { signal } => match ran.end {
                Some(end) => of_task(end),
                None => by_signal(*signal),
            },
            Ending::NotStarted { code } => u8::try_from(*code).unwrap_or(126),
            Ending::ProbedDone => 0,
            Ending::ProbedUnknown { .. } => PERSON,
            _ => ran.end.map_or(0, of_task),
        },
        Report::Unrecorded { ran, .. } => match ran.end.map_or(0, of_task) {
            0 => BUSY,
            code => code,
        },
    }
}

/// The code for how a batch came out: a person first, then failures, then wrong input.
pub(crate) fn of_batch(counts: &Counts, stopped: &Stopped) -> u8 {
    match stopped {
        Stopped::Interrupted(signal) => by_signal(*signal),
        Stopped::LeaseLost(_) | Stopped::Machine(_) => BUSY,
        Stopped::StoreDown(_) => STORE,
        Stopped::Unusable(_) => CONFIG,
        _ if counts.quarantined + counts.in_doubt > 0 => PERSON,
        Stopped::Breaker(_) => FOUND,
        Stopped::AtTheEnd if counts.failed > 0 => FOUND,
        Stopped::AtTheEnd if counts.mismatched + counts.wrong > 0 => INPUT,
        // what could not be recorded, or is another's and not done, is no success
        Stopped::AtTheEnd if counts.left > 0 => FOUND,
        Stopped::AtTheEnd => 0,
    }
}

/// The code for a push that did not happen, or of which nobody knows whether it did.
pub(crate) fn of_push(why: &GitSinkError) -> u8 {
    use GitSinkError as E;
    match why {
        E::Stale { .. } | E::Clash { .. } => STALE,
        E::Raced { .. } | E::Locked { .. } => BUSY,
        E::NoTrailer { .. } | E::Shallow | E::Unfenced(_) | E::Usage(_) | E::NoGit { .. } => CONFIG,
        E::Damaged { .. } => PERSON,
        // git's own way to say that it did not work
        _ => 1,
    }
}

pub(crate) fn of_task(end: TaskEnd) -> u8 {
    match end {
        TaskEnd::Exited(code) => u8::try_from(code & 0xff).unwrap_or(1),
        TaskEnd::Killed(signal) => by_signal(signal),
    }
}

/// The code of whoever was ended by this signal.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(255)
}
