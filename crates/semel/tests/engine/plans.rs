//! Plans that are pinned: the same for every attempt, whatever has happened since.

use std::time::Duration;

use semel::core::entry::{Ending, Say};
use semel::core::name::{Name, Slot};
use semel::core::plan::{Choice, Plan, Recent};
use semel::core::policy::{IfBusy, Policy};
use semel::core::work::{Fields, Work};
use semel::engine::verdict::{Judged, Saying};
use semel::engine::{PlanAsk, Report, RunPlan, TaskEnd};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::stage::{FakeTask, Fault, SignalAt, Stage, plan};
use crate::{SHORT, ending, lose_an_attempt_of};

fn slot(slot: &str) -> RunPlan {
    let work = Work::in_slot(Name::new("publish").unwrap(), Slot::new(slot).unwrap(), Fields::new()).unwrap();
    RunPlan { what: work.to_string(), work: Some(work), ..plan("publish") }
}

/// A topic of these, and the last three slugs.
fn deciding(topics: &str) -> PlanAsk {
    PlanAsk {
        choose: vec![Choice::parse(&format!("topic={topics}")).unwrap()],
        recent: vec![Recent::parse("slugs=3:slug").unwrap()],
        given: serde_json::Map::new(),
    }
}

fn given(n: u32) -> PlanAsk {
    PlanAsk { given: json!({ "n": n }).as_object().unwrap().clone(), ..PlanAsk::default() }
}

async fn publish(stage: &Stage, day: &str, slug: &str) {
    let mut task = FakeTask::new(stage, SHORT).resulting(json!({ "slug": slug }));
    assert_eq!(ending(&stage.run(7, &slot(day), &mut task).await), Ending::Succeeded);
}

async fn judge(stage: &Stage, job: &RunPlan, said: Say) {
    let saying = Saying { said, by: "a person".into(), because: "so".into(), result: None };
    let judged = stage.engine(4).judge(job.work.as_ref().unwrap(), &saying).await.unwrap();
    assert!(matches!(judged, Judged::Changed { .. }), "{judged:?}");
}

