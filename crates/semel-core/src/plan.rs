//! Plans: what a run is to decide, decided once, from the intent.
//!
//! An agent that is asked twice picks two topics. So what it is to pick is picked for it before the first attempt,
//! written into the entry with the first claim, and handed to every attempt after it. [`claim`](mod@crate::claim)
//! never replaces a plan that is pinned.
//!
//! A plan is a flat JSON object: `seed` and `seed_hex`, which follow from the key alone, and one member per name
//! that was asked for.
//!
//! # The rule of a choice
//!
//! Rendezvous hashing: each option is hashed together with the key and the name of the choice, and the largest
//! digest wins, compared byte by byte. So a new option takes its share from the others and moves nothing between
//! them, and one that is removed moves only what was its own. What is hashed is each of these in UTF-8, its length
//! as eight bytes (the largest first) before it:
//!
//! ```text
//! choice:  "semel plan 1"  "choose"  the key in hexadecimal  the name  the option
//! seed:    "semel plan 1"  "seed"    the key in hexadecimal
//! ```
//!
//! `seed_hex` is all of the seed's digest, `seed` the number in its first 53 bits. `vectors/plans.json` has examples
//! for other languages.
//!
//! Not guaranteed: an even spread over a handful of keys, or that neighbouring slots get different options. A choice
//! knows nothing of other works; what must not come again soon is told with `recent`.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::canonical::{self, Pointer, hex};
use crate::key::Key;

/// The rule by which plans are made.
const RULE: &str = "semel plan 1";
/// The largest plan, as JSON text.
pub const PLAN_LIMIT: usize = 64 * 1024;
/// The most names in a plan.
pub const NAMES_LIMIT: usize = 64;
/// The longest name in a plan, in characters.
pub const NAME_LIMIT: usize = 64;
/// The most options of a choice.
pub const OPTIONS_LIMIT: usize = 1_000;
/// The most works that are looked back at.
pub const RECENT_LIMIT: usize = 1_000;
/// The largest value that is taken from a result, as JSON text.
pub const VALUE_LIMIT: usize = 4 * 1024;

/// What every plan has.
const SEED: &str = "seed";
const SEED_HEX: &str = "seed_hex";

/// Why something is no part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(String);

fn wrong<T>(what: impl fmt::Display) -> Result<T, PlanError> {
    Err(PlanError(what.to_string()))
}

/// What a run is to decide, decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Plan(Map<String, Value>);

impl Plan {
    /// The plan of this key with nothing but its seed.
    pub fn new(key: &Key) -> Plan {
        let mut members = Map::new();
        members.insert(SEED.to_owned(), seed(key).into());
        members.insert(SEED_HEX.to_owned(), hex(&digest(&["seed", &key.to_string()])).into());
        Plan(members)
    }

    /// With this value under this name, which is new to it.
    pub fn with(mut self, name: &str, value: Value) -> Result<Plan, PlanError> {
        check_name(name)?;
        if [SEED, SEED_HEX].contains(&name) {
            return wrong(format!("{name} is the plan's own: use another name"));
        }
        if self.0.contains_key(name) {
            return wrong(format!("{name} is in the plan twice; keep one"));
        }
        if self.0.len() >= NAMES_LIMIT {
            return wrong(format!("a plan has at most {NAMES_LIMIT} names"));
        }
        if let Err(why) = canonical::check(&value) {
            return wrong(format!("{name}: {why}"));
        }
        self.0.insert(name.to_owned(), value);
        let bytes = self.to_string().len();
        if bytes > PLAN_LIMIT {
            return wrong(format!(
                "with {name} the plan has {bytes} bytes as JSON; at most {PLAN_LIMIT} are allowed"
            ));
        }
        Ok(self)
    }

    /// What stands under a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// What stands under a name, as a command is given it: a string as it is, anything else as JSON.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).map(plain)
    }

    /// The seed, as it was pinned.
    pub fn seed(&self) -> Option<u64> {
        self.get(SEED).and_then(Value::as_u64)
    }

    /// Its names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Its members.
    pub fn members(&self) -> &Map<String, Value> {
        &self.0
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(&self.0).map_err(|_| fmt::Error)?)
    }
}

/// A value as a command is given it: a string as it is, anything else as JSON.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn digest(parts: &[&str]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in [RULE].iter().chain(parts) {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize().into()
}

/// A number below 2^53 that follows from the key alone: JSON and shells carry it exactly.
pub fn seed(key: &Key) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = digest(&["seed", &key.to_string()]);
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 11
}

/// The option that this key has in the choice of this name; nothing if there are no options.
pub fn choose<'a>(key: &Key, name: &str, options: &'a [String]) -> Option<&'a str> {
    let key = key.to_string();
    options.iter().max_by_key(|option| digest(&["choose", &key, name, option])).map(String::as_str)
}

/// A choice that a plan is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    name: String,
    options: Vec<String>,
}

impl Choice {
    /// A choice of one of these.
    pub fn new(name: &str, options: Vec<String>) -> Result<Choice, PlanError> {
        check_name(name)?;
        if options.is_empty() {
            return wrong(format!("{name}: there is nothing to choose from; give at least one option"));
        }
        if options.len() > OPTIONS_LIMIT {
            return wrong(format!("{name}: {} options; at most {OPTIONS_LIMIT} are allowed", options.len()));
        }
        let mut seen = BTreeSet::new();
        for option in &options {
            if option.is_empty() {
                return wrong(format!("{name}: an option is empty: leave out the comma too many"));
            }
            if !seen.insert(option) {
                return wrong(format!("{name}: the option {option:?} is given twice; keep one"));
            }
        }
        Ok(Choice { name: name.to_owned(), options })
    }

