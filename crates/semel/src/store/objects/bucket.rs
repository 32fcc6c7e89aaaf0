//! Requests for single objects: read, write on a condition, list.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::list::PaginatedListOptions;
use object_store::path::Path;
use object_store::{GetOptions, PutMode, PutOptions, PutPayload, UpdateVersion};
use semel_core::record::VALUE_LIMIT;
use tokio::sync::{OnceCell, Semaphore};

use super::address::{Kind, Place};
use super::body::{Body, FORMAT, HEADER_LIMIT, is_gone, other_format};
use super::failure::{Failure, failure};
use super::state::{Reading, Stands};
use super::wire::Answered;
use crate::clock::boottime;

/// How many requests are under way at once, and so how many connections there are.
const LANES: usize = 16;

/// How many requests may wait for their turn before those that nobody waits for are thrown away.
const WAITING: usize = 256;

/// What comes of a request that several wait for.
type Look = OnceCell<Result<Option<Stands>, Failure>>;

/// A bucket, asked by a bounded number at a time.
#[derive(Debug)]
pub(super) struct Bucket {
    pub(super) place: Place,
    lanes: Semaphore,
    /// The requests for an object that are not sent yet.
    looks: Mutex<HashMap<String, Arc<Look>>>,
    /// The longest that one write may take: some of a verb's time is left for reading back.
    write_limit: Duration,
    /// Some services compare the bare text of a tag, without its quotes.
    bare_tags: AtomicBool,
}

/// One page of a listing.
pub(super) struct Page {
    /// Names of records, without the root, in the order of the service.
    pub(super) names: Vec<String>,
    /// What is left of removed records: their names, and when they were removed.
    pub(super) gone: Vec<(String, UpdateVersion, i64)>,
    /// The service's clock.
    pub(super) date_ms: Option<i64>,
    /// How to get the next page, if there is one.
    pub(super) next: Option<String>,
}

impl Bucket {
    pub(super) fn new(place: Place, deadline: Duration) -> Bucket {
        let write_limit = deadline.mul_f64(0.6);
        let (lanes, looks) = (Semaphore::new(LANES), Mutex::default());
        Bucket { place, lanes, looks, write_limit, bare_tags: AtomicBool::new(false) }
    }

    /// What stands under this name, read after this was called. Those who ask while a request for it waits for its turn
    /// share that request: many workers guard on one lease.
    pub(super) async fn get(&self, name: &str) -> Result<Option<Stands>, Failure> {
        let look = self.join(name);
        let ask = || async {
            let _lane = self.lane().await?;
            self.is_sent(name, &look);
            match self.get_once(name).await {
                // a connection broke: nothing is changed by asking once more
                Err(Failure::Unclear(_)) => self.get_once(name).await,
                answer => answer,
            }
        };
        look.get_or_init(ask).await.clone()
    }

    /// The request for this object that is not sent yet.
    fn join(&self, name: &str) -> Arc<Look> {
        let mut looks = self.looks();
        if looks.len() > WAITING {
            // left by those who were dropped before their turn
            looks.retain(|_, look| Arc::strong_count(look) > 1);
        }
        Arc::clone(looks.entry(name.to_owned()).or_default())
    }

    /// Who asks from now on came too late for this request.
    fn is_sent(&self, name: &str, look: &Arc<Look>) {
        let mut looks = self.looks();
        if looks.get(name).is_some_and(|next| Arc::ptr_eq(next, look)) {
            looks.remove(name);
        }
    }

