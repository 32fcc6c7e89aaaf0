//! When other schedulers must fire: tables of what they are told, and that every slot is met.
//!
//! Zones come from the database built into jiff, so that the tables hold on every machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use semel_core::schedule::Schedule;
use semel_core::trigger::{Clocks, Line, Untellable, Wish, interval_calendar, on_clock, slug};

fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).unwrap()
}

fn from() -> Timestamp {
    "2026-01-15T00:00:00Z".parse().unwrap()
}

/// Until then what is told must hold.
fn until() -> Timestamp {
    from().checked_add(SignedDuration::from_hours(3 * 366 * 24)).unwrap()
}

/// The lines for a schedule in one zone, on a clock in another.
fn lines(text: &str, job: &str, fires: &str, leaves_out: bool) -> Result<Vec<Line>, Untellable> {
    let schedule = Schedule::parse(text).unwrap();
    let wish = Wish { schedule: &schedule, job: "publish", max_late: None };
    told(&wish, &zone(job), &zone(fires), leaves_out)
}

fn told(
    wish: &Wish<'_>,
    job: &TimeZone,
    fires: &TimeZone,
    leaves_out: bool,
) -> Result<Vec<Line>, Untellable> {
    on_clock(wish, &Clocks { job, fires, from: from(), until: until(), leaves_out })
}

fn crontab(text: &str, job: &str, fires: &str, leaves_out: bool) -> Vec<String> {
    let lines =
        lines(text, job, fires, leaves_out).unwrap_or_else(|why| panic!("{text} {job} {fires}: {why}"));
    lines.iter().map(Line::crontab).collect()
}

#[test]
fn a_crontab_on_the_jobs_own_clock() {
    for (text, expected) in [
        ("day", &["11 6 * * *"][..]),
        ("week", &["11 6 * * 1"]),
        ("month", &["11 6 1 * *"]),
        ("hour", &["35 * * * *"]),
        ("6h", &["35 */6 * * *"]),
        ("15m", &["*/15 * * * *"]),
        ("1m", &["* * * * *"]),
        ("90m", &["0 */3 * * *", "30 1,4,7,10,13,16,19,22 * * *"]),
        // it would take four lines: a firing every fifteen minutes is in each slot
        ("16m", &["*/15 * * * *"]),
        ("30 2 * * 1-5", &["30 2 * * 1-5"]),
        ("30 2 13 * 5", &["30 2 13 * 5"]),
        ("30 2 13 * 7", &["30 2 13 * 0"]),
        ("0 0 */2 * 1", &["0 0 */2 * 1"]),
        ("0 0 1-31 * 1", &["0 0 * * *"]),
        ("0 0 13 * */2", &["0 0 13 * */2"]),
        ("@weekly", &["0 0 * * 0"]),
        ("5,10 8-18/2 * JAN,jul *", &["5,10 8,10,12,14,16,18 * 1,7 *"]),
    ] {
        assert_eq!(crontab(text, "UTC", "UTC", false), expected, "{text}");
    }
    assert_eq!(lines("30s", "UTC", "UTC", false), Err(Untellable::Seconds));
}

#[test]
fn a_crontab_on_another_clock() {
    for (text, job, fires, expected) in [
        // both sides of a change; what is early is a skip
        ("30 2 * * *", "Europe/Berlin", "UTC", &["30 0,1 * * *"][..]),
        ("0 2 * * 1-5", "America/New_York", "UTC", &["0 6,7 * * 1-5"]),
        ("0 0 * * 1", "Europe/Berlin", "UTC", &["0 22,23 * * 0"]),
        // the last day of a month has no number
        ("0 0 1 * *", "Europe/Berlin", "UTC", &["0 22,23 28-31 * *"]),
        ("0 0 1 1 *", "Europe/Berlin", "UTC", &["0 22,23 28-31 1,12 *"]),
        ("0 23 31 12 *", "America/New_York", "UTC", &["0 3,4 1 1,12 *"]),
        ("30 22 * * *", "Asia/Kolkata", "UTC", &["0 17 * * *"]),
        ("*/15 * * * *", "Europe/Berlin", "UTC", &["*/15 * * * *"]),
        ("0 3 * * *", "Europe/Berlin", "America/New_York", &["0 21,22 * * *"]),
        // any time of the slot will do: one that is in it on both sides
        ("day", "Europe/Berlin", "UTC", &["11 4 * * *"]),
        ("week", "Pacific/Kiritimati", "UTC", &["11 16 * * 0"]),
        ("6h", "UTC", "Europe/Berlin", &["35 3,9,15,21 * * *"]),
        ("15m", "UTC", "Australia/Lord_Howe", &["*/15 * * * *"]),
        ("hour", "UTC", "Australia/Lord_Howe", &["35 * * * *"]),
        ("2h", "UTC", "Europe/Berlin", &["35 * * * *"]),
    ] {
        assert_eq!(crontab(text, job, fires, false), expected, "{text} {job} {fires}");
    }
}

