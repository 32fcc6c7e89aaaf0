//! Jobs with a schedule: the slot is the one that fell due last, by the engine's clock.

use std::cell::Cell;
use std::time::Duration;

use semel::{Job, JobBuilder, JobError, Outcome};

use super::{Any, Stage, semel};

const HOUR: Duration = Duration::from_secs(3600);

/// The stage's clock begins on 2025-06-15 at 15:23:20 UTC, in Berlin 17:23:20.
fn daily() -> JobBuilder {
    Job::named("publish").every("day").tz("Europe/Berlin")
}

#[tokio::test(start_paused = true)]
async fn once_per_slot_and_the_next_day_is_another() {
    let (stage, ran) = (Stage::new(), Cell::new(0));
    let job = daily().with("series", "landing").build().unwrap();
    assert_eq!(job.work(), None, "which one, only the clock says");
    let mut slots = Vec::new();
    for hours in [0, 0, 6, 1, 23] {
        stage.clock.suspend(HOUR * hours);
        let semel = semel(&stage, 1);
        let due = semel.due(&job).unwrap();
        let outcome = semel
            .run(&job, async |run| {
                ran.set(ran.get() + 1);
                Ok::<_, Any>(run.work().map(ToString::to_string))
            })
            .await;
        assert!(outcome.is_done());
        assert_eq!(outcome.value().flatten(), Some(due.to_string()));
        slots.push(due.to_string());
    }
    let (first, second) = ("publish@2025-06-15?series=landing", "publish@2025-06-16?series=landing");
    // 17 h, 17 h, 23 h, midnight, 23 h of the next day
    assert_eq!(slots, [first, first, first, second, second]);
    assert_eq!(ran.get(), 2);
}

/// As the command line has it: the key of a slot is the same work, whoever computes it.
#[tokio::test(start_paused = true)]
async fn a_slot_named_by_hand_is_the_same_work() {
    let stage = Stage::new();
    let semel = semel(&stage, 1);
    let by_hand = Job::named("publish").slot("2025-06-15").build().unwrap();
    assert!(semel.run(&by_hand, async |_| Ok::<_, Any>(7)).await.is_done());
    let outcome = semel.run(&daily().build().unwrap(), async |_| Ok::<_, Any>(8)).await;
    assert!(matches!(outcome, Outcome::AlreadyDone(Some(7))));
}

#[tokio::test(start_paused = true)]
async fn what_is_too_late_is_not_begun_and_what_is_done_is_found_done() {
    let stage = Stage::new();
    let semel = semel(&stage, 1);
    let hourly = |late: u64| {
        let job = Job::named("sync").every("hour").max_late(Duration::from_secs(late));
        job.build().unwrap()
    };
    // it is 15:23:20, so the slot of 15:00 is 1400 seconds old
    let outcome = semel.run(&hourly(1_300), async |_| Ok::<_, Any>(())).await;
    let Outcome::TooLate { slot, due_ms } = outcome else { panic!("{outcome:?}") };
    assert_eq!((slot.as_str(), due_ms), ("2025-06-15T15:00:00Z", 1_749_999_600_000));
    assert!(semel.run(&hourly(1_500), async |_| Ok::<_, Any>(())).await.is_done());
    let again = semel.run(&hourly(1_300), async |_| Ok::<_, Any>(())).await;
    assert!(matches!(again, Outcome::AlreadyDone(_)));
}

#[tokio::test(start_paused = true)]
async fn the_time_that_the_scheduler_had_in_mind_goes_before_now() {
    let stage = Stage::new();
    let semel = semel(&stage, 1);
    let hourly = |time: &str| Job::named("sync").every("hour").scheduled_for(time).build().unwrap();
    let late = hourly("2025-06-15T13:00:00Z");
    assert_eq!(semel.due(&late).unwrap().to_string(), "sync@2025-06-15T13:00:00Z");
    assert!(semel.run(&late, async |_| Ok::<_, Any>(())).await.is_done());
    let ahead = hourly("2025-06-15T17:00:00Z");
    assert!(matches!(semel.due(&ahead), Err(JobError::NotDue(_))));
    let outcome = semel.run(&ahead, async |_| -> Result<(), Any> { panic!("it is not due") }).await;
    let Outcome::NotDue(why) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains("lies in the future"), "{why}");
}

#[test]
fn what_is_no_schedule_is_no_job() {
    let month = || Job::named("j").every("month").tz("UTC");
    let forgetful = |days: u64| month().policy(|policy| policy.remember_ms = Some(days * 86_400_000));
    let cases: &[(JobBuilder, &str)] = &[
        (Job::named("j").every(""), "every \"\" is empty: write day"),
        (Job::named("j").every("daily"), "every \"daily\" is no schedule: write day"),
        (Job::named("j").every("7m"), "use 6m or 8m"),
        (Job::named("j").every("0 2 31 2 *"), "never comes"),
        (Job::named("j").every("day").tz("Mars/Olympus"), "tz \"Mars/Olympus\" is no time zone"),
        (Job::named("j").every("15m").tz(""), "tz \"\" is no time zone"),
        (Job::named("j").every("15m").scheduled_for("noon"), "scheduled_for \"noon\" is no scheduled time"),
        (Job::named("j").once().tz("UTC"), "tz goes with a schedule: say every too"),
        (Job::named("j").once().max_late(HOUR), "max_late goes with a schedule"),
        (Job::named("j").once().scheduled_for("x"), "scheduled_for goes with a schedule"),
        (month().slot("x"), "every and slot both say what is done once"),
        (month().key("x"), "every and key both say what is done once"),
        (month().once(), "once goes alone"),
        (month().always(), "always goes alone"),
        (forgetful(7), "--remember 7d is shorter"),
        (Job::named("j"), "Say every (once per day, hour or cron tick)"),
    ];
    for (job, why) in cases {
        let said = job.clone().build().unwrap_err().to_string();
        assert!(said.contains(why), "{why:?} is not in {said:?}");
    }
    assert!(forgetful(32).build().is_ok());
    assert!(month().with("a b", 1).build().is_err(), "what is wrong with a parameter is found at once");
}
