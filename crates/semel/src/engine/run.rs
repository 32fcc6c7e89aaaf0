//! A run, from the claim to the report. One `select!` owns the outside world.

use std::sync::Arc;
use std::time::Duration;

use semel_core::claim::{After, First};
use semel_core::entry::{Ending, is_capped};

use super::claim::Claimed;
use super::desk::Desk;
use super::hold::{Heart, Missed, Renewal};
use super::settle::{Outcome, Unsettled};
use super::socket::Service;
use super::{
    Caught, Engine, Event, Held, NotStarted, Probed, Ran, Report, RunPlan, Signals, Task, TaskEnd, Tell,
    draw_nonce,
};
use crate::clock::Moment;
use crate::crash;

/// How long the steps of a try that has ended are waited for: their processes are gone, and that is being recorded.
pub(super) const STEPS_PATIENCE: Duration = Duration::from_secs(2);

/// Why a lease is lost whose trust has ended.
const UNRENEWED: &str = "it could not be renewed in time";

/// A lease that was not given back, because another work follows under it.
#[derive(Debug)]
pub struct Kept {
    held: Held,
    /// How long it is to be held at least, from its last claim on.
    hold_at_least_ms: u64,
}

impl Kept {
    fn is_trusted(&self, now: Moment) -> bool {
        now < self.held.trust.stop_by
    }
}

/// Why the watch over something ended.
enum Watched<T> {
    /// It came to its end.
    Ended(T),
    /// The lease is lost, or its trust has ended.
    LeaseLost { why: String, at_once: bool },
    /// It ran longer than it may.
    TimedOut,
    /// It was asked to end, and the grace for that has passed.
    Overdue,
}

/// What the watch keeps in mind over the tries of a run.
struct Watch<'a> {
    engine: &'a Engine,
    plan: &'a RunPlan,
    heart: Heart,
    desk: Arc<Desk>,
    timeout_at: Option<Moment>,
    /// The signal that asked for an end, and when patience with it ends.
    asked_to_end: Option<(i32, Option<Moment>)>,
}

/// What is known of the last try besides how it ran.
struct Last {
    /// Why the lease was lost, if it was.
    lost: Option<String>,
    missed: Missed,
    /// Another work follows under the lease.
    keep: bool,
}

/// What came of the tries of a run.
struct Tried {
    last: Try,
    tries: u32,
    failed_tries: u32,
    took: Duration,
    missed: Missed,
}

/// How a try ended.
struct Try {
    ending: Ending,
    end: Option<TaskEnd>,
    not_started: Option<NotStarted>,
    lost: Option<String>,
}

impl Engine {
    /// Claim the work, do it, record what came of it. Or say why not.
    pub async fn run(
        &self,
        plan: &RunPlan,
        task: &mut impl Task,
        signals: &mut impl Signals,
        tell: Tell<'_>,
    ) -> Report {
        let nonce = match draw_nonce() {
            Ok(nonce) => nonce,
            Err(why) => return Report::Unusable(why),
        };
        // boxed, and gone before the work begins: what lasts is small
        let claimed = match Box::pin(self.claim(plan, nonce, task, signals, tell)).await {
            Ok(claimed) => claimed,
            Err(report) => return report,
        };
        self.run_claimed(plan, claimed, false, task, signals, tell).await.0
    }

    /// As [`run`](Engine::run), one of several works in a row under one lease: the lease that the one before kept is
    /// taken up, and with `keep` it is not given back at the end. What is answered with the report must go into the
    /// next one, or to [`let_go`](Engine::let_go). Whoever was asked to end between the two does not begin another.
    pub async fn run_in_row(
        &self,
        plan: &RunPlan,
        kept: Option<Kept>,
        keep: bool,
        task: &mut impl Task,
        signals: &mut impl Signals,
        tell: Tell<'_>,
    ) -> (Report, Option<Kept>) {
        if let Some(caught) = without_waiting(signals.next()).await {
            return (Report::Interrupted(caught.signal), kept);
        }
        let kept = self.still_trusted(kept).await;
        let mut one = plan.clone();
        let nonce = match &kept {
            Some(Kept { held, .. }) => {
                one.resources = vec![held.begin.resource.clone()];
                Ok(held.begin.grant.nonce)
            }
            None => draw_nonce(),
        };
        let nonce = match nonce {
            Ok(nonce) => nonce,
            Err(why) => return (Report::Unusable(why), kept),
        };
        let claimed = match Box::pin(self.claim(&one, nonce, task, signals, tell)).await {
            Ok(claimed) => claimed,
            Err(report) => return (report, kept),
        };
        self.run_claimed(&one, claimed, keep, task, signals, tell).await
    }

