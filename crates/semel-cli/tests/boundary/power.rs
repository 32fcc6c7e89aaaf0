//! The power is cut, the machine comes back, and what was told is still true.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use semel::store::{self, Change, Durability, Record, Settings, Store};
use semel_core::record::{Expect, RecordKey};
use semel_testkit::{Chance, counted};
use serde_json::Value;

use crate::disk::{Disk, Id, Kept, Op};
use crate::home::{Home, Ledger, SEMEL, url};
use crate::record::{Event, Recorder, Told};
use crate::tracer::trace;

/// How many cuts there are of each ledger where not all are made.
const SAMPLE: u64 = 120;
/// After so many of them the command line is asked as well.
const ASKED_EVERY: usize = 40;
const ITEMS: usize = 24;
const RESOURCE: &str = "r";

/// What is done while the writes are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Job {
    /// A run of this slot.
    Slot(usize),
    /// The same again: it is done.
    Again(usize),
    /// A run with two steps.
    Walk,
    /// A batch.
    Batch,
    /// What tidies the ledger.
    Gc,
}

fn jobs() -> Vec<Job> {
    let slots = |range: std::ops::Range<usize>| range.map(Job::Slot);
    slots(0..6)
        .chain([Job::Again(2), Job::Walk])
        .chain(slots(6..12))
        .chain([Job::Batch])
        .chain(slots(12..24))
        .chain([Job::Again(20), Job::Gc])
        .chain(slots(24..28))
        .collect()
}

fn run(home: &Home, job: &str, slot: &str, script: &str) -> Command {
    let flags = ["run", "--job", job, "--slot", slot, "--resource", RESOURCE, "--on-lost", "hold"];
    home.command(SEMEL, &[flags.as_slice(), &["--if-busy", "wait=25s", "--", "sh", "-c", script]].concat())
}

fn command(home: &Home, job: Job) -> Command {
    match job {
        Job::Slot(slot) | Job::Again(slot) => run(home, "pay", &slot.to_string(), "true"),
        Job::Walk => run(home, "walk", "0", "set -e; $SEMEL step one -- true; $SEMEL step two -- true; true"),
        Job::Batch => {
            let flags = ["batch", "items", "--job", "posts", "--format", "lines", "-j", "2"];
            home.command(SEMEL, &[flags.as_slice(), &["--", "true", "{line}"]].concat())
        }
        Job::Gc => home.command(SEMEL, &["gc"]),
    }
}

/// All that was written and synced, and what the world was told between.
fn recorded(ledger: Ledger) -> Vec<Event> {
    let home = Home::new(ledger);
    let items: String = (0..ITEMS).map(|n| format!("item-{n}\n")).collect();
    home.write("items", &items);
    let mut recorder = Recorder::new(&home.path(""), "store");
    for (index, job) in jobs().into_iter().enumerate() {
        recorder.run = index;
        assert_eq!(trace(&mut command(&home, job), &mut recorder), 0, "{job:?}");
    }
    let syncs = recorder.events.iter().filter(|event| matches!(event, Event::Disk(Op::Sync { .. }))).count();
    println!("{ledger:?}: {} events, {syncs} syncs", recorder.events.len());
    assert!(syncs > 60, "{syncs}: is it traced?");
    recorder.events
}

/// What must be there, whatever the disk forgot.
#[derive(Default)]
struct Promised {
    /// By the number of the run: how many commands were started, how many steps done, and whether it is done.
    runs: Vec<(usize, usize, bool)>,
}

impl Promised {
    fn hears(&mut self, told: Told) {
        self.runs.resize(jobs().len(), (0, 0, false));
        match told {
            Told::Started(run) => self.runs[run].0 += 1,
            Told::Stepped(run) => self.runs[run].1 += 1,
            Told::Done(run) => self.runs[run].2 = true,
        }
    }

    fn of(&self) -> impl Iterator<Item = (Job, usize, usize, bool)> {
        jobs()
            .into_iter()
            .zip(&self.runs)
            .map(|(job, (started, stepped, done))| (job, *started, *stepped, *done))
    }

    /// How often the resource was granted, as far as the world knows.
    fn grants(&self) -> u64 {
        self.of().filter(|(job, started, ..)| matches!(job, Job::Slot(_) | Job::Walk) && *started > 0).count()
            as u64
    }

