//! NATS JetStream: each record is the last message of a subject of its own, in a stream that keeps one message each.
//!
//! Theory. The server numbers the messages of a stream, and the numbers only grow. A write names the number of the
//! message that it replaces (0: none) and is refused if another stands there: that is the compare-and-swap, one record
//! at a time. So a swap is made in order ([`Swaps::InOrder`]). Its writes are sent together all the same: each but the
//! first carries the id of the one before it and is refused unless that one is the last message of the stream. Alone on
//! the stream a swap is thus one round trip; where another writes in between, the rest is sent again, and so on.
//!
//! A version is a random text, written into the message, and the number where it was first written. A touch writes the
//! same record again with the same version, under a new number, on condition of the old one. So a version never comes
//! back, and a write that names a version knows which number to expect unless the record was touched by another handle:
//! it is refused then, looks, finds the version unchanged, and is sent again.
//!
//! A removal writes a message that says so, on condition. Who scans later finds the mark, and purges what lies there up to
//! it once it is old (`marks`): a server that is killed forgets for a while what it dropped. Numbers are not used again, so
//! nobody's old version fits afterwards; a record that is made anew meanwhile has a later number, which the purge does
//! not reach.
//!
//! Time. A message bears the server's time, and a clock has run out when the server's time is later than that by its
//! ttl. The server does not compare them by itself: before a write that depends on it, the driver asks for the record
//! and the time at once (2.10 and later: the leader of the stream tells it; 2.9: a server of the account). What had lapsed
//! then has lapsed at the write, unless it was touched, and then the write is refused by the number. What was live may
//! have lapsed by the write, and is renewed a little late: nobody else has it, since the number is the old one, and
//! who wanted to take it over is refused in turn. A handle that wrote or touched a lease itself need not ask whether it
//! still is live: not more time has passed at the server than here since before the writing (boot time, which counts
//! suspend). No wall clock of a client decides anything.
//!
//! Not guaranteed. A swap is not a whole: a crash may leave its first changes. A load reads its records one beside the
//! other, not at one moment. A power cut may lose what was answered unless the server syncs each write
//! (`sync_interval: always`, 2.10 and later) or enough replicas keep it. A stream that is deleted and made again counts
//! from one. The servers of a cluster must agree on the time; so must a server with itself: one whose clock is set back
//! lets leases last longer, one set forward ends them.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use semel_core::record::{RecordKey, Version};

use super::{
    Change, Durability, Finding, Loaded, OpenError, Pending, Record, Settings, Store, StoreError, Swaps,
};
use crate::clock::boottime;

mod address;
mod bucket;
mod examine;
mod held;
mod link;
mod scan;
mod subject;
mod swap;
mod touch;
mod wait;

use address::Address;
use bucket::{Bucket, Found};
use held::Held;
use link::{Fault, Link};
use scan::Listings;
use subject::Subjects;

/// NATS JetStream.
pub struct Nats {
    address: Address,
    subjects: Subjects,
    deadline: Duration,
    bucket: Mutex<Option<Opened>>,
    /// Held by who connects, so that many verbs make one connection.
    connecting: tokio::sync::Mutex<()>,
    held: Mutex<Held>,
    listings: Mutex<Listings>,
}

#[derive(Clone)]
struct Opened {
    bucket: Arc<Bucket>,
    at: Duration,
}

/// What becomes of a verb that could not be carried out.
enum Failure {
    /// This is the answer.
    Said(StoreError),
    /// The connection was gone before anything was sent: another one may do.
    Gone(String),
}

impl From<StoreError> for Failure {
    fn from(why: StoreError) -> Failure {
        Failure::Said(why)
    }
}

impl Failure {
    /// Of a read, or of a write that was surely not made.
    fn of_read(why: Fault) -> Failure {
        match why {
            why if why.is_broken() => Failure::Gone(why.to_string()),
            why => Failure::Said(StoreError::Unavailable(why.to_string())),
        }
    }
}

/// Was a write sent? What is not answered from then on is unknown.
#[derive(Debug, Default)]
struct Sent(AtomicBool);

