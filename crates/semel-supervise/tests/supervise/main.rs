//! What the supervisor promises, each promise against real processes.
//!
//! The caller (S) must be killable here, so where a test needs that, S is this test binary started again:
//! see `probe`. Some tests change signal dispositions or count children: run them with `cargo nextest`, one
//! process each. Processes of a tree are found by a mark in their environment, whatever became of their parents.
#![cfg(target_os = "linux")]
#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

mod cost;
mod deaths;
mod ends;
mod gone;
mod keepers;
mod probe;
mod starts;
mod stdio;
mod support;
mod trees;
mod tty;
