//! Claim: look, decide, write; look again if somebody else was faster.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use semel_core::alarm::spot;
use semel_core::claim::{self, Ask, Busy, Claim, Decision, First, Intent, View, Write, with_alarm};
use semel_core::entry::{Entry, State};
use semel_core::lease::{Before, SeenLease};
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::plan::Plan;
use semel_core::policy::{IfBusy, trust_counts_from};
use semel_core::record::{RecordKey, Seen, Standing, Version};
use semel_core::token::Nonce;
use semel_core::work::Work;

use super::alarm::Watched;
use super::hold::Trust;
use super::journal::SkipReason;
use super::view::{LookError, changes};
use super::{Begin, Engine, Event, Held, Report, RunPlan, Signals, Task, Tell, Unplanned};
use crate::clock::Moment;
use crate::crash;
use crate::store::{Change, Durability, Pending, StoreError, Swaps};

/// A fresh claim: the lease is ours, the intent is on record.
pub(super) struct Claimed {
    pub(super) held: Box<Held>,
    pub(super) first: First,
    pub(super) before: Before,
    pub(super) after_lost: bool,
}

/// How often a waiter asks this machine, not the store, whether a holder on it is still among the living.
const GONE_CHECK: Duration = Duration::from_millis(500);
/// How long an unanswered claim is looked for before the run gives up. Its lease lapses by itself.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(10);
const UNKNOWN_PAUSE: Duration = Duration::from_millis(50);
/// How long a waiter pauses before it asks again a store that is down.
const DOWN_PAUSE: Duration = Duration::from_millis(250);
/// Who fails later than that was not simply away.
const SLOW: Duration = Duration::from_secs(3);

/// How many writes may go unanswered, each looked for and not found, before the run gives up.
const UNKNOWN_TRIES: u32 = 3;

/// A claim whose write may or may not have been applied.
struct Sent {
    claim: Claim,
    at: Moment,
}

/// The plan that this run offers.
#[derive(Default)]
struct Planned {
    asked: bool,
    plan: Option<Plan>,
}

