//! Killed at a boundary, tried again until it is done, and counted.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use semel_testkit::{Chance, counted};

use crate::calls::changes;
use crate::home::{Home, Ledger};
use crate::scenes::{self, Promise, Scene};
use crate::tracer::{Role, Stop, Tree, Watch, trace};

/// How many boundaries of each scene are crossed where not all are.
const SAMPLE: u64 = 5;
/// How often a kill that did not come to its boundary is tried again.
const TRIES: u32 = 3;

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The command that was started.
    Semel,
    /// Its keeper.
    Keeper,
    /// Both at once.
    Both,
    /// `semel` inside the run, or its keeper, if it is at the boundary.
    Itself,
}

impl Victim {
    /// The processes, if there are such at this stop.
    fn of(self, stop: &Stop, tree: &Tree) -> Option<Vec<i32>> {
        let keepers = tree.of(Role::Keeper);
        match self {
            Victim::Semel => Some(vec![tree.main]),
            Victim::Keeper => (!keepers.is_empty()).then_some(keepers),
            Victim::Both => (!keepers.is_empty()).then(|| [vec![tree.main], keepers].concat()),
            Victim::Itself => {
                matches!(stop.role, Role::Nested | Role::NestedKeeper).then(|| vec![stop.process])
            }
        }
    }
}

/// A place where the world is about to change: the so many-th such call of this role. What runs beside it may come
/// before it or after it; among its own calls its number stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Boundary {
    role: Role,
    call: &'static str,
    nth: usize,
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {:?}", self.call, self.nth + 1, self.role)
    }
}

/// Counts boundaries, and kills at one of them.
struct Nemesis<'a> {
    victims: &'a [Victim],
    at: Option<Boundary>,
    seen: Vec<(Boundary, Vec<Victim>)>,
    counts: HashMap<(Role, &'static str), usize>,
    /// The command of the run has been started by now.
    started: bool,
    struck: bool,
}

impl Nemesis<'_> {
    fn new(victims: &[Victim], at: Option<Boundary>) -> Nemesis<'_> {
        Nemesis { victims, at, seen: Vec::new(), counts: HashMap::new(), started: false, struck: false }
    }
}

impl Watch for Nemesis<'_> {
    fn at(&mut self, stop: &Stop, tree: &Tree) {
        let Some(call) = changes(stop).filter(|_| stop.answer.is_none() && !self.struck) else { return };
        let count = self.counts.entry((stop.role, call)).or_default();
        let boundary = Boundary { role: stop.role, call, nth: *count };
        *count += 1;
        let there: Vec<Victim> =
            self.victims.iter().copied().filter(|victim| victim.of(stop, tree).is_some()).collect();
        if self.at == Some(boundary)
            && let Some(processes) = there.first().and_then(|victim| victim.of(stop, tree))
        {
            self.started |= tree.is_under_way();
            tree.kill(&processes);
            self.struck = true;
        }
        self.seen.push((boundary, there));
    }

    fn became(&mut self, role: Role) {
        // what comes after the kill is no matter
        self.started |= role == Role::Other && !self.struck;
    }
}

/// What came of a kill.
#[derive(Default)]
struct Tally {
    boundaries: usize,
    /// Kills that were asked for: a boundary and who is killed there.
    pairs: usize,
    kills: usize,
    /// Those that never came to their boundary, by name.
    missed: Vec<String>,
    asked: usize,
    twice: usize,
    lost: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { boundaries, pairs, kills, missed, asked, twice, lost } = self;
        let missed =
            if missed.is_empty() { String::new() } else { format!("; missed: {}", missed.join(", ")) };
        write!(
            f,
            "{boundaries} boundaries, {kills} kills of {pairs}: {twice} effects twice, {lost} lost, {asked} in doubt{missed}"
        )
    }
}

struct Round<'a> {
    scene: &'a Scene,
    ledger: Ledger,
    home: Home,
    at: String,
}

/// The boundaries of a scene that nobody disturbs, and who is there to be killed at each.
fn boundaries(scene: &Scene, ledger: Ledger) -> Vec<(Boundary, Victim)> {
    let home = Home::new(ledger);
    (scene.prepare)(&home);
    let mut nemesis = Nemesis::new(scene.victims, None);
    let code = trace(&mut (scene.command)(&home), &mut nemesis);
    assert_eq!(code, 0, "{}: undisturbed", scene.name);
    for (effect, _) in scene.effects {
        assert_eq!(home.count(effect), 1, "{}: undisturbed", scene.name);
    }
    let listed = nemesis.seen.into_iter();
    listed.flat_map(|(at, there)| there.into_iter().map(move |victim| (at, victim))).collect()
}

