//! The calendar: exact texts, and that every slot has its cell.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use jiff::civil::{DateTime, date};
use jiff::tz::TimeZoneDatabase;
use jiff::{SignedDuration, Timestamp, ToSpan};
use proptest::prelude::*;
use semel_core::grid::{Grid, Layout, Mark, Named, Piece, Row, Shapes, lay_out, mark_of, plain};
use semel_core::name::Slot;
use semel_core::schedule::Schedule;
use semel_core::story::Condition;

fn text(grid: &Grid) -> Vec<String> {
    grid.lines.iter().map(|line| plain(line, Shapes::Unicode)).collect()
}

fn cells(grid: &Grid) -> usize {
    grid.lines.iter().flatten().filter(|piece| matches!(piece, Piece::Cell(_))).count()
}

/// Slots from a moment on, one for each mark.
fn every(start: DateTime, step: SignedDuration, marks: impl IntoIterator<Item = Mark>) -> Vec<Row> {
    marks.into_iter().zip(0..).map(|(mark, nth)| (start.checked_add(step * nth).unwrap(), mark)).collect()
}

const DAY: SignedDuration = SignedDuration::from_hours(24);

#[test]
fn a_daily_schedule_is_weeks_by_weekdays() {
    // a Tuesday
    let mut slots = every(date(2026, 5, 26).at(0, 0, 0, 0), DAY, [Mark::Done; 24]);
    slots[3].1 = Mark::Resumed;
    slots[8].1 = Mark::Failed;
    slots[12].1 = Mark::Absent;
    slots[23].1 = Mark::Running;
    let grid = lay_out(&slots, Layout::Weeks, 80);
    assert_eq!(
        text(&grid),
        [
            "      Jun",
            "Mon   ■ ■ ■",
            "Tue ■ ■ ■ ■",
            "Wed ■ ✗ ■ ■",
            "Thu ■ ■ ■ ▶",
            "Fri ▣ ■ ■",
            "Sat ■ ■ ■",
            "Sun ■ · ■",
        ]
    );
    assert_eq!(
        plain(&grid.legend(), Shapes::Unicode),
        "■ done 20   ▣ done after several attempts 1   ▶ running 1   ✗ failed 1   · not on record 1"
    );
    assert_eq!(grid.older, 0);
}

#[test]
fn months_stand_above_the_week_in_which_they_begin() {
    let slots = every(date(2026, 1, 5).at(0, 0, 0, 0), DAY, [Mark::Done; 120]);
    let grid = lay_out(&slots, Layout::Weeks, 200);
    assert_eq!(text(&grid)[0], "    Jan   Feb     Mar       Apr     May");
    assert_eq!(text(&grid)[1], "Mon ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■ ■");
    // as many weeks as fit, the newest at the right
    let narrow = lay_out(&slots, Layout::Weeks, 11);
    assert_eq!(text(&narrow)[1..4], ["Mon ■ ■ ■ ■", "Tue ■ ■ ■", "Wed ■ ■ ■"]);
    assert_eq!(narrow.older, 120 - 22);
    let year = lay_out(&every(date(2020, 1, 1).at(0, 0, 0, 0), DAY, [Mark::Done; 800]), Layout::Weeks, 1000);
    assert_eq!(text(&year).iter().map(|line| line.chars().count()).max(), Some(4 + 53 * 2 - 1));
}

#[test]
fn only_weekdays_that_occur_have_a_line() {
    let start = date(2026, 6, 15).at(2, 0, 0, 0);
    let slots: Vec<Row> = (0..5).map(|n| (start.checked_add(n.days()).unwrap(), Mark::Done)).collect();
    assert_eq!(
        text(&lay_out(&slots, Layout::Weeks, 80)),
        ["    Jun", "Mon ■", "Tue ■", "Wed ■", "Thu ■", "Fri ■"]
    );
}

