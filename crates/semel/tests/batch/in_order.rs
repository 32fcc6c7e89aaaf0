//! Batches on a store that makes the changes of a swap one after another, and may fail or be left between any two.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::clock::Clock;
use semel::core::policy::OnLost;
use semel::core::record::{RecordKey, Version};
use semel::engine::Engine;
use semel::engine::batch::{BatchPlan, BatchReport, Batched, Counts, ItemIn, Stopped};
use semel::store::memory::Memory;
use semel::store::{Change, Durability, Loaded, Most, Pending, Record, Store, StoreError, Swaps};

use super::stage::SimClock;
use super::world::{Dice, Hand, Living, World, batch, done, engine, list, name, one, plan, report};

/// A line to a store that makes each change on its own.
#[derive(Clone)]
struct InOrder {
    memory: Memory,
    dice: Dice,
    /// Calls for one change that fail, of a thousand.
    fails_permille: u64,
}

impl std::fmt::Debug for InOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InOrder")
    }
}

impl InOrder {
    async fn make(&self, change: &Change, durability: Durability) -> Result<Vec<Version>, StoreError> {
        let fate = (self.dice.below(1_000) < self.fails_permille).then(|| self.dice.below(3));
        tokio::time::sleep(Duration::from_micros(self.dice.below(200))).await;
        match fate {
            Some(0) => return Err(StoreError::Unavailable("down".into())),
            Some(1) => return Err(StoreError::Unknown("no answer, and not made".into())),
            _ => {}
        }
        let made = self.memory.swap(std::slice::from_ref(change), durability).await?;
        tokio::time::sleep(Duration::from_micros(self.dice.below(200))).await;
        match fate {
            Some(_) => Err(StoreError::Unknown("no answer, but made".into())),
            None => Ok(made),
        }
    }
}

impl Store for InOrder {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(async move {
            // not as of one moment
            let (mut records, mut token_floor) = (Vec::new(), 0);
            for some in keys.chunks(if keys.len() < 16 { 1 } else { 32 }) {
                let loaded = self.memory.load(some).await?;
                records.extend(loaded.records);
                token_floor = loaded.token_floor;
                tokio::time::sleep(Duration::from_micros(self.dice.below(100))).await;
            }
            Ok(Loaded { records, token_floor })
        })
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        assert!(changes.len() <= self.most().changes, "{} changes in one swap", changes.len());
        Box::pin(async move {
            let mut versions = Vec::new();
            for (index, change) in changes.iter().enumerate() {
                versions.extend(self.make(change, durability).await.map_err(|why| match why {
                    StoreError::Refused(conflict) => {
                        StoreError::refused(index, conflict.key.clone(), conflict.stands.clone())
                    }
                    // what came before stands there
                    StoreError::Unavailable(why) if index > 0 => StoreError::Unknown(why),
                    other => other,
                })?);
            }
            Ok(versions)
        })
    }

    fn swaps(&self) -> Swaps {
        Swaps::InOrder
    }

    fn most(&self) -> Most {
        Most { changes: 8, ..Most::default() }
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        self.memory.touch(key, version)
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.memory.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.memory.changed(key, version, within)
    }
}

const SITES: u64 = 5;

fn items(end: u64, at_sites: bool) -> Vec<Result<ItemIn<u64>, semel::engine::batch::Bad>> {
    let of_its_own = |id: u64| at_sites.then(|| name(&format!("site/{}", id % SITES)));
    (0..end).map(|id| one(id).map(|item| ItemIn { resource: of_its_own(id), ..item })).collect()
}

struct Scene {
    store: InOrder,
    clock: Arc<dyn Clock>,
    living: Living,
    world: Arc<World>,
    hand: Hand,
    /// Those who came to their end.
    ended: Mutex<BTreeSet<i32>>,
}

impl Scene {
    fn new(seed: u64, fails_permille: u64) -> Scene {
        let clock: Arc<dyn Clock> = SimClock::new();
        let (world, dice) = (Arc::<World>::default(), Dice::new(seed));
        let store =
            InOrder { memory: Memory::with_clock(Arc::clone(&clock)), dice: dice.clone(), fails_permille };
        let hand = Hand { world: Arc::clone(&world), takes: Duration::from_millis(4), dice };
        Scene { store, clock, living: Living::default(), world, hand, ended: Mutex::default() }
    }

    fn engine(&self, pid: i32) -> Engine {
        engine(Arc::new(self.store.clone()), Arc::clone(&self.clock), &self.living, pid)
    }

    fn note(&self, pid: i32, ran: &Batched) {
        if ran.stopped == Stopped::AtTheEnd {
            self.ended.lock().unwrap().insert(pid);
        }
    }

    /// Nothing is under way: all is done, once, and who came to its end holds nothing.
    async fn all_is_quiet(&self, items: u64, case: &str) {
        let engine =
            engine(Arc::new(self.store.memory.clone()), Arc::clone(&self.clock), &self.living, 9_999);
        let on_record = done(&engine, items).await;
        let left: BTreeSet<u64> = (0..items).filter(|id| !on_record.contains(id)).collect();
        assert_eq!(left, BTreeSet::new(), "{case}: not done");
        for id in 0..items {
            assert_eq!(self.world.effects_of(id), 1, "{case}: item {id}");
        }
        for site in 0..SITES {
            let lease = engine.lease_of(&name(&format!("site/{site}"))).await.unwrap();
            let hold = lease.and_then(|lease| lease.record.value.hold);
            let hold = hold.filter(|hold| self.ended.lock().unwrap().contains(&hold.owner.pid));
            assert_eq!(hold, None, "{case}: the lease of site/{site} is left held");
        }
    }
}

