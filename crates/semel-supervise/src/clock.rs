//! CLOCK_BOOTTIME: the clock that goes on while the machine sleeps.
//!
//! A grace period that stopped with the laptop's lid would outlive whatever it must stay inside of.

use std::time::Duration;

#[cfg(target_os = "linux")]
const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
/// On Apple systems CLOCK_MONOTONIC counts suspended time.
#[cfg(not(target_os = "linux"))]
const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

/// Time since boot, suspended time included.
pub fn boottime() -> Duration {
    // SAFETY: an all-zero timespec is valid, and the call only writes into it.
    unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(CLOCK, &mut now);
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanos)
    }
}

/// Wait `length`, suspended time included. Needs a tokio runtime with I/O enabled.
#[cfg(target_os = "linux")]
pub async fn sleep_boottime(length: Duration) {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    let until = boottime().saturating_add(length);
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::timerfd_create(CLOCK, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
    if fd >= 0 {
        // SAFETY: just opened, nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        arm(fd.as_raw_fd(), nanos(until));
        if let Ok(timer) = crate::sys::watch(fd) {
            while boottime() < until {
                match timer.readable().await {
                    Ok(mut ready) if boottime() < until => ready.clear_ready(),
                    _ => return,
                }
            }
            return;
        }
    }
    // Out of descriptors: the end must come all the same.
    while boottime() < until {
        tokio::task::yield_now().await;
    }
}

/// Wait `length`. Needs a tokio runtime with time enabled.
#[cfg(not(target_os = "linux"))]
pub async fn sleep_boottime(length: Duration) {
    tokio::time::sleep(length).await;
}

/// Fire at `at` nanoseconds of CLOCK_BOOTTIME; 0: never.
#[cfg(target_os = "linux")]
pub(crate) fn arm(timer: std::os::fd::RawFd, at: u64) {
    // SAFETY: an all-zero itimerspec is valid, and the kernel only reads it.
    unsafe {
        let mut spec: libc::itimerspec = std::mem::zeroed();
        spec.it_value.tv_sec = libc::time_t::try_from(at / 1_000_000_000).unwrap_or(libc::time_t::MAX);
        spec.it_value.tv_nsec = (at % 1_000_000_000) as _;
        libc::timerfd_settime(timer, libc::TFD_TIMER_ABSTIME, &spec, std::ptr::null_mut());
    }
}

/// Nanoseconds, as messages carry them. Never 0, which means "none" there.
pub(crate) fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).max(1)
}
