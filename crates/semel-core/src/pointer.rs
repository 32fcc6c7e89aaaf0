//! JSON pointers: where in a document something is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A JSON pointer (RFC 6901): a place in a JSON document; the empty one is the whole document.
///
/// [`Pointer::as_str`] and serde give the exact text. `Display` is for people: it stays on one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pointer(String);

/// Why a text is no [`Pointer`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It starts with something else than `/`.
    #[error("a JSON pointer starts with '/': write /{}", cut(.0))]
    NoSlash(String),
    /// `~` without `0` or `1`.
    #[error("'~' at character {0} of a JSON pointer: write ~0 for '~' and ~1 for '/'")]
    Tilde(usize),
}

impl Pointer {
    /// The pointer, if the text is one.
    pub fn new(text: &str) -> Result<Pointer, PointerError> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(PointerError::NoSlash(text.to_owned()));
        }
        let mut chars = text.chars().enumerate().peekable();
        while let Some((i, c)) = chars.next() {
            if c == '~' && !matches!(chars.peek(), Some((_, '0' | '1'))) {
                return Err(PointerError::Tilde(i + 1));
            }
        }
        Ok(Pointer(text.to_owned()))
    }

    /// The whole document.
    pub fn root() -> Pointer {
        Pointer::default()
    }

    /// The member of this name, or the element of this index, below.
    pub fn child(&self, token: &str) -> Pointer {
        let mut path = self.0.clone();
        push_token(&mut path, token);
        Pointer(path)
    }

    /// The exact text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `other` is this place or below it.
    pub fn covers(&self, other: &Pointer) -> bool {
        other.0.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    pub(crate) fn from_path(path: &str) -> Pointer {
        Pointer(path.to_owned())
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cut(&self.0))
    }
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Pointer, PointerError> {
        Pointer::new(text)
    }
}

impl TryFrom<String> for Pointer {
    type Error = PointerError;

    fn try_from(text: String) -> Result<Pointer, PointerError> {
        Pointer::new(&text)
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> String {
        pointer.0
    }
}

pub(crate) fn push_token(path: &mut String, token: &str) {
    path.push('/');
    for c in token.chars() {
        match c {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            c => path.push(c),
        }
    }
}

/// Text of others inside a message: on one line, and not longer than a line.
pub(crate) fn cut(text: &str) -> String {
    const SHOWN: usize = 120;
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == SHOWN {
            out.push('…');
            break;
        }
        if crate::name::is_plain(c) { out.push(c) } else { out.extend(c.escape_default()) }
    }
    out
}
