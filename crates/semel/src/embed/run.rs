//! A run, as its body sees it.

use std::sync::Arc;
use std::time::Duration;

use semel_core::plan::{self, Plan};
use semel_core::work::{Key, Work};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::lease::Lease;
use super::step::{Step, StepError};
use super::{Shut, Verified};
use crate::engine::Begin;
use crate::engine::desk::Desk;

/// A run under way, as its body sees it. Cheap to clone; a clone that outlives its run is refused everything.
#[derive(Clone, Debug)]
pub struct Run {
    lease: Lease,
    attempt: u32,
}

impl Run {
    pub(super) fn new(begin: &Begin, desk: &Arc<Desk>) -> Run {
        Run { lease: Lease::new(desk), attempt: begin.attempt }
    }

    /// Do this once: if it is done, in this run or in an earlier one of the same work, its value is replayed and the
    /// effect is not called.
    ///
    /// An effect that failed is called again by the next run (or by this one, under the same name). One whose
    /// outcome is unknown is not: that needs a person, unless [`Run::at`] says otherwise.
    ///
    /// Steps are told apart by their names, so every use of a name in a run is another
    /// [number](Step::nth). Several may run at once.
    ///
    /// A value that is larger than [`RESULT_LIMIT`](semel_core::entry::RESULT_LIMIT) as JSON, or cannot be written
    /// as JSON, is returned now and not kept: a later run gets [`StepError::NotKept`]. Return a path or an id.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let semel = semel::Semel::on(std::sync::Arc::new(semel::store::memory::Memory::new()));
    /// use std::io;
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    /// use semel::{Job, Outcome};
    ///
    /// type Any = Box<dyn std::error::Error + Send + Sync>;
    /// let job = Job::named("import").slot("2026-06-19").build()?;
    /// let fetched = AtomicU32::new(0);
    ///
    /// // the first run fetches, and fails after that
    /// let outcome = semel
    ///     .run(&job, async |run| -> Result<(), Any> {
    ///         let fetch = async || {
    ///             fetched.fetch_add(1, Relaxed);
    ///             Ok::<u64, io::Error>(7)
    ///         };
    ///         let rows = run.step("fetch", fetch).await?;
    ///         Err(format!("no room for {rows} rows").into())
    ///     })
    ///     .await;
    /// assert!(matches!(outcome, Outcome::Failed(_)));
    ///
    /// // the second has the value without fetching
    /// let outcome = semel
    ///     .run(&job, async |run| -> Result<u64, Any> {
    ///         Ok(run.step("fetch", async || -> Result<u64, io::Error> { unreachable!() }).await?)
    ///     })
    ///     .await;
    /// assert!(matches!(outcome, Outcome::Done(7)));
    /// assert_eq!(fetched.into_inner(), 1);
    /// # Ok(())
    /// # }
    /// ```
    // not an async fn: the future of one would hold the name's lifetime, and a body with such a future in it cannot be
    // spawned
    pub fn step<'r, T, E, F, R>(
        &'r self,
        name: &str,
        effect: F,
    ) -> impl Future<Output = Result<T, StepError<E>>> + use<'r, T, E, F, R>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> R,
        R: Future<Output = Result<T, E>>,
    {
        self.at(name).run(effect)
    }

    /// A step with more to say about it: its number, or what to do if its outcome is unknown.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let semel = semel::Semel::on(std::sync::Arc::new(semel::store::memory::Memory::new()));
    /// # let job = semel::Job::named("notify").once().build()?;
    /// # let outcome = semel.run(&job, async |run| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// for (nth, who) in (1..).zip(["ada", "grace"]) {
    ///     run.at("mail").nth(nth).run(async || send(who).await).await?;
    /// }
    /// # Ok(())
    /// # }).await;
    /// # assert!(outcome.is_done());
    /// # async fn send(_: &str) -> std::io::Result<()> { Ok(()) }
    /// # Ok(())
    /// # }
    /// ```
    pub fn at(&self, name: &str) -> Step<'_> {
        Step::new(&self.lease, name)
    }

    /// The key to send along with a request of this step, stable over all retries: see
    /// [`Step::idempotency_key`].
    pub fn idempotency_key(&self, step: &str) -> Result<Key, StepError<std::convert::Infallible>> {
        self.at(step).idempotency_key()
    }

    /// Verify with the store, now, that the lease is held and lives at least so long: see [`Lease::gate`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let semel = semel::Semel::on(std::sync::Arc::new(semel::store::memory::Memory::new()));
    /// # let job = semel::Job::named("publish").once().build()?;
    /// use std::time::Duration;
    ///
    /// let outcome = semel
    ///     .run(&job, async |run| {
    ///         run.gate(Duration::from_secs(10)).await?;
    ///         // what takes at most ten seconds, and cannot check a token
    ///         Ok::<_, semel::Shut>(())
    ///     })
    ///     .await;
    /// assert!(outcome.is_done());
    /// # Ok(())
    /// # }
    /// ```
    pub fn gate(&self, need: Duration) -> impl Future<Output = Result<Verified, Shut>> + Send + use<> {
        self.lease.gate(need)
    }

    /// The lease: its token is what a fenced target checks.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let semel = semel::Semel::on(std::sync::Arc::new(semel::store::memory::Memory::new()));
    /// let job = semel::Job::named("publish").once().resource("website").build()?;
    /// let outcome = semel
    ///     .run(&job, async |run| {
    ///         assert_eq!(run.lease().resource().as_str(), "website");
    ///         Ok::<_, std::io::Error>(run.lease().token().value())
    ///     })
    ///     .await;
    /// assert_eq!(outcome.value(), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// What is being done; `None` for a lease without a ledger.
    pub fn work(&self) -> Option<&Work> {
        self.lease.desk().begin().work.as_ref()
    }

    /// What was decided before the first attempt ([`JobBuilder::choose`], [`JobBuilder::recent`]), the same for every
    /// attempt on every machine; nothing if nothing was to be decided.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let semel = semel::Semel::on(std::sync::Arc::new(semel::store::memory::Memory::new()));
    /// let job = semel::Job::named("publish").slot("2026-06-19").choose("topic", &["rust", "sql", "git"]).build()?;
    /// let outcome = semel
    ///     .run(&job, async |run| {
    ///         let topic = run.plan().and_then(|plan| plan.text("topic")).unwrap_or_default();
    ///         Ok::<_, std::io::Error>(topic)
    ///     })
    ///     .await;
    /// assert!(outcome.value().is_some_and(|topic| ["rust", "sql", "git"].contains(&topic.as_str())));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`JobBuilder::choose`]: super::JobBuilder::choose
    /// [`JobBuilder::recent`]: super::JobBuilder::recent
    pub fn plan(&self) -> Option<&Plan> {
        self.lease.desk().begin().plan.as_ref()
    }

    /// A number below 2^53 that is the same for every attempt at this work, for whatever is to be drawn by chance;
    /// `None` for a lease without a ledger.
    pub fn seed(&self) -> Option<u64> {
        let pinned = self.plan().and_then(Plan::seed);
        pinned.or_else(|| self.work().map(|work| plan::seed(&work.key())))
    }

    /// 1 for the first attempt at this work.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}
