//! `semel init`: units that fire the jobs of `semel.toml`, for other people's schedulers.
//!
//! ```text
//! semel.toml ──▶ jobs with a schedule ──▶ lines for that scheduler's clock (semel_core::trigger) ──▶ units
//! ```
//!
//! Units are printed, and nothing is installed. `--output` writes them as files, and replaces none without `--force`.
//! They hold no secret: variables are named, never their values. A job that the scheduler cannot be told is named in a
//! comment, and the exit code is 78 although the others are there.

mod cron;
mod github;
mod k8s;
mod launchd;
mod systemd;

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use semel_core::policy::Policy;
use semel_core::schedule::Schedule;
use semel_core::trigger::{Clocks, Wish};

use crate::args::{Common, RunArgs};
use crate::config::{Config, Reference};
use crate::out::print;
use crate::plan::{Surroundings, policy};
use crate::slot;
use crate::trouble::Trouble;

/// How far ahead changes of the clocks are looked at.
const AHEAD: SignedDuration = SignedDuration::from_hours(5 * 366 * 24);

/// `semel init`
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Whose units
    pub(crate) kind: Kind,
    /// Only these jobs [default: all that have a schedule]
    #[arg(value_name = "JOB")]
    pub(crate) jobs: Vec<String>,
    /// The semel that is started [default: this one]
    #[arg(long, value_name = "PATH")]
    pub(crate) bin: Option<PathBuf>,
    /// As whom it runs: makes lines for /etc/cron.d, a service of the system, or a LaunchDaemon
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Units for one's own systemd or for the system's [default: the system's for root and with --user]
    #[arg(long, value_name = "WHOSE")]
    pub(crate) scope: Option<Scope>,
    /// The container image, for Kubernetes
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Write the units into this folder, one file each, instead of printing them
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Replace files that are there
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

/// Other people's schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Cron,
    Systemd,
    Github,
    K8s,
    Launchd,
}

/// Whose systemd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    User,
    System,
}

/// A file that somebody installs.
#[derive(Debug)]
struct Unit {
    file: String,
    text: String,
}

/// A job, as a scheduler needs to know it.
#[derive(Debug)]
struct Job {
    name: String,
    schedule: Schedule,
    /// Its zone, as it was written.
    tz: Option<String>,
    zone: Option<TimeZone>,
    max_late: Option<Duration>,
    policy: Policy,
    /// The variables that it takes from where Semel is started.
    variables: BTreeSet<String>,
}

/// What all units are made from.
#[derive(Debug)]
struct Site<'a> {
    args: &'a InitArgs,
    bin: String,
    config: String,
    folder: String,
    jobs: Vec<Job>,
    /// Jobs that nothing fires, and why.
    without: Vec<(String, &'static str)>,
    /// The file does not say where the ledger is.
    no_store: bool,
    /// The machine's own zone.
    here: TimeZone,
    now: Timestamp,
    until: Timestamp,
}

/// Units, and the jobs that have none, each with the reason.
#[derive(Debug, Default)]
struct Made {
    units: Vec<Unit>,
    untold: Vec<String>,
}

pub(crate) fn run(common: &Common, args: &InitArgs, around: &Surroundings) -> Result<u8, Trouble> {
    check_flags(args)?;
    let Some(config) = around.config(common)? else {
        return Err(Trouble::config(format!("there are no jobs: {}", around.places(common).words())));
    };
    let site = site(args, config, around)?;
    let made = match args.kind {
        Kind::Cron => cron::units(&site),
        Kind::Systemd => systemd::units(&site)?,
        Kind::Github => github::units(&site)?,
        Kind::K8s => k8s::units(&site),
        Kind::Launchd => launchd::units(&site),
    };
    match &args.output {
        Some(folder) => write(folder, &made.units, args.force)?,
        None => print(&joined(args.kind, &made.units)),
    }
    match Trouble::config_all(made.untold) {
        Some(trouble) => Err(trouble),
        None => Ok(0),
    }
}

