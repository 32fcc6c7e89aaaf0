//! `cargo xtask torture`: real processes against real private servers, under faults drawn from a printed seed, with
//! effects counted outside. The same faults meet the usual ways without Semel: the controls.
//!
//! | module | |
//! |---|---|
//! | [`contender`] | who is attacked, and how it is fired |
//! | [`nemesis`] | what goes wrong, and when: a plan from the round's seed |
//! | [`arena`] | the store, its server and proxies, small disks, libraries |
//! | [`round`] | two or three firings of one work, faults, peace, retries until it is done |
//! | [`check`] | doubled, lost, unreported, stale |
//! | [`report`] | the table, the JSON, the page of results |
//!
//! A seed makes the same plan again: contender, faults, moments. What the machine's scheduler then does is not in it,
//! so a replay attacks in the same way and need not end in the same way.
//!
//! Not shown: what is not promised. An effect that is neither fenced nor guarded by a living keeper may be had by a
//! holder that wakes from a suspend, so suspends meet fenced targets and controls alone.

mod arena;
mod check;
mod contender;
mod nemesis;
mod procs;
mod report;
mod round;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use semel_testkit::Chance;

use crate::tools::{call, cargo};
use arena::{Arena, STORES};
use contender::Contender;
use report::Report;
use round::{Outcome, Round};

/// Rounds at once.
const LANES: usize = 16;
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
    let mut report = Report::new(options.seed);
    let mut faults = Vec::new();
    for store in &options.stores {
        if !store.contains(':') && !STORES.contains(&store.as_str()) {
            return Err(format!(
                "there is no store {store:?}: use {}, all, or an address",
                STORES.join(", ")
            ));
        }
        let base =
            tempfile::Builder::new().prefix("semel-torture-").tempdir().map_err(|why| why.to_string())?;
        let arena = Arena::open(store, &semel, base.path(), has_mounts)?;
        println!("{}: {}, seed {}", arena.store, semel.display(), options.seed);
        for (has, what) in [
            (arena.arms.clock, "clock-step: libfaketime or a C compiler is not installed"),
            (arena.arms.disk_full || !arena.is_file(), "disk-full: no file system may be mounted here"),
            (arena.arms.disk_error || !arena.is_file(), "disk-error: there is no C compiler"),
        ] {
            if !has {
                println!("  not done: {what}");
            }
        }
        let was = report.wrong();
        attack(options, &arena, &mut report);
        // leaves of control groups that nobody was left to remove
        let mut gc = Command::new(&semel);
        gc.arg("gc").env("SEMEL_STORE", arena.lane(options.lanes).store).envs(arena.variables.clone());
        let _ = gc.env("XDG_STATE_HOME", base.path().join("state0")).output();
        if report.wrong() > was {
            let kept = base.keep();
            faults.push(format!("{}: what is left of failing rounds is in {}", arena.store, kept.display()));
        }
    }
    report.print();
    report.keep(options.json.as_deref(), options.results.as_deref())?;
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
}

fn attack(options: &Options, arena: &Arena, report: &mut Report) {
    let all = Contender::SEMEL.into_iter().chain(Contender::CONTROLS);
    let choices =
        all.filter(|one| arena.has(*one) && (options.only.is_empty() || options.only.contains(one)));
    let shared = Shared {
        options,
        arena,
        choices: choices.collect(),
        next: AtomicU64::new(options.round.unwrap_or(0)),
        has_ended: AtomicBool::new(false),
        begun: Instant::now(),
        report: Mutex::new(report),
    };
    let lanes = if options.round.is_some() { 1 } else { options.lanes };
    std::thread::scope(|scope| {
        let playing: Vec<_> = (0..lanes)
            .map(|number| {
                let shared = &shared;
                scope.spawn(move || play(shared, number))
            })
            .collect();
        if arena.is_killable() && options.round.is_none() {
            scope.spawn(|| kill_servers(&shared));
        }
        for lane in playing {
            let _ = lane.join();
        }
        shared.has_ended.store(true, Ordering::SeqCst);
    });
}

/// Seldom, by chance: the server dies under all of them.
fn kill_servers(shared: &Shared<'_>) {
    let mut chance = Chance::with_seed(shared.options.seed);
    loop {
        let at = Instant::now() + Duration::from_millis(5_000 + chance.below(20_000));
        while Instant::now() < at {
            if shared.has_ended.load(Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        shared.arena.kill_server();
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
        let contender = choose(&mut chance, &shared.choices);
        let name = format!("t{:x}-{round}", options.seed);
        match Round::play(shared.arena, &lane, contender, &name, &mut chance) {
            Ok(outcome) => record(shared, round, contender, &outcome),
            Err(why) => {
                println!("round {round} could not be played: {why}");
                return;
            }
        }
    }
}

fn choose(chance: &mut Chance, choices: &[Contender]) -> Contender {
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
        println!(
            "\nround {round}, {} on {}: doubled {}, lost {}, unreported {}, stale {}, stuck {}\n  replay: cargo xtask torture --store {} --seed {} --round {round}{}",
            contender.name(),
            shared.arena.store,
            outcome.doubled,
            outcome.lost,
            outcome.unreported,
            outcome.stale,
            outcome.stuck,
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
