//! Memory for a process that lives for milliseconds.

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
    }
}

/// Other allocators are left alone.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn warm() {}
