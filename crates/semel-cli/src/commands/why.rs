//! `semel why KEY`: what happened to it, in plain words, and what the next run would do.

use semel::engine::Engine;
use semel::engine::ledger::Outlook;
use semel_core::definition::{Difference, Successes, differences};
use semel_core::entry::{CommandMark, Entry};
use semel_core::story::{Condition, Line, Suppressed, story};
use semel_core::work::Work;
use serde_json::json;

use super::find::{self, ledger, not_on_record, words};
use super::ls::each;
use super::run::how_to_resolve;
use crate::args::{Common, KeyArgs};
use crate::out::{print, print_json, when};
use crate::plan::Surroundings;
use crate::runtime;
use crate::table::{clean, style_of, styled};
use crate::trouble::Trouble;

pub(crate) fn run(common: &Common, args: &KeyArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let engine = ledger(common, around)?;
    runtime()?.block_on(async {
        let work = find::work(common, &engine, &args.key).await?;
        let outlook = engine.outlook(&work).await?;
        let suppressed = engine.suppressed(&work).await?;
        let mut more = Vec::new();
        let drift = drift(&engine, &work, outlook.entry()).await?;
        if let Some(drift) = &drift {
            more.extend(changed(drift));
        }
        more.extend(steps(&engine, &work).await?);
        if common.json {
            print_json(as_json(&work, &outlook, &suppressed, &more, drift.as_deref()));
        } else {
            tell(&work, &outlook, &suppressed, &more);
        }
        match outlook.condition {
            Some(_) => Ok(0),
            None => Err(not_on_record(&engine, &work).await?),
        }
    })
}

/// How the last attempt was defined otherwise than the last success of its job before it; nothing if it was not.
async fn drift(
    engine: &Engine,
    work: &Work,
    entry: Option<&Entry>,
) -> Result<Option<Vec<Difference>>, Trouble> {
    let Some(entry) = entry.filter(|_| work.step().is_none()) else { return Ok(None) };
    let Some((last, is)) = entry.last_attempt().and_then(|last| Some((last, entry.definition_of(last)?)))
    else {
        return Ok(None);
    };
    let mut successes = Successes::default();
    each(engine, Some(work.job()), &mut |listed| successes.note(&listed.seen.value)).await?;
    Ok(successes.drift(last).map(|was| differences(was, &is)))
}

fn changed(drift: &[Difference]) -> Vec<Line> {
    const SHOWN: usize = 20;
    let line = |text| Line { at_ms: None, text };
    let head = line("definition changed since the last success:".to_owned());
    let shown = drift.iter().take(SHOWN).map(|difference| line(format!("  {}", difference.words())));
    let left_out = drift.len().saturating_sub(SHOWN);
    let more = (left_out > 0).then(|| line(format!("  and {left_out} more")));
    std::iter::once(head).chain(shown).chain(more).collect()
}

/// How its steps stand, in a line or two: how many are done, and each that is not, up to a few.
async fn steps(engine: &Engine, work: &Work) -> Result<Vec<Line>, Trouble> {
    const SHOWN: usize = 10;
    let (mut done, mut open, mut lines, mut from) = (0_u64, 0_u64, Vec::new(), None);
    let line = |text| Line { at_ms: None, text };
    loop {
        let page = engine.steps(work, from.as_ref()).await?;
        for step in page.entries {
            if step.condition == Condition::Done {
                done += 1;
                continue;
            }
            open += 1;
            if lines.len() < SHOWN {
                let state = step.condition.word().replace('_', " ");
                lines.push(line(format!("its step {} is {state}", step.seen.value.work)));
            }
        }
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    if open > lines.len() as u64 {
        lines.push(line(format!("and {} more steps are not done", open - lines.len() as u64)));
    }
    if done > 0 {
        let steps = if done == 1 { "step is" } else { "steps are" };
        lines.insert(0, line(format!("{done} {steps} done: a retry replays what they wrote")));
    }
    Ok(lines)
}

fn lines(outlook: &Outlook, suppressed: &Suppressed, more: &[Line]) -> Vec<Line> {
    let told = outlook.entry().zip(outlook.condition);
    let mut lines =
        told.map(|(entry, condition)| story(entry, condition, suppressed, words())).unwrap_or_default();
    if let Some(CommandMark { program, digest }) =
        outlook.entry().and_then(|entry: &Entry| entry.command.as_ref())
    {
        let digest = digest.get(..12).unwrap_or(digest);
        lines.push(Line {
            at_ms: None,
            text: format!("the command that ran last was {program} (with its arguments: {digest})"),
        });
    }
    if let Some(plan) = outlook.entry().and_then(|entry| entry.plan.as_ref()) {
        let text = format!("its plan is pinned, the same for every attempt: {}", super::plan::words(plan));
        lines.push(Line { at_ms: None, text });
    }
    lines.extend_from_slice(more);
    lines
}

fn tell(work: &Work, outlook: &Outlook, suppressed: &Suppressed, more: &[Line]) {
    match outlook.condition {
        Some(condition) => {
            print(&format!("{work} is {}", styled(style_of(condition), &condition.word().replace('_', " "))))
        }
        None => print(&format!("{work}: nothing is on record")),
    }
    for Line { at_ms, text } in lines(outlook, suppressed, more) {
        let time = at_ms.map(when).unwrap_or_default();
        print(&format!("  {time:19}  {}", clean(&text)));
    }
    print(&format!("The next run would: {}", clean(&outlook.next.words(words()))));
    if outlook.condition.is_some_and(|condition| condition.needs_a_person()) {
        print(&how_to_settle(work));
    }
}

/// The exact words, without the hint to look at what is being looked at.
fn how_to_settle(work: &Work) -> String {
    let all = how_to_resolve(&work.to_string());
    let settle = all.split_once("; ").map_or(all.as_str(), |(_, settle)| settle);
    format!("S{}", settle.strip_prefix('s').unwrap_or(settle))
}

fn as_json(
    work: &Work,
    outlook: &Outlook,
    suppressed: &Suppressed,
    more: &[Line],
    drift: Option<&[Difference]>,
) -> serde_json::Value {
    let story: Vec<_> = lines(outlook, suppressed, more)
        .into_iter()
        .map(|Line { at_ms, text }| json!({ "at_ms": at_ms, "text": text }))
        .collect();
    let Suppressed { done, running, busy, last_ms } = suppressed;
    json!({
        "kind": "why", "work": work.to_string(), "key": work.key().to_string(),
        "state": outlook.condition.map(|condition| condition.word()), "story": story, "drift": drift,
        "suppressed": { "done": done, "running": running, "busy": busy, "last_ms": last_ms },
        "next": { "would": outlook.next.word(), "words": outlook.next.words(words()) },
    })
}
