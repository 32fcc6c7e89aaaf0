//! The world: the store, the workers, what is on its way between them, the person, and the fenced sink.

use semel_core::claim::{self, Ask, Decision, Write};
use semel_core::entry::{Ending, Entry, Say, Stale, State, Verdict};
use semel_core::lease::{self, Lease, SeenLease};
use semel_core::owner::Owner;
use semel_core::policy::{trust_counts_from, trust_ms};
use semel_core::record::{Seen, Standing, Version};
use semel_core::token::{Fence, Grant};

use super::config::Config;
use super::facts::{Fact, Facts};
use super::in_order::Took;
use super::requests::{Outcome, made_by, release, settle};
use super::shared::{Shared, hash_of};
use super::sink::Flight;
use super::store::{
    Body, ENTRIES, KEYS, RESOURCE, RESOURCES, STEPS, Store, WORK, Writes, resource_index, seen_lease,
};
use super::walk::{Truth, Walk};
use super::worker::{
    Active, Beat, Effect, Held, Made, Message, Phase, Pledge, Progress, Role, Run, Step, Why, Worker,
    nonce_of, owner_of, plan_of, run_of,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub store: Store,
    pub workers: Vec<Worker>,
    /// Requests that nobody awaits any more.
    pub late: Vec<Message>,
    pub person: Option<Message>,
    /// The state that the store may fall back to.
    pub replica: Option<Shared<Store>>,
    /// Effects whose command is gone, and which may still arrive.
    pub orphans: Vec<Flight>,
    /// The last grant that the fenced sink of a resource accepted.
    pub sinks: [Option<Grant>; RESOURCES],
    /// The keys whose effects it accepted under that grant, a bit each.
    pub keys_accepted: [u8; RESOURCES],
    /// Effects that it accepted, per key: counted outside the ledger.
    pub accepted: [u8; KEYS],
    /// Effects of steps: counted outside the ledger too.
    pub truths: [Truth; STEPS],
    /// Verdicts that were given, per entry.
    pub judged: [u8; ENTRIES],
    /// The largest token ever granted, per resource.
    pub highest: [u64; RESOURCES],
    pub troubles_left: u8,
    pub crashes_left: u8,
    pub unknowns_left: u8,
    pub back_left: u8,
    pub forward_left: u8,
    pub verdicts_left: u8,
    pub renewals_left: u8,
    pub failovers_left: u8,
    /// What the last step was.
    pub just: Facts,
}

impl World {
    pub fn new(config: &Config) -> World {
        World {
            store: Store { timeline: config.timeline, changes: config.changes, ..Store::default() },
            replica: None,
            workers: config.roles.iter().map(|_| Worker { begun: 0, active: None }).collect(),
            late: Vec::new(),
            person: None,
            orphans: Vec::new(),
            sinks: [None; RESOURCES],
            keys_accepted: [0; RESOURCES],
            accepted: [0; KEYS],
            truths: [Truth::default(); STEPS],
            judged: [0; ENTRIES],
            highest: [0; RESOURCES],
            troubles_left: config.troubles,
            crashes_left: config.crashes,
            unknowns_left: config.unknowns,
            back_left: config.back,
            forward_left: config.forward,
            verdicts_left: config.verdicts,
            renewals_left: config.renewals,
            failovers_left: config.failovers,
            just: Facts::default(),
        }
    }

    /// Is the process of this owner no more?
    pub fn is_gone(&self, owner: &Owner) -> bool {
        !self
            .workers
            .iter()
            .filter_map(|w| w.active.as_ref())
            .any(|active| i32::from(active.run) == owner.pid)
    }

    /// Is the attempt that this key records as running alive, by the store alone?
    pub fn is_alive(&self, key: usize) -> bool {
        let Some(State::Running { resource, grant }) =
            self.store.entries[key].as_ref().map(|row| &row.value.state)
        else {
            return false;
        };
        let lease = self.store.leases[resource_index(resource)].as_ref();
        lease.is_some_and(|row| row.is_held() && row.value.grant == *grant)
    }

