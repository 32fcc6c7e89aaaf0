//! What a version's file holds.
//!
//! ```text
//! semel-dir 1 put WRITE AFTER VERSION TTL_MS CHAIN KEY_BYTES VALUE_BYTES
//! KEY
//! VALUE
//! ```
//!
//! `WRITE` is of this one file: by it a writer knows its own again when an answer got lost. `AFTER` is the one of the
//! file before, `-` for the first: who wrote it has seen that one stand there. `VERSION` is the record's, and stays when
//! only its clock is restarted. `CHAIN` is 1 once the names of all folders above survive a power cut. The key stands in the file as well, so that a file system that
//! takes two keys for one (upper and lower case) is found out and nothing is mixed up.

use std::time::Duration;

use semel_core::record::VALUE_LIMIT;

/// The format of the folder and of its files.
pub(super) const FORMAT: u32 = 1;

/// More than any file of ours has.
pub(super) const LONGEST: u64 = VALUE_LIMIT as u64 + 64 * 1024;

/// What a file says of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It stands as written here.
    Put,
    /// It was removed, and nothing follows in this folder.
    Closed,
}

/// A version's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) kind: Kind,
    /// Of this file alone.
    pub(super) write: String,
    /// Of the file before.
    pub(super) after: Option<String>,
    /// The record's version.
    pub(super) version: String,
    /// How long its clock runs from the file's time on.
    pub(super) ttl: Option<Duration>,
    /// Do the names of all folders above survive a power cut?
    pub(super) chain: bool,
    pub(super) key: String,
    pub(super) value: Vec<u8>,
}

impl Page {
    /// The bytes of the file.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Put => "put",
            Kind::Closed => "closed",
        };
        let ttl = self.ttl.map_or("-".to_owned(), |ttl| ttl.as_millis().to_string());
        let head = format!(
            "semel-dir {FORMAT} {kind} {} {} {} {ttl} {} {} {}\n{}\n",
            self.write,
            self.after.as_deref().unwrap_or("-"),
            self.version,
            u8::from(self.chain),
            self.key.len(),
            self.value.len(),
            self.key
        );
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.value);
        bytes
    }

    /// Read a file. The reason says what is wrong with it.
    pub(super) fn read(bytes: &[u8]) -> Result<Page, String> {
        let damaged = || "it is cut short or none of ours".to_owned();
        let end = bytes.iter().take(512).position(|byte| *byte == b'\n').ok_or_else(damaged)?;
        let (head, rest) = (&bytes[..end], &bytes[end + 1..]);
        let head = std::str::from_utf8(head).map_err(|_| damaged())?;
        let words: Vec<&str> = head.split(' ').collect();
        let ["semel-dir", format, ref fields @ ..] = words[..] else { return Err(damaged()) };
        if format != FORMAT.to_string() {
            return Err(format!("it has format {format}, and this Semel reads {FORMAT}: upgrade this one"));
        }
        let [kind, write, after, version, ttl, chain, key_bytes, value_bytes] = *fields else {
            return Err(damaged());
        };
        let kind = match kind {
            "put" => Kind::Put,
            "closed" => Kind::Closed,
            _ => return Err(damaged()),
        };
        let ttl = match ttl {
            "-" => None,
            ms => Some(Duration::from_millis(ms.parse().map_err(|_| damaged())?)),
        };
        let (key_bytes, value_bytes): (usize, usize) =
            (key_bytes.parse().map_err(|_| damaged())?, value_bytes.parse().map_err(|_| damaged())?);
        let (key, rest) = rest.split_at_checked(key_bytes).ok_or_else(damaged)?;
        let key = std::str::from_utf8(key).map_err(|_| damaged())?;
        let value =
            rest.strip_prefix(b"\n").filter(|value| value.len() == value_bytes).ok_or_else(damaged)?;
        Ok(Page {
            kind,
            write: write.to_owned(),
            after: Some(after.to_owned()).filter(|after| after != "-"),
            version: version.to_owned(),
            ttl,
            chain: chain == "1",
            key: key.to_owned(),
            value: value.to_vec(),
        })
    }
}

/// The bytes within which the word of the write stands.
pub(super) const WRITE_WITHIN: usize = 128;

/// The word of the write, from the first bytes of a file.
pub(super) fn write_of(bytes: &[u8]) -> Option<&str> {
    let mut words = bytes.split(|byte| *byte == b' ');
    let word = words.nth(3)?;
    // followed by another, so not cut
    words.next()?;
    std::str::from_utf8(word).ok()
}

/// The name of a version's file.
pub(super) fn name(number: u64) -> String {
    format!("{number:016x}")
}

/// The number of a version's file; `None` if it is none.
pub(super) fn number(name: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(name).ok()?;
    let plain = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    plain.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn page(value: &[u8]) -> Page {
        Page {
            kind: Kind::Put,
            write: "w".to_owned(),
            after: Some("u".to_owned()),
            version: "v".to_owned(),
            ttl: Some(Duration::from_millis(5)),
            chain: true,
            key: "a/b".to_owned(),
            value: value.to_vec(),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for page in [
            page(b""),
            page(b"\n\0x\n"),
            Page { ttl: None, after: None, chain: false, kind: Kind::Closed, ..page(b"") },
        ] {
            let bytes = page.bytes();
            assert_eq!(write_of(&bytes[..bytes.len().min(WRITE_WITHIN)]), Some("w"));
            assert_eq!(Page::read(&bytes).unwrap(), page);
        }
    }

    #[test]
    fn whatever_is_cut_or_put_on_is_refused() {
        let bytes = page(b"value").bytes();
        for end in 0..bytes.len() {
            assert!(Page::read(&bytes[..end]).is_err(), "{end}");
        }
        assert!(Page::read(&[&bytes[..], b"x"].concat()).is_err());
        let newer = String::from_utf8(bytes).unwrap().replace("semel-dir 1", "semel-dir 2");
        assert!(Page::read(newer.as_bytes()).unwrap_err().contains("upgrade"));
    }

    #[test]
    fn only_our_names_are_numbers() {
        assert_eq!(number(name(0xab).as_bytes()), Some(0xab));
        for other in
            ["", "1", "000000000000000G", "00000000000000AB", "0000000000000000a", "+00000000000000a"]
        {
            assert_eq!(number(other.as_bytes()), None, "{other}");
        }
    }

    /// A target of `semel-fuzz`.
    #[test]
    fn pages() {
        const SEEDS: &[&str] = &[
            "semel-dir 1 put w u v 5 1 3 5\na/b\nvalue",
            "semel-dir 2 closed w - v - 0 0 0\n\n",
            "semel-dir 1 put",
        ];
        const WORDS: &[&str] = &["semel-dir 1 ", "put ", "closed ", "- ", " ", "\n", "18446744073709551615"];
        semel_fuzz::check(&semel_fuzz::Target::new("pages", SEEDS, WORDS), |bytes| {
            let _ = (write_of(bytes), number(bytes));
            match Page::read(bytes) {
                Ok(page) => assert_eq!(Page::read(&page.bytes()).as_ref(), Ok(&page)),
                Err(why) => assert!(!why.is_empty()),
            }
            if bytes.starts_with(b"semel-dir 2 ") {
                assert!(Page::read(bytes).is_err(), "another format is never read as this one");
            }
        });
    }
}
