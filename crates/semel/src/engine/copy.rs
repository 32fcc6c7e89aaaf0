//! A ledger carried from one store to another.
//!
//! ```text
//! nobody holds a lease ──▶ mark the target ──▶ leases, then all else, page by page ──▶ compare both ──▶ unmark
//! ```
//!
//! Theory. Leases go first, so that a copy which is interrupted has carried the counters: no token goes back. While the
//! mark stands, what differs in the target is the copy's own of an earlier try and is written over; without the mark it
//! is a stranger's, and nothing is touched. At the end both sides are read once more, record by record: what changed in
//! the source meanwhile shows as a difference, and the mark stays.
//!
//! Not guaranteed: that nobody goes on with the source afterwards. Its next grant would have the token of the target's
//! next grant, and another nonce; a fenced sink refuses the second and says so.

use semel_core::carry::{self, Both, Carry};
use semel_core::lease::Lease;
use semel_core::record::{self, Expect, RecordError, RecordKey};
use sha2::{Digest, Sha256};
use std::time::Duration;

use super::view::LookError;
use crate::store::{Change, Durability, Record, Store, StoreError};

/// Records of a page, and of a swap.
const PAGE: usize = 256;
/// The most bytes of a swap.
const SWAP_BYTES: usize = 1 << 20;
/// How often a record may change under the copy before it gives up.
const TRIES: u32 = 8;
/// A lease that had lapsed there has lapsed here.
const LAPSED: Duration = Duration::from_millis(1);

/// What was carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Records written.
    pub written: u64,
    /// Records that stood there already.
    pub there: u64,
    /// Records compared at the end, and found equal.
    pub compared: u64,
    /// SHA-256 over the names and bytes of all that was compared, but for the leases whose counter was higher in the
    /// target.
    pub digest: String,
}

/// Why a ledger is not carried.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Somebody holds a lease: it could change what is being carried.
    #[error("{0} is held {1}: wait until nothing runs, on both sides, and copy then")]
    Held(String, &'static str),
    /// The target has records of somebody else.
    #[error("the target has other records, as {0}: give an empty one")]
    Stranger(String),
    /// The source changed while it was read.
    #[error("{0} changed while it was copied: stop what runs, and copy again; it goes on where it was")]
    Changed(String),
    /// One of the two stores.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record that cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl From<LookError> for CopyError {
    fn from(why: LookError) -> CopyError {
        match why {
            LookError::Store(why) => CopyError::Store(why),
            LookError::Record(why) => CopyError::Record(why),
        }
    }
}

fn mark() -> RecordKey {
    RecordKey::from_stored("copy/target".to_owned())
}

