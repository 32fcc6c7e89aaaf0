//! The git sink against real remotes, with real git on both sides.
//!
//! What is on a branch is counted in the remote's own repository. Every scene about races, crashes and zombies has
//! a *control*: the same scene with plain git, which must show the damage.
//!
//! | module | shows |
//! |---|---|
//! | `world`, `http` | a remote, its clones, and a web server for it |
//! | `transports` | file, ssh and http; refs in files and in reftable; what a remote must be able to do |
//! | `habits` | the five habits that let a zombie in |
//! | `zombies` | a holder that stalls anywhere and wakes after a takeover |
//! | `races` | four pushers with one valid lease |
//! | `retries` | lost answers, torn refs, other commits on a retry |
//! | `refs` | branches, tags, leases, settings that would smuggle, names that look like options |
//!
//! `SEMEL_ROUNDS` sets how often the scenes of `zombies` and `races` are played.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]
// the rooms are the product's: a test starts processes, looks at the clock and reads the environment
#![allow(clippy::disallowed_methods)]

mod habits;
mod http;
mod races;
mod refs;
mod retries;
#[path = "../skips/mod.rs"]
mod skips;
mod transports;
mod world;
mod zombies;
