//! What a run costs: durable commits, counted by the kernel, and memory.

use crate::processes::resident_kib;
use crate::support::{Home, SOON, until};

/// The syncs of one `semel run FLAGS -- true`.
#[track_caller]
fn syncs(home: &Home, flags: &str, code: i32) -> usize {
    let trace = home.path("trace");
    let mut command = home.plain("strace");
    command.args(["-f", "-qq", "-e", "signal=none"]);
    command.args(["-e", "trace=fsync,fdatasync,sync_file_range,msync,syncfs,sync", "-o"]).arg(&trace);
    command.args([env!("CARGO_BIN_EXE_semel"), "run"]).args(flags.split_whitespace()).args(["--", "true"]);
    assert!(
        std::path::Path::new("/usr/bin/strace").exists(),
        "strace is missing: install it, it counts the durable commits that semel makes"
    );
    home.launch(command.env("SEMEL_STORE", home.store())).end().exits(code);
    let text = std::fs::read_to_string(&trace).unwrap();
    text.lines().filter(|line| line.contains("sync") && !line.contains("resumed>")).count()
}

/// A ledger that is there.
fn used() -> Home {
    let home = Home::new();
    home.run("--job first --once", "true").exits(0);
    home
}

#[test]
fn control_strace_sees_a_sync() {
    let home = Home::new();
    let trace = home.path("trace");
    let mut command = home.plain("strace");
    command.args(["-f", "-qq", "-e", "trace=fsync,fdatasync", "-o"]).arg(&trace);
    command.args(["dd", "if=/dev/zero", "of=file", "count=1", "conv=fsync"]);
    home.launch(&mut command).end().exits(0);
    assert_eq!(std::fs::read_to_string(&trace).unwrap().lines().count(), 1);
}

#[test]
fn a_fresh_run_makes_two_durable_commits_and_never_a_third() {
    let home = used();
    for n in 0..3 {
        assert_eq!(syncs(&home, &format!("--job a --slot {n}"), 0), 2);
    }
    assert_eq!(syncs(&home, "--job a --always", 0), 2);
    assert_eq!(syncs(&home, "--job a --always --hold-at-least 1ms", 0), 2);
}

#[test]
fn a_skip_makes_none() {
    let home = used();
    assert_eq!(syncs(&home, "--job first --once", 0), 0);
    let mut gate = home.gate("gate");
    let run = home.start("--job long --once", "echo x >> ready; read go < gate");
    home.wait_lines("ready", 1);
    assert_eq!(syncs(&home, "--job long --once", 0), 0);
    assert_eq!(syncs(&home, "--job other --once --resource long", 0), 0);
    assert_eq!(syncs(&home, "--job other --once --resource long --if-busy fail", 75), 0);
    gate.open(1);
    run.end().exits(0);
}

#[test]
fn a_takeover_makes_two() {
    let home = used();
    let run = home.start("--job a --once", "echo x >> ready; exec sleep 300");
    home.wait_lines("ready", 1);
    run.kill_9();
    until("its tree is gone", SOON, || home.alive().is_empty());
    assert_eq!(syncs(&home, "--job a --once", 0), 2);
}

#[test]
fn a_run_after_a_failure_makes_two_and_a_refusal_none() {
    let home = used();
    home.run("--job a --once --max-failures 2", "exit 3").exits(3);
    home.run("--job a --once --max-failures 2", "exit 3").exits(3);
    assert_eq!(syncs(&home, "--job a --once --max-failures 2", 79), 0);
    home.run("--job b --once", "exit 3").exits(3);
    assert_eq!(syncs(&home, "--job b --once", 0), 2);
}

#[test]
fn memory_while_it_supervises() {
    let home = used();
    let run = home.start("--job a --once --ttl 1s", "echo x >> ready; exec sleep 300");
    home.wait_lines("ready", 1);
    let kib = resident_kib(run.pid());
    println!("semel: {kib} KiB resident");
    // a build without optimisation is larger; the bench asks 12 MiB of a release build
    assert!(kib <= 30 * 1024, "{kib} KiB");
    run.signal(libc::SIGTERM);
    run.end();
}
