//! Two works in a row under one lease: the settle of the first leaves it, the claim of the second finds it by its nonce.
//!
//! ```text
//! holding ──finish──▶ sent, the lease kept ──▶ between ──look, decide──▶ sent ──▶ answered ──▶ holding the second
//!                                                │ ▲ busy, done, refused │
//!                                                │ └─────────────────────┘
//!                                                └──let go──▶ sent ──▶ idle
//! ```
//!
//! The worker does not look at its watch before it claims the second work: the rules alone must tell what has lapsed.
//! A second work that finds the lease gone goes on under a fresh token, if the resource is free.

use semel_core::claim::After;
use semel_core::entry::Ending;
use semel_core::lease::{Lease, SeenLease};
use semel_core::record::{Seen, Standing, Version};
use semel_core::token::Grant;

use super::config::Config;
use super::facts::Fact;
use super::requests::release;
use super::store::seen_lease;
use super::worker::{Active, Kept, Phase, Step, Worker, owner_of};
use super::world::World;

impl Worker {
    /// What becomes of the lease when its work has ended.
    pub fn after(&self) -> After {
        if self.kept().is_some() { After::Keep } else { After::Release { rest_ms: 0 } }
    }

    /// May it give back what it keeps?
    pub fn may_let_go(&self) -> bool {
        let waits =
            |phase: &Phase| matches!(phase, Phase::Between | Phase::Claiming { step: Step::Look, .. });
        self.active.as_ref().is_some_and(|active| active.kept.is_some() && waits(&active.phase))
    }
}

impl World {
    /// Another work follows: the lease is kept, unless it was lost.
    pub fn keep(&mut self, config: &Config, w: usize, ending: &Ending) {
        let Some(held) = self.workers[w].held() else { return };
        let kept = Kept {
            resource: held.resource,
            lease: held.lease.clone(),
            lease_version: held.lease_version,
            trust: held.trust,
        };
        let Some(active) = &mut self.workers[w].active else { return };
        let follows = config.roles[w].then.is_some() && !active.second && *ending != Ending::LeaseLost;
        active.kept = follows.then_some(kept);
    }

    /// The work is claimed under this grant: that of the lease that was kept, or a fresh one.
    pub fn take_up(&mut self, w: usize, grant: Grant) {
        let kept = self.workers[w].active.as_mut().and_then(|active| active.kept.take());
        if let Some(kept) = kept {
            let same = kept.lease.grant == grant;
            self.just.add(if same { Fact::KeptTakenUp } else { Fact::KeptClaimedAnew });
        }
    }

    /// Give back what was kept, as it was last seen.
    pub fn let_go(&mut self, w: usize) -> Option<()> {
        let Active { run, kept, phase, .. } = self.workers[w].active.as_mut()?;
        let Kept { resource, lease, lease_version, .. } = kept.take()?;
        let record = Seen { value: Lease::clone(&lease), version: Version::from(lease_version) };
        let seen = SeenLease { record, standing: Standing::Live { left_ms: 0 }, owner_gone: false };
        let grant = lease.grant;
        let message = release(Some(&seen), &grant, Some(&grant.nonce), resource, *run).ok()?;
        *phase = Phase::LettingGo { resource, grant, step: Step::Sent { message, pledge: None } };
        self.just.add(Fact::KeptLetGo);
        Some(())
    }

    /// Was it given back, or is it no longer ours?
    pub fn look_to_let_go(&mut self, config: &Config, w: usize) -> Option<()> {
        let Active { run, phase: Phase::LettingGo { resource, grant, .. }, .. } =
            self.workers[w].active.clone()?
        else {
            return None;
        };
        let me = owner_of(config.roles[w].host, run);
        let seen = self.store.leases[resource].as_ref().map(|row| seen_lease(row, &me, |o| self.is_gone(o)));
        match release(seen.as_ref(), &grant, Some(&grant.nonce), resource, run) {
            Ok(message) => *self.workers[w].step_mut()? = Step::Sent { message, pledge: None },
            Err(_) => self.workers[w].end(),
        }
        Some(())
    }
}
