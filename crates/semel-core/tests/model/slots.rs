//! Four slots of one series and two runners: every order of every step, on a store that makes all changes of a swap or
//! none, and on one that makes them one after another and may be left in between.
//!
//! Each runner does what the engine does: it looks, accounts for the gap in pieces (the calendar, the slots and the
//! alarm, each looked at apart), looks again, claims, settles. It may crash between any two of these, and between any
//! two writes of the second kind of store; an answer may be lost; its clock may be a tick behind. The rules decide:
//! `calendar::gap`, `calendar::account`, `calendar::missed`, `alarm::raise`, `claim::claim`, `Claim::writes`,
//! `conclude`.
//!
//! # What is not
//!
//! Leases that lapse: a neighbour knows the dead at once. Requests that arrive after their sender has looked again. On
//! the second kind of store, a first firing that crashes between its intent and its calendar leaves no calendar, so
//! the next one is taken for the first: nothing before it is owed.

use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use semel_core::alarm::{self, Alarm, Anomaly, Kind};
use semel_core::calendar::{self, Calendar, Occurrence, Reason};
use semel_core::claim::{self, After, Ask, Decision, View, Write, conclude};
use semel_core::entry::{Ending, Entry, Settle, State, Terms};
use semel_core::lease::{Lease, SeenLease};
use semel_core::name::Name;
use semel_core::policy::Policy;
use semel_core::record::{Expect, Seen, Standing, Version};
use semel_core::schedule::{Schedule, Tick};
use semel_core::token::Grant;
use semel_core::work::{Fields, Work};

use super::shared::{Shared, hash_of};
use super::store::Changes;
use super::worker::{Run, nonce_of, owner_of};

const TICKS: usize = 4;
const RUNNERS: usize = 2;

static NAME: LazyLock<Name> = LazyLock::new(|| Name::new("j").unwrap());
static OCCURRENCES: LazyLock<[Occurrence; TICKS]> = LazyLock::new(|| {
    let schedule = Schedule::parse("hour").unwrap();
    [0, 1, 2, 3].map(|tick| {
        let at = Timestamp::from_second(1_700_006_400 + 3_600 * tick).unwrap();
        let tick = schedule.tick_at_or_before(&TimeZone::UTC, at).unwrap();
        Occurrence { schedule: schedule.clone(), zone: TimeZone::UTC, tick, grace_ms: 0 }
    })
});
static WORKS: LazyLock<[Work; TICKS]> = LazyLock::new(|| {
    [0, 1, 2, 3].map(|tick: usize| {
        let slot = OCCURRENCES[tick].tick.slot.clone();
        Work::in_slot(NAME.clone(), slot, Fields::new()).unwrap()
    })
});
static POLICY: LazyLock<Policy> = LazyLock::new(Policy::default);
static RESOURCES: LazyLock<[Name; 1]> = LazyLock::new(|| [NAME.clone()]);

fn index_of(tick: &Tick) -> usize {
    OCCURRENCES.iter().position(|known| known.tick == *tick).unwrap()
}

/// A minute past the tick.
fn now_ms(tick: usize) -> u64 {
    u64::try_from(OCCURRENCES[tick].tick.at.as_millisecond()).unwrap() + 60_000
}

/// A fault that is no rule's, so that the search is known to be able to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The gap is not accounted for before the claim.
    GapPassedOver,
    /// The store puts what it should only put where nothing is.
    AbsentIgnored,
    /// What is told of missed slots is written last.
    ToldLast,
}

/// The bounds of a search.
#[derive(Clone, Copy, Debug)]
pub struct Slots {
    pub changes: Changes,
    /// Slots that are put on record in one swap.
    pub piece: usize,
    /// Firings of each runner.
    pub firings: [u8; RUNNERS],
    /// Crashes, answers that are lost, and firings by a clock that is a tick behind, in all.
    pub troubles: u8,
    pub fault: Fault,
}

/// A value that is hashed by what it shows of itself: some of these cannot be hashed.
#[derive(Clone, Debug)]
struct Shown<T>(Shared<Text<T>>);

#[derive(Debug)]
struct Text<T>(T);

impl<T: Debug> Hash for Text<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        format!("{:?}", self.0).hash(state);
    }
}

impl<T> Hash for Shown<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<T: Debug> Shown<T> {
    fn new(value: T) -> Shown<T> {
        Shown(Shared::new(Text(value)))
    }

