//! Batches that are killed -9 and shared: each item is done, and counted in the world.
//!
//! Without a probe an item may be done twice only if its outcome was not on record when its runner was killed: it was
//! under way, or had just ended. What was on record is asked of the ledger after each kill. With a probe every item is
//! done exactly once.
//!
//! `SEMEL_ROUNDS` says how many kills there are (50), with forty items for each; `SEMEL_SEED` when they come.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use semel_testkit::{Chance, rounds};

use crate::support::{Home, Running, SOON, until};

const WORKERS: usize = 2;

/// How many items there are, and how many kills.
#[derive(Clone, Copy)]
struct Size {
    items: usize,
    kills: usize,
}

/// Where several runners are at it, or it takes long.
const SMALL: Size = Size { items: 400, kills: 25 };

fn large() -> Size {
    let kills = usize::try_from(rounds(50)).unwrap();
    Size { items: kills * 40, kills }
}

/// The item and its key: an effect that is counted outside, in one write.
const EFFECT: &str = "echo \"$1 $SEMEL_KEY\" >> effects";
/// The same of an item that takes longer than a commit.
const SLOW_EFFECT: &str = "sleep 0.02; echo \"$1 $SEMEL_KEY\" >> effects";
/// Whether the effect of this item is there.
const BY_KEY: &str = "grep -q \" $SEMEL_KEY$\" effects";
const BY_ITEM: &str = "grep -q \"^$(cat $SEMEL_ITEM) \" effects";

fn items(home: &Home, size: Size) -> Vec<String> {
    let items: Vec<String> = (1..=size.items).map(|n| format!("item-{n:05}")).collect();
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

/// Let it come to some more effects, so many that as many kills fit in, then a little further: about as long as an item
/// takes, be it one that sleeps or one that is done in a millisecond. `false`: it came to its end.
fn goes_on_for_a_while(home: &Home, chance: &mut Chance, left: Size, run: &mut Running) -> bool {
    let per_kill = left.items / left.kills.max(1);
    let most = u64::try_from(per_kill).unwrap().max(1);
    let (before, begun) = (home.lines("effects").len(), Instant::now());
    let goal = before + usize::try_from(chance.below(most)).unwrap();
    until("some more effects", SOON, || home.lines("effects").len() > goal || run.has_ended());
    let came = u32::try_from(home.lines("effects").len() - before).unwrap();
    let pace = (begun.elapsed() / came.max(1)).min(Duration::from_millis(12));
    // any moment is as good as another: that is what these tests are about
    std::thread::sleep(Duration::from_micros(chance.below(u64::try_from(pace.as_micros()).unwrap().max(1))));
    !run.has_ended()
}

/// Start it until nothing is left: one that comes while a dead one is cleared away stands down.
#[track_caller]
fn finish(home: &Home, size: Size, flags: &[&str], script: &str) {
    let flags = [flags, &["--json"]].concat();
    until("nothing is left to do", SOON, || {
        let said = home.launch(&mut batch(home, &flags, script)).end().exits(0);
        let last = said.json();
        last["kind"] == "batch" && last["skipped"] == size.items
    });
}

/// A kill, when all that the dead one had started was gone.
struct Kill {
    /// So many effects were there.
    effects: usize,
    /// These were under way as far as is on record.
    open: BTreeSet<String>,
}

impl Kill {
    fn now(home: &Home) -> Kill {
        let listed = home.ask("ls --job posts --state lost --limit 100000 --json").exits(0).text();
        let item =
            |line: &str| line.split("\"work\":\"posts;line=").nth(1)?.split('"').next().map(str::to_owned);
        let open = listed.lines().map(|line| item(line).unwrap_or_else(|| panic!("{line}"))).collect();
        Kill { effects: home.lines("effects").len(), open }
    }
}

/// Kill it and start it again, as often as the size says, until nothing is left.
fn kill_again_and_again(
    home: &Home,
    size: Size,
    chance: &mut Chance,
    flags: &[&str],
    script: &str,
    wait: bool,
) -> Vec<Kill> {
    let mut kills: Vec<Kill> = Vec::new();
    let mut hit = Instant::now();
    while kills.len() < size.kills {
        let mut run = home.launch(&mut batch(home, flags, script));
        let done = home.lines("effects").len();
        let left = Size { items: size.items.saturating_sub(done), kills: size.kills - kills.len() };
        if goes_on_for_a_while(home, chance, left, &mut run) {
            run.kill_9();
            if wait {
                until("all that it started is gone", SOON, || home.alive().is_empty());
            }
            kills.push(Kill::now(home));
            hit = Instant::now();
        } else if counted(&self::done(home, "effects")).len() == size.items {
            break;
        }
        // else it came while a dead one is cleared away, and stood down
        assert!(hit.elapsed() < SOON, "no start goes on after {} kills", kills.len());
    }
    println!("{} kills", kills.len());
    assert!(kills.len() * 10 >= size.kills * 9, "only {} of {} kills hit", kills.len(), size.kills);
    finish(home, size, flags, script);
    kills
}

/// What came again, by the kill that it came again after. Each must have been under way then, as far as was on record.
#[track_caller]
fn doubled_by(effects: &[String], kills: &[Kill]) -> Vec<usize> {
    let mut by_kill = vec![0; kills.len()];
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, item) in effects.iter().enumerate() {
        let Some(before) = last.insert(item, at) else { continue };
        let between = |kill: &Kill| before < kill.effects && kill.effects <= at && kill.open.contains(item);
        let kill = kills.iter().position(between);
        by_kill[kill.unwrap_or_else(|| panic!("{item} came again, and was not under way at a kill"))] += 1;
    }
    by_kill
}