    /// What the ledger should hold and does not.
    fn broken(&self, ledger: &Found) -> Option<String> {
        for (job, started, stepped, done) in self.of() {
            let of_run = |name: &str, slot: &str| -> Option<String> {
                let state = ledger.state(name, slot);
                if started > 0 && state.is_none() {
                    return Some(format!("{job:?} was started, and its claim is gone"));
                }
                (done && state != Some("done")).then(|| format!("{job:?} was done, and is {state:?}"))
            };
            let broken = match job {
                Job::Slot(slot) => of_run("pay", &slot.to_string()),
                Job::Walk => {
                    // the script itself is the first command
                    let missing = ledger.steps.len() < started.saturating_sub(1).min(2);
                    let undone = ledger.steps.iter().filter(|state| *state == "done").count() < stepped;
                    let steps = || format!("{started} started, {stepped} steps done: {:?}", ledger.steps);
                    of_run("walk", "0").or_else(|| (missing || undone).then(steps))
                }
                Job::Batch => {
                    let count = ledger.items.iter().filter(|state| *state == "done").count();
                    let lost = ledger.items.len() < started || (done && count < ITEMS);
                    lost.then(|| format!("{started} items started, done {done}: {:?}", ledger.items))
                }
                Job::Again(_) | Job::Gc => None,
            };
            if broken.is_some() {
                return broken;
            }
        }
        let (grants, token) = (self.grants(), ledger.token);
        (token < grants).then(|| format!("{grants} grants, and the token is {token}"))
    }
}

/// What the ledger holds.
#[derive(Default)]
struct Found {
    entries: Vec<(String, String, String)>,
    steps: Vec<String>,
    items: Vec<String>,
    token: u64,
}

impl Found {
    fn state(&self, job: &str, slot: &str) -> Option<&str> {
        let found = self.entries.iter().find(|(its_job, its_slot, _)| its_job == job && its_slot == slot);
        found.map(|(_, _, state)| state.as_str())
    }

    /// Everything is read, and nothing is half there.
    fn take(&mut self, record: &Record) -> Result<(), String> {
        let value: Value =
            serde_json::from_slice(&record.value).map_err(|why| format!("{} is torn: {why}", record.key))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let state = text(&value["state"]);
        match record.key.as_str().split_once('/') {
            Some(("entry", _)) => {
                self.entries.push((text(&value["work"]["job"]), text(&value["work"]["slot"]), state));
            }
            Some(("step", _)) => self.steps.push(state),
            Some(("item", _)) => self.items.push(state),
            Some(("lease", name)) if name == RESOURCE => {
                self.token = value["grant"]["token"].as_u64().unwrap_or(0);
            }
            _ => {}
        }
        Ok(())
    }
}

async fn read(store: &dyn Store) -> Result<Found, String> {
    let mut found = Found::default();
    let mut after: Option<RecordKey> = None;
    loop {
        let page = store.scan("", after.as_ref(), 200).await.map_err(|why| why.to_string())?;
        for record in &page {
            found.take(record)?;
        }
        match page.last() {
            Some(last) => after = Some(last.key.clone()),
            None => return Ok(found),
        }
    }
}

/// Open what is left, read all of it, and write something new.
async fn reopened(ledger: Ledger, folder: &Path) -> Result<Found, String> {
    let store = store::open(&url(ledger, folder), &Settings::default()).map_err(|why| why.to_string())?;
    let found = read(store.as_ref()).await?;
    let key = RecordKey::from_stored("journal/after/the/cut".to_owned());
    let change = Change::Put { key: key.clone(), expect: Expect::Absent, value: b"{}".to_vec(), ttl: None };
    store.swap(&[change], Durability::Durable).await.map_err(|why| why.to_string())?;
    let again = store.load(&[key]).await.map_err(|why| why.to_string())?;
    if again.records[0].is_none() {
        Err("what was written after the cut is not there".to_owned())
    } else {
        Ok(found)
    }
}

/// The command line on what is left: what is done is not done again, what is in doubt is asked about, what is new is done.
fn asked(home: &Home, promised: &Promised) -> Option<String> {
    let effect = "echo $SEMEL_TOKEN >> effects";
    let slots = || {
        promised.of().filter_map(|(job, started, _, done)| match job {
            Job::Slot(slot) => Some((slot, started > 0, done)),
            _ => None,
        })
    };
    let last_done = slots().filter(|(.., done)| *done).last();
    let under_way = slots().find(|(_, started, done)| *started && !done);
    for (slot, codes) in
        last_done.map(|it| (it.0, [0, 0])).into_iter().chain(under_way.map(|it| (it.0, [79, 0])))
    {
        let said = home.end(run(home, "pay", &slot.to_string(), effect));
        if !codes.contains(&said.code) || !home.effects().is_empty() {
            return Some(format!("slot {slot} ended with {}: {}", said.code, said.err));
        }
    }
    let said = home.end(run(home, "pay", "new", effect));
    let tokens = home.effects();
    let token: u64 = tokens.first().and_then(|token| token.parse().ok()).unwrap_or(0);
    (said.code != 0 || token <= promised.grants())
        .then(|| format!("a new run got {token}: {}: {}", said.code, said.err))
}

