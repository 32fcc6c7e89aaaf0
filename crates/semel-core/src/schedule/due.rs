//! Which slot is due now: the one rule for everybody who has a clock.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{Schedule, Tick};

/// How far ahead of ours the clock of a scheduler may be.
pub const AHEAD_MS: i64 = 5 * 60 * 1000;

/// The slot that is due, and since how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// When it fell due, and its slot.
    pub tick: Tick,
    /// How long ago that was; nothing for one that a scheduler with a faster clock names early.
    pub late_ms: u64,
}

impl Due {
    /// How long it may take to begin, from now on, if it may be begun so late; nothing left means too late.
    pub fn start_within_ms(&self, max_late_ms: u64) -> u64 {
        max_late_ms.saturating_sub(self.late_ms)
    }
}

/// Why no slot is due.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDue {
    /// The scheduler means a time to come.
    #[error(
        "lies in the future (it is {now} here): a slot is never run before it is due; write a time that has come"
    )]
    Ahead {
        /// By our clock.
        now: Timestamp,
    },
    /// The calendar begins later.
    #[error("has no time at or before {0}")]
    Nothing(Timestamp),
}

/// The slot of the last tick at or before now, or before the time that the scheduler had in mind.
pub fn due(
    schedule: &Schedule,
    tz: &TimeZone,
    now: Timestamp,
    meant: Option<Timestamp>,
) -> Result<Due, NotDue> {
    if meant.is_some_and(|meant| meant.as_millisecond() - now.as_millisecond() > AHEAD_MS) {
        return Err(NotDue::Ahead { now });
    }
    let meant = meant.unwrap_or(now);
    let tick = schedule.tick_at_or_before(tz, meant).ok_or(NotDue::Nothing(meant))?;
    let late_ms = u64::try_from(now.as_millisecond() - tick.at.as_millisecond()).unwrap_or(0);
    Ok(Due { tick, late_ms })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_slot_is_that_of_the_last_tick_and_knows_how_late_it_is() {
        let schedule = Schedule::parse("hour").unwrap();
        let found = due(&schedule, &TimeZone::UTC, at("2026-06-19T02:20:00Z"), None).unwrap();
        assert_eq!((found.tick.slot.as_str(), found.late_ms), ("2026-06-19T02:00:00Z", 20 * 60_000));
        assert_eq!(found.start_within_ms(30 * 60_000), 10 * 60_000);
        assert_eq!((found.start_within_ms(20 * 60_000), found.start_within_ms(0)), (0, 0));
    }

    #[test]
    fn what_the_scheduler_meant_goes_before_now() {
        let schedule = Schedule::parse("hour").unwrap();
        let now = at("2026-06-19T03:10:00Z");
        let found = due(&schedule, &TimeZone::UTC, now, Some(at("2026-06-19T02:00:00Z"))).unwrap();
        assert_eq!((found.tick.slot.as_str(), found.late_ms), ("2026-06-19T02:00:00Z", 70 * 60_000));
    }

    #[test]
    fn a_scheduler_may_be_a_little_ahead_and_no_more() {
        let schedule = Schedule::parse("hour").unwrap();
        let now = at("2026-06-19T01:58:00Z");
        let found = due(&schedule, &TimeZone::UTC, now, Some(at("2026-06-19T02:00:00Z"))).unwrap();
        assert_eq!((found.tick.slot.as_str(), found.late_ms), ("2026-06-19T02:00:00Z", 0));
        let far = due(&schedule, &TimeZone::UTC, now, Some(at("2026-06-19T02:03:01Z")));
        assert_eq!(far, Err(NotDue::Ahead { now }));
    }

    #[test]
    fn before_the_calendar_nothing_is_due() {
        let (schedule, now) = (Schedule::parse("month").unwrap(), Timestamp::MIN);
        let found = due(&schedule, &TimeZone::UTC, now, None);
        assert!(matches!(found, Err(NotDue::Nothing(_)) | Ok(_)), "and nothing panics: {found:?}");
        assert!(due(&schedule, &TimeZone::UTC, Timestamp::MAX, Some(Timestamp::MIN)).is_err());
    }
}
