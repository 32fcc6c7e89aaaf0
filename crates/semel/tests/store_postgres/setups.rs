//! Each wrong setup is told in one line, without a secret.

use std::io::{Read, Write};
use std::net::TcpListener;

use semel::core::record::Expect;
use semel::store::postgres::{DEFAULT_SCHEMA, schema_sql};
use semel::store::{Durability, Grade, Settings, Store, StoreError};
use semel_testkit::{PgServer, free_ports};

use crate::stage::{create, key, open, open_with, put};

const SECRET: &str = "hunter2-is-secret";

/// What the first verb says.
async fn said(url: &str) -> String {
    let store = open(url);
    let answer = store.load(&[key("a")]).await;
    let Err(StoreError::Unavailable(said)) = answer else { panic!("{answer:?}") };
    assert!(!said.contains(SECRET) && !said.contains('\n'), "{said}");
    assert!(!format!("{store:?}").contains(SECRET));
    println!("{said}");
    said
}

#[track_caller]
fn tells(said: &str, part: &str) {
    assert!(said.contains(part), "{said:?} does not say {part:?}");
}

#[tokio::test]
async fn wrong_roles_databases_and_ports_are_told_apart() {
    let server = PgServer::start();
    server.role("plain", "right-and-secret");
    let (port, [free]) = (server.port(), free_ports(1).try_into().unwrap());
    let at = |user: &str, port: u16, database: &str| format!("postgres://{user}@127.0.0.1:{port}/{database}");
    tells(&said(&at(&format!("plain:{SECRET}"), port, "semel")).await, "refused the password of plain");
    tells(&said(&at("plain", port, "semel")).await, "asks for a password of plain: set PGPASSWORD");
    tells(&said(&at("semel", port, "nowhere")).await, "there is no database nowhere");
    tells(&said(&at(&format!("semel:{SECRET}"), free, "semel")).await, "nobody listens at 127.0.0.1");
    tells(&said("postgres://semel@%2Fnonexistent/semel").await, "nobody listens at /nonexistent");
    tells(&said(&format!("{}?sslmode=require", server.url())).await, "has no TLS");

    let variables = [("PGPASSWORD".to_owned(), "right-and-secret".to_owned())].into();
    let store = open_with(&at("plain", port, "semel"), Settings { variables, ..Settings::default() });
    let Err(StoreError::Unavailable(said)) = store.load(&[]).await else { panic!("there is a ledger") };
    tells(&said, "the ledger semel.records is missing");
    tells(&said, "plain may not make it: let an administrator run what `semel store schema` prints");

    server.psql(&schema_sql(DEFAULT_SCHEMA).unwrap());
    server.psql(&schema_sql(DEFAULT_SCHEMA).unwrap());
    let Err(StoreError::Unavailable(said)) = store.load(&[]).await else { panic!("it may read") };
    tells(&said, "GRANT USAGE ON SCHEMA semel TO plain");
    server.psql("GRANT USAGE ON SCHEMA semel TO plain; GRANT SELECT ON ALL TABLES IN SCHEMA semel TO plain");
    store.load(&[key("a")]).await.unwrap();
    let write = store.swap(&[put("a", Expect::Absent, "x", None)], Durability::Durable).await;
    let Err(StoreError::Unavailable(said)) = write else { panic!("{write:?}") };
    tells(&said, "plain may not use the ledger semel");
    tells(&said, "INSERT, UPDATE, DELETE ON semel.records TO plain");
    let found = store.examine().await.unwrap();
    assert!(
        found.iter().any(|finding| finding.name == "permissions" && finding.grade == Grade::Wrong),
        "{found:?}"
    );
    server.psql("GRANT SELECT, INSERT, UPDATE, DELETE ON semel.records TO plain");
    create(&store, "a", None).await;

    server.psql("ALTER ROLE plain SET default_transaction_read_only = on");
    let variables = [("PGPASSWORD".to_owned(), "right-and-secret".to_owned())].into();
    let store = open_with(&at("plain", port, "semel"), Settings { variables, ..Settings::default() });
    let write = store.swap(&[put("b", Expect::Absent, "x", None)], Durability::Durable).await;
    let Err(StoreError::Unavailable(said)) = write else { panic!("{write:?}") };
    tells(&said, "takes no writes");
}

