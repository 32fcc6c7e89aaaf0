//! `cargo xtask bench cost`: what an operation costs, counted. The same counts of the build that tests use are held
//! against `fixtures/cost.json` by the tests of `crates/semel-cli/tests/cost`.

use std::time::Duration;

use semel_testkit::cost::{Costs, Operation};

use super::report::{Goal, Report};
use super::{Options, Stage};
use crate::tools::{call, cargo, install_missing};

/// Quiet for so long: it has come to rest.
const REST: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_secs(5);

/// `cargo xtask bench cost --keep`: what is counted now is what later counts are held against.
pub(super) fn keep() -> Result<(), String> {
    install_missing()?;
    let args = ["test", "--workspace", "--all-features", "--test", "cost", "--"];
    call(cargo().args(args).args(["--ignored", "--nocapture", "keep_these_costs"]))
}

impl Stage {
    /// A line for each operation.
    pub(super) fn costs(&self, _: &Options, report: &mut Report) -> Result<(), String> {
        let costs = Costs::of(&self.released);
        println!("counted on SQLite, {}", self.released.display());
        for operation in Operation::ALL {
            let (calls, at_end) = (costs.calls(operation), costs.at_end(operation));
            let counts = [
                ("durable commits", Some(calls.commits)),
                ("system calls", Some(calls.all)),
                ("instructions", costs.instructions(operation)),
                ("KiB at the most", at_end.map(|at_end| at_end.peak_kib as f64)),
                ("page faults", at_end.map(|at_end| at_end.page_faults as f64)),
            ];
            for (unit, count) in counts.into_iter().filter_map(|(unit, count)| Some((unit, count?))) {
                report.measured(operation.name(), unit, &[count], Goal::None);
            }
        }
        let wakes = costs.supervise("60s").wakes(REST, LOOK);
        let what = format!("`sleep`, {} s between two heartbeats", LOOK.as_secs());
        report.measured(&what, "wake-ups", &[wakes as f64], Goal::AtMost(0.0));
        Ok(())
    }
}
