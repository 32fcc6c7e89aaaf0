//! `semel backfill`: the slots of a job between two times that are not done, oldest first, under one lease.

use anstyle::Style;
use clap::Args;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use semel::engine::calendar::SlotState;
use semel_core::calendar::{CATCH_UP_LIMIT, is_owed, was_done};
use semel_core::schedule::Tick;
use serde_json::json;

use super::find::ledger;
use super::row::Row;
use crate::args::{Common, RunArgs};
use crate::out::{Voice, print_json};
use crate::plan::{self, Surroundings};
use crate::slot::Due;
use crate::table::{Table, flexible, line_width, whole};
use crate::trouble::Trouble;
use crate::{exit, runtime};

/// `semel backfill`
#[derive(Debug, Args)]
#[command(
    override_usage = "semel backfill JOB --from TIME [--to TIME] [OPTIONS]\n       semel backfill --job NAME --every SCHEDULE --from TIME [--to TIME] [OPTIONS] -- CMD..."
)]
pub(crate) struct BackfillArgs {
    #[command(flatten)]
    run: RunArgs,
    /// The first slot: a date, as in 2026-06-01, or a moment, as in 2026-06-01T02:00:00Z
    #[arg(long, value_name = "TIME", help_heading = "Which slots")]
    from: String,
    /// The last one; a date is meant with all of it [default: now]
    #[arg(long, value_name = "TIME", help_heading = "Which slots")]
    to: Option<String>,
    /// Say what would be run, and run nothing
    #[arg(long, help_heading = "Which slots")]
    dry_run: bool,
}

pub(crate) fn run(common: &Common, args: &BackfillArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let keep_going = args.run.what.keep_going;
    let mut resolved = plan::with_file(common, &args.run, around)?.into_owned();
    let keep_going = std::mem::take(&mut resolved.what.keep_going) || keep_going;
    resolved.what.max_late = None;
    // which of them are caught up by themselves does not matter here
    resolved.what.catch_up = None;
    let today = plan::run(common, &resolved, around)?;
    let (Some(due), Some(work)) = (&today.due, &today.plan.work) else {
        return Err(Trouble::config(
            "backfill needs a job with a schedule: write every = \"day\" in semel.toml, or say --every SCHEDULE",
        ));
    };
    let ticks = ticks(args, due, around)?;
    let voice = Voice::new(common);
    let engine = if args.dry_run { ledger(common, around)? } else { plan::engine(common, around)? };
    let slots = runtime()?.block_on(engine.slots(work, ticks))?;
    let most = today.plan.policy.max_failures;
    if args.dry_run {
        tell(common, around, &slots, most);
        return Ok(0);
    }
    let (owed, others): (Vec<_>, Vec<_>) =
        slots.into_iter().partition(|slot| is_owed(slot.entry.as_ref(), most));
    let needs_person = others.iter().filter(|slot| !is_done(slot)).count();
    let mut row = Row::new(common, around, &engine, keep_going, None)?;
    let count = owed.len();
    let mut done = Ok(());
    for (nth, slot) in owed.into_iter().enumerate() {
        voice.detail(|| format!("slot {} ({} of {count})", slot.tick.slot, nth + 1));
        let one = plan::run_in(common, &resolved, around, &slot.tick.slot);
        done = one.and_then(|one| row.run(one, nth + 1 < count));
        if done.is_err() {
            break;
        }
        if row.is_over() {
            let left = count - nth - 1;
            if left > 0 {
                voice.say(&format!(
                    "backfill stopped at slot {}: {left} more were not run; mend it and say the same again, or add --keep-going",
                    slot.tick.slot
                ));
            }
            break;
        }
    }
    // also after a trouble: what is kept is given back
    let code = row.end();
    done?;
    if needs_person > 0 {
        voice.say(&format!(
            "{needs_person} of these slots need a person first: list them with: semel ls --needs-me --job {}",
            work.job()
        ));
        return Ok(if code == 0 { exit::PERSON } else { code });
    }
    if count == 0 {
        voice.mention(|| "every one of these slots is done".to_owned());
    }
    Ok(code)
}

/// The ticks that are meant, of those that have come.
fn ticks(args: &BackfillArgs, due: &Due, around: &Surroundings) -> Result<Vec<Tick>, Trouble> {
    let now = around.now()?;
    let from = bound("--from", &args.from, &due.zone, false)?;
    let to = args.to.as_deref().map_or(Ok(now), |text| bound("--to", text, &due.zone, true))?;
    if from > now {
        return Err(Trouble::config(format!(
            "--from {from} lies in the future (it is {now} here): a slot is never run before it is due"
        )));
    }
    if to < from {
        return Err(Trouble::config(format!("--to {to} lies before --from {from}: change them round")));
    }
    let second = SignedDuration::from_secs(1);
    let after = from.checked_sub(second).unwrap_or(from);
    let ticks: Vec<Tick> =
        due.schedule.ticks(&due.zone, after, to.min(now)).take(CATCH_UP_LIMIT + 1).collect();
    match ticks.len() {
        0 => Err(Trouble::input(format!("no slot of {} falls between {from} and {to}", due.schedule))),
        n if n > CATCH_UP_LIMIT => Err(Trouble::input(format!(
            "these are more than {CATCH_UP_LIMIT} slots: say a shorter time, and the rest after it"
        ))),
        _ => Ok(ticks),
    }
}

/// A date in the schedule's zone, or a moment.
fn bound(flag: &str, text: &str, zone: &TimeZone, end: bool) -> Result<Timestamp, Trouble> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    let date = text.parse::<Date>().ok().filter(|_| text.len() == 10);
    let start = |date: Date| date.to_zoned(zone.clone()).ok().map(|start| start.timestamp());
    let moment = date.and_then(|date| match end {
        false => start(date),
        true => start(date.tomorrow().ok()?)?.checked_sub(SignedDuration::from_secs(1)).ok(),
    });
    moment.ok_or_else(|| {
        Trouble::config(format!(
            "{flag} {text:?} is no time: write a date, as in 2026-06-01, or a moment with its offset, as in 2026-06-01T02:00:00Z"
        ))
    })
}

fn is_done(slot: &SlotState) -> bool {
    slot.entry.as_ref().is_some_and(was_done)
}

fn tell(common: &Common, around: &Surroundings, slots: &[SlotState], most: u32) {
    let state = |slot: &SlotState| slot.entry.as_ref().map_or("not on record", |entry| entry.state.word());
    let would = |slot: &SlotState| match is_owed(slot.entry.as_ref(), most) {
        true => "run",
        false if is_done(slot) => "skip",
        false => "ask a person",
    };
    if common.json {
        for slot in slots {
            print_json(json!({
                "kind": "slot", "slot": slot.tick.slot, "due": slot.tick.at.to_string(), "work": slot.work.to_string(),
                "state": slot.entry.as_ref().map(|entry| entry.state.word()), "would": would(slot),
            }));
        }
        return;
    }
    let mut table = Table::new([whole("WOULD"), flexible("WORK", 16), whole("STATE")]);
    let plain = Style::new();
    for slot in slots {
        table.row([
            (would(slot).to_owned(), plain),
            (slot.work.to_string(), plain),
            (state(slot).to_owned(), plain),
        ]);
    }
    table.print(line_width(around));
}
