//! CSV with a header. Every row has the header's columns, as strings; one that has not is a fault of that row alone.
//!
//! Quotes, doubled quotes, line breaks inside quotes, `\r\n` and `\r` are csv-core's. Ours are the limits, the line that
//! a row starts in, and the row as it stood. A blank line is no row. A quote that is not closed swallows what follows:
//! up to the limit it is one fault, and so is the row that the input ends in.

use std::io::BufRead;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use serde_json::{Map, Value};

use super::input::{ITEM_LIMIT, Next, Source};
use super::item::{At, Fault, Item, Keys, Kind, Why};

/// The most columns of a row.
pub(crate) const COLUMNS_LIMIT: usize = 4096;

/// A stream of rows.
pub(super) struct Csv {
    from: Source,
    reader: Reader,
    /// The fields of the row, one after the other, and where each ends.
    fields: Vec<u8>,
    ends: Vec<usize>,
    raw: Vec<u8>,
    /// Ends of lines passed so far.
    lines: u64,
    after_return: bool,
    offset: u64,
    is_over: bool,
    /// What the columns are called.
    pub(super) columns: Vec<String>,
    /// The header as it stood.
    pub(super) header: Vec<u8>,
}

enum Row {
    /// The line it starts in, and how many fields it has.
    Fields(u64, usize),
    Bad(u64, Why),
    Broken(u64, std::io::Error),
    End,
}

/// Why there is no header that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("line {0}: the header {1}")]
    Fault(u64, Why),
    #[error("line {line}: the header has two columns called {name:?}: rename one")]
    Twice { line: u64, name: String },
}

impl Csv {
    /// Reads the header. An input without one has no rows.
    pub(super) fn new(from: Source, delimiter: u8) -> Result<Csv, HeaderError> {
        let mut csv = Csv {
            from,
            reader: ReaderBuilder::new().delimiter(delimiter).build(),
            fields: vec![0; 4096],
            ends: vec![0; 64],
            raw: Vec::new(),
            lines: 0,
            after_return: false,
            offset: 0,
            is_over: false,
            columns: Vec::new(),
            header: Vec::new(),
        };
        let (line, count) = match csv.row() {
            Row::End => return Ok(csv),
            Row::Bad(line, why) => return Err(HeaderError::Fault(line, why)),
            Row::Broken(line, why) => return Err(HeaderError::Fault(line, Why::Broken(why.to_string()))),
            Row::Fields(line, count) => (line, count),
        };
        csv.columns = csv.texts(count).map_err(|why| HeaderError::Fault(line, why))?;
        csv.header = csv.take_raw();
        for (at, name) in csv.columns.iter().enumerate() {
            if csv.columns.iter().take(at).any(|other| other == name) {
                return Err(HeaderError::Twice { line, name: name.clone() });
            }
        }
        Ok(csv)
    }

    pub(super) fn next(&mut self, keys: &Keys) -> Option<Next> {
        let (line, found) = match self.row() {
            Row::End => return None,
            Row::Broken(line, why) => {
                let why = Why::Broken(why.to_string());
                return Some(Next::Broken(Fault { at: At::Line(line), why, raw: None }));
            }
            Row::Bad(line, why) => (line, Err(why)),
            Row::Fields(line, count) => (line, self.item(count, keys)),
        };
        let at = At::Line(line);
        Some(match found {
            Ok((fields, key)) => {
                Next::Item(Item { at, end: self.offset, raw: self.take_raw(), fields, key, kind: Kind::Row })
            }
            Err(why @ (Why::RowTooLong | Why::TooManyFields)) => Next::Bad(Fault { at, why, raw: None }),
            Err(why) => Next::Bad(Fault { at, why, raw: Some(self.take_raw()) }),
        })
    }

    fn item(&self, count: usize, keys: &Keys) -> Result<(Map<String, Value>, semel_core::work::Fields), Why> {
        let wanted = self.columns.len();
        if count != wanted {
            return Err(Why::Ragged { found: count, wanted });
        }
        let texts = self.texts(count)?.into_iter().map(Value::String);
        let fields: Map<String, Value> = self.columns.iter().cloned().zip(texts).collect();
        let key = keys.of(&fields, Kind::Row)?;
        Ok((fields, key))
    }

    fn texts(&self, count: usize) -> Result<Vec<String>, Why> {
        let mut from = 0;
        let text = |end: &usize| {
            let field = self.fields.get(from..*end).unwrap_or_default();
            let text = std::str::from_utf8(field).map_err(|why| Why::NotUtf8(from + why.valid_up_to() + 1));
            from = *end;
            text.map(str::to_owned)
        };
        self.ends.iter().take(count).map(text).collect()
    }

