//! The one loop of a runner: it owns the lease, the input, the store's answers and the workers.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use semel_core::breaker::Gate;
use semel_core::record::{RecordKey, Version};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::super::hold::{Heart, Held, Renewal, Trust};
use super::super::socket::Door;
use super::super::view::LookError;
use super::super::{Caught, Engine, Event, Signals};
use super::commit::{self, End, Group, Op, Rechecked, Swapping};
use super::look::{Looked, PAGE, PAUSE, Reader, Unseen, look};
use super::pool::Pool;
use super::state::{Reading, State};
use super::worker::{Control, Halt, Site, work};
use super::{BatchEvent, BatchPlan, Batched, Doer, ItemSource, Stopped, TellBatch};
use crate::clock::{Clock, Moment};
use crate::store::{StoreError, Swaps};

/// How long an outcome waits for others to be written with it.
pub(super) const LINGER: Duration = Duration::from_millis(3);
/// So many wait for nobody.
const ENOUGH: usize = 64;
/// How many writes may go unanswered in a row.
const UNKNOWN_TRIES: u32 = 3;
/// Before items of other runners are looked at again: at first, and at most.
const LATER: Duration = Duration::from_millis(50);
const LATER_MOST: Duration = Duration::from_millis(500);

/// A wait that goes on over many turns of the loop: a timer of the kernel's is not free.
struct Timer<'a> {
    clock: &'a dyn Clock,
    at: Option<Moment>,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
}

impl Timer<'_> {
    fn set(&mut self, at: Moment) {
        if self.at != Some(at) {
            (self.at, self.waiting) = (Some(at), Some(self.clock.sleep_until(at)));
        }
    }

    async fn rang(&mut self) {
        match &mut self.waiting {
            Some(waiting) => waiting.as_mut().await,
            None => std::future::pending().await,
        }
        (self.at, self.waiting) = (None, None);
    }
}

type Looking<'a, D> = Pin<Box<dyn Future<Output = Looked<D>> + Send + 'a>>;
type Checking<'a, D> = Pin<Box<dyn Future<Output = Rechecked<D>> + Send + 'a>>;

/// What is under way to the store.
struct Flights<'a, D> {
    swap: Option<(Group<D>, Swapping, Moment)>,
    look: Option<Looking<'a, D>>,
    check: Option<Checking<'a, D>>,
    /// Leases that are given back by themselves.
    stray: Option<Pin<Box<dyn Future<Output = ()> + Send + 'a>>>,
    /// Outcomes that wait for a second look.
    to_check: Vec<End<D>>,
    /// Nothing is sent before.
    pause_until: Option<Instant>,
    /// When the oldest operation that waits came.
    waiting_since: Option<Instant>,
    unknowns: u32,
    commits: u64,
    conflicts: u64,
    /// What the store said last, if it could not be reached.
    down: Option<String>,
}

/// The lease and what it goes through.
struct Hold<'a> {
    held: Held,
    heart: Heart,
    control: watch::Sender<Control>,
    overdue_at: Option<Moment>,
    lost: bool,
    site: &'a Site<'a>,
}

async fn flying<F: Future + Unpin>(flight: &mut Option<F>) -> F::Output {
    match flight {
        Some(future) => {
            let output = future.await;
            *flight = None;
            output
        }
        None => std::future::pending().await,
    }
}

async fn swapped<D>(swap: &mut Option<(Group<D>, Swapping, Moment)>) -> Result<Vec<Version>, StoreError> {
    match swap {
        Some((_, swapping, _)) => swapping.await,
        None => std::future::pending().await,
    }
}

