//! `cargo xtask bench`: each figure is a ratio, both sides run in turns on the same machine in one go.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::dist;
use crate::stats::{Ratio, median, quantile};
use crate::tools::{call, cargo, install_missing};

mod batch;
mod steps;

struct Options {
    rounds: usize,
    entries: u64,
    /// Done items of a batch that is resumed.
    items: u64,
    /// Take what `cargo build --release` makes for the released binary: figures at once, and not the final ones.
    plain: bool,
}

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let mut options = Options { rounds: 200, entries: 5_000_000, items: 200_000, plain: false };
    let mut names = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let number = |value: Option<&String>| {
            value.and_then(|n| n.parse().ok()).ok_or(format!("{word} needs a number"))
        };
        match word.as_str() {
            "--rounds" => options.rounds = usize::try_from(number(words.next())?).unwrap_or(usize::MAX),
            "--entries" => options.entries = number(words.next())?,
            "--plain" => options.plain = true,
            "--items" => options.items = number(words.next())?,
            "run" | "ledger" | "memory" | "sqlite" | "steps" | "batch" | "all" => names.push(word.as_str()),
            other => {
                return Err(format!(
                    "there is no bench {other:?}: use run, ledger, memory, sqlite, steps, batch or all"
                ));
            }
        }
    }
    let all = names.is_empty() || names.contains(&"all") || names.contains(&"run");
    install_missing()?;
    call(cargo().args(["build", "--quiet", "--release", "-p", "semel-cli", "-p", "xtask", "--bins"]))?;
    let stage = Stage::new(options.plain)?;
    if all {
        stage.runs(&options)?;
    }
    if all || names.contains(&"memory") {
        stage.memory()?;
    }
    if all || names.contains(&"ledger") {
        stage.ledger(&options)?;
    }
    if names.contains(&"steps") || names.contains(&"all") {
        stage.steps()?;
    }
    if names.contains(&"batch") || names.contains(&"all") {
        stage.batch(&options)?;
    }
    if names.contains(&"sqlite") || names.contains(&"all") {
        call(cargo().args(["run", "--quiet", "--release", "-p", "semel", "--example", "bench_sqlite"]))?;
    }
    Ok(())
}

