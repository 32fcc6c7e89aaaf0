//! SQL: a fence inside the transaction of the user.
//!
//! The tables are the user's, and so is the transaction. The fence is one more table in the same database,
//! `semel_fence`, with a row per resource: the last grant that passed. A transaction first passes the fence, which
//! *writes* that row, and then does its own work:
//!
//! ```text
//! BEGIN ── fence(resource, grant) ── reads and writes ── COMMIT
//!               │ newer, or the same: the row is written, and stays locked until the transaction ends
//!               └ older, or a clash: an error, and the transaction is given up
//! ```
//!
//! Check and write are one because they commit as one, and because of the lock between them: a zombie that passed
//! the fence and then stalled makes the new holder wait until its transaction has ended; one that comes later is
//! refused. So the transactions of one resource commit in the order of their tokens, and what the new holder reads
//! after the fence is all that older ones will ever have written.
//!
//! | | who comes second, while the first is in its transaction | a zombie that read before the new holder committed |
//! |---|---|---|
//! | PostgreSQL, READ COMMITTED | waits; then newer passes, older is refused | is refused |
//! | REPEATABLE READ, SERIALIZABLE | waits; then SQLSTATE 40001 if the first committed: begin anew | 40001 |
//! | SQLite | waits for its busy timeout; then SQLITE_BUSY: begin anew | SQLITE_BUSY_SNAPSHOT |
//!
//! Whatever the error, nothing was written.
//!
//! Not guaranteed: anything for writes that do not pass the fence, or that are made after its error was ignored
//! (PostgreSQL refuses them, SQLite does not); that a zombie with an open transaction ends it soon: set
//! `idle_in_transaction_session_timeout`; that what was read *before* the fence still stands under READ COMMITTED:
//! read after it.
//!
//! [`POSTGRES`] and [`SQLITE`] are the migrations that `semel fence sql` prints; both may be run again.

use semel_core::token::Token;

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// The table `semel_fence` and the function of the same name, for PostgreSQL.
pub const POSTGRES: &str = include_str!("postgres.sql");

/// The table `semel_fence` and its triggers, for SQLite.
pub const SQLITE: &str = include_str!("sqlite.sql");

/// What a stale token is known by: PostgreSQL's SQLSTATE, and the start of SQLite's message.
pub const STALE: &str = "SM077";

/// What a clash is known by: PostgreSQL's SQLSTATE, and the start of SQLite's message.
pub const CLASH: &str = "SM079";

/// Why a transaction did not pass the fence. Roll it back: nothing of it may be committed.
#[derive(Debug, thiserror::Error)]
pub enum SqlFenceError {
    /// The lease was taken over: a newer token has passed.
    #[error("the token is stale: the fence is at {last}: nothing was written")]
    Stale {
        /// The last token that passed.
        last: Token,
    },
    /// The same token has passed with another nonce: two holders have been told that they are the one.
    #[error("the token was granted twice: nothing was written: look at the store of the leases")]
    Clash,
    /// This database has no fence.
    #[error("there is no fence in this database: install it with what `semel fence sql` prints")]
    NotInstalled,
    /// The database's own error: not reachable, a serialization failure, no permission. Nothing was written; a
    /// transaction that failed to serialize, or was told that the database is busy, may be begun anew.
    #[error("the fence cannot be passed: {0}")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
}
