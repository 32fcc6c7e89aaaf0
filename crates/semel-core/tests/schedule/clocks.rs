//! Intervals and cron expressions on the days on which the clocks change.

use jiff::Timestamp;

use crate::{at, slot, slots, ticks, zone};

/// The ticks that a day has, one row per zone and change.
const CHANGES: &[(&str, &str, &str, &str, &[&str])] = &[
    // Berlin leaves out 02:00 to 03:00. A line for 2:30 falls due when cron fires for it: at once, at 3:00
    (
        "0 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00:00Z",
        "2026-03-30T12:00:00Z",
        &["03-29 03:00 +02:00", "03-30 02:00 +02:00"],
    ),
    (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00:00Z",
        "2026-03-30T12:00:00Z",
        &["03-29 03:00 +02:00", "03-30 02:30 +02:00"],
    ),
    (
        "30 1 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00:00Z",
        "2026-03-30T12:00:00Z",
        &["03-29 01:30 +01:00", "03-30 01:30 +02:00"],
    ),
    (
        "30 3 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00:00Z",
        "2026-03-30T12:00:00Z",
        &["03-29 03:30 +02:00", "03-30 03:30 +02:00"],
    ),
    // several times in the gap are one tick, and meet the one that is there anyway
    (
        "*/20 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00:00Z",
        "2026-03-29T12:00:00Z",
        &["03-29 03:00 +02:00"],
    ),
    ("0 2,3 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z", &["03-29 03:00 +02:00"]),
    // Berlin has 02:00 to 03:00 twice
    (
        "0 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00:00Z",
        "2026-10-26T12:00:00Z",
        &["10-25 02:00 +02:00", "10-26 02:00 +01:00"],
    ),
    (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00:00Z",
        "2026-10-26T12:00:00Z",
        &["10-25 02:30 +02:00", "10-26 02:30 +01:00"],
    ),
    (
        "*/30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00:00Z",
        "2026-10-25T12:00:00Z",
        &["10-25 02:00 +02:00", "10-25 02:30 +02:00"],
    ),
    (
        "0 */2 * * *",
        "Europe/Berlin",
        "2026-10-24T21:00:00Z",
        "2026-10-25T04:00:00Z",
        &["10-25 00:00 +02:00", "10-25 02:00 +02:00", "10-25 04:00 +01:00"],
    ),
    // every real interval: nothing in the gap, both times in the fold
    (
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        "2026-03-29T02:00:00Z",
        &["03-29 01:30 +01:00", "03-29 03:00 +02:00", "03-29 03:30 +02:00", "03-29 04:00 +02:00"],
    ),
    (
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-10-24T23:30:00Z",
        "2026-10-25T02:00:00Z",
        &[
            "10-25 02:00 +02:00",
            "10-25 02:30 +02:00",
            "10-25 02:00 +01:00",
            "10-25 02:30 +01:00",
            "10-25 03:00 +01:00",
        ],
    ),
    (
        "@hourly",
        "Europe/Berlin",
        "2026-03-28T23:30:00Z",
        "2026-03-29T01:30:00Z",
        &["03-29 01:00 +01:00", "03-29 03:00 +02:00"],
    ),
    // New York, at 2:00 as well but in another offset
    (
        "30 2 * * *",
        "America/New_York",
        "2026-03-07T12:00:00Z",
        "2026-03-09T12:00:00Z",
        &["03-08 03:00 -04:00", "03-09 02:30 -04:00"],
    ),
    (
        "30 1 * * *",
        "America/New_York",
        "2026-10-31T12:00:00Z",
        "2026-11-02T12:00:00Z",
        &["11-01 01:30 -04:00", "11-02 01:30 -05:00"],
    ),
    (
        "15 * * * *",
        "America/New_York",
        "2026-11-01T04:30:00Z",
        "2026-11-01T07:30:00Z",
        &["11-01 01:15 -04:00", "11-01 01:15 -05:00", "11-01 02:15 -05:00"],
    ),
    // Lord Howe moves by half an hour: 02:00 to 02:30 is left out, 01:30 to 02:00 comes twice
    (
        "0 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T00:00:00Z",
        "2026-10-05T00:00:00Z",
        &["10-04 02:30 +11:00", "10-05 02:00 +11:00"],
    ),
    (
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T00:00:00Z",
        "2026-04-06T00:00:00Z",
        &["04-05 01:45 +11:00", "04-06 01:45 +10:30"],
    ),
    (
        "*/15 * * * *",
        "Australia/Lord_Howe",
        "2026-04-04T14:15:00Z",
        "2026-04-04T15:30:00Z",
        &[
            "04-05 01:30 +11:00",
            "04-05 01:45 +11:00",
            "04-05 01:30 +10:30",
            "04-05 01:45 +10:30",
            "04-05 02:00 +10:30",
        ],
    ),
    (
        "*/15 * * * *",
        "Australia/Lord_Howe",
        "2026-10-03T15:00:00Z",
        "2026-10-03T15:50:00Z",
        &["10-04 01:45 +10:30", "10-04 02:30 +11:00", "10-04 02:45 +11:00"],
    ),
    // São Paulo once began its day at 1:00
    (
        "0 0 * * *",
        "America/Sao_Paulo",
        "2018-11-03T12:00:00Z",
        "2018-11-05T12:00:00Z",
        &["11-04 01:00 -02:00", "11-05 00:00 -02:00"],
    ),
    (
        "30 23 * * *",
        "America/Sao_Paulo",
        "2018-02-17T12:00:00Z",
        "2018-02-19T12:00:00Z",
        &["02-17 23:30 -02:00", "02-18 23:30 -03:00"],
    ),
    // Casablanca goes back for Ramadan and forth after it
    (
        "30 2 * * *",
        "Africa/Casablanca",
        "2026-02-14T12:00:00Z",
        "2026-02-16T12:00:00Z",
        &["02-15 02:30 +01:00", "02-16 02:30 +00:00"],
    ),
    (
        "30 2 * * *",
        "Africa/Casablanca",
        "2026-03-21T12:00:00Z",
        "2026-03-23T12:00:00Z",
        &["03-22 03:00 +01:00", "03-23 02:30 +01:00"],
    ),
    // Apia had no 2011-12-30: no tick for it
    (
        "0 2 * * *",
        "Pacific/Apia",
        "2011-12-29T00:00:00Z",
        "2012-01-01T00:00:00Z",
        &["12-29 02:00 -10:00", "12-31 02:00 +14:00", "01-01 02:00 +14:00"],
    ),
    (
        "0 * * * *",
        "Pacific/Apia",
        "2011-12-30T08:30:00Z",
        "2011-12-30T11:30:00Z",
        &["12-29 23:00 -10:00", "12-31 00:00 +14:00", "12-31 01:00 +14:00"],
    ),
    // a quarter to the hour
    (
        "0 2 * * *",
        "Asia/Kathmandu",
        "2026-06-17T00:00:00Z",
        "2026-06-19T00:00:00Z",
        &["06-18 02:00 +05:45", "06-19 02:00 +05:45"],
    ),
];

