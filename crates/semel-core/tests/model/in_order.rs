//! A store that makes the changes of a swap one after another, each at a moment of its own, and may be left in between: a
//! directory, NATS, objects.
//!
//! # What is true then
//!
//! All that is true of runs and steps on other stores, but for this: whoever stalls between a guard and what it guards writes
//! what it claimed after another has taken over. A step that was claimed so is begun by nobody: its run's watch has run out,
//! and whoever holds the work finds it lost.
//!
//! The order is a rule. An outcome comes before its release, or the work would be lost in between, and done again. A lease
//! comes before its intent, so that whoever is on record as running was granted it.
//!
//! # What is not
//!
//! Clocks that are set back: what a guard saw lapse would be live again when the next change is made.

use semel_core::claim::Write;
use semel_core::entry::State;

use super::config::Config;
use super::facts::Fact;
use super::requests::made_by;
use super::store::{Body, Changes, KEYS, resource_index};
use super::worker::{Active, Made, Message, Phase, Why, Worker};
use super::world::World;

/// What a store has taken of a request.
pub enum Took {
    /// It is refused; what was made of it before stays.
    Nothing,
    /// A change; others are to follow.
    Some,
    All(Made),
}

impl Config {
    /// Are the changes of a swap made as one?
    pub fn is_whole(&self) -> bool {
        self.changes == Changes::AllOrNothing
    }
}

impl World {
    /// The store takes a request, or the next change of one.
    pub fn take_next(&mut self, message: &mut Message) -> Took {
        let Body::Swap(writes) = &message.body else { return self.take_whole(message) };
        if self.store.changes == Changes::AllOrNothing {
            return self.take_whole(message);
        }
        let writes = writes.clone();
        let write = &writes.0[message.so_far.versions.len()];
        let before = self.store.clone();
        let Some(version) = self.store.swap(std::slice::from_ref(write)) else { return Took::Nothing };
        message.so_far.versions.extend(version);
        if matches!(write, Write::Entry { .. }) {
            self.note_settled(message);
        }
        self.judge(&before, message);
        match message.so_far.versions.len() == writes.0.len() {
            true => Took::All(made_by(&writes.0, &message.so_far.versions)),
            false => Took::Some,
        }
    }

    fn take_whole(&mut self, message: &Message) -> Took {
        self.take(message).map_or(Took::Nothing, Took::All)
    }

    /// What nobody awaits any more arrives, or the next change of it.
    pub fn take_late(&mut self, mut message: Message) {
        match self.take_next(&mut message) {
            Took::Nothing => return,
            Took::Some => self.late.push(message),
            Took::All(_) => {}
        }
        self.just.add(Fact::LateWriteApplied);
    }

    /// A person's verdict arrives, or the next change of it.
    pub fn take_verdict(&mut self) -> Option<()> {
        let mut message = self.person.take()?;
        if let Took::Some = self.take_next(&mut message) {
            self.person = Some(message);
        }
        Some(())
    }

    /// Was a lease given back whose work is still on record as running under it?
    pub fn judge_order(&mut self, message: &Message) {
        let Some(grant) = message.grant.filter(|_| message.why == Why::Settle) else { return };
        let is_open = self.store.entries[..KEYS].iter().flatten().any(|row| {
            let State::Running { resource, grant: running } = &row.value.state else { return false };
            let lease = self.store.leases[resource_index(resource)].as_ref();
            *running == grant && lease.is_some_and(|row| row.value.grant == grant && row.value.hold.is_none())
        });
        if is_open {
            self.just.add(Fact::ReleasedBeforeItsOutcome);
        }
    }
}

impl Worker {
    /// A claim of which a part was made has left a trace, whatever comes of it.
    pub fn note_half(&mut self, message: &Message) {
        if let Some(Active { phase: Phase::Claiming { unanswered, .. }, .. }) = &mut self.active
            && !message.so_far.versions.is_empty()
        {
            unanswered.get_or_insert(message.so_far.age);
        }
    }
}
