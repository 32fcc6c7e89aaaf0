//! Who a process is, and whether it is provably gone.
//!
//! A pid alone says nothing: it is given out again. A pid with its start time names one process of one boot.
//! All questions here are about processes of *this* boot and *this* pid namespace; the caller compares the
//! [`Identity`] first and concludes nothing where it differs.
//!
//! Every answer errs on one side: [`Gone::Gone`] is said only when it is known.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cgroup;
#[cfg(target_os = "linux")]
use crate::procfs::{self, Stat};
use crate::sys;

/// One process of one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Its number, in its pid namespace.
    pub pid: i32,
    /// When it started: clock ticks after boot (Linux), microseconds of the epoch (elsewhere).
    pub start: u64,
}

/// This process, as others can recognise it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The host's name.
    pub host: String,
    /// Changes with every boot.
    pub boot: String,
    /// The pid namespace; 0 where there are none.
    pub pidns: u64,
    /// The process itself.
    pub process: Process,
}

/// Whether something has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It has, for certain.
    Gone,
    /// It has not.
    Alive,
    /// It cannot be told.
    Unknown,
}

/// Who we are. Six system calls or so; fails only where `/proc` is missing.
pub fn me() -> io::Result<Identity> {
    let pid = std::process::id().cast_signed();
    let start =
        start_of(pid).ok_or_else(|| io::Error::other("cannot read the start time of this process"))?;
    Ok(Identity { host: host()?, boot: boot()?, pidns: pid_namespace()?, process: Process { pid, start } })
}

fn host() -> io::Result<String> {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for writes of the length given; its last byte stays NUL.
    sys::check(unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) })?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
    Ok(String::from_utf8_lossy(name).into_owned())
}

#[cfg(target_os = "linux")]
fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(target_os = "linux")]
fn pid_namespace() -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata("/proc/self/ns/pid")?.ino())
}

#[cfg(target_os = "linux")]
fn start_of(pid: i32) -> Option<u64> {
    Stat::read(pid).map(|stat| stat.start)
}

/// Whether this very process has ended. A zombie has.
pub fn is_gone(process: &Process) -> Gone {
    if process.pid <= 0 {
        return Gone::Unknown;
    }
    if !sys::kill(process.pid, 0) && sys::errno() == libc::ESRCH {
        return Gone::Gone;
    }
    #[cfg(target_os = "linux")]
    return match Stat::read(process.pid) {
        Some(stat) if stat.start != process.start || stat.is_dead() => Gone::Gone,
        Some(_) => Gone::Alive,
        // It ended this moment, or /proc hides it from us.
        None if !sys::kill(process.pid, 0) && sys::errno() == libc::ESRCH => Gone::Gone,
        None => Gone::Unknown,
    };
    #[cfg(not(target_os = "linux"))]
    match start_of(process.pid) {
        Some(start) if start != process.start => Gone::Gone,
        Some(_) => Gone::Alive,
        None => Gone::Unknown,
    }
}

/// Whether a keeper and every process of its tree have ended.
///
/// Three witnesses, all of which must say so: the keeper itself; its cgroup, if it had one; and the environment
/// of every process that is not older than the keeper, none of which may hold `marker` (such as
/// `SEMEL_RUN=…`, which the whole tree inherits). A process whose environment we may not read makes the answer
/// [`Gone::Unknown`], whoever owns it: the command may have used sudo. An older one cannot be of the tree.
///
/// Not seen without a cgroup: a process that was started with a cleared environment, and, where `/proc` hides
/// the processes of other users (`hidepid`), those.
pub fn tree_is_gone(keeper: &Process, cgroup: Option<&Path>, marker: &[u8]) -> Gone {
    match is_gone(keeper) {
        Gone::Gone => {}
        other => return other,
    }
    match cgroup.map(cgroup::is_populated) {
        None | Some(Ok(false)) => {}
        Some(Ok(true)) => return Gone::Alive,
        Some(Err(_)) => return Gone::Unknown,
    }
    // Twice: a process could fork into a number already passed and end before its own is reached.
    match carriers(marker, "", keeper.start) {
        Gone::Gone => carriers(marker, "", keeper.start),
        other => other,
    }
}

/// The process with this id, if there is one.
pub fn find(pid: i32) -> Option<Process> {
    start_of(pid).filter(|_| pid > 0).map(|start| Process { pid, start })
}

