//! Items that name a resource of their own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::clock::Moment;
use semel::core::entry::State;
use semel::core::policy::{IfBusy, Policy};
use semel::engine::batch::{Bad, BatchPlan, BatchReport, Batched, Counts, Doer, Item, ItemIn, Stopped};
use semel::engine::desk::Desk;
use semel::engine::lease::ScriptLease;
use semel::engine::{Begin, Caught, Engine, NotStarted, Probed, Task, TaskEnd, Undisturbed};
use semel::store::memory::Memory;
use tokio::time::Instant;

use super::world::{self, Dice, Living, Slow, engine, fields, list, name, on_memory, plan};

const SITES: u64 = 3;

fn site(id: u64) -> String {
    format!("site/{}", id % SITES)
}

fn one(id: u64) -> Result<ItemIn<u64>, Bad> {
    let resource = Some(name(&site(id)));
    Ok(ItemIn { fields: fields(id), payload: None, resource, line: Some(id), bytes: 8, data: id })
}

/// What happened at each site.
#[derive(Default)]
struct Sites {
    under_way: Mutex<HashMap<u64, u32>>,
    /// The most there were at one site, and anywhere.
    most: Mutex<(u32, u32)>,
    effects: Mutex<HashMap<u64, u32>>,
    tokens: Mutex<Vec<(u64, u64)>>,
    stopped: Mutex<u32>,
}

#[derive(Clone)]
struct Hands {
    sites: Arc<Sites>,
    takes_ms: u64,
    dice: Dice,
}

impl Doer<u64> for Hands {
    type Task = Visit;

    fn task(&mut self, item: &Item<u64>) -> Visit {
        let takes = Duration::from_millis(self.dice.below(self.takes_ms.max(1)) + 1);
        Visit { sites: Arc::clone(&self.sites), id: item.data, takes, began: None, had_effect: false }
    }
}

struct Visit {
    sites: Arc<Sites>,
    id: u64,
    takes: Duration,
    began: Option<Instant>,
    had_effect: bool,
}

struct There<'a>(&'a Sites, u64);

impl Drop for There<'_> {
    fn drop(&mut self) {
        *self.0.under_way.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

impl Task for Visit {
    async fn start(&mut self, begin: &Begin, _: &Arc<Desk>) -> Result<(), NotStarted> {
        assert_eq!(begin.resource.as_str(), site(self.id));
        assert!(begin.within.is_some(), "the runner's own lease is told too");
        self.sites.tokens.lock().unwrap().push((self.id % SITES, begin.grant.token.value()));
        Ok(())
    }

    fn trust_until(&mut self, _: Moment) {}

    async fn ended(&mut self) -> TaskEnd {
        let at = self.id % SITES;
        let _there = {
            let mut under_way = self.sites.under_way.lock().unwrap();
            *under_way.entry(at).or_default() += 1;
            let mut most = self.sites.most.lock().unwrap();
            most.0 = most.0.max(under_way[&at]);
            most.1 = most.1.max(under_way.values().sum());
            There(&self.sites, at)
        };
        // it is asked again after every renewal
        let began = *self.began.get_or_insert_with(Instant::now);
        tokio::time::sleep_until(began + self.takes / 2).await;
        if !std::mem::replace(&mut self.had_effect, true) {
            *self.sites.effects.lock().unwrap().entry(self.id).or_default() += 1;
        }
        tokio::time::sleep_until(began + self.takes).await;
        TaskEnd::Exited(0)
    }

    fn signal(&mut self, _: Caught) {}

    async fn stop(&mut self, _: Duration) -> TaskEnd {
        *self.sites.stopped.lock().unwrap() += 1;
        TaskEnd::Killed(9)
    }

    async fn clear(&mut self, _: Duration) -> usize {
        0
    }

    fn result(&mut self) -> Option<serde_json::Value> {
        None
    }

    async fn probe(&mut self, _: &Begin) -> Probed {
        Probed::DidNot
    }
}

fn hands(sites: &Arc<Sites>, takes_ms: u64) -> Hands {
    Hands { sites: Arc::clone(sites), takes_ms, dice: Dice::new(11) }
}

async fn run(
    engine: &Engine,
    plan: &BatchPlan,
    items: Vec<Result<ItemIn<u64>, Bad>>,
    hands: &Hands,
) -> Batched {
    match engine.batch(plan, list(items), &mut hands.clone(), &mut Undisturbed, &mut |_| {}).await {
        BatchReport::Ran(batched) => batched,
        other => panic!("not run: {other:?}"),
    }
}

fn all(end: u64) -> Vec<Result<ItemIn<u64>, Bad>> {
    (0..end).map(one).collect()
}

#[tokio::test(start_paused = true)]
async fn two_items_of_one_resource_never_overlap_and_others_go_first() {
    let (engine, ..) = on_memory(1);
    let sites = Arc::<Sites>::default();
    // many of one site in front of the others
    let mut items: Vec<u64> = (0..200).map(|n| n * SITES).collect();
    items.extend((0..200).map(|n| n * SITES + 1));
    items.extend((0..200).map(|n| n * SITES + 2));
    let batched = run(&engine, &plan(8), items.into_iter().map(one).collect(), &hands(&sites, 20)).await;
    assert_eq!(batched.counts, Counts { done: 600, ..Counts::default() });
    assert_eq!(*sites.most.lock().unwrap(), (1, 3), "one at each site, all sites at once");
    let mut tokens = sites.tokens.lock().unwrap().clone();
    assert!((0..SITES).all(|at| tokens.iter().filter(|(site, _)| *site == at).is_sorted()));
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), 600, "each item has a grant of its own");
    for id in 0..SITES {
        let lease = engine.lease_of(&name(&site(id))).await.unwrap().unwrap();
        assert!(lease.record.value.hold.is_none(), "given back");
    }
    let entry = world::entry(&engine, 4).await.unwrap();
    assert_eq!(entry.last_attempt().unwrap().resource, name("site/1"));
}

