//! `bench_runners LEDGER NAME SECONDS`: one of several runners of one SQLite ledger, each a process of its own.
//!
//! Called by `cargo xtask bench growth`. It opens the ledger, waits for a line of its input, so that all begin at once, and
//! then does one fresh run after the other under its own resource: a claim and an outcome, two durable commits. It
//! prints how many it did, and how many it could not.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // a bench that cannot go on should say where

use std::io::stdin;
use std::time::{Duration, Instant};

use semel::{Job, Semel};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [ledger, name, seconds] = words.try_into().unwrap();
    let time = Duration::from_secs(seconds.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let semel = Semel::sqlite(&ledger).unwrap();
    stdin().read_line(&mut String::new()).unwrap();
    let (mut done, mut not_done) = (0_u64, 0_u64);
    runtime.block_on(async {
        let began = Instant::now();
        while began.elapsed() < time {
            let job = Job::named(&name).key(&format!("{}", done + not_done)).build().unwrap();
            let outcome = semel.run(&job, async |_| Ok::<(), std::io::Error>(())).await;
            if outcome.is_done() { done += 1 } else { not_done += 1 }
        }
    });
    println!("done {done} not_done {not_done}");
}
