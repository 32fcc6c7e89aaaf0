//! A line as each scheduler writes it.

use super::{ALL_DAYS, ALL_HOURS, ALL_MINUTES, ALL_MONTHS, ALL_WEEKDAYS, Line, Untellable};
use crate::schedule::Expression;

const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
/// More entries than that of one job nobody reads.
const MOST_ENTRIES: usize = 400;
/// More lines than that for one interval are worse than firings in vain.
const MOST_LINES: usize = 6;

/// A time at which launchd fires; what is not named does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fire {
    /// 1 to 12.
    pub month: Option<u8>,
    /// 1 to 31.
    pub day: Option<u8>,
    /// 0 is Sunday.
    pub weekday: Option<u8>,
    /// 0 to 23.
    pub hour: Option<u8>,
    /// 0 to 59.
    pub minute: Option<u8>,
}

impl Line {
    /// The five fields of a crontab, in numbers that every reader of such lines takes.
    pub fn crontab(&self) -> String {
        let Expression { minutes, hours, days, months, weekdays, either } = self.0;
        let both = days != ALL_DAYS && weekdays != ALL_WEEKDAYS;
        // a field that begins with a star makes the other one decide as well
        let (starred, week) = (field(days.into(), 1..32, true), field(weekdays.into(), 0..7, true));
        let (day, weekday) = match () {
            () if both && either => (field(days.into(), 1..32, false), field(weekdays.into(), 0..7, false)),
            () if both && starred.starts_with('*') => (starred, field(weekdays.into(), 0..7, false)),
            () if both && week.starts_with('*') => (field(days.into(), 1..32, false), week),
            // it cannot be said that both must match: fired too often is right too
            () if both => ("*".to_owned(), field(weekdays.into(), 0..7, false)),
            () => (field(days.into(), 1..32, true), field(weekdays.into(), 0..7, false)),
        };
        let minute = field(minutes, 0..60, true);
        let hour = field(hours.into(), 0..24, true);
        format!("{minute} {hour} {day} {} {weekday}", field(months.into(), 1..13, true))
    }

    /// As `OnCalendar=` of systemd has it, without the zone; two of them where either of two fields suffices.
    pub fn on_calendar(&self) -> Vec<String> {
        let Expression { minutes, hours, days, months, weekdays, either } = self.0;
        let of = |days: u32, weekdays: u8| {
            let names = match weekdays {
                ALL_WEEKDAYS => String::new(),
                _ => format!("{} ", weekday_names(weekdays)),
            };
            let (month, day) = (part(months.into(), 1..13), part(days.into(), 1..32));
            format!("{names}*-{month}-{day} {}:{}:00", part(hours.into(), 0..24), part(minutes, 0..60))
        };
        match either {
            true => vec![of(days, ALL_WEEKDAYS), of(ALL_DAYS, weekdays)],
            false => vec![of(days, weekdays)],
        }
    }

    /// As `StartCalendarInterval` of launchd has it: every single time.
    pub fn start_calendar(&self) -> Result<Vec<Fire>, Untellable> {
        let Expression { minutes, hours, days, months, weekdays, either } = self.0;
        let some = |set: u64, all: u64| -> Vec<Option<u8>> {
            if set == all {
                return vec![None];
            }
            (0..64u8).filter(|n| set >> n & 1 == 1).map(Some).collect()
        };
        let dates = |days: u32, weekdays: u8| {
            (some(days.into(), ALL_DAYS.into()), some(weekdays.into(), ALL_WEEKDAYS.into()))
        };
        // launchd starts a job if either matches; that both must, it cannot be told
        let groups = match () {
            () if either => vec![dates(days, ALL_WEEKDAYS), dates(ALL_DAYS, weekdays)],
            () if weekdays != ALL_WEEKDAYS => vec![dates(ALL_DAYS, weekdays)],
            () => vec![dates(days, ALL_WEEKDAYS)],
        };
        let (months, hours) = (some(months.into(), ALL_MONTHS.into()), some(hours.into(), ALL_HOURS.into()));
        let minutes = some(minutes, ALL_MINUTES);
        let each = months.len() * hours.len() * minutes.len();
        let count = groups.iter().map(|(days, weekdays)| days.len() * weekdays.len() * each).sum();
        if count > MOST_ENTRIES {
            return Err(Untellable::TooMany(count));
        }
        let mut fires = Vec::with_capacity(count);
        for (days, weekdays) in &groups {
            for (month, day) in months.iter().flat_map(|month| days.iter().map(move |day| (*month, *day))) {
                for weekday in weekdays {
                    for hour in &hours {
                        let at = Fire { month, day, weekday: *weekday, hour: *hour, minute: None };
                        fires.extend(minutes.iter().map(|minute| Fire { minute: *minute, ..at }));
                    }
                }
            }
        }
        Ok(fires)
    }
}

