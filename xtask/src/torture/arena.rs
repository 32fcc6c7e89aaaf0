//! Where it happens: a store with its private server, a proxy for each lane, and what else the faults need.

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use semel_testkit::{Azurite, Etcd, Moto, NatsVersion, OnDisk, PgServer, Proxy, Redis, Server, nats};

use super::contender::{Contender, SCRIPTS};
use super::nemesis::Arms;
use super::procs;

/// The stores, by the names that `--store` takes.
pub(crate) const STORES: [&str; 9] = ["sqlite", "dir", "postgres", "redis", "etcd", "nats", "s3", "gs", "az"];

/// The longest that firings may take to end once the faults have.
const PATIENCE: Duration = Duration::from_secs(90);

/// How large the disk is that gets full.
const DISK: &str = "size=6m,mode=700";

/// A server, for as long as it is needed.
enum Held {
    Nothing,
    Postgres(PgServer),
    Redis(Redis),
    Etcd(Etcd),
    Plain(Server),
    /// Killed, it would forget what it answered.
    NotKilled {
        _server: Server,
    },
}

impl Held {
    fn server(&mut self) -> Option<&mut Server> {
        match self {
            Held::Nothing | Held::NotKilled { .. } => None,
            Held::Postgres(server) => Some(server.server()),
            Held::Redis(redis) => Some(&mut redis.server),
            Held::Etcd(etcd) => Some(etcd.server()),
            Held::Plain(server) => Some(server),
        }
    }
}

/// A store and all around it.
pub(crate) struct Arena {
    pub(crate) store: String,
    pub(crate) semel: PathBuf,
    /// Everything of this run lies below it.
    pub(crate) base: PathBuf,
    held: Mutex<Held>,
    address: String,
    /// Where its server listens, and how that stands in its address.
    server: Option<(SocketAddr, String)>,
    pub(crate) variables: Vec<(&'static str, String)>,
    /// How often the server was killed.
    pub(crate) kills: AtomicU64,
    /// A round has been trying to converge for long: the server is left alone meanwhile.
    pub(crate) spared: AtomicBool,
    /// Redis for the control.
    redis: Option<Redis>,
    pub(crate) faketime: Option<PathBuf>,
    pub(crate) shim: Option<PathBuf>,
    pub(crate) arms: Arms,
    /// What is not injected here, and why.
    pub(crate) not_done: Vec<String>,
    /// Where the files of the ledger are, if it has any.
    pub(crate) files: Option<PathBuf>,
    /// How long firings may take to end once the faults have.
    pub(crate) patience: Duration,
    /// The PostgreSQL in which rows are counted.
    pub(crate) sink: Option<String>,
}

/// What belongs to one lane: its proxy and its small disk.
pub(crate) struct Lane {
    pub(crate) number: usize,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) store: String,
    pub(crate) disk: Option<PathBuf>,
}

