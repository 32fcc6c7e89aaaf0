//! How records lie in etcd, and what a change is in its words. Pure.
//!
//! ```text
//! PREFIX/r/<record>   the record: a head, then its bytes
//! PREFIX/a/<record>   its mark, for a record with a clock
//! ```
//!
//! A version is the revision at which the record was written, and for a record with a clock the etcd lease of that
//! clock: `1234` or `1234:6f00…`. Revisions only grow, so none comes back.

use semel_core::record::{Expect, RecordKey, Version};

use super::super::{Change, StoreError};
use super::messages::{
    CREATE, Compare, DeleteRangeRequest, EQUAL, KeyValue, MOD, NOT_EQUAL, PutRequest, RangeRequest, Request,
    RequestOp, ResponseOp, Revision, TxnRequest,
};

/// What the driver reads out of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// When it was written.
    pub(super) revision: i64,
    /// The etcd lease of its clock, if it has one.
    pub(super) lease: Option<i64>,
}

impl Stamp {
    pub(super) fn version(self) -> Version {
        match self.lease {
            Some(lease) => Version::new(format!("{}:{lease:x}", self.revision)),
            None => Version::from(self.revision),
        }
    }

    /// `None` for what no record was ever at.
    pub(super) fn of(version: &Version) -> Option<Stamp> {
        let stamp = match version.as_str().split_once(':') {
            Some((revision, lease)) => {
                Stamp { revision: revision.parse().ok()?, lease: Some(i64::from_str_radix(lease, 16).ok()?) }
            }
            None => Stamp { revision: version.as_str().parse().ok()?, lease: None },
        };
        // one version has one text
        (stamp.revision > 0 && stamp.version() == *version).then_some(stamp)
    }

    fn expected(change: &Change) -> Option<Stamp> {
        version_of(change.expect()).and_then(Stamp::of)
    }
}

/// The version that is expected, if one is.
pub(super) fn version_of(expect: &Expect) -> Option<&Version> {
    match expect {
        Expect::Absent => None,
        Expect::Version(version) | Expect::Live(version) | Expect::Lapsed(version) => Some(version),
    }
}

const PLAIN: u8 = 0;
const CLOCKED: u8 = 1;

/// The bytes of a record: whether it has a clock, and whose.
fn encoded(value: &[u8], lease: Option<i64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len() + 9);
    match lease {
        None => bytes.push(PLAIN),
        Some(lease) => {
            bytes.push(CLOCKED);
            bytes.extend(lease.to_be_bytes());
        }
    }
    bytes.extend(value);
    bytes
}

fn decoded(bytes: &[u8]) -> Option<(Option<i64>, &[u8])> {
    match bytes.split_first()? {
        (&PLAIN, value) => Some((None, value)),
        (&CLOCKED, rest) => {
            let (lease, value) = rest.split_first_chunk()?;
            Some((Some(i64::from_be_bytes(*lease)), value))
        }
        _ => None,
    }
}

/// A record and its mark, as they stand.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: RecordKey,
    pub(super) stamp: Stamp,
    pub(super) value: Vec<u8>,
    /// When its mark was written, and the etcd lease that it is gone with.
    pub(super) mark: Option<(i64, i64)>,
}

impl Row {
    /// Does its clock run? Its mark was written together with it, and is still there.
    pub(super) fn is_live(&self) -> bool {
        self.mark.is_some_and(|(revision, _)| revision == self.stamp.revision)
    }
}

/// Where records lie.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    prefix: String,
}

impl Layout {
    pub(super) fn new(prefix: &str) -> Layout {
        Layout { prefix: prefix.to_owned() }
    }

    pub(super) fn record(&self, key: &str) -> Vec<u8> {
        format!("{}r/{key}", self.prefix).into_bytes()
    }

    pub(super) fn mark(&self, key: &str) -> Vec<u8> {
        format!("{}a/{key}", self.prefix).into_bytes()
    }

    /// What is asked about a record: itself and its mark, as of a revision (0: now).
    pub(super) fn look(&self, key: &RecordKey, revision: i64) -> [RequestOp; 2] {
        let range = |key| range(RangeRequest { key, revision, ..RangeRequest::default() });
        [range(self.record(key.as_str())), range(self.mark(key.as_str()))]
    }

