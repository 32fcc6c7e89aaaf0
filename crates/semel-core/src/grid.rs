//! What became of a job's slots, as a calendar: one cell a slot, in a shape that is read without colour.
//!
//! | schedule | rows | columns |
//! |---|---|---|
//! | daily | weekdays | weeks, the newest at the right |
//! | several a day | days, or parts of them where they do not fit; the newest last | times of day |
//! | weekly, monthly | years, or months where they do not fit | weeks or months |
//!
//! A slot is placed by the time that its own clock showed when it fell due. An hour that comes twice has two columns.
//! What does not fit is left out from the old end, and counted. Two slots share a cell only where they fell due on one
//! date of a daily schedule (a time of the day before that the clock left out); the graver mark is shown.

mod rows;

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::name::Slot;
use crate::schedule::Schedule;
use crate::story::Condition;

/// The most weeks that are shown.
const WEEKS: i32 = 53;
/// The most rows of days, parts of days or years.
const ROWS: usize = 14;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// What became of a slot, the gravest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// It is not due yet.
    Future,
    /// Nothing is on record.
    Absent,
    /// Done by its first attempt.
    Done,
    /// Done, and later firings of it were rightly skipped.
    Suppressed,
    /// Done after more than one attempt.
    Resumed,
    /// Nothing forbids to run it.
    Open,
    /// An attempt is under way.
    Running,
    /// An attempt vanished; the next run takes over.
    Lost,
    /// It is known that it was not run.
    Missed,
    /// The last attempt failed.
    Failed,
    /// Nobody can know whether it happened.
    InDoubt,
    /// It failed too often.
    Quarantined,
}

/// The mark of an entry: the one place that knows which condition has which.
pub fn mark_of(condition: Condition, attempts: u32, suppressed: u64) -> Mark {
    match condition {
        Condition::Done if attempts > 1 => Mark::Resumed,
        Condition::Done if suppressed > 0 => Mark::Suppressed,
        Condition::Done => Mark::Done,
        Condition::Open => Mark::Open,
        Condition::Running => Mark::Running,
        Condition::Lost => Mark::Lost,
        Condition::Failed => Mark::Failed,
        Condition::Missed => Mark::Missed,
        Condition::Quarantined => Mark::Quarantined,
        Condition::InDoubt => Mark::InDoubt,
    }
}

impl Mark {
    /// All of them, in the order of the legend.
    pub const ALL: [Mark; 12] = [
        Mark::Done,
        Mark::Resumed,
        Mark::Suppressed,
        Mark::Running,
        Mark::Open,
        Mark::Lost,
        Mark::Failed,
        Mark::Missed,
        Mark::InDoubt,
        Mark::Quarantined,
        Mark::Absent,
        Mark::Future,
    ];

    /// Its cell.
    pub fn shape(self, shapes: Shapes) -> char {
        let (plain, drawn) = match self {
            Mark::Done => ('#', '■'),
            Mark::Resumed => ('+', '▣'),
            Mark::Suppressed => ('=', '◆'),
            Mark::Running => ('>', '▶'),
            Mark::Open => ('_', '□'),
            Mark::Lost => ('~', '~'),
            Mark::Failed => ('x', '✗'),
            Mark::Missed => ('o', '○'),
            Mark::InDoubt => ('?', '?'),
            Mark::Quarantined => ('!', '!'),
            Mark::Absent => ('.', '·'),
            Mark::Future => (' ', ' '),
        };
        if shapes == Shapes::Ascii { plain } else { drawn }
    }

    /// What it is called in the legend.
    pub fn word(self) -> &'static str {
        match self {
            Mark::Done => "done",
            Mark::Resumed => "done after several attempts",
            Mark::Suppressed => "done, duplicates suppressed",
            Mark::Running => "running",
            Mark::Open => "open",
            Mark::Lost => "lost",
            Mark::Failed => "failed",
            Mark::Missed => "missed",
            Mark::InDoubt => "in doubt",
            Mark::Quarantined => "quarantined",
            Mark::Absent => "not on record",
            Mark::Future => "not due yet",
        }
    }
}

/// What a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// Letters and signs.
    Ascii,
    /// Anything.
    Unicode,
}

/// How slots are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One slot a day: weekdays × weeks.
    Weeks,
    /// Several a day: days × times.
    Days,
    /// A slot a week or less often: years × weeks.
    Years,
    /// A slot a month or less often: years × months.
    Months,
}

impl Layout {
    /// For a schedule.
    pub fn of(schedule: &Schedule) -> Layout {
        const DAY_HOURS: u64 = 24;
        match schedule.period().shortest.as_secs() / 3600 {
            0..20 => Layout::Days,
            hours if hours < 7 * DAY_HOURS => Layout::Weeks,
            hours if hours < 28 * DAY_HOURS => Layout::Years,
            _ => Layout::Months,
        }
    }
}

/// The time that a slot is named by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// `2026-06-19`
    Date(Date),
    /// `2026-06-19T02:00:00Z`
    Moment(Timestamp),
}

