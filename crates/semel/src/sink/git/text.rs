//! Text that goes to git and comes from it: the fence's name, effect ids, addresses that may hold a password.

use std::fmt;
use std::str::FromStr;

use semel_core::name::{Name, escape};

/// The trailer by which an effect is known.
pub const TRAILER: &str = "Effect-Id";

/// The most bytes of an effect id.
const ID_LIMIT: usize = 200;

/// The most bytes of one part of a fence's name: it becomes a file's name on most remotes.
const PART: usize = 100;

/// The fence ref of a resource. No two resources share one, and none lies below another's.
pub fn fence_ref(resource: &Name) -> String {
    // git refuses `..`, a dot at an end and `.lock`
    let escaped = escape(resource.as_str()).replace('.', "%2E");
    let mut name = String::from("refs/fence/");
    let mut rest = escaped.as_str();
    while rest.len() > PART {
        // all of it is ASCII; a `%` before the slash is no escape, so no shorter name ends here
        let (part, more) = rest.split_at(PART);
        name.push_str(part);
        name.push_str("%/");
        rest = more;
    }
    name + rest
}

/// What a pushed commit is known by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectId(Box<str>);

/// Why a text is no [`EffectId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an effect id is 1 to {ID_LIMIT} of letters, digits and . _ - / : @ + = % ~ ,")]
pub struct EffectIdError;

impl EffectId {
    /// The id, if the text is one.
    pub fn new(text: &str) -> Result<EffectId, EffectIdError> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"._-/:@+=%~,".contains(&b);
        let whole = !text.is_empty() && text.len() <= ID_LIMIT && text.bytes().all(good);
        if whole { Ok(EffectId(text.into())) } else { Err(EffectIdError) }
    }

    /// The id as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The line that marks a commit with it.
    pub fn trailer(&self) -> String {
        format!("{TRAILER}: {self}")
    }

    /// The line as an extended regular expression.
    pub(super) fn pattern(&self) -> String {
        let id: String = self
            .0
            .chars()
            .map(|c| if matches!(c, '.' | '+') { format!("[{c}]") } else { c.into() })
            .collect();
        format!("^[Ee]ffect-[Ii]d:[[:space:]]*{id}[[:space:]]*$")
    }

    /// Does one of these lines mark it?
    pub(super) fn is_in(&self, message: &str) -> bool {
        message
            .lines()
            .filter_map(|line| line.split_once(':'))
            .any(|(key, value)| key.eq_ignore_ascii_case(TRAILER) && value.trim() == self.as_str())
    }
}

impl fmt::Display for EffectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EffectId {
    type Err = EffectIdError;
    fn from_str(text: &str) -> Result<EffectId, EffectIdError> {
        EffectId::new(text)
    }
}

/// The text without what stands between `://` and `@`: it may be a password.
pub fn mask(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after
            .find(|c: char| c == '/' || c.is_whitespace() || matches!(c, '\'' | '"'))
            .unwrap_or(after.len());
        let host = after[..end].rfind('@').map_or(0, |at| at + 1);
        if host > 0 {
            out.push_str("***@");
        }
        out.push_str(&after[host..end]);
        rest = &after[end..];
    }
    out + rest
}

/// At most so many bytes, cut between characters, with the end kept: errors come last.
pub(super) fn tail(text: &str, limit: usize) -> &str {
    let mut from = text.len().saturating_sub(limit);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn fences_have_names_that_git_takes_and_share_none() {
        let name = |text: &str| fence_ref(&Name::new(text).unwrap());
        assert_eq!(name("site"), "refs/fence/site");
        assert_eq!(name("a/b:c.lock"), "refs/fence/a%2Fb%3Ac%2Elock");
        assert_eq!(name("a..b."), "refs/fence/a%2E%2Eb%2E");
        let long = vec!["a"; 64].join("/");
        let (long, longer) = (name(&long), name(&format!("{long}b")));
        assert_ne!(long, longer);
        for part in long.split('/').chain(longer.split('/')) {
            assert!(part.len() <= PART + 1, "{part}");
        }
        // a name of exactly one part, and one that goes on from there
        let (short, goes_on) = (name(&"a".repeat(100)), name(&"a".repeat(101)));
        assert!(!goes_on.starts_with(&format!("{short}/")), "{short} {goes_on}");
    }

    #[test]
    fn ids_are_found_as_whole_lines() {
        let id = EffectId::new("a.b").unwrap();
        assert!(id.is_in("subject\n\nEffect-Id: a.b\n"));
        assert!(id.is_in("x\r\n\r\neffect-id:a.b \r\nSigned-off-by: me"));
        assert!(!id.is_in("Effect-Id: a.bc") && !id.is_in("see Effect-Id: a.b"));
        for bad in ["", "a b", "a\nb", "é", "a*", &"a".repeat(201)] {
            assert!(EffectId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn passwords_are_masked() {
        assert_eq!(mask("fatal: 'https://me:pa@ss@host/x': no"), "fatal: 'https://***@host/x': no");
        assert_eq!(mask("ssh://git@h/x and https://t:@k"), "ssh://***@h/x and https://***@k");
        assert_eq!(mask("git@host:path /a/b@c http://h/a@b"), "git@host:path /a/b@c http://h/a@b");
        assert_eq!(mask("://"), "://");
    }
}
