//! A run with steps: what it does with them while it holds its lease, in order, as the engine's desk does.
//!
//! ```text
//! look, decide ──▶ claiming ──▶ ready ──begin──▶ under way ──▶ settling ──▶ the next one … over
//!      ▲    │          │ refused, or no answer                    │ refused, or no answer
//!      │    └ done: the next one    └ by its lease: stale         └ look again
//!      └ in doubt: a person is needed
//! ```
//!
//! A run looks at its watch before it begins an effect, and never otherwise: it may ask for a step long after
//! another has its work.

use semel_core::claim::First;
use semel_core::entry::{self, Ending, Entry, Settle, Stale, State};
use semel_core::policy::OnLost;
use semel_core::record::{Expect, Seen, Version};
use semel_core::step::{self, RunsUnder, StepAsk, StepDecision};
use semel_core::token::Grant;

use super::config::Config;
use super::facts::Fact;
use super::in_order::Took;
use super::shared::Shared;
use super::store::{Body, RESOURCE, Store, WORK, Writes, entry_of_step};
use super::worker::{Message, Progress, Run, Why, owner_of};
use super::world::World;

/// How far a run has come with its steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Walk {
    pub at: usize,
    pub stage: Stage,
}

/// A step that was claimed, as its claim was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub entry: Shared<Entry>,
    pub version: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It must look first.
    Look,
    /// Its claim is under way to the store; without an entry, what goes there puts it before a person.
    Claiming { message: Message, entry: Option<Shared<Entry>>, asks: bool },
    /// It is claimed and not begun; `asks`: it asks the world first.
    Ready { ticket: Ticket, asks: bool },
    /// Its effect is under way.
    UnderWay(Ticket),
    /// Its outcome goes on record; without a message it must look first. `applied`: it did already.
    Settling { ending: Ending, message: Option<Message>, applied: bool },
    /// It needs a person.
    Person,
    /// It failed, and so does the run.
    Failed,
    /// The run has learnt that its lease is not its own any more.
    Stale,
    /// All steps are done.
    Over,
}

/// What a run does next with its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    Look,
    Apply,
    ApplyUnheard,
    GiveUp,
    Begin,
    /// The effect happens, and its command says so.
    Happen,
    /// The step's process is gone, and nobody says how it ended.
    Vanish,
    Fail,
}

/// What is true of a step's effect, whatever the ledger says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Truth {
    pub begun: u8,
    pub happened: bool,
    /// It was recorded as done, and no person has said otherwise since.
    pub told: bool,
    /// Under which grant it was begun last, unless it is known to be torn or a person has spoken since.
    pub under: Option<Grant>,
}

impl Walk {
    /// The way of a run in this search, if its runs have steps.
    pub fn of(config: &Config) -> Option<Walk> {
        (config.steps > 0).then_some(Walk { at: 0, stage: Stage::Look })
    }

    pub fn sent(&self) -> Option<&Message> {
        match &self.stage {
            Stage::Claiming { message, .. } | Stage::Settling { message: Some(message), .. } => Some(message),
            _ => None,
        }
    }

    fn sent_mut(&mut self) -> Option<&mut Message> {
        match &mut self.stage {
            Stage::Claiming { message, .. } | Stage::Settling { message: Some(message), .. } => Some(message),
            _ => None,
        }
    }

    fn go_on(&mut self, config: &Config) {
        self.at += 1;
        self.stage = if self.at < config.steps { Stage::Look } else { Stage::Over };
    }

    /// No answer, or not the one that was hoped for: look again.
    pub fn look_again(&mut self) {
        match &mut self.stage {
            Stage::Settling { message, .. } => *message = None,
            stage => *stage = Stage::Look,
        }
    }

    fn settled(&mut self, config: &Config) {
        match &self.stage {
            Stage::Settling { ending: Ending::Succeeded | Ending::ProbedDone, .. } => self.go_on(config),
            Stage::Settling { ending: Ending::Failed { .. }, .. } => self.stage = Stage::Failed,
            // the script asks for it once more
            _ => self.stage = Stage::Look,
        }
    }

    /// How the run may end now.
    pub fn end(&self, trust: u64) -> Option<Ending> {
        match self.stage {
            Stage::Over if trust > 0 => Some(Ending::Succeeded),
            Stage::Person if trust > 0 => {
                Some(Ending::Blocked { step: WORK[entry_of_step(self.at)].to_string() })
            }
            Stage::Failed if trust > 0 => Some(Ending::Failed { code: 1 }),
            Stage::Stale => Some(Ending::LeaseLost),
            _ if trust == 0 => Some(Ending::LeaseLost),
            _ => None,
        }
    }

