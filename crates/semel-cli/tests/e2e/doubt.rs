//! The last attempt vanished after its effect and before the record: retry, hold or probe.

use std::time::{Duration, Instant};

use crate::processes::is_alive;
use crate::support::{Home, SOON, until};

const EFFECT: &str = "echo x >> effects";

/// A run that had its effect and was killed before anybody could write that down.
fn lost_attempt(home: &Home) {
    let run = home.start("--job pay --once", "echo x >> effects; echo ready >> ready; exec sleep 300");
    home.wait_lines("ready", 1);
    run.kill_9();
    until("its tree is gone", SOON, || home.alive().is_empty());
}

#[test]
fn control_a_plain_script_killed_after_its_effect_and_retried_repeats_it() {
    let home = Home::new();
    for n in 1..=2 {
        let run = home.launch(&mut home.script("echo x >> effects; exec sleep 300"));
        home.wait_lines("effects", n);
        run.kill_9();
    }
    assert_eq!(home.lines("effects").len(), 2);
}

#[test]
fn retry_runs_it_again() {
    for flags in ["", "--on-lost retry"] {
        let home = Home::new();
        lost_attempt(&home);
        home.run(&format!("--job pay --once -v {flags}"), EFFECT)
            .exits(0)
            .saying("after an attempt that was lost");
        assert_eq!(home.lines("effects").len(), 2);
    }
}

#[test]
fn hold_asks_a_person_and_runs_nothing() {
    let home = Home::new();
    lost_attempt(&home);
    for _ in 0..2 {
        let said = home.run("--job pay --once --on-lost hold", EFFECT).exits(79);
        said.saying("pay not run: it is in doubt").saying("semel resolve pay");
    }
    // and no other policy overrules that
    home.run("--job pay --once --on-lost retry", EFFECT).exits(79);
    assert_eq!(home.lines("effects").len(), 1);
    assert_eq!(home.entry("pay")["state"], "in_doubt");
}

#[test]
fn a_probe_that_says_yes_settles_it_without_a_run() {
    let home = Home::new();
    home.executable("probe", "echo noise; grep -q x effects");
    lost_attempt(&home);
    let said = home.run("--job pay --once --probe ./probe", EFFECT).exits(0).silent();
    assert_eq!(said.text(), "", "stdout belongs to the command");
    home.run("--job pay --once", EFFECT).exits(0);
    assert_eq!(home.lines("effects").len(), 1);
    let entry = home.entry("pay");
    assert_eq!((&entry["state"], &entry["by"]), (&"done".into(), &"probe".into()));
}

#[test]
fn a_probe_that_says_no_lets_it_run() {
    let home = Home::new();
    home.executable("probe", "exit 1");
    lost_attempt(&home);
    home.run("--job pay --once --on-lost probe --probe ./probe", EFFECT).exits(0);
    assert_eq!(home.lines("effects").len(), 2);
}

#[test]
fn a_probe_that_cannot_tell_leaves_it_in_doubt() {
    for (probe, why) in
        [("exit 7", "answered 7"), ("kill -9 $$", "answered 137"), ("exec ./missing", "answered 127")]
    {
        let home = Home::new();
        home.executable("probe", probe);
        lost_attempt(&home);
        home.run("--job pay --once --probe ./probe", EFFECT).exits(79).saying(why).saying("in doubt");
        home.run("--job pay --once --probe ./probe", EFFECT).exits(79).saying("in doubt");
        assert_eq!(home.lines("effects").len(), 1, "{probe}");
    }
}