#[test]
fn cron_expressions_over_changes_of_the_clocks() {
    for (text, zone, after, until, expected) in CHANGES {
        assert_eq!(ticks(text, zone, after, until), *expected, "{text} in {zone} from {after}");
    }
}

/// The control: whoever looks at the wall clock alone loses the day in spring and has it twice in autumn.
#[test]
fn a_line_matched_against_the_wall_clock_is_lost_and_doubled() {
    let tz = zone("Europe/Berlin");
    let naive = |after: &str, until: &str| {
        let minutes = at(after).as_second() / 60..at(until).as_second() / 60;
        let shown = minutes.map(|minute| tz.to_datetime(Timestamp::from_second(minute * 60).unwrap()));
        shown.filter(|time| (time.hour(), time.minute()) == (2, 30)).count()
    };
    let spring = ("2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z");
    let autumn = ("2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z");
    assert_eq!((naive(spring.0, spring.1), naive(autumn.0, autumn.1)), (0, 2));
    let ours = |(after, until)| slots("30 2 * * *", "Europe/Berlin", after, until).len();
    assert_eq!((ours(spring), ours(autumn)), (1, 1));
}

/// Every day of twenty years, in zones that change in every way: a line for one time of day has one tick per date.
#[test]
fn a_daily_line_has_one_tick_a_day() {
    for zone in
        ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "America/Havana"]
    {
        for text in ["0 2 * * *", "30 2 * * *", "0 0 * * *", "59 23 * * *", "day"] {
            let found = slots(text, zone, "2010-06-01T12:00:00Z", "2030-06-01T12:00:00Z").len();
            assert_eq!(found, 7305, "{text} in {zone}");
        }
    }
}

/// A quarter of an hour is a quarter of an hour, all year round.
#[test]
fn short_schedules_keep_their_distance() {
    let year = ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    for zone in
        ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Africa/Casablanca", "Australia/Lord_Howe"]
    {
        for text in ["*/15 * * * *", "15m"] {
            assert_eq!(slots(text, zone, year.0, year.1).len(), 365 * 96, "{text} in {zone}");
        }
        assert_eq!(slots("hour", zone, year.0, year.1).len(), 365 * 24, "hour in {zone}");
    }
}

#[test]
fn intervals_count_in_utc() {
    for (text, now, expected) in [
        ("hour", "2026-06-19T02:59:59.999Z", "2026-06-19T02:00:00Z"),
        ("1h", "2026-06-19T03:00:00Z", "2026-06-19T03:00:00Z"),
        ("15m", "2026-06-19T02:14:59Z", "2026-06-19T02:00:00Z"),
        ("15m", "2026-06-19T02:15:00Z", "2026-06-19T02:15:00Z"),
        ("90s", "2026-06-19T00:02:59Z", "2026-06-19T00:01:30Z"),
        ("8h", "2026-06-19T23:00:00Z", "2026-06-19T16:00:00Z"),
        ("90m", "2026-06-19T02:00:00Z", "2026-06-19T01:30:00Z"),
        ("1s", "1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59Z"),
    ] {
        for zone in ["UTC", "Asia/Kathmandu", "Europe/Berlin"] {
            assert_eq!(slot(text, zone, now), expected, "{text} at {now} in {zone}");
        }
    }
}

/// The slot of a cron tick is a moment: two names of one zone, or another machine's, give the same.
#[test]
fn the_name_of_a_zone_is_not_in_the_slot() {
    for zone in ["Europe/Berlin", "Europe/Paris", "Arctic/Longyearbyen"] {
        assert_eq!(slot("0 2 * * *", zone, "2026-06-19T12:00:00Z"), "2026-06-19T00:00:00Z", "{zone}");
    }
}

/// By hand in the afternoon: the slot that was due last, and never the one that comes.
#[test]
fn a_manual_run_never_takes_a_later_slot() {
    for now in ["2026-06-19T02:00:00Z", "2026-06-19T14:00:00Z", "2026-06-20T01:59:59.999999999Z"] {
        assert_eq!(slot("0 2 * * *", "UTC", now), "2026-06-19T02:00:00Z");
    }
    assert_eq!(slot("0 2 * * *", "UTC", "2026-06-20T02:00:00Z"), "2026-06-20T02:00:00Z");
}
