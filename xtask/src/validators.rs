//! Readers of what `semel init` prints, from PyPI: in an environment of their own under the target folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tools::call;

const WANTED: [(&str, &str); 2] = [
    ("check-jsonschema", "check-jsonschema==0.39.0"),
    ("kubernetes-validate", "kubernetes-validate==1.37.0"),
];

/// The folder of their programs. Where they cannot be had, the tests that need them skip themselves, by name.
pub(crate) fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let home = std::path::absolute(target.join("validators")).unwrap_or(target);
    let bin = home.join("bin");
    let missing: Vec<&str> =
        WANTED.iter().filter(|(name, _)| !bin.join(name).is_file()).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return bin;
    }
    println!("installing {}", missing.join(", "));
    let quiet = |command: &mut Command| call(command.stdout(Stdio::null()));
    let made = quiet(Command::new("python3").args(["-m", "venv"]).arg(&home)).and_then(|()| {
        let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        quiet(Command::new(bin.join("python3")).args(words).args(&missing))
    });
    if let Err(why) = made {
        println!("{} cannot be installed: {why}", missing.join(", "));
    }
    bin
}
