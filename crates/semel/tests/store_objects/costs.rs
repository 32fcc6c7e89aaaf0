//! Requests, counted by a proxy; how soon a waiter wakes; long keys; what is tidied.

use std::time::{Duration, Instant};

use semel::core::record::{Expect, Standing};
use semel::store::{Change, StoreError};
use semel::{Job, Outcome, Semel};
use semel_testkit::{Moto, OnDisk, Proxy};

use crate::stage::{MINUTE, key, load, on, open, put, swap, through};

#[tokio::test]
async fn requests_are_as_many_as_the_page_says() {
    let moto = Moto::start();
    let proxy = Proxy::before(moto.0.address(0));
    let store = through(&proxy, Duration::from_secs(10));
    swap(&*store, &[put("first", Expect::Absent, "x", None)]).await.unwrap();
    let count = |what: &str, before: u64, wanted: u64| {
        let asked = proxy.round_trips() - before;
        println!("{what}: {asked} requests");
        assert_eq!(asked, wanted, "{what}");
        proxy.round_trips()
    };
    let at = proxy.round_trips();
    store.load(&[key("a")]).await.unwrap();
    let at = count("a load", at, 1);
    let changes = [put("lease/a", Expect::Absent, "held", MINUTE), put("a", Expect::Absent, "1", None)];
    let versions = swap(&*store, &changes).await.unwrap();
    let at = count("a swap of two", at, 2);
    for _ in 0..3 {
        store.touch(&key("lease/a"), &versions[0]).await.unwrap();
    }
    let at = count("three touches", at, 3);
    let changes = [
        put("a", Expect::Version(versions[1].clone()), "2", None),
        put("lease/a", Expect::Live(versions[0].clone()), "free", None),
    ];
    swap(&*store, &changes).await.unwrap();
    let at = count("a swap of what was touched", at, 2);
    let guard = Change::Guard { key: key("lease/a"), expect: Expect::Absent };
    assert!(swap(&*store, &[guard]).await.is_err());
    let at = count("a guard", at, 1);
    store.scan("lease/", None, 10).await.unwrap();
    count("a scan of one record", at, 2);
}

#[tokio::test]
async fn many_who_ask_at_once_share_requests() {
    let moto = Moto::start();
    let proxy = Proxy::before(moto.0.address(0));
    let store = through(&proxy, Duration::from_secs(10));
    swap(&*store, &[put("a", Expect::Absent, "x", None)]).await.unwrap();
    let before = proxy.round_trips();
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let store = std::sync::Arc::clone(&store);
            tokio::spawn(async move { load(&*store, "a").await.is_some() })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap());
    }
    let asked = proxy.round_trips() - before;
    assert!(asked <= 40, "{asked} requests for 200 loads at once");
}

#[tokio::test]
async fn a_run_costs_little() {
    let moto = Moto::start();
    let proxy = Proxy::before(moto.0.address(0));
    let store = through(&proxy, Duration::from_secs(10));
    swap(&*store, &[put("first", Expect::Absent, "x", None)]).await.unwrap();
    let semel = Semel::on(store);
    let job = Job::named("job").slot("monday").build().unwrap();
    let begun = proxy.round_trips();
    let before = std::cell::Cell::new(0);
    let outcome = semel
        .run(&job, async |_| {
            before.set(proxy.round_trips() - begun);
            Ok::<u32, std::io::Error>(1)
        })
        .await;
    assert!(matches!(outcome, Outcome::Done(1)), "{outcome:?}");
    let after = proxy.round_trips() - begun - before.get();
    let skipped = proxy.round_trips();
    let outcome = semel.run(&job, async |_| Ok::<u32, std::io::Error>(2)).await;
    assert!(matches!(outcome, Outcome::AlreadyDone(Some(1))), "{outcome:?}");
    let skip = proxy.round_trips() - skipped;
    println!("a fresh run: {} requests before the body and {after} after; a skip: {skip}", before.get());
    // as the page of this store says it
    assert!(before.get() <= 4 && after <= 2 && skip <= 3, "{} {after} {skip}", before.get());
}

