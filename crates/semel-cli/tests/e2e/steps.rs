//! Steps: done once, replayed byte for byte, in doubt where nobody can know.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::{Home, SOON, skipped, until};

/// A step that appends its name to `effects`.
fn effect(name: &str) -> String {
    format!("$SEMEL step {name} -- sh -c 'echo {name} >> effects'")
}

#[test]
fn a_retry_replays_what_is_done_byte_for_byte_and_runs_only_the_rest() {
    let home = Home::new();
    let script = r#"
        $SEMEL step bytes -- sh -c 'echo x >> effects; printf "\000\377\nout\r"; printf "\033[1mE\200" >&2; printf tail' || exit 9
        $SEMEL step last -- sh -c 'echo last >> effects; test -e ok'
    "#;
    let first = home.run("--job j --once", script).exits(1);
    std::fs::write(home.path("ok"), "").unwrap();
    let second = home.run("--job j --once", script).exits(0);
    assert_eq!(first.out, b"\x00\xff\nout\rtail");
    assert_eq!(second.out, first.out);
    let raw = |n: u32| std::fs::read(home.path(&format!("err.{n}"))).unwrap();
    assert!(raw(0).starts_with(b"\x1b[1mE\x80") && raw(1) == b"\x1b[1mE\x80", "{:?} {:?}", raw(0), raw(1));
    assert_eq!(home.lines("effects"), ["x", "last", "last"]);
}

#[test]
fn control_a_plain_script_repeats_what_was_done() {
    let home = Home::new();
    let script = "echo x >> effects; echo last >> effects; test -e ok";
    home.run("--job j --once", script).exits(1);
    std::fs::write(home.path("ok"), "").unwrap();
    home.run("--job j --once", script).exits(0);
    assert_eq!(home.lines("effects"), ["x", "last", "x", "last"]);
}

#[test]
fn verbose_says_that_it_was_not_run_again() {
    let home = Home::new();
    let script = "$SEMEL -v step a -- sh -c 'echo a >> effects' && test -e ok";
    home.run("--job j --once", script).exits(1).saying("step a ended with 0 (attempt 1)");
    std::fs::write(home.path("ok"), "").unwrap();
    home.run("--job j --once", script).exits(0).saying("step a is done (attempt 1, ").saying("not run again");
    assert_eq!(home.lines("effects"), ["a"]);
}

#[test]
fn a_failed_step_hands_on_its_code_and_is_run_again() {
    let home = Home::new();
    let script = "$SEMEL step a -- sh -c 'echo a >> effects; echo out; exit 7'; exit $?";
    home.run("--job j --once", script).exits(7);
    home.run("--job j --once", script).exits(7);
    assert_eq!(home.lines("effects").len(), 2);
    // and in one run, by the script's own loop
    let script = "n=0; until $SEMEL step b -- sh -c 'echo b >> loop; test $(wc -l < loop) = 3'; do n=$((n+1)); test $n -lt 9 || exit 1; done";
    home.run("--job k --once", script).exits(0);
    assert_eq!(home.lines("loop").len(), 3);
}

#[test]
fn retries_inside_one_invocation_replay_too() {
    let home = Home::new();
    let script =
        "$SEMEL step a -- sh -c 'echo a >> effects' && echo try >> tries && test $(wc -l < tries) = 2";
    home.run("--job j --once --retries 3 --backoff 10ms", script).exits(0);
    assert_eq!((home.lines("effects").len(), home.lines("tries").len()), (1, 2));
}

#[test]
fn a_step_that_was_killed_is_in_doubt_and_a_person_settles_it() {
    let home = Home::new();
    let script = "set -e; $SEMEL step before -- sh -c 'echo before >> effects'; $SEMEL step send -- sh -c 'echo send >> effects; kill -9 $$'; echo after >> effects";
    home.run("--job mail --slot 2026-06-19", script).exits(137);
    // nobody can know: it is not run again, the run ends with 79 and one line says what to type
    let said = home.run("--job mail --slot 2026-06-19", script).exits(79);
    assert_eq!(said.err.matches("semel resolve").count(), 1, "{}", said.err);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    let said = said
        .saying("its step send is in doubt")
        .saying("semel resolve 'mail@2026-06-19~send' --done|--not-done|--retry --because TEXT");
    drop(said);
    assert_eq!(home.lines("effects"), ["before", "send"]);
    let listed = home.ask("ls --needs-me").exits(0).text();
    assert!(listed.contains("mail@2026-06-19~send") && listed.contains("in_doubt"), "{listed}");
    assert!(home.ask("status").exits(0).text().contains("mail@2026-06-19~send"));
    // it happened: never again
    home.ask("resolve mail@2026-06-19~send --done --because seen-in-the-outbox").exits(0);
    assert_eq!(home.ask("ls --needs-me").exits(0).text(), "");
    home.run("--job mail --slot 2026-06-19", script).exits(0);
    assert_eq!(home.lines("effects"), ["before", "send", "after"]);
    let why = home.ask("why mail@2026-06-19~send").exits(0).text();
    assert!(why.contains("said done (it was in_doubt), because: seen-in-the-outbox"), "{why}");
}

