//! Items: the lines of a batch, each with an entry of its own.
//!
//! ```text
//! absent ──claim──▶ running(the runner's resource, the runner's grant) ──settle──▶ done | failed(n) | open
//! failed(n), n < cap ──claim by a later runner──▶ running        failed(n), n = cap ──▶ quarantined
//! running, and its runner's lease is gone = lost ──▶ policy: retry (the default) │ hold → in_doubt │ probe
//! claimed and not begun ──give back──▶ as it was before
//! ```
//!
//! An item has no lease and no clock: it is alive while its runner's lease carries its runner's grant. So a runner has
//! one lease and one heartbeat, however many items it has under way. A claim is guarded in the same swap by that
//! lease, live and unchanged; and where it takes over from another runner, by that one's lease as it was seen.
//!
//! What this runner has met once in its input it does not do again: a second item of the same key is a repetition,
//! whatever became of the first. Only a later runner, under a grant of its own, tries what failed.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::claim::{Attempted, First, Guard, Pulse, View, Write, after_torn, closed, intent, pulse};
use crate::definition::Definition;
use crate::entry::{CommandMark, Ending, Entry, State, Terms, is_capped};
use crate::name::Name;
use crate::owner::Owner;
use crate::payload::{FieldChange, Fingerprint};
use crate::record::{Expect, FORMAT, Seen, Version};
use crate::token::{Grant, Nonce, Token};
use crate::work::Work;

/// The runner that an item runs under.
#[derive(Clone, Copy, Debug)]
pub struct Under<'a> {
    /// The resource that it holds.
    pub resource: &'a Name,
    /// Under this grant.
    pub grant: &'a Grant,
    /// The version of the lease's record, which stays the same until it is given back or taken over.
    pub lease: &'a Version,
    /// Who runs it.
    pub owner: &'a Owner,
}

/// What a runner asks for one of its items.
#[derive(Clone, Copy, Debug)]
pub struct ItemAsk<'a> {
    /// The item, as a work.
    pub work: &'a Work,
    /// Who asks.
    pub runner: Under<'a>,
    /// What to do if the last attempt is lost, how many failures are too many, and how long what is kept.
    pub terms: &'a Terms,
    /// The payload to bind to the key.
    pub payload: Option<&'a Fingerprint>,
    /// The command, by its mark.
    pub command: Option<&'a CommandMark>,
    /// How the job is defined.
    pub definition: Option<&'a Definition>,
    /// Wall clock, for people.
    pub now_ms: u64,
}

/// An item's claim to be written.
#[derive(Clone, Debug)]
pub struct ItemClaim {
    /// The intent.
    pub entry: Entry,
    /// What must stand there.
    pub expect: Expect,
    /// What else must still be so: the runner's lease first.
    pub guards: Vec<Guard>,
    /// What to do first.
    pub first: First,
    /// The attempt before this one may have had its effect.
    pub after_lost: bool,
}

impl ItemClaim {
    /// What to write: the guards, then the intent.
    pub fn writes(&self) -> Vec<Write> {
        crate::step::guarded(&self.guards, None, &self.entry, &self.expect)
    }
}

/// What a runner may do with an item.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // short-lived, one per item
pub enum ItemDecision {
    /// Look at the lease of this resource too, and ask again.
    LookAt(Name),
    /// Write this claim, then begin.
    Claim(ItemClaim),
    /// This very runner is at it.
    Mine(Entry),
    /// This very runner was at it: its input has the key twice.
    Repeated(Entry),
    /// It is done.
    Done(Entry),
    /// Another runner is at it, and alive.
    Busy {
        /// Under the lease of this resource.
        resource: Name,
    },
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
}

/// What may this runner do with this item?
pub fn claim(view: &View, ask: &ItemAsk<'_>) -> ItemDecision {
    let mut guards = vec![own_guard(ask)];
    let Some(seen) = &view.entry else { return take(ask, None, guards, First::Run, false) };
    let entry = &seen.value;
    if let (Some(bound), Some(offered)) = (&entry.payload, ask.payload) {
        let changes = bound.diff(offered);
        if !changes.is_empty() {
            return ItemDecision::Mismatch { changes, entry: entry.clone() };
        }
    }
    let was_here = entry.last_attempt().is_some_and(|last| last.is_under(ask.runner.grant));
    match &entry.state {
        State::Running { grant, .. } if grant == ask.runner.grant => ItemDecision::Mine(entry.clone()),
        State::Running { resource, grant } => {
            // the lease that we hold cannot carry another grant: its own guard says so at the write
            if resource != ask.runner.resource {
                match pulse(view, resource, grant) {
                    Pulse::LookAt(resource) => return ItemDecision::LookAt(resource),
                    Pulse::Alive => return ItemDecision::Busy { resource: resource.clone() },
                    Pulse::Lost(guard) => guards.push(guard),
                }
            }
            again(ask, seen, guards, Some("the last attempt vanished"))
        }
        _ if was_here => ItemDecision::Repeated(entry.clone()),
        State::Done { .. } => ItemDecision::Done(entry.clone()),
        State::Quarantined | State::InDoubt { .. } => ItemDecision::Person(entry.clone()),
        // no item is ever missed: that is said of slots
        State::Missed { .. } | State::Open { torn: false } => {
            take(ask, Some(seen), guards, First::Run, false)
        }
        State::Failed { torn: false } => again(ask, seen, guards, None),
        State::Open { torn: true } | State::Failed { torn: true } => {
            again(ask, seen, guards, Some("the last attempt was stopped in the middle"))
        }
    }
}

