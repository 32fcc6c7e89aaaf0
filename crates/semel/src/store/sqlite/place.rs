//! Where the database lies: its folder, its mode and its file system.
//!
//! The file is never opened here. Closing any descriptor of it would drop the locks that SQLite holds in this
//! process, and with them acknowledged commits; so it is only made and looked at by its name.

use std::ffi::CString;
use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::{Path, PathBuf};

use super::super::OpenError;

/// Make the folder and an empty file, both for their owner alone, unless they are there. Nothing that exists is
/// widened or narrowed. Answers the absolute path.
pub(super) fn prepare(path: &Path) -> Result<PathBuf, OpenError> {
    let path = std::path::absolute(path)
        .map_err(|why| OpenError::Configuration(format!("{} is no path: {why}", path.display())))?;
    match std::fs::metadata(&path) {
        Ok(found) => check_kind(&path, &found)?,
        Err(why) if why.kind() == io::ErrorKind::NotFound => create(&path)?,
        Err(why) => return Err(unusable(&path, &why)),
    }
    refuse_network(&path, file_system(&path).map_err(|why| unusable(&path, &why))?)?;
    Ok(path)
}

/// A shorter file cannot be a database, and SQLite would take it for an empty one and write over it.
const SHORTEST: u64 = 512;

fn check_kind(path: &Path, found: &Metadata) -> Result<(), OpenError> {
    let kind = found.file_type();
    let what = match () {
        () if kind.is_file() && (1..SHORTEST).contains(&found.len()) => {
            return Err(OpenError::Configuration(format!(
                "{} is not a SQLite database ({} bytes): give another path",
                path.display(),
                found.len()
            )));
        }
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() || kind.is_socket() => "a pipe or a socket",
        () => "a device",
    };
    Err(OpenError::Configuration(format!("{} is {what}: give the path of a file", path.display())))
}

fn create(path: &Path) -> Result<(), OpenError> {
    if path.is_symlink() {
        let message = format!("{} is a link to a file that does not exist: remove it", path.display());
        return Err(OpenError::Configuration(message));
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let standing = nearest(folder);
    refuse_network(path, file_system(standing).map_err(|why| unusable(path, &why))?)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|why| unusable(path, &why))?;
    // the names of new folders must survive a power cut as well as what lies in them
    for made in folder.ancestors().take_while(|folder| *folder != standing) {
        let above = made.parent().unwrap_or(Path::new("/"));
        std::fs::File::open(above)
            .and_then(|folder| folder.sync_all())
            .map_err(|why| unusable(path, &why))?;
    }
    match make_file(path) {
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => Err(unusable(path, &why)),
        _ => Ok(()),
    }
}

/// The nearest folder that exists.
fn nearest(folder: &Path) -> &Path {
    folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("/"))
}

/// An empty file for its owner alone, made without opening it. SQLite gives its -wal and -shm the same mode.
#[cfg(target_os = "linux")]
pub(super) fn make_file(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the name ends with a nul.
    match unsafe { libc::mknod(name.as_ptr(), libc::S_IFREG | 0o600, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An empty file for its owner alone. Elsewhere than on Linux a regular file is made by opening it; it is closed
/// before it has the name under which another thread could lock it.
#[cfg(not(target_os = "linux"))]
pub(super) fn make_file(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let nonce = getrandom::u64().map_err(io::Error::other)?;
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{nonce:016x}"));
    drop(std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?);
    let linked = std::fs::hard_link(&draft, path);
    std::fs::remove_file(&draft)?;
    linked
}

fn unusable(path: &Path, why: &io::Error) -> OpenError {
    let path = path.display();
    match why.kind() {
        io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            OpenError::Configuration(format!("{path} cannot be a file ({why}): give another path"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenError::Unavailable(format!(
            "the disk is full: {path} cannot be made ({why}): free some space"
        )),
        _ => OpenError::Unavailable(format!(
            "cannot make or reach {path} ({why}): check the owner and the mode of its folder"
        )),
    }
}

/// File systems where locks between machines are missing, optional or have lied before, by `statfs` type.
const NETWORK: [(u64, &str); 13] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x00c3_6400, "Ceph"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0102_1997, "9p"),
    (0x0bd0_0bd0, "Lustre"),
    (0x6573_5546, "FUSE"),
];

/// Refuse a file system that may be shared between machines. FUSE is refused as well: sshfs and its kind are
/// network file systems, and which kind it is cannot be told from here.
pub(super) fn refuse_network(path: &Path, f_type: u64) -> Result<(), OpenError> {
    // a 32-bit type may have been sign-extended on its way
    let f_type = f_type & 0xffff_ffff;
    match NETWORK.iter().find(|(number, _)| *number == f_type) {
        None => Ok(()),
        Some((_, name)) => Err(OpenError::Configuration(format!(
            "{} lies on {name}, where SQLite's locks cannot be trusted: \
             give a path on a local disk, or share with dir:PATH or postgres://",
            path.display()
        ))),
    }
}

#[cfg(target_os = "linux")]
fn file_system(path: &Path) -> io::Result<u64> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the name ends with a nul, and `found` has room for the answer.
    if unsafe { libc::statfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled it.
    let f_type = unsafe { found.assume_init() }.f_type;
    // its type differs between architectures; the bits are what is compared
    #[allow(clippy::unnecessary_cast)]
    Ok(f_type as u64)
}

/// Elsewhere the numbers mean nothing: the kernel says whether a file system is local.
#[cfg(target_os = "macos")]
fn file_system(path: &Path) -> io::Result<u64> {
    let name = CString::new(path.as_os_str().as_bytes())?;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the name ends with a nul, and `found` has room for the answer.
    if unsafe { libc::statfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has filled it.
    let flags = unsafe { found.assume_init() }.f_flags;
    Ok(if flags & libc::MNT_LOCAL as u32 == 0 { 0x6969 } else { 0 })
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn file_system(_: &Path) -> io::Result<u64> {
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_refused_and_local_ones_are_not() {
        let path = Path::new("/x/state.db");
        // ext, btrfs, xfs, tmpfs, overlayfs, zfs, f2fs, bcachefs, ramfs
        for local in [
            0xef53,
            0x9123_683e,
            0x5846_5342,
            0x0102_1994,
            0x794c_7630,
            0x2fc1_2fc1,
            0xf2f5_2010,
            0xca45_1a4e,
            0x8584_58f6,
        ] {
            assert!(refuse_network(path, local).is_ok(), "{local:x}");
        }
        for (number, name) in NETWORK {
            for seen in [number, number | 0xffff_ffff_0000_0000] {
                let Err(OpenError::Configuration(message)) = refuse_network(path, seen) else {
                    unreachable!("{name} was let through");
                };
                assert!(message.contains(name) && message.contains("/x/state.db"), "{message}");
                assert!(message.contains("dir:") && message.contains("postgres://"), "{message}");
            }
        }
    }
}
