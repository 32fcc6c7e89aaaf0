//! Leases straight on a store, by the rules of [`semel_core::lease`], without the engine: what the cases and the
//! helper program claim with.

use std::time::Duration;

use semel_core::lease::{Acquire, Acquired, Before, Lease, SeenLease, acquire, release, renew};
use semel_core::owner::Owner;
use semel_core::record::{RecordKey, Seen, Standing, Version, decode, encode};
use semel_core::token::{Grant, Nonce, Token};

use crate::store::{Change, Durability, Record, Store, StoreError};

/// What came of a claim.
#[derive(Clone, Debug)]
pub enum Claim {
    /// The lease is ours.
    Won(Won),
    /// Another holds it, or was quicker.
    Lost,
}

/// A lease that was won.
#[derive(Clone, Debug)]
pub struct Won {
    /// Its token and nonce.
    pub grant: Grant,
    /// The version of its record.
    pub version: Version,
    /// What stood there before.
    pub before: Before,
}

/// A random nonce.
pub fn nonce() -> Result<Nonce, String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|why| why.to_string())?;
    Ok(Nonce::from_bytes(bytes))
}

/// An owner of whom nothing can be concluded.
pub fn owner() -> Owner {
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    Owner { host: "conformance".to_owned(), boot: String::new(), pidns: 0, pid, start: 0 }
}

/// The lease in a record, as the rules want to see it.
pub fn seen(record: &Record) -> Result<SeenLease, String> {
    let lease: Lease = decode(&record.key, &record.value).map_err(|why| why.to_string())?;
    // a released lease has no clock
    let standing = record.standing.unwrap_or(Standing::Lapsed { for_ms: 0 });
    let record = Seen { value: lease, version: record.version.clone() };
    Ok(SeenLease { record, standing, owner_gone: false })
}

/// Look at a lease.
pub async fn look(store: &dyn Store, key: &RecordKey) -> Result<(Option<SeenLease>, u64), String> {
    let loaded = store.load(std::slice::from_ref(key)).await.map_err(|why| why.to_string())?;
    let record = loaded.records.first().and_then(Option::as_ref);
    Ok((record.map(seen).transpose()?, loaded.token_floor))
}

/// The write that takes a lease, if it may be taken.
pub async fn draft(
    store: &dyn Store,
    key: &RecordKey,
    ttl: Duration,
    nonce: Nonce,
) -> Result<Option<(Change, Won)>, String> {
    let (found, token_floor) = look(store, key).await?;
    let owner = owner();
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    let ask = Acquire {
        owner: &owner,
        what: "conformance",
        nonce,
        token_floor,
        ttl_ms,
        lock_delay_ms: 0,
        now_ms: 0,
    };
    match acquire(found.as_ref(), &ask) {
        Acquired::Take(take) => {
            let value = encode(key, &take.lease).map_err(|why| why.to_string())?;
            let version = found.map_or_else(|| Version::new(""), |found| found.record.version);
            let won = Won { grant: take.lease.grant, version, before: take.before };
            Ok(Some((Change::Put { key: key.clone(), expect: take.expect, value, ttl: Some(ttl) }, won)))
        }
        Acquired::Held(_) => Ok(None),
        Acquired::UsedUp(why) => Err(why.to_string()),
    }
}

/// Take a lease: one look, one write.
pub async fn claim(store: &dyn Store, key: &RecordKey, ttl: Duration) -> Result<Claim, String> {
    let Some((change, won)) = draft(store, key, ttl, nonce()?).await? else { return Ok(Claim::Lost) };
    match store.swap(&[change], Durability::Durable).await {
        Ok(mut versions) => match versions.pop() {
            Some(version) => Ok(Claim::Won(Won { version, ..won })),
            None => Err("a swap answered no version".to_owned()),
        },
        Err(StoreError::Refused(_)) => Ok(Claim::Lost),
        Err(why) => Err(why.to_string()),
    }
}

/// Renew a lease by its token; an inner error says why it is lost.
pub async fn renew_lease(
    store: &dyn Store,
    key: &RecordKey,
    token: Token,
) -> Result<Result<(), String>, String> {
    let (found, _) = look(store, key).await?;
    let version = match renew(found.as_ref(), token, None) {
        Ok(version) => version,
        Err(lost) => return Ok(Err(lost.to_string())),
    };
    match store.touch(key, &version).await {
        Ok(()) => Ok(Ok(())),
        Err(why @ StoreError::Refused(_)) => Ok(Err(why.to_string())),
        Err(why) => Err(why.to_string()),
    }
}

/// The write that gives a lease back; an inner error says why it cannot be given.
pub async fn draft_release(
    store: &dyn Store,
    key: &RecordKey,
    token: Token,
) -> Result<Result<Change, String>, String> {
    let (found, _) = look(store, key).await?;
    Ok(match release(found.as_ref(), token, None, 0) {
        Ok(released) => {
            let value = encode(key, &released.lease).map_err(|why| why.to_string())?;
            Ok(Change::Put { key: key.clone(), expect: released.expect, value, ttl: None })
        }
        Err(lost) => Err(lost.to_string()),
    })
}

/// Give a lease back by its token; an inner error says why it cannot be given.
pub async fn release_lease(
    store: &dyn Store,
    key: &RecordKey,
    token: Token,
) -> Result<Result<(), String>, String> {
    match draft_release(store, key, token).await? {
        Ok(change) => match store.swap(&[change], Durability::Durable).await {
            Ok(_) => Ok(Ok(())),
            Err(why @ StoreError::Refused(_)) => Ok(Err(why.to_string())),
            Err(why) => Err(why.to_string()),
        },
        Err(lost) => Ok(Err(lost)),
    }
}
