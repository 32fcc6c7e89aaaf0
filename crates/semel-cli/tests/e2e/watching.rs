//! Loud on anomaly only: who is told what, once; what a check finds; nothing told is lost in a crash.

use std::process::Command;

use crate::support::{Home, SOON, Said, until};
use serde_json::Value;

/// A lane that appends each notice to a file.
const LANE: &str = "[notify.desk]\ncommand = \"cat >> told\"\n";

fn at(home: &Home, now: &str, args: &[&str]) -> Command {
    let mut command = home.semel(args);
    command.env("SEMEL_NOW", now);
    command
}

#[track_caller]
fn ask(home: &Home, now: &str, args: &[&str]) -> Said {
    home.launch(&mut at(home, now, args)).end()
}

/// What was told, in its order: event, anomaly, work.
fn told(home: &Home) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let lines = home.lines("told");
    let notices = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    notices.map(|notice| (text(&notice["event"]), text(&notice["anomaly"]), text(&notice["work"]))).collect()
}

fn tuple(event: &str, anomaly: &str, work: &str) -> (String, String, String) {
    (event.to_owned(), anomaly.to_owned(), work.to_owned())
}

fn day(n: u32) -> String {
    format!("2026-06-{n:02}T05:00:00Z")
}

fn publish(home: &Home, script: &str, more: &str) {
    let command = toml_text(script);
    home.write(
        "semel.toml",
        format!("{LANE}[jobs.publish]\ncommand = {command}\nevery = \"day\"\ntz = \"UTC\"\nnotify = [\"desk\"]\n{more}"),
    );
}

fn toml_text(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

#[test]
fn first_of_a_kind_then_silence_then_one_recovery() {
    let home = Home::new();
    publish(&home, "test -e ok", "max-failures = 0\n");
    for n in 1..=4 {
        ask(&home, &day(n), &["run", "publish"]).exits(1);
    }
    assert_eq!(told(&home), [tuple("raised", "failed", "publish@2026-06-01")]);
    home.write("ok", "");
    ask(&home, &day(5), &["run", "publish"]).exits(0).silent();
    ask(&home, &day(6), &["run", "publish"]).exits(0).silent();
    assert_eq!(told(&home)[1..], [tuple("recovered", "failed", "publish@2026-06-05")]);
    // an alarm in which nothing is wrong any more may go, and is not missed
    ask(&home, &day(6), &["gc"]).exits(0);
    std::fs::remove_file(home.path("ok")).unwrap();
    ask(&home, &day(7), &["run", "publish"]).exits(1);
    assert_eq!(told(&home)[2..], [tuple("raised", "failed", "publish@2026-06-07")]);
    home.assert_whole();
}

#[test]
fn what_needs_a_person_is_told_for_each_work_and_closed_by_their_word() {
    let home = Home::new();
    publish(&home, "exit 3", "max-failures = 2\n");
    for n in [1, 1, 1, 2, 2] {
        ask(&home, &day(n), &["run", "publish"]);
    }
    assert_eq!(
        told(&home),
        [
            tuple("raised", "failed", "publish@2026-06-01"),
            tuple("raised", "quarantined", "publish@2026-06-01"),
            tuple("raised", "quarantined", "publish@2026-06-02"),
        ]
    );
    let resolve = ["resolve", "publish@2026-06-01", "--done", "--because", "by hand"];
    ask(&home, &day(2), &resolve).exits(0);
    assert_eq!(told(&home).len(), 3, "who has judged it knows");
    // quarantined again, it is news again
    let reopen = ["resolve", "publish@2026-06-01", "--retry", "--because", "once more"];
    ask(&home, &day(2), &reopen).exits(0);
    let again = |home: &Home| ask(home, &day(1), &["run", "publish"]);
    again(&home);
    again(&home);
    assert_eq!(told(&home)[3..], [tuple("raised", "quarantined", "publish@2026-06-01")]);
}

#[test]
fn missed_and_recovered_in_one_run_is_one_message() {
    let home = Home::new();
    publish(&home, "true", "");
    ask(&home, &day(1), &["run", "publish"]).exits(0);
    ask(&home, &day(4), &["run", "publish"]).exits(0).saying("2 slots of publish were missed");
    let lines = home.lines("told");
    assert_eq!(lines.len(), 1, "{lines:?}");
    let notice: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((notice["anomaly"].as_str(), notice["count"].as_u64()), (Some("missed"), Some(2)));
    assert!(notice["recovered_ms"].is_u64(), "{notice}");
}

/// A lane that does not deliver changes nothing of the run, is shown, and is told again.
#[test]
fn a_broken_lane_never_fails_the_job_but_is_shown() {
    let home = Home::new();
    home.write(
        "semel.toml",
        "[notify.desk]\ncommand = \"cat > last; [ -e works ] && cat last >> told\"\n[jobs.publish]\ncommand = \"test -e ok\"\nevery = \"day\"\ntz = \"UTC\"\nnotify = [\"desk\"]\nmax-failures = 0\n",
    );
    ask(&home, &day(1), &["run", "publish"]).exits(1).saying("lane desk did not deliver");
    ask(&home, "2026-06-01T05:00:10Z", &["run", "publish"]).exits(1);
    for minutes in [2, 5, 10, 20] {
        let now = format!("2026-06-01T05:{minutes:02}:00Z");
        ask(&home, &now, &["check", "publish"]);
    }
    ask(&home, "2026-06-01T05:40:00Z", &["check"]).exits(1).saying("lane desk does not deliver");
    assert!(home.ask("status").exits(0).text().contains("Lanes that do not deliver\n  desk: "));
    assert!(told(&home).is_empty());
    home.write("works", "");
    ask(&home, "2026-06-01T07:00:00Z", &["check"]).exits(0).silent();
    assert_eq!(told(&home), [tuple("raised", "failed", "publish@2026-06-01")]);
    home.write("ok", "");
    ask(&home, "2026-06-01T07:10:00Z", &["run", "publish"]).exits(0);
    assert_eq!(told(&home)[1..], [tuple("recovered", "failed", "publish@2026-06-01")]);
}

/// Killed between the outcome and its notice, and between the notice and its record: nothing is lost, and what is told
/// twice has one id. The control tells from memory after the run: it loses the notice.
#[test]
fn a_notice_survives_a_crash_at_any_place() {
    for (place, most) in [("run.settle.after", 1), ("notice.told", 2)] {
        let home = Home::new();
        publish(&home, "exit 3", "max-failures = 0\n");
        home.crash(place, &mut at(&home, &day(1), &["run", "publish"]));
        // the next run of the job, or a check, tells it
        ask(&home, "2026-06-01T05:01:00Z", &["check", "publish"]);
        ask(&home, &day(2), &["run", "publish"]).exits(3);
        let found = told(&home);
        assert!((1..=most).contains(&found.len()), "{place}: {found:?}");
        assert!(
            found.iter().all(|notice| *notice == tuple("raised", "failed", "publish@2026-06-01")),
            "{place}: {found:?}"
        );
        let ids: std::collections::BTreeSet<String> = home
            .lines("told")
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].to_string())
            .collect();
        assert_eq!(ids.len(), 1, "{place}");
    }
    let home = Home::new();
    home.launch(&mut home.script("sh -c 'kill -9 $PPID; exit 3' || echo failed >> told")).end();
    assert!(home.lines("told").is_empty(), "told from memory, it is lost");
}

