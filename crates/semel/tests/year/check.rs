//! What must hold at the end of the year, counted from outside.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use semel::core::alarm::{self, Event, Kind};
use semel::core::entry::{Entry, State};
use semel::core::lease::SeenLease;
use semel::core::policy::OnLost;
use semel::core::record::RecordKey;

use crate::command::{Attempts, Effect};
use crate::firing::{Heard, Stage, is_settled, reach_ms};
use crate::jobs::{DAY_MS, HOUR_MS, Job, MINUTE_MS, moment, ms};
use crate::trace::AHEAD_MS;

/// How the slots came out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) slots: usize,
    pub(crate) done: usize,
    pub(crate) missed: usize,
    pub(crate) failed: usize,
    pub(crate) person: usize,
    /// Attempts without an end, or that were cut short, and that nobody came back for.
    pub(crate) torn: usize,
}

/// Everything on record of a job, by slot.
async fn on_record(stage: &Stage, job: &Job) -> BTreeMap<String, Entry> {
    let engine = stage.engine();
    let (mut all, mut from) = (BTreeMap::new(), None);
    loop {
        let prefix = RecordKey::entries_of(Some(&job.name));
        let records = engine.store.scan(&prefix, from.as_ref(), 500).await.unwrap();
        let Some(last) = records.last() else { return all };
        from = Some(last.key.clone());
        for record in &records {
            let entry = semel::engine::view::seen_entry(record).unwrap().value;
            all.insert(entry.work.slot().unwrap().to_string(), entry);
        }
    }
}

/// The slots of a job between two times, from the calendar alone: no line of this is shared with the rule.
fn by_the_calendar(job: &Job, from_ms: u64, until_ms: u64) -> BTreeSet<String> {
    let in_utc = |at: u64| moment(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let every = |step_ms: u64| (from_ms.div_ceil(step_ms)..=until_ms / step_ms).map(move |n| n * step_ms);
    let local = |at: u64| job.zone.to_datetime(moment(at));
    match job.schedule.as_str() {
        "day" => {
            let (mut date, last) = (local(from_ms).date(), local(until_ms).date());
            let mut all = BTreeSet::new();
            while date <= last {
                all.insert(date.to_string());
                date = date.checked_add(1.day()).unwrap();
            }
            all
        }
        "hour" => every(HOUR_MS).map(in_utc).collect(),
        "*/20 * * * 1-5" => every(10 * MINUTE_MS)
            .filter(|at| {
                let at = local(*at);
                let is_weekend = matches!(at.weekday(), Weekday::Saturday | Weekday::Sunday);
                at.minute() % 20 == 0 && !is_weekend
            })
            .map(in_utc)
            .collect(),
        line => {
            // the first of each date at which the clock shows that time or a later one
            let minute: i8 = if line.starts_with("30") { 30 } else { 0 };
            let mut found: BTreeMap<Date, u64> = BTreeMap::new();
            for at in every(10 * MINUTE_MS) {
                let shown = local(at);
                if (shown.hour(), shown.minute()) >= (2, minute) {
                    found.entry(shown.date()).or_insert(at);
                }
            }
            // the first date may have had its time before
            let first = found.pop_first();
            let whole = first.filter(|(_, at)| *at > from_ms);
            found.into_iter().chain(whole).map(|(_, at)| in_utc(at)).collect()
        }
    }
}

struct Checked<'a> {
    stage: &'a Stage,
    job: &'a Job,
    entries: BTreeMap<String, Entry>,
    effects: HashMap<String, Vec<Effect>>,
    lease: Option<SeenLease>,
}

