//! A record's name as a subject, and back.
//!
//! Each part between slashes is a token, so that a prefix that ends in a slash is a filter of the server's. What a token
//! cannot hold is escaped by `=` and a letter; an empty part is `=` alone. Names keep their length, nearly: the longest
//! subject that fits into a line of the protocol (4096 bytes by default) holds every name that Semel makes.

use std::fmt::Write as _;

use semel_core::record::RecordKey;

/// The longest subject: a line of the protocol holds it twice over an inbox and two numbers.
const LONGEST: usize = 3_600;

/// The names of one bucket.
#[derive(Clone, Debug)]
pub(super) struct Subjects {
    /// `$KV.bucket.`
    room: String,
}

impl Subjects {
    pub(super) fn of(bucket: &str) -> Subjects {
        Subjects { room: format!("$KV.{bucket}.") }
    }

    /// Every subject of the bucket.
    pub(super) fn all(&self) -> String {
        format!("{}>", self.room)
    }

    /// The subject of a record; or why it can have none.
    pub(super) fn subject(&self, key: &RecordKey) -> Result<String, String> {
        let mut subject = self.room.clone();
        for (i, part) in key.as_str().split('/').enumerate() {
            if i > 0 {
                subject.push('.');
            }
            escape(part, &mut subject);
        }
        if subject.len() > LONGEST {
            let long = key.as_str().len();
            return Err(format!("a name of {long} bytes is longer than NATS takes: use shorter names"));
        }
        Ok(subject)
    }

    /// A filter that every record under this prefix passes, and perhaps others.
    pub(super) fn filter(&self, prefix: &str) -> String {
        let mut filter = self.room.clone();
        let Some((whole, _)) = prefix.rsplit_once('/') else { return self.all() };
        for part in whole.split('/') {
            let room = filter.len();
            escape(part, &mut filter);
            if filter.len() > LONGEST {
                filter.truncate(room);
                break;
            }
            filter.push('.');
        }
        filter.push('>');
        filter
    }

    /// The record of a subject; `None` if nobody here made it.
    pub(super) fn key(&self, subject: &str) -> Option<RecordKey> {
        let mut name = Vec::with_capacity(subject.len());
        for (i, token) in subject.strip_prefix(&self.room)?.split('.').enumerate() {
            if i > 0 {
                name.push(b'/');
            }
            unescape(token, &mut name)?;
        }
        let key = String::from_utf8(name).ok().map(RecordKey::from_stored)?;
        // a name has one subject: what is spelt otherwise is a stranger's, and must not pass for the record
        (self.subject(&key).as_deref() == Ok(subject)).then_some(key)
    }
}

fn escape(part: &str, to: &mut String) {
    if part.is_empty() {
        to.push('=');
    }
    for byte in part.bytes() {
        match byte {
            b'=' => to.push_str("=="),
            b'.' => to.push_str("=d"),
            b'*' => to.push_str("=s"),
            b'>' => to.push_str("=g"),
            0x21..=0x7e => to.push(char::from(byte)),
            // a String takes everything
            _ => drop(write!(to, "=x{byte:02x}")),
        }
    }
}

fn unescape(token: &str, to: &mut Vec<u8>) -> Option<()> {
    if token == "=" {
        return Some(());
    }
    let mut bytes = token.bytes();
    while let Some(byte) = bytes.next() {
        to.push(match byte {
            b'=' => match bytes.next()? {
                b'=' => b'=',
                b'd' => b'.',
                b's' => b'*',
                b'g' => b'>',
                b'x' => {
                    let mut digit = || char::from(bytes.next()?).to_digit(16);
                    u8::try_from(digit()? * 16 + digit()?).ok()?
                }
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn key(name: &str) -> RecordKey {
        RecordKey::from_stored(name.to_owned())
    }

    #[test]
    fn every_name_comes_back_from_its_subject() {
        let subjects = Subjects::of("b");
        for name in
            ["a", "a/b", "a//b", "/", "", "a/", "a.b/c*d>e =f", "a%2Fb", "=", "==", "=d", "a\u{e4}/\t"]
        {
            let subject = subjects.subject(&key(name)).unwrap();
            assert_eq!(subjects.key(&subject), Some(key(name)), "{subject}");
            assert!(subject.starts_with("$KV.b."), "{subject}");
            let tokens: Vec<&str> = subject.split('.').collect();
            assert!(tokens.iter().all(|token| !token.is_empty()), "{subject}");
            assert!(!subject.contains(['*', '>', ' ', '\t']), "{subject}");
        }
    }

    #[test]
    fn names_that_differ_have_subjects_that_differ() {
        let subjects = Subjects::of("b");
        let names = ["", "/", "//", "=", "a", "a/", "a/=", "a.", "a=d", "a/b", "a.b", "a==b", "a=b"];
        let all: std::collections::BTreeSet<String> =
            names.iter().map(|name| subjects.subject(&key(name)).unwrap()).collect();
        assert_eq!(all.len(), names.len());
    }

    #[test]
    fn a_filter_is_made_of_the_whole_parts_of_a_prefix() {
        let subjects = Subjects::of("b");
        assert_eq!(subjects.filter(""), "$KV.b.>");
        assert_eq!(subjects.filter("a"), "$KV.b.>");
        assert_eq!(subjects.filter("a/"), "$KV.b.a.>");
        assert_eq!(subjects.filter("a/b.c/d"), "$KV.b.a.b=dc.>");
        assert_eq!(subjects.filter("a//"), "$KV.b.a.=.>");
    }

    #[test]
    fn the_longest_names_of_semel_fit_and_longer_ones_are_refused_in_a_line() {
        let subjects = Subjects::of(&"b".repeat(64));
        assert!(subjects.subject(&key(&"./".repeat(768))).is_ok());
        let why = subjects.subject(&key(&"a".repeat(4_000))).unwrap_err();
        assert!(why.contains("4000 bytes"), "{why}");
        assert!(subjects.filter(&format!("{}/", "a".repeat(4_000))).len() < 100);
    }

    #[test]
    fn a_subject_that_spells_a_name_otherwise_is_a_strangers() {
        let subjects = Subjects::of("b");
        assert_eq!(subjects.key("$KV.b.a/b"), None, "a slash is a dot there");
        assert_eq!(subjects.key("$KV.b.a.b"), Some(key("a/b")));
    }

    /// A target of `semel-fuzz`.
    #[test]
    fn subjects() {
        const SEEDS: &[&str] = &["$KV.b.entry.a.=.x", "entry/a//x", "$KV.b.=d=", "a.b/c*d>e =f"];
        semel_fuzz::check(
            &semel_fuzz::Target::new("subjects", SEEDS, &["$KV.b.", "=", ".", "*", ">", "/"]),
            |bytes| {
                let Ok(text) = std::str::from_utf8(bytes) else { return };
                let subjects = Subjects::of("b");
                if let Ok(subject) = subjects.subject(&key(text)) {
                    assert_eq!(subjects.key(&subject), Some(key(text)));
                    assert!(!subject.contains(['*', '>', ' ']), "{subject}");
                }
                if let Some(name) = subjects.key(text) {
                    assert!(
                        subjects.subject(&name).is_err() || subjects.subject(&name).as_deref() == Ok(text),
                        "one spelling"
                    );
                }
                let _ = subjects.filter(text);
            },
        );
    }
}
