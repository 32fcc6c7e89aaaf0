//! Leases for scripts, which hold one across several commands and so are known by its token alone.

use semel_core::claim::{self, Ask, Decision, View};
use semel_core::lease::{self, Lost, SeenLease};
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::policy::Policy;
use semel_core::record::{RecordKey, Standing};
use semel_core::token::{Grant, Token};

use super::claim::Unknowns;
use super::view::{LookError, changes};
use super::{Engine, draw_nonce};
use crate::store::{Durability, StoreError};

/// What came of a script's request for a lease.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // one per command
pub enum ScriptLease {
    /// It is yours, under this grant.
    Granted {
        /// Of this resource.
        resource: Name,
        /// The token and its nonce.
        grant: Grant,
    },
    /// Somebody holds it.
    Busy(claim::Busy),
}

impl Engine {
    /// Acquire the first free of these resources for `owner`, once, without waiting.
    pub async fn acquire(
        &self,
        resources: &[Name],
        policy: &Policy,
        owner: &Owner,
        what: &str,
    ) -> Result<ScriptLease, LookError> {
        let nonce = draw_nonce().map_err(StoreError::Unavailable)?;
        let mut unknowns = Unknowns::default();
        loop {
            let view = self.look(None, resources).await?;
            let now_ms = self.clock.wall_ms();
            let (work, payload, command, plan, definition) = (None, None, None, None, None);
            let ask = Ask {
                work,
                what,
                resources,
                policy,
                owner,
                nonce,
                payload,
                command,
                plan,
                definition,
                occurrence: None,
                now_ms,
            };
            match claim::claim(&view, &ask) {
                Decision::Claim(claim) => {
                    match self.store.swap(&changes(&claim.writes())?, Durability::Durable).await {
                        Ok(_) => {
                            return Ok(ScriptLease::Granted {
                                grant: claim.grant(),
                                resource: claim.resource,
                            });
                        }
                        // looked at again: our own nonce tells whether it was applied
                        Err(StoreError::Unknown(why)) => {
                            unknowns.another(why).await.map_err(StoreError::Unavailable)?;
                        }
                        Err(StoreError::Refused(_)) => {}
                        Err(why) => return Err(why.into()),
                    }
                }
                Decision::Busy(busy) => return Ok(ScriptLease::Busy(busy)),
                Decision::UsedUp(why) => return Err(StoreError::Unavailable(why.to_string()).into()),
                other => {
                    let why = format!("a lease without a ledger cannot be answered so: {other:?}");
                    return Err(StoreError::Unavailable(why).into());
                }
            }
        }
    }

    /// Restart the clock of a lease that is held under this token. Answers how long it now lives.
    pub async fn renew(&self, resource: &Name, token: Token) -> Result<Result<u64, Lost>, LookError> {
        let seen = self.lease_of(resource).await?;
        let version = match lease::renew(seen.as_ref(), token, None) {
            Ok(version) => version,
            Err(lost) => return Ok(Err(lost)),
        };
        let ttl_ms = seen.and_then(|seen| seen.record.value.hold).map_or(0, |hold| hold.ttl_ms);
        match self.store.touch(&RecordKey::lease(resource), &version).await {
            Ok(()) => Ok(Ok(ttl_ms)),
            Err(StoreError::Refused(conflict)) => {
                let seen = conflict.stands.map(|record| self.seen_lease(&record)).transpose()?;
                let lost = lease::renew(seen.as_ref(), token, None).err();
                Ok(Err(lost.unwrap_or(Lost::Lapsed { for_ms: 0 })))
            }
            Err(why) => Err(why.into()),
        }
    }

    /// Give back a lease that is held under this token.
    pub async fn release(&self, resource: &Name, token: Token) -> Result<Result<(), Lost>, LookError> {
        let mut unanswered = false;
        let mut unknowns = Unknowns::default();
        loop {
            let seen = self.lease_of(resource).await?;
            let released = match lease::release(seen.as_ref(), token, None, 0) {
                Ok(released) => released,
                // our own release, whose reply was lost
                Err(Lost::Released) if unanswered => return Ok(Ok(())),
                Err(lost) => return Ok(Err(lost)),
            };
            match self.store.swap(&changes(&[released.write(resource)])?, Durability::Durable).await {
                Ok(_) => return Ok(Ok(())),
                Err(StoreError::Refused(_)) => {}
                Err(StoreError::Unknown(why)) => {
                    unanswered = true;
                    unknowns.another(why).await.map_err(StoreError::Unavailable)?;
                }
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// The lease of a resource as it stands.
    pub async fn lease_of(&self, resource: &Name) -> Result<Option<SeenLease>, LookError> {
        let View { mut leases, .. } = self.look(None, std::slice::from_ref(resource)).await?;
        Ok(leases.pop().and_then(|(_, seen)| seen))
    }

    /// Is the lease of this resource live under this token, now, by the store's clock?
    pub async fn holds(&self, resource: &Name, token: Token) -> Result<bool, LookError> {
        let seen = self.lease_of(resource).await?;
        let live = seen.filter(|seen| matches!(seen.standing, Standing::Live { .. }));
        Ok(lease::renew(live.as_ref(), token, None).is_ok())
    }
}
