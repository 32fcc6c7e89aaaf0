//! The store, as every real one must be: conditional writes, and a clock of its own.
//!
//! Times are relative: a record's clock is what is left of it. So a search over unbounded time is finite. What
//! has lapsed is only remembered for as long as a clock that is set back could make it live again.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use semel_core::claim::{Guard, Stands, View, Write};
use semel_core::entry::Entry;
use semel_core::lease::{Lease, SeenLease};
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::record::{Expect, Seen, Standing, Version};
use semel_core::token::Token;
use semel_core::work::Work;

use super::shared::Shared;
use super::worker::Message;

pub const RESOURCES: usize = 2;
pub const KEYS: usize = 2;
pub const STEPS: usize = 2;
/// Entries: those of the keys, then those of the first key's steps.
pub const ENTRIES: usize = KEYS + STEPS;

pub static RESOURCE: LazyLock<[Name; RESOURCES]> =
    LazyLock::new(|| ["r", "s"].map(|name| Name::new(name).unwrap()));
pub static WORK: LazyLock<[Work; ENTRIES]> =
    LazyLock::new(|| ["a", "b", "a~x", "a~y"].map(|work| Work::parse_readable(work).unwrap()));

pub fn resource_index(name: &Name) -> usize {
    RESOURCE.iter().position(|known| known == name).unwrap()
}

/// Where the entry of a step lies.
pub fn entry_of_step(step: usize) -> usize {
    KEYS + step
}

pub fn key_index(work: &Work) -> usize {
    WORK.iter().position(|known| known == work).unwrap()
}

/// How a swap of several changes is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Changes {
    #[default]
    AllOrNothing,
    OneAfterAnother,
}

/// What reached the store, and what became of it.
#[allow(dead_code)] // a replay reads it
#[derive(Clone, Debug)]
pub enum Taken {
    /// These writes, with the version of each if they were made.
    Swap {
        writes: Vec<Write>,
        made: Option<Vec<i64>>,
    },
    Touch {
        resource: Name,
        version: i64,
        made: bool,
    },
}

thread_local! {
    static TAKEN: RefCell<Option<Vec<Taken>>> = const { RefCell::new(None) };
}

#[allow(dead_code)] // a replay asks it
/// Do this, and tell what reached the store meanwhile: for who replays it on a real one.
pub fn recorded<T>(act: impl FnOnce() -> T) -> (T, Vec<Taken>) {
    TAKEN.set(Some(Vec::new()));
    let done = act();
    (done, TAKEN.take().unwrap_or_default())
}

pub fn record(taken: impl FnOnce() -> Taken) {
    TAKEN.with_borrow_mut(|all| {
        if let Some(all) = all {
            all.push(taken());
        }
    });
}

/// A record. Its version counts its writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Row<T> {
    pub value: Shared<T>,
    pub version: i64,
    pub clock: Option<RowClock>,
}

/// A record's clock, in ticks: live while something is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowClock {
    pub ttl: i8,
    pub left: i8,
}

impl<T: Clone> Row<T> {
    pub fn standing(&self) -> Option<Standing> {
        let RowClock { left, .. } = self.clock?;
        let ticks = u64::from(left.unsigned_abs());
        Some(if left > 0 { Standing::Live { left_ms: ticks } } else { Standing::Lapsed { for_ms: ticks } })
    }

    pub fn is_live(&self) -> bool {
        matches!(self.standing(), Some(Standing::Live { .. }))
    }

    pub fn seen(&self) -> Seen<T> {
        Seen { value: T::clone(&self.value), version: Version::from(self.version) }
    }
}

impl Row<Lease> {
    /// Is it held, by a run that goes on, as far as the record says?
    pub fn is_held(&self) -> bool {
        self.is_live() && self.value.hold.as_ref().is_some_and(|hold| !hold.resting)
    }
}

/// What is on its way to the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    Swap(Shared<Writes>),
    Touch { resource: usize, version: i64 },
}

/// The writes of a swap.
#[derive(Debug, PartialEq, Eq)]
pub struct Writes(pub Vec<Write>);

