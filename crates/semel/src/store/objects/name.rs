//! What a record's object is called.
//!
//! A name keeps the order of the keys and their prefixes, byte by byte, and is one segment of a path: `.` and `/` become
//! `.-` and `._`, everything else stays. Services take names of 1024 bytes, and keys may be longer: of a long one the
//! first [`KEPT`] bytes stay and a digest of all of it follows. Such names lie beside each other in the listing, at the
//! place of their common beginning, but not in the order of their keys: who lists must sort them.

use sha2::{Digest, Sha256};

/// How much of a long name is kept.
pub(super) const KEPT: usize = 800;
/// Between what is kept and the digest: no byte of a key sorts after it.
const MARK: char = '~';

/// The name of this key's object; `None` if a byte of it cannot stand in a name.
pub(super) fn name(key: &str) -> Option<String> {
    let whole = escaped(key)?;
    if whole.len() <= KEPT {
        return Some(whole);
    }
    let digest: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{}{MARK}{digest}", &whole[..KEPT]))
}

/// What the names of all keys with this prefix begin with. Others may begin so, too, where the prefix is long.
pub(super) fn prefix(prefix: &str) -> Option<String> {
    let mut whole = escaped(prefix)?;
    whole.truncate(KEPT);
    Some(whole)
}

/// The last name before those of keys after this one.
pub(super) fn before(key: &str) -> Option<String> {
    let mut name = name(key)?;
    // those that share its beginning stand in the order of their digests: all of them are looked at
    name.truncate(KEPT);
    Some(name)
}

/// The common beginning of names that are not in the order of their keys, if this is one of them.
pub(super) fn crowd(name: &str) -> Option<&str> {
    (name.len() > KEPT).then(|| &name[..KEPT])
}

fn escaped(key: &str) -> Option<String> {
    let mut name = String::with_capacity(key.len() + 16);
    for c in key.chars() {
        match c {
            '.' => name.push_str(".-"),
            '/' => name.push_str("._"),
            ' '..='}' => name.push(c),
            _ => return None,
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_keep_the_order_of_keys_and_their_prefixes() {
        let mut keys = vec!["a", "a-b", "a.b", "a/", "a//b", "a/1", "a0", "a_", "A/1", "a%2F1", "aa/1", ""];
        keys.sort_unstable();
        let names: Vec<String> = keys.iter().map(|key| name(key).unwrap()).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
        for (key, name) in keys.iter().zip(&names) {
            assert!(!name.contains('/') && name != "." && name != "..");
            for prefix in &keys {
                let begins = name.starts_with(&super::prefix(prefix).unwrap());
                assert_eq!(key.starts_with(prefix), begins, "{key} {prefix}");
            }
        }
    }

    #[test]
    fn long_names_fit_and_lie_where_their_beginning_does() {
        let long = "k".repeat(1500);
        let (one, two) = (format!("{long}/1"), format!("{long}/2"));
        assert_eq!(name(&one).unwrap().len(), KEPT + 65);
        assert_ne!(name(&one), name(&two));
        assert_eq!(crowd(&name(&one).unwrap()), crowd(&name(&two).unwrap()));
        let short = "k".repeat(KEPT);
        assert_eq!(crowd(&name(&short).unwrap()), None);
        assert!(name(&short).unwrap() < name(&one).unwrap() && name(&one).unwrap() < name("l").unwrap());
        assert!(before(&two).unwrap() < name(&one).unwrap());
        // a prefix that is longer than what is kept still finds its keys
        assert!(name(&one).unwrap().starts_with(&prefix(&one).unwrap()));
    }

    #[test]
    fn a_byte_that_no_key_has_is_refused() {
        assert_eq!((name("a\n"), name("a~"), name("ä")), (None, None, None));
    }
}
