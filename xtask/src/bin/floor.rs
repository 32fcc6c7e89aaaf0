//! The floor of `semel run`: append a line, sync, run the command, append, sync. It guards nothing.

#![allow(clippy::disallowed_methods)] // a floor is no room of the product

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;

fn main() -> std::io::Result<()> {
    let mut words = std::env::args_os().skip(1);
    let (Some(file), Some(program)) = (words.next(), words.next()) else {
        return Err(std::io::Error::other("usage: floor FILE COMMAND…"));
    };
    let mut ledger = OpenOptions::new().create(true).append(true).open(file)?;
    ledger.write_all(b"begin\n")?;
    ledger.sync_data()?;
    let status = Command::new(program).args(words).status()?;
    ledger.write_all(b"end\n")?;
    ledger.sync_data()?;
    std::process::exit(status.code().unwrap_or(1))
}