    fn get(&self) -> &T {
        &self.0.0
    }
}

#[derive(Clone, Debug)]
struct Row<T> {
    value: Shown<T>,
    version: i64,
}

impl<T> Hash for Row<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.value, self.version).hash(state);
    }
}

type Place<T> = Option<Row<T>>;

fn seen<T: Clone + Debug>(place: &Place<T>) -> Option<Seen<T>> {
    let row = place.as_ref()?;
    Some(Seen { value: row.value.get().clone(), version: Version::from(row.version) })
}

fn put<T: Clone + Debug>(place: &mut Place<T>, value: &T) {
    let version = place.as_ref().map_or(1, |row| row.version + 1);
    *place = Some(Row { value: Shown::new(value.clone()), version });
}

#[derive(Clone, Debug, Default, Hash)]
struct Store {
    lease: Place<Lease>,
    entries: [Place<Entry>; TICKS],
    calendar: Place<Calendar>,
    alarm: Place<Alarm>,
}

fn entry_index(entry: &Entry) -> usize {
    WORKS.iter().position(|work| *work == entry.work).unwrap()
}

impl Store {
    fn meets(&self, write: &Write, fault: Fault) -> bool {
        let (expect, version) = match write {
            Write::Lease { expect, .. } => (expect, self.lease.as_ref().map(|row| row.version)),
            Write::Guard(guard) => (&guard.expect, self.lease.as_ref().map(|row| row.version)),
            Write::Entry { entry, expect } => {
                (expect, self.entries[entry_index(entry)].as_ref().map(|row| row.version))
            }
            Write::Calendar { expect, .. } => (expect, self.calendar.as_ref().map(|row| row.version)),
            Write::Alarm { expect, .. } => (expect, self.alarm.as_ref().map(|row| row.version)),
            Write::Stands(_) => unreachable!(),
        };
        match expect {
            Expect::Absent => version.is_none() || fault == Fault::AbsentIgnored,
            // no lease lapses here
            Expect::Lapsed(_) => false,
            Expect::Version(seen) | Expect::Live(seen) => version.map(Version::from).as_ref() == Some(seen),
        }
    }

    /// Answers whether it put a slot on record as missed that had an entry.
    fn make(&mut self, write: &Write) -> bool {
        match write {
            Write::Lease { lease, .. } => put(&mut self.lease, lease),
            Write::Calendar { calendar, .. } => put(&mut self.calendar, calendar),
            Write::Alarm { alarm, .. } => put(&mut self.alarm, alarm),
            Write::Entry { entry, .. } => {
                let place = &mut self.entries[entry_index(entry)];
                let over = place.is_some() && matches!(entry.state, State::Missed { .. });
                put(place, entry);
                return over;
            }
            Write::Guard(_) | Write::Stands(_) => {}
        }
        false
    }
}

/// What a runner has sent: these writes, of which so many were made.
#[derive(Clone, Debug, Hash)]
struct Sent {
    writes: Shown<Vec<Write>>,
    made: usize,
    settles: bool,
}

#[derive(Clone, Debug, Hash)]
enum Phase {
    Look,
    LookAtCalendar,
    LookAtSlots(Shown<Seen<Calendar>>),
    LookAtAlarm(Shown<Seen<Calendar>>, Vec<usize>),
    Sending(Sent),
    Holding(Grant),
}

/// A firing.
#[derive(Clone, Debug, Hash)]
struct Active {
    run: Run,
    /// The tick that is due, by its clock.
    tick: usize,
    phase: Phase,
}

#[derive(Clone, Debug, Default, Hash)]
struct Runner {
    fired: u8,
    active: Option<Active>,
}

#[derive(Clone, Debug, Hash)]
struct World {
    tick: usize,
    store: Store,
    runners: [Runner; RUNNERS],
    troubles: u8,
    /// Slots that were ever put on record as missed, and slots that were ever begun: a bit each.
    missed: u8,
    begun: u8,
    missed_over_an_entry: bool,
}

/// A step of the world.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Tick,
    Fire(usize),
    FireBehind(usize),
    /// It looks, decides, or sends on.
    Go(usize),
    /// The store makes it, and nobody hears of it.
    Unheard(usize),
    Crash(usize),
}

