//! PostgreSQL.
//!
//! Theory. All records lie in one table; each verb is one call of a function beside it, in one statement and so in one
//! transaction: one round trip, one commit. A swap locks its rows in the order of their keys, looks at the server's
//! clock, checks every change and writes all of them or none. Statements carry the types of their parameters and have
//! no name, and nothing is left in the session: so any verb may meet another session of a transaction pooler.
//!
//! - The version of a record is random and drawn by its writer. A counter of the server would come back after a failover
//!   to a replica that lagged, and with it a holder whose lease is another's by now.
//! - The timeline is the token's epoch: after a failover it is a higher one, so tokens grow even where grants were lost.
//!   A grant that was decided before the failover and is written after it is refused, to be decided anew.
//! - Verbs of one process share one connection, each answered in its turn. A second one is there while somebody waits.
//! - Swaps that come while others are under way are sent together, in one statement: one commit for all of them.
//! - What is posted is sent and not waited for, where the server itself is at the other end: it does all that it has read
//!   before it finds that nobody is there any more. A pooler would give up its session for that, so there it is waited for.
//!   Whether there is one is told by the port that the server sees.
//!
//! Not guaranteed: what the server itself does not keep. With `fsync = off`, or `synchronous_commit = off`, or after a
//! failover to an asynchronous replica, acknowledged writes may be gone; [`examine`](super::Store::examine) says so.

mod address;
mod connect;
mod error;
mod examine;
mod hints;
mod queue;
mod schema;
mod socket;
mod tls;
mod verbs;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64};
use std::time::Duration;

use semel_core::record::{RecordKey, Version};
use tokio::time::{Instant, sleep_until};

use super::{Change, Durability, Finding, Loaded, OpenError, Pending, Record, Settings, Store};
use address::Address;
use connect::Link;
use hints::Hints;
use queue::Queue;
pub use schema::{DEFAULT_SCHEMA, schema_sql};
use verbs::Sql;

/// How often a waiter looks where no word reaches it: first so soon, then less often.
const LOOK_FIRST: Duration = Duration::from_millis(50);
const LOOK_LATER: Duration = Duration::from_millis(250);
/// How often it looks where words do: one may be lost.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// A store in PostgreSQL.
pub struct Postgres {
    link: Arc<Link>,
    hints: Arc<Hints>,
    queue: Queue,
    sql: Sql,
    deadline: Duration,
    /// The timeline as the last load told it; 0 before.
    epoch: AtomicI64,
    /// The port from which the server was spoken to by the last load, as it saw it.
    seen: AtomicI32,
}

impl Postgres {
    /// The store of this address; nothing is connected yet.
    pub fn new(url: &str, settings: &Settings) -> Result<Postgres, OpenError> {
        let address = Address::read(url, settings)?;
        let sql = Sql::of(&address.schema);
        let (link, hints, epoch) = (Arc::new(Link::new(address)), Arc::default(), AtomicI64::new(0));
        Ok(Postgres {
            link,
            hints,
            queue: Queue::default(),
            sql,
            deadline: settings.deadline,
            epoch,
            seen: AtomicI32::new(verbs::NOT_SEEN),
        })
    }

    /// The schema of its tables.
    pub fn schema(&self) -> &str {
        &self.link.address.schema
    }

    async fn wait(
        &self,
        key: &RecordKey,
        version: Option<&Version>,
        within: Duration,
    ) -> Result<bool, super::StoreError> {
        let end = after(within);
        // who finds it changed needs no second connection
        if !self.hints.hears() && self.look(key, version, None).await? {
            return Ok(true);
        }
        let word = hints::word(key);
        let waiter = self.hints.wait_for(word.clone());
        let mut pause = LOOK_FIRST;
        loop {
            self.hints.listen(&self.link);
            let called = waiter.called.notified();
            tokio::pin!(called);
            // heard from here on, so that no word falls between the look and the wait
            called.as_mut().enable();
            let hears = self.hints.hears();
            if self.look(key, version, Some(word.as_str()).filter(|_| hears)).await? {
                return Ok(true);
            }
            // a record that is absent has no place for a word
            let next = if hears && version.is_some() { LOOK_ANYWAY } else { pause };
            pause = (pause * 2).min(LOOK_LATER);
            tokio::select! {
                () = called => {}
                () = sleep_until(end.min(Instant::now() + next)) => {}
            }
            if Instant::now() >= end {
                return Ok(false);
            }
        }
    }
}

/// The moment after so long; a year for what never comes.
fn after(long: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(long).unwrap_or(now + Duration::from_secs(365 * 24 * 3600))
}

/// Where it is; no password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { place, schema, .. } = &self.link.address;
        f.debug_struct("Postgres").field("place", place).field("schema", schema).finish_non_exhaustive()
    }
}

impl Store for Postgres {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(self.load_now(keys))
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(self.swap_now(changes, durability))
    }

    fn post<'a>(&'a self, changes: &'a [Change]) -> Pending<'a, ()> {
        Box::pin(self.post_now(changes))
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(self.touch_now(key, version))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        Box::pin(self.scan_now(prefix, after, limit))
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        Box::pin(self.wait(key, version, within))
    }

    fn examine(&self) -> Pending<'_, Vec<Finding>> {
        Box::pin(self.findings())
    }
}
