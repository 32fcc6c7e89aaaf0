//! A real store beside the model's: requests go to both, and what stands there is compared.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use semel::engine::view::changes;
use semel::store::{Change, Durability, Record, Store, StoreError};
use semel_core::claim::Write;
use semel_core::entry::Entry;
use semel_core::lease::Lease;
use semel_core::record::{self, Expect, RecordKey, Standing, Version};

use super::model::store::{Row, Taken};
use super::places::{SLACK, TICK};

/// A record as the model has it.
pub struct Wanted {
    pub key: RecordKey,
    pub stands: Option<Stands>,
}

pub struct Stands {
    version: i64,
    /// What is left of its clock, in ticks.
    left: Option<i8>,
    value: Value,
}

#[derive(Debug, PartialEq)]
enum Value {
    Lease(Lease),
    Entry(Box<Entry>),
}

impl Wanted {
    pub fn lease(key: RecordKey, row: Option<&Row<Lease>>) -> Wanted {
        let value = |row: &Row<Lease>| Value::Lease(Lease::clone(&row.value));
        Wanted { key, stands: row.map(|row| Stands::of(row, value(row))) }
    }

    pub fn entry(key: RecordKey, row: Option<&Row<Entry>>) -> Wanted {
        let value = |row: &Row<Entry>| Value::Entry(Box::new(Entry::clone(&row.value)));
        Wanted { key, stands: row.map(|row| Stands::of(row, value(row))) }
    }
}

impl Stands {
    fn of<T>(row: &Row<T>, value: Value) -> Stands {
        Stands { version: row.version, left: row.clock.map(|clock| clock.left.max(0)), value }
    }
}

/// How many ticks are left; the slack rounds up.
pub fn ticks(standing: Standing) -> i8 {
    let tick_ms = TICK.as_millis();
    match standing {
        Standing::Live { left_ms } => {
            i8::try_from((u128::from(left_ms) + tick_ms / 2) / tick_ms).unwrap().max(1)
        }
        Standing::Lapsed { .. } => 0,
    }
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Made,
    Touched,
    Refused,
}

pub struct Mirror {
    pub store: Arc<dyn Store>,
    /// The real version of each that the model's store gave.
    versions: HashMap<(RecordKey, i64), Version>,
}

impl Mirror {
    pub fn new(store: Arc<dyn Store>) -> Mirror {
        Mirror { store, versions: HashMap::new() }
    }

    /// Ask the real store what the model's was asked. The answers must be the same.
    pub async fn take(&mut self, taken: &Taken) -> Result<Answer, String> {
        match taken {
            Taken::Swap { writes, made } => self.swap(writes, made.as_deref()).await,
            Taken::Touch { resource, version, made } => {
                let key = RecordKey::lease(resource);
                let version = self.version(&key, &version.to_string());
                match (self.store.touch(&key, &version).await, made) {
                    (Ok(()), true) => Ok(Answer::Touched),
                    (Err(StoreError::Refused(_)), false) => Ok(Answer::Refused),
                    (answer, made) => Err(format!("touch of {key}: {answer:?}, but the model says {made}")),
                }
            }
        }
    }

    async fn swap(&mut self, writes: &[Write], made: Option<&[i64]>) -> Result<Answer, String> {
        let all = changes(writes).map_err(|why| why.to_string())?;
        let all: Vec<Change> = all.into_iter().map(|change| self.real(change)).collect();
        match (self.store.swap(&all, Durability::Durable).await, made) {
            (Ok(versions), Some(made)) => {
                for ((change, version), made) in all.iter().zip(versions).zip(made) {
                    if matches!(change, Change::Put { .. }) {
                        self.versions.insert((change.key().clone(), *made), version);
                    }
                }
                Ok(Answer::Made)
            }
            (Err(StoreError::Refused(_)), None) => Ok(Answer::Refused),
            (answer, made) => Err(format!("{all:?}: {answer:?}, but the model says {made:?}")),
        }
    }

    /// The change over the versions that this store gave, in hours.
    fn real(&self, change: Change) -> Change {
        let expected = |key: &RecordKey, expect: Expect| match expect {
            Expect::Absent => Expect::Absent,
            Expect::Version(version) => Expect::Version(self.version(key, version.as_str())),
            Expect::Live(version) => Expect::Live(self.version(key, version.as_str())),
            Expect::Lapsed(version) => Expect::Lapsed(self.version(key, version.as_str())),
        };
        let in_ticks = |ttl: Duration| TICK * u32::try_from(ttl.as_millis()).unwrap() - SLACK;
        match change {
            Change::Put { key, expect, value, ttl } => {
                let expect = expected(&key, expect);
                Change::Put { key, expect, value, ttl: ttl.map(in_ticks) }
            }
            Change::Guard { key, expect } => Change::Guard { expect: expected(&key, expect), key },
            Change::Remove { key, expect } => Change::Remove { expect: expected(&key, expect), key },
        }
    }

    fn version(&self, key: &RecordKey, model: &str) -> Version {
        let known = model.parse().ok().and_then(|number| self.versions.get(&(key.clone(), number)));
        known.cloned().unwrap_or_else(|| Version::new("1000000000000000000"))
    }

    /// Do the same records stand in both?
    pub async fn compare(&self, wanted: Vec<Wanted>) -> Result<(), String> {
        let keys: Vec<RecordKey> = wanted.iter().map(|one| one.key.clone()).collect();
        let loaded = self.store.load(&keys).await.map_err(|why| why.to_string())?;
        for (one, found) in wanted.iter().zip(loaded.records) {
            self.compare_one(one, found.as_ref())
                .map_err(|why| format!("{} is not as the model has it: {why}", one.key))?;
        }
        Ok(())
    }

    fn compare_one(&self, wanted: &Wanted, found: Option<&Record>) -> Result<(), String> {
        let (Some(wanted), Some(found)) = (&wanted.stands, found) else {
            let is_there = |there| if there { "there" } else { "absent" };
            let (model, real) = (wanted.stands.is_some(), found.is_some());
            let differ = || format!("{} there, and {} here", is_there(model), is_there(real));
            return if model == real { Ok(()) } else { Err(differ()) };
        };
        let read = |why: record::RecordError| why.to_string();
        let value = match wanted.value {
            Value::Lease(_) => Value::Lease(record::decode(&found.key, &found.value).map_err(read)?),
            Value::Entry(_) => Value::Entry(record::decode(&found.key, &found.value).map_err(read)?),
        };
        if value != wanted.value {
            return Err(format!("{:?}, and here {value:?}", wanted.value));
        }
        if self.versions.get(&(found.key.clone(), wanted.version)) != Some(&found.version) {
            return Err(format!("it is of another write than number {}", wanted.version));
        }
        let left = found.standing.map(ticks);
        if left != wanted.left {
            return Err(format!("{:?} ticks are left, and here {left:?}", wanted.left));
        }
        Ok(())
    }
}
