//! What holds for every schedule, in every zone, at every moment.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use proptest::prelude::*;
use semel_core::name::Name;
use semel_core::schedule::Schedule;
use semel_core::work::{Fields, Work};

fn zones() -> Vec<(String, TimeZone)> {
    let database = TimeZoneDatabase::bundled();
    database.available().map(|name| (name.to_string(), database.get(name.as_str()).unwrap())).collect()
}

fn any_zone() -> impl Strategy<Value = (String, TimeZone)> {
    proptest::sample::select(zones())
}

fn field(range: std::ops::RangeInclusive<u8>) -> impl Strategy<Value = String> {
    let (low, high) = range.into_inner();
    let one = (low..=high).prop_map(|n| n.to_string());
    prop_oneof![
        4 => Just("*".to_owned()),
        3 => one.clone(),
        1 => (1..=high / 2).prop_map(|step| format!("*/{step}")),
        1 => (low..=high, low..=high).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => proptest::collection::vec(one, 1..4).prop_map(|list| list.join(",")),
    ]
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    const FIXED: &[&str] =
        &["day", "week", "month", "hour", "15m", "90s", "8h", "1s", "@daily", "@weekly", "@hourly"];
    let cron = (field(0..=59), field(0..=23), field(1..=31), field(1..=12), field(0..=7))
        .prop_map(|(minute, hour, day, month, weekday)| format!("{minute} {hour} {day} {month} {weekday}"));
    // times at which clocks change are worth more than others
    let night = (0..60u8, 0..4u8).prop_map(|(minute, hour)| format!("{minute} {hour} * * *"));
    let text =
        prop_oneof![2 => proptest::sample::select(FIXED).prop_map(str::to_owned), 2 => cron, 1 => night];
    text.prop_filter_map("a date that never comes", |text| Schedule::parse(&text).ok())
}

/// Anywhere in two hundred years, or right where the clock of a zone changes.
fn any_moment(tz: TimeZone) -> impl Strategy<Value = Timestamp> {
    let anywhere = (-2_208_988_800i64..4_102_444_800, 0..1_000_000_000i32)
        .prop_map(|(second, nano)| Timestamp::new(second, nano).unwrap_or(Timestamp::UNIX_EPOCH));
    let near =
        (anywhere.clone(), -100_000i64..100_000, any::<bool>()).prop_map(move |(moment, off, forth)| {
            let change = if forth { tz.following(moment).next() } else { tz.preceding(moment).next() };
            let moment = change.map_or(moment, |change| change.timestamp());
            Timestamp::from_second(moment.as_second() + off).unwrap_or(moment)
        });
    prop_oneof![1 => anywhere, 2 => near]
}

fn any_case() -> impl Strategy<Value = (String, TimeZone, Schedule, Timestamp)> {
    (any_zone(), any_schedule()).prop_flat_map(|((name, tz), schedule)| {
        (Just(name), Just(tz.clone()), Just(schedule), any_moment(tz))
    })
}

