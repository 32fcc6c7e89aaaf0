//! Every store is linearizable: what it answers under faults fits one order of the calls, in which each takes effect at
//! one moment between its begin and its end.
//!
//! Theory. Several clients, each with a handle of its own, call load, swap and touch on *islands*: up to three records
//! that no other island uses. Every call is recorded with its begin, its end and its answer, and each island's history
//! is checked by itself. That suffices: linearizability is local, a whole is linearizable if and only if each of its
//! objects is. stateright's [`LinearizabilityTester`](stateright::semantics::LinearizabilityTester) is the checker.
//!
//! | answer | what the checker demands |
//! |---|---|
//! | done | all expectations held at one moment, and all was written then; each version belongs to one write |
//! | refused | at one moment all changes before that one fitted, that one did not, and what stood there is what was told |
//! | unavailable | it has no effect, ever: a write of it that anybody sees fits no order |
//! | unknown, or the future was dropped | it takes effect once, at any later time, or never |
//!
//! A store whose swaps are [`InOrder`](semel::store::Swaps::InOrder) promises less: each change, and each record of a
//! load, has a moment of its own; those of one swap come in their order, and what is cut off is a prefix.
//!
//! Left out. Nothing lapses here (a ttl is an hour), so `Live` means "at this version, with a clock" and `Lapsed` never
//! holds; lapses belong to the conformance suite. A scan promises no moment for its page. `changed` may be spurious.
//!
//! | module | what it knows |
//! |---|---|
//! | `spec` | how one island behaves if one call comes after another; the check |
//! | `history` | from recorded calls to what the checker is asked |
//! | `island` | the clients of one island |
//! | `arena` | many islands, the tally, the line at the end |
//! | `nemesis` | faults, dealt from a seed |
//! | `distant` | a client that is a process of its own, and may be killed |
//! | `local`, `servers`, `objects` | the stores |
//! | `controls` | stores that are broken on purpose, and histories made by hand |
//!
//! `SEMEL_ROUNDS` says how many calls each store is asked (5,000), `SEMEL_SEED` which choices and faults come again.
#![cfg(all(
    feature = "dir",
    feature = "postgres",
    feature = "redis",
    feature = "etcd",
    feature = "nats",
    feature = "objects"
))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

mod arena;
mod controls;
mod distant;
mod history;
mod island;
mod local;
mod nemesis;
mod objects;
mod servers;
mod spec;
