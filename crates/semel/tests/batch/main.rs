//! Batches: each item once, whatever dies.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use semel::core::entry::State;
use semel::core::policy::{IfBusy, OnLost, Policy};
use semel::engine::batch::{BatchReport, Counts, Stopped};
use semel::engine::{Caught, Report, Signals};

mod adverse;
mod beyond;
mod faults;
mod in_order;
mod kills;
mod own;
#[allow(dead_code)] // shared with the tests of the engine
#[path = "../engine/stage.rs"]
mod stage;
mod world;

use world::{World, batch, done, engine, entry, hand, list, numbers, on_memory, one, plan, with_payload};

#[tokio::test]
async fn every_item_is_done_once_and_a_second_run_finds_nothing_left() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    let first = batch(&engine, &plan(8), numbers(1_000), &hand(&world, 0)).await;
    assert_eq!(first.counts, Counts { done: 1_000, ..Counts::default() });
    assert_eq!(first.stopped, Stopped::AtTheEnd);
    assert!((0..1_000).all(|id| world.effects_of(id) == 1));
    let second = batch(&engine, &plan(8), numbers(1_100), &hand(&world, 0)).await;
    assert_eq!(second.counts, Counts { done: 100, skipped: 1_000, ..Counts::default() });
    assert!((0..1_100).all(|id| world.effects_of(id) == 1));
}

#[tokio::test(start_paused = true)]
async fn as_many_are_under_way_as_there_are_workers() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    batch(&engine, &plan(5), numbers(60), &hand(&world, 50)).await;
    assert_eq!(world.at_once.lock().unwrap().1, 5);
}

#[tokio::test]
async fn a_key_that_comes_twice_runs_once_and_another_payload_is_a_mismatch() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    let mut items: Vec<_> = (0..600).map(|id| with_payload(id % 300, "a")).collect();
    items.push(with_payload(5, "b"));
    items.push(with_payload(301, "a"));
    let first = batch(&engine, &plan(4), list(items), &hand(&world, 0)).await;
    assert_eq!(first.counts, Counts { done: 301, duplicates: 300, mismatched: 1, ..Counts::default() });
    assert!((0..300).all(|id| world.effects_of(id) == 1));
    let items = list(vec![with_payload(5, "b"), with_payload(6, "a")]);
    let second = batch(&engine, &plan(4), items, &hand(&world, 0)).await;
    assert_eq!(second.counts, Counts { skipped: 1, mismatched: 1, ..Counts::default() });
}

#[tokio::test]
async fn what_failed_is_tried_by_the_next_run_until_the_cap_and_then_quarantined() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    world.fails.lock().unwrap().extend([(3, 1), (4, 99)]);
    let mut counts = Vec::new();
    for _ in 0..4 {
        let Counts { done, failed, quarantined, skipped, .. } =
            batch(&engine, &plan(2), numbers(10), &hand(&world, 0)).await.counts;
        counts.push((done, failed, quarantined, skipped));
    }
    assert_eq!(counts, [(8, 2, 0, 0), (1, 1, 0, 8), (0, 0, 1, 9), (0, 0, 1, 9)]);
    assert_eq!(world.tries.lock().unwrap()[&4], 3);
    assert_eq!(entry(&engine, 4).await.unwrap().state, State::Quarantined);
}

#[tokio::test(start_paused = true)]
async fn retries_inside_a_run_count_toward_the_cap() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    world.fails.lock().unwrap().extend([(3, 1), (4, 99)]);
    let mut plan = plan(2);
    (plan.policy.retries, plan.policy.backoff_ms) = (5, 20);
    let ran = batch(&engine, &plan, numbers(10), &hand(&world, 1)).await;
    assert_eq!(ran.counts, Counts { done: 9, quarantined: 1, ..Counts::default() });
    let tries = world.tries.lock().unwrap();
    assert_eq!((tries[&3], tries[&4]), (2, 3));
}

