//! The library as a program uses it: on a store in memory and a clock that sleeps as told, and on SQLite.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on should say where

#[allow(dead_code)] // what the engine's own tests need besides
#[path = "../engine/stage.rs"]
mod stage;

mod cancelled;
mod killed;
mod plans;
mod schedules;
mod zombies;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use semel::core::entry::{RESULT_LIMIT, State};
use semel::store::Store;
use semel::store::memory::Memory;
use semel::{Found, Held, Job, JobError, Outcome, Semel, StepError};
use stage::{Fault, Stage};

pub(crate) type Any = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn job() -> Job {
    Job::named("job").slot("monday").build().unwrap()
}

pub(crate) fn semel(stage: &Stage, pid: i32) -> Semel {
    Semel::from(stage.engine(pid))
}

pub(crate) fn no() -> std::io::Error {
    std::io::Error::other("no")
}

/// The state of a step of [`job`], by its name.
pub(crate) async fn state(semel: &Semel, step: &str) -> Option<State> {
    let name = semel::core::name::Name::new(step).unwrap();
    let work = job().work().unwrap().clone().at_step(name, 1).unwrap();
    semel.engine().look(Some(&work), &[]).await.unwrap().entry.map(|seen| seen.value.state)
}

#[test]
fn a_run_can_be_spawned() {
    fn spawnable<T: Send>(_: &T) {}
    let semel = Semel::on(Arc::new(Memory::new()));
    let run = async move {
        let outcome = semel
            .run(&job(), async |run| -> Result<u32, Any> {
                let a: u32 = run.step("a", async || Ok::<_, std::io::Error>(1)).await?;
                run.gate(Duration::ZERO).await?;
                let b = run
                    .at("b")
                    .probe_or_run(async || Found::DidNot, async || Ok::<u32, std::io::Error>(a + 1))
                    .await?;
                Ok(a + b)
            })
            .await;
        let held = semel.lease("other").hold(async |lease| lease.token().value()).await;
        (outcome, held)
    };
    spawnable(&run);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (outcome, held) = runtime.block_on(async { tokio::spawn(run).await.unwrap() });
    assert_eq!(outcome.value(), Some(3));
    assert_eq!(held, Held::Released(1));
}

