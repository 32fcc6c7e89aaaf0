//! The cgroup v2 leaf of one tree: `semel-<pid>-<hex>` below the caller's own cgroup.
//!
//! What it adds to the subreaper: a kill that is atomic against forks, and a record outside the processes
//! themselves that tells a third party whether any is left. It is made by S, entered by the command as it is
//! created (`CLONE_INTO_CGROUP`; moving a process later is slower), removed by whoever ends the tree.
//! If S and K are both killed the empty directory stays behind until somebody removes it or the machine boots.

use std::ffi::{CStr, CString, OsStr};
use std::io::{self, Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

/// Remove empty leaves of callers that are gone, below our own cgroup: what stays behind when a caller and its
/// keeper are killed at once. Answers how many.
pub fn remove_stale_leaves() -> usize {
    let Ok(entries) = own_cgroup().and_then(std::fs::read_dir) else { return 0 };
    let stale = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("semel-")?.split('-').next()?.parse().ok());
        pid.is_some_and(|pid: i32| crate::process::find(pid).is_none())
    });
    // the kernel refuses to remove one that has processes in it
    stale.filter(|entry| std::fs::remove_dir(entry.path()).is_ok()).count()
}

/// A short C string that lies where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InPlace([u8; 64]);

impl InPlace {
    /// `None`: it is too long, or has a nul in it.
    pub(crate) fn new(text: &str) -> Option<InPlace> {
        let mut bytes = [0u8; 64];
        bytes.get_mut(..text.len()).filter(|room| room.len() < 64)?.copy_from_slice(text.as_bytes());
        (!text.contains('\0')).then_some(InPlace(bytes))
    }

    pub(crate) fn get(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

/// A leaf that exists.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) path: PathBuf,
    /// In place, not on the heap: the keeper reads it, and may have none.
    name: InPlace,
    /// The cgroup it was made in.
    above: OwnedFd,
    dir: OwnedFd,
    kill: OwnedFd,
}

impl Leaf {
    pub(crate) fn make() -> io::Result<Leaf> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let own = own_cgroup()?;
        let nanos = crate::clock::nanos(crate::clock::boottime());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("semel-{}-{nanos:x}{count:x}", std::process::id());
        let above = open_at(libc::AT_FDCWD, &CString::new(own.as_os_str().as_bytes())?, libc::O_DIRECTORY)?;
        let path = own.join(&name);
        let name = InPlace::new(&name).ok_or(ErrorKind::InvalidInput)?;
        // SAFETY: `name` is a valid C string, `above` an open directory.
        sys::check(unsafe { libc::mkdirat(above.as_raw_fd(), name.get().as_ptr(), 0o755) })?;
        let open = || -> io::Result<_> {
            let dir = open_at(above.as_raw_fd(), name.get(), libc::O_DIRECTORY)?;
            // Not there before Linux 5.14: without it the leaf is of no use.
            let kill = open_at(dir.as_raw_fd(), c"cgroup.kill", libc::O_WRONLY)?;
            Ok((dir, kill))
        };
        match open() {
            Ok((dir, kill)) => Ok(Leaf { path, name, above, dir, kill }),
            Err(error) => {
                remove_at(above.as_raw_fd(), name.get(), 0);
                Err(error)
            }
        }
    }

    pub(crate) fn dir_fd(&self) -> RawFd {
        self.dir.as_raw_fd()
    }

    /// What the keeper must keep open.
    pub(crate) fn fds(&self) -> [RawFd; 3] {
        [self.above.as_raw_fd(), self.dir.as_raw_fd(), self.kill.as_raw_fd()]
    }

    /// What says whether there are processes in it or below; -1 if it cannot be opened.
    pub(crate) fn open_events(&self) -> RawFd {
        // SAFETY: a valid C string, and an open directory.
        unsafe {
            libc::openat(self.dir.as_raw_fd(), c"cgroup.events".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)
        }
    }

    /// No process is in it or below, by what [`open_events`](Leaf::open_events) gave. Allocates nothing.
    pub(crate) fn is_empty(&self, events: RawFd) -> bool {
        const EMPTY: &[u8] = b"populated 0\n";
        // as for `remove`
        (0..50).any(|_| {
            let mut text = [0u8; 128];
            // SAFETY: the buffer is valid for writes of its length.
            let n = unsafe { libc::pread(events, text.as_mut_ptr().cast(), text.len(), 0) };
            let text = usize::try_from(n).ok().and_then(|n| text.get(..n)).unwrap_or_default();
            let is_empty = text.windows(EMPTY.len()).any(|line| line == EMPTY);
            if !is_empty {
                // SAFETY: no memory is involved.
                unsafe { libc::sched_yield() };
            }
            is_empty
        })
    }

    /// KILL everything in it and below. Allocates nothing.
    pub(crate) fn kill(&self) {
        // SAFETY: the byte is valid for reads.
        unsafe { libc::write(self.kill.as_raw_fd(), c"1".as_ptr().cast(), 1) };
    }

    /// Remove it, and what the command made below. `false`: there are still processes in it.
    /// Allocates nothing.
    pub(crate) fn remove(&self) -> bool {
        // The last process is reaped a moment before its cgroup counts as empty.
        (0..50).any(|_| {
            let removed = remove_at(self.above.as_raw_fd(), self.name.get(), 0);
            if !removed {
                // SAFETY: no memory is involved.
                unsafe { libc::sched_yield() };
            }
            removed
        })
    }
}