fn key(slot: &semel_core::name::Slot) -> String {
    Work::in_slot(Name::new("job").unwrap(), slot.clone(), Fields::default()).unwrap().key().to_string()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Forwards and backwards agree: the next tick is the last one at its own moment, and nothing lies between.
    #[test]
    fn the_next_tick_is_the_last_one_once_it_is_due((zone, tz, schedule, moment) in any_case()) {
        let last = schedule.tick_at_or_before(&tz, moment).unwrap();
        prop_assert!(last.at <= moment, "{zone} {schedule} {moment}: {last:?}");
        let next = schedule.next_after(&tz, moment).unwrap();
        prop_assert!(next.at > moment, "{zone} {schedule} {moment}: {next:?}");
        prop_assert_eq!(schedule.tick_at_or_before(&tz, next.at), Some(next.clone()), "{} {} {}", zone, schedule, moment);
        prop_assert_eq!(schedule.tick_at_or_before(&tz, last.at), Some(last.clone()), "{} {} {}", zone, schedule, moment);
        prop_assert_eq!(schedule.next_after(&tz, last.at), Some(next.clone()), "{} {} {}", zone, schedule, moment);
        let eve = Timestamp::from_nanosecond(next.at.as_nanosecond() - 1).unwrap();
        prop_assert_eq!(schedule.tick_at_or_before(&tz, eve), Some(last.clone()), "{} {} {}", zone, schedule, moment);
    }

    /// Two firings inside one slot have one key; in the next slot they have another.
    #[test]
    fn two_firings_in_one_slot_have_one_key((zone, tz, schedule, moment) in any_case(), share in 0u32..1000) {
        let first = schedule.tick_at_or_before(&tz, moment).unwrap();
        let next = schedule.next_after(&tz, moment).unwrap();
        let length = next.at.as_nanosecond() - first.at.as_nanosecond();
        let again = Timestamp::from_nanosecond(first.at.as_nanosecond() + length * i128::from(share) / 1000).unwrap();
        let second = schedule.tick_at_or_before(&tz, again).unwrap();
        prop_assert_eq!(key(&first.slot), key(&second.slot), "{} {} {} {}", zone, schedule, moment, again);
        prop_assert_ne!(key(&first.slot), key(&next.slot), "{} {} {}", zone, schedule, moment);
    }

    /// Ticks only grow, no two share a slot, and the slot of a moment is known from the moment alone.
    #[test]
    fn ticks_grow_and_their_slots_are_their_own((zone, tz, schedule, moment) in any_case()) {
        let ticks: Vec<_> = schedule.ticks(&tz, moment, Timestamp::MAX).take(60).collect();
        for pair in ticks.windows(2) {
            prop_assert!(pair[0].at < pair[1].at, "{zone} {schedule}: {pair:?}");
        }
        let slots: std::collections::BTreeSet<_> = ticks.iter().map(|tick| tick.slot.as_str()).collect();
        prop_assert_eq!(slots.len(), ticks.len(), "{} {} {}", zone, schedule, moment);
        for tick in &ticks {
            prop_assert_eq!(schedule.tick_at_or_before(&tz, tick.at), Some(tick.clone()));
        }
    }

    /// However a clock jumps, a later moment never has an earlier slot.
    #[test]
    fn a_later_moment_has_no_earlier_tick((_, tz, schedule, moment) in any_case(), ahead in 0i64..200_000) {
        let later = Timestamp::from_second(moment.as_second() + ahead).unwrap().max(moment);
        let (first, second) = (schedule.tick_at_or_before(&tz, moment), schedule.tick_at_or_before(&tz, later));
        prop_assert!(first.unwrap().at <= second.unwrap().at);
    }

    #[test]
    fn no_text_is_too_odd(text in "\\PC{0,40}", fields in proptest::collection::vec("[0-9*,/a-zL#W?-]{0,6}", 5)) {
        let _ = Schedule::parse(&text);
        let _ = Schedule::parse(&fields.join(" "));
        let _ = semel_core::schedule::scheduled_for(&text);
    }

    /// A tick of a line that names hours is where the wall clock first shows its time, or a gap's end.
    #[test]
    fn a_named_time_is_shown_when_it_falls_due((zone, tz, hour, minute, moment) in
        (any_zone(), 0..24i8, 0..60i8).prop_flat_map(|((name, tz), hour, minute)| {
            (Just(name), Just(tz.clone()), Just(hour), Just(minute), any_moment(tz))
        })
    ) {
        let schedule = Schedule::parse(&format!("{minute} {hour} * * *")).unwrap();
        let tick = schedule.tick_at_or_before(&tz, moment).unwrap();
        let shown = tz.to_datetime(tick.at);
        if (shown.hour(), shown.minute()) != (hour, minute) {
            let change = tz.following(Timestamp::from_second(tick.at.as_second() - 1).unwrap()).next().unwrap();
            prop_assert_eq!(change.timestamp(), tick.at, "{} {} {}", zone, schedule, moment);
        }
    }
}

proptest! {
    // a period looks through the whole calendar
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// The distance of two ticks is what the period says, but for what the clocks move meanwhile.
    #[test]
    fn distances_are_within_the_period(schedule in any_schedule(), second in 0i64..4_102_444_800) {
        let moment = Timestamp::from_second(second).unwrap();
        let tick = schedule.tick_at_or_before(&TimeZone::UTC, moment).unwrap();
        let next = schedule.next_after(&TimeZone::UTC, moment).unwrap();
        let distance = u64::try_from(next.at.as_second() - tick.at.as_second()).unwrap();
        let period = schedule.period();
        prop_assert!(period.shortest.as_secs() <= distance, "{schedule} {moment} {period:?}");
        prop_assert!(distance <= period.longest.as_secs(), "{schedule} {moment} {period:?}");
    }
}
