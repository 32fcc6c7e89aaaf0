//! What a runner knows of its items, and what it decides about each. No waiting here.

use std::collections::{HashMap, VecDeque};
use std::mem::take;

use semel_core::alarm::{Anomaly, Kind};
use semel_core::breaker::{Breaker, Gate};
use semel_core::claim::First;
use semel_core::entry::{Ending, Entry, State as EntryState, Terms};
use semel_core::item::{self, ItemAsk, ItemClaim, ItemDecision, Own, Under};
use semel_core::payload::Fingerprint;
use semel_core::policy::OnLost;
use semel_core::record::{Seen, Version};
use semel_core::work::Key;
use tokio::sync::watch;

use super::commit::{End, Group, Op, Unsent};
use super::later::{Later, Second};
use super::look::{Candidate, Found, Read, Unseen};
use super::notice::Notices;
use super::own::{OwnLeases, lease_of, stray};
use super::waiting::Waiting;
use super::worker::{Claimed, Control, Ended, Outcome, Site};
use super::{Bad, BatchEvent, Counts, Fate, Item, Stopped, TellBatch};
use crate::clock::Moment;
use crate::store::Change;

/// An outcome that is known is worth some patience even when the lease has run out.
const PATIENCE_MS: u64 = 5_000;

/// How far the input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Input,
    Ended,
    /// It was read, and cannot be read again.
    Over,
}

pub(super) struct State<'a, D> {
    pub(super) site: &'a Site<'a>,
    pub(super) tell: TellBatch<'a, D>,
    pub(super) counts: Counts,
    pub(super) terms: Terms,
    /// Items that were met and are not settled yet.
    pub(super) known: HashMap<Key, Option<Fingerprint>>,
    /// Looked at, to be claimed; and their bytes.
    pub(super) fresh: VecDeque<Candidate<D>>,
    pub(super) fresh_bytes: usize,
    /// To be looked at again.
    pub(super) to_look: VecDeque<Unseen<D>>,
    /// To be written.
    pub(super) queue: VecDeque<Op<D>>,
    /// Claims among those, and under way.
    pub(super) claiming: usize,
    /// Candidates whose look is under way.
    pub(super) looking: usize,
    /// Claimed, to be begun.
    pub(super) ready: VecDeque<Claimed<D>>,
    pub(super) later: Later<D>,
    /// Those that wait for resources.
    pub(super) waiting: Waiting<D>,
    /// What the items hold of their own.
    pub(super) own: OwnLeases,
    /// What gives back the leases of claims that came to nothing after all.
    pub(super) strays: Vec<Change>,
    pub(super) reading: Reading,
    pub(super) stopping: Option<Stopped>,
    pub(super) breaker: Breaker,
    pub(super) second: Option<Second>,
    /// The input could not be read to its end.
    pub(super) is_broken: bool,
    /// What an item and a commit take, in microseconds: a mean that forgets.
    pub(super) item_us: Option<u64>,
    pub(super) commit_us: u64,
    pub(super) trust_ends: Moment,
    pub(super) notices: Notices<'a>,
}

