//! Where `semel.toml` is: `--config`, then `SEMEL_CONFIG`, then upward from the working directory, then the XDG
//! config directory. The first that is there is the only one that is read.
//!
//! The file names commands and the ledger, so whoever can write it can run things as us. A file that others can
//! write is refused; and one that was not named but only found must be ours or root's. In a folder where anybody may
//! put files (`/tmp`), a stranger's file counts as not being there: else it could stop every run below.

use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::NAME;
use crate::trouble::Trouble;

/// The largest file.
const LIMIT: u64 = 1024 * 1024;

/// Where to look.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Named, and by what.
    pub(crate) named: Option<(&'static str, PathBuf)>,
    /// Where the upward search begins.
    pub(crate) from: Option<PathBuf>,
    /// The last place.
    pub(crate) config_dir: Option<PathBuf>,
}

/// The file and what is in it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Places {
    /// In words, for somebody whose file was not found.
    pub(crate) fn words(&self) -> String {
        let upward = self.from.as_ref().map(|from| format!("in {} and each folder above it", from.display()));
        let last = self.last().map(|path| format!("for {}", path.display()));
        let all: Vec<String> = upward.into_iter().chain(last).collect();
        format!("looked for {NAME} {}; name one with --config FILE or SEMEL_CONFIG", all.join(", then "))
    }

    fn last(&self) -> Option<PathBuf> {
        self.config_dir.as_ref().map(|dir| dir.join("semel").join(NAME))
    }

    /// The file, if there is one.
    pub(crate) fn find(&self) -> Result<Option<Found>, Trouble> {
        if let Some((by, path)) = &self.named {
            // absolute, so that what is relative to it does not depend on who asks
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            return match open(&path, None) {
                Ok(text) => Ok(Some(Found { path, text })),
                Err(Refused::Absent(why)) => Err(Trouble::config(format!("{by} {}: {why}", path.display()))),
                Err(Refused::Stranger) => Err(stranger(&path)),
                Err(Refused::Unsafe(why)) => Err(Trouble::config(format!("{}: {why}", path.display()))),
            };
        }
        let upward = self.from.iter().flat_map(|from| from.ancestors()).map(|folder| folder.join(NAME));
        for path in upward.chain(self.last()) {
            // one call where there is none, which is nearly everywhere
            let Ok(there) = std::fs::symlink_metadata(&path) else { continue };
            match open(&path, Some(there.uid())) {
                Ok(text) => return Ok(Some(Found { path, text })),
                Err(Refused::Absent(_)) => {}
                Err(Refused::Stranger) if is_open_to_all(&path) => {}
                Err(Refused::Stranger) => return Err(stranger(&path)),
                Err(Refused::Unsafe(why)) => {
                    return Err(Trouble::config(format!("{}: {why}", path.display())));
                }
            }
        }
        Ok(None)
    }
}

enum Refused {
    Absent(String),
    /// It was found, and is neither ours nor root's.
    Stranger,
    Unsafe(String),
}

fn stranger(path: &Path) -> Trouble {
    Trouble::config(format!(
        "{} belongs to another user and is not read: it could run commands as you; name it with --config FILE if you trust its owner",
        path.display()
    ))
}

fn is_open_to_all(path: &Path) -> bool {
    path.parent()
        .is_some_and(|folder| std::fs::metadata(folder).is_ok_and(|folder| folder.mode() & 0o002 != 0))
}

fn euid() -> u32 {
    // SAFETY: it cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

fn egid() -> u32 {
    // SAFETY: it cannot fail and touches no memory.
    unsafe { libc::getegid() }
}

/// What is in it, if it may be trusted; of a file that was only found, `link` owns the name.
fn open(path: &Path, link: Option<u32>) -> Result<String, Refused> {
    let is_ours = |uid: u32| uid == 0 || uid == euid();
    if link.is_some_and(|uid| !is_ours(uid)) {
        return Err(Refused::Stranger);
    }
    // a pipe of that name must not keep us waiting
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(|why| match why.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Refused::Absent(why.to_string()),
        _ => Refused::Unsafe(format!("it cannot be read: {why}")),
    })?;
    let meta = file.metadata().map_err(|why| Refused::Unsafe(why.to_string()))?;
    if !meta.is_file() {
        return Err(Refused::Unsafe("it is no regular file".into()));
    }
    if link.is_some() && !is_ours(meta.uid()) {
        return Err(Refused::Stranger);
    }
    // a group of one's own has the number of its user, and nobody else in it
    let own_group = meta.gid() == egid() && meta.gid() == euid();
    if meta.mode() & 0o002 != 0 || (meta.mode() & 0o020 != 0 && !own_group) {
        let why = format!(
            "others can write it, and it runs commands as you; mend it with: chmod go-w {}",
            path.display()
        );
        return Err(Refused::Unsafe(why));
    }
    let mut text = Vec::new();
    file.take(LIMIT + 1)
        .read_to_end(&mut text)
        .map_err(|why| Refused::Unsafe(format!("it cannot be read: {why}")))?;
    if text.len() as u64 > LIMIT {
        return Err(Refused::Unsafe(format!("it is larger than {LIMIT} bytes")));
    }
    String::from_utf8(text).map_err(|_| Refused::Unsafe("it is not UTF-8".into()))
}
