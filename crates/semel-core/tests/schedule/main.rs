//! Slots from schedules: tables of the days on which clocks and calendars do odd things, and what holds on all days.
//!
//! Zones come from the database built into jiff, so that the tables hold on every machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calendar;
mod clocks;
mod expressions;
mod properties;
mod schedulers;
mod words;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use semel_core::schedule::Schedule;

pub(crate) fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).unwrap()
}

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
}

#[track_caller]
pub(crate) fn schedule(text: &str) -> Schedule {
    Schedule::parse(text).unwrap_or_else(|why| panic!("{text:?} {why}"))
}

/// A moment as the wall clock shows it, with its offset.
pub(crate) fn shown(tz: &TimeZone, moment: Timestamp) -> String {
    moment.to_zoned(tz.clone()).strftime("%m-%d %H:%M %:z").to_string()
}

/// The slot of a firing at this moment.
#[track_caller]
pub(crate) fn slot(text: &str, tz: &str, now: &str) -> String {
    schedule(text).tick_at_or_before(&zone(tz), at(now)).unwrap().slot.to_string()
}

/// The ticks in a span of time, as the wall clock shows them.
#[track_caller]
pub(crate) fn ticks(text: &str, tz: &str, after: &str, until: &str) -> Vec<String> {
    let tz = zone(tz);
    schedule(text).ticks(&tz, at(after), at(until)).map(|tick| shown(&tz, tick.at)).collect()
}

/// The slots in a span of time.
#[track_caller]
pub(crate) fn slots(text: &str, tz: &str, after: &str, until: &str) -> Vec<String> {
    let tz = zone(tz);
    schedule(text).ticks(&tz, at(after), at(until)).map(|tick| tick.slot.to_string()).collect()
}
