//! Proves by trying that a store keeps its promises: for `semel doctor`.
//!
//! Everything happens on records of its own, under `doctor/`, which are removed at the end; what a proof that was
//! killed has left, the next one removes after an hour.

use std::sync::Arc;
use std::time::Duration;

use semel_core::record::{Expect, RecordKey, Standing, Version};
use tokio::task::JoinSet;

use super::{Engine, draw_nonce};
use crate::store::{Change, Durability, Record, Store, StoreError};

const PREFIX: &str = "doctor/";
const TASKS: u64 = 8;
const ROUNDS: u64 = 25;
/// How often a racer may lose in a row before the store is taken for stuck.
const LOSSES: u32 = 10_000;
/// How often it may go without an answer.
const UNKNOWNS: u64 = 3;
const COMMITS: u32 = 9;
const LOADS: u32 = 33;
const STALE_MS: u64 = 3_600_000;

/// What a proof found.
#[derive(Clone, Debug)]
pub struct Proof {
    /// Racing writers made so many conditional writes.
    pub raced: u64,
    /// Writes that were acknowledged and are not there; nothing may be.
    pub lost: u64,
    /// The median time of a look.
    pub load: Duration,
    /// The median time of a durable commit.
    pub commit: Duration,
    /// What its clock did wrong; nothing if a lease lapsed, was called lapsed, and could not be renewed.
    pub clock_fault: Option<String>,
}

impl Engine {
    /// Prove it.
    pub async fn prove(&self) -> Result<Proof, StoreError> {
        let nonce = draw_nonce().map_err(StoreError::Unavailable)?;
        let prefix = format!("{PREFIX}{:012x}-{nonce}/", self.clock.wall_ms());
        let proof = self.try_out(&prefix).await;
        let cleaned = self.clean(&prefix).await;
        let proof = proof?;
        cleaned.map(|()| proof)
    }

    async fn try_out(&self, prefix: &str) -> Result<Proof, StoreError> {
        let key = |name: &str| RecordKey::from_stored(format!("{prefix}{name}"));
        let (raced, lost) = race(&self.store, &key("race")).await?;
        let commit = self.commits(&key("commit")).await?;
        let load = self.loads(&key("commit")).await?;
        let clock_fault = lapse(&*self.store, &key("clock")).await?;
        Ok(Proof { raced, lost, load, commit, clock_fault })
    }

    async fn commits(&self, key: &RecordKey) -> Result<Duration, StoreError> {
        let mut times = Vec::new();
        for n in 0..COMMITS {
            let (_, expect) = number(&*self.store, key).await?;
            let begun = self.clock.now();
            self.store.swap(&[put(key, expect, u64::from(n), None)], Durability::Durable).await?;
            times.push(begun.until(self.clock.now()));
        }
        Ok(median(times))
    }

    async fn loads(&self, key: &RecordKey) -> Result<Duration, StoreError> {
        let mut times = Vec::new();
        for _ in 0..LOADS {
            let begun = self.clock.now();
            self.store.load(std::slice::from_ref(key)).await?;
            times.push(begun.until(self.clock.now()));
        }
        Ok(median(times))
    }

    /// Remove our own records, and those of a proof that never came to its end.
    async fn clean(&self, ours: &str) -> Result<(), StoreError> {
        let now_ms = self.clock.wall_ms();
        let is_stale = |record: &Record| {
            let time = record.key.as_str().strip_prefix(PREFIX).and_then(|name| name.split('-').next());
            let at_ms = time.and_then(|time| u64::from_str_radix(time, 16).ok());
            at_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) > STALE_MS)
        };
        for record in self.store.scan(PREFIX, None, 1024).await? {
            if record.key.as_str().starts_with(ours) || is_stale(&record) {
                let change = Change::Remove {
                    key: record.key.clone(),
                    expect: Expect::Version(record.version.clone()),
                };
                match self.store.swap(&[change], Durability::Relaxed).await {
                    Ok(_) | Err(StoreError::Refused(_)) => {}
                    Err(why) => return Err(why),
                }
            }
        }
        Ok(())
    }
}

