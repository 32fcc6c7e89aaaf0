//! Killed -9 at every boundary, and the order in which the disk is told.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use semel::sink::file::Refusal;
use semel_testkit::{Chance, rounds};

use crate::support::{Folder, content, why};

/// Every boundary, in order; whether the fence has advanced there, and whether the target is new.
const POINTS: [(&str, bool, bool); 10] = [
    ("file.begin", false, false),
    ("file.opened", false, false),
    ("file.locked", false, false),
    ("file.checked", false, false),
    ("file.fence.before", false, false),
    ("file.fence.after", true, false),
    ("file.temp.synced", true, false),
    ("file.rechecked", true, false),
    ("file.renamed", true, true),
    ("file.done", true, true),
];

/// Kill a write with token 5 there.
fn crash(folder: &Folder, point: &str) {
    let mut probe = folder.probe(Some(point));
    probe.order("write 5 1 1000");
    probe.wait_stopped();
    probe.kill_9();
}

#[test]
fn killed_anywhere_the_content_is_old_or_new_and_the_fence_never_goes_back() {
    for (point, advanced, renamed) in POINTS {
        for retry_with in [5, 6] {
            let folder = Folder::new();
            folder.write(4).unwrap();
            crash(&folder, point);
            let expected = (if advanced { 5 } else { 4 }, if renamed { 5 } else { 4 });
            assert_eq!((folder.fenced(), folder.holds()), expected, "{point}");
            // the holder before it is out as soon as the fence has advanced, whatever became of the content
            let zombie = folder.write(4);
            assert_eq!(why(&zombie), advanced.then_some(Refusal::Stale), "{point}");
            // nobody is waited for: locks end with their process
            let sink = folder.sink().lock_wait(Duration::ZERO);
            sink.write(
                &crate::support::name("site"),
                &crate::support::grant(retry_with),
                content(retry_with).as_bytes(),
            )
            .unwrap();
            assert_eq!((folder.fenced(), folder.holds()), (retry_with, retry_with), "{point}");
            folder.write(7).unwrap();
            assert_eq!(folder.names(), ["target.txt", "target.txt.fence"], "{point}");
        }
    }
}

#[test]
fn the_first_write_of_all_killed_anywhere_leaves_nothing_in_the_way() {
    for (point, advanced, renamed) in POINTS {
        let folder = Folder::new();
        crash(&folder, point);
        let expected = (if advanced { 5 } else { 0 }, if renamed { 5 } else { 0 });
        assert_eq!((folder.fenced(), folder.holds()), expected, "{point}");
        folder.write(6).unwrap();
        assert_eq!(folder.names(), ["target.txt", "target.txt.fence"], "{point}");
    }
}

#[test]
fn killed_at_any_moment_nothing_is_torn_and_nothing_goes_back() {
    let mut chance = Chance::new("killed at any moment");
    let folder = Folder::new();
    let (mut fenced, mut held, mut token) = (0, 0, 0);
    for round in 0..rounds(200) {
        let mut probe = folder.probe(None);
        let base = token;
        for _ in 0..20 {
            token += 1;
            probe.order(&format!("write {token} 1 1000"));
        }
        for _ in 0..chance.below(4) {
            probe.answer();
        }
        // when to kill, not what to wait for
        std::thread::sleep(Duration::from_micros(chance.below(5_000)));
        probe.kill_9();
        let now = (folder.fenced(), folder.holds());
        assert!(
            now.0 >= fenced && now.1 >= held && now.0 >= now.1 && now.0 <= token,
            "round {round}: {now:?}"
        );
        (fenced, held) = now;
        if round % 4 == 0 && base > 0 {
            assert_eq!(
                why(&folder.write(fenced.saturating_sub(1).max(1))),
                (fenced > 1).then_some(Refusal::Stale)
            );
        }
    }
    token += 1;
    folder.write(token).unwrap();
    assert_eq!((folder.fenced(), folder.holds()), (token, token));
    assert_eq!(folder.names(), ["target.txt", "target.txt.fence"]);
}

/// What of the disk's orders concerns us, in order, by the names without their random parts.
fn orders(folder: &Folder, words: &[&str]) -> Vec<String> {
    let trace = folder.path("trace");
    let mut child = Command::new("strace")
        .args(["-qq", "-y", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2,link,linkat", "-o"])
        .args([&trace, std::path::Path::new(env!("CARGO_BIN_EXE_semel-file-probe"))])
        .arg(folder.target())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("this test needs strace: install it (cargo xtask does)");
    child.stdin.take().unwrap().write_all((words.join("\n") + "\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let text = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(trace).unwrap();
    let known = |line: &str| {
        let call = line.split('(').next().unwrap().trim_end_matches("at2").trim_end_matches("at").to_owned();
        let what = match line {
            line if line.contains("fence.semel-") => "fence draft",
            line if line.contains("txt.semel-") => "temp",
            _ => "folder",
        };
        format!("{call} {what}")
    };
    text.lines().filter(|line| line.contains('(') && !line.starts_with("---")).map(known).collect()
}

/// What a power cut leaves is what was synced: the fence first, then the content, each before its name and its name
/// before anything that follows.
#[test]
fn the_disk_is_told_in_the_right_order() {
    let folder = Folder::new();
    let made = ["fsync fence draft", "link fence draft", "fsync folder"];
    let advanced = ["fsync fence draft", "rename fence draft", "fsync folder"];
    let replaced = ["fsync temp", "rename temp", "fsync folder"];
    assert_eq!(orders(&folder, &["write 1 1 1000"]), [made, advanced, replaced].concat());
    assert_eq!(orders(&folder, &["write 2 1 1000"]), [advanced, replaced].concat());
    assert_eq!(orders(&folder, &["write 2 1 1000"]), replaced);
    assert_eq!(orders(&folder, &["write 1 1 1000"]), [""; 0], "a refusal touches nothing");
}
