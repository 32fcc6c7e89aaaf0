//! Batches that are killed -9 and shared: each item is done, and counted in the world.
//!
//! Without a probe an item may be done twice only if its outcome was not on record when its runner was killed: it was
//! under way, or had just ended. With a probe every item is done exactly once.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use semel_testkit::Chance;

use crate::support::{Home, Running, SOON, until};

const ITEMS: usize = 400;
const WORKERS: usize = 2;
const KILLS: usize = 25;

/// The item and its key: an effect that is counted outside, in one write.
const EFFECT: &str = "echo \"$1 $SEMEL_KEY\" >> effects";
/// The same of an item that takes longer than a commit.
const SLOW_EFFECT: &str = "sleep 0.02; echo \"$1 $SEMEL_KEY\" >> effects";
/// Whether the effect of this item is there.
const BY_KEY: &str = "grep -q \" $SEMEL_KEY$\" effects";
const BY_ITEM: &str = "grep -q \"^$(cat $SEMEL_ITEM) \" effects";

fn items(home: &Home) -> Vec<String> {
    let items: Vec<String> = (1..=ITEMS).map(|n| format!("item-{n:03}")).collect();
    home.write("items", items.join("\n") + "\n");
    home.write("effects", "");
    items
}

fn batch(home: &Home, flags: &[&str], script: &str) -> Command {
    let mut command = home.semel(["batch", "items", "--job", "posts", "--format", "lines", "-j", "2"]);
    command.args(flags).args(["--", "sh", "-c", script, "sh", "{line}"]);
    command
}

