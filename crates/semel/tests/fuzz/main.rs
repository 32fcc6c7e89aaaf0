//! Addresses of stores, refspecs and notes of the journal, from whatever bytes: targets of `semel-fuzz`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use semel::engine::journal;
use semel::sink::git::{EffectId, Lease, Refspec, mask};
use semel::store::{Address, OpenError, Record, Settings, open};
use semel_core::record::{RecordKey, Version};
use semel_fuzz::{Target, check};

const SECRET: &str = "hunter2";

/// Nothing is connected by opening, and what is said of a wrong address never repeats what may be a password.
#[test]
fn stores() {
    const SEEDS: &[&str] = &[
        "postgres://me:hunter2@db:6000/work?schema=other&sslmode=require&connect_timeout=3",
        "redis://me:hunter2@[::1]:6379/0?prefix=x",
        "etcd://me:hunter2@a:2379,b:2379/pre?tls=1",
        "nats://hunter2@a:4222/bucket?replicas=3",
        "s3://bucket/pre?endpoint=http://127.0.0.1:9&region=x",
        "gs://bucket/pre",
        "az://account/container/pre",
        "dir:/x",
        "sqlite:/y",
    ];
    const WORDS: &[&str] = &[
        "postgres://",
        "postgresql://",
        "redis://",
        "rediss://",
        "etcd://",
        "etcds://",
        "nats://",
        "s3://",
        "gs://",
        "az://",
        "@",
        ":",
        "?",
        "&",
        "=",
        "%",
        "%2F",
        "%00",
        "[",
        "]",
        ",",
        "/",
        "schema=",
        "sslmode=",
        "prefix=",
        "\n",
        "\0",
    ];
    // drivers make their own tables, and trust the machine's authorities
    let target = Target { memory_plus: 64 << 20, ..Target::new("stores", SEEDS, WORDS) };
    check(&target, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let told = match Address::parse(text) {
            Ok(Address::Service(_)) => {
                // a file that the address names is not what is tried here
                if ["root", "cert", "creds", "ca"].iter().any(|word| text.contains(word)) {
                    return;
                }
                match open(text, &Settings::default()) {
                    Ok(store) => format!("{store:?}"),
                    Err(OpenError::Configuration(why) | OpenError::Unavailable(why)) => why,
                }
            }
            Ok(_) => return,
            Err(why) => why.to_string(),
        };
        // only what stands before the host is a secret: a prefix of objects may hold anything
        let host =
            text.split_once("//").and_then(|(_, rest)| rest.split(['/', '?']).next()).unwrap_or_default();
        let before = host.rsplit_once('@').map_or("", |(before, _)| before);
        // a name is no secret; what NATS is given alone is a token
        let (name, password) = before.split_once(':').unwrap_or((before, ""));
        let is_secret = password.contains(SECRET) && !name.contains(SECRET)
            || text.starts_with("nats:") && before.contains(SECRET);
        // who writes it into a host or a folder as well has told it
        if is_secret && text.matches(SECRET).count() == 1 {
            assert!(!told.contains(SECRET), "{told}");
        }
    });
}

#[test]
fn refspecs() {
    const SEEDS: &[&str] = &[
        "+refs/heads/a:refs/heads/b",
        "main",
        ":gone",
        "refs/heads/*:refs/remotes/*",
        "main:0123456789abcdef0123456789abcdef01234567",
        "https://me:hunter2@host/x.git",
    ];
    const WORDS: &[&str] = &[":", "+", "refs/heads/", "*", "..", "@{", "~", "^", "\\", " ", "://", "@"];
    check(&Target::new("refspecs", SEEDS, WORDS), |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let _ = (Refspec::parse(text), Lease::parse(text));
        let masked = mask(text);
        assert_eq!(mask(&masked), masked, "masked once is masked");
        if let Ok(id) = EffectId::new(text) {
            assert_eq!(id.as_str(), text);
            assert!(!id.trailer().contains(['\n', '\r']), "one line");
        }
    });
}

#[test]
fn notes() {
    const SEEDS: &[&str] = &[
        r#"{"v":1,"work":"a@b","at_ms":1,"by":{"host":"h","boot":"b","pidns":1,"pid":7,"start":9},"reason":"done"}"#,
        r#"{"v":1,"work":"a","at_ms":1,"by":{"host":"h","boot":"b","pidns":1,"pid":7,"start":9},"reason":"busy","resource":"r","held_for":"x"}"#,
        r#"{"v":1,"work":"a","at_ms":1,"by":{"host":"h","boot":"b","pidns":1,"pid":7,"start":9},"reason":"running","token":3}"#,
    ];
    const WORDS: &[&str] =
        &["\"reason\":\"done\"", "\"v\":2", "null", "18446744073709551615", ",", ":", "\"", "{", "}"];
    check(&Target { memory_times: 256, ..Target::new("notes", SEEDS, WORDS) }, |bytes| {
        let key = RecordKey::from_stored("journal/a//x/1".to_owned());
        let record =
            Record { key: key.clone(), version: Version::from(1), value: bytes.to_vec(), standing: None };
        if let Ok(note) = journal::read(&record) {
            let value = semel_core::record::encode(&key, &note).unwrap();
            assert_eq!(journal::read(&Record { value, ..record }).unwrap(), note);
        }
    });
}
