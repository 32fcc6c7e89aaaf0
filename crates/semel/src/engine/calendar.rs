//! Slots that passed without a run: put on record, found again, owed.
//!
//! The rules are [`semel_core::calendar`]'s. A gap is accounted for in pieces, each one swap that writes the missed
//! slots together with the calendar; a crash in between loses nothing and records nothing twice, because what a later
//! look finds on record it leaves alone.

use semel_core::alarm::spot;
use semel_core::calendar::{self, Calendar, Gap, Occurrence, Reason};
use semel_core::claim::{View, Write, with_alarm};
use semel_core::entry::{Entry, Terms};
use semel_core::name::{Name, Slot};
use semel_core::record::{Expect, RecordKey, Seen};
use semel_core::schedule::Tick;
use semel_core::work::Work;

use super::alarm::Watched;
use super::ledger::{PAGE, SMALL_PAGE, after};
use super::view::{LookError, changes, seen, seen_entry};
use super::{Engine, Event, RunPlan, Tell};
use crate::crash;
use crate::store::{Change, Durability, StoreError};

/// Slots that are put on record in one swap.
const AT_ONCE: usize = 64;
/// How often others may be faster, or an answer may be lost, before it is left to the next run.
const TRIES: u32 = 8;

/// The occurrence of a schedule that a run is for.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// Which.
    pub occurrence: Occurrence,
    /// What is known, and not by the ledger, of slots that were not run.
    pub excuses: Vec<Excuse>,
}

/// What is known of a slot that was not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excuse {
    /// Which work.
    pub work: Work,
    /// Why it was not run.
    pub reason: Reason,
    /// In words.
    pub detail: String,
}

/// A slot that was found to have passed without a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedSlot {
    /// When it fell due.
    pub tick: Tick,
    /// Its work.
    pub work: Work,
    /// Why it was not run.
    pub reason: Reason,
}

/// A slot, and what is on record of it.
#[derive(Clone, Debug)]
pub struct SlotState {
    /// When it fell due.
    pub tick: Tick,
    /// Its work.
    pub work: Work,
    /// What is on record.
    pub entry: Option<Entry>,
}

/// What is accounted for.
#[derive(Clone, Copy)]
pub struct Accounting<'a> {
    /// Any work of the series.
    pub work: &'a Work,
    /// Up to this occurrence, without it.
    pub occurrence: &'a Occurrence,
    /// What is known of slots that were not run.
    pub excuses: &'a [Excuse],
    /// The terms under which what is missed is kept.
    pub terms: &'a Terms,
    /// The lanes on which it is told.
    pub lanes: &'a [String],
}

impl Engine {
    /// Are there slots before this one that nobody has accounted for?
    pub(super) fn has_gap(&self, plan: &RunPlan, view: &View) -> bool {
        let calendar = view.calendar.as_ref().map(|seen| &seen.value);
        let scheduled = plan.scheduled.as_ref();
        scheduled.is_some_and(|scheduled| !calendar::gap(calendar, &scheduled.occurrence).is_empty())
    }

    /// Account for the slots before the one that this plan is for. Answers those that were missed.
    pub async fn account(&self, plan: &RunPlan) -> Result<Vec<MissedSlot>, LookError> {
        let (Some(work), Some(scheduled)) = (&plan.work, &plan.scheduled) else { return Ok(Vec::new()) };
        let Scheduled { occurrence, excuses } = scheduled;
        let terms = &Terms::of(&plan.policy);
        self.account_for(Accounting { work, occurrence, excuses, terms, lanes: &plan.lanes }).await
    }

    /// Account for the slots of a series before an occurrence. Answers those that were missed.
    pub async fn account_for(&self, ask: Accounting<'_>) -> Result<Vec<MissedSlot>, LookError> {
        let mut missed = Vec::new();
        let mut tries = 0;
        loop {
            let Some(seen) = self.calendar(ask.work).await? else { return Ok(missed) };
            let Gap { mut ticks, stretch } = calendar::gap(Some(&seen.value), ask.occurrence);
            ticks.truncate(AT_ONCE);
            let Some(last) = ticks.last() else { return Ok(missed) };
            let last = last.clone();
            let (found, entries) = self.missing(&ask, ticks).await?;
            let alarm = self.missed_alarm(ask.work.job(), ask.lanes, &found).await?;
            let writes = calendar::account(&seen, &last, stretch.as_ref(), entries, alarm);
            crash::point("calendar.account.before");
            match self.store.swap(&changes(&writes)?, Durability::Durable).await {
                Ok(_) => missed.extend(found),
                // somebody else was faster, or nobody knows: what stands there now decides
                Err(StoreError::Refused(_) | StoreError::Unknown(_)) if tries < TRIES => tries += 1,
                Err(why) => return Err(why.into()),
            }
            crash::point("calendar.account.after");
        }
    }

