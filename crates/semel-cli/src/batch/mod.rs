//! `semel batch`: what it needs besides the engine. Items are read from a file or a stream, one at a time
//! ([`input`]); each fills the command's arguments ([`fill`]) and a file ([`files`]); failed ones become input again ([`failed`]); what GNU
//! parallel has done already is known from its log ([`joblog`]); and somebody who watches is told ([`progress`]).
//!
//! ```text
//! args (as typed) → resolve (checked) → input (items, faults) → the engine → progress, failed, exit code
//! ```
//!
//! Bounds: one item is at most [`input::ITEM_LIMIT`] bytes, a CSV row has at most [`csv::COLUMNS_LIMIT`] columns, and
//! nothing is kept of an item that was handed on. Only [`joblog`] keeps something per row, and [`dry_run`] of each item
//! that would run.

pub(crate) mod args;
pub(crate) mod csv;
pub(crate) mod dry_run;
pub(crate) mod failed;
pub(crate) mod files;
pub(crate) mod fill;
pub(crate) mod input;
pub(crate) mod item;
pub(crate) mod joblog;
mod jsonl;
mod lines;
pub(crate) mod progress;
mod records;
pub(crate) mod resolve;
mod shell_words;
pub(crate) mod source;
pub(crate) mod watch;

#[cfg(test)]
mod any_bytes_tests;
#[cfg(test)]
mod csv_tests;
#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod input_tests;
#[cfg(test)]
mod joblog_tests;
#[cfg(test)]
mod resolve_tests;
