//! Each wrong setup is told in one line, without a secret; and what `semel doctor` finds.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use semel::core::record::Expect;
use semel::store::redis::Redis as Ledger;
use semel::store::{Change, Durability, Grade, Settings, Store};
use semel_testkit::{Redis, free_ports, needed};

use crate::stage::{MINUTE, create, grade, impatient, key, load, open, put, swap, unavailable, until};

const SECRET: &str = "hunter2";

async fn line(url: &str) -> String {
    let line = unavailable(open(url).load(&[key("a")]).await);
    assert!(!line.contains(SECRET), "{line}");
    println!("{line}");
    line
}

#[tokio::test]
async fn a_wrong_password_is_told() {
    let server = Redis::with(&["requirepass right"]);
    let at = server.address();
    assert!(line(&format!("redis://:{SECRET}@{at}")).await.contains("refused the password of user default"));
    assert!(line(&format!("redis://nobody:{SECRET}@{at}")).await.contains("user nobody"));
    assert!(line(&format!("redis://{at}")).await.contains("wants a password"));
    let variables = [("REDIS_PASSWORD".to_owned(), "right".to_owned())].into();
    let store =
        Ledger::new(&format!("redis://{at}"), &Settings { variables, ..Settings::default() }).unwrap();
    create(&store, "a", "1", None).await;
    assert!(!format!("{store:?}").contains("right"), "{store:?}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told() {
    let port = free_ports(1)[0];
    assert!(line(&format!("redis://:{SECRET}@127.0.0.1:{port}")).await.contains("refused the connection"));
    assert!(line(&format!("redis://:{SECRET}@no-such-host.invalid")).await.contains("cannot be reached"));
}

#[tokio::test]
async fn databases_are_apart_and_a_wrong_one_is_told() {
    let server = Redis::start();
    let (zero, three) = (open(&server.url()), open(&format!("{}/3", server.url())));
    create(&*zero, "a", "zero", None).await;
    let version = create(&*three, "a", "three", None).await;
    assert_eq!(load(&*zero, "a").await.unwrap().value, b"zero");
    let other = open(&format!("{}/3", server.url()));
    let waits = async { three.changed(&key("a"), Some(&version), Duration::from_secs(30)).await.unwrap() };
    let writes = async {
        until("it listens", async || server.ask("PUBSUB CHANNELS {semel}:c3:a") == "*1").await;
        swap(&*other, put("a", Expect::Version(version.clone()), "new", None)).await.unwrap()
    };
    assert!(tokio::join!(waits, writes).0);
    assert!(line(&format!("{}/99", server.url())).await.contains("has no database 99"));
}

/// The rules of a user, as the page of this store and every refusal name them.
const RULES: &str = "~{semel}:* &{semel}:* +hello +select +eval +evalsha +time +get +getrange +set +setrange +del \
                     +zadd +zrem +zrangebylex +publish +subscribe +unsubscribe";

#[tokio::test]
async fn a_user_with_the_rules_of_the_page_can_do_all_and_one_with_less_is_told() {
    let server = Redis::start();
    let user = |name: &str, rules: &str| {
        assert_eq!(server.ask(&format!("ACL SETUSER {name} on >{SECRET} {rules}")), "+OK");
        open(&format!("redis://{name}:{SECRET}@{}", server.address()))
    };
    let full = user("full", RULES);
    let version = create(&*full, "a", "1", MINUTE).await;
    full.touch(&key("a"), &version).await.unwrap();
    assert_eq!(full.scan("", None, 10).await.unwrap().len(), 1);
    let found = full.examine().await.unwrap();
    assert_eq!(grade(&found, "permissions").0, Grade::Good, "{found:?}");
    assert_eq!(grade(&found, "sync").0, Grade::Note, "it could not be read: {found:?}");
    assert!(grade(&found, "server").1.contains("could not be read"), "{found:?}");
    assert!(found.iter().all(|finding| finding.name != "wake-up"), "{found:?}");

    let reader = user("reader", "~* &* +@read +@connection +@scripting +time");
    assert_eq!(load(&*reader, "a").await.unwrap().value, b"1");
    let told = unavailable(swap(&*reader, put("b", Expect::Absent, "1", None)).await);
    assert!(told.contains("does not let user reader") && told.contains("ACL SETUSER reader"), "{told}");
    assert!(!told.contains(SECRET), "{told}");
    assert!(unavailable(reader.touch(&key("a"), &version).await).contains("user reader"));
    assert_eq!(grade(&reader.examine().await.unwrap(), "permissions").0, Grade::Wrong);

    // without channels, those who wait look for themselves
    let deaf = user("deaf", &RULES.replace("&{semel}:* ", ""));
    let heard = async { deaf.changed(&key("a"), Some(&version), Duration::from_secs(30)).await.unwrap() };
    let written =
        async { swap(&*deaf, put("a", Expect::Version(version.clone()), "2", MINUTE)).await.unwrap() };
    let (heard, version) = tokio::join!(heard, written);
    assert!(heard);
    let found = deaf.examine().await.unwrap();
    assert_eq!((grade(&found, "permissions").0, grade(&found, "wake-up").0), (Grade::Good, Grade::Note));

    // who may do only some of it does none of it
    for missing in ["+del ", "+zrem ", "+set ", "+zadd "] {
        let some = user("some", &format!("reset on >{SECRET} {}", RULES.replace(missing, "")));
        let changes = [
            put("new", Expect::Absent, "1", None),
            Change::Remove { key: key("a"), expect: Expect::Version(version.clone()) },
        ];
        unavailable(some.swap(&changes, Durability::Durable).await);
        assert!(load(&*full, "new").await.is_none() && load(&*full, "a").await.is_some(), "{missing}");
        assert_eq!(full.scan("", None, 10).await.unwrap().len(), 1, "{missing}");
    }
}

/// A certificate for `name`, by an authority of its own: in `folder`.
fn certificate(folder: &Path, name: &str) {
    let made = std::process::Command::new(needed("openssl"))
        .current_dir(folder)
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem"])
        .args(["-days", "2", "-subj", &format!("/CN={name}")])
        .args(["-addext", &format!("subjectAltName={name}"), "-addext", "basicConstraints=critical,CA:FALSE"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[tokio::test]
async fn tls_works_with_the_right_certificate_and_tells_of_a_wrong_one() {
    let folder = tempfile::tempdir().unwrap();
    for (place, name) in [("right", "IP:127.0.0.1"), ("elsewhere", "DNS:elsewhere.example")] {
        let dir = folder.path().join(place);
        std::fs::create_dir(&dir).unwrap();
        certificate(&dir, name);
    }
    let at = |place: &str, file: &str| folder.path().join(place).join(file).display().to_string();
    let serve = |place: &str| {
        let (cert, key) = (at(place, "cert.pem"), at(place, "key.pem"));
        Redis::with(&[
            "tls-port PORT2",
            &format!("tls-cert-file {cert}"),
            &format!("tls-key-file {key}"),
            &format!("tls-ca-cert-file {cert}"),
            "tls-auth-clients no",
        ])
    };
    let (right, elsewhere) = (serve("right"), serve("elsewhere"));
    let url =
        |server: &Redis, ca: &str| format!("rediss://:{SECRET}@127.0.0.1:{}?ca={ca}", server.server.port(1));
    let store = open(&url(&right, &at("right", "cert.pem")));
    let version = create(&*store, "a", "1", MINUTE).await;
    store.touch(&key("a"), &version).await.unwrap();
    for (url, why) in [
        (url(&right, &at("elsewhere", "cert.pem")), "is not trusted"),
        (url(&elsewhere, &at("elsewhere", "cert.pem")), "is not trusted"),
        (format!("rediss://127.0.0.1:{}", right.server.port(1)), "is not trusted"),
        (format!("redis://127.0.0.1:{}", right.server.port(1)), "does it want rediss://?"),
    ] {
        let told = line(&url).await;
        assert!(told.contains(why), "{told}");
    }
    // a port without TLS waits for the rest of a command
    let url = format!("rediss://:{SECRET}@127.0.0.1:{}", right.server.port(0));
    let told = unavailable(impatient(&url, Duration::from_millis(300)).load(&[key("a")]).await);
    assert!(told.contains("does it speak TLS at this port?") && !told.contains(SECRET), "{told}");
    assert!(
        line(&parrot("HTTP/1.1 400 Bad Request\r\n\r\n").replace("redis:", "rediss:"))
            .await
            .contains("does not speak TLS")
    );
}

/// A server that answers everything with this line.
fn parrot(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(1..) = client.read(&mut buffer) {
                    let _ = client.write_all(answer.as_bytes());
                }
            });
        }
    });
    format!("redis://:{SECRET}@{address}")
}

