//! Is that process, or that tree, provably gone?

use std::process::{Command, Stdio};
use std::time::Duration;

use semel_supervise::process::{Gone, Process, is_gone, me, tree_is_gone};
use semel_supervise::{Contain, Tree};

use crate::support::{Mark, SOON, sh, state, within};

#[test]
fn i_am_alive_and_the_same_each_time() {
    let identity = me().unwrap();
    assert_eq!(identity, me().unwrap());
    assert_eq!(identity.process.pid, std::process::id().cast_signed());
    assert!(!identity.host.is_empty() && identity.boot.len() == 36 && identity.pidns > 0);
    assert_eq!(is_gone(&identity.process), Gone::Alive);
}

#[test]
fn a_recycled_pid_is_not_the_process_that_had_it() {
    let Process { pid, start } = me().unwrap().process;
    assert_eq!(is_gone(&Process { pid, start: start - 1 }), Gone::Gone);
    assert_eq!(is_gone(&Process { pid: 0, start: 1 }), Gone::Unknown);
}

#[tokio::test]
async fn a_zombie_is_gone() {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id().cast_signed();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap();
    let process = Process { pid, start };
    assert_eq!(is_gone(&process), Gone::Alive);
    child.kill().unwrap();
    within(SOON, "a zombie", || state(pid) == Some('Z'));
    assert_eq!(is_gone(&process), Gone::Gone);
    child.wait().unwrap();
    assert_eq!(is_gone(&process), Gone::Gone);
}

#[tokio::test]
async fn a_tree_is_gone_only_with_the_last_carrier_of_its_mark() {
    let mark = Mark::new();
    let mut spec = sh(&mark, "sleep 1000");
    spec.contain = Contain::Subreaper;
    let mut tree = Tree::spawn(spec).unwrap();
    let keeper = tree.keeper();
    assert_eq!(tree_is_gone(&keeper, None, &mark.bytes()), Gone::Alive, "the keeper lives");
    tree.stop(Duration::ZERO).await;
    tree.finish(Duration::ZERO).await;
    // Somebody outside of the tree's reach who carries the mark.
    let mut other =
        Command::new("sleep").arg("1000").env("TREE_MARK", &mark.0).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(tree_is_gone(&keeper, None, &mark.bytes()), Gone::Alive);
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(tree_is_gone(&keeper, None, &mark.bytes()), Gone::Gone);
    assert_eq!(
        tree_is_gone(&keeper, Some("/sys/fs/cgroup/semel-absent".as_ref()), &mark.bytes()),
        Gone::Gone
    );
}
