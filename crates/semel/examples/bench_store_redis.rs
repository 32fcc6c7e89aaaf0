//! What the Redis store costs beside a bare script with the same bytes:
//! `cargo run --release -p semel --features redis --example bench_store_redis`.
//!
//! A private server, synced at every write. Ours and bare take turns, so that both meet the same machine. The bare side
//! is what somebody would write by hand: the same two scripts' worth of work (compare two versions, set two strings,
//! keep an index) by their hash on the same kind of connection, without clocks, hints or typed answers.
//!
//! With `-- peers PYTHON SCRIPT` (see `xtask/bench/redis_peers.py`): whole runs and leases beside what else there is.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use semel::core::record::{Expect, RecordKey, Version};
use semel::store::redis::Redis as Ledger;
use semel::store::{Change, Durability, Settings, Store};
use semel::{Held, Job, Outcome, Semel};
use semel_testkit::{Ratio, Redis, median};

const ROUNDS: usize = 6;
/// Claims and settlements of a round, over all tasks.
const PAIRS: usize = 800;
const VALUE: usize = 400;

/// Compare, then set: a lease that stands and an entry that does not, or both standing.
const BARE: &str = "
if redis.call('GETRANGE', KEYS[2], 0, 31) ~= ARGV[1] or redis.call('GETRANGE', KEYS[3], 0, 31) ~= ARGV[3] then
  return 0
end
if ARGV[3] == '' then redis.call('ZADD', KEYS[1], 0, KEYS[3]) end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('SET', KEYS[3], ARGV[4])
return 1";

fn put(key: &RecordKey, expect: Expect, value: &[u8], ttl: Option<Duration>) -> Change {
    Change::Put { key: key.clone(), expect, value: value.to_vec(), ttl }
}

/// One task of ours: claim and settle, one after the other.
async fn ours(store: Arc<Ledger>, name: String, pairs: usize) {
    let value = vec![b'x'; VALUE];
    let (lease, ttl) = (RecordKey::from_stored(format!("lease/{name}")), Some(Duration::from_secs(60)));
    let mut stands = Expect::Absent;
    for i in 0..pairs {
        let entry = RecordKey::from_stored(format!("entry/{name}/{i}"));
        let claim = [put(&lease, stands, &value, ttl), put(&entry, Expect::Absent, &value, None)];
        let made = store.swap(&claim, Durability::Durable).await.unwrap();
        let settle = [
            put(&entry, Expect::Version(made[1].clone()), &value, None),
            put(&lease, Expect::Live(made[0].clone()), &value, None),
        ];
        let made: Vec<Version> = store.swap(&settle, Durability::Durable).await.unwrap();
        stands = Expect::Version(made[1].clone());
    }
}

/// The same by hand.
async fn bare(mut connection: MultiplexedConnection, hash: Arc<str>, name: String, pairs: usize) {
    let value = vec![b'x'; VALUE];
    let stamped = |version: &str| [version.as_bytes(), &[b'0'; 32], &value].concat();
    let mut stands = String::new();
    let (index, lease) = ("{bare}:i", format!("{{bare}}:r:lease/{name}"));
    for i in 0..pairs {
        let entry = format!("{{bare}}:r:entry/{name}/{i}");
        let (first, second) = (format!("{:032x}", 2 * i), format!("{:032x}", 2 * i + 1));
        for (old_lease, old_entry, new) in [(stands.as_str(), "", &first), (&first, &first, &second)] {
            let mut call = redis::cmd("EVALSHA");
            call.arg(&*hash).arg(3).arg(index).arg(&lease).arg(&entry);
            call.arg(old_lease).arg(stamped(new)).arg(old_entry).arg(stamped(new));
            assert_eq!(call.query_async::<i64>(&mut connection).await.unwrap(), 1);
        }
        stands = second;
    }
}

async fn timed(tasks: Vec<tokio::task::JoinHandle<()>>) -> Duration {
    let begun = Instant::now();
    for task in tasks {
        task.await.unwrap();
    }
    begun.elapsed()
}

