//! Slots of a schedule that come to nothing: they are on record, and somebody is told.

use std::time::Duration;

use semel::core::alarm::{Event as Said, Kind};
use semel::core::calendar::{Occurrence, Reason};
use semel::core::entry::{Ending, State};
use semel::core::name::{Name, Slot};
use semel::core::record::RecordKey;
use semel::core::schedule::Schedule;
use semel::core::work::{Fields, Work};
use semel::engine::{Report, RunPlan, Scheduled, Undisturbed};

use super::stage::{FakeTask, Stage, plan};
use super::{LONG, SHORT, ending};

/// An hour of a job that has a lane.
fn hour(job: &str, resource: &str, hour: u64) -> RunPlan {
    let slot = Slot::new(&format!("2025-06-15T{hour:02}:00:00Z")).unwrap();
    let work = Work::in_slot(Name::new(job).unwrap(), slot, Fields::new()).unwrap();
    let schedule = Schedule::parse("hour").unwrap();
    let zone = jiff::tz::TimeZone::UTC;
    let at = work.slot().unwrap().as_str().parse().unwrap();
    let tick = schedule.tick_at_or_before(&zone, at).unwrap();
    RunPlan {
        what: work.to_string(),
        work: Some(work),
        resources: vec![Name::new(resource).unwrap()],
        scheduled: Some(Scheduled {
            occurrence: Occurrence { schedule, zone, tick, grace_ms: 3_600_000 },
            excuses: Vec::new(),
        }),
        lanes: vec!["ops".to_owned()],
        ..plan(job)
    }
}

/// What waits to be told of a job: what happened, of which kind, to which work.
async fn waiting(stage: &Stage, job: &str) -> Vec<(Said, Kind, String)> {
    let alarm = stage.engine(99).alarm(&RecordKey::alarm(&Name::new(job).unwrap())).await.unwrap();
    let outbox = alarm.map(|seen| seen.value.outbox).unwrap_or_default();
    outbox.into_iter().map(|notice| (notice.event, notice.kind, notice.work.unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_vanished_is_told_when_the_next_slot_is_run() {
    let stage = Stage::new();
    super::lose_an_attempt(&stage, &hour("job", "job", 1)).await;
    assert!(waiting(&stage, "job").await.is_empty(), "nobody has come since");
    let report = stage.run(2, &hour("job", "job", 2), &mut FakeTask::new(&stage, SHORT)).await;
    assert_eq!(ending(&report), Ending::Succeeded);
    let told = waiting(&stage, "job").await;
    assert_eq!(told, [(Said::Raised, Kind::Lost, "job@2025-06-15T01:00:00Z".to_owned())]);
    // once
    stage.run(2, &hour("job", "job", 3), &mut FakeTask::new(&stage, SHORT)).await;
    assert_eq!(waiting(&stage, "job").await, told);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_only_kept_for_the_next_of_a_row_is_no_loss() {
    let stage = Stage::new();
    let mut task = FakeTask::new(&stage, SHORT);
    let first = hour("job", "job", 1);
    let (report, kept) =
        stage.engine(1).run_in_row(&first, None, true, &mut task, &mut Undisturbed, &mut |_| {}).await;
    assert_eq!(ending(&report), Ending::Succeeded);
    drop(kept);
    stage.clock.suspend(Duration::from_secs(3_600));
    let report = stage.run(2, &hour("job", "job", 2), &mut FakeTask::new(&stage, SHORT)).await;
    assert_eq!(ending(&report), Ending::Succeeded);
    assert!(waiting(&stage, "job").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_very_first_slot_is_found_missed_too_if_its_resource_was_busy() {
    let stage = Stage::new();
    let (holder, first) = (hour("other", "site", 1), hour("job", "site", 1));
    let mut task = FakeTask::new(&stage, LONG);
    let late = async {
        tokio::time::sleep(SHORT).await;
        stage.run(2, &first, &mut FakeTask::new(&stage, SHORT)).await
    };
    let (_, report) = tokio::join!(stage.run(1, &holder, &mut task), late);
    assert!(matches!(report, Report::Yielded(_)), "{report:?}");
    stage.run(2, &hour("job", "site", 3), &mut FakeTask::new(&stage, SHORT)).await;
    let state = async |plan: RunPlan| stage.state(&plan).await.unwrap().state;
    assert_eq!(state(first).await, State::Missed { reason: Reason::Busy, detail: None });
    assert_eq!(
        state(hour("job", "site", 2)).await,
        State::Missed { reason: Reason::NoTrigger, detail: None }
    );
}
