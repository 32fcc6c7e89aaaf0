//! Wrong setups: one clear line each, without a secret.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use semel::core::record::Expect;
use semel::store::{Grade, StoreError};
use semel_testkit::{Etcd, needed};

use crate::{key, open, open_for, put, read, write};

const SECRET: &str = "hunter2";

async fn said(url: &str) -> String {
    let store = open_for(url, Duration::from_secs(15));
    let Err(StoreError::Unavailable(why)) = store.load(&[key("a")]).await else { panic!("{url} works") };
    let Err(StoreError::Unavailable(again)) = store.examine().await else { panic!("{url} is examined") };
    assert!(!why.contains(SECRET) && !again.contains(SECRET) && !why.contains('\n'), "{why} {again}");
    assert!(!format!("{store:?}").contains(SECRET));
    println!("{why}");
    why
}

#[tokio::test]
async fn nobody_there_is_said() {
    let nobody = semel_testkit::free_ports(1)[0];
    let why = said(&format!("etcd://me:{SECRET}@127.0.0.1:{nobody}/p")).await;
    assert!(why.contains(&format!("127.0.0.1:{nobody}")) && why.contains("refused"), "{why}");
    let store = open(&format!("etcd://127.0.0.1:{nobody}"));
    let answer = write(&*store, put("a", Expect::Absent, "x", crate::MINUTE)).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
}

