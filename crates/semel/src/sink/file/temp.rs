//! Temp files: made private, locked by their writer, dressed like what they replace, swept when the writer is gone.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use semel_core::token::Nonce;

use super::error::FileSinkError;
use super::place::{Like, Place};

/// Between the target's name and the random digits.
const MARK: &[u8] = b".semel-";
const DIGITS: usize = 16;

/// How much longer than the name a temp file's name is.
pub(super) const NAME_EXTRA: usize = 1 + MARK.len() + DIGITS;

/// How much of the content is in memory.
const PIECE: usize = 128 * 1024;

/// What a new target keeps of the old one's attributes. Not those that speak of the content, as capabilities do.
pub(super) const OF_TARGET: &[&str] = &[ACCESS_LIST, "security.selinux", "user."];
/// What a fence takes of its target's.
pub(super) const OF_FENCE: &[&str] = &[ACCESS_LIST];
/// Without it the group's bits would mean more than they did.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// A file that is not there yet under its name. Removed when dropped.
#[derive(Debug)]
pub(super) struct Draft {
    file: Option<File>,
    path: PathBuf,
}

impl Draft {
    /// A new file for this name, private and locked.
    pub(super) fn create(folder: &Path, name: &OsStr) -> Result<Draft, FileSinkError> {
        let path = folder.join(temp_name(name, random()?));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|why| FileSinkError::io("cannot make the temp file", &path, &why))?;
        // whoever sweeps may have it for the moment in which it removes it; that shows when it is to be renamed
        let locked = file.try_lock();
        let draft = Draft { file: Some(file), path };
        match locked {
            Err(fs::TryLockError::Error(why)) => Err(FileSinkError::io("cannot lock", &draft.path, &why)),
            _ => Ok(draft),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&mut self) -> Result<&mut File, FileSinkError> {
        self.file.as_mut().ok_or_else(|| FileSinkError::Failed("the temp file is gone".into()))
    }

    /// Copy the content into it, in pieces. Answers its length.
    pub(super) fn fill(&mut self, mut content: impl Read) -> Result<u64, FileSinkError> {
        let path = self.path.clone();
        let file = self.file()?;
        let mut piece = vec![0; PIECE];
        let mut bytes = 0;
        loop {
            let length = match content.read(&mut piece) {
                Ok(0) => return Ok(bytes),
                Ok(length) => length,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(why) => return Err(FileSinkError::Source(why)),
            };
            // a reader that claims more than there is room for is no reason to panic
            let piece = piece.get(..length).unwrap_or_default();
            file.write_all(piece).map_err(|why| FileSinkError::io("cannot write", &path, &why))?;
            bytes += piece.len() as u64;
        }
    }

    /// Give it the looks of the file that it replaces, as far as the system permits it. Answers whether owner and
    /// group are the same.
    pub(super) fn dress(&mut self, like: Option<&Like>, attributes: &[&str]) -> Result<bool, FileSinkError> {
        let Some(like) = like else { return Ok(true) };
        let path = self.path.clone();
        let file = self.file()?;
        let failed = |why: io::Error| FileSinkError::io("cannot give the old file's mode to", &path, &why);
        let is = file.metadata().map_err(failed)?;
        if (is.uid(), is.gid()) != (like.uid, like.gid)
            && fchown(&*file, Some(like.uid), Some(like.gid)).is_err()
        {
            // not ours to give away; the group may be
            let _ = fchown(&*file, None, Some(like.gid));
        }
        let is = file.metadata().map_err(failed)?;
        let mode = mode(like.mode, is.gid() == like.gid);
        file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
        attributes::copy(&like.path, file, attributes).map_err(failed)?;
        Ok((is.uid(), is.gid()) == (like.uid, like.gid))
    }

    pub(super) fn sync(&mut self) -> Result<(), FileSinkError> {
        let path = self.path.clone();
        self.file()?.sync_all().map_err(|why| FileSinkError::io("cannot sync", &path, &why))
    }

    /// Give it its name.
    pub(super) fn rename(self, to: &Path) -> Result<(), FileSinkError> {
        self.rename_locked(to).map(drop)
    }

    /// Give it its name, and keep its lock.
    pub(super) fn rename_locked(mut self, to: &Path) -> Result<File, FileSinkError> {
        fs::rename(&self.path, to).map_err(|why| FileSinkError::io("cannot replace", to, &why))?;
        self.file.take().ok_or_else(|| FileSinkError::Failed("the temp file is gone".into()))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The permissions of the new file. Set-user and set-group bits go, as with any write; a group that is another one
/// gets what everybody has.
fn mode(old: u32, group_kept: bool) -> u32 {
    let mode = old & 0o777;
    if group_kept { mode } else { mode & (0o707 | (mode & 0o007) << 3) }
}

/// Make the names in a folder survive a power cut.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    match File::open(folder)?.sync_all() {
        // some file systems have nothing to sync there
        Err(why) if why.kind() == io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    }
}

