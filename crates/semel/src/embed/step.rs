//! A step of a run: an effect that is done once, and its value kept.
//!
//! ```text
//! claimed ──▶ effect ──Ok(value)──▶ done, with the value ──▶ replayed by every later run
//!                    ──Err────────▶ failed ──▶ called again
//!                    ──dropped, or its process gone──▶ vanished ──▶ in doubt │ probe │ called again
//! ```
//!
//! A step that is dropped at any await is recorded as what is known of it; see [`Flight`].

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use semel_core::claim::First;
use semel_core::entry::{Ending, Entry, Output};
use semel_core::name::Name;
use semel_core::policy::OnLost;
use semel_core::work::Key;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::lease::Lease;
use super::outcome::{keep, why};
use crate::engine::Unsettled;
use crate::engine::desk::{Desk, StepBegin, StepEnd, StepPlan, StepRefusal, Ticket};

/// Why a step has no value, by what to do next. `E` is the effect's own error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepError<E> {
    /// The effect failed, and that is on record: it is called again by the next run, or by this one if it asks again.
    Failed(E),
    /// It cannot be known whether it happened, or somebody said so: end the run; a person decides with
    /// `semel resolve`.
    NeedsPerson {
        /// The step, in its readable form.
        what: String,
        /// Why.
        why: String,
    },
    /// The run no longer holds its lease: end it. If the effect was called, the next run decides what became of it.
    LeaseLost(String),
    /// The store cannot be reached. The effect was not called: end the run, or ask again.
    StoreDown(String),
    /// The effect was called, and how it ended could not be recorded: end the run, the next one decides.
    Unrecorded(String),
    /// It is done, and its value was not kept: it was too large, or no JSON, or a person said that it was done.
    /// Nothing was called.
    NotKept(String),
    /// It is done, and the value on record is no `T`. Nothing was called. A step whose type changes needs a new name.
    OtherType(String),
    /// The name was used before in this run: rename the second use, or [number](Step::nth) it.
    Twice(String),
    /// There can be no such step: a name that is none, or a run that has no steps.
    Wrong(String),
}

impl<E: std::fmt::Display> std::fmt::Display for StepError<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StepError::Failed(error) => write!(f, "{error}"),
            StepError::NeedsPerson { what, why } => {
                write!(f, "{what} needs a person: {why}; look with semel why, decide with semel resolve")
            }
            StepError::LeaseLost(why)
            | StepError::StoreDown(why)
            | StepError::NotKept(why)
            | StepError::OtherType(why)
            | StepError::Twice(why)
            | StepError::Wrong(why) => f.write_str(why),
            StepError::Unrecorded(why) => write!(f, "how the step ended could not be recorded: {why}"),
        }
    }
}

impl<E: std::fmt::Display + std::fmt::Debug> std::error::Error for StepError<E> {}

/// What a probe found in the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// It happened, and this is its value.
    Happened(T),
    /// It did not happen: the effect is called.
    DidNot,
    /// It cannot be told, for this reason: a person is needed.
    Unknown(String),
}

/// A step to be done. See [`Run::at`](super::Run::at).
#[derive(Debug)]
#[must_use = "run() does it"]
pub struct Step<'r> {
    lease: &'r Lease,
    name: String,
    nth: u32,
    on_lost: OnLost,
}

impl<'r> Step<'r> {
    pub(super) fn new(lease: &'r Lease, name: &str) -> Step<'r> {
        Step { lease, name: name.to_owned(), nth: 1, on_lost: OnLost::Hold }
    }

    /// Which use of the name this is, from 1. The number must be the same on every retry: take it from what is done,
    /// not from the order in which it happens to be done.
    pub fn nth(mut self, nth: u32) -> Step<'r> {
        self.nth = nth;
        self
    }

