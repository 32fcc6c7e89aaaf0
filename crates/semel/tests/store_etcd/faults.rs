//! Lost replies, broken and swallowed connections, a server that is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use semel::core::record::{Expect, Standing};
use semel::store::{Change, Durability, Store, StoreError};
use semel::{Job, Outcome, Semel};
use semel_testkit::{Etcd, EtcdCluster, Proxy};

use crate::tap::Tap;
use crate::{MINUTE, key, open, open_for, put, read, write};

fn is_unknown<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
}

#[tokio::test]
async fn a_reply_lost_after_a_put_or_a_removal_is_unknown_and_it_was_applied() {
    let server = Etcd::start();
    let (tap, direct) = (Tap::before(server.address()), open(&server.url("p")));
    let store = open(&tap.url("p"));
    // leaves an etcd lease over: with a new one, the reply that is lost may be that there is no such lease yet
    let warm = write(&*store, put("warm", Expect::Absent, "x", MINUTE)).await.unwrap();
    write(&*store, put("warm", Expect::Version(warm), "x", None)).await.unwrap();
    for (round, ttl) in [None, MINUTE].into_iter().enumerate() {
        let name = format!("a{round}");
        tap.lose_replies_to(b"LOSE ME", 1);
        is_unknown(write(&*store, put(&name, Expect::Absent, "LOSE ME", ttl)).await);
        let record = read(&*direct, &name).await.unwrap();
        assert_eq!(
            (record.value.as_slice(), record.standing.is_some()),
            (b"LOSE ME".as_slice(), ttl.is_some())
        );
        // the same handle goes on
        let same = read(&*store, &name).await.unwrap();
        assert_eq!(same.version, record.version);
        tap.lose_replies_to(record.key.as_str().as_bytes(), 1);
        let remove = Change::Remove { key: record.key, expect: Expect::Version(record.version) };
        is_unknown(store.swap(&[remove], Durability::Durable).await);
        assert!(read(&*direct, &name).await.is_none());
    }
    assert_eq!(tap.lost(), 4);
}

#[tokio::test]
async fn a_reply_lost_after_a_touch_is_unknown_and_it_was_applied() {
    let server = Etcd::start();
    let (tap, direct) = (Tap::before(server.address()), open(&server.url("p")));
    let store = open(&tap.url("p"));
    let version = write(&*store, put("a", Expect::Absent, "x", MINUTE)).await.unwrap();
    let left = async || match read(&*direct, "a").await.unwrap().standing {
        Some(Standing::Live { left_ms }) => left_ms,
        other => panic!("{other:?}"),
    };
    let begun = Instant::now();
    while left().await > 57_000 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // the etcd lease is named in the version, and in the renewal as a varint
    let mut id = u64::from_str_radix(version.as_str().split_once(':').unwrap().1, 16).unwrap();
    let mut needle = vec![8];
    while id > 0x7f {
        needle.push(u8::try_from(id & 0x7f).unwrap() | 0x80);
        id >>= 7;
    }
    needle.push(u8::try_from(id).unwrap());
    tap.lose_replies_to(&needle, 1);
    is_unknown(store.touch(&key("a"), &version).await);
    assert_eq!(tap.lost(), 1);
    assert!(left().await >= 58_000, "the touch was not applied");
    store.touch(&key("a"), &version).await.unwrap();
}

#[tokio::test]
async fn lost_replies_neither_double_an_effect_nor_lose_its_outcome() {
    let server = Etcd::start();
    let tap = Tap::before(server.address());
    let semel = Semel::on(open(&tap.url("p")));
    static EFFECTS: AtomicU32 = AtomicU32::new(0);
    for round in 1..=5u32 {
        let job = Job::named("job").slot(&format!("day-{round}")).build().unwrap();
        // each record that is written holds these bytes, and nothing that is read does
        tap.lose_replies_to(b"{\"v\":1", 1);
        let outcome: Outcome<u32, std::io::Error> = semel
            .run(&job, async |_| {
                tap.lose_replies_to(b"{\"v\":1", 1);
                Ok(EFFECTS.fetch_add(1, Ordering::SeqCst) + 1)
            })
            .await;
        assert!(matches!(outcome, Outcome::Done(done) if done == round), "{outcome:?}");
        assert_eq!(tap.lost(), 2 * round, "the claim's reply and the settlement's");
        let again: Outcome<u32, std::io::Error> = semel.run(&job, async |_| Ok(0)).await;
        assert!(matches!(again, Outcome::AlreadyDone(Some(done)) if done == round), "{again:?}");
        assert_eq!(EFFECTS.load(Ordering::SeqCst), round);
    }
}

