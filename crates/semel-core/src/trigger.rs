//! When another scheduler must fire so that every slot of a [`Schedule`] is met.
//!
//! A slot does not depend on when it is fired within its period, and a second firing is a skip. So a trigger need not
//! fire at the tick itself, only *at least once in each slot*. That leaves freedom, and it is used:
//!
//! | schedule | fires |
//! |---|---|
//! | `day`, `week`, `month` | between 04:00 and 06:59, at a minute chosen by the job's name: hardly any zone changes its clocks then |
//! | `hour` and whole hours | at a minute chosen by the job's name |
//! | shorter | with the tick |
//! | a crontab line | when it says |
//!
//! `--max-late` narrows what may be chosen. A scheduler whose clock is in another zone is told every time of its own
//! clock at which the job's clock may show the right one: both sides of a change. One that leaves out a time that the
//! clock leaves out is told the end of the gap as well, in the month and on the weekdays of such gaps.
//!
//! Nothing is believed: [`on_clock`] walks through the slots around every change of the clocks in the given time, and
//! answers only with lines that meet each of them.
//!
//! # What is not promised
//!
//! One firing per slot: there may be more, and each of them tries a slot again that has failed. Rules of zones that are made
//! later than the database that was read.

mod text;
mod zones;

use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::schedule::{ALL_HOURS, Dates, Expression, Rule, Schedule};

pub use text::{Fire, interval_calendar};
pub use zones::{Clocks, on_clock};

pub(crate) const ALL_MINUTES: u64 = 0xfff_ffff_ffff_ffff;
pub(crate) const ALL_DAYS: u32 = 0xffff_fffe;
pub(crate) const ALL_MONTHS: u16 = 0x1ffe;
pub(crate) const ALL_WEEKDAYS: u8 = 0x7f;

/// Dates begin to be fired at this minute of the day,
const DATES_FROM: u64 = 4 * 60;
/// and within so many.
const DATES_SPREAD: u64 = 3 * 60;
/// Whole hours are fired within so many minutes: what is fired a little late must not be in the next one.
const HOURS_SPREAD: u64 = 50;
/// More lines than that are worse than firings in vain.
const EXACT_LINES: usize = 2;

/// What is to be fired.
#[derive(Clone, Copy, Debug)]
pub struct Wish<'a> {
    /// When it falls due.
    pub schedule: &'a Schedule,
    /// The job's name: it chooses the minute where any will do.
    pub job: &'a str,
    /// How late a slot may be begun.
    pub max_late: Option<Duration>,
}

/// Times at which to fire, as a crontab line says them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line(Expression);

/// Why a scheduler cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untellable {
    /// A crontab counts in minutes.
    #[error("counts in seconds, and this scheduler in minutes: use 1m or longer, or say it to systemd")]
    Seconds,
    /// It fires at most every so often.
    #[error("is shorter than the {0} that this scheduler takes at the least: use a longer one")]
    TooShort(&'static str),
    /// More entries than anybody wants.
    #[error("names {0} times, and this scheduler has to be told each of them: use an interval, or fewer")]
    TooMany(usize),
    /// The clocks of the two zones are apart by parts of a minute, or no line meets every slot.
    #[error("cannot be said on a clock in that zone: some slot would not be fired")]
    Unmet,
}

impl Line {
    /// An expression whose two fields of days mean what they say.
    pub(crate) fn new(mut times: Expression) -> Line {
        // every day or some of them is every day
        if times.either && (times.days == ALL_DAYS || times.weekdays == ALL_WEEKDAYS) {
            (times.days, times.weekdays, times.either) = (ALL_DAYS, ALL_WEEKDAYS, false);
        }
        Line(times)
    }

    fn every_day(minutes: u64, hours: u32) -> Expression {
        let (days, months, weekdays) = (ALL_DAYS, ALL_MONTHS, ALL_WEEKDAYS);
        Expression { minutes, hours, days, months, weekdays, either: false }
    }
}

