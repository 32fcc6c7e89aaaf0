//! Sudden ends of S, of K, and of both.

use std::time::Duration;

use semel_supervise::Contain;
use semel_supervise::process::{self, Gone, Process};

use crate::probe::Probe;
use crate::support::{Mark, SOON, containments, is_alive, kill, state, within};
use crate::trees::HARD;

/// A keeper of its own, and one that has had a command before.
const BOTH: [&[(&str, &str)]; 2] = [&[], &[("PROBE_STAYS", "1")]];

/// The promise for a killed S.
const SECOND: Duration = Duration::from_secs(1);

fn leaf_of(command: i32) -> Option<std::path::PathBuf> {
    let own = std::fs::read_to_string(format!("/proc/{command}/cgroup")).unwrap();
    let below = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned();
    below.contains("semel-").then_some(())?;
    ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        .iter()
        .map(|mount| std::path::Path::new(mount).join(&below))
        .find(|path| path.exists())
}

#[test]
fn a_killed_supervisor_takes_every_tree_with_it_within_a_second() {
    for contain in containments() {
        for ((name, script), options) in HARD.iter().flat_map(|hard| BOTH.map(|options| (hard, options))) {
            let mark = Mark::new();
            let probe = Probe::start(&mark, script, contain, options);
            within(SOON, "the tree stands", || mark.alive().len() >= 3);
            let (keeper, leaf) = (probe.keeper(), leaf_of(probe.command()));
            assert_eq!(leaf.is_some(), contain == Contain::Cgroup);
            kill(probe.pid(), libc::SIGKILL);
            let took = within(SECOND, name, || !is_alive(keeper) && mark.alive().is_empty());
            println!("{contain:?} {name}: gone after {took:?}");
            assert!(leaf.is_none_or(|leaf| !leaf.exists()), "the leaf is removed");
        }
    }
}

#[test]
fn a_killed_keeper_takes_the_tree_with_it_and_the_supervisor_is_told() {
    for contain in containments() {
        for ((name, script), options) in HARD.iter().flat_map(|hard| BOTH.map(|options| (hard, options))) {
            let mark = Mark::new();
            let mut probe = Probe::start(&mark, script, contain, options);
            within(SOON, "the tree stands", || mark.alive().len() >= 3);
            let leaf = leaf_of(probe.command());
            kill(probe.keeper(), libc::SIGKILL);
            assert_eq!(probe.log().wait_for("ended"), "None false", "{name} {contain:?}");
            assert_eq!(mark.alive(), [], "{name} {contain:?}: all gone when it is told");
            assert_eq!(probe.log().wait_for("left"), "0 false true");
            assert!(probe.child.wait().unwrap().success());
            assert!(leaf.is_none_or(|leaf| !leaf.exists()), "the leaf is removed");
        }
    }
}

#[test]
fn with_supervisor_and_keeper_killed_at_once_the_command_dies() {
    for (contain, options) in containments().into_iter().flat_map(|contain| BOTH.map(|both| (contain, both)))
    {
        let mark = Mark::new();
        let script = "trap '' TERM; setsid sleep 1000 & while :; do sleep 1; done";
        let probe = Probe::start(&mark, script, contain, options);
        within(SOON, "the daemon runs", || mark.running("sleep") >= 1);
        let (keeper, command) = (probe.keeper(), probe.command());
        let keeper = Process { pid: keeper, start: start_of(keeper) };
        let leaf = leaf_of(command);
        // Both stopped first, so that neither can act on the other's death.
        for pid in [probe.pid(), keeper.pid] {
            kill(pid, libc::SIGSTOP);
            within(SOON, "stopped", || state(pid) == Some('T'));
        }
        let gone = || process::tree_is_gone(&keeper, leaf.as_deref(), &mark.bytes());
        assert_eq!(gone(), Gone::Alive);
        kill(probe.pid(), libc::SIGKILL);
        kill(keeper.pid, libc::SIGKILL);
        within(SECOND, "the command is dead", || !is_alive(command));
        // What the two left behind is not denied.
        within(SOON, "the keeper is gone", || process::is_gone(&keeper) == Gone::Gone);
        assert_eq!(gone(), Gone::Alive, "the daemon lives on");
        assert_eq!(
            process::tree_is_gone(&keeper, None, &mark.bytes()),
            Gone::Alive,
            "known by its mark alone"
        );
        for pid in mark.alive() {
            kill(pid, libc::SIGKILL);
        }
        within(SOON, "all gone", || gone() == Gone::Gone);
        if let Some(leaf) = leaf {
            within(SOON, "the leaf can be removed", || std::fs::remove_dir(&leaf).is_ok());
        }
    }
}

fn start_of(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap()
}

#[test]
fn a_stopped_supervisor_loses_its_tree_at_the_deadline() {
    for (contain, options) in containments().into_iter().flat_map(|contain| BOTH.map(|both| (contain, both)))
    {
        let mark = Mark::new();
        let script = "trap '' TERM; setsid sleep 1000 & sleep 1000; sleep 1000";
        let options = [options, &[("PROBE_DEADLINE_MS", "700")]].concat();
        let probe = Probe::start(&mark, script, contain, &options);
        kill(probe.pid(), libc::SIGSTOP);
        within(SOON, "the tree stands", || mark.alive().len() == 3);
        within(Duration::from_secs(2), "killed by the keeper", || mark.alive().is_empty());
        assert_eq!(state(probe.pid()), Some('T'), "the supervisor sleeps through it");
        kill(probe.pid(), libc::SIGCONT);
        assert_eq!(probe.log().wait_for("ended"), "Some(Signal(9)) true");
        probe.log().wait_for("left");
    }
}

#[test]
fn signals_to_the_supervisor_reach_the_command() {
    for signo in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        let mark = Mark::new();
        let script =
            format!("trap 'exit {signo}' {signo}; echo ready >> $PROBE_LOG; while :; do sleep 0.05; done");
        let probe = Probe::start(&mark, &script, Contain::Auto, &[]);
        probe.log().wait_for("ready");
        kill(probe.pid(), signo);
        assert_eq!(probe.log().wait_for("ended"), format!("Some(Code({signo})) false"));
        assert_eq!(probe.log().wait_for("caught"), format!("{signo} false"));
    }
}
