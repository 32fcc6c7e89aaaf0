//! `semel fence`: the fences of write targets.

use clap::Subcommand;

use crate::args::Common;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// `semel fence`
#[derive(Debug, Subcommand)]
pub(crate) enum FenceCommand {
    /// Look
    Show,
}

pub(crate) fn run(_common: &Common, _args: &FenceCommand, _around: &Surroundings) -> Result<u8, Trouble> {
    Err(Trouble::config("not yet"))
}
