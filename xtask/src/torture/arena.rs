//! Where it happens: a store with its private server, a proxy for each lane, and what else the faults need.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use semel_testkit::{Azurite, Etcd, Moto, NatsVersion, OnDisk, PgServer, Proxy, Redis, Server, nats};

use super::contender::{Contender, SCRIPTS};
use super::nemesis::Arms;
use super::procs;

/// The stores, by the names that `--store` takes.
pub(crate) const STORES: [&str; 9] = ["sqlite", "dir", "postgres", "redis", "etcd", "nats", "s3", "gs", "az"];

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
    server: Option<SocketAddr>,
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
    /// Start it. `has_mounts`: file systems may be mounted.
    pub(crate) fn open(store: &str, semel: &Path, base: &Path, has_mounts: bool) -> Result<Arena, String> {
        let name = STORES.iter().find(|name| **name == store).copied();
        let (held, address, server) = start(name.unwrap_or_default(), store, base);
        let is_file = matches!(name, Some("sqlite" | "dir"));
        let is_object = matches!(name, Some("s3" | "gs" | "az"));
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
        let arms = Arms {
            network: server.is_some(),
            clock: faketime.is_some() && shim.is_some(),
            disk_full: is_file && has_mounts,
            disk_error: is_file && shim.is_some(),
            ttl_ms: if is_object { 3_000 } else { 1_000 },
            slack_ms: if is_object {
                2_500
            } else if store == "etcd" {
                1_500
            } else {
                400
            },
        };
        let redis = semel_testkit::program("redis-server").map(|_| Redis::start());
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
        let proxy = self.server.map(Proxy::before);
        let store = match (&proxy, self.server) {
            (Some(proxy), Some(server)) => {
                self.address.replace(&server.to_string(), &proxy.address().to_string())
            }
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

    /// Is the ledger in files of this machine?
    pub(crate) fn is_file(&self) -> bool {
        matches!(self.store.as_str(), "sqlite" | "dir")
    }

    /// Can its server be killed?
    pub(crate) fn is_killable(&self) -> bool {
        self.held.lock().is_ok_and(|mut held| held.server().is_some())
    }

    /// Kill -9 of the server, and start it again.
    pub(crate) fn kill_server(&self) {
        let Ok(mut held) = self.held.lock() else { return };
        if let Some(server) = held.server().filter(|_| !self.spared.load(Ordering::SeqCst)) {
            self.kills.fetch_add(1, Ordering::SeqCst);
            server.kill();
            server.start_again();
            self.kills.fetch_add(1, Ordering::SeqCst);
        }
    }
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
