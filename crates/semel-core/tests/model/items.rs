//! Runners that share a batch: every order of every step, on a store that makes all changes of a swap or none, and on
//! one that makes them one after another and may be left in between.
//!
//! ```text
//! start ─▶ for each item:  look, decide ─▶ queued ─┐            ┌─▶ ready ─begin─▶ under way ─┐
//!               ▲                                  ├─ one swap ─┤                             │
//!               │ refused, no answer               │            └─▶ over                      │
//!               └──────────────────────────────────┴────────────────────── its outcome ◀──────┘
//! ```
//!
//! Each runner does what the engine does. It takes the first free of the names that those who share hold, and does the
//! items in any order; what it has to write of several of them goes into one swap, claims and outcomes together, with
//! each guard once. It may be stopped, and crash, between any two steps; its swap may be late, or not answered; one
//! that was refused is looked at as the engine does: by the place of the change that did not fit. One heartbeat
//! renews its lease and those that its items have of their own. Whoever has lost its lease begins nothing more: what is
//! under way ends by itself or is stopped, and what was claimed and not begun is given back.
//!
//! The rules decide: `claim::claim` for the runner, `item::claim`, `ItemClaim::writes`, `OwnClaim::write`,
//! `item::give_back`, `item::glance`, `entry::settle`, `lease::release`, `claim::verdict`, `policy::trust_ms`,
//! `policy::trust_counts_from`. What a step did is judged without them (`judge.rs`).
//!
//! # What is true of an item
//!
//! Its effect is begun once per runner, so once per grant; by one that trusts its lease, while nobody else does; never
//! once it is done. Where lost ones are held, it is begun once, and once more per verdict and per failure. On a store
//! that makes one change after another, a zombie may still write a claim after its guard was read: it begins
//! nothing, because its watch has run out, and the item is taken for lost.
//!
//! From every state that was sampled, the runners that come after the faults end with every item done, or before a
//! person.
//!
//! # What is not
//!
//! The runner's own claim and heartbeat are one step each: what may come between is in the first searches. Waiting for
//! a resource is looking again. The order and the size of groups: a group holds all that is to be written. Clocks that
//! leap ahead. Lock delays, rests, payloads, tries inside one invocation, probes that cannot tell.

#[path = "items/check.rs"]
pub mod check;
#[path = "items/group.rs"]
pub mod group;
#[path = "items/judge.rs"]
pub mod judge;
#[path = "items/runner.rs"]
pub mod runner;

use std::sync::LazyLock;

use semel_core::claim::{Guard, View, Write};
use semel_core::entry::{Entry, Terms};
use semel_core::item::runner_names;
use semel_core::lease::Lease;
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::policy::{OnLost, Policy};
use semel_core::record::{Expect, Standing};
use semel_core::work::{Fields, Work};

use super::shared::Shared;
use super::store::{Changes, Row, Taken, Writes, is, put, record, seen_lease, touch};
use super::worker::Run;
use judge::Facts;
use runner::Runner;

pub const ITEMS: usize = 3;
/// Runners at most, and so names for them.
const RUNNERS: usize = 3;
/// The names of the runners' leases, then that of the resource that items name.
const LEASES: usize = RUNNERS + 1;
pub const OWN: usize = RUNNERS;

pub static NAMES: LazyLock<Vec<Name>> = LazyLock::new(|| {
    let mut names = runner_names(&Name::new("j").unwrap(), RUNNERS as u32);
    names.push(Name::new("x").unwrap());
    names
});
pub static ITEM: LazyLock<[Work; ITEMS]> = LazyLock::new(|| {
    [0, 1, 2].map(|id: u64| {
        let batch = Work::once(Name::new("j").unwrap());
        batch.for_item(Fields::from([("id".to_owned(), id.into())])).unwrap()
    })
});

fn lease_index(name: &Name) -> usize {
    NAMES.iter().position(|known| known == name).unwrap()
}

fn item_index(work: &Work) -> usize {
    ITEM.iter().position(|known| known == work).unwrap()
}

