//! A batch's input: a file or a stream, one item at a time, in constant memory.
//!
//! What is wrong with an item is said with its line, and the reading goes on behind it ([`Next::Bad`]). An input that
//! cannot be read any further ends there ([`Next::Broken`]): what was cut in two is not handed on, all before it was.
//! An input that ends too early (the other end of a pipe was killed) looks like one that ends: only a last line that is
//! no JSON, or a last row with an open quote, shows it.

use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, Cursor, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::csv::Csv;
use super::item::{Fault, Item, Keys};
use super::records::Records;
use super::{jsonl, lines};
use crate::trouble::Trouble;

/// The most bytes of an item.
pub(crate) const ITEM_LIMIT: usize = 1024 * 1024;

/// How much is read at once.
const BUFFER: usize = 128 * 1024;

/// How many blanks at the start are looked past to find out what the input is.
const LOOK_LIMIT: usize = 64 * 1024;

/// What bytes come from.
pub(crate) type Source = Box<dyn BufRead + Send>;

/// How items are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON object a line
    #[value(alias = "ndjson")]
    Jsonl,
    /// Rows under a header
    Csv,
    /// Plain lines
    Lines,
    /// Texts that end with a NUL, as find -print0 writes them
    Nul,
}

/// Where items come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum From {
    Stdin,
    File(PathBuf),
}

/// How they are to be read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// Found out if it is not said.
    pub(crate) format: Option<Format>,
    /// Between columns.
    pub(crate) delimiter: Option<u8>,
    /// What a line is called.
    pub(crate) field: String,
    /// That was said, and not taken for granted.
    pub(crate) is_field_said: bool,
    pub(crate) keys: Keys,
}

impl Reading {
    /// What was said and means nothing in this format is a slip, whoever found out the format.
    pub(crate) fn check(&self, format: Format) -> Result<(), Trouble> {
        let is_lines = matches!(format, Format::Lines | Format::Nul);
        let wrong = if self.is_field_said && !is_lines {
            "--field names a line: say it with --format lines or nul"
        } else if self.delimiter.is_some() && format != Format::Csv {
            "--delimiter is for CSV: leave it out, or say --format csv"
        } else if !self.keys.volatile.is_empty() && is_lines {
            "--volatile names a field that may differ, and a line has no others: leave it out"
        } else {
            return Ok(());
        };
        Err(Trouble::config(wrong))
    }
}

/// What comes next.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // an item is the rule
pub(crate) enum Next {
    Item(Item),
    /// This one cannot be used; others follow.
    Bad(Fault),
    /// Nothing follows that can be read.
    Broken(Fault),
}

/// A plain file, as it stood when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    device: u64,
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl Mark {
    /// Of a plain file.
    pub(crate) fn of(about: &Metadata) -> Option<Mark> {
        about.is_file().then(|| Mark {
            device: about.dev(),
            inode: about.ino(),
            length: about.len(),
            changed: (about.mtime(), about.mtime_nsec()),
        })
    }

    /// Is it the same file, whatever was written to it meanwhile?
    pub(crate) fn is_same_file(&self, other: &Mark) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Can what was read of it be read again?
    pub(crate) fn still_holds(&self, now: &Mark) -> bool {
        self.is_same_file(now) && now.length >= self.length
    }
}

/// The items of an input.
pub(crate) struct Items {
    kind: Rows,
    format: Format,
    keys: Keys,
    field: String,
    is_over: bool,
    /// How many bytes there are, where that is known.
    pub(crate) bytes: Option<u64>,
    /// Which file it is, also one that stdin comes from.
    pub(crate) mark: Option<Mark>,
}

enum Rows {
    Records(Records),
    Csv(Box<Csv>),
}

impl Items {
    /// Open the input, and read its header if it has one.
    pub(crate) fn open(from: &From, reading: Reading) -> Result<Items, Trouble> {
        let by_name = match from {
            From::Stdin => None,
            From::File(path) => by_extension(path),
        };
        let format = reading.format.or(by_name.map(|(format, _)| format));
        format.map_or(Ok(()), |format| reading.check(format))?;
        // of the name only where the name decides: a .tsv that is said to be something else has none
        let by_name = by_name.filter(|(of_name, _)| format == Some(*of_name));
        let delimiter = reading.delimiter.or(by_name.and_then(|(_, delimiter)| delimiter));
        let reading = Reading { format, delimiter, ..reading };
        match from {
            From::Stdin => {
                let stdin = std::io::stdin();
                let about = stdin.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
                let source = Box::new(BufReader::with_capacity(BUFFER, stdin));
                let items = Items::read("stdin", source, reading)?;
                Ok(Items { mark: about.ok().as_ref().and_then(Mark::of), ..items })
            }
            From::File(path) => {
                let name = path.display().to_string();
                let wrong = |why: std::io::Error| Trouble::input(format!("{name}: {why}; nothing was run"));
                let file = File::open(path).map_err(wrong)?;
                let about = file.metadata().map_err(wrong)?;
                if about.is_dir() {
                    return Err(Trouble::input(format!(
                        "{name} is a directory: name a file; nothing was run"
                    )));
                }
                let source = Box::new(BufReader::with_capacity(BUFFER, file));
                let items = Items::read(&name, source, reading)?;
                let mark = Mark::of(&about);
                Ok(Items { bytes: mark.map(|mark| mark.length), mark, ..items })
            }
        }
    }

