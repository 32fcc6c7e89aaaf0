//! Round trips, connections, waking.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::core::record::Expect;
use semel::store::conformance::claims::{self, Claim};
use semel::store::{Durability, Store};
use semel::{Job, Outcome, Semel};
use semel_testkit::{PgServer, Proxy};

use crate::stage::{MINUTE, create, key, open, put};

/// How many round trips this costs.
async fn trips<T>(proxy: &Proxy, what: impl Future<Output = T>) -> (T, u64) {
    let before = proxy.round_trips();
    let answer = what.await;
    (answer, proxy.round_trips() - before)
}

#[tokio::test]
async fn every_verb_is_one_round_trip() {
    let server = PgServer::start();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into());
    let store = open(&server.url_at(proxy.port()));
    let version = create(&store, "lease/a", MINUTE).await;
    let keys = [key("lease/a"), key("b"), key("c")];
    assert_eq!(trips(&proxy, store.load(&keys)).await.1, 1);
    let swap = [
        put("lease/a", Expect::Live(version), "y", MINUTE),
        put("b", Expect::Absent, "x", None),
        put("c", Expect::Absent, &"x".repeat(1000), None),
    ];
    let (versions, count) = trips(&proxy, store.swap(&swap, Durability::Durable)).await;
    assert_eq!(count, 1);
    assert_eq!(trips(&proxy, store.swap(&swap, Durability::Durable)).await.1, 1, "a refusal as well");
    assert_eq!(trips(&proxy, store.touch(&key("lease/a"), &versions.unwrap()[0])).await.1, 1);
    assert_eq!(trips(&proxy, store.scan("", None, 10)).await.1, 1);
    assert_eq!(proxy.connections(), 1);
}

#[tokio::test]
async fn a_run_is_two_round_trips_before_the_body_and_one_after_it() {
    let server = PgServer::start();
    let proxy = Proxy::with_port(([127, 0, 0, 1], server.port()).into());
    let store = Arc::new(open(&server.url_at(proxy.port())));
    create(&*store, "warm", None).await;
    let semel = Semel::on(store);
    let job = Job::named("job").slot("monday").build().unwrap();
    let before = proxy.round_trips();
    let run = semel.run(&job, async |_| Ok::<u64, std::io::Error>(proxy.round_trips() - before));
    let (outcome, all) = trips(&proxy, run).await;
    assert!(matches!(outcome, Outcome::Done(2)), "{outcome:?}");
    assert_eq!(all, 3);
    // one answer to decide by; the note that it was skipped is sent, and not waited for
    proxy.answer(1);
    let skip = async {
        let again = semel.run(&job, async |_| Ok::<u64, std::io::Error>(0)).await;
        assert!(matches!(again, Outcome::AlreadyDone(Some(2))), "{again:?}");
        noted(&server, 1).await
    };
    assert_eq!(trips(&proxy, skip).await, (1, 2), "one note; a look and a note were sent");
}

