//! Items that another runner has under way: looked at again once there is nothing else to do.

use std::mem::take;

use super::look::{Candidate, Unseen};
use super::state::{Reading, State};
use super::{BYTES_LIMIT, Bad, BatchEvent, Fate, LATER_LIMIT};

/// Some of them; of those beyond the limits only how many.
pub(super) struct Later<D> {
    kept: Vec<Unseen<D>>,
    /// Of those that are kept.
    bytes: usize,
    /// Met in a pass over the input, and not kept.
    pub(super) beyond: u64,
}

impl<D> Later<D> {
    pub(super) fn new() -> Later<D> {
        Later { kept: Vec::new(), bytes: 0, beyond: 0 }
    }

    /// One more. `false`: there is no room for it.
    pub(super) fn add(&mut self, candidate: Candidate<D>) -> bool {
        let bytes = candidate.item.bytes;
        let is_heavy = !self.kept.is_empty() && self.bytes.saturating_add(bytes) > BYTES_LIMIT;
        if self.kept.len() >= LATER_LIMIT || is_heavy {
            self.beyond += 1;
            return false;
        }
        self.bytes += bytes;
        let mut unseen = Unseen::from(candidate);
        unseen.met = true;
        self.kept.push(unseen);
        true
    }

    /// How many are not done as far as is known.
    pub(super) fn len(&self) -> u64 {
        self.kept.len() as u64 + self.beyond
    }

    pub(super) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// All that are kept, to be looked at again.
    pub(super) fn take(&mut self) -> Vec<Unseen<D>> {
        self.bytes = 0;
        take(&mut self.kept)
    }
}

/// A second pass over the input looks for those beyond: it meets all items again, and counts only those that are still
/// to be done. What is owed and was not met was done meanwhile, by those who were at it.
pub(super) struct Second {
    owed: u64,
    pub(super) met: u64,
    /// It did not come to its end: nobody knows of the others whether they are done.
    is_cut: bool,
}

impl<D> State<'_, D> {
    pub(super) fn second_pass(&mut self) {
        self.second = Some(Second { owed: take(&mut self.later.beyond), met: 0, is_cut: false });
        self.reading = Reading::Input;
    }

    /// Nothing more comes of it.
    pub(super) fn cut_second(&mut self) {
        self.second.iter_mut().for_each(|second| second.is_cut = true);
        self.reading = Reading::Over;
    }

    /// It is over, and all that it found is decided about.
    pub(super) fn end_second(&mut self) {
        let Some(Second { owed, met, is_cut }) = self.second.take() else { return };
        let count = owed.saturating_sub(met);
        if is_cut {
            self.later.beyond += count;
        } else if count > 0 {
            self.counts.skipped += count;
            (self.tell)(BatchEvent::Several { count, fate: Fate::Skipped });
        }
    }

    /// What is no item was said in the first pass, but not that the input cannot be read any further.
    pub(super) fn bad(&mut self, bad: &Bad, again: bool) {
        if !again || (bad.is_last && !self.is_broken) {
            self.counts.bad += 1;
            (self.tell)(BatchEvent::Bad(bad));
        }
        self.is_broken |= bad.is_last;
        if again && bad.is_last {
            self.cut_second();
        }
    }

    /// At the end: those that others have under way.
    pub(super) fn leave_the_rest(&mut self) {
        self.second.iter_mut().for_each(|second| second.is_cut = true);
        self.end_second();
        self.counts.busy = self.later.len();
        let (kept, count) = (self.later.take(), self.later.beyond);
        for unseen in kept {
            self.fate(&unseen.item, Fate::Busy);
        }
        if count > 0 {
            (self.tell)(BatchEvent::Several { count, fate: Fate::Busy });
        }
    }
}
