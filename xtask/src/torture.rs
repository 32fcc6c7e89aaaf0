//! `cargo xtask torture`: real processes against real private servers, under faults drawn from a printed seed, with
//! effects counted outside. The same faults meet the usual ways without Semel: the controls.
//!
//! | module | |
//! |---|---|
//! | [`contender`] | who is attacked, and how it is fired |
//! | [`nemesis`] | what goes wrong, and when: a plan from the round's seed |
//! | [`arena`] | the store, its server and proxies, small disks, libraries |
//! | [`round`] | two or three firings of one work, faults, peace, retries until it is done |
//! | [`answer`] | what each firing was answered |
//! | [`check`] | doubled, lost, unreported, stale, untrue |
//! | [`report`] | what came out of a run, and whether it shows anything |
//! | [`book`], [`page`] | what is kept of all runs: the JSON, the page of results |
//! | [`kinds`] | the other long proofs, which are tests: what they count is kept too |
//!
//! A seed makes the same plan again: contender, faults, moments. What the machine's scheduler then does is not in it,
//! so a replay attacks in the same way and need not end in the same way.
//!
//! Not shown: what is not promised. An effect that is neither fenced nor guarded by a living keeper may be had by a
//! holder that wakes from a suspend, so suspends meet fenced targets and controls alone.

mod answer;
mod arena;
pub(crate) mod book;
mod check;
mod contender;
pub(crate) mod kinds;
mod nemesis;
mod page;
mod procs;
mod report;
mod round;

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use semel_testkit::Chance;

use crate::tools::{call, cargo};
use arena::{Arena, STORES};
use contender::{Contender, Wrong};
use report::Report;
use round::{Outcome, Round};

/// Rounds at once.
const LANES: usize = 16;
/// How many rounds everybody has before chance decides who is next.
const TURNS: u64 = 3;
/// How many failing rounds are told in full.
const TOLD: u64 = 5;

/// What was asked for.
#[derive(Debug)]
struct Options {
    stores: Vec<String>,
    seconds: Option<u64>,
    rounds: Option<u64>,
    seed: u64,
    round: Option<u64>,
    only: Vec<Contender>,
    lanes: usize,
    semel: Option<PathBuf>,
    is_release: bool,
    json: Option<PathBuf>,
    results: Option<PathBuf>,
}

impl Options {
    fn read(words: &[String]) -> Result<Options, String> {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mut options = Options {
            stores: vec!["sqlite".to_owned()],
            seconds: None,
            rounds: None,
            seed: now.as_secs(),
            round: None,
            only: Vec::new(),
            lanes: LANES,
            semel: None,
            is_release: false,
            json: None,
            results: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut text = || words.next().cloned().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: String| {
                text.parse::<u64>().map_err(|_| format!("{word} needs a number, not {text:?}"))
            };
            match word.as_str() {
                "--store" => options.stores = stores(&text()?),
                "--seconds" => options.seconds = Some(number(text()?)?),
                "--rounds" => options.rounds = Some(number(text()?)?),
                "--seed" => options.seed = number(text()?)?,
                "--round" => options.round = Some(number(text()?)?),
                "--lanes" => options.lanes = number(text()?)?.clamp(1, 64) as usize,
                "--semel" => {
                    options.semel = Some(std::path::absolute(text()?).map_err(|why| why.to_string())?)
                }
                "--release" => options.is_release = true,
                "--json" => options.json = Some(text()?.into()),
                "--results" => options.results = Some(text()?.into()),
                "--only" => {
                    for name in text()?.split(',') {
                        let known = Contender::named(name);
                        options.only.push(known.ok_or_else(|| format!("there is no contender {name:?}"))?);
                    }
                }
                other => return Err(format!("torture does not know {other:?}\n{}", crate::USAGE)),
            }
        }
        if options.seconds.is_none() && options.rounds.is_none() {
            options.rounds = Some(1_000);
        }
        Ok(options)
    }