/// Kill it, and answer the kills and how many effects were too many. Each item is done at least once.
#[track_caller]
fn kills_and_doubles(test: &str, size: Size, script: &str) -> (usize, usize) {
    let home = Home::new();
    let items = items(&home, size);
    let kills = kill_again_and_again(&home, size, &mut Chance::new(test), &[], script, true);
    let effects = done(&home, "effects");
    assert_eq!(counted(&effects).into_keys().collect::<Vec<_>>(), items, "at least once");
    let by_kill = doubled_by(&effects, &kills);
    println!("doubled by each kill: {by_kill:?}");
    home.assert_whole();
    (kills.len(), by_kill.iter().sum())
}

/// Items that take longer than a commit: at most one per worker and kill.
#[test]
fn a_batch_that_is_killed_again_and_again_doubles_only_what_was_in_flight() {
    let (kills, extra) = kills_and_doubles("a_batch_that_is_killed_again_and_again", SMALL, SLOW_EFFECT);
    assert!(extra <= kills * WORKERS, "{extra} effects too many after {kills} kills");
}

/// Items that take no longer than a commit: several of a worker may have ended since the last one, so the bound above
/// is not theirs. All are done, and none comes again that was on record as done.
#[test]
fn a_batch_of_quick_items_that_is_killed_again_and_again_does_them_all() {
    kills_and_doubles("a_batch_of_quick_items", large(), EFFECT);
}

#[test]
fn with_a_probe_a_batch_that_is_killed_again_and_again_does_each_item_exactly_once() {
    let quick = Size { items: SMALL.kills * 40, ..SMALL };
    for (probe, wait, size) in [(BY_KEY, true, large()), (BY_ITEM, false, quick)] {
        let home = Home::new();
        let items = items(&home, size);
        let mut chance = Chance::new("with_a_probe_a_batch_that_is_killed");
        kill_again_and_again(&home, size, &mut chance, &["--probe", probe], EFFECT, wait);
        assert_each_once(&home, &items);
        home.assert_whole();
    }
}

/// Control: what keeps no record begins from the start.
#[test]
fn xargs_that_is_killed_again_and_again_doubles_much() {
    let home = Home::new();
    items(&home, SMALL);
    let mut chance = Chance::new("xargs_that_is_killed");
    let script = "exec xargs -P 2 -n 1 sh -c 'echo \"$0\" >> effects' < items";
    let mut kills = 0;
    for _ in 0..5 {
        let mut run = home.launch(&mut home.script(script));
        if goes_on_for_a_while(&home, &mut chance, SMALL, &mut run) {
            run.kill_9();
            kills += 1;
        }
    }
    home.launch(&mut home.script(script)).end().exits(0);
    until("all that it started is gone", SOON, || home.alive().is_empty());
    let extra = home.lines("effects").len() - SMALL.items;
    assert!(extra > kills * WORKERS, "only {extra} too many after {kills} kills");
}

#[test]
fn four_runners_share_a_batch_and_each_item_is_done_once() {
    let home = Home::new();
    let items = items(&home, SMALL);
    let runs: Vec<Running> =
        (0..4).map(|_| home.launch(&mut batch(&home, &["--share", "--json"], EFFECT))).collect();
    let did: Vec<u64> =
        runs.into_iter().map(|run| run.end().exits(0).json()["done"].as_u64().unwrap()).collect();
    assert_each_once(&home, &items);
    assert_eq!(did.iter().sum::<u64>(), SMALL.items as u64, "{did:?}");
    assert!(did.iter().filter(|did| **did > 0).count() > 1, "it was not shared: {did:?}");
    // a late one finds nothing
    home.launch(&mut batch(&home, &["--share"], EFFECT)).end().exits(0).silent();
}

/// Four runners, killed and started again. Answers how often.
fn kill_four(home: &Home, test: &str, flags: &[&str], script: &str) -> usize {
    let mut chance = Chance::new(test);
    let start = || home.launch(&mut batch(home, flags, script));
    let mut runs: Vec<Running> = (0..4).map(|_| start()).collect();
    let mut kills = 0;
    while kills < SMALL.kills && home.lines("effects").len() < SMALL.items {
        let which = usize::try_from(chance.below(4)).unwrap();
        let done = home.lines("effects").len();
        let left = Size { items: SMALL.items.saturating_sub(done), kills: SMALL.kills - kills };
        if goes_on_for_a_while(home, &mut chance, left, &mut runs[which]) {
            std::mem::replace(&mut runs[which], start()).kill_9();
            kills += 1;
        } else {
            runs[which] = start();
        }
    }
    println!("{kills} kills");
    assert!(kills * 5 >= SMALL.kills * 4, "only {kills} of {} kills hit", SMALL.kills);
    for run in runs {
        run.end().exits(0);
    }
    finish(home, SMALL, flags, script);
    home.assert_whole();
    kills
}

#[test]
fn four_runners_that_are_killed_and_started_again_do_each_item_exactly_once() {
    let home = Home::new();
    let items = items(&home, SMALL);
    kill_four(&home, "four_runners_that_are_killed", &["--share", "--probe", BY_KEY], EFFECT);
    assert_each_once(&home, &items);
}

/// Without a probe: of items that take longer than a commit at most one per worker and kill is done twice.
#[test]
fn four_runners_without_a_probe_double_only_what_was_in_flight() {
    let home = Home::new();
    let items = items(&home, SMALL);
    let kills = kill_four(&home, "four_runners_without_a_probe", &["--share"], SLOW_EFFECT);
    let effects = done(&home, "effects");
    assert_eq!(counted(&effects).into_keys().collect::<Vec<_>>(), items, "at least once");
    let extra = effects.len() - items.len();
    assert!(extra <= kills * WORKERS, "{extra} effects too many after {kills} kills");
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
