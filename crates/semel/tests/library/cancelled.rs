//! Bodies and steps that are dropped on the way, or panic.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use semel::core::entry::State;
use semel::{Found, Job, Outcome, Run, Semel, StepError};

use crate::stage::Stage;
use crate::{Any, job, semel, state};

/// Poll it until this is so, or it is done; then drop it.
async fn drop_when<T>(future: impl Future<Output = T>, so: impl Fn() -> bool) {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Pending if !so() => Poll::Pending,
        _ => Poll::Ready(()),
    })
    .await;
}

/// A run of the job that only does this step, and how it comes out.
async fn next(semel: &Semel, step: &str, effects: &Cell<u32>) -> Outcome<u32, Any> {
    let body = async |run: Run| -> Result<u32, Any> {
        let effect = async || {
            effects.set(effects.get() + 1);
            Ok::<_, std::io::Error>(effects.get())
        };
        Ok(run.step(step, effect).await?)
    };
    semel.run(&job(), body).await
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_dropped_in_the_middle_is_in_doubt() {
    let stage = Stage::new();
    let semel = semel(&stage, 1);
    let outcome = semel
        .run(&job(), async |run| -> Result<(), Any> {
            let forever = run.step("a", async || std::future::pending::<Result<(), std::io::Error>>().await);
            let late = tokio::time::timeout(Duration::from_secs(1), forever).await;
            Err(late.unwrap_err().into())
        })
        .await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert_eq!(state(&semel, "a").await, Some(State::Open { torn: true }));
    let effects = Cell::new(0);
    let outcome = next(&semel, "a", &effects).await;
    assert!(matches!(&outcome, Outcome::NeedsPerson { what, error: Some(_), .. } if what == "job@monday~a"));
    assert_eq!(effects.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_step_in_doubt_is_called_again_if_idempotent_and_asked_for_if_it_can_be() {
    for (found, calls, value) in [(None, 1, 7), (Some(Found::Happened(9)), 0, 9), (Some(Found::DidNot), 1, 7)]
    {
        let stage = Stage::new();
        let semel = semel(&stage, 1);
        let dropped = semel
            .run(&job(), async |run| -> Result<u32, Any> {
                let forever = run
                    .at("a")
                    .idempotent()
                    .run(async || std::future::pending::<Result<(), std::io::Error>>().await);
                tokio::time::timeout(Duration::from_secs(1), forever).await??;
                Ok(0)
            })
            .await;
        assert!(matches!(dropped, Outcome::Failed(_)), "{dropped:?}");
        let effects = Cell::new(0);
        let outcome = semel
            .run(&job(), async |run| -> Result<u32, Any> {
                let effect = async || {
                    effects.set(effects.get() + 1);
                    Ok::<_, std::io::Error>(7)
                };
                match &found {
                    None => Ok(run.at("a").idempotent().run(effect).await?),
                    Some(found) => Ok(run.at("a").probe_or_run(async || found.clone(), effect).await?),
                }
            })
            .await;
        assert!(matches!(outcome, Outcome::Done(got) if got == value), "{outcome:?}");
        assert_eq!(effects.get(), calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_cannot_tell_needs_a_person() {
    let stage = Stage::new();
    let semel = semel(&stage, 1);
    let body = async |run: Run| -> Result<(), Any> {
        let probe = async || Found::Unknown("the server is away".to_owned());
        let forever = run
            .at("a")
            .probe_or_run(probe, async || std::future::pending::<Result<(), std::io::Error>>().await);
        Ok(tokio::time::timeout(Duration::from_secs(1), forever).await??)
    };
    assert!(matches!(semel.run(&job(), body).await, Outcome::Failed(_)));
    for _ in 0..2 {
        let outcome = semel.run(&job(), body).await;
        let Outcome::NeedsPerson { why, .. } = &outcome else { panic!("{outcome:?}") };
        assert_eq!(why, "the server is away");
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_drops_the_body_and_what_it_did_is_in_doubt() {
    let stage = Stage::new();
    let semel = semel(&stage, 1);
    let short = Job::named("job").slot("monday").timeout(Duration::from_secs(5)).build().unwrap();
    let outcome = semel
        .run(&short, async |run| -> Result<u32, Any> {
            run.step("done", async || Ok::<_, std::io::Error>(())).await?;
            Ok(run.step("a", async || std::future::pending::<Result<u32, std::io::Error>>().await).await?)
        })
        .await;
    assert!(matches!(outcome, Outcome::TimedOut), "{outcome:?}");
    assert!(matches!(state(&semel, "done").await, Some(State::Done { .. })));
    let effects = Cell::new(0);
    assert!(matches!(next(&semel, "a", &effects).await, Outcome::NeedsPerson { .. }));
    assert_eq!(effects.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_goes_on_and_leaves_the_ledger_right() {
    let stage = Stage::new();
    let semel = semel(&stage, 1);
    let panicking = tokio::spawn({
        let semel = semel.clone();
        async move {
            semel
                .run(&job(), async |run| -> Result<(), Any> {
                    run.step("done", async || Ok::<_, std::io::Error>(())).await?;
                    run.step("a", async || -> Result<(), std::io::Error> { panic!("oh") }).await?;
                    Ok(())
                })
                .await
                .is_done()
        }
    });
    let panic = panicking.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"oh"));
    assert!(matches!(state(&semel, "done").await, Some(State::Done { .. })));
    assert_eq!(state(&semel, "a").await, Some(State::Open { torn: true }), "whether it happened is unknown");
    let entry = stage.engine(2).look(job().work(), &[]).await.unwrap().entry.unwrap().value;
    assert_eq!((entry.state, entry.failures), (State::Failed { torn: true }, 1));
    // the lease was given back: nobody waits for it to lapse
    let effects = Cell::new(0);
    assert!(matches!(next(&semel, "a", &effects).await, Outcome::NeedsPerson { .. }));
    assert_eq!(effects.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_bodys_future_is_made_is_the_bodys_too() {
    let stage = Stage::new();
    let semel = semel(&stage, 1);
    let panicking = tokio::spawn({
        let semel = semel.clone();
        let body = |_| std::future::ready(Ok::<u32, std::io::Error>("oh".parse().unwrap()));
        async move { semel.run(&job(), body).await.is_done() }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    let entry = stage.engine(2).look(job().work(), &[]).await.unwrap().entry.unwrap().value;
    assert_eq!((entry.state, entry.failures), (State::Failed { torn: true }, 1));
    // the lease was given back: nobody waits for it to lapse
    let outcome = semel.run(&job(), async |_| Ok::<_, std::io::Error>(7)).await;
    assert!(matches!(outcome, Outcome::Done(7)), "{outcome:?}");
}

#[tokio::test]
async fn a_step_that_is_dropped_while_it_is_claimed_was_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let semel = Semel::sqlite(folder.path().join("ledger.db")).unwrap();
    let effects = Cell::new(0);
    let outcome = semel
        .run(&job(), async |run| -> Result<u32, Any> {
            let effect = async || {
                effects.set(effects.get() + 1);
                Ok::<_, std::io::Error>(effects.get())
            };
            // the store has a thread of its own, and has not answered at the first poll
            drop_when(run.step("a", effect), || true).await;
            loop {
                match run.step("a", effect).await {
                    // the claim is being taken back
                    Err(StepError::Twice(_)) => tokio::task::yield_now().await,
                    other => return Ok(other?),
                }
            }
        })
        .await;
    assert!(matches!(outcome, Outcome::Done(1)), "{outcome:?}");
}

#[tokio::test]
async fn a_step_that_is_dropped_while_it_is_recorded_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let semel = Semel::sqlite(folder.path().join("ledger.db")).unwrap();
    let effects = Cell::new(0);
    let outcome = semel
        .run(&job(), async |run| -> Result<u32, Any> {
            let effect = async || {
                effects.set(effects.get() + 1);
                Ok::<_, std::io::Error>(5)
            };
            drop_when(run.step("a", effect), || effects.get() > 0).await;
            Err("once more".into())
        })
        .await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    let outcome = next(&semel, "a", &effects).await;
    assert!(matches!(outcome, Outcome::Done(5)), "{outcome:?}");
    assert_eq!(effects.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_dropped_is_lost_and_its_step_in_doubt() {
    let stage = Stage::new();
    let semel = semel(&stage, 1);
    let begun = Cell::new(false);
    let job = job();
    let run = semel.run(&job, async |run| -> Result<(), Any> {
        let effect = async || {
            begun.set(true);
            std::future::pending::<Result<(), std::io::Error>>().await
        };
        Ok(run.step("a", effect).await?)
    });
    drop_when(run, || begun.get()).await;
    let effects = Cell::new(0);
    // nobody gave the lease back: it must lapse first
    assert!(matches!(next(&semel, "a", &effects).await, Outcome::Busy { .. }));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(matches!(next(&semel, "a", &effects).await, Outcome::NeedsPerson { .. }));
    assert_eq!(effects.get(), 0);
}