fn check_flags(args: &InitArgs) -> Result<(), Trouble> {
    let only =
        |flag: &str, kinds: &str| Err(Trouble::config(format!("{flag} goes with {kinds}: leave it out")));
    let machine = matches!(args.kind, Kind::Cron | Kind::Systemd | Kind::Launchd);
    if args.user.is_some() && !machine {
        return only("--user", "cron, systemd and launchd");
    }
    if args.scope.is_some() && args.kind != Kind::Systemd {
        return only("--scope", "systemd");
    }
    if args.image.is_some() && args.kind != Kind::K8s {
        return only("--image", "k8s");
    }
    if args.scope == Some(Scope::User) && args.user.is_some() {
        return Err(Trouble::config(
            "--user is for units of the system: leave it out, or say --scope system",
        ));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match &args.user {
        Some(user) if user.is_empty() || user.starts_with('-') || !user.chars().all(plain) => {
            Err(Trouble::config(format!("--user {user:?} is no name of a user")))
        }
        _ => Ok(()),
    }
}

fn site<'a>(args: &'a InitArgs, config: &Config, around: &Surroundings) -> Result<Site<'a>, Trouble> {
    let bin = match &args.bin {
        Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
        None => std::env::current_exe().ok().filter(|path| path.is_file()).ok_or_else(|| {
            Trouble::config("this program's own file is gone: say which to start with --bin PATH")
        })?,
    };
    let names: Vec<String> = match args.jobs.as_slice() {
        [] => config.jobs.iter().map(|job| job.name.clone()).collect(),
        named => named.to_vec(),
    };
    let (mut jobs, mut without) = (Vec::new(), Vec::new());
    for name in names {
        let run = config.job(&name, &RunArgs::default())?;
        let Some(slot::Terms { schedule, max_late, .. }) = slot::schedule(&run.what)? else {
            without.push((name, why_not(&run)));
            continue;
        };
        let references = run.place.env.iter().filter_map(|(_, reference)| match reference {
            Reference::Variable(name) => Some(name.clone()),
            Reference::Plain(_) => None,
        });
        // the ledger, lanes and pings
        let variables = references.chain(config.variables().map(str::to_owned)).collect();
        let (policy, _) = policy(&run.policy)?;
        let max_late = max_late.map(|(_, ms)| Duration::from_millis(ms));
        let tz = run.what.tz.clone();
        let zone = tz.as_deref().map(|tz| slot::named(tz, around)).transpose()?;
        jobs.push(Job { name, schedule, tz, zone, max_late, policy, variables });
    }
    if jobs.is_empty() {
        let which = if args.jobs.is_empty() { "no job of it" } else { "none of these jobs" };
        return Err(Trouble::config(format!(
            "{}: {which} has a schedule; write every = \"day\", for example",
            config.path.display()
        )));
    }
    let now = around.now()?;
    Ok(Site {
        args,
        bin: plain_path(&bin)?,
        config: plain_path(&config.path)?,
        folder: plain_path(config.folder())?,
        jobs,
        without,
        no_store: config.store.is_none(),
        here: slot::system(around)?,
        now,
        until: now.checked_add(AHEAD).unwrap_or(Timestamp::MAX),
    })
}

fn why_not(run: &RunArgs) -> &'static str {
    match () {
        () if run.what.once => "it is done once, for ever: run it by hand",
        () if run.what.always => "it is run every time it is fired: only you know how often that is",
        () => "it has no every: write one, or run it by hand",
    }
}

/// A path that a file of lines can hold.
fn plain_path(path: &Path) -> Result<String, Trouble> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    text.map(str::to_owned).ok_or_else(|| {
        Trouble::config(format!(
            "{}: a unit cannot hold this path: use one of plain characters",
            path.display()
        ))
    })
}

impl Job {
    fn wish(&self) -> Wish<'_> {
        Wish { schedule: &self.schedule, job: &self.name, max_late: self.max_late }
    }

    /// Its zone; `other` where none was written.
    fn zone(&self, other: &TimeZone) -> TimeZone {
        self.zone.clone().unwrap_or_else(|| other.clone())
    }

    /// How long Semel may take to stop its command, and then some.
    fn stop_seconds(&self) -> u64 {
        self.policy.kill_after_ms.div_ceil(1000) + 20
    }

    /// What to say of a job that cannot be told.
    fn untold(&self, why: impl std::fmt::Display) -> String {
        format!("{}: every = {:?} {why}", self.name, self.schedule.as_str())
    }
}

impl Site<'_> {
    fn clocks<'a>(&self, job: &'a TimeZone, fires: &'a TimeZone, leaves_out: bool) -> Clocks<'a> {
        Clocks { job, fires, from: self.now, until: self.until, leaves_out }
    }

    /// The words that are run.
    fn words<'a>(&'a self, job: &'a Job) -> [&'a str; 5] {
        [&self.bin, "run", &job.name, "--config", &self.config]
    }

    /// Jobs that nothing fires, each in a line.
    fn without_lines(&self) -> impl Iterator<Item = String> {
        self.without.iter().map(|(name, why)| format!("{name} is not here: {why}"))
    }
}

/// A word for a shell.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A text as JSON and YAML have it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn joined(kind: Kind, units: &[Unit]) -> String {
    let between = match kind {
        Kind::K8s | Kind::Github => "---\n",
        Kind::Cron | Kind::Systemd | Kind::Launchd => "\n",
    };
    let texts: Vec<&str> = units.iter().map(|unit| unit.text.as_str()).collect();
    texts.join(between).trim_end().to_owned()
}

/// All of them, or none if one is there already.
fn write(folder: &Path, units: &[Unit], force: bool) -> Result<(), Trouble> {
    let wrong =
        |path: &Path, why: std::io::Error| Trouble::config(format!("--output {}: {why}", path.display()));
    std::fs::create_dir_all(folder).map_err(|why| wrong(folder, why))?;
    let there = units.iter().map(|unit| folder.join(&unit.file)).find(|path| path.symlink_metadata().is_ok());
    if let (Some(path), false) = (there, force) {
        return Err(Trouble::config(format!(
            "{} is there already: say --force to replace it",
            path.display()
        )));
    }
    for unit in units {
        let path = folder.join(&unit.file);
        // beside it, so that a scheduler that watches the folder never reads half of it
        let new = folder.join(format!(".{}.new", unit.file));
        let _ = std::fs::remove_file(&new);
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new);
        let written = file.and_then(|mut file| file.write_all(unit.text.as_bytes()));
        written.and_then(|()| std::fs::rename(&new, &path)).map_err(|why| wrong(&path, why))?;
    }
    Ok(())
}
