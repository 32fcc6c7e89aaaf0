//! What is set up wrongly is said in one line, without a secret.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use semel::core::record::Expect;
use semel::store::{Settings, StoreError, open};
use semel_testkit::{NatsVersion, Server, free_ports, nats, nats_without_jetstream};

use crate::{handle, key, put};

const SECRET: &str = "hunter2";
const DEADLINE: Duration = Duration::from_secs(8);

/// What a load says.
async fn said(url: &str) -> String {
    let store = open(url, &Settings { deadline: DEADLINE, ..Settings::default() }).unwrap();
    let begun = Instant::now();
    let why = match store.load(&[key("a")]).await {
        Err(StoreError::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(begun.elapsed() < DEADLINE, "it waited for the deadline: {why}");
    assert!(!why.contains(SECRET) && !why.contains('\n'), "{why}");
    assert!(!format!("{store:?}").contains(SECRET));
    println!("{why}");
    why
}

fn url(server: &Server, who: &str, rest: &str) -> String {
    format!("nats://{who}127.0.0.1:{}/ledger{rest}", server.port(0))
}

#[tokio::test]
async fn who_may_not_in_is_told_so() {
    let server = nats(NatsVersion::Recent, "authorization { user: me, password: right }");
    let why = said(&url(&server, &format!("me:{SECRET}@"), "")).await;
    assert!(why.contains("refuses the user \"me\" or its password"), "{why}");
    let why = said(&url(&server, "", "")).await;
    assert!(why.contains("give a user and password"), "{why}");
    let why = said(&url(&server, &format!("{SECRET}@"), "")).await;
    assert!(why.contains("refuses this token"), "{why}");
    let right = open(&url(&server, "me:right@", ""), &Settings::default()).unwrap();
    right.load(&[key("a")]).await.unwrap();
}

#[tokio::test]
async fn credentials_that_cannot_be_read_are_named() {
    let server = nats(NatsVersion::Recent, "");
    let variables = [("NATS_CREDS".to_owned(), "/no/such/file.creds".to_owned())].into();
    let store = open(&url(&server, "", ""), &Settings { variables, ..Settings::default() }).unwrap();
    let why = store.load(&[key("a")]).await.unwrap_err().to_string();
    assert!(why.contains("/no/such/file.creds cannot be read"), "{why}");
}

#[tokio::test]
async fn a_server_that_is_not_there_or_keeps_nothing_is_told_so() {
    let why = said(&format!("nats://me:{SECRET}@127.0.0.1:{}/ledger", free_ports(1)[0])).await;
    assert!(why.contains("refuses connections: is NATS running there?"), "{why}");
    let why = said(&url(&nats_without_jetstream(), "", "")).await;
    assert!(why.contains("start the server with JetStream"), "{why}");
}

const USERS: &str = r#"
    authorization { users: [
        { user: admin, password: hunter2 }
        { user: reader, password: hunter2, permissions: {
            publish: { allow: ["$JS.API.STREAM.INFO.>", "$JS.API.DIRECT.GET.>", "$JS.API.STREAM.MSG.GET.>",
                               "$SYS.REQ.ACCOUNT.PING.STATZ"] }, subscribe: ">" } }
        { user: deaf, password: hunter2, permissions: { publish: ">", subscribe: { deny: ["_INBOX.>"] } } }
        { user: blind, password: hunter2, permissions: { publish: { deny: ["$JS.API.>"] }, subscribe: ">" } }
    ] }"#;

#[tokio::test]
async fn what_a_user_may_not_do_is_told_and_not_waited_for() {
    for version in [NatsVersion::Recent, NatsVersion::Debian] {
        let server = nats(version, USERS);
        let as_who = |user: &str| url(&server, &format!("{user}:{SECRET}@"), "");
        // no bucket yet, and no right to make it
        let why = said(&as_who("reader")).await;
        assert!(why.contains("there is no bucket ledger, and it cannot be made"), "{why}");
        let admin = open(&as_who("admin"), &Settings::default()).unwrap();
        admin.load(&[key("a")]).await.unwrap();
        let reader =
            open(&as_who("reader"), &Settings { deadline: DEADLINE, ..Settings::default() }).unwrap();
        reader.load(&[key("a")]).await.unwrap();
        let begun = Instant::now();
        let changes = [put("a", Expect::Absent, "x", None), put("b", Expect::Absent, "x", None)];
        for changes in [&changes[..1], &changes] {
            let refused = reader.swap(changes, semel::store::Durability::Durable).await;
            let Err(StoreError::Unavailable(why)) = refused else { panic!("{refused:?}") };
            assert!(why.contains("this user may not write: allow it to publish to $KV.ledger.>"), "{why}");
        }
        assert!(begun.elapsed() < DEADLINE / 2);
        let why = said(&as_who("deaf")).await;
        assert!(why.contains("may not subscribe to _INBOX.>"), "{why}");
        let why = said(&as_who("blind")).await;
        assert!(why.contains("allow $JS.API.>"), "{why}");
    }
}

#[tokio::test]
async fn a_bucket_that_forgets_is_refused() {
    let server = nats(NatsVersion::Recent, "");
    let plain = async_nats::connect(format!("127.0.0.1:{}", server.port(0))).await.unwrap();
    let config = r#"{"name":"KV_ledger","subjects":["$KV.ledger.>"],"storage":"file","max_age":60000000000}"#;
    plain.request("$JS.API.STREAM.CREATE.KV_ledger", config.into()).await.unwrap();
    let why = said(&url(&server, "", "")).await;
    assert!(why.contains("the bucket ledger cannot be used: its records grow old and vanish"), "{why}");
}

#[tokio::test]
async fn more_replicas_than_servers_is_told_so() {
    let server = nats(NatsVersion::Recent, "");
    let why = said(&url(&server, "", "?replicas=3")).await;
    assert!(why.contains("it cannot be made: replicas > 1 not supported"), "{why}");
}

#[tokio::test]
async fn a_record_that_the_server_does_not_take_is_told_so() {
    let server = nats(NatsVersion::Recent, "max_payload: 64KB");
    let store = handle(server.port(0), DEADLINE);
    let large = put("a", Expect::Absent, &"x".repeat(100_000), None);
    let refused = store.swap(&[large], semel::store::Durability::Durable).await;
    let Err(StoreError::Unavailable(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("set max_payload"), "{why}");
    let findings = store.examine().await.unwrap();
    assert!(findings.iter().any(|finding| finding.mend.contains("max_payload")), "{findings:?}");
}

/// A server that says it is old, and nothing else.
fn an_old_server() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let info = r#"INFO {"server_id":"x","version":"2.8.4","headers":true,"max_payload":1048576,"jetstream":true}"#;
            client.write_all(format!("{info}\r\n").as_bytes()).unwrap();
            let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
            while let Some(Ok(line)) = lines.next() {
                if line.starts_with("PING") {
                    let _ = client.write_all(b"PONG\r\n");
                }
            }
        }
    });
    port
}

