//! The search: which steps there are, and what must hold in every state.

use semel_core::entry::{DoneBy, Ending, Say, State};
use semel_core::policy::OnLost;
use stateright::{Model, Property};

use super::super::shared::hash_of;
use super::super::store::Changes;
use super::group::Claimed;
use super::judge::{Fact, Facts};
use super::runner::{Active, Job};
use super::{Items, OWN, World};

macro_rules! never {
    ($name:literal, $fact:expr) => {
        Property::always($name, |_, world: &World| !world.just.has($fact))
    };
}
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
    Start(usize),
    Look(usize, usize),
    Send(usize),
    Apply(usize),
    ApplyUnheard(usize),
    GiveUp(usize),
    Check(usize, usize),
    Begin(usize, usize),
    End(usize, usize, Ending),
    Renew(usize),
    Lose(usize),
    GiveBackStray(usize),
    MeetAgain(usize),
    Leave(usize),
    Crash(usize),
    /// After it has sent what it had to write.
    CrashSent(usize),
    LateArrives(usize),
    Judge(usize, Say),
}

impl Model for Items {
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
        for (r, runner) in world.runners.iter().enumerate() {
            // which of them is the first does not matter
            let first = r == 0 || !self.neighbours || world.runners[r - 1] != runner_of_none();
            match &runner.active {
                None if runner.begun < self.runs && first => actions.push(Action::Start(r)),
                None => {}
                Some(active) => self.actions_of(world, r, active, actions),
            }
        }
        actions.extend((0..world.late.len()).map(Action::LateArrives));
        if world.verdicts_left > 0 {
            let waits = |item: &usize| {
                world.store.entries[*item].as_ref().is_some_and(|row| row.value.state.needs_a_person())
            };
            let said = |item| [Action::Judge(item, Say::Done), Action::Judge(item, Say::Retry)];
            actions.extend((0..self.items).filter(waits).flat_map(said));
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
            Action::Start(r) => next.start(self, r)?,
            Action::Look(r, item) => next.look(self, r, item)?,
            Action::Send(r) => next.send(r)?,
            Action::Apply(r) => next.apply(self, r)?,
            Action::ApplyUnheard(r) => next.apply_unheard(self, r)?,
            Action::GiveUp(r) => next.give_up(self, r)?,
            Action::Check(r, item) => next.check(r, item)?,
            Action::Begin(r, item) => next.begin(r, item)?,
            Action::End(r, item, ending) => next.end_item(r, item, ending)?,
            Action::Renew(r) => next.renew(self, r)?,
            Action::Lose(r) => next.lose(r)?,
            Action::GiveBackStray(r) => next.give_back_stray(self, r)?,
            Action::MeetAgain(r) => next.meet_again(r)?,
            Action::Leave(r) => next.leave(self, r)?,
            Action::Crash(r) => next.crash(self, r, false)?,
            Action::CrashSent(r) => next.crash(self, r, true)?,
            Action::LateArrives(i) => {
                let late = next.late.remove(i);
                if next.arrive(self, &late) {
                    next.just.add(Fact::LateArrived);
                }
            }
            Action::Judge(item, said) => next.give_verdict(self, item, said)?,
        }
        next.settle_down();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Items>> {
        let mut properties = vec![
            never!("a token is above all tokens granted before it", Fact::TokenDidNotGrow),
            never!("a live lease is taken only from the dead", Fact::LiveLeaseTaken),
            never!("a lease of an item's own is no other item's", Fact::LeaseShared),
            never!("no write by another than its holder ends an attempt", Fact::StaleWriteHadEffect),
            never!("the item of a live runner is changed only by it", Fact::LiveItemChanged),
            never!("done is left only by a person's verdict", Fact::DoneWasLeft),
            never!("what needs a person waits for a person", Fact::PersonPassedOver),
            never!("a runner does not take its own item for lost", Fact::OwnItemTakenForLost),
            never!("an item is claimed only under a live lease of its runner", Fact::ClaimedByAZombie),
            never!("an item's own lease is granted before its intent", Fact::ClaimedWithoutItsLease),
            never!("no item is put in doubt that was not lost", Fact::DoubtedWithoutLoss),
            never!("no outcome is taken for recorded that is not", Fact::SettleImagined),
            never!("an outcome on record is recognised by who wrote it", Fact::SettleDenied),
            never!("a glance at a record answers as the rule does", Fact::GlanceErred),
            never!("an item's effect is begun once per grant", Fact::BegunTwice),
            never!("an item that is done is never begun again", Fact::BegunAfterDone),
            never!("no item is begun beside another who trusts that it is at it", Fact::BegunBesideAnother),
            never!("nothing is begun without its intent on record", Fact::BegunWithoutIntent),
            Property::always("at most one runner trusts that it holds an item", one_holder_per_item),
            Property::always("at most one item trusts the lease of a resource", one_item_per_resource),
            Property::always("who trusts that it holds an item does, by the store", trust_is_true),
            Property::always("an item that is recorded as done had its effect", done_items_happened),
            Property::always("when the faults end, every item is done or before a person", everything_ends),
        ];
        match self.on_lost {
            OnLost::Hold => properties.extend([
                never!("where lost items are held, a lost one is put in doubt and not claimed", Fact::LostItemClaimed),
                Property::always(
                    "where lost items are held, an effect is begun once, and once more per verdict or failure",
                    begun_once_per_verdict,
                ),
            ]),
            OnLost::Probe => {
                properties.push(Property::always("what the probe can see is not begun again", probed_not_begun))
            }
            OnLost::Retry => {}
        }
        properties.extend(self.reached());
        properties
    }
}

