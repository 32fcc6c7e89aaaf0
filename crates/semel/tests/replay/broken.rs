//! Stores that are broken on purpose, so that a replay is known to be able to fail.

use std::sync::Arc;
use std::time::Duration;

use semel::store::memory::Memory;
use semel::store::{Change, Durability, Loaded, Pending, Record, Store, StoreError};
use semel_core::record::{Expect, RecordKey, Version};

use super::places::{InMemory, Place};

/// What is wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A record is replaced at whatever version it is.
    VersionIgnored,
    /// A touch of a lapsed lease is granted.
    TouchRevives,
    /// A touch is granted and does nothing.
    TouchForgotten,
    /// Guards are not looked at.
    GuardSkipped,
    /// What is to have lapsed, or to be live, is only asked for its version.
    LapseIgnored,
    /// The changes before the one that is refused stay.
    HalfMade,
}

pub struct Broken {
    place: InMemory,
    flaw: Flaw,
}

impl Broken {
    pub fn new(place: InMemory, flaw: Flaw) -> Broken {
        Broken { place, flaw }
    }
}

impl Place for Broken {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(Line { memory: self.place.memory(), flaw: self.flaw })
    }

    fn pass(&self, ticks: u32) {
        self.place.pass(ticks);
    }
}

#[derive(Debug)]
struct Line {
    memory: Memory,
    flaw: Flaw,
}

impl Line {
    async fn expect(&self, key: &RecordKey, expect: &Expect) -> Result<Expect, StoreError> {
        Ok(match (self.flaw, expect) {
            (Flaw::VersionIgnored, Expect::Version(_)) => {
                let found = self.memory.load(std::slice::from_ref(key)).await?.records.remove(0);
                found.map_or(Expect::Absent, |found| Expect::Version(found.version))
            }
            (Flaw::LapseIgnored, Expect::Lapsed(version) | Expect::Live(version)) => {
                Expect::Version(version.clone())
            }
            (_, expect) => expect.clone(),
        })
    }

    async fn flawed(&self, change: &Change) -> Result<Change, StoreError> {
        let expect = self.expect(change.key(), change.expect()).await?;
        Ok(match change.clone() {
            Change::Put { key, value, ttl, .. } => Change::Put { key, expect, value, ttl },
            Change::Guard { key, .. } => Change::Guard { key, expect },
            Change::Remove { key, .. } => Change::Remove { key, expect },
        })
    }
}

impl Store for Line {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        self.memory.load(keys)
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(async move {
            let (mut flawed, mut versions) = (Vec::new(), Vec::new());
            for change in changes {
                flawed.push(self.flawed(change).await?);
            }
            match self.flaw {
                Flaw::HalfMade => {
                    for change in &flawed {
                        versions.extend(self.memory.swap(std::slice::from_ref(change), durability).await?);
                    }
                    Ok(versions)
                }
                Flaw::GuardSkipped => {
                    let is_guard = |change: &Change| matches!(change, Change::Guard { .. });
                    let puts: Vec<Change> = flawed.iter().filter(|one| !is_guard(one)).cloned().collect();
                    let mut made = self.memory.swap(&puts, durability).await?.into_iter();
                    let none = || Version::new("");
                    let version = |one| if is_guard(one) { none() } else { made.next().unwrap_or_else(none) };
                    Ok(flawed.iter().map(version).collect())
                }
                _ => self.memory.swap(&flawed, durability).await,
            }
        })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(async move {
            match self.flaw {
                Flaw::TouchForgotten => {
                    let found = self.memory.load(std::slice::from_ref(key)).await?.records.remove(0);
                    match found.filter(|found| found.version == *version) {
                        Some(_) => Ok(()),
                        None => self.memory.touch(key, version).await,
                    }
                }
                Flaw::TouchRevives => match self.memory.touch(key, version).await {
                    Err(StoreError::Refused(conflict))
                        if conflict.stands.as_ref().is_some_and(|found| found.version == *version) =>
                    {
                        Ok(())
                    }
                    answer => answer,
                },
                _ => self.memory.touch(key, version).await,
            }
        })
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.memory.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.memory.changed(key, version, within)
    }
}
