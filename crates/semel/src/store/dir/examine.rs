//! What `semel doctor` should know of the folder.

use std::io;
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use super::super::Finding;
use super::fault::Fault;
use super::records::Records;
use crate::clock::{Clock, SystemClock};

const RACERS: usize = 8;
const ROUNDS: usize = 20;

/// File systems, by the number that `statfs` gives: name, what is to be known, and whether it is a wrong place.
const KINDS: [(u64, &str, Known); 17] = [
    (0xef53, "ext4", Known::Local),
    (0x5846_5342, "XFS", Known::Local),
    (0x9123_683e, "btrfs", Known::Local),
    (0x2fc1_2fc1, "ZFS", Known::Local),
    (0xf2f5_2010, "F2FS", Known::Local),
    (0x794c_7630, "overlayfs", Known::Layered),
    (0x0102_1994, "tmpfs", Known::Lost),
    (0x8584_58f6, "ramfs", Known::Lost),
    (0x6969, "NFS", Known::Server),
    (0x00c3_6400, "Ceph", Known::Shared),
    (0x0bd0_0bd0, "Lustre", Known::Shared),
    (0x0116_1970, "GFS2", Known::Shared),
    (0x7461_636f, "OCFS2", Known::Shared),
    (0xff53_4d42, "SMB", Known::Untried),
    (0xfe53_4d42, "SMB", Known::Untried),
    (0x0102_1997, "9p", Known::Untried),
    (0x6573_5546, "FUSE", Known::Untried),
];

#[derive(Clone, Copy)]
enum Known {
    Local,
    Layered,
    Lost,
    Server,
    Shared,
    Untried,
}

impl Records {
    pub(super) fn examine(&self) -> Result<Vec<Finding>, Fault> {
        let mut findings = vec![self.kind(), self.links()?, self.clock()?, self.space(), self.mode()?];
        findings.extend(mount(&self.place.path).iter().flat_map(|options| cautions(options)));
        Ok(findings)
    }

    fn kind(&self) -> Finding {
        let name = "file system";
        let Some(number) = statfs(&self.place.path) else {
            return Finding::note(name, "its kind cannot be told here", "");
        };
        let Some((_, kind, known)) = KINDS.iter().find(|(known, ..)| *known == number & 0xffff_ffff) else {
            let mend = "use one on which semel is known to work, such as NFS, ext4 or XFS";
            return Finding::note(name, format!("its kind, {number:#x}, is not known"), mend);
        };
        match known {
            Known::Local => Finding::good(name, format!("{kind}, for the processes of this machine")),
            Known::Shared => Finding::good(name, format!("{kind}, for all machines that mount it")),
            Known::Server => Finding::note(
                name,
                format!("{kind}, for all machines that mount it"),
                "what was answered survives a power cut only if the server exports it with sync",
            ),
            Known::Layered => Finding::note(
                name,
                format!("{kind}, whose content goes with its container"),
                "give a folder on a volume that stays",
            ),
            Known::Lost => Finding::wrong(
                name,
                format!("{kind}: all outcomes are lost at a reboot"),
                "give a folder on a disk or on a file server",
            ),
            Known::Untried => Finding::note(
                name,
                format!("{kind}: whether a link is exclusive among machines depends on what is behind it"),
                "use NFS, or a store over the network, for more than one machine",
            ),
        }
    }

    /// Is a link made once only, however many make it at once?
    fn links(&self) -> Result<Finding, Fault> {
        let name = "compare and swap";
        let fault = self.fault("race for a link");
        for _ in 0..ROUNDS {
            let target = self.place.fresh()?;
            let drafts = (0..RACERS)
                .map(|_| {
                    let draft = self.place.fresh()?;
                    self.place.make_file(&draft).map_err(&fault)?;
                    Ok(draft)
                })
                .collect::<Result<Vec<_>, Fault>>()?;
            let barrier = Barrier::new(RACERS);
            let links: Vec<io::Result<()>> = std::thread::scope(|scope| {
                let racers: Vec<_> = drafts
                    .iter()
                    .map(|draft| {
                        scope.spawn(|| {
                            barrier.wait();
                            self.place.drafts.link(&target, &self.place.drafts, draft)
                        })
                    })
                    .collect();
                let lost = || Err(io::Error::other("a thread ended"));
                racers.into_iter().map(|racer| racer.join().unwrap_or_else(|_| lost())).collect()
            });
            for name in drafts.iter().chain([&target]) {
                self.place.drafts.unlink(name).map_err(&fault)?;
            }
            let winners = links.iter().filter(|link| link.is_ok()).count();
            if winners != 1 {
                return Ok(Finding::wrong(
                    name,
                    format!(
                        "{winners} of {RACERS} racing links of one name were made: two could hold one lease"
                    ),
                    "give a folder on another file system",
                ));
            }
        }
        Ok(Finding::good(
            name,
            format!("one of {RACERS} racing links was made, in {ROUNDS} of {ROUNDS} rounds"),
        ))
    }

