//! Each wrong setup is told in one clear line, without a secret.

use std::process::Command;
use std::time::Duration;

use semel::core::record::Expect;
use semel::store::{Settings, StoreError};
use semel_testkit::{Azurite, Moto, free_ports, needed};

use crate::stage::{key, put, settings, swap};

const SECRET: &str = "aHVudGVyMi1odW50ZXIy";
/// What may only read and list, signed with Azurite's own key.
const READ_ONLY: &str = "sv=2020-08-04&ss=b&srt=sco&sp=rl&se=2099-01-01T00%3A00%3A00Z&spr=https%2Chttp&sig=qi5Q4Of1Zau4CLIJ7Kxtt9pIAzOjWpUTj9HyhZkw3Tw%3D";

/// What is said of a load and of a write: the same.
async fn said(url: &str, variables: &[(&str, &str)]) -> String {
    let settings = Settings { deadline: Duration::from_secs(5), ..settings(variables) };
    let store = match semel::store::open(url, &settings) {
        Ok(store) => store,
        Err(why) => return why.to_string(),
    };
    let loaded = store.load(&[key("a")]).await.map(drop);
    let written = swap(&*store, &[put("a", Expect::Absent, "x", None)]).await.map(drop);
    let (Err(StoreError::Unavailable(why)), loaded) = (&written, loaded) else {
        panic!("{url}: {written:?}");
    };
    if let Err(loaded) = loaded {
        assert!(loaded.to_string().contains(why), "{loaded} or {why}");
    }
    println!("{why}");
    assert!(!why.contains('\n') && !why.contains(SECRET) && why.len() < 300, "{why}");
    assert!(!format!("{store:?} {settings:?}").contains(SECRET));
    why.clone()
}

fn assert_says(why: &str, parts: &[&str]) {
    for part in parts {
        assert!(why.contains(part), "{part:?} is not in: {why}");
    }
}

#[tokio::test]
async fn a_missing_bucket_is_named() {
    let moto = Moto::start();
    let url = moto.url("p").replace("//semel/", "//nowhere/");
    assert_says(&said(&url, &Moto::VARIABLES).await, &["has no bucket nowhere", "create it"]);
    let azurite = Azurite::start();
    let url = azurite.url("p").replace("//semel/", "//nowhere/");
    assert_says(&said(&url, &Azurite::VARIABLES).await, &["has no container nowhere"]);
}

#[tokio::test]
async fn a_wrong_key_is_told() {
    let moto = Moto::start_closed();
    let variables = [("AWS_ACCESS_KEY_ID", "nobody"), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    let why = said(&moto.url("p"), &variables).await;
    assert_says(&why, &["does not accept the credentials", "InvalidAccessKeyId", "AWS_SECRET_ACCESS_KEY"]);
    let azurite = Azurite::start();
    let variables = [Azurite::VARIABLES[0], ("AZURE_STORAGE_ACCOUNT_KEY", SECRET)];
    let why = said(&azurite.url("p"), &variables).await;
    assert_says(
        &why,
        &["does not accept the credentials", "AuthorizationFailure", "AZURE_STORAGE_ACCOUNT_KEY"],
    );
}

#[tokio::test]
async fn who_may_only_read_is_told_what_to_allow() {
    let azurite = Azurite::start();
    let variables = [Azurite::VARIABLES[0], ("AZURE_STORAGE_SAS_TOKEN", READ_ONLY)];
    let why = said(&azurite.url("p"), &variables).await;
    assert_says(&why, &["forbids", "semel", "must be allowed to read, write, list and delete"]);
    assert!(!why.contains("sig="), "{why}");
}

#[tokio::test]
async fn a_service_that_is_not_there_is_told() {
    let port = free_ports(1)[0];
    let url = format!("s3://semel/p?endpoint=http://127.0.0.1:{port}");
    let why = said(&url, &Moto::VARIABLES).await;
    assert_says(&why, &[&format!("127.0.0.1:{port} cannot be reached"), "refused"]);
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_told_and_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let made = Command::new(needed("openssl"))
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &file("key.pem"), "-out", &file("cert.pem")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let azurite = Azurite::start_with(&["--cert", &file("cert.pem"), "--key", &file("key.pem")]);
    let url = format!("az://semel/p?endpoint=https://127.0.0.1:{}/devstoreaccount1", azurite.port(0));
    let why = said(&url, &Azurite::VARIABLES).await;
    assert_says(&why, &["certificate that is not trusted", "?ca=FILE"]);
    // with its authority the same service is understood: it has no such container yet
    let why = said(&format!("{url}&ca={}", file("cert.pem")), &Azurite::VARIABLES).await;
    assert_says(&why, &["has no container semel"]);
}

#[tokio::test]
async fn without_a_region_nothing_is_asked() {
    assert_says(&said("s3://semel/p", &Moto::VARIABLES).await, &["AWS_REGION"]);
}
