//! A batch whose input comes slowly: what is under way does not wait for it.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Home, SOON, until};

const NOTE: &str = "echo \"$1\" >> begun";

fn batch(home: &Home, flags: &str, script: &str) -> Command {
    let mut command = home.semel(["batch", "-", "--format", "lines"]);
    command.args(flags.split_whitespace()).args(["--", "sh", "-c", script, "sh", "{line}"]);
    command.stdin(Stdio::piped());
    command
}

#[test]
fn an_item_is_done_and_the_lease_kept_while_the_input_has_nothing_to_say() {
    let home = Home::new();
    let mut run = home.launch(&mut batch(&home, "--job slow --ttl 2s", NOTE));
    let mut input = run.take_stdin();
    input.write_all(b"a\n").unwrap();
    home.wait_lines("begun", 1);
    until("the outcome is on record", SOON, || home.ask("ls --job slow --json").text().contains("\"done\""));
    // longer than the lease lives without a heartbeat
    let lapse = std::time::Instant::now() + Duration::from_secs(4);
    until("the lease would have lapsed", SOON, || std::time::Instant::now() >= lapse);
    input.write_all(b"b\n").unwrap();
    drop(input);
    run.end().exits(0).saying("done 2");
    assert_eq!(home.lines("begun"), ["a", "b"]);
}

#[test]
fn a_signal_ends_a_batch_whose_input_has_nothing_to_say() {
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGINT, 130)] {
        let home = Home::new();
        let mut run = home.launch(&mut batch(&home, "--job slow", NOTE));
        let mut input = run.take_stdin();
        input.write_all(b"a\n").unwrap();
        home.wait_lines("begun", 1);
        run.signal(signal);
        until("it has ended", SOON, || run.has_ended());
        run.end().exits(code);
        drop(input);
    }
}

#[test]
fn an_interrupt_ends_the_batch_and_not_only_its_item() {
    let home = Home::new();
    let mut run = home.launch(&mut batch(&home, "--job list", &format!("{NOTE}; exec sleep 600")));
    let mut input = run.take_stdin();
    input.write_all(b"a\nb\nc\n").unwrap();
    drop(input);
    home.wait_lines("begun", 1);
    run.signal(libc::SIGINT);
    until("it has ended", SOON, || run.has_ended());
    run.end().exits(130);
    assert_eq!(home.lines("begun"), ["a"]);
}

#[test]
fn a_probe_is_told_which_item_it_is_asked_about() {
    let home = Home::new();
    home.write("items", "a\n");
    let semel = |script: &str| {
        let mut command = home.semel(["batch", "items", "--format", "lines", "--job", "probed"]);
        command.args(["--on-lost", "probe", "--probe", "cat \"$SEMEL_ITEM\" >> asked; echo >> asked"]);
        // a holder that is not provably gone yet is waited for
        command.args(["--if-busy", "wait=25s", "--", "sh", "-c", script]);
        command
    };
    let run = home.launch(&mut semel("echo >> begun; exec sleep 600"));
    home.wait_lines("begun", 1);
    run.kill_9();
    home.launch(&mut semel("echo >> begun")).end().exits(0);
    assert_eq!(home.lines("asked"), ["a"]);
    assert_eq!(home.lines("begun").len(), 1);
}
