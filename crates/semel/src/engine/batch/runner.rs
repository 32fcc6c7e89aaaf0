//! The runner: its lease, from the claim to the release, and the report.

use std::sync::Arc;
use std::time::Duration;

use semel_core::claim::Busy;
use semel_core::item::runner_names;
use semel_core::name::Name;
use semel_core::policy::IfBusy;
use semel_core::record::Standing;
use serde_json::Value;

use super::super::claim::Claimed;
use super::super::desk::Desk;
use super::super::view::LookError;
use super::super::{
    Begin, Caught, Engine, NotStarted, Probed, Report, RunPlan, Signals, Task, TaskEnd, draw_nonce,
};
use super::dispatch::dispatch;
use super::{BatchEvent, BatchPlan, BatchReport, Doer, ItemSource, RUNNERS_LIMIT, TellBatch, WORKERS_LIMIT};
use crate::clock::Moment;

impl Engine {
    /// Do the items of this source, each once. Or say why not.
    pub async fn batch<S: ItemSource>(
        &self,
        plan: &BatchPlan,
        source: S,
        doer: &mut impl Doer<S::Data>,
        signals: &mut impl Signals,
        tell: TellBatch<'_, S::Data>,
    ) -> BatchReport {
        if let Err(why) = check(plan) {
            return BatchReport::NotRun(Report::Unusable(why));
        }
        let claimed = match self.claim_runner(plan, signals, tell).await {
            Ok(claimed) => claimed,
            Err(report) => return BatchReport::NotRun(report),
        };
        tell(BatchEvent::Started);
        if plan.workers > 1 {
            self.store.expect_many();
        }
        let batched = dispatch(self, plan, *claimed.held, source, doer, signals, tell).await;
        if let Err(why) = self.note_batch(plan, &batched).await {
            tell(BatchEvent::Runner(super::super::Event::JournalFailed(&why.to_string())));
        }
        BatchReport::Ran(batched)
    }

    /// The runner's lease, as the policy for a busy one says.
    #[allow(clippy::result_large_err)] // a report is made once per batch
    async fn claim_runner<D>(
        &self,
        plan: &BatchPlan,
        signals: &mut impl Signals,
        tell: TellBatch<'_, D>,
    ) -> Result<Claimed, Report> {
        let shared = runner_names(plan.work.job(), RUNNERS_LIMIT);
        let (resources, others) = match plan.share {
            true => (shared, plan.resources.clone()),
            false => (plan.resources.clone(), shared),
        };
        let began = self.clock.now();
        self.others_leave(plan, &others, signals).await?;
        let waited_ms = u64::try_from(began.until(self.clock.now()).as_millis()).unwrap_or(u64::MAX);
        let lease = RunPlan {
            work: None,
            what: plan.work.to_string(),
            resources,
            policy: plan.policy.clone(),
            payload: None,
            command: plan.command.clone(),
            definition: None,
            nested: None,
            start_within_ms: plan.start_within_ms.map(|within| within.saturating_sub(waited_ms)),
            scheduled: None,
            lanes: Vec::new(),
        };
        let nonce = draw_nonce().map_err(Report::Unusable)?;
        self.claim(&lease, nonce, &mut NoTask, signals, &mut |event| tell(BatchEvent::Runner(event))).await
    }

    /// One that shares stands down before one that does not, and the other way round.
    #[allow(clippy::result_large_err)] // a report is made once per batch
    async fn others_leave(
        &self,
        plan: &BatchPlan,
        others: &[Name],
        signals: &mut impl Signals,
    ) -> Result<(), Report> {
        let began = self.clock.now();
        loop {
            let Some(busy) = self.held_by_others(others).await? else { return Ok(()) };
            let left = match plan.policy.if_busy {
                IfBusy::Fail => return Err(Report::Busy(busy)),
                IfBusy::Skip => Duration::ZERO,
                IfBusy::Wait { for_ms } => self.clock.now().until(began.plus_ms(for_ms)),
            };
            if left.is_zero() {
                return Err(Report::Yielded(busy));
            }
            if plan.start_within_ms.is_some_and(|within| self.clock.now() >= began.plus_ms(within)) {
                return Err(Report::TooLate);
            }
            tokio::select! {
                () = tokio::time::sleep(left.min(GONE_CHECK)) => {}
                caught = signals.next() => return Err(Report::Interrupted(caught.signal)),
            }
        }
    }

    #[allow(clippy::result_large_err)] // a report is made once per batch
    pub(super) async fn held_by_others(&self, others: &[Name]) -> Result<Option<Busy>, Report> {
        let view = self.look(None, others).await.map_err(|why| match why {
            LookError::Record(why) => Report::Unusable(why.to_string()),
            LookError::Store(why) => Report::StoreDown(why.to_string()),
        })?;
        let busy = view.leases.into_iter().find_map(|(resource, seen)| {
            let seen = seen.filter(|seen| seen.is_held() && !seen.owner_gone)?;
            let wait_ms = match seen.standing {
                Standing::Live { left_ms } => left_ms,
                Standing::Lapsed { .. } => 0,
            };
            let (grant, hold) = (seen.record.value.grant, seen.record.value.hold?);
            let held = semel_core::lease::Held { hold, token: grant.token, wait_ms, draining: false };
            Some(Busy { resource, held, same_work: false })
        });
        Ok(busy)
    }
}

const GONE_CHECK: Duration = Duration::from_millis(500);

fn check(plan: &BatchPlan) -> Result<(), String> {
    if plan.work.is_always() || !plan.work.item().is_empty() || plan.work.step().is_some() {
        return Err(format!("{} cannot have items: a batch is of a job, a slot or parameters", plan.work));
    }
    if plan.workers == 0 || plan.workers > WORKERS_LIMIT {
        return Err(format!("{} workers: from 1 to {WORKERS_LIMIT} are possible", plan.workers));
    }
    Ok(())
}

/// A lease has no task of its own.
struct NoTask;

impl Task for NoTask {
    async fn start(&mut self, _: &Begin, _: &Arc<Desk>) -> Result<(), NotStarted> {
        Ok(())
    }

    fn trust_until(&mut self, _: Moment) {}

    async fn ended(&mut self) -> TaskEnd {
        std::future::pending().await
    }

    fn signal(&mut self, _: Caught) {}

    async fn stop(&mut self, _: Duration) -> TaskEnd {
        TaskEnd::Exited(0)
    }

    async fn clear(&mut self, _: Duration) -> usize {
        0
    }

    fn result(&mut self) -> Option<Value> {
        None
    }

    async fn probe(&mut self, _: &Begin) -> Probed {
        Probed::Unknown("a lease has no probe".to_owned())
    }
}
