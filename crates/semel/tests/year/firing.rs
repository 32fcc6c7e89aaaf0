//! One firing of a job: what `semel run` does, from the slot that is due to the last slot that is owed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use semel::core::alarm::{self, Event as Said, Kind};
use semel::core::calendar::{self, CatchUp, Reason};
use semel::core::record::RecordKey;
use semel::core::schedule::Tick;
use semel::core::token::Nonce;
use semel::engine::alarm::Telling;
use semel::engine::{Engine, Event, Excuse, Kept, Report, RunPlan, Undisturbed};

use crate::command::{Command, World};
use crate::jobs::{DAY_MS, Job, MINUTE_MS, ms};
use crate::machine::{Machine, Process, Processes};
use crate::rng::Rng;
use crate::store::{Line, Witnessed};
use crate::trace::Firing;

/// A notice as somebody heard it.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) id: Nonce,
    pub(crate) event: Said,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) work: Option<String>,
    pub(crate) has_recovered: bool,
    /// It was told by one who had stood still: others had told it, and more, by then.
    pub(crate) is_stale: bool,
}

/// What all firings share.
pub(crate) struct Stage {
    pub(crate) jobs: Vec<Job>,
    pub(crate) machines: Vec<Arc<Machine>>,
    pub(crate) processes: Arc<Processes>,
    pub(crate) store: Witnessed,
    pub(crate) outages: Arc<Vec<Range<u64>>>,
    pub(crate) world: Arc<Mutex<World>>,
    /// When the first firing comes.
    pub(crate) first_ms: u64,
    /// By job and lane, in the order heard.
    pub(crate) heard: Mutex<BTreeMap<(usize, String), Vec<Heard>>>,
    pub(crate) counts: Mutex<Counts>,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) firings: u64,
    pub(crate) crashes: u64,
    pub(crate) runs: u64,
    pub(crate) yielded: u64,
    pub(crate) leases_lost: u64,
    pub(crate) store_down: u64,
    pub(crate) longest_row: usize,
}

/// Does a row go on after this?
#[derive(PartialEq, Eq)]
enum Then {
    GoOn,
    Stop,
    /// Others are at it, or the store is away.
    Yield,
}

fn then(report: &Report) -> Then {
    match report {
        Report::AlreadyDone(_) => Then::GoOn,
        Report::Ran { ran, .. } if ran.ending.is_success() => Then::GoOn,
        Report::Yielded(_) | Report::StoreDown(_) | Report::LeaseLost { .. } => Then::Yield,
        _ => Then::Stop,
    }
}

/// One process.
struct Invocation<'a> {
    stage: &'a Stage,
    job: &'a Job,
    engine: Engine,
    process: Arc<Process>,
    rng: Rng,
    is_quiet: bool,
    kept: Option<Kept>,
    has_notices: bool,
    /// When it knew what is owed, by its own clock: it may have stood still before.
    asked_ms: u64,
    /// The ticks that were begun, in order.
    begun: Vec<Tick>,
}

impl Stage {
    /// An engine that nothing befalls.
    pub(crate) fn engine(&self) -> Engine {
        let machine = &self.machines[0];
        Engine {
            store: Arc::new(self.store.clone()),
            clock: machine.time.clone(),
            neighbours: Arc::clone(&self.processes) as _,
            me: Process::on(machine).me.clone(),
        }
    }

    fn invocation(
        &self,
        job: usize,
        engine: Engine,
        process: &Arc<Process>,
        rng: Rng,
        is_quiet: bool,
    ) -> Invocation<'_> {
        Invocation {
            stage: self,
            job: &self.jobs[job],
            engine,
            process: Arc::clone(process),
            rng,
            is_quiet,
            kept: None,
            has_notices: false,
            asked_ms: 0,
            begun: Vec::new(),
        }
    }

    /// Tell what waits to be told of a job.
    pub(crate) async fn tell(&self, job: usize) {
        let process = Process::on(&self.machines[0]);
        self.invocation(job, self.engine(), &process, Rng::new(0), true).deliver().await;
    }

    /// Fire it; it may not live to its end. Answers whether all that was owed was seen to, up to the slot that is due.
    pub(crate) async fn fire(&self, firing: &Firing) -> bool {
        let machine = &self.machines[firing.machine];
        let process = Process::on(machine);
        let mut rng = Rng::new(firing.seed);
        let line = Line::new(&self.store, &process, &self.outages, firing.luck.clone(), rng.fork());
        let killed = Arc::clone(&line.killed);
        let engine = Engine {
            store: Arc::new(line),
            clock: machine.clone(),
            neighbours: Arc::clone(&self.processes) as _,
            me: process.me.clone(),
        };
        let mut one = self.invocation(firing.job, engine, &process, rng, firing.is_quiet);
        self.counts.lock().unwrap().firings += 1;
        let cut = async {
            match machine.next_cut() {
                Some(at_ms) => tokio::time::sleep_until(machine.time.at(at_ms)).await,
                None => std::future::pending().await,
            }
        };
        let killed_after = async {
            match firing.killed_after {
                Some(after) => tokio::time::sleep(after).await,
                None => std::future::pending().await,
            }
        };
        let doing = crate::machine::Frozen::new(&process, one.run());
        tokio::select! {
            biased;
            () = killed.notified() => {}
            () = cut => {}
            () = killed_after => {}
            was_heard = doing => return was_heard,
        }
        self.counts.lock().unwrap().crashes += 1;
        false
    }
}

