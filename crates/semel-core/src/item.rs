//! Items: the lines of a batch, each with an entry of its own.
//!
//! ```text
//! absent ──claim──▶ running(resource, grant: the runner's, or the item's own) ──settle──▶ done | failed(n) | open
//! failed(n), n < cap ──claim by a later runner──▶ running        failed(n), n = cap ──▶ quarantined
//! running, and its runner's lease is gone = lost ──▶ policy: retry (the default) │ hold → in_doubt │ probe
//! claimed and not begun ──give back──▶ as it was before
//! ```
//!
//! An item has no lease and no clock: it is alive while its runner's lease carries its runner's grant. So a runner has
//! one lease and one heartbeat, however many items it has under way. A claim is guarded in the same swap by that
//! lease, live and unchanged; and where it takes over from another runner, by that one's lease as it was seen.
//!
//! An item may name a resource of its own. Then it has a lease of its own on top: taken by the same swap as its claim,
//! given back by the same swap as its outcome, renewed by the runner's one heartbeat. Its record names that resource
//! and that grant, and it is alive while *that* lease carries it: whoever wants the resource next has no business with
//! the runner. Its nonce is made from the runner's and the item's key, so that a runner knows its own attempts, also
//! those whose reply was lost.
//!
//! What this runner has met once in its input it does not do again: a second item of the same key is a repetition,
//! whatever became of the first. Only a later runner, under a grant of its own, tries what failed.

use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest, Sha256};

use crate::claim::{Attempted, First, Guard, Pulse, View, Write, after_torn, closed, intent, pulse};
use crate::definition::Definition;
use crate::entry::{Attempt, CommandMark, Ending, Entry, State, Terms, is_capped};
use crate::lease::{self, Acquire, Acquired, Hold, Takeable};
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::owner::Owner;
use crate::payload::{FieldChange, Fingerprint};
use crate::policy::IfBusy;
use crate::record::{Expect, FORMAT, Seen, Version};
use crate::token::{Grant, Nonce, Token};
use crate::work::{Key, Work};

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

/// The resource that an item names, to be leased for it.
#[derive(Clone, Copy, Debug)]
pub struct Own<'a> {
    /// Which.
    pub resource: &'a Name,
    /// How long its lease lives without a renewal.
    pub ttl_ms: u64,
    /// How long to wait after another's lapse.
    pub lock_delay_ms: u64,
}

/// The nonce of the lease that this runner takes for this item: always the same one, and nobody else's.
pub fn own_nonce(runner: &Nonce, item: &Key) -> Nonce {
    let digest = Sha256::new().chain_update(b"item").chain_update(runner.as_bytes());
    let item: &[u8] = if mutant::on(Mutant::OneNonceForAllItems) { &[] } else { item.as_bytes() };
    let digest = digest.chain_update(item).finalize();
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    Nonce::from_bytes(bytes)
}

/// How a runner knows its own attempts at an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// They are under the runner's grant.
    Runner(Grant),
    /// The item has a lease of its own: they carry this nonce, whatever the token.
    Own(Nonce),
}

impl Mark {
    /// Of this runner, for an item that has a resource of its own or none.
    pub fn of(runner: &Grant, item: &Key, has_own: bool) -> Mark {
        match has_own {
            true => Mark::Own(own_nonce(&runner.nonce, item)),
            false => Mark::Runner(*runner),
        }
    }

    /// Is this grant ours?
    pub fn is(&self, token: Token, nonce: Nonce) -> bool {
        match self {
            Mark::Runner(grant) => grant.token == token && grant.nonce == nonce,
            Mark::Own(own) => *own == nonce,
        }
    }
}

/// Is a resource that somebody holds worth waiting for, once there is nothing else to do? As the policy says; and where
/// it is an item of the same batch that holds it, as long as that takes: it ends, or its lease does.
pub fn is_awaited(hold: &Hold, batch: &Work, if_busy: &IfBusy, waited_ms: u64) -> bool {
    let fellow = Work::parse_readable(&hold.what).ok().and_then(|work| work.batch());
    fellow.as_ref() == Some(batch) || matches!(if_busy, IfBusy::Wait { for_ms } if waited_ms < *for_ms)
}

