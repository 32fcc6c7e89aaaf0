//! Texts that end with a sign, one at a time, none longer than [`ITEM_LIMIT`]. A longer one is passed over, not kept.

use std::io::{BufRead, Read};

use super::input::{ITEM_LIMIT, Source};

/// The texts of an input.
pub(super) struct Records {
    from: Source,
    end: u8,
    buffer: Vec<u8>,
    /// How many there were.
    pub(super) count: u64,
    /// How many bytes they had, with their ends.
    pub(super) offset: u64,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Record<'a> {
    Text {
        bytes: &'a [u8],
        /// The input went on after it.
        is_ended: bool,
    },
    TooLong,
    Broken(std::io::Error),
    End,
}

impl Records {
    pub(super) fn new(from: Source, end: u8) -> Records {
        Records { from, end, buffer: Vec::new(), count: 0, offset: 0 }
    }

    pub(super) fn next(&mut self) -> Record<'_> {
        self.buffer.clear();
        let most = ITEM_LIMIT as u64 + 1;
        let read = match self.from.by_ref().take(most).read_until(self.end, &mut self.buffer) {
            Ok(0) => return Record::End,
            Ok(read) => read as u64,
            Err(why) => {
                self.count += 1;
                return Record::Broken(why);
            }
        };
        self.count += 1;
        self.offset += read;
        if self.buffer.last() == Some(&self.end) {
            self.buffer.pop();
            return Record::Text { bytes: &self.buffer, is_ended: true };
        }
        if read < most {
            return Record::Text { bytes: &self.buffer, is_ended: false };
        }
        // what one long item took is not kept for all others
        self.buffer = Vec::new();
        match self.skip() {
            Ok(()) => Record::TooLong,
            Err(why) => Record::Broken(why),
        }
    }

    fn skip(&mut self) -> std::io::Result<()> {
        loop {
            let there = match self.from.fill_buf() {
                Err(why) if why.kind() == std::io::ErrorKind::Interrupted => continue,
                there => there?,
            };
            let found = there.iter().position(|byte| *byte == self.end);
            let passed = found.map_or(there.len(), |at| at + 1);
            self.from.consume(passed);
            self.offset += passed as u64;
            if found.is_some() || passed == 0 {
                return Ok(());
            }
        }
    }
}
