//! Settle: the outcome on record, the lease given back. Consumes the lease.

use std::time::Duration;

use semel_core::alarm::spot;
use semel_core::claim::{After, Write, conclude, with_alarm};
use semel_core::entry::{Ending, Entry, Settle, Stale};
use semel_core::lease::{self, SeenLease};
use semel_core::record::{Seen, Standing};
use serde_json::Value;

use super::alarm::Watched;
use super::view::{LookError, changes};
use super::{Engine, Held};
use crate::crash;
use crate::store::{Durability, StoreError};

/// What is to be settled.
pub(super) struct Outcome {
    pub(super) ending: Ending,
    pub(super) result: Option<Value>,
    pub(super) failed_tries: u32,
    pub(super) missed_renewals: u32,
    pub(super) unrenewed_ms: u64,
    /// What becomes of the lease.
    pub(super) after: After,
}

/// Why an outcome is not on record.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unsettled {
    /// The ledger has gone on without us.
    #[error(transparent)]
    Stale(Stale),
    /// The store could not be written until the lease's trust ended.
    #[error("{0}")]
    StoreDown(String),
    /// The record cannot be written or read.
    #[error("{0}")]
    Unusable(String),
}

/// What was settled.
pub(super) struct Settled {
    /// The entry as it stands now; `None` for a lease without a ledger.
    pub(super) entry: Option<Entry>,
    /// There is something to be told.
    pub(super) notices: bool,
}

/// What is told of how an attempt ended.
fn notice(watched: &Watched, entry: &Entry, settle: &Settle<'_>) -> Option<Write> {
    if settle.ending.is_success() {
        return watched.recover(&entry.work, settle.now_ms);
    }
    watched.raise(&[spot::settled(entry, &settle.ending, settle.now_ms)?])
}

const PAUSE: Duration = Duration::from_millis(100);
/// An outcome that is known is worth some patience even when the lease has run out.
const PATIENCE_MS: u64 = 5_000;

impl Engine {
    /// Record the outcome and release the lease, in one durable swap.
    pub(super) async fn settle(&self, held: Held, outcome: Outcome) -> Result<Settled, Unsettled> {
        match held.entry.clone() {
            Some(entry) => self.conclude(held, entry, outcome).await,
            None => {
                let given_back = match outcome.after {
                    After::Release { rest_ms } => self.give_back(held, rest_ms).await,
                    After::Keep => Ok(()),
                };
                given_back.map(|()| Settled { entry: None, notices: false })
            }
        }
    }

    async fn conclude(
        &self,
        held: Held,
        mut entry: Seen<Entry>,
        outcome: Outcome,
    ) -> Result<Settled, Unsettled> {
        let mut watched = held.watched.clone();
        let give_up = held.trust.ends.max(self.clock.now().plus_ms(PATIENCE_MS));
        let settle = Settle {
            grant: &held.begin.grant,
            ending: outcome.ending,
            result: outcome.result,
            output: None,
            failed_tries: outcome.failed_tries,
            missed_renewals: outcome.missed_renewals,
            unrenewed_ms: outcome.unrenewed_ms,
            now_ms: self.clock.wall_ms(),
        };
        // what we wrote stands there, unless somebody proves otherwise
        let standing = Standing::Live { left_ms: 0 };
        let mut lease = Some(SeenLease { record: held.lease.clone(), standing, owner_gone: false });
        let mut refused = false;
        loop {
            let conclusion = match conclude(&entry, lease.as_ref(), &settle, outcome.after) {
                Ok(conclusion) => conclusion,
                Err(Stale::AlreadySettled) => {
                    let settled = Settled { entry: Some(entry.value), notices: watched.is_some() };
                    // where a store makes one change after another, the release may not have followed
                    if let After::Release { rest_ms } = outcome.after
                        && lease.is_some_and(|seen| seen.carries(&held.begin.grant))
                    {
                        // one that cannot be given back lapses
                        let _ = self.give_back(held, rest_ms).await;
                    }
                    return Ok(settled);
                }
                Err(stale) => return Err(Unsettled::Stale(stale)),
            };
            crash::point("run.settle.before");
            let writes = conclusion.writes(&held.begin.resource);
            // others, and the claim itself, may have raised something since it was seen; what cannot be looked at is
            // refused by the write, and what cannot be read must not keep the outcome from the record
            if let Err(LookError::Record(_)) = self.look_at_alarm(&mut watched).await {
                watched = None;
            }
            let alarm = watched.as_ref().and_then(|watched| notice(watched, &conclusion.entry, &settle));
            let notices = alarm.is_some();
            let why = match self.write(&with_alarm(writes, alarm)).await {
                Ok(()) => {
                    crash::point("run.settle.after");
                    return Ok(Settled { entry: Some(conclusion.entry), notices });
                }
                Err(LookError::Record(why)) => return Err(Unsettled::Unusable(why.to_string())),
                Err(LookError::Store(why)) => why,
            };
            if self.clock.now() >= give_up {
                return Err(Unsettled::StoreDown(why.to_string()));
            }
            // the first that is refused knows more after a look; one that is refused again may be so for ever
            if !matches!(why, StoreError::Refused(_)) || std::mem::replace(&mut refused, true) {
                tokio::time::sleep(PAUSE).await;
            }
            match self.look_again(&held).await {
                Ok((seen, found)) => {
                    let Some(seen) = seen else {
                        return Err(Unsettled::Stale(Stale::MovedOn { state: "absent" }));
                    };
                    (entry, lease) = (seen, found);
                }
                Err(LookError::Record(why)) => return Err(Unsettled::Unusable(why.to_string())),
                // the write says it again, and gives up in time
                Err(LookError::Store(_)) => {}
            }
        }
    }

    /// A lease without a ledger is only released. One that is no longer ours needs no release.
    pub(super) async fn give_back(&self, held: Held, rest_ms: u64) -> Result<(), Unsettled> {
        let grant = held.begin.grant;
        let give_up = held.trust.ends;
        let standing = Standing::Live { left_ms: 0 };
        let mut lease = Some(SeenLease { record: held.lease.clone(), standing, owner_gone: false });
        let mut refused = false;
        loop {
            let released = match lease::release(lease.as_ref(), grant.token, Some(&grant.nonce), rest_ms) {
                Ok(released) => released,
                Err(_) => return Ok(()),
            };
            match self.write(&[released.write(&held.begin.resource)]).await {
                Ok(()) => return Ok(()),
                Err(LookError::Record(why)) => return Err(Unsettled::Unusable(why.to_string())),
                Err(LookError::Store(StoreError::Refused(_))) if !std::mem::replace(&mut refused, true) => {}
                Err(LookError::Store(why)) if self.clock.now() >= give_up => {
                    return Err(Unsettled::StoreDown(why.to_string()));
                }
                Err(LookError::Store(_)) => tokio::time::sleep(PAUSE).await,
            }
            if let Ok((_, found)) = self.look_again(&held).await {
                lease = found;
            }
        }
    }

    async fn write(&self, writes: &[Write]) -> Result<(), LookError> {
        let changes = changes(writes)?;
        self.store.swap(&changes, Durability::Durable).await?;
        Ok(())
    }

    async fn look_again(&self, held: &Held) -> Result<(Option<Seen<Entry>>, Option<SeenLease>), LookError> {
        let resource = std::slice::from_ref(&held.begin.resource);
        let mut view = self.look(held.begin.work.as_ref(), resource).await?;
        let lease = view.leases.pop().and_then(|(_, lease)| lease);
        Ok((view.entry, lease))
    }
}
