//! What a program decides once.

use std::cell::RefCell;

use semel::core::plan::seed;
use semel::{Job, JobError, Outcome, Run};

use crate::stage::Stage;
use crate::{Any, no, semel};

fn publish(slot: &str, topics: &[&str]) -> Job {
    Job::named("publish").slot(slot).choose("topic", topics).recent("slugs", 2, "/slug").build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_given_the_same_whatever_the_program_offers_by_now() {
    let stage = Stage::new();
    let slug = |slug: &'static str| {
        move |_: Run| std::future::ready(Ok::<_, Any>(serde_json::json!({ "slug": slug })))
    };
    assert!(semel(&stage, 1).run(&publish("monday", &["a"]), slug("one")).await.is_done());
    let seen = RefCell::new(Vec::new());
    let note = |run: &Run| seen.borrow_mut().push((run.plan().cloned().unwrap(), run.seed().unwrap()));
    let first = publish("tuesday", &["a", "b", "c"]);
    let failed = semel(&stage, 1)
        .run(&first, async |run| -> Result<(), _> {
            note(&run);
            Err(no())
        })
        .await;
    assert!(matches!(failed, Outcome::Failed(_)));
    assert!(semel(&stage, 2).run(&publish("wednesday", &["a"]), slug("two")).await.is_done());
    let done = semel(&stage, 2)
        .run(&publish("tuesday", &["x"]), async |run| {
            note(&run);
            Ok::<_, Any>(())
        })
        .await;
    assert!(done.is_done());
    let seen = seen.into_inner();
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].0.get("slugs"), Some(&serde_json::json!(["one"])));
    assert_eq!(seen[0].1, seed(&first.work().unwrap().key()));
}

#[tokio::test(start_paused = true)]
async fn a_job_without_choices_has_a_seed_and_no_plan() {
    let stage = Stage::new();
    let job = Job::named("job").once().build().unwrap();
    let outcome =
        semel(&stage, 1).run(&job, async |run| Ok::<_, Any>((run.plan().is_none(), run.seed()))).await;
    assert_eq!(outcome.value(), Some((true, Some(seed(&job.work().unwrap().key())))));
}

#[test]
fn what_makes_no_plan_makes_no_job() {
    let job = || Job::named("job").once();
    for wrong in [
        job().choose("topic", &[]),
        job().choose("to pic", &["a"]),
        job().choose("topic", &["a", "a"]),
        job().choose("seed", &["a"]),
        job().choose("topic", &["a"]).recent("topic", 1, "/slug"),
        job().recent("slugs", 0, "/slug"),
    ] {
        assert!(matches!(wrong.build(), Err(JobError::Plan(_))));
    }
    assert!(matches!(job().recent("slugs", 1, "slug").build(), Err(JobError::Json { .. })));
    assert!(matches!(
        Job::named("job").always().choose("topic", &["a"]).build(),
        Err(JobError::NothingToPinTo)
    ));
}
