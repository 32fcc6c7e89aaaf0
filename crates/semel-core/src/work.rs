//! What is to be done, and its key.
//!
//! A [`Work`] says what: the job's name, and perhaps a slot, parameters, a key of the user's own, a batch item, a
//! step. Never when, by whom, which attempt, or what came out; so every retry, on every machine, has the same
//! [`Key`]: the SHA-256 of the work's canonical JSON,
//!
//! ```json
//! {"always":true,"item":{},"job":"","key":"","nth":2,"semel":1,"slot":"","step":"","with":{}}
//! ```
//!
//! with the members left out that are absent or empty (and `nth` when it is 1). `semel` is the version of this
//! rule. `vectors/keys.json` has examples for other languages.
//!
//! The readable form stands beside the key. Sections come in this order, and no two works share one form:
//!
//! | section | example | |
//! |---|---|---|
//! | job | `publish` | once, if nothing follows |
//! | `*` | `publish*` | always: guards against overlap only; excludes slot, parameters and key |
//! | `@slot` | `publish@2026-06-19` | |
//! | `?with` | `publish?series=landing&n:=3` | `=` before a string, `:=` before other JSON |
//! | `#key` | `publish#my-key` | the user's own key |
//! | `;item` | `import;id=42` | a batch item's key fields, written like parameters |
//! | `~step`, `~nth` | `publish~notify~2` | the second use of the step `notify` |
//!
//! Signs that would end a section, spaces and characters that do not show are written `%XX`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::canonical::{self, JsonError, Pointer, Strict};
pub use crate::key::{Key, KeyError};
use crate::name::{Name, Slot, is_plain};

mod text;

use text::{body, decode, read_pairs, section, write_pairs, write_plain};
pub use text::{parse_param, parse_params};

/// The version of the rule that makes keys.
pub const KEY_RULE: u64 = 1;

/// The most parameters of a work, and the most key fields of an item.
pub const FIELDS_LIMIT: usize = 64;

/// The longest name of a parameter, in characters.
pub const PARAM_NAME_LIMIT: usize = 64;

/// The longest name of an item's field, in characters.
pub const FIELD_NAME_LIMIT: usize = 128;

/// The longest key of the user's own, in characters.
pub const OWN_KEY_LIMIT: usize = 512;

/// The longest canonical text of a work, in bytes: it is kept in every record of the work.
pub const WORK_LIMIT: usize = 64 * 1024;

/// Parameters of a work, or key fields of an item.
pub type Fields = BTreeMap<String, Value>;

/// What is to be done. Works are equal when their canonical texts are.
#[derive(Clone)]
pub struct Work {
    parts: Parts,
    text: Box<str>,
}

#[derive(Clone)]
struct Parts {
    job: Name,
    always: bool,
    slot: Option<Slot>,
    with: Fields,
    key: Option<String>,
    item: Fields,
    step: Option<Name>,
    nth: u32,
}

/// Why something is no work, and which member of it is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkError {
    pointer: Pointer,
    what: String,
}

impl WorkError {
    /// The member at fault, as a place in the work's JSON; the whole if there is no single one.
    pub fn pointer(&self) -> &Pointer {
        &self.pointer
    }

    /// What is wrong there.
    pub fn what(&self) -> &str {
        &self.what
    }

    fn new(pointer: &str, what: impl fmt::Display) -> WorkError {
        WorkError { pointer: Pointer::from_path(pointer), what: what.to_string() }
    }

    fn field(group: &str, name: &str, what: impl fmt::Display) -> WorkError {
        WorkError { pointer: Pointer::root().child(group).child(name), what: what.to_string() }
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => write!(f, "work: {}", self.what),
            _ => write!(f, "work at {}: {}", self.pointer, self.what),
        }
    }
}

impl std::error::Error for WorkError {}

impl From<JsonError> for WorkError {
    fn from(error: JsonError) -> WorkError {
        WorkError { pointer: error.pointer, what: error.fault.to_string() }
    }
}

