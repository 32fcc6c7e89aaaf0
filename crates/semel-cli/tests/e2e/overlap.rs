//! Never two at a time on one resource, and what the second does.

use std::time::{Duration, Instant};

use crate::support::{Gate, Home, Running, SOON, until};

const EFFECT: &str = "echo $SEMEL_RESOURCE >> effects";

/// Somebody holds `site` until the gate is opened.
fn holder(home: &Home) -> (Running, Gate) {
    let gate = home.gate("gate");
    let run =
        home.start("--job first --once --resource site", "echo $SEMEL_TOKEN >> holding; read go < gate");
    home.wait_lines("holding", 1);
    (run, gate)
}

#[test]
fn a_second_run_yields_in_silence() {
    let home = Home::new();
    let (first, mut gate) = holder(&home);
    home.run("--job second --once --resource site", EFFECT).exits(0).silent();
    home.run("--job second --once --resource site --skip-code 42", EFFECT).exits(42).silent();
    home.run("--job second --once --resource site -v", EFFECT)
        .exits(0)
        .saying("site is held for first by pid");
    home.run("--job first --once --resource site -v", EFFECT)
        .exits(0)
        .saying("first skipped: it is running by pid");
    assert_eq!(home.lines("effects").len(), 0);
    gate.open(1);
    first.end().exits(0).silent();
    // it only yielded: the work is still to be done
    home.run("--job second --once --resource site", EFFECT).exits(0).silent();
    assert_eq!(home.lines("effects"), ["site"]);
    home.run("--job second --once --resource site --skip-code 42", EFFECT).exits(42).silent();
}

#[test]
fn with_fail_a_busy_resource_is_75() {
    let home = Home::new();
    let (_first, _gate) = holder(&home);
    home.run("--job second --once --resource site --if-busy fail", EFFECT)
        .exits(75)
        .saying("second not run: site is held");
    let said = home.run("--job second --once --resource site --if-busy fail --json", EFFECT).exits(75);
    assert_eq!(said.json()["outcome"], "busy");
    assert_eq!(home.lines("effects").len(), 0);
}

#[test]
fn a_waiter_is_served_as_soon_as_the_holder_is_done() {
    let home = Home::new();
    let (first, mut gate) = holder(&home);
    let mut second = home.start("--job second --once --resource site --if-busy wait=1m -v", EFFECT);
    until("it waits", SOON, || second.err().contains("waiting"));
    assert!(!second.has_ended() && home.lines("effects").is_empty());
    gate.open(1);
    first.end().exits(0);
    let released = Instant::now();
    home.wait_lines("effects", 1);
    assert!(released.elapsed() < Duration::from_secs(1), "the hand-over took {:?}", released.elapsed());
    second.end().exits(0);
}

#[test]
fn a_waiter_gives_up_in_time_and_yields() {
    let home = Home::new();
    let (_first, _gate) = holder(&home);
    let start = Instant::now();
    home.run("--job second --once --resource site --if-busy wait=300ms", EFFECT).exits(0).silent();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
    home.run("--job second --once --resource site --if-busy wait=1ms --skip-code 9", EFFECT).exits(9);
    assert_eq!(home.lines("effects").len(), 0);
}

#[test]
fn a_waiter_can_be_interrupted() {
    let home = Home::new();
    let (_first, _gate) = holder(&home);
    let second = home.start("--job second --once --resource site --if-busy wait=1m -v", EFFECT);
    until("it waits", SOON, || second.err().contains("waiting"));
    second.signal(libc::SIGTERM);
    second.end().exits(128 + 15).saying("not run: interrupted by signal 15");
    assert_eq!(home.lines("effects").len(), 0);
}

#[test]
fn the_first_free_resource_is_taken_and_told() {
    let home = Home::new();
    let (first, mut gate) = holder(&home);
    home.run("--job second --slot 1 --resource site --or spare --or third", EFFECT).exits(0);
    assert_eq!(home.lines("effects"), ["spare"]);
    gate.open(1);
    first.end().exits(0);
    home.run("--job second --slot 2 --resource site --or spare", EFFECT).exits(0);
    assert_eq!(home.lines("effects"), ["spare", "site"]);
    home.run("--job second --slot 3 --resource site --or site", EFFECT).exits(78).saying("named twice");
}

#[test]
fn other_resources_are_not_in_the_way() {
    let home = Home::new();
    let (_first, _gate) = holder(&home);
    home.run("--job second --once", EFFECT).exits(0).silent();
    assert_eq!(home.lines("effects"), ["second"]);
}

#[test]
fn a_quick_command_can_keep_its_lease_for_a_while() {
    let home = Home::new();
    let start = Instant::now();
    home.run("--job a --slot 1 --hold-at-least 1500ms", EFFECT).exits(0);
    assert!(start.elapsed() < Duration::from_millis(1400), "the command is over: nobody waits for its lease");
    home.run("--job a --slot 2 --if-busy fail", EFFECT).exits(75);
    assert_eq!(home.lines("effects").len(), 1);
    home.run("--job a --slot 2 --if-busy wait=1m", EFFECT).exits(0);
    assert!(start.elapsed() >= Duration::from_millis(1500), "{:?}", start.elapsed());
    assert_eq!(home.lines("effects").len(), 2);
}

#[test]
fn after_a_lapse_a_lock_delay_lets_effects_drain() {
    let home = Home::new();
    let flags = "--resource site --ttl 1s --lock-delay 1s";
    let first =
        home.start(&format!("--job a --slot 1 {flags}"), "echo $SEMEL_TOKEN >> tokens; exec sleep 60");
    home.wait_lines("tokens", 1);
    let start = Instant::now();
    first.kill_9();
    // its tree is gone, but what it sent on its way may not be
    home.run("--job a --slot 2 --resource site --if-busy fail", "echo $SEMEL_TOKEN >> tokens").exits(75);
    home.run(&format!("--job a --slot 2 {flags} --if-busy wait=1m"), "echo $SEMEL_TOKEN >> tokens").exits(0);
    // the lease was renewed a third of its ttl ago at the most
    assert!(start.elapsed() >= Duration::from_millis(1600), "{:?}", start.elapsed());
    assert_eq!(home.ranks("tokens"), [1, 2]);
}

#[test]
fn after_a_release_there_is_no_lock_delay() {
    let home = Home::new();
    for slot in 1..=2 {
        let flags = format!("--job a --slot {slot} --lock-delay 1h --if-busy fail");
        home.run(&flags, EFFECT).exits(0).silent();
    }
    assert_eq!(home.lines("effects").len(), 2);
}

#[test]
fn thirty_at_a_time_never_overlap() {
    let home = Home::new();
    // mkdir succeeds for one at a time: an overlap is seen where it happens
    let script = "mkdir busy || echo overlap >> overlaps; sleep 0.01; rmdir busy; echo x >> effects";
    let flags = "--resource site --if-busy wait=2m";
    let runs: Vec<_> = (0..30).map(|n| home.start(&format!("--job a --slot {n} {flags}"), script)).collect();
    for run in runs {
        run.end().exits(0).silent();
    }
    assert_eq!(home.lines("effects").len(), 30);
    assert_eq!(home.lines("overlaps").len(), 0);
}

#[test]
fn control_plain_starts_overlap() {
    let home = Home::new();
    let script =
        "mkdir busy 2>/dev/null || echo overlap >> overlaps; sleep 0.3; rmdir busy 2>/dev/null; true";
    let runs: Vec<_> = (0..5).map(|_| home.launch(&mut home.script(script))).collect();
    for run in runs {
        run.end().exits(0);
    }
    assert!(!home.lines("overlaps").is_empty());
}