impl<'a, D> State<'a, D> {
    pub(super) fn new(
        site: &'a Site<'a>,
        tell: TellBatch<'a, D>,
        control: &watch::Receiver<Control>,
    ) -> State<'a, D> {
        let plan = site.plan;
        let trust_ends = control.borrow().trust_ends;
        State {
            site,
            tell,
            counts: Counts::default(),
            terms: Terms::of(&plan.policy),
            known: HashMap::new(),
            fresh: VecDeque::new(),
            fresh_bytes: 0,
            to_look: VecDeque::new(),
            queue: VecDeque::new(),
            claiming: 0,
            looking: 0,
            ready: VecDeque::new(),
            later: Later::new(),
            waiting: Waiting::new(),
            own: OwnLeases::new(site.engine, &plan.policy, control.clone()),
            strays: Vec::new(),
            reading: Reading::Input,
            stopping: None,
            breaker: Breaker::new(plan.stop_after, plan.pause_ms),
            second: None,
            is_broken: false,
            item_us: None,
            commit_us: 1_000,
            trust_ends,
            notices: Notices::default(),
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.site.engine.clock.now().as_since_boot().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn fate(&mut self, item: &Item<D>, fate: Fate<'_>) {
        (self.tell)(BatchEvent::Item { item, fate });
    }

    /// What the reader hands over.
    pub(super) fn read(&mut self, read: Read<D>) {
        match read {
            Read::Page { found, bad, again } => {
                for bad in &bad {
                    self.bad(bad, again);
                }
                self.page(found, again);
            }
            Read::End => {
                if self.second.is_none() {
                    (self.tell)(BatchEvent::Read);
                }
                self.reading = Reading::Ended;
            }
            Read::NoMore => self.cut_second(),
            Read::Failed(why) => {
                self.reading = Reading::Over;
                self.stop(Stopped::Unusable(why.to_string()));
            }
        }
    }

    fn page(&mut self, found: Vec<Found<D>>, again: bool) {
        let mut candidates = Vec::with_capacity(found.len());
        for one in found {
            match one {
                Found::Done(..) if again => {}
                Found::Done(item, known) => self.done(&item, known.ours),
                Found::Look(mut candidate) => {
                    candidate.fresh = !self.site.plan.share && candidate.item.resource.is_none();
                    candidate.again = again;
                    candidates.push(candidate);
                }
            }
        }
        if self.site.plan.share {
            // so that those who share do not all begin at the same end
            let nonce = self.site.begin.grant.nonce.to_string();
            let mine = nonce.get(..16).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_default();
            candidates.sort_by_key(|one| {
                (u64::from_be_bytes(first_bytes(one.item.key.as_bytes())) ^ mine)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            });
        }
        for candidate in candidates {
            if let Some(candidate) = self.admit(candidate) {
                self.fresh_bytes += candidate.item.bytes;
                self.fresh.push_back(candidate);
            }
        }
    }

    fn done(&mut self, item: &Item<D>, ours: bool) {
        if ours {
            self.counts.duplicates += 1;
            self.fate(item, Fate::Duplicate);
        } else {
            self.counts.skipped += 1;
            self.fate(item, Fate::Skipped);
        }
    }

    /// Items whose key is under way come to nothing.
    fn admit(&mut self, candidate: Candidate<D>) -> Option<Candidate<D>> {
        let item = &candidate.item;
        let Some(bound) = self.known.get(&item.key) else {
            self.known.insert(item.key, item.payload.clone());
            return Some(candidate);
        };
        if candidate.again {
            return None;
        }
        let changes = match (bound, &item.payload) {
            (Some(bound), Some(offered)) => bound.diff(offered),
            _ => Vec::new(),
        };
        if changes.is_empty() {
            self.done(item, true);
        } else {
            self.counts.mismatched += 1;
            self.fate(item, Fate::Mismatch { changes: &changes, entry: None });
        }
        None
    }

    /// A second look at some came back.
    pub(super) fn looked(&mut self, found: Vec<Found<D>>) {
        for one in found {
            match one {
                Found::Done(item, known) => {
                    self.known.remove(&item.key);
                    if !known.again {
                        self.done(&item, known.ours && !known.met);
                    }
                }
                Found::Look(candidate) => self.decide(candidate),
            }
        }
    }

    pub(super) fn decide(&mut self, mut candidate: Candidate<D>) {
        let site = self.site;
        let runner = Under {
            resource: &site.begin.resource,
            grant: &site.begin.grant,
            lease: &site.lease,
            owner: &site.engine.me,
        };
        let (ttl_ms, lock_delay_ms) = (site.plan.policy.ttl_ms, site.plan.policy.lock_delay_ms);
        let own = candidate.item.resource.as_ref();
        let ask = ItemAsk {
            work: &candidate.item.work,
            runner,
            own: own.map(|resource| Own { resource, ttl_ms, lock_delay_ms }),
            terms: &self.terms,
            payload: candidate.item.payload.as_ref(),
            command: site.plan.command.as_ref(),
            definition: site.plan.definition.as_ref(),
            now_ms: site.engine.clock.wall_ms(),
        };
        let decision = item::claim(&candidate.view(), &ask);
        let goes_on = match &decision {
            ItemDecision::Claim(_) | ItemDecision::LookAt(_) => self.stopping.is_none(),
            decision => matches!(decision, ItemDecision::Mine(_)),
        };
        if !goes_on {
            self.strays.extend(stray(&candidate, &site.begin.grant.nonce));
        }
        let key = candidate.item.key;
        let (silent, unanswered) = (candidate.again, candidate.unanswered);
        match decision {
            ItemDecision::Mine(_) if unanswered.is_some() => return self.found_claimed(candidate),
            // a batch that stops begins nothing more
            _ if self.stopping.is_some() => {}
            ItemDecision::Claim(claim) => {
                self.meet(&mut candidate);
                if let Some(own) = &claim.lease
                    && !self.waiting.take(&own.resource)
                {
                    self.waiting.add(own.resource.clone(), candidate.into());
                    return;
                }
                self.claiming += 1;
                self.queue.push_back(Op::Claim { candidate, claim });
                return;
            }
            ItemDecision::Doubt { entry, expect, guards } => {
                self.meet(&mut candidate);
                self.claiming += 1;
                self.queue.push_back(Op::Doubt { candidate, entry, expect, guards });
                return;
            }
            ItemDecision::LookAt(_) => {
                self.to_look.push_back(candidate.into());
                return;
            }
            ItemDecision::Busy { .. } => {
                self.meet(&mut candidate);
                // while it is kept in mind it is under way to us too: another of its key must not be claimed beside it
                if !self.later.add(candidate) {
                    self.known.remove(&key);
                }
                return;
            }
            ItemDecision::Held { resource, .. } if self.waiting.is_given_up(&resource) => {
                self.meet(&mut candidate);
                return self.held(&candidate.item);
            }
            ItemDecision::Held { resource, held } => {
                self.meet(&mut candidate);
                self.waiting.held(resource.clone(), held);
                self.waiting.add(resource, candidate.into());
                return;
            }
            _ if silent => {}
            ItemDecision::Wrong(why) => {
                self.counts.bad += 1;
                (self.tell)(BatchEvent::Bad(&Bad { line: candidate.item.line, why, is_last: false }));
            }
            ItemDecision::Mine(_) | ItemDecision::Repeated(_) => self.done(&candidate.item, true),
            ItemDecision::Done(_) => self.done(&candidate.item, false),
            ItemDecision::Person(entry) => self.person(&candidate.item, &entry),
            ItemDecision::Mismatch { changes, entry } => {
                self.counts.mismatched += 1;
                self.fate(&candidate.item, Fate::Mismatch { changes: &changes, entry: Some(&entry) });
            }
        }
        self.known.remove(&key);
    }

    /// One of those that are owed by a second pass.
    fn meet(&mut self, candidate: &mut Candidate<D>) {
        if take(&mut candidate.again)
            && let Some(second) = &mut self.second
        {
            second.met += 1;
        }
    }

    /// Our own claim, whose reply was lost.
    fn found_claimed(&mut self, candidate: Candidate<D>) {
        let Candidate { item, record, seen, leases, unanswered, .. } = candidate;
        let Some(seen) = seen else { return };
        let own = lease_of(&seen.value, &leases.all).filter(|_| item.resource.is_some());
        let own = own.zip(unanswered).map(|((resource, found), sent_at)| {
            self.waiting.take(resource);
            self.own.add(resource.clone(), found.record.clone(), sent_at)
        });
        let is_lost = item.resource.is_some() && own.is_none();
        // the attempt before it may have had its effect: what was known of that went with the reply
        let after_lost = seen.value.log.iter().rev().nth(1).is_some_and(|before| before.ending.is_torn());
        let probes = after_lost && self.terms.on_lost == OnLost::Probe;
        let first = if probes { First::Probe } else { First::Run };
        let claimed = Claimed { item, record, seen, own, first, after_lost };
        if is_lost {
            let outcome = Outcome { ending: Ending::LeaseLost, result: None, failed_tries: 0 };
            let give_up = self.give_up();
            self.queue.push_back(Op::End(End { claimed, outcome: Some(outcome), give_up }));
        } else {
            self.claimed(claimed);
        }
    }

    fn claimed(&mut self, claimed: Claimed<D>) {
        if self.stopping.is_some() {
            self.give_back(claimed);
        } else {
            self.ready.push_back(claimed);
        }
    }

    fn give_back(&mut self, claimed: Claimed<D>) {
        let give_up = self.give_up();
        self.queue.push_back(Op::End(End { claimed, outcome: None, give_up }));
    }

    fn give_up(&self) -> Moment {
        self.trust_ends.max(self.site.engine.clock.now().plus_ms(PATIENCE_MS))
    }

    fn person(&mut self, item: &Item<D>, entry: &Entry) {
        let (kind, count, what) = match entry.state {
            EntryState::Quarantined => {
                (Kind::Quarantined, &mut self.counts.quarantined, "failed too often and needs a person")
            }
            _ => (Kind::InDoubt, &mut self.counts.in_doubt, "is of unknown outcome and needs a person"),
        };
        *count += 1;
        let (plan, at_ms) = (self.site.plan, self.site.engine.clock.wall_ms());
        let why = || format!("{} {what}", item.work);
        let anomaly = || Anomaly { kind, work: plan.work.to_string(), at_ms, why: why(), slots: 1 };
        self.notices.meet(plan, anomaly, kind);
        self.fate(item, Fate::Person(entry));
    }

    /// The next item to begin, and whether it decides over the breaker.
    pub(super) fn next_to_begin(&mut self) -> Option<(Claimed<D>, bool)> {
        if self.stopping.is_some() || self.ready.is_empty() {
            return None;
        }
        match self.breaker.gate(self.now_ms()) {
            Gate::Open | Gate::One => {}
            Gate::Shut { .. } | Gate::Waiting => return None,
            Gate::Stop => {
                self.stop(Stopped::Breaker(self.breaker.row()));
                return None;
            }
        }
        let claimed = self.ready.pop_front()?;
        let decides = self.breaker.begin();
        let attempt = claimed.seen.value.attempts;
        (self.tell)(BatchEvent::Began { item: &claimed.item, attempt });
        Some((claimed, decides))
    }

    /// An item is no longer under way.
    pub(super) fn ended(&mut self, ended: Ended<D>) {
        let Ended { claimed, outcome, trouble, decides, began, unreachable } = ended;
        if let Some(why) = unreachable {
            (self.tell)(BatchEvent::Runner(super::super::Event::Unreachable(&why)));
        }
        let took = began.until(self.site.engine.clock.now()).as_micros();
        let took = u64::try_from(took).unwrap_or(u64::MAX / 8).min(u64::MAX / 8);
        self.item_us = Some(self.item_us.map_or(took, |item_us| (item_us * 7 + took) / 8));
        let well = match outcome.as_ref().map(|outcome| &outcome.ending) {
            Some(ending) if ending.is_success() => Some(true),
            Some(ending) if ending.is_failure() => Some(false),
            _ => None,
        };
        let now_ms = self.now_ms();
        let was_open = self.breaker.gate(now_ms) == Gate::Open;
        self.breaker.end(well, decides, now_ms);
        match self.breaker.gate(now_ms) {
            Gate::Shut { until_ms } if was_open || decides => {
                let (row, for_ms) = (self.breaker.row(), until_ms.saturating_sub(now_ms));
                (self.tell)(BatchEvent::Paused { row, for_ms });
            }
            Gate::Stop => self.stop(Stopped::Breaker(self.breaker.row())),
            _ => {}
        }
        if let Some(why) = trouble {
            self.stop(Stopped::Machine(why));
        }
        let give_up = self.give_up();
        self.queue.push_back(Op::End(End { claimed, outcome, give_up }));
    }

    /// Begin nothing more. What is claimed and not begun is given back.
    pub(super) fn stop(&mut self, why: Stopped) {
        self.stopping.get_or_insert(why);
        self.drop_claims();
        for claimed in take(&mut self.ready) {
            self.give_back(claimed);
        }
    }

    /// Claims that were not sent are not made. One that was sent and not answered is looked for.
    fn drop_claims(&mut self) {
        self.fresh.clear();
        self.fresh_bytes = 0;
        self.waiting.clear();
        self.to_look.retain(|unseen| unseen.unanswered.is_some());
        for op in take(&mut self.queue) {
            match op {
                Op::End(_) => self.queue.push_back(op),
                Op::Claim { candidate, .. } | Op::Doubt { candidate, .. } => {
                    self.claiming -= 1;
                    if candidate.unanswered.is_some() {
                        self.to_look.push_back(candidate.into());
                    }
                }
            }
        }
    }

    /// A group that was sent at that moment is on record, with these versions.
    pub(super) fn committed(&mut self, group: Group<D>, versions: &[Version], sent_at: Moment) {
        for (op, at, entry) in group.ops {
            match op {
                Op::Claim { candidate, claim } => {
                    self.claiming -= 1;
                    let Some(version) = versions.get(at).cloned() else { continue };
                    let Candidate { item, record, .. } = candidate;
                    let seen = Seen { value: entry, version };
                    let ItemClaim { lease, first, after_lost, .. } = claim;
                    // the lease was written just before
                    let version = at.checked_sub(1).and_then(|at| versions.get(at)).cloned();
                    let own = lease.zip(version).map(|(own, version)| {
                        self.own.add(own.resource, Seen { value: own.lease.lease, version }, sent_at)
                    });
                    self.claimed(Claimed { item, record, seen, own, first, after_lost });
                }
                Op::Doubt { candidate, .. } => {
                    self.claiming -= 1;
                    self.known.remove(&candidate.item.key);
                    self.person(&candidate.item, &entry);
                }
                Op::End(end) => self.settled(&end, &entry),
            }
        }
    }

    fn settled(&mut self, end: &End<D>, entry: &Entry) {
        let item = &end.claimed.item;
        self.known.remove(&item.key);
        self.give_back_own(&end.claimed);
        let Some(outcome) = &end.outcome else { return };
        match &entry.state {
            EntryState::Done { .. } => {
                self.counts.done += 1;
                self.fate(item, Fate::Done(entry));
            }
            EntryState::Failed { .. } => {
                self.counts.failed += 1;
                self.fate(item, Fate::Failed(entry));
            }
            EntryState::Quarantined | EntryState::InDoubt { .. } => self.person(item, entry),
            _ if matches!(outcome.ending, Ending::Blocked { .. }) => self.person(item, entry),
            _ => {
                self.counts.interrupted += 1;
                self.fate(item, Fate::Interrupted);
            }
        }
    }

    /// What could not be put into a group.
    pub(super) fn unsent(&mut self, unsent: Vec<Unsent<D>>) {
        for one in unsent {
            match one {
                Unsent::Settled(end, entry) => self.settled(&end, &entry),
                Unsent::Next(op) => self.queue.push_back(op),
                Unsent::Hopeless(Op::End(end), why) => self.unrecorded(&end, &why),
                Unsent::Hopeless(Op::Claim { candidate, .. } | Op::Doubt { candidate, .. }, why) => {
                    self.claiming -= 1;
                    self.known.remove(&candidate.item.key);
                    candidate.item.resource.iter().for_each(|resource| self.waiting.give_back(resource));
                    self.counts.bad += 1;
                    (self.tell)(BatchEvent::Bad(&Bad { line: candidate.item.line, why, is_last: false }));
                }
            }
        }
    }

    pub(super) fn unrecorded(&mut self, end: &End<D>, why: &str) {
        if end.is_on_record(self.site) {
            // only its lease could not be given back: it lapses
            return self.settled(end, &end.claimed.seen.value);
        }
        self.known.remove(&end.claimed.item.key);
        self.give_back_own(&end.claimed);
        if end.outcome.is_some() {
            self.counts.unrecorded += 1;
            self.fate(&end.claimed.item, Fate::Unrecorded(why));
        }
    }

    /// Send it again, unless it was tried long enough.
    pub(super) fn again(&mut self, end: End<D>, why: &str) {
        if self.site.engine.clock.now() >= end.give_up {
            self.unrecorded(&end, why);
        } else {
            self.queue.push_back(Op::End(end));
        }
    }

    /// A claim came to nothing: look at its item again, unless nothing is begun any more.
    pub(super) fn reconsider(&mut self, candidate: Candidate<D>, unanswered: Option<Moment>) {
        self.claiming -= 1;
        candidate.item.resource.iter().for_each(|resource| self.waiting.give_back(resource));
        let mut unseen = Unseen::from(candidate);
        // trust counts from the first that was sent
        unseen.unanswered = unseen.unanswered.or(unanswered);
        if self.stopping.is_none() || unseen.unanswered.is_some() {
            self.to_look.push_back(unseen);
        }
    }
}

fn first_bytes(bytes: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    first
}