#[tokio::test]
async fn a_bad_line_is_told_and_the_others_are_done() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    let bad =
        |line| Err(semel::engine::batch::Bad { line: Some(line), why: "no JSON".into(), is_last: false });
    let mut empty = one(5).unwrap();
    empty.fields.clear();
    let items = vec![one(1), bad(2), one(3), Ok(empty), bad(6)];
    let ran = batch(&engine, &plan(2), list(items), &hand(&world, 0)).await;
    assert_eq!(ran.counts, Counts { done: 2, bad: 3, ..Counts::default() });
}

#[tokio::test(start_paused = true)]
async fn a_breaker_without_a_pause_ends_the_batch_and_burns_no_list() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    *world.down.lock().unwrap() = true;
    let mut plan = plan(2);
    plan.stop_after = 5;
    let ran = batch(&engine, &plan, numbers(1_000), &hand(&world, 1)).await;
    assert_eq!(ran.stopped, Stopped::Breaker(5));
    assert!(ran.counts.failed <= 6, "{:?}", ran.counts);
    // what was claimed ahead and not begun is as it was
    *world.down.lock().unwrap() = false;
    let next = batch(&engine, &plan, numbers(1_000), &hand(&world, 0)).await;
    assert_eq!(next.counts, Counts { done: 1_000, ..Counts::default() });
}

#[tokio::test(start_paused = true)]
async fn after_its_pause_one_item_decides() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    *world.down.lock().unwrap() = true;
    let mut plan = plan(4);
    (plan.stop_after, plan.pause_ms, plan.policy.max_failures) = (5, Some(60_000), 0);
    let again = Arc::clone(&world);
    let recovery = async move {
        tokio::time::sleep(Duration::from_secs(150)).await;
        let tried = again.begun.lock().unwrap().len();
        *again.down.lock().unwrap() = false;
        tried
    };
    let hand = hand(&world, 1);
    let (ran, tried) = tokio::join!(batch(&engine, &plan, numbers(100), &hand), recovery);
    // five in a row and at most three beside them, then one each minute
    assert!((7..=10).contains(&tried), "{tried}");
    assert_eq!(ran.counts.done + ran.counts.failed, 100);
    assert!(ran.counts.failed <= 10 && ran.stopped == Stopped::AtTheEnd, "{ran:?}");
}

#[tokio::test(start_paused = true)]
async fn a_second_start_stands_down_unless_both_share() {
    let (alone, mut shared) = (plan(1), plan(1));
    shared.share = true;
    for (mine, theirs, stands_down) in
        [(&alone, &alone, true), (&alone, &shared, true), (&shared, &alone, true), (&shared, &shared, false)]
    {
        let (first, memory, living) = on_memory(1);
        let second = engine(Arc::new(memory), first.clock.clone(), &living, 2);
        let world = Arc::<World>::default();
        let hand = hand(&world, 50);
        let late = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            world::report(&second, theirs, numbers(10), &hand).await
        };
        let (_, late) = tokio::join!(world::report(&first, mine, numbers(10), &hand), late);
        assert_eq!(matches!(late, BatchReport::NotRun(Report::Yielded(_))), stands_down, "{late:?}");
        assert!((0..10).all(|id| world.effects_of(id) == 1));
    }
    let (first, memory, living) = on_memory(1);
    let second = engine(Arc::new(memory), first.clock.clone(), &living, 2);
    let world = Arc::<World>::default();
    let hand = hand(&world, 50);
    let waits = world::plan(1);
    let waits = semel::engine::batch::BatchPlan {
        policy: Policy { if_busy: IfBusy::Wait { for_ms: 60_000 }, ..Policy::default() },
        ..waits
    };
    let late = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        batch(&second, &waits, numbers(20), &hand).await
    };
    let (_, late) = tokio::join!(world::report(&first, &alone, numbers(20), &hand), late);
    assert_eq!(late.counts.skipped, 20);
    assert!((0..20).all(|id| world.effects_of(id) == 1));
}

struct After(Option<Duration>);

