//! Inputs that come slowly or twice, signals, and what is told of a batch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use semel::core::claim::View;
use semel::core::entry::Terms;
use semel::core::item::{ItemAsk, ItemDecision, Under, claim};
use semel::core::record::{Expect, RecordKey, encode};
use semel::core::work::Work;
use semel::engine::batch::{Bad, BatchReport, Counts, ItemIn, ItemSource, Stopped};
use semel::engine::lease::ScriptLease;
use semel::engine::{Caught, Engine, Signals};
use semel::store::{Change, Durability};
use tokio::time::Instant;

use super::world::{self, World, batch, engine, hand, list, numbers, on_memory, one, plan, with_payload};

/// Items that come one by one, each after a while.
struct Slowly(VecDeque<u64>, Duration);

impl ItemSource for Slowly {
    type Data = u64;

    async fn next(&mut self) -> Option<Result<ItemIn<u64>, Bad>> {
        if self.0.is_empty() {
            return None;
        }
        tokio::time::sleep(self.1).await;
        self.0.pop_front().map(one)
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_begins_while_the_next_one_is_long_in_coming() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    let seen = Arc::clone(&world);
    let looks = async move {
        tokio::time::sleep(Duration::from_secs(1_800)).await;
        seen.effects_of(0)
    };
    let (plan, hand) = (plan(2), hand(&world, 10));
    let slowly = Slowly((0..3).collect(), Duration::from_secs(1_000));
    let (ran, early) = tokio::join!(batch(&engine, &plan, slowly, &hand), looks);
    assert_eq!(early, 1, "the first waited for the second");
    assert_eq!((ran.counts, ran.stopped), (Counts { done: 3, ..Counts::default() }, Stopped::AtTheEnd));
}

/// Another runner has these items under way.
async fn under_way(other: &Engine, ids: std::ops::Range<u64>) {
    let plan = plan(1);
    let resource = world::name("job/runner/1");
    let held =
        other.acquire(std::slice::from_ref(&resource), &plan.policy, &other.me, "batch").await.unwrap();
    let ScriptLease::Granted { grant, .. } = held else { panic!() };
    let lease = other.lease_of(&resource).await.unwrap().unwrap().record.version;
    let terms = Terms::of(&plan.policy);
    for id in ids {
        let work = plan.work.clone().for_item(world::fields(id)).unwrap();
        let ask = ItemAsk {
            work: &work,
            runner: Under { resource: &resource, grant: &grant, lease: &lease, owner: &other.me },
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
        other.store.swap(&[change], Durability::Durable).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_comes_twice_while_another_runner_is_at_it_is_taken_over_once() {
    let (dying, memory, living) = on_memory(1);
    under_way(&dying, 0..3).await;
    let heir = engine(Arc::new(memory), dying.clock.clone(), &living, 2);
    let world = Arc::<World>::default();
    let mut plan = plan(2);
    plan.share = true;
    let dies = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        living.0.lock().unwrap().remove(&1);
    };
    let items = Slowly((0..6).map(|n| n % 3).collect(), Duration::from_millis(100));
    let hand = hand(&world, 0);
    let both = async { tokio::join!(batch(&heir, &plan, items, &hand), dies).0 };
    let ran = tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
    assert_eq!(ran.counts, Counts { done: 3, duplicates: 3, ..Counts::default() });
    assert!((0..3).all(|id| world.effects_of(id) == 1));
}

struct Interrupt(Option<Instant>);

fn interrupt(after_ms: u64) -> Interrupt {
    Interrupt(Some(Instant::now() + Duration::from_millis(after_ms)))
}

impl Signals for Interrupt {
    async fn next(&mut self) -> Caught {
        let Some(at) = self.0 else { return std::future::pending().await };
        tokio::time::sleep_until(at).await;
        self.0 = None;
        Caught { signal: 2, from_terminal: true, ends: false }
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupt_begins_nothing_more_and_lets_the_items_answer_it() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    let mut signals = interrupt(130);
    let report = engine.batch(&plan(1), numbers(50), &mut hand(&world, 100), &mut signals, &mut |_| {}).await;
    let BatchReport::Ran(ran) = report else { panic!() };
    assert_eq!(ran.stopped, Stopped::Interrupted(2));
    assert!(world.begun.lock().unwrap().len() < 10, "{:?}", ran.counts);
    let next = batch(&engine, &plan(1), numbers(50), &hand(&world, 0)).await;
    assert_eq!(next.counts.done + ran.counts.done, 50);
    assert!((0..50).all(|id| world.effects_of(id) == 1));
}

#[tokio::test(start_paused = true)]
async fn an_item_that_was_claimed_and_never_begun_is_bound_to_no_payload() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    let mut signals = interrupt(10);
    let items = list((0..20).map(|id| with_payload(id, "wrong")).collect());
    let hand = hand(&world, 1_000);
    let report = engine.batch(&plan(1), items, &mut hand.clone(), &mut signals, &mut |_| {}).await;
    assert!(matches!(report, BatchReport::Ran(_)));
    let begun = world.begun.lock().unwrap().len() as u64;
    assert_eq!(begun, 1);
    // the rest of the list is put right before it is given again
    let items = list((begun..20).map(|id| with_payload(id, "right")).collect());
    let next = batch(&engine, &plan(1), items, &hand).await;
    assert_eq!(next.counts, Counts { done: 19, ..Counts::default() });
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_told_once_that_items_failed_and_once_that_none_does() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    let mut plan = plan(1);
    (plan.lanes, plan.policy.max_failures) = (vec!["mail".to_owned()], 0);
    world.fails.lock().unwrap().insert(7, 2);
    let told = async || {
        let key = RecordKey::alarm(Work::once(world::name("job")).job());
        let alarm = engine.store.load(&[key]).await.unwrap().records.remove(0);
        let text = alarm.map(|record| String::from_utf8(record.value).unwrap()).unwrap_or_default();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let kinds = |name: &str| value[name].as_array().map_or(0, Vec::len);
        (kinds("open"), kinds("outbox"))
    };
    batch(&engine, &plan, numbers(10), &hand(&world, 1)).await;
    let once = told().await;
    assert_eq!(once.0, 1, "{once:?}");
    batch(&engine, &plan, numbers(10), &hand(&world, 1)).await;
    assert_eq!(told().await, once, "told again");
    // one that was stopped before it came to the item says nothing of it
    let mut signals = interrupt(10);
    let hand_slow = hand(&world, 1_000);
    engine.batch(&plan, numbers(40), &mut hand_slow.clone(), &mut signals, &mut |_| {}).await;
    assert_eq!(told().await, once, "a batch that was interrupted recovered it");
    batch(&engine, &plan, numbers(40), &hand(&world, 1)).await;
    let recovered = told().await;
    assert_eq!(recovered.0, 0, "{recovered:?}");
    batch(&engine, &plan, numbers(40), &hand(&world, 1)).await;
    assert_eq!(told().await, recovered, "recovered twice");
}