impl Work {
    /// The job, once and never again.
    pub fn once(job: Name) -> Work {
        // no sign of a name needs an escape in JSON, so this cannot fail
        let text = format!(r#"{{"job":"{job}","semel":{KEY_RULE}}}"#).into();
        Work { parts: Parts::of(job), text }
    }

    /// The job, every time: guarded against overlap, never done.
    pub fn always(job: Name) -> Work {
        let text = format!(r#"{{"always":true,"job":"{job}","semel":{KEY_RULE}}}"#).into();
        Work { parts: Parts { always: true, ..Parts::of(job) }, text }
    }

    /// The job, once per slot and parameters; `with` may be empty.
    pub fn in_slot(job: Name, slot: Slot, with: Fields) -> Result<Work, WorkError> {
        Parts { slot: Some(slot), with, ..Parts::of(job) }.build()
    }

    /// The job, once per parameters; none at all would be [`Work::once`] by accident, so that is refused.
    pub fn with(job: Name, with: Fields) -> Result<Work, WorkError> {
        if with.is_empty() {
            return Err(WorkError::new("/with", "has no parameters; give one, or ask for once or always"));
        }
        Parts { with, ..Parts::of(job) }.build()
    }

    /// The job, once per key of the user's own (and slot and parameters, where given).
    pub fn keyed(job: Name, key: &str, slot: Option<Slot>, with: Fields) -> Result<Work, WorkError> {
        Parts { key: Some(key.to_owned()), slot, with, ..Parts::of(job) }.build()
    }

    /// One item of this work's batch, known by its key fields.
    pub fn for_item(self, fields: Fields) -> Result<Work, WorkError> {
        if fields.is_empty() {
            return Err(WorkError::new("/item", "has no key fields; give at least one"));
        }
        match self.with_item_text(&fields) {
            Some(text) => Ok(Work { parts: Parts { item: fields, ..self.parts }, text }),
            None => Parts { item: fields, ..self.parts }.build(),
        }
    }

    /// The canonical text with a plain item in it; nothing if the long way is needed, or there is something to refuse.
    ///
    /// A batch makes a million of these: of all members only `always` stands before `item`.
    fn with_item_text(&self, fields: &Fields) -> Option<Box<str>> {
        if !self.parts.item.is_empty() || self.parts.step.is_some() || fields.len() > FIELDS_LIMIT {
            return None;
        }
        let rest = self.text.strip_prefix('{')?;
        let (always, rest) = match rest.strip_prefix(r#""always":true,"#) {
            Some(rest) => (r#""always":true,"#, rest),
            None => ("", rest),
        };
        let mut text = format!(r#"{{{always}"item":{{"#);
        for (i, (name, value)) in fields.iter().enumerate() {
            // other names may have another order here than there
            let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
            if name.is_empty() || name.len() > FIELD_NAME_LIMIT || !name.bytes().all(is_plain) {
                return None;
            }
            text.push_str(if i == 0 { "\"" } else { ",\"" });
            text.push_str(name);
            text.push_str("\":");
            match value {
                Value::String(value) if value.bytes().all(is_plain) => {
                    text.push('"');
                    text.push_str(value);
                    text.push('"');
                }
                Value::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
                Value::Number(number) => {
                    let integer = number.as_i64()?;
                    if integer.abs_diff(0) > canonical::INTEGER_MAX.abs_diff(0) {
                        return None;
                    }
                    text.push_str(&integer.to_string());
                }
                _ => return None,
            }
        }
        text.push_str("},");
        text.push_str(rest);
        (text.len() <= WORK_LIMIT).then(|| text.into())
    }

    /// A step of this work; `nth` counts from 1 where one name is used several times.
    pub fn at_step(self, step: Name, nth: u32) -> Result<Work, WorkError> {
        Parts { step: Some(step), nth, ..self.parts }.build()
    }

    /// The job's name.
    pub fn job(&self) -> &Name {
        &self.parts.job
    }

    /// The slot, where there is one.
    pub fn slot(&self) -> Option<&Slot> {
        self.parts.slot.as_ref()
    }

    /// The parameters; empty if there are none.
    pub fn params(&self) -> &Fields {
        &self.parts.with
    }

    /// The key of the user's own, where there is one.
    pub fn own_key(&self) -> Option<&str> {
        self.parts.key.as_deref()
    }

    /// Whether this work is never done.
    pub fn is_always(&self) -> bool {
        self.parts.always
    }

    /// The key fields of the item; empty if this is none.
    pub fn item(&self) -> &Fields {
        &self.parts.item
    }

    /// The step's name, where this is one.
    pub fn step(&self) -> Option<&Name> {
        self.parts.step.as_ref()
    }

    /// Which use of the step's name this is, from 1.
    pub fn nth(&self) -> u32 {
        self.parts.nth
    }

    /// The work that this is a step of, where it is one.
    pub fn run(&self) -> Option<Work> {
        self.parts.step.as_ref()?;
        // a part of what was a work is one
        Parts { step: None, nth: 1, ..self.parts.clone() }.build().ok()
    }

    /// The work of the batch that this is an item of, or a step of one, where it is.
    pub fn batch(&self) -> Option<Work> {
        if self.parts.item.is_empty() {
            return None;
        }
        // a part of what was a work is one
        Parts { item: Fields::new(), step: None, nth: 1, ..self.parts.clone() }.build().ok()
    }

    /// The canonical JSON that is hashed.
    pub fn canonical(&self) -> &str {
        &self.text
    }

    /// What the ledger knows this work by.
    pub fn key(&self) -> Key {
        Key::from_bytes(Sha256::digest(self.text.as_bytes()).into())
    }

    /// The work of a JSON text.
    pub fn from_json(text: &str) -> Result<Work, WorkError> {
        Work::from_value(canonical::parse(text)?)
    }

    /// The work of a JSON object with the members of the canonical form. `semel` may be left out; unknown members
    /// are refused.
    pub fn from_value(mut value: Value) -> Result<Work, WorkError> {
        canonical::check(&value)?;
        canonical::normalize(&mut value);
        let Value::Object(members) = value else {
            return Err(WorkError::new("", "is not a JSON object"));
        };
        let job = members.get("job").cloned().ok_or_else(|| WorkError::new("/job", "is missing"))?;
        let mut parts = Parts::of(name("/job", job)?);
        let mut nth = None;
        for (member, value) in members {
            match (member.as_str(), value) {
                ("job", _) => {}
                ("semel", version) if version == json!(KEY_RULE) => {}
                ("semel", _) => {
                    return Err(WorkError::new(
                        "/semel",
                        "is a version that this program does not know; it knows 1",
                    ));
                }
                ("always", Value::Bool(always)) => parts.always = always,
                ("always", _) => return Err(WorkError::new("/always", "is not true or false")),
                ("slot", value) => {
                    let text = string("/slot", value)?;
                    parts.slot = Some(Slot::new(&text).map_err(|error| WorkError::new("/slot", error))?);
                }
                ("key", value) => parts.key = Some(string("/key", value)?),
                ("step", value) => parts.step = Some(name("/step", value)?),
                ("nth", value) => nth = Some(count(&value)?),
                ("with", value) => parts.with = object("/with", value)?,
                ("item", value) => parts.item = object("/item", value)?,
                (unknown, _) => {
                    let pointer = Pointer::root().child(unknown);
                    return Err(WorkError { pointer, what: "is not a member of a work".to_owned() });
                }
            }
        }
        if nth.is_some() && parts.step.is_none() {
            return Err(WorkError::new("/nth", "is given without a step"));
        }
        parts.nth = nth.unwrap_or(1);
        parts.build()
    }

    /// The work of a readable form. More is accepted than `Display` writes, where it can mean one thing only.
    pub fn parse_readable(text: &str) -> Result<Work, WorkError> {
        if text.len() > canonical::TEXT_LIMIT {
            return Err(WorkError::new("", format!("is longer than {} bytes", canonical::TEXT_LIMIT)));
        }
        let mut rest = text;
        let job = body(&mut rest);
        let mut parts = Parts::of(Name::new(job).map_err(|error| WorkError::new("/job", error))?);
        if rest.starts_with('*') {
            parts.always = true;
            rest = rest.strip_prefix('*').unwrap_or_default();
        }
        if let Some(slot) = section(&mut rest, '@') {
            parts.slot =
                Some(Slot::new(&decode("/slot", slot)?).map_err(|error| WorkError::new("/slot", error))?);
        }
        if let Some(with) = section(&mut rest, '?') {
            parts.with = read_pairs("with", with)?;
        }
        if let Some(key) = section(&mut rest, '#') {
            parts.key = Some(decode("/key", key)?);
        }
        if let Some(item) = section(&mut rest, ';') {
            parts.item = read_pairs("item", item)?;
        }
        if let Some(step) = section(&mut rest, '~') {
            parts.step = Some(Name::new(step).map_err(|error| WorkError::new("/step", error))?);
        }
        if let Some(nth) = section(&mut rest, '~') {
            let digits = nth.bytes().all(|byte| byte.is_ascii_digit());
            let number = nth.parse().ok().filter(|_| digits);
            parts.nth = number.ok_or_else(|| WorkError::new("/nth", "is not a number from 1 to 2^32-1"))?;
        }
        if let Some(sign) = rest.chars().next() {
            let at = text.chars().count() - rest.chars().count() + 1;
            let what = format!(
                "unexpected '{}' at character {at}; the order is job*@slot?with#key;item~step~nth, and a sign itself is written %XX",
                sign.escape_default()
            );
            return Err(WorkError::new("", what));
        }
        parts.build()
    }
}

impl Parts {
    fn of(job: Name) -> Parts {
        Parts {
            job,
            always: false,
            slot: None,
            with: Fields::new(),
            key: None,
            item: Fields::new(),
            step: None,
            nth: 1,
        }
    }

    fn build(mut self) -> Result<Work, WorkError> {
        let named =
            [("/slot", self.slot.is_some()), ("/with", !self.with.is_empty()), ("/key", self.key.is_some())];
        if let Some((pointer, _)) = named.iter().find(|(_, given)| self.always && *given) {
            return Err(WorkError::new(pointer, "cannot be given with always: such a work is never done"));
        }
        check_param_names(&self.with)?;
        check_fields("item", &self.item, FIELD_NAME_LIMIT, "characters that show", is_plain)?;
        if let Some(key) = &self.key {
            check_text("/key", key, OWN_KEY_LIMIT, "all but control characters", |c| !c.is_control())?;
        }
        if self.nth == 0 {
            return Err(WorkError::new("/nth", "is 0; steps count from 1"));
        }
        let text = canonical::canonical(&self.to_value())?;
        if text.len() > WORK_LIMIT {
            let what =
                format!("has {} bytes; at most {WORK_LIMIT} are allowed: pass a digest instead", text.len());
            return Err(WorkError::new("", what));
        }
        self.with.values_mut().chain(self.item.values_mut()).for_each(canonical::normalize);
        Ok(Work { parts: self, text: text.into() })
    }

    fn to_value(&self) -> Value {
        let mut members = serde_json::Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name.to_owned(), value);
            }
        };
        let fields = |fields: &Fields| {
            (!fields.is_empty())
                .then(|| Value::Object(fields.iter().map(|(k, v)| (k.clone(), v.clone())).collect()))
        };
        put("semel", Some(json!(KEY_RULE)));
        put("job", Some(json!(self.job)));
        put("always", self.always.then_some(Value::Bool(true)));
        put("slot", self.slot.as_ref().map(|slot| json!(slot)));
        put("with", fields(&self.with));
        put("key", self.key.as_ref().map(|key| json!(key)));
        put("item", fields(&self.item));
        put("step", self.step.as_ref().map(|step| json!(step)));
        put("nth", (self.nth > 1).then(|| json!(self.nth)));
        Value::Object(members)
    }
}

fn check_fields(
    group: &str,
    fields: &Fields,
    longest: usize,
    allowed: &str,
    is_allowed: fn(char) -> bool,
) -> Result<(), WorkError> {
    if fields.len() > FIELDS_LIMIT {
        let what = format!("has {} members; at most {FIELDS_LIMIT} are allowed", fields.len());
        return Err(WorkError::new(&format!("/{group}"), what));
    }
    for name in fields.keys() {
        let pointer = Pointer::root().child(group).child(name);
        check_text(pointer.as_str(), name, longest, allowed, is_allowed)?;
    }
    Ok(())
}

fn check_param_names(fields: &Fields) -> Result<(), WorkError> {
    check_fields("with", fields, PARAM_NAME_LIMIT, "letters, digits and _ . -", |c| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
    })
}

