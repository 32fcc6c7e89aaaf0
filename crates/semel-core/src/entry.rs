//! The entry machine: the ledger's record of one key.
//!
//! ```text
//! absent ──claim(token)──▶ running(resource, token)
//! running ──settle──▶ done(result) | failed(n) | open (interrupted)
//! failed(n), n < cap ──claim──▶ running          failed(n), n = cap ──▶ quarantined
//! running, and its lease is gone = lost ──▶ policy: retry → running │ probe → done/running/in_doubt │ hold → in_doubt
//! in_doubt, quarantined, done, missed ──a person's verdict──▶ done | open
//! absent ──a slot that passed without a run──▶ missed ──claim──▶ running
//! ```
//!
//! `running{resource, grant}` is alive exactly while the lease of that resource is live *and* carries that grant.
//! So an entry needs no clock and no heartbeat of its own. A settle is accepted only for the grant that is
//! recorded as running: a zombie's `done` is refused by the ledger itself.
//!
//! An attempt that ended *torn* (interrupted, timed out, killed by a signal) may or may not have had its effect,
//! like one that vanished; so the next claim treats it by the same policy.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::calendar::Reason;
use crate::canonical::hex;
use crate::definition::Definition;
use crate::mutant::{self, Mutant};
use crate::name::Name;
use crate::owner::Owner;
use crate::payload::Fingerprint;
use crate::plan::Plan;
use crate::policy::{OnLost, Policy};
use crate::token::{Grant, Nonce, Token};
use crate::work::Work;

/// How many attempts an entry remembers in full. Older ones are only counted.
pub const ATTEMPTS_KEPT: usize = 16;
/// How many verdicts an entry remembers.
pub const VERDICTS_KEPT: usize = 8;
/// The largest result, as JSON text.
pub const RESULT_LIMIT: usize = 64 * 1024;

/// The ledger's record of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// The intent.
    pub work: Work,
    /// Where it stands.
    #[serde(flatten)]
    pub state: State,
    /// Attempts so far.
    pub attempts: u32,
    /// Failures in a row.
    #[serde(default)]
    pub failures: u32,
    /// The last attempts.
    #[serde(default)]
    pub log: Vec<Attempt>,
    /// What people said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<Verdict>,
    /// When the entry last changed, by the writer's wall clock: for people and for retention.
    pub changed_ms: u64,
    /// The payload that is bound to the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Fingerprint>,
    /// The command that last ran, so that a change of it can be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandMark>,
    /// What its attempts are to decide, decided: pinned with the first claim that offered a plan, never replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// How the job was defined when it last ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Definition>,
    /// How it was defined when it last succeeded, if that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven: Option<Definition>,
    /// What came out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// What a step's last attempt wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Output>,
    /// It was done before, and that was forgotten: what is done since is done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forgotten: Option<Forgotten>,
    /// The terms of the last claim, so that what happens next can be told without its command line.
    pub terms: Terms,
}

/// What is left of a mark "done" that was forgotten.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Forgotten {
    /// When it was done.
    pub done_ms: u64,
    /// When that was forgotten.
    pub at_ms: u64,
    /// How long it was to be remembered.
    pub remember_ms: u64,
}

/// What a step's command wrote, kept in pieces beside its entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Output {
    /// What its pieces are known by: each attempt has its own.
    pub of: Nonce,
    /// How many pieces there are.
    pub pieces: u32,
    /// What the command wrote to stdout, in bytes.
    pub out_bytes: u64,
    /// What the command wrote to stderr, in bytes.
    pub err_bytes: u64,
    /// All of it is kept. If not, it was more than the limit, and nothing is.
    pub kept: bool,
}

/// The policies of a claim that matter for the next one and for retention.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// If the attempt is lost.
    pub on_lost: OnLost,
    /// Failures before quarantine.
    pub max_failures: u32,
    /// How long attempts are kept.
    pub keep_ms: u64,
    /// How long "done" is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remember_ms: Option<u64>,
}

