//! stdin, stdout and descriptors: as if Semel were not there.

use std::io::Write;
use std::process::{Output, Stdio};

use crate::support::Home;

/// `semel run` between pipes.
fn piped(home: &Home, flags: &str, script: &str, input: &[u8]) -> Output {
    let mut command = home.work(flags, script);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_owned());
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    output
}

fn bytes() -> Vec<u8> {
    (0..300_000_u32).flat_map(|n| [(n % 256) as u8, (n / 256 % 256) as u8, 0, b'\n', 0xff]).collect()
}

#[test]
fn stdin_and_stdout_pass_byte_by_byte_and_stderr_stays_the_commands() {
    let home = Home::new();
    let input = bytes();
    let output = piped(&home, "--job a --once", "cat; printf 'caf\\351' >&2", &input);
    assert!(output.stdout == input, "{} bytes came out of {}", output.stdout.len(), input.len());
    assert_eq!(output.stderr, b"caf\xe9");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_skipped_run_prints_nothing_and_leaves_its_input_alone() {
    let home = Home::new();
    home.run("--job a --once", "true").exits(0);
    let output = piped(&home, "--job a --once", "cat", b"");
    assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b""[..], &b""[..]));
}

#[test]
fn without_a_pipe_the_command_reads_nothing() {
    let home = Home::new();
    let mut closed =
        home.script("exec \"$SEMEL\" run --job a --once -- sh -c 'readlink /proc/self/fd/0; cat' <&-");
    let said = home.launch(closed.env("SEMEL_STORE", home.store())).end().exits(0).silent();
    assert_eq!(said.text(), "/dev/null");
    assert_eq!(home.run("--job b --once", "readlink /proc/self/fd/0; cat").exits(0).text(), "/dev/null");
    home.assert_whole();
}

#[test]
fn with_stdout_or_all_closed_the_command_still_runs_once() {
    let home = Home::new();
    for (job, closed) in [("a", ">&-"), ("b", "2>&-"), ("c", "<&- >&- 2>&-")] {
        for _ in 0..2 {
            let script = format!(
                "exec \"$SEMEL\" run --job {job} --once -- sh -c 'echo out; echo err >&2; echo x >> {job}' {closed}"
            );
            home.launch(home.script(&script).env("SEMEL_STORE", home.store())).end().exits(0);
        }
        assert_eq!(home.lines(job).len(), 1, "{closed}");
    }
    // nothing was written into the ledger in place of the closed descriptors
    home.assert_whole();
}

#[test]
fn a_full_or_broken_stdout_is_the_commands_business() {
    let home = Home::new();
    let script =
        "exec \"$SEMEL\" run --job a --once -- sh -c 'echo x; echo code $? >> codes; true' > /dev/full";
    home.launch(home.script(script).env("SEMEL_STORE", home.store())).end().exits(0);
    assert_eq!(home.lines("codes"), ["code 1"]);
    let script = "\"$SEMEL\" run --job b --once -- yes | head -n 1";
    let said = home.launch(home.script(script).env("SEMEL_STORE", home.store())).end().exits(0);
    assert_eq!(said.saying("ended by signal 13").text(), "y");
}

#[test]
fn no_descriptor_of_semel_is_inherited() {
    let home = Home::new();
    let said = home.run("--job a --once", "exec ls -l /proc/self/fd").exits(0).text();
    // the fourth is the folder that it lists
    let open: Vec<_> = said
        .lines()
        .filter_map(|line| line.split_once(" -> "))
        .filter(|(_, to)| !to.ends_with("/fd"))
        .collect();
    assert_eq!(open.len(), 3, "{said}");
    let mut gate = home.gate("gate");
    let run = home.start("--job b --once", "echo x >> ready; read go < gate");
    home.wait_lines("ready", 1);
    for pid in home.alive().into_iter().filter(|pid| *pid != run.pid()) {
        let open = home.launch(home.plain("ls").args(["-l", &format!("/proc/{pid}/fd")])).end().text();
        assert!(!open.contains("ledger.db"), "{pid}: {open}");
    }
    gate.open(1);
    run.end().exits(0);
}

#[test]
fn a_daemon_left_behind_keeps_nobody_waiting() {
    let home = Home::new();
    let output = piped(&home, "--job a --once", "setsid sleep 300 & echo out", b"");
    assert_eq!((output.stdout.as_slice(), output.status.code()), (&b"out\n"[..], Some(0)));
    assert_eq!(home.alive(), [0; 0]);
}

#[test]
fn arguments_arrive_byte_by_byte() {
    use std::os::unix::ffi::OsStrExt;
    let home = Home::new();
    let odd = [&b"caf\xe9"[..], b"", b"--job", b"-v", b"a b\nc", b"\xff\xfe", b"$HOME 'x' \"y\""];
    let mut command = home.semel(["run", "--job", "a", "--once", "--", "printf", "%s\\0"]);
    command.args(odd.iter().map(|word| std::ffi::OsStr::from_bytes(word)));
    let said = home.launch(&mut command).end().exits(0).silent();
    let expected: Vec<u8> = odd.iter().flat_map(|word| [*word, b"\0"].concat()).collect();
    assert_eq!(said.out, expected);
}

#[test]
fn verbose_words_go_to_stderr_only() {
    let home = Home::new();
    let said = home.run("--job a --once -v", "echo out").exits(0).saying("token 1").saying("tree held by");
    assert_eq!(said.text(), "out");
    let said = home.run("--job b --once --json", "echo out").exits(0);
    assert_eq!(said.text(), "out");
    let json: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!((&json["v"], &json["outcome"], &json["exit_code"]), (&1.into(), &"done".into(), &0.into()));
}

#[test]
fn it_runs_where_it_was_started_and_with_its_umask() {
    let home = Home::new();
    std::fs::create_dir(home.path("sub dir")).unwrap();
    let mut command = home.work("--job a --once", "pwd; umask; echo $0");
    let said = home.launch(command.current_dir(home.path("sub dir"))).end().exits(0);
    let expected = format!("{}\n", home.path("sub dir").display());
    assert!(said.text().starts_with(&expected), "{}", said.text());
}
