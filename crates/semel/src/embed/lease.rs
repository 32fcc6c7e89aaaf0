//! A lease, as its holder sees it; and leases without a ledger.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use semel_core::name::Name;
use semel_core::policy::{IfBusy, Policy};
use semel_core::token::{Grant, Token};

use super::job::named;
use super::outcome::{self, Outcome};
use super::run::Run;
use super::{JobError, Semel, Shut, Verified, drive, lease_plan, ms};
use crate::engine::desk::Desk;

/// A lease that is held, and renewed in the background, for as long as the body runs that was given it.
#[derive(Clone, Debug)]
pub struct Lease {
    desk: Arc<Desk>,
}

impl Lease {
    pub(super) fn new(desk: &Arc<Desk>) -> Lease {
        Lease { desk: Arc::clone(desk) }
    }

    pub(super) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// The fencing token: it only grows with every holder. Hand it to a target that refuses smaller ones.
    pub fn token(&self) -> Token {
        self.desk.begin().grant.token
    }

    /// The token with its nonce, for the [sinks](crate::sink).
    pub fn grant(&self) -> &Grant {
        &self.desk.begin().grant
    }

    /// The resource that is held.
    pub fn resource(&self) -> &Name {
        &self.desk.begin().resource
    }

    /// Is it still trusted, by this process's own watch? Asks nobody.
    pub fn is_trusted(&self) -> Result<(), Shut> {
        self.desk.is_trusted().map_err(Shut::Stale)
    }

    /// Verify with the store, now, that it is held and lives at least so long, renewing it if need be.
    ///
    /// A narrowed window, not a closed one: between the answer and the effect it may still be lost. Where the target
    /// can check the [token](Lease::token), let it.
    pub fn gate(&self, need: Duration) -> impl Future<Output = Result<Verified, Shut>> + Send + use<> {
        let desk = Arc::clone(&self.desk);
        async move { desk.gate(need).await }
    }
}

/// A lease to be held. See [`Semel::lease`].
#[derive(Debug)]
#[must_use = "hold() acquires it"]
pub struct LeaseBuilder<'a> {
    semel: &'a Semel,
    resources: Vec<String>,
    what: String,
    policy: Policy,
}

/// What came of a lease without a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the lease may not have been had at all"]
pub enum Held<T> {
    /// It was held until the body ended, and given back.
    Released(T),
    /// Somebody holds it: the body was not called. Come again.
    Busy {
        /// The resource that is free soonest.
        resource: Name,
        /// What it is held for.
        held_for: String,
        /// It is free after this time at the latest, unless it is renewed.
        free_in: Duration,
    },
    /// It was lost while the body ran, which was dropped. Somebody else may hold it by now: do nothing more.
    Lost(String),
    /// The body ended, and the lease could not be given back: it lapses by itself.
    NotReleased {
        /// What the body said.
        value: T,
        /// Why.
        why: String,
    },
    /// The store cannot be reached: the body was not called. Come again.
    StoreDown(String),
    /// A name, a policy or a record that cannot be used: the body was not called.
    Unusable(String),
}

impl<'a> LeaseBuilder<'a> {
    pub(super) fn new(semel: &'a Semel, resource: &str) -> LeaseBuilder<'a> {
        let what = "a lease of a program".to_owned();
        LeaseBuilder { semel, resources: vec![resource.to_owned()], what, policy: super::policy() }
    }

    /// Another resource that would do, if those before it are held.
    pub fn or(mut self, resource: &str) -> LeaseBuilder<'a> {
        self.resources.push(resource.to_owned());
        self
    }

    /// What it is held for, for people to read.
    pub fn what(mut self, what: &str) -> LeaseBuilder<'a> {
        what.clone_into(&mut self.what);
        self
    }

    /// How long it lives without a renewal: a minute if nothing is said.
    pub fn ttl(mut self, ttl: Duration) -> LeaseBuilder<'a> {
        self.policy.ttl_ms = ms(ttl);
        self.policy.kill_after_ms = Policy::default_kill_after_ms(self.policy.ttl_ms);
        self
    }

    /// If it is held, wait at most so long. If nothing is said, [`Held::Busy`] is answered at once.
    pub fn wait(mut self, at_most: Duration) -> LeaseBuilder<'a> {
        self.policy.if_busy = IfBusy::Wait { for_ms: ms(at_most) };
        self
    }

    /// Acquire it, call the body while it is renewed in the background, and give it back.
    ///
    /// If the lease is lost the body is dropped. It is called once at most.
    pub async fn hold<T, F, R>(self, mut body: F) -> Held<T>
    where
        F: FnMut(Lease) -> R,
        R: Future<Output = T>,
    {
        let names = self.resources.iter().map(|text| named("the resource", text));
        let resources = match names.collect::<Result<Vec<_>, JobError>>() {
            Ok(resources) => resources,
            Err(why) => return Held::Unusable(why.to_string()),
        };
        if let Err(why) = self.policy.check() {
            return Held::Unusable(why.to_string());
        }
        let plan = lease_plan(resources, self.what, self.policy);
        let body = |run: Run| {
            let held = body(run.lease().clone());
            async move { Ok::<T, Infallible>(held.await) }
        };
        let driven =
            drive::drive(self.semel.engine.clone(), plan, None, body, |_| Ok(serde_json::Value::Null)).await;
        match outcome::of_lease(driven) {
            Outcome::Done(value) | Outcome::DoneNotKept { value, .. } => Held::Released(value),
            Outcome::Busy { resource, held_for, free_in } => Held::Busy { resource, held_for, free_in },
            Outcome::LeaseLost(why) => Held::Lost(why),
            Outcome::Unrecorded { value: Ok(value), why } => Held::NotReleased { value, why },
            Outcome::StoreDown(why) => Held::StoreDown(why),
            Outcome::Unusable(why) | Outcome::NotDue(why) => Held::Unusable(why),
            Outcome::TooLate { slot, .. } => Held::Unusable(format!("it is too late for {slot}")),
            // these are said of an entry, and there is none
            Outcome::AlreadyDone(_) | Outcome::NeedsPerson { .. } | Outcome::Mismatch(_) => {
                Held::Unusable("a lease without a ledger cannot be answered so".to_owned())
            }
            Outcome::TimedOut => Held::Lost("it was held longer than it may be".to_owned()),
            Outcome::Failed(never) | Outcome::Unrecorded { value: Err(never), .. } => match never {},
        }
    }
}
