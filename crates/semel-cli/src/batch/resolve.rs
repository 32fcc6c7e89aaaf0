//! From what was typed to what is run: every check that needs no input and no store.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use semel_core::canonical::Pointer;
use semel_core::field::Field;
use semel_core::name::Name;
use semel_core::payload::Fingerprint;
use semel_core::policy::Policy;
use semel_core::work::{FIELDS_LIMIT, Work};
use serde_json::json;

use super::args::{BatchArgs, BatchWhatArgs, InputArgs};
use super::fill::ItemFill;
use super::input::{Format, From, Items, Reading};
use super::item::Keys;
use crate::args::{Common, RunArgs, WhatArgs};
use crate::plan::{self, Probe, Program, Surroundings, name, quoted};
use crate::site::Site;
use crate::slot::{self, Due};
use crate::trouble::Trouble;

/// The most items at once.
const JOBS_LIMIT: u32 = 1024;

/// A batch, ready but for its input and the store.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) from: From,
    pub(crate) reading: Reading,
    /// What all items belong to.
    pub(crate) work: Work,
    pub(crate) due: Option<Due>,
    pub(crate) jobs: u32,
    pub(crate) share: bool,
    /// Of the batch itself.
    pub(crate) resource: Name,
    /// What each item is to have leased for it, with placeholders.
    pub(crate) item_resource: Option<String>,
    pub(crate) breaker: Option<Breaker>,
    pub(crate) policy: Policy,
    pub(crate) probe: Option<Probe>,
    pub(crate) command: Program,
    pub(crate) stdin: bool,
    pub(crate) failed_to: Option<PathBuf>,
    pub(crate) dry_run: bool,
    pub(crate) import_joblog: Option<PathBuf>,
    pub(crate) skip_code: u8,
    /// The same as arguments of a run, for what goes by them: definition, notices, pings.
    pub(crate) as_run: RunArgs,
}

/// When a batch stops by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Breaker {
    /// Failures in a row.
    pub(crate) after: u32,
    /// How long until one item is tried; without it the batch ends.
    pub(crate) pause_ms: Option<u64>,
}

impl Resolved {
    /// The items, and the placeholders checked against what is known of them.
    pub(crate) fn open(&self) -> Result<(Items, ItemFill), Trouble> {
        let items = Items::open(&self.from, self.reading.clone())?;
        let line = items.line();
        let fill = ItemFill::parse(&self.command.argv, &self.work, line)?;
        let fill = fill.with_resource(self.item_resource.as_deref(), &self.work, line)?;
        let name = match &self.from {
            From::Stdin => "stdin".to_owned(),
            From::File(path) => path.display().to_string(),
        };
        fill.check(&name, items.columns().as_deref())?;
        Ok((items, fill))
    }
}

/// What was typed, with the batch of `semel.toml` beneath it if one is named.
pub(crate) fn with_file<'a>(
    common: &Common,
    args: &'a BatchArgs,
    around: &Surroundings,
) -> Result<Cow<'a, BatchArgs>, Trouble> {
    let (None, Some(file), true) = (&args.job, &args.file, args.command.is_empty()) else {
        return Ok(Cow::Borrowed(args));
    };
    let Some(name) = file.to_str().filter(|name| *name != "-") else { return Ok(Cow::Borrowed(args)) };
    match around.config(common)? {
        Some(config) => Ok(Cow::Owned(config.batch(name, args)?)),
        None => Err(Trouble::config(format!(
            "there is no batch {name}: {}; if it is a file with items, say --job, --key and a command",
            around.places(common).words()
        ))),
    }
}

/// Can these arguments go together? Without looking at anything but them.
pub(crate) fn check(args: &BatchArgs) -> Result<(), Trouble> {
    let job = name("--job", args.job.as_deref().unwrap_or_default())?;
    let reading = reading(&args.key, &args.input)?;
    let what = what(&args.what);
    let is_scheduled = slot::schedule(&what)?.is_some();
    let slot = is_scheduled.then(|| "due".to_owned()).or_else(|| what.slot.clone());
    let (policy, _) = plan::policy(&args.policy)?;
    slot::check_remember(&what, policy.remember_ms)?;
    let what = WhatArgs { slot, ..what };
    let work = if what.is_more() { plan::work(&job, &what, None)? } else { Work::once(job.clone()) };
    let (_, item_resource) = resource(&job, args.resource.as_deref())?;
    check_share(args, item_resource.as_deref())?;
    breaker(args)?;
    count("--jobs", args.jobs.as_deref(), JOBS_LIMIT)?;
    let line = line(&reading);
    ItemFill::parse(&args.command, &work, line)?.with_resource(item_resource.as_deref(), &work, line)?;
    Ok(())
}