/// A scratch directory on the disk that holds the build, removed at the end.
struct Stage {
    dir: PathBuf,
    /// What plain `cargo build --release` made.
    built: PathBuf,
    /// The binary as it is released.
    released: PathBuf,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Stage {
    fn new(plain: bool) -> Result<Stage, String> {
        let target = dist::target_dir()?;
        let released = if plain { target.join("release/semel") } else { dist::build()? };
        let dir = target.join(format!("bench-{}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|why| format!("{}: {why}", dir.display()))?;
        Ok(Stage { dir, built: target.join("release"), released })
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn semel(&self, ledger: &str, key: &str, command: &[&str]) -> Command {
        self.semel_at(&self.released, ledger, key, command)
    }

    fn semel_at(&self, binary: &Path, ledger: &str, key: &str, command: &[&str]) -> Command {
        let mut semel = Command::new(binary);
        let store = format!("sqlite:{}", self.path(ledger));
        semel.args(["run", "--store", &store, "--job", "bench", "--key", key, "--"]).args(command);
        semel.env("XDG_STATE_HOME", self.dir.join("state"));
        semel
    }

    fn guard(&self, folder: &str, key: &str) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/guard.py");
        let mut python = Command::new("python3");
        python.arg(script).args([&self.path(folder), key, "/bin/true"]);
        python
    }

    /// A fresh run and a skip.
    fn runs(&self, options: &Options) -> Result<(), String> {
        fs::create_dir_all(self.dir.join("guard")).map_err(|why| why.to_string())?;
        let lines: String = (0..10_000)
            .map(|n| {
                format!("{{\"key\": \"old-{n}\", \"state\": \"done\", \"at\": 1750000000.0, \"code\": 0}}\n")
            })
            .collect();
        fs::write(self.dir.join("guard/ledger.jsonl"), lines).map_err(|why| why.to_string())?;
        let floor = self.path("floor.log");

        let mut semel = |n: usize| self.semel("ledger.db", &format!("k{n}"), &["/bin/true"]);
        let mut bare = |_| {
            let mut command = Command::new(self.built.join("floor"));
            command.args([&floor, "/bin/true"]);
            command
        };
        let plain = self.built.join("semel");
        let mut plain = |n: usize| self.semel_at(&plain, "plain.db", &format!("k{n}"), &["/bin/true"]);
        let fresh = turns(options.rounds, &mut [&mut semel, &mut bare, &mut plain])?;
        let mut semel = |n: usize| self.semel("ledger.db", &format!("s{n}"), &["/bin/true"]);
        let mut script = |n: usize| self.guard("guard", &format!("k{n}"));
        let beside = turns(options.rounds / 4, &mut [&mut semel, &mut script])?;
        println!("fresh run of `true`, {} rounds", options.rounds);
        line("semel run, as released (cargo xtask dist)", &fresh[0]);
        line("semel run, of a plain cargo build --release", &fresh[2]);
        line("floor: append, fdatasync, run, append, fdatasync", &fresh[1]);
        line("script: lock file and JSONL ledger of 10,000 lines", &beside[1]);
        target("semel / floor", &Ratio::new(&fresh[0], &fresh[1]), Some(1.6));
        target("semel of a plain build / floor", &Ratio::new(&fresh[2], &fresh[1]), None);
        target("script / semel", &Ratio::new(&beside[1], &beside[0]), None);

        let lock = self.path("lock");
        // without a fork: what is killed is what holds the lock
        let mut holder =
            Command::new("flock").args(["-F", &lock, "sleep", "600"]).stdout(Stdio::null()).spawn();
        let mut semel = |_| self.semel("ledger.db", "k0", &["/bin/true"]);
        let mut flock = |_| {
            let mut command = Command::new("flock");
            command.args(["-n", &lock, "/bin/true"]);
            command
        };
        let skip = turns(options.rounds, &mut [&mut semel, &mut flock]);
        let mut script = |_| self.guard("guard", "k0");
        let beside = turns(options.rounds / 4, &mut [&mut semel, &mut script]);
        if let Ok(holder) = &mut holder {
            let _ = holder.kill();
            let _ = holder.wait();
        }
        holder.map_err(|why| format!("flock: {why}"))?;
        let (skip, beside) = (skip?, beside?);
        println!("skip of a done work, {} rounds", options.rounds);
        line("semel run, skipped", &skip[0]);
        line("flock -n, refused", &skip[1]);
        line("script, skipped", &beside[1]);
        target("semel / flock", &Ratio::new(&skip[0], &skip[1]), Some(2.5));
        target("script / semel", &Ratio::new(&beside[1], &beside[0]), None);
        println!(
            "  start to first store access: below {:.1} ms, the whole of a skip (target 5 ms): {}",
            median(&skip[0]) * 1e3,
            verdict(median(&skip[0]) * 1e3 <= 5.0)
        );
        Ok(())
    }

    /// What Semel holds in memory while it supervises.
    fn memory(&self) -> Result<(), String> {
        let started = self.dir.join("started");
        let script = format!("touch {}; exec sleep 600", started.display());
        let mut run = self.semel("memory.db", "memory", &["/bin/sh", "-c", &script]);
        let mut run = run.spawn().map_err(|why| why.to_string())?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while !started.exists() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let rss = resident_kib(run.id());
        let _ = run.kill();
        let _ = run.wait();
        let mib = rss.ok_or("semel's memory could not be read")? as f64 / 1024.0;
        println!("supervising `sleep`: {mib:.1} MiB resident (target 12): {}", verdict(mib <= 12.0));
        Ok(())
    }

    /// Claims in ledgers of very different sizes.
    fn ledger(&self, options: &Options) -> Result<(), String> {
        let sizes = ["1000", "100000"].map(str::to_owned).into_iter().chain([options.entries.to_string()]);
        let mut bench = cargo();
        bench.args(["run", "--quiet", "--release", "-p", "semel", "--example", "bench_ledger", "--"]);
        bench.arg(&self.dir).args(sizes);
        call(&mut bench)
    }
}

fn resident_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

type Contestant<'a> = &'a mut dyn FnMut(usize) -> Command;

/// Each contestant once per round, in turns, another one first each time: who comes after whom matters. The first
/// rounds only warm up. Seconds, per contestant.
fn turns(rounds: usize, contestants: &mut [Contestant<'_>]) -> Result<Vec<Vec<f64>>, String> {
    turns_after(5, rounds, contestants)
}

fn turns_after(
    warm_up: usize,
    rounds: usize,
    contestants: &mut [Contestant<'_>],
) -> Result<Vec<Vec<f64>>, String> {
    let mut times = vec![Vec::with_capacity(rounds); contestants.len()];
    for round in 0..rounds + warm_up {
        for turn in 0..contestants.len() {
            let who = (round + turn) % contestants.len();
            let mut command = contestants[who](round);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            let began = Instant::now();
            command.status().map_err(|why| format!("{command:?}: {why}"))?;
            let took = began.elapsed().as_secs_f64();
            if round >= warm_up {
                times[who].push(took);
            }
        }
    }
    Ok(times)
}

fn line(name: &str, times: &[f64]) {
    let ms = |share| quantile(times, share) * 1e3;
    println!("  {name:<52} p50 {:>7.2} ms   p10 {:>7.2}   p90 {:>7.2}", ms(0.5), ms(0.1), ms(0.9));
}

fn target(name: &str, ratio: &Ratio, at_most: Option<f64>) {
    let Ratio { of_medians, low, high } = ratio;
    let goal =
        at_most.map_or(String::new(), |most| format!(", target {most} x: {}", verdict(*of_medians <= most)));
    println!("  {name:<52} {of_medians:.2} x (middle half of the rounds {low:.2} to {high:.2}){goal}");
}

fn verdict(reached: bool) -> &'static str {
    if reached { "reached" } else { "MISSED" }
}
