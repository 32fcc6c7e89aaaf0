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