#[test]
fn lost_runs_are_told() {
    let home = Home::new();
    home.write(
        "semel.toml",
        format!("{LANE}[jobs.sync]\ncommand = \"echo x >> began; [ -e ok ] || exec sleep 600\"\nonce = true\nnotify = [\"desk\"]\n"),
    );
    let run = home.launch(&mut home.semel(["run", "sync"]));
    home.wait_lines("began", 1);
    run.kill_9();
    home.write("ok", "");
    until("it is taken over", SOON, || {
        home.ask("run sync");
        home.lines("began").len() == 2
    });
    let found = told(&home);
    assert_eq!(found, [tuple("raised", "lost", "sync")]);
    let notice: Value = serde_json::from_str(&home.lines("told")[0]).unwrap();
    assert!(notice["recovered_ms"].is_u64(), "one message tells both: {notice}");
}

#[test]
fn a_check_finds_what_is_overdue_and_tells_it_once() {
    let home = Home::new();
    publish(&home, "true", "grace = \"6h\"\n");
    // never run: watched from the first check on
    ask(&home, "2026-06-01T05:00:00Z", &["check"]).exits(0).silent();
    ask(&home, "2026-06-02T05:00:00Z", &["check"])
        .exits(1)
        .saying("publish@2026-06-01 is overdue: it was missed: nothing fired it");
    ask(&home, "2026-06-02T05:15:00Z", &["check"]).exits(1);
    assert_eq!(told(&home), [tuple("raised", "missed", "publish@2026-06-01")]);
    ask(&home, "2026-06-02T07:00:00Z", &["check"])
        .exits(1)
        .saying("2 slots of publish are overdue, 2026-06-01 to 2026-06-02");
    assert_eq!(told(&home).len(), 1, "silence");
    // it runs again: all is well, and that is told once
    ask(&home, "2026-06-02T08:00:00Z", &["run", "publish"]).exits(0);
    ask(&home, "2026-06-02T08:15:00Z", &["check"]).exits(0).silent();
    assert_eq!(told(&home)[1..], [tuple("recovered", "missed", "publish@2026-06-02")]);
    ask(&home, "2026-06-03T11:00:00Z", &["check", "--quiet"]).exits(1).silent();
    let json = ask(&home, "2026-06-03T12:00:00Z", &["check", "--json"]).exits(1).json();
    assert_eq!((json["kind"].as_str(), json["finding"].as_str()), (Some("finding"), Some("overdue")));
}

