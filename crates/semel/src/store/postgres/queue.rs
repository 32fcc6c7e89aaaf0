//! Swaps of many tasks in one statement.
//!
//! Theory. All swaps of a process go through one connection, which the server serves in turn, with a commit for each. So
//! those that come while [`AT_ONCE`] statements are under way wait, and the next statement carries all that wait and do
//! not touch each other. It is made whole or not at all: if one of its swaps does not fit, that one is told so, and the
//! others are sent again without it. What no swap can be blamed for, such as a row that another has locked for too long,
//! is found out by sending each alone.
//!
//! Whoever gets a turn sends for the others. If it is dropped meanwhile, what it had sent has no answer for anybody, and
//! they are told just that.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use semel_core::record::Version;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::super::{Change, Durability, StoreError};
use super::verbs::grants;
use super::{Postgres, after};

/// How many statements are under way at once: the server works on one while the other travels.
const AT_ONCE: usize = 2;
/// The most changes, and the most bytes of values, that one statement carries for several swaps.
const MOST_CHANGES: usize = 256;
const MOST_BYTES: usize = 1 << 20;

type Answer = Result<Vec<Version>, StoreError>;

/// Those that wait, and the turns.
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    turns: Semaphore,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { waiting: Mutex::default(), turns: Semaphore::new(AT_ONCE) }
    }
}

#[derive(Default)]
struct Waiting {
    tickets: VecDeque<Ticket>,
    /// How many there have been.
    drawn: u64,
}

/// A swap that waits.
struct Ticket {
    number: u64,
    changes: Vec<Change>,
    durability: Durability,
    end: Instant,
    answer: oneshot::Sender<Answer>,
}

