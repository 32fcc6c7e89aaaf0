//! What is NATS's own: removals that leave a mark, touches by others, pages, replicas.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel::core::record::{Expect, Standing};
use semel::store::conformance;
use semel::store::{Change, Durability, Settings, Store, StoreError, open};
use semel_testkit::{NatsVersion, nats, nats_cluster};

use crate::{Bucket, MINUTE, handle, key, put, read, write};

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_swap_goes_on_after_a_touch_by_another_handle() {
    let server = nats(NatsVersion::Recent, "");
    let (one, two) = (handle(server.port(0), LONG), handle(server.port(0), LONG));
    let version = write(&*one, put("lease/a", Expect::Absent, "held", MINUTE)).await.unwrap();
    for _ in 0..3 {
        two.touch(&key("lease/a"), &version).await.unwrap();
        one.touch(&key("lease/a"), &version).await.unwrap();
    }
    two.touch(&key("lease/a"), &version).await.unwrap();
    let released =
        write(&*one, put("lease/a", Expect::Version(version.clone()), "free", None)).await.unwrap();
    let late = two.touch(&key("lease/a"), &version).await;
    let Err(StoreError::Refused(conflict)) = late else { panic!("{late:?}") };
    assert_eq!(conflict.stands.unwrap().version, released);
}

