//! Reading the ledger, verdicts and retention, on a store in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel::clock::{Clock, Moment};
use semel::engine::ledger::{Found, Wanted};
use semel::engine::verdict::{Judged, Saying};
use semel::engine::{Engine, Strangers};
use semel::store::memory::Memory;
use semel::store::{Change, Durability};
use semel_core::claim::{Ask, Decision, claim};
use semel_core::entry::{Ending, Entry, Say, Settle, State};
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::policy::Policy;
use semel_core::record::{Expect, RecordKey, encode};
use semel_core::story::Condition;
use semel_core::token::Nonce;
use semel_core::work::Work;

const DAY_MS: u64 = 24 * 3_600_000;

/// A clock that only the test moves.
#[derive(Default)]
struct Hand(AtomicU64);

impl Hand {
    fn pass(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for Hand {
    fn now(&self) -> Moment {
        Moment::since_boot(Duration::from_millis(self.wall_ms()))
    }

    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn sleep_until(&self, _: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }
}

fn bench() -> (Engine, Arc<Hand>) {
    let hand = Arc::new(Hand::default());
    hand.pass(1_000);
    let me = Owner { host: "h".into(), boot: "b".into(), pidns: 1, pid: 1, start: 1 };
    let store = Arc::new(Memory::with_clock(hand.clone()));
    (Engine { store, clock: hand.clone(), neighbours: Arc::new(Strangers), me }, hand)
}

fn once(job: &str) -> Work {
    Work::once(Name::new(job).unwrap())
}

/// Claim a work by the rules, as a run does. Answers the entry as it is under way.
async fn begin(engine: &Engine, work: &Work, policy: &Policy) -> Entry {
    let resources = [work.job().clone()];
    let view = engine.look(Some(work), &resources).await.unwrap();
    let nonce = Nonce::from_bytes(
        [u8::try_from(view.entry.as_ref().map_or(1, |e| e.value.attempts + 1)).unwrap(); 16],
    );
    let what = work.to_string();
    let ask = Ask {
        work: Some(work),
        what: &what,
        resources: &resources,
        policy,
        owner: &engine.me,
        nonce,
        payload: None,
        command: None,
        plan: None,
        definition: None,
        occurrence: None,
        now_ms: engine.clock.wall_ms(),
    };
    let Decision::Claim(claim) = claim(&view, &ask) else { panic!("{work} cannot be claimed") };
    let changes = semel::engine::view::changes(&claim.writes()).unwrap();
    engine.store.swap(&changes, Durability::Durable).await.unwrap();
    claim.intent.unwrap().entry
}

async fn end(engine: &Engine, work: &Work, ending: Ending) {
    let view = engine.look(Some(work), std::slice::from_ref(work.job())).await.unwrap();
    let seen = view.entry.clone().unwrap();
    let State::Running { grant, resource } = &seen.value.state else { panic!("{work} is not running") };
    let now_ms = engine.clock.wall_ms();
    let settle = Settle {
        grant,
        ending,
        result: None,
        output: None,
        failed_tries: 0,
        missed_renewals: 0,
        unrenewed_ms: 0,
        now_ms,
    };
    let lease = view.lease(resource).unwrap();
    let conclusion =
        semel_core::claim::conclude(&seen, lease, &settle, semel_core::claim::After::Release { rest_ms: 0 })
            .unwrap();
    let changes = semel::engine::view::changes(&conclusion.writes(resource)).unwrap();
    engine.store.swap(&changes, Durability::Durable).await.unwrap();
}

async fn done(engine: &Engine, work: &Work, policy: &Policy) {
    begin(engine, work, policy).await;
    end(engine, work, Ending::Succeeded).await;
}

fn saying(said: Say) -> Saying {
    Saying { said, by: "ana".into(), because: "seen".into(), result: None }
}

async fn put(engine: &Engine, key: RecordKey, value: Vec<u8>) {
    let change = Change::Put { key, expect: Expect::Absent, value, ttl: None };
    engine.store.swap(&[change], Durability::Durable).await.unwrap();
}

#[tokio::test]
async fn an_entry_is_found_by_its_name_its_key_and_the_first_digits_of_it() {
    let (engine, _) = bench();
    let work = once("publish");
    done(&engine, &work, &Policy::default()).await;
    let key = work.key().to_string();
    for text in ["publish", &key, &key[..8], &key[..8].to_uppercase()] {
        let found = engine.find(&Wanted::parse(text).unwrap()).await.unwrap();
        assert!(matches!(&found, Found::Work(found) if *found == work), "{text}: {found:?}");
    }
    let nothing = engine.find(&Wanted::parse("0123456789").unwrap()).await.unwrap();
    assert!(matches!(nothing, Found::Nothing));
    // a job may be called like a key
    let hex = once(&key[..8]);
    done(&engine, &hex, &Policy::default()).await;
    let found = engine.find(&Wanted::parse(&key[..8]).unwrap()).await.unwrap();
    assert!(matches!(found, Found::Work(found) if found == hex));
}

#[tokio::test]
async fn digits_that_several_keys_begin_with_are_ambiguous() {
    let (engine, _) = bench();
    let entry = begin(&engine, &once("a"), &Policy::default()).await;
    for tail in ["1", "2", "3"] {
        let key = RecordKey::from_stored(format!("entry/x//abcdef0123{tail}"));
        put(&engine, key.clone(), encode(&key, &entry).unwrap()).await;
    }
    let found = engine.find(&Wanted::parse("abcdef01").unwrap()).await.unwrap();
    assert!(matches!(&found, Found::Many(works, 3) if works.len() == 3), "{found:?}");
}

#[tokio::test]
async fn pages_show_all_entries_once_and_a_damaged_one_hides_none() {
    let (engine, hand) = bench();
    for n in 0..300 {
        done(&engine, &once(&format!("job-{n}")), &Policy::default()).await;
    }
    begin(&engine, &once("alive"), &Policy::default()).await;
    begin(&engine, &once("lapsed"), &Policy { ttl_ms: 1_000, ..Policy::default() }).await;
    put(&engine, RecordKey::from_stored("entry/bad//00".into()), b"{".to_vec()).await;
    hand.pass(2_000);
    let (mut listed, mut unreadable, mut from) = (Vec::new(), 0, None);
    loop {
        let page = engine.page(None, from.as_ref()).await.unwrap();
        listed.extend(page.entries);
        unreadable += page.unreadable.len();
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    assert_eq!((listed.len(), unreadable), (302, 1));
    let of = |job: &str| listed.iter().find(|one| one.seen.value.work == once(job)).map(|one| one.condition);
    assert_eq!(
        (of("alive"), of("lapsed"), of("job-7")),
        (Some(Condition::Running), Some(Condition::Lost), Some(Condition::Done))
    );
}

#[tokio::test]
async fn a_verdict_is_refused_while_it_runs_and_taken_once_it_is_lost() {
    let (engine, hand) = bench();
    let work = once("pay");
    assert!(matches!(engine.judge(&work, &saying(Say::Done)).await.unwrap(), Judged::Absent));
    begin(&engine, &work, &Policy::default()).await;
    let Judged::Running { lease: Some(lease), .. } = engine.judge(&work, &saying(Say::Done)).await.unwrap()
    else {
        panic!("it runs")
    };
    assert!(lease.is_held());
    hand.pass(61_000);
    assert_eq!(engine.outlook(&work).await.unwrap().condition, Some(Condition::Lost));
    let Judged::Changed { after, .. } = engine.judge(&work, &saying(Say::Done)).await.unwrap() else {
        panic!("lost")
    };
    assert_eq!((after.state.word(), after.verdicts.len()), ("done", 1));
    assert!(matches!(engine.judge(&work, &saying(Say::Done)).await.unwrap(), Judged::Already(_)));
    assert_eq!(engine.outlook(&work).await.unwrap().next.word(), "skip");
    let Judged::Changed { .. } = engine.judge(&work, &saying(Say::Retry)).await.unwrap() else {
        panic!("done")
    };
    assert_eq!(engine.outlook(&work).await.unwrap().next.word(), "run");
}

#[tokio::test]
async fn a_sweep_removes_what_is_past_its_time_and_never_a_lease() {
    let (engine, hand) = bench();
    let short = Policy { remember_ms: Some(DAY_MS), keep_ms: DAY_MS, ..Policy::default() };
    done(&engine, &once("short"), &short).await;
    done(&engine, &once("long"), &Policy::default()).await;
    let failing = once("failing");
    for _ in 0..2 {
        begin(&engine, &failing, &short).await;
        end(&engine, &failing, Ending::Failed { code: 1 }).await;
        hand.pass(1_000);
    }
    for (n, work) in [once("short"), once("long"), once("nobody")].iter().enumerate() {
        let nonce = Nonce::from_bytes([u8::try_from(n).unwrap(); 16]);
        put(&engine, RecordKey::journal(work, engine.clock.wall_ms(), &nonce), b"{}".to_vec()).await;
    }
    hand.pass(2 * DAY_MS);
    let counted = engine.sweep(true, &mut |_| {}).await.unwrap();
    assert_eq!((counted.notes, counted.attempts, counted.forgotten), (1, 1, 1));
    let swept = engine.sweep(false, &mut |_| {}).await.unwrap();
    assert_eq!(swept, counted);
    let left: Vec<String> =
        engine.store.scan("", None, 100).await.unwrap().iter().map(|r| r.key.to_string()).collect();
    let under = |prefix: &str| left.iter().filter(|key| key.starts_with(prefix)).count();
    assert_eq!((under("lease/"), under("entry/"), under("journal/")), (3, 3, 2), "{left:?}");
    assert_eq!(engine.page(None, None).await.unwrap().entries.len(), 2, "a trace is no entry");
    assert_eq!(engine.outlook(&failing).await.unwrap().entry().unwrap().log.len(), 1);
    assert_eq!(engine.outlook(&once("short")).await.unwrap().next.word(), "run");
    assert_eq!(engine.outlook(&once("long")).await.unwrap().next.word(), "skip");
    let again = engine.sweep(false, &mut |_| {}).await.unwrap();
    assert_eq!((again.notes, again.attempts, again.forgotten, again.traces), (0, 0, 0, 0));
    // what is left of it knows that it was done, and goes in its turn
    let left = engine.outlook(&once("short")).await.unwrap();
    assert!(left.entry().unwrap().is_again().is_some_and(|left| left.remember_ms == DAY_MS));
    hand.pass(DAY_MS + 1);
    assert_eq!(engine.sweep(false, &mut |_| {}).await.unwrap().traces, 1);
    assert!(engine.outlook(&once("short")).await.unwrap().entry().is_none());
}

#[tokio::test]
async fn a_store_that_keeps_its_promises_is_proved_and_left_clean() {
    let mut engine = bench().0;
    engine.store = Arc::new(Memory::new());
    let proof = engine.prove().await.unwrap();
    assert_eq!((proof.raced, proof.lost, proof.clock_fault), (200, 0, None));
    assert_eq!(engine.store.scan("", None, 10).await.unwrap(), []);
}
