//! Replies that are lost, connections that break or swallow, futures that are dropped, a server that is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use semel::core::record::Expect;
use semel::store::{Change, Durability, Store, StoreError};
use semel::{Job, Outcome, Semel};
use semel_testkit::{Proxy, Redis};

use crate::stage::{MINUTE, create, impatient, key, left_ms, load, open, put, swap, until};

fn behind(server: &Redis) -> (Proxy, String) {
    let proxy = Proxy::before(server.address());
    let url = format!("redis://{}", proxy.address());
    (proxy, url)
}

fn is_unknown<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
}

#[tokio::test]
async fn a_reply_that_is_lost_after_a_write_is_unknown_and_the_write_stands() {
    let server = Redis::start();
    let (proxy, url) = behind(&server);
    let (store, direct) = (open(&url), open(&server.url()));
    let old = create(&*store, "a", "old", MINUTE).await;
    store.touch(&key("a"), &old).await.unwrap();
    proxy.lose_replies(1);
    is_unknown(swap(&*store, put("a", Expect::Version(old), "new", MINUTE)).await);
    let new = load(&*direct, "a").await.unwrap();
    assert_eq!(new.value, b"new");
    until("some of the lease has passed", async || left_ms(&*direct, "a").await < 59_500).await;
    load(&*store, "a").await.unwrap();
    let before = left_ms(&*direct, "a").await;
    proxy.lose_replies(1);
    is_unknown(store.touch(&key("a"), &new.version).await);
    let after = left_ms(&*direct, "a").await;
    assert!(after > before, "the clock was started again: {before} ms were left, then {after}");
    load(&*store, "a").await.unwrap();
    proxy.lose_replies(1);
    let remove = Change::Remove { key: key("a"), expect: Expect::Version(new.version) };
    is_unknown(swap(&*store, remove).await);
    assert!(load(&*direct, "a").await.is_none());
    // a read is simply not there
    load(&*store, "a").await;
    proxy.lose_replies(1);
    assert!(matches!(store.load(&[key("a")]).await, Err(StoreError::Unavailable(_))));
    assert_eq!(proxy.lost(), 4);
    create(&*store, "a", "again", None).await;
}

#[tokio::test]
async fn runs_whose_replies_are_lost_are_done_once_and_recorded() {
    let server = Redis::start();
    let (proxy, url) = behind(&server);
    let semel = Semel::on(open(&url));
    for lost in 0..6 {
        let effects = AtomicU32::new(0);
        let job = Job::named("job").slot(&format!("slot-{lost}")).build().unwrap();
        let body = async |_: semel::Run| -> Result<u32, std::io::Error> {
            Ok(effects.fetch_add(1, Ordering::SeqCst))
        };
        // only a swap names a channel
        proxy.lose_replies_to(b"}:c0:", lost % 3);
        for _ in 0..10 {
            let outcome = semel.run(&job, body).await;
            if matches!(outcome, Outcome::Done(_) | Outcome::AlreadyDone(_)) {
                break;
            }
        }
        proxy.pass();
        assert_eq!(effects.load(Ordering::SeqCst), 1, "{lost} replies lost");
        let again = Semel::on(open(&server.url())).run(&job, body).await;
        assert!(matches!(again, Outcome::AlreadyDone(Some(0))), "{again:?}");
    }
    assert!(proxy.lost() >= 6, "{}", proxy.lost());
}

