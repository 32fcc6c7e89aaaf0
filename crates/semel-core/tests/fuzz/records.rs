//! Records as a store hands them back: read, or refused in so many words.
//!
//! Which kind a record is, its name says: bytes that stand under another's name are not found out here (a running entry
//! reads as a free lease). Stores that could mix up two names keep the name with the bytes.

use std::collections::BTreeMap;
use std::fmt::Debug;

use semel_core::alarm::{self, Alarm, spot};
use semel_core::calendar::Calendar;
use semel_core::claim::{self, Ask, View};
use semel_core::entry::{Ending, Entry, Say, Settle, State, Verdict, settle};
use semel_core::item::{Glance, Mark, brief, glance};
use semel_core::lease::{Lease, SeenLease};
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::policy::Policy;
use semel_core::record::{FORMAT, RecordError, RecordKey, Seen, Standing, Version, decode, encode};
use semel_core::story::{Suppressed, Words, condition, story};
use semel_core::token::{Grant, Nonce, Token};
use semel_core::{advice, carry, retention};
use semel_fuzz::{Target, check_with};
use serde::Serialize;
use serde::de::DeserializeOwned;

const OWNER: &str = r#"{"host":"h","boot":"b","pidns":1,"pid":7,"start":9}"#;
const SEEDS: &[&str] = &[
    r#"{"v":1,"grant":{"token":3,"nonce":"000102030405060708090a0b0c0d0e0f"},"hold":{"owner":{"host":"h","boot":"b","pidns":1,"pid":7,"start":9},"what":"w","since_ms":5,"ttl_ms":60000,"lock_delay_ms":1,"resting":true}}"#,
    r#"{"v":1,"work":{"semel":1,"job":"a","slot":"2026-06-19"},"state":"done","by":"run","attempts":1,"log":[{"n":1,"token":3,"nonce":"000102030405060708090a0b0c0d0e0f","resource":"a","owner":{"host":"h","boot":"b","pidns":1,"pid":7,"start":9},"started_ms":1,"ended_ms":2,"ending":"succeeded"}],"changed_ms":2,"payload":{"leaves":{"leaves":{"/a":"0011223344556677"}}},"result":{"a":[1.5,null]},"terms":{"on_lost":"retry","max_failures":3,"keep_ms":1,"remember_ms":4}}"#,
    r#"{"v":1,"work":{"semel":1,"job":"a","step":"s"},"state":"running","resource":"a","grant":{"token":3,"nonce":"000102030405060708090a0b0c0d0e0f"},"attempts":1,"failures":2,"log":[{"n":1,"token":3,"nonce":"000102030405060708090a0b0c0d0e0f","resource":"a","owner":{"host":"h","boot":"b","pidns":1,"pid":7,"start":9},"started_ms":18446744073709551615,"ending":"none"}],"verdicts":[{"said":"retry","by":"me","at_ms":1,"because":"x","was":"in_doubt"}],"changed_ms":2,"output":{"of":"000102030405060708090a0b0c0d0e0f","pieces":1,"out_bytes":2,"err_bytes":3,"kept":true},"plan":{"seed":1},"definition":{"digest":"d","text":"{}"},"command":{"program":"p","digest":"d"},"forgotten":{"done_ms":1,"at_ms":2,"remember_ms":3},"terms":{"on_lost":"hold","max_failures":0,"keep_ms":18446744073709551615}}"#,
    r#"{"v":1,"work":{"semel":1,"job":"a","item":{"id":1}},"state":"in_doubt","why":"x","attempts":4294967295,"changed_ms":18446744073709551615,"terms":{"on_lost":"probe","max_failures":1,"keep_ms":0}}"#,
    r#"{"v":1,"job":"a","every":"day","grace_ms":1,"since_ms":2,"through_ms":3,"stretches":[{"after_ms":1,"before_ms":2}]}"#,
    r#"{"v":1,"job":"a","open":[{"kind":"failed","since_ms":1,"count":2,"notice":"000102030405060708090a0b0c0d0e0f","told":["x"],"findings":["f"]}],"outbox":[{"id":"000102030405060708090a0b0c0d0e0f","event":"raised","kind":"lost","work":"a","at_ms":1,"why":"y","count":1,"lanes":[{"name":"x","state":"pending","tries":1,"last_ms":2,"why":"z"}]}]}"#,
];
const WORDS: &[&str] = &[
    "\"v\":1",
    "\"v\":2",
    "\"v\":0",
    "\"state\":\"done\"",
    "\"state\":\"failed\"",
    "\"state\":\"missed\"",
    "\"state\":\"quarantined\"",
    "\"state\":\"open\"",
    "\"torn\":true",
    "\"reason\":\"busy\"",
    "\"by\":\"person\"",
    "\"ending\":\"failed\",\"code\":1",
    "\"ending\":\"vanished\"",
    "\"ending\":\"interrupted\",\"signal\":15",
    "null",
    "{}",
    "[]",
    "1e3",
    "-1",
    "18446744073709551615",
    "\"attempts\":1",
    ",",
    ":",
    "\"work\":",
];

