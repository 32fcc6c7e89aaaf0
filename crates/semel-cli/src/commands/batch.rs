//! `semel batch`: items from a file or a stream, each done once.

use semel::engine::batch::{
    BatchEvent, BatchPlan, BatchReport, Batched, Fate, Item as Known, RUNNERS_LIMIT, Stopped,
};
use semel::engine::{Engine, Report};
use semel_core::name::Name;
use semel_core::policy::IfBusy;
use semel_core::record::RecordKey;
use semel_core::story::ended;
use semel_supervise::Keepers;
use serde_json::{Value, json};

use super::find::{ledger, words};
use super::run::{how_to_resolve, shell_quote, speak, tell};
use crate::args::Common;
use crate::batch::args::BatchArgs;
use crate::batch::failed::FailedTo;
use crate::batch::input::Next;
use crate::batch::item::Item;
use crate::batch::joblog::Joblog;
use crate::batch::progress::{Counts, Progress, Watcher};
use crate::batch::resolve::{Resolved, resolve, with_file};
use crate::batch::source::{Commands, Source};
use crate::notify::{self, send};
use crate::out::{Voice, print, print_json};
use crate::plan::{self, Surroundings};
use crate::task::ProcessSignals;
use crate::trouble::Trouble;
use crate::{definition, exit, runtime};

pub(crate) fn run(common: &Common, args: &BatchArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let batch = resolve(&*with_file(common, args, around)?, around)?;
    if batch.dry_run {
        return dry_run(common, &batch, around);
    }
    if let Some(due) = batch.due.as_ref().filter(|due| due.start_within_ms() == Some(0)) {
        let why = format!("{} not run: {}", batch.work, due.too_late());
        return Err(Trouble::with_code(exit::BUSY, why));
    }
    let voice = Voice::new(common);
    let told = notify::resolve(common, &batch.as_run, around)?;
    told.broken.iter().for_each(|line| voice.say(line));
    let (items, fill) = batch.open()?;
    let joblog = batch.import_joblog.as_deref().map(Joblog::open).transpose()?;
    let failed_to =
        batch.failed_to.as_deref().map(|path| FailedTo::create(path, items.format(), items.header()));
    let state_dir = plan::private_dir(common, around)?;
    let lanes = told.lanes.iter().map(|lane| lane.name.clone()).collect();
    let plan = batch_plan(&batch, lanes, &state_dir);
    let engine = plan::engine(common, around)?;
    let clock = engine.clock.clone();
    let now_ms = move || u64::try_from(clock.now().as_since_boot().as_millis()).unwrap_or(u64::MAX);
    let watcher = Watcher::of(voice.json, voice.terminal, around.get("TERM"));
    let mut watch = Watch {
        voice,
        progress: Progress::new(batch.work.job().as_str(), items.bytes, watcher, now_ms()),
        counts: Counts::default(),
        failed_to: failed_to.transpose()?,
        end: 0,
        summary: told.summary,
    };
    let source =
        Source::new(items, batch.from.clone(), batch.reading.clone(), batch.work.clone(), fill.clone())
            .map_err(|why| Trouble::config(format!("cannot start a thread for the input: {why}")))?;
    let mut commands = Commands {
        program: batch.command.clone(),
        fill,
        probe: batch.probe.clone(),
        around,
        state_dir,
        stdin: batch.stdin,
        joblog,
        voice,
        keepers: Keepers::default(),
    };
    let runtime = runtime()?;
    let report = runtime.block_on(async {
        let signals = semel_supervise::Signals::install();
        let signals = signals.map_err(|why| Trouble::config(format!("cannot watch for signals: {why}")))?;
        let mut hear = |event: BatchEvent<'_, Item>| watch.hear(event, now_ms());
        Ok::<_, Trouble>(
            engine.batch(&plan, source, &mut commands, &mut ProcessSignals(signals), &mut hear).await,
        )
    })?;
    let batched = match report {
        BatchReport::Ran(batched) => batched,
        BatchReport::NotRun(report) => {
            let code = exit::code(&report, batch.skip_code);
            if let (true, Report::Yielded(busy) | Report::Busy(busy)) = (batch.share, &report)
                && busy.resource != batch.resource
            {
                let why = format!(
                    "{} not run: {RUNNERS_LIMIT} runners share it already, and there are never more",
                    batch.work
                );
                watch.say(&why);
            }
            watch.progress.aside(|| speak(&voice, &batch.work.to_string(), &report, code));
            return Ok(code);
        }
    };
    let code = watch.close(&batch, &batched, commands.joblog.as_ref(), now_ms())?;
    if !told.lanes.is_empty() {
        let key = RecordKey::alarm(batch.work.job());
        if let Err(why) = runtime.block_on(send(&engine, &key, &told.lanes, around, voice)) {
            voice.say(&format!("what is to be told is left for later: {why}"));
        }
    }
    Ok(code)
}

