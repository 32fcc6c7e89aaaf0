//! What is swept: drafts of writers that died, folders of removed records, versions nobody needs, empty folders.
//!
//! All ages are by the file server's clock. Nothing here is needed for safety, and all of it may happen at any moment:
//! a writer that slept through it finds its draft or its number gone and looks again.

use std::path::Path;
use std::time::Duration;

use super::fault::Fault;
use super::page;
use super::place::Place;
use super::records::{Records, SAFE_FOR, State};
use super::scan::Walk;
use super::sys;

/// A draft that is older belongs to nobody who is still at work.
const DRAFT_AGE: Duration = Duration::from_secs(3_600);
/// A record that was written since is left to its writers.
const QUIET: Duration = Duration::from_secs(60);
/// A folder that nothing was made in for so long, and is empty, goes. Longer than it is remembered as safe.
const EMPTY_AGE: Duration = Duration::from_secs(3_600);
const _: () = assert!(EMPTY_AGE.as_secs() >= 2 * SAFE_FOR.as_secs());
/// The versions that stay of a quiet record: the newest, and the one before, by which it is believed.
const KEPT: u64 = 2;
/// How many are swept in one turn.
const TURN: usize = 256;

impl Records {
    /// Sweep drafts.
    pub(super) fn sweep_drafts(&self) -> Result<(), Fault> {
        let now = self.place.now()?;
        let mut old = Vec::new();
        let listed = self.place.drafts.names(|name| {
            if let Ok(name) = std::str::from_utf8(name) {
                let found = self.place.drafts.file(name).and_then(|file| file.metadata());
                // no longer there, or not ours to open
                let Ok(found) = found else { return };
                if sys::times(&found).modified + DRAFT_AGE < now && old.len() < 16 * TURN {
                    old.push((name.to_owned(), found.is_dir()));
                }
            }
        });
        listed.map_err(self.fault("list the drafts"))?;
        for (name, is_folder) in old {
            // what cannot be removed is another's, and stays
            let _ = if is_folder {
                let path = Place::draft(&name);
                let bare = self.place.root.folder(&path).and_then(|folder| folder.unlink(&page::name(0)));
                bare.and_then(|()| self.place.root.remove_folder(&path))
            } else {
                self.place.drafts.unlink(&name)
            };
        }
        Ok(())
    }

    /// Sweep some records after this key; answers the last of them, `None` at the end.
    pub(super) fn sweep_some(&self, after: Option<&str>) -> Result<Option<String>, Fault> {
        let now = self.place.now()?;
        let (mut last, mut visited) = (None, 0);
        let mut visit = |key: &str| {
            self.sweep_one(key, now)?;
            last = Some(key.to_owned());
            visited += 1;
            Ok(true)
        };
        let mut empty = |path: &Path| self.sweep_empty(path, now);
        let walk = Walk { prefix: "", after, limit: TURN, visit: &mut visit, empty: &mut empty };
        self.walk(walk)?;
        Ok(last.filter(|_| visited == TURN))
    }

    fn sweep_one(&self, key: &str, now: Duration) -> Result<(), Fault> {
        let seen = self.look(key)?;
        match &seen.state {
            State::Dead(folder) => self.bury(folder, &seen.path),
            State::Stands(folder, head) if head.times.changed + QUIET < now => {
                // the newest must be safe before what is behind it goes
                folder.sync().map_err(self.fault("sync a record"))?;
                self.collect(folder, &self.numbers(folder)?, head.number, KEPT);
                Ok(())
            }
            State::Stands(..) | State::Missing | State::Bare(_) => Ok(()),
        }
    }

    fn sweep_empty(&self, path: &Path, now: Duration) {
        if path.iter().count() < 2 {
            return;
        }
        let found = self.place.root.folder(path).and_then(|folder| folder.as_file()?.metadata());
        if found.is_ok_and(|found| sys::times(&found).modified + EMPTY_AGE < now) {
            // only if it is still empty
            let _ = self.place.root.remove_folder(path);
        }
    }
}
