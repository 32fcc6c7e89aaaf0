//! One item: probe it if need be, try it, stop it when the runner says so.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel_core::claim::First;
use semel_core::entry::{Ending, Entry, is_capped};
use semel_core::record::{RecordKey, Seen, Version};
use semel_core::token::Grant;
use serde_json::Value;
use tokio::sync::watch;

use super::super::desk::Desk;
use super::super::hold::Trust;
use super::super::run::{STEPS_PATIENCE, random, without_waiting};
use super::super::socket::Door;
use super::super::{Begin, Caught, Engine, NotStarted, Probed, Task, TaskEnd};
use super::own::OwnLease;
use super::{BatchPlan, Item};
use crate::clock::Moment;

/// Where the items of a runner are done.
pub(super) struct Site<'a> {
    pub(super) engine: &'a Engine,
    pub(super) plan: &'a BatchPlan,
    /// What the runner was told: its resource and its grant.
    pub(super) begin: Begin,
    /// The version of its lease.
    pub(super) lease: Version,
    pub(super) trust: Arc<Mutex<Trust>>,
    /// How commands inside the items reach them; or why they cannot.
    pub(super) door: Option<Result<Door, String>>,
}

/// An item whose claim is on record.
pub(super) struct Claimed<D> {
    pub(super) item: Item<D>,
    pub(super) record: RecordKey,
    pub(super) seen: Seen<Entry>,
    /// The lease of its own.
    pub(super) own: Option<OwnLease>,
    pub(super) first: First,
    pub(super) after_lost: bool,
}

impl<D> Claimed<D> {
    /// Under which grant it runs.
    pub(super) fn grant<'a>(&'a self, site: &'a Site<'_>) -> &'a Grant {
        self.own.as_ref().map_or(&site.begin.grant, OwnLease::grant)
    }
}

/// What the runner tells its items.
#[derive(Clone, Debug)]
pub(super) struct Control {
    /// The lease is trusted until then.
    pub(super) trust_ends: Moment,
    /// The last signal, by its number.
    pub(super) caught: Option<(u64, Caught)>,
    pub(super) halt: Option<Halt>,
}

/// Why everything must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// The lease is lost; with no time left for a grace.
    Lost { at_once: bool },
    /// It was asked to end, and patience with that has ended.
    Overdue,
}

/// How an item ended.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) ending: Ending,
    pub(super) result: Option<Value>,
    pub(super) failed_tries: u32,
}

/// An item that is no longer under way.
pub(super) struct Ended<D> {
    pub(super) claimed: Claimed<D>,
    /// None: it was not begun.
    pub(super) outcome: Option<Outcome>,
    /// Why this machine could not begin it, or not once more.
    pub(super) trouble: Option<String>,
    /// It decides whether the breaker closes.
    pub(super) decides: bool,
    pub(super) began: Moment,
    /// Why commands inside it could not reach it.
    pub(super) unreachable: Option<String>,
}

struct Watch {
    control: watch::Receiver<Control>,
    heard: u64,
    asked_to_end: Option<i32>,
}

enum Heard {
    Trust(Moment),
    Caught(Caught),
    Halt(Halt),
}

impl Watch {
    /// Nothing is started any more: what the runner has said since this item was taken ends it.
    fn too_late(&mut self) -> Option<Ending> {
        let (caught, halt) = {
            let control = self.control.borrow();
            (control.caught, control.halt)
        };
        if let Some((_, caught)) = caught.filter(|(n, _)| *n > self.heard) {
            self.asked_to_end = Some(caught.signal);
        }
        match (halt, self.asked_to_end) {
            (Some(Halt::Lost { .. }), _) => Some(Ending::LeaseLost),
            (_, Some(signal)) => Some(Ending::Interrupted { signal }),
            (Some(Halt::Overdue), None) => Some(Ending::Interrupted { signal: libc::SIGTERM }),
            (None, None) => None,
        }
    }

    /// What the runner says next.
    async fn listen(&mut self) -> Heard {
        if self.control.changed().await.is_err() {
            // the runner goes with all its items
            return std::future::pending().await;
        }
        let control = self.control.borrow_and_update().clone();
        if let Some(halt) = control.halt {
            return Heard::Halt(halt);
        }
        match control.caught {
            Some((n, caught)) if n > self.heard => {
                self.heard = n;
                self.asked_to_end = Some(caught.signal);
                Heard::Caught(caught)
            }
            _ => Heard::Trust(control.trust_ends),
        }
    }
}

/// Why a try is over.
enum Over {
    Ended(TaskEnd),
    Halted(Halt),
    TimedOut,
}

