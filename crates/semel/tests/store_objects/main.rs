//! Object stores: S3 by moto, Azure by Azurite, and services that fail their clients.
#![cfg(feature = "objects")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod clocks;
mod costs;
mod faults;
mod proof;
mod setups;
mod stage;
mod suite;
