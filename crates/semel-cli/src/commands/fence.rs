//! `semel fence`: the fences of write targets.

use clap::Subcommand;

use super::fence_sql::{self, FenceSqlArgs};
use crate::args::Common;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// `semel fence`
#[derive(Debug, Subcommand)]
pub(crate) enum FenceCommand {
    /// Look
    Show,
    /// Print the migration that puts a fence into your own database
    Sql(FenceSqlArgs),
}

pub(crate) fn run(_common: &Common, command: &FenceCommand, _around: &Surroundings) -> Result<u8, Trouble> {
    match command {
        FenceCommand::Show => Err(Trouble::config("not yet")),
        FenceCommand::Sql(args) => fence_sql::run(args),
    }
}
