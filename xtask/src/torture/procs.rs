//! Processes of a round: found, stopped, continued, killed. Only what carries the mark of its round is touched.

use std::fs;

/// Send a signal. It may have ended by now.
pub(crate) fn signal(pid: i32, signal: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid, signal) };
}

/// Was it started in this round? Its environment holds the round's mark.
pub(crate) fn carries(pid: i32, mark: &str) -> bool {
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
}

/// All that it started and that lives, of the same round; the eldest first.
pub(crate) fn descendants(pid: i32, mark: &str) -> Vec<i32> {
    let mut found: Vec<i32> = Vec::new();
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        for child in children(pid) {
            if !found.contains(&child) && carries(child, mark) {
                found.push(child);
                next.push(child);
            }
        }
    }
    found
}

fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let listed = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    listed.flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()).collect()
}

/// Lift the limit on open files as far as it goes: every lane has a proxy, and every connection two ends.
pub(crate) fn lift_limits() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is ours, and outlives the call.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// Mounts of a name space of our own: they end with this process and all that it started. False: may not.
pub(crate) fn own_mounts() -> bool {
    // SAFETY: the strings end with a nul; nothing is handed over.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            ) == 0
    }
}
