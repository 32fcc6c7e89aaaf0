//! `cargo xtask bench`: each figure is a ratio, both sides run in turns on the same machine in one go. All figures meet in
//! one report: a table at the end, JSON and a plot per bench if asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::dist;
use crate::stats::quantile;
use crate::tools::{call, cargo, install_missing};
use report::Report;

mod batch;
mod cost;
mod dbos;
mod flows;
mod growth;
mod peers;
mod plot;
mod report;
mod restate;
mod run;
mod share;
mod steps;
mod stores;

/// A name, and what measures it.
type Bench = (&'static str, fn(&Stage, &Options, &mut Report) -> Result<(), String>);

/// Every bench, in the order in which `all` runs them.
const BENCHES: &[Bench] = &[
    ("run", Stage::runs),
    ("memory", Stage::memory),
    ("ledger", Stage::ledger),
    ("sqlite", Stage::sqlite),
    ("cost", Stage::costs),
    ("steps", Stage::steps),
    ("flows", Stage::flows),
    ("batch", Stage::batch),
    ("batch-share", Stage::batch_shared),
    ("batch-resume", Stage::batch_resumed),
    ("growth", Stage::growth),
    ("leases", Stage::leases),
    ("stores", Stage::stores),
];

struct Options {
    rounds: Option<usize>,
    /// Entries of the largest ledger.
    entries: u64,
    /// Done items of a batch that is resumed.
    items: u64,
    /// Take what `cargo build --release` makes for the released binary: figures at once, and not the final ones.
    plain: bool,
    json: Option<PathBuf>,
    plots: Option<PathBuf>,
}

impl Options {
    /// As many rounds as were asked for, or as this bench usually has.
    fn rounds(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(usual).max(1)
    }

    /// The options, and the benches that were named: all, if none was.
    fn read(words: &[String]) -> Result<(Options, Vec<Bench>), String> {
        let mut options = Options {
            rounds: None,
            entries: 10_000_000,
            items: 1_000_000,
            plain: false,
            json: None,
            plots: None,
        };
        let mut names = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: &String| text.parse().map_err(|_| format!("{word} needs a number"));
            match word.as_str() {
                "--rounds" => options.rounds = Some(usize::try_from(number(value()?)?).unwrap_or(usize::MAX)),
                "--entries" => options.entries = number(value()?)?,
                "--items" => options.items = number(value()?)?,
                "--plain" => options.plain = true,
                "--json" => options.json = Some(value()?.into()),
                "--plots" => options.plots = Some(value()?.into()),
                name => names.push(name),
            }
        }
        let known: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
        if let Some(name) = names.iter().find(|name| **name != "all" && !known.contains(name)) {
            return Err(format!("there is no bench {name:?}: use {} or all", known.join(", ")));
        }
        if options.json.is_some() && options.plots.is_none() {
            options.plots = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/bench"));
        }
        let all = names.is_empty() || names.contains(&"all");
        let chosen = BENCHES.iter().filter(|(name, _)| all || names.contains(name)).copied().collect();
        Ok((options, chosen))
    }
}

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    if words == ["cost", "--keep"] {
        return cost::keep();
    }
    let (options, benches) = Options::read(words)?;
    let mut report = Report::new(if options.plain { "plain" } else { "released" });
    if let Err(why) = install_missing() {
        report.missing("what is installed first", &why);
    }
    call(cargo().args(["build", "--quiet", "--release", "-p", "semel-cli", "-p", "xtask", "--bins"]))?;
    let stage = Stage::new(options.plain)?;
    let mut faults = Vec::new();
    for (name, bench) in benches {
        println!("\n== {name}");
        report.begin(name);
        match bench(&stage, &options, &mut report) {
            Ok(()) => report.end(),
            Err(why) => {
                println!("{name} was broken off: {why}");
                faults.push(format!("{name}: {why}"));
            }
        }
    }
    report.print();
    report.keep(options.json.as_deref(), options.plots.as_deref())?;
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
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

    fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.dir.join(name);
        fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        Ok(folder)
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

    /// A bench inside one process, of `crates/semel/examples`: all with the same features, so that nothing is built twice.
    fn example(&self, name: &str) -> Result<PathBuf, String> {
        let words = ["build", "--quiet", "--release", "--features", "all-stores", "-p", "semel", "--example"];
        call(cargo().args(words).arg(name))?;
        Ok(self.built.join("examples").join(name))
    }
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
            let ended = command.status().map_err(|why| format!("{command:?}: {why}"))?;
            let took = began.elapsed().as_secs_f64();
            if !ended.success() {
                return Err(format!("{command:?} ended with {ended}: its time says nothing"));
            }
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

/// What it prints; if it fails, why.
fn lines(command: &mut Command) -> Result<Vec<String>, String> {
    let told = command.stdin(Stdio::null()).output().map_err(|why| format!("{command:?}: {why}"))?;
    if !told.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&told.stderr)));
    }
    Ok(String::from_utf8_lossy(&told.stdout).lines().map(str::to_owned).collect())
}

/// The one number that it prints.
fn rate(command: &mut Command) -> Result<f64, String> {
    let told = lines(command)?;
    let number = told.last().and_then(|line| line.trim().parse().ok());
    number.ok_or_else(|| format!("{command:?}: no number: {}", told.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(words: &[&str]) -> Result<Vec<&'static str>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Ok(Options::read(&words)?.1.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn no_name_is_all_of_them_and_a_wrong_one_is_an_error() {
        assert_eq!(chosen(&[]).unwrap().len(), BENCHES.len());
        assert_eq!(chosen(&["all", "--plain"]).unwrap().len(), BENCHES.len());
        assert_eq!(chosen(&["steps", "--rounds", "3", "run"]).unwrap(), ["run", "steps"]);
        assert!(chosen(&["step"]).unwrap_err().contains("\"step\""));
        assert!(chosen(&["--rounds", "many"]).is_err());
    }
}
