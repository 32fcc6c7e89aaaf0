//! Arguments, as typed. Nothing is resolved here: that is `plan`'s.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::batch::args::BatchArgs;
use crate::commands::advise::AdviseArgs;
use crate::commands::backfill::BackfillArgs;
use crate::commands::chaos::ChaosArgs;
use crate::commands::check::CheckArgs;
use crate::commands::commit_trailer::CommitTrailerArgs;
use crate::commands::config::ConfigCommand;
use crate::commands::doctor::DoctorArgs;
use crate::commands::fence::FenceCommand;
use crate::commands::gate::GateArgs;
use crate::commands::init::InitArgs;
use crate::commands::plan::PlanCommandArgs;
use crate::commands::push::PushArgs;
use crate::commands::retry::RetryArgs;
use crate::commands::step::StepArgs;
use crate::commands::store::StoreCommand;
use crate::commands::torture::TortureCommand;
use crate::commands::write::WriteArgs;
use crate::config::Place;
use crate::notify::NotifyArgs;
use crate::planner::PlanArgs;

/// Make unattended work safe to fire twice, to crash anywhere and to retry.
#[derive(Debug, Parser)]
#[command(name = "semel", version, about, max_term_width = 100, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: the command's own; 0 done or rightly skipped; 11/12 lease held/lost; 65 wrong input; \
69 store unreachable; 75 lease lost, busy or too late; 77 stale token: nothing was written; 78 wrong configuration; 79 a person is needed; \
124 timeout; 126/127 cannot execute/not found; 128+n ended by signal n."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Where the ledger is: sqlite:PATH, dir:PATH, postgres://, redis://, etcd://, nats://, s3://, gs://, az:// [default: what semel.toml says, else under the XDG state directory]
    #[arg(long, global = true, value_name = "URL", help_heading = "Everywhere")]
    pub(crate) store: Option<String>,
    /// The file with the jobs [default: semel.toml here or in a folder above, else in the XDG config directory]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON object per outcome
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
    /// Say what happens, on stderr
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(crate) verbose: bool,
}

/// One command alone: what stands in crontabs and in scripts is parsed without making the parsers of all others.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Alone<T: Args> {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    args: T,
}

/// Whatever is wrong is said by the whole parser, with its own usage.
fn alone<T: Args>(words: &[OsString], command: fn(T) -> Command) -> Option<Cli> {
    let Alone { common, args } = Alone::try_parse_from(words.get(2..)?).ok()?;
    Some(Cli { common, command: command(args) })
}

