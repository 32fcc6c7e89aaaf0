//! Drives a body beside its run: both in one task, the run first.
//!
//! ```text
//! the run's future ──start──▶ the body's future is made ──ended──▶ settled
//!                  ──stop───▶ the body's future is dropped
//! ```
//!
//! The body is polled only while its lease is trusted: a process that was stopped for longer than that does not
//! come back into the middle of its body.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use semel_core::plan::Plan;
use semel_core::work::Work;
use serde_json::Value;

use super::run::Run;
use crate::clock::Moment;
use crate::engine::desk::Desk;
use crate::engine::{
    Begin, Caught, Engine, NotStarted, PlanAsk, Probed, Report, RunPlan, Task, TaskEnd, Undisturbed,
    Unplanned,
};

/// What came of a run.
pub(super) struct Driven<T, E> {
    pub(super) report: Report,
    /// What the body said, if it came to its end.
    pub(super) said: Option<Result<T, E>>,
    /// Why its value is not on record.
    pub(super) not_kept: Option<String>,
}

/// A panic is recorded as what it does to a process.
const PANICKED: TaskEnd = TaskEnd::Killed(libc::SIGABRT);
const DROPPED: TaskEnd = TaskEnd::Killed(libc::SIGKILL);

/// What the run and its body tell each other.
#[derive(Default)]
struct Wire {
    start: Option<Run>,
    /// A body exists.
    alive: bool,
    stop: bool,
    end: Option<TaskEnd>,
    /// The body's value, as it is kept.
    result: Option<Value>,
}

/// The run's end of the wire.
struct Body {
    wire: Arc<Mutex<Wire>>,
    /// What is decided before the first attempt.
    decide: Option<PlanAsk>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a body is no longer polled.
#[allow(clippy::large_enum_variant)] // one per body
enum Over<T, E> {
    /// The whole run is.
    Reported(Report),
    Said(Result<T, E>),
    Panicked(Box<dyn Any + Send>),
    Stopped,
}

/// The run alone. Boxed, and of a type without parameters: so that it is known to be `Send` here, whatever the body
/// is.
fn running(engine: Engine, plan: RunPlan, mut task: Body) -> Pin<Box<dyn Future<Output = Report> + Send>> {
    Box::pin(async move { engine.run(&plan, &mut task, &mut Undisturbed, &mut |_| {}).await })
}

/// Claim, call the body, settle.
pub(super) async fn drive<T, E, F, R>(
    engine: Engine,
    plan: RunPlan,
    decide: Option<PlanAsk>,
    mut body: F,
    keep: fn(&T) -> Result<Value, String>,
) -> Driven<T, E>
where
    F: FnMut(Run) -> R,
    R: Future<Output = Result<T, E>>,
{
    let wire = Arc::<Mutex<Wire>>::default();
    let mut running = running(engine, plan, Body { wire: Arc::clone(&wire), decide });
    let (mut last, mut not_kept, mut panicked) = (None, None, None);
    let report = loop {
        let begun = poll_fn(|cx| match running.as_mut().poll(cx) {
            Poll::Ready(report) => Poll::Ready(Err(report)),
            Poll::Pending => match locked(&wire).start.take() {
                Some(run) => Poll::Ready(Ok(run)),
                None => Poll::Pending,
            },
        });
        let run = match begun.await {
            Ok(run) => run,
            Err(report) => break report,
        };
        (last, not_kept) = (None, None);
        let over = {
            // called when it is first polled: what it does before its future is made is the body's too
            let mut body = pin!(async { body(run.clone()).await });
            poll_fn(|cx| watch(running.as_mut(), &wire, &run, body.as_mut(), cx)).await
            // dropped here, and only then said to be gone
        };
        let (end, result) = match over {
            Over::Reported(report) => break report,
            Over::Said(said) => {
                let end = TaskEnd::Exited(i32::from(said.is_err()));
                let kept = said.as_ref().ok().map(keep).transpose();
                last = Some(said);
                (
                    end,
                    kept.unwrap_or_else(|why| {
                        not_kept = Some(why);
                        None
                    }),
                )
            }
            Over::Panicked(panic) => {
                panicked = Some(panic);
                (PANICKED, None)
            }
            Over::Stopped => (DROPPED, None),
        };
        let mut wire = locked(&wire);
        (wire.alive, wire.end, wire.result) = (false, Some(end), result);
    };
    match panicked {
        Some(panic) => resume_unwind(panic),
        None => Driven { report, said: last, not_kept },
    }
}

/// The run first, then its body.
fn watch<T, E>(
    running: Pin<&mut (dyn Future<Output = Report> + Send)>,
    wire: &Mutex<Wire>,
    run: &Run,
    body: Pin<&mut impl Future<Output = Result<T, E>>>,
    cx: &mut Context<'_>,
) -> Poll<Over<T, E>> {
    if let Poll::Ready(report) = running.poll(cx) {
        return Poll::Ready(Over::Reported(report));
    }
    if locked(wire).stop {
        return Poll::Ready(Over::Stopped);
    }
    // the run's own timer wakes it for that
    if run.lease().is_trusted().is_err() {
        return Poll::Pending;
    }
    match catch_unwind(AssertUnwindSafe(|| body.poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(said)) => Poll::Ready(Over::Said(said)),
        Err(panic) => Poll::Ready(Over::Panicked(panic)),
    }
}

impl Task for Body {
    async fn plan(&mut self, engine: &Engine, work: &Work) -> Result<Option<Plan>, Unplanned> {
        match &self.decide {
            Some(decide) => engine.make_plan(work, decide).await.map(Some),
            None => Ok(None),
        }
    }

    async fn start(&mut self, begin: &Begin, desk: &Arc<Desk>) -> Result<(), NotStarted> {
        let mut wire = locked(&self.wire);
        *wire = Wire { start: Some(Run::new(begin, desk)), alive: true, ..Wire::default() };
        Ok(())
    }

    /// Nobody else keeps the time: [`watch`] asks before every poll.
    fn trust_until(&mut self, _: Moment) {}

    async fn ended(&mut self) -> TaskEnd {
        // the driver polls the run again after every change of the wire, so nobody needs to be woken
        poll_fn(|_| locked(&self.wire).end.map_or(Poll::Pending, Poll::Ready)).await
    }

    fn signal(&mut self, _: Caught) {}

    async fn stop(&mut self, _: Duration) -> TaskEnd {
        locked(&self.wire).stop = true;
        poll_fn(|_| {
            let mut wire = locked(&self.wire);
            // it was to be started, and was not yet
            if wire.start.take().is_some() {
                wire.alive = false;
            }
            if wire.alive { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        locked(&self.wire).end.unwrap_or(DROPPED)
    }

    async fn clear(&mut self, _: Duration) -> usize {
        0
    }

    fn result(&mut self) -> Option<Value> {
        locked(&self.wire).result.take()
    }

    /// A job has no probe: [`JobBuilder::build`](super::JobBuilder::build) sees to it.
    async fn probe(&mut self, _: &Begin) -> Probed {
        Probed::Unknown("a job has no probe".to_owned())
    }
}
