//! The calendar of a schedule: which slots are accounted for, which were missed, and which are owed.
//!
//! ```text
//! since ──■──■──■── through ──○──○──○── tick
//!         accounted for        the gap   due now
//! ```
//!
//! One record for each job and set of parameters says up to which tick every slot is *accounted for*: it was claimed,
//! or it is on record why not. The claim of a slot moves it on in the same write, so a run costs no further commit. Who
//! finds ticks in between puts each slot that has no entry on record as missed, with the reason, before anything else.
//! A first install has no calendar, so it has nothing to catch up. A schedule that is written otherwise begins anew.
//!
//! The calendar only says where to look. Whether a slot was run is said by its own entry, so a calendar that lags
//! behind (a crash, a clock set back, a zone that changed) costs a look and never a second run or a false alarm.
//!
//! # What is not promised
//!
//! Somebody must look: a job whose trigger is gone altogether is found by `semel check`, not by itself. A gap of more
//! than [`GAP_LIMIT`] slots is recorded one by one for the newest of them, and as one stretch before that.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::claim::Write;
use crate::entry::{Entry, State, Terms, is_capped};
use crate::mutant::{self, Mutant};
use crate::name::{Name, Slot};
use crate::record::{Expect, Seen};
use crate::schedule::{Schedule, Tick};
use crate::work::{Fields, Work, WorkError};

/// How many slots of a gap are recorded one by one.
pub const GAP_LIMIT: usize = 1_000;
/// How many slots one invocation catches up at most.
pub const CATCH_UP_LIMIT: usize = 1_000;
/// The longest detail of a reason, in characters.
const DETAIL_LIMIT: usize = 200;
/// How many stretches a calendar remembers.
const STRETCHES_KEPT: usize = 16;

/// Up to which tick every slot is accounted for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calendar {
    /// Of this job.
    pub job: Name,
    /// With these parameters.
    #[serde(default, skip_serializing_if = "Fields::is_empty")]
    pub with: Fields,
    /// The schedule, as it was written.
    pub every: String,
    /// The time zone by its name; none if it has none, or the schedule needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tz: Option<String>,
    /// How long after it fell due a slot is to be done.
    pub grace_ms: u64,
    /// The first tick that was ever asked for: nothing before it is owed.
    pub since_ms: i64,
    /// The last tick that is accounted for, with all before it.
    pub through_ms: i64,
    /// Stretches of slots that were missed and are too many to be recorded one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stretches: Vec<Stretch>,
}

/// Slots that were missed and are not recorded one by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// After this moment.
    pub after_ms: i64,
    /// And before this one.
    pub before_ms: i64,
}

/// What becomes of slots that were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// Only the latest is run, however late.
    #[default]
    Latest,
    /// Not even that, once its grace has passed.
    None,
    /// All that fell due within so many milliseconds, oldest first.
    All {
        /// How far back.
        within_ms: u64,
    },
}

/// The occurrence of a schedule that a run is for.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// The schedule.
    pub schedule: Schedule,
    /// Its time zone.
    pub zone: TimeZone,
    /// The tick that is due.
    pub tick: Tick,
    /// How long after it a slot is to be done.
    pub grace_ms: u64,
}

/// Why a slot was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Nobody came.
    NoTrigger,
    /// Somebody came, and the resource was held for something else.
    Busy,
    /// Somebody came, and the store could not be reached.
    StoreDown,
    /// Somebody came, later than allowed.
    TooLate,
    /// Somebody came, and what they asked for could not be run.
    Refused,
}

impl Reason {
    /// In words, after "missed: ".
    pub fn words(self) -> &'static str {
        match self {
            Reason::NoTrigger => "nothing fired it",
            Reason::Busy => "its resource was busy",
            Reason::StoreDown => "the store could not be reached",
            Reason::TooLate => "it was fired too late",
            Reason::Refused => "what fired it could not be run",
        }
    }
}

/// The work of a series in this slot.
pub fn in_slot(work: &Work, slot: Slot) -> Result<Work, WorkError> {
    Work::in_slot(work.job().clone(), slot, work.params().clone())
}

