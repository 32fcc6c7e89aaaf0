//! Chores: `cargo xtask test`, `cargo xtask bench`.

#![allow(clippy::disallowed_methods)] // a chore is no room of the product: it starts processes and reads clocks

mod bench;
mod dist;
mod postgres;
mod stats;
mod test;
mod tools;
mod validators;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask test [FILTER…]      install what the tests need, run every test, name every skip
cargo xtask bench [run|ledger|memory|sqlite|steps|batch|all] [--rounds N] [--entries N] [--items N] [--plain]
                                ratios against a floor or a peer, interleaved in one go; --plain: of a plain release
                                build, without waiting for `dist`
cargo xtask dist                the binary as it is released: on Linux, linked statically
cargo xtask torture [model] [sinks] [year] [--rounds N]
                                what takes minutes or hours: the model check with wider bounds; zombies at every
                                sink, 10,000 at each place, and 2,000 races per transport of git; 200 simulated
                                years of two unreliable schedulers
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.first().map(String::as_str) {
        Some("test") => test::run(&words[1..]),
        Some("dist") => dist::build().map(|path| println!("{}", path.display())),
        Some("torture") => test::torture(&words[1..]),
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
