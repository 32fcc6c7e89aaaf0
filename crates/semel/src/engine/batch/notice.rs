//! What a person is told of a batch: one notice of a kind for all of its items.
//!
//! The first item that needs a person is put on record as soon as its own outcome is, by a write of its own: a runner that
//! is killed later, or whose input never ends, has told of it. What failed and may be tried again is told at the end, in
//! one sum. A batch recovers when it came to its end without an anomaly; what needed a person does only if no item of it
//! does any more, whether or not this input had it.

use std::pin::Pin;

use semel_core::alarm::{self, Alarm, Anomaly, Kind};
use semel_core::item;
use semel_core::record::{RecordKey, Seen};

use super::super::view::LookError;
use super::super::{Engine, Event};
use super::state::State;
use super::{BatchEvent, BatchPlan, Batched, Counts, Stopped};

/// How many items are looked at together.
const PAGE: usize = 1_000;

type Noting<'a> = Pin<Box<dyn Future<Output = Result<(), LookError>> + Send + 'a>>;

/// The first items that need a person, to be put on record.
#[derive(Default)]
pub(super) struct Notices<'a> {
    /// Kinds that were met.
    met: Vec<Kind>,
    /// To be written.
    due: Vec<Anomaly>,
    noting: Option<Noting<'a>>,
}

impl<'a> Notices<'a> {
    /// The first of its kind is to be told, if anybody is.
    pub(super) fn meet(&mut self, plan: &BatchPlan, anomaly: impl FnOnce() -> Anomaly, kind: Kind) {
        if !plan.lanes.is_empty() && !self.met.contains(&kind) {
            self.met.push(kind);
            self.due.push(anomaly());
        }
    }

    /// Write what is due.
    pub(super) fn send(&mut self, engine: &'a Engine, plan: &'a BatchPlan) {
        if self.noting.is_none() && !self.due.is_empty() {
            let due = std::mem::take(&mut self.due);
            self.noting =
                Some(Box::pin(async move { engine.raise(plan.work.job(), &due, &plan.lanes).await }));
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.noting.is_none() && self.due.is_empty()
    }

    /// When something was written; for ever if nothing is.
    pub(super) async fn noted(&mut self) -> Result<(), LookError> {
        match &mut self.noting {
            Some(noting) => {
                let noted = noting.as_mut().await;
                self.noting = None;
                noted
            }
            None => std::future::pending().await,
        }
    }
}

impl<D> State<'_, D> {
    /// Something is on record for people.
    pub(super) fn noted(&mut self, noted: Result<(), LookError>) {
        match noted {
            Ok(()) => (self.tell)(BatchEvent::Runner(Event::Notices)),
            Err(why) => (self.tell)(BatchEvent::Runner(Event::JournalFailed(&why.to_string()))),
        }
    }
}

impl Engine {
    /// One notice for the whole batch.
    pub(super) async fn note_batch(&self, plan: &BatchPlan, batched: &Batched) -> Result<(), LookError> {
        if plan.lanes.is_empty() {
            return Ok(());
        }
        let Counts { done, skipped, failed, quarantined, in_doubt, .. } = batched.counts;
        let one = |kind, count: u64, what: &str| Anomaly {
            kind,
            work: plan.work.to_string(),
            at_ms: self.clock.wall_ms(),
            why: format!("{count} of its items {what}"),
            slots: 1,
        };
        let rows = [
            (Kind::Quarantined, quarantined, "failed too often and need a person"),
            (Kind::InDoubt, in_doubt, "are of unknown outcome and need a person"),
            (Kind::Failed, failed, "failed"),
        ];
        let anomalies: Vec<Anomaly> = rows
            .into_iter()
            .filter(|(_, count, _)| *count > 0)
            .map(|(kind, count, what)| one(kind, count, what))
            .collect();
        match anomalies.as_slice() {
            // one that was stopped has not come to what was wrong
            [] if done + skipped > 0 && batched.stopped == Stopped::AtTheEnd => self.note_well(plan).await,
            [] => Ok(()),
            found => self.raise(plan.work.job(), found, &plan.lanes).await,
        }
    }

    /// All went well, with the items of this input.
    async fn note_well(&self, plan: &BatchPlan) -> Result<(), LookError> {
        let (job, work) = (plan.work.job(), plan.work.to_string());
        let seen: Option<Seen<Alarm>> = self.alarm(&RecordKey::alarm(job)).await?;
        let Some(seen) = seen else { return Ok(()) };
        if alarm::needs_person(&seen.value, &work) && self.has_item_for_person(plan).await? {
            return self.recover_job(job, &plan.work, &plan.lanes).await;
        }
        self.recover(job, &plan.work, &plan.lanes).await
    }

    /// Does any item of the batch need a person, also one that was not in the input?
    async fn has_item_for_person(&self, plan: &BatchPlan) -> Result<bool, LookError> {
        let prefix = RecordKey::items_of(&plan.work);
        let mut from: Option<RecordKey> = None;
        loop {
            let page = self.store.scan(&prefix, from.as_ref(), PAGE).await?;
            let needs_one = |state: &str| matches!(state, "quarantined" | "in_doubt");
            if page.iter().any(|record| item::brief(&record.value).is_some_and(|(_, state)| needs_one(state)))
            {
                return Ok(true);
            }
            match page.last() {
                Some(last) => from = Some(last.key.clone()),
                None => return Ok(false),
            }
        }
    }
}
