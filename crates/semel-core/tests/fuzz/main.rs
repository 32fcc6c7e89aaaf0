//! Whatever bytes come from outside: each test is a target of `semel-fuzz` (its crate says what is held to).
//!
//! A finding becomes a line of the corpus, and a test with a name beside its target.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fill;
mod keys;
mod records;
mod times;
mod words;

/// The parts of an input that is made of lines.
fn lines<const N: usize>(bytes: &[u8]) -> Option<[&str; N]> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut parts = text.splitn(N, '\n');
    Some(std::array::from_fn(|_| parts.next().unwrap_or_default()))
}