    /// Give back a lease that was kept for another work, once it was held for as long as the policy says.
    pub async fn let_go(&self, kept: Kept) {
        let rest_ms = self.rest_ms(&kept.held, kept.hold_at_least_ms);
        // one that cannot be given back lapses
        let _ = self.give_back(kept.held, rest_ms).await;
    }

    /// What may have lapsed is not taken up: it is claimed anew, with a token of its own. It is given back first, for a
    /// fresh claim of its own holder would find it busy.
    async fn still_trusted(&self, kept: Option<Kept>) -> Option<Kept> {
        let kept = kept?;
        if kept.is_trusted(self.clock.now()) {
            return Some(kept);
        }
        let _ = self.give_back(kept.held, 0).await;
        None
    }

    /// How long a lease is to rest that is given back now.
    fn rest_ms(&self, held: &Held, hold_at_least_ms: u64) -> u64 {
        let held_for = held.since.until(self.clock.now());
        let rest = Duration::from_millis(hold_at_least_ms).saturating_sub(held_for);
        u64::try_from(rest.as_millis()).unwrap_or(u64::MAX)
    }

    async fn run_claimed(
        &self,
        plan: &RunPlan,
        claimed: Claimed,
        keep: bool,
        task: &mut impl Task,
        signals: &mut impl Signals,
        tell: Tell<'_>,
    ) -> (Report, Option<Kept>) {
        let mut held = claimed.held;
        tell(Event::Claimed {
            begin: &held.begin,
            before: claimed.before,
            after_lost: claimed.after_lost,
            forgotten: held.entry.as_ref().and_then(|seen| seen.value.is_again()),
        });
        let began = self.clock.now();
        let desk = Arc::new(Desk::new(self, &held, &plan.policy));
        let service = plan.nested.as_deref().and_then(|folder| {
            let opened = Service::open(&desk, folder);
            opened.map_err(|why| tell(Event::Unreachable(&format!("{}: {why}", folder.display())))).ok()
        });
        let mut watch = Watch {
            engine: self,
            plan,
            heart: Heart::new(self, &held, &plan.policy),
            desk: Arc::clone(&desk),
            timeout_at: None,
            asked_to_end: None,
        };
        let mut tries: u32 = 0;
        let mut failed_tries = 0;
        let attempts_before = held.begin.attempt.saturating_sub(1);
        let mut last = None;
        if claimed.first == First::Probe {
            last = watch.probe(&mut held, task, signals, tell).await;
        }
        let last = match last {
            Some(settled_by_probe) => settled_by_probe,
            None => loop {
                tries += 1;
                held.begin.attempt = attempts_before.saturating_add(tries);
                let one = watch.attempt(&mut held, task, signals, tell).await;
                if !watch.may_retry(&held, &one, tries) {
                    break one;
                }
                failed_tries = tries;
                let pause_ms = plan.policy.backoff_ms(tries, random());
                tell(Event::Retrying { ending: &one.ending, pause_ms });
                if let Some(stopped) = watch.pause(&mut held, pause_ms, signals, tell).await {
                    break Try { ending: stopped.ending, lost: stopped.lost, ..one };
                }
            },
        };
        let missed = watch.heart.missed(last.lost.is_some());
        drop(watch);
        if let Some(service) = service {
            service.close().await;
        }
        let took = began.until(self.clock.now());
        let tried = Tried { last, tries, failed_tries, took, missed };
        // boxed: it is made at the very end, and would be most of what a run takes while it lasts
        Box::pin(self.wind_up(plan, held, &desk, tried, keep, task, tell)).await
    }

