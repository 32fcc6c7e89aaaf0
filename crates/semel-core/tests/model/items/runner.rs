//! A runner: what it does with its lease and with each of its items, as the engine's `state.rs` decides.

use semel_core::claim::{self, Ask, Decision, First, Write};
use semel_core::entry::{Ending, Entry, Say, State, Verdict};
use semel_core::item::{self, Glance, ItemAsk, ItemDecision, Mark, Own, Under, own_nonce};
use semel_core::lease::{self, Lease};
use semel_core::policy::{OnLost, trust_counts_from, trust_ms};
use semel_core::record::{self, RecordKey, Version};
use semel_core::token::Grant;

use super::super::shared::Shared;
use super::super::store::{Writes, seen_lease};
use super::super::worker::{Run, nonce_of, owner_of, run_of};
use super::group::{Claimed, End, Flight, Op, OwnLease};
use super::judge::Fact;
use super::{ITEM, ITEMS, Items, Late, NAMES, OWN, RUNNERS, Store, World};

/// Where a runner is with an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    /// It must look first; `unanswered` is the age of its first claim that had no answer.
    Look {
        unanswered: Option<u64>,
    },
    /// It waits to be written.
    Queued(Op),
    /// It is part of the swap under way.
    Flying,
    /// Its claim is on record, and it is not begun.
    Ready(Claimed),
    UnderWay(Claimed),
    /// Whether its outcome is on record must be looked at.
    Check(End),
    Over,
}

/// An invocation under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Active {
    pub run: Run,
    pub resource: usize,
    pub lease: Shared<Lease>,
    pub version: i64,
    /// Ticks until it stops trusting its lease, by its own watch.
    pub trust: u64,
    /// It begins nothing more.
    pub stopping: bool,
    pub jobs: Vec<Job>,
    pub flight: Option<Flight>,
    /// What gives back leases that no item has any use for.
    pub strays: Vec<Shared<Writes>>,
    /// The item that its input has twice was met again.
    pub met_again: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Runner {
    /// Invocations that have ended.
    pub begun: u8,
    pub active: Option<Active>,
}

impl Active {
    pub fn grant(&self) -> Grant {
        self.lease.grant
    }

    /// Its claim is on record.
    pub fn claimed(&self, claimed: Claimed) -> Job {
        if self.stopping { Job::Queued(given_back(claimed)) } else { Job::Ready(claimed) }
    }

    /// A claim came to nothing: look at its item again, unless nothing is begun any more.
    pub fn reconsidered(&self, unanswered: Option<u64>) -> Job {
        if self.stopping && unanswered.is_none() { Job::Over } else { Job::Look { unanswered } }
    }

    pub fn unanswered(&mut self, flight: Flight) {
        for (item, op, _) in flight.ops {
            self.jobs[item] = match op {
                Op::End(end) => Job::Check(end),
                Op::Claim { unanswered, .. } => self.reconsidered(unanswered.or(Some(flight.age))),
                Op::Doubt { unanswered, .. } => self.reconsidered(unanswered),
            };
        }
    }

    /// Begin nothing more. What is claimed and not begun is given back.
    pub fn lose(&mut self) {
        (self.stopping, self.trust) = (true, 0);
        for at in 0..self.jobs.len() {
            let job = std::mem::replace(&mut self.jobs[at], Job::Over);
            self.jobs[at] = match job {
                Job::Ready(claimed) => Job::Queued(given_back(claimed)),
                Job::Look { unanswered }
                | Job::Queued(Op::Claim { unanswered, .. } | Op::Doubt { unanswered, .. }) => {
                    self.reconsidered(unanswered)
                }
                job => job,
            };
        }
    }

    /// Does it trust that it may begin this, or go on with it?
    pub fn trusts(&self, claimed: &Claimed) -> bool {
        self.trust > 0 && !self.stopping && claimed.own.as_ref().is_none_or(|own| own.trust > 0)
    }

    fn own_leases(&mut self) -> impl Iterator<Item = &mut OwnLease> {
        self.jobs.iter_mut().filter_map(|job| match job {
            Job::Ready(claimed) | Job::UnderWay(claimed) => claimed.own.as_mut(),
            _ => None,
        })
    }

