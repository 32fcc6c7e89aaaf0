//! Swaps of many tasks that go to the server together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::core::record::{Expect, Version};
use semel::store::postgres::Postgres;
use semel::store::{Change, Durability, Store, StoreError};
use semel_testkit::{PgServer, Proxy};

use crate::stage::{MINUTE, create, hurried, key, open, open_with, put};

type Answer = Result<Vec<Version>, StoreError>;

/// All of these at the same moment, one task each.
async fn at_once(store: &Arc<Postgres>, swaps: Vec<Vec<Change>>) -> Vec<Answer> {
    let tasks: Vec<_> = swaps
        .into_iter()
        .map(|changes| {
            let store = Arc::clone(store);
            tokio::spawn(async move { store.swap(&changes, Durability::Durable).await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn guard(name: &str, expect: Expect) -> Change {
    Change::Guard { key: key(name), expect }
}

async fn text(store: &Postgres, name: &str) -> Option<(String, Version)> {
    let found = store.load(&[key(name)]).await.unwrap().records.remove(0)?;
    Some((String::from_utf8(found.value).unwrap(), found.version))
}

#[tokio::test]
async fn swaps_of_many_tasks_share_round_trips_and_each_has_its_own_versions() {
    let server = PgServer::start();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into());
    let store = Arc::new(open(&server.url_at(proxy.port())));
    let lease = create(&*store, "lease/a", MINUTE).await;
    let before = proxy.round_trips();
    let swaps = (0..64)
        .map(|n| {
            let held = guard("lease/a", Expect::Live(lease.clone()));
            vec![held, put(&format!("step/{n}"), Expect::Absent, &format!("of {n}"), None)]
        })
        .collect();
    let answers = at_once(&store, swaps).await;
    let trips = proxy.round_trips() - before;
    assert!(trips <= 8, "{trips} round trips for 64 swaps of one process");
    for (n, answer) in answers.into_iter().enumerate() {
        let versions = answer.unwrap();
        assert_eq!(versions[0], lease);
        let found = text(&store, &format!("step/{n}")).await.unwrap();
        assert_eq!(found, (format!("of {n}"), versions[1].clone()));
    }
}

#[tokio::test]
async fn one_that_does_not_fit_is_refused_and_the_others_are_made() {
    let server = PgServer::start();
    let store = Arc::new(open(&server.url()));
    let stands = create(&*store, "taken", None).await;
    let swaps = (0..32)
        .map(|n| {
            let new = put(&format!("new/{n}"), Expect::Absent, "x", None);
            match n % 8 {
                7 => vec![new, guard("taken", Expect::Absent)],
                _ => vec![new],
            }
        })
        .collect();
    for (n, answer) in at_once(&store, swaps).await.into_iter().enumerate() {
        let made = text(&store, &format!("new/{n}")).await;
        match answer {
            Err(StoreError::Refused(why)) => {
                assert_eq!((n % 8, why.index, &why.key), (7, 1, &key("taken")));
                assert_eq!(why.stands.unwrap().version, stands);
                assert_eq!(made, None, "{n}");
            }
            answer => assert_eq!(made.unwrap().1, answer.unwrap()[0], "{n}"),
        }
    }
}

/// Each adds one to what it finds, all at the same record: none goes with another.
#[tokio::test]
async fn swaps_of_one_record_do_not_go_together() {
    let server = PgServer::start();
    let store = Arc::new(open(&server.url()));
    store.swap(&[put("count", Expect::Absent, "0", None)], Durability::Durable).await.unwrap();
    let tasks: Vec<_> = (0..12)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                loop {
                    let (value, version) = text(&store, "count").await.unwrap();
                    let next = (value.parse::<u32>().unwrap() + 1).to_string();
                    let change = put("count", Expect::Version(version), &next, None);
                    match store.swap(&[change], Durability::Durable).await {
                        Ok(_) => return,
                        Err(StoreError::Refused(_)) => {}
                        Err(why) => panic!("{why}"),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(text(&store, "count").await.unwrap().0, "12");
}

#[tokio::test]
async fn a_locked_row_is_the_trouble_of_its_own_swap() {
    let server = PgServer::start();
    let store = Arc::new(open_with(&server.url(), hurried(Duration::from_secs(8))));
    let locked = create(&*store, "locked", None).await;
    let (person, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    person.batch_execute("BEGIN; SELECT * FROM semel.records WHERE key = 'locked' FOR UPDATE").await.unwrap();
    let mut swaps: Vec<_> =
        (0..12).map(|n| vec![put(&format!("free/{n}"), Expect::Absent, "x", None)]).collect();
    // among those that wait together
    swaps[6].push(put("locked", Expect::Version(locked), "y", None));
    for (n, answer) in at_once(&store, swaps).await.into_iter().enumerate() {
        match n {
            6 => assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}"),
            _ => drop(answer.unwrap()),
        }
    }
    person.batch_execute("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn one_that_waits_ends_with_its_deadline_and_is_not_sent_later() {
    let server = PgServer::start();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into());
    let soon = Duration::from_secs(1);
    let store = Arc::new(open_with(&server.url_at(proxy.port()), hurried(soon)));
    create(&*store, "warm", None).await;
    proxy.swallow();
    let begun = Instant::now();
    let swaps = (0..16).map(|n| vec![put(&format!("a/{n}"), Expect::Absent, "x", None)]).collect();
    let answers = at_once(&store, swaps).await;
    let took = begun.elapsed();
    assert!(took < soon * 2, "{took:?}");
    proxy.pass();
    for (n, answer) in answers.into_iter().enumerate() {
        match answer {
            Err(StoreError::Unavailable(_)) => assert_eq!(text(&store, &format!("a/{n}")).await, None),
            answer => assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}"),
        }
    }
}

#[tokio::test]
async fn who_is_dropped_while_it_asks_for_others_leaves_them_an_answer() {
    let server = PgServer::start();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into());
    let store = Arc::new(open(&server.url_at(proxy.port())));
    create(&*store, "warm", None).await;
    proxy.delay(Duration::from_millis(20));
    for after_ms in [5, 25, 50, 70] {
        let tasks: Vec<_> = (0..12)
            .map(|n| {
                let store = Arc::clone(&store);
                let name = format!("{after_ms}/{n}");
                tokio::spawn(async move {
                    let changes = [put(&name, Expect::Absent, "x", None)];
                    let swap = store.swap(&changes, Durability::Durable);
                    match n {
                        // the first of those that wait
                        2 => tokio::time::timeout(Duration::from_millis(after_ms), swap).await.ok(),
                        _ => Some(swap.await),
                    }
                })
            })
            .collect();
        for (n, task) in tasks.into_iter().enumerate() {
            let answer = tokio::time::timeout(Duration::from_secs(20), task).await.unwrap().unwrap();
            let made = text(&store, &format!("{after_ms}/{n}")).await;
            match answer {
                Some(Ok(versions)) => assert_eq!(made.unwrap().1, versions[0]),
                Some(Err(StoreError::Unknown(_))) | None => {}
                Some(answer) => panic!("{answer:?}"),
            }
        }
    }
}
