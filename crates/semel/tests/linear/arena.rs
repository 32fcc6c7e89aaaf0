//! Many islands on one store, under faults; what came of them, in one line.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use semel::core::record::{Expect, RecordKey};
use semel::store::{Change, Durability, Store, StoreError, Swaps};
use semel_testkit::{Chance, counted, rounds};
use tokio::task::JoinSet;

use crate::history::{self, Answer, Promise};
use crate::island::{Client, Island};
use crate::nemesis::{Card, Nemesis};
use crate::spec::{self, Said, Verdict};

/// Calls per store, unless `SEMEL_ROUNDS` says otherwise.
pub(crate) const CALLS: u64 = 5_000;
/// Islands at a time.
const AT_ONCE: usize = 5;
/// So many unavailable answers for one that is not: the store does not come back.
const TOO_MANY: u64 = 20;

/// How often a handle is tried before the first fault.
const FIRST_USES: u32 = 30;

/// What is asked, and by whom.
pub(crate) struct Arena {
    pub(crate) name: &'static str,
    /// The first one meets no fault of the network. Clients of one island have different ones.
    pub(crate) handles: Vec<Arc<dyn Store>>,
    pub(crate) deck: Vec<Card>,
}

/// Counted as it comes.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    answered: AtomicU64,
    refused: AtomicU64,
    unknown: AtomicU64,
    cancelled: AtomicU64,
    unavailable: AtomicU64,
}

impl Tally {
    pub(crate) fn count(&self, answer: &Answer, cancelled: bool) {
        let one = |counter: &AtomicU64| counter.fetch_add(1, Ordering::SeqCst);
        match answer {
            Answer::Unavailable => one(&self.unavailable),
            Answer::Unknown if cancelled => one(&self.cancelled),
            Answer::Unknown => one(&self.unknown),
            Answer::Said(Said::Refused { .. }) => one(&self.refused),
            Answer::Said(_) => 0,
        };
        if *answer != Answer::Unavailable {
            one(&self.answered);
        }
    }

    /// Calls that have, or may have, an effect or an answer.
    pub(crate) fn answered(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) line: String,
    name: &'static str,
    calls: u64,
    seed: u64,
    /// Islands that fit no order, as they were.
    pub(crate) broken: Vec<String>,
    /// Islands whose check was given up.
    pub(crate) too_long: Vec<String>,
    /// Islands at whose end nobody could look: what is not seen is not checked.
    pub(crate) unseen: Vec<String>,
    /// Where nothing went wrong, nothing was shown: what such a run missed.
    pub(crate) untried: Vec<String>,
}

impl Outcome {
    pub(crate) fn holds(&self) {
        println!("{}", self.line);
        let wrong = (self.broken.len() + self.too_long.len()) as u64;
        counted("linear", self.name, self.calls, "calls", wrong, Some(self.seed));
        let all = [&self.broken, &self.too_long, &self.unseen, &self.untried].into_iter().flatten();
        let all: Vec<&str> = all.take(3).map(String::as_str).collect();
        assert!(all.is_empty(), "{}\n{}", self.line, all.concat());
    }
}

enum Checked {
    Fits,
    Broken(String),
    TooLong(String),
    Unseen(String),
}

impl Arena {
    /// On as many threads as make calls truly meet each other.
    pub(crate) fn run(self) -> Outcome {
        self.run_for(rounds(CALLS))
    }

    /// At least so many calls that were answered, or may have been done.
    pub(crate) fn run_for(self, calls: u64) -> Outcome {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        let begun = std::time::Instant::now();
        let mut chance = Chance::new(&format!("linear {}", self.name));
        let seed = chance.seed();
        let tally = Arc::new(Tally::default());
        let mut outcome = Outcome { name: self.name, seed, ..Outcome::default() };
        // a first use may take longer than any other: a schema is made, a service is asked to prove itself
        runtime.block_on(first_uses(&self.handles));
        let dealt = self.deck.iter().map(|card| card.name).collect::<Vec<_>>();
        let nemesis = Nemesis::start(self.deck, chance.split(), Arc::clone(&tally));
        let promise = match self.handles[0].swaps() {
            Swaps::Whole => Promise::Whole,
            Swaps::InOrder => Promise::InOrder,
        };
        let islands = runtime.block_on(islands(&self.handles, promise, calls, chance, &tally, &mut outcome));
        let faults = nemesis.end();
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        outcome.calls = tally.answered();
        outcome.line = format!(
            "{}: {} calls on {islands} islands in {:.1} s: {} refused, {} unknown, {} cancelled, {} unavailable; faults: {}; \
             {} islands fit no order, {} took too long, {} were not seen at their end; SEMEL_SEED={seed}",
            self.name,
            tally.answered(),
            begun.elapsed().as_secs_f64(),
            count(&tally.refused),
            count(&tally.unknown),
            count(&tally.cancelled),
            count(&tally.unavailable),
            told(&faults),
            outcome.broken.len(),
            outcome.too_long.len(),
            outcome.unseen.len(),
        );
        if calls >= CALLS {
            outcome.untried = untried(&dealt, &faults, count(&tally.unknown));
        }
        // handles whose verbs still wait for something end with their runtime
        runtime.shutdown_background();
        outcome
    }
}

