//! Killed at every system call that changes the folder.

use std::collections::HashSet;

use semel::core::record::{Expect, Version};
use semel::store::conformance::claims::{self, Claim, Won};
use semel::store::{Durability, Store};

use crate::support::{Folder, MINUTE, Probe, key, load, put};

/// What changes the folder, or makes a change safe. The state of the folder is the same at all calls between.
const CALLS: [&str; 8] =
    ["mkdir", "mkdirat", "openat", "linkat", "renameat", "unlinkat", "fsync", "utimensat"];

/// The orders of one life: claim, write, settle, renew, release, remove, and once more. The ttl is soon over.
const ORDERS: [&str; 10] = [
    "open",
    "claim lease/a 40",
    "put entry/a running durable",
    "put entry/a done durable",
    "lease lease/b 60000",
    "touch lease/b",
    "remove entry/a",
    "put entry/a again durable",
    "put entry/b relaxed relaxed",
    "put entry/a last durable",
];

/// What the records hold after so many answers.
fn after(answers: usize) -> [Option<&'static str>; 2] {
    let a = match answers {
        0..=2 => None,
        3 => Some("running"),
        4..=6 => Some("done"),
        7 => None,
        8..=9 => Some("again"),
        _ => Some("last"),
    };
    [a, (answers >= 9).then_some("relaxed")]
}

/// One life, killed at the call of this kind and number: how many orders were answered.
fn life(folder: &Folder, call: &str, at: usize) -> usize {
    let (trace, inject) = (format!("trace={call}"), format!("inject={call}:signal=KILL:when={at}"));
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let answers = folder.run(&strace, &ORDERS);
    for answer in &answers {
        assert!(!answer.starts_with("error"), "{call} {at}: {answer}");
    }
    answers.len()
}

/// What stands there after so many answers, and that whoever comes next can go on from it.
async fn goes_on(store: &dyn Store, answered: usize, versions: &mut HashSet<Version>, at: &str) {
    for (index, name) in ["entry/a", "entry/b"].into_iter().enumerate() {
        let record = load(store, name).await;
        let value = record.as_ref().map(|record| String::from_utf8_lossy(&record.value).into_owned());
        let (old, new) = (after(answered)[index], after(answered + 1)[index]);
        assert!(
            value.as_deref() == old || value.as_deref() == new,
            "{at}, {answered} answered: {name} is {value:?}, neither {old:?} nor {new:?}"
        );
        let expect = record.map_or(Expect::Absent, |record| {
            assert!(versions.insert(record.version.clone()), "{at}: a version came twice");
            Expect::Version(record.version)
        });
        let next = store.swap(&[put(name, expect, "next", None)], Durability::Durable).await.unwrap();
        assert!(versions.insert(next[0].clone()), "{at}: a version came twice");
        assert_eq!(load(store, name).await.unwrap().value, b"next");
    }
}

/// The lease of the dead lapses and is taken over: its token.
async fn taken_over(store: &dyn Store) -> Won {
    let begun = std::time::Instant::now();
    loop {
        match claims::claim(store, &key("lease/a"), MINUTE.unwrap()).await.unwrap() {
            Claim::Won(won) => return won,
            Claim::Lost => assert!(begun.elapsed().as_secs() < 20, "the lease never lapses"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn killed_at_any_call_the_record_is_old_or_new_and_others_go_on() {
    let (mut versions, mut tokens, mut kills) = (HashSet::new(), HashSet::new(), 0);
    for call in CALLS {
        // those before the first order are of the program's own start
        let starts_at = if call == "openat" { opened_before_the_first_order() + 1 } else { 1 };
        for number in starts_at.. {
            let (folder, at) = (Folder::in_memory(), format!("{call} {number}"));
            let answered = life(&folder, call, number);
            let store = folder.store();
            goes_on(&store, answered, &mut versions, &at).await;
            tokens.insert(taken_over(&store).await.grant.token.value());
            assert!(store.scan("", None, 100).await.unwrap().len() >= 3, "{at}");
            // what it left is swept once it is old
            folder.age("drafts");
            store.tidy().await.unwrap();
            assert_eq!(folder.names("drafts"), [""; 0], "{at}");
            if answered == ORDERS.len() {
                break;
            }
            kills += 1;
        }
    }
    println!("killed at each of {kills} calls");
    assert_eq!(tokens, HashSet::from([1, 2]), "killed before and after the claim");
    assert!(kills > 100, "only {kills} calls: does strace see them?");
}

fn opened_before_the_first_order() -> usize {
    let folder = Folder::new();
    let trace = folder.temp.path().join("trace").display().to_string();
    folder.run(&["strace", "-f", "-qq", "-e", "trace=openat", "-o", &trace], &["open"]);
    std::fs::read_to_string(trace).unwrap().lines().filter(|line| line.contains("openat(")).count()
}

#[tokio::test]
async fn a_process_that_was_stopped_past_its_ttl_writes_nothing_more() {
    let folder = Folder::new();
    let mut probe = Probe::start(&folder, &[]);
    assert_eq!(probe.ask("claim lease/a 300"), "won 1");
    probe.signal(libc::SIGSTOP);
    let store = folder.store();
    let heir = taken_over(&store).await;
    probe.signal(libc::SIGCONT);
    assert!(probe.ask("release lease/a 1").starts_with("error"));
    let stands = load(&store, "lease/a").await.unwrap();
    assert_eq!(stands.version, heir.version);
}