    /// The effect may happen twice without harm (an upload to a fixed name, a request with an
    /// [idempotency key](Step::idempotency_key)): if its outcome is unknown it is called again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let semel = semel::Semel::on(std::sync::Arc::new(semel::store::memory::Memory::new()));
    /// # let job = semel::Job::named("bill").key("order-17").build()?;
    /// # type Any = Box<dyn std::error::Error + Send + Sync>;
    /// # async fn charge(_: &str) -> Result<String, std::io::Error> { Ok("ch_1".into()) }
    /// let outcome = semel
    ///     .run(&job, async |run| -> Result<String, Any> {
    ///         let step = run.at("charge").idempotent();
    ///         // sent as the Idempotency-Key of the request: the same on every retry
    ///         let key = step.idempotency_key()?.to_string();
    ///         Ok(step.run(async || charge(&key).await).await?)
    ///     })
    ///     .await;
    /// assert_eq!(outcome.value().as_deref(), Some("ch_1"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn idempotent(mut self) -> Step<'r> {
        self.on_lost = OnLost::Retry;
        self
    }

    /// The key to send along with the effect's request: the key of the step's work, the same on every retry and on
    /// every machine, and another one for every step, number and work.
    pub fn idempotency_key(&self) -> Result<Key, StepError<std::convert::Infallible>> {
        let plan = self.plan()?;
        self.lease.desk().step_work(&plan).map(|work| work.key()).map_err(refused)
    }

    /// Do it, or replay its value: see [`Run::step`](super::Run::step).
    pub async fn run<T, E, F, R>(self, effect: F) -> Result<T, StepError<E>>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> R,
        R: Future<Output = Result<T, E>>,
    {
        let plan = self.plan()?;
        match claim(self.lease.desk(), plan).await? {
            Begun::Replayed(value) => Ok(value),
            Begun::Flight(flight) => finish(flight, effect).await,
        }
    }

    /// Do it, or replay its value; and if the outcome of an earlier attempt is unknown, ask the world first.
    ///
    /// The probe is asked only then. What it finds to have happened is recorded with the value that it answers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let semel = semel::Semel::on(std::sync::Arc::new(semel::store::memory::Memory::new()));
    /// # let job = semel::Job::named("bill").key("order-18").build()?;
    /// # type Any = Box<dyn std::error::Error + Send + Sync>;
    /// # async fn find(_: &str) -> Result<Option<String>, std::io::Error> { Ok(None) }
    /// # async fn order(_: &str) -> Result<String, std::io::Error> { Ok("o_9".into()) }
    /// use semel::Found;
    ///
    /// let outcome = semel
    ///     .run(&job, async |run| -> Result<String, Any> {
    ///         let probe = async || match find("18").await {
    ///             Ok(Some(id)) => Found::Happened(id),
    ///             Ok(None) => Found::DidNot,
    ///             Err(why) => Found::Unknown(why.to_string()),
    ///         };
    ///         Ok(run.at("order").probe_or_run(probe, async || order("18").await).await?)
    ///     })
    ///     .await;
    /// assert_eq!(outcome.value().as_deref(), Some("o_9"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn probe_or_run<T, E, P, Q, F, R>(mut self, probe: P, effect: F) -> Result<T, StepError<E>>
    where
        T: Serialize + DeserializeOwned,
        P: FnOnce() -> Q,
        Q: Future<Output = Found<T>>,
        F: FnOnce() -> R,
        R: Future<Output = Result<T, E>>,
    {
        self.on_lost = OnLost::Probe;
        let plan = self.plan()?;
        let flight = match claim(self.lease.desk(), plan).await? {
            Begun::Replayed(value) => return Ok(value),
            Begun::Flight(flight) => flight,
        };
        if flight.first() == First::Run {
            return finish(flight, effect).await;
        }
        match probe().await {
            Found::DidNot => finish(flight, effect).await,
            Found::Happened(value) => {
                let end = flight.end(Ending::ProbedDone, Some(&value));
                flight.settle(end).await.map(|_| value)
            }
            Found::Unknown(answer) => {
                let end = flight.end::<()>(Ending::ProbedUnknown { answer }, None);
                let entry = flight.settle(end).await?;
                Err(StepError::NeedsPerson { what: entry.work.to_string(), why: why(&entry) })
            }
        }
    }

    fn plan<E>(&self) -> Result<StepPlan, StepError<E>> {
        let name = Name::new(&self.name)
            .map_err(|why| StepError::Wrong(format!("the step {:?}: {why}", self.name)))?;
        Ok(StepPlan { name, nth: self.nth, on_lost: self.on_lost, command: None })
    }
}

#[allow(clippy::large_enum_variant)] // one per step
enum Begun<T> {
    Replayed(T),
    Flight(Flight),
}

async fn claim<T: DeserializeOwned, E>(desk: &Arc<Desk>, plan: StepPlan) -> Result<Begun<T>, StepError<E>> {
    let mut flight = Flight::new(desk, plan);
    match flight.claimed().await.map_err(refused)? {
        None => Ok(Begun::Flight(flight)),
        Some(StepBegin::Person(entry)) => {
            Err(StepError::NeedsPerson { what: entry.work.to_string(), why: why(&entry) })
        }
        Some(StepBegin::Replay(entry)) => replay(entry).map(Begun::Replayed),
        // a rehearsal is the command line's
        Some(StepBegin::Would(what)) => {
            Err(StepError::Wrong(format!("this is a rehearsal: it would {what}")))
        }
        Some(StepBegin::Run(_)) => Err(StepError::Wrong("the step was claimed twice".to_owned())),
    }
}

/// Call the effect and record what came of it.
async fn finish<T, E, F, R>(flight: Flight, effect: F) -> Result<T, StepError<E>>
where
    T: Serialize,
    F: FnOnce() -> R,
    R: Future<Output = Result<T, E>>,
{
    match effect().await {
        Ok(value) => {
            let end = flight.end(Ending::Succeeded, Some(&value));
            flight.settle(end).await.map(|_| value)
        }
        Err(error) => {
            let end = flight.end::<()>(Ending::Failed { code: 1 }, None);
            flight.settle(end).await?;
            Err(StepError::Failed(error))
        }
    }
}