/// Do the item; `control` is what is heard by those that have no lease of their own.
pub(super) async fn work<D, T: Task>(
    site: &Site<'_>,
    claimed: Claimed<D>,
    mut task: T,
    control: watch::Receiver<Control>,
    decides: bool,
) -> Ended<D> {
    let began = site.engine.clock.now();
    let own = claimed.own.as_ref();
    let control = own.map_or(control, |own| own.control.clone());
    // signals from before it was taken are not meant for it
    let heard = control.borrow().caught.map_or(0, |(n, _)| n);
    let mut watch = Watch { control, heard, asked_to_end: None };
    let mut begin = Begin {
        work: Some(claimed.item.work.clone()),
        resource: own.map_or(&site.begin.resource, |own| &own.resource).clone(),
        grant: *claimed.grant(site),
        attempt: claimed.seen.value.attempts,
        plan: None,
        within: own.map(|_| (site.begin.resource.clone(), site.begin.grant)),
    };
    let desk = Arc::new(Desk::of_item(
        site.engine,
        begin.clone(),
        own.map_or(&site.lease, |own| &own.lease.version).clone(),
        claimed.seen.version.clone(),
        &site.plan.policy,
        Arc::clone(own.map_or(&site.trust, |own| &own.trust)),
    ));
    let admitted = site.door.as_ref().map(|door| match door {
        Ok(door) => door.admit(&desk).map_err(|why| why.to_string()),
        Err(why) => Err(why.clone()),
    });
    let (guest, unreachable) = match admitted {
        Some(Ok(guest)) => (Some(guest), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, None),
    };
    let settled = match claimed.first {
        First::Probe => probe(&mut watch, &mut task, &begin).await,
        First::Run => None,
    };
    let Tried { ending, failed_tries, trouble } = match settled {
        Some(settled) => settled,
        None => tries(site, claimed.seen.value.failures, &mut watch, &mut task, &mut begin, &desk).await,
    };
    if let Some(guest) = guest {
        guest.leave().await;
    }
    let outcome = ending.map(|ending| {
        let ending = match desk.blocked() {
            Some(step) if ending.is_of_command() => Ending::Blocked { step: step.work.to_string() },
            _ => ending,
        };
        let result = if ending == Ending::Succeeded { task.result() } else { None };
        Outcome { ending, result, failed_tries }
    });
    Ended { claimed, outcome, trouble, decides, began, unreachable }
}

/// What came of an item's tries.
struct Tried {
    /// None: there was none.
    ending: Option<Ending>,
    /// Before the last one.
    failed_tries: u32,
    /// Why this machine could not begin one.
    trouble: Option<String>,
}

impl Tried {
    fn ended(ending: Ending, failed_tries: u32) -> Tried {
        Tried { ending: Some(ending), failed_tries, trouble: None }
    }
}

/// Ask the world first. An answer that settles the matter is the ending.
async fn probe(watch: &mut Watch, task: &mut impl Task, begin: &Begin) -> Option<Tried> {
    let settled = |ending| Some(Tried::ended(ending, 0));
    let mut asking = std::pin::pin!(task.probe(begin));
    loop {
        tokio::select! {
            biased;
            heard = watch.listen() => match heard {
                Heard::Halt(Halt::Lost { .. }) => return settled(Ending::LeaseLost),
                Heard::Halt(Halt::Overdue) => {
                    let signal = watch.asked_to_end.unwrap_or(libc::SIGTERM);
                    return settled(Ending::Interrupted { signal });
                }
                Heard::Caught(caught) => return settled(Ending::Interrupted { signal: caught.signal }),
                Heard::Trust(_) => {}
            },
            probed = asking.as_mut() => return match probed {
                Probed::Happened => settled(Ending::ProbedDone),
                Probed::DidNot => None,
                Probed::Unknown(answer) => settled(Ending::ProbedUnknown { answer }),
                Probed::NotAsked(why) => Some(Tried { ending: None, failed_tries: 0, trouble: Some(why) }),
            },
        }
    }
}

