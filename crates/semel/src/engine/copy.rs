//! A ledger carried from one store to another.
//!
//! ```text
//! nobody holds a lease ──▶ mark the target ──▶ leases, then all else, page by page ──▶ compare both ──▶ unmark
//! ```
//!
//! Theory. Leases go first, so that a copy which is interrupted has carried the counters: no token goes back. Each page
//! is preceded by a note of what it is about to write, a short digest for each record, which lies in the target beside
//! the mark. So a copy that goes on knows its own: what differs and is its own is written over, as the source went on;
//! what differs and is not was written by somebody who used the target too early, and nothing of theirs is touched. At the
//! end both sides are read once more, record by record: what changed in the source meanwhile shows as a difference, and
//! mark and notes stay.
//!
//! Not guaranteed: that nobody goes on with the source afterwards. Its next grant would have the token of the target's
//! next grant, and another nonce; a fenced sink refuses the second and says so.

use std::collections::HashSet;
use std::time::Duration;

use semel_core::canonical::hex;
use semel_core::carry::{self, Both, Carry};
use semel_core::lease::Lease;
use semel_core::record::{self, Expect, RecordError, RecordKey};
use sha2::{Digest, Sha256};

use super::view::LookError;
use crate::store::{Change, Durability, Most, Record, Store, StoreError, meets};

/// Records of a page.
const PAGE: usize = 256;
/// The most of a swap, however much the store takes.
const SWAP: Most = Most { changes: PAGE / 4, bytes: 1 << 20 };
/// How often a write is tried that nobody answers.
const TRIES: u32 = 8;
/// A lease that had lapsed there has lapsed here.
const LAPSED: Duration = Duration::from_millis(1);
/// The mark and the notes, by the beginning of their names.
const OURS: &str = "copy/";
/// The notes alone.
const NOTES: &str = "copy/page/";

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
    /// Somebody used the target before the copy was done.
    #[error(
        "{0} in the target is not what the copy wrote there: somebody used the target too early; copy into an empty one, and point nobody at it before the copy is done"
    )]
    Used(String),
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
    RecordKey::from_stored(format!("{OURS}target"))
}

