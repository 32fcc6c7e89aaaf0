//! Memory for a process that lives for milliseconds.

/// Take the memory that a run needs from the kernel in one call instead of one fault per page: on a virtual
/// machine a fault costs as much as a small system call, and a run has a hundred of them.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn warm() {
    const PAD: usize = 512 * 1024;
    const WARM: usize = 256 * 1024;
    // below what the allocator would map by itself, above what it has left from before `main`
    const ASK: usize = 120 * 1024;
    const PAGE: usize = 4096;
    // SAFETY: the allocator is told how much to ask for at once, and asked for something; the range that is then
    // populated lies inside the heap that it has just got, and populating does not change what is in it.
    unsafe {
        libc::mallopt(libc::M_TOP_PAD, PAD as libc::c_int);
        let asked = libc::malloc(ASK);
        libc::free(asked);
        let begin = asked as usize & !(PAGE - 1);
        libc::madvise(begin as *mut libc::c_void, WARM, libc::MADV_POPULATE_WRITE);
    }
}

/// Other allocators are left alone.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn warm() {}