    /// What is asked for a page: records, and as many marks, which cannot be fewer than those records have.
    pub(super) fn page(&self, prefix: &str, after: Option<&RecordKey>, limit: i64) -> [RequestOp; 2] {
        let start = match after.map(RecordKey::as_str) {
            Some(after) if after >= prefix => format!("{after}\0"),
            _ => prefix.to_owned(),
        };
        let page = |start: Vec<u8>, prefix: Vec<u8>| {
            range(RangeRequest { key: start, range_end: end_of(prefix), limit, ..RangeRequest::default() })
        };
        [page(self.record(&start), self.record(prefix)), page(self.mark(&start), self.mark(prefix))]
    }

    /// A record that was answered.
    pub(super) fn row(&self, kv: &KeyValue, marks: &[KeyValue]) -> Result<Row, StoreError> {
        let whose = || String::from_utf8_lossy(&kv.key).into_owned();
        let name = std::str::from_utf8(&kv.key).ok().and_then(|key| key.strip_prefix(self.prefix.as_str()));
        let name = name.and_then(|name| name.strip_prefix("r/"));
        let (Some(name), Some((lease, value))) = (name, decoded(&kv.value)) else {
            return Err(StoreError::Unavailable(format!(
                "the key {} in etcd was not written by Semel: give Semel a prefix of its own",
                whose()
            )));
        };
        let mark_key = self.mark(name);
        let mark = marks.iter().find(|mark| mark.key == mark_key);
        Ok(Row {
            key: RecordKey::from_stored(name.to_owned()),
            stamp: Stamp { revision: kv.mod_revision, lease },
            value: value.to_vec(),
            mark: mark.map(|mark| (mark.mod_revision, mark.lease)),
        })
    }

    /// A swap as one transaction: `leases` holds the etcd lease of each change with a ttl.
    pub(super) fn txn(&self, changes: &[Change], leases: &[Option<i64>]) -> TxnRequest {
        let mut txn = TxnRequest::default();
        for (change, lease) in changes.iter().zip(leases) {
            let (record, mark) = (self.record(change.key().as_str()), self.mark(change.key().as_str()));
            self.compare(change, &mut txn.compare);
            let had_clock = Stamp::expected(change).is_some_and(|stamp| stamp.lease.is_some());
            match change {
                Change::Put { value, .. } => {
                    let value = encoded(value, *lease);
                    txn.success.push(put(PutRequest { key: record, value, lease: 0 }));
                    if let Some(lease) = *lease {
                        txn.success.push(put(PutRequest { key: mark, value: Vec::new(), lease }));
                    } else if had_clock {
                        txn.success.push(delete(mark));
                    }
                }
                Change::Remove { .. } => {
                    txn.success.push(delete(record));
                    if had_clock {
                        txn.success.push(delete(mark));
                    }
                }
                Change::Guard { .. } => {}
            }
            let looks = self.look(change.key(), 0);
            txn.failure.extend(looks.into_iter().take(if asks_mark(change, *lease) { 2 } else { 1 }));
        }
        txn
    }

    fn compare(&self, change: &Change, all: &mut Vec<Compare>) {
        let (record, mark) = (self.record(change.key().as_str()), self.mark(change.key().as_str()));
        let written = |key, result, revision| Compare {
            result,
            target: MOD,
            key,
            revision: Some(Revision::Mod(revision)),
        };
        let Some(version) = version_of(change.expect()) else {
            let revision = Some(Revision::Create(0));
            return all.push(Compare { result: EQUAL, target: CREATE, key: record, revision });
        };
        // no key is ever at -1: a version that no record was ever at is refused by etcd, with what stands there
        let stamp = Stamp::of(version).unwrap_or(Stamp { revision: -1, lease: None });
        all.push(written(record.clone(), EQUAL, stamp.revision));
        match change.expect() {
            Expect::Live(_) => all.push(written(mark, EQUAL, stamp.revision)),
            Expect::Lapsed(_) if stamp.lease.is_some() => all.push(written(mark, NOT_EQUAL, stamp.revision)),
            // without a clock it never lapses
            Expect::Lapsed(_) => all.push(written(record, EQUAL, -1)),
            Expect::Absent | Expect::Version(_) => {}
        }
    }

