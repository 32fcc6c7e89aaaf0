//! `semel push`: fenced, atomic git push.

use clap::Args;

use crate::args::Common;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// `semel push`
#[derive(Debug, Args)]
pub(crate) struct PushArgs {}

pub(crate) fn run(_common: &Common, _args: &PushArgs, _around: &Surroundings) -> Result<u8, Trouble> {
    Err(Trouble::config("not yet"))
}
