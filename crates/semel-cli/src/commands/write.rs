//! `semel write`: fenced, atomic file write from stdin.

use clap::Args;

use crate::args::Common;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// `semel write`
#[derive(Debug, Args)]
pub(crate) struct WriteArgs {}

pub(crate) fn run(_common: &Common, _args: &WriteArgs, _around: &Surroundings) -> Result<u8, Trouble> {
    Err(Trouble::config("not yet"))
}
