//! A fork without the heap.
//!
//! Theory. A fork makes every page of both processes read-only, and the first write to each is then a fault and a copy. A
//! process that forks a keeper and goes on to write its claim pays for some fifty of them, which is more than the fork
//! itself. The keeper needs nothing of the heap, so the heap is kept out of it while the fork is made.
//!
//! Where the heap begins, the program says: what the C library has of a thread (`errno` among it) may lie below that, and
//! stays. A program that says nothing forks as ever.

use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: usize = 4096;

/// 0: nobody has said.
static BEGIN: AtomicUsize = AtomicUsize::new(0);

/// What the allocator has from this address on is not needed by a [`Ready`](crate::Ready). For a program, which knows what
/// its allocator is; nothing comes of it where there is no such heap.
pub fn keep_heap_out_of_forks(from: usize) {
    BEGIN.store(from.next_multiple_of(PAGE), Ordering::Relaxed);
}

/// The heap, kept out of any fork until this is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    begin: usize,
    length: usize,
}

#[cfg(target_os = "linux")]
impl Kept {
    /// `None`: it is not known where it is, or the kernel will not have it.
    pub(crate) fn out() -> Option<Kept> {
        let begin = Some(BEGIN.load(Ordering::Relaxed)).filter(|begin| *begin != 0)?;
        // SAFETY: asks where the heap ends; no memory is touched.
        let end = unsafe { libc::sbrk(0) } as usize & !(PAGE - 1);
        let length = end.checked_sub(begin).filter(|length| *length > 0)?;
        let kept = Kept { begin, length };
        kept.advise(libc::MADV_DONTFORK).then_some(kept)
    }

    fn advise(&self, how: i32) -> bool {
        // SAFETY: the range is of whole pages of the heap, and what is in them does not change.
        unsafe { libc::madvise(self.begin as *mut libc::c_void, self.length, how) == 0 }
    }
}

#[cfg(target_os = "linux")]
impl Drop for Kept {
    fn drop(&mut self) {
        self.advise(libc::MADV_DOFORK);
    }
}

#[cfg(not(target_os = "linux"))]
impl Kept {
    pub(crate) fn out() -> Option<Kept> {
        None
    }
}

/// As `fork`, but that nothing of the C library runs in the child.
///
/// # Safety
///
/// The child must not touch the heap, not even through the C library, and must end with `_exit`.
pub(crate) unsafe fn fork() -> i32 {
    #[cfg(target_os = "linux")]
    // SAFETY: a plain fork: no memory, no stack and no thread are shared. The rest is the caller's promise.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    #[cfg(not(target_os = "linux"))]
    // SAFETY: the caller's promise.
    let pid = unsafe { libc::fork() };
    i32::try_from(pid).unwrap_or(-1)
}