fn runner_of_none() -> super::runner::Runner {
    super::runner::Runner { begun: 0, active: None }
}

impl Items {
    fn actions_of(&self, world: &World, r: usize, active: &Active, actions: &mut Vec<Action>) {
        if world.crashes_left > 0 {
            actions.push(Action::Crash(r));
        }
        if active.trust == 0 && !active.stopping {
            actions.push(Action::Lose(r));
        }
        if world.renewals_left > 0 && active.trust > 0 && !active.stopping {
            actions.push(Action::Renew(r));
        }
        let has_queued = active.jobs.iter().any(|job| matches!(job, Job::Queued(_)));
        let is_taken_at_once = self.is_sent_when_taken() && has_queued;
        if active.flight.is_some() || is_taken_at_once {
            actions.push(Action::Apply(r));
            if world.unknowns_left > 0 {
                actions.extend([Action::ApplyUnheard(r), Action::GiveUp(r)]);
            }
            if is_taken_at_once && world.crashes_left > 0 && self.late > 0 {
                actions.push(Action::CrashSent(r));
            }
        } else if has_queued {
            actions.push(Action::Send(r));
        }
        for (item, job) in active.jobs.iter().enumerate() {
            match job {
                Job::Look { .. } => actions.push(Action::Look(r, item)),
                Job::Check(_) => actions.push(Action::Check(r, item)),
                Job::Ready(claimed) => {
                    if active.trusts(claimed) {
                        actions.push(Action::Begin(r, item));
                    } else if claimed.own.as_ref().is_some_and(|own| own.trust == 0) {
                        actions.push(Action::End(r, item, Ending::LeaseLost));
                    }
                }
                Job::UnderWay(claimed) => {
                    actions.push(Action::End(r, item, Ending::Succeeded));
                    if self.fails {
                        actions.push(Action::End(r, item, Ending::Failed { code: 1 }));
                    }
                    if !active.trusts(claimed) {
                        actions.push(Action::End(r, item, Ending::LeaseLost));
                    }
                }
                Job::Queued(_) | Job::Flying | Job::Over => {}
            }
        }
        if !active.strays.is_empty() {
            actions.push(Action::GiveBackStray(r));
        }
        if !active.met_again && active.jobs[0] == Job::Over {
            actions.push(Action::MeetAgain(r));
        }
        if active.jobs.iter().all(|job| *job == Job::Over) {
            actions.push(Action::Leave(r));
        }
    }

    /// What must be seen at least once, so that the search is known to have gone where it hurts.
    fn reached(&self) -> Vec<Property<Items>> {
        let mut reached = vec![
            Property::sometimes("every item is done", |items: &Items, world: &World| {
                (0..items.items).all(|item| is_done(world, item))
            }),
            once!("an item of a live runner is left alone", Fact::LeftAlone),
            once!("a zombie's outcome is refused", Fact::StaleSettleRefused),
            once!("what was claimed and not begun is given back", Fact::GivenBack),
        ];
        if self.items > 1 {
            reached.push(once!("claims and outcomes are written together", Fact::Grouped));
        }
        if self.changes == Changes::AllOrNothing {
            reached.push(once!("a zombie's claim is refused", Fact::ClaimRefused));
        }
        if self.on_lost != OnLost::Hold {
            reached.push(once!("a lost item is begun again", Fact::BegunAgain));
            reached.push(once!("a lapsed runner's item is taken over", Fact::TakenAfterALapse));
            // where its own lease is written first, nothing is left of the dead by then
            if self.crashes > 0 && self.neighbours && self.own == 0 {
                reached.push(once!("a dead runner's item is taken over at once", Fact::TakenFromTheDead));
            }
        }
        if self.unknowns > 0 {
            reached.push(once!("a claim is taken up whose answer was lost", Fact::Recovered));
            reached.push(once!("an outcome is recognised whose answer was lost", Fact::SettleRecognised));
        }
        if self.late > 0 {
            reached.push(once!("a swap is made that nobody awaits any more", Fact::LateArrived));
        }
        if self.on_lost == OnLost::Hold {
            reached.push(Property::sometimes("an item is in doubt", |_, world: &World| {
                world
                    .store
                    .entries
                    .iter()
                    .flatten()
                    .any(|row| matches!(row.value.state, State::InDoubt { .. }))
            }));
        }
        if self.on_lost == OnLost::Probe {
            reached.push(once!("the probe finds what a lost item did", Fact::Probed));
        }
        if self.verdicts > 0 {
            reached.push(Property::sometimes(
                "an item is done after a verdict",
                |items: &Items, world: &World| {
                    (0..items.items).any(|item| world.truths[item].judged > 0 && is_done(world, item))
                },
            ));
        }
        if self.twice || self.fails {
            reached.push(once!("an item that comes twice is not begun again", Fact::Repeated));
        }
        if self.own != 0 {
            reached.push(once!("an item waits for a resource that another holds", Fact::Waited));
            if self.changes == Changes::OneAfterAnother {
                reached.push(once!("a lease that no item has any use for is given back", Fact::Strayed));
            }
        }
        reached
    }

