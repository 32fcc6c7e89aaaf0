//! `--every`: from a schedule, a time zone and a moment to the slot that is due.
//!
//! The rule is `semel_core::schedule`'s. What is read from the machine is read here and once: the time, and the zone
//! where `--tz` names none.

use std::path::Path;

use jiff::tz::TimeZone;
use semel_core::calendar::{CatchUp, Occurrence};
use semel_core::schedule::{self, NotDue, Schedule, Tick, scheduled_for};

use crate::args::WhatArgs;
use crate::out::span;
use crate::plan::{Surroundings, duration_ms, quoted, read_bounded};
use crate::trouble::Trouble;

/// The slot that is due, and since when.
#[derive(Clone, Debug)]
pub(crate) struct Due {
    pub(crate) tick: Tick,
    pub(crate) schedule: Schedule,
    pub(crate) zone: TimeZone,
    pub(crate) catch_up: CatchUp,
    grace_ms: u64,
    max_late: Option<String>,
    start_within_ms: Option<u64>,
}

impl Due {
    /// What the engine is told of it.
    pub(crate) fn occurrence(&self) -> Occurrence {
        let Due { schedule, zone, tick, grace_ms, .. } = self;
        Occurrence { schedule: schedule.clone(), zone: zone.clone(), tick: tick.clone(), grace_ms: *grace_ms }
    }

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
            "it was due at {}, and {most} after that has passed; the next slot is not affected, and to run \
             this one all the same, say --slot {} instead of --every",
            self.when(),
            self.tick.slot
        )
    }
}

/// How late a slot may be begun: by what, and in milliseconds.
type MaxLate = Option<(String, u64)>;

/// A schedule, with what goes with it.
pub(crate) struct Terms {
    pub(crate) schedule: Schedule,
    pub(crate) grace_ms: u64,
    catch_up: CatchUp,
    pub(crate) max_late: MaxLate,
}

/// What becomes of slots that were missed.
pub(crate) fn catch_up(text: &str) -> Result<CatchUp, Trouble> {
    let wrong = || {
        let given = quoted(text);
        Trouble::config(format!("--catch-up {given}: write latest, none or all=DUR (as in all=7d)"))
    };
    match text.split_once('=') {
        None if text == "latest" => Ok(CatchUp::Latest),
        None if text == "none" => Ok(CatchUp::None),
        Some(("all", length)) => {
            duration_ms("", length).map(|within_ms| CatchUp::All { within_ms }).map_err(|_| wrong())
        }
        _ => Err(wrong()),
    }
}

/// The schedule, if one was said: whether it can be had together with the rest, without looking at any clock.
pub(crate) fn schedule(what: &WhatArgs) -> Result<Option<Terms>, Trouble> {
    let Some(every) = &what.every else {
        let alone = [
            ("--tz", what.tz.is_some()),
            ("--max-late", what.max_late.is_some()),
            ("--scheduled-for", what.scheduled_for.is_some()),
            ("--catch-up", what.catch_up.is_some()),
            ("--keep-going", what.keep_going),
            ("--grace", what.grace.is_some()),
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
    let catch_up = what.catch_up.as_deref().map_or(Ok(CatchUp::default()), catch_up)?;
    if what.keep_going && !matches!(catch_up, CatchUp::All { .. }) {
        return Err(Trouble::config("--keep-going goes with several slots: say --catch-up all=DUR too"));
    }
    let usual_ms = u64::try_from(schedule.usual_grace().as_millis()).unwrap_or(u64::MAX);
    let grace_ms = what.grace.as_deref().map_or(Ok(usual_ms), |text| duration_ms("--grace", text))?;
    let max_late = match (&what.max_late, catch_up) {
        (Some(text), _) => Some((format!("--max-late {text}"), duration_ms("--max-late", text)?)),
        (None, CatchUp::None) => {
            Some((format!("its grace of {} (--catch-up none)", span(grace_ms)), grace_ms))
        }
        (None, _) => None,
    };
    Ok(Some(Terms { schedule, grace_ms, catch_up, max_late }))
}

/// The slot that `--every` names now, if it was said.
pub(crate) fn due(what: &WhatArgs, around: &Surroundings) -> Result<Option<Due>, Trouble> {
    let (Some(terms), Some(every)) = (schedule(what)?, &what.every) else { return Ok(None) };
    let Terms { schedule, grace_ms, catch_up, max_late } = terms;
    let zone = zone(&schedule, what.tz.as_deref(), around)?;
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
    let max_late = max_late.map(|(text, _)| text);
    Ok(Some(Due { tick: due.tick, schedule, zone, catch_up, grace_ms, max_late, start_within_ms }))
}

/// The time zone of a schedule.
pub(crate) fn zone(
    schedule: &Schedule,
    tz: Option<&str>,
    around: &Surroundings,
) -> Result<TimeZone, Trouble> {
    match tz {
        Some(name) => named(name, around),
        None if schedule.is_zoned() => system(around),
        None => Ok(TimeZone::UTC),
    }
}

/// Is what is done remembered for as long as its slot can be the last one due?
pub(crate) fn check_remember(what: &WhatArgs, remember_ms: Option<u64>) -> Result<(), Trouble> {
    let (Some(remember_ms), Some(terms)) = (remember_ms, schedule(what)?) else { return Ok(()) };
    let within_ms = match terms.catch_up {
        CatchUp::All { within_ms } => within_ms,
        CatchUp::Latest | CatchUp::None => 0,
    };
    terms.schedule.check_remember(remember_ms, within_ms).map_err(|why| Trouble::config(why.to_string()))
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

/// The machine's own zone.
pub(crate) fn system(around: &Surroundings) -> Result<TimeZone, Trouble> {
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
