//! etcd: a swap is one transaction, a clock is one of etcd's own leases.
//!
//! Theory. A record lies under a key that is attached to no etcd lease: if it were, a lapse would remove it, and a
//! lease's counter must survive. Beside a record with a clock lies its *mark*, a key without bytes that is written in
//! the same transaction and attached to an etcd lease with the ttl. When the time is up, etcd removes the mark and
//! leaves the record.
//!
//! | the record is | which means |
//! |---|---|
//! | live | its mark was written at the revision of the record |
//! | lapsed | it is not there, or was written at another revision |
//!
//! Both are comparisons of revisions, so [`Expect::Live`](semel_core::record::Expect::Live) and
//! [`Expect::Lapsed`](semel_core::record::Expect::Lapsed) are decided in the transaction that writes. No client's clock
//! takes part.
//!
//! **One etcd lease belongs to one record at a time**, so a touch restarts one clock. The id is ours to choose, and the
//! grant and the transaction are sent together: if the transaction arrives first, etcd refuses it whole (there is no
//! such lease) and it is sent again. An etcd lease whose record was released, or whose transaction was refused, serves
//! the next record with the same ttl; its renewal goes out together with that transaction, unless it has the whole ttl
//! left (a ttl of ten seconds or more is given a second on top for that). What is left over runs out.
//! (A holder that renews what was released long ago is refused, and may give whoever holds that etcd lease now its
//! ttl once more.)
//!
//! **A touch** is a renewal of the etcd lease and, in the same flight, a look: it holds if the record is at the version
//! and live, and the renewal was accepted. Whichever etcd does first, there is a moment at which both were so.
//!
//! **A ttl is a minimum**, in whole seconds, rounded up, and not below 1.5 times the election timeout; a new leader
//! gives every etcd lease its whole ttl again, and so does a restart. A lease is never shorter than what was asked for.
//!
//! **How long ago** a record lapsed, etcd cannot tell. Whoever first loads it lapsed writes its mark again, attached to
//! an etcd lease of its own that runs for [`MEMORY_S`]; what that one has used up is the age that everybody sees. It is
//! never more than the truth, so a lock delay is kept, and is counted from the first look after the lapse.
//!
//! **Tokens** count in the record, and etcd forgets no write that it has answered, whatever member fails. So there is no
//! epoch, and the floor is 0. An etcd that was restored from a backup is another matter: it is an older store, its
//! revisions and tokens come again, and sinks tell the two by their nonces.
//!
//! Not guaranteed: that a lapse is seen at once (etcd looks for leases that ran out every half second), and that a
//! swap of any size fits (see [`Store::most`]).

mod address;
mod clocks;
mod examine;
mod fault;
mod messages;
mod rows;
mod swap;
mod watch;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use semel_core::record::{RecordKey, Standing, Version};

use self::address::Address;
use self::clocks::Clocks;
use self::fault::Trouble;
use self::messages::{LeaseRequest, LeaseTimeToLiveResponse, TxnRequest, TxnResponse};
use self::rows::{Layout, Row, Stamp};
use self::wire::{Deadline, TIME_TO_LIVE, TXN, Wire};
use super::{
    Change, Durability, Finding, Loaded, Most, OpenError, Pending, Record, Settings, Store, StoreError,
};
use crate::clock::boottime;

/// The most keys of one load's transaction: two questions each, and etcd takes 128 unless it is told otherwise.
const KEYS_AT_ONCE: usize = 64;
/// The most records of one page, so that an answer fits.
const PAGE: usize = 128;
/// How long it is remembered since when a record has lapsed.
pub const MEMORY_S: i64 = 400 * 24 * 60 * 60;
/// What is said to be left of a clock that has less than a second.
const LAST_MS: u64 = 100;

/// A store in etcd.
#[derive(Debug)]
pub struct Etcd {
    wire: Arc<Wire>,
    layout: Layout,
    clocks: Clocks,
    deadline: Duration,
}

