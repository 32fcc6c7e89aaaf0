//! This process, as an owner of leases.

use semel_core::owner::Owner;
use semel_core::token::Nonce;

use crate::engine::Neighbours;

fn pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

fn host() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for writes of the length given; its last byte stays NUL.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    let name = name.split(|byte| *byte == 0).next().filter(|name| !failed && !name.is_empty());
    name.map_or_else(|| "unknown".to_owned(), |name| String::from_utf8_lossy(name).into_owned())
}

/// This process, for people to read. Without a boot id nobody concludes anything from the process table: a child of
/// this process may go on after it.
pub(super) fn unwatched() -> Owner {
    Owner { host: host(), boot: String::new(), pidns: 0, pid: pid(), start: 0 }
}

/// This process, as others on this host that gave the same promise can recognise it.
///
/// To the command line it is a stranger, and the other way round: a run of the command line has processes of its
/// own, and whether those are gone is more than the owner's pid can tell.
#[cfg(target_os = "linux")]
pub(super) fn this_process() -> Option<Owner> {
    use std::os::unix::fs::MetadataExt;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot = format!("{} in-process", boot.trim());
    let pidns = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
    let start = start_of(pid())?;
    Some(Owner { host: host(), boot, pidns, pid: pid(), start })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn this_process() -> Option<Owner> {
    None
}

/// What `/proc` says of processes whose runs end with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processes;

impl Neighbours for Processes {
    fn is_gone(&self, owner: &Owner, _: &Nonce) -> bool {
        gone(owner)
    }
}

#[cfg(target_os = "linux")]
fn gone(owner: &Owner) -> bool {
    if owner.pid <= 0 {
        return false;
    }
    // SAFETY: signal 0 is sent to nobody.
    let missing = unsafe { libc::kill(owner.pid, 0) } != 0
        && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    missing || start_of(owner.pid).is_some_and(|start| start != owner.start)
}

#[cfg(not(target_os = "linux"))]
fn gone(_: &Owner) -> bool {
    false
}

/// When a process started, in ticks since boot: the 22nd field, counted from behind the name, which may hold
/// anything.
#[cfg(target_os = "linux")]
fn start_of(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(19)?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_one_that_ended_is_gone_and_nothing_is_concluded_of_an_unwatched_one() {
        let me = this_process().unwrap();
        let nonce = Nonce::from_bytes([7; 16]);
        assert!(!Processes.is_gone(&me, &nonce));
        assert!(Processes.is_gone(&Owner { start: me.start + 1, ..me.clone() }, &nonce), "a reused pid");
        #[allow(clippy::disallowed_methods)] // a process that is to be gone
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        let dead = Owner { pid: i32::try_from(child.id()).unwrap(), ..me.clone() };
        child.wait().unwrap();
        assert!(Processes.is_gone(&dead, &nonce));
        assert!(!unwatched().is_neighbour_of(&me));
    }
}