fn key() -> RecordKey {
    RecordKey::from_stored("entry/a//x".to_owned())
}

/// Read; and what was read is written and read again as the same.
fn read<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    match decode::<T>(&key(), bytes) {
        Ok(value) => {
            let written = encode(&key(), &value).expect("what was read can be written");
            assert_eq!(decode::<T>(&key(), &written).expect("and read again"), value);
            assert_eq!(encode(&key(), &value).unwrap(), written);
            Some(value)
        }
        Err(why) => {
            let said = why.to_string();
            assert!(said.contains("entry/a//x"), "names the record: {said}");
            if let RecordError::Newer { found, .. } = why {
                assert!(found > u64::from(FORMAT) && said.contains(&found.to_string()), "{said}");
            }
            None
        }
    }
}

/// The records of the kept ledgers, one of each kind and state.
fn kept() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "jsonl") {
            continue;
        }
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let (room, value) = (line["key"].as_str().unwrap().split('/').next().unwrap(), &line["value"]);
            let members = value.as_object().map(|members| members.keys().cloned().collect::<Vec<_>>());
            if let Some(members) = members {
                let kind = (room.to_owned(), value["state"].to_string(), members);
                found.entry(kind).or_insert_with(|| value.to_string().into_bytes());
            }
        }
    }
    assert!(found.len() > 20, "only {} kinds of records are kept", found.len());
    found.into_values().collect()
}

#[test]
fn records() {
    let target = Target { memory_times: 256, ..Target::new("records", SEEDS, WORDS) };
    check_with(&target, kept(), |bytes| {
        let (lease, entry) = (read::<Lease>(bytes), read::<Entry>(bytes));
        let (calendar, alarm) = (read::<Calendar>(bytes), read::<Alarm>(bytes));
        if let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes)
            && value.get("v").is_some_and(|v| *v != serde_json::json!(FORMAT))
        {
            let all = (lease.is_none(), entry.is_none(), calendar.is_none(), alarm.is_none());
            assert_eq!(all, (true, true, true, true), "another format is never read as this one");
            assert_eq!(brief(bytes), None);
        }
        let mark = Mark::of(&grant(), &entry_key(), false);
        match (glance(bytes, None, &mark), &entry) {
            (Glance::Done | Glance::Repeated, Some(entry)) => {
                assert!(matches!(entry.state, State::Done { .. }))
            }
            (Glance::Look, Some(entry)) => assert!(!matches!(entry.state, State::Done { .. })),
            _ => {}
        }
        if let (Some(entry), Some((job, state))) = (&entry, brief(bytes)) {
            assert_eq!((&job, state), (entry.work.job(), entry.state.word()));
        }
        if let Some(entry) = entry {
            of_entry(&entry);
        }
        if let Some(lease) = lease {
            of_lease(lease);
        }
        if let Some(alarm) = alarm {
            of_alarm(&alarm);
        }
    });
}

/// Attempts are counted up to a limit, and the story of an entry that has reached it is told.
#[test]
fn an_entry_with_as_many_attempts_as_there_can_be_has_a_story() {
    let owner = serde_json::from_str::<serde_json::Value>(OWNER).unwrap();
    let nonce = "000102030405060708090a0b0c0d0e0f";
    let attempt = serde_json::json!({"n": u32::MAX, "token": 3, "nonce": nonce, "resource": "a", "owner": owner, "started_ms": 1, "ending": "vanished"});
    let record = serde_json::json!({"v": 1, "work": {"job": "a"}, "state": "open", "attempts": u32::MAX, "log": [attempt, attempt],
        "changed_ms": 2, "terms": {"on_lost": "retry", "max_failures": 3, "keep_ms": 1}});
    of_entry(&read::<Entry>(record.to_string().as_bytes()).unwrap());
}

/// A format that no version wrote is damage, not a reason to upgrade.
#[test]
fn format_0_is_no_newer_one() {
    let why = decode::<Lease>(&key(), b"{\"v\":0}").unwrap_err().to_string();
    assert_eq!(why, "record entry/a//x is damaged: it has format 0, which no Semel wrote");
}

fn grant() -> Grant {
    Grant { token: Token::FIRST, nonce: Nonce::from_bytes([7; 16]) }
}

fn entry_key() -> semel_core::key::Key {
    semel_core::key::Key::from_bytes([1; 32])
}

