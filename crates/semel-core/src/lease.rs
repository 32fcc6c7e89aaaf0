//! The lease machine.
//!
//! ```text
//! free ──acquire──▶ held(owner, token+1, ttl) ──renew──▶ held (same token, clock restarts)
//!   ▲                   │ release (only by the holder's token)      │ lapse (store's clock)
//!   └───────────────────┘◀────────────── acquire by another: token+1 ┘
//! ```
//!
//! A lease is time-bounded ownership of a resource, always assumed to expire. A release keeps the record,
//! because the token's counter must survive it. A lapsed lease is never renewed. The record says who holds it;
//! whether its time has run out is the store's to say, by its own clock.
//!
//! Not guaranteed: that a holder whose lease lapsed has noticed. That is what the token is for.

use serde::{Deserialize, Serialize};

use crate::mutant::{self, Mutant};
use crate::owner::Owner;
use crate::record::{Expect, Seen, Standing, Version};
use crate::token::{Grant, Nonce, Token, TokenError};

/// The record of a resource's lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// The last grant. It outlives the hold: the counter never goes back.
    pub grant: Grant,
    /// Who holds it; nobody after a release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
}

impl Lease {
    /// The epoch of the store by which this grant was decided, where `last_seen` is what somebody of the same process saw
    /// last: another task may have looked after a failover. 0 is unknown. A lease that only rests is no new grant.
    pub fn decided_in(&self, last_seen: u64) -> u64 {
        let is_grant = self.hold.as_ref().is_some_and(|hold| !hold.resting);
        match self.grant.token.epoch() {
            epoch @ 1.. if is_grant => epoch.min(last_seen),
            _ => last_seen,
        }
    }
}

/// A hold on a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hold {
    /// Who.
    pub owner: Owner,
    /// For what, in the readable form.
    pub what: String,
    /// Since when, by the holder's wall clock: for people, never for a decision.
    pub since_ms: u64,
    /// How long it lives without a renewal.
    pub ttl_ms: u64,
    /// How long after a lapse the next grant must wait.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lock_delay_ms: u64,
    /// The work is over and the lease only rests until its time is up (`--hold-at-least`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resting: bool,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A lease as somebody saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeenLease {
    /// The record and its version.
    pub record: Seen<Lease>,
    /// What the store's clock says.
    pub standing: Standing,
    /// The holder is provably gone: same host, boot and namespace, and neither the process nor its tree exists.
    pub owner_gone: bool,
}

impl SeenLease {
    /// Is somebody holding it now?
    pub fn is_held(&self) -> bool {
        self.record.value.hold.is_some() && matches!(self.standing, Standing::Live { .. })
    }

    /// Is it held, by a run that goes on, under this very grant?
    pub fn carries(&self, grant: &Grant) -> bool {
        let hold = self.record.value.hold.as_ref();
        self.is_held()
            && !self.owner_gone
            && hold.is_some_and(|hold| !hold.resting)
            && self.record.value.grant == *grant
    }
}

/// What a claimant asks of a lease.
#[derive(Clone, Debug)]
pub struct Acquire<'a> {
    /// Who asks.
    pub owner: &'a Owner,
    /// For what, in the readable form.
    pub what: &'a str,
    /// Drawn once per claim, or once for works in a row; a grant that carries it already is our own.
    pub nonce: Nonce,
    /// The least token that the store allows.
    pub token_floor: u64,
    /// How long the lease shall live.
    pub ttl_ms: u64,
    /// How long to wait after another's lapse.
    pub lock_delay_ms: u64,
    /// Wall clock, for people.
    pub now_ms: u64,
}

/// What stood there when a lease was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Before {
    /// Nothing: the first grant of this resource.
    Nothing,
    /// A released or rested lease.
    Free,
    /// A lease whose time had run out.
    Lapsed,
    /// A live lease whose holder is provably gone.
    OwnerGone,
    /// Our own grant: the write was applied and its reply lost, or it was kept from the work before.
    Ours,
}

