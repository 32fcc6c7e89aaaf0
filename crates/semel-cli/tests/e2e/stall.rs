//! A holder that stalls: ended by its keeper in time, taken over, refused when it wakes.

use std::time::{Duration, Instant};

use crate::processes::{is_alive, kill};
use crate::support::{Home, Running, SOON, until, until_gone};

const FLAGS: &str = "--job a --once --ttl 1s";
const SLEEPER: &str = "echo $$ >> pids; echo $SEMEL_TOKEN >> tokens; exec sleep 300";

fn holder(home: &Home) -> (Running, i32) {
    let run = home.start(FLAGS, SLEEPER);
    home.wait_lines("tokens", 1);
    (run, home.numbers("pids")[0] as i32)
}

/// The one that takes over: it sees whether the first is still at it.
fn successor(home: &Home, first: i32) -> Running {
    let script = format!(
        "kill -0 {first} 2>/dev/null && echo x >> overlaps; echo $SEMEL_TOKEN >> tokens; read go < gate"
    );
    home.start(&format!("{FLAGS} --if-busy wait=1m"), &script)
}

#[test]
fn stopped_alone_its_keeper_ends_the_command_before_another_takes_over() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let (mut first, command) = holder(&home);
    first.signal(libc::SIGSTOP);
    let start = Instant::now();
    let second = successor(&home, command);
    until_gone(&[command.into()], SOON);
    assert!(
        start.elapsed() < Duration::from_millis(1500),
        "the deadline is 0.9 s after a renewal: {:?}",
        start.elapsed()
    );
    home.wait_lines("tokens", 2);
    assert_eq!(home.ranks("tokens"), [1, 2]);
    assert_eq!(home.lines("overlaps").len(), 0, "the command was ended inside the lease");
    assert!(!first.has_ended());
    // it wakes while the second is at it
    first.signal(libc::SIGCONT);
    first.end().exits(75).saying("lost its lease");
    gate.open(1);
    second.end().exits(0).silent();
    let entry = home.entry("a");
    assert_eq!((&entry["state"], &entry["attempts"]), (&"done".into(), &2.into()));
    assert_eq!(entry["log"][1]["ending"], "succeeded", "{entry}");
}

#[test]
fn stopped_with_its_whole_tree_it_stops_its_command_on_waking() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let (mut first, command) = holder(&home);
    let keeper = first.keeper(&home);
    for pid in [first.pid(), keeper, command] {
        kill(pid, libc::SIGSTOP);
    }
    gate.open(1);
    successor(&home, 0).end().exits(0).silent();
    assert_eq!(home.ranks("tokens"), [1, 2]);
    assert!(is_alive(command) && !first.has_ended());
    for pid in [command, keeper, first.pid()] {
        kill(pid, libc::SIGCONT);
    }
    first.end().exits(75).saying("lost its lease");
    assert!(!is_alive(command), "it is stopped before semel says so");
    let entry = home.entry("a");
    assert_eq!(entry["log"][1]["token"].as_i64(), Some(home.numbers("tokens")[1]));
    assert_eq!((&entry["state"], &entry["log"][1]["ending"]), (&"done".into(), &"succeeded".into()));
}

/// The same with a lock file that expires: the usual recipe.
#[test]
fn control_an_expiring_lock_file_lets_the_woken_holder_write() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let take = "now=$(date +%s%N); [ -e lock ] && [ $((now - $(cat lock))) -lt 300000000 ] && exit 75; echo $now > lock";
    let first = home
        .launch(&mut home.script(&format!("{take}; echo x >> holding; read go < gate; echo x >> effects")));
    home.wait_lines("holding", 1);
    first.signal(libc::SIGSTOP);
    let second = format!("{take}; echo x >> effects");
    until("the lock file has expired", SOON, || home.launch(&mut home.script(&second)).end().code == 0);
    gate.open(1);
    first.signal(libc::SIGCONT);
    first.end().exits(0);
    assert_eq!(home.lines("effects").len(), 2);
}

#[test]
fn a_short_stall_is_survived() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let run = home
        .start("--job a --once --ttl 6s", "echo $SEMEL_TOKEN >> tokens; read go < gate; echo x >> effects");
    home.wait_lines("tokens", 1);
    run.signal(libc::SIGSTOP);
    home.run("--job a --once --ttl 6s --if-busy wait=2500ms", "echo x >> effects").exits(0);
    run.signal(libc::SIGCONT);
    gate.open(1);
    run.end().exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

/// Stopped after its command had come to its end, woken after the lapse, and nobody had come: the outcome is
/// known, so it is not thrown away.
#[test]
fn a_success_that_was_had_before_the_stall_is_recorded_on_waking() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let run = home.start(FLAGS, "echo $$ >> pids; read go < gate; echo x >> effects");
    home.wait_lines("pids", 1);
    run.signal(libc::SIGSTOP);
    gate.open(1);
    home.wait_lines("effects", 1);
    until_gone(&home.numbers("pids"), SOON);
    until("the lease has lapsed", SOON, || home.ask("lease show a --json").json()["held"] == false);
    run.signal(libc::SIGCONT);
    run.end().exits(0);
    home.run(FLAGS, "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

/// As above, but somebody had come: the ledger has gone on.
#[test]
fn a_success_that_comes_too_late_is_refused() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let run = home.start(FLAGS, "echo $$ >> pids; read go < gate; echo $SEMEL_TOKEN >> tokens");
    home.wait_lines("pids", 1);
    run.signal(libc::SIGSTOP);
    gate.open(1);
    home.wait_lines("tokens", 1);
    until_gone(&home.numbers("pids"), SOON);
    home.run(&format!("{FLAGS} --if-busy wait=1m"), "echo $SEMEL_TOKEN >> tokens; exit 5").exits(5);
    run.signal(libc::SIGCONT);
    run.end().exits(75).saying("lease");
    assert_eq!(home.ranks("tokens"), [1, 2]);
    home.run(FLAGS, "echo $SEMEL_TOKEN >> tokens").exits(0);
    assert_eq!(home.ranks("tokens"), [1, 2, 3], "the failure of the second stands");
}

#[test]
fn a_long_run_keeps_its_lease() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let run = home.start(FLAGS, "echo $SEMEL_TOKEN >> tokens; read go < gate");
    home.wait_lines("tokens", 1);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2500) {
        home.run(&format!("{FLAGS} --if-busy fail"), "echo $SEMEL_TOKEN >> tokens").exits(75);
    }
    gate.open(1);
    run.end().exits(0).silent();
    assert_eq!(home.ranks("tokens"), [1]);
}
