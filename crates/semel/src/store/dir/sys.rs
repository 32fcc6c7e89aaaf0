//! System calls relative to an open folder, which the standard library has not.
//!
//! Why relative: a path may lead to another folder a moment later. An open descriptor stays with the folder that was
//! looked at, and once that one is removed nothing can be linked into it any more.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// A folder that is open.
#[derive(Debug)]
pub(super) struct Folder(OwnedFd);

/// The times of a file, by the file server's clock, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// When its content was last written, or its time set.
    pub(super) modified: Duration,
    /// When a name of it was last made or removed.
    pub(super) changed: Duration,
}

fn text(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

fn done(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

impl Folder {
    /// Open a folder. On NFS this asks the server whether what is cached of it still holds.
    pub(super) fn open(path: &Path) -> io::Result<Folder> {
        let name = text(path.as_os_str().as_bytes())?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the name ends with a nul.
        let fd = done(unsafe { libc::open(name.as_ptr(), flags) })?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(Folder(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Open a folder below it, as [`open`](Folder::open).
    pub(super) fn folder(&self, below: &Path) -> io::Result<Folder> {
        let name = text(below.as_os_str().as_bytes())?;
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the name ends with a nul and the descriptor is open.
        let fd = done(unsafe { libc::openat(self.0.as_raw_fd(), name.as_ptr(), flags) })?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(Folder(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The same folder as a file, to look at its times and its mode.
    pub(super) fn as_file(&self) -> io::Result<File> {
        self.0.try_clone().map(File::from)
    }

    /// Make a folder below it.
    pub(super) fn make_folder(&self, below: &Path, mode: u32) -> io::Result<()> {
        let name = text(below.as_os_str().as_bytes())?;
        // SAFETY: the name ends with a nul and the descriptor is open.
        done(unsafe { libc::mkdirat(self.0.as_raw_fd(), name.as_ptr(), mode as libc::mode_t) }).map(drop)
    }

    /// Remove an empty folder below it; no error if it has gone or is not empty.
    pub(super) fn remove_folder(&self, below: &Path) -> io::Result<()> {
        let name = text(below.as_os_str().as_bytes())?;
        // SAFETY: the name ends with a nul and the descriptor is open.
        match done(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), libc::AT_REMOVEDIR) }) {
            Err(why) if !is_gone(&why) && !is_taken(&why) => Err(why),
            _ => Ok(()),
        }
    }

    /// Move a folder below it; refused if there is one with something in it.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (text(from.as_os_str().as_bytes())?, text(to.as_os_str().as_bytes())?);
        let fd = self.0.as_raw_fd();
        // SAFETY: both names end with a nul and the descriptor is open.
        done(unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) }).map(drop)
    }

    /// Open a file in it to read.
    pub(super) fn file(&self, name: &str) -> io::Result<File> {
        self.open_at(name, libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_CLOEXEC, 0)
    }

    /// Make a file in it, to write.
    pub(super) fn make_file(&self, name: &str, mode: u32) -> io::Result<File> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        self.open_at(name, flags, mode)
    }

    fn open_at(&self, name: &str, flags: libc::c_int, mode: u32) -> io::Result<File> {
        let name = text(name.as_bytes())?;
        // SAFETY: the name ends with a nul and the descriptor is open.
        let fd =
            done(unsafe { libc::openat(self.0.as_raw_fd(), name.as_ptr(), flags, mode as libc::c_uint) })?;
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(unsafe { File::from_raw_fd(fd) })
    }

    /// Give a file of another folder this name here, unless there is one.
    pub(super) fn link(&self, name: &str, from: &Folder, source: &str) -> io::Result<()> {
        let (name, source) = (text(name.as_bytes())?, text(source.as_bytes())?);
        // SAFETY: both names end with a nul and both descriptors are open.
        let linked = unsafe {
            libc::linkat(from.0.as_raw_fd(), source.as_ptr(), self.0.as_raw_fd(), name.as_ptr(), 0)
        };
        done(linked).map(drop)
    }

    /// Take a file's name away; no error if it has gone.
    pub(super) fn unlink(&self, name: &str) -> io::Result<()> {
        let name = text(name.as_bytes())?;
        // SAFETY: the name ends with a nul and the descriptor is open.
        match done(unsafe { libc::unlinkat(self.0.as_raw_fd(), name.as_ptr(), 0) }) {
            Err(why) if !is_gone(&why) => Err(why),
            _ => Ok(()),
        }
    }

    /// Make its names survive a power cut.
    pub(super) fn sync(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open.
        match done(unsafe { libc::fsync(self.0.as_raw_fd()) }) {
            // file systems that keep names safe by themselves do not all know the call for a folder
            Err(why) if why.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            synced => synced.map(drop),
        }
    }

    /// Every name in it but `.` and `..`, in no order.
    pub(super) fn names(&self, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        self.entries(|name| {
            if name != b"." && name != b".." {
                each(name);
            }
        })
    }

    /// By the kernel's own call: the C library's stream costs five calls more, and a record is listed at every look.
    #[cfg(target_os = "linux")]
    fn entries(&self, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        // where the name begins in an entry, and where its length stands
        const NAME: usize = 19;
        const LENGTH: usize = 16;
        // SAFETY: the descriptor is open.
        if unsafe { libc::lseek(self.0.as_raw_fd(), 0, libc::SEEK_SET) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut buffer = [0u64; 2048];
        let size = std::mem::size_of_val(&buffer);
        loop {
            // SAFETY: the descriptor is open and the buffer has room for `size` bytes.
            let read =
                unsafe { libc::syscall(libc::SYS_getdents64, self.0.as_raw_fd(), buffer.as_mut_ptr(), size) };
            let read = match usize::try_from(read) {
                Err(_) => match io::Error::last_os_error() {
                    // it was removed, so it holds nothing; the C library says the same
                    why if why.kind() == io::ErrorKind::NotFound => return Ok(()),
                    why => return Err(why),
                },
                Ok(0) => return Ok(()),
                Ok(read) => read.min(size),
            };
            // SAFETY: the kernel has filled so many bytes, and bytes have no alignment.
            let mut rest = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), read) };
            while let Some(&[low, high]) = rest.get(LENGTH..LENGTH + 2) {
                let length = usize::from(u16::from_ne_bytes([low, high]));
                let Some((entry, others)) = rest.split_at_checked(length).filter(|_| length > NAME) else {
                    break;
                };
                if let Ok(name) = CStr::from_bytes_until_nul(&entry[NAME..]) {
                    each(name.to_bytes());
                }
                rest = others;
            }
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn entries(&self, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let own = self.0.try_clone()?;
        // SAFETY: the descriptor is open and a folder's; from here on the stream owns it.
        let stream = unsafe { libc::fdopendir(std::os::fd::IntoRawFd::into_raw_fd(own)) };
        if stream.is_null() {
            return Err(io::Error::last_os_error());
        }
        let stream = Stream(stream);
        // SAFETY: the stream is open. A copy of a descriptor shares its place: begin at the start.
        unsafe { libc::rewinddir(stream.0) };
        loop {
            // SAFETY: the place is this thread's own.
            unsafe { *libc::__error() = 0 };
            // SAFETY: the stream is open and used by this thread alone.
            let entry = unsafe { libc::readdir(stream.0) };
            if entry.is_null() {
                let why = io::Error::last_os_error();
                return if why.raw_os_error() == Some(0) { Ok(()) } else { Err(why) };
            }
            // SAFETY: the entry is valid until the next call, and its name ends with a nul.
            each(unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) }.to_bytes());
        }
    }
}

#[cfg(not(target_os = "linux"))]
struct Stream(*mut libc::DIR);

#[cfg(not(target_os = "linux"))]
impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream is open and closed only here.
        unsafe { libc::closedir(self.0) };
    }
}

const NOW: [libc::timespec; 2] = [
    libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
    libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW },
];

/// Set a file's time to now. On NFS the server does it, by its own clock.
pub(super) fn stamp(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open and the times outlive the call.
    done(unsafe { libc::futimens(file.as_raw_fd(), NOW.as_ptr()) }).map(drop)
}

/// The times of a file or folder.
pub(super) fn times(found: &std::fs::Metadata) -> Times {
    use std::os::unix::fs::MetadataExt;
    let since = |seconds: i64, nanos: i64| {
        Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0).min(999_999_999))
    };
    Times {
        modified: since(found.mtime(), found.mtime_nsec()),
        changed: since(found.ctime(), found.ctime_nsec()),
    }
}

/// Is what was asked for no longer there? NFS says so with a stale handle.
pub(super) fn is_gone(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::ENOENT | libc::ESTALE))
}

/// Is there something of this name already?
pub(super) fn is_taken(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EEXIST | libc::ENOTEMPTY))
}
