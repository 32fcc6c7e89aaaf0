//! Two builds at one ledger: the same keys, at the same time, and every effect once.
//!
//! `SEMEL_OLD` is the path of an earlier binary. Without it there is but one build, and what needs two is skipped by name;
//! the same races and takeovers between processes of this build alone are tests of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Home, Running, SOON, skipped, until};

const KEYS: usize = 12;
/// Processes of each build that come at once for a database of an earlier schema.
const CROWD: usize = 6;

const NEW: &str = env!("CARGO_BIN_EXE_semel");

/// The two that meet.
type Builds = [PathBuf; 2];

fn this_build_alone() -> Builds {
    [NEW.into(), NEW.into()]
}

/// The earlier build and this one; without the first the test is skipped.
fn both(test: &str) -> Option<Builds> {
    let Some(old) = std::env::var_os("SEMEL_OLD") else {
        skipped(test, "SEMEL_OLD names no earlier build");
        return None;
    };
    println!("the other build is {}", old.to_string_lossy());
    Some([old.into(), NEW.into()])
}

/// `semel ARGS` of either build.
fn semel(home: &Home, program: &Path, store: &str, args: &[&str]) -> Command {
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
fn races(home: &Home, store: &str, builds: &Builds) {
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
fn takes_over(home: &Home, store: &str, builds: &Builds) {
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
        for build in builds {
            let said = home.launch(&mut semel(home, build, store, &["show", &job, "--json"])).end().exits(0);
            assert_eq!(said.json()["state"], "done");
            home.launch(&mut semel(home, build, store, &["why", &job])).end().exits(0);
            home.launch(&mut semel(home, build, store, &["status"])).end().exits(0);
        }
    }
}

/// The items of one batch, by both at once.
fn shares(home: &Home, store: &str, builds: &Builds) {
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

fn all_of_it(home: &Home, store: &str, builds: &Builds) {
    races(home, store, builds);
    takes_over(home, store, builds);
    shares(home, store, builds);
}

/// Is this store one that the build can use, as this build makes it?
fn knows(home: &Home, build: &Path, store: &str) -> bool {
    let made = ["run", "--job", "made", "--once", "--", "true"];
    home.launch(&mut semel(home, Path::new(NEW), store, &made)).end().exits(0);
    home.launch(&mut semel(home, build, store, &["status"])).end().code == 0
}

#[test]
fn two_builds_on_one_database() {
    let Some(builds) = both("two_builds_on_one_database") else { return };
    let home = Home::new();
    let store = |name: &str| format!("sqlite:{}", home.path(name).display());
    if knows(&home, &builds[0], &store("made.db")) {
        return all_of_it(&home, &store("both.db"), &builds);
    }
    println!("its schema is an earlier one");
    hands_over(&home, &store("handed.db"), &builds);
    crowds(&home, &store("crowd.db"), &builds);
}

/// The first to come of this build brings the database to its schema. Who ran before ends on record, who comes later with the
/// earlier build is refused in so many words, and nothing is done twice.
fn hands_over(home: &Home, store: &str, [old, new]: &Builds) {
    let run = |build: &Path, job: &str, script: &str| {
        home.launch(&mut semel(
            home,
            build,
            store,
            &["run", "--job", job, "--once", "--", "sh", "-c", script],
        ))
    };
    run(old, "before", "echo x >> handed").end().exits(0);
    let held =
        "echo x >> begun; until [ -e go ]; do sleep 0.02; done; $SEMEL step s -- sh -c 'echo x >> handed'";
    let holder = run(old, "held", held);
    home.wait_lines("begun", 1);
    run(new, "before", "echo x >> handed").end().exits(0);
    run(new, "held", "echo x >> handed").end().exits(0);
    assert_eq!(home.lines("handed").len(), 1, "done is skipped, and so is what is under way");
    let refused = run(old, "after", "echo x >> handed").end().exits(78);
    refused.saying("newer Semel").saying("upgrade");
    home.write("go", "");
    holder.end().exits(0);
    assert_eq!(home.lines("handed").len(), 2, "who had it open goes on");
    for job in ["before", "held"] {
        let shown = home.launch(&mut semel(home, new, store, &["show", job, "--json"])).end().exits(0).json();
        assert_eq!(shown["state"], "done", "{shown}");
    }
    run(new, "held", "echo x >> handed").end().exits(0);
    assert_eq!(home.lines("handed").len(), 2);
}

/// Many of both at once, at the moment of the change.
fn crowds(home: &Home, store: &str, [old, new]: &Builds) {
    let args = |job: &str, wait: &str| {
        let script = "$SEMEL step a -- sh -c 'echo $SEMEL_JOB >> crowd.steps'; echo $SEMEL_JOB >> crowd";
        ["run", "--job", job, "--once", "--if-busy", wait, "--", "sh", "-c", script].map(str::to_owned)
    };
    let start = |build: &Path, job: &str| {
        let args = args(job, "wait=30s");
        home.launch(&mut semel(home, build, store, &args.each_ref().map(String::as_str)))
    };
    start(old, "c0").end().exits(0);
    let mut running = Vec::new();
    for n in 0..CROWD {
        running.push((true, start(old, &format!("c{}", n % 3))));
        running.push((false, start(new, &format!("c{}", n % 3))));
    }
    for (is_old, run) in running {
        let said = run.end();
        match said.code {
            0 => {}
            78 if is_old => drop(said.saying("newer Semel")),
            code => panic!("{code}: {}", said.err),
        }
    }
    each_effect_once(home, "crowd", 3);
    each_effect_once(home, "crowd.steps", 3);
}

#[test]
fn two_builds_on_one_directory() {
    let Some(builds) = both("two_builds_on_one_directory") else { return };
    let home = Home::new();
    let store = format!("dir:{}", home.path("shared").display());
    if !knows(&home, &builds[0], &store) {
        return skipped("two_builds_on_one_directory", "the build that SEMEL_OLD names knows no dir:");
    }
    all_of_it(&home, &store, &builds);
}

#[test]
fn processes_of_this_build_race_take_over_and_share_on_a_database() {
    let home = Home::new();
    all_of_it(&home, &format!("sqlite:{}", home.database().display()), &this_build_alone());
}

#[test]
fn processes_of_this_build_race_take_over_and_share_on_a_directory() {
    let home = Home::new();
    all_of_it(&home, &format!("dir:{}", home.path("shared").display()), &this_build_alone());
}
