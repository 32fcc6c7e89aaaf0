//! `cargo xtask torture fuzz [TARGET…] [--seconds N] [--seed S] [--keep]`: libFuzzer on every target, for N seconds in all.
//!
//! The targets are ordinary tests (crate `semel-fuzz`). Here they are built once more, into `target/fuzz`, with what the
//! compiler of a stable toolchain needs to tell libFuzzer where it has been. `--keep` puts what reached new places into
//! the corpus of the repository, the shortest first.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tools::{call, cargo};
use crate::torture::kinds::{self, Counted};

/// Seconds for all targets together, unless somebody says otherwise.
const SECONDS: u64 = 600;
/// The most bytes that a target's corpus has in the repository.
const KEPT: usize = 40 * 1024;
/// The longest input that is kept there.
const LONGEST_KEPT: usize = 1_500;

/// What tells libFuzzer where the program has been.
const FLAGS: &str = "--cfg semel_guided -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// A binary with targets: how cargo is asked for it, and the names of its tests.
struct Binary {
    build: &'static [&'static str],
    tests: &'static [&'static str],
}

const BINARIES: [Binary; 4] = [
    Binary {
        build: &["-p", "semel-core", "--test", "fuzz"],
        tests: &[
            "keys::json",
            "keys::works",
            "keys::payloads",
            "words::names",
            "words::addresses",
            "words::flags",
            "fill::placeholders",
            "times::schedules",
            "times::triggers",
            "times::calendars",
            "records::records",
        ],
    },
    Binary {
        build: &["-p", "semel-cli", "--no-default-features", "--bin", "semel"],
        tests: &[
            "batch::fuzz_tests::batch_input",
            "batch::fuzz_tests::batch_fill",
            "batch::fuzz_tests::joblogs",
            "config::fuzz_tests::semel_toml",
        ],
    },
    Binary {
        build: &["-p", "semel", "--features", "all-stores", "--lib"],
        tests: &[
            "store::dir::page::tests::pages",
            "store::objects::body::tests::bodies",
            "store::redis::script::tests::redis_records",
            "store::etcd::rows::tests::etcd_rows",
            "store::nats::subject::tests::subjects",
        ],
    },
    Binary {
        build: &["-p", "semel", "--features", "all-stores", "--test", "fuzz"],
        tests: &["stores", "refspecs", "notes"],
    },
];

fn short(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}

/// What was asked for.
#[derive(Debug)]
struct Options {
    seconds: u64,
    seed: u64,
    keep: bool,
    json: Option<PathBuf>,
    results: Option<PathBuf>,
    /// Targets, by their short names; none: all of them.
    only: Vec<String>,
}

impl Options {
    fn read(words: &[String]) -> Result<Options, String> {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        // libFuzzer takes 32 bits
        let seed = now.as_secs() & 0x7fff_ffff;
        let mut options =
            Options { seconds: SECONDS, seed, keep: false, json: None, results: None, only: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut text = || words.next().cloned().ok_or_else(|| format!("{word} needs a value"));
            let number = |text: String| {
                text.parse::<u64>().map_err(|_| format!("{word} needs a number, not {text:?}"))
            };
            match word.as_str() {
                "--seconds" => options.seconds = number(text()?)?,
                "--seed" => options.seed = u64::from(number(text()?)? as u32),
                "--keep" => options.keep = true,
                "--json" => options.json = Some(text()?.into()),
                "--results" => options.results = Some(text()?.into()),
                flag if flag.starts_with('-') => {
                    return Err(format!("fuzz does not know {flag:?}\n{}", crate::USAGE));
                }
                name => options.only.push(name.to_owned()),
            }
        }
        let all: Vec<&str> = targets().map(short).collect();
        match options.only.iter().find(|name| !all.contains(&name.as_str())) {
            Some(name) => Err(format!("there is no target {name:?}: use {}", all.join(", "))),
            None => Ok(options),
        }
    }

    fn wants(&self, test: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == short(test))
    }
}

fn targets() -> impl Iterator<Item = &'static str> {
    BINARIES.iter().flat_map(|binary| binary.tests).copied()
}

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let options = Options::read(words)?;
    let count = targets().filter(|test| options.wants(test)).count() as u64;
    let each = (options.seconds / count).max(1);
    let (mut found, mut counted) = (Vec::new(), Vec::new());
    for binary in &BINARIES {
        let tests: Vec<&str> = binary.tests.iter().filter(|test| options.wants(test)).copied().collect();
        if tests.is_empty() {
            continue;
        }
        let program = build(binary.build)?;
        for test in tests {
            match one(&program, test, each, options.seed) {
                Ok(many) => counted.push(Counted {
                    at: short(test).to_owned(),
                    of: "inputs".to_owned(),
                    many,
                    wrong: 0,
                    seed: Some(options.seed),
                }),
                Err(why) => found.push(format!("{}: {why}", short(test))),
            }
            if options.keep {
                kept(&program, test)?;
            }
        }
    }
    if !found.is_empty() {
        return Err(format!("found:\n{}", found.join("\n")));
    }
    let command = format!("cargo xtask torture fuzz --seconds {} --seed {}", options.seconds, options.seed);
    let rows = kinds::rows_of("fuzz", &counted, &command);
    kinds::keep(rows, options.json.as_deref(), options.results.as_deref())
}

fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    target.join("fuzz")
}

