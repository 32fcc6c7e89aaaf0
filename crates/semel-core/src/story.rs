//! What happened to a key, in plain words, and what the next run would do.
//!
//! Nothing is decided here: whether an attempt is alive is [`claim::pulse`]'s to say, and what the next run
//! would do is the answer of [`claim::claim`](claim()) itself, or of [`step::claim`] for a step, asked with the terms
//! that the last claim recorded.

use crate::claim::{self, Ask, Busy, Decision, First, Pulse, View, busy_with_itself, claim};
use crate::entry::{Attempt, Ending, Entry, Forgotten, Say, State, Terms, Verdict};
use crate::name::Name;
use crate::owner::Owner;
use crate::policy::{OnLost, Policy};
use crate::record::Version;
use crate::step::{self, RunsUnder, StepAsk, StepDecision};
use crate::token::{Grant, Nonce, Token};
use crate::work::Work;

/// How times are written: the caller knows the time zone.
#[derive(Clone, Copy)]
pub struct Words<'a> {
    /// A moment.
    pub when: &'a dyn Fn(u64) -> String,
    /// A length of time.
    pub span: &'a dyn Fn(u64) -> String,
}

/// Where an entry stands, together with what its lease says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Condition {
    /// Nothing forbids a claim.
    Open,
    /// An attempt is under way.
    Running,
    /// An attempt is on record as running, and its lease is gone.
    Lost,
    /// It happened.
    Done,
    /// It is the slot of a schedule, and was not run when it was due.
    Missed,
    /// The last attempt failed.
    Failed,
    /// It failed too often.
    Quarantined,
    /// Nobody can know whether it happened.
    InDoubt,
}

impl Condition {
    /// All of them, in the order in which they are counted.
    pub const ALL: [Condition; 8] = [
        Condition::Running,
        Condition::Lost,
        Condition::Quarantined,
        Condition::InDoubt,
        Condition::Failed,
        Condition::Missed,
        Condition::Open,
        Condition::Done,
    ];

    /// The one word for it, as in `--state` and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Condition::Open => "open",
            Condition::Running => "running",
            Condition::Lost => "lost",
            Condition::Done => "done",
            Condition::Missed => "missed",
            Condition::Failed => "failed",
            Condition::Quarantined => "quarantined",
            Condition::InDoubt => "in_doubt",
        }
    }

    /// Is a person needed?
    pub fn needs_a_person(self) -> bool {
        matches!(self, Condition::Quarantined | Condition::InDoubt)
    }
}

/// Where does this entry stand? An error names the lease that must be looked at first.
pub fn condition(view: &View, entry: &Entry) -> Result<Condition, Name> {
    Ok(match &entry.state {
        State::Running { resource, grant } => match claim::pulse(view, resource, grant) {
            Pulse::Alive => Condition::Running,
            Pulse::Lost(_) => Condition::Lost,
            Pulse::LookAt(resource) => return Err(resource),
        },
        State::Open { .. } => Condition::Open,
        State::Done { .. } => Condition::Done,
        State::Missed { .. } => Condition::Missed,
        State::Failed { .. } => Condition::Failed,
        State::Quarantined => Condition::Quarantined,
        State::InDoubt { .. } => Condition::InDoubt,
    })
}

/// Runs that came and did nothing, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suppressed {
    /// Because the work was done.
    pub done: u64,
    /// Because this very work was under way.
    pub running: u64,
    /// Because the resource was held for something else.
    pub busy: u64,
    /// When the last of them came.
    pub last_ms: Option<u64>,
}

impl Suppressed {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.done + self.running + self.busy
    }

    /// How many and why; nothing if there were none.
    pub fn words(&self) -> Option<String> {
        let reasons = [
            (self.done, "because it was done"),
            (self.running, "because it was running"),
            (self.busy, "because its resource was held for something else"),
        ];
        let given: Vec<_> = reasons.iter().filter(|(count, _)| *count > 0).collect();
        let what = if self.all() == 1 { "duplicate" } else { "duplicates" };
        match given.as_slice() {
            [] => None,
            [(count, why)] => Some(format!("{count} {what} suppressed, {why}")),
            several => {
                let parts: Vec<_> = several.iter().map(|(count, why)| format!("{count} {why}")).collect();
                Some(format!("{} {what} suppressed: {}", self.all(), parts.join(", ")))
            }
        }
    }
}

/// A sentence of a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When, by the wall clock of whoever wrote it.
    pub at_ms: Option<u64>,
    /// What.
    pub text: String,
}