#[test]
fn a_person_may_say_that_it_did_not_happen() {
    let home = Home::new();
    let script =
        "$SEMEL step send -- sh -c 'test -e crashed || { touch crashed; kill -9 $$; }; echo send >> effects'";
    home.run("--job mail --once", script).exits(137);
    home.run("--job mail --once", script).exits(79);
    home.ask("resolve mail~send --not-done --because nothing-in-the-outbox").exits(0);
    home.run("--job mail --once", script).exits(0);
    assert_eq!(home.lines("effects"), ["send"]);
}

#[test]
fn a_script_that_goes_on_regardless_does_not_make_the_run_done() {
    let home = Home::new();
    let script = "$SEMEL step a -- sh -c 'kill -9 $$'; true";
    home.run("--job j --once", script).exits(0);
    // done is done: the script said that it does not mind
    let home = Home::new();
    home.run("--job j --once", "$SEMEL step a -- sh -c 'kill -9 $$'; false").exits(1);
    home.run("--job j --once", script).exits(79).saying("its step a is in doubt");
    let shown = home.ask("--json show j").exits(0).json();
    assert_eq!((shown["state"].as_str(), shown["entry"]["failures"].as_u64()), (Some("open"), Some(1)));
}

#[test]
fn idempotent_is_run_again_and_a_probe_is_asked() {
    let home = Home::new();
    let crash = "test -e crashed || { touch crashed; kill -9 $$; }";
    for (job, flags) in [("a", "--idempotent"), ("b", "--on-lost retry")] {
        let script = format!("$SEMEL step s {flags} -- sh -c 'echo {job} >> effects; {crash}{job}'");
        let script = script.replace("crashed", &format!("crashed{job}")).replace(&format!("}}{job}"), "}");
        home.run(&format!("--job {job} --once"), &script).exits(137);
        home.run(&format!("--job {job} --once"), &script).exits(0);
        assert_eq!(home.lines("effects").iter().filter(|line| *line == job).count(), 2, "{job}");
    }
    // the probe finds it: done without another run
    let script = "$SEMEL step s --probe 'grep -q sent outbox' -- sh -c 'echo sent >> outbox; kill -9 $$'";
    home.run("--job p --once", script).exits(137);
    home.run("--job p --once", script).exits(0);
    assert_eq!(home.lines("outbox"), ["sent"]);
    // the probe does not find it
    let script = "$SEMEL step s --probe 'grep -q sent nobox; test $? = 0' -- sh -c 'test -e c || { touch c; kill -9 $$; }; echo sent >> nobox'";
    home.run("--job q --once", script).exits(137);
    home.run("--job q --once", script).exits(0);
    assert_eq!(home.lines("nobox"), ["sent"]);
    // the probe cannot tell
    let script = "$SEMEL step s --probe 'exit 3' -- sh -c 'kill -9 $$'";
    home.run("--job r --once", script).exits(137);
    home.run("--job r --once", script).exits(79).saying("the probe answered 3");
}

#[test]
fn one_name_twice_is_an_error_that_says_what_to_do() {
    let home = Home::new();
    let script = format!("{}; {}; exit $?", effect("a"), effect("a"));
    home.run("--job j --once", &script)
        .exits(78)
        .saying("step a is used twice in this run")
        .saying("--nth 2");
    assert_eq!(home.lines("effects"), ["a"]);
    let path = home.executable("publish.sh", &format!("{}\n\n{}", effect("b"), effect("b")));
    let mut command = home.semel(["run", "--job", "l", "--once", "--"]);
    home.launch(command.arg(path)).end().exits(78).saying("publish.sh lines 2 and 4");
    // numbered, each is an effect of its own, replayed by its number
    let script = "for n in 1 2 3; do $SEMEL step up --nth $n -- sh -c \"echo $n; echo $n >> ups\" || exit 1; done; test -e ok";
    let first = home.run("--job k --once", script).exits(1);
    std::fs::write(home.path("ok"), "").unwrap();
    let second = home.run("--job k --once", script).exits(0);
    assert_eq!((first.text(), second.text()), ("1\n2\n3".into(), "1\n2\n3".into()));
    assert_eq!(home.lines("ups"), ["1", "2", "3"]);
}

