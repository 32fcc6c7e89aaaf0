//! Where the rounds are played: a scratch ledger, the command, and what is counted.

#![allow(clippy::disallowed_methods)] // it plays the outside world: schedulers, crashes, a stopwatch

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use semel::clock::boottime;
use semel::store::sqlite::Sqlite;

use super::actor::Actor;
use super::boundary::Boundary;
use super::report::{Found, Verdict};
use super::{ChaosArgs, with_short_ttl};
use crate::args::{OnLostArg, PolicyArgs};
use crate::plan::{self, Surroundings};
use crate::scratch::Scratch;
use crate::trouble::Trouble;
use crate::{exit, interrupt, runtime};

/// Notes the start, gives the user's own state directory back, and becomes the command.
const START: &str = r#"echo x >> "$0"
if [ -n "$1" ]; then XDG_STATE_HOME=$1; export XDG_STATE_HOME; else unset XDG_STATE_HOME; fi
shift; exec "$@""#;

/// How often a run that fails by itself is fired again after a crash.
const FAILURES: u32 = 2;
const PAUSE: Duration = Duration::from_millis(2);
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Who has the ledger's lock for so long, and runs, gives it back.
const LOCKED: Duration = Duration::from_millis(50);
/// How long a round may take at least.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Stage<'a> {
    args: &'a ChaosArgs,
    around: &'a Surroundings,
    scratch: Scratch,
    round: u32,
    started: u32,
    /// How often the command had been started when the last process was.
    seen: usize,
    unit: i64,
    took: Duration,
    /// Is there a comparison?
    plain: bool,
}

/// How a run came out for a scheduler.
enum Settled {
    Finished,
    Person,
    Failed,
}

