//! The engine on a store that fails as told and a clock that sleeps as told. No real time passes.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on should say where

mod in_order;
mod missed;
mod plans;
mod proof;
mod rows;
mod slots;
mod stage;
mod steps;
mod waiting;

use std::time::Duration;

use semel::clock::Clock;
use semel::core::entry::{Ending, State};
use semel::core::name::Name;
use semel::core::policy::{IfBusy, OnLost, Policy};
use semel::core::work::Work;
use semel::engine::lease::ScriptLease;
use semel::engine::{Caught, Event, Probed, Report, RunPlan, TaskEnd};
use stage::{FakeTask, Fault, SignalAt, SignalBehind, Stage, Told, plan};
use tokio::time::Instant;

const SHORT: Duration = Duration::from_secs(1);
/// Three leases long.
const LONG: Duration = Duration::from_secs(180);

fn with(policy: Policy) -> RunPlan {
    RunPlan { policy, ..plan("job") }
}

fn ending(report: &Report) -> Ending {
    match report {
        Report::Ran { ran, .. } | Report::LeaseLost { ran, .. } | Report::Unrecorded { ran, .. } => {
            ran.ending.clone()
        }
        other => panic!("it did not run: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_run_is_one_load_and_two_durable_swaps_and_a_skip_none() {
    let stage = Stage::new();
    let mut task = FakeTask::new(&stage, SHORT);
    let report = stage.run(1, &plan("job"), &mut task).await;
    assert_eq!(ending(&report), Ending::Succeeded);
    assert_eq!(stage.store.calls(), ["load", "swap Durable", "swap Durable"]);
    let mut again = FakeTask::new(&stage, SHORT);
    assert!(matches!(stage.run(2, &plan("job"), &mut again).await, Report::AlreadyDone(_)));
    assert_eq!(again.starts(), 0);
    assert_eq!(stage.store.calls()[3..], ["load", "swap Relaxed"]);
    let entry = stage.state(&plan("job")).await.unwrap();
    assert_eq!(entry.result, Some(serde_json::json!({ "made": true })));
}

#[tokio::test(start_paused = true)]
async fn a_long_run_keeps_its_lease_and_another_yields() {
    let stage = Stage::new();
    let mut task = FakeTask::new(&stage, LONG);
    let other = stage.engine(2);
    let job = plan("job");
    let both = async {
        tokio::time::sleep(Duration::from_secs(170)).await;
        let mut late = FakeTask::new(&stage, SHORT);
        let report = other.run(&job, &mut late, &mut semel::engine::Undisturbed, &mut |_| {}).await;
        (report, late.starts())
    };
    let (report, (second, starts)) = tokio::join!(stage.run(1, &job, &mut task), both);
    assert_eq!(ending(&report), Ending::Succeeded);
    assert!(matches!(second, Report::Yielded(busy) if busy.same_work));
    assert_eq!(starts, 0);
    let touches = stage.store.calls().iter().filter(|call| *call == "touch").count();
    assert!((8..=9).contains(&touches), "a heartbeat every third of the lease: {touches}");
}

#[tokio::test(start_paused = true)]
async fn two_lost_heartbeats_in_a_row_are_survived() {
    let stage = Stage::new();
    // retried every two seconds: all tries of two heartbeats fail
    stage.store.touches(&[Fault::Down; 11]);
    let mut task = FakeTask::new(&stage, LONG);
    let report = stage.run(1, &plan("job"), &mut task).await;
    assert_eq!(ending(&report), Ending::Succeeded);
    assert_eq!(task.stopped(), None);
    let Report::Ran { entry: Some(entry), .. } = report else { panic!("{report:?}") };
    let attempt = entry.last_attempt().unwrap();
    let (heartbeat_ms, stop_by_ms) = (Policy::default().heartbeat_ms(), Policy::default().stop_by_ms());
    assert_eq!(attempt.missed_renewals, 11);
    assert!((heartbeat_ms..stop_by_ms).contains(&attempt.unrenewed_ms), "{}", attempt.unrenewed_ms);
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_renewals_all_came_says_nothing_of_them() {
    let stage = Stage::new();
    let report = stage.run(1, &plan("job"), &mut FakeTask::new(&stage, LONG)).await;
    let Report::Ran { entry: Some(entry), .. } = report else { panic!("{report:?}") };
    let record = serde_json::to_value(entry.last_attempt().unwrap()).unwrap();
    assert!(record.get("missed_renewals").is_none() && record.get("unrenewed_ms").is_none(), "{record}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stays_down_stops_the_work_inside_the_lease() {
    let stage = Stage::new();
    let store = stage.store.clone();
    let mut task = FakeTask::new(&stage, LONG).when_started(move || store.all_down(true));
    let began = stage.clock.now();
    let report = stage.run(1, &plan("job"), &mut task).await;
    assert!(matches!(report, Report::LeaseLost { .. }), "{report:?}");
    let (at, grace) = task.stopped().unwrap();
    let policy = Policy::default();
    assert!(
        began.until(at) >= Duration::from_millis(2 * policy.heartbeat_ms()),
        "not before two heartbeats were lost"
    );
    let last_kill = began.until(at) + grace;
    assert!(last_kill <= Duration::from_millis(policy.trust_ms()), "the last KILL at {last_kill:?}");
    assert_eq!(grace, Duration::from_millis(policy.kill_after_ms));
    assert_eq!(task.trusted_until.unwrap(), began.plus_ms(policy.trust_ms()), "the keeper knows the end too");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_has_taken_stops_the_work_at_once() {
    let stage = Stage::new();
    let job = plan("job");
    let mut task = FakeTask::new(&stage, LONG);
    let thief = async {
        tokio::time::sleep(SHORT).await;
        // a person frees the resource by hand, and somebody else has it
        let engine = stage.engine(3);
        let seen = engine.lease_of(&job.resources[0]).await.unwrap().unwrap();
        engine.release(&job.resources[0], seen.record.value.grant.token).await.unwrap().unwrap();
        engine.acquire(&job.resources, &job.policy, &engine.me, "thief").await.unwrap()
    };
    let began = stage.clock.now();
    let (report, stolen) = tokio::join!(stage.run(1, &job, &mut task), thief);
    assert!(matches!(stolen, ScriptLease::Granted { .. }));
    assert!(matches!(&report, Report::LeaseLost { why, .. } if why.contains("taken over")), "{report:?}");
    let (at, grace) = task.stopped().unwrap();
    assert_eq!(grace, Duration::ZERO, "there is no lease left for a grace to fall into");
    assert!(
        began.until(at) <= Duration::from_millis(job.policy.heartbeat_ms() + 100),
        "at the first heartbeat"
    );
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_past_its_lease_stops_the_work_before_anything_else() {
    let stage = Stage::new();
    let clock = stage.clock.clone();
    let mut task = FakeTask::new(&stage, LONG);
    let job = plan("job");
    let sleeper = async {
        tokio::time::sleep(SHORT).await;
        clock.suspend(Duration::from_secs(3_600));
        Instant::now()
    };
    let (report, woke) = tokio::join!(stage.run(1, &job, &mut task), sleeper);
    assert!(matches!(report, Report::LeaseLost { .. }), "{report:?}");
    assert_eq!(task.stopped().unwrap().1, Duration::ZERO);
    assert!(woke.elapsed() < Duration::from_millis(200), "found out on waking, not at the next heartbeat");
    assert!(!stage.store.calls().contains(&"touch".to_owned()), "nothing was renewed first");
}

/// Between the claim and the start there is no watch yet.
#[tokio::test(start_paused = true)]
async fn a_machine_that_slept_past_its_claim_does_not_begin() {
    let stage = Stage::new();
    let (clock, job) = (stage.clock.clone(), plan("job"));
    let mut task = FakeTask::new(&stage, SHORT);
    let mut tell = |event: Event<'_>| {
        if matches!(event, Event::Claimed { .. }) {
            clock.suspend(Duration::from_secs(3_600));
        }
    };
    let report = stage.engine(1).run(&job, &mut task, &mut semel::engine::Undisturbed, &mut tell).await;
    assert!(matches!(report, Report::LeaseLost { .. }), "{report:?}");
    assert_eq!(task.starts(), 0);
    let mut next = FakeTask::new(&stage, SHORT);
    assert_eq!(ending(&stage.run(2, &job, &mut next).await), Ending::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_was_lost_runs_once_under_one_grant() {
    for fault in [Fault::AppliedUnknown, Fault::LostUnknown] {
        let stage = Stage::new();
        stage.store.swaps(&[fault]);
        let mut task = FakeTask::new(&stage, SHORT);
        let report = stage.run(1, &plan("job"), &mut task).await;
        assert_eq!(ending(&report), Ending::Succeeded, "{fault:?}");
        assert_eq!(task.told(), [Told::Start { attempt: 1, token: 1 }], "{fault:?}");
        let entry = stage.state(&plan("job")).await.unwrap();
        assert_eq!((entry.attempts, entry.state.word()), (1, "done"), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_trust_in_a_claim_that_landed_late_counts_from_the_first_request() {
    let stage = Stage::new();
    stage.store.swaps(&[Fault::LateUnknown]);
    let mut task = FakeTask::new(&stage, SHORT);
    let began = stage.clock.now();
    let report = stage.run(1, &plan("job"), &mut task).await;
    assert_eq!(ending(&report), Ending::Succeeded);
    assert_eq!(task.told(), [Told::Start { attempt: 1, token: 1 }]);
    assert_eq!(task.trusted_until.unwrap(), began.plus_ms(Policy::default().trust_ms()));
}

#[tokio::test(start_paused = true)]
async fn a_probe_is_not_forgotten_when_the_reply_of_its_claim_was_lost() {
    let stage = Stage::new();
    let job = with(Policy { on_lost: OnLost::Probe, ..Policy::default() });
    lose_an_attempt(&stage, &job).await;
    stage.store.swaps(&[Fault::AppliedUnknown]);
    let mut task = FakeTask::new(&stage, SHORT);
    task.probe = Probed::Happened;
    let report = stage.run(2, &job, &mut task).await;
    assert_eq!(ending(&report), Ending::ProbedDone);
    assert_eq!(task.told(), [Told::Probe]);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_whose_reply_was_lost_is_on_record_once() {
    for fault in [Fault::AppliedUnknown, Fault::LostUnknown, Fault::Down] {
        let stage = Stage::new();
        stage.store.swaps(&[Fault::None, fault, Fault::Down]);
        let mut task = FakeTask::new(&stage, SHORT);
        let report = stage.run(1, &plan("job"), &mut task).await;
        assert_eq!(ending(&report), Ending::Succeeded, "{fault:?}");
        assert!(matches!(report, Report::Ran { .. }), "{fault:?}: {report:?}");
        let entry = stage.state(&plan("job")).await.unwrap();
        assert_eq!((entry.state.word(), entry.log.len()), ("done", 1));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_recorded_is_said_and_the_attempt_is_lost() {
    let stage = Stage::new();
    let store = stage.store.clone();
    let mut task = FakeTask::new(&stage, SHORT).when_started(move || store.all_down(true));
    let report = stage.run(1, &plan("job"), &mut task).await;
    assert!(matches!(report, Report::Unrecorded { .. }), "{report:?}");
    stage.store.all_down(false);
    stage.clock.suspend(Duration::from_secs(60));
    let mut next = FakeTask::new(&stage, SHORT);
    assert_eq!(ending(&stage.run(2, &plan("job"), &mut next).await), Ending::Succeeded);
    assert_eq!(next.told(), [Told::Start { attempt: 2, token: 2 }]);
    let entry = stage.state(&plan("job")).await.unwrap();
    assert_eq!(entry.log[0].ending, Ending::Vanished);
}

#[tokio::test(start_paused = true)]
async fn nothing_runs_on_a_store_that_is_down() {
    let stage = Stage::new();
    stage.store.all_down(true);
    let mut task = FakeTask::new(&stage, SHORT);
    assert!(matches!(stage.run(1, &plan("job"), &mut task).await, Report::StoreDown(_)));
    assert_eq!(task.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_a_write_is_not_asked_for_ever() {
    let stage = Stage::new();
    stage.store.swaps(&[Fault::LostUnknown; 1_000]);
    let mut task = FakeTask::new(&stage, SHORT);
    assert!(matches!(stage.run(1, &plan("job"), &mut task).await, Report::StoreDown(_)));
    assert_eq!(task.starts(), 0);
    assert!(stage.store.calls().len() < 10, "{:?}", stage.store.calls());
    let job = plan("job");
    let engine = stage.engine(1);
    assert!(engine.acquire(&job.resources, &job.policy, &engine.me, "script").await.is_err());
}

/// An attempt that vanished in the middle, its lease lapsed.
async fn lose_an_attempt(stage: &Stage, job: &RunPlan) {
    lose_an_attempt_of(stage, job, FakeTask::new(stage, LONG)).await;
}

async fn lose_an_attempt_of(stage: &Stage, job: &RunPlan, mut task: FakeTask) -> FakeTask {
    task.takes = LONG;
    // dropped in the middle: nothing is settled, nothing is released
    let _ = tokio::time::timeout(SHORT, stage.run(1, job, &mut task)).await;
    stage.clock.suspend(Duration::from_secs(120));
    task
}

#[tokio::test(start_paused = true)]
async fn a_lost_attempt_is_retried_held_or_probed_as_told() {
    let cases = [
        (OnLost::Retry, Probed::Happened, "done", 1),
        (OnLost::Hold, Probed::Happened, "in_doubt", 0),
        (OnLost::Probe, Probed::Happened, "done", 0),
        (OnLost::Probe, Probed::DidNot, "done", 1),
        (OnLost::Probe, Probed::Unknown("7".into()), "in_doubt", 0),
    ];
    for (on_lost, probe, state, starts) in cases {
        let stage = Stage::new();
        let job = with(Policy { on_lost, ..Policy::default() });
        lose_an_attempt(&stage, &job).await;
        let mut task = FakeTask::new(&stage, SHORT);
        task.probe = probe.clone();
        stage.run(2, &job, &mut task).await;
        let entry = stage.state(&job).await.unwrap();
        assert_eq!((entry.state.word(), task.starts()), (state, starts), "{on_lost:?} {probe:?}");
        let freed = stage.engine(3).lease_of(&job.resources[0]).await.unwrap().unwrap();
        assert!(!freed.is_held(), "{on_lost:?} {probe:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_zombies_outcome_has_no_effect() {
    let stage = Stage::new();
    let job = plan("job");
    let clock = stage.clock.clone();
    let mut zombie = FakeTask::new(&stage, SHORT);
    zombie.ends = [TaskEnd::Exited(9)].into();
    // the zombie's process stalls while its command runs: its own watch goes on without it
    let mut late = FakeTask::new(&stage, SHORT);
    let second = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        clock.suspend(Duration::from_secs(120));
        stage.run(2, &job, &mut late).await
    };
    let (first, second) = tokio::join!(stage.run(1, &job, &mut zombie), second);
    assert!(matches!(first, Report::LeaseLost { .. }), "{first:?}");
    assert_eq!(ending(&second), Ending::Succeeded);
    let entry = stage.state(&job).await.unwrap();
    assert_eq!((entry.state.word(), entry.attempts), ("done", 2));
}

#[tokio::test(start_paused = true)]
async fn failed_tries_are_repeated_inside_one_claim_and_counted() {
    let stage = Stage::new();
    let job = with(Policy { retries: 2, max_failures: 5, ..Policy::default() });
    let mut task = FakeTask::new(&stage, SHORT);
    task.ends = [TaskEnd::Exited(1), TaskEnd::Exited(1), TaskEnd::Exited(0)].into();
    assert_eq!(ending(&stage.run(1, &job, &mut task).await), Ending::Succeeded);
    let attempts: Vec<Told> = (1..=3).map(|attempt| Told::Start { attempt, token: 1 }).collect();
    assert_eq!(task.told(), attempts);
    let entry = stage.state(&job).await.unwrap();
    assert_eq!((entry.attempts, entry.failures), (3, 0));

    let job =
        RunPlan { policy: Policy { retries: 9, max_failures: 3, ..Policy::default() }, ..plan("poison") };
    let mut task = FakeTask::new(&stage, SHORT);
    task.ends = [TaskEnd::Exited(1); 10].into();
    let report = stage.run(1, &job, &mut task).await;
    assert!(matches!(report, Report::NeedsPerson { ran: Some(_), .. }), "{report:?}");
    assert_eq!(task.starts(), 3, "the cap also ends the tries inside one invocation");
    assert_eq!(stage.state(&job).await.unwrap().state, State::Quarantined);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_stops_the_work_and_counts_as_a_failure() {
    let stage = Stage::new();
    let job = with(Policy { timeout_ms: Some(5_000), ..Policy::default() });
    let mut task = FakeTask::new(&stage, LONG);
    assert_eq!(ending(&stage.run(1, &job, &mut task).await), Ending::TimedOut);
    let entry = stage.state(&job).await.unwrap();
    assert_eq!((entry.failures, entry.state), (1, State::Failed { torn: true }));
}

#[tokio::test(start_paused = true)]
async fn an_interruption_is_forwarded_and_does_not_count() {
    let stage = Stage::new();
    let job = plan("job");
    let mut task = FakeTask::new(&stage, Duration::from_secs(3));
    task.ends = [TaskEnd::Killed(15)].into();
    let caught = Caught { signal: 15, from_terminal: false, ends: true };
    let mut signals = SignalAt(Some((Instant::now() + SHORT, caught)));
    let report = stage.engine(1).run(&job, &mut task, &mut signals, &mut |_| {}).await;
    assert_eq!(ending(&report), Ending::Interrupted { signal: 15 });
    assert!(task.told().contains(&Told::Signal(15)));
    assert_eq!(task.stopped(), None, "it ended by itself within the grace");
    let entry = stage.state(&job).await.unwrap();
    assert_eq!((entry.failures, entry.state), (0, State::Open { torn: true }));
}

#[tokio::test(start_paused = true)]
async fn a_ctrl_c_that_ended_the_command_before_it_was_seen_here_does_not_count() {
    let stage = Stage::new();
    let job = plan("job");
    let mut task = FakeTask::new(&stage, Duration::from_secs(3));
    task.ends = [TaskEnd::Killed(2)].into();
    let caught = Caught { signal: 2, from_terminal: true, ends: false };
    let at = Instant::now() + Duration::from_secs(3);
    let mut signals = SignalBehind { at, caught, looked: false };
    let report = stage.engine(1).run(&job, &mut task, &mut signals, &mut |_| {}).await;
    assert_eq!(ending(&report), Ending::Interrupted { signal: 2 });
    assert_eq!(stage.state(&job).await.unwrap().failures, 0);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_ignores_term_is_killed_after_the_grace() {
    let stage = Stage::new();
    let mut task = FakeTask::new(&stage, LONG);
    let caught = Caught { signal: 15, from_terminal: false, ends: true };
    let mut signals = SignalAt(Some((Instant::now() + SHORT, caught)));
    let began = stage.clock.now();
    let report = stage.engine(1).run(&plan("job"), &mut task, &mut signals, &mut |_| {}).await;
    assert_eq!(ending(&report), Ending::Interrupted { signal: 15 });
    let (at, grace) = task.stopped().unwrap();
    assert_eq!((began.until(at), grace), (SHORT + Duration::from_secs(10), Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_lease_when_it_is_released_or_gives_up_in_time() {
    let stage = Stage::new();
    let first = plan("job");
    let policy = Policy { if_busy: IfBusy::Wait { for_ms: 20_000 }, ..Policy::default() };
    let other = Work::once(Name::new("other").unwrap());
    let second = RunPlan { policy, work: Some(other), ..plan("job") };
    let mut holder = FakeTask::new(&stage, Duration::from_secs(10));
    let mut waiter = FakeTask::new(&stage, SHORT);
    let waiting = async {
        tokio::time::sleep(SHORT).await;
        stage.run(2, &second, &mut waiter).await
    };
    let (_, report) = tokio::join!(stage.run(1, &first, &mut holder), waiting);
    assert_eq!(ending(&report), Ending::Succeeded);

    let mut holder = FakeTask::new(&stage, Duration::from_secs(50));
    let mut waiter = FakeTask::new(&stage, SHORT);
    let third = RunPlan { work: Some(Work::once(Name::new("third").unwrap())), ..plan("job") };
    let fourth = RunPlan { work: Some(Work::once(Name::new("fourth").unwrap())), ..second.clone() };
    let waiting = async {
        tokio::time::sleep(SHORT).await;
        let began = Instant::now();
        let report = stage.run(2, &fourth, &mut waiter).await;
        (report, began.elapsed())
    };
    let (_, (report, waited)) = tokio::join!(stage.run(1, &third, &mut holder), waiting);
    assert!(matches!(report, Report::Yielded(_)), "{report:?}");
    assert!(waited >= Duration::from_secs(20) && waited < Duration::from_secs(21), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_a_while_ends_no_wait() {
    let stage = Stage::new();
    let policy = Policy { if_busy: IfBusy::Wait { for_ms: 60_000 }, ..Policy::default() };
    let waiting = |name: &str| RunPlan {
        policy: policy.clone(),
        work: Some(Work::once(Name::new(name).unwrap())),
        ..plan("job")
    };
    let mut holder = FakeTask::new(&stage, Duration::from_secs(20));
    let mut waiter = FakeTask::new(&stage, SHORT);
    let first = plan("job");
    let (second, third, fourth) = (waiting("second"), waiting("third"), waiting("fourth"));
    let late = async {
        tokio::time::sleep(SHORT).await;
        stage.run(2, &second, &mut waiter).await
    };
    let away = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        stage.store.all_down(true);
        tokio::time::sleep(Duration::from_secs(10)).await;
        stage.store.all_down(false);
    };
    let (held, report, ()) = tokio::join!(stage.run(1, &first, &mut holder), late, away);
    assert_eq!((ending(&held), ending(&report)), (Ending::Succeeded, Ending::Succeeded));

    // one that stays away is told when the wait is over, one that is away at the start at once
    let mut holder = FakeTask::new(&stage, Duration::from_secs(5));
    let mut waiter = FakeTask::new(&stage, SHORT);
    let late = async {
        tokio::time::sleep(SHORT).await;
        let began = Instant::now();
        (stage.run(2, &fourth, &mut waiter).await, began.elapsed())
    };
    let away = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        stage.store.all_down(true);
    };
    let (_, (report, waited), ()) = tokio::join!(stage.run(1, &third, &mut holder), late, away);
    assert!(matches!(report, Report::StoreDown(_)), "{report:?}");
    assert!(waited >= Duration::from_secs(60) && waited < Duration::from_secs(62), "{waited:?}");
    let began = Instant::now();
    assert!(matches!(stage.run(2, &fourth, &mut waiter).await, Report::StoreDown(_)));
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_work_is_not_begun_after_its_time_but_found_done() {
    let stage = Stage::new();
    let in_time = |ms| RunPlan { start_within_ms: Some(ms), ..plan("job") };
    let mut task = FakeTask::new(&stage, SHORT);
    assert!(matches!(stage.run(1, &in_time(0), &mut task).await, Report::TooLate));
    assert_eq!((task.starts(), stage.state(&plan("job")).await), (0, None), "nothing is on record");
    assert_eq!(ending(&stage.run(1, &in_time(1), &mut task).await), Ending::Succeeded);
    assert!(matches!(stage.run(1, &in_time(0), &mut task).await, Report::AlreadyDone(_)));
    assert_eq!(task.starts(), 1);

    // its time goes by while it waits for another's lease
    let policy = Policy { if_busy: IfBusy::Wait { for_ms: 60_000 }, ..Policy::default() };
    let other = |name: &str| Some(Work::once(Name::new(name).unwrap()));
    let holding = RunPlan { work: other("holding"), ..plan("job") };
    let waiting = RunPlan { work: other("waiting"), policy, ..in_time(5_000) };
    let mut holder = FakeTask::new(&stage, Duration::from_secs(10));
    let mut waiter = FakeTask::new(&stage, SHORT);
    let late = async {
        tokio::time::sleep(SHORT).await;
        let began = Instant::now();
        (stage.run(2, &waiting, &mut waiter).await, began.elapsed())
    };
    let (_, (report, waited)) = tokio::join!(stage.run(1, &holding, &mut holder), late);
    assert!(matches!(report, Report::TooLate), "{report:?}");
    assert!(waited < Duration::from_secs(6), "it waits for nothing any more: {waited:?}");
    assert_eq!(waiter.starts(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_rests_after_a_quick_run_and_a_lock_delay_waits_after_a_lapse() {
    let stage = Stage::new();
    let resting = with(Policy { hold_at_least_ms: 30_000, ..Policy::default() });
    let mut task = FakeTask::new(&stage, SHORT);
    stage.run(1, &resting, &mut task).await;
    let other = RunPlan { work: Some(Work::once(Name::new("other").unwrap())), ..plan("job") };
    let mut early = FakeTask::new(&stage, SHORT);
    assert!(matches!(stage.run(2, &other, &mut early).await, Report::Yielded(_)));
    stage.clock.suspend(Duration::from_secs(30));
    assert_eq!(ending(&stage.run(2, &other, &mut early).await), Ending::Succeeded);

    let job = RunPlan { policy: Policy { lock_delay_ms: 600_000, ..Policy::default() }, ..plan("delayed") };
    lose_an_attempt(&stage, &job).await;
    let mut task = FakeTask::new(&stage, SHORT);
    let report = stage.run(2, &job, &mut task).await;
    assert!(matches!(&report, Report::Yielded(busy) if busy.held.draining), "{report:?}");
    stage.clock.suspend(Duration::from_secs(600));
    assert_eq!(ending(&stage.run(2, &job, &mut task).await), Ending::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_a_ledger_runs_every_time_and_is_released() {
    let stage = Stage::new();
    let hold = RunPlan { work: None, what: "hold".into(), ..plan("job") };
    for token in 1..=2 {
        let mut task = FakeTask::new(&stage, SHORT);
        assert_eq!(ending(&stage.run(1, &hold, &mut task).await), Ending::Succeeded);
        assert_eq!(task.told(), [Told::Start { attempt: 1, token }]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_verdict_on_what_failed_does_not_reopen_what_was_done_in_the_meantime() {
    use semel::engine::verdict::{Judged, Saying};
    use semel_core::entry::Say;
    let stage = Stage::new();
    let job = plan("job");
    let mut task = FakeTask::new(&stage, SHORT);
    task.ends = [TaskEnd::Exited(1)].into();
    stage.run(1, &job, &mut task).await;
    // listed as failed; then another does it
    stage.run(2, &job, &mut FakeTask::new(&stage, SHORT)).await;
    let saying = Saying { said: Say::Retry, by: "a person".into(), because: "so".into(), result: None };
    let work = job.work.as_ref().unwrap();
    let engine = stage.engine(3);
    let is_failed = |state: &State| matches!(state, State::Failed { .. });
    let judged = engine.judge_if(work, &saying, &is_failed).await.unwrap();
    assert!(matches!(judged, Judged::Already(_)), "{judged:?}");
    assert!(matches!(stage.state(&job).await.unwrap().state, State::Done { .. }));
    // control: said without that condition, it is
    engine.judge(work, &saying).await.unwrap();
    assert!(matches!(stage.state(&job).await.unwrap().state, State::Open { .. }));
}
