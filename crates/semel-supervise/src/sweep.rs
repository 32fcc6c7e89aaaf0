//! Signal every descendant of a process, and nobody else.
//!
//! Theory. A pid is only a number until a pidfd pins the process behind it. So for each child: open the pidfd,
//! *then* read its parent. It is ours if the parent is the root itself (whose orphans all come to it), or the
//! process it was listed under, provided that one still exists (its own pidfd says so). A recycled number fails
//! one of the two. The children of a process are listed before it is signalled: were it to die first, they
//! would move to the root in the middle of the walk and be missed.
//!
//! The root must be a subreaper, or orphans would not come to it.
//!
//! One sweep is a snapshot: what forks during it may be missed. To end a tree, sweep until nothing is left.
//!
//! Limits: 1024 children per process and 48 levels in one sweep; the rest is met by the next one, because
//! killing a parent moves its children up to the root. Nothing here allocates: the keeper uses it.

use std::os::fd::RawFd;

use crate::procfs::{self, Stat};
use crate::sys;

const MAX_CHILDREN: usize = 1024;
const MAX_DEPTH: u32 = 48;

/// One walk over the descendants of `root`, which must be the calling process.
pub(crate) struct Sweep<'a> {
    pub(crate) root: i32,
    /// Sent in this order to each process.
    pub(crate) signals: &'a [i32],
    /// Direct children to leave alone, with all below them.
    pub(crate) spare: &'a [i32],
    /// Direct children that started before this (clock ticks after boot) are left alone.
    pub(crate) since: u64,
}

impl Sweep<'_> {
    /// Walk once; gives how many living processes were met.
    pub(crate) fn run(&self) -> u32 {
        let mut pids = [0; MAX_CHILDREN];
        let threads = Stat::read(self.root).map_or(1, |stat| stat.threads);
        match procfs::children(self.root, threads, &mut pids) {
            Some(count) => self.each(pids.get(..count).unwrap_or(&[]), self.root, -1, 0),
            None => self.scan(),
        }
    }

    fn each(&self, pids: &[i32], parent: i32, parent_fd: RawFd, depth: u32) -> u32 {
        let mut alive = 0u32;
        for &pid in pids {
            alive = alive.saturating_add(self.visit(pid, parent, parent_fd, depth));
        }
        alive
    }

    fn visit(&self, pid: i32, parent: i32, parent_fd: RawFd, depth: u32) -> u32 {
        let fd = pidfd_open(pid);
        if fd == GONE {
            return 0;
        }
        let mut alive = 0;
        if let Some(stat) = Stat::read(pid)
            && self.is_ours(pid, &stat, parent, parent_fd)
        {
            let mut pids = [0; MAX_CHILDREN];
            let count = match depth < MAX_DEPTH {
                true => procfs::children(pid, stat.threads, &mut pids).unwrap_or(0),
                false => 0,
            };
            self.signal(pid, fd);
            alive = u32::from(!stat.is_dead());
            alive = alive.saturating_add(self.each(
                pids.get(..count).unwrap_or(&[]),
                pid,
                fd,
                depth.saturating_add(1),
            ));
        }
        if fd >= 0 {
            sys::close(fd);
        }
        alive
    }

    fn is_ours(&self, pid: i32, stat: &Stat, parent: i32, parent_fd: RawFd) -> bool {
        if stat.parent == self.root {
            return stat.start >= self.since && !self.spare.contains(&pid);
        }
        stat.parent == parent && pidfd_signal(parent, parent_fd, 0)
    }

    fn signal(&self, pid: i32, fd: RawFd) {
        for &signo in self.signals {
            pidfd_signal(pid, fd, signo);
        }
    }

    /// For kernels that do not list children: look at every process and climb to see whether it is below us.
    fn scan(&self) -> u32 {
        let mut alive = 0u32;
        procfs::numeric_entries(&procfs::root(), &mut |pid| {
            let fd = pidfd_open(pid);
            if fd == GONE {
                return;
            }
            if let Some(stat) = Stat::read(pid)
                && self.descends(pid, stat)
            {
                self.signal(pid, fd);
                alive = alive.saturating_add(u32::from(!stat.is_dead()));
            }
            if fd >= 0 {
                sys::close(fd);
            }
        });
        alive
    }

    fn descends(&self, mut pid: i32, mut stat: Stat) -> bool {
        for _ in 0..MAX_DEPTH {
            if stat.parent == self.root {
                return stat.start >= self.since && !self.spare.contains(&pid);
            }
            pid = stat.parent;
            match Stat::read(pid) {
                Some(above) if pid > 1 => stat = above,
                _ => return false,
            }
        }
        false
    }
}

/// No such process.
const GONE: RawFd = -1;
/// The kernel has no pidfds (before 5.3), or we have no descriptor left: the plain pid has to do.
const UNPINNED: RawFd = -2;

#[cfg(target_os = "linux")]
fn pidfd_open(pid: i32) -> RawFd {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd >= 0 {
        return RawFd::try_from(fd).unwrap_or(GONE);
    }
    match sys::errno() {
        libc::ENOSYS | libc::EMFILE | libc::ENFILE | libc::EPERM => UNPINNED,
        _ => GONE,
    }
}

#[cfg(target_os = "linux")]
fn pidfd_signal(pid: i32, fd: RawFd, signo: i32) -> bool {
    if fd < 0 {
        return sys::kill(pid, signo);
    }
    // SAFETY: a null siginfo asks for the one kill(2) would send.
    unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, fd, signo, std::ptr::null::<libc::siginfo_t>(), 0) == 0
    }
}

#[cfg(not(target_os = "linux"))]
fn pidfd_open(_pid: i32) -> RawFd {
    UNPINNED
}

#[cfg(not(target_os = "linux"))]
fn pidfd_signal(pid: i32, _fd: RawFd, signo: i32) -> bool {
    sys::kill(pid, signo)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #![allow(clippy::unwrap_used, clippy::disallowed_methods)]
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn the_walk_and_the_scan_meet_the_same_processes() {
        assert!(sys::become_subreaper());
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & (sleep 60 & sleep 60; :); :"]);
        let mut child = command.spawn().unwrap();
        let pid = child.id().cast_signed();
        let start = Stat::read(pid).unwrap().start;
        let me = std::process::id().cast_signed();
        // No signal: only count, and only below this child, since other tests may have theirs.
        let sweep = Sweep { root: me, signals: &[], spare: &[], since: start };
        let mut seen = (0, 0);
        for _ in 0..2000 {
            seen = (sweep.visit(pid, me, -1, 0), {
                let mut below = 0;
                procfs::numeric_entries(&procfs::root(), &mut |other| {
                    let mut above = other;
                    while above > 1 && above != pid {
                        above = Stat::read(above).map_or(0, |stat| stat.parent);
                    }
                    let found = Stat::read(other).is_some_and(|stat| sweep.descends(other, stat));
                    below += u32::from(above == pid && found);
                });
                below
            });
            if seen == (5, 5) {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let kill = Sweep { root: me, signals: &[libc::SIGKILL], spare: &[], since: start };
        kill.visit(pid, me, -1, 0);
        child.wait().unwrap();
        assert_eq!(seen, (5, 5));
        let spared = Sweep { root: me, signals: &[], spare: &[pid], since: start };
        assert_eq!(spared.visit(pid, me, -1, 0), 0);
    }
}
