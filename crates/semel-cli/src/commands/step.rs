//! `semel step`: one effect of a run, done once.

use clap::Args;

use crate::args::Common;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// `semel step`
#[derive(Debug, Args)]
pub(crate) struct StepArgs {}

pub(crate) fn run(_common: &Common, _args: &StepArgs, _around: &Surroundings) -> Result<u8, Trouble> {
    Err(Trouble::config("not yet"))
}
