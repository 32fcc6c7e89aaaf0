//! What is said of a batch while it runs and at its end, and counted.

use semel::engine::Event;
use semel::engine::batch::{BatchEvent, Batched, Fate, Item as Known, Stopped};
use semel_core::entry::{Entry, State};
use semel_core::policy::IfBusy;
use semel_core::story::ended;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::failed::FailedTo;
use super::item::Item;
use super::joblog::Joblog;
use super::progress::{Counts, Progress};
use super::resolve::Resolved;
use crate::commands::run::{how_to_resolve, tell};
use crate::exit;
use crate::notify::Pings;
use crate::out::{Voice, span};
use crate::trouble::Trouble;

/// What is said of a batch, and counted.
pub(crate) struct Watch {
    pub(crate) voice: Voice,
    pub(crate) progress: Progress,
    pub(crate) counts: Counts,
    pub(crate) failed_to: Option<FailedTo>,
    /// Where in the input the last item stands that was dealt with.
    pub(crate) end: u64,
    /// The closing line is asked for.
    pub(crate) summary: bool,
    pub(crate) pings: Pings,
    /// Where it is said that something waits to be told; none once the batch is over.
    pub(crate) notices: Option<mpsc::UnboundedSender<()>>,
}

impl Watch {
    pub(crate) fn hear(&mut self, event: BatchEvent<'_, Item>, now_ms: u64) {
        match event {
            BatchEvent::Runner(Event::Notices) => {
                if let Some(notices) = &self.notices {
                    // nobody listens any more once the batch is over
                    let _ = notices.send(());
                }
            }
            BatchEvent::Runner(event) => self.progress.aside(|| tell(&self.voice, &event)),
            BatchEvent::Started => self.pings.start(),
            BatchEvent::Began { .. } | BatchEvent::Read => {}
            BatchEvent::Item { item, fate } => self.item(item, &fate),
            BatchEvent::Several { count, fate: Fate::Skipped } => self.counts.skipped += count,
            BatchEvent::Several { count, .. } => self.counts.left += count,
            BatchEvent::Bad(bad) => {
                self.counts.wrong += 1;
                let place = bad.line.map(|line| format!("line {line}: ")).unwrap_or_default();
                self.say(&format!("{place}{}", bad.why));
                self.voice.outcome(|| json!({ "kind": "item", "outcome": "bad", "line": bad.line, "why": bad.why, "exit_code": exit::INPUT }));
            }
            BatchEvent::Paused { row, for_ms } => {
                let pause = span(for_ms);
                self.say(&format!(
                    "{row} items failed in a row: nothing is begun for {pause}, then one is tried"
                ));
                self.voice.outcome(|| json!({ "kind": "pause", "failed_in_a_row": row, "for_ms": for_ms }));
            }
        }
        self.progress.update(&self.counts, self.end, now_ms);
    }

    pub(crate) fn say(&self, line: &str) {
        if !self.voice.json {
            self.progress.aside(|| self.voice.say(line));
        }
    }

    fn item(&mut self, item: &Known<Item>, fate: &Fate<'_>) {
        self.end = self.end.max(item.data.end);
        let work = &item.work;
        let last = |entry: &Entry| entry.last_attempt().map(|last| ended(&last.ending)).unwrap_or_default();
        let mut failed = false;
        let mut more = Value::Null;
        let (word, why) = match fate {
            Fate::Done(_) => {
                self.counts.done += 1;
                ("done", None)
            }
            Fate::Skipped => {
                self.counts.skipped += 1;
                ("skipped", None)
            }
            Fate::Duplicate => {
                self.counts.duplicates += 1;
                ("duplicate", None)
            }
            Fate::Failed(entry) => {
                self.counts.failed += 1;
                failed = true;
                let of = match entry.terms.max_failures {
                    0 => String::new(),
                    most => format!(" (failure {} of {most})", entry.failures),
                };
                ("failed", Some(format!("{work} {}{of}", last(entry))))
            }
            Fate::Person(entry) => {
                failed = true;
                match entry.state {
                    State::Quarantined => self.counts.quarantined += 1,
                    _ => self.counts.in_doubt += 1,
                }
                let state = entry.state.word().replace('_', " ");
                let why =
                    format!("{work} is {state}: {}; {}", last(entry), how_to_resolve(&work.to_string()));
                (entry.state.word(), Some(why))
            }
            Fate::Mismatch { changes, entry } => {
                self.counts.mismatched += 1;
                let names: Vec<String> = changes.iter().map(|change| change.pointer.to_string()).collect();
                let first = entry.map(|entry| format!(", and is {}", entry.state.word())).unwrap_or_default();
                let why = format!(
                    "{work} was given other fields before ({}){first}: it is not run; name what may differ with --volatile",
                    names.join(", ")
                );
                more = json!({ "exit_code": exit::INPUT, "fields": changes, "entry": entry });
                ("mismatch", Some(why))
            }
            Fate::Busy => {
                self.counts.left += 1;
                ("busy", None)
            }
            Fate::Held => {
                self.counts.held += 1;
                ("held", None)
            }
            Fate::Interrupted => {
                self.counts.left += 1;
                ("interrupted", None)
            }
            Fate::Unrecorded(why) => {
                self.counts.left += 1;
                ("unrecorded", Some(format!("{work} ended, and that could not be recorded: {why}")))
            }
        };
        if failed && let Some(list) = &mut self.failed_to {
            list.push(&item.data.raw);
        }
        if let Some(why) = &why {
            self.say(why);
        }
        self.voice.outcome(|| {
            let mut record = json!({
                "kind": "item", "outcome": word, "work": work.to_string(), "key": item.key.to_string(),
                "line": item.line, "why": why,
            });
            if let (Some(record), Value::Object(more)) = (record.as_object_mut(), more) {
                record.extend(more);
            }
            record
        });
    }

