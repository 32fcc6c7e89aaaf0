//! Steps at the desk of a run, on a store that fails as told and a clock that sleeps as told.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use semel::core::claim::First;
use semel::core::entry::{DoneBy, Ending, Entry, State};
use semel::core::name::Name;
use semel::core::policy::OnLost;
use semel::engine::desk::{Desk, Shut, StepBegin, StepEnd, StepPlan, StepRefusal, Ticket};
use semel::engine::{Report, TaskEnd, Unsettled};

use super::stage::{FakeTask, Fault, Stage, plan};

const TTL: Duration = Duration::from_secs(60);

fn step(name: &str) -> StepPlan {
    StepPlan { name: Name::new(name).unwrap(), nth: 1, on_lost: OnLost::Hold, command: None }
}

fn run(begun: Result<StepBegin, StepRefusal>) -> Ticket {
    match begun {
        Ok(StepBegin::Run(ticket)) => ticket,
        other => panic!("it may not be run: {other:?}"),
    }
}

fn done() -> StepEnd {
    StepEnd::of(Ending::Succeeded)
}

impl Stage {
    /// A run of the job by this worker, and what happens inside it meanwhile.
    async fn inside<T>(&self, pid: i32, ends: TaskEnd, act: impl AsyncFnOnce(Arc<Desk>) -> T) -> (Report, T) {
        let mut task = FakeTask::new(self, Duration::from_secs(30));
        task.ends.push_back(ends);
        let slot = Arc::clone(&task.desk);
        let acting = async {
            let desk = until_some(|| slot.lock().unwrap().clone()).await;
            act(desk).await
        };
        let job = plan("job");
        tokio::join!(self.run(pid, &job, &mut task), acting)
    }

    async fn entry_of(&self, name: &str) -> Option<Entry> {
        let work = plan("job").work.unwrap().at_step(Name::new(name).unwrap(), 1).unwrap();
        self.engine(99).look(Some(&work), &[]).await.unwrap().entry.map(|seen| seen.value)
    }
}

async fn until_some<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn failed() -> TaskEnd {
    TaskEnd::Exited(1)
}

