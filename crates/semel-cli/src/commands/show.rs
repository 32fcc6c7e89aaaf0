//! `semel show KEY`: everything the ledger knows about it.

use semel::engine::Engine;
use semel::engine::ledger::{Listed, Outlook};
use semel_core::entry::{Entry, Say};
use semel_core::payload::Fingerprint;
use semel_core::policy::OnLost;
use semel_core::story::{Condition, Suppressed, ended};
use semel_core::work::Work;
use serde_json::json;

use super::find::{self, ledger, not_on_record, words};
use crate::args::{Common, KeyArgs};
use crate::out::{print, print_json, span, when};
use crate::plan::Surroundings;
use crate::runtime;
use crate::table::{Table, clean, flexible, line_width, number, style_of, styled, whole};
use crate::trouble::Trouble;

pub(crate) fn run(common: &Common, args: &KeyArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let engine = ledger(common, around)?;
    runtime()?.block_on(async {
        let work = find::work(common, &engine, &args.key).await?;
        let outlook = engine.outlook(&work).await?;
        let suppressed = engine.suppressed(&work).await?;
        let Some((entry, condition)) = outlook.entry().zip(outlook.condition) else {
            return Err(not_on_record(&engine, &work).await?);
        };
        let steps = Steps::read(&engine, &work).await?;
        if common.json {
            let mut object = as_json(entry, condition, &outlook, &suppressed);
            if let Some(object) = object.as_object_mut().filter(|_| steps.count > 0) {
                let listed: Vec<_> = steps.first.iter().map(find::as_json).collect();
                object.insert("steps".into(), json!({ "count": steps.count, "first": listed }));
            }
            print_json(object);
        } else {
            tell(entry, condition, &outlook, &suppressed, line_width(around));
            steps.tell(line_width(around));
        }
        Ok(0)
    })
}

/// How many steps of a run are shown.
const STEPS_SHOWN: usize = 100;

/// The steps of a run, in the order in which they were first begun.
struct Steps {
    first: Vec<Listed>,
    count: usize,
}

impl Steps {
    async fn read(engine: &Engine, work: &Work) -> Result<Steps, Trouble> {
        let (mut first, mut count, mut from) = (Vec::new(), 0, None);
        loop {
            let page = engine.steps(work, from.as_ref()).await?;
            count += page.entries.len();
            first.extend(page.entries);
            first.sort_by_key(|step| step.seen.value.log.first().map_or(0, |attempt| attempt.started_ms));
            first.truncate(STEPS_SHOWN);
            from = page.next;
            if from.is_none() {
                return Ok(Steps { first, count });
            }
        }
    }

    fn tell(&self, width: Option<usize>) {
        if self.count == 0 {
            return;
        }
        let columns = [
            whole("STATE"),
            flexible("STEP", 12),
            number("TRIES"),
            whole("CHANGED"),
            flexible("OUTPUT", 8),
            flexible("NOTE", 10),
        ];
        let mut table = Table::new(columns).indented(2);
        let plain = anstyle::Style::new();
        for step in &self.first {
            let entry = &step.seen.value;
            let name = match (entry.work.step(), entry.work.nth()) {
                (Some(name), 1) => name.to_string(),
                (Some(name), nth) => format!("{name}~{nth}"),
                (None, _) => String::new(),
            };
            let output = entry.output.as_ref().map(|output| match output.kept {
                true => format!("{} bytes", output.out_bytes.saturating_add(output.err_bytes)),
                false => "not kept".to_owned(),
            });
            table.row([
                (step.condition.word().to_owned(), style_of(step.condition)),
                (name, plain),
                (entry.attempts.to_string(), plain),
                (when(entry.changed_ms), plain),
                (output.unwrap_or_default(), plain),
                (find::note(step), plain),
            ]);
        }
        print("steps");
        table.print(width);
        if self.count > self.first.len() {
            print(&format!("  and {} more", self.count - self.first.len()));
        }
    }
}

fn field(name: &str, value: &str) {
    print(&format!("{name:12}{}", clean(value)));
}

