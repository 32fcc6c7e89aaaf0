//! JSON Lines: one object a line. Blank lines are passed over; a line that is no object is a fault of that line alone.

use semel_core::canonical;
use serde_json::Value;

use super::input::Next;
use super::item::{At, Fault, Item, Keys, Kind, Why};
use super::records::{Record, Records};

pub(super) fn next(records: &mut Records, keys: &Keys) -> Option<Next> {
    loop {
        let at = At::Line(records.count + 1);
        let fault = |why: Why, raw: Option<Vec<u8>>| Fault { at, why, raw };
        let (bytes, is_ended) = match records.next() {
            Record::End => return None,
            Record::Broken(why) => return Some(Next::Broken(fault(Why::Broken(why.to_string()), None))),
            Record::TooLong => return Some(Next::Bad(fault(Why::TooLong, None))),
            Record::Text { bytes, is_ended } => (bytes, is_ended),
        };
        if bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let raw = bytes.strip_suffix(b"\r").unwrap_or(bytes).to_vec();
        let found = object(&raw, is_ended).and_then(|fields| Ok((keys.of(&fields, Kind::Object)?, fields)));
        return Some(match found {
            Ok((key, fields)) => {
                Next::Item(Item { at, end: records.offset, raw, fields, key, kind: Kind::Object })
            }
            Err(why) => Next::Bad(fault(why, Some(raw))),
        });
    }
}

fn object(raw: &[u8], is_ended: bool) -> Result<serde_json::Map<String, Value>, Why> {
    let text = std::str::from_utf8(raw).map_err(|why| Why::NotUtf8(why.valid_up_to() + 1))?;
    let kind = match canonical::parse(text) {
        Ok(Value::Object(fields)) => return Ok(fields),
        Ok(Value::Array(_)) => "an array",
        Ok(Value::String(_)) => "a string",
        Ok(Value::Number(_)) => "a number",
        Ok(Value::Bool(_)) => "true or false",
        Ok(Value::Null) => "null",
        Err(why) if is_ended => return Err(Why::Json(why)),
        Err(why) => return Err(Why::CutShort(why)),
    };
    Err(Why::NoObject(kind))
}
