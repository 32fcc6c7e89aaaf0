//! Redis and Valkey: one script per verb.
//!
//! A script runs alone on its server, so a swap looks at every expectation with the server's own time and then writes
//! all of it or nothing, in one round trip. All keys of a ledger carry one hash tag, `{prefix}`: a swap touches a lease,
//! an entry and what belongs to it, so on a cluster all of them must lie in one slot. A node that has not got that slot
//! tells who has, and is not asked again.
//!
//! | key | what it is |
//! |---|---|
//! | `{prefix}:r:NAME` | a record: its deadline, its ttl, its version and its value in one string |
//! | `{prefix}:i` | the names of all records, in their order: a sorted set |
//! | `{prefix}:cN:NAME` | the channel on which a record's new version is published; N is the database |
//!
//! A record has no expiry of Redis' own: the counter in a lease must survive its lapse. Its deadline is part of it and
//! is compared with `TIME` where it lies. The server's time in microseconds is also the least token of a new grant: a
//! server that lost its last writes still moves forward.
//!
//! Not guaranteed: what Redis itself forgets. A write is as durable as `appendfsync` says, a failover to a replica may
//! lose what was acknowledged, and eviction may lose anything. [`Store::examine`] says which of these apply.

mod address;
mod error;
mod examine;
mod link;
mod script;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{RedisError, Value};
use semel_core::record::{RecordKey, Version};

use self::address::Place;
use self::error::Asked;
use self::link::{Hints, Link};
use self::script::{Call, Names, record, time_us};
use super::{Change, Durability, Finding, Loaded, OpenError, Pending, Record, Settings, Store, StoreError};

/// How often a waiter looks for itself: a hint may be lost.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How often a verb goes where a node of a cluster sends it.
const HOPS: usize = 4;

/// A ledger on a Redis server.
pub struct Redis {
    place: Place,
    names: Names,
    deadline: Duration,
    hints: Arc<Hints>,
    link: Mutex<Option<Arc<Link>>>,
    /// The node that has the ledger, where the address names another one of the cluster.
    moved: Mutex<Option<Place>>,
    /// Held while a connection is made: many verbs at once need only one.
    connecting: tokio::sync::Mutex<()>,
}

