//! What the jobs do to the world: a command that takes its time, fails, or goes on for a moment after its time; and the
//! target that it writes to, which counts what it takes and knows nothing of Semel but the token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::clock::{Clock, Moment};
use semel::core::schedule::Tick;
use semel::engine::desk::Desk;
use semel::engine::{Begin, Caught, NotStarted, Probed, Task, TaskEnd};

use crate::machine::Process;
use crate::rng::Rng;

/// An effect, as the target took it.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) job: usize,
    pub(crate) slot: String,
    pub(crate) at_ms: u64,
    pub(crate) by: String,
    pub(crate) token: u64,
}

/// The world outside.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// What was taken, in order.
    pub(crate) effects: Vec<Effect>,
    /// Writes of zombies that were refused.
    pub(crate) refused: u32,
    /// The last token at each resource.
    fences: HashMap<String, u64>,
    /// The commands that run at each resource.
    running: HashMap<String, Vec<Arc<Process>>>,
    /// The attempts at each job and slot.
    pub(crate) attempts: HashMap<(usize, String), Attempts>,
    /// What must not be.
    pub(crate) faults: Vec<String>,
}

impl World {
    pub(crate) fn fault(&mut self, what: String) {
        self.faults.push(what);
    }

    fn begin(&mut self, resource: &str, process: &Arc<Process>, what: &str) {
        let all = self.running.entry(resource.to_owned()).or_default();
        if let Some(other) = all.iter().find(|other| !other.is_frozen()) {
            self.faults.push(format!("{what} runs on {resource} together with {}", other.me));
        }
        all.push(Arc::clone(process));
    }

    fn end(&mut self, resource: &str, process: &Arc<Process>) {
        if let Some(all) = self.running.get_mut(resource) {
            all.retain(|one| !Arc::ptr_eq(one, process));
        }
    }

    /// A fenced write: taken unless a later token was seen.
    fn write(&mut self, resource: &str, effect: Effect) -> bool {
        let fence = self.fences.entry(resource.to_owned()).or_default();
        if effect.token < *fence {
            self.refused += 1;
            return false;
        }
        *fence = effect.token;
        self.effects.push(effect);
        true
    }
}

/// What the simulation itself knows of the attempts at a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    pub(crate) began: usize,
    /// Killed or stopped in the middle.
    pub(crate) cut_short: usize,
    /// Came to their own end with a success.
    pub(crate) succeeded: usize,
    /// Of those, how many nobody was told to be on record: killed before that, or the store was away.
    pub(crate) unrecorded: usize,
}

/// How long a command takes and what comes of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing {
    pub(crate) takes_ms: u64,
    /// Its effect happens after so long; none if it fails.
    pub(crate) effect_ms: Option<u64>,
}

/// A command in a slot of a job.
pub(crate) struct Command {
    world: Arc<Mutex<World>>,
    process: Arc<Process>,
    job: usize,
    tick: Tick,
    doing: Doing,
    rng: Rng,
    /// The token, the resource and when it began, while it runs.
    running: Option<(u64, String, u64)>,
    has_written: bool,
    has_succeeded: bool,
    is_recorded: bool,
    trusted_until: Option<Moment>,
}

impl Command {
    pub(crate) fn new(
        world: &Arc<Mutex<World>>,
        process: &Arc<Process>,
        (job, tick): (usize, Tick),
        doing: Doing,
        rng: Rng,
    ) -> Command {
        let (world, process) = (Arc::clone(world), Arc::clone(process));
        Command {
            world,
            process,
            job,
            tick,
            doing,
            rng,
            running: None,
            has_written: false,
            has_succeeded: false,
            is_recorded: false,
            trusted_until: None,
        }
    }

    pub(crate) fn slot(&self) -> String {
        self.tick.slot.to_string()
    }

    fn write(&mut self) {
        let Some((token, resource, _)) = self.running.clone() else { return };
        let at_ms = self.process.machine.time.now_ms();
        let effect =
            Effect { job: self.job, slot: self.slot(), at_ms, by: self.process.me.to_string(), token };
        self.has_written = true;
        if !self.world.lock().unwrap().write(&resource, effect) {
            // told so, it fails
            self.doing.effect_ms = None;
        }
    }