/// Jobs of a crontab have no lanes in the file: the check tells of them itself, all in one notice.
#[test]
fn a_check_tells_of_jobs_that_have_nobody_to_tell() {
    let home = Home::new();
    for job in ["a", "b"] {
        let mut run = at(
            &home,
            "2026-06-01T05:00:00Z",
            &["run", "--job", job, "--every", "day", "--tz", "UTC", "--", "true"],
        );
        home.launch(&mut run).end().exits(0);
    }
    let check = |now: &str| ask(&home, now, &["check", "--notify", "cat >> told"]);
    check("2026-06-01T23:00:00Z").exits(0).silent();
    check("2026-06-03T05:00:00Z").exits(1);
    check("2026-06-03T05:15:00Z").exits(1);
    let lines = home.lines("told");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("a@2026-06-02") && lines[0].contains("b@2026-06-02"), "{lines:?}");
    // one is retired, the other runs again
    ask(&home, "2026-06-03T05:20:00Z", &["check", "--retire", "a"]).exits(0);
    ask(&home, "2026-06-03T05:20:00Z", &["check", "--retire", "a"]).exits(65);
    let mut run = at(
        &home,
        "2026-06-03T05:30:00Z",
        &["run", "--job", "b", "--every", "day", "--tz", "UTC", "--", "true"],
    );
    home.launch(&mut run).end().exits(0);
    ask(&home, "2026-06-04T05:20:00Z", &["check", "--notify", "cat >> told"]).exits(0).silent();
    let lines = home.lines("told");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("\"recovered\""), "{lines:?}");
    // a person is needed
    let mut doubt = at(
        &home,
        "2026-06-04T05:30:00Z",
        &["run", "--job", "c", "--once", "--max-failures", "1", "--", "false"],
    );
    home.launch(&mut doubt).end().exits(1);
    check("2026-06-04T05:31:00Z").exits(1).saying("c is quarantined").saying("semel resolve c --done");
    assert_eq!(home.lines("told").len(), 3);
}

#[test]
fn a_lane_whose_secret_is_not_there_is_said_and_the_job_runs() {
    let home = Home::new();
    home.write(
        "semel.toml",
        "[notify.ops]\nwebhook = { env = \"OPS_HOOK\" }\n[jobs.publish]\ncommand = \"echo x >> effects\"\nonce = true\nnotify = [\"ops\"]\nping = { env = \"NO_PING\" }\n",
    );
    home.ask("run publish")
        .exits(0)
        .saying("lane ops is left out")
        .saying("OPS_HOOK is not set")
        .saying("no ping is sent");
    assert_eq!(home.lines("effects").len(), 1);
}

/// What is wrong with one job, or one schedule, hides nothing of the others.
#[test]
fn a_check_says_what_it_cannot_watch_and_goes_on() {
    let home = Home::new();
    home.write(
        "semel.toml",
        "[notify.ops]\nwebhook = { env = \"OPS_HOOK\" }\n[jobs.a]\ncommand = \"true\"\nevery = \"day\"\ntz = \"Mars/Olympus\"\n[jobs.b]\ncommand = \"true\"\nevery = \"day\"\ntz = \"UTC\"\nnotify = [\"ops\"]\n",
    );
    let first = ask(&home, &day(1), &["check"]).exits(1);
    first
        .saying("job a: ")
        .saying("Mars/Olympus")
        .saying("lane ops is left out")
        .saying("OPS_HOOK is not set");
    // the other was watched all the same
    ask(&home, &day(3), &["check"]).exits(1).saying("2 slots of b are overdue").saying("Mars/Olympus");
}

#[test]
fn a_summary_is_said_on_request() {
    let home = Home::new();
    home.run("--job a --once --summary", "true")
        .exits(0)
        .saying("a done in ")
        .saying("(attempt 1, token ")
        .saying(" of a); exit 0");
    home.run("--job a --once --summary", "true")
        .exits(0)
        .saying("a is done (attempt 1")
        .saying("skipped; exit 0");
    home.run("--job a --once", "true").exits(0).silent();
    let failed = home.run("--job b --once --summary", "exit 3").exits(3);
    assert_eq!(failed.err.lines().count(), 1, "said once: {}", failed.err);
}