/// What a runner asks for one of its items.
#[derive(Clone, Copy, Debug)]
pub struct ItemAsk<'a> {
    /// The item, as a work.
    pub work: &'a Work,
    /// Who asks.
    pub runner: Under<'a>,
    /// The resource that it names, if it names one.
    pub own: Option<Own<'a>>,
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
    /// The lease of its own that it takes.
    pub lease: Option<OwnClaim>,
    /// What to do first.
    pub first: First,
    /// The attempt before this one may have had its effect.
    pub after_lost: bool,
}

/// The lease of an item's own, to be written before its intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnClaim {
    /// Of this resource.
    pub resource: Name,
    /// What to write, and what must stand there.
    pub lease: Takeable,
}

impl OwnClaim {
    /// What to write.
    pub fn write(&self) -> Write {
        let Takeable { lease, expect, .. } = &self.lease;
        let ttl_ms = lease.hold.as_ref().map(|hold| hold.ttl_ms);
        let (lease, expect) = (lease.clone(), expect.clone());
        Write::Lease { resource: self.resource.clone(), lease, expect, ttl_ms }
    }
}

impl ItemClaim {
    /// What to write: the guards, the lease of its own, then the intent.
    pub fn writes(&self) -> Vec<Write> {
        let mut writes = crate::step::guarded(&self.guards, None, &self.entry, &self.expect);
        let at = writes.len().saturating_sub(usize::from(!mutant::on(Mutant::OwnLeaseAfterIntent)));
        writes.splice(at..at, self.lease.iter().map(OwnClaim::write));
        writes
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
    /// Somebody holds the resource that it names.
    Held {
        /// Which.
        resource: Name,
        /// Who, and for how long.
        held: lease::Held,
    },
    /// It can never be run so, for this reason.
    Wrong(String),
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
    guards.retain(|_| !mutant::on(Mutant::ItemWithoutRunnerGuard));
    let Some(seen) = &view.entry else { return take(view, ask, None, guards, First::Run, false) };
    let entry = &seen.value;
    if let (Some(bound), Some(offered)) = (&entry.payload, ask.payload) {
        let changes = bound.diff(offered);
        if !changes.is_empty() {
            return ItemDecision::Mismatch { changes, entry: entry.clone() };
        }
    }
    let mark = Mark::of(ask.runner.grant, &ask.work.key(), ask.own.is_some());
    let was_here = was_here(entry, &mark) && !mutant::on(Mutant::RepeatedItemRunsAgain);
    match &entry.state {
        State::Running { grant, .. }
            if mark.is(grant.token, grant.nonce) && !mutant::on(Mutant::OwnItemTakenForLost) =>
        {
            ItemDecision::Mine(entry.clone())
        }
        State::Running { resource, grant } => {
            // the lease that we hold cannot carry another grant: its own guard says so at the write
            if resource != ask.runner.resource {
                match pulse(view, resource, grant) {
                    Pulse::LookAt(resource) => return ItemDecision::LookAt(resource),
                    Pulse::Alive if mutant::on(Mutant::ItemBesideLiveRunner) => {}
                    Pulse::Alive => return ItemDecision::Busy { resource: resource.clone() },
                    Pulse::Lost(_) if was_here => return ItemDecision::Repeated(entry.clone()),
                    Pulse::Lost(_) if mutant::on(Mutant::ItemWithoutLostGuard) => {}
                    Pulse::Lost(guard) => guards.push(guard),
                }
            }
            again(view, ask, seen, guards, Some("the last attempt vanished"))
        }
        _ if was_here => ItemDecision::Repeated(entry.clone()),
        State::Done { .. } if mutant::on(Mutant::ItemDoneRunsAgain) => {
            take(view, ask, Some(seen), guards, First::Run, false)
        }
        State::InDoubt { .. } if mutant::on(Mutant::ItemInDoubtRunsAgain) => {
            take(view, ask, Some(seen), guards, First::Run, false)
        }
        State::Done { .. } => ItemDecision::Done(entry.clone()),
        State::Quarantined | State::InDoubt { .. } => ItemDecision::Person(entry.clone()),
        // no item is ever missed: that is said of slots
        State::Missed { .. } | State::Open { torn: false } => {
            take(view, ask, Some(seen), guards, First::Run, false)
        }
        State::Failed { torn: false } => again(view, ask, seen, guards, None),
        State::Open { .. } | State::Failed { .. } if mutant::on(Mutant::TornItemRunsAgain) => {
            take(view, ask, Some(seen), guards, First::Run, false)
        }
        State::Open { torn: true } | State::Failed { torn: true } => {
            again(view, ask, seen, guards, Some("the last attempt was stopped in the middle"))
        }
    }
}

/// Was this runner at it before? A claim that another took over before it was answered is none of that.
fn was_here(entry: &Entry, mark: &Mark) -> bool {
    let is_last = entry.last_attempt().is_some_and(|last| mark.is(last.token, last.nonce));
    let is_ended = |one: &Attempt| !matches!(one.ending, Ending::None | Ending::Vanished);
    is_last || entry.log.iter().any(|one| mark.is(one.token, one.nonce) && is_ended(one))
}

fn own_guard(ask: &ItemAsk<'_>) -> Guard {
    Guard { resource: ask.runner.resource.clone(), expect: Expect::Live(ask.runner.lease.clone()) }
}

fn again(
    view: &View,
    ask: &ItemAsk<'_>,
    seen: &Seen<Entry>,
    guards: Vec<Guard>,
    torn: Option<&str>,
) -> ItemDecision {
    let entry = &seen.value;
    let torn = torn.filter(|_| !mutant::on(Mutant::LostItemRunsAgain));
    let state = match after_torn(torn, ask.terms.on_lost) {
        _ if is_capped(entry.failures, ask.terms.max_failures) => State::Quarantined,
        Ok(first) => return take(view, ask, Some(seen), guards, first, torn.is_some()),
        Err(why) => State::InDoubt { why },
    };
    let expect = Expect::Version(seen.version.clone());
    ItemDecision::Doubt { entry: closed(entry, state, ask.now_ms), expect, guards }
}

fn take(
    view: &View,
    ask: &ItemAsk<'_>,
    seen: Option<&Seen<Entry>>,
    mut guards: Vec<Guard>,
    first: First,
    after_lost: bool,
) -> ItemDecision {
    let lease = match ask.own.map(|own| acquire(view, ask, own)).transpose() {
        Ok(lease) => lease,
        Err(decision) => return *decision,
    };
    if let Some(own) = &lease {
        // the lease that is taken is checked by its own write
        guards.retain(|guard| guard.resource != own.resource);
    }
    let (resource, grant) = match &lease {
        Some(own) => (&own.resource, &own.lease.lease.grant),
        None => (ask.runner.resource, ask.runner.grant),
    };
    let attempted = Attempted {
        work: ask.work,
        resource,
        grant,
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
        lease,
        first,
        after_lost,
    })
}

