//! What one operation of the built binary costs, in things that do not wobble as times do: durable commits, system
//! calls, instructions, memory, page faults.
//!
//! | module | what it counts | by |
//! |---|---|---|
//! | `calls` | system calls, and those among them that wait for the disk | strace |
//! | `instructions` | instructions | callgrind |
//! | `process` | memory, page faults, wake-ups | the kernel's own counters |
//! | `home` | nothing: the folder in which all of it happens | |
//!
//! Counted is Semel's own code: the process, what it forks up to the exec, and `semel` inside a run. What is a part of
//! something larger (a step, an item, a renewal) is the difference between more and fewer of them.
//!
//! What is not counted: what the kernel does for a call, and what a command costs that is no Semel.

mod calls;
mod home;
mod instructions;
mod process;

use std::path::{Path, PathBuf};

use home::Home;
pub use process::{AtEnd, Supervised};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `semel run -- true`, on a ledger that is there.
    Run,
    /// The same once more.
    Skip,
    /// One more `semel step -- true` in a run, on both sides of its socket.
    Step,
    /// One more item of `semel batch -j 1 -- true`.
    Item,
    /// One heartbeat of a run.
    Renewal,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 5] =
        [Operation::Run, Operation::Skip, Operation::Step, Operation::Item, Operation::Renewal];

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Run => "run",
            Operation::Skip => "skip",
            Operation::Step => "step",
            Operation::Item => "item",
            Operation::Renewal => "renewal",
        }
    }

    /// Fewer of them and more; none: it is a process of its own.
    fn fewer_and_more(self) -> Option<(u32, u32)> {
        match self {
            Operation::Run | Operation::Skip => None,
            Operation::Step => Some((1, 3)),
            // few enough for the log not to be copied back: when that happens is a matter of time
            Operation::Item => Some((5, 10)),
            Operation::Renewal => Some((0, 1)),
        }
    }
}

/// System calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calls {
    /// Those that wait for the disk.
    pub commits: f64,
    /// All.
    pub all: f64,
}

/// Counts what a binary costs.
#[derive(Debug)]
pub struct Costs {
    semel: PathBuf,
}

impl Costs {
    /// Of this binary.
    pub fn of(semel: &Path) -> Costs {
        Costs { semel: semel.to_owned() }
    }

    /// Its system calls.
    pub fn calls(&self, operation: Operation) -> Calls {
        let [commits, all] = self.counted(operation, calls::count);
        Calls { commits, all }
    }

    /// Its instructions; none: there is no valgrind here.
    pub fn instructions(&self, operation: Operation) -> Option<f64> {
        let valgrind = crate::program("valgrind")?;
        let [count] = self.counted(operation, |home, words| [instructions::count(&valgrind, home, words)]);
        Some(count)
    }

    /// What the process had used when it ended; none: it is no process of its own.
    pub fn at_end(&self, operation: Operation) -> Option<AtEnd> {
        if operation.fewer_and_more().is_some() {
            return None;
        }
        let home = Home::new(&self.semel);
        let words = home.words(operation, 1);
        Some(process::at_end(&home, &words))
    }

    /// A run that supervises a quiet command, with this ttl.
    pub fn supervise(&self, ttl: &str) -> Supervised {
        Supervised::start(Home::new(&self.semel), ttl)
    }

    fn counted<const N: usize>(
        &self,
        operation: Operation,
        count: impl Fn(&Home, &[String]) -> [u64; N],
    ) -> [f64; N] {
        let counted = |many| {
            let home = Home::new(&self.semel);
            let words = home.words(operation, many);
            let frames = home.frames();
            let counts = count(&home, &words);
            // to numbers that can be subtracted and divided
            (counts.map(|count| count as f64), (home.frames() - frames) as f64)
        };
        let Some((few, many)) = operation.fewer_and_more() else {
            return counted(1).0;
        };
        let ((less, less_frames), (more, more_frames)) = (counted(few), counted(many));
        let times = match operation {
            // how often it renews is a matter of time; each writes one page
            Operation::Renewal => more_frames - less_frames,
            _ => f64::from(many - few),
        };
        assert!(times >= 1.0, "{operation:?} did not happen");
        std::array::from_fn(|at| (more[at] - less[at]) / times)
    }
}
