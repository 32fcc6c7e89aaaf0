//! No day is lost: slots that passed without a run are on record with their reason, caught up, or run later.

use crate::support::{Home, Said, until};

/// The command appends its slot: an effect that is counted outside.
const EFFECT: &str = "echo $SEMEL_SLOT >> effects";

fn command(home: &Home, now: &str, args: &[&str], script: &str) -> std::process::Command {
    let mut command = home.semel(["run", "--job", "publish", "--tz", "UTC"]);
    command.env("SEMEL_NOW", now).args(args).args(["--", "sh", "-c", script]);
    command
}

/// `semel run` at this time.
#[track_caller]
fn fire(home: &Home, now: &str, args: &[&str]) -> Said {
    home.launch(&mut command(home, now, args, EFFECT)).end()
}

/// Any other command at this time.
#[track_caller]
fn ask_at(home: &Home, now: &str, args: &[&str]) -> Said {
    home.launch(home.semel(args).env("SEMEL_NOW", now)).end()
}

/// The slots of a state, oldest first.
fn slots(home: &Home, state: &str) -> Vec<String> {
    let said = home.ask(&format!("ls --json --state {state}")).exits(0);
    let mut slots: Vec<String> = said
        .text()
        .lines()
        .map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            entry["work"].as_str().unwrap().split_once('@').unwrap().1.to_owned()
        })
        .collect();
    slots.sort();
    slots
}

const MONDAY: &str = "2026-06-15T05:00:00Z";
const FRIDAY: &str = "2026-06-19T05:00:00Z";

#[test]
fn a_first_install_has_nothing_to_catch_up() {
    for policy in ["latest", "none", "all=30d"] {
        let home = Home::new();
        fire(&home, FRIDAY, &["--every", "day", "--catch-up", policy]).exits(0).silent();
        assert_eq!(home.lines("effects"), ["2026-06-19"], "{policy}");
        assert!(slots(&home, "missed").is_empty(), "{policy}");
    }
}

#[test]
fn only_the_latest_is_run_and_the_others_are_on_record_once() {
    let home = Home::new();
    let daily = ["--every", "day"];
    fire(&home, MONDAY, &daily).exits(0).silent();
    fire(&home, FRIDAY, &daily)
        .exits(0)
        .saying("3 slots of publish were missed, 2026-06-16 to 2026-06-18: nothing fired it; to run what is not done: semel backfill publish --from 2026-06-16 --to 2026-06-18");
    assert_eq!(home.lines("effects"), ["2026-06-15", "2026-06-19"]);
    let missed = ["2026-06-16", "2026-06-17", "2026-06-18"];
    assert_eq!(slots(&home, "missed"), missed);
    // fired again, the same day and the next: nothing more is said
    fire(&home, FRIDAY, &daily).exits(0).silent();
    fire(&home, "2026-06-20T05:00:00Z", &daily).exits(0).silent();
    assert_eq!(slots(&home, "missed"), missed);
    let why = home.ask("why publish@2026-06-17").exits(0).text();
    assert!(why.contains("found missed: it passed without a run, because nothing fired it"), "{why}");
    assert!(why.contains("The next run would: run it for the first time"), "{why}");
    home.assert_whole();
}

#[test]
fn one_that_was_missed_can_be_run_by_hand_or_said_to_be_done() {
    let home = Home::new();
    fire(&home, MONDAY, &["--every", "day"]).exits(0);
    fire(&home, FRIDAY, &["--every", "day"]).exits(0);
    fire(&home, FRIDAY, &["--slot", "2026-06-17", "--tz", "UTC"]).exits(78);
    home.run("--job publish --slot 2026-06-17", EFFECT).exits(0);
    home.launch(&mut home.semel(["resolve", "publish@2026-06-18", "--done", "--because", "by hand"]))
        .end()
        .exits(0);
    assert_eq!(slots(&home, "missed"), ["2026-06-16"]);
    assert_eq!(home.lines("effects"), ["2026-06-15", "2026-06-19", "2026-06-17"]);
}

