//! Slots from schedules: which occurrence is due, given a moment and a time zone.
//!
//! A schedule is a row of *ticks*, moments at which work falls due. Each tick has one [`Slot`], and the slot of a
//! firing is that of the last tick at or before it, never "now": a scheduler may fire late, twice or by hand, and
//! still means the same occurrence.
//!
//! | schedule | ticks | slot |
//! |---|---|---|
//! | `day` | the first moment of each local date | the date |
//! | `week` | the first moment of each Monday | that Monday's date |
//! | `month` | the first moment of each 1st | its date |
//! | `hour`, `15m`, `30s`, `6h` | every so long, counted from midnight UTC; must divide a day evenly | the moment in UTC |
//! | `0 2 * * *` | the times that a crontab line names, in the time zone | the moment in UTC |
//!
//! # When the clocks change
//!
//! *Each wall clock time once*: days, weeks, months, and cron expressions that name hours. Such a tick is the first
//! moment at which the wall clock shows its time or a later one. A time that is left out falls due at the end of the
//! gap, because that is when cron fires for it; a time that comes twice falls due the first time. Several times in
//! one gap are one tick. A date that a zone left out altogether (Apia, 2011-12-30) has no tick.
//!
//! *Every real interval*: intervals, and cron expressions whose hours are all 24. Such a tick is every moment at
//! which the wall clock shows a matching time: in an hour that comes twice they come twice, in one that is left out
//! there are none.
//!
//! So ticks never go back, whatever the wall clock does, and no two have the same moment or the same slot.
//!
//! # What is not promised
//!
//! A machine whose clock is wrong finds the slot of the wrong time. A slot does not know its schedule: a job whose
//! schedule is changed from `day` to `week` finds a Monday that was done as a day done as a week.

mod cron;
mod due;
mod remember;
mod wall;

use std::fmt;
use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use crate::name::Slot;
pub(crate) use cron::{ALL_HOURS, Expression};

pub use due::{AHEAD_MS, Due, NotDue, due};
pub use remember::ForgetsTooSoon;

/// The longest text that is read as a schedule.
const TEXT_LIMIT: usize = 256;
const DAY_SECONDS: i64 = 86_400;

/// When work falls due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    text: Box<str>,
    rule: Rule,
}

/// What kind it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Dates(Dates),
    /// Every so many seconds since the epoch; they divide a day evenly.
    Interval(i64),
    Cron(Expression),
}

/// Days, weeks and months: each is known by the date it starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dates {
    Day,
    Week,
    Month,
}

/// A moment at which work falls due, and the slot that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    /// When it falls due.
    pub at: Timestamp,
    /// The occurrence that it is.
    pub slot: Slot,
}

/// How far two ticks in a row are apart, on days of 24 hours. A change of the clocks moves either by as much as the
/// clock moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// At the least.
    pub shortest: Duration,
    /// At the most.
    pub longest: Duration,
}

/// Why a text is no [`Schedule`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Nothing was given.
    #[error(
        "is empty: write day, week, month, hour, an interval such as 15m, or a cron expression such as \"0 2 * * *\""
    )]
    Empty,
    /// Longer than any schedule needs to be.
    #[error("has {0} characters, and {TEXT_LIMIT} are the most: write a shorter one")]
    TooLong(usize),
    /// A word that is none of ours.
    #[error(
        "is no schedule: write day, week, month, hour, an interval such as 15m, or a cron expression such as \"0 2 * * *\""
    )]
    Unknown,
    /// An interval of nothing.
    #[error("is no interval: write 1s or longer")]
    Zero,
    /// An interval of a day or longer.
    #[error("is too long for an interval: slots of a day and longer are dates, so write day, week or month")]
    ADayOrLonger,
    /// An interval whose ticks would fall on other times every day.
    #[error(
        "does not divide a day evenly, so its slots would drift against whatever fires it: use {below} or {above}, or a cron expression"
    )]
    Uneven {
        /// The next shorter interval that does.
        below: String,
        /// The next longer one.
        above: String,
    },
    /// A cron expression has five fields.
    #[error(
        "has {0} fields; a cron expression has five: write minute, hour, day of month, month, day of week"
    )]
    Fields(usize),
    /// A field that cannot be read.
    #[error("has {text:?} as its {field} field, which cannot be read: {why}")]
    Field {
        /// Which.
        field: &'static str,
        /// As it was written.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// `@sometimes`.
    #[error("is no name of a schedule: write @hourly, @daily, @weekly, @monthly or @yearly")]
    Alias,
    /// `@reboot`.
    #[error("has no times, so no slots: write --always instead, or --key with the boot id")]
    Reboot,
    /// `0 0 30 2 *`.
    #[error("names a date that never comes: write a day that its month has")]
    Never,
}

