//! One value: is it of the kind that its key takes? If not: what was found, and what to write.

use std::ffi::OsString;
use std::ops::Range;

use semel_core::address::Endpoint;
use semel_core::canonical::Pointer;
use semel_core::name::{Name, Slot};
use semel_core::plan::{Choice, Recent};
use semel_core::work::parse_params;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use super::Reference;
use super::faults::{has_password, is_secret_name, nearest};
use super::keys::{Given, Key, Kind};
use super::lanes::is_lane_name;
use crate::plan::{self, quoted};
use crate::slot;

/// What is wrong with a value.
pub(super) struct Wrong {
    pub(super) span: Range<usize>,
    pub(super) text: String,
    pub(super) secret: bool,
}

pub(super) fn wrong(span: Range<usize>, text: impl Into<String>) -> Wrong {
    Wrong { span, text: text.into(), secret: false }
}

/// What was found, without its content where that is long or may be secret.
pub(super) fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) if text.chars().count() <= 40 => format!("the text {text:?}"),
        DeValue::String(_) => "a long text".to_owned(),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(yes) => format!("{yes}"),
        DeValue::Datetime(date) => format!("the date {date}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The value of a key, checked; or all that is wrong with it.
pub(super) fn value(key: &Key, value: &Spanned<DeValue<'_>>, lanes: &[String]) -> Result<Given, Vec<Wrong>> {
    let (name, span) = (key.name, value.span());
    let mismatch = || {
        let text = format!("{name}: found {}: write {}", found(value.get_ref()), key.kind.wanted(name));
        vec![wrong(span.clone(), text)]
    };
    let refuse = |why: String| vec![wrong(span.clone(), why)];
    match (key.kind, value.get_ref()) {
        (
            Kind::Text
            | Kind::Path
            | Kind::IfBusy
            | Kind::CatchUp
            | Kind::Duration
            | Kind::Name
            | Kind::OneOf(_),
            DeValue::String(text),
        ) => scalar(key, text).map_err(refuse),
        (Kind::Text, DeValue::Datetime(date)) => Err(refuse(format!(
            "{name}: found the date {date}: write it in quotes, as in {name} = \"{date}\""
        ))),
        (Kind::Duration, DeValue::Integer(number)) => Err(refuse(format!(
            "{name}: found the number {number}: write its unit too, as in {name} = \"{number}s\""
        ))),
        (Kind::Yes, DeValue::Boolean(yes)) => Ok(Given::Yes(*yes)),
        (Kind::Count, DeValue::Integer(number)) => integer(number).map(Given::Number).ok_or_else(mismatch),
        (Kind::Code, DeValue::Integer(number)) => {
            integer(number).filter(|code| *code <= 255).map(Given::Number).ok_or_else(mismatch)
        }
        (Kind::Names, DeValue::Array(list)) => {
            list_of(name, list, |text| Name::new(text).map(drop).map_err(|why| why.to_string()))
        }
        (Kind::Pointers, DeValue::Array(list)) => {
            list_of(name, list, |text| Pointer::new(text).map(drop).map_err(|why| why.to_string()))
        }
        (Kind::Texts, DeValue::Array(list)) => list_of(name, list, |text| match name {
            "choose" => Choice::parse(text).map(drop).map_err(|why| why.to_string()),
            "recent" => Recent::parse(text).map(drop).map_err(|why| why.to_string()),
            _ => Ok(()),
        }),
        (Kind::Params, DeValue::Table(table)) => params(name, table),
        (Kind::Command, _) => command(name, value).map(Given::Words),
        (Kind::Lanes, DeValue::Array(list)) => names_of_lanes(name, list, lanes),
        (Kind::Lanes, DeValue::String(_)) => {
            let text = format!("{name}: found a text: write {}", key.kind.wanted(name));
            Err(vec![Wrong { secret: true, ..wrong(span, text) }])
        }
        (Kind::Address, _) => address(key, value).map(Given::Reference).map_err(|wrong| vec![wrong]),
        (Kind::Environment, DeValue::Table(table)) => environment(table),
        _ => Err(mismatch()),
    }
}

fn no_nul(name: &str, text: &str) -> Result<(), String> {
    if text.contains('\0') { Err(format!("{name}: a text of a command cannot hold a nul")) } else { Ok(()) }
}

fn scalar(key: &Key, text: &str) -> Result<Given, String> {
    let name = key.name;
    let to_write = || key.kind.wanted(name);
    let unknown = || format!("{name} {} is not known: write {}", quoted(text), to_write());
    match key.kind {
        Kind::Duration => {
            plan::duration_ms(name, text).map_err(|trouble| trouble.line)?;
        }
        Kind::Name => {
            Name::new(text).map_err(|why| format!("{name} {}: {why}; write {}", quoted(text), to_write()))?;
        }
        Kind::IfBusy => {
            plan::if_busy(text).map_err(|_| unknown())?;
        }
        Kind::CatchUp => {
            slot::catch_up(text).map_err(|_| unknown())?;
        }
        Kind::OneOf(words) if !words.contains(&text) => {
            return Err(unknown());
        }
        _ if text.is_empty() => {
            return Err(format!("{name}: it is empty: write {}, or leave it out", to_write()));
        }
        _ if name == "slot" => {
            Slot::new(text).map_err(|why| format!("{name} {}: {why}", quoted(text)))?;
        }
        _ => no_nul(name, text)?,
    }
    Ok(Given::Text(text.to_owned()))
}

fn integer(number: &DeInteger<'_>) -> Option<u32> {
    u32::from_str_radix(number.as_str().strip_prefix('+').unwrap_or(number.as_str()), number.radix()).ok()
}

fn list_of(
    name: &str,
    list: &DeArray<'_>,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<Given, Vec<Wrong>> {
    let (mut texts, mut all) = (Vec::new(), Vec::new());
    for element in list {
        match element.get_ref().as_str().map(|text| (text, check(text))) {
            Some((text, Ok(()))) => texts.push(text.to_owned()),
            Some((text, Err(why))) => {
                all.push(wrong(element.span(), format!("{name} {}: {why}", quoted(text))));
            }
            None => {
                let text = format!("{name}: found {}: write a text in quotes", found(element.get_ref()));
                all.push(wrong(element.span(), text));
            }
        }
    }
    if all.is_empty() { Ok(Given::List(texts)) } else { Err(all) }
}

/// A list of words, or a text for `/bin/sh -c`.
pub(super) fn command(name: &str, value: &Spanned<DeValue<'_>>) -> Result<Vec<OsString>, Vec<Wrong>> {
    let refuse = |why: String| Err(vec![wrong(value.span(), why)]);
    let wanted = Kind::Command.wanted(name);
    match value.get_ref() {
        DeValue::Array(list) => words(name, list, &value.span()),
        DeValue::String(script) if script.trim().is_empty() => {
            refuse(format!("{name}: it is empty: write {wanted}"))
        }
        DeValue::String(script) => match no_nul(name, script) {
            Ok(()) => Ok(["/bin/sh", "-c", script].map(OsString::from).into()),
            Err(why) => refuse(why),
        },
        other => refuse(format!("{name}: found {}: write {wanted}", found(other))),
    }
}

/// Each a lane that there is. Somebody may have written an address there: what is no name is not repeated.
fn names_of_lanes(name: &str, list: &DeArray<'_>, lanes: &[String]) -> Result<Given, Vec<Wrong>> {
    let (mut names, mut all) = (Vec::new(), Vec::new());
    for element in list {
        let wanted = Kind::Lanes.wanted(name);
        let why = match element.get_ref().as_str() {
            Some(lane) if lanes.iter().any(|known| known == lane) => {
                names.push(lane.to_owned());
                continue;
            }
            Some(lane) if is_lane_name(lane) => match nearest(lane, lanes.iter().map(String::as_str)) {
                Some(near) => format!("{name}: there is no lane {lane:?}: did you mean {near:?}?"),
                None => format!("{name}: there is no lane {lane:?}: write [notify.{lane}] at the top"),
            },
            _ => format!("{name}: found what is no name: write {wanted}"),
        };
        all.push(Wrong { secret: true, ..wrong(element.span(), why) });
    }
    if all.is_empty() { Ok(Given::List(names)) } else { Err(all) }
}

/// An address without a password, or a reference to one.
fn address(key: &Key, value: &Spanned<DeValue<'_>>) -> Result<Reference, Wrong> {
    let name = key.name;
    let refuse = |why: String| Err(Wrong { secret: true, ..wrong(value.span(), format!("{name}: {why}")) });
    match value.get_ref() {
        DeValue::Table(table) => reference(name, table, value.span()),
        DeValue::String(text) => match Endpoint::parse(text) {
            Err(why) => refuse(why.to_string()),
            Ok(_) if has_password(text) => refuse(format!(
                "an address with a password does not belong into a file: write {name} = {{ env = \"PING_URL\" }}, and set PING_URL where Semel is started"
            )),
            Ok(_) => Ok(Reference::Plain(text.to_string())),
        },
        other => refuse(format!("found {}: write {}", found(other), key.kind.wanted(name))),
    }
}

fn words(name: &str, list: &DeArray<'_>, span: &Range<usize>) -> Result<Vec<OsString>, Vec<Wrong>> {
    if list.first().is_none_or(|word| word.get_ref().as_str() == Some("")) {
        let text = format!("{name}: it names no program: write {}", Kind::Command.wanted(name));
        return Err(vec![wrong(span.clone(), text)]);
    }
    let (mut words, mut all) = (Vec::new(), Vec::new());
    for word in list {
        // what a command is given may be secret: it is not repeated
        match word.get_ref().as_str() {
            Some(text) if !text.contains('\0') => words.push(OsString::from(text)),
            Some(_) => all.push(wrong(word.span(), format!("{name}: a word of a command cannot hold a nul"))),
            None => all.push(wrong(word.span(), format!("{name}: each word is a text: write it in quotes"))),
        }
    }
    if all.is_empty() { Ok(words) } else { Err(all) }
}

/// What may stand before the sign.
const NAMES: &str = "write a name of letters, digits and _ . -";

fn params(name: &str, table: &DeTable<'_>) -> Result<Given, Vec<Wrong>> {
    let (mut list, mut all) = (Vec::new(), Vec::new());
    for (key, value) in table {
        let param = key.get_ref();
        let word = match (value.get_ref(), json(value.get_ref())) {
            (DeValue::String(text), _) => format!("{param}={text}"),
            (_, Ok(value)) => format!("{param}:={value}"),
            (_, Err(why)) => {
                all.push(wrong(value.span(), format!("{name}.{param}: {why}")));
                continue;
            }
        };
        match parse_params([word.as_str()]) {
            // a name with a sign of its own would become another parameter
            Ok(fields) if fields.keys().eq([param]) => list.push(word),
            Ok(_) => {
                all.push(wrong(key.span(), format!("{name}: {param:?} is no name of a parameter: {NAMES}")))
            }
            Err(why) => all.push(wrong(key.span(), format!("{name}.{param}: {}; {NAMES}", why.what()))),
        }
    }
    if all.is_empty() { Ok(Given::List(list)) } else { Err(all) }
}

fn json(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            let text = number.as_str().strip_prefix('+').unwrap_or(number.as_str());
            let number = i64::from_str_radix(text, number.radix());
            Value::from(number.map_err(|_| "the number is too large: write it in quotes".to_owned())?)
        }
        DeValue::Float(number) => {
            let number: Option<f64> = number.as_str().parse().ok().filter(|number: &f64| number.is_finite());
            Value::from(number.ok_or("the number is none that JSON has: write it in quotes")?)
        }
        DeValue::Boolean(yes) => Value::from(*yes),
        DeValue::Datetime(date) => return Err(format!("found the date {date}: write it in quotes")),
        DeValue::Array(list) => {
            Value::Array(list.iter().map(|value| json(value.get_ref())).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => {
            let members =
                table.iter().map(|(key, value)| Ok((key.get_ref().to_string(), json(value.get_ref())?)));
            Value::Object(members.collect::<Result<_, String>>()?)
        }
    })
}

