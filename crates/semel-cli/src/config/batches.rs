//! Batches of `semel.toml`, so that a crontab line can be `semel batch posts`.
//!
//! A table `[batches.NAME]` has the keys of a job that mean something for a batch, and those of [`BATCH_KEYS`]. They have
//! a table of their own because a batch is no run: it has no entry of its own, and its slots cannot be missed.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::keys::{Given, KEYS, Key, Kind, Scope};
use super::{Config, Job, faults, overlay};
use crate::args::{RunArgs, WhatArgs};
use crate::batch::args::{BatchArgs, BatchWhatArgs};
use crate::batch::input::Format;
use crate::trouble::Trouble;

/// What only a batch has.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchTable {
    items: Option<PathBuf>,
    key: Vec<String>,
    format: Option<Format>,
    delimiter: Option<String>,
    field: Option<String>,
    jobs: Option<String>,
    share: bool,
    resource: Option<String>,
    stop_after: Option<String>,
    pause: Option<String>,
    stdin: bool,
    failed_to: Option<PathBuf>,
    volatile: Vec<String>,
}

const fn key(name: &'static str, kind: Kind, put: fn(&mut RunArgs, &Given)) -> Key {
    Key { name, kind, scope: Scope::Job, help: None, put }
}

fn fill<T>(place: &mut Option<T>, value: Option<T>) {
    if place.is_none() {
        *place = value;
    }
}

fn number(value: &Given) -> Option<String> {
    if let Given::Number(number) = value { Some(number.to_string()) } else { None }
}

fn yes(value: &Given) -> bool {
    *value == Given::Yes(true)
}

fn format(value: &Given) -> Option<Format> {
    value.text().and_then(|word| Format::from_str(&word, false).ok())
}

fn list(place: &mut Vec<String>, value: &Given) {
    if let (true, Given::List(list)) = (place.is_empty(), value) {
        place.clone_from(list);
    }
}

/// Every key that a job has not, or has with another meaning; in the order in which they are shown.
#[rustfmt::skip] // a table
pub(crate) const BATCH_KEYS: &[Key] = &[
    Key { help: Some("The file with the items; from the directory of the batch"), ..key("items", Kind::Path, |a, v| fill(&mut a.place.batch.items, v.text().map(PathBuf::from))) },
    key("key", Kind::Texts, |a, v| list(&mut a.place.batch.key, v)),
    key("format", Kind::OneOf(&["jsonl", "csv", "lines", "nul"]), |a, v| fill(&mut a.place.batch.format, format(v))),
    key("delimiter", Kind::Text, |a, v| fill(&mut a.place.batch.delimiter, v.text())),
    key("field", Kind::Text, |a, v| fill(&mut a.place.batch.field, v.text())),
    key("volatile", Kind::Pointers, |a, v| list(&mut a.place.batch.volatile, v)),
    key("jobs", Kind::Count, |a, v| fill(&mut a.place.batch.jobs, number(v))),
    key("share", Kind::Yes, |a, v| a.place.batch.share |= yes(v)),
    key("resource", Kind::Text, |a, v| fill(&mut a.place.batch.resource, v.text())),
    key("stop-after", Kind::Count, |a, v| fill(&mut a.place.batch.stop_after, number(v))),
    key("pause", Kind::Duration, |a, v| fill(&mut a.place.batch.pause, v.text())),
    key("stdin", Kind::Yes, |a, v| a.place.batch.stdin |= yes(v)),
    key("failed-to", Kind::Path, |a, v| fill(&mut a.place.batch.failed_to, v.text().map(PathBuf::from))),
];

/// Keys of a job that mean nothing for a batch.
const NOT_OF_BATCHES: [&str; 11] = [
    "catch-up",
    "keep-going",
    "grace",
    "once",
    "always",
    "or",
    "payload",
    "choose",
    "recent",
    "plan",
    "plan-cmd",
];

/// Every flag of `semel batch` that is no key, and why.
#[cfg(test)]
pub(crate) const NO_BATCH_KEYS: &[(&str, &str)] = &[
    ("job", "a batch is named by its table"),
    ("scheduled-for", "the scheduler says it, each time"),
    ("dry-run", "how one invocation is made"),
    ("import-joblog", "it is taken over once"),
];

