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
use std::str::FromStr;

use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

/// The longest JSON text, in bytes.
pub const TEXT_LIMIT: usize = 1024 * 1024;

/// The most arrays and objects around a value.
pub const DEPTH_LIMIT: usize = 64;

/// The largest integer that every reader of JSON carries exactly.
pub const INTEGER_MAX: i64 = (1 << 53) - 1;

/// From here on RFC 8785 writes an exponent, so that a float no longer looks like an integer.
const EXPONENT_FROM: f64 = 1e21;

/// A JSON pointer (RFC 6901): a place in a JSON document; the empty one is the whole document.
///
/// [`Pointer::as_str`] and serde give the exact text. `Display` is for people: it stays on one line.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pointer(String);

/// Why a text is no [`Pointer`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// It starts with something else than `/`.
    #[error("a JSON pointer starts with '/': write /{}", cut(.0))]
    NoSlash(String),
    /// `~` without `0` or `1`.
    #[error("'~' at character {0} of a JSON pointer: write ~0 for '~' and ~1 for '/'")]
    Tilde(usize),
}

impl Pointer {
    /// The pointer, if the text is one.
    pub fn new(text: &str) -> Result<Pointer, PointerError> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(PointerError::NoSlash(text.to_owned()));
        }
        let mut chars = text.chars().enumerate().peekable();
        while let Some((i, c)) = chars.next() {
            if c == '~' && !matches!(chars.peek(), Some((_, '0' | '1'))) {
                return Err(PointerError::Tilde(i + 1));
            }
        }
        Ok(Pointer(text.to_owned()))
    }

    /// The whole document.
    pub fn root() -> Pointer {
        Pointer::default()
    }

    /// The member of this name, or the element of this index, below.
    pub fn child(&self, token: &str) -> Pointer {
        let mut path = self.0.clone();
        push_token(&mut path, token);
        Pointer(path)
    }

    /// The exact text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `other` is this place or below it.
    pub fn covers(&self, other: &Pointer) -> bool {
        other.0.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    pub(crate) fn from_path(path: &str) -> Pointer {
        Pointer(path.to_owned())
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cut(&self.0))
    }
}

impl FromStr for Pointer {
    type Err = PointerError;

    fn from_str(text: &str) -> Result<Pointer, PointerError> {
        Pointer::new(text)
    }
}

impl TryFrom<String> for Pointer {
    type Error = PointerError;

    fn try_from(text: String) -> Result<Pointer, PointerError> {
        Pointer::new(&text)
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> String {
        pointer.0
    }
}

pub(crate) fn push_token(path: &mut String, token: &str) {
    path.push('/');
    for c in token.chars() {
        match c {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            c => path.push(c),
        }
    }
}

/// Text of others inside a message: on one line, and not longer than a line.
pub(crate) fn cut(text: &str) -> String {
    const SHOWN: usize = 120;
    let mut out = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == SHOWN {
            out.push('…');
            break;
        }
        if crate::name::is_plain(c) { out.push(c) } else { out.extend(c.escape_default()) }
    }
    out
}

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

fn refuse<T>(path: &str, fault: JsonFault) -> Result<T, JsonError> {
    Err(JsonError { pointer: Pointer::from_path(path), fault })
}

