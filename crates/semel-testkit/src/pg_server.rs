//! A PostgreSQL server as people run it, for one test: durable, on a loopback port, with a password for every role but
//! its superuser; killed, started again, copied to a replica, put behind a pooler at will.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::postgres::{User, programs};
use crate::server::{Recipe, Server, needed};

/// Who comes in how: the superuser from this machine, everybody else with a password.
const HBA: &str = "local all all trust\n\
                   host all semel 127.0.0.0/8 trust\n\
                   host replication semel 127.0.0.0/8 trust\n\
                   host all all 127.0.0.0/8 scram-sha-256\n";

/// A running server. Its superuser is `semel`, its database `semel`.
#[derive(Debug)]
pub struct PgServer {
    server: Server,
    bin: PathBuf,
}

impl PgServer {
    /// A new server, as durable as PostgreSQL is by default.
    pub fn start() -> PgServer {
        PgServer::start_with(&[])
    }

    /// As [`start`](PgServer::start), with settings (`name=value`).
    pub fn start_with(settings: &[&str]) -> PgServer {
        PgServer::launch("pg", settings, new_cluster).with_database()
    }

    /// With TLS: its certificate is for `localhost`, signed by [`authority`](PgServer::authority).
    pub fn start_with_tls() -> PgServer {
        let tls = ["ssl=on", "ssl_cert_file=../server.pem", "ssl_key_file=../server.key"];
        PgServer::launch("pg", &tls, |user, bin, dir| {
            new_cluster(user, bin, dir);
            certificate(user, dir);
        })
        .with_database()
    }

    /// A copy that follows this one, asynchronously.
    pub fn replica(&self) -> PgServer {
        let from = self.port().to_string();
        PgServer::launch("pg-replica", &[], move |user, bin, dir| {
            user.call(&bin.join("pg_basebackup"), dir, |copy| {
                copy.args([
                    "--host=127.0.0.1",
                    "--username=semel",
                    "--write-recovery-conf",
                    "--checkpoint=fast",
                ]);
                copy.arg(format!("--port={from}")).arg("--pgdata").arg(dir.join("data"));
            });
        })
    }

    /// Make a replica the primary, and wait until it is.
    pub fn promote(&self) {
        self.psql("SELECT pg_promote(true, 60)");
    }

    fn launch(name: &'static str, settings: &[&str], prepare: impl Fn(&User, &Path, &Path)) -> PgServer {
        let bin = programs().expect("PostgreSQL is missing: install it with cargo xtask servers");
        let user = User::for_server().expect("a user for PostgreSQL");
        let recipe = |dir: &Path, ports: &[u16]| {
            if let Some((uid, gid)) = user.other {
                chown(dir, Some(uid), Some(gid)).unwrap();
            }
            prepare(&user, &bin, dir);
            let mut recipe = Recipe::new([bin.join("postgres")]);
            recipe.words.extend(["-D".into(), dir.join("data").into(), "-k".into(), dir.into()]);
            let port = format!("port={}", ports[0]);
            let small = [
                "listen_addresses=127.0.0.1",
                "shared_buffers=32MB",
                "max_connections=300",
                "dynamic_shared_memory_type=mmap",
                &port,
            ];
            for setting in small.iter().chain(settings) {
                recipe.words.extend(["-c".into(), setting.into()]);
            }
            recipe.user = user.other;
            recipe
        };
        let server = Server::start(name, 1, recipe, |server| {
            let file = server.folder().join("data/postmaster.pid");
            let said = fs::read_to_string(file).unwrap_or_default();
            let ours = said.lines().next().is_some_and(|pid| pid.trim() == server.pid().to_string());
            ours && said.lines().nth(7).is_some_and(|state| state.trim() == "ready")
        });
        PgServer { server, bin }
    }

    fn with_database(self) -> PgServer {
        self.psql_in("postgres", "CREATE DATABASE semel");
        self
    }

    /// Run SQL as the superuser; what it answered, one line a row.
    pub fn psql(&self, sql: &str) -> String {
        self.psql_in("semel", sql)
    }

    fn psql_in(&self, database: &str, sql: &str) -> String {
        let output = std::process::Command::new(self.bin.join("psql"))
            .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-U", "semel", "-p", &self.port().to_string(), "-h"])
            .arg(self.server.folder())
            .args(["-d", database, "-c", sql])
            .output()
            .unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// A role with a password that may come in and owns nothing.
    pub fn role(&self, name: &str, password: &str) {
        self.psql(&format!("CREATE ROLE {name} LOGIN PASSWORD '{password}'"));
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.server.port(0)
    }

    /// `postgres://…` of the superuser.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// `postgres://…` of the superuser at another port: a proxy or a pooler before this server.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://semel@127.0.0.1:{port}/semel")
    }

    /// The file with the authority of its certificate.
    pub fn authority(&self) -> PathBuf {
        self.server.folder().join("ca.pem")
    }

    /// The server's process and files.
    pub fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    /// Put a pooler before it, which hands a session to another client after each transaction.
    pub fn pooler(&self, sessions: u32) -> PgBouncer {
        PgBouncer::before(self, sessions)
    }
}

impl Drop for PgServer {
    fn drop(&mut self) {
        // killed, it would leave a segment of shared memory behind
        self.server.signal(libc::SIGQUIT);
        let (begun, pid) = (Instant::now(), self.server.pid());
        while Path::new(&format!("/proc/{pid}/cwd")).exists() && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// PgBouncer in transaction mode.
#[derive(Debug)]
pub struct PgBouncer {
    server: Server,
}

impl PgBouncer {
    fn before(postgres: &PgServer, sessions: u32) -> PgBouncer {
        let program = needed("pgbouncer");
        let user = User::for_server().expect("a user for PgBouncer");
        let port = postgres.port();
        let recipe = |dir: &Path, ports: &[u16]| {
            let listen = ports[0];
            let ini = format!(
                "[databases]\nsemel = host=127.0.0.1 port={port} dbname=semel user=semel\n[pgbouncer]\n\
                 listen_addr = 127.0.0.1\nlisten_port = {listen}\nunix_socket_dir =\nauth_type = any\n\
                 pool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = {sessions}\n"
            );
            fs::write(dir.join("pgbouncer.ini"), ini).unwrap();
            let mut recipe = Recipe::new([program.clone(), dir.join("pgbouncer.ini")]);
            recipe.user = user.other;
            recipe
        };
        PgBouncer { server: Server::start("pgbouncer", 1, recipe, Server::listens) }
    }

    /// Where clients connect.
    pub fn port(&self) -> u16 {
        self.server.port(0)
    }

    /// What it said.
    pub fn log(&self) -> String {
        self.server.log()
    }
}

fn new_cluster(user: &User, bin: &Path, dir: &Path) {
    user.call(&bin.join("initdb"), dir, |initdb| {
        initdb.args(["--no-sync", "--auth=trust", "--username=semel", "--encoding=UTF8", "--locale=C"]);
        initdb.arg("--pgdata").arg(dir.join("data"));
    });
    fs::write(dir.join("data/pg_hba.conf"), HBA).unwrap();
}

/// An authority and a certificate for `localhost` signed by it.
fn certificate(user: &User, dir: &Path) {
    let openssl = needed("openssl");
    let call = |words: &str| {
        user.call(&openssl, dir, |command| {
            command.args(words.split(' '));
        });
    };
    fs::write(dir.join("san.cnf"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    call(
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 30 -subj /CN=semel-test-authority",
    );
    call("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost");
    call(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 30 -extfile san.cnf",
    );
    fs::set_permissions(dir.join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
}
