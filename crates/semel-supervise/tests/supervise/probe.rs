//! S as a process of its own: this binary, started again, running the one test below.
//!
//! What it is to do comes in its environment, what happens goes line by line into a file.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use semel_supervise::{Contain, Keepers, Signals, Spec, Stdin, Tree, boottime};

use crate::support::{Mark, SOON, kill, within};

/// How the started S is seen from outside.
pub struct Probe {
    pub child: Child,
    log: Log,
    _dir: tempfile::TempDir,
}

#[derive(Clone)]
pub struct Log(pub PathBuf);

impl Log {
    /// The rest of the first line that starts with `word`.
    pub fn find(&self, word: &str) -> Option<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        // A line is taken only when it is complete.
        let line = text.split_inclusive('\n').find(|line| line.ends_with('\n') && line.starts_with(word))?;
        Some(line.trim_end()[word.len()..].trim_start().to_owned())
    }

    #[track_caller]
    pub fn wait_for(&self, word: &str) -> String {
        within(SOON, &format!("`{word}` in the log"), || self.find(word).is_some());
        self.find(word).unwrap()
    }

    pub fn pid(&self, word: &str) -> i32 {
        self.wait_for(word).parse().unwrap()
    }
}

/// The command line that makes this binary play S.
pub fn command(mark: &Mark, script: &str, contain: Contain, log: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["probe::play", "--exact", "--include-ignored", "--nocapture", "--test-threads=1"])
        .env("PROBE_SCRIPT", script)
        .env("PROBE_MARK", &mark.0)
        .env("PROBE_CONTAIN", format!("{contain:?}"))
        .env("PROBE_LOG", log);
    command
}

impl Probe {
    /// Start S with `sh -c script` as its command; returns when the command runs.
    pub fn start(mark: &Mark, script: &str, contain: Contain, options: &[(&str, &str)]) -> Probe {
        let dir = tempfile::tempdir().unwrap();
        let log = Log(dir.path().join("log"));
        let child = command(mark, script, contain, &log.0)
            .envs(options.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        log.wait_for("keeper");
        Probe { child, log, _dir: dir }
    }

    pub fn log(&self) -> Log {
        self.log.clone()
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub fn command(&self) -> i32 {
        self.log.pid("command")
    }

    pub fn keeper(&self) -> i32 {
        self.log.pid("keeper")
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            kill(self.pid(), libc::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

fn option(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn note(line: String) {
    let path = option("PROBE_LOG").unwrap();
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[test]
#[ignore = "not a test: plays the supervising process for the others"]
fn play() {
    let Some(script) = option("PROBE_SCRIPT") else { return };
    let mut spec = Spec::new("/bin/sh", vec!["sh".into(), "-c".into(), script.into()]);
    spec.env =
        std::env::vars_os().filter(|(name, _)| name != "PROBE_SCRIPT" && name != "TREE_MARK").collect();
    spec.env.push(("TREE_MARK".into(), option("PROBE_MARK").unwrap().into()));
    spec.stdin = Stdin::Auto;
    spec.contain = match option("PROBE_CONTAIN").as_deref() {
        Some("Cgroup") => Contain::Cgroup,
        Some("Subreaper") => Contain::Subreaper,
        Some("Group") => Contain::Group,
        _ => Contain::Auto,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(supervise(spec));
}

async fn supervise(spec: Spec) {
    let mut signals = Signals::install().unwrap();
    // a keeper that has had a command before
    let keepers = Keepers::default();
    let mut tree = match option("PROBE_STAYS") {
        Some(_) => {
            let mut first = Spec::new("/bin/true", vec!["true".into()]);
            (first.stdin, first.contain) = (Stdin::Null, spec.contain);
            let mut first = keepers.start(first).await.unwrap();
            let keeper = first.keeper();
            first.wait().await;
            first.finish(Duration::ZERO).await;
            let tree = keepers.start(Spec { stdin: Stdin::Null, ..spec }).await.unwrap();
            assert_eq!(tree.keeper(), keeper);
            tree
        }
        None => Tree::spawn(spec).unwrap(),
    };
    if let Some(ms) = option("PROBE_DEADLINE_MS") {
        tree.set_deadline(Some(boottime() + Duration::from_millis(ms.parse().unwrap()))).unwrap();
    }
    note(format!("command {}", tree.pid()));
    note(format!("containment {:?} shares {}", tree.containment(), tree.shares_terminal()));
    note(format!("keeper {}", tree.keeper().pid));
    let ended = loop {
        tokio::select! {
            ended = tree.wait() => break ended,
            caught = signals.next() => {
                note(format!("caught {} {}", caught.signo, caught.from_terminal));
                if !(caught.from_terminal && tree.shares_terminal()) {
                    tree.signal(caught.signo).unwrap();
                }
            }
        }
    };
    note(format!("ended {:?} {}", ended.exit, ended.by_deadline));
    let left = tree.finish(Duration::from_millis(200)).await;
    note(format!("left {} {} {}", left.count, left.by_deadline, left.keeper_died));
}
