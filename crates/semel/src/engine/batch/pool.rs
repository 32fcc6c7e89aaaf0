//! Some futures that are polled by turns, each only when it was woken.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// At most so many futures.
pub(super) struct Pool<F> {
    slots: Vec<Slot<F>>,
    flags: Arc<Flags>,
    live: usize,
    /// Where the next turn begins.
    cursor: usize,
}

struct Slot<F> {
    future: Option<Pin<Box<F>>>,
    waker: Waker,
}

struct Flags {
    woken: Box<[AtomicBool]>,
    parent: Mutex<Option<Waker>>,
}

struct SlotWaker {
    flags: Arc<Flags>,
    slot: usize,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(flag) = self.flags.woken.get(self.slot) {
            flag.store(true, Ordering::Release);
        }
        let parent = self.flags.parent.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(parent) = parent {
            parent.wake();
        }
    }
}

impl<F: Future> Pool<F> {
    pub(super) fn new(size: usize) -> Pool<F> {
        let woken = (0..size).map(|_| AtomicBool::new(false)).collect();
        let flags = Arc::new(Flags { woken, parent: Mutex::new(None) });
        let slot = |slot| Slot {
            future: None,
            waker: Waker::from(Arc::new(SlotWaker { flags: Arc::clone(&flags), slot })),
        };
        Pool { slots: (0..size).map(slot).collect(), flags: Arc::clone(&flags), live: 0, cursor: 0 }
    }

    /// How many there are.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Room for so many more.
    pub(super) fn free(&self) -> usize {
        self.slots.len() - self.live
    }

    /// Take this one in. There must be room.
    pub(super) fn push(&mut self, future: F) {
        let free = self.slots.iter_mut().zip(&self.flags.woken).find(|(slot, _)| slot.future.is_none());
        if let Some((slot, woken)) = free {
            slot.future = Some(Box::pin(future));
            woken.store(true, Ordering::Release);
            self.live += 1;
        }
    }

    /// The next one that ends; for ever if there is none.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<F::Output> {
        *self.flags.parent.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        let size = self.slots.len();
        for turn in 0..size {
            let at = (self.cursor + turn) % size;
            let (Some(slot), Some(woken)) = (self.slots.get_mut(at), self.flags.woken.get(at)) else {
                continue;
            };
            let Some(future) = &mut slot.future else { continue };
            if !woken.swap(false, Ordering::AcqRel) {
                continue;
            }
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&slot.waker)) {
                slot.future = None;
                self.live -= 1;
                self.cursor = at + 1;
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn each_ends_when_it_ends_and_only_the_woken_are_polled() {
        let mut pool = Pool::new(3);
        for n in [3_u64, 1, 2] {
            pool.push(async move {
                tokio::time::sleep(Duration::from_secs(n)).await;
                n
            });
        }
        assert_eq!((pool.live(), pool.free()), (3, 0));
        let mut ended = Vec::new();
        while pool.live() > 0 {
            ended.push(std::future::poll_fn(|cx| pool.poll_next(cx)).await);
        }
        assert_eq!(ended, [1, 2, 3]);
    }
}