/// Whole runs and leases of the library, so many in each of the tasks: a look, a claim, a settlement.
async fn semel(store: Arc<Ledger>, round: usize, tasks: usize, each: usize) -> [(&'static str, f64); 2] {
    let semel = Semel::on(store);
    let runs = (0..tasks).map(|task| {
        let semel = semel.clone();
        tokio::spawn(async move {
            for n in 0..each {
                // a resource of its own: nobody waits for another
                let name = format!("bench-{tasks}-{round}-{task}");
                let job = Job::named(&name).slot(&n.to_string()).build().unwrap();
                let outcome = semel.run(&job, async |_| Ok::<_, std::io::Error>(n)).await;
                assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
            }
        })
    });
    let runs = timed(runs.collect()).await;
    let leases = (0..tasks).map(|task| {
        let semel = semel.clone();
        tokio::spawn(async move {
            for n in 0..each {
                let held = semel.lease(&format!("lease-{tasks}-{round}-{task}-{n}")).hold(async |_| ()).await;
                assert!(matches!(held, Held::Released(())), "{held:?}");
            }
        })
    });
    let leases = timed(leases.collect()).await;
    let per_second = |time: Duration| (tasks * each) as f64 / time.as_secs_f64();
    [("Semel::run", per_second(runs)), ("Semel::lease", per_second(leases))]
}

/// In turns on one server.
async fn peers(server: &Redis, store: Arc<Ledger>, tasks: usize, python: &str, script: &str) {
    let each = 320 / tasks;
    let times = each * tasks;
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for round in 0..4 {
        let numbers = [usize::from(server.address().port()), times, tasks].map(|number| number.to_string());
        let said = std::process::Command::new(python).arg(script).args(numbers).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let theirs = text.lines().filter_map(|line| line.split_once('\t'));
        let theirs =
            theirs.map(|(name, seconds)| (name.to_owned(), times as f64 / seconds.parse::<f64>().unwrap()));
        let ours = semel(Arc::clone(&store), round, tasks, each).await;
        for (name, rate) in theirs.chain(ours.map(|(name, rate)| (name.to_owned(), rate))) {
            rates.entry(name).or_default().push(rate);
        }
    }
    for (peer, theirs) in rates.iter().filter(|(name, _)| !name.starts_with("Semel")) {
        // a lock beside a lease, a work that is done once beside a run
        let name = if peer.contains("powertools") { "Semel::run" } else { "Semel::lease" };
        let ours = &rates[name];
        println!(
            "{name}, {tasks} tasks / {peer}: ours {:.0}/s, theirs {:.0}/s, {}",
            median(ours),
            median(theirs),
            Ratio::new(ours, theirs)
        );
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let server = Redis::start();
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, python, script] = words.as_slice() {
        assert_eq!(mode, "peers");
        let store = Arc::new(Ledger::new(&server.url(), &Settings::default()).unwrap());
        for tasks in [1, 16] {
            peers(&server, Arc::clone(&store), tasks, python, script).await;
        }
        return;
    }
    let store = Arc::new(Ledger::new(&server.url(), &Settings::default()).unwrap());
    let client = redis::Client::open(format!("{}?protocol=resp3", server.url())).unwrap();
    // a disk that stalls for half a second ends no measurement
    let patient = AsyncConnectionConfig::new().set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await.unwrap();
    let hash: String = redis::cmd("SCRIPT").arg("LOAD").arg(BARE).query_async(&mut connection).await.unwrap();
    let hash: Arc<str> = hash.into();
    for tasks in [1, 16] {
        let each = PAIRS / tasks;
        let (mut ours_took, mut bare_took) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let name = |who: &str, task: usize| format!("{who}-{tasks}-{round}-{task}");
            let one = (0..tasks).map(|t| tokio::spawn(ours(Arc::clone(&store), name("o", t), each)));
            let spent = timed(one.collect()).await;
            let two = (0..tasks)
                .map(|t| tokio::spawn(bare(connection.clone(), Arc::clone(&hash), name("b", t), each)));
            let spent_bare = timed(two.collect()).await;
            // the first round warms up
            if round > 0 {
                ours_took.push(spent.as_secs_f64());
                bare_took.push(spent_bare.as_secs_f64());
            }
        }
        let rate = |took: &[f64]| (each * tasks) as f64 / median(took);
        println!(
            "claim + settle, {tasks} tasks: ours {:.0}/s, bare {:.0}/s, {}",
            rate(&ours_took),
            rate(&bare_took),
            Ratio::new(&bare_took, &ours_took)
        );
    }
}