impl Terms {
    /// Of these policies.
    pub fn of(policy: &Policy) -> Terms {
        Terms {
            on_lost: policy.on_lost,
            max_failures: policy.max_failures,
            keep_ms: policy.keep_ms,
            remember_ms: policy.remember_ms,
        }
    }
}

/// A command, known by its name and a digest: its arguments may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CommandMark {
    /// The program's file name.
    pub program: String,
    /// A digest over all arguments.
    pub digest: String,
}

impl CommandMark {
    /// The mark of a command with these arguments, the program first.
    pub fn of<'a>(program: &str, arguments: impl IntoIterator<Item = &'a [u8]>) -> CommandMark {
        let mut digest = Sha256::new();
        for argument in arguments {
            digest.update((argument.len() as u64).to_be_bytes());
            digest.update(argument);
        }
        let digest = hex(&digest.finalize()[..16]);
        CommandMark { program: program.to_owned(), digest }
    }
}

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// Nothing is owed and nothing forbids a claim: a person reopened it, or it was interrupted, or it is the
    /// entry of a work that is never done (`--always`).
    Open {
        /// The last attempt may have had its effect.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        torn: bool,
    },
    /// An attempt is under way, alive while the lease of `resource` carries `grant`.
    Running {
        /// Under the lease of this resource.
        resource: Name,
        /// And this grant of it.
        grant: Grant,
    },
    /// It happened.
    Done {
        /// How that is known.
        by: DoneBy,
    },
    /// It is the slot of a schedule, and was not run when it was due.
    Missed {
        /// Why.
        reason: Reason,
        /// What is known besides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// The last attempt failed.
    Failed {
        /// It may have had its effect all the same.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        torn: bool,
    },
    /// It failed too often: a person is needed.
    Quarantined,
    /// Nobody can know whether it happened: a person is needed.
    InDoubt {
        /// Why.
        why: String,
    },
}

impl State {
    /// The one word for it, as in `--state` and in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            State::Open { .. } => "open",
            State::Running { .. } => "running",
            State::Done { .. } => "done",
            State::Missed { .. } => "missed",
            State::Failed { .. } => "failed",
            State::Quarantined => "quarantined",
            State::InDoubt { .. } => "in_doubt",
        }
    }

    /// Is a person needed?
    pub fn needs_a_person(&self) -> bool {
        matches!(self, State::Quarantined | State::InDoubt { .. })
    }
}

/// How it is known that a work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoneBy {
    /// Its command said so.
    Run,
    /// The probe found it in the world.
    Probe,
    /// A person said so.
    Person,
}

/// One attempt at a work.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// 1 for the first.
    pub n: u32,
    /// Under which token.
    pub token: Token,
    /// And which nonce: a key may run under several resources, and their tokens are counted apart.
    pub nonce: Nonce,
    /// Of which resource.
    pub resource: Name,
    /// By whom.
    pub owner: Owner,
    /// The digest of its command, so that a changed one can be shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The digest of the job's definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// Wall clock, for people.
    pub started_ms: u64,
    /// Wall clock, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Renewals of its lease that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed_renewals: u32,
    /// The longest that its lease went without a renewal, where some failed or it was lost.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unrenewed_ms: u64,
    /// How it ended.
    #[serde(flatten)]
    pub ending: Ending,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "ending", rename_all = "snake_case")]
pub enum Ending {
    /// Not yet, as far as the ledger knows.
    None,
    /// The command succeeded.
    Succeeded,
    /// The command said no.
    Failed {
        /// Its exit code.
        code: i32,
    },
    /// The command was ended by a signal that Semel did not send.
    Killed {
        /// Which.
        signal: i32,
    },
    /// It ran longer than it may.
    TimedOut,
    /// A person or the system asked it to stop.
    Interrupted {
        /// By this signal.
        signal: i32,
    },
    /// The lease was lost under it, and it was stopped.
    LeaseLost,
    /// The command could not be started.
    NotStarted {
        /// 126 or 127.
        code: i32,
    },
    /// It vanished: the next claim found its lease gone.
    Vanished,
    /// The probe found the effect of an earlier attempt.
    ProbedDone,
    /// One of its steps needs a person.
    Blocked {
        /// Which, in the readable form.
        step: String,
    },
    /// The probe could not tell.
    ProbedUnknown {
        /// What it answered.
        answer: String,
    },
}