/// Every key of a batch.
pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    let of_jobs = KEYS.iter().filter(|key| {
        let is_other = BATCH_KEYS.iter().any(|other| other.name == key.name);
        !is_other && key.name != "fill" && !NOT_OF_BATCHES.contains(&key.name)
    });
    BATCH_KEYS.iter().chain(of_jobs)
}

impl Config {
    /// The arguments of this batch: what was typed, and beneath it what the file says.
    pub(crate) fn batch(&self, name: &str, typed: &BatchArgs) -> Result<BatchArgs, Trouble> {
        self.check_batch(name)?;
        let Some(batch) = self.batches.iter().find(|batch| batch.name == name) else {
            let path = self.path.display();
            let names = self.batches.iter().map(|batch| batch.name.as_str());
            return Err(Trouble::config(match faults::nearest(name, names) {
                Some(near) => format!("{path} has no batch {name:?}: did you mean {near:?}?"),
                None if self.jobs.iter().any(|job| job.name == name) => {
                    format!("{name:?} of {path} is a job, not a batch: semel run {name}")
                }
                None => format!(
                    "{path} has no batch {name:?}: write [batches.{name}]; or if it is a file with items, say --job too"
                ),
            }));
        };
        Ok(self.filled_batch(batch, typed))
    }

    /// The same, of one that is there and well.
    pub(super) fn filled_batch(&self, batch: &Job, typed: &BatchArgs) -> BatchArgs {
        let run = overlay::fill(&as_run(typed), &batch.name, &batch.keys, &self.defaults, self.folder());
        as_batch(run, typed)
    }

    fn check_batch(&self, name: &str) -> Result<(), Trouble> {
        self.refuse(|fault| match &fault.of {
            faults::Of::Job(_) => false,
            faults::Of::Batch(batch) => batch == name,
            faults::Of::Lane(_) => false,
            _ => true,
        })
    }
}

fn as_run(typed: &BatchArgs) -> RunArgs {
    let BatchWhatArgs { every, tz, scheduled_for, max_late, slot, with } = typed.what.clone();
    let mut run = RunArgs {
        what: WhatArgs { every, tz, scheduled_for, max_late, slot, with, ..WhatArgs::default() },
        policy: typed.policy.clone(),
        notify: typed.notify.clone(),
        skip_code: typed.skip_code,
        ..RunArgs::default()
    };
    run.place.batch = BatchTable {
        items: None,
        key: typed.key.clone(),
        format: typed.input.format,
        delimiter: typed.input.delimiter.clone(),
        field: typed.input.field.clone(),
        jobs: typed.jobs.clone(),
        share: typed.share,
        resource: typed.resource.clone(),
        stop_after: typed.stop_after.clone(),
        pause: typed.pause.clone(),
        stdin: typed.stdin,
        failed_to: None,
        volatile: typed.input.volatile.clone(),
    };
    run
}

fn as_batch(run: RunArgs, typed: &BatchArgs) -> BatchArgs {
    let RunArgs { what, policy, notify, skip_code, command, job, mut place, .. } = run;
    let WhatArgs { every, tz, scheduled_for, max_late, slot, with, .. } = what;
    let BatchTable {
        items,
        key,
        format,
        delimiter,
        field,
        jobs,
        share,
        resource,
        stop_after,
        pause,
        stdin,
        failed_to,
        volatile,
    } = std::mem::take(&mut place.batch);
    let directory = place.directory.clone().unwrap_or_else(|| Path::new(".").to_owned());
    let mut args = BatchArgs {
        file: items.map(|items| directory.join(items)),
        job,
        key,
        jobs,
        share,
        resource,
        what: BatchWhatArgs { every, tz, scheduled_for, max_late, slot, with },
        stop_after,
        pause,
        policy,
        notify,
        stdin,
        failed_to: typed.failed_to.clone().or_else(|| failed_to.map(|file| directory.join(file))),
        dry_run: typed.dry_run,
        import_joblog: typed.import_joblog.clone(),
        skip_code,
        command,
        place,
        ..BatchArgs::default()
    };
    args.input.format = format;
    (args.input.delimiter, args.input.field, args.input.volatile) = (delimiter, field, volatile);
    args
}
