//! What tests of several crates share: real servers, private to one test, and chance from a printed seed. Not part of
//! the product.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// the rooms are the product's: a test starts processes and looks at the clock
#![allow(clippy::disallowed_methods)]
// and says its seed
#![allow(clippy::print_stdout)]

mod chance;
mod postgres;

pub use chance::{Chance, rounds};
pub use postgres::Postgres;
