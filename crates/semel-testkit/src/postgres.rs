//! A PostgreSQL server for one test: its own cluster in a folder of its own, reached only through a socket in that
//! folder, gone with the test.
//!
//! A test may be killed at any time, so the server does not depend on its good will: a shell stands between the two
//! and ends the server, and removes the folder, when its stdin reaches the end. That is when [`Postgres`] is
//! dropped, or when the test's process is gone.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// What the shell does: `$1` is the folder, the rest the server's command.
const WATCH: &str = r#"
    dir=$1; shift
    exec 3<&0
    "$@" </dev/null >"$dir/log" 2>&1 3<&- &
    server=$!
    ( cat <&3 >/dev/null; kill -QUIT $server 2>/dev/null ) &
    watcher=$!
    exec 3<&- </dev/null
    wait $server
    : >"$dir/gone"
    wait $watcher
    rm -rf "$dir"
"#;

/// Where the server writes that it is ready, and the most that a busy machine needs until then.
const READY: (&str, Duration) = ("data/postmaster.pid", Duration::from_secs(60));

/// A running server. Its superuser is `semel`, its database `semel`; it is as fast as a server that need not
/// survive a power cut can be.
#[derive(Debug)]
pub struct Postgres {
    dir: PathBuf,
    watch: Child,
}

impl Postgres {
    /// A new server; or the reason why there can be none on this machine, for the test to skip itself by.
    pub fn start() -> Result<Postgres, String> {
        Postgres::start_with(&[])
    }

    /// As [`start`](Postgres::start), with settings (`name=value`) of the server.
    pub fn start_with(settings: &[&str]) -> Result<Postgres, String> {
        let bin = programs().ok_or("no PostgreSQL server is installed (Debian: postgresql)")?;
        let user = User::for_server()?;
        let dir = user.folder();
        user.call(&bin.join("initdb"), dir.path(), |initdb| {
            initdb.args(["--no-sync", "--auth=trust", "--username=semel", "--encoding=UTF8", "--locale=C"]);
            initdb.arg("--pgdata").arg(dir.path().join("data"));
        });
        // from here on the shell removes it
        let dir = dir.keep();
        let mut shell = user.command(Path::new("/bin/sh"), &dir);
        shell.args(["-c", WATCH, "semel-testkit"]).arg(&dir);
        shell.arg(bin.join("postgres")).arg("-D").arg(dir.join("data")).arg("-k").arg(&dir);
        let fast = ["fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_wal_senders=0"];
        let small = ["listen_addresses=", "shared_buffers=16MB", "wal_level=minimal", "max_connections=200"];
        for setting in fast.iter().chain(&small).chain(settings) {
            shell.arg("-c").arg(setting);
        }
        // out of the test's group: what is sent to the group would end the shell before it has tidied
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Postgres { watch: shell.spawn().expect("/bin/sh"), dir };
        server.wait_until_ready();
        let socket = server.dir.clone();
        user.call(&bin.join("createdb"), &server.dir, |createdb| {
            createdb.arg("--host").arg(&socket).args(["--username=semel", "semel"]);
        });
        Ok(server)
    }

    /// `postgres://…`, for any client: the socket's folder is the host, escaped.
    pub fn url(&self) -> String {
        let mut host = String::new();
        for byte in self.dir.as_os_str().as_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => host.push(char::from(*byte)),
                _ => write!(host, "%{byte:02X}").unwrap(),
            }
        }
        format!("postgres://semel@{host}/semel")
    }

    /// The folder that holds the socket, `.s.PGSQL.5432`, and all else of this server.
    pub fn folder(&self) -> &Path {
        &self.dir
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    fn wait_until_ready(&self) {
        let start = Instant::now();
        let ready = || fs::read_to_string(self.dir.join(READY.0)).is_ok_and(|text| text.contains("ready"));
        while !ready() {
            assert!(!self.dir.join("gone").exists(), "PostgreSQL ended: {}", self.log());
            assert!(start.elapsed() < READY.1, "PostgreSQL does not get ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        let _ = self.watch.wait();
    }
}

/// As whom the server runs: PostgreSQL refuses root.
pub(crate) struct User {
    pub(crate) other: Option<(u32, u32)>,
}

impl User {
    pub(crate) fn for_server() -> Result<User, String> {
        // SAFETY: no memory is involved.
        if unsafe { libc::geteuid() } != 0 {
            return Ok(User { other: None });
        }
        let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let find = |name: &str| {
            let line = known.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut ids = line.split(':').skip(2).map(str::parse);
            Some((ids.next()?.ok()?, ids.next()?.ok()?))
        };
        let other = find("postgres").or_else(|| find("nobody"));
        other.map(|other| User { other: Some(other) }).ok_or_else(|| "no user but root is here".to_owned())
    }

    /// A folder of this user, short enough for a socket's path and open to nobody else.
    fn folder(&self) -> TempDir {
        // root's own temporary folder may be closed to the other user
        let parent = if self.other.is_some() { PathBuf::from("/tmp") } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("semel-pg-").tempdir_in(parent).unwrap();
        if let Some((uid, gid)) = self.other {
            chown(dir.path(), Some(uid), Some(gid)).unwrap();
        }
        dir
    }

    fn command(&self, program: &Path, dir: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(dir).env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").env("TZ", "UTC");
        if let Some((uid, gid)) = self.other {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Run a program to its end. If it fails, so does the test, with what it said.
    pub(crate) fn call(&self, program: &Path, dir: &Path, with: impl FnOnce(&mut Command)) {
        let mut command = self.command(program, dir);
        with(&mut command);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {}: {said}", program.display(), output.status);
    }
}

/// Where the server's programs are: on the PATH, or where Debian keeps them, the newest version first.
pub(crate) fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort();
    let debian = versions.into_iter().rev().map(|(_, bin)| bin);
    // initdb looks for its neighbours where it really lies
    let on_path = std::env::split_paths(&path).filter_map(|dir| {
        let initdb = fs::canonicalize(dir.join("initdb")).ok()?;
        Some(initdb.parent()?.to_owned())
    });
    on_path
        .chain(debian)
        .find(|bin| ["initdb", "postgres", "createdb"].iter().all(|name| works(&bin.join(name))))
}

fn works(program: &Path) -> bool {
    let executable = fs::metadata(program).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0);
    let said = || Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    executable && said().is_ok_and(|status| status.success())
}
