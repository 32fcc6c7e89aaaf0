//! `semel check`: what should be done and is not, what needs a person, who could not be told. Silent when all is well.
//!
//! It knows the schedules from the calendars in the ledger, so jobs of crontabs are watched too; those of `semel.toml`
//! that were never run are watched from the first check on. It records slots that were missed, and tells whoever is to
//! be told and could not be before.

use std::collections::BTreeMap;

use clap::Args;
use jiff::Timestamp;
use semel::engine::Engine;
use semel::engine::calendar::{Accounting, SlotState};
use semel::engine::ledger::Listed;
use semel_core::alarm::{self, Alarm, Anomaly, Kind};
use semel_core::calendar::{Calendar, Occurrence, Reason, past_grace, was_done};
use semel_core::entry::{Entry, State, Terms};
use semel_core::name::Name;
use semel_core::policy::Policy;
use semel_core::record::RecordKey;
use semel_core::schedule::Schedule;
use semel_core::story::Condition;
use semel_core::work::Work;
use serde_json::json;

use super::find::{each_alarm, note};
use super::ls::each;
use super::run::{how_to_resolve, shell_quote};
use crate::args::{Common, RunArgs};
use crate::away::Away;
use crate::notify::{self, Lane};
use crate::out::{Voice, print_json, span, when};
use crate::plan::{self, Surroundings};
use crate::trouble::Trouble;
use crate::{exit, runtime, slot};

/// How many slots of a series are looked at.
const SLOTS: usize = 100;

/// `semel check`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Only these jobs
    #[arg(value_name = "JOB")]
    jobs: Vec<String>,
    /// Whom to tell of what nobody was told of: a lane of semel.toml, an https address or a command; may be repeated
    /// [default: what [defaults] says in semel.toml]
    #[arg(long, value_name = "WHAT")]
    notify: Vec<String>,
    /// Let the addresses of --notify be on this machine or in its network
    #[arg(long)]
    private_addresses: bool,
    /// Say nothing: only the exit code, and the notice
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// A run without a schedule is overdue after this
    #[arg(long, value_name = "DUR", default_value = "24h")]
    run_limit: String,
    /// No longer expect the slots of this job: it is not fired any more
    #[arg(long, value_name = "JOB", conflicts_with = "jobs")]
    retire: Option<String>,
}

/// Something that is not as it should be.
struct Finding {
    /// By what it is known, from one check to the next.
    id: String,
    kind: &'static str,
    job: Name,
    work: String,
    line: String,
    /// What its job's lanes are told of it, unless they were.
    anomaly: Option<Anomaly>,
}

struct Checker<'a> {
    common: &'a Common,
    args: &'a CheckArgs,
    around: &'a Surroundings,
    engine: Engine,
    only: Vec<Name>,
    now: Timestamp,
    findings: Vec<Finding>,
    /// The lanes of jobs of the file.
    lanes: BTreeMap<Name, Vec<Lane>>,
}

pub(crate) fn run(common: &Common, args: &CheckArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let engine = plan::engine(common, around)?;
    let voice = Voice::new(common);
    let runtime = runtime()?;
    if let Some(job) = &args.retire {
        let job = plan::name("--retire", job)?;
        let count = runtime.block_on(engine.retire(&job))?;
        if count == 0 {
            return Err(Trouble::input(format!("no schedule of job {job} is on record")));
        }
        voice.mention(|| format!("slots of {job} are no longer expected, until it is run again"));
        return Ok(0);
    }
    let only = args.jobs.iter().map(|job| plan::name("JOB", job)).collect::<Result<Vec<_>, _>>()?;
    let now = around.now()?;
    let findings = Vec::new();
    let mut checker = Checker { common, args, around, engine, only, now, findings, lanes: BTreeMap::new() };
    runtime.block_on(checker.check())?;
    let Checker { findings, .. } = checker;
    for found in &findings {
        if common.json {
            print_json(json!({
                "kind": "finding", "finding": found.kind, "job": found.job, "work": found.work, "text": found.line,
            }));
        } else if !args.quiet {
            voice.say(&found.line);
        }
    }
    if findings.is_empty() {
        voice.detail(|| "all is well".to_owned());
    }
    Ok(if findings.is_empty() { 0 } else { exit::FOUND })
}

