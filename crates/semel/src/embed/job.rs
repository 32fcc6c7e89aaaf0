//! What is to be done once, and under which policies.

use std::time::Duration;

use semel_core::canonical::Pointer;
use semel_core::name::{Name, NameError, Slot};
use semel_core::payload::Fingerprint;
use semel_core::plan::{Choice, PlanError, Recent};
use semel_core::policy::{IfBusy, OnLost, Policy, PolicyError};
use semel_core::schedule::{ForgetsTooSoon, NotDue, ScheduleError, ScheduledForError};
use semel_core::work::{Fields, Work, WorkError};
use serde::Serialize;
use serde_json::Value;

use super::ms;
use super::scheduled::{Due, Said, Scheduled};
use crate::engine::{PlanAsk, RunPlan};

/// What is to be done once: resolved and checked. See [`Job::named`].
#[derive(Clone, Debug)]
pub struct Job {
    when: When,
    plan: RunPlan,
    decide: Option<PlanAsk>,
}

/// Is the work known, or only when it is due?
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // one per job
enum When {
    Now(Work),
    Due(Scheduled),
}

impl Job {
    /// Begin with the job's name. Say what makes two runs the same work: [`every`](JobBuilder::every),
    /// [`once`](JobBuilder::once), [`slot`](JobBuilder::slot), [`with`](JobBuilder::with), [`key`](JobBuilder::key) or
    /// [`always`](JobBuilder::always).
    ///
    /// ```
    /// use std::time::Duration;
    /// use semel::Job;
    ///
    /// let job = Job::named("publish")
    ///     .slot("2026-06-19")
    ///     .with("series", "landing")
    ///     .resource("website")
    ///     .timeout(Duration::from_secs(600))
    ///     .max_failures(5)
    ///     .build()?;
    /// assert_eq!(job.work().unwrap().to_string(), "publish@2026-06-19?series=landing");
    ///
    /// // it would be done once by accident
    /// assert!(Job::named("publish").build().is_err());
    /// assert!(Job::named("no spaces").once().build().is_err());
    /// # Ok::<(), semel::JobError>(())
    /// ```
    pub fn named(name: &str) -> JobBuilder {
        JobBuilder {
            name: name.to_owned(),
            once: false,
            always: false,
            said: Said::default(),
            slot: None,
            with: Ok(Fields::new()),
            key: None,
            resources: Vec::new(),
            policy: super::policy(),
            kill_after_is_set: false,
            payload: None,
            decide: Ok(None),
        }
    }

    /// The work, with its key. Nothing if a schedule says which slot is due: then
    /// [`Semel::due`](super::Semel::due) knows it.
    pub fn work(&self) -> Option<&Work> {
        match &self.when {
            When::Now(work) => Some(work),
            When::Due(_) => None,
        }
    }

    /// The work as of now.
    pub(super) fn work_at(&self, now_ms: u64) -> Result<Work, JobError> {
        match &self.when {
            When::Now(work) => Ok(work.clone()),
            When::Due(scheduled) => Ok(scheduled.due(now_ms)?.work),
        }
    }

    /// What is to be run as of now; and its slot, if a schedule says which.
    pub(super) fn plan_at(&self, now_ms: u64) -> Result<(RunPlan, Option<Due>), JobError> {
        let mut plan = self.plan.clone();
        let When::Due(scheduled) = &self.when else { return Ok((plan, None)) };
        let due = scheduled.due(now_ms)?;
        plan.what = due.work.to_string();
        plan.work = Some(due.work.clone());
        plan.start_within_ms = due.start_within_ms;
        let occurrence = due.occurrence.clone();
        plan.scheduled = Some(crate::engine::Scheduled { occurrence, excuses: Vec::new() });
        Ok((plan, Some(due)))
    }

    pub(super) fn decide(&self) -> Option<&PlanAsk> {
        self.decide.as_ref()
    }
}

