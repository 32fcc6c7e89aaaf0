//! Replies that are lost, connections that break or say nothing, and a server that is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use semel::core::record::{Expect, Version};
use semel::store::{Change, Store, StoreError};
use semel::{Job, Outcome, Semel};
use semel_testkit::{Moto, OnDisk, Proxy};

use crate::stage::{MINUTE, key, load, on, open, put, swap, through};

const SOON: Duration = Duration::from_secs(3);

/// A ledger that was proven, a proxy before it, and a handle through that.
async fn stage() -> (Moto, Proxy, Arc<dyn Store>, Arc<dyn Store>) {
    let moto = Moto::start();
    let proxy = Proxy::before(moto.0.address(0));
    let (plain, proxied) = (on(&moto), through(&proxy, SOON));
    swap(&*proxied, &[put("first", Expect::Absent, "x", None)]).await.unwrap();
    (moto, proxy, plain, proxied)
}

#[tokio::test]
async fn a_lost_reply_is_read_back() {
    let (_moto, proxy, plain, store) = stage().await;
    proxy.lose_replies_to(b"PUT /", 1);
    let version = swap(&*store, &[put("a", Expect::Absent, "1", MINUTE)]).await.unwrap().remove(0);
    assert_eq!(proxy.lost(), 1);
    assert_eq!(load(&*plain, "a").await.unwrap().version, version);
    proxy.lose_replies_to(b"PUT /", 1);
    store.touch(&key("a"), &version).await.unwrap();
    assert_eq!(proxy.lost(), 2);
    assert_eq!(load(&*plain, "a").await.unwrap().version, version);
    proxy.lose_replies_to(b"PUT /", 1);
    let remove = Change::Remove { key: key("a"), expect: Expect::Version(version) };
    swap(&*store, &[remove]).await.unwrap();
    assert_eq!((proxy.lost(), load(&*plain, "a").await), (3, None));
}

#[tokio::test]
async fn what_cannot_be_read_back_is_unknown() {
    let (_moto, proxy, plain, store) = stage().await;
    let version = swap(&*store, &[put("a", Expect::Absent, "0", MINUTE)]).await.unwrap().remove(0);
    let lost = |answer: Result<(), StoreError>| {
        proxy.pass();
        assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    };
    // every reply is lost: that of the write, and those of the looks after it
    proxy.lose_replies(100);
    lost(store.touch(&key("a"), &version).await);
    assert_eq!(load(&*plain, "a").await.unwrap().version, version);
    load(&*store, "a").await;
    proxy.lose_replies(100);
    lost(swap(&*store, &[put("a", Expect::Version(version.clone()), "1", MINUTE)]).await.map(drop));
    let found = load(&*plain, "a").await.unwrap();
    assert_eq!(found.value, b"1", "it was applied");
    // the memory of the handle is none that stands in the way
    assert_eq!(load(&*store, "a").await.unwrap().version, found.version);
    proxy.lose_replies(100);
    let remove = Change::Remove { key: key("a"), expect: Expect::Version(found.version) };
    lost(swap(&*store, &[remove]).await.map(drop));
    assert_eq!(load(&*plain, "a").await, None);
}

#[tokio::test]
async fn a_swap_that_breaks_after_its_first_change_is_unknown() {
    let (_moto, proxy, plain, store) = stage().await;
    load(&*store, "a").await;
    let changes =
        [put("a", Expect::Absent, "1", None), put("b", Expect::Version(Version::new("x")), "1", None)];
    proxy.lose_replies_to(b"GET /semel/ledger/record/b", 100);
    let answer = swap(&*store, &changes).await;
    proxy.pass();
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    assert!(load(&*plain, "a").await.is_some());
}

#[tokio::test]
async fn silence_ends_with_the_deadline_and_the_handle_works_again() {
    let (_moto, proxy, _, store) = stage().await;
    let version = swap(&*store, &[put("a", Expect::Absent, "0", MINUTE)]).await.unwrap().remove(0);
    proxy.swallow();
    let begun = Instant::now();
    assert!(matches!(store.load(&[key("a")]).await, Err(StoreError::Unavailable(_))));
    let answer = store.touch(&key("a"), &version).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    let took = begun.elapsed();
    assert!(took < SOON * 2 + Duration::from_secs(2), "{took:?}");
    proxy.cut();
    assert!(matches!(store.load(&[key("a")]).await, Err(StoreError::Unavailable(_))));
    proxy.pass();
    assert_eq!(load(&*store, "a").await.unwrap().version, version);
    store.touch(&key("a"), &version).await.unwrap();
}

