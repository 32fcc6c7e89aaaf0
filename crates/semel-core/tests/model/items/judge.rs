//! What a step was, judged by what stood in the store before and after it, without asking the rules.

use semel_core::claim::Write;
use semel_core::entry::{Entry, State};
use semel_core::lease::Lease;
use semel_core::policy::OnLost;
use semel_core::token::Grant;

use super::super::store::{Changes, Row};
use super::super::worker::Run;
use super::{ITEMS, Items, LEASES, OWN, Store, World};

#[derive(Clone, Copy, Debug)]
pub enum Fact {
    // never
    TokenDidNotGrow,
    LiveLeaseTaken,
    LeaseShared,
    StaleWriteHadEffect,
    LiveItemChanged,
    DoneWasLeft,
    PersonPassedOver,
    OwnItemTakenForLost,
    ClaimedByAZombie,
    ClaimedWithoutItsLease,
    LostItemClaimed,
    DoubtedWithoutLoss,
    SettleImagined,
    SettleDenied,
    GlanceErred,
    BegunTwice,
    BegunAfterDone,
    BegunBesideAnother,
    BegunWithoutIntent,
    BegunAlthoughProbed,
    // sometimes
    TakenFromTheDead,
    TakenAfterALapse,
    LeftAlone,
    Waited,
    Repeated,
    Recovered,
    Probed,
    Grouped,
    Strayed,
    GivenBack,
    ClaimRefused,
    StaleSettleRefused,
    SettleRecognised,
    BegunAgain,
    LateArrived,
}

/// The facts of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Facts(u64);

impl Facts {
    pub fn add(&mut self, fact: Fact) {
        self.0 |= 1 << fact as u64;
    }

    pub fn has(self, fact: Fact) -> bool {
        self.0 & (1 << fact as u64) != 0
    }
}

fn is_by(entry: &Entry, run: Option<Run>) -> bool {
    entry.log.last().map(|last| last.owner.pid) == run.map(i32::from)
}

fn is_of(lease: &Lease, run: Option<Run>) -> bool {
    lease.hold.as_ref().map(|hold| hold.owner.pid) == run.map(i32::from)
}

impl World {
    /// The store makes these changes at the word of this runner, or of a person; or says which does not fit.
    pub fn make(&mut self, items: &Items, run: Option<Run>, writes: &[Write]) -> Result<Vec<i64>, usize> {
        let before = self.store.clone();
        let versions = self.store.swap(writes)?;
        for lease in 0..LEASES {
            self.judge_lease(&before, run, lease);
        }
        for item in 0..ITEMS {
            self.judge_entry(items, &before, run, item);
        }
        Ok(versions)
    }

    fn is_at_work(&self, row: &Row<Lease>) -> bool {
        row.is_held() && row.value.hold.as_ref().is_some_and(|hold| !self.is_gone(&hold.owner))
    }

    fn judge_lease(&mut self, before: &Store, run: Option<Run>, at: usize) {
        let (was, is) = (&before.leases[at], &self.store.leases[at]);
        let Some(is) = is.as_ref().filter(|is| was.as_ref().is_none_or(|was| was.version != is.version))
        else {
            return;
        };
        let token = is.value.grant.token.value();
        let is_new = was.as_ref().is_none_or(|was| was.value.grant != is.value.grant);
        let (mut facts, is_released) = (Vec::new(), is.value.hold.is_none());
        if let Some(was) = was {
            if is_new && self.is_at_work(was) {
                facts.push(Fact::LiveLeaseTaken);
            }
            if is_released && !is_of(&was.value, run) {
                facts.push(Fact::StaleWriteHadEffect);
            }
            let what = |row: &Row<Lease>| row.value.hold.as_ref().map(|hold| hold.what.clone());
            if !is_new && !is_released && was.is_live() && what(was) != what(is) {
                facts.push(Fact::LeaseShared);
            }
        }
        if is_new && token <= self.highest[at] {
            facts.push(Fact::TokenDidNotGrow);
        }
        self.highest[at] = self.highest[at].max(token);
        facts.into_iter().for_each(|fact| self.just.add(fact));
    }

