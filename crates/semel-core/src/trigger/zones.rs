//! Lines for a clock in one zone, so that slots in another are met.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::{ALL_DAYS, ALL_MONTHS, ALL_WEEKDAYS, Line, Untellable, Wish, bit, merged};
use crate::schedule::{Expression, Tick};

const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// How far from a change of the clocks slots are looked at.
const AROUND: SignedDuration = SignedDuration::from_hours(50);
/// How many slots are looked at whatever the clocks do.
const FIRST_SLOTS: usize = 800;
/// And how many around one change.
const CHANGE_SLOTS: usize = 8_000;
/// The clocks of two zones are apart by few different lengths.
const MOST_SHIFTS: usize = 8;

/// The clocks that matter, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Clocks<'a> {
    /// The zone of the job's schedule.
    pub job: &'a TimeZone,
    /// The zone of the scheduler that fires.
    pub fires: &'a TimeZone,
    /// From when on.
    pub from: Timestamp,
    /// Until when changes of the clocks are looked at.
    pub until: Timestamp,
    /// Does the scheduler leave out times that its clock leaves out?
    pub leaves_out: bool,
}

/// Lines for a scheduler's clock by which every slot is fired at least once.
pub fn on_clock(wish: &Wish<'_>, clocks: &Clocks<'_>) -> Result<Vec<Line>, Untellable> {
    let lines = wish.lines()?;
    let source = if wish.schedule.is_zoned() { clocks.job } else { &TimeZone::UTC };
    let shifts = shifts(source, clocks)?;
    let same = shifts.iter().eq([&0]);
    if same && !clocks.leaves_out {
        return Ok(lines);
    }
    let look = Look { wish, clocks };
    if !same && wish.is_free() {
        // any time will do, so one that is right on both sides of a change
        let later = shifts.first().map(|shift| shift - 60);
        let single = shifts.iter().copied().chain(later).map(|shift| shifted(&lines, &[shift]));
        let best =
            single.filter_map(|lines| Some((look.latest(&lines)?, lines))).min_by_key(|(latest, _)| *latest);
        if let Some((_, lines)) = best {
            return Ok(lines);
        }
    }
    let mut lines = if same { lines } else { shifted(&lines, &shifts.into_iter().collect::<Vec<_>>()) };
    lines.extend(look.at_gaps(&lines));
    if look.latest(&lines).is_some() { Ok(lines) } else { Err(Untellable::Unmet) }
}

/// By how many minutes the one clock is ahead of the other, in all the time that matters.
fn shifts(source: &TimeZone, clocks: &Clocks<'_>) -> Result<BTreeSet<i32>, Untellable> {
    let mut seen = BTreeSet::new();
    for moment in
        std::iter::once(clocks.from).chain(changes(source, clocks)).chain(changes(clocks.fires, clocks))
    {
        let seconds = source.to_offset(moment).seconds() - clocks.fires.to_offset(moment).seconds();
        if seconds % 60 != 0 || seen.len() > MOST_SHIFTS {
            return Err(Untellable::Unmet);
        }
        seen.insert(seconds / 60);
    }
    Ok(seen)
}

fn changes<'a>(tz: &'a TimeZone, clocks: &Clocks<'_>) -> impl Iterator<Item = Timestamp> + 'a {
    let until = clocks.until;
    tz.following(clocks.from).map(|change| change.timestamp()).take_while(move |change| *change < until)
}

/// The lines on a clock that is behind by any of these.
fn shifted(lines: &[Line], shifts: &[i32]) -> Vec<Line> {
    let mut out = Vec::new();
    for Line(line) in lines {
        for shift in shifts {
            // whole hours that go with one minute, by the day they fall on
            for minute in (0..60).filter(|minute| line.minutes >> minute & 1 == 1) {
                let mut hours_on: BTreeMap<i32, u32> = BTreeMap::new();
                let mut minutes = 0;
                for hour in (0..24).filter(|hour| line.hours >> hour & 1 == 1) {
                    let time = hour * 60 + minute - shift;
                    let of_day = u64::from(time.rem_euclid(1440).unsigned_abs());
                    minutes = 1 << (of_day % 60);
                    *hours_on.entry(time.div_euclid(1440)).or_default() |= bit(of_day / 60);
                }
                for (days, hours) in hours_on {
                    out.push(Expression { minutes, hours, ..moved(line, days) });
                }
            }
        }
    }
    merged(out)
}