/// Look at every slot of a job that fell due between its first firing and its last.
pub(crate) async fn job(stage: &Stage, job: &Job, first_ms: u64, last_ms: u64) -> (Tally, Vec<String>) {
    let mut faults = Vec::new();
    let first = job.tick_at(first_ms);
    let due: Vec<_> = std::iter::once(first.clone()).chain(job.ticks(ms(first.at), last_ms)).collect();
    let expected: BTreeSet<String> = due.iter().map(|tick| tick.slot.to_string()).collect();
    let twice = by_the_calendar(job, ms(first.at), last_ms);
    let by_calendar: BTreeSet<String> = twice.into_iter().chain([first.slot.to_string()]).collect();
    if expected != by_calendar {
        let other: Vec<_> = expected.symmetric_difference(&by_calendar).collect();
        faults.push(format!("{}: the rule and the calendar differ by {other:?}", job.name));
    }
    let mut effects: HashMap<String, Vec<Effect>> = HashMap::new();
    for effect in stage.world.lock().unwrap().effects.iter().filter(|effect| effect.job == job.index) {
        effects.entry(effect.slot.clone()).or_default().push(effect.clone());
    }
    let entries = on_record(stage, job).await;
    for slot in entries.keys().chain(effects.keys()).filter(|slot| !expected.contains(*slot)) {
        faults.push(format!("{}@{slot}: on record, but was never due", job.name));
    }
    let lease = stage.engine().lease_of(&job.resource).await.unwrap();
    let checked = Checked { stage, job, entries, effects, lease };
    let mut tally = Tally { slots: due.len(), ..Tally::default() };
    for tick in &due {
        let slot = tick.slot.to_string();
        let must_be_settled = reach_ms(job) > 0 && ms(tick.at) + reach_ms(job) > last_ms;
        let early = checked.effects_of(&slot).iter().any(|effect| effect.at_ms + AHEAD_MS < ms(tick.at));
        let mut faulty: Vec<String> =
            early.then(|| "done before it was due".to_owned()).into_iter().collect();
        faulty.extend(checked.slot(&slot, must_be_settled, &mut tally));
        faults.extend(faulty.into_iter().map(|why| format!("{}@{slot}: {why}", job.name)));
    }
    faults.extend(checked.told());
    (tally, faults)
}