/// What a search came to.
#[derive(Debug, Default)]
pub struct Found {
    pub states: usize,
    /// What does not hold, and how that was reached.
    pub broken: Option<(&'static str, Vec<Step>)>,
    /// What was reached.
    pub reached: HashSet<&'static str>,
}

impl Slots {
    /// Look at every state, until something does not hold.
    pub fn search(&self) -> Found {
        let first = World {
            tick: 0,
            store: Store::default(),
            runners: Default::default(),
            troubles: self.troubles,
            missed: 0,
            begun: 0,
            missed_over_an_entry: false,
        };
        let mut found = Found::default();
        let mut known = HashSet::from([hash_of(&first)]);
        let mut paths: Vec<Option<(usize, Step)>> = vec![None];
        let mut queue = VecDeque::from([(0, first)]);
        while let Some((at, world)) = queue.pop_front() {
            found.reached.extend(reached(&world));
            if let Some(property) = self.broken(&world) {
                found.broken = Some((property, path_to(&paths, at)));
                break;
            }
            for step in self.steps(&world) {
                let Some(next) = self.next(&world, step) else { continue };
                if known.insert(hash_of(&next)) {
                    paths.push(Some((at, step)));
                    queue.push_back((paths.len() - 1, next));
                }
            }
        }
        found.states = known.len();
        found
    }

    fn steps(&self, world: &World) -> Vec<Step> {
        let mut steps = Vec::new();
        if world.tick + 1 < TICKS {
            steps.push(Step::Tick);
        }
        for (r, runner) in world.runners.iter().enumerate() {
            // which of them is the first does not matter
            let first = r == 0 || world.runners[0].fired > 0;
            match &runner.active {
                None if first && runner.fired < self.firings[r] => {
                    steps.extend([Step::Fire(r), Step::FireBehind(r)])
                }
                None => {}
                Some(_) => steps.extend([Step::Go(r), Step::Unheard(r), Step::Crash(r)]),
            }
        }
        steps
    }

    fn next(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Tick => next.tick += 1,
            Step::Fire(r) => next.fire(r, world.tick),
            Step::FireBehind(r) => {
                next.troubles = next.troubles.checked_sub(1)?;
                next.fire(r, world.tick.checked_sub(1)?);
            }
            Step::Go(r) => self.go(&mut next, r)?,
            Step::Unheard(r) => {
                next.troubles = next.troubles.checked_sub(1)?;
                let Phase::Sending(_) = &next.runners[r].active.as_ref()?.phase else { return None };
                self.go(&mut next, r)?;
                next.runners[r].active.as_mut()?.phase = Phase::Look;
            }
            Step::Crash(r) => {
                next.troubles = next.troubles.checked_sub(1)?;
                next.runners[r].active = None;
            }
        }
        Some(next)
    }

    fn go(&self, world: &mut World, r: usize) -> Option<()> {
        let Active { run, tick, phase } = world.runners[r].active.clone()?;
        let next = match phase {
            Phase::Look => self.look(world, run, tick),
            Phase::LookAtCalendar => {
                let seen = seen(&world.store.calendar);
                let gap = calendar::gap(seen.as_ref().map(|seen| &seen.value), &OCCURRENCES[tick]);
                let seen = seen.filter(|_| !gap.is_empty());
                Some(seen.map_or(Phase::Look, |seen| Phase::LookAtSlots(Shown::new(seen))))
            }
            Phase::LookAtSlots(calendar) => {
                let ticks = self.gap(calendar.get(), tick);
                let absent = ticks.iter().map(index_of).filter(|&tick| world.store.entries[tick].is_none());
                Some(Phase::LookAtAlarm(calendar, absent.collect()))
            }
            Phase::LookAtAlarm(calendar, missed) => Some(self.account(world, run, tick, &calendar, &missed)),
            Phase::Sending(sent) => self.send(world, sent),
            Phase::Holding(grant) => world.settle(tick, grant),
        };
        let runner = &mut world.runners[r];
        runner.active = next.map(|phase| Active { run, tick, phase });
        Some(())
    }

    fn gap(&self, calendar: &Seen<Calendar>, tick: usize) -> Vec<Tick> {
        let mut ticks = calendar::gap(Some(&calendar.value), &OCCURRENCES[tick]).ticks;
        ticks.truncate(self.piece);
        ticks
    }