    fn tick(&mut self, ttl: u64) {
        let older = |age: &mut u64| *age = (*age + 1).min(ttl);
        self.trust = self.trust.saturating_sub(1);
        self.own_leases().for_each(|own| own.trust = own.trust.saturating_sub(1));
        let ops = self.flight.iter_mut().flat_map(|flight| {
            if flight.made > 0 {
                older(&mut flight.age);
            }
            flight.ops.iter_mut().map(|(_, op, _)| op)
        });
        let mut ages: Vec<&mut Option<u64>> = ops.filter_map(age_of).collect();
        ages.extend(self.jobs.iter_mut().filter_map(|job| match job {
            Job::Look { unanswered } => Some(unanswered),
            Job::Queued(op) => age_of(op),
            _ => None,
        }));
        ages.into_iter().flatten().for_each(older);
    }

    /// It is on record, whether or not its sender hears of it.
    fn was_settled(&mut self, item: usize) {
        let job = match &mut self.jobs[item] {
            Job::Queued(Op::End(end)) | Job::Check(end) => Some(end),
            _ => None,
        };
        let ops = self.flight.iter_mut().flat_map(|flight| &mut flight.ops);
        let flying = ops.filter(|(of, _, _)| *of == item).filter_map(|(_, op, _)| match op {
            Op::End(end) => Some(end),
            _ => None,
        });
        job.into_iter().chain(flying).for_each(|end| end.applied = true);
    }
}

fn age_of(op: &mut Op) -> Option<&mut Option<u64>> {
    match op {
        Op::Claim { unanswered, .. } | Op::Doubt { unanswered, .. } => Some(unanswered),
        Op::End(_) => None,
    }
}

fn given_back(claimed: Claimed) -> Op {
    Op::End(End { claimed, ending: None, applied: false })
}

/// A lease of an item's own that was asked for so long ago.
pub fn owned(items: &Items, lease: &Lease, version: i64, age: u64) -> OwnLease {
    let trust = trust_ms(items.ttl).saturating_sub(trust_counts_from(age, 0));
    OwnLease { lease: Shared::new(lease.clone()), version, trust, is_gone: false }
}

impl Runner {
    /// One that is over leaves nothing of its items.
    pub fn settle_down(&mut self, store: &Store) {
        let Some(active) = &mut self.active else { return };
        // what is sure to be refused is as good as not there
        active.strays.retain(|stray| stray.0.iter().all(|write| store.may_make(write)));
    }
}

impl World {
    pub fn tick(&mut self, items: &Items) {
        self.store.pass(1, self.back_left);
        let runners = self.runners.iter_mut().filter_map(|runner| runner.active.as_mut());
        runners.for_each(|active| active.tick(items.ttl));
    }

    /// A runner takes the first lease that is free of those that runners hold.
    pub fn start(&mut self, items: &Items, r: usize) -> Option<()> {
        let run = run_of(r, self.runners[r].begun);
        let me = owner_of(items.host(r), run);
        let view = self.store.look(None, &me, |owner| self.is_gone(owner));
        let ask = Ask {
            work: None,
            what: "j",
            resources: &NAMES[..RUNNERS],
            policy: &items.policy(),
            owner: &me,
            nonce: nonce_of(run),
            payload: None,
            command: None,
            plan: None,
            definition: None,
            occurrence: None,
            now_ms: 0,
        };
        let Decision::Claim(claim) = claim::claim(&view, &ask) else { return None };
        let versions = self.make(items, Some(run), &claim.writes()).ok()?;
        self.runners[r].active = Some(Active {
            run,
            resource: super::lease_index(&claim.resource),
            lease: Shared::new(claim.lease.lease.clone()),
            version: *versions.last()?,
            trust: trust_ms(items.ttl),
            stopping: false,
            jobs: vec![Job::Look { unanswered: None }; items.items],
            flight: None,
            strays: Vec::new(),
            met_again: !items.twice,
        });
        Some(())
    }

