//! A shared directory passes the suite; and what is its own: crashes at every call, lost answers, what is cleared away,
//! what it says of a wrong setup.
#![cfg(feature = "dir")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod calls;
mod crash;
mod crowd;
mod engine;
mod lost;
mod setup;
#[path = "../skips/mod.rs"]
mod skips;
mod suite;
mod support;
mod swept;
