//! `semel status`: what is running, what needs a person, what went wrong last. Short when all is well.

use std::collections::{BTreeMap, BTreeSet};

use anstyle::Style;
use semel::engine::Engine;
use semel::engine::ledger::Listed;
use semel_core::alarm;
use semel_core::definition::Successes;
use semel_core::entry::Attempt;
use semel_core::lease::SeenLease;
use semel_core::name::Name;
use semel_core::record::Standing;
use semel_core::story::{Condition, Suppressed};
use serde_json::{Value, json};

use super::find::{Newest, as_json, each_alarm, ledger, left_ms, note, token};
use super::ls::{Unreadable, each};
use super::run::shell_quote;
use crate::args::Common;
use crate::out::{Voice, print, print_json, span, when};
use crate::plan::Surroundings;
use crate::runtime;
use crate::table::{Table, clean, flexible, line_width, number, style_of, styled, whole};
use crate::trouble::Trouble;

/// How many of a kind are shown, and how many failures.
const SHOWN: usize = 50;
const FAILURES_SHOWN: usize = 5;

struct Status {
    counts: BTreeMap<Condition, u64>,
    running: Newest<Listed>,
    needs_person: Newest<Listed>,
    failed: Newest<Listed>,
    /// Leases that are held without an entry.
    held: Newest<(Name, SeenLease)>,
    suppressed: Suppressed,
    /// The works that ran last of jobs that were then defined otherwise than when they last succeeded.
    drifted: Newest<String>,
    /// Lanes that do not deliver, each with why.
    broken: BTreeMap<String, String>,
    /// Items of batches, by job and state.
    items: BTreeMap<Name, BTreeMap<String, u64>>,
    unreadable: Unreadable,
}

/// What ran last of a job, and what succeeded.
#[derive(Default)]
struct Runs {
    last: Option<(String, Attempt)>,
    successes: Successes,
}

impl Runs {
    fn note(&mut self, listed: &Listed) {
        let entry = &listed.seen.value;
        let Some(attempt) = entry.last_attempt() else { return };
        self.successes.note_last(entry);
        if self.last.as_ref().is_none_or(|(_, last)| last.started_ms <= attempt.started_ms) {
            self.last = Some((entry.work.to_string(), attempt.clone()));
        }
    }
}

pub(crate) fn run(common: &Common, around: &Surroundings) -> Result<u8, Trouble> {
    let engine = ledger(common, around)?;
    let status = runtime()?.block_on(look(&engine))?;
    if common.json {
        print_json(status.into_json());
    } else {
        status.tell(common, around, engine.clock.wall_ms());
    }
    Ok(0)
}

async fn look(engine: &Engine) -> Result<Status, Trouble> {
    let mut counts: BTreeMap<Condition, u64> = BTreeMap::new();
    let (mut running, mut needs_person) = (Newest::new(SHOWN), Newest::new(SHOWN));
    let (mut failed, mut held) = (Newest::new(FAILURES_SHOWN), Newest::new(SHOWN));
    let mut grants = BTreeSet::new();
    let mut jobs: BTreeMap<Name, Runs> = BTreeMap::new();
    let unreadable = each(engine, None, &mut |listed| {
        *counts.entry(listed.condition).or_default() += 1;
        let changed_ms = listed.seen.value.changed_ms;
        jobs.entry(listed.seen.value.work.job().clone()).or_default().note(&listed);
        if let Some(lease) = &listed.lease {
            grants.insert(lease.record.value.grant.nonce);
        }
        match listed.condition {
            Condition::Running | Condition::Lost => running.push(changed_ms, listed),
            Condition::Quarantined | Condition::InDoubt => needs_person.push(changed_ms, listed),
            Condition::Failed => failed.push(changed_ms, listed),
            Condition::Open | Condition::Done | Condition::Missed => {}
        }
    })
    .await?;
    let mut from = None;
    loop {
        let (leases, next) = engine.leases(from.as_ref()).await?;
        for (resource, seen) in leases {
            let since_ms =
                seen.record.value.hold.as_ref().filter(|hold| !hold.resting).map(|hold| hold.since_ms);
            if let Some(since_ms) =
                since_ms.filter(|_| seen.is_held() && !grants.contains(&seen.record.value.grant.nonce))
            {
                held.push(since_ms, (resource, seen));
            }
        }
        from = next;
        if from.is_none() {
            break;
        }
    }
    let suppressed = engine.suppressed_in_all().await?;
    let mut drifted = Newest::new(SHOWN);
    for Runs { last, successes } in jobs.into_values() {
        // what has succeeded since needs no word
        if let Some((work, last)) =
            last.filter(|(_, last)| !last.ending.is_success() && successes.drift(last).is_some())
        {
            drifted.push(last.started_ms, work);
        }
    }
    let broken = broken_lanes(engine).await?;
    let items = engine.count_items().await?;
    Ok(Status { counts, running, needs_person, failed, held, suppressed, drifted, broken, items, unreadable })
}

