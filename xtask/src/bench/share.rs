//! `cargo xtask bench batch-share`: several runners of one batch on one ledger, on this machine's own store and on a server.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::Instant;

use semel_testkit::PgServer;

use super::report::{FAST, Goal, Point, Report};
use super::{Options, Stage};
use crate::stats::{Ratio, median, quantile};

const RUNNERS: [usize; 4] = [1, 2, 4, 8];
const ROUNDS: usize = 3;
const ITEMS: u64 = 800;
/// Of each runner.
const AT_ONCE: &str = "2";

/// The least of a fair share that a runner may be left with, among so many runners as there are cores or fewer.
const FAIR: f64 = 0.5;
const CORES: usize = 2;

impl Stage {
    /// In turns: so many runners of one batch, all started at once.
    pub(super) fn batch_shared(&self, options: &Options, report: &mut Report) -> Result<(), String> {
        let server = PgServer::start();
        let ledgers =
            [("SQLite", format!("sqlite:{}", self.path("batch-shared.db"))), ("PostgreSQL", server.url())];
        let items = self.lines("shared.txt", ITEMS)?;
        ledgers.iter().try_for_each(|(store, ledger)| self.shared_on(store, ledger, &items, options, report))
    }

    fn shared_on(
        &self,
        store: &str,
        ledger: &str,
        items: &str,
        options: &Options,
        report: &mut Report,
    ) -> Result<(), String> {
        let rounds = options.rounds(ROUNDS);
        let mut rates = RUNNERS.map(|_| Vec::new());
        let mut parts = RUNNERS.map(|_| Vec::new());
        for round in 0..rounds {
            for (at, runners) in RUNNERS.into_iter().enumerate() {
                let (took, done) = self.share(ledger, items, &format!("shared{round}-{runners}"), runners)?;
                rates[at].push(ITEMS as f64 / took);
                let fair = ITEMS as f64 / runners as f64;
                parts[at].extend(done.iter().map(|done| *done as f64 / fair));
            }
        }
        println!(
            "{ITEMS} items of `true` shared by runners of {AT_ONCE} at once on one ledger of {store}, {rounds} rounds"
        );
        for (at, runners) in RUNNERS.into_iter().enumerate() {
            println!(
                "  {:<52} {:>9.0} items/s together; of a fair share the least had {:.2}, the most {:.2}",
                format!("{runners} --share"),
                median(&rates[at]),
                quantile(&parts[at], 0.0),
                quantile(&parts[at], 1.0),
            );
        }
        let point = |(runners, rates_of): (usize, &Vec<f64>)| Point {
            at: runners as f64,
            ratio: Ratio::new(rates_of, &rates[0]),
        };
        let points: Vec<Point> = RUNNERS.into_iter().zip(&rates).map(point).collect();
        let what = format!("items of one batch on {store}, by runners");
        report.grows(&what, "one runner", FAST, &points, Goal::None);
        for (runners, parts) in RUNNERS.into_iter().zip(&parts).skip(1) {
            let goal = if runners <= CORES { Goal::AtLeast(FAIR) } else { Goal::None };
            let what = format!("the least that one of {runners} runners did on {store}");
            report.measured(&what, "of a fair share", &[quantile(parts, 0.0)], goal);
        }
        Ok(())
    }

    /// How long it took, and how many each runner did.
    fn share(&self, ledger: &str, items: &str, job: &str, runners: usize) -> Result<(f64, Vec<u64>), String> {
        let began = Instant::now();
        // into files: nobody reads a pipe of the second while the first is waited for
        let told = |n: usize| self.dir.join(format!("{job}-{n}.jsonl"));
        let start = |n: usize| {
            let mut runner = self.batch_on(ledger, items, job);
            runner.args(["--share", "--json", "-j", AT_ONCE, "--", "true", "{}"]);
            runner.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(told(n))?).spawn()
        };
        let started: Vec<_> = (0..runners).map(start).collect();
        let mut done = Vec::new();
        for (n, runner) in started.into_iter().enumerate() {
            let said = runner.and_then(|mut runner| runner.wait()).and_then(|_| fs::read_to_string(told(n)));
            let text = said.map_err(|why| why.to_string())?;
            let report = text.lines().find(|line| line.contains("\"kind\":\"batch\""));
            let found = report
                .and_then(|line| line.split_once("\"done\":")?.1.split([',', '}']).next()?.parse().ok());
            done.push(found.ok_or_else(|| format!("a runner said nothing of what it did: {text}"))?);
        }
        let took = began.elapsed().as_secs_f64();
        let all: u64 = done.iter().sum();
        if all == ITEMS {
            Ok((took, done))
        } else {
            Err(format!("{all} of {ITEMS} items were done: {done:?}"))
        }
    }
}
