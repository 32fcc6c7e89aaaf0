//! Instructions, by callgrind: on a processor that valgrind plays, so that every machine counts the same.

use std::path::Path;

use super::home::Home;

/// What is no Semel, and is left to the real processor.
const COMMANDS: &str = "*/sh,*/dash,*/bash,*/true,*/sleep,*/coreutils,*/busybox";

/// Those of the process and of `semel` inside it. Not those of the keeper, which waits, and looks as often as it is woken.
pub(super) fn count(valgrind: &Path, home: &Home, words: &[String]) -> u64 {
    let folder = home.path("counted");
    std::fs::create_dir(&folder).unwrap();
    let mut command = home.command(valgrind);
    command.args(["-q", "--tool=callgrind", "--trace-children=yes"]);
    command.arg(format!("--trace-children-skip={COMMANDS}"));
    command.arg(format!("--callgrind-out-file={}/of.%p", folder.display()));
    let main = home.end(command.arg(home.semel()).args(words).spawn().unwrap());
    let main = folder.join(format!("of.{main}"));
    let read = |path: &Path| Counted::read(&std::fs::read_to_string(path).unwrap());
    let outer = read(&main).expect("what callgrind has counted");
    let others = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let others = others.filter(|path| *path != main).filter_map(|path| read(&path));
    // a fork that became nothing else has the words of its parent
    outer.instructions
        + others.filter(|one| one.words != outer.words).map(|one| one.instructions).sum::<u64>()
}

struct Counted {
    words: String,
    instructions: u64,
}

impl Counted {
    /// None: whoever wrote this did not come to its end.
    fn read(text: &str) -> Option<Counted> {
        let after = |label: &str| text.lines().rev().find_map(|line| line.strip_prefix(label)).map(str::trim);
        let total = after("totals:").or_else(|| after("summary:"))?;
        Some(Counted { words: after("cmd:")?.to_owned(), instructions: total.parse().ok()? })
    }
}