#[test]
fn a_scheduler_that_leaves_times_out_is_told_the_end_of_the_gap() {
    for (text, zone, expected) in [
        ("30 2 * * *", "Europe/Berlin", &["30 2 * * *", "0 3 * 3 0"][..]),
        ("30 2 * * *", "America/New_York", &["30 2 * * *", "0 3 * 3 0"]),
        ("15 2 * * *", "Australia/Lord_Howe", &["15 2 * * *", "30 2 * 10 0"]),
        ("0 4 * * *", "Europe/Berlin", &["0 4 * * *"]),
        ("30 1,2,3 * * *", "Europe/Berlin", &["30 1-3 * * *", "0 3 * 3 0"]),
        ("30 * * * *", "Europe/Berlin", &["30 * * * *"]),
        ("day", "Europe/Berlin", &["11 6 * * *"]),
    ] {
        assert_eq!(crontab(text, zone, zone, true), expected, "{text} {zone}");
    }
}

#[test]
fn too_late_is_never_chosen() {
    let schedule = Schedule::parse("day").unwrap();
    for minutes in [1, 10, 60, 300, 600] {
        let most = Duration::from_secs(minutes * 60);
        for (job, fires) in [("UTC", "UTC"), ("Europe/Berlin", "UTC"), ("Asia/Beirut", "Asia/Beirut")] {
            let wish = Wish { schedule: &schedule, job: "publish", max_late: Some(most) };
            let lines = told(&wish, &zone(job), &zone(fires), true).unwrap();
            assert_met(&wish, &zone(job), &zone(fires), &lines, from(), 200);
        }
    }
}

#[test]
fn calendars_of_systemd() {
    for (text, expected) in [
        ("day", &["*-*-* 06:11:00"][..]),
        ("week", &["Mon *-*-* 06:11:00"]),
        ("month", &["*-*-01 06:11:00"]),
        ("15m", &["*-*-* *:00/15:00"]),
        ("1m", &["*-*-* *:*:00"]),
        ("6h", &["*-*-* 00/6:35:00"]),
        ("0 2 * * 1-5", &["Mon..Fri *-*-* 02:00:00"]),
        ("0 2 * * 0,6", &["Sat,Sun *-*-* 02:00:00"]),
        // either suffices in a crontab, both are needed in a calendar of systemd's
        ("0 2 13 * 5", &["*-*-13 02:00:00", "Fri *-*-* 02:00:00"]),
        ("0 0 */2 * 1", &["Mon *-*-01/2 00:00:00"]),
        ("5,10 8-18/2 1-7 1,7 *", &["*-01,07-01..07 08,10,12,14,16,18:05,10:00"]),
    ] {
        let lines = lines(text, "UTC", "UTC", true).unwrap();
        let calendars: Vec<String> = lines.iter().flat_map(Line::on_calendar).collect();
        assert_eq!(calendars, expected, "{text}");
    }
    for (seconds, expected) in [
        (30, &["*-*-* *:*:00,30"][..]),
        (10, &["*-*-* *:*:00/10"]),
        (1, &["*-*-* *:*:*"]),
        (90, &["*-*-* *:00/3:00", "*-*-* *:01/3:30"]),
        // it does not divide an hour: more often than needed
        (64, &["*-*-* *:*:00"]),
        (32, &["*-*-* *:*:00,30"]),
    ] {
        assert_eq!(interval_calendar(seconds), expected, "{seconds}");
    }
}

