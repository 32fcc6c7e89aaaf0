//! The leases that items have of their own, kept alive by the runner's one loop.
//!
//! Each is trusted for itself: one that is lost ends its item, and no other.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel_core::entry::Entry;
use semel_core::item::own_nonce;
use semel_core::lease::{self, Lease, SeenLease};
use semel_core::name::Name;
use semel_core::policy::{Policy, trust_counts_from};
use semel_core::record::{RecordKey, Seen, Standing};
use semel_core::token::{Grant, Nonce};
use tokio::sync::watch;

use super::super::Engine;
use super::super::hold::{Renewal, Trust};
use super::super::view::changes;
use super::look::Candidate;
use super::pool::Pool;
use super::worker::{Control, Halt};
use crate::clock::Moment;
use crate::store::{Change, StoreError};

/// Renewals that are under way at a time.
const AT_ONCE: usize = 64;

/// The lease of an item that is claimed.
pub(super) struct OwnLease {
    pub(super) resource: Name,
    pub(super) lease: Seen<Lease>,
    /// Since when it is held.
    pub(super) since: Moment,
    pub(super) trust: Arc<Mutex<Trust>>,
    /// What the item hears.
    pub(super) control: watch::Receiver<Control>,
    /// Somebody else has it by now: there is nothing to be given back.
    pub(super) is_gone: bool,
}

impl OwnLease {
    pub(super) fn grant(&self) -> &Grant {
        &self.lease.value.grant
    }

    /// What gives it back, at once or after a rest.
    pub(super) fn release(&self, rest_ms: u64) -> Option<Change> {
        // what we wrote stands there, unless somebody proves otherwise
        let standing = Standing::Live { left_ms: 0 };
        let seen = SeenLease { record: self.lease.clone(), standing, owner_gone: false };
        let grant = self.grant();
        let released = lease::release(Some(&seen), grant.token, Some(&grant.nonce), rest_ms).ok()?;
        changes(&[released.write(&self.resource)]).ok()?.pop().filter(|_| !self.is_gone)
    }

    /// It was looked at again.
    pub(super) fn seen(&mut self, seen: Option<SeenLease>) {
        match seen.filter(|seen| seen.record.value.grant == *self.grant()) {
            Some(seen) if seen.record.value.hold.is_some() => self.lease = seen.record,
            _ => self.is_gone = true,
        }
    }
}

/// One that is to be renewed.
struct Live {
    grant: Grant,
    lease: Seen<Lease>,
    trust: Trust,
    shared: Arc<Mutex<Trust>>,
    control: watch::Sender<Control>,
    is_lost: bool,
}

type Beat = Pin<Box<dyn Future<Output = Vec<(Name, Grant, Renewal)>> + Send>>;

/// All of them.
pub(super) struct OwnLeases {
    engine: Engine,
    policy: Policy,
    /// What all items hear.
    common: watch::Receiver<Control>,
    live: HashMap<Name, Live>,
    beat: Option<Beat>,
}

impl OwnLeases {
    pub(super) fn new(engine: &Engine, policy: &Policy, common: watch::Receiver<Control>) -> OwnLeases {
        OwnLeases { engine: engine.clone(), policy: policy.clone(), common, live: HashMap::new(), beat: None }
    }

    /// One more, asked for at that moment.
    pub(super) fn add(&mut self, resource: Name, lease: Seen<Lease>, sent_at: Moment) -> OwnLease {
        let trust = Trust::new(&self.policy, trust_counts_from(sent_at, self.engine.clock.now()));
        let shared = Arc::new(Mutex::new(trust));
        let (control, heard) =
            watch::channel(Control { trust_ends: trust.ends, ..self.common.borrow().clone() });
        let grant = lease.value.grant;
        let own = OwnLease {
            resource: resource.clone(),
            lease: lease.clone(),
            since: sent_at,
            trust: Arc::clone(&shared),
            control: heard,
            is_gone: false,
        };
        self.live.insert(resource, Live { grant, lease, trust, shared, control, is_lost: false });
        own
    }

    /// It was given back, or is left to lapse.
    pub(super) fn remove(&mut self, own: &OwnLease) {
        if self.live.get(&own.resource).is_some_and(|live| live.grant == *own.grant()) {
            self.live.remove(&own.resource);
        }
    }

    /// Tell all of their items.
    pub(super) fn tell(&self, say: impl Fn(&mut Control)) {
        self.live.values().for_each(|live| live.control.send_modify(&say));
    }

    /// Renew what is due; end the items of those that are no longer trusted.
    pub(super) fn check(&mut self, now: Moment) {
        for live in self.live.values_mut().filter(|live| !live.is_lost && now >= live.trust.stop_by) {
            live.lose(now >= live.trust.ends);
        }
        if self.beat.is_none() && self.live.values().any(|live| !live.is_lost && now >= live.trust.renew_at) {
            self.begin(now);
        }
    }

