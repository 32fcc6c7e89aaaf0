//! Both machines at once: what a run may do with what stands in the store.
//!
//! [`claim`] looks at an entry and at the leases that matter for it, and answers with what to write or with what
//! to say. The order of what it writes matters on stores that cannot write two records at once: the lease
//! before the intent, and, in [`conclude`], the outcome before the release.
//!
//! Who may go on is decided here and nowhere else.

use serde::{Deserialize, Serialize};

use crate::alarm::Alarm;
use crate::calendar::{self, Calendar, Occurrence};
pub use crate::conclusion::{After, Conclusion, conclude};
use crate::definition::Definition;
use crate::entry::{self, Attempt, CommandMark, Ending, Entry, Say, State, Terms, Verdict, is_capped};
use crate::lease::{self, Acquire, Acquired, Before, Held, Lease, SeenLease, Takeable};
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::owner::Owner;
use crate::payload::{FieldChange, Fingerprint};
use crate::plan::Plan;
use crate::policy::{OnLost, Policy};
use crate::record::{Expect, Seen};
use crate::token::{Grant, Nonce, TokenError};
use crate::work::Work;

/// What a run asks for.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The intent; `None` for a lease without a ledger.
    pub work: Option<&'a Work>,
    /// What the lease is held for, in words.
    pub what: &'a str,
    /// The resources, in the order of preference: the first that is free is taken.
    pub resources: &'a [Name],
    /// The policies, checked.
    pub policy: &'a Policy,
    /// Who asks.
    pub owner: &'a Owner,
    /// Drawn once for this claim.
    pub nonce: Nonce,
    /// The payload to bind to the key.
    pub payload: Option<&'a Fingerprint>,
    /// The command, by its mark.
    pub command: Option<&'a CommandMark>,
    /// The plan to pin, unless one is pinned.
    pub plan: Option<&'a Plan>,
    /// How the job is defined.
    pub definition: Option<&'a Definition>,
    /// The occurrence of a schedule that it is for.
    pub occurrence: Option<&'a Occurrence>,
    /// Wall clock, for people.
    pub now_ms: u64,
}

/// What stands in the store, as far as it was looked at.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The entry, if there is one.
    pub entry: Option<Seen<Entry>>,
    /// The calendar of its schedule, if there is one.
    pub calendar: Option<Seen<Calendar>>,
    /// The alarm of its job, if there is one.
    pub alarm: Option<Seen<Alarm>>,
    /// The leases that were looked at; `None` for a resource that never had one.
    pub leases: Vec<(Name, Option<SeenLease>)>,
    /// The least token that the store allows.
    pub token_floor: u64,
}

impl View {
    /// The lease of a resource: `None` if it was not looked at.
    pub fn lease(&self, resource: &Name) -> Option<Option<&SeenLease>> {
        self.leases.iter().find(|(name, _)| name == resource).map(|(_, seen)| seen.as_ref())
    }
}

/// A guard: this resource's lease must still be as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Which.
    pub resource: Name,
    /// How it was seen.
    pub expect: Expect,
}

/// A guard of an entry: the entry of this work must still be as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stands {
    /// Which.
    pub work: Work,
    /// How it was seen.
    pub expect: Expect,
}

/// What the holder of a fresh claim does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum First {
    /// Run the command.
    Run,
    /// Ask the world whether an earlier attempt had its effect.
    Probe,
}

/// The record that says: this attempt is about to begin.
#[derive(Clone, Debug)]
pub struct Intent {
    /// What to write.
    pub entry: Entry,
    /// What must stand there.
    pub expect: Expect,
}

/// A claim to be written: the lease, then the intent, under the guards.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The resource that is taken.
    pub resource: Name,
    /// Its lease: what to write and what must stand there.
    pub lease: Takeable,
    /// The intent; `None` for a lease without a ledger.
    pub intent: Option<Intent>,
    /// The calendar of its schedule, if this claim moves it on.
    pub calendar: Option<(Calendar, Expect)>,
    /// What else must still be so.
    pub guards: Vec<Guard>,
    /// What to do first.
    pub first: First,
    /// The attempt that was lost before this one, if one was.
    pub after_lost: bool,
}