    /// What it may do next.
    pub fn moves(&self, config: &Config, world: &World, trust: u64) -> Vec<Move> {
        let mut moves = Vec::new();
        match &self.stage {
            Stage::Look | Stage::Settling { message: None, .. } => moves.push(Move::Look),
            Stage::Claiming { .. } | Stage::Settling { .. } => {
                moves.push(Move::Apply);
                if world.unknowns_left > 0 {
                    moves.push(Move::GiveUp);
                    moves.extend(config.is_whole().then_some(Move::ApplyUnheard));
                }
            }
            Stage::Ready { .. } => {
                if trust > 0 {
                    moves.push(Move::Begin);
                }
                if trust > 0 && config.fails {
                    moves.push(Move::Fail);
                }
            }
            Stage::UnderWay(_) => {
                moves.push(Move::Happen);
                if world.crashes_left > 0 {
                    moves.push(Move::Vanish);
                }
            }
            Stage::Person | Stage::Failed | Stage::Stale | Stage::Over => {}
        }
        moves
    }
}

impl World {
    /// A worker does this with the step that it has come to. `None`: nothing comes of it.
    pub fn walk(&mut self, config: &Config, w: usize, next: Move) -> Option<()> {
        match next {
            Move::Look => match self.workers[w].walk()?.stage.clone() {
                Stage::Look => self.look_at_step(config, w),
                Stage::Settling { ending, applied, .. } => {
                    self.look_to_settle_step(config, w, ending, applied)
                }
                _ => None,
            },
            Move::Apply => self.apply_step(config, w),
            Move::ApplyUnheard => {
                self.trouble(|world| &mut world.unknowns_left)?;
                let message = self.workers[w].walk()?.sent()?.clone();
                self.take(&message)?;
                self.workers[w].walk_mut()?.look_again();
                Some(())
            }
            Move::GiveUp => {
                self.trouble(|world| &mut world.unknowns_left)?;
                let message = self.workers[w].walk()?.sent()?.clone();
                self.workers[w].walk_mut()?.look_again();
                self.abandon(config, vec![message]);
                Some(())
            }
            Move::Begin => self.begin_step(config, w),
            Move::Happen => {
                let at = self.workers[w].walk()?.at;
                self.truths[at].happened = true;
                self.end_step(w, Ending::Succeeded)
            }
            Move::Vanish => {
                self.trouble(|world| &mut world.crashes_left)?;
                let (at, grant) = (self.workers[w].walk()?.at, self.workers[w].held()?.grant());
                let under = &mut self.truths[at].under;
                *under = under.filter(|under| *under != grant);
                self.end_step(w, Ending::Vanished)
            }
            Move::Fail => self.end_step(w, Ending::Failed { code: 1 }),
        }
    }

    fn look_at_step(&mut self, config: &Config, w: usize) -> Option<()> {
        let run = self.workers[w].active.as_ref()?.run;
        let me = owner_of(config.roles[w].host, run);
        let held = self.workers[w].held()?.clone();
        let at = held.walk.as_ref()?.at;
        let record = entry_of_step(at);
        let view = self.store.look(Some(record), &me, |owner| self.is_gone(owner), config.resources);
        let (grant, lease) = (held.grant(), Version::from(held.lease_version));
        let entry = Version::from(held.entry.as_ref()?.1);
        let ask = StepAsk {
            work: &WORK[record],
            run: RunsUnder {
                work: &WORK[0],
                resource: &RESOURCE[held.resource],
                grant: &grant,
                lease: &lease,
                entry: &entry,
                owner: &me,
            },
            on_lost: config.step_on_lost,
            keep_ms: 0,
            command: None,
            now_ms: 0,
        };
        let send = |why, writes| {
            let body = Body::Swap(Shared::new(Writes(writes)));
            Message {
                run: Some(run),
                why,
                grant: Some(grant),
                epoch: None,
                so_far: Progress::default(),
                body,
            }
        };
        let stage = match step::claim(&view, &ask) {
            StepDecision::Claim(claim) => Stage::Claiming {
                message: send(Why::StepClaim, claim.writes()),
                asks: claim.first == First::Probe,
                entry: Some(Shared::new(claim.entry)),
            },
            StepDecision::UnderWay(entry) => {
                self.just.add(Fact::StepRecovered);
                // as the engine: who asks the world once too often does no harm
                let asks = entry.attempts > 1 && config.step_on_lost == OnLost::Probe;
                let version = self.store.entries[record].as_ref()?.version;
                Stage::Ready { ticket: Ticket { entry: Shared::new(entry), version }, asks }
            }
            StepDecision::Done(_) => {
                self.just.add(Fact::StepReplayed);
                self.workers[w].walk_mut()?.go_on(config);
                return Some(());
            }
            StepDecision::Person(_) => Stage::Person,
            StepDecision::Doubt { entry, expect, guards, stands } => Stage::Claiming {
                message: send(Why::StepDoubt, step::guarded(&guards, stands.as_ref(), &entry, &expect)),
                entry: None,
                asks: false,
            },
            StepDecision::Elsewhere { .. } => {
                self.just.add(Fact::StepElsewhere);
                Stage::Stale
            }
            StepDecision::LookAt(resource) => panic!("all leases were looked at: {resource}"),
        };
        self.workers[w].walk_mut()?.stage = stage;
        Some(())
    }

