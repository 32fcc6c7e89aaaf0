//! One timer of the kernel's for all who wait in a runtime.
//!
//! It counts suspend, which tokio's own does not. One for each who waits would be a descriptor for each lease, and a
//! process may have but 1,024 of them.
//!
//! ```text
//! whoever waits ──comes first──▶ sets the timer ──▶ the driver wakes all whose moment has come, sets it for the next
//! ```
//!
//! The driver is a task of the runtime. It ends with it, and says so to those who still wait elsewhere.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::unix::AsyncFd;
use tokio::runtime::{self, Handle};

use super::{Moment, boottime};

/// The timers of the runtimes that have one.
static TIMERS: Mutex<Vec<(runtime::Id, Arc<Timer>)>> = Mutex::new(Vec::new());

/// Wait until that moment. An error: it is not known whether it has come.
pub(super) fn wait_until(moment: Moment) -> io::Result<Wait> {
    Ok(Wait { timer: Timer::here()?, moment, number: None })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Timer {
    fd: OwnedFd,
    waiting: Mutex<Waiting>,
}

/// Who waits. While anybody does, the timer is set for the first of them or for a moment before.
#[derive(Default)]
struct Waiting {
    queue: BTreeMap<(Moment, u64), Waker>,
    next_number: u64,
    set_for: Option<Moment>,
    /// There is no driver any more.
    abandoned: bool,
}

impl Timer {
    /// The one of this runtime.
    fn here() -> io::Result<Arc<Timer>> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let id = runtime.id();
        if let Some(timer) = find(&locked(&TIMERS), id) {
            return Ok(timer);
        }
        let timer = Arc::new(Timer { fd: create()?, waiting: Mutex::default() });
        // SAFETY: what is registered keeps the timer alive, and with it its one descriptor.
        let registered = unsafe { AsyncFd::register(Registered(Arc::clone(&timer))) }?;
        {
            let mut timers = locked(&TIMERS);
            if let Some(earlier) = find(&timers, id) {
                return Ok(earlier);
            }
            timers.push((id, Arc::clone(&timer)));
        }
        // not under the lock: a runtime that is shutting down drops it here and now
        runtime.spawn(Driver { id, registered }.run());
        Ok(timer)
    }

    /// Wake all whose moment has come.
    fn fire(&self) -> io::Result<()> {
        let now = Moment(boottime());
        let mut due = Vec::new();
        let mut waiting = locked(&self.waiting);
        while let Some(first) = waiting.queue.first_entry().filter(|first| first.key().0 <= now) {
            due.push(first.remove());
        }
        let next = waiting.queue.keys().next().map(|(moment, _)| *moment);
        waiting.set_for = next;
        let set = next.map_or(Ok(()), |moment| set(&self.fd, moment));
        drop(waiting);
        due.into_iter().for_each(Waker::wake);
        set
    }

    /// Nobody is woken any more: let all who wait look for themselves.
    fn abandon(&self) {
        let mut waiting = locked(&self.waiting);
        waiting.abandoned = true;
        let left = std::mem::take(&mut waiting.queue);
        drop(waiting);
        left.into_values().for_each(Waker::wake);
    }
}

fn find(timers: &[(runtime::Id, Arc<Timer>)], id: runtime::Id) -> Option<Arc<Timer>> {
    timers.iter().find(|(of, _)| *of == id).map(|(_, timer)| Arc::clone(timer))
}

/// A timer as the runtime's reactor knows it.
struct Registered(Arc<Timer>);

impl AsRawFd for Registered {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd.as_raw_fd()
    }
}

struct Driver {
    id: runtime::Id,
    registered: AsyncFd<Registered>,
}