impl<'a> Stage<'a> {
    pub(super) fn new(args: &'a ChaosArgs, around: &'a Surroundings) -> io::Result<Stage<'a>> {
        let scratch = Scratch::new("chaos")?;
        // no file of the user's says anything about these runs
        fs::write(scratch.path().join("semel.toml"), "")?;
        fs::write(scratch.path().join("starts"), "")?;
        let plain = !args.no_plain;
        Ok(Stage {
            args,
            around,
            scratch,
            round: 0,
            started: 0,
            seen: 0,
            unit: 1,
            took: Duration::ZERO,
            plain,
        })
    }

    pub(super) fn found(&self) -> Found {
        let took_ms = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        Found { unit: self.unit, took_ms, starts: self.starts() }
    }

    /// So many thousandths into the command.
    pub(super) fn moment(&self, thousandths: u64) -> Duration {
        self.took.mul_f64(thousandths as f64 / 1000.0)
    }

    /// Undisturbed, with Semel and without it: what one run leaves, and how long it takes. Answers why there is no
    /// comparison, if there is none.
    pub(super) fn rehearse(&mut self) -> Result<Option<String>, Trouble> {
        let before = self.count(true)?;
        self.round += 1;
        let mut run = self.semel(None, &self.args.policy)?;
        self.until_started(&mut run)?;
        let begun = boottime();
        let code = self.wait(&mut run)?;
        self.took = boottime().saturating_sub(begun);
        if code != 0 {
            return Err(Trouble::config(format!(
                "undisturbed, the command ends with {code}: {}; it must succeed before a crash can tell anything",
                run.said()
            )));
        }
        drop(run);
        self.unit = self.count(false)? - before;
        if self.unit <= 0 {
            return Err(Trouble::config(format!(
                "undisturbed, the command moves the count by {}: --count must print a number that grows with each effect",
                self.unit
            )));
        }
        if !self.plain {
            return Ok(None);
        }
        let before = self.count(false)?;
        let mut run = self.command()?;
        let code = self.wait(&mut run)?;
        let unit = self.count(false)? - before;
        if code == 0 && unit > 0 {
            return Ok(None);
        }
        self.plain = false;
        Ok(Some(format!(
            "no comparison without Semel: there the command ends with {code} and moves the count by {unit}"
        )))
    }

    /// Did the undisturbed run leave any step in the ledger?
    pub(super) fn uses_steps(&self) -> Result<bool, Trouble> {
        let store = plan::open_at(&self.store(), self.around)?;
        let found = runtime()?.block_on(store.scan("step/", None, 1));
        let found = found.map_err(|why| Trouble::config(format!("the scratch store: {why}")))?;
        Ok(!found.is_empty())
    }

    fn store(&self) -> String {
        format!("sqlite:{}", self.scratch.path().join("ledger.db").display())
    }

    /// A crash, then fired again until it is settled.
    pub(super) fn with_semel(&mut self, boundary: Boundary, moment: Duration) -> Result<Verdict, Trouble> {
        self.round += 1;
        let before = self.count(false)?;
        let stall = boundary == Boundary::Stall;
        let policy = if stall { with_short_ttl(&self.args.policy) } else { self.args.policy.clone() };
        let mut first = self.semel(boundary.place(), &policy)?;
        let mut hit = match boundary {
            Boundary::DoubleFire => {
                let mut second = self.semel(None, &policy)?;
                // one of them met the other: else they came one after the other
                [self.wait(&mut first)?, self.wait(&mut second)?].contains(&exit::BUSY)
            }
            _ if boundary.place().is_some() => {
                self.wait(&mut first)?;
                first.was_killed().map_err(lost_sight)?
            }
            _ => self.until_moment(&mut first, moment)?,
        };
        match boundary {
            Boundary::AllKilled => first.kill_all(),
            Boundary::SemelKilled => first.kill().map_err(lost_sight)?,
            Boundary::CommandKilled => first.signal_command(libc::SIGKILL),
            Boundary::Stall if hit => hit = self.stop(&first)?,
            _ => {}
        }
        if matches!(boundary, Boundary::CommandKilled | Boundary::SemelKilled) {
            self.wait(&mut first)?;
        }
        let settled = self.settle(&policy)?;
        if stall {
            first.signal_all(libc::SIGCONT);
            self.wait(&mut first)?;
        }
        drop(first);
        let moved = self.count(false)? - before;
        Ok(match settled {
            _ if moved > self.unit => Verdict::Doubled,
            _ if !hit => Verdict::Missed,
            Settled::Person => Verdict::InDoubt,
            Settled::Failed => Verdict::Unfinished,
            Settled::Finished if moved < self.unit => Verdict::Lost,
            Settled::Finished => Verdict::Once,
        })
    }

    /// Stop all of it, outside of any write to the ledger: who is stopped inside one keeps SQLite's lock, and nobody could
    /// take over before it wakes. On a machine that is suspended, those who would take over are as well.
    /// False: its command ended before there was such a moment.
    fn stop(&self, actor: &Actor) -> Result<bool, Trouble> {
        let begun = boottime();
        loop {
            actor.signal_all(libc::SIGSTOP);
            while !actor.is_stopped() {
                self.check(begun)?;
                std::thread::sleep(PAUSE / 2);
            }
            if self.is_free()? {
                return Ok(actor.runs_its_command());
            }
            self.check(begun)?;
            actor.signal_all(libc::SIGCONT);
            std::thread::sleep(PAUSE);
        }
    }

    /// Does nobody hold a lock of the ledger? A checkpoint needs all of them.
    fn is_free(&self) -> Result<bool, Trouble> {
        let ledger = self.scratch.path().join("ledger.db");
        let Ok(ledger) = Sqlite::open_with_patience(&ledger, LOCKED) else { return Ok(false) };
        Ok(runtime()?.block_on(ledger.checkpoint()).is_ok())
    }

    /// The same crash where nobody remembers anything: the command is started again.
    pub(super) fn plain(&mut self, boundary: Boundary, moment: Duration) -> Result<Option<Verdict>, Trouble> {
        if !self.plain || boundary.is_semels_own() {
            return Ok(None);
        }
        self.round += 1;
        let before = self.count(false)?;
        let mut first = self.command()?;
        let hit = match boundary {
            Boundary::DoubleFire => true,
            Boundary::AfterCommand | Boundary::AfterOutcome => {
                self.wait(&mut first)?;
                true
            }
            _ => self.until_moment(&mut first, moment)?,
        };
        match boundary {
            Boundary::AllKilled | Boundary::CommandKilled => first.kill_all(),
            Boundary::Stall => first.signal_all(libc::SIGSTOP),
            _ => {}
        }
        let mut second = self.command()?;
        let code = self.wait(&mut second)?;
        if boundary == Boundary::Stall {
            first.signal_all(libc::SIGCONT);
        }
        self.wait(&mut first)?;
        let moved = self.count(false)? - before;
        Ok(Some(match () {
            () if !hit => Verdict::Missed,
            () if moved > self.unit => Verdict::Doubled,
            () if code != 0 => Verdict::Unfinished,
            () if moved < self.unit => Verdict::Lost,
            () => Verdict::Once,
        }))
    }

    /// Fire it again, as a scheduler would, until there is nothing left to do for one.
    fn settle(&mut self, policy: &PolicyArgs) -> Result<Settled, Trouble> {
        let begun = boottime();
        let mut failures = 0;
        loop {
            let mut run = self.semel(None, policy)?;
            match self.wait(&mut run)? {
                0 => return Ok(Settled::Finished),
                exit::PERSON => return Ok(Settled::Person),
                exit::BUSY => {
                    self.check(begun)?;
                    std::thread::sleep(BUSY_PAUSE);
                }
                exit::CONFIG | exit::STORE | exit::INPUT => {
                    return Err(Trouble::config(format!("a run could not begin: {}", run.said())));
                }
                _ if failures == FAILURES => return Ok(Settled::Failed),
                _ => failures += 1,
            }
        }
    }

    /// What `--count` prints; without it the starts of the command. `first`: it may find nothing to count yet.
    fn count(&self, first: bool) -> Result<i64, Trouble> {
        let Some(count) = &self.args.count else {
            return Ok(i64::try_from(self.starts()).unwrap_or(i64::MAX));
        };
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(count).stdin(Stdio::null()).env("CHAOS_ROUND", self.round.to_string());
        let wrong = |why: String| Trouble::config(format!("--count {}: {why}", count.to_string_lossy()));
        let output = command.output().map_err(|why| wrong(why.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            // `wc -l < out` before there is such a file
            if first && text.trim().is_empty() {
                return Ok(0);
            }
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(wrong(format!("it ended with {}: {said}", code(output.status))));
        }
        let word = text.split_whitespace().next().unwrap_or_default();
        word.parse().map_err(|_| wrong(format!("it printed {}, which is no number", plan::quoted(word))))
    }

    fn starts(&self) -> usize {
        let noted = fs::metadata(self.scratch.path().join("starts")).map_or(0, |file| file.len());
        usize::try_from(noted / 2).unwrap_or(usize::MAX)
    }

    /// `semel run` of this round, killed at a place of its own if one is named.
    fn semel(&mut self, place: Option<&str>, policy: &PolicyArgs) -> Result<Actor, Trouble> {
        let dir = self.scratch.path();
        let me = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("semel"));
        let mut command = Command::new(me);
        command.args(["run", "--store", &self.store(), "--config"]);
        command.arg(dir.join("semel.toml")).args(["--job", "chaos", "--if-busy", "fail"]);
        command.args(["--with", &format!("round={}", self.round)]).args(flags(policy));
        if let Some(place) = place {
            command.args(["--crash-at", place]);
        }
        command.args(["--", "/bin/sh"]).args(self.words());
        self.dress(&mut command);
        command.env("XDG_STATE_HOME", dir.join("state"));
        self.start(&mut command)
    }

    /// The command without Semel. Nobody remembers a key, so each start has another.
    fn command(&mut self) -> Result<Actor, Trouble> {
        let mut command = Command::new("/bin/sh");
        command.args(self.words());
        self.dress(&mut command);
        let key = getrandom::u64().unwrap_or(u64::from(self.started));
        self.start(command.env("SEMEL_KEY", format!("plain-{key:016x}")))
    }

    /// What a shell is told so that it notes the start and becomes the command.
    fn words(&self) -> impl Iterator<Item = OsString> {
        let starts = self.scratch.path().join("starts").into_os_string();
        let state = self.around.get("XDG_STATE_HOME").unwrap_or_default().to_owned();
        let begin = ["-c", START].map(OsString::from);
        begin.into_iter().chain([starts, state]).chain(self.args.command.iter().cloned())
    }

    /// The user's environment, without anything that a Semel around this one set.
    fn dress(&self, command: &mut Command) {
        let inherited = self.around.all().iter().filter(|(name, _)| !name.as_bytes().starts_with(b"SEMEL_"));
        command.env_clear().envs(inherited.map(|(name, value)| (name, value)));
        command.env("CHAOS_ROUND", self.round.to_string());
    }

    fn start(&mut self, command: &mut Command) -> Result<Actor, Trouble> {
        self.started += 1;
        self.seen = self.starts();
        let err = self.scratch.path().join(format!("err.{}", self.started));
        Actor::start(command, err)
            .map_err(|why| Trouble::with_code(126, format!("it cannot be started: {why}")))
    }

    /// Its exit code, in a shell's way.
    fn wait(&self, actor: &mut Actor) -> Result<u8, Trouble> {
        let begun = boottime();
        loop {
            if let Some(status) = actor.ended().map_err(lost_sight)? {
                return Ok(code(status));
            }
            self.check(begun)?;
            std::thread::sleep(PAUSE);
        }
    }

    /// The command of the process that was started last has started, or all of it has ended.
    fn until_started(&self, actor: &mut Actor) -> Result<(), Trouble> {
        let begun = boottime();
        loop {
            if self.starts() > self.seen || actor.ended().map_err(lost_sight)?.is_some() {
                return Ok(());
            }
            self.check(begun)?;
            std::thread::sleep(PAUSE / 2);
        }
    }

    /// So far into the command; false if it has ended by then.
    fn until_moment(&self, actor: &mut Actor, moment: Duration) -> Result<bool, Trouble> {
        self.until_started(actor)?;
        let begun = boottime();
        while boottime().saturating_sub(begun) < moment {
            self.check(begun)?;
            std::thread::sleep(PAUSE / 2);
        }
        Ok(actor.runs_its_command())
    }

    /// Somebody wants it to end, or it takes too long.
    fn check(&self, begun: Duration) -> Result<(), Trouble> {
        if let Some(signo) = interrupt::caught() {
            return Err(Trouble::with_code(
                exit::by_signal(signo),
                "interrupted; all that was started is ended",
            ));
        }
        let longest = PATIENCE + self.took * 20;
        // it is not known yet how long the command takes
        if self.took > Duration::ZERO && boottime().saturating_sub(begun) > longest {
            return Err(Trouble::with_code(
                exit::TIMEOUT,
                format!("round {} did not end within {} s", self.round, longest.as_secs()),
            ));
        }
        Ok(())
    }
}