fn batch_plan(batch: &Resolved, lanes: Vec<String>, state_dir: &std::path::Path) -> BatchPlan {
    let resources: Vec<Name> = vec![batch.resource.clone()];
    let mark = plan::mark(&batch.command.argv);
    let definition = definition::of(&batch.as_run, batch.work.job(), &resources, &batch.policy, &mark);
    BatchPlan {
        work: batch.work.clone(),
        resources,
        share: batch.share,
        workers: usize::try_from(batch.jobs).unwrap_or(1),
        policy: batch.policy.clone(),
        command: Some(mark),
        definition,
        nested: Some(state_dir.join("run")),
        stop_after: batch.breaker.map_or(0, |breaker| breaker.after),
        pause_ms: batch.breaker.and_then(|breaker| breaker.pause_ms),
        wait_ms: None,
        lanes,
    }
}

/// What is said of a batch, and counted.
struct Watch {
    voice: Voice,
    progress: Progress,
    counts: Counts,
    failed_to: Option<FailedTo>,
    /// Where in the input the last item stands that was dealt with.
    end: u64,
    /// The closing line is asked for.
    summary: bool,
}

impl Watch {
    fn hear(&mut self, event: BatchEvent<'_, Item>, now_ms: u64) {
        match event {
            BatchEvent::Runner(event) => self.progress.aside(|| tell(&self.voice, &event)),
            BatchEvent::Began { .. } | BatchEvent::Read => {}
            BatchEvent::Item { item, fate } => self.item(item, &fate),
            BatchEvent::Bad(bad) => {
                self.counts.wrong += 1;
                let place = bad.line.map(|line| format!("line {line}: ")).unwrap_or_default();
                self.say(&format!("{place}{}", bad.why));
                self.voice.outcome(|| json!({ "kind": "item", "outcome": "bad", "line": bad.line, "why": bad.why, "exit_code": exit::INPUT }));
            }
            BatchEvent::Paused { row, for_ms } => {
                let pause = crate::out::span(for_ms);
                self.say(&format!(
                    "{row} items failed in a row: nothing is begun for {pause}, then one is tried"
                ));
            }
        }
        self.progress.update(&self.counts, self.end, now_ms);
    }

    fn say(&self, line: &str) {
        if !self.voice.json {
            self.progress.aside(|| self.voice.say(line));
        }
    }

    fn item(&mut self, item: &Known<Item>, fate: &Fate<'_>) {
        self.end = self.end.max(item.data.end);
        let work = &item.work;
        let last = |entry: &semel_core::entry::Entry| {
            entry.last_attempt().map(|last| ended(&last.ending)).unwrap_or_default()
        };
        let mut failed = false;
        let (word, why) = match fate {
            Fate::Done(_) => {
                self.counts.done += 1;
                ("done", None)
            }
            Fate::Skipped => {
                self.counts.skipped += 1;
                ("skipped", None)
            }
            Fate::Duplicate => {
                self.counts.duplicates += 1;
                ("duplicate", None)
            }
            Fate::Failed(entry) => {
                self.counts.failed += 1;
                failed = true;
                let of = match entry.terms.max_failures {
                    0 => String::new(),
                    most => format!(" (failure {} of {most})", entry.failures),
                };
                ("failed", Some(format!("{work} {}{of}", last(entry))))
            }
            Fate::Person(entry) => {
                failed = true;
                match entry.state {
                    semel_core::entry::State::Quarantined => self.counts.quarantined += 1,
                    _ => self.counts.in_doubt += 1,
                }
                let state = entry.state.word().replace('_', " ");
                let why =
                    format!("{work} is {state}: {}; {}", last(entry), how_to_resolve(&work.to_string()));
                (entry.state.word(), Some(why))
            }
            Fate::Mismatch { changes, .. } => {
                self.counts.mismatched += 1;
                let names: Vec<String> = changes.iter().map(|change| change.pointer.to_string()).collect();
                let why = format!(
                    "{work} was given other fields before ({}): it is not run; name what may differ with --volatile",
                    names.join(", ")
                );
                ("mismatch", Some(why))
            }
            Fate::Busy => {
                self.counts.left += 1;
                ("busy", None)
            }
            Fate::Held => {
                self.counts.held += 1;
                ("held", None)
            }
            Fate::Interrupted => {
                self.counts.left += 1;
                ("interrupted", None)
            }
            Fate::Unrecorded(why) => {
                self.counts.left += 1;
                ("unrecorded", Some(format!("{work} ended, and that could not be recorded: {why}")))
            }
        };
        if failed && let Some(list) = &mut self.failed_to {
            list.push(&item.data.raw);
        }
        if let Some(why) = &why {
            self.say(why);
        }
        self.voice.outcome(|| {
            json!({
                "kind": "item", "outcome": word, "work": work.to_string(), "key": item.key.to_string(),
                "line": item.line, "why": why,
            })
        });
    }

