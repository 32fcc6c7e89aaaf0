//! `cargo xtask bench batch`: DBOS' durable steps with SQLite, beside the library's durable items.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::peers::{script, venv};
use super::report::{Goal, Report};
use super::{Options, Stage, rate};
use crate::stats::{Ratio, median};

pub(super) const WANTED: &str = "dbos==3.3.0";
/// Steps at once: so few are already as fast as many.
pub(super) const AT_ONCE: [&str; 2] = ["1", "4"];
const ROUNDS: usize = 5;
/// Steps of DBOS in a round.
const STEPS: &str = "1000";
/// Items of the library in a round.
const ITEMS: &str = "20000";
const TIMES_AHEAD: f64 = 50.0;

impl Stage {
    /// In turns; named if DBOS cannot be had.
    pub(super) fn beside_dbos(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let python = match python() {
            Ok(python) => python,
            Err(why) => {
                report.missing(WANTED, &why);
                return Ok(());
            }
        };
        let library = self.example("bench_batch")?;
        let rounds = options.rounds(ROUNDS);
        let mut ours = Vec::new();
        let mut theirs = AT_ONCE.map(|_| Vec::new());
        for round in 0..rounds {
            let folder = self.folder(&format!("dbos-{round}"))?;
            ours.push(rate(Command::new(&library).arg(&folder).args([ITEMS, "rate"]))?);
            for (at_once, rates) in AT_ONCE.iter().zip(&mut theirs) {
                rates.push(rate(steps(&python, &folder).args([STEPS, at_once]))?);
            }
        }
        println!("durable items of the library and durable steps of DBOS, both with SQLite, {rounds} rounds");
        println!("  {:<52} {:>9.0} items/s", "library, 32 at once", median(&ours));
        for (at_once, rates) in AT_ONCE.iter().zip(&theirs) {
            println!("  {:<52} {:>9.0} steps/s", format!("{WANTED}, {at_once} at once"), median(rates));
        }
        let ratio = Ratio::new(&ours, better(&theirs));
        let what = "a durable item in the library, 32 at once";
        report.fast(what, "a durable step of DBOS on SQLite", &ratio, Goal::AtLeast(TIMES_AHEAD));
        Ok(())
    }
}

/// The faster of them.
pub(super) fn better(rates: &[Vec<f64>]) -> &[f64] {
    rates.iter().max_by(|one, other| median(one).total_cmp(&median(other))).map_or(&[], Vec::as_slice)
}

/// Its durable steps in this folder, or in the PostgreSQL at this address.
pub(super) fn steps(python: &Path, place: impl AsRef<OsStr>) -> Command {
    let mut steps = Command::new(python);
    steps.arg(script("dbos_steps.py")).arg(place);
    steps
}

/// Python with DBOS.
pub(super) fn python() -> Result<PathBuf, String> {
    venv("dbos", &[WANTED])
}