impl Sent {
    fn now(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// All that was sent was surely not made.
    fn undone(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    fn unanswered(&self, why: String) -> StoreError {
        match self.0.load(Ordering::SeqCst) {
            true => StoreError::Unknown(why),
            false => StoreError::Unavailable(why),
        }
    }
}

/// Records and the time, as the server told them together.
struct Looked {
    stands: Vec<Option<Found>>,
    now_us: i64,
}

impl Looked {
    fn record(&self, index: usize, key: &RecordKey) -> Option<Record> {
        let found = self.stands.get(index)?.as_ref()?;
        (!found.is_removed).then(|| Record {
            key: key.clone(),
            version: found.version.clone(),
            value: found.value.clone(),
            standing: found.standing(self.now_us),
        })
    }

    /// The number of the last message; 0 if there is none.
    fn seq(&self, index: usize) -> u64 {
        self.stands.get(index).and_then(Option::as_ref).map_or(0, |found| found.seq)
    }
}

/// How many records are asked for at once.
const AT_ONCE: usize = 256;

impl Nats {
    /// The store of this address; nothing is connected yet.
    pub fn new(url: &str, settings: &Settings) -> Result<Nats, OpenError> {
        let address = Address::parse(url, settings)?;
        Ok(Nats {
            subjects: Subjects::of(&address.bucket),
            address,
            deadline: settings.deadline,
            bucket: Mutex::new(None),
            connecting: tokio::sync::Mutex::new(()),
            held: Mutex::default(),
            listings: Mutex::default(),
        })
    }

    fn opened(&self) -> MutexGuard<'_, Option<Opened>> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn living(&self) -> Option<Arc<Bucket>> {
        self.opened()
            .as_ref()
            .filter(|opened| opened.bucket.link.is_alive())
            .map(|opened| Arc::clone(&opened.bucket))
    }

    /// The bucket, on a connection that lives as far as anybody knows.
    async fn bucket(&self) -> Result<Arc<Bucket>, StoreError> {
        if let Some(bucket) = self.living() {
            return Ok(bucket);
        }
        let _one = self.connecting.lock().await;
        if let Some(bucket) = self.living() {
            return Ok(bucket);
        }
        let link = Link::connect(&self.address, self.deadline).await.map_err(StoreError::Unavailable)?;
        let opened = Bucket::open(link, &self.address).await;
        let bucket = Arc::new(opened.map_err(|why| StoreError::Unavailable(why.to_string()))?);
        *self.opened() = Some(Opened { bucket: Arc::clone(&bucket), at: boottime() });
        Ok(bucket)
    }

    /// A connection that did not answer is not asked again.
    fn drop_connection_of_before(&self, moment: Duration) {
        let mut opened = self.opened();
        if opened.as_ref().is_some_and(|opened| opened.at <= moment) {
            *opened = None;
        }
    }

    /// Within the deadline; and once more on another connection, if this one was gone before anything was sent.
    async fn verb<T, F, W>(&self, sent: &Sent, work: W) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Failure>>,
        W: Fn() -> F,
    {
        let begun = boottime();
        let twice = async {
            let mut last = String::new();
            for _ in 0..2 {
                match work().await {
                    Ok(answer) => return Ok(answer),
                    Err(Failure::Said(why)) => return Err(why),
                    Err(Failure::Gone(why)) => {
                        self.drop_connection_of_before(boottime());
                        last = why;
                    }
                }
            }
            Err(sent.unanswered(format!("{}: {last}", self.address.place())))
        };
        match tokio::time::timeout(self.deadline, twice).await {
            Ok(answer) => answer,
            Err(_) => {
                // one that was made in the last half of the time may be innocent
                self.drop_connection_of_before(begun.saturating_add(self.deadline / 2));
                let (place, ms) = (self.address.place(), self.deadline.as_millis());
                Err(sent.unanswered(format!("{place} did not answer within {ms} ms")))
            }
        }
    }

    fn subject(&self, key: &RecordKey) -> Result<String, StoreError> {
        self.subjects.subject(key).map_err(StoreError::Unavailable)
    }

    fn subjects_of<'k>(&self, keys: impl Iterator<Item = &'k RecordKey>) -> Result<Vec<String>, StoreError> {
        keys.map(|key| self.subject(key)).collect()
    }

    async fn load_now(&self, keys: &[RecordKey]) -> Result<Loaded, Failure> {
        if keys.is_empty() {
            return Ok(Loaded { records: Vec::new(), token_floor: 0 });
        }
        let subjects = self.subjects_of(keys.iter())?;
        let bucket = self.bucket().await?;
        let looked = look(&bucket, &subjects).await.map_err(Failure::of_read)?;
        let records = keys.iter().enumerate().map(|(i, key)| looked.record(i, key)).collect();
        Ok(Loaded { records, token_floor: 0 })
    }
}

/// The records of these subjects, and the time: asked for together, so that it takes as long as one of them.
async fn look(bucket: &Bucket, subjects: &[String]) -> Result<Looked, Fault> {
    let mut stands = Vec::with_capacity(subjects.len());
    let mut now_us = None;
    for some in subjects.chunks(AT_ONCE) {
        let gets = join_all(some.iter().map(|subject| bucket.get(subject)));
        let found = match now_us {
            Some(_) => gets.await,
            None => {
                let (found, now) = tokio::join!(gets, bucket.now_us());
                now_us = Some(now?);
                found
            }
        };
        for one in found {
            stands.push(one?);
        }
    }
    Ok(Looked { stands, now_us: now_us.unwrap_or(0) })
}

/// What no other swap draws.
fn drawn() -> Result<u128, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|why| StoreError::Unavailable(format!("no random bytes: {why}")))?;
    Ok(u128::from_be_bytes(bytes))
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("address", &self.address).finish()
    }
}

impl Store for Nats {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(async move { self.verb(&Sent::default(), || self.load_now(keys)).await })
    }

    fn swap<'a>(&'a self, changes: &'a [Change], _: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(async move {
            let sent = Sent::default();
            self.verb(&sent, || self.swap_now(changes, &sent)).await
        })
    }

    /// Records that are new: each is a message that asks for no answer. Anything else is a swap.
    fn post<'a>(&'a self, changes: &'a [Change]) -> Pending<'a, ()> {
        Box::pin(async move {
            let sent = Sent::default();
            match changes.iter().all(swap::is_new) {
                true => self.verb(&sent, || self.post_now(changes, &sent)).await,
                false => self.verb(&sent, || self.swap_now(changes, &sent)).await.map(drop),
            }
        })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(async move {
            let sent = Sent::default();
            self.verb(&sent, || self.touch_now(key, version, &sent)).await
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        Box::pin(async move {
            let marks = Mutex::default();
            let page = self.verb(&Sent::default(), || self.scan_now(prefix, after, limit, &marks)).await;
            self.purge(marks.into_inner().unwrap_or_else(PoisonError::into_inner)).await;
            page
        })
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        Box::pin(self.wait(key, version, within))
    }

    fn swaps(&self) -> Swaps {
        Swaps::InOrder
    }

    fn examine(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(async move { self.verb(&Sent::default(), || self.examine_now()).await })
    }
}