    /// The items of any source; `name` is for messages.
    pub(crate) fn read(name: &str, from: Source, reading: Reading) -> Result<Items, Trouble> {
        let (start, from) = look(from);
        let found = || if start == Some(b'{') { Format::Jsonl } else { Format::Lines };
        let format = reading.format.unwrap_or_else(found);
        // an input with nothing in it may be of any format
        if start.is_some() {
            reading.check(format)?;
        }
        let Reading { delimiter, field, keys, .. } = reading;
        let kind = match format {
            Format::Jsonl | Format::Lines => Rows::Records(Records::new(from, b'\n')),
            Format::Nul => Rows::Records(Records::new(from, 0)),
            Format::Csv => {
                let csv = Csv::new(from, delimiter.unwrap_or(b','));
                let csv = csv.map_err(|why| Trouble::input(format!("{name}: {why}; nothing was run")))?;
                Rows::Csv(Box::new(csv))
            }
        };
        let items = Items { kind, format, keys, field, is_over: false, bytes: None, mark: None };
        items.check_key(name)?;
        Ok(items)
    }

    /// A key field that no row can have is said once, not once per row.
    fn check_key(&self, name: &str) -> Result<(), Trouble> {
        let Some(columns) = self.columns() else { return Ok(()) };
        match self.keys.fields.iter().find(|field| !field.is_among(&columns)) {
            Some(field) => Err(Trouble::input(format!(
                "--key {field}: {name} has no such field, it has {}; nothing was run",
                columns.join(", ")
            ))),
            None => Ok(()),
        }
    }

    /// How the items are written.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// What the one field is called where items are lines.
    pub(crate) fn line(&self) -> Option<&str> {
        matches!(self.format, Format::Lines | Format::Nul).then_some(self.field.as_str())
    }

    /// The fields that every item has, where that is known before the first; nothing of an empty input.
    pub(crate) fn columns(&self) -> Option<Vec<String>> {
        match &self.kind {
            Rows::Csv(csv) => (!csv.columns.is_empty()).then(|| csv.columns.clone()),
            Rows::Records(_) => self.line().map(|field| vec![field.to_owned()]),
        }
    }

    /// The header as it stood; empty if there is none.
    pub(crate) fn header(&self) -> &[u8] {
        match &self.kind {
            Rows::Csv(csv) => &csv.header,
            Rows::Records(_) => &[],
        }
    }

    /// What of an item is its key.
    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }
}

impl Iterator for Items {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        if self.is_over {
            return None;
        }
        let next = match (&mut self.kind, self.format) {
            (Rows::Csv(csv), _) => csv.next(&self.keys),
            (Rows::Records(records), Format::Jsonl) => jsonl::next(records, &self.keys),
            (Rows::Records(records), format) => {
                lines::next(records, &self.field, format == Format::Nul, &self.keys)
            }
        };
        self.is_over = matches!(next, None | Some(Next::Broken(_)));
        next
    }
}

/// What a file is by its name, and what is between its columns.
fn by_extension(path: &Path) -> Option<(Format, Option<u8>)> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "jsonl" | "ndjson" => Some((Format::Jsonl, None)),
        "csv" => Some((Format::Csv, None)),
        "tsv" => Some((Format::Csv, Some(b'\t'))),
        _ => None,
    }
}

/// The first byte that is not blank, and the source as if nobody had looked; without a byte order mark.
///
/// An error is met again by whoever reads on: it is the reader's to report.
fn look(mut from: Source) -> (Option<u8>, Source) {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let mut seen = Vec::new();
    loop {
        let mut chunk = [0; 1024];
        let read = match from.read(&mut chunk) {
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
            Ok(read) if read > 0 => read,
            Ok(_) => break,
            Err(why) => {
                let rest = unmarked(seen, MARK);
                return (None, Box::new(BufReader::new(Cursor::new(rest).chain(Failing(Some(why))))));
            }
        };
        seen.extend_from_slice(chunk.get(..read).unwrap_or_default());
        let text = seen.strip_prefix(MARK).unwrap_or(&seen);
        let is_mark_cut = seen.len() < MARK.len() && MARK.starts_with(&seen);
        if !is_mark_cut && (seen.len() > LOOK_LIMIT || text.iter().any(|byte| !byte.is_ascii_whitespace())) {
            break;
        }
    }
    let seen = unmarked(seen, MARK);
    let first = seen.iter().copied().find(|byte| !byte.is_ascii_whitespace());
    (first, Box::new(Cursor::new(seen).chain(from)))
}

fn unmarked(mut seen: Vec<u8>, mark: &[u8]) -> Vec<u8> {
    if seen.starts_with(mark) {
        seen.drain(..mark.len());
    }
    seen
}

/// An error that was met too early, for the one who should meet it.
struct Failing(Option<std::io::Error>);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