/// What happened to this entry, in order.
pub fn story(entry: &Entry, condition: Condition, suppressed: &Suppressed, words: Words<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut say = |at_ms: Option<u64>, text: String| lines.push(Line { at_ms, text });
    if let Some(Forgotten { done_ms, at_ms, remember_ms }) = &entry.forgotten {
        say(Some(*done_ms), "done, for the last time before this was forgotten".to_owned());
        let span = (words.span)(*remember_ms);
        say(Some(*at_ms), format!("forgotten by gc, as --remember {span} asks: the next run does it again"));
    }
    match entry.log.first() {
        Some(first) if first.n == 1 => {
            say(Some(first.started_ms), format!("first asked, by {}", first.owner))
        }
        Some(_) if entry.forgotten.is_some() => {}
        // older than they are kept, or tries inside one invocation
        Some(first) => say(None, format!("what came before attempt {} is not kept one by one", first.n)),
        None => {}
    }
    let mut verdicts = entry.verdicts.iter().peekable();
    let mut before = entry.log.first().map_or(0, |first| first.n.saturating_sub(1));
    let mut command: Option<&String> = None;
    for attempt in &entry.log {
        while let Some(verdict) = verdicts.next_if(|verdict| verdict.at_ms <= attempt.started_ms) {
            say(Some(verdict.at_ms), judged(verdict));
        }
        let changed = command.is_some() && attempt.command.is_some() && attempt.command.as_ref() != command;
        let drift = if changed { "; its command or arguments had changed" } else { "" };
        say(Some(attempt.started_ms), tried(attempt, before, condition, words) + drift);
        before = attempt.n;
        command = attempt.command.as_ref().or(command);
    }
    for verdict in verdicts {
        say(Some(verdict.at_ms), judged(verdict));
    }
    match (&entry.state, condition) {
        (State::Quarantined, _) => {
            let n = entry.failures;
            say(
                Some(entry.changed_ms),
                format!("quarantined after {n} {} in a row", plural(n, "failure", "failures")),
            );
        }
        (State::Missed { reason, detail }, _) => {
            let detail = detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
            say(
                Some(entry.changed_ms),
                format!("found missed: it passed without a run, because {}{detail}", reason.words()),
            );
        }
        (State::InDoubt { why }, _) => say(Some(entry.changed_ms), format!("in doubt: {why}")),
        (State::Running { resource, grant }, Condition::Lost) => {
            say(
                None,
                format!(
                    "that attempt is lost: the lease of {resource} is gone or no longer carries token {}",
                    grant.token
                ),
            );
        }
        _ => {}
    }
    if let Some(text) = suppressed.words() {
        let last =
            suppressed.last_ms.map(|ms| format!(" (the last at {})", (words.when)(ms))).unwrap_or_default();
        say(None, text + &last);
    }
    lines
}

fn plural<'a>(n: u32, one: &'a str, many: &'a str) -> &'a str {
    if n == 1 { one } else { many }
}

fn tried(attempt: &Attempt, before: u32, condition: Condition, words: Words<'_>) -> String {
    let n = attempt.n;
    let first = before.saturating_add(1);
    let which = if n > first { format!("attempts {first} to {n}") } else { format!("attempt {n}") };
    let took = attempt.ended_ms.and_then(|ended_ms| ended_ms.checked_sub(attempt.started_ms));
    let took = took.map(|ms| format!(" after {}", (words.span)(ms))).unwrap_or_default();
    let by = format!("{which} (token {} of {}, {})", attempt.token, attempt.resource, attempt.owner);
    let end = match (&attempt.ending, condition) {
        (Ending::None, Condition::Running) => "is under way".to_owned(),
        (Ending::None, _) => "began, and its end is not on record".to_owned(),
        // who lost its lease is not there to say when it ended
        (Ending::Vanished, _) if attempt.ended_ms.is_some() => {
            return format!("{by} vanished{took}: its process ended without saying how");
        }
        (Ending::Vanished, _) => "vanished: its lease was found gone".to_owned(),
        (ending, _) => ended(ending),
    };
    format!("{by} {end}{took}")
}

fn judged(verdict: &Verdict) -> String {
    let Verdict { said, by, because, was, .. } = verdict;
    let said = match said {
        Say::Done => "done",
        Say::NotDone => "not done",
        Say::Retry => "retry",
    };
    format!("{by} said {said} (it was {was}), because: {because}")
}

/// How an attempt ended, in words.
pub fn ended(ending: &Ending) -> String {
    match ending {
        Ending::None => "not ended".into(),
        Ending::Succeeded => "succeeded".into(),
        Ending::Failed { code } => format!("failed with exit code {code}"),
        Ending::Killed { signal } => format!("was ended by signal {signal}"),
        Ending::TimedOut => "ran longer than --timeout and was stopped".into(),
        Ending::Interrupted { signal } => format!("was interrupted by signal {signal}"),
        Ending::LeaseLost => "lost its lease and was stopped".into(),
        Ending::NotStarted { code } => format!("could not be started ({code})"),
        Ending::Vanished => "vanished".into(),
        Ending::ProbedDone => "was found done by the probe".into(),
        Ending::Blocked { step } => format!("needs a person for its step {step}"),
        Ending::ProbedUnknown { answer } => format!("is in doubt: {answer}"),
    }
}