/// Control: without a name they do.
#[tokio::test(start_paused = true)]
async fn items_that_name_nothing_overlap() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<world::World>::default();
    world::batch(&engine, &plan(8), world::numbers(60), &world::hand(&world, 20)).await;
    assert_eq!(world.at_once.lock().unwrap().1, 8);
}

#[tokio::test(start_paused = true)]
async fn an_item_with_a_resource_costs_two_commits_at_most() {
    let (engine, ..) = on_memory(1);
    let (sites, world) = (Arc::<Sites>::default(), Arc::<world::World>::default());
    let plain =
        world::batch(&engine, &plan(SITES as usize), world::numbers(300), &world::hand(&world, 10)).await;
    let (engine, ..) = on_memory(1);
    let own = run(&engine, &plan(SITES as usize), all(300), &hands(&sites, 10)).await;
    assert_eq!(own.counts.done, 300);
    // an outcome and the next claim of its resource cannot be in one swap: at most two for each item
    assert!(
        own.commits <= 600 && own.commits >= plain.commits / 2,
        "{} against {}",
        own.commits,
        plain.commits
    );
}

#[tokio::test(start_paused = true)]
async fn runners_that_share_keep_out_of_each_others_sites() {
    let (first, memory, living) = on_memory(1);
    let second = engine(Arc::new(memory), first.clock.clone(), &living, 2);
    let sites = Arc::<Sites>::default();
    let shared = BatchPlan { share: true, ..plan(2) };
    let hands = hands(&sites, 30);
    let both = async {
        tokio::join!(run(&first, &shared, all(200), &hands), run(&second, &shared, all(200), &hands))
    };
    let (a, b) = tokio::time::timeout(Duration::from_secs(600), both).await.unwrap();
    assert_eq!(a.counts.done + b.counts.done, 200);
    assert_eq!((a.counts.skipped, b.counts.skipped), (b.counts.done, a.counts.done));
    assert!(a.counts.done > 0 && b.counts.done > 0, "{a:?} {b:?}");
    assert_eq!(sites.most.lock().unwrap().0, 1);
    assert!((0..200).all(|id| sites.effects.lock().unwrap()[&id] == 1));
}