#[tokio::test]
async fn a_server_that_is_too_old_or_no_redis_is_told() {
    let echoing =
        "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `hunter2`, \r\n";
    assert!(line(&parrot(echoing)).await.contains("is too old"));
    let quoted = "-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'hunter2'\r\n";
    assert!(line(&parrot(quoted)).await.contains("is too old"));
    line(&parrot("HTTP/1.1 400 Bad Request\r\n\r\nhunter2\r\n")).await;
    line(&parrot("-ERR max number of clients reached\r\n")).await;
}

#[tokio::test]
async fn replicas_are_told_and_noted() {
    let primary = Redis::start();
    let replica = Redis::with(&[&format!("replicaof 127.0.0.1 {}", primary.address().port())]);
    let (ours, theirs) = (open(&primary.url()), open(&replica.url()));
    create(&*ours, "a", "1", None).await;
    until("it is replicated", async || {
        theirs.load(&[key("a")]).await.is_ok_and(|got| got.records[0].is_some())
    })
    .await;
    let told = unavailable(swap(&*theirs, put("b", Expect::Absent, "1", None)).await);
    assert!(told.contains("is a replica"), "{told}");
    assert_eq!(grade(&theirs.examine().await.unwrap(), "replication").0, Grade::Wrong);
    let found = ours.examine().await.unwrap();
    assert!(grade(&found, "replication").1.contains("1 replicas, asynchronous"), "{found:?}");
}

