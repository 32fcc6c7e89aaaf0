//! The scripts, what they are asked and what they answer.
//!
//! A record is one string: 16 digits of its deadline and 16 of its ttl (microseconds; zeros where it has no clock), 32
//! of its version, then its value. So an expectation reads 64 bytes of it however large it is, and a renewal writes 16.
//!
//! A version is a random number that the client drew, plus the place of the change in its swap: it never comes back,
//! whatever the server has forgotten.

use std::sync::OnceLock;
use std::time::Duration;

use redis::{Cmd, Value};
use semel_core::record::{Expect, RecordKey, Standing, Version};

use crate::store::{Change, Record};

/// The bytes before the value.
const HEAD: usize = 64;
/// The longest ttl, in microseconds: a deadline stays exact in a script, whose numbers are doubles.
const TTL_LIMIT_US: u64 = 1 << 52;

/// A script and its hash.
pub(super) struct Script {
    text: &'static str,
    hash: OnceLock<String>,
}

pub(super) static LOAD: Script = Script::new(include_str!("lua/load.lua"));
pub(super) static SWAP: Script = Script::new(include_str!("lua/swap.lua"));
pub(super) static TOUCH: Script = Script::new(include_str!("lua/touch.lua"));
pub(super) static SCAN: Script = Script::new(include_str!("lua/scan.lua"));

/// What a script is called with.
pub(super) struct Call<'a> {
    pub(super) script: &'static Script,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<Arg<'a>>,
}

/// An argument; a value is lent, since it may be large.
pub(super) enum Arg<'a> {
    Text(&'a str),
    Made(String),
    Stamped(String, &'a [u8]),
}

impl Script {
    const fn new(text: &'static str) -> Script {
        Script { text, hash: OnceLock::new() }
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}

impl Call<'_> {
    /// The command; by the hash alone, or with the whole text for a server that has not met it.
    pub(super) fn command(&self, whole: bool) -> Cmd {
        let mut cmd = match whole {
            true => redis::cmd("EVAL"),
            false => redis::cmd("EVALSHA"),
        };
        cmd.arg(if whole { self.script.text } else { self.script.hash() }).arg(self.keys.len());
        for key in &self.keys {
            cmd.arg(key.as_str());
        }
        for arg in &self.args {
            match arg {
                Arg::Text(text) => cmd.arg(*text),
                Arg::Made(text) => cmd.arg(text.as_str()),
                Arg::Stamped(stamp, value) => cmd.arg([stamp.as_bytes(), value].concat()),
            };
        }
        cmd
    }
}

/// The names of a ledger's keys. The prefix is their hash tag: all of them lie in one slot of a cluster.
#[derive(Debug)]
pub(super) struct Names {
    stem: String,
    channels: String,
}

impl Names {
    pub(super) fn new(prefix: &str, database: i64) -> Names {
        // a channel is heard in every database of the server
        Names { stem: format!("{{{prefix}}}:"), channels: format!("{{{prefix}}}:c{database}:") }
    }

    /// What all keys and channels begin with.
    pub(super) fn stem(&self) -> &str {
        &self.stem
    }

    pub(super) fn channel(&self, key: &RecordKey) -> String {
        format!("{}{key}", self.channels)
    }

    fn record(&self, key: &RecordKey) -> String {
        format!("{}r:{key}", self.stem)
    }

    fn index(&self) -> String {
        format!("{}i", self.stem)
    }

    pub(super) fn load(&self, keys: &[RecordKey]) -> Call<'static> {
        Call { script: &LOAD, keys: keys.iter().map(|key| self.record(key)).collect(), args: Vec::new() }
    }

    /// The call that makes these changes, and the versions that it answers if it does.
    pub(super) fn swap<'a>(&'a self, changes: &'a [Change], nonce: u128) -> (Call<'a>, Vec<Version>) {
        let mut keys = Vec::with_capacity(changes.len() + 1);
        let mut args = Vec::with_capacity(4 * changes.len() + 1);
        let mut versions = Vec::with_capacity(changes.len());
        keys.push(self.index());
        args.push(Arg::Text(&self.channels));
        for (change, place) in changes.iter().zip(0u128..) {
            keys.push(self.record(change.key()));
            let (what, expected) = asked(change);
            args.extend([Arg::Text(what), Arg::Text(expected)]);
            match change {
                Change::Put { value, ttl, .. } => {
                    let version = format!("{:032x}", nonce.wrapping_add(place));
                    args.extend([Arg::Made(ttl_text(*ttl)), Arg::Stamped(version.clone(), value)]);
                    versions.push(Version::new(version));
                }
                Change::Guard { .. } | Change::Remove { .. } => {
                    args.extend([Arg::Text(""), Arg::Text("")]);
                    versions.push(Version::new(expected));
                }
            }
        }
        (Call { script: &SWAP, keys, args }, versions)
    }

    pub(super) fn touch<'a>(&self, key: &RecordKey, version: &'a Version) -> Call<'a> {
        Call { script: &TOUCH, keys: vec![self.record(key)], args: vec![Arg::Text(version.as_str())] }
    }

    pub(super) fn scan(&self, prefix: &str, after: Option<&RecordKey>, limit: usize) -> Call<'static> {
        let from = match after {
            Some(after) if after.as_str() >= prefix => format!("({after}"),
            _ => format!("[{prefix}"),
        };
        // names are ASCII: no byte of theirs comes after this one
        let to = Arg::Stamped(format!("({prefix}"), b"\xff");
        let limit = limit.min(1 << 20).to_string();
        Call { script: &SCAN, keys: vec![self.index()], args: vec![Arg::Made(from), to, Arg::Made(limit)] }
    }
}

