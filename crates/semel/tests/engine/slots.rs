//! Slots that passed without a run, and what is told of them, on a store that does not always answer.

use semel::clock::Clock;
use semel::core::alarm::{Alarm, Kind};
use semel::core::calendar::{Occurrence, in_slot};
use semel::core::entry::Ending;
use semel::core::name::{Name, Slot};
use semel::core::record::{Expect, RecordKey};
use semel::core::schedule::Schedule;
use semel::core::work::{Fields, Work};
use semel::engine::{PlanAsk, Report, RunPlan, Scheduled, TaskEnd};
use semel::store::{Change, Durability, Store};
use serde_json::json;

use crate::stage::{FakeTask, Fault, Stage, plan};
use crate::{SHORT, ending};

const HOUR: u64 = 3_600;

/// The slot that is due, of a job that is fired every hour.
fn due(stage: &Stage) -> RunPlan {
    let schedule = Schedule::parse("hour").unwrap();
    let now = jiff::Timestamp::from_millisecond(stage.clock.wall_ms() as i64).unwrap();
    let zone = jiff::tz::TimeZone::UTC;
    let tick = schedule.tick_at_or_before(&zone, now).unwrap();
    let job = Name::new("job").unwrap();
    let work = Work::in_slot(job, tick.slot.clone(), Fields::new()).unwrap();
    let occurrence = Occurrence { schedule, zone, tick, grace_ms: 0 };
    RunPlan {
        what: work.to_string(),
        work: Some(work),
        scheduled: Some(Scheduled { occurrence, excuses: Vec::new() }),
        lanes: vec!["lane".into()],
        ..plan("job")
    }
}

fn hours_pass(stage: &Stage, hours: u64) {
    stage.clock.suspend(std::time::Duration::from_secs(hours * HOUR));
}

async fn fire(stage: &Stage) -> Report {
    stage.run(1, &due(stage), &mut FakeTask::new(stage, SHORT)).await
}

async fn alarm(stage: &Stage) -> Alarm {
    let key = RecordKey::alarm(&Name::new("job").unwrap());
    stage.engine(9).alarm(&key).await.unwrap().map(|seen| seen.value).unwrap_or_default()
}

/// The states of the slots so many hours ago and since, without the one that is due.
async fn states(stage: &Stage, hours: i64) -> Vec<&'static str> {
    let due = due(stage);
    let at = due.scheduled.unwrap().occurrence.tick.at;
    let mut states = Vec::new();
    for hour in (1..=hours).rev() {
        let slot = Slot::new(&(at - jiff::SignedDuration::from_hours(hour)).to_string()).unwrap();
        let work = in_slot(due.work.as_ref().unwrap(), slot).unwrap();
        let view = stage.engine(9).look(Some(&work), &[]).await.unwrap();
        states.push(view.entry.map_or("absent", |seen| seen.value.state.word()));
    }
    states
}

#[tokio::test(start_paused = true)]
async fn a_gap_is_on_record_and_told_once_whatever_becomes_of_the_reply() {
    for fault in [Fault::None, Fault::AppliedUnknown, Fault::LostUnknown, Fault::LateUnknown] {
        for one_by_one in [false, true] {
            let stage = Stage::new();
            assert_eq!(ending(&fire(&stage).await), Ending::Succeeded);
            hours_pass(&stage, 3);
            stage.store.one_by_one(one_by_one);
            stage.store.swaps(&[fault]);
            // it fails, so that what was missed is not followed by a recovery
            let mut task = FakeTask::new(&stage, SHORT);
            task.ends = [TaskEnd::Exited(1)].into();
            let report = stage.run(1, &due(&stage), &mut task).await;
            assert_eq!(ending(&report), Ending::Failed { code: 1 }, "{fault:?} {one_by_one}");
            assert_eq!(states(&stage, 3).await, ["done", "missed", "missed"], "{fault:?} {one_by_one}");
            let alarm = alarm(&stage).await;
            let missed: Vec<_> =
                alarm.outbox.iter().filter(|notice| notice.kind == Kind::Missed).map(|n| n.count).collect();
            assert_eq!(missed, [2], "{fault:?} {one_by_one}: {alarm:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_is_not_asked_for_ever_about_a_gap() {
    let stage = Stage::new();
    fire(&stage).await;
    hours_pass(&stage, 3);
    stage.store.swaps(&[Fault::LostUnknown; 1_000]);
    let before = stage.store.calls().len();
    assert!(matches!(fire(&stage).await, Report::StoreDown(_)));
    assert!(stage.store.calls().len() - before < 60, "{:?}", stage.store.calls());
}

/// What another puts under the alarm's name is none that this build can read.
async fn spoil_the_alarm(stage: &Stage) {
    let key = RecordKey::alarm(&Name::new("job").unwrap());
    let stands = stage.store.memory.load(std::slice::from_ref(&key)).await.unwrap().records.pop().unwrap();
    let expect = stands.map_or(Expect::Absent, |record| Expect::Version(record.version));
    let change = Change::Put { key, expect, value: b"{\"v\":99}".to_vec(), ttl: None };
    stage.store.memory.swap(&[change], Durability::Durable).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_alarm_that_cannot_be_read_does_not_keep_an_outcome_from_the_record() {
    let stage = Stage::new();
    let job = due(&stage);
    let spoilt = async {
        tokio::time::sleep(SHORT / 2).await;
        spoil_the_alarm(&stage).await;
    };
    let mut task = FakeTask::new(&stage, SHORT);
    task.ends = [TaskEnd::Exited(1)].into();
    let (report, ()) = tokio::join!(stage.run(1, &job, &mut task), spoilt);
    assert!(matches!(report, Report::Ran { .. }), "{report:?}");
    assert_eq!(stage.state(&job).await.unwrap().state.word(), "failed");
    let swaps = stage.store.calls().iter().filter(|call| call.starts_with("swap")).count();
    assert!(swaps <= 3, "{swaps}");
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_is_always_refused_gives_up() {
    let stage = Stage::new();
    let store = stage.store.clone();
    let mut task = FakeTask::new(&stage, SHORT).when_started(move || store.swaps(&[Fault::Refused; 100_000]));
    let report = stage.run(1, &due(&stage), &mut task).await;
    assert!(matches!(report, Report::Unrecorded { .. }), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_which_only_the_calendar_was_refused_is_recognised() {
    let stage = Stage::new();
    stage.store.one_by_one(true);
    let job = due(&stage);
    let given = json!({ "n": 1 }).as_object().unwrap().clone();
    let mut task = FakeTask::new(&stage, SHORT).deciding(PlanAsk { given, ..PlanAsk::default() });
    task.thinks = SHORT;
    let other = async {
        tokio::time::sleep(SHORT / 2).await;
        let scheduled = job.scheduled.as_ref().unwrap();
        stage.engine(2).watch(job.work.as_ref().unwrap(), &scheduled.occurrence).await.unwrap();
    };
    let (report, ()) = tokio::join!(stage.run(1, &job, &mut task), other);
    assert_eq!(ending(&report), Ending::Succeeded);
    assert_eq!((task.starts(), task.asked), (1, 1));
    assert_eq!(stage.state(&job).await.unwrap().attempts, 1);
}
