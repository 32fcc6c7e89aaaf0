//! The service's clock decides: not a client that slept, and not one whose clock is wrong.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use semel::core::record::Standing;
use semel::store::Store;
use semel::store::conformance::claims::{self, Claim};
use semel_testkit::Moto;

use crate::stage::{key, load, on};

/// A process with a handle of its own.
struct Client {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Client {
    fn start(moto: &Moto, env: &[(&str, &str)]) -> Client {
        let mut child = Command::new(env!("CARGO_BIN_EXE_semel-store-probe"))
            .arg(moto.url("ledger"))
            .envs(Moto::VARIABLES)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Client { child, orders, answers };
        assert_eq!(client.ask("open"), "ok open");
        client
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn wait_until_lapsed(store: &dyn Store, name: &str) -> Duration {
    let begun = Instant::now();
    loop {
        match load(store, name).await.unwrap().standing {
            Some(Standing::Lapsed { .. }) => return begun.elapsed(),
            other => assert!(begun.elapsed() < Duration::from_secs(30), "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_client_that_was_stopped_past_its_ttl_is_refused() {
    let moto = Moto::start();
    let store = on(&moto);
    let mut client = Client::start(&moto, &[]);
    let token = client.ask("claim lease/a 2000");
    let token = token.strip_prefix("won ").unwrap().to_owned();
    client.signal("-STOP");
    client.order(&format!("release lease/a {token}"));
    wait_until_lapsed(&*store, "lease/a").await;
    let claim = claims::claim(&*store, &key("lease/a"), Duration::from_secs(60)).await.unwrap();
    let Claim::Won(won) = claim else { panic!("a lapsed lease is not granted") };
    client.signal("-CONT");
    let answer = client.answer();
    assert!(answer.starts_with("error"), "{answer}");
    let stands = load(&*store, "lease/a").await.unwrap();
    assert_eq!(stands.version, won.version, "what it sent late changed nothing");
}

#[tokio::test]
async fn a_clients_clock_that_is_an_hour_off_makes_no_lease_longer_or_shorter() {
    let (moto, library) = (Moto::start(), semel_testkit::faketime());
    let library = library.expect("faketime is missing: install it with cargo xtask servers");
    let store = on(&moto);
    for (name, offset) in [("lease/ahead", "+3600s"), ("lease/behind", "-3600s")] {
        let env =
            [("LD_PRELOAD", library.as_str()), ("FAKETIME", offset), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let mut client = Client::start(&moto, &env);
        // its lease, as we see it
        assert!(client.ask(&format!("claim {name} 3000")).starts_with("won "));
        let standing = load(&*store, name).await.unwrap().standing;
        assert!(matches!(standing, Some(Standing::Live { left_ms: 1..=5000 })), "{standing:?}");
        let took = wait_until_lapsed(&*store, name).await;
        // an hour would be told from seconds on the slowest machine
        assert!((Duration::from_secs(1)..Duration::from_secs(60)).contains(&took), "{took:?}");
        // our lease, as it sees it
        let Claim::Won(_) = claims::claim(&*store, &key(name), Duration::from_secs(3)).await.unwrap() else {
            panic!("a lapsed lease is not granted")
        };
        assert_eq!(client.ask(&format!("claim {name} 3000")), "lost");
        wait_until_lapsed(&*store, name).await;
        assert!(client.ask(&format!("claim {name} 3000")).starts_with("won "));
    }
}
