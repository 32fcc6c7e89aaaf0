//! Files: fenced, atomic replacement.
//!
//! Beside the target lies `TARGET.fence`: one line of JSON with the resource to which the file belongs and the last
//! grant that was accepted. A write
//!
//! 1. locks the fence, meets it with its grant ([`Grant::against`]), and advances it if the grant is newer;
//! 2. without the lock, copies its content into a temp file in the same folder and syncs it;
//! 3. locks the fence again, meets it again, renames the temp file over the target, and syncs the folder.
//!
//! So an older holder is refused before its content is read, and again at the rename: nothing lies between the
//! second check and the rename but the lock. The lock is not held while content comes in: a stalled or slow source
//! keeps nobody waiting. A process that is stopped with the lock in its hands does, for [`FileSink::lock_wait`] at
//! most; when it goes on it finishes first, and the newer write comes after it.
//!
//! # Why the fence is whole and never goes back
//!
//! The fence is replaced, never written in place: a new file, already locked and synced, is renamed over the old
//! one, and the folder is synced before anything else happens. Its name therefore always means a whole record, the
//! old or the new one, after `kill -9` and after a power cut alike. Since a lock belongs to a file and not to a
//! name, whoever gets the lock opens the name again: if it means another file by now, that lock is worth nothing
//! and the newer file is locked instead. Whoever replaces the fence holds the locks of both files while it does, so
//! two processes never hold the lock of the file that has the name. The first fence is made whole and linked under
//! the name, which only one process can do. Locks end with their process: a crash leaves nothing to clean but temp
//! files.
//!
//! The fence advances before the target changes. A crash in between leaves a fence that is ahead of the content:
//! older holders stay out, and the grant that crashed, or a newer one, writes again. The other order would let an
//! older holder in again.
//!
//! Temp files are called `.NAME.semel-` and 16 hexadecimal digits. Each is locked by its writer; the first write of
//! each grant removes those whose writer is gone.
//!
//! # What becomes of the old file
//!
//! Its permissions, owner, group, access list and `user.*` attributes are kept where the system permits it; set-user
//! and set-group bits are not, as with any write. A group that cannot be kept leaves the new one with no more than
//! everybody has. A new file is private (0600). The fence has the mode of the target.
//!
//! A symbolic link is followed, and the file behind it is replaced and fenced where it really lies. Of a file with
//! several hard links this name alone is replaced; the others keep the old content.
//!
//! # What is not guaranteed
//!
//! - Only writers that use the fence are fenced: `mv` and `>` are not.
//! - Whoever removes the fence removes the memory of what was accepted.
//! - Whoever may write to the folder may replace the fence, and whoever may read the fence may keep its lock busy.
//! - On a network file system it is as good as that file system's `flock` and `rename`.

mod error;
mod lock;
mod place;
mod record;
mod temp;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use semel_core::name::Name;
use semel_core::token::Grant;

use crate::clock::{Clock, SystemClock};
use crate::crash;

pub use error::{FileSinkError, Refusal, Refused};
pub use record::{Fence, Set, Setting};

use lock::Lock;
use place::Place;
use record::Standing;
use temp::Draft;

/// How long a write waits for another writer of the same file, unless told otherwise.
pub const LOCK_WAIT: Duration = Duration::from_secs(30);

/// A file as a write target.
///
/// All of it blocks: from async code call it on a thread for blocking work.
///
/// ```
/// use semel::core::name::Name;
/// use semel::core::token::{Grant, Nonce, Token};
/// use semel::sink::file::{FileSink, FileSinkError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("index.html");
/// let site = Name::new("site")?;
/// let grant = |token| Token::new(token).map(|token| Grant { token, nonce: Nonce::from_bytes([7; 16]) });
/// let sink = FileSink::new(path);
/// sink.write(&site, &grant(2)?, "new".as_bytes())?;
/// // a holder that was replaced wakes up
/// let refused = sink.write(&site, &grant(1)?, "old".as_bytes());
/// assert!(matches!(refused, Err(FileSinkError::Refused(_))));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FileSink {
    path: PathBuf,
    no_follow: bool,
    lock_wait: Duration,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// The file that was replaced: the target, or what it links to.
    pub path: PathBuf,
    /// How long it is.
    pub bytes: u64,
    /// Whether there was none before.
    pub created: bool,
    /// Whether this was the first write of its grant, so that the fence went forward.
    pub advanced: bool,
    /// Whether owner and group are those of the old file.
    pub owner_kept: bool,
}

