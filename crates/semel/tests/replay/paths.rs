//! Random paths through a model, from a seed, each step taken on a real store too.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use semel::clock::SystemClock;
use semel::engine::{Engine, Neighbours};
use semel_core::claim::View;
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::record::RecordKey;
use semel_core::token::Nonce;
use semel_core::work::Work;
use stateright::Model;

use super::mirror::{Answer, Mirror, Wanted, ticks};
use super::model::check::Action;
use super::model::config::Config;
use super::model::items::check::Action as ItemAction;
use super::model::items::{self, ITEM, Items, NAMES};
use super::model::store::{RESOURCE, WORK, recorded};
use super::model::worker::{owner_of, run_of};
use super::model::world::World;
use super::places::Place;

/// Numbers that look random, the same ones for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(most).unwrap()).unwrap()
    }
}

/// What a path came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub steps: usize,
    pub made: usize,
    pub touched: usize,
    pub refused: usize,
    pub looks: usize,
    pub falls: usize,
}

/// What becomes of a store that is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fall {
    /// What comes after this does not reach the copy of it.
    LeaveBehind,
    /// It comes back as the copy has it.
    Back,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.steps += other.steps;
        self.made += other.made;
        self.touched += other.touched;
        self.refused += other.refused;
        self.looks += other.looks;
        self.falls += other.falls;
    }
}

/// A look: whose, at which work and resources, and what the model shows.
pub struct Look {
    me: Owner,
    alive: BTreeSet<i32>,
    work: Option<Work>,
    resources: Vec<Name>,
    shown: View,
}

/// A model that can be replayed.
pub trait Replayed: Model<State: Clone + Debug, Action: Clone + Debug> {
    fn name(&self) -> &'static str;
    /// How many ticks this step lets pass on the store's clock.
    fn passes(&self, action: &Self::Action) -> u32;
    /// Does this step make a copy of the store, or put one back?
    fn falls(&self, _: &Self::Action) -> Option<Fall> {
        None
    }
    /// The records of the model.
    fn records(&self, state: &Self::State) -> Vec<Wanted>;
    /// Are they the same, but for what the last step was?
    fn is_same(&self, one: &Self::State, other: &Self::State) -> bool;
    /// What this step looks at first, if it looks.
    fn looks(&self, state: &Self::State, action: &Self::Action) -> Option<Look>;
}

/// Tries for each step: many come to nothing.
const TRIES: usize = 3;

/// Take a path through the model and the real store. Says where they differ.
pub async fn replay<M: Replayed>(
    model: &M,
    seed: u64,
    steps: usize,
    place: &dyn Place,
) -> Result<Tally, String> {
    let (mut dice, mut mirror) = (Dice(seed), Mirror::new(place.store()));
    let mut state = model.init_states().remove(0);
    let (mut tally, mut path) = (Tally::default(), Vec::new());
    // one in which nothing can happen any more ends
    for _ in 0..steps * TRIES {
        if tally.steps == steps {
            break;
        }
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        let action = actions.swap_remove(dice.below(actions.len()));
        let (next, taken) = recorded(|| model.next_state(&state, action.clone()));
        let Some(next) = next else { continue };
        path.push(action.clone());
        let failed = |why: String| format!("{why}\nafter {path:#?}");
        if let Some(look) = model.looks(&state, &action) {
            tally.looks += 1;
            compare_looks(&mirror, look).await.map_err(failed)?;
        }
        for one in &taken {
            match mirror.take(one).await.map_err(failed)? {
                Answer::Made => tally.made += 1,
                Answer::Touched => tally.touched += 1,
                Answer::Refused => tally.refused += 1,
            }
        }
        match model.passes(&action) {
            0 => {}
            ticks => place.pass(ticks),
        }
        match model.falls(&action) {
            None => {}
            Some(Fall::LeaveBehind) => place.leave_behind(),
            Some(Fall::Back) => {
                tally.falls += 1;
                place.fall_back();
            }
        }
        mirror.compare(model.records(&next)).await.map_err(failed)?;
        // whoever looks in vain has done nothing
        tally.steps += usize::from(!model.is_same(&state, &next));
        state = next;
    }
    Ok(tally)
}

struct Known(BTreeSet<i32>);

impl Neighbours for Known {
    fn is_gone(&self, owner: &Owner, _: &Nonce) -> bool {
        !self.0.contains(&owner.pid)
    }
}