#[test]
fn several_a_day_are_days_by_times() {
    let marks = (0..12).map(|n| if n == 5 { Mark::InDoubt } else { Mark::Suppressed });
    let slots = every(date(2026, 6, 18).at(2, 0, 0, 0), SignedDuration::from_hours(6), marks);
    assert_eq!(
        text(&lay_out(&slots, Layout::Days, 80)),
        ["           02  14", "2026-06-18 ◆ ◆ ◆ ◆", "2026-06-19 ◆ ? ◆ ◆", "2026-06-20 ◆ ◆ ◆ ◆"]
    );
    let hours = every(date(2026, 6, 18).at(22, 0, 0, 0), SignedDuration::from_hours(1), [Mark::Done; 5]);
    assert_eq!(
        text(&lay_out(&hours, Layout::Days, 80)),
        ["           00  02  23", "2026-06-18       ■ ■", "2026-06-19 ■ ■ ■"]
    );
}

#[test]
fn what_is_too_wide_for_a_day_is_parts_of_it() {
    let quarter = SignedDuration::from_mins(15);
    let slots = every(date(2026, 6, 18).at(0, 0, 0, 0), quarter, [Mark::Done; 96]);
    let grid = lay_out(&slots, Layout::Days, 77);
    assert_eq!(
        text(&grid),
        [
            format!("{:17}+0h +1h +2h +3h +4h +5h +6h +7h +8h +9h +10h", ""),
            format!("2026-06-18 00:00 {}", "■".repeat(48)),
            format!("2026-06-18 12:00 {}", "■".repeat(48)),
        ]
    );
    let slots = every(date(2026, 6, 18).at(0, 0, 0, 0), SignedDuration::from_secs(1), [Mark::Done; 800]);
    for width in [1, 18, 40, 77, 200] {
        let grid = lay_out(&slots, Layout::Days, width);
        assert_eq!(cells(&grid) + grid.older, 800, "{width}");
    }
}

#[test]
fn an_hour_that_comes_twice_has_two_columns() {
    let tz = TimeZoneDatabase::bundled().get("Europe/Berlin").unwrap();
    let start: Timestamp = "2026-10-23T22:00:00Z".parse().unwrap();
    let schedule = Schedule::parse("hour").unwrap();
    let until = start.checked_add(SignedDuration::from_hours(48)).unwrap();
    let from = start.checked_sub(SignedDuration::from_secs(1)).unwrap();
    let slots: Vec<Row> =
        schedule.ticks(&tz, from, until).map(|tick| (tz.to_datetime(tick.at), Mark::Done)).collect();
    let grid = lay_out(&slots, Layout::Days, 80);
    assert_eq!(
        text(&grid)[1..],
        ["2026-10-24 ■ ■ ■   ■".to_owned() + &" ■".repeat(20), "2026-10-25".to_owned() + &" ■".repeat(25)]
    );
    assert_eq!(cells(&grid), 49);
}

#[test]
fn weeks_and_months_are_rows_of_years() {
    let slots = every(date(2025, 12, 22).at(0, 0, 0, 0), DAY * 7, [Mark::Done, Mark::Missed, Mark::Done]);
    let grid = lay_out(&slots, Layout::Years, 80);
    assert_eq!(text(&grid)[1..], [format!("2025 {}■○", " ".repeat(50)), "2026 ■".to_owned()]);
    assert_eq!(text(&grid)[0], "     Jan Feb Mar Apr  May Jun Jul  Aug Sep  Oct Nov Dec");
    let narrow = lay_out(&slots, Layout::Years, 40);
    assert_eq!(text(&narrow), ["2025-12 ■ ○", "2026-01 ■"]);
    let months: Vec<Row> = (0..14)
        .map(|n: i32| (date(2025, 11, 1).at(0, 0, 0, 0).checked_add(n.months()).unwrap(), Mark::Done))
        .collect();
    assert_eq!(
        text(&lay_out(&months, Layout::Months, 80)),
        [
            "     Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
            "2025                                         ■   ■",
            "2026 ■   ■   ■   ■   ■   ■   ■   ■   ■   ■   ■   ■",
        ]
    );
}

