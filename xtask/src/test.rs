//! `cargo xtask test`: every test, and every skip by its name.

use std::fs;

use crate::stores::{self, STORES};
use crate::tools::{call, cargo, install_missing, install_nextest};

pub(crate) fn run(filter: &[String]) -> Result<(), String> {
    install_missing()?;
    install_nextest()?;
    if let [flag, store, more @ ..] = filter
        && flag == "--store"
    {
        let named = [store.as_str()];
        let stores = if store == "all" { STORES.as_slice() } else { named.as_slice() };
        return match more {
            [first, more @ ..] if first == "--short" => stores::test_all(stores, false, more),
            more => stores::test_all(stores, true, more),
        };
    }
    let skips = std::env::temp_dir().join(format!("semel-skips-{}", std::process::id()));
    let _ = fs::remove_file(&skips);
    let documented = match filter {
        [] => call(cargo().args(["test", "--quiet", "--workspace", "--all-features", "--doc"])),
        _ => Ok(()),
    };
    let tested = call(
        cargo()
            .args(["nextest", "run", "--workspace", "--all-features", "--no-fail-fast"])
            .args(filter)
            // a test that cannot run here says so in this file, by its name and the reason
            .env("SEMEL_SKIP_LOG", &skips)
            .env("SEMEL_VALIDATORS", crate::validators::folder())
            .env("SEMEL_SERVERS", crate::servers::folder()),
    );
    let on_stores: Result<(), String> = match filter {
        [] => stores::test_all(&STORES, false, &[]),
        _ => Ok(()),
    };
    let tortured = if filter.is_empty() { crate::torture::short() } else { Ok(()) };
    let skipped = fs::read_to_string(&skips).unwrap_or_default();
    let _ = fs::remove_file(&skips);
    println!(
        "{} tests skipped themselves{}",
        skipped.lines().count(),
        if skipped.is_empty() { "" } else { ":" }
    );
    for line in skipped.lines() {
        println!("  {line}");
    }
    println!("not part of this command:");
    for (name, where_to_find_it) in ELSEWHERE {
        println!("  {name}: {where_to_find_it}");
    }
    tested.and(documented).and(on_stores).and(tortured)
}

/// Tests that this command leaves out, and why. `every_ignored_test_is_named` keeps the list whole.
const ELSEWHERE: [(&str, &str); 8] = [
    ("wider_bounds_hold", "takes minutes: cargo xtask torture model"),
    ("items_in_wider_bounds_hold", "takes minutes: cargo xtask torture model"),
    (
        "how_many_items_are_read_in_a_second",
        "a measurement: cargo nextest run -p semel-cli --run-ignored all",
    ),
    ("every_call_of_a_run_is_a_place_to_die", "takes minutes: cargo xtask torture boundary"),
    ("every_write_of_a_run_is_a_place_to_lose_power", "takes minutes: cargo xtask torture boundary"),
    ("play", "not a test: the process that other tests kill and stop"),
    ("keep_this_ledger", "not a test: it writes fixtures/ledger-VERSION: cargo xtask fixture"),
    ("keep_these_costs", "not a test: it writes fixtures/cost.json: cargo xtask bench cost --keep"),
];

/// `cargo xtask fixture`: a ledger of this version, for all later ones to read.
pub(crate) fn keep_ledger() -> Result<(), String> {
    let args =
        ["test", "--workspace", "--all-features", "--test", "upgrade", "--", "--ignored", "keep_this_ledger"];
    call(cargo().args(args))
}

/// How many zombies each sink meets at each place, how many races there are per transport of git, and how many years
/// of each kind are lived through.
const ZOMBIES: u32 = 10_000;
const RACES: u32 = 2_000;
const YEARS: u32 = 200;
/// Calls recorded on each store, for the check that they fit one order.
const CALLS: u32 = 100_000;

