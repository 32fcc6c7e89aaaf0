//! `--dry-run`: what would run, item by item, decided by the rule that decides it in a run. Nothing is written, nothing is
//! claimed, and nobody is asked: where a probe would be, that is what is said.
//!
//! Memory: some 100 bytes for each item that would run, so that one that comes twice is known.

use std::collections::HashMap;

use semel::engine::batch::{Bad, BatchPlan, Foreseen, ItemIn};
use semel::engine::{Engine, Report};
use semel_core::claim::Busy;
use semel_core::payload::Fingerprint;
use semel_core::story::Next;
use semel_core::work::Key;
use serde_json::json;

use super::fill::ItemFill;
use super::item::Item;
use super::joblog::Joblog;
use super::resolve::Resolved;
use super::source::{Wanted, ready};
use crate::args::Common;
use crate::commands::find::{ledger, words};
use crate::commands::run::{held, shell_quote};
use crate::out::{Voice, print, print_json};
use crate::plan::Surroundings;
use crate::trouble::Trouble;
use crate::{exit, runtime};

/// Items that are looked at together.
const PAGE: usize = 256;

/// What would run.
pub(crate) fn dry_run(
    common: &Common,
    batch: &Resolved,
    plan: &BatchPlan,
    around: &Surroundings,
) -> Result<u8, Trouble> {
    let voice = Voice::new(common);
    let (mut items, fill) = batch.open()?;
    let joblog = batch.import_joblog.as_deref().map(Joblog::open).transpose()?;
    joblog.iter().flat_map(Joblog::left_out).for_each(|line| voice.say(&line));
    let engine: Engine = ledger(common, around)?;
    let runtime = runtime()?;
    let busy = runtime.block_on(engine.foresee_busy(plan));
    let busy = busy.map_err(|report| match report {
        Report::StoreDown(why) => Trouble::with_code(exit::STORE, why),
        Report::Unusable(why) => Trouble::config(why),
        report => Trouble::with_code(exit::code(&report, 0), "it cannot be looked at"),
    })?;
    if let Some(busy) = &busy {
        voice.say(&format!("a start of {} now would find it busy: {}", batch.work, held(busy)));
    }
    let wanted = Wanted::new(batch.work.clone(), fill.clone());
    let mut run = DryRun { common, batch, voice, fill, joblog, known: HashMap::new(), wrong: 0, persons: 0 };
    loop {
        let mut page = Vec::new();
        let mut is_over = false;
        while page.len() < PAGE && !is_over {
            match items.next().map(|next| ready(next, items.keys(), &wanted)) {
                Some(Ok(item)) => match item.data.work(&batch.work) {
                    Ok(_) => page.push(item),
                    Err(fault) => {
                        run.bad(&Bad { line: item.line, why: fault.why.to_string(), is_last: false })
                    }
                },
                Some(Err(bad)) => {
                    // what comes before it is said before it
                    runtime.block_on(run.page(&engine, plan, busy.as_ref(), std::mem::take(&mut page)))?;
                    run.bad(&bad);
                }
                None => is_over = true,
            }
        }
        runtime.block_on(run.page(&engine, plan, busy.as_ref(), page))?;
        if is_over {
            return Ok(run.code());
        }
    }
}

struct DryRun<'a> {
    common: &'a Common,
    batch: &'a Resolved,
    voice: Voice,
    fill: ItemFill,
    joblog: Option<Joblog>,
    /// Those that would run, and what is bound to them.
    known: HashMap<Key, Option<Fingerprint>>,
    wrong: u64,
    persons: u64,
}

/// What would become of an item.
struct Told {
    word: &'static str,
    words: String,
    is_wrong: bool,
}

impl DryRun<'_> {
    async fn page(
        &mut self,
        engine: &Engine,
        plan: &BatchPlan,
        busy: Option<&Busy>,
        items: Vec<ItemIn<Item>>,
    ) -> Result<(), Trouble> {
        if items.is_empty() {
            return Ok(());
        }
        let (foreseen, bad) = engine.foresee(plan, busy, items).await?;
        bad.iter().for_each(|bad| self.bad(bad));
        foreseen.iter().for_each(|one| self.one(one));
        Ok(())
    }

    fn bad(&mut self, bad: &Bad) {
        self.wrong += 1;
        let place = bad.line.map(|line| format!("line {line}: ")).unwrap_or_default();
        self.voice.say(&format!("{place}{}", bad.why));
    }

    fn one(&mut self, foreseen: &Foreseen<Item>) {
        let item = &foreseen.item;
        let first = self.batch.command.argv.first().cloned().unwrap_or_default();
        // what cannot be filled is no item, and was said
        let argv = self.fill.argv(&first, &item.work, &item.data).unwrap_or_default();
        let Told { word, words, is_wrong } = self.told(foreseen, &argv);
        self.wrong += u64::from(is_wrong);
        self.persons += u64::from(matches!(foreseen.next, Next::Person(_)));
        if self.common.json {
            print_json(json!({
                "kind": "item", "work": item.work.to_string(), "line": item.line, "would": word, "why": words,
                "wrong": is_wrong.then_some(&words),
            }));
            return;
        }
        let command: Vec<String> = argv.iter().map(|word| shell_quote(&word.to_string_lossy())).collect();
        print(&format!("{}: would {words}: {}", item.work, command.join(" ")));
    }

    fn told(&mut self, foreseen: &Foreseen<Item>, argv: &[std::ffi::OsString]) -> Told {
        let Foreseen { item, next, is_wrong } = foreseen;
        if let Some(bound) = self.known.get(&item.key) {
            let changes = match (bound, &item.payload) {
                (Some(bound), Some(offered)) => bound.diff(offered),
                _ => Vec::new(),
            };
            if changes.is_empty() {
                let words = "not run it: its key comes before in this input".to_owned();
                return Told { word: "skip", words, is_wrong: false };
            }
            let fields: Vec<&str> = changes.iter().map(|change| change.pointer.as_str()).collect();
            let words = format!(
                "not run it: its key comes before in this input, with other fields ({})",
                fields.join(", ")
            );
            return Told { word: "refuse", words, is_wrong: true };
        }
        if matches!(next, Next::Run { .. } | Next::Probe { .. } | Next::Yield(_)) {
            self.known.insert(item.key, item.payload.clone());
        }
        let is_run = matches!(next, Next::Run { .. } | Next::Probe { .. });
        if let Some(row) = self.joblog.as_mut().filter(|_| is_run).and_then(|log| log.take(argv)) {
            let words = format!("take it for done: row {row} of the joblog says so");
            return Told { word: "import", words, is_wrong: false };
        }
        Told { word: next.word(), words: next.words(words()), is_wrong: *is_wrong }
    }

    fn code(&self) -> u8 {
        match (self.persons, self.wrong) {
            (1.., _) => exit::PERSON,
            (0, 1..) => exit::INPUT,
            (0, 0) => 0,
        }
    }
}
