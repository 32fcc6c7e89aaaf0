//! Semel inside a Rust program: work that is done once, in steps that are done once.
//!
//! ```text
//! Semel ──run(job, body)──▶ claim ──▶ body(Run) ──▶ settle ──▶ Outcome
//!                                       └─ run.step(name, effect): claim ──▶ effect ──▶ settle
//! ```
//!
//! A [`Job`] says what is to be done once, and under which policies. [`Semel::run`] claims it and calls the body,
//! whose effects go through [`Run::step`]; when the body fails, or its process dies, the next run replays the
//! values of the steps that are done and goes on from there.
//!
//! # What a cancelled body means
//!
//! A body is *dropped* when its lease is lost, when its timeout has passed, and when whoever awaits the run drops it:
//! it is not polled again. The step that it was in has an unknown outcome (the request may have been sent) and
//! is recorded so; the next run asks a person, unless the step says what else to do ([`Step::idempotent`],
//! [`Step::probe_or_run`]).
//!
//! | dropped while a step | is recorded as |
//! |---|---|
//! | was being claimed | not begun: it runs again |
//! | ran its effect | vanished: in doubt |
//! | was being recorded | what it came to: the recording goes on in the background |
//!
//! Not guaranteed: that anything stops which a drop does not stop. Threads, tasks spawned and child processes go on;
//! await them inside the body. A body that blocks its thread cannot be stopped at all, and keeps its lease from
//! being renewed. Where the target can refuse a stale token, hand it [`Lease::token`]: only that closes the window.
//!
//! A run needs a tokio runtime with its timers and descriptors enabled.

#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::policy::{IfBusy, OnLost, Policy};
use semel_core::work::Work;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clock::SystemClock;
use crate::engine::{Engine, Report, RunPlan, Strangers};
use crate::store::Store;

mod batch;
mod batch_of;
mod drive;
mod job;
mod lease;
mod outcome;
mod owner;
mod run;
mod scheduled;
mod step;

use scheduled::Due;

pub use crate::engine::desk::{Shut, Verified};
pub use batch::{Batch, BatchItem, BatchOutcome, ERRORS_KEPT, IntoFields};
pub use batch_of::BatchOf;
pub use job::{Job, JobBuilder, JobError};
pub use lease::{Held, Lease, LeaseBuilder};
pub use outcome::Outcome;
pub use run::Run;
pub use step::{Found, Step, StepError};

/// A ledger, and this process as one that works by it. Cheap to clone.
#[derive(Clone)]
pub struct Semel {
    engine: Engine,
}

impl std::fmt::Debug for Semel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Semel").field("store", &self.engine.store).field("me", &self.engine.me).finish()
    }
}

/// An engine that was put together by hand: with another clock, another owner, or neighbours that it knows.
impl From<Engine> for Semel {
    fn from(engine: Engine) -> Semel {
        Semel { engine }
    }
}

impl Semel {
    /// On the SQLite ledger at this path, which is made if there is none.
    ///
    /// It is the ledger of the command line too: `semel ls --store sqlite:PATH` shows what this program did.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("ledger.db");
    /// let semel = semel::Semel::sqlite(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "sqlite")]
    pub fn sqlite(path: impl AsRef<Path>) -> Result<Semel, crate::store::OpenError> {
        Ok(Semel::on(Arc::new(crate::store::sqlite::Sqlite::open(path.as_ref())?)))
    }