/// One write of a swap, in the order in which a store must make them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // two or three at a time
pub enum Write {
    /// Nothing is written, but this lease must still be as it was seen.
    Guard(Guard),
    /// Nothing is written, but this entry must still be as it was seen.
    Stands(Stands),
    /// A resource's lease, its clock started with the ttl if it has one.
    Lease {
        /// Which.
        resource: Name,
        /// What.
        lease: Lease,
        /// In place of what.
        expect: Expect,
        /// Its clock.
        ttl_ms: Option<u64>,
    },
    /// An entry.
    Entry {
        /// What.
        entry: Entry,
        /// In place of what.
        expect: Expect,
    },
    /// The calendar of a schedule.
    Calendar {
        /// What.
        calendar: Calendar,
        /// In place of what.
        expect: Expect,
    },
    /// The alarm of a job, or of the check.
    Alarm {
        /// What.
        alarm: Alarm,
        /// In place of what.
        expect: Expect,
    },
}

/// These writes with an alarm that tells of them: behind the guards, and before all else. On a store that makes one
/// change after another, an alarm that comes first may tell of what was then not written, which a person finds out; one
/// that comes last may be lost, which nobody does.
pub fn with_alarm(mut writes: Vec<Write>, alarm: Option<Write>) -> Vec<Write> {
    let is_guard = |write: &&Write| matches!(write, Write::Guard(_) | Write::Stands(_));
    let at = writes.iter().take_while(is_guard).count();
    writes.splice(at..at, alarm);
    writes
}

impl Claim {
    /// What to write: the guards, the lease, and only then the intent. The calendar comes last: one that lags behind
    /// its entries costs a look, one that runs ahead would hide a slot.
    pub fn writes(&self) -> Vec<Write> {
        let mut writes: Vec<Write> = self.guards.iter().cloned().map(Write::Guard).collect();
        // our own grant of a lost reply is written again too: its clock must not start before this request
        let Takeable { lease, expect, .. } = &self.lease;
        let ttl_ms = lease.hold.as_ref().map(|hold| hold.ttl_ms);
        let (resource, lease, expect) = (self.resource.clone(), lease.clone(), expect.clone());
        writes.push(match self.lease.before {
            Before::Ours if mutant::on(Mutant::OwnGrantKeepsItsClock) => {
                Write::Guard(Guard { resource, expect })
            }
            _ => Write::Lease { resource, lease, expect, ttl_ms },
        });
        let intent = self.intent.iter().filter(|_| !mutant::on(Mutant::ClaimWithoutIntent));
        writes.extend(
            intent.map(|Intent { entry, expect }| Write::Entry {
                entry: entry.clone(),
                expect: expect.clone(),
            }),
        );
        let calendar = self.calendar.iter().cloned();
        let calendar = calendar.map(|(calendar, expect)| Write::Calendar { calendar, expect });
        let at = if mutant::on(Mutant::CalendarFirst) { 0 } else { writes.len() };
        writes.splice(at..at, calendar);
        writes
    }

    /// The grant that this claim takes.
    pub fn grant(&self) -> Grant {
        self.lease.lease.grant
    }

    /// Whether a plan could still be pinned with it.
    pub fn takes_a_plan(&self) -> bool {
        self.intent.as_ref().is_some_and(|intent| intent.entry.plan.is_none())
    }

    /// The number of the attempt that it begins.
    pub fn attempt(&self) -> u32 {
        self.intent.as_ref().map_or(1, |intent| intent.entry.attempts)
    }
}

/// Why a run yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The resource that is held, the first one asked for.
    pub resource: Name,
    /// Who holds it and for how long.
    pub held: Held,
    /// It is this very work that is under way.
    pub same_work: bool,
}

/// What a run may do.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // short-lived, one per claim
pub enum Decision {
    /// Look at the lease of this resource too, and ask again.
    LookAt(Name),
    /// Write this claim, then begin.
    Claim(Claim),
    /// The claim that this one sent before was written and its reply lost: begin as it said.
    Claimed,
    /// It is done: there is nothing to do.
    Done(Entry),
    /// Somebody else is at it.
    Busy(Busy),
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
    },
    /// The key is bound to another payload.
    Mismatch {
        /// What differs.
        changes: Vec<FieldChange>,
        /// What became of the first.
        entry: Entry,
    },
    /// The tokens of this resource are used up.
    UsedUp(TokenError),
    /// No resource was asked for.
    NoResource,
}

