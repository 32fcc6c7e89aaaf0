//! The jobs of the year, and how a run of one is asked for: as `semel run` does it.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use semel::clock::Clock;
use semel::core::calendar::{CatchUp, Occurrence};
use semel::core::name::{Name, Slot};
use semel::core::policy::{OnLost, Policy};
use semel::core::schedule::{Schedule, Tick};
use semel::core::work::{Fields, Work};
use semel::engine::{RunPlan, Scheduled};

use crate::command::Doing;
use crate::machine::Machine;
use crate::rng::Rng;

pub(crate) const SECOND_MS: u64 = 1_000;
pub(crate) const MINUTE_MS: u64 = 60 * SECOND_MS;
pub(crate) const HOUR_MS: u64 = 60 * MINUTE_MS;
pub(crate) const DAY_MS: u64 = 24 * HOUR_MS;

/// A job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) index: usize,
    pub(crate) name: Name,
    pub(crate) resource: Name,
    pub(crate) schedule: Schedule,
    pub(crate) zone: TimeZone,
    pub(crate) catch_up: CatchUp,
    pub(crate) policy: Policy,
    pub(crate) lanes: Vec<String>,
    pub(crate) period_ms: u64,
    grace_ms: u64,
}

/// What is said of a job.
pub(crate) struct Said<'a> {
    pub(crate) every: &'a str,
    pub(crate) zone: &'a str,
    pub(crate) catch_up: CatchUp,
    pub(crate) on_lost: OnLost,
    /// Shared by those that say the same.
    pub(crate) resource: Option<&'a str>,
}

impl Job {
    pub(crate) fn new(index: usize, said: &Said<'_>) -> Job {
        let schedule = Schedule::parse(said.every).unwrap();
        let name = Name::new(&format!("job-{index}")).unwrap();
        let period_ms = schedule.period().shortest.as_millis() as u64;
        let ttl_ms = 10 * MINUTE_MS;
        let policy = Policy { ttl_ms, on_lost: said.on_lost, ..Policy::default() };
        policy.check().unwrap();
        Job {
            index,
            resource: said.resource.map_or_else(|| name.clone(), |text| Name::new(text).unwrap()),
            name,
            zone: TimeZone::get(said.zone).unwrap(),
            catch_up: said.catch_up,
            policy,
            lanes: vec!["mail".to_owned(), "pager".to_owned()],
            period_ms,
            // asked once: of a line, it takes a walk through its days
            grace_ms: schedule.usual_grace().as_millis() as u64,
            schedule,
        }
    }

    pub(crate) fn tick_at(&self, wall_ms: u64) -> Tick {
        self.schedule.tick_at_or_before(&self.zone, moment(wall_ms)).unwrap()
    }

    /// The ticks after one time, up to and with another.
    pub(crate) fn ticks(&self, after_ms: u64, until_ms: u64) -> Vec<Tick> {
        self.schedule.ticks(&self.zone, moment(after_ms), moment(until_ms)).collect()
    }

    pub(crate) fn work(&self, slot: Slot) -> Work {
        Work::in_slot(self.name.clone(), slot, Fields::new()).unwrap()
    }

    /// `semel run --every`, on this machine, now.
    pub(crate) fn plan(&self, machine: &Arc<Machine>) -> (RunPlan, Tick) {
        let wall_ms = machine.wall_ms();
        let tick = self.tick_at(wall_ms);
        let late_ms = wall_ms - ms(tick.at);
        let grace_ms = self.grace_ms;
        let occurrence = Occurrence {
            schedule: self.schedule.clone(),
            zone: self.zone.clone(),
            tick: tick.clone(),
            grace_ms,
        };
        let excuses = machine.excuses.lock().unwrap().clone();
        let is_none = self.catch_up == CatchUp::None;
        let plan = RunPlan {
            start_within_ms: is_none.then(|| grace_ms.saturating_sub(late_ms)),
            scheduled: Some(Scheduled { occurrence, excuses }),
            ..self.plan_in(tick.slot.clone())
        };
        (plan, tick)
    }

    /// `semel run --slot`.
    pub(crate) fn plan_in(&self, slot: Slot) -> RunPlan {
        let work = self.work(slot);
        RunPlan {
            what: work.to_string(),
            work: Some(work),
            resources: vec![self.resource.clone()],
            policy: self.policy.clone(),
            payload: None,
            command: None,
            definition: None,
            nested: None,
            start_within_ms: None,
            scheduled: None,
            lanes: self.lanes.clone(),
        }
    }

    /// What a command of this job does: mostly it is quick, sometimes it fails, and sometimes the next one is due
    /// before it has ended.
    pub(crate) fn doing(&self, rng: &mut Rng, is_quiet: bool) -> Doing {
        let period_ms = self.period_ms;
        let takes_ms = match rng.within(0..100) {
            _ if is_quiet => 5 * SECOND_MS,
            0..85 => rng.within(SECOND_MS..2 * MINUTE_MS),
            85..97 => rng.within(MINUTE_MS..period_ms / 2),
            _ => rng.within(period_ms / 2..period_ms + period_ms / 4),
        };
        let fails = !is_quiet && rng.permille(60);
        let effect_ms = rng.within(1..takes_ms + 1);
        Doing { takes_ms, effect_ms: (!fails).then_some(effect_ms) }
    }
}

pub(crate) fn moment(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms.cast_signed()).unwrap()
}

pub(crate) fn ms(at: Timestamp) -> u64 {
    at.as_millisecond().unsigned_abs()
}