impl Redis {
    /// The store of this address; nothing is connected yet.
    pub fn new(url: &str, settings: &Settings) -> Result<Redis, OpenError> {
        let place = Place::read(url, settings)?;
        let names = Names::new(&place.prefix, place.database);
        Ok(Redis {
            place,
            names,
            deadline: settings.deadline,
            hints: Arc::default(),
            link: Mutex::default(),
            moved: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<Arc<Link>> {
        self.slot().as_ref().filter(|link| link.is_alive()).cloned()
    }

    /// Use this connection no more; another that was made since is kept.
    fn forget(&self, link: &Arc<Link>) {
        self.slot().take_if(|current| Arc::ptr_eq(current, link));
    }

    /// The connection that stands, or a new one.
    async fn link(&self) -> Result<Arc<Link>, StoreError> {
        if let Some(link) = self.current() {
            return Ok(link);
        }
        let _alone = self.connecting.lock().await;
        if let Some(link) = self.current() {
            return Ok(link);
        }
        let moved = self.moved().clone();
        let place = moved.as_ref().unwrap_or(&self.place);
        match Link::make(place, Arc::clone(&self.hints)).await {
            Ok(link) => {
                let link = Arc::new(link);
                *self.slot() = Some(Arc::clone(&link));
                Ok(link)
            }
            Err(why) => {
                // whoever is asked next knows better, or says the same
                *self.moved() = None;
                Err(error::unconnected(place, &why))
            }
        }
    }

    fn moved(&self) -> MutexGuard<'_, Option<Place>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does this refusal say where the ledger lies? Then the next connection goes there.
    fn follows(&self, link: &Arc<Link>, why: &RedisError) -> bool {
        let node = why.redirect_node().filter(|_| why.code() == Some("MOVED"));
        let Some(place) = node.and_then(|(node, _)| link.place.at(node)) else { return false };
        *self.moved() = Some(place);
        self.forget(link);
        true
    }

    /// Call a script, within the deadline.
    async fn call(&self, asked: Asked, call: &Call<'_>) -> Result<Value, StoreError> {
        let sent = Mutex::new(None);
        match tokio::time::timeout(self.deadline, self.call_now(asked, call, &sent)).await {
            Ok(answer) => answer,
            Err(_) => {
                // it may be half open: the next verb makes another
                let sent = sent.into_inner().unwrap_or_else(PoisonError::into_inner);
                sent.iter().for_each(|link| self.forget(link));
                let place = sent.as_ref().map_or(&self.place, |link| &link.place);
                Err(error::too_late(place, sent.as_ref().map(|_| asked), self.deadline))
            }
        }
    }

    async fn call_now(
        &self,
        asked: Asked,
        call: &Call<'_>,
        sent: &Mutex<Option<Arc<Link>>>,
    ) -> Result<Value, StoreError> {
        for hop in 0.. {
            let link = self.link().await?;
            let mut connection = link.connection();
            let by_hash = call.command(false);
            *sent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&link));
            let answer = match by_hash.query_async::<Value>(&mut connection).await {
                // surely nothing was done: the server has not met the script
                Err(why) if why.code() == Some("NOSCRIPT") => {
                    call.command(true).query_async(&mut connection).await
                }
                answer => answer,
            };
            match answer {
                Ok(value) => return Ok(value),
                // nor here: the keys are another node's
                Err(why) if hop < HOPS && self.follows(&link, &why) => {
                    *sent.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                Err(why) => return Err(error::answered(&link.place, asked, &why)),
            }
        }
        Err(self.strange(asked))
    }

    fn strange(&self, asked: Asked) -> StoreError {
        error::strange(&self.place, asked)
    }

    async fn load_now(&self, keys: &[RecordKey]) -> Result<Loaded, StoreError> {
        let answer = self.call(Asked::Read, &self.names.load(keys)).await?;
        let read = || {
            let (now_us, rest) = opened(answer)?;
            let records: Option<Vec<_>> =
                keys.iter().zip(rest).map(|(key, raw)| record(key, raw, now_us)).collect();
            let records = records.filter(|records| records.len() == keys.len())?;
            Some(Loaded { records, token_floor: now_us })
        };
        read().ok_or_else(|| self.strange(Asked::Read))
    }

    /// What a refusal tells of.
    fn refusal(&self, key: &RecordKey, index: usize, told: Vec<Value>) -> StoreError {
        let told = opened(Value::Array(told))
            .and_then(|(now_us, mut rest)| rest.next().and_then(|raw| record(key, raw, now_us)));
        match told {
            Some(stands) => StoreError::refused(index, key.clone(), stands),
            None => self.strange(Asked::Read),
        }
    }

    async fn swap_now(&self, changes: &[Change]) -> Result<Vec<Version>, StoreError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let (call, versions) = self.names.swap(changes, nonce()?);
        match self.call(Asked::Write, &call).await? {
            Value::Int(_) => Ok(versions),
            Value::Array(mut told) if !told.is_empty() => {
                let index = match told.remove(0) {
                    Value::Int(index) => usize::try_from(index).unwrap_or(usize::MAX),
                    _ => usize::MAX,
                };
                let change = changes.get(index).ok_or_else(|| self.strange(Asked::Write))?;
                Err(self.refusal(change.key(), index, told))
            }
            _ => Err(self.strange(Asked::Write)),
        }
    }

    /// Send the swap with the whole script, since nobody would hear that the server has not met it.
    async fn post_now(&self, changes: &[Change]) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let (call, _) = self.names.swap(changes, nonce()?);
        let send = async {
            let link = self.link().await?;
            let posted = link.post(&call.command(true)).await;
            posted.map(drop).map_err(|why| error::answered(&self.place, Asked::Write, &why))
        };
        tokio::time::timeout(self.deadline, send)
            .await
            .unwrap_or_else(|_| Err(error::too_late(&self.place, Some(Asked::Write), self.deadline)))
    }