/// Run the batch under this lease, to its end.
pub(super) async fn dispatch<S: ItemSource>(
    engine: &Engine,
    plan: &BatchPlan,
    held: Held,
    source: S,
    doer: &mut impl Doer<S::Data>,
    signals: &mut impl Signals,
    tell: TellBatch<'_, S::Data>,
) -> Batched {
    let began = engine.clock.now();
    let site = Site {
        engine,
        plan,
        begin: held.begin.clone(),
        lease: held.lease.version.clone(),
        trust: Arc::new(Mutex::new(held.trust)),
        door: plan.nested.as_deref().map(|folder| {
            let opened = Door::of_items(held.begin.grant.nonce, folder, plan.workers);
            opened.map_err(|why| format!("{}: {why}", folder.display()))
        }),
    };
    let (control, listen) = watch::channel(Control { trust_ends: held.trust.ends, caught: None, halt: None });
    let heart = Heart::new(engine, &held, &plan.policy);
    let mut hold = Hold { held, heart, control, overdue_at: None, lost: false, site: &site };
    let reader = Reader {
        engine,
        batch: &plan.work,
        grant: site.begin.grant,
        prefix: RecordKey::items_of(&plan.work),
    };
    let (pages, mut read) = mpsc::channel(1);
    let (again, asked_again) = mpsc::channel(1);
    let mut reading = pin!(reader.read(source, pages, asked_again));
    let mut reader_is_over = false;
    let mut state = State::new(&site, tell, &listen);
    let mut flights = Flights::new();
    let mut pool = Pool::new(plan.workers);
    let mut timer = Timer { clock: engine.clock.as_ref(), at: None, waiting: None };
    let mut later = Turns { pause: LATER, at: None, since: None };
    let mut signal = pin!(Signalled::new(signals));
    loop {
        hold.check(&mut state, &flights);
        state.own.check(engine.clock.now());
        state.fill(pool.free());
        while pool.free() > 0
            && let Some((claimed, decides)) = state.next_to_begin()
        {
            let task = doer.task(&claimed.item);
            pool.push(work(&site, claimed, task, listen.clone(), decides));
        }
        flights.send(&mut state, pool.live() == 0);
        state.notices.send(engine, plan);
        if pool.live() == 0 && flights.is_idle() && state.is_idle() {
            if state.stopping.is_some() {
                break;
            }
            if state.reading == Reading::Input {
                if state.waiting.is_full() {
                    later.leave_held(&mut state, engine.clock.now());
                }
            } else if later.is_over(&mut state, plan.wait_ms, engine.clock.now(), &again) {
                break;
            }
            if !state.is_idle() {
                continue;
            }
        }
        timer.set(hold.wake_at(&state));
        // while something is under way, its answer is what is waited for: a moment that has passed would be no wait at all
        let is_quiet = pool.live() == 0 && flights.is_idle() && state.is_idle();
        let wake_at = flights.wake_at(&state, later.at.filter(|_| is_quiet), pool.free());
        let wants_input = state.stopping.is_none() && state.wants_input() && state.reading == Reading::Input;
        tokio::select! {
            biased;
            () = timer.rang() => {}
            renewal = hold.heart.answered(), if !hold.lost => hold.renewed(renewal, &mut state),
            failed = state.own.answered() => for why in failed {
                (state.tell)(BatchEvent::Runner(Event::RenewalFailed(&why)));
            },
            caught = signal.as_mut().next() => hold.caught(caught, &mut state),
            answer = swapped(&mut flights.swap) => flights.answered(answer, &mut state, &mut hold),
            looked = flying(&mut flights.look) => flights.looked(looked, &mut state),
            checked = flying(&mut flights.check) => flights.checked(checked, &mut state),
            () = flying(&mut flights.stray) => {}
            noted = state.notices.noted() => state.noted(noted),
            ended = poll_fn(|cx| match pool.poll_next(cx) {
                Poll::Ready(first) => {
                    let mut all = vec![first];
                    while let Poll::Ready(next) = pool.poll_next(cx) {
                        all.push(next);
                    }
                    Poll::Ready(all)
                }
                Poll::Pending => Poll::Pending,
            }), if pool.live() > 0 => ended.into_iter().for_each(|ended| state.ended(ended)),
            page = read.recv(), if wants_input => match page {
                Some(page) => state.read(page),
                None => state.reading = Reading::Over,
            },
            () = reading.as_mut(), if !reader_is_over => reader_is_over = true,
            () = until(wake_at) => {}
        }
    }
    state.leave_the_rest();
    while !state.notices.is_idle() {
        state.notices.send(engine, plan);
        let noted = state.notices.noted().await;
        state.noted(noted);
    }
    let (counts, stopped) = (state.counts, state.stopping.take().unwrap_or(Stopped::AtTheEnd));
    let took = began.until(engine.clock.now());
    let rest = Duration::from_millis(plan.policy.hold_at_least_ms).saturating_sub(took);
    let rest_ms = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
    // one that cannot be given back lapses
    let _ = engine.give_back(hold.held, rest_ms).await;
    Batched { counts, stopped, took, commits: flights.commits, conflicts: flights.conflicts }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Signals, asked for again and again.
struct Signalled<'s, G>(&'s mut G);

