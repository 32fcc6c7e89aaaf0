//! Processes that are stopped, and processes whose wall clock is wrong.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use semel::core::record::Standing;
use semel::store::conformance::claims::{self, Claim};
use semel_testkit::{NatsVersion, nats};

use crate::{handle, key, read};

const DEADLINE: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_millis(1500);

/// The helper program; killed when dropped.
struct Probe {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Probe {
    fn start(port: u16, env: &[(&str, &str)]) -> Probe {
        let mut child = Command::new(env!("CARGO_BIN_EXE_semel-store-probe"))
            .arg(format!("nats://127.0.0.1:{port}/ledger"))
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut probe = Probe { child, orders, answers };
        assert_eq!(probe.ask("open"), "ok open");
        probe
    }

    fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_process_that_was_stopped_past_its_ttl_is_refused() {
    for version in [NatsVersion::Recent, NatsVersion::Debian] {
        let server = nats(version, "");
        let store = handle(server.port(0), DEADLINE);
        let mut probe = Probe::start(server.port(0), &[]);
        assert_eq!(probe.ask(&format!("claim lease/a {}", TTL.as_millis())), "won 1");
        probe.signal("-STOP");
        let begun = Instant::now();
        let heir = loop {
            if let Claim::Won(won) = claims::claim(&*store, &key("lease/a"), 60 * TTL).await.unwrap() {
                break won;
            }
            assert!(begun.elapsed() < DEADLINE, "it does not lapse");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert!(begun.elapsed() >= TTL - Duration::from_millis(400), "{:?}", begun.elapsed());
        probe.signal("-CONT");
        let late = probe.ask("release lease/a 1");
        assert!(late.starts_with("error"), "{late}");
        assert_eq!(read(&*store, "lease/a").await.unwrap().version, heir.version);
    }
}

#[tokio::test]
async fn a_wall_clock_that_is_an_hour_off_makes_no_lease_shorter_or_longer() {
    let library =
        semel_testkit::faketime().expect("faketime is missing: install it with cargo xtask servers");
    let library = library.as_str();
    for version in [NatsVersion::Recent, NatsVersion::Debian] {
        let server = nats(version, "");
        let store = handle(server.port(0), DEADLINE);
        for (name, off) in [("lease/later", "+1h"), ("lease/earlier", "-1h")] {
            let wrong = [("LD_PRELOAD", library), ("FAKETIME", off), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
            let mut probe = Probe::start(server.port(0), &wrong);
            let begun = Instant::now();
            assert_eq!(probe.ask(&format!("claim {name} {}", TTL.as_millis())), "won 1");
            let Some(Standing::Live { left_ms }) = read(&*store, name).await.unwrap().standing else {
                panic!("{off}: not live at once")
            };
            assert!(u128::from(left_ms) <= TTL.as_millis(), "{off}: {left_ms}");
            // it renews, and a renewal starts the whole ttl anew
            assert_eq!(probe.ask(&format!("touch {name}")), "ok touch");
            let mut other = Probe::start(server.port(0), &wrong);
            assert_eq!(other.ask(&format!("claim {name} {}", TTL.as_millis())), "lost", "{off}");
            while !other.ask(&format!("claim {name} 60000")).starts_with("won") {
                assert!(begun.elapsed() < DEADLINE, "{off}: it does not lapse");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            // counted from before it was asked for, so at least a ttl less what the server rounds
            assert!(begun.elapsed() >= TTL - Duration::from_millis(300), "{off}: {:?}", begun.elapsed());
            let late = probe.ask(&format!("release {name} 1"));
            assert!(late.starts_with("error"), "{off}: {late}");
        }
    }
}