    fn judge_entry(&mut self, items: &Items, before: &Store, run: Option<Run>, item: usize) {
        let (was, is) = (before.entries[item].clone(), self.store.entries[item].clone());
        let Some(is) = is.filter(|is| was.as_ref().is_none_or(|was| was.version != is.version)) else {
            return;
        };
        let is_done = |row: &Row<Entry>| matches!(row.value.state, State::Done { .. });
        let is_claim = matches!(is.value.state, State::Running { .. });
        let is_in_doubt = matches!(is.value.state, State::InDoubt { .. });
        self.truths[item].told |= is_done(&is) && run.is_some();
        if is_claim {
            self.judge_claim(items, before, run, &is);
        }
        let Some(was) = was else { return };
        let Some(by) = run else { return };
        if is_done(&was) && !is_done(&is) {
            self.just.add(Fact::DoneWasLeft);
        }
        if was.value.state.needs_a_person() {
            self.just.add(Fact::PersonPassedOver);
        }
        let is_mine = is_by(&was.value, run);
        match &was.value.state {
            State::Running { resource, grant } => {
                let lease = before.leases[super::lease_index(resource)].as_ref();
                let lease = lease.filter(|row| row.value.grant == *grant);
                let is_alive = lease.is_some_and(|row| self.is_at_work(row));
                match (is_mine, is_claim) {
                    (false, _) if is_alive => self.just.add(Fact::LiveItemChanged),
                    (true, true) => self.just.add(Fact::OwnItemTakenForLost),
                    (true, false) => self.was_settled(by, item),
                    (false, _) => {}
                }
                if !is_mine && is_claim {
                    let is_live = lease.is_some_and(Row::is_live);
                    self.just.add(if is_live { Fact::TakenFromTheDead } else { Fact::TakenAfterALapse });
                }
                if !is_mine && !is_claim && !is_in_doubt {
                    self.just.add(Fact::StaleWriteHadEffect);
                }
                if is_mine && is.value.log.len() < was.value.log.len() {
                    self.just.add(Fact::GivenBack);
                }
                if !is_mine && is_claim && items.on_lost == OnLost::Hold {
                    self.just.add(Fact::LostItemClaimed);
                }
            }
            State::Open { torn: true } | State::Failed { torn: true }
                if is_claim && items.on_lost == OnLost::Hold =>
            {
                self.just.add(Fact::LostItemClaimed);
            }
            State::Open { torn: false } | State::Failed { torn: false } if is_in_doubt => {
                self.just.add(Fact::DoubtedWithoutLoss);
            }
            _ => {}
        }
    }

    fn judge_claim(&mut self, items: &Items, before: &Store, run: Option<Run>, is: &Row<Entry>) {
        let State::Running { resource, grant } = &is.value.state else { return };
        let runners = before.leases[..OWN].iter().flatten();
        let is_held = runners.filter(|row| row.is_held()).any(|row| is_of(&row.value, run));
        // one change after another: the guard is a look at its place
        if !is_held && items.changes == Changes::AllOrNothing {
            self.just.add(Fact::ClaimedByAZombie);
        }
        if grant.token.value() > self.highest[super::lease_index(resource)] {
            self.just.add(Fact::ClaimedWithoutItsLease);
        }
    }

    /// An effect begins under this grant.
    pub fn judge_begin(&mut self, run: Run, item: usize, grant: &Grant) {
        let truth = self.truths[item].clone();
        if truth.by.contains(&run) {
            self.just.add(Fact::BegunTwice);
        }
        if truth.told {
            self.just.add(Fact::BegunAfterDone);
        }
        if truth.begun > 0 {
            self.just.add(Fact::BegunAgain);
        }
        if truth.happened {
            self.just.add(Fact::BegunAlthoughProbed);
        }
        let last = truth.last.filter(|last| *last != run);
        let others = self.runners.iter().filter_map(|runner| runner.active.as_ref());
        let mut others = others.filter(|active| Some(active.run) == last);
        let at_it = others.any(|active| match &active.jobs[item] {
            super::runner::Job::UnderWay(claimed) => active.trusts(claimed),
            _ => false,
        });
        if at_it {
            self.just.add(Fact::BegunBesideAnother);
        }
        let state = self.store.entries[item].as_ref().map(|row| &row.value.state);
        if !matches!(state, Some(State::Running { grant: running, .. }) if running == grant) {
            self.just.add(Fact::BegunWithoutIntent);
        }
        let truth = &mut self.truths[item];
        truth.by.push(run);
        truth.by.sort_unstable();
        (truth.begun, truth.last) = (truth.begun.saturating_add(1), Some(run));
    }
}
