//! A shared directory: versions are files made by link(2), and the clock is the file server's.
//!
//! For machines that share a folder and nothing else. Nothing is locked: a lock over NFS may be lost with its server or
//! kept by a client that is gone. One call decides, and decides on the server: link(2) gives a file a name unless
//! there is one.
//!
//! # Theory
//!
//! A record is a folder. Each change of it is a file in there, named by the next number; the newest is the record as it
//! stands. A renewal is a change as well: it holds the same version and value, and starts the clock anew. So whoever
//! renews and whoever takes over compete for the *same* name, and one of them wins.
//!
//! ```text
//! write:  look ─▶ draft, stamped with the server's time ─▶ check at that time ─▶ fsync ─▶ link as number n+1 ─▶ is n still there?
//!                                                                                         │ taken: ours? done. Else look again
//! ```
//!
//! | claim | why it holds |
//! |---|---|
//! | of two that write after version n, one wins | both link number n+1 |
//! | a writer that slept while n+1 was made and cleared away does not win | versions are cleared away from the oldest on, so n is gone as well: it finds out, answers *unknown*, and what it linked lies below the newest and means nothing |
//! | what was half written is never read | a draft is synced before it is linked |
//! | a link whose answer got lost is known again | each file has a random word of its own: whoever is told that the name is taken reads whose it is |
//! | a version never comes back | it is 128 random bits |
//! | a lease ends by the server's clock | a file's time is set by the server ("now", not a number), and "now" is the time of a folder that is set the same way |
//! | a write that asks the clock is decided at one moment | the draft's time is that moment: the record before it must be live, or lapsed, then, and its own clock starts then |
//!
//! ## Removal
//!
//! A record's folder is made aside, with an empty file of number 0 in it, and moved to its place; rename(2) refuses if
//! something stands there. A removal links a last version, `closed`. Then number 0 is removed, and from then on the
//! folder is dead, whatever else is or comes in it; then the rest, and the folder. Whoever wants to create the record
//! anew does the same with what was left, and moves a new folder there. A writer that still has the old folder
//! open can put nothing into the new one: it links relative to the folder that it looked at, not to a path.
//!
//! ## Reading
//!
//! List the folder, open the highest number, then try the next ones, and last see that number 0 is still there. The
//! answer was the truth at a moment between begin and end: a file that was passed over by the listing although it was
//! there before has been cleared away, hence the ones below it too, so opening the highest fails and the
//! reader looks again. The one below the highest must be listed as well: what a sleeper left behind has none.
//!
//! ## NFS
//!
//! A client may show an old listing for up to a minute (attribute cache), but opening a folder or a file asks the server
//! (close-to-open). A reader that is shown an old state all the same is only late: a write that is based on it
//! links a number that is taken, on the server. `nocto` takes the asking away; `semel doctor` says so.
//!
//! # Not promised
//!
//! - Swaps are made in order ([`Swaps::InOrder`]). All records are looked at before the first is written, so a swap
//!   that can be refused at once leaves nothing behind; one that loses a race, or is cut off, leaves those before.
//!   A guard is a read at its place.
//! - A load reads one record after the other, not all at one moment.
//! - A server's clock that is set forward ends leases early; one that is set back makes them longer.
//! - What a file server answers before it has it on its disk (`async` exports) may be lost with its power.
//! - A [`Relaxed`](super::Durability::Relaxed) swap does not sync the folder.
//!
//! | module | what it knows |
//! |---|---|
//! | `place` | the store's folder, its mode, its clock |
//! | `names` | from a key to a folder, and the order |
//! | `page` | what a version's file holds |
//! | `records` | looking, appending, clearing away |
//! | `verbs`, `scan`, `tidy`, `examine` | the seam's verbs |
//! | `lane` | threads and deadlines |
//! | `sys`, `fault` | system calls, and their errors in words |

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use semel_core::record::{RecordKey, Version};
use tokio::sync::Notify;

