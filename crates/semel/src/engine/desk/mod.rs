//! The desk of a run: where the effects inside it are claimed and settled.
//!
//! ```text
//! claim: one durable swap (guarded by the run's lease) ──▶ the effect ──▶ settle: one durable swap
//! ```
//!
//! A claim looks first, unless it is made by the first attempt at the work: there is nothing to be found then, and
//! if there is, the swap says so.
//!
//! Everything inside a run, in this process or behind its [socket](super::socket), goes through one desk: it holds
//! the run's grant and the version of its lease, so that no nested command needs the store. A desk that no longer
//! trusts its lease refuses everything.
//!
//! Not guaranteed: that an effect which was begun ends before the lease does. That is the supervisor's, and at the
//! target the fence's.

mod said;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use semel_core::claim::{First, View};
use semel_core::entry::{self, Ending, Entry, RESULT_LIMIT, Settle, Stale, State};
use semel_core::lease::SeenLease;
use semel_core::policy::{OnLost, Policy};
use semel_core::record::{Expect, RecordKey, Seen, Standing, Version};
use semel_core::step::{self, RunsUnder, StepAsk, StepDecision};
use semel_core::token::Nonce;
use semel_core::work::{Key, Work};
use tokio::sync::Notify;

pub use said::{Shut, StepBegin, StepEnd, StepPlan, StepRefusal, Ticket, Verified};

use super::claim::Unknowns;
use super::hold::{Held, Trust};
use super::settle::Unsettled;
use super::socket::Address;
use super::view::{LookError, changes_at};
use super::{Begin, Engine, draw_nonce};
use crate::crash;
use crate::store::{Change, Durability, StoreError};

/// The largest piece of an output that is kept as one record.
pub const PIECE_LIMIT: usize = 256 * 1024;
/// The most pieces of one output.
pub const PIECES_LIMIT: u32 = 65_536;

const PAUSE: Duration = Duration::from_millis(50);
/// An outcome that is known is worth some patience even when the lease has run out.
const PATIENCE_MS: u64 = 5_000;
/// The most characters of a probe's answer: it is for people to read.
const ANSWER_LIMIT: usize = 2_000;

/// The desk of one run.
pub struct Desk {
    engine: Engine,
    begin: Begin,
    lease: Version,
    /// The version of the run's entry; none for a lease without a ledger.
    entry: Option<Version>,
    policy: Policy,
    /// What the names of its steps' records begin with.
    steps: OnceLock<String>,
    /// Nothing is held and nothing is written: it only says what it would do.
    rehearsal: bool,
    address: OnceLock<Address>,
    /// The items of a batch share one: their runner has one lease.
    trust: Arc<Mutex<Trust>>,
    book: Mutex<Book>,
    quiet: Notify,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("begin", &self.begin).finish_non_exhaustive()
    }
}

/// What happened at the desk in this try.
#[derive(Debug, Default)]
struct Book {
    tries: u32,
    uses: HashMap<Key, Use>,
    blocked: Option<Box<Entry>>,
}

