//! Time is the server's: stalled clients, clients whose clock is wrong, a server that forgot everything.

use semel::core::record::Standing;
use semel::store::Store;
use semel::store::conformance::claims::{self, Claim};
use semel_testkit::Redis;
use std::time::Duration;

use crate::stage::{Probe, create, key, left_ms, load, open, until};

async fn win(store: &dyn Store, name: &str, ttl: Duration) -> claims::Won {
    match claims::claim(store, &key(name), ttl).await.unwrap() {
        Claim::Won(won) => won,
        Claim::Lost => panic!("{name} is held"),
    }
}

async fn lapsed(store: &dyn Store, name: &str) {
    until("the lease has lapsed", async || {
        matches!(load(store, name).await.unwrap().standing, Some(Standing::Lapsed { .. }))
    })
    .await;
}

#[tokio::test]
async fn a_client_that_was_stopped_past_its_ttl_is_refused() {
    let server = Redis::start();
    let store = open(&server.url());
    let mut zombie = Probe::start(&server.url(), &[]);
    let won = zombie.ask("claim lease/a 300");
    let token = won.strip_prefix("won ").unwrap().to_owned();
    zombie.signal(libc::SIGSTOP);
    lapsed(&*store, "lease/a").await;
    let heir = win(&*store, "lease/a", Duration::from_secs(60)).await;
    zombie.signal(libc::SIGCONT);
    let late = zombie.ask(&format!("release lease/a {token}"));
    assert!(late.starts_with("error"), "{late}");
    assert_eq!(load(&*store, "lease/a").await.unwrap().version, heir.version);
    assert!(heir.grant.token.value() > token.parse().unwrap());
}

#[tokio::test]
async fn a_client_whose_clock_is_an_hour_off_holds_its_leases_neither_shorter_nor_longer() {
    let server = Redis::start();
    let store = open(&server.url());
    let library =
        semel_testkit::faketime().expect("faketime is missing: install it with cargo xtask servers");
    for (name, off) in [("ahead", "+3600"), ("behind", "-3600")] {
        let env =
            [("LD_PRELOAD", library.as_str()), ("FAKETIME", off), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let date = std::process::Command::new("date").arg("+%s").envs(env).output().unwrap();
        let date: i64 = String::from_utf8_lossy(&date.stdout).trim().parse().unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        assert!((date - i64::try_from(now).unwrap()).abs() > 3000, "its clock is off");
        let mut probe = Probe::start(&server.url(), &env);
        let (long, short, ours) =
            (format!("lease/{name}-long"), format!("lease/{name}-short"), format!("lease/{name}-ours"));
        assert_eq!(probe.ask(&format!("lease {long} 60000")), "ok lease");
        let left = left_ms(&*store, &long).await;
        assert!((30_000..=60_000).contains(&left), "{left} ms are left of 60 s");
        assert_eq!(probe.ask(&format!("touch {long}")), "ok touch");
        assert!((30_000..=60_000).contains(&left_ms(&*store, &long).await));
        assert_eq!(probe.ask(&format!("lease {short} 50")), "ok lease");
        lapsed(&*store, &short).await;
        assert!(probe.ask(&format!("touch {short}")).starts_with("error"));
        // and it sees ours as they are
        win(&*store, &ours, Duration::from_secs(60)).await;
        assert_eq!(probe.ask(&format!("claim {ours} 1000")), "lost");
        let soon = format!("{ours}-soon");
        win(&*store, &soon, Duration::from_millis(50)).await;
        lapsed(&*store, &soon).await;
        assert!(probe.ask(&format!("claim {soon} 1000")).starts_with("won"));
    }
}

#[tokio::test]
async fn tokens_and_versions_do_not_come_back_when_the_server_forgot_everything() {
    let server = Redis::start();
    let store = open(&server.url());
    let first = win(&*store, "lease/a", Duration::from_secs(60)).await;
    let entry = create(&*store, "entry/a", "same", None).await;
    for _ in 0..3 {
        assert_eq!(server.ask("FLUSHALL"), "+OK");
        let next = win(&*store, "lease/a", Duration::from_secs(60)).await;
        assert!(next.grant.token > first.grant.token, "{next:?} follows {first:?}");
        assert!(next.grant.token.value() < 1 << 53);
        assert_ne!(create(&*store, "entry/a", "same", None).await, entry);
    }
}