/// Try it, and again as the policy says.
async fn tries(
    site: &Site<'_>,
    failures: u32,
    watch: &mut Watch,
    task: &mut impl Task,
    begin: &mut Begin,
    desk: &Arc<Desk>,
) -> Tried {
    let policy = &site.plan.policy;
    let first = begin.attempt;
    let mut tries: u32 = 0;
    let mut last = None;
    loop {
        begin.attempt = first.saturating_add(tries);
        let ending = match attempt(site, watch, task, begin, desk).await {
            Ok(ending) => ending,
            // the tries before it stand as they ended
            Err(why) => {
                return Tried { ending: last, failed_tries: tries.saturating_sub(1), trouble: Some(why) };
            }
        };
        let failures = failures.saturating_add(tries).saturating_add(1);
        let again = ending.is_failure()
            && !matches!(ending, Ending::NotStarted { .. })
            && desk.blocked().is_none()
            && watch.asked_to_end.is_none()
            && tries < policy.retries
            && !is_capped(failures, policy.max_failures);
        if !again {
            return Tried::ended(ending, tries);
        }
        last = Some(ending);
        tries += 1;
        let until = site.engine.clock.now().plus_ms(policy.backoff_ms(tries, random()));
        let mut sleeping = site.engine.clock.sleep_until(until);
        loop {
            tokio::select! {
                biased;
                heard = watch.listen() => match heard {
                    Heard::Halt(Halt::Lost { .. }) => return Tried::ended(Ending::LeaseLost, tries),
                    Heard::Halt(Halt::Overdue) => {
                        return Tried::ended(Ending::Interrupted { signal: libc::SIGTERM }, tries);
                    }
                    Heard::Caught(caught) => {
                        return Tried::ended(Ending::Interrupted { signal: caught.signal }, tries);
                    }
                    Heard::Trust(_) => {}
                },
                () = sleeping.as_mut() => break,
            }
        }
    }
}

/// One try: start, watch, stop if need be, clear what was left behind. An error says why this machine could not start it.
async fn attempt(
    site: &Site<'_>,
    watch: &mut Watch,
    task: &mut impl Task,
    begin: &Begin,
    desk: &Arc<Desk>,
) -> Result<Ending, String> {
    let (policy, clock) = (&site.plan.policy, &site.engine.clock);
    if let Some(ending) = watch.too_late() {
        return Ok(ending);
    }
    // before the start: a stall between the two must not leave a command without an end
    let trust_ends = watch.control.borrow().trust_ends;
    task.trust_until(trust_ends);
    if clock.now() >= trust_ends {
        // a process that stood still after its claim, and has not heard of it yet: another may be at it by now
        return Ok(Ending::LeaseLost);
    }
    desk.new_try();
    if let Err(NotStarted { code, why, of_machine }) = task.start(begin, desk).await {
        return match of_machine {
            true if clock.now() >= watch.control.borrow().trust_ends => Ok(Ending::LeaseLost),
            true => Err(why),
            false => Ok(Ending::NotStarted { code }),
        };
    }
    let timeout_at = policy.timeout_ms.map(|ms| clock.now().plus_ms(ms));
    let mut timeout = timeout_at.map(|at| clock.sleep_until(at));
    let mut over = loop {
        tokio::select! {
            biased;
            heard = watch.listen() => match heard {
                Heard::Trust(ends) => task.trust_until(ends),
                Heard::Caught(caught) => task.signal(caught),
                Heard::Halt(halt) => break Over::Halted(halt),
            },
            () = rang(&mut timeout) => break Over::TimedOut,
            end = task.ended() => break Over::Ended(end),
        }
    };
    // what had come to its end before the machine slept is no unknown outcome
    if !matches!(over, Over::Ended(_))
        && let Some(end @ TaskEnd::Exited(_)) = without_waiting(task.ended()).await
    {
        over = Over::Ended(end);
    }
    let grace = Duration::from_millis(policy.kill_after_ms);
    let inside_the_lease = || grace.min(clock.now().until(watch.control.borrow().trust_ends));
    let (end, cut) = match over {
        Over::Ended(end) => (end, None),
        Over::Halted(Halt::Lost { at_once }) => {
            let grace = if at_once { Duration::ZERO } else { inside_the_lease() };
            (task.stop(grace).await, Some(Ending::LeaseLost))
        }
        Over::Halted(Halt::Overdue) => (task.stop(Duration::ZERO).await, None),
        Over::TimedOut => (task.stop(inside_the_lease()).await, Some(Ending::TimedOut)),
    };
    task.clear(inside_the_lease()).await;
    desk.settled(STEPS_PATIENCE).await;
    Ok(match (cut, end, watch.asked_to_end) {
        (Some(ending), _, _) => ending,
        (None, TaskEnd::Exited(0), _) => Ending::Succeeded,
        (None, _, Some(signal)) => Ending::Interrupted { signal },
        (None, TaskEnd::Exited(code), None) => Ending::Failed { code },
        (None, TaskEnd::Killed(signal), None) => Ending::Killed { signal },
    })
}

async fn rang(timeout: &mut Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>>>) {
    match timeout {
        Some(timeout) => timeout.as_mut().await,
        None => std::future::pending().await,
    }
}