impl Checked<'_> {
    fn effects_of(&self, slot: &str) -> &[Effect] {
        self.effects.get(slot).map_or(&[], Vec::as_slice)
    }

    fn who(&self, slot: &str) -> String {
        let one = |effect: &Effect| format!("by {} at {}", effect.by, moment(effect.at_ms));
        self.effects_of(slot).iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// One slot; answers what is wrong with it.
    fn slot(&self, slot: &str, must_be_settled: bool, tally: &mut Tally) -> Vec<String> {
        let mut faults = Vec::new();
        let Some(entry) = self.entries.get(slot) else {
            return vec!["nothing is on record of it".to_owned()];
        };
        let written = self.stage.store.written.lock().unwrap();
        let work = entry.work.to_string();
        let done = written.done.get(&work).copied().unwrap_or(0);
        let missed = written.missed.get(&work).copied().unwrap_or(0);
        let effects = self.effects_of(slot).len();
        let of = (self.job.index, slot.to_owned());
        let attempts = self.stage.world.lock().unwrap().attempts.get(&of).copied().unwrap_or_default();
        let Attempts { began, cut_short, succeeded, unrecorded } = attempts;
        let mut must = |holds: bool, what: String| {
            if !holds {
                faults.push(what);
            }
        };
        must(missed <= 1, format!("found missed {missed} times"));
        let is_done = matches!(entry.state, State::Done { .. });
        must(
            done == u32::from(is_done),
            format!("recorded as done {done} times, and is {}", entry.state.word()),
        );
        must(succeeded <= usize::from(is_done) + unrecorded, format!("it succeeded again: {attempts:?}"));
        if self.job.policy.on_lost == OnLost::Retry {
            // again only after an attempt that was cut short, or whose success came on no record
            must(
                effects <= cut_short + succeeded,
                format!("{effects} effects: {}, {attempts:?}", self.who(slot)),
            );
            must(!is_done || succeeded >= 1 && effects >= 1, "done without an effect".to_owned());
        } else {
            must(effects <= 1, format!("{effects} effects: {}", self.who(slot)));
            must(!is_done || effects == 1, format!("done with {effects} effects"));
        }
        match &entry.state {
            State::Done { .. } => tally.done += 1,
            State::Missed { .. } => {
                tally.missed += 1;
                must(missed == 1 && began == 0 && effects == 0, format!("missed, after {began} attempts"));
            }
            State::Failed { .. } => tally.failed += 1,
            State::Quarantined | State::InDoubt { .. } => tally.person += 1,
            State::Open { torn } => {
                tally.torn += 1;
                must(*torn, "open, and nothing was said of why".to_owned());
            }
            State::Running { grant, .. } => {
                tally.torn += 1;
                let alive = self.lease.as_ref().is_some_and(|lease| lease.carries(grant));
                must(!alive, "still running at the end".to_owned());
            }
        }
        must(
            !must_be_settled || is_settled(self.job, Some(entry)),
            format!("is {} although it could be caught up", entry.state.word()),
        );
        faults
    }

    /// First of a kind, then silence, then one recovery; nothing that needs a person untold.
    fn told(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let heard = self.stage.heard.lock().unwrap();
        let name = &self.job.name;
        let key = RecordKey::alarm(name);
        let written = self.stage.store.written.lock().unwrap();
        let none = BTreeSet::new();
        let sent = written.notices.get(key.as_str()).unwrap_or(&none);
        let silent = Vec::new();
        for lane in &self.job.lanes {
            let all = heard.get(&(self.job.index, lane.clone())).unwrap_or(&silent);
            faults.extend(in_order(all).into_iter().map(|why| format!("{name} on {lane}: {why}")));
            let ids: BTreeSet<_> = all.iter().map(|one| one.id).collect();
            let here = sent.iter().filter(|(to, _)| to == lane).map(|(_, id)| id);
            let lost = here.filter(|id| !ids.contains(*id) && !written.excused.contains(*id)).count();
            if lost > 0 {
                faults.push(format!("{name} on {lane}: {lost} notices were never told"));
            }
            let told: HashSet<(Kind, &str)> = all
                .iter()
                .filter(|one| one.event == Event::Raised)
                .filter_map(|one| Some((one.kinds[0], one.work.as_deref()?)))
                .collect();
            let mut need: Vec<(Kind, String)> = Vec::new();
            for entry in self.entries.values() {
                match entry.state {
                    State::Quarantined => need.push((Kind::Quarantined, entry.work.to_string())),
                    State::InDoubt { .. } => need.push((Kind::InDoubt, entry.work.to_string())),
                    _ => {}
                }
            }
            // past the limit no further one is told
            let most = need.len() <= alarm::OPEN_LIMIT;
            for (kind, work) in
                need.iter().filter(|(kind, work)| most && !told.contains(&(*kind, work.as_str())))
            {
                faults.push(format!("{work} on {lane}: nobody was told that it is {}", kind.word()));
            }
        }
        let prefix = format!("{name}@");
        let untold = written.untold.iter().filter(|work| work.starts_with(&prefix));
        faults.extend(untold.map(|work| format!("{work}: missed, and no alarm was raised with it")));
        let again = written.again.iter().filter(|work| work.starts_with(&prefix));
        faults.extend(again.map(|work| format!("{work}: claimed although it was done")));
        let unmissed = written.unmissed.iter().filter(|work| work.starts_with(&prefix));
        faults.extend(
            unmissed.map(|work| format!("{work}: vanished, and no alarm was raised with the takeover")),
        );
        faults
    }
}

/// One lane, in the order it was told.
fn in_order(all: &[Heard]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut open: BTreeSet<(Kind, Option<&str>)> = BTreeSet::new();
    let mut known = BTreeSet::new();
    for one in all.iter().filter(|one| known.insert(one.id) && !one.is_stale) {
        for kind in &one.kinds {
            let what = (*kind, one.work.as_deref().filter(|_| kind.is_of_work()));
            match one.event {
                // what tells both comes to whoever heard the first in the very moment of the recovery
                Event::Raised if one.has_recovered => {
                    open.remove(&what);
                }
                Event::Raised => {
                    if !open.insert(what) {
                        faults.push(format!("{} was raised twice ({:?})", kind.word(), one.work));
                    }
                }
                Event::Recovered => {
                    open.remove(&what);
                }
            }
        }
    }
    faults
}

/// A year, about.
pub(crate) const YEAR_MS: u64 = 365 * DAY_MS;
