//! Replies that get lost, connections that break, transactions that are in the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use semel::core::record::{Expect, Standing};
use semel::store::postgres::Postgres;
use semel::store::{Change, Durability, Store, StoreError};
use semel::{Job, Outcome, Semel};
use semel_testkit::{PgServer, Proxy};

use crate::stage::{MINUTE, create, hurried, key, open, open_with, put};

fn unknown<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
}

async fn value(store: &dyn Store, name: &str) -> Option<String> {
    let record = store.load(&[key(name)]).await.unwrap().records.remove(0)?;
    Some(String::from_utf8(record.value).unwrap())
}

#[tokio::test]
async fn a_lost_reply_is_unknown_and_the_write_is_there() {
    let server = PgServer::start();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into());
    let store = open(&server.url_at(proxy.port()));
    let other = open(&server.url());
    let version = create(&store, "lease/a", MINUTE).await;

    proxy.lose_replies_to(b"swap_1", 1);
    unknown(store.swap(&[put("a", Expect::Absent, "put", None)], Durability::Durable).await);
    assert_eq!(value(&other, "a").await.as_deref(), Some("put"));
    assert_eq!(value(&store, "a").await.as_deref(), Some("put"), "the same handle works again");

    let stands = store.load(&[key("a")]).await.unwrap().records.remove(0).unwrap();
    let remove = [Change::Remove { key: key("a"), expect: Expect::Version(stands.version) }];
    proxy.lose_replies_to(b"swap_1", 1);
    unknown(store.swap(&remove, Durability::Relaxed).await);
    assert_eq!(value(&other, "a").await, None);

    let left_ms = async || {
        let lease = other.load(&[key("lease/a")]).await.unwrap().records.remove(0).unwrap();
        let Some(Standing::Live { left_ms }) = lease.standing else { panic!("{lease:?}") };
        left_ms
    };
    while left_ms().await > 59_500 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = left_ms().await;
    proxy.lose_replies_to(b"touch_1", 1);
    unknown(store.touch(&key("lease/a"), &version).await);
    let after = left_ms().await;
    assert!(after > before, "the touch was made: {before} ms were left, then {after}");

    // a read that got no answer was not applied, whatever that means
    proxy.lose_replies_to(b"load_1", 1);
    let read = store.load(&[key("a")]).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    assert_eq!(proxy.lost(), 4);
}

#[tokio::test]
async fn runs_with_lost_replies_have_their_effect_once_and_keep_their_outcome() {
    let server = PgServer::start();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into());
    let store = open(&server.url_at(proxy.port()));
    // the ledger is there: it is made by words that would be lost as well
    create(&store, "warm", None).await;
    let semel = Semel::on(Arc::new(store));
    let effects = Arc::new(AtomicU32::new(0));
    for slot in 0..6 {
        let job = Job::named("job").slot(&format!("s{slot}")).build().unwrap();
        // the claim's reply, then the settlement's, then both
        if slot % 3 != 1 {
            proxy.lose_replies_to(b"swap_1", 1);
        }
        let (counted, proxy) = (Arc::clone(&effects), &proxy);
        let outcome: Outcome<u32, std::io::Error> = semel
            .run(&job, async |_| {
                if slot % 3 != 0 {
                    proxy.lose_replies_to(b"swap_1", 1);
                }
                counted.fetch_add(1, Ordering::SeqCst);
                Ok(slot)
            })
            .await;
        assert!(matches!(outcome, Outcome::Done(done) if done == slot), "{slot}: {outcome:?}");
        let again: Outcome<u32, std::io::Error> = semel.run(&job, async |_| panic!("it is done")).await;
        assert!(matches!(again, Outcome::AlreadyDone(Some(done)) if done == slot), "{slot}: {again:?}");
    }
    assert_eq!(effects.load(Ordering::SeqCst), 6);
    assert_eq!(proxy.lost(), 8);
}

#[tokio::test]
async fn a_silent_server_ends_with_the_deadline_and_a_cut_one_at_once() {
    let server = PgServer::start();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into());
    let store = open_with(&server.url_at(proxy.port()), hurried(Duration::from_secs(2)));
    create(&store, "a", None).await;
    proxy.swallow();
    let begun = Instant::now();
    unknown(store.swap(&[put("b", Expect::Absent, "x", None)], Durability::Durable).await);
    // the next one cannot connect: surely not applied
    let next = store.swap(&[put("c", Expect::Absent, "x", None)], Durability::Durable).await;
    assert!(matches!(next, Err(StoreError::Unavailable(_))), "{next:?}");
    assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    proxy.cut();
    let cut = store.load(&[key("a")]).await;
    assert!(matches!(cut, Err(StoreError::Unavailable(_))), "{cut:?}");
    proxy.pass();
    assert_eq!(value(&store, "a").await.as_deref(), Some("x"));
    proxy.break_all();
    tokio::time::sleep(Duration::from_millis(50)).await;
    create(&store, "d", None).await;
}