#[tokio::test(start_paused = true)]
async fn a_dead_runners_items_are_taken_over_with_their_resources() {
    for kill_after_ms in [1, 7, 15, 33, 61] {
        let clock = super::stage::SimClock::new();
        let memory = Memory::with_clock(clock.clone());
        let living = Living::default();
        let slow = Arc::new(Slow { memory: memory.clone(), seed: kill_after_ms.into() });
        let dying = engine(slow, clock.clone(), &living, 1);
        let sites = Arc::<Sites>::default();
        let hands = hands(&sites, 12);
        let shared = BatchPlan { share: true, ..plan(2) };
        let killed = run(&dying, &shared, all(60), &hands);
        assert!(tokio::time::timeout(Duration::from_millis(kill_after_ms), killed).await.is_err());
        living.0.lock().unwrap().remove(&1);
        let next = engine(Arc::new(memory), clock, &living, 2);
        let began = Instant::now();
        let batched = run(&next, &shared, all(60), &hands).await;
        assert_eq!(batched.counts.done + batched.counts.skipped, 60, "{batched:?}");
        assert!(began.elapsed() < Duration::from_secs(30), "a dead owner is known at once");
        let effects = sites.effects.lock().unwrap();
        assert!((0..60).all(|id| effects[&id] >= 1));
        assert!(effects.values().filter(|n| **n > 1).count() <= 3, "only what was under way comes twice");
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_else_holds_is_put_off_and_left_as_the_policy_says() {
    let (mine, memory, living) = on_memory(1);
    let other = engine(Arc::new(memory), mine.clock.clone(), &living, 2);
    let policy = Policy { ttl_ms: 3_600_000, kill_after_ms: 1_000, ..Policy::default() };
    let held = other.acquire(&[name("site/1")], &policy, &other.me, "a person").await.unwrap();
    let ScriptLease::Granted { grant, .. } = held else { panic!() };
    let sites = Arc::<Sites>::default();
    let left = run(&mine, &plan(2), all(30), &hands(&sites, 5)).await;
    assert_eq!(left.counts, Counts { done: 20, held: 10, ..Counts::default() });
    assert_eq!(left.stopped, Stopped::AtTheEnd);
    // who waits has it when it is given back
    let waits = Policy { if_busy: IfBusy::Wait { for_ms: 60_000 }, ..Policy::default() };
    let waiting = BatchPlan { policy: waits, ..plan(2) };
    let gives_back = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        other.release(&name("site/1"), grant.token).await.unwrap().unwrap();
    };
    let hands = hands(&sites, 5);
    let (ran, ()) = tokio::join!(run(&mine, &waiting, all(30), &hands), gives_back);
    assert_eq!(ran.counts, Counts { done: 10, skipped: 20, ..Counts::default() });
    // and not for ever
    other.acquire(&[name("site/1")], &policy, &other.me, "a person").await.unwrap();
    let began = Instant::now();
    let more = run(&mine, &waiting, all(33), &hands).await;
    assert_eq!(more.counts, Counts { done: 2, skipped: 30, held: 1, ..Counts::default() });
    assert!(began.elapsed() >= Duration::from_secs(60) && began.elapsed() < Duration::from_secs(70));
}

#[tokio::test(start_paused = true)]
async fn more_than_can_wait_for_one_resource_is_read_on() {
    let (mine, memory, living) = on_memory(1);
    let other = engine(Arc::new(memory), mine.clock.clone(), &living, 2);
    let policy = Policy { ttl_ms: 3_600_000, kill_after_ms: 1_000, ..Policy::default() };
    other.acquire(&[name("site/0")], &policy, &other.me, "a person").await.unwrap();
    let sites = Arc::<Sites>::default();
    let mut items: Vec<_> = (0..10_000).map(|n| one(n * SITES)).collect();
    items.push(one(1));
    let left = run(&mine, &plan(4), items, &hands(&sites, 5)).await;
    assert_eq!(left.counts, Counts { done: 1, held: 10_000, ..Counts::default() });
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_its_item_goes_on() {
    let (engine, ..) = on_memory(1);
    let sites = Arc::<Sites>::default();
    let long = Hands { takes_ms: 1, ..hands(&sites, 1) };
    struct Long(Hands);
    impl Doer<u64> for Long {
        type Task = Visit;
        fn task(&mut self, item: &Item<u64>) -> Visit {
            Visit { takes: Duration::from_secs(600), ..self.0.task(item) }
        }
    }
    let report = engine.batch(&plan(2), list(all(4)), &mut Long(long), &mut Undisturbed, &mut |_| {}).await;
    let BatchReport::Ran(batched) = report else { panic!() };
    assert_eq!(batched.counts, Counts { done: 4, ..Counts::default() });
    assert_eq!(*sites.stopped.lock().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_loses_its_lease_is_stopped_and_no_other() {
    let (engine, memory, living) = on_memory(1);
    let other = world::engine(Arc::new(memory), engine.clock.clone(), &living, 2);
    let sites = Arc::<Sites>::default();
    struct Long(Hands);
    impl Doer<u64> for Long {
        type Task = Visit;
        fn task(&mut self, item: &Item<u64>) -> Visit {
            Visit { takes: Duration::from_secs(120), ..self.0.task(item) }
        }
    }
    let steals = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let token = other.lease_of(&name("site/1")).await.unwrap().unwrap().record.value.grant.token;
        other.release(&name("site/1"), token).await.unwrap().unwrap();
        other.acquire(&[name("site/1")], &Policy::default(), &other.me, "a thief").await.unwrap();
    };
    let plan = plan(3);
    let mut doer = Long(hands(&sites, 1));
    let tell: &mut (dyn FnMut(semel::engine::batch::BatchEvent<'_, u64>) + Send) = &mut |_| {};
    let mut signals = Undisturbed;
    let (report, ()) = tokio::join!(engine.batch(&plan, list(all(3)), &mut doer, &mut signals, tell), steals);
    let BatchReport::Ran(batched) = report else { panic!() };
    assert_eq!(batched.counts, Counts { done: 2, interrupted: 1, ..Counts::default() });
    assert_eq!(*sites.stopped.lock().unwrap(), 1);
    let entry = world::entry(&engine, 1).await.unwrap();
    assert_eq!(entry.state, State::Open { torn: true });
    let lease = engine.lease_of(&name("site/1")).await.unwrap().unwrap();
    assert_eq!(lease.record.value.hold.unwrap().what, "a thief", "what is another's is not given back");
}

#[tokio::test(start_paused = true)]
async fn an_item_that_names_what_the_batch_holds_is_a_bad_one() {
    let (engine, ..) = on_memory(1);
    let sites = Arc::<Sites>::default();
    let mut items = all(3);
    items.push(one(5).map(|item| ItemIn { resource: Some(name("job")), ..item }));
    let batched = run(&engine, &plan(2), items, &hands(&sites, 1)).await;
    assert_eq!(batched.counts, Counts { done: 3, bad: 1, ..Counts::default() });
}