/// The bounds of a search.
#[derive(Clone, Copy, Debug)]
pub struct Items {
    pub name: &'static str,
    pub runners: usize,
    pub items: usize,
    /// Those that name the resource: a bit each.
    pub own: u8,
    pub changes: Changes,
    pub ttl: u64,
    pub on_lost: OnLost,
    pub max_failures: u32,
    /// Invocations of each runner.
    pub runs: u8,
    /// Crashes, unanswered swaps, clocks that are set back and verdicts, in all.
    pub troubles: u8,
    pub crashes: u8,
    pub unknowns: u8,
    /// Swaps at a time that nobody awaits any more and that may still arrive.
    pub late: usize,
    pub back: u8,
    pub verdicts: u8,
    /// Heartbeats, over all runners.
    pub renewals: u8,
    pub fails: bool,
    /// The input has the first item twice.
    pub twice: bool,
    /// The runners are on one host, and know each other's dead.
    pub neighbours: bool,
    /// One of so many states is brought to its end.
    pub closes: u64,
}

impl Items {
    fn policy(&self) -> Policy {
        let (on_lost, max_failures) = (self.on_lost, self.max_failures);
        Policy { ttl_ms: self.ttl, on_lost, max_failures, ..Policy::default() }
    }

    fn terms(&self) -> Terms {
        Terms::of(&self.policy())
    }

    /// A swap that is made as a whole is taken as it is sent: whoever waits in between has not sent it yet. What comes to
    /// be written meanwhile goes along.
    fn is_sent_when_taken(&self) -> bool {
        self.changes == Changes::AllOrNothing
    }

    fn has_own(&self, item: usize) -> bool {
        self.own & (1 << item) != 0
    }

    pub fn host(&self, runner: usize) -> &'static str {
        if self.neighbours { "one" } else { ["one", "two", "three"][runner] }
    }
}

/// What is true of an item's effect, whatever the ledger says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Truth {
    pub begun: u8,
    /// The invocations that began it.
    pub by: Vec<Run>,
    pub happened: bool,
    /// It was recorded as done, and no person has said otherwise since.
    pub told: bool,
    /// Who began it last, unless a person has spoken since.
    pub last: Option<Run>,
    pub failed: u8,
    pub judged: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    pub leases: [Option<Row<Lease>>; LEASES],
    pub entries: [Option<Row<Entry>>; ITEMS],
}

