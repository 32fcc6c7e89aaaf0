//! The search: which steps there are, and what must hold in every state.

use semel_core::entry::{DoneBy, Ending, Say, State};
use semel_core::policy::OnLost;
use stateright::{Model, Property};

use super::config::Config;
use super::facts::{Fact, Facts};
use super::store::{ENTRIES, KEYS, RESOURCES, entry_of_step};
use super::walk::Move;
use super::worker::{Beat, Effect, Held, Kept, Phase, Step};
use super::world::World;

/// A fact that is never so.
macro_rules! never {
    ($name:literal, $fact:expr) => {
        Property::always($name, |_, world: &World| !world.just.has($fact))
    };
}
/// A fact that is so at least once.
macro_rules! once {
    ($name:literal, $fact:expr) => {
        Property::sometimes($name, |_, world: &World| world.just.has($fact))
    };
}

/// A step of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Tick,
    StoreClockBack,
    StoreClockForward,
    Look(usize),
    Apply(usize),
    ApplyUnheard(usize),
    Deliver(usize),
    GiveUp(usize),
    Renew(usize),
    ApplyRenewal(usize),
    DeliverRenewal(usize),
    GiveUpRenewal(usize),
    BeginEffect(usize),
    EffectArrives(usize),
    LateEffectArrives(usize),
    Finish(usize, Ending),
    LetGo(usize),
    Crash(usize),
    LateRequestArrives(usize),
    Walk(usize, Move),
    Judge(usize, Say),
    VerdictArrives,
    ReplicaFallsBehind,
    Failover,
}

