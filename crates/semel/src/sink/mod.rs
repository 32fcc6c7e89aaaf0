//! Write targets that check the token at the write itself, so that a holder whose lease was taken over while it
//! was stalled (a zombie) cannot write.
//!
//! | sink | how the check and the write become one |
//! |---|---|
//! | [`mod@file`] | a lock on the fence file beside the target; the fence advances, then the target is replaced |
//! | [`git`] | one atomic push of the branch together with a fence ref, each with its expected old value |
//! | [`sql`] | a row check in the user's own transaction |
//!
//! All of them follow one rule, [`Grant::against`](semel_core::token::Grant::against): a newer token advances the
//! fence, the same grant passes, an older token is refused, and the same token with another nonce is refused and
//! reported, because two holders have been told that they are the one.

pub mod file;
pub mod git;
pub mod sql;