#[test]
fn a_probe_that_hangs_is_ended_and_leaves_it_in_doubt() {
    let home = Home::new();
    home.executable("probe", "trap '' TERM; echo $$ >> probes; sleep 300; sleep 300");
    lost_attempt(&home);
    let start = Instant::now();
    let flags = "--job pay --once --probe ./probe --probe-timeout 300ms";
    home.run(flags, EFFECT).exits(79).saying("no answer within 300 ms");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(!is_alive(home.numbers("probes")[0] as i32));
    assert_eq!(home.alive(), [0; 0]);
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn a_probe_is_not_asked_without_need_and_knows_the_work() {
    let home = Home::new();
    home.executable("probe", "echo $SEMEL_JOB $SEMEL_ATTEMPT ${SEMEL_STORE-none} >> probes; exit 1");
    home.run("--job pay --slot 1 --probe ./probe", "exit 3").exits(3);
    home.run("--job pay --slot 1 --probe ./probe", EFFECT).exits(0);
    home.run("--job pay --slot 1 --probe ./probe", EFFECT).exits(0);
    assert_eq!(home.lines("probes").len(), 0, "a command that said no is not in doubt");
    lost_attempt(&home);
    home.run("--job pay --once --probe ./probe", EFFECT).exits(0);
    assert_eq!(home.lines("probes"), ["pay 2 none"]);
}

#[test]
fn an_attempt_that_was_interrupted_is_probed_too() {
    let home = Home::new();
    home.executable("probe", "grep -q x effects");
    let run = home.start("--job pay --once", "echo x >> effects; exec sleep 300");
    home.wait_lines("effects", 1);
    run.signal(libc::SIGTERM);
    run.end().exits(128 + 15);
    home.run("--job pay --once --probe ./probe", EFFECT).exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn a_run_killed_while_it_probes_is_probed_again() {
    let home = Home::new();
    home.executable(
        "probe",
        "echo x >> probes; [ -e again ] || { touch again; exec sleep 300; }; grep -q x effects",
    );
    lost_attempt(&home);
    let probing = home.start("--job pay --once --probe ./probe", EFFECT);
    home.wait_lines("probes", 1);
    until("it hangs", SOON, || home.path("again").exists());
    probing.kill_9();
    until("its tree is gone", SOON, || home.alive().is_empty());
    home.run("--job pay --once --probe ./probe", EFFECT).exits(0);
    assert_eq!((home.lines("probes").len(), home.lines("effects").len()), (2, 1));
}

#[test]
fn a_probe_can_be_interrupted_and_is_asked_again() {
    let home = Home::new();
    home.executable(
        "probe",
        "echo x >> probes; [ -e again ] || { touch again; setsid sleep 300; }; grep -q x effects",
    );
    lost_attempt(&home);
    let probing = home.start("--job pay --once --probe ./probe", EFFECT);
    home.wait_lines("probes", 1);
    until("it hangs", SOON, || home.path("again").exists());
    probing.signal(libc::SIGTERM);
    probing.end().exits(128 + 15);
    assert_eq!(home.alive(), [0; 0], "the probe is ended with it");
    home.run("--job pay --once --probe ./probe", EFFECT).exits(0).silent();
    assert_eq!((home.lines("probes").len(), home.lines("effects").len()), (2, 1));
}

#[test]
fn a_run_that_stalls_while_it_probes_is_taken_over() {
    let home = Home::new();
    home.executable(
        "probe",
        "echo x >> probes; [ -e again ] || { touch again; exec sleep 300; }; grep -q x effects",
    );
    lost_attempt(&home);
    let probing = home.start("--job pay --once --probe ./probe --ttl 1s", EFFECT);
    home.wait_lines("probes", 1);
    until("it hangs", SOON, || home.path("again").exists());
    probing.signal(libc::SIGSTOP);
    home.run("--job pay --once --probe ./probe --if-busy wait=1m", EFFECT).exits(0);
    probing.signal(libc::SIGCONT);
    probing.end().exits(75).saying("lost its lease");
    assert_eq!(home.lines("effects").len(), 1);
    assert_eq!(home.entry("pay")["by"], "probe");
    assert_eq!(home.alive(), [0; 0]);
}

#[test]
fn a_persons_verdict_settles_a_doubt() {
    for (verdict, effects) in [("--done", 1), ("--not-done", 2), ("--retry", 2)] {
        let home = Home::new();
        lost_attempt(&home);
        home.run("--job pay --once --on-lost hold", EFFECT).exits(79);
        home.ask(&format!("resolve pay {verdict} --because looked")).exits(0);
        for _ in 0..2 {
            home.run("--job pay --once --on-lost hold", EFFECT).exits(0).silent();
        }
        assert_eq!(home.lines("effects").len(), effects, "{verdict}");
    }
}

#[test]
fn probe_policies_that_contradict_each_other_are_refused() {
    let home = Home::new();
    home.run("--job pay --once --on-lost probe", EFFECT).exits(78).saying("--probe");
    home.run("--job pay --once --on-lost hold --probe true", EFFECT).exits(78).saying("never asked");
    home.run("--job pay --once --on-lost nonsense", EFFECT).exits(78).saying("nonsense");
    assert_eq!(home.lines("effects").len(), 0);
}
