//! A swap: one transaction, and the etcd leases of the clocks that it starts.

use futures_util::future::join_all;
use semel_core::record::{RecordKey, Version};

use super::super::{Change, StoreError, Written, meets};
use super::clocks::{Timer, whole_seconds, with_slack};
use super::fault::Trouble;
use super::messages::{Empty, LeaseGrantRequest, LeaseRequest, LeaseResponse, TxnResponse};
use super::rows::{self, Row, Stamp};
use super::wire::{Deadline, GRANT, REVOKE, TXN};
use super::{Etcd, MEMORY_S, say};
use crate::clock::boottime;

/// How often others get their turn until what was handed to the connection has gone out.
const YIELDS: u32 = 8;

/// How the clock of a record is started.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// By a new etcd lease.
    Grant { id: i64, ttl_s: i64 },
    /// By the renewal of one that is attached to nothing.
    Again(Timer),
    /// By one that is attached to nothing and has the whole ttl left.
    Ready(Timer),
}

impl Start {
    fn id(&self) -> i64 {
        match self {
            Start::Grant { id, .. } => *id,
            Start::Again(timer) | Start::Ready(timer) => timer.id,
        }
    }

    fn ttl_s(&self) -> i64 {
        match self {
            Start::Grant { ttl_s, .. } => *ttl_s,
            Start::Again(timer) | Start::Ready(timer) => timer.ttl_s,
        }
    }
}

