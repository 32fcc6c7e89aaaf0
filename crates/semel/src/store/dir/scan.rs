//! Pages of records, in the order of their keys; and the sweep, which goes the same way.
//!
//! A folder is listed in no order, so each page lists the folders on its way and keeps the first names it needs: memory
//! is bounded by the page, and time by the number of names in those folders. A folder of 100,000 records costs a
//! listing of 100,000 names for each page.

use std::collections::BinaryHeap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use semel_core::record::RecordKey;

use super::super::{Record, StoreError};
use super::fault::Fault;
use super::names::Item;
use super::place::RECORDS;
use super::records::{Records, State};

/// The fewest and the most names that are kept of one listing.
const NAMES: std::ops::RangeInclusive<usize> = 64..=4096;
/// More levels than a key has.
const DEPTH: usize = 1024;

/// A way through the records, in the order of their keys.
pub(super) struct Walk<'a> {
    pub(super) prefix: &'a str,
    pub(super) after: Option<&'a str>,
    /// How many records count.
    pub(super) limit: usize,
    /// Look at the record of this key; does it count?
    pub(super) visit: &'a mut dyn FnMut(&str) -> Result<bool, Fault>,
    /// A folder of keys that holds none.
    pub(super) empty: &'a mut dyn FnMut(&Path),
}

impl Records {
    pub(super) fn scan(
        &self,
        prefix: &str,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut found = Vec::new();
        let mut visit = |key: &str| {
            let State::Stands(_, head) = self.look(key)?.state else { return Ok(false) };
            found.push((RecordKey::from_stored(key.to_owned()), head));
            Ok(true)
        };
        let after = after.map(RecordKey::as_str);
        self.walk(Walk { prefix, after, limit, visit: &mut visit, empty: &mut |_| {} })?;
        let clocked = found.iter().any(|(_, head)| head.page.ttl.is_some());
        let now = if clocked { self.place.now()? } else { Duration::ZERO };
        Ok(found.iter().map(|(key, head)| head.record(key, now)).collect())
    }

    pub(super) fn walk(&self, mut walk: Walk<'_>) -> Result<(), Fault> {
        self.walk_in(&mut walk, Path::new(RECORDS), "", 0)
    }

    fn walk_in(&self, walk: &mut Walk<'_>, folder: &Path, base: &str, depth: usize) -> Result<(), Fault> {
        let most = walk.limit.clamp(*NAMES.start(), *NAMES.end());
        let mut done: Option<Item> = None;
        while walk.limit > 0 {
            let first = self.first(folder, base, most, |item: &Item| {
                item.reaches(walk.prefix, walk.after) && done.as_ref().is_none_or(|done| item > done)
            })?;
            if first.is_empty {
                (walk.empty)(folder);
            }
            for item in &first.items {
                if walk.limit == 0 {
                    return Ok(());
                }
                if item.is_record {
                    walk.limit -= usize::from((walk.visit)(&item.key)?);
                } else if depth < DEPTH {
                    self.walk_in(walk, &below(folder, base, item), &item.key, depth + 1)?;
                }
            }
            match first.items.into_iter().next_back() {
                Some(last) if first.more => done = Some(last),
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// The first items of a folder that fit, in order, at most so many.
    fn first(
        &self,
        folder: &Path,
        base: &str,
        most: usize,
        fits: impl Fn(&Item) -> bool,
    ) -> Result<First, Fault> {
        let mut heap = BinaryHeap::new();
        let (mut more, mut is_empty) = (false, true);
        let listed = self.place.root.folder(folder).and_then(|folder| {
            folder.names(|name| {
                is_empty = false;
                heap.extend(Item::read(base, name).filter(&fits));
                if heap.len() > most {
                    heap.pop();
                    more = true;
                }
            })
        });
        match listed {
            // removed meanwhile
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                Ok(First { items: Vec::new(), more: false, is_empty: false })
            }
            Err(why) => Err(self.fault("list a folder")(why)),
            Ok(()) => Ok(First { items: heap.into_sorted_vec(), more, is_empty }),
        }
    }
}

struct First {
    items: Vec<Item>,
    more: bool,
    is_empty: bool,
}

/// Where an item's folder lies.
fn below(folder: &Path, base: &str, item: &Item) -> PathBuf {
    let part = item.key.get(base.len()..).unwrap_or_default();
    folder.join(match part.strip_suffix('/') {
        Some(part) => format!("@{part}"),
        None => format!("~{part}"),
    })
}