impl Store {
    fn asked<'a>(&self, write: &'a Write) -> (&'a Expect, Option<(i64, Option<Standing>)>) {
        let lease = |resource: &Name| {
            let row = self.leases[lease_index(resource)].as_ref();
            row.map(|row| (row.version, row.standing()))
        };
        match write {
            Write::Guard(Guard { resource, expect }) | Write::Lease { resource, expect, .. } => {
                (expect, lease(resource))
            }
            Write::Entry { entry, expect } => {
                let row = self.entries[item_index(&entry.work)].as_ref();
                (expect, row.map(|row| (row.version, None)))
            }
            Write::Stands(_) | Write::Calendar { .. } | Write::Alarm { .. } => unreachable!(),
        }
    }

    fn meets(&self, write: &Write) -> bool {
        let (expect, stands) = self.asked(write);
        let at = |seen, live: fn(Option<Standing>) -> bool| {
            stands.is_some_and(|(version, standing)| is(seen, version) && live(standing))
        };
        match expect {
            Expect::Absent => stands.is_none(),
            Expect::Version(seen) => at(seen, |_| true),
            Expect::Live(seen) => at(seen, |standing| matches!(standing, Some(Standing::Live { .. }))),
            Expect::Lapsed(seen) => at(seen, |standing| matches!(standing, Some(Standing::Lapsed { .. }))),
        }
    }

    /// Could it ever be made? Versions never come back.
    fn may_make(&self, write: &Write) -> bool {
        match self.asked(write) {
            (Expect::Absent, stands) => stands.is_none(),
            (Expect::Version(seen) | Expect::Live(seen) | Expect::Lapsed(seen), stands) => {
                stands.is_some_and(|(version, _)| is(seen, version))
            }
        }
    }

    /// Make one change. Answers its version.
    pub fn make(&mut self, write: &Write) -> i64 {
        match write {
            Write::Guard(guard) => {
                self.leases[lease_index(&guard.resource)].as_ref().map_or(0, |row| row.version)
            }
            Write::Lease { resource, lease, ttl_ms, .. } => {
                let row = &mut self.leases[lease_index(resource)];
                let version = row.as_ref().map_or(1, |row| row.version + 1);
                put(row, lease, *ttl_ms, version)
            }
            Write::Entry { entry, .. } => {
                let row = &mut self.entries[item_index(&entry.work)];
                let version = row.as_ref().map_or(1, |row| row.version + 1);
                put(row, entry, None, version)
            }
            Write::Stands(_) | Write::Calendar { .. } | Write::Alarm { .. } => unreachable!(),
        }
    }

    /// All changes or none: their versions, or the first that does not fit.
    pub fn swap(&mut self, writes: &[Write]) -> Result<Vec<i64>, usize> {
        let made: Result<Vec<i64>, usize> = match writes.iter().position(|write| !self.meets(write)) {
            Some(index) => Err(index),
            None => Ok(writes.iter().map(|write| self.make(write)).collect()),
        };
        record(|| Taken::Swap { writes: writes.to_vec(), made: made.clone().ok() });
        made
    }

    fn touch(&mut self, lease: usize, version: i64) -> bool {
        let made = touch(&mut self.leases[lease], version);
        record(|| Taken::Touch { resource: NAMES[lease].clone(), version, made });
        made
    }

    fn pass(&mut self, ticks: i8, remembered: u8) {
        let floor = -i8::try_from(remembered).unwrap();
        for clock in self.leases.iter_mut().flatten().filter_map(|row| row.clock.as_mut()) {
            clock.left = (clock.left - ticks).max(floor);
        }
    }

    pub fn look(&self, item: Option<usize>, me: &Owner, is_gone: impl Fn(&Owner) -> bool) -> View {
        let leases = self
            .leases
            .iter()
            .zip(&*NAMES)
            .map(|(row, name)| (name.clone(), row.as_ref().map(|row| seen_lease(row, me, &is_gone))));
        let entry = item.and_then(|item| self.entries[item].as_ref()).map(Row::seen);
        View { entry, leases: leases.collect(), ..View::default() }
    }
}

/// A swap that nobody awaits any more: what is left of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Late {
    pub run: Run,
    pub writes: Shared<Writes>,
    pub made: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub store: Store,
    pub runners: Vec<Runner>,
    pub late: Vec<Late>,
    pub truths: [Truth; ITEMS],
    /// The largest token ever granted, per lease.
    pub highest: [u64; LEASES],
    pub troubles_left: u8,
    pub crashes_left: u8,
    pub unknowns_left: u8,
    pub back_left: u8,
    pub verdicts_left: u8,
    pub renewals_left: u8,
    pub just: Facts,
}

impl World {
    pub fn new(items: &Items) -> World {
        World {
            store: Store::default(),
            runners: (0..items.runners).map(|_| Runner { begun: 0, active: None }).collect(),
            late: Vec::new(),
            truths: Default::default(),
            highest: [0; LEASES],
            troubles_left: items.troubles,
            crashes_left: items.crashes,
            unknowns_left: items.unknowns,
            back_left: items.back,
            verdicts_left: items.verdicts,
            renewals_left: items.renewals,
            just: Facts::default(),
        }
    }

    pub fn is_gone(&self, owner: &Owner) -> bool {
        let mut alive = self.runners.iter().filter_map(|runner| runner.active.as_ref());
        !alive.any(|active| i32::from(active.run) == owner.pid)
    }

    fn trouble(&mut self, kind: impl Fn(&mut World) -> &mut u8) -> Option<()> {
        self.troubles_left = self.troubles_left.checked_sub(1)?;
        let left = kind(self);
        *left = left.checked_sub(1)?;
        Some(())
    }

    /// One form for states that differ only in what cannot matter.
    fn settle_down(&mut self) {
        if self.troubles_left == 0 {
            (self.crashes_left, self.unknowns_left) = (0, 0);
            (self.back_left, self.verdicts_left) = (0, 0);
        }
        self.store.pass(0, self.back_left);
        let store = &self.store;
        self.late.retain(|late| late.writes.0[late.made..].iter().all(|write| store.may_make(write)));
        for runner in &mut self.runners {
            runner.settle_down(store);
        }
    }
}