    /// Those that are due soon go along.
    fn begin(&mut self, now: Moment) {
        let soon = now.plus_ms(self.policy.heartbeat_ms() / 2);
        let due = self.live.iter().filter(|(_, live)| !live.is_lost && soon >= live.trust.renew_at);
        let due: Vec<_> =
            due.map(|(resource, live)| (resource.clone(), live.grant, live.lease.clone())).collect();
        let engine = self.engine.clone();
        let patience = Duration::from_millis(self.policy.heartbeat_ms() / 2).max(Duration::from_millis(200));
        self.beat = Some(Box::pin(async move {
            let mut pool = Pool::new(due.len().min(AT_ONCE));
            let (mut left, mut renewed) = (due.into_iter(), Vec::new());
            loop {
                while pool.free() > 0
                    && let Some((resource, grant, lease)) = left.next()
                {
                    let engine = &engine;
                    pool.push(async move {
                        let asked = renew(engine, &resource, &grant, &lease);
                        let renewal = tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| {
                            Renewal::Failed(format!("no answer within {} ms", patience.as_millis()))
                        });
                        (resource, grant, renewal)
                    });
                }
                if pool.live() == 0 {
                    return renewed;
                }
                renewed.push(poll_fn(|cx| pool.poll_next(cx)).await);
            }
        }));
    }

    /// The renewals under way, if there are any; else wait for ever. What failed is said.
    pub(super) async fn answered(&mut self) -> Vec<String> {
        let Some(beat) = &mut self.beat else { return std::future::pending().await };
        let renewals = beat.await;
        self.beat = None;
        let now = self.engine.clock.now();
        let mut failed = Vec::new();
        for (resource, grant, renewal) in renewals {
            let Some(live) = self.live.get_mut(&resource).filter(|live| live.grant == grant) else {
                continue;
            };
            match renewal {
                Renewal::Renewed(sent_at) => {
                    let trust = Trust::new(&self.policy, trust_counts_from(sent_at, now));
                    live.trust = trust;
                    *live.shared.lock().unwrap_or_else(PoisonError::into_inner) = trust;
                    live.control.send_modify(|control| control.trust_ends = trust.ends);
                }
                Renewal::Lost(why) => {
                    failed.push(format!("the lease of {resource}: {why}"));
                    live.lose(true);
                }
                Renewal::Failed(why) => {
                    failed.push(format!("the lease of {resource}: {why}"));
                    live.trust.renew_at = now.plus_ms((self.policy.ttl_ms / 30).clamp(20, 1_000));
                }
            }
        }
        failed
    }

    /// When there is something to be done for one of them.
    pub(super) fn wake_at(&self) -> Option<Moment> {
        let trusts = self.live.values().filter(|live| !live.is_lost).map(|live| live.trust);
        let next = |trust: Trust| match self.beat {
            Some(_) => trust.stop_by,
            None => trust.stop_by.min(trust.renew_at),
        };
        trusts.map(next).min()
    }
}

impl Live {
    fn lose(&mut self, at_once: bool) {
        self.is_lost = true;
        self.control.send_modify(|control| control.halt = Some(Halt::Lost { at_once }));
    }
}

async fn renew(engine: &Engine, resource: &Name, grant: &Grant, lease: &Seen<Lease>) -> Renewal {
    let sent_at = engine.clock.now();
    match engine.store.touch(&RecordKey::lease(resource), &lease.version).await {
        Ok(()) => Renewal::Renewed(sent_at),
        Err(StoreError::Refused(conflict)) => {
            match conflict.stands.as_ref().map(|record| engine.seen_lease(record)).transpose() {
                Ok(seen) => match lease::renew(seen.as_ref(), grant.token, Some(&grant.nonce)) {
                    Err(lost) => Renewal::Lost(lost),
                    Ok(_) => Renewal::Failed("the store refused a renewal that it should grant".into()),
                },
                Err(why) => Renewal::Failed(why.to_string()),
            }
        }
        Err(why) => Renewal::Failed(why.to_string()),
    }
}

/// What gives back the lease that a claim of this item took, where the claim came to nothing: a store that makes one
/// change after another takes the lease first and may then refuse the intent.
pub(super) fn stray<D>(candidate: &Candidate<D>, runner: &Nonce) -> Option<Change> {
    candidate.unanswered?;
    let resource = candidate.item.resource.as_ref()?;
    let (_, seen) = candidate.leases.all.iter().find(|(name, _)| name == resource)?;
    let token = seen.as_ref()?.record.value.grant.token;
    let nonce = own_nonce(runner, &candidate.item.key);
    let released = lease::release(seen.as_ref(), token, Some(&nonce), 0).ok()?;
    changes(&[released.write(resource)]).ok()?.pop()
}

/// The lease under which this entry says that it runs, if it is among these and carries it.
pub(super) fn lease_of<'a>(
    entry: &Entry,
    leases: &'a [(Name, Option<SeenLease>)],
) -> Option<(&'a Name, &'a SeenLease)> {
    let semel_core::entry::State::Running { resource, grant } = &entry.state else { return None };
    let (name, seen) = leases.iter().find(|(name, _)| name == resource)?;
    seen.as_ref().filter(|seen| seen.carries(grant)).map(|seen| (name, seen))
}
