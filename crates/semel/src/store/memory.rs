//! Records in this process's memory: for tests and examples.
//!
//! A mutex over a map. Clones share the records, and all of them are gone with the last one. The clock is
//! injected, so that a test can let a lease lapse without waiting.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::record::{RecordKey, Standing, Version};
use tokio::sync::Notify;

use super::{Change, Durability, Loaded, Pending, Record, Store, StoreError, Written, meets};
use crate::clock::{Clock, Moment, SystemClock};

/// A store in memory.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    records: Mutex<Records>,
    /// Told after every swap that wrote something.
    written: Notify,
}

#[derive(Default)]
struct Records {
    rows: BTreeMap<RecordKey, Row>,
    /// Counts writes over all records, so that a record that is removed and made again never has an old version.
    writes: i64,
}

struct Row {
    version: Version,
    value: Vec<u8>,
    clock: Option<RowClock>,
}

#[derive(Clone, Copy)]
struct RowClock {
    ttl: Duration,
    touched: Moment,
}

impl Memory {
    /// An empty store that counts by the machine's clock.
    pub fn new() -> Memory {
        Memory::with_clock(Arc::new(SystemClock))
    }

    /// An empty store that counts by this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Memory {
        Memory { shared: Arc::new(Shared { clock, records: Mutex::default(), written: Notify::new() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        // a swap checks everything before it writes anything, so a panic between the two leaves no half of it
        self.shared.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn swap_now(&self, changes: &[Change]) -> Result<Vec<Version>, StoreError> {
        let mut records = self.lock();
        let now = self.shared.clock.now();
        let mut written = Written::default();
        for (index, change) in changes.iter().enumerate() {
            let row = records.rows.get(change.key());
            if written.comes_again(change)
                || !meets(change.expect(), row.map(|row| (&row.version, row.standing(now))))
            {
                let stands = row.map(|row| row.record(change.key(), now));
                return Err(StoreError::refused(index, change.key().clone(), stands));
            }
        }
        let versions = changes.iter().map(|change| records.make(change, now)).collect();
        drop(records);
        self.shared.written.notify_waiters();
        Ok(versions)
    }

    fn touch_now(&self, key: &RecordKey, version: &Version) -> Result<(), StoreError> {
        let mut records = self.lock();
        let now = self.shared.clock.now();
        match records.rows.get_mut(key) {
            Some(row) if row.version == *version && row.is_live(now) => {
                row.clock = row.clock.map(|clock| RowClock { touched: now, ..clock });
                Ok(())
            }
            row => Err(StoreError::refused(0, key.clone(), row.map(|row| row.record(key, now)))),
        }
    }
}

impl Records {
    fn make(&mut self, change: &Change, now: Moment) -> Version {
        match change {
            Change::Put { key, value, ttl, .. } => {
                self.writes += 1;
                let version = Version::from(self.writes);
                let clock = ttl.map(|ttl| RowClock { ttl, touched: now });
                self.rows.insert(key.clone(), Row { version: version.clone(), value: value.clone(), clock });
                version
            }
            Change::Guard { key, .. } => {
                self.rows.get(key).map_or_else(no_version, |row| row.version.clone())
            }
            Change::Remove { key, .. } => self.rows.remove(key).map_or_else(no_version, |row| row.version),
        }
    }
}

/// What a guard for an absent record answers.
fn no_version() -> Version {
    Version::new("")
}

impl Row {
    fn standing(&self, now: Moment) -> Option<Standing> {
        let RowClock { ttl, touched } = self.clock?;
        let age = touched.until(now);
        Some(match ttl.checked_sub(age).filter(|left| !left.is_zero()) {
            // rounded up: whoever waits so long finds it lapsed
            Some(left) => Standing::Live { left_ms: ms(left + Duration::from_nanos(999_999)) },
            None => Standing::Lapsed { for_ms: ms(age.saturating_sub(ttl)) },
        })
    }

    fn is_live(&self, now: Moment) -> bool {
        matches!(self.standing(now), Some(Standing::Live { .. }))
    }

    fn record(&self, key: &RecordKey, now: Moment) -> Record {
        Record {
            key: key.clone(),
            version: self.version.clone(),
            value: self.value.clone(),
            standing: self.standing(now),
        }
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("records", &self.lock().rows.len()).finish()
    }
}

impl Store for Memory {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(async move {
            let records = self.lock();
            let now = self.shared.clock.now();
            let found = keys.iter().map(|key| records.rows.get(key).map(|row| row.record(key, now)));
            Ok(Loaded { records: found.collect(), token_floor: 0 })
        })
    }

    fn swap<'a>(&'a self, changes: &'a [Change], _: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(async move { self.swap_now(changes) })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(async move { self.touch_now(key, version) })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        Box::pin(async move {
            let records = self.lock();
            let now = self.shared.clock.now();
            let first = RecordKey::from_stored(prefix.to_owned());
            let found = records
                .rows
                .range(first..)
                .take_while(|(key, _)| key.as_str().starts_with(prefix))
                .filter(|(key, _)| after.is_none_or(|after| *key > after))
                .take(limit);
            Ok(found.map(|(key, row)| row.record(key, now)).collect())
        })
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        Box::pin(async move {
            let clock = &self.shared.clock;
            let end = Moment::since_boot(clock.now().as_since_boot().saturating_add(within));
            let mut over = clock.sleep_until(end);
            loop {
                // listened to before the look, so that no write falls between the two
                let written = self.shared.written.notified();
                tokio::pin!(written);
                written.as_mut().enable();
                if self.lock().rows.get(key).map(|row| &row.version) != version {
                    return Ok(true);
                }
                tokio::select! {
                    () = written => {}
                    () = &mut over => return Ok(false),
                }
            }
        })
    }
}
