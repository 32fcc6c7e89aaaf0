//! Threads of the store's own, so that a file server that hangs holds up nobody.
//!
//! A call to a hung server cannot be ended from outside. So each verb is done by a thread of a small pool, and
//! whoever asked waits no longer than the deadline. Not tokio's own pool: a runtime waits for that one when it ends.
//!
//! A write that was not sent when nobody waits for it any more is not sent at all: whoever asked and the thread settle
//! by one flag which of them was first.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use super::super::StoreError;
use super::fault::Fault;
use crate::clock::boottime;

/// The most threads of one store: so many commits the disk can take together.
const THREADS: usize = 16;
/// The most verbs that wait for a thread; whoever comes later waits to be let in.
const QUEUE: usize = 1024;
/// A thread without work ends after so long.
const IDLE: Duration = Duration::from_secs(10);

/// What is to be done, and then how whoever asked is told.
type Job = Box<dyn FnOnce() -> Tell + Send>;
type Tell = Box<dyn FnOnce() + Send>;

/// The pool.
pub(super) struct Lane {
    pool: Arc<Pool>,
    places: Arc<Semaphore>,
    deadline: Duration,
}

#[derive(Default)]
struct Pool {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

const WAITING: u8 = 0;
const SENT: u8 = 1;
const GIVEN_UP: u8 = 2;

/// What a thread and whoever asked share of one verb.
#[derive(Debug)]
pub(super) struct Ask {
    state: AtomicU8,
    until: Duration,
}

impl Ask {
    fn new(deadline: Duration) -> Ask {
        Ask { state: AtomicU8::new(WAITING), until: boottime().saturating_add(deadline) }
    }

    /// From here on something may be changed. Refused if nobody waits for it any more.
    pub(super) fn send(&self) -> Result<(), Fault> {
        if boottime() >= self.until && self.state.load(Ordering::Acquire) == WAITING {
            return Err(Fault::said("its time ran out before it was sent: try again"));
        }
        match self.state.compare_exchange(WAITING, SENT, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(SENT) => Ok(()),
            Err(_) => Err(Fault::said("nobody waits for it any more")),
        }
    }

    /// Is there time left for another try?
    pub(super) fn is_over(&self) -> bool {
        boottime() >= self.until || self.state.load(Ordering::Acquire) == GIVEN_UP
    }

    /// Do not send it; `false` if it was sent.
    fn give_up(&self) -> bool {
        self.state.compare_exchange(WAITING, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Gives up what it is dropped with.
struct Asked(Arc<Ask>);

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl Lane {
    pub(super) fn new(deadline: Duration) -> Lane {
        Lane { pool: Arc::default(), places: Arc::new(Semaphore::new(QUEUE)), deadline }
    }

    /// Have it done by a thread, and wait until it is or the deadline has passed.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Ask) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let asked = Asked(Arc::new(Ask::new(self.deadline)));
        let ask = Arc::clone(&asked.0);
        let (reply, answer) = oneshot::channel();
        let done = async {
            let place = Arc::clone(&self.places).acquire_owned().await;
            self.pool.add(Box::new(move || {
                let done = (!ask.is_over()).then(|| work(&ask));
                Box::new(move || {
                    drop(place);
                    // whoever asked may have gone
                    let _ = done.map(|done| reply.send(done));
                })
            }))?;
            answer.await.map_err(|_| Fault::said("the thread of the folder ended").doubtful())
        };
        match tokio::time::timeout(self.deadline, done).await {
            Ok(Ok(answer)) => answer,
            // a thread that answers nothing was not sent, or died with what it had sent
            Ok(Err(why)) if asked.0.give_up() => Err(StoreError::Unavailable(why.to_string())),
            Ok(Err(why)) => Err(why.into()),
            Err(_) => {
                let why = format!("the file server gave no answer within {:?}", self.deadline);
                Err(if asked.0.give_up() { StoreError::Unavailable(why) } else { StoreError::Unknown(why) })
            }
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.pool.lock().closed = true;
        self.pool.more.notify_all();
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(self: &Arc<Pool>, job: Job) -> Result<(), Fault> {
        let mut queue = self.lock();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() || queue.threads >= THREADS {
            self.more.notify_one();
            return Ok(());
        }
        let pool = Arc::clone(self);
        match std::thread::Builder::new().name("semel-dir".to_owned()).spawn(move || pool.serve()) {
            Ok(_) => queue.threads += 1,
            // those there are will do it
            Err(_) if queue.threads > 0 => self.more.notify_one(),
            Err(why) => {
                queue.jobs.pop_back();
                let line = format!("cannot start a thread ({why}): is a limit on processes reached?");
                return Err(Fault::said(line));
            }
        }
        Ok(())
    }

    fn serve(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                let tell = job();
                // free before the answer: whoever asks next needs no other thread
                self.lock().idle += 1;
                tell();
                queue = self.lock();
                queue.idle -= 1;
                continue;
            }
            if queue.closed {
                break;
            }
            queue.idle += 1;
            let (woken, waited) = self.more.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
            queue = woken;
            queue.idle -= 1;
            if waited.timed_out() && queue.jobs.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn lane() -> Lane {
        Lane::new(Duration::from_millis(50))
    }

    #[tokio::test]
    async fn what_was_not_sent_in_time_is_not_sent_at_all() {
        let lane = lane();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (said, told) = std::sync::mpsc::channel();
        let hung = lane.ask(move |ask| {
            wait.recv().unwrap();
            said.send(ask.send().is_ok()).unwrap();
            Ok(())
        });
        assert!(matches!(hung.await, Err(StoreError::Unavailable(_))));
        go.send(()).unwrap();
        assert!(!told.recv().unwrap(), "it was sent although its time was over");
    }

    #[tokio::test]
    async fn what_was_sent_and_not_answered_is_unknown() {
        let lane = lane();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let hung = lane.ask(move |ask| {
            ask.send()?;
            wait.recv().map_err(|why| StoreError::Unavailable(why.to_string()))
        });
        assert!(matches!(hung.await, Err(StoreError::Unknown(_))));
        go.send(()).unwrap();
        // and the next is served
        assert_eq!(lane.ask(|_| Ok(7)).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_sent() {
        let lane = Lane::new(Duration::from_secs(20));
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (said, told) = std::sync::mpsc::channel();
        {
            let dropped = lane.ask(move |ask| {
                wait.recv().unwrap();
                said.send(ask.send().is_ok()).unwrap();
                Ok(())
            });
            tokio::pin!(dropped);
            let begun = tokio::time::timeout(Duration::from_millis(20), &mut dropped).await;
            assert!(begun.is_err());
        }
        go.send(()).unwrap();
        assert!(!told.recv().unwrap());
    }

    #[tokio::test]
    async fn threads_are_few_and_one_after_the_other_needs_one() {
        let lane = Arc::new(Lane::new(Duration::from_secs(20)));
        for _ in 0..50 {
            lane.ask(|_| Ok(())).await.unwrap();
        }
        assert_eq!(lane.pool.lock().threads, 1);
        let many: Vec<_> = (0..100)
            .map(|i| {
                let lane = Arc::clone(&lane);
                tokio::spawn(async move { lane.ask(move |_| Ok(i)).await.unwrap() })
            })
            .collect();
        for (i, one) in many.into_iter().enumerate() {
            assert_eq!(one.await.unwrap(), i);
        }
        assert!(lane.pool.lock().threads <= THREADS);
    }
}