impl Model for Config {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        if world.back_left > 0 {
            actions.push(Action::StoreClockBack);
        }
        if world.forward_left > 0 {
            actions.push(Action::StoreClockForward);
        }
        if world.failovers_left > 0 {
            actions.push(if world.replica.is_some() { Action::Failover } else { Action::ReplicaFallsBehind });
        }
        for w in 0..world.workers.len() {
            self.actions_of(world, w, actions);
        }
        actions.extend((0..world.late.len()).map(Action::LateRequestArrives));
        actions.extend((0..world.orphans.len()).map(Action::LateEffectArrives));
        if world.person.is_some() {
            actions.push(Action::VerdictArrives);
        } else if world.verdicts_left > 0 {
            // where there are steps, it is them that a person is asked about, as long as they are not done
            let asked = if self.steps > 0 { KEYS..ENTRIES } else { 0..KEYS };
            let keys = asked.filter(|&key| world.store.entries[key].is_some());
            let keys = keys.filter(|&key| self.steps == 0 || !world.is_done(key));
            actions
                .extend(keys.flat_map(|key| [Action::Judge(key, Say::Done), Action::Judge(key, Say::Retry)]));
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.just = Facts::default();
        match action {
            Action::Tick => next.tick(self),
            Action::StoreClockBack => {
                next.trouble(|world| &mut world.back_left)?;
                next.store.pass(-1, next.back_left);
            }
            Action::StoreClockForward => {
                next.trouble(|world| &mut world.forward_left)?;
                next.store.pass(self.forward_by as i8, next.back_left);
            }
            Action::Look(w) => next.look(self, w)?,
            Action::Apply(w) => next.apply(w)?,
            Action::ApplyUnheard(w) => next.apply_unheard(w)?,
            Action::Deliver(w) => next.deliver(self, w)?,
            Action::GiveUp(w) => next.give_up(self, w)?,
            Action::Renew(w) => next.renew(self, w)?,
            Action::ApplyRenewal(w) => next.apply_beat(self, w)?,
            Action::DeliverRenewal(w) => next.deliver_beat(self, w)?,
            Action::GiveUpRenewal(w) => next.give_up_beat(self, w)?,
            Action::BeginEffect(w) => next.begin_effect(self, w)?,
            Action::EffectArrives(w) => next.land_of(self, w)?,
            Action::LateEffectArrives(i) => {
                let flight = next.orphans.remove(i);
                next.land(self, flight);
            }
            Action::Finish(w, ending) => next.finish(self, w, ending)?,
            Action::LetGo(w) => next.let_go(w)?,
            Action::Crash(w) => next.crash(self, w)?,
            Action::LateRequestArrives(i) => {
                let message = next.late.remove(i);
                next.take_late(message);
            }
            Action::Walk(w, step) => next.walk(self, w, step)?,
            Action::Judge(key, said) => next.give_verdict(self, key, said)?,
            Action::VerdictArrives => next.take_verdict()?,
            Action::ReplicaFallsBehind => next.leave_replica_behind()?,
            Action::Failover => next.fail_over()?,
        }
        next.settle_down();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Config>> {
        let mut properties = vec![
            never!("a token is above all tokens granted before it", Fact::TokenDidNotGrow),
            never!("a live lease is taken only from the dead", Fact::LiveLeaseTaken),
            never!("a lease that has lapsed is used again only under a fresh token", Fact::LapsedLeaseUsed),
            never!("a live run's entry is changed only by its holder", Fact::LiveRunChanged),
            never!(
                "no settle, renewal or release under a stale grant has any effect",
                Fact::StaleWriteHadEffect
            ),
            never!("a plan that is pinned never changes", Fact::PlanMovedOn),
            never!("done is left only by a person's verdict", Fact::DoneWasLeft),
            never!("what needs a person waits for a person", Fact::PersonPassedOver),
            never!("nothing runs without its intent on record", Fact::RanWithoutIntent),
            never!(
                "the fenced sink accepts at most one effect per grant and key, in the order of the tokens",
                Fact::AcceptedAgain
            ),
            never!(
                "once a run is recorded as done, the fenced sink accepts no other effect of its key",
                Fact::AcceptedAfterDone
            ),
            never!("the fenced sink refuses nobody who holds the lease", Fact::HolderRefused),
            never!("a work is busy with itself only while it is alive", Fact::BusyWithTheDead),
            never!(
                "a claim whose answer was lost is taken up only while it is alive",
                Fact::RecoveredTheDead
            ),
            never!("an outcome on record is recognised by who wrote it", Fact::SettleDenied),
            never!("no outcome is taken for recorded that is not", Fact::SettleImagined),
            never!(
                "a lease is given back only after the outcome is on record",
                Fact::ReleasedBeforeItsOutcome
            ),
            Property::always("failures never exceed the cap", failures_within_the_cap),
        ];
        if self.steps == 0 {
            let name = "done by a run means that an effect was accepted";
            properties.push(Property::always(name, done_means_accepted));
        } else {
            properties.extend(self.of_steps());
        }
        if self.keeps_the_margin() {
            properties.extend([
                Property::always(
                    "at most one worker trusts the lease of a resource",
                    one_holder_per_resource,
                ),
                Property::always("at most one worker trusts that it runs a key", one_holder_per_key),
                Property::always(
                    "who trusts its lease holds it, by the store's record and clock",
                    trust_is_true,
                ),
                Property::always("who trusts its lease is on record as running", trust_is_on_record),
                Property::always("a lease that is kept is nobody else's until it lapses", kept_is_true),
            ]);
        }
        if self.on_lost == OnLost::Hold && self.resources == 1 {
            let name = "where a lost attempt is held, an effect is accepted once, and once more per verdict";
            properties.push(Property::always(name, accepted_once_per_verdict));
        }
        properties.extend(self.reached());
        properties
    }
}

impl Config {
    fn actions_of(&self, world: &World, w: usize, actions: &mut Vec<Action>) {
        let worker = &world.workers[w];
        let Some(_) = &worker.active else {
            if worker.begun < self.runs {
                actions.push(Action::Look(w));
            }
            return;
        };
        if world.crashes_left > 0 {
            actions.push(Action::Crash(w));
        }
        match worker.step() {
            Some(Step::Look) => actions.push(Action::Look(w)),
            Some(Step::Sent { .. }) => actions.push(Action::Apply(w)),
            Some(Step::Answered { .. }) => actions.push(Action::Deliver(w)),
            None => {}
        }
        if matches!(worker.active.as_ref().map(|active| &active.phase), Some(Phase::Between)) {
            actions.push(Action::Look(w));
        }
        if worker.may_let_go() {
            actions.push(Action::LetGo(w));
        }
        if world.unknowns_left > 0 {
            match worker.step() {
                Some(Step::Sent { pledge: None, .. }) if self.is_whole() => {
                    actions.extend([Action::GiveUp(w), Action::ApplyUnheard(w)])
                }
                Some(Step::Sent { .. } | Step::Answered { .. }) => actions.push(Action::GiveUp(w)),
                _ => {}
            }
        }
        let Some(held) = worker.held() else { return };
        match &held.beat {
            None if world.renewals_left > 0 => actions.push(Action::Renew(w)),
            None => {}
            Some(Beat::Sent(_)) => actions.push(Action::ApplyRenewal(w)),
            Some(Beat::Granted { .. }) => actions.push(Action::DeliverRenewal(w)),
        }
        if world.unknowns_left > 0 && held.beat.is_some() {
            actions.push(Action::GiveUpRenewal(w));
        }
        if self.roles[w].key.is_none() {
            // a script releases when it likes
            actions.push(Action::Finish(w, Ending::Succeeded));
            return;
        }
        if let Some(walk) = &held.walk {
            actions.extend(walk.moves(self, world, held.trust).into_iter().map(|step| Action::Walk(w, step)));
            actions.extend(walk.end(held.trust).map(|ending| Action::Finish(w, ending)));
            return;
        }
        match held.effect {
            Effect::NotBegun if held.trust > 0 => actions.push(Action::BeginEffect(w)),
            Effect::UnderWay => actions.push(Action::EffectArrives(w)),
            _ => {}
        }
        match held.effect {
            _ if held.trust == 0 => actions.push(Action::Finish(w, Ending::LeaseLost)),
            Effect::Accepted => actions.push(Action::Finish(w, Ending::Succeeded)),
            Effect::NotBegun | Effect::Refused if self.fails => {
                actions.push(Action::Finish(w, Ending::Failed { code: 1 }));
            }
            _ => {}
        }
    }