/// Remove the temp files of writers that are gone. Called with the fence locked: a temp file of a living writer was
/// locked before its fence was let go. Those of the first fence alone are not; whoever made one tries again.
pub(super) fn sweep(place: &Place) {
    let Ok(listed) = fs::read_dir(&place.folder) else { return };
    for entry in listed.flatten() {
        let name = entry.file_name();
        if !is_temp_of(&name, &place.name) && !is_temp_of(&name, &place.fence_name) {
            continue;
        }
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(entry.path());
        let Ok(file) = opened else { continue };
        // what cannot be removed now is tried again with the next grant
        if file.metadata().is_ok_and(|found| found.is_file()) && file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn temp_name(name: &OsStr, random: u64) -> OsString {
    let mut temp = vec![b'.'];
    temp.extend_from_slice(name.as_bytes());
    temp.extend_from_slice(MARK);
    temp.extend_from_slice(format!("{random:016x}").as_bytes());
    OsString::from_vec(temp)
}

/// The name of the file that this is a temp file of.
fn original(temp: &OsStr) -> Option<&[u8]> {
    let rest = temp.as_bytes().strip_prefix(b".")?;
    let (rest, digits) = rest.split_at_checked(rest.len().checked_sub(DIGITS)?)?;
    let random = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    rest.strip_suffix(MARK).filter(|name| random && !name.is_empty())
}

pub(super) fn is_temp(name: &OsStr) -> bool {
    original(name).is_some()
}

fn is_temp_of(temp: &OsStr, name: &OsStr) -> bool {
    original(temp) == Some(name.as_bytes())
}

fn random() -> Result<u64, FileSinkError> {
    getrandom::u64().map_err(no_randomness)
}

/// A nonce that no grant has.
pub(super) fn random_nonce() -> Result<Nonce, FileSinkError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(no_randomness)?;
    Ok(Nonce::from_bytes(bytes))
}

fn no_randomness(why: getrandom::Error) -> FileSinkError {
    FileSinkError::Failed(format!("the system has no random numbers ({why}): nothing was written"))
}

#[cfg(target_os = "linux")]
mod attributes {
    use std::ffi::{CStr, CString};
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::ACCESS_LIST;

    /// The kernel's own limit for a list of names and for a value.
    const LIMIT: usize = 64 * 1024;

    /// Copy the attributes that begin with one of these. The access list must be copied; others where permitted.
    pub(super) fn copy(from: &Path, to: &File, wanted: &[&str]) -> io::Result<()> {
        let path = CString::new(from.as_os_str().as_bytes())?;
        let mut buffer = vec![0_u8; LIMIT];
        let Some(names) = list(&path, &mut buffer) else { return Ok(()) };
        let mut value = vec![0_u8; LIMIT];
        for name in names.split_inclusive(|byte| *byte == 0) {
            let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
            let is = |prefix: &&str| name.to_bytes().starts_with(prefix.as_bytes());
            if !wanted.iter().any(is) {
                continue;
            }
            let copied = copy_one(&path, to, name, &mut value);
            if name.to_bytes() == ACCESS_LIST.as_bytes() {
                copied?;
            }
        }
        Ok(())
    }

    /// The names, each with its nul; none where the file system has no such thing.
    fn list<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        // SAFETY: the path ends with a nul, and the buffer is as long as it says.
        let length = unsafe { libc::llistxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
        buffer.get(..usize::try_from(length).ok()?)
    }

    fn copy_one(path: &CStr, to: &File, name: &CStr, value: &mut [u8]) -> io::Result<()> {
        // SAFETY: path and name end with a nul, and the buffer is as long as it says.
        let length =
            unsafe { libc::lgetxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
        let Ok(length) = usize::try_from(length) else { return Err(io::Error::last_os_error()) };
        // SAFETY: the descriptor is open, the name ends with a nul, and so many bytes have just been filled.
        match unsafe { libc::fsetxattr(to.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), length, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod attributes {
    /// Elsewhere modes and owners are all that is kept.
    pub(super) fn copy(_: &std::path::Path, _: &std::fs::File, _: &[&str]) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temp_file_is_known_by_its_name_and_by_whose_it_is() {
        let name = temp_name(OsStr::new("index.html"), 7);
        assert_eq!(name, ".index.html.semel-0000000000000007");
        assert_eq!(name.len(), "index.html".len() + NAME_EXTRA);
        assert!(is_temp_of(&name, OsStr::new("index.html")));
        for other in ["index.htm", "html", "index.html.fence", "", "x.index.html"] {
            assert!(!is_temp_of(&name, OsStr::new(other)), "{other}");
        }
        for no in
            ["", ".", "a", ".semel-0000000000000007", ".a.semel-000000000000000", ".a.semel-000000000000000G"]
        {
            assert!(!is_temp(OsStr::new(no)), "{no}");
        }
    }

    #[test]
    fn another_group_gets_what_everybody_has() {
        assert_eq!(mode(0o100_644, true), 0o644);
        assert_eq!(mode(0o104_755, true), 0o755);
        assert_eq!(mode(0o100_664, false), 0o644);
        assert_eq!(mode(0o100_660, false), 0o600);
        assert_eq!(mode(0o100_604, false), 0o604);
        assert_eq!(mode(0o100_620, false), 0o600);
    }
}