fn is_variable(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `{ env = "NAME" }`
pub(super) fn reference(what: &str, table: &DeTable<'_>, span: Range<usize>) -> Result<Reference, Wrong> {
    let mut members = table.iter();
    match (members.next(), members.next()) {
        (Some((key, value)), None) if key.get_ref() == "env" => match value.get_ref().as_str() {
            Some(name) if is_variable(name) => Ok(Reference::Variable(name.to_owned())),
            _ => Err(wrong(
                value.span(),
                format!("{what}: env takes the name of a variable, as in {{ env = \"SITE_TOKEN\" }}"),
            )),
        },
        _ => Err(wrong(
            span,
            format!("{what}: this is no reference: write {{ env = \"NAME\" }}, and nothing else in it"),
        )),
    }
}

fn environment(table: &DeTable<'_>) -> Result<Given, Vec<Wrong>> {
    let (mut env, mut all) = (Vec::new(), Vec::new());
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        if !is_variable(name) {
            let text = format!("env: {name:?} is no name of a variable: write letters, digits and _");
            all.push(wrong(key.span(), text));
            continue;
        }
        if name.starts_with("SEMEL_") {
            all.push(wrong(key.span(), format!("env: {name} is Semel's to set: leave it out")));
            continue;
        }
        match value.get_ref() {
            DeValue::String(text) if is_secret_name(name) || has_password(text) => {
                let text = format!(
                    "env: {name} looks like a secret: write {name} = {{ env = \"{name}\" }}, and set {name} where Semel is started"
                );
                all.push(Wrong { secret: true, ..wrong(value.span(), text) });
            }
            DeValue::String(text) => match no_nul(name, text) {
                Ok(()) => env.push((name.to_owned(), Reference::Plain(text.to_string()))),
                Err(why) => all.push(wrong(value.span(), why)),
            },
            DeValue::Table(inner) => match reference(&format!("env: {name}"), inner, value.span()) {
                Ok(reference) => env.push((name.to_owned(), reference)),
                Err(wrong) => all.push(wrong),
            },
            other => {
                let kind = if is_secret_name(name) { "a value".to_owned() } else { found(other) };
                let text =
                    format!("env: {name}: found {kind}: write a text in quotes, or {{ env = \"NAME\" }}");
                all.push(Wrong { secret: is_secret_name(name), ..wrong(value.span(), text) });
            }
        }
    }
    if all.is_empty() { Ok(Given::Env(env)) } else { Err(all) }
}