impl Invocation<'_> {
    async fn run(&mut self) -> bool {
        let (plan, tick) = self.job.plan(&self.process.machine);
        let began_ms = semel::clock::Clock::wall_ms(&*self.process.machine);
        let mut goes_on = true;
        if let CatchUp::All { within_ms } = self.job.catch_up {
            let Some(owed) = self.owed(&plan, within_ms).await else { return false };
            for tick in owed {
                goes_on = self.run_one(&self.job.plan_in(tick.slot.clone()), tick, true).await == Then::GoOn;
                if !goes_on {
                    break;
                }
            }
        }
        let (mut was_heard, mut is_whole) = (false, false);
        if goes_on {
            let then = self.run_one(&plan, tick.clone(), false).await;
            (was_heard, is_whole) = (then != Then::Yield, then == Then::GoOn);
        }
        if let Some(kept) = self.kept.take() {
            self.engine.let_go(kept).await;
        }
        self.check_row(began_ms, &tick);
        // a look at many slots takes its time: of the short ones, at some
        let looks = if self.job.period_ms < DAY_MS { 30 } else { 500 };
        if is_whole && self.asked_ms > 0 && self.rng.permille(looks) {
            self.check_window(&tick).await;
        }
        if self.has_notices {
            self.deliver().await;
        }
        was_heard
    }

    async fn owed(&mut self, plan: &RunPlan, within_ms: u64) -> Option<Vec<Tick>> {
        let (work, scheduled) = (plan.work.as_ref()?, plan.scheduled.as_ref()?);
        let missed = self.engine.account(plan).await.ok()?;
        self.has_notices |= !missed.is_empty();
        let most = plan.policy.max_failures;
        let owed = self.engine.owed(work, &scheduled.occurrence, within_ms, most).await.ok()?;
        self.asked_ms = self.engine.clock.wall_ms();
        Some(owed.into_iter().map(|slot| slot.tick).collect())
    }

    async fn run_one(&mut self, plan: &RunPlan, tick: Tick, keep: bool) -> Then {
        let doing = self.job.doing(&mut self.rng, self.is_quiet);
        let what = (self.job.index, tick.clone());
        let mut task = Command::new(&self.stage.world, &self.process, what, doing, self.rng.fork());
        let mut has_notices = false;
        let mut begun = false;
        let mut tell = |event: Event<'_>| {
            has_notices |= matches!(event, Event::Notices);
            begun |= matches!(event, Event::Claimed { .. });
        };
        let kept = self.kept.take();
        let (report, kept) =
            self.engine.run_in_row(plan, kept, keep, &mut task, &mut Undisturbed, &mut tell).await;
        self.kept = kept;
        self.has_notices |= has_notices;
        if begun {
            self.begun.push(tick);
        }
        self.note(plan, &report);
        if matches!(&report, Report::Ran { ran, .. } if ran.ending.is_success()) {
            task.recorded();
        }
        then(&report)
    }

    fn note(&self, plan: &RunPlan, report: &Report) {
        let mut counts = self.stage.counts.lock().unwrap();
        match report {
            Report::Ran { .. } | Report::NeedsPerson { ran: Some(_), .. } => counts.runs += 1,
            Report::Yielded(_) => counts.yielded += 1,
            Report::LeaseLost { .. } => counts.leases_lost += 1,
            Report::StoreDown(why) => {
                counts.store_down += 1;
                if let (Some(work), Some(_)) = (&plan.work, &plan.scheduled) {
                    let excuse =
                        Excuse { work: work.clone(), reason: Reason::StoreDown, detail: why.clone() };
                    let mut excuses = self.process.machine.excuses.lock().unwrap();
                    excuses.push(excuse);
                    let excess = excuses.len().saturating_sub(32);
                    excuses.drain(..excess);
                }
            }
            Report::Unusable(why) => {
                self.stage.world.lock().unwrap().fault(format!("{}: unusable: {why}", plan.what));
            }
            _ => {}
        }
    }

    /// No burst larger than allowed, oldest first.
    fn check_row(&self, began_ms: u64, due: &Tick) {
        let most = match self.job.catch_up {
            CatchUp::Latest | CatchUp::None => 1,
            CatchUp::All { within_ms } => self.job.ticks(began_ms - within_ms - 1, began_ms).len() + 1,
        };
        let fault = |what: String| {
            self.stage.world.lock().unwrap().fault(format!("{} at {}: {what}", self.job.name, due.slot));
        };
        if self.begun.len() > most {
            fault(format!("a burst of {}, where {most} are allowed", self.begun.len()));
        }
        if !self.begun.is_sorted_by(|a, b| a.at < b.at) {
            fault("not oldest first".to_owned());
        }
        if self.begun.last().is_some_and(|last| ms(last.at) > ms(due.at)) {
            fault("a later slot was run".to_owned());
        }
        let mut counts = self.stage.counts.lock().unwrap();
        counts.longest_row = counts.longest_row.max(self.begun.len());
    }

    /// All that could be caught up was: after a row that came to its end, nothing in its reach is owed.
    async fn check_window(&self, due: &Tick) {
        let reach_ms = reach_ms(self.job).saturating_sub(MINUTE_MS);
        let ticks = self.job.ticks(self.asked_ms.saturating_sub(reach_ms), ms(due.at));
        let since = self.stage.first_ms;
        let ticks = ticks.into_iter().filter(|tick| ms(tick.at) > since && tick.at < due.at).collect();
        let engine = self.stage.engine();
        let slots = engine.slots(&self.job.work(due.slot.clone()), ticks).await.unwrap();
        for slot in slots.iter().filter(|slot| !is_settled(self.job, slot.entry.as_ref())) {
            let state = slot.entry.as_ref().map_or("absent", |entry| entry.state.word());
            let fault = format!("{} is {state} after the row of {}", slot.work, due.slot);
            self.stage.world.lock().unwrap().fault(fault);
        }
    }

    /// Tell what is to be told, on lines that fail now and then.
    async fn deliver(&mut self) {
        let key = RecordKey::alarm(&self.job.name);
        let mut failed: Vec<String> = Vec::new();
        for _ in 0..2 * alarm::OUTBOX_LIMIT {
            let Ok(Some(seen)) = self.engine.alarm(&key).await else { return };
            let now_ms = self.engine.clock.wall_ms();
            let due = alarm::due(&seen.value, now_ms);
            let next = due.into_iter().find(|(_, lane)| !failed.iter().any(|one| one == lane));
            let Some((notice, lane)) = next else { return };
            let fails = !self.is_quiet && self.rng.permille(250);
            let telling = if fails {
                failed.push(lane.to_owned());
                Telling::Undelivered { why: "no answer".into(), permanent: false }
            } else {
                self.hear(notice, lane);
                Telling::Delivered
            };
            if self.engine.told(&key, &notice.id, lane, &telling).await.is_err() {
                return;
            }
        }
    }

    fn hear(&self, notice: &alarm::Notice, lane: &str) {
        let kinds = std::iter::once(notice.kind).chain(notice.also.iter().copied()).collect();
        let heard = Heard {
            id: notice.id,
            event: notice.event,
            kinds,
            work: notice.work.clone(),
            has_recovered: notice.recovered_ms.is_some(),
            is_stale: !self.stage.store.written.lock().unwrap().waits(&self.job.name, &notice.id),
        };
        let mut all = self.stage.heard.lock().unwrap();
        all.entry((self.job.index, lane.to_owned())).or_default().push(heard);
    }
}

/// How far back a firing of this job reaches.
pub(crate) fn reach_ms(job: &Job) -> u64 {
    match job.catch_up {
        CatchUp::All { within_ms } => within_ms,
        CatchUp::Latest | CatchUp::None => 0,
    }
}

/// Is the slot of this entry settled, as far as a run can settle it?
pub(crate) fn is_settled(job: &Job, entry: Option<&semel::core::entry::Entry>) -> bool {
    !calendar::is_owed(entry, job.policy.max_failures)
}

/// Three days.
pub(crate) const THREE_DAYS: CatchUp = CatchUp::All { within_ms: 3 * DAY_MS };
