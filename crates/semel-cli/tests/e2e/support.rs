//! A home of its own for every test, and what is started in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::processes::{carrying, is_alive, is_stopped, kill, name, parent};

/// Long enough for anything on a busy machine; only a failing test waits for it.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Wait for a condition; fails the test after `limit`. Answers how long it took.
#[track_caller]
pub(crate) fn until(what: &str, limit: Duration, mut ready: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < limit, "after {limit:?} still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Said {
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Said {
        assert_eq!(self.code, code, "stderr: {}\nstdout: {}", self.err, String::from_utf8_lossy(&self.out));
        self
    }

    /// On stderr, at least this.
    #[track_caller]
    pub(crate) fn saying(self, part: &str) -> Said {
        assert!(self.err.contains(part), "{part:?} is not in: {}", self.err);
        self
    }

    #[track_caller]
    pub(crate) fn silent(self) -> Said {
        assert_eq!(self.err, "");
        self
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap().trim_end().to_owned()
    }

    /// The last line of stderr (`run --json`) or of stdout (answers), as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        let text = if self.out.is_empty() { self.err.clone() } else { self.text() };
        serde_json::from_str(text.lines().last().unwrap_or_default())
            .unwrap_or_else(|why| panic!("{why}: {text}"))
    }
}

fn code(status: ExitStatus) -> i32 {
    // a shell's way to say it
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// A directory with a ledger, a state directory and nothing else; every process started in it carries its mark,
/// and is killed with it.
pub(crate) struct Home {
    dir: tempfile::TempDir,
    mark: String,
    count: AtomicU32,
}

impl Home {
    pub(crate) fn new() -> Home {
        let dir = tempfile::Builder::new().prefix("semel-e2e-").tempdir().unwrap();
        let mark = format!("E2E_HOME={}", dir.path().display());
        Home { dir, mark, count: AtomicU32::new(0) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("store/ledger.db")
    }

    /// The ledger of this home: a file in it, or a corner of its own in the store that `E2E_STORE` names, where `{}`
    /// stands for what tells homes apart.
    pub(crate) fn store(&self) -> String {
        match std::env::var("E2E_STORE") {
            Ok(address) => address.replace("{}", &self.corner()),
            Err(_) => format!("sqlite:{}", self.database().display()),
        }
    }

    /// What tells this home from others, in letters and digits.
    fn corner(&self) -> String {
        let name = self.dir.path().file_name().unwrap().to_string_lossy().to_lowercase();
        let letters: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        format!("{letters}{}", std::process::id())
    }

    pub(crate) fn state_dir(&self) -> PathBuf {
        self.path("state/semel")
    }

    /// Any program in this home, with a clean environment.
    pub(crate) fn plain(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.dir.path()).stdin(Stdio::null());
        command
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8");
        command.env("HOME", self.path("home")).env("XDG_STATE_HOME", self.path("state")).env("TZ", "UTC");
        command.env("E2E_HOME", self.dir.path()).env("SEMEL", build());
        // what the store of E2E_STORE needs beside its address
        for (name, value) in std::env::vars() {
            if let Some(name) = name.strip_prefix("E2E_VAR_") {
                command.env(name, value);
            }
        }
        command
    }

    /// A shell script without Semel, for controls.
    pub(crate) fn script(&self, text: &str) -> Command {
        let mut command = self.plain("/bin/sh");
        command.args(["-c", text]);
        command
    }

    /// `semel` with these arguments.
    pub(crate) fn semel<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.plain(build());
        command.env("SEMEL_STORE", self.store()).args(args);
        command
    }

    /// `semel run FLAGS -- sh -c SCRIPT`, the flags separated by spaces.
    pub(crate) fn work(&self, flags: &str, script: &str) -> Command {
        let mut command = self.semel(["run"]);
        command.args(flags.split_whitespace()).args(["--", "sh", "-c", script]);
        command
    }

    /// Start `semel run FLAGS -- sh -c SCRIPT`.
    pub(crate) fn start(&self, flags: &str, script: &str) -> Running {
        self.launch(&mut self.work(flags, script))
    }

    /// Do `semel run FLAGS -- sh -c SCRIPT`.
    #[track_caller]
    pub(crate) fn run(&self, flags: &str, script: &str) -> Said {
        self.start(flags, script).end()
    }

    /// Do `semel ARGS`, separated by spaces.
    #[track_caller]
    pub(crate) fn ask(&self, args: &str) -> Said {
        self.launch(&mut self.semel(args.split_whitespace())).end()
    }

    /// Start it, with its output in files: whoever inherits those keeps nobody waiting.
    #[track_caller]
    pub(crate) fn launch(&self, command: &mut Command) -> Running {
        let n = self.count.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.path(&format!("out.{n}")), self.path(&format!("err.{n}")));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        Running { child: command.spawn().unwrap(), out, err }
    }

    /// Start it, and kill it where it comes to that place: it needs a build with `crash-points`.
    #[cfg(feature = "crash-points")]
    #[track_caller]
    pub(crate) fn crash(&self, place: &str, command: &mut Command) {
        let dir = self.path(&format!("crash.{}", self.count.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir(&dir).unwrap();
        let mut run = self.launch(command.env("CRASH_AT", place).env("CRASH_DIR", &dir));
        let reached = dir.join("reached");
        until(&format!("{place} is reached"), SOON, || reached.exists() || run.has_ended());
        assert!(reached.exists(), "it ended without coming to {place}: {}", run.err());
        run.kill_9();
    }

    /// The lines that commands appended to this file: their effects.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read(self.path(name)).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
    }

    /// The lines that are there after at least `n` have come.
    #[track_caller]
    pub(crate) fn wait_lines(&self, name: &str, n: usize) -> Vec<String> {
        until(&format!("{n} lines in {name}"), SOON, || self.lines(name).len() >= n);
        self.lines(name)
    }

    /// The numbers in this file, one a line.
    #[track_caller]
    pub(crate) fn numbers(&self, name: &str) -> Vec<i64> {
        self.lines(name).iter().map(|line| line.parse().unwrap()).collect()
    }

    /// The tokens in this file, one a line, as their places among all of them: the least is 1 on every store, wherever
    /// its own begin.
    #[track_caller]
    pub(crate) fn ranks(&self, name: &str) -> Vec<usize> {
        let numbers = self.numbers(name);
        let mut all = numbers.clone();
        all.sort_unstable();
        all.dedup();
        numbers.iter().map(|number| all.partition_point(|other| other < number) + 1).collect()
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A file that can be executed.
    pub(crate) fn executable_with(&self, name: &str, content: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.write(name, content);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        path
    }

    /// A shell script that can be executed.
    pub(crate) fn executable(&self, name: &str, script: &str) -> PathBuf {
        self.executable_with(name, &format!("#!/bin/sh\n{script}\n"))
    }

    /// Everything that lives in this home.
    pub(crate) fn alive(&self) -> Vec<i32> {
        carrying(&self.mark)
    }

    /// A fifo at which scripts wait (`read go < NAME`).
    pub(crate) fn gate(&self, name: &str) -> Gate {
        let path = self.path(name);
        let text = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a nul.
        assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0);
        // opened for both, it neither blocks nor forgets
        Gate(File::options().read(true).write(true).open(path).unwrap())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let start = Instant::now();
        loop {
            let alive = self.alive();
            if alive.is_empty() || start.elapsed() > SOON {
                return;
            }
            for pid in alive {
                // SAFETY: no memory is involved; it may have ended by now.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A fifo at which scripts wait.
pub(crate) struct Gate(File);

impl Gate {
    /// Let so many pass.
    pub(crate) fn open(&mut self, times: usize) {
        self.0.write_all("go\n".repeat(times).as_bytes()).unwrap();
    }
}

/// A process of ours. Killed and reaped when dropped.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    #[track_caller]
    pub(crate) fn signal(&self, signo: i32) {
        kill(self.pid(), signo);
        if signo == libc::SIGSTOP {
            until("it is stopped", SOON, || is_stopped(self.pid()));
        }
    }

    /// Its input, where it was piped: whoever drops it ends it.
    pub(crate) fn take_stdin(&mut self) -> ChildStdin {
        self.child.stdin.take().unwrap()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it has said on stderr so far.
    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.err).unwrap()).into_owned()
    }

    /// The keeper of its tree.
    #[track_caller]
    pub(crate) fn keeper(&self, home: &Home) -> i32 {
        let is_keeper = |pid: &i32| parent(*pid) == Some(self.pid()) && name(*pid).starts_with("semel-");
        let mut found = None;
        until("a keeper", SOON, || {
            found = home.alive().into_iter().find(is_keeper);
            found.is_some()
        });
        found.unwrap()
    }

    /// Wait for its end.
    #[track_caller]
    pub(crate) fn end(self) -> Said {
        self.end_within(SOON)
    }

    /// Wait for its end, so long at most.
    #[track_caller]
    pub(crate) fn end_within(mut self, limit: Duration) -> Said {
        until("its end", limit, || self.has_ended());
        let status = self.child.wait().unwrap();
        Said { code: code(status), out: std::fs::read(&self.out).unwrap(), err: self.err() }
    }

    /// End it as a power cut would.
    #[track_caller]
    pub(crate) fn kill_9(self) -> Said {
        self.signal(libc::SIGKILL);
        self.end()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended() {
            // kill works on a stopped process too
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Wait until none of these lives.
#[track_caller]
pub(crate) fn until_gone(pids: &[i64], limit: Duration) -> Duration {
    until("all of them are gone", limit, || pids.iter().all(|pid| !is_alive(i32::try_from(*pid).unwrap())))
}

/// The binary that plays: this build's, or the one that `SEMEL_BUILD` names, where a ledger of another build is made.
fn build() -> std::ffi::OsString {
    std::env::var_os("SEMEL_BUILD").unwrap_or_else(|| env!("CARGO_BIN_EXE_semel").into())
}

/// A test that cannot be done here, said so that nobody takes it for done.
#[allow(clippy::disallowed_methods)] // `cargo xtask test` says where skips are collected
pub(crate) fn skipped(name: &str, reason: impl std::fmt::Display) {
    println!("SKIPPED: {name}: {reason}");
    if let Some(log) = std::env::var_os("SEMEL_SKIP_LOG") {
        let mut log = File::options().create(true).append(true).open(log).unwrap();
        std::io::Write::write_all(&mut log, format!("semel-cli {name}: {reason}\n").as_bytes()).unwrap();
    }
}

/// The permission bits of a file.
pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}