impl Ending {
    /// Does it count toward the cap?
    pub fn is_failure(&self) -> bool {
        matches!(
            self,
            Ending::Failed { .. } | Ending::Killed { .. } | Ending::TimedOut | Ending::NotStarted { .. }
        )
    }

    /// Did it do what it was to do?
    pub fn is_success(&self) -> bool {
        matches!(self, Ending::Succeeded | Ending::ProbedDone)
    }

    /// Did the command come to its own end?
    pub fn is_of_command(&self) -> bool {
        matches!(self, Ending::Succeeded | Ending::Failed { .. } | Ending::Killed { .. })
    }

    /// May the effect have happened although it did not succeed?
    pub fn is_torn(&self) -> bool {
        match self {
            Ending::Vanished => !mutant::on(Mutant::VanishedIsNotTorn),
            Ending::Killed { .. } | Ending::TimedOut | Ending::Interrupted { .. } | Ending::LeaseLost => true,
            _ => false,
        }
    }
}

/// What a person may say of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Say {
    /// It happened.
    Done,
    /// It did not happen: the next run does it.
    NotDone,
    /// Whatever happened, run it again.
    Retry,
}

/// What a person said.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Verdict {
    /// What.
    pub said: Say,
    /// Who, as the system knows them.
    pub by: String,
    /// When, by their wall clock.
    pub at_ms: u64,
    /// Why.
    pub because: String,
    /// Of which state.
    pub was: String,
}

impl Attempt {
    /// Was it under this very grant?
    pub fn is_under(&self, grant: &Grant) -> bool {
        self.token == grant.token && (self.nonce == grant.nonce || mutant::on(Mutant::AttemptByTokenAlone))
    }
}

impl Entry {
    /// An entry with nothing in it.
    pub(crate) fn new(work: Work, state: State, terms: Terms, now_ms: u64) -> Entry {
        Entry {
            work,
            state,
            attempts: 0,
            failures: 0,
            log: Vec::new(),
            verdicts: Vec::new(),
            changed_ms: now_ms,
            payload: None,
            command: None,
            plan: None,
            definition: None,
            proven: None,
            result: None,
            output: None,
            forgotten: None,
            terms,
        }
    }

    /// The attempt under way or the last one.
    pub fn last_attempt(&self) -> Option<&Attempt> {
        self.log.last()
    }

    /// It was done before and that was forgotten, and this is its first attempt since: a run that is caused by it.
    pub fn is_again(&self) -> Option<&Forgotten> {
        self.forgotten.as_ref().filter(|_| self.log.len() <= 1)
    }

    /// Nothing is left of it but that it was done once: no entry any more to those who list entries.
    pub fn is_trace(&self) -> bool {
        let untouched = self.log.is_empty() && self.verdicts.is_empty();
        self.forgotten.is_some() && untouched && matches!(self.state, State::Open { .. })
    }

    pub(crate) fn push_attempt(&mut self, attempt: Attempt) {
        self.attempts = attempt.n;
        self.log.push(attempt);
        let excess = self.log.len().saturating_sub(ATTEMPTS_KEPT);
        self.log.drain(..excess);
    }
}

/// The token of a settle is not the one recorded as running.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// Another attempt is under way or has ended since.
    #[error("the ledger has gone on without this attempt: the entry is {state}")]
    MovedOn {
        /// Where it stands.
        state: &'static str,
    },
    /// This very settle was applied before, and its reply lost.
    #[error("it was recorded already")]
    AlreadySettled,
}

/// How an attempt is to be settled.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle<'a> {
    /// By the holder of this grant.
    pub grant: &'a Grant,
    /// How it ended.
    pub ending: Ending,
    /// What came out.
    pub result: Option<Value>,
    /// What a step wrote.
    pub output: Option<Output>,
    /// Failed tries before the last one, inside the same invocation.
    pub failed_tries: u32,
    /// Renewals of the lease that failed meanwhile.
    pub missed_renewals: u32,
    /// The longest that the lease went without one, where some failed or it was lost.
    pub unrenewed_ms: u64,
    /// Wall clock, for people.
    pub now_ms: u64,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// The entry after an attempt ended. Accepted only for the grant that is recorded as running.
