//! What SQLite's errors mean to a person: what happened, to what, and what to do.

use std::path::Path;

use rusqlite::{Error, ErrorCode};

/// One line about an error, with the path and the way out.
pub(super) fn line(path: &Path, why: &Error) -> String {
    let detail = why.to_string().replace(['\n', '\r'], " ");
    let path = path.display();
    match why.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            format!("the database is busy: {path} stayed locked by another process: try again ({detail})")
        }
        Some(ErrorCode::DiskFull) => format!("the disk is full: {path} cannot grow: free some space"),
        Some(ErrorCode::ReadOnly) => {
            format!("{path} is read-only ({detail}): check the owner and the mode of the file and its folder")
        }
        Some(
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied,
        ) => {
            format!("cannot open {path} ({detail}): check the owner and the mode of the file and its folder")
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            format!("{path} is damaged ({detail}): move it away with its -wal and -shm, and restore a backup")
        }
        Some(ErrorCode::NotADatabase) => {
            format!("{path} is not a SQLite database ({detail}): give another path, or restore a backup")
        }
        Some(ErrorCode::SystemIoFailure) => {
            format!("reading or writing {path} failed ({detail}): is the disk full or failing?")
        }
        _ => format!("{path}: {detail}"),
    }
}

/// Is it only a lock that another has?
pub(super) fn is_busy(why: &Error) -> bool {
    matches!(
        why.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed)
    )
}
