//! `bench_growth_steps DIR STEPS…`: the cost of a step by how many there were before it in the run.
//!
//! Called by `cargo xtask bench growth`. Of each run the last tenth of its steps is timed, each in turns with the only
//! step of a fresh run in the same ledger.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // a bench that cannot go on should say where

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use semel::{Job, Run, Semel};
use semel_testkit::{Ratio, median};

type Any = Box<dyn std::error::Error + Send + Sync>;

/// So many of each are timed at least, in as many runs as that takes.
const LEAST: usize = 200;

/// Seconds of steps late in a long run, and of the only ones of their runs.
#[derive(Default)]
struct Times {
    late: Vec<f64>,
    only: Vec<f64>,
}

fn main() {
    let mut words = std::env::args().skip(1);
    let dir = words.next().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let semel = Semel::sqlite(Path::new(&dir).join("growth-steps.db")).unwrap();
    for word in words {
        let steps: usize = word.parse().unwrap();
        let times = runtime.block_on(measure(&semel, steps));
        let p50 = median(&times.late) * 1e3;
        println!(
            "a step late among {steps} of a run / the only one: p50 {p50:.3} ms, {}",
            Ratio::new(&times.late, &times.only)
        );
    }
}

async fn measure(semel: &Semel, steps: usize) -> Times {
    let timed = (steps / 10).max(1);
    let mut times = Times::default();
    for nth in 0..LEAST.div_ceil(timed) {
        let job = Job::named("long").key(&format!("{steps}-{nth}")).build().unwrap();
        let one = async |run: Run| long(semel, &run, steps, timed).await;
        let more = semel.run(&job, one).await.value().unwrap();
        times.late.extend(more.0);
        times.only.extend(more.1);
    }
    times
}

async fn long(semel: &Semel, run: &Run, steps: usize, timed: usize) -> Result<(Vec<f64>, Vec<f64>), Any> {
    let mut times = Times::default();
    for n in 0..steps {
        let late = step(run, n).await?;
        if n >= steps - timed {
            times.late.push(late);
            times.only.push(only(semel).await);
        }
    }
    Ok((times.late, times.only))
}

async fn only(semel: &Semel) -> f64 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let key = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
    let job = Job::named("short").key(&key).build().unwrap();
    semel.run(&job, async |run| step(&run, 0).await).await.value().unwrap()
}

async fn step(run: &Run, n: usize) -> Result<f64, Any> {
    let began = Instant::now();
    run.step(&format!("s{n:06}"), async || Ok::<_, std::io::Error>("a value of the usual size".to_owned()))
        .await?;
    Ok(began.elapsed().as_secs_f64())
}