impl Signals for After {
    async fn next(&mut self) -> Caught {
        let Some(after) = self.0 else { return std::future::pending().await };
        tokio::time::sleep(after).await;
        self.0 = None;
        Caught { signal: 15, from_terminal: false, ends: true }
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_stops_what_is_under_way_within_its_grace_and_gives_back_the_rest() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    let mut plan = plan(3);
    plan.policy.on_lost = OnLost::Hold;
    let hand = hand(&world, 3_600_000);
    let mut signals = After(Some(Duration::from_millis(10)));
    let report = engine.batch(&plan, numbers(50), &mut hand.clone(), &mut signals, &mut |_| {}).await;
    let BatchReport::Ran(ran) = report else { panic!() };
    assert_eq!((ran.stopped, ran.counts.interrupted), (Stopped::Interrupted(15), 3));
    assert_eq!(*world.stopped.lock().unwrap(), 3);
    // of those under way nobody knows; the others were not begun, whatever was claimed
    let next = batch(&engine, &plan, numbers(50), &world::hand(&world, 0)).await;
    assert_eq!(next.counts, Counts { done: 47, in_doubt: 3, ..Counts::default() });
}

#[tokio::test]
async fn the_naive_way_by_position_skips_what_failed_and_keys_do_not() {
    // by position: so many lines are done, so begin after them
    let mut lines = vec!["a", "b", "c"];
    let (mut position, mut naive) = (0, Vec::new());
    for line in &lines {
        if *line == "b" {
            position += 1; // it failed; the log says that line 2 was tried
            continue;
        }
        naive.push(*line);
        position += 1;
    }
    lines.insert(0, "new");
    naive.extend(lines.iter().skip(position));
    assert_eq!(naive, ["a", "c", "c"], "the control: c twice, b and the new one never");

    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    world.fails.lock().unwrap().insert(2, 1);
    batch(&engine, &plan(1), list(vec![one(1), one(2), one(3)]), &hand(&world, 0)).await;
    let ran = batch(&engine, &plan(1), list(vec![one(0), one(1), one(2), one(3)]), &hand(&world, 0)).await;
    assert_eq!(ran.counts, Counts { done: 2, skipped: 2, ..Counts::default() });
    assert!((0..4).all(|id| world.effects_of(id) == 1));
    assert_eq!(done(&engine, 4).await.len(), 4);
}

#[tokio::test]
async fn items_are_found_by_name_and_by_key_and_listed_with_their_job() {
    use semel::engine::ledger::{Found, Wanted};
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    batch(&engine, &plan(2), numbers(300), &hand(&world, 0)).await;
    let work = entry(&engine, 7).await.unwrap().work;
    let by_name = engine.find(&Wanted::parse("job;id:=7").unwrap()).await.unwrap();
    assert!(matches!(by_name, Found::Work(found) if found == work));
    let by_key = engine.find(&Wanted::parse(&work.key().to_string()).unwrap()).await.unwrap();
    assert!(matches!(by_key, Found::Work(found) if found == work));
    let (mut listed, mut from) = (0, None);
    let job = world::name("job");
    loop {
        let page = engine.page(Some(&job), from.as_ref()).await.unwrap();
        listed += page.entries.len();
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!(listed, 300);
    assert!(engine.page(None, None).await.unwrap().entries.is_empty(), "a list of all jobs has no items");
}

/// No room, no process: that is no failure of the item, and the next start does it.
#[tokio::test(start_paused = true)]
async fn what_this_machine_cannot_begin_stops_the_batch_and_is_no_failure() {
    for (on_lost, fails) in [(OnLost::Retry, 0), (OnLost::Hold, 0), (OnLost::Retry, 1)] {
        let (engine, ..) = on_memory(1);
        let world = Arc::<World>::default();
        let mut plan = plan(2);
        (plan.policy.on_lost, plan.policy.retries, plan.policy.backoff_ms) = (on_lost, 1, 20);
        for _ in 0..4 {
            world.fails.lock().unwrap().insert(7, fails);
            *world.no_room_at.lock().unwrap() = Some((7, fails));
            let ran = batch(&engine, &plan, numbers(50), &hand(&world, 10)).await;
            assert_eq!(ran.stopped, Stopped::Machine("no room".into()));
            let failed = u64::from(fails > 0);
            assert_eq!((ran.counts.failed, ran.counts.in_doubt), (failed, 0), "{:?}", ran.counts);
            let seven = entry(&engine, 7).await.unwrap();
            assert_eq!((seven.attempts > 0, seven.failures > 0), (fails > 0, fails > 0), "{seven:?}");
            if fails > 0 {
                break;
            }
        }
        *world.no_room_at.lock().unwrap() = None;
        let ran = batch(&engine, &plan, numbers(50), &hand(&world, 0)).await;
        assert_eq!(ran.counts.done + ran.counts.skipped, 50);
        assert!((0..50).all(|id| world.effects_of(id) == 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_binds_payloads_asks_a_probe_and_hears_of_each_item() {
    use semel::{Found, Job, Semel};
    use std::sync::Mutex;
    let semel = Semel::from(on_memory(1).0);
    let job = Job::named("job").once().build().unwrap();
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let to = Arc::clone(&heard);
    let items = [("a", 1_u64), ("b", 2), ("a", 3), ("b", 2)];
    let ran = semel
        .batch(&job)
        .items(items)
        .payload_of(|value| *value)
        .on_item(move |work, fate| {
            let fate = format!("{fate:?}");
            let word = fate.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned();
            to.lock().unwrap().push(format!("{work} {word}"));
        })
        .run(async |value| Ok::<u64, String>(*value))
        .await;
    let BatchReport::Ran(counted) = &ran.report else { panic!() };
    assert_eq!(counted.counts, Counts { done: 2, duplicates: 1, mismatched: 1, ..Counts::default() });
    let mut heard = heard.lock().unwrap().clone();
    heard.sort();
    assert_eq!(heard, ["job;id=a Done", "job;id=a Mismatch", "job;id=b Done", "job;id=b Duplicate"]);

    // two are dropped in the middle: one had its effect, and only the world knows which
    let asked = Arc::<Mutex<Vec<u64>>>::default();
    let other = Job::named("other").once().build().unwrap();
    let run = semel.batch(&other).workers(2);
    let run =
        run.run([("x", 1_u64), ("y", 2)], async |_| std::future::pending::<Result<u64, String>>().await);
    assert!(tokio::time::timeout(Duration::from_millis(200), run).await.is_err());
    // nobody gave the lease back: it has to lapse
    tokio::time::sleep(Duration::from_secs(61)).await;
    let (to, ran) = (Arc::clone(&asked), Arc::<Mutex<Vec<u64>>>::default());
    let did = Arc::clone(&ran);
    let after = semel
        .batch(&other)
        .items([("x", 1_u64), ("y", 2)])
        .probe(move |item| {
            to.lock().unwrap().push(*item);
            let happened = *item == 1;
            async move { if happened { Found::Happened(()) } else { Found::DidNot } }
        })
        .run(move |item| {
            did.lock().unwrap().push(*item);
            async move { Ok::<u64, String>(*item) }
        })
        .await;
    assert!(after.is_all_done(), "{:?}", after.report);
    let mut asked = asked.lock().unwrap().clone();
    asked.sort_unstable();
    assert_eq!((asked, ran.lock().unwrap().clone()), (vec![1, 2], vec![2]));
}

/// A verdict on many is written with as many at once as the store takes, and leaves alone what went on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_verdict_on_many_is_few_writes() {
    use semel::core::entry::Say;
    use semel::engine::verdict::Saying;
    use semel::store::Store;
    use semel::store::memory::Memory;
    use std::sync::atomic::{AtomicU64, Ordering};
    let clock: Arc<dyn semel::clock::Clock> = stage::SimClock::new();
    let memory = Memory::with_clock(Arc::clone(&clock));
    let store = Arc::new(world::Slow { memory, seed: AtomicU64::new(1) });
    let living = world::Living::default();
    let engine = engine(Arc::clone(&store) as Arc<dyn Store>, clock, &living, 1);
    let world = Arc::<World>::default();
    *world.down.lock().unwrap() = true;
    batch(&engine, &plan(2), numbers(100), &hand(&world, 0)).await;
    let page = engine.page(Some(&world::name("job")), None).await.unwrap();
    let seen: Vec<_> = page.entries.iter().map(|listed| listed.seen.clone()).collect();
    assert_eq!(seen.len(), 100);
    // one of them goes on after it was listed
    *world.down.lock().unwrap() = false;
    batch(&engine, &plan(1), list(vec![one(7)]), &hand(&world, 0)).await;
    let writes = || store.seed.load(Ordering::Relaxed) / 0x9e37_79b9;
    let before = writes();
    let saying = Saying { said: Say::Retry, by: "me".into(), because: "test".into(), result: None };
    let is_failed = |state: &State| matches!(state, State::Failed { .. });
    let changed = engine.judge_all(&seen, &saying, &is_failed).await.unwrap();
    assert_eq!(changed.iter().filter(|changed| **changed).count(), 99);
    // two at a time, with room for an alarm; and two once more by themselves
    assert!(writes() - before <= 53, "{} writes", writes() - before);
    assert!(matches!(entry(&engine, 7).await.unwrap().state, State::Done { .. }));
    assert!(matches!(entry(&engine, 8).await.unwrap().state, State::Open { .. }));
}

fn sendable<T: Send>(future: T) -> T {
    future
}

#[tokio::test]
async fn a_program_does_items_in_steps_and_a_retry_replays_them() {
    use semel::{Job, Semel};
    use std::sync::atomic::{AtomicU32, Ordering};
    let semel = Semel::from(on_memory(1).0);
    let job = Job::named("job").once().build().unwrap();
    let fetched = AtomicU32::new(0);
    let fails = async |run: semel::Run, fail: bool| -> Result<u64, String> {
        let fetch = async || {
            fetched.fetch_add(1, Ordering::Relaxed);
            Ok::<u64, String>(7)
        };
        let value = run.step("fetch", fetch).await.map_err(|why| why.to_string())?;
        if fail { Err("no room".into()) } else { Ok(value) }
    };
    let items = || (0..20_u64).map(|id| (id, id));
    let first = semel.batch(&job).workers(4);
    let first = first.run(items(), |item| fails(item.run().clone(), *item % 2 == 0)).await;
    assert_eq!(first.errors.len(), 10);
    let second = semel.batch(&job).run(items(), |item| fails(item.run().clone(), false)).await;
    assert!(second.is_all_done(), "{:?}", second.report);
    assert_eq!(fetched.load(Ordering::Relaxed), 20);

    // it can be spawned, and a panic is its item's
    let job = Job::named("other").once().build().unwrap();
    let body = async |item: semel::BatchItem<u64>| match *item {
        3 => panic!("three"),
        id => Ok::<u64, String>(id),
    };
    let ran = sendable(semel.batch(&job).workers(2).run((0..5_u64).map(|id| (id, id)), body)).await;
    let BatchReport::Ran(ran) = ran.report else { panic!() };
    assert_eq!((ran.counts.done, ran.counts.failed), (4, 1));
}

#[tokio::test]
async fn retention_forgets_items_as_it_forgets_works() {
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    let mut plan = plan(2);
    plan.policy.remember_ms = Some(0);
    batch(&engine, &plan, numbers(200), &hand(&world, 0)).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let swept = engine.sweep(false, &mut |_| {}).await.unwrap();
    assert_eq!((swept.forgotten, swept.unreadable), (200, 0));
    let ran = batch(&engine, &plan, numbers(200), &hand(&world, 0)).await;
    assert_eq!(ran.counts.done, 200);
}
