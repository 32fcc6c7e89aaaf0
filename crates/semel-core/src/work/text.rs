//! Sections and pairs of the readable form of a work, and parameters as people type them.

use std::fmt;

use serde_json::Value;

use super::{Fields, WorkError, check_param_names};
use crate::canonical::{self, Pointer, cut};
use crate::name::{is_plain, percent_decode, push_percent};

/// What starts a section of the readable form.
const MARKS: [char; 6] = ['*', '@', '?', '#', ';', '~'];

pub(super) fn body<'a>(rest: &mut &'a str) -> &'a str {
    let (body, after) = rest.split_at_checked(rest.find(MARKS).unwrap_or(rest.len())).unwrap_or((rest, ""));
    *rest = after;
    body
}

pub(super) fn section<'a>(rest: &mut &'a str, mark: char) -> Option<&'a str> {
    *rest = rest.strip_prefix(mark)?;
    Some(body(rest))
}

pub(super) fn decode(pointer: &str, text: &str) -> Result<String, WorkError> {
    percent_decode(text).ok_or_else(|| {
        WorkError::new(
            pointer,
            "has a '%' that is not followed by the two digits of a byte; write %25 for '%'",
        )
    })
}

pub(super) fn read_pairs(group: &str, text: &str) -> Result<Fields, WorkError> {
    let pairs = text.split('&').map(|pair| {
        let (name, is_json, value) = split_param(pair).ok_or_else(|| no_param(group, pair))?;
        let place = format!("/{group}");
        param(group, decode(&place, name)?, is_json, decode(&place, value)?)
    });
    collect(group, pairs)
}

fn collect(
    group: &str,
    pairs: impl Iterator<Item = Result<(String, Value), WorkError>>,
) -> Result<Fields, WorkError> {
    let mut fields = Fields::new();
    for pair in pairs {
        let (name, value) = pair?;
        if fields.contains_key(&name) {
            return Err(WorkError::field(group, &name, "appears twice; keep one"));
        }
        fields.insert(name, value);
    }
    Ok(fields)
}

fn split_param(pair: &str) -> Option<(&str, bool, &str)> {
    let (name, value) = pair.split_once('=')?;
    Some(name.strip_suffix(':').map_or((name, false, value), |name| (name, true, value)))
}

fn param(group: &str, name: String, is_json: bool, text: String) -> Result<(String, Value), WorkError> {
    if !is_json {
        return Ok((name, Value::String(text)));
    }
    let value = canonical::parse(&text).map_err(|error| {
        let above = Pointer::root().child(group).child(&name);
        WorkError::new(&format!("{}{}", above.as_str(), error.pointer.as_str()), error.fault)
    })?;
    Ok((name, value))
}

fn no_param(group: &str, pair: &str) -> WorkError {
    WorkError::new(&format!("/{group}"), format!("'{}' is neither NAME=TEXT nor NAME:=JSON", cut(pair)))
}

/// The parameter of an argument as people type it: `NAME=TEXT` or `NAME:=JSON`. Nothing is unescaped.
pub fn parse_param(argument: &str) -> Result<(String, Value), WorkError> {
    let (name, is_json, value) = split_param(argument).ok_or_else(|| no_param("with", argument))?;
    let (name, value) = param("with", name.to_owned(), is_json, value.to_owned())?;
    let fields = Fields::from([(name.clone(), Value::Null)]);
    check_param_names(&fields)?;
    Ok((name, value))
}

/// The parameters of several arguments; a name that is given twice is refused.
pub fn parse_params<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Fields, WorkError> {
    collect("with", arguments.into_iter().map(parse_param))
}

pub(super) fn write_plain(f: &mut fmt::Formatter<'_>, mark: &str, text: &str, also: &[char]) -> fmt::Result {
    let mut out = String::from(mark);
    let mut utf8 = [0; 4];
    for c in text.chars() {
        if !is_plain(c) || matches!(c, ' ' | '%' | '&') || MARKS.contains(&c) || also.contains(&c) {
            c.encode_utf8(&mut utf8).bytes().for_each(|byte| push_percent(&mut out, byte));
        } else {
            out.push(c);
        }
    }
    f.write_str(&out)
}

pub(super) fn write_pairs(f: &mut fmt::Formatter<'_>, mark: &'static str, fields: &Fields) -> fmt::Result {
    let marks = std::iter::once(mark).chain(std::iter::repeat("&"));
    for ((name, value), mark) in fields.iter().zip(marks) {
        write_plain(f, mark, name, &['=', ':'])?;
        match value {
            Value::String(text) => write_plain(f, "=", text, &[])?,
            // checked when the work was made
            value => write_plain(f, ":=", &canonical::canonical(value).map_err(|_| fmt::Error)?, &[])?,
        }
    }
    Ok(())
}