/// Is the attempt that an entry records as running alive?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// Its lease is live and carries its grant.
    Alive,
    /// Its lease is gone; the guard says how that was seen.
    Lost(Guard),
    /// The lease must be looked at first.
    LookAt(Name),
}

/// Is the attempt under this grant alive?
pub fn pulse(view: &View, resource: &Name, grant: &Grant) -> Pulse {
    let Some(seen) = view.lease(resource) else { return Pulse::LookAt(resource.clone()) };
    let guard = |expect| Pulse::Lost(Guard { resource: resource.clone(), expect });
    match seen {
        None => guard(Expect::Absent),
        Some(seen) if seen.carries(grant) => Pulse::Alive,
        Some(seen) if mutant::on(Mutant::AliveByLeaseAlone) && seen.is_held() => Pulse::Alive,
        Some(seen) => {
            let version = seen.record.version.clone();
            // a lapse could be undone by a store's clock that is set back; a newer grant or a gone owner cannot
            let lapsed =
                seen.record.value.grant == *grant && !seen.owner_gone && seen.record.value.hold.is_some();
            let lapsed = lapsed && !seen.is_held() && !mutant::on(Mutant::LapseGuardedByVersion);
            guard(if lapsed { Expect::Lapsed(version) } else { Expect::Version(version) })
        }
    }
}

/// What may this run do?
pub fn claim(view: &View, ask: &Ask<'_>) -> Decision {
    let Some(seen) = &view.entry else { return take(view, ask, None, Vec::new(), First::Run, None) };
    let entry = &seen.value;
    if let Some(bound) = &entry.payload
        && let Some(offered) = ask.payload
    {
        let changes = bound.diff(offered);
        if !changes.is_empty() {
            return Decision::Mismatch { changes, entry: entry.clone() };
        }
    }
    match &entry.state {
        State::Done { .. } if mutant::on(Mutant::ClaimLeavesDone) => {
            take(view, ask, Some(seen), Vec::new(), First::Run, None)
        }
        State::Done { .. } => Decision::Done(entry.clone()),
        State::InDoubt { .. } if mutant::on(Mutant::InDoubtRunsAgain) => {
            take(view, ask, Some(seen), Vec::new(), First::Run, None)
        }
        State::Quarantined | State::InDoubt { .. } => Decision::Person(entry.clone()),
        State::Open { torn: false } | State::Missed { .. } => {
            take(view, ask, Some(seen), Vec::new(), First::Run, None)
        }
        State::Failed { torn } if !torn => again(view, ask, seen, Vec::new(), None),
        State::Open { .. } | State::Failed { .. } => {
            again(view, ask, seen, Vec::new(), Some("the last attempt was stopped in the middle"))
        }
        State::Running { resource, grant } => match pulse(view, resource, grant) {
            Pulse::LookAt(resource) => Decision::LookAt(resource),
            Pulse::Alive if grant.nonce == ask.nonce => Decision::Claimed,
            Pulse::Alive if mutant::on(Mutant::ClaimIgnoresLiveRun) => {
                take(view, ask, Some(seen), Vec::new(), First::Run, None)
            }
            Pulse::Alive => busy_with_itself(view, resource, entry),
            Pulse::Lost(guard) => again(view, ask, seen, vec![guard], Some("the last attempt vanished")),
        },
    }
}

/// An attempt came before and did not succeed; `torn` says how it may have had its effect all the same.
fn again(view: &View, ask: &Ask<'_>, seen: &Seen<Entry>, guards: Vec<Guard>, torn: Option<&str>) -> Decision {
    let entry = &seen.value;
    let always = entry.work.is_always();
    if !always && is_capped(entry.failures, ask.policy.max_failures) {
        let next = closed(entry, State::Quarantined, ask.now_ms);
        return Decision::Doubt { entry: next, expect: Expect::Version(seen.version.clone()), guards };
    }
    let first = match after_torn(torn.filter(|_| !always), ask.policy.on_lost) {
        Ok(first) => first,
        Err(why) => {
            let next = closed(entry, State::InDoubt { why }, ask.now_ms);
            return Decision::Doubt { entry: next, expect: Expect::Version(seen.version.clone()), guards };
        }
    };
    take(view, ask, Some(seen), guards, first, torn)
}