    /// What must be seen at least once, so that the search is known to have gone where it hurts.
    fn reached(&self) -> Vec<Property<Config>> {
        let with_keys = self.roles.iter().all(|role| role.key.is_some());
        let mut reached = Vec::new();
        if self.resources == 1 && self.roles.len() > 1 {
            reached.push(once!("a lapsed lease is taken over", Fact::LapseTakenOver));
        }
        if self.renewals > 0 {
            reached.push(once!("a renewal is refused", Fact::RenewalRefused));
        }
        if self.crashes > 0 && self.resources == 1 {
            reached.push(once!("a lease is taken from the dead before it lapses", Fact::DeadTakenOver));
        }
        if self.late > 0 {
            reached.push(once!("a request is applied that nobody awaits any more", Fact::LateWriteApplied));
        }
        if self.failovers > 0 {
            reached.push(once!(
                "the outcome of an attempt that the store forgot is refused",
                Fact::ForgottenRefused
            ));
            reached.push(Property::sometimes(
                "an effect is accepted after a failover",
                |_, world: &World| {
                    world.store.epoch > 0 && world.sinks.iter().flatten().any(|grant| grant.token.epoch() > 1)
                },
            ));
        }
        if !with_keys {
            return reached;
        }
        if self.roles.len() > 1 {
            reached.push(once!("a stale settle is attempted and refused", Fact::StaleSettleRefused));
        }
        if self.steps > 0 {
            reached.extend(self.reached_of_steps());
        } else if self.resources == 1 && self.roles.len() > 1 {
            reached.push(once!("the fenced sink refuses a zombie", Fact::SinkRefused));
        }
        if self.unknowns > 0 {
            reached.push(once!("a claim is taken up whose answer was lost", Fact::LostReplyRecovered));
            reached.push(once!("an outcome is recognised whose answer was lost", Fact::SettleRecognised));
        }
        if self.in_a_row() {
            reached.extend([
                once!("a lease that was kept is taken up", Fact::KeptTakenUp),
                once!("a work follows under a fresh token", Fact::KeptClaimedAnew),
                once!("a lease that was kept is given back", Fact::KeptLetGo),
            ]);
        }
        let keys = |key| self.roles.iter().any(|role| [role.key, role.then].contains(&Some(key)));
        if keys(0) && keys(1) {
            reached.push(Property::sometimes("both keys are done", |_, world| {
                (0..KEYS).all(|key| is_done(world, key))
            }));
        }
        if self.on_lost == OnLost::Hold {
            reached.push(Property::sometimes("an attempt is in doubt", |_, world| {
                states(world).any(|state| matches!(state, State::InDoubt { .. }))
            }));
        }
        if self.fails && self.max_failures > 0 {
            reached.push(Property::sometimes("a work is quarantined", |_, world| {
                states(world).any(|state| matches!(state, State::Quarantined))
            }));
        }
        if self.verdicts > 0 {
            reached.push(Property::sometimes("a verdict is given", |_, world: &World| {
                world.judged != [0; ENTRIES]
            }));
        }
        reached
    }
}

impl Config {
    /// What must hold of steps.
    fn of_steps(&self) -> Vec<Property<Config>> {
        let mut properties = vec![
            never!("a step is settled only under the grant that runs it", Fact::StaleStepSettle),
            never!("a run does not take its own step for lost", Fact::OwnStepTakenForLost),
            never!("no step is put in doubt that was not lost", Fact::DoubtedWithoutLoss),
            Property::always(
                "a step that is recorded as done had its effect, or a person says so",
                done_steps_happened,
            ),
            Property::always("a run is done only when all its steps are", done_runs_have_done_steps),
        ];
        if self.is_whole() {
            properties.extend([
                never!(
                    "a step is claimed only under a live lease that carries its run's grant",
                    Fact::StepClaimedByAZombie
                ),
                never!(
                    "a step is claimed only by who is on record as running its work",
                    Fact::StepClaimedBesideAnother
                ),
            ]);
        }
        if self.keeps_the_margin() {
            properties
                .push(never!("an effect is repeated only if its last attempt was lost", Fact::StepRepeated));
        }
        match self.step_on_lost {
            OnLost::Hold => properties.extend([
                never!(
                    "where lost steps are held, a lost one is put in doubt and not claimed",
                    Fact::LostStepClaimed
                ),
                Property::always(
                    "where lost steps are held, an effect is begun once, and once more per verdict",
                    begun_once_per_verdict,
                ),
            ]),
            OnLost::Probe => {
                properties.push(never!("what the probe can see is not begun again", Fact::StepNotProbed))
            }
            OnLost::Retry => {}
        }
        properties
    }