/// A lease that may be taken: what to write, and what must still stand there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takeable {
    /// What to write.
    pub lease: Lease,
    /// What must still stand there.
    pub expect: Expect,
    /// What that is, for people.
    pub before: Before,
}

/// A lease that may not be taken now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Who holds it, or held it last.
    pub hold: Hold,
    /// Under which token.
    pub token: Token,
    /// It may be worth asking again after so long, or earlier if the record changes.
    pub wait_ms: u64,
    /// It has lapsed, and only the lock delay keeps it.
    pub draining: bool,
}

/// The answer to [`acquire`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // short-lived, one per claim
pub enum Acquired {
    /// Take it so.
    Take(Takeable),
    /// Not now.
    Held(Held),
    /// Never: the tokens are used up.
    UsedUp(TokenError),
}

/// May this lease be taken, and how?
pub fn acquire(seen: Option<&SeenLease>, ask: &Acquire<'_>) -> Acquired {
    let Some(seen) = seen else { return grant(None, Expect::Absent, Before::Nothing, ask) };
    let Seen { value: lease, version } = &seen.record;
    let last = Some(lease.grant.token);
    let Some(hold) = &lease.hold else {
        return grant(last, Expect::Version(version.clone()), Before::Free, ask);
    };
    let ours = lease.grant.nonce == ask.nonce && !hold.resting;
    // whoever asks has nothing under way: only what another left behind may have to drain
    let delay_ms = if ours { 0 } else { hold.lock_delay_ms.max(ask.lock_delay_ms) };
    match seen.standing {
        Standing::Live { .. } if ours && mutant::on(Mutant::OwnGrantNotAskedAgain) => {
            go_on(lease, hold, Expect::Version(version.clone()), ask)
        }
        Standing::Live { .. } if ours => go_on(lease, hold, Expect::Live(version.clone()), ask),
        Standing::Lapsed { .. } if ours && mutant::on(Mutant::OwnGrantAfterItsLapse) => {
            go_on(lease, hold, Expect::Version(version.clone()), ask)
        }
        // an owner that is gone says nothing of its effects still under way, so a lock delay waits for the lapse
        Standing::Live { .. } if seen.owner_gone && !hold.resting && delay_ms == 0 => {
            grant(last, Expect::Version(version.clone()), Before::OwnerGone, ask)
        }
        Standing::Live { .. } if mutant::on(Mutant::GrantOverLiveLease) => {
            grant(last, Expect::Version(version.clone()), Before::Free, ask)
        }
        Standing::Live { left_ms } => held(lease, hold, left_ms, false),
        Standing::Lapsed { .. } if hold.resting => {
            grant(last, Expect::Lapsed(version.clone()), Before::Free, ask)
        }
        Standing::Lapsed { for_ms } if for_ms < delay_ms => held(lease, hold, delay_ms - for_ms, true),
        Standing::Lapsed { .. } if mutant::on(Mutant::TakeoverWithoutLapseCheck) => {
            grant(last, Expect::Version(version.clone()), Before::Lapsed, ask)
        }
        Standing::Lapsed { .. } => grant(last, Expect::Lapsed(version.clone()), Before::Lapsed, ask),
    }
}

/// Our own grant, of a reply that was lost or kept from one work to the next: what is asked for now is what it is
/// held for, and how long it lives; whoever trusts it counts by that.
fn go_on(lease: &Lease, hold: &Hold, expect: Expect, ask: &Acquire<'_>) -> Acquired {
    let (ttl_ms, lock_delay_ms) = (ask.ttl_ms, ask.lock_delay_ms);
    let hold = Hold { what: ask.what.to_owned(), ttl_ms, lock_delay_ms, ..hold.clone() };
    let lease = Lease { grant: lease.grant, hold: Some(hold) };
    Acquired::Take(Takeable { lease, expect, before: Before::Ours })
}

fn held(lease: &Lease, hold: &Hold, wait_ms: u64, draining: bool) -> Acquired {
    Acquired::Held(Held { hold: hold.clone(), token: lease.grant.token, wait_ms, draining })
}

