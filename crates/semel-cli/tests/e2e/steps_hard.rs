//! Steps where the world around them is bad: a stdout that takes nothing, leftovers that never stop writing, limits,
//! programs that are gone, signals at the wrong moment.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use crate::processes::{is_alive, kill};
use crate::support::{Home, SOON, until};

#[test]
fn what_stdout_does_not_take_is_said_and_the_retry_replays_it() {
    let home = Home::new();
    let script = "$SEMEL step draft -- sh -c 'echo x >> effects; echo draft' > $TO || exit $?; echo posted >> effects; test -e ok";
    let run = |to: &str| home.launch(home.work("--job j --once", script).env("TO", to)).end();
    // as with a plain command, the script does not go on with a part of it
    run("/dev/full")
        .exits(1)
        .saying("step draft is done")
        .saying("could not be written to stdout: No space left");
    run("/dev/full").exits(1).saying("could not be written to stdout");
    assert_eq!(home.lines("effects"), ["x"]);
    std::fs::write(home.path("ok"), "").unwrap();
    run("draft.md").exits(0).silent();
    assert_eq!(
        (home.lines("effects"), home.lines("draft.md")),
        (vec!["x".into(), "posted".into()], vec!["draft".into()])
    );
    // a code of its own comes first, and a reader that went away is no fault
    home.run("--job k --once", "$SEMEL step a -- sh -c 'echo x; exit 4' > /dev/full; exit $?").exits(4);
    home.run("--job l --once", "$SEMEL step a -- sh -c 'seq 1 100000; echo $? > code' | true")
        .exits(0)
        .silent();
    assert_eq!(home.lines("code"), ["0"]);
}

#[test]
fn a_stdout_that_does_not_block_gets_all_of_it() {
    const MUCH: usize = 1_000_000;
    let home = Home::new();
    let script = format!("$SEMEL step a -- head -c {MUCH} /dev/zero; test -e ok");
    for code in [1, 0] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        // SAFETY: no memory is involved.
        assert_eq!(
            unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_WRONLY | libc::O_NONBLOCK) },
            0
        );
        let mut command = home.work("--job j --once", &script);
        let mut run = command.stdout(writer).stderr(std::process::Stdio::null()).spawn().unwrap();
        drop(command);
        until("the pipe is full", SOON, || {
            let mut waiting: libc::c_int = 0;
            // SAFETY: the number is valid for writes.
            unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &mut waiting) };
            waiting >= 65_536
        });
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!((all.len(), run.wait().unwrap().code()), (MUCH, Some(code)));
        std::fs::write(home.path("ok"), "").unwrap();
    }
}

#[test]
fn a_leftover_that_never_stops_writing_does_not_keep_the_step() {
    let home = Home::new();
    home.write("slow.py", "import os, time\nwhile os.read(0, 4096): time.sleep(0.002)");
    // the reader is slower than the leftover: there is always something to be read
    let script = "$SEMEL step a -- sh -c 'yes & exec sleep 0.1' | python3 slow.py; $SEMEL step b -- sh -c 'echo b >> effects'";
    home.run("--job j --once", script).exits(0);
    assert_eq!(home.lines("effects"), ["b"]);
}

#[test]
fn a_limit_on_the_size_of_files_costs_the_replay_and_not_the_step() {
    let home = Home::new();
    let script = "ulimit -f 8; $SEMEL step a -- sh -c 'echo x >> effects; head -c 1000000 /dev/zero' | wc -c > count; $SEMEL step b -- sh -c 'head -c 100000 /dev/zero > large'; echo $? > code";
    home.run("--job j --once", script)
        .exits(0)
        .saying("step a: its output is not kept")
        .saying("File too large");
    assert_eq!(home.lines("count"), ["1000000"]);
    // its command finds the limit as it was: ended by SIGXFSZ, or told so
    assert_ne!(home.lines("code"), ["0"]);
    // where the ledger itself cannot grow, nothing is run, and that is said
    let home = Home::new();
    let mut command = home.script("ulimit -f 1; exec $SEMEL run --job j --once -- sh -c 'echo x >> effects'");
    home.launch(command.env("SEMEL_STORE", home.store())).end().exits(69);
    assert_eq!(home.lines("effects").len(), 0);
}

#[test]
fn a_step_that_is_done_is_replayed_although_its_program_is_gone() {
    let home = Home::new();
    home.executable("install.sh", "echo installed; echo install >> effects");
    let script =
        "$SEMEL step install -- ./install.sh || exit $?; rm -f install.sh; $SEMEL step rest -- test -e ok";
    home.run("--job j --once", script).exits(1);
    std::fs::write(home.path("ok"), "").unwrap();
    assert_eq!(home.run("--job j --once", script).exits(0).text(), "installed");
    assert_eq!(home.lines("effects"), ["install"]);
    // one that was never there has failed, and is tried again
    let script = "$SEMEL step a -- ./later.sh; exit $?";
    home.run("--job k --once", script).exits(127).saying("step a: ./later.sh: command not found");
    home.executable("later.sh", "echo later >> effects");
    home.run("--job k --once", script).exits(0);
    assert_eq!(home.lines("effects"), ["install", "later"]);
}

