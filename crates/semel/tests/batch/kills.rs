//! Runners that die at any moment, alone and among others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use semel::clock::{Clock, SystemClock};
use semel::core::policy::OnLost;
use semel::engine::Engine;
use semel::engine::batch::BatchReport;
use semel::store::Store;
use semel::store::memory::Memory;
use semel::store::sqlite::Sqlite;

use super::stage::SimClock;
use super::world::{Dice, Hand, Living, Slow, World, done, engine, numbers, plan, report};

const ITEMS: u64 = 2_000;
const KILLS: u32 = 50;

/// How often each item may have had its effect: once, and once more for every kill that found it done and not on
/// record.
async fn note_kill(engine: &Engine, world: &World, allowed: &mut BTreeMap<u64, u32>) {
    let on_record = done(engine, ITEMS).await;
    for id in world.effects.lock().unwrap().keys().filter(|id| !on_record.contains(id)) {
        *allowed.entry(*id).or_insert(1) += 1;
    }
}

async fn killed_again_and_again(seed: u64, on_lost: OnLost) -> (Arc<World>, BTreeMap<u64, u32>) {
    let clock: Arc<dyn Clock> = SimClock::new();
    let store: Arc<dyn Store> =
        Arc::new(Slow { memory: Memory::with_clock(Arc::clone(&clock)), seed: AtomicU64::new(seed) });
    let (living, world, dice) = (Living::default(), Arc::<World>::default(), Dice::new(seed));
    let hand = Hand { world: Arc::clone(&world), takes: Duration::from_millis(4), dice: dice.clone() };
    let mut plan = plan(8);
    plan.policy.on_lost = on_lost;
    let mut allowed = BTreeMap::new();
    for pid in 1.. {
        let engine = engine(Arc::clone(&store), Arc::clone(&clock), &living, pid);
        let kill_at = Duration::from_micros(500 + dice.below(30_000));
        let lives = pid > i32::try_from(KILLS).unwrap();
        let ran = tokio::select! {
            report = report(&engine, &plan, numbers(ITEMS), &hand) => Some(report),
            () = tokio::time::sleep(kill_at), if !lives => None,
        };
        living.0.lock().unwrap().remove(&pid);
        match ran {
            Some(BatchReport::Ran(ran)) if lives => {
                let counts = ran.counts;
                assert_eq!((counts.failed, counts.quarantined, counts.in_doubt), (0, 0, 0), "{counts:?}");
                break;
            }
            Some(BatchReport::Ran(_)) => {}
            Some(other) => panic!("{other:?}"),
            None => note_kill(&engine, &world, &mut allowed).await,
        }
    }
    let last = engine(store, clock, &living, 9_999);
    assert_eq!(done(&last, ITEMS).await.len() as u64, ITEMS);
    (world, allowed)
}

#[tokio::test(start_paused = true)]
async fn killed_fifty_times_with_a_probe_every_effect_happens_exactly_once() {
    for seed in 1..=3 {
        let (world, _) = killed_again_and_again(seed, OnLost::Probe).await;
        assert!((0..ITEMS).all(|id| world.effects_of(id) == 1), "seed {seed}");
        assert!(*world.probed.lock().unwrap() > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn killed_fifty_times_without_a_probe_only_what_was_in_flight_is_doubled() {
    let mut doubled = 0;
    for seed in 1..=3 {
        let (world, allowed) = killed_again_and_again(seed, OnLost::Retry).await;
        for id in 0..ITEMS {
            let effects = world.effects_of(id);
            let most = allowed.get(&id).copied().unwrap_or(1);
            assert!((1..=most).contains(&effects), "seed {seed}, item {id}: {effects} of at most {most}");
            doubled += effects - 1;
        }
    }
    assert!(doubled > 0, "the control: a kill may double what was in flight");
}

/// Runners on one SQLite file, each its own handle as a process would have, killed and started again at random.
async fn shared(seed: u64, items: u64, runners: i32, kills: u32, on_lost: OnLost) -> (Arc<World>, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (living, world, dice) = (Living::default(), Arc::<World>::default(), Dice::new(seed));
    let mut plan = plan(4);
    (plan.share, plan.policy.on_lost) = (true, on_lost);
    let one = |n: i32| {
        let (path, clock, living, dice) = (path.clone(), clock.clone(), living.clone(), dice.clone());
        let (world, plan) = (Arc::clone(&world), plan.clone());
        async move {
            let hand = Hand { world, takes: Duration::from_millis(3), dice: dice.clone() };
            let mut conflicts = 0;
            for life in 0_u32.. {
                let pid = n * 1_000 + i32::try_from(life).unwrap() + 1;
                let store: Arc<dyn Store> = Arc::new(Sqlite::open(&path).unwrap());
                let engine = engine(store, clock.clone(), &living, pid);
                let lives = life >= kills;
                let kill_at = Duration::from_millis(20 + dice.below(120));
                let ran = tokio::select! {
                    report = report(&engine, &plan, numbers(items), &hand) => Some(report),
                    () = tokio::time::sleep(kill_at), if !lives => None,
                };
                // whatever it had sent is applied before anybody concludes that it is gone
                let _ = engine.store.load(&[]).await;
                living.0.lock().unwrap().remove(&pid);
                match ran {
                    Some(BatchReport::Ran(ran)) => {
                        conflicts += ran.conflicts;
                        assert_eq!(ran.counts.busy, 0, "{:?}", ran.counts);
                        return conflicts;
                    }
                    Some(other) => panic!("{other:?}"),
                    None => {}
                }
            }
            conflicts
        }
    };
    let mut all = tokio::task::JoinSet::new();
    for n in 1..=runners {
        all.spawn_local(one(n));
    }
    let conflicts = all.join_all().await.into_iter().sum();
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(&path).unwrap());
    assert_eq!(done(&engine(store, clock, &living, 1), items).await.len() as u64, items);
    (world, conflicts)
}

#[tokio::test]
async fn four_runners_that_are_killed_and_started_again_do_every_item_once_with_a_probe() {
    let local = tokio::task::LocalSet::new();
    let (world, _) = local.run_until(shared(11, 1_000, 4, 5, OnLost::Probe)).await;
    assert!((0..1_000).all(|id| world.effects_of(id) == 1));
}

#[tokio::test]
async fn four_runners_that_live_share_the_items_and_seldom_meet() {
    let local = tokio::task::LocalSet::new();
    let (world, conflicts) = local.run_until(shared(12, 1_000, 4, 0, OnLost::Retry)).await;
    assert!((0..1_000).all(|id| world.effects_of(id) == 1));
    assert!(conflicts < 250, "{conflicts} conflicts");
}
