//! The rules of Semel, pure: no clock, no I/O, no async, no randomness.
//!
//! # Layout
//!
//! | module | what it knows |
//! |---|---|
//! | [`address`] | addresses of the web, and which hosts are anybody's |
//! | [`name`] | names of jobs, resources and steps, and slots, as data |
//! | [`canonical`] | JSON that is safe to hash (RFC 8785) |
//! | [`work`], [`key`] | what is to be done, and its key |
//! | [`payload`] | the fingerprint that binds a payload to a key |
//! | [`token`] | fencing tokens: they only grow |
//! | [`owner`] | who holds a lease, and what may be concluded about them |
//! | [`lease`] | the lease machine |
//! | [`entry`] | the entry machine |
//! | [`definition`] | how a job was defined when it ran, and what has changed since it last succeeded |
//! | [`claim`](mod@claim) | both machines at once: what a run may do with what stands in the store |
//! | [`step`] | the effects inside a run, each with an entry of its own |
//! | [`item`] | the items of a batch, each with an entry of its own |
//! | [`breaker`] | when a batch stops, because whatever it needs is down |
//! | [`policy`] | what a job asks for, checked, and the times derived from it |
//! | [`plan`], [`fill`] | what a run is to decide, decided once; and how it gets into a command's arguments |
//! | [`field`] | fields of a batch's items, by name or by pointer |
//! | [`record`] | how records are named and written in a store |
//! | [`trigger`] | when another scheduler must fire so that every slot is met |
//! | [`grid`] | what became of a job's slots, as a calendar |
//! | [`schedule`] | which slot is due: ticks of a schedule in a time zone |
//! | [`calendar`] | which slots are accounted for, which were missed, which are owed |
//! | [`alarm`] | which anomalies are told to a person, and what waits to be told |
//! | [`advice`] | which ttl, timeout and grace fit what was measured |
//! | [`retention`] | what may be forgotten, and when |
//! | [`story`] | what happened to a key, in plain words |
//!
//! Every transition is a function from what stands there and what is asked to what to write or what to
//! answer. Somebody else acts on it.

pub mod address;
pub mod advice;
pub mod alarm;
pub mod breaker;
pub mod calendar;
pub mod canonical;
pub mod carry;
pub mod claim;
mod conclusion;
pub mod definition;
pub mod entry;
pub mod field;
pub mod fill;
pub mod grid;
pub mod item;
mod json_parser;
pub mod key;
pub mod lease;
pub mod mutant;
pub mod name;
pub mod owner;
pub mod payload;
pub mod plan;
mod pointer;
pub mod policy;
pub mod record;
pub mod retention;
pub mod schedule;
pub mod step;
pub mod story;
pub mod token;
pub mod trigger;
pub mod work;
