//! `semel fence`: the fences of write targets.

use clap::Subcommand;

use super::fence_file::{self, SetArgs, ShowArgs};
use super::fence_sql::{self, FenceSqlArgs};
use crate::args::Common;
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// `semel fence`
#[derive(Debug, Subcommand)]
pub(crate) enum FenceCommand {
    /// To which resource a file belongs, and which token wrote last
    Show(ShowArgs),
    /// Give a file to another resource, or shut out tokens, by a person's word
    Set(SetArgs),
    /// Print the migration that puts a fence into your own database
    Sql(FenceSqlArgs),
}

pub(crate) fn run(common: &Common, command: &FenceCommand, around: &Surroundings) -> Result<u8, Trouble> {
    match command {
        FenceCommand::Show(args) => fence_file::show(common, args),
        FenceCommand::Set(args) => fence_file::set(common, args, around),
        FenceCommand::Sql(args) => fence_sql::run(args),
    }
}
