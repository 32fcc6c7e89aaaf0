//! `semel init`: what it prints is read by those who will read it (crontab, systemd, schemas of Kubernetes and GitHub, a
//! reader of property lists), and every slot is fired by systemd's own calendar.
//!
//! Who is not here is said: `cargo xtask test` installs them, and names the folder of those from PyPI in
//! SEMEL_VALIDATORS.

use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use semel_core::schedule::Schedule;

use crate::support::{Home, Said, mode, skipped};

/// A bit of everything, with names and paths that need care.
const JOBS: &str = r#"
    store = { env = "LEDGER" }
    [jobs.publish]
    command = ["true"]
    every = "day"
    tz = "Europe/Berlin"
    timeout = "30m"
    env = { SITE_TOKEN = { env = "SITE_TOKEN" } }
    [jobs."site/my-job:x"]
    command = ["true"]
    every = "30 2 * * *"
    tz = "Europe/Berlin"
    [jobs.union]
    command = ["true"]
    every = "15 3 13 * 5"
    tz = "America/New_York"
    [jobs.quarter]
    command = ["true"]
    every = "15m"
    max-late = "5m"
    [jobs.migrate]
    command = ["true"]
    once = true
"#;

fn program(name: &str) -> Option<PathBuf> {
    let validators = std::env::var_os("SEMEL_VALIDATORS").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = validators.into_iter().chain(std::env::split_paths(&path));
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

/// A home with a file of jobs in a folder whose name needs quotes.
fn home(jobs: &str) -> Home {
    let home = Home::new();
    std::fs::create_dir(home.path("50% my $jobs")).unwrap();
    home.write("50% my $jobs/semel.toml", jobs);
    home
}

fn init_in(home: &Home, zone: &str, words: &[&str]) -> Said {
    let mut command = home.plain(env!("CARGO_BIN_EXE_semel"));
    command.current_dir(home.path("50% my $jobs")).env("TZ", zone).env("SEMEL_NOW", "2026-01-15T12:00:00Z");
    home.launch(command.arg("init").args(words)).end()
}

fn init(home: &Home, words: &[&str]) -> Said {
    init_in(home, "UTC", words)
}

/// The units as files, in the order of their names.
fn files(home: &Home, words: &[&str]) -> Vec<PathBuf> {
    let folder = home.path("units");
    let mut all = words.to_vec();
    all.extend(["--output", folder.to_str().unwrap(), "--force"]);
    init(home, &all).exits(0).silent();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

#[track_caller]
fn takes(command: &mut Command) {
    let output = command.output().unwrap();
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {said}");
}

#[test]
fn lines_of_a_crontab_are_right_on_the_machines_clock() {
    let home = home(JOBS);
    let text = init(&home, &["cron", "--bin", "/usr/bin/semel"]).exits(0).silent().text();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let path = home.path("50% my $jobs/semel.toml");
    let config = format!("--config '{}'", path.to_str().unwrap().replace('%', "\\%"));
    assert_eq!(
        lines,
        [
            format!("11 4 * * * /usr/bin/semel run publish {config}"),
            format!("*/15 * * * * /usr/bin/semel run quarter {config}"),
            format!("30 0,1 * * * /usr/bin/semel run site/my-job:x {config}"),
            format!("15 7,8 13 * 5 /usr/bin/semel run union {config}"),
            format!("*/15 * * * * /usr/bin/semel check {config}"),
        ]
    );
    assert!(text.contains("# migrate is not here: it is done once, for ever"), "{text}");
    assert!(text.contains("# it takes from its surroundings: LEDGER, SITE_TOKEN"), "{text}");
    assert!(!text.contains("CRON_TZ"), "{text}");
    // on a clock in its own zone a line stays as it was written
    let there = init_in(&home, "Europe/Berlin", &["cron", "site/my-job:x", "--user", "www"]).exits(0).text();
    assert!(there.contains("\n30 2 * * * www "), "{there}");
    // without --bin it is the program that runs
    assert!(there.contains(&format!(" {} run", env!("CARGO_BIN_EXE_semel"))), "{there}");
}

#[test]
fn crontab_takes_the_lines() {
    let Some(crontab) = program("crontab") else {
        return skipped("crontab_takes_the_lines", "there is no crontab");
    };
    let help = Command::new(&crontab).arg("-h").output().unwrap();
    let help = [help.stdout, help.stderr].concat();
    // Debian's has -n for a dry run, cronie's has -T
    let flag = match String::from_utf8_lossy(&help) {
        help if help.contains("dry run") => "-n",
        help if help.contains("-T") => "-T",
        _ => return skipped("crontab_takes_the_lines", "this crontab cannot only check"),
    };
    let home = home(JOBS);
    let text = init(&home, &["cron"]).exits(0).text() + "\n";
    let good = home.write("crontab", text.as_bytes());
    let check = |file: &Path| Command::new(&crontab).arg(flag).arg(file).output().unwrap();
    let said = check(&good);
    if String::from_utf8_lossy(&said.stderr).contains("not allowed") {
        return skipped("crontab_takes_the_lines", "this user may not use crontab");
    }
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let bad = home.write("bad", text.replace("11 4 * * *", "11 25 * * *"));
    assert!(!check(&bad).status.success(), "the control");
}

#[test]
fn systemd_takes_the_units() {
    let Some(analyze) = program("systemd-analyze") else {
        return skipped("systemd_takes_the_units", "there is no systemd-analyze");
    };
    let home = home(JOBS);
    let files = files(&home, &["systemd", "--scope", "system", "--user", "root"]);
    let names: Vec<&str> = files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names.len(), 10, "{names:?}");
    assert!(names.contains(&r"semel@site-my\x2djob:x.timer"), "{names:?}");
    let verify = |files: &[PathBuf]| {
        let mut command = Command::new(&analyze);
        command.args(["verify", "--man=no"]);
        for (nth, file) in files.iter().enumerate() {
            // a colon in a file's name would be taken for an alias: all are given by their aliases
            let copy = home.path(&format!("copy{nth}.{}", file.extension().unwrap().to_str().unwrap()));
            std::fs::copy(file, &copy).unwrap();
            command.arg(format!("{}:{}", copy.display(), file.file_name().unwrap().to_str().unwrap()));
        }
        command
    };
    takes(&mut verify(&files));
    let timer = files.iter().find(|file| file.ends_with("semel@publish.timer")).unwrap();
    let service = files.iter().find(|file| file.ends_with("semel@publish.service")).unwrap();
    std::fs::write(timer, std::fs::read_to_string(timer).unwrap().replace("06:11", "26:11")).unwrap();
    assert!(!verify(&[timer.clone(), service.clone()]).output().unwrap().status.success(), "the control");
}

/// The times after `start` at which this calendar of systemd's elapses.
fn elapses(analyze: &Path, calendar: &str, start: Timestamp, count: usize) -> Vec<Timestamp> {
    let mut command = Command::new(analyze);
    command.env("TZ", "UTC").args(["calendar", &format!("--iterations={count}")]);
    command.arg(format!("--base-time=@{}", start.as_second())).arg(calendar);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{calendar}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let times = text.lines().filter_map(|line| line.split_once(": ")?.1.strip_suffix(" UTC"));
    times
        .filter_map(|time| Some(time.split_once(' ')?.1.replacen(' ', "T", 1) + "Z"))
        .filter_map(|time| time.parse().ok())
        .collect()
}

/// What systemd itself makes of the units: at least one firing in every slot, in a year with its changes of the clocks.
#[test]
fn every_slot_of_a_year_is_fired_by_systemd() {
    let Some(analyze) = program("systemd-analyze") else {
        return skipped("every_slot_of_a_year_is_fired_by_systemd", "there is no systemd-analyze");
    };
    let long =
        ["day", "week", "month", "30 2 * * *", "0 3 13 * 5", "0 0 1 * *", "15 1,2,3 * * 1-5", "0 0 */2 * 1"];
    let short = [
        "hour",
        "6h",
        "15m",
        "90m",
        "16m",
        "*/20 * * * *",
        "90s",
        "0,30 2 * * *",
        "*/10 1-3 * * *",
        "*/15 * * * 0",
    ];
    for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"] {
        let mut toml = String::new();
        for (nth, every) in long.iter().chain(&short).enumerate() {
            toml.push_str(&format!(
                "[jobs.j{nth}]\ncommand = [\"true\"]\nevery = \"{every}\"\ntz = \"{zone}\"\n"
            ));
        }
        let home = home(&toml);
        let files = files(&home, &["systemd", "--scope", "user"]);
        let tz = TimeZone::get(zone).unwrap();
        let year: Timestamp = "2026-01-15T00:00:00Z".parse().unwrap();
        for (nth, every) in long.iter().chain(&short).enumerate() {
            let timer = files.iter().find(|file| file.ends_with(format!("semel@j{nth}.timer"))).unwrap();
            let text = std::fs::read_to_string(timer).unwrap();
            let calendars: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix("OnCalendar=")).collect();
            let schedule = Schedule::parse(every).unwrap();
            let changes = tz
                .following(year)
                .take(2)
                .map(|change| change.timestamp().checked_sub(SignedDuration::from_hours(20)).unwrap());
            let spans: Vec<(Timestamp, i64)> = if long.contains(every) {
                vec![(year, 366 * 24)]
            } else {
                changes.map(|start| (start, 44)).collect()
            };
            for (start, hours) in spans {
                assert_fired(&analyze, &schedule, &tz, &calendars, start, hours);
            }
        }
    }
}

