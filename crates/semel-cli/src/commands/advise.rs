//! `semel advise JOB`: ttl, timeout and grace from what was measured, and why. It changes nothing.

use clap::Args;
use jiff::tz::TimeZone;
use semel_core::advice::{self, Figures, Item, Measured, RUNS_KEPT, RUNS_LEAST, Set, Spread, advise};
use semel_core::definition::Definition;
use semel_core::entry::Attempt;
use semel_core::name::{Name, Slot};
use semel_core::policy::Policy;
use semel_core::schedule::Schedule;
use serde_json::{Value, json};

use super::find::{Newest, ledger};
use super::ls::each;
use crate::args::{Common, RunArgs};
use crate::config::keys;
use crate::definition::exact;
use crate::out::{Voice, print, print_json, span, when};
use crate::plan::{self, Surroundings, name};
use crate::trouble::Trouble;
use crate::{runtime, slot};

/// `semel advise`
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// The job
    pub(crate) job: String,
}

/// How the job is set now.
struct Now {
    policy: Policy,
    schedule: Option<(Schedule, TimeZone)>,
    grace_ms: Option<u64>,
    /// Who says so.
    by: &'static str,
}

/// What the ledger has of the job: at most so much as fits in memory.
struct Record {
    attempts: Vec<(Attempt, Option<Slot>)>,
    left_out: u64,
    last: Option<Definition>,
}

pub(crate) fn run(common: &Common, args: &AdviseArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let job = name("JOB", &args.job)?;
    let record = record(common, &job, around)?;
    if record.attempts.is_empty() {
        return Err(Trouble::input(format!(
            "nothing of job {job} is on record; list what is with: semel ls"
        )));
    }
    let now = now(common, &job, record.last.as_ref(), around)?;
    let due_ms = |slot: &Option<Slot>| {
        let (schedule, zone) = now.schedule.as_ref()?;
        advice::due_ms(schedule, zone, slot.as_ref()?)
    };
    let measured: Vec<Measured> =
        record.attempts.iter().filter_map(|(attempt, slot)| Measured::of(attempt, due_ms(slot))).collect();
    let figures = Figures::of(&measured);
    let items = advise(&figures, &Set { policy: now.policy.clone(), grace_ms: now.grace_ms });
    if common.json {
        print_json(as_json(&job, &record, &now, &figures, items.as_deref()));
    } else {
        tell(&job, &record, &now, &figures, items.as_deref());
    }
    Ok(0)
}

fn record(common: &Common, job: &Name, around: &Surroundings) -> Result<Record, Trouble> {
    let engine = ledger(common, around)?;
    let mut newest = Newest::new(RUNS_KEPT);
    let mut last: Option<(u64, Definition)> = None;
    let unreadable = runtime()?.block_on(each(&engine, Some(job), &mut |listed| {
        let entry = listed.seen.value;
        let slot = entry.work.slot().cloned();
        let began_ms = entry.last_attempt().map_or(0, |attempt| attempt.started_ms);
        if let Some(definition) = entry.definition
            && last.as_ref().is_none_or(|(at_ms, _)| *at_ms <= began_ms)
        {
            last = Some((began_ms, definition));
        }
        for attempt in entry.log {
            newest.push(attempt.started_ms, (attempt, slot.clone()));
        }
    }))?;
    unreadable.say(Voice::new(common));
    let left_out = newest.left_out();
    Ok(Record { attempts: newest.into_vec(), left_out, last: last.map(|(_, definition)| definition) })
}

/// What the file says goes before what the last run was told: it is what the next one does.
fn now(
    common: &Common,
    job: &Name,
    last: Option<&Definition>,
    around: &Surroundings,
) -> Result<Now, Trouble> {
    let config = around.config(common)?;
    let in_file = config.as_ref().and_then(|config| {
        let known = config.jobs.iter().find(|known| known.name == job.as_str())?;
        (!config.is_faulty(known)).then(|| config.filled(known, &RunArgs::default()))
    });
    let (args, by) = match (in_file, last.and_then(as_args)) {
        (Some(args), _) => (args, "semel.toml"),
        (None, Some(args)) => (args, "the last run"),
        (None, None) => (RunArgs::default(), "the defaults"),
    };
    let (policy, _) = plan::policy(&args.policy)?;
    let schedule = match args.what.every.as_deref().map(Schedule::parse) {
        Some(Ok(schedule)) => {
            let zone = slot::zone(&schedule, args.what.tz.as_deref(), around)?;
            Some((schedule, zone))
        }
        _ => None,
    };
    let grace_ms = args.what.grace.as_deref().map(|text| plan::duration_ms("--grace", text)).transpose()?;
    Ok(Now { policy, schedule, grace_ms, by })
}

