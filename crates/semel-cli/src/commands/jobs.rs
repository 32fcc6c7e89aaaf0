//! `semel jobs`: the jobs of `semel.toml`, and how each stands in the ledger.

use std::path::Path;

use anstyle::Style;
use semel::engine::ledger::Listed;
use semel_core::definition::Successes;
use semel_core::name::Name;
use serde_json::json;

use super::find::{as_json, ledger};
use super::ls::each;
use crate::args::{Common, RunArgs};
use crate::definition;
use crate::out::{Voice, print_json, when};
use crate::plan::Surroundings;
use crate::runtime;
use crate::table::{Table, flexible, line_width, style_of, whole};
use crate::trouble::Trouble;

/// A job, with what the ledger has of it.
struct Row {
    args: RunArgs,
    name: String,
    faulty: bool,
    last: Option<Listed>,
    /// The file defines it otherwise than when it last succeeded.
    drift: bool,
}

pub(crate) fn run(common: &Common, around: &Surroundings) -> Result<u8, Trouble> {
    let Some(config) = around.config(common)? else {
        return Err(Trouble::config(format!("there are no jobs: {}", around.places(common).words())));
    };
    let voice = Voice::new(common);
    let engine = ledger(common, around)?;
    let mut rows = Vec::new();
    let runtime = runtime()?;
    for job in &config.jobs {
        let args = config.filled(job, &RunArgs::default());
        let (mut last, mut successes) = (None::<Listed>, Successes::default());
        if let Ok(name) = Name::new(&job.name) {
            let unreadable = runtime.block_on(each(&engine, Some(&name), &mut |listed| {
                successes.note(&listed.seen.value);
                if last.as_ref().is_none_or(|last| last.seen.value.changed_ms <= listed.seen.value.changed_ms)
                {
                    last = Some(listed);
                }
            }))?;
            unreadable.say(voice);
        }
        let faulty = config.is_faulty(job);
        let now = if faulty { None } else { definition::of_job(&args) };
        let drift = now.zip(successes.last()).is_some_and(|(now, then)| now.digest != then.digest);
        rows.push(Row { name: job.name.clone(), args, faulty, last, drift });
    }
    if common.json {
        rows.iter().for_each(|row| print_json(row_json(row)));
    } else if rows.is_empty() {
        voice.mention(|| format!("{} has no jobs: write [jobs.NAME]", config.path.display()));
    } else {
        tell(&rows, line_width(around));
    }
    if config.faults.is_empty() {
        return Ok(0);
    }
    let why = format!("{} has faults; see them with: semel config check", config.path.display());
    Err(Trouble::config(why))
}

fn same_work(args: &RunArgs) -> String {
    let what = &args.what;
    if what.once {
        return "once".to_owned();
    }
    if what.always {
        return "always".to_owned();
    }
    let mut parts: Vec<String> = what.slot.iter().map(|slot| format!("slot {slot}")).collect();
    parts.extend((!what.with.is_empty()).then(|| format!("with {}", what.with.join(" "))));
    parts.extend(what.key.iter().map(|key| format!("key {key}")));
    if parts.is_empty() { "by a flag".to_owned() } else { parts.join(", ") }
}

fn resources(row: &Row) -> Vec<&str> {
    let first = row.args.resource.as_deref().unwrap_or(&row.name);
    std::iter::once(first).chain(row.args.or.iter().map(String::as_str)).collect()
}

fn program(args: &RunArgs) -> String {
    let first = args.command.first().map(Path::new).unwrap_or(Path::new(""));
    first.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn tell(rows: &[Row], width: Option<usize>) {
    let mut table = Table::new([
        flexible("JOB", 12),
        flexible("SAME WORK", 10),
        flexible("RESOURCE", 10),
        flexible("COMMAND", 8),
        whole("LAST"),
        whole("SINCE"),
        flexible("NOTE", 10),
    ]);
    let plain = Style::new();
    for row in rows {
        let (state, style, since) = match &row.last {
            Some(last) => (last.condition.word(), style_of(last.condition), when(last.seen.value.changed_ms)),
            None => ("never run", plain, String::new()),
        };
        let note = match () {
            () if row.faulty => "faulty: semel config check",
            () if row.drift => "definition changed since the last success",
            () => "",
        };
        table.row([
            (row.name.clone(), plain),
            (same_work(&row.args), plain),
            (resources(row).join(" or "), plain),
            (program(&row.args), plain),
            (state.to_owned(), style),
            (since, plain),
            (note.to_owned(), plain),
        ]);
    }
    table.print(width);
}

fn row_json(row: &Row) -> serde_json::Value {
    json!({
        "kind": "job", "job": row.name, "same_work": same_work(&row.args), "resources": resources(row),
        "program": program(&row.args), "directory": row.args.place.directory, "faulty": row.faulty,
        "last": row.last.as_ref().map(as_json), "drift": row.drift,
    })
}