impl Named {
    /// Nothing, for a slot that was named by hand.
    pub fn by(slot: &Slot) -> Option<Named> {
        let text = slot.as_str();
        // only what a schedule writes: other forms of the same time are other slots
        if let Some(date) = text.parse::<Date>().ok().filter(|date| date.to_string() == text) {
            return Some(Named::Date(date));
        }
        let moment = text.parse::<Timestamp>().ok()?;
        (moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() == text).then_some(Named::Moment(moment))
    }

    /// The time that the clock of a zone shows for it.
    pub fn shown(self, tz: &TimeZone) -> DateTime {
        match self {
            Named::Date(date) => date.to_datetime(jiff::civil::Time::midnight()),
            Named::Moment(moment) => tz.to_datetime(moment),
        }
    }

    /// The moment by which it stands in order.
    pub fn moment(self, tz: &TimeZone) -> Timestamp {
        match self {
            Named::Date(date) => date.to_zoned(tz.clone()).map_or(Timestamp::MIN, |zoned| zoned.timestamp()),
            Named::Moment(moment) => moment,
        }
    }
}

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A label, or space.
    Text(String),
    /// A slot.
    Cell(Mark),
}

/// A slot: the time that its clock showed when it fell due, and what became of it.
pub type Row = (DateTime, Mark);

/// The calendar, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// Labels and cells.
    pub lines: Vec<Vec<Piece>>,
    /// What occurs, and how often.
    pub counts: Vec<(Mark, usize)>,
    /// How many older slots do not fit.
    pub older: usize,
}

/// Arrange slots, given in the order in which they fell due, in lines of this width.
pub fn lay_out(slots: &[Row], layout: Layout, width: usize) -> Grid {
    let (lines, shown) = match layout {
        Layout::Weeks => weeks(slots, width),
        Layout::Days => rows::days(slots, width),
        Layout::Years => rows::years(slots, width, |date| i32::from(date.day_of_year() - 1) / 7, 53),
        Layout::Months => rows::years(slots, width, |date| i32::from(date.month() - 1), 12),
    };
    let kept = slots.get(slots.len().saturating_sub(shown)..).unwrap_or_default();
    let count = |mark: Mark| (mark, kept.iter().filter(|(_, other)| *other == mark).count());
    let counts = Mark::ALL.into_iter().map(count).filter(|(_, count)| *count > 0).collect();
    Grid { lines, counts, older: slots.len() - kept.len() }
}

impl Grid {
    /// What the cells mean, with how many there are of each.
    pub fn legend(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (mark, count) in self.counts.iter().filter(|(mark, _)| *mark != Mark::Future) {
            let gap = if pieces.is_empty() { "" } else { "   " };
            pieces.push(Piece::Text(gap.to_owned()));
            pieces.push(Piece::Cell(*mark));
            pieces.push(Piece::Text(format!(" {} {count}", mark.word())));
        }
        pieces
    }
}

/// A line in plain text.
pub fn plain(line: &[Piece], shapes: Shapes) -> String {
    let text: String = line
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Cell(mark) => mark.shape(shapes).to_string(),
        })
        .collect();
    text.trim_end().to_owned()
}

/// The Monday of a date's week, counted in weeks.
fn week(date: Date) -> i32 {
    let monday = jiff::civil::date(1970, 1, 5);
    let days = date.since(monday).map_or(0, |span| span.get_days());
    days.div_euclid(7)
}

fn weeks(slots: &[Row], width: usize) -> (Vec<Vec<Piece>>, usize) {
    const LABEL: usize = 4;
    let Some(newest) = slots.iter().map(|(at, _)| week(at.date())).max() else { return (Vec::new(), 0) };
    let fit = i32::try_from(width.saturating_sub(LABEL).div_ceil(2)).unwrap_or(WEEKS).clamp(1, WEEKS);
    let oldest = slots.iter().map(|(at, _)| week(at.date())).min().unwrap_or(newest).max(newest - fit + 1);
    let columns = usize::try_from(newest - oldest + 1).unwrap_or(1);
    let mut cells = [const { Vec::new() }; 7];
    cells.iter_mut().for_each(|row: &mut Vec<Option<Mark>>| row.resize(columns, None));
    let mut shown = 0;
    // months begin in the column with their first slot that is shown
    let mut starts: Vec<(usize, i8)> = Vec::new();
    for (at, mark) in slots.iter().rev() {
        let Ok(column) = usize::try_from(week(at.date()) - oldest) else { break };
        let row = usize::from(at.weekday().to_monday_zero_offset().unsigned_abs());
        if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
            *cell = Some(cell.map_or(*mark, |other: Mark| other.max(*mark)));
        }
        match starts.last_mut() {
            Some((start, month)) if *month == at.month() => *start = column.min(*start),
            _ => starts.push((column, at.month())),
        }
        shown += 1;
    }
    starts.reverse();
    let labels = starts.into_iter().map(|(column, month)| (column * 2, month_name(month).to_owned()));
    let mut lines = vec![rows::header(LABEL, labels, true)];
    for (name, row) in WEEKDAYS.iter().zip(&cells) {
        if row.iter().any(Option::is_some) {
            lines.push(rows::line(format!("{name} "), row.iter().copied(), 2));
        }
    }
    (lines, shown)
}

fn month_name(month: i8) -> &'static str {
    usize::try_from(month - 1).ok().and_then(|n| MONTHS.get(n)).copied().unwrap_or_default()
}