    /// The command that does the same again, on this store.
    fn command(&self, store: &str) -> String {
        // an address may hold a password
        let store = if store.contains(':') { "URL" } else { store };
        let mut text = format!("cargo xtask torture --store {store}{}", only(&self.only));
        for (name, number) in [("rounds", self.rounds), ("seconds", self.seconds)] {
            if let Some(number) = number {
                text.push_str(&format!(" --{name} {number}"));
            }
        }
        text.push_str(&format!(" --seed {}", self.seed));
        if self.lanes != LANES {
            text.push_str(&format!(" --lanes {}", self.lanes));
        }
        if self.is_release {
            text.push_str(" --release");
        }
        if self.semel.is_some() {
            text.push_str(" --semel PATH");
        }
        text
    }

    fn wants(&self, contender: Contender) -> bool {
        self.only.is_empty() || self.only.contains(&contender)
    }
}

fn stores(text: &str) -> Vec<String> {
    match text {
        "all" => STORES.map(str::to_owned).into(),
        one if one.contains(':') => vec![one.to_owned()],
        some => some.split(',').map(str::to_owned).collect(),
    }
}

/// `cargo xtask torture`, without a word that names another.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let options = Options::read(words)?;
    if options.semel.is_none() {
        crate::tools::install_missing()?;
    }
    torture(&options).map(drop)
}

/// The short pass of `cargo xtask test`: seconds.
pub(crate) fn short() -> Result<(), String> {
    let mut options = Options::read(&[])?;
    (options.seed, options.rounds, options.only) = (7, Some(40), Contender::SEMEL.into());
    torture(&options)?;
    (options.rounds, options.only) = (Some(16), vec![Contender::Flock]);
    match torture(&options)?.wrong_controls() {
        0 => Err("flock and a marker did nothing wrong in 16 rounds: the attack shows nothing".to_owned()),
        _ => Ok(()),
    }
}

fn torture(options: &Options) -> Result<Report, String> {
    let has_mounts = arena::prepare();
    let semel = semel(options)?;
    let stores = if options.stores == STORES { "all".to_owned() } else { options.stores.join(",") };
    let mut report = Report::new(options.seed, options.command(&stores));
    let (mut faults, mut wrong) = (Vec::new(), Vec::new());
    for store in &options.stores {
        if !store.contains(':') && !STORES.contains(&store.as_str()) {
            return Err(format!(
                "there is no store {store:?}: use {}, all, or an address",
                STORES.join(", ")
            ));
        }
        let base =
            tempfile::Builder::new().prefix("semel-torture-").tempdir().map_err(|why| why.to_string())?;
        let arena = Arena::open(store, &semel, base.path(), has_mounts, |one| options.wants(one))?;
        println!("{}: {}, seed {}", arena.store, semel.display(), options.seed);
        arena.not_done.iter().for_each(|what| println!("  not done: {what}"));
        let was = report.wrong();
        faults.extend(attack(options, &arena, store, &mut report)?);
        // leaves of control groups that nobody was left to remove
        let mut gc = Command::new(&semel);
        gc.arg("gc").env("SEMEL_STORE", arena.lane(options.lanes).store).envs(arena.variables.clone());
        let _ = gc.env("XDG_STATE_HOME", base.path().join("state0")).output();
        if report.wrong() > was {
            let kept = base.keep();
            wrong.push(format!("{}: what is left of failing rounds is in {}", arena.store, kept.display()));
        }
    }
    report.print();
    if faults.is_empty() && options.round.is_none() {
        report.keep(options.json.as_deref(), options.results.as_deref())?;
    }
    faults.extend(wrong);
    faults.extend(report.judge(options.round.is_none()));
    if faults.is_empty() { Ok(report) } else { Err(faults.join("\n")) }
}

/// The binary: built, or named.
fn semel(options: &Options) -> Result<PathBuf, String> {
    if let Some(semel) = &options.semel {
        return Ok(semel.clone());
    }
    let mut build = cargo();
    build.args(["build", "--quiet", "--workspace", "--all-features", "--bins"]);
    let folder = if options.is_release { "release" } else { "debug" };
    if options.is_release {
        build.arg("--release");
    }
    call(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target"));
    std::path::absolute(target.join(folder).join("semel")).map_err(|why| why.to_string())
}

/// What lanes share.
struct Shared<'a> {
    options: &'a Options,
    arena: &'a Arena,
    choices: Vec<Contender>,
    next: AtomicU64,
    has_ended: AtomicBool,
    begun: Instant,
    report: Mutex<&'a mut Report>,
    /// Rounds that could not be played.
    broken: Mutex<Vec<String>>,
}