    async fn scan_now(
        &self,
        prefix: &str,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let answer = self.call(Asked::Read, &self.names.scan(prefix, after, limit)).await?;
        let read = || {
            let (now_us, mut rest) = opened(answer)?;
            let mut records = Vec::new();
            while let Some(name) = rest.next() {
                let Value::BulkString(name) = name else { return None };
                let key = RecordKey::from_stored(String::from_utf8(name).ok()?);
                records.push(record(&key, rest.next()?, now_us)??);
            }
            Some(records)
        };
        read().ok_or_else(|| self.strange(Asked::Read))
    }

    async fn is_changed(&self, key: &RecordKey, version: Option<&Version>) -> Result<bool, StoreError> {
        let loaded = self.load_now(std::slice::from_ref(key)).await?;
        let stands = loaded.records.first().and_then(Option::as_ref);
        Ok(stands.map(|record| &record.version) != version)
    }

    async fn wait(&self, key: &RecordKey, version: Option<&Version>) -> Result<(), StoreError> {
        let (channel, old) = (self.names.channel(key), version.map_or("", Version::as_str));
        loop {
            // listened to before the look, so that no write falls between the two
            let link = tokio::time::timeout(self.deadline, self.link()).await;
            let link = link.map_err(|_| error::too_late(&self.place, None, self.deadline))??;
            // who may not subscribe looks now and then
            let mut waiter =
                tokio::time::timeout(self.deadline, link.listen(&channel)).await.ok().and_then(Result::ok);
            while link.is_alive() {
                if self.is_changed(key, version).await? {
                    return Ok(());
                }
                let hint = async {
                    match &mut waiter {
                        Some(waiter) => waiter.other_than(old).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = hint => return Ok(()),
                    () = link.broken() => {}
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                }
            }
        }
    }
}

/// What no other swap draws.
fn nonce() -> Result<u128, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|why| StoreError::Unavailable(format!("this machine gives no random numbers: {why}")))?;
    Ok(u128::from_ne_bytes(bytes))
}

/// The time that an answer begins with, and the rest of it.
fn opened(answer: Value) -> Option<(u64, std::vec::IntoIter<Value>)> {
    let Value::Array(answer) = answer else { return None };
    let mut answer = answer.into_iter();
    let now_us = time_us(&answer.next()?, &answer.next()?)?;
    Some((now_us, answer))
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { host, port, database, prefix, .. } = &self.place;
        f.debug_struct("Redis")
            .field("host", host)
            .field("port", port)
            .field("database", database)
            .field("prefix", prefix)
            .finish_non_exhaustive()
    }
}

impl Store for Redis {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(self.load_now(keys))
    }

    /// As durable as `appendfsync` says, whichever is asked for: the server answers after it has synced what came
    /// together.
    fn swap<'a>(&'a self, changes: &'a [Change], _: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(self.swap_now(changes))
    }

    /// The server does all that it has read before it finds that nobody is there any more.
    fn post<'a>(&'a self, changes: &'a [Change]) -> Pending<'a, ()> {
        Box::pin(self.post_now(changes))
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(async move {
            match self.call(Asked::Write, &self.names.touch(key, version)).await? {
                Value::Int(_) => Ok(()),
                Value::Array(told) => Err(self.refusal(key, 0, told)),
                _ => Err(self.strange(Asked::Write)),
            }
        })
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
        Box::pin(async move {
            match tokio::time::timeout(within, self.wait(key, version)).await {
                Ok(waited) => waited.map(|()| true),
                Err(_) => Ok(false),
            }
        })
    }

    fn examine(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(examine::examine(self))
    }
}
