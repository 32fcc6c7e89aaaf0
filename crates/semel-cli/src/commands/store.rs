//! `semel store`: carry a ledger to another store; print what an administrator has to set up for one.

use clap::{Args, Subcommand};
use semel::engine::copy::{CopyError, copy};
use serde_json::json;

use crate::args::Common;
use crate::out::{Ticker, Voice, print, print_json};
use crate::plan::{self, Surroundings};
use crate::runtime;
use crate::trouble::Trouble;

/// `semel store`
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Carry a whole ledger into another, empty store; goes on where it was interrupted
    Copy(CopyArgs),
    /// Print the SQL that makes the tables of a PostgreSQL store, for those who may not make them
    Schema(SchemaArgs),
}

/// `semel store copy`
#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// The store with the ledger: its address, or env:NAME for one that stands in a variable
    from: String,
    /// The store that gets it
    to: String,
}

/// `semel store schema`
#[derive(Debug, Args)]
pub(crate) struct SchemaArgs {
    /// The schema (namespace) that holds the tables
    #[arg(long, value_name = "NAME")]
    schema: Option<String>,
}

pub(crate) fn run(common: &Common, command: &StoreCommand, around: &Surroundings) -> Result<u8, Trouble> {
    match command {
        StoreCommand::Copy(args) => carry(common, args, around),
        StoreCommand::Schema(args) => schema(args),
    }
}

/// An address as it was typed, or the one in the variable that it names: arguments are seen by everybody on a machine.
fn address<'a>(text: &'a str, around: &'a Surroundings) -> Result<&'a str, Trouble> {
    match text.strip_prefix("env:") {
        None => Ok(text),
        Some(name) => around.text(name).ok_or_else(|| {
            Trouble::config(format!("{name} is not set, or not UTF-8: set it to the address of the store"))
        }),
    }
}

fn carry(common: &Common, args: &CopyArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let (from, to) = (address(&args.from, around)?, address(&args.to, around)?);
    if from == to {
        return Err(Trouble::config("FROM and TO are the same store: name two"));
    }
    let source = plan::read_address(from)?;
    if let Some(path) = source.path().filter(|path| !path.exists()) {
        return Err(Trouble::config(format!("there is no ledger at {}: nothing to copy", path.display())));
    }
    let (source, target) = (plan::open_at(from, around)?, plan::open_at(to, around)?);
    let mut ticker = Ticker::new(Voice::new(common));
    let copied = runtime()?
        .block_on(copy(&*source, &*target, &mut |records| ticker.tell(|| format!("{records} records … "))));
    ticker.end();
    let carried = copied.map_err(|why| match why {
        CopyError::Store(why) => Trouble::from(why),
        CopyError::Held(..) => Trouble::with_code(crate::exit::BUSY, why.to_string()),
        other => Trouble::input(other.to_string()),
    })?;
    if common.json {
        print_json(json!({
            "kind": "copy", "written": carried.written, "there": carried.there, "compared": carried.compared,
            "sha256": carried.digest,
        }));
    } else {
        let digest = carried.digest.get(..16).unwrap_or_default();
        print(&format!(
            "{} records carried, {} were there already; {} compared and equal, sha256 {digest}…",
            carried.written, carried.there, carried.compared
        ));
    }
    Ok(0)
}

fn schema(args: &SchemaArgs) -> Result<u8, Trouble> {
    #[cfg(feature = "all-stores")]
    {
        use semel::store::postgres::{DEFAULT_SCHEMA, schema_sql};
        print(schema_sql(args.schema.as_deref().unwrap_or(DEFAULT_SCHEMA))?.trim_end());
        Ok(0)
    }
    #[cfg(not(feature = "all-stores"))]
    {
        let _ = args;
        Err(Trouble::config("this build of semel was made without PostgreSQL: use one with all stores"))
    }
}
