//! The fence file: locked, read, replaced. Why this is right is told in [the module](super).

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use super::error::FileSinkError;
use super::place::Place;
use super::record::{self, Fence, Standing};
use super::temp::{self, Draft};
use crate::clock::{Clock, SystemClock};
use crate::crash;

/// Between two looks at a lock that another has.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// For a fence that is made, or changes under our hands: nobody has to be waited for, but it must come to an end.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// The lock of the file that has the fence's name.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Wait for the lock, at most so long. A fence that does not exist is made, open.
    pub(super) fn take(place: &Place, wait: Duration) -> Result<Lock, FileSinkError> {
        let begun = SystemClock.now();
        let mut pause = FIRST_PAUSE;
        loop {
            let opened = open(&place.fence)?;
            crash::point("file.opened");
            let held_by_another = match opened {
                None => make(place).map(|()| false)?,
                Some(file) => match file.try_lock() {
                    Ok(()) if is_named(&file, &place.fence)? => return Ok(Lock { file }),
                    // it was replaced while we looked: the new one is another lock
                    Ok(()) => false,
                    Err(TryLockError::WouldBlock) => true,
                    Err(TryLockError::Error(why)) => {
                        return Err(FileSinkError::io("cannot lock", &place.fence, &why));
                    }
                },
            };
            let waited = begun.until(SystemClock.now());
            if waited >= if held_by_another { wait } else { wait.max(LEAST_WAIT) } {
                return Err(FileSinkError::Busy { fence: place.fence.clone(), waited });
            }
            if held_by_another {
                std::thread::sleep(pause.min(wait - waited));
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    pub(super) fn read(&mut self, place: &Place) -> Result<Standing, FileSinkError> {
        Standing::read(&place.fence, &mut self.file)
    }

    /// Put this fence in the place of the one that is locked, durably, and hold its lock instead.
    pub(super) fn replace(&mut self, place: &Place, fence: &Fence) -> Result<(), FileSinkError> {
        let mut draft = Draft::create(&place.folder, &place.fence_name)?;
        draft.fill(record::line(Some(fence))?.as_slice())?;
        draft.dress(place.target()?.as_ref(), temp::OF_FENCE)?;
        draft.sync()?;
        // the old lock is let go only when the new one, which is held already, has the name
        self.file = draft.rename_locked(&place.fence)?;
        temp::sync_folder(&place.folder)
            .map_err(|why| FileSinkError::io("cannot sync the folder", &place.folder, &why))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // a child that another thread has just forked may hold the file open for a moment longer
        let _ = self.file.unlock();
    }
}

/// The fence as it stands, without its lock: its name always means a whole record.
pub(super) fn look(place: &Place) -> Result<Standing, FileSinkError> {
    match open(&place.fence)? {
        None => Ok(Standing::Open),
        Some(mut file) => Standing::read(&place.fence, &mut file),
    }
}

/// A fence that nothing has passed yet: made whole, then linked, so that nobody sees a part and only one is first.
fn make(place: &Place) -> Result<(), FileSinkError> {
    let mut draft = Draft::create(&place.folder, &place.fence_name)?;
    draft.fill(record::line(None)?.as_slice())?;
    draft.dress(place.target()?.as_ref(), temp::OF_FENCE)?;
    draft.sync()?;
    match fs::hard_link(draft.path(), &place.fence) {
        Ok(()) => temp::sync_folder(&place.folder)
            .map_err(|why| FileSinkError::io("cannot sync the folder", &place.folder, &why)),
        // another was first; or it swept our draft away before it was locked
        Err(why) if matches!(why.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => Ok(()),
        Err(why) => Err(FileSinkError::io("cannot make the fence", &place.fence, &why)),
    }
}

fn open(path: &Path) -> Result<Option<File>, FileSinkError> {
    // some file systems lock only what is open for writing; never wait for a pipe's other end
    let with = |write| {
        OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
    };
    let denied = |why: &io::Error| {
        matches!(why.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
    };
    let opened = match with(true) {
        Err(why) if denied(&why) => with(false),
        opened => opened,
    };
    let strange = || {
        FileSinkError::Unusable(format!("{} is not a file: remove it, if nobody needs it", path.display()))
    };
    match opened {
        Ok(file) => match file.metadata() {
            Ok(found) if found.is_file() => Ok(Some(file)),
            Ok(_) => Err(strange()),
            Err(why) => Err(FileSinkError::io("cannot look at", path, &why)),
        },
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) if matches!(why.raw_os_error(), Some(libc::ELOOP | libc::EISDIR | libc::ENXIO)) => {
            Err(strange())
        }
        Err(why) => Err(FileSinkError::io("cannot open the fence", path, &why)),
    }
}

/// Does the name still mean this file? Asked by opening it: that is fresh where looking may be cached.
fn is_named(file: &File, path: &Path) -> Result<bool, FileSinkError> {
    let Some(named) = open(path)? else { return Ok(false) };
    let id = |file: &File| file.metadata().map(|found| (found.dev(), found.ino()));
    match (id(file), id(&named)) {
        (Ok(ours), Ok(named)) => Ok(ours == named),
        (Err(why), _) | (_, Err(why)) => Err(FileSinkError::io("cannot look at", path, &why)),
    }
}