async fn broken_lanes(engine: &Engine) -> Result<BTreeMap<String, String>, Trouble> {
    let mut broken = BTreeMap::new();
    each_alarm(engine, &mut |_, alarm| {
        let all = alarm::broken(alarm).into_iter();
        broken.extend(all.map(|lane| (lane.lane.to_owned(), lane.why.to_owned())));
    })
    .await?;
    Ok(broken)
}

impl Status {
    fn count(&self, condition: Condition) -> u64 {
        self.counts.get(&condition).copied().unwrap_or(0)
    }

    /// How many there are of each state, and how many runs were suppressed.
    fn tally(&self) -> String {
        let counted = Condition::ALL
            .iter()
            .map(|condition| (self.count(*condition), condition.word().replace('_', " ")));
        let skipped = (self.suppressed.all(), "skipped".to_owned());
        let unreadable = (self.unreadable.count, "unreadable".to_owned());
        let parts: Vec<String> = counted
            .chain([skipped, unreadable])
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if parts.is_empty() { "nothing is on record".to_owned() } else { parts.join(", ") }
    }

    fn into_json(self) -> Value {
        let counts: BTreeMap<&str, u64> =
            Condition::ALL.iter().map(|condition| (condition.word(), self.count(*condition))).collect();
        let Suppressed { done, running, busy, last_ms } = self.suppressed;
        let list = |newest: Newest<Listed>| newest.into_vec().iter().map(as_json).collect::<Vec<_>>();
        let held: Vec<Value> = self.held.into_vec().iter().map(held_json).collect();
        json!({
            "kind": "status", "counts": counts,
            "suppressed": { "done": done, "running": running, "busy": busy, "last_ms": last_ms },
            "running": list(self.running), "needs_person": list(self.needs_person), "failed": list(self.failed),
            "held": held, "drifted": self.drifted.into_vec(), "broken_lanes": self.broken,
            "items": self.items, "unreadable": self.unreadable.count,
        })
    }

    fn tell(self, common: &Common, around: &Surroundings, now_ms: u64) {
        let voice = Voice::new(common);
        self.unreadable.say(voice);
        let tally = self.tally();
        let idle = self.running.count + self.held.count == 0;
        let well = self.needs_person.count == 0;
        // nothing is known of what cannot be read
        let known = self.unreadable.count == 0;
        let width = line_width(around);
        if !idle {
            tell_running(self.running, self.held, now_ms, width);
        }
        if !well {
            tell_needs_person(self.needs_person, width);
        }
        if self.failed.count > 0 {
            tell_failed(self.failed, width);
        }
        if self.drifted.count > 0 {
            tell_drifted(self.drifted);
        }
        if !self.broken.is_empty() {
            heading("Lanes that do not deliver");
            for (lane, why) in &self.broken {
                print(&format!(
                    "  {lane}: {}; try it with: semel doctor --notify {}",
                    clean(why),
                    shell_quote(lane)
                ));
            }
            print("");
        }
        if !self.items.is_empty() {
            tell_items(&self.items);
        }
        let head = match (idle, well) {
            _ if !known => "",
            (true, true) => "nothing is running, nothing needs you; ",
            (true, false) => "nothing is running; ",
            (false, true) => "nothing needs you; ",
            (false, false) => "",
        };
        print(&format!("{head}{tally}"));
    }
}

fn heading(text: &str) {
    print(&styled(Style::new().bold(), text));
}

fn tell_items(items: &BTreeMap<Name, BTreeMap<String, u64>>) {
    heading("Items");
    for (job, counts) in items.iter().take(SHOWN) {
        let parts: Vec<String> =
            counts.iter().map(|(state, count)| format!("{count} {}", state.replace('_', " "))).collect();
        print(&format!("  {job}: {}", parts.join(", ")));
    }
    more((items.len().saturating_sub(SHOWN)) as u64, "semel ls --job JOB");
    print("");
}