#[tokio::test]
async fn a_swallowed_connection_ends_with_the_deadline() {
    let server = Redis::start();
    let (proxy, url) = behind(&server);
    let store = impatient(&url, Duration::from_secs(2));
    let version = create(&store, "a", "1", MINUTE).await;
    store.touch(&key("a"), &version).await.unwrap();
    for _ in 0..2 {
        // the second time, nothing can be connected
        proxy.swallow();
        let begun = Instant::now();
        let write = swap(&store, put("b", Expect::Absent, "1", None)).await;
        assert!(matches!(write, Err(StoreError::Unknown(_) | StoreError::Unavailable(_))), "{write:?}");
        let read = store.load(&[key("a")]).await;
        assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
    proxy.pass();
    assert_eq!(load(&store, "a").await.unwrap().value, b"1");
}

#[tokio::test]
async fn a_swallowed_write_is_unknown() {
    let server = Redis::start();
    let (proxy, url) = behind(&server);
    let store = impatient(&url, Duration::from_secs(2));
    let version = create(&store, "a", "1", MINUTE).await;
    proxy.swallow();
    is_unknown(store.touch(&key("a"), &version).await);
    proxy.pass();
    store.touch(&key("a"), &version).await.unwrap();
}

#[tokio::test]
async fn the_same_handle_works_again_after_a_cut() {
    let server = Redis::start();
    let (proxy, url) = behind(&server);
    let store = open(&url);
    create(&*store, "a", "1", None).await;
    for _ in 0..3 {
        proxy.cut();
        until("the cut is noticed", async || store.load(&[key("a")]).await.is_err()).await;
        let write = swap(&*store, put("b", Expect::Absent, "1", None)).await;
        assert!(matches!(write, Err(StoreError::Unavailable(_))), "nothing was sent: {write:?}");
        proxy.pass();
        assert_eq!(load(&*store, "a").await.unwrap().value, b"1");
    }
    assert!(load(&*store, "b").await.is_none());
}

#[tokio::test]
async fn a_dropped_verb_leaves_the_next_one_its_own_reply() {
    let server = Redis::start();
    let (proxy, url) = behind(&server);
    let store = open(&url);
    for name in ["a", "b"] {
        create(&*store, name, name, MINUTE).await;
    }
    proxy.delay(Duration::from_millis(3));
    for i in 0..60u64 {
        let dropped = store.load(std::slice::from_ref(&key("a"))).await.unwrap().records.remove(0).unwrap();
        let keys = [key("a")];
        let _ = tokio::time::timeout(Duration::from_micros(i * 100), store.load(&keys)).await;
        let _ = tokio::time::timeout(
            Duration::from_micros(i * 70),
            swap(&*store, put("a", Expect::Version(dropped.version), "a", MINUTE)),
        )
        .await;
        assert_eq!(load(&*store, "b").await.unwrap().value, b"b");
    }
    assert_eq!(proxy.connections(), 1);
}

/// Write on until told to stop; what was acknowledged is handed back.
async fn writer(url: String, name: u32, stop: Arc<AtomicBool>) -> Vec<String> {
    let store = open(&url);
    let (mut acknowledged, mut i) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let record = format!("entry/{name}/{i}");
        match swap(&*store, put(&record, Expect::Absent, &record, None)).await {
            Ok(_) => acknowledged.push(record),
            Err(StoreError::Refused(why)) => panic!("{why:?}"),
            // killed: go on with the next
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
        i += 1;
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_killed_server() {
    let mut server = Redis::start();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> =
        (0..16).map(|name| tokio::spawn(writer(server.url(), name, Arc::clone(&stop)))).collect();
    let reader = open(&server.url());
    for round in 1..=3u32 {
        let least = 300 * usize::try_from(round).unwrap();
        until("there is some load", async || {
            reader.scan("entry/", None, least).await.is_ok_and(|page| page.len() >= least)
        })
        .await;
        tokio::task::block_in_place(|| {
            server.server.kill();
            server.server.start_again();
        });
    }
    stop.store(true, Ordering::Relaxed);
    let mut many = 0;
    for writer in writers {
        for record in writer.await.unwrap() {
            let found = load(&*reader, &record).await.map(|found| found.value);
            assert_eq!(found.as_deref(), Some(record.as_bytes()), "{record} was acknowledged");
            many += 1;
        }
    }
    println!("{many} acknowledged writes over 3 kills, all there");
    assert!(many >= 600);
    // what was not acknowledged is there as a whole or not at all: names and records agree
    let mut last = None;
    loop {
        let page = reader.scan("entry/", last.as_ref(), 500).await.unwrap();
        let Some(end) = page.last() else { break };
        assert!(page.iter().all(|record| record.value == record.key.as_str().as_bytes()));
        last = Some(end.key.clone());
    }
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_sent_again() {
    let server = Redis::start();
    let store = open(&server.url());
    let mut version = create(&*store, "a", "1", MINUTE).await;
    for _ in 0..3 {
        assert_eq!(server.ask("SCRIPT FLUSH"), "+OK");
        version = swap(&*store, put("a", Expect::Version(version), "1", MINUTE)).await.unwrap();
        assert_eq!(server.ask("SCRIPT FLUSH"), "+OK");
        store.touch(&key("a"), &version).await.unwrap();
    }
    assert_eq!(store.swap(&[], Durability::Durable).await.unwrap(), []);
}

/// A waiter that goes while a subscription is on its way leaves no doubt about what the connection hears.
#[tokio::test]
async fn a_waiter_that_is_dropped_while_it_subscribes_makes_nobody_deaf() {
    let server = Redis::start();
    let (proxy, url) = behind(&server);
    let (store, direct) = (open(&url), open(&server.url()));
    let mut a = create(&*direct, "a", "x", MINUTE).await;
    let b = create(&*direct, "b", "x", MINUTE).await;
    assert!(!store.changed(&key("a"), Some(&a), Duration::from_millis(50)).await.unwrap());
    // on its way: a is left, b is listened to
    proxy.delay(Duration::from_millis(200));
    assert!(!store.changed(&key("b"), Some(&b), Duration::from_millis(50)).await.unwrap());
    proxy.pass();
    load(&*store, "a").await.unwrap();
    let mut times = Vec::new();
    for _ in 0..5 {
        let waiting = {
            let (store, a) = (Arc::clone(&store), a.clone());
            tokio::spawn(async move { store.changed(&key("a"), Some(&a), Duration::from_secs(20)).await })
        };
        tokio::time::sleep(Duration::from_millis(150)).await;
        let begun = Instant::now();
        a = swap(&*direct, put("a", Expect::Version(a), "y", MINUTE)).await.unwrap();
        assert!(waiting.await.unwrap().unwrap());
        // by the word, not by the look that comes within a second anyway
        times.push(begun.elapsed());
    }
    assert!(times.iter().any(|took| *took < Duration::from_millis(500)), "woken after {times:?}");
    assert_eq!(server.ask("PUBSUB CHANNELS *"), "*1", "nobody waits for b");
}

#[tokio::test]
async fn an_examination_of_a_server_that_falls_silent_ends() {
    let server = Redis::start();
    let (proxy, url) = behind(&server);
    let deadline = Duration::from_secs(2);
    let store = Arc::new(impatient(&url, deadline));
    create(&*store, "a", "1", None).await;
    let all = store.examine().await.unwrap().len();
    // silent from the beginning, and from each of its questions on
    for trip in 0..8 {
        let (asked, before) = (Arc::clone(&store), proxy.round_trips());
        proxy.delay(Duration::from_millis(20));
        let examined = tokio::spawn(async move { asked.examine().await });
        until("so much was asked", async || examined.is_finished() || proxy.round_trips() >= before + trip)
            .await;
        proxy.swallow();
        proxy.break_all();
        let found = tokio::time::timeout(deadline * 8, examined).await.expect("it hangs").unwrap();
        assert!(found.is_err() || found.is_ok_and(|found| found.len() >= all - 4));
        proxy.pass();
        until("it is there again", async || store.load(&[key("a")]).await.is_ok()).await;
    }
}

/// Who waits is told: it asks once for each second that it waits, beside the two looks of its run.
#[tokio::test]
async fn a_run_that_waits_does_not_poll() {
    let server = Redis::start();
    let (proxy, url) = behind(&server);
    let (holder, waiter) = (Semel::on(open(&server.url())), Semel::on(open(&url)));
    let job = |name: &str| {
        let job = Job::named(name).once().resource("hot");
        job.wait(Duration::from_secs(60)).build().unwrap()
    };
    // the scripts are there
    let quick = async |_: semel::Run| Ok::<u32, std::io::Error>(1);
    assert!(matches!(waiter.run(&job("first"), quick).await, Outcome::Done(1)));
    let held = Duration::from_secs(4);
    let (began, goes) = (tokio::sync::Notify::new(), Instant::now());
    let (waits_for, held_job) = (job("second"), job("holder"));
    let holding = holder.run(&held_job, async |_| {
        began.notify_one();
        tokio::time::sleep(held).await;
        Ok::<u32, std::io::Error>(2)
    });
    let waiting = async {
        began.notified().await;
        let before = proxy.round_trips();
        let outcome = waiter.run(&waits_for, quick).await;
        (outcome, proxy.round_trips() - before)
    };
    let (_, (outcome, asked)) = tokio::join!(holding, waiting);
    assert!(matches!(outcome, Outcome::Done(1)), "{outcome:?}");
    // a look, a subscription and a look; a look, a claim and a settlement; and one look a second
    let seconds = goes.elapsed().as_secs() + 1;
    println!("waited {held:?}: {asked} round trips");
    assert!(asked <= 8 + seconds, "{asked} round trips in {seconds} s");
}