/// What became of the cuts.
#[derive(Default, Debug)]
struct Cuts {
    points: usize,
    made: usize,
    broken: Vec<String>,
}

const KEPT: [Kept; 5] = [Kept::Nothing, Kept::All, Kept::Beginning, Kept::Any, Kept::Any];

/// Cut the power after each event that is chosen, in every way.
fn cut(ledger: Ledger, events: &[Event], chosen: impl Fn(usize) -> bool, chance: &mut Chance) -> Cuts {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut disk, mut promised, mut cuts) = (Disk::new(), Promised::default(), Cuts::default());
    for (index, event) in events.iter().enumerate() {
        match event {
            Event::Disk(op) => disk.apply(op),
            Event::Told(told) => promised.hears(*told),
        }
        if !chosen(index) {
            continue;
        }
        cuts.points += 1;
        for kept in KEPT {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let home = Home::new(ledger);
            let built = home.path("built");
            disk.build(&built, kept, chance);
            let moved = std::fs::rename(built.join("store"), home.store_folder());
            // nothing of it may be left; what was promised then shows
            drop(moved);
            let mut broken = match runtime.block_on(reopened(ledger, &home.store_folder())) {
                Ok(found) => promised.broken(&found),
                Err(why) => Some(why),
            };
            if broken.is_none() && number.is_multiple_of(ASKED_EVERY) {
                broken = asked(&home, &promised);
            }
            cuts.made += 1;
            let pending = disk.pending();
            let at = || format!("{ledger:?}, cut after {index}, {kept:?} of {pending} unsynced kept");
            cuts.broken.extend(broken.map(|what| format!("{}: {what}", at())));
        }
    }
    cuts
}

fn some_cuts(ledger: Ledger) {
    let mut chance = Chance::new("power");
    let events = recorded(ledger);
    let all = events.len() as u64;
    let rounds = semel_testkit::rounds(SAMPLE);
    let points: std::collections::HashSet<usize> = (0..rounds).map(|_| chance.below(all) as usize).collect();
    let cuts = cut(ledger, &events, |index| points.contains(&index), &mut chance);
    println!("{ledger:?}: {} of {all} points, {} cuts, {} broken", cuts.points, cuts.made, cuts.broken.len());
    assert_eq!(cuts.broken, [""; 0]);
}

#[test]
fn without_power_sqlite_keeps_what_was_told() {
    some_cuts(Ledger::Sqlite);
}

#[test]
fn without_power_a_directory_keeps_what_was_told() {
    some_cuts(Ledger::Dir);
}

/// Every 31st point, as if these syncs had not been made.
fn without(ledger: Ledger, is_dropped: impl Fn(Id) -> bool) -> Cuts {
    let kept = |event: &Event| !matches!(event, Event::Disk(Op::Sync { id }) if is_dropped(*id));
    let events: Vec<Event> = recorded(ledger).into_iter().filter(kept).collect();
    let cuts = cut(ledger, &events, |index| index % 31 == 30, &mut Chance::new("control"));
    println!(
        "{ledger:?} without syncs: {} points, {} cuts, {} broken",
        cuts.points,
        cuts.made,
        cuts.broken.len()
    );
    cuts
}

#[test]
fn control_without_syncs_something_told_is_lost() {
    for ledger in [Ledger::Sqlite, Ledger::Dir] {
        let cuts = without(ledger, |_| true);
        assert!(cuts.broken.iter().any(|why| why.contains("was done")), "{:?}", cuts.broken);
    }
}

#[test]
#[ignore = "takes minutes: cargo xtask torture boundary"]
fn every_write_of_a_run_is_a_place_to_lose_power() {
    for ledger in [Ledger::Sqlite, Ledger::Dir] {
        let events = recorded(ledger);
        let mut chance = Chance::new("power");
        let seed = chance.seed();
        let cuts = cut(ledger, &events, |_| true, &mut chance);
        println!("{ledger:?}: {} points, {} cuts, {} broken", cuts.points, cuts.made, cuts.broken.len());
        let (made, broken) = (cuts.made as u64, cuts.broken.len() as u64);
        counted("boundary", &format!("power/{ledger:?}"), made, "cuts", broken, Some(seed));
        assert_eq!(cuts.broken, [""; 0]);
    }
}
