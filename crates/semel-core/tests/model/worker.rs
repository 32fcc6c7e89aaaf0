//! A worker: what one invocation of Semel does, step by step, with the rules of the crate.
//!
//! ```text
//! idle ──look, decide──▶ sent ──▶ answered ──▶ holding ──finish──▶ sent ──▶ idle
//!           ▲             │ refused, or no answer    │ effect under way, renewal under way
//!           └─ look again ┘                          └ watch run out: only the settle is left
//! ```
//!
//! A worker may pause in every one of these places for as long as it likes. It looks at its own watch before it
//! begins an effect and before it believes the answer to a renewal. What a run with steps does while it holds its
//! lease is in `walk.rs`; what one does that has a second work to do under its lease, in `row.rs`.

use semel_core::entry::{Ending, Entry};
use semel_core::lease::Lease;
use semel_core::owner::Owner;
use semel_core::plan::Plan;
use semel_core::token::{Grant, Nonce};

use super::shared::Shared;
use super::store::Body;
use super::walk::Walk;

/// What kind of worker: which key it is to do (none: it only holds a lease), where, and on which host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    pub key: Option<usize>,
    /// The key that it does next, under the same lease.
    pub then: Option<usize>,
    pub resources: &'static [usize],
    pub host: &'static str,
}

/// The number of an invocation: its nonce, and the pid of its owner.
pub type Run = u8;

/// The number of a worker's next invocation.
pub fn run_of(worker: usize, begun: u8) -> Run {
    u8::try_from(worker * 16 + 1).unwrap() + begun
}

pub fn nonce_of(run: Run) -> Nonce {
    Nonce::from_bytes([run; 16])
}

/// What this run would decide.
pub fn plan_of(run: Run) -> Plan {
    serde_json::from_value(serde_json::json!({ "run": run })).unwrap()
}

pub fn owner_of(host: &str, run: Run) -> Owner {
    Owner { host: host.into(), boot: "boot".into(), pidns: 1, pid: run.into(), start: 0 }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    Claim,
    /// Put a lost attempt before a person.
    Doubt,
    Renew,
    Settle,
    Release,
    Verdict,
    StepClaim,
    /// Put a lost step before a person.
    StepDoubt,
    StepSettle,
}

/// A request on its way to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    /// Whose; none for a person's.
    pub run: Option<Run>,
    pub why: Why,
    /// Under which grant it was sent, if the sender has one.
    pub grant: Option<Grant>,
    /// By which epoch of the store it was decided, if it asks for a grant.
    pub epoch: Option<u8>,
    /// What of it was made, on a store that makes one change after another.
    pub so_far: Progress,
    pub body: Body,
}

/// The changes of a swap that were made, while others are to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Progress {
    /// The version of each.
    pub versions: Vec<i64>,
    /// Ticks since the first of them.
    pub age: u64,
}

/// What a claim will be once it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pledge {
    pub resource: usize,
    pub lease: Shared<Lease>,
    pub entry: Option<Shared<Entry>>,
}

/// The versions that a swap made: of the lease and of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Made {
    pub lease: i64,
    pub entry: i64,
}

/// Where a call to the store stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// It must look first.
    Look,
    /// Decided, and under way to the store.
    Sent { message: Message, pledge: Option<Pledge> },
    /// A claim was written so many ticks ago, and the answer is still under way.
    Answered { pledge: Pledge, made: Made, age: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// On the way to a lease; `unanswered` is the age of the first claim that had no answer.
    Claiming {
        step: Step,
        unanswered: Option<u64>,
    },
    Holding(Held),
    /// The work has stopped; the outcome goes on record. `applied`: it did already (the model knows, not the worker).
    Ending {
        resource: usize,
        grant: Grant,
        ending: Ending,
        step: Step,
        applied: bool,
    },
    /// Between two works: the lease is kept.
    Between,
    /// What was kept is given back.
    LettingGo {
        resource: usize,
        grant: Grant,
        step: Step,
    },
}

/// A lease that was not given back: another work follows under it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kept {
    pub resource: usize,
    pub lease: Shared<Lease>,
    pub lease_version: i64,
    /// Ticks until its holder stops trusting it. Nothing is begun on it before the next claim.
    pub trust: u64,
}

/// A lease that is believed to be ours.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub resource: usize,
    pub lease: Shared<Lease>,
    pub lease_version: i64,
    pub entry: Option<(Shared<Entry>, i64)>,
    /// Ticks until its holder stops trusting it, by its own watch.
    pub trust: u64,
    pub effect: Effect,
    /// The steps, in a search that has them; there is no other effect then.
    pub walk: Option<Walk>,
    pub beat: Option<Beat>,
}