#[test]
fn entries_of_launchd() {
    let entries = |text: &str| {
        let lines = lines(text, "UTC", "UTC", true).unwrap();
        let fires: Vec<_> = lines.iter().flat_map(|line| line.start_calendar().unwrap()).collect();
        let one = |n: Option<u8>| n.map_or("*".to_owned(), |n| n.to_string());
        fires
            .iter()
            .map(|f| {
                format!(
                    "{} {} {} {} {}",
                    one(f.minute),
                    one(f.hour),
                    one(f.day),
                    one(f.month),
                    one(f.weekday)
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(entries("day"), ["11 6 * * *"]);
    assert_eq!(entries("30m"), ["0 * * * *", "30 * * * *"]);
    assert_eq!(entries("0 2 13 * 5"), ["0 2 13 * *", "0 2 * * 5"]);
    assert_eq!(entries("0 2 */16 * 1"), ["0 2 * * 1"], "that both must match cannot be said");
    assert_eq!(entries("0 1,2 * 6 1-2"), ["0 1 * 6 1", "0 2 * 6 1", "0 1 * 6 2", "0 2 * 6 2"]);
    let many = lines("1-59 8-18 * * *", "UTC", "UTC", true).unwrap();
    assert_eq!(many[0].start_calendar(), Err(Untellable::TooMany(649)));
}

#[test]
fn slugs_are_plain_and_their_own() {
    assert_eq!(slug("publish", 40), "publish");
    assert_eq!(slug("my-job2", 40), "my-job2");
    let odd = ["site/blog", "site:blog", "site-blog-", "Site-Blog", "site--blog", "--", "_", "a.b"];
    let mut all: Vec<String> = odd.iter().map(|name| slug(name, 40)).collect();
    all.push(slug(&"x".repeat(128), 40));
    all.push(slug(&"x".repeat(127), 40));
    for slug in &all {
        assert!(
            slug.len() <= 40 && !slug.starts_with('-') && !slug.ends_with('-') && !slug.contains("--"),
            "{slug}"
        );
        assert!(slug.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'), "{slug}");
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), odd.len() + 2);
}

/// Does a crontab line name this time? Read from its text, without the code that wrote it.
fn names(line: &str, time: jiff::civil::DateTime) -> bool {
    let fields: Vec<&str> = line.split(' ').collect();
    let has = |field: &str, n: i8, low: i8| {
        field.split(',').any(|part| match (part.split_once('/'), part.split_once('-')) {
            (Some(("*", step)), _) => (n - low) % step.parse::<i8>().unwrap() == 0,
            (None, Some((first, last))) => {
                (first.parse::<i8>().unwrap()..=last.parse().unwrap()).contains(&n)
            }
            _ => part == "*" || part.parse::<i8>().unwrap() == n,
        })
    };
    let day = has(fields[2], time.day(), 1);
    let weekday = has(fields[4], time.weekday().to_sunday_zero_offset(), 0);
    let either = !fields[2].starts_with('*') && !fields[4].starts_with('*');
    has(fields[0], time.minute(), 0)
        && has(fields[1], time.hour(), 0)
        && has(fields[3], time.month(), 1)
        && if either { day || weekday } else { day && weekday }
}

/// Minute by minute: each of so many slots is fired, in time, as long as what was told must hold.
#[track_caller]
fn assert_met(
    wish: &Wish<'_>,
    job: &TimeZone,
    fires: &TimeZone,
    lines: &[Line],
    start: Timestamp,
    slots: usize,
) {
    let texts: Vec<String> = lines.iter().map(Line::crontab).collect();
    let mut tick = wish.schedule.tick_at_or_before(job, start).unwrap();
    for _ in 0..slots {
        let next = wish.schedule.next_after(job, tick.at).unwrap();
        if next.at > until() {
            break;
        }
        let mut second = (tick.at.as_second() + 59).div_euclid(60) * 60;
        let fired = loop {
            let moment = Timestamp::from_second(second).unwrap();
            if moment >= next.at {
                break None;
            }
            if texts.iter().any(|line| names(line, fires.to_datetime(moment))) {
                break Some(moment);
            }
            second += 60;
        };
        let late = fired.map(|fired| fired.duration_since(tick.at).unsigned_abs());
        let in_time = late.is_some_and(|late| wish.max_late.is_none_or(|most| late <= most));
        assert!(
            in_time,
            "{} in {job:?} on {fires:?}: {} is fired {fired:?} by {texts:?}",
            wish.schedule, tick.at
        );
        tick = next;
    }
}

fn any_text() -> impl Strategy<Value = String> {
    const FIXED: &[&str] = &[
        "day",
        "week",
        "month",
        "hour",
        "15m",
        "5m",
        "16m",
        "45m",
        "90m",
        "2h",
        "3h",
        "6h",
        "8h",
        "12h",
        "@daily",
        "0 0 1 * *",
        "30 2 * * *",
        "30 2 13 * 5",
        "0 0 */2 * 1",
        "15 1,2,3 * * *",
        "*/20 0-4 * * 0",
        "0 0 31 * *",
        "59 23 28-31 * *",
        "0 12 * 3,10 *",
    ];
    let night = (0..60u8, 0..5u8, 0..8u8)
        .prop_map(|(minute, hour, weekday)| format!("{minute} {hour} * * {weekday}"));
    prop_oneof![3 => proptest::sample::select(FIXED).prop_map(str::to_owned), 1 => night]
}

const ZONES: &[&str] = &[
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Pacific/Kiritimati",
    "Pacific/Pago_Pago",
    "Asia/Beirut",
    "America/Nuuk",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "Pacific/Chatham",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the schedule, the zones and the name: every slot is fired, around changes of the clocks too.
    #[test]
    fn every_slot_is_met(
        text in any_text(),
        job in proptest::sample::select(ZONES),
        fires in proptest::sample::select(ZONES),
        name in "[a-z]{1,8}",
        nth in 0usize..6,
    ) {
        let schedule = Schedule::parse(&text).unwrap();
        let (job, fires) = (zone(job), zone(fires));
        let wish = Wish { schedule: &schedule, job: &name, max_late: None };
        let lines = told(&wish, &job, &fires, true).unwrap();
        let until = from().checked_add(SignedDuration::from_hours(3 * 365 * 24)).unwrap();
        let changes = fires.following(from()).chain(job.following(from()));
        let change = changes.map(|change| change.timestamp()).filter(|change| *change < until).nth(nth);
        let start = change.map_or(from(), |change| change.checked_sub(SignedDuration::from_hours(20)).unwrap());
        let slots = if schedule.period().shortest < Duration::from_secs(3600) { 200 } else { 20 };
        assert_met(&wish, &job, &fires, &lines, start, slots);
    }
}
