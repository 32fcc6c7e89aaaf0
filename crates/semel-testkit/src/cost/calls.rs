//! System calls of Semel's own code, by strace: a file per thread, from which it is told who each of them was.

use std::collections::BTreeMap;
use std::path::Path;

use super::home::Home;

/// What waits for the disk.
const SYNCS: [&str; 6] = ["fsync", "fdatasync", "sync_file_range", "msync", "syncfs", "sync"];
/// What makes a thread or a process.
const BIRTHS: [&str; 4] = ["clone", "clone3", "fork", "vfork"];

/// Those that wait for the disk, and all.
pub(super) fn count(home: &Home, words: &[String]) -> [u64; 2] {
    let strace = crate::program("strace").expect("strace is missing: install it with cargo xtask test");
    let folder = home.path("trace");
    std::fs::create_dir(&folder).unwrap();
    let mut command = home.command(&strace);
    command.args(["-ff", "-qq", "-s", "0", "-e", "signal=none", "-o"]).arg(folder.join("of"));
    home.end(command.arg(home.semel()).args(words).spawn().unwrap());
    let threads = std::fs::read_dir(&folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let number = path.extension().unwrap().to_str().unwrap().parse().unwrap();
        (number, String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned())
    });
    Traced::new(threads.collect(), home.semel()).own()
}

/// What every thread called.
struct Traced {
    threads: BTreeMap<u32, String>,
    /// How a line begins by which a process becomes Semel.
    becomes: String,
}

impl Traced {
    fn new(threads: BTreeMap<u32, String>, semel: &Path) -> Traced {
        Traced { threads, becomes: format!("execve(\"{}\",", semel.display()) }
    }

    fn own(&self) -> [u64; 2] {
        let born = self.threads.values().flat_map(|text| text.lines().filter_map(birth));
        let born: Vec<u32> = born.collect();
        let mut first = self.threads.keys().filter(|thread| !born.contains(thread));
        let counted = self.from(*first.next().unwrap(), false);
        assert!(first.next().is_none(), "nobody made one of the threads {:?}", self.threads.keys());
        assert!(counted[1] > 0, "nothing of {:?} was seen", self.becomes);
        counted
    }

    /// The calls of a thread and of all that came from it, as far as they are Semel's.
    fn from(&self, thread: u32, mut is_own: bool) -> [u64; 2] {
        let mut counted = [0, 0];
        for line in self.threads.get(&thread).map_or("", String::as_str).lines() {
            let Some(call) = name(line) else { continue };
            if let Some(born) = birth(line) {
                let below = self.from(born, is_own);
                counted = [counted[0] + below[0], counted[1] + below[1]];
            }
            if is_own {
                counted[0] += u64::from(SYNCS.contains(&call));
                counted[1] += 1;
            }
            if call == "execve" && line.ends_with(" = 0") {
                is_own = line.starts_with(&self.becomes);
            }
        }
        counted
    }
}

/// The call of a line, if it is one.
fn name(line: &str) -> Option<&str> {
    let name = line.split('(').next()?;
    let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    (!name.is_empty() && name.len() < line.len() && name.chars().all(is_name)).then_some(name)
}

/// Who was born by it.
fn birth(line: &str) -> Option<u32> {
    let call = name(line)?;
    BIRTHS.contains(&call).then(|| line.rsplit(" = ").next()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_semels_own_is_told_from_the_rest() {
        let texts = [
            (
                10,
                "execve(\"/s/semel\", [\"\"...], 0x7f /* 3 vars */) = 0\nbrk(NULL) = 0x55\n\
                 clone3({flags=CLONE_VM|CLONE_THREAD} => {parent_tid=[11]}, 88) = 11\n\
                 clone(child_stack=NULL, flags=SIGCHLD) = 12\n--- SIGCHLD {} ---\nexit_group(0) = ?\n+++ exited with 0 +++\n",
            ),
            (11, "fdatasync(3) = 0\nfutex(0x1, FUTEX_WAIT) = 0\n"),
            (12, "vfork() = 13\nwait4(-1, 0x1, 0, NULL) = 13\n"),
            (13, "dup2(3, 1) = 1\nexecve(\"/bin/sh\", [\"\"...], 0x7f) = 0\nbrk(NULL) = 0\nfork() = 14\n"),
            (14, "brk(NULL) = 0\nexecve(\"/s/semel\", [\"\"...], 0x7f) = 0\nfsync(1) = 0\n"),
        ];
        let threads = texts.map(|(thread, text)| (thread, text.to_owned())).into_iter().collect();
        // of 10 without its own start: brk, clone3, clone, exit_group; 11: both; 12: both; 13: up to its exec; 14: fsync
        assert_eq!(Traced::new(threads, Path::new("/s/semel")).own(), [2, 11]);
    }
}