impl Cli {
    /// What was typed.
    pub(crate) fn read(words: Vec<OsString>) -> Result<Cli, clap::Error> {
        let read = match words.get(1).and_then(|word| word.to_str()) {
            Some("run") => alone(&words, Command::Run),
            Some("step") => alone(&words, Command::Step),
            Some("gate") => alone(&words, Command::Gate),
            Some("write") => alone(&words, Command::Write),
            Some("push") => alone(&words, Command::Push),
            Some("plan") => alone(&words, Command::Plan),
            _ => None,
        };
        read.map_or_else(|| Cli::try_parse_from(words), Ok)
    }
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // one per process
pub(crate) enum Command {
    /// Run a command once for this work: never overlapping, never again once done
    Run(RunArgs),
    /// Run the slots of a job between two times that are not done, oldest first
    Backfill(BackfillArgs),
    /// Run a command for every item of a file or a stream, each once, however often it is killed and started again
    Batch(BatchArgs),
    /// Inside a run: do one effect of it once, and replay its output on a retry
    Step(StepArgs),
    /// Check with the store that this run still holds its lease, then execute a command at once
    Gate(GateArgs),
    /// Replace a file from stdin, atomically, unless the token is stale (77)
    Write(WriteArgs),
    /// Push to git, atomically, unless the token is stale (77)
    Push(PushArgs),
    /// Inside a run: what was decided for it; outside: what would be
    Plan(PlanCommandArgs),
    /// Print the trailer by which a pushed commit is known to be this run's
    CommitTrailer(CommitTrailerArgs),
    /// The fences of write targets: look at them, set them, print those for SQL
    #[command(subcommand)]
    Fence(FenceCommand),
    /// Leases without a ledger, for scripts
    #[command(subcommand)]
    Lease(LeaseCommand),
    /// The jobs of semel.toml, and how each stands
    Jobs,
    /// Check semel.toml, or print its schema
    #[command(subcommand)]
    Config(ConfigCommand),
    /// What should be done and is not, what needs a person, who could not be told: exit 1; silent when all is well
    Check(CheckArgs),
    /// Print units that fire the jobs of semel.toml on their schedules: for cron, systemd, GitHub, Kubernetes, launchd
    Init(InitArgs),
    /// What is running, what needs a person, what went wrong last
    Status,
    /// List entries of the ledger
    Ls(LsArgs),
    /// Everything the ledger knows about a key
    Show(KeyArgs),
    /// What happened to a key, in plain words, and what the next run would do
    Why(KeyArgs),
    /// What became of a job, newest first
    History(HistoryArgs),
    /// Which ttl, timeout and grace fit what was measured of a job, and why
    Advise(AdviseArgs),
    /// A person's verdict on an entry
    Resolve(ResolveArgs),
    /// Let everything of a job run again that failed or is quarantined
    Retry(RetryArgs),
    /// Remove what is past its time, and tidy the store
    Gc(GcArgs),
    /// Check the store and this machine, and say what is wrong and how to mend it
    Doctor(DoctorArgs),
    /// Carry a ledger to another store, or print what one needs
    #[command(subcommand)]
    Store(StoreCommand),
    /// See it work: real processes, really killed, with and without Semel
    Demo(DemoArgs),
    /// Prove on your own remote that a stale push is refused, and count duplicates with and without the fence
    #[command(subcommand)]
    Torture(TortureCommand),
    /// Really run your own command under crashes at every boundary, in a scratch store, and tell what would double
    Chaos(ChaosArgs),
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

/// `semel run`
#[derive(Clone, Debug, Default, Args)]
#[command(
    override_usage = "semel run JOB [OPTIONS]\n       semel run --job NAME <--every SCHEDULE|--slot ID|--with K=V|--key K|--once|--always> [OPTIONS] -- CMD..."
)]
pub(crate) struct RunArgs {
    /// A job of semel.toml; flags go before what it says there
    #[arg(value_name = "JOB", conflicts_with = "job")]
    pub(crate) named: Option<String>,
    /// The job's name
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    #[command(flatten)]
    pub(crate) what: WhatArgs,
    /// What must not be touched by two runs at once [default: the job's name]
    #[arg(long, value_name = "NAME", help_heading = "Resources")]
    pub(crate) resource: Option<String>,
    /// Another resource to take if the first is busy; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Resources")]
    pub(crate) or: Vec<String>,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    #[command(flatten)]
    pub(crate) notify: NotifyArgs,
    /// A file whose content belongs to the key: the same key with another payload is refused (65)
    #[arg(long, value_name = "FILE", help_heading = "Payload")]
    pub(crate) payload: Option<PathBuf>,
    /// A JSON pointer into the payload that may differ; may be repeated
    #[arg(long, value_name = "POINTER", help_heading = "Payload")]
    pub(crate) volatile: Vec<String>,
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
    /// Replace {plan.NAME}, {with.NAME}, {slot}, {job} and {key} in the command's arguments; {{ and }} are braces
    #[arg(long, help_heading = "Plan (made once, the same for every attempt)")]
    pub(crate) fill: bool,
    /// Claim nothing and record nothing: run the command, while its steps, gates, writes and pushes only say what they
    /// would do
    #[arg(long)]
    pub(crate) rehearse: bool,
    /// Be killed at this place: how semel chaos makes a crash
    #[arg(long, value_name = "PLACE", hide = true)]
    pub(crate) crash_at: Option<String>,
    /// Exit with this code when rightly skipped
    #[arg(long, value_name = "N", help_heading = "Policies", value_parser = code, allow_negative_numbers = true)]
    pub(crate) skip_code: Option<u8>,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    /// What only semel.toml can say.
    #[arg(skip)]
    pub(crate) place: Place,
}

