//! What of the writes and syncs of a run survives without power.
//!
//! A model that is harder than most file systems. What was written to a file is safe from the sync of that file on; a
//! name, from the sync of the folder that it stands in. Nothing else makes anything safe: not a close, not a later
//! write, not the sync of another file. Of what is not safe, any part may be there: each sector of 512 bytes, each
//! name. A move happens as a whole, or not at all.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use semel_testkit::Chance;

/// A file or a folder, whatever its names.
pub(crate) type Id = usize;

/// The folder that everything is seen from. It is always there.
pub(crate) const ROOT: Id = 0;

/// What a disk may write by half.
const SECTOR: u64 = 512;

/// What happened.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A new file or folder.
    Make {
        folder: Id,
        name: String,
        id: Id,
        is_folder: bool,
    },
    /// Another name.
    Link {
        folder: Id,
        name: String,
        id: Id,
    },
    Remove {
        folder: Id,
        name: String,
    },
    Move {
        folder: Id,
        name: String,
        to: Id,
        new: String,
        id: Id,
    },
    Write {
        id: Id,
        at: u64,
        data: Vec<u8>,
    },
    Cut {
        id: Id,
        length: u64,
    },
    Sync {
        id: Id,
    },
}

/// What is kept of that which was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Nothing,
    All,
    /// What came first, up to some moment.
    Beginning,
    /// Any of it, writes by sectors.
    Any,
}

/// A disk with what is safe on it, and what is not yet.
#[derive(Clone)]
pub(crate) struct Disk {
    safe: Content,
    pending: Vec<Op>,
}

#[derive(Clone)]
struct Content {
    folders: HashMap<Id, BTreeMap<String, Id>>,
    files: HashMap<Id, Vec<u8>>,
}

impl Disk {
    pub(crate) fn new() -> Disk {
        let folders = HashMap::from([(ROOT, BTreeMap::new())]);
        Disk { safe: Content { folders, files: HashMap::new() }, pending: Vec::new() }
    }

    /// This happens next.
    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::Sync { id } => {
                let pending = std::mem::take(&mut self.pending).into_iter();
                let (synced, pending): (Vec<Op>, Vec<Op>) = pending.partition(|op| touches(op, *id));
                self.pending = pending;
                for op in &synced {
                    self.safe.apply(op);
                    if let Op::Move { folder, name, .. } = op {
                        // the old name went with it, safe or not
                        self.pending.retain(|op| !makes(op, *folder, name));
                    }
                }
            }
            Op::Make { id, is_folder, .. } => {
                // it exists, but nobody finds it before its name is safe
                if *is_folder {
                    self.safe.folders.entry(*id).or_default();
                } else {
                    self.safe.files.entry(*id).or_default();
                }
                self.pending.push(op.clone());
            }
            op => self.pending.push(op.clone()),
        }
    }

    /// How much is not safe.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The folder as it may be found after a power cut now.
    pub(crate) fn build(&self, at: &Path, kept: Kept, chance: &mut Chance) {
        let mut content = self.safe.clone();
        let beginning = chance.below(self.pending.len() as u64 + 1) as usize;
        for (index, op) in self.pending.iter().enumerate() {
            match kept {
                Kept::Nothing => {}
                Kept::All => content.apply(op),
                Kept::Beginning if index < beginning => content.apply(op),
                Kept::Beginning => {}
                Kept::Any => content.apply_some(op, chance),
            }
        }
        content.write_out(ROOT, at, &mut HashMap::new());
    }
}

fn touches(op: &Op, synced: Id) -> bool {
    match op {
        Op::Make { folder, .. } | Op::Link { folder, .. } | Op::Remove { folder, .. } => *folder == synced,
        Op::Move { folder, to, .. } => *folder == synced || *to == synced,
        Op::Write { id, .. } | Op::Cut { id, .. } | Op::Sync { id } => *id == synced,
    }
}

fn makes(op: &Op, at: Id, called: &str) -> bool {
    matches!(op, Op::Make { folder, name, .. } | Op::Link { folder, name, .. } if *folder == at && name == called)
}

impl Content {
    fn names(&mut self, folder: Id) -> &mut BTreeMap<String, Id> {
        self.folders.entry(folder).or_default()
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Make { folder, name, id, .. } | Op::Link { folder, name, id } => {
                self.names(*folder).insert(name.clone(), *id);
            }
            Op::Remove { folder, name } => drop(self.names(*folder).remove(name)),
            Op::Move { folder, name, to, new, id } => {
                self.names(*folder).remove(name);
                self.names(*to).insert(new.clone(), *id);
            }
            Op::Write { id, at, data } => {
                let file = self.files.entry(*id).or_default();
                let begin = usize::try_from(*at).unwrap();
                let end = begin + data.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[begin..end].copy_from_slice(data);
            }
            Op::Cut { id, length } => {
                self.files.entry(*id).or_default().resize(usize::try_from(*length).unwrap(), 0);
            }
            Op::Sync { .. } => {}
        }
    }

    fn apply_some(&mut self, op: &Op, chance: &mut Chance) {
        let Op::Write { id, at, data } = op else {
            if chance.coin() {
                self.apply(op);
            }
            return;
        };
        let (mut from, mut rest) = (*at, data.as_slice());
        while !rest.is_empty() {
            let room = usize::try_from(SECTOR - from % SECTOR).unwrap().min(rest.len());
            let (sector, others) = rest.split_at(room);
            if chance.coin() {
                self.apply(&Op::Write { id: *id, at: from, data: sector.to_vec() });
            }
            (from, rest) = (from + room as u64, others);
        }
    }

    fn write_out(&self, folder: Id, at: &Path, written: &mut HashMap<Id, std::path::PathBuf>) {
        use std::os::unix::fs::DirBuilderExt;
        std::fs::DirBuilder::new().mode(0o700).create(at).unwrap();
        for (name, id) in self.folders.get(&folder).into_iter().flatten() {
            let path = at.join(name);
            match self.files.get(id) {
                None => self.write_out(*id, &path, written),
                // shared memory, which no disk keeps
                Some(_) if name.ends_with("-shm") => {}
                Some(bytes) => match written.get(id) {
                    Some(first) => std::fs::hard_link(first, &path).unwrap(),
                    None => {
                        std::fs::write(&path, bytes).unwrap();
                        written.insert(*id, path);
                    }
                },
            }
        }
    }
}
