//! The verbs as statements: each one round trip, one transaction, nothing left in the session.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use semel_core::lease::Lease;
use semel_core::record::{Expect, RecordKey, Standing, Version, decode};
use semel_core::token::{Nonce, Token};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::super::{Change, Durability, Loaded, Record, StoreError, Written};
use super::error::{self, Fault};
use super::schema;
use super::{Postgres, after};

/// A statement's parameters, each with its type: so that the server is not asked for the types first.
pub(super) type Params<'a> = [(&'a (dyn ToSql + Sync), Type)];

/// A clock that runs longer is as good as none, and the server's dates end somewhere.
const LONGEST_TTL_MS: i64 = 100 * 365 * 24 * 3600 * 1000;

/// No load has told yet.
pub(super) const NOT_SEEN: i32 = -2;
/// Spoken to over a socket of its machine.
const NO_PORT: i32 = -1;

/// What a statement is, if no answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
}

impl Kind {
    fn no_answer(self, why: String) -> StoreError {
        match self {
            Kind::Read => StoreError::Unavailable(why),
            Kind::Write => StoreError::Unknown(why),
        }
    }
}

impl Postgres {
    /// Ask one statement within the deadline. What is missing is made, what was ended in another's favour is asked again.
    pub(super) async fn ask(
        &self,
        kind: Kind,
        sql: &str,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        self.ask_until(after(self.deadline), kind, sql, params).await
    }

