//! One effect per work, however often and however it is started.

use crate::support::Home;

const EFFECT: &str = "echo x >> effects";

#[test]
fn thirty_starts_at_once_have_one_effect_and_the_others_are_noted() {
    let home = Home::new();
    let slow = format!("{EFFECT}; sleep 0.3");
    let runs: Vec<_> = (0..30).map(|_| home.start("--job publish --slot 2026-06-19", &slow)).collect();
    for run in runs {
        run.end().exits(0).silent();
    }
    assert_eq!(home.lines("effects").len(), 1);
    assert_eq!(home.suppressed("publish@2026-06-19"), 29);
}

#[test]
fn control_thirty_plain_starts_have_thirty_effects() {
    let home = Home::new();
    let runs: Vec<_> = (0..30).map(|_| home.launch(&mut home.script(EFFECT))).collect();
    for run in runs {
        run.end().exits(0);
    }
    assert_eq!(home.lines("effects").len(), 30);
}

#[test]
fn thirty_that_wait_are_served_one_after_the_other_and_only_the_first_works() {
    let home = Home::new();
    let runs: Vec<_> =
        (0..30).map(|_| home.start("--job publish --once --if-busy wait=1m", EFFECT)).collect();
    for run in runs {
        run.end().exits(0).silent();
    }
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn control_a_lock_alone_does_not_know_what_is_done() {
    let home = Home::new();
    for _ in 0..2 {
        home.launch(home.plain("flock").args(["lock", "sh", "-c", EFFECT])).end().exits(0);
    }
    assert_eq!(home.lines("effects").len(), 2);
}

#[test]
fn every_work_is_done_once() {
    let home = Home::new();
    // each line is one work, in several spellings
    let works: &[&[&str]] = &[
        &["--job a --once"],
        &["--job b --once"],
        &["--job a --slot 2026-06-19"],
        &["--job a --slot 2026-06-20"],
        &["--job a --key k1"],
        &["--job a --key k2"],
        &["--job a --key k1 --slot 2026-06-19"],
        &["--job a --with x=1", "--job a --with x:=\"1\""],
        &["--job a --with x:=1", "--job a --with x:=1.0", "--job a --with x:=1e0"],
        &["--job a --with x=1 --with y=2", "--job a --with y=2 --with x=1"],
        &["--job a --with x=1 --slot 2026-06-19"],
        &["--job a --with x:={\"p\":[1,2],\"q\":null}", "--job a --with x:={\"q\":null,\"p\":[1,2]}"],
        &["--job a --with x:=[2,1]"],
        &["--job a --with x="],
    ];
    for (done, spellings) in works.iter().enumerate() {
        for flags in spellings.iter().chain(spellings.iter()) {
            home.run(flags, EFFECT).exits(0).silent();
            assert_eq!(home.lines("effects").len(), done + 1, "{flags}");
        }
    }
}

#[test]
fn always_runs_every_time() {
    let home = Home::new();
    for n in 1..=3 {
        home.run("--job tick --always", EFFECT).exits(0).silent();
        assert_eq!(home.lines("effects").len(), n);
    }
}

#[test]
fn without_a_word_on_repetition_it_is_refused_with_a_hint() {
    let home = Home::new();
    let said = home.run("--job a", EFFECT).exits(78);
    for hint in ["--once", "--slot", "--with", "--key", "--always"] {
        assert!(said.err.contains(hint), "{}", said.err);
    }
    for flags in ["--job a --once --always", "--job a --always --slot x", "--job a --once --with x=1"] {
        home.run(flags, EFFECT).exits(78).saying("alone");
    }
    assert_eq!(home.lines("effects").len(), 0);
}

#[test]
fn parameters_that_cannot_be_a_key_are_refused_with_their_place() {
    let home = Home::new();
    for (flags, why) in [
        ("--with x", "--with"),
        ("--with x:=nope", "/with/x"),
        ("--with x:={\"a\":1,\"a\":2}", "/with/x/a"),
        ("--with x:=9007199254740993", "/with/x"),
        ("--with x=1 --with x=2", "/with/x"),
    ] {
        home.run(&format!("--job a {flags}"), EFFECT).exits(78).saying(why);
    }
    assert_eq!(home.lines("effects").len(), 0);
    home.assert_whole();
}

#[test]
fn a_changed_command_is_not_another_work() {
    let home = Home::new();
    home.run("--job a --once", EFFECT).exits(0);
    home.run("--job a --once", "echo other >> effects").exits(0).silent();
    assert_eq!(home.lines("effects"), ["x"]);
}

#[test]
fn fifty_first_starts_on_a_missing_database_all_work() {
    let home = Home::new();
    let runs: Vec<_> = (0..50).map(|n| home.start(&format!("--job j{n} --once"), EFFECT)).collect();
    for run in runs {
        run.end().exits(0).silent();
    }
    assert_eq!(home.lines("effects").len(), 50);
    home.assert_whole();
}
