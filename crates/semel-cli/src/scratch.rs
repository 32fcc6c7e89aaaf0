//! A private directory that is removed again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The directory; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A new one below the system's place for such.
    pub(crate) fn new(purpose: &str) -> io::Result<Scratch> {
        use std::os::unix::fs::DirBuilderExt;
        let random = getrandom::u64().map_err(|why| io::Error::other(why.to_string()))?;
        let dir = std::env::temp_dir().join(format!("semel-{purpose}-{random:016x}"));
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(Scratch(dir))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // what is left there holds no secret, and the next boot removes it
        let _ = fs::remove_dir_all(&self.0);
    }
}
