//! What supervision costs, printed; the bound is generous, since machines differ.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use semel_supervise::{Contain, Output, Tree};

use crate::support::{Mark, containments, spec};

const RUNS: usize = 60;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

async fn supervised(contain: Contain) -> (Duration, Duration) {
    let mark = Mark::new();
    let (mut spawns, mut totals) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let mut spec = spec(&mark, "true", &[]);
        spec.contain = contain;
        spec.stdout = Output::Null;
        let start = Instant::now();
        let mut tree = Tree::spawn(spec).unwrap();
        spawns.push(start.elapsed());
        tree.wait().await;
        tree.finish(Duration::ZERO).await;
        totals.push(start.elapsed());
    }
    (median(spawns), median(totals))
}

#[tokio::test]
async fn a_supervised_command_costs_less_than_three_plain_ones() {
    let plain = || {
        let start = Instant::now();
        let mut command = Command::new("/bin/true");
        command.stdin(Stdio::null()).stdout(Stdio::null()).env_clear().status().unwrap();
        start.elapsed()
    };
    let plain = median((0..RUNS).map(|_| plain()).collect());
    println!("std::process::Command: {plain:?}");
    for contain in containments() {
        let (spawned, total) = supervised(contain).await;
        let ratio = total.as_secs_f64() / plain.as_secs_f64();
        println!("{contain:?}: spawn {spawned:?}, whole run {total:?}, {ratio:.2} x plain");
        assert!(ratio < 3.0, "{contain:?}: {ratio:.2}");
    }
}