#[track_caller]
fn assert_fired(
    analyze: &Path,
    schedule: &Schedule,
    tz: &TimeZone,
    calendars: &[&str],
    start: Timestamp,
    hours: i64,
) {
    let first = schedule.next_after(tz, start).unwrap().at;
    let until = start.checked_add(SignedDuration::from_hours(hours)).unwrap();
    let eve = first.checked_sub(SignedDuration::from_secs(1)).unwrap();
    let mut fired = Vec::new();
    for calendar in calendars {
        // a calendar that elapses seldom is asked for less
        let mut count = 60;
        loop {
            let times = elapses(analyze, calendar, eve, count);
            assert!(!times.is_empty(), "{calendar}");
            let enough = times.len() < count || times.last().is_some_and(|last| *last > until);
            if enough {
                fired.extend(times);
                break;
            }
            count *= 4;
        }
    }
    fired.sort();
    let ticks: Vec<_> = schedule.ticks(tz, eve, until).collect();
    assert!(ticks.len() > 1, "{schedule}");
    for pair in ticks.windows(2) {
        let (from, to) = (pair[0].at, pair[1].at);
        let hit = fired.iter().any(|at| *at >= from && *at < to);
        assert!(hit, "{schedule} {tz:?}: nothing from {from} to {to} by {calendars:?}");
    }
}

