//! S3, GCS and Azure: one object for each record.
//!
//! Theory. An object is written on a condition: that there is none (`If-None-Match: *`), or that it still has the tag
//! with which it was read (`If-Match`; GCS: the generation). Of all who try that on one tag the service lets one win.
//! The record's version is a random nonce in the body, so that a renewal, which writes the object again and changes its
//! tag, leaves it alone. What was last seen of an object is remembered, so that a write needs no look before it: a
//! memory that is wrong meets another tag.
//!
//! Time is the service's: `Last-Modified` against the `Date` of the answer, in whole seconds (see `state`). A renewal
//! and a takeover compete for the same tag, so one of them wins, whatever time it is.
//!
//! Not guaranteed. A swap is made change by change ([`Swaps::InOrder`]), and a guard is looked at just before the change
//! that follows it. A load reads its records one beside the other, not at one moment. A renewal that was sent in time
//! and arrives late counts if nobody took over. Nothing is notified: who waits asks again and again.
//!
//! A service that does not keep conditions is refused (see `prove`).

mod address;
mod body;
mod bucket;
mod examine;
mod failure;
mod name;
mod prove;
mod scan;
mod state;
mod tidy;
mod wire;
mod write;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use semel_core::record::{RecordKey, Version};
use tokio::sync::OnceCell;

use self::address::Place;
use self::bucket::Bucket;
use self::state::{Memory, Stands};
use self::write::record_name;
use super::{
    Change, Durability, Finding, Loaded, OpenError, Pending, Record, Settings, Store, StoreError, Swaps,
};
use crate::clock::boottime;

/// The waits between two looks of who waits for a change.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// S3, GCS and Azure.
pub struct Objects {
    bucket: Bucket,
    memory: Memory,
    proof: OnceCell<()>,
    deadline: Duration,
}

impl Objects {
    /// The store of this address; nothing is connected yet.
    pub fn new(url: &str, settings: &Settings) -> Result<Objects, OpenError> {
        let place = Place::read(url, settings)?;
        Ok(Objects {
            bucket: Bucket::new(place, settings.deadline),
            memory: Memory::default(),
            proof: OnceCell::new(),
            deadline: settings.deadline,
        })
    }

    /// Before the first write: does the service keep conditions?
    async fn prove(&self) -> Result<(), StoreError> {
        let proof = || async {
            match prove::is_proven(&self.bucket).await {
                Ok(true) => Ok(()),
                Ok(false) => prove::prove(&self.bucket).await,
                Err(why) => Err(why.of_a_read()),
            }
        };
        self.proof.get_or_try_init(proof).await.map(drop)
    }

    async fn load_now(&self, keys: &[RecordKey]) -> Result<Loaded, StoreError> {
        let names = keys.iter().map(record_name).collect::<Result<Vec<_>, _>>()?;
        let reads = join_all(names.iter().zip(keys).map(|(name, key)| self.look(name, key)));
        // who loads writes next: the proof is looked for beside the records, so that it costs no time of its own
        let proof = async {
            if !keys.is_empty()
                && !self.proof.initialized()
                && prove::is_proven(&self.bucket).await.unwrap_or(false)
            {
                let _ = self.proof.set(());
            }
        };
        let (found, ()) = join(reads, proof).await;
        let records = found.into_iter().map(|found| Ok(found?.as_ref().and_then(Stands::record)));
        Ok(Loaded { records: records.collect::<Result<_, StoreError>>()?, token_floor: 0 })
    }

    async fn changed_now(
        &self,
        key: &RecordKey,
        version: Option<&Version>,
        within: Duration,
    ) -> Result<bool, StoreError> {
        let (name, begun) = (record_name(key)?, boottime());
        let (mut wait, longest) = LOOK_AGAIN;
        loop {
            let stands = self.in_time(self.look(&name, key)).await?;
            if stands.as_ref().and_then(Stands::record).map(|record| record.version).as_ref() != version {
                return Ok(true);
            }
            let left = within.saturating_sub(boottime().saturating_sub(begun));
            if left.is_zero() {
                return Ok(false);
            }
            tokio::time::sleep(wait.min(left)).await;
            wait = wait.mul_f32(1.5).min(longest);
        }
    }

    /// A verb that writes nothing, or its deadline.
    async fn in_time<T>(&self, verb: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        tokio::time::timeout(self.deadline, verb)
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable(self.late())))
    }

    /// A verb that writes, or its deadline: what was sent by then may be done.
    async fn in_time_if_sent<T>(
        &self,
        sent: &AtomicBool,
        verb: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.deadline, verb).await {
            Ok(answer) => answer,
            Err(_) if sent.load(Ordering::SeqCst) => Err(StoreError::Unknown(self.late())),
            Err(_) => Err(StoreError::Unavailable(self.late())),
        }
    }

    fn late(&self) -> String {
        format!("{} did not answer within {:?}", self.bucket.place.host, self.deadline)
    }
}

/// Where it is, and nothing of its credentials.
impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Objects").field(&self.bucket.place).finish()
    }
}

impl Store for Objects {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(self.in_time(self.load_now(keys)))
    }

    fn swap<'a>(&'a self, changes: &'a [Change], _: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(async move {
            let sent = AtomicBool::new(false);
            self.in_time_if_sent(&sent, self.swap_in_order(changes, &sent)).await
        })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(async move {
            let sent = AtomicBool::new(false);
            self.in_time_if_sent(&sent, self.touch_now(key, version, &sent)).await
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        Box::pin(self.in_time(self.scan_now(prefix, after, limit)))
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        Box::pin(self.changed_now(key, version, within))
    }

    fn swaps(&self) -> Swaps {
        Swaps::InOrder
    }

    fn examine(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(self.examine_now())
    }

    fn tidy(&self) -> Pending<'_, ()> {
        Box::pin(self.tidy_now())
    }
}