/// How often a hundred processes race for one claim on each store, and how many processes wait for one resource.
const CLAIMS: u32 = 100;
const WAITERS: u32 = 200;

/// What there is to be tortured.
pub(crate) const KINDS: [&str; 6] = ["model", "sinks", "linear", "year", "boundary", "races"];

/// `cargo xtask torture KIND…`: what takes minutes, or hours.
pub(crate) fn torture(words: &[String]) -> Result<(), String> {
    let mut named: Vec<&str> = Vec::new();
    let mut rounds = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--rounds" => {
                let number = words.next().and_then(|n| n.parse::<u32>().ok());
                rounds = Some(number.ok_or("--rounds needs a number")?);
            }
            other => match KINDS.iter().find(|kind| **kind == other) {
                Some(kind) => named.push(kind),
                None => return Err(format!("there is no torture {other:?}: use {}", KINDS.join(", "))),
            },
        }
    }
    install_missing()?;
    install_nextest()?;
    let wants = |kind| named.contains(&kind);
    if wants("sinks") {
        rounds_of("sink_file", &["zombie"], rounds.unwrap_or(ZOMBIES))?;
        rounds_of("sink_sql", &["zombie", "crowd"], rounds.unwrap_or(ZOMBIES))?;
        rounds_of("sink_git", &["races"], rounds.unwrap_or(RACES))?;
        rounds_of("sink_git", &["zombies"], rounds.unwrap_or(ZOMBIES))?;
    }
    if wants("linear") {
        rounds_of("linear", &["linearizable"], rounds.unwrap_or(CALLS))?;
    }
    if wants("year") {
        rounds_of("year", &["_of_"], rounds.unwrap_or(YEARS))?;
    }
    if wants("races") {
        for store in ["sqlite", "dir", "postgres", "redis", "etcd", "nats", "objects"] {
            rounds_of(&format!("store_{store}"), &["passes_the_suite"], rounds.unwrap_or(CLAIMS))?;
        }
        println!("a crowd of {WAITERS} processes on one PostgreSQL");
        let args = ["nextest", "run", "--release", "-p", "semel-cli", "--all-features", "--test", "e2e"];
        let crowd = ["--no-capture", "a_crowd_of_processes"];
        call(cargo().args(args).args(crowd).env("SEMEL_ROUNDS", rounds.unwrap_or(WAITERS).to_string()))?;
    }
    if wants("boundary") {
        let args = ["nextest", "run", "--release", "-p", "semel-cli", "--all-features", "--test", "boundary"];
        call(cargo().args(args).args(["--run-ignored", "only", "--no-fail-fast", "--no-capture"]))?;
    }
    if wants("model") {
        call(
            cargo()
                .args(["nextest", "run", "--release", "-p", "semel-core", "--features", "mutants"])
                .args(["--run-ignored", "only", "--no-capture", "wider_bounds_hold"]),
        )?;
    }
    Ok(())
}

/// The tests of one binary that have these words in their names, with so many rounds.
fn rounds_of(name: &str, filter: &[&str], rounds: u32) -> Result<(), String> {
    println!("{name}: {}, {rounds} rounds", filter.join(" and "));
    let args =
        ["nextest", "run", "--release", "-p", "semel", "--all-features", "--no-fail-fast", "--test", name];
    call(cargo().args(args).arg("--no-capture").args(filter).env("SEMEL_ROUNDS", rounds.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ignored_test_is_named() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let mut folders = vec![crates];
        let mut found = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    let text = fs::read_to_string(path).unwrap_or_default();
                    let ignored = text.split("#[ignore").skip(1).filter_map(|after| {
                        let after = after.split("fn ").nth(1)?;
                        after.split('(').next().map(str::to_owned)
                    });
                    found.extend(ignored);
                }
            }
        }
        found.sort();
        let mut named: Vec<_> = ELSEWHERE.iter().map(|(name, _)| (*name).to_owned()).collect();
        named.sort();
        assert_eq!(found, named);
    }
}
