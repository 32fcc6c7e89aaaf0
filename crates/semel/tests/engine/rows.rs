//! Several works in a row under one lease: what is kept, what has lapsed, and what comes in between.

use std::time::Duration;

use semel::core::entry::Ending;
use semel::core::name::Name;
use semel::core::policy::Policy;
use semel::engine::{Caught, Kept, PlanAsk, Report, RunPlan, Signals, Undisturbed};
use serde_json::json;
use tokio::time::Instant;

use crate::stage::{FakeTask, Fault, SignalAt, Stage, Told, plan};
use crate::{LONG, SHORT, ending};

/// A work of its own, under the resource that all of these have.
fn work(name: &str) -> RunPlan {
    RunPlan { resources: vec![resource()], ..plan(name) }
}

fn resource() -> Name {
    Name::new("shared").unwrap()
}

fn under(name: &str, policy: &Policy) -> RunPlan {
    RunPlan { policy: policy.clone(), ..work(name) }
}

async fn next(
    stage: &Stage,
    plan: &RunPlan,
    kept: Option<Kept>,
    task: &mut FakeTask,
) -> (Report, Option<Kept>) {
    disturbed(stage, plan, kept, task, &mut Undisturbed).await
}

async fn disturbed(
    stage: &Stage,
    plan: &RunPlan,
    kept: Option<Kept>,
    task: &mut FakeTask,
    signals: &mut impl Signals,
) -> (Report, Option<Kept>) {
    stage.engine(1).run_in_row(plan, kept, true, task, signals, &mut |_| {}).await
}

/// The first of a row is done, and its lease is kept.
async fn first(stage: &Stage, policy: &Policy) -> Kept {
    let mut task = FakeTask::new(stage, SHORT);
    let (report, kept) = next(stage, &under("first", policy), None, &mut task).await;
    assert_eq!(ending(&report), Ending::Succeeded);
    assert_eq!(task.told(), [Told::Start { attempt: 1, token: 1 }]);
    kept.unwrap()
}

async fn is_held(stage: &Stage) -> bool {
    stage.engine(9).lease_of(&resource()).await.unwrap().unwrap().is_held()
}

