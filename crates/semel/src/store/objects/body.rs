//! What stands in a record's object.
//!
//! ```text
//! semel/1 VERSION WRITE TTL_MS|- LENGTH\n     the length is that of the key, which follows
//! KEY\n
//! VALUE
//! ```
//!
//! `VERSION` is the record's, a random nonce that a renewal leaves alone. `WRITE` is the write's own: no two objects are
//! ever equal, so that each has a tag of its own, and a writer knows its write again. What is left of a removed record
//! is `semel/1 gone WRITE\n`: shorter than any record, so that a listing tells the two apart.

use std::time::Duration;

/// What stands at the beginning of every object.
const MAGIC: &str = "semel/1 ";
/// The format that this build reads and writes.
pub(super) const FORMAT: u32 = 1;
/// Nothing shorter is a record.
const SHORTEST: u64 = 64;
/// The most that stands before a value.
pub(super) const HEADER_LIMIT: usize = 4096;

/// An object's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// A record.
    Record { version: String, write: String, key: String, ttl: Option<Duration>, value: Vec<u8> },
    /// What is left of one that was removed.
    Gone { write: String },
}

impl Body {
    /// The nonce of the write that made it.
    pub(super) fn write(&self) -> &str {
        match self {
            Body::Record { write, .. } | Body::Gone { write } => write,
        }
    }

    /// Its bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Body::Gone { write } => format!("{MAGIC}gone {write}\n").into_bytes(),
            Body::Record { version, write, key, ttl, value } => {
                let ttl = ttl.map_or("-".to_owned(), |ttl| ttl.as_millis().to_string());
                let mut bytes = format!("{MAGIC}{version} {write} {ttl} {}\n{key}\n", key.len()).into_bytes();
                bytes.extend_from_slice(value);
                bytes
            }
        }
    }

    /// The content of these bytes; `None` if they are nothing of ours.
    pub(super) fn decode(bytes: &[u8]) -> Option<Body> {
        let end = bytes.iter().take(HEADER_LIMIT).position(|byte| *byte == b'\n')?;
        let head = std::str::from_utf8(&bytes[..end]).ok()?.strip_prefix(MAGIC)?;
        let words: Vec<&str> = head.split(' ').collect();
        match *words.as_slice() {
            ["gone", write] => Some(Body::Gone { write: write.to_owned() }),
            [version, write, ttl, length] => {
                let ttl = match ttl {
                    "-" => None,
                    ms => Some(Duration::from_millis(ms.parse().ok()?)),
                };
                let length: usize = length.parse().ok()?;
                let rest = bytes.get(end + 1..)?;
                let key = std::str::from_utf8(rest.get(..length)?).ok()?.to_owned();
                let value = rest.get(length..)?.strip_prefix(b"\n")?.to_vec();
                let (version, write) = (version.to_owned(), write.to_owned());
                Some(Body::Record { version, write, key, ttl, value })
            }
            _ => None,
        }
    }
}

/// The format of an object that is a Semel's, and none that this build reads.
pub(super) fn other_format(bytes: &[u8]) -> Option<u32> {
    let head = bytes.strip_prefix(b"semel/")?;
    let digits = head.get(..head.iter().take(10).position(|byte| *byte == b' ')?)?;
    let format = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (format != FORMAT).then_some(format)
}

/// Is an object of this size the rest of a removed record?
pub(super) fn is_gone(size: u64) -> bool {
    size < SHORTEST
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NONCE: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn what_is_written_is_read() {
        for ttl in [None, Some(Duration::from_millis(1500))] {
            for value in [&b""[..], b"\n", b"a\r\nb\0", &[0xff; 300]] {
                let (version, write) = (NONCE.to_owned(), NONCE.to_owned());
                let body =
                    Body::Record { version, write, key: "a/b c".to_owned(), ttl, value: value.to_vec() };
                assert_eq!(Body::decode(&body.encode()).unwrap(), body);
            }
        }
        let gone = Body::Gone { write: NONCE.to_owned() };
        assert_eq!(Body::decode(&gone.encode()).unwrap(), gone);
    }

    #[test]
    fn size_tells_a_record_from_the_rest_of_one() {
        let (version, write) = (NONCE.to_owned(), NONCE.to_owned());
        let least = Body::Record { version, write, key: String::new(), ttl: None, value: Vec::new() };
        assert!(!is_gone(least.encode().len() as u64));
        assert!(is_gone(Body::Gone { write: NONCE.to_owned() }.encode().len() as u64));
    }

    #[test]
    fn what_is_not_ours_is_nothing() {
        for bytes in [&b""[..], b"{}", b"semel/2 gone x\n", b"semel/1 a b c d\n", b"semel/1 a b - 99\nk\nv"] {
            assert_eq!(Body::decode(bytes), None);
        }
    }

    #[test]
    fn an_object_of_a_later_format_is_known_as_such() {
        assert_eq!(other_format(b"semel/2 something new\n"), Some(2));
        for bytes in [&b"semel/1 gone x\n"[..], b"", b"semel/", b"semel/x ", b"semel/99999999999 "] {
            assert_eq!(other_format(bytes), None);
        }
    }

    /// A target of `semel-fuzz`.
    #[test]
    fn bodies() {
        const SEEDS: &[&str] = &[
            "semel/1 0123456789abcdef0123456789abcdef 0123456789abcdef0123456789abcdef 1500 5\na/b c\nvalue",
            "semel/1 v w - 0\n\n",
            "semel/1 gone 0123456789abcdef0123456789abcdef\n",
        ];
        const WORDS: &[&str] = &["semel/1 ", "semel/2 ", "gone ", "- ", " ", "\n", "18446744073709551615"];
        semel_fuzz::check(&semel_fuzz::Target::new("bodies", SEEDS, WORDS), |bytes| {
            if let Some(body) = Body::decode(bytes) {
                assert_eq!(Body::decode(&body.encode()).as_ref(), Some(&body));
                assert!(bytes.starts_with(MAGIC.as_bytes()) && other_format(bytes).is_none());
            }
        });
    }
}
