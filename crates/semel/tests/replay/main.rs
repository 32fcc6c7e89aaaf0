//! Traces of the model, replayed on real stores: the same requests, the same answers, the same records afterwards.
//!
//! A trace is a random path through the model of `semel-core`, from a seed. Whatever reaches the model's store on the way
//! goes to the real one too: the very writes that the rules decided, translated as the engine does, over the versions
//! that the real store gave to the same records. After each step
//!
//! - the real store's answers are those of the model's: made, or refused;
//! - every record stands in both as the same value, at the version of the same write, live or lapsed with as much left;
//! - whoever looks sees the same through the engine: entry, leases, whose owner is gone.
//!
//! The rules are pure functions of what is seen, so whoever sees the same decides the same. A process that crashes is
//! forgotten; a request that is late is sent when it arrives. Time passes as told: a tick is an hour, by which the
//! store's clock is moved (`places.rs`).
//!
//! A failover is a copy of the SQLite database that is put back.
//!
//! Not replayed: clocks that are set back (no real clock here runs on a lease that is younger than its start), failovers of a
//! store that knows its epoch (`store_postgres` has a real one), and slots that pass without a run (`tests/year`).
//!
//! `SEMEL_ROUNDS` says how many paths there are of each kind, `SEMEL_SEED` the seed of the first: `cargo xtask torture replay`.
//! What the engine does between its requests has tests of its own; here its looks and its changes are its own.
#![cfg(all(feature = "dir", feature = "sqlite", feature = "postgres"))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    unreachable_pub
)]

mod broken;
mod mirror;
#[allow(dead_code)] // the searches use all of it
mod model;
mod paths;
mod places;

use std::sync::Arc;

use broken::{Broken, Flaw};
use model::config::Config;
use model::items::Items;
use model::store::{Changes, Timeline};
use model::worker::Role;
use paths::{Replayed, replay};
use places::{InDir, InMemory, InPostgres, InSqlite, Pg, Place};
use semel_core::policy::OnLost;
use semel_testkit::rounds;

const A: Role = Role { key: Some(0), then: None, resources: &[0], host: "one" };
const B: Role = Role { key: Some(1), host: "two", ..A };
const EITHER: Role = Role { resources: &[1, 0], host: "two", ..A };
const ROW: Role = Role { then: Some(1), ..A };
const SCRIPT: Role = Role { key: None, ..A };

/// Wider than a search could be: a path is but one.
const RUNS: Config = Config {
    name: "runs",
    roles: &[A, A, B],
    resources: 1,
    ttl: 3,
    on_lost: OnLost::Retry,
    max_failures: 2,
    runs: 12,
    troubles: 24,
    crashes: 8,
    unknowns: 12,
    late: 2,
    back: 0,
    forward: 2,
    forward_by: 1,
    verdicts: 2,
    renewals: 12,
    fails: true,
    steps: 0,
    step_on_lost: OnLost::Hold,
    failovers: 0,
    timeline: Timeline::Unknown,
    changes: Changes::AllOrNothing,
};

const RUN_CONFIGS: [Config; 6] = [
    RUNS,
    Config { name: "runs, held", on_lost: OnLost::Hold, ..RUNS },
    Config { name: "runs of two resources, in a row", roles: &[ROW, EITHER, B], resources: 2, ..RUNS },
    Config { name: "runs with steps", roles: &[A, EITHER], resources: 2, steps: 2, ..RUNS },
    Config { name: "leases of scripts", roles: &[SCRIPT, SCRIPT, A], ..RUNS },
    Config {
        name: "runs with steps, in order",
        changes: Changes::OneAfterAnother,
        roles: &[A, A],
        steps: 2,
        ..RUNS
    },
];

/// On a store that comes back as it once was. Its clock is not set: a copy has none of its own.
const FALLING: Config =
    Config { name: "runs, and a copy that is restored", failovers: 6, forward: 0, ..RUNS };

const FALLING_CONFIGS: [Config; 2] =
    [FALLING, Config { name: "steps, and a copy that is restored", roles: &[A, A], steps: 2, ..FALLING }];

const BATCH: Items = Items {
    name: "items",
    runners: 3,
    items: 3,
    own: 0b011,
    changes: Changes::AllOrNothing,
    ttl: 3,
    on_lost: OnLost::Retry,
    max_failures: 2,
    runs: 4,
    troubles: 12,
    crashes: 4,
    unknowns: 6,
    late: 2,
    back: 0,
    verdicts: 2,
    renewals: 6,
    fails: true,
    twice: true,
    neighbours: true,
    closes: 0,
};

const BATCH_CONFIGS: [Items; 3] = [
    BATCH,
    Items { name: "items, held, on several hosts", on_lost: OnLost::Hold, neighbours: false, ..BATCH },
    Items { name: "items, one change after another", changes: Changes::OneAfterAnother, ..BATCH },
];

/// Steps of a path.
const STEPS: usize = 120;

