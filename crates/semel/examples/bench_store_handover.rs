//! `bench_store_handover URL TIMES`: from the end of a holder's body to the beginning of a waiter's, on any store.
//!
//! Called by `cargo xtask bench stores`. Two handles with connections of their own: the one gives its lease back, the
//! other waits by the store's own notification and claims. Prints the milliseconds of each hand-over, one per line.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::disallowed_methods)]

use std::time::{Duration, Instant};

use semel::{Held, Semel};
use tokio::sync::oneshot;

/// More than a waiter takes to look, to subscribe and to look again.
const SETTLED: Duration = Duration::from_millis(60);
const AT_MOST: Duration = Duration::from_secs(30);

/// Hold it from when this is told until that is; answers when the body ended.
async fn hold(semel: Semel, held: oneshot::Sender<()>, end: oneshot::Receiver<()>) -> Instant {
    let (mut held, mut end) = (Some(held), Some(end));
    let body = |_| {
        let (held, end) = (held.take().unwrap(), end.take().unwrap());
        async move {
            held.send(()).unwrap();
            end.await.unwrap();
            Instant::now()
        }
    };
    released(semel.lease("hot").wait(AT_MOST).hold(body).await)
}

/// Wait for it; answers when the body began.
async fn wait(semel: Semel) -> Instant {
    released(semel.lease("hot").wait(AT_MOST).hold(async |_| Instant::now()).await)
}

fn released(held: Held<Instant>) -> Instant {
    let Held::Released(at) = held else { panic!("{held:?}") };
    at
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let words: Vec<String> = std::env::args().collect();
    let times: u64 = words[2].parse().unwrap();
    let [holder, waiter] = [(), ()].map(|()| Semel::open(&words[1]).unwrap());
    for round in 0..times + 3 {
        let ((held, is_held), (end, ends)) = (oneshot::channel(), oneshot::channel());
        let holds = tokio::spawn(hold(holder.clone(), held, ends));
        is_held.await.unwrap();
        let waits = tokio::spawn(wait(waiter.clone()));
        // at another moment each time: whoever looks in a rhythm is not met in step
        tokio::time::sleep(SETTLED + Duration::from_millis(round * 7 % 31)).await;
        end.send(()).unwrap();
        let (given, taken) = (holds.await.unwrap(), waits.await.unwrap());
        // the first ones warm up
        if round >= 3 {
            println!("{}", taken.duration_since(given).as_secs_f64() * 1e3);
        }
    }
}
