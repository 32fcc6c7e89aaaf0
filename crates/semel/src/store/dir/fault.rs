//! What went wrong, in a line that says what to do next.

use std::io;
use std::path::Path;

use super::super::StoreError;

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    line: String,
    /// May it have been done all the same?
    in_doubt: bool,
}

impl Fault {
    /// Surely not done.
    pub(super) fn said(line: impl Into<String>) -> Fault {
        Fault { line: line.into(), in_doubt: false }
    }

    /// The system said so; surely not done.
    pub(super) fn io(path: &Path, doing: &str, why: io::Error) -> Fault {
        let path = path.display();
        let mend = match why.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => "free some space or raise the quota",
            Some(libc::EROFS) => "it is mounted read-only: mount it writable or give another folder",
            Some(libc::EACCES | libc::EPERM) => {
                "check the owner and the mode of the folder; to share it within a group: chgrp and chmod 2770"
            }
            Some(libc::ENOENT) => "it was removed or unmounted: bring it back and try again",
            Some(libc::ESTALE | libc::ETIMEDOUT | libc::EIO | libc::EHOSTDOWN | libc::ENOTCONN) => {
                "the file server or the disk fails: see the system's log"
            }
            Some(libc::EMFILE | libc::ENFILE) => "too many files are open: raise the limit",
            _ => "see the system's log",
        };
        Fault::said(format!("cannot {doing} in {path} ({why}): {mend}"))
    }

    /// The same, but perhaps done.
    pub(super) fn doubtful(self) -> Fault {
        Fault { in_doubt: true, ..self }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> StoreError {
        if fault.in_doubt { StoreError::Unknown(fault.line) } else { StoreError::Unavailable(fault.line) }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.line)
    }
}