#[test]
fn steps_at_the_same_time_work() {
    let home = Home::new();
    let script =
        "for n in $(seq 1 20); do $SEMEL step s$n -- sh -c \"echo $n >> effects\" & done; wait; test -e ok";
    home.run("--job j --once", script).exits(1);
    assert_eq!(home.lines("effects").len(), 20);
    std::fs::write(home.path("ok"), "").unwrap();
    home.run("--job j --once", script).exits(0);
    assert_eq!(home.lines("effects").len(), 20);
}

#[test]
fn output_past_the_limit_is_streamed_and_not_kept() {
    let home = Home::new();
    let script = "$SEMEL step big --output-limit 64KiB -- sh -c 'echo x >> effects; head -c 100000 /dev/zero' && test -e ok";
    let first = home.run("--job j --once", script).exits(1).saying("its output is not kept");
    assert_eq!(first.out.len(), 100_000);
    std::fs::write(home.path("ok"), "").unwrap();
    let second = home.run("--job j --once", script).exits(0).saying("step big is done, output not kept");
    assert_eq!((second.out.len(), home.lines("effects").len()), (0, 1));
}

#[test]
fn much_output_is_replayed_whole_and_never_held_in_memory() {
    let home = Home::new();
    // 15 MiB of both streams, in pieces beside the ledger
    let script = "$SEMEL step big -- python3 -c '
import sys, resource
for n in range(120):
    sys.stdout.buffer.write(bytes([n]) * 65536); sys.stdout.flush()
    sys.stderr.buffer.write(bytes([255 - n]) * 65536); sys.stderr.flush()
' && test -e ok";
    let first = home.run("--job j --once", script).exits(1);
    std::fs::write(home.path("ok"), "").unwrap();
    // what a step without output needs for its program, and half of what it replays
    let other = Home::new();
    let fits = (24_000..400_000).step_by(2_000).find(|kb| {
        let small = format!("ulimit -v {kb}; $SEMEL step small -- true");
        other.run(&format!("--job small --with kb={kb}"), &small).code == 0
    });
    let limit = fits.unwrap() + 8_000;
    let second = home.run("--job j --once", &format!("ulimit -v {limit}; {script}")).exits(0);
    assert_eq!(first.out.len(), 120 * 65536);
    assert!(first.out == second.out);
    let raw = |n: u32| std::fs::read(home.path(&format!("err.{n}"))).unwrap();
    assert!(raw(0).starts_with(&raw(1)) && raw(1).len() == 120 * 65536);
}

#[test]
fn the_idempotency_key_is_the_same_on_every_retry_and_differs_between_steps() {
    let home = Home::new();
    let script = "$SEMEL step a -- sh -c 'echo $SEMEL_IDEMPOTENCY_KEY $SEMEL_STEP >> keys; false'; $SEMEL step b -- sh -c 'echo $SEMEL_IDEMPOTENCY_KEY $SEMEL_STEP >> keys; false'";
    home.run("--job j --once", script).exits(1);
    home.run("--job j --once", script).exits(1);
    let keys = home.lines("keys");
    assert_eq!((keys.len(), &keys[0], &keys[1]), (4, &keys[2], &keys[3]));
    assert_ne!(keys[0].split(' ').next(), keys[1].split(' ').next());
    let shown = home.ask("--json show j~a").exits(0).json();
    assert_eq!(format!("{} a", shown["key"].as_str().unwrap()), keys[0]);
}

