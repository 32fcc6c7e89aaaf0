//! Semel, the library: work that is safe to fire twice, to crash anywhere and to retry.
//!
//! # Layout
//!
//! | module | what it knows |
//! |---|---|
//! | [`store`] | the seam to every store, its drivers, and the suite that all of them pass |
//! | [`engine`] | claim → hold → settle: how a run flows through the rules of [`semel_core`] |
//! | [`sink`] | write targets that refuse a stale token: files, git, SQL |
//! | [`clock`] | the holder's own watch |
//!
//! The library never prints and never reads the environment. What is promised: at most one accepted effect per
//! key where the target is fenced or idempotent; elsewhere the effect runs again only if the policy says so, and
//! an unknown outcome is reported as unknown.

pub use semel_core as core;

pub mod clock;
#[doc(hidden)]
pub mod crash;
pub mod engine;
pub mod sink;
pub mod store;
