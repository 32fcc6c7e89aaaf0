//! A private Redis: durable (every write synced before it is answered), in a folder of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::server::{Recipe, Server, needed};

/// A running Redis, or Valkey.
#[derive(Debug)]
pub struct Redis {
    /// Its process: to kill, stop, continue and start again.
    pub server: Server,
}

impl Redis {
    /// Start one.
    pub fn start() -> Redis {
        Redis::with(&[])
    }

    /// Start one with more settings, each as in its configuration file, such as `"maxmemory 2mb"`.
    pub fn with(settings: &[&str]) -> Redis {
        Redis::launch("redis-server", settings)
    }

    /// Start a Valkey.
    pub fn valkey() -> Redis {
        Redis::launch("valkey-server", &[])
    }

    fn launch(program: &str, settings: &[&str]) -> Redis {
        let program = needed(program);
        let durable = ["appendonly yes", "appendfsync always", "save \"\"", "bind 127.0.0.1", "port PORT"];
        let server = Server::start(
            "redis",
            2,
            |dir, ports| {
                let lines = durable.iter().chain(settings);
                let mut text = lines.map(|line| format!("{line}\n")).collect::<String>();
                text = text.replace("PORT2", &ports[1].to_string()).replace("PORT", &ports[0].to_string());
                std::fs::write(dir.join("redis.conf"), text).unwrap();
                Recipe::new([program.as_os_str(), "redis.conf".as_ref()])
            },
            |server| speak(server.address(0), "PING").is_ok_and(|said| !said.starts_with("-LOADING")),
        );
        Redis { server }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address(0)
    }

    /// `redis://…`
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Send one command, words between blanks, and hand back the first line of the answer; for text, the text.
    pub fn ask(&self, command: &str) -> String {
        speak(self.address(), command).expect("redis answers")
    }
}

/// Three masters of one cluster, each with a third of the slots.
#[derive(Debug)]
pub struct RedisCluster {
    /// In the order of their slots.
    pub nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Start them, and wait until each knows all.
    pub fn start() -> RedisCluster {
        let settings = ["cluster-enabled yes", "cluster-port PORT2", "cluster-config-file nodes.conf"];
        let nodes: Vec<Redis> = (0..3).map(|_| Redis::with(&settings)).collect();
        for (node, slots) in nodes.iter().zip(["0 5460", "5461 10922", "10923 16383"]) {
            assert_eq!(node.ask(&format!("CLUSTER ADDSLOTSRANGE {slots}")), "+OK");
        }
        for node in &nodes[1..] {
            let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", node.server.port(0), node.server.port(1));
            assert_eq!(nodes[0].ask(&meet), "+OK");
        }
        let begun = Instant::now();
        let whole = |node: &Redis| {
            let said = node.ask("CLUSTER INFO");
            said.contains("cluster_state:ok") && said.contains("cluster_known_nodes:3")
        };
        while !nodes.iter().all(whole) {
            assert!(begun.elapsed() < Duration::from_secs(60), "the nodes do not find each other");
            std::thread::sleep(Duration::from_millis(20));
        }
        RedisCluster { nodes }
    }
}

fn speak(address: SocketAddr, command: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(format!("{command}\r\n").as_bytes())?;
    let mut answers = BufReader::new(stream);
    let mut line = String::new();
    answers.read_line(&mut line)?;
    match line.strip_prefix('$').and_then(|length| length.trim_end().parse::<usize>().ok()) {
        Some(length) => {
            let mut text = vec![0; length];
            answers.read_exact(&mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        None => Ok(line.trim_end().to_owned()),
    }
}
