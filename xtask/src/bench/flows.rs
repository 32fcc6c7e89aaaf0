//! `cargo xtask bench flows`: durable steps of the library beside those of engines that people use for workflows, each on a
//! local disk as it comes: DBOS and LangGraph with SQLite, Luigi with files, Restate with its server.
//!
//! A step of Semel is two durable commits, its intent before the effect and its outcome after. LangGraph makes two after it
//! (what the node wrote, and the checkpoint), DBOS and Restate keep the outcome alone, Luigi syncs nothing.

use std::path::Path;
use std::process::Command;

use super::dbos;
use super::peers::{script, venv};
use super::report::{Goal, Report};
use super::restate::{self, Restate};
use super::{Options, Stage, rate};
use crate::stats::{Ratio, median};

const ROUNDS: usize = 5;
/// Steps in a round: of Semel one after the other and of 32 tasks, and of the others.
const STEPS: &str = "2000";
const STEPS_OF_MANY: &str = "6400";
const THEIR_STEPS: &str = "1000";
const RESTATE_STEPS: &str = "3200";
const TASKS: &str = "32";

const LANGGRAPH: [&str; 2] = ["langgraph==1.2.20", "langgraph-checkpoint-sqlite==3.1.2"];
const LUIGI: &str = "luigi==3.8.1";

/// How many times as fast as each.
const DBOS_AHEAD: f64 = 50.0;
const RESTATE_AHEAD: f64 = 10.0;

const ONE: &str = "a durable step, one after the other";
const MANY: &str = "a durable step, 32 tasks";

/// One that does durable steps, and how many it did in a second of each round.
struct Side<'a> {
    name: String,
    steps: Box<dyn Fn(&Path) -> Command + 'a>,
    rates: Vec<f64>,
}

impl<'a> Side<'a> {
    fn new(name: impl Into<String>, steps: impl Fn(&Path) -> Command + 'a) -> Side<'a> {
        Side { name: name.into(), steps: Box::new(steps), rates: Vec::new() }
    }
}

impl Stage {
    /// In turns; what cannot be had or does not work is named.
    pub(super) fn flows(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let library = self.example("bench_store_steps")?;
        let semel = |steps: &'static str, tasks: &'static str| {
            let library = &library;
            move |folder: &Path| {
                let mut semel = Command::new(library);
                semel.arg(format!("sqlite:{}", folder.join("semel.db").display())).args([steps, tasks]);
                semel
            }
        };
        let restate = Restate::start(&self.folder("restate")?);
        let mut sides = vec![
            Side::new("Semel, one after the other", semel(STEPS, "1")),
            Side::new("Semel, 32 tasks", semel(STEPS_OF_MANY, TASKS)),
        ];
        sides.extend(in_python(report));
        match &restate {
            Ok(restate) => {
                sides.push(Side::new("Restate, 32 invocations", |_| restate.steps(RESTATE_STEPS, TASKS)))
            }
            Err(why) => report.missing(&restate::WANTED.join(", "), why),
        }
        let rounds = options.rounds(ROUNDS);
        for round in 0..rounds {
            let folder = self.folder(&format!("flows-{round}"))?;
            let count = sides.len();
            // another one first each time
            for turn in 0..count {
                let side = &mut sides[(round + turn) % count];
                match rate(&mut (side.steps)(&folder)) {
                    Ok(rate) => side.rates.push(rate),
                    Err(why) if side.name.starts_with("Semel") => return Err(why),
                    Err(why) => report.missing(&side.name, &why),
                }
            }
        }
        println!("durable steps, {rounds} rounds");
        for side in &sides {
            println!("  {:<52} {:>9.0} steps/s", side.name, median(&side.rates));
        }
        judge(&sides, rounds, report);
        Ok(())
    }
}

/// Those that PyPI has.
fn in_python(report: &mut Report) -> Vec<Side<'static>> {
    let mut sides = Vec::new();
    let mut have = |what: &str, python: Result<std::path::PathBuf, String>| match python {
        Ok(python) => Some(python),
        Err(why) => {
            report.missing(what, &why);
            None
        }
    };
    if let Some(python) = have(dbos::WANTED, dbos::python()) {
        sides.extend(dbos::AT_ONCE.map(|at_once| {
            let python = python.clone();
            Side::new(format!("DBOS on SQLite, {at_once} at once"), move |folder| {
                let mut steps = dbos::steps(&python, folder);
                steps.args([THEIR_STEPS, at_once]);
                steps
            })
        }));
    }
    let plain = |name: &str, file: &'static str, python| {
        Side::new(name, move |folder| {
            let mut steps = Command::new(&python);
            steps.arg(script(file)).arg(folder).arg(THEIR_STEPS);
            steps
        })
    };
    if let Some(python) = have(&LANGGRAPH.join(", "), venv("langgraph", &LANGGRAPH)) {
        sides.push(plain("LangGraph on SQLite", "langgraph_steps.py", python));
    }
    if let Some(python) = have(LUIGI, venv("luigi", &[LUIGI])) {
        sides.push(plain("Luigi, a file for each task", "luigi_steps.py", python));
    }
    sides
}

fn judge(sides: &[Side<'_>], rounds: usize, report: &mut Report) {
    // only whole series are compared
    let of = |start: &str| -> Vec<Vec<f64>> {
        let found = sides.iter().filter(|side| side.name.starts_with(start) && side.rates.len() == rounds);
        found.map(|side| side.rates.clone()).collect()
    };
    let [one, many] = ["Semel, one", "Semel, 32"].map(|name| of(name).remove(0));
    let mut compare = |what: &str, ours: &[f64], peer: &str, against: &str, goal: Goal| {
        let theirs = of(peer);
        if !theirs.is_empty() {
            report.fast(what, against, &Ratio::new(ours, dbos::better(&theirs)), goal);
        }
    };
    let far = Goal::AtLeast(DBOS_AHEAD);
    compare(ONE, &one, "DBOS on SQLite, 1 ", "DBOS on SQLite, one after the other", far);
    compare(MANY, &many, "DBOS", "DBOS on SQLite, the better of 1 and 4 at once", far);
    compare(ONE, &one, "LangGraph", "LangGraph, SQLite checkpointer", Goal::None);
    compare(ONE, &one, "Luigi", "Luigi, a task with a file, nothing synced", Goal::None);
    compare(MANY, &many, "Restate", "Restate, 32 invocations", Goal::AtLeast(RESTATE_AHEAD));
}
