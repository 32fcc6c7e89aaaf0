//! The folder of the store: its marker, its rooms, its mode and its clock.
//!
//! ```text
//! PATH/semel-dir   the marker: what this folder is, and its format
//! PATH/drafts/     files and folders that are not yet where they belong
//! PATH/records/    a folder for each record
//! PATH/clock/      an empty folder whose time is set to read the file server's clock
//! ```
//!
//! The store's folder is made if there is none, and nothing above it: where a mount is missing, the folder above is
//! missing as well, and a store is not begun anew on the disk below the mount.
//!
//! Why the clock is a folder: its time is set by the server alone. A file's may be kept by a client for a while
//! (delegated timestamps of NFS 4.2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fault::Fault;
use super::page::FORMAT;
use super::sys::{self, Folder};

const MARKER: &str = "semel-dir";
const DRAFTS: &str = "drafts";
pub(super) const RECORDS: &str = "records";
const CLOCK: &str = "clock";

/// The store's folder, open.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) root: Folder,
    pub(super) drafts: Folder,
    clock: File,
    /// May the group write? Then what is made here is for the group as well.
    pub(super) shared: bool,
}

impl Place {
    /// Open the folder; make it if there is none.
    pub(super) fn open(path: &Path) -> Result<Place, Fault> {
        let fault = |doing: &'static str| move |why: io::Error| Fault::io(path, doing, why);
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {
                if let Some(above) = path.parent() {
                    Folder::open(above).and_then(|above| above.sync()).map_err(fault("make the folder"))?;
                }
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                return Err(Fault::said(format!(
                    "the folder above {} does not exist: is it mounted? Else make it",
                    path.display()
                )));
            }
            // what is there is looked at next
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) if path.is_dir() => drop(why),
            Err(why) => return Err(fault("make the folder")(why)),
        }
        let root = match Folder::open(path) {
            Err(why) if why.raw_os_error() == Some(libc::ENOTDIR) => {
                return Err(Fault::said(format!("{} is not a folder: give another path", path.display())));
            }
            root => root.map_err(fault("open the folder"))?,
        };
        let mode =
            root.as_file().and_then(|root| root.metadata()).map_err(fault("look at the folder"))?.mode();
        let shared = mode & 0o020 != 0;
        if !is_marked(&root, path)? {
            begin(&root, path, shared)?;
        }
        let drafts = root.folder(Path::new(DRAFTS)).map_err(fault("open the folder of drafts"))?;
        let clock = root.folder(Path::new(CLOCK)).and_then(|clock| clock.as_file());
        let clock = clock.map_err(fault("open the folder of the clock"))?;
        Ok(Place { path: path.to_owned(), root, drafts, clock, shared })
    }

    /// Now, by the file server's clock.
    pub(super) fn now(&self) -> Result<Duration, Fault> {
        let now = sys::stamp(&self.clock).and_then(|()| self.clock.metadata());
        now.map(|found| sys::times(&found).modified)
            .map_err(|why| Fault::io(&self.path, "read the file server's clock", why))
    }

    /// A name that nobody else uses.
    pub(super) fn fresh(&self) -> Result<String, Fault> {
        Ok(format!("{}-{}", std::process::id(), nonce()?))
    }

    /// Make a folder below the store's.
    pub(super) fn make_folder(&self, below: &Path) -> io::Result<()> {
        make_folder(&self.root, below, self.shared)
    }

    /// Make an empty file to write, among the drafts.
    pub(super) fn make_file(&self, name: &str) -> io::Result<File> {
        make_file(&self.drafts, name, self.shared)
    }

    /// The way to a draft from the store's folder.
    pub(super) fn draft(name: &str) -> PathBuf {
        Path::new(DRAFTS).join(name)
    }
}

/// 128 random bits, as text.
pub(super) fn nonce() -> Result<String, Fault> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|why| Fault::said(format!("there are no random bytes: {why}")))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

fn make_folder(root: &Folder, below: &Path, shared: bool) -> io::Result<()> {
    root.make_folder(below, if shared { 0o770 } else { 0o700 })?;
    if shared {
        // whatever the umask; the bit that hands the group on is inherited and must stay
        let made = root.folder(below)?.as_file()?;
        let inherited = made.metadata()?.mode() & 0o2000;
        made.set_permissions(std::fs::Permissions::from_mode(0o770 | inherited))?;
    }
    Ok(())
}

