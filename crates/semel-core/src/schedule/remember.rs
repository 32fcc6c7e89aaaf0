//! How long "done" must be remembered at the least, so that a slot is not done twice.
//!
//! A slot is the last one due until the next tick. Were its mark forgotten before that, whoever fires next would find
//! the same slot, and nothing that says it is done.

use std::time::Duration;

use super::Schedule;
use crate::policy::written;

/// How far a clock may be set back between two ticks: two hours are the most that zones do (Troll), so a day may have
/// 26 hours.
const CLOCKS_MOVE: Duration = Duration::from_secs(2 * 3600);

/// Marks would be forgotten too soon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--remember {} is shorter than the time from one slot of --every {schedule:?} to the next{} (up to {}): a slot that is done would be forgotten while it is still {}, and run again; write --remember {} or longer, or leave it out (for ever)",
    written(*remember_ms),
    if *caught_up { ", and what --catch-up reaches back" } else { "" },
    written(*longest_ms),
    if *caught_up { "asked for" } else { "the last one due" },
    written(*least_ms)
)]
pub struct ForgetsTooSoon {
    /// As asked.
    pub remember_ms: u64,
    /// As asked.
    pub schedule: String,
    /// Older slots are caught up.
    pub caught_up: bool,
    /// How long a slot may still be asked for, at the most.
    pub longest_ms: u64,
    /// What would do, in units that people write.
    pub least_ms: u64,
}

impl Schedule {
    /// Is the mark "done" of a slot remembered for as long as that slot can be the last one due, or be caught up
    /// because it fell due within so many milliseconds?
    pub fn check_remember(&self, remember_ms: u64, within_ms: u64) -> Result<(), ForgetsTooSoon> {
        let mut longest = self.period().longest;
        if self.is_zoned() {
            longest += CLOCKS_MOVE;
        }
        let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX).saturating_add(within_ms);
        if remember_ms >= longest_ms {
            return Ok(());
        }
        let schedule = self.as_str().to_owned();
        let caught_up = within_ms > 0;
        Err(ForgetsTooSoon { remember_ms, schedule, caught_up, longest_ms, least_ms: rounded_up(longest_ms) })
    }
}

/// In the largest unit that it has.
fn rounded_up(ms: u64) -> u64 {
    let unit = [86_400_000, 3_600_000, 60_000, 1_000].into_iter().find(|unit_ms| ms >= *unit_ms).unwrap_or(1);
    ms.div_ceil(unit).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const HOUR: u64 = 3_600_000;
    const DAY: u64 = 24 * HOUR;

    #[test]
    fn a_mark_must_outlive_its_slot() {
        for (schedule, least_ms) in [
            ("month", 31 * DAY + 2 * HOUR),
            ("week", 7 * DAY + 2 * HOUR),
            // the clocks go back: such a day has 25 hours, or 26
            ("day", DAY + 2 * HOUR),
            ("0 2 * * *", DAY + 2 * HOUR),
            // real intervals, whatever the clocks do
            ("hour", HOUR),
            ("15m", HOUR / 4),
        ] {
            let schedule = Schedule::parse(schedule).unwrap();
            assert_eq!(schedule.check_remember(least_ms, 0), Ok(()), "{schedule}");
            assert!(schedule.check_remember(least_ms - 1, 0).is_err(), "{schedule}");
            assert_eq!(schedule.check_remember(u64::MAX, 0), Ok(()), "{schedule}");
        }
    }

    #[test]
    fn what_is_said_to_do_does() {
        for text in ["month", "week", "day", "hour", "15m", "30s", "0 0 29 2 *", "@yearly", "7 3 * * 1"] {
            let schedule = Schedule::parse(text).unwrap();
            let refused = schedule.check_remember(0, 0).unwrap_err();
            assert_eq!(schedule.check_remember(refused.least_ms, 0), Ok(()), "{text}");
        }
        let said = Schedule::parse("month").unwrap().check_remember(7 * DAY, 0).unwrap_err().to_string();
        assert!(said.starts_with("--remember 7d is shorter"), "{said}");
        assert!(said.contains("(up to 31d2h)") && said.contains("write --remember 32d or longer"), "{said}");
    }

    #[test]
    fn a_mark_must_outlive_what_is_caught_up() {
        let schedule = Schedule::parse("day").unwrap();
        assert_eq!(schedule.check_remember(9 * DAY, 7 * DAY), Ok(()));
        let said = schedule.check_remember(7 * DAY, 7 * DAY).unwrap_err().to_string();
        assert!(said.contains("--catch-up reaches back (up to 8d2h)"), "{said}");
        assert!(said.contains("write --remember 9d or longer"), "{said}");
    }
}
