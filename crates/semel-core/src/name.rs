//! Names of jobs, resources and steps, and slots: text from people, kept as data.
//!
//! A name that was accepted is safe to print. It is still escaped or hashed before it becomes a path, a ref or a
//! record's key: [`Name::escaped`] holds no `/`, and two names never share one escaped form.
//!
//! | | length | characters |
//! |---|---|---|
//! | [`Name`] | 1 to 128 | ASCII letters, digits and `. _ - / :`; no leading `-` or `.`; no segment that is empty, `.` or `..` |
//! | [`Slot`] | 1 to 128 | printable; no space at the ends; none of `? # * @` |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The most characters that a name or a slot has.
pub const NAME_LIMIT: usize = 128;

/// The name of a job, a resource or a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Box<str>);

/// Which scheduled occurrence a work belongs to. Opaque here: the schedule chooses the text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Slot(Box<str>);

/// Why a text is no [`Name`] and no [`Slot`]. Positions count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing was given.
    #[error("is empty; write at least one character")]
    Empty,
    /// More than [`NAME_LIMIT`] characters.
    #[error("has {0} characters; at most {NAME_LIMIT} are allowed")]
    TooLong(usize),
    /// A character that is not allowed at all.
    #[error("holds '{}' at character {at}; allowed are {allowed}", .found.escape_default())]
    Character {
        /// Where.
        at: usize,
        /// What stands there.
        found: char,
        /// What may stand there.
        allowed: &'static str,
    },
    /// A name that starts like an option or a hidden file.
    #[error("starts with '{0}'; start with a letter, a digit, '_' or ':'")]
    Start(char),
    /// `a//b`, `/a` or `a/`.
    #[error("has an empty segment at character {0}; write single slashes, none at the ends")]
    EmptySegment(usize),
    /// `a/./b` or `a/../b`.
    #[error(
        "has the segment '{segment}' at character {at}; it would mean another place in a path: leave it out"
    )]
    DotSegment {
        /// Where the segment starts.
        at: usize,
        /// `.` or `..`.
        segment: Box<str>,
    },
    /// A slot with a space at an end.
    #[error("has a space at character {0}; remove spaces at the ends")]
    EndSpace(usize),
}

const IN_NAME: &str = "letters, digits and . _ - / :";
const IN_SLOT: &str = "printable characters other than ? # * @";

impl Name {
    /// The name, if the text is one.
    pub fn new(text: &str) -> Result<Name, NameError> {
        check_length(text)?;
        let bad = |c: &char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':'));
        if let Some((i, found)) = text.chars().enumerate().find(|(_, c)| bad(c)) {
            return Err(NameError::Character { at: i + 1, found, allowed: IN_NAME });
        }
        if let Some(first @ ('-' | '.')) = text.chars().next() {
            return Err(NameError::Start(first));
        }
        // every character is one byte by now, so lengths count characters
        let mut at = 1;
        for segment in text.split('/') {
            match segment {
                "" => return Err(NameError::EmptySegment(at.min(text.len()))),
                "." | ".." => return Err(NameError::DotSegment { at, segment: segment.into() }),
                _ => at += segment.len() + 1,
            }
        }
        Ok(Name(text.into()))
    }

    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as one part of a record's key: see [`escape`].
    pub fn escaped(&self) -> String {
        escape(&self.0)
    }
}

impl Slot {
    /// The slot, if the text is one.
    pub fn new(text: &str) -> Result<Slot, NameError> {
        check_length(text)?;
        let bad = |c: &char| !is_plain(*c) || matches!(c, '?' | '#' | '*' | '@');
        if let Some((i, found)) = text.chars().enumerate().find(|(_, c)| bad(c)) {
            return Err(NameError::Character { at: i + 1, found, allowed: IN_SLOT });
        }
        if text.starts_with(' ') {
            return Err(NameError::EndSpace(1));
        }
        if text.ends_with(' ') {
            return Err(NameError::EndSpace(text.chars().count()));
        }
        Ok(Slot(text.into()))
    }

    /// The slot as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The slot as one part of a record's key: see [`escape`].
    pub fn escaped(&self) -> String {
        escape(&self.0)
    }
}

fn check_length(text: &str) -> Result<(), NameError> {
    match text.chars().count() {
        0 => Err(NameError::Empty),
        length if length > NAME_LIMIT => Err(NameError::TooLong(length)),
        _ => Ok(()),
    }
}

/// Whether a character can be shown in a line as it is: no control character, no white space but the plain
/// space, nothing that is invisible or turns the direction of the text.
///
/// A fixed list, not a Unicode table: what is a slot today must be one with every compiler and in every language.
pub fn is_plain(c: char) -> bool {
    let hidden = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}');
    let space =
        matches!(c, '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}');
    let noncharacter = matches!(c, '\u{fdd0}'..='\u{fdef}') || (c as u32) & 0xfffe == 0xfffe;
    !(c.is_control() || hidden || space || noncharacter)
}