    /// Is it recorded as done, by whomever?
    pub fn is_done(&self, key: usize) -> bool {
        self.store.entries[key].as_ref().is_some_and(|row| matches!(row.value.state, State::Done { .. }))
    }

    /// One form for states that differ only in what cannot matter.
    pub fn settle_down(&mut self) {
        if self.troubles_left == 0 {
            (self.crashes_left, self.unknowns_left, self.verdicts_left) = (0, 0, 0);
            (self.back_left, self.forward_left, self.failovers_left) = (0, 0, 0);
        }
        self.store.pass(0, self.back_left);
        self.replica.take_if(|_| self.failovers_left == 0);
        self.settle_down_steps();
        let (store, replica) = (&self.store, &self.replica);
        // what is refused now may be taken once the store has fallen back
        let may_take = |message: &Message| {
            let replica = replica.as_ref().is_some_and(|replica| replica.may_take(message));
            replica || (store.is_decided_by(message.epoch) && store.may_take(message))
        };
        self.late.retain(may_take);
        if self.late.len() > 1 {
            self.late.sort_by_key(hash_of);
        }
        let sinks = &self.sinks;
        self.orphans.retain(|flight| flight.grant.against(sinks[flight.resource].as_ref()) != Fence::Stale);
        self.orphans
            .sort_by_key(|flight| (flight.resource, flight.grant.token, flight.grant.nonce, flight.key));
        for worker in &mut self.workers {
            // an answer that will not be believed
            if let Some(held) = worker.held_mut()
                && held.trust == 0
                && held.entry.is_some()
                && matches!(held.beat, Some(Beat::Granted { .. }))
            {
                held.beat = None;
            }
            // what is sure to be refused is as good as refused
            if let Some(step) = worker.step_mut()
                && matches!(step, Step::Sent { message, .. } if !may_take(message))
            {
                let Step::Sent { message, .. } = std::mem::replace(step, Step::Look) else { continue };
                worker.note_half(&message);
            }
            if let Some(Phase::Claiming { step: Step::Look, unanswered: None }) =
                worker.active.as_ref().map(|a| &a.phase)
            {
                worker.conclude();
            }
        }
    }

    /// Is one more trouble of this kind allowed?
    pub fn trouble(&mut self, kind: impl Fn(&mut World) -> &mut u8) -> Option<()> {
        self.troubles_left = self.troubles_left.checked_sub(1)?;
        let left = kind(self);
        *left = left.checked_sub(1)?;
        Some(())
    }

    pub fn tick(&mut self, config: &Config) {
        self.store.pass(1, self.back_left);
        self.tick_replica();
        self.workers.iter_mut().for_each(|worker| worker.tick(config.ttl));
    }

    pub fn abandon(&mut self, config: &Config, messages: Vec<Message>) {
        for message in messages {
            if self.late.len() < config.late {
                self.late.push(message);
            }
        }
    }

    /// Look at the store, decide by the rules, and be ready to send. `None`: nothing comes of it.
    pub fn look(&mut self, config: &Config, w: usize) -> Option<()> {
        let role = config.roles[w];
        if self.workers[w].active.is_none() {
            let phase = Phase::Claiming { step: Step::Look, unanswered: None };
            let run = run_of(w, self.workers[w].begun);
            self.workers[w].active = Some(Active { run, second: false, kept: None, phase });
        }
        let Active { run, phase, .. } = self.workers[w].active.clone()?;
        match phase {
            Phase::Claiming { unanswered, .. } => self.look_to_claim(config, w, &role, run, unanswered),
            Phase::Between => self.look_to_claim(config, w, &role, run, None),
            Phase::Ending { .. } => self.look_to_settle(config, w, &role, run),
            Phase::LettingGo { .. } => self.look_to_let_go(config, w)?,
            Phase::Holding(_) => return None,
        }
        Some(())
    }

