//! One record: looking at it, appending to it, clearing it away.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use semel_core::record::{RecordKey, Standing, Version};

use super::super::Record;
use super::fault::Fault;
use super::lane::Ask;
use super::names;
use super::page::{self, Kind, LONGEST, Page};
use super::place::{self, Place, RECORDS};
use super::sys::{self, Folder, Times};
use crate::clock::boottime;

/// How many versions a writer leaves, its own included. More than one is not for safety: a reader that lost its
/// file to a writer looks again, and with a few to spare it hardly ever has to.
const KEPT: u64 = 16;
/// How often somebody looks again who lost a race against writers.
const LOOKS: u32 = 2_000;
/// From so many lost looks on, it waits a little before each.
const PATIENT: u32 = 20;
/// A kernel may count a file's time in ticks of so long: a lease lasts one longer, so never shorter than it says.
const TICK: Duration = Duration::from_millis(10);
/// The most folders that are remembered as safe.
const REMEMBERED: usize = 4096;
/// For how long. Shorter than a folder must be empty before it is swept: then one that is remembered is still the same.
pub(super) const SAFE_FOR: Duration = Duration::from_secs(600);

/// A record as it was found.
#[derive(Debug)]
pub(super) struct Seen {
    /// Where its folder lies, from the store's.
    pub(super) path: PathBuf,
    pub(super) state: State,
}

/// What was found.
#[derive(Debug)]
pub(super) enum State {
    /// It has no folder.
    Missing,
    /// Its folder was closed and is to be cleared away.
    Dead(Folder),
    /// Its folder has been made, and nothing was written to it yet.
    Bare(Folder),
    /// It stands there.
    Stands(Folder, Box<Head>),
}

/// The newest version.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) page: Page,
    pub(super) times: Times,
    /// The numbers in the folder, from the oldest on.
    numbers: Vec<u64>,
}

impl Head {
    /// What the file server's clock says of it.
    pub(super) fn standing(&self, now: Duration) -> Option<Standing> {
        standing(self.page.ttl?, self.times.modified, now)
    }

    /// The record, as of `now`.
    pub(super) fn record(&self, key: &RecordKey, now: Duration) -> Record {
        Record {
            key: key.clone(),
            version: Version::new(self.page.version.as_str()),
            value: self.page.value.clone(),
            standing: self.standing(now),
        }
    }
}

/// What a clock of `ttl` says that was started at `start`.
fn standing(ttl: Duration, start: Duration, now: Duration) -> Option<Standing> {
    // a file system that keeps whole seconds has cut off up to one
    let cut = if start.subsec_nanos() == 0 { Duration::from_secs(1) } else { Duration::ZERO };
    let end = start.saturating_add(cut).saturating_add(ttl).saturating_add(TICK);
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Some(match end.checked_sub(now).filter(|left| !left.is_zero()) {
        // rounded up: whoever waits so long finds it lapsed
        Some(left) => Standing::Live { left_ms: ms(left.saturating_add(Duration::from_nanos(999_999))) },
        None => Standing::Lapsed { for_ms: ms(now.saturating_sub(end)) },
    })
}

impl Seen {
    pub(super) fn head(&self) -> Option<&Head> {
        match &self.state {
            State::Stands(_, head) => Some(head),
            State::Missing | State::Dead(_) | State::Bare(_) => None,
        }
    }
}

/// A file that has yet to be linked. Its name goes when it is dropped.
pub(super) struct Draft<'a> {
    place: &'a Place,
    name: String,
    file: File,
    write: String,
    /// The moment at which what it holds takes effect, by the file server's clock.
    pub(super) at: Duration,
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // one that stays is swept later
        let _ = self.place.drafts.unlink(&self.name);
    }
}

/// What came of an append.
#[derive(Debug)]
pub(super) enum Appended {
    /// It stands there.
    Done,
    /// Somebody else was faster: look again.
    Late,
}

/// The records of a place.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) place: Place,
    /// Folders whose names survive a power cut, and since when that is known.
    safe: Mutex<HashMap<PathBuf, Duration>>,
}

impl Records {
    pub(super) fn new(place: Place) -> Records {
        Records { place, safe: Mutex::default() }
    }