    fn end(&mut self) {
        if let Some((_, resource, _)) = self.running.take() {
            self.world.lock().unwrap().end(&resource, &self.process);
        }
    }

    fn cut_short(&mut self) {
        if self.running.is_some() {
            self.count(|attempts| attempts.cut_short += 1);
        }
        self.end();
    }

    fn count(&self, count: impl FnOnce(&mut Attempts)) {
        count(self.world.lock().unwrap().attempts.entry((self.job, self.slot())).or_default());
    }

    /// Its success is on record.
    pub(crate) fn recorded(&mut self) {
        self.is_recorded = true;
    }

    fn is_to_write(&self, ran_ms: u64) -> bool {
        !self.has_written && self.doing.effect_ms.is_some_and(|at_ms| ran_ms >= at_ms)
    }
}

impl Task for Command {
    async fn start(&mut self, begin: &Begin, _: &Arc<Desk>) -> Result<(), NotStarted> {
        let machine = &self.process.machine;
        let (now_ms, what) = (machine.time.now_ms(), format!("{}@{}", self.job, self.slot()));
        let due_ms = self.tick.at.as_millisecond().unsigned_abs();
        let mut world = self.world.lock().unwrap();
        if machine.wall_ms() < due_ms {
            world.fault(format!("{what} begins before it is due"));
        }
        if self.trusted_until.is_none_or(|until| machine.now() >= until) {
            world.fault(format!("{what} begins when its lease is not trusted any more"));
        }
        world.begin(begin.resource.as_str(), &self.process, &what);
        drop(world);
        self.count(|attempts| attempts.began += 1);
        self.running = Some((begin.grant.token.value(), begin.resource.to_string(), now_ms));
        Ok(())
    }

    fn trust_until(&mut self, moment: Moment) {
        self.trusted_until = Some(moment);
    }

    async fn ended(&mut self) -> TaskEnd {
        let Some((_, _, since_ms)) = self.running.clone() else { return std::future::pending().await };
        loop {
            let ran_ms = self.process.ran_ms(since_ms);
            if self.is_to_write(ran_ms) {
                self.write();
            }
            if ran_ms >= self.doing.takes_ms {
                break;
            }
            let next_ms = self.doing.effect_ms.filter(|at_ms| *at_ms > ran_ms).unwrap_or(u64::MAX);
            let left_ms = next_ms.min(self.doing.takes_ms) - ran_ms;
            tokio::time::sleep(Duration::from_millis(left_ms)).await;
        }
        self.end();
        if self.doing.effect_ms.is_none() {
            return TaskEnd::Exited(1);
        }
        self.has_succeeded = true;
        self.count(|attempts| attempts.succeeded += 1);
        TaskEnd::Exited(0)
    }

    fn signal(&mut self, _: Caught) {}

    async fn stop(&mut self, grace: Duration) -> TaskEnd {
        let is_deaf = self.rng.permille(500);
        if is_deaf && !grace.is_zero() {
            tokio::time::sleep(grace).await;
        }
        // what was about to happen may happen before the signal comes
        let is_quick = self.doing.effect_ms.is_some() && !self.has_written && self.rng.permille(300);
        if is_quick {
            self.write();
        }
        self.cut_short();
        TaskEnd::Killed(9)
    }

    async fn clear(&mut self, _: Duration) -> usize {
        0
    }

    fn result(&mut self) -> Option<serde_json::Value> {
        None
    }

    /// Seal, then look: nobody with an older token writes after this.
    async fn probe(&mut self, begin: &Begin) -> Probed {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut world = self.world.lock().unwrap();
        let token = begin.grant.token.value();
        let fence = world.fences.entry(begin.resource.to_string()).or_default();
        if token < *fence {
            return Probed::Unknown("the target knows of a later token".into());
        }
        *fence = token;
        if self.rng.permille(50) {
            return Probed::Unknown("the target does not answer".into());
        }
        let slot = self.slot();
        match world.effects.iter().rev().any(|effect| effect.job == self.job && effect.slot == slot) {
            true => Probed::Happened,
            false => Probed::DidNot,
        }
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        self.cut_short();
        if self.has_succeeded && !self.is_recorded {
            self.count(|attempts| attempts.unrecorded += 1);
        }
    }
}
