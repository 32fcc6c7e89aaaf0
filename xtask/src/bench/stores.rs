//! `cargo xtask bench stores`: each store beside its own driver used by hand, beside what a user would pick instead, and
//! how fast a lease goes from hand to hand.
//!
//! Every server is private and durable as the tests have it. `--rounds` is the number of processes that are started and
//! of hand-overs; the rounds of the programs under `crates/semel/examples` are their own.

use std::process::Command;

use semel_testkit::{Etcd, PgServer, Redis};

use super::peers::{script, venv};
use super::report::{FAST, Goal, Report};
use super::{Options, Stage, dbos, line, lines, rate, turns_after};
use crate::stats::{Ratio, median};
use crate::stores::start;

/// What PyPI has for Redis: locks, and works that are done once.
const REDIS_PEERS: [&str; 5] =
    ["python-redis-lock", "pottery", "aws-lambda-powertools[redis]", "boto3", "aws-xray-sdk"];

/// The stores whose driver is measured beside the bare statement.
const DRIVERS: [&str; 6] = ["postgres", "redis", "etcd", "nats", "dir", "objects"];

/// Of the bare statement's rate.
const OF_BARE: f64 = 0.85;
/// Times ahead of a peer, and of DBOS on the same PostgreSQL.
const AHEAD: f64 = 5.0;
const AHEAD_OF_DBOS: f64 = 10.0;
/// Processes that are started, hand-overs, and rounds of steps: all of it in six minutes.
const ROUNDS: usize = 100;
const STEP_ROUNDS: usize = 5;
/// Steps on PostgreSQL in a round: one after the other, and of 32 tasks.
const STEPS: &str = "400";
const STEPS_OF_MANY: &str = "3200";

/// The most that half of the hand-overs may take, in milliseconds, where that is promised.
const HANDOVERS: [(&str, Option<f64>); 6] = [
    ("postgres", Some(5.0)),
    ("redis", Some(5.0)),
    ("etcd", Some(5.0)),
    ("nats", Some(5.0)),
    ("sqlite", Some(20.0)),
    ("dir", None),
];

impl Stage {
    /// All of it; a store that cannot be measured is named, and the others are.
    pub(super) fn stores(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let parts: [(&str, Result<(), String>); 5] = [
            ("drivers", self.drivers(report)),
            ("peers on Redis", self.beside_redis(options, report)),
            ("etcdctl", self.beside_etcdctl(options, report)),
            ("DBOS on PostgreSQL", self.beside_dbos_on_postgres(options, report)),
            ("hand-overs", self.handovers(options, report)),
        ];
        let faults = parts.into_iter().filter_map(|(name, done)| Some(format!("{name}: {}", done.err()?)));
        all_well(faults)
    }

    fn store_bench(&self, name: &str) -> Result<Command, String> {
        let mut example = Command::new(self.example(&format!("bench_store_{name}"))?);
        example.env("SEMEL_SERVERS", crate::servers::folder());
        Ok(example)
    }

    /// Claim + settle, ours beside the same statements by hand.
    fn drivers(&self, report: &mut Report) -> Result<(), String> {
        each(DRIVERS, |store| {
            println!("{store}: claim + settle beside the bare statements");
            let told = lines(&mut self.store_bench(store)?)?;
            report.told(&told, FAST, &format!("{store}, by hand"), |_| Goal::AtLeast(OF_BARE));
            Ok(())
        })
    }

