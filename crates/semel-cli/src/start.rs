//! Before anything else: what Rust's start-up would have done for a program, and memory for a process that lives for
//! milliseconds.

use std::ffi::{CStr, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;

/// The code of a program that panicked, as Rust has it.
pub(crate) const PANICKED: u8 = 101;

/// The words of the command line, as C hands them over.
///
/// # Safety
///
/// `argv` must have `argc` strings that nobody changes.
pub(crate) unsafe fn words(argc: i32, argv: *const *const c_char) -> Vec<OsString> {
    let word = |at| {
        // SAFETY: the caller's promise.
        let text = unsafe { *argv.add(at) };
        // SAFETY: as above; some callers of exec end the words early.
        (!text.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()).to_owned())
    };
    (0..usize::try_from(argc).unwrap_or(0)).map_while(word).collect()
}

/// A standard descriptor that is closed would be taken by the next file that is opened, the ledger say, and be written to by
/// whoever prints: it is `/dev/null`. A reader that went away is told by an error, not by a signal.
pub(crate) fn prepare() {
    // SAFETY: no memory is involved but a string that is valid; nobody else runs yet.
    unsafe {
        for fd in 0..3 {
            if libc::fcntl(fd, libc::F_GETFD) == -1 && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == -1 {
                // it would not be safe to go on
                libc::abort();
            }
        }
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
}

/// Take the memory that a run needs from the kernel in one call instead of one fault per page: on a virtual
/// machine a fault costs as much as a small system call, and a run has a hundred of them.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn warm() {
    use std::hint::black_box;

    const PAD: usize = 512 * 1024;
    const WARM: usize = 256 * 1024;
    // below what the allocator would map by itself; twice this is above what it can have left from before `main`
    const ASK: usize = 120 * 1024;
    const PAGE: usize = 4096;
    // the kernel makes the stack of a new program larger than this; a run goes deeper, a skip does not
    const STACK: usize = 96 * 1024;
    // SAFETY: the allocator is told how much to ask for at once, and asked for something; the range that is then
    // populated lies inside the heap that it has just got, and populating does not change what is in it.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, PAD as libc::c_int);
        // what is freed stays: giving it back and taking it again would cost more than it is worth
        libc::mallopt(libc::M_TRIM_THRESHOLD, (8 * PAD) as libc::c_int);
        // the compiler would leave out what nobody looks at
        let asked = black_box(libc::malloc(ASK));
        libc::free(black_box(libc::malloc(ASK)));
        libc::free(asked);
        let begin = asked as usize & !(PAGE - 1);
        libc::madvise(begin as *mut libc::c_void, WARM, libc::MADV_POPULATE_WRITE);
        semel_supervise::keep_heap_out_of_forks(asked as usize);
        // the pages below the one that is in use: nothing is in them yet
        let here = black_box(&raw const begin) as usize & !(PAGE - 1);
        libc::madvise((here - STACK) as *mut libc::c_void, STACK, libc::MADV_POPULATE_WRITE);
    }
}

/// Other allocators are left alone.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn warm() {}