#[tokio::test]
async fn a_swallowed_connection_ends_with_the_deadline_and_a_cut_one_is_made_again() {
    let server = Etcd::start();
    let proxy = Proxy::before(server.address());
    let store = open_for(&format!("etcd://{}/p", proxy.address()), Duration::from_secs(2));
    let version = write(&*store, put("a", Expect::Absent, "1", MINUTE)).await.unwrap();
    proxy.swallow();
    let begun = Instant::now();
    assert!(matches!(store.load(&[key("a")]).await, Err(StoreError::Unavailable(_))));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    proxy.pass();
    assert_eq!(read(&*store, "a").await.unwrap().version, version);
    proxy.swallow();
    is_unknown(write(&*store, put("a", Expect::Version(version.clone()), "2", None)).await);
    proxy.pass();
    store.touch(&key("a"), &version).await.unwrap();
    proxy.swallow();
    is_unknown(store.touch(&key("a"), &version).await);
    proxy.cut();
    for _ in 0..3 {
        assert!(store.load(&[key("a")]).await.is_err());
    }
    proxy.pass();
    let version = write(&*store, put("a", Expect::Version(version), "3", None)).await.unwrap();
    assert_eq!(read(&*store, "a").await.unwrap().version, version);
}

#[tokio::test]
async fn a_waiter_survives_broken_connections_and_verbs_may_be_dropped_at_any_time() {
    let server = Etcd::start();
    let proxy = Proxy::before(server.address());
    let store = open(&format!("etcd://{}/p", proxy.address()));
    let mut version = write(&*store, put("a", Expect::Absent, "0", None)).await.unwrap();
    for round in 0..5u64 {
        let (waiting, waited, seen) = (Arc::clone(&store), key("a"), version.clone());
        let waiter =
            tokio::spawn(async move { waiting.changed(&waited, Some(&seen), Duration::from_secs(30)).await });
        tokio::time::sleep(Duration::from_millis(20 * round)).await;
        proxy.break_all();
        // dropped in the middle, whatever it is doing
        let verbs =
            [("b", 300), ("c", 900), ("d", 2000)].map(|(name, micros)| {
                let put = put(&format!("{name}{round}"), Expect::Absent, "x", MINUTE);
                let store = Arc::clone(&store);
                async move {
                    tokio::time::timeout(Duration::from_micros(micros), write(&*store, put)).await.is_ok()
                }
            });
        for verb in verbs {
            verb.await;
        }
        let direct = open(&server.url("p"));
        version = write(&*direct, put("a", Expect::Version(version), "x", None)).await.unwrap();
        match waiter.await.unwrap() {
            Ok(changed) => assert!(changed),
            // told that it broke while it looked
            Err(why) => assert!(matches!(why, StoreError::Unavailable(_)), "{why}"),
        }
        assert_eq!(read(&*store, "a").await.unwrap().version, version);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_a_server_that_is_killed_under_load() {
    let mut server = Etcd::start();
    let url = server.url("p");
    under_load(&url, || {
        server.server().kill();
        server.server().start_again();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_leaders_that_are_killed_under_load() {
    let mut cluster = EtcdCluster::start();
    let url = cluster.url("p");
    under_load(&url, || {
        let leader = cluster.leader();
        cluster.member(leader).kill();
        assert_ne!(cluster.leader(), leader);
        cluster.member(leader).start_again();
    })
    .await;
}

/// Many write while `disturb` is called three times: every write that was answered is there, and a lease is still live.
async fn under_load(url: &str, mut disturb: impl FnMut()) {
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let (store, stop) = (open_for(url, Duration::from_secs(3)), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut answered = Vec::new();
                for i in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let name = format!("load/{writer}/{i}");
                    match write(&*store, put(&name, Expect::Absent, "x", None)).await {
                        Ok(version) => answered.push((name, version)),
                        Err(StoreError::Refused(why)) => panic!("{why:?}"),
                        Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                    }
                }
                answered
            })
        })
        .collect();
    let lease = write(&*open(url), put("lease", Expect::Absent, "held", MINUTE)).await.unwrap();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        tokio::task::block_in_place(&mut disturb);
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    stop.store(true, Ordering::SeqCst);
    let store = open(url);
    let mut many = 0;
    for writer in writers {
        let answered = writer.await.unwrap();
        let keys: Vec<_> = answered.iter().map(|(name, _)| key(name)).collect();
        let found = store.load(&keys).await.unwrap().records;
        for ((name, version), found) in answered.into_iter().zip(found) {
            let found = found.unwrap_or_else(|| panic!("{name} was answered and is gone"));
            assert_eq!(found.version, version);
            many += 1;
        }
    }
    println!("{many} writes were answered, all are there");
    assert!(many > 100);
    assert!(matches!(read(&*store, "lease").await.unwrap().standing, Some(Standing::Live { .. })));
    store.touch(&key("lease"), &lease).await.unwrap();
}

#[tokio::test]
async fn another_member_is_tried_when_one_is_away() {
    let server = Etcd::start();
    let nobody = semel_testkit::free_ports(1)[0];
    let url = format!("etcd://127.0.0.1:{nobody},{}/p", server.address());
    for _ in 0..3 {
        let store: Arc<dyn Store> = open(&url);
        assert!(read(&*store, "a").await.is_none());
    }
}
