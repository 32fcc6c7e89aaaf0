//! Arguments of `semel batch`, as typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::input::Format;
use crate::args::PolicyArgs;
use crate::config::Place;
use crate::notify::NotifyArgs;

/// `semel batch`
#[derive(Clone, Debug, Default, Args)]
#[command(
    override_usage = "semel batch [FILE|-] --job NAME --key FIELDS [OPTIONS] -- CMD {field}...\n       semel batch NAME [OPTIONS]"
)]
pub(crate) struct BatchArgs {
    /// The items; - is stdin [default: -]; without --job the name of a batch of semel.toml
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The job's name
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    /// The fields by which an item is known, separated by commas: site,slug; author.name or /author/name for nested ones
    #[arg(long, value_name = "FIELDS")]
    pub(crate) key: Vec<String>,
    /// So many items at once [default: 1]
    #[arg(short, long, value_name = "N")]
    pub(crate) jobs: Option<String>,
    /// Share the items with every other start of the same batch that says so too, on this or other machines
    #[arg(long)]
    pub(crate) share: bool,
    /// What must not be touched by two batches at once [default: the job's name]; {field} in it: by two items at once
    #[arg(long, value_name = "NAME", help_heading = "Resources")]
    pub(crate) resource: Option<String>,
    #[command(flatten)]
    pub(crate) what: BatchWhatArgs,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Stop after so many failures in a row [default: never]
    #[arg(long, value_name = "N", help_heading = "Policies")]
    pub(crate) stop_after: Option<String>,
    /// With --stop-after: do not stop, but wait that long and try one item; if that is done, go on
    #[arg(long, value_name = "DUR", help_heading = "Policies")]
    pub(crate) pause: Option<String>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) notify: NotifyArgs,
    /// Give the command its item on stdin
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Write the items that failed to this file, as input for another batch
    #[arg(long, value_name = "FILE")]
    pub(crate) failed_to: Option<PathBuf>,
    /// Say what would run and why, item by item, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take over what a joblog of GNU parallel says is done
    #[arg(long, value_name = "FILE")]
    pub(crate) import_joblog: Option<PathBuf>,
    /// Exit with this code when rightly skipped
    #[arg(long, value_name = "N", help_heading = "Policies")]
    pub(crate) skip_code: Option<u8>,
    /// The command and its arguments; {field} is replaced, {{ and }} are braces
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[arg(skip)]
    pub(crate) place: Place,
}

/// How items are read.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Input")]
pub(crate) struct InputArgs {
    /// How items are written [default: by the file's extension, else jsonl if the input starts with {, else lines]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// What is between the columns of CSV: one sign, or tab [default: ,]
    #[arg(long, value_name = "SIGN")]
    pub(crate) delimiter: Option<String>,
    /// What a line is called [default: line]
    #[arg(long, value_name = "NAME")]
    pub(crate) field: Option<String>,
    /// A JSON pointer to a field that may differ between two items with the same key; may be repeated
    #[arg(long, value_name = "POINTER")]
    pub(crate) volatile: Vec<String>,
}

/// What makes two batches the same, besides their job: each item is done once in each.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What makes two batches the same work (none: for ever)")]
pub(crate) struct BatchWhatArgs {
    /// Once per slot of a schedule: day, week, month, hour, an interval such as 15m, or a cron expression
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) every: Option<String>,
    /// The schedule's time zone, by its IANA name [default: the system's]
    #[arg(long, value_name = "ZONE")]
    pub(crate) tz: Option<String>,
    /// The time that the scheduler had in mind, instead of now
    #[arg(long, value_name = "TIME")]
    pub(crate) scheduled_for: Option<String>,
    /// Do not start a slot that fell due longer ago than this, and say so (75)
    #[arg(long, value_name = "DUR")]
    pub(crate) max_late: Option<String>,
    /// A scheduled occurrence by its name
    #[arg(long, value_name = "ID")]
    pub(crate) slot: Option<String>,
    /// A parameter: K=V, or K:=JSON; may be repeated
    #[arg(long, value_name = "K=V")]
    pub(crate) with: Vec<String>,
}
