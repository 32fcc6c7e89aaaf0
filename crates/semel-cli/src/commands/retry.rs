//! `semel retry JOB --failed|--quarantined`: a person's verdict on many entries at once, the same for each: whatever
//! happened, the next run does it again.
//!
//! As many as the store takes are judged in one write, each only while it is still what it was when it was listed: what
//! somebody has taken up or done in the meantime is left alone. Steps are not touched: they have their own `semel resolve`.

use clap::Args;
use semel::engine::Engine;
use semel::engine::ledger::Listed;
use semel::engine::verdict::Saying;
use semel_core::entry::{Say, State};
use semel_core::name::Name;
use semel_core::story::Condition;
use serde_json::json;

use super::find::ledger;
use super::ls::Unreadable;
use crate::args::Common;
use crate::out::{Voice, print, print_json};
use crate::plan::{self, Surroundings, name};
use crate::runtime;
use crate::table::clean;
use crate::trouble::Trouble;

/// `semel retry`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub(crate) struct RetryArgs {
    /// The job
    pub(crate) job: String,
    /// What failed and is not quarantined: its failures are counted from nought again
    #[arg(long, group = "which")]
    pub(crate) failed: bool,
    /// What is quarantined
    #[arg(long, group = "which")]
    pub(crate) quarantined: bool,
    /// Why, for those who read it later
    #[arg(long, value_name = "TEXT")]
    pub(crate) because: Option<String>,
    /// Say what would run again, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Default)]
struct Counts {
    failed: u64,
    quarantined: u64,
    /// Somebody was quicker.
    gone_on: u64,
}

pub(crate) fn run(common: &Common, args: &RetryArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let job = name("the job", &args.job)?;
    let because = match &args.because {
        Some(text) => plan::because(text)?.to_owned(),
        None => format!("semel retry {job}"),
    };
    let saying = Saying { said: Say::Retry, by: around.person(), because, result: None };
    let engine = ledger(common, around)?;
    let voice = Voice::new(common);
    let (counts, unreadable) = runtime()?.block_on(judge_all(common, args, &engine, &job, &saying))?;
    unreadable.say(voice);
    tell(common, args, &job, &counts);
    Ok(0)
}

async fn judge_all(
    common: &Common,
    args: &RetryArgs,
    engine: &Engine,
    job: &Name,
    saying: &Saying,
) -> Result<(Counts, Unreadable), Trouble> {
    let (mut counts, mut unreadable, mut from) = (Counts::default(), Unreadable::default(), None);
    loop {
        let page = engine.page(Some(job), from.as_ref()).await?;
        let meant: Vec<&Listed> = page.entries.iter().filter(|listed| is_meant(args, listed)).collect();
        judge(common, args, engine, &meant, saying, &mut counts).await?;
        unreadable.count += page.unreadable.len() as u64;
        unreadable.first = unreadable.first.or_else(|| page.unreadable.first().map(ToString::to_string));
        from = page.next;
        if from.is_none() {
            return Ok((counts, unreadable));
        }
    }
}

fn is_meant(args: &RetryArgs, listed: &Listed) -> bool {
    let is_wanted = match listed.condition {
        Condition::Failed => args.failed,
        Condition::Quarantined => args.quarantined,
        _ => false,
    };
    is_wanted && listed.seen.value.work.step().is_none()
}

async fn judge(
    common: &Common,
    args: &RetryArgs,
    engine: &Engine,
    listed: &[&Listed],
    saying: &Saying,
    counts: &mut Counts,
) -> Result<(), Trouble> {
    let still = |state: &State| match state {
        State::Failed { .. } => args.failed,
        State::Quarantined => args.quarantined,
        _ => false,
    };
    let seen: Vec<_> = listed.iter().map(|listed| listed.seen.clone()).collect();
    let changed = match args.dry_run {
        true => vec![true; seen.len()],
        false => engine.judge_all(&seen, saying, &still).await?,
    };
    for (listed, is_changed) in listed.iter().zip(changed) {
        count(common, args, listed, is_changed, counts);
    }
    Ok(())
}

fn count(common: &Common, args: &RetryArgs, listed: &Listed, is_changed: bool, counts: &mut Counts) {
    let work = &listed.seen.value.work;
    let is_quarantined = listed.condition == Condition::Quarantined;
    *match (is_changed, is_quarantined) {
        (false, _) => &mut counts.gone_on,
        (true, true) => &mut counts.quarantined,
        (true, false) => &mut counts.failed,
    } += 1;
    if common.json {
        print_json(json!({
            "kind": "retried", "work": work.to_string(), "key": work.key().to_string(),
            "was": listed.condition.word(), "changed": is_changed && !args.dry_run,
        }));
    } else if args.dry_run || common.verbose {
        print(&clean(&format!("{work} {}", listed.condition.word())));
    }
}

fn tell(common: &Common, args: &RetryArgs, job: &Name, counts: &Counts) {
    let Counts { failed, quarantined, gone_on } = counts;
    if common.json {
        print_json(json!({
            "kind": "retry", "job": job, "dry_run": args.dry_run,
            "failed": failed, "quarantined": quarantined, "gone_on": gone_on,
        }));
        return;
    }
    let may = if args.dry_run { "would be let run again" } else { "may run again" };
    let mut line =
        format!("{job}: {} {may} (failed {failed}, quarantined {quarantined})", failed + quarantined);
    if *gone_on > 0 {
        line.push_str(&format!("; {gone_on} went on in the meantime and were left alone"));
    }
    print(&line);
}