/// Also for a file in a folder of drafts.
pub(super) fn make_file(folder: &Folder, name: &str, shared: bool) -> io::Result<File> {
    let file = folder.make_file(name, if shared { 0o660 } else { 0o600 })?;
    if shared {
        file.set_permissions(std::fs::Permissions::from_mode(0o660))?;
    }
    Ok(file)
}

fn marker() -> String {
    format!("semel-dir {FORMAT}: a store of Semel. Change nothing here by hand.\n")
}

/// The format that a marker names.
fn format_of(marker: &str) -> String {
    let digits = marker.trim_start_matches("semel-dir ").chars().take_while(char::is_ascii_digit).take(9);
    Some(digits.collect::<String>())
        .filter(|digits| !digits.is_empty())
        .unwrap_or_else(|| "unknown".to_owned())
}

fn is_marked(root: &Folder, path: &Path) -> Result<bool, Fault> {
    let mut text = String::new();
    match root.file(MARKER).and_then(|file| file.take(4096).read_to_string(&mut text)) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(why) => Err(Fault::io(path, "read the marker", why)),
        Ok(_) if text == marker() => Ok(true),
        Ok(_) if text.starts_with("semel-dir ") => Err(Fault::said(format!(
            "{} was made by a newer Semel (format {}, this one knows {FORMAT}): upgrade this one",
            path.display(),
            format_of(&text)
        ))),
        Ok(_) => Err(Fault::said(format!(
            "{}/{MARKER} is not the marker of a store: give another folder",
            path.display()
        ))),
    }
}

/// Make the rooms and then the marker. Many may do so at once. The marker is made as a version is, by a link: so a
/// file system without them is refused here.
fn begin(root: &Folder, path: &Path, shared: bool) -> Result<(), Fault> {
    let fault = |doing: &'static str| move |why: io::Error| Fault::io(path, doing, why);
    let mut foreign = None;
    let ours = [MARKER, DRAFTS, RECORDS, CLOCK, "lost+found"].map(str::as_bytes);
    let listed = root.names(|name| {
        if !ours.contains(&name) && !name.starts_with(b".") {
            foreign = Some(String::from_utf8_lossy(name).into_owned());
        }
    });
    listed.map_err(fault("list the folder"))?;
    if let Some(foreign) = foreign {
        return Err(Fault::said(format!(
            "{} holds other files ({foreign:?}) and no store: give a new or an empty folder",
            path.display()
        )));
    }
    for room in [DRAFTS, RECORDS, CLOCK] {
        match make_folder(root, Path::new(room), shared) {
            Err(why) if !sys::is_taken(&why) => return Err(fault("make a folder")(why)),
            _ => {}
        }
    }
    // where the marker is, the rooms are: whoever finds it makes none
    root.sync().map_err(fault("sync the folder"))?;
    let drafts = root.folder(Path::new(DRAFTS)).map_err(fault("open the folder of drafts"))?;
    let draft = format!("{}-{}", std::process::id(), nonce()?);
    let written = make_file(&drafts, &draft, shared)
        .and_then(|mut file| file.write_all(marker().as_bytes()).and_then(|()| file.sync_all()));
    let linked = written.map_err(fault("write the marker")).and_then(|()| {
        let linked = root.link(MARKER, &drafts, &draft);
        match linked {
            Ok(()) => Ok(()),
            // somebody else was faster, or an answer got lost
            Err(_) if is_marked(root, path)? => Ok(()),
            Err(why) if is_without_links(&why) => Err(Fault::said(format!(
                "the file system of {} has no hard links ({why}): give a folder on one that has",
                path.display()
            ))),
            Err(why) => Err(fault("link the marker")(why)),
        }
    });
    // a draft that stays is swept later
    let _ = drafts.unlink(&draft);
    linked?;
    root.sync().map_err(fault("sync the folder"))
}

fn is_without_links(why: &io::Error) -> bool {
    matches!(
        why.raw_os_error(),
        Some(libc::EPERM | libc::ENOSYS | libc::EOPNOTSUPP | libc::EXDEV | libc::EMLINK | libc::EINVAL)
    )
}
