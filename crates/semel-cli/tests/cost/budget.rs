//! `fixtures/cost.json`: what was counted when it was last kept, and by how much it may grow.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    Calls,
    Instructions,
    PeakKib,
}

impl Figure {
    /// As it is called in the file.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Figure::Calls => "system_calls",
            Figure::Instructions => "instructions",
            Figure::PeakKib => "peak_kib",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Figure::Calls => "system calls",
            Figure::Instructions => "instructions",
            Figure::PeakKib => "KiB at most",
        }
    }

    /// The most that it may be where so many were kept. How often the two sides of a step, or of an item, find each
    /// other waiting is a matter of time.
    fn most(self, operation: &str, kept: u64) -> u64 {
        match (self, operation) {
            (Figure::Calls, "step" | "item") => kept + kept / 10 + 2,
            (Figure::Calls, _) => kept + kept / 20 + 2,
            (Figure::Instructions, "item") => kept + kept / 4,
            (Figure::Instructions, _) => kept + kept / 10,
            (Figure::PeakKib, _) => kept + kept / 4,
        }
    }
}

/// By operation and figure.
pub(crate) type Kept = BTreeMap<String, BTreeMap<String, u64>>;

pub(crate) fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/cost.json")
}

pub(crate) fn read() -> Kept {
    let text = std::fs::read_to_string(file()).unwrap_or_else(|why| panic!("{}: {why}", file().display()));
    serde_json::from_str(&text).unwrap()
}

/// Count until it fits, but not for ever: what a machine adds to a count comes and goes, what a change adds stays. Fails
/// with what grew, from what to what.
#[track_caller]
pub(crate) fn hold(kept: &Kept, operation: &str, figure: Figure, count: impl Fn() -> u64) {
    let was = kept.get(operation).and_then(|figures| figures.get(figure.key()));
    let was = *was.unwrap_or_else(|| panic!("{operation} has no {}: {KEEP}", figure.key()));
    let most = figure.most(operation, was);
    let mut least = u64::MAX;
    for _ in 0..TRIES {
        least = least.min(count());
        if least <= most {
            println!("{operation}: {least} {} (kept {was}, at most {most})", figure.words());
            return;
        }
    }
    panic!("{}", grown(operation, figure, was, least));
}

/// One line.
fn grown(operation: &str, figure: Figure, was: u64, is: u64) -> String {
    let (what, most) = (figure.words(), figure.most(operation, was));
    format!("{operation}: {what} grew from {was} to {is}, more than {most}: mend it, or {KEEP}")
}

const TRIES: u32 = 3;
const KEEP: &str = "keep it on purpose with cargo xtask bench cost --keep";