fn probing(workers: usize, share: bool) -> BatchPlan {
    let mut plan = plan(workers);
    (plan.share, plan.policy.on_lost) = (share, OnLost::Probe);
    plan
}

async fn ran(scene: &Scene, pid: i32, plan: &BatchPlan, items: u64, at_sites: bool) -> Batched {
    let ran = batch(&scene.engine(pid), plan, list(self::items(items, at_sites)), &scene.hand).await;
    scene.note(pid, &ran);
    ran
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_between_two_changes_costs_nothing() {
    for (seed, at_sites) in (1..=8).flat_map(|seed| [(seed, false), (seed, true)]) {
        let scene = Scene::new(seed, 3);
        let began = tokio::time::Instant::now();
        let plan = probing(6, false);
        let ran = ran(&scene, 1, &plan, 300, at_sites).await;
        let case = format!("seed {seed}, at sites {at_sites}, {ran:?}");
        assert_eq!(ran.stopped, Stopped::AtTheEnd, "{case}");
        assert_eq!(ran.counts, Counts { done: 300, ..Counts::default() }, "{case}");
        scene.all_is_quiet(300, &case).await;
        assert!(began.elapsed() < Duration::from_secs(20), "{case}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn killed_between_two_changes_every_item_is_done_once_with_a_probe() {
    for (seed, at_sites) in (1..=4).flat_map(|seed| [(seed, false), (seed, true)]) {
        let scene = Scene::new(seed, 2);
        let plan = probing(8, false);
        for pid in 1.. {
            let lives = pid > 40;
            let kill_at = Duration::from_micros(500 + scene.hand.dice.below(30_000));
            let engine = scene.engine(pid);
            let ran = tokio::select! {
                ran = report(&engine, &plan, list(items(800, at_sites)), &scene.hand) => Some(ran),
                () = tokio::time::sleep(kill_at), if !lives => None,
            };
            scene.living.0.lock().unwrap().remove(&pid);
            match ran {
                Some(BatchReport::Ran(ran)) if lives => {
                    scene.note(pid, &ran);
                    let counts = ran.counts;
                    assert_eq!((counts.failed, counts.quarantined, counts.in_doubt), (0, 0, 0), "{counts:?}");
                    break;
                }
                // the store is down now and then: it is fired again
                Some(BatchReport::NotRun(_)) if pid < 100 => {}
                Some(BatchReport::Ran(_)) | None => {}
                Some(other) => panic!("{other:?}"),
            }
        }
        scene.all_is_quiet(800, &format!("seed {seed}, at sites {at_sites}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn runners_that_share_and_die_do_every_item_once_with_a_probe() {
    for (seed, at_sites) in (1..=4).flat_map(|seed| [(seed, false), (seed, true)]) {
        let scene = Scene::new(seed, 2);
        let plan = probing(4, true);
        let runner = async |n: i32| {
            for life in 0..=6 {
                let pid = n * 1_000 + life;
                let engine = scene.engine(pid);
                let kill_at = Duration::from_micros(2_000 + scene.hand.dice.below(60_000));
                let ran = tokio::select! {
                    ran = report(&engine, &plan, list(items(400, at_sites)), &scene.hand) => Some(ran),
                    () = tokio::time::sleep(kill_at), if life < 6 => None,
                };
                scene.living.0.lock().unwrap().remove(&pid);
                if let Some(BatchReport::Ran(ran)) = ran
                    && ran.stopped == Stopped::AtTheEnd
                {
                    scene.note(pid, &ran);
                    assert_eq!(ran.counts.busy + ran.counts.held, 0, "{ran:?}");
                }
            }
        };
        let all = async { tokio::join!(runner(1), runner(2), runner(3)) };
        tokio::time::timeout(Duration::from_secs(600), all).await.unwrap();
        // whatever the last of them left to a store that was down
        ran(&scene, 9_000, &plan, 400, at_sites).await;
        scene.all_is_quiet(400, &format!("seed {seed}, at sites {at_sites}")).await;
    }
}

/// All items are done by runners that never die: no stall, whoever was faster.
#[tokio::test(start_paused = true)]
async fn runners_that_share_and_live_wait_for_no_lapse() {
    for (seed, at_sites) in (1..=8).flat_map(|seed| [(seed, false), (seed, true)]) {
        let scene = Scene::new(seed, 0);
        let plan = probing(4, true);
        let began = tokio::time::Instant::now();
        let all = async {
            tokio::join!(
                ran(&scene, 1, &plan, 300, at_sites),
                ran(&scene, 2, &plan, 300, at_sites),
                ran(&scene, 3, &plan, 300, at_sites)
            )
        };
        let Ok((a, b, c)) = tokio::time::timeout(Duration::from_secs(120), all).await else {
            let begun = scene.world.begun.lock().unwrap().len();
            panic!("seed {seed}, at sites {at_sites}: stuck, {begun} were begun");
        };
        let case = format!("seed {seed}, at sites {at_sites}, {a:?} {b:?} {c:?}");
        assert_eq!(a.counts.done + b.counts.done + c.counts.done, 300, "{case}");
        scene.all_is_quiet(300, &case).await;
        assert!(began.elapsed() < Duration::from_secs(20), "{case}: {:?}", began.elapsed());
    }
}