/// Carry everything; told how many records were looked at, now and then.
pub async fn copy(
    source: &dyn Store,
    target: &dyn Store,
    tell: &mut (dyn FnMut(u64) + Send),
) -> Result<Carried, CopyError> {
    nobody_holds(source, "in the source").await?;
    nobody_holds(target, "in the target").await?;
    let marked = one(target, &mark()).await?;
    if marked.is_none() {
        // before anything is written: a stranger's ledger stays as it is
        look_for_strangers(source, target).await?;
        let put = Change::Put { key: mark(), expect: Expect::Absent, value: b"copy".to_vec(), ttl: None };
        target.swap(&[put], Durability::Durable).await?;
    }
    let mut carried = Carried::default();
    for prefix in RecordKey::PREFIXES {
        let mut from = None;
        loop {
            let page = source.scan(prefix, from.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            from = Some(last.key.clone());
            write_page(&page, target, &mut carried).await?;
            tell(carried.written + carried.there);
        }
    }
    nobody_holds(source, "in the source").await?;
    compare(source, target, &mut carried).await?;
    if let Some(stands) = one(target, &mark()).await? {
        let expect = Expect::Version(stands.version);
        target.swap(&[Change::Remove { key: mark(), expect }], Durability::Durable).await?;
    }
    Ok(carried)
}

async fn one(store: &dyn Store, key: &RecordKey) -> Result<Option<Record>, StoreError> {
    Ok(store.load(std::slice::from_ref(key)).await?.records.pop().flatten())
}

fn lease_of(record: &Record) -> Result<Lease, RecordError> {
    record::decode(&record.key, &record.value)
}

fn is_lease(key: &RecordKey) -> bool {
    key.as_str().starts_with(RecordKey::leases())
}

async fn nobody_holds(store: &dyn Store, side: &'static str) -> Result<(), CopyError> {
    let mut from = None;
    loop {
        let page = store.scan(RecordKey::leases(), from.as_ref(), PAGE).await?;
        for record in &page {
            if carry::is_in_use(&lease_of(record)?, record.standing) {
                return Err(CopyError::Held(name_of(&record.key), side));
            }
        }
        match page.last() {
            Some(last) => from = Some(last.key.clone()),
            None => return Ok(()),
        }
    }
}

/// As people know it.
fn name_of(key: &RecordKey) -> String {
    let name = key.as_str().rsplit('/').next().unwrap_or_default();
    semel_core::name::unescape(name).unwrap_or_else(|_| key.to_string())
}

/// Everything that stands in the target must be in the source, as it is there.
async fn look_for_strangers(source: &dyn Store, target: &dyn Store) -> Result<(), CopyError> {
    for prefix in RecordKey::PREFIXES {
        let mut from = None;
        loop {
            let page = target.scan(prefix, from.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            from = Some(last.key.clone());
            let keys: Vec<RecordKey> = page.iter().map(|record| record.key.clone()).collect();
            let theirs = source.load(&keys).await?.records;
            for (record, theirs) in page.iter().zip(theirs) {
                let same = theirs.is_some_and(|theirs| {
                    let both = Both { source: &theirs.value, target: Some(&record.value), marked: false };
                    carry::record(&both) == Carry::Leave
                });
                if !same && !is_lease(&record.key) {
                    return Err(CopyError::Stranger(record.key.to_string()));
                }
            }
        }
    }
    Ok(())
}

async fn write_page(page: &[Record], target: &dyn Store, carried: &mut Carried) -> Result<(), CopyError> {
    let keys: Vec<RecordKey> = page.iter().map(|record| record.key.clone()).collect();
    let mut changes: Vec<(Change, usize)> = Vec::new();
    for (record, stands) in page.iter().zip(target.load(&keys).await?.records) {
        match change(record, stands.as_ref())? {
            Some(change) => changes.push((change, record.value.len())),
            None => carried.there += 1,
        }
    }
    let mut rest = changes.into_iter().peekable();
    while rest.peek().is_some() {
        let (mut bytes, mut swap) = (0, Vec::new());
        while let Some((change, size)) =
            rest.next_if(|(_, size)| swap.is_empty() || (bytes + size <= SWAP_BYTES && swap.len() < PAGE / 4))
        {
            bytes += size;
            swap.push(change);
        }
        carried.written += swap.len() as u64;
        write(target, swap).await?;
    }
    Ok(())
}

/// What makes the target's record the source's.
fn change(record: &Record, stands: Option<&Record>) -> Result<Option<Change>, CopyError> {
    let expect = stands.map_or(Expect::Absent, |stands| Expect::Version(stands.version.clone()));
    let ttl = record.standing.is_some().then_some(LAPSED);
    let put = || Change::Put { key: record.key.clone(), expect, value: record.value.clone(), ttl };
    if is_lease(&record.key) {
        let (source, target) = (lease_of(record)?, stands.map(lease_of).transpose()?);
        return Ok(carry::lease(&source, target.as_ref()).map(|_| put()));
    }
    let both =
        Both { source: &record.value, target: stands.map(|stands| stands.value.as_slice()), marked: true };
    match carry::record(&both) {
        Carry::Leave => Ok(None),
        Carry::Write => Ok(Some(put())),
        Carry::Stranger => Err(CopyError::Stranger(record.key.to_string())),
    }
}

/// Write, and look what became of it if nobody answers.
async fn write(target: &dyn Store, mut swap: Vec<Change>) -> Result<(), CopyError> {
    for _ in 0..TRIES {
        match target.swap(&swap, Durability::Durable).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Refused(_) | StoreError::Unknown(_)) => {}
            Err(why) => return Err(why.into()),
        }
        let keys: Vec<RecordKey> = swap.iter().map(|change| change.key().clone()).collect();
        let stands = target.load(&keys).await?.records;
        let meant = |(change, stands): (Change, Option<Record>)| match change {
            Change::Put { key, value, ttl, .. } => {
                if stands.as_ref().is_some_and(|stands| stands.value == value) {
                    return None;
                }
                let expect = stands.map_or(Expect::Absent, |stands| Expect::Version(stands.version));
                Some(Change::Put { key, expect, value, ttl })
            }
            other => Some(other),
        };
        swap = swap.into_iter().zip(stands).filter_map(meant).collect();
        if swap.is_empty() {
            return Ok(());
        }
    }
    let first = swap.first().map(|change| change.key().to_string()).unwrap_or_default();
    Err(CopyError::Stranger(first))
}

/// Read both sides once more.
async fn compare(source: &dyn Store, target: &dyn Store, carried: &mut Carried) -> Result<(), CopyError> {
    let mut digest = Sha256::new();
    for prefix in RecordKey::PREFIXES {
        let mut from = None;
        loop {
            let (ours, theirs) = (
                source.scan(prefix, from.as_ref(), PAGE).await?,
                target.scan(prefix, from.as_ref(), PAGE).await?,
            );
            if is_lease(&RecordKey::from_stored((*prefix).to_owned())) {
                // the target may know leases that the source does not: its counters stay
                let keys: Vec<RecordKey> = ours.iter().map(|record| record.key.clone()).collect();
                for (source, target) in ours.iter().zip(target.load(&keys).await?.records) {
                    let target = target.as_ref().map(lease_of).transpose()?;
                    if carry::lease(&lease_of(source)?, target.as_ref()).is_some() {
                        return Err(CopyError::Changed(source.key.to_string()));
                    }
                }
            } else if let Some(odd) = difference(&ours, &theirs) {
                return Err(CopyError::Changed(odd));
            }
            let Some(last) = ours.last() else { break };
            from = Some(last.key.clone());
            for record in &ours {
                digest.update((record.key.as_str().len() as u64).to_be_bytes());
                digest.update(record.key.as_str());
                digest.update((record.value.len() as u64).to_be_bytes());
                digest.update(&record.value);
            }
            carried.compared += ours.len() as u64;
        }
    }
    carried.digest = semel_core::canonical::hex(&digest.finalize());
    Ok(())
}

/// The first record that is not the same on both sides.
fn difference(ours: &[Record], theirs: &[Record]) -> Option<String> {
    let longest = ours.len().max(theirs.len());
    (0..longest).find_map(|at| match (ours.get(at), theirs.get(at)) {
        (Some(a), Some(b)) if a.key == b.key && a.value == b.value => None,
        (a, b) => a.or(b).map(|record| record.key.to_string()),
    })
}
