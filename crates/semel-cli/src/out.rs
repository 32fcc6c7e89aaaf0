//! What Semel says: on stderr, one line per outcome, silent on success unless asked. Tables and JSON that were
//! asked for go to stdout.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use semel::clock::boottime;
use serde_json::Value;

use crate::args::Common;
use crate::table::clean;

/// The version of the JSON that every command prints.
pub(crate) const JSON_VERSION: u32 = 1;

/// Where words go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voice {
    /// Outcomes as JSON.
    pub(crate) json: bool,
    /// Say what happens on the way.
    pub(crate) verbose: bool,
    /// Somebody is watching.
    pub(crate) terminal: bool,
}

/// A line on the terminal that tells how far it is, once it takes longer than a moment.
pub(crate) struct Ticker {
    voice: Voice,
    begun: Duration,
    told: Option<Duration>,
}

impl Ticker {
    const QUIET: Duration = Duration::from_secs(1);
    const EVERY: Duration = Duration::from_millis(200);

    pub(crate) fn new(voice: Voice) -> Ticker {
        Ticker { voice, begun: boottime(), told: None }
    }

    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        let now = boottime();
        let early = now.saturating_sub(self.begun) < Ticker::QUIET
            || self.told.is_some_and(|told| now.saturating_sub(told) < Ticker::EVERY);
        if self.voice.terminal && !self.voice.json && !early {
            self.told = Some(now);
            let _ = write!(anstream::stderr(), "\r{}", line());
        }
    }

    pub(crate) fn end(&self) {
        if self.told.is_some() {
            let _ = write!(anstream::stderr(), "\r{:60}\r", "");
        }
    }
}

impl Voice {
    pub(crate) fn new(common: &Common) -> Voice {
        Voice { json: common.json, verbose: common.verbose, terminal: std::io::stderr().is_terminal() }
    }

    /// What must be said: an anomaly.
    pub(crate) fn say(&self, line: &str) {
        // a closed stderr is no reason to fail: there is nobody to tell
        let _ = writeln!(anstream::stderr(), "semel: {}", clean(line));
    }

    /// What is said to somebody who watches: a rightly skipped run, a wait.
    ///
    /// The words are made only if they are said: the local time alone costs more than the rest of a skip.
    pub(crate) fn mention(&self, line: impl FnOnce() -> String) {
        if (self.terminal || self.verbose) && !self.json {
            self.say(&line());
        }
    }

    /// What is said when asked for.
    pub(crate) fn detail(&self, line: impl FnOnce() -> String) {
        if self.verbose && !self.json {
            self.say(&line());
        }
    }

    /// An outcome as JSON, on stderr: stdout belongs to the command.
    pub(crate) fn outcome(&self, object: impl FnOnce() -> Value) {
        if self.json {
            let mut object = object();
            stamp(&mut object);
            let _ = writeln!(std::io::stderr(), "{}", text(&object));
        }
    }
}

fn stamp(object: &mut Value) {
    if let Some(members) = object.as_object_mut() {
        members.insert("v".into(), JSON_VERSION.into());
    }
}

/// JSON escapes only some of what could steer a terminal; the rest can only stand in strings.
fn text(object: &Value) -> String {
    let mut text = String::new();
    for c in object.to_string().chars() {
        match u32::from(c) {
            code @ 0x7f..=0x9f => text.push_str(&format!("\\u{code:04x}")),
            _ => text.push(c),
        }
    }
    text
}

/// An answer as JSON, on stdout. A reader that went away is no reason to fail.
pub(crate) fn print_json(object: Value) {
    try_print_json(object);
}

/// A line of an answer, on stdout. A reader that went away is no reason to fail.
pub(crate) fn print(line: &str) {
    try_print(line);
}

/// As [`print_json`], for an answer that is worth nothing if nobody gets it.
pub(crate) fn try_print_json(mut object: Value) -> bool {
    stamp(&mut object);
    try_print(&text(&object))
}

/// As [`print()`], for an answer that is worth nothing if nobody gets it.
pub(crate) fn try_print(line: &str) -> bool {
    let mut out = anstream::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

/// A wall clock time, as people read it here.
pub(crate) fn when(ms: u64) -> String {
    let stamp = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    match stamp {
        Some(stamp) => stamp.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
        None => "an unknown time".to_owned(),
    }
}

/// A length of time, as people read it.
pub(crate) fn span(ms: u64) -> String {
    let (s, m, h, d) = (ms / 1000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    match () {
        () if ms < 1_000 => format!("{ms}ms"),
        () if s < 10 => format!("{s}.{}s", ms % 1000 / 100),
        () if s < 120 => format!("{s}s"),
        () if m < 120 => format!("{m}m{:02}s", s % 60),
        () if h < 48 => format!("{h}h{:02}m", m % 60),
        () => format!("{d}d{:02}h", h % 24),
    }
}
