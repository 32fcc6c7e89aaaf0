//! `--every`: from a schedule, a time zone and a moment to the slot that is due.
//!
//! The rule is `semel_core::schedule`'s. What is read from the machine is read here and once: the time, and the zone
//! where `--tz` names none.

use std::path::Path;

use jiff::tz::TimeZone;
use semel_core::schedule::{self, NotDue, Schedule, Tick, scheduled_for};

use crate::args::WhatArgs;
use crate::plan::{Surroundings, duration_ms, quoted, read_bounded};
use crate::trouble::Trouble;

/// The slot that is due, and since when.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    pub(crate) tick: Tick,
    zone: TimeZone,
    max_late: Option<String>,
    start_within_ms: Option<u64>,
}

impl Due {
    /// How long it may take to begin, from now on; nothing left means too late.
    pub(crate) fn start_within_ms(&self) -> Option<u64> {
        self.start_within_ms
    }

    /// When it fell due, as people read it there.
    pub(crate) fn when(&self) -> String {
        self.tick.at.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string()
    }

    /// Why it is not begun any more, and what to do.
    pub(crate) fn too_late(&self) -> String {
        let most = self.max_late.as_deref().unwrap_or_default();
        format!(
            "it was due at {}, and --max-late {most} after that has passed; the next slot is not affected, and to run \
             this one all the same, say --slot {} instead of --every",
            self.when(),
            self.tick.slot
        )
    }
}

/// How late a slot may be begun, as typed and in milliseconds.
type MaxLate = Option<(String, u64)>;

/// The schedule, if one was said: whether it can be had together with the rest, without looking at any clock.
pub(crate) fn schedule(what: &WhatArgs) -> Result<Option<(Schedule, MaxLate)>, Trouble> {
    let Some(every) = &what.every else {
        let alone = [
            ("--tz", what.tz.is_some()),
            ("--max-late", what.max_late.is_some()),
            ("--scheduled-for", what.scheduled_for.is_some()),
        ];
        return match alone.iter().find(|(_, said)| *said) {
            Some((flag, _)) => {
                Err(Trouble::config(format!("{flag} goes with a schedule: say --every SCHEDULE too")))
            }
            None => Ok(None),
        };
    };
    if what.slot.is_some() {
        return Err(Trouble::config(
            "--every and --slot both name the slot: leave one out (--slot ID is for a run by hand or a missed one)",
        ));
    }
    if what.key.is_some() {
        return Err(Trouble::config(
            "--every and --key both say what is done once: leave one out, or tell runs of one slot apart with --with K=V",
        ));
    }
    let schedule =
        Schedule::parse(every).map_err(|why| Trouble::config(format!("--every {} {why}", quoted(every))))?;
    let max_late = match &what.max_late {
        Some(text) => Some((text.clone(), duration_ms("--max-late", text)?)),
        None => None,
    };
    Ok(Some((schedule, max_late)))
}

/// The slot that `--every` names now, if it was said.
pub(crate) fn due(what: &WhatArgs, around: &Surroundings) -> Result<Option<Due>, Trouble> {
    let (Some((schedule, max_late)), Some(every)) = (schedule(what)?, &what.every) else { return Ok(None) };
    let zone = match &what.tz {
        Some(name) => named(name, around)?,
        None if schedule.is_zoned() => system(around)?,
        None => TimeZone::UTC,
    };
    let text = what.scheduled_for.as_deref();
    let wrong = |why: &dyn std::fmt::Display| {
        Trouble::config(format!("--scheduled-for {} {why}", quoted(text.unwrap_or_default())))
    };
    let meant = text.map(scheduled_for).transpose().map_err(|why| wrong(&why))?;
    let due = schedule::due(&schedule, &zone, around.now()?, meant).map_err(|why| match why {
        NotDue::Ahead { .. } => wrong(&why),
        NotDue::Nothing(_) if text.is_some() => {
            wrong(&format!("is too long ago: --every {every:?} {why}; write a later time"))
        }
        NotDue::Nothing(_) => Trouble::config(format!("--every {every:?} {why}: set the machine's clock")),
    })?;
    let start_within_ms = max_late.as_ref().map(|(_, most_ms)| due.start_within_ms(*most_ms));
    Ok(Some(Due { tick: due.tick, zone, max_late: max_late.map(|(text, _)| text), start_within_ms }))
}

/// Is what is done remembered for as long as its slot can be the last one due?
pub(crate) fn check_remember(what: &WhatArgs, remember_ms: Option<u64>) -> Result<(), Trouble> {
    let (Some(remember_ms), Some((schedule, _))) = (remember_ms, schedule(what)?) else { return Ok(()) };
    schedule.check_remember(remember_ms).map_err(|why| Trouble::config(why.to_string()))
}

/// The zone of this name.
pub(crate) fn named(name: &str, around: &Surroundings) -> Result<TimeZone, Trouble> {
    if let Some(zone) = from_file(name, around) {
        return Ok(zone);
    }
    TimeZone::get(name).map_err(|_| {
        Trouble::config(format!(
            "--tz {} is no time zone: write a name of the IANA database, such as Europe/Berlin or UTC",
            quoted(name)
        ))
    })
}

fn system(around: &Surroundings) -> Result<TimeZone, Trouble> {
    let name = match around.get("TZ") {
        Some(value) => value.to_str().map(|text| text.trim_start_matches(':').to_owned()),
        None => std::fs::read_link("/etc/localtime").ok().and_then(|target| {
            target.to_str().and_then(|text| text.split_once("zoneinfo/")).map(|(_, name)| name.to_owned())
        }),
    };
    if let Some(zone) = name.and_then(|name| from_file(&name, around)) {
        return Ok(zone);
    }
    match TimeZone::try_system() {
        Ok(zone) => Ok(zone),
        // where no zone is set, as in a bare container, every program counts in UTC
        Err(_) if around.get("TZ").is_none() && std::fs::metadata("/etc/localtime").is_err() => {
            Ok(TimeZone::UTC)
        }
        Err(_) => {
            let source = match around.get("TZ") {
                Some(value) => format!("TZ={} names none", value.to_string_lossy()),
                None => "/etc/localtime cannot be read as one".to_owned(),
            };
            Err(Trouble::config(format!(
                "the system's time zone is unknown: {source}; say it with --tz, as in --tz Europe/Berlin"
            )))
        }
    }
}

/// The zone of this name from its own file. A database of zones lists all of them first, which takes longer than the
/// rest of a skip; whatever is not found here, it is asked for.
fn from_file(name: &str, around: &Surroundings) -> Option<TimeZone> {
    const FOLDER: &str = "/usr/share/zoneinfo";
    const LIMIT: u64 = 64 * 1024;
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'+' | b'/');
    // other folders and files there start with small letters, and count otherwise
    if !name.starts_with(|c: char| c.is_ascii_uppercase())
        || !name.bytes().all(plain)
        || around.get("TZDIR").is_some()
    {
        return None;
    }
    let bytes = read_bounded(&Path::new(FOLDER).join(name), LIMIT).ok()?;
    TimeZone::tzif(name, &bytes).ok()
}