/// Kill there, try again until it is done, and look at what became of it. False: this run did not come there.
fn cross(scene: &Scene, ledger: Ledger, at: Boundary, victim: Victim, tally: &Mutex<Tally>) -> bool {
    let home = Home::new(ledger);
    (scene.prepare)(&home);
    let victims = [victim];
    let mut nemesis = Nemesis::new(&victims, Some(at));
    trace(&mut (scene.command)(&home), &mut nemesis);
    if !nemesis.struck {
        return false;
    }
    let at = format!("{}, {ledger:?}, {victim:?} killed at {at}", scene.name);
    let round = Round { scene, ledger, home, at };
    let counts =
        || -> Vec<usize> { scene.effects.iter().map(|(effect, _)| round.home.count(effect)).collect() };
    let before = counts();
    let recorded = round.recorded();
    let asked = round.recover();
    let after = counts();
    let mut tally = tally.lock().unwrap();
    tally.kills += 1;
    tally.asked += asked;
    tally.twice += after.iter().filter(|count| **count > 1).count();
    tally.lost += after.iter().filter(|count| **count == 0).count();
    drop(tally);
    if scene.promise != Promise::Nothing {
        round.check_counts(&before, &recorded, &after, nemesis.started);
        round.check_ledger(&after);
    }
    true
}

impl Round<'_> {
    /// Which effects the ledger calls done.
    fn recorded(&self) -> Vec<bool> {
        let done = |work: &str| !work.is_empty() && self.home.json(&["show", work])["state"] == "done";
        self.scene.effects.iter().map(|(_, work)| done(work)).collect()
    }

    /// Try again until it is done; what is in doubt is settled by a person, who looks at the effects and not at the
    /// ledger. Answers how often that was.
    fn recover(&self) -> usize {
        let mut asked = 0;
        for _ in 0..8 {
            let said = self.home.end((self.scene.command)(&self.home));
            match said.code {
                0 => return asked,
                79 if self.scene.promise == Promise::OnceOrAsked => {
                    asked += 1;
                    self.settle(&said.err);
                }
                code => panic!("{}: the retry ended with {code}: {}", self.at, said.err),
            }
        }
        panic!("{}: it is never done", self.at);
    }

    fn settle(&self, said: &str) {
        let named = |work: &&(&str, &str)| {
            said.contains(&format!("semel resolve {} ", work.1))
                || said.contains(&format!("semel resolve '{}' ", work.1))
        };
        let Some((effect, work)) = self.scene.effects.iter().find(named) else {
            panic!("{}: it does not say what is in doubt: {said}", self.at);
        };
        assert_eq!(self.home.json(&["show", work])["state"], "in_doubt", "{}: {said}", self.at);
        let verdict = if self.home.count(effect) > 0 { "--done" } else { "--not-done" };
        let resolved = self.home.semel(&["resolve", work, verdict, "--because", "looked"]);
        assert_eq!(resolved.code, 0, "{}: {}", self.at, resolved.err);
    }

    fn check_counts(&self, before: &[usize], recorded: &[bool], after: &[usize], started: bool) {
        for (index, (effect, _)) in self.scene.effects.iter().enumerate() {
            let (before, after) = (before[index], after[index]);
            let at = format!("{}: {effect:?} was there {before} times, then {after}", self.at);
            assert!(before <= 1, "{at}");
            if recorded[index] {
                assert_eq!((before, after), (1, 1), "{at}, and was on record");
            }
            match self.scene.promise {
                Promise::Once | Promise::OnceOrAsked => assert_eq!(after, 1, "{at}"),
                Promise::AtLeastOnce => assert!(after == 1 || after == 2 && started && before == 1, "{at}"),
                Promise::Nothing => {}
            }
        }
    }

    /// The ledger tells the truth, nothing is held, and nothing is left lying about.
    fn check_ledger(&self, after: &[usize]) {
        for ((_, work), count) in
            self.scene.effects.iter().zip(after).filter(|((_, work), _)| !work.is_empty())
        {
            let shown = self.home.json(&["show", work]);
            assert_eq!(shown["state"], "done", "{}: {shown}", self.at);
            let attempts = shown["entry"]["attempts"].as_u64().unwrap();
            assert!(attempts >= *count as u64, "{}: {count} effects, and it tells of {attempts}", self.at);
            let why = self.home.json(&["why", work]);
            assert_eq!(why["state"], "done", "{}: {why}", self.at);
        }
        if let Some(resource) = self.scene.resource {
            let lease = self.home.json(&["lease", "show", resource]);
            // after a person's verdict nobody came by to release it: it is free for whoever comes
            let is_free = lease["held"] == false || lease["owner_gone"] == true;
            assert!(is_free, "{}: {lease}", self.at);
            assert!((1..=4).contains(&lease["token"].as_u64().unwrap()), "{}: {lease}", self.at);
        }
        if let Some(resource) = self.scene.resource {
            let flags = ["run", "--job", "next", "--once", "--resource", resource, "--if-busy", "fail"];
            let next = self.home.semel(&[flags.as_slice(), &["--", "true"]].concat());
            assert_eq!(next.code, 0, "{}: {}", self.at, next.err);
        }
        let again = self.home.end((self.scene.command)(&self.home));
        assert_eq!((again.code, again.err.as_str()), (0, ""), "{}", self.at);
        let effects: Vec<usize> =
            self.scene.effects.iter().map(|(effect, _)| self.home.count(effect)).collect();
        assert_eq!(effects, after, "{}: done, and done again", self.at);
        self.check_files();
    }

    fn check_files(&self) {
        // what a killed process leaves is swept once it is old
        for below in ["state/semel/run", "store/drafts"] {
            age(&self.home, below);
        }
        let swept = self.home.semel(&["gc"]);
        assert_eq!(swept.code, 0, "{}: {}", self.at, swept.err);
        assert_eq!(self.home.files("state/semel/run"), [""; 0], "{}", self.at);
        let files = self.home.files("store");
        match self.ledger {
            Ledger::Sqlite => {
                let ours = ["ledger.db", "ledger.db-shm", "ledger.db-wal"];
                assert!(files.iter().all(|name| ours.contains(&name.as_str())), "{}: {files:?}", self.at);
            }
            Ledger::Dir => {
                let strange = files.iter().find(|name| !name.starts_with("records/") && *name != "semel-dir");
                assert_eq!(strange, None, "{}", self.at);
            }
        }
    }
}