impl FileSink {
    /// The file at this path. Nothing is looked at yet.
    pub fn new(path: impl Into<PathBuf>) -> FileSink {
        FileSink { path: path.into(), no_follow: false, lock_wait: LOCK_WAIT }
    }

    /// Refuse a target that is itself a symbolic link. Links in its folder's path are followed all the same.
    pub fn no_follow(mut self, no_follow: bool) -> FileSink {
        self.no_follow = no_follow;
        self
    }

    /// How long to wait for another writer of the same file; [`LOCK_WAIT`] unless said.
    pub fn lock_wait(mut self, lock_wait: Duration) -> FileSink {
        self.lock_wait = lock_wait;
        self
    }

    /// Replace the file under this grant. The content is read to its end, in pieces, once the fence has let the
    /// grant through. Whatever is wrong, the target holds the old or the new content, never a part of one; after an
    /// error it is the old one, but for [`FileSinkError::Unknown`].
    pub fn write(&self, resource: &Name, grant: &Grant, content: impl Read) -> Result<Wrote, FileSinkError> {
        let place = Place::find(&self.path, self.no_follow)?;
        crash::point("file.begin");
        let mut lock = Lock::take(&place, self.lock_wait)?;
        crash::point("file.locked");
        let next = check(&mut lock, &place, resource, grant)?;
        crash::point("file.checked");
        if let Some(next) = &next {
            crash::point("file.fence.before");
            lock.replace(&place, next)?;
            crash::point("file.fence.after");
            temp::sweep(&place);
        }
        // made and locked while the fence is: a sweep never meets one that is not locked yet
        let mut draft = Draft::create(&place.folder, &place.name)?;
        drop(lock);
        let bytes = draft.fill(content)?;
        let mut like = place.target()?;
        let mut owner_kept = draft.dress(like.as_ref(), temp::OF_TARGET)?;
        draft.sync()?;
        crash::point("file.temp.synced");
        let mut lock = Lock::take(&place, self.lock_wait)?;
        if let Some(next) = check(&mut lock, &place, resource, grant)? {
            // a person set it back meanwhile
            lock.replace(&place, &next)?;
        }
        let now = place.target()?;
        if now != like {
            owner_kept = draft.dress(now.as_ref(), temp::OF_TARGET)?;
            draft.sync()?;
            like = now;
        }
        crash::point("file.rechecked");
        draft.rename(&place.path)?;
        crash::point("file.renamed");
        temp::sync_folder(&place.folder)
            .map_err(|why| FileSinkError::Unknown { path: place.path.clone(), why: why.to_string() })?;
        drop(lock);
        crash::point("file.done");
        Ok(Wrote { path: place.path, bytes, created: like.is_none(), advanced: next.is_some(), owner_kept })
    }

    /// The fence as it stands; `None` if nothing was accepted yet. Takes no lock and changes nothing.
    pub fn fence(&self) -> Result<Option<Fence>, FileSinkError> {
        match lock::look(&Place::find(&self.path, self.no_follow)?)? {
            Standing::Open => Ok(None),
            Standing::At(fence) => Ok(Some(fence)),
            Standing::Damaged(why) => Err(why.into()),
        }
    }

    /// Set the fence by a person's word. It goes to another resource, or forward; back only with
    /// [`Setting::back`], and a damaged fence is replaced only with it.
    pub fn set_fence(&self, setting: &Setting) -> Result<Fence, FileSinkError> {
        let place = Place::find(&self.path, self.no_follow)?;
        let mut lock = Lock::take(&place, self.lock_wait)?;
        let nonce = temp::random_nonce()?;
        let fence = setting.apply(&place.path, lock.read(&place)?, nonce, SystemClock.wall_ms())?;
        lock.replace(&place, &fence)?;
        Ok(fence)
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Let the grant through, or refuse it. Answers the fence that is to stand, if it goes forward.
fn check(
    lock: &mut Lock,
    place: &Place,
    resource: &Name,
    grant: &Grant,
) -> Result<Option<Fence>, FileSinkError> {
    let stands = match lock.read(place)? {
        Standing::Open => None,
        Standing::At(fence) => Some(fence),
        Standing::Damaged(why) => return Err(why.into()),
    };
    Fence::meet(stands.as_ref(), &place.path, resource, grant)
}
