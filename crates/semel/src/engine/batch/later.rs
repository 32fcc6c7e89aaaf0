//! Items that another runner has under way: looked at again once there is nothing else to do.

use super::look::{Candidate, Unseen};
use super::{BYTES_LIMIT, LATER_LIMIT};

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
        std::mem::take(&mut self.kept)
    }
}
