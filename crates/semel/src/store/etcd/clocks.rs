//! What this process remembers of clocks: hints that save round trips, and nothing that decides. Every table is bounded;
//! what is forgotten is asked of etcd again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::record::RecordKey;

use crate::clock::boottime;

/// The most that each table holds.
const MOST: usize = 4096;
/// The most etcd leases that are kept for the next record with the same ttl; more are left to run out.
const MOST_IDLE: usize = 64;

/// An etcd lease that this process made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timer {
    pub(super) id: i64,
    /// What was asked for.
    pub(super) ttl_s: i64,
    /// What etcd keeps: no less.
    pub(super) kept_s: i64,
    /// When its last restart was asked for: its clock runs from then or later.
    pub(super) asked_at: Duration,
}

impl Timer {
    /// Has it its whole ttl and more, without being restarted?
    pub(super) fn is_fresh(&self) -> bool {
        self.left() >= seconds(self.ttl_s)
    }

    fn left(&self) -> Duration {
        seconds(self.kept_s).saturating_sub(boottime().saturating_sub(self.asked_at))
    }
}

/// A record that was seen lapsed.
#[derive(Clone, Copy, Debug)]
struct Lapse {
    revision: i64,
    seen_at: Duration,
    /// The etcd lease that remembers it for everybody, if we know it.
    lease: Option<i64>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Attached to the mark of one record each.
    held: HashMap<i64, Timer>,
    /// Attached to nothing.
    idle: Vec<Timer>,
    lapses: HashMap<RecordKey, Lapse>,
}

#[derive(Debug, Default)]
pub(super) struct Clocks(Mutex<Tables>);

impl Clocks {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An etcd lease that is attached to nothing and has much time left.
    pub(super) fn take_idle(&self, ttl_s: i64) -> Option<Timer> {
        let mut tables = self.tables();
        tables.idle.retain(|timer| timer.left() > seconds(timer.kept_s) / 2);
        let at = tables.idle.iter().position(|timer| timer.ttl_s == ttl_s)?;
        Some(tables.idle.swap_remove(at))
    }

    /// It is attached to nothing any more, or never was.
    pub(super) fn put_idle(&self, timer: Timer) {
        let mut tables = self.tables();
        if tables.idle.len() < MOST_IDLE {
            tables.idle.push(timer);
        }
    }

    /// It is attached to a record's mark.
    pub(super) fn hold(&self, timer: Timer) {
        let mut tables = self.tables();
        if tables.held.len() >= MOST {
            tables.held.retain(|_, timer| !timer.left().is_zero());
        }
        if tables.held.len() < MOST {
            tables.held.insert(timer.id, timer);
        }
    }

    /// The mark that it was attached to is gone or another's: it may serve another record, if it is ours.
    pub(super) fn let_go(&self, id: i64) {
        let timer = self.tables().held.remove(&id);
        if let Some(timer) = timer.filter(|timer| !timer.left().is_zero()) {
            self.put_idle(timer);
        }
    }

    /// It was restarted by us, at our asking of that moment.
    pub(super) fn restarted(&self, id: i64, asked_at: Duration) {
        if let Some(timer) = self.tables().held.get_mut(&id) {
            timer.asked_at = asked_at;
        }
    }

    /// The least that an etcd lease of ours still has; `None` if that is nothing, or it is not ours.
    pub(super) fn left_ms(&self, id: i64) -> Option<u64> {
        let left = self.tables().held.get(&id)?.left();
        u64::try_from(left.as_millis()).ok().filter(|&left_ms| left_ms > 0)
    }

    /// It has lapsed: since when do we know?
    pub(super) fn lapsed_ms(&self, key: &RecordKey, revision: i64, lease: Option<i64>) -> u64 {
        let mut tables = self.tables();
        let now = boottime();
        if tables.lapses.len() >= MOST && !tables.lapses.contains_key(key) {
            // their delays start anew, which is late and never early
            tables.lapses.clear();
        }
        let fresh = Lapse { revision, seen_at: now, lease };
        let lapse = tables.lapses.entry(key.clone()).or_insert(fresh);
        if lapse.revision != revision {
            *lapse = fresh;
        }
        lapse.lease = lease.or(lapse.lease);
        u64::try_from(now.saturating_sub(lapse.seen_at).as_millis()).unwrap_or(u64::MAX)
    }

    /// It was written since: the etcd lease that remembered its lapse, if there was one, is of no use any more.
    pub(super) fn forget_lapse(&self, key: &RecordKey) -> Option<i64> {
        self.tables().lapses.remove(key)?.lease
    }
}

pub(super) fn seconds(many: i64) -> Duration {
    Duration::from_secs(u64::try_from(many).unwrap_or(0))
}

/// A ttl as etcd counts: whole seconds, rounded up, at least one.
pub(super) fn whole_seconds(ttl: Duration) -> i64 {
    /// More than etcd takes.
    const LONGEST: i64 = 9_000_000_000;
    let up = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    i64::try_from(up).unwrap_or(LONGEST).clamp(1, LONGEST)
}

/// What is asked of etcd for a ttl: a second more where that is little, so that an etcd lease that is used again within
/// that second need not be restarted first.
pub(super) fn with_slack(ttl_s: i64) -> i64 {
    if ttl_s >= 10 { ttl_s + 1 } else { ttl_s }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn timer(id: i64, age: Duration) -> Timer {
        Timer { id, ttl_s: 60, kept_s: 60, asked_at: boottime().saturating_sub(age) }
    }

    #[test]
    fn ttls_are_rounded_up() {
        let whole = |ms| whole_seconds(Duration::from_millis(ms));
        assert_eq!([whole(0), whole(1), whole(1000), whole(1001)], [1, 1, 1, 2]);
        assert_eq!(whole_seconds(Duration::MAX), 9_000_000_000);
    }

    #[test]
    fn a_lease_is_used_again_only_while_it_has_much_time_left_and_the_same_ttl() {
        let clocks = Clocks::default();
        clocks.put_idle(timer(1, Duration::from_secs(31)));
        clocks.put_idle(timer(2, Duration::from_secs(1)));
        assert_eq!(clocks.take_idle(59), None);
        assert_eq!(clocks.take_idle(60).map(|timer| timer.id), Some(2));
        assert_eq!(clocks.take_idle(60), None);
    }

    #[test]
    fn a_lease_that_was_just_started_has_its_ttl_and_more() {
        let aged = |ms| Timer { kept_s: with_slack(60), ..timer(1, Duration::from_millis(ms)) };
        assert!(aged(100).is_fresh() && !aged(1_100).is_fresh());
        assert!(!timer(1, Duration::from_millis(1)).is_fresh(), "without slack it is not");
        assert_eq!((with_slack(9), with_slack(10)), (9, 11));
    }

    #[test]
    fn the_tables_are_bounded() {
        let clocks = Clocks::default();
        for id in 0..10_000 {
            clocks.hold(timer(id, Duration::ZERO));
            clocks.put_idle(timer(id, Duration::ZERO));
            clocks.lapsed_ms(&RecordKey::from_stored(id.to_string()), 1, None);
        }
        let tables = clocks.tables();
        assert!(tables.held.len() <= MOST && tables.idle.len() <= MOST_IDLE && tables.lapses.len() <= MOST);
    }
}
