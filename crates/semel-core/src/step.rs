//! Steps: the effects inside a run, each with an entry of its own.
//!
//! ```text
//! absent ──claim──▶ running(the run's resource, the run's grant) ──settle──▶ done(output) | failed
//! running, and the run's lease is gone = lost ──▶ policy: hold (the default) → in_doubt │ probe │ retry
//! ```
//!
//! A step has no lease and no clock: it is alive while the run's lease carries the run's grant. Its claim is
//! guarded in the same swap by that lease, live and unchanged, and by the run's own entry, unchanged; so a run that
//! has lost its lease without noticing (a zombie) cannot claim a step that the new holder has not reached yet. The
//! second guard is for works that may run under several resources, on a store whose clock is set back: a lease that
//! had lapsed and was passed over is live again, but its run is not the one on record.
//!
//! An effect is never repeated on a guess: a step that was lost is in doubt unless its user says otherwise.

use crate::claim::{Attempted, First, Guard, Pulse, Stands, View, Write, after_torn, closed, intent, pulse};
use crate::entry::{CommandMark, Entry, State, Terms};
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::owner::Owner;
use crate::policy::OnLost;
use crate::record::{Expect, Seen, Version};
use crate::token::Grant;
use crate::work::Work;

/// The run that a step belongs to.
#[derive(Clone, Copy, Debug)]
pub struct RunsUnder<'a> {
    /// Its work.
    pub work: &'a Work,
    /// The resource that it holds.
    pub resource: &'a Name,
    /// Under this grant.
    pub grant: &'a Grant,
    /// The version of the lease's record, which stays the same until it is given back or taken over.
    pub lease: &'a Version,
    /// The version of the run's entry, which stays the same until the run is settled or taken for lost.
    pub entry: &'a Version,
    /// Who runs it.
    pub owner: &'a Owner,
}

/// What a run asks for one of its steps.
#[derive(Clone, Copy, Debug)]
pub struct StepAsk<'a> {
    /// The step, as a work.
    pub work: &'a Work,
    /// The run that it belongs to.
    pub run: RunsUnder<'a>,
    /// What to do if the last attempt is lost.
    pub on_lost: OnLost,
    /// How long its output and its attempts are kept.
    pub keep_ms: u64,
    /// The command, by its mark.
    pub command: Option<&'a CommandMark>,
    /// Wall clock, for people.
    pub now_ms: u64,
}

/// A step's claim to be written.
#[derive(Clone, Debug)]
pub struct StepClaim {
    /// The intent.
    pub entry: Entry,
    /// What must stand there.
    pub expect: Expect,
    /// What else must still be so: the run's lease first.
    pub guards: Vec<Guard>,
    /// And the run's entry.
    pub stands: Option<Stands>,
    /// What to do first.
    pub first: First,
    /// The attempt before this one may have had its effect.
    pub after_lost: bool,
}

impl StepClaim {
    /// What to write: the guards, then the intent.
    pub fn writes(&self) -> Vec<Write> {
        guarded(&self.guards, self.stands.as_ref(), &self.entry, &self.expect)
    }
}

/// What a run may do with one of its steps.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // short-lived, one per step
pub enum StepDecision {
    /// Look at the lease of this resource too, and ask again.
    LookAt(Name),
    /// Write this claim, then begin.
    Claim(StepClaim),
    /// This very run is at it.
    UnderWay(Entry),
    /// It is done: its output is replayed.
    Done(Entry),
    /// A person is needed.
    Person(Entry),
    /// Write this entry under the guards, then a person is needed.
    Doubt {
        /// What to write.
        entry: Entry,
        /// What must stand there.
        expect: Expect,
        /// What else must still be so.
        guards: Vec<Guard>,
        /// And the run's entry.
        stands: Option<Stands>,
    },
    /// Another run is at it, and alive: this one must be a zombie.
    Elsewhere {
        /// Under the lease of this resource.
        resource: Name,
    },
}

/// What to write, under these guards.
pub fn guarded(guards: &[Guard], stands: Option<&Stands>, entry: &Entry, expect: &Expect) -> Vec<Write> {
    let guards = guards.iter().cloned().map(Write::Guard);
    let stands = stands.into_iter().cloned().map(Write::Stands);
    let entry = Write::Entry { entry: entry.clone(), expect: expect.clone() };
    guards.chain(stands).chain([entry]).collect()
}