#[tokio::test]
async fn a_ledger_lies_whole_on_one_node_of_a_cluster_and_another_node_leads_there() {
    let settings = ["cluster-enabled yes", "cluster-port PORT2", "cluster-config-file nodes.conf"];
    let (holder, other) = (Redis::with(&settings), Redis::with(&settings));
    let (store, lost) = (open(&holder.url()), open(&other.url()));
    assert!(unavailable(store.load(&[key("a")]).await).contains("not whole now"));
    assert_eq!(holder.ask("CLUSTER ADDSLOTSRANGE 0 16383"), "+OK");
    until("the node serves", async || store.load(&[key("a")]).await.is_ok()).await;
    let version = create(&*store, "lease/a", "1", MINUTE).await;
    let changes = [
        put("lease/a", Expect::Version(version), "2", MINUTE),
        put("entry/a", Expect::Absent, "1", None),
        put("calendar/a", Expect::Absent, "1", None),
    ];
    let versions = store.swap(&changes, Durability::Durable).await.unwrap();
    store.touch(&key("lease/a"), &versions[0]).await.unwrap();
    assert_eq!(store.scan("", None, 10).await.unwrap().len(), 3);
    assert_eq!(grade(&store.examine().await.unwrap(), "cluster").0, Grade::Note);
    let meet = format!("CLUSTER MEET 127.0.0.1 {} {}", holder.server.port(0), holder.server.port(1));
    assert_eq!(other.ask(&meet), "+OK");
    until("the other node knows", async || lost.load(&[key("a")]).await.is_ok()).await;
    assert_eq!(load(&*lost, "entry/a").await.unwrap().value, b"1");
    let free = Expect::Version(versions[0].clone());
    swap(&*lost, put("lease/a", free, "3", MINUTE)).await.unwrap();
    // it was led there once, and a node that is gone is forgotten
    drop(holder);
    unavailable(lost.load(&[key("a")]).await);
    let line = unavailable(lost.load(&[key("a")]).await);
    assert!(line.contains(&other.address().to_string()) || line.contains("refused"), "{line}");
}