fn with_users(server: &Etcd) {
    for words in [
        "user add root:root",
        "user grant-role root root",
        "role add reader",
        "role grant-permission reader read p/ --prefix",
        "role add writer",
        "role grant-permission writer readwrite p/ --prefix",
        "user add ro:hunter2",
        "user grant-role ro reader",
        "user add rw:hunter2",
        "user grant-role rw writer",
        "auth enable",
    ] {
        // a role that root needs is made by some versions themselves
        server.ctl(&words.split(' ').collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn users_and_what_they_may_do_are_told_apart() {
    let mut server = Etcd::start();
    server.ctl(&["role", "add", "root"]);
    with_users(&server);
    let address = server.address();
    let why = said(&format!("etcd://rw:{SECRET}x@{address}/p")).await;
    assert!(why.contains("wrong user or password") && why.contains("rw"), "{why}");
    let why = said(&format!("etcd://{address}/p")).await;
    assert!(why.contains("wants a user"), "{why}");
    let reader = open(&format!("etcd://ro:{SECRET}@{address}/p"));
    assert!(read(&*reader, "a").await.is_none());
    for ttl in [None, crate::MINUTE] {
        let answer = write(&*reader, put("a", Expect::Absent, "x", ttl)).await;
        let Err(StoreError::Unavailable(why)) = answer else { panic!("{answer:?}") };
        assert!(why.contains("ro may not write under p/") && !why.contains(SECRET), "{why}");
    }
    let elsewhere = open(&format!("etcd://rw:{SECRET}@{address}/elsewhere"));
    assert!(matches!(elsewhere.load(&[key("a")]).await, Err(StoreError::Unavailable(_))));
    // a user with enough rights, over a restart and a change of the users, which make its token old
    let writer = open(&format!("etcd://rw:{SECRET}@{address}/p"));
    let version = write(&*writer, put("a", Expect::Absent, "x", crate::MINUTE)).await.unwrap();
    server.ctl(&["--user", "root:root", "user", "add", "another:x"]);
    writer.touch(&key("a"), &version).await.unwrap();
    let version = write(&*writer, put("a", Expect::Live(version), "y", crate::MINUTE)).await.unwrap();
    server.server().kill();
    server.server().start_again();
    let mut answer = writer.touch(&key("a"), &version).await;
    if matches!(answer, Err(StoreError::Unknown(_))) {
        // the broken connection was noticed by this one
        answer = writer.touch(&key("a"), &version).await;
    }
    answer.unwrap();
    assert!(!writer.examine().await.unwrap().is_empty());
}

/// A certificate for this name, signed by itself, and its key.
fn certificate(dir: &Path, name: &str) -> (PathBuf, PathBuf) {
    let (certificate, secret) = (dir.join(format!("{name}.pem")), dir.join(format!("{name}.key")));
    let status = Command::new(needed("openssl"))
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=semel-test", "-addext"])
        .arg(format!("subjectAltName={name}"))
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&secret)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    (certificate, secret)
}

#[tokio::test]
async fn tls_works_and_a_wrong_certificate_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let (right, secret) = certificate(dir.path(), "IP:127.0.0.1");
    let (other, _) = certificate(dir.path(), "IP:127.0.0.2");
    let server = Etcd::start_with_tls(&right, &secret);
    let address = server.address();
    let store = open(&format!("etcds://{address}/p?ca={}", right.display()));
    let begun = std::time::Instant::now();
    // it listens before it has a leader
    while let Err(why) = store.load(&[key("a")]).await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{why}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    write(&*store, put("a", Expect::Absent, "x", crate::MINUTE)).await.unwrap();
    for url in [
        format!("etcds://me:{SECRET}@{address}/p"),
        format!("etcds://me:{SECRET}@{address}/p?ca={}", other.display()),
    ] {
        let why = said(&url).await;
        assert!(why.contains("certificate") && why.contains("?ca="), "{why}");
    }
    let why = said(&format!("etcd://{address}/p")).await;
    assert!(why.contains("etcds://"), "{why}");
    let plain = Etcd::start();
    let why = said(&format!("etcds://{}/p", plain.address())).await;
    // or it breaks the connection before it has said anything
    assert!(why.contains("does not speak TLS") || why.contains("etcd:// if it does not"), "{why}");
}

/// An authority, and a certificate that it signed for a purpose: `NAME.pem`, `NAME.key`.
fn signed(dir: &Path, authority: &str, name: &str, purpose: &str) {
    let run = |words: &str| {
        let done = Command::new(needed("openssl")).args(words.split(' ')).current_dir(dir).output().unwrap();
        assert!(done.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let new = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    if !dir.join(format!("{authority}.pem")).exists() {
        run(&format!("{new} -x509 -keyout {authority}.key -out {authority}.pem -subj /CN={authority}"));
    }
    let ext = format!("subjectAltName=IP:127.0.0.1\nextendedKeyUsage={purpose}\nbasicConstraints=CA:FALSE\n");
    std::fs::write(dir.join("ext"), ext).unwrap();
    run(&format!(
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
    ));
    run(&format!(
        "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -out {name}.pem -days 2 -extfile ext"
    ));
}

#[tokio::test]
async fn a_server_that_wants_certificates_takes_ours_and_without_one_says_so() {
    let dir = tempfile::tempdir().unwrap();
    signed(dir.path(), "authority", "server", "serverAuth,clientAuth");
    signed(dir.path(), "authority", "me", "clientAuth");
    signed(dir.path(), "stranger", "other", "clientAuth");
    let file = |name: &str| dir.path().join(name);
    let server = Etcd::start_for_certified(&file("server.pem"), &file("server.key"), &file("authority.pem"));
    let at = |who: &str| {
        let ca = file("authority.pem");
        format!("etcds://{}/p?ca={}{who}", server.address(), ca.display())
    };
    let with = |name: &str| {
        let (cert, key) = (file(&format!("{name}.pem")), file(&format!("{name}.key")));
        at(&format!("&cert={}&key={}", cert.display(), key.display()))
    };
    let store = open(&with("me"));
    let begun = std::time::Instant::now();
    // it listens before it has a leader
    while let Err(why) = store.load(&[key("a")]).await {
        assert!(begun.elapsed() < Duration::from_secs(20), "{why}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let version = write(&*store, put("a", Expect::Absent, "x", crate::MINUTE)).await.unwrap();
    store.touch(&key("a"), &version).await.unwrap();
    assert!(store.examine().await.unwrap().iter().all(|finding| finding.grade != Grade::Wrong));
    for url in [at(""), with("other")] {
        let why = said(&url).await;
        assert!(why.contains("&cert=PATH&key=PATH"), "{why}");
    }
}

#[tokio::test]
async fn a_swap_that_is_too_large_and_a_full_etcd_are_said() {
    let server = Etcd::start_with(&["--quota-backend-bytes", "1000000"]);
    let store = open(&server.url("p"));
    let many: Vec<_> = (0..200).map(|i| put(&format!("m/{i}"), Expect::Absent, "x", None)).collect();
    let answer = store.swap(&many, semel::store::Durability::Durable).await;
    let Err(StoreError::Unavailable(why)) = answer else { panic!("{answer:?}") };
    assert!(why.contains("--max-txn-ops"), "{why}");
    let value = "x".repeat(100_000);
    let mut answered = 0;
    let why = loop {
        match write(&*store, put(&format!("f/{answered}"), Expect::Absent, &value, None)).await {
            Ok(_) => answered += 1,
            // the one that exceeds the quota is applied all the same
            Err(StoreError::Unknown(why)) => break why,
            Err(other) => panic!("{other}"),
        }
        assert!(answered < 100, "the quota is not kept");
    };
    assert!(why.contains("quota") && why.contains("alarm disarm"), "{why}");
    assert!(read(&*store, "f/0").await.is_some());
    let found = store.examine().await.unwrap();
    assert!(
        found.iter().any(|found| found.grade == Grade::Wrong && found.what.contains("NOSPACE")),
        "{found:?}"
    );
}

#[tokio::test]
async fn doctor_is_told_what_there_is_to_know() {
    let server = Etcd::start();
    let found = open(&server.url("p")).examine().await.unwrap();
    for finding in &found {
        println!("{}: {:?}: {} ({})", finding.name, finding.grade, finding.what, finding.mend);
    }
    let grade = |name: &str| found.iter().find(|found| found.name == name).unwrap().grade;
    assert_eq!((grade("version"), grade("leader"), grade("size")), (Grade::Good, Grade::Good, Grade::Good));
    assert_eq!((grade("members"), grade("durability")), (Grade::Note, Grade::Note));
}

/// As large as [`Most`](semel::store::Most) says, in the costliest way: every change starts a clock, every name is long.
#[tokio::test]
async fn the_largest_swap_that_is_promised_fits() {
    let server = Etcd::start();
    let store = open(&server.url("a/longer/prefix"));
    let most = store.most();
    let name = |i: usize| format!("{}{i:04}", "n".repeat(1500));
    let mut expect: Vec<_> = vec![Expect::Absent; most.changes];
    for round in 0..2 {
        let value = "x".repeat((most.bytes / most.changes) - 1504);
        let changes: Vec<_> = expect
            .drain(..)
            .enumerate()
            .map(|(i, expect)| put(&name(i), expect, &value, crate::MINUTE))
            .collect();
        assert_eq!(most.parts(&changes).len(), 1);
        let versions = store.swap(&changes, semel::store::Durability::Durable).await;
        let versions = versions.unwrap_or_else(|why| panic!("round {round}: {why}"));
        expect = versions.into_iter().map(Expect::Live).collect();
    }
}

#[tokio::test]
async fn a_reader_of_a_lapsed_lease_leaves_nothing_behind() {
    let server = Etcd::start();
    let writer = open(&server.url("p"));
    write(&*writer, put("a", Expect::Absent, "x", crate::SECOND)).await.unwrap();
    server.ctl(&["role", "add", "root"]);
    with_users(&server);
    let leases = || server.ctl(&["--user", "root:root", "lease", "list"]).lines().count();
    let begun = std::time::Instant::now();
    while server.ctl(&["--user", "root:root", "get", "p/a/a"]).contains("p/a/a") {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not lapse");
        std::thread::sleep(Duration::from_millis(100));
    }
    let before = leases();
    let reader = open(&format!("etcd://ro:{SECRET}@{}/p", server.address()));
    for _ in 0..20 {
        assert!(read(&*reader, "a").await.is_some());
    }
    // given back beside everything else
    let begun = std::time::Instant::now();
    while leases() > before {
        assert!(begun.elapsed() < Duration::from_secs(5), "{} leases, {before} before", leases());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