/// The lease of the item's own, or why it cannot be had.
fn acquire(view: &View, ask: &ItemAsk<'_>, own: Own<'_>) -> Result<OwnClaim, Box<ItemDecision>> {
    let resource = own.resource.clone();
    if resource == *ask.runner.resource {
        let why = format!("its resource is {resource}, which the batch itself holds: name another one");
        return Err(Box::new(ItemDecision::Wrong(why)));
    }
    let Some(seen) = view.lease(own.resource) else {
        return Err(Box::new(ItemDecision::LookAt(resource)));
    };
    let what = ask.work.to_string();
    let acquire = Acquire {
        owner: ask.runner.owner,
        what: &what,
        nonce: own_nonce(&ask.runner.grant.nonce, &ask.work.key()),
        token_floor: view.token_floor,
        ttl_ms: own.ttl_ms,
        lock_delay_ms: own.lock_delay_ms,
        now_ms: ask.now_ms,
    };
    match lease::acquire(seen, &acquire) {
        Acquired::Take(lease) => Ok(OwnClaim { resource, lease }),
        Acquired::Held(held) => Err(Box::new(ItemDecision::Held { resource, held })),
        Acquired::UsedUp(why) => Err(Box::new(ItemDecision::Wrong(format!("{resource}: {why}")))),
    }
}

