//! What tests and benches need beyond the Rust toolchain: found, or installed.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{postgres, servers};

/// A Debian package and a program by which it is known.
const PACKAGES: [(&str, &str); 5] = [
    ("strace", "strace"),
    ("flock", "util-linux"),
    ("python3", "python3"),
    ("git", "git"),
    ("sqlite3", "sqlite3"),
];

/// Readers of what `semel init` prints, the writer of joblogs, and the counter of instructions. Where they cannot be had,
/// the tests that need them skip themselves, by name.
const READERS: [(&str, &str); 4] =
    [("systemd-analyze", "systemd"), ("crontab", "cron"), ("parallel", "parallel"), ("valgrind", "valgrind")];

/// Python's environments, which Debian has in a package of their own.
const VENV: &str = "python3-venv";

fn has_venv() -> bool {
    let mut asked = Command::new("python3");
    asked.args(["-c", "import venv, ensurepip"]).stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// Run it, and fail with its name if it fails.
pub(crate) fn call(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|why| format!("{command:?}: {why}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}")) }
}

/// Is this program on the PATH?
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Install Debian's packages for the programs that are missing.
pub(crate) fn install_missing() -> Result<(), String> {
    let mut missing: Vec<&str> =
        PACKAGES.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
    if !postgres::has_server() {
        missing.push(postgres::SERVER);
    }
    missing.extend(servers::missing_packages());
    if find("npm").is_none() {
        missing.push("npm");
    }
    let readers = READERS.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package);
    let venv = if has_venv() { None } else { Some(VENV) };
    let psycopg = if postgres::has_psycopg() { None } else { Some(postgres::PSYCOPG) };
    let wanted: Vec<&str> = psycopg.into_iter().chain(venv).chain(readers).collect();
    if missing.is_empty() && wanted.is_empty() {
        return servers::install_others();
    }
    if find("apt-get").is_none() {
        if missing.is_empty() {
            return servers::install_others();
        }
        return Err(format!(
            "these are missing and there is no apt-get to install them: {}",
            missing.join(", ")
        ));
    }
    println!("installing {}", missing.iter().chain(&wanted).copied().collect::<Vec<_>>().join(", "));
    let quiet = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(words).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
        call(&mut command)
    };
    let install = |packages: &[&str]| {
        let words = ["install", "-y", "-qq", "--no-install-recommends"];
        quiet(&words.iter().chain(packages).copied().collect::<Vec<_>>())
    };
    quiet(&["update", "-qq"])?;
    if missing.contains(&postgres::SERVER) {
        postgres::without_a_cluster(|packages| install(packages))?;
    }
    missing.retain(|package| *package != postgres::SERVER);
    if !missing.is_empty() {
        servers::without_services(|| install(&missing))?;
    }
    // where there is no such package, the tests that need it skip themselves, by their names
    for package in wanted {
        if install(&[package]).is_err() {
            println!("{package} cannot be installed");
        }
    }
    servers::install_others()
}

/// cargo, as it was called. What `cargo run` told this program about itself is not passed on: the build script of `ring` is
/// run again whenever that changes, and with it everything that speaks TLS is built again.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let told = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| told.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    cargo
}

/// The test runner: each test is a process of its own, which the mutants need.
pub(crate) fn install_nextest() -> Result<(), String> {
    let has = cargo().args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if has.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    println!("installing cargo-nextest");
    call(cargo().args(["install", "--locked", "cargo-nextest"]))
}