#[tokio::test(start_paused = true)]
async fn works_in_a_row_have_one_token_and_nobody_gets_in_between() {
    let stage = Stage::new();
    let kept = first(&stage, &Policy::default()).await;
    let mut other = FakeTask::new(&stage, SHORT);
    assert!(matches!(stage.run(2, &work("other"), &mut other).await, Report::Yielded(_)));
    let mut task = FakeTask::new(&stage, LONG);
    let (report, kept) = next(&stage, &work("second"), Some(kept), &mut task).await;
    assert_eq!(ending(&report), Ending::Succeeded);
    assert_eq!(task.told(), [Told::Start { attempt: 1, token: 1 }]);
    assert!(is_held(&stage).await);
    stage.engine(1).let_go(kept.unwrap()).await;
    assert!(!is_held(&stage).await);
    assert_eq!(ending(&stage.run(2, &work("other"), &mut other).await), Ending::Succeeded);
    assert_eq!(other.told(), [Told::Start { attempt: 1, token: 2 }]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_may_have_lapsed_is_claimed_anew_and_does_not_stand_in_its_holders_way() {
    let policy = Policy { lock_delay_ms: 600_000, ..Policy::default() };
    // past the moment at which work must stop; past the lease; long past it
    for slept in [policy.stop_by_ms(), policy.ttl_ms, 20 * policy.ttl_ms] {
        let stage = Stage::new();
        let kept = first(&stage, &policy).await;
        stage.clock.suspend(Duration::from_millis(slept));
        let mut task = FakeTask::new(&stage, SHORT);
        let (report, _) = next(&stage, &under("second", &policy), Some(kept), &mut task).await;
        assert_eq!(ending(&report), Ending::Succeeded, "{slept}");
        assert_eq!(task.told(), [Told::Start { attempt: 1, token: 2 }], "{slept}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_lapses_while_the_next_work_is_planned_is_taken_again_with_a_token_of_its_own() {
    let stage = Stage::new();
    let policy = Policy { lock_delay_ms: 600_000, ..Policy::default() };
    let kept = first(&stage, &policy).await;
    let given = json!({ "n": 1 }).as_object().unwrap().clone();
    let mut task = FakeTask::new(&stage, SHORT).deciding(PlanAsk { given, ..PlanAsk::default() });
    task.thinks = LONG;
    let (report, _) = next(&stage, &under("second", &policy), Some(kept), &mut task).await;
    assert_eq!(ending(&report), Ending::Succeeded);
    assert_eq!(task.told(), [Told::Start { attempt: 1, token: 2 }]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_has_by_now_is_not_taken_up() {
    let stage = Stage::new();
    let kept = first(&stage, &Policy::default()).await;
    stage.clock.suspend(Duration::from_secs(61));
    let mut other = FakeTask::new(&stage, LONG);
    let (ours, other_work) = (work("second"), work("other"));
    let second = async {
        tokio::time::sleep(SHORT).await;
        let mut task = FakeTask::new(&stage, SHORT);
        let (report, kept) = next(&stage, &ours, Some(kept), &mut task).await;
        assert!(matches!(report, Report::Yielded(_)), "{report:?}");
        assert_eq!((task.starts(), kept.is_none()), (0, true));
    };
    let (report, ()) = tokio::join!(stage.run(2, &other_work, &mut other), second);
    assert_eq!(ending(&report), Ending::Succeeded, "nobody took its lease from it");
}

#[tokio::test(start_paused = true)]
async fn a_kept_lease_lives_as_long_as_the_next_work_trusts_it() {
    let stage = Stage::new();
    let kept = first(&stage, &Policy::default()).await;
    let longer = Policy { ttl_ms: 600_000, ..Policy::default() };
    let (ours, other_work) = (under("second", &longer), work("other"));
    let mut task = FakeTask::new(&stage, LONG);
    let other = async {
        // past the lease of the first, before the first heartbeat of the second
        tokio::time::sleep(Duration::from_secs(120)).await;
        let mut task = FakeTask::new(&stage, SHORT);
        stage.run(2, &other_work, &mut task).await
    };
    let ((report, _), other) = tokio::join!(next(&stage, &ours, Some(kept), &mut task), other);
    assert!(matches!(other, Report::Yielded(_)), "{other:?}");
    assert_eq!(ending(&report), Ending::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_row_that_ends_early_still_holds_its_lease_as_long_as_told() {
    let stage = Stage::new();
    let policy = Policy { hold_at_least_ms: 30_000, ..Policy::default() };
    let kept = first(&stage, &policy).await;
    stage.engine(1).let_go(kept).await;
    let mut other = FakeTask::new(&stage, SHORT);
    assert!(matches!(stage.run(2, &work("other"), &mut other).await, Report::Yielded(_)));
    stage.clock.suspend(Duration::from_secs(30));
    assert_eq!(ending(&stage.run(2, &work("other"), &mut other).await), Ending::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_signal_between_two_works_begins_nothing() {
    let stage = Stage::new();
    let kept = first(&stage, &Policy::default()).await;
    let caught = Caught { signal: 15, from_terminal: false, ends: true };
    let mut signals = SignalAt(Some((Instant::now(), caught)));
    let mut task = FakeTask::new(&stage, SHORT);
    let (report, kept) = disturbed(&stage, &work("second"), Some(kept), &mut task, &mut signals).await;
    assert!(matches!(report, Report::Interrupted(15)), "{report:?}");
    assert_eq!(task.starts(), 0);
    assert!(stage.state(&work("second")).await.is_none(), "nothing was claimed, so nothing was torn");
    stage.engine(1).let_go(kept.unwrap()).await;
    assert!(!is_held(&stage).await);
}

#[tokio::test(start_paused = true)]
async fn replies_that_are_lost_between_two_works_lose_nothing() {
    let unknown = [Fault::AppliedUnknown, Fault::LostUnknown, Fault::LateUnknown];
    for (settle, claim) in unknown.into_iter().flat_map(|s| unknown.map(|c| (s, c))) {
        let stage = Stage::new();
        let again = if settle == Fault::AppliedUnknown { vec![] } else { vec![Fault::None] };
        stage.store.swaps(&[vec![Fault::None, settle], again, vec![claim]].concat());
        let kept = first(&stage, &Policy::default()).await;
        let mut task = FakeTask::new(&stage, SHORT);
        let (report, kept) = next(&stage, &work("second"), Some(kept), &mut task).await;
        assert_eq!(ending(&report), Ending::Succeeded, "{settle:?} {claim:?}");
        assert_eq!(task.told(), [Told::Start { attempt: 1, token: 1 }], "{settle:?} {claim:?}");
        for done in ["first", "second"] {
            let entry = stage.state(&work(done)).await.unwrap();
            assert_eq!((entry.state.word(), entry.attempts), ("done", 1), "{settle:?} {claim:?}");
        }
        stage.engine(1).let_go(kept.unwrap()).await;
        assert!(!is_held(&stage).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_nobody_answers_leaves_a_lease_that_can_be_given_back() {
    let stage = Stage::new();
    let kept = first(&stage, &Policy::default()).await;
    // written, and then the store is away for good, as far as this run knows
    stage.store.swaps(&[Fault::AppliedUnknown]);
    let store = stage.store.clone();
    let down = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        store.all_down(true);
    };
    let mut task = FakeTask::new(&stage, SHORT);
    let plan = work("second");
    let ((report, kept), ()) = tokio::join!(next(&stage, &plan, Some(kept), &mut task), down);
    assert!(matches!(report, Report::StoreDown(_)), "{report:?}");
    assert_eq!(task.starts(), 0);
    stage.store.all_down(false);
    stage.engine(1).let_go(kept.unwrap()).await;
    assert!(!is_held(&stage).await, "also where the claim that was not heard of wrote it again");
    let mut again = FakeTask::new(&stage, SHORT);
    assert_eq!(ending(&stage.run(2, &plan, &mut again).await), Ending::Succeeded);
    assert_eq!(again.told(), [Told::Start { attempt: 2, token: 2 }]);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_not_on_record_leaves_nothing_to_go_on_with() {
    let stage = Stage::new();
    let store = stage.store.clone();
    let mut task = FakeTask::new(&stage, SHORT).when_started(move || store.all_down(true));
    let (report, kept) = next(&stage, &work("first"), None, &mut task).await;
    assert!(matches!(report, Report::Unrecorded { .. }), "{report:?}");
    assert!(kept.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_under_the_first_work_is_not_kept() {
    let stage = Stage::new();
    let store = stage.store.clone();
    let mut task = FakeTask::new(&stage, LONG).when_started(move || store.touches(&[Fault::Down; 1_000]));
    let (report, kept) = next(&stage, &work("first"), None, &mut task).await;
    assert!(matches!(report, Report::LeaseLost { .. }), "{report:?}");
    assert!(kept.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_ledger_is_kept_too() {
    let stage = Stage::new();
    let bare = RunPlan { work: None, ..work("bare") };
    let mut task = FakeTask::new(&stage, SHORT);
    let (report, kept) = next(&stage, &bare, None, &mut task).await;
    assert_eq!(ending(&report), Ending::Succeeded);
    assert!(is_held(&stage).await);
    let (_, kept) = next(&stage, &bare, kept, &mut task).await;
    let started = Told::Start { attempt: 1, token: 1 };
    assert_eq!(task.told(), [started.clone(), started]);
    stage.engine(1).let_go(kept.unwrap()).await;
    assert!(!is_held(&stage).await);
}