    /// What a refused transaction says of each change: `None` where a mark would have to be known and was not asked for.
    pub(super) fn standing(
        &self,
        changes: &[Change],
        leases: &[Option<i64>],
        answers: Vec<ResponseOp>,
    ) -> Result<Vec<Option<Option<Row>>>, StoreError> {
        let mut answers =
            answers.into_iter().map(|answer| answer.range.map(|range| range.kvs).unwrap_or_default());
        let mut rows = Vec::with_capacity(changes.len());
        for (change, lease) in changes.iter().zip(leases) {
            let record = answers.next().unwrap_or_default().pop();
            let marks = match asks_mark(change, *lease) {
                true => Some(answers.next().unwrap_or_default()),
                false => None,
            };
            let row = record.map(|kv| self.row(&kv, marks.as_deref().unwrap_or_default())).transpose()?;
            let clocked = row.as_ref().is_some_and(|row| row.stamp.lease.is_some());
            rows.push((marks.is_some() || !clocked).then_some(row));
        }
        Ok(rows)
    }
}

/// Is the mark of interest if this change is refused? Only records that have, had or get a clock have one, and a
/// transaction may hold no more than so many questions.
fn asks_mark(change: &Change, lease: Option<i64>) -> bool {
    lease.is_some()
        || matches!(change.expect(), Expect::Live(_) | Expect::Lapsed(_))
        || Stamp::expected(change).is_some_and(|stamp| stamp.lease.is_some())
}

pub(super) fn range(range: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::Range(range)) }
}

fn put(put: PutRequest) -> RequestOp {
    RequestOp { request: Some(Request::Put(put)) }
}

fn delete(key: Vec<u8>) -> RequestOp {
    RequestOp { request: Some(Request::Delete(DeleteRangeRequest { key })) }
}

/// The write that remembers since when a record is known to have lapsed: if it still has, and nobody has written it yet.
pub(super) fn remember_lapse(layout: &Layout, row: &Row, lease: i64) -> TxnRequest {
    let (record, mark) = (layout.record(row.key.as_str()), layout.mark(row.key.as_str()));
    let same = Some(Revision::Mod(row.stamp.revision));
    TxnRequest {
        compare: vec![
            Compare { result: EQUAL, target: MOD, key: record, revision: same },
            Compare { result: EQUAL, target: CREATE, key: mark.clone(), revision: Some(Revision::Create(0)) },
        ],
        success: vec![put(PutRequest { key: mark, value: b"lapsed".to_vec(), lease })],
        failure: Vec::new(),
    }
}

/// Where the keys with this prefix end. Ours are ASCII, so their last byte can always be one more.
fn end_of(mut prefix: Vec<u8>) -> Vec<u8> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            break;
        }
    }
    prefix
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_version_has_one_text_and_comes_back_from_it() {
        for stamp in [Stamp { revision: 7, lease: None }, Stamp { revision: 7, lease: Some(i64::MAX) }] {
            assert_eq!(Stamp::of(&stamp.version()), Some(stamp));
        }
        for text in ["", "x", "07", "+7", "0", "-1", "7:", "7:0f", "7:F", "7:f:f", "9999999999999999999"] {
            assert_eq!(Stamp::of(&Version::new(text)), None, "{text}");
        }
    }

    #[test]
    fn a_value_comes_back_with_its_clock_and_damage_is_noticed() {
        for lease in [None, Some(1), Some(i64::MAX)] {
            assert_eq!(decoded(&encoded(b"\0x", lease)), Some((lease, b"\0x".as_slice())));
        }
        for bytes in [b"".as_slice(), b"\x01short", b"{}"] {
            assert_eq!(decoded(bytes), None);
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next() {
        assert_eq!(end_of(b"a/".to_vec()), b"a0");
        assert_eq!(end_of(b"a\xff".to_vec()), b"b");
    }

    /// A target of `semel-fuzz`.
    #[test]
    fn etcd_rows() {
        const SEEDS: &[&str] = &["\0value", "\u{1}12345678value", "7:6f00"];
        semel_fuzz::check(
            &semel_fuzz::Target::new("etcd_rows", SEEDS, &["\0", "\u{1}", ":", "-"]),
            |bytes| {
                if let Some((lease, value)) = decoded(bytes) {
                    assert_eq!(encoded(value, lease), bytes);
                }
                let version = Version::new(String::from_utf8_lossy(bytes).into_owned());
                if let Some(stamp) = Stamp::of(&version) {
                    assert_eq!(stamp.version(), version, "one version has one text");
                }
            },
        );
    }
}