    /// As it is typed: `NAME=a,b,c`, or `NAME:=["a","b"]` for options with commas or spaces at their ends.
    pub fn parse(text: &str) -> Result<Choice, PlanError> {
        let Some((name, given)) = text.split_once('=') else {
            return wrong("this is no choice: write NAME=a,b,c");
        };
        let Some(name) = name.strip_suffix(':') else {
            let options: Vec<String> = given.split(',').map(str::to_owned).collect();
            if let Some(option) = options.iter().find(|option| option.trim() != option.as_str()) {
                return wrong(format!(
                    "{name}: the option {option:?} has a space at its end; leave it out, or write {name}:=[\"…\"] if it is meant"
                ));
            }
            return Choice::new(name, options);
        };
        let list = match canonical::parse(given) {
            Ok(Value::Array(list)) => list,
            Ok(_) => return wrong(format!("{name}: not a list: write {name}:=[\"a\",\"b\"]")),
            Err(why) => return wrong(format!("{name}: {why}; write {name}:=[\"a\",\"b\"]")),
        };
        let text = |value| match value {
            Value::String(text) => Ok(text),
            other => wrong(format!("{name}: the option {other} is no text: write it in quotes")),
        };
        Choice::new(name, list.into_iter().map(text).collect::<Result<_, _>>()?)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its options.
    pub fn options(&self) -> &[String] {
        &self.options
    }

    /// The option that this key has.
    pub fn of(&self, key: &Key) -> Option<&str> {
        choose(key, &self.name, &self.options)
    }
}

/// A look back that a plan is to have: values of the results of the last works of the job that are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recent {
    name: String,
    count: usize,
    field: Pointer,
}

impl Recent {
    /// The values in this field of the last `count` results that have it.
    pub fn new(name: &str, count: usize, field: Pointer) -> Result<Recent, PlanError> {
        check_name(name)?;
        if count == 0 || count > RECENT_LIMIT {
            return wrong(format!(
                "{name}: {count} works cannot be looked back at: write 1 to {RECENT_LIMIT}"
            ));
        }
        Ok(Recent { name: name.to_owned(), count, field })
    }

    /// As it is typed: `NAME=N:FIELD`, the field by its name or by a JSON pointer.
    pub fn parse(text: &str) -> Result<Recent, PlanError> {
        let parts = text.split_once('=').and_then(|(name, rest)| Some((name, rest.split_once(':')?)));
        let Some((name, (count, field))) = parts else {
            return wrong("this is no look back: write NAME=N:FIELD, as in slugs=10:slug");
        };
        let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let Some(count) = count.parse().ok().filter(|_| digits) else {
            return wrong(format!("{name}: {count:?} is no number of works: write {name}=10:FIELD"));
        };
        if field.is_empty() {
            return wrong(format!("{name}: no field: write {name}={count}:FIELD"));
        }
        let field = match field.starts_with('/') {
            true => Pointer::new(field).or_else(wrong)?,
            false => Pointer::root().child(field),
        };
        Recent::new(name, count, field)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Begin to collect.
    pub fn collect(&self) -> Recalled<'_> {
        Recalled { recent: self, found: BTreeSet::new() }
    }
}

/// The values of the newest works, whatever the order in which the works are seen. Never more than were asked for.
#[derive(Debug)]
pub struct Recalled<'a> {
    recent: &'a Recent,
    /// By when it was done, then by key: two of one moment have an order too.
    found: BTreeSet<(u64, Key, Took)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Took {
    /// As JSON text.
    Value(String),
    /// Of so many bytes.
    TooLarge(usize),
}

impl Recalled<'_> {
    /// This work was done at this time, with this result.
    pub fn saw(&mut self, key: Key, done_ms: u64, result: &Value) {
        let Some(value) = result.pointer(self.recent.field.as_str()).filter(|value| !value.is_null()) else {
            return;
        };
        let full = self.found.len() >= self.recent.count;
        if full && self.found.first().is_some_and(|(oldest, ..)| done_ms < *oldest) {
            return;
        }
        let text = value.to_string();
        let took = if text.len() > VALUE_LIMIT { Took::TooLarge(text.len()) } else { Took::Value(text) };
        self.found.insert((done_ms, key, took));
        if self.found.len() > self.recent.count {
            self.found.pop_first();
        }
    }

    /// The values, newest first.
    pub fn values(self) -> Result<Value, PlanError> {
        let name = &self.recent.name;
        let value = |(_, key, took): (u64, Key, Took)| match took {
            Took::Value(text) => canonical::parse(&text).or_else(|why| wrong(format!("{name}: {why}"))),
            Took::TooLarge(bytes) => wrong(format!(
                "{name}: the field {} of the result of {} has {bytes} bytes; a plan takes at most {VALUE_LIMIT} of one",
                self.recent.field,
                key.short()
            )),
        };
        self.found.into_iter().rev().map(value).collect()
    }
}

/// A name in a plan: it stands in arguments between braces.
fn check_name(name: &str) -> Result<(), PlanError> {
    let length = name.chars().count();
    if length == 0 || length > NAME_LIMIT {
        return wrong(format!("a name in a plan cannot have {length} characters: write 1 to {NAME_LIMIT}"));
    }
    if let Some(c) = name.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-')) {
        return wrong(format!("the name {name:?} holds {c:?}; allowed are letters, digits, _ and -"));
    }
    Ok(())
}
