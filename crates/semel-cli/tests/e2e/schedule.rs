//! Slots from schedules: one effect per slot, however late, often or by hand it is fired.
//!
//! The time is told to the binary (`SEMEL_NOW`, known only to a build with `crash-points`): clocks of machines are
//! not ours to set.

use crate::support::Home;

/// The command appends its slot: an effect that is counted outside.
const EFFECT: &str = "echo $SEMEL_SLOT >> effects";

/// Every argument on its own: schedules have spaces in them.
#[track_caller]
fn fire(home: &Home, now: Option<&str>, args: &[&str]) -> crate::support::Said {
    let mut command = home.semel(["run", "--job", "publish"]);
    if let Some(now) = now {
        command.env("SEMEL_NOW", now);
    }
    home.launch(command.args(args).args(["--", "sh", "-c", EFFECT])).end()
}

/// The machine's own clock and zone.
#[test]
fn a_day_is_the_date_of_today() {
    let home = Home::new();
    let today = || jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date().to_string();
    let before = today();
    fire(&home, None, &["--every", "day"]).exits(0).silent();
    let after = today();
    let found = home.lines("effects");
    assert!(found == [before] || found == [after], "{found:?}");
    // the machine's zone is TZ's, and --tz goes before it
    let day_of = |tz: &str| {
        let mut command =
            home.semel(["run", "--job", "zoned", "--every", "day", "--", "sh", "-c", "echo $SEMEL_SLOT"]);
        home.launch(command.env("TZ", tz)).end().exits(0).text()
    };
    assert_ne!(day_of("Pacific/Kiritimati"), day_of("Pacific/Pago_Pago"), "they are 25 hours apart");
}