/// What the next run would do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // one at a time
pub enum Next {
    /// Run the command.
    Run {
        /// Under this resource's lease.
        resource: Name,
        /// 1 for the first.
        attempt: u32,
        /// The last attempt may have had its effect, and the policy is to run it again all the same.
        after_lost: bool,
    },
    /// Ask the probe, and run the command if it did not happen.
    Probe {
        /// Under this resource's lease.
        resource: Name,
        /// 1 for the first.
        attempt: u32,
    },
    /// Nothing: it is done.
    Skip {
        /// Until then at least; for ever if none.
        remembered_until_ms: Option<u64>,
    },
    /// Of a step: do it, under the lease that the run holds when it comes to it.
    Step {
        /// What it does first.
        first: First,
        /// 1 for the first.
        attempt: u32,
        /// The last attempt may have had its effect.
        after_lost: bool,
    },
    /// Of a step: take it for done, and write again what it wrote.
    Replay {
        /// Was all of it kept? None if nothing is on record.
        kept: Option<bool>,
    },
    /// Nothing: somebody else is at it.
    Yield(Busy),
    /// Nothing, until a person has said something; before that, record this state if it is not so yet.
    Person(State),
    /// Nothing, for this reason.
    Refuse(String),
}

impl Next {
    /// The one word for it, as in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Next::Run { .. } | Next::Step { first: First::Run, .. } => "run",
            Next::Probe { .. } | Next::Step { first: First::Probe, .. } => "probe",
            Next::Skip { .. } => "skip",
            Next::Replay { .. } => "replay",
            Next::Yield(_) => "yield",
            Next::Person(_) => "needs_person",
            Next::Refuse(_) => "refuse",
        }
    }

    /// To be read after "The next run would: ".
    pub fn words(&self, words: Words<'_>) -> String {
        match self {
            Next::Run { resource, attempt: 1, .. } => {
                format!("run it for the first time, holding {resource}")
            }
            Next::Run { resource, attempt, after_lost: false } => {
                format!("run it (attempt {attempt}), holding {resource}")
            }
            Next::Run { resource, attempt, after_lost: true } => format!(
                "run it again (attempt {attempt}), holding {resource}: the last attempt did not end well and may have \
                 had its effect, and the policy is --on-lost retry"
            ),
            Next::Probe { resource, attempt } => format!(
                "ask the probe whether the last attempt had its effect, and if not run it (attempt {attempt}), holding {resource}"
            ),
            Next::Skip { remembered_until_ms: None } => "skip it: it is done".to_owned(),
            Next::Skip { remembered_until_ms: Some(ms) } => format!(
                "skip it: it is done (remembered until {}; the first gc after that forgets it)",
                (words.when)(*ms)
            ),
            Next::Step { first: First::Probe, attempt, .. } => format!(
                "ask the probe whether the last attempt had its effect, and if not run it (attempt {attempt}), when it \
                 comes to this step"
            ),
            Next::Step { attempt: 1, .. } => {
                "run it for the first time, when it comes to this step".to_owned()
            }
            Next::Step { attempt, after_lost: false, .. } => {
                format!("run it (attempt {attempt}), when it comes to this step")
            }
            Next::Step { attempt, after_lost: true, .. } => format!(
                "run it again (attempt {attempt}), when it comes to this step: the last attempt did not end well and \
                 may have had its effect, and the policy is --on-lost retry"
            ),
            Next::Replay { kept: None } => "replay it: it is done".to_owned(),
            Next::Replay { kept: Some(true) } => {
                "replay it: it is done, and what it wrote is written again as long as it is kept".to_owned()
            }
            Next::Replay { kept: Some(false) } => {
                "replay it: it is done, but what it wrote was more than is kept".to_owned()
            }
            Next::Yield(Busy { resource, held, same_work }) => {
                let (owner, token, left) = (&held.hold.owner, held.token, (words.span)(held.wait_ms));
                let who = match same_work {
                    true => format!("{owner} is at it (token {token})"),
                    false => format!("{resource} is held for {} by {owner} (token {token})", held.hold.what),
                };
                match held.draining {
                    true => format!("yield: {who}; that lease lapsed, and its lock delay ends in {left}"),
                    false => format!("yield: {who}; that lease ends in {left} unless renewed"),
                }
            }
            Next::Person(State::InDoubt { why }) => {
                format!("not run it, and ask a person (79): in doubt, {why}")
            }
            Next::Person(state) => format!("not run it, and ask a person (79): {}", state.word()),
            Next::Refuse(why) => format!("not run it: {why}"),
        }
    }
}

