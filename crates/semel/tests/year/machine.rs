//! Two machines: each has a wall clock that is wrong, sleeps, loses its power, and knows its own processes.

use std::collections::HashSet;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use semel::clock::{Clock, Moment};
use semel::core::owner::Owner;
use semel::core::token::Nonce;
use semel::engine::{Excuse, Neighbours};
use tokio::time::{Instant, Sleep};

/// True time, which nobody in the simulation can read: milliseconds since 1970.
#[derive(Debug)]
pub(crate) struct Time {
    began: Instant,
    start_ms: u64,
}

impl Time {
    pub(crate) fn starting(start_ms: u64) -> Arc<Time> {
        Arc::new(Time { began: Instant::now(), start_ms })
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.start_ms + self.began.elapsed().as_millis() as u64
    }

    pub(crate) fn at(&self, ms: u64) -> Instant {
        self.began + Duration::from_millis(ms.saturating_sub(self.start_ms))
    }
}

/// The store's own clock is right.
impl Clock for Time {
    fn now(&self) -> Moment {
        Moment::since_boot(Duration::from_secs(1_000) + self.began.elapsed())
    }

    fn wall_ms(&self) -> u64 {
        self.now_ms()
    }

    fn sleep_until(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(tokio::time::sleep(self.now().until(moment)))
    }
}

/// What befalls a machine in its year.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fortune {
    /// By how much its wall clock is off, from then on; the first of them from the beginning.
    pub(crate) offsets: Vec<(u64, i64)>,
    /// When it sleeps.
    pub(crate) sleeps: Vec<Range<u64>>,
    /// When its power fails.
    pub(crate) cuts: Vec<u64>,
}

impl Fortune {
    pub(crate) fn offset_ms(&self, at_ms: u64) -> i64 {
        self.offsets.iter().rev().find(|(from, _)| *from <= at_ms).map_or(0, |(_, offset)| *offset)
    }

    /// If it sleeps then, when it wakes.
    pub(crate) fn asleep_until(&self, at_ms: u64) -> Option<u64> {
        self.sleeps.iter().filter(|sleep| sleep.contains(&at_ms)).map(|sleep| sleep.end).max()
    }

    fn cuts_before(&self, at_ms: u64) -> usize {
        self.cuts.iter().filter(|cut| **cut <= at_ms).count()
    }
}

/// A machine.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) time: Arc<Time>,
    pub(crate) fortune: Fortune,
    host: String,
    next_pid: AtomicI32,
    alive: Mutex<HashSet<i32>>,
    /// What it remembers of slots that it could not tell the store about.
    pub(crate) excuses: Mutex<Vec<Excuse>>,
}

impl Machine {
    pub(crate) fn new(index: usize, host: &str, time: &Arc<Time>, fortune: Fortune) -> Arc<Machine> {
        Arc::new(Machine {
            time: Arc::clone(time),
            fortune,
            host: host.to_owned(),
            next_pid: AtomicI32::new(1 + 1_000_000 * index as i32),
            alive: Mutex::default(),
            excuses: Mutex::default(),
        })
    }

    fn owner(&self, pid: i32) -> Owner {
        let boot = format!("boot-{}", self.fortune.cuts_before(self.time.now_ms()));
        Owner { host: self.host.clone(), boot, pidns: 1, pid, start: 1 }
    }

    /// When its power fails next.
    pub(crate) fn next_cut(&self) -> Option<u64> {
        let now_ms = self.time.now_ms();
        self.fortune.cuts.iter().copied().find(|cut| *cut > now_ms)
    }
}

impl Clock for Machine {
    fn now(&self) -> Moment {
        self.time.now()
    }

    fn wall_ms(&self) -> u64 {
        let now_ms = self.time.now_ms();
        now_ms.saturating_add_signed(self.fortune.offset_ms(now_ms))
    }

    fn sleep_until(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.time.sleep_until(moment)
    }
}

/// A process table.
#[derive(Debug)]
pub(crate) struct Processes(pub(crate) Vec<Arc<Machine>>);

impl Neighbours for Processes {
    fn is_gone(&self, owner: &Owner, _: &Nonce) -> bool {
        let here = self.0.iter().filter(|machine| machine.host == owner.host);
        here.into_iter().all(|machine| !machine.alive.lock().unwrap().contains(&owner.pid))
    }
}

/// A process on a machine: it ends when this is dropped, and while it is stalled nothing of it runs.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) machine: Arc<Machine>,
    pub(crate) me: Owner,
    stalls: Mutex<Vec<Range<u64>>>,
}

impl Process {
    pub(crate) fn on(machine: &Arc<Machine>) -> Arc<Process> {
        let pid = machine.next_pid.fetch_add(1, Ordering::Relaxed);
        machine.alive.lock().unwrap().insert(pid);
        let me = machine.owner(pid);
        Arc::new(Process { machine: Arc::clone(machine), me, stalls: Mutex::default() })
    }

    pub(crate) fn stall(&self, for_ms: u64) {
        let now_ms = self.machine.time.now_ms();
        self.stalls.lock().unwrap().push(now_ms..now_ms + for_ms);
    }

    /// Does nothing of it run now? One that goes on this moment has not had its turn yet.
    pub(crate) fn is_frozen(&self) -> bool {
        const TURN_MS: u64 = 5;
        let now_ms = self.machine.time.now_ms();
        self.frozen_at(now_ms).or(self.frozen_at(now_ms - TURN_MS)).is_some()
    }

    /// If nothing of it runs now, when it goes on.
    fn frozen_until(&self) -> Option<u64> {
        self.frozen_at(self.machine.time.now_ms())
    }

    fn frozen_at(&self, now_ms: u64) -> Option<u64> {
        let stalls = self.stalls.lock().unwrap();
        let stalled = stalls.iter().filter(|stall| stall.contains(&now_ms)).map(|stall| stall.end).max();
        stalled.max(self.machine.fortune.asleep_until(now_ms))
    }

    /// How long it ran between then and now.
    pub(crate) fn ran_ms(&self, since_ms: u64) -> u64 {
        let now_ms = self.machine.time.now_ms();
        let stalls = self.stalls.lock().unwrap();
        let mut frozen: Vec<Range<u64>> = stalls
            .iter()
            .chain(&self.machine.fortune.sleeps)
            .map(|range| range.start.max(since_ms)..range.end.min(now_ms))
            .filter(|range| range.start < range.end)
            .collect();
        frozen.sort_by_key(|range| range.start);
        let (mut lost, mut through) = (0, since_ms);
        for range in frozen {
            lost += range.end.saturating_sub(range.start.max(through));
            through = through.max(range.end);
        }
        now_ms - since_ms - lost
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.machine.alive.lock().unwrap().remove(&self.me.pid);
    }
}

/// What a process does: nothing, while it is frozen.
pub(crate) struct Frozen<F> {
    inner: Pin<Box<F>>,
    process: Arc<Process>,
    thaw: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Frozen<F> {
    pub(crate) fn new(process: &Arc<Process>, inner: F) -> Frozen<F> {
        Frozen { inner: Box::pin(inner), process: Arc::clone(process), thaw: None }
    }
}

impl<F: Future> Future for Frozen<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        while let Some(until_ms) = self.process.frozen_until() {
            let at = self.process.machine.time.at(until_ms);
            let thaw = self.thaw.insert(Box::pin(tokio::time::sleep_until(at)));
            if thaw.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.inner.as_mut().poll(context)
    }
}
