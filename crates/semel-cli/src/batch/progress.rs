//! What somebody who watches a batch sees, on stderr alone.
//!
//! On a terminal one line that is drawn again, by indicatif, at most five times a second, without colours; elsewhere
//! one line a minute at most. What Semel itself writes to that terminal goes through [`Progress::aside`], so that nothing
//! is torn; a command that writes to the terminal may tear the line until it is drawn again.
//!
//! It consumes counts and drives nothing. Nothing of it is made before a batch starts: other commands do not pay for it.

use std::ffi::OsStr;
use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::out::span;
use crate::table::clean;

/// How often a line is said where nobody watches.
const LINE_EVERY_MS: u64 = 60_000;

/// How often the bar is drawn.
const DRAWS_PER_SECOND: u8 = 5;

/// Over how long the rate is measured.
const RATE_MS: f64 = 15_000.0;

/// What became of the items so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) done: u64,
    pub(crate) skipped: u64,
    pub(crate) failed: u64,
    pub(crate) quarantined: u64,
    pub(crate) in_doubt: u64,
    /// The same key again.
    pub(crate) duplicates: u64,
    /// The same key with other fields.
    pub(crate) mismatched: u64,
    /// No items at all.
    pub(crate) wrong: u64,
    /// Not started: the batch was stopped, or the breaker opened.
    pub(crate) left: u64,
    /// Not started: somebody held the resource that they name.
    pub(crate) held: u64,
}

impl Counts {
    /// All that were dealt with.
    pub(crate) fn all(&self) -> u64 {
        self.done + self.skipped + self.failed + self.quarantined + self.in_doubt
    }

    /// Is each item done, or has it failed? What was left out for another reason is neither.
    pub(crate) fn is_all_known(&self) -> bool {
        self.mismatched + self.wrong + self.left + self.held == 0
    }

    pub(crate) fn words(&self) -> String {
        let Counts { done, skipped, failed, quarantined, in_doubt, .. } = self;
        format!(
            "done {done}, skipped {skipped}, failed {failed}, quarantined {quarantined}, in doubt {in_doubt}"
        )
    }

    /// The closing line. Only its end may grow.
    pub(crate) fn closing(&self, job: &str, elapsed_ms: u64) -> String {
        let mut line = format!("{job}: {} in {}", self.words(), span(elapsed_ms));
        let more = [
            ("duplicates", self.duplicates),
            ("mismatched", self.mismatched),
            ("wrong input", self.wrong),
            ("left", self.left),
            ("held", self.held),
        ];
        for (word, count) in more.into_iter().filter(|(_, count)| *count > 0) {
            line.push_str(&format!(", {word} {count}"));
        }
        line
    }
}

/// Who is there to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watcher {
    /// A terminal that can draw a line again.
    Terminal,
    /// A file, or a terminal that cannot.
    Log,
    /// Nobody: outcomes are told as JSON.
    Nobody,
}

impl Watcher {
    /// Who is at the end of stderr; `term` is what the environment says of it.
    pub(crate) fn of(json: bool, is_terminal: bool, term: Option<&OsStr>) -> Watcher {
        match (json, term) {
            (true, _) => Watcher::Nobody,
            (false, Some(term)) if is_terminal && term != "dumb" && !term.is_empty() => Watcher::Terminal,
            _ => Watcher::Log,
        }
    }
}

/// A batch's progress.
pub(crate) struct Progress {
    job: String,
    bar: Option<ProgressBar>,
    /// Where lines go, and when the last was said.
    log: Option<(Box<dyn Write + Send>, u64)>,
    rate: Rate,
    started_ms: u64,
}

impl Progress {
    /// From now on; `bytes` is how long the input is, where that is known. Times are of one clock that only grows.
    pub(crate) fn new(job: &str, bytes: Option<u64>, watcher: Watcher, now_ms: u64) -> Progress {
        let bar = (watcher == Watcher::Terminal)
            .then(|| bar(job, bytes, ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND)));
        let log: Option<(Box<dyn Write + Send>, u64)> =
            (watcher == Watcher::Log).then(|| (Box::new(std::io::stderr()) as _, now_ms));
        Progress { job: clean(job), bar, log, rate: Rate::new(now_ms), started_ms: now_ms }
    }

    /// Something has changed, or a while has passed; `end` is where in the input the items stand that were dealt with.
    pub(crate) fn update(&mut self, counts: &Counts, end: u64, now_ms: u64) {
        self.rate.update(counts.all(), now_ms);
        if let Some(bar) = &self.bar {
            bar.set_position(end.min(bar.length().unwrap_or(u64::MAX)));
            bar.set_message(format!("{}, {}", self.rate.words(), counts.words()));
        }
        if let Some((out, said_ms)) = &mut self.log
            && now_ms.saturating_sub(*said_ms) >= LINE_EVERY_MS
        {
            *said_ms = now_ms;
            let since = span(now_ms.saturating_sub(self.started_ms));
            // a closed stderr is no reason to fail
            let _ =
                writeln!(out, "semel: {}: {} after {since}, {}", self.job, counts.words(), self.rate.words());
        }
    }

    /// Do something that writes to the terminal: the bar is taken away before it, and drawn again after it.
    pub(crate) fn aside<R>(&self, write: impl FnOnce() -> R) -> R {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// The closing line.
    pub(crate) fn finish(self, counts: &Counts, now_ms: u64) -> String {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
        counts.closing(&self.job, now_ms.saturating_sub(self.started_ms))
    }
}

fn bar(job: &str, bytes: Option<u64>, target: ProgressDrawTarget) -> ProgressBar {
    let (bar, template) = match bytes.filter(|bytes| *bytes > 0) {
        Some(bytes) => (
            ProgressBar::with_draw_target(Some(bytes), target),
            "{prefix} [{bar:20}] {percent}%, {eta} left, {wide_msg}",
        ),
        None => (ProgressBar::with_draw_target(None, target), "{prefix} {spinner} {elapsed}, {wide_msg}"),
    };
    // a template of ours that is wrong would be a fault here; the plain bar serves as well
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.progress_chars("=> ").tick_chars("-\\|/ "));
    bar.set_prefix(clean(job));
    bar
}

/// Items per second, of late.
#[derive(Debug)]
struct Rate {
    at_ms: u64,
    count: u64,
    per_second: Option<f64>,
}

impl Rate {
    fn new(now_ms: u64) -> Rate {
        Rate { at_ms: now_ms, count: 0, per_second: None }
    }

    fn update(&mut self, count: u64, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.at_ms);
        // shorter than that says nothing
        if Duration::from_millis(passed_ms) < Duration::from_millis(200) {
            return;
        }
        let now = count.saturating_sub(self.count) as f64 * 1000.0 / passed_ms as f64;
        let weight = (-(passed_ms as f64) / RATE_MS).exp();
        self.per_second = Some(self.per_second.map_or(now, |before| before * weight + now * (1.0 - weight)));
        (self.at_ms, self.count) = (now_ms, count);
    }

    fn words(&self) -> String {
        match self.per_second {
            None => "-/s".to_owned(),
            Some(rate) if rate < 10.0 => format!("{rate:.1}/s"),
            Some(rate) => format!("{rate:.0}/s"),
        }
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
