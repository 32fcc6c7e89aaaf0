//! A folder for each round, and what is started in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) const SEMEL: &str = env!("CARGO_BIN_EXE_semel");

/// Long enough for anything on a busy machine; only a failing test waits for it.
const SOON: Duration = Duration::from_secs(40);

/// Where the ledger is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ledger {
    Sqlite,
    Dir,
}

/// A folder with a ledger, a state directory and the effects.
pub(crate) struct Home {
    dir: tempfile::TempDir,
    ledger: Ledger,
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    /// In memory, where there is such a place: nothing here cuts the power of this machine.
    pub(crate) fn new(ledger: Ledger) -> Home {
        let mut builder = tempfile::Builder::new();
        builder.prefix("semel-boundary-");
        let dir = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).unwrap();
        Home { dir, ledger }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The folder of the ledger.
    pub(crate) fn store_folder(&self) -> PathBuf {
        self.path("store")
    }

    pub(crate) fn url(&self) -> String {
        url(self.ledger, &self.store_folder())
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn executable(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt;
        self.write(name, &format!("#!/bin/sh\n{script}\n"));
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Any program in this home, with a clean environment and nobody to talk to.
    pub(crate) fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().current_dir(self.dir.path());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8").env("TZ", "UTC");
        command.env("HOME", self.path("home")).env("XDG_STATE_HOME", self.path("state"));
        command.env("SEMEL", SEMEL).env("SEMEL_STORE", self.url());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Do it, and wait for its end.
    pub(crate) fn end(&self, mut command: Command) -> Said {
        let output = |name: &str| std::fs::File::create(self.path(name)).unwrap();
        let mut child = command.stdout(output("out")).stderr(output("err")).spawn().unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > SOON {
                let _ = child.kill();
                let _ = child.wait();
                panic!("{command:?} does not end: {}", self.text("err"));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        use std::os::unix::process::ExitStatusExt;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap());
        Said { code, out: self.text("out"), err: self.text("err") }
    }

    /// Do `semel ARGS`.
    pub(crate) fn semel(&self, args: &[&str]) -> Said {
        self.end(self.command(SEMEL, args))
    }

    /// What `semel ARGS --json` answers; null if it failed.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let said = self.semel(&[args, &["--json"]].concat());
        serde_json::from_str(said.out.lines().last().unwrap_or_default()).unwrap_or(Value::Null)
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    /// The effects: the lines of a file.
    pub(crate) fn effects(&self) -> Vec<String> {
        self.text("effects").lines().map(str::to_owned).collect()
    }

    /// How often this effect is there.
    pub(crate) fn count(&self, effect: &str) -> usize {
        self.effects().iter().filter(|line| *line == effect).count()
    }

    /// The names of all files below, seen from there.
    pub(crate) fn files(&self, below: &str) -> Vec<String> {
        let root = self.path(below);
        let (mut folders, mut found) = (vec![root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else {
                    found.push(entry.path().strip_prefix(&root).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        found
    }
}

/// The address of a ledger in this folder.
pub(crate) fn url(ledger: Ledger, folder: &Path) -> String {
    match ledger {
        Ledger::Sqlite => format!("sqlite:{}/ledger.db", folder.display()),
        Ledger::Dir => format!("dir:{}", folder.display()),
    }
}
