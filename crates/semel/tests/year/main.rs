//! A year of two unreliable schedulers, in seconds: every slot is done once, or on record as missed once, or as what
//! else became of it. No real time passes, and the same seed gives the same year.
//!
//! `SEMEL_YEAR_SEED=N` replays one; `SEMEL_ROUNDS=N` goes through so many. `cargo xtask torture year` does the latter.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // a test that cannot go on should say where

mod check;
mod command;
mod firing;
mod jobs;
mod machine;
mod naive;
mod rng;
mod store;
mod trace;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::core::calendar::CatchUp;
use semel::core::policy::OnLost;
use semel::store::Store;
use semel::store::memory::Memory;
use semel::store::sqlite::Sqlite;

use check::Tally;
use firing::{Counts, Stage, THREE_DAYS};
use jobs::{DAY_MS, Job, MINUTE_MS, Said};
use machine::{Machine, Processes, Time};
use naive::Naive;
use rng::Rng;
use store::Witnessed;
use trace::{Firing, Span, Trace};

/// Clocks change on 8 March and 1 November in New York, on 29 March and 25 October in Berlin, on 5 April and 4 October
/// on Lord Howe.
const START: &str = "2026-01-01T11:07:00Z";
const ZONES: [&str; 3] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];
const CATCH_UPS: [CatchUp; 3] = [CatchUp::Latest, CatchUp::None, THREE_DAYS];
const ON_LOST: [OnLost; 3] = [OnLost::Retry, OnLost::Hold, OnLost::Probe];

/// What a year came to.
struct Year {
    tally: Tally,
    counts: Counts,
    naive: Naive,
    seconds: u64,
    faults: Vec<String>,
}

/// The seeds of a test: some, or the one, or as many as are asked for.
#[allow(clippy::disallowed_methods)] // a test is told its seed by the environment
fn seeds(some: &[u64]) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    match (number("SEMEL_YEAR_SEED"), number("SEMEL_ROUNDS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(rounds)) => (1..=rounds).collect(),
        (None, None) => some.to_vec(),
    }
}

fn start_ms() -> u64 {
    jobs::ms(START.parse().unwrap())
}

/// Live through it.
async fn live(seed: u64, span: Span, jobs: Vec<Job>, store: impl FnOnce(&Arc<Time>) -> Witnessed) -> Year {
    let time = Time::starting(span.from_ms - DAY_MS);
    let Trace { fortunes, outages, firings } = trace::draw(seed, &span, &jobs);
    let hosts = if span.is_hard { ["a", "b"] } else { ["a", "a"] };
    let machines: Vec<_> = fortunes
        .iter()
        .enumerate()
        .map(|(index, fortune)| Machine::new(index, hosts[index], &time, fortune.clone()))
        .collect();
    let stage = Arc::new(Stage {
        jobs,
        processes: Arc::new(Processes(machines.clone())),
        machines,
        store: store(&time),
        outages: Arc::new(outages.clone()),
        world: Arc::default(),
        first_ms: span.from_ms,
        heard: Mutex::default(),
        counts: Mutex::default(),
    });
    let mut under_way = tokio::task::JoinSet::new();
    for firing in &firings {
        tokio::time::sleep_until(time.at(firing.at_ms)).await;
        let (stage, firing) = (Arc::clone(&stage), firing.clone());
        under_way.spawn_local(async move { stage.fire(&firing).await });
        while let Some(ended) = under_way.try_join_next() {
            ended.unwrap();
        }
    }
    while let Some(ended) = under_way.join_next().await {
        ended.unwrap();
    }
    let last_ms = time.now_ms().max(span.to_ms) + 30 * MINUTE_MS;
    tokio::time::sleep_until(time.at(last_ms)).await;
    let mut year = Year {
        tally: Tally::default(),
        counts: Counts::default(),
        naive: Naive::default(),
        seconds: (last_ms - span.from_ms) / 1_000,
        faults: Vec::new(),
    };
    for job in &stage.jobs {
        let last_ms = quiet(&stage, job, &mut year.faults).await;
        let (tally, faults) = check::job(&stage, job, span.from_ms, last_ms).await;
        year.tally.add(&tally);
        year.faults.extend(faults);
    }
    year.faults.extend(std::mem::take(&mut stage.world.lock().unwrap().faults));
    year.counts = *stage.counts.lock().unwrap();
    year.naive = naive::run(&Trace { fortunes, outages, firings }, &stage.jobs, last_ms);
    year
}

/// A last firing that nothing befalls; one that finds something for a person is fired again.
async fn quiet(stage: &Arc<Stage>, job: &Job, faults: &mut Vec<String>) -> u64 {
    const MOST: usize = 300;
    let mut rng = Rng::new(job.index as u64);
    let time = Arc::clone(&stage.machines[0].time);
    for _ in 0..MOST {
        let firing = Firing::quiet(time.now_ms(), job.index, rng.next());
        if stage.fire(&firing).await {
            // what waits for another try is told by the next one
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
                stage.tell(job.index).await;
            }
            return firing.at_ms;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    faults.push(format!("{}: {MOST} quiet firings did not come to their end", job.name));
    time.now_ms()
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.slots += other.slots;
        self.done += other.done;
        self.missed += other.missed;
        self.failed += other.failed;
        self.person += other.person;
        self.torn += other.torn;
    }
}

