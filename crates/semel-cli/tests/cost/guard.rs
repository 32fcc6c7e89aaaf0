//! The counts, against what was kept.

use std::collections::BTreeMap;

use semel_testkit::cost::{Costs, Operation};

use crate::budget::{self, Figure, hold};
use crate::{costs, skipped};

/// Instructions are those of a kind of processor, and were kept for this one.
const PROCESSOR: &str = "x86_64";

/// Of these they are held. A renewal takes a fiftieth of what its run does, and what waiting takes is
/// not the same from run to run.
const BY_INSTRUCTIONS: [Operation; 4] = [Operation::Run, Operation::Skip, Operation::Step, Operation::Item];

fn to_whole(count: f64) -> u64 {
    // a part of a difference; counts are far below where that would lose anything
    count.round().max(0.0) as u64
}

fn calls(costs: &Costs, operation: Operation) -> u64 {
    to_whole(costs.calls(operation).all)
}

#[test]
fn intent_before_and_outcome_after_and_no_third_commit() {
    let costs = costs();
    for (operation, commits) in [
        (Operation::Run, 2.0),
        (Operation::Skip, 0.0),
        (Operation::Step, 2.0),
        // a power cut ends the lease anyway
        (Operation::Renewal, 0.0),
    ] {
        let counted = costs.calls(operation).commits;
        println!("{}: {counted} durable commits", operation.name());
        assert_eq!(counted, commits, "durable commits of a {}", operation.name());
    }
    // the outcome of one may be written with the intent of the next
    let item = costs.calls(Operation::Item).commits;
    println!("item: {item} durable commits");
    assert!((1.0..=2.0).contains(&item), "{item} durable commits of an item");
}

#[test]
fn no_operation_makes_more_system_calls_than_were_kept() {
    let (costs, kept) = (costs(), budget::read());
    for operation in Operation::ALL {
        hold(&kept, operation.name(), Figure::Calls, || calls(&costs, operation));
    }
}

#[test]
fn no_operation_takes_more_instructions_than_were_kept() {
    let name = "no_operation_takes_more_instructions_than_were_kept";
    if std::env::consts::ARCH != PROCESSOR {
        return skipped(name, "they were kept for another processor");
    }
    if semel_testkit::program("valgrind").is_none() {
        return skipped(name, "valgrind is missing");
    }
    let (costs, kept) = (costs(), budget::read());
    for operation in BY_INSTRUCTIONS {
        let count = || to_whole(costs.instructions(operation).unwrap());
        hold(&kept, operation.name(), Figure::Instructions, count);
    }
}

#[test]
fn a_run_and_a_skip_hold_no_more_memory_than_was_kept() {
    let (costs, kept) = (costs(), budget::read());
    for operation in [Operation::Run, Operation::Skip] {
        hold(&kept, operation.name(), Figure::PeakKib, || costs.at_end(operation).unwrap().peak_kib);
    }
}

#[test]
fn control_what_grew_is_told_and_how_to_keep_it() {
    let kept = BTreeMap::from([("run".to_owned(), BTreeMap::from([("system_calls".to_owned(), 100)]))]);
    hold(&kept, "run", Figure::Calls, || 107);
    let failed = std::panic::catch_unwind(|| hold(&kept, "run", Figure::Calls, || 108)).unwrap_err();
    let line = failed.downcast_ref::<String>().unwrap();
    assert_eq!(
        line,
        "run: system calls grew from 100 to 108, more than 107: mend it, or keep it on purpose with \
         cargo xtask bench cost --keep"
    );
}

#[test]
fn control_a_run_is_told_from_a_skip() {
    let costs = costs();
    let (run, skip) = (costs.calls(Operation::Run), costs.calls(Operation::Skip));
    assert!(run.all > skip.all + 50.0, "a run starts a keeper and a command: {run:?}, {skip:?}");
    assert!(skip.all > 50.0, "a skip opens the ledger: {skip:?}");
}

/// Not a test: `cargo xtask bench cost --keep`.
#[test]
#[ignore = "it writes fixtures/cost.json"]
fn keep_these_costs() {
    assert_eq!(std::env::consts::ARCH, PROCESSOR, "costs are kept on one kind of processor");
    let costs = costs();
    let mut kept = budget::Kept::new();
    for operation in Operation::ALL {
        let mut figures = BTreeMap::new();
        let mut keep = |figure: Figure, count: u64| figures.insert(figure.key().to_owned(), count);
        let least = |count: &dyn Fn() -> u64| (0..3).map(|_| count()).min().unwrap();
        keep(Figure::Calls, least(&|| calls(&costs, operation)));
        if BY_INSTRUCTIONS.contains(&operation) {
            let instructions =
                || costs.instructions(operation).expect("valgrind, which cargo xtask installs");
            keep(Figure::Instructions, least(&|| to_whole(instructions())));
        }
        if let Some(at_end) = costs.at_end(operation) {
            keep(Figure::PeakKib, at_end.peak_kib);
        }
        println!("{}: {figures:?}", operation.name());
        kept.insert(operation.name().to_owned(), figures);
    }
    let text = serde_json::to_string_pretty(&kept).unwrap();
    std::fs::write(budget::file(), text + "\n").unwrap();
}
