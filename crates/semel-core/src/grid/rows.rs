//! Rows of equal lengths of time, with their columns in order.

use std::collections::BTreeMap;

use jiff::civil::{Date, DateTime};

use super::{Mark, Piece, ROWS, Row, month_name};

/// How long a row may be, in seconds: the longest that fits is taken.
const SPANS: [i64; 10] = [86_400, 43_200, 21_600, 10_800, 7_200, 3_600, 1_800, 600, 300, 60];

/// A label at each of these places, where there is room. `rest`: the first one is less than whole, and gives way.
pub(super) fn header(indent: usize, labels: impl Iterator<Item = (usize, String)>, rest: bool) -> Vec<Piece> {
    let mut text = " ".repeat(indent);
    let mut free = indent;
    let labels: Vec<(usize, String)> = labels.collect();
    for (nth, (place, label)) in labels.iter().enumerate() {
        let (place, end) = (place + indent, place + indent + label.len());
        let next = labels.get(nth + 1).map(|(next, _)| next + indent);
        let crowded = rest && nth == 0 && next.is_some_and(|next| next <= end);
        if place < free || crowded {
            continue;
        }
        text.extend(std::iter::repeat_n(' ', place.saturating_sub(text.len())));
        text.push_str(label);
        free = end + 1;
    }
    vec![Piece::Text(text)]
}

/// A label and its cells, each with so many places.
pub(super) fn line(label: String, cells: impl Iterator<Item = Option<Mark>>, stride: usize) -> Vec<Piece> {
    let mut pieces = vec![Piece::Text(label)];
    let mut space = String::new();
    for cell in cells {
        match cell {
            None => space.push(' '),
            Some(mark) => {
                if !space.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut space)));
                }
                pieces.push(Piece::Cell(mark));
            }
        }
        space.extend(std::iter::repeat_n(' ', stride - 1));
    }
    pieces
}

/// Slots of one row, each at its distance from the row's start; several may have the same.
#[derive(Debug)]
struct Part {
    start: DateTime,
    slots: Vec<(i64, Mark)>,
}

fn parts(slots: &[Row], span: i64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (at, mark) in slots {
        let midnight = at.date().to_datetime(jiff::civil::Time::midnight());
        let second = i64::from(at.hour()) * 3600 + i64::from(at.minute()) * 60 + i64::from(at.second());
        let since = jiff::SignedDuration::from_secs(second - second % span);
        let start = midnight.checked_add(since).unwrap_or(midnight);
        match parts.last_mut() {
            // a clock that is set back stays in its row, or begins one again
            Some(part) if part.start == start => part.slots.push((second % span, *mark)),
            _ => parts.push(Part { start, slots: vec![(second % span, *mark)] }),
        }
    }
    let excess = parts.len().saturating_sub(ROWS);
    parts.drain(..excess);
    parts
}

/// The distances that occur, each as often as in the row that has it most often.
fn columns(parts: &[Part]) -> Vec<i64> {
    let mut most: BTreeMap<i64, usize> = BTreeMap::new();
    for part in parts {
        let mut here: BTreeMap<i64, usize> = BTreeMap::new();
        part.slots.iter().for_each(|(distance, _)| *here.entry(*distance).or_default() += 1);
        for (distance, count) in here {
            let most = most.entry(distance).or_default();
            *most = count.max(*most);
        }
    }
    most.into_iter().flat_map(|(distance, count)| std::iter::repeat_n(distance, count)).collect()
}

pub(super) fn days(slots: &[Row], width: usize) -> (Vec<Vec<Piece>>, usize) {
    let room = |span: i64| width.saturating_sub(label_of(span)).max(1);
    for span in SPANS {
        let parts = parts(slots, span);
        let columns = columns(&parts);
        // the last cell of a line needs no space behind it
        let stride = [2, 1].into_iter().find(|stride| columns.len() * stride < room(span) + stride);
        if let Some(stride) = stride {
            return in_columns(&parts, &columns, span, stride);
        }
    }
    let span = SPANS[SPANS.len() - 1];
    let parts = parts(slots, span);
    let mut lines: Vec<Vec<Piece>> = Vec::new();
    for part in &parts {
        for (nth, slots) in part.slots.chunks(room(span)).enumerate() {
            let label = if nth == 0 { row_name(part.start, span) } else { String::new() };
            let cells = slots.iter().map(|(_, mark)| Some(*mark));
            lines.push(line(format!("{label:width$}", width = label_of(span)), cells, 1));
        }
    }
    (lines, parts.iter().map(|part| part.slots.len()).sum())
}

