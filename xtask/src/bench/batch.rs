//! `cargo xtask bench batch`: items of the command line and of the library, and a batch that is resumed.

use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::report::{Goal, LONG, Report};
use super::run::memory_kib;
use super::{Options, Stage, line, lines, turns_after};
use crate::stats::Ratio;
use crate::tools::{call, find};

/// Items of one round of commands, and rounds: so many that the start of a batch, which `bench run` is about, is no part of
/// what an item costs.
const COMMANDS: usize = 2_000;
const ROUNDS: usize = 8;
/// Rounds of resuming.
const RESUMES: usize = 3;
/// Items that the library does.
const IN_PROCESS: u64 = 100_000;
/// Lines that one process is given: the done items over and over, as a stream that nobody could keep.
const STREAMED: u64 = 10_000_000;
const AT_ONCE: &str = "2";

/// How many times as fast as `parallel`, how many times as long as `xargs`, items in one commit, and done items passed over
/// in a second.
const AHEAD_OF_PARALLEL: f64 = 4.0;
const BESIDE_XARGS: f64 = 1.15;
const PER_COMMIT: f64 = 50.0;
const RESUMED_PER_SECOND: f64 = 100_000.0;
/// Items of the library in a second, and what a batch of any length may hold in memory.
const ITEMS_PER_SECOND: f64 = 20_000.0;
const STREAM_MIB: f64 = 64.0;

const NO_PARALLEL: &str = "it is on no PATH";

impl Stage {
    /// Items of a batch: commands, then in one process.
    pub(super) fn batch(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        self.batch_commands(options, report)?;
        let told =
            lines(Command::new(self.example("bench_batch")?).arg(&self.dir).arg(IN_PROCESS.to_string()))?;
        report.told(&told, LONG, "", |_| Goal::None);
        let number = |name: &str| {
            let found = told.iter().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            found.ok_or_else(|| format!("bench_batch says nothing of {name:?}"))
        };
        let (each, resumed): (f64, f64) =
            (number("items per commit:")?, number("items per second found done:")?);
        let rate: f64 = number("items per second:")?;
        let goal = Goal::AtLeast(ITEMS_PER_SECOND);
        report.measured("items of the library, durable, 32 at once", "a second", &[rate], goal);
        report.measured(
            "items of the library in a commit, 32 at once",
            "items",
            &[each],
            Goal::AtLeast(PER_COMMIT),
        );
        let goal = Goal::AtLeast(RESUMED_PER_SECOND);
        report.measured("items of the library found done", "a second", &[resumed], goal);
        self.beside_dbos(options, report)
    }

    fn batch_of(&self, ledger: &str, items: &str, job: &str) -> Command {
        self.batch_on(&format!("sqlite:{}", self.path(ledger)), items, job)
    }

    pub(super) fn batch_on(&self, store: &str, items: &str, job: &str) -> Command {
        let mut semel = Command::new(&self.released);
        semel
            .args(["batch", items, "--job", job, "--format", "lines", "--key", "line"])
            .env("SEMEL_STORE", store);
        semel.env("XDG_STATE_HOME", self.dir.join("state")).stderr(Stdio::null());
        semel
    }

    /// So many lines, each another one.
    pub(super) fn lines(&self, name: &str, many: u64) -> Result<String, String> {
        let path = self.path(name);
        let text: String = (1..=many).fold(String::new(), |mut text, n| {
            let _ = writeln!(text, "{n}");
            text
        });
        fs::write(&path, text).map_err(|why| format!("{path}: {why}"))?;
        Ok(path)
    }

    /// A joblog in which all of them are done.
    fn joblog(&self, name: &str, many: u64) -> Result<String, String> {
        let path = self.path(name);
        let mut text =
            "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n".to_owned();
        for n in 1..=many {
            let _ = writeln!(text, "{n}\t:\t1750000000.000\t     0.001\t0\t0\t0\t0\ttrue {n}");
        }
        fs::write(&path, text).map_err(|why| format!("{path}: {why}"))?;
        Ok(path)
    }

