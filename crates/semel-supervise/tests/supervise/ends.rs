//! How a command ends, how it is ended, and what it leaves behind.

use std::time::{Duration, Instant};

use semel_supervise::{Contain, Ended, Exit, Keepers, SpawnError, Spec, Tree};

use crate::support::{Gate, Mark, SOON, capture, containments, is_alive, kill, sh, spec, state, within};

fn exited(code: i32) -> Ended {
    Ended { exit: Some(Exit::Code(code)), by_deadline: false }
}

fn signalled(signo: i32) -> Ended {
    Ended { exit: Some(Exit::Signal(signo)), by_deadline: false }
}

const GRACE: Duration = Duration::from_millis(150);

#[tokio::test]
async fn every_exit_code_comes_back() {
    let mark = Mark::new();
    for code in 0..=255 {
        let mut tree = Tree::spawn(sh(&mark, &format!("exit {code}"))).unwrap();
        assert_eq!(tree.wait().await, exited(code));
        assert_eq!(tree.finish(GRACE).await.count, 0);
    }
}

#[tokio::test]
async fn a_signal_comes_back_as_a_signal() {
    let mark = Mark::new();
    for signo in [libc::SIGTERM, libc::SIGKILL, libc::SIGSEGV, libc::SIGUSR1, libc::SIGPIPE, libc::SIGHUP] {
        let mut tree = Tree::spawn(sh(&mark, &format!("ulimit -c 0; kill -{signo} $$"))).unwrap();
        let ended = tree.wait().await;
        assert_eq!(ended, signalled(signo));
        assert_eq!(ended.exit.unwrap().code(), 128 + signo);
    }
}

#[tokio::test]
async fn a_forwarded_signal_reaches_the_command_and_its_group() {
    let mark = Mark::new();
    for contain in [Contain::Auto, Contain::Subreaper, Contain::Group] {
        let mut spec = sh(&mark, "trap 'exit 7' USR1; echo ready; sleep 100 & while :; do wait; done");
        spec.contain = contain;
        let out = capture(&mut spec);
        let mut tree = Tree::spawn(spec).unwrap();
        assert!(!tree.shares_terminal());
        within(SOON, "the trap is set", || out.text().contains("ready") && mark.running("sleep") == 1);
        tree.signal(libc::SIGUSR1).unwrap();
        assert_eq!(tree.wait().await, exited(7));
        // The sleep of the same group got it too, and died of it.
        within(SOON, "all of the group is gone", || mark.alive().is_empty());
        tree.finish(GRACE).await;
    }
}

#[tokio::test]
async fn without_leftovers_finish_returns_at_once() {
    let mark = Mark::new();
    for contain in containments() {
        let mut spec = spec(&mark, "true", &[]);
        spec.contain = contain;
        let mut tree = Tree::spawn(spec).unwrap();
        tree.wait().await;
        let keeper = tree.keeper();
        let leaf = tree.cgroup().map(|path| path.to_path_buf());
        let start = Instant::now();
        let left = tree.finish(Duration::from_secs(30)).await;
        assert!(start.elapsed() < Duration::from_secs(5), "{contain:?} {:?}", start.elapsed());
        assert_eq!((left.count, left.keeper_died), (0, false));
        assert_eq!(state(keeper.pid), None, "the keeper is reaped");
        assert!(leaf.is_none_or(|leaf| !leaf.exists()), "the leaf is removed");
    }
}

#[tokio::test]
async fn daemons_left_behind_are_ended_and_counted() {
    let mark = Mark::new();
    for contain in containments() {
        let gate = Gate::new();
        let script = "setsid sleep 1001 & (setsid sleep 1002 &) ; sleep 1003 & read go < $0; exit 3";
        let mut spec = sh(&mark, script);
        spec.argv.push(gate.path.clone().into());
        spec.contain = contain;
        let mut tree = Tree::spawn(spec).unwrap();
        within(SOON, "all daemons run", || mark.running("sleep") == 3);
        gate.open();
        assert_eq!(tree.wait().await, exited(3));
        assert_eq!(mark.alive().len(), 3);
        let left = tree.finish(Duration::from_secs(20)).await;
        assert_eq!(left.count, 3, "{contain:?}");
        assert_eq!(mark.alive(), []);
    }
}

