//! One file per command; `find` is what the inspecting ones share.

pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod doctor;
mod find;
pub(crate) mod gc;
pub(crate) mod history;
pub(crate) mod lease;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod resolve;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod why;
