//! Making a plan: what the attempts at a work are to decide, decided before the first.
//!
//! ```text
//! look ──▶ it may be claimed, and no plan is pinned ──▶ make one ──▶ the claim's swap pins it
//! ```
//!
//! No lease is held while a plan is made: two runs that race may both make one. One of them writes its claim; the
//! other is refused, looks again and finds the plan that is pinned. A run that does nothing makes none.
//!
//! The works of the job are read page by page, and only the values that are asked for are kept. Not guaranteed: that
//! they are of one moment. What is done while they are read may be missed; it is as if the plan had been made before.

use semel_core::entry::State;
use semel_core::plan::{Choice, Plan, PlanError, Recent};
use semel_core::record::RecordKey;
use semel_core::work::Work;
use serde_json::{Map, Value};

use super::Engine;
use super::ledger::{PAGE, after};
use super::view::{LookError, seen_entry};

/// What a plan is to be made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanAsk {
    /// Choices, made by the key alone.
    pub choose: Vec<Choice>,
    /// Values of results of the job's last works that are done.
    pub recent: Vec<Recent>,
    /// What is known already: of a file, of a command.
    pub given: Map<String, Value>,
}

impl PlanAsk {
    /// The names that it will have, besides the seed's.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let choices = self.choose.iter().map(Choice::name);
        choices.chain(self.recent.iter().map(Recent::name)).chain(self.given.keys().map(String::as_str))
    }

    /// Whether the names can be in one plan.
    pub fn check(&self) -> Result<(), PlanError> {
        let plan = Plan::new(&semel_core::work::Key::from_bytes([0; 32]));
        self.names().try_fold(plan, |plan, name| plan.with(name, Value::Null)).map(drop)
    }
}

/// Why there is no plan. Nothing was claimed.
#[derive(Debug, thiserror::Error)]
pub enum Unplanned {
    /// What it is made of is wrong.
    #[error("{0}")]
    Wrong(String),
    /// The ledger cannot be read.
    #[error(transparent)]
    Look(#[from] LookError),
}

impl From<PlanError> for Unplanned {
    fn from(why: PlanError) -> Unplanned {
        Unplanned::Wrong(why.to_string())
    }
}

impl Engine {
    /// The plan of this work, as it would be made now. Nothing is written.
    pub async fn make_plan(&self, work: &Work, ask: &PlanAsk) -> Result<Plan, Unplanned> {
        let key = work.key();
        let mut plan = Plan::new(&key);
        for choice in &ask.choose {
            // a choice has options
            let chosen = choice.of(&key).unwrap_or_default();
            plan = plan.with(choice.name(), chosen.into())?;
        }
        let mut recalled: Vec<_> = ask.recent.iter().map(Recent::collect).collect();
        let prefix = RecordKey::entries_of(Some(work.job()));
        let mut from = None;
        while !recalled.is_empty() {
            let records = self.store.scan(&prefix, from.as_ref(), PAGE).await.map_err(LookError::from)?;
            for record in &records {
                let entry = seen_entry(record).map_err(LookError::from)?.value;
                if let (State::Done { .. }, Some(result)) = (&entry.state, &entry.result) {
                    let key = entry.work.key();
                    recalled.iter_mut().for_each(|recalled| recalled.saw(key, entry.changed_ms, result));
                }
            }
            from = after(&records, PAGE);
            if from.is_none() {
                break;
            }
        }
        for (recent, recalled) in ask.recent.iter().zip(recalled) {
            plan = plan.with(recent.name(), recalled.values()?)?;
        }
        for (name, value) in &ask.given {
            plan = plan.with(name, value.clone())?;
        }
        Ok(plan)
    }
}
