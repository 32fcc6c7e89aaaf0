//! `--failed-to FILE`: the items that failed, as they stood, as input for another batch. CSV keeps its header.
//!
//! The file is written beside its place, private, and takes its place at the end ([`FailedTo::finish`]): so the file
//! that is read may be the file that is written, and a list is never half of one. At the end it is there even if
//! nothing failed, empty, so that nobody takes an older one for this one's. Killed with -9 before that, the old file
//! stands as it was; the ledger knows what failed, and the next start of the batch does it again.
//!
//! Where it is the input itself, the list stands for all that is still to be done. So it takes the input's place only if
//! nothing else is: a batch that did not reach its end, or that left an item out for any other reason than that it is
//! done or has failed, leaves its input alone ([`FailedTo::leave`]).
//!
//! It is opened before anything runs: a place that cannot be written is said then.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::input::{Format, Mark};
use crate::trouble::Trouble;

/// The list of failed items, being written.
pub(crate) struct FailedTo {
    path: PathBuf,
    beside: PathBuf,
    out: BufWriter<File>,
    end: u8,
    count: u64,
    /// The first write that did not work. The batch goes on: the ledger has it all.
    broken: Option<std::io::Error>,
    is_in_place: bool,
    /// The input that it is to replace, as it was opened.
    input: Option<Mark>,
}