/// Make everything in a folder two days old.
fn age(home: &Home, below: &str) {
    let then = SystemTime::now() - Duration::from_secs(2 * 86_400);
    for name in std::fs::read_dir(home.path(below)).into_iter().flatten().flatten() {
        // by its name: a socket cannot be opened
        let text = std::ffi::CString::new(name.path().to_str().unwrap()).unwrap();
        let seconds = then.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let time = libc::timespec { tv_sec: seconds.cast_signed(), tv_nsec: 0 };
        // SAFETY: the name ends with a nul, and the times outlive the call.
        unsafe { libc::utimensat(libc::AT_FDCWD, text.as_ptr(), [time, time].as_ptr(), 0) };
    }
}

/// Cross these boundaries, on as many threads as there are processors.
fn cross_all(scene: &Scene, ledger: Ledger, mut chance: Option<Chance>) -> Tally {
    let mut places = boundaries(scene, ledger);
    let mut all: Vec<Boundary> = places.iter().map(|(at, _)| *at).collect();
    all.dedup();
    if let Some(chance) = &mut chance {
        chance.shuffle(&mut places);
        places.truncate(usize::try_from(semel_testkit::rounds(SAMPLE)).unwrap());
    }
    let tally = Tally { boundaries: all.len(), pairs: places.len(), ..Tally::default() };
    let tally = Mutex::new(tally);
    let places = Mutex::new(places);
    let workers =
        if chance.is_some() { 1 } else { std::thread::available_parallelism().map_or(2, |n| n.get()) };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((at, victim)) = { places.lock().unwrap().pop() } {
                    if !(0..TRIES).any(|_| cross(scene, ledger, at, victim, &tally)) {
                        tally.lock().unwrap().missed.push(format!("{victim:?} at {at}"));
                    }
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    println!("{} on {ledger:?}: {tally}", scene.name);
    tally
}

fn some_of(scene: &Scene) {
    for ledger in [Ledger::Sqlite, Ledger::Dir] {
        let tally = cross_all(scene, ledger, Some(Chance::new(scene.name)));
        assert!(tally.boundaries > 50, "{tally}: is it traced?");
        assert!(tally.kills > 0 && tally.kills + tally.missed.len() == tally.pairs, "{tally}");
    }
}

#[test]
fn killed_at_any_call_a_probed_run_has_one_effect() {
    some_of(&scenes::PROBED);
}

#[test]
fn killed_at_any_call_a_held_run_has_one_effect_or_asks() {
    some_of(&scenes::HELD);
}

#[test]
fn killed_at_any_call_a_retried_run_has_two_effects_only_if_it_was_under_way() {
    some_of(&scenes::RETRIED);
}

#[test]
fn killed_at_any_call_each_step_has_one_effect_or_asks() {
    some_of(&scenes::STEPS);
}

#[test]
fn killed_at_any_call_each_item_of_a_batch_has_one_effect() {
    some_of(&scenes::BATCH);
}

#[test]
fn control_a_lock_and_a_marker_double_or_lose_at_some_call() {
    let after = cross_all(&scenes::MARKED_AFTER, Ledger::Sqlite, None);
    assert!(after.twice > 0 && after.lost == 0, "{after}");
    let before = cross_all(&scenes::MARKED_BEFORE, Ledger::Sqlite, None);
    assert!(before.twice == 0 && before.lost > 0, "{before}");
}

#[test]
#[ignore = "takes minutes: cargo xtask torture boundary"]
fn every_call_of_a_run_is_a_place_to_die() {
    for ledger in [Ledger::Sqlite, Ledger::Dir] {
        for scene in scenes::SCENES {
            let tally = cross_all(scene, ledger, None);
            assert!(tally.boundaries > 50, "{tally}: is it traced?");
            assert_eq!(tally.kills + tally.missed.len(), tally.pairs, "{tally}");
            assert!(tally.missed.len() * 50 <= tally.pairs, "{tally}: too many were missed");
            // what does not keep its scene's promise has ended the test by now
            counted("boundary", &format!("{}/{ledger:?}", scene.name), tally.kills as u64, "kills", 0, None);
        }
    }
}
