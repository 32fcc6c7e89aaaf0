//! The holder's own watch.
//!
//! It counts by `CLOCK_BOOTTIME`, which goes on while the machine sleeps: a lease lapses in the store while a
//! laptop is closed, so a watch that stops with it would still trust a lease that another has taken. It decides
//! nothing but when to stop trusting; the store's clock decides who holds a lease.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

#[cfg(target_os = "linux")]
mod timer;

/// A moment on the holder's watch, since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment so long after boot.
    pub const fn since_boot(time: Duration) -> Moment {
        Moment(time)
    }

    /// How long after boot it is.
    pub const fn as_since_boot(self) -> Duration {
        self.0
    }

    /// So many milliseconds later.
    pub fn plus_ms(self, ms: u64) -> Moment {
        Moment(self.0.saturating_add(Duration::from_millis(ms)))
    }

    /// How long it is until `later`; nothing if that has passed.
    pub fn until(self, later: Moment) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

/// A watch, injected so that tests can suspend the machine.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Moment;
    /// The wall clock in milliseconds since 1970: for people to read, and for the slot of a schedule that is due; never
    /// for who holds what.
    fn wall_ms(&self) -> u64;
    /// Wait until that moment, waking at once from a suspend that went past it.
    fn sleep_until(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment(boottime())
    }

    #[allow(clippy::disallowed_methods)] // the one place
    fn wall_ms(&self) -> u64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            #[cfg(target_os = "linux")]
            if let Ok(wait) = timer::wait_until(moment)
                && wait.await.is_ok()
            {
                return;
            }
            // no timer that counts suspend: wake in steps, so that a long sleep is noticed soon after it
            loop {
                let left = self.now().until(moment);
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(Duration::from_secs(1))).await;
            }
        })
    }
}

/// Time since boot, suspend included.
pub fn boottime() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
    // macOS: this clock counts the time asleep
    #[cfg(not(target_os = "linux"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the kernel to write to.
    let failed = unsafe { libc::clock_gettime(CLOCK, &mut time) } != 0;
    if failed {
        // it cannot fail with a clock that exists; were it to, no lease would be trusted
        return Duration::MAX;
    }
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
