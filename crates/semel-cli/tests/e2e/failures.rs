//! Exit codes, the cap on failures, retries.

use std::time::{Duration, Instant};

use crate::support::Home;

#[test]
fn the_commands_exit_code_is_passed_on() {
    let home = Home::new();
    for code in [1, 2, 3, 11, 64, 75, 79, 124, 126, 127, 130, 255] {
        let said = home.run(&format!("--job a --key {code}"), &format!("echo x >> effects; exit {code}"));
        said.exits(code).saying(&format!("failed with exit code {code}"));
    }
    assert_eq!(home.lines("effects").len(), 12);
}

#[test]
fn after_so_many_failures_a_person_is_needed() {
    let home = Home::new();
    let flags = "--job a --once --max-failures 2";
    home.run(flags, "echo x >> effects; exit 4").exits(4);
    home.run(flags, "echo x >> effects; exit 5").exits(5).saying("quarantined").saying("semel resolve a");
    for _ in 0..2 {
        home.run(flags, "echo x >> effects").exits(79).saying("not run: it is quarantined after 2 failures");
    }
    home.run("--job a --once --max-failures 0", "echo x >> effects").exits(79);
    assert_eq!(home.lines("effects").len(), 2);
    home.run("--job b --once --resource a", "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 3, "its resource is free");
}

#[test]
fn the_cap_is_three_unless_said_and_zero_is_none() {
    let home = Home::new();
    for code in [1, 1, 1, 79] {
        home.run("--job a --once", "exit 1").exits(code);
    }
    for _ in 0..5 {
        home.run("--job b --once --max-failures 0", "exit 1").exits(1);
        home.run("--job c --always --max-failures 1", "exit 1").exits(1);
    }
}

#[test]
fn a_success_ends_the_count() {
    let home = Home::new();
    for _ in 0..2 {
        home.run("--job a --once", "exit 1").exits(1);
    }
    home.run("--job a --once", "echo $SEMEL_ATTEMPT >> effects").exits(0).silent();
    let entry = home.entry("a");
    assert_eq!(
        (&entry["state"], &entry["failures"], &entry["attempts"]),
        (&"done".into(), &0.into(), &3.into())
    );
    assert_eq!(home.lines("effects"), ["3"]);
}

#[test]
fn retries_happen_inside_one_invocation() {
    let home = Home::new();
    let script =
        "echo $SEMEL_ATTEMPT >> effects; echo $SEMEL_TOKEN >> tokens; [ $SEMEL_ATTEMPT = 3 ] || exit 8";
    home.run("--job a --once --retries 2 --backoff 10ms", script).exits(0).saying("trying again in");
    assert_eq!(home.lines("effects"), ["1", "2", "3"], "growing attempts");
    assert_eq!(home.ranks("tokens"), [1, 1, 1], "one lease");
    let script = "echo x >> more; exit 9";
    home.run("--job b --once --retries 1 --backoff 10ms", script).exits(9);
    assert_eq!(home.lines("more").len(), 2);
}

#[test]
fn retries_end_at_the_cap() {
    let home = Home::new();
    let script = "echo x >> effects; exit 9";
    home.run("--job a --once --retries 9 --backoff 10ms --max-failures 3", script)
        .exits(9)
        .saying("quarantined");
    assert_eq!(home.lines("effects").len(), 3);
    home.run("--job a --once", script).exits(79);
    assert_eq!(home.lines("effects").len(), 3);
}

#[test]
fn the_pause_between_tries_grows_and_holds_the_lease() {
    let home = Home::new();
    let start = Instant::now();
    let run = home.start("--job a --once --ttl 1s --retries 2 --backoff 800ms", "echo x >> effects; exit 9");
    home.wait_lines("effects", 1);
    home.run("--job b --once --resource a --if-busy fail", "echo x >> b").exits(75);
    run.end().exits(9);
    // at least half of 800 ms and of 1600 ms
    assert!(start.elapsed() >= Duration::from_millis(1200), "{:?}", start.elapsed());
    assert_eq!((home.lines("effects").len(), home.lines("b").len()), (3, 0));
}

#[test]
fn a_pause_can_be_interrupted() {
    let home = Home::new();
    let run = home.start("--job a --once --retries 1 --backoff 10m", "echo x >> effects; exit 9");
    crate::support::until("it pauses", crate::support::SOON, || run.err().contains("trying again"));
    let start = Instant::now();
    run.signal(libc::SIGTERM);
    run.end();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn a_missing_program_is_127_and_leaves_nothing_on_record() {
    let home = Home::new();
    for words in [&["--", "no-such-program"][..], &["--", "./no/such"], &["--", ""]] {
        let mut command = home.semel(["run", "--job", "a", "--once", "--max-failures", "1"]);
        home.launch(command.args(words))
            .end()
            .exits(127)
            .saying("command not found")
            .saying("nothing is on record");
    }
    home.run("--job a --once", "echo $SEMEL_ATTEMPT >> effects").exits(0);
    assert_eq!(home.lines("effects"), ["1"]);
}

#[test]
fn a_program_that_cannot_be_executed_is_126_and_leaves_nothing_on_record() {
    let home = Home::new();
    home.write("data", "not a program");
    for word in ["./data", "/", "."] {
        let mut command = home.semel(["run", "--job", "a", "--once", "--", word]);
        home.launch(&mut command).end().exits(126).saying("cannot execute");
    }
    home.run("--job a --once", "echo $SEMEL_ATTEMPT >> effects").exits(0);
    assert_eq!(home.lines("effects"), ["1"]);
}

#[test]
fn a_program_that_the_system_refuses_to_start_is_a_failure() {
    let home = Home::new();
    let run = |name: &str| home.launch(&mut home.semel(["run", "--job", "a", "--once", "--", name])).end();
    home.executable_with("bad-interpreter", "#!/no/such/interpreter\n");
    let said = run("./bad-interpreter");
    assert!([126, 127].contains(&said.code), "{said:?}");
    said.saying("not run");
    // a script without a first line is run as a shell would run it
    home.executable_with("no-interpreter", "echo x >> effects\n");
    run("./no-interpreter").exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}
