//! Group commit: the claims and outcomes of all workers, in one durable swap.
//!
//! Every operation of a group is about other records, so that a group stands or falls by its guards and by records
//! that somebody else has changed. A refusal names the one at fault: the claims of the group are then looked at again
//! together, the outcomes are sent again without it.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use semel_core::claim::Guard;
use semel_core::entry::{self, Entry, RESULT_LIMIT, Settle, Stale};
use semel_core::item::{self, ItemClaim};
use semel_core::record::{self, Expect, RecordKey, Version};

use super::super::Engine;
use super::super::view::{self, LookError, seen_entry};
use super::look::Candidate;
use super::worker::{Claimed, Outcome, Site};
use crate::clock::Moment;
use crate::store::{Change, Durability, StoreError};

/// The most operations of one swap.
pub(super) const GROUP: usize = 256;

/// Something to be written about one item.
#[allow(clippy::large_enum_variant)] // most are claims and settles, of one size
pub(super) enum Op<D> {
    /// It is about to begin.
    Claim { candidate: Candidate<D>, claim: ItemClaim },
    /// A person is needed.
    Doubt { candidate: Candidate<D>, entry: Entry, expect: Expect, guards: Vec<Guard> },
    /// It has ended.
    End(End<D>),
}

/// How an item that was claimed is to be settled.
pub(super) struct End<D> {
    pub(super) claimed: Claimed<D>,
    /// None: it was not begun.
    pub(super) outcome: Option<Outcome>,
    /// Tried until then.
    pub(super) give_up: Moment,
}

impl<D> End<D> {
    /// The entry after it.
    fn next(&self, site: &Site<'_>) -> Result<Entry, Stale> {
        let End { claimed, outcome, .. } = self;
        let now_ms = site.engine.clock.wall_ms();
        let (grant, seen) = (claimed.grant(site), &claimed.seen.value);
        let Some(outcome) = outcome else {
            return item::give_back(seen, grant, claimed.after_lost, now_ms).ok_or(Stale::AlreadySettled);
        };
        let fits = |value: &serde_json::Value| value.to_string().len() <= RESULT_LIMIT;
        let settle = Settle {
            grant,
            ending: outcome.ending.clone(),
            result: outcome.result.clone().filter(fits),
            output: None,
            failed_tries: outcome.failed_tries,
            missed_renewals: 0,
            unrenewed_ms: 0,
            now_ms,
        };
        entry::settle(seen, &settle)
    }

    /// Was it seen to stand there?
    pub(super) fn is_on_record(&self, site: &Site<'_>) -> bool {
        matches!(self.next(site), Err(Stale::AlreadySettled))
    }
}

impl<D> Op<D> {
    /// Is the change at this place one of its own, where its record is changed at that one?
    pub(super) fn is_about(&self, index: usize, at: usize) -> bool {
        let gives_back = matches!(self, Op::End(End { claimed, .. }) if claimed.own.as_ref().is_some_and(|own| !own.is_gone));
        index == at || (gives_back && index == at + 1)
    }
}

/// Some operations, under way to the store.
pub(super) struct Group<D> {
    /// Each with the place of its record among the changes, and the entry that is written.
    pub(super) ops: Vec<(Op<D>, usize, Entry)>,
}

pub(super) type Swapping = Pin<Box<dyn Future<Output = Result<Vec<Version>, StoreError>> + Send>>;

/// What came of an operation before it was sent.
pub(super) enum Unsent<D> {
    /// It is on record already.
    Settled(End<D>, Entry),
    /// Another of the group is about the same record, or the group is as large as the store takes.
    Next(Op<D>),
    /// It cannot be written any more, or at all.
    Hopeless(Op<D>, String),
}

/// Put operations into one swap.
pub(super) fn group<D>(
    site: &Site<'_>,
    ops: impl Iterator<Item = Op<D>>,
) -> (Group<D>, Vec<Change>, Vec<Unsent<D>>) {
    let (mut changes, mut unsent) = (Vec::new(), Vec::new());
    let mut group = Group { ops: Vec::new() };
    let (most, mut bytes) = (site.engine.store.most(), 0usize);
    let mut guarded: HashSet<RecordKey> = HashSet::new();
    let mut taken: HashSet<RecordKey> = HashSet::new();
    let mut written: HashSet<RecordKey> = HashSet::new();
    for op in ops {
        if !taken.insert(op.record().clone()) {
            unsent.push(Unsent::Next(op));
            continue;
        }
        let gives_back = op.gives_back(site);
        let (record, entry, expect) = match prepare(site, &op) {
            Ok((record, entry, expect)) => (record, entry, Some(expect)),
            Err(Stale::AlreadySettled) => match op {
                Op::End(end) if gives_back.is_none() => {
                    let entry = end.claimed.seen.value.clone();
                    unsent.push(Unsent::Settled(end, entry));
                    continue;
                }
                // the outcome was written and what should have followed was not
                Op::End(End { ref claimed, .. }) => {
                    (claimed.record.clone(), claimed.seen.value.clone(), None)
                }
                Op::Claim { .. } | Op::Doubt { .. } => continue,
            },
            Err(why) => {
                unsent.push(Unsent::Hopeless(op, why.to_string()));
                continue;
            }
        };
        // another of the group must neither guard nor write what this one writes
        let leases = op.leases();
        let clashes = leases.iter().any(|key| guarded.contains(key) || written.contains(key))
            || op.guards().iter().any(|guard| written.contains(&RecordKey::lease(&guard.resource)));
        if clashes {
            unsent.push(Unsent::Next(op));
            continue;
        }
        let value = match record::encode(&record, &entry) {
            Ok(value) => value,
            Err(why) => {
                unsent.push(Unsent::Hopeless(op, why.to_string()));
                continue;
            }
        };
        let takes = op.takes();
        let beside = || takes.iter().chain(&gives_back);
        let size = record.as_str().len() + value.len() + beside().map(Change::size).sum::<usize>();
        let many = changes.len() + op.guards().len() + beside().count();
        let full = many >= most.changes || bytes.saturating_add(size) > most.bytes;
        if full && !group.ops.is_empty() {
            unsent.push(Unsent::Next(op));
            continue;
        }
        bytes = bytes.saturating_add(size);
        for guard in op.guards() {
            let key = RecordKey::lease(&guard.resource);
            if guarded.insert(key.clone()) {
                changes.push(Change::Guard { key, expect: guard.expect.clone() });
            }
        }
        written.extend(leases);
        // a lease is taken before the intent, and given back after the outcome
        changes.extend(takes);
        group.ops.push((op, changes.len(), entry));
        changes.extend(expect.map(|expect| Change::Put { key: record, expect, value, ttl: None }));
        changes.extend(gives_back);
    }
    (group, changes, unsent)
}

