//! More items than a runner keeps in mind are under way with another.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::clock::Clock;
use semel::core::claim::View;
use semel::core::entry::Terms;
use semel::core::item::{ItemAsk, ItemDecision, Under, claim};
use semel::core::record::{Expect, RecordKey, encode};
use semel::engine::Engine;
use semel::engine::Undisturbed;
use semel::engine::batch::{
    Bad, BatchEvent, BatchPlan, BatchReport, Batched, Counts, Fate, ItemIn, ItemSource, LATER_LIMIT,
};
use semel::engine::lease::ScriptLease;
use semel::store::memory::Memory;
use semel::store::{Change, Durability, Store};

use super::stage::SimClock;
use super::world::{Living, Numbers, World, engine, fields, hand, list, name, numbers, one, plan};

const BEYOND: u64 = 900;
const ITEMS: u64 = LATER_LIMIT as u64 + BEYOND;

/// A runner that has all items under way and does nothing, and one that comes after it.
struct Scene {
    plan: BatchPlan,
    living: Living,
    world: Arc<World>,
    heir: Engine,
}

impl Scene {
    async fn new() -> Scene {
        let clock: Arc<dyn Clock> = SimClock::new();
        let store: Arc<dyn Store> = Arc::new(Memory::with_clock(Arc::clone(&clock)));
        let living = Living::default();
        let dying = engine(Arc::clone(&store), Arc::clone(&clock), &living, 1);
        let plan = BatchPlan { share: true, ..plan(8) };
        claim_all(&dying, &plan).await;
        let heir = engine(store, clock, &living, 2);
        Scene { plan, living, world: Arc::default(), heir }
    }

    /// The heir comes; a while later the other dies. With what was told of several at once.
    async fn run<S: ItemSource<Data = u64>>(&self, source: S, takes_ms: u64) -> (Batched, Vec<(u64, bool)>) {
        let several = Arc::<Mutex<Vec<(u64, bool)>>>::default();
        let heard = Arc::clone(&several);
        let mut tell = move |event: BatchEvent<'_, u64>| {
            if let BatchEvent::Several { count, fate } = event {
                heard.lock().unwrap().push((count, matches!(fate, Fate::Busy)));
            }
        };
        let dies = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(self.world.begun.lock().unwrap().is_empty(), "a live one's items were taken");
            self.living.0.lock().unwrap().remove(&1);
        };
        let (mut hand, mut undisturbed) = (hand(&self.world, takes_ms), Undisturbed);
        let batch = self.heir.batch(&self.plan, source, &mut hand, &mut undisturbed, &mut tell);
        let (report, ()) = tokio::join!(batch, dies);
        let BatchReport::Ran(ran) = report else { panic!("{report:?}") };
        let several = several.lock().unwrap().clone();
        (ran, several)
    }
}

async fn claim_all(dying: &Engine, plan: &BatchPlan) {
    let resource = name("job/runner/1");
    let held =
        dying.acquire(std::slice::from_ref(&resource), &plan.policy, &dying.me, "batch").await.unwrap();
    let ScriptLease::Granted { grant, .. } = held else { panic!() };
    let lease = dying.lease_of(&resource).await.unwrap().unwrap().record.version;
    for id in 0..ITEMS {
        let work = plan.work.clone().for_item(fields(id)).unwrap();
        let terms = Terms::of(&plan.policy);
        let ask = ItemAsk {
            work: &work,
            runner: Under { resource: &resource, grant: &grant, lease: &lease, owner: &dying.me },
            own: None,
            terms: &terms,
            payload: None,
            command: None,
            definition: None,
            now_ms: 5,
        };
        let ItemDecision::Claim(claim) = claim(&View::default(), &ask) else { panic!() };
        let key = RecordKey::entry(&work);
        let value = encode(&key, &claim.entry).unwrap();
        let change = Change::Put { key, expect: Expect::Absent, value, ttl: None };
        dying.store.swap(&[change], Durability::Durable).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_beyond_the_list_of_busy_items_is_found_in_a_second_pass() {
    let scene = Scene::new().await;
    let (ran, several) = scene.run(numbers(ITEMS), 0).await;
    assert_eq!(ran.counts, Counts { done: ITEMS, ..Counts::default() });
    assert!((0..ITEMS).all(|id| scene.world.effects_of(id) == 1));
    assert_eq!(several, []);
}

/// The input ends while some of what was found in it waits for a worker.
#[tokio::test(start_paused = true)]
async fn each_item_of_a_second_pass_is_counted_once_however_long_it_takes() {
    let scene = Scene::new().await;
    let (ran, several) = scene.run(numbers(ITEMS), 400).await;
    assert_eq!(ran.counts, Counts { done: ITEMS, ..Counts::default() });
    assert_eq!(several, []);
}

#[tokio::test(start_paused = true)]
async fn what_is_beyond_the_list_and_cannot_be_read_again_is_left_and_counted() {
    let scene = Scene::new().await;
    let (ran, several) = scene.run(list((0..ITEMS).map(one).collect()), 0).await;
    assert_eq!(ran.counts, Counts { done: LATER_LIMIT as u64, busy: BEYOND, ..Counts::default() });
    assert_eq!(several, [(BEYOND, true)]);
}

/// Read again, the input breaks off before its end.
struct Breaking(Numbers, bool);

impl ItemSource for Breaking {
    type Data = u64;

    fn next(&mut self) -> impl Future<Output = Option<Result<ItemIn<u64>, Bad>>> {
        let Breaking(numbers, again) = self;
        let cut = ITEMS - 300;
        let next = match numbers.next {
            at if *again && at > cut => None,
            at if *again && at == cut => Some(Err(Bad { line: None, why: "gone".into(), is_last: true })),
            at => (at < numbers.end).then(|| one(at)),
        };
        numbers.next += 1;
        std::future::ready(next)
    }

    fn restart(&mut self) -> bool {
        self.1 = true;
        self.0.restart()
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_pass_that_breaks_off_says_so_and_counts_nothing_as_done() {
    for takes_ms in [0, 400] {
        let scene = Scene::new().await;
        let (ran, several) = scene.run(Breaking(numbers(ITEMS), false), takes_ms).await;
        let Counts { done, busy, bad, skipped, .. } = ran.counts;
        assert_eq!((done + busy, bad, skipped), (ITEMS, 1, 0), "{:?}", ran.counts);
        assert!(busy > 0 && done > LATER_LIMIT as u64, "{:?}", ran.counts);
        assert_eq!(several, [(busy, true)]);
    }
}
