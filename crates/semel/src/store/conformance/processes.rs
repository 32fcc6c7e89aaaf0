//! Many processes at once, and processes that are killed.
//!
//! The helper program reads orders from its stdin, one a line, and answers each with a line; so a process that has
//! answered is at a known point, and can be killed there.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::claims::{self, Claim};
use super::{Bench, Helper, LONG, Verdict, said};
use crate::clock::boottime;

const PROCESSES: usize = 100;
/// So many rounds are raced, or as many as fit into the patience where the machine or the store is slow; never fewer than
/// the least. `SEMEL_ROUNDS` asks for a number of them, however long it takes.
const ROUNDS: usize = 100;
const LEAST: usize = 5;
const PATIENCE: Duration = Duration::from_secs(15);

/// A running helper. It is killed when dropped.
struct Running {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Running {
    #[allow(clippy::disallowed_methods)] // these cases are about processes
    fn start(helper: &Helper) -> Result<Running, String> {
        let started = Command::new(&helper.program)
            .arg(&helper.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|why| format!("cannot start {}: {why}", helper.program.display()));
        let mut child = started?;
        let (orders, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(orders), Some(answers)) = (orders, answers) else {
            return Err("no pipe to the helper".to_owned());
        };
        Ok(Running { child, orders, answers: BufReader::new(answers) })
    }

    fn order(&mut self, order: &str) -> Result<(), String> {
        writeln!(self.orders, "{order}").map_err(|why| format!("the helper is gone: {why}"))
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err("the helper ended without an answer".to_owned()),
            Ok(_) if line.starts_with("error") => Err(format!("the helper says: {}", line.trim_end())),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(why) => Err(format!("the helper is gone: {why}")),
        }
    }

    fn ask(&mut self, order: &str) -> Result<String, String> {
        self.order(order)?;
        self.answer()
    }

    /// Kill -9, and wait until it is gone.
    fn kill(&mut self) -> Result<(), String> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // it may be gone already
        let _ = self.kill();
    }
}

/// Pipes block; the runtime must not.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(said)?
}

fn helper_of(bench: &Bench) -> Result<Helper, String> {
    bench.subject.helper().ok_or_else(|| "no helper".to_owned())
}

/// The tokens that winners wrote down outside the store.
fn ledger(path: &Path) -> Result<Vec<u64>, String> {
    let text = std::fs::read_to_string(path).map_err(said)?;
    text.lines().map(|line| line.parse().map_err(|_| format!("the ledger holds {line:?}"))).collect()
}

pub(super) async fn one_of_a_hundred_processes_wins(bench: Bench) -> Verdict {
    let (helper, key) = (helper_of(&bench)?, bench.key("a"));
    let nonce = claims::nonce()?;
    let path = std::env::temp_dir().join(format!("semel-conformance-{nonce}"));
    let rounds = {
        let path = path.clone();
        aside(move || race(&helper, key.as_str(), &path)).await
    };
    let tokens = ledger(&path);
    // whatever came of it, the file goes
    let _ = std::fs::remove_file(&path);
    let rounds = rounds?;
    let tokens = tokens?;
    check!(tokens.len() == rounds, "{} winners in {rounds} rounds: {tokens:?}", tokens.len());
    check!(tokens.is_sorted_by(|a, b| a < b), "tokens do not grow: {tokens:?}");
    Ok(())
}

/// How many rounds were asked for.
#[allow(clippy::disallowed_methods)] // the suite's own: the long run asks for more
fn asked_for() -> Option<usize> {
    std::env::var("SEMEL_ROUNDS").ok()?.parse().ok()
}

