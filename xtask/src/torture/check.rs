//! What is counted when a round is over: effects, outside of Semel, and the order of tokens. And what each firing was
//! answered is held against the effects that were there when it was.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::answer::Answer;
use super::arena::isolated;
use super::contender::{Contender, ITEMS, lines};

/// How often a server that is just being killed is asked again.
const ASKED: u32 = 100;

/// What a person said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdicts {
    /// "It did not happen", by how many attempts had begun: asked about one attempt twice, it is one verdict.
    pub(crate) not_done: BTreeSet<u64>,
    /// "It happened."
    pub(crate) done: u64,
}

/// All that is looked at: what a round left outside, and what it was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) contender: Contender,
    pub(crate) dir: &'a Path,
    pub(crate) work: &'a str,
    /// The PostgreSQL in which the rows are.
    pub(crate) sink: Option<&'a str>,
    /// A holder was stopped: it may still say that it begins; what it then does is refused.
    pub(crate) has_stops: bool,
    /// Several runners of a batch, each with a lease of its own.
    pub(crate) shares: bool,
    /// What the target said, each time that it was looked at.
    pub(crate) seen: &'a [u64],
    pub(crate) verdicts: &'a Verdicts,
    /// Somebody was answered that the work is done.
    pub(crate) is_done: bool,
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) doubled: u64,
    pub(crate) lost: u64,
    pub(crate) unreported: u64,
    pub(crate) stale: u64,
    pub(crate) notes: Vec<String>,
}

/// Count. An error: the effects cannot be counted.
pub(crate) fn check(of: &Evidence<'_>) -> Result<Found, String> {
    let counts = count(of)?;
    let mut found = Found {
        doubled: counts.iter().map(|times| times.saturating_sub(1)).sum(),
        lost: counts.iter().filter(|times| **times == 0).count() as u64,
        ..Found::default()
    };
    found.stale = back_at_target(of)?;
    if !of.contender.is_control() {
        found.stale += back_at_start(of);
        found.unreported = unreported(of);
    }
    if found.stale > 0 {
        found.notes.push("tokens went back".to_owned());
    }
    Ok(found)
}

/// Of what a firing answers "done", how many effects are not there now.
pub(crate) fn missing(of: &Evidence<'_>, answer: &Answer) -> Result<u64, String> {
    if of.contender == Contender::Batch {
        let effects = lines(of.dir, "effects");
        let is_there = |item: &str| effects.iter().any(|line| line.split(' ').next() == Some(item));
        return Ok(answer.items.iter().filter(|item| !is_there(item)).count() as u64);
    }
    match answer.says_done() {
        true => Ok(count(of)?.iter().filter(|times| **times == 0).count() as u64),
        false => Ok(0),
    }
}

