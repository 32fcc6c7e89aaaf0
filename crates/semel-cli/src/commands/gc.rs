//! `semel gc`: remove what is past its time, and tidy the store.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use semel::engine::Engine;
use semel::engine::sweep::Swept;
use semel::store::Address;
use semel::store::sqlite::Sqlite;
use semel_core::token::Nonce;
use serde_json::json;

use crate::args::{Common, GcArgs};
use crate::neighbours::RUN_VAR;
use crate::out::{Ticker, Voice, print, print_json};
use crate::plan::{self, Surroundings};
use crate::runtime;
use crate::table::clean;
use crate::task::{ITEM_SUFFIX, PLAN_SUFFIX, RESULT_SUFFIX};
use crate::trouble::Trouble;

/// A run's directory without a run is left alone for so long.
const SCRATCH_AGE: Duration = Duration::from_secs(24 * 3600);
/// The most of them that one gc looks at.
const SCRATCH_MOST: usize = 10_000;

pub(crate) fn run(common: &Common, args: &GcArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let address = plan::address(common, around)?;
    if let Some(path) = address.path().filter(|path| !path.exists()) {
        Voice::new(common).say(&format!("there is no ledger at {} yet: nothing to tidy", path.display()));
        return Ok(0);
    }
    let runtime = runtime()?;
    if let (Some(to), Address::Sqlite(path)) = (&args.backup, &address) {
        runtime.block_on(Sqlite::open_in_place(path)?.backup(to))?;
    } else if args.backup.is_some() {
        return Err(Trouble::config(
            "--backup is for sqlite: back this store up with its own means, or copy it with: semel store copy",
        ));
    }
    let engine = plan::engine_on(plan::open(common, around)?);
    runtime.block_on(tidy(common, args, around, &engine, &address))
}

async fn tidy(
    common: &Common,
    args: &GcArgs,
    around: &Surroundings,
    engine: &Engine,
    address: &Address,
) -> Result<u8, Trouble> {
    let mut progress = Ticker::new(Voice::new(common));
    let mut told = |swept: &Swept| {
        let removed = swept.notes + swept.attempts + swept.forgotten + swept.outputs;
        progress.tell(|| format!("{} records, {removed} past their time … ", swept.looked_at));
    };
    let swept = engine.sweep(args.dry_run, &mut told).await;
    progress.end();
    let swept = swept?;
    let runs = plan::private_dir(common, around)?.join("run");
    let stale = stale_scratch(engine, &runs).await?;
    let mut scratch = stale.len();
    if !args.dry_run {
        semel_supervise::remove_stale_leaves();
        scratch = stale.iter().filter(|path| remove(path)).count();
        engine.store.tidy().await?;
    }
    let bytes = match address {
        Address::Sqlite(path) => Some(Sqlite::open_in_place(path)?.facts().await?),
        _ => None,
    };
    let bytes = bytes.map(|facts| (facts.bytes, facts.wal_bytes)).unzip();
    if common.json {
        print_json(json!({
            "kind": "gc", "dry_run": args.dry_run, "looked_at": swept.looked_at, "notes": swept.notes,
            "attempts": swept.attempts, "forgotten": swept.forgotten, "traces": swept.traces, "outputs": swept.outputs, "result_files": scratch,
            "unreadable": swept.unreadable, "backup": args.backup, "bytes": bytes.0, "wal_bytes": bytes.1,
        }));
    } else {
        tell(args, &swept, scratch);
    }
    Ok(0)
}

fn tell(args: &GcArgs, swept: &Swept, scratch: usize) {
    let Swept { looked_at, notes, attempts, forgotten, traces, outputs, unreadable } = *swept;
    if let Some(to) = &args.backup {
        print(&format!("backed up to {}", clean(&to.to_string_lossy())));
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    let scratch = scratch as u64;
    let parts: Vec<String> = [
        (notes, "note of the journal", "notes of the journal"),
        (attempts, "old attempt", "old attempts"),
        (outputs, "piece of a step's output", "pieces of steps' outputs"),
        (forgotten, "done entry past its --remember", "done entries past their --remember"),
        (traces, "trace of a forgotten entry", "traces of forgotten entries"),
        (scratch, "left-over file of a run", "left-over files of runs"),
    ]
    .iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
    .collect();
    match parts.is_empty() {
        true => print(&format!("{looked_at} records: nothing is past its time")),
        false => print(&format!("{looked_at} records: {verb} {}", parts.join(", "))),
    }
    if forgotten > 0 {
        let may = if args.dry_run { "would be" } else { "is" };
        print(&format!("what was done there {may} no longer known: its next run does it again"));
    }
    if unreadable > 0 {
        print(&format!(
            "left alone because they cannot be read: {unreadable} entries; look with: semel doctor"
        ));
    }
}

/// A command may have made a directory of it.
fn remove(path: &Path) -> bool {
    std::fs::remove_file(path).is_ok() || std::fs::remove_dir_all(path).is_ok()
}

/// The private files of runs that are gone, by every witness: old, no live lease carries their name, and no process of
/// this machine says that it belongs to them (a run may use another store).
async fn stale_scratch(engine: &Engine, runs: &Path) -> Result<Vec<PathBuf>, Trouble> {
    let Ok(listed) = std::fs::read_dir(runs) else { return Ok(Vec::new()) };
    let now = UNIX_EPOCH + Duration::from_millis(engine.clock.wall_ms());
    let is_old = |entry: &std::fs::DirEntry| {
        let age = entry.metadata().ok().and_then(|found| now.duration_since(found.modified().ok()?).ok());
        age.is_some_and(|age| age > SCRATCH_AGE)
    };
    let named = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_str()?;
        let of_run = [RESULT_SUFFIX, PLAN_SUFFIX, ITEM_SUFFIX, ".sock"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix));
        // those of an item have its key behind the nonce
        let nonce: Nonce = of_run?.split('-').next()?.parse().ok()?;
        is_old(&entry).then(|| (nonce, entry.path()))
    };
    let mut stale: Vec<(Nonce, PathBuf)> =
        listed.filter_map(|entry| named(entry.ok()?)).take(SCRATCH_MOST).collect();
    if stale.is_empty() {
        return Ok(Vec::new());
    }
    let mut alive = nonces_of_processes();
    let mut from = None;
    loop {
        let (leases, next) = engine.leases(from.as_ref()).await?;
        let held = leases.iter().filter(|(_, seen)| seen.is_held() && !seen.owner_gone);
        alive.extend(held.map(|(_, seen)| seen.record.value.grant.nonce));
        from = next;
        if from.is_none() {
            break;
        }
    }
    stale.retain(|(nonce, _)| !alive.contains(nonce));
    Ok(stale.into_iter().map(|(_, path)| path).collect())
}

/// The runs that processes of this machine say they belong to, as far as we may see.
fn nonces_of_processes() -> BTreeSet<Nonce> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return BTreeSet::new() };
    let marker = format!("{RUN_VAR}=");
    let nonce = |environ: Vec<u8>| {
        let mut vars = environ.split(|byte| *byte == 0).filter_map(|var| std::str::from_utf8(var).ok());
        vars.find_map(|var| var.strip_prefix(&marker)?.get(..32)?.parse::<Nonce>().ok())
    };
    let is_process = |entry: &std::fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok())
    };
    let processes = processes.filter_map(Result::ok).filter(is_process);
    processes.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok().and_then(nonce)).collect()
}
