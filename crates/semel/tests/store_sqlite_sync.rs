//! How often the disk is waited for: seen from outside, by tracing the system calls of the helper process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The syncs before each answer, in the order of the answers.
fn syncs(folder: &Path, orders: &[&str]) -> Vec<(String, usize)> {
    let trace = folder.join("trace");
    let started = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range,msync,sync,syncfs,write", "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_semel-store-probe"))
        .arg(format!("sqlite:{}", folder.join("state.db").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = started.expect("this test needs strace: install it (cargo xtask does)");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all((orders.join("\n") + "\n").as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !answers.contains("error"), "{answers}");
    assert_eq!(answers.lines().count(), orders.len(), "{answers}");
    let mut found = Vec::new();
    let mut count = 0;
    for line in std::fs::read_to_string(&trace).unwrap().lines() {
        // every line begins with the thread's id; a call that another interrupts is told in two lines
        let call = line.split_once(' ').unwrap().1.trim_start();
        if call.starts_with("write(1, ") {
            found.push((answers.lines().nth(found.len()).unwrap().to_owned(), count));
            count = 0;
        } else if !call.starts_with("write(") && !call.starts_with("<...") && !call.starts_with("+++") {
            count += 1;
        }
    }
    assert_eq!(found.len(), orders.len(), "every answer is one write");
    found.push(("the end".to_owned(), count));
    found
}

fn counts(folder: &Path, orders: &[&str]) -> Vec<usize> {
    syncs(folder, orders).into_iter().map(|(_, count)| count).collect()
}

#[test]
fn a_durable_swap_is_one_sync_and_everything_else_is_none() {
    let folder = tempfile::tempdir().unwrap();
    counts(folder.path(), &["open", "put a 1 durable", "close"]);
    // a database that is there: one process that opens it, looks, writes and leaves
    assert_eq!(counts(folder.path(), &["open", "load a", "put a 2 durable", "close"]), [0, 0, 1, 0, 0]);
    let orders = [
        "open",
        "load a",
        "put b 1 relaxed",
        "lease c 60000",
        "touch c",
        "touch c",
        "load c",
        "put b 2 relaxed",
        "put a 3 durable",
        "touch c",
        "put a 4 durable",
        "close",
    ];
    assert_eq!(counts(folder.path(), &orders), [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0]);
    assert_eq!(counts(folder.path(), &["open", "load a", "close"]), [0, 0, 0, 0], "a skip");
}

#[test]
fn a_process_that_comes_and_goes_pays_for_the_checkpoint_only_now_and_then() {
    let folder = tempfile::tempdir().unwrap();
    counts(folder.path(), &["open", "put a 1 durable", "close"]);
    let mut seen = BTreeMap::new();
    for i in 0..120 {
        let put = format!("put a/{i} x durable");
        let all: usize = counts(folder.path(), &["open", "load a", &put, "close"]).iter().sum();
        *seen.entry(all).or_insert(0) += 1;
    }
    // one or two frames each, and a checkpoint after 64 of them: its two syncs, and one for the log begun anew
    let more: usize = seen.iter().filter(|(syncs, _)| **syncs > 1).map(|(_, times)| times).sum();
    assert!(more <= 10, "{seen:?}");
}
