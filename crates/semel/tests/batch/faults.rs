//! A lease that is lost, a store that fails, an input without end.

use std::sync::Arc;
use std::time::Duration;

use semel::core::policy::OnLost;
use semel::engine::batch::{Counts, Iterated, Stopped};

use super::stage::{Fault, Stage};
use super::world::{World, batch, done, hand, numbers, on_memory, one, plan};

#[tokio::test(start_paused = true)]
async fn a_machine_that_sleeps_past_its_lease_stops_and_the_next_runner_goes_on() {
    let stage = Stage::new();
    let world = Arc::<World>::default();
    let mut plan = plan(4);
    plan.policy.on_lost = OnLost::Probe;
    let asleep = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stage.clock.suspend(Duration::from_secs(600));
    };
    let hand = hand(&world, 40);
    let first_engine = stage.engine(1);
    let (first, ()) = tokio::join!(batch(&first_engine, &plan, numbers(100), &hand), asleep);
    assert!(matches!(first.stopped, Stopped::LeaseLost(_)), "{first:?}");
    let begun = world.begun.lock().unwrap().len();
    assert!(begun < 100);
    let next = batch(&stage.engine(2), &plan, numbers(100), &hand).await;
    assert_eq!(next.stopped, Stopped::AtTheEnd);
    assert!((0..100).all(|id| world.effects_of(id) == 1));
}

#[tokio::test(start_paused = true)]
async fn a_runner_whose_lease_was_taken_over_claims_nothing_more() {
    let stage = Stage::new();
    let world = Arc::<World>::default();
    let mut plan = plan(2);
    plan.policy.on_lost = OnLost::Probe;
    // the zombie's watch stands still: only the ledger can stop it
    let hand = hand(&world, 40);
    let zombie = stage.engine(1);
    let other = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let resource = super::world::name("job");
        let lease = zombie.lease_of(&resource).await.unwrap().unwrap();
        zombie.release(&resource, lease.record.value.grant.token).await.unwrap().unwrap();
    };
    let (ran, ()) = tokio::join!(batch(&zombie, &plan, numbers(100), &hand), other);
    assert!(matches!(ran.stopped, Stopped::LeaseLost(_)), "{ran:?}");
    assert!(world.begun.lock().unwrap().len() < 40);
    let next = batch(&stage.engine(2), &plan, numbers(100), &hand).await;
    assert_eq!(next.stopped, Stopped::AtTheEnd);
    assert!((0..100).all(|id| world.effects_of(id) == 1));
}

#[tokio::test(start_paused = true)]
async fn lost_replies_change_nothing() {
    for fault in [Fault::AppliedUnknown, Fault::LostUnknown, Fault::LateUnknown, Fault::Down] {
        let stage = Stage::new();
        let world = Arc::<World>::default();
        // every third write, from the first claim of an item on
        let faults: Vec<Fault> = (0..60).map(|n| if n % 3 == 1 { fault } else { Fault::None }).collect();
        stage.store.swaps(&faults);
        let ran = batch(&stage.engine(1), &plan(3), numbers(60), &hand(&world, 5)).await;
        assert_eq!(ran.counts, Counts { done: 60, ..Counts::default() }, "{fault:?}");
        assert!((0..60).all(|id| world.effects_of(id) == 1), "{fault:?}");
        assert_eq!(done(&stage.engine(2), 60).await.len(), 60);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_goes_away_for_a_while_is_waited_for_and_for_good_ends_the_batch() {
    let stage = Stage::new();
    let world = Arc::<World>::default();
    let away = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stage.store.all_down(true);
        tokio::time::sleep(Duration::from_secs(10)).await;
        stage.store.all_down(false);
    };
    let hand = hand(&world, 20);
    let first = stage.engine(1);
    let plan = plan(3);
    let (ran, ()) = tokio::join!(batch(&first, &plan, numbers(100), &hand), away);
    assert_eq!(ran.counts, Counts { done: 100, ..Counts::default() });
    let gone = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stage.store.all_down(true);
    };
    let (ran, ()) = tokio::join!(batch(&first, &plan, numbers(300), &hand), gone);
    assert!(matches!(ran.stopped, Stopped::StoreDown(_)), "{ran:?}");
    assert!(ran.counts.unrecorded > 0 && ran.counts.unrecorded < 20, "{:?}", ran.counts);
}

#[cfg(target_os = "linux")]
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_million_items_need_no_more_memory_than_a_thousand() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let (engine, ..) = on_memory(1);
    let world = Arc::<World>::default();
    batch(&engine, &plan(4), numbers(1_000), &hand(&world, 0)).await;
    let before = resident_kib();
    let most = AtomicU64::new(0);
    let items = (0..1_000_000_u64).map(|n| {
        if n % 10_000 == 0 {
            most.fetch_max(resident_kib(), Ordering::Relaxed);
        }
        one(n % 1_000)
    });
    let ran = batch(&engine, &plan(4), Iterated(items), &hand(&world, 0)).await;
    assert_eq!(ran.counts, Counts { skipped: 1_000_000, ..Counts::default() });
    let grown = most.into_inner().saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB");
}