/// The first word of each line: the item.
fn done(home: &Home, name: &str) -> Vec<String> {
    home.lines(name).iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

fn counted(effects: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for item in effects {
        *counts.entry(item.as_str()).or_default() += 1;
    }
    counts
}

#[track_caller]
fn assert_each_once(home: &Home, items: &[String]) {
    let mut effects = done(home, "effects");
    effects.sort();
    let doubled: Vec<_> = counted(&effects).into_iter().filter(|(_, times)| *times > 1).collect();
    assert!(doubled.is_empty(), "done more than once: {doubled:?}");
    assert_eq!(effects, items);
}

/// Let it come to some more effects, then a little further. `false`: it came to its end.
fn goes_on_for_a_while(home: &Home, chance: &mut Chance, run: &mut Running) -> bool {
    let goal = home.lines("effects").len() + usize::try_from(chance.below(14)).unwrap();
    until("some more effects", SOON, || home.lines("effects").len() > goal || run.has_ended());
    // any moment is as good as another: that is what these tests are about
    std::thread::sleep(Duration::from_micros(chance.below(12_000)));
    !run.has_ended()
}

/// Start it until nothing is left: one that comes while a dead one is cleared away stands down.
#[track_caller]
fn finish(home: &Home, flags: &[&str], script: &str) {
    let flags = [flags, &["--json"]].concat();
    until("nothing is left to do", SOON, || {
        let said = home.launch(&mut batch(home, &flags, script)).end().exits(0);
        let last = said.json();
        last["kind"] == "batch" && last["skipped"] == ITEMS
    });
}

/// Kill it and start it again, until nothing is left. Answers how many effects there were at each kill, when all that
/// the dead one had started was gone.
fn kill_again_and_again(
    home: &Home,
    chance: &mut Chance,
    flags: &[&str],
    script: &str,
    wait: bool,
) -> Vec<usize> {
    let mut at_kill = Vec::new();
    while at_kill.len() < KILLS && home.lines("effects").len() < ITEMS {
        let mut run = home.launch(&mut batch(home, flags, script));
        if goes_on_for_a_while(home, chance, &mut run) {
            run.kill_9();
            if wait {
                until("all that it started is gone", SOON, || home.alive().is_empty());
            }
            at_kill.push(home.lines("effects").len());
        }
    }
    assert!(at_kill.len() > KILLS / 2, "killed only {} times", at_kill.len());
    finish(home, flags, script);
    at_kill
}

/// How many effects of before each kill came again.
fn doubled_by(effects: &[String], at_kill: &[usize]) -> Vec<usize> {
    let mut by_kill = vec![0; at_kill.len()];
    for (at, item) in effects.iter().enumerate() {
        if effects[at + 1..].contains(item) {
            let kill = at_kill.iter().position(|kill| at < *kill);
            by_kill[kill.unwrap_or_else(|| panic!("{item} came again after the last kill"))] += 1;
        }
    }
    by_kill
}

/// Kill it, and answer the kills and how many effects were too many. Each item is done at least once.
#[track_caller]
fn kills_and_doubles(test: &str, script: &str) -> (usize, usize) {
    let home = Home::new();
    let items = items(&home);
    let at_kill = kill_again_and_again(&home, &mut Chance::new(test), &[], script, true);
    let effects = done(&home, "effects");
    assert_eq!(counted(&effects).into_keys().collect::<Vec<_>>(), items, "at least once");
    let by_kill = doubled_by(&effects, &at_kill);
    println!("doubled by each kill: {by_kill:?}");
    home.assert_whole();
    (at_kill.len(), by_kill.iter().sum())
}

/// Items that take longer than a commit: at most one per worker and kill.
#[test]
fn a_batch_that_is_killed_again_and_again_doubles_only_what_was_in_flight() {
    let (kills, extra) = kills_and_doubles("a_batch_that_is_killed_again_and_again", SLOW_EFFECT);
    assert!(extra <= kills * WORKERS, "{extra} effects too many after {kills} kills");
}

/// Items that take no longer than a commit: several of a worker may have ended since the last one, so the bound above
/// is not theirs. All are done, and none comes again without a kill.
#[test]
fn a_batch_of_quick_items_that_is_killed_again_and_again_does_them_all() {
    kills_and_doubles("a_batch_of_quick_items", EFFECT);
}

#[test]
fn with_a_probe_a_batch_that_is_killed_again_and_again_does_each_item_exactly_once() {
    for (probe, wait) in [(BY_KEY, true), (BY_ITEM, false)] {
        let home = Home::new();
        let items = items(&home);
        let mut chance = Chance::new("with_a_probe_a_batch_that_is_killed");
        kill_again_and_again(&home, &mut chance, &["--probe", probe], EFFECT, wait);
        assert_each_once(&home, &items);
        home.assert_whole();
    }
}

/// Control: what keeps no record begins from the start.
#[test]
fn xargs_that_is_killed_again_and_again_doubles_much() {
    let home = Home::new();
    items(&home);
    let mut chance = Chance::new("xargs_that_is_killed");
    let script = "exec xargs -P 2 -n 1 sh -c 'echo \"$0\" >> effects' < items";
    let mut kills = 0;
    for _ in 0..5 {
        let mut run = home.launch(&mut home.script(script));
        if goes_on_for_a_while(&home, &mut chance, &mut run) {
            run.kill_9();
            kills += 1;
        }
    }
    home.launch(&mut home.script(script)).end().exits(0);
    until("all that it started is gone", SOON, || home.alive().is_empty());
    let extra = home.lines("effects").len() - ITEMS;
    assert!(extra > kills * WORKERS, "only {extra} too many after {kills} kills");
}

#[test]
fn four_runners_share_a_batch_and_each_item_is_done_once() {
    let home = Home::new();
    let items = items(&home);
    let runs: Vec<Running> =
        (0..4).map(|_| home.launch(&mut batch(&home, &["--share", "--json"], EFFECT))).collect();
    let did: Vec<u64> =
        runs.into_iter().map(|run| run.end().exits(0).json()["done"].as_u64().unwrap()).collect();
    assert_each_once(&home, &items);
    assert_eq!(did.iter().sum::<u64>(), ITEMS as u64, "{did:?}");
    assert!(did.iter().filter(|did| **did > 0).count() > 1, "it was not shared: {did:?}");
    // a late one finds nothing
    home.launch(&mut batch(&home, &["--share"], EFFECT)).end().exits(0).silent();
}

#[test]
fn four_runners_that_are_killed_and_started_again_do_each_item_exactly_once() {
    let home = Home::new();
    let items = items(&home);
    let mut chance = Chance::new("four_runners_that_are_killed");
    let flags = ["--share", "--probe", BY_KEY];
    let start = || home.launch(&mut batch(&home, &flags, EFFECT));
    let mut runs: Vec<Running> = (0..4).map(|_| start()).collect();
    let mut kills = 0;
    while kills < KILLS && home.lines("effects").len() < ITEMS {
        let which = usize::try_from(chance.below(4)).unwrap();
        if goes_on_for_a_while(&home, &mut chance, &mut runs[which]) {
            std::mem::replace(&mut runs[which], start()).kill_9();
            kills += 1;
        } else {
            runs[which] = start();
        }
    }
    println!("{kills} kills");
    for run in runs {
        run.end().exits(0);
    }
    finish(&home, &flags, EFFECT);
    assert_each_once(&home, &items);
    home.assert_whole();
}

/// A batch whose items hang until `go` is there.
fn hanging(home: &Home, flags: &[&str]) -> Running {
    let script = "echo $1 >> effects; [ -e go ] || exec sleep 600";
    let mut command = home.semel(["batch", "items", "--job", "posts", "--format", "lines"]);
    command.args(flags).args(["--", "sh", "-c", script, "sh", "{line}"]);
    home.launch(&mut command)
}

const SOME: usize = 60;

/// More than two runners claim ahead, however slow the disk is.
fn some_items(home: &Home) -> Vec<String> {
    let items: Vec<String> = (1..=SOME).map(|n| format!("{n:02}")).collect();
    home.write("items", items.join("\n"));
    items
}

#[test]
fn the_items_of_a_dead_runner_are_taken_over_and_those_of_the_living_are_not() {
    let home = Home::new();
    some_items(&home);
    let shared = || hanging(&home, &["--share", "-j", "2"]);
    let dead = shared();
    let of_the_dead = home.wait_lines("effects", 2);
    let mut living = shared();
    let of_the_living = home.wait_lines("effects", 4)[2..].to_vec();
    home.write("go", "");
    dead.kill_9();
    let third = shared();
    let came = |item: &String| home.lines("effects")[4..].contains(item);
    // what the living has claimed ahead may be any of the others, those of the dead too: a third of all is free
    home.wait_lines("effects", 4 + SOME / 3);
    assert!(!living.has_ended());
    assert!(!of_the_living.iter().any(came), "{of_the_living:?}: {:?}", home.lines("effects"));
    living.kill_9();
    third.end().exits(0);
    let effects = home.lines("effects");
    for (item, times) in counted(&effects) {
        let of_a_dead_one = of_the_dead.iter().chain(&of_the_living).any(|one| one == item);
        assert_eq!(times, if of_a_dead_one { 2 } else { 1 }, "{item}");
    }
    assert_eq!(effects.len(), SOME + 4);
}

#[test]
fn a_second_start_stands_down_unless_both_share() {
    let home = Home::new();
    let items = some_items(&home);
    let start = |flags: &[&str]| hanging(&home, flags);
    let first = start(&[]);
    home.wait_lines("effects", 1);
    start(&[]).end().exits(0).silent();
    start(&["--share"]).end().exits(0).silent();
    start(&["--skip-code", "9"]).end().exits(9);
    start(&["--if-busy", "fail"]).end().exits(75).saying("posts");
    assert_eq!(home.lines("effects").len(), 1);
    first.kill_9();
    until("all that it started is gone", SOON, || home.alive().is_empty());
    let sharing = start(&["--share"]);
    home.wait_lines("effects", 2);
    start(&[]).end().exits(0).silent();
    start(&["--if-busy", "fail"]).end().exits(75).saying("posts");
    home.write("go", "");
    let other = start(&["--share"]);
    home.wait_lines("effects", 3);
    sharing.kill_9();
    other.end().exits(0);
    assert_eq!(counted(&home.lines("effects")).into_keys().collect::<Vec<_>>(), items);
}
