//! `cargo xtask bench growth` and `bench leases`: what becomes dearer as there is more of it. By entries in the ledger:
//! `bench ledger`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::report::{FAST, Goal, LONG, Point, Report, Told};
use super::{Options, Stage, lines};
use crate::stats::{Ratio, quantile};
use crate::tools::find;

const STEPS: [u64; 5] = [1, 10, 100, 1_000, 10_000];
const RUNNERS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
const RUNNERS_ROUNDS: usize = 3;
const RUNNERS_SECONDS: &str = "2";
const LEASES: [u64; 5] = [1, 10, 100, 1_000, 10_000];
const LEASES_CPU_PERCENT: f64 = 5.0;
const LEASES_MIB: f64 = 100.0;
/// Descriptors that a process may have while it holds them: a quarter of the usual limit.
const DESCRIPTORS: &str = "256";

impl Stage {
    /// By steps of a run, and by runners on a ledger.
    pub(super) fn growth(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let mut steps = Command::new(self.example("bench_growth_steps")?);
        let told = lines(steps.arg(&self.dir).args(STEPS.map(|many| many.to_string())))?;
        println!("{}", told.join("\n"));
        let ratios = told.iter().filter_map(|line| Told::read(line)).map(|told| told.ratio);
        let points: Vec<Point> =
            STEPS.iter().zip(ratios).map(|(at, ratio)| Point { at: *at as f64, ratio }).collect();
        report.grows("a late step, by steps of a run", "the only step of one", LONG, &points, Goal::None);
        if points.len() != STEPS.len() {
            return Err(told.join("\n"));
        }
        self.runners(options.rounds(RUNNERS_ROUNDS), report)
    }

    /// So many processes, each doing fresh runs of its own on one ledger; all counts in turns.
    fn runners(&self, rounds: usize, report: &mut Report) -> Result<(), String> {
        let example = self.example("bench_runners")?;
        let mut rates = RUNNERS.map(|_| Vec::new());
        let mut fair = RUNNERS.map(|_| Vec::new());
        for round in 0..rounds {
            for (at, runners) in RUNNERS.into_iter().enumerate() {
                let done = self.run_together(&example, round, runners)?;
                rates[at].push(done.iter().sum());
                fair[at].push(quantile(&done, 0.0) / quantile(&done, 1.0));
            }
        }
        let points: Vec<Point> = RUNNERS
            .iter()
            .zip(&rates)
            .map(|(at, of)| Point { at: *at as f64, ratio: Ratio::new(of, &rates[0]) })
            .collect();
        report.grows("runs of all runners together, by runners", "one runner", FAST, &points, Goal::None);
        for (runners, fair) in RUNNERS.iter().zip(&fair).skip(1) {
            let what = format!("the slowest of {runners} runners");
            report.measured(&what, "of what the fastest did", fair, Goal::None);
        }
        Ok(())
    }

    /// How many runs each runner did.
    fn run_together(&self, example: &PathBuf, round: usize, runners: u64) -> Result<Vec<f64>, String> {
        let start = |n: u64| {
            let mut runner = Command::new(example);
            runner
                .arg(self.dir.join("runners.db"))
                .arg(format!("r{round}-{runners}-{n}"))
                .arg(RUNNERS_SECONDS);
            runner.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        };
        let mut started: Vec<Child> =
            (0..runners).map(start).collect::<Result<_, _>>().map_err(|why| why.to_string())?;
        // all have been started: their input's end is the sign to begin
        for runner in &mut started {
            if let Some(mut input) = runner.stdin.take() {
                input.write_all(b"\n").map_err(|why| why.to_string())?;
            }
        }
        let mut done = Vec::new();
        for runner in started {
            let told = runner.wait_with_output().map_err(|why| why.to_string())?;
            let told = String::from_utf8_lossy(&told.stdout).into_owned();
            if field(&told, "not_done")? > 0.0 {
                println!(
                    "one of {runners} runners waited longer for the ledger than it may: {}",
                    told.trim()
                );
            }
            done.push(field(&told, "done")?);
        }
        Ok(done)
    }

    /// Leases that one process keeps alive. The counts come one after the other, each over a whole heartbeat of the
    /// usual ttl: what is compared is processor time, which does not pass while another has the machine.
    pub(super) fn leases(&self, _: &Options, report: &mut Report) -> Result<(), String> {
        let example = self.example("bench_leases")?;
        let (mut cost, mut last) = (Vec::new(), String::new());
        for leases in LEASES {
            let mut bench = Command::new("sh");
            bench.args(["-c", "ulimit -n $0 && exec \"$@\"", DESCRIPTORS]).arg(&example);
            last = lines(bench.arg(&self.dir).args([&leases.to_string(), "60", "1"]))?.join("\n");
            println!("{last}");
            cost.push(field(&last, "cpu_us_per_renewal")?);
        }
        let ratio = |of: f64| Ratio::new(&[of], &[cost[0]]);
        let points = LEASES.iter().zip(&cost).map(|(at, of)| Point { at: *at as f64, ratio: ratio(*of) });
        let points: Vec<Point> = points.collect();
        report.grows("processor time of a renewal, by leases", "of one lease", LONG, &points, Goal::None);
        let (cpu, mib) = (field(&last, "cpu_percent")?, field(&last, "rss_kib")? / 1024.0);
        report.measured("10,000 leases", "% of one core", &[cpu], Goal::AtMost(LEASES_CPU_PERCENT));
        report.measured("10,000 leases", "MiB", &[mib], Goal::AtMost(LEASES_MIB));
        self.lease_commits(&example)
    }

    /// Commits and syncs while leases are renewed: counted, with a heartbeat of 5 s, which makes them four times as many.
    fn lease_commits(&self, example: &PathBuf) -> Result<(), String> {
        if find("strace").is_none() {
            println!("commits were not counted: strace is not there");
            return Ok(());
        }
        let (log, folder) = (self.dir.join("leases.strace"), self.dir.join("traced"));
        fs::create_dir_all(&folder).map_err(|why| why.to_string())?;
        let mut traced = Command::new("strace");
        traced.args(["-f", "-qq", "-e", "trace=fcntl,fdatasync,fsync,statx", "-o"]).arg(&log);
        lines(traced.arg(example).arg(&folder).args(["10000", "15", "2"]))?;
        let text = fs::read_to_string(&log).map_err(|why| why.to_string())?;
        let window = text.lines().skip_while(|line| !line.contains("the window begins"));
        let window: Vec<&str> = window.take_while(|line| !line.contains("the window ends")).collect();
        let count = |is: &dyn Fn(&str) -> bool| window.iter().filter(|line| is(line)).count() as f64;
        // the write lock of a log is its byte 120, taken once for every transaction that writes
        let commits = count(&|line| line.contains("F_WRLCK") && line.contains("l_start=120,"));
        let syncs = count(&|line| line.contains("sync("));
        println!(
            "10000 leases, a heartbeat of 5 s: {:.0} commits and {:.1} syncs a second, {:.1} renewals a commit",
            commits / 10.0,
            syncs / 10.0,
            20_000.0 / commits
        );
        Ok(())
    }
}

/// The number after a word.
fn field(told: &str, name: &str) -> Result<f64, String> {
    let mut words = told.split_whitespace().skip_while(|word| *word != name).skip(1);
    words.next().and_then(|word| word.parse().ok()).ok_or_else(|| format!("no {name} in {told:?}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_the_number_after_its_name() {
        assert_eq!(field("done 12 not_done 3", "not_done"), Ok(3.0));
        assert!(field("done 12", "not_done").is_err());
    }
}