#[tokio::test]
async fn a_verb_that_is_dropped_leaves_its_reply_to_nobody() {
    let server = PgServer::start();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into());
    let store = open(&server.url_at(proxy.port()));
    for i in 0..20 {
        store
            .swap(&[put(&format!("k{i}"), Expect::Absent, &i.to_string(), None)], Durability::Relaxed)
            .await
            .unwrap();
    }
    proxy.delay(Duration::from_millis(5));
    for i in 0..20 {
        let dropped =
            tokio::time::timeout(Duration::from_millis(i % 7), store.load(&[key(&format!("k{i}"))])).await;
        drop(dropped);
        let other = (i + 7) % 20;
        assert_eq!(value(&store, &format!("k{other}")).await, Some(other.to_string()));
    }
    assert_eq!(proxy.connections(), 1, "and the connection is kept");
}

#[tokio::test]
async fn a_row_that_a_person_has_locked_is_a_sure_no() {
    let server = PgServer::start();
    let store = open_with(&server.url(), hurried(Duration::from_secs(1)));
    let version = create(&store, "a", MINUTE).await;
    let (person, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    person.batch_execute("BEGIN; SELECT * FROM semel.records FOR UPDATE").await.unwrap();
    let swap =
        store.swap(&[put("a", Expect::Version(version.clone()), "y", None)], Durability::Durable).await;
    let Err(StoreError::Unavailable(said)) = swap else { panic!("{swap:?}") };
    assert!(said.contains("locked by another transaction"), "{said}");
    let touch = store.touch(&key("a"), &version).await;
    assert!(matches!(touch, Err(StoreError::Unavailable(_))), "{touch:?}");
    person.batch_execute("ROLLBACK").await.unwrap();
    store.touch(&key("a"), &version).await.unwrap();
}

#[tokio::test]
async fn isolation_levels_of_the_server_change_nothing() {
    for level in ["repeatable read", "serializable"] {
        let server = PgServer::start_with(&[&format!("default_transaction_isolation={level}")]);
        let stores: Vec<_> = (0..4).map(|_| Arc::new(open(&server.url()))).collect();
        let mut tasks = Vec::new();
        for i in 0..40 {
            let store = Arc::clone(&stores[i % 4]);
            tasks.push(tokio::spawn(async move {
                let name = format!("a{}", i % 5);
                store.swap(&[put(&name, Expect::Absent, "x", None)], Durability::Durable).await
            }));
        }
        let mut made = 0;
        for task in tasks {
            match task.await.unwrap() {
                Ok(_) => made += 1,
                Err(StoreError::Refused(conflict)) => assert!(conflict.stands.is_some()),
                Err(why) => panic!("{level}: {why}"),
            }
        }
        assert_eq!(made, 5, "{level}");
    }
}

#[tokio::test]
async fn swaps_that_cross_each_other_are_whole_and_none_is_lost() {
    let server = PgServer::start();
    let stores: Vec<_> = (0..8).map(|_| Arc::new(open(&server.url()))).collect();
    for name in ["x", "y", "z"] {
        stores[0].swap(&[put(name, Expect::Absent, "0", None)], Durability::Relaxed).await.unwrap();
    }
    // each adds one to all three, in an order of its own, and guards a record that others make and remove
    let add = async |store: &dyn Store, names: [&str; 3]| loop {
        let mut keys = names.map(key).to_vec();
        keys.push(key("guarded"));
        let loaded = store.load(&keys).await.unwrap().records;
        let mut changes = Vec::new();
        for (name, record) in names.iter().zip(&loaded) {
            let record = record.as_ref().unwrap();
            let next = String::from_utf8(record.value.clone()).unwrap().parse::<u32>().unwrap() + 1;
            changes.push(put(name, Expect::Version(record.version.clone()), &next.to_string(), None));
        }
        match &loaded[3] {
            None => changes.push(Change::Guard { key: key("guarded"), expect: Expect::Absent }),
            Some(record) => changes.push(Change::Remove {
                key: key("guarded"),
                expect: Expect::Version(record.version.clone()),
            }),
        }
        match store.swap(&changes, Durability::Relaxed).await {
            Ok(_) => break,
            Err(StoreError::Refused(_)) => {}
            Err(why) => panic!("{why}"),
        }
        // somebody makes what the others guard
        let _ = store.swap(&[put("guarded", Expect::Absent, "g", None)], Durability::Relaxed).await;
    };
    let orders = [["x", "y", "z"], ["z", "y", "x"], ["y", "z", "x"], ["z", "x", "y"]];
    let adders = stores.iter().enumerate().map(|(i, store)| async move {
        for n in 0..15 {
            add(&**store, orders[(i + n) % 4]).await;
        }
    });
    futures_join(adders.collect()).await;
    for name in ["x", "y", "z"] {
        assert_eq!(value(&*stores[0], name).await.as_deref(), Some("120"), "{name}");
    }
}

async fn futures_join<F: Future<Output = ()>>(all: Vec<F>) {
    let mut all: Vec<_> = all.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        all.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// The lock of a swap that only guards changes nothing in the row: what was seen before the wait must be looked at
/// again after it.
#[tokio::test]
async fn a_touch_that_waited_past_the_lapse_does_not_revive() {
    let server = PgServer::start();
    let store = Arc::new(open(&server.url()));
    let version = create(&*store, "a", Some(Duration::from_millis(600))).await;
    let (other, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    other.batch_execute("BEGIN; SELECT * FROM semel.records FOR UPDATE").await.unwrap();
    let (late, seen) = (Arc::clone(&store), version.clone());
    let touch = tokio::spawn(async move { late.touch(&key("a"), &seen).await });
    // by the store's clock, on a connection of its own
    let watcher = open(&server.url());
    let begun = Instant::now();
    while !matches!(
        watcher.load(&[key("a")]).await.unwrap().records[0].as_ref().unwrap().standing,
        Some(Standing::Lapsed { .. })
    ) {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    other.batch_execute("COMMIT").await.unwrap();
    let touch = touch.await.unwrap();
    assert!(matches!(touch, Err(StoreError::Refused(_))), "{touch:?}");
    let lapsed = [put("a", Expect::Lapsed(version), "y", None)];
    store.swap(&lapsed, Durability::Durable).await.unwrap();
}

#[tokio::test]
async fn the_longest_wait_and_the_longest_deadline_are_no_trouble() {
    let server = PgServer::start();
    let store = open_with(&server.url(), hurried(Duration::MAX));
    let version = create(&store, "a", MINUTE).await;
    assert!(store.changed(&key("a"), None, Duration::MAX).await.unwrap());
    let store = open(&server.url());
    assert!(!store.changed(&key("a"), Some(&version), Duration::from_millis(10)).await.unwrap());
    assert!(store.changed(&key("b"), Some(&version), Duration::MAX).await.unwrap());
}

/// The first host takes connections and answers nothing: the second must still have its turn.
#[tokio::test]
async fn a_host_that_swallows_everything_keeps_nobody_from_the_next() {
    let server = PgServer::start();
    create(&open(&server.url()), "a", None).await;
    let dead = Proxy::before(([127, 0, 0, 1], server.port()).into());
    dead.swallow();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", dead.port(), server.port());
    let url = server.url().replace(&format!("127.0.0.1:{}", server.port()), &hosts);
    assert!(url.contains(','), "{url}");
    let store = open_with(&url, hurried(Duration::from_secs(6)));
    assert_eq!(value(&store, "a").await.as_deref(), Some("x"));
    assert_eq!(dead.connections(), 1, "it was tried first");
    // the one that answered is asked first from now on
    server.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'semel'");
    let begun = Instant::now();
    while store.load(&[key("a")]).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    assert_eq!(dead.connections(), 1);
}

#[tokio::test]
async fn a_server_without_a_free_connection_is_asked_again_and_named_if_none_comes_free() {
    let settings = ["max_connections=4", "superuser_reserved_connections=0", "max_wal_senders=0"];
    let server = PgServer::start_with(&settings);
    create(&open(&server.url()), "a", None).await;
    // the rest are taken; whoever was there before may need a moment to be gone
    let mut taken: Vec<Postgres> = Vec::new();
    let begun = Instant::now();
    while taken.len() < 4 {
        let store = open(&server.url());
        store.load(&[key("a")]).await.unwrap();
        taken.push(store);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    let late = open_with(&server.url(), hurried(Duration::from_secs(1)));
    let Err(StoreError::Unavailable(why)) = late.load(&[key("a")]).await else { panic!("there is room") };
    assert!(why.contains("has no connection left: raise max_connections"), "{why}");
    let patient = open(&server.url());
    let wanted = [key("a")];
    let (loaded, ()) = tokio::join!(patient.load(&wanted), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        taken.pop();
    });
    assert!(loaded.unwrap().records[0].is_some());
}