/// What a change is, and the version that it expects.
fn asked(change: &Change) -> (&'static str, &str) {
    let which = match change {
        Change::Put { .. } => 0,
        Change::Guard { .. } => 1,
        Change::Remove { .. } => 2,
    };
    match change.expect() {
        Expect::Absent => (["PA", "GA", "RA"][which], ""),
        Expect::Version(version) => (["PV", "GV", "RV"][which], version.as_str()),
        Expect::Live(version) => (["PL", "GL", "RL"][which], version.as_str()),
        Expect::Lapsed(version) => (["PX", "GX", "RX"][which], version.as_str()),
    }
}

fn ttl_text(ttl: Option<Duration>) -> String {
    let us = ttl.map_or(0, |ttl| u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX).clamp(1, TTL_LIMIT_US));
    format!("{us:016}")
}

/// The server's time in microseconds, from the two numbers of `TIME`.
pub(super) fn time_us(seconds: &Value, micros: &Value) -> Option<u64> {
    let number = |value: &Value| match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}

/// The record in an answer: `Some(None)` where there is none, `None` if it cannot be one.
pub(super) fn record(key: &RecordKey, raw: Value, now_us: u64) -> Option<Option<Record>> {
    let mut raw = match raw {
        Value::Nil => return Some(None),
        Value::BulkString(raw) => raw,
        _ => return None,
    };
    let head = std::str::from_utf8(raw.get(..HEAD)?).ok()?;
    let deadline_us: u64 = head.get(..16)?.parse().ok()?;
    let version = Version::new(head.get(32..)?);
    let standing = (deadline_us > 0).then(|| match deadline_us.checked_sub(now_us) {
        // rounded up: whoever waits so long finds it lapsed
        Some(left @ 1..) => Standing::Live { left_ms: left.div_ceil(1000) },
        _ => Standing::Lapsed { for_ms: (now_us - deadline_us) / 1000 },
    });
    raw.drain(..HEAD);
    Some(Some(Record { key: key.clone(), version, value: raw, standing }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_record_that_is_none_of_ours_is_told_apart() {
        let key = RecordKey::from_stored("a".to_owned());
        assert_eq!(record(&key, Value::Nil, 0), Some(None));
        for raw in [b"".to_vec(), vec![b'0'; 63], vec![0xff; 80], b"x".repeat(80)] {
            assert_eq!(record(&key, Value::BulkString(raw), 0), None);
        }
        let raw = format!("{:016}{:016}{:032x}value", 5_000, 9_000, 7);
        let at = |now_us| {
            record(&key, Value::BulkString(raw.clone().into_bytes()), now_us).unwrap().unwrap().standing
        };
        assert_eq!(at(3_999), Some(Standing::Live { left_ms: 2 }));
        assert_eq!(at(4_999), Some(Standing::Live { left_ms: 1 }));
        assert_eq!(at(5_000), Some(Standing::Lapsed { for_ms: 0 }));
        assert_eq!(at(7_000), Some(Standing::Lapsed { for_ms: 2 }));
    }

    #[test]
    fn no_ttl_is_too_long_or_too_short_for_a_script() {
        assert_eq!(ttl_text(None), "0000000000000000");
        assert_eq!(ttl_text(Some(Duration::ZERO)), "0000000000000001");
        assert_eq!(ttl_text(Some(Duration::MAX)).len(), 16);
    }

    /// A target of `semel-fuzz`: the time of the server comes first.
    #[test]
    fn redis_records() {
        const SEEDS: &[&str] =
            &["5000 00000000000050000000000000009000000102030405060708090a0b0c0d0e0fvalue"];
        const WORDS: &[&str] = &["18446744073709551615 ", "9999999999999999", "-", "+"];
        semel_fuzz::check(&semel_fuzz::Target::new("redis_records", SEEDS, WORDS), |bytes| {
            let at = bytes.iter().position(|byte| *byte == b' ').unwrap_or(0);
            let (now, raw) = bytes.split_at(at);
            let now_us = std::str::from_utf8(now).ok().and_then(|now| now.parse().ok()).unwrap_or(0);
            let raw = raw.get(1..).unwrap_or_default().to_vec();
            let key = RecordKey::from_stored("a".to_owned());
            if let Some(Some(found)) = record(&key, Value::BulkString(raw.clone()), now_us) {
                assert_eq!(raw.get(HEAD..), Some(found.value.as_slice()));
            }
        });
    }
}