    /// Those of these slots that are not on record, each with the entry that says so.
    async fn missing(
        &self,
        ask: &Accounting<'_>,
        ticks: Vec<Tick>,
    ) -> Result<(Vec<MissedSlot>, Vec<Entry>), LookError> {
        let (mut missed, mut entries) = (Vec::new(), Vec::new());
        let now_ms = self.clock.wall_ms();
        for slot in self.slots(ask.work, ticks).await?.into_iter().filter(|slot| slot.entry.is_none()) {
            let (reason, detail) = self.reason(&slot.work, ask.excuses).await?;
            let entry = calendar::missed(slot.work.clone(), reason, detail, ask.terms.clone(), now_ms);
            entries.push(entry);
            missed.push(MissedSlot { tick: slot.tick, work: slot.work, reason });
        }
        Ok((missed, entries))
    }

    /// What is told of slots that were found missed.
    async fn missed_alarm(
        &self,
        job: &Name,
        lanes: &[String],
        found: &[MissedSlot],
    ) -> Result<Option<Write>, LookError> {
        let slots: Vec<(&Work, Reason)> = found.iter().map(|slot| (&slot.work, slot.reason)).collect();
        let anomaly = spot::missed(&slots, self.clock.wall_ms()).filter(|_| !lanes.is_empty());
        let Some(anomaly) = anomaly else { return Ok(None) };
        let seen = self.alarm(&RecordKey::alarm(job)).await?;
        Ok(Watched::new(job, lanes, seen).raise(&[anomaly]))
    }

    /// Why was this work not run?
    async fn reason(&self, work: &Work, excuses: &[Excuse]) -> Result<(Reason, Option<String>), LookError> {
        if self.suppressed(work).await?.busy > 0 {
            return Ok((Reason::Busy, None));
        }
        let excuse = excuses.iter().rev().find(|excuse| excuse.work == *work);
        Ok(excuse.map_or((Reason::NoTrigger, None), |excuse| (excuse.reason, Some(excuse.detail.clone()))))
    }

    /// The calendar of the series that this work belongs to.
    pub async fn calendar(&self, work: &Work) -> Result<Option<Seen<Calendar>>, LookError> {
        let key = RecordKey::calendar(work.job(), work.params());
        let record = self.store.load(&[key]).await?.records.pop().flatten();
        Ok(record.map(|record| seen(&record)).transpose()?)
    }

    /// A page of the calendars of a job, or of all jobs; what cannot be read is left out.
    pub async fn calendars(
        &self,
        job: Option<&Name>,
        from: Option<&RecordKey>,
    ) -> Result<(Vec<Seen<Calendar>>, Option<RecordKey>), LookError> {
        let records = self.store.scan(&RecordKey::calendars_of(job), from, SMALL_PAGE).await?;
        let next = after(&records, SMALL_PAGE);
        Ok((records.iter().filter_map(|record| seen(record).ok()).collect(), next))
    }

