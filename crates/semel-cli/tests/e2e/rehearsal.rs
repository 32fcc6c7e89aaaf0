//! A rehearsal: the script runs, nothing is claimed, and what is inside it only says what it would do.

use crate::support::Home;

const SCRIPT: &str = "set -e
    $SEMEL step one -- sh -c 'echo one; echo one >> effects'
    $SEMEL step two -- sh -c 'echo two; echo two >> effects'
    echo content | $SEMEL write target
    $SEMEL gate -- sh -c 'echo gated >> effects'
    echo \"${SEMEL_TOKEN-none} ${SEMEL_NONCE-none} $SEMEL_REHEARSAL\" > told";

#[test]
fn nothing_is_claimed_and_nothing_is_touched() {
    let home = Home::new();
    let said = home
        .run("--job j --once --rehearse", SCRIPT)
        .exits(0)
        .saying("rehearsal: a run of j would run it for the first time, holding j")
        .saying("rehearsal: the step one would be run (attempt 1)")
        .saying("rehearsal: the step two would be run (attempt 1)")
        .saying("rehearsal: 8 bytes would be written to target")
        .saying("rehearsal: the gate would check the lease, and execute ")
        .saying("rehearsal: its command ended with 0; nothing is on record");
    assert_eq!(said.text(), "");
    assert_eq!(home.lines("effects").len(), 0);
    assert!(!home.path("target").exists() && !home.path("target.fence").exists());
    assert_eq!(home.lines("told"), ["none none 1"], "no token that a fence would take");
    assert!(!home.database().exists(), "not even a ledger is made");
    assert_eq!(std::fs::read_dir(home.state_dir().join("run")).unwrap().count(), 0);
    // and the run itself is as if nothing had been
    home.run("--job j --once", SCRIPT).exits(0);
    assert_eq!(home.lines("effects"), ["one", "two", "gated"]);
    home.run("--job j --once --rehearse", SCRIPT).exits(0).saying("would skip it: it is done");
    assert_eq!(home.lines("effects").len(), 3);
}

#[test]
fn what_is_done_is_replayed_and_what_is_in_doubt_is_said() {
    let home = Home::new();
    let script =
        "$SEMEL step one -- sh -c 'echo one; echo one >> effects'; $SEMEL step two -- sh -c 'kill -9 $$'";
    home.run("--job j --once", script).exits(137);
    let said = home.run("--job j --once --rehearse", script).exits(0);
    assert_eq!(said.text(), "one");
    let said = said.saying("the step two would not be run: it is in_doubt");
    drop(said);
    assert_eq!(home.lines("effects"), ["one"]);
    // what is typed now counts, not what was typed then
    let idempotent = script.replace("step two", "step two --idempotent");
    home.run("--job j --once --rehearse", &idempotent)
        .exits(0)
        .saying("the step two would be run (attempt 2)");
    // the rehearsal has not put it in doubt: the run does
    assert_eq!(home.ask("ls --needs-me").exits(0).text(), "");
    home.run("--job j --once", script).exits(79);
    home.run("--job j --once --rehearse", script).exits(0).saying("it is in_doubt");
}

#[test]
fn it_hands_on_the_commands_code_and_yields_to_a_run_that_is_going_on() {
    let home = Home::new();
    home.run("--job j --once --rehearse", "exit 7").exits(7);
    let mut go = home.gate("go");
    let run = home.start("--job j --once", "echo x >> started; read go < go");
    home.wait_lines("started", 1);
    home.run("--job j --once --rehearse", "echo x >> started").exits(0).saying("would yield");
    go.open(1);
    run.end().exits(0);
    assert_eq!(home.lines("started").len(), 1);
    home.run("--job k --once --rehearse", "$SEMEL step a -- true; $SEMEL step a -- true; exit $?")
        .exits(78)
        .saying("used twice");
}
