//! From system calls to what happened to the disk.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::disk::{Id, Op, ROOT};
use crate::tracer::{Role, Stop, Tree, Watch};

/// One line of the log.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Something happened to the disk.
    Disk(Op),
    /// The world was told something.
    Told(Told),
}

/// What the world was told, and so may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// A command of this run was started: what it is for has been claimed.
    Started(usize),
    /// `semel` inside this run ended well: its step is done.
    Stepped(usize),
    /// This run ended well: it is done.
    Done(usize),
}

/// Writes down what happens in one folder.
pub(crate) struct Recorder {
    root: PathBuf,
    /// The name below the root that is of interest.
    only: &'static str,
    device: u64,
    next: Id,
    names: HashMap<(Id, String), Id>,
    inodes: HashMap<u64, Id>,
    pub(crate) events: Vec<Event>,
    /// The run that is traced.
    pub(crate) run: usize,
}

impl Recorder {
    pub(crate) fn new(root: &Path, only: &'static str) -> Recorder {
        let found = std::fs::metadata(root).unwrap();
        Recorder {
            root: std::fs::canonicalize(root).unwrap(),
            only,
            device: found.dev(),
            next: ROOT + 1,
            names: HashMap::new(),
            inodes: HashMap::from([(found.ino(), ROOT)]),
            events: Vec::new(),
            run: 0,
        }
    }

    fn log(&mut self, op: Op) {
        self.events.push(Event::Disk(op));
    }

    /// The folder and the last name of a path, if it is of interest.
    fn place(&self, path: &Path) -> Option<(Id, String)> {
        let below = path.strip_prefix(&self.root).ok()?;
        let mut parts: Vec<String> = Vec::new();
        for part in below.components() {
            match part {
                Component::Normal(name) => parts.push(name.to_str()?.to_owned()),
                Component::CurDir => {}
                _ => panic!("a path that goes back is not followed: {}", path.display()),
            }
        }
        if parts.first()? != self.only {
            return None;
        }
        let name = parts.pop()?;
        let mut folder = ROOT;
        for part in parts {
            folder = *self.names.get(&(folder, part))?;
        }
        Some((folder, name))
    }

    /// The path in a call: a folder's descriptor and a text.
    fn path(&self, stop: &Stop, folder: Option<u64>, text: u64) -> PathBuf {
        let text = stop.text(text);
        if text.is_absolute() {
            return text;
        }
        let of = match folder.map(|fd| fd as u32 as i32) {
            None | Some(libc::AT_FDCWD) => format!("/proc/{}/cwd", stop.thread),
            Some(fd) => format!("/proc/{}/fd/{fd}", stop.thread),
        };
        std::fs::read_link(of).unwrap_or_default().join(text)
    }

    /// The file or folder of a descriptor, if it is known.
    fn open(&self, stop: &Stop, fd: u64) -> Option<Id> {
        let found = std::fs::metadata(format!("/proc/{}/fd/{}", stop.thread, fd as u32 as i32)).ok()?;
        (found.dev() == self.device).then(|| self.inodes.get(&found.ino()).copied()).flatten()
    }

    fn made(&mut self, path: &Path, is_folder: bool) {
        let Some((folder, name)) = self.place(path) else { return };
        if self.names.contains_key(&(folder, name.clone())) {
            return;
        }
        let id = self.next;
        self.next += 1;
        // an inode's number may come again once it is free: the newest one has it
        self.inodes.insert(std::fs::symlink_metadata(path).unwrap().ino(), id);
        self.names.insert((folder, name.clone()), id);
        self.log(Op::Make { folder, name, id, is_folder });
    }

    fn opened(&mut self, stop: &Stop, path: &Path, flags: u64, fd: i64) {
        let has = |flag: i32| flags & flag as u64 != 0;
        if has(libc::O_CREAT) {
            self.made(path, false);
        }
        if has(libc::O_TRUNC)
            && let Some(id) = self.open(stop, fd as u64)
        {
            self.log(Op::Cut { id, length: 0 });
        }
    }

    fn linked(&mut self, from: &Path, to: &Path) {
        let (Some(from), Some((folder, name))) = (self.place(from), self.place(to)) else { return };
        let id = self.names[&from];
        self.names.insert((folder, name.clone()), id);
        self.log(Op::Link { folder, name, id });
    }

    fn moved(&mut self, from: &Path, to: &Path) {
        let (Some((folder, name)), Some((to, new))) = (self.place(from), self.place(to)) else { return };
        let id = self.names.remove(&(folder, name.clone())).unwrap();
        self.names.insert((to, new.clone()), id);
        self.log(Op::Move { folder, name, to, new, id });
    }

