//! JSON, works and payloads: one meaning has one key, and no two share one.

use semel_core::canonical::{self, Pointer};
use semel_core::payload::Fingerprint;
use semel_core::record::RecordKey;
use semel_core::work::{Work, parse_params};
use semel_fuzz::{Target, check};
use serde_json::Value;

use crate::lines;

const JSON: &[&str] = &[
    r#"{"b":[1.0,2e3,"x\u00e9\n",null,true,{}],"a":-0}"#,
    "{\"a\":1,\"b\":[0.1,1E-7]}\n{\"b\":[1e-1,0.0000001],\"a\":1.0}",
    "[[[[[[]]]]]]\n9007199254740991",
    r#""\ud83d\ude00""#,
    "1e21\n1000000000000000000000",
];
const JSON_WORDS: &[&str] = &[
    "null", "true", "false", "{}", "[]", "\"\"", ":", ",", "\\u", "\\ud800", "\\udc00", "\\u0000", "e-7",
    "1e21", "-0", "0.1", "5e-324", "\n", "\"a\":",
];

/// Do two texts mean the same to another reader? It keeps the last of two members, so it is asked only of texts that
/// have none twice, and every number is taken as a double.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

#[test]
fn json() {
    check(&Target::new("json", JSON, JSON_WORDS), |bytes| {
        let Some([first, second]) = lines(bytes) else { return };
        let read = |text: &str| {
            let value = canonical::parse(text).map_err(|why| why.to_string()).ok()?;
            let written = canonical::canonical(&value).expect("what was accepted has a canonical text");
            assert_eq!(canonical::parse(&written).as_ref(), Ok(&value), "closed");
            assert_eq!(canonical::canonical(&value).unwrap(), written, "its own canonical text");
            let other: Value = serde_json::from_str(text).expect("another reader accepts it");
            assert!(same(&other, &value), "another reader reads the same");
            Some((value, written))
        };
        if let (Some((a, a_text)), Some((b, b_text))) = (read(first), read(second)) {
            assert_eq!(a_text == b_text, same(&a, &b), "equal texts for equal meanings, and for no others");
        }
    });
}

const WORKS: &[&str] = &[
    "publish@2026-06-19?series=landing",
    "publish@2026-06-19?n:=[1,2.5]&s=a%20b#own%23key;id=7&x:={\"a\":1}~step~3",
    "sweep*~clean",
    r#"{"job":"a/b:c","slot":"2026-06-19T02:00:00Z","with":{"a":1},"key":"k","item":{"id":"x"},"step":"s","nth":2,"semel":1}"#,
    "a\n{\"job\":\"a\"}",
];
const WORK_WORDS: &[&str] = &[
    "@",
    "?",
    "#",
    ";",
    "~",
    "*",
    "&",
    "=",
    ":=",
    "%",
    "%2F",
    "%25",
    "%C3%A9",
    "\"job\":",
    "\"slot\":",
    "\"with\":",
    "\"item\":",
    "\"step\":",
    "\"nth\":",
    "\"semel\":1",
    "\"always\":true",
    "\n",
];

fn any_work(text: &str) -> Option<Work> {
    Work::from_json(text).or_else(|_| Work::parse_readable(text)).ok()
}

#[test]
fn works() {
    check(&Target::new("works", WORKS, WORK_WORDS), |bytes| {
        let Some([first, second]) = lines(bytes) else { return };
        let _ = parse_params([first, second]);
        let read = |text: &str| {
            let work = any_work(text)?;
            assert_eq!(Work::parse_readable(&work.to_string()).as_ref(), Ok(&work), "{work}");
            assert_eq!(Work::from_json(work.canonical()).as_ref(), Ok(&work), "{work}");
            assert_eq!(
                canonical::canonical(&canonical::parse(work.canonical()).unwrap()).unwrap(),
                work.canonical()
            );
            let stored: Work = serde_json::from_str(&serde_json::to_string(&work).unwrap()).unwrap();
            assert_eq!((&stored, stored.key()), (&work, work.key()));
            Some(work)
        };
        let (a, b) = (read(first), read(second));
        for work in a.iter().chain(&b) {
            let name = RecordKey::entry(work);
            assert!(name.as_str().bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
            let parts = name.as_str().split('/').count();
            let room = name.as_str().split('/').next();
            let wanted = match room {
                Some("entry") => 4,
                Some("item" | "step") => 5,
                _ => panic!("{name}"),
            };
            assert_eq!(parts, wanted, "no name reaches into another's range: {name}");
        }
        if let (Some(a), Some(b)) = (a, b) {
            let same = same(
                &serde_json::from_str(a.canonical()).unwrap(),
                &serde_json::from_str(b.canonical()).unwrap(),
            );
            assert_eq!(a.key() == b.key(), same);
            assert_eq!(RecordKey::entry(&a) == RecordKey::entry(&b), same);
        }
    });
}

#[test]
fn payloads() {
    const SEEDS: &[&str] = &[
        "/text /meta/at\n{\"text\":\"a\",\"meta\":{\"at\":1,\"n\":[1,2]}}\n{\"meta\":{\"n\":[1,2.0]},\"text\":\"b\"}",
        "\n{\"a\":[]}\n{\"a\":{}}",
        "/a~1b /a~0b\n{\"a/b\":1}\n{\"a~b\":1}",
    ];
    check(&Target::new("payloads", SEEDS, JSON_WORDS), |bytes| {
        let Some([volatile, first, second]) = lines(bytes) else { return };
        let volatile: Vec<Pointer> = volatile.split(' ').filter_map(|text| Pointer::new(text).ok()).collect();
        let (Ok(a), Ok(b)) = (canonical::parse(first), canonical::parse(second)) else { return };
        let of = |value: &Value, volatile: &[Pointer]| Fingerprint::of_json(value, volatile);
        let (plain_a, plain_b) = (of(&a, &[]).unwrap(), of(&b, &[]).unwrap());
        assert_eq!(plain_a.diff(&plain_b).is_empty(), same(&a, &b), "a change is seen, and nothing else");
        assert_eq!(plain_b.diff(&plain_a).is_empty(), same(&a, &b));
        let (Ok(a), Ok(b)) = (of(&a, &volatile), of(&b, &volatile)) else { return };
        for bound in [&a, &b] {
            assert!(bound.diff(bound).is_empty());
            let stored: Fingerprint = serde_json::from_str(&serde_json::to_string(bound).unwrap()).unwrap();
            assert_eq!(&stored, bound);
        }
        if plain_a.diff(&plain_b).is_empty() {
            assert!(a.diff(&b).is_empty(), "leaving something out makes no difference where there was none");
        }
    });
}
