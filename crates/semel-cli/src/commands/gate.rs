//! `semel gate`: verify the lease, then exec at once.

use clap::Args;

use crate::args::Common;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// `semel gate`
#[derive(Debug, Args)]
pub(crate) struct GateArgs {}

pub(crate) fn run(_common: &Common, _args: &GateArgs, _around: &Surroundings) -> Result<u8, Trouble> {
    Err(Trouble::config("not yet"))
}