impl<'s, G: Signals> Signalled<'s, G> {
    fn new(signals: &'s mut G) -> Signalled<'s, G> {
        Signalled(signals)
    }

    async fn next(mut self: Pin<&mut Self>) -> Caught {
        self.0.next().await
    }
}

/// When the items of other runners are looked at again.
struct Turns {
    pause: Duration,
    at: Option<Instant>,
    since: Option<(Moment, Instant)>,
}

impl Turns {
    /// Since when there is nothing else to do; what waits for resources is looked at once more, then left as the policy
    /// says.
    fn leave_held<D>(&mut self, state: &mut State<'_, D>, now: Moment) -> Moment {
        let (since, begun) = *self.since.get_or_insert_with(|| {
            state.waiting.hurry(Instant::now());
            (now, Instant::now())
        });
        state.leave_held(begun, u64::try_from(since.until(now).as_millis()).unwrap_or(u64::MAX));
        since
    }

    /// There is nothing else to do. `true`: nor anything to wait for.
    fn is_over<D>(
        &mut self,
        state: &mut State<'_, D>,
        wait_ms: Option<u64>,
        now: Moment,
        again: &mpsc::Sender<()>,
    ) -> bool {
        let since = self.leave_held(state, now);
        // whatever a second pass found is decided about by now
        state.end_second();
        if state.later.len() == 0 || wait_ms.is_some_and(|wait_ms| now >= since.plus_ms(wait_ms)) {
            // what waits for resources is left one by one
            return state.waiting.is_empty();
        }
        if state.later.kept() == 0 {
            // only those beyond are left: they are looked for in the input
            if state.reading == Reading::Over || again.try_send(()).is_err() {
                return state.waiting.is_empty();
            }
            state.second_pass();
            return false;
        }
        match self.at {
            Some(at) if Instant::now() >= at => {
                self.at = None;
                state.to_look.extend(state.later.take());
            }
            Some(_) => {}
            None => {
                let left = wait_ms.map_or(self.pause, |wait_ms| now.until(since.plus_ms(wait_ms)));
                self.at = Some(Instant::now() + self.pause.min(left.max(Duration::from_millis(1))));
                self.pause = (self.pause * 2).min(LATER_MOST);
            }
        }
        false
    }
}

impl Hold<'_> {
    /// Trust is looked at before anything else: a process that was stopped, or a machine that slept, finds out on
    /// waking that it has ended.
    fn check<D>(&mut self, state: &mut State<'_, D>, flights: &Flights<'_, D>) {
        let now = self.site.engine.clock.now();
        let trust = self.held.trust;
        if !self.lost && now >= trust.stop_by {
            let why = "it could not be renewed in time".to_owned();
            let stopped = match &flights.down {
                Some(down) => Stopped::StoreDown(down.clone()),
                None => Stopped::LeaseLost(why),
            };
            self.lose(stopped, now >= trust.ends, state);
        }
        if self.overdue_at.is_some_and(|at| now >= at) {
            self.overdue_at = None;
            self.say(state, |control| {
                control.halt.get_or_insert(Halt::Overdue);
            });
        }
        if !self.lost && now >= trust.renew_at {
            self.heart.beat();
        }
    }

    /// To all items, those with a lease of their own too.
    fn say<D>(&self, state: &State<'_, D>, say: impl Fn(&mut Control)) {
        self.control.send_modify(&say);
        state.own.tell(say);
    }

    fn lose<D>(&mut self, why: Stopped, at_once: bool, state: &mut State<'_, D>) {
        self.lost = true;
        self.say(state, |control| control.halt = Some(Halt::Lost { at_once }));
        // that the lease is lost matters more than why the batch was stopping
        state.stopping = None;
        state.stop(why);
    }

