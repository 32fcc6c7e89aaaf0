//! `semel history JOB`: the calendar of its slots, and its attempts, newest first.

use semel::engine::ledger::Listed;
use semel_core::definition::Successes;
use semel_core::entry::{Attempt, Ending};
use semel_core::story::{Condition, ended};
use semel_core::work::Work;
use serde_json::json;

use super::find::{Newest, ledger};
use super::history_grid::{Shown, Slots};
use super::ls::each;
use crate::args::{Common, HistoryArgs};
use crate::out::{Voice, print, print_json, span, when};
use crate::plan::{Surroundings, name};
use crate::runtime;
use crate::table::{Table, flexible, line_width, number, style_of, whole};
use crate::trouble::Trouble;

/// One attempt, with what became of its work.
struct Row {
    work: Work,
    attempt: Attempt,
    condition: Condition,
    /// It is the last one of its work.
    last: bool,
    suppressed: Option<u64>,
    /// It was defined otherwise than the last success before it.
    drift: bool,
}

pub(crate) fn run(common: &Common, args: &HistoryArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let job = name("JOB", &args.job)?;
    let engine = ledger(common, around)?;
    let mut newest = Newest::new(args.limit);
    let mut successes = Successes::default();
    let shown = Shown::of(common, args);
    let mut slots = shown.grid.then(|| Slots::new(common, around, &job));
    let runtime = runtime()?;
    let (rows, left_out, unreadable) = runtime.block_on(async {
        let unreadable = each(&engine, Some(&job), &mut |listed| {
            successes.note(&listed.seen.value);
            if let Some(slots) = &mut slots {
                slots.note(&listed);
            }
            for row in rows_of(listed) {
                newest.push(row.attempt.started_ms, row);
            }
        })
        .await?;
        let left_out = newest.left_out();
        let mut rows = newest.into_vec();
        for row in &mut rows {
            row.drift = successes.drift(&row.attempt).is_some();
        }
        for row in rows.iter_mut().filter(|row| row.last) {
            row.suppressed = Some(engine.suppressed(&row.work).await?.all());
        }
        Ok::<_, Trouble>((rows, left_out, unreadable))
    })?;
    let voice = Voice::new(common);
    unreadable.say(voice);
    if rows.is_empty() && left_out == 0 {
        return Err(Trouble::input(format!(
            "nothing of job {job} is on record; list what is with: semel ls"
        )));
    }
    if common.json {
        rows.iter().for_each(|row| print_json(as_json(row)));
        return Ok(0);
    }
    if let Some(slots) = &slots {
        let drawn = runtime.block_on(slots.print(&engine, around))?;
        if !shown.list {
            let none =
                || Trouble::input(format!("no work of job {job} has a slot that is a time: say --list"));
            return if drawn { Ok(0) } else { Err(none()) };
        }
        if drawn {
            print("");
        }
    }
    tell(&rows, line_width(around));
    if left_out > 0 {
        voice.mention(|| {
            format!(
                "{left_out} older attempts are not shown: say --limit {} to see them",
                rows.len() as u64 + left_out
            )
        });
    }
    Ok(0)
}

fn rows_of(listed: Listed) -> impl Iterator<Item = Row> {
    let Listed { seen, condition, .. } = listed;
    let (work, count) = (seen.value.work, seen.value.log.len());
    seen.value.log.into_iter().enumerate().map(move |(nth, attempt)| Row {
        work: work.clone(),
        attempt,
        condition,
        last: nth + 1 == count,
        suppressed: None,
        drift: false,
    })
}

/// What the row is about: how the attempt ended, and for the last one where its work stands.
fn state(row: &Row) -> (&'static str, Condition) {
    match (&row.attempt.ending, row.condition) {
        (_, condition) if row.last => (condition.word(), condition),
        (Ending::Succeeded | Ending::ProbedDone, _) => ("done", Condition::Done),
        (Ending::Vanished, _) => ("lost", Condition::Lost),
        (ending, _) if ending.is_failure() => ("failed", Condition::Failed),
        _ => ("open", Condition::Open),
    }
}

fn took_ms(attempt: &Attempt) -> Option<u64> {
    attempt.ended_ms.and_then(|ended_ms| ended_ms.checked_sub(attempt.started_ms))
}

fn tell(rows: &[Row], width: Option<usize>) {
    let mut table = Table::new([
        whole("STARTED"),
        whole("STATE"),
        flexible("WORK", 16),
        number("ATTEMPT"),
        number("TOOK"),
        number("TOKEN"),
        number("SKIPPED"),
        flexible("END", 12),
    ]);
    let plain = anstyle::Style::new();
    for row in rows {
        let (word, condition) = state(row);
        let end = match (&row.attempt.ending, row.condition) {
            (Ending::None, Condition::Running) => "is under way".to_owned(),
            (Ending::None, _) => "its end is not on record".to_owned(),
            (ending, _) => ended(ending),
        };
        let drift = if row.drift { "; definition changed since the last success" } else { "" };
        table.row([
            (when(row.attempt.started_ms), plain),
            (word.to_owned(), style_of(condition)),
            (row.work.to_string(), plain),
            (row.attempt.n.to_string(), plain),
            (took_ms(&row.attempt).map(span).unwrap_or_default(), plain),
            (row.attempt.token.to_string(), plain),
            (row.suppressed.map(|count| count.to_string()).unwrap_or_default(), plain),
            (end + drift, plain),
        ]);
    }
    table.print(width);
}

fn as_json(row: &Row) -> serde_json::Value {
    json!({
        "kind": "attempt", "work": row.work.to_string(), "key": row.work.key().to_string(), "state": state(row).0,
        "took_ms": took_ms(&row.attempt), "suppressed": row.suppressed, "drift": row.drift, "attempt": row.attempt,
    })
}
