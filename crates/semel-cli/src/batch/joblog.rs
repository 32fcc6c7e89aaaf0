//! `--import-joblog FILE`: what GNU parallel has done already, so that one can change over in the middle of a batch.
//!
//! A row says which *command* ended how, not which item. So an item is taken for done if its own command, filled in, is
//! the command of a row that ended well (exit 0, no signal): word for word, after a shell's quotes are undone.
//!
//! | the item's command | |
//! |---|---|
//! | in one row | that row, for the first item that has it, wherever either stands |
//! | in several rows (the command does not tell its items apart) | one of them, if all of them ended well; else none |
//! | in no row, or only in rows that failed | not done |
//! | of a row that asks a shell for more than words (`a > b`, `$x`) | cannot be compared: not done, and counted |
//!
//! Never by position: a header, a blank line, a line that was added or taken away, and positions name other items. A row
//! counts for one item.
//! A number that is there twice (`--resume-failed`) counts as its last row says. parallel writes line breaks in commands
//! as NUL.
//!
//! Memory: some 250 bytes per row. This is the one part of a batch that grows with its size.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use semel_core::payload::Fingerprint;

use super::input::Source;
use super::records::{Record, Records};
use super::shell_words::words;
use crate::plan::quoted;
use crate::trouble::Trouble;

const HEADER: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand";

/// A row of a joblog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Which job, from 1.
    pub(crate) seq: u64,
    pub(crate) exit: i32,
    pub(crate) signal: i32,
    /// As a shell was given it.
    pub(crate) command: Vec<u8>,
}

/// What is wrong with a joblog.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JoblogError {
    #[error(
        "it is no joblog of GNU parallel: line 1 is not \"Seq Host Starttime JobRuntime Send Receive Exitval Signal Command\""
    )]
    NoHeader,
    #[error("line {line}: {what}")]
    Row { line: u64, what: String },
    #[error("line {line}: cannot be read: {why}")]
    Unreadable { line: u64, why: String },
}

/// The rows of a joblog, in the order in which the jobs ended.
pub(crate) struct Rows {
    records: Records,
    is_over: bool,
    /// The last line has no end: whoever wrote it was stopped, and its command may be cut.
    pub(crate) is_cut: bool,
}

impl Rows {
    /// Reads the header.
    pub(crate) fn new(from: Source) -> Result<Rows, JoblogError> {
        let mut records = Records::new(from, b'\n');
        match records.next() {
            Record::Text { bytes, .. } if bytes == HEADER.as_bytes() => {}
            Record::Broken(why) => return Err(JoblogError::Unreadable { line: 1, why: why.to_string() }),
            _ => return Err(JoblogError::NoHeader),
        }
        Ok(Rows { records, is_over: false, is_cut: false })
    }
}

impl Iterator for Rows {
    type Item = Result<Row, JoblogError>;

    fn next(&mut self) -> Option<Result<Row, JoblogError>> {
        while !self.is_over {
            let line = self.records.count + 1;
            let row = match self.records.next() {
                Record::End => break,
                Record::Broken(why) => Err(JoblogError::Unreadable { line, why: why.to_string() }),
                Record::TooLong => Err(JoblogError::Row { line, what: "is too long".to_owned() }),
                Record::Text { is_ended: false, .. } => {
                    self.is_cut = true;
                    break;
                }
                // two logs in one file
                Record::Text { bytes, .. } if bytes == HEADER.as_bytes() || bytes.is_empty() => continue,
                Record::Text { bytes, .. } => row(bytes).map_err(|what| JoblogError::Row { line, what }),
            };
            self.is_over = row.is_err();
            return Some(row);
        }
        self.is_over = true;
        None
    }
}

fn row(bytes: &[u8]) -> Result<Row, String> {
    let columns: Vec<&[u8]> = bytes.splitn(9, |byte| *byte == b'\t').collect();
    let [seq, _, _, _, _, _, exit, signal, command] = columns.as_slice() else {
        return Err(format!("has {} columns, a row has 9", columns.len()));
    };
    Ok(Row {
        seq: number("Seq", seq)?,
        exit: number("Exitval", exit)?,
        signal: number("Signal", signal)?,
        command: command.iter().map(|byte| if *byte == 0 { b'\n' } else { *byte }).collect(),
    })
}

fn number<T: std::str::FromStr>(column: &str, text: &[u8]) -> Result<T, String> {
    let text = String::from_utf8_lossy(text);
    text.trim().parse().map_err(|_| format!("{column} is {}, not a number", quoted(&text)))
}

/// What a joblog says of commands.
#[derive(Debug, Default)]
pub(crate) struct Joblog {
    by_command: HashMap<Fingerprint, BTreeMap<u64, Ended>>,
    /// Rows read.
    pub(crate) rows: u64,
    /// Rows whose command only a shell can read.
    pub(crate) not_words: u64,
    /// Its last line is cut, and was left out.
    pub(crate) is_cut: bool,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    is_well: bool,
    is_taken: bool,
}

impl Joblog {
    /// Read the whole log.
    pub(crate) fn open(path: &Path) -> Result<Joblog, Trouble> {
        let wrong = |why: &dyn std::fmt::Display| {
            Trouble::input(format!("--import-joblog {}: {why}; nothing was run", path.display()))
        };
        let file = std::fs::File::open(path).map_err(|why| wrong(&why))?;
        Joblog::read(Box::new(std::io::BufReader::new(file))).map_err(|why| wrong(&why))
    }

    /// Of any source.
    pub(crate) fn read(from: Source) -> Result<Joblog, JoblogError> {
        let mut rows = Rows::new(from)?;
        let mut log = Joblog::default();
        for row in rows.by_ref() {
            let row = row?;
            log.rows += 1;
            let Some(words) = words(&row.command) else {
                log.not_words += 1;
                continue;
            };
            let ended = Ended { is_well: row.exit == 0 && row.signal == 0, is_taken: false };
            let mark = mark(words.iter().map(Vec::as_slice));
            log.by_command.entry(mark).or_default().insert(row.seq, ended);
        }
        log.is_cut = rows.is_cut;
        Ok(log)
    }

    /// Whether the item with this command is done, and the row that says so. The row is then this item's.
    pub(crate) fn take(&mut self, argv: &[OsString]) -> Option<u64> {
        let rows = self.by_command.get_mut(&mark(argv.iter().map(|word| word.as_bytes())))?;
        if !rows.values().all(|row| row.is_well) {
            // which of the items that have this command failed, it does not say
            return None;
        }
        let (seq, row) = rows.iter_mut().find(|(_, row)| !row.is_taken)?;
        row.is_taken = true;
        Some(*seq)
    }

    /// What was left out of it, a line each.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.not_words > 0 {
            let rows = if self.not_words == 1 { "1 row" } else { &format!("{} rows", self.not_words) };
            lines.push(format!(
                "{rows} of the joblog left out: only a shell can read the command; its item is run"
            ));
        }
        if self.is_cut {
            lines.push("the last line of the joblog is cut, and was left out: its item is run".to_owned());
        }
        lines
    }

    /// How many rows that ended well belong to no item so far.
    pub(crate) fn left_over(&self) -> u64 {
        let rows = self.by_command.values().flat_map(BTreeMap::values);
        rows.filter(|row| row.is_well && !row.is_taken).count() as u64
    }
}

/// No argument holds a NUL, so nothing can shift between words.
fn mark<'a>(words: impl Iterator<Item = &'a [u8]>) -> Fingerprint {
    let mut text = Vec::new();
    for word in words {
        text.extend_from_slice(word);
        text.push(0);
    }
    Fingerprint::of_bytes(&text)
}
