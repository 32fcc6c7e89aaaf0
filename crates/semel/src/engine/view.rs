//! Records as the rules see them, and what the rules want written as records.

use std::time::Duration;

use semel_core::claim::{Guard, View, Write};
use semel_core::entry::Entry;
use semel_core::lease::{Lease, SeenLease};
use semel_core::name::Name;
use semel_core::record::{self, RecordError, RecordKey, Seen, Standing};
use semel_core::work::Work;
use serde::de::DeserializeOwned;

use super::{Engine, RunPlan};
use crate::store::{Change, Record, StoreError};

/// Why a look at the store came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// What a look takes in besides an entry and leases.
#[derive(Default)]
struct Beside {
    calendar: Option<RecordKey>,
    alarm: Option<RecordKey>,
}

impl Engine {
    /// The entry of a work and the leases of these resources, in one load.
    pub async fn look(&self, work: Option<&Work>, resources: &[Name]) -> Result<View, LookError> {
        self.look_at(work.map(RecordKey::entry), resources).await
    }

    /// All that the claim of this plan looks at, in one load: with the calendar, where it has a schedule, and the
    /// alarm, where somebody is to be told.
    pub(super) async fn look_for(&self, plan: &RunPlan, resources: &[Name]) -> Result<View, LookError> {
        let job = plan.work.as_ref().map(Work::job).filter(|_| !plan.lanes.is_empty());
        let scheduled = plan.work.as_ref().filter(|_| plan.scheduled.is_some());
        let beside = Beside {
            calendar: scheduled.map(|work| RecordKey::calendar(work.job(), work.params())),
            alarm: job.map(RecordKey::alarm),
        };
        self.look_at_all(plan.work.as_ref().map(RecordKey::entry), resources, beside).await
    }

    /// As [`look`](Engine::look), where the name of the entry's record is known.
    pub(super) async fn look_at(
        &self,
        entry_key: Option<RecordKey>,
        resources: &[Name],
    ) -> Result<View, LookError> {
        self.look_at_all(entry_key, resources, Beside::default()).await
    }

    async fn look_at_all(
        &self,
        entry_key: Option<RecordKey>,
        resources: &[Name],
        beside: Beside,
    ) -> Result<View, LookError> {
        let leases = resources.iter().map(RecordKey::lease);
        let Beside { calendar, alarm } = beside;
        let mut keys: Vec<RecordKey> = entry_key.iter().cloned().chain(leases).collect();
        keys.extend(calendar.iter().chain(&alarm).cloned());
        let mut loaded = self.store.load(&keys).await?;
        let mut last = |asked: Option<RecordKey>| asked.and_then(|_| loaded.records.pop().flatten());
        let (alarm, calendar) = (last(alarm), last(calendar));
        let alarm = alarm.map(|record| seen(&record)).transpose()?;
        let calendar = calendar.map(|record| seen(&record)).transpose()?;
        let mut records = loaded.records.into_iter();
        let entry = match &entry_key {
            Some(_) => records.next().flatten().map(|record| seen_entry(&record)).transpose()?,
            None => None,
        };
        let leases = resources
            .iter()
            .zip(records)
            .map(|(resource, record)| {
                let seen = record.map(|record| self.seen_lease(&record)).transpose()?;
                Ok((resource.clone(), seen))
            })
            .collect::<Result<_, LookError>>()?;
        Ok(View { entry, calendar, alarm, leases, token_floor: loaded.token_floor })
    }

    /// A lease's record, with what is known about its owner.
    pub fn seen_lease(&self, record: &Record) -> Result<SeenLease, RecordError> {
        let value: Lease = record::decode(&record.key, &record.value)?;
        // a record without a clock is a released one: nobody holds it
        let standing = record.standing.unwrap_or(Standing::Lapsed { for_ms: 0 });
        let live = matches!(standing, Standing::Live { .. });
        let owner_gone = value.hold.as_ref().is_some_and(|hold| {
            live && !hold.resting
                && hold.owner.is_neighbour_of(&self.me)
                && self.neighbours.is_gone(&hold.owner, &value.grant.nonce)
        });
        Ok(SeenLease { record: Seen { value, version: record.version.clone() }, standing, owner_gone })
    }
}

/// An entry's record.
pub fn seen_entry(record: &Record) -> Result<Seen<Entry>, RecordError> {
    seen(record)
}

/// A record, read.
pub(super) fn seen<T: DeserializeOwned>(record: &Record) -> Result<Seen<T>, RecordError> {
    let value = record::decode(&record.key, &record.value)?;
    Ok(Seen { value, version: record.version.clone() })
}

/// What the rules want written, as changes of a swap.
pub fn changes(writes: &[Write]) -> Result<Vec<Change>, RecordError> {
    writes.iter().map(|write| change(write, None)).collect()
}

/// As [`changes`], where the name of the only entry's record is known: it takes several digests to find.
pub(super) fn changes_at(entry_key: &RecordKey, writes: &[Write]) -> Result<Vec<Change>, RecordError> {
    writes.iter().map(|write| change(write, Some(entry_key))).collect()
}

fn change(write: &Write, entry_key: Option<&RecordKey>) -> Result<Change, RecordError> {
    Ok(match write {
        Write::Guard(guard) => guarded(guard),
        Write::Stands(stands) => {
            Change::Guard { key: RecordKey::entry(&stands.work), expect: stands.expect.clone() }
        }
        Write::Lease { resource, lease, expect, ttl_ms } => {
            let key = RecordKey::lease(resource);
            let value = record::encode(&key, lease)?;
            Change::Put { key, expect: expect.clone(), value, ttl: ttl_ms.map(Duration::from_millis) }
        }
        Write::Entry { entry, expect } => {
            let key = entry_key.cloned().unwrap_or_else(|| RecordKey::entry(&entry.work));
            let value = record::encode(&key, entry)?;
            Change::Put { key, expect: expect.clone(), value, ttl: None }
        }
        Write::Alarm { alarm, expect } => {
            let key = alarm.job.as_ref().map_or_else(RecordKey::check_alarm, RecordKey::alarm);
            let value = record::encode(&key, alarm)?;
            Change::Put { key, expect: expect.clone(), value, ttl: None }
        }
        Write::Calendar { calendar, expect } => {
            let key = RecordKey::calendar(&calendar.job, &calendar.with);
            let value = record::encode(&key, calendar)?;
            Change::Put { key, expect: expect.clone(), value, ttl: None }
        }
    })
}

fn guarded(guard: &Guard) -> Change {
    Change::Guard { key: RecordKey::lease(&guard.resource), expect: guard.expect.clone() }
}