/// Build the binary with coverage; its path.
fn build(what: &[&str]) -> Result<PathBuf, String> {
    // for a target that is named, so that build scripts and macros are built without
    let host = Command::new("rustc").arg("-vV").output().map_err(|why| format!("rustc: {why}"))?;
    let host = String::from_utf8_lossy(&host.stdout).into_owned();
    let host =
        host.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc does not say its host")?;
    let mut command = cargo();
    command
        .args(["test", "--no-run", "--message-format=json", "--target", host])
        .args(what)
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", folder())
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "2")
        .stderr(Stdio::inherit());
    let made = command.output().map_err(|why| format!("cargo: {why}"))?;
    if !made.status.success() {
        return Err(format!("{} cannot be built with coverage", what.join(" ")));
    }
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    let of_line = |line: &str| {
        let rest = line.split_once("\"executable\":\"")?.1;
        Some(PathBuf::from(rest.split_once('"')?.0))
    };
    said.lines().filter_map(of_line).next_back().ok_or_else(|| "cargo made no test".to_owned())
}

/// The test as a program that takes the words of libFuzzer: it starts itself again with some of them.
fn itself(program: &Path, test: &str) -> Result<PathBuf, String> {
    let path = folder().join(format!("run-{}", short(test)));
    let text = format!(
        "#!/bin/sh\nSEMEL_FUZZ_GUIDED=\"$*\" SEMEL_FUZZ_SELF=\"$0\" exec '{}' --exact '{test}' --nocapture\n",
        program.display()
    );
    fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))?;
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(|why| why.to_string())?;
    path.canonicalize().map_err(|why| why.to_string())
}

fn made(name: &str) -> Result<PathBuf, String> {
    let path = folder().join(name);
    fs::create_dir_all(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    path.canonicalize().map_err(|why| why.to_string())
}

/// How many inputs it was given.
fn one(program: &Path, test: &str, seconds: u64, seed: u64) -> Result<u64, String> {
    let (corpus, found) = (made(&format!("corpus/{}", short(test)))?, made("found")?);
    println!("{}: {seconds} s", short(test));
    let mut command = Command::new(itself(program, test)?);
    command
        .args([format!("-max_total_time={seconds}"), format!("-seed={seed}")])
        .args(["-timeout=10", "-rss_limit_mb=2048", "-max_len=4096", "-print_final_stats=1", "-verbosity=0"])
        .arg(format!("-artifact_prefix={}/{}-", found.display(), short(test)))
        .arg(corpus);
    inputs_of(&mut command, test).map_err(|why| format!("{why}; what was found is in {}", found.display()))
}

/// Run it, hand on what libFuzzer says, and take down how many inputs it tried. A test of another name is no test: its
/// binary ends well and has tried nothing.
fn inputs_of(command: &mut Command, test: &str) -> Result<u64, String> {
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(|why| format!("{command:?}: {why}"))?;
    let mut tried = 0;
    if let Some(said) = child.stderr.take() {
        for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            eprintln!("{line}");
            let number = line.strip_prefix("stat::number_of_executed_units:");
            tried = number.and_then(|number| number.trim().parse().ok()).unwrap_or(tried);
        }
    }
    let status = child.wait().map_err(|why| why.to_string())?;
    match (status.success(), tried) {
        (false, _) => Err(format!("{command:?}: {status}")),
        (true, 0) => Err(format!("no input was tried: is there still a test {test}?")),
        (true, tried) => Ok(tried),
    }
}

/// What reaches new places goes into the repository, the shortest first.
fn kept(program: &Path, test: &str) -> Result<(), String> {
    let name = short(test);
    let (corpus, merged) = (made(&format!("corpus/{name}"))?, made(&format!("merged/{name}"))?);
    for entry in fs::read_dir(&merged).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
    let words = ["-merge=1", "-verbosity=0", "-timeout=10"];
    call(Command::new(itself(program, test)?).args(words).args([&merged, &corpus]))?;
    let mut inputs: Vec<Vec<u8>> = fs::read_dir(&merged)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read(entry.path()).ok())
        .filter(|bytes| bytes.len() <= LONGEST_KEPT)
        .collect();
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    let path = semel_fuzz::corpus::path(name);
    // what a person put there stays: it says what it is
    let before = fs::read_to_string(&path).unwrap_or_default();
    let mut text = String::new();
    let mut lines = before.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("# ") {
            text.push_str(&format!("{line}\n{}\n", lines.next().unwrap_or_default()));
        }
    }
    for line in inputs.iter().map(|bytes| semel_fuzz::corpus::line(bytes)) {
        if text.len() + line.len() > KEPT {
            break;
        }
        text.push_str(&format!("{line}\n"));
    }
    fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_not_there_is_no_success() {
        let run = |script: &str| inputs_of(Command::new("/bin/sh").args(["-c", script]), "keys::json");
        assert_eq!(run("echo stat::number_of_executed_units: 812 >&2"), Ok(812));
        let none = run("echo running 0 tests");
        assert!(none.as_ref().unwrap_err().contains("is there still a test keys::json"), "{none:?}");
        assert!(run("echo stat::number_of_executed_units: 812 >&2; exit 77").is_err());
    }

    #[test]
    fn unknown_words_are_refused_beside_good_ones() {
        let read =
            |words: &[&str]| Options::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(read(&["json", "jsom"]).unwrap_err().contains("jsom"));
        assert!(read(&["json", "--kepp"]).unwrap_err().contains("--kepp"));
        assert!(read(&["--seconds", "soon"]).is_err());
        let options = read(&["json", "--seconds", "3", "--keep"]).unwrap();
        assert!(options.wants("keys::json") && !options.wants("keys::works"));
    }

    /// Renamed, a target would be looked for in vain: each is a test of its binary's sources.
    #[test]
    fn every_target_is_still_a_test() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let (mut folders, mut all) = (vec![crates], String::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ending| ending == "rs") {
                    all.push_str(&fs::read_to_string(path).unwrap_or_default());
                }
            }
        }
        for test in targets() {
            assert!(all.contains(&format!("fn {}()", short(test))), "{test}");
        }
    }
}