fn grant(last: Option<Token>, expect: Expect, before: Before, ask: &Acquire<'_>) -> Acquired {
    let token = match Token::next(last, ask.token_floor) {
        Ok(token) => token,
        Err(why) => return Acquired::UsedUp(why),
    };
    let hold = Hold {
        owner: ask.owner.clone(),
        what: ask.what.to_owned(),
        since_ms: ask.now_ms,
        ttl_ms: ask.ttl_ms,
        lock_delay_ms: ask.lock_delay_ms,
        resting: false,
    };
    let lease = Lease { grant: Grant { token, nonce: ask.nonce }, hold: Some(hold) };
    Acquired::Take(Takeable { lease, expect, before })
}

/// Why a lease is no longer ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Lost {
    /// Another grant stands there.
    #[error("it was taken over with token {token}{}", by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default())]
    Taken {
        /// The token that stands there.
        token: Token,
        /// Who holds it now.
        by: Option<Owner>,
    },
    /// Its time ran out. A lapsed lease is never renewed.
    #[error("it lapsed {for_ms} ms ago")]
    Lapsed {
        /// Milliseconds since.
        for_ms: u64,
    },
    /// It was released.
    #[error("it was released")]
    Released,
    /// There is no such record.
    #[error("the store has no record of it")]
    Absent,
}

fn owned<'a>(
    seen: Option<&'a SeenLease>,
    token: Token,
    nonce: Option<&Nonce>,
) -> Result<(&'a SeenLease, &'a Hold), Lost> {
    let seen = seen.ok_or(Lost::Absent)?;
    let lease = &seen.record.value;
    if lease.grant.token != token || nonce.is_some_and(|nonce| lease.grant.nonce != *nonce) {
        return Err(Lost::Taken {
            token: lease.grant.token,
            by: lease.hold.as_ref().map(|h| h.owner.clone()),
        });
    }
    match &lease.hold {
        Some(hold) if !hold.resting => Ok((seen, hold)),
        _ => Err(Lost::Released),
    }
}

/// May the holder of this token restart the lease's clock? Answers the version to touch.
///
/// The nonce is asked for where the caller has it; a person's script knows only the token.
pub fn renew(seen: Option<&SeenLease>, token: Token, nonce: Option<&Nonce>) -> Result<Version, Lost> {
    if let Some(seen) = seen.filter(|_| mutant::on(Mutant::RenewByStaleToken)) {
        return Ok(seen.record.version.clone());
    }
    let (seen, _) = owned(seen, token, nonce)?;
    match seen.standing {
        Standing::Lapsed { for_ms } => Err(Lost::Lapsed { for_ms }),
        Standing::Live { .. } => Ok(seen.record.version.clone()),
    }
}

/// What a release writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// What to write.
    pub lease: Lease,
    /// What must still stand there.
    pub expect: Expect,
    /// How long it still rests before another may have it.
    pub rest_ms: Option<u64>,
}