impl Schedule {
    /// The schedule that a text names.
    pub fn parse(text: &str) -> Result<Schedule, ScheduleError> {
        let text = text.trim();
        let length = text.chars().count();
        if length > TEXT_LIMIT {
            return Err(ScheduleError::TooLong(length));
        }
        let rule = match text {
            "" => return Err(ScheduleError::Empty),
            "day" => Rule::Dates(Dates::Day),
            "week" => Rule::Dates(Dates::Week),
            "month" => Rule::Dates(Dates::Month),
            "hour" => Rule::Interval(3600),
            _ if text.starts_with('@') || text.contains(char::is_whitespace) => {
                Rule::Cron(Expression::parse(text)?)
            }
            _ => Rule::Interval(interval(text)?),
        };
        Ok(Schedule { text: text.into(), rule })
    }

    /// The schedule as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What it is made of, for whoever says it to another scheduler.
    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Do its ticks depend on the time zone?
    pub fn is_zoned(&self) -> bool {
        !matches!(self.rule, Rule::Interval(_))
    }

    /// The last tick at or before this moment. None only before the calendar begins.
    pub fn tick_at_or_before(&self, tz: &TimeZone, now: Timestamp) -> Option<Tick> {
        let now = wall::whole(now);
        match &self.rule {
            Rule::Dates(dates) => {
                let mut date = dates.at_or_before(wall::shown(tz, now).date())?;
                loop {
                    let at = wall::reached(tz, date.to_datetime(jiff::civil::Time::midnight()))?;
                    if at <= now {
                        return Some(Tick { at, slot: Slot::new(&date.to_string()).ok()? });
                    }
                    date = dates.at_or_before(date.yesterday().ok()?)?;
                }
            }
            Rule::Interval(seconds) => {
                let second = now.as_second();
                instant(Timestamp::from_second(second - second.rem_euclid(*seconds)).ok()?)
            }
            Rule::Cron(expression) => instant(expression.at_or_before(tz, now)?),
        }
    }

    /// The last tick before this moment. None only before the calendar begins.
    pub fn tick_before(&self, tz: &TimeZone, moment: Timestamp) -> Option<Tick> {
        self.tick_at_or_before(tz, moment.checked_sub(wall::SECOND).ok()?)
    }

    /// The first tick after this moment. None only when the calendar ends.
    pub fn next_after(&self, tz: &TimeZone, moment: Timestamp) -> Option<Tick> {
        let moment = wall::whole(moment);
        match &self.rule {
            Rule::Dates(dates) => {
                let mut date = wall::shown(tz, moment).date();
                loop {
                    date = dates.after(date)?;
                    let at = wall::reached(tz, date.to_datetime(jiff::civil::Time::midnight()))?;
                    if at > moment {
                        // a date that the zone left out begins when the next one does: the last of them counts
                        return self.tick_at_or_before(tz, at);
                    }
                }
            }
            Rule::Interval(seconds) => {
                let last = self.tick_at_or_before(tz, moment)?.at;
                instant(last.checked_add(SignedDuration::from_secs(*seconds)).ok()?)
            }
            Rule::Cron(expression) => instant(expression.after(tz, moment)?),
        }
    }

    /// The ticks after one moment, up to and with another; made one at a time.
    pub fn ticks<'a>(&'a self, tz: &'a TimeZone, after: Timestamp, until: Timestamp) -> Ticks<'a> {
        Ticks { schedule: self, tz, after, until }
    }

    /// How long after a tick its slot is to be done, where nobody says otherwise: a day, a week, a month and an
    /// interval last until the next; a cron expression names a time, and an hour after it is late.
    pub fn usual_grace(&self) -> Duration {
        let Period { shortest, longest } = self.period();
        match &self.rule {
            Rule::Dates(_) | Rule::Interval(_) => longest,
            Rule::Cron(_) => shortest.min(Duration::from_secs(3600)),
        }
    }

