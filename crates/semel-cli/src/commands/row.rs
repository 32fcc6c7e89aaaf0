//! Several slots of a job in a row: oldest first, one at a time, under one lease.

use semel::engine::{Caught, Engine, Event, Kept, MissedSlot, Report, RunPlan, Signals};
use semel_core::calendar::Reason;
use semel_core::name::Slot;
use semel_core::record::RecordKey;
use tokio::runtime::Runtime;

use super::run::{shell_quote, speak, speak_late, summarize, tell, waits_for_itself};
use crate::args::Common;
use crate::away::Away;
use crate::notify::{Lane, Pings, send};
use crate::out::Voice;
use crate::plan::{self, Surroundings};
use crate::task::{CommandTask, ProcessSignals};
use crate::trouble::Trouble;
use crate::{exit, runtime};

/// Runs that follow each other.
pub(crate) struct Row<'a> {
    common: &'a Common,
    around: &'a Surroundings,
    engine: &'a Engine,
    away: Option<&'a Away>,
    voice: Voice,
    runtime: &'static Runtime,
    signals: Heard,
    keep_going: bool,
    /// The lease that the last one left for the next.
    kept: Option<Kept>,
    /// The alarm in which something is to be told, and on which lanes.
    notices: Option<(RecordKey, Vec<Lane>)>,
    /// The code of the first that was not well.
    code: u8,
    /// Why nothing follows.
    over: Option<Reason>,
}

/// The signals of this process. One that asked a work to end asks the row to end, also where that work took it for no
/// reason to fail: whoever is next hears it again, and does not begin.
struct Heard {
    signals: ProcessSignals,
    again: Option<Caught>,
}

impl Signals for Heard {
    async fn next(&mut self) -> Caught {
        let caught = self.signals.next().await;
        self.again = Some(caught);
        caught
    }
}

/// Those of the next work: what the one before heard comes first.
struct HeardBefore<'a>(Option<Caught>, &'a mut Heard);

impl Signals for HeardBefore<'_> {
    async fn next(&mut self) -> Caught {
        match self.0.take() {
            Some(caught) => caught,
            None => self.1.next().await,
        }
    }
}

/// Does a row go on after this?
enum Then {
    GoOn,
    /// Only if it was told to.
    Failed,
    Stop,
}

fn then(report: &Report) -> Then {
    match report {
        Report::AlreadyDone(_) => Then::GoOn,
        Report::Ran { ran, .. } if ran.ending.is_success() => Then::GoOn,
        Report::Ran { ran, .. } | Report::NeedsPerson { ran: Some(ran), .. } => match ran.ending.is_failure()
        {
            true => Then::Failed,
            false => Then::Stop,
        },
        Report::NeedsPerson { ran: None, .. }
        | Report::Blocked { .. }
        | Report::Mismatch { .. }
        | Report::NoPlan(_)
        | Report::TooLate => Then::Failed,
        Report::Yielded(_)
        | Report::Busy(_)
        | Report::LeaseLost { .. }
        | Report::Unrecorded { .. }
        | Report::StoreDown(_)
        | Report::Interrupted(_)
        | Report::Unusable(_) => Then::Stop,
    }
}

/// Why what follows in a row is not run.
fn reason(report: &Report) -> Reason {
    match report {
        Report::Yielded(_) | Report::Busy(_) => Reason::Busy,
        Report::StoreDown(_) => Reason::StoreDown,
        _ => Reason::Refused,
    }
}

