//! What Semel says: on stderr, one line per outcome, silent on success unless asked. Tables and JSON that were
//! asked for go to stdout.

use std::io::{IsTerminal, Write};

use jiff::Timestamp;
use jiff::tz::TimeZone;
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
    pub(crate) fn mention(&self, line: &str) {
        if (self.terminal || self.verbose) && !self.json {
            self.say(line);
        }
    }

    /// What is said when asked for.
    pub(crate) fn detail(&self, line: &str) {
        if self.verbose && !self.json {
            self.say(line);
        }
    }

    /// An outcome as JSON, on stderr: stdout belongs to the command.
    pub(crate) fn outcome(&self, mut object: Value) {
        if self.json {
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

/// An answer as JSON, on stdout.
pub(crate) fn print_json(mut object: Value) {
    stamp(&mut object);
    let _ = writeln!(std::io::stdout(), "{}", text(&object));
}

/// A line of an answer, on stdout.
pub(crate) fn print(line: &str) {
    let _ = writeln!(anstream::stdout(), "{line}");
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
