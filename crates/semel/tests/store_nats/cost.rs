//! Round trips, counted by the proxy, and how soon a waiter wakes.

use std::time::{Duration, Instant};

use semel::core::record::Expect;
use semel::store::{Change, Durability};
use semel::{Job, Outcome, Semel};
use semel_testkit::{NatsVersion, Proxy, nats};

use crate::{MINUTE, handle, key, put, write};

const DEADLINE: Duration = Duration::from_secs(10);

/// How many round trips a call takes: the least of a few tries, since a pause of the machine splits what is sent as one.
macro_rules! least {
    ($proxy:expr, $tries:expr, |$i:ident| $call:expr) => {{
        let mut least = u64::MAX;
        for $i in 0..$tries {
            let before = $proxy.round_trips();
            $call;
            least = least.min($proxy.round_trips() - before);
        }
        least
    }};
}

#[tokio::test]
async fn each_verb_is_one_round_trip() {
    for version in [NatsVersion::Recent, NatsVersion::Debian] {
        let server = nats(version, "");
        let proxy = Proxy::before(server.address(0));
        let store = handle(proxy.port(), DEADLINE);
        let lease = write(&*store, put("lease/a", Expect::Absent, "held", MINUTE)).await.unwrap();
        let load =
            least!(proxy, 5, |_i| store.load(&[key("lease/a"), key("entry/a"), key("c")]).await.unwrap());
        let swap = least!(proxy, 5, |i| {
            let names = [format!("lease/{i}"), format!("entry/{i}")];
            let changes = names.map(|name| put(&name, Expect::Absent, "x", MINUTE));
            store.swap(&changes, Durability::Durable).await.unwrap()
        });
        let touch = least!(proxy, 5, |_i| store.touch(&key("lease/a"), &lease).await.unwrap());
        // a guard is a look of its own
        let guarded = least!(proxy, 5, |i| {
            let guard = Change::Guard { key: key("lease/a"), expect: Expect::Live(lease.clone()) };
            let changes = [guard, put(&format!("step/{i}"), Expect::Absent, "x", None)];
            store.swap(&changes, Durability::Durable).await.unwrap()
        });
        println!("{version:?}: round trips: load {load}, swap {swap}, touch {touch}, guarded swap {guarded}");
        assert_eq!((load, swap, touch, guarded), (1, 1, 1, 2));
        assert_eq!(proxy.connections(), 1);
    }
}

#[tokio::test]
async fn a_run_is_two_round_trips_before_and_one_after_and_a_skip_waits_once() {
    let server = nats(NatsVersion::Recent, "");
    let proxy = Proxy::before(server.address(0));
    let store = handle(proxy.port(), DEADLINE);
    store.load(&[key("warm")]).await.unwrap();
    let semel = Semel::on(store);
    let (mut before, mut after) = (u64::MAX, u64::MAX);
    for round in 0..5 {
        let job = Job::named("job").slot(&format!("s{round}")).build().unwrap();
        let begun = proxy.round_trips();
        let inside = std::cell::Cell::new(0);
        let outcome = semel
            .run(&job, async |_| {
                inside.set(proxy.round_trips());
                Ok::<_, std::io::Error>(())
            })
            .await;
        assert!(outcome.is_done(), "{outcome:?}");
        before = before.min(inside.get() - begun);
        after = after.min(proxy.round_trips() - inside.get());
    }
    println!("round trips: before {before}, after {after}");
    assert_eq!((before, after), (2, 1));
    // a skip waits for its look; its note is sent, and not waited for (below)
    let again = Job::named("job").slot("s0").build().unwrap();
    let direct = handle(server.port(0), DEADLINE);
    for round in 1..=5 {
        let begun = proxy.round_trips();
        let skipped = semel.run(&again, async |_| -> Result<(), std::io::Error> { panic!() }).await;
        assert!(matches!(skipped, Outcome::AlreadyDone(_)), "{skipped:?}");
        until_noted(&*direct, round).await;
        let turns = proxy.round_trips() - begun;
        assert!(turns <= 2, "a look and a note: {turns}");
    }
}

async fn until_noted(store: &dyn semel::store::Store, many: usize) {
    let begun = Instant::now();
    while store.scan("journal/", None, 1000).await.unwrap().len() != many {
        assert!(begun.elapsed() < DEADLINE, "it is not noted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_is_posted_is_not_waited_for_and_made_although_its_handle_is_gone() {
    for version in [NatsVersion::Recent, NatsVersion::Debian] {
        let server = nats(version, "");
        let direct = handle(server.port(0), DEADLINE);
        for i in 1..=30 {
            let proxy = Proxy::before(server.address(0));
            let store = handle(proxy.port(), DEADLINE);
            store.load(&[key("a")]).await.unwrap();
            // from here on nothing is heard
            proxy.answer(0);
            store.post(&[put(&format!("journal/{i}"), Expect::Absent, "x", None)]).await.unwrap();
            drop(store);
            until_noted(&*direct, i).await;
        }
    }
}

#[tokio::test]
async fn a_waiter_wakes_soon_after_a_write_of_another_handle() {
    for server_version in [NatsVersion::Recent, NatsVersion::Debian] {
        let server = nats(server_version, "");
        let (waiter, writer) = (handle(server.port(0), DEADLINE), handle(server.port(0), DEADLINE));
        let mut version = write(&*writer, put("lease/a", Expect::Absent, "0", MINUTE)).await.unwrap();
        let mut took = Vec::new();
        for round in 0..41 {
            let wait = async {
                let changed = waiter.changed(&key("lease/a"), Some(&version), DEADLINE).await.unwrap();
                (changed, Instant::now())
            };
            let release = async {
                tokio::time::sleep(Duration::from_millis(15)).await;
                // a touch wakes nobody
                writer.touch(&key("lease/a"), &version).await.unwrap();
                let change = put("lease/a", Expect::Version(version.clone()), &round.to_string(), MINUTE);
                (write(&*writer, change).await.unwrap(), Instant::now())
            };
            let ((changed, awake), (next, written)) = tokio::join!(wait, release);
            assert!(changed);
            took.push(awake.saturating_duration_since(written));
            version = next;
        }
        took.sort();
        println!("{server_version:?}: hand-over p50 {:?}, longest {:?}", took[20], took[40]);
        // one that looked would be woken by its next look, most of a second later
        assert!(took[20] < Duration::from_millis(300), "{:?}", took[20]);
    }
}