fn own_guard(ask: &ItemAsk<'_>) -> Guard {
    Guard { resource: ask.runner.resource.clone(), expect: Expect::Live(ask.runner.lease.clone()) }
}

/// An attempt came before and did not succeed; `torn` says how it may have had its effect all the same.
fn again(ask: &ItemAsk<'_>, seen: &Seen<Entry>, guards: Vec<Guard>, torn: Option<&str>) -> ItemDecision {
    let entry = &seen.value;
    let state = match after_torn(torn, ask.terms.on_lost) {
        _ if is_capped(entry.failures, ask.terms.max_failures) => State::Quarantined,
        Ok(first) => return take(ask, Some(seen), guards, first, torn.is_some()),
        Err(why) => State::InDoubt { why },
    };
    let expect = Expect::Version(seen.version.clone());
    ItemDecision::Doubt { entry: closed(entry, state, ask.now_ms), expect, guards }
}

fn take(
    ask: &ItemAsk<'_>,
    seen: Option<&Seen<Entry>>,
    guards: Vec<Guard>,
    first: First,
    after_lost: bool,
) -> ItemDecision {
    let attempted = Attempted {
        work: ask.work,
        resource: ask.runner.resource,
        grant: ask.runner.grant,
        owner: ask.runner.owner,
        terms: ask.terms.clone(),
        payload: ask.payload,
        command: ask.command,
        plan: None,
        definition: ask.definition,
        now_ms: ask.now_ms,
    };
    ItemDecision::Claim(ItemClaim {
        entry: intent(seen.map(|seen| &seen.value), &attempted),
        expect: seen.map_or(Expect::Absent, |seen| Expect::Version(seen.version.clone())),
        guards,
        first,
        after_lost,
    })
}

/// The entry of an item that was claimed under this grant and surely not begun: as it was before. None if another
/// attempt is on record.
pub fn give_back(claimed: &Entry, grant: &Grant, after_lost: bool, now_ms: u64) -> Option<Entry> {
    match &claimed.state {
        State::Running { grant: running, .. } if running == grant => {}
        _ => return None,
    }
    let mut next = claimed.clone();
    let begun = next.log.pop_if(|last| last.is_under(grant) && last.ending == Ending::None)?;
    next.attempts = begun.n.saturating_sub(1);
    next.state = match next.failures {
        0 => State::Open { torn: after_lost },
        _ => State::Failed { torn: after_lost },
    };
    if next.attempts == 0 {
        // nothing was ever done with it: it may be put right before it is given again
        next.payload = None;
    }
    next.changed_ms = now_ms;
    Some(next)
}

/// What can be told of an item by a glance at its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// It is done, by an earlier run or another runner.
    Done,
    /// It is done, by this very runner.
    Repeated,
    /// All of it must be read.
    Look,
}

#[derive(Deserialize)]
struct Brief<'a, P> {
    v: u32,
    #[serde(borrow)]
    state: &'a str,
    #[serde(default = "Vec::new")]
    log: Vec<BriefAttempt>,
    #[serde(default = "no_payload")]
    payload: Option<P>,
}

#[derive(Deserialize)]
struct BriefAttempt {
    token: Token,
    nonce: Nonce,
}

fn no_payload<P>() -> Option<P> {
    None
}

/// Is the item whose record holds these bytes done? Answers as [`claim`] would, without reading all of it: a batch that
/// is resumed asks this of every item, and most are done.
pub fn glance(record: &[u8], payload: Option<&Fingerprint>, grant: &Grant) -> Glance {
    match payload {
        None => glance_at::<IgnoredAny>(record, grant, |_| true),
        Some(offered) => glance_at::<Fingerprint>(record, grant, |bound| bound.diff(offered).is_empty()),
    }
}

fn glance_at<'a, P: Deserialize<'a>>(record: &'a [u8], grant: &Grant, fits: impl Fn(&P) -> bool) -> Glance {
    let Ok(brief) = serde_json::from_slice::<Brief<'a, P>>(record) else { return Glance::Look };
    if brief.v != FORMAT || brief.state != "done" || !brief.payload.as_ref().is_none_or(fits) {
        return Glance::Look;
    }
    let ours = brief.log.last().is_some_and(|last| last.token == grant.token && last.nonce == grant.nonce);
    if ours { Glance::Repeated } else { Glance::Done }
}