#[allow(clippy::result_large_err)] // a report is made once per run
impl Engine {
    /// Claim the work, or report why not.
    pub(super) async fn claim(
        &self,
        plan: &RunPlan,
        nonce: Nonce,
        task: &mut impl Task,
        signals: &mut impl Signals,
        tell: Tell<'_>,
    ) -> Result<Claimed, Report> {
        let began = self.clock.now();
        let mut resources = plan.resources.clone();
        let mut unanswered: Vec<Sent> = Vec::new();
        let mut refused: Option<Sent> = None;
        let mut unknowns = Unknowns::default();
        let mut planned = Planned::default();
        let (mut announced, mut waited) = (false, false);
        loop {
            let asked = self.clock.now();
            let looked = self.look_for(plan, &resources).await;
            let view = match looked {
                Ok(view) => view,
                Err(LookError::Record(why)) => return Err(Report::Unusable(why.to_string())),
                Err(LookError::Store(why)) => match unanswered.last() {
                    Some(sent) if sent.at.until(self.clock.now()) < UNKNOWN_PATIENCE => {
                        tokio::time::sleep(UNKNOWN_PAUSE).await;
                        continue;
                    }
                    // a store that is started again meanwhile ends nobody's wait
                    None if (waited || self.is_slow_since(asked))
                        && !self.left_to_wait(plan, began).is_zero() =>
                    {
                        while_down(signals).await?;
                        continue;
                    }
                    _ => return Err(Report::StoreDown(why.to_string())),
                },
            };
            let watched = Watched::of(plan, &view);
            if watched.as_ref().is_some_and(Watched::waits) {
                tell(Event::Notices);
            }
            if self.has_gap(plan, &view) {
                match self.account(plan).await {
                    Ok(missed) => {
                        tell(Event::Missed(&missed));
                        tell(Event::Notices);
                    }
                    Err(LookError::Record(why)) => return Err(Report::Unusable(why.to_string())),
                    Err(LookError::Store(why)) => return Err(Report::StoreDown(why.to_string())),
                }
                continue;
            }
            let ask = Ask {
                work: plan.work.as_ref(),
                what: &plan.what,
                resources: &plan.resources,
                policy: &plan.policy,
                owner: &self.me,
                nonce,
                payload: plan.payload.as_ref(),
                command: plan.command.as_ref(),
                plan: None,
                definition: plan.definition.as_ref(),
                occurrence: plan.scheduled.as_ref().map(|scheduled| &scheduled.occurrence),
                now_ms: self.clock.wall_ms(),
            };
            let mut decision = claim::claim(&view, &Ask { plan: planned.plan.as_ref(), ..ask.clone() });
            if let Decision::Claim(claim) = &decision
                && claim.takes_a_plan()
                && !planned.asked
            {
                planned = self.plan_for(plan, task, signals).await?;
                if planned.plan.is_some() {
                    // what was seen may have changed meanwhile: the swap finds out
                    let now_ms = self.clock.wall_ms();
                    decision = claim::claim(&view, &Ask { plan: planned.plan.as_ref(), now_ms, ..ask });
                }
            }
            match decision {
                Decision::LookAt(resource) => resources.push(resource),
                Decision::Claim(claim) => {
                    let at = self.clock.now();
                    if self.left_to_start(plan, began).is_zero() {
                        self.note_too_late(plan, &view, watched.as_ref(), tell).await;
                        return Err(Report::TooLate);
                    }
                    if self.store.swaps() == Swaps::InOrder && !std::mem::replace(&mut announced, true) {
                        // the first of a series: its calendar must not be lost between the intent and itself
                        if plan.scheduled.is_some() && view.calendar.is_none() {
                            self.note_asked_for(plan, &view, tell).await;
                            continue;
                        }
                    }
                    let alarm = self.takeover(watched.as_ref(), &claim, &view).await?;
                    if alarm.is_some() {
                        tell(Event::Notices);
                    }
                    task.make_ready(&nonce);
                    match self.write_claim(&claim, alarm).await? {
                        Written::Applied(versions) => {
                            return Ok(self.claimed(plan, at, claim, versions, watched));
                        }
                        // where a store makes one change after another, it may stand there all the same
                        Written::Refused => refused = Some(Sent { claim, at }),
                        // surely not made: one who waits asks again, as for a look
                        Written::Down(_)
                            if (waited || self.is_slow_since(at))
                                && !self.left_to_wait(plan, began).is_zero() =>
                        {
                            while_down(signals).await?;
                        }
                        Written::Down(why) => return Err(Report::StoreDown(why)),
                        Written::Unknown(why) => {
                            unanswered.push(Sent { claim, at });
                            unknowns.another(why).await.map_err(Report::StoreDown)?;
                        }
                    }
                }
                Decision::Claimed => {
                    unanswered.extend(refused);
                    return self.recovered(plan, &view, unanswered, watched);
                }
                Decision::Done(entry) => {
                    self.note_skip(&entry.work, SkipReason::Done, tell).await;
                    return Err(Report::AlreadyDone(entry));
                }
                Decision::Busy(busy) => {
                    if waited && self.left_to_start(plan, began).is_zero() {
                        self.note_too_late(plan, &view, watched.as_ref(), tell).await;
                        return Err(Report::TooLate);
                    }
                    self.wait(plan, busy, began, &view, signals, tell).await?;
                    waited = true;
                }
                Decision::Person(entry) => {
                    let alarm =
                        watched.as_ref().and_then(|watched| person(watched, &entry, self.clock.wall_ms()));
                    if let Some(alarm) = alarm {
                        self.note(&[alarm], tell).await;
                        tell(Event::Notices);
                    }
                    return Err(Report::NeedsPerson { entry, ran: None });
                }
                Decision::Doubt { entry, expect, guards } => {
                    let writes: Vec<_> = guards
                        .into_iter()
                        .map(claim::Write::Guard)
                        .chain([claim::Write::Entry { entry: entry.clone(), expect }])
                        .collect();
                    let alarm =
                        watched.as_ref().and_then(|watched| person(watched, &entry, self.clock.wall_ms()));
                    if alarm.is_some() {
                        tell(Event::Notices);
                    }
                    let changes = changes(&with_alarm(writes, alarm))
                        .map_err(|why| Report::Unusable(why.to_string()))?;
                    match self.store.swap(&changes, Durability::Durable).await {
                        Ok(_) => return Err(Report::NeedsPerson { entry, ran: None }),
                        Err(StoreError::Refused(_)) => {}
                        Err(StoreError::Unknown(why)) => {
                            unknowns.another(why).await.map_err(Report::StoreDown)?
                        }
                        Err(StoreError::Unavailable(why)) => return Err(Report::StoreDown(why)),
                    }
                }
                Decision::Mismatch { changes, entry } => return Err(Report::Mismatch { changes, entry }),
                Decision::UsedUp(why) => return Err(Report::Unusable(why.to_string())),
                Decision::NoResource => return Err(Report::Unusable("no resource was asked for".into())),
            }
        }
    }