impl<D> Op<D> {
    fn record(&self) -> &RecordKey {
        match self {
            Op::Claim { candidate, .. } | Op::Doubt { candidate, .. } => &candidate.record,
            Op::End(end) => &end.claimed.record,
        }
    }

    /// The leases that it writes.
    fn leases(&self) -> Option<RecordKey> {
        let resource = match self {
            Op::Claim { claim, .. } => claim.lease.as_ref().map(|own| &own.resource),
            Op::End(end) => end.claimed.own.as_ref().map(|own| &own.resource),
            Op::Doubt { .. } => None,
        };
        resource.map(RecordKey::lease)
    }

    fn takes(&self) -> Option<Change> {
        let Op::Claim { claim, .. } = self else { return None };
        view::changes(&[claim.lease.as_ref()?.write()]).ok()?.pop()
    }

    fn gives_back(&self, site: &Site<'_>) -> Option<Change> {
        let Op::End(End { claimed, outcome, .. }) = self else { return None };
        let own = claimed.own.as_ref()?;
        let held = own.since.until(site.engine.clock.now());
        let rest = Duration::from_millis(site.plan.policy.hold_at_least_ms).saturating_sub(held);
        let rest_ms = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
        own.release(if outcome.is_some() { rest_ms } else { 0 })
    }

    fn guards(&self) -> &[Guard] {
        match self {
            Op::Claim { claim, .. } => &claim.guards,
            Op::Doubt { guards, .. } => guards,
            Op::End(_) => &[],
        }
    }
}

/// What to write where, in place of what.
fn prepare<D>(site: &Site<'_>, op: &Op<D>) -> Result<(RecordKey, Entry, Expect), Stale> {
    Ok(match op {
        Op::Claim { candidate, claim } => {
            (candidate.record.clone(), claim.entry.clone(), claim.expect.clone())
        }
        Op::Doubt { candidate, entry, expect, .. } => {
            (candidate.record.clone(), entry.clone(), expect.clone())
        }
        Op::End(end) => {
            let Claimed { record, seen, .. } = &end.claimed;
            (record.clone(), end.next(site)?, Expect::Version(seen.version.clone()))
        }
    })
}

/// Send them.
pub(super) fn send(engine: &Engine, changes: Vec<Change>) -> Swapping {
    let store = engine.store.clone();
    Box::pin(async move { store.swap(&changes, Durability::Durable).await })
}

/// Give back leases that no item has any use for. One that cannot be given back lapses.
pub(super) async fn give_back(engine: &Engine, strays: Vec<Change>) {
    for stray in strays {
        let _ = engine.store.swap(std::slice::from_ref(&stray), Durability::Durable).await;
    }
}

/// What stands there for items whose outcome was refused or not answered.
pub(super) async fn recheck<D>(engine: &Engine, mut ends: Vec<End<D>>) -> Rechecked<D> {
    let own = ends.iter().filter_map(|end| Some(RecordKey::lease(&end.claimed.own.as_ref()?.resource)));
    let keys: Vec<RecordKey> = ends.iter().map(|end| end.claimed.record.clone()).chain(own).collect();
    let mut loaded = match engine.store.load(&keys).await {
        Ok(loaded) => loaded,
        Err(why) => return Rechecked { ends, gone: Vec::new(), failed: Some(why.into()) },
    };
    let mut leases = loaded.records.split_off(ends.len().min(loaded.records.len())).into_iter();
    for own in ends.iter_mut().filter_map(|end| end.claimed.own.as_mut()) {
        // one that cannot be read is not ours to write
        own.seen(leases.next().flatten().and_then(|record| engine.seen_lease(&record).ok()));
    }
    let (mut found, mut gone, mut failed) = (Vec::new(), Vec::new(), None);
    for (mut end, record) in ends.drain(..).zip(loaded.records) {
        match record.map(|record| seen_entry(&record)) {
            Some(Ok(seen)) => {
                end.claimed.seen = seen;
                found.push(end);
            }
            Some(Err(why)) => {
                failed = Some(why.into());
                gone.push(end);
            }
            None => gone.push(end),
        }
    }
    Rechecked { ends: found, gone, failed }
}

/// What a second look at outcomes found.
pub(super) struct Rechecked<D> {
    /// To be sent again.
    pub(super) ends: Vec<End<D>>,
    /// Nothing of them is on record any more.
    pub(super) gone: Vec<End<D>>,
    pub(super) failed: Option<LookError>,
}