/// How many notes the journal has, when it has so many or after a while.
async fn noted(server: &PgServer, many: usize) -> usize {
    let (store, begun) = (open(&server.url()), Instant::now());
    loop {
        let found = store.scan("journal/", None, 1000).await.unwrap().len();
        if found >= many || begun.elapsed() > Duration::from_secs(20) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_is_posted_is_made_although_its_handle_is_gone_and_no_line_of_the_log_tells_of_it() {
    let mut server = PgServer::start();
    create(&open(&server.url()), "warm", None).await;
    for i in 0..50 {
        let store = open(&server.url());
        store.load(&[key("a")]).await.unwrap();
        store.post(&[put(&format!("journal/{i}"), Expect::Absent, "x", None)]).await.unwrap();
        // a while, in which the answer comes and is not read
        if i % 2 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(noted(&server, 50).await, 50);
    let log = server.server().log();
    assert!(!log.contains("could not"), "{log}");
}

#[tokio::test]
async fn behind_a_pooler_what_is_posted_is_waited_for_and_its_sessions_are_kept() {
    let server = PgServer::start();
    create(&open(&server.url()), "warm", None).await;
    let pooler = server.pooler(3);
    let sessions = || {
        let sql = "SELECT sum(sessions) FROM pg_stat_database";
        server.psql(sql).parse::<u64>().unwrap()
    };
    let before = sessions();
    for i in 0..50 {
        let store = open(&server.url_at(pooler.port()));
        store.load(&[key("a")]).await.unwrap();
        store.post(&[put(&format!("journal/{i}"), Expect::Absent, "x", None)]).await.unwrap();
    }
    assert_eq!(noted(&server, 50).await, 50);
    let made = sessions() - before;
    assert!(made < 25, "{made} sessions were made for 50 posts");
}

/// From a write to its waiter's waking, this many times.
async fn hand_overs(waiter: Arc<dyn Store>, writer: &dyn Store, many: usize) -> Vec<Duration> {
    let mut version = create(writer, "lease/a", MINUTE).await;
    let mut took = Vec::new();
    for i in 0..=many {
        let (waits, seen) = (Arc::clone(&waiter), version.clone());
        let waiting = tokio::spawn(async move {
            let changed = waits.changed(&key("lease/a"), Some(&seen), Duration::from_secs(30)).await.unwrap();
            (changed, Instant::now())
        });
        // the first time a connection is made; later the waiter needs to have left its word
        tokio::time::sleep(Duration::from_millis(if i == 0 { 1500 } else { 30 })).await;
        let change = put("lease/a", Expect::Version(version), &i.to_string(), MINUTE);
        version = writer.swap(&[change], Durability::Durable).await.unwrap().remove(0);
        let written = Instant::now();
        let (changed, woken) = waiting.await.unwrap();
        assert!(changed);
        if i > 0 {
            took.push(woken.saturating_duration_since(written));
        }
    }
    took.sort();
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_woken_within_milliseconds() {
    let server = PgServer::start();
    let took = hand_overs(Arc::new(open(&server.url())), &open(&server.url()), 40).await;
    println!("hand-over: p50 {:?}, longest {:?}", took[took.len() / 2], took[took.len() - 1]);
    // one that looked would be woken by its next look, most of a second later
    assert!(took[took.len() / 2] < Duration::from_millis(300), "{took:?}");
    let sql = "SELECT count(*) FROM semel.records WHERE awaited IS NOT NULL";
    assert_eq!(server.psql(sql), "0", "a word is taken away with the change");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_a_waiter_looks_instead() {
    let server = PgServer::start();
    let pooler = server.pooler(3);
    let url = server.url_at(pooler.port());
    let took = hand_overs(Arc::new(open(&url)), &open(&url), 8).await;
    println!("hand-over behind a pooler: p50 {:?}, longest {:?}", took[took.len() / 2], took[took.len() - 1]);
    assert!(took[took.len() / 2] < Duration::from_millis(600), "{took:?}");
}

fn connections(server: &PgServer) -> u32 {
    server.psql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel'").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_wait_for_one_resource_and_each_gets_it() {
    let server = PgServer::start();
    // ten processes' worth of handles, twenty waiters each
    let stores: Vec<Arc<dyn Store>> =
        (0..10).map(|_| Arc::new(open(&server.url())) as Arc<dyn Store>).collect();
    let wait = Duration::from_secs(90);
    let begun = Instant::now();
    let mut runners = Vec::new();
    for i in 0..200 {
        let semel = Semel::on(Arc::clone(&stores[i % 10]));
        runners.push(tokio::spawn(async move {
            let job = Job::named(&format!("job-{i}")).once().resource("hot").wait(wait).build().unwrap();
            let outcome =
                semel.run(&job, async |run| Ok::<u64, std::io::Error>(run.lease().token().value())).await;
            (outcome, begun.elapsed())
        }));
    }
    let mut most = 0;
    while !runners.iter().all(tokio::task::JoinHandle::is_finished) {
        most = most.max(connections(&server));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (mut tokens, mut longest) = (Vec::new(), Duration::ZERO);
    for runner in runners {
        let (outcome, took) = runner.await.unwrap();
        let Outcome::Done(token) = outcome else { panic!("starved: {outcome:?}") };
        tokens.push(token);
        longest = longest.max(took);
    }
    tokens.sort_unstable();
    tokens.dedup();
    println!("200 runners on one resource: longest {longest:?}, most connections {most}");
    assert_eq!(tokens.len(), 200, "every grant has a token of its own");
    assert!(most <= 20, "{most} connections of ten handles");
}

#[tokio::test]
async fn the_second_connection_goes_when_nobody_waits() {
    let server = PgServer::start();
    let store = open(&server.url());
    let version = create(&store, "lease/a", MINUTE).await;
    assert_eq!(connections(&server), 1);
    let lease = key("lease/a");
    let wait = store.changed(&lease, Some(&version), Duration::from_millis(500));
    let (changed, during) = tokio::join!(wait, async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        connections(&server)
    });
    assert!(!changed.unwrap());
    assert_eq!(during, 2);
    let begun = Instant::now();
    while connections(&server) != 1 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_first_uses_at_once_make_one_ledger() {
    let server = PgServer::start();
    let mut tasks = Vec::new();
    for _ in 0..100 {
        let store = open(&server.url());
        tasks.push(tokio::spawn(async move {
            claims::claim(&store, &key("lease/a"), Duration::from_secs(60)).await
        }));
    }
    let mut won = 0;
    for task in tasks {
        won += u32::from(matches!(task.await.unwrap().unwrap(), Claim::Won(_)));
    }
    assert_eq!(won, 1);
    assert_eq!(server.psql("SELECT version FROM semel.ledger"), "1");
}

#[tokio::test]
async fn a_relaxed_swap_does_not_wait_for_the_disk_and_leaves_no_setting_behind() {
    let server = PgServer::start();
    let store = open(&server.url());
    create(&store, "a", None).await;
    let swap = |relaxed: bool| {
        format!(
            "BEGIN; SELECT * FROM semel.swap_1(ARRAY['k{relaxed}'], ARRAY[1::smallint], ARRAY[0::smallint], ARRAY[''], \
             ARRAY['v'], ARRAY[''::bytea], ARRAY[NULL::bigint], 1, 0, 0, '1000', {relaxed}, 0); SHOW synchronous_commit; COMMIT; \
             SHOW synchronous_commit; SHOW lock_timeout; SHOW enable_seqscan"
        )
    };
    assert_eq!(server.psql(&swap(true)), "off\non\n0\non");
    assert_eq!(server.psql(&swap(false)), "on\non\n0\non");
}

#[tokio::test]
async fn long_keys_keep_their_order_and_a_socket_is_an_address() {
    let server = semel_testkit::Postgres::start().unwrap();
    let store = open(&server.url());
    let long = |last: &str| format!("entry/{}/{last}", "%2F:x".repeat(300));
    for last in ["b", "a", "B"] {
        create(&store, &long(last), None).await;
    }
    let found = store.scan(&long(""), None, 10).await.unwrap();
    let names: Vec<&str> = found.iter().map(|record| record.key.as_str()).collect();
    assert_eq!(names, [long("B"), long("a"), long("b")]);
    let after = store.scan("entry/", Some(&key(&long("a"))), 10).await.unwrap();
    assert_eq!(after.len(), 1);
}

#[tokio::test]
async fn a_swap_of_a_thousand_changes_is_made_in_one_go() {
    let server = PgServer::start();
    let store = open(&server.url());
    let changes = |expect: &dyn Fn(usize) -> Expect| -> Vec<_> {
        (0..1000).map(|i| put(&format!("item/{i}"), expect(i), "x", None)).collect()
    };
    let made = store.swap(&changes(&|_| Expect::Absent), Durability::Durable).await.unwrap();
    let begun = Instant::now();
    let again = changes(&|i| Expect::Version(made[i].clone()));
    store.swap(&again, Durability::Durable).await.unwrap();
    println!("a thousand changes: {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(store.scan("item/", None, 2000).await.unwrap().len(), 1000);
}
