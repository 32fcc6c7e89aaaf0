//! Signals reach the command; an end by them is no failure.

use std::time::{Duration, Instant};

use crate::support::{Home, Running};

/// Start it and wait until it says that it is ready.
fn ready(home: &Home, flags: &str, script: &str) -> Running {
    let before = home.lines("ready").len();
    let run = home.start(flags, script);
    home.wait_lines("ready", before + 1);
    run
}

const PLAIN: &str = "echo x >> ready; exec sleep 300";

#[test]
fn a_signal_is_forwarded_and_the_commands_own_end_is_reported() {
    for (signo, name) in
        [(libc::SIGTERM, "TERM"), (libc::SIGINT, "INT"), (libc::SIGHUP, "HUP"), (libc::SIGQUIT, "QUIT")]
    {
        let home = Home::new();
        let script = format!("trap 'echo x >> got; exit 3' {name}; sleep 300 & echo x >> ready; wait");
        let run = ready(&home, "--job a --once", &script);
        run.signal(signo);
        run.end().exits(3).saying(&format!("interrupted by signal {signo}"));
        assert_eq!(home.lines("got").len(), 1, "{name} comes once");
        let run = ready(&home, "--job b --once", &format!("ulimit -c 0; {PLAIN}"));
        run.signal(signo);
        run.end().exits(128 + signo);
        assert_eq!(home.alive(), [0; 0]);
    }
}

#[test]
fn interruptions_do_not_count_toward_the_cap() {
    let home = Home::new();
    for _ in 0..3 {
        let run = ready(&home, "--job a --once --max-failures 1", PLAIN);
        run.signal(libc::SIGTERM);
        run.end().exits(128 + 15);
    }
    home.run("--job a --once --max-failures 1", "echo $SEMEL_ATTEMPT >> effects").exits(0).silent();
    assert_eq!(home.lines("effects"), ["4"]);
}

#[test]
fn a_command_that_succeeds_in_spite_of_the_signal_is_done() {
    let home = Home::new();
    let script = "trap 'echo x >> effects; exit 0' TERM; sleep 300 & echo x >> ready; wait";
    let run = ready(&home, "--job a --once", script);
    run.signal(libc::SIGTERM);
    run.end().exits(0).silent();
    home.run("--job a --once", "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn a_command_that_ignores_term_is_killed_after_the_grace() {
    let home = Home::new();
    let script = "trap '' TERM; echo x >> ready; while :; do sleep 0.1; done";
    let run = ready(&home, "--job a --once --ttl 3s --kill-after 500ms", script);
    let start = Instant::now();
    run.signal(libc::SIGTERM);
    run.end().exits(128 + 9).saying("interrupted by signal 15");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(500) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(home.alive(), [0; 0]);
    home.run("--job a --once --max-failures 1", "echo x >> effects").exits(0);
}

#[test]
fn a_command_that_ignores_int_goes_on() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let script = "trap '' INT; echo x >> ready; read go < gate; echo x >> effects";
    let run = ready(&home, "--job a --once --ttl 3s --kill-after 100ms", script);
    run.signal(libc::SIGINT);
    gate.open(1);
    run.end().exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn a_timeout_is_124_after_a_grace_and_counts_as_a_failure() {
    let home = Home::new();
    let flags = "--job a --once --timeout 300ms --kill-after 5s --max-failures 1";
    let script = "trap 'echo x >> got; exit 0' TERM; echo x >> ready; sleep 300 & wait";
    home.run(flags, script).exits(124).saying("ran longer than --timeout").saying("quarantined");
    assert_eq!(home.lines("got").len(), 1, "it is asked before it is killed");
    home.run(flags, script).exits(79);
    assert_eq!((home.lines("ready").len(), home.alive()), (1, Vec::new()));
}

#[test]
fn a_command_that_ignores_the_timeout_is_killed() {
    let home = Home::new();
    let flags = "--job a --once --timeout 200ms --kill-after 300ms";
    let start = Instant::now();
    let script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 300' & while :; do sleep 0.1; done";
    home.run(flags, script).exits(124);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(home.alive(), [0; 0]);
}

#[test]
fn a_command_ended_by_a_signal_is_128_and_more_and_a_failure() {
    let home = Home::new();
    for (n, signo) in [libc::SIGKILL, libc::SIGSEGV, libc::SIGTERM, libc::SIGPIPE].into_iter().enumerate() {
        let script = format!("ulimit -c 0; kill -{signo} $$");
        let flags = format!("--job a --slot {n} --max-failures 1");
        home.run(&flags, &script).exits(128 + signo).saying(&format!("ended by signal {signo}"));
        home.run(&flags, &script).exits(79);
    }
}

#[test]
fn what_the_command_leaves_behind_is_ended_with_it() {
    let home = Home::new();
    let script = "setsid sh -c 'trap \"\" HUP; exec sleep 300' > /dev/null 2>&1 & sleep 300 & exit 0";
    home.run("--job a --once -v --ttl 3s --kill-after 300ms", script)
        .exits(0)
        .saying("left behind were ended");
    assert_eq!(home.alive(), [0; 0]);
}