impl<'a> Row<'a> {
    pub(crate) fn new(
        common: &'a Common,
        around: &'a Surroundings,
        engine: &'a Engine,
        keep_going: bool,
        away: Option<&'a Away>,
    ) -> Result<Row<'a>, Trouble> {
        let runtime = runtime()?;
        let signals = {
            let _inside = runtime.enter();
            semel_supervise::Signals::install()
        };
        let signals = signals.map_err(|why| Trouble::config(format!("cannot watch for signals: {why}")))?;
        Ok(Row {
            common,
            around,
            engine,
            away,
            voice: Voice::new(common),
            runtime,
            signals: Heard { signals: ProcessSignals(signals), again: None },
            keep_going,
            kept: None,
            notices: None,
            code: 0,
            over: None,
        })
    }

    /// The slots before the one of this plan that are owed, oldest first. What was missed is on record then.
    pub(crate) fn owed(&mut self, plan: &RunPlan, within_ms: u64) -> Result<Vec<Slot>, Trouble> {
        let (Some(work), Some(scheduled)) = (&plan.work, &plan.scheduled) else { return Ok(Vec::new()) };
        let owed = self.runtime.block_on(async {
            let missed = self.engine.account(plan).await?;
            tell(&self.voice, &Event::Missed(&missed));
            let most = plan.policy.max_failures;
            self.engine.owed(work, &scheduled.occurrence, within_ms, most).await
        })?;
        Ok(owed.into_iter().map(|slot| slot.tick.slot).collect())
    }

    /// Run this one, and say what came of it. With `keep`, another follows under its lease.
    pub(crate) fn run(&mut self, run: plan::Run, keep: bool) -> Result<(), Trouble> {
        let plan::Run { plan, command, probe, skip_code, due, planner, fill, notify } = run;
        notify.broken.iter().for_each(|line| self.voice.say(line));
        let state_dir = plan::private_dir(self.common, self.around)?;
        let voice = self.voice;
        let mut task =
            CommandTask::new(command, probe, self.around, &state_dir, voice).planned(planner, fill);
        let mut pings = Pings::new(notify.ping, &plan);
        let mut notices = false;
        let mut tell = |event: Event<'_>| {
            match event {
                Event::Claimed { .. } => pings.start(),
                Event::Notices => notices = true,
                _ => {}
            }
            tell(&voice, &event);
        };
        let mut signals = HeardBefore(self.signals.again, &mut self.signals);
        let (report, kept) = self.runtime.block_on(self.engine.run_in_row(
            &plan,
            self.kept.take(),
            keep,
            &mut task,
            &mut signals,
            &mut tell,
        ));
        self.kept = kept;
        if let Some(busy) = waits_for_itself(&report, self.around) {
            return Err(Trouble::with_code(
                exit::BUSY,
                format!(
                    "{} not run: the run around it holds {} (token {}), and it would wait for itself; give it another --resource",
                    plan.what, busy.resource, busy.held.token
                ),
            ));
        }
        self.excuse(&plan, &report);
        let code = exit::code(&report, skip_code);
        match (&report, &due) {
            (Report::TooLate, Some(due)) => speak_late(&voice, &plan.what, due, code),
            _ => speak(&voice, &plan.what, &report, code),
        }
        if notify.summary {
            summarize(&voice, &plan.what, &report, code);
        }
        pings.end(&report, voice);
        if let (true, Some(work)) = (notices, &plan.work) {
            self.notices = Some((RecordKey::alarm(work.job()), notify.lanes));
        }
        let then = then(&report);
        let over = match then {
            Then::GoOn => false,
            Then::Failed => !self.keep_going,
            Then::Stop => true,
        };
        if over {
            self.over.get_or_insert(reason(&report));
        }
        // a skip is a success whatever its code: it counts only if it is the last word
        if self.code == 0 && (!keep || !matches!(then, Then::GoOn)) {
            self.code = code;
        }
        Ok(())
    }

    /// What the ledger could not be told.
    fn excuse(&self, plan: &RunPlan, report: &Report) {
        let (Some(away), Some(work), Some(_)) = (self.away, &plan.work, &plan.scheduled) else { return };
        match report {
            Report::StoreDown(why) => away.note(work, Reason::StoreDown, why),
            Report::NoPlan(why) | Report::Unusable(why) => away.note(work, Reason::Refused, why),
            _ => {}
        }
    }

    /// Is there no use in going on?
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// The row ended before it came to this one.
    pub(crate) fn leave_out(&self, plan: &RunPlan) {
        if let (Some(away), Some(work), Some(reason)) = (self.away, &plan.work, self.over) {
            away.note(work, reason, "an earlier slot of the same row was not done");
        }
    }

    /// All have run that will: the lease is given back, what is to be told is told, and this is the code.
    pub(crate) fn end(mut self) -> u8 {
        self.let_go();
        if let Some((key, lanes)) = self.notices.take() {
            let sent = send(self.engine, &key, &lanes, self.around, self.voice);
            if let Err(why) = self.runtime.block_on(sent) {
                self.voice.say(&format!("what is to be told is left for later: {why}"));
            }
        }
        self.code
    }

    fn let_go(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.runtime.block_on(self.engine.let_go(kept));
        }
    }
}

/// A row that breaks off gives its lease back too.
impl Drop for Row<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// The one line that says which slots passed without a run; nothing if none did.
pub(super) fn missed_line(missed: &[MissedSlot]) -> Option<String> {
    let (first, last) = (missed.first()?, missed.last()?);
    let job = first.work.job();
    let reason = match missed.iter().all(|slot| slot.reason == first.reason) {
        true => first.reason.words().to_owned(),
        false => "see semel history".to_owned(),
    };
    let (from, to) = (&first.tick.slot, &last.tick.slot);
    let what = match missed.len() {
        1 => format!("slot {from} of {job} was missed"),
        n => format!("{n} slots of {job} were missed, {from} to {to}"),
    };
    let job = shell_quote(job.as_str());
    Some(format!("{what}: {reason}; to run what is not done: semel backfill {job} --from {from} --to {to}"))
}
