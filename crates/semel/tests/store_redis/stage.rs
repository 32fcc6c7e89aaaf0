//! What the tests share: handles, records, a child process that obeys.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::core::record::{Expect, RecordKey, Standing, Version};
use semel::store::redis::Redis as Ledger;
use semel::store::{Change, Durability, Finding, Grade, Record, Settings, Store, StoreError};

pub(crate) const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

pub(crate) fn open(url: &str) -> Arc<Ledger> {
    Arc::new(Ledger::new(url, &Settings::default()).unwrap())
}

/// With a deadline that a test can wait for.
pub(crate) fn impatient(url: &str, deadline: Duration) -> Ledger {
    Ledger::new(url, &Settings { deadline, ..Settings::default() }).unwrap()
}

pub(crate) fn key(text: &str) -> RecordKey {
    RecordKey::from_stored(text.to_owned())
}

pub(crate) fn put(name: &str, expect: Expect, value: &str, ttl: Option<Duration>) -> Change {
    Change::Put { key: key(name), expect, value: value.as_bytes().to_vec(), ttl }
}

pub(crate) async fn swap(store: &dyn Store, change: Change) -> Result<Version, StoreError> {
    store.swap(&[change], Durability::Durable).await.map(|mut versions| versions.remove(0))
}

pub(crate) async fn create(store: &dyn Store, name: &str, value: &str, ttl: Option<Duration>) -> Version {
    swap(store, put(name, Expect::Absent, value, ttl)).await.unwrap()
}

pub(crate) async fn load(store: &dyn Store, name: &str) -> Option<Record> {
    store.load(&[key(name)]).await.unwrap().records.remove(0)
}

pub(crate) async fn left_ms(store: &dyn Store, name: &str) -> u64 {
    match load(store, name).await.unwrap().standing {
        Some(Standing::Live { left_ms }) => left_ms,
        _ => 0,
    }
}

/// The line of an error after which nothing was written.
pub(crate) fn unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Unavailable(line)) => {
            assert!(!line.contains('\n'), "one line: {line}");
            line
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn grade(found: &[Finding], name: &str) -> (Grade, String) {
    let one =
        found.iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("{name}: {found:?}"));
    (one.grade, one.what.clone())
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Wait until it holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "waited too long until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A child that obeys: `semel-store-probe`. Killed when dropped.
pub(crate) struct Probe {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Probe {
    pub(crate) fn start(url: &str, env: &[(&str, &str)]) -> Probe {
        let mut child = Command::new(env!("CARGO_BIN_EXE_semel-store-probe"))
            .arg(url)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut probe = Probe { child, orders, answers: BufReader::new(answers) };
        assert_eq!(probe.ask("open"), "ok open");
        probe
    }

    pub(crate) fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: no memory is involved.
        unsafe { libc::kill(i32::try_from(self.child.id()).unwrap(), signal) };
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
