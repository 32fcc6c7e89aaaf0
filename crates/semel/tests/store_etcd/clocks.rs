//! Whose clock counts: etcd's, whatever the client's says.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use semel::core::record::{Expect, Standing};
use semel::store::{Store, StoreError};
use semel_testkit::Etcd;

use crate::{MINUTE, SECOND, key, open, probe, put, read, write};

struct Probe {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Probe {
    fn start(url: &str, env: &[(&str, &str)]) -> Probe {
        let mut child = Command::new(probe())
            .arg(url)
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

    fn signal(&self, signal: i32) {
        // SAFETY: no memory is involved.
        unsafe { libc::kill(i32::try_from(self.child.id()).unwrap(), signal) };
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

async fn lapse(store: &dyn Store, name: &str) -> Duration {
    let begun = Instant::now();
    while !matches!(read(store, name).await.unwrap().standing, Some(Standing::Lapsed { .. })) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{name} does not lapse");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}

#[tokio::test]
async fn a_client_whose_wall_clock_is_an_hour_off_holds_a_lease_as_long_as_any() {
    let library =
        semel_testkit::faketime().expect("faketime is missing: install it with cargo xtask servers");
    let server = Etcd::start();
    let (url, store) = (server.url("p"), open(&server.url("p")));
    write(&*store, put("held", Expect::Absent, "x", MINUTE)).await.unwrap();
    for (name, off) in [("ahead", "+1h"), ("behind", "-1h")] {
        let env =
            [("LD_PRELOAD", library.as_str()), ("FAKETIME", off), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let mut probe = Probe::start(&url, &env);
        let begun = Instant::now();
        assert_eq!(probe.ask(&format!("claim {name} 2000")), "won 1");
        lapse(&*store, name).await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_secs(2), "{name}: a lease of 2 s ended after {took:?}");
        // an hour would be told from seconds on the slowest machine
        assert!(took < Duration::from_secs(19), "{name}: a lease of 2 s ended after {took:?}");
        assert_eq!(probe.ask(&format!("claim {name} 60000")), "won 2");
        // another's lease is as live to it as to anybody
        assert!(matches!(read(&*store, name).await.unwrap().standing, Some(Standing::Live { .. })));
        assert_eq!(Probe::start(&url, &env).ask(&format!("claim {name} 60000")), "lost");
    }
}

#[tokio::test]
async fn a_client_that_was_stopped_past_its_ttl_is_refused() {
    let server = Etcd::start();
    let (url, store) = (server.url("p"), open(&server.url("p")));
    let (mut zombie, mut heir) = (Probe::start(&url, &[]), Probe::start(&url, &[]));
    assert_eq!(zombie.ask("claim a 1000"), "won 1");
    let stale = read(&*store, "a").await.unwrap().version;
    zombie.signal(libc::SIGSTOP);
    zombie.order("release a 1");
    lapse(&*store, "a").await;
    assert_eq!(heir.ask("claim a 60000"), "won 2");
    let held = read(&*store, "a").await.unwrap();
    zombie.signal(libc::SIGCONT);
    let answer = zombie.answer();
    assert!(answer.starts_with("error"), "{answer}");
    for late in [Expect::Version(stale.clone()), Expect::Live(stale.clone()), Expect::Lapsed(stale.clone())] {
        let answer = write(&*store, put("a", late, "zombie", None)).await;
        assert!(matches!(answer, Err(StoreError::Refused(_))), "{answer:?}");
    }
    assert!(matches!(store.touch(&key("a"), &stale).await, Err(StoreError::Refused(_))));
    let after = read(&*store, "a").await.unwrap();
    assert_eq!((after.version, after.value), (held.version, held.value));
}

#[tokio::test]
async fn the_age_of_a_lapse_is_known_to_whoever_comes_later_and_grows() {
    let server = Etcd::start();
    let url = server.url("p");
    let version = write(&*open(&url), put("a", Expect::Absent, "x", SECOND)).await.unwrap();
    let first = open(&url);
    lapse(&*first, "a").await;
    let begun = Instant::now();
    drop(first);
    // each look is of a process of its own, which remembers nothing
    let for_ms = async || match read(&*open(&url), "a").await.unwrap().standing {
        Some(Standing::Lapsed { for_ms }) => for_ms,
        other => panic!("{other:?}"),
    };
    while for_ms().await < 1000 {
        assert!(begun.elapsed() < Duration::from_secs(20), "its age does not grow");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(
        begun.elapsed() >= Duration::from_millis(900),
        "it is said to be older than it is: {:?}",
        begun.elapsed()
    );
    // it is still lapsed to the write, and what remembered it goes
    let store = open(&url);
    assert!(read(&*store, "a").await.is_some());
    let refused = write(&*store, put("a", Expect::Live(version.clone()), "y", MINUTE)).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    write(&*store, put("a", Expect::Lapsed(version), "y", MINUTE)).await.unwrap();
    assert!(matches!(read(&*store, "a").await.unwrap().standing, Some(Standing::Live { .. })));
    let leases = || server.ctl(&["lease", "list"]).lines().filter(|line| !line.contains("found")).count();
    let begun = Instant::now();
    while leases() != 1 {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the memory of a lapse stays behind: {}",
            leases()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_touch_restarts_one_clock_and_no_other() {
    let server = Etcd::start();
    let store = open(&server.url("p"));
    let a = write(&*store, put("a", Expect::Absent, "x", Some(Duration::from_secs(2)))).await.unwrap();
    write(&*store, put("b", Expect::Absent, "x", Some(Duration::from_secs(2)))).await.unwrap();
    let begun = Instant::now();
    while !matches!(read(&*store, "b").await.unwrap().standing, Some(Standing::Lapsed { .. })) {
        store.touch(&key("a"), &a).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20), "a touch of a kept b alive");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    store.touch(&key("a"), &a).await.unwrap();
}
