//! Thin system calls. Nothing here but [`watch`] allocates, locks or panics: the keeper uses it after a fork
//! of a process that may have other threads.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// -1 as an error, anything else as it is.
pub(crate) fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn close(fd: RawFd) {
    // SAFETY: closing a number we own, or one that is already closed (EBADF, harmless: single-threaded caller).
    unsafe { libc::close(fd) };
}

pub(crate) fn kill(pid: i32, signo: i32) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, signo) == 0 }
}

/// Block every signal of this thread; gives the mask to put back.
pub(crate) fn block_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain memory, filled before it is read.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut old = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        old
    }
}

pub(crate) fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: `mask` is an initialised set.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

pub(crate) fn set_disposition(signo: i32, handler: libc::sighandler_t) {
    // SAFETY: an all-zero sigaction with SIG_DFL or SIG_IGN is valid; numbers libc reserves give EINVAL.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        libc::sigaction(signo, &action, std::ptr::null_mut());
    }
}

pub(crate) fn is_ignored(signo: i32) -> bool {
    // SAFETY: only reads the current action into plain memory.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signo, std::ptr::null(), &mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Reap `pid` (or any child, for -1). `Ok(None)`: nothing has ended yet (only with WNOHANG).
pub(crate) fn wait(pid: i32, options: i32) -> Result<Option<(i32, i32)>, i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for writes.
        match unsafe { libc::waitpid(pid, &mut status, options) } {
            0 => return Ok(None),
            -1 if errno() == libc::EINTR => {}
            -1 => return Err(errno()),
            pid => return Ok(Some((pid, status))),
        }
    }
}

fn set_cloexec(fd: RawFd) {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
}

/// A close-on-exec pipe: read end, write end.
pub(crate) fn pipe() -> Result<(RawFd, RawFd), i32> {
    let mut fds = [-1; 2];
    // SAFETY: `fds` has room for two descriptors.
    #[cfg(target_os = "linux")]
    let result = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) };
    // SAFETY: as above.
    #[cfg(not(target_os = "linux"))]
    let result = unsafe { libc::pipe(fds.as_mut_ptr()) };
    if result != 0 {
        return Err(errno());
    }
    let [read, write] = fds;
    set_cloexec(read);
    set_cloexec(write);
    Ok((read, write))
}

/// A connected pair of stream sockets, close-on-exec, none of them a standard descriptor.
pub(crate) fn socketpair() -> io::Result<(OwnedFd, OwnedFd)> {
    #[cfg(target_os = "linux")]
    const KIND: i32 = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    const KIND: i32 = libc::SOCK_STREAM;
    let mut fds = [-1; 2];
    // SAFETY: `fds` has room for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, KIND, 0, fds.as_mut_ptr()) })?;
    let [a, b] = fds;
    set_cloexec(a);
    set_cloexec(b);
    // SAFETY: both are open and nobody else's.
    let (a, b) = unsafe { (OwnedFd::from_raw_fd(a), OwnedFd::from_raw_fd(b)) };
    Ok((above_stdio(a)?, above_stdio(b)?))
}

/// The same file at a number above 2, so that arranging the command's 0, 1, 2 cannot overwrite it.
pub(crate) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > 2 {
        return Ok(fd);
    }
    // SAFETY: `fd` is open; the result is a new descriptor that nobody else owns.
    unsafe { Ok(OwnedFd::from_raw_fd(check(libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3))?)) }
}

pub(crate) fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe {
        let flags = check(libc::fcntl(fd, libc::F_GETFL))?;
        check(libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK))?;
    }
    Ok(())
}

/// Send without being hit by SIGPIPE.
pub(crate) fn send(fd: RawFd, bytes: &[u8]) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    const FLAGS: i32 = libc::MSG_NOSIGNAL;
    #[cfg(not(target_os = "linux"))]
    const FLAGS: i32 = 0;
    // SAFETY: `bytes` is valid for reads of its length.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), FLAGS) };
    match usize::try_from(sent) {
        Ok(n) if n == bytes.len() => Ok(()),
        // A message is far smaller than the smallest socket buffer: this does not happen in practice.
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Close every descriptor but those in `keep`, which must be sorted.
pub(crate) fn close_all_but(keep: &[RawFd]) {
    let mut next = 0;
    for &fd in keep {
        if fd > next {
            close_range(next, fd.saturating_sub(1));
        }
        next = next.max(fd.saturating_add(1));
    }
    close_range(next, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is involved; the caller gives up everything in the range.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0 {
        return;
    }
    // Old kernels and other systems: one by one, up to a bound that covers any sane limit.
    // SAFETY: no memory is involved.
    let limit = unsafe { libc::getdtablesize() }.min(65_536);
    for fd in first..=last.min(limit) {
        close(fd);
    }
}

/// Orphans of our descendants become our children.
pub(crate) fn become_subreaper() -> bool {
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is involved.
    return unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 };
    #[cfg(not(target_os = "linux"))]
    false
}

/// Children made by clone(2) without SIGCHLD are ours too.
#[cfg(target_os = "linux")]
pub(crate) const WAIT_ALL: i32 = libc::__WALL;
#[cfg(not(target_os = "linux"))]
pub(crate) const WAIT_ALL: i32 = 0;

/// Have tokio tell when `fd` becomes readable. Not for the keeper.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd is one open descriptor from here to its drop, as is asked for.
    unsafe { Ok(AsyncFd::register_with_interest(fd, Interest::READABLE)?) }
}
