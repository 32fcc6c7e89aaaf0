//! Small helpers: marks, polling, specs, containments.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use semel_supervise::{Contain, Output, Spec, Stdin};

/// Poll until `ready` holds; fails the test after `limit`. Gives how long it took.
#[track_caller]
pub fn within(limit: Duration, what: &str, mut ready: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < limit, "after {limit:?} still not: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    start.elapsed()
}

pub const SOON: Duration = Duration::from_secs(20);

/// Found in the environment of every process of one test's tree. Kills what is left when dropped.
pub struct Mark(pub String);

impl Mark {
    pub fn new() -> Mark {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let now = semel_supervise::boottime().as_nanos();
        Mark(format!("{}-{now}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    pub fn bytes(&self) -> Vec<u8> {
        format!("TREE_MARK={}", self.0).into_bytes()
    }

    /// Living processes that carry the mark.
    pub fn alive(&self) -> Vec<i32> {
        let mark = self.bytes();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environ.windows(mark.len()).any(|part| part == mark) && state(pid) != Some('Z') {
                found.push(pid);
            }
        }
        found
    }
}

impl Mark {
    /// How many of them execute a program of that name. (One that carries the mark may still be a fork of the
    /// shell, on its way to the exec.)
    pub fn running(&self, name: &str) -> usize {
        let named = |pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
        };
        self.alive().iter().filter(|pid| named(pid)).count()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        for pid in self.alive() {
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

fn stat_field(pid: i32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.rsplit_once(") ")?.1;
    rest.split(' ').nth(field - 3).map(str::to_owned)
}

/// R, S, T, Z …; none: no such process.
pub fn state(pid: i32) -> Option<char> {
    stat_field(pid, 3)?.chars().next()
}

pub fn group_of(pid: i32) -> i32 {
    stat_field(pid, 5).unwrap().parse().unwrap()
}

pub fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

pub fn kill(pid: i32, signo: i32) {
    assert_eq!(unsafe { libc::kill(pid, signo) }, 0, "kill {pid}: {}", std::io::Error::last_os_error());
}

/// `program args…`, quiet, with PATH and the mark in its environment.
pub fn spec(mark: &Mark, program: &str, args: &[&str]) -> Spec {
    let path = std::env::var_os("PATH");
    let program_path = semel_supervise::resolve(program.as_ref(), path.as_deref(), None).unwrap();
    let argv = std::iter::once(program).chain(args.iter().copied()).map(OsString::from).collect();
    let mut spec = Spec::new(program_path, argv);
    spec.env = vec![("PATH".into(), path.unwrap()), ("TREE_MARK".into(), mark.0.clone().into())];
    spec.stdin = Stdin::Null;
    spec
}

pub fn sh(mark: &Mark, script: &str) -> Spec {
    spec(mark, "/bin/sh", &["-c", script])
}

/// A file for the command to write to, and what came into it.
pub struct Captured(PathBuf, #[allow(dead_code)] tempfile::TempDir);

impl Captured {
    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

pub fn capture(spec: &mut Spec) -> Captured {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    spec.stdout = Output::Fd(std::fs::File::create(&path).unwrap().into());
    Captured(path, dir)
}

/// A fifo that a script waits at (`read go < PATH`) until the test lets it pass.
pub struct Gate {
    pub path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Gate {
    pub fn new() -> Gate {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gate");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        Gate { path, _dir: dir }
    }

    pub fn open(&self) {
        std::fs::write(&self.path, "go\n").unwrap();
    }
}

/// Both strong containments; the cgroup only where one can be made.
pub fn containments() -> Vec<Contain> {
    let mark = Mark::new();
    let mut spec = spec(&mark, "true", &[]);
    spec.contain = Contain::Cgroup;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cgroup =
        std::thread::spawn(move || runtime.block_on(async { semel_supervise::Tree::spawn(spec).map(drop) }))
            .join()
            .unwrap();
    match cgroup {
        Ok(()) => vec![Contain::Subreaper, Contain::Cgroup],
        Err(error) => {
            println!("skipped with Cgroup: {error}");
            vec![Contain::Subreaper]
        }
    }
}
