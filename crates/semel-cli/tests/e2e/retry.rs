//! `semel retry JOB`: a verdict on many entries at once.

use crate::support::Home;

/// `posts` with two that failed, two that are quarantined, one that is done; and a failure of another job.
fn home() -> Home {
    let home = Home::new();
    for key in ["f1", "f2"] {
        home.run(&format!("--job posts --key {key}"), "exit 1").exits(1);
    }
    for key in ["q1", "q2"] {
        home.run(&format!("--job posts --key {key} --max-failures 1"), "exit 1").exits(1);
    }
    home.run("--job posts --key d1", "true").exits(0);
    home.run("--job other --once --max-failures 1", "exit 1").exits(1);
    home
}

fn state(home: &Home, work: &str) -> String {
    let shown = home.launch(&mut home.semel(["show", work, "--json"])).end().exits(0).json();
    shown["state"].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned()
}

fn states(home: &Home) -> Vec<String> {
    ["posts#f1", "posts#f2", "posts#q1", "posts#q2", "posts#d1", "other"].map(|work| state(home, work)).into()
}

#[test]
fn what_is_quarantined_may_run_again_and_nothing_else_is_touched() {
    let home = home();
    let before = states(&home);
    assert_eq!(before, ["failed", "failed", "quarantined", "quarantined", "done", "quarantined"]);
    let said = home.ask("retry posts --quarantined --dry-run").exits(0);
    let lines: Vec<String> = said.text().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[2], "posts: 2 would be let run again (failed 0, quarantined 2)");
    assert!(lines.contains(&"posts#q1 quarantined".to_owned()), "{lines:?}");
    assert_eq!(states(&home), before, "nothing was changed");

    let said = home.ask("retry posts --quarantined").exits(0).silent();
    assert_eq!(said.text(), "posts: 2 may run again (failed 0, quarantined 2)");
    assert_eq!(states(&home), ["failed", "failed", "open", "open", "done", "quarantined"]);
    assert_eq!(
        home.ask("retry posts --quarantined").exits(0).text(),
        "posts: 0 may run again (failed 0, quarantined 0)"
    );
    home.run("--job posts --key q1 --max-failures 1", "echo x >> effects").exits(0);
    home.run("--job posts --key q1 --max-failures 1", "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn failures_count_from_nought_again_and_the_reason_is_on_record() {
    let home = home();
    let mut retry = home.semel([
        "retry",
        "posts",
        "--failed",
        "--quarantined",
        "--because",
        "the disk is back",
        "--json",
    ]);
    let said = home.launch(&mut retry).end().exits(0);
    assert_eq!(said.text().lines().count(), 5);
    let sum = said.json();
    assert_eq!(
        (&sum["kind"], &sum["failed"], &sum["quarantined"], &sum["gone_on"]),
        (&"retry".into(), &2.into(), &2.into(), &0.into())
    );
    for work in ["posts#f1", "posts#q2"] {
        let why = home.launch(&mut home.semel(["why", work])).end().exits(0).text();
        assert!(why.contains("the disk is back"), "{why}");
    }
    for code in [1, 1, 1, 79] {
        home.run("--job posts --key f1", "exit 1").exits(code);
    }
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_is_made() {
    let home = Home::new();
    home.ask("retry posts").exits(78);
    home.ask("retry a//b --failed").exits(78).saying("has an empty segment");
    let mut empty = home.semel(["retry", "posts", "--failed", "--because", " "]);
    home.launch(&mut empty).end().exits(78).saying("--because is empty");
    assert!(!home.database().exists());
    let said = home.ask("retry posts --failed").exits(0).saying("there is no ledger");
    assert_eq!(said.text(), "posts: 0 may run again (failed 0, quarantined 0)");
    assert!(!home.database().exists());
}

#[test]
fn what_runs_at_the_moment_is_left_alone() {
    let home = Home::new();
    home.run("--job posts --key a", "exit 1").exits(1);
    let mut gate = home.gate("gate");
    let running = home.start("--job posts --key a", "echo started >> effects; read go < gate");
    home.wait_lines("effects", 1);
    let said = home.ask("retry posts --failed --quarantined").exits(0);
    assert_eq!(said.text(), "posts: 0 may run again (failed 0, quarantined 0)");
    gate.open(1);
    running.end().exits(0);
}
