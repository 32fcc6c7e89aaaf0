//! INT, TERM, HUP and QUIT of this process, as values to wait for.
//!
//! A handler writes two bytes into a pipe; the rest happens outside of it. A signal that was ignored when we
//! started (`nohup`, a background job of a script) stays ignored. One instance per process.

use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys;

const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Where the handler writes; -1: nobody listens.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// A signal that reached this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caught {
    /// Its number.
    pub signo: i32,
    /// The kernel sent it (Ctrl-C, a hang-up), so all of our process group has it.
    pub from_terminal: bool,
}

/// Catches the signals as long as it lives, then puts the former handlers back.
#[derive(Debug)]
pub struct Signals {
    read: AsyncFd<Catcher>,
}

impl Signals {
    /// Start catching. Must be called inside a tokio runtime with I/O enabled.
    pub fn install() -> io::Result<Signals> {
        tokio::runtime::Handle::try_current().map_err(Error::other)?;
        // SAFETY: the pipe's end is one open descriptor from here to the drop of the catcher.
        let read = unsafe { AsyncFd::register_with_interest(Catcher::install()?, Interest::READABLE)? };
        Ok(Signals { read })
    }

    /// The next signal, in the order they came. Cancel-safe.
    pub async fn next(&mut self) -> Caught {
        loop {
            if let Some(caught) = self.read.get_ref().take() {
                return caught;
            }
            match self.read.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                // The runtime is shutting down: nothing will come any more.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

/// The same without a runtime: a descriptor to poll, and what has come.
#[derive(Debug)]
pub(crate) struct Catcher {
    read: OwnedFd,
    write: OwnedFd,
    before: Vec<(i32, libc::sigaction)>,
}

impl AsRawFd for Catcher {
    fn as_raw_fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }
}

impl Catcher {
    /// Start catching.
    pub(crate) fn install() -> io::Result<Catcher> {
        let (read, write) = sys::pipe().map_err(Error::from_raw_os_error)?;
        // SAFETY: both are new and nobody else's.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(read), OwnedFd::from_raw_fd(write)) };
        sys::set_nonblocking(read.as_raw_fd())?;
        sys::set_nonblocking(write.as_raw_fd())?;
        PIPE.compare_exchange(-1, write.as_raw_fd(), Ordering::SeqCst, Ordering::SeqCst)
            .map_err(|_| Error::new(ErrorKind::AlreadyExists, "signals are being caught already"))?;
        let mut catcher = Catcher { read, write, before: Vec::new() };
        for signo in SIGNALS.into_iter().filter(|signo| !sys::is_ignored(*signo)) {
            // SAFETY: the handler only uses what is safe in one; the old action goes into plain memory.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let mut before: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handle as extern "C" fn(_, _, _) as libc::sighandler_t;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
                sys::check(libc::sigaction(signo, &action, &mut before))?;
                catcher.before.push((signo, before));
            }
        }
        Ok(catcher)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }

    /// The next signal that has come, in their order.
    pub(crate) fn take(&self) -> Option<Caught> {
        let mut bytes = [0u8; 2];
        // SAFETY: the buffer is valid for writes of its length. Two bytes are written, and read, as one.
        let n = unsafe { libc::read(self.fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        let [signo, kernel] = bytes;
        (n == 2).then(|| Caught { signo: signo.into(), from_terminal: kernel != 0 })
    }
}

impl Drop for Catcher {
    fn drop(&mut self) {
        for (signo, before) in &self.before {
            // SAFETY: puts back what was there.
            unsafe { libc::sigaction(*signo, before, std::ptr::null_mut()) };
        }
        let _ = PIPE.compare_exchange(self.write.as_raw_fd(), -1, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// From now on a write past the limit on the size of files (`ulimit -f`) fails in this process instead of ending it.
/// What it starts finds the signal as it was: a program does not inherit a handler.
pub fn outlive_file_limit() {
    extern "C" fn nothing(_: i32) {}
    if !sys::is_ignored(libc::SIGXFSZ) {
        sys::set_disposition(libc::SIGXFSZ, nothing as extern "C" fn(_) as libc::sighandler_t);
    }
}

extern "C" fn handle(signo: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    #[cfg(target_os = "linux")]
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler.
    let from_kernel = unsafe { (*info).si_code } == libc::SI_KERNEL;
    #[cfg(not(target_os = "linux"))]
    // SAFETY: as above.
    let from_kernel = unsafe { (*info).si_pid } == 0;
    let errno = sys::errno();
    let bytes = [u8::try_from(signo).unwrap_or(0), from_kernel.into()];
    // SAFETY: write(2) is safe in a handler. A full pipe loses the signal, after thousands nobody read.
    // The code we interrupted finds its errno unchanged.
    unsafe {
        libc::write(PIPE.load(Ordering::SeqCst), bytes.as_ptr().cast(), bytes.len());
        #[cfg(target_os = "linux")]
        {
            *libc::__errno_location() = errno;
        }
        #[cfg(not(target_os = "linux"))]
        {
            *libc::__error() = errno;
        }
    }
}
