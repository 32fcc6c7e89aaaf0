//! `cargo xtask bench run`, `memory`, `ledger` and `sqlite`: what a run costs on the command line, what it holds in memory,
//! and whether it grows with the ledger.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::peers::script;
use super::report::{Goal, LONG, Point, Report, Told};
use super::{Options, Stage, line, lines, turns};
use crate::stats::Ratio;
use crate::tools::call;

/// Rounds of processes, and of those that take long.
const ROUNDS: usize = 200;
const SLOW: usize = 4;

/// How many times as long as the floor a fresh run may take, as `flock` a skip, and as a small ledger a large one.
const FRESH: f64 = 1.25;
const SKIP: f64 = 1.5;
const LEDGER: f64 = 1.2;
const SKIP_MS: f64 = 5.0;
const SUPERVISING_MIB: f64 = 8.0;

const FLOOR: &str = "append, fdatasync, run, append, fdatasync";
const STORE_FLOOR: &str = "open the same store, look, commit, run, commit";
const SCRIPT: &str = "a script: lock file, JSONL ledger of 10,000 lines";

impl Stage {
    fn guard(&self, folder: &str, key: &str) -> Command {
        let mut python = Command::new("python3");
        python.arg(script("guard.py")).args([&self.path(folder), key, "/bin/true"]);
        python
    }

    /// A fresh run and a skip.
    pub(super) fn runs(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let guard = self.folder("guard")?;
        let done =
            |n| format!("{{\"key\": \"old-{n}\", \"state\": \"done\", \"at\": 1750000000.0, \"code\": 0}}\n");
        let ledger: String = (0..10_000).map(done).collect();
        fs::write(guard.join("ledger.jsonl"), ledger).map_err(|why| why.to_string())?;
        self.fresh(options, report)?;
        let lock = self.path("lock");
        // without a fork: what is killed is what holds the lock
        let mut holder = Command::new("flock");
        holder.args(["-F", &lock, "sleep", "600"]).stdout(Stdio::null());
        let mut holder = holder.spawn().map_err(|why| format!("flock: {why}"))?;
        let skipped = self.skips(&lock, options, report);
        let _ = holder.kill();
        let _ = holder.wait();
        skipped
    }

    fn fresh(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let rounds = options.rounds(ROUNDS);
        let floor = self.path("floor.log");
        let mut semel = |n: usize| self.semel("ledger.db", &format!("k{n}"), &["/bin/true"]);
        let mut bare = |_| {
            let mut command = Command::new(self.built.join("floor"));
            command.args([&floor, "/bin/true"]);
            command
        };
        let plain = self.built.join("semel");
        let mut plain = |n: usize| self.semel_at(&plain, "plain.db", &format!("k{n}"), &["/bin/true"]);
        let example = self.example("floor_store")?;
        let ledger = self.path("floor.db");
        let mut store = |n: usize| {
            let mut command = Command::new(&example);
            command.args([&ledger, &format!("k{n}"), "/bin/true"]);
            command
        };
        let fresh = turns(rounds, &mut [&mut semel, &mut bare, &mut plain, &mut store])?;
        let mut semel = |n: usize| self.semel("ledger.db", &format!("s{n}"), &["/bin/true"]);
        let mut script = |n: usize| self.guard("guard", &format!("k{n}"));
        let beside = turns((rounds / SLOW).max(1), &mut [&mut semel, &mut script])?;
        println!("fresh run of `true`, {rounds} rounds");
        line("semel run, as released (cargo xtask dist)", &fresh[0]);
        line("semel run, of a plain cargo build --release", &fresh[2]);
        line(&format!("floor: {FLOOR}"), &fresh[1]);
        line(&format!("floor: {STORE_FLOOR}"), &fresh[3]);
        line(SCRIPT, &beside[1]);
        report.long("a fresh run", FLOOR, &Ratio::new(&fresh[0], &fresh[1]), Goal::AtMost(FRESH));
        report.long("a fresh run", STORE_FLOOR, &Ratio::new(&fresh[0], &fresh[3]), Goal::None);
        report.long(STORE_FLOOR, FLOOR, &Ratio::new(&fresh[3], &fresh[1]), Goal::None);
        if !options.plain {
            let ratio = Ratio::new(&fresh[2], &fresh[1]);
            report.long("a fresh run of a plain build", FLOOR, &ratio, Goal::None);
        }
        report.fast("a fresh run", SCRIPT, &Ratio::new(&beside[1], &beside[0]), Goal::None);
        Ok(())
    }

