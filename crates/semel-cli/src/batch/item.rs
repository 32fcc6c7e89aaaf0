//! One item of a batch: its fields, what makes it the same item tomorrow, and what is wrong with one that is none.

use std::borrow::Cow;
use std::fmt;

use semel_core::canonical::{JsonError, JsonFault, Pointer};
use semel_core::field::{Field, ItemFields};
use semel_core::payload::Fingerprint;
use semel_core::work::{Fields, Work, WorkError};
use serde_json::Value;

/// An item.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Where it stands.
    pub(crate) at: At,
    /// How many bytes of the input end with it.
    pub(crate) end: u64,
    /// As it stood, without what ends it.
    pub(crate) raw: Vec<u8>,
    pub(crate) fields: ItemFields,
    /// What it is known by.
    pub(crate) key: Fields,
    /// How its format tells it to the command.
    pub(super) kind: Kind,
}

/// What the fields of an item are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An object that was written as JSON.
    Object,
    /// Columns of a row.
    Row,
    /// The one field of a line.
    Line,
}

/// Where something stands in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Counted from 1.
    Line(u64),
    /// The same where there are no lines.
    Record(u64),
}

/// Something of the input that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) at: At,
    pub(crate) why: Why,
    /// As it stood, where it is not too long.
    pub(crate) raw: Option<Vec<u8>>,
}

/// What is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Why {
    #[error("is longer than {} bytes: it was left out", super::input::ITEM_LIMIT)]
    TooLong,
    #[error("is longer than {} bytes: it was left out; is a quote not closed?", super::input::ITEM_LIMIT)]
    RowTooLong,
    #[error("is not UTF-8 (byte {0})")]
    NotUtf8(usize),
    #[error("{}", json(.0))]
    Json(JsonError),
    #[error("{}; the input ends there: was it cut short?", json(.0))]
    CutShort(JsonError),
    #[error("is {0}, not an object: write one object a line")]
    NoObject(&'static str),
    #[error("has {found} fields, and the header has {wanted}")]
    Ragged { found: usize, wanted: usize },
    #[error("has more than {} fields: it was left out", super::csv::COLUMNS_LIMIT)]
    TooManyFields,
    #[error("a quote is not closed before the input ends: was it cut short?")]
    OpenQuote,
    #[error("the key field {0} is missing")]
    NoKey(String),
    #[error("the key field {0} is null")]
    NullKey(String),
    #[error("the key field {0} is empty")]
    EmptyKey(String),
    #[error("{0}")]
    Key(String),
    #[error("{0}")]
    Payload(String),
    #[error("{0}")]
    Fill(String),
    #[error("the input cannot be read any further: {0}; what came before it stays, give it again to go on")]
    Broken(String),
}

/// What of an item is its key, and what of it may differ.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    pub(crate) fields: Vec<Field>,
    pub(crate) volatile: Vec<Pointer>,
}

impl Keys {
    /// The key of these fields.
    pub(super) fn of(&self, fields: &ItemFields, kind: Kind) -> Result<Fields, Why> {
        let one = |field: &Field| match field.find(fields) {
            None => Err(Why::NoKey(field.to_string())),
            Some(Value::Null) => Err(Why::NullKey(field.to_string())),
            // a row has no other way to say that there is nothing
            Some(Value::String(text)) if text.is_empty() && kind == Kind::Row => {
                Err(Why::EmptyKey(field.to_string()))
            }
            Some(value) => Ok((field.name().to_owned(), value.clone())),
        };
        self.fields.iter().map(one).collect()
    }
}

impl Item {
    /// The work that this item of a batch is.
    pub(crate) fn work(&self, batch: &Work) -> Result<Work, Fault> {
        let made = batch.clone().for_item(self.key.clone());
        made.map_err(|why| self.fault(Why::Key(key_words(&why))))
    }

    /// What is bound to its key: all other fields. A line has none.
    pub(crate) fn payload(&self, keys: &Keys) -> Result<Option<Fingerprint>, Fault> {
        if self.kind == Kind::Line {
            return Ok(None);
        }
        let mut others = self.fields.clone();
        for field in &keys.fields {
            field.take(&mut others);
        }
        let made = Fingerprint::of_json(&Value::Object(others), &keys.volatile);
        made.map(Some).map_err(|why| self.fault(Why::Payload(why.to_string())))
    }

    /// The whole item, for the command: as it stood; a row as a JSON object, because its header is elsewhere.
    pub(crate) fn text(&self) -> Cow<'_, [u8]> {
        match self.kind {
            Kind::Object | Kind::Line => Cow::Borrowed(&self.raw),
            // strings only: it can always be written
            Kind::Row => Cow::Owned(serde_json::to_vec(&self.fields).unwrap_or_default()),
        }
    }

    pub(super) fn fault(&self, why: Why) -> Fault {
        Fault { at: self.at, why, raw: Some(self.raw.clone()) }
    }
}

fn key_words(why: &WorkError) -> String {
    match why.pointer().as_str().strip_prefix("/item/") {
        Some(field) => {
            format!("the key field {} {}", field.replace("~1", "/").replace("~0", "~"), why.what())
        }
        None => format!("its key {}", why.what()),
    }
}

/// A fault of JSON inside one line of many: only the character is of use.
fn json(why: &JsonError) -> String {
    match &why.fault {
        JsonFault::Syntax { what, column, .. } => format!("is no JSON at character {column}: {what}"),
        fault if why.pointer == Pointer::root() => fault.to_string(),
        fault => format!("{} {fault}", why.pointer),
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Line(n) => write!(f, "line {n}"),
            At::Record(n) => write!(f, "item {n}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.why)
    }
}