    /// Look at an item, and decide.
    pub fn look(&mut self, items: &Items, r: usize, item: usize) -> Option<()> {
        let active = self.runners[r].active.clone()?;
        let Job::Look { unanswered } = active.jobs[item] else { return None };
        let me = owner_of(items.host(r), active.run);
        let view = self.store.look(Some(item), &me, |owner| self.is_gone(owner));
        let (grant, version) = (active.grant(), Version::from(active.version));
        let own = Own { resource: &NAMES[OWN], ttl_ms: items.ttl, lock_delay_ms: 0 };
        let ask = ItemAsk {
            work: &ITEM[item],
            runner: Under { resource: &NAMES[active.resource], grant: &grant, lease: &version, owner: &me },
            own: items.has_own(item).then_some(own),
            terms: &items.terms(),
            payload: None,
            command: None,
            definition: None,
            now_ms: 0,
        };
        let decision = item::claim(&view, &ask);
        self.glance(items, item, &grant, &decision);
        let goes_on = match &decision {
            ItemDecision::Claim(_) => !active.stopping,
            decision => matches!(decision, ItemDecision::Mine(_)),
        };
        if !goes_on && unanswered.is_some() && items.has_own(item) {
            self.stray(r, item);
        }
        let job = match decision {
            ItemDecision::Mine(entry) if unanswered.is_some() => {
                self.just.add(Fact::Recovered);
                self.found_claimed(items, r, item, entry, unanswered?)?
            }
            _ if active.stopping => Job::Over,
            ItemDecision::Claim(claim) => {
                let (writes, after_lost) = (Shared::new(Writes(claim.writes())), claim.after_lost);
                Job::Queued(Op::Claim { writes, probes: claim.first == First::Probe, after_lost, unanswered })
            }
            ItemDecision::Doubt { entry, expect, guards } => {
                let writes = semel_core::step::guarded(&guards, None, &entry, &expect);
                Job::Queued(Op::Doubt { writes: Shared::new(Writes(writes)), unanswered })
            }
            ItemDecision::Busy { .. } => {
                self.just.add(Fact::LeftAlone);
                Job::Look { unanswered }
            }
            ItemDecision::Held { .. } => {
                self.just.add(Fact::Waited);
                Job::Look { unanswered }
            }
            ItemDecision::Repeated(_) | ItemDecision::Mine(_) => {
                self.just.add(Fact::Repeated);
                Job::Over
            }
            ItemDecision::Done(_) | ItemDecision::Person(_) => Job::Over,
            other => panic!("no rule should answer so here: {other:?}"),
        };
        self.runners[r].active.as_mut()?.jobs[item] = job;
        Some(())
    }

    /// A glance at a record answers as the rule does.
    fn glance(&mut self, items: &Items, item: usize, grant: &Grant, decision: &ItemDecision) {
        let Some(row) = self.store.entries[item].as_ref() else { return };
        if !matches!(row.value.state, State::Done { .. }) {
            return;
        }
        let record = record::encode(&RecordKey::entry(&ITEM[item]), &*row.value).unwrap();
        let mark = Mark::of(grant, &ITEM[item].key(), items.has_own(item));
        let agrees = match item::glance(&record, None, &mark) {
            Glance::Done => matches!(decision, ItemDecision::Done(_)),
            Glance::Repeated => matches!(decision, ItemDecision::Repeated(_)),
            Glance::Look => true,
        };
        if !agrees {
            self.just.add(Fact::GlanceErred);
        }
    }

    /// What gives back the lease that a claim of this item took, where the claim came to nothing.
    fn stray(&mut self, r: usize, item: usize) -> Option<()> {
        let active = self.runners[r].active.as_mut()?;
        let nonce = own_nonce(&active.grant().nonce, &ITEM[item].key());
        let me = owner_of("", active.run);
        let seen = seen_lease(self.store.leases[OWN].as_ref()?, &me, |_| false);
        let token = seen.record.value.grant.token;
        let released = lease::release(Some(&seen), token, Some(&nonce), 0).ok()?;
        active.strays.push(Shared::new(Writes(vec![released.write(&NAMES[OWN])])));
        self.just.add(Fact::Strayed);
        Some(())
    }

