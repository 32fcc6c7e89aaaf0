//! How far a search goes.

use semel_core::policy::{OnLost, Policy};

use super::store::{Changes, Timeline};
use super::worker::Role;

/// The bounds of a search, and what the workers are asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub name: &'static str,
    /// One per worker.
    pub roles: &'static [Role],
    pub resources: usize,
    pub ttl: u64,
    pub on_lost: OnLost,
    pub max_failures: u32,
    /// Invocations of each worker.
    pub runs: u8,
    /// Crashes, unanswered requests, clocks that are set, and verdicts, in all. What takes its time is no trouble.
    pub troubles: u8,
    pub crashes: u8,
    /// Requests whose sender gives up waiting: lost, late, or answered in vain.
    pub unknowns: u8,
    /// Requests at a time that nobody awaits any more and that may still arrive.
    pub late: usize,
    /// How often the store's clock is set back by a tick.
    pub back: u8,
    /// How often the store's clock is set forward, and by how much each time.
    pub forward: u8,
    pub forward_by: u8,
    /// A person's verdicts.
    pub verdicts: u8,
    /// Renewals, over all workers.
    pub renewals: u8,
    /// Commands may fail.
    pub fails: bool,
    /// So many steps in each run, instead of an effect of the run's own.
    pub steps: usize,
    /// If a step's last attempt is lost.
    pub step_on_lost: OnLost,
    /// How often the store falls back to an older state.
    pub failovers: u8,
    /// And what it knows of that.
    pub timeline: Timeline,
    /// How the changes of a swap are made.
    pub changes: Changes,
}

impl Config {
    /// The policies that the workers ask for.
    pub fn policy(&self) -> Policy {
        let (on_lost, max_failures) = (self.on_lost, self.max_failures);
        Policy { ttl_ms: self.ttl, on_lost, max_failures, ..Policy::default() }
    }

    /// Does a worker do two works under one lease?
    pub fn in_a_row(&self) -> bool {
        self.roles.iter().any(|role| role.then.is_some())
    }

    /// Is belief worth anything: is the store's clock never ahead by more than the margin?
    pub fn keeps_the_margin(&self) -> bool {
        // of a lease as short as these, the margin is one tick; a constant, for a mutant must not move it
        self.forward * self.forward_by <= 1
    }
}
