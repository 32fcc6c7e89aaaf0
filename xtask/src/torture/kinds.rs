//! `cargo xtask torture KIND…`: the long versions of tests, which take minutes or hours. What they say they counted, in
//! lines that begin with `counted:`, is kept beside the rows of the attack.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::book::Book;
use crate::tools::{cargo, install_missing, install_nextest};

/// How many zombies each sink meets at each place, how many races there are per transport of git, and how many years
/// of each kind are lived through.
const ZOMBIES: u64 = 10_000;
const RACES: u64 = 2_000;
const YEARS: u64 = 200;
/// Calls recorded on each store, for the check that they fit one order.
const CALLS: u64 = 100_000;
/// Paths of each kind through the model that each store takes.
const PATHS: u64 = 500;
/// How often a hundred processes race for one claim on each store, and how many processes wait for one resource.
const CLAIMS: u64 = 100;
const WAITERS: u64 = 200;

/// What there is to be tortured.
const KINDS: [&str; 7] = ["model", "replay", "sinks", "linear", "year", "boundary", "races"];
/// Those that try all there is, so that there is nothing to draw.
const WHOLE: [&str; 2] = ["model", "boundary"];
/// Those that pass or fail, and count nothing that is kept.
const UNCOUNTED: [&str; 2] = ["replay", "races"];

pub(crate) fn is_kind(word: &str) -> bool {
    KINDS.contains(&word)
}

/// What was asked for.
#[derive(Debug, Default)]
struct Options {
    kinds: Vec<&'static str>,
    rounds: Option<u64>,
    seed: Option<u64>,
    /// Of a debug build: slower, and at once there where the tests are.
    is_debug: bool,
    json: Option<PathBuf>,
    results: Option<PathBuf>,
}

impl Options {
    fn read(words: &[String]) -> Result<Options, String> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut text = || words.next().cloned().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: String| {
                text.parse::<u64>().map_err(|_| format!("{word} needs a number, not {text:?}"))
            };
            match word.as_str() {
                "--rounds" => options.rounds = Some(number(text()?)?),
                "--seed" => options.seed = Some(number(text()?)?),
                "--debug" => options.is_debug = true,
                "--json" => options.json = Some(text()?.into()),
                "--results" => options.results = Some(text()?.into()),
                "--seconds" => {
                    return Err("these have no --seconds: give --rounds to sinks, linear and year".to_owned());
                }
                other => match KINDS.iter().find(|kind| **kind == other) {
                    Some(kind) => options.kinds.push(kind),
                    None => return Err(format!("there is no torture {other:?}: use {}", KINDS.join(", "))),
                },
            }
        }
        let whole = options.kinds.iter().find(|kind| WHOLE.contains(kind));
        if let Some(kind) = whole.filter(|_| options.rounds.is_some() || options.seed.is_some()) {
            return Err(format!("{kind} tries all that there is: it takes neither --rounds nor --seed"));
        }
        if options.kinds.contains(&"year") && options.rounds.is_some() && options.seed.is_some() {
            return Err(
                "year: --seed lives through that one year again, --rounds through the first ones".to_owned()
            );
        }
        Ok(options)
    }

    /// The command that counts the same again.
    fn command(&self, kind: &str) -> String {
        let mut text = format!("cargo xtask torture {kind}");
        for (name, number) in [("rounds", self.rounds), ("seed", self.seed)] {
            if let Some(number) = number {
                text.push_str(&format!(" --{name} {number}"));
            }
        }
        if self.is_debug {
            text.push_str(" --debug");
        }
        text
    }
}

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let options = Options::read(words)?;
    install_missing()?;
    install_nextest()?;
    let mut rows = Vec::new();
    for kind in &options.kinds {
        let counted = counted_by(kind, &options)?;
        if counted.is_empty() && !UNCOUNTED.contains(kind) {
            return Err(format!("{kind}: nothing was counted: are its tests still there?"));
        }
        rows.extend(rows_of(kind, &counted, &options.command(kind)));
    }
    keep(rows, options.json.as_deref(), options.results.as_deref())
}

