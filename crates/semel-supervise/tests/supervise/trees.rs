//! Trees that try to get away, ended by `stop` under each containment.

use std::time::{Duration, Instant};

use semel_supervise::{Contain, Tree};

use crate::support::{Mark, SOON, containments, sh, within};

/// Shapes that escape a plain killpg, a plain TERM, or a single walk over the tree.
pub const HARD: [(&str, &str); 5] = [
    ("setsid", "setsid sleep 1000 & setsid sh -c 'sleep 1000 & wait' & wait"),
    ("double fork", "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; (sh -c '(sleep 1000 &)' &) ; sleep 1000"),
    (
        "ignores TERM, HUP and INT",
        "trap '' TERM HUP INT; (setsid sh -c 'while :; do sleep 1; done' &) ; while :; do sleep 1; done",
    ),
    ("deep", "deep() { if [ $1 -gt 0 ]; then (deep $(($1 - 1))); fi; sleep 1000; }; deep 20"),
    ("wide", "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i + 1)); done; wait"),
];

async fn stand_and_stop(name: &str, script: &str, contain: Contain) {
    let mark = Mark::new();
    let mut spec = sh(&mark, script);
    spec.contain = contain;
    let mut tree = Tree::spawn(spec).unwrap();
    within(SOON, "more than the command runs", || mark.alive().len() >= 3);
    let start = Instant::now();
    tree.stop(Duration::from_millis(100)).await;
    let took = start.elapsed();
    assert_eq!(mark.alive(), [], "{name} {contain:?}");
    assert!(took < Duration::from_secs(10), "{name} {contain:?} took {took:?}");
    assert!(!tree.finish(Duration::ZERO).await.keeper_died);
}

#[tokio::test]
async fn hard_trees_are_ended_whole() {
    for contain in containments() {
        for (name, script) in HARD {
            stand_and_stop(name, script, contain).await;
        }
    }
}

#[tokio::test]
async fn a_tree_that_keeps_forking_is_ended() {
    // Bounded: 3 × 400 processes at most.
    let bomb =
        "trap '' TERM; grow() { i=0; while [ $i -lt 400 ]; do setsid sleep 1000 & i=$((i + 1)); done; wait; }
                grow & grow & grow & wait";
    for contain in containments() {
        stand_and_stop("bomb", bomb, contain).await;
    }
}

#[tokio::test]
async fn a_chain_that_forks_and_exits_is_caught() {
    // Each generation lives for a moment only, 5000 of them: every pid that is listed is soon stale.
    let chain = "trap '' TERM; run() { if [ $1 -gt 0 ]; then run $(($1 - 1)) & else sleep 1000; fi; }
                 run 5000 & run 5000 & sleep 1000";
    for contain in containments() {
        stand_and_stop("chain", chain, contain).await;
    }
}

#[tokio::test]
async fn a_supervisor_inside_the_tree_is_ended_with_its_own_tree() {
    for contain in containments() {
        let mark = Mark::new();
        let dir = tempfile::tempdir().unwrap();
        let log = crate::probe::Log(dir.path().join("log"));
        let inner = crate::probe::command(
            &mark,
            "trap '' TERM; setsid sleep 1000 & sleep 1000; sleep 1000",
            contain,
            &log.0,
        );
        let mut spec = sh(&mark, "sleep 1000 & \"$0\" \"$@\" > /dev/null; wait");
        spec.argv.push(inner.get_program().to_owned());
        spec.argv.extend(inner.get_args().map(ToOwned::to_owned));
        for (name, value) in inner.get_envs() {
            spec.env.push((name.to_owned(), value.unwrap().to_owned()));
        }
        spec.contain = contain;
        let mut tree = Tree::spawn(spec).unwrap();
        let (keeper, command) = (log.pid("keeper"), log.pid("command"));
        within(SOON, "the inner tree stands", || mark.alive().len() >= 7);
        let leaf = tree.cgroup().map(|path| path.to_path_buf());
        tree.stop(Duration::from_millis(300)).await;
        assert!(!crate::support::is_alive(keeper) && !crate::support::is_alive(command));
        assert_eq!(mark.alive(), [], "{contain:?}");
        assert!(leaf.is_none_or(|leaf| !leaf.exists()), "with the leaves inside it");
    }
}

#[tokio::test]
async fn trees_side_by_side_do_not_touch_each_other() {
    let (first, second) = (Mark::new(), Mark::new());
    let mut one = Tree::spawn(sh(&first, "setsid sleep 1000 & sleep 1000")).unwrap();
    let mut two = Tree::spawn(sh(&second, "setsid sleep 1000 & sleep 1000")).unwrap();
    within(SOON, "both stand", || first.alive().len() == 3 && second.alive().len() == 3);
    one.stop(Duration::from_millis(100)).await;
    assert_eq!((first.alive().len(), second.alive().len()), (0, 3));
    two.stop(Duration::from_millis(100)).await;
    assert_eq!(second.alive(), []);
}
