//! Group commit: the claims and outcomes of all workers, in one durable swap.
//!
//! Every operation of a group is about another record, so that a group stands or falls by its guards and by records
//! that somebody else has changed. A refusal names the one at fault: the claims of the group are then looked at again
//! together, the outcomes are sent again without it.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;

use semel_core::claim::Guard;
use semel_core::entry::{self, Entry, RESULT_LIMIT, Settle, Stale};
use semel_core::item::{self, ItemClaim};
use semel_core::record::{self, Expect, RecordKey, Version};

use super::super::Engine;
use super::super::view::{LookError, seen_entry};
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
    /// Another of the group is about the same record.
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
    let mut guarded: HashSet<RecordKey> = HashSet::new();
    let mut taken: HashSet<RecordKey> = HashSet::new();
    for op in ops {
        if !taken.insert(op.record().clone()) {
            unsent.push(Unsent::Next(op));
            continue;
        }
        let (record, entry, expect) = match prepare(site, &op) {
            Ok(prepared) => prepared,
            Err(Stale::AlreadySettled) => {
                if let Op::End(end) = op {
                    let entry = end.claimed.seen.value.clone();
                    unsent.push(Unsent::Settled(end, entry));
                }
                continue;
            }
            Err(why) => {
                unsent.push(Unsent::Hopeless(op, why.to_string()));
                continue;
            }
        };
        let value = match record::encode(&record, &entry) {
            Ok(value) => value,
            Err(why) => {
                unsent.push(Unsent::Hopeless(op, why.to_string()));
                continue;
            }
        };
        for guard in op.guards() {
            let key = RecordKey::lease(&guard.resource);
            if guarded.insert(key.clone()) {
                changes.push(Change::Guard { key, expect: guard.expect.clone() });
            }
        }
        group.ops.push((op, changes.len(), entry));
        changes.push(Change::Put { key: record, expect, value, ttl: None });
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
        Op::End(End { claimed, outcome, .. }) => {
            let now_ms = site.engine.clock.wall_ms();
            let grant = &site.begin.grant;
            let seen = &claimed.seen;
            let next = match outcome {
                Some(outcome) => {
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
                    entry::settle(&seen.value, &settle)?
                }
                None => item::give_back(&seen.value, grant, claimed.after_lost, now_ms)
                    .ok_or(Stale::AlreadySettled)?,
            };
            (claimed.record.clone(), next, Expect::Version(seen.version.clone()))
        }
    })
}

/// Send them.
pub(super) fn send(engine: &Engine, changes: Vec<Change>) -> Swapping {
    let store = engine.store.clone();
    Box::pin(async move { store.swap(&changes, Durability::Durable).await })
}

/// What stands there for items whose outcome was refused or not answered.
pub(super) async fn recheck<D>(engine: &Engine, mut ends: Vec<End<D>>) -> Rechecked<D> {
    let keys: Vec<RecordKey> = ends.iter().map(|end| end.claimed.record.clone()).collect();
    let loaded = match engine.store.load(&keys).await {
        Ok(loaded) => loaded,
        Err(why) => return Rechecked { ends, gone: Vec::new(), failed: Some(why.into()) },
    };
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
