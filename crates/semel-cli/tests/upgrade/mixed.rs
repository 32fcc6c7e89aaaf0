//! Two builds at one ledger: the same keys, at the same time, and every effect once.
//!
//! `SEMEL_OLD` is the path of a released binary. Without it this build is both: the machinery is tried, and the output
//! says so.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Home, Running, SOON, until};

const KEYS: usize = 12;

fn old() -> PathBuf {
    match std::env::var_os("SEMEL_OLD") {
        Some(path) => {
            println!("the other build is {}", path.to_string_lossy());
            path.into()
        }
        None => {
            println!("SEMEL_OLD is not set: this build is both");
            env!("CARGO_BIN_EXE_semel").into()
        }
    }
}

/// `semel ARGS` of either build.
fn semel(home: &Home, program: &PathBuf, store: &str, args: &[&str]) -> Command {
    let mut command = home.plain(program);
    command.env("SEMEL", program).env("SEMEL_STORE", store).args(args);
    command
}

fn each_effect_once(home: &Home, name: &str, count: usize) {
    let mut lines = home.lines(name);
    let all = lines.len();
    lines.sort();
    lines.dedup();
    assert_eq!((all, lines.len()), (count, count), "{lines:?}");
}

/// Both builds come for every key at once, several of each.
fn races(home: &Home, store: &str) {
    let builds = [old(), PathBuf::from(env!("CARGO_BIN_EXE_semel"))];
    let script = "$SEMEL step a -- sh -c 'echo $SEMEL_JOB >> steps'; echo $SEMEL_JOB >> effects";
    for key in 0..KEYS {
        let job = format!("k{key}");
        let args = ["run", "--job", &job, "--once", "--if-busy", "wait=30s", "--", "sh", "-c", script];
        let running: Vec<Running> =
            (0..4).map(|n| home.launch(&mut semel(home, &builds[(n + key) % 2], store, &args))).collect();
        running.into_iter().for_each(|run| drop(run.end().exits(0)));
    }
    each_effect_once(home, "effects", KEYS);
    each_effect_once(home, "steps", KEYS);
}

/// One dies in the middle, the other takes the work up, with a higher token; and its zombie is refused.
fn takes_over(home: &Home, store: &str) {
    let builds = [old(), PathBuf::from(env!("CARGO_BIN_EXE_semel"))];
    for (n, (dies, lives)) in [(0, 1), (1, 0)].into_iter().enumerate() {
        let job = format!("over{n}");
        let script = format!(
            "$SEMEL step paid -- sh -c 'echo {job} >> paid'; echo $SEMEL_TOKEN >> {job}.first; exec sleep 600"
        );
        let args = ["run", "--job", &job, "--once", "--ttl", "2s", "--", "sh", "-c", &script];
        let run = home.launch(&mut semel(home, &builds[dies], store, &args));
        home.wait_lines(&format!("{job}.first"), 1);
        run.kill_9();
        let script =
            format!("$SEMEL step paid -- sh -c 'echo {job} >> paid'; echo $SEMEL_TOKEN >> {job}.then");
        let args = ["run", "--job", &job, "--once", "--if-busy", "wait=30s", "--", "sh", "-c", &script];
        until("it is taken up", SOON, || {
            home.launch(&mut semel(home, &builds[lives], store, &args)).end().exits(0);
            !home.lines(&format!("{job}.then")).is_empty()
        });
        let (first, then) =
            (home.numbers(&format!("{job}.first"))[0], home.numbers(&format!("{job}.then"))[0]);
        assert!(then > first, "{then} after {first}");
        assert_eq!(
            home.lines("paid").iter().filter(|line| **line == job).count(),
            1,
            "the step was replayed"
        );
        // what the one recorded, the other reads
        for build in &builds {
            let said = home.launch(&mut semel(home, build, store, &["show", &job, "--json"])).end().exits(0);
            assert_eq!(said.json()["state"], "done");
            home.launch(&mut semel(home, build, store, &["why", &job])).end().exits(0);
            home.launch(&mut semel(home, build, store, &["status"])).end().exits(0);
        }
    }
}

/// The items of one batch, by both at once.
fn shares(home: &Home, store: &str) {
    let builds = [old(), PathBuf::from(env!("CARGO_BIN_EXE_semel"))];
    let items: String = (0..40).map(|n| format!("i{n}\n")).collect();
    home.write("items", items);
    let args = [
        "batch",
        "items",
        "--job",
        "posts",
        "--format",
        "lines",
        "-j",
        "2",
        "--share",
        "--",
        "sh",
        "-c",
        "echo $1 >> items.done",
        "sh",
        "{line}",
    ];
    until("all items are done", SOON, || {
        let running: Vec<Running> =
            builds.iter().map(|build| home.launch(&mut semel(home, build, store, &args))).collect();
        let codes: Vec<i32> = running.into_iter().map(|run| run.end().code).collect();
        codes.iter().all(|code| *code == 0)
    });
    each_effect_once(home, "items.done", 40);
}

#[test]
fn two_builds_on_one_database() {
    let home = Home::new();
    let store = format!("sqlite:{}", home.database().display());
    races(&home, &store);
    takes_over(&home, &store);
    shares(&home, &store);
}

#[test]
fn two_builds_on_one_directory() {
    let home = Home::new();
    let store = format!("dir:{}", home.path("shared").display());
    races(&home, &store);
    takes_over(&home, &store);
    shares(&home, &store);
}