#[test]
fn schedules_that_cannot_be() {
    let home = Home::new();
    home.assert_whole();
    let cases: &[(&[&str], &str)] = &[
        (&["--every", ""], "--every \"\" is empty"),
        (&["--every", "daily"], "--every \"daily\" is no schedule: write day"),
        (&["--every", "7m"], "use 6m or 8m"),
        (&["--every", "48h"], "write day, week or month"),
        (&["--every", "0 2 * *"], "has 4 fields"),
        (&["--every", "0 2 31 2 *"], "never comes"),
        (&["--every", "61 * * * *"], "minute field"),
        (&["--every", "day", "--tz", "Mars/Olympus"], "--tz \"Mars/Olympus\" is no time zone"),
        (&["--every", "15m", "--tz", "Mars/Olympus"], "is no time zone"),
        (&["--every", "day", "--tz", ""], "is no time zone"),
        (&["--every", "day", "--tz", "../../etc/passwd"], "is no time zone"),
        (&["--every", "day", "--tz", "/etc/localtime"], "is no time zone"),
        (&["--every", "day", "--max-late", "soon"], "--max-late \"soon\" is not a length of time"),
        (&["--every", "day", "--scheduled-for", ""], "--scheduled-for \"\" is empty"),
        (&["--every", "day", "--scheduled-for", "2026-06-19"], "is no scheduled time"),
        (&["--every", "day", "--scheduled-for", "9000-01-01T00:00:00Z"], "lies in the future"),
        (&["--every", "day", "--slot", "x"], "--every and --slot both name the slot"),
        (&["--every", "day", "--key", "x"], "--every and --key"),
        (&["--every", "day", "--once"], "--once goes alone"),
        (&["--every", "day", "--always"], "--always goes alone"),
        (&["--once", "--tz", "UTC"], "--tz goes with a schedule: say --every"),
        (&["--slot", "x", "--max-late", "1h"], "--max-late goes with a schedule"),
        (&["--once", "--scheduled-for", "2026-06-19T02:00:00Z"], "--scheduled-for goes with a schedule"),
        (&[], "--every SCHEDULE"),
    ];
    for (args, why) in cases {
        let said = fire(&home, None, args);
        assert_eq!(said.code, 78, "{args:?}: {}", said.err);
        assert!(said.err.contains(why), "{args:?}: {why:?} is not in {}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    }
    // a zone that the system names and nobody knows; an interval has no need of it
    let with_tz = |every: &str| {
        let mut command = home.semel(["run", "--job", "publish", "--every", every, "--", "sh", "-c", EFFECT]);
        home.launch(command.env("TZ", "Mars/Olympus")).end()
    };
    with_tz("day")
        .exits(78)
        .saying("the system's time zone is unknown: TZ=Mars/Olympus names none; say it with --tz");
    assert!(!home.path("effects").exists());
    with_tz("15m").exits(0).silent();
    assert_eq!(home.lines("effects").len(), 1);
    home.assert_whole();
}

/// A machine without zones of its own (a bare container) has those that are built in.
#[test]
fn a_zone_is_known_without_the_machines_own() {
    let home = Home::new();
    std::fs::create_dir(home.path("none")).unwrap();
    let mut command =
        home.semel(["run", "--job", "a", "--every", "day", "--tz", "Europe/Berlin", "--", "true"]);
    home.launch(command.env("TZDIR", home.path("none"))).end().exits(0).silent();
}

#[cfg(feature = "crash-points")]
mod told {
    use super::{EFFECT, fire};
    use crate::support::Home;

    const BERLIN: &[&str] = &["--every", "day", "--tz", "Europe/Berlin"];

    #[test]
    fn twice_in_one_slot_is_once_and_the_next_day_is_another() {
        let home = Home::new();
        // cron at 2:00, a retry, a person in the afternoon, the last second of the day
        for now in [
            "2026-06-19T02:00:01+02:00",
            "2026-06-19T02:05:00+02:00",
            "2026-06-19T15:00:00+02:00",
            "2026-06-19T23:59:59+02:00",
        ] {
            fire(&home, Some(now), BERLIN).exits(0).silent();
        }
        assert_eq!(home.lines("effects"), ["2026-06-19"]);
        fire(&home, Some("2026-06-20T00:00:00+02:00"), BERLIN).exits(0).silent();
        assert_eq!(home.lines("effects"), ["2026-06-19", "2026-06-20"]);
        assert_eq!(home.entry("publish@2026-06-19")["state"], "done");
        // one that was missed is named by hand, and is the same work as the one that was not
        for slot in ["2026-06-18", "2026-06-19"] {
            fire(&home, None, &["--slot", slot]).exits(0).silent();
        }
        assert_eq!(home.lines("effects"), ["2026-06-19", "2026-06-20", "2026-06-18"]);
        // parameters tell works of one slot apart
        for _ in 0..2 {
            let args = ["--every", "day", "--tz", "Europe/Berlin", "--with", "site=blog"];
            fire(&home, Some("2026-06-20T03:00:00+02:00"), &args).exits(0).silent();
        }
        assert_eq!(home.lines("effects").len(), 4);
    }

    #[test]
    fn a_clock_that_is_set_back_repeats_nothing() {
        let home = Home::new();
        for now in
            ["2026-06-18T21:50:00Z", "2026-06-18T22:10:00Z", "2026-06-18T21:55:00Z", "2026-06-18T22:15:00Z"]
        {
            fire(&home, Some(now), BERLIN).exits(0).silent();
        }
        assert_eq!(home.lines("effects"), ["2026-06-18", "2026-06-19"]);
    }

    /// Every quarter of an hour of the two days on which Berlin changes its clocks: a daily line once a day, an hourly
    /// one every real hour. The control is what people write without Semel: a mark per local hour.
    #[test]
    fn nights_on_which_the_clocks_change() {
        for (day, hours) in [("2026-03-29", 23), ("2026-10-25", 25)] {
            let home = Home::new();
            let tz = jiff::tz::TimeZone::get("Europe/Berlin").unwrap();
            let start = day.parse::<jiff::civil::Date>().unwrap().to_zoned(tz.clone()).unwrap().timestamp();
            let mut marks = std::collections::BTreeSet::new();
            for quarter in 0..hours * 4 {
                let now = start + jiff::SignedDuration::from_mins(quarter * 15 + 1);
                marks.insert(now.to_zoned(tz.clone()).strftime("%Y-%m-%d-%H").to_string());
                // the whole day for the daily one is 100 processes: the small hours are where it matters
                if quarter < 24 {
                    let args = ["--every", "30 2 * * *", "--tz", "Europe/Berlin"];
                    fire(&home, Some(&now.to_string()), &args).exits(0).silent();
                }
            }
            let lines = home.lines("effects");
            let today = lines.iter().filter(|slot| slot.starts_with(day)).count();
            assert_eq!(
                (today, lines.len()),
                (1, 2),
                "that day's, and the one that was due before: {lines:?}"
            );
            let naive = i64::try_from(marks.len()).unwrap();
            assert_eq!(naive, hours.min(24), "the control loses the hour that comes twice");
            let home = Home::new();
            for hour in 0..6 {
                let now = start + jiff::SignedDuration::from_mins(hour * 60 + 1);
                let args = ["--every", "0 * * * *", "--tz", "Europe/Berlin"];
                fire(&home, Some(&now.to_string()), &args).exits(0).silent();
            }
            assert_eq!(home.lines("effects").len(), 6, "every real hour");
        }
    }

    #[test]
    fn a_slot_that_is_too_long_past_is_refused_aloud() {
        let home = Home::new();
        let late = ["--every", "0 2 * * *", "--tz", "UTC", "--max-late", "2h"];
        let said = fire(&home, Some("2026-06-19T04:00:01Z"), &late).exits(75);
        let said =
            said.saying("publish@2026-06-19T02:00:00Z not run: it was due at 2026-06-19 02:00:00 +00:00");
        let said = said.saying("--max-late 2h").saying("say --slot 2026-06-19T02:00:00Z instead of --every");
        assert_eq!(said.err.lines().count(), 1);
        assert!(!home.path("effects").exists());
        let why = home.ask("why publish@2026-06-19T02:00:00Z").exits(0).text();
        assert!(why.contains("because it was fired too late"), "{why}");
        // as JSON
        let mut json = late.to_vec();
        json.push("--json");
        let json = fire(&home, Some("2026-06-19T04:00:01Z"), &json).exits(75).json();
        assert_eq!((&json["outcome"], &json["slot"]), (&"too_late".into(), &"2026-06-19T02:00:00Z".into()));
        // in time: it runs; done: it is skipped in silence, however late
        fire(&home, Some("2026-06-19T03:59:00Z"), &late).exits(0).silent();
        fire(&home, Some("2026-06-19T23:00:00Z"), &late).exits(0).silent();
        // a late one by hand
        fire(&home, Some("2026-06-20T23:00:00Z"), &late).exits(75);
        fire(&home, None, &["--slot", "2026-06-20T02:00:00Z"]).exits(0).silent();
        fire(&home, Some("2026-06-20T23:00:00Z"), &late).exits(0).silent();
        assert_eq!(home.lines("effects"), ["2026-06-19T02:00:00Z", "2026-06-20T02:00:00Z"]);
    }

    /// `github.event.schedule` is the expression; the run comes minutes or hours late, and a re-run later still. The
    /// control is the slot that people make of the date at hand: the late run takes the next day's.
    #[test]
    fn late_ticks_of_github_actions() {
        let home = Home::new();
        let args = ["--every", "50 23 * * *", "--tz", "UTC"];
        for now in
            ["2026-06-19T00:14:09Z", "2026-06-19T01:30:00Z", "2026-06-19T23:58:41Z", "2026-06-20T03:00:00Z"]
        {
            fire(&home, Some(now), &args).exits(0).silent();
        }
        assert_eq!(home.lines("effects"), ["2026-06-18T23:50:00Z", "2026-06-19T23:50:00Z"]);
        let control = Home::new();
        for date in ["2026-06-19", "2026-06-19"] {
            // the tick of the 18th, late, and that of the 19th, in time: one of the two is lost
            fire(&control, None, &["--slot", date]).exits(0).silent();
        }
        assert_eq!(control.lines("effects").len(), 1);
    }

    /// The annotation `batch.kubernetes.io/cronjob-scheduled-timestamp`, and the Job's name, for a Pod that is started
    /// three times, the last time after midnight.
    #[test]
    fn the_scheduled_time_of_a_kubernetes_job() {
        let home = Home::new();
        for (now, meant) in [
            ("2026-06-18T23:55:10+02:00", "2026-06-18T23:55:00+02:00"),
            ("2026-06-19T00:20:00+02:00", "2026-06-18T21:55:00Z"),
            ("2026-06-19T03:00:00+02:00", "publish-29696995"),
        ] {
            let mut args = BERLIN.to_vec();
            args.extend(["--scheduled-for", meant]);
            fire(&home, Some(now), &args).exits(0).silent();
        }
        assert_eq!(home.lines("effects"), ["2026-06-18"]);
        // a clock that is a little ahead of ours is no reason not to run
        let mut args = BERLIN.to_vec();
        args.extend(["--scheduled-for", "2026-06-19T23:55:00+02:00", "--max-late", "1h"]);
        fire(&home, Some("2026-06-19T23:52:00+02:00"), &args)
            .exits(75)
            .saying("it was due at 2026-06-19 00:00:00 +02:00");
        args.truncate(args.len() - 2);
        fire(&home, Some("2026-06-19T23:52:00+02:00"), &args).exits(0).silent();
        assert_eq!(home.lines("effects"), ["2026-06-18", "2026-06-19"]);
        fire(&home, Some("2026-06-19T23:00:00+02:00"), &args).exits(78).saying("lies in the future");
    }

    #[test]
    fn with_v_the_slot_is_told() {
        let home = Home::new();
        let mut command = home.semel(["run", "-v", "--job", "a", "--every", "15m", "--", "sh", "-c", EFFECT]);
        let said = home.launch(command.env("SEMEL_NOW", "2026-06-19T02:14:59.9Z")).end().exits(0);
        said.saying("slot 2026-06-19T02:00:00Z fell due at 2026-06-19 02:00:00 +00:00");
        assert_eq!(home.lines("effects"), ["2026-06-19T02:00:00Z"]);
    }
}
