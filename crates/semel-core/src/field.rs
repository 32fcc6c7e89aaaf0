//! Fields of a batch's items, as people name them: `slug`, `author.name`, `/author/name`.
//!
//! A name is looked for as it stands first (a CSV column may well be called `a.b`), and only then as a path with dots.
//! A JSON pointer is a path and nothing else. Both spellings of one path are one name, so that a batch that is written
//! differently tomorrow still knows its items.

use std::fmt;

use serde_json::{Map, Value};

use crate::canonical::{Pointer, PointerError, cut};
use crate::name::is_plain;
use crate::work::FIELD_NAME_LIMIT;

/// The fields of an item.
pub type ItemFields = Map<String, Value>;

/// The name of a field, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: String,
    /// The way to it; one step unless it is nested.
    path: Vec<String>,
    /// A member that is called just like that goes first.
    literal: bool,
}

/// Why a text names no field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Nothing was given.
    #[error("a field without a name: write the name of one")]
    Empty,
    /// `a..b`, `.a` or `a.`.
    #[error("{} has a dot too many: write a.b for the field b inside a", cut(.0))]
    Dots(String),
    /// A pointer that is none.
    #[error("{}: {}", cut(.0), .1)]
    Pointer(String, PointerError),
    /// It would be the whole item, or a member without a name.
    #[error("{}: a pointer to a field has a name after each '/'", cut(.0))]
    Nameless(String),
    /// More than [`FIELD_NAME_LIMIT`] characters.
    #[error("the name of a field has {0} characters; at most {FIELD_NAME_LIMIT} are allowed")]
    TooLong(usize),
    /// It cannot be shown.
    #[error("{} holds '{}', which does not show", cut(.0), .1.escape_default())]
    Hidden(String, char),
}

impl Field {
    /// The field of this name.
    pub fn parse(text: &str) -> Result<Field, FieldError> {
        match text.chars().count() {
            0 => return Err(FieldError::Empty),
            length if length > FIELD_NAME_LIMIT => return Err(FieldError::TooLong(length)),
            _ => {}
        }
        if let Some(hidden) = text.chars().find(|c| !is_plain(*c)) {
            return Err(FieldError::Hidden(text.to_owned(), hidden));
        }
        if text.starts_with('/') {
            return Field::of_pointer(text);
        }
        let path: Vec<String> = text.split('.').map(str::to_owned).collect();
        match path.iter().any(String::is_empty) {
            true => Err(FieldError::Dots(text.to_owned())),
            false => Ok(Field { name: text.to_owned(), path, literal: true }),
        }
    }

    fn of_pointer(text: &str) -> Result<Field, FieldError> {
        Pointer::new(text).map_err(|why| FieldError::Pointer(text.to_owned(), why))?;
        let unescaped = |token: &str| token.replace("~1", "/").replace("~0", "~");
        let path: Vec<String> = text.split('/').skip(1).map(unescaped).collect();
        if path.iter().any(String::is_empty) {
            return Err(FieldError::Nameless(text.to_owned()));
        }
        // what a dotted name cannot say keeps its pointer as its name
        let has_dotted = !path.iter().any(|token| token.contains(['.', '/', '~']));
        let name = if has_dotted { path.join(".") } else { text.to_owned() };
        Ok(Field { name, path, literal: false })
    }

    /// The column of this name, whatever signs it has.
    pub fn column(name: &str) -> Field {
        Field { name: name.to_owned(), path: vec![name.to_owned()], literal: true }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether an item with just these columns, none of them nested, has it.
    pub fn is_among(&self, columns: &[String]) -> bool {
        columns.iter().any(|column| match self.path.as_slice() {
            [only] => column == only,
            _ => self.literal && *column == self.name,
        })
    }

    /// Its value in an item.
    pub fn find<'v>(&self, item: &'v ItemFields) -> Option<&'v Value> {
        if let Some(found) = self.literal.then(|| item.get(&self.name)).flatten() {
            return Some(found);
        }
        let (first, rest) = self.path.split_first()?;
        rest.iter().try_fold(item.get(first)?, |value, step| inside(value, step))
    }

    /// Take it out of an item. An element of an array leaves a null behind: the others keep their places.
    pub fn take(&self, item: &mut ItemFields) -> Option<Value> {
        if let Some(found) = self.literal.then(|| item.remove(&self.name)).flatten() {
            return Some(found);
        }
        let (last, way) = self.path.split_last()?;
        let Some((first, way)) = way.split_first() else { return item.remove(last) };
        let holder = way.iter().try_fold(item.get_mut(first)?, |value, step| inside_mut(value, step))?;
        match holder {
            Value::Object(members) => members.remove(last),
            other => inside_mut(other, last).map(Value::take),
        }
    }
}

