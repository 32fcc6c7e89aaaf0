//! `semel history JOB`: the calendar of its slots, and its attempts, newest first.

use semel::engine::ledger::Listed;
use semel_core::definition::Successes;
use semel_core::entry::{Attempt, Ending};
use semel_core::story::{Condition, ended};
use semel_core::work::Work;
use serde_json::json;

use super::find::{Newest, ledger, note};
use super::history_grid::{Shown, Slots};
use super::ls::each;
use crate::args::{Common, HistoryArgs};
use crate::out::{Voice, print, print_json, span, when};
use crate::plan::{Surroundings, name};
use crate::runtime;
use crate::table::{Table, flexible, line_width, number, style_of, whole};
use crate::trouble::Trouble;

/// One attempt, with what became of its work; or a work that was never tried.
struct Row {
    work: Work,
    attempt: Option<Attempt>,
    /// When it began, or when it was found not to have.
    at_ms: u64,
    condition: Condition,
    /// What there is to say of a work that was never tried.
    note: String,
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
    if let Some(slots) = &mut slots {
        let (calendars, _) = runtime.block_on(engine.calendars(Some(&job), None))?;
        if let Some(calendar) = calendars.first() {
            slots.learn(&calendar.value, around);
        }
    }
    let (rows, left_out, unreadable) = runtime.block_on(async {
        let unreadable = each(&engine, Some(&job), &mut |listed| {
            successes.note(&listed.seen.value);
            if let Some(slots) = &mut slots {
                slots.note(&listed);
            }
            for row in rows_of(listed) {
                newest.push(row.at_ms, row);
            }
        })
        .await?;
        let left_out = newest.left_out();
        let mut rows = newest.into_vec();
        for row in &mut rows {
            row.drift = row.attempt.as_ref().is_some_and(|attempt| successes.drift(attempt).is_some());
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

fn rows_of(listed: Listed) -> Vec<Row> {
    let note = if listed.seen.value.log.is_empty() { note(&listed) } else { String::new() };
    let Listed { seen, condition, .. } = listed;
    let (work, changed_ms) = (seen.value.work, seen.value.changed_ms);
    let row = |attempt: Option<Attempt>, last: bool| Row {
        work: work.clone(),
        at_ms: attempt.as_ref().map_or(changed_ms, |attempt| attempt.started_ms),
        attempt,
        condition,
        note: note.clone(),
        last,
        suppressed: None,
        drift: false,
    };
    let count = seen.value.log.len();
    if count == 0 {
        return vec![row(None, true)];
    }
    let attempts = seen.value.log.into_iter().enumerate();
    attempts.map(|(nth, attempt)| row(Some(attempt), nth + 1 == count)).collect()
}

/// What the row is about: how the attempt ended, and for the last one where its work stands.
fn state(row: &Row) -> (&'static str, Condition) {
    match row.attempt.as_ref().map(|attempt| &attempt.ending) {
        _ if row.last => (row.condition.word(), row.condition),
        Some(Ending::Succeeded | Ending::ProbedDone) => ("done", Condition::Done),
        Some(Ending::Vanished) => ("lost", Condition::Lost),
        Some(ending) if ending.is_failure() => ("failed", Condition::Failed),
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
        let attempt = row.attempt.as_ref();
        let end = match (attempt.map(|attempt| &attempt.ending), row.condition) {
            (None, _) => row.note.clone(),
            (Some(Ending::None), Condition::Running) => "is under way".to_owned(),
            (Some(Ending::None), _) => "its end is not on record".to_owned(),
            (Some(ending), _) => ended(ending),
        };
        let drift = if row.drift { "; definition changed since the last success" } else { "" };
        table.row([
            (when(row.at_ms), plain),
            (word.to_owned(), style_of(condition)),
            (row.work.to_string(), plain),
            (attempt.map(|attempt| attempt.n.to_string()).unwrap_or_default(), plain),
            (attempt.and_then(took_ms).map(span).unwrap_or_default(), plain),
            (attempt.map(|attempt| attempt.token.to_string()).unwrap_or_default(), plain),
            (row.suppressed.map(|count| count.to_string()).unwrap_or_default(), plain),
            (end + drift, plain),
        ]);
    }
    table.print(width);
}

fn as_json(row: &Row) -> serde_json::Value {
    // a work that was never tried has no attempt
    let kind = if row.attempt.is_some() { "attempt" } else { "slot" };
    json!({
        "kind": kind, "work": row.work.to_string(), "key": row.work.key().to_string(), "state": state(row).0,
        "at_ms": row.at_ms, "note": row.note,
        "took_ms": row.attempt.as_ref().and_then(took_ms), "suppressed": row.suppressed, "drift": row.drift, "attempt": row.attempt,
    })
}