    async fn ask_until(
        &self,
        end: Instant,
        kind: Kind,
        sql: &str,
        params: &Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let late = || self.late_said();
        let (mut installed, mut pause) = (false, Duration::from_millis(1));
        loop {
            let Ok(wire) = timeout_at(end, self.link.wire(end)).await else {
                return Err(StoreError::Unavailable(late()));
            };
            let wire = wire?;
            let Ok(answer) = timeout_at(end, wire.client.query_typed(sql, params)).await else {
                wire.discard();
                return Err(kind.no_answer(late()));
            };
            let why = match answer {
                Ok(rows) => return Ok(rows),
                Err(why) => why,
            };
            match error::sort(&why, &wire) {
                Fault::Missing(_) if !installed => {
                    installed = true;
                    let made = timeout_at(end, schema::install(&wire, &wire.schema)).await;
                    made.map_err(|_| {
                        wire.discard();
                        StoreError::Unavailable(late())
                    })??;
                }
                Fault::Again if Instant::now() + pause < end => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(100));
                }
                Fault::Broken(said) => {
                    wire.discard();
                    return Err(kind.no_answer(said));
                }
                fault => return Err(StoreError::Unavailable(fault.said())),
            }
        }
    }

    fn late_said(&self) -> String {
        format!("PostgreSQL at {} did not answer within {:?}", self.link.address.place, self.deadline)
    }

    /// It did not come to be asked in time.
    pub(super) fn late(&self) -> StoreError {
        StoreError::Unavailable(self.late_said())
    }

    /// How long a statement may wait for a row that another transaction has locked: less than what is left of the
    /// deadline, so that the answer is a sure one.
    fn patience(left: Duration) -> String {
        (left.as_millis() / 2).clamp(1, 3_600_000).to_string()
    }

    pub(super) async fn load_now(&self, keys: &[RecordKey]) -> Result<Loaded, StoreError> {
        let names: Vec<&str> = keys.iter().map(RecordKey::as_str).collect();
        let rows = self.ask(Kind::Read, &self.sql.load, &[(&names, Type::TEXT_ARRAY)]).await?;
        let mut loaded = Loaded { records: vec![None; keys.len()], token_floor: 0 };
        for row in &rows {
            let n: i32 = field(row, 0)?;
            match usize::try_from(n).ok().and_then(|n| n.checked_sub(1)) {
                Some(i) => {
                    if let (Some(place), Some(key)) = (loaded.records.get_mut(i), keys.get(i)) {
                        *place = record(row, 1, key)?;
                    }
                }
                None => {
                    let epoch = field::<Option<i64>>(row, 4)?.unwrap_or(0);
                    self.epoch.store(epoch, Ordering::Relaxed);
                    let port = field::<Option<i32>>(row, 5)?.unwrap_or(NO_PORT);
                    self.seen.store(port, Ordering::Relaxed);
                    loaded.token_floor = floor(epoch);
                }
            }
        }
        Ok(loaded)
    }

    pub(super) async fn swap_now(
        &self,
        changes: &[Change],
        durability: Durability,
    ) -> Result<Vec<Version>, StoreError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        self.queue.swap(self, changes, durability).await
    }

    /// One statement, sent now.
    pub(super) async fn swap_alone(
        &self,
        changes: &[Change],
        durability: Durability,
        end: Instant,
    ) -> Result<Vec<Version>, StoreError> {
        let draft = Draft::of(changes)?;
        let said = self.said_with(changes, durability, end);
        let params = draft.params(&said);
        let rows = self.ask_until(end, Kind::Write, &self.sql.swap, &params).await?;
        match rows.first() {
            None => Ok(draft.versions()),
            Some(row) => {
                let index = usize::try_from(field::<i32>(row, 0)?).unwrap_or(0);
                let change = changes.get(index).ok_or_else(|| odd("a refusal of no change"))?;
                let stands = record(row, 1, change.key())?;
                Err(StoreError::refused(index, change.key().clone(), stands))
            }
        }
    }

    fn said_with(&self, changes: &[Change], durability: Durability, end: Instant) -> With {
        let last_seen = self.epoch.load(Ordering::Relaxed);
        let epoch =
            changes.iter().filter(|change| grants(change)).map(|change| decided_in(change, last_seen));
        With {
            patience: Postgres::patience(end.saturating_duration_since(Instant::now())),
            relaxed: durability == Durability::Relaxed,
            epoch: epoch.min().unwrap_or(0),
        }
    }

    /// Send, and do not wait for the answer, if the server is at the other end; else as any relaxed swap.
    pub(super) async fn post_now(&self, changes: &[Change]) -> Result<(), StoreError> {
        let end = after(self.deadline);
        let wire = match timeout_at(end, self.link.wire(end)).await {
            Ok(Ok(wire)) if self.is_direct(wire.port) => wire,
            _ => return self.swap_now(changes, Durability::Relaxed).await.map(drop),
        };
        let draft = Draft::of(changes)?;
        let said = self.said_with(changes, Durability::Relaxed, end);
        let params = draft.params(&said);
        let mut asked = pin!(wire.client.query_typed(&self.sql.swap, &params));
        let left = async {
            // given to the connection by the first look at it
            tokio::select! {
                biased;
                answer = &mut asked => answer.is_ok(),
                () = std::future::ready(()) => wire.posted().await,
            }
        };
        match timeout_at(end, left).await {
            Ok(true) => Ok(()),
            _ => {
                wire.discard();
                let place = &self.link.address.place;
                Err(StoreError::Unknown(format!("the connection to PostgreSQL at {place} was lost")))
            }
        }
    }

    /// Does the server see the port from which we speak? A pooler, or whatever else stands between, has another.
    fn is_direct(&self, port: Option<u16>) -> bool {
        self.seen.load(Ordering::Relaxed) == port.map_or(NO_PORT, i32::from)
    }

    pub(super) async fn touch_now(&self, key: &RecordKey, version: &Version) -> Result<(), StoreError> {
        let patience = Postgres::patience(self.deadline);
        let params: [(&(dyn ToSql + Sync), Type); 3] =
            [(&key.as_str(), Type::TEXT), (&version.as_str(), Type::TEXT), (&patience, Type::TEXT)];
        let rows = self.ask(Kind::Write, &self.sql.touch, &params).await?;
        match rows.first() {
            None => Ok(()),
            Some(row) => Err(StoreError::refused(0, key.clone(), record(row, 1, key)?)),
        }
    }

    pub(super) async fn scan_now(
        &self,
        prefix: &str,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (after, end) = (after.map_or("", RecordKey::as_str), after_all(prefix));
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> =
            vec![(&prefix, Type::TEXT), (&after, Type::TEXT), (&limit, Type::INT8)];
        let sql = match &end {
            Some(end) => {
                params.push((end, Type::TEXT));
                &self.sql.scan
            }
            None => &self.sql.scan_to_the_end,
        };
        let rows = self.ask(Kind::Read, sql, &params).await?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let key = RecordKey::from_stored(field(row, 0)?);
            found.extend(record(row, 1, &key)?);
        }
        Ok(found)
    }

    /// Is it no longer at this version? With a word, it is left there for whoever changes it.
    pub(super) async fn look(
        &self,
        key: &RecordKey,
        version: Option<&Version>,
        word: Option<&str>,
    ) -> Result<bool, StoreError> {
        let key = key.as_str();
        let rows = match (version, word) {
            (Some(version), Some(word)) => {
                let params: [(&(dyn ToSql + Sync), Type); 3] =
                    [(&key, Type::TEXT), (&version.as_str(), Type::TEXT), (&word, Type::TEXT)];
                // it writes nothing that anybody would miss
                self.ask(Kind::Read, &self.sql.wait, &params).await?
            }
            _ => self.ask(Kind::Read, &self.sql.look, &[(&key, Type::TEXT)]).await?,
        };
        match (version, word) {
            (Some(_), Some(_)) => rows.first().map_or(Ok(true), |row| field(row, 0)),
            _ => {
                let stands: Option<String> = rows.first().map(|row| field(row, 0)).transpose()?;
                Ok(stands.as_deref() != version.map(Version::as_str))
            }
        }
    }
}

