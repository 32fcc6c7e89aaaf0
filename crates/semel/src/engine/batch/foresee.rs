//! What a start of a batch would do with its items, decided by the rule that decides it then. Nothing is written.

use semel_core::claim::{Busy, First};
use semel_core::entry::Terms;
use semel_core::item::{self, ItemAsk, ItemDecision, Own, Under, runner_names};
use semel_core::name::Name;
use semel_core::record::{RecordKey, Version};
use semel_core::story::Next;
use semel_core::token::{Grant, Nonce, Token};

use super::super::view::LookError;
use super::super::{Engine, Report};
use super::look::{Candidate, Found, look, unseen};
use super::{Bad, BatchPlan, Item, ItemIn, RUNNERS_LIMIT};

/// A grant that nobody has.
const NOBODYS: Grant = Grant { token: Token::FIRST, nonce: Nonce::from_bytes([0; 16]) };

/// What would become of an item.
#[derive(Clone, Debug)]
pub struct Foreseen<D> {
    /// Which.
    pub item: Item<D>,
    /// What would be done with it.
    pub next: Next,
    /// It is wrong input, or its key is bound to another payload.
    pub is_wrong: bool,
}

impl Engine {
    /// Who would keep a start of this batch from beginning now.
    #[allow(clippy::result_large_err)] // once per batch
    pub async fn foresee_busy(&self, plan: &BatchPlan) -> Result<Option<Busy>, Report> {
        let mut names = plan.resources.clone();
        if !plan.share {
            names.extend(runner_names(plan.work.job(), RUNNERS_LIMIT));
        }
        self.held_by_others(&names).await
    }

    /// What a start of this batch would do with these items, if nothing keeps it from beginning. What cannot be an item
    /// is handed back with why.
    pub async fn foresee<D>(
        &self,
        plan: &BatchPlan,
        busy: Option<&Busy>,
        items: Vec<ItemIn<D>>,
    ) -> Result<(Vec<Foreseen<D>>, Vec<Bad>), LookError> {
        let (mut known, mut bad) = (Vec::new(), Vec::new());
        let prefix = RecordKey::items_of(&plan.work);
        for item in items {
            match unseen(&plan.work, &prefix, item) {
                Ok(unseen) => known.push(unseen),
                Err(why) => bad.push(why),
            }
        }
        let found = look(self, &NOBODYS, known, true).await.map_err(|(_, why)| why)?;
        let shown = shown_runner(plan);
        // what runs under a lease that a live one holds is not lost
        let runner = if busy.is_some() || plan.share { nobody(plan) } else { shown.clone() };
        let foreseen = found.into_iter().map(|found| match found {
            Found::Done(item, _) => {
                Foreseen { item, next: Next::Skip { remembered_until_ms: None }, is_wrong: false }
            }
            Found::Look(candidate) => self.foresee_one(plan, &runner, &shown, candidate),
        });
        Ok((foreseen.collect(), bad))
    }

    fn foresee_one<D>(
        &self,
        plan: &BatchPlan,
        runner: &Name,
        shown: &Name,
        candidate: Candidate<D>,
    ) -> Foreseen<D> {
        let (ttl_ms, lock_delay_ms) = (plan.policy.ttl_ms, plan.policy.lock_delay_ms);
        let item = &candidate.item;
        let decision = item::claim(
            &candidate.view(),
            &ItemAsk {
                work: &item.work,
                runner: Under {
                    resource: runner,
                    grant: &NOBODYS,
                    lease: &Version::new(""),
                    owner: &self.me,
                },
                own: item.resource.as_ref().map(|resource| Own { resource, ttl_ms, lock_delay_ms }),
                terms: &Terms::of(&plan.policy),
                payload: item.payload.as_ref(),
                command: plan.command.as_ref(),
                definition: plan.definition.as_ref(),
                now_ms: self.clock.wall_ms(),
            },
        );
        let resource = item.resource.as_ref().unwrap_or(shown).clone();
        let is_wrong = matches!(decision, ItemDecision::Wrong(_) | ItemDecision::Mismatch { .. });
        Foreseen { next: next(decision, resource), is_wrong, item: candidate.item }
    }
}

fn next(decision: ItemDecision, resource: Name) -> Next {
    match decision {
        ItemDecision::Claim(claim) => {
            let attempt = claim.entry.attempts;
            match claim.first {
                First::Probe => Next::Probe { resource, attempt },
                First::Run => Next::Run { resource, attempt, after_lost: claim.after_lost },
            }
        }
        ItemDecision::Done(_) | ItemDecision::Repeated(_) => Next::Skip { remembered_until_ms: None },
        ItemDecision::Held { resource, held } => Next::Yield(Busy { resource, held, same_work: false }),
        ItemDecision::Busy { resource } | ItemDecision::LookAt(resource) => {
            Next::Refuse(format!("another runner is at it, holding {resource}"))
        }
        ItemDecision::Mine(_) => Next::Refuse("it is under way".to_owned()),
        ItemDecision::Wrong(why) => Next::Refuse(why),
        ItemDecision::Person(entry) | ItemDecision::Doubt { entry, .. } => Next::Person(entry.state),
        ItemDecision::Mismatch { changes, entry } => {
            let fields: Vec<&str> = changes.iter().map(|change| change.pointer.as_str()).collect();
            Next::Refuse(format!(
                "it was given other fields before ({}), and is {}",
                fields.join(", "),
                entry.state.word()
            ))
        }
    }
}

/// What a runner holds.
fn shown_runner(plan: &BatchPlan) -> Name {
    let shared = plan.share.then(|| runner_names(plan.work.job(), 1).pop()).flatten();
    shared.or_else(|| plan.resources.first().cloned()).unwrap_or_else(|| plan.work.job().clone())
}

/// A name that no item runs under: there are never so many runners.
fn nobody(plan: &BatchPlan) -> Name {
    let names = runner_names(plan.work.job(), RUNNERS_LIMIT + 1);
    names.into_iter().last().unwrap_or_else(|| plan.work.job().clone())
}
