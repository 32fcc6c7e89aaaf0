//! Who waits asks the store once and is told; it does not look again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use semel::core::name::Name;
use semel::core::owner::Owner;
use semel::core::policy::{IfBusy, Policy};
use semel::core::token::Nonce;
use semel::core::work::Work;
use semel::engine::{Engine, Neighbours, Report, RunPlan, Undisturbed};
use tokio::time::Instant;

use crate::stage::{FakeTask, Fault, Stage, plan};
use crate::{SHORT, ending};

/// A run of other work on the same resource, which waits for so long.
fn waits(name: &str, for_ms: u64) -> RunPlan {
    let policy = Policy { if_busy: IfBusy::Wait { for_ms }, ..Policy::default() };
    RunPlan { policy, work: Some(Work::once(Name::new(name).unwrap())), ..plan("job") }
}

async fn run(engine: &Engine, plan: &RunPlan, task: &mut FakeTask) -> Report {
    engine.run(plan, task, &mut Undisturbed, &mut |_| {}).await
}

#[tokio::test(start_paused = true)]
async fn a_waiter_looks_when_something_changed_or_a_lease_ran_out() {
    for host in ["h", "elsewhere"] {
        let stage = Stage::new();
        let mut holder = FakeTask::new(&stage, Duration::from_secs(50));
        let mut waiter = FakeTask::new(&stage, SHORT);
        let (holds, second) = (plan("job"), waits("second", 300_000));
        let waiting = async {
            tokio::time::sleep(SHORT).await;
            let before = stage.store.calls().len();
            let report = run(&stage.engine_on(host, 2), &second, &mut waiter).await;
            (report, stage.store.calls().split_off(before))
        };
        let (_, (report, calls)) = tokio::join!(stage.run(1, &holds, &mut holder), waiting);
        assert_eq!(ending(&report), semel::core::entry::Ending::Succeeded);
        // one look that finds it busy, one after the release; the holder renews meanwhile
        let many = |verb: &str| calls.iter().filter(|call| *call == verb).count();
        assert_eq!((many("load"), many("changed")), (2, 1), "from {host}: {calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_of_several_resources_that_is_free_ends_the_wait() {
    let stage = Stage::new();
    let site = |name: &str, resources: &[&str]| RunPlan {
        resources: resources.iter().map(|name| Name::new(name).unwrap()).collect(),
        ..waits(name, 300_000)
    };
    let (a, b, either) = (site("a", &["left"]), site("b", &["right"]), site("c", &["left", "right"]));
    let (mut long, mut short) =
        (FakeTask::new(&stage, Duration::from_secs(50)), FakeTask::new(&stage, Duration::from_secs(10)));
    let mut waiter = FakeTask::new(&stage, SHORT);
    let waiting = async {
        tokio::time::sleep(SHORT).await;
        let began = Instant::now();
        let report = stage.run(3, &either, &mut waiter).await;
        (report, began.elapsed())
    };
    let (_, _, (report, took)) =
        tokio::join!(stage.run(1, &a, &mut long), stage.run(2, &b, &mut short), waiting);
    assert_eq!(ending(&report), semel::core::entry::Ending::Succeeded);
    assert!(took < Duration::from_secs(11), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_a_store_could_not_take_ends_no_wait() {
    let stage = Stage::new();
    let mut holder = FakeTask::new(&stage, Duration::from_secs(10));
    let mut waiter = FakeTask::new(&stage, SHORT);
    let (holds, second) = (plan("job"), waits("second", 300_000));
    let waiting = async {
        tokio::time::sleep(SHORT).await;
        // the holder's outcome is taken; the claims of who comes next are not, three times over
        stage.store.swaps(&[Fault::None, Fault::Down, Fault::Down, Fault::Down]);
        stage.run(2, &second, &mut waiter).await
    };
    let (held, report) = tokio::join!(stage.run(1, &holds, &mut holder), waiting);
    assert_eq!(ending(&held), semel::core::entry::Ending::Succeeded);
    assert_eq!(ending(&report), semel::core::entry::Ending::Succeeded);
    // who does not wait is told at once
    stage.store.swaps(&[Fault::Down]);
    let mut third = FakeTask::new(&stage, SHORT);
    let report = stage.run(3, &waits("third", 300_000), &mut third).await;
    assert!(matches!(report, Report::StoreDown(_)), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_has_too_much_to_do_ends_no_wait_that_has_not_begun() {
    let stage = Stage::new();
    stage.store.loads(&[Fault::Slow, Fault::Slow]);
    let mut task = FakeTask::new(&stage, SHORT);
    let report = stage.run(1, &waits("first", 300_000), &mut task).await;
    assert_eq!(ending(&report), semel::core::entry::Ending::Succeeded);
    // the wait ends where it was said to
    stage.store.loads(&[Fault::Slow; 9]);
    let begun = Instant::now();
    let report = stage.run(2, &waits("second", 15_000), &mut FakeTask::new(&stage, SHORT)).await;
    assert!(matches!(report, Report::StoreDown(_)), "{report:?}");
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    // who waits for nobody is told the first time
    stage.store.loads(&[Fault::Slow]);
    let report = stage.run(3, &plan("third"), &mut FakeTask::new(&stage, SHORT)).await;
    assert!(matches!(report, Report::StoreDown(_)), "{report:?}");
    // and so is who waits, of a store that is not there
    stage.store.loads(&[Fault::Down]);
    let report = stage.run(4, &waits("fourth", 300_000), &mut FakeTask::new(&stage, SHORT)).await;
    assert!(matches!(report, Report::StoreDown(_)), "{report:?}");
}

/// A machine on which everybody dies at once.
struct Plague(Arc<AtomicBool>);

impl Neighbours for Plague {
    fn is_gone(&self, _: &Owner, _: &Nonce) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn a_neighbours_death_is_noticed_without_asking_the_store() {
    let stage = Stage::new();
    let died = Arc::new(AtomicBool::new(false));
    let engine = Engine { neighbours: Arc::new(Plague(Arc::clone(&died))), ..stage.engine(2) };
    let policy = Policy { ttl_ms: 300_000, ..Policy::default() };
    let resource = [Name::new("job").unwrap()];
    stage.engine(1).acquire(&resource, &policy, &stage.engine(1).me, "a holder").await.unwrap();
    let mut waiter = FakeTask::new(&stage, SHORT);
    let second = waits("second", 600_000);
    let before = stage.store.calls().len();
    let waiting = async {
        let began = Instant::now();
        (run(&engine, &second, &mut waiter).await, began.elapsed())
    };
    let dies = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        died.store(true, Ordering::SeqCst);
    };
    let ((report, took), ()) = tokio::join!(waiting, dies);
    assert_eq!(ending(&report), semel::core::entry::Ending::Succeeded);
    assert!(took < Duration::from_secs(62), "{took:?}");
    let calls = stage.store.calls().split_off(before);
    assert_eq!(calls.iter().filter(|call| *call == "load").count(), 2, "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_slept_past_the_end_of_a_lease_looks_as_it_wakes() {
    let stage = Stage::new();
    let policy = Policy { ttl_ms: 300_000, ..Policy::default() };
    let resource = [Name::new("job").unwrap()];
    stage.engine(1).acquire(&resource, &policy, &stage.engine(1).me, "a holder").await.unwrap();
    let mut waiter = FakeTask::new(&stage, SHORT);
    let second = waits("second", 600_000);
    let waiting = async {
        let began = Instant::now();
        (stage.run(2, &second, &mut waiter).await, began.elapsed())
    };
    let lid = async {
        tokio::time::sleep(SHORT).await;
        stage.clock.suspend(Duration::from_secs(400));
    };
    let ((report, took), ()) = tokio::join!(waiting, lid);
    assert_eq!(ending(&report), semel::core::entry::Ending::Succeeded);
    assert!(took < Duration::from_secs(3), "awake for {took:?}");
}