#[tokio::test]
async fn a_newer_ledger_is_told() {
    let server = PgServer::start();
    create(&open(&server.url()), "a", None).await;
    server.psql("UPDATE semel.ledger SET version = 2; DROP FUNCTION semel.load_1");
    tells(&said(&server.url()).await, "made by a newer Semel (schema 2, this one knows 1): upgrade this one");
}

#[tokio::test]
async fn a_certificate_is_checked_as_far_as_was_asked_for() {
    let server = PgServer::start_with_tls();
    let (port, authority) = (server.port(), server.authority());
    let authority = authority.to_str().unwrap();
    let stranger = PgServer::start_with_tls();
    let stranger = stranger.authority();
    let at = |host: &str, options: &str| format!("postgres://semel@{host}:{port}/semel?{options}");
    for works in [
        at("127.0.0.1", "sslmode=require"),
        at("127.0.0.1", "sslmode=prefer"),
        at("127.0.0.1", &format!("sslmode=require&sslrootcert={authority}")),
        at("127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={authority}")),
        at("localhost", &format!("sslmode=verify-full&sslrootcert={authority}")),
    ] {
        let store = open(&works);
        store.load(&[]).await.unwrap_or_else(|why| panic!("{works}: {why}"));
        let found = store.examine().await.unwrap();
        let tls = found.iter().find(|finding| finding.name == "encryption").unwrap();
        assert_eq!(tls.grade == Grade::Good, works.contains("sslrootcert"), "{works}: {tls:?}");
        assert!(tls.what.contains("encrypted") || tls.what.contains("TLS"), "{works}: {tls:?}");
    }
    let stranger = stranger.to_str().unwrap();
    for refused in [
        at("127.0.0.1", &format!("sslmode=verify-full&sslrootcert={authority}")),
        at("localhost", &format!("sslmode=verify-full&sslrootcert={stranger}")),
        at("localhost", &format!("sslmode=require&sslrootcert={stranger}")),
        at("localhost", "sslmode=verify-full"),
    ] {
        tells(&said(&refused).await, "sslrootcert=FILE");
    }
}

/// A server that says it is of this version, and nothing more.
fn pretend(version: &str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut hello = vec![b'R', 0, 0, 0, 8, 0, 0, 0, 0, b'S'];
    let body = format!("server_version\0{version}\0");
    hello.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    hello.extend(body.bytes());
    hello.extend([b'Z', 0, 0, 0, 5, b'I']);
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let mut asked = [0; 1024];
            let _ = client.read(&mut asked).and_then(|_| client.write_all(&hello));
            let _ = client.read(&mut asked);
        }
    });
    port
}

#[tokio::test]
async fn a_server_of_too_old_a_version_is_told() {
    let port = pretend("9.6.24");
    let url = format!("postgres://semel:{SECRET}@127.0.0.1:{port}/semel?sslmode=disable");
    tells(&said(&url).await, "is version 9.6.24, which is too old: 12 or later is needed");
}

#[tokio::test]
async fn doctor_reads_what_matters() {
    let server = PgServer::start();
    let found = open(&server.url()).examine().await.unwrap();
    for finding in &found {
        println!("{:?} {}: {} {}", finding.grade, finding.name, finding.what, finding.mend);
    }
    let grade = |name: &str| found.iter().find(|finding| finding.name == name).unwrap().grade;
    for name in
        ["version", "durability", "replication", "epoch", "permissions", "clock", "connections", "waiting"]
    {
        assert_eq!(grade(name), Grade::Good, "{name}");
    }
    assert_eq!(grade("encryption"), Grade::Note);

    let server = PgServer::start_with(&["synchronous_commit=off"]);
    let found = open(&server.url()).examine().await.unwrap();
    assert!(
        found.iter().any(|finding| finding.name == "durability" && finding.grade == Grade::Wrong),
        "{found:?}"
    );
    let pooler = server.pooler(2);
    let found = open(&server.url_at(pooler.port())).examine().await.unwrap();
    assert!(
        found.iter().any(|finding| finding.name == "waiting" && finding.grade == Grade::Note),
        "{found:?}"
    );
}
