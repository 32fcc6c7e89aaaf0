//! What a verb costs: flights, requests, connections; and how soon a waiter wakes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::core::record::Expect;
use semel::store::{Change, Durability};
use semel::{Job, Outcome, Semel};
use semel_testkit::Etcd;

use crate::tap::Tap;
use crate::{MINUTE, key, open, put, read, write};

#[tokio::test]
async fn a_verb_is_one_flight() {
    let server = Etcd::start();
    let tap = Tap::before(server.address());
    let store = open(&tap.url("p"));
    read(&*store, "a").await;
    tap.counted();
    read(&*store, "a").await;
    assert_eq!(tap.counted(), (1, 1), "a load");
    let plain = write(&*store, put("plain", Expect::Absent, "x", None)).await.unwrap();
    assert_eq!(tap.counted(), (1, 1), "a swap without a clock");
    let version = write(&*store, put("a", Expect::Absent, "x", MINUTE)).await.unwrap();
    let (requests, flights) = tap.counted();
    println!("a claim with a new etcd lease: {requests} requests in {flights} flights");
    assert!(requests <= 3 && flights <= 2, "a grant and a transaction, the latter at worst twice");
    let mut together = 0;
    for i in 0..20 {
        // another ttl each time, so that no etcd lease is left over
        write(&*store, put(&format!("n{i}"), Expect::Absent, "x", Some(Duration::from_secs(100 + i))))
            .await
            .unwrap();
        together += u32::from(tap.counted().1 == 1);
    }
    println!("{together} of 20 claims with a new etcd lease were one flight");
    read(&*store, "a").await;
    assert_eq!(tap.counted(), (1, 1), "a load of a lease of ours");
    store.touch(&key("a"), &version).await.unwrap();
    assert_eq!(tap.counted(), (2, 1), "a touch");
    let guard = Change::Guard { key: key("a"), expect: Expect::Live(version.clone()) };
    let settle = put("plain", Expect::Version(plain), "y", None);
    let release = put("a", Expect::Version(version.clone()), "free", None);
    store.swap(&[guard, settle], Durability::Durable).await.unwrap();
    assert_eq!(tap.counted(), (1, 1), "a guarded swap");
    let free = write(&*store, release).await.unwrap();
    assert_eq!(tap.counted(), (1, 1), "a release");
    write(&*store, put("a", Expect::Version(free), "x", MINUTE)).await.unwrap();
    let (requests, flights) = tap.counted();
    assert!(
        requests <= 2 && flights == 1,
        "a claim with an etcd lease that was left over: {requests}, {flights}"
    );
    store.scan("", None, 100).await.unwrap();
    assert_eq!(tap.counted(), (1, 1), "a page");
    assert_eq!(tap.connections(), 1);
}

#[tokio::test]
async fn a_run_is_two_flights_before_its_body_and_one_after_and_a_skip_is_one() {
    let server = Etcd::start();
    let tap = Arc::new(Tap::before(server.address()));
    let semel = Semel::on(open(&tap.url("p")));
    let job = |slot: &str| Job::named("job").slot(slot).build().unwrap();
    let run = async |slot: &str| {
        tap.counted();
        let inside = Arc::clone(&tap);
        let outcome: Outcome<(u64, u64), std::io::Error> =
            semel.run(&job(slot), async |_| Ok(inside.counted())).await;
        (outcome, tap.counted())
    };
    assert!(run("first").await.0.is_done());
    let (outcome, after) = run("second").await;
    let Outcome::Done(before) = outcome else { panic!("{outcome:?}") };
    println!("(requests, flights) before the body {before:?}, after it {after:?}");
    assert_eq!((before.1, after.1), (2, 1));
    let (outcome, skip) = run("second").await;
    assert!(matches!(outcome, Outcome::AlreadyDone(_)), "{outcome:?}");
    assert_eq!(skip, (2, 2), "a skip is one look, and then one note in the journal");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_wakes_soon_after_the_write() {
    let server = Etcd::start();
    let (writer, waiter) = (open(&server.url("p")), open(&server.url("p")));
    let mut version = write(&*writer, put("a", Expect::Absent, "x", MINUTE)).await.unwrap();
    let mut took = Vec::new();
    for _ in 0..60 {
        let (store, seen) = (Arc::clone(&waiter), version.clone());
        let woken = tokio::spawn(async move {
            assert!(store.changed(&key("a"), Some(&seen), Duration::from_secs(20)).await.unwrap());
            Instant::now()
        });
        tokio::time::sleep(Duration::from_millis(30)).await;
        version = write(&*writer, put("a", Expect::Version(version), "x", None)).await.unwrap();
        let written = Instant::now();
        took.push(woken.await.unwrap().saturating_duration_since(written));
    }
    took.sort();
    println!("hand-over: p50 {:?}, longest {:?}", took[took.len() / 2], took[took.len() - 1]);
    assert!(took[took.len() / 2] < Duration::from_millis(300), "{took:?}");
}

#[tokio::test]
async fn a_waiter_for_a_lease_wakes_when_it_lapses() {
    let server = Etcd::start();
    let (holder, waiter) = (open(&server.url("p")), open(&server.url("p")));
    let version = write(&*holder, put("a", Expect::Absent, "x", crate::SECOND)).await.unwrap();
    let begun = Instant::now();
    assert!(waiter.changed(&key("a"), Some(&version), Duration::from_secs(30)).await.unwrap());
    assert!((900..8_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    // and is not woken again and again by what has happened already
    assert!(!waiter.changed(&key("a"), Some(&version), Duration::from_millis(300)).await.unwrap());
}

#[tokio::test]
async fn many_keys_are_loaded_as_of_one_moment_and_a_batch_is_split_as_etcd_wants() {
    let server = Etcd::start();
    let store = open(&server.url("p"));
    let keys: Vec<_> = (0..300).map(|i| key(&format!("k/{i:04}"))).collect();
    for part in keys.chunks(store.most().changes) {
        let puts: Vec<_> = part.iter().map(|key| put(key.as_str(), Expect::Absent, "x", None)).collect();
        store.swap(&puts, Durability::Durable).await.unwrap();
    }
    let found = store.load(&keys).await.unwrap().records;
    assert!(
        found.iter().zip(&keys).all(|(found, key)| found.as_ref().is_some_and(|found| found.key == *key))
    );
    assert_eq!(store.scan("k/", None, 1000).await.unwrap().len(), 300);
    let semel = Semel::on(store);
    let job = Job::named("batch").once().build().unwrap();
    let items = (0..700u32).map(|i| (i.to_string(), i));
    let outcome = semel.batch(&job).workers(300).run(items, async |_| Ok::<_, std::io::Error>(())).await;
    assert!(outcome.is_all_done(), "{outcome:?}");
}
