//! Faults, dealt from a seed: a deck of cards is shuffled, dealt one by one, each when so many more calls were answered,
//! and shuffled again. So the same seed deals the same faults after as many calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use semel_testkit::{Chance, Proxy, Server};

use crate::arena::Tally;

/// Calls from one fault to the next: 20 to 119.
const GAP: (u64, u64) = (20, 100);
/// After so long without an answer the next fault comes all the same: the last one may be what keeps them waiting.
const STILL: Duration = Duration::from_secs(3);

/// How often each came.
type Faults = Arc<Mutex<BTreeMap<&'static str, u64>>>;
type Act = Box<dyn FnMut(&mut Chance) + Send>;

/// A fault: it begins and, if it lasts, ends within the call.
pub(crate) struct Card {
    pub(crate) name: &'static str,
    /// How often it is in the deck.
    times: u32,
    act: Act,
}

impl Card {
    pub(crate) fn new(name: &'static str, times: u32, act: impl FnMut(&mut Chance) + Send + 'static) -> Card {
        Card { name, times, act: Box::new(act) }
    }
}

pub(crate) struct Nemesis {
    ends: Arc<AtomicBool>,
    faults: Faults,
    thread: JoinHandle<()>,
}

impl Nemesis {
    pub(crate) fn start(deck: Vec<Card>, chance: Chance, tally: Arc<Tally>) -> Nemesis {
        let (ends, faults) = (Arc::new(AtomicBool::new(false)), Faults::default());
        let (end, count) = (Arc::clone(&ends), Arc::clone(&faults));
        let thread = std::thread::spawn(move || deal(deck, chance, &tally, &end, &count));
        Nemesis { ends, faults, thread }
    }

    /// Let the last one end; how often each came.
    pub(crate) fn end(self) -> BTreeMap<&'static str, u64> {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        self.faults.lock().unwrap().clone()
    }
}

fn deal(mut deck: Vec<Card>, mut chance: Chance, tally: &Tally, end: &AtomicBool, faults: &Faults) {
    let all: Vec<usize> = (0..deck.len()).flat_map(|card| (0..deck[card].times).map(move |_| card)).collect();
    let mut left: Vec<usize> = Vec::new();
    let mut next = 0;
    while !all.is_empty() {
        if left.is_empty() {
            left.clone_from(&all);
            chance.shuffle(&mut left);
        }
        next += GAP.0 + chance.below(GAP.1);
        let begun = Instant::now();
        while tally.answered() < next && begun.elapsed() < STILL {
            if end.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let card = &mut deck[left.pop().unwrap()];
        *faults.lock().unwrap().entry(card.name).or_default() += 1;
        (card.act)(&mut chance);
    }
}

pub(crate) fn wait(chance: &mut Chance, from_ms: u64, to_ms: u64) {
    std::thread::sleep(Duration::from_millis(from_ms + chance.below(to_ms - from_ms)));
}

/// What can happen to connections.
pub(crate) fn network(proxies: &Arc<Vec<Proxy>>) -> Vec<Card> {
    let card = |name, times, act: fn(&Proxy, &mut Chance)| {
        let proxies = Arc::clone(proxies);
        Card::new(name, times, move |chance| {
            let many = proxies.len() as u64;
            act(&proxies[usize::try_from(chance.below(many)).unwrap()], chance);
        })
    };
    vec![
        card("lost replies", 6, |proxy, chance| {
            proxy.lose_replies(1 + u32::try_from(chance.below(3)).unwrap());
            wait(chance, 5, 60);
            proxy.pass();
        }),
        card("cuts", 2, |proxy, chance| {
            proxy.cut();
            wait(chance, 5, 60);
            proxy.pass();
        }),
        card("breaks", 4, |proxy, _| proxy.break_all()),
        card("delays", 3, |proxy, chance| {
            proxy.delay(Duration::from_millis(1 + chance.below(8)));
            wait(chance, 20, 80);
            proxy.pass();
        }),
        card("swallows", 2, |proxy, chance| {
            proxy.swallow();
            wait(chance, 5, 60);
            proxy.break_all();
            proxy.pass();
        }),
    ]
}

/// What can happen to a server that has on disk what it answered. One lock: nothing is stopped while it is started.
pub(crate) fn server<S: Send + 'static>(
    server: &Arc<Mutex<S>>,
    process: fn(&mut S) -> &mut Server,
) -> Vec<Card> {
    let killed = Arc::clone(server);
    let mut cards = stops(server, process);
    cards.push(Card::new("kills", 1, move |chance| {
        let mut server = killed.lock().unwrap();
        let server = process(&mut server);
        server.kill();
        wait(chance, 1, 30);
        server.start_again();
    }));
    cards
}

/// What can happen to a server that forgets when it ends.
pub(crate) fn stops<S: Send + 'static>(
    server: &Arc<Mutex<S>>,
    process: fn(&mut S) -> &mut Server,
) -> Vec<Card> {
    let stopped = Arc::clone(server);
    vec![Card::new("stops", 3, move |chance| {
        let mut server = stopped.lock().unwrap();
        let server = process(&mut server);
        server.pause();
        wait(chance, 10, 120);
        server.resume();
    })]
}