impl Etcd {
    pub(super) async fn swap_now(&self, changes: &[Change]) -> Result<Vec<Version>, StoreError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let deadline = self.deadline();
        let mut written = Written::default();
        if changes.iter().any(|change| written.comes_again(change)) {
            return Err(self.refuse_twice(changes, deadline).await);
        }
        let starts = self.starts(changes)?;
        match self.send(changes, &starts, deadline).await {
            // the transaction was quicker than its grant, or an idle lease was gone: nothing was written
            (timers, Err(why)) if why.is_missing_lease() => {
                let starts = self.granted(&starts, timers, deadline).await?;
                let leases = ids(&starts);
                let answer = self.wire.ask(TXN, self.layout.txn(changes, &leases), deadline).await;
                let timers: Vec<_> = starts.into_iter().map(|timer| timer.map(Ok)).collect();
                self.conclude(changes, timers, answer, deadline).await
            }
            (timers, answer) => self.conclude(changes, timers, answer, deadline).await,
        }
    }

    /// The clocks that are to be started, at the places of their changes.
    fn starts(&self, changes: &[Change]) -> Result<Vec<Option<Start>>, StoreError> {
        let start = |change: &Change| match change {
            Change::Put { ttl: Some(ttl), .. } => {
                let ttl_s = whole_seconds(*ttl);
                match self.clocks.take_idle(ttl_s) {
                    Some(timer) if timer.is_fresh() => Ok(Some(Start::Ready(timer))),
                    Some(timer) => Ok(Some(Start::Again(timer))),
                    None => Ok(Some(Start::Grant { id: new_id()?, ttl_s })),
                }
            }
            _ => Ok(None),
        };
        changes.iter().map(start).collect()
    }

    /// Start the clocks and write, in one flight.
    async fn send(&self, changes: &[Change], starts: &[Option<Start>], deadline: Deadline) -> Sent {
        let leases: Vec<_> = starts.iter().map(|start| start.map(|start| start.id())).collect();
        let clocks = starts.iter().map(async |start| match start {
            Some(start) => Some(self.start(*start, deadline).await),
            None => None,
        });
        let granting = starts.iter().flatten().any(|start| matches!(start, Start::Grant { .. }));
        let write = async {
            // a server takes up the newest of what arrives together first, so let the grant go out alone
            for _ in 0..if granting { YIELDS } else { 0 } {
                tokio::task::yield_now().await;
            }
            self.wire.ask(TXN, self.layout.txn(changes, &leases), deadline).await
        };
        tokio::join!(biased; join_all(clocks), write)
    }

    async fn start(&self, start: Start, deadline: Deadline) -> Result<Timer, Trouble> {
        let asked_at = boottime();
        match start {
            Start::Grant { id, ttl_s } => {
                let answer: LeaseResponse =
                    self.wire.ask(GRANT, LeaseGrantRequest { ttl: with_slack(ttl_s), id }, deadline).await?;
                Ok(Timer { id, ttl_s, kept_s: answer.ttl, asked_at })
            }
            Start::Ready(timer) => Ok(timer),
            Start::Again(timer) => match self.wire.keep_alive(timer.id, deadline).await? {
                kept_s @ 1.. => Ok(Timer { kept_s, asked_at, ..timer }),
                _ => {
                    Err(Trouble::unsent("an etcd lease that was kept for the next record is gone".to_owned()))
                }
            },
        }
    }

    /// Every clock with an etcd lease that surely exists.
    async fn granted(
        &self,
        starts: &[Option<Start>],
        timers: Vec<Option<Result<Timer, Trouble>>>,
        deadline: Deadline,
    ) -> Result<Vec<Option<Timer>>, StoreError> {
        let mut granted = Vec::with_capacity(starts.len());
        for (start, timer) in starts.iter().zip(timers) {
            granted.push(match (start, timer) {
                // one that was not asked for anew may be the one that is gone
                (Some(Start::Grant { .. } | Start::Again(_)), Some(Ok(timer))) => Some(timer),
                (Some(start), _) => {
                    let anew = Start::Grant { id: new_id()?, ttl_s: start.ttl_s() };
                    // only a grant was asked for: no record was touched
                    Some(self.start(anew, deadline).await.map_err(Trouble::reading)?)
                }
                (None, _) => None,
            });
        }
        Ok(granted)
    }

    async fn conclude(
        &self,
        changes: &[Change],
        timers: Vec<Option<Result<Timer, Trouble>>>,
        answer: Result<TxnResponse, Trouble>,
        deadline: Deadline,
    ) -> Result<Vec<Version>, StoreError> {
        // without an answer its etcd leases may be attached to something: they are left to run out
        let answer = answer.map_err(Trouble::writing)?;
        if !answer.succeeded {
            let leases: Vec<_> = timers.iter().map(|timer| timer.as_ref().map(|_| 0)).collect();
            timers.into_iter().flatten().flatten().for_each(|timer| self.clocks.put_idle(timer));
            return Err(self.refuse_swap(changes, &leases, answer, deadline).await);
        }
        let mut leases = Vec::with_capacity(timers.len());
        for timer in timers {
            match timer.transpose() {
                Ok(timer) => leases.push(timer),
                // written, with a clock that may be about to run out: whoever looks will see
                Err(why) => return Err(StoreError::Unknown(say(why.reading()))),
            }
        }
        let revision = answer.header.map_or(0, |header| header.revision);
        Ok(changes.iter().zip(leases).map(|(change, timer)| self.made(change, timer, revision)).collect())
    }

    /// Remember what a change did to clocks; its version.
    fn made(&self, change: &Change, timer: Option<Timer>, revision: i64) -> Version {
        let expected = rows::version_of(change.expect());
        let (Change::Put { key, .. } | Change::Remove { key, .. }) = change else {
            return expected.cloned().unwrap_or_else(|| Version::new(""));
        };
        if let Some(lease) = expected.and_then(Stamp::of).and_then(|stamp| stamp.lease) {
            self.clocks.let_go(lease);
            self.forget_lapse(key);
        }
        if let Some(timer) = timer {
            self.clocks.hold(timer);
        }
        match change {
            Change::Put { .. } => Stamp { revision, lease: timer.map(|timer| timer.id) }.version(),
            _ => expected.cloned().unwrap_or_else(|| Version::new("")),
        }
    }

    async fn refuse_swap(
        &self,
        changes: &[Change],
        leases: &[Option<i64>],
        answer: TxnResponse,
        deadline: Deadline,
    ) -> StoreError {
        let refused_at = answer.header.map_or(0, |header| header.revision);
        let rows = match self.layout.standing(changes, leases, answer.responses) {
            Ok(rows) => rows,
            Err(why) => return why,
        };
        let first = changes.iter().zip(rows).enumerate().find(|(_, (change, row))| match row {
            Some(row) => !fits(change, row.as_ref()),
            // it has a clock where none was expected, so it is another record than was seen
            None => true,
        });
        match first {
            Some((index, (change, Some(row)))) => self.refuse(index, change.key(), Some(row), deadline).await,
            Some((index, (change, None))) => {
                // as it stood then: by now it may be another, or be gone, and the refusal would tell of what fits
                let key = change.key();
                let found = self.rows_at_once(std::slice::from_ref(key), refused_at, deadline).await;
                match found.map(|mut rows| rows.pop().flatten().transpose()) {
                    Ok(Ok(row)) => self.refuse(index, key, Some(row), deadline).await,
                    Ok(Err(why)) => why,
                    // nothing was written
                    Err(why) => StoreError::Unavailable(say(why.reading())),
                }
            }
            None => StoreError::Unavailable("etcd refused a swap that fits what stands there".to_owned()),
        }
    }

    /// A swap that writes a record twice is refused at the second, unless something before that does not fit.
    async fn refuse_twice(&self, changes: &[Change], deadline: Deadline) -> StoreError {
        let keys: Vec<RecordKey> = changes.iter().map(|change| change.key().clone()).collect();
        let rows = match self.rows(&keys, deadline).await {
            Ok(rows) => rows,
            Err(why) => return why,
        };
        let mut written = Written::default();
        for (index, (change, row)) in changes.iter().zip(rows).enumerate() {
            if written.comes_again(change) || !fits(change, row.as_ref()) {
                return self.refuse(index, change.key(), Some(row), deadline).await;
            }
        }
        StoreError::Unavailable("a swap writes a record twice".to_owned())
    }

    /// Write down that a record has lapsed, for whoever wants to know for how long. If that fails, its age begins later,
    /// which is allowed; so nothing is said of it.
    pub(super) async fn remember_lapse(&self, row: &Row, deadline: Deadline) {
        let Ok(id) = new_id() else { return };
        let txn = rows::remember_lapse(&self.layout, row, id);
        let start = self.start(Start::Grant { id, ttl_s: MEMORY_S }, deadline);
        let (granted, written) =
            tokio::join!(biased; start, self.wire.ask::<_, TxnResponse>(TXN, txn.clone(), deadline));
        let written = match written {
            Err(why) if why.is_missing_lease() && granted.is_ok() => self.wire.ask(TXN, txn, deadline).await,
            written => written,
        };
        match written {
            Ok(answer) if answer.succeeded => {
                self.clocks.lapsed_ms(&row.key, row.stamp.revision, Some(id));
            }
            // another was quicker, or we may not write: it would stay for as long as it was granted
            Ok(_) | Err(_) => self.revoke(id),
        }
    }

    fn forget_lapse(&self, key: &RecordKey) {
        if let Some(id) = self.clocks.forget_lapse(key) {
            self.revoke(id);
        }
    }

    /// Give an etcd lease back, beside everything else: nobody waits for it, and nothing depends on it.
    fn revoke(&self, id: i64) {
        let (wire, deadline) = (std::sync::Arc::clone(&self.wire), self.deadline());
        tokio::spawn(async move {
            let _: Result<Empty, Trouble> = wire.ask(REVOKE, LeaseRequest { id }, deadline).await;
        });
    }
}

/// What came of the clocks, and of the transaction.
type Sent = (Vec<Option<Result<Timer, Trouble>>>, Result<TxnResponse, Trouble>);

fn ids(timers: &[Option<Timer>]) -> Vec<Option<i64>> {
    timers.iter().map(|timer| timer.map(|timer| timer.id)).collect()
}

fn fits(change: &Change, row: Option<&Row>) -> bool {
    use semel_core::record::Standing;
    let Some(row) = row else { return meets(change.expect(), None) };
    // only which of the two it is decides
    let standing = row.stamp.lease.map(|_| match row.is_live() {
        true => Standing::Live { left_ms: 1 },
        false => Standing::Lapsed { for_ms: 0 },
    });
    meets(change.expect(), Some((&row.stamp.version(), standing)))
}

/// The id of a new etcd lease: 62 random bits, so that no two are the same.
fn new_id() -> Result<i64, StoreError> {
    let bits =
        getrandom::u64().map_err(|why| StoreError::Unavailable(format!("no random numbers: {why}")))?;
    Ok(i64::try_from(bits >> 2).unwrap_or(0) + 1)
}