/// The same dates, so many days later; or more, where months are not equally long.
fn moved(line: &Expression, days: i32) -> Expression {
    const ENDS: u32 = 0xf << 28;
    let mut line = line.clone();
    for _ in 0..days.unsigned_abs() {
        let (mut dates, mut months) = (line.days, line.months);
        if days < 0 {
            let first = line.days & 2 != 0;
            dates = (line.days >> 1) & ALL_DAYS | if first { ENDS } else { 0 };
            if first {
                months |= (line.months >> 1 | line.months << 11) & ALL_MONTHS;
            }
            line.weekdays = (line.weekdays >> 1 | line.weekdays << 6) & ALL_WEEKDAYS;
        } else if days > 0 {
            let last = line.days & ENDS != 0;
            dates = (line.days << 1) & ALL_DAYS | if last { 2 } else { 0 };
            if last {
                months |= (line.months << 1 | line.months >> 11) & ALL_MONTHS;
            }
            line.weekdays = (line.weekdays << 1 | line.weekdays >> 6) & ALL_WEEKDAYS;
        }
        if line.days != ALL_DAYS {
            line.days = dates;
        }
        line.months = months;
    }
    line
}

/// A look at slots and at what fires in them.
struct Look<'a> {
    wish: &'a Wish<'a>,
    clocks: &'a Clocks<'a>,
}

impl Look<'_> {
    /// The slots that are looked at: the first ones, and all around a change of either clock.
    fn slots(&self) -> impl Iterator<Item = (Tick, Tick)> {
        let Clocks { job, fires, from, until, .. } = *self.clocks;
        let schedule = self.wish.schedule;
        let from_until = move |from: Timestamp, until: Timestamp| {
            let first = schedule.tick_at_or_before(job, from);
            std::iter::successors(first, move |tick| schedule.next_after(job, tick.at))
                .take_while(move |tick| tick.at <= until)
        };
        let both = changes(job, self.clocks).chain(changes(fires, self.clocks));
        let around = both.flat_map(move |change| {
            let (early, late) = (change.checked_sub(AROUND), change.checked_add(AROUND));
            from_until(early.unwrap_or(change), late.unwrap_or(change)).take(CHANGE_SLOTS)
        });
        let all = from_until(from, until).take(FIRST_SLOTS).chain(around);
        all.filter_map(move |tick| Some((tick.clone(), schedule.next_after(job, tick.at)?)))
    }

    /// When a slot is first fired.
    fn fired(&self, lines: &[Line], (tick, next): &(Tick, Tick)) -> Option<Timestamp> {
        let eve = tick.at.checked_sub(SECOND).ok()?;
        let first = lines.iter().filter_map(|line| line.0.real_after(self.clocks.fires, eve)).min()?;
        let too_late = self.wish.max_late.is_some_and(|most| {
            let late = first.duration_since(tick.at);
            late.unsigned_abs() > most
        });
        (first < next.at && !too_late).then_some(first)
    }

    /// How late the latest of all slots is first fired; nothing, if one is not.
    fn latest(&self, lines: &[Line]) -> Option<SignedDuration> {
        let mut latest = SignedDuration::ZERO;
        for slot in self.slots() {
            latest = latest.max(self.fired(lines, &slot)?.duration_since(slot.0.at));
        }
        Some(latest)
    }

    /// Lines for the slots that these do not fire: at the tick, in such months and on such weekdays.
    fn at_gaps(&self, lines: &[Line]) -> Vec<Line> {
        let mut at: BTreeMap<(i8, i8), (u16, u8)> = BTreeMap::new();
        for slot in self.slots().filter(|slot| self.fired(lines, slot).is_none()) {
            let shown = self.clocks.fires.to_datetime(slot.0.at);
            let (months, weekdays) = at.entry((shown.hour(), shown.minute())).or_default();
            *months |= 1 << shown.month();
            *weekdays |= 1 << shown.weekday().to_sunday_zero_offset();
        }
        let lines = at.into_iter().map(|((hour, minute), (months, weekdays))| Expression {
            minutes: 1 << minute,
            hours: 1 << hour,
            days: ALL_DAYS,
            months,
            weekdays,
            either: false,
        });
        merged(lines.collect())
    }
}