#[test]
fn outside_of_a_run_and_where_there_is_nothing_to_retry_it_says_so() {
    let home = Home::new();
    home.ask("step a -- true").exits(78).saying("is not inside a run").saying("semel run");
    home.run("--job j --always", "$SEMEL step a -- true; exit $?").exits(78).saying("--always has no steps");
    home.launch(&mut home.semel(["lease", "hold", "r", "--", "sh", "-c", "$SEMEL step a -- true; exit $?"]))
        .end()
        .exits(78)
        .saying("a lease without a ledger has no steps");
    for bad in ["", "-x", "a b"] {
        home.launch(&mut home.semel(["step", bad, "--", "true"])).end().exits(78);
    }
    home.run("--job k --once", "$SEMEL step a; exit $?").exits(78).saying("no command");
    home.run("--job l --once", "$SEMEL step a -- no-such-program; exit $?").exits(127).saying("not found");
    home.run("--job m --once", "$SEMEL step a --nth 0 -- true; exit $?").exits(78);
    home.run("--job n --once", "$SEMEL step a --output-limit 3x -- true; exit $?").exits(78);
}

#[test]
fn the_stores_address_is_not_in_the_commands_environment() {
    let home = Home::new();
    home.run("--job j --once", "$SEMEL step a -- env > vars").exits(0);
    let vars = home.lines("vars").join("\n");
    assert!(vars.contains("SEMEL_RUN=") && !vars.contains("SEMEL_STORE"), "{vars}");
}

#[test]
fn a_step_process_that_is_killed_takes_its_command_along_and_leaves_it_in_doubt() {
    let home = Home::new();
    let mut gate = home.gate("go");
    let script = "$SEMEL step a -- sh -c 'echo $PPID $$ > pids; read go < go; echo late >> effects'; exit $?";
    let run = home.start("--job j --once", script);
    let pids = home.wait_lines("pids", 1);
    let pids: Vec<i32> = pids[0].split(' ').map(|pid| pid.parse().unwrap()).collect();
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pids[0], libc::SIGKILL) };
    run.end().exits(137);
    gate.open(1);
    until("its command is gone", SOON, || !home.alive().contains(&pids[1]));
    assert_eq!(home.lines("effects").len(), 0);
    home.run("--job j --once", "$SEMEL step a -- true; exit $?").exits(79);
}

#[test]
fn a_run_that_is_killed_leaves_its_step_in_doubt() {
    let home = Home::new();
    let script = "$SEMEL step a -- sh -c 'echo a >> effects; exec sleep 60'";
    let run = home.start("--job j --once", script);
    home.wait_lines("effects", 1);
    run.kill_9();
    until("nothing of it is left", SOON, || home.alive().is_empty());
    home.run("--job j --once", script).exits(79).saying("its last attempt vanished");
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn an_interrupted_step_is_in_doubt_unless_it_succeeded() {
    let home = Home::new();
    let script = "$SEMEL step a -- sh -c 'trap \"exit 0\" TERM; echo a >> effects; while :; do sleep 0.01; done'; $SEMEL step b -- true";
    let run = home.start("--job j --once", script);
    home.wait_lines("effects", 1);
    run.signal(libc::SIGTERM);
    run.end();
    assert_eq!(home.ask("--json show j~a").exits(0).json()["state"], "done");
    let script = "$SEMEL step a -- sh -c 'echo a >> more; exec sleep 60'";
    let run = home.start("--job k --once", script);
    home.wait_lines("more", 1);
    run.signal(libc::SIGTERM);
    run.end();
    home.run("--job k --once", script).exits(79);
    assert_eq!(home.lines("more").len(), 1);
}

#[test]
fn a_stopped_run_stalls_its_nested_commands() {
    let home = Home::new();
    let mut go = home.gate("go");
    let script = "echo ready > ready; read go < go; $SEMEL step a -- sh -c 'echo a >> effects'; $SEMEL gate -- sh -c 'echo gated >> effects'";
    let run = home.start("--job j --once --ttl 30s", script);
    home.wait_lines("ready", 1);
    run.signal(libc::SIGSTOP);
    go.open(1);
    // the step has asked, and waits for its answer
    until("the step waits", SOON, || {
        home.alive().iter().any(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.windows(4).any(|w| w == b"step"))
                && std::fs::read_to_string(format!("/proc/{pid}/syscall"))
                    .is_ok_and(|call| call.starts_with("45 ") || call.starts_with("0 "))
        })
    });
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(home.lines("effects").len(), 0, "nothing passes a stalled run");
    run.signal(libc::SIGCONT);
    run.end().exits(0);
    assert_eq!(home.lines("effects"), ["a", "gated"]);
}