/// Whatever stands there, the rules answer, and take nothing back that they promise.
fn of_entry(entry: &Entry) {
    let ms = |ms: u64| ms.to_string();
    for now_ms in [0, 1_774_746_000_000, u64::MAX] {
        let _ = retention::fate(entry, now_ms);
        let _ = (
            alarm_of(entry, now_ms),
            entry.log.iter().filter_map(|one| advice::Measured::of(one, Some(now_ms))).count(),
        );
        let ask = Settle {
            grant: &grant(),
            ending: Ending::Failed { code: 1 },
            result: None,
            output: None,
            failed_tries: u32::MAX,
            missed_renewals: 0,
            unrenewed_ms: 0,
            now_ms,
        };
        let settled = settle(entry, &ask);
        let is_ours = matches!(&entry.state, State::Running { grant: theirs, .. } if *theirs == grant());
        assert_eq!(settled.is_ok(), is_ours, "only whoever runs settles");
    }
    let view =
        View { entry: Some(Seen { value: entry.clone(), version: Version::from(1) }), ..View::default() };
    let view = match &entry.state {
        State::Running { resource, .. } => View { leases: vec![(resource.clone(), None)], ..view },
        _ => view,
    };
    let condition = condition(&view, entry).expect("its lease was looked at");
    let words = Words { when: &ms, span: &ms };
    let lines = story(entry, condition, &Suppressed::default(), words);
    assert!(lines.iter().all(|line| !line.text.is_empty()));
    claims(view, entry);
}

fn alarm_of(entry: &Entry, now_ms: u64) -> usize {
    let lost = spot::lost(entry, now_ms).into_iter().chain([spot::left_behind(entry, now_ms)]);
    lost.chain(spot::needs_person(entry, now_ms)).count()
}

fn claims(view: View, entry: &Entry) {
    let owner: Owner = serde_json::from_str(OWNER).unwrap();
    let resources = [Name::new("a").unwrap()];
    let mut view = view;
    if view.lease(&resources[0]).is_none() {
        view.leases.push((resources[0].clone(), None));
    }
    let policy = Policy::default();
    let ask = Ask {
        work: Some(&entry.work),
        what: "w",
        resources: &resources,
        policy: &policy,
        owner: &owner,
        nonce: Nonce::from_bytes([9; 16]),
        payload: None,
        command: None,
        plan: None,
        definition: None,
        occurrence: None,
        now_ms: 1_774_746_000_000,
    };
    let takes = matches!(claim::claim(&view, &ask), claim::Decision::Claim(_));
    let settled = matches!(entry.state, State::Done { .. } | State::Quarantined | State::InDoubt { .. });
    assert!(!(takes && settled && !entry.work.is_always()), "{:?}", entry.state);
    let seen = view.entry.clone().unwrap();
    let said = Verdict { said: Say::Done, by: "me".into(), at_ms: 1, because: "x".into(), was: "x".into() };
    if let Ok((next, ..)) = claim::verdict(&view, &seen, said, None) {
        encode(&key(), &next).expect("a verdict can be written");
    }
}

fn of_lease(lease: Lease) {
    let _ = carry::is_in_use(&lease, None);
    for standing in [
        Standing::Live { left_ms: u64::MAX },
        Standing::Lapsed { for_ms: u64::MAX },
        Standing::Lapsed { for_ms: 0 },
    ] {
        let record = Seen { value: lease.clone(), version: Version::from(1) };
        let seen = SeenLease { record, standing, owner_gone: false };
        let owner: Owner = serde_json::from_str(OWNER).unwrap();
        let nonce = Nonce::from_bytes([9; 16]);
        let (ttl_ms, now_ms) = (60_000, u64::MAX);
        let ask = semel_core::lease::Acquire {
            owner: &owner,
            what: "w",
            nonce,
            token_floor: 0,
            ttl_ms,
            lock_delay_ms: 0,
            now_ms,
        };
        if let semel_core::lease::Acquired::Take(take) = semel_core::lease::acquire(Some(&seen), &ask) {
            let ours = take.before == semel_core::lease::Before::Ours;
            assert!(ours || take.lease.grant.token > lease.grant.token, "a token only grows");
        }
        let _ = semel_core::lease::release(Some(&seen), lease.grant.token, None, 1);
    }
}

fn of_alarm(alarm: &Alarm) {
    for now_ms in [0, 1_774_746_000_000, u64::MAX] {
        for (notice, lane) in alarm::due(alarm, now_ms) {
            let _ = (alarm::words(notice), alarm::body(alarm.job.as_ref(), notice));
            let _ = alarm::undelivered(alarm, &notice.id, lane, now_ms, "x", false);
            if let Some(next) = alarm::delivered(alarm, &notice.id, lane, now_ms) {
                encode(&key(), &next).expect("it can be written");
            }
        }
    }
    let _ = alarm::broken(alarm);
}
