//! What `/proc` says.

use std::path::PathBuf;

fn stat_field(pid: i32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(field - 3).map(str::to_owned)
}

/// R, S, T, Z …; none: no such process.
pub(crate) fn state(pid: i32) -> Option<char> {
    stat_field(pid, 3)?.chars().next()
}

/// A zombie is dead.
pub(crate) fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

pub(crate) fn is_stopped(pid: i32) -> bool {
    matches!(state(pid), Some('T' | 't'))
}

pub(crate) fn name(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

pub(crate) fn parent(pid: i32) -> Option<i32> {
    stat_field(pid, 4)?.parse().ok()
}

#[track_caller]
pub(crate) fn kill(pid: i32, signo: i32) {
    // SAFETY: no memory is involved.
    let sent = unsafe { libc::kill(pid, signo) };
    assert_eq!(sent, 0, "kill {pid}: {}", std::io::Error::last_os_error());
}

/// The living processes whose environment, as they were started, holds this text.
pub(crate) fn carrying(text: &str) -> Vec<i32> {
    let carries = |pid: &i32| {
        let environ = std::fs::read(PathBuf::from(format!("/proc/{pid}/environ"))).unwrap_or_default();
        environ.windows(text.len()).any(|part| part == text.as_bytes()) && is_alive(*pid)
    };
    let listed = std::fs::read_dir("/proc").unwrap().flatten();
    listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(carries).collect()
}

/// The resident memory of a process, in KiB.
pub(crate) fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