fn open_at(dir: RawFd, name: &CStr, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: `name` is a valid C string; the result is new and nobody else's.
    unsafe {
        Ok(OwnedFd::from_raw_fd(sys::check(libc::openat(dir, name.as_ptr(), flags | libc::O_CLOEXEC))?))
    }
    .and_then(sys::above_stdio)
}

fn remove_at(above: RawFd, name: &CStr, depth: u32) -> bool {
    let rmdir = || {
        // SAFETY: `name` is a valid C string.
        let failed = unsafe { libc::unlinkat(above, name.as_ptr(), libc::AT_REMOVEDIR) } != 0;
        if failed { sys::errno() } else { 0 }
    };
    let is_busy = |errno| matches!(errno, libc::EBUSY | libc::ENOTEMPTY);
    if !is_busy(rmdir()) {
        return true;
    }
    // Busy: processes, or groups below it (a nested supervisor killed together with its keeper leaves one).
    if depth < 8 {
        // SAFETY: as above.
        let dir = unsafe { libc::openat(above, name.as_ptr(), libc::O_DIRECTORY | libc::O_CLOEXEC) };
        if dir >= 0 {
            crate::procfs::entries(dir, &mut |name, kind| {
                let mut copy = [0u8; 256];
                if kind == libc::DT_DIR
                    && name != b"."
                    && name != b".."
                    && let Some(slot) = copy.get_mut(..name.len())
                {
                    slot.copy_from_slice(name);
                    if let Ok(name) = CStr::from_bytes_until_nul(&copy) {
                        remove_at(dir, name, depth.saturating_add(1));
                    }
                }
            });
            sys::close(dir);
        }
    }
    !is_busy(rmdir())
}

/// Where our own cgroup is in the file system: mount point of the v2 hierarchy + our path in it.
fn own_cgroup() -> io::Result<PathBuf> {
    let cgroups = std::fs::read("/proc/self/cgroup")?;
    // Where it nearly always is: a host with many containers has a mount table of a thousand lines.
    for point in [c"/sys/fs/cgroup", c"/sys/fs/cgroup/unified"] {
        if is_cgroup2(point)
            && let Some(own) = own_path(&cgroups).and_then(|own| own.strip_prefix(b"/"))
        {
            let path = Path::new(OsStr::from_bytes(point.to_bytes())).join(OsStr::from_bytes(own));
            if path.is_dir() {
                return Ok(path);
            }
        }
    }
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    locate(&cgroups, &mounts).ok_or_else(|| Error::new(ErrorKind::NotFound, "no cgroup v2 hierarchy"))
}

fn is_cgroup2(path: &CStr) -> bool {
    const MAGIC: i64 = 0x6367_7270;
    // SAFETY: a valid C string; an all-zero statfs is valid and only written to.
    #[allow(clippy::unnecessary_cast)]
    unsafe {
        let mut about: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &mut about) == 0 && about.f_type as i64 == MAGIC
    }
}

fn own_path(cgroups: &[u8]) -> Option<&[u8]> {
    cgroups.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"0::"))
}

fn locate(cgroups: &[u8], mounts: &[u8]) -> Option<PathBuf> {
    let own = own_path(cgroups)?;
    for line in mounts.split(|byte| *byte == b'\n') {
        // id parent device root mount-point options [tags…] - type source options
        let mut fields = line.split(|byte| *byte == b' ');
        let (Some(root), Some(point)) = (fields.nth(3), fields.next()) else { continue };
        if fields.by_ref().find(|field| *field == b"-").is_none() || fields.next() != Some(b"cgroup2") {
            continue;
        }
        // A mount may show only a part of the hierarchy (containers do that).
        let root = Path::new(OsStr::from_bytes(root));
        let Ok(below) = Path::new(OsStr::from_bytes(own)).strip_prefix(root) else { continue };
        return Some(PathBuf::from(OsStr::from_bytes(&unescape(point))).join(below));
    }
    None
}

/// mountinfo writes space, tab, newline and backslash as `\ooo`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) = (first, tail) {
            out.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
            rest = after;
        } else {
            out.push(*first);
            rest = tail;
        }
    }
    out
}

/// Whether any process is in the cgroup at `path` or below; an absent cgroup has none.
pub(crate) fn is_populated(path: &Path) -> io::Result<bool> {
    match std::fs::read(path.join("cgroup.events")) {
        Ok(events) => Ok(!events.split(|byte| *byte == b'\n').any(|line| line == b"populated 0")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        // Removed between open and read.
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hybrid_mount_is_found_and_escapes_are_read() {
        let mounts = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n\
            41 31 0:38 / /sys/my\\040groups/unified rw shared:3 - cgroup2 cgroup2 rw\n";
        let found = locate(b"9:name=systemd:/\n0::/a/b\n", mounts);
        assert_eq!(found, Some(PathBuf::from("/sys/my groups/unified/a/b")));
    }

    #[test]
    fn a_partial_mount_shows_our_path_without_its_root() {
        let mounts = b"41 31 0:38 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(locate(b"0::/docker/x/y\n", mounts), Some(PathBuf::from("/sys/fs/cgroup/y")));
        assert_eq!(locate(b"0::/elsewhere\n", mounts), None);
        assert_eq!(locate(b"9:name=systemd:/\n", mounts), None);
    }
}