#[tokio::test(start_paused = true)]
async fn a_step_is_two_durable_swaps_and_a_replay_one_load() {
    let stage = Stage::new();
    let (_, ()) = stage
        .inside(1, failed(), async |desk| {
            let before = stage.store.calls().len();
            let ticket = run(desk.claim(&step("a")).await);
            desk.settle(ticket, done()).await.unwrap();
            // in the first attempt there is nothing to look for
            assert_eq!(stage.store.calls()[before..], ["swap Durable", "swap Durable"]);
        })
        .await;
    let (_, ()) = stage
        .inside(2, failed(), async |desk| {
            let before = stage.store.calls().len();
            assert!(matches!(desk.claim(&step("a")).await, Ok(StepBegin::Replay(_))));
            let ticket = run(desk.claim(&step("b")).await);
            desk.settle(ticket, done()).await.unwrap();
            assert_eq!(stage.store.calls()[before..], ["load", "load", "swap Durable", "swap Durable"]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_of_the_claim_or_of_the_outcome_changes_nothing() {
    for fault in [Fault::AppliedUnknown, Fault::LostUnknown, Fault::LateUnknown] {
        let stage = Stage::new();
        let (_, ()) = stage
            .inside(1, failed(), async |desk| {
                stage.store.swaps(&[fault]);
                let ticket = run(desk.claim(&step("a")).await);
                stage.store.swaps(&[fault]);
                desk.settle(ticket, done()).await.unwrap();
            })
            .await;
        let entry = stage.entry_of("a").await.unwrap();
        assert_eq!((entry.state, entry.attempts), (State::Done { by: DoneBy::Run }, 1), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_begins_nothing_and_the_step_may_be_asked_for_again() {
    let stage = Stage::new();
    let (_, ()) = stage
        .inside(1, failed(), async |desk| {
            stage.store.swaps(&[Fault::LostUnknown; 3]);
            assert!(matches!(desk.claim(&step("a")).await, Err(StepRefusal::StoreDown(_))));
            // one that was applied after all is our own, and nobody has begun it
            stage.store.swaps(&[Fault::LostUnknown, Fault::LostUnknown, Fault::AppliedUnknown]);
            assert!(matches!(desk.claim(&step("a")).await, Err(StepRefusal::StoreDown(_))));
            let ticket = run(desk.claim(&step("a")).await);
            assert_eq!((ticket.first, ticket.attempt()), (First::Run, 1));
            desk.settle(ticket, done()).await.unwrap();
        })
        .await;
    assert_eq!(stage.entry_of("a").await.unwrap().state, State::Done { by: DoneBy::Run });
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_recorded_keeps_the_step_from_being_begun_again() {
    let stage = Stage::new();
    let (_, ()) = stage
        .inside(1, failed(), async |desk| {
            let ticket = run(desk.claim(&step("a")).await);
            stage.store.all_down(true);
            assert!(matches!(desk.settle(ticket, done()).await, Err(Unsettled::StoreDown(_))));
            stage.store.all_down(false);
            assert!(matches!(
                desk.claim(&step("a")).await,
                Err(StepRefusal::StoreDown(_) | StepRefusal::Stale(_))
            ));
        })
        .await;
    assert!(matches!(stage.entry_of("a").await.unwrap().state, State::Running { .. }));
}

/// A holder is stalled for longer than its lease; another takes over, and has not come to the step yet.
async fn zombie<T, F: Future<Output = T>>(stage: &Stage, wakes: impl FnOnce(Arc<Desk>) -> F) -> (T, Report) {
    let mut task = FakeTask::new(stage, Duration::from_secs(30));
    let slot = Arc::clone(&task.desk);
    let job = plan("job");
    // the first one never gets another turn: it is dropped where it stands, as a stopped process would be
    {
        let running = stage.run(1, &job, &mut task);
        tokio::pin!(running);
        tokio::select! {
            _ = &mut running => panic!("it ended"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
    let desk = slot.lock().unwrap().clone().unwrap();
    stage.clock.suspend(TTL * 2);
    let (report, answer) = stage.inside(2, failed(), async |_| wakes(desk).await).await;
    (answer, report)
}

#[tokio::test(start_paused = true)]
async fn a_zombie_cannot_claim_a_step_that_the_new_holder_has_not_reached() {
    let stage = Stage::new();
    let (answer, _) = zombie(&stage, |desk| async move { desk.claim(&step("later")).await }).await;
    assert!(matches!(answer, Err(StepRefusal::Stale(_))), "{answer:?}");
    assert_eq!(stage.entry_of("later").await, None);
}

/// The same with a watch that has stopped with the machine: only the guard of the claim is left.
#[tokio::test(start_paused = true)]
async fn a_zombie_that_trusts_its_lease_is_refused_by_the_store() {
    let stage = Stage::new();
    let begun = stage
        .inside(1, failed(), async |zombie| {
            // released behind its back and taken by another: its own watch has not moved
            let engine = stage.engine(3);
            let (resource, token) = (zombie.begin().resource.clone(), zombie.begin().grant.token);
            engine.release(&resource, token).await.unwrap().unwrap();
            let policy = semel::core::policy::Policy::default();
            engine
                .acquire(std::slice::from_ref(&resource), &policy, &engine.me.clone(), "other")
                .await
                .unwrap();
            assert!(zombie.is_trusted().is_ok());
            let gate = zombie.gate(Duration::ZERO).await;
            assert!(matches!(gate, Err(Shut::Stale(_))), "{gate:?}");
            zombie.claim(&step("a")).await
        })
        .await
        .1;
    assert!(matches!(begun, Err(StepRefusal::Stale(_))), "{begun:?}");
    assert_eq!(stage.entry_of("a").await, None);
}

/// The naive way: look whether it is done, then do it.
#[tokio::test(start_paused = true)]
async fn control_a_zombie_that_only_looks_whether_it_is_done_repeats_the_effect() {
    let stage = Stage::new();
    let mut effects = 0;
    let (_, looked) = stage
        .inside(1, failed(), async |_| {
            let looked = stage.entry_of("a").await;
            stage.clock.suspend(TTL * 2);
            looked
        })
        .await;
    let (_, ()) = stage
        .inside(2, failed(), async |desk| {
            let ticket = run(desk.claim(&step("a")).await);
            effects += 1;
            desk.settle(ticket, done()).await.unwrap();
        })
        .await;
    if looked.is_none() {
        effects += 1;
    }
    assert_eq!(effects, 2);
}

#[tokio::test(start_paused = true)]
async fn a_zombies_outcome_is_refused_once_the_ledger_has_gone_on() {
    let stage = Stage::new();
    let slot = Arc::new(std::sync::Mutex::new(None));
    let kept = Arc::clone(&slot);
    let (_, desk) = stage
        .inside(1, failed(), async |desk| {
            *kept.lock().unwrap() = Some(run(desk.claim(&step("a")).await));
            stage.clock.suspend(TTL * 2);
            desk
        })
        .await;
    let (report, ()) = stage
        .inside(2, failed(), async |desk| {
            assert!(matches!(desk.claim(&step("a")).await, Ok(StepBegin::Person(_))));
        })
        .await;
    assert!(matches!(report, Report::Blocked { .. }), "{report:?}");
    let ticket = slot.lock().unwrap().take().unwrap();
    assert!(matches!(desk.settle(ticket, done()).await, Err(Unsettled::Stale(_))));
    assert!(matches!(stage.entry_of("a").await.unwrap().state, State::InDoubt { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_blocked_run_is_neither_done_nor_failed() {
    let stage = Stage::new();
    for pid in 1..8 {
        let (report, ()) = stage
            .inside(pid, TaskEnd::Exited(if pid == 1 { 1 } else { 0 }), async |desk| {
                if let Ok(StepBegin::Run(ticket)) = desk.claim(&step("a")).await {
                    desk.settle(ticket, StepEnd::of(Ending::Killed { signal: 9 })).await.unwrap();
                }
            })
            .await;
        assert_eq!(matches!(report, Report::Blocked { .. }), pid > 1, "{report:?}");
    }
    let entry = stage.state(&plan("job")).await.unwrap();
    assert_eq!((entry.state, entry.failures, entry.attempts), (State::Open { torn: false }, 1, 7));
}

#[tokio::test(start_paused = true)]
async fn the_gate_renews_a_lease_that_is_too_short_and_refuses_what_can_never_be() {
    let stage = Stage::new();
    let (_, ()) = stage
        .inside(1, failed(), async |desk| {
            tokio::time::sleep(Duration::from_secs(15)).await;
            let verified = desk.gate(Duration::from_secs(50)).await.unwrap();
            assert!(verified.left_ms >= 50_000, "{verified:?}");
            assert!(matches!(desk.gate(TTL).await, Err(Shut::TooShort { .. })));
            stage.store.all_down(true);
            assert!(matches!(desk.gate(Duration::ZERO).await, Err(Shut::StoreDown(_))));
            stage.store.all_down(false);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_output_of_a_step_is_there_once_the_step_is_settled() {
    let stage = Stage::new();
    let (_, ()) = stage
        .inside(1, failed(), async |desk| {
            let ticket = run(desk.claim(&step("a")).await);
            desk.keep(&ticket, 0, b"first").await.unwrap();
            desk.keep(&ticket, 0, b"first").await.unwrap();
            let of = ticket.of;
            let work = ticket.work().clone();
            let output =
                semel::core::entry::Output { of, pieces: 2, out_bytes: 10, err_bytes: 0, kept: true };
            let end = StepEnd { output: Some(output), last_piece: Some((1, b"second".to_vec())), ..done() };
            desk.settle(ticket, end).await.unwrap();
            assert_eq!(desk.piece(&work, &of, 0).await.unwrap().unwrap(), b"first");
            assert_eq!(desk.piece(&work, &of, 1).await.unwrap().unwrap(), b"second");
            assert_eq!(desk.piece(&work, &of, 2).await.unwrap(), None);
        })
        .await;
}

/// Nothing is known yet of how it ends: it is neither lost nor a reply that was lost.
#[tokio::test(start_paused = true)]
async fn a_step_that_outlives_its_try_is_not_begun_by_the_next_one() {
    let stage = Stage::new();
    let mut task = FakeTask::new(&stage, Duration::from_secs(1));
    task.ends.extend([failed(), failed()]);
    let slot = Arc::clone(&task.desk);
    let policy = semel::core::policy::Policy { retries: 1, backoff_ms: 1, ..Default::default() };
    let job = semel::engine::RunPlan { policy, ..plan("job") };
    let acting = async {
        let desk = until_some(|| slot.lock().unwrap().clone()).await;
        let ticket = run(desk.claim(&step("a")).await);
        // the second try has begun: the first one's step was waited for, and not for ever
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        assert!(matches!(desk.claim(&step("a")).await, Err(StepRefusal::Twice { .. })));
        desk.settle(ticket, done()).await.unwrap();
    };
    let (report, ()) = tokio::join!(stage.run(1, &job, &mut task), acting);
    assert_eq!((super::ending(&report), task.starts()), (Ending::Failed { code: 1 }, 2));
    assert_eq!(stage.entry_of("a").await.unwrap().attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_or_an_outcome_that_was_made_in_part_changes_nothing() {
    let piece = b"all of it".to_vec();
    for (of_claim, of_outcome) in (0..=3).flat_map(|a| (0..=2).map(move |b| (a, b))) {
        let stage = Stage::new();
        stage.store.one_by_one(true);
        let inside = stage.inside(1, failed(), async |desk| {
            stage.store.swaps(&[Fault::HalfUnknown(of_claim)]);
            let ticket = run(desk.claim(&step("a")).await);
            stage.store.swaps(&[Fault::HalfUnknown(of_outcome)]);
            let end = StepEnd { last_piece: Some((0, piece.clone())), ..done() };
            desk.settle(ticket, end).await.unwrap();
        });
        tokio::time::timeout(TTL, inside).await.unwrap();
        let entry = stage.entry_of("a").await.unwrap();
        assert_eq!((entry.state, entry.attempts), (State::Done { by: DoneBy::Run }, 1));
    }
}
