//! How a job was defined when it ran, and what has changed since it last succeeded.
//!
//! A changed definition is no error: people fix scripts and policies. But "it worked yesterday" is answered soonest
//! by what is different today. So every attempt carries the digest of its job's definition, and an entry keeps the
//! text of the last one, and of the last one that succeeded where that is another.
//!
//! The last success is the *job's*: with slots, it is found in another entry. Attempts are ordered by the wall
//! clocks of those who made them: this is for people, and nothing is decided by it.
//!
//! What this does not do: keep values that may be secret. Whoever makes a definition puts digests or the names of
//! variables in their place.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::{self, JsonError, hex};
use crate::entry::{Attempt, Entry};
use crate::payload::{Change, Fingerprint};

/// The longest text of a definition that is kept, in bytes.
pub const TEXT_LIMIT: usize = 4 * 1024;

/// How a job was defined.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Definition {
    /// Of the canonical text, the first 16 bytes of its SHA-256.
    pub digest: String,
    /// The canonical text; empty if it is longer than [`TEXT_LIMIT`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl Definition {
    /// Of this object, without anything secret in it.
    pub fn of(value: &Value) -> Result<Definition, JsonError> {
        let mut text = canonical::canonical(value)?;
        let digest = hex(&Sha256::digest(text.as_bytes())[..16]);
        if text.len() > TEXT_LIMIT {
            text = String::new();
        }
        Ok(Definition { digest, text })
    }

    fn value(&self) -> Option<Value> {
        canonical::parse(&self.text).ok()
    }
}

/// One difference between two definitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which key, with its members separated by dots; empty if only the whole can be compared.
    pub key: String,
    /// What it was; nothing if it was not there.
    pub was: Option<Value>,
    /// What it is; nothing if it is no longer there.
    pub is: Option<Value>,
}

impl Difference {
    /// In words: `ttl: 60s → 2m`.
    pub fn words(&self) -> String {
        let said = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match (&self.was, &self.is) {
            (Some(was), Some(is)) => format!("{}: {} → {}", self.key, said(was), said(is)),
            (Some(was), None) => format!("{}: {} → no longer given", self.key, said(was)),
            (None, Some(is)) => format!("{}: not given → {}", self.key, said(is)),
            (None, None) => "what changed is not kept".to_owned(),
        }
    }
}

/// What is different, key by key; one that names nothing if the texts are not there to be compared.
pub fn differences(was: &Definition, is: &Definition) -> Vec<Difference> {
    if was.digest == is.digest {
        return Vec::new();
    }
    let unknown = || vec![Difference { key: String::new(), was: None, is: None }];
    let (Some(was), Some(is)) = (was.value(), is.value()) else { return unknown() };
    let print = |value| Fingerprint::of_json(value, &[]).ok();
    let (Some(before), Some(after)) = (print(&was), print(&is)) else { return unknown() };
    let mut all = Vec::new();
    for field in before.diff(&after) {
        let pointer = field.pointer.as_str();
        let at = |value: &Value| value.pointer(pointer).cloned();
        let key = pointer.trim_start_matches('/').replace('/', ".").replace("~1", "/").replace("~0", "~");
        all.push(match field.change {
            Change::Changed => Difference { key, was: at(&was), is: at(&is) },
            Change::Removed => Difference { key, was: at(&was), is: None },
            Change::Added => Difference { key, was: None, is: at(&is) },
        });
    }
    if all.is_empty() { unknown() } else { all }
}

impl Entry {
    /// Note how the attempt that begins is defined; what last succeeded is kept while it is another.
    pub(crate) fn define(&mut self, new: &Definition) {
        let proven = self.log.iter().rev().find(|attempt| attempt.ending.is_success());
        if let Some(old) = self.definition.take()
            && proven.is_some_and(|attempt| attempt.definition.as_ref() == Some(&old.digest))
        {
            self.proven = Some(old);
        }
        self.proven = self.proven.take().filter(|proven| proven.digest != new.digest);
        self.definition = Some(new.clone());
    }

    /// The definition of one of its attempts, with its text if that is kept.
    pub fn definition_of(&self, attempt: &Attempt) -> Option<Definition> {
        let digest = attempt.definition.as_ref()?;
        let kept = [&self.definition, &self.proven].into_iter().flatten();
        let found = kept.into_iter().find(|kept| kept.digest == *digest).cloned();
        Some(found.unwrap_or_else(|| Definition { digest: digest.clone(), text: String::new() }))
    }
}

/// The successes of a job, as far as definitions go.
#[derive(Clone, Debug, Default)]
pub struct Successes {
    /// When they began, and how they were defined.
    all: Vec<(u64, Definition)>,
}

/// The most successes that are remembered: those of a job that runs every minute need not all be.
const SUCCESSES_KEPT: usize = 512;