/// What to do first after an attempt that may have had its effect (`torn` says how); or why that is for a person.
pub(crate) fn after_torn(torn: Option<&str>, on_lost: OnLost) -> Result<First, String> {
    match (torn, on_lost) {
        (None, _) | (_, OnLost::Retry) => Ok(First::Run),
        (Some(_), OnLost::Probe) => Ok(First::Probe),
        (Some(why), OnLost::Hold) => Err(format!("{why}, and the policy is to ask a person")),
    }
}

pub(crate) fn closed(entry: &Entry, state: State, now_ms: u64) -> Entry {
    let mut next = entry.clone();
    next.state = state;
    next.changed_ms = now_ms;
    mark_vanished(&mut next);
    next
}

fn mark_vanished(entry: &mut Entry) {
    if let Some(attempt) = entry.log.last_mut().filter(|attempt| attempt.ending == Ending::None) {
        attempt.ending = Ending::Vanished;
    }
}

/// The attempt that this entry records is alive: who is at it?
pub(crate) fn busy_with_itself(view: &View, resource: &Name, entry: &Entry) -> Decision {
    let lease = view.lease(resource).flatten();
    let held = lease.and_then(|seen| {
        let hold = seen.record.value.hold.clone()?;
        let wait_ms = match seen.standing {
            crate::record::Standing::Live { left_ms } => left_ms,
            crate::record::Standing::Lapsed { .. } => 0,
        };
        Some(Held { hold, token: seen.record.value.grant.token, wait_ms, draining: false })
    });
    match held {
        Some(held) => Decision::Busy(Busy { resource: resource.clone(), held, same_work: true }),
        // alive means held; were it not, a person should look rather than the work be repeated
        None => Decision::Person(entry.clone()),
    }
}

fn acquire_for<'a>(ask: &Ask<'a>, token_floor: u64) -> Acquire<'a> {
    Acquire {
        owner: ask.owner,
        what: ask.what,
        nonce: ask.nonce,
        token_floor,
        ttl_ms: ask.policy.ttl_ms,
        lock_delay_ms: ask.policy.lock_delay_ms,
        now_ms: ask.now_ms,
    }
}

/// Take the first resource that is free, with the intent.
fn take(
    view: &View,
    ask: &Ask<'_>,
    entry: Option<&Seen<Entry>>,
    guards: Vec<Guard>,
    first: First,
    torn: Option<&str>,
) -> Decision {
    let acquire = acquire_for(ask, view.token_floor);
    let mut busy = None;
    for resource in ask.resources {
        let Some(seen) = view.lease(resource) else { return Decision::LookAt(resource.clone()) };
        match lease::acquire(seen, &acquire) {
            Acquired::Take(lease) => {
                let entry_expect = entry.map_or(Expect::Absent, |seen| Expect::Version(seen.version.clone()));
                // the lease that is taken is checked by its own write
                let guards = guards
                    .into_iter()
                    .filter(|guard| guard.resource != *resource && !mutant::on(Mutant::ClaimWithoutGuards))
                    .collect();
                let intent = ask.work.map(|work| Intent {
                    entry: intent(
                        entry.map(|seen| &seen.value),
                        &attempted(ask, work, resource, &lease.lease),
                    ),
                    expect: entry_expect,
                });
                let after_lost = torn.is_some();
                let moved_on = |(work, occurrence)| {
                    calendar::advance(view.calendar.as_ref(), work, occurrence, ask.now_ms)
                };
                return Decision::Claim(Claim {
                    resource: resource.clone(),
                    lease,
                    intent,
                    calendar: ask.work.zip(ask.occurrence).and_then(moved_on),
                    guards,
                    first,
                    after_lost,
                });
            }
            Acquired::Held(held) => {
                // the one that is free soonest is the one to wait for
                let soonest =
                    busy.as_ref().is_none_or(|(_, first): &(Name, Held)| held.wait_ms < first.wait_ms);
                if soonest {
                    busy = Some((resource.clone(), held));
                }
            }
            Acquired::UsedUp(why) => return Decision::UsedUp(why),
        }
    }
    match busy {
        Some((resource, held)) => Decision::Busy(Busy { resource, held, same_work: false }),
        None => Decision::NoResource,
    }
}

