//! The clients of one island, and what each of them draws.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::core::record::{Expect, RecordKey, Standing, Version};
use semel::store::{Change, Durability, Record, Store, StoreError};
use semel_testkit::Chance;

use crate::arena::Tally;
use crate::history::{Answer, Call, Promise};
use crate::spec::{Act, Asked, NEVER, Part, SLOTS, Said, Want, Write};

/// Longer than any test.
const TTL: Duration = Duration::from_secs(3600);
/// How often a last look is tried, when the store does not answer.
const LOOKS: u32 = 200;

/// A record as a client saw it.
#[derive(Clone, Debug)]
struct Seen {
    write: Write,
    version: Version,
}

/// Which version belongs to which write, both ways, for each record.
#[derive(Default)]
struct Versions {
    writes: HashMap<(usize, Version), Write>,
    versions: HashMap<(usize, Write), Version>,
}

/// Up to three records that nobody else uses.
pub(crate) struct Island {
    number: u64,
    keys: Vec<RecordKey>,
    promise: Promise,
    /// Counts begins and ends.
    moments: AtomicU64,
    writes: AtomicU32,
    calls: Mutex<Vec<Call>>,
    versions: Mutex<Versions>,
    /// Answers that are wrong by themselves.
    wrong: Mutex<Vec<String>>,
    tally: Arc<Tally>,
}

impl Island {
    pub(crate) fn new(number: u64, slots: usize, promise: Promise, tally: Arc<Tally>) -> Island {
        assert!((1..=SLOTS).contains(&slots));
        let key = |slot| RecordKey::from_stored(format!("entry/linear/{number:06}/{slot}"));
        Island {
            number,
            keys: (0..slots).map(key).collect(),
            promise,
            moments: AtomicU64::new(0),
            writes: AtomicU32::new(0),
            calls: Mutex::default(),
            versions: Mutex::default(),
            wrong: Mutex::default(),
            tally,
        }
    }

    /// What was recorded, and what was wrong by itself.
    pub(crate) fn recorded(&self) -> (Vec<Call>, Vec<String>) {
        (self.calls.lock().unwrap().clone(), self.wrong.lock().unwrap().clone())
    }

    fn moment(&self) -> u64 {
        self.moments.fetch_add(1, Ordering::SeqCst)
    }

    fn new_write(&self, clocked: bool) -> Write {
        Write { number: self.writes.fetch_add(1, Ordering::SeqCst), clocked }
    }

    fn value(&self, write: Write) -> String {
        format!("{}/{}/{}", self.number, write.number, if write.clocked { "clock" } else { "none" })
    }

    fn blame(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    /// This version was told together with this write.
    fn pair(&self, slot: usize, version: &Version, write: Write) {
        let mut known = self.versions.lock().unwrap();
        let other = *known.writes.entry((slot, version.clone())).or_insert(write);
        if other != write {
            self.blame(format!("{slot}: version {version:?} is of {other:?} and of {write:?}"));
        }
        let other = known.versions.entry((slot, write)).or_insert_with(|| version.clone());
        if other != version {
            self.blame(format!("{slot}: {write:?} has the versions {other:?} and {version:?}"));
        }
    }

    /// A record as it was handed back.
    fn read(&self, slot: usize, record: &Record) -> Option<Seen> {
        let text = String::from_utf8_lossy(&record.value).into_owned();
        let mut words = text.split('/');
        let (island, number, clock) = (words.next(), words.next(), words.next());
        let number = number.and_then(|number| number.parse().ok());
        let (Some(number), true) = (number, island == Some(&self.number.to_string())) else {
            self.blame(format!("{slot}: a value that nobody wrote: {text:?}"));
            return None;
        };
        let write = Write { number, clocked: clock == Some("clock") };
        if record.key != self.keys[slot] {
            self.blame(format!("{slot}: the record of {} was handed back", record.key));
        }
        if matches!(record.standing, Some(Standing::Live { .. })) != write.clocked
            || matches!(record.standing, Some(Standing::Lapsed { .. }))
        {
            self.blame(format!("{slot}: {write:?} stands as {:?}", record.standing));
        }
        self.pair(slot, &record.version, write);
        Some(Seen { write, version: record.version.clone() })
    }
}

/// What a client knows of one record.
#[derive(Clone, Debug, Default)]
struct Known {
    stands: Option<Seen>,
    /// What it saw before that.
    old: Option<Seen>,
}

impl Known {
    fn learn(&mut self, stands: Option<Seen>) {
        if let Some(was) = std::mem::replace(&mut self.stands, stands) {
            self.old = Some(was);
        }
    }
}

/// One who calls.
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) island: Arc<Island>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) chance: Chance,
    known: Vec<Known>,
}

