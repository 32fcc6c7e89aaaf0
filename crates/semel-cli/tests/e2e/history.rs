//! The calendar of `semel history`.

use std::process::Command;

use crate::support::{Home, Said};

/// Slots on record: done, done twice, failed, and one that no schedule names.
pub(crate) fn lived_in() -> Home {
    let home = Home::new();
    for slot in ["2026-06-15", "2026-06-16", "2026-06-18"] {
        home.run(&format!("--job publish --slot {slot}"), "true").exits(0);
    }
    home.run("--job publish --slot 2026-06-16", "true").exits(0);
    home.run("--job publish --slot 2026-06-19", "exit 3").exits(3);
    home.run("--job publish --slot 2026-06-20", "exit 3").exits(3);
    home.run("--job publish --slot 2026-06-20", "true").exits(0);
    home.run("--job publish --slot v2", "true").exits(0);
    home
}

fn in_june(home: &Home, words: &str) -> Command {
    let mut command = home.semel(words.split_whitespace());
    command.env("SEMEL_NOW", "2026-06-21T12:00:00Z");
    command
}

fn ask(home: &Home, words: &str) -> Said {
    home.launch(&mut in_june(home, words)).end()
}

#[test]
fn a_pipe_gets_the_list_as_ever_and_the_calendar_when_asked() {
    let home = lived_in();
    let plain = ask(&home, "history publish").exits(0).text();
    assert!(plain.starts_with("STARTED"), "{plain}");
    assert_eq!(plain, ask(&home, "history publish --list").exits(0).text());
    let json = ask(&home, "history publish --json").exits(0).text();
    assert_eq!(json, ask(&home, "history publish --json --grid").exits(0).text());
    assert_eq!(
        ask(&home, "history publish --grid").exits(0).silent().text(),
        "publish\n    Jun\nMon ■\nTue ◆\nThu ■\nFri ✗\nSat ▣\n\
         ■ done 2   ▣ done after several attempts 1   ◆ done, duplicates suppressed 1\n✗ failed 1\n\
         1 work has a slot that no schedule names: see the list"
    );
    home.ask("history publish --grid --list").exits(78);
}

#[test]
fn with_a_schedule_ticks_without_a_record_have_cells() {
    let home = lived_in();
    home.write(
        "semel.toml",
        "[jobs.publish]\ncommand = [\"true\"]\nevery = \"day\"\ntz = \"Europe/Berlin\"\n",
    );
    let text = ask(&home, "history publish --grid").exits(0).text();
    let cells: Vec<&str> = text.lines().take(9).collect();
    assert_eq!(
        cells,
        ["publish, every day", "    Jun", "Mon ■", "Tue ◆", "Wed ·", "Thu ■", "Fri ✗", "Sat ▣", "Sun □"],
        "{text}"
    );
    assert!(text.contains("□ open 1") && text.contains("· not on record 1"), "{text}");
    // a file that cannot be read is no reason to hide what is on record
    home.write("semel.toml", "[jobs.publish]\ncommand = [\"true\"]\nevery = \"someday\"\n");
    assert!(ask(&home, "history publish --grid").exits(0).text().starts_with("publish\n"));
}

#[test]
fn a_locale_without_utf_8_gets_letters() {
    let home = lived_in();
    let mut command = in_june(&home, "history publish --grid");
    command.env("LC_ALL", "C");
    let text = home.launch(&mut command).end().exits(0).text();
    assert!(text.is_ascii() && text.contains("Mon #") && text.contains("Sat +"), "{text}");
}

#[test]
fn instants_are_rows_of_days_in_the_jobs_zone() {
    let home = Home::new();
    home.write("semel.toml", "[jobs.sync]\ncommand = [\"true\"]\nevery = \"6h\"\ntz = \"Europe/Berlin\"\n");
    for slot in
        ["2026-06-20T00:00:00Z", "2026-06-20T06:00:00Z", "2026-06-20T18:00:00Z", "2026-06-21T06:00:00Z"]
    {
        home.run(&format!("--job sync --slot {slot}"), "true").exits(0);
    }
    let text = ask(&home, "history sync --grid").exits(0).text();
    assert_eq!(
        text.lines().take(4).collect::<Vec<_>>(),
        ["sync, every 6h, Europe/Berlin", "           02  14", "2026-06-20 ■ ■ · ■", "2026-06-21 · ■ □"],
        "{text}"
    );
    // without the file: only what is on record, on the machine's clock
    std::fs::remove_file(home.path("semel.toml")).unwrap();
    let text = ask(&home, "history sync --grid").exits(0).text();
    assert_eq!(
        text.lines().take(4).collect::<Vec<_>>(),
        ["sync, UTC", "           00  18", "2026-06-20 ■ ■ ■", "2026-06-21   ■"],
        "{text}"
    );
}

#[test]
fn a_job_without_slots_has_no_calendar() {
    let home = Home::new();
    home.run("--job a --once", "true").exits(0);
    home.ask("history a --grid").exits(65).saying("no work of job a has a slot that is a time");
}