#[test]
fn a_signal_while_the_outcome_is_recorded_does_not_lose_it() {
    let home = Home::new();
    let mut go = home.gate("go");
    // more than one piece: it is not recorded in one message
    let script = "$SEMEL step a -- sh -c 'echo $PPID $$ > pids; read go < go; exec head -c 1000000 /dev/zero' > out; echo $? > code";
    let run = home.start("--job j --once --ttl 60s", script);
    let pids = home.wait_lines("pids", 1);
    let pids: Vec<i32> = pids[0].split(' ').map(|pid| pid.parse().unwrap()).collect();
    run.signal(libc::SIGSTOP);
    go.open(1);
    // the command has ended, and its step waits for the run
    until("the step waits", SOON, || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pids[0])).unwrap();
        !is_alive(pids[1]) && stat.contains(") S ")
    });
    kill(pids[0], libc::SIGTERM);
    run.signal(libc::SIGCONT);
    run.end().exits(0);
    assert_eq!(home.lines("code"), ["0"]);
    assert_eq!(home.ask("--json show j~a").exits(0).json()["state"], "done");
}

#[test]
fn a_signal_reaches_the_command_although_nobody_reads_what_it_writes() {
    let home = Home::new();
    let mut go = home.gate("go");
    let script =
        "{ $SEMEL step a -- sh -c 'echo $PPID $$ > pids; exec yes'; echo $? > code; } | { read go < go; }";
    let run = home.start("--job j --once", script);
    let pids = home.wait_lines("pids", 1);
    let pids: Vec<i32> = pids[0].split(' ').map(|pid| pid.parse().unwrap()).collect();
    // both wait for a reader: the command in its pipe, the step in its own
    until("the pipes are full", SOON, || pids.iter().all(|pid| crate::processes::state(*pid) == Some('S')));
    kill(pids[0], libc::SIGTERM);
    until("the command is gone", SOON, || !is_alive(pids[1]));
    assert_eq!(home.wait_lines("code", 1), ["143"]);
    assert_eq!(home.ask("--json show j~a").exits(0).json()["state"], "open");
    go.open(1);
    run.end();
}

/// Ask the run at this address in so many words, and hear what it answers.
fn ask(stream: &mut UnixStream, capability: &str, ask: &str) -> String {
    let head = format!(r#"{{"v":1,"capability":"{capability}",{ask}}}"#);
    let lengths = [u32::try_from(head.len()).unwrap().to_le_bytes(), [0; 4]].concat();
    stream.write_all(&[&lengths, head.as_bytes()].concat()).unwrap();
    let mut size = [0; 8];
    stream.read_exact(&mut size).unwrap();
    let mut answer = vec![0; usize::from(size[0]) + 256 * usize::from(size[1])];
    stream.read_exact(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn what_a_strange_client_counts_and_answers_can_still_be_shown() {
    let home = Home::new();
    let mut go = home.gate("go");
    let run = home.start("--job j --once", "echo \"$SEMEL_RUN\" > address; read go < go; false");
    let address = home.wait_lines("address", 1).remove(0);
    let address: Vec<&str> = address.splitn(3, ':').collect();
    let most = u64::MAX;
    let wrote = format!(r#"{{"pieces":4294967295,"out_bytes":{most},"err_bytes":{most},"kept":true}}"#);
    let unknown = format!(r#"{{"ending":"probed_unknown","answer":"{}"}}"#, "é".repeat(50_000));
    for (name, ending, output) in [("a", r#"{"ending":"succeeded"}"#, &*wrote), ("b", &*unknown, "null")] {
        let mut stream = UnixStream::connect(address[2]).unwrap();
        let step = format!(r#""ask":"step","name":"{name}","nth":1,"on_lost":"hold","command":null"#);
        assert!(ask(&mut stream, address[1], &step).contains("run"));
        let settle = format!(r#""ask":"settle","ending":{ending},"output":{output}"#);
        assert!(ask(&mut stream, address[1], &settle).contains("settled"));
    }
    go.open(1);
    let said = run.end().exits(79);
    assert!(said.err.len() < 10_000, "{} bytes", said.err.len());
    assert!(home.ask("show j").exits(0).text().contains(&format!("{most} bytes")));
    assert!(home.ask("why j~b").exits(0).text().len() < 20_000);
}
