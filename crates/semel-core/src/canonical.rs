//! JSON that is safe to hash: RFC 8785, with everything refused that two readers could take differently.
//!
//! Two texts with one meaning must have one canonical text, and a text must not mean one thing here and another
//! in a shell or a browser. So these are refused, each with the JSON pointer of the member:
//!
//! - a member that appears twice (readers keep the first, the last, or both);
//! - integers beyond ±(2^53-1), and floats that RFC 8785 would write as such an integer: most readers round them;
//! - numbers that no double holds (`1e999`), halves of surrogate pairs;
//! - nesting deeper than [`DEPTH_LIMIT`], texts longer than [`TEXT_LIMIT`].
//!
//! What is accepted is closed: the canonical text of an accepted value is accepted, and is its own canonical text.
//!
//! The parser is our own because serde_json keeps the last of two equal members and rounds large integers.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::json_parser::Parser;
pub use crate::pointer::{Pointer, PointerError};
pub(crate) use crate::pointer::{cut, push_token};

/// The longest JSON text, in bytes.
pub const TEXT_LIMIT: usize = 1024 * 1024;

/// The most arrays and objects around a value.
pub const DEPTH_LIMIT: usize = 64;

/// The largest integer that every reader of JSON carries exactly.
pub const INTEGER_MAX: i64 = (1 << 53) - 1;

/// From here on RFC 8785 writes an exponent, so that a float no longer looks like an integer.
const EXPONENT_FROM: f64 = 1e21;

/// Why a JSON text or value is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The member that is at fault.
    pub pointer: Pointer,
    /// What is wrong with it.
    pub fault: JsonFault,
}

/// What is wrong with a JSON value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// Not JSON.
    #[error("{what} (line {line}, character {column})")]
    Syntax {
        /// What was expected or found.
        what: &'static str,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
    },
    /// The member appears a second time in its object.
    #[error("appears twice; keep one")]
    Duplicate,
    /// No double holds it.
    #[error("is beyond the range of a double; write it as a string")]
    NotFinite,
    /// Would be an integer beyond ±(2^53-1).
    #[error("is an integer beyond ±(2^53-1), which other programs round; write it as a string")]
    BigInteger,
    /// `\ud800` without its other half.
    #[error("holds half of a surrogate pair; write both halves or the character itself")]
    LoneSurrogate,
    /// More than [`DEPTH_LIMIT`] arrays and objects.
    #[error("is nested deeper than {DEPTH_LIMIT} levels")]
    TooDeep,
    /// More than [`TEXT_LIMIT`] bytes.
    #[error("is longer than {TEXT_LIMIT} bytes")]
    TooLong,
    /// The canonical form could not be written: a fault in this program.
    #[error("has no canonical form")]
    NotCanonical,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pointer == Pointer::root() {
            write!(f, "JSON: {}", self.fault)
        } else {
            write!(f, "JSON at {}: {}", self.pointer, self.fault)
        }
    }
}

impl std::error::Error for JsonError {}

pub(crate) fn refuse<T>(path: &str, fault: JsonFault) -> Result<T, JsonError> {
    Err(JsonError { pointer: Pointer::from_path(path), fault })
}

/// The value of a JSON text, with numbers as RFC 8785 sees them: `1.0` is `1`.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    if text.len() > TEXT_LIMIT {
        return refuse("", JsonFault::TooLong);
    }
    Parser::new(text).whole()
}

/// Whether a value built in code keeps the rules of [`parse`].
pub fn check(value: &Value) -> Result<(), JsonError> {
    let mut size = 0;
    walk(value, &mut String::new(), 0, &mut size)
}

/// The RFC 8785 text of a value that keeps the rules.
pub fn canonical(value: &Value) -> Result<String, JsonError> {
    check(value)?;
    match serde_json_canonicalizer::to_string(value) {
        Ok(text) if text.len() > TEXT_LIMIT => refuse("", JsonFault::TooLong),
        Ok(text) => Ok(text),
        Err(_) => refuse("", JsonFault::NotCanonical),
    }
}

/// `size` counts what the value takes at least when written, so that a huge value is refused before it is written.
fn walk(value: &Value, path: &mut String, depth: usize, size: &mut usize) -> Result<(), JsonError> {
    *size += 1;
    let length = path.len();
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => {
            if let Err(fault) = normal_number(number) {
                return refuse(path, fault);
            }
        }
        Value::String(text) => *size += text.len(),
        Value::Array(_) | Value::Object(_) if depth == DEPTH_LIMIT => {
            return refuse(path, JsonFault::TooDeep);
        }
        Value::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                push_token(path, &i.to_string());
                walk(element, path, depth + 1, size)?;
                path.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                *size += name.len();
                push_token(path, name);
                walk(member, path, depth + 1, size)?;
                path.truncate(length);
            }
        }
    }
    if *size > TEXT_LIMIT { refuse("", JsonFault::TooLong) } else { Ok(()) }
}

/// The number as its canonical text is read back: integral doubles become integers.
pub(crate) fn normal_number(number: &Number) -> Result<Number, JsonFault> {
    if let Some(integer) = number.as_i64() {
        return if integer.abs_diff(0) > INTEGER_MAX.abs_diff(0) {
            Err(JsonFault::BigInteger)
        } else {
            Ok(integer.into())
        };
    }
    if number.is_u64() {
        return Err(JsonFault::BigInteger);
    }
    normal_double(number.as_f64().ok_or(JsonFault::NotFinite)?)
}

pub(crate) fn normal_double(double: f64) -> Result<Number, JsonFault> {
    if double.fract() == 0.0 && double.abs() < EXPONENT_FROM {
        return if double.abs() > INTEGER_MAX as f64 {
            Err(JsonFault::BigInteger)
        } else {
            Ok((double as i64).into())
        };
    }
    Number::from_f64(double).ok_or(JsonFault::NotFinite)
}

/// Integral doubles as integers, everywhere in a value that was checked: equal meanings compare equal.
pub(crate) fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Ok(normal) = normal_number(number) {
                *number = normal;
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(normalize),
        Value::Object(members) => members.values_mut().for_each(normalize),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// A value from any deserializer that refuses members that appear twice; [`check`] does the rest.
pub(crate) struct Strict(pub(crate) Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom(JsonFault::NotFinite))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(Strict(element)) = from.next_element()? {
            elements.push(element);
        }
        Ok(Value::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some((name, Strict(member))) = from.next_entry::<String, Strict>()? {
            if members.contains_key(&name) {
                return Err(de::Error::custom(format_args!(
                    "the member {} {}",
                    cut(&name),
                    JsonFault::Duplicate
                )));
            }
            members.insert(name, member);
        }
        Ok(Value::Object(members))
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |n: u8| char::from(if n < 10 { b'0' + n } else { b'a' + n - 10 });
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// The bytes of exactly `N` pairs of lower-case hexadecimal digits.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || text.bytes().any(|b| b.is_ascii_uppercase()) {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |i: usize| char::from(*pair.get(i)?).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(out)
}

#[cfg(test)]
#[path = "canonical_tests.rs"]
mod tests;
