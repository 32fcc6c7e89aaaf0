//! Notes of slots that came to nothing before the ledger could be asked: the store was down, the command was not there.
//!
//! They lie in a small private file beside the sockets of runs, one for each ledger, so that a slot which is later
//! found missed has its reason. A note that cannot be written is left out: it only makes a reason less exact.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use semel::engine::Excuse;
use semel_core::calendar::Reason;
use semel_core::entry::CommandMark;
use semel_core::work::Work;
use serde::{Deserialize, Serialize};

use crate::args::Common;
use crate::plan::{Surroundings, private_dir, read_bounded, store_url};

/// The largest file: some hundred notes.
const LIMIT: u64 = 64 * 1024;
/// The longest words of a note.
const DETAIL_LIMIT: usize = 200;

#[derive(Serialize, Deserialize)]
struct Note {
    work: Work,
    reason: Reason,
    detail: String,
}

/// The notes of one ledger.
#[derive(Clone, Debug)]
pub(crate) struct Away(PathBuf);

impl Away {
    /// Those of the ledger that is meant.
    pub(crate) fn of(common: &Common, around: &Surroundings) -> Option<Away> {
        let url = store_url(common, around).ok()?;
        let name = CommandMark::of("", [url.as_bytes()]).digest;
        Some(Away(private_dir(common, around).ok()?.join("away").join(name)))
    }

    /// What is known of slots that were not run.
    pub(crate) fn excuses(&self) -> Vec<Excuse> {
        let Ok(bytes) = read_bounded(&self.0, 2 * LIMIT) else { return Vec::new() };
        let notes = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        notes.map(|Note { work, reason, detail }| Excuse { work, reason, detail }).collect()
    }

    /// Note that this slot came to nothing.
    pub(crate) fn note(&self, work: &Work, reason: Reason, detail: &str) {
        let note = Note { work: work.clone(), reason, detail: detail.chars().take(DETAIL_LIMIT).collect() };
        let Ok(mut line) = serde_json::to_vec(&note) else { return };
        line.push(b'\n');
        if let Some(mut file) = self.open() {
            // one write, so that two that come at once do not mix
            let _ = file.write_all(&line);
        }
    }

    fn open(&self) -> Option<File> {
        let folder = self.0.parent()?;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
        let open = |path: &Path| OpenOptions::new().append(true).create(true).mode(0o600).open(path).ok();
        let file = open(&self.0)?;
        if file.metadata().ok()?.len() < LIMIT {
            return Some(file);
        }
        // what is that old was read long ago
        file.set_len(0).ok()?;
        Some(file)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use semel_core::name::{Name, Slot};

    #[test]
    fn what_is_noted_is_found_and_the_file_stays_small_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let away = Away(folder.path().join("away/x"));
        assert_eq!(away.excuses(), []);
        let slot = Slot::new("2026-06-19").unwrap();
        let work = Work::in_slot(Name::new("publish").unwrap(), slot, Default::default()).unwrap();
        away.note(&work, Reason::StoreDown, &"x".repeat(1000));
        let found = away.excuses();
        assert_eq!((found.len(), found[0].detail.len(), &found[0].work), (1, DETAIL_LIMIT, &work));
        for _ in 0..1000 {
            away.note(&work, Reason::Refused, "y");
        }
        let metadata = std::fs::metadata(&away.0).unwrap();
        assert!(metadata.len() < 2 * LIMIT);
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        std::fs::write(&away.0, b"\xff\n{}\n").unwrap();
        assert_eq!(away.excuses(), []);
    }
}