impl Arena {
    /// Start it. `has_mounts`: file systems may be mounted; `wants`: who is to be attacked.
    pub(crate) fn open(
        store: &str,
        semel: &Path,
        base: &Path,
        has_mounts: bool,
        wants: impl Fn(Contender) -> bool,
    ) -> Result<Arena, String> {
        let name = STORES.iter().find(|name| **name == store).copied();
        let (mut held, address, server) = start(name.unwrap_or_default(), store, base);
        let server = match name {
            Some(_) => server.map(|at| (at, at.to_string())),
            None => host(store),
        };
        let files = match address.split_once(':') {
            Some(("sqlite", path)) => Path::new(path).parent().map(Path::to_owned),
            Some(("dir", path)) => Some(PathBuf::from(path)),
            _ => None,
        };
        let is_object = ["s3", "gs", "az"].iter().any(|scheme| address.starts_with(&format!("{scheme}:")));
        let variables: Vec<(&'static str, String)> = match name {
            Some("s3" | "gs") => Moto::VARIABLES.map(|(name, value)| (name, value.to_owned())).into(),
            Some("az") => Azurite::VARIABLES.map(|(name, value)| (name, value.to_owned())).into(),
            _ => Vec::new(),
        };
        let faketime = ["x86_64-linux-gnu/", "aarch64-linux-gnu/", ""]
            .iter()
            .map(|arch| PathBuf::from(format!("/usr/lib/{arch}faketime/libfaketime.so.1")))
            .find(|path| path.is_file());
        let shim = shim(base);
        let preloads = shim.as_ref().is_some_and(|shim| preloads(semel, base, shim));
        let arms = Arms {
            network: server.is_some(),
            server: held.server().is_some(),
            clock: match (&faketime, &shim) {
                (Some(faketime), Some(shim)) => sees_clock(semel, base, &[shim, faketime]),
                _ => false,
            },
            disk_full: name.is_some() && files.is_some() && has_mounts && preloads,
            disk_error: files.is_some() && preloads,
            ttl_ms: if is_object { 3_000 } else { 1_000 },
            slack_ms: if is_object {
                2_500
            } else if address.starts_with("etcd") {
                1_500
            } else {
                400
            },
        };
        let redis = semel_testkit::program("redis-server").filter(|_| wants(Contender::SetNx));
        let redis = redis.map(|_| Redis::start());
        let not_done = not_done(name, &arms, files.is_some(), preloads);
        let mut arena = Arena {
            store: name.unwrap_or("given").to_owned(),
            semel: semel.to_owned(),
            base: base.to_owned(),
            held: Mutex::new(held),
            address,
            server,
            variables,
            kills: AtomicU64::new(0),
            spared: AtomicBool::new(false),
            redis,
            faketime,
            shim,
            arms,
            not_done,
            files,
            patience: PATIENCE,
            sink: None,
        };
        arena.furnish()?;
        Ok(arena)
    }

    /// Scripts, and what each round gets a copy of.
    fn furnish(&mut self) -> Result<(), String> {
        let scripts = self.scripts();
        fs::create_dir_all(&scripts).map_err(|why| why.to_string())?;
        for (name, text) in SCRIPTS {
            fs::write(scripts.join(name), text).map_err(|why| why.to_string())?;
        }
        fs::create_dir_all(self.base.join("template")).map_err(|why| why.to_string())?;
        let text = r#"cd "$0" && mkdir none && git init -q --template=none --bare -b main remote.git &&
            git clone -q --template=none remote.git clone 2>/dev/null && cd clone && git checkout -q -b main &&
            git commit -q --allow-empty -m first && git push -q origin main"#;
        let mut made = Command::new("/bin/sh");
        isolated(made.args(["-c", text]).arg(self.base.join("template")));
        crate::tools::call(&mut made)?;
        let fence = |dialect: &str| {
            let said = Command::new(&self.semel).args(["fence", "sql", "--dialect", dialect]).output();
            said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).map_err(|why| why.to_string())
        };
        let tables = "CREATE TABLE effects (token INTEGER); CREATE TABLE log (token INTEGER);";
        let mut sqlite = Command::new("sqlite3");
        sqlite.arg("-bail").arg(self.template("user.db")).arg(format!("{tables}\n{}", fence("sqlite")?));
        crate::tools::call(&mut sqlite)?;
        if let Ok(Held::Postgres(server)) = self.held.get_mut().map_err(|_| ()) {
            server.psql(&fence("postgres")?);
            server.psql(
                "CREATE TABLE effects (work TEXT, token BIGINT); CREATE INDEX ON effects (work);
                 CREATE TABLE log (seq BIGSERIAL, work TEXT, token BIGINT); CREATE INDEX ON log (work)",
            );
            self.sink = Some(server.url());
        }
        Ok(())
    }

    pub(crate) fn scripts(&self) -> PathBuf {
        self.base.join("scripts")
    }

    pub(crate) fn template(&self, name: &str) -> PathBuf {
        self.base.join("template").join(name)
    }

    /// The port of the Redis that the control uses.
    pub(crate) fn redis_port(&self) -> Option<u16> {
        self.redis.as_ref().map(|redis| redis.address().port())
    }

    /// May this one be attacked here?
    pub(crate) fn has(&self, contender: Contender) -> bool {
        contender != Contender::SetNx || self.redis.is_some() && crate::tools::find("redis-cli").is_some()
    }

    /// A lane, with a proxy and a disk of its own.
    pub(crate) fn lane(&self, number: usize) -> Lane {
        let proxy = self.server.as_ref().map(|(at, _)| Proxy::before(*at));
        let store = match (&proxy, &self.server) {
            (Some(proxy), Some((_, text))) => self.address.replace(text, &proxy.address().to_string()),
            _ => self.address.clone(),
        };
        let disk = self.base.join(format!("disk{number}"));
        let has_disk = self.arms.disk_full && fs::create_dir_all(&disk).is_ok() && {
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(&disk);
            mount.status().is_ok_and(|status| status.success())
        };
        Lane { number, proxy, store, disk: has_disk.then_some(disk) }
    }

    /// Kill -9 of the server, and start it again. False: it is spared now.
    pub(crate) fn kill_server(&self) -> bool {
        let Ok(mut held) = self.held.lock() else { return false };
        let Some(server) = held.server().filter(|_| !self.spared.load(Ordering::SeqCst)) else {
            return false;
        };
        self.kills.fetch_add(1, Ordering::SeqCst);
        server.kill();
        server.start_again();
        self.kills.fetch_add(1, Ordering::SeqCst);
        true
    }
}