#[test]
fn all_that_fell_due_within_a_time_are_run_oldest_first_under_one_lease() {
    let home = Home::new();
    let script = "echo $SEMEL_SLOT >> effects; echo $SEMEL_TOKEN >> tokens";
    let all = ["--every", "day", "--catch-up", "all=60h"];
    home.launch(&mut command(&home, MONDAY, &all, script)).end().exits(0).silent();
    home.launch(&mut command(&home, FRIDAY, &all, script))
        .end()
        .exits(0)
        .saying("3 slots of publish were missed");
    assert_eq!(home.lines("effects"), ["2026-06-15", "2026-06-17", "2026-06-18", "2026-06-19"]);
    assert_eq!(home.ranks("tokens"), [1, 2, 2, 2], "one lease for all of a row");
    assert_eq!(slots(&home, "missed"), ["2026-06-16"], "older than what is caught up");
    let lease = home.ask("lease show publish").exits(0).text();
    assert!(lease.contains("free"), "{lease}");
    home.assert_whole();
}

#[test]
fn a_row_stops_at_the_first_failure_unless_told() {
    let script = "echo $SEMEL_SLOT >> effects; test $SEMEL_SLOT != 2026-06-17";
    let all = ["--every", "day", "--catch-up", "all=7d", "--max-failures", "5"];
    let home = Home::new();
    home.launch(&mut command(&home, MONDAY, &all, script)).end().exits(0);
    home.launch(&mut command(&home, FRIDAY, &all, script)).end().exits(1);
    assert_eq!(home.lines("effects"), ["2026-06-15", "2026-06-16", "2026-06-17"]);
    let lease = home.ask("lease show publish").exits(0).text();
    assert!(lease.contains("free"), "{lease}");
    let on = [&all[..], &["--keep-going"]].concat();
    home.launch(&mut command(&home, FRIDAY, &on, script)).end().exits(1);
    let effects = home.lines("effects");
    assert_eq!(effects[3..], ["2026-06-17", "2026-06-18", "2026-06-19"]);
    assert_eq!(slots(&home, "failed"), ["2026-06-17"]);
    assert!(slots(&home, "missed").is_empty());
    fire(&home, FRIDAY, &["--every", "day", "--keep-going"]).exits(78).saying("say --catch-up all=DUR");
}

#[test]
fn while_a_row_runs_nobody_gets_in_between() {
    let home = Home::new();
    let all = ["--every", "day", "--catch-up", "all=7d"];
    let script = "echo $SEMEL_SLOT >> effects; until [ -e go-$SEMEL_SLOT ]; do sleep 0.01; done";
    home.write("go-2026-06-15", "");
    home.launch(&mut command(&home, MONDAY, &all, script)).end().exits(0);
    let row = home.launch(&mut command(&home, FRIDAY, &all, script));
    for (n, day) in (2..).zip(["2026-06-16", "2026-06-17", "2026-06-18", "2026-06-19"]) {
        home.wait_lines("effects", n);
        // this one would run the last of them
        fire(&home, FRIDAY, &["--every", "day"]).exits(0);
        home.write(&format!("go-{day}"), "");
    }
    row.end().exits(0);
    assert_eq!(home.lines("effects"), ["2026-06-15", "2026-06-16", "2026-06-17", "2026-06-18", "2026-06-19"]);
}

/// Also where the command that hears the signal ends well.
#[test]
fn a_row_that_is_asked_to_end_begins_no_other_slot() {
    let home = Home::new();
    let all = ["--every", "day", "--catch-up", "all=7d"];
    home.launch(&mut command(&home, MONDAY, &all, EFFECT)).end().exits(0);
    let script = "trap 'exit 0' TERM; echo $SEMEL_SLOT >> effects; while :; do sleep 0.02; done";
    let row = home.launch(&mut command(&home, FRIDAY, &all, script));
    home.wait_lines("effects", 2);
    row.signal(libc::SIGTERM);
    row.end().exits(143).saying("publish@2026-06-17 not run: interrupted by signal 15");
    assert_eq!(home.lines("effects"), ["2026-06-15", "2026-06-16"]);
    assert_eq!(slots(&home, "done"), ["2026-06-15", "2026-06-16"]);
    let lease = home.ask("lease show publish").exits(0).text();
    assert!(lease.contains("free"), "{lease}");
    home.assert_whole();
}