/// The run must still be the one on record.
fn run_stands(ask: &StepAsk<'_>) -> Option<Stands> {
    let stands = Stands { work: ask.run.work.clone(), expect: Expect::Version(ask.run.entry.clone()) };
    Some(stands).filter(|_| !mutant::on(Mutant::StepBesideItsRun))
}

/// What may this run do with this step?
pub fn claim(view: &View, ask: &StepAsk<'_>) -> StepDecision {
    let own = Guard { resource: ask.run.resource.clone(), expect: Expect::Live(ask.run.lease.clone()) };
    let mut guards = if mutant::on(Mutant::StepWithoutRunGuard) { Vec::new() } else { vec![own] };
    let Some(seen) = &view.entry else { return take(ask, None, guards, First::Run, false) };
    let entry = &seen.value;
    match &entry.state {
        State::Done { .. } if mutant::on(Mutant::StepDoneRunsAgain) => {
            take(ask, Some(seen), guards, First::Run, false)
        }
        State::Done { .. } => StepDecision::Done(entry.clone()),
        State::InDoubt { .. } if mutant::on(Mutant::StepInDoubtRunsAgain) => {
            take(ask, Some(seen), guards, First::Run, false)
        }
        State::Quarantined | State::InDoubt { .. } => StepDecision::Person(entry.clone()),
        // no step is ever missed: that is said of slots
        State::Missed { .. } | State::Open { torn: false } | State::Failed { torn: false } => {
            take(ask, Some(seen), guards, First::Run, false)
        }
        State::Open { .. } | State::Failed { .. } if mutant::on(Mutant::TornStepRunsAgain) => {
            take(ask, Some(seen), guards, First::Run, false)
        }
        State::Open { torn: true } | State::Failed { torn: true } => {
            again(ask, seen, guards, "its last attempt was stopped in the middle")
        }
        State::Running { grant, .. }
            if grant == ask.run.grant && !mutant::on(Mutant::OwnStepTakenForLost) =>
        {
            StepDecision::UnderWay(entry.clone())
        }
        State::Running { resource, grant } => {
            // the lease that we hold cannot carry another grant: its own guard says so at the write
            if resource != ask.run.resource {
                match pulse(view, resource, grant) {
                    Pulse::LookAt(resource) => return StepDecision::LookAt(resource),
                    Pulse::Alive if mutant::on(Mutant::StepBesideLiveRun) => {}
                    Pulse::Alive => return StepDecision::Elsewhere { resource: resource.clone() },
                    Pulse::Lost(_) if mutant::on(Mutant::StepWithoutLostGuard) => {}
                    Pulse::Lost(guard) => guards.push(guard),
                }
            }
            again(ask, seen, guards, "its last attempt vanished")
        }
    }
}

/// An attempt came before that may have had its effect.
fn again(ask: &StepAsk<'_>, seen: &Seen<Entry>, guards: Vec<Guard>, why: &str) -> StepDecision {
    if mutant::on(Mutant::LostStepRunsAgain) {
        return take(ask, Some(seen), guards, First::Run, true);
    }
    match after_torn(Some(why), ask.on_lost) {
        Ok(first) => take(ask, Some(seen), guards, first, true),
        Err(why) => StepDecision::Doubt {
            entry: closed(&seen.value, State::InDoubt { why }, ask.now_ms),
            expect: Expect::Version(seen.version.clone()),
            guards,
            stands: run_stands(ask),
        },
    }
}

fn take(
    ask: &StepAsk<'_>,
    seen: Option<&Seen<Entry>>,
    guards: Vec<Guard>,
    first: First,
    after_lost: bool,
) -> StepDecision {
    let attempted = Attempted {
        work: ask.work,
        resource: ask.run.resource,
        grant: ask.run.grant,
        owner: ask.run.owner,
        // a step has no cap of its own: its run has one
        terms: Terms { on_lost: ask.on_lost, max_failures: 0, keep_ms: ask.keep_ms, remember_ms: None },
        payload: None,
        command: ask.command,
        plan: None,
        definition: None,
        now_ms: ask.now_ms,
    };
    StepDecision::Claim(StepClaim {
        entry: intent(seen.map(|seen| &seen.value), &attempted),
        expect: seen.map_or(Expect::Absent, |seen| Expect::Version(seen.version.clone())),
        guards,
        stands: run_stands(ask),
        first,
        after_lost,
    })
}