    fn apply_step(&mut self, config: &Config, w: usize) -> Option<()> {
        let mut message = self.workers[w].walk()?.sent()?.clone();
        let made = match self.take_next(&mut message) {
            Took::Some => {
                *self.workers[w].walk_mut()?.sent_mut()? = message;
                return Some(());
            }
            Took::All(made) => Some(made),
            Took::Nothing => None,
        };
        let is_stale = made.is_none() && !(self.is_held_under(w) && self.is_on_record(w));
        let walk = self.workers[w].walk_mut()?;
        match (&walk.stage, made) {
            (Stage::Claiming { entry: Some(entry), asks, .. }, Some(made)) => {
                let ticket = Ticket { entry: entry.clone(), version: made.entry };
                walk.stage = Stage::Ready { ticket, asks: *asks };
            }
            (Stage::Claiming { entry: None, .. }, Some(_)) => walk.stage = Stage::Person,
            (Stage::Claiming { .. }, None) if is_stale => {
                walk.stage = Stage::Stale;
                self.just.add(Fact::StepRefused);
            }
            (Stage::Settling { .. }, Some(_)) => walk.settled(config),
            (_, None) => walk.look_again(),
            (stage, Some(_)) => panic!("nothing was sent: {stage:?}"),
        }
        Some(())
    }

    /// Does the store say that this worker holds its lease?
    fn is_held_under(&self, w: usize) -> bool {
        self.workers[w].held().is_some_and(|held| {
            let row = self.store.leases[held.resource].as_ref();
            row.is_some_and(|row| row.is_held() && row.version == held.lease_version)
        })
    }

    /// Does the store say that this worker's run is the one that was claimed?
    fn is_on_record(&self, w: usize) -> bool {
        self.workers[w].held().and_then(|held| held.entry.as_ref()).is_some_and(|(_, version)| {
            self.store.entries[0].as_ref().is_some_and(|row| row.version == *version)
        })
    }

    /// Its effect begins, unless the world says that it has happened.
    fn begin_step(&mut self, config: &Config, w: usize) -> Option<()> {
        let held = self.workers[w].held().filter(|held| held.trust > 0)?;
        let grant = held.grant();
        let Walk { at, stage: Stage::Ready { ticket, asks } } = held.walk.clone()? else { return None };
        let truth = self.truths[at];
        if asks && truth.happened {
            self.just.add(Fact::StepProbed);
            return self.end_step(w, Ending::ProbedDone);
        }
        let alive = truth.under.is_some_and(|under| {
            let mut leases = self.store.leases.iter().flatten();
            leases.any(|row| row.is_held() && row.value.grant == under)
        });
        if truth.told || alive {
            self.just.add(Fact::StepRepeated);
        }
        if truth.begun > 0 {
            self.just.add(Fact::StepBegunAgain);
        }
        if truth.happened && config.step_on_lost == OnLost::Probe {
            self.just.add(Fact::StepNotProbed);
        }
        let state = self.store.entries[entry_of_step(at)].as_ref().map(|row| &row.value.state);
        if !matches!(state, Some(State::Running { grant: running, .. }) if *running == grant) {
            self.just.add(Fact::RanWithoutIntent);
        }
        self.truths[at] = Truth { begun: truth.begun + 1, under: Some(grant), ..truth };
        self.workers[w].walk_mut()?.stage = Stage::UnderWay(ticket);
        Some(())
    }

    /// It is over: the outcome is sent, over the claim as it was written.
    fn end_step(&mut self, w: usize, ending: Ending) -> Option<()> {
        let run = self.workers[w].active.as_ref()?.run;
        let held = self.workers[w].held()?;
        let grant = held.grant();
        let ticket = match &held.walk.as_ref()?.stage {
            Stage::Ready { ticket, .. } | Stage::UnderWay(ticket) => ticket.clone(),
            _ => return None,
        };
        let seen = Seen { value: Entry::clone(&ticket.entry), version: Version::from(ticket.version) };
        let message = settle(&seen, &grant, &ending, run).ok();
        self.workers[w].walk_mut()?.stage = Stage::Settling { ending, message, applied: false };
        Some(())
    }

