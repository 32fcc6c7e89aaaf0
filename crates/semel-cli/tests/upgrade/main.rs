//! Ledgers of other versions: what an earlier one wrote is read and gone on with, what a later one wrote is refused and
//! left alone, and two versions at one ledger still do everything once.
//!
//! | module | shows |
//! |---|---|
//! | `scenario` | a ledger with every kind of record in every state, made by real processes |
//! | `fixture` | such a ledger as lines of a file, and back into any store |
//! | `earlier` | the kept ledgers are read by this build; its records still look like those it kept |
//! | `schema1` | a database of the schema of before is changed once, whoever comes, and nothing of it is lost |
//! | `later` | records and schemas of a later version: refused by every command, and never written over |
//! | `mixed` | two builds at one ledger, where `SEMEL_OLD` names an earlier one; processes of this build alone |
//!
//! A kept ledger is made anew by `cargo xtask fixture` (with the version of the workspace in its name).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]
// the rooms are the product's: a test starts processes and looks at the clock
#![allow(clippy::disallowed_methods)]
#![allow(dead_code)] // what is shared with the end-to-end tests has more in it

#[path = "../e2e/processes.rs"]
mod processes;
#[path = "../e2e/support.rs"]
mod support;

mod earlier;
mod fixture;
mod later;
mod mixed;
mod scenario;
mod schema1;
