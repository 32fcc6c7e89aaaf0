//! Where the folder of a record lies, and in which order.
//!
//! A key is split at its slashes. All parts but the last are folders named `@PART`; the last is the record's own
//! folder, `=PART`. So a prefix is a folder, and what lies in one folder sorts as the keys do: `=a` is the key `a`
//! and `@a` is all keys that begin with `a/`. A part that is too long for a name is cut: `~` and its first 200
//! bytes is a folder that holds the rest of it.

use std::path::{Path, PathBuf};

/// A part that is as long or longer is cut here. A name may have 255 bytes.
const CUT: usize = 200;

/// The folder of a record, below the folder of all records.
pub(super) fn place(records: &Path, key: &str) -> PathBuf {
    let mut path = records.to_owned();
    let mut parts = key.split('/').peekable();
    while let Some(part) = parts.next() {
        let mut rest = part.as_bytes();
        while let Some((head, tail)) = rest.split_at_checked(CUT) {
            path.push(named('~', head));
            rest = tail;
        }
        path.push(named(if parts.peek().is_some() { '@' } else { '=' }, rest));
    }
    path
}

fn named(kind: char, part: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    let mut name = Vec::with_capacity(part.len() + 1);
    name.push(kind as u8);
    name.extend_from_slice(part);
    PathBuf::from(std::ffi::OsString::from_vec(name))
}

/// What one name in a folder of keys stands for. Sorts as the keys do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    /// What its keys begin with; the key itself if it is a record.
    pub(super) key: String,
    /// Is it one record, or a folder of more?
    pub(super) is_record: bool,
}

impl Item {
    /// What this name in the folder of the keys that begin with `base` stands for; `None` if it is none of ours.
    pub(super) fn read(base: &str, name: &[u8]) -> Option<Item> {
        let name = std::str::from_utf8(name).ok()?;
        let mut chars = name.chars();
        let kind = chars.next()?;
        let part = chars.as_str();
        match kind {
            '=' => Some(Item { key: format!("{base}{part}"), is_record: true }),
            '@' => Some(Item { key: format!("{base}{part}/"), is_record: false }),
            '~' => Some(Item { key: format!("{base}{part}"), is_record: false }),
            _ => None,
        }
    }

    /// Can it hold a key that begins with `prefix` and comes after `after`?
    pub(super) fn reaches(&self, prefix: &str, after: Option<&str>) -> bool {
        if self.is_record {
            return self.key.starts_with(prefix) && after.is_none_or(|after| self.key.as_str() > after);
        }
        let overlaps = self.key.starts_with(prefix) || prefix.starts_with(&self.key);
        // all of a folder's keys come before `after` if the folder does and `after` is not below it
        overlaps && after.is_none_or(|after| self.key.as_str() > after || after.starts_with(&self.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(key: &str) -> String {
        place(Path::new("r"), key).display().to_string()
    }

    #[test]
    fn a_part_is_a_folder() {
        assert_eq!(at("a"), "r/=a");
        assert_eq!(at("entry/job//k"), "r/@entry/@job/@/=k");
        assert_eq!(at("a/"), "r/@a/=");
        assert_eq!(at("../.."), "r/@../=..");
    }

    #[test]
    fn no_name_is_longer_than_a_file_system_allows() {
        for length in [199, 200, 201, 400, 1500] {
            let path = place(Path::new("r"), &format!("{}/x", "a".repeat(length)));
            assert!(path.iter().all(|name| name.len() <= CUT + 1), "{length}");
        }
        assert_eq!(at(&"a".repeat(200)), format!("r/~{}/=", "a".repeat(200)));
    }

    /// Walks the names as a scan does.
    fn walk(tree: &[PathBuf], folder: &Path, base: &str, found: &mut Vec<String>) {
        let mut items: Vec<Item> = tree
            .iter()
            .filter_map(|path| path.strip_prefix(folder).ok())
            .filter_map(|rest| rest.iter().next())
            .filter_map(|name| Item::read(base, name.as_encoded_bytes()))
            .collect();
        items.sort();
        items.dedup();
        for item in items {
            if item.is_record {
                found.push(item.key);
            } else {
                let name = if item.key.ends_with('/') {
                    format!("@{}", item.key[base.len()..].trim_end_matches('/'))
                } else {
                    format!("~{}", &item.key[base.len()..])
                };
                walk(tree, &folder.join(name), &item.key, found);
            }
        }
    }

    #[test]
    fn the_order_of_names_is_the_order_of_keys() {
        let long = "a".repeat(200);
        let mut keys: Vec<String> =
            ["a", "a-b", "a.b", "a/", "a/1", "a/1/2", "a0", "A/1", "a%2F", "aa/1", "b"]
                .map(str::to_owned)
                .to_vec();
        for tail in ["", "!", "/", "/x", "0", "z/y"] {
            keys.push(format!("{long}{tail}"));
            keys.push(format!("x/{long}{tail}"));
            keys.push(format!("{}{tail}", &long[1..]));
        }
        let tree: Vec<PathBuf> = keys.iter().map(|key| place(Path::new("r"), key)).collect();
        let mut found = Vec::new();
        walk(&tree, Path::new("r"), "", &mut found);
        keys.sort();
        assert_eq!(found, keys);
    }

    #[test]
    fn a_folder_is_left_out_only_if_none_of_its_keys_can_match() {
        let folder = |key: &str| Item { key: key.to_owned(), is_record: false };
        assert!(folder("a/").reaches("a/b", None) && folder("a/").reaches("", None));
        assert!(!folder("a/").reaches("b", None));
        assert!(folder("a/").reaches("a", Some("a/x")) && folder("a/").reaches("a", Some("a")));
        assert!(!folder("a/").reaches("a", Some("a0")) && folder("b/").reaches("", Some("a0")));
    }
}