    /// On the store of this address, as the command line takes it with `--store`. Nothing is connected yet: a store that
    /// is down is told by the first run that needs it.
    ///
    /// ```
    /// // "postgres://…", "redis://…", "etcd://…", "nats://…", "s3://…", "dir:…", each with its feature
    /// let semel = semel::Semel::open("memory:")?;
    /// assert!(semel::Semel::open("mysql://nowhere").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(url: &str) -> Result<Semel, crate::store::OpenError> {
        Semel::open_with(url, &crate::store::Settings::default())
    }

    /// As [`open`](Semel::open), with credentials beside the address and a deadline: the library reads no environment.
    pub fn open_with(url: &str, settings: &crate::store::Settings) -> Result<Semel, crate::store::OpenError> {
        Ok(Semel::on(crate::store::open(url, settings)?))
    }

    /// On this store.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use semel::store::memory::Memory;
    ///
    /// // for tests: it forgets everything with the process
    /// let semel = semel::Semel::on(Arc::new(Memory::new()));
    /// ```
    pub fn on(store: Arc<dyn Store>) -> Semel {
        let (clock, neighbours) = (Arc::new(SystemClock), Arc::new(Strangers));
        Semel { engine: Engine { store, clock, neighbours, me: owner::unwatched() } }
    }

    /// Promise that nothing of a run outlives this process: no child processes, no jobs handed to a queue.
    ///
    /// Without this promise nobody concludes anything from the death of this process, and a run that died with it
    /// is taken over when its lease has run out. With it, programs on the same host that gave the same promise take
    /// over at once.
    ///
    /// Where the process table cannot be read nothing changes: the clock decides.
    #[must_use]
    pub fn runs_end_with_this_process(mut self) -> Semel {
        if let Some(me) = owner::this_process() {
            self.engine.me = me;
            self.engine.neighbours = Arc::new(owner::Processes);
        }
        self
    }

    /// This process, as the ledger knows it.
    pub fn owner(&self) -> &Owner {
        &self.engine.me
    }

    /// The engine below, for what is not here: verdicts, the ledger's listings, retention.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Do the job, unless it is done, or under way elsewhere, or needs a person.
    ///
    /// The value is kept in the ledger, as JSON: whoever runs the job again gets it as
    /// [`Outcome::AlreadyDone`]. An error of the body is recorded as a failure, and the next run tries again
    /// until [`JobBuilder::max_failures`] is reached. The body is called again by this very call if the job asks
    /// for [retries](JobBuilder::retries).
    ///
    /// If the body panics, that is recorded (a failure whose effect is unknown), the lease is given back, and
    /// the panic goes on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use semel::{Job, Outcome, Semel};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("ledger.db");
    ///
    /// let semel = Semel::sqlite(&path)?;
    /// let job = Job::named("report").slot("2026-06-19").build()?;
    /// let outcome = semel.run(&job, async |_| Ok::<_, std::io::Error>(42)).await;
    /// assert!(matches!(outcome, Outcome::Done(42)));
    ///
    /// // fired twice: the body is not called
    /// let outcome = semel.run(&job, async |_| -> Result<i32, std::io::Error> { unreachable!() }).await;
    /// assert!(matches!(outcome, Outcome::AlreadyDone(Some(42))));
    /// # Ok(())
    /// # }
    /// ```
    // not an async fn: its future would hold the lifetimes of both, and could not always be spawned
    pub fn run<T, E, F, R>(&self, job: &Job, body: F) -> impl Future<Output = Outcome<T, E>> + use<T, E, F, R>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(Run) -> R,
        R: Future<Output = Result<T, E>>,
    {
        let (engine, job) = (self.engine.clone(), job.clone());
        async move {
            let (plan, due) = match job.plan_at(engine.clock.wall_ms()) {
                Ok(found) => found,
                Err(why) => return Outcome::NotDue(why.to_string()),
            };
            let decide = job.decide().cloned();
            let driven = drive::drive(engine, plan, decide, body, outcome::keep_or_say).await;
            match (&driven.report, due) {
                (Report::TooLate, Some(Due { slot, due_ms, .. })) => Outcome::TooLate { slot, due_ms },
                _ => outcome::of(driven),
            }
        }
    }

    /// The work that a run of this job would do now: of a job with a schedule, the slot that fell due last by the
    /// engine's clock.
    pub fn due(&self, job: &Job) -> Result<Work, JobError> {
        job.work_at(self.engine.clock.wall_ms())
    }

    /// Hold a lease without a ledger: mutual exclusion with a fencing token, and nothing remembered.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let semel = semel::Semel::on(std::sync::Arc::new(semel::store::memory::Memory::new()));
    /// use std::time::Duration;
    /// use semel::Held;
    ///
    /// let held = semel
    ///     .lease("website")
    ///     .ttl(Duration::from_secs(30))
    ///     .hold(async |lease| lease.token().value())
    ///     .await;
    /// assert!(matches!(held, Held::Released(1)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(&self, resource: &str) -> LeaseBuilder<'_> {
        LeaseBuilder::new(self, resource)
    }
}

fn ms(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// The plan of a lease without a ledger.
fn lease_plan(resources: Vec<Name>, what: String, policy: Policy) -> RunPlan {
    RunPlan {
        work: None,
        what,
        resources,
        policy,
        payload: None,
        command: None,
        nested: None,
        start_within_ms: None,
        definition: None,
        scheduled: None,
        lanes: Vec::new(),
    }
}

/// The policies of a library's run: as the command line's.
fn policy() -> Policy {
    Policy { if_busy: IfBusy::Skip, on_lost: OnLost::Retry, ..Policy::default() }
}
