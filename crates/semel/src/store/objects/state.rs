//! What stands under a name, what its clock says, and what is remembered of it.
//!
//! The clock is the service's: an object's `Last-Modified` against the `Date` of the answer that told it, both in whole
//! seconds. So an age is known to a second, and a record is lapsed only once its age is more than its ttl and a second:
//! then it is, whatever was rounded away.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::UpdateVersion;
use semel_core::record::{Expect, RecordKey, Standing, Version};

use super::body::Body;
use crate::store::{Record, meets};

/// When an object was written, and when that was asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// When it was written, by the service's clock; where it was not read, at the earliest.
    pub(super) modified_ms: i64,
    /// The service's clock when it answered.
    pub(super) date_ms: i64,
    /// When that was asked, on our own watch.
    pub(super) sent: Duration,
    /// Did the service itself say when it was written?
    pub(super) read: bool,
}

/// What is lost by rounding to whole seconds.
const ROUNDED_MS: i64 = 1000;

impl Reading {
    fn age_ms(&self) -> i64 {
        self.date_ms.saturating_sub(self.modified_ms).max(0)
    }

    /// What the service's clock said then.
    pub(super) fn standing(&self, ttl: Duration) -> Standing {
        let (age, ttl) = (self.age_ms(), millis(ttl));
        if age > ttl.saturating_add(ROUNDED_MS) {
            return Standing::Lapsed { for_ms: unsigned(age - ttl) };
        }
        // the first whole second at which it is lapsed: who waits so long finds it so
        let whole = (ttl / ROUNDED_MS).saturating_add(2).saturating_mul(ROUNDED_MS);
        Standing::Live { left_ms: unsigned(whole.saturating_sub(age)).max(1) }
    }

    /// Is it surely live still, so long after it was asked?
    fn is_live_at(&self, now: Duration, ttl: Duration) -> bool {
        let since = millis(now.saturating_sub(self.sent));
        self.age_ms().saturating_add(since) < millis(ttl)
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn unsigned(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0)
}

/// An object.
#[derive(Clone, Debug)]
pub(super) struct Stands {
    pub(super) body: Body,
    pub(super) tag: UpdateVersion,
    pub(super) reading: Reading,
}

impl Stands {
    /// The record in it, unless it was removed.
    pub(super) fn record(&self) -> Option<Record> {
        let Body::Record { version, key, ttl, value, .. } = &self.body else { return None };
        Some(Record {
            key: RecordKey::from_stored(key.clone()),
            version: Version::new(version.as_str()),
            value: value.clone(),
            standing: ttl.map(|ttl| self.reading.standing(ttl)),
        })
    }

    /// Is it as expected, now that it was read?
    pub(super) fn meets(stands: Option<&Stands>, expect: &Expect) -> bool {
        let found = stands.and_then(|stands| match &stands.body {
            Body::Record { version, ttl, .. } => {
                Some((Version::new(version.as_str()), ttl.map(|ttl| stands.reading.standing(ttl))))
            }
            Body::Gone { .. } => None,
        });
        meets(expect, found.as_ref().map(|(version, standing)| (version, *standing)))
    }

    /// May a write that expects this be tried without another look? The tag decides whether it is still so; only what
    /// a tag does not tell, the time, must be certain.
    pub(super) fn promises(&self, expect: &Expect, now: Duration) -> bool {
        let Body::Record { version, ttl, .. } = &self.body else { return *expect == Expect::Absent };
        match expect {
            Expect::Absent => false,
            Expect::Version(expected) => version == expected.as_str(),
            Expect::Live(expected) => {
                version == expected.as_str() && ttl.is_some_and(|ttl| self.reading.is_live_at(now, ttl))
            }
            // it only gets older, and a renewal changes its tag
            Expect::Lapsed(expected) => {
                version == expected.as_str()
                    && self.reading.read
                    && ttl.is_some_and(|ttl| matches!(self.reading.standing(ttl), Standing::Lapsed { .. }))
            }
        }
    }
}

/// How many objects are remembered.
const REMEMBERED: usize = 512;
/// The largest value that is kept for a renewal, which writes it again.
const KEPT: usize = 8 * 1024;

/// The objects that were last seen, by their names, so that a write needs no look before it. A wrong memory costs a
/// request and nothing else: what is remembered is written over only if its tag is still there.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<HashMap<String, Stands>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Stands>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was last seen there, and no longer: who writes it remembers it anew.
    pub(super) fn take(&self, name: &str) -> Option<Stands> {
        self.lock().remove(name)
    }

    /// Forget what was seen there.
    pub(super) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Remember what stands there.
    pub(super) fn keep(&self, name: &str, stands: &Stands) {
        let mut stands = stands.clone();
        if let Body::Record { ttl, value, .. } = &mut stands.body {
            if ttl.is_none() {
                // never written again as it is
                *value = Vec::new();
            } else if value.len() > KEPT {
                return;
            }
        }
        let mut seen = self.lock();
        if seen.len() >= REMEMBERED {
            // leases are the last to go: they are written again and again
            seen.retain(|_, stands| matches!(stands.body, Body::Record { ttl: Some(_), .. }));
            if seen.len() >= REMEMBERED {
                seen.clear();
            }
        }
        seen.insert(name.to_owned(), stands);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn read(age_s: i64) -> Reading {
        Reading { modified_ms: 0, date_ms: age_s * 1000, sent: Duration::from_secs(100), read: true }
    }

    fn stands(age_s: i64) -> Stands {
        let body = Body::Record {
            version: "v".to_owned(),
            write: "w".to_owned(),
            key: "k".to_owned(),
            ttl: Some(TTL),
            value: Vec::new(),
        };
        Stands { body, tag: UpdateVersion { e_tag: None, version: None }, reading: read(age_s) }
    }

    #[test]
    fn a_record_lapses_a_second_late_never_early() {
        assert_eq!(read(0).standing(TTL), Standing::Live { left_ms: 12_000 });
        assert_eq!(read(11).standing(TTL), Standing::Live { left_ms: 1_000 });
        assert_eq!(read(12).standing(TTL), Standing::Lapsed { for_ms: 2_000 });
        // a front that is behind the one that wrote
        assert_eq!(read(-3).standing(TTL), Standing::Live { left_ms: 12_000 });
        let odd = Duration::from_millis(1500);
        assert_eq!(read(2).standing(odd), Standing::Live { left_ms: 1_000 });
        assert_eq!(read(3).standing(odd), Standing::Lapsed { for_ms: 1_500 });
    }

    #[test]
    fn what_is_remembered_is_live_only_while_that_is_certain() {
        let version = Version::new("v");
        let live = |s: u64| stands(2).promises(&Expect::Live(version.clone()), Duration::from_secs(100 + s));
        assert!(live(7) && !live(8) && !live(1000));
        let lapsed = |age: i64, read: bool| {
            let mut stands = stands(age);
            stands.reading.read = read;
            stands.promises(&Expect::Lapsed(version.clone()), Duration::from_secs(100))
        };
        assert!(lapsed(12, true) && !lapsed(11, true) && !lapsed(12, false));
        assert!(!stands(0).promises(&Expect::Version(Version::new("x")), Duration::ZERO));
        assert!(!stands(0).promises(&Expect::Absent, Duration::ZERO));
    }
}
