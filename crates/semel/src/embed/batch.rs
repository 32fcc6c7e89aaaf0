//! Many items in one go, each done once.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use semel_core::work::{Fields, Work};
use serde::Serialize;
use serde_json::Value;

use super::batch_of::{BatchOf, ResourceOf};
use super::run::Run;
use super::{Job, Semel, ms, outcome};
use crate::clock::Moment;
use crate::engine::batch::{BatchPlan, BatchReport, Doer, Item, Stopped};
use crate::engine::desk::Desk;
use crate::engine::{Begin, Caught, NotStarted, Probed, Task, TaskEnd};

/// How many errors of items are handed back; the others are only counted.
pub const ERRORS_KEPT: usize = 100;

const PANICKED: TaskEnd = TaskEnd::Killed(libc::SIGABRT);
const DROPPED: TaskEnd = TaskEnd::Killed(libc::SIGKILL);

/// A batch to be run. See [`Semel::batch`].
#[derive(Clone, Debug)]
#[must_use = "run() does it"]
pub struct Batch<'a> {
    pub(super) semel: &'a Semel,
    job: &'a Job,
    workers: usize,
    share: bool,
    stop_after: u32,
    pause_ms: Option<u64>,
    wait_ms: Option<u64>,
    pub(super) resource_of: Option<ResourceOf>,
}

/// What came of a batch.
#[derive(Debug)]
#[must_use = "items may have failed"]
pub struct BatchOutcome<E> {
    /// What came of its items, and why it ended.
    pub report: BatchReport,
    /// The first errors, each with its item; at most [`ERRORS_KEPT`].
    pub errors: Vec<(Work, E)>,
}

impl<E> BatchOutcome<E> {
    /// Is every item of the input done, by this runner or another?
    pub fn is_all_done(&self) -> bool {
        match &self.report {
            BatchReport::Ran(ran) => {
                let c = ran.counts;
                let open = c.failed + c.quarantined + c.in_doubt + c.mismatched;
                let left = c.busy + c.held + c.interrupted + c.unrecorded + c.bad;
                ran.stopped == Stopped::AtTheEnd && open + left == 0
            }
            BatchReport::NotRun(_) => false,
        }
    }
}

/// What an item may be known by.
pub trait IntoFields {
    /// Its key fields.
    fn into_fields(self) -> Fields;
}

impl IntoFields for Fields {
    fn into_fields(self) -> Fields {
        self
    }
}

impl<const N: usize, V: Into<Value>> IntoFields for [(&str, V); N] {
    fn into_fields(self) -> Fields {
        self.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    }
}

macro_rules! one_field {
    ($($kind:ty),*) => {$(
        /// One field, `id`.
        impl IntoFields for $kind {
            fn into_fields(self) -> Fields {
                BTreeMap::from([("id".to_owned(), self.into())])
            }
        }
    )*};
}

one_field!(&str, String, u32, u64, i32, i64);

/// An item, as its body sees it.
#[derive(Debug)]
pub struct BatchItem<T> {
    value: Arc<T>,
    run: Run,
}

impl<T> BatchItem<T> {
    /// The attempt at it, whose steps are done once: see [`Run::step`].
    pub fn run(&self) -> &Run {
        &self.run
    }
}

impl<T> Deref for BatchItem<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl Semel {
    /// Do many items, each once, under one lease: see [`Batch::run`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use semel::{Job, Semel};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("ledger.db");
    ///
    /// let semel = Semel::sqlite(&path)?;
    /// let job = Job::named("thumbnails").once().build()?;
    /// let pictures = || [("a.png", 1), ("b.png", 2), ("a.png", 1)];
    ///
    /// let first = semel
    ///     .batch(&job)
    ///     .workers(8)
    ///     .run(pictures(), async |size| match *size {
    ///         2 => Err("no room"),
    ///         size => Ok(size),
    ///     })
    ///     .await;
    /// assert_eq!((first.errors[0].1, first.errors[0].0.to_string().as_str()), ("no room", "thumbnails;id=b.png"));
    ///
    /// // what is done is done: only the other one is tried again
    /// let second = semel.batch(&job).run(pictures(), async |size| Ok::<_, &str>(*size)).await;
    /// assert!(second.is_all_done());
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch<'a>(&'a self, job: &'a Job) -> Batch<'a> {
        Batch {
            semel: self,
            job,
            workers: 1,
            share: false,
            stop_after: 0,
            pause_ms: None,
            wait_ms: None,
            resource_of: None,
        }
    }
}

