//! The statements: what a record looks like as a row.

use rusqlite::types::Value;
use rusqlite::{Connection, Error, OptionalExtension, Row, named_params, params};
use semel_core::record::{Expect, RecordKey, Standing, Version};

use super::super::{Change, Conflict, Record, Written, meets};
use super::boot::Boot;

/// How long ago a lease of before a reboot lapsed: longer than any lock delay.
const AGES_MS: u64 = u64::MAX / 4;

/// The host's clock at one moment, read after the snapshot or the lock was had.
#[derive(Clone, Copy)]
pub(super) struct Now<'a> {
    boot: &'a Boot,
    now_ns: i64,
}

impl<'a> Now<'a> {
    pub(super) fn read(boot: &'a Boot) -> Now<'a> {
        Now { boot, now_ns: boot.now_ns() }
    }

    fn standing(
        &self,
        ttl_ms: Option<i64>,
        touched_ns: Option<i64>,
        boot: Option<&[u8]>,
    ) -> Option<Standing> {
        let ttl_ms = ttl_ms?;
        let (Some(touched_ns), true) = (touched_ns, boot == Some(&self.boot.id)) else {
            return Some(Standing::Lapsed { for_ms: AGES_MS });
        };
        let age_ns = self.now_ns.saturating_sub(touched_ns).max(0);
        let left_ns = ttl_ms.saturating_mul(1_000_000).saturating_sub(age_ns);
        Some(if left_ns > 0 {
            // rounded up: whoever waits so long finds it lapsed
            Standing::Live { left_ms: left_ns.unsigned_abs().div_ceil(1_000_000) }
        } else {
            Standing::Lapsed { for_ms: left_ns.unsigned_abs() / 1_000_000 }
        })
    }
}

/// What decides over a record, without its value.
struct Head {
    version: Version,
    standing: Option<Standing>,
}

fn head(row: &Row<'_>, now: Now<'_>) -> Result<Head, Error> {
    let boot = row.get_ref("boot")?.as_blob_or_null()?;
    let standing = now.standing(row.get("ttl_ms")?, row.get("touched_ns")?, boot);
    Ok(Head { version: Version::from(row.get::<_, i64>("version")?), standing })
}

fn record(row: &Row<'_>, key: RecordKey, now: Now<'_>) -> Result<Record, Error> {
    let Head { version, standing } = head(row, now)?;
    Ok(Record { key, version, value: row.get("value")?, standing })
}

/// One statement for the head alone and for all of it: to prepare a second one is a good part of what a run costs. The
/// value is not touched where it is not wanted.
const ONE: &str =
    "SELECT version, ttl_ms, touched_ns, boot, iif(?2, value, NULL) AS value FROM records WHERE key = ?1";

fn look(connection: &Connection, key: &RecordKey, now: Now<'_>) -> Result<Option<Head>, Error> {
    let mut one = connection.prepare_cached(ONE)?;
    one.query_row(params![key.as_str(), false], |row| head(row, now)).optional()
}

/// The record under a key.
pub(super) fn load(connection: &Connection, key: &RecordKey, now: Now<'_>) -> Result<Option<Record>, Error> {
    let mut one = connection.prepare_cached(ONE)?;
    one.query_row(params![key.as_str(), true], |row| record(row, key.clone(), now)).optional()
}

/// The version of the record under a key.
pub(super) fn version(connection: &Connection, key: &RecordKey) -> Result<Option<Version>, Error> {
    let mut one = connection.prepare_cached(ONE)?;
    one.query_row(params![key.as_str(), false], |row| row.get::<_, i64>("version").map(Version::from))
        .optional()
}

/// A page of records.
pub(super) fn scan(
    connection: &Connection,
    prefix: &str,
    after: Option<&RecordKey>,
    limit: usize,
    now: impl FnOnce() -> i64,
    boot: &Boot,
) -> Result<Vec<Record>, Error> {
    let after = after.map(RecordKey::as_str);
    let from = after.filter(|after| *after > prefix).unwrap_or(prefix);
    // every text sorts before every blob
    let end = successor(prefix).map_or(Value::Blob(Vec::new()), Value::Text);
    let mut statement = connection.prepare_cached(
        "SELECT key, version, ttl_ms, touched_ns, boot, value FROM records
         WHERE key >= :from AND key < :end AND key IS NOT :after ORDER BY key LIMIT :limit",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows =
        statement.query(named_params! {":from": from, ":end": end, ":after": after, ":limit": limit})?;
    let mut found = Vec::new();
    let mut now = Some(now);
    let mut moment = None;
    while let Some(row) = rows.next()? {
        // the first row has taken the snapshot
        let now_ns = *moment.get_or_insert_with(|| now.take().map_or(i64::MAX, |now| now()));
        found.push(record(row, RecordKey::from_stored(row.get("key")?), Now { boot, now_ns })?);
    }
    Ok(found)
}

/// The least text that is after every text with this prefix; `None` if there is none.
fn successor(prefix: &str) -> Option<String> {
    let mut text: Vec<char> = prefix.chars().collect();
    while let Some(last) = text.pop() {
        // the range steps over the surrogates
        if let Some(next) = (last..=char::MAX).nth(1) {
            text.push(next);
            return Some(text.into_iter().collect());
        }
    }
    None
}

/// What became of a swap within its transaction.
pub(super) enum Swapped {
    Made(Vec<Version>),
    Refused(Box<Conflict>),
}

/// Make all changes, or none if one is refused. Every expectation is looked at before anything is written, so a
/// refusal leaves nothing to undo.
pub(super) fn swap(connection: &Connection, changes: &[Change], now: Now<'_>) -> Result<Swapped, Error> {
    let mut heads = Vec::with_capacity(changes.len());
    let mut written = Written::default();
    for (index, change) in changes.iter().enumerate() {
        let key = change.key();
        let head = look(connection, key, now)?;
        if written.comes_again(change)
            || !meets(change.expect(), head.as_ref().map(|head| (&head.version, head.standing)))
        {
            let stands = load(connection, key, now)?;
            return Ok(Swapped::Refused(Box::new(Conflict { index, key: key.clone(), stands })));
        }
        heads.push(head);
    }
    let mut versions = Vec::with_capacity(changes.len());
    for (change, head) in changes.iter().zip(heads) {
        let old = head.map_or_else(|| Version::new(""), |head| head.version);
        versions.push(match change {
            Change::Put { .. } => put(connection, change, now)?,
            Change::Guard { .. } => old,
            Change::Remove { key, .. } => {
                connection.prepare_cached("DELETE FROM records WHERE key = ?1")?.execute([key.as_str()])?;
                old
            }
        });
    }
    Ok(Swapped::Made(versions))
}

fn put(connection: &Connection, change: &Change, now: Now<'_>) -> Result<Version, Error> {
    let Change::Put { key, expect, value, ttl } = change else { return Ok(Version::new("")) };
    let version = fresh_version()?;
    let ttl_ms = ttl.map(|ttl| i64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX));
    let (touched_ns, boot) = match ttl_ms {
        Some(_) => (Some(now.now_ns), Some(now.boot.id.as_slice())),
        None => (None, None),
    };
    let sql = match expect {
        Expect::Absent => {
            "INSERT INTO records (version, ttl_ms, touched_ns, boot, value, key) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"
        }
        _ => {
            "UPDATE records SET version = ?1, ttl_ms = ?2, touched_ns = ?3, boot = ?4, value = ?5 WHERE key = ?6"
        }
    };
    let parameters = params![version, ttl_ms, touched_ns, boot, value, key.as_str()];
    match connection.prepare_cached(sql)?.execute(parameters)? {
        1 => Ok(Version::from(version)),
        rows => Err(Error::StatementChangedRows(rows)),
    }
}

/// Drawn, not counted: a record that is removed and made again never has an old version, and there is no counter
/// that every writer must change.
fn fresh_version() -> Result<i64, Error> {
    let random = getrandom::u64().map_err(|why| Error::ToSqlConversionFailure(Box::new(why)))?;
    Ok((random >> 1) as i64)
}

/// Restart a clock, or answer what stands there.
pub(super) fn touch(
    connection: &Connection,
    key: &RecordKey,
    version: &Version,
    now: Now<'_>,
) -> Result<Option<Box<Conflict>>, Error> {
    let head = look(connection, key, now)?;
    let expect = Expect::Live(version.clone());
    if !meets(&expect, head.as_ref().map(|head| (&head.version, head.standing))) {
        let stands = load(connection, key, now)?;
        return Ok(Some(Box::new(Conflict { index: 0, key: key.clone(), stands })));
    }
    let mut statement = connection.prepare_cached("UPDATE records SET touched_ns = ?1 WHERE key = ?2")?;
    statement.execute(params![now.now_ns, key.as_str()])?;
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_successor_ends_a_prefix() {
        assert_eq!(successor("a/").as_deref(), Some("a0"));
        assert_eq!(successor("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
        assert_eq!(successor("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(successor("\u{10ffff}"), None);
        assert_eq!(successor(""), None);
    }

    #[test]
    fn a_lease_of_another_boot_has_lapsed_and_the_end_is_exact() {
        let boot = Boot::read().unwrap();
        let now = Now { boot: &boot, now_ns: 10_000_000 };
        let id = boot.id;
        let other = [id[0] ^ 1; 16];
        let ms = |ms: i64| Some(ms * 1_000_000);
        assert_eq!(now.standing(None, None, None), None);
        assert_eq!(now.standing(Some(5), ms(6), Some(&id)), Some(Standing::Live { left_ms: 1 }));
        assert_eq!(now.standing(Some(5), Some(5_000_001), Some(&id)), Some(Standing::Live { left_ms: 1 }));
        assert_eq!(now.standing(Some(5), ms(5), Some(&id)), Some(Standing::Lapsed { for_ms: 0 }));
        assert_eq!(now.standing(Some(5), ms(1), Some(&id)), Some(Standing::Lapsed { for_ms: 4 }));
        assert_eq!(now.standing(Some(5), ms(9), Some(&other)), Some(Standing::Lapsed { for_ms: AGES_MS }));
        assert_eq!(now.standing(Some(5), None, None), Some(Standing::Lapsed { for_ms: AGES_MS }));
        assert_eq!(
            now.standing(Some(i64::MAX), ms(9), Some(&id)),
            Some(Standing::Live { left_ms: 9_223_372_036_854 })
        );
    }
}
