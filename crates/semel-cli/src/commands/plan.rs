//! `semel plan`: inside a run, the plan that is pinned to it; outside, what would be pinned. Nothing is changed.

use std::io::{IsTerminal, Write};

use clap::Args;
use semel::engine::Unplanned;
use semel::engine::socket::{Answer, Ask};
use semel_core::plan::{Plan, plain};
use semel_core::work::Work;
use serde_json::{Value, json};

use super::find::ledger;
use crate::args::{Common, WhatArgs};
use crate::nested;
use crate::out::{print, print_json};
use crate::plan::{self, Surroundings};
use crate::planner::{PlanArgs, Planner};
use crate::table::clean;
use crate::trouble::Trouble;
use crate::{runtime, slot};

/// `semel plan`
#[derive(Debug, Args)]
#[command(override_usage = "semel plan [--get NAME]                                   inside a run
       semel plan --job NAME <--once|--slot ID|--with K=V|--key K> [OPTIONS]   to see what would be pinned")]
pub(crate) struct PlanCommandArgs {
    /// Print only what stands under this name: text as it is, anything else as JSON
    #[arg(long, value_name = "NAME")]
    pub(crate) get: Option<String>,
    /// The job's name
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    #[command(flatten)]
    pub(crate) what: WhatArgs,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
}

pub(crate) fn run(common: &Common, args: &PlanCommandArgs, around: &Surroundings) -> Result<u8, Trouble> {
    match &args.job {
        Some(job) => {
            let due = slot::due(&args.what, around)?;
            let work = plan::work(&plan::name("--job", job)?, &args.what, due.as_ref())?;
            preview(common, args, &work, around)
        }
        None => {
            let plan = pinned(args, around)?;
            match &args.get {
                Some(name) => get(common, &plan, name)?,
                None if common.json => print_json(json!({ "kind": "plan", "pinned": true, "plan": plan })),
                None => raw(&plan.to_string()),
            }
            Ok(0)
        }
    }
}

/// The plan of the run around this command.
fn pinned(args: &PlanCommandArgs, around: &Surroundings) -> Result<Plan, Trouble> {
    let Some(mut client) = nested::connect(around)? else {
        return Err(Trouble::config(
            "not inside a run: to see what would be pinned, say for which work, as in: semel plan --job publish --slot 2026-06-19 --choose topic=a,b",
        ));
    };
    if !args.plan.is_empty() {
        return Err(Trouble::config(
            "the plan of a run is made before it: give --choose, --recent, --plan and --plan-cmd to semel run",
        ));
    }
    match nested::ask(&mut client, &Ask::Plan, &[])?.0 {
        Answer::Plan { plan: Some(plan) } => Ok(plan),
        Answer::Plan { plan: None } => Err(Trouble::input(
            "this run has no plan: give --choose, --recent, --plan or --plan-cmd to semel run",
        )),
        other => Err(nested::strange(&other)),
    }
}

fn preview(
    common: &Common,
    args: &PlanCommandArgs,
    work: &Work,
    around: &Surroundings,
) -> Result<u8, Trouble> {
    let planner = Planner::resolve(&args.plan, work)?;
    let engine = ledger(common, around)?;
    runtime()?.block_on(async {
        let entry = engine.look(Some(work), &[]).await?.entry.map(|seen| seen.value);
        let (plan, pinned) = match entry.and_then(|entry| entry.plan) {
            Some(plan) => (plan, true),
            None => (planner.make(&engine, work, around).await?, false),
        };
        if let Some(name) = &args.get {
            get(common, &plan, name)?;
        } else if common.json {
            let (what, key) = (work.to_string(), work.key().to_string());
            print_json(json!({ "kind": "plan", "work": what, "key": key, "pinned": pinned, "plan": plan }));
        } else {
            print(&match pinned {
                true => format!("{work}: this plan is pinned, and every attempt gets it:"),
                false => format!("{work}: no plan is pinned; made now, it would be:"),
            });
            let widest = plan.names().map(str::len).max().unwrap_or_default();
            for (name, value) in plan.members() {
                print(&format!("  {name:widest$}  {}", clean(&plain(value))));
            }
        }
        Ok(0)
    })
}

fn get(common: &Common, plan: &Plan, name: &str) -> Result<(), Trouble> {
    let Some(value) = plan.get(name) else {
        let names: Vec<&str> = plan.names().collect();
        return Err(Trouble::input(format!("the plan has no {name:?}; it has {}", names.join(", "))));
    };
    match common.json {
        true => print_json(json!({ "kind": "plan_value", "name": name, "value": value })),
        false => raw(&plain(value)),
    }
    Ok(())
}

/// For scripts, byte for byte; for a terminal without what could steer it.
fn raw(text: &str) {
    let mut out = std::io::stdout();
    match out.is_terminal() {
        true => print(&clean(text)),
        // a reader that went away is no reason to fail
        false => drop(writeln!(out, "{text}").and_then(|()| out.flush())),
    }
}

impl From<Unplanned> for Trouble {
    fn from(why: Unplanned) -> Trouble {
        match why {
            Unplanned::Wrong(why) => Trouble::input(why),
            Unplanned::Look(why) => why.into(),
        }
    }
}

/// A plan in one line, long values cut.
pub(crate) fn words(plan: &Plan) -> String {
    const LONGEST: usize = 60;
    let word = |(name, value): (&String, &Value)| {
        let value = plain(value);
        match value.char_indices().nth(LONGEST) {
            Some((at, _)) => format!("{name} {}…", value.get(..at).unwrap_or_default()),
            None => format!("{name} {value}"),
        }
    };
    let members = plan.members().iter().filter(|(name, _)| *name != "seed_hex");
    members.map(word).collect::<Vec<_>>().join(", ")
}