/// Give a lease back, at once or after a rest. Only the holder's token can; a lapsed one may, since nobody has
/// taken it yet and its holder says that the work has stopped.
pub fn release(
    seen: Option<&SeenLease>,
    token: Token,
    nonce: Option<&Nonce>,
    rest_ms: u64,
) -> Result<Released, Lost> {
    let (seen, hold) = match (owned(seen, token, nonce), seen) {
        (Err(Lost::Taken { .. }), Some(seen)) if mutant::on(Mutant::ReleaseByAnyone) => {
            (seen, seen.record.value.hold.as_ref().ok_or(Lost::Released)?)
        }
        (owned, _) => owned?,
    };
    let mut grant = seen.record.value.grant;
    if mutant::on(Mutant::ReleaseForgetsToken) {
        grant.token = Token::new(1).unwrap_or(grant.token);
    }
    let rest_ms = Some(rest_ms).filter(|&rest_ms| rest_ms > 0);
    let hold = rest_ms.map(|ttl_ms| Hold { ttl_ms, resting: true, ..hold.clone() });
    let expect = Expect::Version(seen.record.version.clone());
    Ok(Released { lease: Lease { grant, hold }, expect, rest_ms })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn owner(pid: i32) -> Owner {
        Owner { host: "h".into(), boot: "b".into(), pidns: 1, pid, start: 1 }
    }

    fn ask(owner: &Owner, nonce: u8) -> Acquire<'_> {
        let nonce = Nonce::from_bytes([nonce; 16]);
        Acquire { owner, what: "w", nonce, token_floor: 0, ttl_ms: 60_000, lock_delay_ms: 0, now_ms: 0 }
    }

    fn seen(lease: Lease, standing: Standing) -> SeenLease {
        SeenLease { record: Seen { value: lease, version: Version::from(1) }, standing, owner_gone: false }
    }

    fn take(seen: Option<&SeenLease>, ask: &Acquire<'_>) -> Takeable {
        match acquire(seen, ask) {
            Acquired::Take(take) => take,
            other => panic!("not taken: {other:?}"),
        }
    }

    const LIVE: Standing = Standing::Live { left_ms: 5 };
    const LAPSED: Standing = Standing::Lapsed { for_ms: 100 };

    fn held_by(pid: i32, nonce: u8) -> Lease {
        take(None, &ask(&owner(pid), nonce)).lease
    }

    #[test]
    fn a_grant_was_decided_in_the_epoch_of_its_token() {
        let lease = |epoch: u32, resting| {
            let mut lease = held_by(1, 1);
            lease.grant.token = Token::next(None, Token::floor_of_epoch(epoch)).unwrap();
            lease.hold.as_mut().unwrap().resting = resting;
            lease
        };
        assert_eq!(lease(1, false).decided_in(2), 1, "before a failover that another task has met");
        assert_eq!(lease(2, false).decided_in(2), 2);
        assert_eq!(lease(9, false).decided_in(2), 2, "a token that was carried here from another store");
        assert_eq!(lease(1, true).decided_in(2), 2, "a rest is no new grant");
        assert_eq!(lease(1, false).decided_in(0), 0, "a store without epochs");
    }

    #[test]
    fn a_live_lease_is_held_and_a_lapsed_one_is_taken_with_a_larger_token() {
        let (me, first) = (owner(2), held_by(1, 1));
        assert!(matches!(
            acquire(Some(&seen(first.clone(), LIVE)), &ask(&me, 2)),
            Acquired::Held(Held { wait_ms: 5, draining: false, .. })
        ));
        let taken = take(Some(&seen(first.clone(), LAPSED)), &ask(&me, 2));
        assert!(taken.lease.grant.token > first.grant.token);
        assert_eq!((taken.expect, taken.before), (Expect::Lapsed(Version::from(1)), Before::Lapsed));
    }

    #[test]
    fn a_gone_owner_is_taken_over_at_once_unless_a_lock_delay_or_a_rest_forbids_it() {
        let me = owner(2);
        let mut gone = seen(held_by(1, 1), LIVE);
        gone.owner_gone = true;
        assert_eq!(take(Some(&gone), &ask(&me, 2)).before, Before::OwnerGone);
        let delayed = Acquire { lock_delay_ms: 10, ..ask(&me, 2) };
        assert!(matches!(acquire(Some(&gone), &delayed), Acquired::Held(_)));
        gone.record.value.hold.as_mut().unwrap().resting = true;
        assert!(matches!(acquire(Some(&gone), &ask(&me, 2)), Acquired::Held(_)));
        gone.standing = LAPSED;
        assert_eq!(take(Some(&gone), &ask(&me, 2)).before, Before::Free);
    }

    #[test]
    fn a_lock_delay_counts_from_the_lapse_and_the_longer_one_wins() {
        let me = owner(2);
        let mut lapsed = seen(held_by(1, 1), LAPSED);
        lapsed.record.value.hold.as_mut().unwrap().lock_delay_ms = 150;
        assert!(matches!(
            acquire(Some(&lapsed), &ask(&me, 2)),
            Acquired::Held(Held { wait_ms: 50, draining: true, .. })
        ));
        let longer = Acquire { lock_delay_ms: 300, ..ask(&me, 2) };
        assert!(matches!(acquire(Some(&lapsed), &longer), Acquired::Held(Held { wait_ms: 200, .. })));
        lapsed.standing = Standing::Lapsed { for_ms: 150 };
        take(Some(&lapsed), &ask(&me, 2));
    }

    #[test]
    fn only_the_holder_renews_and_releases_and_a_lapse_cannot_be_renewed() {
        let mine = held_by(1, 1);
        let (token, nonce) = (mine.grant.token, mine.grant.nonce);
        let live = seen(mine.clone(), LIVE);
        renew(Some(&live), token, Some(&nonce)).unwrap();
        assert_eq!(renew(Some(&seen(mine.clone(), LAPSED)), token, None), Err(Lost::Lapsed { for_ms: 100 }));
        assert_eq!(renew(None, token, None), Err(Lost::Absent));
        let stale = Token::next(Some(token), 0).unwrap();
        assert!(matches!(renew(Some(&live), stale, None), Err(Lost::Taken { .. })));
        assert!(matches!(release(Some(&live), stale, None, 0), Err(Lost::Taken { .. })));
        let other = Nonce::from_bytes([9; 16]);
        assert!(matches!(renew(Some(&live), token, Some(&other)), Err(Lost::Taken { .. })));
        let free = release(Some(&live), token, Some(&nonce), 0).unwrap().lease;
        assert_eq!((free.grant.token, free.hold.is_none()), (token, true));
        assert_eq!(renew(Some(&seen(free.clone(), LIVE)), token, None), Err(Lost::Released));
        assert_eq!(release(Some(&seen(free.clone(), LIVE)), token, None, 0), Err(Lost::Released));
        let me = owner(2);
        assert_eq!(take(Some(&seen(free, LAPSED)), &ask(&me, 2)).lease.grant.token, stale);
    }

    #[test]
    fn a_rested_lease_stays_taken_until_its_time_is_up() {
        let mine = held_by(1, 1);
        let rest = release(Some(&seen(mine.clone(), LIVE)), mine.grant.token, None, 700).unwrap();
        assert_eq!(rest.rest_ms, Some(700));
        let me = owner(2);
        assert!(matches!(acquire(Some(&seen(rest.lease, LIVE)), &ask(&me, 2)), Acquired::Held(_)));
    }

    #[test]
    fn our_own_grant_is_recognised_when_its_reply_was_lost() {
        let me = owner(1);
        let mine = held_by(1, 1);
        let again = take(Some(&seen(mine.clone(), LIVE)), &ask(&me, 1));
        assert_eq!((again.lease, again.before), (mine, Before::Ours));
    }

    #[test]
    fn a_lease_that_is_kept_lives_as_long_as_the_next_work_asks_for() {
        let me = owner(1);
        let next = Acquire { what: "v", ttl_ms: 5_000, lock_delay_ms: 7, ..ask(&me, 1) };
        let kept = take(Some(&seen(held_by(1, 1), LIVE)), &next).lease;
        let hold = kept.hold.unwrap();
        assert_eq!((hold.what.as_str(), hold.ttl_ms, hold.lock_delay_ms), ("v", 5_000, 7));
    }

    #[test]
    fn a_kept_lease_that_lapsed_is_taken_with_a_larger_token_and_without_a_delay() {
        let (me, mine) = (owner(1), held_by(1, 1));
        let next = Acquire { lock_delay_ms: 300, ..ask(&me, 1) };
        let taken = take(Some(&seen(mine.clone(), LAPSED)), &next);
        assert!(taken.lease.grant.token > mine.grant.token);
        assert_eq!((taken.expect, taken.before), (Expect::Lapsed(Version::from(1)), Before::Lapsed));
    }
}
