//! Chores: `cargo xtask test`, `cargo xtask bench`.

#![allow(clippy::disallowed_methods)] // a chore is no room of the product: it starts processes and reads clocks

mod bench;
mod dist;
mod fuzz;
mod postgres;
mod servers;
mod stats;
mod stores;
mod test;
mod tools;
mod torture;
mod validators;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask test [FILTER…]      install what the tests need, run every test, name every skip
cargo xtask test --store NAME|all [--short]
                                the whole end-to-end suite on one store: postgres, redis, etcd, nats, dir, s3, az
cargo xtask servers             install the servers that the stores are tested against, and say what there is
cargo xtask bench [NAME…|all] [--rounds N] [--entries N] [--items N] [--plain] [--json FILE] [--plots DIR]
                                ratios against a floor or a peer, interleaved in one go, and one table of them at the
                                end: run, memory, ledger, sqlite, cost, steps, flows, batch, batch-share, batch-resume, growth, leases,
                                stores [all]. `cost --keep`: what tests hold later counts against. --rounds: another number than each usually has; --plain: of a plain
                                release build, without waiting for `dist`; --json: keep the figures, those of other
                                benches stay; --plots: a plot per bench [docs/bench, with --json]
cargo xtask fixture             keep a ledger of this version in fixtures/, which every later one must read
cargo xtask dist                the binary as it is released: on Linux, linked statically
cargo xtask torture [--store NAME,…|URL|all] [--rounds N] [--seconds N] [--seed S [--round K]] [--only KIND,…]
                    [--lanes N] [--release | --semel PATH] [--json FILE] [--results PAGE]
                                kills, stops, cut connections, killed servers, set clocks, full disks, by a seed: Semel
                                and the usual ways without it, with effects counted outside [1000 rounds on sqlite].
                                Stores: sqlite, dir, postgres, redis, etcd, nats, s3, gs, az. Kinds: probe, hold, steps,
                                batch, write, push, sql; controls: flock, jsonl, set-nx, git-loop, plain-write, plain-sql
cargo xtask torture model|replay|sinks|linear|year|boundary|races… [--rounds N] [--seed S] [--debug] [--json FILE]
                    [--results PAGE]
                                what takes minutes or hours: the model check with wider bounds; zombies at every
                                sink, 10,000 at each place, and 2,000 races per transport of git; 100,000 calls on
                                each store under faults, and whether their answers fit one order; 200 simulated
                                years of two unreliable schedulers; runs killed at every system call, and the power
                                cut at every write; a hundred processes racing for one claim, 100 rounds on each
                                store, and 200 that wait for one resource. --rounds: of all but model and boundary;
                                --seed: of sinks, linear, replay and year; --debug: of a debug build; --json,
                                --results: keep what they counted
cargo xtask torture fuzz [TARGET…] [--seconds N] [--seed S] [--keep] [--json FILE] [--results PAGE]
                                libFuzzer on every reader of bytes from outside; --keep: what it found new goes into
                                the corpus
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.first().map(String::as_str) {
        Some("test") => test::run(&words[1..]),
        Some("servers") => servers::run(),
        Some("dist") => dist::build().map(|path| println!("{}", path.display())),
        Some("torture") if words.get(1).is_some_and(|word| word == "fuzz") => fuzz::run(&words[2..]),
        Some("torture") if words.iter().any(|word| torture::kinds::is_kind(word)) => {
            torture::kinds::run(&words[1..])
        }
        Some("torture") => torture::run(&words[1..]),
        Some("fixture") => test::keep_ledger(),
        Some("bench") => bench::run(&words[1..]),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