    fn look_to_claim(&mut self, config: &Config, w: usize, role: &Role, run: Run, unanswered: Option<u64>) {
        let me = owner_of(role.host, run);
        let key = self.workers[w].key(role);
        let view = self.store.look(key, &me, |owner| self.is_gone(owner), config.resources);
        // a lease that is kept is the only one that its next work asks for
        let kept = self.workers[w].kept().map(|kept| kept.resource);
        let asked = role.resources.iter().filter(|&&r| kept.is_none_or(|kept| kept == r));
        let resources: Vec<_> = asked.map(|&r| RESOURCE[r].clone()).collect();
        let ask = Ask {
            work: key.map(|key| &WORK[key]),
            what: "w",
            resources: &resources,
            policy: &config.policy(),
            owner: &me,
            nonce: nonce_of(run),
            payload: None,
            command: None,
            plan: Some(&plan_of(run)),
            definition: None,
            occurrence: None,
            now_ms: 0,
        };
        let epoch = Some(self.store.epoch);
        let send = |why, writes: Vec<Write>, pledge| {
            let body = Body::Swap(Shared::new(Writes(writes)));
            let message =
                Message { run: Some(run), why, grant: None, epoch, so_far: Progress::default(), body };
            Some(Phase::Claiming { step: Step::Sent { message, pledge }, unanswered })
        };
        let phase = match claim::claim(&view, &ask) {
            Decision::Claim(claim) => {
                let pledge = Pledge {
                    resource: resource_index(&claim.resource),
                    lease: Shared::new(claim.lease.lease.clone()),
                    entry: claim.intent.as_ref().map(|intent| Shared::new(intent.entry.clone())),
                };
                send(Why::Claim, claim.writes(), Some(pledge))
            }
            Decision::Claimed => self.recovered(config, w, key, unanswered),
            Decision::Doubt { entry, expect, guards } => {
                let guards = guards.into_iter().map(Write::Guard);
                send(Why::Doubt, guards.chain([Write::Entry { entry, expect }]).collect(), None)
            }
            Decision::Busy(busy) => {
                if busy.same_work && !key.is_some_and(|key| self.is_alive(key)) {
                    self.just.add(Fact::BusyWithTheDead);
                }
                Some(Phase::Claiming { step: Step::Look, unanswered })
            }
            Decision::Done(_) | Decision::Person(_) => None,
            other => panic!("no rule should answer so here: {other:?}"),
        };
        let worker = &mut self.workers[w];
        match (phase, &mut worker.active) {
            (Some(phase), Some(active)) => active.phase = phase,
            _ => worker.conclude(),
        }
    }

    /// Our own claim stands there: its answer was lost. The trust counts from the first that was sent.
    fn recovered(
        &mut self,
        config: &Config,
        w: usize,
        key: Option<usize>,
        unanswered: Option<u64>,
    ) -> Option<Phase> {
        let key = key?;
        self.just.add(Fact::LostReplyRecovered);
        if !self.is_alive(key) {
            self.just.add(Fact::RecoveredTheDead);
        }
        let entry = self.store.entries[key].as_ref()?;
        let State::Running { resource, .. } = &entry.value.state else { panic!("not running: {entry:?}") };
        let resource = resource_index(resource);
        let lease = self.store.leases[resource].as_ref()?;
        let (value, version) = (lease.value.clone(), lease.version);
        let age = trust_counts_from(unanswered.unwrap(), 0);
        let entry = Some((entry.value.clone(), entry.version));
        self.take_up(w, value.grant);
        Some(Phase::Holding(Held {
            resource,
            lease: value,
            lease_version: version,
            entry,
            trust: trust_ms(config.ttl).saturating_sub(age),
            effect: Effect::NotBegun,
            walk: Walk::of(config),
            beat: None,
        }))
    }

