//! `semel` from the outside: real processes, really killed, on a real ledger.
//!
//! Effects are counted outside of Semel, as lines that commands append to a file; never by its own ledger. What is
//! about crashes, races or clocks has a *control*: the same scene without Semel, which must show the duplicate, so
//! that the test is known to be able to fail.
//!
//! | module | shows |
//! |---|---|
//! | `support`, `processes`, `ledger` | a home of its own for every test, processes, what the ledger says |
//! | `once`, `overlap` | one effect per work; never two at a time |
//! | `crash`, `doubt`, `stall` | killed -9, unknown outcomes, stopped and woken |
//! | `signals`, `failures`, `payload` | how runs end, and what that counts for |
//! | `stdio`, `terminal`, `environment` | what the command sees |
//! | `arguments`, `databases`, `full_disk` | bad input: a clear error, and nothing is lost |
//! | `config` | jobs in `semel.toml` |
//! | `notify` | lanes that are tried out, pings, and secrets that stay secret |
//! | `fence_sql` | the fence in the user's own database |
//! | `init` | units for other people's schedulers |
//! | `history` | the calendar of slots |
//! | `inspect`, `retry` | commands that look, judge and tidy |
//! | `steps`, `steps_hard`, `matrix` | effects inside a run, in a bad world, and a crash at every boundary |
//! | `rehearsal` | a run as if |
//! | `plan` | what is decided once, and the same for every attempt |
//! | `write` | files that refuse a stale holder |
//! | `push` | fenced pushes to git |
//! | `torture_git`, `chaos` | the same proofs as users make them, on their own remote and command |
//! | `schedule`, `year` | slots from schedules; weeks of two unreliable schedulers |
//! | `advise` | ttl, timeout and grace from what was measured |
//! | `batch`, `batch_input`, `batch_kills` | items from a file, each once, however often it dies |
//! | `stores`, `fleet` | other stores by their address; a ledger that is carried over; services that are proven, cut off, crowded |
//! | `leases`, `cost` | leases for scripts; syncs and memory |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]
// the rooms are the product's: a test starts processes and looks at the clock
#![allow(clippy::disallowed_methods)]

mod advise;
mod any_words;
mod arguments;
mod bad_words;
mod batch;
mod batch_adverse;
mod batch_care;
mod batch_input;
mod batch_kills;
mod batch_resources;
mod batch_streams;
#[cfg(feature = "crash-points")]
mod catch_up;
mod chaos;
mod config;
mod cost;
mod crash;
mod databases;
mod doubt;
mod environment;
mod failures;
mod fence_sql;
#[cfg(feature = "all-stores")]
mod fleet;
mod full_disk;
mod history;
mod init;
mod inspect;
mod leases;
mod ledger;
mod matrix;
#[cfg(feature = "http")]
mod notify;
mod once;
mod overlap;
mod payload;
mod plan;
mod processes;
mod push;
mod rehearsal;
mod retry;
mod schedule;
mod signals;
mod stall;
mod stdio;
mod steps;
mod steps_hard;
mod stores;
mod support;
mod terminal;
mod torture_git;
#[cfg(feature = "crash-points")]
mod watching;
mod write;
mod year;
