//! Replies that get lost, connections that break, a server that is killed.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use semel::core::record::Expect;
use semel::store::{Change, Durability, Settings, Store, StoreError, open};
use semel::{Job, Outcome, Semel};
use semel_testkit::{NatsVersion, Proxy, nats};

use crate::{MINUTE, handle, key, put, read, write};

/// Only writes hold it.
const A_WRITE: &[u8] = b"Nats-Expected-Last-Subject-Sequence";
const DEADLINE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_reply_that_is_lost_after_an_applied_write_is_unknown() {
    for version in [NatsVersion::Recent, NatsVersion::Debian] {
        let server = nats(version, "");
        let proxy = Proxy::before(server.address(0));
        let (store, plain) = (handle(proxy.port(), DEADLINE), handle(server.port(0), DEADLINE));
        assert!(read(&*store, "a").await.is_none());

        proxy.lose_replies_to(A_WRITE, 1);
        let made = write(&*store, put("a", Expect::Absent, "1", MINUTE)).await;
        assert!(matches!(made, Err(StoreError::Unknown(_))), "{made:?}");
        let found = read(&*plain, "a").await.expect("it was applied");
        // the same handle, and what it reads is what stands there
        assert_eq!(read(&*store, "a").await.unwrap().version, found.version);

        store.touch(&key("a"), &found.version).await.unwrap();
        proxy.lose_replies_to(A_WRITE, 1);
        let touched = store.touch(&key("a"), &found.version).await;
        assert!(matches!(touched, Err(StoreError::Unknown(_))), "{touched:?}");
        // it was applied: the handle's own number is no longer the last, and it finds its way
        store.touch(&key("a"), &found.version).await.unwrap();

        proxy.lose_replies_to(A_WRITE, 1);
        let remove = [Change::Remove { key: key("a"), expect: Expect::Version(found.version.clone()) }];
        let removed = store.swap(&remove, Durability::Durable).await;
        assert!(matches!(removed, Err(StoreError::Unknown(_))), "{removed:?}");
        assert!(read(&*plain, "a").await.is_none(), "it was applied");

        proxy.lose_replies_to(A_WRITE, 1);
        let two = [put("b", Expect::Absent, "1", None), put("c", Expect::Absent, "1", None)];
        let made = store.swap(&two, Durability::Durable).await;
        assert!(matches!(made, Err(StoreError::Unknown(_))), "{made:?}");
        assert_eq!(proxy.lost(), 4);
        assert!(read(&*plain, "b").await.is_some());
        let fresh = store.swap(&[put("d", Expect::Absent, "1", None)], Durability::Durable).await;
        assert!(fresh.is_ok(), "{fresh:?}");
    }
}

#[tokio::test]
async fn a_run_whose_replies_get_lost_has_one_effect_and_keeps_its_outcome() {
    let server = nats(NatsVersion::Recent, "");
    let proxy = Proxy::before(server.address(0));
    let semel = Semel::on(handle(proxy.port(), DEADLINE));
    let effects = Cell::new(0);
    for round in 0..12 {
        let job = Job::named("job").slot(&format!("s{round}")).build().unwrap();
        // the claim's reply first, then the settlement's, then both
        let (claim, settle) = (round % 3 != 1, round % 3 != 0);
        if claim {
            proxy.lose_replies_to(A_WRITE, 1);
        }
        let outcome = semel
            .run(&job, async |_| {
                effects.set(effects.get() + 1);
                if settle {
                    proxy.lose_replies_to(A_WRITE, 1);
                }
                Ok::<u32, std::io::Error>(round)
            })
            .await;
        assert!(matches!(outcome, Outcome::Done(value) if value == round), "round {round}: {outcome:?}");
        proxy.pass();
        let again = semel.run(&job, async |_| -> Result<u32, std::io::Error> { panic!("again") }).await;
        assert!(
            matches!(again, Outcome::AlreadyDone(Some(value)) if value == round),
            "round {round}: {again:?}"
        );
    }
    assert_eq!(effects.get(), 12);
    assert_eq!(proxy.lost(), 16);
}

