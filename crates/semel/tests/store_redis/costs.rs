//! Round trips, connections, and how soon a waiter wakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use semel::core::record::Expect;
use semel::store::Store;
use semel::{Job, Outcome, Semel};
use semel_testkit::{Proxy, Redis};

use crate::stage::{MINUTE, create, key, load, open, put, swap, until};

#[tokio::test]
async fn every_verb_is_one_round_trip_and_a_run_is_two_and_one() {
    let server = Redis::start();
    let proxy = Proxy::before(server.address());
    let store = open(&format!("redis://{}", proxy.address()));
    // the connection and the scripts are there from now on
    let version = create(&*store, "lease/a", "1", MINUTE).await;
    store.touch(&key("lease/a"), &version).await.unwrap();
    store.scan("lease/", None, 10).await.unwrap();
    load(&*store, "lease/a").await;
    let mut counted = Vec::new();
    let mut last = proxy.round_trips();
    let mut count = |what: &'static str| {
        let now = proxy.round_trips();
        counted.push((what, now - last));
        last = now;
    };
    store.load(&[key("lease/a"), key("entry/a")]).await.unwrap();
    count("load");
    let changes =
        [put("lease/a", Expect::Version(version), "2", MINUTE), put("entry/a", Expect::Absent, "1", None)];
    let versions = store.swap(&changes, semel::store::Durability::Durable).await.unwrap();
    count("swap");
    store.touch(&key("lease/a"), &versions[0]).await.unwrap();
    count("touch");
    store.scan("", None, 10).await.unwrap();
    count("scan");
    assert_eq!(counted, [("load", 1), ("swap", 1), ("touch", 1), ("scan", 1)]);

    let semel = Semel::on(store);
    let job = |slot: &str| Job::named("job").slot(slot).build().unwrap();
    let before = proxy.round_trips();
    let at_body = AtomicU64::new(0);
    let body = async |_: semel::Run| -> Result<u32, std::io::Error> {
        at_body.store(proxy.round_trips(), Ordering::SeqCst);
        Ok(1)
    };
    let outcome = semel.run(&job("monday"), body).await;
    assert!(matches!(outcome, Outcome::Done(1)), "{outcome:?}");
    let (begun, after) = (at_body.load(Ordering::SeqCst), proxy.round_trips());
    assert_eq!((begun - before, after - begun), (2, 1), "before the body, after it");
    // one answer to decide by; the note that it was skipped is sent, and not waited for
    proxy.answer(1);
    let skipped = semel.run(&job("monday"), body).await;
    assert!(matches!(skipped, Outcome::AlreadyDone(Some(1))), "{skipped:?}");
    let direct = open(&server.url());
    until("it is noted", async || direct.scan("journal/", None, 10).await.unwrap().len() == 1).await;
    assert_eq!(proxy.round_trips() - after, 2, "a look and a note");
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn what_is_posted_is_made_although_its_handle_is_gone_and_the_server_forgot_its_scripts() {
    let server = Redis::start();
    for i in 0..50 {
        let store = open(&server.url());
        load(&*store, "a").await;
        assert_eq!(server.ask("SCRIPT FLUSH"), "+OK");
        store.post(&[put(&format!("journal/{i}"), Expect::Absent, "x", None)]).await.unwrap();
        // a while, in which the answer comes and is not read
        if i % 2 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let store = open(&server.url());
    until("all are there", async || store.scan("journal/", None, 100).await.unwrap().len() == 50).await;
}

#[tokio::test]
async fn a_waiter_wakes_within_milliseconds_on_the_one_connection() {
    let server = Redis::start();
    let proxy = Proxy::before(server.address());
    let (waits, writes) = (open(&format!("redis://{}", proxy.address())), open(&server.url()));
    let mut times = Vec::new();
    for round in 0..40 {
        let name = format!("lease/{round}");
        let version = create(&*writes, &name, "held", MINUTE).await;
        let (store, record, old) = (Arc::clone(&waits), key(&name), version.clone());
        let waiter = tokio::spawn(async move {
            let changed = store.changed(&record, Some(&old), Duration::from_secs(30)).await.unwrap();
            (changed, Instant::now())
        });
        let heard = format!("PUBSUB CHANNELS {{semel}}:c0:{name}");
        until("it listens", async || server.ask(&heard) == "*1").await;
        let at = Instant::now();
        swap(&*writes, put(&name, Expect::Version(version), "free", None)).await.unwrap();
        let (changed, woken) = waiter.await.unwrap();
        assert!(changed);
        times.push(woken.saturating_duration_since(at));
    }
    times.sort();
    let p50 = times[times.len() / 2];
    println!("hand-over: p50 {p50:?}, longest {:?}, the write included", times[times.len() - 1]);
    // one that looked would be woken by its next look, most of a second later
    assert!(p50 < Duration::from_millis(300), "{p50:?}");
    assert_eq!(proxy.connections(), 1);
    // who no longer waits is no longer subscribed, but for the last
    assert_eq!(server.ask("PUBSUB CHANNELS *"), "*1");
}

#[tokio::test]
async fn a_waiter_survives_a_server_that_restarts() {
    let mut server = Redis::start();
    let (waits, writes) = (open(&server.url()), open(&server.url()));
    let version = create(&*writes, "lease/a", "held", MINUTE).await;
    let (store, old) = (Arc::clone(&waits), version.clone());
    let waiter = tokio::spawn(async move {
        loop {
            match store.changed(&key("lease/a"), Some(&old), Duration::from_secs(30)).await {
                Ok(changed) => break changed,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    });
    until("it listens", async || server.ask("PUBSUB CHANNELS *") == "*1").await;
    server.server.kill();
    server.server.start_again();
    until("it listens again", async || server.ask("PUBSUB CHANNELS *") == "*1").await;
    until("it is written", async || {
        swap(&*writes, put("lease/a", Expect::Version(version.clone()), "free", None)).await.is_ok()
    })
    .await;
    assert!(waiter.await.unwrap());
}