/// All rounds on one store. What is answered is what kept them from being played; nothing, if all is well.
fn attack(options: &Options, arena: &Arena, store: &str, report: &mut Report) -> Result<Vec<String>, String> {
    let all = Contender::SEMEL.into_iter().chain(Contender::CONTROLS);
    let (choices, others): (Vec<_>, Vec<_>) =
        all.filter(|one| options.wants(*one)).partition(|one| arena.has(*one));
    for one in others {
        println!("  not done: {}: redis-server and redis-cli are not installed", one.name());
    }
    if choices.is_empty() {
        return Err(format!("{}: there is nobody to attack", arena.store));
    }
    report.expect(&arena.store, &choices, options.command(store));
    let shared = Shared::new(options, arena, choices, report);
    let lanes = if options.round.is_some() { 1 } else { options.lanes };
    std::thread::scope(|scope| {
        let playing: Vec<_> = (0..lanes)
            .map(|number| {
                let shared = &shared;
                scope.spawn(move || play(shared, number))
            })
            .collect();
        joined(&shared, playing);
    });
    Ok(shared.broken.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Wait for all lanes. One that panicked has played less than it should: the run has failed.
fn joined(shared: &Shared<'_>, playing: Vec<ScopedJoinHandle<'_, ()>>) {
    for (number, lane) in playing.into_iter().enumerate() {
        if let Err(panic) = lane.join() {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            shared.breaks(format!("lane {number} broke off: {said}"));
        }
    }
}

impl<'a> Shared<'a> {
    fn new(
        options: &'a Options,
        arena: &'a Arena,
        choices: Vec<Contender>,
        report: &'a mut Report,
    ) -> Shared<'a> {
        Shared {
            options,
            arena,
            choices,
            next: AtomicU64::new(options.round.unwrap_or(0)),
            has_ended: AtomicBool::new(false),
            begun: Instant::now(),
            report: Mutex::new(report),
            broken: Mutex::default(),
        }
    }

    /// What cannot be played shows nothing: it is told at the end, and the run has failed.
    fn breaks(&self, why: String) {
        println!("{why}");
        self.has_ended.store(true, Ordering::SeqCst);
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        broken.push(format!("{}: {why}", self.arena.store));
    }
}

/// One lane: round after round.
fn play(shared: &Shared<'_>, number: usize) {
    let lane = shared.arena.lane(number);
    let options = shared.options;
    while !shared.has_ended.load(Ordering::SeqCst) {
        let round = shared.next.fetch_add(1, Ordering::SeqCst);
        let is_over = match (options.round, options.rounds, options.seconds) {
            (Some(one), _, _) => round > one,
            (None, Some(rounds), _) if round >= rounds => true,
            (None, _, Some(seconds)) => shared.begun.elapsed().as_secs() >= seconds,
            _ => false,
        };
        if is_over {
            return;
        }
        let mut chance = Chance::with_seed(options.seed ^ round.wrapping_mul(0xd134_2543_de82_ef95));
        let contender = choose(&mut chance, &shared.choices, round);
        let name = format!("t{:x}-{round}", options.seed);
        match Round::play(shared.arena, &lane, contender, &name, &mut chance) {
            Ok(outcome) => record(shared, round, contender, &outcome),
            Err(why) => return shared.breaks(format!("round {round} could not be played: {why}")),
        }
    }
}

/// Each has its turn in the first rounds; then chance decides, by their weights.
fn choose(chance: &mut Chance, choices: &[Contender], round: u64) -> Contender {
    let many = choices.len() as u64;
    if round < TURNS * many {
        return choices[(round % many) as usize];
    }
    let mut at = chance.below(choices.iter().map(|one| one.weight()).sum::<u64>().max(1));
    for one in choices {
        if at < one.weight() {
            return *one;
        }
        at -= one.weight();
    }
    Contender::Probe
}

fn record(shared: &Shared<'_>, round: u64, contender: Contender, outcome: &Outcome) {
    let Ok(mut report) = shared.report.lock() else { return };
    let options = shared.options;
    let is_wrong = !contender.is_control() && !outcome.is_clean();
    if is_wrong && report.wrong() < TOLD || options.round.is_some() {
        let store = options.stores.iter().find(|store| **store == shared.arena.store);
        let wrong = Wrong::ALL.map(|wrong| format!("{} {}", wrong.name(), outcome.many(wrong)));
        println!(
            "\nround {round}, {} on {}: {}\n  replay: cargo xtask torture --store {} --seed {} --round {round}{}",
            contender.name(),
            shared.arena.store,
            wrong.join(", "),
            store.map_or("URL", |store| store),
            options.seed,
            only(&options.only),
        );
        for line in &outcome.history {
            println!("  {line}");
        }
    }
    let elapsed = shared.begun.elapsed().as_secs_f64();
    report.add(&shared.arena.store, contender, outcome, elapsed);
    let done = report.rounds_on(&shared.arena.store);
    if done.is_multiple_of(500) {
        println!("  {done} rounds, {:.1}/s, {} wrong", done as f64 / elapsed, report.wrong());
    }
}

fn only(only: &[Contender]) -> String {
    match only {
        [] => String::new(),
        some => format!(" --only {}", some.iter().map(|one| one.name()).collect::<Vec<_>>().join(",")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Options, String> {
        Options::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_command_of_a_row_makes_it_again() {
        let words = ["--store", "redis", "--only", "push,sql", "--rounds", "9", "--seed", "5", "--release"];
        let options = read(&words).unwrap();
        let command = options.command("redis");
        assert_eq!(
            command,
            "cargo xtask torture --store redis --only push,sql --rounds 9 --seed 5 --release"
        );
        let again: Vec<&str> = command.split(' ').skip(3).collect();
        assert_eq!(read(&again).unwrap().command("redis"), command);
        let address = options.command("postgres://me:secret@h:1/db");
        assert!(address.contains("--store URL") && !address.contains("secret"), "{address}");
    }

    #[test]
    fn everybody_has_a_turn_before_chance_decides() {
        let choices = [Contender::Probe, Contender::Push, Contender::SetNx];
        let mut chance = Chance::with_seed(1);
        let chosen: Vec<Contender> = (0..9).map(|round| choose(&mut chance, &choices, round)).collect();
        for one in choices {
            assert_eq!(chosen.iter().filter(|chosen| **chosen == one).count(), TURNS as usize, "{one:?}");
        }
    }

    #[test]
    fn a_word_that_is_not_known_is_refused() {
        assert!(read(&["--roundz", "9"]).unwrap_err().contains("--roundz"));
        assert!(read(&["--only", "nobody"]).unwrap_err().contains("nobody"));
        assert!(read(&["--rounds", "many"]).unwrap_err().contains("many"));
    }

    /// Rounds that cannot be played, here because their folder is a file, are a fault of the run and no silence.
    #[test]
    fn a_round_that_cannot_be_played_fails_the_run() {
        let options = read(&["--only", "probe", "--rounds", "4", "--seed", "1", "--lanes", "2"]).unwrap();
        let base = tempfile::tempdir().unwrap();
        let semel = std::path::Path::new("/bin/true");
        let arena = Arena::open("sqlite", semel, base.path(), false, |one| options.wants(one)).unwrap();
        for round in 0..4 {
            std::fs::write(base.path().join(format!("t1-{round}")), "").unwrap();
        }
        let mut report = Report::new(1, String::new());
        let faults = attack(&options, &arena, "sqlite", &mut report).unwrap();
        assert!(!faults.is_empty() && faults[0].contains("could not be played"), "{faults:?}");
        assert!(report.judge(true)[0].contains("no round was played"));
        let shared = Shared::new(&options, &arena, vec![Contender::Probe], &mut report);
        std::thread::scope(|scope| {
            let lanes = vec![scope.spawn(|| {}), scope.spawn(|| panic!("it tripped"))];
            joined(&shared, lanes);
        });
        let broken = shared.broken.into_inner().unwrap();
        assert_eq!(broken, ["sqlite: lane 1 broke off: it tripped"]);
    }
}
