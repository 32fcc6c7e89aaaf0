//! Every tick is claimed or missed, exactly once, whatever order the firings come in.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use semel_core::calendar::{self, Calendar, GAP_LIMIT, Occurrence, Reason, is_owed};
use semel_core::entry::{DoneBy, Entry, State, Terms};
use semel_core::name::Name;
use semel_core::policy::Policy;
use semel_core::record::{Expect, Seen, Version};
use semel_core::schedule::Schedule;
use semel_core::work::{Fields, Work};

const SCHEDULES: &[&str] =
    &["day", "week", "month", "hour", "6h", "0 2 * * *", "30 1,2 * * *", "*/20 * * * 1-5"];
const ZONES: &[&str] = &["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn occurrence(schedule: &str, zone: &str, now: Timestamp) -> Occurrence {
    let schedule = Schedule::parse(schedule).unwrap();
    let zone = TimeZone::get(zone).unwrap();
    let tick = schedule.tick_at_or_before(&zone, now).unwrap();
    Occurrence { schedule, zone, tick, grace_ms: 0 }
}

fn work(occurrence: &Occurrence) -> Work {
    Work::in_slot(Name::new("j").unwrap(), occurrence.tick.slot.clone(), Fields::new()).unwrap()
}

fn now_ms(now: Timestamp) -> u64 {
    u64::try_from(now.as_millisecond()).unwrap()
}

/// A ledger of one series: what a store and the engine would make of it.
#[derive(Default)]
struct Ledger {
    calendar: Option<Seen<Calendar>>,
    /// By slot: `true` if it was claimed, and how often it was said to be missed.
    slots: BTreeMap<String, (bool, u32)>,
    version: i64,
}

impl Ledger {
    fn put(&mut self, calendar: Calendar) {
        self.version += 1;
        self.calendar = Some(Seen { value: calendar, version: Version::from(self.version) });
    }

    fn account(&mut self, occurrence: &Occurrence, piece: usize) {
        loop {
            let stands = self.calendar.as_ref().map(|seen| seen.value.clone());
            let mut gap = calendar::gap(stands.as_ref(), occurrence);
            gap.ticks.truncate(piece);
            let (Some(stands), Some(last)) = (stands, gap.ticks.last()) else { return };
            let next = calendar::accounted(&stands, last, gap.stretch.as_ref());
            for tick in &gap.ticks {
                let (claimed, missed) = self.slots.entry(tick.slot.to_string()).or_default();
                *missed += u32::from(!*claimed && *missed == 0);
            }
            assert!(next.through_ms > stands.through_ms, "each piece moves on");
            self.put(next);
        }
    }

    fn fire(&mut self, occurrence: &Occurrence, now: Timestamp, piece: usize) {
        self.account(occurrence, piece);
        let moved = calendar::advance(self.calendar.as_ref(), &work(occurrence), occurrence, now_ms(now));
        if let Some((next, expect)) = moved {
            let stands =
                self.calendar.as_ref().map_or(Expect::Absent, |seen| Expect::Version(seen.version.clone()));
            assert_eq!(expect, stands);
            self.put(next);
        }
        self.slots.entry(occurrence.tick.slot.to_string()).or_default().0 = true;
    }
}

proptest! {
    #[test]
    fn every_tick_since_the_first_is_claimed_or_missed(
        schedule in proptest::sample::select(SCHEDULES),
        zone in proptest::sample::select(ZONES),
        start in 1_293_000_000i64..1_830_000_000,
        hops in proptest::collection::vec(0i64..400_000, 1..12),
        piece in 1usize..40,
    ) {
        let mut ledger = Ledger::default();
        let mut now = start;
        let first = occurrence(schedule, zone, at(start + hops[0]));
        for hop in hops {
            now += hop;
            ledger.fire(&occurrence(schedule, zone, at(now)), at(now), piece);
        }
        let last = occurrence(schedule, zone, at(now));
        let from = first.tick.at.checked_sub(SignedDuration::from_secs(1)).unwrap();
        let due: Vec<String> =
            last.schedule.ticks(&last.zone, from, last.tick.at).map(|tick| tick.slot.to_string()).collect();
        let known: Vec<String> = ledger.slots.keys().cloned().collect();
        let mut sorted = due.clone();
        sorted.sort();
        prop_assert_eq!(known, sorted, "no slot is unknown, and none is made up");
        for (slot, (claimed, missed)) in &ledger.slots {
            prop_assert!(*claimed != (*missed == 1), "{} claimed {} missed {}", slot, claimed, missed);
        }
    }

    /// Two machines whose clocks differ, and a clock that is set back: what was claimed is never said to be missed.
    #[test]
    fn clocks_that_disagree_make_no_false_alarm_of_what_was_run(
        schedule in proptest::sample::select(SCHEDULES),
        zone in proptest::sample::select(ZONES),
        start in 1_293_000_000i64..1_830_000_000,
        hops in proptest::collection::vec(-100_000i64..200_000, 1..12),
    ) {
        let mut ledger = Ledger::default();
        let mut now = start;
        for hop in hops {
            now += hop;
            let before: Vec<String> =
                ledger.slots.iter().filter(|(_, (claimed, _))| *claimed).map(|(slot, _)| slot.clone()).collect();
            let missed_before: u32 = before.iter().map(|slot| ledger.slots[slot].1).sum();
            ledger.fire(&occurrence(schedule, zone, at(now)), at(now), 7);
            let missed_after: u32 = before.iter().map(|slot| ledger.slots[slot].1).sum();
            prop_assert_eq!(missed_before, missed_after);
            let stands = ledger.calendar.as_ref().unwrap();
            prop_assert!(stands.value.through_ms <= now_ms(at(now)) as i64, "never ahead of the clock that wrote it last");
        }
    }

    #[test]
    fn what_is_caught_up_is_bounded_in_order_and_not_before_the_first(
        schedule in proptest::sample::select(SCHEDULES),
        zone in proptest::sample::select(ZONES),
        start in 1_293_000_000i64..1_830_000_000,
        since in 0i64..5_000_000,
        within in 0u64..5_000_000_000,
    ) {
        let first = occurrence(schedule, zone, at(start - since));
        let (calendar, _) = calendar::advance(None, &work(&first), &first, now_ms(at(start))).unwrap();
        let last = occurrence(schedule, zone, at(start));
        let owed = calendar::within(&calendar, &last, within, now_ms(at(start)));
        let from_ms = (start * 1000 - within as i64).max(first.tick.at.as_millisecond());
        let from = Timestamp::from_millisecond(from_ms - 1).unwrap();
        let to = last.tick.at.checked_sub(SignedDuration::from_secs(1)).unwrap();
        let all: Vec<_> = last.schedule.ticks(&last.zone, from, to).filter(|tick| tick.at.as_millisecond() >= from_ms).collect();
        let newest = all[all.len().saturating_sub(calendar::CATCH_UP_LIMIT)..].to_vec();
        prop_assert_eq!(owed, newest);
    }
}