impl Held {
    pub fn grant(&self) -> Grant {
        self.lease.grant
    }
}

/// The one effect of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    NotBegun,
    UnderWay,
    Accepted,
    Refused,
}

/// A renewal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Beat {
    Sent(Message),
    /// Granted so many ticks ago, and the answer is still under way.
    Granted {
        age: u64,
    },
}

/// An invocation under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Active {
    pub run: Run,
    /// It is at the second work of its row.
    pub second: bool,
    pub kept: Option<Kept>,
    pub phase: Phase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    /// Invocations that left a trace.
    pub begun: u8,
    pub active: Option<Active>,
}

impl Worker {
    /// The invocation is over. One that was never heard of is as if it had not been.
    pub fn end(&mut self) {
        let ended = self.active.take().map(|active| active.phase);
        if !matches!(ended, None | Some(Phase::Claiming { unanswered: None, .. })) {
            self.begun += 1;
        }
    }

    /// The process is no more; what it sent may still arrive.
    pub fn crash(&mut self) {
        if self.active.take().is_some() {
            self.begun += 1;
        }
    }

    /// The key that it is at.
    pub fn key(&self, role: &Role) -> Option<usize> {
        let second = self.active.as_ref().is_some_and(|active| active.second);
        if second { role.then } else { role.key }
    }

    pub fn kept(&self) -> Option<&Kept> {
        self.active.as_ref()?.kept.as_ref()
    }

    /// A work is over. Where its lease is kept, the next one follows.
    pub fn conclude(&mut self) {
        match &mut self.active {
            Some(active) if active.kept.is_some() => {
                (active.second, active.phase) = (true, Phase::Between);
            }
            _ => self.end(),
        }
    }

    pub fn held(&self) -> Option<&Held> {
        match &self.active.as_ref()?.phase {
            Phase::Holding(held) => Some(held),
            _ => None,
        }
    }

    pub fn held_mut(&mut self) -> Option<&mut Held> {
        match &mut self.active.as_mut()?.phase {
            Phase::Holding(held) => Some(held),
            _ => None,
        }
    }

    pub fn walk(&self) -> Option<&Walk> {
        self.held()?.walk.as_ref()
    }

    pub fn walk_mut(&mut self) -> Option<&mut Walk> {
        self.held_mut()?.walk.as_mut()
    }

    pub fn step(&self) -> Option<&Step> {
        match &self.active.as_ref()?.phase {
            Phase::Claiming { step, .. } | Phase::Ending { step, .. } | Phase::LettingGo { step, .. } => {
                Some(step)
            }
            Phase::Holding(_) | Phase::Between => None,
        }
    }

    pub fn step_mut(&mut self) -> Option<&mut Step> {
        match &mut self.active.as_mut()?.phase {
            Phase::Claiming { step, .. } | Phase::Ending { step, .. } | Phase::LettingGo { step, .. } => {
                Some(step)
            }
            Phase::Holding(_) | Phase::Between => None,
        }
    }

    /// A tick on its own watch. Ages past the ttl are all the same: no trust is left.
    pub fn tick(&mut self, ttl: u64) {
        let older = |age: &mut u64| *age = (*age + 1).min(ttl);
        let Some(active) = &mut self.active else { return };
        if let Some(kept) = &mut active.kept {
            kept.trust = kept.trust.saturating_sub(1);
        }
        match &mut active.phase {
            Phase::Holding(held) => {
                held.trust = held.trust.saturating_sub(1);
                if let Some(Beat::Granted { age }) = &mut held.beat {
                    older(age);
                }
            }
            Phase::Claiming { step, unanswered } => {
                unanswered.as_mut().map(older);
                match step {
                    Step::Answered { age, .. } => older(age),
                    Step::Sent { message, .. } if !message.so_far.versions.is_empty() => {
                        older(&mut message.so_far.age);
                    }
                    _ => {}
                }
            }
            Phase::Ending { .. } | Phase::Between | Phase::LettingGo { .. } => {}
        }
    }

    /// What it has sent and awaits, when it stops awaiting it.
    pub fn abandoned(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        if let Some(Step::Sent { message, .. }) = self.step() {
            messages.push(message.clone());
        }
        messages.extend(self.walk().and_then(Walk::sent).cloned());
        if let Some(Beat::Sent(message)) = self.held().and_then(|held| held.beat.as_ref()) {
            messages.push(message.clone());
        }
        messages
    }
}