#[tokio::test]
async fn a_verb_that_was_dropped_leaves_nothing_broken() {
    let (_moto, proxy, plain, store) = stage().await;
    let mut version = swap(&*store, &[put("a", Expect::Absent, "0", MINUTE)]).await.unwrap().remove(0);
    proxy.delay(Duration::from_millis(30));
    for after_ms in [1, 20, 40, 70] {
        let change = [put("a", Expect::Version(version.clone()), &after_ms.to_string(), MINUTE)];
        let dropped = tokio::time::timeout(Duration::from_millis(after_ms), swap(&*store, &change)).await;
        let _ = dropped;
        // what was dropped may still come, once, between a look and the write after it
        let mine = async || {
            let found = load(&*store, "a").await.unwrap();
            swap(&*store, &[put("a", Expect::Version(found.version), "mine", MINUTE)]).await
        };
        version = match mine().await {
            Err(StoreError::Refused(_)) => mine().await,
            answer => answer,
        }
        .unwrap()
        .remove(0);
        assert_eq!(load(&*plain, "a").await.unwrap().version, version);
    }
}

#[tokio::test]
async fn lost_replies_neither_double_an_effect_nor_lose_its_outcome() {
    let (_moto, proxy, plain, store) = stage().await;
    let (lossy, clear) = (Semel::on(store), Semel::on(plain));
    for round in 0..8 {
        let effects = AtomicU32::new(0);
        let job = Job::named("job").slot(&format!("s{round}")).ttl(Duration::from_secs(10)).build().unwrap();
        // the reply to the first, second, third … write is lost, and from the fourth round on the looks as well
        if round < 4 {
            proxy.lose_replies_to(b"PUT /", round + 1);
        } else {
            proxy.lose_replies(round - 3);
        }
        let body = async |_| {
            effects.fetch_add(1, Ordering::SeqCst);
            Ok::<u32, std::io::Error>(round)
        };
        let outcome = lossy.run(&job, body).await;
        proxy.pass();
        let done = matches!(outcome, Outcome::Done(_));
        // whoever comes next finds the outcome; or runs it, once the lease of the one who got lost is over
        let begun = Instant::now();
        let value = loop {
            match clear.run(&job, body).await {
                Outcome::Done(value) | Outcome::AlreadyDone(Some(value)) => break value,
                other => assert!(begun.elapsed() < Duration::from_secs(40), "{other:?} after {outcome:?}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        assert_eq!(value, round);
        let effects = effects.load(Ordering::SeqCst);
        assert!(effects == 1, "round {round}: {effects} effects, first {outcome:?}, done {done}");
    }
}

#[test]
fn what_a_killed_server_answered_is_there_when_it_is_back() {
    let mut server = OnDisk::start();
    let url = server.s3_url("ledger");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let (store, stop) = (open(&url, &Moto::VARIABLES), Arc::clone(&stop));
            let count = Arc::clone(&count);
            runtime.spawn(async move {
                let mut answered = Vec::new();
                for i in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let name = format!("{writer}/{i}");
                    match swap(&*store, &[put(&name, Expect::Absent, &name, None)]).await {
                        Ok(versions) => {
                            answered.push((name, versions[0].clone()));
                            count.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(StoreError::Refused(conflict)) => panic!("{conflict:?}"),
                        Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                }
                answered
            })
        })
        .collect();
    for _ in 0..3 {
        let written = count.load(Ordering::SeqCst);
        let begun = Instant::now();
        while count.load(Ordering::SeqCst) < written + 100 {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written");
            std::thread::sleep(Duration::from_millis(5));
        }
        server.0.kill();
        server.0.start_again();
    }
    stop.store(true, Ordering::SeqCst);
    runtime.block_on(async {
        let store = open(&url, &Moto::VARIABLES);
        let (mut lost, mut kept) = (0, 0);
        for writer in writers {
            for (name, version) in writer.await.unwrap() {
                match load(&*store, &name).await {
                    Some(found) if found.version == version => kept += 1,
                    _ => lost += 1,
                }
            }
        }
        println!("{kept} kept, {lost} lost");
        assert!(kept >= 300, "{kept}");
        assert_eq!(lost, 0);
    });
}

#[tokio::test]
async fn an_examination_of_a_service_that_falls_silent_ends() {
    let (_moto, proxy, _plain, store) = stage().await;
    let before = proxy.round_trips();
    let all = store.examine().await.unwrap().len();
    let asked = proxy.round_trips() - before;
    // silent from the first of its last questions on: what it does to deletes is asked at the end
    for left in [5, 3, 1] {
        let (store, before) = (Arc::clone(&store), proxy.round_trips());
        let examined = tokio::spawn(async move { store.examine().await });
        let begun = Instant::now();
        while !examined.is_finished() && proxy.round_trips() < before + asked.saturating_sub(left) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it asks too little");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proxy.swallow();
        let found = tokio::time::timeout(SOON * 10, examined).await.expect("it hangs").unwrap();
        assert!(found.is_err() || found.is_ok_and(|found| found.len() == all));
        proxy.break_all();
        proxy.pass();
    }
}
