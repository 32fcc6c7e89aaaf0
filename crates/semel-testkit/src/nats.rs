//! NATS servers for one test: with JetStream in a folder of its own, each write synced where the server can.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::server::{Recipe, Server, needed};

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatsVersion {
    /// The one of PyPI: recent.
    Recent,
    /// Debian's: 2.9, which cannot sync each write.
    Debian,
}

const DEBIANS: &str = "/usr/sbin/nats-server";

impl NatsVersion {
    fn program(self) -> PathBuf {
        match self {
            NatsVersion::Recent => {
                let program = needed("nats-server");
                let is_debians = program == Path::new(DEBIANS);
                assert!(!is_debians, "a recent nats-server is missing: install it with cargo xtask servers");
                program
            }
            NatsVersion::Debian => {
                let program = Path::new(DEBIANS);
                assert!(program.is_file(), "nats-server is missing: install it with cargo xtask servers");
                program.to_owned()
            }
        }
    }

    fn storage(self, dir: &Path) -> String {
        let sync = if self == NatsVersion::Recent { "sync_interval: always" } else { "" };
        format!("jetstream {{ store_dir: \"{}/store\"\n {sync} }}\n", dir.display())
    }
}

/// A server; `more` stands in its configuration, `{dir}` there is its folder.
pub fn nats(version: NatsVersion, more: &str) -> Server {
    let program = version.program();
    Server::start(
        "nats",
        1,
        |dir, ports| {
            let more = more.replace("{dir}", &dir.display().to_string());
            let text = format!("listen: 127.0.0.1:{}\n{}{more}\n", ports[0], version.storage(dir));
            configured(&program, dir, &text)
        },
        Server::listens,
    )
}

/// A server that keeps nothing: without JetStream.
pub fn nats_without_jetstream() -> Server {
    let program = NatsVersion::Recent.program();
    Server::start(
        "nats",
        1,
        |dir, ports| configured(&program, dir, &format!("listen: 127.0.0.1:{}\n", ports[0])),
        Server::listens,
    )
}

/// Three servers that keep records together. Who asks them must wait until they have found each other.
pub fn nats_cluster(version: NatsVersion) -> Vec<Server> {
    let program = version.program();
    let routes = crate::server::free_ports(3);
    let known: Vec<String> = routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
    let start = |index: usize| {
        Server::start(
            "nats",
            1,
            |dir, ports| {
                let mut text = format!("server_name: n{index}\nlisten: 127.0.0.1:{}\n", ports[0]);
                text.push_str(&version.storage(dir));
                let _ = writeln!(
                    text,
                    "cluster {{ name: c, listen: \"127.0.0.1:{}\", routes: [{}] }}",
                    routes[index],
                    known.join(", ")
                );
                configured(&program, dir, &text)
            },
            Server::listens,
        )
    };
    (0..3).map(start).collect()
}

fn configured(program: &Path, dir: &Path, text: &str) -> Recipe {
    let file = dir.join("nats.conf");
    std::fs::write(&file, text).unwrap();
    Recipe::new([program.as_os_str(), "-c".as_ref(), file.as_os_str()])
}