impl Driver {
    async fn run(self) {
        // an error: the runtime is going
        while let Ok(mut ready) = self.registered.readable().await {
            // before the look, so that a moment that comes after it is told again
            ready.clear_ready();
            if self.registered.get_ref().0.fire().is_err() {
                return;
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        locked(&TIMERS).retain(|(id, _)| *id != self.id);
        self.registered.get_ref().0.abandon();
    }
}

/// One who waits.
pub(super) struct Wait {
    timer: Arc<Timer>,
    moment: Moment,
    /// Its number in the queue, once it is there.
    number: Option<u64>,
}

impl Future for Wait {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // asked first, whoever woke us: after a suspend nobody waits for the driver's turn
        if Moment(boottime()) >= this.moment {
            return Poll::Ready(Ok(()));
        }
        let mut waiting = locked(&this.timer.waiting);
        if waiting.abandoned {
            return Poll::Ready(Err(io::Error::other("the runtime of the timer has ended")));
        }
        let number = *this.number.get_or_insert_with(|| {
            waiting.next_number += 1;
            waiting.next_number
        });
        let key = (this.moment, number);
        match waiting.queue.get_mut(&key) {
            Some(waker) => waker.clone_from(cx.waker()),
            None => drop(waiting.queue.insert(key, cx.waker().clone())),
        }
        let is_first = waiting.queue.keys().next() == Some(&key);
        if is_first && waiting.set_for != Some(this.moment) {
            if let Err(why) = set(&this.timer.fd, this.moment) {
                return Poll::Ready(Err(why));
            }
            waiting.set_for = Some(this.moment);
        }
        Poll::Pending
    }
}

impl Drop for Wait {
    /// The timer stays as it is: whoever comes next most often waits for the same moment.
    fn drop(&mut self) {
        if let Some(number) = self.number {
            locked(&self.timer.waiting).queue.remove(&(self.moment, number));
        }
    }
}

fn create() -> io::Result<OwnedFd> {
    // SAFETY: plain system call; the result is checked.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Let it fire at that moment, and not at the one that it was set for.
fn set(fd: &OwnedFd, moment: Moment) -> io::Result<()> {
    let at = moment.as_since_boot();
    let it_value = libc::timespec {
        tv_sec: libc::time_t::try_from(at.as_secs()).unwrap_or(libc::time_t::MAX),
        // zero would disarm it
        tv_nsec: libc::c_long::from(at.subsec_nanos().max(1)),
    };
    let spec = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    // SAFETY: the descriptor is open and `spec` outlives the call.
    match unsafe {
        libc::timerfd_settime(fd.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &spec, std::ptr::null_mut())
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn in_ms(ms: u64) -> Moment {
        Moment(boottime()).plus_ms(ms)
    }

    fn timer() -> Arc<Timer> {
        Timer::here().unwrap()
    }

    #[tokio::test]
    async fn all_who_wait_share_one_timer_and_wake_in_order() {
        let woken = Arc::new(Mutex::new(Vec::new()));
        let waits: Vec<_> = [30, 10, 20]
            .map(|ms| {
                let (woken, moment) = (Arc::clone(&woken), in_ms(ms));
                tokio::spawn(async move {
                    wait_until(moment).unwrap().await.unwrap();
                    assert!(Moment(boottime()) >= moment);
                    locked(&woken).push(ms);
                })
            })
            .into();
        for wait in waits {
            wait.await.unwrap();
        }
        assert_eq!(*locked(&woken), [10, 20, 30]);
        assert!(locked(&timer().waiting).queue.is_empty());
        let mine = Handle::current().id();
        assert_eq!(locked(&TIMERS).iter().filter(|(id, _)| *id == mine).count(), 1);
    }

    #[tokio::test]
    async fn one_that_gives_up_does_not_take_the_others_timer_with_it() {
        let mut first = Box::pin(wait_until(in_ms(20)).unwrap());
        let second = wait_until(in_ms(40)).unwrap();
        // set for the first, which is then dropped: the timer fires for nobody, and goes on to the second
        assert!(poll(first.as_mut()).is_pending());
        let second = tokio::spawn(second);
        tokio::task::yield_now().await;
        drop(first);
        assert_eq!(locked(&timer().waiting).queue.len(), 1);
        tokio::time::timeout(Duration::from_secs(20), second).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn one_that_comes_later_and_is_due_earlier_is_not_kept_waiting() {
        let long = tokio::spawn(wait_until(in_ms(3_600_000)).unwrap());
        tokio::task::yield_now().await;
        let short = wait_until(in_ms(10)).unwrap();
        tokio::time::timeout(Duration::from_secs(20), short).await.unwrap().unwrap();
        assert!(!long.is_finished());
        long.abort();
    }

    #[test]
    fn a_runtime_that_ends_tells_those_who_wait_elsewhere_and_leaves_nothing() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (gone, other) = (runtime(), runtime());
        let id = gone.handle().id();
        let mut wait = {
            let _inside = gone.enter();
            Box::pin(wait_until(in_ms(3_600_000)).unwrap())
        };
        let told = other.spawn(async move {
            assert!(poll(wait.as_mut()).is_pending());
            wait.await
        });
        other.block_on(tokio::task::yield_now());
        drop(gone);
        let told = other.block_on(async { tokio::time::timeout(Duration::from_secs(20), told).await });
        assert!(told.unwrap().unwrap().is_err());
        assert!(find(&locked(&TIMERS), id).is_none());
    }

    fn poll(wait: Pin<&mut Wait>) -> Poll<io::Result<()>> {
        wait.poll(&mut Context::from_waker(Waker::noop()))
    }
}