    /// Our own claim, whose reply was lost.
    fn found_claimed(&mut self, items: &Items, r: usize, item: usize, entry: Entry, age: u64) -> Option<Job> {
        let version = self.store.entries[item].as_ref()?.version;
        let State::Running { grant, .. } = &entry.state else { return None };
        let lease = self.store.leases[OWN].as_ref().filter(|_| items.has_own(item));
        let lease = lease.filter(|row| row.is_held() && row.value.grant == *grant);
        let own = lease.map(|row| owned(items, &row.value, row.version, age));
        let is_lost = items.has_own(item) && own.is_none();
        let after_lost = entry.log.iter().rev().nth(1).is_some_and(|before| before.ending.is_torn());
        let probes = after_lost && items.on_lost == OnLost::Probe;
        let claimed = Claimed { entry: Shared::new(entry), version, own, probes, after_lost };
        if is_lost {
            let ending = Some(Ending::LeaseLost);
            return Some(Job::Queued(Op::End(End { claimed, ending, applied: false })));
        }
        Some(self.runners[r].active.as_ref()?.claimed(claimed))
    }

    /// What stands there for an item whose outcome was refused or not answered.
    pub fn check(&mut self, r: usize, item: usize) -> Option<()> {
        let Job::Check(end) = &mut self.runners[r].active.as_mut()?.jobs[item] else { return None };
        let mut end = end.clone();
        let entry = self.store.entries[item].as_ref()?;
        (end.claimed.entry, end.claimed.version) = (entry.value.clone(), entry.version);
        if let Some(own) = &mut end.claimed.own {
            let seen = self.store.leases[OWN].as_ref();
            match seen.filter(|row| row.value.grant == own.lease.grant && row.value.hold.is_some()) {
                Some(row) => (own.lease, own.version) = (row.value.clone(), row.version),
                None => own.is_gone = true,
            }
        }
        self.runners[r].active.as_mut()?.jobs[item] = Job::Queued(Op::End(end));
        Some(())
    }

    /// Its effect begins, unless the world says that it has happened.
    pub fn begin(&mut self, r: usize, item: usize) -> Option<()> {
        let active = self.runners[r].active.as_ref()?;
        let Job::Ready(claimed) = &active.jobs[item] else { return None };
        active.trusts(claimed).then_some(())?;
        let (run, grant, claimed) = (active.run, claimed.grant(&active.grant()), claimed.clone());
        let job = if claimed.probes && self.truths[item].happened {
            self.just.add(Fact::Probed);
            Job::Queued(Op::End(End { claimed, ending: Some(Ending::ProbedDone), applied: false }))
        } else {
            self.judge_begin(run, item, &grant);
            Job::UnderWay(claimed)
        };
        self.runners[r].active.as_mut()?.jobs[item] = job;
        Some(())
    }

    /// It ends so: by itself, or because it was stopped.
    pub fn end_item(&mut self, r: usize, item: usize, ending: Ending) -> Option<()> {
        let active = self.runners[r].active.as_mut()?;
        let claimed = match &active.jobs[item] {
            Job::UnderWay(claimed) => claimed.clone(),
            Job::Ready(claimed) if ending == Ending::LeaseLost => claimed.clone(),
            _ => return None,
        };
        match ending {
            Ending::Succeeded => self.truths[item].happened = true,
            Ending::Failed { .. } => self.truths[item].failed += 1,
            _ => {}
        }
        active.jobs[item] = Job::Queued(Op::End(End { claimed, ending: Some(ending), applied: false }));
        Some(())
    }

    pub fn lose(&mut self, r: usize) -> Option<()> {
        let active = self.runners[r].active.as_mut()?;
        (active.trust == 0 && !active.stopping).then(|| active.lose())
    }