impl Hash for Writes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for write in &self.0 {
            match write {
                Write::Guard(Guard { resource, expect }) => (0, resource, expect).hash(state),
                Write::Lease { resource, lease, expect, ttl_ms } => {
                    (1, resource, lease, expect, ttl_ms).hash(state)
                }
                Write::Entry { entry, expect } => (2, entry, expect).hash(state),
                Write::Stands(Stands { work, expect }) => (3, key_index(work), expect).hash(state),
                // no worker of the model has a schedule, or anybody to tell
                Write::Calendar { .. } | Write::Alarm { .. } => unreachable!(),
            }
        }
    }
}

/// What a store that falls back to an older state knows of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Timeline {
    /// Nothing: a copy that was restored, or a replica that says no epoch.
    #[default]
    Unknown,
    /// Its epoch: the floor of its tokens, and asked again at the write of what was decided by another one.
    Known,
    /// Its epoch, and the write is not asked. Broken on purpose.
    NotAskedAgain,
    /// Its epoch; but the versions count on from where it fell back to. Broken on purpose.
    VersionsComeBack,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    pub leases: [Option<Row<Lease>>; RESOURCES],
    pub entries: [Option<Row<Entry>>; ENTRIES],
    pub timeline: Timeline,
    pub changes: Changes,
    /// How often it fell back.
    pub epoch: u8,
}

/// Versions of one epoch: no record is written more often. A real store draws them at random.
const VERSIONS: i64 = 256;

impl Store {
    /// Make the changes, all or nothing. Answers the new version of each.
    pub fn swap(&mut self, writes: &[Write]) -> Option<Vec<i64>> {
        let asked = writes.iter().all(|write| self.meets(write));
        let made: Option<Vec<i64>> = asked.then(|| writes.iter().map(|write| self.make(write)).collect());
        record(|| Taken::Swap { writes: writes.to_vec(), made: made.clone() });
        made
    }

    /// Restart a clock that has not run out; the version stays.
    pub fn touch(&mut self, resource: usize, version: i64) -> bool {
        let made = touch(&mut self.leases[resource], version);
        record(|| Taken::Touch { resource: RESOURCE[resource].clone(), version, made });
        made
    }

    /// The least token that it allows.
    pub fn token_floor(&self) -> u64 {
        match self.timeline {
            Timeline::Unknown => 0,
            _ => Token::floor_of_epoch(u32::from(self.epoch) + 1),
        }
    }

    /// Was this grant made since the store last fell back?
    pub fn is_of_this_epoch(&self, token: Token) -> bool {
        self.epoch == 0 || token.epoch() > u64::from(self.epoch)
    }

    /// Is it taken, decided by this epoch? Only of grants is that asked.
    pub fn is_decided_by(&self, epoch: Option<u8>) -> bool {
        let asks = matches!(self.timeline, Timeline::Known | Timeline::VersionsComeBack);
        !asks || epoch.is_none_or(|epoch| epoch == self.epoch)
    }

    /// The version after this one. None comes back, not even after a fall.
    fn version_after(&self, last: Option<i64>) -> i64 {
        let epoch = if self.timeline == Timeline::VersionsComeBack { 0 } else { i64::from(self.epoch) };
        last.unwrap_or(0).max(epoch * VERSIONS) + 1
    }

    /// Could it ever be applied? Versions only grow, so most of what is late never can.
    pub fn may_take(&self, message: &Message) -> bool {
        match &message.body {
            Body::Touch { resource, version } => {
                self.leases[*resource].as_ref().is_some_and(|row| row.version == *version)
            }
            Body::Swap(writes) => writes.0[message.so_far.versions.len()..].iter().all(|write| {
                let (expect, stands) = self.asked(write);
                match (expect, stands) {
                    (Expect::Absent, stands) => stands.is_none(),
                    (Expect::Version(v) | Expect::Live(v) | Expect::Lapsed(v), Some((version, _))) => {
                        is(v, version)
                    }
                    (_, None) => false,
                }
            }),
        }
    }

    fn meets(&self, write: &Write) -> bool {
        let (expect, stands) = self.asked(write);
        match (expect, stands) {
            (Expect::Absent, stands) => stands.is_none(),
            (Expect::Version(expected), Some((version, _))) => is(expected, version),
            (Expect::Live(expected), Some((version, standing))) => {
                is(expected, version) && matches!(standing, Some(Standing::Live { .. }))
            }
            (Expect::Lapsed(expected), Some((version, standing))) => {
                is(expected, version) && matches!(standing, Some(Standing::Lapsed { .. }))
            }
            (_, None) => false,
        }
    }