#[test]
fn a_slot_that_its_row_did_not_come_to_was_not_left_by_its_trigger() {
    let home = Home::new();
    let all = ["--every", "day", "--catch-up", "all=7d"];
    home.launch(&mut command(&home, MONDAY, &all, EFFECT)).end().exits(0);
    home.launch(&mut command(&home, FRIDAY, &all, "exit 1")).end().exits(1);
    fire(&home, "2026-06-20T05:00:00Z", &["--every", "day"]).exits(0);
    let text = home.ask("ls --json --state missed").exits(0).text();
    let entries = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut reasons: Vec<_> = entries
        .map(|entry| {
            let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            (word(&entry["work"]), word(&entry["entry"]["reason"]))
        })
        .collect();
    reasons.sort();
    let reasons: Vec<_> = reasons.iter().map(|(work, reason)| (work.as_str(), reason.as_str())).collect();
    assert_eq!(
        reasons,
        [
            ("publish@2026-06-17", "no_trigger"),
            ("publish@2026-06-18", "no_trigger"),
            ("publish@2026-06-19", "refused")
        ]
    );
}

/// Killed in the middle of a row: the next one goes on with only what is unfinished.
#[test]
fn a_row_that_is_killed_is_resumed() {
    let home = Home::new();
    let all = ["--every", "day", "--catch-up", "all=7d"];
    let quick = "echo $SEMEL_SLOT >> effects";
    home.launch(&mut command(&home, MONDAY, &all, quick)).end().exits(0);
    let script = "echo $SEMEL_SLOT >> effects; [ $SEMEL_SLOT != 2026-06-17 ] || exec sleep 600";
    let row = home.launch(&mut command(&home, FRIDAY, &all, script));
    home.wait_lines("effects", 3);
    row.kill_9();
    until("the row's processes are gone", crate::support::SOON, || {
        home.launch(&mut command(&home, FRIDAY, &all, quick)).end().code == 0
            && home.lines("effects").last().is_some_and(|last| last == "2026-06-19")
    });
    let effects = home.lines("effects");
    assert_eq!(
        effects,
        ["2026-06-15", "2026-06-16", "2026-06-17", "2026-06-17", "2026-06-18", "2026-06-19"],
        "only the one that was under way came again"
    );
    home.assert_whole();
}

/// Killed while it puts what was missed on record: nothing is recorded twice, and nothing is left out.
#[test]
fn a_crash_between_two_records_loses_no_slot() {
    for place in ["calendar.account.before", "calendar.account.after", "run.claim.before", "run.claim.after"]
    {
        let home = Home::new();
        fire(&home, MONDAY, &["--every", "day"]).exits(0);
        home.crash(place, &mut command(&home, FRIDAY, &["--every", "day"], EFFECT));
        until("it is run", crate::support::SOON, || {
            fire(&home, FRIDAY, &["--every", "day"]).exits(0);
            home.lines("effects").len() == 2
        });
        assert_eq!(home.lines("effects"), ["2026-06-15", "2026-06-19"], "{place}");
        assert_eq!(slots(&home, "missed"), ["2026-06-16", "2026-06-17", "2026-06-18"], "{place}");
        home.assert_whole();
    }
}

#[test]
fn none_leaves_a_slot_whose_grace_has_passed() {
    let home = Home::new();
    let line = ["--every", "0 2 * * *", "--catch-up", "none"];
    fire(&home, "2026-06-15T02:30:00Z", &line).exits(0).silent();
    fire(&home, "2026-06-16T03:30:00Z", &line)
        .exits(75)
        .saying("publish@2026-06-16T02:00:00Z not run: it was due at 2026-06-16 02:00:00 +00:00, and its grace of 60m00s (--catch-up none) after that has passed");
    assert_eq!(slots(&home, "missed"), ["2026-06-16T02:00:00Z"]);
    let why = home.ask("why publish@2026-06-16T02:00:00Z").exits(0).text();
    assert!(why.contains("because it was fired too late"), "{why}");
    // with a grace of its own it is in time
    fire(&home, "2026-06-17T03:30:00Z", &[&line[..], &["--grace", "2h"]].concat()).exits(0).silent();
    // a day lasts until the next one
    fire(&home, "2026-06-17T23:30:00Z", &["--every", "day", "--with", "d=1", "--catch-up", "none"])
        .exits(0)
        .silent();
    assert_eq!(slots(&home, "missed"), ["2026-06-16T02:00:00Z"]);
}

