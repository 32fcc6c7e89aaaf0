//! A ledger as lines of a file, and back into any store.
//!
//! ```text
//! {"key":"entry/…","clock":"live"|"lapsed"|null,"value":{…}}        a record of ours
//! {"key":"output/…","clock":null,"bytes":"0a1b…"}                   bytes that are the user's
//! ```

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use semel::store::{Change, Durability, Record, Settings, Store, open};
use semel_core::canonical::hex;
use semel_core::record::{Expect, RecordKey, Standing};
use serde_json::{Value, json};

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// Written by a build of before the first release, whose database had schema 1 and which knew no store but SQLite.
pub(crate) const SCHEMA_1: &str = "schema1";

/// The kept ledgers, by the version that wrote them; the newest last. That of schema 1 comes first.
pub(crate) fn kept() -> Vec<(String, Vec<Value>)> {
    let mut all: Vec<(String, Vec<Value>)> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let version = name.strip_prefix("ledger-")?.strip_suffix(".jsonl")?.to_owned();
            let text = std::fs::read_to_string(folder().join(&name)).unwrap();
            Some((version, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()))
        })
        .collect();
    all.sort_by_key(|(version, _)| match version.as_str() {
        SCHEMA_1 => Vec::new(),
        version => version.split('.').map(|part| part.parse().unwrap()).collect::<Vec<u32>>(),
    });
    assert!(all.len() > 1, "there are no kept ledgers: cargo xtask fixture");
    all
}

/// The lines of that version.
pub(crate) fn kept_by(version: &str) -> Vec<Value> {
    kept().into_iter().find(|(name, _)| name == version).unwrap_or_else(|| panic!("{version}")).1
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Every record of a store.
pub(crate) async fn all(store: &dyn Store) -> Vec<Record> {
    let mut records = Vec::new();
    for prefix in RecordKey::PREFIXES.iter().chain(&["copy/"]) {
        let mut after = None;
        loop {
            let page = store.scan(prefix, after.as_ref(), 200).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            records.extend(page);
        }
    }
    records
}

pub(crate) fn opened(url: &str) -> std::sync::Arc<dyn Store> {
    open(url, &Settings::default()).unwrap()
}

/// A ledger as lines.
pub(crate) fn dump(url: &str) -> Vec<Value> {
    runtime().block_on(async {
        let records = all(&*opened(url)).await;
        records.iter().map(line).collect()
    })
}

fn line(record: &Record) -> Value {
    let clock = record.standing.map(|standing| match standing {
        Standing::Live { .. } => "live",
        Standing::Lapsed { .. } => "lapsed",
    });
    match serde_json::from_slice::<Value>(&record.value) {
        Ok(value) if value.is_object() => json!({"key": record.key.as_str(), "clock": clock, "value": value}),
        _ => json!({"key": record.key.as_str(), "clock": clock, "bytes": hex(&record.value)}),
    }
}

pub(crate) fn value_of(line: &Value) -> Vec<u8> {
    match line["bytes"].as_str() {
        Some(text) => text
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect(),
        None => line["value"].to_string().into_bytes(),
    }
}

/// Put the lines into a store.
pub(crate) async fn load(store: &dyn Store, lines: &[Value]) {
    let live = Duration::from_secs(24 * 3600);
    for line in lines {
        let ttl = match line["clock"].as_str() {
            Some("live") => Some(live),
            Some(_) => Some(Duration::from_millis(1)),
            None => None,
        };
        let key = RecordKey::from_stored(line["key"].as_str().unwrap().to_owned());
        let put = Change::Put { key, expect: Expect::Absent, value: value_of(line), ttl };
        store.swap(&[put], Durability::Relaxed).await.unwrap();
    }
}

/// Members that are written only now and then, by chance.
const BY_CHANCE: [&str; 2] = ["missed_renewals", "unrenewed_ms"];
/// Members whose text is one of few words, each with a meaning: a new one is a new shape.
const WORDS: [&str; 9] = ["state", "ending", "reason", "event", "kind", "said", "on_lost", "by", "was"];

/// The shapes of all records: which members there are, and of what kind.
pub(crate) fn shapes(lines: &[Value]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in lines {
        let room = line["key"].as_str().unwrap().split('/').next().unwrap();
        found.insert(format!("{room} clock:{}", line["clock"].is_string()));
        if line["bytes"].is_string() {
            found.insert(format!("{room} bytes"));
        } else {
            shape(room, &line["value"], &mut found);
        }
    }
    found
}

fn shape(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    let last = path.rsplit('.').next().unwrap_or_default();
    // what people wrote is theirs
    let is_theirs = ["result", "plan", "with", "item", "leaves"].contains(&last) && path.contains('.');
    match value {
        Value::Object(_) if is_theirs => drop(found.insert(format!("{path}:theirs"))),
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(name, _)| !BY_CHANCE.contains(&name.as_str())) {
                shape(&format!("{path}.{name}"), member, found);
            }
        }
        Value::Array(elements) => {
            elements.iter().for_each(|element| shape(&format!("{path}[]"), element, found))
        }
        Value::String(word)
            if WORDS.contains(&last)
                && !path.ends_with("verdicts[].by")
                && !word.contains(' ')
                && !word.contains('@') =>
        {
            found.insert(format!("{path}={word}"));
        }
        Value::String(_) => drop(found.insert(format!("{path}:text"))),
        Value::Number(_) if last == "v" => drop(found.insert(format!("{path}={value}"))),
        Value::Number(_) => drop(found.insert(format!("{path}:number"))),
        Value::Bool(_) => drop(found.insert(format!("{path}:bool"))),
        Value::Null => drop(found.insert(format!("{path}:null"))),
    }
}
