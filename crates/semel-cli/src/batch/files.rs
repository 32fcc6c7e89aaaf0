//! The files in which items are laid before their commands: one for each that is under way at a time, written over for the
//! next. To make a file and to remove it costs more than everything else that is done with it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use semel_core::token::Nonce;

use crate::task::{ITEM_SUFFIX, RunFile};

const MODE: u32 = 0o600;

/// Files that nobody uses. A clone shares them. When the last clone goes, so do they.
#[derive(Clone, Debug, Default)]
pub(crate) struct ItemFiles {
    idle: Arc<Mutex<Vec<Laid>>>,
    made: Arc<AtomicU64>,
}

/// A file with an item in it. Dropped, it is there for another: the commands that knew of it must be gone by then.
#[derive(Debug)]
pub(crate) struct ItemFile {
    laid: Option<Laid>,
    home: ItemFiles,
}

#[derive(Debug)]
struct Laid {
    place: RunFile,
    /// What we made under that name.
    inode: (u64, u64),
}

impl ItemFiles {
    /// Lay out an item among the files of runs.
    pub(crate) fn lay_out(&self, runs: &Path, nonce: &Nonce, text: &[u8]) -> io::Result<ItemFile> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let laid = match idle {
            Some(laid) => laid.again(text)?,
            None => {
                let n = self.made.fetch_add(1, Ordering::Relaxed);
                Laid::new(RunFile::named(runs, nonce, &format!("-{n}{ITEM_SUFFIX}")), text)?
            }
        };
        Ok(ItemFile { laid: Some(laid), home: self.clone() })
    }
}

impl ItemFile {
    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.laid.as_ref().map(|laid| laid.place.path().to_owned()).unwrap_or_default()
    }

    /// The same item once more, whatever became of the file. One that cannot be written is given up.
    pub(crate) fn again(mut self, text: &[u8]) -> io::Result<ItemFile> {
        self.laid = self.laid.take().map(|laid| laid.again(text)).transpose()?;
        Ok(self)
    }
}

impl Drop for ItemFile {
    fn drop(&mut self) {
        if let Some(laid) = self.laid.take() {
            self.home.idle.lock().unwrap_or_else(PoisonError::into_inner).push(laid);
        }
    }
}

impl Laid {
    fn new(mut place: RunFile, text: &[u8]) -> io::Result<Laid> {
        let made = place.write(text)?.metadata()?;
        Ok(Laid { place, inode: (made.dev(), made.ino()) })
    }

    /// Written over if it is still the file that we made, and nobody else's too: a command may do with it what it likes.
    fn again(self, text: &[u8]) -> io::Result<Laid> {
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.place.path());
        let found = opened.and_then(|file| file.metadata().map(|found| (file, found)));
        match found {
            Ok((mut file, found))
                if (found.dev(), found.ino()) == self.inode
                    && found.nlink() == 1
                    && found.mode() & 0o7777 == MODE =>
            {
                file.write_all(text)?;
                if found.len() > text.len() as u64 {
                    file.set_len(text.len() as u64)?;
                }
                Ok(self)
            }
            _ => Laid::new(self.place, text),
        }
    }
}
