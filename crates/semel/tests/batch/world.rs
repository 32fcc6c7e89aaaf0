//! A world in which items have effects, runners that die, and a store that takes its time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::clock::{Clock, Moment};
use semel::core::entry::{Entry, State};
use semel::core::name::Name;
use semel::core::owner::Owner;
use semel::core::payload::Fingerprint;
use semel::core::policy::Policy;
use semel::core::record::{RecordKey, Version};
use semel::core::token::Nonce;
use semel::core::work::{Fields, Work};
use semel::engine::batch::{
    Bad, BatchEvent, BatchPlan, BatchReport, Batched, Doer, Item, ItemIn, ItemSource, Iterated,
};
use semel::engine::desk::Desk;
use semel::engine::{Begin, Caught, Engine, Neighbours, NotStarted, Probed, Task, TaskEnd, Undisturbed};
use semel::store::memory::Memory;
use semel::store::{Change, Durability, Loaded, Most, Pending, Record, Store};

/// The same numbers for the same seed.
#[derive(Clone)]
pub(crate) struct Dice(Arc<AtomicU64>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(Arc::new(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)))
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        let mut x = self.0.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.0.store(x, Ordering::Relaxed);
        x % end
    }
}

/// What happened out there.
#[derive(Default)]
pub(crate) struct World {
    /// Effects per item.
    pub(crate) effects: Mutex<HashMap<u64, u32>>,
    /// Tries per item.
    pub(crate) tries: Mutex<HashMap<u64, u32>>,
    /// Items that fail: so often.
    pub(crate) fails: Mutex<HashMap<u64, u32>>,
    /// Everything fails.
    pub(crate) down: Mutex<bool>,
    /// In which order items were begun.
    pub(crate) begun: Mutex<Vec<u64>>,
    pub(crate) probed: Mutex<u32>,
    /// How many are under way, and the most there were.
    pub(crate) at_once: Mutex<(u32, u32)>,
    /// Those that were told to stop.
    pub(crate) stopped: Mutex<u32>,
    /// This item cannot be begun, after so many tries.
    pub(crate) no_room_at: Mutex<Option<(u64, u32)>>,
}

impl World {
    pub(crate) fn effects_of(&self, id: u64) -> u32 {
        self.effects.lock().unwrap().get(&id).copied().unwrap_or(0)
    }
}

/// Does items in this world, each taking up to so long.
#[derive(Clone)]
pub(crate) struct Hand {
    pub(crate) world: Arc<World>,
    pub(crate) takes: Duration,
    pub(crate) dice: Dice,
}

impl Doer<u64> for Hand {
    type Task = Doing;

    fn task(&mut self, item: &Item<u64>) -> Doing {
        let takes = self.takes.mul_f64((self.dice.below(100) + 1) as f64 / 100.0);
        Doing { world: Arc::clone(&self.world), id: item.data, takes }
    }
}

pub(crate) struct Doing {
    world: Arc<World>,
    id: u64,
    takes: Duration,
}

struct Under<'a>(&'a World);

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.0.at_once.lock().unwrap().0 -= 1;
    }
}

impl Task for Doing {
    async fn start(&mut self, _: &Begin, _: &Arc<Desk>) -> Result<(), NotStarted> {
        let left = self.world.no_room_at.lock().unwrap();
        if let Some((_, tries)) = left.filter(|(id, _)| *id == self.id) {
            if tries == 0 {
                return Err(NotStarted { code: 126, why: "no room".into(), of_machine: true });
            }
            drop(left);
            *self.world.no_room_at.lock().unwrap() = Some((self.id, tries - 1));
        } else {
            drop(left);
        }
        *self.world.tries.lock().unwrap().entry(self.id).or_default() += 1;
        self.world.begun.lock().unwrap().push(self.id);
        Ok(())
    }

    fn trust_until(&mut self, _: Moment) {}

    async fn ended(&mut self) -> TaskEnd {
        let _under = {
            let mut at_once = self.world.at_once.lock().unwrap();
            at_once.0 += 1;
            at_once.1 = at_once.1.max(at_once.0);
            Under(&self.world)
        };
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes / 2).await;
        }
        if *self.world.down.lock().unwrap() {
            return TaskEnd::Exited(1);
        }
        if let Some(left) = self.world.fails.lock().unwrap().get_mut(&self.id).filter(|left| **left > 0) {
            *left -= 1;
            return TaskEnd::Exited(1);
        }
        *self.world.effects.lock().unwrap().entry(self.id).or_default() += 1;
        if !self.takes.is_zero() {
            tokio::time::sleep(self.takes / 2).await;
        }
        TaskEnd::Exited(0)
    }

    fn signal(&mut self, _: Caught) {}

    async fn stop(&mut self, _: Duration) -> TaskEnd {
        *self.world.stopped.lock().unwrap() += 1;
        TaskEnd::Killed(9)
    }

    async fn clear(&mut self, _: Duration) -> usize {
        0
    }

    fn result(&mut self) -> Option<serde_json::Value> {
        None
    }

    async fn probe(&mut self, _: &Begin) -> Probed {
        *self.world.probed.lock().unwrap() += 1;
        if self.world.effects_of(self.id) > 0 { Probed::Happened } else { Probed::DidNot }
    }
}

/// Who is alive.
#[derive(Clone, Default)]
pub(crate) struct Living(pub(crate) Arc<Mutex<BTreeSet<i32>>>);

impl Neighbours for Living {
    fn is_gone(&self, owner: &Owner, _: &Nonce) -> bool {
        !self.0.lock().unwrap().contains(&owner.pid)
    }
}