/// The statements of a schema.
pub(super) struct Sql {
    load: String,
    swap: String,
    touch: String,
    wait: String,
    look: String,
    scan: String,
    scan_to_the_end: String,
}

impl Sql {
    pub(super) fn of(schema: &str) -> Sql {
        let scan = |more: &str| {
            format!(
                "SELECT key, version, value, (extract(epoch FROM expires - clock_timestamp()) * 1000000)::bigint \
                 FROM {schema}.records WHERE key >= $1 AND key > $2 {more} ORDER BY key LIMIT $3"
            )
        };
        Sql {
            load: format!(
                "SELECT n, stands, value, left_us, epoch, inet_client_port() FROM {schema}.load_1($1)"
            ),
            swap: format!(
                "SELECT misfit, stands, value, left_us FROM {schema}.swap_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
            ),
            touch: format!("SELECT misfit, stands, value, left_us FROM {schema}.touch_1($1, $2, $3)"),
            wait: format!("SELECT {schema}.await_1($1, $2, $3)"),
            look: format!("SELECT version FROM {schema}.records WHERE key = $1"),
            scan: scan("AND key < $4"),
            scan_to_the_end: scan(""),
        }
    }
}

/// What a swap says beside its changes.
struct With {
    patience: String,
    relaxed: bool,
    epoch: i64,
}

/// The changes of a swap, in columns.
struct Draft<'a> {
    keys: Vec<&'a str>,
    verbs: Vec<i16>,
    wants: Vec<i16>,
    seen: Vec<&'a str>,
    made: Vec<String>,
    values: Vec<&'a [u8]>,
    ttls: Vec<Option<i64>>,
    /// How many records are absent before, how many of these are absent after, and how many others change.
    makes: i32,
    holds: i32,
    moves: i32,
}

impl<'a> Draft<'a> {
    fn of(changes: &'a [Change]) -> Result<Draft<'a>, StoreError> {
        let many = changes.len();
        let mut draft = Draft {
            keys: Vec::with_capacity(many),
            verbs: Vec::with_capacity(many),
            wants: Vec::with_capacity(many),
            seen: Vec::with_capacity(many),
            made: Vec::with_capacity(many),
            values: Vec::with_capacity(many),
            ttls: Vec::with_capacity(many),
            makes: 0,
            holds: 0,
            moves: 0,
        };
        let mut absent: HashMap<&str, bool> = HashMap::new();
        let mut written = Written::default();
        for change in changes {
            let (want, seen) = match change.expect() {
                Expect::Absent => (0, ""),
                Expect::Version(version) => (1, version.as_str()),
                Expect::Live(version) => (2, version.as_str()),
                Expect::Lapsed(version) => (3, version.as_str()),
            };
            let (verb, made, value, ttl) = match change {
                Change::Put { value, ttl, .. } => (1, fresh_version()?, value.as_slice(), *ttl),
                // there is nothing to remove where nothing is
                Change::Remove { expect: Expect::Absent, .. } | Change::Guard { .. } => {
                    (0, String::new(), &[][..], None)
                }
                Change::Remove { .. } => (2, String::new(), &[][..], None),
            };
            match want {
                0 => *absent.entry(change.key().as_str()).or_default() |= verb > 0,
                _ => draft.moves += i32::from(verb > 0),
            }
            draft.keys.push(change.key().as_str());
            draft.verbs.push(verb);
            draft.wants.push(if written.comes_again(change) { 9 } else { want });
            draft.seen.push(seen);
            draft.made.push(made);
            draft.values.push(value);
            draft.ttls.push(
                ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(LONGEST_TTL_MS).min(LONGEST_TTL_MS)),
            );
        }
        let many = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        draft.makes = many(absent.len());
        draft.holds = many(absent.values().filter(|put| !**put).count());
        Ok(draft)
    }