    pub(super) fn fault(&self, doing: &'static str) -> impl Fn(io::Error) -> Fault + '_ {
        move |why| Fault::io(&self.place.path, doing, why)
    }

    /// Look at a record.
    pub(super) fn look(&self, key: &str) -> Result<Seen, Fault> {
        let path = names::place(Path::new(RECORDS), key);
        for turn in 0..LOOKS {
            if turn > PATIENT {
                std::thread::sleep(Duration::from_micros(200));
            }
            let folder = match self.place.root.folder(&path) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => {
                    return Ok(Seen { path, state: State::Missing });
                }
                // between a look at the name and the open it was removed, on a file server
                Err(why) if sys::is_gone(&why) && turn < PATIENT => continue,
                folder => folder.map_err(self.fault("open a record"))?,
            };
            if let Some(state) = self.look_in(folder, key)? {
                return Ok(Seen { path, state });
            }
        }
        Err(Fault::said(format!("{key} changes faster than it can be read: try again")))
    }

    /// The numbers in a record's folder, from the oldest on.
    pub(super) fn numbers(&self, folder: &Folder) -> Result<Vec<u64>, Fault> {
        let mut numbers = Vec::new();
        match folder.names(|name| numbers.extend(page::number(name))) {
            Err(why) if !sys::is_gone(&why) => return Err(self.fault("list a record")(why)),
            _ => {}
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// What a folder holds; `None`: it changed meanwhile, look again. Each step is in the module's theory.
    fn look_in(&self, folder: Folder, key: &str) -> Result<Option<State>, Fault> {
        let numbers = self.numbers(&folder)?;
        let (Some(0), Some(&last)) = (numbers.first(), numbers.last()) else {
            // not by a listing alone: what is dead is cleared away
            return Ok(match folder.file(&page::name(0)) {
                Err(why) if sys::is_gone(&why) => Some(State::Dead(folder)),
                _ => None,
            });
        };
        if last > 0 && !numbers.contains(&(last - 1)) {
            return Ok(None);
        }
        let (mut last, mut found) = (last, None);
        if last > 0 {
            found = self.read(&folder, last)?;
            if found.is_none() {
                return Ok(None);
            }
        }
        // a listing may be old on NFS, and on any file system by the time it is used
        while let Some(next) = self.next_after(&folder, last)? {
            (last, found) = (last + 1, Some(next));
        }
        match folder.file(&page::name(0)) {
            Err(why) if sys::is_gone(&why) => return Ok(Some(State::Dead(folder))),
            first => first.map(drop).map_err(self.fault("read a record"))?,
        }
        let Some((page, times)) = found else { return Ok(Some(State::Bare(folder))) };
        if page.key != key {
            return Err(Fault::said(format!(
                "{} takes {key:?} and {:?} for one name: give a folder that tells upper from lower case",
                self.place.path.display(),
                page.key
            )));
        }
        Ok(Some(match page.kind {
            Kind::Closed => State::Dead(folder),
            Kind::Put => State::Stands(folder, Box::new(Head { number: last, page, times, numbers })),
        }))
    }

    fn next_after(&self, folder: &Folder, number: u64) -> Result<Option<(Page, Times)>, Fault> {
        number.checked_add(1).map_or(Ok(None), |next| self.read(folder, next))
    }

    /// Read a version; `None` if there is none.
    pub(super) fn read(&self, folder: &Folder, number: u64) -> Result<Option<(Page, Times)>, Fault> {
        let read = || -> io::Result<(Vec<u8>, Times)> {
            let mut file = folder.file(&page::name(number))?;
            let found = file.metadata()?;
            let length = usize::try_from(found.len().min(LONGEST)).unwrap_or(0);
            let mut bytes = vec![0; length];
            // a version is whole before it has its name, and never changes
            file.read_exact(&mut bytes)?;
            Ok((bytes, sys::times(&found)))
        };
        match read() {
            Err(why) if sys::is_gone(&why) => Ok(None),
            Err(why) => Err(self.fault("read a record")(why)),
            Ok((bytes, times)) => match Page::read(&bytes) {
                Ok(page) => Ok(Some((page, times))),
                Err(why) => Err(Fault::said(format!(
                    "a file of a record in {} cannot be read: {why}",
                    self.place.path.display()
                ))),
            },
        }
    }

    /// Is it this write that stands at its number?
    fn is_there(&self, folder: &Folder, head: &Head) -> Result<bool, Fault> {
        let mut bytes = [0; page::WRITE_WITHIN];
        let read = folder.file(&page::name(head.number)).and_then(|mut file| file.read(&mut bytes));
        match read {
            Err(why) if sys::is_gone(&why) => Ok(false),
            Err(why) => Err(self.fault("read a record")(why)),
            Ok(length) => Ok(page::write_of(&bytes[..length]) == Some(head.page.write.as_str())),
        }
    }

    /// Write a draft and give it the file server's time.
    pub(super) fn draft(&self, page: &Page) -> Result<Draft<'_>, Fault> {
        let name = self.place.fresh()?;
        let file = self.place.make_file(&name).map_err(self.fault("write a draft"))?;
        let mut draft =
            Draft { place: &self.place, name, file, write: page.write.clone(), at: Duration::ZERO };
        let stamped = draft
            .file
            .write_all(&page.bytes())
            .and_then(|()| sys::stamp(&draft.file))
            .and_then(|()| draft.file.metadata());
        draft.at = sys::times(&stamped.map_err(self.fault("write a draft"))?).modified;
        Ok(draft)
    }

    /// Make a draft the version after this one, or the first.
    pub(super) fn append(
        &self,
        folder: &Folder,
        after: Option<&Head>,
        draft: &Draft<'_>,
        ask: &Ask,
    ) -> Result<Appended, Fault> {
        draft.file.sync_all().map_err(self.fault("write a draft"))?;
        let number = after.map_or(1, |head| head.number.saturating_add(1));
        if let Some(head) = after {
            // the sync may have taken long: whoever sees now that others went on is late, and not in doubt
            if !self.is_there(folder, head)? {
                return Ok(Appended::Late);
            }
        }
        ask.send()?;
        let linked = folder.link(&page::name(number), &self.place.drafts, &draft.name);
        if let Err(why) = linked {
            if is_refused(&why) {
                return Err(self.fault("link a record")(why));
            }
            // an answer may have got lost, and the call have been made again
            let ours = match self.read(folder, number) {
                Ok(Some((page, _))) => Some(page.write == draft.write),
                Ok(None) => None,
                Err(_) => return Err(self.fault("link a record")(why).doubtful()),
            };
            match (ours, sys::is_taken(&why), sys::is_gone(&why)) {
                (Some(true), ..) => {}
                (Some(false), true, _) | (_, _, true) => return Ok(Appended::Late),
                _ => return Err(self.fault("link a record")(why).doubtful()),
            }
        }
        self.is_the_first(folder, after, number, draft).map_err(Fault::doubtful)
    }

    /// Was the number never used before? It was not if the one before it is still there, or if somebody saw this one stand.
    fn is_the_first(
        &self,
        folder: &Folder,
        after: Option<&Head>,
        number: u64,
        draft: &Draft<'_>,
    ) -> Result<Appended, Fault> {
        let is_there = match after {
            Some(head) => self.is_there(folder, head)?,
            None => folder.file(&page::name(0)).is_ok(),
        };
        let was_seen = |next: (Page, Times)| next.0.after.as_ref() == Some(&draft.write);
        if is_there || self.next_after(folder, number)?.is_some_and(was_seen) {
            return Ok(Appended::Done);
        }
        // if it was used, ours lies below the newest or in a dead folder, and means nothing
        Err(Fault::said("it took so long that others went on meanwhile: look at what stands there"))
    }

    /// Make a record's folder, with its first name in it, unless there is one.
    pub(super) fn make(&self, path: &Path) -> Result<(), Fault> {
        let fresh = self.place.fresh()?;
        let draft = Place::draft(&fresh);
        self.place.make_folder(&draft).map_err(self.fault("make a record's folder"))?;
        let made = self.place.root.folder(&draft).and_then(|folder| {
            place::make_file(&folder, &page::name(0), self.place.shared)?;
            self.move_in(&draft, path)
        });
        if made.is_err() {
            // by its path among the drafts: told as failed, it may be in its place all the same. What stays is swept later
            let _ = self.place.root.unlink(&format!("{}/{}", draft.display(), page::name(0)));
            let _ = self.place.root.remove_folder(&draft);
        }
        match made {
            // taken: somebody else was faster. Gone: an answer got lost, or it has been moved away. The next look tells
            Err(why) if !sys::is_taken(&why) && !sys::is_gone(&why) => {
                Err(self.fault("make a record's folder")(why))
            }
            _ => Ok(()),
        }
    }

    fn move_in(&self, draft: &Path, path: &Path) -> io::Result<()> {
        match self.place.root.rename(draft, path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            moved => return moved,
        }
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for folder in above.into_iter().filter(|folder| folder.iter().count() > 1) {
            match self.place.make_folder(folder) {
                Err(why) if sys::is_taken(&why) => {}
                made => {
                    made?;
                    self.remembered(|safe| safe.remove(folder));
                }
            }
        }
        self.place.root.rename(draft, path)
    }

    fn remembered<T>(&self, work: impl FnOnce(&mut HashMap<PathBuf, Duration>) -> T) -> T {
        work(&mut self.safe.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Make the names of all folders above a record, and its own, survive a power cut.
    pub(super) fn secure(&self, path: &Path) -> Result<(), Fault> {
        let now = boottime();
        let is_safe =
            |name: &Path| self.remembered(|safe| safe.get(name).is_some_and(|since| *since + SAFE_FOR > now));
        // a name is made safe by a sync of the folder that it stands in
        for name in path.ancestors().take_while(|name| name.iter().count() > 1) {
            if let Some(above) = name.parent().filter(|_| !is_safe(name)) {
                let synced = self.place.root.folder(above).and_then(|folder| folder.sync());
                synced.map_err(self.fault("sync a folder"))?;
            }
        }
        self.remembered(|safe| {
            if safe.len() > REMEMBERED {
                safe.clear();
            }
            // not the record's own: it may be removed and made again at any moment
            safe.extend(path.ancestors().skip(1).map(|folder| (folder.to_owned(), now)));
        });
        Ok(())
    }

    /// Remove versions that are well behind this one, the oldest first: the order is what readers and writers rely on.
    pub(super) fn collect(&self, folder: &Folder, numbers: &[u64], newest: u64, kept: u64) {
        for number in numbers.iter().filter(|number| **number > 0 && newest.saturating_sub(**number) >= kept)
        {
            // the next writer comes by again
            if folder.unlink(&page::name(*number)).is_err() {
                return;
            }
        }
    }

    /// As [`collect`](Records::collect), as much as a writer does after its own write.
    pub(super) fn collect_behind(&self, folder: &Folder, head: &Head) {
        self.collect(folder, &head.numbers, head.number.saturating_add(1), KEPT);
    }

    /// Are there so many versions that they should be collected although nothing has to be synced?
    pub(super) fn is_crowded(head: &Head) -> bool {
        head.numbers.len() as u64 > 4 * KEPT
    }

    /// End a folder that was closed: from the sync on it is dead for good.
    pub(super) fn end(&self, folder: &Folder) -> Result<(), Fault> {
        match folder.unlink(&page::name(0)).and_then(|()| folder.sync()) {
            Err(why) if !sys::is_gone(&why) => Err(self.fault("clear a removed record away")(why)),
            _ => Ok(()),
        }
    }

    /// End a dead folder and clear it away.
    pub(super) fn bury(&self, folder: &Folder, path: &Path) -> Result<(), Fault> {
        self.end(folder)?;
        self.clear(folder, path)
    }

    /// Clear away what is left of an ended folder, the oldest first.
    pub(super) fn clear(&self, folder: &Folder, path: &Path) -> Result<(), Fault> {
        for number in self.numbers(folder)? {
            folder.unlink(&page::name(number)).map_err(self.fault("clear a removed record away"))?;
        }
        // only an empty folder is removed, so never one that somebody made in its place
        self.place.root.remove_folder(path).map_err(self.fault("clear a removed record away"))
    }
}

/// Did the server say no, so that nothing was done?
fn is_refused(why: &io::Error) -> bool {
    matches!(
        why.raw_os_error(),
        Some(
            libc::ENOSPC
                | libc::EDQUOT
                | libc::EROFS
                | libc::EACCES
                | libc::EPERM
                | libc::EMLINK
                | libc::EXDEV
                | libc::ENAMETOOLONG
        )
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_never_shorter_than_it_says() {
        let ms = Duration::from_millis;
        let start = Duration::new(1_000, 500_000_000);
        let at = |after: u64| standing(ms(100), start, start + ms(after)).unwrap();
        assert_eq!(at(0), Standing::Live { left_ms: 110 });
        assert_eq!(at(109), Standing::Live { left_ms: 1 });
        assert_eq!(at(110), Standing::Lapsed { for_ms: 0 });
        assert_eq!(at(150), Standing::Lapsed { for_ms: 40 });
        // whole seconds: up to one was cut off
        let whole = standing(ms(100), Duration::from_secs(1_000), Duration::from_secs(1_001)).unwrap();
        assert_eq!(whole, Standing::Live { left_ms: 110 });
        // a clock that was set back ends nothing
        assert!(matches!(standing(ms(100), start, Duration::ZERO), Some(Standing::Live { .. })));
    }
}
