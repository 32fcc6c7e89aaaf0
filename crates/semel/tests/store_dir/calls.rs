//! What it costs, what it waits for, and whose clock it goes by.

use std::time::{Duration, Instant};

use semel::core::record::{Expect, Standing};
use semel::store::dir::Dir;
use semel::store::{Durability, Settings, Store, StoreError};

use crate::skips;
use crate::support::{Folder, MINUTE, Probe, key, load, put};

/// How many syncs each order costs, after a first life that made the folders.
fn syncs(folder: &Folder, orders: &[&str]) -> usize {
    let trace = folder.temp.path().join("trace");
    let trace_name = trace.display().to_string();
    let strace = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", &trace_name];
    let answers = folder.run(&strace, orders);
    assert!(answers.iter().all(|answer| !answer.starts_with("error")), "{answers:?}");
    std::fs::read_to_string(&trace).unwrap().lines().filter(|line| line.contains("sync(")).count()
}

#[test]
fn each_write_costs_the_syncs_that_its_page_says() {
    let folder = Folder::new();
    folder.run(&[], &["open", "put entry/job/a 1 durable", "lease lease/a 60000", "touch lease/a"]);
    assert_eq!(syncs(&folder, &["open", "load entry/job/a"]), 0, "a read");
    assert_eq!(syncs(&folder, &["open", "put entry/job/a 2 durable"]), 2, "the file and its folder");
    assert_eq!(syncs(&folder, &["open", "put entry/job/a 2 relaxed"]), 1, "the file");
    assert_eq!(syncs(&folder, &["open", "touch lease/a"]), 2, "a renewal is durable");
    assert_eq!(
        syncs(&folder, &["open", "put entry/job/b 1 durable"]),
        5,
        "a new one: the folders above as well"
    );
    assert_eq!(syncs(&folder, &["open", "remove entry/job/b"]), 2, "a removal");
}

#[tokio::test]
async fn a_waiter_is_woken_soon_after_anothers_write() {
    let folder = Folder::new();
    let (store, other) = (folder.store(), folder.store());
    let mut version =
        store.swap(&[put("a", Expect::Absent, "0", None)], Durability::Durable).await.unwrap().remove(0);
    let mut waits = Vec::new();
    for i in 0..30 {
        let writer = async {
            // let the waiter wait first
            tokio::time::sleep(Duration::from_millis(10)).await;
            let change = put("a", Expect::Version(version.clone()), &i.to_string(), None);
            let made = other.swap(&[change], Durability::Durable).await.unwrap().remove(0);
            (made, Instant::now())
        };
        let waiter = async {
            assert!(store.changed(&key("a"), Some(&version), Duration::from_secs(20)).await.unwrap());
            Instant::now()
        };
        let ((made, written), woken) = tokio::join!(writer, waiter);
        waits.push(woken.saturating_duration_since(written));
        version = made;
    }
    waits.sort();
    println!("hand-over: p50 {:?}, p90 {:?}", waits[15], waits[27]);
    assert!(waits[15] < Duration::from_millis(50), "{waits:?}");
}

/// A pipe that nobody writes to hangs whoever opens it, as a server that gives no answer does.
#[tokio::test]
async fn a_server_that_hangs_ends_with_the_deadline() {
    let folder = Folder::new();
    folder.store().swap(&[put("a", Expect::Absent, "x", MINUTE)], Durability::Durable).await.unwrap();
    let pipe = folder.path.join("records/=a/0000000000000002");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let deadline = Duration::from_millis(1_500);
    let hung = Dir::open(&folder.path, &Settings { deadline, ..Settings::default() }).unwrap();
    let begun = Instant::now();
    let keys = [key("a")];
    let Err(StoreError::Unavailable(why)) = hung.load(&keys).await else { panic!("a pipe answered") };
    assert!(why.contains("no answer within"), "{why}");
    // not sent, so surely not applied
    let write = [put("a", Expect::Absent, "y", None)];
    assert!(matches!(hung.swap(&write, Durability::Durable).await, Err(StoreError::Unavailable(_))));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // other records are served all the same, by the same handle
    hung.swap(&[put("b", Expect::Absent, "x", None)], Durability::Relaxed).await.unwrap();
    std::fs::remove_file(&pipe).unwrap();
    assert_eq!(load(&hung, "a").await.unwrap().value, b"x");
}

#[tokio::test]
async fn a_clock_that_is_an_hour_off_decides_nothing() {
    let Some(library) = semel_testkit::faketime() else {
        skips::skipped("a clock an hour off", "libfaketime is not installed");
        return;
    };
    let folder = Folder::new();
    let store = folder.store();
    let lease = put("lease/a", Expect::Absent, "x", MINUTE);
    let version = store.swap(&[lease], Durability::Durable).await.unwrap().remove(0);
    for off in ["+1h", "-1h"] {
        let faked = [
            ("LD_PRELOAD", format!("{} {library}", crate::lost::library(&folder))),
            ("FAKETIME", off.to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            // a file's time is not this machine's to tell
            ("NO_FAKE_STAT", "1".to_owned()),
        ];
        let mut probe = Probe::start(&folder, &faked);
        assert_eq!(probe.ask("claim lease/b 3000"), "won 1", "{off}");
        // live for us, to the millisecond
        let theirs = load(&store, "lease/b").await.unwrap().standing;
        assert!(matches!(theirs, Some(Standing::Live { left_ms: 1..=3011 })), "{off}: {theirs:?}");
        // ours is live for it, and it can renew it
        assert_eq!(probe.ask("touch lease/a"), "ok touch", "{off}");
        assert_eq!(probe.ask("claim lease/b 3000"), "lost", "{off}");
        let begun = Instant::now();
        while !matches!(load(&store, "lease/b").await.unwrap().standing, Some(Standing::Lapsed { .. })) {
            assert!(begun.elapsed() < Duration::from_secs(20));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(probe.ask("claim lease/b 60000"), "won 2", "{off}: lapsed for it as well");
        let stands = load(&store, "lease/b").await.unwrap();
        let remove =
            semel::store::Change::Remove { key: key("lease/b"), expect: Expect::Version(stands.version) };
        store.swap(&[remove], Durability::Durable).await.unwrap();
    }
    store.touch(&key("lease/a"), &version).await.unwrap();
}