#[tokio::test]
async fn a_daemon_that_ignores_term_is_killed_after_the_grace() {
    let mark = Mark::new();
    for contain in containments() {
        let mut spec =
            sh(&mark, "setsid sh -c 'trap \"\" TERM; echo ready; while :; do sleep 1; done' & exit 0");
        spec.contain = contain;
        let out = capture(&mut spec);
        let mut tree = Tree::spawn(spec).unwrap();
        within(SOON, "the daemon ignores TERM", || out.text().contains("ready"));
        tree.wait().await;
        let start = Instant::now();
        let left = tree.finish(GRACE).await;
        assert!(start.elapsed() >= GRACE);
        assert!(left.count >= 1, "{contain:?} {left:?}");
        assert_eq!(mark.alive(), []);
    }
}

#[tokio::test]
async fn stop_with_term_honoured() {
    let mark = Mark::new();
    for contain in containments() {
        let mut spec = sh(&mark, "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done");
        spec.contain = contain;
        let out = capture(&mut spec);
        let mut tree = Tree::spawn(spec).unwrap();
        within(SOON, "the trap is set", || out.text().contains("ready"));
        let start = Instant::now();
        assert_eq!(tree.stop(Duration::from_secs(60)).await, exited(9));
        assert!(start.elapsed() < Duration::from_secs(10));
        assert_eq!(mark.alive(), []);
        assert_eq!(tree.finish(GRACE).await.count, 0);
    }
}

#[tokio::test]
async fn stop_with_term_ignored_kills_after_the_grace() {
    let mark = Mark::new();
    for contain in containments() {
        let mut spec = sh(&mark, "trap '' TERM; echo ready; while :; do sleep 0.05; done");
        spec.contain = contain;
        let out = capture(&mut spec);
        let mut tree = Tree::spawn(spec).unwrap();
        within(SOON, "TERM is ignored", || out.text().contains("ready"));
        let start = Instant::now();
        assert_eq!(tree.stop(GRACE).await, signalled(libc::SIGKILL));
        assert!(start.elapsed() >= GRACE);
        assert_eq!(mark.alive(), []);
    }
}

#[tokio::test]
async fn stop_reaches_a_stopped_command() {
    let mark = Mark::new();
    for contain in containments() {
        let mut spec = sh(&mark, "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done");
        spec.contain = contain;
        let out = capture(&mut spec);
        let mut tree = Tree::spawn(spec).unwrap();
        within(SOON, "the trap is set", || out.text().contains("ready"));
        let pid = tree.pid();
        kill(pid, libc::SIGSTOP);
        within(SOON, "it is stopped", || state(pid) == Some('T'));
        assert_eq!(tree.stop(Duration::from_secs(60)).await, exited(9), "woken up to its TERM");
        assert_eq!(mark.alive(), []);
    }
}

#[tokio::test]
async fn stop_wakes_a_stopped_keeper() {
    let mark = Mark::new();
    let mut tree = Tree::spawn(spec(&mark, "sleep", &["1000"])).unwrap();
    let keeper = tree.keeper().pid;
    kill(keeper, libc::SIGSTOP);
    within(SOON, "it is stopped", || state(keeper) == Some('T'));
    assert_eq!(tree.stop(Duration::from_secs(60)).await, signalled(libc::SIGTERM));
}

#[tokio::test]
async fn a_deadline_given_beforehand_holds_from_the_start() {
    let mark = Mark::new();
    let mut spec = spec(&mark, "sleep", &["1000"]);
    spec.deadline = Some(semel_supervise::boottime() + Duration::from_millis(150));
    let mut tree = Tree::spawn(spec).unwrap();
    assert_eq!(tree.wait().await, Ended { exit: Some(Exit::Signal(libc::SIGKILL)), by_deadline: true });
}

