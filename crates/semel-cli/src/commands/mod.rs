//! One file per command; `find` is what the inspecting ones share.

pub(crate) mod commit_trailer;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
mod doctor_git;
mod doctor_notify;
pub(crate) mod fence;
mod fence_file;
mod fence_sql;
mod find;
pub(crate) mod gate;
pub(crate) mod gc;
pub(crate) mod history;
pub(crate) mod jobs;
pub(crate) mod lease;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod plan;
pub(crate) mod push;
pub(crate) mod resolve;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod step;
pub(crate) mod why;
pub(crate) mod write;
