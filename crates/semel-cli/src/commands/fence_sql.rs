//! `semel fence sql`: the migration that puts the fence into the user's own database.

use clap::{Args, ValueEnum};
use semel::sink::sql;

use crate::out;
use crate::trouble::Trouble;

/// `semel fence sql`
#[derive(Debug, Args)]
pub(crate) struct FenceSqlArgs {
    /// For which database
    #[arg(long, value_name = "DIALECT")]
    dialect: Dialect,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Dialect {
    /// A table, and the function semel_fence(resource, token, nonce)
    #[value(alias = "postgresql")]
    Postgres,
    /// A table with triggers: insert a row to pass
    Sqlite,
}

pub(crate) fn run(args: &FenceSqlArgs) -> Result<u8, Trouble> {
    let migration = match args.dialect {
        Dialect::Postgres => sql::POSTGRES,
        Dialect::Sqlite => sql::SQLITE,
    };
    // half of it would be a fence that lets everybody through
    if !out::try_print(migration.trim_end()) {
        return Err(Trouble::config(
            "stdout could not be written: the migration is not whole, do not run it",
        ));
    }
    Ok(0)
}
