//! Runs on a store that makes the changes of a swap one after another, and may stop between any two.

use std::time::Duration;

use semel::core::entry::{DoneBy, State};

use super::stage::{FakeTask, Fault, Stage, Told, plan};

#[tokio::test(start_paused = true)]
async fn whatever_part_of_a_claim_or_an_outcome_was_made_it_runs_once_and_the_lease_is_free() {
    for (of_claim, of_outcome) in (0..=2).flat_map(|a| (0..=2).map(move |b| (a, b))) {
        let stage = Stage::new();
        stage.store.one_by_one(true);
        // the second write is the claim again, unless all of the first was made
        let outcome = Fault::HalfUnknown(of_outcome);
        let faults = match of_claim {
            2 => vec![Fault::HalfUnknown(of_claim), outcome],
            _ => vec![Fault::HalfUnknown(of_claim), Fault::None, outcome],
        };
        stage.store.swaps(&faults);
        let mut task = FakeTask::new(&stage, Duration::from_secs(1));
        let job = plan("job");
        stage.run(1, &job, &mut task).await;
        let case = format!("{of_claim} of the claim, {of_outcome} of the outcome");
        let starts = task.log.iter().filter(|(_, told)| matches!(told, Told::Start { .. })).count();
        assert_eq!(starts, 1, "{case}");
        let entry = stage.state(&job).await.unwrap();
        assert_eq!((entry.state, entry.attempts), (State::Done { by: DoneBy::Run }, 1), "{case}");
        let lease = stage.engine(2).lease_of(&job.resources[0]).await.unwrap().unwrap();
        assert_eq!(lease.record.value.hold, None, "{case}: the lease is left held");
    }
}
