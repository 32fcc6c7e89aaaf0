//! Ctrl-C and its kin for commands that must clean up behind themselves: noted, and asked for between two things.
//!
//! The first signal is only noted; the second of a kind ends the process as usual. One that was ignored when we
//! started (`nohup`) stays ignored.

use std::sync::atomic::{AtomicI32, Ordering};

/// The signal that came; 0: none.
static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signo: i32) {
    CAUGHT.store(signo, Ordering::Relaxed);
}

/// From now on signals are noted.
pub(crate) fn watch() {
    for signo in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: all-zero is a valid `sigaction`; the handler only stores into an atomic.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signo, std::ptr::null(), &raw mut before) == 0
                && before.sa_sigaction != libc::SIG_IGN
            {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = note as extern "C" fn(i32) as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
                libc::sigaction(signo, &raw const action, std::ptr::null_mut());
            }
        }
    }
}

/// The signal that asks for the end, if one came.
pub(crate) fn caught() -> Option<i32> {
    Some(CAUGHT.load(Ordering::Relaxed)).filter(|signo| *signo != 0)
}