    /// The file server's clock beside this machine's, which decides nothing.
    fn clock(&self) -> Result<Finding, Fault> {
        let mut whole = true;
        let mut now = Duration::ZERO;
        for _ in 0..3 {
            now = self.place.now()?;
            whole &= now.subsec_nanos() == 0;
        }
        let ours = i128::from(SystemClock.wall_ms());
        let theirs = i128::try_from(now.as_millis()).unwrap_or(i128::MAX);
        let off_ms = theirs - ours;
        let what =
            format!("the file server's clock is {off_ms} ms off this machine's, which decides nothing");
        Ok(if whole {
            let mend = "leases last up to one second longer than they say";
            Finding::note("clock", "the file system keeps whole seconds", mend)
        } else if off_ms.abs() > 60_000 {
            Finding::note("clock", what, "times shown to people come from both: set the clocks by NTP")
        } else {
            Finding::good("clock", what)
        })
    }

    fn space(&self) -> Finding {
        let name = "space";
        match free(&self.place.path) {
            None => Finding::note(name, "free space cannot be told here", ""),
            Some((mb, files)) if mb < 100 || files < 10_000 => Finding::wrong(
                name,
                format!("{mb} MB and {files} files are left"),
                "free some space: a full folder settles nothing",
            ),
            Some((mb, _)) => Finding::good(name, format!("{mb} MB are free")),
        }
    }

    fn mode(&self) -> Result<Finding, Fault> {
        use std::os::unix::fs::MetadataExt;
        let root = self.place.root.as_file().and_then(|root| root.metadata());
        let mode = root.map_err(self.fault("look at the folder"))?.mode() & 0o7777;
        let what = format!("mode {mode:04o}");
        Ok(if mode & 0o002 != 0 {
            let mend = "anybody may remove it: chmod 0700, or 2770 to share it within a group";
            Finding::wrong("mode", what, mend)
        } else if mode & 0o020 != 0 && mode & 0o2000 == 0 {
            let mend = "chmod g+s, so that what each makes there is the group's";
            Finding::note("mode", format!("{what}: shared, but new files have their maker's group"), mend)
        } else if mode & 0o020 != 0 {
            Finding::good("mode", format!("{what}: shared within its group"))
        } else {
            Finding::good("mode", format!("{what}: its owner's alone"))
        })
    }
}

/// The options of the mount that a path lies on.
fn mount(path: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let longest = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (at, kind, options) = (words.next()?, words.next()?, words.next()?);
            (kind.starts_with("nfs") && path.starts_with(at)).then_some((at.len(), options))
        })
        .max()?;
    Some(longest.1.to_owned())
}

/// What the options of an NFS mount mean here.
fn cautions(options: &str) -> Vec<Finding> {
    let has = |wanted: &str| options.split(',').any(|option| option == wanted);
    let mut findings = Vec::new();
    if has("nocto") {
        findings.push(Finding::wrong(
            "mount",
            "it is mounted with nocto: what others wrote may be seen a minute late",
            "mount it without nocto",
        ));
    }
    if has("soft") || has("softerr") {
        findings.push(Finding::note(
            "mount",
            "it is mounted with soft: a slow server ends calls with an error, which is told as no answer",
            "mount it with hard; semel keeps its own deadline",
        ));
    }
    findings
}

#[cfg(target_os = "linux")]
fn statfs(path: &Path) -> Option<u64> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the name ends with a nul, and `found` has room for the answer.
    if unsafe { libc::statfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has filled it. Its type differs between architectures; the bits are what is compared.
    #[allow(clippy::unnecessary_cast)]
    Some(unsafe { found.assume_init() }.f_type as u64)
}

#[cfg(not(target_os = "linux"))]
fn statfs(_: &Path) -> Option<u64> {
    None
}

/// Megabytes and files that are free; a file system that does not count files has as many as one likes.
fn free(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the name ends with a nul, and `found` has room for the answer.
    if unsafe { libc::statvfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let found = unsafe { found.assume_init() };
    // their types differ between systems
    #[allow(clippy::unnecessary_cast)]
    let (blocks, size, all, files) =
        (found.f_bavail as u64, found.f_frsize as u64, found.f_files as u64, found.f_favail as u64);
    Some((blocks.saturating_mul(size) >> 20, if all == 0 { u64::MAX } else { files }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Grade;

    #[test]
    fn mounts_that_break_a_promise_are_told() {
        assert!(cautions("rw,relatime,vers=4.2,hard,proto=tcp").is_empty());
        let found = cautions("rw,nocto,soft");
        assert_eq!(
            found.iter().map(|finding| finding.grade).collect::<Vec<_>>(),
            [Grade::Wrong, Grade::Note]
        );
    }
}
