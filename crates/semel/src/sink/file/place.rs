//! Where a target really lies, and what lies there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::error::FileSinkError;
use super::temp;

/// As many links as the kernel follows.
const LINK_LIMIT: usize = 40;

/// What a file system gives to a name.
const NAME_LIMIT: usize = 255;

/// A target, resolved.
#[derive(Debug)]
pub(super) struct Place {
    /// The folder, without links.
    pub(super) folder: PathBuf,
    /// The name in it.
    pub(super) name: OsString,
    /// Both.
    pub(super) path: PathBuf,
    /// The fence's name beside it.
    pub(super) fence_name: OsString,
    /// The fence.
    pub(super) fence: PathBuf,
}

/// A file that is to be replaced, as the new one is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Like {
    pub(super) path: PathBuf,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    changed: (i64, i64),
}

impl Place {
    pub(super) fn find(given: &Path, no_follow: bool) -> Result<Place, FileSinkError> {
        let mut path = given.to_owned();
        let mut links = 0;
        let (folder, name) = loop {
            let (folder, name) = split(given, &path)?;
            let here = folder.join(&name);
            match fs::read_link(&here) {
                Ok(_) if no_follow => {
                    let line = format!(
                        "{} is a symbolic link, which --no-follow refuses: name the file itself",
                        given.display()
                    );
                    return Err(FileSinkError::Unusable(line));
                }
                Ok(_) if links == LINK_LIMIT => {
                    let line = format!("{} is a link that leads round in circles: mend it", given.display());
                    return Err(FileSinkError::Unusable(line));
                }
                Ok(to) => path = folder.join(to),
                // not there, or not a link
                Err(_) => break (folder, name),
            }
            links += 1;
        };
        let mut fence_name = name.clone();
        fence_name.push(".fence");
        let (path, fence) = (folder.join(&name), folder.join(&fence_name));
        let place = Place { folder, name, path, fence_name, fence };
        place.target()?;
        Ok(place)
    }

    /// The file that stands there, if there is one; anything but a file is refused.
    pub(super) fn target(&self) -> Result<Option<Like>, FileSinkError> {
        let found = match fs::symlink_metadata(&self.path) {
            Ok(found) => found,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(FileSinkError::io("cannot look at", &self.path, &why)),
        };
        check_kind(&self.path, &found)?;
        let changed = (found.ctime(), found.ctime_nsec());
        Ok(Some(Like {
            path: self.path.clone(),
            mode: found.mode(),
            uid: found.uid(),
            gid: found.gid(),
            changed,
        }))
    }
}

/// The real folder of a path, and the name in it.
fn split(given: &Path, path: &Path) -> Result<(PathBuf, OsString), FileSinkError> {
    let wrong =
        |why: &str| FileSinkError::Unusable(format!("{} {why}: give the path of a file", given.display()));
    if path.as_os_str().is_empty() {
        return Err(FileSinkError::Unusable("the path is empty: give the path of a file".into()));
    }
    let ends_as_folder = matches!(path.as_os_str().as_bytes(), [.., b'/'] | [.., b'/', b'.']);
    let name = path.file_name().filter(|_| !ends_as_folder).ok_or_else(|| wrong("names a folder"))?;
    // room for the longest of our names beside it
    if name.len() > NAME_LIMIT - temp::NAME_EXTRA - ".fence".len() {
        return Err(wrong("has too long a name for a fence and a temp file beside it"));
    }
    if name.as_bytes().contains(&0) {
        return Err(wrong("holds a zero byte"));
    }
    if is_ours(name) {
        return Err(wrong("is a name that Semel keeps for its own files"));
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let real = fs::canonicalize(folder).map_err(|why| match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FileSinkError::Unusable(format!(
            "{}: there is no folder {} ({why}): make it, or give another path",
            given.display(),
            folder.display()
        )),
        _ => FileSinkError::io("cannot reach the folder", folder, &why),
    })?;
    Ok((real, name.to_owned()))
}

/// A fence, or a temp file: to replace one would be to lose a fence.
fn is_ours(name: &OsStr) -> bool {
    name.as_bytes().ends_with(b".fence") || temp::is_temp(name)
}

fn check_kind(path: &Path, found: &Metadata) -> Result<(), FileSinkError> {
    let kind = found.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a folder",
        () if kind.is_symlink() => "a link by now",
        () if kind.is_fifo() || kind.is_socket() => "a pipe or a socket",
        () => "a device",
    };
    Err(FileSinkError::Unusable(format!(
        "{} is {what}: nothing was written; give the path of a file",
        path.display()
    )))
}
