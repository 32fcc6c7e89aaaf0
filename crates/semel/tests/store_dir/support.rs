//! A store in a temp folder, and processes that use it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use semel::core::record::{Expect, RecordKey};
use semel::store::dir::Dir;
use semel::store::{Change, Record, Settings, Store};
use tempfile::TempDir;

pub(crate) const PROBE: &str = env!("CARGO_BIN_EXE_semel-store-probe");
pub(crate) const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

pub(crate) fn open(path: &Path) -> Dir {
    Dir::open(path, &Settings::default()).unwrap()
}

pub(crate) fn key(text: &str) -> RecordKey {
    RecordKey::from_stored(text.to_owned())
}

pub(crate) fn put(name: &str, expect: Expect, value: &str, ttl: Option<Duration>) -> Change {
    Change::Put { key: key(name), expect, value: value.as_bytes().to_vec(), ttl }
}

pub(crate) async fn load(store: &dyn Store, name: &str) -> Option<Record> {
    store.load(&[key(name)]).await.unwrap().records.remove(0)
}

/// A folder for one test.
pub(crate) struct Folder {
    pub(crate) temp: TempDir,
    pub(crate) path: PathBuf,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        let temp = tempfile::tempdir().unwrap();
        Folder { path: temp.path().join("store"), temp }
    }

    /// In memory, where there is such a place: for tests that kill processes and cut no power, so need no disk.
    pub(crate) fn in_memory() -> Folder {
        let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Folder { path: temp.path().join("store"), temp }
    }

    pub(crate) fn url(&self) -> String {
        format!("dir:{}", self.path.display())
    }

    pub(crate) fn store(&self) -> Dir {
        open(&self.path)
    }

    /// The names in a folder of the store.
    pub(crate) fn names(&self, below: &str) -> Vec<String> {
        let Ok(listed) = std::fs::read_dir(self.path.join(below)) else { return Vec::new() };
        let mut names: Vec<_> =
            listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Set the times of everything below to two hours ago, as if it had been left there then.
    pub(crate) fn age(&self, below: &str) {
        let status = Command::new("find")
            .arg(self.path.join(below))
            .args(["-exec", "touch", "-d", "2 hours ago", "{}", "+"])
            .status();
        assert!(status.unwrap().success());
    }

    /// Run the probe to its end, as the last words of another command: its answers.
    pub(crate) fn run(&self, before: &[&str], orders: &[&str]) -> Vec<String> {
        let mut words = before.to_vec();
        let url = self.url();
        words.extend([PROBE, &url]);
        let mut child = Command::new(words[0])
            .args(&words[1..])
            // the search for libraries along it is of no interest here
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|why| panic!("this test needs {}: {why}", words[0]));
        // it may be killed before it has read them all
        let _ = child.stdin.take().unwrap().write_all((orders.join("\n") + "\n").as_bytes());
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }
}

/// A running probe. It is killed when dropped.
pub(crate) struct Probe {
    pub(crate) child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Probe {
    pub(crate) fn start(folder: &Folder, variables: &[(&str, String)]) -> Probe {
        let mut command = Command::new(PROBE);
        command.arg(folder.url()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.envs(variables.iter().map(|(k, v)| (k, v))).spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut probe = Probe { child, orders, answers: BufReader::new(answers) };
        assert_eq!(probe.ask("open"), "ok open");
        probe
    }

    pub(crate) fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: the process is our child and has not been waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