impl<'a> Batch<'a> {
    /// With its items, where more is to be said of them than their keys.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use semel::{Found, Job, Semel};
    /// # let dir = tempfile::tempdir()?;
    /// # let semel = Semel::sqlite(dir.path().join("ledger.db"))?;
    /// # async fn is_published(text: &str) -> bool { false }
    /// let job = Job::named("posts").once().build()?;
    /// let ran = semel
    ///     .batch(&job)
    ///     .items([("a", "text of a"), ("b", "text of b"), ("a", "another text")])
    ///     .payload_of(|text| text.to_string())
    ///     .probe(async |text| if is_published(*text).await { Found::Happened(()) } else { Found::DidNot })
    ///     .on_item(|work, fate| println!("{work}: {fate:?}"))
    ///     .run(async |text| Ok::<_, String>(text.len()))
    ///     .await;
    /// assert!(!ran.is_all_done(), "a has been given two texts");
    /// # Ok(())
    /// # }
    /// ```
    pub fn items<K, T, I: IntoIterator<Item = (K, T)>>(self, items: I) -> BatchOf<'a, T, I> {
        BatchOf::new(self, items)
    }

    /// So many items are under way at a time; one if nothing is said.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Other runners, here or on other machines, may be at the same batch: each item is done by one of them.
    pub fn share(mut self) -> Self {
        self.share = true;
        self
    }

    /// After so many failures in a row begin nothing for this long, then try one item; stop if no pause is given.
    pub fn stop_after(mut self, failures: u32, pause: Option<Duration>) -> Self {
        (self.stop_after, self.pause_ms) = (failures, pause.map(ms));
        self
    }

    /// At the end wait at most so long for items that other runners have under way; as long as it takes if nothing is
    /// said.
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.wait_ms = Some(ms(at_most));
        self
    }

    /// Lease a resource for each item, on top of the runner's own lease: two items of one resource are never under way
    /// at a time, in any runner. The item's [`Run`] has its token: see [`Run::lease`]. Named by the key fields; a name
    /// that is none makes the item a bad one, which is not run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use semel::{Job, Semel};
    /// # let dir = tempfile::tempdir()?;
    /// # let semel = Semel::sqlite(dir.path().join("ledger.db"))?;
    /// let job = Job::named("posts").once().build()?;
    /// let posts = [([("site", "a"), ("slug", "x")], ()), ([("site", "b"), ("slug", "y")], ())];
    /// let ran = semel
    ///     .batch(&job)
    ///     .workers(8)
    ///     .resource_of(|key| format!("site/{}", key["site"].as_str().unwrap_or_default()))
    ///     .run(posts, async |item| Ok::<_, String>(item.run().lease().resource().to_string()))
    ///     .await;
    /// assert!(ran.is_all_done());
    /// # Ok(())
    /// # }
    /// ```
    pub fn resource_of(mut self, name: impl Fn(&Fields) -> String + Send + Sync + 'static) -> Self {
        self.resource_of = Some(ResourceOf(Arc::new(name)));
        self
    }

    /// Do each item once: `Ok` is done, `Err` has failed, and is tried by the next run until
    /// [`JobBuilder::max_failures`](super::JobBuilder::max_failures) is reached. A panic is a failure of its item whose
    /// effect is unknown.
    ///
    /// The bodies are polled in turns by the task that awaits this; what needs processors of its own spawns. Dropped, it
    /// stops at once: the items that were under way are taken over by the next run.
    ///
    /// The iterator is asked by that task too: one that blocks keeps the heartbeat and all bodies waiting, and after a ttl
    /// its lease is lost. Collect first what is slow to come by. It is read once: more than
    /// [`LATER_LIMIT`](crate::engine::batch::LATER_LIMIT) items that other runners have under way are counted as busy.
    pub fn run<K, T, V, E, F, R, I>(
        self,
        items: I,
        body: F,
    ) -> impl Future<Output = BatchOutcome<E>> + use<K, T, V, E, F, R, I>
    where
        K: IntoFields,
        T: Send + Sync,
        V: Serialize,
        F: Fn(BatchItem<T>) -> R,
        R: Future<Output = Result<V, E>>,
        I: IntoIterator<Item = (K, T)>,
    {
        self.items(items).run(body)
    }

    pub(super) fn plan(&self) -> Result<BatchPlan, String> {
        let now_ms = self.semel.engine().clock.wall_ms();
        let (plan, _) = self.job.plan_at(now_ms).map_err(|why| why.to_string())?;
        let work = plan.work.ok_or("a lease has no items")?;
        Ok(BatchPlan {
            work,
            resources: plan.resources,
            share: self.share,
            workers: self.workers,
            policy: plan.policy,
            command: None,
            definition: None,
            nested: None,
            stop_after: self.stop_after,
            pause_ms: self.pause_ms,
            wait_ms: self.wait_ms,
            start_within_ms: plan.start_within_ms,
            lanes: Vec::new(),
        })
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) type Errors<E> = Arc<Mutex<Vec<(Work, E)>>>;

