//! A clock that can suspend, a store that can fail, and a task that only remembers.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::clock::{Clock, Moment};
use semel::core::name::Name;
use semel::core::owner::Owner;
use semel::core::plan::Plan;
use semel::core::policy::Policy;
use semel::core::record::{RecordKey, Version};
use semel::core::work::Work;
use semel::engine::desk::Desk;
use semel::engine::{
    Begin, Caught, Engine, NotStarted, PlanAsk, Probed, Report, RunPlan, Signals, Strangers, Task, TaskEnd,
    Undisturbed, Unplanned,
};
use semel::store::memory::Memory;
use semel::store::{Change, Durability, Loaded, Pending, Record, Store, StoreError, Swaps};
use tokio::sync::Notify;
use tokio::time::Instant;

/// tokio's paused time, plus what the machine slept.
pub(crate) struct SimClock {
    began: Instant,
    slept: Mutex<Duration>,
    woke: Notify,
}

impl SimClock {
    pub(crate) fn new() -> Arc<SimClock> {
        Arc::new(SimClock { began: Instant::now(), slept: Mutex::new(Duration::ZERO), woke: Notify::new() })
    }

    /// The machine sleeps: the watch goes on, nothing else does.
    pub(crate) fn suspend(&self, length: Duration) {
        *self.slept.lock().unwrap() += length;
        self.woke.notify_waiters();
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        Moment::since_boot(Duration::from_secs(1_000) + self.began.elapsed() + *self.slept.lock().unwrap())
    }

    fn wall_ms(&self) -> u64 {
        1_750_000_000_000 + self.now().as_since_boot().as_millis() as u64
    }

    fn sleep_until(&self, moment: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            loop {
                let woke = self.woke.notified();
                let left = self.now().until(moment);
                if left.is_zero() {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(left) => {}
                    () = woke => {}
                }
            }
        })
    }
}

/// What a call to the store comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Surely not applied.
    Down,
    /// The same, after a while.
    Slow,
    /// Applied, and the reply lost.
    AppliedUnknown,
    /// Not applied, and nobody knows.
    LostUnknown,
    /// Not answered, and applied only when the next write comes.
    LateUnknown,
    /// Somebody was faster, it is said.
    Refused,
    /// Said to be made, and not made: no store may.
    Forgotten,
    /// So many changes were made, no more, and nobody knows.
    HalfUnknown(usize),
}

/// A store that fails as told, and counts.
#[derive(Clone)]
pub(crate) struct Faulty {
    pub(crate) memory: Memory,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    late: Option<Vec<Change>>,
    loads: VecDeque<Fault>,
    swaps: VecDeque<Fault>,
    touches: VecDeque<Fault>,
    all_down: bool,
    /// Changes of a swap are made one after another.
    one_by_one: bool,
    calls: Vec<String>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

impl Faulty {
    pub(crate) fn swaps(&self, faults: &[Fault]) {
        self.state.lock().unwrap().swaps = faults.iter().copied().collect();
    }

    pub(crate) fn loads(&self, faults: &[Fault]) {
        self.state.lock().unwrap().loads = faults.iter().copied().collect();
    }

    pub(crate) fn touches(&self, faults: &[Fault]) {
        self.state.lock().unwrap().touches = faults.iter().copied().collect();
    }

    pub(crate) fn all_down(&self, down: bool) {
        self.state.lock().unwrap().all_down = down;
    }

    pub(crate) fn one_by_one(&self, one_by_one: bool) {
        self.state.lock().unwrap().one_by_one = one_by_one;
    }

    /// Make these changes, as this store makes them.
    async fn make(&self, changes: &[Change], durability: Durability) -> Result<Vec<Version>, StoreError> {
        if !self.state.lock().unwrap().one_by_one {
            return self.memory.swap(changes, durability).await;
        }
        let mut versions = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            let made = self.memory.swap(std::slice::from_ref(change), durability).await;
            versions.extend(made.map_err(|why| match why {
                StoreError::Refused(conflict) => {
                    StoreError::refused(index, conflict.key.clone(), conflict.stands.clone())
                }
                other => other,
            })?);
        }
        Ok(versions)
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.state.lock().unwrap().calls.clone()
    }

    fn note(&self, call: String) {
        self.state.lock().unwrap().calls.push(call);
    }

    fn is_down(&self) -> bool {
        self.state.lock().unwrap().all_down
    }
}

async fn through<T>(
    fault: Fault,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match fault {
        Fault::None | Fault::Forgotten => call.await,
        Fault::Down => Err(StoreError::Unavailable("down".into())),
        Fault::Slow => {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Err(StoreError::Unavailable("late".into()))
        }
        Fault::Refused => {
            Err(StoreError::refused(0, RecordKey::lease(&Name::new("anything").unwrap()), None))
        }
        Fault::LostUnknown | Fault::LateUnknown => Err(StoreError::Unknown("no answer".into())),
        Fault::AppliedUnknown | Fault::HalfUnknown(_) => {
            call.await?;
            Err(StoreError::Unknown("no answer".into()))
        }
    }
}

