//! `semel commit-trailer`: the trailer that marks a commit as the effect of a run.

use clap::Args;

use crate::args::Common;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// `semel commit-trailer`
#[derive(Debug, Args)]
pub(crate) struct CommitTrailerArgs {}

pub(crate) fn run(
    _common: &Common,
    _args: &CommitTrailerArgs,
    _around: &Surroundings,
) -> Result<u8, Trouble> {
    Err(Trouble::config("not yet"))
}
