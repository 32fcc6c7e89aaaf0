//! `semel ls`: entries of the ledger, those that changed last first.

use semel::engine::Engine;
use semel::engine::ledger::Listed;
use semel_core::name::Name;
use semel_core::story::Condition;

use super::find::{self, Newest, as_json, ledger, note};
use crate::args::{Common, LsArgs, StateArg};
use crate::out::{Voice, print_json, when};
use crate::plan::{Surroundings, name};
use crate::runtime;
use crate::table::{Table, flexible, line_width, number, style_of, whole};
use crate::trouble::Trouble;

pub(crate) fn run(common: &Common, args: &LsArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let job = args.job.as_deref().map(|job| name("--job", job)).transpose()?;
    let engine = ledger(common, around)?;
    let mut newest = Newest::new(args.limit);
    let mut take = |listed: Listed| {
        if wanted(args, listed.condition) {
            newest.push(listed.seen.value.changed_ms, listed);
        }
    };
    // items may be millions: all of them are listed only by their job, or by their state
    let with_items = job.is_none() && (args.state.is_some() || args.needs_me);
    let runtime = runtime()?;
    let mut unreadable = runtime.block_on(each(&engine, job.as_ref(), &mut take))?;
    if with_items {
        unreadable.add(runtime.block_on(each_item(&engine, &mut take))?);
    }
    let voice = Voice::new(common);
    unreadable.say(voice);
    let (count, left_out) = (newest.count, newest.left_out());
    let found = newest.into_vec();
    if common.json {
        found.iter().for_each(|listed| print_json(as_json(listed)));
        return Ok(0);
    }
    if count == 0 {
        voice.mention(|| "no entry is like that".to_owned());
        return Ok(0);
    }
    let mut table = Table::new([
        whole("STATE"),
        flexible("WORK", 16),
        number("TRIES"),
        whole("CHANGED"),
        flexible("TOKEN", 8),
        flexible("NOTE", 10),
    ]);
    for listed in &found {
        let entry = &listed.seen.value;
        let plain = anstyle::Style::new();
        table.row([
            (listed.condition.word().to_owned(), style_of(listed.condition)),
            (entry.work.to_string(), plain),
            (entry.attempts.to_string(), plain),
            (when(entry.changed_ms), plain),
            (find::token(entry), plain),
            (note(listed), plain),
        ]);
    }
    table.print(line_width(around));
    if left_out > 0 {
        voice.mention(|| format!("{left_out} older ones are not shown: say --limit {count} to see them"));
    }
    Ok(0)
}

/// Entries that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) first: Option<String>,
}

impl Unreadable {
    fn add(&mut self, others: Unreadable) {
        self.count += others.count;
        self.first = self.first.take().or(others.first);
    }

    /// Say it, if there are any.
    pub(crate) fn say(&self, voice: Voice) {
        match (self.count, &self.first) {
            (0, _) | (_, None) => {}
            (1, Some(first)) => voice.say(first),
            (count, Some(first)) => voice.say(&format!("{count} entries cannot be read, as in: {first}")),
        }
    }
}

/// Every entry of a job, or of all jobs. Answers what could not be read.
pub(crate) async fn each(
    engine: &Engine,
    job: Option<&Name>,
    take: &mut dyn FnMut(Listed),
) -> Result<Unreadable, Trouble> {
    let (mut unreadable, mut from) = (Unreadable::default(), None);
    loop {
        let page = engine.page(job, from.as_ref()).await?;
        page.entries.into_iter().for_each(&mut *take);
        unreadable.count += page.unreadable.len() as u64;
        unreadable.first = unreadable.first.or_else(|| page.unreadable.first().map(ToString::to_string));
        from = page.next;
        if from.is_none() {
            return Ok(unreadable);
        }
    }
}

/// Every item of all jobs.
async fn each_item(engine: &Engine, take: &mut dyn FnMut(Listed)) -> Result<Unreadable, Trouble> {
    let (mut unreadable, mut from) = (Unreadable::default(), None);
    loop {
        let page = engine.items(from.as_ref()).await?;
        page.entries.into_iter().for_each(&mut *take);
        let first = page.unreadable.first().map(ToString::to_string);
        unreadable.add(Unreadable { count: page.unreadable.len() as u64, first });
        from = page.next;
        if from.is_none() {
            return Ok(unreadable);
        }
    }
}

fn wanted(args: &LsArgs, condition: Condition) -> bool {
    let asked = args.state.map(|state| match state {
        StateArg::Open => Condition::Open,
        StateArg::Running => Condition::Running,
        StateArg::Lost => Condition::Lost,
        StateArg::Done => Condition::Done,
        StateArg::Failed => Condition::Failed,
        StateArg::Missed => Condition::Missed,
        StateArg::Quarantined => Condition::Quarantined,
        StateArg::InDoubt => Condition::InDoubt,
    });
    asked.is_none_or(|asked| asked == condition) && (!args.needs_me || condition.needs_a_person())
}