pub fn settle(entry: &Entry, ask: &Settle<'_>) -> Result<Entry, Stale> {
    match &entry.state {
        State::Running { grant, .. } if grant == ask.grant => {}
        State::Running { .. } if mutant::on(Mutant::SettleByAnyone) => {}
        State::Running { .. } => return Err(settled_before(entry, ask)),
        _ if mutant::on(Mutant::SettleWhenNotRunning) => {}
        _ => return Err(settled_before(entry, ask)),
    }
    let mut next = entry.clone();
    next.changed_ms = ask.now_ms;
    if let Some(attempt) = next.log.iter_mut().rev().find(|attempt| attempt.is_under(ask.grant)) {
        attempt.n = attempt.n.saturating_add(ask.failed_tries);
        attempt.ended_ms = Some(ask.now_ms);
        attempt.ending = ask.ending.clone();
        attempt.missed_renewals = ask.missed_renewals;
        attempt.unrenewed_ms = ask.unrenewed_ms;
    }
    next.attempts = next.attempts.saturating_add(ask.failed_tries);
    next.failures = match &ask.ending {
        Ending::Succeeded | Ending::ProbedDone => 0,
        ending => {
            entry.failures.saturating_add(ask.failed_tries).saturating_add(u32::from(ending.is_failure()))
        }
    };
    next.state = state_after(&next, &ask.ending);
    if matches!(next.state, State::Done { .. }) || next.work.is_always() {
        next.result = ask.result.clone();
    }
    next.output = ask.output.clone();
    Ok(next)
}

fn settled_before(entry: &Entry, ask: &Settle<'_>) -> Stale {
    // the last one: a step may be tried again under the grant of the same run
    let mine = entry.log.iter().rev().find(|attempt| attempt.is_under(ask.grant));
    match mine {
        Some(attempt) if attempt.ending == ask.ending => Stale::AlreadySettled,
        _ => Stale::MovedOn { state: entry.state.word() },
    }
}

fn state_after(entry: &Entry, ending: &Ending) -> State {
    let torn = ending.is_torn();
    let always = entry.work.is_always();
    match ending {
        _ if always => State::Open { torn: false },
        Ending::Succeeded => State::Done { by: DoneBy::Run },
        Ending::ProbedDone => State::Done { by: DoneBy::Probe },
        Ending::ProbedUnknown { answer } => State::InDoubt { why: answer.clone() },
        ending if ending.is_failure() => {
            if is_capped(entry.failures, entry.terms.max_failures) {
                State::Quarantined
            } else {
                State::Failed { torn }
            }
        }
        _ => State::Open { torn },
    }
}

/// Have so many failures reached the cap? A cap of 0 is none.
pub fn is_capped(failures: u32, max_failures: u32) -> bool {
    max_failures > 0 && failures >= max_failures && !mutant::on(Mutant::FailureCapIgnored)
}

/// The entry after a person's verdict. Whether it may be given at all is [`crate::claim::verdict`]'s to say.
pub(crate) fn judged(entry: &Entry, verdict: Verdict, result: Option<Value>) -> Entry {
    let mut next = entry.clone();
    next.changed_ms = verdict.at_ms;
    next.failures = 0;
    next.state = match verdict.said {
        Say::Done => State::Done { by: DoneBy::Person },
        Say::NotDone | Say::Retry => State::Open { torn: false },
    };
    if let Some(attempt) = next.log.last_mut().filter(|attempt| attempt.ending == Ending::None) {
        attempt.ending = Ending::Vanished;
    }
    next.result = result.filter(|_| verdict.said == Say::Done);
    next.output = None;
    next.verdicts.push(verdict);
    let excess = next.verdicts.len().saturating_sub(VERDICTS_KEPT);
    next.verdicts.drain(..excess);
    next
}