    fn look(&self, world: &mut World, run: Run, tick: usize) -> Option<Phase> {
        let view = world.view(tick);
        let gap = calendar::gap(view.calendar.as_ref().map(|seen| &seen.value), &OCCURRENCES[tick]);
        if !gap.is_empty() && self.fault != Fault::GapPassedOver {
            return Some(Phase::LookAtCalendar);
        }
        let owner = owner_of("h", run);
        let ask = Ask {
            work: Some(&WORKS[tick]),
            what: "w",
            resources: &RESOURCES[..],
            policy: &POLICY,
            owner: &owner,
            nonce: nonce_of(run),
            payload: None,
            command: None,
            plan: None,
            definition: None,
            occurrence: Some(&OCCURRENCES[tick]),
            now_ms: now_ms(tick),
        };
        match claim::claim(&view, &ask) {
            Decision::Claim(claim) => Some(sending(claim.writes(), false)),
            Decision::Claimed => world.begin(tick),
            // what is done is done, and whoever is at it goes on
            Decision::Done(_) | Decision::Busy(_) => None,
            other => panic!("no rule should answer so here: {other:?}"),
        }
    }

    fn account(
        &self,
        world: &World,
        run: Run,
        tick: usize,
        calendar: &Shown<Seen<Calendar>>,
        missed: &[usize],
    ) -> Phase {
        let now_ms = now_ms(tick);
        let terms = Terms::of(&POLICY);
        let entry = |&tick: &usize| {
            calendar::missed(WORKS[tick].clone(), Reason::NoTrigger, None, terms.clone(), now_ms)
        };
        let entries: Vec<Entry> = missed.iter().map(entry).collect();
        let alarm = (!missed.is_empty()).then(|| world.told(missed, run, now_ms));
        let ticks = self.gap(calendar.get(), tick);
        let mut writes = calendar::account(calendar.get(), ticks.last().unwrap(), None, entries, alarm);
        if self.fault == Fault::ToldLast && !missed.is_empty() {
            writes.rotate_left(1);
        }
        sending(writes, false)
    }

    /// The store makes the next of these writes, or all of them.
    fn send(&self, world: &mut World, mut sent: Sent) -> Option<Phase> {
        let all = sent.writes.get().clone();
        let due = match self.changes {
            Changes::AllOrNothing => &all[..],
            Changes::OneAfterAnother => &all[sent.made..=sent.made],
        };
        if !due.iter().all(|write| world.store.meets(write, self.fault)) {
            return Some(Phase::Look);
        }
        for write in due {
            world.missed_over_an_entry |= world.store.make(write);
            if let Write::Entry { entry, .. } = write
                && matches!(entry.state, State::Missed { .. })
            {
                world.missed |= 1 << entry_index(entry);
            }
        }
        sent.made += due.len();
        match (sent.made == all.len(), sent.settles) {
            (false, _) => Some(Phase::Sending(sent)),
            (true, true) => None,
            // a claim finds itself, and what was accounted for is looked at again
            (true, false) => Some(Phase::Look),
        }
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        let is_on_record = |tick: usize| world.store.entries[tick].is_some();
        let accounted = world.store.calendar.as_ref().map(|row| row.value.get());
        let silent = accounted.is_some_and(|calendar| {
            let at_ms = |tick: usize| OCCURRENCES[tick].tick.at.as_millisecond();
            let within = |tick: &usize| (calendar.since_ms..=calendar.through_ms).contains(&at_ms(*tick));
            (0..TICKS).filter(within).any(|tick| !is_on_record(tick))
        });
        let alarm = world.store.alarm.as_ref().map(|row| row.value.get());
        let told = alarm.map_or(0, |alarm| alarm.open.iter().map(|open| open.count).sum());
        let notices = alarm.map_or(0, |alarm| alarm.outbox.len());
        let exact = self.changes == Changes::AllOrNothing;
        [
            (world.missed_over_an_entry, MISSED_OVER),
            (silent, SILENT),
            (told < world.missed.count_ones(), UNTOLD),
            (notices > 1 || (exact && told != world.missed.count_ones()), TOLD_TWICE),
        ]
        .into_iter()
        .find_map(|(is_so, property)| is_so.then_some(property))
    }
}

pub const MISSED_OVER: &str = "no slot is put on record as missed that has an entry";
pub const SILENT: &str = "every slot that is accounted for was claimed or is on record as missed";
pub const UNTOLD: &str = "no slot is on record as missed that nobody is told of";
pub const TOLD_TWICE: &str = "slots that were missed are told once";

