//! PostgreSQL passes the suite, straight and behind a pooler; and what is PostgreSQL's own.
#![cfg(feature = "postgres")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod costs;
mod faults;
mod kills;
mod setups;
mod stage;
mod suite;
mod together;
