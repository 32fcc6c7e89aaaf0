//! What supervision costs, printed; the bound is generous, since machines differ and are busy.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use semel_supervise::{Contain, Output, Tree};

use crate::support::{Mark, containments, spec};

const RUNS: usize = 60;

/// The quickest, and the median.
fn summary(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort();
    (times[0], times[times.len() / 2])
}

fn plain() -> Duration {
    let start = Instant::now();
    let mut command = Command::new("/bin/true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).env_clear().status().unwrap();
    start.elapsed()
}

/// Until it runs, and until nothing of it is left.
async fn supervised(contain: Contain, mark: &Mark) -> (Duration, Duration) {
    let mut spec = spec(mark, "true", &[]);
    spec.contain = contain;
    spec.stdout = Output::Null;
    let start = Instant::now();
    let mut tree = Tree::spawn(spec).unwrap();
    let spawned = start.elapsed();
    tree.wait().await;
    tree.finish(Duration::ZERO).await;
    (spawned, start.elapsed())
}

#[tokio::test]
async fn a_supervised_command_costs_less_than_a_few_plain_ones() {
    let mark = Mark::new();
    let containments = containments();
    let mut plains = Vec::new();
    let mut runs: Vec<_> = containments.iter().map(|_| (Vec::new(), Vec::new())).collect();
    // In turns, so that a busy machine is busy for all; with pauses, so that the kernel's clearing away of one
    // cgroup is not counted as the cost of the next.
    for _ in 0..RUNS {
        plains.push(plain());
        for (contain, (spawns, totals)) in containments.iter().zip(&mut runs) {
            let (spawned, total) = supervised(*contain, &mark).await;
            spawns.push(spawned);
            totals.push(total);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let (plain_best, plain) = summary(plains);
    println!("std::process::Command: {plain:?}");
    for (contain, (spawns, totals)) in containments.into_iter().zip(runs) {
        let ((_, spawned), (best, total)) = (summary(spawns), summary(totals));
        let ratio = total.as_secs_f64() / plain.as_secs_f64();
        println!("{contain:?}: runs after {spawned:?}, gone after {total:?}, {ratio:.2} x plain");
        // The quickest runs are those that nobody disturbed. Measured: below 2.
        assert!(best < plain_best * 4, "{contain:?}: {best:?} against {plain_best:?}");
    }
}