    fn close(
        mut self,
        batch: &Resolved,
        batched: &Batched,
        joblog: Option<&Joblog>,
        now_ms: u64,
    ) -> Result<u8, Trouble> {
        let Watch { voice, counts, .. } = self;
        let job = batch.work.job();
        let line = self.progress.finish(&counts, now_ms);
        let code = match exit::of_batch(&counts, &batched.stopped) {
            0 if counts.held > 0 && batch.policy.if_busy == IfBusy::Fail => exit::BUSY,
            0 if counts.held > 0 => batch.skip_code,
            code => code,
        };
        if let Some(why) = stopped(&batched.stopped) {
            voice.say(&format!("{job}: {why}"));
        }
        // what was on record already asked for no row: as many may be theirs
        let left = joblog.map(|log| log.left_over().saturating_sub(counts.skipped));
        if let Some(left) = left.filter(|left| *left > 0) {
            voice.say(&format!("{left} rows of the joblog belong to no item of this input"));
        }
        let taken = self.failed_to.take().map(FailedTo::finish).transpose();
        if voice.json {
            voice.outcome(|| report(batch, &counts, batched, code));
        } else if code != 0 || counts.done > 0 || voice.terminal || voice.verbose || self.summary {
            // one that found nothing left to do is as silent as any other skip
            voice.say(&line);
        }
        taken?;
        Ok(code)
    }
}

fn stopped(stopped: &Stopped) -> Option<String> {
    match stopped {
        Stopped::AtTheEnd => None,
        Stopped::Interrupted(signal) => {
            Some(format!("interrupted by signal {signal}; start it again to go on"))
        }
        Stopped::LeaseLost(why) => Some(format!("the lease was lost: {why}; what was under way was stopped")),
        Stopped::StoreDown(why) => {
            Some(format!("the store cannot be reached: {why}; start it again to go on"))
        }
        Stopped::Breaker(row) => {
            Some(format!("stopped after {row} failures in a row (--stop-after); start it again to go on"))
        }
        Stopped::Unusable(why) => Some(why.clone()),
    }
}

fn report(batch: &Resolved, counts: &Counts, batched: &Batched, code: u8) -> Value {
    json!({
        "kind": "batch", "job": batch.work.job(), "work": batch.work.to_string(), "exit_code": code,
        "done": counts.done, "skipped": counts.skipped, "failed": counts.failed,
        "quarantined": counts.quarantined, "in_doubt": counts.in_doubt, "duplicates": counts.duplicates,
        "mismatched": counts.mismatched, "wrong": counts.wrong, "left": counts.left,
        "held": counts.held,
        "commits": batched.commits, "stopped": stopped(&batched.stopped),
        "took_ms": u64::try_from(batched.took.as_millis()).unwrap_or(u64::MAX),
    })
}

/// What would run, item by item.
fn dry_run(common: &Common, batch: &Resolved, around: &Surroundings) -> Result<u8, Trouble> {
    let (items, fill) = batch.open()?;
    let engine: Engine = ledger(common, around)?;
    let voice = Voice::new(common);
    let runtime = runtime()?;
    let first = batch.command.argv.first().cloned().unwrap_or_default();
    let mut wrong = 0u64;
    for next in items {
        let (item, work) = match next {
            Next::Item(item) => match item.work(&batch.work) {
                Ok(work) => (item, work),
                Err(fault) => {
                    wrong += 1;
                    voice.say(&fault.to_string());
                    continue;
                }
            },
            Next::Bad(fault) | Next::Broken(fault) => {
                wrong += 1;
                voice.say(&fault.to_string());
                continue;
            }
        };
        let next = runtime.block_on(engine.outlook(&work))?.next;
        let argv = fill.argv(&first, &work, &item).map_err(|fault| fault.to_string());
        if common.json {
            print_json(json!({
                "kind": "item", "work": work.to_string(), "would": next.word(), "why": next.words(words()),
                "wrong": argv.as_ref().err(),
            }));
            continue;
        }
        let command = match &argv {
            Ok(argv) => {
                argv.iter().map(|word| shell_quote(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
            }
            Err(why) => why.clone(),
        };
        print(&format!("{work}: would {}: {command}", next.words(words())));
    }
    Ok(if wrong > 0 { exit::INPUT } else { 0 })
}
