//! A job with a schedule: which slot it means is known only when it is run, by the engine's clock.
//!
//! The rule is [`semel_core::schedule`]'s, and the command line's is the same.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use semel_core::calendar::Occurrence;
use semel_core::name::{Name, Slot};
use semel_core::schedule::{Schedule, due, scheduled_for};
use semel_core::work::{Fields, Work};

use super::job::JobError;
use super::ms;

/// What was said of a schedule, not looked at yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) every: Option<String>,
    pub(super) tz: Option<String>,
    pub(super) scheduled_for: Option<String>,
    pub(super) max_late: Option<Duration>,
}

/// A schedule, and whatever else is known of a work before its slot is.
#[derive(Clone, Debug)]
pub(super) struct Scheduled {
    job: Name,
    with: Fields,
    schedule: Schedule,
    zone: TimeZone,
    meant: Option<Timestamp>,
    max_late_ms: Option<u64>,
}

/// A work that is due.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) work: Work,
    pub(super) slot: Slot,
    /// When it fell due, in milliseconds since 1970.
    pub(super) due_ms: u64,
    pub(super) start_within_ms: Option<u64>,
    /// What the calendar of the series is told.
    pub(super) occurrence: Occurrence,
}

impl Said {
    /// The schedule, if one was said and makes sense.
    pub(super) fn check(
        self,
        job: &Name,
        with: &Fields,
        remember_ms: Option<u64>,
    ) -> Result<Option<Scheduled>, JobError> {
        let Some(text) = self.every else {
            let alone = [
                ("tz", self.tz.is_some()),
                ("scheduled_for", self.scheduled_for.is_some()),
                ("max_late", self.max_late.is_some()),
            ];
            let alone = alone.iter().find(|(_, said)| *said);
            return alone.map_or(Ok(None), |(what, _)| Err(JobError::NeedsSchedule(what)));
        };
        let schedule = Schedule::parse(&text).map_err(|why| JobError::Schedule { text, why })?;
        if let Some(remember_ms) = remember_ms {
            schedule.check_remember(remember_ms, 0)?;
        }
        let zone = match self.tz {
            Some(name) => TimeZone::get(&name).map_err(|_| JobError::Zone(name))?,
            None if schedule.is_zoned() => TimeZone::try_system().map_err(|_| JobError::NoZone)?,
            None => TimeZone::UTC,
        };
        let meant = self
            .scheduled_for
            .map(|text| scheduled_for(&text).map_err(|why| JobError::ScheduledFor { text, why }));
        let scheduled = Scheduled {
            job: job.clone(),
            with: with.clone(),
            schedule,
            zone,
            meant: meant.transpose()?,
            max_late_ms: self.max_late.map(ms),
        };
        // whatever is wrong with the parameters is wrong now
        scheduled.work(Slot::new("2026-06-19T02:00:00Z").map_err(|_| JobError::Undecided)?)?;
        Ok(Some(scheduled))
    }
}

impl Scheduled {
    fn work(&self, slot: Slot) -> Result<Work, JobError> {
        Ok(Work::in_slot(self.job.clone(), slot, self.with.clone())?)
    }

    /// The work that is due at this time of the engine's clock.
    pub(super) fn due(&self, now_ms: u64) -> Result<Due, JobError> {
        let now = i64::try_from(now_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let now = now.ok_or(JobError::Clock(now_ms))?;
        let due = due(&self.schedule, &self.zone, now, self.meant)?;
        Ok(Due {
            work: self.work(due.tick.slot.clone())?,
            due_ms: u64::try_from(due.tick.at.as_millisecond()).unwrap_or(0),
            start_within_ms: self.max_late_ms.map(|most_ms| due.start_within_ms(most_ms)),
            slot: due.tick.slot.clone(),
            occurrence: Occurrence {
                schedule: self.schedule.clone(),
                zone: self.zone.clone(),
                tick: due.tick,
                grace_ms: ms(self.schedule.usual_grace()),
            },
        })
    }
}
