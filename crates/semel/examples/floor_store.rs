//! `floor_store FILE KEY COMMAND…`: the floor of `semel run` on its own store: look, write durably, run the command, write
//! durably. No lease, no rule, nobody who watches the command.
//!
//! Called by `cargo xtask bench run`. What `semel run` takes beyond this is the engine's and the keeper's; what this takes
//! beyond an append and a sync is SQLite's, which every process has to open.

#![allow(clippy::disallowed_methods)] // a floor is no room of the product

use std::path::Path;
use std::process::{Command, ExitCode};

use semel::core::record::{Expect, RecordKey, Version};
use semel::store::sqlite::Sqlite;
use semel::store::{Change, Durability, Store, StoreError};

/// About the bytes of an entry.
const RECORD: usize = 600;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let (Some(file), Some(key), Some(program)) = (words.next(), words.next(), words.next()) else {
        return Err("usage: floor_store FILE KEY COMMAND…".into());
    };
    let store = Sqlite::open_in_place(Path::new(&file))?;
    let key = RecordKey::from_stored(format!("floor/{}", key.to_string_lossy()));
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(store.load(std::slice::from_ref(&key)))?;
    let put = |expect| runtime.block_on(put(&store, &key, expect));
    let version = put(Expect::Absent)?;
    let status = Command::new(program).args(words).status()?;
    put(Expect::Version(version))?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

async fn put(store: &Sqlite, key: &RecordKey, expect: Expect) -> Result<Version, StoreError> {
    let change = Change::Put { key: key.clone(), expect, value: vec![b'x'; RECORD], ttl: None };
    let versions = store.swap(&[change], Durability::Durable).await?;
    versions.into_iter().next().ok_or_else(|| StoreError::Unknown("no version came back".into()))
}