/// Does the engine see what the model shows?
async fn compare_looks(mirror: &Mirror, look: Look) -> Result<(), String> {
    let Look { me, alive, work, resources, shown } = look;
    let (store, clock) = (mirror.store.clone(), Arc::new(SystemClock));
    let engine = Engine { store, clock, neighbours: Arc::new(Known(alive)), me };
    let seen = engine.look(work.as_ref(), &resources).await.map_err(|why| why.to_string())?;
    // versions are compared with the records
    let entry = |view: &View| view.entry.as_ref().map(|seen| seen.value.clone());
    if entry(&seen) != entry(&shown) {
        return Err(format!("the engine sees {:?}, the model {:?}", seen.entry, shown.entry));
    }
    for resource in &resources {
        let lease = |view: &View, in_ticks: bool| {
            view.lease(resource).flatten().map(|seen| {
                let left = match seen.standing {
                    semel_core::record::Standing::Live { left_ms } if !in_ticks => {
                        i8::try_from(left_ms).unwrap()
                    }
                    standing => ticks(standing),
                };
                (seen.record.value.clone(), left, seen.owner_gone)
            })
        };
        let (real, model) = (lease(&seen, true), lease(&shown, false));
        if real != model {
            return Err(format!(
                "the engine sees the lease of {resource} as {real:?}, the model as {model:?}"
            ));
        }
    }
    Ok(())
}

impl Replayed for Config {
    fn name(&self) -> &'static str {
        self.name
    }

    fn passes(&self, action: &Action) -> u32 {
        match action {
            Action::Tick => 1,
            Action::StoreClockForward => u32::from(self.forward_by),
            _ => 0,
        }
    }

    fn falls(&self, action: &Action) -> Option<Fall> {
        match action {
            Action::ReplicaFallsBehind => Some(Fall::LeaveBehind),
            Action::Failover => Some(Fall::Back),
            _ => None,
        }
    }

    fn records(&self, world: &World) -> Vec<Wanted> {
        let leases = RESOURCE.iter().zip(&world.store.leases);
        let leases = leases.map(|(name, row)| Wanted::lease(RecordKey::lease(name), row.as_ref()));
        let entries = WORK.iter().zip(&world.store.entries);
        let entries = entries.map(|(work, row)| Wanted::entry(RecordKey::entry(work), row.as_ref()));
        leases.chain(entries).collect()
    }

    fn is_same(&self, one: &World, other: &World) -> bool {
        World { just: other.just, ..one.clone() } == *other
    }

    fn looks(&self, world: &World, action: &Action) -> Option<Look> {
        let Action::Look(w) = action else { return None };
        let worker = &world.workers[*w];
        let run = worker.active.as_ref().map_or(run_of(*w, worker.begun), |active| active.run);
        let me = owner_of(self.roles[*w].host, run);
        let key = worker.key(&self.roles[*w]);
        let shown = world.store.look(key, &me, |owner| world.is_gone(owner), self.resources);
        Some(Look {
            me,
            alive: world.workers.iter().flat_map(|w| &w.active).map(|active| active.run.into()).collect(),
            work: key.map(|key| WORK[key].clone()),
            resources: RESOURCE[..self.resources].to_vec(),
            shown,
        })
    }
}

impl Replayed for Items {
    fn name(&self) -> &'static str {
        self.name
    }

    fn passes(&self, action: &ItemAction) -> u32 {
        u32::from(*action == ItemAction::Tick)
    }

    fn records(&self, world: &items::World) -> Vec<Wanted> {
        let leases = NAMES.iter().zip(&world.store.leases);
        let leases = leases.map(|(name, row)| Wanted::lease(RecordKey::lease(name), row.as_ref()));
        let entries = ITEM.iter().zip(&world.store.entries);
        let entries = entries.map(|(work, row)| Wanted::entry(RecordKey::entry(work), row.as_ref()));
        leases.chain(entries).collect()
    }

    fn is_same(&self, one: &items::World, other: &items::World) -> bool {
        items::World { just: other.just, ..one.clone() } == *other
    }

    fn looks(&self, world: &items::World, action: &ItemAction) -> Option<Look> {
        let ItemAction::Look(r, item) = action else { return None };
        let me = owner_of(self.host(*r), world.runners[*r].active.as_ref()?.run);
        let shown = world.store.look(Some(*item), &me, |owner| world.is_gone(owner));
        let active = world.runners.iter().flat_map(|runner| &runner.active);
        Some(Look {
            me,
            alive: active.map(|active| active.run.into()).collect(),
            work: Some(ITEM[*item].clone()),
            resources: NAMES.to_vec(),
            shown,
        })
    }
}