    fn wake_at<D>(&self, state: &State<'_, D>) -> Moment {
        let gate = match state.breaker.gate(state.now_ms()) {
            Gate::Shut { until_ms } => Some(Moment::since_boot(Duration::from_millis(until_ms))),
            _ => None,
        };
        let trust = self.held.trust;
        let far = trust.ends.plus_ms(86_400_000);
        let of_lease = (!self.lost).then_some(trust.stop_by);
        let beat = self.heart.due(trust.renew_at).filter(|_| !self.lost);
        [of_lease, beat, self.overdue_at, gate, state.own.wake_at()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(far)
    }

    fn renewed<D>(&mut self, renewal: Renewal, state: &mut State<'_, D>) {
        match renewal {
            Renewal::Renewed(sent_at) => {
                let trust: Trust = self.heart.trust(sent_at);
                self.held.trust = trust;
                *self.site.trust.lock().unwrap_or_else(PoisonError::into_inner) = trust;
                state.trust_ends = trust.ends;
                self.control.send_modify(|control| control.trust_ends = trust.ends);
                (state.tell)(BatchEvent::Runner(Event::Renewed));
            }
            Renewal::Lost(lost) => self.lose(Stopped::LeaseLost(lost.to_string()), true, state),
            Renewal::Failed(why) => {
                self.held.trust.renew_at = self.site.engine.clock.now().plus_ms(self.heart.retry_ms());
                (state.tell)(BatchEvent::Runner(Event::RenewalFailed(&why)));
            }
        }
    }

    fn caught<D>(&mut self, caught: Caught, state: &mut State<'_, D>) {
        self.say(state, |control| {
            let n = control.caught.map_or(0, |(n, _)| n);
            control.caught = Some((n + 1, caught));
        });
        if caught.ends {
            let patience = self.site.plan.policy.kill_after_ms;
            self.overdue_at.get_or_insert(self.site.engine.clock.now().plus_ms(patience));
        }
        // what is under way may answer a signal as it likes; whoever sends one wants no next item
        state.stop(Stopped::Interrupted(caught.signal));
    }
}

impl<'a, D: Send + 'a> Flights<'a, D> {
    fn new() -> Flights<'a, D> {
        Flights {
            swap: None,
            look: None,
            check: None,
            stray: None,
            to_check: Vec::new(),
            pause_until: None,
            waiting_since: None,
            unknowns: 0,
            commits: 0,
            conflicts: 0,
            down: None,
        }
    }

    fn is_idle(&self) -> bool {
        let is_asked = self.swap.is_some() || self.look.is_some() || self.check.is_some();
        !is_asked && self.stray.is_none() && self.to_check.is_empty()
    }

    /// Send what is due.
    fn send(&mut self, state: &mut State<'a, D>, no_worker: bool) {
        let now = Instant::now();
        if self.pause_until.is_some_and(|until| now < until) {
            return;
        }
        self.pause_until = None;
        let engine = state.site.engine;
        if self.look.is_none() && !state.to_look.is_empty() {
            let some: Vec<_> = state.to_look.drain(..state.to_look.len().min(PAGE)).collect();
            state.looking = some.len();
            self.look = Some(Box::pin(look(engine, &state.site.begin.grant, some, true)));
        }
        if self.check.is_none() && !self.to_check.is_empty() {
            let ends = std::mem::take(&mut self.to_check);
            self.check = Some(Box::pin(commit::recheck(engine, ends)));
        }
        if self.stray.is_none() && !state.strays.is_empty() {
            self.stray = Some(Box::pin(commit::give_back(engine, std::mem::take(&mut state.strays))));
        }
        while !state.queue.is_empty() && self.swap.is_none() {
            let since = *self.waiting_since.get_or_insert(now);
            let waited_for = !state.waiting.is_empty();
            let short = state.is_short_of_work() || waited_for || !state.others_end_soon();
            let urgent = short || state.stopping.is_some() || no_worker;
            if !urgent && state.queue.len() < ENOUGH && now < since + LINGER {
                return;
            }
            self.waiting_since = None;
            let some = state.queue.len().min(commit::GROUP).min(engine.store.most().changes);
            let (group, changes, unsent) = commit::group(state.site, state.queue.drain(..some));
            state.unsent(unsent);
            if !group.ops.is_empty() {
                self.swap = Some((group, commit::send(engine, changes), engine.clock.now()));
            }
        }
    }

    /// When there may be something to send, or to look at.
    fn wake_at(&self, state: &State<'_, D>, later: Option<Instant>, free: usize) -> Option<Instant> {
        let lingers = self.swap.is_none() && self.pause_until.is_none() && !state.queue.is_empty();
        let linger = self.waiting_since.filter(|_| lingers);
        let linger = linger.map(|since| since + LINGER);
        [self.pause_until, linger, later, state.waiting_until(free)].into_iter().flatten().min()
    }

    fn answered(
        &mut self,
        answer: Result<Vec<Version>, StoreError>,
        state: &mut State<'a, D>,
        hold: &mut Hold<'_>,
    ) {
        let Some((group, _, sent_at)) = self.swap.take() else { return };
        let now = state.site.engine.clock.now();
        match answer {
            Ok(versions) => {
                (self.unknowns, self.down) = (0, None);
                self.commits += 1;
                state.commit_took(u64::try_from(sent_at.until(now).as_micros()).unwrap_or(u64::MAX / 8));
                state.committed(group, &versions, sent_at);
            }
            Err(StoreError::Refused(conflict)) => {
                (self.unknowns, self.down) = (0, None);
                self.conflicts += 1;
                if conflict.key == RecordKey::lease(&state.site.begin.resource) && !hold.lost {
                    let why = format!("the lease of {} was taken over", state.site.begin.resource);
                    hold.lose(Stopped::LeaseLost(why), true, state);
                }
                let in_order = state.site.engine.store.swaps() == Swaps::InOrder;
                for (op, at, _) in group.ops {
                    // a store that cannot do all or nothing may have made what came before
                    let may_stand = in_order && at < conflict.index;
                    match op {
                        op @ Op::End(_) if !may_stand && !op.is_about(conflict.index, at) => {
                            state.queue.push_back(op);
                        }
                        Op::End(end) => self.to_check.push(end),
                        Op::Claim { candidate, claim } => {
                            // one that was refused itself may have taken its lease just before
                            let took = in_order && at == conflict.index && claim.lease.is_some();
                            state.reconsider(candidate, (at < conflict.index || took).then_some(sent_at));
                        }
                        Op::Doubt { candidate, .. } => state.reconsider(candidate, None),
                    }
                }
            }
            Err(StoreError::Unknown(why)) => {
                self.pause(&why);
                self.unknowns += 1;
                if self.unknowns >= UNKNOWN_TRIES {
                    state.stop(Stopped::StoreDown(why.clone()));
                }
                for (op, _, _) in group.ops {
                    match op {
                        Op::End(end) => self.to_check.push(end),
                        Op::Claim { candidate, .. } => state.reconsider(candidate, Some(sent_at)),
                        Op::Doubt { candidate, .. } => state.reconsider(candidate, None),
                    }
                }
            }
            Err(StoreError::Unavailable(why)) => {
                self.pause(&why);
                for (op, _, _) in group.ops {
                    match op {
                        Op::End(end) => state.again(end, &why),
                        Op::Claim { candidate, .. } | Op::Doubt { candidate, .. } => {
                            state.reconsider(candidate, None);
                        }
                    }
                }
            }
        }
    }

    fn pause(&mut self, why: &str) {
        self.down = Some(why.to_owned());
        self.pause_until = Some(Instant::now() + PAUSE);
    }

    fn looked(&mut self, looked: Looked<D>, state: &mut State<'a, D>) {
        state.looking = 0;
        match looked {
            Ok(found) => state.looked(found),
            Err((_, LookError::Record(why))) => state.stop(Stopped::Unusable(why.to_string())),
            Err((unseen, LookError::Store(why))) => {
                self.pause(&why.to_string());
                // without an answer, one that may have been claimed is lost to us when the lease is
                let lost = state.site.engine.clock.now() >= state.trust_ends;
                let stays = |one: &Unseen<D>| !lost && (state.stopping.is_none() || one.unanswered.is_some());
                let unseen: Vec<_> = unseen.into_iter().filter(stays).collect();
                state.to_look.extend(unseen);
            }
        }
    }

    fn checked(&mut self, checked: Rechecked<D>, state: &mut State<'a, D>) {
        let Rechecked { ends, gone, failed } = checked;
        let why = failed.as_ref().map_or_else(|| "its entry is gone".to_owned(), ToString::to_string);
        for end in gone {
            state.unrecorded(&end, &why);
        }
        if let Some(LookError::Store(why)) = failed {
            self.pause(&why.to_string());
            let why = why.to_string();
            for end in ends {
                if state.site.engine.clock.now() >= end.give_up {
                    state.unrecorded(&end, &why);
                } else {
                    self.to_check.push(end);
                }
            }
            return;
        }
        ends.into_iter().for_each(|end| state.again(end, &why));
    }
}