impl Wish<'_> {
    /// Was the time of day or the minute chosen here?
    pub fn is_chosen(&self) -> bool {
        match self.schedule.rule() {
            Rule::Dates(_) => true,
            Rule::Interval(seconds) => *seconds >= 3600 && seconds % 3600 == 0,
            Rule::Cron(_) => false,
        }
    }

    /// May it be fired anywhere in its slot?
    fn is_free(&self) -> bool {
        match self.schedule.rule() {
            Rule::Dates(_) => true,
            Rule::Interval(seconds) => *seconds >= 3600,
            Rule::Cron(_) => false,
        }
    }

    /// The seconds of an interval that is not made of whole minutes.
    pub fn odd_seconds(&self) -> Option<u64> {
        match self.schedule.rule() {
            Rule::Interval(seconds) if seconds % 60 != 0 => Some(seconds.unsigned_abs()),
            _ => None,
        }
    }

    /// Does it come every real interval, in an hour that comes twice too? A scheduler that fires each time of its
    /// clock once must be told on a clock that is never changed.
    pub fn is_steady(&self) -> bool {
        match self.schedule.rule() {
            Rule::Dates(_) => false,
            Rule::Interval(_) => true,
            Rule::Cron(expression) => expression.hours == ALL_HOURS,
        }
    }

    /// The crontab line as it was written, if these lines say the same.
    pub fn as_written(&self, lines: &[Line]) -> Option<&str> {
        match self.schedule.rule() {
            Rule::Cron(expression) if lines == [Line::new(expression.clone())] => {
                Some(self.schedule.as_str())
            }
            _ => None,
        }
    }

    /// The lines on the clock of the job's own zone, or of UTC for an interval.
    fn lines(&self) -> Result<Vec<Line>, Untellable> {
        match self.schedule.rule() {
            Rule::Dates(dates) => Ok(vec![self.date(*dates)]),
            Rule::Interval(seconds) if seconds % 60 != 0 => Err(Untellable::Seconds),
            Rule::Interval(seconds) => Ok(self.interval(seconds.unsigned_abs() / 60)),
            Rule::Cron(expression) => Ok(vec![Line::new(expression.clone())]),
        }
    }

    fn date(&self, dates: Dates) -> Line {
        let narrow =
            self.max_late.map(|most| most.as_secs() / 60).filter(|most| *most < DATES_FROM + DATES_SPREAD);
        let minute = match narrow {
            None => DATES_FROM + self.spread(DATES_SPREAD),
            Some(most) => self.spread(most / 2 + 1),
        };
        let mut times = Line::every_day(1 << (minute % 60), bit(minute / 60));
        match dates {
            Dates::Day => {}
            Dates::Week => times.weekdays = 1 << 1,
            Dates::Month => times.days = 1 << 1,
        }
        Line::new(times)
    }

    /// Every so many minutes, which divide a day.
    fn interval(&self, minutes: u64) -> Vec<Line> {
        let late = self.max_late.map_or(HOURS_SPREAD, |most| (most.as_secs() / 120).min(HOURS_SPREAD));
        match minutes {
            1.. if 60 % minutes == 0 && minutes < 60 => {
                let set =
                    (0..60).step_by(usize::try_from(minutes).unwrap_or(1)).fold(0, |set, n| set | 1 << n);
                vec![Line::new(Line::every_day(set, ALL_HOURS))]
            }
            60.. if minutes.is_multiple_of(60) => {
                let step = usize::try_from(minutes / 60).unwrap_or(1);
                let hours = (0..24).step_by(step).fold(0, |set, n| set | 1 << n);
                vec![Line::new(Line::every_day(1 << self.spread(late + 1), hours))]
            }
            _ => {
                let exact = exact_lines(minutes);
                if exact.len() <= EXACT_LINES {
                    return exact;
                }
                // more often than needed, so that some firing is in each slot
                let often = (1..=60).rev().find(|n| 60 % n == 0 && *n <= minutes).unwrap_or(1);
                let set = (0..60).step_by(often as usize).fold(0, |set, n| set | 1 << n);
                vec![Line::new(Line::every_day(set, ALL_HOURS))]
            }
        }
    }

    /// A number below this one, by the job's name alone.
    fn spread(&self, below: u64) -> u64 {
        let digest = Sha256::digest(self.job.as_bytes());
        let number = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        number % below.max(1)
    }
}

/// A name in small letters, digits and single dashes, of at most `most` characters (at least 16): two jobs never share one.
pub fn slug(name: &str, most: usize) -> String {
    let mut slug = String::new();
    for c in name.chars() {
        match c.to_ascii_lowercase() {
            c if c.is_ascii_alphanumeric() => slug.push(c),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    if slug == name && slug.len() <= most && !slug.ends_with('-') {
        return slug;
    }
    let digest = Sha256::digest(name.as_bytes());
    let mark: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    slug.truncate(most.max(16) - mark.len() - 1);
    format!("{}-{mark}", slug.trim_end_matches('-')).trim_start_matches('-').to_owned()
}

fn bit(n: u64) -> u32 {
    1 << (n % 32)
}

/// Every so many minutes from midnight, one line for the minutes that share their hours.
fn exact_lines(minutes: u64) -> Vec<Line> {
    let mut hours_of = [0u32; 60];
    let mut minute = 0;
    while minutes > 0 && minute < 1440 {
        if let Some(hours) = hours_of.get_mut(usize::try_from(minute % 60).unwrap_or(0)) {
            *hours |= bit(minute / 60);
        }
        minute += minutes;
    }
    let each = hours_of.iter().enumerate().filter(|(_, hours)| **hours != 0);
    merged(each.map(|(minute, hours)| Line::every_day(1 << minute, *hours)).collect())
}

/// Fewer lines that say the same.
fn merged(lines: Vec<Expression>) -> Vec<Line> {
    let mut out: Vec<Expression> = Vec::new();
    let days = |a: &Expression, b: &Expression| {
        (a.days, a.months, a.weekdays, a.either) == (b.days, b.months, b.weekdays, b.either)
    };
    for line in lines {
        match out.iter_mut().find(|other| other.minutes == line.minutes && days(other, &line)) {
            Some(other) => other.hours |= line.hours,
            None => out.push(line),
        }
    }
    let mut fewer: Vec<Expression> = Vec::new();
    for line in out {
        match fewer.iter_mut().find(|other| other.hours == line.hours && days(other, &line)) {
            Some(other) => other.minutes |= line.minutes,
            None => fewer.push(line),
        }
    }
    fewer.into_iter().map(Line::new).collect()
}