    /// Begin to watch over a series that was never run: from this occurrence on, its slots are owed.
    pub async fn watch(&self, work: &Work, occurrence: &Occurrence) -> Result<(), LookError> {
        let stands = self.calendar(work).await?;
        if stands.is_some() {
            return Ok(());
        }
        let (calendar, expect) = (calendar::asked_for(work, occurrence), Expect::Absent);
        let writes = changes(&[Write::Calendar { calendar, expect }])?;
        match self.store.swap(&writes, Durability::Durable).await {
            // somebody else has begun
            Ok(_) | Err(StoreError::Refused(_)) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }

    /// No longer expect the slots of a job. Answers how many series it had.
    pub async fn retire(&self, job: &Name) -> Result<u64, LookError> {
        let records = self.store.scan(&RecordKey::calendars_of(Some(job)), None, SMALL_PAGE).await?;
        let removals: Vec<Change> = records
            .iter()
            .map(|record| Change::Remove {
                key: record.key.clone(),
                expect: Expect::Version(record.version.clone()),
            })
            .collect();
        for part in self.store.most().parts(&removals) {
            self.store.swap(part, Durability::Durable).await?;
        }
        Ok(removals.len() as u64)
    }

    /// The slots of these ticks, each with what is on record of it.
    pub async fn slots(&self, series: &Work, ticks: Vec<Tick>) -> Result<Vec<SlotState>, LookError> {
        let mut slots = Vec::with_capacity(ticks.len());
        let mut ticks = ticks.into_iter().peekable();
        while ticks.peek().is_some() {
            let some: Vec<(Tick, Work)> = ticks
                .by_ref()
                .take(PAGE)
                // what is a work in one slot is one in another
                .filter_map(|tick| Some((tick.clone(), calendar::in_slot(series, tick.slot).ok()?)))
                .collect();
            let keys: Vec<RecordKey> = some.iter().map(|(_, work)| RecordKey::entry(work)).collect();
            let records = self.store.load(&keys).await?.records;
            for ((tick, work), record) in some.into_iter().zip(records) {
                let entry = record.map(|record| seen_entry(&record)).transpose()?.map(|seen| seen.value);
                slots.push(SlotState { tick, work, entry });
            }
        }
        Ok(slots)
    }

    /// The slots before an occurrence that are owed, of those that fell due within so many milliseconds, oldest first.
    pub async fn owed(
        &self,
        work: &Work,
        occurrence: &Occurrence,
        within_ms: u64,
        max_failures: u32,
    ) -> Result<Vec<SlotState>, LookError> {
        let Some(seen) = self.calendar(work).await? else { return Ok(Vec::new()) };
        let ticks = calendar::within(&seen.value, occurrence, within_ms, self.clock.wall_ms());
        let slots = self.slots(work, ticks).await?;
        Ok(slots
            .into_iter()
            .filter(|slot| calendar::is_caught_up(slot.entry.as_ref(), max_failures))
            .collect())
    }

    /// The first slot of a series was asked for, and its resource is busy: unless somebody comes back for it, it is
    /// found missed, as any later one would be.
    pub(super) async fn note_asked_for(&self, plan: &RunPlan, view: &View, tell: Tell<'_>) {
        let (Some(work), Some(scheduled), None) = (&plan.work, &plan.scheduled, &view.calendar) else {
            return;
        };
        let calendar = calendar::asked_for(work, &scheduled.occurrence);
        self.note(&[Write::Calendar { calendar, expect: Expect::Absent }], tell).await;
    }

    /// A slot that may not be begun any more is missed from now on.
    pub(super) async fn note_too_late(
        &self,
        plan: &RunPlan,
        view: &View,
        watched: Option<&Watched>,
        tell: Tell<'_>,
    ) {
        let (Some(work), Some(scheduled), None) = (&plan.work, &plan.scheduled, &view.entry) else { return };
        let now_ms = self.clock.wall_ms();
        let entry = calendar::missed(work.clone(), Reason::TooLate, None, Terms::of(&plan.policy), now_ms);
        let mut writes = vec![Write::Entry { entry, expect: Expect::Absent }];
        let moved_on = calendar::advance(view.calendar.as_ref(), work, &scheduled.occurrence, now_ms);
        writes.extend(moved_on.map(|(calendar, expect)| Write::Calendar { calendar, expect }));
        let anomaly = spot::missed(&[(work, Reason::TooLate)], now_ms);
        let alarm = watched.zip(anomaly).and_then(|(watched, anomaly)| watched.raise(&[anomaly]));
        if alarm.is_some() {
            tell(Event::Notices);
        }
        self.note(&with_alarm(writes, alarm), tell).await;
    }

    /// Write what is only for people: if it cannot be, that is told and nothing else.
    pub(super) async fn note(&self, writes: &[Write], tell: Tell<'_>) {
        let written = match changes(writes) {
            Ok(changes) => self.store.swap(&changes, Durability::Durable).await.map(drop),
            Err(why) => return tell(Event::JournalFailed(&why.to_string())),
        };
        match written {
            // somebody else was faster
            Ok(()) | Err(StoreError::Refused(_)) => {}
            Err(why) => tell(Event::JournalFailed(&why.to_string())),
        }
    }
}

impl Excuse {
    /// Of this slot.
    pub fn slot(&self) -> Option<&Slot> {
        self.work.slot()
    }
}