/// Keep what was counted, where somebody wants it kept.
pub(crate) fn keep(rows: Vec<Value>, json: Option<&Path>, results: Option<&Path>) -> Result<(), String> {
    if json.is_none() && results.is_none() {
        return Ok(());
    }
    let mut book = Book::read(json)?;
    book.put_proofs(rows);
    book.write(json, results)
}

fn counted_by(kind: &str, options: &Options) -> Result<Vec<Counted>, String> {
    let rounds = |usual| options.rounds.unwrap_or(usual);
    let of = |name: &str, filter: &[&str], usual| rounds_of(name, filter, rounds(usual), options);
    let mut counted = Vec::new();
    match kind {
        "sinks" => {
            counted.extend(of("sink_file", &["zombie"], ZOMBIES)?);
            counted.extend(of("sink_sql", &["zombie", "crowd"], ZOMBIES)?);
            counted.extend(of("sink_git", &["races"], RACES)?);
            counted.extend(of("sink_git", &["zombies"], ZOMBIES)?);
        }
        "linear" => counted.extend(of("linear", &["linearizable"], CALLS)?),
        "replay" => counted.extend(of("replay", &["as_the_model_says"], PATHS)?),
        "year" => counted.extend(of("year", &["_of_"], YEARS)?),
        "races" => {
            for store in ["sqlite", "dir", "postgres", "redis", "etcd", "nats", "objects"] {
                of(&format!("store_{store}"), &["passes_the_suite"], CLAIMS)?;
            }
            of("e2e", &["a_crowd_of_processes"], WAITERS)?;
        }
        "boundary" => {
            let mut nextest = nextest("boundary", options);
            counted.extend(heard(nextest.args(["--run-ignored", "only"]))?);
        }
        _ => {
            let mut nextest = nextest("model", options);
            let which = "test(wider_bounds_hold) or test(/^finds_/)";
            counted.extend(heard(nextest.args(["--run-ignored", "all", "-E", which]))?);
        }
    }
    Ok(counted)
}

/// The binary of this name, built as `cargo xtask test` builds it.
fn nextest(name: &str, options: &Options) -> Command {
    let mut nextest = cargo();
    nextest.args(["nextest", "run", "--workspace", "--all-features", "--test", name]);
    nextest.args(["--no-fail-fast", "--no-capture"]);
    if !options.is_debug {
        nextest.arg("--release");
    }
    nextest.env("SEMEL_SERVERS", crate::servers::folder());
    nextest
}

/// The tests of one binary that have these words in their names, with so many rounds.
fn rounds_of(name: &str, filter: &[&str], rounds: u64, options: &Options) -> Result<Vec<Counted>, String> {
    println!("{name}: {}, {rounds} rounds", filter.join(" and "));
    let mut nextest = nextest(name, options);
    nextest.args(filter).env("SEMEL_ROUNDS", rounds.to_string());
    if let Some(seed) = options.seed {
        nextest.env("SEMEL_SEED", seed.to_string());
        if name == "year" {
            nextest.env("SEMEL_YEAR_SEED", seed.to_string());
        }
    }
    heard(&mut nextest)
}

/// Run it, hand on what it says, and take down what it counted.
fn heard(command: &mut Command) -> Result<Vec<Counted>, String> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|why| format!("{command:?}: {why}"))?;
    let mut counted = Vec::new();
    if let Some(said) = child.stdout.take() {
        for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            println!("{line}");
            counted.extend(Counted::read(&line)?);
        }
    }
    let status = child.wait().map_err(|why| why.to_string())?;
    if status.success() { Ok(counted) } else { Err(format!("{command:?}: {status}; nothing of it is kept")) }
}

/// What a test says that it counted: `counted: linear at=redis n=5000 of=calls wrong=0 seed=7`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) at: String,
    pub(crate) of: String,
    pub(crate) many: u64,
    pub(crate) wrong: u64,
    pub(crate) seed: Option<u64>,
}