#[tokio::test]
async fn writers_in_between_break_no_swap() {
    let server = nats(NatsVersion::Recent, "");
    let mut tasks = Vec::new();
    for task in 0..8 {
        // each on a connection of its own, so that their writes mix
        let store = handle(server.port(0), LONG);
        tasks.push(tokio::spawn(async move {
            for round in 0..30 {
                let names = ["a", "b", "c"].map(|part| format!("w/{task}/{round}/{part}"));
                let changes: Vec<Change> =
                    names.iter().map(|name| put(name, Expect::Absent, name, None)).collect();
                let versions = store.swap(&changes, Durability::Durable).await.unwrap();
                for (name, version) in names.iter().zip(versions) {
                    assert_eq!(read(&*store, name).await.unwrap().version, version);
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let store = handle(server.port(0), LONG);
    assert_eq!(store.scan("w/", None, 10_000).await.unwrap().len(), 8 * 30 * 3);
}

#[tokio::test]
async fn a_removed_record_leaves_a_mark_that_a_later_scan_takes_away_and_can_be_made_again() {
    for version in [NatsVersion::Recent, NatsVersion::Debian] {
        let server = nats(version, "");
        let store = handle(server.port(0), LONG);
        let url = format!("nats://127.0.0.1:{}/ledger?marks=0", server.port(0));
        let at_once = open(&url, &Settings { deadline: LONG, ..Settings::default() }).unwrap();
        let first = write(&*store, put("a", Expect::Absent, "1", None)).await.unwrap();
        let remove = Change::Remove { key: key("a"), expect: Expect::Version(first.clone()) };
        store.swap(&[remove], Durability::Durable).await.unwrap();
        // what the server itself counts
        let plain = async_nats::connect(format!("127.0.0.1:{}", server.port(0))).await.unwrap();
        for (scans, left) in [(&store, 1), (&at_once, 0)] {
            assert!(scans.scan("", None, 10).await.unwrap().is_empty());
            let info = plain.request("$JS.API.STREAM.INFO.KV_ledger", "".into()).await.unwrap();
            let info: serde_json::Value = serde_json::from_slice(&info.payload).unwrap();
            assert_eq!(info["state"]["messages"], left, "{info}");
        }
        let again = write(&*store, put("a", Expect::Absent, "1", None)).await.unwrap();
        assert_ne!(again, first);
        let stale = write(&*store, put("a", Expect::Version(first), "2", None)).await;
        assert!(matches!(stale, Err(StoreError::Refused(_))), "{stale:?}");
    }
}

#[tokio::test]
async fn a_mark_of_a_removal_that_was_not_purged_is_as_good_as_nothing() {
    let server = nats(NatsVersion::Recent, "");
    let store = handle(server.port(0), LONG);
    write(&*store, put("b", Expect::Absent, "b", None)).await.unwrap();
    let plain = async_nats::connect(format!("127.0.0.1:{}", server.port(0))).await.unwrap();
    // as a process leaves it that dies between the two
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("KV-Operation", "DEL");
    plain.publish_with_headers("$KV.ledger.a", headers, "".into()).await.unwrap();
    plain.flush().await.unwrap();
    let begun = Instant::now();
    loop {
        let info = plain.request("$JS.API.STREAM.INFO.KV_ledger", "".into()).await.unwrap();
        let info: serde_json::Value = serde_json::from_slice(&info.payload).unwrap();
        if info["state"]["messages"] == 2 {
            break;
        }
        assert!(begun.elapsed() < LONG, "{info}");
    }
    assert!(read(&*store, "a").await.is_none());
    assert!(!store.changed(&key("a"), None, Duration::from_millis(30)).await.unwrap());
    let version = write(&*store, put("a", Expect::Absent, "1", None)).await.unwrap();
    assert_eq!(read(&*store, "a").await.unwrap().version, version);
}

#[tokio::test]
async fn many_names_are_paged_by_one_listing() {
    let server = nats(NatsVersion::Recent, "");
    let store = handle(server.port(0), LONG);
    let names: Vec<String> = (0..1500).map(|i| format!("p/{:04}/x.y", (i * 7) % 1500)).collect();
    for some in names.chunks(250) {
        let changes: Vec<Change> = some.iter().map(|name| put(name, Expect::Absent, name, None)).collect();
        store.swap(&changes, Durability::Relaxed).await.unwrap();
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.scan("p/", after.as_ref(), 100).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.key.clone());
        found.extend(page.into_iter().map(|record| record.key));
    }
    assert!(found.is_sorted() && found.len() == 1500, "{}", found.len());
    // a name that comes later is found by who goes on after the end
    write(&*store, put("p/9", Expect::Absent, "x", None)).await.unwrap();
    let page = store.scan("p/", after.as_ref(), 100).await.unwrap();
    assert_eq!(page.len(), 1);
}

#[tokio::test]
async fn many_who_come_first_at_once_make_one_bucket() {
    // a server tells of a bucket a moment before it listens for it: each round has that moment once
    for version in [NatsVersion::Recent, NatsVersion::Debian] {
        let server = nats(version, "");
        for round in 0..20 {
            let bucket = || {
                let url = format!("nats://127.0.0.1:{}/ledger{round}", server.port(0));
                let settings = Settings { deadline: LONG, ..Settings::default() };
                open(&url, &settings).unwrap()
            };
            let tasks: Vec<_> = (0..100)
                .map(|i| {
                    let store = bucket();
                    let change = put(&format!("a/{i}"), Expect::Absent, "x", None);
                    tokio::spawn(async move { write(&*store, change).await })
                })
                .collect();
            for task in tasks {
                task.await.unwrap().unwrap();
            }
            assert_eq!(bucket().scan("a/", None, 1000).await.unwrap().len(), 100);
        }
    }
}

#[tokio::test]
async fn a_cluster_keeps_records_on_three_servers() {
    a_cluster_keeps_records(NatsVersion::Recent).await;
}

#[tokio::test]
async fn a_cluster_of_debian_keeps_records_on_three_servers() {
    a_cluster_keeps_records(NatsVersion::Debian).await;
}

async fn a_cluster_keeps_records(version: NatsVersion) {
    let mut servers = nats_cluster(version);
    let hosts: Vec<String> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port(0))).collect();
    let url = format!("nats://{}/ledger?replicas=3", hosts.join(","));
    let settings = Settings { deadline: Duration::from_secs(5), ..Settings::default() };
    let begun = Instant::now();
    let store: Arc<dyn Store> = loop {
        let store = open(&url, &settings).unwrap();
        match store.load(&[key("a")]).await {
            Ok(_) => break store,
            // they have not found each other yet
            Err(why) => assert!(begun.elapsed() < Duration::from_secs(60), "{why}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let lease = write(&*store, put("lease/a", Expect::Absent, "held", MINUTE)).await.unwrap();
    for round in 0..20 {
        let name = format!("e/{round}");
        let changes =
            [put(&name, Expect::Absent, "x", None), put(&format!("f/{round}"), Expect::Absent, "y", None)];
        let versions = store.swap(&changes, Durability::Durable).await.unwrap();
        let record = read(&*store, &name).await.unwrap();
        assert_eq!((record.version, record.value), (versions[0].clone(), b"x".to_vec()));
        store.touch(&key("lease/a"), &lease).await.unwrap();
    }
    let record = read(&*store, "lease/a").await.unwrap();
    assert!(record.version == lease && matches!(record.standing, Some(Standing::Live { .. })), "{record:?}");
    let findings = store.examine().await.unwrap();
    let replicas = findings.iter().find(|finding| finding.name == "replicas").unwrap();
    assert!(replicas.what.starts_with('3'), "{findings:?}");
    // any one of them may go: what was answered stays, and the others go on
    servers[0].kill();
    let begun = Instant::now();
    let mut version = read_soon(&*store, "e/7").await.version;
    for round in 0..10 {
        loop {
            let change = put("e/7", Expect::Version(version.clone()), &round.to_string(), None);
            match write(&*store, change).await {
                Ok(next) => break version = next,
                Err(StoreError::Refused(conflict)) => version = conflict.stands.unwrap().version,
                Err(why) => assert!(begun.elapsed() < Duration::from_secs(60), "{why}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    for round in 0..20 {
        read_soon(&*store, &format!("f/{round}")).await;
    }
    assert_eq!(read_soon(&*store, "lease/a").await.version, lease);
}

/// A record that is there, as soon as the servers answer again.
async fn read_soon(store: &dyn Store, name: &str) -> semel::store::Record {
    let begun = Instant::now();
    loop {
        match store.load(&[key(name)]).await {
            Ok(mut loaded) => return loaded.records.remove(0).unwrap(),
            Err(why) => assert!(begun.elapsed() < Duration::from_secs(60), "{why}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn the_suite_holds_where_only_the_leader_is_read() {
    let server = nats(NatsVersion::Recent, "");
    let plain = async_nats::connect(format!("127.0.0.1:{}", server.port(0))).await.unwrap();
    // a bucket that others made: without direct reads, and with a history
    let config = r#"{"name":"KV_ledger","subjects":["$KV.ledger.>"],"storage":"file","max_msgs_per_subject":5,"num_replicas":1}"#;
    plain.request("$JS.API.STREAM.CREATE.KV_ledger", config.into()).await.unwrap();
    let report = conformance::run(Arc::new(Bucket::of(&server))).await;
    assert!(report.holds(), "{report}\n{}", server.log());
    let findings = handle(server.port(0), LONG).examine().await.unwrap();
    assert!(findings.iter().any(|finding| finding.what.contains("old versions")), "{findings:?}");
}
