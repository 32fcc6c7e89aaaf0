//! Cron expressions: which wall clock times they name, and when those fall due.
//!
//! The expression is read by `cronexpr`, one field at a time, into sets; the calendar and the changes of the clock
//! are here. Classic crontab lines only: no seconds, no years, no `L`, `W`, `#` or `?`, because what they mean differs
//! from one scheduler to the next.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time, date};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::{Period, ScheduleError};
use crate::schedule::wall;

/// Longer than any date is away from its next occurrence: the 29th of February on a given weekday, around 1900 or 2100.
const SEARCH_DAYS: u32 = 41 * 366;
/// After 400 years the calendar repeats itself, weekdays included.
const CALENDAR_DAYS: u64 = 146_097;
/// More than there are changes of the clocks in that time.
const SEARCH_CHANGES: u32 = 1_000;
pub(crate) const ALL_HOURS: u32 = 0xff_ffff;

/// What a crontab line names. Bit n of a set stands for the value n.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expression {
    pub(crate) minutes: u64,
    pub(crate) hours: u32,
    pub(crate) days: u32,
    pub(crate) months: u16,
    /// 0 is Sunday.
    pub(crate) weekdays: u8,
    /// Both fields of days are restricted: either suffices.
    pub(crate) either: bool,
}

impl Expression {
    pub(super) fn parse(text: &str) -> Result<Expression, ScheduleError> {
        let text = match text {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@reboot" => return Err(ScheduleError::Reboot),
            _ if text.starts_with('@') => return Err(ScheduleError::Alias),
            _ => text,
        };
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(ScheduleError::Fields(fields.len()));
        };
        // a month of 31 days that begins with a Sunday
        let start = date(2023, 1, 1);
        let expression = Expression {
            minutes: set("minute", minute, 0, 0..60, |n| start.at(0, n, 0, 0))?,
            hours: narrow(set("hour", hour, 1, 0..24, |n| start.at(n, 0, 0, 0))?),
            days: narrow(set("day of month", day, 2, 1..32, |n| date(2023, 1, n).at(0, 0, 0, 0))?),
            months: narrow(set("month", month, 3, 1..13, |n| date(2023, n, 1).at(0, 0, 0, 0))?),
            weekdays: narrow(set("day of week", weekday, 4, 0..7, |n| date(2023, 1, 1 + n).at(0, 0, 0, 0))?),
            // as cron has it: a field that starts with a star restricts nothing by itself
            either: !day.starts_with('*') && !weekday.starts_with('*'),
        };
        match expression.date_from(start) {
            Some(_) => Ok(expression),
            None => Err(ScheduleError::Never),
        }
    }

    /// The last tick at or before this moment.
    pub(super) fn at_or_before(&self, tz: &TimeZone, now: Timestamp) -> Option<Timestamp> {
        if self.hours == ALL_HOURS { self.real_until(tz, now) } else { self.once_until(tz, now) }
    }

    /// The first tick after this moment.
    pub(super) fn after(&self, tz: &TimeZone, moment: Timestamp) -> Option<Timestamp> {
        if self.hours == ALL_HOURS { self.real_after(tz, moment) } else { self.once_after(tz, moment) }
    }

    /// Each wall clock time once.
    fn once_until(&self, tz: &TimeZone, now: Timestamp) -> Option<Timestamp> {
        let mut time = self.time_until(wall::shown(tz, now))?;
        loop {
            let at = wall::reached(tz, time)?;
            if at <= now && exists(tz, time.date()) {
                return Some(at);
            }
            time = self.time_until(time.checked_sub(1.minute()).ok()?)?;
        }
    }

    fn once_after(&self, tz: &TimeZone, moment: Timestamp) -> Option<Timestamp> {
        let mut time = wall::shown(tz, moment);
        loop {
            time = self.time_from(next_minute(time)?)?;
            let at = wall::reached(tz, time)?;
            if at > moment && exists(tz, time.date()) {
                return Some(at);
            }
        }
    }

    /// Every moment at which the wall clock shows a matching time: between two changes of the clock that is plain
    /// arithmetic.
    fn real_until(&self, tz: &TimeZone, now: Timestamp) -> Option<Timestamp> {
        let mut to = now;
        for _ in 0..SEARCH_CHANGES {
            let offset = tz.to_offset(to);
            let at = offset.to_timestamp(self.time_until(offset.to_datetime(to))?).ok()?;
            match wall::changes_until(tz, to).next() {
                Some(change) if at < change => to = change.checked_sub(wall::SECOND).ok()?,
                _ => return Some(at),
            }
        }
        None
    }

    pub(crate) fn real_after(&self, tz: &TimeZone, moment: Timestamp) -> Option<Timestamp> {
        let mut from = moment.checked_add(wall::SECOND).ok()?;
        for _ in 0..SEARCH_CHANGES {
            let offset = tz.to_offset(from);
            let shown = offset.to_datetime(from);
            let first = if shown.second() == 0 { shown } else { next_minute(shown)? };
            let at = offset.to_timestamp(self.time_from(first)?).ok()?;
            match wall::change_after(tz, from) {
                Some(change) if at >= change => from = change,
                _ => return Some(at),
            }
        }
        None
    }

    /// The last time at or before this one, on the calendar alone.
    fn time_until(&self, time: DateTime) -> Option<DateTime> {
        let date = time.date();
        let today = if self.names(date) { self.clock_until(time.hour(), time.minute()) } else { None };
        match today {
            Some(clock) => Some(date.to_datetime(clock)),
            None => {
                let date = self.date_until(date.yesterday().ok()?)?;
                Some(date.to_datetime(self.clock_until(23, 59)?))
            }
        }
    }

    /// The first time at or after this one, on the calendar alone.
    fn time_from(&self, time: DateTime) -> Option<DateTime> {
        let date = time.date();
        let today = if self.names(date) { self.clock_from(time.hour(), time.minute()) } else { None };
        match today {
            Some(clock) => Some(date.to_datetime(clock)),
            None => {
                let date = self.date_from(date.tomorrow().ok()?)?;
                Some(date.to_datetime(self.clock_from(0, 0)?))
            }
        }
    }

    fn clock_until(&self, hour: i8, minute: i8) -> Option<Time> {
        let in_hour = |hour, most| {
            let minute = (0..=most).rev().find(|minute| has(self.minutes, *minute))?;
            Time::new(hour, minute, 0, 0).ok()
        };
        let this = if has(self.hours.into(), hour) { in_hour(hour, minute) } else { None };
        this.or_else(|| in_hour((0..hour).rev().find(|hour| has(self.hours.into(), *hour))?, 59))
    }

    fn clock_from(&self, hour: i8, minute: i8) -> Option<Time> {
        let in_hour = |hour, least| {
            let minute = (least..60).find(|minute| has(self.minutes, *minute))?;
            Time::new(hour, minute, 0, 0).ok()
        };
        let this = if has(self.hours.into(), hour) { in_hour(hour, minute) } else { None };
        this.or_else(|| in_hour((hour + 1..24).find(|hour| has(self.hours.into(), *hour))?, 0))
    }

    fn date_until(&self, date: Date) -> Option<Date> {
        let mut date = date;
        for _ in 0..SEARCH_DAYS {
            if self.names(date) {
                return Some(date);
            }
            date = date.yesterday().ok()?;
        }
        None
    }

    fn date_from(&self, date: Date) -> Option<Date> {
        let mut date = date;
        for _ in 0..SEARCH_DAYS {
            if self.names(date) {
                return Some(date);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// Is this one of its dates?
    fn names(&self, date: Date) -> bool {
        let day = has(self.days.into(), date.day());
        let weekday = has(self.weekdays.into(), date.weekday().to_sunday_zero_offset());
        has(self.months.into(), date.month()) && if self.either { day || weekday } else { day && weekday }
    }

    pub(super) fn period(&self) -> Period {
        let mut gaps = Gaps::default();
        let hours = (0..24).filter(|hour| has(self.hours.into(), *hour));
        let clock = hours.flat_map(|hour| {
            let minutes = (0..60).filter(|minute| has(self.minutes, *minute));
            minutes.map(move |minute| u64::from(hour.unsigned_abs()) * 60 + u64::from(minute.unsigned_abs()))
        });
        let clock: Vec<u64> = clock.collect();
        for pair in clock.windows(2) {
            gaps.add(pair[1] - pair[0]);
        }
        let within = clock.last().zip(clock.first()).map_or(0, |(last, first)| last - first);
        let (mut last, mut day) = (None, date(2000, 1, 1));
        for number in 0..CALENDAR_DAYS + u64::from(SEARCH_DAYS) {
            if self.names(day) {
                if let Some(last) = last {
                    gaps.add((number - last) * 1440 - within);
                }
                last = Some(number);
            }
            match day.tomorrow() {
                Ok(next) => day = next,
                Err(_) => break,
            }
        }
        let minutes = |n: u64| Duration::from_secs(n * 60);
        Period { shortest: minutes(gaps.shortest.unwrap_or(gaps.longest)), longest: minutes(gaps.longest) }
    }
}

#[derive(Default)]
struct Gaps {
    shortest: Option<u64>,
    longest: u64,
}

impl Gaps {
    fn add(&mut self, minutes: u64) {
        self.shortest = Some(self.shortest.map_or(minutes, |shortest| shortest.min(minutes)));
        self.longest = self.longest.max(minutes);
    }
}

fn next_minute(time: DateTime) -> Option<DateTime> {
    let start = time.date().to_datetime(Time::new(time.hour(), time.minute(), 0, 0).ok()?);
    start.checked_add(1.minute()).ok()
}

/// Does the zone have this date at all?
fn exists(tz: &TimeZone, date: Date) -> bool {
    let reached = |date: Date| wall::reached(tz, date.to_datetime(Time::midnight()));
    let next = date.tomorrow().ok().and_then(reached);
    // at the end of the calendar there is nothing to compare with
    reached(date).zip(next).is_none_or(|(start, end)| start < end)
}

fn has(set: u64, n: i8) -> bool {
    u32::try_from(n).is_ok_and(|n| set >> n & 1 == 1)
}

/// A set whose highest bit is known to fit.
fn narrow<T: TryFrom<u64> + Default>(set: u64) -> T {
    T::try_from(set).unwrap_or_default()
}

/// The values that one field of a crontab line names: those whose time matches a line that has only this field.
fn set(
    field: &'static str,
    text: &str,
    place: usize,
    values: std::ops::Range<i8>,
    time: impl Fn(i8) -> DateTime,
) -> Result<u64, ScheduleError> {
    let wrong = || {
        let (least, most) = (values.start, if place == 4 { 7 } else { values.end - 1 });
        let names = match place {
            3 => " or names (JAN to DEC)",
            4 => " or names (SUN to SAT)",
            _ => "",
        };
        let why = format!(
            "write numbers from {least} to {most}{names}, *, lists (1,2), ranges (1-5) and steps (*/15) only"
        );
        ScheduleError::Field { field, text: text.to_owned(), why }
    };
    // names have three letters; whatever else has letters or signs is somebody's extension
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '*' | ',' | '-' | '/');
    let letters = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    let (mut letters, named) = (letters.peekable(), place >= 3);
    if !text.chars().all(plain) || letters.peek().is_some() && !(named && letters.all(|word| word.len() == 3))
    {
        return Err(wrong());
    }
    let mut line = ["*"; 5];
    if let Some(field) = line.get_mut(place) {
        *field = text;
    }
    let mut options = cronexpr::ParseOptions::default();
    options.fallback_timezone_option = cronexpr::FallbackTimezoneOption::UTC;
    let crontab = cronexpr::parse_crontab_with(&line.join(" "), options).map_err(|_| wrong())?;
    let named = |n: &i8| {
        let moment = jiff::tz::Offset::UTC.to_timestamp(time(*n));
        moment.is_ok_and(|moment| crontab.matches(moment).unwrap_or(false))
    };
    Ok(values.filter(named).filter_map(|n| u32::try_from(n).ok()).fold(0, |set, n| set | 1 << n))
}