/// A call, with the versions that the store knows.
struct Draft {
    asked: Asked,
    keys: Vec<RecordKey>,
    changes: Vec<Change>,
    version: Option<Version>,
}

impl Client {
    pub(crate) fn new(number: usize, island: &Arc<Island>, store: Arc<dyn Store>, chance: Chance) -> Client {
        let known = vec![Known::default(); island.keys.len()];
        Client { number, island: Arc::clone(island), store, chance, known }
    }

    /// So many calls.
    pub(crate) async fn play(mut self, calls: u64) {
        for _ in 0..calls {
            let draft = self.draw();
            let patience = Patience::draw(&mut self.chance);
            if self.call(draft, patience).await == Answer::Unavailable {
                tokio::time::sleep(Duration::from_millis(1 + self.chance.below(10))).await;
            }
        }
    }

    /// Look at all records until the store answers.
    pub(crate) async fn look(mut self) -> bool {
        for _ in 0..LOOKS {
            let slots = (0..self.known.len()).collect();
            if matches!(self.call(self.load(slots), Patience::Endless).await, Answer::Said(_)) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    async fn call(&mut self, draft: Draft, patience: Patience) -> Answer {
        let store = Arc::clone(&self.store);
        let begun = self.island.moment();
        let answered = tokio::select! {
            biased;
            answer = verb(&*store, &draft) => Some(answer),
            () = patience.ends() => None,
        };
        let ended = self.island.moment();
        let tally = Arc::clone(&self.island.tally);
        let cancelled = answered.is_none();
        let answer = match answered {
            None => Answer::Unknown,
            Some(answer) => self.learn(&draft, answer),
        };
        tally.count(&answer, cancelled);
        let ended = if answer == Answer::Unknown { NEVER } else { ended };
        let call = Call { client: self.number, begun, ended, asked: draft.asked, answer: answer.clone() };
        self.island.calls.lock().unwrap().push(call);
        answer
    }

    fn learn(&mut self, draft: &Draft, answer: Result<Told, StoreError>) -> Answer {
        match (&draft.asked, answer) {
            (_, Err(StoreError::Unavailable(_))) => Answer::Unavailable,
            (_, Err(StoreError::Unknown(_))) => Answer::Unknown,
            (asked, Err(StoreError::Refused(conflict))) => {
                let slot = match asked {
                    Asked::Swap(parts) => parts.get(conflict.index).map(|part| part.slot),
                    Asked::Touch(slot, _) => Some(*slot),
                    Asked::Load(_) => None,
                };
                let Some(slot) = slot.filter(|slot| self.island.keys[*slot] == conflict.key) else {
                    self.island.blame(format!("{asked:?} is refused with {conflict:?}"));
                    return Answer::Unknown;
                };
                let seen = conflict.stands.as_ref().and_then(|record| self.island.read(slot, record));
                let stands = seen.as_ref().map(|seen| seen.write);
                self.known[slot].learn(seen);
                Answer::Said(Said::Refused { index: conflict.index, stands })
            }
            (Asked::Load(slots), Ok(Told::Loaded(records))) => {
                if records.len() != slots.len() {
                    self.island.blame(format!("{} records for {} keys", records.len(), slots.len()));
                }
                let mut all = Vec::new();
                for (slot, record) in slots.iter().zip(&records) {
                    let seen = record.as_ref().and_then(|record| self.island.read(*slot, record));
                    all.push(seen.as_ref().map(|seen| seen.write));
                    self.known[*slot].learn(seen);
                }
                Answer::Said(Said::Saw(all))
            }
            (Asked::Swap(parts), Ok(Told::Swapped(versions))) => {
                if versions.len() != parts.len() {
                    self.island.blame(format!("{} versions for {} changes", versions.len(), parts.len()));
                }
                for (part, version) in parts.iter().zip(versions) {
                    self.wrote(part, version);
                }
                Answer::Said(Said::Done)
            }
            (Asked::Touch(..), Ok(Told::Touched)) => Answer::Said(Said::Done),
            (asked, Ok(_)) => unreachable!("{asked:?} is answered by its own verb"),
        }
    }

    fn wrote(&mut self, part: &Part, version: Version) {
        match (part.act, part.want) {
            (Act::Put(write), _) => {
                self.island.pair(part.slot, &version, write);
                self.known[part.slot].learn(Some(Seen { write, version }));
            }
            // a guard's or a removal's is what it had
            (_, Want::At(write) | Want::Live(write) | Want::Lapsed(write)) => {
                self.island.pair(part.slot, &version, write);
            }
            (_, Want::Absent) => {}
        }
        if part.act == Act::Remove {
            self.known[part.slot].learn(None);
        }
    }

    fn draw(&mut self) -> Draft {
        let mut slots: Vec<usize> = (0..self.known.len()).collect();
        self.chance.shuffle(&mut slots);
        let many = match self.chance.below(10) {
            0..6 => 1,
            6..9 => 2,
            _ => SLOTS,
        };
        slots.truncate(many);
        match self.chance.below(20) {
            0..7 => self.load(slots),
            7..10 => self.touch(slots[0]).unwrap_or_else(|| self.load(slots)),
            _ => self.swap(&slots),
        }
    }

    fn load(&self, slots: Vec<usize>) -> Draft {
        let keys = slots.iter().map(|slot| self.island.keys[*slot].clone()).collect();
        Draft { asked: Asked::Load(slots), keys, changes: Vec::new(), version: None }
    }

    fn touch(&mut self, slot: usize) -> Option<Draft> {
        let seen = self.recalled(slot)?;
        let asked = Asked::Touch(slot, seen.write);
        let keys = vec![self.island.keys[slot].clone()];
        Some(Draft { asked, keys, changes: Vec::new(), version: Some(seen.version) })
    }

    /// What it knows of a record; now and then what it knew before.
    fn recalled(&mut self, slot: usize) -> Option<Seen> {
        let known = &self.known[slot];
        let (stands, old) = (known.stands.clone(), known.old.clone());
        if self.chance.below(12) == 0 { old.or(stands) } else { stands }
    }

    fn swap(&mut self, slots: &[usize]) -> Draft {
        let drawn: Vec<(Part, Change)> =
            slots.iter().map(|slot| self.part(*slot, slots.len() == 1)).collect();
        let (parts, changes) = drawn.into_iter().unzip();
        Draft { asked: Asked::Swap(parts), keys: Vec::new(), changes, version: None }
    }

    fn part(&mut self, slot: usize, alone: bool) -> (Part, Change) {
        let (want, expect) = match self.recalled(slot) {
            None => (Want::Absent, Expect::Absent),
            Some(Seen { write, version }) => match self.chance.below(25) {
                0 => (Want::Absent, Expect::Absent),
                1 => (Want::Lapsed(write), Expect::Lapsed(version)),
                2..6 => (Want::Live(write), Expect::Live(version)),
                _ => (Want::At(write), Expect::Version(version)),
            },
        };
        let key = self.island.keys[slot].clone();
        let may_remove = want != Want::Absent && (alone || self.island.promise == Promise::Whole);
        let (act, change) = match self.chance.below(20) {
            0..2 if may_remove => (Act::Remove, Change::Remove { key, expect }),
            2..4 => (Act::Guard, Change::Guard { key, expect }),
            _ => {
                let write = self.island.new_write(self.chance.coin());
                let value = self.island.value(write).into_bytes();
                (Act::Put(write), Change::Put { key, expect, value, ttl: write.clocked.then_some(TTL) })
            }
        };
        (Part { slot, want, act }, change)
    }
}

/// What a verb hands back.
enum Told {
    Loaded(Vec<Option<Record>>),
    Swapped(Vec<Version>),
    Touched,
}

async fn verb(store: &dyn Store, draft: &Draft) -> Result<Told, StoreError> {
    match &draft.asked {
        Asked::Load(_) => store.load(&draft.keys).await.map(|loaded| Told::Loaded(loaded.records)),
        Asked::Swap(_) => store.swap(&draft.changes, Durability::Durable).await.map(Told::Swapped),
        Asked::Touch(..) => {
            let version = draft.version.as_ref().unwrap();
            store.touch(&draft.keys[0], version).await.map(|()| Told::Touched)
        }
    }
}

/// When a client drops its call.
enum Patience {
    Endless,
    /// After so many turns of the runtime: soon, whatever the timers' grain.
    Turns(u64),
    Ms(u64),
}

impl Patience {
    fn draw(chance: &mut Chance) -> Patience {
        match chance.below(60) {
            0 => Patience::Turns(chance.below(4)),
            1 => Patience::Ms(chance.below(6)),
            _ => Patience::Endless,
        }
    }

    async fn ends(self) {
        match self {
            Patience::Endless => std::future::pending().await,
            Patience::Turns(turns) => {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
            }
            Patience::Ms(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }
}