/// Answers how many rounds were raced.
fn race(helper: &Helper, key: &str, ledger: &Path) -> Result<usize, String> {
    let (asked, begun) = (asked_for(), boottime());
    let goes_on = |round: usize| match asked {
        Some(asked) => round < asked,
        None => round < LEAST || (round < ROUNDS && boottime().saturating_sub(begun) < PATIENCE),
    };
    let mut crowd = (0..PROCESSES).map(|_| Running::start(helper)).collect::<Result<Vec<_>, _>>()?;
    for one in &mut crowd {
        one.ask("open")?;
    }
    let mut round = 0;
    while goes_on(round) {
        let order = format!("claim {key} 600000 {}", ledger.display());
        for one in &mut crowd {
            one.order(&order)?;
        }
        let answers = crowd.iter_mut().map(Running::answer).collect::<Result<Vec<_>, _>>()?;
        let winners: Vec<usize> = (0..PROCESSES).filter(|i| answers[*i].starts_with("won ")).collect();
        check!(winners.len() == 1, "round {round}: {} of {PROCESSES} processes won", winners.len());
        let token = answers[winners[0]].trim_start_matches("won ").to_owned();
        crowd[winners[0]].ask(&format!("release {key} {token}"))?;
        round += 1;
    }
    Ok(round)
}

/// What the helper does, call by call, and what must stand there once it has answered.
const CALLS: [(&str, Option<(&str, &str)>); 6] = [
    ("open", None),
    ("load {}/a", None),
    ("put {}/a first durable", Some(("a", "first"))),
    ("put {}/b second relaxed", Some(("b", "second"))),
    ("claim {}/lease 600000", None),
    ("put {}/a third durable", Some(("a", "third"))),
];

pub(super) async fn what_was_answered_survives_a_kill_between_calls(bench: Bench) -> Verdict {
    for calls in 1..=CALLS.len() {
        let bench = Bench { room: format!("{}/{calls}", bench.room), ..bench.clone() };
        let (helper, room) = (helper_of(&bench)?, bench.room.clone());
        let answers = aside(move || {
            let mut one = Running::start(&helper)?;
            let orders = CALLS[..calls].iter().map(|(order, _)| order.replace("{}", &room));
            let answers = orders.map(|order| one.ask(&order)).collect::<Result<Vec<_>, _>>()?;
            one.kill().map(|()| answers)
        });
        let answers = answers.await?;
        let bench = bench.reopened().await?;
        for name in ["a", "b"] {
            let mut answered = CALLS[..calls].iter().filter_map(|(_, stands)| *stands);
            let wanted = answered.rfind(|(key, _)| *key == name).map(|(_, value)| value);
            let found = bench.value(name).await?;
            check!(
                found.as_deref() == wanted,
                "killed after {calls} calls, {name} is {found:?}, not {wanted:?}"
            );
        }
        // the dead process still holds its lease, until the store's clock says otherwise
        let claimed = claims::claim(&*bench.store, &bench.key("lease"), LONG).await?;
        let held = answers.iter().any(|answer| answer.starts_with("won"));
        check!(
            matches!(claimed, Claim::Lost) == held,
            "killed after {calls} calls, the lease is {claimed:?}"
        );
    }
    Ok(())
}

pub(super) async fn what_was_answered_survives_a_kill_in_the_middle(bench: Bench) -> Verdict {
    for kill in 0..8u64 {
        let bench = Bench { room: format!("{}/{kill}", bench.room), ..bench.clone() };
        let (helper, room) = (helper_of(&bench)?, bench.room.clone());
        // after so many answers, and then at whatever point of the next write it happens to be
        let wait_us = getrandom::u64().map_err(said)? % 700;
        let answered = aside(move || {
            let mut one = Running::start(&helper)?;
            one.ask("open")?;
            one.order(&format!("stream {room}"))?;
            for _ in 0..5 + kill {
                one.answer()?;
            }
            std::thread::sleep(std::time::Duration::from_micros(wait_us));
            one.kill()?;
            // what it said before it died counts as well
            let mut answered = 5 + kill;
            while one.answer().is_ok() {
                answered += 1;
            }
            Ok(answered)
        });
        let answered = answered.await?;
        let bench = bench.reopened().await?;
        for i in 0..answered {
            let found = bench.value(&i.to_string()).await?;
            check!(found == Some(i.to_string()), "write {i} of {answered} was answered and is {found:?}");
        }
        let after = bench.load(&(answered + 1).to_string()).await?;
        check!(after.is_none(), "a write stands there that was never begun");
        bench.create("after", "usable", None).await?;
    }
    Ok(())
}