/// Carry everything; told how many records were looked at, now and then.
pub async fn copy(
    source: &dyn Store,
    target: &dyn Store,
    tell: &mut (dyn FnMut(u64) + Send),
) -> Result<Carried, CopyError> {
    nobody_holds(source, "in the source").await?;
    nobody_holds(target, "in the target").await?;
    if one(target, &mark()).await?.is_none() {
        // before anything is written: a stranger's ledger stays as it is
        look_for_strangers(source, target).await?;
        let put = Change::Put { key: mark(), expect: Expect::Absent, value: b"copy".to_vec(), ttl: None };
        write(target, vec![put]).await?;
    }
    let (mut carried, mut notes) = (Carried::default(), Notes::default());
    for prefix in RecordKey::PREFIXES {
        let mut from = None;
        loop {
            let page = source.scan(prefix, from.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            from = Some(last.key.clone());
            write_page(&page, target, &mut notes, &mut carried).await?;
            tell(carried.written + carried.there);
        }
    }
    nobody_holds(source, "in the source").await?;
    nobody_holds(target, "in the target").await?;
    compare(source, target, &mut carried).await?;
    unmark(target).await?;
    Ok(carried)
}

/// The notes go, and the mark after them.
async fn unmark(target: &dyn Store) -> Result<(), CopyError> {
    loop {
        let page = target.scan(OURS, None, PAGE).await?;
        if page.is_empty() {
            return Ok(());
        }
        let remove =
            |record: Record| Change::Remove { key: record.key, expect: Expect::Version(record.version) };
        let removals: Vec<Change> = page.into_iter().map(remove).collect();
        for part in most_of(target).parts(&removals) {
            target.swap(part, Durability::Durable).await?;
        }
    }
}

/// As much as one swap may hold, there and here.
fn most_of(target: &dyn Store) -> Most {
    let theirs = target.most();
    Most { changes: theirs.changes.min(SWAP.changes), bytes: theirs.bytes.min(SWAP.bytes) }
}

/// What the copy wrote before it was interrupted, read when the first difference is met.
#[derive(Default)]
struct Notes(Option<HashSet<String>>);

impl Notes {
    /// Did the copy write these bytes there?
    async fn know(&mut self, target: &dyn Store, record: &Record) -> Result<bool, StoreError> {
        let known = match &mut self.0 {
            Some(known) => known,
            none => none.insert(Notes::read(target).await?),
        };
        Ok(known.contains(&digest_of(&record.key, &record.value)))
    }

    async fn read(target: &dyn Store) -> Result<HashSet<String>, StoreError> {
        let (mut known, mut from) = (HashSet::new(), None);
        loop {
            let page = target.scan(NOTES, from.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { return Ok(known) };
            from = Some(last.key.clone());
            for note in &page {
                known.extend(String::from_utf8_lossy(&note.value).lines().map(str::to_owned));
            }
        }
    }
}

/// The note that goes before these changes.
fn note_of(changes: &[Change]) -> Option<Change> {
    let digest = |change: &Change| match change {
        Change::Put { key, value, .. } if !is_lease(key) => Some(digest_of(key, value)),
        _ => None,
    };
    let digests: Vec<String> = changes.iter().filter_map(digest).collect();
    let value = digests.join("\n").into_bytes();
    let key = RecordKey::from_stored(format!("{NOTES}{}", hex(&Sha256::digest(&value))));
    (!digests.is_empty()).then_some(Change::Put { key, expect: Expect::Absent, value, ttl: None })
}

/// A record in sixteen letters.
fn digest_of(key: &RecordKey, value: &[u8]) -> String {
    let mut digest = Sha256::new();
    add(&mut digest, key, value);
    hex(&digest.finalize()).chars().take(16).collect()
}

fn add(digest: &mut Sha256, key: &RecordKey, value: &[u8]) {
    for part in [key.as_str().as_bytes(), value] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
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
                    let both = Both { source: &theirs.value, target: Some(&record.value), ours: false };
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

async fn write_page(
    page: &[Record],
    target: &dyn Store,
    notes: &mut Notes,
    carried: &mut Carried,
) -> Result<(), CopyError> {
    let keys: Vec<RecordKey> = page.iter().map(|record| record.key.clone()).collect();
    let mut changes: Vec<Change> = Vec::new();
    for (record, stands) in page.iter().zip(target.load(&keys).await?.records) {
        match change(record, stands.as_ref(), target, notes).await? {
            Some(change) => changes.push(change),
            None => carried.there += 1,
        }
    }
    carried.written += changes.len() as u64;
    // first, so that nothing stands there that is not noted
    changes.splice(0..0, note_of(&changes));
    for part in most_of(target).parts(&changes) {
        write(target, part.to_vec()).await?;
    }
    Ok(())
}

/// What makes the target's record the source's.
async fn change(
    record: &Record,
    stands: Option<&Record>,
    target: &dyn Store,
    notes: &mut Notes,
) -> Result<Option<Change>, CopyError> {
    let expect = stands.map_or(Expect::Absent, |stands| Expect::Version(stands.version.clone()));
    let ttl = record.standing.is_some().then_some(LAPSED);
    let put = || Change::Put { key: record.key.clone(), expect, value: record.value.clone(), ttl };
    if is_lease(&record.key) {
        let theirs = stands.map(lease_of).transpose()?;
        let standing = stands.and_then(|stands| stands.standing);
        if theirs.as_ref().is_some_and(|theirs| carry::is_in_use(theirs, standing)) {
            return Err(CopyError::Held(name_of(&record.key), "in the target"));
        }
        return Ok(carry::lease(&lease_of(record)?, theirs.as_ref()).map(|_| put()));
    }
    let differs = stands.filter(|stands| stands.value != record.value);
    let ours = match differs {
        Some(stands) => notes.know(target, stands).await?,
        None => false,
    };
    let both = Both { source: &record.value, target: stands.map(|stands| stands.value.as_slice()), ours };
    match carry::record(&both) {
        Carry::Leave => Ok(None),
        Carry::Write => Ok(Some(put())),
        Carry::Stranger => Err(CopyError::Used(record.key.to_string())),
    }
}

/// Write, and look what became of it if nobody answers. What somebody else wrote meanwhile stays.
async fn write(target: &dyn Store, mut swap: Vec<Change>) -> Result<(), CopyError> {
    let mut last = None;
    for _ in 0..TRIES {
        match target.swap(&swap, Durability::Durable).await {
            Ok(_) => return Ok(()),
            Err(why @ (StoreError::Refused(_) | StoreError::Unknown(_))) => last = Some(why),
            Err(why) => return Err(why.into()),
        }
        let keys: Vec<RecordKey> = swap.iter().map(|change| change.key().clone()).collect();
        let mut left = Vec::new();
        for (change, stands) in swap.into_iter().zip(target.load(&keys).await?.records) {
            match (&change, &stands) {
                (Change::Put { value, .. }, Some(stands)) if *value == stands.value => {}
                _ if meets(change.expect(), stands.as_ref().map(|record| (&record.version, None))) => {
                    left.push(change);
                }
                _ => return Err(CopyError::Used(change.key().to_string())),
            }
        }
        swap = left;
        if swap.is_empty() {
            return Ok(());
        }
    }
    last.map_or(Ok(()), |why| Err(why.into()))
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
                add(&mut digest, &record.key, &record.value);
            }
            carried.compared += ours.len() as u64;
        }
    }
    carried.digest = hex(&digest.finalize());
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