/// The entry of an item that was claimed under this grant and surely not begun: as it was before. None if another
/// attempt is on record.
pub fn give_back(claimed: &Entry, grant: &Grant, after_lost: bool, now_ms: u64) -> Option<Entry> {
    match &claimed.state {
        State::Running { grant: running, .. } if running == grant => {}
        State::Running { .. } if mutant::on(Mutant::GiveBackOfAnothers) => {}
        _ => return None,
    }
    let mut next = claimed.clone();
    let is_ours = |last: &Attempt| last.is_under(grant) || mutant::on(Mutant::GiveBackOfAnothers);
    let begun = next.log.pop_if(|last| is_ours(last) && last.ending == Ending::None)?;
    let after_lost = after_lost && !mutant::on(Mutant::GivenBackIsNotTorn);
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
    #[serde(borrow, default = "Vec::new")]
    log: Vec<BriefAttempt<'a>>,
    #[serde(default = "no_payload")]
    payload: Option<P>,
}

#[derive(Deserialize)]
struct BriefAttempt<'a> {
    token: Token,
    nonce: Nonce,
    #[serde(borrow)]
    ending: &'a str,
}

fn no_payload<P>() -> Option<P> {
    None
}

/// The job and the state of an item, without reading all of its record: whoever counts millions asks only this.
pub fn brief(record: &[u8]) -> Option<(Name, &str)> {
    #[derive(Deserialize)]
    struct Counted<'a> {
        v: u32,
        #[serde(borrow)]
        state: &'a str,
        work: OfJob,
    }
    #[derive(Deserialize)]
    struct OfJob {
        job: Name,
    }
    let counted: Counted<'_> = serde_json::from_slice(record).ok()?;
    (counted.v == FORMAT).then_some((counted.work.job, counted.state))
}

/// What the runners of a batch hold where they share it: few names for each job, because a lease's record stays for
/// ever. A job whose name leaves no room for more is known by its key.
pub fn runner_names(job: &Name, most: u32) -> Vec<Name> {
    let plain = |n: u32| Name::new(&format!("{job}/runner/{n}"));
    let short = Work::once(job.clone()).key().short();
    let named = |n: u32| match plain(most) {
        Ok(_) => plain(n),
        Err(_) => Name::new(&format!("runner/{short}/{n}")),
    };
    (1..=most).filter_map(|n| named(n).ok()).collect()
}

/// Is the item whose record holds these bytes done? Answers as [`claim`] would, without reading all of it: a batch that
/// is resumed asks this of every item, and most are done.
pub fn glance(record: &[u8], payload: Option<&Fingerprint>, mark: &Mark) -> Glance {
    match payload {
        None => glance_at::<IgnoredAny>(record, mark, |_| true),
        Some(offered) => glance_at::<Fingerprint>(record, mark, |bound| bound.diff(offered).is_empty()),
    }
}

fn glance_at<'a, P: Deserialize<'a>>(record: &'a [u8], mark: &Mark, fits: impl Fn(&P) -> bool) -> Glance {
    let Ok(brief) = serde_json::from_slice::<Brief<'a, P>>(record) else { return Glance::Look };
    if brief.v != FORMAT || brief.state != "done" || !brief.payload.as_ref().is_none_or(fits) {
        return Glance::Look;
    }
    let is_ours = |one: &BriefAttempt<'_>| mark.is(one.token, one.nonce);
    let is_ended = |one: &BriefAttempt<'_>| !matches!(one.ending, "none" | "vanished");
    let ours =
        brief.log.last().is_some_and(is_ours) || brief.log.iter().any(|one| is_ours(one) && is_ended(one));
    if ours { Glance::Repeated } else { Glance::Done }
}
