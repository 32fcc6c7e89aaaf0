//! The store, with a witness who sees every write that was applied; and the line to it, which is slow, breaks, and
//! sometimes ends the process at its other end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::core::alarm::{Alarm, Kind, LaneState, Notice, OUTBOX_LIMIT};
use semel::core::entry::{Entry, State};
use semel::core::lease::Lease;
use semel::core::name::Name;
use semel::core::record::{self, RecordKey, Version};
use semel::core::token::{Grant, Nonce};
use semel::store::{Change, Durability, Loaded, Pending, Record, Store, StoreError, Swaps};
use tokio::sync::Notify;

use crate::machine::Process;
use crate::rng::Rng;

/// What was written, by the readable form of the work.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) done: HashMap<String, u32>,
    pub(crate) missed: HashMap<String, u32>,
    /// Slots that were written as missed while no alarm of that kind was open, of jobs that have lanes.
    pub(crate) untold: Vec<String>,
    /// Every notice that ever waited in an outbox for a lane, by its job.
    pub(crate) notices: BTreeMap<String, BTreeSet<(String, Nonce)>>,
    /// Those that were replaced by one that tells the recovery too, were dropped for want of room, or given up.
    pub(crate) excused: BTreeSet<Nonce>,
    /// Works that were claimed after they were done.
    pub(crate) again: Vec<String>,
    /// Attempts that vanished and whose lease was taken over without an alarm, by their work.
    pub(crate) unmissed: Vec<String>,
    alarms: HashMap<RecordKey, Alarm>,
    leases: HashMap<RecordKey, Lease>,
    running: HashMap<String, Grant>,
}

impl Written {
    fn note(&mut self, changes: &[Change]) {
        for change in changes {
            let Change::Put { key, value, .. } = change else { continue };
            if key.as_str().starts_with("alarm/") {
                let alarm: Alarm = record::decode(key, value).unwrap();
                self.note_alarm(key, alarm);
            }
        }
        for change in changes {
            let Change::Put { key, value, .. } = change else { continue };
            if key.as_str().starts_with("lease/") {
                self.note_lease(key, record::decode(key, value).unwrap());
            }
        }
        for change in changes {
            let Change::Put { key, value, .. } = change else { continue };
            if key.as_str().starts_with("entry/") {
                self.note_entry(&record::decode(key, value).unwrap());
            }
        }
    }

    /// Does this notice of a job wait to be told?
    pub(crate) fn waits(&self, job: &Name, id: &Nonce) -> bool {
        let alarm = self.alarms.get(&RecordKey::alarm(job));
        alarm.is_some_and(|alarm| alarm.outbox.iter().any(|notice| notice.id == *id))
    }

    fn note_alarm(&mut self, key: &RecordKey, alarm: Alarm) {
        let known = self.notices.entry(key.as_str().to_owned()).or_default();
        for notice in &alarm.outbox {
            let waiting = notice.lanes.iter().filter(|lane| matches!(lane.state, LaneState::Pending { .. }));
            known.extend(waiting.map(|lane| (lane.name.clone(), notice.id)));
            if notice.lanes.iter().any(|lane| matches!(lane.state, LaneState::GivenUp { .. })) {
                self.excused.insert(notice.id);
            }
        }
        if let Some(before) = self.alarms.insert(key.clone(), alarm.clone()) {
            let told_both = |old: &Notice| {
                let same =
                    |new: &Notice| new.at_ms == old.at_ms && new.work == old.work && new.kind == old.kind;
                alarm.outbox.iter().any(|new| new.recovered_ms.is_some() && same(new))
            };
            let was_full = before.outbox.len() == OUTBOX_LIMIT;
            let gone = before.outbox.iter().filter(|old| alarm.outbox.iter().all(|new| new.id != old.id));
            self.excused.extend(gone.filter(|old| was_full || told_both(old)).map(|old| old.id));
        }
    }

    /// Whoever takes over from a run of the same job that vanished raises an alarm with it.
    fn note_lease(&mut self, key: &RecordKey, lease: Lease) {
        let before = self.leases.insert(key.clone(), lease.clone());
        let before = before.filter(|before| before.grant != lease.grant);
        let grant = before.as_ref().map(|before| before.grant);
        let (Some(old), Some(new)) = (before.and_then(|before| before.hold), lease.hold) else { return };
        let job_of = |what: &str| what.split_once('@').map(|(job, _)| job.to_owned());
        let vanished =
            self.running.get(&old.what).copied() == grant && job_of(&old.what) == job_of(&new.what);
        let name = job_of(&old.what).and_then(|job| Name::new(&job).ok());
        let alarm = name.and_then(|name| self.alarms.get(&RecordKey::alarm(&name)));
        if vanished && !alarm.is_some_and(|alarm| alarm.open.iter().any(|open| open.kind == Kind::Lost)) {
            self.unmissed.push(old.what);
        }
    }

