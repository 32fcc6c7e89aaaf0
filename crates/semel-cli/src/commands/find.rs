//! What the inspecting commands share: opening a ledger without making one, finding an entry by what people call
//! it, and telling about it in one line.

use std::sync::Arc;

use semel::engine::Engine;
use semel::engine::ledger::{DIGITS_LEAST, Found, Listed, Wanted};
use semel::store::memory::Memory;
use semel_core::alarm::Alarm;
use semel_core::entry::{DoneBy, Entry, Say, State};
use semel_core::record::{RecordKey, Standing};
use semel_core::story::{Condition, Words, ended};
use semel_core::work::Work;
use serde_json::{Value, json};

use crate::args::Common;
use crate::out::{Voice, print, print_json, span, when};
use crate::plan::{self, Surroundings};
use crate::trouble::Trouble;

/// Times, as people read them here.
pub(crate) fn words() -> Words<'static> {
    Words { when: &when, span: &span }
}

/// The engine on the ledger, or on an empty one in memory if there is none yet: looking must not make one.
pub(crate) fn ledger(common: &Common, around: &Surroundings) -> Result<Engine, Trouble> {
    let address = plan::address(common, around)?;
    if let Some(path) = address.path()
        && std::fs::symlink_metadata(path).is_err_and(|why| why.kind() == std::io::ErrorKind::NotFound)
    {
        if !common.json {
            Voice::new(common)
                .say(&format!("there is no ledger at {} yet: nothing has run with it", path.display()));
        }
        return Ok(plan::engine_on(Arc::new(Memory::new())));
    }
    plan::engine(common, around)
}

/// The work that people mean; whether it is on record is another question.
pub(crate) async fn work(common: &Common, engine: &Engine, text: &str) -> Result<Work, Trouble> {
    let wanted = Wanted::parse(text).map_err(|why| {
        Trouble::input(format!(
            "{text:?} names no entry: {why}; write it as semel ls does (publish@2026-06-19), or give {DIGITS_LEAST} or more digits of its key"
        ))
    })?;
    match engine.find(&wanted).await? {
        Found::Work(work) => Ok(work),
        Found::Nothing => Err(Trouble::input(format!(
            "no entry has the name or a key that begins with {text}; list them with: semel ls"
        ))),
        Found::Many(works, count) => {
            for work in &works {
                let key = work.key().to_string();
                if common.json {
                    print_json(json!({ "kind": "match", "work": work.to_string(), "key": key }));
                } else {
                    print(&format!("{key}  {work}"));
                }
            }
            Err(Trouble::input(format!(
                "{count} entries have a key that begins with {text}: give more digits, or the name"
            )))
        }
    }
}

/// What to say of a work that is not on record.
pub(crate) async fn not_on_record(engine: &Engine, work: &Work) -> Result<Trouble, Trouble> {
    let page = engine.page(Some(work.job()), None).await?;
    let newest = page.entries.iter().max_by_key(|listed| listed.seen.value.changed_ms);
    let job = work.job();
    Ok(Trouble::input(match newest {
        None => {
            format!("{work} is not on record, and nothing else of job {job}; list what is with: semel ls")
        }
        Some(newest) => {
            let count = match (page.entries.len(), page.next) {
                (1, None) => "one other entry of that job is".to_owned(),
                (count, None) => format!("{count} entries of that job are"),
                (count, Some(_)) => format!("more than {count} entries of that job are"),
            };
            let name = &newest.seen.value.work;
            format!(
                "{work} is not on record, but {count}, such as {name}; list them with: semel ls --job {job}"
            )
        }
    }))
}

/// What is worth knowing of an entry, in a few words.
pub(crate) fn note(listed: &Listed) -> String {
    let entry = &listed.seen.value;
    let last = entry.last_attempt();
    let end = last.map(|last| ended(&last.ending)).unwrap_or_default();
    match (&entry.state, listed.condition) {
        (State::Running { .. }, Condition::Lost) => {
            let who = last.map(|last| format!("{} is gone", last.owner)).unwrap_or_default();
            format!("{who}; the next run takes over")
        }
        (State::Running { .. }, _) => {
            let who = last.map(|last| last.owner.to_string()).unwrap_or_default();
            match left_ms(listed) {
                Some(left_ms) => format!("{who}, lease ends in {} unless renewed", span(left_ms)),
                None => who,
            }
        }
        (State::Done { by: DoneBy::Run }, _) => String::new(),
        (State::Done { by: DoneBy::Probe }, _) => "found by the probe".to_owned(),
        (State::Done { by: DoneBy::Person }, _) => said(entry),
        (State::Failed { .. }, _) => match entry.terms.max_failures {
            0 => end,
            most => format!("{end}; failure {} of {most}", entry.failures),
        },
        (State::Missed { reason, detail }, _) => {
            let detail = detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
            format!("{}{detail}", reason.words())
        }
        (State::Quarantined, _) => format!("{end}; {} in a row", entry.failures),
        (State::InDoubt { why }, _) => why.clone(),
        (State::Open { .. }, _) if judged_last(entry) => said(entry),
        (State::Open { .. }, _) => end,
    }
}

