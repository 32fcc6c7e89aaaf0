//! Runs one command and owns its whole process tree until nothing of it is left.
//!
//! ```text
//! S (caller, this process)          subreaper, holds one end of a socket
//! └── K (keeper, forked, no exec)   subreaper, holds the other end and a timer
//!     └── C (the command)           death signal from K; in a cgroup leaf where one can be made
//!         └── …                     orphans of any kind become children of K
//! ```
//!
//! Each of S and K ends the tree when the other vanishes: K sees the socket close, S adopts K's orphans.
//! K also ends it when a deadline passes that S did not move in time (S stopped, machine suspended).
//!
//! # Layout
//!
//! - [`Spec`], [`SpawnError`]: what to run, and why it could not be (`spec`)
//! - [`resolve`]: program lookup as a shell does it
//! - [`Tree`]: the handle: wait, stop, finish (`tree`; `orphans` for the keeper's death)
//! - [`Keepers`]: keepers that stay for the next command, for those who start many
//! - `keeper`: the code that runs between fork and exit, and the command between clone and exec
//! - `plan`, `words`: everything the keeper needs, made before the fork, since it must not allocate after it
//! - `heap`: a fork that leaves it out
//! - `sweep`, `procfs`: find and signal every descendant, never a recycled pid
//! - `cgroup`: the leaf
//! - [`capture()`]: one command inside somebody else's tree, with what it writes handed on
//! - [`Signals`]: INT, TERM, HUP, QUIT of this process, as values
//! - [`process`]: who am I, and is that process (or its tree) provably gone
//! - `wire`, `sys`, `clock`: messages, thin system calls, a timer that counts suspended time
//!
//! # Not guaranteed
//!
//! - If S and K are both killed in the same instant only C is sure to die (its death signal). The rest of the
//!   tree lives on; [`process::tree_is_gone`] then says so to whoever asks.
//! - A process that cannot be killed (uninterruptible sleep, or another user's) is waited for, not forgotten.
//! - Outside Linux there is only the process group: a command that calls setsid escapes.
//!
//! This crate knows nothing of leases, keys or stores. It never prints and never reads the environment.

mod capture;
mod cgroup;
mod clock;
mod heap;
mod keeper;
mod keepers;
mod orphans;
mod plan;
pub mod process;
mod procfs;
mod resolve;
mod signals;
mod spec;
mod sweep;
mod sys;
mod tree;
mod wire;
mod words;

pub use capture::{Capture, Finished, Stream, capture, pass_on};
pub use cgroup::remove_stale_leaves;
pub use clock::{boottime, sleep_boottime};
pub use heap::keep_heap_out_of_forks;
pub use keepers::Keepers;
pub use process::Process;
pub use resolve::resolve;
pub use signals::{Caught, Signals, outlive_file_limit};
pub use spec::{Contain, Containment, Output, SpawnError, Spec, Stdin};
pub use tree::{Ended, Exit, Leftovers, Ready, Tree};
