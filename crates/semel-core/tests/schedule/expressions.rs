//! What is read as a schedule, and what is said of the rest.

use std::time::Duration;

use semel_core::schedule::Schedule;

use crate::{schedule, slots};

#[track_caller]
fn days(text: &str, expected: &[&str]) {
    let found = slots(text, "UTC", "2025-12-31T23:59:59Z", "2026-02-28T00:00:00Z");
    let found: Vec<_> = found.iter().map(|slot| &slot[5..10]).take(expected.len()).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn crontab_lines_as_cron_reads_them() {
    // 2026-01-01 is a Thursday
    days("0 2 * * 1", &["01-05", "01-12", "01-19"]);
    days("0 2 * * 0", &["01-04", "01-11"]);
    days("0 2 * * 7", &["01-04", "01-11"]);
    days("0 2 * * sun", &["01-04", "01-11"]);
    days("0 2 * * MON-WED", &["01-05", "01-06", "01-07", "01-12"]);
    days("0 2 * feb *", &["02-01", "02-02"]);
    days("0 2 1,15 * *", &["01-01", "01-15", "02-01", "02-15"]);
    days("0 2 */10 * *", &["01-01", "01-11", "01-21", "01-31", "02-01"]);
    days("0 2 31 * *", &["01-31"]);
    // both fields of days restricted: either suffices; one with a star: both must hold
    days("0 2 13 * 5", &["01-02", "01-09", "01-13", "01-16"]);
    days("0 2 */2 * 5", &["01-09", "01-23"]);
    days("@weekly", &["01-04", "01-11"]);
    days("@monthly", &["01-01", "02-01"]);
    days("@yearly", &["01-01"]);
    assert_eq!(
        slots("@daily", "UTC", "2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"),
        ["2026-01-02T00:00:00Z"]
    );
    assert_eq!(
        slots("  5-59/20   8,20 * *\t* ", "UTC", "2026-01-01T07:00:00Z", "2026-01-01T20:30:00Z"),
        [
            "2026-01-01T08:05:00Z",
            "2026-01-01T08:25:00Z",
            "2026-01-01T08:45:00Z",
            "2026-01-01T20:05:00Z",
            "2026-01-01T20:25:00Z"
        ]
    );
}

#[test]
fn dates_that_come_seldom() {
    assert_eq!(
        slots("0 0 29 2 *", "Europe/Berlin", "2026-01-01T00:00:00Z", "2033-01-01T00:00:00Z"),
        ["2028-02-28T23:00:00Z", "2032-02-28T23:00:00Z"]
    );
    // eight years over 2100
    assert_eq!(
        slots("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", "2105-01-01T00:00:00Z"),
        ["2104-02-29T00:00:00Z"]
    );
    // and forty, for one on an odd weekday around 2100
    assert_eq!(slots("0 0 29 2 */7", "UTC", "2088-03-01T00:00:00Z", "2129-01-01T00:00:00Z").len(), 1);
    assert_eq!(slots("59 * 31 12 *", "UTC", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z").len(), 24);
}

#[test]
fn what_is_no_schedule() {
    for (text, why) in [
        ("", "is empty"),
        ("  ", "is empty"),
        ("daily", "is no schedule: write day"),
        ("Day", "is no schedule"),
        ("days", "is no schedule"),
        ("fortnight", "is no schedule"),
        ("m", "is no schedule"),
        ("15", "is no schedule"),
        ("-15m", "is no schedule"),
        ("1.5h", "is no schedule"),
        ("1h30m", "is no schedule"),
        ("15min", "is no schedule"),
        ("١٥m", "is no schedule"),
        ("15м", "is no schedule"),
        ("0s", "write 1s or longer"),
        (
            "7m",
            "does not divide a day evenly, so its slots would drift against whatever fires it: use 6m or 8m",
        ),
        ("50m", "use 48m or 60m"),
        ("7h", "use 6h or 8h"),
        ("13h", "use 12h or day"),
        ("61s", "use 60s or 64s"),
        ("24h", "write day, week or month"),
        ("1d", "write day, week or month"),
        ("99999999999999999999999h", "write day, week or month"),
        ("0 2 * *", "has 4 fields"),
        ("0 0 2 * * *", "has 6 fields"),
        ("0 2 * * * Europe/Berlin", "has 6 fields"),
        ("* *", "has 2 fields"),
        ("60 2 * * *", "has \"60\" as its minute field, which cannot be read"),
        ("0 24 * * *", "has \"24\" as its hour field, which cannot be read"),
        ("0 2 0 * *", "has \"0\" as its day of month field, which cannot be read"),
        ("0 2 32 * *", "has \"32\" as its day of month field, which cannot be read"),
        ("0 2 * 13 *", "has \"13\" as its month field, which cannot be read"),
        ("0 2 * * 8", "has \"8\" as its day of week field, which cannot be read"),
        ("0 2 * * FOO", "has \"FOO\" as its day of week field, which cannot be read"),
        ("5-1 2 * * *", "ranges (1-5)"),
        ("*/0 2 * * *", "has \"*/0\" as its minute field, which cannot be read"),
        ("*/ 2 * * *", "has \"*/\" as its minute field, which cannot be read"),
        ("1,,2 2 * * *", "has \"1,,2\" as its minute field, which cannot be read"),
        ("-1 2 * * *", "has \"-1\" as its minute field, which cannot be read"),
        ("0 2 L * *", "write numbers from 1 to 31, *, lists (1,2), ranges (1-5) and steps (*/15) only"),
        ("0 2 15W * *", "only"),
        ("0 2 * * 5L", "only"),
        ("0 2 * * 5#2", "only"),
        ("0 2 ? * 1", "only"),
        ("H 2 * * *", "only"),
        ("JAN 2 * * *", "only"),
        ("0 2 * * \u{1b}[31m", "only"),
        ("@often", "write @hourly"),
        ("@reboot", "--always"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
    ] {
        let said = Schedule::parse(text).expect_err(text).to_string();
        assert!(said.contains(why), "{text:?}: {why:?} is not in {said:?}");
        assert!(!said.contains('\n') && !said.contains('\u{1b}'), "{text:?}: {said:?}");
    }
    assert!(Schedule::parse(&"1,".repeat(1_000_000)).unwrap_err().to_string().contains("2000000 characters"));
}

#[test]
fn a_schedule_is_kept_as_it_was_written() {
    assert_eq!(schedule(" 0 2 * * * ").as_str(), "0 2 * * *");
    assert_eq!(schedule("day").to_string(), "day");
}

#[test]
fn periods() {
    let hours = |n: u64| Duration::from_secs(n * 3600);
    for (text, shortest, longest) in [
        ("day", 24, 24),
        ("week", 168, 168),
        ("month", 28 * 24, 31 * 24),
        ("hour", 1, 1),
        ("8h", 8, 8),
        ("0 2 * * *", 24, 24),
        ("0 2 * * 1-5", 24, 72),
        ("0 2,10 * * *", 8, 16),
        ("0 * * * *", 1, 1),
        ("0 2 1 * *", 28 * 24, 31 * 24),
        ("@yearly", 365 * 24, 366 * 24),
        // the times between are no longer than the one over night
        ("0 8-17 * * 1-5", 1, 63),
        ("0 0 29 2 *", 1461 * 24, 2921 * 24),
    ] {
        let period = schedule(text).period();
        assert_eq!((period.shortest, period.longest), (hours(shortest), hours(longest)), "{text}");
    }
}
