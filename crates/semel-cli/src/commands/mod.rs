//! One file per command.

pub(crate) mod lease;
pub(crate) mod run;