/// What became of a step's name in this try.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Use {
    /// It is being claimed or is under way.
    Active,
    /// It is done: a second use of the name would be another effect.
    Done,
    /// It ended otherwise, and may be tried again.
    Over,
    /// How it ended could not be recorded.
    Unrecorded,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    pub(super) fn new(engine: &Engine, held: &Held, policy: &Policy) -> Desk {
        Desk {
            engine: engine.clone(),
            begin: held.begin.clone(),
            lease: held.lease.version.clone(),
            entry: held.entry.as_ref().map(|seen| seen.version.clone()),
            policy: policy.clone(),
            steps: OnceLock::new(),
            rehearsal: false,
            address: OnceLock::new(),
            trust: Arc::new(Mutex::new(held.trust)),
            book: Mutex::default(),
            quiet: Notify::new(),
        }
    }

    /// The desk of an item: its runner's lease at this version, and the entry of the item.
    pub(super) fn of_item(
        engine: &Engine,
        begin: Begin,
        lease: Version,
        entry: Version,
        policy: &Policy,
        trust: Arc<Mutex<Trust>>,
    ) -> Desk {
        Desk {
            engine: engine.clone(),
            lease,
            entry: Some(entry),
            policy: policy.clone(),
            steps: OnceLock::new(),
            begin,
            rehearsal: false,
            address: OnceLock::new(),
            trust,
            book: Mutex::default(),
            quiet: Notify::new(),
        }
    }

    /// The desk of a rehearsal: it holds nothing, looks at the ledger, and says what would be done.
    pub(super) fn rehearsal(engine: &Engine, begin: Begin, policy: &Policy) -> Desk {
        let now = engine.clock.now();
        let for_ever = now.plus_ms(u64::MAX / 2);
        Desk {
            engine: engine.clone(),
            lease: Version::new(""),
            entry: None,
            policy: policy.clone(),
            steps: OnceLock::new(),
            begin,
            rehearsal: true,
            address: OnceLock::new(),
            trust: Arc::new(Mutex::new(Trust { renew_at: for_ever, stop_by: for_ever, ends: for_ever })),
            book: Mutex::default(),
            quiet: Notify::new(),
        }
    }

    /// Is this only a rehearsal?
    pub fn is_rehearsal(&self) -> bool {
        self.rehearsal
    }

    /// Several are asking at once.
    pub(super) fn expect_many(&self) {
        self.engine.store.expect_many();
    }

    /// What the run was told.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }

    /// Where nested commands reach it, if they can.
    pub fn address(&self) -> Option<&Address> {
        self.address.get()
    }

    pub(super) fn is_at(&self, address: Address) {
        let _ = self.address.set(address);
    }

    pub(super) fn trust(&self, trust: Trust) {
        *locked(&self.trust) = trust;
    }

    /// A new try begins: its names are its own.
    pub(super) fn new_try(&self) {
        let mut book = locked(&self.book);
        book.tries = book.tries.saturating_add(1);
        // one that is still being settled is no lost reply of the next try
        book.uses.retain(|_, used| matches!(used, Use::Unrecorded | Use::Active));
    }

    /// The step that needs a person, if one does.
    pub(super) fn blocked(&self) -> Option<Entry> {
        locked(&self.book).blocked.as_deref().cloned()
    }

    /// Wait until no step is under way, at most so long: those whose process is gone are being recorded.
    pub(super) async fn settled(&self, within: Duration) {
        let _ = tokio::time::timeout(within, async {
            loop {
                let mut quiet = std::pin::pin!(self.quiet.notified());
                quiet.as_mut().enable();
                if !locked(&self.book).uses.values().any(|used| *used == Use::Active) {
                    return;
                }
                quiet.await;
            }
        })
        .await;
    }

    /// Is the lease still trusted, by our own watch?
    pub fn is_trusted(&self) -> Result<(), String> {
        let stop_by = locked(&self.trust).stop_by;
        if self.engine.clock.now() < stop_by {
            return Ok(());
        }
        Err(format!("the lease of {} could not be renewed in time", self.begin.resource))
    }

    /// Verify with the store that the lease is held, with so much time left.
    pub async fn gate(&self, need: Duration) -> Result<Verified, Shut> {
        let need_ms = u64::try_from(need.as_millis()).unwrap_or(u64::MAX);
        let (margin_ms, most_ms) = (self.policy.margin_ms(), self.policy.trust_ms());
        if need_ms > most_ms {
            return Err(Shut::TooShort { need_ms, most_ms });
        }
        let down = |why: LookError| Shut::StoreDown(why.to_string());
        for renewed in [false, true] {
            self.is_trusted().map_err(Shut::Stale)?;
            let seen = self.engine.lease_of(&self.begin.resource).await.map_err(down)?;
            let left_ms = self.left_ms(seen.as_ref()).map_err(Shut::Stale)?.saturating_sub(margin_ms);
            if left_ms >= need_ms {
                return Ok(Verified { left_ms });
            }
            if renewed {
                break;
            }
            match self.engine.store.touch(&RecordKey::lease(&self.begin.resource), &self.lease).await {
                Ok(()) => {}
                Err(StoreError::Refused(_)) => return Err(Shut::Stale(self.taken_over())),
                Err(why) => return Err(Shut::StoreDown(why.to_string())),
            }
        }
        // renewed, and already less than needed is left: the store is slower than the lease is long
        Err(Shut::Stale(format!(
            "the lease of {} runs out faster than it can be renewed",
            self.begin.resource
        )))
    }

    fn left_ms(&self, seen: Option<&SeenLease>) -> Result<u64, String> {
        match seen {
            Some(seen) if seen.carries(&self.begin.grant) => match seen.standing {
                Standing::Live { left_ms } => Ok(left_ms),
                Standing::Lapsed { .. } => Err(self.taken_over()),
            },
            _ => Err(self.taken_over()),
        }
    }

    fn taken_over(&self) -> String {
        let Begin { resource, grant, .. } = &self.begin;
        format!("the lease of {resource} is no longer held with token {}", grant.token)
    }

    /// The step, as a work of this run.
    pub(crate) fn step_work(&self, plan: &StepPlan) -> Result<Work, StepRefusal> {
        match &self.begin.work {
            None => Err(StepRefusal::NoStepsHere(
                "a lease without a ledger has no steps: start the script with semel run",
            )),
            Some(work) if work.is_always() => Err(StepRefusal::NoStepsHere(
                "a run with --always has no steps: it is never retried, so there is nothing to replay; give it --slot, --with, --key or --once",
            )),
            Some(work) => work
                .clone()
                .at_step(plan.name.clone(), plan.nth)
                .map_err(|why| StepRefusal::Wrong(why.to_string())),
        }
    }

    /// Claim a step: what may be done with it?
    pub async fn claim(&self, plan: &StepPlan) -> Result<StepBegin, StepRefusal> {
        self.is_trusted().map_err(StepRefusal::Stale)?;
        let work = self.step_work(plan)?;
        let key = work.key();
        self.enter(&key, plan)?;
        let begun = match self.rehearsal {
            true => self.rehearse(&work, plan).await,
            false => self.claim_work(&work, key, plan).await,
        };
        let used = match &begun {
            Ok(StepBegin::Run(_)) => Use::Active,
            Ok(StepBegin::Replay(_) | StepBegin::Would(_)) => Use::Done,
            Ok(StepBegin::Person(_)) | Err(_) => Use::Over,
        };
        self.note(&key, used);
        if let Ok(StepBegin::Person(entry)) = &begun {
            locked(&self.book).blocked.get_or_insert_with(|| Box::new(entry.clone()));
        }
        begun
    }

    fn enter(&self, key: &Key, plan: &StepPlan) -> Result<(), StepRefusal> {
        let mut book = locked(&self.book);
        match book.uses.get(key) {
            None | Some(Use::Over) => {
                book.uses.insert(*key, Use::Active);
                Ok(())
            }
            Some(Use::Active | Use::Done) => {
                let name = match plan.nth {
                    1 => plan.name.to_string(),
                    nth => format!("{} --nth {nth}", plan.name),
                };
                Err(StepRefusal::Twice { name, next: plan.nth.saturating_add(1) })
            }
            Some(Use::Unrecorded) => Err(StepRefusal::StoreDown(format!(
                "how the step {} ended could not be recorded, so it is not begun again",
                plan.name
            ))),
        }
    }

    fn note(&self, key: &Key, used: Use) {
        let is_over = used != Use::Active;
        locked(&self.book).uses.insert(*key, used);
        if is_over {
            self.quiet.notify_waiters();
        }
    }

    /// What would be done with this step, by the rule of steps and the ledger as it stands. The run could be claimed, so
    /// no other is at it.
    async fn rehearse(&self, work: &Work, plan: &StepPlan) -> Result<StepBegin, StepRefusal> {
        let Begin { work: Some(run_work), resource, grant, .. } = &self.begin else {
            return Err(StepRefusal::NoStepsHere("a lease without a ledger has no steps"));
        };
        let (lease, entry, owner) = (&self.lease, &self.lease, &self.engine.me);
        let run = RunsUnder { work: run_work, resource, grant, lease, entry, owner };
        let (on_lost, keep_ms, now_ms) = (plan.on_lost, self.policy.keep_ms, self.engine.clock.wall_ms());
        let ask = StepAsk { work, run, on_lost, keep_ms, command: plan.command.as_ref(), now_ms };
        let mut resources = Vec::new();
        loop {
            let view = self.engine.look(Some(work), &resources).await.map_err(down)?;
            let would = match step::claim(&view, &ask) {
                StepDecision::LookAt(resource) => {
                    resources.push(resource);
                    continue;
                }
                StepDecision::Done(entry) => return Ok(StepBegin::Replay(entry)),
                StepDecision::Claim(claim) if claim.first == First::Probe => {
                    "be asked about by its probe, and run if it did not happen".to_owned()
                }
                StepDecision::Claim(claim) => format!("be run (attempt {})", claim.entry.attempts),
                StepDecision::Person(entry) | StepDecision::Doubt { entry, .. } => {
                    format!("not be run: it is {}", entry.state.word())
                }
                StepDecision::UnderWay(_) | StepDecision::Elsewhere { .. } => {
                    "not be run: another run is at it".to_owned()
                }
            };
            return Ok(StepBegin::Would(would));
        }
    }

    /// Is there surely, or nearly so, no step on record yet?
    fn is_first(&self) -> bool {
        self.begin.attempt == 1 && locked(&self.book).tries <= 1
    }

    async fn claim_work(&self, work: &Work, key: Key, plan: &StepPlan) -> Result<StepBegin, StepRefusal> {
        let of = draw_nonce().map_err(StepRefusal::StoreDown)?;
        // as `RecordKey::entry` has it, with the run's part made once
        let steps = self.steps.get_or_init(|| RecordKey::steps_of(self.begin.work.as_ref()));
        let record = RecordKey::from_stored(format!("{steps}{key}"));
        let mut guess = self.is_first();
        let Begin { resource, grant, .. } = &self.begin;
        let (Some(entry), Some(run_work)) = (&self.entry, &self.begin.work) else {
            return Err(StepRefusal::NoStepsHere("a lease without a ledger has no steps"));
        };
        let run =
            RunsUnder { work: run_work, resource, grant, lease: &self.lease, entry, owner: &self.engine.me };
        let mut resources = Vec::new();
        let mut unknowns = Unknowns::default();
        loop {
            let guessed = std::mem::take(&mut guess);
            let view = match guessed {
                true => View::default(),
                false => self.engine.look_at(Some(record.clone()), &resources).await.map_err(down)?,
            };
            let ask = StepAsk {
                work,
                run,
                on_lost: plan.on_lost,
                keep_ms: self.policy.keep_ms,
                command: plan.command.as_ref(),
                now_ms: self.engine.clock.wall_ms(),
            };
            let (writes, answer) = match step::claim(&view, &ask) {
                StepDecision::LookAt(resource) => {
                    resources.push(resource);
                    continue;
                }
                StepDecision::Claim(claim) => {
                    let writes = claim.writes();
                    let (value, first) = (claim.entry, claim.first);
                    (writes, Answer::Run { value, first })
                }
                // nobody in this try is at it: it is our own claim, whose reply was lost
                StepDecision::UnderWay(_) => {
                    let Some(seen) = view.entry else { continue };
                    let torn = seen.value.attempts > 1 && plan.on_lost == OnLost::Probe;
                    let first = if torn { First::Probe } else { First::Run };
                    return Ok(StepBegin::Run(Ticket { key, record, seen, first, of }));
                }
                StepDecision::Done(entry) => return Ok(StepBegin::Replay(entry)),
                StepDecision::Person(entry) => return Ok(StepBegin::Person(entry)),
                StepDecision::Doubt { entry, expect, guards, stands } => {
                    (step::guarded(&guards, stands.as_ref(), &entry, &expect), Answer::Person(entry))
                }
                StepDecision::Elsewhere { resource } => {
                    return Err(StepRefusal::Stale(format!(
                        "another run of this work is at the step {}, holding {resource}",
                        plan.name
                    )));
                }
            };
            crash::point("step.claim.before");
            let changes = changes_at(&record, &writes).map_err(|why| StepRefusal::Wrong(why.to_string()))?;
            match self.engine.store.swap(&changes, Durability::Durable).await {
                Ok(mut versions) => {
                    crash::point("step.claim.after");
                    return match (answer, versions.pop()) {
                        (Answer::Run { value, first }, Some(version)) => {
                            let seen = Seen { value, version };
                            Ok(StepBegin::Run(Ticket { key, record, seen, first, of }))
                        }
                        (Answer::Person(entry), _) => Ok(StepBegin::Person(entry)),
                        (Answer::Run { .. }, None) => Err(StepRefusal::StoreDown(
                            "the store answered a swap without its versions".into(),
                        )),
                    };
                }
                // a guess that was wrong: look
                Err(StoreError::Refused(_)) if guessed => {}
                Err(StoreError::Refused(conflict))
                    if conflict.key == RecordKey::lease(resource)
                        || self.begin.work.as_ref().map(RecordKey::entry).as_ref() == Some(&conflict.key) =>
                {
                    return Err(StepRefusal::Stale(self.taken_over()));
                }
                Err(StoreError::Refused(_)) => {}
                Err(StoreError::Unknown(why)) => {
                    unknowns.another(why).await.map_err(StepRefusal::StoreDown)?;
                }
                Err(why) => return Err(StepRefusal::StoreDown(why.to_string())),
            }
        }
    }

    /// Keep a piece of what a step wrote. It is on disk, for sure, when the step is settled.
    pub async fn keep(&self, ticket: &Ticket, piece: u32, bytes: &[u8]) -> Result<(), Unsettled> {
        let change = piece_of(ticket.work(), &ticket.of, piece, bytes)?;
        match self.engine.store.swap(std::slice::from_ref(&change), Durability::Relaxed).await {
            // refused: it is there, of a reply that was lost
            Ok(_) | Err(StoreError::Refused(_)) => Ok(()),
            Err(why) => Err(Unsettled::StoreDown(why.to_string())),
        }
    }

    /// A piece of what a step wrote, if it is still kept.
    pub async fn piece(&self, work: &Work, of: &Nonce, piece: u32) -> Result<Option<Vec<u8>>, StoreError> {
        let loaded = self.engine.store.load(&[RecordKey::output(work, of, piece)]).await?;
        Ok(loaded.records.into_iter().next().flatten().map(|record| record.value))
    }

    /// Record how a step ended.
    pub async fn settle(&self, ticket: Ticket, end: StepEnd) -> Result<Entry, Unsettled> {
        let key = ticket.key;
        let settled = self.settle_ticket(ticket, end).await;
        if let Ok(entry) = settled.as_ref()
            && entry.state.needs_a_person()
        {
            locked(&self.book).blocked.get_or_insert_with(|| Box::new(entry.clone()));
        }
        self.note(
            &key,
            match &settled {
                Ok(entry) if matches!(entry.state, State::Done { .. }) => Use::Done,
                Ok(_) => Use::Over,
                Err(_) => Use::Unrecorded,
            },
        );
        settled
    }

    async fn settle_ticket(&self, ticket: Ticket, end: StepEnd) -> Result<Entry, Unsettled> {
        let Ticket { record, mut seen, of, .. } = ticket;
        let trust_ends = locked(&self.trust).ends;
        let give_up = trust_ends.max(self.engine.clock.now().plus_ms(PATIENCE_MS));
        let last = end.last_piece.as_ref();
        let mut piece = last.map(|(n, bytes)| piece_of(&seen.value.work, &of, *n, bytes)).transpose()?;
        let settle = Settle {
            grant: &self.begin.grant,
            ending: brief(end.ending),
            result: end.result.filter(|value| value.to_string().len() <= RESULT_LIMIT),
            output: end.output,
            failed_tries: 0,
            missed_renewals: 0,
            unrenewed_ms: 0,
            now_ms: self.engine.clock.wall_ms(),
        };
        loop {
            let entry = match entry::settle(&seen.value, &settle) {
                Ok(entry) => entry,
                Err(Stale::AlreadySettled) => return Ok(seen.value),
                Err(stale) => return Err(Unsettled::Stale(stale)),
            };
            let write = step::guarded(&[], None, &entry, &Expect::Version(seen.version.clone()));
            let entry_change =
                changes_at(&record, &write).map_err(|why| Unsettled::Unusable(why.to_string()))?;
            let all: Vec<Change> = piece.iter().cloned().chain(entry_change).collect();
            crash::point("step.settle.before");
            let failed = match self.engine.store.swap(&all, Durability::Durable).await {
                Ok(_) => {
                    crash::point("step.settle.after");
                    return Ok(entry);
                }
                Err(StoreError::Refused(conflict)) => {
                    // it is there, of a swap that was made in part: nobody else has its name
                    piece = piece.filter(|piece| *piece.key() != conflict.key);
                    None
                }
                Err(why) => Some(why.to_string()),
            };
            if let Some(why) = failed {
                if self.engine.clock.now() >= give_up {
                    return Err(Unsettled::StoreDown(why));
                }
                tokio::time::sleep(PAUSE).await;
            }
            match self.engine.look_at(Some(record.clone()), &[]).await {
                Ok(view) => match view.entry {
                    Some(found) => seen = found,
                    None => return Err(Unsettled::Stale(Stale::MovedOn { state: "absent" })),
                },
                Err(LookError::Record(why)) => return Err(Unsettled::Unusable(why.to_string())),
                // the write says it again, and gives up in time
                Err(LookError::Store(_)) => {}
            }
        }
    }

    /// Whoever did the step is gone, and did not say how it ended.
    pub async fn abandon(&self, ticket: Ticket) {
        // if that cannot be recorded, the next run finds the step lost: the same in the end
        let _ = self.settle(ticket, StepEnd::of(Ending::Vanished)).await;
    }
}

enum Answer {
    Run { value: Entry, first: First },
    Person(Entry),
}

fn down(why: LookError) -> StepRefusal {
    StepRefusal::StoreDown(why.to_string())
}

fn brief(ending: Ending) -> Ending {
    match ending {
        Ending::ProbedUnknown { answer } if answer.chars().nth(ANSWER_LIMIT).is_some() => {
            Ending::ProbedUnknown { answer: answer.chars().take(ANSWER_LIMIT).chain(['…']).collect() }
        }
        ending => ending,
    }
}

fn piece_of(work: &Work, of: &Nonce, piece: u32, bytes: &[u8]) -> Result<Change, Unsettled> {
    if bytes.len() > PIECE_LIMIT || piece >= PIECES_LIMIT {
        return Err(Unsettled::Unusable("a piece of output is too large".into()));
    }
    let key = RecordKey::output(work, of, piece);
    Ok(Change::Put { key, expect: Expect::Absent, value: bytes.to_vec(), ttl: None })
}
