//! Semel killed -9: its tree goes with it, and the next run takes over at once, with a larger token.

use std::time::{Duration, Instant};

use crate::processes::{carrying, is_alive, kill};
use crate::support::{Home, SOON, until, until_gone};

/// A tree that does all it can to survive: new sessions, double forks, deaf ears.
const TREE: &str = "trap '' TERM HUP INT; echo $$ >> pids
    setsid sh -c 'echo $$ >> pids; exec sleep 300' &
    ( ( setsid sh -c 'echo $$ >> pids; while :; do sleep 1; done' & ) & )
    ( setsid sh -c '( echo ${PPID} > /dev/null; exec sh -c \"echo \\$\\$ >> pids; exec sleep 300\" ) & wait' & )
    echo $SEMEL_TOKEN >> tokens; wait; sleep 300";

#[test]
fn the_whole_tree_dies_with_semel_and_the_next_run_takes_over_at_once() {
    let home = Home::new();
    let first = home.start("--job a --once", TREE);
    home.wait_lines("pids", 4);
    home.wait_lines("tokens", 1);
    assert!(home.alive().len() >= 6, "semel, its keeper and the tree");
    let start = Instant::now();
    first.kill_9().exits(128 + 9);
    until("nothing of it lives", SOON, || home.alive().is_empty());
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "the tree lived for {took:?}");
    until_gone(&home.numbers("pids"), Duration::ZERO);
    // the ttl is a minute: nobody waits for it
    home.run("--job a --once --if-busy fail", "echo $SEMEL_TOKEN >> tokens").exits(0).silent();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(home.ranks("tokens"), [1, 2]);
    home.run("--job a --once", "echo $SEMEL_TOKEN >> tokens").exits(0);
    assert_eq!(home.ranks("tokens"), [1, 2]);
}

#[test]
fn control_a_plain_killpg_leaves_the_tree_behind() {
    let home = Home::new();
    let first = home.launch(&mut home.script(TREE));
    home.wait_lines("pids", 4);
    first.kill_9().exits(128 + 9);
    let survivors = home.numbers("pids").into_iter().filter(|pid| is_alive(*pid as i32)).count();
    assert!(survivors >= 3, "{survivors}");
}

#[test]
fn another_resource_or_work_is_not_disturbed_by_a_crash() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let other = home.start("--job b --once", "echo x >> b; read go < gate; echo x >> b");
    let first = home.start("--job a --once", "echo x >> a; exec sleep 300");
    home.wait_lines("a", 1);
    home.wait_lines("b", 1);
    first.kill_9();
    // its tree may take a moment to end
    home.run("--job a --once --if-busy wait=20s", "echo x >> a").exits(0);
    gate.open(1);
    other.end().exits(0).silent();
    assert_eq!((home.lines("a").len(), home.lines("b").len()), (2, 2));
}

/// Semel and its keeper in one instant; what they kept lives on.
#[test]
fn while_a_survivor_lives_nobody_takes_over() {
    let home = Home::new();
    let script = "setsid sh -c 'echo $$ >> pids; exec sleep 300' & echo $SEMEL_RUN >> runs; wait; sleep 300";
    let first = home.start("--job a --once", script);
    home.wait_lines("pids", 1);
    let run = format!("SEMEL_RUN={}", home.wait_lines("runs", 1)[0]);
    let (semel, keeper) = (first.pid(), first.keeper(&home));
    // stopped first, so that neither can notice the other's end
    first.signal(libc::SIGSTOP);
    kill(keeper, libc::SIGKILL);
    first.kill_9();
    until("only the survivor is left", SOON, || home.alive().len() == 1);
    assert_eq!(carrying(&run).iter().map(|pid| i64::from(*pid)).collect::<Vec<_>>(), home.numbers("pids"));
    let effect = "echo $SEMEL_TOKEN >> tokens";
    home.run("--job a --once --if-busy fail", effect).exits(75).saying("it is running by pid");
    home.run("--job b --once --resource a --if-busy fail", effect).exits(75);
    assert_eq!(home.lines("tokens").len(), 0);
    kill(home.numbers("pids")[0] as i32, libc::SIGKILL);
    until_gone(&home.numbers("pids"), SOON);
    home.run("--job a --once --if-busy fail", effect).exits(0);
    assert_eq!(home.lines("tokens").len(), 1);
    // nobody was left to remove its cgroup
    home.ask("gc").exits(0);
    let name = format!("semel-{semel}-*");
    let left = home.launch(home.plain("find").args(["/sys/fs/cgroup", "-type", "d", "-name", &name])).end();
    assert_eq!(left.text(), "");
}

#[test]
fn a_waiter_notices_the_death_of_the_holder() {
    let home = Home::new();
    let first = home.start("--job a --once", "echo x >> effects; exec sleep 300");
    home.wait_lines("effects", 1);
    let second = home.start("--job a --once --if-busy wait=1m -v", "echo x >> effects");
    until("it waits", SOON, || second.err().contains("waiting"));
    let start = Instant::now();
    first.kill_9();
    home.wait_lines("effects", 2);
    assert!(start.elapsed() < Duration::from_secs(5), "the ttl is a minute: {:?}", start.elapsed());
    second.end().exits(0).saying("taken over from a holder that is gone");
}

#[test]
fn the_death_of_the_keeper_ends_the_run_as_a_failure() {
    let home = Home::new();
    let first = home.start("--job a --once", "setsid sleep 300 & echo $$ >> pids; exec sleep 300");
    home.wait_lines("pids", 1);
    kill(first.keeper(&home), libc::SIGKILL);
    first.end().exits(128 + 9);
    assert_eq!(home.alive(), [0; 0], "nothing of the tree may be left when semel is done");
    home.run("--job a --once --if-busy fail", "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

/// Killed at many moments, from before the claim to after the settle: with a probe, one effect each.
#[test]
fn killed_at_any_moment_and_retried_each_work_has_one_effect() {
    let home = Home::new();
    home.executable("probe", "grep -qx \"$SEMEL_SLOT\" effects");
    for round in 0..16 {
        let flags = format!("--job pay --slot {round} --probe ./probe --if-busy fail");
        let script = "echo $SEMEL_SLOT >> effects; sleep 0.02";
        let first = home.start(&flags, script);
        // when to kill, not what to wait for
        std::thread::sleep(Duration::from_millis(round * 4));
        first.signal(libc::SIGKILL);
        first.end();
        until("the tree is gone", SOON, || home.alive().is_empty());
        home.run(&flags, script).exits(0);
        let effects = home.lines("effects").iter().filter(|slot| **slot == round.to_string()).count();
        assert_eq!(effects, 1, "round {round}");
    }
    home.assert_whole();
}

/// The same with the tools at hand: a lock, a marker, and a kill between effect and marker.
#[test]
fn control_a_lock_and_a_marker_repeat_the_effect() {
    let home = Home::new();
    let script = "[ -e done ] && exit 0; echo x >> effects; [ -e crashed ] || { touch crashed; kill -9 $$; }; touch done";
    for code in [128 + 9, 0, 0] {
        home.launch(home.plain("flock").args(["--no-fork", "lock", "sh", "-c", script])).end().exits(code);
    }
    assert_eq!(home.lines("effects").len(), 2);
}
