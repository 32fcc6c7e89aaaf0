//! What the wall clock of a zone shows, and when.
//!
//! The two functions are each other's inverse: the wall clock has `reached` a time by a moment exactly if what it has
//! `shown` by then is not earlier. Both only ever grow, however often the clock is turned back.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// A clock is turned back by a day at the most.
const TURNED_BACK: SignedDuration = SignedDuration::from_hours(49);
/// Clocks change and work falls due on whole seconds.
pub(super) const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The latest time that the wall clock has shown up to this moment.
pub(super) fn shown(tz: &TimeZone, now: Timestamp) -> DateTime {
    let here = tz.to_datetime(now);
    let from = now.checked_sub(TURNED_BACK).unwrap_or(Timestamp::MIN);
    // what it showed just before each change of late
    let before = changes_until(tz, now)
        .take_while(|change| *change > from)
        .filter_map(|change| change.checked_sub(SECOND).ok())
        .map(|moment| tz.to_datetime(moment));
    before.fold(here, DateTime::max)
}

/// The first moment at which the wall clock shows this time or a later one.
pub(super) fn reached(tz: &TimeZone, time: DateTime) -> Option<Timestamp> {
    match tz.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(time).ok()
        }
        AmbiguousOffset::Gap { before, after } => {
            // read by the new offset it lies before the change, by the old one at it or after it
            let early = after.to_timestamp(time).ok()?;
            let late = before.to_timestamp(time).ok()?;
            let mut changes = tz.following(early).map(|change| change.timestamp());
            let change = changes.find(|change| *change >= late || tz.to_datetime(*change) >= time);
            Some(change.map_or(late, |change| change.min(late)))
        }
    }
}

/// The changes of the clock at or before this moment, latest first.
pub(super) fn changes_until(tz: &TimeZone, now: Timestamp) -> impl Iterator<Item = Timestamp> {
    let end = now.checked_add(SECOND).unwrap_or(Timestamp::MAX);
    tz.preceding(end).map(|change| change.timestamp())
}

/// The first change of the clock after this moment.
pub(super) fn change_after(tz: &TimeZone, moment: Timestamp) -> Option<Timestamp> {
    tz.following(moment).next().map(|change| change.timestamp())
}

/// The second that a moment lies in. Everything here is asked by whole seconds: zones cut off a fraction towards 1970,
/// which is forwards in time before it.
pub(super) fn whole(moment: Timestamp) -> Timestamp {
    let second = moment.as_nanosecond().div_euclid(1_000_000_000);
    i64::try_from(second)
        .ok()
        .and_then(|second| Timestamp::from_second(second).ok())
        .unwrap_or(Timestamp::MIN)
}