use super::{
    Change, Durability, Finding, Loaded, OpenError, Pending, Record, Settings, Store, StoreError, Swaps,
};
use fault::Fault;
use lane::{Ask, Lane};
use place::Place;
use records::Records;

mod examine;
mod fault;
mod lane;
mod names;
mod page;
mod place;
mod records;
mod scan;
mod sys;
mod tidy;
mod verbs;

/// How often a record is looked at by who waits for it: at first, and at last.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_LATER: Duration = Duration::from_millis(250);

/// A store in a shared directory.
pub struct Dir {
    path: PathBuf,
    lane: Lane,
    records: Arc<OnceLock<Records>>,
    written: Notify,
}

impl Dir {
    /// The store in this folder. Nothing is looked at yet; the first verb makes the folder if there is none.
    pub fn open(path: &Path, settings: &Settings) -> Result<Dir, OpenError> {
        let path = std::path::absolute(path)
            .map_err(|why| OpenError::Configuration(format!("{} is no path: {why}", path.display())))?;
        Ok(Dir { path, lane: Lane::new(settings.deadline), records: Arc::default(), written: Notify::new() })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Do something with the records, which are opened first if they are not.
    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Records, &Ask) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (path, records) = (self.path.clone(), Arc::clone(&self.records));
        self.lane.ask(move |ask| work(opened(&path, &records)?, ask)).await
    }
}

fn opened<'a>(path: &Path, records: &'a OnceLock<Records>) -> Result<&'a Records, Fault> {
    if let Some(records) = records.get() {
        return Ok(records);
    }
    // two may open it at once: one of them is kept
    let place = Place::open(path)?;
    Ok(records.get_or_init(|| Records::new(place)))
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store for Dir {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        let keys = keys.to_vec();
        Box::pin(self.ask(move |records, _| records.load(&keys)))
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        let changes = changes.to_vec();
        Box::pin(async move {
            let done = self.ask(move |records, ask| records.swap(&changes, durability, ask)).await;
            self.written.notify_waiters();
            done
        })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        let (key, version) = (key.clone(), version.clone());
        Box::pin(self.ask(move |records, ask| records.touch(&key, &version, ask)))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        let (prefix, after) = (prefix.to_owned(), after.cloned());
        Box::pin(self.ask(move |records, _| records.scan(&prefix, after.as_ref(), limit)))
    }

    /// Writes of this handle wake it at once. Those of others are looked for, often at first and then less.
    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        Box::pin(async move {
            let begun = tokio::time::Instant::now();
            let mut turn = LOOK;
            loop {
                // listened to before the look, so that no write falls between the two
                let written = self.written.notified();
                tokio::pin!(written);
                written.as_mut().enable();
                let looked = key.clone();
                if self.ask(move |records, _| records.version(&looked)).await?.as_ref() != version {
                    return Ok(true);
                }
                let waited = begun.elapsed();
                if waited >= within {
                    return Ok(false);
                }
                // woken or not, the record is looked at again
                let _ = tokio::time::timeout(turn.min(within - waited), written).await;
                turn = backed_off(turn, waited);
            }
        })
    }

    fn swaps(&self) -> Swaps {
        Swaps::InOrder
    }

    fn examine(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(self.ask(|records, _| records.examine().map_err(StoreError::from)))
    }

    /// In turns, each with its own deadline.
    fn tidy(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.ask(|records, _| records.sweep_drafts().map_err(StoreError::from)).await?;
            let mut after = None;
            loop {
                let from = after.take();
                let swept = move |records: &Records, _: &Ask| -> Result<Option<String>, StoreError> {
                    Ok(records.sweep_some(from.as_deref())?)
                };
                after = self.ask(swept).await?;
                if after.is_none() {
                    return Ok(());
                }
            }
        })
    }
}

/// A tenth of what was waited so far: a long wait is woken late by no more than that.
fn backed_off(turn: Duration, waited: Duration) -> Duration {
    (waited / 10).clamp(turn, LOOK_LATER)
}