fn sending(writes: Vec<Write>, settles: bool) -> Phase {
    Phase::Sending(Sent { writes: Shown::new(writes), made: 0, settles })
}

fn path_to(paths: &[Option<(usize, Step)>], mut at: usize) -> Vec<Step> {
    let mut path = Vec::new();
    while let Some((before, step)) = paths[at] {
        path.push(step);
        at = before;
    }
    path.reverse();
    path
}

fn reached(world: &World) -> impl Iterator<Item = &'static str> {
    let lags = world.store.calendar.as_ref().is_some_and(|row| {
        let through_ms = row.value.get().through_ms;
        (0..TICKS).any(|tick| {
            world.store.entries[tick].is_some() && OCCURRENCES[tick].tick.at.as_millisecond() > through_ms
        })
    });
    let idle = world.runners.iter().all(|runner| runner.active.is_none());
    let entries = || world.store.entries.iter().flatten().map(|row| &row.value.get().state);
    [
        (lags && idle, "a calendar is left behind its entries"),
        (world.missed & world.begun != 0, "a slot that was missed is run after all"),
        (world.missed.count_ones() >= 2, "two slots are missed"),
        (
            world.store.entries.iter().all(Option::is_some)
                && entries().all(|state| matches!(state, State::Done { .. } | State::Missed { .. })),
            "every slot is done or missed",
        ),
        (entries().filter(|state| matches!(state, State::Done { .. })).count() == TICKS, "all are done"),
    ]
    .into_iter()
    .filter_map(|(is_so, name)| is_so.then_some(name))
}

impl World {
    fn fire(&mut self, r: usize, tick: usize) {
        let runner = &mut self.runners[r];
        let run = u8::try_from(r * 16 + 1).unwrap() + runner.fired;
        runner.fired += 1;
        runner.active = Some(Active { run, tick, phase: Phase::Look });
    }

    fn view(&self, tick: usize) -> View {
        let lease = seen(&self.store.lease).map(|record| {
            let standing = Standing::Live { left_ms: 1 };
            let alive = |pid: i32| {
                self.runners.iter().flat_map(|r| &r.active).any(|active| i32::from(active.run) == pid)
            };
            let owner_gone = record.value.hold.as_ref().is_some_and(|hold| !alive(hold.owner.pid));
            SeenLease { record, standing, owner_gone }
        });
        View {
            entry: seen(&self.store.entries[tick]),
            calendar: seen(&self.store.calendar),
            alarm: None,
            leases: vec![(NAME.clone(), lease)],
            token_floor: 0,
        }
    }

    /// The claim stands: its command runs.
    fn begin(&mut self, tick: usize) -> Option<Phase> {
        let entry = seen(&self.store.entries[tick])?;
        let State::Running { grant, .. } = entry.value.state else { return None };
        self.begun |= 1 << tick;
        Some(Phase::Holding(grant))
    }

    fn settle(&mut self, tick: usize, grant: Grant) -> Option<Phase> {
        let view = self.view(tick);
        let entry = view.entry.as_ref()?;
        let ask = Settle {
            grant: &grant,
            ending: Ending::Succeeded,
            result: None,
            output: None,
            failed_tries: 0,
            missed_renewals: 0,
            unrenewed_ms: 0,
            now_ms: now_ms(tick),
        };
        let lease = view.leases[0].1.as_ref();
        let conclusion = conclude(entry, lease, &ask, After::Release { rest_ms: 0 }).ok()?;
        Some(sending(conclusion.writes(&NAME), true))
    }

    fn told(&self, missed: &[usize], run: Run, now_ms: u64) -> Write {
        let anomaly = Anomaly {
            kind: Kind::Missed,
            work: WORKS[missed[0]].to_string(),
            at_ms: now_ms,
            why: String::new(),
            slots: u32::try_from(missed.len()).unwrap(),
        };
        let seen = seen(&self.store.alarm);
        let stands = seen.as_ref().map(|seen| &seen.value);
        let alarm = alarm::raise(stands, &NAME, &[anomaly], &["l".to_owned()], || nonce_of(run)).unwrap();
        let expect = seen.as_ref().map_or(Expect::Absent, |seen| Expect::Version(seen.version.clone()));
        Write::Alarm { alarm, expect }
    }
}