    fn skips(&self, lock: &str, options: &Options, report: &mut Report) -> Result<(), String> {
        let rounds = options.rounds(ROUNDS);
        let mut semel = |_| self.semel("ledger.db", "k0", &["/bin/true"]);
        let mut flock = |_| {
            let mut command = Command::new("flock");
            // to be refused is no fault of it
            command.args(["-n", "-E", "0", lock, "/bin/true"]);
            command
        };
        let skip = turns(rounds, &mut [&mut semel, &mut flock])?;
        let mut script = |_| self.guard("guard", "k0");
        let beside = turns((rounds / SLOW).max(1), &mut [&mut semel, &mut script])?;
        println!("skip of a done work, {rounds} rounds");
        line("semel run, skipped", &skip[0]);
        line("flock -n, refused", &skip[1]);
        line("script, skipped", &beside[1]);
        let ratio = Ratio::new(&skip[0], &skip[1]);
        report.long("a skip", "flock -n refused by a held lock", &ratio, Goal::AtMost(SKIP));
        report.fast("a skip", SCRIPT, &Ratio::new(&beside[1], &beside[0]), Goal::None);
        let ms: Vec<f64> = skip[0].iter().map(|seconds| seconds * 1e3).collect();
        report.measured(
            "a skip, all of it: more than start to first store access",
            "ms",
            &ms,
            Goal::AtMost(SKIP_MS),
        );
        Ok(())
    }

    /// What Semel holds in memory while it supervises.
    pub(super) fn memory(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let mut all = Vec::new();
        for round in 0..options.rounds(5).min(5) {
            let started = self.dir.join(format!("started-{round}"));
            let script = format!("touch {}; exec sleep 600", started.display());
            let mut run = self.semel("memory.db", &format!("m{round}"), &["/bin/sh", "-c", &script]);
            let mut run = run.spawn().map_err(|why| why.to_string())?;
            let deadline = Instant::now() + Duration::from_secs(20);
            while !started.exists() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            let rss = memory_kib(run.id(), "VmRSS:");
            let _ = run.kill();
            let _ = run.wait();
            all.push(rss.ok_or("semel's memory could not be read")? as f64 / 1024.0);
        }
        report.measured("resident while it supervises `sleep`", "MiB", &all, Goal::AtMost(SUPERVISING_MIB));
        Ok(())
    }

    /// Claims in ledgers of very different sizes.
    pub(super) fn ledger(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let tens = std::iter::successors(Some(1_000), |size: &u64| size.checked_mul(10));
        let sizes = tens.take_while(|size| *size < options.entries).chain([options.entries]);
        let sizes: Vec<String> = sizes.map(|size| size.to_string()).collect();
        let told = lines(Command::new(self.example("bench_ledger")?).arg(&self.dir).args(&sizes))?;
        println!("{}", told.join("\n"));
        // a line for each, in this order
        let ratios = told.iter().filter_map(|line| Told::read(line)).map(|told| told.ratio);
        let at = sizes.iter().filter_map(|size| size.parse().ok());
        let points: Vec<Point> = at.zip(ratios).map(|(at, ratio)| Point { at, ratio }).collect();
        report.grows(
            "a claim, by entries in the ledger",
            &format!("among {}", sizes[0]),
            LONG,
            &points,
            Goal::AtMost(LEDGER),
        );
        if points.len() == sizes.len() { Ok(()) } else { Err(told.join("\n")) }
    }

    /// What the store itself costs here: times, no ratios.
    pub(super) fn sqlite(&self, _: &Options, _: &mut Report) -> Result<(), String> {
        call(&mut Command::new(self.example("bench_sqlite")?))
    }
}

/// What the kernel says of a process, under this name.
pub(super) fn memory_kib(pid: u32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}
