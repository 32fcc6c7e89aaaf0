//! `semel batch`: items from a file or a stream, each done once.

use std::path::PathBuf;

use semel::engine::Report;
use semel::engine::batch::{BatchEvent, BatchPlan, BatchReport, RUNNERS_LIMIT};
use semel_core::name::Name;
use semel_core::record::RecordKey;
use semel_supervise::Keepers;
use tokio::sync::mpsc;

use super::run::{speak, speak_late};
use crate::args::Common;
use crate::batch::args::BatchArgs;
use crate::batch::dry_run::dry_run;
use crate::batch::failed::FailedTo;
use crate::batch::files::ItemFiles;
use crate::batch::item::Item;
use crate::batch::joblog::Joblog;
use crate::batch::progress::{Counts, Progress, Watcher};
use crate::batch::resolve::{Resolved, resolve, with_file};
use crate::batch::source::{Commands, Source};
use crate::batch::watch::Watch;
use crate::notify::{self, Pings, send};
use crate::out::Voice;
use crate::plan::{self, Surroundings};
use crate::slot::Due;
use crate::task::ProcessSignals;
use crate::trouble::Trouble;
use crate::{definition, exit, runtime};

pub(crate) fn run(common: &Common, args: &BatchArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let batch = resolve(&*with_file(common, args, around)?, around)?;
    if batch.dry_run {
        let plan = batch_plan(&batch, Vec::new(), None);
        return dry_run(common, &batch, &plan, around);
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
    joblog.iter().flat_map(Joblog::left_out).for_each(|line| voice.say(&line));
    let list = |path| FailedTo::create(path, items.format(), items.header());
    let failed_to = batch.failed_to.as_deref().map(list).transpose()?;
    let failed_to = failed_to.map(|list| list.beside_input(items.mark));
    let state_dir = plan::private_dir(common, around)?;
    let lanes = told.lanes.iter().map(|lane| lane.name.clone()).collect();
    let plan = batch_plan(&batch, lanes, Some(state_dir.join("run")));
    let engine = plan::engine(common, around)?;
    let clock = engine.clock.clone();
    let now_ms = move || u64::try_from(clock.now().as_since_boot().as_millis()).unwrap_or(u64::MAX);
    let (notices, mut noted) = mpsc::unbounded_channel();
    let watcher = Watcher::of(voice.json, voice.terminal, around.get("TERM"));
    let mut watch = Watch {
        voice,
        progress: Progress::new(batch.work.job().as_str(), items.bytes, watcher, now_ms()),
        counts: Counts::default(),
        failed_to,
        end: 0,
        summary: told.summary,
        pings: Pings::of_work(told.ping, Some(&batch.work)),
        notices: Some(notices),
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
        files: ItemFiles::default(),
    };
    let runtime = runtime()?;
    let key = RecordKey::alarm(batch.work.job());
    let tell = async || {
        if let Err(why) = send(&engine, &key, &told.lanes, around, voice).await {
            voice.say(&format!("what is to be told is left for later: {why}"));
        }
    };
    let report = runtime.block_on(async {
        let signals = semel_supervise::Signals::install();
        let signals = signals.map_err(|why| Trouble::config(format!("cannot watch for signals: {why}")))?;
        let batch = async {
            let mut hear = |event: BatchEvent<'_, Item>| watch.hear(event, now_ms());
            let mut signals = ProcessSignals(signals);
            let report = engine.batch(&plan, source, &mut commands, &mut signals, &mut hear).await;
            watch.notices = None;
            report
        };
        // what needs a person is told while the others go on
        let telling = async {
            while noted.recv().await.is_some() {
                tell().await;
            }
        };
        Ok::<_, Trouble>(tokio::join!(batch, telling).0)
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
            let what = batch.work.to_string();
            watch.progress.aside(|| match (&report, &batch.due) {
                (Report::TooLate, Some(due)) => speak_late(&voice, &what, due, code),
                _ => speak(&voice, &what, &report, code),
            });
            return Ok(code);
        }
    };
    let code = watch.close(&batch, &batched, commands.joblog.as_ref(), now_ms());
    if !told.lanes.is_empty() {
        runtime.block_on(tell());
    }
    code
}

fn batch_plan(batch: &Resolved, lanes: Vec<String>, nested: Option<PathBuf>) -> BatchPlan {
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
        nested,
        stop_after: batch.breaker.map_or(0, |breaker| breaker.after),
        pause_ms: batch.breaker.and_then(|breaker| breaker.pause_ms),
        wait_ms: None,
        start_within_ms: batch.due.as_ref().and_then(Due::start_within_ms),
        lanes,
    }
}