/// A store that answers late, and takes little at once: what is dropped meanwhile may or may not be written.
#[derive(Debug)]
pub(crate) struct Slow {
    pub(crate) memory: Memory,
    pub(crate) seed: AtomicU64,
}

impl Store for Slow {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        self.memory.load(keys)
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        assert!(changes.len() <= self.most().changes, "{} changes at once", changes.len());
        let n = self.seed.fetch_add(0x9e37_79b9, Ordering::Relaxed);
        let before = Duration::from_micros(n >> 3 & 0x7ff);
        Box::pin(async move {
            tokio::time::sleep(before).await;
            let made = self.memory.swap(changes, durability).await;
            tokio::time::sleep(Duration::from_millis(2).saturating_sub(before)).await;
            made
        })
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

    fn most(&self) -> Most {
        Most { changes: 3, ..Most::default() }
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn plan(workers: usize) -> BatchPlan {
    BatchPlan {
        work: Work::once(name("job")),
        resources: vec![name("job")],
        share: false,
        workers,
        policy: Policy::default(),
        command: None,
        definition: None,
        nested: None,
        stop_after: 0,
        pause_ms: None,
        wait_ms: None,
        start_within_ms: None,
        lanes: Vec::new(),
    }
}

pub(crate) fn fields(id: u64) -> Fields {
    BTreeMap::from([("id".to_owned(), id.into())])
}

pub(crate) fn one(id: u64) -> Result<ItemIn<u64>, Bad> {
    Ok(ItemIn { fields: fields(id), payload: None, resource: None, line: Some(id), bytes: 8, data: id })
}

pub(crate) fn with_payload(id: u64, text: &str) -> Result<ItemIn<u64>, Bad> {
    let payload = Some(Fingerprint::of_json(&serde_json::json!({ "text": text }), &[]).unwrap());
    Ok(ItemIn { fields: fields(id), payload, resource: None, line: Some(id), bytes: 8, data: id })
}

/// So many items, which can be read again.
pub(crate) struct Numbers {
    pub(crate) next: u64,
    pub(crate) end: u64,
}

impl ItemSource for Numbers {
    type Data = u64;

    fn next(&mut self) -> impl Future<Output = Option<Result<ItemIn<u64>, Bad>>> {
        let id = (self.next < self.end).then_some(self.next);
        self.next += 1;
        std::future::ready(id.map(one))
    }

    fn restart(&mut self) -> bool {
        self.next = 0;
        true
    }
}

pub(crate) fn numbers(end: u64) -> Numbers {
    Numbers { next: 0, end }
}

pub(crate) fn engine(store: Arc<dyn Store>, clock: Arc<dyn Clock>, living: &Living, pid: i32) -> Engine {
    living.0.lock().unwrap().insert(pid);
    let me = Owner { host: "h".into(), boot: "b".into(), pidns: 1, pid, start: 1 };
    Engine { store, clock, neighbours: Arc::new(living.clone()), me }
}

pub(crate) fn on_memory(pid: i32) -> (Engine, Memory, Living) {
    let clock: Arc<dyn Clock> = super::stage::SimClock::new();
    let memory = Memory::with_clock(Arc::clone(&clock));
    let living = Living::default();
    (engine(Arc::new(memory.clone()), clock, &living, pid), memory, living)
}

pub(crate) fn hand(world: &Arc<World>, takes_ms: u64) -> Hand {
    Hand { world: Arc::clone(world), takes: Duration::from_millis(takes_ms), dice: Dice::new(7) }
}

/// A batch that came to its end.
pub(crate) async fn batch<S: ItemSource<Data = u64>>(
    engine: &Engine,
    plan: &BatchPlan,
    source: S,
    hand: &Hand,
) -> Batched {
    match report(engine, plan, source, hand).await {
        BatchReport::Ran(batched) => batched,
        other => panic!("not run: {other:?}"),
    }
}

pub(crate) async fn report<S: ItemSource<Data = u64>>(
    engine: &Engine,
    plan: &BatchPlan,
    source: S,
    hand: &Hand,
) -> BatchReport {
    let tell: &mut (dyn FnMut(BatchEvent<'_, u64>) + Send) = &mut |_| {};
    engine.batch(plan, source, &mut hand.clone(), &mut Undisturbed, tell).await
}

pub(crate) fn list(
    items: Vec<Result<ItemIn<u64>, Bad>>,
) -> Iterated<std::vec::IntoIter<Result<ItemIn<u64>, Bad>>> {
    Iterated(items.into_iter())
}

/// The entry of an item.
pub(crate) async fn entry(engine: &Engine, id: u64) -> Option<Entry> {
    let work = Work::once(name("job")).for_item(fields(id)).unwrap();
    engine.look(Some(&work), &[]).await.unwrap().entry.map(|seen| seen.value)
}

/// The items that are done on record.
pub(crate) async fn done(engine: &Engine, end: u64) -> BTreeSet<u64> {
    let prefix = RecordKey::items_of(&Work::once(name("job")));
    let (mut all, mut from) = (BTreeSet::new(), None);
    loop {
        let records = engine.store.scan(&prefix, from.as_ref(), 1_000).await.unwrap();
        for record in &records {
            let entry: Entry = semel::core::record::decode(&record.key, &record.value).unwrap();
            let id = entry.work.item()["id"].as_u64().unwrap();
            if id < end && matches!(entry.state, State::Done { .. }) {
                all.insert(id);
            }
        }
        from = records.last().map(|record| record.key.clone());
        if from.is_none() {
            return all;
        }
    }
}