#[tokio::test]
async fn a_server_that_is_too_old_is_told_so() {
    let why = said(&format!("nats://127.0.0.1:{}/ledger", an_old_server())).await;
    assert!(why.contains("is NATS 2.8.4: use 2.9 or later"), "{why}");
}

/// An authority, and a certificate of it for 127.0.0.1, made by openssl in this folder.
fn certificate(folder: &std::path::Path) {
    let run = |words: &str| {
        let done = Command::new("openssl").args(words.split(' ')).current_dir(folder).output().unwrap();
        assert!(done.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&done.stderr));
    };
    std::fs::write(folder.join("ext"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n").unwrap();
    let new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    run(&format!("{new} -x509 -keyout ca.key -out ca.pem -days 30 -subj /CN=authority"));
    run(&format!("{new} -x509 -keyout other.key -out other.pem -days 30 -subj /CN=other"));
    run(&format!("{new} -keyout server.key -out server.csr -subj /CN=127.0.0.1"));
    run(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 30 -extfile ext",
    );
}

#[tokio::test]
async fn a_certificate_is_accepted_from_its_authority_only() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let tls =
        format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}", file("server.pem"), file("server.key"));
    let server = nats(NatsVersion::Recent, &tls);
    let right = open(&url(&server, "", &format!("?ca={}", file("ca.pem"))), &Settings::default()).unwrap();
    right.load(&[key("a")]).await.unwrap();
    for rest in [format!("?ca={}", file("other.pem")), "?tls=on".to_owned(), String::new()] {
        let why = said(&url(&server, &format!("me:{SECRET}@"), &rest)).await;
        assert!(why.contains("certificate of 127.0.0.1"), "{why}");
    }
    let plain = nats(NatsVersion::Recent, "");
    let why = said(&url(&plain, &format!("me:{SECRET}@"), "?tls=on")).await;
    assert!(why.contains("TLS"), "{why}");
}

#[tokio::test]
async fn a_doctor_is_told_what_the_server_promises() {
    for (version, grade) in [(NatsVersion::Recent, "Note"), (NatsVersion::Debian, "Wrong")] {
        let server = nats(version, "");
        let findings = handle(server.port(0), DEADLINE).examine().await.unwrap();
        for finding in &findings {
            println!("{:?} {}: {} / {}", finding.grade, finding.name, finding.what, finding.mend);
        }
        let sync = findings.iter().find(|finding| finding.name == "sync").unwrap();
        assert_eq!(format!("{:?}", sync.grade), grade, "{sync:?}");
        for name in ["server", "storage", "replicas", "size", "space", "clock"] {
            assert!(findings.iter().any(|finding| finding.name == name), "{name}: {findings:?}");
        }
    }
}