#[test]
fn why_a_slot_was_missed_is_known() {
    let home = Home::new();
    let line = ["--every", "hour", "--resource", "site"];
    fire(&home, "2026-06-15T01:10:00Z", &line).exits(0);
    // busy at 2
    let holder = home.start("--job other --once --resource site", "until [ -e free ]; do sleep 0.01; done");
    until("it holds the site", crate::support::SOON, || home.ask("lease show site").text().contains("other"));
    fire(&home, "2026-06-15T02:10:00Z", &line).exits(0);
    home.write("free", "");
    holder.end().exits(0);
    // the store is down at 3
    let mut down = command(&home, "2026-06-15T03:10:00Z", &line, EFFECT);
    let database = home.database();
    let aside = database.with_extension("aside");
    std::fs::rename(&database, &aside).unwrap();
    std::fs::create_dir(&database).unwrap();
    let said = home.launch(&mut down).end();
    assert!([69, 78].contains(&said.code), "{said:?}");
    std::fs::remove_dir(&database).unwrap();
    std::fs::rename(&aside, &database).unwrap();
    // the command is not there at 4
    let mut gone = home.semel(["run", "--job", "publish", "--tz", "UTC"]);
    gone.env("SEMEL_NOW", "2026-06-15T04:10:00Z").args(line).args(["--", "./no-such-program"]);
    home.launch(&mut gone).end().exits(127);
    // nobody comes at 5
    fire(&home, "2026-06-15T06:10:00Z", &line).exits(0).saying("4 slots of publish were missed");
    let reason = |hour: u32| {
        let text = home.ask("ls --json --state missed").exits(0).text();
        let of = format!("publish@2026-06-15T0{hour}:00:00Z");
        let entries = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let entry = entries.into_iter().find(|entry| entry["work"] == of.as_str()).unwrap();
        entry["entry"]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(2), "busy");
    assert!(["store_down", "refused"].contains(&reason(3).as_str()));
    assert_eq!(reason(4), "refused");
    assert_eq!(reason(5), "no_trigger");
    assert_eq!(home.lines("effects"), ["2026-06-15T01:00:00Z", "2026-06-15T06:00:00Z"]);
}

/// A clock that was years ahead for one run hides nothing once it is right again.
#[test]
fn a_clock_that_was_wrong_hides_no_slot() {
    let home = Home::new();
    let daily = ["--every", "day"];
    fire(&home, MONDAY, &daily).exits(0);
    fire(&home, "2026-07-15T05:00:00Z", &daily).exits(0);
    fire(&home, "2026-06-16T05:00:00Z", &daily).exits(0);
    fire(&home, FRIDAY, &daily).exits(0);
    let missed = slots(&home, "missed");
    assert!(
        missed.contains(&"2026-06-17".to_owned()) && missed.contains(&"2026-06-18".to_owned()),
        "{missed:?}"
    );
    assert!(!missed.contains(&"2026-06-16".to_owned()), "{missed:?}");
    assert_eq!(home.lines("effects"), ["2026-06-15", "2026-07-15", "2026-06-16", "2026-06-19"]);
}

#[test]
fn parameters_and_schedules_have_calendars_of_their_own() {
    let home = Home::new();
    fire(&home, MONDAY, &["--every", "day", "--with", "site=a"]).exits(0);
    // another parameter, and another schedule, were never asked for before
    fire(&home, FRIDAY, &["--every", "day", "--with", "site=b"]).exits(0).silent();
    fire(&home, FRIDAY, &["--every", "hour", "--with", "site=a"]).exits(0).silent();
    assert!(slots(&home, "missed").is_empty());
    fire(&home, "2026-06-20T05:00:00Z", &["--every", "day", "--with", "site=b"]).exits(0).silent();
}