fn in_columns(parts: &[Part], columns: &[i64], span: i64, stride: usize) -> (Vec<Vec<Piece>>, usize) {
    let indent = label_of(span);
    let mut labels: Vec<(usize, String)> = Vec::new();
    let mut last = None;
    for (nth, distance) in columns.iter().enumerate() {
        let (unit, name) = if span > 3_600 { (3_600, "h") } else { (60, "m") };
        let number = distance / unit;
        if last != Some(number) {
            let label = if span == 86_400 { format!("{number:02}") } else { format!("+{number}{name}") };
            labels.push((nth * stride, label));
        }
        last = Some(number);
    }
    let mut lines = vec![header(indent, labels.into_iter(), false)];
    let mut shown = 0;
    for part in parts {
        // the sort is stable: an hour that comes twice stays in order
        let mut slots = part.slots.clone();
        slots.sort_by_key(|(distance, _)| *distance);
        let mut slots = slots.into_iter().peekable();
        let cells: Vec<Option<Mark>> =
            columns.iter().map(|column| Some(slots.next_if(|(distance, _)| distance == column)?.1)).collect();
        shown += part.slots.len();
        lines.push(line(format!("{:indent$}", row_name(part.start, span)), cells.into_iter(), stride));
    }
    (lines, shown)
}

/// How wide the labels of such rows are, with a space.
fn label_of(span: i64) -> usize {
    if span == 86_400 { 11 } else { 17 }
}

fn row_name(start: DateTime, span: i64) -> String {
    let form = if span == 86_400 { "%Y-%m-%d" } else { "%Y-%m-%d %H:%M" };
    start.strftime(form).to_string()
}

/// One row a year, with so many columns; or one a month, where that is too wide.
pub(super) fn years(
    slots: &[Row],
    width: usize,
    column: impl Fn(Date) -> i32,
    most: usize,
) -> (Vec<Vec<Piece>>, usize) {
    const YEAR: usize = 5;
    const MONTH: usize = 8;
    let room = width.saturating_sub(YEAR);
    let stride = if most == 12 { 4 } else { 2 };
    let stride = [stride, 1].into_iter().find(|stride| most * stride < room + stride);
    let mut rows: Vec<(Date, Vec<(usize, Mark)>)> = Vec::new();
    for (at, mark) in slots {
        let date = at.date();
        let start = if stride.is_some() { date.first_of_year() } else { date.first_of_month() };
        let place = match stride {
            Some(_) => usize::try_from(column(date)).unwrap_or(0),
            None => rows.last().filter(|(last, _)| *last == start).map_or(0, |(_, row)| row.len()),
        };
        match rows.last_mut() {
            Some((last, row)) if *last == start => row.push((place, *mark)),
            _ => rows.push((start, vec![(place, *mark)])),
        }
    }
    let excess = rows.len().saturating_sub(ROWS);
    rows.drain(..excess);
    let shown = rows.iter().map(|(_, row)| row.len()).sum();
    let mut lines = Vec::new();
    if let Some(stride) = stride {
        let starts = (1..=12i8).filter_map(|month| Some((month, Date::new(2026, month, 1).ok()?)));
        let labels = starts.map(|(month, date)| {
            (usize::try_from(column(date)).unwrap_or(0) * stride, month_name(month).to_owned())
        });
        lines.push(header(YEAR, labels, false));
    }
    for (start, row) in rows {
        let (label, most) = match stride {
            Some(_) => (format!("{:<YEAR$}", start.year()), most),
            None => (format!("{:<MONTH$}", start.strftime("%Y-%m").to_string()), row.len()),
        };
        let mut cells = vec![None; most];
        for (place, mark) in row {
            if let Some(cell) = cells.get_mut(place) {
                *cell = Some(cell.map_or(mark, |other: Mark| other.max(mark)));
            }
        }
        lines.push(line(label, cells.into_iter(), stride.unwrap_or(2)));
    }
    (lines, shown)
}
