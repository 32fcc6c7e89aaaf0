//! The file sink: real files, real processes, really stopped and killed.
//!
//! | module | shows |
//! |---|---|
//! | `support` | a folder for each test, the helper process |
//! | `writes` | what is replaced, what is kept, what is refused |
//! | `looks` | modes, owners and attributes |
//! | `fences` | a person sets the fence; a fence that is damaged, strange or busy |
//! | `disk` | full, and read-only |
//! | `crash` | killed -9 at every boundary, and the order in which the disk is told |
//! | `zombies` | stopped at every boundary while a newer holder writes; and the naive ways, which lose |
//! | `crowds` | many writers at once |
//!
//! `SEMEL_ROUNDS` says how many rounds a test of chance has, `SEMEL_SEED` which.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
// the rooms are the product's: a test starts processes and looks at the clock
#![allow(clippy::disallowed_methods)]
// what only processes that stop themselves need
#![cfg_attr(not(feature = "crash-points"), allow(dead_code))]

#[cfg(feature = "crash-points")]
mod crash;
mod crowds;
mod disk;
mod fences;
mod looks;
#[path = "../skips/mod.rs"]
mod skips;
mod support;
mod writes;
#[cfg(feature = "crash-points")]
mod zombies;