fn tell(
    entry: &Entry,
    condition: Condition,
    outlook: &Outlook,
    suppressed: &Suppressed,
    width: Option<usize>,
) {
    field("work", &entry.work.to_string());
    field("key", &entry.work.key().to_string());
    field("canonical", entry.work.canonical());
    print(&format!("{:12}{}", "state", styled(style_of(condition), condition.word())));
    field("changed", &when(entry.changed_ms));
    field("attempts", &format!("{}, {} in a row failed", entry.attempts, entry.failures));
    field("next run", &outlook.next.words(words()));
    let terms = &entry.terms;
    let on_lost = match terms.on_lost {
        OnLost::Retry => "retry",
        OnLost::Hold => "hold",
        OnLost::Probe => "probe",
    };
    let remember = terms.remember_ms.map_or_else(|| "for ever".to_owned(), span);
    let keep = span(terms.keep_ms);
    field(
        "terms",
        &format!("on-lost {on_lost}, max-failures {}, keep {keep}, remember {remember}", terms.max_failures),
    );
    if let Some(command) = &entry.command {
        field("command", &format!("{}, digest {}", command.program, command.digest));
    }
    if let Some(payload) = &entry.payload {
        field("payload", &payload_words(payload));
    }
    if let Some(plan) = &entry.plan {
        field("plan", &plan.to_string());
    }
    field("suppressed", &suppressed.words().unwrap_or_else(|| "no duplicates".to_owned()));
    if let Some(result) = &entry.result {
        field("result", &result.to_string());
    }
    if let Some(output) = &entry.output {
        let kept = if output.kept { "kept" } else { "not kept" };
        field(
            "output",
            &format!("{} bytes to stdout, {} to stderr, {kept}", output.out_bytes, output.err_bytes),
        );
    }
    tell_attempts(entry, width);
    tell_verdicts(entry, width);
}

fn payload_words(payload: &Fingerprint) -> String {
    let bound = match payload {
        Fingerprint::Leaves { leaves, .. } => format!("{} fields are bound to the key", leaves.len()),
        Fingerprint::Whole { .. } => "a JSON payload is bound to the key as a whole".to_owned(),
        Fingerprint::Bytes { .. } => "a payload's bytes are bound to the key".to_owned(),
    };
    match payload.volatile().len() {
        0 => bound,
        count => format!("{bound}, {count} may differ"),
    }
}

fn tell_attempts(entry: &Entry, width: Option<usize>) {
    let columns = [
        number("ATTEMPT"),
        whole("STARTED"),
        whole("TOOK"),
        number("TOKEN"),
        flexible("RESOURCE", 8),
        flexible("WHO", 12),
        flexible("END", 12),
    ];
    let mut table = Table::new(columns).indented(2);
    for attempt in &entry.log {
        let took = attempt.ended_ms.and_then(|ended_ms| ended_ms.checked_sub(attempt.started_ms));
        let cells = [
            attempt.n.to_string(),
            when(attempt.started_ms),
            took.map(span).unwrap_or_default(),
            attempt.token.to_string(),
            attempt.resource.to_string(),
            attempt.owner.to_string(),
            ended(&attempt.ending),
        ];
        table.row(cells.map(|cell| (cell, anstyle::Style::new())));
    }
    if !entry.log.is_empty() {
        print("attempts");
        table.print(width);
    }
}

fn tell_verdicts(entry: &Entry, width: Option<usize>) {
    if entry.verdicts.is_empty() {
        return;
    }
    let mut table =
        Table::new([whole("SAID"), whole("WHEN"), flexible("WHO", 8), whole("WAS"), flexible("BECAUSE", 12)])
            .indented(2);
    for verdict in &entry.verdicts {
        let said = match verdict.said {
            Say::Done => "done",
            Say::NotDone => "not done",
            Say::Retry => "retry",
        };
        let cells = [
            said.to_owned(),
            when(verdict.at_ms),
            verdict.by.clone(),
            verdict.was.clone(),
            verdict.because.clone(),
        ];
        table.row(cells.map(|cell| (cell, anstyle::Style::new())));
    }
    print("verdicts");
    table.print(width);
}

fn as_json(
    entry: &Entry,
    condition: Condition,
    outlook: &Outlook,
    suppressed: &Suppressed,
) -> serde_json::Value {
    let Suppressed { done, running, busy, last_ms } = suppressed;
    json!({
        "kind": "entry", "work": entry.work.to_string(), "key": entry.work.key().to_string(),
        "canonical": entry.work.canonical(), "state": condition.word(), "needs_person": condition.needs_a_person(),
        "suppressed": { "done": done, "running": running, "busy": busy, "last_ms": last_ms },
        "next": { "would": outlook.next.word(), "words": outlook.next.words(words()) }, "entry": entry,
    })
}