fn check_text(
    pointer: &str,
    text: &str,
    longest: usize,
    allowed: &str,
    is_allowed: fn(char) -> bool,
) -> Result<(), WorkError> {
    let length = text.chars().count();
    if length == 0 || length > longest {
        return Err(WorkError::new(pointer, format!("has {length} characters; 1 to {longest} are allowed")));
    }
    match text.chars().enumerate().find(|(_, c)| !is_allowed(*c)) {
        Some((i, c)) => {
            let what =
                format!("holds '{}' at character {}; allowed are {allowed}", c.escape_default(), i + 1);
            Err(WorkError::new(pointer, what))
        }
        None => Ok(()),
    }
}

fn string(pointer: &str, value: Value) -> Result<String, WorkError> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(WorkError::new(pointer, "is not a string")),
    }
}

fn name(pointer: &str, value: Value) -> Result<Name, WorkError> {
    Name::new(&string(pointer, value)?).map_err(|error| WorkError::new(pointer, error))
}

fn object(pointer: &str, value: Value) -> Result<Fields, WorkError> {
    match value {
        Value::Object(members) => Ok(members.into_iter().collect()),
        _ => Err(WorkError::new(pointer, "is not an object")),
    }
}

fn count(value: &Value) -> Result<u32, WorkError> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| WorkError::new("/nth", "is not a number from 1 to 2^32-1"))
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &self.parts;
        write!(f, "{}{}", parts.job, if parts.always { "*" } else { "" })?;
        if let Some(slot) = &parts.slot {
            write_plain(f, "@", slot.as_str(), &[])?;
        }
        write_pairs(f, "?", &parts.with)?;
        if let Some(key) = &parts.key {
            write_plain(f, "#", key, &[])?;
        }
        write_pairs(f, ";", &parts.item)?;
        if let Some(step) = &parts.step {
            write!(f, "~{step}")?;
            if parts.nth > 1 {
                write!(f, "~{}", parts.nth)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({self})")
    }
}

impl PartialEq for Work {
    fn eq(&self, other: &Work) -> bool {
        self.text == other.text
    }
}

impl Eq for Work {}

impl std::hash::Hash for Work {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Serialize for Work {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.parts.to_value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Work {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Work, D::Error> {
        let Strict(value) = Strict::deserialize(deserializer)?;
        Work::from_value(value).map_err(de::Error::custom)
    }
}
