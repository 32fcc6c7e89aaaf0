//! `cargo xtask bench batch`: items of the command line and of the library, and a batch that is resumed.

use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};

use super::{Options, Stage, line, target, turns_after, verdict};
use crate::stats::{Ratio, median};
use crate::tools::{call, cargo, find};

/// Items of one round of commands, and rounds.
const COMMANDS: usize = 400;
const ROUNDS: usize = 8;
/// Rounds of resuming.
const RESUMES: usize = 5;
/// Items that the library does.
const IN_PROCESS: u64 = 100_000;
/// `parallel` is given at most so many done items: it takes long over each.
const SAMPLE: u64 = 20_000;
const AT_ONCE: &str = "2";

/// How many times as fast as `parallel`, how many times as long as `xargs`, and done items passed over in a second.
const AHEAD_OF_PARALLEL: f64 = 3.0;
const BESIDE_XARGS: f64 = 1.3;
const RESUMED_PER_SECOND: f64 = 100_000.0;

impl Stage {
    /// Items of a batch.
    pub(super) fn batch(&self, options: &Options) -> Result<(), String> {
        if find("parallel").is_none() {
            return Err("parallel is missing, and could not be installed".to_owned());
        }
        self.batch_commands()?;
        let mut bench = cargo();
        bench.args(["run", "--quiet", "--release", "-p", "semel", "--example", "bench_batch", "--"]);
        call(bench.arg(&self.dir).arg(IN_PROCESS.to_string()))?;
        self.batch_resumed(options.items)
    }

    fn batch_of(&self, ledger: &str, items: &str, job: &str) -> Command {
        let mut semel = Command::new(&self.released);
        let store = format!("sqlite:{}", self.path(ledger));
        semel.args(["batch", items, "--store", &store, "--job", job, "--key", "line"]);
        semel.env("XDG_STATE_HOME", self.dir.join("state")).stderr(Stdio::null());
        semel
    }

    /// So many lines, each another one.
    fn lines(&self, name: &str, many: u64) -> Result<String, String> {
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
    fn batch_commands(&self) -> Result<(), String> {
        let items = self.lines("items.txt", COMMANDS as u64)?;
        let mut semel = |n: usize| {
            let mut command = self.batch_of("batch-commands.db", &items, &format!("b{n}"));
            command.args(["-j", AT_ONCE, "--", "true", "{}"]);
            command
        };
        let mut parallel = |n: usize| {
            let mut command = Command::new("parallel");
            command.args(["--will-cite", "-j", AT_ONCE, "-a", &items, "--joblog"]);
            command.arg(self.path(&format!("joblog-{n}"))).args(["true", "{}"]);
            command
        };
        let mut xargs = |_| {
            let mut command = Command::new("xargs");
            command.args(["-P", AT_ONCE, "-n", "1", "-a", &items, "true"]);
            command
        };
        let took = turns_after(1, ROUNDS, &mut [&mut semel, &mut parallel, &mut xargs])?;
        self.all_ran(&items)?;
        let per_item: Vec<Vec<f64>> =
            took.iter().map(|times| times.iter().map(|s| s / COMMANDS as f64).collect()).collect();
        println!("{COMMANDS} items of `true`, {AT_ONCE} at once, {ROUNDS} rounds, per item");
        line("semel batch: every claim and outcome durable", &per_item[0]);
        line("parallel --joblog", &per_item[1]);
        line("xargs -P", &per_item[2]);
        let Ratio { of_medians: ahead, low, high } = Ratio::new(&took[1], &took[0]);
        println!(
            "  {:<52} {ahead:.2} x (middle half of the rounds {low:.2} to {high:.2}), target at least {AHEAD_OF_PARALLEL} x: {}",
            "parallel / semel",
            verdict(ahead >= AHEAD_OF_PARALLEL)
        );
        target("semel / xargs", &Ratio::new(&took[0], &took[2]), Some(BESIDE_XARGS));
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
    fn batch_resumed(&self, many: u64) -> Result<(), String> {
        let sample = many.min(SAMPLE);
        let (items, log) = (self.lines("done.txt", many)?, self.joblog("done.joblog", many)?);
        let (few, few_log) = (self.lines("few.txt", sample)?, self.joblog("few.joblog", sample)?);
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
            command.args(["--will-cite", "-j", AT_ONCE, "-a", &few, "--resume", "--joblog", &few_log]);
            command.args(["false", "{}"]);
            command
        };
        call(&mut semel(0))?;
        call(&mut parallel(0))?;
        let took = turns_after(1, RESUMES, &mut [&mut semel, &mut parallel])?;
        let rate = |many: u64, times: &[f64]| many as f64 / median(times);
        let (ours, theirs) = (rate(many, &took[0]), rate(sample, &took[1]));
        println!("a batch that is all done, started again, {RESUMES} rounds");
        println!(
            "  {:<52} {ours:>9.0} items/s, target {RESUMED_PER_SECOND}: {}",
            format!("semel batch, {many} items"),
            verdict(ours >= RESUMED_PER_SECOND)
        );
        println!("  {:<52} {theirs:>9.0} items/s", format!("parallel --resume, a sample of {sample} items"));
        println!("  {:<52} {:.1} x", "semel / parallel", ours / theirs);
        Ok(())
    }
}
