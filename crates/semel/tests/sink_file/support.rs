//! A folder for each test, the helper process.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use semel::sink::file::{Fence, FileSink, FileSinkError, Refusal, Wrote};
use semel_core::name::Name;
use semel_core::token::{Grant, Nonce, Token};

/// Long enough for anything on a busy machine; only a failing test waits for it.
pub(crate) const SOON: Duration = Duration::from_secs(30);

#[track_caller]
pub(crate) fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    let mut turns = 0;
    while !ready() {
        assert!(start.elapsed() < SOON, "after {SOON:?} still not: {what}");
        turns += 1;
        std::thread::sleep(Duration::from_micros(if turns < 50 { 100 } else { 2_000 }));
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A grant, whose nonce is told from its token.
pub(crate) fn grant(token: u64) -> Grant {
    grant_with(token, 1)
}

pub(crate) fn grant_with(token: u64, nonce: u8) -> Grant {
    Grant { token: Token::new(token).unwrap(), nonce: Nonce::from_bytes([nonce; 16]) }
}

/// What the helper process writes with this token: any part of it is known as a part.
pub(crate) fn content(token: u64) -> String {
    let word = token.to_string();
    let lines = word.bytes().map(usize::from).sum::<usize>() * 7;
    format!("{}end {word}\n", format!("{word}\n").repeat(lines))
}

/// The token whose content this is; anything torn or mixed fails the test.
#[track_caller]
pub(crate) fn token_in(text: &str) -> u64 {
    let token =
        text.lines().last().and_then(|line| line.strip_prefix("end ")).map(|word| word.parse().unwrap());
    let token =
        token.unwrap_or_else(|| panic!("torn: {} bytes, ending in {:?}", text.len(), text.lines().last()));
    assert!(text == content(token), "a mixture that ends with {token}");
    token
}

pub(crate) fn why(result: &Result<Wrote, FileSinkError>) -> Option<Refusal> {
    match result {
        Err(FileSinkError::Refused(refused)) => Some(refused.why),
        _ => None,
    }
}

/// A folder with a target in it, or soon in it.
pub(crate) struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder { dir: tempfile::Builder::new().prefix("semel-file-").tempdir().unwrap() }
    }

    /// In memory where there is such a place: for many rounds of what no disk decides.
    pub(crate) fn quick() -> Folder {
        let dir = tempfile::Builder::new().prefix("semel-file-").tempdir_in("/dev/shm");
        dir.map_or_else(|_| Folder::new(), |dir| Folder { dir })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.path("target.txt")
    }

    pub(crate) fn sink(&self) -> FileSink {
        FileSink::new(self.target()).lock_wait(SOON)
    }

    /// Write the content of this token.
    pub(crate) fn write(&self, token: u64) -> Result<Wrote, FileSinkError> {
        self.sink().write(&name("site"), &grant(token), content(token).as_bytes())
    }

    /// The token whose content the target holds; 0 if there is no target.
    #[track_caller]
    pub(crate) fn holds(&self) -> u64 {
        match std::fs::read_to_string(self.target()) {
            Ok(text) => token_in(&text),
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => 0,
            Err(why) => panic!("{why}"),
        }
    }

    pub(crate) fn fence(&self) -> Option<Fence> {
        self.sink().fence().unwrap()
    }

    /// The fence's token; 0 if nothing was accepted.
    #[track_caller]
    pub(crate) fn fenced(&self) -> u64 {
        self.fence().and_then(|fence| fence.last).map_or(0, |grant| grant.token.value())
    }

    /// Every name in the folder.
    pub(crate) fn names(&self) -> Vec<String> {
        let listed = std::fs::read_dir(self.dir.path()).unwrap().flatten();
        let mut names: Vec<_> = listed.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The helper process, which stops itself at this place.
    pub(crate) fn probe(&self, crash_at: Option<&str>) -> Probe {
        Probe::start(&self.target(), crash_at)
    }
}

/// A process that obeys. Killed when dropped.
pub(crate) struct Probe {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    marks: tempfile::TempDir,
}

impl Probe {
    fn start(target: &Path, crash_at: Option<&str>) -> Probe {
        Probe::start_with(target, crash_at, |_| {}).unwrap()
    }

    pub(crate) fn start_with(
        target: &Path,
        crash_at: Option<&str>,
        more: impl FnOnce(&mut Command),
    ) -> std::io::Result<Probe> {
        let marks = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_semel-file-probe"));
        command.arg(target).stdin(Stdio::piped()).stdout(Stdio::piped()).env("CRASH_DIR", marks.path());
        if let Some(place) = crash_at {
            command.env("CRASH_AT", place);
        }
        more(&mut command);
        let mut child = command.spawn()?;
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Ok(Probe { child, orders, answers, marks })
    }

    /// It stops itself once for each order.
    pub(crate) fn order(&mut self, order: &str) {
        let _ = std::fs::remove_file(self.marks.path().join("reached"));
        self.orders.write_all(format!("{order}\n").as_bytes()).unwrap();
    }

    #[track_caller]
    pub(crate) fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    /// Wait until it has stopped itself.
    #[track_caller]
    pub(crate) fn wait_stopped(&self) {
        let stat = format!("/proc/{}/stat", self.child.id());
        until("it is stopped", || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T')
        });
    }

    #[track_caller]
    pub(crate) fn go_on(&self) {
        // SAFETY: no memory is involved.
        assert_eq!(unsafe { libc::kill(self.child.id().cast_signed(), libc::SIGCONT) }, 0);
    }

    /// End it as a power cut would.
    pub(crate) fn kill_9(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
