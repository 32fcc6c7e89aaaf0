//! Records by prefix, in the order of their names.
//!
//! A stream tells the subjects that pass a filter, all of them, in pages of 100,000. So a scan first asks for the names
//! under its prefix, and then for the records of its page. The rest of the names is kept for the next page, for a while:
//! a record that is made while somebody pages may be left out, as in any listing. Memory: the names under one prefix.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Duration;

use semel_core::record::RecordKey;

use super::bucket::Bucket;
use super::swap::Marks;
use super::{AT_ONCE, Failure, Nats, look};
use crate::clock::boottime;
use crate::store::{Record, StoreError};

/// The most names that one listing may have.
const MOST: usize = 2_000_000;
/// How long the rest of a listing is good, and how many of them are kept.
const GOOD_FOR: Duration = Duration::from_secs(60);
const KEPT: usize = 2;

/// Names that are still to be handed out.
#[derive(Debug)]
struct Listing {
    prefix: String,
    /// The last one handed out.
    after: RecordKey,
    rest: VecDeque<RecordKey>,
    at: Duration,
}

/// The rests of listings.
#[derive(Debug, Default)]
pub(super) struct Listings(VecDeque<Listing>);

impl Nats {
    pub(super) async fn scan_now(
        &self,
        prefix: &str,
        after: Option<&RecordKey>,
        limit: usize,
        marks: &Marks,
    ) -> Result<Vec<Record>, Failure> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let bucket = self.bucket().await?;
        let kept = after.and_then(|after| self.rest_of(prefix, after));
        let (mut rest, at) = match kept {
            Some(listing) => (listing.rest, listing.at),
            None => (self.list(&bucket, prefix, after).await?, boottime()),
        };
        let mut page: Vec<Record> = Vec::new();
        while page.len() < limit && !rest.is_empty() {
            let many = (limit - page.len()).min(rest.len()).min(AT_ONCE);
            let keys: Vec<RecordKey> = rest.drain(..many).collect();
            let subjects = self.subjects_of(keys.iter())?;
            let looked = look(&bucket, &subjects).await.map_err(Failure::of_read)?;
            for (i, key) in keys.iter().enumerate() {
                page.extend(looked.record(i, key));
            }
            let gone = looked.stands.iter().zip(subjects).filter_map(|(found, subject)| {
                let old = |found: &&super::bucket::Found| {
                    found.is_mark_older_than(self.address.marks, looked.now_us)
                };
                found.as_ref().filter(old).map(|found| (subject, found.seq))
            });
            marks.lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
        }
        if let Some(last) = page.last().filter(|_| !rest.is_empty()) {
            self.keep(Listing { prefix: prefix.to_owned(), after: last.key.clone(), rest, at });
        }
        Ok(page)
    }

    async fn list(
        &self,
        bucket: &Bucket,
        prefix: &str,
        after: Option<&RecordKey>,
    ) -> Result<VecDeque<RecordKey>, Failure> {
        let filter = self.subjects.filter(prefix);
        let (mut names, mut told) = (Vec::new(), 0);
        loop {
            let some = bucket.subjects(&filter, told).await.map_err(Failure::of_read)?;
            if some.is_empty() {
                break;
            }
            told += some.len();
            if told > MOST {
                let why = format!("more than {MOST} names lie under {prefix}: too many to list in NATS");
                return Err(StoreError::Unavailable(why).into());
            }
            let fits =
                |key: &RecordKey| key.as_str().starts_with(prefix) && after.is_none_or(|after| key > after);
            names.extend(some.iter().filter_map(|subject| self.subjects.key(subject)).filter(fits));
        }
        names.sort_unstable();
        // a record that is written while the pages are told may be in two of them
        names.dedup();
        Ok(names.into())
    }

    fn rest_of(&self, prefix: &str, after: &RecordKey) -> Option<Listing> {
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let now = boottime();
        listings.0.retain(|listing| now.saturating_sub(listing.at) < GOOD_FOR);
        let at = listings.0.iter().position(|listing| listing.prefix == prefix && listing.after == *after)?;
        listings.0.remove(at)
    }

    fn keep(&self, listing: Listing) {
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        while listings.0.len() >= KEPT {
            listings.0.pop_front();
        }
        listings.0.push_back(listing);
    }
}