/// An attempt that is about to begin, of a run or of a step.
pub(crate) struct Attempted<'a> {
    pub(crate) work: &'a Work,
    pub(crate) resource: &'a Name,
    pub(crate) grant: &'a Grant,
    pub(crate) owner: &'a Owner,
    pub(crate) terms: Terms,
    pub(crate) payload: Option<&'a Fingerprint>,
    pub(crate) command: Option<&'a CommandMark>,
    pub(crate) plan: Option<&'a Plan>,
    pub(crate) definition: Option<&'a Definition>,
    pub(crate) now_ms: u64,
}

fn attempted<'a>(ask: &Ask<'a>, work: &'a Work, resource: &'a Name, lease: &'a Lease) -> Attempted<'a> {
    let terms = Terms::of(ask.policy);
    Attempted {
        work,
        resource,
        grant: &lease.grant,
        owner: ask.owner,
        terms,
        payload: ask.payload,
        command: ask.command,
        plan: ask.plan,
        definition: ask.definition,
        now_ms: ask.now_ms,
    }
}

/// The entry that says: this attempt is about to begin.
pub(crate) fn intent(before: Option<&Entry>, ask: &Attempted<'_>) -> Entry {
    let mut next = before.cloned().unwrap_or_else(|| {
        Entry::new(ask.work.clone(), State::Open { torn: false }, ask.terms.clone(), ask.now_ms)
    });
    mark_vanished(&mut next);
    next.push_attempt(Attempt {
        n: next.attempts.saturating_add(1),
        token: ask.grant.token,
        nonce: ask.grant.nonce,
        resource: ask.resource.clone(),
        owner: ask.owner.clone(),
        command: ask.command.map(|mark| mark.digest.clone()),
        definition: ask.definition.map(|definition| definition.digest.clone()),
        started_ms: ask.now_ms,
        ended_ms: None,
        missed_renewals: 0,
        unrenewed_ms: 0,
        ending: Ending::None,
    });
    next.state = State::Running { resource: ask.resource.clone(), grant: *ask.grant };
    next.changed_ms = ask.now_ms;
    next.terms = ask.terms.clone();
    next.payload = next.payload.or_else(|| ask.payload.cloned());
    next.command = ask.command.cloned().or(next.command);
    next.plan = match next.plan {
        Some(_) if mutant::on(Mutant::PlanMovesOn) => ask.plan.cloned(),
        Some(pinned) => Some(pinned),
        None => ask.plan.cloned(),
    };
    if let Some(definition) = ask.definition {
        next.define(definition);
    }
    next
}

/// Why a verdict cannot be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Look at the lease of this resource too, and ask again.
    LookAt(Name),
    /// It is under way.
    Running {
        /// Under this resource's lease.
        resource: Name,
    },
    /// It stands so already.
    Already,
    /// A work of `--always` is never done.
    NeverDone,
}

/// A person's verdict: what to write under which guards.
pub fn verdict(
    view: &View,
    seen: &Seen<Entry>,
    verdict: Verdict,
    result: Option<serde_json::Value>,
) -> Result<(Entry, Expect, Vec<Guard>), Refusal> {
    let mut guards = Vec::new();
    if seen.value.work.is_always() && verdict.said == Say::Done {
        return Err(Refusal::NeverDone);
    }
    match (&seen.value.state, verdict.said) {
        (State::Running { resource, grant }, _) => match pulse(view, resource, grant) {
            Pulse::LookAt(resource) => return Err(Refusal::LookAt(resource)),
            Pulse::Alive if mutant::on(Mutant::VerdictOverLiveRun) => {}
            Pulse::Alive => return Err(Refusal::Running { resource: resource.clone() }),
            Pulse::Lost(guard) => guards.push(guard),
        },
        (State::Done { .. }, Say::Done) | (State::Open { torn: false }, Say::NotDone | Say::Retry) => {
            return Err(Refusal::Already);
        }
        _ => {}
    }
    let next = entry::judged(&seen.value, verdict, result);
    Ok((next, Expect::Version(seen.version.clone()), guards))
}