    /// One heartbeat, for the runner's lease and those of its items.
    pub fn renew(&mut self, items: &Items, r: usize) -> Option<()> {
        self.renewals_left = self.renewals_left.checked_sub(1)?;
        let active = self.runners[r].active.as_mut().filter(|active| active.trust > 0 && !active.stopping)?;
        if self.store.touch(active.resource, active.version) {
            active.trust = trust_ms(items.ttl);
        } else {
            active.lose();
        }
        for own in active.own_leases().filter(|own| own.trust > 0) {
            let renewed = self.store.touch(OWN, own.version);
            own.trust = if renewed { trust_ms(items.ttl) } else { 0 };
        }
        Some(())
    }

    pub fn give_back_stray(&mut self, items: &Items, r: usize) -> Option<()> {
        let active = self.runners[r].active.as_mut()?;
        let stray = active.strays.pop()?;
        let run = active.run;
        let _ = self.make(items, Some(run), &stray.0);
        Some(())
    }

    /// The input has the first item once more.
    pub fn meet_again(&mut self, r: usize) -> Option<()> {
        let active =
            self.runners[r].active.as_mut().filter(|active| !active.met_again && !active.stopping)?;
        (active.jobs[0] == Job::Over).then_some(())?;
        active.met_again = true;
        active.jobs[0] = Job::Look { unanswered: None };
        Some(())
    }

    /// There is nothing left to do: the lease is given back.
    pub fn leave(&mut self, items: &Items, r: usize) -> Option<()> {
        let active = self.runners[r].active.as_ref()?;
        let is_over = active.jobs.iter().all(|job| *job == Job::Over);
        (is_over && active.flight.is_none() && active.strays.is_empty()).then_some(())?;
        let (run, grant, resource) = (active.run, active.grant(), active.resource);
        let me = owner_of(items.host(r), run);
        let seen = self.store.leases[resource].as_ref().map(|row| seen_lease(row, &me, |_| false));
        if let Ok(released) = lease::release(seen.as_ref(), grant.token, Some(&grant.nonce), 0) {
            let _ = self.make(items, Some(run), &[released.write(&NAMES[resource])]);
        }
        self.end(r);
        Some(())
    }

    fn end(&mut self, r: usize) {
        self.runners[r].active = None;
        self.runners[r].begun += 1;
    }

    /// The process is no more; what it sent may still arrive.
    pub fn crash(&mut self, items: &Items, r: usize, is_sent: bool) -> Option<()> {
        self.trouble(|world| &mut world.crashes_left)?;
        if is_sent {
            self.send_now(r)?;
        }
        let active = self.runners[r].active.as_ref()?;
        let late = active.flight.as_ref().map(|flight| Late {
            run: active.run,
            writes: flight.writes.clone(),
            made: flight.made,
        });
        if self.late.len() < items.late {
            self.late.extend(late);
        }
        self.end(r);
        Some(())
    }

    /// A person looks at an item that waits for one, and says what became of it.
    pub fn give_verdict(&mut self, items: &Items, item: usize, said: Say) -> Option<()> {
        self.trouble(|world| &mut world.verdicts_left)?;
        let me = owner_of("one", 0);
        let view = self.store.look(Some(item), &me, |owner| self.is_gone(owner));
        let seen = view.entry.as_ref().filter(|seen| seen.value.state.needs_a_person())?;
        let was = seen.value.state.word().into();
        let verdict = Verdict { said, by: "p".into(), at_ms: 0, because: "b".into(), was };
        let (entry, expect, guards) = claim::verdict(&view, seen, verdict, None).ok()?;
        let writes: Vec<Write> =
            guards.into_iter().map(Write::Guard).chain([Write::Entry { entry, expect }]).collect();
        self.make(items, None, &writes).ok()?;
        let truth = &mut self.truths[item];
        truth.judged += 1;
        (truth.told, truth.last) = (said == Say::Done, None);
        Some(())
    }

    /// The outcome of an item is on record.
    pub fn was_settled(&mut self, run: Run, item: usize) {
        let active = self.runners.iter_mut().filter_map(|runner| runner.active.as_mut());
        for active in active.filter(|active| active.run == run) {
            if item < ITEMS.min(active.jobs.len()) {
                active.was_settled(item);
            }
        }
    }
}