    fn look_to_settle_step(
        &mut self,
        config: &Config,
        w: usize,
        ending: Ending,
        applied: bool,
    ) -> Option<()> {
        let run = self.workers[w].active.as_ref()?.run;
        let (grant, at) = (self.workers[w].held()?.grant(), self.workers[w].walk()?.at);
        let seen = self.store.entries[entry_of_step(at)].as_ref()?.seen();
        match settle(&seen, &grant, &ending, run) {
            Ok(message) => {
                let message = Some(message);
                self.workers[w].walk_mut()?.stage = Stage::Settling { ending, message, applied };
            }
            Err(Stale::AlreadySettled) => {
                // that it vanished is what the next holder found too
                if !applied && ending != Ending::Vanished {
                    self.just.add(Fact::SettleImagined);
                }
                self.workers[w].walk_mut()?.settled(config);
            }
            Err(Stale::MovedOn { .. }) => {
                self.just.add(if applied { Fact::SettleDenied } else { Fact::StaleStepSettleRefused });
                self.workers[w].walk_mut()?.stage = Stage::Stale;
            }
        }
        Some(())
    }

    /// The outcome of a step is on record, whether or not its sender hears of it.
    pub fn step_was_settled(&mut self, message: &Message) {
        let senders = self
            .workers
            .iter_mut()
            .filter(|worker| worker.active.as_ref().is_some_and(|active| Some(active.run) == message.run));
        for walk in senders.filter_map(|worker| worker.walk_mut()) {
            if let Stage::Settling { applied, .. } = &mut walk.stage {
                *applied = true;
            }
        }
    }

    /// What the store just did to a step at the word of this message, judged like the rest of `facts.rs`.
    pub fn judge_step(&mut self, before: &Store, message: &Message, at: usize) {
        let record = entry_of_step(at);
        let (was, is) = (&before.entries[record], &self.store.entries[record]);
        let Some(is) = is.as_ref().filter(|is| was.as_ref().is_none_or(|was| was.version != is.version))
        else {
            return;
        };
        let is_done = matches!(is.value.state, State::Done { .. });
        let is_in_doubt = matches!(is.value.state, State::InDoubt { .. });
        let truth = &mut self.truths[at];
        truth.told |= is_done;
        if message.why == Why::Verdict {
            (truth.told, truth.under) = (is_done, None);
        }
        let Some(grant) = message.grant.filter(|_| matches!(message.why, Why::StepClaim | Why::StepDoubt))
        else {
            return;
        };
        let mut leases = before.leases.iter().flatten();
        if !leases.any(|row| row.is_held() && row.value.grant == grant) {
            self.just.add(Fact::StepClaimedByAZombie);
        }
        let of_the_run = before.entries[0].as_ref().map(|row| &row.value.state);
        if !matches!(of_the_run, Some(State::Running { grant: running, .. }) if *running == grant) {
            self.just.add(Fact::StepClaimedBesideAnother);
        }
        match was.as_ref().map(|was| &was.value.state) {
            Some(State::Running { grant: running, .. }) if *running == grant => {
                self.just.add(Fact::OwnStepTakenForLost);
            }
            Some(State::Running { .. } | State::Open { torn: true } | State::Failed { torn: true })
                if !is_in_doubt =>
            {
                self.just.add(Fact::LostStepClaimed);
            }
            Some(State::Open { torn: false } | State::Failed { torn: false }) | None if is_in_doubt => {
                self.just.add(Fact::DoubtedWithoutLoss);
            }
            _ => {}
        }
    }

    /// A claim that its run's lease is sure to refuse is as good as refused.
    pub fn settle_down_steps(&mut self) {
        for worker in &mut self.workers {
            let Some(held) = worker.held_mut() else { continue };
            let Some(walk) = &mut held.walk else { continue };
            if walk.sent().is_none_or(|message| self.store.may_take(message)) {
                continue;
            }
            let lease = self.store.leases[held.resource].as_ref();
            let taken_over = lease.is_none_or(|row| row.version != held.lease_version);
            if taken_over && matches!(walk.stage, Stage::Claiming { .. }) {
                walk.stage = Stage::Stale;
                self.just.add(Fact::StepRefused);
            } else {
                walk.look_again();
            }
        }
    }
}

fn settle(seen: &Seen<Entry>, grant: &Grant, ending: &Ending, run: Run) -> Result<Message, Stale> {
    let ask = Settle {
        grant,
        ending: ending.clone(),
        result: None,
        output: None,
        failed_tries: 0,
        missed_renewals: 0,
        unrenewed_ms: 0,
        now_ms: 0,
    };
    let entry = entry::settle(&seen.value, &ask)?;
    let writes = step::guarded(&[], None, &entry, &Expect::Version(seen.version.clone()));
    let body = Body::Swap(Shared::new(Writes(writes)));
    Ok(Message {
        run: Some(run),
        why: Why::StepSettle,
        grant: Some(*grant),
        epoch: None,
        so_far: Progress::default(),
        body,
    })
}