impl Calendar {
    /// The work of this series in a slot.
    pub fn work(&self, slot: Slot) -> Result<Work, WorkError> {
        Work::in_slot(self.job.clone(), slot, self.with.clone())
    }

    /// The last tick that is accounted for.
    pub fn through(&self) -> Timestamp {
        moment(self.through_ms)
    }

    fn begun(work: &Work, occurrence: &Occurrence) -> Calendar {
        let at_ms = occurrence.tick.at.as_millisecond();
        Calendar {
            job: work.job().clone(),
            with: work.params().clone(),
            every: occurrence.schedule.as_str().to_owned(),
            tz: zone_name(occurrence),
            grace_ms: occurrence.grace_ms,
            since_ms: at_ms,
            through_ms: at_ms,
            stretches: Vec::new(),
        }
    }

    fn is_of(&self, occurrence: &Occurrence) -> bool {
        self.every == occurrence.schedule.as_str()
    }
}

fn zone_name(occurrence: &Occurrence) -> Option<String> {
    let zone = Some(&occurrence.zone).filter(|_| occurrence.schedule.is_zoned());
    zone.and_then(|zone| zone.iana_name()).map(str::to_owned)
}

fn moment(ms: i64) -> Timestamp {
    // a time that no calendar has can only stand there if somebody wrote it by hand
    Timestamp::from_millisecond(ms).unwrap_or(if ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// The calendar of a series that nobody has run yet: this occurrence is owed, and not accounted for.
pub fn asked_for(work: &Work, occurrence: &Occurrence) -> Calendar {
    let begun = Calendar::begun(work, occurrence);
    Calendar { through_ms: begun.through_ms.saturating_sub(1), ..begun }
}

/// What to write with the claim of this occurrence; nothing if it is accounted for already.
pub fn advance(
    seen: Option<&Seen<Calendar>>,
    work: &Work,
    occurrence: &Occurrence,
    now_ms: u64,
) -> Option<(Calendar, Expect)> {
    let begun = Calendar::begun(work, occurrence);
    let Some(Seen { value: stands, version }) = seen else { return Some((begun, Expect::Absent)) };
    let expect = Expect::Version(version.clone());
    if !stands.is_of(occurrence) {
        return Some((begun, expect));
    }
    // a tick that has not come yet was written by a clock that was wrong
    let ahead = i64::try_from(now_ms).is_ok_and(|now_ms| stands.through_ms > now_ms);
    let through_ms = if ahead { begun.through_ms } else { begun.through_ms.max(stands.through_ms) };
    let next = Calendar {
        tz: begun.tz,
        grace_ms: begun.grace_ms,
        since_ms: stands.since_ms.min(begun.since_ms),
        through_ms,
        ..stands.clone()
    };
    (next != *stands).then_some((next, expect))
}

/// The slots that nobody has accounted for yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// The newest of them, oldest first.
    pub ticks: Vec<Tick>,
    /// The others, if there are too many.
    pub stretch: Option<Stretch>,
}

impl Gap {
    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.ticks.is_empty() && self.stretch.is_none()
    }
}

/// The ticks between what is accounted for and the one that is due.
pub fn gap(calendar: Option<&Calendar>, occurrence: &Occurrence) -> Gap {
    let Some(calendar) = calendar.filter(|calendar| calendar.is_of(occurrence)) else {
        return Gap::default();
    };
    let through = calendar.through();
    let mut gap = Gap::default();
    let mut before = occurrence.tick.at;
    loop {
        let tick = occurrence.schedule.tick_before(&occurrence.zone, before);
        let Some(tick) = tick.filter(|tick| tick.at > through) else { break };
        before = tick.at;
        if gap.ticks.len() == GAP_LIMIT {
            gap.stretch = Some(Stretch {
                after_ms: calendar.through_ms,
                before_ms: gap.ticks.last().map_or(before, |tick| tick.at).as_millisecond(),
            });
            break;
        }
        gap.ticks.push(tick);
    }
    gap.ticks.reverse();
    gap
}

/// The calendar after the gap up to this tick was accounted for.
pub fn accounted(calendar: &Calendar, through: &Tick, stretch: Option<&Stretch>) -> Calendar {
    let mut next = calendar.clone();
    next.through_ms = next.through_ms.max(through.at.as_millisecond());
    next.stretches.extend(stretch.cloned());
    let excess = next.stretches.len().saturating_sub(STRETCHES_KEPT);
    next.stretches.drain(..excess);
    next
}