/// What would the next run of this work do, with the terms of the last one; or, of a step, the next run that comes
/// to it? An error names the lease that must be looked at first.
pub fn next(view: &View, work: &Work, me: &Owner, now_ms: u64) -> Result<Next, Name> {
    if work.step().is_some() {
        return next_of_step(view, work, me, now_ms);
    }
    let entry = view.entry.as_ref().map(|seen| &seen.value);
    let resource =
        entry.and_then(Entry::last_attempt).map_or_else(|| work.job().clone(), |last| last.resource.clone());
    let policy = entry.map_or_else(Policy::default, |entry| policy_of(&entry.terms));
    let ask = Ask {
        work: Some(work),
        what: &work.to_string(),
        resources: std::slice::from_ref(&resource),
        policy: &policy,
        owner: me,
        // nobody draws this one: no grant can be taken for ours
        nonce: Nonce::from_bytes([0; 16]),
        payload: entry.and_then(|entry| entry.payload.as_ref()),
        command: None,
        plan: None,
        definition: None,
        occurrence: None,
        now_ms,
    };
    Ok(match claim(view, &ask) {
        Decision::LookAt(resource) => return Err(resource),
        Decision::Claim(claim) if claim.first == First::Probe => {
            Next::Probe { attempt: claim.attempt(), resource: claim.resource }
        }
        Decision::Claim(claim) => {
            Next::Run { attempt: claim.attempt(), after_lost: claim.after_lost, resource: claim.resource }
        }
        Decision::Done(entry) => {
            let remembered_until_ms = entry.terms.remember_ms.map(|ms| entry.changed_ms.saturating_add(ms));
            Next::Skip { remembered_until_ms }
        }
        Decision::Busy(busy) => Next::Yield(busy),
        Decision::Person(entry) | Decision::Doubt { entry, .. } => Next::Person(entry.state),
        Decision::UsedUp(why) => Next::Refuse(why.to_string()),
        // asked with its own payload, one resource and a nonce that nobody has
        Decision::Mismatch { .. } | Decision::Claimed | Decision::NoResource => no_sense(),
    })
}

fn no_sense() -> Next {
    Next::Refuse("the ledger's answer makes no sense; look with: semel doctor".to_owned())
}

fn next_of_step(view: &View, work: &Work, me: &Owner, now_ms: u64) -> Result<Next, Name> {
    let entry = view.entry.as_ref().map(|seen| &seen.value);
    let resource = match entry {
        // while its run is alive, no other comes to it
        Some(entry @ Entry { state: State::Running { resource, grant }, .. }) => {
            match claim::pulse(view, resource, grant) {
                Pulse::LookAt(resource) => return Err(resource),
                Pulse::Alive => {
                    return Ok(match busy_with_itself(view, resource, entry) {
                        Decision::Busy(busy) => Next::Yield(busy),
                        _ => no_sense(),
                    });
                }
                Pulse::Lost(_) => resource,
            }
        }
        _ => work.job(),
    };
    // the next run, as far as it is known: nobody draws this nonce, and what it would write is not written
    let grant = Grant { token: Token::FIRST, nonce: Nonce::from_bytes([0; 16]) };
    let run = RunsUnder {
        work,
        resource,
        grant: &grant,
        lease: &Version::new(""),
        entry: &Version::new(""),
        owner: me,
    };
    let (on_lost, keep_ms) =
        entry.map_or((OnLost::Hold, 0), |entry| (entry.terms.on_lost, entry.terms.keep_ms));
    let ask = StepAsk { work, run, on_lost, keep_ms, command: None, now_ms };
    Ok(match step::claim(view, &ask) {
        StepDecision::Claim(claim) => {
            Next::Step { first: claim.first, attempt: claim.entry.attempts, after_lost: claim.after_lost }
        }
        StepDecision::Done(entry) => Next::Replay { kept: entry.output.map(|output| output.kept) },
        StepDecision::Person(entry) | StepDecision::Doubt { entry, .. } => Next::Person(entry.state),
        StepDecision::LookAt(resource) => return Err(resource),
        // asked under the very resource that it was lost under, and a grant that nobody has
        StepDecision::UnderWay(_) | StepDecision::Elsewhere { .. } => no_sense(),
    })
}

fn policy_of(terms: &Terms) -> Policy {
    Policy {
        on_lost: terms.on_lost,
        max_failures: terms.max_failures,
        keep_ms: terms.keep_ms,
        remember_ms: terms.remember_ms,
        ..Policy::default()
    }
}

#[cfg(test)]
#[path = "story_tests.rs"]
mod tests;

#[cfg(test)]
pub(crate) use tests::testing;