impl Successes {
    /// Note what succeeded of this entry.
    pub fn note(&mut self, entry: &Entry) {
        for attempt in entry.log.iter().filter(|attempt| attempt.ending.is_success()) {
            if let Some(definition) = entry.definition_of(attempt) {
                self.all.push((attempt.started_ms, definition));
            }
        }
        if self.all.len() >= 2 * SUCCESSES_KEPT {
            self.all.sort_by_key(|(at_ms, _)| std::cmp::Reverse(*at_ms));
            self.all.truncate(SUCCESSES_KEPT);
        }
    }

    /// Note what succeeded last of this entry, and forget what succeeded before: enough for the last attempt of all.
    pub fn note_last(&mut self, entry: &Entry) {
        self.note(entry);
        let last = self.all.iter().max_by_key(|(at_ms, _)| *at_ms).cloned();
        self.all = last.into_iter().collect();
    }

    /// The last one that began before then.
    pub fn before(&self, at_ms: u64) -> Option<&Definition> {
        let earlier = self.all.iter().filter(|(began_ms, _)| *began_ms < at_ms);
        earlier.max_by_key(|(began_ms, _)| *began_ms).map(|(_, definition)| definition)
    }

    /// The last one.
    pub fn last(&self) -> Option<&Definition> {
        self.before(u64::MAX)
    }

    /// Was this attempt defined otherwise than the last success before it? Then how that was.
    pub fn drift(&self, attempt: &Attempt) -> Option<&Definition> {
        let digest = attempt.definition.as_ref()?;
        self.before(attempt.started_ms).filter(|success| success.digest != *digest)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::entry::{Ending, State};
    use crate::story::testing::{attempt, entry};

    fn definition(ttl: &str) -> Definition {
        Definition::of(&json!({ "ttl": ttl, "command": { "program": "a" } })).unwrap()
    }

    #[test]
    fn differences_are_told_key_by_key() {
        let was = Definition::of(&json!({ "ttl": "60s", "env": { "A": "x" }, "or": ["r"] })).unwrap();
        let is = Definition::of(&json!({ "ttl": "2m", "env": { "A": "x", "B/C": "y" } })).unwrap();
        let words: Vec<String> = differences(&was, &is).iter().map(Difference::words).collect();
        assert_eq!(words, ["env.B/C: not given → y", "or.0: r → no longer given", "ttl: 60s → 2m"]);
        assert_eq!(differences(&was, &was), []);
    }

    #[test]
    fn a_record_from_before_there_were_definitions_is_read() {
        let mut old = entry(State::Open { torn: false });
        old.push_attempt(attempt(1, 1, Ending::Succeeded));
        let record = serde_json::to_value(&old).unwrap();
        assert!(record.get("definition").is_none() && record.get("proven").is_none());
        assert_eq!(serde_json::from_value::<Entry>(record).unwrap(), old);
        let mut successes = Successes::default();
        successes.note(&old);
        assert_eq!(successes.last(), None);
    }

    #[test]
    fn what_is_too_long_is_known_by_its_digest() {
        let long = |c: &str| Definition::of(&json!({ "or": c.repeat(TEXT_LIMIT) })).unwrap();
        let (was, is) = (long("a"), long("b"));
        assert!(was.text.is_empty() && was.digest != is.digest);
        assert_eq!(differences(&was, &is)[0].words(), "what changed is not kept");
    }

    #[test]
    fn an_entry_keeps_the_last_success_while_it_is_another() {
        let mut entry = entry(State::Open { torn: false });
        let mut ran = |n, ttl: &str, ending| {
            entry.define(&definition(ttl));
            let mut made = attempt(n, u64::from(n), ending);
            made.definition = Some(definition(ttl).digest);
            entry.push_attempt(made);
            (entry.definition.clone().unwrap(), entry.proven.clone())
        };
        let failed = || Ending::Failed { code: 1 };
        assert_eq!(ran(1, "1s", failed()), (definition("1s"), None));
        assert_eq!(ran(2, "2s", Ending::Succeeded), (definition("2s"), None));
        assert_eq!(ran(3, "3s", failed()), (definition("3s"), Some(definition("2s"))));
        assert_eq!(ran(4, "4s", failed()), (definition("4s"), Some(definition("2s"))));
        assert_eq!(ran(5, "2s", failed()), (definition("2s"), None));
        assert_eq!(ran(6, "3s", Ending::ProbedDone), (definition("3s"), Some(definition("2s"))));
        assert_eq!(ran(7, "1s", failed()), (definition("1s"), Some(definition("3s"))));

        let mut successes = Successes::default();
        successes.note(&entry);
        let drift = |n: usize| successes.drift(&entry.log[n - 1]).cloned();
        assert_eq!((drift(1), drift(2)), (None, None), "nothing had succeeded");
        assert_eq!(drift(3).unwrap().digest, definition("2s").digest);
        assert_eq!(drift(5), None, "as it was when it succeeded");
        assert_eq!(drift(7).unwrap(), definition("3s"));
        assert_eq!(successes.last(), Some(&definition("3s")));
    }
}