fn check_share(args: &BatchArgs, item_resource: Option<&str>) -> Result<(), Trouble> {
    if args.share && args.policy.if_busy.is_some() && item_resource.is_none() {
        return Err(Trouble::config(
            "--share and --if-busy: those that share are never busy; leave one of them out",
        ));
    }
    Ok(())
}

/// What a line is called. Which format it is may be found out later: then a line may be meant.
fn line(reading: &Reading) -> Option<&str> {
    match reading.format {
        Some(Format::Csv | Format::Jsonl) => None,
        Some(Format::Lines | Format::Nul) | None => Some(reading.field.as_str()),
    }
}

/// `semel batch`, resolved.
pub(crate) fn resolve(args: &BatchArgs, around: &Surroundings) -> Result<Resolved, Trouble> {
    let job = args.job.as_deref().ok_or_else(|| {
        Trouble::config(
            "no job: say --job, as in: semel batch posts.jsonl --job posts --key slug -- ./publish.sh {slug}",
        )
    })?;
    let job = name("--job", job)?;
    let from = from(args.file.as_deref())?;
    let reading = reading(&args.key, &args.input)?;
    if args.stdin && args.command.is_empty() {
        return Err(Trouble::config("--stdin without a command: write it after --"));
    }
    let what = what(&args.what);
    let due = slot::due(&what, around)?;
    let work = if what.is_more() { plan::work(&job, &what, due.as_ref())? } else { Work::once(job.clone()) };
    let (resource, item_resource) = resource(&job, args.resource.as_deref())?;
    let (policy, probe) = plan::policy(&args.policy)?;
    slot::check_remember(&what, policy.remember_ms)?;
    check_share(args, item_resource.as_deref())?;
    let breaker = breaker(args)?;
    let jobs = count("-j", args.jobs.as_deref(), JOBS_LIMIT)?.unwrap_or(1);
    if args.command.is_empty() {
        return Err(Trouble::config(
            "no command: write it after --, as in: semel batch posts.jsonl --job posts --key slug -- ./publish.sh {slug}",
        ));
    }
    let line = line(&reading);
    ItemFill::parse(&args.command, &work, line)?.with_resource(item_resource.as_deref(), &work, line)?;
    check_files(args, &from)?;
    let site = Site::new(job.as_str(), &args.place, around)?;
    let command = plan::program_at(&args.command, around, site)?;
    let as_run = RunArgs {
        job: Some(job.to_string()),
        what,
        resource: Some(resource.to_string()),
        policy: args.policy.clone(),
        notify: args.notify.clone(),
        skip_code: args.skip_code,
        command: args.command.clone(),
        place: args.place.clone(),
        ..RunArgs::default()
    };
    Ok(Resolved {
        from,
        reading,
        work,
        due,
        jobs,
        share: args.share,
        resource,
        item_resource,
        breaker,
        policy,
        probe,
        command,
        stdin: args.stdin,
        failed_to: args.failed_to.clone(),
        dry_run: args.dry_run,
        import_joblog: args.import_joblog.clone(),
        skip_code: args.skip_code.unwrap_or(0),
        as_run,
    })
}

fn from(file: Option<&Path>) -> Result<From, Trouble> {
    match file {
        Some(path) if path.as_os_str() != "-" => Ok(From::File(path.to_owned())),
        // somebody forgot the file; who means to type items says so
        None if std::io::stdin().is_terminal() => {
            Err(Trouble::config("no items: name a file, or say - and type them"))
        }
        _ => Ok(From::Stdin),
    }
}

fn what(args: &BatchWhatArgs) -> WhatArgs {
    let BatchWhatArgs { every, tz, scheduled_for, max_late, slot, with } = args.clone();
    WhatArgs { every, tz, scheduled_for, max_late, slot, with, ..WhatArgs::default() }
}

