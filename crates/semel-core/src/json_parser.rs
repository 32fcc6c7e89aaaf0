//! The parser of [`canonical`](crate::canonical): strict, and every error knows where it is.

use serde_json::{Map, Number, Value};

use crate::canonical::{DEPTH_LIMIT, JsonError, JsonFault, normal_double, normal_number, refuse};
use crate::pointer::push_token;

/// Reads one text.
pub(crate) struct Parser<'a> {
    text: &'a str,
    at: usize,
    // where we are, for errors
    path: String,
    depth: usize,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str) -> Parser<'a> {
        Parser { text, at: 0, path: String::new(), depth: 0 }
    }

    /// The value that is the whole text.
    pub(crate) fn whole(mut self) -> Result<Value, JsonError> {
        let value = self.value()?;
        self.skip_space();
        if self.at < self.text.len() { self.syntax("something follows the value") } else { Ok(value) }
    }

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