fn seen(plan: Option<&Plan>, name: &str) -> Value {
    plan.unwrap().get(name).unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_retry_gets_the_plan_of_the_first_attempt_although_history_and_options_moved_on() {
    let stage = Stage::new();
    for n in 1..=4 {
        publish(&stage, &format!("2026-06-0{n}"), &format!("slug-{n}")).await;
    }
    let job = slot("2026-06-19");
    let first = FakeTask::new(&stage, SHORT).deciding(deciding("a,b,c"));
    let first = lose_an_attempt_of(&stage, &job, first).await;
    let pinned = first.plans[0].clone();
    assert_eq!(seen(pinned.as_ref(), "slugs"), json!(["slug-4", "slug-3", "slug-2"]));
    assert_eq!(stage.state(&job).await.unwrap().plan, pinned);
    publish(&stage, "2026-06-05", "slug-5").await;
    let chosen = seen(pinned.as_ref(), "topic");
    let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|option| chosen != *option).collect();
    // it fails, then a person says to run it again: still the same
    for ends in [TaskEnd::Exited(1), TaskEnd::Exited(0)] {
        let mut retry = FakeTask::new(&stage, SHORT).deciding(deciding(&others.join(",")));
        retry.ends = [ends].into();
        stage.run(2, &job, &mut retry).await;
        assert_eq!((retry.asked, &retry.plans[..]), (0, &[pinned.clone()][..]), "not made again");
        // control: made now, it would be another
        let now = stage
            .engine(3)
            .make_plan(job.work.as_ref().unwrap(), &deciding(&others.join(",")))
            .await
            .unwrap();
        assert_ne!(now.get("topic"), Some(&chosen));
        assert_eq!(now.get("slugs").unwrap()[0], "slug-5");
    }
    for said in [Say::Retry, Say::NotDone] {
        judge(&stage, &job, said).await;
        let mut again = FakeTask::new(&stage, SHORT).deciding(deciding("x,y"));
        stage.run(5, &job, &mut again).await;
        assert_eq!(again.plans, std::slice::from_ref(&pinned), "{said:?}");
    }
    // asked for nothing, it is given what is pinned all the same
    judge(&stage, &job, Say::Retry).await;
    let mut plain = FakeTask::new(&stage, SHORT);
    stage.run(6, &job, &mut plain).await;
    assert_eq!(plain.plans, [pinned]);
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_plan_costs_what_it_cost_and_a_plan_by_the_key_alone_costs_nothing_more() {
    let stage = Stage::new();
    let ask = PlanAsk { recent: Vec::new(), ..deciding("a,b") };
    let mut task = FakeTask::new(&stage, SHORT).deciding(ask);
    stage.run(1, &plan("job"), &mut task).await;
    assert_eq!(stage.store.calls(), ["load", "swap Durable", "swap Durable"]);
    let mut skipped = FakeTask::new(&stage, SHORT).deciding(deciding("a,b"));
    assert!(matches!(stage.run(2, &plan("job"), &mut skipped).await, Report::AlreadyDone(_)));
    assert_eq!(skipped.asked, 0, "a run that does nothing makes no plan");
    let mut none = FakeTask::new(&stage, SHORT);
    stage.run(3, &plan("other"), &mut none).await;
    assert_eq!(none.plans, [None]);
    assert_eq!(stage.state(&plan("other")).await.unwrap().plan, None);
}

#[tokio::test(start_paused = true)]
async fn of_two_that_race_one_pins_its_plan_and_the_other_gets_that() {
    let stage = Stage::new();
    let policy = Policy { if_busy: IfBusy::Wait { for_ms: 60_000 }, ..Policy::default() };
    let job = RunPlan { policy, ..plan("job") };
    // both have looked, both make a plan; the quicker one pins its own, and fails
    let mut slow = FakeTask::new(&stage, SHORT).deciding(given(1));
    slow.thinks = Duration::from_secs(3);
    let mut quick = FakeTask::new(&stage, Duration::from_secs(30)).deciding(given(2));
    quick.thinks = SHORT;
    quick.ends = [TaskEnd::Exited(1)].into();
    let (late, early) = tokio::join!(stage.run(1, &job, &mut slow), stage.run(2, &job, &mut quick));
    assert_eq!((ending(&early), ending(&late)), (Ending::Failed { code: 1 }, Ending::Succeeded));
    assert_eq!((slow.asked, quick.asked), (1, 1));
    assert_eq!(seen(quick.plans[0].as_ref(), "n"), json!(2));
    assert_eq!(slow.plans, quick.plans);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_lost_keeps_the_plan_that_it_wrote() {
    for fault in [Fault::AppliedUnknown, Fault::LostUnknown, Fault::LateUnknown] {
        let stage = Stage::new();
        stage.store.swaps(&[fault]);
        let mut task = FakeTask::new(&stage, SHORT).deciding(given(1));
        assert_eq!(ending(&stage.run(1, &plan("job"), &mut task).await), Ending::Succeeded, "{fault:?}");
        assert_eq!(task.asked, 1, "{fault:?}");
        assert_eq!(task.plans, [stage.state(&plan("job")).await.unwrap().plan], "{fault:?}");
        assert_eq!(seen(task.plans[0].as_ref(), "n"), json!(1), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_its_plan_nothing_is_claimed() {
    let stage = Stage::new();
    // a name that every plan has
    let ask = PlanAsk { given: json!({ "seed": 1 }).as_object().unwrap().clone(), ..PlanAsk::default() };
    let mut task = FakeTask::new(&stage, SHORT).deciding(ask);
    assert!(
        matches!(stage.run(1, &plan("job"), &mut task).await, Report::NoPlan(why) if why.contains("seed"))
    );
    let mut thinking = FakeTask::new(&stage, SHORT).deciding(given(1));
    thinking.thinks = Duration::from_secs(60);
    let caught = semel::engine::Caught { signal: 15, from_terminal: false, ends: true };
    let mut signals = SignalAt(Some((Instant::now() + SHORT, caught)));
    let report = stage.engine(1).run(&plan("job"), &mut thinking, &mut signals, &mut |_| {}).await;
    assert!(matches!(report, Report::Interrupted(15)), "{report:?}");
    assert_eq!((task.starts(), thinking.starts()), (0, 0));
    assert_eq!(stage.state(&plan("job")).await, None, "nothing is on record");
    assert_eq!(stage.store.calls().iter().filter(|call| call.starts_with("swap")).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_works_are_found_over_many_pages_and_only_what_is_done_counts() {
    let stage = Stage::new();
    // more than two pages of them; the scan goes by key, so their order is none
    for n in 0..300 {
        publish(&stage, &format!("{n:04}"), &format!("slug-{n}")).await;
    }
    let mut failed = FakeTask::new(&stage, SHORT).resulting(json!({ "slug": "never" }));
    failed.ends = [TaskEnd::Exited(1)].into();
    stage.run(1, &slot("fails"), &mut failed).await;
    let mut other = FakeTask::new(&stage, SHORT).resulting(json!({ "slug": "of another job" }));
    stage.run(1, &plan("another"), &mut other).await;
    publish(&stage, "no slug", "x").await;
    let made = stage.engine(2).make_plan(slot("next").work.as_ref().unwrap(), &deciding("a")).await.unwrap();
    assert_eq!(made.get("slugs"), Some(&json!(["x", "slug-299", "slug-298"])));
}