/// A recorded definition as the arguments that it was made of, as far as they matter here.
fn as_args(definition: &Definition) -> Option<RunArgs> {
    let value: Value = serde_json::from_str(&definition.text).ok()?;
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut args = RunArgs::default();
    args.policy.ttl = text("ttl");
    args.policy.timeout = text("timeout");
    args.policy.kill_after = text("kill-after");
    args.what.every = text("every");
    args.what.tz = text("tz");
    args.what.grace = text("grace");
    Some(args)
}

/// What to change, where there is a key for it.
fn changes(items: &[Item]) -> impl Iterator<Item = &Item> {
    items.iter().filter(|item| item.changes() && keys::KEYS.iter().any(|key| key.name == item.key))
}

fn toml_lines(job: &Name, items: &[Item]) -> Vec<String> {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let table = if job.as_str().chars().all(bare) { job.to_string() } else { format!("\"{job}\"") };
    let mut lines = vec![format!("[jobs.{table}]")];
    lines.extend(changes(items).map(|item| format!("{} = \"{}\"", item.key, exact(item.ms))));
    lines
}

fn flags(items: &[Item]) -> String {
    let all: Vec<String> = changes(items).map(|item| format!("--{} {}", item.key, exact(item.ms))).collect();
    all.join(" ")
}

fn tell(job: &Name, record: &Record, now: &Now, figures: &Figures, items: Option<&[Item]>) {
    print(&summary(job, record, figures));
    figures.took.iter().for_each(|took| print(&spread("took", took)));
    figures.late.iter().for_each(|late| print(&spread("began late by", late)));
    let trouble = trouble(figures);
    if !trouble.is_empty() {
        print(&format!("  {}", trouble.join(", ")));
    }
    let Some(items) = items else {
        print(&format!(
            "too little to advise from: {} successful runs are on record, and at least {RUNS_LEAST} are needed",
            figures.runs()
        ));
        return;
    };
    for item in items {
        let set = match item.set_ms {
            _ if !item.changes() => "stays".to_owned(),
            Some(set_ms) => format!("is {}", exact(set_ms)),
            None => "is not set".to_owned(),
        };
        print(&format!("{} {} ({set}): {}", item.key, exact(item.ms), item.why));
    }
    if now.schedule.is_none() {
        print("grace: no schedule is known, so neither is how late slots are; write every in semel.toml");
    }
    if changes(items).next().is_none() {
        print(&format!("nothing should change; compared with {}", now.by));
        return;
    }
    print(&format!("compared with {}; to change it, in semel.toml:", now.by));
    toml_lines(job, items).iter().for_each(|line| print(&format!("  {line}")));
    print(&format!("or as flags: {}", flags(items)));
}

fn summary(job: &Name, record: &Record, figures: &Figures) -> String {
    let times = || record.attempts.iter().map(|(attempt, _)| attempt.started_ms);
    let (first, last) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let older = match record.left_out {
        0 => String::new(),
        count => format!("; {count} older ones are left out"),
    };
    format!(
        "{job}: {} attempts, {} successful, from {} to {}{older}",
        record.attempts.len(),
        figures.runs(),
        when(first),
        when(last)
    )
}

fn spread(what: &str, of: &Spread) -> String {
    let [p50, p95, max] = [of.p50_ms, of.p95_ms, of.max_ms].map(span);
    format!("  {what}: p50 {p50}, p95 {p95}, most {max} ({} measured)", of.count)
}

fn trouble(figures: &Figures) -> Vec<String> {
    let counts = [
        (figures.failed as u64, "failed"),
        (figures.timed_out as u64, "timed out"),
        (figures.vanished as u64, "vanished"),
        (figures.lease_lost as u64, "lost the lease"),
        (figures.missed_renewals, "renewals missed"),
    ];
    counts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
}

fn as_json(job: &Name, record: &Record, now: &Now, figures: &Figures, items: Option<&[Item]>) -> Value {
    let spread = |of: Option<Spread>| {
        of.map(
            |of| json!({ "count": of.count, "p50_ms": of.p50_ms, "p95_ms": of.p95_ms, "max_ms": of.max_ms }),
        )
    };
    let advice = items.unwrap_or_default().iter().map(|item| {
        json!({
            "key": item.key, "set_ms": item.set_ms, "ms": item.ms, "changes": item.changes(), "why": item.why,
        })
    });
    let all = items.unwrap_or_default();
    let any = changes(all).next().is_some();
    json!({
        "kind": "advice", "job": job, "enough": items.is_some(), "compared_with": now.by,
        "attempts": record.attempts.len(), "left_out": record.left_out, "runs": figures.runs(),
        "took": spread(figures.took), "late": spread(figures.late),
        "failed": figures.failed, "timed_out": figures.timed_out, "vanished": figures.vanished,
        "lease_lost": figures.lease_lost, "missed_renewals": figures.missed_renewals,
        "unrenewed_ms": figures.unrenewed_ms, "advice": advice.collect::<Vec<Value>>(),
        "toml": any.then(|| toml_lines(job, all).join("\n")), "flags": any.then(|| flags(all)),
    })
}
