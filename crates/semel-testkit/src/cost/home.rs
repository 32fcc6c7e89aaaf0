//! A folder with a ledger, in which everything is as it was for the count before.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::Operation;

/// Long enough for anything on a busy machine; only what has failed waits for it.
pub(super) const LONG: Duration = Duration::from_secs(180);

/// What the log of SQLite has before its frames, and what a frame has beside its page.
const LOG_HEADER: u64 = 32;
const FRAME: u64 = 24 + 4096;

#[derive(Debug)]
pub(super) struct Home {
    dir: TempDir,
    semel: PathBuf,
}

impl Home {
    /// In memory, where there is such a place: a sync counts whatever it takes. Its path is as long as any other's.
    pub(super) fn new(semel: &Path) -> Home {
        let mut builder = tempfile::Builder::new();
        builder.prefix("semel-cost-");
        let dir = builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).unwrap();
        let home = Home { dir, semel: semel.to_owned() };
        // what only the first run does: make the ledger
        let mut first = home.command(semel);
        home.end(first.args(home.words(Operation::Skip, 1)).spawn().unwrap());
        home
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn semel(&self) -> &Path {
        &self.semel
    }

    /// Any program in this home, with a clean environment and nobody to talk to.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.dir.path());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8").env("TZ", "UTC");
        command.env("HOME", self.path("home")).env("XDG_STATE_HOME", self.path("state"));
        command.env("SEMEL_STORE", format!("sqlite:{}", self.path("ledger.db").display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(self.path("err")).unwrap());
        command
    }

    /// The words after `semel` that do it, so many times where it is a part of something.
    pub(super) fn words(&self, operation: Operation, many: u32) -> Vec<String> {
        let run = |job: &str, more: &[&str]| -> Vec<String> {
            [&["run", "--job", job, "--once"], more].concat().into_iter().map(str::to_owned).collect()
        };
        match operation {
            Operation::Run => run("fresh", &["--", "/bin/true"]),
            Operation::Skip => run("first", &["--", "/bin/true"]),
            Operation::Step => {
                let step = |n| format!("'{}' step s{n} -- /bin/true\n", self.semel.display());
                let script: String = (0..many).map(step).collect();
                run("steps", &["--", "/bin/sh", "-ec", &script])
            }
            Operation::Item => {
                let items: String = (0..many).map(|n| format!("item-{n}\n")).collect();
                std::fs::write(self.path("items"), items).unwrap();
                let words =
                    ["batch", "items", "--job", "items", "--key", "line", "-j", "1", "--", "/bin/true"];
                words.map(str::to_owned).to_vec()
            }
            Operation::Renewal => {
                // it beats after three seconds, and is given two more by a machine that is busy
                let seconds = if many == 0 { "0" } else { "5" };
                run("long", &["--ttl", "9s", "--", "/bin/sleep", seconds])
            }
        }
    }

    /// How many pages the log of the ledger holds.
    pub(super) fn frames(&self) -> u64 {
        let log = std::fs::metadata(self.path("ledger.db-wal")).map_or(0, |log| log.len());
        log.saturating_sub(LOG_HEADER) / FRAME
    }

    /// Wait for its end, which must be a good one. Answers who it was.
    pub(super) fn end(&self, mut child: Child) -> u32 {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > LONG {
                let _ = child.kill();
                let _ = child.wait();
                panic!("it does not end within {LONG:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let said = || String::from_utf8_lossy(&std::fs::read(self.path("err")).unwrap()).into_owned();
        assert!(status.success(), "{status}: {}", said());
        child.id()
    }
}