    pub(crate) fn close(
        mut self,
        batch: &Resolved,
        batched: &Batched,
        joblog: Option<&Joblog>,
        now_ms: u64,
    ) -> Result<u8, Trouble> {
        let Watch { voice, counts, .. } = self;
        let job = batch.work.job();
        let line = self.progress.finish(&counts, now_ms);
        let code = match exit::of_batch(&counts, &batched.stopped) {
            0 if counts.held > 0 && batch.policy.if_busy == IfBusy::Fail => exit::BUSY,
            0 if counts.held > 0 => batch.skip_code,
            code => code,
        };
        if let Some(why) = stopped(&batched.stopped) {
            voice.say(&format!("{job}: {why}"));
        }
        // what was on record already asked for no row: as many may be theirs
        let left = joblog.map(|log| log.left_over().saturating_sub(counts.skipped));
        if let Some(left) = left.filter(|left| *left > 0) {
            voice.say(&format!("{left} rows of the joblog belong to no item of this input"));
        }
        let is_all = batched.stopped == Stopped::AtTheEnd && counts.is_all_known();
        let failed_to = self.failed_to.take();
        let left = failed_to.as_ref().and_then(|list| list.leave(is_all));
        left.iter().for_each(|line| voice.say(line));
        let taken = failed_to.filter(|_| left.is_none()).map(FailedTo::finish).transpose();
        if voice.json {
            voice.outcome(|| report(batch, &counts, batched, code));
        } else if code != 0 || counts.done > 0 || voice.terminal || voice.verbose || self.summary {
            // one that found nothing left to do is as silent as any other skip
            voice.say(&line);
        }
        let is_skip = code == batch.skip_code && exit::of_batch(&counts, &batched.stopped) == 0;
        let code_told = match (&batched.stopped, &taken) {
            (Stopped::AtTheEnd, Ok(_)) => Some(if is_skip { 0 } else { code }),
            _ => None,
        };
        self.pings.end_batch(code_told, &format!("ended: {}", counts.words()), voice);
        taken?;
        Ok(code)
    }
}

fn stopped(stopped: &Stopped) -> Option<String> {
    match stopped {
        Stopped::AtTheEnd => None,
        Stopped::Interrupted(signal) => {
            Some(format!("interrupted by signal {signal}; start it again to go on"))
        }
        Stopped::LeaseLost(why) => Some(format!("the lease was lost: {why}; what was under way was stopped")),
        Stopped::StoreDown(why) => {
            Some(format!("the store cannot be reached: {why}; start it again to go on"))
        }
        Stopped::Breaker(row) => {
            Some(format!("stopped after {row} failures in a row (--stop-after); start it again to go on"))
        }
        Stopped::Machine(why) => Some(format!(
            "{why}; nothing more was begun and nothing counts as failed: start it again to go on"
        )),
        Stopped::Unusable(why) => Some(why.clone()),
    }
}

fn report(batch: &Resolved, counts: &Counts, batched: &Batched, code: u8) -> Value {
    json!({
        "kind": "batch", "job": batch.work.job(), "work": batch.work.to_string(), "exit_code": code,
        "done": counts.done, "skipped": counts.skipped, "failed": counts.failed,
        "quarantined": counts.quarantined, "in_doubt": counts.in_doubt, "duplicates": counts.duplicates,
        "mismatched": counts.mismatched, "wrong": counts.wrong, "left": counts.left,
        "held": counts.held,
        "commits": batched.commits, "stopped": stopped(&batched.stopped),
        "took_ms": u64::try_from(batched.took.as_millis()).unwrap_or(u64::MAX),
    })
}