impl Checker<'_> {
    fn wants(&self, job: &Name) -> bool {
        self.only.is_empty() || self.only.contains(job)
    }

    async fn check(&mut self) -> Result<(), Trouble> {
        self.of_file().await?;
        self.slots().await?;
        self.entries().await?;
        self.tell().await?;
        self.lanes_that_are_broken().await
    }

    /// Jobs of the file that were never run are watched from now on; and who is to be told of each.
    async fn of_file(&mut self) -> Result<(), Trouble> {
        let Some(config) = self.around.config(self.common)? else { return Ok(()) };
        for job in &config.jobs {
            let Ok(name) = Name::new(&job.name) else { continue };
            if !self.wants(&name) {
                continue;
            }
            if config.is_faulty(job) {
                let line = format!(
                    "job {name} of {} has faults, so it cannot run; see them with: semel config check",
                    config.path.display()
                );
                self.findings.push(Finding::plain("config", &format!("config:{name}"), &name, line));
                continue;
            }
            let args = config.filled(job, &RunArgs::default());
            if let Err(trouble) = self.of_job(&name, &args).await {
                // what is wrong with one job hides nothing of the others; a store that is down does
                if trouble.code == exit::STORE {
                    return Err(trouble);
                }
                let line = format!("job {name}: {}", trouble.line);
                self.findings.push(Finding::plain("config", &format!("config:{name}"), &name, line));
            }
        }
        Ok(())
    }

    /// Who is to be told of a job of the file; and its slots are expected from now on.
    async fn of_job(&mut self, name: &Name, args: &RunArgs) -> Result<(), Trouble> {
        let told = notify::resolve(self.common, args, self.around)?;
        for line in told.broken {
            self.findings.push(Finding::plain("lane", &format!("lane-of:{name}:{line}"), name, line));
        }
        self.lanes.insert(name.clone(), told.lanes);
        if let Some(due) = slot::due(&args.what, self.around)? {
            let work = plan::work(name, &args.what, Some(&due))?;
            self.engine.watch(&work, &due.occurrence()).await?;
        }
        Ok(())
    }

    /// Slots that should be done.
    async fn slots(&mut self) -> Result<(), Trouble> {
        let excuses = Away::of(self.common, self.around).map(|away| away.excuses()).unwrap_or_default();
        let terms = Terms::of(&Policy::default());
        let mut from = None;
        loop {
            let (calendars, next) = self.engine.calendars(None, from.as_ref()).await?;
            for calendar in calendars.into_iter().map(|seen| seen.value) {
                if !self.wants(&calendar.job) {
                    continue;
                }
                let Some((occurrence, work)) = self.occurrence(&calendar) else { continue };
                let lanes = self.lane_names(&calendar.job);
                let ask = Accounting {
                    work: &work,
                    occurrence: &occurrence,
                    excuses: &excuses,
                    terms: &terms,
                    lanes: &lanes,
                };
                self.engine.account_for(ask).await?;
                self.series(&calendar, &occurrence, &work).await?;
            }
            from = next;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// What is due now of a series. A schedule that cannot be read here (a zone that this machine does not know, the
    /// word of a newer Semel) is a finding.
    fn occurrence(&mut self, calendar: &Calendar) -> Option<(Occurrence, Work)> {
        let found = Schedule::parse(&calendar.every).map_err(|why| why.to_string()).and_then(|schedule| {
            let zone = slot::zone(&schedule, calendar.tz.as_deref(), self.around);
            zone.map(|zone| (schedule, zone)).map_err(|trouble| trouble.line)
        });
        let (schedule, zone) = match found {
            Ok(found) => found,
            Err(why) => {
                let id = format!("schedule:{}", RecordKey::calendar(&calendar.job, &calendar.with));
                let line = format!(
                    "the schedule {:?} of {} cannot be watched here: {why}",
                    calendar.every, calendar.job
                );
                self.findings.push(Finding::plain("config", &id, &calendar.job, line));
                return None;
            }
        };
        let tick = schedule.tick_at_or_before(&zone, self.now)?;
        let work = calendar.work(tick.slot.clone()).ok()?;
        Some((Occurrence { schedule, zone, tick, grace_ms: calendar.grace_ms }, work))
    }

    /// The newest slots of a series that are past their grace, until one that is done.
    async fn series(
        &mut self,
        calendar: &Calendar,
        occurrence: &Occurrence,
        work: &Work,
    ) -> Result<(), Trouble> {
        let ticks = past_grace(calendar, occurrence, self.engine.clock.wall_ms(), SLOTS);
        let slots = self.engine.slots(work, ticks).await?;
        let is_done = |slot: &SlotState| slot.entry.as_ref().is_some_and(was_done);
        let undone: Vec<SlotState> = slots.into_iter().take_while(|slot| !is_done(slot)).collect();
        if let (Some(last), Some(first)) = (undone.first(), undone.last()) {
            let finding = overdue(calendar, &undone, first, last);
            self.findings.push(finding);
        }
        Ok(())
    }

    /// Entries that need a person, and runs that should have ended.
    async fn entries(&mut self) -> Result<(), Trouble> {
        let limit_ms = plan::duration_ms("--run-limit", &self.args.run_limit)?;
        let now_ms = self.engine.clock.wall_ms();
        let mut found = Vec::new();
        let only = &self.only;
        let unreadable = each(&self.engine, None, &mut |listed| {
            let job = listed.seen.value.work.job();
            if only.is_empty() || only.contains(job) {
                found.extend(of_entry(&listed, now_ms, limit_ms));
            }
        })
        .await?;
        unreadable.say(Voice::new(self.common));
        // a slot that is overdue was said above
        let said: Vec<String> = self.findings.iter().map(|found| found.work.clone()).collect();
        found.retain(|found| found.kind == "needs_person" || !said.contains(&found.work));
        self.findings.extend(found);
        Ok(())
    }

    fn lane_names(&self, job: &Name) -> Vec<String> {
        self.lanes.get(job).into_iter().flatten().map(|lane| lane.name.clone()).collect()
    }

    /// The lanes of the check itself.
    fn own_lanes(&self) -> Result<Vec<Lane>, Trouble> {
        let mut args = match self.around.config(self.common)? {
            Some(config) => config.defaults_alone(),
            None => RunArgs::default(),
        };
        args.notify.private_addresses |= self.args.private_addresses;
        args.notify.notify.clone_from(&self.args.notify);
        let told = notify::resolve(self.common, &args, self.around)?;
        told.broken.iter().for_each(|line| Voice::new(self.common).say(line));
        Ok(told.lanes)
    }

    /// Put on record what is to be told, and tell it.
    async fn tell(&mut self) -> Result<(), Trouble> {
        let own = self.own_lanes()?;
        let mut news = Vec::new();
        for found in &self.findings {
            let alarm = self.engine.alarm(&RecordKey::alarm(&found.job)).await?.map(|seen| seen.value);
            if is_known(alarm.as_ref(), found) {
                continue;
            }
            let lanes = self.lane_names(&found.job);
            match &found.anomaly {
                Some(anomaly) if !lanes.is_empty() => {
                    self.engine.raise(&found.job, std::slice::from_ref(anomaly), &lanes).await?;
                }
                _ => news.push(found),
            }
        }
        let ids: Vec<String> = news.iter().map(|found| found.id.clone()).collect();
        let lines: Vec<&str> = news.iter().map(|found| found.line.as_str()).collect();
        // a check of some jobs says nothing of the others
        if self.only.is_empty() || !ids.is_empty() {
            let names: Vec<String> = own.iter().map(|lane| lane.name.clone()).collect();
            self.engine.raise_check(&ids, &lines.join("; "), &names).await?;
        }
        let mut lanes = own;
        lanes.extend(self.lanes.values().flatten().cloned());
        if let Some(config) = self.around.config(self.common)? {
            lanes.extend(
                config.lanes.iter().filter_map(|lane| notify::lane(config, &lane.name, self.around).ok()),
            );
        }
        let mut waiting = Vec::new();
        each_alarm(&self.engine, &mut |key, alarm| {
            waiting.extend((!alarm.outbox.is_empty()).then(|| key.clone()));
        })
        .await?;
        for key in &waiting {
            notify::send(&self.engine, key, &lanes, self.around, Voice::new(self.common)).await?;
        }
        Ok(())
    }

    /// Who could not be told.
    async fn lanes_that_are_broken(&mut self) -> Result<(), Trouble> {
        let findings = &mut self.findings;
        each_alarm(&self.engine, &mut |_, alarm| {
            let Some(job) = alarm.job.clone().or_else(|| Name::new("check").ok()) else { return };
            findings.extend(alarm::broken(alarm).into_iter().map(|broken| {
                let waiting = broken.given_up.saturating_add(broken.waiting);
                let line = format!(
                    "lane {} does not deliver: {waiting} notices of {job} are not told, the last try at {}: {}; try it with: semel doctor --notify {}",
                    broken.lane, when(broken.at_ms), broken.why, shell_quote(broken.lane)
                );
                Finding::plain("lane", &format!("lane:{}", broken.lane), &job, line)
            }));
        })
        .await
    }
}

impl Finding {
    /// Something that no alarm of its job knows.
    fn plain(kind: &'static str, id: &str, job: &Name, line: String) -> Finding {
        Finding { id: id.to_owned(), kind, job: job.clone(), work: job.to_string(), line, anomaly: None }
    }
}

fn overdue(calendar: &Calendar, undone: &[SlotState], first: &SlotState, last: &SlotState) -> Finding {
    let job = &calendar.job;
    let (from, to) = (&first.tick.slot, &last.tick.slot);
    let state = state_words(last.entry.as_ref());
    let what = match undone.len() {
        1 => format!("{} is overdue: it {state}", last.work),
        n => format!("{n} slots of {job} are overdue, {from} to {to}: the last {state}"),
    };
    let grace = span(calendar.grace_ms);
    let line = format!(
        "{what}; due since {}, with a grace of {grace}; look: semel why {}; run what is not done: semel backfill {} --from {from} --to {to}",
        when(u64::try_from(first.tick.at.as_millisecond()).unwrap_or(0)),
        shell_quote(&last.work.to_string()),
        shell_quote(job.as_str()),
    );
    let at_ms = u64::try_from(last.tick.at.as_millisecond()).unwrap_or(0);
    let slots = u32::try_from(undone.len()).unwrap_or(u32::MAX);
    let anomaly = Anomaly {
        kind: Kind::Overdue,
        work: last.work.to_string(),
        at_ms,
        why: format!("it {state}"),
        slots,
    };
    Finding {
        id: format!("overdue:{}", RecordKey::calendar(job, &calendar.with)),
        kind: "overdue",
        job: job.clone(),
        work: last.work.to_string(),
        line,
        anomaly: Some(anomaly),
    }
}

fn state_words(entry: Option<&Entry>) -> String {
    match entry.map(|entry| &entry.state) {
        None => format!("was not run: {}", Reason::NoTrigger.words()),
        Some(State::Missed { reason, .. }) => format!("was missed: {}", reason.words()),
        Some(State::Running { .. }) => "began and is not done".to_owned(),
        Some(State::Failed { .. }) => "failed".to_owned(),
        Some(State::Quarantined) => "is quarantined".to_owned(),
        Some(State::InDoubt { .. }) => "is in doubt".to_owned(),
        Some(State::Open { .. } | State::Done { .. }) => "is not done".to_owned(),
    }
}

fn of_entry(listed: &Listed, now_ms: u64, limit_ms: u64) -> Option<Finding> {
    let entry = &listed.seen.value;
    let work = entry.work.to_string();
    let since_ms = entry.last_attempt().map_or(entry.changed_ms, |last| last.started_ms);
    let age_ms = now_ms.saturating_sub(since_ms);
    let (kind, line) = match listed.condition {
        Condition::Quarantined | Condition::InDoubt => {
            let word = listed.condition.word().replace('_', " ");
            ("needs_person", format!("{work} is {word}: {}; {}", note(listed), how_to_resolve(&work)))
        }
        // of a slot its grace decides
        _ if entry.work.slot().is_some() => return None,
        Condition::Lost => ("lost", format!("{work} is lost: {}", note(listed))),
        Condition::Running if age_ms > limit_ms => {
            ("overdue", format!("{work} has been running for {}: {}", span(age_ms), note(listed)))
        }
        _ => return None,
    };
    let anomaly = alarm::spot::needs_person(entry, now_ms);
    Some(Finding { id: format!("{kind}:{work}"), kind, job: entry.work.job().clone(), work, line, anomaly })
}

/// Was, or will, somebody be told of this by the alarm of its job?
fn is_known(alarm: Option<&Alarm>, found: &Finding) -> bool {
    let Some(alarm) = alarm else { return false };
    let same = |open: &alarm::Open| match (&open.work, found.kind) {
        (Some(work), "needs_person") => *work == found.work,
        (None, "overdue" | "lost") => true,
        _ => false,
    };
    alarm.open.iter().any(|open| same(open) && open.notice.is_some())
}