/// How often each effect is there; each is to be there once.
fn count(of: &Evidence<'_>) -> Result<Vec<u64>, String> {
    let effects = lines(of.dir, "effects");
    let named = |names: Vec<String>| {
        let mut counts: BTreeMap<String, u64> = names.into_iter().map(|name| (name, 0)).collect();
        for line in &effects {
            *counts.entry(line.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
        }
        counts.into_values().collect()
    };
    Ok(match of.contender {
        Contender::Steps => named(["one", "two", "three"].map(str::to_owned).into()),
        Contender::Batch => named((0..ITEMS).map(|n| format!("item-{n}")).collect()),
        Contender::Write | Contender::PlainWrite => {
            // a file is replaced, not added to: that it is the newest holder's is a question of tokens
            let target = lines(of.dir, "target");
            vec![u64::from(target.len() == 1 && target[0].parse::<u64>().is_ok())]
        }
        Contender::Push | Contender::GitLoop => {
            let commits = asked(of, git(&["rev-list", "--count", "main"]))?;
            vec![numbers(&commits).first().map_or(0, |commits| commits.saturating_sub(1))]
        }
        Contender::Sql | Contender::PlainSql => {
            let many = asked(of, rows(of, "SELECT count(*) FROM effects", ""))?;
            vec![numbers(&many).first().copied().unwrap_or(0)]
        }
        _ => vec![effects.len() as u64],
    })
}

fn git(words: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args(["-C", "remote.git"]).args(words);
    git
}

/// Ask the database of the rows; `order` goes last.
fn rows(of: &Evidence<'_>, select: &str, order: &str) -> Command {
    match of.sink {
        Some(sink) => {
            let mut psql = Command::new("psql");
            psql.arg(sink).args(["-XAtq", "-c"]).arg(format!("{select} WHERE work = '{}' {order}", of.work));
            psql
        }
        None => {
            let mut sqlite = Command::new("sqlite3");
            sqlite
                .args(["-cmd", ".timeout 30000", "user.db"])
                .arg(format!("{select} {order}").replace("seq", "rowid"));
            sqlite
        }
    }
}

/// The lines that it answers. A server that is just being killed is asked again.
fn asked(of: &Evidence<'_>, mut command: Command) -> Result<Vec<String>, String> {
    isolated(&mut command).current_dir(of.dir).stdin(Stdio::null());
    let mut why = String::new();
    for _ in 0..if of.sink.is_some() { ASKED } else { 1 } {
        match command.output() {
            Ok(output) if output.status.success() => {
                return Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect());
            }
            Ok(output) => why = String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(cannot) => why = cannot.to_string(),
        }
        if of.sink.is_some() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    Err(format!("the effects cannot be counted: {why}"))
}

fn numbers(lines: &[String]) -> Vec<u64> {
    lines.iter().filter_map(|line| line.trim().parse().ok()).collect()
}

/// The first number of each line of a file.
fn tokens(of: &Evidence<'_>, name: &str) -> Vec<u64> {
    lines(of.dir, name).iter().filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
}

fn back(tokens: &[u64]) -> u64 {
    tokens.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64
}

/// How many attempts began with a token that is not above the one before.
fn back_at_start(of: &Evidence<'_>) -> u64 {
    if of.has_stops {
        return 0;
    }
    let starts = tokens(of, "starts");
    let same = starts.windows(2).filter(|pair| pair[1] == pair[0]).count() as u64;
    match of.contender {
        Contender::Batch if of.shares => 0,
        Contender::Batch => back(&starts),
        _ => back(&starts) + same,
    }
}

/// How often the target took an older token after a newer one.
fn back_at_target(of: &Evidence<'_>) -> Result<u64, String> {
    Ok(match of.contender {
        Contender::Write | Contender::PlainWrite => {
            let accepted = tokens(of, "accepted").into_iter().max();
            back(of.seen) + u64::from(of.seen.last().copied() < accepted)
        }
        Contender::Sql | Contender::PlainSql => {
            back(&numbers(&asked(of, rows(of, "SELECT token FROM log", "ORDER BY seq"))?))
        }
        Contender::Push => {
            let words = ["log", "--topo-order", "--reverse", "--format=%B", "--glob=refs/fence/*"];
            let chain = asked(of, git(&words))?;
            let chain: Vec<u64> =
                chain.iter().filter_map(|line| line.strip_prefix("Token: ")?.parse().ok()).collect();
            // what was pushed went through the fence
            let is_bare = chain.is_empty() && !lines(of.dir, "accepted").is_empty();
            back(&chain) + u64::from(is_bare)
        }
        _ => 0,
    })
}

/// How often the attempt that is held, if it is lost, has begun. None: there is no such thing.
pub(crate) fn begun(contender: Contender, dir: &Path) -> Option<u64> {
    match contender {
        Contender::Hold => Some(lines(dir, "starts").len() as u64),
        Contender::Steps => Some(lines(dir, "begun").iter().filter(|name| *name == "three").count() as u64),
        _ => None,
    }
}

/// Attempts that began again, though nobody had said that the one before did not happen; and one that was taken for
/// done, though its command never came to its end and nobody had said that it happened.
fn unreported(of: &Evidence<'_>) -> u64 {
    let Some(begun) = begun(of.contender, of.dir) else { return 0 };
    let repeated = begun.saturating_sub(1 + of.verdicts.not_done.len() as u64);
    let ended = lines(of.dir, "ended");
    let has_ended = match of.contender {
        Contender::Steps => ended.iter().any(|name| name == "three"),
        _ => !ended.is_empty(),
    };
    repeated + u64::from(of.is_done && !has_ended && of.verdicts.done == 0)
}
