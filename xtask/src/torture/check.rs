//! What is counted when a round is over: effects, outside of Semel, and the order of tokens.

use std::collections::BTreeMap;
use std::process::Command;

use super::contender::{Contender, ITEMS, lines};
use super::round::Round;

/// Count, and put what is wrong into the round's outcome.
pub(crate) fn check(round: &mut Round<'_>) {
    let counts = count(round);
    round.outcome.doubled += counts.iter().map(|times| times.saturating_sub(1)).sum::<u64>();
    round.outcome.lost += counts.iter().filter(|times| **times == 0).count() as u64;
    if !round.contender.is_control() {
        round.outcome.stale += stale(round);
        round.outcome.unreported += unreported(round);
    }
}

/// How often each effect is there; each is to be there once.
fn count(round: &mut Round<'_>) -> Vec<u64> {
    let effects = lines(&round.dir, "effects");
    let named = |names: Vec<String>| {
        let mut counts: BTreeMap<String, u64> = names.into_iter().map(|name| (name, 0)).collect();
        for line in &effects {
            *counts.entry(line.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
        }
        counts.into_values().collect()
    };
    match round.contender {
        Contender::Steps => named(["one", "two", "three"].map(str::to_owned).into()),
        Contender::Batch => named((0..ITEMS).map(|n| format!("item-{n}")).collect()),
        Contender::Write => {
            // a file is replaced, not added to: that it is the newest holder's is a question of tokens
            let target = lines(&round.dir, "target");
            vec![u64::from(target.len() == 1 && target[0].parse::<u64>().is_ok())]
        }
        Contender::Push | Contender::GitLoop => {
            let mut git = Command::new("git");
            git.args(["-C", "remote.git", "rev-list", "--count", "main"]);
            vec![asked(round, git).first().map_or(0, |commits| commits.saturating_sub(1))]
        }
        Contender::Sql => {
            let sql = rows(round, "SELECT count(*) FROM effects", "");
            vec![asked(round, sql).first().copied().unwrap_or(0)]
        }
        _ => vec![effects.len() as u64],
    }
}

/// Ask the database of the rows; `order` goes last.
fn rows(round: &Round<'_>, select: &str, order: &str) -> Command {
    match round.sink() {
        Some(sink) => {
            let mut psql = Command::new("psql");
            psql.arg(sink)
                .args(["-XAtq", "-c"])
                .arg(format!("{select} WHERE work = '{}' {order}", round.work));
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

/// The numbers that it answers, one a line. A server that is just being killed is asked again.
fn asked(round: &mut Round<'_>, mut command: Command) -> Vec<u64> {
    round.furnished(&mut command);
    let mut said = Err("not asked".to_owned());
    for _ in 0..100 {
        said = match command.stdout(std::process::Stdio::piped()).output() {
            Ok(output) if output.status.success() => Ok(output.stdout),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(why) => Err(why.to_string()),
        };
        match &said {
            Ok(_) => break,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(100)),
        }
    }
    match said {
        Ok(said) => {
            String::from_utf8_lossy(&said).lines().filter_map(|line| line.trim().parse().ok()).collect()
        }
        Err(why) => {
            round.note(format!("the effects could not be counted: {why}"));
            round.outcome.stuck = true;
            Vec::new()
        }
    }
}

/// The first number of each line.
fn tokens(round: &Round<'_>, name: &str) -> Vec<u64> {
    let lines = lines(&round.dir, name);
    lines.iter().filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
}

/// How many tokens went back.
fn stale(round: &mut Round<'_>) -> u64 {
    let back = |tokens: &[u64]| tokens.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
    let same = |tokens: &[u64]| tokens.windows(2).filter(|pair| pair[1] == pair[0]).count() as u64;
    let mut stale = 0;
    // a holder that was stopped may still say that it begins; what it then does is refused
    if !round.plan.strikes.iter().any(|strike| strike.fault.is_stop()) {
        let starts = tokens(round, "starts");
        stale += match round.contender {
            // each runner has a lease of its own
            Contender::Batch if round.plan.shares => 0,
            Contender::Batch => back(&starts),
            _ => back(&starts) + same(&starts),
        };
    }
    match round.contender {
        Contender::Write => {
            let seen = round.seen.clone();
            let accepted = tokens(round, "accepted").into_iter().max();
            stale += back(&seen) + u64::from(seen.last().copied() < accepted);
        }
        Contender::Sql => {
            let sql = rows(round, "SELECT token FROM log", "ORDER BY seq");
            let log = asked(round, sql);
            stale += back(&log);
        }
        _ => {}
    }
    if stale > 0 {
        round.note("tokens went back");
    }
    stale
}

/// Attempts that began again, though nobody had said that the one before did not happen.
fn unreported(round: &Round<'_>) -> u64 {
    let begun = match round.contender {
        Contender::Hold => lines(&round.dir, "starts").len(),
        Contender::Steps => lines(&round.dir, "begun").iter().filter(|name| *name == "three").count(),
        _ => return 0,
    };
    (begun as u64).saturating_sub(1 + round.not_done)
}
