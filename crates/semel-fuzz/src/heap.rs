//! How much memory a thread holds at once, and how long the processor worked for it.
//!
//! Every binary that links this crate allocates through [`Counting`]. It counts what a thread asked for and has not
//! given back; memory that another thread gives back is not seen to go.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

#[global_allocator]
static COUNTED: Counting = Counting;

thread_local! {
    // without destructors, so that they may be read at any time of a thread's life
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's memory, counted.
#[derive(Debug)]
pub struct Counting;

fn count(change: isize) {
    let held = HELD.get().wrapping_add(change);
    HELD.set(held);
    if held > PEAK.get() {
        PEAK.set(held);
    }
}

// SAFETY: everything is handed on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as it came
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as it came
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as it came
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as it came
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The most that this thread held at once during this, beyond what it held before.
pub fn peak_of(run: impl FnOnce()) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    run();
    usize::try_from(PEAK.get() - before).unwrap_or(0)
}

/// How long the processor has worked for this thread: other people's work on the same machine does not count.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours and outlives the call
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_at_once_is_counted() {
        let peak = peak_of(|| {
            for _ in 0..10 {
                drop(std::hint::black_box(vec![0_u8; 1000]));
            }
        });
        assert!((1000..2000).contains(&peak), "{peak}");
    }
}