impl Store for Faulty {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        self.note("load".into());
        let next = self.state.lock().unwrap().loads.pop_front().unwrap_or(Fault::None);
        let fault = if self.is_down() { Fault::Down } else { next };
        Box::pin(through(fault, self.memory.load(keys)))
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        self.note(format!("swap {durability:?}"));
        let next = self.state.lock().unwrap().swaps.pop_front().unwrap_or(Fault::None);
        let fault = if self.is_down() { Fault::Down } else { next };
        let mut late = self.state.lock().unwrap().late.take();
        if fault == Fault::LateUnknown {
            self.state.lock().unwrap().late = Some(changes.to_vec());
        }
        Box::pin(async move {
            if fault == Fault::Forgotten {
                return Ok(vec![Version::new("forgotten"); changes.len()]);
            }
            if let Some(late) = late.take() {
                let _ = self.make(&late, durability).await;
            }
            let made = match fault {
                Fault::HalfUnknown(most) => &changes[..most.min(changes.len())],
                _ => changes,
            };
            through(fault, self.make(made, durability)).await
        })
    }

    fn swaps(&self) -> Swaps {
        if self.state.lock().unwrap().one_by_one { Swaps::InOrder } else { Swaps::Whole }
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        self.note("touch".into());
        let mut state = self.state.lock().unwrap();
        let next = state.touches.pop_front().unwrap_or(Fault::None);
        let fault = if state.all_down { Fault::Down } else { next };
        Box::pin(through(fault, self.memory.touch(key, version)))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        self.memory.scan(prefix, after, limit)
    }

    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        self.note("changed".into());
        let over = Instant::now() + within;
        Box::pin(async move {
            // one that goes down while it is waited on says so
            while !self.is_down() {
                let turn = over.duration_since(Instant::now()).min(Duration::from_millis(100));
                let changed = self.memory.changed(key, version, turn).await?;
                if changed || Instant::now() >= over {
                    return Ok(changed);
                }
            }
            Err(StoreError::Unavailable("down".into()))
        })
    }
}

/// Everything that one worker needs.
pub(crate) struct Stage {
    pub(crate) clock: Arc<SimClock>,
    pub(crate) store: Faulty,
}

impl Stage {
    pub(crate) fn new() -> Stage {
        let clock = SimClock::new();
        let memory = Memory::with_clock(clock.clone());
        Stage { clock, store: Faulty { memory, state: Arc::default() } }
    }

    /// A worker with this pid, on this store.
    pub(crate) fn engine(&self, pid: i32) -> Engine {
        self.engine_on("h", pid)
    }

    /// A worker on another machine.
    pub(crate) fn engine_on(&self, host: &str, pid: i32) -> Engine {
        let me = Owner { host: host.into(), boot: "b".into(), pidns: 1, pid, start: 1 };
        Engine {
            store: Arc::new(self.store.clone()),
            clock: self.clock.clone(),
            neighbours: Arc::new(Strangers),
            me,
        }
    }

    pub(crate) async fn run(&self, pid: i32, plan: &RunPlan, task: &mut FakeTask) -> Report {
        self.engine(pid).run(plan, task, &mut Undisturbed, &mut |_| {}).await
    }

    pub(crate) async fn state(&self, plan: &RunPlan) -> Option<semel::core::entry::Entry> {
        let view = self.engine(99).look(plan.work.as_ref(), &[]).await.unwrap();
        view.entry.map(|seen| seen.value)
    }
}

pub(crate) fn plan(job: &str) -> RunPlan {
    let job = Name::new(job).unwrap();
    let work = Work::once(job.clone());
    RunPlan {
        what: work.to_string(),
        work: Some(work),
        resources: vec![job],
        policy: Policy::default(),
        payload: None,
        command: None,
        definition: None,
        nested: None,
        start_within_ms: None,
        scheduled: None,
        lanes: Vec::new(),
    }
}

/// What a task was told, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Start { attempt: u32, token: u64 },
    Signal(i32),
    Stop { grace: Duration },
    Probe,
}

/// A task that takes some time and ends as told.
pub(crate) struct FakeTask {
    clock: Arc<SimClock>,
    pub(crate) takes: Duration,
    pub(crate) ends: VecDeque<TaskEnd>,
    pub(crate) probe: Probed,
    pub(crate) log: Vec<(Moment, Told)>,
    pub(crate) trusted_until: Option<Moment>,
    /// What happens inside goes through it.
    pub(crate) desk: Arc<Mutex<Option<Arc<Desk>>>>,
    ends_at: Option<Instant>,
    /// What it would decide.
    pub(crate) decide: Option<PlanAsk>,
    /// How long that takes.
    pub(crate) thinks: Duration,
    /// How often it was asked.
    pub(crate) asked: u32,
    /// Which plan each attempt was given.
    pub(crate) plans: Vec<Option<Plan>>,
    result: serde_json::Value,
    on_start: Option<Box<dyn FnOnce()>>,
}