/// Whether a caller (S), its keeper and every process of its tree have ended, for somebody who knows only S and
/// what S wrote into the [`tag`](crate::Spec::tag) and the environment of its command.
///
/// As [`tree_is_gone`], with the keeper, and a command that has not been executed yet, known by the tag.
pub fn run_is_gone(caller: &Process, tag: &str, marker: &[u8]) -> Gone {
    match is_gone(caller) {
        Gone::Gone => {}
        other => return other,
    }
    let name = keeper_name(tag);
    match carriers(marker, &name, caller.start) {
        Gone::Gone => carriers(marker, &name, caller.start),
        other => other,
    }
}

/// What a keeper with this tag is called: as much as the kernel keeps of a name.
pub(crate) fn keeper_name(tag: &str) -> String {
    let tag: String = tag.chars().filter(char::is_ascii_alphanumeric).take(9).collect();
    if tag.is_empty() { "semel-keeper".to_owned() } else { format!("semel-{tag}") }
}

#[cfg(target_os = "linux")]
fn carriers(marker: &[u8], keeper: &str, since: u64) -> Gone {
    let me = std::process::id().cast_signed();
    let mut answer = Gone::Gone;
    let listed = procfs::numeric_entries(&procfs::root(), &mut |pid| {
        if answer != Gone::Alive && pid != me {
            match carries(pid, marker, keeper, since) {
                Gone::Gone => {}
                other => answer = other,
            }
        }
    });
    if listed { answer } else { Gone::Unknown }
}

/// Whether one process is *not* of the tree: `Gone`; or is: `Alive`.
#[cfg(target_os = "linux")]
fn carries(pid: i32, marker: &[u8], keeper: &str, since: u64) -> Gone {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    // In the middle of an exec the environment is empty for a moment: look again before believing it.
    for _ in 0..20 {
        let Some(stat) = Stat::read(pid) else { return Gone::Gone };
        if stat.start < since || stat.is_dead() || stat.flags & KERNEL_THREAD != 0 {
            return Gone::Gone;
        }
        if !keeper.is_empty()
            && std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim_end() == keeper)
        {
            return Gone::Alive;
        }
        match std::fs::read(format!("/proc/{pid}/environ")) {
            Ok(environ) if environ.is_empty() => std::thread::sleep(std::time::Duration::from_micros(100)),
            Ok(environ) if contains(&environ, marker) => return Gone::Alive,
            Ok(_) => return Gone::Gone,
            Err(error) if ended_meanwhile(&error) => return Gone::Gone,
            Err(_) => return Gone::Unknown,
        }
    }
    Gone::Gone
}

#[cfg(target_os = "linux")]
fn ended_meanwhile(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(target_os = "linux")]
fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}

#[cfg(not(target_os = "linux"))]
fn carriers(_marker: &[u8], _keeper: &str, _since: u64) -> Gone {
    // The environment of other processes is not to be had here.
    Gone::Unknown
}

#[cfg(not(target_os = "linux"))]
fn boot() -> io::Result<String> {
    let mut value = [0u8; 64];
    let mut length = value.len() - 1;
    // SAFETY: the name is a C string, the buffer valid for writes of the length given.
    sys::check(unsafe {
        libc::sysctlbyname(
            c"kern.bootsessionuuid".as_ptr(),
            value.as_mut_ptr().cast(),
            &mut length,
            std::ptr::null_mut(),
            0,
        )
    })?;
    let value = value.split(|byte| *byte == 0).next().unwrap_or(&[]);
    Ok(String::from_utf8_lossy(value).into_owned())
}

#[cfg(not(target_os = "linux"))]
fn pid_namespace() -> io::Result<u64> {
    Ok(0)
}

#[cfg(not(target_os = "linux"))]
fn start_of(pid: i32) -> Option<u64> {
    // SAFETY: an all-zero proc_bsdinfo is valid, and the call writes at most its size.
    unsafe {
        let mut info: libc::proc_bsdinfo = std::mem::zeroed();
        let size = i32::try_from(size_of::<libc::proc_bsdinfo>()).ok()?;
        let got = libc::proc_pidinfo(pid, libc::PROC_PIDTBSDINFO, 0, (&raw mut info).cast(), size);
        (got == size).then(|| info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec)
    }
}