#[tokio::test]
async fn eviction_loses_records_and_doctor_calls_it_wrong() {
    let server = Redis::with(&["maxmemory 3mb", "maxmemory-policy allkeys-lru", "maxmemory-samples 10"]);
    let store = open(&server.url());
    assert_eq!(grade(&store.examine().await.unwrap(), "eviction").0, Grade::Wrong);
    let value = "x".repeat(20_000);
    for i in 0..400 {
        // what was made a moment ago may be gone: nothing here can be relied on
        let _ = swap(&*store, put(&format!("entry/{i}"), Expect::Absent, &value, None)).await;
    }
    let mut kept = 0;
    for i in 0..400 {
        kept += usize::from(load(&*store, &format!("entry/{i}")).await.is_some());
    }
    println!("{kept} of 400 records are left");
    assert!(kept < 400);
    // a name whose record is gone is passed over
    assert!(store.scan("entry/", None, 1000).await.unwrap().len() <= kept);
}

#[tokio::test]
async fn a_full_server_refuses_and_forgets_nothing() {
    let server = Redis::with(&["maxmemory 3mb", "maxmemory-policy noeviction"]);
    let store = open(&server.url());
    assert_eq!(grade(&store.examine().await.unwrap(), "eviction").0, Grade::Good);
    let value = "x".repeat(20_000);
    let mut made = 0;
    let told = loop {
        assert!(made < 1000, "it is never full");
        match swap(&*store, put(&format!("entry/{made:04}"), Expect::Absent, &value, None)).await {
            Ok(_) => made += 1,
            refused => break unavailable(refused),
        }
    };
    assert!(told.contains("is full"), "{told}");
    assert_eq!(store.scan("entry/", None, 1000).await.unwrap().len(), made);
}

#[tokio::test]
async fn doctor_finds_nothing_wrong_with_a_durable_server_and_names_what_is_not() {
    let server = Redis::start();
    let store = open(&server.url());
    let found = store.examine().await.unwrap();
    assert!(found.iter().all(|finding| finding.grade == Grade::Good), "{found:#?}");
    for name in ["version", "clock", "eviction", "append-only file", "sync", "replication", "permissions"] {
        grade(&found, name);
    }
    assert_eq!(server.ask("CONFIG SET appendfsync everysec"), "+OK");
    assert_eq!(grade(&store.examine().await.unwrap(), "sync").0, Grade::Note);
    assert_eq!(server.ask("CONFIG SET appendonly no"), "+OK");
    let (grade, what) = grade(&store.examine().await.unwrap(), "append-only file");
    assert_eq!(grade, Grade::Wrong, "{what}");
}

#[tokio::test]
async fn a_prefix_that_is_taken_by_something_else_is_told() {
    let server = Redis::start();
    let store = open(&server.url());
    assert_eq!(server.ask("SET {semel}:r:a foreign"), "+OK");
    assert!(unavailable(store.load(&[key("a")]).await).contains("is no ledger"));
    assert_eq!(server.ask("DEL {semel}:r:a"), ":1");
    assert_eq!(server.ask("LPUSH {semel}:r:a foreign"), ":1");
    assert!(unavailable(swap(&*store, put("a", Expect::Absent, "1", None)).await).contains("is no ledger"));
}
