//! What both kinds of tests write down again and again.

use semel_core::claim::{Ask, Decision, View, claim};
use semel_core::entry::{Ending, Entry, Settle, State};
use semel_core::lease::{Hold, Lease, SeenLease};
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::payload::Fingerprint;
use semel_core::plan::Plan;
use semel_core::policy::{OnLost, Policy};
use semel_core::record::{Seen, Standing, Version};
use semel_core::token::{Grant, Nonce, Token};
use semel_core::work::Work;

pub(crate) const LIVE: Standing = Standing::Live { left_ms: 40 };
pub(crate) const LAPSED: Standing = Standing::Lapsed { for_ms: 7 };

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn work() -> Work {
    Work::once(name("job"))
}

pub(crate) fn owner(pid: i32) -> Owner {
    Owner { host: "h".into(), boot: "b".into(), pidns: 1, pid, start: 1 }
}

pub(crate) fn nonce(n: u8) -> Nonce {
    Nonce::from_bytes([n; 16])
}

pub(crate) fn grant(token: u64, n: u8) -> Grant {
    Grant { token: Token::new(token).unwrap(), nonce: nonce(n) }
}

pub(crate) fn policy(on_lost: OnLost, max_failures: u32) -> Policy {
    Policy { on_lost, max_failures, ..Policy::default() }
}

/// A lease held under this grant.
pub(crate) fn held(grant: Grant, standing: Standing) -> SeenLease {
    let hold = Hold {
        owner: owner(1),
        what: "w".into(),
        since_ms: 0,
        ttl_ms: 60_000,
        lock_delay_ms: 0,
        resting: false,
    };
    let record = Seen { value: Lease { grant, hold: Some(hold) }, version: Version::from(3) };
    SeenLease { record, standing, owner_gone: false }
}

/// A lease that was given back.
pub(crate) fn free(grant: Grant) -> SeenLease {
    let record = Seen { value: Lease { grant, hold: None }, version: Version::from(4) };
    SeenLease { record, standing: Standing::Lapsed { for_ms: 0 }, owner_gone: false }
}

/// What one asks for, by default for `job` on `r`, with nonce 9.
pub(crate) struct Asking {
    pub(crate) work: Work,
    pub(crate) resources: Vec<Name>,
    pub(crate) policy: Policy,
    pub(crate) owner: Owner,
    pub(crate) nonce: Nonce,
    pub(crate) payload: Option<Fingerprint>,
    pub(crate) plan: Option<Plan>,
}

impl Asking {
    pub(crate) fn new() -> Asking {
        Asking {
            work: work(),
            resources: vec![name("r")],
            policy: Policy::default(),
            owner: owner(9),
            nonce: nonce(9),
            payload: None,
            plan: None,
        }
    }

    pub(crate) fn under(policy: Policy) -> Asking {
        Asking { policy, ..Asking::new() }
    }

    pub(crate) fn claim(&self, view: &View) -> Decision {
        claim(
            view,
            &Ask {
                work: Some(&self.work),
                what: "w",
                resources: &self.resources,
                policy: &self.policy,
                owner: &self.owner,
                nonce: self.nonce,
                payload: self.payload.as_ref(),
                command: None,
                plan: self.plan.as_ref(),
                definition: None,
                occurrence: None,
                now_ms: 5,
            },
        )
    }
}

/// What stands there: an entry, and the leases of `r` and `s`.
pub(crate) fn view(entry: Option<Entry>, leases: &[(&str, Option<SeenLease>)]) -> View {
    let entry = entry.map(|value| Seen { value, version: Version::from(2) });
    let leases = leases.iter().map(|(resource, lease)| (name(resource), lease.clone())).collect();
    View { entry, leases, ..View::default() }
}

/// An entry that runs under `r` and grant (1, 1), as its claim would write it.
pub(crate) fn running() -> Entry {
    let asking = Asking { nonce: nonce(1), owner: owner(1), ..Asking::new() };
    match asking.claim(&view(None, &[("r", None)])) {
        Decision::Claim(claim) => claim.intent.unwrap().entry,
        other => panic!("not claimed: {other:?}"),
    }
}

/// The same in another state.
pub(crate) fn entry(state: State) -> Entry {
    Entry { state, ..running() }
}

pub(crate) fn settle(grant: &Grant, ending: Ending) -> Settle<'_> {
    Settle {
        grant,
        ending,
        result: None,
        output: None,
        failed_tries: 0,
        missed_renewals: 0,
        unrenewed_ms: 0,
        now_ms: 6,
    }
}
