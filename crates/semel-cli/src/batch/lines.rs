//! Plain lines, and texts that end with a NUL: items with one field. What ends a line (also `\r\n`) is no part of it;
//! an empty one is an item like any other, but nothing after the last end is none.

use serde_json::{Map, Value};

use super::input::Next;
use super::item::{At, Fault, Item, Keys, Kind, Why};
use super::records::{Record, Records};

pub(super) fn next(records: &mut Records, field: &str, is_nul: bool, keys: &Keys) -> Option<Next> {
    let number = records.count + 1;
    let at = if is_nul { At::Record(number) } else { At::Line(number) };
    let fault = |why: Why, raw: Option<Vec<u8>>| Fault { at, why, raw };
    let raw = match records.next() {
        Record::End => return None,
        Record::Broken(why) => return Some(Next::Broken(fault(Why::Broken(why.to_string()), None))),
        Record::TooLong => return Some(Next::Bad(fault(Why::TooLong, None))),
        Record::Text { bytes, .. } if is_nul => bytes.to_vec(),
        Record::Text { bytes, .. } => bytes.strip_suffix(b"\r").unwrap_or(bytes).to_vec(),
    };
    let text = match std::str::from_utf8(&raw) {
        Ok(text) => text.to_owned(),
        Err(why) => return Some(Next::Bad(fault(Why::NotUtf8(why.valid_up_to() + 1), Some(raw)))),
    };
    let fields = Map::from_iter([(field.to_owned(), Value::String(text))]);
    Some(match keys.of(&fields, Kind::Line) {
        Ok(key) => Next::Item(Item { at, end: records.offset, raw, fields, key, kind: Kind::Line }),
        Err(why) => Next::Bad(fault(why, Some(raw))),
    })
}