    fn take_raw(&mut self) -> Vec<u8> {
        let mut raw = std::mem::take(&mut self.raw);
        while raw.last().is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
            raw.pop();
        }
        raw
    }

    /// The next row. What is too long is read to its end, and not kept.
    fn row(&mut self) -> Row {
        self.raw.clear();
        let mut part = Part::default();
        while !self.is_over {
            match self.read_on(&mut part) {
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => {}
                Err(why) => return Row::Broken(part.start.unwrap_or(self.lines + 1), why),
                Ok(result) => {
                    if let Some(row) = self.took(result, &mut part) {
                        return row;
                    }
                }
            }
        }
        Row::End
    }

    /// What the parser makes of the next bytes; `None` of a row that the input ends in and that has no end.
    fn read_on(&mut self, part: &mut Part) -> std::io::Result<Option<ReadRecordResult>> {
        let there = self.from.fill_buf()?;
        // a line break at the end of the input ends a row, unless a quote is open
        let is_at_end = there.is_empty();
        let there = if is_at_end && part.start.is_some() { b"\n" } else { there };
        let room = self.fields.get_mut(part.fields..).unwrap_or_default();
        let room_for_ends = self.ends.get_mut(part.ends..).unwrap_or_default();
        let (result, read, wrote, ended) = self.reader.read_record(there, room, room_for_ends);
        (part.fields, part.ends) = (part.fields + wrote, part.ends + ended);
        if is_at_end {
            return Ok((result != ReadRecordResult::InputEmpty).then_some(result));
        }
        let seen = there.get(..read).unwrap_or_default();
        // blank lines before it, then the row
        let first = seen.iter().position(|byte| !is_break(*byte));
        let first = if part.start.is_some() { Some(0) } else { first };
        let (blank, row) = seen.split_at(first.unwrap_or(read));
        self.lines += breaks(blank, &mut self.after_return);
        if first.is_some() {
            part.start.get_or_insert(self.lines + 1);
        }
        self.lines += breaks(row, &mut self.after_return);
        if part.too_much.is_none() {
            self.raw.extend_from_slice(row);
        }
        self.from.consume(read);
        self.offset += read as u64;
        Ok(Some(result))
    }

    /// The row, if that was its end; else there is room for more of it, or it is given up.
    fn took(&mut self, result: Option<ReadRecordResult>, part: &mut Part) -> Option<Row> {
        let line = part.start.unwrap_or(self.lines + 1);
        if self.raw.len() > ITEM_LIMIT + 2 {
            part.too_much = Some(Why::RowTooLong);
        }
        match result {
            None => {
                self.is_over = true;
                return Some(Row::Bad(line, part.too_much.take().unwrap_or(Why::OpenQuote)));
            }
            Some(ReadRecordResult::End) => return Some(Row::End),
            Some(ReadRecordResult::Record) => {
                return Some(match part.too_much.take() {
                    Some(why) => Row::Bad(line, why),
                    None => Row::Fields(line, part.ends),
                });
            }
            Some(ReadRecordResult::InputEmpty) => {}
            Some(ReadRecordResult::OutputFull) if self.fields.len() <= ITEM_LIMIT => {
                self.fields.resize(self.fields.len() * 2, 0);
            }
            Some(ReadRecordResult::OutputEndsFull) if self.ends.len() < COLUMNS_LIMIT => {
                self.ends.resize(self.ends.len() * 2, 0);
            }
            Some(ReadRecordResult::OutputFull) => part.too_much = Some(Why::RowTooLong),
            Some(ReadRecordResult::OutputEndsFull) => {
                part.too_much.get_or_insert(Why::TooManyFields);
            }
        }
        if part.too_much.is_some() {
            (part.fields, part.ends) = (0, 0);
            self.raw = Vec::new();
        }
        None
    }
}

/// How much of a row was read.
#[derive(Default)]
struct Part {
    fields: usize,
    ends: usize,
    /// The line it starts in.
    start: Option<u64>,
    /// Why it is not kept.
    too_much: Option<Why>,
}

fn is_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// How many lines end in these bytes; `\r\n` is one end.
fn breaks(bytes: &[u8], after_return: &mut bool) -> u64 {
    let mut count = 0;
    for byte in bytes {
        count += u64::from(*byte == b'\r' || (*byte == b'\n' && !*after_return));
        *after_return = *byte == b'\r';
    }
    count
}