#[test]
fn a_schedule_has_its_layout() {
    for (text, layout) in [
        ("day", Layout::Weeks),
        ("week", Layout::Years),
        ("month", Layout::Months),
        ("hour", Layout::Days),
        ("30s", Layout::Days),
        ("12h", Layout::Days),
        ("0 2 * * *", Layout::Weeks),
        ("0 2 * * 1-5", Layout::Weeks),
        ("0 2,14 * * *", Layout::Days),
        ("0 0 * * 0", Layout::Years),
        ("0 0 1,15 * *", Layout::Years),
        ("0 0 1 1 *", Layout::Months),
    ] {
        assert_eq!(Layout::of(&Schedule::parse(text).unwrap()), layout, "{text}");
    }
}

#[test]
fn nothing_is_a_grid_of_nothing() {
    for layout in [Layout::Weeks, Layout::Days, Layout::Years, Layout::Months] {
        let grid = lay_out(&[], layout, 80);
        assert_eq!((cells(&grid), grid.older, grid.counts.len()), (0, 0, 0));
    }
}

#[test]
fn slots_are_known_by_their_names() {
    let named = |text: &str| Named::by(&Slot::new(text).unwrap());
    assert_eq!(named("2026-06-19"), Some(Named::Date(date(2026, 6, 19))));
    assert_eq!(named("2026-06-19T02:00:00Z"), Some(Named::Moment("2026-06-19T02:00:00Z".parse().unwrap())));
    for other in
        ["v2", "2026-06", "20260619", "2026-06-19T02:00Z", "2026-06-19T02:00:00+02:00", "2026-6-1", "19"]
    {
        assert_eq!(named(other), None, "{other}");
    }
}

#[test]
fn marks_of_conditions() {
    assert_eq!(mark_of(Condition::Done, 1, 0), Mark::Done);
    assert_eq!(mark_of(Condition::Done, 1, 3), Mark::Suppressed);
    assert_eq!(mark_of(Condition::Done, 2, 3), Mark::Resumed);
    assert_eq!(mark_of(Condition::Failed, 2, 3), Mark::Failed);
    for shapes in [Shapes::Ascii, Shapes::Unicode] {
        let mut all: Vec<char> = Mark::ALL.iter().map(|mark| mark.shape(shapes)).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), Mark::ALL.len(), "each has its own");
    }
    assert!(Mark::ALL.iter().all(|mark| mark.shape(Shapes::Ascii).is_ascii()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every slot that is not left out has exactly one cell, in every layout that its schedule has.
    #[test]
    fn every_slot_has_one_cell(
        schedule in proptest::sample::select(&["day", "week", "month", "hour", "15m", "6h", "90s", "0 2 * * 1-5",
            "0 2,3 * * *", "*/5 1-4 * * *", "0 0 1,15 * *", "0 0 * * 0", "0 0 29 2 *"][..]),
        zone in proptest::sample::select(&["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York"][..]),
        second in 1_600_000_000i64..1_900_000_000,
        count in 0usize..900,
        width in 0usize..240,
    ) {
        let tz = TimeZoneDatabase::bundled().get(zone).unwrap();
        let schedule = Schedule::parse(schedule).unwrap();
        let start = Timestamp::from_second(second).unwrap();
        let ticks = schedule.ticks(&tz, start, Timestamp::MAX).take(count);
        let slots: Vec<Row> = ticks.map(|tick| (Named::by(&tick.slot).unwrap().shown(&tz), Mark::Done)).collect();
        let grid = lay_out(&slots, Layout::of(&schedule), width);
        prop_assert_eq!(cells(&grid) + grid.older, slots.len(), "{} {} {}", schedule, zone, start);
        prop_assert!(slots.is_empty() || cells(&grid) > 0);
        let shown: usize = grid.counts.iter().map(|(_, count)| count).sum();
        prop_assert_eq!(shown, cells(&grid));
        if width >= 40 {
            let longest = text(&grid).iter().map(|line| line.chars().count()).max().unwrap_or(0);
            prop_assert!(longest <= width + 3, "{} {} {} {:#?}", schedule, width, longest, text(&grid));
        }
    }
}