#[tokio::test]
async fn a_waiter_wakes_within_the_time_of_a_look() {
    let moto = Moto::start();
    let (waiter, writer) = (on(&moto), on(&moto));
    let mut took = Vec::new();
    for i in 0..9 {
        let name = format!("a{i}");
        let version = swap(&*writer, &[put(&name, Expect::Absent, "1", MINUTE)]).await.unwrap().remove(0);
        let key = key(&name);
        let wait = async {
            assert!(waiter.changed(&key, Some(&version), Duration::from_secs(30)).await.unwrap());
            Instant::now()
        };
        let write = async {
            tokio::time::sleep(Duration::from_millis(40 * i)).await;
            swap(&*writer, &[put(&name, Expect::Version(version.clone()), "2", None)]).await.unwrap();
            Instant::now()
        };
        let (woken, written) = tokio::join!(wait, write);
        took.push(woken.saturating_duration_since(written));
    }
    took.sort();
    println!("hand-over: p50 {:?}, longest {:?}", took[4], took[8]);
    assert!(took[4] < Duration::from_millis(1500), "{took:?}");
}

#[tokio::test]
async fn keys_longer_than_a_name_are_kept_in_order() {
    let moto = Moto::start();
    let store = on(&moto);
    let long = format!("output/{}", "j%2F".repeat(350));
    let mut names: Vec<String> = (0..25).map(|i| format!("{long}/{:06x}", (i * 7) % 25)).collect();
    names.push("output/a".to_owned());
    names.push("output/z".to_owned());
    for name in &names {
        swap(&*store, &[put(name, Expect::Absent, name, None)]).await.unwrap();
    }
    names.sort();
    for prefix in ["output/".to_owned(), format!("{long}/")] {
        let wanted: Vec<&String> = names.iter().filter(|name| name.starts_with(&prefix)).collect();
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().map(|last| key(last));
            let page = store.scan(&prefix, after.as_ref(), 10).await.unwrap();
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= 10);
            found.extend(page.into_iter().map(|record| record.key.as_str().to_owned()));
            assert!(found.len() <= names.len());
        }
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted);
    }
}

#[tokio::test]
async fn what_is_left_of_a_removal_is_no_record_and_is_deleted_a_day_later() {
    let server = OnDisk::start();
    let store = open(&server.s3_url("ledger"), &Moto::VARIABLES);
    let remove = |version| [Change::Remove { key: key("a"), expect: Expect::Version(version) }];
    let version = swap(&*store, &[put("a", Expect::Absent, "1", None)]).await.unwrap().remove(0);
    let all = server.count();
    swap(&*store, &remove(version)).await.unwrap();
    store.tidy().await.unwrap();
    assert!(store.scan("", None, 10).await.unwrap().is_empty());
    assert_eq!(server.count(), all, "who was slow may still meet it");
    // made again by one who saw it removed, and by one who saw nothing
    let version = swap(&*store, &[put("a", Expect::Absent, "2", None)]).await.unwrap().remove(0);
    swap(&*store, &remove(version)).await.unwrap();
    let other = open(&server.s3_url("ledger"), &Moto::VARIABLES);
    let version = swap(&*other, &[put("a", Expect::Absent, "3", None)]).await.unwrap().remove(0);
    server.set_ahead(Duration::from_secs(25 * 3600));
    store.tidy().await.unwrap();
    assert_eq!(load(&*store, "a").await.unwrap().value, b"3");
    swap(&*store, &remove(version)).await.unwrap();
    server.set_ahead(Duration::from_secs(50 * 3600));
    store.tidy().await.unwrap();
    assert_eq!(server.count(), all - 1, "nothing is left of it");
    swap(&*other, &[put("a", Expect::Absent, "4", None)]).await.unwrap();
}

#[tokio::test]
async fn a_lease_goes_by_the_services_clock_alone() {
    let server = OnDisk::start();
    let store = open(&server.s3_url("ledger"), &Moto::VARIABLES);
    let hour = Some(Duration::from_secs(3600));
    let version = swap(&*store, &[put("lease/a", Expect::Absent, "x", hour)]).await.unwrap().remove(0);
    server.set_ahead(Duration::from_secs(3590));
    store.touch(&key("lease/a"), &version).await.unwrap();
    server.set_ahead(Duration::from_secs(3605));
    assert!(matches!(load(&*store, "lease/a").await.unwrap().standing, Some(Standing::Live { .. })));
    server.set_ahead(Duration::from_secs(7200));
    let fresh = open(&server.s3_url("ledger"), &Moto::VARIABLES);
    assert!(matches!(fresh.touch(&key("lease/a"), &version).await, Err(StoreError::Refused(_))));
    let take = put("lease/a", Expect::Lapsed(version), "y", hour);
    swap(&*fresh, &[take]).await.unwrap();
}
