//! A server for one test: started in a folder of its own on free loopback ports, killed, stopped, continued and started
//! again at will, gone with the test.
//!
//! A test may be killed at any time, so nothing depends on its good will: a shell stands between the two. It starts the
//! server when it is told to, and when its stdin ends (the [`Server`] is dropped, or the test's process is gone) it
//! kills the server and removes the folder.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Chance;

const SHELL: &str = r#"
    dir=$1; shift
    while read -r word; do
        "$@" </dev/null >>"$dir/log" 2>&1 &
        echo $! >"$dir/pid.new"
        mv "$dir/pid.new" "$dir/pid"
    done
    [ -f "$dir/pid" ] && kill -KILL "$(cat "$dir/pid")" 2>/dev/null
    wait
    rm -rf "$dir"
    kill -KILL 0
"#;

/// The most that a busy machine needs until a server is ready, or gone.
const READY: Duration = Duration::from_secs(90);
/// How often other ports are tried, when somebody took those that were free.
const TRIES: u32 = 5;

/// What to start: the words of a command, and as whom.
#[derive(Debug, Default)]
pub struct Recipe {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// What stands in its environment beside the path.
    pub env: Vec<(String, String)>,
    /// Another user and group, for servers that refuse root.
    pub user: Option<(u32, u32)>,
}

impl Recipe {
    /// These words.
    pub fn new<I: IntoIterator<Item = W>, W: Into<OsString>>(words: I) -> Recipe {
        Recipe { words: words.into_iter().map(Into::into).collect(), ..Recipe::default() }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    dir: PathBuf,
    ports: Ports,
    shell: Child,
    orders: Option<ChildStdin>,
    ready: fn(&Server) -> bool,
}

impl Server {
    /// Start what `recipe` makes of a new folder and so many free ports, and wait until `ready` says so.
    pub fn start(
        name: &'static str,
        ports: usize,
        recipe: impl Fn(&Path, &[u16]) -> Recipe,
        ready: fn(&Server) -> bool,
    ) -> Server {
        let mut said = String::new();
        for _ in 0..TRIES {
            let mut server = Server::spawn(name, Ports::take(ports), &recipe, ready);
            match server.wait_until_ready() {
                Ok(()) => return server,
                Err(why) => said = why,
            }
        }
        panic!("{name} does not start: {said}");
    }

