//! Schedules, and calendars as a store hands them back.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use semel_core::advice::due_ms;
use semel_core::calendar::{self, Calendar, Occurrence};
use semel_core::grid::{Layout, Named};
use semel_core::name::Slot;
use semel_core::record::{RecordKey, Seen, Version, decode};
use semel_core::schedule::{Schedule, due, scheduled_for};
use semel_core::trigger::{Clocks, Wish, on_clock};
use semel_fuzz::{Target, check};

use crate::lines;

const SCHEDULES: &[&str] = &[
    "day\nEurope/Berlin\n1774746000",
    "0 2 * * *\nEurope/Berlin\n1774746000",
    "*/15 0-6,8 1,15 JAN-mar mon\nAsia/Kathmandu\n0",
    "0 0 29 2 1\nUTC\n4102444800",
    "15m\nPacific/Apia\n1325289600",
    "@weekly\nAmerica/St_Johns\n-62135596800",
    "1s\nAustralia/Lord_Howe\n253402207200",
    "month\nAntarctica/Troll\n-377705023201",
];
const WORDS: &[&str] = &[
    "*",
    "*/",
    "/",
    ",",
    "-",
    " ",
    "59",
    "23",
    "31",
    "12",
    "7",
    "0",
    "JAN",
    "DEC",
    "SUN",
    "SAT",
    "@hourly",
    "@daily",
    "@reboot",
    "week",
    "hour",
    "L",
    "W",
    "#",
    "?",
    "\n",
    "Africa/Casablanca",
    "Europe/Dublin",
    "86399s",
    "1440m",
];

fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).unwrap_or(TimeZone::UTC)
}

#[test]
fn schedules() {
    check(&Target::new("schedules", SCHEDULES, WORDS), |bytes| {
        let Some([text, tz, moment]) = lines(bytes) else { return };
        let _ = scheduled_for(text);
        let Ok(schedule) = Schedule::parse(text) else { return };
        assert_eq!(Schedule::parse(schedule.as_str()).as_ref(), Ok(&schedule));
        let tz = zone(tz);
        let seconds = moment.trim().parse().unwrap_or(1_774_746_000);
        let Ok(moment) = Timestamp::from_second(seconds) else { return };
        let (last, next) = (schedule.tick_at_or_before(&tz, moment), schedule.next_after(&tz, moment));
        if let Some(last) = &last {
            assert!(last.at <= moment);
            assert_eq!(schedule.tick_at_or_before(&tz, last.at).as_ref(), Some(last));
            // years before the first have no slots that are read back: no clock shows them
            let is_in_years = last.at.as_second() >= -62_135_596_800;
            assert!(!is_in_years || Named::by(&last.slot).is_some(), "{}", last.slot);
            let due = due_ms(&schedule, &tz, &last.slot);
            assert!(
                due.is_none_or(|due| i64::try_from(due) == Ok(last.at.as_millisecond())),
                "{last:?} {due:?}"
            );
        }
        if let Some(next) = &next {
            assert!(next.at > moment);
            assert_eq!(schedule.tick_at_or_before(&tz, next.at).as_ref(), Some(next));
        }
        // at both ends of the calendar there may be none
        let inside = (-370_000_000_000..250_000_000_000).contains(&seconds);
        assert!(!inside || last.is_some() && next.is_some(), "{schedule}: {last:?} {next:?}");
        assert!(schedule.ticks(&tz, moment, Timestamp::MAX).take(5).map(|tick| tick.at).is_sorted());
        let _ = (due(&schedule, &tz, moment, None).is_ok(), Layout::of(&schedule));
    });
}

/// What is said to other schedulers looks through years of slots, and takes longer than a single tick.
#[test]
fn triggers() {
    check(&Target { memory_times: 1_000, ..Target::new("triggers", SCHEDULES, WORDS) }, |bytes| {
        let Some([text, tz, fires]) = lines(bytes) else { return };
        let Ok(schedule) = Schedule::parse(text) else { return };
        let period = schedule.period();
        assert!(period.shortest <= period.longest && !period.shortest.is_zero(), "{period:?}");
        assert!(schedule.usual_grace() <= period.longest);
        let _ = schedule.check_remember(60_000, 0);
        let wish = Wish { schedule: &schedule, job: "job", max_late: None };
        let (from, until) =
            (Timestamp::from_second(1_774_746_000).unwrap(), Timestamp::from_second(1_806_282_000).unwrap());
        let clocks = Clocks { job: &zone(tz), fires: &zone(fires), from, until, leaves_out: false };
        for line in on_clock(&wish, &clocks).into_iter().flatten() {
            let text = line.crontab();
            assert!(Schedule::parse(&text).is_ok(), "{text}");
        }
    });
}

#[test]
fn calendars() {
    const SEEDS: &[&str] = &[
        "1774746000000\n{\"v\":1,\"job\":\"a\",\"every\":\"day\",\"tz\":\"Europe/Berlin\",\"grace_ms\":3600000,\"since_ms\":1750000000000,\"through_ms\":1774000000000}",
        "1774746000000\n{\"v\":1,\"job\":\"a\",\"with\":{\"x\":1},\"every\":\"0 0 29 2 *\",\"grace_ms\":0,\"since_ms\":-9223372036854775808,\"through_ms\":-9223372036854775808,\"stretches\":[{\"after_ms\":1,\"before_ms\":2}]}",
        "18446744073709551615\n{\"v\":1,\"job\":\"a\",\"every\":\"1s\",\"grace_ms\":18446744073709551615,\"since_ms\":9223372036854775807,\"through_ms\":9223372036854775807}",
    ];
    // a thousand slots are kept, however short what asks for them is
    check(&Target { memory_times: 1_000, ..Target::new("calendars", SEEDS, WORDS) }, |bytes| {
        let Some([now, record]) = lines(bytes) else { return };
        let key = RecordKey::from_stored("calendar/a/x".to_owned());
        let Ok(stands) = decode::<Calendar>(&key, record.as_bytes()) else { return };
        let now_ms: u64 = now.trim().parse().unwrap_or(1_774_746_000_000);
        let Ok(schedule) = Schedule::parse(&stands.every) else { return };
        let zone = stands.tz.as_deref().map_or(TimeZone::UTC, zone);
        let now = i64::try_from(now_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let Some(tick) = schedule.tick_at_or_before(&zone, now.unwrap_or(Timestamp::MAX)) else { return };
        let occurrence = Occurrence { schedule, zone, tick, grace_ms: stands.grace_ms };
        let gap = calendar::gap(Some(&stands), &occurrence);
        assert!(gap.ticks.len() <= calendar::GAP_LIMIT);
        assert!(gap.ticks.iter().all(|tick| tick.at > stands.through() && tick.at < occurrence.tick.at));
        assert!(calendar::within(&stands, &occurrence, now_ms / 2, now_ms).len() <= calendar::CATCH_UP_LIMIT);
        assert!(calendar::past_grace(&stands, &occurrence, now_ms, 100).len() <= 100);
        let after = calendar::accounted(&stands, &occurrence.tick, gap.stretch.as_ref());
        assert!(after.through_ms >= stands.through_ms, "never back");
        let Ok(work) = stands.work(Slot::new("x").unwrap()) else { return };
        let seen = Seen { value: stands.clone(), version: Version::from(1) };
        if let Some((next, _)) = calendar::advance(Some(&seen), &work, &occurrence, now_ms) {
            let ahead = i64::try_from(now_ms).is_ok_and(|now_ms| stands.through_ms > now_ms);
            assert!(
                ahead || next.through_ms >= stands.through_ms,
                "never back, but for a clock that was wrong"
            );
        }
    });
}
