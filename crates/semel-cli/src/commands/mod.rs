//! One file per command.

pub(crate) mod demo;
pub(crate) mod lease;
pub(crate) mod run;