/// What to write of a gap: the slots in it that nobody ran, each only if it still has no entry, and the calendar after
/// them, as in a claim. What is told of them goes first: slots that are on record as missed are not found again, so
/// on a store that makes one change after another it would never be told.
pub fn account(
    seen: &Seen<Calendar>,
    through: &Tick,
    stretch: Option<&Stretch>,
    missed: Vec<Entry>,
    alarm: Option<Write>,
) -> Vec<Write> {
    let calendar = accounted(&seen.value, through, stretch);
    let expect = Expect::Version(seen.version.clone());
    let missed = missed.into_iter().map(|entry| Write::Entry { entry, expect: Expect::Absent });
    let mut writes: Vec<Write> = alarm.into_iter().chain(missed).collect();
    let at = if mutant::on(Mutant::CalendarFirst) { 0 } else { writes.len() };
    writes.insert(at, Write::Calendar { calendar, expect });
    writes
}

/// The entry of a slot that was missed.
pub fn missed(work: Work, reason: Reason, detail: Option<String>, terms: Terms, now_ms: u64) -> Entry {
    let state =
        State::Missed { reason, detail: detail.map(|text| text.chars().take(DETAIL_LIMIT).collect()) };
    Entry::new(work, state, terms, now_ms)
}

/// The ticks that may be owed with this one, oldest first: those within the time that is caught up, never before the
/// first that was asked for, and without the one that is due.
pub fn within(calendar: &Calendar, occurrence: &Occurrence, within_ms: u64, now_ms: u64) -> Vec<Tick> {
    let reach_ms = i64::try_from(now_ms.saturating_sub(within_ms)).unwrap_or(i64::MAX);
    let from_ms = reach_ms.max(calendar.since_ms);
    let mut ticks = Vec::new();
    let mut before = occurrence.tick.at;
    while ticks.len() < CATCH_UP_LIMIT {
        let tick = occurrence.schedule.tick_before(&occurrence.zone, before);
        let Some(tick) = tick.filter(|tick| tick.at.as_millisecond() >= from_ms) else { break };
        before = tick.at;
        ticks.push(tick);
    }
    ticks.reverse();
    ticks
}

/// Is the work of this slot still to be done, and by a run rather than a person?
pub fn is_owed(entry: Option<&Entry>, max_failures: u32) -> bool {
    let Some(entry) = entry else { return true };
    match &entry.state {
        State::Failed { .. } => !is_capped(entry.failures, max_failures),
        // what is left of one that was done and forgotten is open too
        State::Open { .. } => !entry.is_trace(),
        // whether it is lost, its claim finds out
        State::Missed { .. } | State::Running { .. } => true,
        State::Done { .. } | State::Quarantined | State::InDoubt { .. } => false,
    }
}

/// Is it owed without anybody asking for it by name? Every slot of a series that is owed has an entry: one without was
/// never expected, or was forgotten.
pub fn is_caught_up(entry: Option<&Entry>, max_failures: u32) -> bool {
    entry.is_some() && is_owed(entry, max_failures)
}

/// Was it done?
pub fn was_done(entry: &Entry) -> bool {
    matches!(entry.state, State::Done { .. }) || entry.is_trace()
}

/// The ticks up to an occurrence whose grace has passed, newest first: at most so many, and none from before the first
/// that was asked for.
pub fn past_grace(calendar: &Calendar, occurrence: &Occurrence, now_ms: u64, most: usize) -> Vec<Tick> {
    let Occurrence { schedule, zone, tick, .. } = occurrence;
    let grace_began_ms = i64::try_from(now_ms.saturating_sub(calendar.grace_ms)).unwrap_or(i64::MAX);
    let last = schedule.tick_at_or_before(zone, moment(grace_began_ms.saturating_sub(1)).min(tick.at));
    std::iter::successors(last, |tick| schedule.tick_before(zone, tick.at))
        .take_while(|tick| tick.at.as_millisecond() >= calendar.since_ms)
        .take(most)
        .collect()
}