    fn look_to_settle(&mut self, config: &Config, w: usize, role: &Role, run: Run) {
        let me = owner_of(role.host, run);
        let key = self.workers[w].key(role);
        let mut view = self.store.look(key, &me, |owner| self.is_gone(owner), config.resources);
        let after = self.workers[w].after();
        let Some(Active { phase: Phase::Ending { resource, grant, ending, step, applied }, .. }) =
            &mut self.workers[w].active
        else {
            return;
        };
        let lease = view.leases.swap_remove(*resource).1;
        let outcome = Outcome { grant, ending, resource: *resource, run, after };
        let next = match (key, &view.entry) {
            (None, _) => release(lease.as_ref(), grant, None, *resource, run).map_err(|_| false),
            (Some(_), None) => Err(*applied && self.store.is_of_this_epoch(grant.token)),
            (Some(_), Some(entry)) => match settle(entry, lease.as_ref(), &outcome) {
                Ok(message) => Ok(message),
                Err(Stale::AlreadySettled) => {
                    self.just.add(if *applied { Fact::SettleRecognised } else { Fact::SettleImagined });
                    return self.workers[w].conclude();
                }
                Err(Stale::MovedOn { .. }) => {
                    self.just.add(Fact::StaleSettleRefused);
                    Err(*applied && self.store.is_of_this_epoch(grant.token))
                }
            },
        };
        match next {
            Ok(message) => *step = Step::Sent { message, pledge: None },
            Err(denied) => {
                if denied {
                    self.just.add(Fact::SettleDenied);
                }
                if !self.store.is_of_this_epoch(grant.token) {
                    self.just.add(Fact::ForgottenRefused);
                }
                self.workers[w].end();
            }
        }
    }

    /// The store takes what a worker sent and awaits. A refusal, and the end of a run, are known at once.
    pub fn apply(&mut self, w: usize) -> Option<()> {
        let Step::Sent { mut message, pledge } = self.workers[w].step()?.clone() else { return None };
        match (self.take_next(&mut message), pledge) {
            (Took::Nothing, _) => {
                self.workers[w].note_half(&message);
                *self.workers[w].step_mut()? = Step::Look;
            }
            (Took::Some, pledge) => *self.workers[w].step_mut()? = Step::Sent { message, pledge },
            (Took::All(made), Some(pledge)) => {
                *self.workers[w].step_mut()? = Step::Answered { pledge, made, age: message.so_far.age }
            }
            (Took::All(_), None) => self.workers[w].conclude(),
        }
        Some(())
    }

    /// The store takes it, and the answer is lost.
    pub fn apply_unheard(&mut self, w: usize) -> Option<()> {
        self.trouble(|world| &mut world.unknowns_left)?;
        let Step::Sent { message, pledge: None } = self.workers[w].step()?.clone() else { return None };
        self.take(&message)?;
        *self.workers[w].step_mut()? = Step::Look;
        Some(())
    }

    /// The store takes a request, and what it did is judged.
    pub fn take(&mut self, message: &Message) -> Option<Made> {
        let before = self.store.clone();
        let made = match &message.body {
            Body::Touch { resource, version } => {
                self.store.touch(*resource, *version).then_some(Made { lease: 0, entry: 0 })
            }
            Body::Swap(_) if !self.store.is_decided_by(message.epoch) => None,
            Body::Swap(writes) => self.store.swap(&writes.0).map(|versions| made_by(&writes.0, &versions)),
        };
        if made.is_some() {
            self.note_settled(message);
            self.judge(&before, message);
        }
        made
    }

    /// An outcome is on record, whether or not its sender hears of it.
    pub fn note_settled(&mut self, message: &Message) {
        if message.why == Why::Settle {
            let sender = self.workers.iter_mut().filter_map(|w| w.active.as_mut());
            for active in sender.filter(|active| Some(active.run) == message.run) {
                if let Phase::Ending { applied, .. } = &mut active.phase {
                    *applied = true;
                }
            }
        }
        if message.why == Why::StepSettle {
            self.step_was_settled(message);
        }
    }

