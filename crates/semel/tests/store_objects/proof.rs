//! A service that keeps no conditions is refused by its name; one that was proven is not asked again.

use semel::core::record::Expect;
use semel::store::{Grade, StoreError};
use semel_testkit::{Azurite, Careless, Fault, Moto, OnDisk, Proxy, S3rver};

use crate::stage::{load, on, open, put, swap, through};

async fn first_write(fault: Fault) -> Result<(), StoreError> {
    let moto = Moto::start();
    let careless = Careless::before(moto.0.address(0), fault);
    let store = open(&Moto::url_at(careless.address(), "ledger"), &Moto::VARIABLES);
    assert!(load(&*store, "a").await.is_none(), "reading is no risk");
    let written = swap(&*store, &[put("a", Expect::Absent, "x", None)]).await;
    assert_eq!(load(&*on(&moto), "a").await.is_some(), written.is_ok(), "nothing is entrusted to it");
    written?;
    let found = load(&*store, "a").await.unwrap();
    swap(&*store, &[put("a", Expect::Version(found.version), "y", None)]).await.map(drop)
}

#[tokio::test]
async fn a_service_that_ignores_conditions_is_refused_by_its_name() {
    for fault in [Fault::Ignores, Fault::Sometimes] {
        let Err(StoreError::Unavailable(why)) = first_write(fault).await else {
            panic!("{fault:?} is taken")
        };
        println!("{why}");
        assert!(why.contains("127.0.0.1") && why.contains("Werkzeug"), "{why}");
        assert!(why.contains("does not keep conditions") && !why.contains('\n'), "{why}");
    }
}

/// No proxy that plays one: a server that people do run, and that answers 200 to every condition.
#[tokio::test]
async fn s3rver_which_ignores_conditions_is_refused_at_its_first_use_and_by_the_doctor() {
    let server = S3rver::start();
    let store = open(&server.url("ledger"), &S3rver::VARIABLES);
    assert!(load(&*store, "a").await.is_none(), "reading is no risk");
    let answer = swap(&*store, &[put("a", Expect::Absent, "x", None)]).await;
    let Err(StoreError::Unavailable(why)) = answer else { panic!("it is taken: {answer:?}") };
    println!("{why}");
    let address = server.0.address(0).to_string();
    assert!(why.contains(&address) && why.contains("does not keep conditions"), "{why}");
    assert!(load(&*store, "a").await.is_none(), "nothing is entrusted to it");
    let findings = store.examine().await.unwrap();
    let wrong = findings.iter().find(|finding| finding.name == "conditions").unwrap();
    assert!(wrong.grade == Grade::Wrong && wrong.what.contains(&address), "{findings:?}");
}

#[tokio::test]
async fn a_service_that_looks_and_writes_in_two_steps_is_refused_by_its_name() {
    let server = OnDisk::start_racy();
    let store = open(&server.s3_url("ledger"), &Moto::VARIABLES);
    let answer = swap(&*store, &[put("a", Expect::Absent, "x", None)]).await;
    let Err(StoreError::Unavailable(why)) = answer else { panic!("it is taken: {answer:?}") };
    println!("{why}");
    assert!(why.contains("semel-objects") && why.contains("cannot keep a ledger"), "{why}");
}

#[tokio::test]
async fn a_service_that_compares_bare_tags_is_given_them() {
    first_write(Fault::WantsBareTags).await.unwrap();
}

#[tokio::test]
async fn a_service_is_proven_once() {
    let moto = Moto::start();
    swap(&*on(&moto), &[put("a", Expect::Absent, "x", None)]).await.unwrap();
    let proxy = Proxy::before(moto.0.address(0));
    let later = through(&proxy, std::time::Duration::from_secs(10));
    let found = load(&*later, "a").await.unwrap();
    assert_eq!(proxy.round_trips(), 2, "the record, and beside it the proof");
    swap(&*later, &[put("a", Expect::Version(found.version), "y", None)]).await.unwrap();
    assert_eq!(proxy.round_trips(), 3, "the write");
}

#[tokio::test]
async fn a_doctor_proves_it_again_and_names_what_is_wrong() {
    let moto = Moto::start();
    let findings = on(&moto).examine().await.unwrap();
    println!("{findings:#?}");
    assert!(findings.iter().all(|finding| finding.grade != Grade::Wrong), "{findings:?}");
    let azurite = Azurite::start();
    let findings = open(&azurite.url("ledger"), &Azurite::VARIABLES).examine().await.unwrap();
    println!("{findings:#?}");
    assert!(findings.iter().all(|finding| finding.grade != Grade::Wrong), "{findings:?}");
    let careless = Careless::before(moto.0.address(0), Fault::Ignores);
    let store = open(&Moto::url_at(careless.address(), "ledger"), &Moto::VARIABLES);
    let findings = store.examine().await.unwrap();
    assert!(findings.iter().any(|finding| finding.name == "conditions" && finding.grade == Grade::Wrong));
}