/// What makes two runs the same work.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "What makes two runs the same work (one is needed)")]
pub(crate) struct WhatArgs {
    /// Once per slot of a schedule: day, week, month, hour, an interval such as 15m, or a cron expression such as
    /// "0 2 * * *". The slot is the one that fell due last, however late, often or by hand it is fired
    #[arg(long, value_name = "SCHEDULE")]
    pub(crate) every: Option<String>,
    /// The schedule's time zone, by its IANA name [default: the system's]
    #[arg(long, value_name = "ZONE")]
    pub(crate) tz: Option<String>,
    /// The time that the scheduler had in mind, instead of now: 2026-06-19T02:00:00Z, or the name of a Kubernetes
    /// CronJob's Job
    #[arg(long, value_name = "TIME")]
    pub(crate) scheduled_for: Option<String>,
    /// Do not start a slot that fell due longer ago than this, and say so (75); one that is done is skipped as always
    #[arg(long, value_name = "DUR")]
    pub(crate) max_late: Option<String>,
    /// Slots that were missed: latest (only that is run, however late), none (not once its grace has passed) or
    /// all=DUR (all that fell due within it, oldest first, one at a time, under one lease) [default: latest]
    #[arg(long, value_name = "WHAT")]
    pub(crate) catch_up: Option<String>,
    /// With all=DUR: go on after a slot that failed
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// How long after it fell due a slot is to be done: then it is overdue [default: until the next slot; 1h for a
    /// cron expression]
    #[arg(long, value_name = "DUR")]
    pub(crate) grace: Option<String>,
    /// A scheduled occurrence by its name, for a run by hand or a missed one: each slot is done once
    #[arg(long, value_name = "ID")]
    pub(crate) slot: Option<String>,
    /// A parameter: K=V, or K:=JSON; may be repeated
    #[arg(long, value_name = "K=V")]
    pub(crate) with: Vec<String>,
    /// Your own key
    #[arg(long, value_name = "K")]
    pub(crate) key: Option<String>,
    /// Once, for ever
    #[arg(long)]
    pub(crate) once: bool,
    /// Every time: guard against overlap only
    #[arg(long)]
    pub(crate) always: bool,
}

impl WhatArgs {
    /// Something that is not for ever and not every time.
    pub(crate) fn is_more(&self) -> bool {
        self.every.is_some() || self.slot.is_some() || !self.with.is_empty() || self.key.is_some()
    }

    /// Anything.
    pub(crate) fn is_said(&self) -> bool {
        self.once || self.always || self.is_more()
    }
}

/// The policies of a run.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Policies")]
pub(crate) struct PolicyArgs {
    /// Lease lifetime; renewed every third of it [default: 60s]
    #[arg(long, value_name = "DUR")]
    pub(crate) ttl: Option<String>,
    /// Longest run; then TERM, grace, KILL; exit 124
    #[arg(long, value_name = "DUR")]
    pub(crate) timeout: Option<String>,
    /// Between TERM and KILL [default: 10s, less for a short ttl]
    #[arg(long, value_name = "DUR")]
    pub(crate) kill_after: Option<String>,
    /// Keep the lease that long even if the command was quick
    #[arg(long, value_name = "DUR")]
    pub(crate) hold_at_least: Option<String>,
    /// After another's lapse, wait that long before taking over
    #[arg(long, value_name = "DUR")]
    pub(crate) lock_delay: Option<String>,
    /// skip, wait=DUR or fail [default: skip]
    #[arg(long, value_name = "WHAT")]
    pub(crate) if_busy: Option<String>,
    /// The last attempt vanished: retry, hold or probe [default: retry; probe if --probe is given]
    #[arg(long, value_name = "WHAT")]
    pub(crate) on_lost: Option<OnLostArg>,
    /// A command that tells whether it happened: exit 0 yes, 1 no, else in doubt
    #[arg(long, value_name = "CMD")]
    pub(crate) probe: Option<OsString>,
    /// Longest probe [default: 30s]
    #[arg(long, value_name = "DUR")]
    pub(crate) probe_timeout: Option<String>,
    /// Failures in a row before quarantine; 0 for none [default: 3]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub(crate) max_failures: Option<u32>,
    /// More tries inside this invocation [default: 0]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub(crate) retries: Option<u32>,
    /// Pause before the first of them, doubled each time, with jitter [default: 1s]
    #[arg(long, value_name = "DUR")]
    pub(crate) backoff: Option<String>,
    /// How long attempts and the journal are kept [default: 30d]
    #[arg(long, value_name = "DUR")]
    pub(crate) keep: Option<String>,
    /// How long the mark "done" is kept [default: for ever]
    #[arg(long, value_name = "DUR")]
    pub(crate) remember: Option<String>,
}