    /// As the statement of a swap takes them.
    fn params<'p>(&'p self, with: &'p With) -> [(&'p (dyn ToSql + Sync), Type); 13] {
        [
            (&self.keys, Type::TEXT_ARRAY),
            (&self.verbs, Type::INT2_ARRAY),
            (&self.wants, Type::INT2_ARRAY),
            (&self.seen, Type::TEXT_ARRAY),
            (&self.made, Type::TEXT_ARRAY),
            (&self.values, Type::BYTEA_ARRAY),
            (&self.ttls, Type::INT8_ARRAY),
            (&self.makes, Type::INT4),
            (&self.holds, Type::INT4),
            (&self.moves, Type::INT4),
            (&with.patience, Type::TEXT),
            (&with.relaxed, Type::BOOL),
            (&with.epoch, Type::INT8),
        ]
    }

    /// A put's is the one we drew; a guard's or a removal's is the one it was expected at.
    fn versions(self) -> Vec<Version> {
        self.made
            .into_iter()
            .zip(self.seen)
            .map(|(made, seen)| if made.is_empty() { Version::new(seen) } else { Version::new(made) })
            .collect()
    }
}

/// Random, so that neither a removal nor a failover that forgot writes can bring one back.
pub(super) fn fresh_version() -> Result<String, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|why| StoreError::Unavailable(format!("no random bytes can be had here: {why}")))?;
    Ok(Nonce::from_bytes(bytes).to_string())
}

fn field<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, StoreError> {
    row.try_get(at).map_err(|why| odd(&why.to_string()))
}

/// An answer that no function of ours gives; a write may have been made.
fn odd(why: &str) -> StoreError {
    StoreError::Unknown(format!("PostgreSQL answered what Semel does not understand: {why}"))
}

/// Version, value and clock, in three columns from here on.
fn record(row: &Row, at: usize, key: &RecordKey) -> Result<Option<Record>, StoreError> {
    let Some(version) = field::<Option<String>>(row, at)? else { return Ok(None) };
    let value = field::<&[u8]>(row, at + 1)?.to_vec();
    let standing = field::<Option<i64>>(row, at + 2)?.map(standing);
    Ok(Some(Record { key: key.clone(), version: Version::new(version), value, standing }))
}

fn standing(left_us: i64) -> Standing {
    let ms = left_us.unsigned_abs();
    match left_us {
        // rounded up: whoever waits so long finds it lapsed
        1.. => Standing::Live { left_ms: ms.div_ceil(1000) },
        _ => Standing::Lapsed { for_ms: ms / 1000 },
    }
}

fn floor(epoch: i64) -> u64 {
    u32::try_from(epoch).ok().filter(|epoch| *epoch > 0).map_or(0, Token::floor_of_epoch)
}

/// Does it start a clock that does not run yet? Then it may carry a token: after a failover since it was decided, a lost
/// grant may have had the same one, so it must be decided anew.
pub(super) fn grants(change: &Change) -> bool {
    matches!(change, Change::Put { ttl: Some(_), expect, .. } if !matches!(expect, Expect::Live(_)))
}

/// The epoch by which a change was decided; 0 is unknown.
fn decided_in(change: &Change, last_seen: i64) -> i64 {
    let Change::Put { key, value, .. } = change else { return last_seen };
    let seen = u64::try_from(last_seen).unwrap_or(0);
    let lease = decode::<Lease>(key, value).ok();
    lease.map_or(last_seen, |lease| i64::try_from(lease.decided_in(seen)).unwrap_or(last_seen))
}

/// The least text that comes after all that start so; `None` if there is none.
fn after_all(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // in the order of bytes as in that of code points, which leave out the surrogates
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_draft_counts_what_is_made_held_and_moved() {
        let key = |name: &str| RecordKey::from_stored(name.to_owned());
        let at = || Expect::Version(Version::new("v"));
        let put = |name: &str, expect| Change::Put { key: key(name), expect, value: Vec::new(), ttl: None };
        let changes = [
            Change::Guard { key: key("a"), expect: Expect::Absent },
            put("a", Expect::Absent),
            Change::Guard { key: key("b"), expect: Expect::Absent },
            Change::Remove { key: key("c"), expect: Expect::Absent },
            put("d", at()),
            Change::Remove { key: key("e"), expect: at() },
            Change::Guard { key: key("f"), expect: at() },
        ];
        let draft = Draft::of(&changes).unwrap();
        assert_eq!((draft.makes, draft.holds, draft.moves), (3, 2, 2));
    }

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        assert_eq!(after_all("a/").as_deref(), Some("a0"));
        assert_eq!(after_all(""), None);
        assert_eq!(after_all("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(after_all("\u{d7ff}").as_deref(), Some("\u{e000}"));
    }

    #[test]
    fn a_clock_is_told_in_whole_milliseconds_and_never_too_early() {
        assert_eq!(standing(1), Standing::Live { left_ms: 1 });
        assert_eq!(standing(0), Standing::Lapsed { for_ms: 0 });
        assert_eq!(standing(-1_999), Standing::Lapsed { for_ms: 1 });
    }
}
