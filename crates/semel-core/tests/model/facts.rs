//! What a step was: what must never be, and what must happen sometimes for a search to mean anything.

use semel_core::entry::State;
use semel_core::lease::Lease;

use super::store::{Body, ENTRIES, RESOURCES, Row, STEPS, Store};
use super::worker::{Message, Why};
use super::world::World;

#[derive(Clone, Copy, Debug)]
pub enum Fact {
    // never
    TokenDidNotGrow,
    LiveLeaseTaken,
    LiveRunChanged,
    LapsedLeaseUsed,
    StaleWriteHadEffect,
    DoneWasLeft,
    PlanMovedOn,
    PersonPassedOver,
    RanWithoutIntent,
    AcceptedAgain,
    AcceptedAfterDone,
    BusyWithTheDead,
    RecoveredTheDead,
    SettleDenied,
    SettleImagined,
    StaleStepSettle,
    StepClaimedByAZombie,
    StepClaimedBesideAnother,
    OwnStepTakenForLost,
    LostStepClaimed,
    DoubtedWithoutLoss,
    StepBegunAgain,
    StepRepeated,
    StepNotProbed,
    HolderRefused,
    ReleasedBeforeItsOutcome,
    // sometimes
    LapseTakenOver,
    DeadTakenOver,
    LostReplyRecovered,
    StaleSettleRefused,
    SettleRecognised,
    LateWriteApplied,
    RenewalRefused,
    SinkRefused,
    StepRefused,
    StepReplayed,
    StepRecovered,
    StepProbed,
    StepElsewhere,
    StaleStepSettleRefused,
    KeptTakenUp,
    KeptClaimedAnew,
    KeptLetGo,
    ForgottenRefused,
}

/// The facts of one step. Not kept for the next one, so that they do not multiply the states.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Facts(u64);

impl Facts {
    pub fn add(&mut self, fact: Fact) {
        self.0 |= 1 << fact as u64;
    }

    pub fn has(self, fact: Fact) -> bool {
        self.0 & (1 << fact as u64) != 0
    }
}

impl std::fmt::Debug for Facts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl World {
    /// What did the store just do at the word of this message? Judged by what stood there and what stands there
    /// now, without asking the rules.
    pub fn judge(&mut self, before: &Store, message: &Message) {
        for resource in 0..RESOURCES {
            self.judge_lease(before, message, resource);
        }
        for key in 0..ENTRIES {
            self.judge_entry(before, message, key);
        }
        for step in 0..STEPS {
            self.judge_step(before, message, step);
        }
        self.judge_order(message);
        if let (Body::Touch { resource, .. }, Some(grant)) = (&message.body, message.grant)
            && before.leases[*resource].as_ref().is_none_or(|row| row.value.grant != grant)
        {
            self.just.add(Fact::StaleWriteHadEffect);
        }
    }

    /// Is it held by a process that lives?
    fn is_at_work(&self, row: &Row<Lease>) -> bool {
        row.is_held() && row.value.hold.as_ref().is_some_and(|hold| !self.is_gone(&hold.owner))
    }

    fn judge_lease(&mut self, before: &Store, message: &Message, resource: usize) {
        let (was, is) = (&before.leases[resource], &self.store.leases[resource]);
        let Some(is) = is.as_ref().filter(|is| was.as_ref().is_none_or(|was| was.version != is.version))
        else {
            return;
        };
        let token = is.value.grant.token.value();
        let is_new = was.as_ref().is_none_or(|was| was.value.grant != is.value.grant);
        if let Some(was) = was {
            let is_mine = message.grant == Some(was.value.grant);
            if matches!(message.why, Why::Settle | Why::Release) && !is_mine {
                self.just.add(Fact::StaleWriteHadEffect);
            }
            if is_new && self.is_at_work(was) {
                self.just.add(Fact::LiveLeaseTaken);
            }
            if !is_new && is.value.hold.is_some() && !was.is_live() {
                self.just.add(Fact::LapsedLeaseUsed);
            }
            if is_new && was.value.hold.is_some() {
                self.just.add(if was.is_live() { Fact::DeadTakenOver } else { Fact::LapseTakenOver });
            }
        }
        if is_new {
            if token <= self.highest[resource] {
                self.just.add(Fact::TokenDidNotGrow);
            }
            self.highest[resource] = self.highest[resource].max(token);
        }
    }

    fn judge_entry(&mut self, before: &Store, message: &Message, key: usize) {
        let version = |row: &Option<Row<_>>| row.as_ref().map(|row| row.version);
        if version(&before.entries[key]) == version(&self.store.entries[key]) {
            return;
        }
        let by_a_person = message.why == Why::Verdict;
        if by_a_person {
            self.judged[key] += 1;
        }
        let Some(was) = &before.entries[key] else { return };
        let is_done = |row: &Row<semel_core::entry::Entry>| matches!(row.value.state, State::Done { .. });
        let left_done = is_done(was) && !self.store.entries[key].as_ref().is_some_and(is_done);
        if left_done && !by_a_person {
            self.just.add(Fact::DoneWasLeft);
        }
        let plan = self.store.entries[key].as_ref().and_then(|row| row.value.plan.as_ref());
        if was.value.plan.is_some() && was.value.plan.as_ref() != plan {
            self.just.add(Fact::PlanMovedOn);
        }
        if was.value.state.needs_a_person() && !by_a_person {
            self.just.add(Fact::PersonPassedOver);
        }
        let running = match &was.value.state {
            State::Running { resource, grant } => Some((resource, *grant)),
            _ => None,
        };
        let is_mine = running.is_some_and(|(_, grant)| message.grant == Some(grant));
        match message.why {
            Why::Settle if !is_mine => self.just.add(Fact::StaleWriteHadEffect),
            Why::StepSettle if !is_mine => self.just.add(Fact::StaleStepSettle),
            _ => {}
        }
        if let Some((resource, grant)) = running
            && !is_mine
            && let Some(lease) = &before.leases[super::store::resource_index(resource)]
            && lease.value.grant == grant
            && self.is_at_work(lease)
        {
            self.just.add(Fact::LiveRunChanged);
        }
    }
}