    fn note_entry(&mut self, entry: &Entry) {
        match &entry.state {
            State::Running { grant, .. } => {
                if self.done.contains_key(&entry.work.to_string()) {
                    self.again.push(entry.work.to_string());
                }
                self.running.insert(entry.work.to_string(), *grant)
            }
            _ => self.running.remove(&entry.work.to_string()),
        };
        match &entry.state {
            State::Done { .. } => *self.done.entry(entry.work.to_string()).or_default() += 1,
            State::Missed { .. } => {
                *self.missed.entry(entry.work.to_string()).or_default() += 1;
                let alarm = self.alarms.get(&RecordKey::alarm(entry.work.job()));
                if !alarm.is_some_and(|alarm| alarm.open.iter().any(|open| open.kind == Kind::Missed)) {
                    self.untold.push(entry.work.to_string());
                }
            }
            _ => {}
        }
    }
}

/// A store whose writes are seen.
#[derive(Clone)]
pub(crate) struct Witnessed {
    inner: Arc<dyn Store>,
    /// Changes of a swap are made one after the other, each with a fate of its own.
    in_order: bool,
    pub(crate) written: Arc<Mutex<Written>>,
}

impl Witnessed {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Witnessed {
        Witnessed { inner, in_order: false, written: Arc::default() }
    }

    pub(crate) fn in_order(inner: Arc<dyn Store>) -> Witnessed {
        Witnessed { in_order: true, ..Witnessed::new(inner) }
    }
}

impl fmt::Debug for Witnessed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witnessed")
    }
}

impl Store for Witnessed {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        self.inner.load(keys)
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        Box::pin(async move {
            let versions = self.inner.swap(changes, durability).await?;
            self.written.lock().unwrap().note(changes);
            Ok(versions)
        })
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        self.inner.touch(key, version)
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.inner.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.inner.changed(key, version, within)
    }
}

/// What befalls one process at its store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Luck {
    /// Killed at this call, before or after it was applied.
    pub(crate) killed_at: Option<(u32, bool)>,
    /// Stopped after this call for so long.
    pub(crate) stopped_at: Option<(u32, u64)>,
    /// Calls that fail, of a thousand.
    pub(crate) fails_permille: u64,
}

/// One process's line to the store.
pub(crate) struct Line {
    store: Witnessed,
    process: Arc<Process>,
    outages: Arc<Vec<Range<u64>>>,
    luck: Luck,
    calls: Mutex<(u32, Rng)>,
    /// The process is to be killed now.
    pub(crate) killed: Arc<Notify>,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Line")
    }
}

impl Line {
    pub(crate) fn new(
        store: &Witnessed,
        process: &Arc<Process>,
        outages: &Arc<Vec<Range<u64>>>,
        luck: Luck,
        rng: Rng,
    ) -> Line {
        Line {
            store: store.clone(),
            process: Arc::clone(process),
            outages: Arc::clone(outages),
            luck,
            calls: Mutex::new((0, rng)),
            killed: Arc::default(),
        }
    }

    async fn die(&self) -> ! {
        self.killed.notify_one();
        std::future::pending().await
    }

    async fn through<T>(&self, call: Pending<'_, T>) -> Result<T, StoreError> {
        let (n, latency_ms, fate) = {
            let (calls, rng) = &mut *self.calls.lock().unwrap();
            *calls += 1;
            let fails = rng.permille(self.luck.fails_permille);
            (*calls, rng.within(1..30), fails.then(|| rng.within(0..3)))
        };
        tokio::time::sleep(Duration::from_millis(latency_ms)).await;
        let now_ms = self.process.machine.time.now_ms();
        if self.outages.iter().any(|outage| outage.contains(&now_ms)) || fate == Some(0) {
            return Err(StoreError::Unavailable("the store is down".into()));
        }
        if fate == Some(1) {
            return Err(StoreError::Unknown("no answer, and not applied".into()));
        }
        if self.luck.killed_at == Some((n, false)) {
            self.die().await;
        }
        let answer = call.await;
        if self.luck.killed_at == Some((n, true)) {
            self.die().await;
        }
        if let Some((_, for_ms)) = self.luck.stopped_at.filter(|(at, _)| *at == n) {
            self.process.stall(for_ms);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if fate == Some(2) {
            answer?;
            return Err(StoreError::Unknown("no answer, but applied".into()));
        }
        answer
    }
}

impl Store for Line {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        Box::pin(self.through(self.store.load(keys)))
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        if !self.store.in_order {
            return Box::pin(self.through(self.store.swap(changes, durability)));
        }
        Box::pin(async move {
            let mut versions = Vec::new();
            for (index, change) in changes.iter().enumerate() {
                let one = self.through(self.store.swap(std::slice::from_ref(change), durability)).await;
                versions.extend(one.map_err(|why| match why {
                    StoreError::Refused(conflict) => {
                        StoreError::refused(index, conflict.key.clone(), conflict.stands.clone())
                    }
                    // what came before stands there
                    StoreError::Unavailable(why) if index > 0 => StoreError::Unknown(why),
                    other => other,
                })?);
            }
            Ok(versions)
        })
    }

    fn swaps(&self) -> Swaps {
        if self.store.in_order { Swaps::InOrder } else { Swaps::Whole }
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        Box::pin(self.through(self.store.touch(key, version)))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        Box::pin(self.through(self.store.scan(prefix, after, limit)))
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.store.changed(key, version, within)
    }
}