/// What stands under a key: a number and its version.
async fn number(store: &dyn Store, key: &RecordKey) -> Result<(u64, Expect), StoreError> {
    let record = store.load(std::slice::from_ref(key)).await?.records.pop().flatten();
    let value = record.as_ref().and_then(|record| std::str::from_utf8(&record.value).ok()?.parse().ok());
    Ok((value.unwrap_or(0), record.map_or(Expect::Absent, |record| Expect::Version(record.version))))
}

fn put(key: &RecordKey, expect: Expect, value: u64, ttl: Option<Duration>) -> Change {
    Change::Put { key: key.clone(), expect, value: value.to_string().into_bytes(), ttl }
}

/// Many tasks count one record up, each only if it is as it was seen: every acknowledged step must be there, and no more
/// than those and the ones that nobody answered for. Answers how many were acknowledged, and how many the record is off.
async fn race(store: &Arc<dyn Store>, key: &RecordKey) -> Result<(u64, u64), StoreError> {
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (store, key) = (Arc::clone(store), key.clone());
        tasks.spawn(async move { count_up(&*store, &key).await });
    }
    let (mut won, mut unknown) = (0, 0);
    while let Some(ended) = tasks.join_next().await {
        let (more, doubtful) = ended.map_err(|why| StoreError::Unavailable(why.to_string()))??;
        (won, unknown) = (won + more, unknown + doubtful);
    }
    let (value, _) = number(&**store, key).await?;
    Ok((won, won.saturating_sub(value) + value.saturating_sub(won + unknown)))
}

/// How many steps were acknowledged, and how many nobody answered for.
async fn count_up(store: &dyn Store, key: &RecordKey) -> Result<(u64, u64), StoreError> {
    let (mut won, mut lost, mut unknown) = (0, 0, 0);
    while won < ROUNDS {
        let (value, expect) = number(store, key).await?;
        match store.swap(&[put(key, expect, value + 1, None)], Durability::Relaxed).await {
            Ok(_) => (won, lost) = (won + 1, 0),
            Err(StoreError::Refused(_)) if lost < LOSSES => lost += 1,
            // one that breaks a connection now and then is no proof against the store
            Err(StoreError::Unknown(_)) if unknown < UNKNOWNS => unknown += 1,
            Err(why) => return Err(why),
        }
        tokio::task::yield_now().await;
    }
    Ok((won, unknown))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// A short lease must be live, then lapse by the store's clock, and must not be renewed after that.
async fn lapse(store: &dyn Store, key: &RecordKey) -> Result<Option<String>, StoreError> {
    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);
    const GRACE: Duration = Duration::from_secs(10);
    let made = store.swap(&[put(key, Expect::Absent, 1, Some(LONG))], Durability::Relaxed).await?;
    let first = made.into_iter().next().unwrap_or_else(|| Version::new(""));
    if !matches!(standing(store, key).await?, Some(Standing::Live { .. })) {
        return Ok(Some("a lease of a minute was not live at once".to_owned()));
    }
    let made = store.swap(&[put(key, Expect::Live(first), 2, Some(SHORT))], Durability::Relaxed).await?;
    let second = made.into_iter().next().unwrap_or_else(|| Version::new(""));
    // a ttl may be a minimum: some stores count whole seconds, and look for what ran out now and then
    for tries in 1.. {
        tokio::time::sleep(SHORT * 3).await;
        if matches!(standing(store, key).await?, Some(Standing::Lapsed { .. })) {
            break;
        }
        if SHORT * 3 * tries > GRACE {
            return Ok(Some(format!("a lease of {SHORT:?} had not lapsed after {GRACE:?}")));
        }
    }
    match store.touch(key, &second).await {
        Err(StoreError::Refused(_)) => Ok(None),
        Ok(()) => Ok(Some("a lease that had lapsed was renewed".to_owned())),
        Err(why) => Err(why),
    }
}

async fn standing(store: &dyn Store, key: &RecordKey) -> Result<Option<Standing>, StoreError> {
    let record = store.load(std::slice::from_ref(key)).await?.records.pop().flatten();
    Ok(record.and_then(|record| record.standing))
}