    /// How far two ticks in a row are apart.
    pub fn period(&self) -> Period {
        let days = |n: u64| Duration::from_secs(n * 86_400);
        let between = |shortest, longest| Period { shortest, longest };
        match &self.rule {
            Rule::Dates(Dates::Day) => between(days(1), days(1)),
            Rule::Dates(Dates::Week) => between(days(7), days(7)),
            Rule::Dates(Dates::Month) => between(days(28), days(31)),
            Rule::Interval(seconds) => {
                let length = Duration::from_secs(seconds.unsigned_abs());
                between(length, length)
            }
            Rule::Cron(expression) => expression.period(),
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// See [`Schedule::ticks`].
#[derive(Clone, Debug)]
pub struct Ticks<'a> {
    schedule: &'a Schedule,
    tz: &'a TimeZone,
    after: Timestamp,
    until: Timestamp,
}

impl Iterator for Ticks<'_> {
    type Item = Tick;

    fn next(&mut self) -> Option<Tick> {
        let tick = self.schedule.next_after(self.tz, self.after).filter(|tick| tick.at <= self.until)?;
        self.after = tick.at;
        Some(tick)
    }
}

impl Dates {
    /// The last date at or before this one with which a day, a week or a month begins.
    fn at_or_before(self, date: Date) -> Option<Date> {
        match self {
            Dates::Day => Some(date),
            Dates::Week => date.checked_sub(i32::from(date.weekday().to_monday_zero_offset()).days()).ok(),
            Dates::Month => Some(date.first_of_month()),
        }
    }

    /// The first one after it.
    fn after(self, date: Date) -> Option<Date> {
        let start = self.at_or_before(date)?;
        match self {
            Dates::Day => start.checked_add(1.day()).ok(),
            Dates::Week => start.checked_add(1.week()).ok(),
            Dates::Month => start.checked_add(1.month()).ok(),
        }
    }
}

/// The tick whose slot is its own moment: one format, in UTC, whatever the zone is called.
fn instant(at: Timestamp) -> Option<Tick> {
    Some(Tick { at, slot: Slot::new(&at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).ok()? })
}

/// A number and a unit, in seconds.
fn interval(text: &str) -> Result<i64, ScheduleError> {
    let unit = text.chars().last().filter(|unit| matches!(unit, 's' | 'm' | 'h' | 'd'));
    let (Some(unit), true) = (unit, text.starts_with(|c: char| c.is_ascii_digit())) else {
        return Err(ScheduleError::Unknown);
    };
    let digits = &text[..text.len() - 1];
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(ScheduleError::Unknown);
    }
    let unit_seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => DAY_SECONDS,
    };
    // more digits than fit are more than a day
    let number: i64 = digits.parse().unwrap_or(i64::MAX);
    let seconds = number.saturating_mul(unit_seconds);
    match seconds {
        0 => Err(ScheduleError::Zero),
        DAY_SECONDS.. => Err(ScheduleError::ADayOrLonger),
        _ if DAY_SECONDS % seconds == 0 => Ok(seconds),
        _ => {
            let even = |n: &i64| DAY_SECONDS % (n * unit_seconds) == 0;
            let below = (1..number).rev().find(even).unwrap_or(1);
            let above = (number..=DAY_SECONDS / unit_seconds).find(even).unwrap_or(number);
            let above =
                if above * unit_seconds == DAY_SECONDS { "day".to_owned() } else { format!("{above}{unit}") };
            Err(ScheduleError::Uneven { below: format!("{below}{unit}"), above })
        }
    }
}

/// Why a text is not the time that a scheduler had in mind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduledForError {
    /// Nothing was given.
    #[error(
        "is empty: the scheduler did not say (a Job that was made by hand has no scheduled time): leave it out, or say --slot ID"
    )]
    Empty,
    /// Neither of the two forms.
    #[error(
        "is no scheduled time: write it with its offset, as in 2026-06-19T02:00:00Z, or give the name of a CronJob's Job, as in backup-29697240"
    )]
    Unknown,
}

/// The time that a scheduler had in mind, as it says it: a moment with its offset (RFC 3339; Kubernetes'
/// `batch.kubernetes.io/cronjob-scheduled-timestamp`), or the name of a CronJob's Job, which ends with the scheduled
/// time in minutes since 1970 (its Pods know it by their label `batch.kubernetes.io/job-name`).
pub fn scheduled_for(text: &str) -> Result<Timestamp, ScheduledForError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ScheduledForError::Empty);
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    // eight digits of minutes reach from 1989 to 2160
    let minutes = text
        .rsplit_once('-')
        .filter(|(name, digits)| {
            let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'.');
            name.bytes().all(plain) && name.bytes().any(|c| c.is_ascii_lowercase()) && digits.len() == 8
        })
        .and_then(|(_, digits)| digits.parse::<u32>().ok());
    let moment = minutes.and_then(|minutes| Timestamp::from_second(i64::from(minutes) * 60).ok());
    moment.ok_or(ScheduledForError::Unknown)
}