/// Where the ledger is; a relative path is taken from the file's folder.
pub(super) fn store(value: &Spanned<DeValue<'_>>) -> Result<Reference, Wrong> {
    const HINT: &str =
        "write store = { env = \"SEMEL_LEDGER\" }, and set SEMEL_LEDGER where Semel is started";
    match value.get_ref() {
        DeValue::String(url) if has_password(url) => {
            let text = format!("store: an address with a password does not belong into a file: {HINT}");
            Err(Wrong { secret: true, ..wrong(value.span(), text) })
        }
        // it may be another way to write an address with a password: it is not repeated
        DeValue::String(url) if !url.contains(':') || url.ends_with(':') => {
            let text =
                "store: found a text that is no address: write store = \"sqlite:/var/lib/semel/ledger.db\"";
            Err(Wrong { secret: true, ..wrong(value.span(), text) })
        }
        DeValue::String(url) => match plan::read_address(url) {
            Ok(_) => Ok(Reference::Plain(url.to_string())),
            Err(trouble) => {
                let text = trouble.line.trim_start_matches("--").to_owned();
                Err(Wrong { secret: true, ..wrong(value.span(), text) })
            }
        },
        DeValue::Table(table) => reference("store", table, value.span()),
        other => Err(wrong(
            value.span(),
            format!(
                "store: found {}: write an address in quotes, as in store = \"sqlite:/var/lib/semel/ledger.db\"",
                found(other)
            ),
        )),
    }
}