#[test]
fn a_service_is_stopped_by_semel_itself() {
    let home = home(JOBS);
    let text = init(&home, &["systemd", "publish", "--scope", "user"]).exits(0).text();
    for line in [
        "KillMode=mixed",
        "Delegate=yes",
        "TimeoutStartSec=infinity",
        "Persistent=true",
        "TimeoutStopSec=30s",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
    }
    assert!(text.contains("OnCalendar=*-*-* 06:11:00 Europe/Berlin\n"), "{text}");
    assert!(text.contains("50%% my $$jobs/semel.toml\"\n") && !text.contains("User="), "{text}");
    let system = init(&home, &["systemd", "publish", "--user", "www"]).exits(0).text();
    assert!(system.contains("\nUser=www\n"), "{system}");
}

#[test]
fn workflows_are_what_github_takes() {
    let home = home(JOBS);
    let text = init(&home, &["github", "publish", "site/my-job:x"]).exits(0).text();
    for part in [
        "- cron: \"30 0,1 * * *\"",
        "workflow_dispatch:",
        "cancel-in-progress: false",
        "timeout-minutes: 41",
        "SITE_TOKEN: ${{ secrets.SITE_TOKEN }}",
        "LEDGER: ${{ secrets.LEDGER }}",
        "run: \"semel run publish --config semel.toml\"",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let Some(check) = program("check-jsonschema") else {
        return skipped(
            "workflows_are_what_github_takes",
            "there is no check-jsonschema: only the text was looked at",
        );
    };
    let files = files(&home, &["github"]);
    let validate = || {
        let mut command = Command::new(&check);
        command.args(["--builtin-schema", "vendor.github-workflows"]).args(&files);
        command
    };
    takes(&mut validate());
    std::fs::write(&files[0], text.replace("runs-on", "runs-at")).unwrap();
    assert!(!validate().output().unwrap().status.success(), "the control");
}

#[test]
fn cron_jobs_are_what_kubernetes_takes() {
    let home = home(JOBS);
    let text = init(&home, &["k8s", "publish", "site/my-job:x", "--image", "registry/x:1"]).exits(0).text();
    for part in [
        "schedule: \"11 6 * * *\"\n  timeZone: \"Europe/Berlin\"",
        "concurrencyPolicy: Allow",
        "startingDeadlineSeconds: 86400",
        "image: \"registry/x:1\"",
        "- \"--scheduled-for\"\n                - \"$(JOB_NAME)\"",
        // a gap of the clocks is left out there
        "schedule: \"0 3 * 3 0\"",
        "secretKeyRef: { name: semel, key: LEDGER }",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let Some(check) = program("kubernetes-validate") else {
        return skipped(
            "cron_jobs_are_what_kubernetes_takes",
            "there is no kubernetes-validate: only the text was looked at",
        );
    };
    let files = files(&home, &["k8s"]);
    takes(Command::new(&check).arg("--strict").args(&files));
    std::fs::write(&files[0], text.replace("startingDeadlineSeconds", "startingDeadline")).unwrap();
    assert!(
        !Command::new(&check).arg("--strict").arg(&files[0]).output().unwrap().status.success(),
        "the control"
    );
}

#[test]
fn property_lists_are_read_as_such() {
    let home = home(JOBS);
    let files = files(&home, &["launchd", "--user", "www"]);
    let Some(python) = program("python3") else {
        return skipped("property_lists_are_read_as_such", "there is no python3");
    };
    let script =
        "import plistlib, sys, json\nfor f in sys.argv[1:]: print(json.dumps(plistlib.load(open(f, 'rb'))))";
    let output = Command::new(python).args(["-c", script]).args(&files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lists: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let union = lists.iter().find(|list| list["Label"] == "semel.union").unwrap();
    assert_eq!(union["ProgramArguments"][4], home.path("50% my $jobs/semel.toml").to_str().unwrap());
    assert_eq!(union["UserName"], "www");
    assert_eq!(
        union["StartCalendarInterval"],
        serde_json::json!([
            { "Day": 13, "Hour": 7, "Minute": 15 },
            { "Day": 13, "Hour": 8, "Minute": 15 },
            { "Weekday": 5, "Hour": 7, "Minute": 15 },
            { "Weekday": 5, "Hour": 8, "Minute": 15 },
        ])
    );
}

#[test]
fn nothing_is_written_but_where_it_was_asked_for() {
    let home = home(JOBS);
    let before = std::fs::read_dir(home.path("50% my $jobs")).unwrap().count();
    init(&home, &["systemd", "--scope", "user"]).exits(0);
    assert_eq!(std::fs::read_dir(home.path("50% my $jobs")).unwrap().count(), before);
    assert!(!home.path("state").exists() && !home.path("home").exists());
    let units = home.path("units");
    let to = |more: &[&str]| {
        let mut words = vec!["k8s", "publish", "--output", units.to_str().unwrap()];
        words.extend(more);
        init(&home, &words)
    };
    to(&[]).exits(0).silent();
    let file = units.join("semel-publish.yaml");
    assert_eq!(mode(&file) & 0o600, 0o600);
    assert_eq!(mode(&file) & 0o133, 0, "nobody else writes it, nobody runs it");
    std::fs::write(&file, "mine").unwrap();
    to(&[]).exits(78).saying("is there already: say --force to replace it");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    to(&["--force"]).exits(0);
    assert!(std::fs::read_to_string(&file).unwrap().contains("CronJob"));
    assert_eq!(std::fs::read_dir(&units).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn what_cannot_be_told_is_said_and_the_rest_is_there() {
    let jobs = "[jobs.fast]\ncommand = [\"true\"]\nevery = \"30s\"\n[jobs.daily]\ncommand = [\"true\"]\nevery = \"day\"\n";
    let home = home(jobs);
    for kind in ["cron", "k8s"] {
        let said = init(&home, &[kind]).exits(78).saying("fast: every = \"30s\" counts in seconds");
        assert!(said.text().contains("run daily") || said.text().contains("\"daily\""), "{}", said.text());
    }
    init(&home, &["github"]).exits(78).saying("shorter than the 5m");
    init(&home, &["systemd", "--scope", "user"]).exits(0);
    init(&home, &["launchd"]).exits(0);
}

#[test]
fn flags_and_jobs_that_cannot_be() {
    let home = home(JOBS);
    let cases: &[(&[&str], &str)] = &[
        (&["cron", "nobody"], "has no job \"nobody\""),
        (&["cron", "migrate"], "none of these jobs has a schedule"),
        (&["cron", "--user", "a b"], "is no name of a user"),
        (&["github", "--user", "x"], "--user goes with cron, systemd and launchd"),
        (&["cron", "--scope", "user"], "--scope goes with systemd"),
        (&["cron", "--image", "x"], "--image goes with k8s"),
        (&["systemd", "--scope", "user", "--user", "x"], "leave it out, or say --scope system"),
        (&["cron", "--force"], "--output"),
        (&["windows"], "invalid value"),
    ];
    for (words, why) in cases {
        init(&home, words).exits(78).saying(why);
    }
    let nothing = Home::new();
    nothing.ask("init cron").exits(78).saying("there are no jobs");
    // a fault stops it: half a crontab is worse than none
    home.write("50% my $jobs/semel.toml", JOBS.replace("\"15m\"", "\"17m\""));
    init(&home, &["cron"]).exits(78).saying("does not divide a day evenly");
}