/// The seed of the first path.
fn first() -> u64 {
    std::env::var("SEMEL_SEED").map_or(0, |text| text.parse().expect("SEMEL_SEED is a number"))
}

async fn all<M: Replayed>(models: &[M], paths: u64, place: impl Fn() -> Box<dyn Place>) -> paths::Tally {
    let (first, paths) = (first(), rounds(paths));
    let mut in_all = paths::Tally::default();
    for model in models {
        let mut tally = paths::Tally::default();
        for seed in first..first + paths {
            let place = place();
            match replay(model, seed, STEPS, &*place).await {
                Ok(path) => tally.add(path),
                Err(why) => panic!("{}, SEMEL_SEED={seed}: {why}", model.name()),
            }
        }
        println!("{}: {paths} paths from seed {first} on, {tally:?}", model.name());
        in_all.add(tally);
    }
    assert!(in_all.made > 0 && in_all.refused > 0 && in_all.touched > 0, "{in_all:?}");
    in_all
}

#[tokio::test]
async fn runs_on_memory_are_as_the_model_says() {
    all(&RUN_CONFIGS, 25, || Box::new(InMemory::new())).await;
}

#[tokio::test]
async fn items_on_memory_are_as_the_model_says() {
    all(&BATCH_CONFIGS, 25, || Box::new(InMemory::new())).await;
}

#[tokio::test]
async fn runs_on_sqlite_are_as_the_model_says() {
    all(&RUN_CONFIGS, 6, || Box::new(InSqlite::new())).await;
}

#[tokio::test]
async fn items_on_sqlite_are_as_the_model_says() {
    all(&BATCH_CONFIGS, 6, || Box::new(InSqlite::new())).await;
}

#[tokio::test]
async fn runs_on_sqlite_that_falls_back_are_as_the_model_says() {
    let tally = all(&FALLING_CONFIGS, 10, || Box::new(InSqlite::new())).await;
    assert!(tally.falls > 0, "{tally:?}");
}

#[tokio::test]
async fn runs_on_a_directory_are_as_the_model_says() {
    all(&RUN_CONFIGS, 6, || Box::new(InDir::new())).await;
}

#[tokio::test]
async fn items_on_a_directory_are_as_the_model_says() {
    all(&BATCH_CONFIGS, 6, || Box::new(InDir::new())).await;
}

#[tokio::test]
async fn runs_on_postgresql_are_as_the_model_says() {
    let pg = Arc::new(Pg::start());
    all(&RUN_CONFIGS, 2, || Box::new(InPostgres::new(&pg))).await;
}

#[tokio::test]
async fn items_on_postgresql_are_as_the_model_says() {
    let pg = Arc::new(Pg::start());
    all(&BATCH_CONFIGS, 2, || Box::new(InPostgres::new(&pg))).await;
}

/// A store that is broken so is found out by some path.
async fn is_found_out(flaw: Flaw) {
    let mut found = Vec::new();
    for seed in 0..SEEDS_OF_CONTROLS {
        for config in &RUN_CONFIGS {
            found.extend(differs(config, seed, flaw).await);
        }
        for items in &BATCH_CONFIGS {
            found.extend(differs(items, seed, flaw).await);
        }
    }
    println!("{flaw:?}: {} of {} paths", found.len(), 9 * SEEDS_OF_CONTROLS);
    println!("{:.400}", found.first().map_or("", String::as_str));
    assert!(!found.is_empty(), "{flaw:?} was not found out");
}

const SEEDS_OF_CONTROLS: u64 = 20;

async fn differs(model: &impl Replayed, seed: u64, flaw: Flaw) -> Option<String> {
    let place = Broken::new(InMemory::new(), flaw);
    let why = replay(model, seed, STEPS, &place).await.err()?;
    Some(format!("{}, seed {seed}: {why}", model.name()))
}

macro_rules! finds_out {
    ($($name:ident: $flaw:ident;)*) => { $(#[tokio::test] async fn $name() { is_found_out(Flaw::$flaw).await; })* };
}

finds_out! {
    a_store_that_ignores_versions_is_found_out: VersionIgnored;
    a_store_that_renews_a_lapsed_lease_is_found_out: TouchRevives;
    a_store_that_skips_guards_is_found_out: GuardSkipped;
    a_store_that_does_not_ask_for_a_lapse_is_found_out: LapseIgnored;
    a_store_whose_touch_does_nothing_is_found_out: TouchForgotten;
    a_store_that_makes_half_of_what_it_refuses_is_found_out: HalfMade;
}

/// The same seed is the same path.
#[tokio::test]
async fn a_seed_replays() {
    let (one, two) = (Arc::new(InMemory::new()), Arc::new(InMemory::new()));
    let first = replay(&RUNS, 7, STEPS, &*one).await.unwrap();
    let again = replay(&RUNS, 7, STEPS, &*two).await.unwrap();
    assert_eq!(first, again);
}