/// The value of a JSON text, with numbers as RFC 8785 sees them: `1.0` is `1`.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    if text.len() > TEXT_LIMIT {
        return refuse("", JsonFault::TooLong);
    }
    let mut parser = Parser { text, at: 0, path: String::new(), depth: 0 };
    let value = parser.value()?;
    parser.skip_space();
    if parser.at < text.len() { parser.syntax("something follows the value") } else { Ok(value) }
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
fn normal_number(number: &Number) -> Result<Number, JsonFault> {
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

fn normal_double(double: f64) -> Result<Number, JsonFault> {
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

struct Parser<'a> {
    text: &'a str,
    at: usize,
    // where we are, for errors
    path: String,
    depth: usize,
}

impl Parser<'_> {
    fn value(&mut self) -> Result<Value, JsonError> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) => self.syntax("expected a value"),
            None => self.syntax("the text ends where a value is expected"),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, JsonError>) -> Result<Value, JsonError> {
        if self.depth == DEPTH_LIMIT {
            return refuse(&self.path, JsonFault::TooDeep);
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, JsonError> {
        let mut members = Map::new();
        if self.take(b'}') {
            return Ok(Value::Object(members));
        }
        let length = self.path.len();
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return self.syntax("expected a member's name in double quotes");
            }
            let name = self.string()?;
            push_token(&mut self.path, &name);
            if members.contains_key(&name) {
                return refuse(&self.path, JsonFault::Duplicate);
            }
            if !self.take(b':') {
                return self.syntax("expected ':' after the member's name");
            }
            let value = self.value()?;
            self.path.truncate(length);
            members.insert(name, value);
            if self.take(b'}') {
                return Ok(Value::Object(members));
            }
            if !self.take(b',') {
                return self.syntax("expected ',' or '}'");
            }
        }
    }

    fn array(&mut self) -> Result<Value, JsonError> {
        let mut elements = Vec::new();
        if self.take(b']') {
            return Ok(Value::Array(elements));
        }
        let length = self.path.len();
        loop {
            push_token(&mut self.path, &elements.len().to_string());
            elements.push(self.value()?);
            self.path.truncate(length);
            if self.take(b']') {
                return Ok(Value::Array(elements));
            }
            if !self.take(b',') {
                return self.syntax("expected ',' or ']'");
            }
        }
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.rest();
            let Some(stop) = rest.find(|c: char| matches!(c, '"' | '\\' | '\0'..='\x1f')) else {
                self.at = self.text.len();
                return self.syntax("the string does not end");
            };
            out.push_str(rest.get(..stop).unwrap_or_default());
            self.at += stop;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                _ => return self.syntax("a control character in a string: write \\n, \\t or \\u00XX"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        self.at += 1;
        let plain = match self.peek() {
            Some(sign @ (b'"' | b'\\' | b'/')) => char::from(sign),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return self.syntax("an unknown escape in a string"),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        let first = self.code_unit()?;
        if !(0xd800..0xdc00).contains(&first) {
            // a low half that comes first is no character either
            return char::from_u32(first).map_or_else(|| refuse(&self.path, JsonFault::LoneSurrogate), Ok);
        }
        if !self.rest().starts_with("\\u") {
            return refuse(&self.path, JsonFault::LoneSurrogate);
        }
        self.at += 1;
        let second = self.code_unit()?;
        match (0xdc00..0xe000)
            .contains(&second)
            .then(|| 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00))
        {
            Some(code) => {
                char::from_u32(code).map_or_else(|| refuse(&self.path, JsonFault::LoneSurrogate), Ok)
            }
            None => refuse(&self.path, JsonFault::LoneSurrogate),
        }
    }

    /// The four digits after the `u` that we stand on.
    fn code_unit(&mut self) -> Result<u32, JsonError> {
        self.at += 1;
        let digits = self.text.get(self.at..self.at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|d| u32::from_str_radix(d, 16).ok()) {
            Some(unit) => {
                self.at += 4;
                Ok(unit)
            }
            None => self.syntax("expected four hexadecimal digits after \\u"),
        }
    }

    fn number(&mut self) -> Result<Number, JsonError> {
        let start = self.at;
        self.skip_if(b"-");
        let zero = self.peek() == Some(b'0');
        let digits = self.digits()?;
        if zero && digits > 1 {
            return self.syntax("a number starts with a needless 0");
        }
        let mut integer = true;
        if self.skip_if(b".") {
            integer = false;
            self.digits()?;
        }
        if self.skip_if(b"eE") {
            integer = false;
            self.skip_if(b"+-");
            self.digits()?;
        }
        let literal = self.text.get(start..self.at).unwrap_or_default();
        let normal = if integer {
            literal.parse::<i64>().map_err(|_| JsonFault::BigInteger).and_then(|i| normal_number(&i.into()))
        } else {
            // the standard library rounds correctly, always
            literal.parse::<f64>().map_err(|_| JsonFault::NotFinite).and_then(normal_double)
        };
        normal.or_else(|fault| refuse(&self.path, fault))
    }

    fn digits(&mut self) -> Result<usize, JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { self.syntax("expected a digit") } else { Ok(self.at - start) }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, JsonError> {
        if self.rest().starts_with(word) {
            self.at += word.len();
            Ok(value)
        } else {
            self.syntax("expected a value")
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn skip_if(&mut self, any_of: &[u8]) -> bool {
        let found = self.peek().is_some_and(|byte| any_of.contains(&byte));
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while self.skip_if(b" \t\r\n") {}
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        self.skip_if(&[byte])
    }

    fn syntax<T>(&self, what: &'static str) -> Result<T, JsonError> {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        refuse(&self.path, JsonFault::Syntax { what, line, column })
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
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|n| char::from_digit(n.into(), 16))
        .collect()
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
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn of(text: &str) -> String {
        canonical(&parse(text).unwrap()).unwrap()
    }

    fn refused(text: &str) -> (String, JsonFault) {
        let error = parse(text).unwrap_err();
        (error.pointer.as_str().to_owned(), error.fault)
    }

    // RFC 8785, appendix B
    const NUMBERS: &[(u64, &str)] = &[
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7fefffffffffffff, "1.7976931348623157e+308"),
        (0xffefffffffffffff, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xc340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44b52d02c7e14af5, "9.999999999999997e+22"),
        (0x44b52d02c7e14af6, "1e+23"),
        (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
        (0x444b1ae4d6e2ef4e, "999999999999999700000"),
        (0x444b1ae4d6e2ef4f, "999999999999999900000"),
        (0x444b1ae4d6e2ef50, "1e+21"),
        (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
        (0x3eb0c6f7a0b5ed8d, "0.000001"),
        (0x41b3de4355555553, "333333333.3333332"),
        (0x41b3de4355555554, "333333333.33333325"),
        (0x41b3de4355555555, "333333333.3333333"),
        (0x41b3de4355555556, "333333333.3333334"),
        (0x41b3de4355555557, "333333333.33333343"),
        (0xbecbf647612f3696, "-0.0000033333333333333333"),
        (0x43143ff3c1cb0959, "1424953923781206.2"),
    ];

    #[test]
    fn numbers_are_written_as_in_appendix_b() {
        for &(bits, expected) in NUMBERS {
            let value = json!(f64::from_bits(bits));
            assert_eq!(serde_json_canonicalizer::to_string(&value).unwrap(), expected);
            // what would be an integer that others round is refused; the rest is closed under reading back
            match canonical(&value) {
                Ok(text) => assert_eq!(of(&text), expected),
                Err(error) => {
                    assert_eq!(error.fault, JsonFault::BigInteger);
                    assert_eq!(refused(expected).1, JsonFault::BigInteger);
                }
            }
        }
    }

    #[test]
    fn members_are_sorted_by_utf_16_code_units() {
        let text = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
            "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
        let canonical = of(text);
        let places: Vec<_> = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"]
            .iter()
            .map(|word| canonical.find(word).unwrap())
            .collect();
        assert!(places.is_sorted(), "{canonical}");
    }

    #[test]
    fn the_example_of_the_rfc() {
        let text = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
        assert_eq!(of(text), expected);
        assert_eq!(of(expected), expected);
    }

    #[test]
    fn integral_floats_are_integers() {
        for (text, expected) in
            [("1.0", "1"), ("1e3", "1000"), ("-0", "0"), ("-0.0", "0"), ("1e300", "1e+300"), ("1e-400", "0")]
        {
            assert_eq!(of(text), expected);
        }
        assert_eq!(parse("[1.0, 10e-1]").unwrap(), json!([1, 1]));
        assert_eq!(of("9007199254740991"), "9007199254740991");
        assert_eq!(of("-9007199254740991.0"), "-9007199254740991");
    }

    #[test]
    fn what_two_readers_take_differently_is_refused_with_its_place() {
        let cases = [
            (r#"{"a":{"b":1,"c":2,"b":1}}"#, "/a/b", JsonFault::Duplicate),
            (r#"{"a":1,"\u0061":2}"#, "/a", JsonFault::Duplicate),
            (r#"{"a/b":[0,1e999]}"#, "/a~1b/1", JsonFault::NotFinite),
            (r#"{"~":-1e999}"#, "/~0", JsonFault::NotFinite),
            ("[9007199254740992]", "/0", JsonFault::BigInteger),
            ("[-9007199254740992]", "/0", JsonFault::BigInteger),
            ("123456789012345678901234567890", "", JsonFault::BigInteger),
            ("9007199254740992.0", "", JsonFault::BigInteger),
            ("1e20", "", JsonFault::BigInteger),
            (r#"{"a":"\ud800"}"#, "/a", JsonFault::LoneSurrogate),
            (r#"{"a":"\ud800\u0041"}"#, "/a", JsonFault::LoneSurrogate),
            (r#"{"a":"\udc00\ud800"}"#, "/a", JsonFault::LoneSurrogate),
            (r#"{"a":{"\udfff":1}}"#, "/a", JsonFault::LoneSurrogate),
        ];
        for (text, pointer, fault) in cases {
            assert_eq!(refused(text), (pointer.to_owned(), fault), "{text}");
        }
    }

    #[test]
    fn nesting_and_length_are_limited() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(64)).is_ok());
        assert_eq!(refused(&nested(65)), ("/0".repeat(64), JsonFault::TooDeep));
        assert_eq!(refused(&"[".repeat(100_000)).1, JsonFault::TooDeep);
        let string = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
        assert!(parse(&string(TEXT_LIMIT)).is_ok());
        assert_eq!(refused(&string(TEXT_LIMIT + 1)), (String::new(), JsonFault::TooLong));
    }

    #[test]
    fn what_is_not_json_is_refused_with_line_and_character() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "+1",
            "nul",
            "NaN",
            "Infinity",
            "'a'",
            "\"a",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u00é\"",
            "\"\n\"",
            "1 2",
            "\u{feff}1",
            "[1 2]",
            "{\"a\" 1}",
            "\"\\",
        ] {
            assert!(matches!(refused(text).1, JsonFault::Syntax { .. }), "{text}");
        }
        let error = parse("{\"a\":\n  [1, é]}").unwrap_err();
        assert_eq!(error.to_string(), "JSON at /a/1: expected a value (line 2, character 7)");
    }

    #[test]
    fn a_value_built_in_code_keeps_the_same_limits() {
        let error = check(&json!({"a": [1, u64::MAX]})).unwrap_err();
        assert_eq!((error.pointer.as_str(), error.fault), ("/a/1", JsonFault::BigInteger));
        assert_eq!(check(&json!(1e20)).unwrap_err().fault, JsonFault::BigInteger);
        assert!(check(&json!(1e300)).is_ok());
        let deep = (0..65).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(check(&deep).unwrap_err().fault, JsonFault::TooDeep);
        assert_eq!(check(&json!("x".repeat(TEXT_LIMIT))).unwrap_err().fault, JsonFault::TooLong);
        // 600,000 bytes in memory, six times that when written
        assert_eq!(canonical(&json!("\u{1}".repeat(600_000))).unwrap_err().fault, JsonFault::TooLong);
    }

    #[test]
    fn an_error_is_one_line_whatever_the_member_is_called() {
        let error = parse("{\"a\\n\\u202e\": 1e999}").unwrap_err();
        assert_eq!(
            error.to_string(),
            "JSON at /a\\n\\u{202e}: is beyond the range of a double; write it as a string"
        );
        let long = format!("{{\"{}\":1e999}}", "x".repeat(500));
        assert!(parse(&long).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn pointers_are_validated_and_cover_what_is_below() {
        for good in ["", "/", "/a", "/a~1b/~0", "//", "/é"] {
            assert_eq!(Pointer::new(good).unwrap().as_str(), good);
        }
        assert_eq!(
            Pointer::new("a/b").unwrap_err().to_string(),
            "a JSON pointer starts with '/': write /a/b"
        );
        assert_eq!(Pointer::new("/a~").unwrap_err(), PointerError::Tilde(3));
        assert_eq!(Pointer::new("/~2").unwrap_err(), PointerError::Tilde(2));
        let pointer = |text| Pointer::new(text).unwrap();
        assert!(pointer("/a").covers(&pointer("/a")) && pointer("/a").covers(&pointer("/a/b")));
        assert!(!pointer("/a").covers(&pointer("/ab")) && !pointer("/a/b").covers(&pointer("/a")));
        assert!(pointer("").covers(&pointer("/a")));
        assert_eq!(Pointer::root().child("a/b").child("~").as_str(), "/a~1b/~0");
    }

    #[test]
    fn hex_has_one_spelling() {
        assert_eq!(hex(&[0, 255, 16]), "00ff10");
        assert_eq!(unhex::<3>("00ff10"), Some([0, 255, 16]));
        for bad in ["00FF10", "00ff1", "00ff100", "00fg10", "+0ff10", ""] {
            assert_eq!(unhex::<3>(bad), None, "{bad}");
        }
    }
}