/// Why something is no [`Job`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// A name that is none.
    #[error("{what} {text:?}: {why}")]
    Name {
        /// Of what.
        what: &'static str,
        /// As given.
        text: String,
        /// What is wrong with it.
        why: NameError,
    },
    /// It is not said what makes two runs the same work.
    #[error(
        "what makes two runs the same work? Say every (once per day, hour or cron tick), once (never again), slot (once per slot), with (once per parameters), key (once per key) or always (every time, only never overlapping)"
    )]
    Undecided,
    /// `once` and `always` go alone.
    #[error("{0} goes alone: without every, slot, with, key and its counterpart")]
    Alone(&'static str),
    /// The work.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// A parameter or a payload that is no JSON.
    #[error("{what} cannot be written as JSON: {why}")]
    Json {
        /// Which.
        what: String,
        /// Why.
        why: String,
    },
    /// Policies that cannot be had together.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A probe is asked of a step, not of a job.
    #[error("a job has no probe: use on_lost retry or hold, and probe in its steps")]
    NoProbe,
    /// What is to be decided for it.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A plan is pinned to a work that can be done.
    #[error("a job that is always run has no plan: there is no work for it to be pinned to")]
    NothingToPinTo,
    /// A schedule that is none.
    #[error("every {text:?} {why}")]
    Schedule {
        /// As given.
        text: String,
        /// What is wrong with it.
        why: ScheduleError,
    },
    /// A time zone that nobody knows.
    #[error(
        "tz {0:?} is no time zone that is known here: write a name of the IANA database, such as Europe/Berlin or UTC; a machine without zones needs the feature bundled-zones"
    )]
    Zone(String),
    /// The system does not say where it is.
    #[error("the system's time zone is unknown: say it with tz, as in tz(\"Europe/Berlin\")")]
    NoZone,
    /// A time that no scheduler says.
    #[error("scheduled_for {text:?} {why}")]
    ScheduledFor {
        /// As given.
        text: String,
        /// What is wrong with it.
        why: ScheduledForError,
    },
    /// What is said of a schedule, without one.
    #[error("{0} goes with a schedule: say every too")]
    NeedsSchedule(&'static str),
    /// Two ways to say which slot or key.
    #[error(
        "every and {0} both say what is done once: leave one out, or tell runs of one slot apart by with"
    )]
    EveryAnd(&'static str),
    /// What is done would be forgotten before its slot is over.
    #[error(transparent)]
    Forgets(#[from] ForgetsTooSoon),
    /// No slot is due, as of the engine's clock.
    #[error("the scheduled time {0}")]
    NotDue(#[from] NotDue),
    /// The engine's clock shows a time that no calendar has.
    #[error("the machine's clock shows a time that no calendar has ({0} ms since 1970): set it")]
    Clock(u64),
    /// A resource is named twice.
    #[error("the resource {0} is named twice")]
    Twice(Name),
}

/// A [`Job`] to be.
#[derive(Clone, Debug)]
#[must_use = "build() makes it a job"]
pub struct JobBuilder {
    name: String,
    once: bool,
    always: bool,
    said: Said,
    slot: Option<String>,
    with: Result<Fields, JobError>,
    key: Option<String>,
    resources: Vec<String>,
    policy: Policy,
    kill_after_is_set: bool,
    payload: Option<Result<Fingerprint, JobError>>,
    decide: Result<Option<PlanAsk>, JobError>,
}

impl JobBuilder {
    /// Once, and never again.
    pub fn once(mut self) -> JobBuilder {
        self.once = true;
        self
    }

    /// Every time, only never two at once. Such a job has no steps.
    pub fn always(mut self) -> JobBuilder {
        self.always = true;
        self
    }

    /// Once per slot of a schedule: `day`, `week`, `month`, `hour`, an interval such as `15m`, or a cron expression such
    /// as `0 2 * * *`.
    ///
    /// The slot is the one that fell due last when the job is run, by the engine's clock: fired late, twice or by hand,
    /// it is the same work. See [`semel_core::schedule`] for what happens when the clocks change.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use semel::{Job, JobError, Outcome};
    /// # let semel = semel::Semel::on(std::sync::Arc::new(semel::store::memory::Memory::new()));
    ///
    /// let job = Job::named("publish")
    ///     .every("day")
    ///     .tz("Europe/Berlin")
    ///     .max_late(Duration::from_secs(26 * 3600))
    ///     .build()?;
    /// assert!(semel.due(&job)?.to_string().starts_with("publish@2"));
    ///
    /// let first = semel.run(&job, async |_| Ok::<_, std::io::Error>(42)).await;
    /// assert!(matches!(first, Outcome::Done(42)));
    ///
    /// // what is no schedule is no job
    /// let wrong = Job::named("publish").every("7m").build();
    /// assert!(matches!(wrong, Err(JobError::Schedule { .. })));
    /// let wrong = Job::named("publish").every("day").tz("Mars/Olympus").build();
    /// assert!(matches!(wrong, Err(JobError::Zone(_))));
    /// # Ok(())
    /// # }
    /// ```
    pub fn every(mut self, schedule: &str) -> JobBuilder {
        self.said.every = Some(schedule.to_owned());
        self
    }

    /// The schedule's time zone, by its IANA name. If nothing is said, the system's: `TZ`, else `/etc/localtime`.
    ///
    /// Names are looked up in the machine's own database of zones. Where there is none (a bare container), turn on this
    /// crate's feature `bundled-zones`.
    pub fn tz(mut self, zone: &str) -> JobBuilder {
        self.said.tz = Some(zone.to_owned());
        self
    }

    /// The time that a scheduler had in mind, instead of now: `2026-06-19T02:00:00Z`, or the name of a Kubernetes
    /// CronJob's Job, which holds it. One that lies ahead of the engine's clock is [`Outcome::NotDue`].
    ///
    /// [`Outcome::NotDue`]: super::Outcome::NotDue
    pub fn scheduled_for(mut self, time: &str) -> JobBuilder {
        self.said.scheduled_for = Some(time.to_owned());
        self
    }

    /// Do not begin a slot that fell due longer ago than this: [`Outcome::TooLate`]. One that is done is found done as
    /// always, and the next slot is not affected.
    ///
    /// [`Outcome::TooLate`]: super::Outcome::TooLate
    pub fn max_late(mut self, at_most: Duration) -> JobBuilder {
        self.said.max_late = Some(at_most);
        self
    }

    /// Once per slot that you name yourself: a date, an hour, a build.
    pub fn slot(mut self, slot: &str) -> JobBuilder {
        self.slot = Some(slot.to_owned());
        self
    }

    /// Once per parameter.
    pub fn with(mut self, name: &str, value: impl Serialize) -> JobBuilder {
        if let Ok(with) = &mut self.with {
            match json(value, || format!("the parameter {name}")) {
                Ok(value) => drop(with.insert(name.to_owned(), value)),
                Err(why) => self.with = Err(why),
            }
        }
        self
    }

    /// Once per key of the program's own: an order's number, a message's id.
    pub fn key(mut self, key: &str) -> JobBuilder {
        self.key = Some(key.to_owned());
        self
    }

    /// What it holds while it runs; the job's name if nothing is said. Jobs with the same resource exclude each
    /// other.
    pub fn resource(mut self, resource: &str) -> JobBuilder {
        self.resources.insert(0, resource.to_owned());
        self
    }

    /// Another resource that would do, if those before it are held.
    pub fn or(mut self, resource: &str) -> JobBuilder {
        self.resources.push(resource.to_owned());
        self
    }

    /// How long the lease lives without a renewal: a minute if nothing is said.
    pub fn ttl(mut self, ttl: Duration) -> JobBuilder {
        self.policy.ttl_ms = ms(ttl);
        self
    }

    /// Drop the body when it runs longer than that. Each retry has the time anew.
    pub fn timeout(mut self, timeout: Duration) -> JobBuilder {
        self.policy.timeout_ms = Some(ms(timeout));
        self
    }

    /// When the resource or the work is busy, wait at most so long. If nothing is said, [`Outcome::Busy`] is
    /// answered at once.
    ///
    /// [`Outcome::Busy`]: super::Outcome::Busy
    pub fn wait(mut self, at_most: Duration) -> JobBuilder {
        self.policy.if_busy = IfBusy::Wait { for_ms: ms(at_most) };
        self
    }

    /// So many failures in a row, over all runs, and a person is needed. 3 if nothing is said; 0 for no cap.
    pub fn max_failures(mut self, failures: u32) -> JobBuilder {
        self.policy.max_failures = failures;
        self
    }

    /// Call a body that failed again, so often, with a pause that doubles from `backoff`.
    pub fn retries(mut self, retries: u32, backoff: Duration) -> JobBuilder {
        (self.policy.retries, self.policy.backoff_ms) = (retries, ms(backoff));
        self
    }

    /// When the last run vanished, ask a person, instead of running again and replaying the steps that are done.
    pub fn hold_when_lost(mut self) -> JobBuilder {
        self.policy.on_lost = OnLost::Hold;
        self
    }

    /// Any of the policies.
    pub fn policy(mut self, change: impl FnOnce(&mut Policy)) -> JobBuilder {
        let before = self.policy.kill_after_ms;
        change(&mut self.policy);
        self.kill_after_is_set |= self.policy.kill_after_ms != before;
        self
    }

    /// Bind this payload to the work: a run with another one is refused ([`Outcome::Mismatch`]). Only digests are
    /// kept. What the `volatile` JSON pointers name may differ.
    ///
    /// [`Outcome::Mismatch`]: super::Outcome::Mismatch
    pub fn payload(mut self, payload: impl Serialize, volatile: &[&str]) -> JobBuilder {
        self.payload = Some(fingerprint(payload, volatile));
        self
    }

    /// Decide this before the first attempt, by the work's key alone, and the same for every attempt after it: see
    /// [`Run::plan`](super::Run::plan). An option that is added takes its share and moves nothing else.
    pub fn choose(self, name: &str, options: &[&str]) -> JobBuilder {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let choice = Choice::new(name, options);
        self.deciding(|decide| {
            decide.choose.push(choice?);
            Ok(())
        })
    }

    /// Look back before the first attempt at this field (a JSON pointer) of the values of the job's last `count` works
    /// that are done, and hand the same to every attempt: see [`Run::plan`](super::Run::plan).
    pub fn recent(self, name: &str, count: usize, field: &str) -> JobBuilder {
        let pointer = Pointer::new(field)
            .map_err(|why| JobError::Json { what: format!("the field {field:?}"), why: why.to_string() });
        self.deciding(|decide| {
            decide.recent.push(Recent::new(name, count, pointer?)?);
            Ok(())
        })
    }

    fn deciding(mut self, add: impl FnOnce(&mut PlanAsk) -> Result<(), JobError>) -> JobBuilder {
        self.decide = self.decide.and_then(|decide| {
            let mut decide = decide.unwrap_or_default();
            add(&mut decide)?;
            decide.check()?;
            Ok(Some(decide))
        });
        self
    }

    /// The job, if all of it makes sense.
    pub fn build(self) -> Result<Job, JobError> {
        let name = named("the job", &self.name)?;
        let resources = match self.resources.as_slice() {
            [] => vec![name.clone()],
            given => given.iter().map(|text| named("the resource", text)).collect::<Result<Vec<_>, _>>()?,
        };
        for (at, resource) in resources.iter().enumerate() {
            if resources.iter().take(at).any(|before| before == resource) {
                return Err(JobError::Twice(resource.clone()));
            }
        }
        let mut policy = self.policy;
        if !self.kill_after_is_set {
            policy.kill_after_ms = Policy::default_kill_after_ms(policy.ttl_ms);
        }
        policy.check()?;
        if policy.on_lost == OnLost::Probe {
            return Err(JobError::NoProbe);
        }
        let slot = self.slot.as_deref().map(|text| {
            Slot::new(text).map_err(|why| JobError::Name { what: "the slot", text: text.to_owned(), why })
        });
        let (slot, with) = (slot.transpose()?, self.with?);
        let scheduled = self.said.check(&name, &with, policy.remember_ms)?;
        let more = scheduled.is_some() || slot.is_some() || !with.is_empty() || self.key.is_some();
        let when = match (self.once, self.always, scheduled, slot, self.key) {
            (true, true, ..) => return Err(JobError::Alone("once")),
            (true, false, ..) if more => return Err(JobError::Alone("once")),
            (false, true, ..) if more => return Err(JobError::Alone("always")),
            (true, false, ..) => When::Now(Work::once(name)),
            (false, true, ..) => When::Now(Work::always(name)),
            (false, false, Some(_), Some(_), _) => return Err(JobError::EveryAnd("slot")),
            (false, false, Some(_), _, Some(_)) => return Err(JobError::EveryAnd("key")),
            (false, false, Some(scheduled), None, None) => When::Due(scheduled),
            (false, false, None, slot, Some(key)) => When::Now(Work::keyed(name, &key, slot, with)?),
            (false, false, None, Some(slot), None) => When::Now(Work::in_slot(name, slot, with)?),
            (false, false, None, None, None) if with.is_empty() => return Err(JobError::Undecided),
            (false, false, None, None, None) => When::Now(Work::with(name, with)?),
        };
        let work = match &when {
            When::Now(work) => Some(work.clone()),
            When::Due(_) => None,
        };
        let decide = self.decide?;
        if decide.is_some() && work.as_ref().is_some_and(Work::is_always) {
            return Err(JobError::NothingToPinTo);
        }
        let plan = RunPlan {
            what: work.as_ref().map(ToString::to_string).unwrap_or_default(),
            work,
            resources,
            policy,
            payload: self.payload.transpose()?,
            command: None,
            definition: None,
            nested: None,
            start_within_ms: None,
            scheduled: None,
            lanes: Vec::new(),
        };
        Ok(Job { when, plan, decide })
    }
}

pub(super) fn named(what: &'static str, text: &str) -> Result<Name, JobError> {
    Name::new(text).map_err(|why| JobError::Name { what, text: text.to_owned(), why })
}

fn json(value: impl Serialize, what: impl FnOnce() -> String) -> Result<Value, JobError> {
    serde_json::to_value(value).map_err(|why| JobError::Json { what: what(), why: why.to_string() })
}

fn fingerprint(payload: impl Serialize, volatile: &[&str]) -> Result<Fingerprint, JobError> {
    let wrong = |what: &str, why: String| JobError::Json { what: what.to_owned(), why };
    let value = json(payload, || "the payload".to_owned())?;
    let pointers = volatile.iter().map(|text| {
        Pointer::new(text).map_err(|why| wrong(&format!("the volatile pointer {text:?}"), why.to_string()))
    });
    let pointers = pointers.collect::<Result<Vec<_>, _>>()?;
    Fingerprint::of_json(&value, &pointers).map_err(|why| wrong("the payload", why.to_string()))
}