#[tokio::test(start_paused = true)]
async fn a_retry_replays_values_and_runs_what_failed_again() {
    let stage = Stage::new();
    let (one, two) = (Cell::new(0), Cell::new(0));
    for attempt in 1..=3 {
        let outcome = semel(&stage, attempt)
            .run(&job(), async |run| -> Result<(String, Vec<u32>), Any> {
                assert_eq!(run.attempt(), u32::try_from(attempt).unwrap());
                assert_eq!(run.work(), job().work());
                assert_eq!(run.lease().token().value(), u64::try_from(attempt).unwrap());
                let name: String = run
                    .step("one", async || {
                        one.set(one.get() + 1);
                        Ok::<_, std::io::Error>(format!("made by {attempt}"))
                    })
                    .await?;
                let list = run
                    .step("two", async || {
                        two.set(two.get() + 1);
                        if attempt < 3 { Err(no()) } else { Ok(vec![1, 2, 3]) }
                    })
                    .await?;
                Ok((name, list))
            })
            .await;
        match outcome {
            Outcome::Failed(why) => assert_eq!((why.to_string().as_str(), attempt < 3), ("no", true)),
            // three failures in a row would need a person: the third succeeded
            Outcome::Done((name, list)) => {
                assert_eq!((name.as_str(), list, attempt), ("made by 1", vec![1, 2, 3], 3));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((one.get(), two.get()), (1, 3));
    let again = semel(&stage, 9).run(&job(), async |_| -> Result<(String, Vec<u32>), Any> { panic!() }).await;
    assert!(matches!(again, Outcome::AlreadyDone(Some((name, _))) if name == "made by 1"));
    let other = semel(&stage, 9).run(&job(), async |_| Ok::<u8, Any>(1)).await;
    assert!(matches!(other, Outcome::Unusable(why) if why.contains("another type")));
}

#[tokio::test(start_paused = true)]
async fn a_body_is_called_again_by_the_same_run_if_the_job_asks_for_it() {
    let stage = Stage::new();
    let job = Job::named("job").slot("monday").retries(2, Duration::from_secs(1)).build().unwrap();
    let (bodies, ones) = (Cell::new(0), Cell::new(0));
    let outcome = semel(&stage, 1)
        .run(&job, async |run| -> Result<u32, Any> {
            bodies.set(bodies.get() + 1);
            run.step("one", async || {
                ones.set(ones.get() + 1);
                Ok::<_, std::io::Error>(())
            })
            .await?;
            if bodies.get() < 3 { Err("not yet".into()) } else { Ok(run.attempt()) }
        })
        .await;
    assert!(matches!(outcome, Outcome::Done(3)), "{outcome:?}");
    assert_eq!((bodies.get(), ones.get()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_used_once_unless_it_is_numbered_or_failed() {
    let stage = Stage::new();
    let outcome = semel(&stage, 1)
        .run(&job(), async |run| -> Result<(), Any> {
            let ok = async |n: u32| Ok::<_, std::io::Error>(n);
            assert_eq!(run.step("a", async || ok(1).await).await.unwrap(), 1);
            let twice = run.step("a", async || ok(2).await).await;
            assert!(matches!(&twice, Err(StepError::Twice(why)) if why.contains("nth(2)")), "{twice:?}");
            assert_eq!(run.at("a").nth(2).run(async || ok(2).await).await.unwrap(), 2);
            assert!(matches!(run.step("f", async || Err::<(), _>(no())).await, Err(StepError::Failed(_))));
            assert_eq!(run.step("f", async || ok(3).await).await.unwrap(), 3);
            let wrong = run.step("no name", async || ok(0).await).await;
            assert!(matches!(wrong, Err(StepError::Wrong(_))));
            Ok(())
        })
        .await;
    assert!(outcome.is_done(), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn steps_run_at_once_and_each_is_replayed() {
    let stage = Stage::new();
    let effects = Cell::new(0);
    for attempt in 1..=2 {
        let (semel, job) = (semel(&stage, 1), job());
        let run = semel.run(&job, async |run| -> Result<u32, Any> {
            // each waits for both to have begun
            let barrier = tokio::sync::Barrier::new(2);
            let effect = async |n: u32| {
                effects.set(effects.get() + 1);
                barrier.wait().await;
                Ok::<_, std::io::Error>(n)
            };
            let (a, b) = tokio::join!(
                run.step("a", async || effect(1).await),
                run.step("b", async || effect(2).await)
            );
            if attempt == 1 { Err("once more".into()) } else { Ok(a? + b?) }
        });
        let outcome = run.await;
        match attempt {
            1 => assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}"),
            _ => assert!(matches!(outcome, Outcome::Done(3)), "{outcome:?}"),
        }
    }
    assert_eq!(effects.get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_too_large_is_returned_now_and_missed_later() {
    let stage = Stage::new();
    let large = "x".repeat(RESULT_LIMIT);
    let effects = Cell::new(0);
    for attempt in 1..=2 {
        let outcome = semel(&stage, 1)
            .run(&job(), async |run| -> Result<(), Any> {
                // of a type for which null is a value too
                let value = run
                    .step("large", async || {
                        effects.set(effects.get() + 1);
                        Ok::<_, std::io::Error>(Some(large.clone()))
                    })
                    .await;
                match (attempt, value) {
                    (1, Ok(Some(value))) => assert_eq!(value.len(), RESULT_LIMIT),
                    (2, Err(StepError::NotKept(why))) => assert!(why.contains("65538 bytes"), "{why}"),
                    (_, other) => panic!("{other:?}"),
                }
                Err("once more".into())
            })
            .await;
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    }
    assert_eq!(effects.get(), 1, "it is done all the same");
    let outcome = semel(&stage, 1).run(&job(), async |_| Ok::<_, Any>(large.clone())).await;
    assert!(matches!(&outcome, Outcome::DoneNotKept { value, .. } if value.len() == RESULT_LIMIT));
    let outcome = semel(&stage, 1).run(&job(), async |_| -> Result<String, Any> { panic!() }).await;
    assert!(matches!(outcome, Outcome::AlreadyDone(None)));
}

#[tokio::test(start_paused = true)]
async fn a_value_of_another_type_is_said_and_nothing_is_called() {
    let stage = Stage::new();
    let first = semel(&stage, 1)
        .run(&job(), async |run| -> Result<(), Any> {
            run.step("a", async || Ok::<_, std::io::Error>("text".to_owned())).await?;
            Err("once more".into())
        })
        .await;
    assert!(matches!(first, Outcome::Failed(_)));
    let second = semel(&stage, 1)
        .run(&job(), async |run| -> Result<(), Any> {
            let value = run.step("a", async || -> Result<u32, std::io::Error> { panic!() }).await;
            assert!(matches!(value, Err(StepError::OtherType(_))), "{value:?}");
            Ok(())
        })
        .await;
    assert!(second.is_done());
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_is_the_same_on_every_retry_and_another_for_every_step() {
    let stage = Stage::new();
    let keys = RefCell::new(Vec::new());
    for pid in 1..=2 {
        let outcome = semel(&stage, pid)
            .run(&job(), async |run| -> Result<(), Any> {
                let two = run.at("charge").nth(2).idempotency_key()?;
                keys.borrow_mut().push((run.idempotency_key("charge")?, two, run.idempotency_key("mail")?));
                Err("once more".into())
            })
            .await;
        assert!(matches!(outcome, Outcome::Failed(_)));
    }
    let keys = keys.into_inner();
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0].0, keys[0].1);
    assert_ne!(keys[0].0, keys[0].2);
    let name = semel::core::name::Name::new("charge").unwrap();
    assert_eq!(keys[0].0, job().work().unwrap().clone().at_step(name, 1).unwrap().key());
}

#[tokio::test(start_paused = true)]
async fn too_many_failures_need_a_person_and_a_job_that_runs_always_has_no_steps() {
    let stage = Stage::new();
    let job = Job::named("job").slot("monday").max_failures(1).build().unwrap();
    let outcome = semel(&stage, 1).run(&job, async |_| Err::<(), _>("no")).await;
    assert!(matches!(outcome, Outcome::NeedsPerson { error: Some("no"), .. }), "{outcome:?}");
    let outcome = semel(&stage, 1).run(&job, async |_| -> Result<(), &str> { panic!() }).await;
    assert!(matches!(outcome, Outcome::NeedsPerson { error: None, .. }), "{outcome:?}");
    let always = Job::named("job").always().build().unwrap();
    for _ in 0..2 {
        let outcome = semel(&stage, 1)
            .run(&always, async |run| -> Result<(), Any> {
                let step = run.step("a", async || Ok::<_, std::io::Error>(())).await;
                assert!(matches!(step, Err(StepError::Wrong(_))), "{step:?}");
                Ok(())
            })
            .await;
        assert!(matches!(outcome, Outcome::Done(())), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_is_checked_before_anything_is_claimed() {
    let long = Duration::from_secs(60);
    assert_eq!(Job::named("a").build().unwrap_err(), JobError::Undecided);
    assert_eq!(Job::named("a").once().slot("b").build().unwrap_err(), JobError::Alone("once"));
    assert_eq!(Job::named("a").always().key("b").build().unwrap_err(), JobError::Alone("always"));
    assert!(matches!(Job::named("a b").once().build(), Err(JobError::Name { what: "the job", .. })));
    assert!(matches!(Job::named("a").once().resource("b").or("b").build(), Err(JobError::Twice(_))));
    assert!(matches!(Job::named("a").once().ttl(Duration::ZERO).build(), Err(JobError::Policy(_))));
    let grace =
        Job::named("a").once().ttl(Duration::from_secs(3)).policy(|policy| policy.kill_after_ms = 9_000);
    assert!(matches!(grace.build(), Err(JobError::Policy(_))));
    assert!(
        Job::named("a").with("n", 3).ttl(Duration::from_secs(3)).timeout(long).wait(long).build().is_ok()
    );
    let stage = Stage::new();
    let bound = |n: u32| Job::named("a").once().payload(serde_json::json!({ "n": n, "at": n }), &["/at"]);
    let first = semel(&stage, 1).run(&bound(1).build().unwrap(), async |_| Ok::<_, Any>(())).await;
    assert!(first.is_done());
    let second = semel(&stage, 1).run(&bound(2).build().unwrap(), async |_| Ok::<_, Any>(())).await;
    assert!(matches!(&second, Outcome::Mismatch(changes) if changes.len() == 1), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_ledger_excludes_and_its_token_grows() {
    let stage = Stage::new();
    let (one, two) = (semel(&stage, 1), semel(&stage, 2));
    let held = one
        .lease("website")
        .what("a test")
        .hold(async |lease| {
            let busy = two.lease("website").hold(async |_| panic!()).await;
            assert!(matches!(busy, Held::Busy::<()> { held_for, .. } if held_for == "a test"));
            let other =
                two.lease("website").or("mirror").hold(async |lease| lease.resource().to_string()).await;
            assert_eq!(other, Held::Released("mirror".to_owned()));
            // longer than the lease lives without a renewal
            tokio::time::sleep(Duration::from_secs(200)).await;
            lease.gate(Duration::from_secs(10)).await.unwrap();
            lease.token().value()
        })
        .await;
    assert_eq!(held, Held::Released(1));
    let held = two.lease("website").hold(async |lease| lease.token().value()).await;
    assert_eq!(held, Held::Released(2));
    assert!(matches!(one.lease("no name").hold(async |_| ()).await, Held::Unusable(_)));
    stage.store.all_down(true);
    assert!(matches!(one.lease("website").hold(async |_| ()).await, Held::StoreDown(_)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_said_before_and_after() {
    let stage = Stage::new();
    let outcome = semel(&stage, 1)
        .run(&job(), async |run| -> Result<(), Any> {
            stage.store.all_down(true);
            let step = run.step("a", async || -> Result<(), std::io::Error> { panic!() }).await;
            assert!(matches!(step, Err(StepError::StoreDown(_))), "{step:?}");
            Ok(())
        })
        .await;
    assert!(matches!(outcome, Outcome::Unrecorded { value: Ok(()), .. }), "{outcome:?}");
    let outcome = semel(&stage, 1).run(&job(), async |_| -> Result<(), Any> { panic!() }).await;
    assert!(matches!(outcome, Outcome::StoreDown(_)));
}

#[tokio::test(start_paused = true)]
async fn a_fresh_step_is_two_durable_swaps_and_a_replayed_one_a_load() {
    let stage = Stage::new();
    for attempt in 1..=2 {
        let outcome = semel(&stage, 1)
            .run(&job(), async |run| -> Result<(), Any> {
                let before = stage.store.calls().len();
                run.step("a", async || Ok::<_, std::io::Error>(())).await?;
                let calls = stage.store.calls();
                match attempt {
                    1 => assert_eq!(calls[before..], ["swap Durable", "swap Durable"]),
                    _ => assert_eq!(calls[before..], ["load"]),
                }
                Err("once more".into())
            })
            .await;
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    }
}

/// The first attempt claims its steps without a look.
#[tokio::test(start_paused = true)]
async fn a_step_that_is_on_record_already_is_found_by_the_first_attempt_too() {
    let stage = Stage::new();
    let effects = Cell::new(0);
    let effect = async || {
        effects.set(effects.get() + 1);
        Ok::<_, std::io::Error>(effects.get())
    };
    let first = semel(&stage, 1)
        .run(&job(), async |run| -> Result<(), Any> {
            run.step("a", effect).await?;
            Err("once more".into())
        })
        .await;
    assert!(matches!(first, Outcome::Failed(_)));
    // the run's own entry is gone, as after a repair by hand: its attempts count from 1 again
    let key = semel::core::record::RecordKey::entry(job().work().unwrap());
    let record =
        stage.store.memory.load(std::slice::from_ref(&key)).await.unwrap().records.remove(0).unwrap();
    let expect = semel::core::record::Expect::Version(record.version);
    let remove = semel::store::Change::Remove { key, expect };
    stage.store.memory.swap(&[remove], semel::store::Durability::Durable).await.unwrap();
    let second = semel(&stage, 1)
        .run(&job(), async |run| -> Result<u32, Any> {
            assert_eq!(run.attempt(), 1);
            Ok(run.step("a", effect).await?)
        })
        .await;
    assert!(matches!(second, Outcome::Done(1)), "{second:?}");
    assert_eq!(effects.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_claim_or_outcome_goes_unanswered_is_done_once() {
    for fault in [Fault::AppliedUnknown, Fault::LostUnknown, Fault::LateUnknown] {
        for faults in [[fault, Fault::None], [Fault::None, fault]] {
            let stage = Stage::new();
            let effects = Cell::new(0);
            let outcome = semel(&stage, 1)
                .run(&job(), async |run| -> Result<u32, Any> {
                    stage.store.swaps(&faults);
                    let effect = async || {
                        effects.set(effects.get() + 1);
                        Ok::<_, std::io::Error>(7)
                    };
                    Ok(run.step("a", effect).await?)
                })
                .await;
            assert!(matches!(outcome, Outcome::Done(7)), "{faults:?}: {outcome:?}");
            assert_eq!(effects.get(), 1, "{faults:?}");
        }
    }
}