impl FakeTask {
    pub(crate) fn new(stage: &Stage, takes: Duration) -> FakeTask {
        FakeTask {
            clock: stage.clock.clone(),
            takes,
            ends: VecDeque::new(),
            probe: Probed::Unknown("not set".into()),
            log: Vec::new(),
            trusted_until: None,
            desk: Arc::default(),
            ends_at: None,
            decide: None,
            thinks: Duration::ZERO,
            asked: 0,
            plans: Vec::new(),
            result: serde_json::json!({ "made": true }),
            on_start: None,
        }
    }

    pub(crate) fn when_started(mut self, act: impl FnOnce() + 'static) -> FakeTask {
        self.on_start = Some(Box::new(act));
        self
    }

    pub(crate) fn deciding(mut self, decide: PlanAsk) -> FakeTask {
        self.decide = Some(decide);
        self
    }

    pub(crate) fn resulting(mut self, result: serde_json::Value) -> FakeTask {
        self.result = result;
        self
    }

    pub(crate) fn told(&self) -> Vec<Told> {
        self.log.iter().map(|(_, told)| told.clone()).collect()
    }

    pub(crate) fn starts(&self) -> usize {
        self.log.iter().filter(|(_, told)| matches!(told, Told::Start { .. })).count()
    }

    /// When it was told to stop, and with which grace.
    pub(crate) fn stopped(&self) -> Option<(Moment, Duration)> {
        self.log.iter().find_map(|(at, told)| match told {
            Told::Stop { grace } => Some((*at, *grace)),
            _ => None,
        })
    }

    fn note(&mut self, told: Told) {
        self.log.push((self.clock.now(), told));
    }
}

impl Task for FakeTask {
    async fn plan(&mut self, engine: &Engine, work: &Work) -> Result<Option<Plan>, Unplanned> {
        let Some(decide) = &self.decide else { return Ok(None) };
        self.asked += 1;
        let plan = engine.make_plan(work, decide).await?;
        tokio::time::sleep(self.thinks).await;
        Ok(Some(plan))
    }

    async fn start(&mut self, begin: &Begin, desk: &Arc<Desk>) -> Result<(), NotStarted> {
        *self.desk.lock().unwrap() = Some(Arc::clone(desk));
        self.plans.push(begin.plan.clone());
        self.note(Told::Start { attempt: begin.attempt, token: begin.grant.token.value() });
        self.ends_at = Some(Instant::now() + self.takes);
        if let Some(act) = self.on_start.take() {
            act();
        }
        Ok(())
    }

    fn trust_until(&mut self, moment: Moment) {
        self.trusted_until = Some(moment);
    }

    async fn ended(&mut self) -> TaskEnd {
        match self.ends_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
        self.ends.pop_front().unwrap_or(TaskEnd::Exited(0))
    }

    fn signal(&mut self, caught: Caught) {
        self.note(Told::Signal(caught.signal));
    }

    async fn stop(&mut self, grace: Duration) -> TaskEnd {
        self.note(Told::Stop { grace });
        tokio::time::sleep(grace).await;
        TaskEnd::Killed(9)
    }

    async fn clear(&mut self, _: Duration) -> usize {
        0
    }

    fn result(&mut self) -> Option<serde_json::Value> {
        Some(self.result.clone())
    }

    async fn probe(&mut self, _: &Begin) -> Probed {
        self.note(Told::Probe);
        self.probe.clone()
    }
}

/// One signal at one time.
pub(crate) struct SignalAt(pub(crate) Option<(Instant, Caught)>);

impl Signals for SignalAt {
    async fn next(&mut self) -> Caught {
        let Some((at, caught)) = self.0 else { return std::future::pending().await };
        tokio::time::sleep_until(at).await;
        self.0 = None;
        caught
    }
}

/// A signal that comes between a look at the signals and the look at what it also ended.
pub(crate) struct SignalBehind {
    pub(crate) at: Instant,
    pub(crate) caught: Caught,
    pub(crate) looked: bool,
}

impl Signals for SignalBehind {
    async fn next(&mut self) -> Caught {
        std::future::poll_fn(|_| {
            let is_there = Instant::now() >= self.at && std::mem::replace(&mut self.looked, true);
            if is_there { std::task::Poll::Ready(self.caught) } else { std::task::Poll::Pending }
        })
        .await
    }
}