    /// Inside one process, then as processes that cron starts.
    fn beside_redis(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let python = match venv("redis", &REDIS_PEERS) {
            Ok(python) => python,
            Err(why) => {
                report.missing(&REDIS_PEERS.join(", "), &why);
                return Ok(());
            }
        };
        println!("redis: claims a second inside one process, beside what PyPI has");
        let mut peers = self.store_bench("redis")?;
        peers.arg("peers").arg(&python).arg(script("redis_peers.py"));
        report.told(&lines(&mut peers)?, FAST, "", |_| Goal::AtLeast(AHEAD));

        let server = Redis::start();
        let port = server.address().port().to_string();
        let run = |n: usize| {
            let mut run = self.away(&server.url());
            run.args(["run", "--job", "bench", "--with", &format!("n={n}"), "--", "/bin/true"]);
            run
        };
        let lease = |_| {
            let mut lease = self.away(&server.url());
            lease.args(["lease", "hold", "bench", "--", "/bin/true"]);
            lease
        };
        let peer = |name: &'static str| {
            let (python, script, port) = (&python, script("redis_once.py"), &port);
            move |n: usize| {
                let mut peer = Command::new(python);
                peer.arg(&script).args([name, port.as_str(), &format!("{name}-{n}"), "/bin/true"]);
                peer
            }
        };
        let (mut run, mut lease) = (run, lease);
        let names = ["python-redis-lock", "pottery", "powertools"];
        let [mut first, mut second, mut third] = names.map(peer);
        let rounds = (options.rounds(ROUNDS) / 4).max(1);
        let times = turns_after(2, rounds, &mut [&mut run, &mut lease, &mut first, &mut second, &mut third])?;
        println!("redis: a job of `true` as a process, {rounds} rounds");
        line("semel run --store redis://", &times[0]);
        line("semel lease hold --store redis://", &times[1]);
        for (peer, theirs) in names.iter().zip(&times[2..]) {
            line(&format!("python3 with {peer}"), theirs);
        }
        for (peer, theirs) in names.iter().zip(&times[2..]) {
            // a lock beside a lease, a work that is done once beside a run
            let (name, ours) =
                if *peer == "powertools" { ("run", &times[0]) } else { ("lease hold", &times[1]) };
            let what = format!("semel {name} -- true, as a process on Redis");
            let ratio = Ratio::new(theirs, ours);
            report.fast(&what, &format!("python3 with {peer}"), &ratio, Goal::AtLeast(AHEAD));
        }
        Ok(())
    }

    /// From the start of the process to its end, with a command that does nothing.
    fn beside_etcdctl(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let rounds = options.rounds(ROUNDS);
        let server = Etcd::start();
        let endpoint = server.address().to_string();
        let mut ours = |n: usize| {
            let mut lease = self.away(&server.url("bench"));
            lease.args(["lease", "hold", &format!("lock-{n}"), "--", "/bin/true"]);
            lease
        };
        let mut theirs = |n: usize| {
            let mut lock = Command::new("etcdctl");
            lock.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint, "lock", &format!("lock-{n}")]);
            lock.arg("/bin/true");
            lock
        };
        // the bare program, which asks for the lock and nothing else: what it costs to be etcdctl
        let mut bare = |_| {
            let mut version = Command::new("etcdctl");
            version.env("ETCDCTL_API", "3").arg("version");
            version
        };
        let times = turns_after(3, rounds, &mut [&mut ours, &mut theirs, &mut bare])?;
        println!("etcd: a lock around `true` as a process, {rounds} rounds");
        line("semel lease hold --store etcd://", &times[0]);
        line("etcdctl lock", &times[1]);
        line("etcdctl version, which asks no server", &times[2]);
        let ratio = Ratio::new(&times[1], &times[0]);
        report.fast("semel lease hold -- true on etcd", "etcdctl lock", &ratio, Goal::AtLeast(AHEAD));
        Ok(())
    }

    /// Durable steps, both on one server.
    fn beside_dbos_on_postgres(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let python = match dbos::python() {
            Ok(python) => python,
            Err(why) => {
                report.missing(dbos::WANTED, &why);
                return Ok(());
            }
        };
        let server = PgServer::start();
        server.psql("CREATE DATABASE dbos");
        let url = server.url();
        let theirs_at = database(&url, "dbos");
        let rounds = options.rounds(STEP_ROUNDS);
        let (mut one, mut many) = (Vec::new(), Vec::new());
        let mut theirs = dbos::AT_ONCE.map(|_| Vec::new());
        for _ in 0..rounds {
            one.push(rate(self.store_bench("steps")?.args([&url, STEPS]))?);
            many.push(rate(self.store_bench("steps")?.args([&url, STEPS_OF_MANY, "32"]))?);
            for (at_once, rates) in dbos::AT_ONCE.iter().zip(&mut theirs) {
                rates.push(rate(dbos::steps(&python, &theirs_at).args([STEPS, at_once]))?);
            }
        }
        println!("postgres: durable steps, {rounds} rounds");
        let shown = |name: &str, rates: &[f64]| println!("  {name:<52} {:>9.0} steps/s", median(rates));
        shown("Semel, a commit before and one after each", &one);
        shown("the same, 32 tasks", &many);
        for (at_once, rates) in dbos::AT_ONCE.iter().zip(&theirs) {
            shown(&format!("{}, {at_once} at once, a commit after each", dbos::WANTED), rates);
        }
        let (what, against) =
            ("a durable step, one after the other", "DBOS on PostgreSQL, one after the other");
        report.fast(what, against, &Ratio::new(&one, &theirs[0]), Goal::AtLeast(AHEAD_OF_DBOS));
        let (what, against) =
            ("a durable step, 32 tasks", "DBOS on PostgreSQL, the better of 1 and 4 at once");
        let ratio = Ratio::new(&many, dbos::better(&theirs));
        report.fast(what, against, &ratio, Goal::AtLeast(AHEAD_OF_DBOS));
        Ok(())
    }

    /// A released lease to a waiter of another connection.
    fn handovers(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let times = options.rounds(ROUNDS).max(50);
        println!("hand-over of a released lease to a waiter, {times} times");
        each(HANDOVERS, |(store, most)| {
            let server = match store {
                "sqlite" => None,
                other => Some(start(other)?),
            };
            let url = match &server {
                Some(server) => server.address.replace("{}", "bench"),
                None => format!("sqlite:{}", self.path("handover.db")),
            };
            let told = lines(self.store_bench("handover")?.args([&url, &times.to_string()]))?;
            let taken: Vec<f64> = told.iter().filter_map(|line| line.trim().parse().ok()).collect();
            let goal = most.map_or(Goal::None, Goal::AtMost);
            report.measured(&format!("hand-over to a waiter on {store}"), "ms", &taken, goal);
            Ok(())
        })
    }

    /// The released binary on this store.
    fn away(&self, url: &str) -> Command {
        let mut semel = Command::new(&self.released);
        semel.env("SEMEL_STORE", url).env("XDG_STATE_HOME", self.dir.join("state"));
        semel
    }
}

/// Every one of them, also after one that could not be measured.
fn each<T: Copy + std::fmt::Debug>(
    all: impl IntoIterator<Item = T>,
    mut measure: impl FnMut(T) -> Result<(), String>,
) -> Result<(), String> {
    all_well(all.into_iter().filter_map(|one| Some(format!("{one:?}: {}", measure(one).err()?))))
}

fn all_well(faults: impl Iterator<Item = String>) -> Result<(), String> {
    let faults: Vec<String> = faults.collect();
    if faults.is_empty() { Ok(()) } else { Err(faults.join("\n")) }
}

/// The same address with another database.
fn database(url: &str, name: &str) -> String {
    let (place, options) = url.split_once('?').map_or((url, None), |(place, options)| (place, Some(options)));
    let stem = place.rsplit_once('/').map_or(place, |(stem, _)| stem);
    options.map_or(format!("{stem}/{name}"), |options| format!("{stem}/{name}?{options}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_another_database_and_keeps_its_options() {
        assert_eq!(database("postgres://a@h:1/postgres", "dbos"), "postgres://a@h:1/dbos");
        assert_eq!(database("postgres://a@h:1/x?sslmode=disable", "d"), "postgres://a@h:1/d?sslmode=disable");
    }
}