fn more(left_out: u64, how: &str) {
    if left_out > 0 {
        print(&format!("  and {left_out} more: {how}"));
    }
}

fn tell_running(running: Newest<Listed>, held: Newest<(Name, SeenLease)>, now_ms: u64, width: Option<usize>) {
    heading("Running now");
    let (more_running, more_held) = (running.left_out(), held.left_out());
    let columns = [
        whole("STATE"),
        flexible("WORK", 16),
        number("SINCE"),
        flexible("WHO", 12),
        flexible("TOKEN", 8),
        flexible("LEASE", 8),
    ];
    let mut table = Table::new(columns).indented(2);
    let plain = Style::new();
    let ago = |ms: u64| format!("{} ago", span(now_ms.saturating_sub(ms)));
    for listed in running.into_vec() {
        let entry = &listed.seen.value;
        let Some(last) = entry.last_attempt() else { continue };
        let lease = left_ms(&listed).map_or_else(|| "gone".to_owned(), |ms| format!("{} left", span(ms)));
        table.row([
            (listed.condition.word().to_owned(), style_of(listed.condition)),
            (entry.work.to_string(), plain),
            (ago(last.started_ms), plain),
            (last.owner.to_string(), plain),
            (token(entry), plain),
            (lease, plain),
        ]);
    }
    for (resource, seen) in held.into_vec() {
        let Some(hold) = &seen.record.value.hold else { continue };
        let lease = match seen.standing {
            _ if seen.owner_gone => "its holder is gone".to_owned(),
            Standing::Live { left_ms } => format!("{} left", span(left_ms)),
            Standing::Lapsed { .. } => "lapsed".to_owned(),
        };
        table.row([
            ("held".to_owned(), plain),
            (hold.what.clone(), plain),
            (ago(hold.since_ms), plain),
            (hold.owner.to_string(), plain),
            (format!("{} {resource}", seen.record.value.grant.token), plain),
            (lease, plain),
        ]);
    }
    table.print(width);
    more(more_running, "semel ls --state running");
    more(more_held, "semel lease show RESOURCE");
    print("");
}

fn tell_needs_person(needs: Newest<Listed>, width: Option<usize>) {
    heading("Needs a person");
    let left_out = needs.left_out();
    let needs = needs.into_vec();
    let mut table =
        Table::new([whole("STATE"), flexible("WORK", 16), whole("SINCE"), flexible("WHY", 16)]).indented(2);
    for listed in &needs {
        let (entry, plain) = (&listed.seen.value, Style::new());
        table.row([
            (listed.condition.word().to_owned(), style_of(listed.condition)),
            (entry.work.to_string(), plain),
            (when(entry.changed_ms), plain),
            (note(listed), plain),
        ]);
    }
    table.print(width);
    more(left_out, "semel ls --needs-me");
    // never cut: they are to be copied
    for listed in &needs {
        let work = shell_quote(&listed.seen.value.work.to_string());
        print(&format!("  semel resolve {work} --done|--not-done|--retry --because TEXT"));
    }
    print("");
}

fn tell_failed(failed: Newest<Listed>, width: Option<usize>) {
    heading("Failed last");
    let left_out = failed.left_out();
    let mut table = Table::new([flexible("WORK", 16), whole("WHEN"), flexible("HOW", 16)]).indented(2);
    for listed in failed.into_vec() {
        let (entry, plain) = (&listed.seen.value, Style::new());
        table.row([(entry.work.to_string(), plain), (when(entry.changed_ms), plain), (note(&listed), plain)]);
    }
    table.print(width);
    more(left_out, "semel ls --state failed");
    print("");
}

fn tell_drifted(drifted: Newest<String>) {
    heading("Definition changed since the last success");
    let left_out = drifted.left_out();
    for work in drifted.into_vec() {
        print(&format!("  semel why {}", shell_quote(&work)));
    }
    more(left_out, "semel history JOB");
    print("");
}

fn held_json((resource, seen): &(Name, SeenLease)) -> Value {
    let left_ms = match seen.standing {
        Standing::Live { left_ms } => Some(left_ms),
        Standing::Lapsed { .. } => None,
    };
    let lease = &seen.record.value;
    json!({ "resource": resource, "token": lease.grant.token, "hold": lease.hold, "left_ms": left_ms, "owner_gone": seen.owner_gone })
}