fn lost_sight(why: io::Error) -> Trouble {
    Trouble::config(format!("a process that was started cannot be watched: {why}"))
}

fn code(status: std::process::ExitStatus) -> u8 {
    let exited = status.code().map(|code| u8::try_from(code & 0xff).unwrap_or(1));
    exited.unwrap_or_else(|| exit::by_signal(status.signal().unwrap_or(0)))
}

/// The policies as they were typed.
fn flags(policy: &PolicyArgs) -> Vec<OsString> {
    let PolicyArgs {
        ttl,
        timeout,
        kill_after,
        hold_at_least,
        lock_delay,
        probe_timeout,
        backoff,
        keep,
        remember,
        ..
    } = policy;
    let on_lost = policy.on_lost.map(|what| match what {
        OnLostArg::Retry => "retry".to_owned(),
        OnLostArg::Hold => "hold".to_owned(),
        OnLostArg::Probe => "probe".to_owned(),
    });
    let numbers = [("--max-failures", policy.max_failures), ("--retries", policy.retries)];
    let numbers = numbers.map(|(flag, n)| (flag, n.map(|n| n.to_string())));
    let texts = [
        ("--ttl", ttl),
        ("--timeout", timeout),
        ("--kill-after", kill_after),
        ("--hold-at-least", hold_at_least),
        ("--lock-delay", lock_delay),
        ("--probe-timeout", probe_timeout),
        ("--backoff", backoff),
        ("--keep", keep),
        ("--remember", remember),
        ("--on-lost", &on_lost),
    ];
    let texts = texts.into_iter().map(|(flag, text)| (flag, text.clone()));
    let mut all: Vec<OsString> = texts
        .chain(numbers)
        .filter_map(|(flag, text)| Some(OsString::from(format!("{flag}={}", text?))))
        .collect();
    if let Some(probe) = &policy.probe {
        let mut word = OsString::from("--probe=");
        word.push(probe as &OsStr);
        all.push(word);
    }
    all
}