#[test]
fn a_dead_run_refuses_its_nested_commands_at_once() {
    let home = Home::new();
    let run = home.start("--job j --once", "echo \"$SEMEL_RUN\" > address; exec sleep 60");
    let address = home.wait_lines("address", 1).remove(0);
    run.kill_9();
    until("nothing of it is left", SOON, || home.alive().is_empty());
    for nested in ["step a -- sh -c 'echo x >> effects'", "gate -- sh -c 'echo x >> effects'"] {
        let mut command = home.script(&format!("$SEMEL {nested}"));
        let said = home.launch(command.env("SEMEL_RUN", &address)).end();
        said.exits(77).saying("the run it belongs to is gone");
    }
    assert_eq!(home.lines("effects").len(), 0);
}

/// The socket of a run that waits at `go`, with its address.
fn run_with_socket(home: &Home) -> (crate::support::Running, Vec<String>) {
    let run = home.start(
        "--job j --once",
        "echo \"$SEMEL_RUN\" > address; read go < go; $SEMEL step a -- sh -c 'echo a >> effects'",
    );
    let address = home.wait_lines("address", 1).remove(0);
    (run, address.splitn(3, ':').map(str::to_owned).collect())
}

fn frame(head: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(head.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(head.as_bytes());
    bytes
}

#[test]
fn rubbish_strangers_and_those_who_vanish_harm_nobody() {
    use std::io::{Read, Write};
    let home = Home::new();
    let mut go = home.gate("go");
    let (run, address) = run_with_socket(&home);
    let path = &address[2];
    assert_eq!(crate::support::mode(std::path::Path::new(path).parent().unwrap()), 0o700);
    let wrong = "0".repeat(32);
    let heads = [
        "{}".to_owned(),
        "[1]".to_owned(),
        format!(r#"{{"v":1,"capability":"{wrong}","ask":"grant"}}"#),
        format!(r#"{{"v":9,"capability":"{}","ask":"grant"}}"#, address[1]),
        format!(r#"{{"v":1,"capability":"{}","ask":"what"}}"#, address[1]),
    ];
    for head in &heads {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(&frame(head)).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains("refused") && !answer.contains("granted"), "{head}: {answer}");
    }
    // lengths beyond any limit, half a frame, and a crowd that connects and says nothing
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(&[0xff; 8]).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(String::from_utf8_lossy(&answer).contains("too long"));
    let _half = UnixStream::connect(path).map(|mut stream| {
        stream.write_all(&[10, 0, 0]).unwrap();
        stream
    });
    let _crowd: Vec<_> = (0..200).map(|_| UnixStream::connect(path).unwrap()).collect();
    go.open(1);
    run.end().exits(0);
    assert_eq!(home.lines("effects"), ["a"]);
}

#[test]
fn one_connection_cannot_settle_a_step_that_is_not_its_own() {
    use std::io::{Read, Write};
    let home = Home::new();
    let mut go = home.gate("go");
    let (run, address) = run_with_socket(&home);
    for ask in [
        r#""ask":"settle","ending":{"ending":"succeeded"},"output":null"#,
        r#""ask":"settle","ending":{"ending":"vanished"},"output":null"#,
        r#""ask":"keep","piece":0"#,
        r#""ask":"output","piece":0"#,
    ] {
        let mut stream = UnixStream::connect(&address[2]).unwrap();
        stream.write_all(&frame(&format!(r#"{{"v":1,"capability":"{}",{ask}}}"#, address[1]))).unwrap();
        let mut size = [0; 8];
        stream.read_exact(&mut size).unwrap();
        let mut answer = vec![0; usize::from(size[0]) + 256 * usize::from(size[1])];
        stream.read_exact(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.contains("refused"), "{ask}: {answer}");
    }
    go.open(1);
    run.end().exits(0);
}

#[test]
fn another_user_is_turned_away_even_with_the_capability() {
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        return skipped(
            "another_user_is_turned_away_even_with_the_capability",
            "only root can become another user",
        );
    }
    // another user may not be able to reach any other
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return skipped(
            "another_user_is_turned_away_even_with_the_capability",
            "there is no /usr/bin/python3",
        );
    }
    let home = Home::new();
    let mut go = home.gate("go");
    let (run, address) = run_with_socket(&home);
    // were the folder and the socket open to everybody, the kernel's word about the peer would still be asked
    for path in ["", "state", "state/semel", "state/semel/run"] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(home.path(path), open).unwrap();
    }
    std::fs::set_permissions(&address[2], std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let ask = "import socket,sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
head = ('{\"v\":1,\"capability\":\"%s\",\"ask\":\"grant\"}' % sys.argv[2]).encode()
try:
    s.sendall(len(head).to_bytes(4, 'little') + bytes(4) + head)
    print(len(s.recv(65536)))
except ConnectionError: print(0)";
    let answer = |uid: &str| {
        let ids = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()];
        let mut command = home.plain("setpriv");
        command.args(ids).args(["/usr/bin/python3", "-c", ask, &address[2], &address[1]]);
        home.launch(&mut command).end().exits(0).text()
    };
    assert_ne!(answer("0"), "0");
    assert_eq!(answer("65534"), "0");
    go.open(1);
    run.end().exits(0);
}

#[test]
fn the_sockets_path_may_be_long() {
    let home = Home::new();
    let long = home.path(&"d".repeat(120));
    let mut command = home.work("--job j --once", "$SEMEL step a -- sh -c 'echo a >> effects'");
    home.launch(command.env("XDG_STATE_HOME", &long)).end().exits(0);
    assert_eq!(home.lines("effects"), ["a"]);
    assert_eq!(std::fs::read_dir(long.join("semel/run")).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn the_gate_opens_for_the_holder_and_closes_on_who_lost_it() {
    let home = Home::new();
    home.run("--job j --once", "$SEMEL -v gate --need 5s -- echo passed")
        .exits(0)
        .saying("the lease is held for");
    home.run("--job k --once --ttl 2s", "$SEMEL gate --need 60s -- echo passed; exit $?")
        .exits(78)
        .saying("a longer --ttl");
    // by name, outside of a run
    let token = home.ask("lease acquire r --ttl 60s").exits(0).text();
    home.ask(&format!("gate --resource r --token {token} -- echo passed")).exits(0);
    home.ask(&format!("gate --resource r --token {token} --need 2h -- echo passed")).exits(77);
    home.ask(&format!("lease release r --token {token}")).exits(0);
    let said = home.ask(&format!("gate --resource r --token {token} -- touch effects")).exits(77);
    assert!(said.out.is_empty() && !home.path("effects").exists());
    home.launch(&mut home.semel(["lease", "hold", "r", "--", "sh", "-c", "$SEMEL gate -- echo passed"]))
        .end()
        .exits(0);
    home.ask("gate -- true").exits(78).saying("not inside a run");
    home.ask("gate --token 1 -- true").exits(78);
}

#[test]
fn the_gate_hands_on_the_commands_own_code_and_environment() {
    let home = Home::new();
    home.run("--job j --once", "$SEMEL gate -- sh -c 'test -n \"$SEMEL_RUN\" && exit 5'; exit $?").exits(5);
    home.run("--job k --once", "$SEMEL gate -- no-such-program; exit $?").exits(127);
}

#[test]
fn steps_are_shown_with_their_run() {
    let home = Home::new();
    home.run("--job j --once", &format!("{}; {}; false", effect("a"), effect("b"))).exits(1);
    let shown = home.ask("show j").exits(0).text();
    assert!(shown.contains("steps") && shown.contains("a") && shown.contains("bytes"), "{shown}");
    let json = home.ask("--json show j").exits(0).json();
    assert_eq!(json["steps"]["count"], 2);
    assert!(home.ask("why j").exits(0).text().contains("2 steps are done: a retry replays what they wrote"));
    // steps do not crowd the list of works
    assert_eq!(home.ask("--json ls").exits(0).text().lines().count(), 1);
    let key = home.ask("--json show j~b").exits(0).json()["key"].as_str().unwrap().to_owned();
    assert!(home.ask(&format!("why {}", &key[..12])).exits(0).text().starts_with("j~b is done"));
    let said = home.ask("resolve j --retry --because again").exits(0).text();
    assert!(said.contains("stay done and are replayed"), "{said}");
}

#[test]
fn gc_forgets_outputs_in_time_and_steps_with_their_run() {
    let home = Home::new();
    let script = "$SEMEL step a -- sh -c 'echo a >> effects; echo out' && test -e ok";
    home.run("--job j --once --keep 1ms", script).exits(1);
    home.ask("gc").exits(0);
    std::fs::write(home.path("ok"), "").unwrap();
    let said = home.run("--job j --once --keep 1ms --remember 1ms", script).exits(0);
    assert!(said.err.contains("step a is done, output expired"), "{}", said.err);
    assert_eq!(home.lines("effects").len(), 1);
    // the run is forgotten, and its steps with it: it is done again, all of it
    home.ask("gc").exits(0);
    home.run("--job j --once", script).exits(0);
    assert_eq!(home.lines("effects").len(), 2);
}