    fn spawn(
        name: &'static str,
        ports: Ports,
        recipe: &impl Fn(&Path, &[u16]) -> Recipe,
        ready: fn(&Server) -> bool,
    ) -> Server {
        // short, for the paths of sockets, and outside of a folder that is closed to other users
        let dir = tempfile::Builder::new().prefix(&format!("semel-{name}-")).tempdir_in("/tmp").unwrap();
        let Recipe { words, env, user } = recipe(dir.path(), &ports.numbers);
        let dir = dir.keep();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SHELL, "semel-testkit"]).arg(&dir).args(words);
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
        shell
            .current_dir(&dir)
            .env_clear()
            .env("PATH", path)
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .env("HOME", &dir);
        shell.envs(env);
        if let Some((uid, gid)) = user {
            chown(&dir, Some(uid), Some(gid)).unwrap();
            shell.uid(uid).gid(gid);
        }
        // out of the test's group: what is sent to the group would end the shell before it has tidied
        shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = shell.spawn().expect("/bin/sh");
        let orders = shell.stdin.take();
        let mut server = Server { name, dir, ports, shell, orders, ready };
        server.order();
        server
    }

    fn order(&mut self) {
        let _ = fs::remove_file(self.dir.join("pid"));
        let orders = self.orders.as_mut().expect("the shell reads");
        orders.write_all(b"start\n").and_then(|()| orders.flush()).expect("the shell lives");
        let file = self.dir.join("pid");
        wait_for(self.name, "its pid", || file.exists());
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while !(self.ready)(self) {
            if !self.is_alive() {
                return Err(format!("it ended: {}", self.log()));
            }
            if begun.elapsed() > READY {
                return Err(format!("it does not get ready: {}", self.log()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Kill -9, and wait until it is gone. Its folder stays.
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        wait_for(self.name, "its end", || !self.is_alive());
    }

    /// Start it again where it was, after it was killed, and wait until it is ready.
    pub fn start_again(&mut self) {
        // a server of several processes may need a moment until the last of them has let go
        let mut said = String::new();
        for _ in 0..TRIES {
            self.order();
            match self.wait_until_ready() {
                Ok(()) => return,
                Err(why) => said = why,
            }
            if self.is_alive() {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("{} does not start again: {said}", self.name);
    }

    /// Stop its process: it answers nobody.
    pub fn pause(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// Let a stopped process go on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Send its process a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: no memory is involved.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Its process.
    pub fn pid(&self) -> i32 {
        let text = fs::read_to_string(self.dir.join("pid")).expect("it was started");
        text.trim().parse().expect("a pid")
    }

    fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    }

    /// The folder of all its files.
    pub fn folder(&self) -> &Path {
        &self.dir
    }

    /// One of its ports.
    pub fn port(&self, index: usize) -> u16 {
        self.ports.numbers[index]
    }

    /// The loopback address of one of its ports.
    pub fn address(&self, index: usize) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.numbers[index]))
    }

    /// Does somebody listen at its first port?
    pub fn listens(&self) -> bool {
        TcpStream::connect_timeout(&self.address(0), Duration::from_secs(1)).is_ok()
    }

    /// What it said.
    pub fn log(&self) -> String {
        fs::read(self.dir.join("log"))
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _ = self.shell.wait();
    }
}

fn wait_for(name: &str, what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < READY, "{name}: waited too long for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Free ports, and what keeps other tests from them: a lock on a file each, which ends with this.
#[derive(Debug)]
struct Ports {
    numbers: Vec<u16>,
    /// Held, and never looked at.
    locks: Vec<File>,
}

impl Ports {
    /// Below those that the system hands out to clients, so that none of them is taken by a connection.
    const RANGE: Range<u16> = 10_000..32_000;

    fn take(many: usize) -> Ports {
        let mut ports = Ports { numbers: Vec::new(), locks: Vec::new() };
        let folder = Path::new("/tmp/semel-testkit-ports");
        let _ = fs::create_dir(folder);
        let mut chance = Chance::silent();
        while ports.numbers.len() < many {
            let port =
                Ports::RANGE.start + chance.below(u64::from(Ports::RANGE.end - Ports::RANGE.start)) as u16;
            let name = folder.join(port.to_string());
            let Ok(lock) = File::options().create(true).append(true).open(name) else { continue };
            if lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
                ports.numbers.push(port);
                ports.locks.push(lock);
            }
        }
        ports
    }
}

/// Free ports that are this process's own until it ends.
pub fn free_ports(many: usize) -> Vec<u16> {
    let mut ports = Ports::take(many);
    std::mem::forget(std::mem::take(&mut ports.locks));
    ports.numbers
}

/// A program: on the PATH, or where `cargo xtask servers` installs what is no Debian package.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let servers = std::env::var_os("SEMEL_SERVERS").map_or(target.join("servers"), PathBuf::from);
    let ours = ["venv/bin", "node_modules/.bin"].map(|dir| servers.join(dir));
    let sbin = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    ours.into_iter()
        .chain(std::env::split_paths(&path))
        .chain(sbin)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .and_then(|file| std::path::absolute(file).ok())
}

/// A program that a test needs. Without it the test fails: `cargo xtask servers` installs it.
pub fn needed(name: &str) -> PathBuf {
    program(name).unwrap_or_else(|| panic!("{name} is missing: install it with cargo xtask servers"))
}

/// The library that sets a child's clock wrong, where Debian keeps it, whatever the machine.
pub fn faketime() -> Option<String> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten().map(|folder| folder.path());
    let mut files = folders.map(|folder| folder.join("faketime/libfaketime.so.1"));
    files.find(|file| file.is_file()).map(|file| file.display().to_string())
}
