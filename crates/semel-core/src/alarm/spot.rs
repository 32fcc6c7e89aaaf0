//! Which outcomes are anomalies.

use super::{Anomaly, Kind};
use crate::calendar::Reason;
use crate::entry::{Ending, Entry, State};
use crate::story::ended;
use crate::work::Work;

fn one(kind: Kind, work: &Work, why: String, at_ms: u64) -> Anomaly {
    Anomaly { kind, work: work.to_string(), at_ms, why, slots: 1 }
}

/// What a run sees that takes over from an attempt which vanished. One that is known to have been stopped was told when
/// it ended.
pub fn lost(entry: &Entry, now_ms: u64) -> Option<Anomaly> {
    let before = entry.log.iter().rev().nth(1);
    if before.is_some_and(|attempt| !matches!(attempt.ending, Ending::None | Ending::Vanished)) {
        return None;
    }
    let who = before.map(|attempt| format!("attempt {} by {}", attempt.n, attempt.owner));
    let what = who.unwrap_or_else(|| "the attempt before".to_owned());
    let why = format!("{what} vanished; attempt {} takes over", entry.attempts);
    Some(one(Kind::Lost, &entry.work, why, now_ms))
}

/// What a run sees that takes the lease of an attempt which vanished from another slot of the job.
pub fn left_behind(entry: &Entry, now_ms: u64) -> Anomaly {
    let who = entry.last_attempt().map(|attempt| format!("attempt {} by {}", attempt.n, attempt.owner));
    let what = who.unwrap_or_else(|| "the attempt".to_owned());
    one(Kind::Lost, &entry.work, format!("{what} vanished, and the next slot is due"), now_ms)
}

/// What the settled outcome of an attempt is: an anomaly, or none.
pub fn settled(entry: &Entry, ending: &Ending, now_ms: u64) -> Option<Anomaly> {
    let failed = |kind| {
        let why = format!("attempt {} {}", entry.attempts, ended(ending));
        Some(one(kind, &entry.work, why, now_ms))
    };
    match (&entry.state, ending) {
        (State::Quarantined | State::InDoubt { .. }, _) => needs_person(entry, now_ms),
        (_, Ending::LeaseLost) => failed(Kind::Lost),
        (_, Ending::Blocked { step }) => {
            let why = "a person is needed before the run can go on".to_owned();
            Some(Anomaly { kind: Kind::InDoubt, work: step.clone(), at_ms: now_ms, why, slots: 1 })
        }
        (_, ending) if ending.is_failure() => failed(Kind::Failed),
        _ => None,
    }
}

/// Does this entry need a person?
pub fn needs_person(entry: &Entry, now_ms: u64) -> Option<Anomaly> {
    let (kind, why) = match &entry.state {
        State::Quarantined => {
            let last = entry.last_attempt().map(|last| format!(", the last {}", ended(&last.ending)));
            let why = format!("{} failures in a row{}", entry.failures, last.unwrap_or_default());
            (Kind::Quarantined, why)
        }
        State::InDoubt { why } => (Kind::InDoubt, why.clone()),
        _ => return None,
    };
    Some(one(kind, &entry.work, why, now_ms))
}

/// Slots that passed without a run: these, oldest first.
pub fn missed(slots: &[(&Work, Reason)], now_ms: u64) -> Option<Anomaly> {
    let ((first, reason), (last, _)) = (slots.first()?, slots.last()?);
    let all_alike = slots.iter().all(|(_, other)| other == reason);
    let why = if all_alike { reason.words().to_owned() } else { "for several reasons".to_owned() };
    let name = |work: &Work| work.slot().map(ToString::to_string).unwrap_or_default();
    let why = match slots.len() {
        1 => why,
        _ => format!("{why} ({} to {})", name(first), name(last)),
    };
    let count = u32::try_from(slots.len()).unwrap_or(u32::MAX);
    Some(Anomaly { slots: count, ..one(Kind::Missed, last, why, now_ms) })
}