    pub fn deliver(&mut self, config: &Config, w: usize) -> Option<()> {
        let Step::Answered { pledge, made, age } = self.workers[w].step()?.clone() else { return None };
        self.take_up(w, pledge.lease.grant);
        self.workers[w].active.as_mut()?.phase = Phase::Holding(Held {
            resource: pledge.resource,
            lease: pledge.lease,
            lease_version: made.lease,
            entry: pledge.entry.map(|entry| (entry, made.entry)),
            trust: trust_ms(config.ttl).saturating_sub(trust_counts_from(age, 0)),
            effect: Effect::NotBegun,
            walk: Walk::of(config),
            beat: None,
        });
        Some(())
    }

    /// No answer: perhaps it was applied, perhaps it will be, perhaps not.
    pub fn give_up(&mut self, config: &Config, w: usize) -> Option<()> {
        self.trouble(|world| &mut world.unknowns_left)?;
        let abandoned = self.workers[w].abandoned();
        let step = self.workers[w].step_mut()?;
        let age = match step {
            Step::Sent { message, .. } => message.so_far.age,
            Step::Answered { age, .. } => *age,
            Step::Look => return None,
        };
        *step = Step::Look;
        if let Some(Active { phase: Phase::Claiming { unanswered, .. }, .. }) = &mut self.workers[w].active {
            unanswered.get_or_insert(age);
        }
        self.abandon(config, abandoned);
        Some(())
    }

    pub fn renew(&mut self, config: &Config, w: usize) -> Option<()> {
        self.renewals_left = self.renewals_left.checked_sub(1)?;
        let role = config.roles[w];
        let run = self.workers[w].active.as_ref()?.run;
        let held = self.workers[w].held()?;
        let (grant, resource) = (held.grant(), held.resource);
        let version = match role.key {
            // a run knows the version that it wrote; one whose watch has run out does not renew
            Some(_) if held.trust > 0 => held.lease_version,
            Some(_) => return None,
            // a script knows its token, and looks
            None => {
                let me = owner_of(role.host, run);
                let seen =
                    self.store.leases[resource].as_ref().map(|row| seen_lease(row, &me, |o| self.is_gone(o)));
                match lease::renew(seen.as_ref(), grant.token, None) {
                    Ok(version) => version.as_str().parse().unwrap(),
                    Err(_) => {
                        self.just.add(Fact::RenewalRefused);
                        self.workers[w].held_mut()?.trust = 0;
                        return Some(());
                    }
                }
            }
        };
        let held = self.workers[w].held_mut()?;
        let body = Body::Touch { resource, version };
        let message = Message {
            run: Some(run),
            why: Why::Renew,
            grant: Some(grant),
            epoch: None,
            so_far: Progress::default(),
            body,
        };
        held.beat = Some(Beat::Sent(message));
        Some(())
    }

    pub fn apply_beat(&mut self, config: &Config, w: usize) -> Option<()> {
        let held = self.workers[w].held()?;
        let (grant, resource) = (held.grant(), held.resource);
        let Some(Beat::Sent(message)) = held.beat.clone() else { return None };
        let granted = self.take(&message).is_some();
        let role = config.roles[w];
        let me = owner_of(role.host, message.run?);
        let seen = self.store.leases[resource].as_ref().map(|row| seen_lease(row, &me, |o| self.is_gone(o)));
        let lost = lease::renew(seen.as_ref(), grant.token, role.key.map(|_| &grant.nonce)).is_err();
        let held = self.workers[w].held_mut()?;
        held.beat = granted.then_some(Beat::Granted { age: 0 });
        if !granted && lost {
            held.trust = 0;
            self.just.add(Fact::RenewalRefused);
        }
        Some(())
    }

    pub fn deliver_beat(&mut self, config: &Config, w: usize) -> Option<()> {
        let is_script = config.roles[w].key.is_none();
        let held = self.workers[w].held_mut()?;
        let Some(Beat::Granted { age }) = held.beat else { return None };
        held.beat = None;
        // the watch is looked at first: trust that has ended does not come back to a run
        if held.trust > 0 || is_script {
            held.trust = trust_ms(config.ttl).saturating_sub(trust_counts_from(age, 0));
        }
        Some(())
    }