/// `OnCalendar=` lines for an interval of so many seconds, counted from midnight UTC.
pub fn interval_calendar(seconds: u64) -> Vec<String> {
    let all = |minutes: &str, seconds: String| vec![format!("*-*-* *:{minutes}:{seconds}")];
    if seconds > 0 && seconds < 60 && 60 % seconds == 0 {
        return all("*", part((0..60).filter(|n| n % seconds == 0).fold(0, |set, n| set | 1 << n), 0..60));
    }
    let mut minutes_at = [0u64; 60];
    let mut second = 0;
    while seconds > 0 && 3600 % seconds == 0 && second < 3600 {
        if let Some(minutes) = minutes_at.get_mut(usize::try_from(second % 60).unwrap_or(0)) {
            *minutes |= 1 << (second / 60);
        }
        second += seconds;
    }
    let lines = minutes_at.iter().enumerate().filter(|(_, minutes)| **minutes != 0);
    let lines: Vec<String> =
        lines.map(|(second, minutes)| format!("*-*-* *:{}:{second:02}", part(*minutes, 0..60))).collect();
    if (1..=MOST_LINES).contains(&lines.len()) {
        return lines;
    }
    // more often than needed, so that some firing is in each slot
    let often = (1..=60).rev().find(|n| 60 % n == 0 && *n <= seconds).unwrap_or(1);
    all("*", part((0..60).filter(|n| n % often == 0).fold(0, |set, n| set | 1 << n), 0..60))
}

fn members(set: u64, range: &std::ops::Range<u8>) -> Vec<u8> {
    range.clone().filter(|n| set >> n & 1 == 1).collect()
}

/// Numbers that follow each other at one distance, up to the end of the range: where they begin, and the distance.
fn steps(members: &[u8], range: &std::ops::Range<u8>) -> Option<(u8, u8)> {
    let (first, second) = (*members.first()?, *members.get(1)?);
    let step = second - first;
    let even = members.windows(2).all(|pair| pair[1] - pair[0] == step);
    let reach = members.last().is_some_and(|last| u16::from(*last) + u16::from(step) >= range.end.into());
    (members.len() > 2 && step > 1 && even && reach).then_some((first, step))
}

/// Members in a row, as first and last.
fn runs(members: &[u8]) -> Vec<(u8, u8)> {
    let mut runs: Vec<(u8, u8)> = Vec::new();
    for n in members {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *n => *last = *n,
            _ => runs.push((*n, *n)),
        }
    }
    runs
}

fn written(members: &[u8], between: &str, one: impl Fn(u8) -> String) -> String {
    let run = |(first, last): (u8, u8)| match last - first {
        0 => one(first),
        1 => format!("{},{}", one(first), one(last)),
        _ => format!("{}{between}{}", one(first), one(last)),
    };
    runs(members).into_iter().map(run).collect::<Vec<_>>().join(",")
}

/// A field of a crontab.
fn field(set: u64, range: std::ops::Range<u8>, star: bool) -> String {
    let members = members(set, &range);
    if members.len() == range.len() {
        return "*".to_owned();
    }
    match steps(&members, &range) {
        Some((first, step)) if star && first == range.start => format!("*/{step}"),
        _ => written(&members, "-", |n| n.to_string()),
    }
}

/// A part of a time of systemd's.
fn part(set: u64, range: std::ops::Range<u8>) -> String {
    let members = members(set, &range);
    if members.len() == range.len() {
        return "*".to_owned();
    }
    match steps(&members, &range) {
        Some((first, step)) => format!("{first:02}/{step}"),
        None => written(&members, "..", |n| format!("{n:02}")),
    }
}

fn weekday_names(set: u8) -> String {
    // a week of systemd's begins with Monday
    let members: Vec<u8> = (1..8).filter(|n| set >> (n % 7) & 1 == 1).collect();
    written(&members, "..", |n| DAYS.get(usize::from(n % 7)).copied().unwrap_or("Sun").to_owned())
}