/// How items are read, and by what they are known.
fn reading(key: &[String], args: &InputArgs) -> Result<Reading, Trouble> {
    let field = args.field.as_deref().unwrap_or("line");
    let wrong = |why: &dyn std::fmt::Display| Trouble::config(format!("--field {}: {why}", quoted(field)));
    let named = Field::parse(field).map_err(|why| wrong(&why))?;
    if named.name() != field {
        return Err(wrong(&"it is a plain name: leave out the '/'"));
    }
    let volatile = args.volatile.iter().map(|text| {
        Pointer::new(text).map_err(|why| Trouble::config(format!("--volatile {}: {why}", quoted(text))))
    });
    let volatile = volatile.collect::<Result<Vec<_>, _>>()?;
    // the same rules as for a payload, said before the first item
    Fingerprint::of_json(&json!({}), &volatile)
        .map_err(|why| Trouble::config(format!("--volatile: {why}")))?;
    let keys = Keys { fields: key_fields(key, args.format, field)?, volatile };
    let (field, is_field_said) = (field.to_owned(), args.field.is_some());
    let reading = Reading { format: args.format, delimiter: delimiter(args)?, field, is_field_said, keys };
    args.format.map_or(Ok(()), |format| reading.check(format))?;
    Ok(reading)
}

fn key_fields(key: &[String], format: Option<Format>, line: &str) -> Result<Vec<Field>, Trouble> {
    if key.is_empty() {
        // a line is its own key
        if matches!(format, Some(Format::Lines | Format::Nul)) {
            return Ok(vec![Field::column(line)]);
        }
        return Err(Trouble::config(
            "by which fields is an item known? Say --key, as in --key site,slug; --key line for plain lines",
        ));
    }
    let mut fields: Vec<Field> = Vec::new();
    for text in key.iter().flat_map(|words| words.split(',')) {
        let wrong = |why: &dyn std::fmt::Display| Trouble::config(format!("--key {}: {why}", quoted(text)));
        let field = Field::parse(text.trim()).map_err(|why| wrong(&why))?;
        if fields.iter().any(|other| other.name() == field.name()) {
            return Err(wrong(&"it is named twice: leave one out"));
        }
        fields.push(field);
    }
    match fields.len() {
        many if many > FIELDS_LIMIT => {
            Err(Trouble::config(format!("--key names {many} fields; at most {FIELDS_LIMIT} are allowed")))
        }
        _ => Ok(fields),
    }
}

fn delimiter(args: &InputArgs) -> Result<Option<u8>, Trouble> {
    let Some(text) = args.delimiter.as_deref() else { return Ok(None) };
    match text.as_bytes() {
        _ if matches!(text, "tab" | "\\t") => Ok(Some(b'\t')),
        [sign] if sign.is_ascii() && !matches!(sign, b'"' | b'\r' | b'\n' | 0) => Ok(Some(*sign)),
        _ => Err(Trouble::config(format!(
            "--delimiter {}: write one sign, as in --delimiter ';', or tab; not a quote or a line break",
            quoted(text)
        ))),
    }
}

/// The batch's resource, and what its items name: a placeholder makes it theirs.
fn resource(job: &Name, text: Option<&str>) -> Result<(Name, Option<String>), Trouble> {
    match text {
        None => Ok((job.clone(), None)),
        Some(text) if text.contains(['{', '}']) => Ok((job.clone(), Some(text.to_owned()))),
        Some(text) => Ok((name("--resource", text)?, None)),
    }
}

fn breaker(args: &BatchArgs) -> Result<Option<Breaker>, Trouble> {
    let after = count("--stop-after", args.stop_after.as_deref(), u32::MAX)?;
    let pause_ms = args.pause.as_deref().map(|text| plan::duration_ms("--pause", text)).transpose()?;
    match (after, pause_ms) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Trouble::config("--pause without --stop-after: say after how many failures")),
        (Some(_), Some(0)) => {
            Err(Trouble::config("--pause 0: a pause has a length; leave it out to stop for good"))
        }
        (Some(after), pause_ms) => Ok(Some(Breaker { after, pause_ms })),
    }
}

/// A number from 1.
fn count(flag: &str, text: Option<&str>, most: u32) -> Result<Option<u32>, Trouble> {
    let Some(text) = text else { return Ok(None) };
    match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
        _ => Err(Trouble::config(format!("{flag} {}: write a number from 1 to {most}", quoted(text)))),
    }
}

/// What does not go together among the files.
fn check_files(args: &BatchArgs, from: &From) -> Result<(), Trouble> {
    if args.dry_run && args.failed_to.is_some() {
        return Err(Trouble::config(
            "--failed-to with --dry-run: nothing runs, nothing fails; leave one out",
        ));
    }
    if let (From::File(input), Some(log)) = (from, &args.import_joblog)
        && input == log
    {
        return Err(Trouble::config("--import-joblog names the items' own file: name parallel's log"));
    }
    Ok(())
}
