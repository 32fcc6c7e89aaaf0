//! Pages of records: a listing, then the objects that it names.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use semel_core::record::RecordKey;

use super::Objects;
use super::bucket::RECORDS;
use super::failure::Failure;
use super::name;
use super::state::Stands;
use crate::store::{Record, StoreError};

/// How many objects are read at once, and so how many values are held beyond those that are answered.
const AT_ONCE: usize = 16;
/// The most that a service lists at once.
const LISTED: usize = 1000;

/// What a scan has found so far.
struct Found<'a> {
    prefix: &'a str,
    after: Option<&'a RecordKey>,
    limit: usize,
    records: Vec<Record>,
    /// Records with the same long beginning: listed beside each other, but not in the order of their keys.
    crowd: Option<(String, BTreeMap<RecordKey, Record>)>,
}

impl Found<'_> {
    fn take(&mut self, name: &str, record: Record) {
        let crowd = name::crowd(name);
        if self.crowd.as_ref().map(|(of, _)| of.as_str()) != crowd {
            self.close();
            self.crowd = crowd.map(|of| (of.to_owned(), BTreeMap::new()));
        }
        if !record.key.as_str().starts_with(self.prefix)
            || self.after.is_some_and(|after| record.key <= *after)
        {
            return;
        }
        let room = self.limit.saturating_sub(self.records.len());
        match &mut self.crowd {
            None if room > 0 => self.records.push(record),
            None => {}
            Some((_, crowd)) => {
                crowd.insert(record.key.clone(), record);
                while crowd.len() > room {
                    crowd.pop_last();
                }
            }
        }
    }

    /// The records of a crowd are all there: they are next.
    fn close(&mut self) {
        if let Some((_, crowd)) = self.crowd.take() {
            self.records.extend(crowd.into_values());
        }
    }

    fn is_full(&self) -> bool {
        self.records.len() >= self.limit
    }
}

impl Objects {
    pub(super) async fn scan_now(
        &self,
        prefix: &str,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let Some(begin) = name::prefix(prefix) else { return Ok(Vec::new()) };
        // a key outside of the prefix is before all of it, or behind
        let inside = after.filter(|after| after.as_str().starts_with(prefix));
        if limit == 0 || after.is_some_and(|after| inside.is_none() && after.as_str() > prefix) {
            return Ok(Vec::new());
        }
        let offset = inside.and_then(|after| name::before(after.as_str()));
        let mut found = Found { prefix, after, limit, records: Vec::new(), crowd: None };
        let mut token = None;
        loop {
            let most = limit.saturating_add(1).min(LISTED);
            let page = self.bucket.list(&begin, offset.as_deref(), token, most).await;
            let page = page.map_err(Failure::of_a_read)?;
            for names in page.names.chunks(AT_ONCE) {
                let paths: Vec<String> = names.iter().map(|name| format!("{RECORDS}{name}")).collect();
                let read = join_all(paths.iter().map(|path| self.bucket.get(path))).await;
                for ((name, path), stands) in names.iter().zip(&paths).zip(read) {
                    let Some(stands) = stands.map_err(Failure::of_a_read)? else { continue };
                    self.memory.keep(path, &stands);
                    if let Some(record) = Stands::record(&stands) {
                        found.take(name, record);
                    }
                }
                if found.is_full() {
                    return Ok(found.records);
                }
            }
            token = page.next;
            if token.is_none() {
                found.close();
                return Ok(found.records);
            }
        }
    }
}