#[tokio::test]
async fn after_the_deadline_nothing_is_started() {
    let mark = Mark::new();
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("ran");
    let order = format!("echo x >> {}", trace.display());
    let late = |mut spec: Spec| {
        spec.deadline = Some(semel_supervise::boottime());
        spec
    };
    let once = Tree::spawn(late(sh(&mark, &order)));
    assert!(matches!(once, Err(SpawnError::TooLate)), "{once:?}");
    // and the next one of the same keeper is
    let keepers = Keepers::default();
    for _ in 0..2 {
        let again = keepers.start(late(sh(&mark, &order))).await;
        assert!(matches!(again, Err(SpawnError::TooLate)), "{again:?}");
        assert!(!trace.exists());
        let mut tree = keepers.start(sh(&mark, "exit 3")).await.unwrap();
        assert_eq!(tree.wait().await, exited(3));
        tree.finish(GRACE).await;
    }
}

#[tokio::test]
async fn waiting_may_be_cancelled_and_taken_up_again() {
    let mark = Mark::new();
    let mut tree = Tree::spawn(sh(&mark, "sleep 0.3; exit 4")).unwrap();
    let mut turns = 0;
    let ended = loop {
        tokio::select! {
            ended = tree.wait() => break ended,
            () = semel_supervise::sleep_boottime(Duration::from_millis(10)) => turns += 1,
        }
    };
    assert_eq!(ended, exited(4));
    assert!(turns > 2);
    assert_eq!(tree.wait().await, exited(4), "and asked again");
}

#[tokio::test]
async fn dropping_the_handle_kills_the_tree() {
    let mark = Mark::new();
    for contain in containments() {
        let mut spec = sh(&mark, "trap '' TERM HUP; setsid sleep 1000 & sleep 1000 & wait");
        spec.contain = contain;
        let tree = Tree::spawn(spec).unwrap();
        within(SOON, "the tree stands", || mark.alive().len() == 3);
        let (keeper, leaf) = (tree.keeper(), tree.cgroup().map(|path| path.to_path_buf()));
        drop(tree);
        assert!(!is_alive(keeper.pid));
        assert_eq!(mark.alive(), []);
        assert!(leaf.is_none_or(|leaf| !leaf.exists()), "the leaf is removed");
    }
}

#[tokio::test]
async fn the_group_alone_ends_what_stays_in_it() {
    let mark = Mark::new();
    let mut spec = sh(&mark, "trap '' TERM; sleep 1000 & sleep 1000 & wait; while :; do sleep 1; done");
    spec.contain = Contain::Group;
    let mut tree = Tree::spawn(spec).unwrap();
    assert_eq!(tree.containment(), semel_supervise::Containment::Group);
    within(SOON, "the tree stands", || mark.alive().len() >= 3);
    assert_eq!(tree.stop(GRACE).await, signalled(libc::SIGKILL));
    within(SOON, "nothing is left", || mark.alive().is_empty());
}

#[tokio::test]
async fn the_deadline_can_be_moved_and_lifted_and_kills_when_it_passes() {
    let mark = Mark::new();
    let mut tree =
        Tree::spawn(sh(&mark, "trap '' TERM; setsid sleep 1000 & sleep 1000; sleep 1000")).unwrap();
    let at = |ms| Some(semel_supervise::boottime() + Duration::from_millis(ms));
    tree.set_deadline(at(100)).unwrap();
    tree.set_deadline(None).unwrap();
    tokio::select! {
        ended = tree.wait() => panic!("ended though the deadline was lifted: {ended:?}"),
        () = semel_supervise::sleep_boottime(Duration::from_millis(300)) => {}
    }
    tree.set_deadline(at(100)).unwrap();
    let ended = tree.wait().await;
    assert_eq!(ended, Ended { exit: Some(Exit::Signal(libc::SIGKILL)), by_deadline: true });
    assert!(tree.finish(GRACE).await.by_deadline);
    assert_eq!(mark.alive(), []);
}
