//! What is to be done once, and under which policies.

use std::time::Duration;

use semel_core::canonical::Pointer;
use semel_core::name::{Name, NameError, Slot};
use semel_core::payload::Fingerprint;
use semel_core::plan::{Choice, PlanError, Recent};
use semel_core::policy::{IfBusy, OnLost, Policy, PolicyError};
use semel_core::work::{Fields, Work, WorkError};
use serde::Serialize;
use serde_json::Value;

use super::ms;
use crate::engine::{PlanAsk, RunPlan};

/// What is to be done once: resolved and checked. See [`Job::named`].
#[derive(Clone, Debug)]
pub struct Job {
    work: Work,
    plan: RunPlan,
    decide: Option<PlanAsk>,
}

impl Job {
    /// Begin with the job's name. Say what makes two runs the same work: [`once`](JobBuilder::once),
    /// [`slot`](JobBuilder::slot), [`with`](JobBuilder::with), [`key`](JobBuilder::key) or
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
    /// assert_eq!(job.work().to_string(), "publish@2026-06-19?series=landing");
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

    /// The work, with its key.
    pub fn work(&self) -> &Work {
        &self.work
    }

    pub(super) fn plan(&self) -> &RunPlan {
        &self.plan
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
        "what makes two runs the same work? Say once (never again), slot (once per slot), with (once per parameters), key (once per key) or always (every time, only never overlapping)"
    )]
    Undecided,
    /// `once` and `always` go alone.
    #[error("{0} goes alone: without slot, with, key and its counterpart")]
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

    /// Once per slot: a date, an hour, a build.
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
        let more = slot.is_some() || !with.is_empty() || self.key.is_some();
        let work = match (self.once, self.always, slot, self.key) {
            (true, true, ..) => return Err(JobError::Alone("once")),
            (true, false, ..) if more => return Err(JobError::Alone("once")),
            (false, true, ..) if more => return Err(JobError::Alone("always")),
            (true, false, ..) => Work::once(name),
            (false, true, ..) => Work::always(name),
            (false, false, slot, Some(key)) => Work::keyed(name, &key, slot, with)?,
            (false, false, Some(slot), None) => Work::in_slot(name, slot, with)?,
            (false, false, None, None) if with.is_empty() => return Err(JobError::Undecided),
            (false, false, None, None) => Work::with(name, with)?,
        };
        let decide = self.decide?;
        if decide.is_some() && work.is_always() {
            return Err(JobError::NothingToPinTo);
        }
        let plan = RunPlan {
            what: work.to_string(),
            work: Some(work.clone()),
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
        Ok(Job { work, plan, decide })
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