    fn asked<'a>(&self, write: &'a Write) -> (&'a Expect, Option<(i64, Option<Standing>)>) {
        let lease = |resource: &Name| {
            let row = self.leases[resource_index(resource)].as_ref();
            row.map(|row| (row.version, row.standing()))
        };
        let of_entry = |work: &Work| {
            let row = self.entries[key_index(work)].as_ref();
            row.map(|row| (row.version, row.standing()))
        };
        match write {
            Write::Guard(Guard { resource, expect }) => (expect, lease(resource)),
            Write::Lease { resource, expect, .. } => (expect, lease(resource)),
            Write::Entry { entry, expect } => (expect, of_entry(&entry.work)),
            Write::Stands(Stands { work, expect }) => (expect, of_entry(work)),
            Write::Calendar { .. } | Write::Alarm { .. } => unreachable!(),
        }
    }

    fn make(&mut self, write: &Write) -> i64 {
        match write {
            Write::Guard(Guard { resource, .. }) => {
                self.leases[resource_index(resource)].as_ref().map_or(0, |row| row.version)
            }
            Write::Stands(Stands { work, .. }) => {
                self.entries[key_index(work)].as_ref().map_or(0, |row| row.version)
            }
            Write::Lease { resource, lease, ttl_ms, .. } => {
                let at = resource_index(resource);
                let version = self.version_after(self.leases[at].as_ref().map(|row| row.version));
                put(&mut self.leases[at], lease, *ttl_ms, version)
            }
            Write::Entry { entry, .. } => {
                let at = key_index(&entry.work);
                let version = self.version_after(self.entries[at].as_ref().map(|row| row.version));
                put(&mut self.entries[at], entry, None, version)
            }
            Write::Calendar { .. } | Write::Alarm { .. } => unreachable!(),
        }
    }

    /// The store's clock goes on, or is set, by so many ticks.
    pub fn pass(&mut self, ticks: i8, remembered: u8) {
        let floor = -i8::try_from(remembered).unwrap();
        for clock in self.leases.iter_mut().flatten().filter_map(|row| row.clock.as_mut()) {
            clock.left = (clock.left - ticks).max(floor);
        }
    }

    /// What a run or a person sees: the entry of its key, and the leases of all resources.
    pub fn look(
        &self,
        key: Option<usize>,
        me: &Owner,
        is_gone: impl Fn(&Owner) -> bool,
        resources: usize,
    ) -> View {
        let entry = key.and_then(|key| self.entries[key].as_ref()).map(Row::seen);
        let leases = (0..resources).map(|resource| {
            let seen = self.leases[resource].as_ref().map(|row| seen_lease(row, me, &is_gone));
            (RESOURCE[resource].clone(), seen)
        });
        View { entry, leases: leases.collect(), token_floor: self.token_floor(), ..View::default() }
    }
}

/// A lease's record, with what is known about its owner: as the engine sees it.
pub fn seen_lease(row: &Row<Lease>, me: &Owner, is_gone: impl Fn(&Owner) -> bool) -> SeenLease {
    let standing = row.standing().unwrap_or(Standing::Lapsed { for_ms: 0 });
    let owner_gone = row.is_held()
        && row.value.hold.as_ref().is_some_and(|hold| hold.owner.is_neighbour_of(me) && is_gone(&hold.owner));
    SeenLease { record: row.seen(), standing, owner_gone }
}

pub fn put<T: Clone + Hash>(slot: &mut Option<Row<T>>, value: &T, ttl_ms: Option<u64>, version: i64) -> i64 {
    let clock = ttl_ms.map(|ttl_ms| {
        let ttl = i8::try_from(ttl_ms).unwrap();
        RowClock { ttl, left: ttl }
    });
    *slot = Some(Row { value: Shared::new(value.clone()), version, clock });
    version
}

/// Restart a clock that has not run out.
pub fn touch(slot: &mut Option<Row<Lease>>, version: i64) -> bool {
    match slot {
        Some(row) if row.version == version && row.is_live() => {
            row.clock = row.clock.map(|clock| RowClock { left: clock.ttl, ..clock });
            true
        }
        _ => false,
    }
}

pub fn is(expected: &Version, version: i64) -> bool {
    expected.as_str().parse() == Ok(version)
}