    /// How long it is not too late.
    fn left_to_start(&self, plan: &RunPlan, began: Moment) -> Duration {
        let within = |within| self.clock.now().until(began.plus_ms(within));
        plan.start_within_ms.map_or(Duration::MAX, within)
    }

    /// Has a store that was asked then taken its time to fail? One that is not there, or lets nobody in, says so at once;
    /// one that has too much to do is as busy as a resource is.
    fn is_slow_since(&self, asked: Moment) -> bool {
        asked.until(self.clock.now()) >= SLOW
    }

    /// How long one that is busy may still be waited for.
    fn left_to_wait(&self, plan: &RunPlan, began: Moment) -> Duration {
        match plan.policy.if_busy {
            IfBusy::Wait { for_ms } => self.clock.now().until(began.plus_ms(for_ms)),
            IfBusy::Skip | IfBusy::Fail => Duration::ZERO,
        }
    }

    /// What is told of a claim that takes over from an attempt that was lost: at this work, or at another slot of the
    /// job, which nobody may come back for.
    async fn takeover(
        &self,
        watched: Option<&Watched>,
        claim: &Claim,
        view: &View,
    ) -> Result<Option<Write>, Report> {
        let (Some(watched), Some(Intent { entry, .. })) = (watched, &claim.intent) else { return Ok(None) };
        if claim.after_lost {
            return Ok(spot::lost(entry, entry.changed_ms).and_then(|lost| watched.raise(&[lost])));
        }
        let left = match self.left_behind(claim, view, &entry.work).await {
            Ok(left) => left,
            // another slot that cannot be read is no reason not to run this one
            Err(LookError::Record(_)) => None,
            Err(LookError::Store(why)) => return Err(Report::StoreDown(why.to_string())),
        };
        Ok(left.and_then(|left| watched.raise(&[spot::left_behind(&left, entry.changed_ms)])))
    }

    /// Another work of the job that the last holder of this lease vanished from. Only a lease that was never given
    /// back costs the look.
    async fn left_behind(&self, claim: &Claim, view: &View, work: &Work) -> Result<Option<Entry>, LookError> {
        let lease = view.lease(&claim.resource).flatten().map(|seen| &seen.record.value);
        let is_gone = matches!(claim.lease.before, Before::Lapsed | Before::OwnerGone);
        let Some((lease, hold)) =
            lease.filter(|_| is_gone).and_then(|lease| Some((lease, lease.hold.as_ref()?)))
        else {
            return Ok(None);
        };
        let Ok(other) = Work::parse_readable(&hold.what) else { return Ok(None) };
        if other.job() != work.job() || other == *work {
            return Ok(None);
        }
        let stands = self.look(Some(&other), &[]).await?.entry.map(|seen| seen.value);
        // one whose end is on record only left its lease for the next of its row
        let vanished =
            |entry: &Entry| matches!(&entry.state, State::Running { grant, .. } if *grant == lease.grant);
        Ok(stands.filter(vanished))
    }

    /// Ask the task for a plan.
    async fn plan_for(
        &self,
        plan: &RunPlan,
        task: &mut impl Task,
        signals: &mut impl Signals,
    ) -> Result<Planned, Report> {
        let Some(work) = &plan.work else { return Ok(Planned { asked: true, plan: None }) };
        let made = tokio::select! {
            biased;
            made = task.plan(self, work) => made,
            caught = signals.next() => return Err(Report::Interrupted(caught.signal)),
        };
        crash::point("run.planned");
        match made {
            Ok(plan) => Ok(Planned { asked: true, plan }),
            Err(Unplanned::Wrong(why)) => Err(Report::NoPlan(why)),
            Err(Unplanned::Look(LookError::Record(why))) => Err(Report::Unusable(why.to_string())),
            Err(Unplanned::Look(LookError::Store(why))) => Err(Report::StoreDown(why.to_string())),
        }
    }

