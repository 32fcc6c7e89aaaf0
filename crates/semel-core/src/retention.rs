//! What may be forgotten, and when.
//!
//! | what | is forgotten |
//! |---|---|
//! | a note of the journal | when older than its entry's `keep` |
//! | an attempt in an entry's log | likewise, but never the last one |
//! | the mark "done" | when older than its entry's `remember`; without one never. What is left says that it was done, so that a re-run can say so too |
//! | what is left of it | when older than its entry's `keep` |
//! | the mark "missed" | as that of "done" |
//! | what a step wrote | when older than its entry's `keep`, or no longer its entry's |
//! | a step | with its run: one that runs again must not find what an earlier life of it did |
//! | a lease | never: its counter must survive |
//!
//! Ages are by wall clocks of several machines: a time in the future counts as now, so that a clock that is set
//! wrong makes things live longer, not shorter. An entry that is running is left alone.

use crate::entry::{Attempt, Entry, Forgotten, State};
use crate::policy::KEEP_DEFAULT_MS;
use crate::token::Nonce;

/// What is to become of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // one at a time
pub enum Fate {
    /// It stays as it is.
    Keep,
    /// It stays without so many old attempts.
    Trim {
        /// What to write in its place.
        entry: Entry,
        /// How many attempts are no longer in its log.
        dropped: usize,
    },
    /// It goes: from then on a run of this work does it again.
    Forget {
        /// What to write in its place, so that this run can say why.
        trace: Entry,
    },
    /// Nothing of it is left.
    Remove,
}

/// What is to become of this entry?
pub fn fate(entry: &Entry, now_ms: u64) -> Fate {
    match &entry.state {
        State::Running { .. } => return Fate::Keep,
        State::Done { .. } => {
            let past = |for_ms: &u64| is_past(entry.changed_ms, *for_ms, now_ms);
            if let Some(remember_ms) = entry.terms.remember_ms.filter(past) {
                return forgotten(entry, remember_ms, now_ms);
            }
        }
        State::Missed { .. }
            if entry.terms.remember_ms.is_some_and(|for_ms| is_past(entry.changed_ms, for_ms, now_ms)) =>
        {
            return Fate::Remove;
        }
        _ if entry.is_trace() && is_past(entry.changed_ms, entry.terms.keep_ms, now_ms) => {
            return Fate::Remove;
        }
        _ => {}
    }
    let old = |attempt: &Attempt| {
        is_past(attempt.ended_ms.unwrap_or(attempt.started_ms), entry.terms.keep_ms, now_ms)
    };
    let all_but_last = entry.log.len().saturating_sub(1);
    let dropped = entry.log.iter().take(all_but_last).filter(|attempt| old(attempt)).count();
    if dropped == 0 {
        return Fate::Keep;
    }
    let mut next = entry.clone();
    let mut nth = 0;
    next.log.retain(|attempt| {
        nth += 1;
        nth > all_but_last || !old(attempt)
    });
    Fate::Trim { entry: next, dropped }
}

fn forgotten(entry: &Entry, remember_ms: u64, now_ms: u64) -> Fate {
    // a step goes with its run, which leaves the trace
    if entry.work.step().is_some() {
        return Fate::Remove;
    }
    let trace = Entry {
        attempts: entry.attempts,
        forgotten: Some(Forgotten { done_ms: entry.changed_ms, at_ms: now_ms, remember_ms }),
        ..Entry::new(entry.work.clone(), State::Open { torn: false }, entry.terms.clone(), now_ms)
    };
    Fate::Forget { trace }
}

/// May what a step wrote go? `step` is its entry, if there still is one, and `of` the attempt that wrote it.
pub fn output_is_past(step: Option<&Entry>, of: &Nonce, now_ms: u64) -> bool {
    match step {
        None => true,
        // it may be writing this very piece
        Some(Entry { state: State::Running { .. }, .. }) => false,
        Some(step) => {
            step.output.as_ref().is_none_or(|output| output.of != *of)
                || is_past(step.changed_ms, step.terms.keep_ms, now_ms)
        }
    }
}

/// May a note of the journal go? `keep_ms` is its entry's, if there still is one.
pub fn note_is_past(at_ms: u64, keep_ms: Option<u64>, now_ms: u64) -> bool {
    is_past(at_ms, keep_ms.unwrap_or(KEEP_DEFAULT_MS), now_ms)
}

