//! Which items are looked at and claimed next: as many as workers want, and those first whose resources are free.

use semel_core::item;
use semel_core::policy::OnLost;
use tokio::time::Instant;

use super::dispatch::LINGER;
use super::look::{PAGE, Unseen};
use super::state::State;
use super::worker::Claimed;
use super::{BYTES_LIMIT, Fate, Item};

/// The most claims ahead, in multiples of the workers, where items are shorter than a commit.
const AHEAD: u64 = 8;

impl<D> State<'_, D> {
    /// How many items are to be claimed and not begun: one for each worker; more where many are known to end within a
    /// commit, unless a person would be asked about each that is lost, or another runner could do them meanwhile.
    pub(super) fn ahead(&self) -> usize {
        let workers = self.site.plan.workers;
        let Some(item_us) = self.item_us.filter(|_| !self.site.plan.share) else { return workers };
        if self.terms.on_lost == OnLost::Hold {
            return workers;
        }
        let item_us = item_us.max(1);
        // as many as end while an outcome waits for others, where several do: workers that ran out of claims would have one
        // sent at once, and nearly each item a commit of its own
        let linger_us = u64::try_from(LINGER.as_micros()).unwrap_or(u64::MAX);
        let least = if self.others_end_soon() { (linger_us / item_us).clamp(2, AHEAD) } else { 1 };
        let times = (self.commit_us / item_us).clamp(least, AHEAD);
        workers.saturating_mul(usize::try_from(times).unwrap_or(1))
    }

    /// Workers would wait for a claim if it were not sent now: as many end during a commit as are ready to begin.
    pub(super) fn is_short_of_work(&self) -> bool {
        let Some(item_us) = self.item_us else { return self.claiming > 0 };
        let (ready, workers) = (self.ready.len() as u64, self.site.plan.workers as u64);
        self.claiming > 0 && ready.saturating_mul(item_us) <= workers.saturating_mul(self.commit_us)
    }

    /// Another item may end so soon that an outcome waits for it. Where items take longer, what waits is only what a
    /// crash would have done twice.
    pub(super) fn others_end_soon(&self) -> bool {
        let workers = self.site.plan.workers as u64;
        self.item_us.is_some_and(|item_us| u128::from(item_us / workers.max(1)) < LINGER.as_micros())
    }

    pub(super) fn commit_took(&mut self, us: u64) {
        self.commit_us = (self.commit_us * 7 + us) / 8;
    }

    /// Is there nothing to be written, looked at or begun?
    pub(super) fn is_idle(&self) -> bool {
        let is_looked_at = self.fresh.is_empty() && self.to_look.is_empty() && !self.waiting.has_next();
        is_looked_at && self.queue.is_empty() && self.ready.is_empty() && self.strays.is_empty()
    }

    /// How many are on their way to a worker.
    fn coming(&self) -> usize {
        self.ready.len() + self.claiming + self.looking + self.to_look.len()
    }

    /// Is there room for more of the input?
    pub(super) fn wants_input(&self) -> bool {
        self.fresh.len() < PAGE && self.fresh_bytes < BYTES_LIMIT / 4 && !self.waiting.is_full()
    }

    /// Decide about as many as are wanted, where so many workers are free.
    pub(super) fn fill(&mut self, free: usize) {
        if self.stopping.is_some() {
            return;
        }
        if self.coming() < free {
            let due = self.waiting.due(Instant::now());
            self.to_look.extend(due);
        }
        let ahead = self.ahead();
        loop {
            let coming = self.coming();
            if coming < free
                && let Some(unseen) = self.waiting.next()
            {
                self.look_or_wait(unseen);
                continue;
            }
            if coming == 0 && free > 0 {
                let left_over = self.waiting.left_over();
                self.to_look.extend(left_over);
            }
            let coming = self.coming();
            let Some(candidate) = self.fresh.front() else { return };
            // nobody else could use what is leased ahead of a worker
            let target = if candidate.item.resource.is_some() { free } else { ahead };
            if coming >= target {
                return;
            }
            let Some(candidate) = self.fresh.pop_front() else { return };
            self.fresh_bytes -= candidate.item.bytes;
            if candidate.fresh {
                self.decide(candidate);
            } else {
                self.look_or_wait(candidate.into());
            }
        }
    }

    /// Look at it, unless the resource that it names is known to be held.
    fn look_or_wait(&mut self, unseen: Unseen<D>) {
        let resource = unseen.item.resource.clone();
        match resource.filter(|resource| !unseen.again && !self.waiting.is_free(resource)) {
            Some(resource) => self.waiting.add(resource, unseen),
            None => self.to_look.push_back(unseen),
        }
    }

    /// When those that wait for what others hold are looked at again, where so many workers are free.
    pub(super) fn waiting_until(&self, free: usize) -> Option<Instant> {
        self.waiting.due_at().filter(|_| self.stopping.is_none() && self.coming() < free)
    }

    /// There is nothing else to do, since then: leave those that wait for what others hold, as the policy says.
    pub(super) fn leave_held(&mut self, since: Instant, waited_ms: u64) {
        let plan = self.site.plan;
        let too_long = plan.wait_ms.is_some_and(|wait_ms| waited_ms >= wait_ms);
        let left = self.waiting.leave(since, |hold| {
            !too_long && item::is_awaited(hold, &plan.work, &plan.policy.if_busy, waited_ms)
        });
        left.iter().for_each(|unseen| self.held(&unseen.item));
    }

    /// Somebody holds what it names.
    pub(super) fn held(&mut self, item: &Item<D>) {
        self.known.remove(&item.key);
        self.counts.held += 1;
        self.fate(item, Fate::Held);
    }

    /// What an item took is given back, or was not had after all.
    pub(super) fn give_back_own(&mut self, claimed: &Claimed<D>) {
        if let Some(own) = &claimed.own {
            self.own.remove(own);
            self.waiting.give_back(&own.resource);
        }
    }
}