#[test]
fn a_gap_that_is_too_long_is_recorded_as_a_stretch_and_the_newest_slots() {
    let first = occurrence("15m", "UTC", at(1_700_000_000));
    let (calendar, _) = calendar::advance(None, &work(&first), &first, 1_700_000_000_000).unwrap();
    let last = occurrence("15m", "UTC", at(1_700_000_000 + 900 * 5_000));
    let gap = calendar::gap(Some(&calendar), &last);
    assert_eq!(gap.ticks.len(), GAP_LIMIT);
    let stretch = gap.stretch.clone().unwrap();
    assert_eq!(
        (stretch.after_ms, stretch.before_ms),
        (calendar.through_ms, gap.ticks[0].at.as_millisecond())
    );
    let next = calendar::accounted(&calendar, &gap.ticks[0], gap.stretch.as_ref());
    assert_eq!(
        calendar::gap(Some(&next), &last).ticks.len(),
        GAP_LIMIT - 1,
        "the stretch is not looked at again"
    );
    assert_eq!(calendar::gap(Some(&next), &last).stretch, None);
}

#[test]
fn a_schedule_that_is_written_otherwise_begins_anew() {
    let daily = occurrence("day", "UTC", at(1_700_000_000));
    let (calendar, _) = calendar::advance(None, &work(&daily), &daily, 1_700_000_000_000).unwrap();
    let hourly = occurrence("hour", "UTC", at(1_700_900_000));
    assert!(calendar::gap(Some(&calendar), &hourly).is_empty());
    let seen = Seen { value: calendar, version: Version::from(1) };
    let (next, expect) = calendar::advance(Some(&seen), &work(&hourly), &hourly, 1_700_900_000_000).unwrap();
    assert_eq!((next.every.as_str(), expect), ("hour", Expect::Version(Version::from(1))));
    assert_eq!(next.since_ms, hourly.tick.at.as_millisecond());
    // another zone does not: dates that are on record are on record
    let elsewhere = occurrence("day", "America/New_York", at(1_700_200_000));
    assert!(!calendar::gap(Some(&seen.value), &elsewhere).is_empty());
}

#[test]
fn what_is_owed_is_what_a_run_can_still_do() {
    let terms = Terms::of(&Policy::default());
    let entry = |state| {
        let missed =
            calendar::missed(Work::once(Name::new("j").unwrap()), Reason::NoTrigger, None, terms.clone(), 0);
        Entry { state, ..missed }
    };
    let rows = [
        (State::Missed { reason: Reason::Busy, detail: None }, true),
        (State::Open { torn: true }, true),
        (State::Failed { torn: false }, true),
        (State::Done { by: DoneBy::Run }, false),
        (State::Quarantined, false),
        (State::InDoubt { why: String::new() }, false),
    ];
    for (state, owed) in rows {
        assert_eq!(is_owed(Some(&entry(state.clone())), 3), owed, "{state:?}");
    }
    assert!(is_owed(None, 3));
    let capped = Entry { failures: 3, ..entry(State::Failed { torn: false }) };
    assert!(!is_owed(Some(&capped), 3));
}

#[test]
fn a_slot_is_past_its_grace_once_that_has_passed_and_none_before_the_first_is() {
    let first = occurrence("hour", "UTC", at(1_700_000_000));
    let (mut calendar, _) = calendar::advance(None, &work(&first), &first, 1_700_000_000_000).unwrap();
    calendar.grace_ms = 90 * 60_000;
    let last = occurrence("hour", "UTC", at(1_700_000_000 + 4 * 3600));
    let past = |now_ms: i64, most: usize| {
        let found = calendar::past_grace(&calendar, &last, u64::try_from(now_ms).unwrap(), most);
        found.iter().map(|tick| (tick.at.as_second() - first.tick.at.as_second()) / 3600).collect::<Vec<_>>()
    };
    let due_ms = last.tick.at.as_millisecond();
    assert_eq!(past(due_ms + 30 * 60_000, 9), [2, 1, 0], "the grace of the one before has not quite passed");
    assert_eq!(past(due_ms + 30 * 60_000 + 1, 9), [3, 2, 1, 0]);
    assert_eq!(past(due_ms + 30 * 60_000 + 1, 2), [3, 2]);
    assert_eq!(past(due_ms + 100 * 3_600_000, 9), [4, 3, 2, 1, 0], "never one that is not due");
}