/// Percent-encodes every byte but ASCII letters, digits, `_`, `-` and `.`, and a leading `.` as well: the result
/// holds no `/`, is never `.` or `..`, and no two texts share one.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, byte) in text.bytes().enumerate() {
        let keep = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && i > 0);
        if keep { out.push(char::from(byte)) } else { push_percent(&mut out, byte) }
    }
    out
}

/// Why a text is not what [`escape`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is not an escaped text")]
pub struct EscapeError;

/// The inverse of [`escape`]: anything that [`escape`] does not make is refused, so that a stored key has one
/// spelling.
pub fn unescape(text: &str) -> Result<String, EscapeError> {
    let plain = percent_decode(text).ok_or(EscapeError)?;
    if escape(&plain) == text { Ok(plain) } else { Err(EscapeError) }
}

pub(crate) fn push_percent(out: &mut String, byte: u8) {
    out.push('%');
    for nibble in [byte >> 4, byte & 15] {
        out.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase());
    }
}

/// Every `%XX` as the byte it stands for; `None` if one is cut short or the bytes are not UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut nibble = || char::from(bytes.next()?).to_digit(16);
            let (high, low) = (nibble()?, nibble()?);
            out.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

macro_rules! as_text {
    ($type:ident) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = NameError;

            fn from_str(text: &str) -> Result<$type, NameError> {
                $type::new(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(text: String) -> Result<$type, NameError> {
                $type::new(&text)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.into()
            }
        }
    };
}

as_text!(Name);
as_text!(Slot);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn refusal(text: &str) -> String {
        Name::new(text).unwrap_err().to_string()
    }

    #[test]
    fn a_name_is_letters_digits_and_five_signs() {
        for good in [
            "a",
            "publish",
            "site:blog",
            "a/b/c",
            "A-1_2.x",
            "_x",
            ":x",
            "a/.b",
            "a/-b",
            "a/...",
            &"x".repeat(128),
        ] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn a_refused_name_says_what_is_wrong_and_where() {
        assert_eq!(refusal(""), "is empty; write at least one character");
        assert_eq!(refusal(&"x".repeat(129)), "has 129 characters; at most 128 are allowed");
        assert_eq!(refusal("a b"), "holds ' ' at character 2; allowed are letters, digits and . _ - / :");
        assert_eq!(refusal("ab\n"), "holds '\\n' at character 3; allowed are letters, digits and . _ - / :");
        assert_eq!(refusal("é"), "holds '\\u{e9}' at character 1; allowed are letters, digits and . _ - / :");
        assert_eq!(refusal("-rf"), "starts with '-'; start with a letter, a digit, '_' or ':'");
        assert_eq!(refusal(".."), "starts with '.'; start with a letter, a digit, '_' or ':'");
        for (text, at) in [("/a", 1), ("a//b", 3), ("a/", 2), ("/", 1)] {
            assert_eq!(Name::new(text), Err(NameError::EmptySegment(at)), "{text}");
        }
        for (text, segment) in [("a/./b", "."), ("a/..", ".."), ("a/../b", "..")] {
            assert_eq!(
                Name::new(text),
                Err(NameError::DotSegment { at: 3, segment: segment.into() }),
                "{text}"
            );
        }
    }

    #[test]
    fn a_slot_is_printable_and_holds_no_delimiter() {
        for good in ["2026-06-19", "2026-06-19T10:00:00Z", "week 25", "é", "日本", "100%", "a;b~c&d"] {
            assert_eq!(Slot::new(good).unwrap().as_str(), good);
        }
        for bad in
            ["", " a", "a ", "a?", "a#", "*", "a@b", "a\tb", "a\u{202e}b", "a\u{a0}b", "\u{feff}", "\u{7f}"]
        {
            assert!(Slot::new(bad).is_err(), "{bad:?}");
        }
        assert!(Slot::new(&"é".repeat(128)).is_ok());
        assert_eq!(Slot::new(&"é".repeat(129)), Err(NameError::TooLong(129)));
        assert_eq!(Slot::new("ab "), Err(NameError::EndSpace(3)));
    }

    #[test]
    fn the_escaped_form_is_one_path_segment() {
        assert_eq!(Name::new("site:a/b_c-1.2").unwrap().escaped(), "site%3Aa%2Fb_c-1.2");
        assert_eq!(escape("%2F"), "%252F");
        assert_eq!(escape(".."), "%2E.");
        assert_eq!(escape("é"), "%C3%A9");
        assert_eq!(escape(""), "");
    }

    #[test]
    fn only_the_one_spelling_is_unescaped() {
        assert_eq!(unescape("site%3Aa%2Fb").unwrap(), "site:a/b");
        for bad in ["%", "%2", "%zz", "%2f", "%41", "a/b", ".", "%C3", "%+1", "é"] {
            assert_eq!(unescape(bad), Err(EscapeError), "{bad}");
        }
    }

    #[test]
    fn stored_names_are_checked_on_the_way_in() {
        assert_eq!(serde_json::to_string(&Name::new("a/b").unwrap()).unwrap(), "\"a/b\"");
        assert!(serde_json::from_str::<Name>("\"a//b\"").is_err());
        assert!(serde_json::from_str::<Slot>("\"a@b\"").is_err());
    }
}