fn is_past(at_ms: u64, for_ms: u64, now_ms: u64) -> bool {
    now_ms.saturating_sub(at_ms) > for_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{DoneBy, Ending, Output};
    use crate::story::testing::{attempt, entry};

    const DAY: u64 = 24 * 3_600_000;

    fn done(at_ms: u64, remember_ms: Option<u64>) -> Entry {
        let mut entry = entry(State::Done { by: DoneBy::Run });
        entry.changed_ms = at_ms;
        entry.terms.remember_ms = remember_ms;
        entry
    }

    #[test]
    fn done_is_remembered_for_ever_unless_told_otherwise() {
        assert_eq!(fate(&done(0, None), 10_000 * DAY), Fate::Keep);
        assert_eq!(fate(&done(0, Some(DAY)), DAY), Fate::Keep);
        assert!(matches!(fate(&done(0, Some(DAY)), DAY + 1), Fate::Forget { .. }));
    }

    #[test]
    fn what_is_left_says_that_it_was_done_and_goes_when_attempts_go() {
        let mut entry = done(5, Some(DAY));
        (entry.terms.keep_ms, entry.result) = (30 * DAY, Some(1.into()));
        entry.log = vec![attempt(1, 3, Ending::Succeeded)];
        let Fate::Forget { trace } = fate(&entry, 2 * DAY) else { unreachable!() };
        let left = Forgotten { done_ms: 5, at_ms: 2 * DAY, remember_ms: DAY };
        assert_eq!((trace.is_again(), &trace.result, trace.log.len()), (Some(&left), &None, 0));
        assert_eq!(fate(&trace, 32 * DAY), Fate::Keep);
        assert_eq!(fate(&trace, 32 * DAY + 1), Fate::Remove);
        // who runs it again takes it over, and only the first attempt since is a re-run
        let mut again = trace.clone();
        again.log = vec![attempt(2, 3 * DAY, Ending::Succeeded)];
        again.state = State::Done { by: DoneBy::Run };
        assert_eq!(again.is_again(), Some(&left));
        assert!(matches!(fate(&again, 99 * DAY), Fate::Forget { .. }));
        again.log.push(attempt(3, 4 * DAY, Ending::Succeeded));
        assert_eq!(again.is_again(), None);
        // what a person said of it since is not thrown away
        let mut judged = trace;
        judged.verdicts = entry.verdicts.clone();
        judged.state = State::Quarantined;
        assert_eq!(fate(&judged, 99 * DAY), Fate::Keep);
    }

    #[test]
    fn only_done_is_forgotten() {
        for state in [State::Open { torn: false }, State::Failed { torn: false }, State::Quarantined] {
            let mut entry = done(0, Some(DAY));
            entry.state = state;
            assert_eq!(fate(&entry, 10_000 * DAY), Fate::Keep);
        }
    }

    #[test]
    fn old_attempts_go_and_the_last_one_stays() {
        let mut entry = done(3, None);
        entry.log = (1..=3).map(|n| attempt(n, u64::from(n) * DAY, Ending::Failed { code: 1 })).collect();
        entry.attempts = 3;
        entry.terms.keep_ms = 30 * DAY;
        assert_eq!(fate(&entry, 31 * DAY), Fate::Keep);
        let Fate::Trim { entry: next, dropped: 1 } = fate(&entry, 32 * DAY) else { unreachable!() };
        assert_eq!(next.log.iter().map(|attempt| attempt.n).collect::<Vec<_>>(), [2, 3]);
        let Fate::Trim { entry: next, dropped: 2 } = fate(&entry, 1_000 * DAY) else { unreachable!() };
        assert_eq!(next.log.iter().map(|attempt| attempt.n).collect::<Vec<_>>(), [3]);
        assert_eq!((next.attempts, fate(&next, 1_000 * DAY)), (3, Fate::Keep));
    }

    #[test]
    fn output_goes_with_its_time_or_its_step() {
        let (of, other) = (Nonce::from_bytes([1; 16]), Nonce::from_bytes([2; 16]));
        let mut step = done(0, None);
        step.terms.keep_ms = DAY;
        step.output = Some(Output { of, pieces: 1, out_bytes: 1, err_bytes: 0, kept: true });
        assert!(!output_is_past(Some(&step), &of, DAY));
        assert!(output_is_past(Some(&step), &of, DAY + 1));
        assert!(output_is_past(Some(&step), &other, 0), "of an attempt that was not the last");
        assert!(output_is_past(None, &of, 0));
        step.state = crate::story::testing::running();
        assert!(!output_is_past(Some(&step), &other, 1_000 * DAY), "it may be writing it");
    }

    #[test]
    fn what_runs_is_left_alone() {
        let mut running = entry(crate::story::testing::running());
        running.log = (1..=3).map(|n| attempt(n, 0, Ending::Vanished)).collect();
        assert_eq!(fate(&running, 1_000 * DAY), Fate::Keep);
    }

    #[test]
    fn a_time_in_the_future_is_not_past() {
        assert_eq!(fate(&done(1_000 * DAY, Some(DAY)), 5), Fate::Keep);
        assert!(!note_is_past(1_000 * DAY, Some(0), 5));
    }

    #[test]
    fn a_note_goes_by_its_entrys_keep_or_after_a_month() {
        assert!(note_is_past(0, Some(DAY), DAY + 1));
        assert!(!note_is_past(0, None, 30 * DAY));
        assert!(note_is_past(0, None, 30 * DAY + 1));
    }
}
