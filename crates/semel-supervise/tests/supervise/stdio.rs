//! Standard input and output: passed through, and ending when they should.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use semel_supervise::{Contain, Exit, Output, Tree};

use crate::probe;
use crate::support::{Mark, SOON, sh, within};

/// Run S with this standard input; gives what the command found to be there.
fn stdin_of_command(setup: impl FnOnce(&mut std::process::Command) -> Option<&'static str>) -> String {
    let (mark, dir) = (Mark::new(), tempfile::tempdir().unwrap());
    let log = probe::Log(dir.path().join("log"));
    let mut command = probe::command(
        &mark,
        "echo stdin $(readlink /proc/$$/fd/0) $(cat) >> $PROBE_LOG",
        Contain::Auto,
        &log.0,
    );
    let text = setup(command.stdout(Stdio::null()));
    let mut child = command.spawn().unwrap();
    if let (Some(text), Some(mut stdin)) = (text, child.stdin.take()) {
        stdin.write_all(text.as_bytes()).unwrap();
    }
    assert!(child.wait().unwrap().success());
    log.wait_for("stdin")
}

#[test]
fn a_closed_stdin_is_dev_null() {
    use std::os::unix::process::CommandExt;
    let found = stdin_of_command(|command| {
        let close = || {
            unsafe { libc::close(0) };
            Ok(())
        };
        unsafe { command.pre_exec(close) };
        None
    });
    assert_eq!(found, "/dev/null");
}

#[test]
fn a_pipe_passes_through_and_ends() {
    let found = stdin_of_command(|command| {
        command.stdin(Stdio::piped());
        Some("hello")
    });
    assert!(found.starts_with("pipe:") && found.ends_with("hello"), "{found}");
}

#[test]
fn a_file_passes_through() {
    let found = stdin_of_command(|command| {
        command.stdin(std::fs::File::open("/etc/hostname").unwrap());
        None
    });
    assert!(found.starts_with("/etc/hostname"), "{found}");
}

fn pipe() -> (std::io::PipeReader, OwnedFd) {
    let (read, write) = std::io::pipe().unwrap();
    (read, write.into())
}

#[tokio::test]
async fn the_reader_sees_the_end_when_the_command_closes_its_output() {
    let mark = Mark::new();
    let (mut out, write) = pipe();
    let (mut err, write_err) = pipe();
    let mut spec = sh(&mark, "echo out; echo err >&2; exec >&- 2>&-; sleep 1000");
    spec.stdout = Output::Fd(write);
    spec.stderr = Output::Fd(write_err);
    let tree = Tree::spawn(spec).unwrap();
    // Neither we nor the keeper hold a copy, or these would never return.
    let (mut text, mut errors) = (String::new(), String::new());
    out.read_to_string(&mut text).unwrap();
    err.read_to_string(&mut errors).unwrap();
    assert_eq!((text.as_str(), errors.as_str()), ("out\n", "err\n"));
    within(SOON, "the command is still there", || mark.running("sleep") == 1);
    drop(tree);
}

#[tokio::test]
async fn one_descriptor_serves_both_outputs() {
    let mark = Mark::new();
    let (mut read, write) = pipe();
    let mut spec = sh(&mark, "echo out; echo err >&2; ls /proc/$$/fd | wc -l");
    spec.stderr = Output::Fd(write.try_clone().unwrap());
    spec.stdout = Output::Fd(write);
    let mut tree = Tree::spawn(spec).unwrap();
    assert_eq!(tree.wait().await.exit, Some(Exit::Code(0)));
    tree.finish(Duration::ZERO).await;
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().take(2).collect::<Vec<_>>(), ["out", "err"]);
}

#[tokio::test]
async fn a_closed_reader_is_the_commands_own_broken_pipe() {
    let mark = Mark::new();
    let (read, write) = pipe();
    drop(read);
    let mut spec = sh(&mark, "while :; do echo x; done");
    spec.stdout = Output::Fd(write);
    let mut tree = Tree::spawn(spec).unwrap();
    assert_eq!(tree.wait().await.exit, Some(Exit::Signal(libc::SIGPIPE)));
}