    fn removed(&mut self, path: &Path) {
        let Some((folder, name)) = self.place(path) else { return };
        if self.names.remove(&(folder, name.clone())).is_some() {
            self.log(Op::Remove { folder, name });
        }
    }

    /// So many bytes were written to a descriptor, from its own place if no other is given.
    fn wrote(&mut self, stop: &Stop, length: i64, at: Option<u64>) {
        let Some(id) = self.open(stop, stop.args[0]) else { return };
        let length = u64::try_from(length).unwrap();
        let at = at.unwrap_or_else(|| position(stop) - length);
        let data = stop.memory(stop.args[1], usize::try_from(length).unwrap());
        assert_eq!(data.len() as u64, length, "what was written cannot be read");
        self.log(Op::Write { id, at, data });
    }

    fn disk(&mut self, stop: &Stop, answer: i64) {
        let [a, b, c, d, ..] = stop.args;
        match stop.call {
            libc::SYS_openat => self.opened(stop, &self.path(stop, Some(a), b), c, answer),
            libc::SYS_mknodat => self.made(&self.path(stop, Some(a), b), false),
            libc::SYS_mkdirat => self.made(&self.path(stop, Some(a), b), true),
            libc::SYS_linkat => self.linked(&self.path(stop, Some(a), b), &self.path(stop, Some(c), d)),
            libc::SYS_renameat | libc::SYS_renameat2 => {
                self.moved(&self.path(stop, Some(a), b), &self.path(stop, Some(c), d));
            }
            libc::SYS_unlinkat => self.removed(&self.path(stop, Some(a), b)),
            libc::SYS_write => self.wrote(stop, answer, None),
            libc::SYS_pwrite64 => self.wrote(stop, answer, Some(d)),
            libc::SYS_ftruncate => {
                if let Some(id) = self.open(stop, a) {
                    self.log(Op::Cut { id, length: b });
                }
            }
            libc::SYS_fsync | libc::SYS_fdatasync => {
                if let Some(id) = self.open(stop, a) {
                    self.log(Op::Sync { id });
                }
            }
            libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 | libc::SYS_fallocate => {
                assert!(self.open(stop, a).is_none(), "call {} is not understood here", stop.call);
            }
            libc::SYS_copy_file_range | libc::SYS_sendfile => {
                assert!(
                    self.open(stop, c).is_none() && self.open(stop, a).is_none(),
                    "a copy is not understood"
                );
            }
            libc::SYS_mmap
                if b != 0 && d & libc::MAP_SHARED as u64 != 0 && c & libc::PROT_WRITE as u64 != 0 =>
            {
                let fd = stop.args[4];
                let name = std::fs::read_link(format!("/proc/{}/fd/{fd}", stop.thread)).unwrap_or_default();
                let is_shared = name.to_string_lossy().ends_with("-shm");
                assert!(
                    is_shared || self.open(stop, fd).is_none(),
                    "a write to memory is not seen: {name:?}"
                );
            }
            call => self.older(stop, call, answer),
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn older(&mut self, stop: &Stop, call: i64, answer: i64) {
        let [a, b, ..] = stop.args;
        match call {
            libc::SYS_open => self.opened(stop, &self.path(stop, None, a), b, answer),
            libc::SYS_mknod => self.made(&self.path(stop, None, a), false),
            libc::SYS_mkdir => self.made(&self.path(stop, None, a), true),
            libc::SYS_link => self.linked(&self.path(stop, None, a), &self.path(stop, None, b)),
            libc::SYS_rename => self.moved(&self.path(stop, None, a), &self.path(stop, None, b)),
            libc::SYS_unlink | libc::SYS_rmdir => self.removed(&self.path(stop, None, a)),
            _ => {}
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn older(&mut self, _: &Stop, _: i64, _: i64) {}
}

/// Where a descriptor stands.
fn position(stop: &Stop) -> u64 {
    let info = std::fs::read_to_string(format!("/proc/{}/fdinfo/{}", stop.thread, stop.args[0])).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("pos:")).unwrap();
    line.trim().parse().unwrap()
}

impl Watch for Recorder {
    fn at(&mut self, stop: &Stop, _: &Tree) {
        match stop.answer {
            Some(answer) if answer >= 0 => self.disk(stop, answer),
            None if stop.call == libc::SYS_exit_group && stop.args[0] == 0 => match stop.role {
                Role::Semel => self.events.push(Event::Told(Told::Done(self.run))),
                Role::Nested => self.events.push(Event::Told(Told::Stepped(self.run))),
                Role::Keeper | Role::NestedKeeper | Role::Other => {}
            },
            _ => {}
        }
    }

    fn became(&mut self, role: Role) {
        if role == Role::Other {
            self.events.push(Event::Told(Told::Started(self.run)));
        }
    }
}
