//! Opening the database: whose it is, making it, and the settings of a connection.
//!
//! Nothing is written to a file before it is known to be empty or ours. Many processes may make the first start
//! at once: the switch to the write-ahead log is asked for until it is had, and the schema is made under the
//! write lock by whoever comes first.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, FileControl, OpenFlags};

use super::super::OpenError;
use super::busy::{self, Pace};
use super::{fault, place, vfs};

/// "Seml": what `file(1)` and a foreign program see in the header.
const APPLICATION_ID: i64 = 0x5365_6d6c;

/// The schema that this build reads and writes.
pub(super) const SCHEMA: i64 = 2;

/// `value` comes last, so that a long one spills over after the columns that decide. `touched_ns` is time since
/// the boot whose id is `boot`; all three are null for a record without a clock.
///
/// Rows lie in the order in which they came, so what is written together lies together, and the tree over the keys
/// holds keys alone. A table that is its own index keeps whole rows in the inner pages of its tree: with values of a
/// kilobyte each page has four ways down, and a million records are ten pages deep.
const CREATE: &str = "CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    key TEXT UNIQUE NOT NULL,
    version INTEGER NOT NULL,
    ttl_ms INTEGER,
    touched_ns INTEGER,
    boot BLOB,
    value BLOB NOT NULL
)";

/// Schema 1 had the same columns in a table that was its own index. Who still has it open reads and writes the new one
/// by the same names.
const UPGRADE_1: &str = "INSERT INTO records (key, version, ttl_ms, touched_ns, boot, value)
    SELECT key, version, ttl_ms, touched_ns, boot, value FROM records_1; DROP TABLE records_1";

/// A connection, and how long the log was after its last commit.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) frames: Arc<AtomicU32>,
}

/// Open the database, and make it if there is none.
pub(super) fn open(path: &Path, patience: Duration) -> Result<Opened, OpenError> {
    let opened = connect(path, patience).map_err(|why| refusal(path, &why))?;
    busy::wait_at_most(patience, Pace::Other);
    match identify(&opened.connection).map_err(|why| refusal(path, &why))? {
        Found::Ours { wal: true } => {}
        Found::Ours { wal: false } | Found::Empty | Found::Older => initialise(path, &opened.connection)?,
        Found::Newer(found) => return Err(newer(path, found)),
        Found::Foreign => return Err(foreign(path)),
    }
    if opened.connection.is_readonly("main").map_err(|why| refusal(path, &why))? {
        return Err(OpenError::Unavailable(format!(
            "{} is read-only: check the owner and the mode of the file and its folder",
            path.display()
        )));
    }
    Ok(opened)
}

/// A connection with our settings. Touches no file.
fn connect(path: &Path, patience: Duration) -> Result<Opened, Error> {
    // without CREATE: the file was made with its mode before. Without URI: a path is a path
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    busy::wait_at_most(patience, Pace::Other);
    let mut connection = match vfs::name() {
        Some(name) => Connection::open_with_flags_and_vfs(path, flags, name)?,
        None => Connection::open_with_flags(path, flags)?,
    };
    connection.busy_handler(Some(busy::handler))?;
    // the last one to close would else copy the log back and sync twice, on every single run
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.file_control(None::<&str>, FileControl::PersistWal(&mut 1))?;
    // our hook takes the place of the automatic checkpoint
    let frames = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&frames);
    connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
        seen.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    }))?;
    connection.set_prepared_statement_cache_capacity(32);
    #[cfg(target_os = "macos")] // where fsync alone does not reach the disk
    connection.execute_batch("PRAGMA fullfsync = 1; PRAGMA checkpoint_fullfsync = 1")?;
    Ok(Opened { connection, frames })
}

enum Found {
    Ours {
        wal: bool,
    },
    /// Of schema 1.
    Older,
    Newer(i64),
    Empty,
    Foreign,
}

fn identify(connection: &Connection) -> Result<Found, Error> {
    // one snapshot: another process may make the schema between two looks
    connection.execute_batch("BEGIN")?;
    let found = identify_inside(connection);
    let ended = connection.execute_batch("ROLLBACK");
    let found = found?;
    ended.map(|()| found)
}

fn identify_inside(connection: &Connection) -> Result<Found, Error> {
    let number = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let (application, schema) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    Ok(match (application, schema) {
        (APPLICATION_ID, SCHEMA) => {
            let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
            Found::Ours { wal: mode == "wal" }
        }
        (APPLICATION_ID, 1) => Found::Older,
        (APPLICATION_ID, newer) if newer > SCHEMA => Found::Newer(newer),
        (0, 0) if number("SELECT count(*) FROM sqlite_schema")? == 0 => Found::Empty,
        _ => Found::Foreign,
    })
}

fn initialise(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let failed = |why: Error| refusal(path, &why);
    loop {
        // raced, it is refused at once, without a call of the busy handler
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => break,
            Ok(mode) => {
                return Err(OpenError::Unavailable(format!(
                    "{} cannot keep a write-ahead log (it stays in mode {mode}): give a path on a local disk",
                    path.display()
                )));
            }
            Err(why) if fault::is_busy(&why) && busy::nap() => {}
            Err(why) => return Err(failed(why)),
        }
    }
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let made = match identify_inside(connection) {
        Ok(Found::Empty) => connection
            .execute_batch(&format!(
                "{CREATE}; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA}; COMMIT"
            ))
            .map_err(failed),
        Ok(Found::Older) => connection
            .execute_batch(&format!(
                "ALTER TABLE records RENAME TO records_1; {CREATE}; {UPGRADE_1}; PRAGMA user_version = {SCHEMA}; COMMIT"
            ))
            .map_err(failed),
        // another process was first
        Ok(Found::Ours { .. }) => return connection.execute_batch("ROLLBACK").map_err(failed),
        Ok(Found::Newer(found)) => Err(newer(path, found)),
        Ok(Found::Foreign) => Err(foreign(path)),
        Err(why) => Err(failed(why)),
    };
    if made.is_err() && !connection.is_autocommit() {
        // what made it fail is what is told
        let _ = connection.execute_batch("ROLLBACK");
    }
    made
}

fn newer(path: &Path, found: i64) -> OpenError {
    OpenError::Configuration(format!(
        "{} was written by a newer Semel (schema {found}, this one knows {SCHEMA}): upgrade semel",
        path.display()
    ))
}

fn foreign(path: &Path) -> OpenError {
    OpenError::Configuration(format!(
        "{} is a database of another program: nothing was changed in it; give another path",
        path.display()
    ))
}

fn refusal(path: &Path, why: &Error) -> OpenError {
    let message = fault::line(path, why);
    match why.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Configuration(message),
        _ => OpenError::Unavailable(message),
    }
}

/// Make the file if there is none, and open it.
pub(super) fn prepare_and_open(
    path: &Path,
    patience: Duration,
) -> Result<(std::path::PathBuf, Opened), OpenError> {
    let path = place::prepare(path)?;
    let opened = open(&path, patience)?;
    Ok((path, opened))
}
