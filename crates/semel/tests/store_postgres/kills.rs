//! A server that is killed, a client that is stopped, clocks that are wrong, a failover that forgets.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use semel::core::lease::Lease;
use semel::core::record::{Expect, RecordKey, Standing, decode};
use semel::core::token::{Fence, Grant, Token};
use semel::store::conformance::claims::{self, Claim, Won};
use semel::store::{Durability, Store, StoreError};
use semel::{Job, Outcome, Semel};
use semel_testkit::PgServer;

use crate::stage::{hurried, key, open, open_with, probe, put};

/// Write one record after another until told to stop; the numbers of those that were answered.
async fn writer(url: String, name: String, stop: Arc<AtomicBool>) -> Vec<u32> {
    let store = open_with(&url, hurried(Duration::from_secs(5)));
    let mut acknowledged = Vec::new();
    for i in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let change = put(&format!("{name}/{i}"), Expect::Absent, &i.to_string(), None);
        match store.swap(&[change], Durability::Durable).await {
            Ok(_) => acknowledged.push(i),
            Err(StoreError::Unknown(_) | StoreError::Unavailable(_)) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(why) => panic!("{name}/{i}: {why}"),
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_server_that_is_killed_under_load() {
    let mut server = PgServer::start();
    claims::claim(&open(&server.url()), &key("lease/a"), Duration::from_secs(600)).await.unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> =
        (0..12).map(|i| tokio::spawn(writer(server.url(), format!("w{i}"), Arc::clone(&stop)))).collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        server = tokio::task::spawn_blocking(move || {
            server.server().kill();
            server.server().start_again();
            server
        })
        .await
        .unwrap();
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    stop.store(true, Ordering::SeqCst);
    let store = open(&server.url());
    let mut all = 0;
    for (i, writer) in writers.into_iter().enumerate() {
        let acknowledged = writer.await.unwrap();
        assert!(!acknowledged.is_empty());
        let keys: Vec<RecordKey> = acknowledged.iter().map(|n| key(&format!("w{i}/{n}"))).collect();
        let found = store.load(&keys).await.unwrap().records;
        for (n, record) in acknowledged.iter().zip(found) {
            let value = record.unwrap_or_else(|| panic!("w{i}/{n} was answered and is gone")).value;
            assert_eq!(value, n.to_string().into_bytes());
        }
        all += acknowledged.len();
    }
    println!("{all} acknowledged writes over three kills, all there");
    let held = claims::claim(&store, &key("lease/a"), Duration::from_secs(600)).await.unwrap();
    assert!(matches!(held, Claim::Lost), "the lease is still held");
}

/// A process of its own on the same records.
struct Helper {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Helper {
    fn start(url: &str, env: &[(&str, &str)]) -> Helper {
        let mut child = Command::new(probe())
            .arg(url)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut helper = Helper { child, orders, answers };
        assert_eq!(helper.ask("open"), "ok open");
        helper
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    fn ask(&mut self, order: &str) -> String {
        self.order(order);
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.child.id()).unwrap();
        // SAFETY: no memory is involved.
        unsafe { libc::kill(pid, signal) };
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

async fn lapsed(store: &dyn Store, name: &str) {
    let begun = Instant::now();
    loop {
        let record = store.load(&[key(name)]).await.unwrap().records.remove(0).unwrap();
        if matches!(record.standing, Some(Standing::Lapsed { .. })) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{record:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn win(store: &dyn Store, name: &str, ttl: Duration) -> Won {
    match claims::claim(store, &key(name), ttl).await.unwrap() {
        Claim::Won(won) => won,
        Claim::Lost => panic!("{name} is free and was not granted"),
    }
}

#[tokio::test]
async fn a_client_that_was_stopped_past_its_ttl_is_refused() {
    let server = PgServer::start();
    let store = open(&server.url());
    let mut zombie = Helper::start(&server.url(), &[]);
    let won = zombie.ask("claim lease/a 400");
    let token = won.strip_prefix("won ").unwrap_or_else(|| panic!("{won}")).to_owned();
    zombie.signal(libc::SIGSTOP);
    // drafted while it was its own, and told when it wakes
    zombie.order(&format!("release lease/a {token}"));
    lapsed(&store, "lease/a").await;
    let heir = win(&store, "lease/a", Duration::from_secs(60)).await;
    zombie.signal(libc::SIGCONT);
    let mut answer = String::new();
    zombie.answers.read_line(&mut answer).unwrap();
    assert!(answer.starts_with("error"), "{answer}");
    assert_eq!(zombie.ask("claim lease/a 400"), "lost");
    let stands = store.load(&[key("lease/a")]).await.unwrap().records.remove(0).unwrap();
    assert_eq!(stands.version, heir.version, "the heir's lease is untouched");
}

#[tokio::test]
async fn a_wall_clock_that_is_an_hour_off_makes_leases_neither_shorter_nor_longer() {
    let library =
        semel_testkit::faketime().expect("faketime is missing: install it with cargo xtask servers");
    let server = PgServer::start();
    let store = open(&server.url());
    for offset in ["+3600", "-3600"] {
        let env =
            [("LD_PRELOAD", library.as_str()), ("FAKETIME", offset), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        let mut wrong = Helper::start(&server.url(), &env);
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", wrong.child.id())).unwrap();
        assert!(maps.contains("libfaketime"), "its clock is not the wrong one");
        let (theirs, ours) = (format!("lease/theirs{offset}"), format!("lease/ours{offset}"));
        assert_eq!(wrong.ask(&format!("lease {theirs} 60000")), "ok lease");
        let record = store.load(&[key(&theirs)]).await.unwrap().records.remove(0).unwrap();
        let Some(Standing::Live { left_ms }) = record.standing else { panic!("{record:?}") };
        assert!((50_000..=60_000).contains(&left_ms), "{offset}: {left_ms}");
        win(&store, &ours, Duration::from_secs(2)).await;
        assert_eq!(wrong.ask(&format!("claim {ours} 60000")), "lost", "{offset}");
        lapsed(&store, &ours).await;
        let won = wrong.ask(&format!("claim {ours} 60000"));
        assert!(won.starts_with("won "), "{offset}: {won}");
        assert_eq!(wrong.ask(&format!("touch {ours}")), "ok touch");
        let lost = claims::claim(&store, &key(&ours), Duration::from_secs(60)).await.unwrap();
        assert!(matches!(lost, Claim::Lost), "{offset}");
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "still not: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Let the replica fall behind for good: it no longer knows its primary.
fn cut_off(primary: &PgServer, replica: &PgServer) {
    let caught_up = "SELECT pg_current_wal_lsn() = replay_lsn FROM pg_stat_replication";
    until("the replica has caught up", || primary.psql(caught_up) == "t");
    replica.psql("ALTER SYSTEM SET primary_conninfo = ''");
    replica.psql("SELECT pg_reload_conf()");
    until("the replica is cut off", || primary.psql("SELECT count(*) FROM pg_stat_replication") == "0");
}

fn grant(record: &semel::store::Record) -> Grant {
    decode::<Lease>(&record.key, &record.value).unwrap().grant
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_that_forgot_a_grant_the_token_grows_and_the_lost_holder_is_told() {
    let primary = PgServer::start();
    let replica = primary.replica();
    let both = format!(
        "postgres://semel@127.0.0.1:{},127.0.0.1:{}/semel?target_session_attrs=read-write",
        primary.port(),
        replica.port()
    );
    let store = Arc::new(open(&both));
    let name = "lease/site";
    // one grant that the replica knows
    let known = win(&*store, name, Duration::from_secs(60)).await;
    claims::release_lease(&*store, &key(name), known.grant.token).await.unwrap().unwrap();
    cut_off(&primary, &replica);

    // one who looked before the failover, and writes after it
    let early = open(&both);
    let nonce = claims::nonce().unwrap();
    let (early_change, early_won) =
        claims::draft(&early, &key(name), Duration::from_secs(60), nonce).await.unwrap().unwrap();

    // a run is granted, and begins; then its server dies and the replica takes over, which never heard of it
    let semel = Semel::on(Arc::clone(&store) as Arc<dyn Store>);
    let job = Job::named("publish").slot("monday").resource("site").build().unwrap();
    let ran = AtomicU32::new(0);
    let lost = Mutex::new(None);
    let look = open(&primary.url());
    let primary = Mutex::new(primary);
    let outcome: Outcome<(), std::io::Error> = semel
        .run(&job, async |_| {
            ran.fetch_add(1, Ordering::SeqCst);
            let record = look.load(&[key(name)]).await.unwrap().records.remove(0).unwrap();
            *lost.lock().unwrap() = Some((grant(&record), record.version));
            primary.lock().unwrap().server().kill();
            replica.promote();
            Ok(())
        })
        .await;
    let (lost, version) = lost.into_inner().unwrap().unwrap();
    // its outcome is not taken for recorded: the new primary has no such lease and no such entry
    assert!(
        matches!(outcome, Outcome::Unrecorded { .. } | Outcome::LeaseLost(_)),
        "the lost holder is told: {outcome:?}"
    );
    let touch = store.touch(&key(name), &version).await;
    assert!(matches!(touch, Err(StoreError::Refused(_))), "{touch:?}");

    // it has the token that was lost, and the record is as it saw it
    assert_eq!(early_won.grant.token, lost.token);
    // another task of its process has met the new timeline meanwhile
    early.load(&[key("lease/other")]).await.unwrap();
    let late = early.swap(&[early_change], Durability::Durable).await;
    assert!(matches!(late, Err(StoreError::Refused(_))), "{late:?}");

    let next = win(&*store, name, Duration::from_secs(60)).await;
    println!("known {}, lost {}, next {}", known.grant.token, lost.token, next.grant.token);
    assert!(next.grant.token > lost.token, "{} follows {}", next.grant.token, lost.token);
    assert_eq!(next.grant.token.epoch(), lost.token.epoch() + 1, "a new timeline");
    // a sink that met the new holder refuses the lost one; had there been no epoch, the two would have had one token,
    // and the sink would have told them apart by their nonces
    assert_eq!(lost.against(Some(&next.grant)), Fence::Stale);
    let without_epoch = Token::next(Some(known.grant.token), 0).unwrap();
    assert_eq!(without_epoch, lost.token);
    let clash = Grant { token: without_epoch, nonce: next.grant.nonce };
    assert_eq!(clash.against(Some(&lost)), Fence::Clash);
}

#[tokio::test]
async fn a_replica_is_no_store() {
    let primary = PgServer::start();
    win(&open(&primary.url()), "lease/a", Duration::from_secs(60)).await;
    let replica = primary.replica();
    until("the replica has the ledger", || {
        replica.psql("SELECT to_regclass('semel.records') IS NOT NULL") == "t"
    });
    let store = open(&replica.url());
    for answer in [
        store.load(&[key("lease/a")]).await.map(drop),
        store.swap(&[put("a", Expect::Absent, "x", None)], Durability::Durable).await.map(drop),
    ] {
        let Err(StoreError::Unavailable(said)) = answer else { panic!("{answer:?}") };
        assert!(said.contains("give the address of the primary"), "{said}");
    }
}
