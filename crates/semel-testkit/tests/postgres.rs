//! A server is private, and gone with its test, even with one that is killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(clippy::disallowed_methods)] // a test starts processes and looks at the clock

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use semel_testkit::Postgres;

fn processes_of(dir: &Path) -> usize {
    let mark = dir.to_str().unwrap().to_owned();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&mark)
    })
    .count()
}

#[track_caller]
fn until(what: &str, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(30), "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn gone(dir: &Path) -> bool {
    !dir.exists() && processes_of(dir) == 0
}

#[test]
fn a_server_is_gone_when_it_is_dropped_and_when_its_test_is_killed() {
    if std::env::var_os("TESTKIT_START").is_some() {
        let server = Postgres::start().unwrap();
        println!("\nat {}", server.folder().display());
        // killed here; or, should nobody do it, done soon
        std::thread::sleep(Duration::from_secs(30));
        return;
    }
    let server = match Postgres::start() {
        Ok(server) => server,
        Err(reason) => {
            if let Some(log) = std::env::var_os("SEMEL_SKIP_LOG") {
                let mut log = std::fs::File::options().create(true).append(true).open(log).unwrap();
                let line = format!("semel-testkit a_server_is_gone_when_it_is_dropped: {reason}\n");
                std::io::Write::write_all(&mut log, line.as_bytes()).unwrap();
            }
            return;
        }
    };
    let dir = server.folder().to_owned();
    assert!(processes_of(&dir) > 0);
    drop(server);
    until("the dropped server is gone", || gone(&dir));

    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_server_is_gone_when_it_is_dropped_and_when_its_test_is_killed", "--nocapture"])
        .env("TESTKIT_START", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let dir = lines.filter_map(|line| line.strip_prefix("at ").map(PathBuf::from)).next().unwrap();
    assert!(processes_of(&dir) > 0 && dir.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    until("the killed test's server is gone", || gone(&dir));
}