    /// Items that are commands, none of them done before.
    fn batch_commands(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let rounds = options.rounds(ROUNDS);
        let items = self.lines("items.txt", COMMANDS as u64)?;
        let mut semel = |n: usize| {
            let mut command = self.batch_of("batch-commands.db", &items, &format!("b{n}"));
            command.args(["-j", AT_ONCE, "--", "true", "{}"]);
            command
        };
        let mut xargs = |_| {
            let mut command = Command::new("xargs");
            command.args(["-P", AT_ONCE, "-n", "1", "-a", &items, "true"]);
            command
        };
        let mut parallel = |n: usize| {
            let mut command = Command::new("parallel");
            command.args(["--will-cite", "-j", AT_ONCE, "-a", &items, "--joblog"]);
            command.arg(self.path(&format!("joblog-{n}"))).args(["true", "{}"]);
            command
        };
        let has_parallel = find("parallel").is_some();
        let took = if has_parallel {
            turns_after(1, rounds, &mut [&mut semel, &mut xargs, &mut parallel])?
        } else {
            report.missing("parallel", NO_PARALLEL);
            turns_after(1, rounds, &mut [&mut semel, &mut xargs])?
        };
        self.all_ran(&items)?;
        println!("{COMMANDS} items of `true`, {AT_ONCE} at once, {rounds} rounds, per item");
        let names = ["semel batch: every claim and outcome durable", "xargs -P", "parallel --joblog"];
        for (name, times) in names.iter().zip(&took) {
            let per_item: Vec<f64> = times.iter().map(|seconds| seconds / COMMANDS as f64).collect();
            line(name, &per_item);
        }
        let what = "an item of semel batch -j 2 -- true";
        if has_parallel {
            let ratio = Ratio::new(&took[2], &took[0]);
            report.fast(what, "parallel --joblog -j 2", &ratio, Goal::AtLeast(AHEAD_OF_PARALLEL));
        }
        let ratio = Ratio::new(&took[0], &took[1]);
        report.long(what, "xargs -P 2, which records nothing", &ratio, Goal::AtMost(BESIDE_XARGS));
        Ok(())
    }

    /// The rounds are worth nothing if the items did not run.
    fn all_ran(&self, items: &str) -> Result<(), String> {
        let mut check = self.batch_of("batch-commands.db", items, "b0");
        check.args(["--json", "--", "true", "{}"]).stderr(Stdio::piped());
        let check = check.output().map_err(|why| why.to_string())?;
        let text = String::from_utf8_lossy(&check.stderr);
        let skipped = text.matches("\"outcome\":\"skipped\"").count();
        if skipped == COMMANDS { Ok(()) } else { Err(format!("{skipped} of {COMMANDS} items had been done")) }
    }

    /// A batch of which everything is done, started again.
    pub(super) fn batch_resumed(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let (many, rounds) = (options.items, options.rounds(RESUMES));
        let (items, log) = (self.lines("done.txt", many)?, self.joblog("done.joblog", many)?);
        let mut fill = self.batch_of("batch-done.db", &items, "done");
        call(fill.args(["-j", "32", "--import-joblog", &log, "--", "true", "{}"]))?;
        let mut semel = |_| {
            let mut command = self.batch_of("batch-done.db", &items, "done");
            // a command that fails would show that something was begun
            command.args(["-j", AT_ONCE, "--", "false", "{}"]);
            command
        };
        let mut parallel = |_| {
            let mut command = Command::new("parallel");
            command.args(["--will-cite", "-j", AT_ONCE, "-a", &items, "--resume", "--joblog", &log]);
            command.args(["false", "{}"]);
            command
        };
        call(&mut semel(0))?;
        let has_parallel = find("parallel").is_some();
        let took = if has_parallel {
            call(&mut parallel(0))?;
            turns_after(1, rounds, &mut [&mut semel, &mut parallel])?
        } else {
            report.missing("parallel", NO_PARALLEL);
            turns_after(1, rounds, &mut [&mut semel])?
        };
        let rates = |times: &[f64]| -> Vec<f64> { times.iter().map(|s| many as f64 / s).collect() };
        println!("a batch that is all done, started again, {rounds} rounds");
        let ours = rates(&took[0]);
        let what = format!("semel batch, {many} items found done");
        report.measured(&what, "a second", &ours, Goal::AtLeast(RESUMED_PER_SECOND));
        if let Some(theirs) = took.get(1).map(|times| rates(times)) {
            report.fast(&what, "parallel --resume on the same", &Ratio::new(&ours, &theirs), Goal::None);
        }
        self.batch_streamed(&items, many, report)
    }

    /// Millions of items through one process, and the most that it held.
    fn batch_streamed(&self, items: &str, many: u64, report: &mut Report) -> Result<(), String> {
        let times = STREAMED.div_ceil(many);
        let mut input = Command::new("cat");
        input.args((0..times).map(|_| items)).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut input = input.spawn().map_err(|why| format!("cat: {why}"))?;
        let mut batch = self.batch_of("batch-done.db", "-", "done");
        batch.args(["-j", AT_ONCE, "--", "false", "{}"]).stdout(Stdio::null());
        let batch = batch.stdin(input.stdout.take().ok_or("cat has no output")?).spawn();
        let mut batch = batch.map_err(|why| why.to_string())?;
        let mut peak = 0;
        let ended = loop {
            peak = memory_kib(batch.id(), "VmHWM:").unwrap_or(0).max(peak);
            match batch.try_wait().map_err(|why| why.to_string())? {
                Some(ended) => break ended,
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let _ = input.wait();
        if !ended.success() {
            return Err(format!("the stream of {STREAMED} items ended with {ended}"));
        }
        let what = format!("held at the most by a batch of {} lines", times * many);
        report.measured(&what, "MiB", &[peak as f64 / 1024.0], Goal::AtMost(STREAM_MIB));
        Ok(())
    }
}
