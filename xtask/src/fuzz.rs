//! `cargo xtask torture fuzz [TARGET…] [--seconds N] [--keep]`: libFuzzer on every target, for N seconds in all.
//!
//! The targets are ordinary tests (crate `semel-fuzz`). Here they are built once more, into `target/fuzz`, with what the
//! compiler of a stable toolchain needs to tell libFuzzer where it has been. `--keep` puts what reached new places into
//! the corpus of the repository, the shortest first.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tools::{call, cargo};

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

pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let (mut seconds, mut keep, mut only) = (SECONDS, false, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => {
                let number = words.next().and_then(|n| n.parse().ok());
                seconds = number.ok_or("--seconds needs a number")?;
            }
            "--keep" => keep = true,
            name => only.push(name),
        }
    }
    let wanted = |test: &&&str| only.is_empty() || only.contains(&short(test));
    let count = BINARIES.iter().flat_map(|binary| binary.tests).filter(wanted).count();
    if count == 0 {
        let all: Vec<&str> =
            BINARIES.iter().flat_map(|binary| binary.tests).map(|test| short(test)).collect();
        return Err(format!("there is no such target: use {}", all.join(", ")));
    }
    let each = (seconds / count as u64).max(1);
    let mut found = Vec::new();
    for binary in &BINARIES {
        let tests: Vec<&str> = binary.tests.iter().filter(wanted).copied().collect();
        if tests.is_empty() {
            continue;
        }
        let program = build(binary.build)?;
        for test in tests {
            if let Err(why) = one(&program, test, each) {
                found.push(format!("{}: {why}", short(test)));
            }
            if keep {
                kept(&program, test)?;
            }
        }
    }
    match found.is_empty() {
        true => Ok(()),
        false => Err(format!("found:\n{}", found.join("\n"))),
    }
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

fn one(program: &Path, test: &str, seconds: u64) -> Result<(), String> {
    let (corpus, found) = (made(&format!("corpus/{}", short(test)))?, made("found")?);
    println!("{}: {seconds} s", short(test));
    call(
        Command::new(itself(program, test)?)
            .arg(format!("-max_total_time={seconds}"))
            .args([
                "-timeout=10",
                "-rss_limit_mb=2048",
                "-max_len=4096",
                "-print_final_stats=1",
                "-verbosity=0",
            ])
            .arg(format!("-artifact_prefix={}/{}-", found.display(), short(test)))
            .arg(corpus),
    )
    .map_err(|why| format!("{why}; the input is in {}", found.display()))
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
