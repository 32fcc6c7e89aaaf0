//! What tests of several crates share: real servers, private to one test. Not part of the product.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// the rooms are the product's: a test starts processes and looks at the clock
#![allow(clippy::disallowed_methods)]

mod postgres;

pub use postgres::Postgres;