impl Counted {
    /// None: the line counts nothing. One that tries to and cannot be read is an error.
    fn read(line: &str) -> Result<Option<Counted>, String> {
        // the name of a test that has not ended its line may stand before it
        let Some((_, rest)) = line.split_once("counted: ") else { return Ok(None) };
        let bad = || format!("this cannot be read: {line}");
        let mut counted = Counted::default();
        for word in rest.split_whitespace().skip(1) {
            let (name, value) = word.split_once('=').ok_or_else(bad)?;
            let number = || value.parse::<u64>().map_err(|_| bad());
            match name {
                "at" => counted.at = value.to_owned(),
                "of" => counted.of = value.to_owned(),
                "n" => counted.many = number()?,
                "wrong" => counted.wrong = number()?,
                "seed" => counted.seed = Some(number()?),
                _ => return Err(bad()),
            }
        }
        if counted.at.is_empty() || counted.of.is_empty() { Err(bad()) } else { Ok(Some(counted)) }
    }
}

/// A row for each place: what was counted there several times is one sum, with the seed that they all had, if they had.
pub(crate) fn rows_of(proof: &str, counted: &[Counted], command: &str) -> Vec<Value> {
    let mut sums: Vec<Counted> = Vec::new();
    for one in counted {
        match sums.iter_mut().find(|sum| (&sum.at, &sum.of) == (&one.at, &one.of)) {
            Some(sum) => {
                sum.many += one.many;
                sum.wrong += one.wrong;
                sum.seed = sum.seed.filter(|seed| Some(*seed) == one.seed);
            }
            None => sums.push(one.clone()),
        }
    }
    // a kill at each call, and every state; what of a cut is left of unsynced writes is drawn
    let every = |one: &Counted| WHOLE.contains(&proof) && one.of != "cuts";
    let row = |one: &Counted| {
        json!({ "proof": proof, "at": one.at, "of": one.of, "n": one.many, "wrong": one.wrong, "seed": one.seed,
                "every": every(one), "command": command })
    };
    sums.iter().filter(|one| one.many > 0).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Options, String> {
        Options::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_would_do_nothing_is_refused() {
        for words in [
            &["model", "--rounds", "5"][..],
            &["boundary", "--seed", "5"],
            &["linear", "--seconds", "5"],
            &["linear", "--lanes", "5"],
            &["linear", "nothing"],
            &["linear", "--rounds", "many"],
            &["linear", "--json"],
            &["year", "--seed", "5", "--rounds", "5"],
        ] {
            assert!(read(words).is_err(), "{words:?}");
        }
        let options = read(&["linear", "sinks", "--rounds", "5", "--seed", "7"]).unwrap();
        assert_eq!(options.command("linear"), "cargo xtask torture linear --rounds 5 --seed 7");
    }

    #[test]
    fn what_a_test_counts_is_read_from_its_line() {
        let line = "test x ... counted: linear at=redis n=5000 of=calls wrong=2 seed=7";
        let counted = Counted::read(line).unwrap().unwrap();
        let wanted =
            Counted { at: "redis".to_owned(), of: "calls".to_owned(), many: 5_000, wrong: 2, seed: Some(7) };
        assert_eq!(counted, wanted);
        assert_eq!(Counted::read("redis: 5000 calls"), Ok(None));
        for bad in ["counted: linear", "counted: linear at=x n=many of=y", "counted: linear at=x what"] {
            assert!(Counted::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_place_is_one_row() {
        let one = |many, seed| Counted { at: "a".to_owned(), of: "zombies".to_owned(), many, wrong: 1, seed };
        let rows = rows_of("sinks", &[one(2, Some(1)), one(3, Some(1))], "c");
        assert_eq!(rows.len(), 1);
        assert_eq!((&rows[0]["n"], &rows[0]["wrong"], &rows[0]["seed"]), (&json!(5), &json!(2), &json!(1)));
        let rows = rows_of("sinks", &[one(2, Some(1)), one(3, Some(2))], "c");
        assert_eq!(rows[0]["seed"], Value::Null, "they had none in common");
    }

    #[test]
    fn what_the_tests_print_is_what_is_read_here() {
        let mut echo = Command::new("/bin/sh");
        echo.args(["-c", "echo; echo 'counted: model at=two-workers n=12 of=states wrong=0'; echo other"]);
        let counted = heard(&mut echo).unwrap();
        assert_eq!((counted.len(), counted[0].many), (1, 12));
        let mut fails = Command::new("/bin/sh");
        fails.args(["-c", "echo 'counted: model at=a n=1 of=states wrong=0'; exit 3"]);
        assert!(heard(&mut fails).unwrap_err().contains("nothing of it is kept"));
    }
}
