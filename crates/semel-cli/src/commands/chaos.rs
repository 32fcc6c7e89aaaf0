//! `semel chaos`: the user's own command under crashes, in a scratch store, with its effects counted outside.
//!
//! Each round crashes one run at one boundary, then fires it again as a scheduler would, until Semel says that it is
//! finished or that a person is needed. How many effects there are is asked of a command of the user's before and
//! after, and compared with what one undisturbed run leaves. Beside it the same crash without Semel: the command, just
//! started again.
//!
//! The command is real, and so are its effects. The store is not the user's: nothing of it is left.

mod actor;
mod boundary;
mod report;
mod stage;

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use self::boundary::Boundary;
use self::report::{Report, Verdict};
use self::stage::Stage;
use crate::args::{Common, PolicyArgs};
use crate::chance::{self, Chance};
use crate::interrupt;
use crate::out::{Ticker, Voice};
use crate::plan::{self, Surroundings};
use crate::trouble::Trouble;

/// The lease's lifetime where a stall must outlast it, if nobody said another.
const SHORT_TTL: &str = "2s";

/// How often a round that was missed is played again, before the last time.
const MISSES: u32 = 3;

/// `semel chaos`
#[derive(Debug, Args)]
#[command(
    override_usage = "semel chaos [OPTIONS] -- CMD...",
    after_help = "THE COMMAND IS REALLY RUN, with all its effects, many times: how often is said first. Point it at a test account, \
a scratch file, a copy. It is told rounds apart by SEMEL_KEY and CHAOS_ROUND. The ledger is a scratch one.\n\
\n\
Exit codes: 0 nothing doubled and nothing was lost; 1 something doubled, was lost or failed each time it was fired again, and \
the report says where and what helps; 78 wrong usage, a command or a count that fails undisturbed, or a command that is too \
short to be hit; 124 a round did not end; 126/127 cannot execute/not found; \
128+n ended by signal n."
)]
pub(crate) struct ChaosArgs {
    /// A shell command that prints how many effects there are so far, such as 'wc -l < out'; run before and after each
    /// round. Without it only starts of the command are counted
    #[arg(long, value_name = "CMD")]
    count: Option<OsString>,
    /// Crashes at each boundary
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// When, in the middle of the command; the same seed makes the same choices [default: a new one, which is said]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Only this boundary; may be repeated [default: all; those of steps where the command uses steps]
    #[arg(long, value_name = "BOUNDARY")]
    at: Vec<Boundary>,
    /// Leave out the comparison without Semel, and its starts of the command
    #[arg(long)]
    no_plain: bool,
    #[command(flatten)]
    policy: PolicyArgs,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) fn run(common: &Common, args: &ChaosArgs, around: &Surroundings) -> Result<u8, Trouble> {
    check(common, args, around)?;
    let seed = args.seed.map_or_else(chance::seed, Ok).map_err(no_place)?;
    let mut all = Boundary::chosen(&args.at);
    let voice = Voice::new(common);
    let mut stage = Stage::new(args, around).map_err(no_place)?;
    let mut report = Report::new(seed, args);
    report.begin(&voice, &all);
    interrupt::watch();
    if let Some(why) = stage.rehearse()? {
        voice.outcome(|| json!({ "kind": "note", "why": why }));
        if !common.json {
            voice.say(&why);
        }
    }
    let steps = stage.uses_steps()?;
    match all.iter().find(|boundary| boundary.is_of_a_step()) {
        Some(boundary) if !steps => {
            return Err(Trouble::config(format!("--at {boundary}: the command uses no step (semel step)")));
        }
        None if steps && args.at.is_empty() => {
            report.more(&voice, &Boundary::STEPS);
            all.extend(Boundary::STEPS);
        }
        _ => {}
    }
    let mut ticker = Ticker::new(voice);
    let mixed = Chance::new(seed).any();
    for boundary in all {
        report.open(boundary);
        for round in 0..args.rounds {
            ticker.tell(|| format!("{boundary}: round {} of {}", round + 1, args.rounds));
            let mut chance = Chance::new(mixed ^ (u64::from(round) << 8) ^ boundary as u64);
            // not quite to its end: that is another boundary
            let moment = stage.moment(chance.below(900));
            let semel = earlier(moment, |moment| stage.with_semel(boundary, moment).map(Some))?;
            let plain = earlier(moment, |moment| stage.plain(boundary, moment))?;
            if let Some(semel) = semel {
                report.note(semel, plain);
            }
        }
        ticker.end();
        report.close(common, &stage.found());
    }
    report.end(common, &stage.found());
    Ok(report.code())
}

/// Play a round; one whose command had ended before the crash again, with a crash that comes earlier.
fn earlier(
    moment: Duration,
    mut play: impl FnMut(Duration) -> Result<Option<Verdict>, Trouble>,
) -> Result<Option<Verdict>, Trouble> {
    for tries in 0..MISSES {
        match play(moment / 4_u32.pow(tries))? {
            Some(Verdict::Missed) => {}
            verdict => return Ok(verdict),
        }
    }
    play(Duration::ZERO)
}

/// Nothing is started before all of it can be read.
fn check(common: &Common, args: &ChaosArgs, around: &Surroundings) -> Result<(), Trouble> {
    if common.store.is_some() {
        return Err(Trouble::config("semel chaos has a scratch store of its own: leave --store out"));
    }
    if args.policy.if_busy.is_some() {
        return Err(Trouble::config("semel chaos fires again until it is not busy: leave --if-busy out"));
    }
    plan::policy(&args.policy)?;
    plan::policy(&with_short_ttl(&args.policy))?;
    plan::program(&args.command, around).map(|_| ())
}

fn with_short_ttl(policy: &PolicyArgs) -> PolicyArgs {
    PolicyArgs { ttl: policy.ttl.clone().or_else(|| Some(SHORT_TTL.to_owned())), ..policy.clone() }
}

fn no_place(why: std::io::Error) -> Trouble {
    Trouble::config(format!("there is no place for a scratch store: {why}"))
}
