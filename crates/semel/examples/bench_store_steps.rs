//! `bench_store_steps URL STEPS [TASKS]`: durable steps, one after the other, inside one run on any store, or inside each of
//! so many runs at once, all on one store in this process. Prints how many a second in all.
//!
//! Called by `cargo xtask bench flows` and `bench stores`. A step is two durable commits: its intent before the effect, its
//! outcome after.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // a bench that cannot go on should say where

use std::sync::Arc;
use std::time::Instant;

use semel::{Job, Outcome, Run, Semel};
use tokio::sync::Barrier;

type Any = Box<dyn std::error::Error + Send + Sync>;

async fn steps(run: &Run, kind: &str, many: usize) -> Result<(), Any> {
    for n in 0..many {
        run.step(&format!("{kind}{n}"), async || Ok::<_, std::io::Error>(n)).await?;
    }
    Ok(())
}

/// A run of its own resource, from when all are ready: how many seconds its steps took.
async fn run(semel: Semel, task: usize, many: usize, all: Arc<Barrier>) -> Outcome<f64, Any> {
    let job = Job::named(&format!("bench-{task}")).key(&std::process::id().to_string()).build().unwrap();
    let outcome = semel.run(&job, async |run: Run| {
        steps(&run, "warm", 20).await?;
        all.wait().await;
        let begun = Instant::now();
        steps(&run, "step", many).await?;
        Ok(begun.elapsed().as_secs_f64())
    });
    outcome.await
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().collect();
    let many: usize = words[2].parse().unwrap();
    let tasks: usize = words.get(3).map_or(1, |word| word.parse().unwrap());
    let semel = Semel::open(&words[1]).unwrap();
    let (each, all) = (many.div_ceil(tasks), Arc::new(Barrier::new(tasks)));
    let started: Vec<_> =
        (0..tasks).map(|task| tokio::spawn(run(semel.clone(), task, each, Arc::clone(&all)))).collect();
    let mut longest: f64 = 0.0;
    for task in started {
        match task.await.unwrap() {
            Outcome::Done(took) => longest = longest.max(took),
            other => return println!("{other:?}"),
        }
    }
    println!("{}", (each * tasks) as f64 / longest);
}