/// A number from 0; said in words that people use.
fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("write a number from 0 to {}", u32::MAX))
}

/// An exit code.
fn code(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| "write an exit code from 0 to 255".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLostArg {
    Retry,
    Hold,
    Probe,
}

/// `semel lease`
#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // one per process
pub(crate) enum LeaseCommand {
    /// Acquire a lease and print its token; 11 if it is held
    Acquire {
        /// Of what
        resource: String,
        /// Lease lifetime [default: 60s]
        #[arg(long, value_name = "DUR")]
        ttl: Option<String>,
        /// After another's lapse, wait that long before taking over
        #[arg(long, value_name = "DUR")]
        lock_delay: Option<String>,
        /// Bind it to this process: when it is gone, so is the lease
        #[arg(long, value_name = "PID")]
        pid: Option<i32>,
    },
    /// Restart a lease's clock; 12 if it is lost
    Renew {
        /// Of what
        resource: String,
        /// The token that acquire printed
        #[arg(long, value_name = "N")]
        token: String,
    },
    /// Give a lease back; 12 if it is lost
    Release {
        /// Of what
        resource: String,
        /// The token that acquire printed
        #[arg(long, value_name = "N")]
        token: String,
    },
    /// Who holds it, since when, until when
    Show {
        /// Of what
        resource: String,
    },
    /// Run a command while holding a lease: flock for a fleet; nests
    Hold {
        /// Of what
        resource: String,
        /// Another resource to take if the first is busy; may be repeated
        #[arg(long, value_name = "NAME")]
        or: Vec<String>,
        /// Lease lifetime; renewed every third of it [default: 60s]
        #[arg(long, value_name = "DUR")]
        ttl: Option<String>,
        /// Longest run; then TERM, grace, KILL; exit 124
        #[arg(long, value_name = "DUR")]
        timeout: Option<String>,
        /// Between TERM and KILL
        #[arg(long, value_name = "DUR")]
        kill_after: Option<String>,
        /// Keep the lease that long even if the command was quick
        #[arg(long, value_name = "DUR")]
        hold_at_least: Option<String>,
        /// After another's lapse, wait that long before taking over
        #[arg(long, value_name = "DUR")]
        lock_delay: Option<String>,
        /// skip, wait=DUR or fail [default: fail]
        #[arg(long, value_name = "WHAT")]
        if_busy: Option<String>,
        /// The command and its arguments
        #[arg(last = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
}

/// `semel show`, `semel why`
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The readable form (publish@2026-06-19), a key, or the first 8 or more digits of one
    pub(crate) key: String,
}

/// `semel ls`
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only this job
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
    /// Only entries in this state
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<StateArg>,
    /// Only entries that need a person
    #[arg(long)]
    pub(crate) needs_me: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum StateArg {
    Open,
    Running,
    Lost,
    Done,
    Failed,
    Missed,
    Quarantined,
    #[value(alias = "in-doubt")]
    InDoubt,
}

/// `semel history`
#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// The job
    pub(crate) job: String,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Only the calendar of its slots
    #[arg(long, conflicts_with = "list")]
    pub(crate) grid: bool,
    /// Only the list of its attempts [default: on a terminal both, else the list]
    #[arg(long)]
    pub(crate) list: bool,
}

/// `semel resolve`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("verdict").required(true))]
pub(crate) struct ResolveArgs {
    /// The readable form (publish@2026-06-19), a key, or the first 8 or more digits of one
    pub(crate) key: String,
    /// It happened
    #[arg(long, group = "verdict")]
    pub(crate) done: bool,
    /// It did not happen: the next run does it
    #[arg(long, group = "verdict")]
    pub(crate) not_done: bool,
    /// Whatever happened, the next run does it again
    #[arg(long, group = "verdict")]
    pub(crate) retry: bool,
    /// Why, for those who read it later
    #[arg(long, value_name = "TEXT")]
    pub(crate) because: String,
    /// The result to record, as JSON, with --done
    #[arg(long, value_name = "JSON", requires = "done")]
    pub(crate) result: Option<String>,
}

/// `semel gc`
#[derive(Debug, Args)]
pub(crate) struct GcArgs {
    /// Say what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Copy the ledger to this file first, through SQLite's own backup
    #[arg(long, value_name = "FILE")]
    pub(crate) backup: Option<PathBuf>,
}

/// `semel demo`
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Which moments to kill at
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
}