/// A job of every second that slept for a year: the newest slots one by one, the rest as one stretch, soon.
#[test]
fn a_long_sleep_of_a_quick_job_is_bounded() {
    let home = Home::new();
    fire(&home, "2025-06-15T00:00:00Z", &["--every", "30s"]).exits(0);
    fire(&home, "2026-06-15T00:00:00Z", &["--every", "30s"])
        .exits(0)
        .saying("1000 slots of publish were missed");
    assert_eq!(home.lines("effects").len(), 2);
}

#[test]
fn backfill_runs_what_is_not_done_between_two_times() {
    let home = Home::new();
    home.write(
        "semel.toml",
        "[jobs.publish]\ncommand = \"echo $SEMEL_SLOT >> effects\"\nevery = \"day\"\ntz = \"UTC\"\n",
    );
    let backfill = |args: &[&str]| ask_at(&home, FRIDAY, &[&["backfill", "publish"], args].concat());
    ask_at(&home, "2026-06-16T05:00:00Z", &["run", "publish"]).exits(0);
    let said =
        backfill(&["--from", "2026-06-14", "--to", "2026-06-17", "--dry-run"]).exits(0).silent().text();
    let would: Vec<Vec<&str>> = said.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        would,
        [
            vec!["run", "publish@2026-06-14", "not", "on", "record"],
            vec!["run", "publish@2026-06-15", "not", "on", "record"],
            vec!["skip", "publish@2026-06-16", "done"],
            vec!["run", "publish@2026-06-17", "not", "on", "record"],
        ]
    );
    assert_eq!(home.lines("effects"), ["2026-06-16"]);
    backfill(&["--from", "2026-06-14", "--to", "2026-06-17"]).exits(0).silent();
    assert_eq!(home.lines("effects"), ["2026-06-16", "2026-06-14", "2026-06-15", "2026-06-17"]);
    backfill(&["--from", "2026-06-14", "--to", "2026-06-17"]).exits(0).silent();
    assert_eq!(home.lines("effects").len(), 4);
    // what is to come is not run before it is due
    backfill(&["--from", "2026-06-18", "--to", "2026-06-30"]).exits(0);
    assert_eq!(home.lines("effects")[4..], ["2026-06-18", "2026-06-19"]);
    for (args, why) in [
        (&["--from", "yesterday"][..], "--from \"yesterday\" is no time: write a date"),
        (&["--from", "2026-06-18", "--to", "2026-06-01"], "lies before --from"),
        (&["--from", "2027-01-01"], "lies in the future"),
    ] {
        backfill(args).exits(78).saying(why);
    }
    backfill(&["--from", "2020-01-01"]).exits(65).saying("more than 1000 slots");
    ask_at(&home, FRIDAY, &["backfill", "--job", "x", "--once", "--from", "2026-06-01", "--", "true"])
        .exits(78)
        .saying("backfill needs a job with a schedule");
}

#[test]
fn backfill_stops_at_a_failure_and_leaves_what_needs_a_person() {
    let home = Home::new();
    home.write(
        "semel.toml",
        "[jobs.publish]\ncommand = \"echo $SEMEL_SLOT >> effects; test $SEMEL_SLOT != 2026-06-16\"\nevery = \"day\"\ntz = \"UTC\"\nmax-failures = 2\n",
    );
    let backfill = |args: &[&str]| {
        let all = [&["backfill", "publish", "--from", "2026-06-15", "--to", "2026-06-18"], args].concat();
        ask_at(&home, FRIDAY, &all)
    };
    backfill(&[]).exits(1).saying("backfill stopped at slot 2026-06-16: 2 more were not run");
    assert_eq!(home.lines("effects"), ["2026-06-15", "2026-06-16"]);
    backfill(&["--keep-going"]).exits(1);
    assert_eq!(home.lines("effects")[2..], ["2026-06-16", "2026-06-17", "2026-06-18"]);
    backfill(&[]).exits(79).saying("1 of these slots need a person first");
    assert_eq!(home.lines("effects").len(), 5);
}