fn index(step: &str) -> Option<usize> {
    let is_number = step.bytes().all(|byte| byte.is_ascii_digit());
    step.parse().ok().filter(|_| is_number && (step == "0" || !step.starts_with('0')))
}

fn inside<'v>(value: &'v Value, step: &str) -> Option<&'v Value> {
    match value {
        Value::Object(members) => members.get(step),
        Value::Array(elements) => elements.get(index(step)?),
        _ => None,
    }
}

fn inside_mut<'v>(value: &'v mut Value, step: &str) -> Option<&'v mut Value> {
    match value {
        Value::Object(members) => members.get_mut(step),
        Value::Array(elements) => elements.get_mut(index(step)?),
        _ => None,
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cut(&self.name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn item(value: Value) -> ItemFields {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_field_is_found_by_name_by_dots_and_by_pointer() {
        let item = item(json!({"a": {"b": 1, "c": [2, {"d": 3}]}, "x.y": 4, "x": {"y": 5}, "s/t": 6}));
        for (name, value) in [
            ("a.b", json!(1)),
            ("/a/b", json!(1)),
            ("a.c.0", json!(2)),
            ("/a/c/1/d", json!(3)),
            ("x.y", json!(4)),
            ("/x/y", json!(5)),
            ("/s~1t", json!(6)),
            ("s/t", json!(6)),
        ] {
            assert_eq!(Field::parse(name).unwrap().find(&item), Some(&value), "{name}");
        }
        for name in ["b", "a.z", "a.c.2", "a.c.00", "a.b.c", "/a.b"] {
            assert_eq!(Field::parse(name).unwrap().find(&item), None, "{name}");
        }
    }

    #[test]
    fn two_spellings_of_a_path_are_one_name() {
        assert_eq!(Field::parse("/a/b").unwrap().name(), "a.b");
        assert_eq!(Field::parse("/a.b").unwrap().name(), "/a.b");
        assert_eq!(Field::parse("/a~1b").unwrap().name(), "/a~1b");
    }

    #[test]
    fn what_was_taken_is_gone_and_the_rest_stays() {
        let mut item = item(json!({"a": {"b": 1, "c": [2, 3]}, "d": 4}));
        assert_eq!(Field::parse("a.b").unwrap().take(&mut item), Some(json!(1)));
        assert_eq!(Field::parse("/a/c/0").unwrap().take(&mut item), Some(json!(2)));
        assert_eq!(Field::parse("d").unwrap().take(&mut item), Some(json!(4)));
        assert_eq!(Field::parse("d").unwrap().take(&mut item), None);
        assert_eq!(Value::Object(item), json!({"a": {"c": [null, 3]}}));
    }

    #[test]
    fn columns_are_never_nested() {
        let columns = ["id".to_owned(), "a.b".to_owned()];
        for (name, is_there) in [("id", true), ("/id", true), ("a.b", true), ("/a/b", false), ("a", false)] {
            assert_eq!(Field::parse(name).unwrap().is_among(&columns), is_there, "{name}");
        }
    }

    #[test]
    fn a_name_that_names_nothing_says_why() {
        for (text, why) in [
            ("", "a field without a name: write the name of one"),
            ("a..b", "a..b has a dot too many: write a.b for the field b inside a"),
            ("/", "/: a pointer to a field has a name after each '/'"),
            ("/a~2", "/a~2: '~' at character 3 of a JSON pointer: write ~0 for '~' and ~1 for '/'"),
            ("a\nb", "a\\nb holds '\\n', which does not show"),
        ] {
            assert_eq!(Field::parse(text).unwrap_err().to_string(), why);
        }
        assert_eq!(
            Field::parse(&"x".repeat(129)).unwrap_err().to_string(),
            "the name of a field has 129 characters; at most 128 are allowed"
        );
    }
}
