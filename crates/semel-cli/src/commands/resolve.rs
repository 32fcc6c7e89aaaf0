//! `semel resolve KEY`: a person's verdict on an entry.

use semel::engine::Engine;
use semel::engine::verdict::{Judged, Saying};
use semel_core::canonical;
use semel_core::entry::{RESULT_LIMIT, Say};
use semel_core::lease::SeenLease;
use semel_core::story::Condition;
use semel_core::work::Work;
use serde_json::{Value, json};

use super::find::{self, ledger, not_on_record, words};
use super::run::shell_quote;
use crate::args::{Common, ResolveArgs};
use crate::out::{print, print_json, when};
use crate::plan::{self, Surroundings};
use crate::table::clean;
use crate::trouble::Trouble;
use crate::{exit, runtime};

pub(crate) fn run(common: &Common, args: &ResolveArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let saying = saying(args, around)?;
    let engine = ledger(common, around)?;
    runtime()?.block_on(async {
        let work = find::work(common, &engine, &args.key).await?;
        match engine.judge(&work, &saying).await? {
            Judged::Changed { before, after } => {
                let told = tell(common, &engine, &work, before.state.word(), after.state.word(), true).await;
                if saying.said != Say::Done && !common.json {
                    tell_steps(&engine, &work).await?;
                }
                told
            }
            Judged::Already(entry) => tell(common, &engine, &work, entry.state.word(), entry.state.word(), false).await,
            Judged::Running { resource, lease } => {
                let who = lease.as_ref().map(holder).unwrap_or_default();
                Err(Trouble::with_code(exit::BUSY, format!("{work} is running on {resource}{who}: nothing was changed; wait for it, or stop it first")))
            }
            Judged::NeverDone => {
                Err(Trouble::input(format!("{work} runs every time and is never done: say --not-done")))
            }
            Judged::Absent => Err(not_on_record(&engine, &work).await?),
        }
    })
}

/// What a person may not expect: the steps of a reopened run stay as they are.
async fn tell_steps(engine: &Engine, work: &Work) -> Result<(), Trouble> {
    let page = engine.steps(work, None).await?;
    let done: Vec<_> = page.entries.iter().filter(|step| step.condition == Condition::Done).collect();
    if let Some(first) = done.first() {
        let count =
            if page.next.is_some() { format!("{} or more", done.len()) } else { done.len().to_string() };
        let first = shell_quote(&first.seen.value.work.to_string());
        print(&format!(
            "its steps that are done ({count}) stay done and are replayed; to do one again: semel resolve {first} --retry --because TEXT"
        ));
    }
    Ok(())
}

fn saying(args: &ResolveArgs, around: &Surroundings) -> Result<Saying, Trouble> {
    let because = plan::because(&args.because)?;
    let said = match (args.done, args.not_done) {
        (true, _) => Say::Done,
        (_, true) => Say::NotDone,
        _ => Say::Retry,
    };
    let result = args.result.as_deref().map(result).transpose()?;
    Ok(Saying { said, by: around.person(), because: because.to_owned(), result })
}

fn result(text: &str) -> Result<Value, Trouble> {
    if text.len() > RESULT_LIMIT {
        return Err(Trouble::input(format!(
            "--result is larger than {RESULT_LIMIT} bytes; nothing was changed"
        )));
    }
    canonical::parse(text)
        .map_err(|why| Trouble::input(format!("--result is not JSON: {why}; nothing was changed")))
}

fn holder(lease: &SeenLease) -> String {
    let token = lease.record.value.grant.token;
    let hold = lease.record.value.hold.as_ref();
    hold.map(|hold| format!(" by {} since {} (token {token})", hold.owner, when(hold.since_ms)))
        .unwrap_or_default()
}

async fn tell(
    common: &Common,
    engine: &Engine,
    work: &Work,
    was: &str,
    is: &str,
    changed: bool,
) -> Result<u8, Trouble> {
    let next = engine.outlook(work).await?.next;
    if common.json {
        print_json(json!({
            "kind": "resolved", "work": work.to_string(), "key": work.key().to_string(), "changed": changed,
            "was": was, "state": is, "next": { "would": next.word(), "words": next.words(words()) },
        }));
    } else {
        let what = if changed {
            format!("was {was}, is {is} now")
        } else {
            format!("is {is} already: nothing was changed")
        };
        print(&clean(&format!("{work} {what}; the next run would: {}", next.words(words()))));
    }
    Ok(0)
}