impl Queue {
    pub(super) async fn swap(&self, store: &Postgres, changes: &[Change], durability: Durability) -> Answer {
        let end = after(store.deadline);
        if let Ok(_turn) = self.turns.try_acquire() {
            return store.swap_alone(changes, durability, end).await;
        }
        if !can_share(changes) {
            let Ok(_turn) = timeout_at(end, self.turns.acquire()).await else { return Err(store.late()) };
            return store.swap_alone(changes, durability, end).await;
        }
        let (answer, mut answered) = oneshot::channel();
        let number = self.draw(changes, durability, end, answer);
        while self.holds(number) {
            let turn = tokio::select! {
                biased;
                told = &mut answered => return told.unwrap_or_else(|_| Err(dropped(store))),
                turn = self.turns.acquire() => turn,
                // nobody will send it any more
                () = sleep_until(end) => if self.forget(number) { return Err(store.late()) } else { break },
            };
            send(store, self.next()).await;
            drop(turn);
        }
        // another has sent it
        match timeout_at(end, &mut answered).await {
            Ok(told) => told.unwrap_or_else(|_| Err(dropped(store))),
            Err(_) => answered.try_recv().unwrap_or_else(|_| Err(dropped(store))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(
        &self,
        changes: &[Change],
        durability: Durability,
        end: Instant,
        answer: oneshot::Sender<Answer>,
    ) -> u64 {
        let changes = changes.to_vec();
        let mut waiting = self.lock();
        waiting.drawn += 1;
        let number = waiting.drawn;
        waiting.tickets.push_back(Ticket { number, changes, durability, end, answer });
        number
    }

    /// Does it still wait?
    fn holds(&self, number: u64) -> bool {
        self.lock().tickets.iter().any(|ticket| ticket.number == number)
    }

    /// Take it back; false if it was sent.
    fn forget(&self, number: u64) -> bool {
        let mut waiting = self.lock();
        let before = waiting.tickets.len();
        waiting.tickets.retain(|ticket| ticket.number != number);
        waiting.tickets.len() < before
    }

    /// The first that waits, and all behind it that can go with it. Who has gone is forgotten.
    fn next(&self) -> Vec<Ticket> {
        let mut waiting = self.lock();
        let mut group = Group::default();
        let mut left = VecDeque::with_capacity(waiting.tickets.len());
        for ticket in waiting.tickets.drain(..).filter(|ticket| !ticket.answer.is_closed()) {
            left.extend(group.take(ticket));
        }
        waiting.tickets = left;
        group.tickets
    }
}

/// Swaps that go together.
#[derive(Default)]
struct Group {
    tickets: Vec<Ticket>,
    /// Every key that they look at, and whether one of them writes it.
    keys: HashMap<String, bool>,
    changes: usize,
    bytes: usize,
}

impl Group {
    /// Take it in, or give it back.
    fn take(&mut self, ticket: Ticket) -> Option<Ticket> {
        let bytes: usize = ticket.changes.iter().map(weight).sum();
        let fits = match self.tickets.first() {
            None => true,
            Some(first) => {
                first.durability == ticket.durability
                    && self.changes + ticket.changes.len() <= MOST_CHANGES
                    && self.bytes + bytes <= MOST_BYTES
                    && ticket.changes.iter().all(|change| !self.crosses(change))
            }
        };
        if !fits {
            return Some(ticket);
        }
        for change in &ticket.changes {
            *self.keys.entry(change.key().as_str().to_owned()).or_default() |= writes(change);
        }
        self.changes += ticket.changes.len();
        self.bytes += bytes;
        self.tickets.push(ticket);
        None
    }

    /// Two may look at a record; what one writes is no other's to look at.
    fn crosses(&self, change: &Change) -> bool {
        self.keys.get(change.key().as_str()).is_some_and(|written| *written || writes(change))
    }
}

/// A grant is refused by its epoch, which is told of no change in particular: it goes alone.
fn can_share(changes: &[Change]) -> bool {
    changes.len() < MOST_CHANGES && !changes.iter().any(grants)
}

fn writes(change: &Change) -> bool {
    !matches!(change, Change::Guard { .. })
}

fn weight(change: &Change) -> usize {
    match change {
        Change::Put { value, .. } => value.len(),
        _ => 0,
    }
}

/// Send them together, without those that do not fit, until all have their answers.
async fn send(store: &Postgres, mut group: Vec<Ticket>) {
    loop {
        // what is too late now was refused with another, or never sent
        let now = Instant::now();
        let (late, timely): (Vec<_>, Vec<_>) = group.into_iter().partition(|ticket| ticket.end <= now);
        tell(late, || Err(store.late()));
        group = timely;
        let Some(durability) = group.first().map(|ticket| ticket.durability) else { return };
        let Some(end) = group.iter().map(|ticket| ticket.end).max() else { return };
        let all: Vec<Change> = group.iter().flat_map(|ticket| ticket.changes.iter().cloned()).collect();
        match store.swap_alone(&all, durability, end).await {
            Ok(versions) => {
                let mut versions = versions.into_iter();
                for ticket in group {
                    let own = versions.by_ref().take(ticket.changes.len()).collect();
                    let _ = ticket.answer.send(Ok(own));
                }
                return;
            }
            Err(StoreError::Refused(mut conflict)) => {
                let Some(owner) = owner(&group, &mut conflict.index) else { return };
                tell([group.remove(owner)], || Err(StoreError::Refused(conflict.clone())));
            }
            Err(StoreError::Unavailable(_)) if group.len() > 1 => {
                for ticket in group {
                    let answer = store.swap_alone(&ticket.changes, durability, ticket.end).await;
                    let _ = ticket.answer.send(answer);
                }
                return;
            }
            Err(StoreError::Unavailable(why)) => {
                return tell(group, || Err(StoreError::Unavailable(why.clone())));
            }
            Err(StoreError::Unknown(why)) => return tell(group, || Err(StoreError::Unknown(why.clone()))),
        }
    }
}

fn tell(tickets: impl IntoIterator<Item = Ticket>, answer: impl Fn() -> Answer) {
    for ticket in tickets {
        // one that nobody waits for is nobody's loss
        let _ = ticket.answer.send(answer());
    }
}

/// Whose change this is; its index is then among its owner's.
fn owner(group: &[Ticket], index: &mut usize) -> Option<usize> {
    for (n, ticket) in group.iter().enumerate() {
        match index.checked_sub(ticket.changes.len()) {
            None => return Some(n),
            Some(rest) => *index = rest,
        }
    }
    None
}

fn dropped(store: &Postgres) -> StoreError {
    let place = &store.link.address.place;
    StoreError::Unknown(format!(
        "PostgreSQL at {place} did not answer the task that asked it for several, or not in time"
    ))
}