    async fn write_claim(&self, claim: &Claim, alarm: Option<Write>) -> Result<Written, Report> {
        let changes =
            changes(&with_alarm(claim.writes(), alarm)).map_err(|why| Report::Unusable(why.to_string()))?;
        crash::point("run.claim.before");
        match self.store.swap(&changes, Durability::Durable).await {
            Ok(versions) => {
                crash::point("run.claim.after");
                let version_of = |key: RecordKey| {
                    let at = changes.iter().position(|change: &Change| *change.key() == key);
                    at.and_then(|at| versions.get(at).cloned())
                };
                let lease = version_of(RecordKey::lease(&claim.resource));
                let entry =
                    claim.intent.as_ref().and_then(|intent| version_of(RecordKey::entry(&intent.entry.work)));
                let Some(lease) = lease.filter(|_| entry.is_some() == claim.intent.is_some()) else {
                    return Err(Report::Unusable("the store answered a swap without its versions".into()));
                };
                Ok(Written::Applied((lease, entry)))
            }
            Err(StoreError::Refused(_)) => Ok(Written::Refused),
            Err(StoreError::Unknown(why)) => Ok(Written::Unknown(why)),
            Err(StoreError::Unavailable(why)) => Ok(Written::Down(why)),
        }
    }

    /// One of our claims was applied and its reply lost. Which one, the entry says; since when the lease's clock runs,
    /// nobody can say, so the trust counts from the first that was sent.
    fn recovered(
        &self,
        plan: &RunPlan,
        view: &View,
        unanswered: Vec<Sent>,
        watched: Option<Watched>,
    ) -> Result<Claimed, Report> {
        let stranger = || Report::Unusable("a claim with our nonce that we did not make".into());
        let seen = view.entry.as_ref().ok_or_else(stranger)?;
        let State::Running { resource, grant } = &seen.value.state else { return Err(stranger()) };
        let first_sent = unanswered.iter().map(|sent| sent.at).min().ok_or_else(stranger)?;
        let ours = |sent: &Sent| sent.claim.resource == *resource && sent.claim.grant() == *grant;
        let sent = unanswered.into_iter().find(ours).ok_or_else(stranger)?;
        let lease = view.lease(resource).flatten().ok_or_else(stranger)?;
        let versions = (lease.record.version.clone(), Some(seen.version.clone()));
        Ok(self.claimed(plan, first_sent, sent.claim, versions, watched))
    }

    fn claimed(
        &self,
        plan: &RunPlan,
        sent_at: Moment,
        claim: Claim,
        versions: Versions,
        watched: Option<Watched>,
    ) -> Claimed {
        let counts_from = trust_counts_from(sent_at, self.clock.now());
        let begin = Begin {
            work: plan.work.clone(),
            resource: claim.resource.clone(),
            grant: claim.grant(),
            attempt: claim.attempt(),
            plan: claim.intent.as_ref().and_then(|intent| intent.entry.plan.clone()),
            within: None,
        };
        let before = claim.lease.before;
        let held = Held {
            begin,
            lease: Seen { value: claim.lease.lease, version: versions.0 },
            entry: claim
                .intent
                .zip(versions.1)
                .map(|(intent, version)| Seen { value: intent.entry, version }),
            trust: Trust::new(&plan.policy, counts_from),
            since: sent_at,
            watched,
        };
        Claimed { held: Box::new(held), first: claim.first, before, after_lost: claim.after_lost }
    }