/// How the world is asked about an item.
pub(super) type ProbeOf<T> =
    Arc<dyn Fn(Arc<T>) -> Pin<Box<dyn Future<Output = Probed> + Send>> + Send + Sync>;

pub(super) struct Bodies<T, F, E> {
    pub(super) body: Arc<F>,
    pub(super) probe: Option<ProbeOf<T>>,
    pub(super) errors: Errors<E>,
}

impl<T, V, E, F, R> Doer<Arc<T>> for Bodies<T, F, E>
where
    V: Serialize,
    F: Fn(BatchItem<T>) -> R,
    R: Future<Output = Result<V, E>>,
{
    type Task = Body<T, E, F, R>;

    fn task(&mut self, item: &Item<Arc<T>>) -> Body<T, E, F, R> {
        Body {
            body: Arc::clone(&self.body),
            probe: self.probe.clone(),
            errors: Arc::clone(&self.errors),
            value: Arc::clone(&item.data),
            work: item.work.clone(),
            run: None,
            future: None,
            result: None,
        }
    }
}

pub(super) struct Body<T, E, F, R> {
    body: Arc<F>,
    probe: Option<ProbeOf<T>>,
    errors: Errors<E>,
    value: Arc<T>,
    work: Work,
    run: Option<Run>,
    future: Option<Pin<Box<R>>>,
    result: Option<Value>,
}

impl<T, V, E, F, R> Body<T, E, F, R>
where
    V: Serialize,
    F: Fn(BatchItem<T>) -> R,
    R: Future<Output = Result<V, E>>,
{
    fn said(&mut self, said: Result<V, E>) -> TaskEnd {
        match said {
            Ok(value) => {
                // what cannot be kept is not: the item is done all the same
                self.result = outcome::keep_or_say(&value).ok();
                TaskEnd::Exited(0)
            }
            Err(error) => {
                let mut errors = locked(&self.errors);
                if errors.len() < ERRORS_KEPT {
                    errors.push((self.work.clone(), error));
                }
                TaskEnd::Exited(1)
            }
        }
    }
}

impl<T, V, E, F, R> Task for Body<T, E, F, R>
where
    V: Serialize,
    F: Fn(BatchItem<T>) -> R,
    R: Future<Output = Result<V, E>>,
{
    async fn start(&mut self, begin: &Begin, desk: &Arc<Desk>) -> Result<(), NotStarted> {
        (self.run, self.future) = (Some(Run::new(begin, desk)), None);
        Ok(())
    }

    /// Nobody else keeps the time: it is asked for before every poll.
    fn trust_until(&mut self, _: Moment) {}

    async fn ended(&mut self) -> TaskEnd {
        poll_fn(|cx| {
            let Some(run) = &self.run else { return Poll::Ready(DROPPED) };
            // the runner's own timer wakes it for that
            if run.lease().is_trusted().is_err() {
                return Poll::Pending;
            }
            let polled = catch_unwind(AssertUnwindSafe(|| {
                let (body, value) = (&self.body, &self.value);
                let item = || BatchItem { value: Arc::clone(value), run: run.clone() };
                self.future.get_or_insert_with(|| Box::pin(body(item()))).as_mut().poll(cx)
            }));
            let end = match polled {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(said)) => self.said(said),
                Err(_) => PANICKED,
            };
            (self.run, self.future) = (None, None);
            Poll::Ready(end)
        })
        .await
    }

    fn signal(&mut self, _: Caught) {}

    async fn stop(&mut self, _: Duration) -> TaskEnd {
        (self.run, self.future) = (None, None);
        DROPPED
    }

    async fn clear(&mut self, _: Duration) -> usize {
        0
    }

    fn result(&mut self) -> Option<Value> {
        self.result.take()
    }

    async fn probe(&mut self, _: &Begin) -> Probed {
        match &self.probe {
            Some(probe) => probe(Arc::clone(&self.value)).await,
            None => Probed::Unknown("an item has no probe".to_owned()),
        }
    }
}