    fn reached_of_steps(&self) -> Vec<Property<Config>> {
        let mut reached = vec![
            Property::sometimes("a run is done, with all its steps", |config: &Config, world: &World| {
                is_done(world, 0) && (0..config.steps).all(|step| world.truths[step].happened)
            }),
            once!("a step that is done is not done again", Fact::StepReplayed),
        ];
        if self.roles.len() > 1 {
            reached.push(once!("a zombie's claim of a step is refused", Fact::StepRefused));
            reached.push(once!("a zombie's outcome of a step is refused", Fact::StaleStepSettleRefused));
        }
        if self.resources > 1 && self.back > 0 {
            reached.push(once!("a step is found under way elsewhere", Fact::StepElsewhere));
        }
        if self.unknowns > 0 {
            reached.push(once!("a step's claim is taken up whose answer was lost", Fact::StepRecovered));
        }
        match self.step_on_lost {
            OnLost::Hold => {
                reached.push(Property::sometimes("a step is in doubt", |config: &Config, world| {
                    (0..config.steps)
                        .any(|step| matches!(state_of_step(world, step), Some(State::InDoubt { .. })))
                }))
            }
            OnLost::Retry => reached.push(once!("a lost step is begun again", Fact::StepBegunAgain)),
            OnLost::Probe => reached.push(once!("the probe finds what a lost step did", Fact::StepProbed)),
        }
        if self.verdicts > 0 {
            reached.extend([
                Property::sometimes("a run is done after a person said that a step was", |config, world| {
                    done_after_verdict(config, world, DoneBy::Person)
                }),
                Property::sometimes(
                    "a run is done after a person said that a step was not",
                    |config, world| done_after_verdict(config, world, DoneBy::Run),
                ),
            ]);
        }
        reached
    }
}

fn state_of_step(world: &World, step: usize) -> Option<&State> {
    world.store.entries[entry_of_step(step)].as_ref().map(|row| &row.value.state)
}

fn done_steps_happened(config: &Config, world: &World) -> bool {
    (0..config.steps).all(|step| match state_of_step(world, step) {
        Some(State::Done { by: DoneBy::Run | DoneBy::Probe }) => world.truths[step].happened,
        Some(State::Done { by: DoneBy::Person }) => world.judged[entry_of_step(step)] > 0,
        _ => true,
    })
}

fn done_runs_have_done_steps(config: &Config, world: &World) -> bool {
    !is_done(world, 0)
        || (0..config.steps).all(|step| matches!(state_of_step(world, step), Some(State::Done { .. })))
}

fn begun_once_per_verdict(config: &Config, world: &World) -> bool {
    (0..config.steps).all(|step| world.truths[step].begun <= 1 + world.judged[entry_of_step(step)])
}

/// Is the run done, with a step that was begun, was judged, and is done by this?
fn done_after_verdict(config: &Config, world: &World, done_by: DoneBy) -> bool {
    let is_so = |step: usize| {
        let state = state_of_step(world, step);
        let is_done_so = matches!(state, Some(State::Done { by }) if *by == done_by);
        is_done_so && world.judged[entry_of_step(step)] > 0 && world.truths[step].begun > 0
    };
    is_done(world, 0) && (0..config.steps).any(is_so)
}

fn states(world: &World) -> impl Iterator<Item = &State> {
    world.store.entries.iter().flatten().map(|row| &row.value.state)
}

fn is_done(world: &World, key: usize) -> bool {
    world.store.entries[key]
        .as_ref()
        .is_some_and(|row| matches!(row.value.state, State::Done { by: DoneBy::Run }))
}

fn trusting(world: &World) -> impl Iterator<Item = &Held> {
    let held = world.workers.iter().filter_map(|worker| worker.held()).filter(|held| held.trust > 0);
    held.filter(|held| is_remembered(world, held))
}

/// What a store has forgotten, its holder goes on to trust.
fn is_remembered(world: &World, held: &Held) -> bool {
    world.store.is_of_this_epoch(held.grant().token)
}

fn one_holder_per_resource(_: &Config, world: &World) -> bool {
    (0..RESOURCES).all(|resource| {
        let holding = trusting(world).filter(|held| held.resource == resource).count();
        holding + keeping(world).filter(|kept| kept.resource == resource).count() <= 1
    })
}

fn keeping(world: &World) -> impl Iterator<Item = &Kept> {
    world.workers.iter().filter_map(|worker| worker.kept()).filter(|kept| kept.trust > 0)
}

fn kept_is_true(_: &Config, world: &World) -> bool {
    keeping(world).all(|kept| {
        let row = world.store.leases[kept.resource].as_ref();
        row.is_some_and(|row| row.is_held() && row.value.grant == kept.lease.grant)
    })
}

fn one_holder_per_key(config: &Config, world: &World) -> bool {
    (0..KEYS).all(|key| {
        let workers = world.workers.iter().zip(config.roles);
        let workers = workers.filter(|(worker, role)| worker.key(role) == Some(key));
        let trusts = |held: &Held| held.trust > 0 && is_remembered(world, held);
        workers.filter(|(worker, _)| worker.held().is_some_and(trusts)).count() <= 1
    })
}

fn trust_is_true(_: &Config, world: &World) -> bool {
    trusting(world).all(|held| {
        let row = world.store.leases[held.resource].as_ref();
        row.is_some_and(|row| row.is_held() && row.value.grant == held.grant())
    })
}

fn trust_is_on_record(config: &Config, world: &World) -> bool {
    world.workers.iter().zip(config.roles).all(|(worker, role)| match (worker.key(role), worker.held()) {
        (Some(key), Some(held)) if held.trust > 0 && is_remembered(world, held) => {
            world.store.entries[key].as_ref().is_some_and(
                |row| matches!(row.value.state, State::Running { grant, .. } if grant == held.grant()),
            )
        }
        _ => true,
    })
}

fn done_means_accepted(_: &Config, world: &World) -> bool {
    (0..KEYS).all(|key| !is_done(world, key) || world.accepted[key] > 0)
}

fn failures_within_the_cap(config: &Config, world: &World) -> bool {
    world.store.entries[..KEYS].iter().flatten().all(|row| row.value.failures <= config.max_failures)
}

fn accepted_once_per_verdict(_: &Config, world: &World) -> bool {
    (0..KEYS).all(|key| world.accepted[key] <= 1 + world.judged[key])
}
