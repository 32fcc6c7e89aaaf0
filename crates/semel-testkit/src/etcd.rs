//! An etcd for one test: one member, durable as it comes, with the shortest ttl that it can keep.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::server::{Recipe, Server, free_ports, needed};

/// A running etcd. Its first port is for clients.
#[derive(Debug)]
pub struct Etcd {
    server: Server,
}

impl Etcd {
    /// A new one.
    pub fn start() -> Etcd {
        Etcd::start_with(&[])
    }

    /// As [`start`](Etcd::start), with more arguments.
    pub fn start_with(arguments: &[&str]) -> Etcd {
        Etcd::launch("http", arguments, healthy)
    }

    /// As [`start`](Etcd::start), for clients that speak TLS: the certificate and its key, as files.
    pub fn start_with_tls(certificate: &Path, key: &Path) -> Etcd {
        Etcd::start_with_tls_and(certificate, key, &[])
    }

    /// As [`start_with_tls`](Etcd::start_with_tls), for clients whose certificate one of these authorities has signed.
    pub fn start_for_certified(certificate: &Path, key: &Path, authorities: &Path) -> Etcd {
        let authorities = authorities.display().to_string();
        let more = ["--client-cert-auth", "--trusted-ca-file", &authorities];
        Etcd::start_with_tls_and(certificate, key, &more)
    }

    fn start_with_tls_and(certificate: &Path, key: &Path, more: &[&str]) -> Etcd {
        let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
        let words = [&["--cert-file", &certificate, "--key-file", &key], more].concat();
        // it answers its health over TLS too, which nobody here speaks
        Etcd::launch("https", &words, Server::listens)
    }

    fn launch(scheme: &str, arguments: &[&str], ready: fn(&Server) -> bool) -> Etcd {
        let recipe = |dir: &Path, ports: &[u16]| {
            let cluster = format!("one=http://127.0.0.1:{}", ports[1]);
            member(dir, "one", scheme, (ports[0], ports[1]), &cluster, arguments)
        };
        Etcd { server: Server::start("etcd", 2, recipe, ready) }
    }

    /// The server, to be killed, stopped and started again.
    pub fn server(&mut self) -> &mut Server {
        &mut self.server
    }

    /// The address of clients.
    pub fn address(&self) -> std::net::SocketAddr {
        self.server.address(0)
    }

    /// `etcd://…`, with this prefix.
    pub fn url(&self, prefix: &str) -> String {
        format!("etcd://{}/{prefix}", self.address())
    }

    /// Call `etcdctl` on it. If it fails, so does the test, with what it said.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        ctl(&self.address().to_string(), arguments)
            .unwrap_or_else(|why| panic!("etcdctl {arguments:?}: {why}"))
    }
}

/// Three members of one cluster.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<(Server, u16)>,
}

impl EtcdCluster {
    /// A new one, with a leader.
    pub fn start() -> EtcdCluster {
        let ports = free_ports(6);
        let (clients, peers) = ports.split_at(3);
        let names: Vec<String> = (0..3).map(|i| format!("member{i}")).collect();
        let cluster = names.iter().zip(peers).map(|(name, peer)| format!("{name}=http://127.0.0.1:{peer}"));
        let cluster = cluster.collect::<Vec<_>>().join(",");
        let start = |i: usize| {
            let recipe =
                |dir: &Path, _: &[u16]| member(dir, &names[i], "http", (clients[i], peers[i]), &cluster, &[]);
            // alone it is not ready for anything
            (Server::start("etcd", 0, recipe, |_| true), clients[i])
        };
        let cluster = EtcdCluster { members: (0..3).map(start).collect() };
        cluster.leader();
        cluster
    }

    /// `etcd://…`, with this prefix, all members.
    pub fn url(&self, prefix: &str) -> String {
        let hosts: Vec<String> = self.members.iter().map(|(_, port)| format!("127.0.0.1:{port}")).collect();
        format!("etcd://{}/{prefix}", hosts.join(","))
    }

    /// Which of them leads; waits until one does.
    pub fn leader(&self) -> usize {
        let begun = Instant::now();
        loop {
            for (i, (_, port)) in self.members.iter().enumerate() {
                let said = ctl(&format!("127.0.0.1:{port}"), &["endpoint", "status"]).unwrap_or_default();
                if said.split(", ").nth(4) == Some("true") {
                    return i;
                }
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "etcd finds no leader");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// One of the members, to be killed and started again.
    pub fn member(&mut self, index: usize) -> &mut Server {
        &mut self.members[index].0
    }
}

fn member(
    dir: &Path,
    name: &str,
    scheme: &str,
    (client, peer): (u16, u16),
    cluster: &str,
    arguments: &[&str],
) -> Recipe {
    let (client, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut words: Vec<OsString> = vec![needed("etcd").into(), "--data-dir".into(), dir.join("data").into()];
    for (name, value) in [
        ("--name", name),
        ("--listen-client-urls", &client),
        ("--advertise-client-urls", &client),
        ("--listen-peer-urls", &peer),
        ("--initial-advertise-peer-urls", &peer),
        ("--initial-cluster", cluster),
        // the least ttl is one and a half of it, in whole seconds
        ("--heartbeat-interval", "20"),
        ("--election-timeout", "200"),
        ("--log-level", "warn"),
        ("--logger", "zap"),
    ] {
        words.extend([name, value].map(OsString::from));
    }
    words.extend(arguments.iter().map(OsString::from));
    Recipe::new(words)
}

fn ctl(endpoint: &str, arguments: &[&str]) -> Result<String, String> {
    let Output { status, stdout, stderr } = Command::new(needed("etcdctl"))
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", endpoint, "--dial-timeout", "1s"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("etcdctl");
    match status.success() {
        true => Ok(String::from_utf8_lossy(&stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&stderr).into_owned()),
    }
}

/// It has a leader and takes writes.
fn healthy(server: &Server) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&server.address(0), Duration::from_secs(1)) else {
        return false;
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let asked = stream.write_all(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let mut answer = String::new();
    let _ = asked.and_then(|()| stream.read_to_string(&mut answer));
    answer.contains("\"health\":\"true\"")
}
