//! The SQL fence against real databases: what it takes and refuses, and zombies that stall at every place.
//!
//! What counts is read from the user's own table, `posts`, through a connection of its own. The measure of a round:
//! the posts of the zombie that are ever there are those that the new holder saw after it had passed the fence, so
//! nothing stale landed after it; and the new holder's own post is there, so nothing was lost. The control does
//! the same with a look at the token before the write, and must let the zombie in.
//!
//! `SEMEL_ROUNDS` sets the rounds per place (200), `SEMEL_SEED` the seed that is printed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
// the rooms are the product's: a test starts processes and looks at the clock
#![allow(clippy::disallowed_methods)]

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_python;
#[cfg(feature = "postgres")]
mod postgres_stage;
#[cfg(feature = "postgres")]
mod postgres_zombies;
#[path = "../skips/mod.rs"]
#[cfg(feature = "postgres")]
mod skips;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_zombies;

use semel::core::name::Name;
use semel::core::token::{Grant, Nonce, Token};

/// A grant; the nonce is drawn from `who`.
fn grant(token: u64, who: u8) -> Grant {
    Grant { token: Token::new(token).unwrap(), nonce: Nonce::from_bytes([who; 16]) }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Where the zombie stalls, in its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StallsBefore {
    Fence,
    Write,
    Commit,
}

const EVERYWHERE: [StallsBefore; 3] = [StallsBefore::Fence, StallsBefore::Write, StallsBefore::Commit];

/// What becomes of it when it wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wakes {
    Commits,
    RollsBack,
    Dies,
}

const ENDS: [Wakes; 3] = [Wakes::Commits, Wakes::RollsBack, Wakes::Dies];
