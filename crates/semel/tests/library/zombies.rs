//! Two programs on one store; the first has a watch that stood still, and does not know that its lease is gone.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use semel::core::owner::Owner;
use semel::engine::{Engine, Strangers};
use semel::store::memory::Memory;
use semel::{Outcome, Semel, Shut, StepError};
use tokio::sync::Notify;

use crate::stage::{SimClock, Stage};
use crate::{Any, job, no, semel};

/// Longer than a lease lives.
const LONG: Duration = Duration::from_secs(300);

/// A store whose time can be moved, and programs with watches of their own.
struct World {
    time: Arc<SimClock>,
    store: Memory,
}

impl World {
    fn new() -> World {
        let time = SimClock::new();
        World { store: Memory::with_clock(time.clone()), time }
    }

    fn program(&self, pid: i32, clock: Arc<SimClock>) -> Semel {
        let me = Owner { host: "h".into(), boot: "b".into(), pidns: 1, pid, start: 1 };
        let (store, neighbours) = (Arc::new(self.store.clone()), Arc::new(Strangers));
        Semel::from(Engine { store, clock, neighbours, me })
    }
}

/// The first program stalls after its first step; its lease lapses; the second takes over and stalls before its
/// second step; then the first wakes up. Answers what the first says of its second step, and how often that was done.
async fn two_programs() -> (Result<(), StepError<std::io::Error>>, Result<(), Shut>, u32) {
    let world = World::new();
    let (stalled, sleepy) = (world.program(1, SimClock::new()), world.program(2, world.time.clone()));
    let effects = Cell::new(0);
    let (wake, woken, first_is_done) = (Notify::new(), Notify::new(), Notify::new());
    let effect = async || {
        effects.set(effects.get() + 1);
        Ok::<(), std::io::Error>(())
    };
    let said = RefCell::new(None);
    let job = job();
    let first = stalled.run(&job, async |run| -> Result<(), Any> {
        run.step("one", async || Ok::<_, std::io::Error>(())).await?;
        first_is_done.notify_one();
        wake.notified().await;
        let gate = run.gate(Duration::ZERO).await.map(drop);
        let two = run.step("two", effect).await;
        *said.borrow_mut() = Some((two, gate));
        woken.notify_one();
        Err("a zombie".into())
    });
    let second = async {
        first_is_done.notified().await;
        world.time.suspend(LONG);
        sleepy
            .run(&job, async |run| -> Result<(), Any> {
                run.step("one", async || -> Result<(), std::io::Error> { panic!("done before") }).await?;
                wake.notify_one();
                woken.notified().await;
                Ok(run.step("two", effect).await?)
            })
            .await
    };
    let (first, second) = tokio::join!(first, second);
    assert!(matches!(first, Outcome::LeaseLost(_)), "{first:?}");
    assert!(matches!(second, Outcome::Done(())), "{second:?}");
    let (two, gate) = said.into_inner().unwrap();
    (two, gate, effects.get())
}

#[tokio::test(start_paused = true)]
async fn a_zombie_cannot_do_a_step_that_the_new_holder_has_not_reached() {
    let (two, gate, effects) = two_programs().await;
    assert!(matches!(two, Err(StepError::LeaseLost(_))), "{two:?}");
    assert!(matches!(gate, Err(Shut::Stale(_))), "{gate:?}");
    assert_eq!(effects, 1);
}

/// The control: the same two programs, each with the list of what was done when it began.
#[tokio::test(start_paused = true)]
async fn a_list_of_what_is_done_lets_the_zombie_do_it_too() {
    let done = RefCell::new(HashSet::new());
    let effects = Cell::new(0);
    let (wake, woken, first_is_done) = (Notify::new(), Notify::new(), Notify::new());
    let step = |list: &HashSet<&str>, name: &'static str| {
        if !list.contains(name) {
            effects.set(effects.get() + u32::from(name == "two"));
            done.borrow_mut().insert(name);
        }
    };
    let first = async {
        let list = done.borrow().clone();
        step(&list, "one");
        first_is_done.notify_one();
        wake.notified().await;
        step(&list, "two");
        woken.notify_one();
    };
    let second = async {
        first_is_done.notified().await;
        let list = done.borrow().clone();
        step(&list, "one");
        wake.notify_one();
        woken.notified().await;
        step(&list, "two");
    };
    tokio::join!(first, second);
    assert_eq!(effects.get(), 2, "the control must show the duplicate");
}

#[tokio::test(start_paused = true)]
async fn a_body_is_not_polled_again_on_a_machine_that_slept_longer_than_its_lease() {
    let stage = Stage::new();
    let (asleep, woke) = (Notify::new(), Cell::new(false));
    let (semel_1, job) = (semel(&stage, 1), job());
    let run = semel_1.run(&job, async |run| -> Result<(), Any> {
        run.step("a", async || {
            asleep.notify_one();
            tokio::time::sleep(Duration::from_secs(1)).await;
            woke.set(true);
            Err::<(), _>(no())
        })
        .await?;
        Ok(())
    });
    let sleep = async {
        asleep.notified().await;
        stage.clock.suspend(LONG);
    };
    let (outcome, ()) = tokio::join!(run, sleep);
    assert!(matches!(outcome, Outcome::LeaseLost(_)), "{outcome:?}");
    assert!(!woke.get());
    // whether it happened nobody knows
    let next = semel(&stage, 2)
        .run(&job, async |run| -> Result<(), Any> {
            Ok(run.step("a", async || Ok::<_, std::io::Error>(())).await?)
        })
        .await;
    assert!(matches!(&next, Outcome::NeedsPerson { what, .. } if what == "job@monday~a"), "{next:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_kept_after_its_end_can_do_nothing() {
    let stage = Stage::new();
    let kept = RefCell::new(None);
    let outcome = semel(&stage, 1)
        .run(&job(), async |run| -> Result<(), Any> {
            *kept.borrow_mut() = Some(run.clone());
            Ok(())
        })
        .await;
    assert!(matches!(outcome, Outcome::Done(())), "{outcome:?}");
    let run = kept.into_inner().unwrap();
    let step = run.step("late", async || -> Result<(), std::io::Error> { panic!() }).await;
    assert!(matches!(step, Err(StepError::LeaseLost(_))), "{step:?}");
    assert!(matches!(run.gate(Duration::ZERO).await, Err(Shut::Stale(_))));
}