    /// Yield, fail or wait, as the policy says.
    async fn wait(
        &self,
        plan: &RunPlan,
        busy: Busy,
        began: Moment,
        view: &View,
        signals: &mut impl Signals,
        tell: Tell<'_>,
    ) -> Result<(), Report> {
        let left = match plan.policy.if_busy {
            IfBusy::Fail => {
                self.note_asked_for(plan, view, tell).await;
                return Err(Report::Busy(busy));
            }
            IfBusy::Skip | IfBusy::Wait { .. } => self.left_to_wait(plan, began),
        };
        if left.is_zero() {
            let why = if busy.same_work {
                SkipReason::Running { token: busy.held.token.value() }
            } else {
                SkipReason::Busy {
                    resource: busy.resource.to_string(),
                    held_for: busy.held.hold.what.clone(),
                }
            };
            if let Some(work) = &plan.work {
                self.note_skip(work, why, tell).await;
            }
            self.note_asked_for(plan, view, tell).await;
            return Err(Report::Yielded(busy));
        }
        tell(Event::Waiting(&busy));
        // until a record changes, its time runs out by a watch that counts suspend, or its owner has died
        let pause = left.min(Duration::from_millis(busy.held.wait_ms.max(1)));
        // one that is too late then is told so, and waits for nothing
        let pause = pause.min(self.left_to_start(plan, began));
        let over = self.clock.now().plus_ms(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX).max(1));
        let in_the_way = in_the_way(view, &busy);
        let waits = in_the_way.iter().map(|(key, lease)| {
            self.store.changed(key, lease.as_ref().map(|lease| &lease.record.version), pause)
        });
        tokio::select! {
            changed = first(waits.collect()) => {
                if changed.is_err() {
                    // the next look says what is wrong; this only keeps from asking in a tight loop
                    tokio::time::sleep(UNKNOWN_PAUSE.min(pause)).await;
                }
                Ok(())
            }
            () = self.clock.sleep_until(over) => Ok(()),
            () = self.gone(in_the_way.iter().filter_map(|(_, lease)| *lease)) => Ok(()),
            caught = signals.next() => Err(Report::Interrupted(caught.signal)),
        }
    }

    /// Until one of these holders is provably gone; for ever if none of them lives on this machine.
    async fn gone<'a>(&self, leases: impl Iterator<Item = &'a SeenLease>) {
        let neighbours: Vec<(&Owner, &Nonce)> = leases
            .filter_map(|seen| Some((seen.record.value.hold.as_ref()?, &seen.record.value.grant.nonce)))
            .filter(|(hold, _)| !hold.resting && hold.owner.is_neighbour_of(&self.me))
            .map(|(hold, nonce)| (&hold.owner, nonce))
            .collect();
        if neighbours.is_empty() {
            return std::future::pending().await;
        }
        while !neighbours.iter().any(|(owner, nonce)| self.neighbours.is_gone(owner, nonce)) {
            tokio::time::sleep(GONE_CHECK).await;
        }
    }
}

/// The leases whose change may end a wait: the one that is busy and, unless this very work runs under it, those of the
/// other resources that would do.
fn in_the_way<'v>(view: &'v View, busy: &Busy) -> Vec<(RecordKey, Option<&'v SeenLease>)> {
    let is_live = |seen: &SeenLease| matches!(seen.standing, Standing::Live { .. });
    let counts = |(name, seen): &&(Name, Option<SeenLease>)| {
        *name == busy.resource || (!busy.same_work && seen.as_ref().is_some_and(is_live))
    };
    let leases = view.leases.iter().filter(counts);
    leases.map(|(name, seen)| (RecordKey::lease(name), seen.as_ref())).collect()
}

/// What the first of these comes to.
async fn first<T>(mut waits: Vec<Pending<'_, T>>) -> Result<T, StoreError> {
    poll_fn(|context| {
        let ready = waits.iter_mut().find_map(|wait| match wait.as_mut().poll(context) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// What is told of an entry that needs a person.
fn person(watched: &Watched, entry: &Entry, now_ms: u64) -> Option<Write> {
    watched.raise(&[spot::needs_person(entry, now_ms)?])
}

enum Written {
    /// With these versions of the lease and the entry.
    Applied(Versions),
    Refused,
    Unknown(String),
    /// Surely not made: the store is down, or full of others who ask.
    Down(String),
}

/// A pause before a store that is down is asked again.
#[allow(clippy::result_large_err)] // a report is made once per run
async fn while_down(signals: &mut impl Signals) -> Result<(), Report> {
    tokio::select! {
        () = tokio::time::sleep(DOWN_PAUSE) => Ok(()),
        caught = signals.next() => Err(Report::Interrupted(caught.signal)),
    }
}

/// Counts the writes that went unanswered: a store that never answers (a full disk, say) must not be asked for
/// ever.
#[derive(Default)]
pub(super) struct Unknowns(u32);

impl Unknowns {
    /// Another one: pause and look, or give up with this reason.
    pub(super) async fn another(&mut self, why: String) -> Result<(), String> {
        self.0 += 1;
        if self.0 >= UNKNOWN_TRIES {
            return Err(why);
        }
        tokio::time::sleep(UNKNOWN_PAUSE).await;
        Ok(())
    }
}

/// The versions of the lease and of the entry that a claim wrote.
type Versions = (Version, Option<Version>);
