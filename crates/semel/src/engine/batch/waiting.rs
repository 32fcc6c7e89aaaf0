//! Items that wait for the resources that they name.
//!
//! A resource is *taken* while an item of this runner holds it, and *away* while somebody else does, as far as is known.
//! Its items wait in a queue of their own, so that others go first. When ours gives it back, the next of its queue has
//! its turn; what others hold is looked at again after a pause that grows.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use semel_core::lease::{Held, Hold};
use semel_core::name::Name;
use tokio::time::Instant;

use super::look::{PAGE, Unseen};
use super::{BYTES_LIMIT, LATER_LIMIT};

/// Before what somebody else holds is looked at again: at first, and at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_millis(500);

/// A resource that somebody else holds.
struct Away {
    hold: Hold,
    /// Seen so then.
    seen_at: Instant,
    /// To be looked at again then.
    at: Instant,
    pause: Duration,
}

pub(super) struct Waiting<D> {
    taken: HashSet<Name>,
    away: HashMap<Name, Away>,
    queues: HashMap<Name, VecDeque<Unseen<D>>>,
    /// Those whose resource was given back.
    turn: VecDeque<Unseen<D>>,
    /// Resources that were waited for long enough.
    given_up: HashSet<Name>,
    len: usize,
    bytes: usize,
}

impl<D> Waiting<D> {
    pub(super) fn new() -> Waiting<D> {
        Waiting {
            taken: HashSet::new(),
            away: HashMap::new(),
            queues: HashMap::new(),
            turn: VecDeque::new(),
            given_up: HashSet::new(),
            len: 0,
            bytes: 0,
        }
    }

    /// Does nobody hold it, as far as is known?
    pub(super) fn is_free(&self, resource: &Name) -> bool {
        !self.taken.contains(resource) && !self.away.contains_key(resource)
    }

    /// Was it waited for long enough?
    pub(super) fn is_given_up(&self, resource: &Name) -> bool {
        self.given_up.contains(resource)
    }

    /// It is about to be ours. `false`: it is, for another item.
    pub(super) fn take(&mut self, resource: &Name) -> bool {
        self.away.remove(resource);
        self.taken.insert(resource.clone())
    }

    /// It is ours no longer: the next one has its turn.
    pub(super) fn give_back(&mut self, resource: &Name) {
        self.taken.remove(resource);
        if let Some(queue) = self.queues.get_mut(resource) {
            self.turn.extend(queue.pop_front());
            if queue.is_empty() {
                self.queues.remove(resource);
            }
        }
    }

    /// Somebody else holds it.
    pub(super) fn held(&mut self, resource: Name, held: Held) {
        let now = Instant::now();
        let before = self.away.get(&resource).map(|away| away.pause);
        let pause = before.map_or(PAUSE, |pause| (pause * 2).min(PAUSE_MOST));
        let at = now + pause.min(Duration::from_millis(held.wait_ms.max(1)));
        self.away.insert(resource, Away { hold: held.hold, seen_at: now, at, pause });
    }

    /// This one waits for that.
    pub(super) fn add(&mut self, resource: Name, unseen: Unseen<D>) {
        self.len += 1;
        self.bytes += unseen.item.bytes;
        self.queues.entry(resource).or_default().push_back(unseen);
    }

    fn gone(&mut self, unseen: &Unseen<D>) {
        self.len -= 1;
        self.bytes -= unseen.item.bytes;
    }

    /// The next one whose resource may be free.
    pub(super) fn next(&mut self) -> Option<Unseen<D>> {
        let unseen = self.turn.pop_front()?;
        self.gone(&unseen);
        Some(unseen)
    }

    /// Some that wait for one resource which it is time to look at again: whoever held it may have done them too.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Unseen<D>> {
        let due = self.away.iter().find(|(_, away)| away.at <= now).map(|(resource, _)| resource.clone());
        let Some(resource) = due else { return Vec::new() };
        if !self.queues.contains_key(&resource) {
            // nobody wants it
            self.away.remove(&resource);
            return self.due(now);
        }
        if let Some(away) = self.away.get_mut(&resource) {
            away.at = now + away.pause;
        }
        self.some_of(&resource)
    }

    /// Some that wait for what nobody holds any more: the one whose turn it was had been done elsewhere.
    pub(super) fn left_over(&mut self) -> Vec<Unseen<D>> {
        let free = self.queues.keys().find(|resource| self.is_free(resource)).cloned();
        free.map(|resource| self.some_of(&resource)).unwrap_or_default()
    }

    fn some_of(&mut self, resource: &Name) -> Vec<Unseen<D>> {
        let Some(queue) = self.queues.get_mut(resource) else { return Vec::new() };
        let some: Vec<_> = queue.drain(..queue.len().min(PAGE)).collect();
        if queue.is_empty() {
            self.queues.remove(resource);
        }
        some.iter().for_each(|unseen| self.gone(unseen));
        some
    }

    /// When the first of them is due.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let wanted = self.away.iter().filter(|(resource, _)| self.queues.contains_key(resource));
        wanted.map(|(_, away)| away.at).min()
    }

    /// There is nothing else to do: all are due.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.away.values_mut().for_each(|away| away.at = now);
    }

    /// Those whose resources are not worth waiting for any longer, looked at since then.
    pub(super) fn leave(&mut self, since: Instant, is_awaited: impl Fn(&Hold) -> bool) -> Vec<Unseen<D>> {
        let is_left = |away: &Away| away.seen_at >= since && !is_awaited(&away.hold);
        let left: Vec<Name> =
            self.away.iter().filter(|(_, away)| is_left(away)).map(|(name, _)| name.clone()).collect();
        let mut some = Vec::new();
        for resource in left {
            self.away.remove(&resource);
            some.extend(self.queues.remove(&resource).unwrap_or_default());
            self.given_up.insert(resource);
        }
        some.iter().for_each(|unseen| self.gone(unseen));
        some
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Has one its turn?
    pub(super) fn has_next(&self) -> bool {
        !self.turn.is_empty()
    }

    /// Is there no room for more?
    pub(super) fn is_full(&self) -> bool {
        self.len >= LATER_LIMIT || self.bytes >= BYTES_LIMIT
    }

    /// Nothing is begun any more.
    pub(super) fn clear(&mut self) {
        self.queues.clear();
        self.turn.clear();
        (self.len, self.bytes) = (0, 0);
    }
}