impl Etcd {
    /// The store of this address; nothing is connected yet.
    pub fn new(url: &str, settings: &Settings) -> Result<Etcd, OpenError> {
        let address = Address::parse(url, settings.deadline)?;
        Ok(Etcd {
            layout: Layout::new(&address.prefix),
            wire: Arc::new(Wire::new(address)),
            clocks: Clocks::default(),
            deadline: settings.deadline,
        })
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.deadline)
    }

    /// Ask questions about keys; nothing is written.
    async fn look(
        &self,
        success: Vec<messages::RequestOp>,
        deadline: Deadline,
    ) -> Result<TxnResponse, Trouble> {
        self.wire.look(TXN, TxnRequest { success, ..TxnRequest::default() }, deadline).await
    }

    /// The rows of these keys as of one moment, however many transactions that takes.
    async fn rows(&self, keys: &[RecordKey], deadline: Deadline) -> Result<Vec<Option<Row>>, StoreError> {
        loop {
            match self.rows_at_once(keys, 0, deadline).await {
                Ok(rows) => return rows.into_iter().map(|found| found.transpose()).collect(),
                // somebody threw away what was, between two transactions of this load
                Err(why) if why.is_compacted() => {}
                Err(why) => return Err(why.reading()),
            }
        }
    }

    /// As they stood at this revision (0: now).
    async fn rows_at_once(
        &self,
        keys: &[RecordKey],
        revision: i64,
        deadline: Deadline,
    ) -> Result<Vec<Option<Result<Row, StoreError>>>, Trouble> {
        let mut chunks = keys.chunks(KEYS_AT_ONCE);
        let Some(first) = chunks.next() else { return Ok(Vec::new()) };
        let ask = |keys: &[RecordKey], revision| {
            self.look(keys.iter().flat_map(|key| self.layout.look(key, revision)).collect(), deadline)
        };
        let first = ask(first, revision).await?;
        let revision = match revision {
            0 => first.header.as_ref().map_or(0, |header| header.revision),
            revision => revision,
        };
        let mut answers = vec![first];
        for chunk in chunks {
            answers.push(ask(chunk, revision).await?);
        }
        let mut ranges = answers
            .into_iter()
            .flat_map(|answer| answer.responses)
            .map(|answer| answer.range.map(|range| range.kvs).unwrap_or_default());
        let mut rows = Vec::with_capacity(keys.len());
        for _ in keys {
            let (record, marks) = (ranges.next().unwrap_or_default(), ranges.next().unwrap_or_default());
            rows.push(record.first().map(|kv| self.layout.row(kv, &marks)));
        }
        Ok(rows)
    }

    /// A row as callers see it, with what can be known of its clock.
    async fn record(&self, row: Row, deadline: Deadline) -> Result<Record, StoreError> {
        let standing = match row.stamp.lease {
            None => None,
            Some(lease) if row.is_live() => {
                Some(Standing::Live { left_ms: self.left_ms(lease, deadline).await? })
            }
            Some(_) => Some(Standing::Lapsed { for_ms: self.lapsed_ms(&row, deadline).await? }),
        };
        Ok(Record { key: row.key, version: row.stamp.version(), value: row.value, standing })
    }

    /// At least so much is left. Of a clock of ours that is known here; of another's etcd knows whole seconds.
    async fn left_ms(&self, lease: i64, deadline: Deadline) -> Result<u64, StoreError> {
        if let Some(left_ms) = self.clocks.left_ms(lease) {
            return Ok(left_ms);
        }
        let answer = self.time_to_live(lease, deadline).await?;
        Ok(u64::try_from(answer.ttl).unwrap_or(0).saturating_mul(1000).max(LAST_MS))
    }

    /// At least so long ago it lapsed.
    async fn lapsed_ms(&self, row: &Row, deadline: Deadline) -> Result<u64, StoreError> {
        let memory = row.mark.map(|(_, lease)| lease);
        let seen_ms = self.clocks.lapsed_ms(&row.key, row.stamp.revision, memory);
        let Some(memory) = memory else { return Ok(seen_ms) };
        let answer = self.time_to_live(memory, deadline).await?;
        if answer.ttl < 0 {
            return Ok(seen_ms);
        }
        // what is left is rounded down, so what was used up is rounded up: by less than a second
        let used_s = answer.granted_ttl.saturating_sub(answer.ttl).saturating_sub(1);
        Ok(u64::try_from(used_s).unwrap_or(0).saturating_mul(1000).max(seen_ms))
    }

    async fn time_to_live(&self, id: i64, deadline: Deadline) -> Result<LeaseTimeToLiveResponse, StoreError> {
        self.wire.look(TIME_TO_LIVE, LeaseRequest { id }, deadline).await.map_err(Trouble::reading)
    }

    async fn records(
        &self,
        rows: Vec<Option<Row>>,
        deadline: Deadline,
    ) -> Result<Vec<Option<Record>>, StoreError> {
        let records = rows.into_iter().map(async |row| match row {
            Some(row) => self.record(row, deadline).await.map(Some),
            None => Ok(None),
        });
        join_all(records).await.into_iter().collect()
    }

    async fn load_now(&self, keys: &[RecordKey]) -> Result<Loaded, StoreError> {
        let deadline = self.deadline();
        let rows = self.rows(keys, deadline).await?;
        let unmarked = rows.iter().flatten().filter(|row| row.stamp.lease.is_some() && row.mark.is_none());
        join_all(unmarked.map(|row| self.remember_lapse(row, deadline))).await;
        Ok(Loaded { records: self.records(rows, deadline).await?, token_floor: 0 })
    }

    async fn touch_now(&self, key: &RecordKey, version: &Version) -> Result<(), StoreError> {
        let deadline = self.deadline();
        let Some(Stamp { lease: Some(lease), .. }) = Stamp::of(version) else {
            return Err(self.refuse(0, key, None, deadline).await);
        };
        let asked_at = boottime();
        let (kept, found) = tokio::join!(
            self.wire.keep_alive(lease, deadline),
            self.rows_at_once(std::slice::from_ref(key), 0, deadline)
        );
        let row = match found {
            Ok(mut rows) => rows.pop().flatten().transpose()?,
            Err(why) if kept.is_ok() => return Err(StoreError::Unknown(say(why.reading()))),
            Err(why) => return Err(why.writing()),
        };
        let as_it_was = row.as_ref().is_some_and(|row| row.stamp.version() == *version && row.is_live());
        match kept {
            Ok(1..) if as_it_was => {
                self.clocks.restarted(lease, asked_at);
                Ok(())
            }
            Ok(_) => Err(self.refuse(0, key, Some(row), deadline).await),
            Err(_) if !as_it_was => Err(self.refuse(0, key, Some(row), deadline).await),
            Err(why) => Err(why.writing()),
        }
    }

    /// A refusal, with what stands there.
    async fn refuse(
        &self,
        index: usize,
        key: &RecordKey,
        found: Option<Option<Row>>,
        deadline: Deadline,
    ) -> StoreError {
        let found = match found {
            Some(found) => Ok(found),
            None => self.rows(std::slice::from_ref(key), deadline).await.map(|mut rows| rows.pop().flatten()),
        };
        let stands = match found {
            Ok(Some(row)) => self.record(row, deadline).await.map(Some),
            Ok(None) => Ok(None),
            Err(why) => Err(why),
        };
        match stands {
            Ok(stands) => StoreError::refused(index, key.clone(), stands),
            // nothing was written
            Err(why) => StoreError::Unavailable(say(why)),
        }
    }

    async fn scan_now(
        &self,
        prefix: &str,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let deadline = self.deadline();
        let mut found: Vec<Record> = Vec::new();
        while found.len() < limit {
            let some = PAGE.min(limit - found.len());
            let after = found.last().map(|record| &record.key).or(after);
            let ask = self.layout.page(prefix, after, i64::try_from(some).unwrap_or(i64::MAX));
            let answer = self.look(ask.into(), deadline).await.map_err(Trouble::reading)?;
            let mut ranges = answer.responses.into_iter().map(|answer| answer.range.map(|range| range.kvs));
            let (records, marks) =
                (ranges.next().flatten().unwrap_or_default(), ranges.next().flatten().unwrap_or_default());
            let rows =
                records.iter().map(|kv| self.layout.row(kv, &marks).map(Some)).collect::<Result<_, _>>()?;
            found.extend(self.records(rows, deadline).await?.into_iter().flatten());
            if records.len() < some {
                break;
            }
        }
        Ok(found)
    }
}

/// The words of an error, without what it means.
fn say(why: StoreError) -> String {
    match why {
        StoreError::Unavailable(say) | StoreError::Unknown(say) => say,
        refused @ StoreError::Refused(_) => refused.to_string(),
    }
}

impl Store for Etcd {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(self.load_now(keys))
    }

    /// etcd syncs every write to disk before it answers: a relaxed swap is a durable one.
    fn swap<'a>(&'a self, changes: &'a [Change], _: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(self.swap_now(changes))
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(self.touch_now(key, version))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        Box::pin(self.scan_now(prefix, after, limit))
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        Box::pin(self.changed_now(key, version, within))
    }

    /// As etcd is set up unless somebody says otherwise: 128 operations, 1.5 MiB. A change takes two operations where it
    /// starts a clock, and says its name six times.
    fn most(&self) -> Most {
        Most { changes: 64, bytes: 896 * 1024 }
    }

    fn examine(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(self.examine_now())
    }
}