    /// What came of the tries, put on record and reported.
    #[allow(clippy::too_many_arguments)] // the end of `run_claimed`
    async fn wind_up(
        &self,
        plan: &RunPlan,
        held: Box<Held>,
        desk: &Desk,
        tried: Tried,
        keep: bool,
        task: &mut impl Task,
        tell: Tell<'_>,
    ) -> (Report, Option<Kept>) {
        let Tried { last, tries, failed_tries, took, missed } = tried;
        let blocked = desk.blocked().filter(|_| last.end.is_some() && last.lost.is_none());
        let last = match &blocked {
            Some(step) if last.ending.is_of_command() => {
                Try { ending: Ending::Blocked { step: step.work.to_string() }, ..last }
            }
            _ => last,
        };
        let ran = Ran {
            begin: held.begin.clone(),
            ending: last.ending.clone(),
            end: last.end,
            not_started: last.not_started,
            tries,
            failed_tries,
            took,
        };
        // what was lost is not there to be kept
        let keep = keep && last.lost.is_none();
        let hold_at_least_ms = plan.policy.hold_at_least_ms;
        let kept = keep.then(|| Kept { held: held.without_entry(), hold_at_least_ms });
        let (report, notices) =
            self.finish(plan, *held, task, ran, Last { lost: last.lost, missed, keep }).await;
        if notices {
            tell(Event::Notices);
        }
        let kept = kept.filter(|_| !matches!(report, Report::LeaseLost { .. } | Report::Unrecorded { .. }));
        let report = match (report, blocked) {
            (Report::Ran { ran, .. }, Some(step)) if matches!(ran.ending, Ending::Blocked { .. }) => {
                Report::Blocked { ran, step }
            }
            (report, _) => report,
        };
        (report, kept)
    }

    /// The outcome on record, and the report.
    async fn finish(
        &self,
        plan: &RunPlan,
        held: Held,
        task: &mut impl Task,
        ran: Ran,
        last: Last,
    ) -> (Report, bool) {
        let Last { lost, missed, keep } = last;
        let rest_ms = self.rest_ms(&held, plan.policy.hold_at_least_ms);
        let outcome = Outcome {
            ending: ran.ending.clone(),
            result: if ran.ending == Ending::Succeeded { task.result() } else { None },
            failed_tries: ran.failed_tries,
            missed_renewals: missed.renewals,
            unrenewed_ms: missed.unrenewed_ms,
            after: if keep { After::Keep } else { After::Release { rest_ms } },
        };
        let settled = self.settle(held, outcome).await;
        let notices = settled.as_ref().is_ok_and(|settled| settled.notices);
        let report = match (settled.map(|settled| settled.entry), lost) {
            // the lease was gone, but nobody had claimed the entry: what happened is on record
            (Ok(_), Some(why)) => Report::LeaseLost { ran, why },
            (Ok(Some(entry)), None) if entry.state.needs_a_person() => {
                Report::NeedsPerson { entry, ran: Some(ran) }
            }
            (Ok(entry), None) => Report::Ran { ran, entry },
            (Err(Unsettled::Stale(stale)), lost) => {
                Report::LeaseLost { ran, why: lost.unwrap_or_else(|| stale.to_string()) }
            }
            (Err(Unsettled::StoreDown(why) | Unsettled::Unusable(why)), lost) => match lost {
                Some(lost) => Report::LeaseLost { ran, why: lost },
                None => Report::Unrecorded { ran, why },
            },
        };
        (report, notices)
    }
}