/// What is not injected, and why.
fn not_done(name: Option<&str>, arms: &Arms, has_files: bool, preloads: bool) -> Vec<String> {
    let has_server = !has_files;
    let killed = match name {
        None => "the server of an address is not ours",
        _ => "killed, Azurite forgets what it answered",
    };
    let full = match (name, preloads) {
        (None, _) => "the file system of an address is not ours",
        (_, false) => {
            "nobody could tell whether it was met: there is no C compiler, or semel is linked statically"
        }
        _ => "no file system may be mounted here",
    };
    let lines = [
        (
            arms.network || !has_server,
            "net-cut, net-delay, reply-lost, half-open",
            "the address names no host and port in plain text",
        ),
        (arms.server || !has_server, "kill-server", killed),
        (
            arms.clock,
            "clock-step",
            "no libfaketime, no C compiler, or semel is linked statically: it would not see it",
        ),
        (arms.disk_full || !has_files, "disk-full", full),
        (
            arms.disk_error || !has_files,
            "disk-error",
            "there is no C compiler, or semel is linked statically",
        ),
    ];
    lines.iter().filter(|(has, ..)| !has).map(|(_, what, why)| format!("{what}: {why}")).collect()
}

/// The host and port of an address, and how they stand in it. None where there is none, or more than one, or where it is
/// encrypted: a proxy has another name than the certificate.
fn host(address: &str) -> Option<(SocketAddr, String)> {
    let is_encrypted =
        ["rediss:", "tls:", "https:", "etcds:", "+tls", "sslmode=require", "sslmode=verify", "tls=true"];
    if is_encrypted.iter().any(|word| address.contains(word)) {
        return None;
    }
    // of a bucket it is the endpoint that counts, which comes last
    let after = address.rsplit_once("//")?.1;
    let authority = after.split(['/', '?', '&', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let (_, port) = host.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    Some((host.to_socket_addrs().ok()?.next()?, host.to_owned()))
}

/// Does this program load libraries that are put before its own? One that is linked statically does not.
fn preloads(semel: &Path, base: &Path, shim: &Path) -> bool {
    let hello = base.join("hello");
    let mut asked = Command::new(semel);
    asked.arg("--version").env("LD_PRELOAD", shim).env("SHIM_HELLO", &hello);
    let _ = asked.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    hello.exists()
}

/// Does this program see the clock that is set for it? Asked for the work of today, it must name that of another day.
fn sees_clock(semel: &Path, base: &Path, libraries: &[&PathBuf]) -> bool {
    let asked = |name: &str, clock: Option<&str>| {
        let mut run = Command::new(semel);
        run.args(["run", "--json", "--job", "clock", "--every", "day", "--tz", "UTC", "--", "/bin/true"]);
        run.env("SEMEL_STORE", format!("sqlite:{}/{name}/ledger.db", base.display())).current_dir(base);
        run.env("XDG_STATE_HOME", base.join(name)).env("HOME", base);
        if let Some(clock) = clock {
            let libraries: Vec<String> = libraries.iter().map(|path| path.display().to_string()).collect();
            run.env("LD_PRELOAD", libraries.join(" ")).env("FAKETIME", clock);
            run.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        }
        let said = run.stdin(Stdio::null()).stdout(Stdio::null()).output().ok()?.stderr;
        let said = String::from_utf8_lossy(&said).into_owned();
        let last = said
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .next_back()?;
        last["work"].as_str().map(str::to_owned)
    };
    let (now, then) = (asked("now", None), asked("then", Some("+26h")));
    now.is_some() && then.is_some() && now != then
}

/// The server, the address of a ledger there, and where it listens.
fn start(name: &str, store: &str, base: &Path) -> (Held, String, Option<SocketAddr>) {
    match name {
        "sqlite" => (Held::Nothing, format!("sqlite:{}/store/ledger.db", base.display()), None),
        "dir" => (Held::Nothing, format!("dir:{}/store", base.display()), None),
        "postgres" => {
            let server = PgServer::start();
            let (url, at) = (server.url(), SocketAddr::from(([127, 0, 0, 1], server.port())));
            (Held::Postgres(server), url, Some(at))
        }
        "redis" => {
            let redis = Redis::start();
            let (url, at) = (redis.url(), redis.address());
            (Held::Redis(redis), url, Some(at))
        }
        "etcd" => {
            let etcd = Etcd::start();
            let (url, at) = (etcd.url("torture"), etcd.address());
            (Held::Etcd(etcd), url, Some(at))
        }
        "nats" => {
            let server = nats(NatsVersion::Recent, "");
            let at = server.address(0);
            (Held::Plain(server), format!("nats://{at}/torture"), Some(at))
        }
        "s3" => {
            let server = OnDisk::start();
            let (url, at) = (server.s3_url("torture"), server.0.address(0));
            (Held::Plain(server.0), url, Some(at))
        }
        "gs" => {
            let server = OnDisk::start();
            let at = server.0.address(0);
            (Held::Plain(server.0), OnDisk::gs_url_at(at, "torture"), Some(at))
        }
        "az" => {
            let server = Azurite::start();
            let (url, at) = (server.url("torture"), server.0.address(0));
            (Held::NotKilled { _server: server.0 }, url, Some(at))
        }
        _ => (Held::Nothing, store.to_owned(), None),
    }
}

/// The library with the faults of a disk; none where there is no compiler.
fn shim(base: &Path) -> Option<PathBuf> {
    let (source, library) = (base.join("shim.c"), base.join("shim.so"));
    fs::write(&source, include_str!("shim.c")).ok()?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let made = cc.stdin(Stdio::null()).stderr(Stdio::null()).status();
    made.is_ok_and(|status| status.success()).then_some(library)
}

/// Nothing of this machine's settings.
pub(crate) fn isolated(command: &mut Command) -> &mut Command {
    let name = [("GIT_AUTHOR_NAME", "A"), ("GIT_COMMITTER_NAME", "A")];
    let mail = [("GIT_AUTHOR_EMAIL", "a@example.org"), ("GIT_COMMITTER_EMAIL", "a@example.org")];
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").envs(name).envs(mail)
}

/// Mounts of our own, if this may be: called before any thread is started.
pub(crate) fn prepare() -> bool {
    procs::lift_limits();
    procs::own_mounts()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_found_where_there_is_one() {
        let found = |address: &str| host(address).map(|(_, text)| text);
        assert_eq!(found("postgres://me:pw@127.0.0.1:5432/db?schema=a"), Some("127.0.0.1:5432".to_owned()));
        assert_eq!(found("redis://127.0.0.1:6379"), Some("127.0.0.1:6379".to_owned()));
        assert_eq!(
            found("s3://bucket/x?endpoint=http://127.0.0.1:9000&region=a"),
            Some("127.0.0.1:9000".to_owned())
        );
        for none in
            ["sqlite:/a/b.db", "dir:/a", "s3://bucket/x", "rediss://127.0.0.1:6379", "postgres://h/db"]
        {
            assert_eq!(found(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_not_injected_is_named() {
        let bare = Arms::default();
        let all = |name, has_files| not_done(name, &bare, has_files, true).join("\n");
        assert!(all(None, false).contains("net-cut") && all(None, false).contains("kill-server"));
        assert!(
            all(Some("sqlite"), true).contains("disk-full") && !all(Some("sqlite"), true).contains("net-cut")
        );
        let armed = Arms { network: true, server: true, clock: true, ..bare };
        assert_eq!(not_done(Some("redis"), &armed, false, true), [""; 0]);
    }
}