fn replay<T: DeserializeOwned, E>(entry: Entry) -> Result<T, StepError<E>> {
    let Entry { work, result, output, .. } = entry;
    if let (None, Some(Output { kept: false, out_bytes, .. })) = (&result, &output) {
        return Err(StepError::NotKept(format!(
            "{work} is done, and its value of {out_bytes} bytes was not kept: let the step return a path or an id instead"
        )));
    }
    let without = result.is_none();
    // nothing is what is kept of ()
    serde_json::from_value(result.unwrap_or(Value::Null)).map_err(|why| match without {
        true => StepError::NotKept(format!("{work} is done, and there is no value of it on record")),
        false => {
            StepError::OtherType(format!("{work} is done, and its value on record is of another type: {why}"))
        }
    })
}

fn refused<E>(why: StepRefusal) -> StepError<E> {
    match why {
        StepRefusal::Stale(why) => StepError::LeaseLost(why),
        StepRefusal::StoreDown(why) => StepError::StoreDown(why),
        StepRefusal::Twice { name, next } => StepError::Twice(format!(
            "the step {name} is used twice in this run: rename the second use, or number it with nth({next}), the same on every retry"
        )),
        StepRefusal::NoStepsHere(_) => StepError::Wrong(
            "a job that is run always has no steps: it is never retried, so there is nothing to replay"
                .to_owned(),
        ),
        StepRefusal::Wrong(why) => StepError::Wrong(why),
    }
}

fn unsettled<E>(why: Unsettled) -> StepError<E> {
    match why {
        Unsettled::Stale(stale) => StepError::LeaseLost(stale.to_string()),
        Unsettled::StoreDown(why) | Unsettled::Unusable(why) => StepError::Unrecorded(why),
    }
}

type Owned<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A step between its claim and its end. Dropped on the way, it records in the background what is known: a claim
/// that nobody waits for any more was not begun, an effect that nobody waits for any more has vanished, and what
/// was being recorded goes on being recorded. The run waits a moment for that before it gives its lease back.
///
/// Where there is no runtime left to do so in, the next run finds the step lost: in doubt, the same in the end.
struct Flight {
    desk: Arc<Desk>,
    stage: Stage,
}

#[allow(clippy::large_enum_variant)] // one per step
enum Stage {
    Claiming(Owned<Result<StepBegin, StepRefusal>>),
    Running(Ticket),
    Settling(Owned<Result<Entry, Unsettled>>),
    Over,
}

impl Flight {
    fn new(desk: &Arc<Desk>, plan: StepPlan) -> Flight {
        let owned = Arc::clone(desk);
        let claiming = Box::pin(async move { owned.claim(&plan).await });
        Flight { desk: Arc::clone(desk), stage: Stage::Claiming(claiming) }
    }

    /// What may be done; `None` if it is ours to do.
    async fn claimed(&mut self) -> Result<Option<StepBegin>, StepRefusal> {
        let begun = poll_fn(|cx| match &mut self.stage {
            Stage::Claiming(claiming) => claiming.as_mut().poll(cx),
            _ => Poll::Pending,
        })
        .await;
        self.stage = Stage::Over;
        match begun? {
            StepBegin::Run(ticket) => {
                self.stage = Stage::Running(ticket);
                Ok(None)
            }
            other => Ok(Some(other)),
        }
    }

    fn first(&self) -> First {
        match &self.stage {
            Stage::Running(ticket) => ticket.first,
            _ => First::Run,
        }
    }

    /// How it ended, with its value if that can be kept.
    fn end<T: Serialize>(&self, ending: Ending, value: Option<&T>) -> StepEnd {
        let mut end = StepEnd::of(ending);
        match (value.map(keep), &self.stage) {
            (Some(Ok(value)), _) => end.result = Some(value),
            // the effect has happened: it is done, and the value is missed only by a later run
            (Some(Err(unkept)), Stage::Running(ticket)) => {
                let out_bytes = unkept.bytes;
                end.output = Some(Output { of: ticket.of, pieces: 0, out_bytes, err_bytes: 0, kept: false });
            }
            _ => {}
        }
        end
    }

    async fn settle<E>(mut self, end: StepEnd) -> Result<Entry, StepError<E>> {
        let Stage::Running(ticket) = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Err(StepError::Wrong("the step was settled twice".to_owned()));
        };
        let owned = Arc::clone(&self.desk);
        self.stage = Stage::Settling(Box::pin(async move { owned.settle(ticket, end).await }));
        let settled = poll_fn(|cx| match &mut self.stage {
            Stage::Settling(settling) => settling.as_mut().poll(cx),
            _ => Poll::Pending,
        })
        .await;
        self.stage = Stage::Over;
        settled.map_err(unsettled)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        if matches!(stage, Stage::Over) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let desk = Arc::clone(&self.desk);
        runtime.spawn(async move {
            match stage {
                Stage::Claiming(claiming) => {
                    if let Ok(StepBegin::Run(ticket)) = claiming.await {
                        // not begun, and so not lost; if that cannot be recorded, the next run finds it lost
                        let end = StepEnd::of(Ending::NotStarted { code: 1 });
                        let _ = desk.settle(ticket, end).await;
                    }
                }
                Stage::Running(ticket) => desk.abandon(ticket).await,
                Stage::Settling(settling) => drop(settling.await),
                Stage::Over => {}
            }
        });
    }
}
