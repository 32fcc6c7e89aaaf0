//! `bench_steps DIR`: durable steps inside one run, against the store's own commits, in turns.
//!
//! Called by `cargo xtask bench steps`. A step is two durable commits: its intent before the effect, its outcome
//! after it. The floor is two durable swaps of records of the same sizes, in the same store, and nothing else.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)] // a bench that cannot go on should say where

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use semel::core::record::{Expect, RecordKey};
use semel::store::sqlite::Sqlite;
use semel::store::{Change, Durability, Store};
use semel::{Job, Run, Semel};
use semel_testkit::{Ratio, quantile};

type Any = Box<dyn std::error::Error + Send + Sync>;

const ROUNDS: usize = 60;
const WARM_UP: usize = 5;
/// Steps of a round.
const BATCH: usize = 40;
const AT_ONCE: usize = 8;
const MANY: usize = 10_000;
const PART: usize = 1_000;

fn main() {
    let dir = std::env::args().nth(1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Arc::new(Sqlite::open(&Path::new(&dir).join("steps.db")).unwrap());
        let semel = Semel::on(store.clone());
        let job = |key: &str| Job::named("bench").key(key).build().unwrap();
        let outcome = semel.run(&job("turns"), async |run| turns(run, &store).await).await;
        assert!(outcome.is_done(), "{outcome:?}");
        let outcome = semel.run(&job("many"), async |run| many(run, &store).await).await;
        assert!(outcome.is_done(), "{outcome:?}");
    });
}

/// The value that a step returns: a few words.
fn value(n: usize) -> Result<(usize, String), std::io::Error> {
    Ok((n, "a value of the usual size".to_owned()))
}

/// The sizes of a step's record when it is claimed and when it is done.
async fn sizes(run: &Run, store: &Sqlite) -> Result<[usize; 2], Any> {
    let name = semel::core::name::Name::new("s000000")?;
    let key = RecordKey::entry(&run.work().unwrap().clone().at_step(name, 1)?);
    let size = async || {
        store.load(std::slice::from_ref(&key)).await.unwrap().records[0].clone().unwrap().value.len()
    };
    let claimed = run
        .step("s000000", async || {
            let size = size().await;
            value(0).map(|(_, text)| (size, text))
        })
        .await?;
    Ok([claimed.0, size().await])
}

/// Two durable commits, of records of these sizes.
async fn floor(store: &Sqlite, n: usize, sizes: [usize; 2]) {
    // as long as a step's
    let key = RecordKey::from_stored(format!("floor/{n:0160}"));
    let mut expect = Expect::Absent;
    for size in sizes {
        let change = Change::Put { key: key.clone(), expect, value: vec![b'x'; size], ttl: None };
        let versions = store.swap(&[change], Durability::Durable).await.unwrap();
        expect = Expect::Version(versions[0].clone());
    }
}

async fn step(run: &Run, n: usize) -> Result<(), Any> {
    run.step(&format!("s{n:06}"), async || value(n)).await?;
    Ok(())
}

async fn turns(run: Run, store: &Sqlite) -> Result<(), Any> {
    let sizes = sizes(&run, store).await?;
    let next = AtomicU32::new(1);
    let next = || next.fetch_add(1, Ordering::Relaxed) as usize;
    let mut times: [Vec<f64>; 4] = Default::default();
    for round in 0..WARM_UP + ROUNDS {
        for turn in 0..4 {
            // another one first each time
            let who = (round + turn) % 4;
            let began = Instant::now();
            for _ in 0..if who < 2 { BATCH } else { BATCH / AT_ONCE } {
                match who {
                    0 => step(&run, next()).await?,
                    1 => floor(store, next(), sizes).await,
                    2 => {
                        let one = async || step(&run, next()).await;
                        let all = tokio::join!(one(), one(), one(), one(), one(), one(), one(), one());
                        all.0.and(all.1).and(all.2).and(all.3).and(all.4).and(all.5).and(all.6).and(all.7)?;
                    }
                    _ => {
                        let one = async || floor(store, next(), sizes).await;
                        tokio::join!(one(), one(), one(), one(), one(), one(), one(), one());
                    }
                }
            }
            if round >= WARM_UP {
                times[who].push(began.elapsed().as_secs_f64() / BATCH as f64);
            }
        }
    }
    println!(
        "durable steps inside one run, {ROUNDS} rounds of {BATCH}, records of {} and {} bytes",
        sizes[0], sizes[1]
    );
    line("library, one after the other", &times[0]);
    line("floor: two commits per step", &times[1]);
    ratio("a step, one after the other / two commits of the same store", &times[0], &times[1]);
    line("library, 8 at once", &times[2]);
    line("floor: two commits per step, 8 at once", &times[3]);
    // many commits share one sync here, so that what is left is the processor's share
    ratio("a step, 8 at once / two commits of the same store, 8 at once", &times[2], &times[3]);
    Ok(())
}

/// The cost of a step must not grow with their number. The disk's own moods are taken out: the first and the last
/// thousand are taken in turns with the floor.
async fn many(run: Run, store: &Sqlite) -> Result<(), Any> {
    let sizes = sizes(&run, store).await?;
    let [mut first, mut last]: [[Vec<f64>; 2]; 2] = Default::default();
    for n in 1..=MANY {
        let times = match n {
            n if n <= PART => Some(&mut first),
            n if n > MANY - PART => Some(&mut last),
            _ => None,
        };
        let began = Instant::now();
        step(&run, n).await?;
        if let Some([steps, floors]) = times {
            steps.push(began.elapsed().as_secs_f64());
            let began = Instant::now();
            floor(store, 1_000_000 + n, sizes).await;
            floors.push(began.elapsed().as_secs_f64());
        }
    }
    println!("{MANY} steps in one run");
    line("the first 1,000", &first[0]);
    line("floor beside them", &first[1]);
    line("the last 1,000", &last[0]);
    line("floor beside them", &last[1]);
    // each against its floor
    let [first, last] = [first, last].map(|[steps, floors]| -> Vec<f64> {
        steps.iter().zip(&floors).map(|(step, floor)| step / floor).collect()
    });
    ratio("the last 1,000 steps of 10,000 / the first 1,000", &last, &first);
    Ok(())
}

fn line(name: &str, times: &[f64]) {
    let ms = |share| quantile(times, share) * 1e3;
    let rate = 1.0 / quantile(times, 0.5);
    println!(
        "  {name:<52} p50 {:>7.3} ms   p10 {:>7.3}   p90 {:>7.3}   {rate:.0} a second",
        ms(0.5),
        ms(0.1),
        ms(0.9)
    );
}

fn ratio(name: &str, ours: &[f64], theirs: &[f64]) {
    println!("{name}: {}", Ratio::new(ours, theirs));
}