    fn looks(&self) -> MutexGuard<'_, HashMap<String, Arc<Look>>> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn get_once(&self, name: &str) -> Result<Option<Stands>, Failure> {
        let path = self.path(name)?;
        let got = match self.place.service.get_opts(&path, GetOptions::default()).await {
            Ok(got) => got,
            Err(error) => {
                return match failure(&self.place, &error) {
                    Failure::Absent => Ok(None),
                    other => Err(other),
                };
            }
        };
        let answered = got.extensions.get::<Answered>().copied();
        let meta = got.meta.clone();
        if meta.size > (VALUE_LIMIT + HEADER_LIMIT) as u64 {
            return Err(self.not_ours(name));
        }
        let bytes = got.bytes().await.map_err(|error| failure(&self.place, &error))?;
        let body = Body::decode(&bytes).ok_or_else(|| match other_format(&bytes) {
            Some(found) => self.newer(name, found),
            None => self.not_ours(name),
        })?;
        let Some(Answered { date_ms, sent }) = answered else {
            return Err(Failure::Refused(format!(
                "{} answers without a Date: it gives no clock for leases",
                self.place.host
            )));
        };
        let modified_ms = meta.last_modified.timestamp_millis();
        let tag = UpdateVersion { e_tag: meta.e_tag, version: meta.version };
        Ok(Some(Stands { body, tag, reading: Reading { modified_ms, date_ms, sent, read: true } }))
    }

    /// Write this under a name: where there is nothing, or over what has this tag.
    pub(super) async fn put(
        &self,
        name: &str,
        body: Body,
        over: Option<UpdateVersion>,
    ) -> Result<(UpdateVersion, Option<Reading>), Failure> {
        let bytes = body.encode();
        self.put_bytes(name, bytes, over).await
    }

    /// As [`put`](Bucket::put), of any bytes.
    pub(super) async fn put_bytes(
        &self,
        name: &str,
        bytes: Vec<u8>,
        over: Option<UpdateVersion>,
    ) -> Result<(UpdateVersion, Option<Reading>), Failure> {
        let _lane = self.lane().await?;
        let path = self.path(name)?;
        let mode = over.map_or(PutMode::Create, |tag| PutMode::Update(self.as_compared(tag)));
        let write = self.place.service.put_opts(&path, PutPayload::from(bytes), PutOptions::from(mode));
        let written = match tokio::time::timeout(self.write_limit, write).await {
            Ok(written) => written.map_err(|error| failure(&self.place, &error))?,
            Err(_) => {
                return Err(Failure::Unclear(format!("{} does not answer in time", self.place.host)));
            }
        };
        let reading = written.extensions.get::<Answered>().map(|answered| {
            let took = boottime().saturating_sub(answered.sent).as_millis();
            let took = i64::try_from(took).unwrap_or(i64::MAX);
            // it was written after it was sent: at the earliest so, in whole seconds
            let modified_ms = answered.date_ms.saturating_sub(took).saturating_sub(1000);
            Reading { modified_ms, date_ms: answered.date_ms, sent: answered.sent, read: false }
        });
        Ok((UpdateVersion { e_tag: written.e_tag, version: written.version }, reading))
    }

    /// A page of names that begin so, after `offset`.
    pub(super) async fn list(
        &self,
        prefix: &str,
        offset: Option<&str>,
        token: Option<String>,
        most: usize,
    ) -> Result<Page, Failure> {
        let _lane = self.lane().await?;
        let first = token.is_none();
        let root = format!("{}{RECORDS}", self.place.root);
        let options = PaginatedListOptions {
            offset: offset.map(|offset| format!("{root}{offset}")),
            max_keys: Some(most),
            page_token: token,
            ..PaginatedListOptions::default()
        };
        let listed = self.place.service.list_paginated(Some(&format!("{root}{prefix}")), options).await;
        let listed = listed.map_err(|error| match failure(&self.place, &error) {
            Failure::Absent => Failure::Refused(format!("{} lists nothing", self.place.host)),
            other => other,
        })?;
        let date_ms = listed.result.extensions.get::<Answered>().map(|answered| answered.date_ms);
        let mut page = Page { names: Vec::new(), gone: Vec::new(), date_ms, next: listed.page_token };
        // its client leaves out the one that is no longer than the prefix: it may be there
        if self.place.kind == Kind::Azure && first && offset.is_none() && !prefix.is_empty() {
            page.names.push(prefix.to_owned());
        }
        for meta in listed.result.objects {
            let Some(name) = meta.location.as_ref().strip_prefix(&root) else { continue };
            // not every service heeds the offset
            if offset.is_some_and(|offset| name <= offset) {
                continue;
            }
            if is_gone(meta.size) {
                let tag = UpdateVersion { e_tag: meta.e_tag, version: meta.version };
                page.gone.push((name.to_owned(), tag, meta.last_modified.timestamp_millis()));
            } else {
                page.names.push(name.to_owned());
            }
        }
        Ok(page)
    }

    /// How tags are written now.
    pub(super) fn writes_bare_tags(&self) -> bool {
        self.bare_tags.load(Ordering::Relaxed)
    }

    /// A tag that was written so was refused although it is there: from now on the other way.
    pub(super) fn write_tags_otherwise(&self, bare: bool) {
        self.bare_tags.store(!bare, Ordering::Relaxed);
    }

    fn as_compared(&self, mut tag: UpdateVersion) -> UpdateVersion {
        if self.writes_bare_tags() {
            tag.e_tag = tag.e_tag.map(|tag| tag.trim_matches('"').to_owned());
        }
        tag
    }

    async fn lane(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Failure> {
        self.lanes.acquire().await.map_err(|_| Failure::Refused("the store is closed".to_owned()))
    }

    /// The path of an object that is no record.
    pub(super) fn path(&self, name: &str) -> Result<Path, Failure> {
        let path = format!("{}{name}", self.place.root);
        Path::parse(path).map_err(|_| Failure::Refused("a name is wrong".to_owned()))
    }

    fn newer(&self, name: &str, found: u32) -> Failure {
        Failure::Refused(format!(
            "the object {}{name} in {} was written by a newer Semel (format {found}, this one knows {FORMAT}): upgrade this one",
            self.place.root, self.place.bucket
        ))
    }

    fn not_ours(&self, name: &str) -> Failure {
        Failure::Refused(format!(
            "the object {}{name} in {} is no record of this version of Semel: use another prefix, or upgrade",
            self.place.root, self.place.bucket
        ))
    }
}

/// Where the records lie, below the root.
pub(super) const RECORDS: &str = "record/";
