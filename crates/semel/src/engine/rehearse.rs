//! A rehearsal: the task runs, nothing is claimed, and what is inside it says what it would do.
//!
//! The ledger is looked at and not written. The task is told no token: a target that checks one refuses it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use semel_core::plan::Plan;
use semel_core::token::{Grant, Nonce, Token};

use super::desk::Desk;
use super::socket::Service;
use super::{Begin, Engine, NotStarted, RunPlan, Signals, Task, TaskEnd, draw_nonce};

impl Engine {
    /// Run the task as if: nested commands are answered with what they would do.
    pub async fn rehearse(
        &self,
        plan: &RunPlan,
        attempt: u32,
        task: &mut impl Task,
        signals: &mut impl Signals,
    ) -> Result<TaskEnd, NotStarted> {
        let failed = |why: String| NotStarted { code: 126, why, of_machine: true };
        let nonce = draw_nonce().map_err(failed)?;
        let Some(resource) = plan.resources.first().cloned() else {
            return Err(failed("no resource was asked for".into()));
        };
        // a grant that nobody was given; the task does not hear of it
        let grant = Grant { token: Token::FIRST, nonce: Nonce::clone(&nonce) };
        let pinned = self.rehearse_plan(plan, task).await.map_err(|why| NotStarted {
            code: 65,
            why,
            of_machine: false,
        })?;
        let begin = Begin { work: plan.work.clone(), resource, grant, attempt, plan: pinned, within: None };
        let desk = Arc::new(Desk::rehearsal(self, begin.clone(), &plan.policy));
        let folder = plan.nested.as_deref().unwrap_or(Path::new("."));
        let service =
            Service::open(&desk, folder).map_err(|why| failed(format!("{}: {why}", folder.display())))?;
        task.start(&begin, &desk).await?;
        let grace = Duration::from_millis(plan.policy.kill_after_ms);
        let end = loop {
            tokio::select! {
                end = task.ended() => break end,
                caught = signals.next() => {
                    task.signal(caught);
                    if caught.ends {
                        break task.stop(grace).await;
                    }
                }
            }
        };
        task.clear(grace).await;
        service.close().await;
        Ok(end)
    }

    /// The plan that is pinned, or the one that would be.
    async fn rehearse_plan(&self, plan: &RunPlan, task: &mut impl Task) -> Result<Option<Plan>, String> {
        let Some(work) = &plan.work else { return Ok(None) };
        let entry = self.look(Some(work), &[]).await.map_err(|why| why.to_string())?.entry;
        match entry.and_then(|seen| seen.value.plan) {
            Some(pinned) => Ok(Some(pinned)),
            None => task.plan(self, work).await.map_err(|why| why.to_string()),
        }
    }
}