impl FailedTo {
    /// Start the list; `header` stands first, unless it is empty.
    pub(crate) fn create(path: &Path, format: Format, header: &[u8]) -> Result<FailedTo, Trouble> {
        let wrong = |why: String| Trouble::config(format!("--failed-to {}: {why}", path.display()));
        // through a link, so that the link stays
        let path = match std::fs::canonicalize(path) {
            Ok(real) if !real.is_file() => {
                return Err(wrong("it is no plain file: name one, or one that is not there yet".to_owned()));
            }
            Ok(real) => real,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => path.to_owned(),
            Err(why) => return Err(wrong(why.to_string())),
        };
        let name = path.file_name().ok_or_else(|| wrong("it has no name: write one".to_owned()))?;
        let mut other = std::ffi::OsString::from(".");
        other.push(name);
        other.push(format!(".{}.tmp", std::process::id()));
        let beside = path.with_file_name(other);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&beside);
        let file = file.map_err(|why| wrong(why.to_string()))?;
        let end = if format == Format::Nul { 0 } else { b'\n' };
        let out = BufWriter::new(file);
        let mut list =
            FailedTo { path, beside, out, end, count: 0, broken: None, is_in_place: false, input: None };
        if !header.is_empty() {
            list.put(header);
        }
        Ok(list)
    }

    /// The same, where the items are read from this file.
    pub(crate) fn beside_input(mut self, input: Option<Mark>) -> FailedTo {
        let here = std::fs::metadata(&self.path).ok().as_ref().and_then(Mark::of);
        let is_input = input.zip(here).is_some_and(|(input, here)| input.is_same_file(&here));
        self.input = input.filter(|_| is_input);
        self
    }

    /// One more, as it stood.
    pub(crate) fn push(&mut self, raw: &[u8]) {
        self.put(raw);
        self.count += 1;
    }

    fn put(&mut self, raw: &[u8]) {
        if self.broken.is_none() {
            let written = self.out.write_all(raw).and_then(|()| self.out.write_all(&[self.end]));
            self.broken = written.err();
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Leave the input as it is, because there is more to do than what failed: the line that says so. None if the list
    /// is not to replace the input.
    pub(crate) fn leave(&self, is_all: bool) -> Option<String> {
        let input = self.input?;
        let here = std::fs::metadata(&self.path).ok().as_ref().and_then(Mark::of);
        let why = match (is_all, here) {
            (true, Some(here)) if here == input => return None,
            (true, _) => "it was changed meanwhile",
            (false, _) => "it has more than what failed that is not done",
        };
        Some(format!("--failed-to {}: the input is left as it is: {why}", self.path.display()))
    }

    /// Put the list into its place; a file that is there keeps its mode.
    pub(crate) fn finish(mut self) -> Result<(), Trouble> {
        let written = match self.broken.take() {
            Some(why) => Err(why),
            None => {
                self.out.flush().and_then(|()| self.keep_mode()).and_then(|()| self.out.get_ref().sync_all())
            }
        };
        let placed = written.and_then(|()| std::fs::rename(&self.beside, &self.path));
        self.is_in_place = placed.is_ok();
        placed.map_err(|why| {
            Trouble::with_code(
                1,
                format!(
                    "--failed-to {}: {why}; the list was not written, what failed is in the ledger: semel ls --state failed",
                    self.path.display()
                ),
            )
        })
    }
}

impl FailedTo {
    fn keep_mode(&self) -> std::io::Result<()> {
        let Ok(before) = std::fs::metadata(&self.path) else { return Ok(()) };
        let mode = before.permissions().mode() & 0o777;
        self.out.get_ref().set_permissions(Permissions::from_mode(mode))
    }
}

impl Drop for FailedTo {
    fn drop(&mut self) {
        if !self.is_in_place {
            // nobody reads half a list
            let _ = std::fs::remove_file(&self.beside);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_list_takes_its_place_at_the_end_and_keeps_the_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("failed.csv");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut list = FailedTo::create(&path, Format::Csv, b"id,text").unwrap();
        assert_eq!(mode(&list.beside), 0o600, "private until it is whole");
        list.push(b"1,\"a\nb\"");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(list.count(), 1);
        list.finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "id,text\n1,\"a\nb\"\n");
        assert_eq!(mode(&path), 0o640);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        let new = dir.path().join("new");
        FailedTo::create(&new, Format::Csv, b"").unwrap().finish().unwrap();
        assert_eq!(mode(&new), 0o600, "a new one is private");
    }

    #[test]
    fn the_input_is_replaced_only_by_all_that_is_left_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("items"), dir.path().join("link"));
        std::fs::write(&path, "a\nb\n").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mark = |path: &Path| Mark::of(&std::fs::metadata(path).unwrap());
        let list = || FailedTo::create(&link, Format::Lines, b"").unwrap();
        let of_input = list().beside_input(mark(&path));
        assert_eq!(of_input.leave(true), None);
        let left = of_input.leave(false).unwrap();
        assert!(left.ends_with("the input is left as it is: it has more than what failed that is not done"));
        std::fs::write(&path, "a\nb\nc\n").unwrap();
        assert!(of_input.leave(true).unwrap().ends_with("it was changed meanwhile"));
        drop(of_input);
        let other = dir.path().join("other");
        std::fs::write(&other, "a\n").unwrap();
        assert_eq!(list().beside_input(mark(&other)).leave(false), None);
        assert_eq!(list().beside_input(None).leave(false), None);
    }

    #[test]
    fn a_list_that_is_not_finished_leaves_the_old_one_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("failed");
        std::fs::write(&path, "old").unwrap();
        drop(FailedTo::create(&path, Format::Lines, b"").unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn nothing_failed_is_an_empty_list_and_a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("failed"), dir.path().join("link"));
        std::fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        FailedTo::create(&link, Format::Lines, b"").unwrap().finish().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_said_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let said = |path: &Path| FailedTo::create(path, Format::Lines, b"").err().unwrap();
        let here = said(dir.path());
        assert_eq!(here.code, 78);
        assert!(here.line.ends_with("it is no plain file: name one, or one that is not there yet"));
        assert!(said(Path::new("/dev/null")).line.contains("no plain file"));
        let nowhere = dir.path().join("no/such");
        assert_eq!(
            said(&nowhere).line,
            format!("--failed-to {}: No such file or directory (os error 2)", nowhere.display())
        );
    }

    #[test]
    fn a_full_disk_is_said_at_the_end_and_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("failed");
        let mut list = FailedTo::create(&path, Format::Lines, b"").unwrap();
        list.out = BufWriter::new(File::options().write(true).open("/dev/full").unwrap());
        for _ in 0..10_000 {
            list.push(b"some item that failed");
        }
        let why = list.finish().unwrap_err();
        assert_eq!(why.code, 1);
        assert!(why.line.contains("No space left on device"), "{}", why.line);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