impl Watch<'_> {
    /// One try: start, watch, stop if need be, clear what was left behind.
    async fn attempt(
        &mut self,
        held: &mut Held,
        task: &mut impl Task,
        signals: &mut impl Signals,
        tell: Tell<'_>,
    ) -> Try {
        let policy = &self.plan.policy;
        // before the start: a stall between the two must not leave a command without an end
        task.trust_until(held.trust.ends);
        if self.engine.clock.now() >= held.trust.stop_by {
            // a process that stood still after its claim: another may be at it by now
            let why = "it was held up until there was no time left to begin".to_owned();
            return Try { ending: Ending::LeaseLost, end: None, not_started: None, lost: Some(why) };
        }
        self.desk.new_try();
        if let Err(not_started) = task.start(&held.begin, &self.desk).await {
            let ending = Ending::NotStarted { code: not_started.code };
            return Try { ending, end: None, not_started: Some(not_started), lost: None };
        }
        crash::point("run.started");
        self.timeout_at = policy.timeout_ms.map(|ms| self.engine.clock.now().plus_ms(ms));
        let mut watched = self.over_task(held, task, signals, tell).await;
        // A machine that slept finds out first that its time is up. If the command had come to its end before, that
        // is no unknown outcome: it is recorded, unless the ledger has gone on.
        if !matches!(watched, Watched::Ended(_))
            && self.plan.work.is_some()
            && let Some(end @ TaskEnd::Exited(_)) = without_waiting(task.ended()).await
        {
            watched = Watched::Ended(end);
        }
        crash::point("run.ended");
        let grace = Duration::from_millis(policy.kill_after_ms);
        let inside_the_lease = |engine: &Engine| grace.min(engine.clock.now().until(held.trust.ends));
        let (end, cut) = match watched {
            Watched::Ended(end) => (end, None),
            Watched::LeaseLost { why, at_once } => {
                let grace = if at_once { Duration::ZERO } else { inside_the_lease(self.engine) };
                let end = task.stop(grace).await;
                (end, Some((Ending::LeaseLost, Some(why))))
            }
            Watched::TimedOut => {
                (task.stop(inside_the_lease(self.engine)).await, Some((Ending::TimedOut, None)))
            }
            Watched::Overdue => (task.stop(Duration::ZERO).await, None),
        };
        let left_behind = task.clear(inside_the_lease(self.engine)).await;
        if left_behind > 0 {
            tell(Event::LeftBehind(left_behind));
        }
        self.desk.settled(STEPS_PATIENCE).await;
        let (ending, lost) = match (cut, end, self.asked_to_end) {
            (Some((ending, lost)), _, _) => (ending, lost),
            (None, TaskEnd::Exited(0), _) => (Ending::Succeeded, None),
            (None, _, Some((signal, _))) => (Ending::Interrupted { signal }, None),
            (None, TaskEnd::Exited(code), None) => (Ending::Failed { code }, None),
            (None, TaskEnd::Killed(signal), None) => (Ending::Killed { signal }, None),
        };
        Try { ending, end: Some(end), not_started: None, lost }
    }

    /// Ask the world first. An answer that settles the matter comes back as the ending.
    async fn probe(
        &mut self,
        held: &mut Held,
        task: &mut impl Task,
        signals: &mut impl Signals,
        tell: Tell<'_>,
    ) -> Option<Try> {
        let begin = held.begin.clone();
        let watched = {
            let mut asking = std::pin::pin!(task.probe(&begin));
            loop {
                match self.step(held, signals, tell, asking.as_mut()).await {
                    Some(Stepped::Ended(probed)) => break Watched::Ended(probed),
                    Some(Stepped::Caught(caught)) => self.note_signal(caught),
                    Some(Stepped::Lost { why, at_once }) => break Watched::LeaseLost { why, at_once },
                    Some(Stepped::TimedOut | Stepped::Overdue) | None => {}
                }
                if let Some((signal, _)) = self.asked_to_end {
                    break Watched::Ended(Probed::Unknown(format!(
                        "the probe was interrupted by signal {signal}"
                    )));
                }
            }
        };
        let done = |ending, lost| Some(Try { ending, end: None, not_started: None, lost });
        match watched {
            Watched::LeaseLost { why, .. } => done(Ending::LeaseLost, Some(why)),
            Watched::TimedOut | Watched::Overdue => done(Ending::LeaseLost, None),
            Watched::Ended(probed) => {
                tell(Event::Probed(&probed));
                match (probed, self.asked_to_end) {
                    (Probed::Happened, _) => done(Ending::ProbedDone, None),
                    (Probed::DidNot, None) => None,
                    (_, Some((signal, _))) => done(Ending::Interrupted { signal }, None),
                    (Probed::Unknown(answer) | Probed::NotAsked(answer), None) => {
                        done(Ending::ProbedUnknown { answer }, None)
                    }
                }
            }
        }
    }

    fn may_retry(&self, held: &Held, one: &Try, tries: u32) -> bool {
        let policy = &self.plan.policy;
        let failures = held.entry.as_ref().map_or(0, |entry| entry.value.failures).saturating_add(tries);
        let capped = match &self.plan.work {
            Some(work) if !work.is_always() => is_capped(failures, policy.max_failures),
            _ => false,
        };
        one.ending.is_failure()
            && self.desk.blocked().is_none()
            && one.not_started.is_none()
            && tries <= policy.retries
            && !capped
    }

    /// The pause before a retry, with the lease kept alive.
    async fn pause(
        &mut self,
        held: &mut Held,
        pause_ms: u64,
        signals: &mut impl Signals,
        tell: Tell<'_>,
    ) -> Option<Try> {
        let until = self.engine.clock.now().plus_ms(pause_ms);
        self.timeout_at = None;
        let engine = self.engine;
        let mut sleeping = engine.clock.sleep_until(until);
        let stopped = |ending, lost| Some(Try { ending, end: None, not_started: None, lost });
        loop {
            match self.step(held, signals, tell, sleeping.as_mut()).await {
                Some(Stepped::Ended(())) => return None,
                Some(Stepped::Caught(caught)) => {
                    return stopped(Ending::Interrupted { signal: caught.signal }, None);
                }
                Some(Stepped::Lost { why, .. }) => return stopped(Ending::LeaseLost, Some(why)),
                Some(Stepped::TimedOut | Stepped::Overdue) | None => {}
            }
        }
    }

    async fn over_task(
        &mut self,
        held: &mut Held,
        task: &mut impl Task,
        signals: &mut impl Signals,
        tell: Tell<'_>,
    ) -> Watched<TaskEnd> {
        loop {
            let before = held.trust.ends;
            let stepped = {
                let ended = std::pin::pin!(task.ended());
                self.step(held, signals, tell, ended).await
            };
            match stepped {
                // whoever keeps the command ends it with the trust, and that may be heard of before the time is looked at
                Some(Stepped::Ended(TaskEnd::Killed(_))) if self.engine.clock.now() >= held.trust.ends => {
                    return Watched::LeaseLost { why: UNRENEWED.to_owned(), at_once: true };
                }
                Some(Stepped::Ended(end)) => {
                    // Ctrl-C reaches the command too, and may have ended it since the signals were looked at
                    if end != TaskEnd::Exited(0)
                        && let Some(caught) = without_waiting(signals.next()).await
                    {
                        self.note_signal(caught);
                    }
                    return Watched::Ended(end);
                }
                Some(Stepped::Caught(caught)) => {
                    self.note_signal(caught);
                    task.signal(caught);
                }
                Some(Stepped::Lost { why, at_once }) => return Watched::LeaseLost { why, at_once },
                Some(Stepped::TimedOut) => return Watched::TimedOut,
                Some(Stepped::Overdue) => return Watched::Overdue,
                None => {}
            }
            if held.trust.ends != before {
                task.trust_until(held.trust.ends);
            }
        }
    }

    fn note_signal(&mut self, caught: Caught) {
        let patience = caught.ends.then(|| self.engine.clock.now().plus_ms(self.plan.policy.kill_after_ms));
        let before = self.asked_to_end.and_then(|(_, until)| until);
        self.asked_to_end = Some((caught.signal, before.or(patience)));
    }

    /// Wait for the next thing that matters. Trust is looked at before anything else: a process that was stopped
    /// or a machine that slept finds out on waking that it has ended.
    async fn step<T>(
        &mut self,
        held: &mut Held,
        signals: &mut impl Signals,
        tell: Tell<'_>,
        activity: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>,
    ) -> Option<Stepped<T>> {
        let clock = &self.engine.clock;
        let now = clock.now();
        let overdue_at = self.asked_to_end.and_then(|(_, until)| until);
        if now >= held.trust.stop_by {
            // if even the trust has ended, there is no lease left for a grace to fall into
            let why = UNRENEWED.to_owned();
            return Some(Stepped::Lost { why, at_once: now >= held.trust.ends });
        }
        if self.timeout_at.is_some_and(|at| now >= at) {
            return Some(Stepped::TimedOut);
        }
        if overdue_at.is_some_and(|at| now >= at) {
            return Some(Stepped::Overdue);
        }
        if now >= held.trust.renew_at {
            self.heart.beat();
        }
        let wake_at =
            [Some(held.trust.stop_by), self.timeout_at, overdue_at, self.heart.due(held.trust.renew_at)]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(held.trust.stop_by);
        tokio::select! {
            biased;
            () = clock.sleep_until(wake_at) => None,
            renewal = self.heart.answered() => match renewal {
                Renewal::Renewed(sent_at) => {
                    held.trust = self.heart.trust(sent_at);
                    self.desk.trust(held.trust);
                    tell(Event::Renewed);
                    None
                }
                Renewal::Lost(lost) => Some(Stepped::Lost { why: lost.to_string(), at_once: true }),
                Renewal::Failed(why) => {
                    held.trust.renew_at = self.engine.clock.now().plus_ms(self.heart.retry_ms());
                    tell(Event::RenewalFailed(&why));
                    None
                }
            },
            caught = signals.next() => Some(Stepped::Caught(caught)),
            ended = activity => Some(Stepped::Ended(ended)),
        }
    }
}

/// The next thing that mattered.
enum Stepped<T> {
    Ended(T),
    Caught(Caught),
    Lost { why: String, at_once: bool },
    TimedOut,
    Overdue,
}

/// What a future has to say at once.
pub(super) async fn without_waiting<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = std::future::ready(()) => None,
    }
}

pub(super) fn random() -> u32 {
    let mut bytes = [0; 4];
    // without random bytes the pause has no jitter, which is still a pause
    if getrandom::fill(&mut bytes).is_err() { u32::MAX } else { u32::from_ne_bytes(bytes) }
}