/// A person spoke after the last attempt.
fn judged_last(entry: &Entry) -> bool {
    let last = entry.last_attempt().map_or(0, |last| last.ended_ms.unwrap_or(last.started_ms));
    entry.verdicts.last().is_some_and(|verdict| verdict.at_ms >= last)
}

fn said(entry: &Entry) -> String {
    let Some(verdict) = entry.verdicts.last() else { return "a person said so".to_owned() };
    let said = match verdict.said {
        Say::Done => "done",
        Say::NotDone => "not done",
        Say::Retry => "retry",
    };
    format!("{} said {said}: {}", verdict.by, verdict.because)
}

/// How long the lease that an entry runs under still lives.
pub(crate) fn left_ms(listed: &Listed) -> Option<u64> {
    match listed.lease.as_ref()?.standing {
        Standing::Live { left_ms } if listed.condition == Condition::Running => Some(left_ms),
        _ => None,
    }
}

/// The token of the last attempt, and whose it is.
pub(crate) fn token(entry: &Entry) -> String {
    entry.last_attempt().map(|last| format!("{} {}", last.token, last.resource)).unwrap_or_default()
}

/// An entry of a list, as JSON.
pub(crate) fn as_json(listed: &Listed) -> Value {
    let entry = &listed.seen.value;
    json!({
        "kind": "entry", "work": entry.work.to_string(), "key": entry.work.key().to_string(),
        "state": listed.condition.word(), "needs_person": listed.condition.needs_a_person(),
        "left_ms": left_ms(listed), "note": note(listed), "entry": entry,
    })
}

/// The newest of many things, in the memory of a few.
#[derive(Debug)]
pub(crate) struct Newest<T> {
    limit: usize,
    kept: Vec<(u64, T)>,
    /// How many there were.
    pub(crate) count: u64,
}

impl<T> Newest<T> {
    pub(crate) fn new(limit: usize) -> Newest<T> {
        Newest { limit, kept: Vec::new(), count: 0 }
    }

    pub(crate) fn push(&mut self, at_ms: u64, thing: T) {
        self.count += 1;
        self.kept.push((at_ms, thing));
        if self.kept.len() >= self.limit.saturating_mul(2).max(64) {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        // stable: what is equally new stays in the ledger's order
        self.kept.sort_by_key(|(at_ms, _)| std::cmp::Reverse(*at_ms));
        self.kept.truncate(self.limit);
    }

    /// The newest first.
    pub(crate) fn into_vec(mut self) -> Vec<T> {
        self.shrink();
        self.kept.into_iter().map(|(_, thing)| thing).collect()
    }

    /// How many are not among them.
    pub(crate) fn left_out(&self) -> u64 {
        self.count.saturating_sub(self.limit as u64)
    }
}

/// Every alarm of the ledger, each with its record's name.
pub(crate) async fn each_alarm(
    engine: &Engine,
    take: &mut dyn FnMut(&RecordKey, &Alarm),
) -> Result<(), Trouble> {
    let mut from = None;
    loop {
        let (alarms, next) = engine.alarms(from.as_ref()).await?;
        alarms.iter().for_each(|(key, seen)| take(key, &seen.value));
        from = next;
        if from.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_kept_newest_first() {
        let mut newest = Newest::new(3);
        for n in 0..1_000_u64 {
            newest.push(n * 7 % 1_000, n);
        }
        assert_eq!((newest.count, newest.left_out()), (1_000, 997));
        assert!(newest.kept.len() < 64);
        assert_eq!(newest.into_vec().iter().map(|n| n * 7 % 1_000).collect::<Vec<_>>(), [999, 998, 997]);
        let mut none = Newest::new(0);
        none.push(1, ());
        assert_eq!((none.left_out(), none.into_vec().len()), (1, 0));
    }
}