#[tokio::test]
async fn a_connection_that_answers_nothing_ends_with_the_deadline() {
    let server = nats(NatsVersion::Recent, "");
    let proxy = Proxy::before(server.address(0));
    // the bucket is made by one with more time
    write(&*handle(server.port(0), DEADLINE), put("bucket", Expect::Absent, "1", None)).await.unwrap();
    let store = handle(proxy.port(), Duration::from_secs(2));
    write(&*store, put("a", Expect::Absent, "1", None)).await.unwrap();
    proxy.swallow();
    let begun = Instant::now();
    let made = write(&*store, put("b", Expect::Absent, "1", None)).await;
    assert!(matches!(made, Err(StoreError::Unknown(_))), "{made:?}");
    let loaded = store.load(&[key("a")]).await;
    assert!(matches!(loaded, Err(StoreError::Unavailable(_))), "{loaded:?}");
    // nothing was sent: there is no connection to send it on
    let made = write(&*store, put("b", Expect::Absent, "1", None)).await;
    assert!(matches!(made, Err(StoreError::Unavailable(_))), "{made:?}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    proxy.break_all();
    proxy.pass();
    assert!(read(&*store, "b").await.is_none());
}

#[tokio::test]
async fn a_handle_works_again_after_its_connection_was_cut() {
    let server = nats(NatsVersion::Recent, "");
    let proxy = Proxy::before(server.address(0));
    let store = handle(proxy.port(), DEADLINE);
    let mut version = write(&*store, put("a", Expect::Absent, "0", None)).await.unwrap();
    for round in 0..5 {
        proxy.cut();
        let begun = Instant::now();
        let refused = write(&*store, put("late", Expect::Absent, "x", None)).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_) | StoreError::Unknown(_))), "{refused:?}");
        let refused = write(&*store, put("late", Expect::Absent, "x", None)).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert!(begun.elapsed() < DEADLINE, "{:?}", begun.elapsed());
        proxy.pass();
        version = write(&*store, put("a", Expect::Version(version), &round.to_string(), None)).await.unwrap();
        // what was said to be not made is not made later either
        assert!(read(&*store, "late").await.is_none());
    }
}

#[tokio::test]
async fn a_verb_that_is_dropped_breaks_nothing() {
    let server = nats(NatsVersion::Recent, "");
    let proxy = Proxy::before(server.address(0));
    let store = handle(proxy.port(), DEADLINE);
    write(&*store, put("a", Expect::Absent, "a", None)).await.unwrap();
    write(&*store, put("b", Expect::Absent, "b", None)).await.unwrap();
    proxy.delay(Duration::from_millis(20));
    for _ in 0..5 {
        let dropped = tokio::time::timeout(Duration::from_millis(5), store.load(&[key("a")])).await;
        assert!(dropped.is_err());
        assert_eq!(read(&*store, "b").await.unwrap().value, b"b");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_a_server_that_is_killed_under_load() {
    for version in [NatsVersion::Recent, NatsVersion::Debian] {
        let mut server = nats(version, "");
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..12)
            .map(|writer| {
                let (store, stop) = (handle(server.port(0), DEADLINE), Arc::clone(&stop));
                tokio::spawn(hammer(store, writer, stop))
            })
            .collect();
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.kill();
            server.start_again();
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.store(true, Ordering::SeqCst);
        let store = handle(server.port(0), DEADLINE);
        let mut answered = 0;
        for writer in writers {
            for (name, value) in writer.await.unwrap() {
                let found = read(&*store, &name).await.unwrap_or_else(|| panic!("{name} is lost"));
                assert_eq!(found.value, value.as_bytes(), "{name}");
                answered += 1;
            }
        }
        println!("{version:?}: {answered} answered writes, all there after 3 kills");
        assert!(answered > 50, "{answered}");
    }
}

/// Write until told to stop; answers what was answered.
async fn hammer(store: Arc<dyn Store>, writer: u32, stop: Arc<AtomicBool>) -> Vec<(String, String)> {
    let mut answered = Vec::new();
    for i in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let names = [format!("h/{writer}/{i}/a"), format!("h/{writer}/{i}/b")];
        let changes = names.clone().map(|name| put(&name, Expect::Absent, &name, None));
        match store.swap(&changes, Durability::Durable).await {
            Ok(_) => answered.extend(names.map(|name| (name.clone(), name))),
            Err(StoreError::Refused(conflict)) => panic!("nobody else writes {}", conflict.key),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    answered
}

/// One of two servers takes connections and answers nothing: whichever is tried first, the other has its turn.
#[tokio::test]
async fn a_server_that_swallows_everything_keeps_nobody_from_the_next() {
    let server = nats(NatsVersion::Recent, "");
    write(&*handle(server.port(0), DEADLINE), put("a", Expect::Absent, "1", None)).await.unwrap();
    let dead = Proxy::before(server.address(0));
    dead.swallow();
    let settings = Settings { deadline: Duration::from_secs(6), ..Settings::default() };
    let url = format!("nats://{},{}/ledger", dead.address(), server.address(0));
    // the library shuffles them: after a few, the dead one was the first
    let mut tries = 0;
    while dead.connections() < 2 {
        tries += 1;
        assert!(tries < 40, "the silent one is never tried");
        let store = open(&url, &settings).unwrap();
        assert_eq!(read(&*store, "a").await.unwrap().value, b"1");
    }
}