/// Go through these years, and say how each was.
fn go(name: &str, some: &[u64], year: impl Fn(u64) -> Year) {
    let seeds = seeds(some);
    let (many, first) = (seeds.len() as u64, seeds.first().copied());
    for seed in seeds {
        let Year { tally, counts, naive, seconds, faults } = year(seed);
        println!(
            "{name}, seed {seed}: {seconds} s simulated; {counts:?}; {tally:?}; without Semel: {naive:?}"
        );
        let few: Vec<&String> = faults.iter().take(20).collect();
        assert!(faults.is_empty(), "{name}, SEMEL_YEAR_SEED={seed}: {} faults: {few:#?}", faults.len());
        assert!(
            tally.done > tally.slots / 2,
            "{name}, SEMEL_YEAR_SEED={seed}: a year in which little was done"
        );
        assert!(
            naive.duplicates > 0 && naive.gaps > 0,
            "{name}, SEMEL_YEAR_SEED={seed}: the control has no faults"
        );
    }
    // seeds from the first one on; a year that went wrong has ended the test
    semel_testkit::counted("year", name, many, "years", 0, first);
}

fn in_simulated_time<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

fn on_memory(seed: u64, span: Span, jobs: Vec<Job>) -> Year {
    in_simulated_time(live(seed, span, jobs, |time| {
        Witnessed::new(Arc::new(Memory::with_clock(time.clone())))
    }))
}

/// Days and lines that name a time, in three zones, with every policy by turns.
fn days(seed: u64) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (z, zone) in ZONES.iter().enumerate() {
        for (e, every) in ["day", "0 2 * * *", "30 2 * * *"].iter().enumerate() {
            let turn = seed as usize + z + e;
            let catch_up = CATCH_UPS[turn % 3];
            let on_lost = ON_LOST[(turn / 3 + z + 2 * e) % 3];
            // two of them share a resource
            let resource = (z == 0 && e < 2).then_some("site");
            jobs.push(Job::new(jobs.len(), &Said { every, zone, catch_up, on_lost, resource }));
        }
    }
    jobs
}

#[test]
fn a_year_of_days() {
    go("days", &[1, 2, 3], |seed| {
        let (from_ms, to_ms) = (start_ms(), start_ms() + check::YEAR_MS);
        on_memory(seed, Span { from_ms, to_ms, is_hard: true }, days(seed))
    });
}

/// The same on a store that makes one change after the other: a process may end between any two.
#[test]
fn a_year_of_days_change_by_change() {
    go("days in order", &[1, 2, 3], |seed| {
        let (from_ms, to_ms) = (start_ms(), start_ms() + check::YEAR_MS);
        let store = |time: &Arc<Time>| {
            Witnessed::in_order(Arc::new(Memory::with_clock(time.clone())) as Arc<dyn Store>)
        };
        in_simulated_time(live(seed, Span { from_ms, to_ms, is_hard: true }, days(seed), store))
    });
}

#[test]
fn a_year_of_hours() {
    go("hours", &[1], |seed| {
        let (from_ms, to_ms) = (start_ms(), start_ms() + check::YEAR_MS);
        let catch_up = CATCH_UPS[seed as usize % 2];
        let said = Said {
            every: "hour",
            zone: "UTC",
            catch_up,
            on_lost: ON_LOST[seed as usize % 3],
            resource: None,
        };
        on_memory(seed, Span { from_ms, to_ms, is_hard: true }, vec![Job::new(0, &said)])
    });
}

/// Three weeks around a change of the clocks: ticks every few minutes, and rows of many slots.
#[test]
fn weeks_of_hours_and_minutes() {
    go("weeks", &[1, 2], |seed| {
        let zone = ZONES[seed as usize % 3];
        // from 20 March or from 15 October: two of the zones change within
        let first_day = if seed.is_multiple_of(2) { 78 } else { 287 };
        let from_ms = start_ms() + first_day * DAY_MS;
        let to_ms = from_ms + 21 * DAY_MS;
        let said = |index: usize, every, resource| {
            let (catch_up, on_lost) =
                (CATCH_UPS[(seed as usize + index) % 3], ON_LOST[(seed as usize + index) % 3]);
            Job::new(index, &Said { every, zone, catch_up, on_lost, resource })
        };
        let jobs = vec![
            said(0, "*/20 * * * 1-5", None),
            said(1, "hour", None),
            said(2, "hour", Some("site")),
            said(3, "day", Some("site")),
        ];
        on_memory(seed, Span { from_ms, to_ms, is_hard: true }, jobs)
    });
}

/// The same on disk, for two months.
#[test]
fn months_of_days_on_sqlite() {
    go("sqlite", &[1], |seed| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.db");
        let from_ms = start_ms() + 57 * DAY_MS;
        let to_ms = from_ms + 60 * DAY_MS;
        let jobs = days(seed);
        let span = Span { from_ms, to_ms, is_hard: false };
        in_simulated_time(live(seed, span, jobs, |_| {
            Witnessed::new(Arc::new(Sqlite::open_in_place(&path).unwrap()))
        }))
    });
}