    pub fn give_up_beat(&mut self, config: &Config, w: usize) -> Option<()> {
        self.trouble(|world| &mut world.unknowns_left)?;
        let abandoned = self.workers[w].abandoned();
        self.workers[w].held_mut()?.beat.take()?;
        self.abandon(config, abandoned);
        Some(())
    }

    /// The command begins its effect.
    pub fn begin_effect(&mut self, config: &Config, w: usize) -> Option<()> {
        let key = self.workers[w].key(&config.roles[w])?;
        let run = self.workers[w].active.as_ref()?.run;
        let held =
            self.workers[w].held_mut().filter(|held| held.trust > 0 && held.effect == Effect::NotBegun)?;
        held.effect = Effect::UnderWay;
        let (token, resource) = (held.grant().token, &RESOURCE[held.resource]);
        let on_record = self.store.entries[key].as_ref().is_some_and(|row| {
            let mut log = row.value.log.iter();
            log.any(|one| one.token == token && one.resource == *resource && one.owner.pid == i32::from(run))
        });
        if !on_record && self.store.is_of_this_epoch(token) {
            self.just.add(Fact::RanWithoutIntent);
        }
        Some(())
    }

    /// The command has ended, or was stopped: what is still under way of it goes on alone.
    pub fn finish(&mut self, config: &Config, w: usize, ending: Ending) -> Option<()> {
        self.orphans.extend(self.flight_of(config, w));
        let run = self.workers[w].active.as_ref()?.run;
        let abandoned = self.workers[w].abandoned();
        let held = self.workers[w].held()?.clone();
        let (resource, grant) = (held.resource, held.grant());
        self.keep(config, w, &ending);
        let outcome =
            Outcome { grant: &grant, ending: &ending, resource, run, after: self.workers[w].after() };
        let step = match held.entry {
            // a script looks before it releases
            None => Step::Look,
            Some((entry, version)) => {
                let seen = Seen { value: Entry::clone(&entry), version: Version::from(version) };
                let record =
                    Seen { value: Lease::clone(&held.lease), version: Version::from(held.lease_version) };
                let lease = SeenLease { record, standing: Standing::Live { left_ms: 0 }, owner_gone: false };
                match settle(&seen, Some(&lease), &outcome) {
                    Ok(message) => Step::Sent { message, pledge: None },
                    Err(_) => Step::Look,
                }
            }
        };
        self.workers[w].active.as_mut()?.phase =
            Phase::Ending { resource, grant, ending, step, applied: false };
        self.abandon(config, abandoned);
        Some(())
    }

    pub fn crash(&mut self, config: &Config, w: usize) -> Option<()> {
        self.trouble(|world| &mut world.crashes_left)?;
        self.orphans.extend(self.flight_of(config, w));
        let abandoned = self.workers[w].abandoned();
        self.workers[w].crash();
        self.abandon(config, abandoned);
        Some(())
    }

    /// A person looks at an entry and gives a verdict.
    pub fn give_verdict(&mut self, config: &Config, key: usize, said: Say) -> Option<()> {
        self.trouble(|world| &mut world.verdicts_left)?;
        let me = owner_of(config.roles[0].host, 0);
        let view = self.store.look(Some(key), &me, |owner| self.is_gone(owner), config.resources);
        let seen = view.entry.as_ref()?;
        let verdict = Verdict {
            said,
            by: "p".into(),
            at_ms: 0,
            because: "b".into(),
            was: seen.value.state.word().into(),
        };
        let (entry, expect, guards) = claim::verdict(&view, seen, verdict, None).ok()?;
        let writes = guards.into_iter().map(Write::Guard).chain([Write::Entry { entry, expect }]);
        let body = Body::Swap(Shared::new(Writes(writes.collect())));
        self.person = Some(Message {
            run: None,
            why: Why::Verdict,
            grant: None,
            epoch: None,
            so_far: Progress::default(),
            body,
        });
        Some(())
    }
}
