//! The JSON Schema for editors, made from the table of keys.

use clap::Args;
use serde_json::{Map, Value, json};

use super::batches;
use super::keys::{KEYS, Key, Kind, Scope};
use super::lanes::LANE_KEYS;
use crate::args::RunArgs;
use crate::batch::args::BatchArgs;

/// The schema of `semel.toml`, as text.
pub(crate) fn text() -> String {
    let mut text = serde_json::to_string_pretty(&schema()).unwrap_or_default();
    text.push('\n');
    text
}

fn schema() -> Value {
    let flags = RunArgs::augment_args(clap::Command::new("run"));
    let table = |scope: Option<Scope>| -> Map<String, Value> {
        let keys = KEYS.iter().filter(|key| scope.is_none_or(|scope| key.scope == scope));
        keys.map(|key| (key.name.to_owned(), property(key, &flags))).collect()
    };
    let store = "Where the ledger is: sqlite:PATH; an address with a password only by reference";
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "semel.toml",
        "description": "Jobs of Semel with their policies",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "store": { "description": store, "oneOf": [{ "type": "string", "pattern": "^[a-z0-9+]+:." }, reference()] },
            "defaults": {
                "description": "Policies for all jobs; a job's own go before them",
                "type": "object", "additionalProperties": false, "properties": table(Some(Scope::Policy)),
            },
            "notify": {
                "description": "Lanes by which people are told, by their names",
                "type": "object",
                "propertyNames": { "pattern": LANE },
                "additionalProperties": {
                    "type": "object", "additionalProperties": false, "properties": lane(),
                    "oneOf": [{ "required": ["command"] }, { "required": ["webhook"] }],
                },
            },
            "batches": {
                "description": "Batches by their names: semel batch NAME",
                "type": "object",
                "propertyNames": { "pattern": NAME },
                "additionalProperties": {
                    "type": "object", "additionalProperties": false, "required": ["command", "items"],
                    "properties": batch(),
                },
            },
            "jobs": {
                "description": "Jobs by their names: semel run NAME",
                "type": "object",
                "propertyNames": { "pattern": NAME },
                "additionalProperties": {
                    "type": "object", "additionalProperties": false, "required": ["command"],
                    "properties": table(None),
                    "not": { "required": ["once", "always"] },
                },
            },
        },
    })
}

const NAME: &str = "^[A-Za-z0-9_:][A-Za-z0-9._/:-]{0,127}$";
const LANE: &str = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$";
const ADDRESS: &str = "^[Hh][Tt][Tt][Pp][Ss]?://";
const DURATION: &str = "^[0-9].*[a-z]$";

fn reference() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["env"],
        "properties": { "env": { "description": "The variable that has it", "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" } },
    })
}

fn command() -> Value {
    json!({ "oneOf": [
        { "type": "array", "minItems": 1, "items": { "type": "string" } }, { "type": "string", "minLength": 1 },
    ] })
}

fn address() -> Value {
    json!({ "oneOf": [{ "type": "string", "pattern": ADDRESS }, reference()] })
}

fn duration() -> Value {
    json!({ "type": "string", "pattern": DURATION, "examples": ["500ms", "90s", "1h30m", "7d"] })
}

/// The keys of a batch.
fn batch() -> Map<String, Value> {
    let flags = BatchArgs::augment_args(clap::Command::new("batch"));
    batches::keys().map(|key| (key.name.to_owned(), property(key, &flags))).collect()
}

/// The keys of a lane.
fn lane() -> Map<String, Value> {
    let property = |(name, help): (&str, &str)| {
        let mut schema = match name {
            "command" => command(),
            "webhook" => address(),
            "secret" => reference(),
            "timeout" => duration(),
            _ => json!({ "type": "boolean" }),
        };
        if let Some(members) = schema.as_object_mut() {
            members.insert("description".into(), help.into());
        }
        (name.to_owned(), schema)
    };
    LANE_KEYS.into_iter().map(property).collect()
}

/// What a key means: what its flag says, without the flag's way to be repeated.
pub(crate) fn help(key: &Key, flags: &clap::Command) -> String {
    let flag = || flags.get_arguments().find(|arg| arg.get_long() == Some(key.name));
    let said = || flag().and_then(|arg| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let text = key.help.map_or_else(said, str::to_owned);
    text.replace("; may be repeated", "")
        .replace("A parameter: K=V, or K:=JSON", "Parameters that belong to the work")
        .replace("--", "")
}

fn property(key: &Key, flags: &clap::Command) -> Value {
    let mut schema = match key.kind {
        Kind::Text | Kind::Path => json!({ "type": "string", "minLength": 1 }),
        Kind::Name => json!({ "type": "string", "pattern": NAME }),
        Kind::Names => json!({ "type": "array", "items": { "type": "string", "pattern": NAME } }),
        Kind::Duration => duration(),
        Kind::Count => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        Kind::Code => json!({ "type": "integer", "minimum": 0, "maximum": 255 }),
        Kind::Yes => json!({ "type": "boolean" }),
        Kind::IfBusy => {
            json!({ "type": "string", "pattern": "^(skip|fail|wait=.+)$", "examples": ["skip", "wait=5m", "fail"] })
        }
        Kind::CatchUp => {
            json!({ "type": "string", "pattern": "^(latest|none|all=.+)$", "examples": ["latest", "none", "all=7d"] })
        }
        Kind::OneOf(words) => json!({ "type": "string", "enum": words }),
        Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Pointers => json!({ "type": "array", "items": { "type": "string", "pattern": "^/" } }),
        Kind::Params => json!({ "type": "object" }),
        Kind::Command => command(),
        Kind::Lanes => json!({ "type": "array", "items": { "type": "string", "pattern": LANE } }),
        Kind::Address => address(),
        Kind::Environment => json!({
            "type": "object", "propertyNames": { "pattern": "^(?!SEMEL_)[A-Za-z_][A-Za-z0-9_]*$" },
            "additionalProperties": { "oneOf": [{ "type": "string" }, reference()] },
        }),
    };
    if let Some(members) = schema.as_object_mut() {
        members.insert("description".into(), help(key, flags).into());
    }
    schema
}
