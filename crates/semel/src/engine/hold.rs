//! Hold: a lease that is owned by value, and the trust in it.
//!
//! ```text
//! sent ──────▶ heartbeat ──────▶ stop by ─────▶ trust ends ──margin──▶ the store may give it to another
//! ```
//!
//! The watch starts *before* the request is sent, so the store's clock always starts later than ours, and it
//! counts suspend. Trust ends a margin before the lease does. A transient error of a renewal is retried until the
//! work must stop; a refusal by the store is final at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use semel_core::entry::Entry;
use semel_core::lease::{self, Lease, Lost, SeenLease};
use semel_core::policy::{Policy, trust_counts_from};
use semel_core::record::{RecordKey, Seen, Version};

use super::alarm::Watched;
use super::{Begin, Engine};
use crate::clock::Moment;
use crate::store::{Store, StoreError};

/// A lease that is ours, with the intent that it covers. Consumed by the settle: what was released cannot be
/// released again, because it no longer exists.
#[derive(Debug)]
pub struct Held {
    pub(super) begin: Begin,
    pub(super) lease: Seen<Lease>,
    pub(super) entry: Option<Seen<Entry>>,
    pub(super) trust: Trust,
    pub(super) since: Moment,
    /// The alarm of its job, as it was seen before the claim.
    pub(super) watched: Option<Watched>,
}

impl Held {
    /// The lease alone.
    pub(super) fn without_entry(&self) -> Held {
        let Held { begin, lease, trust, since, .. } = self;
        Held {
            begin: begin.clone(),
            lease: lease.clone(),
            entry: None,
            trust: *trust,
            since: *since,
            watched: None,
        }
    }

    /// What the task was told.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// When the holder stops trusting it, unless it is renewed.
    pub fn trusted_until(&self) -> Moment {
        self.trust.ends
    }
}

/// How long a lease is trusted, by the holder's own watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trust {
    /// Renew then.
    pub(super) renew_at: Moment,
    /// The work must begin to stop then.
    pub(super) stop_by: Moment,
    /// Nothing of it may be left then.
    pub(super) ends: Moment,
}

impl Trust {
    /// The trust in a lease whose request was sent at that moment.
    pub(super) fn new(policy: &Policy, sent_at: Moment) -> Trust {
        Trust {
            renew_at: sent_at.plus_ms(policy.heartbeat_ms()),
            stop_by: sent_at.plus_ms(policy.stop_by_ms()),
            ends: sent_at.plus_ms(policy.trust_ms()),
        }
    }
}

/// What came of a renewal.
#[derive(Debug)]
pub(super) enum Renewal {
    /// The clock was restarted by a request sent at that moment.
    Renewed(Moment),
    /// It is lost: the store says so.
    Lost(Lost),
    /// No answer, or none that means anything: try again.
    Failed(String),
}

type Renewing = Pin<Box<dyn Future<Output = Renewal> + Send>>;

/// Keeps one lease alive: at most one renewal under way.
pub(super) struct Heart {
    engine: Engine,
    key: RecordKey,
    version: Version,
    begin: Begin,
    policy: Policy,
    renewing: Option<Renewing>,
    renewed_at: Moment,
    missed: Missed,
    /// The last renewal failed.
    failing: bool,
}

/// What a lease went through while it was kept alive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Missed {
    /// Renewals that failed.
    pub(super) renewals: u32,
    /// The longest that it went without one, where some failed or it was lost.
    pub(super) unrenewed_ms: u64,
}

impl Heart {
    pub(super) fn new(engine: &Engine, held: &Held, policy: &Policy) -> Heart {
        Heart {
            engine: engine.clone(),
            key: RecordKey::lease(&held.begin.resource),
            version: held.lease.version.clone(),
            begin: held.begin.clone(),
            policy: policy.clone(),
            renewing: None,
            renewed_at: held.since,
            missed: Missed::default(),
            failing: false,
        }
    }

    /// Begin a renewal, unless one is under way.
    pub(super) fn beat(&mut self) {
        if self.renewing.is_some() {
            return;
        }
        let engine = self.engine.clone();
        let (key, version, begin) = (self.key.clone(), self.version.clone(), self.begin.clone());
        // a request that hangs must not keep the next one from being tried
        let patience = Duration::from_millis(self.policy.heartbeat_ms() / 2).max(Duration::from_millis(200));
        self.renewing = Some(Box::pin(async move {
            match tokio::time::timeout(patience, renew(&engine, &key, &version, &begin)).await {
                Ok(renewal) => renewal,
                Err(_) => Renewal::Failed(format!("no answer within {} ms", patience.as_millis())),
            }
        }));
    }

    /// When the next renewal is due; not while one is under way.
    pub(super) fn due(&self, renew_at: Moment) -> Option<Moment> {
        self.renewing.is_none().then_some(renew_at)
    }

    /// The renewal under way, if there is one; else wait for ever.
    pub(super) async fn answered(&mut self) -> Renewal {
        let Some(renewing) = &mut self.renewing else { return std::future::pending().await };
        let renewal = renewing.await;
        self.renewing = None;
        match &renewal {
            Renewal::Renewed(sent_at) => {
                if std::mem::take(&mut self.failing) {
                    self.note_gap(*sent_at);
                }
                self.renewed_at = *sent_at;
            }
            Renewal::Failed(_) => {
                self.failing = true;
                self.missed.renewals = self.missed.renewals.saturating_add(1);
            }
            Renewal::Lost(_) => {}
        }
        renewal
    }

    fn note_gap(&mut self, until: Moment) {
        let gap_ms = u64::try_from(self.renewed_at.until(until).as_millis()).unwrap_or(u64::MAX);
        self.missed.unrenewed_ms = self.missed.unrenewed_ms.max(gap_ms);
    }

    /// What the lease went through; one that was lost has gone without a renewal until now.
    pub(super) fn missed(&mut self, lost: bool) -> Missed {
        if self.failing || lost {
            self.note_gap(self.engine.clock.now());
        }
        self.missed
    }

    /// The trust after a renewal that was sent at that moment.
    pub(super) fn trust(&self, sent_at: Moment) -> Trust {
        Trust::new(&self.policy, trust_counts_from(sent_at, self.engine.clock.now()))
    }

    /// The pause before the next try after a failure.
    pub(super) fn retry_ms(&self) -> u64 {
        (self.policy.ttl_ms / 30).clamp(20, 1_000)
    }
}

async fn renew(engine: &Engine, key: &RecordKey, version: &Version, begin: &Begin) -> Renewal {
    let sent_at = engine.clock.now();
    let store: &Arc<dyn Store> = &engine.store;
    match store.touch(key, version).await {
        Ok(()) => Renewal::Renewed(sent_at),
        Err(StoreError::Refused(conflict)) => {
            let seen = conflict.stands.as_ref().map(|record| engine.seen_lease(record)).transpose();
            match seen {
                Ok(seen) => lost(seen.as_ref(), begin),
                Err(why) => Renewal::Failed(why.to_string()),
            }
        }
        Err(why) => Renewal::Failed(why.to_string()),
    }
}

/// A touch was refused: what do the rules say of what stands there?
fn lost(seen: Option<&SeenLease>, begin: &Begin) -> Renewal {
    match lease::renew(seen, begin.grant.token, Some(&begin.grant.nonce)) {
        Err(lost) => Renewal::Lost(lost),
        // ours after all, at another version: that cannot be, so nothing is concluded but that it must be tried
        Ok(_) => Renewal::Failed("the store refused a renewal that it should grant".into()),
    }
}
