//! What an operation of the built binary costs on SQLite, counted, and held against what was kept.
//!
//! Theory. Times wobble, counts do not: the same binary makes the same system calls and takes the same instructions, to
//! a few in ten thousand. So a change that makes a run dearer is seen in the commit that makes it, on any machine.
//! Commits that wait for the disk are a promise of the design, and exact. All else may grow by a share (`budget`), for
//! what differs between machines (where cgroups are, the C library), and what grows by more is either mended or kept
//! on purpose: `cargo xtask bench cost --keep` writes `fixtures/cost.json` anew.
//!
//! The counts are of the build that tests use; those of a release are printed by `cargo xtask bench cost`. Round trips to
//! PostgreSQL, Redis, etcd, NATS and object stores are counted by the tests of each (`crates/semel/tests/store_*/cost*.rs`).

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
// the rooms are the product's: a test starts processes and looks at the clock
#![allow(clippy::disallowed_methods)]

mod budget;
mod guard;
mod rest;

use std::path::Path;

use semel_testkit::cost::Costs;

fn costs() -> Costs {
    Costs::of(Path::new(env!("CARGO_BIN_EXE_semel")))
}

/// A test that cannot be done here, said so that nobody takes it for done.
fn skipped(name: &str, reason: &str) {
    println!("SKIPPED: {name}: {reason}");
    if let Some(log) = std::env::var_os("SEMEL_SKIP_LOG") {
        let mut log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        std::io::Write::write_all(&mut log, format!("semel-cli {name}: {reason}\n").as_bytes()).unwrap();
    }
}