fn told(faults: &BTreeMap<&'static str, u64>) -> String {
    let all: Vec<String> = faults.iter().map(|(name, times)| format!("{times} {name}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// Over so many calls every kind of fault comes, and some of them leave a call without an answer.
pub(crate) fn untried(
    dealt: &[&'static str],
    faults: &BTreeMap<&'static str, u64>,
    unknown: u64,
) -> Vec<String> {
    let mut missing: Vec<String> = dealt
        .iter()
        .filter(|name| !faults.contains_key(*name))
        .map(|name| format!("there were no {name}\n"))
        .collect();
    if !dealt.is_empty() && unknown == 0 {
        missing.push("no answer was unknown\n".to_owned());
    }
    missing
}

/// Each handle writes until it is answered.
async fn first_uses(handles: &[Arc<dyn Store>]) {
    for (number, store) in handles.iter().enumerate() {
        let key = RecordKey::from_stored(format!("entry/first/{number}"));
        let create = Change::Put { key, expect: Expect::Absent, value: Vec::new(), ttl: None };
        let mut last = None;
        for _ in 0..FIRST_USES {
            match store.swap(std::slice::from_ref(&create), Durability::Durable).await {
                Ok(_) | Err(StoreError::Refused(_)) => {
                    last = None;
                    break;
                }
                Err(why) => last = Some(why),
            }
        }
        assert!(last.is_none(), "handle {number} cannot be used: {last:?}");
    }
}

async fn islands(
    handles: &[Arc<dyn Store>],
    promise: Promise,
    calls: u64,
    mut chance: Chance,
    tally: &Arc<Tally>,
    outcome: &mut Outcome,
) -> u64 {
    let mut number = 0;
    let mut playing = JoinSet::new();
    loop {
        while playing.len() < AT_ONCE && tally.answered() < calls {
            playing.spawn(island(number, handles.to_vec(), promise, chance.split(), Arc::clone(tally)));
            number += 1;
        }
        let Some(checked) = playing.join_next().await else { return number };
        match checked.unwrap() {
            Checked::Fits => {}
            Checked::Broken(why) => outcome.broken.push(why),
            Checked::TooLong(why) => outcome.too_long.push(why),
            Checked::Unseen(why) => outcome.unseen.push(why),
        }
        let unavailable = tally.unavailable.load(Ordering::SeqCst);
        assert!(
            unavailable < TOO_MANY * (calls + tally.answered()),
            "the store does not come back: {tally:?}"
        );
    }
}

/// One island from its first call to its verdict.
async fn island(
    number: u64,
    mut handles: Vec<Arc<dyn Store>>,
    promise: Promise,
    mut chance: Chance,
    tally: Arc<Tally>,
) -> Checked {
    let slots = 1 + usize::try_from(chance.below(3)).unwrap();
    let island = Arc::new(Island::new(number, slots, promise, tally));
    let sound = Arc::clone(&handles[0]);
    chance.shuffle(&mut handles);
    let clients = 3 + usize::try_from(chance.below(3)).unwrap();
    let calls = 30 + chance.below(31);
    let mut playing = Vec::new();
    for (index, store) in handles.into_iter().cycle().take(clients).enumerate() {
        let client = Client::new(index, &island, store, chance.split());
        playing.push(tokio::spawn(client.play(calls / clients as u64)));
    }
    for client in playing {
        client.await.unwrap();
    }
    let seen = Client::new(clients, &island, sound, chance.split()).look().await;
    tokio::task::spawn_blocking(move || verdict(number, &island, promise, seen)).await.unwrap()
}

/// `seen`: somebody looked at its end.
fn verdict(number: u64, island: &Island, promise: Promise, seen: bool) -> Checked {
    let (calls, wrong) = island.recorded();
    let text = |why: &str| format!("island {number}: {why}\n{}", history::told(&calls));
    if let Some(wrong) = wrong.first() {
        return Checked::Broken(text(wrong));
    }
    match spec::check(&history::steps(&calls, promise)) {
        Verdict::Fits if !seen => Checked::Unseen(text("nobody could look at its end")),
        Verdict::Fits => Checked::Fits,
        Verdict::FitsNoOrder => Checked::Broken(text("its answers fit no order")),
        Verdict::TooLong => Checked::TooLong(text("the check took too long")),
    }
}
