//! Bytes from outside, invented: what every reader of them is held to.
//!
//! A *target* is a function of bytes that panics where something is wrong. [`check`] gives it
//!
//! 1. every line of its corpus (`corpus/NAME.txt`): what was found once is met by every test run;
//! 2. so many mutations of those, from a seed: the short run, a part of every test run;
//! 3. instead of 2, where `cargo xtask torture fuzz` built it with coverage: whatever libFuzzer makes of them.
//!
//! | module | what it knows |
//! |---|---|
//! | [`corpus`] | inputs as lines of a text |
//! | [`heap`] | how much memory a thread holds at once |
//! | [`mutate`] | other bytes from these |
//! | `guided` | libFuzzer, where it is linked |
//!
//! Each input is held to three limits besides what the target itself asserts: no panic; at once no more memory than
//! [`MEMORY_TIMES`] its length and [`MEMORY_PLUS`]; no more time of the processor than [`TIME_LIMIT`].
//!
//! Not seen: memory of other threads, and a loop without an end (the test runner ends that one).

#![allow(clippy::disallowed_methods)] // a harness is no room of the product: it reads its own settings
#![allow(clippy::panic, clippy::print_stderr)] // and a finding is a panic

pub mod corpus;
#[cfg(semel_guided)]
mod guided;
pub mod heap;
pub mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use mutate::Mutator;

/// An input may take so many times its own length.
pub const MEMORY_TIMES: usize = 64;
/// And so much more.
pub const MEMORY_PLUS: usize = 1 << 20;
/// The processor's time for one input. Builds for tests are slow, and slower with coverage.
pub const TIME_LIMIT: Duration = Duration::from_millis(if cfg!(semel_guided) { 1_000 } else { 100 });

/// Mutations of the short run.
const ROUNDS: u64 = 3_000;
/// The processor's time for all of them.
const SHORT: Duration = Duration::from_millis(1_200);
/// The seed of the short run: the same everywhere, so that a finding is met again.
const SEED: u64 = 7;
/// The longest input.
const LONGEST: usize = 8 * 1024;

/// Bytes that read well for a target, and what they are made of.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its corpus has this name.
    pub name: &'static str,
    /// What to begin with besides the corpus.
    pub seeds: &'static [&'static str],
    /// Words that are worth putting in.
    pub words: &'static [&'static str],
    /// How many times its length an input may take in memory.
    pub memory_times: usize,
    /// And how much more.
    pub memory_plus: usize,
}

impl Target {
    /// A target with this corpus.
    pub const fn new(
        name: &'static str,
        seeds: &'static [&'static str],
        words: &'static [&'static str],
    ) -> Target {
        Target { name, seeds, words, memory_times: MEMORY_TIMES, memory_plus: MEMORY_PLUS }
    }
}

/// Give the target its corpus, and then what the short run or libFuzzer makes of it.
pub fn check(target: &Target, test: impl Fn(&[u8]) + 'static) {
    check_with(target, Vec::new(), test);
}

/// The same, with more to begin with than stands in the code.
pub fn check_with(target: &Target, more: Vec<Vec<u8>>, test: impl Fn(&[u8]) + 'static) {
    if let Some(path) = std::env::var_os("SEMEL_FUZZ_INPUT") {
        let bytes = std::fs::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        return held(target, &test, &bytes);
    }
    let mut corpus: Vec<Vec<u8>> = target.seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    corpus.extend(more);
    corpus.extend(corpus::of(target.name));
    corpus.push(Vec::new());
    for bytes in &corpus {
        tell_on_panic(target, bytes, "the corpus", || held(target, &test, bytes));
    }
    #[cfg(semel_guided)]
    if let Some(words) = std::env::var_os("SEMEL_FUZZ_GUIDED") {
        guided::run(*target, test, &corpus, &words);
        return;
    }
    let seed = number("SEMEL_FUZZ_SEED").unwrap_or(SEED);
    let rounds = number("SEMEL_FUZZ_ROUNDS");
    let begun = heap::processor_time();
    let mut mutator = Mutator::new(seed, corpus, target.words, LONGEST);
    for round in 0..rounds.unwrap_or(ROUNDS) {
        if rounds.is_none() && heap::processor_time() - begun > SHORT {
            break;
        }
        let bytes = mutator.next_input();
        let from = format!("seed {seed}, round {round}");
        tell_on_panic(target, &bytes, &from, || held(target, &test, &bytes));
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// One input, within its limits.
pub(crate) fn held(target: &Target, test: &dyn Fn(&[u8]), bytes: &[u8]) {
    let most = target.memory_times * bytes.len() + target.memory_plus;
    let begun = heap::processor_time();
    let peak = heap::peak_of(|| test(bytes));
    let took = heap::processor_time() - begun;
    assert!(
        peak <= most,
        "{}: {} bytes of input took {peak} bytes of memory at once, more than {most}",
        target.name,
        bytes.len()
    );
    assert!(
        took <= TIME_LIMIT,
        "{}: {} bytes of input took {took:?}, more than {TIME_LIMIT:?}",
        target.name,
        bytes.len()
    );
}

fn tell_on_panic(target: &Target, bytes: &[u8], from: &str, run: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return };
    let path = std::env::temp_dir().join(format!("semel-fuzz-{}-{}", target.name, std::process::id()));
    let kept = std::fs::write(&path, bytes).is_ok();
    eprintln!("target {}, {from}: {:?}", target.name, String::from_utf8_lossy(bytes));
    if kept {
        eprintln!(
            "again with SEMEL_FUZZ_INPUT={}; once mended, this line belongs into {}:",
            path.display(),
            corpus::path(target.name).display()
        );
        eprintln!("{}", corpus::line(bytes));
    }
    resume_unwind(panic);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target = Target::new("none", &[], &[]);

    #[test]
    #[should_panic(expected = "bytes of memory at once")]
    fn who_takes_too_much_memory_is_found() {
        held(&TARGET, &|_| drop(std::hint::black_box(vec![1_u8; 2 << 20])), b"x");
    }

    #[test]
    #[should_panic(expected = "more than")]
    fn who_takes_too_long_is_found() {
        let begun = heap::processor_time();
        held(&TARGET, &|_| while heap::processor_time() - begun < TIME_LIMIT * 2 {}, b"x");
    }

    #[test]
    fn who_keeps_the_limits_passes() {
        held(&TARGET, &|bytes| drop(std::hint::black_box(bytes.to_vec())), b"x");
    }
}