    /// From here on nothing goes wrong any more, and each does what it can in turn: is every item done at last, or
    /// before a person?
    fn ends(&self, world: &World) -> bool {
        let patient = Items { troubles: 0, fails: false, closes: 0, ..*self };
        let mut world = world.clone();
        (world.troubles_left, world.renewals_left) = (0, 0);
        world.late.clear();
        world.settle_down();
        let is_over = |world: &World| {
            (0..self.items).all(|item| {
                world.store.entries[item].as_ref().is_some_and(|row| {
                    matches!(row.value.state, State::Done { .. }) || row.value.state.needs_a_person()
                })
            })
        };
        for _ in 0..PATIENCE {
            if is_over(&world) {
                return true;
            }
            for r in 0..self.runners {
                world = patient.turn(world, r);
            }
            if let Some(next) = patient.next_state(&world, Action::Tick) {
                world = next;
            }
        }
        false
    }

    /// One runner does what it can. Its heartbeat does not fail it.
    fn turn(&self, mut world: World, r: usize) -> World {
        for _ in 0..PATIENCE {
            let mut actions = Vec::new();
            match &world.runners[r].active {
                None if world.runners[r].begun >= INVOCATIONS => break,
                None => actions.push(Action::Start(r)),
                Some(active) => self.actions_of(&world, r, active, &mut actions),
            }
            world.renewals_left = 1;
            if let Some(renewed) = self.next_state(&world, Action::Renew(r)) {
                world = renewed;
            }
            actions.retain(|action| !matches!(action, Action::Renew(_)));
            let went_on = actions.into_iter().find_map(|action| {
                let next = self.next_state(&world, action)?;
                let same = World { just: world.just, ..next.clone() } == world;
                (!same).then_some(next)
            });
            match went_on {
                Some(next) => world = next,
                None => break,
            }
        }
        world
    }
}

/// Turns, and steps of a turn, after which it is taken for never.
const PATIENCE: usize = 64;
/// Invocations of a runner that bring everything to its end, or nothing does: each has a number of its own.
const INVOCATIONS: u8 = 12;

fn everything_ends(items: &Items, world: &World) -> bool {
    items.closes == 0 || !hash_of(world).is_multiple_of(items.closes) || items.ends(world)
}

fn is_done(world: &World, item: usize) -> bool {
    world.store.entries[item].as_ref().is_some_and(|row| matches!(row.value.state, State::Done { .. }))
}

/// The items that somebody trusts to hold.
fn trusted(world: &World) -> impl Iterator<Item = (&Active, usize, &Claimed)> {
    let active = world.runners.iter().filter_map(|runner| runner.active.as_ref());
    active.flat_map(|active| {
        let jobs = active.jobs.iter().enumerate();
        jobs.filter_map(move |(item, job)| match job {
            Job::Ready(claimed) | Job::UnderWay(claimed) if active.trusts(claimed) => {
                Some((active, item, claimed))
            }
            _ => None,
        })
    })
}

fn one_holder_per_item(items: &Items, world: &World) -> bool {
    (0..items.items).all(|wanted| trusted(world).filter(|(_, item, _)| *item == wanted).count() <= 1)
}

fn one_item_per_resource(_: &Items, world: &World) -> bool {
    trusted(world).filter(|(_, _, claimed)| claimed.own.is_some()).count() <= 1
}

fn trust_is_true(_: &Items, world: &World) -> bool {
    trusted(world).all(|(active, item, claimed)| {
        let grant = claimed.grant(&active.grant());
        let at = if claimed.own.is_some() { OWN } else { active.resource };
        let lease = world.store.leases[at].as_ref();
        let entry = world.store.entries[item].as_ref().map(|row| &row.value.state);
        lease.is_some_and(|row| row.is_held() && row.value.grant == grant)
            && matches!(entry, Some(State::Running { grant: running, .. }) if *running == grant)
    })
}

fn done_items_happened(items: &Items, world: &World) -> bool {
    (0..items.items).all(|item| match world.store.entries[item].as_ref().map(|row| &row.value.state) {
        Some(State::Done { by: DoneBy::Run | DoneBy::Probe }) => world.truths[item].happened,
        _ => true,
    })
}

fn begun_once_per_verdict(_: &Items, world: &World) -> bool {
    world.truths.iter().all(|truth| truth.begun <= 1 + truth.judged + truth.failed)
}

fn probed_not_begun(_: &Items, world: &World) -> bool {
    !world.just.has(Fact::BegunAlthoughProbed)
}
