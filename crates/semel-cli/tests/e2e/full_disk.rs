//! A full disk and a read-only one, at every write.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Home, skipped};

/// A small file system of its own, gone with the test.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// Where the ledger and the state directory lie.
    pub(crate) fn new(home: &Home, test: &str) -> Option<Disk> {
        let path = home.path("store");
        std::fs::create_dir(&path).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"])
            .arg(&path)
            .output();
        match mounted {
            Ok(output) if output.status.success() => {
                std::os::unix::fs::symlink("store/state", home.path("state")).unwrap();
                std::fs::create_dir(path.join("state")).unwrap();
                Some(Disk(path))
            }
            Ok(output) => {
                skipped(test, String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(why) => {
                skipped(test, why);
                None
            }
        }
    }

    /// Leave at most so many pages free.
    fn fill(&self, but_pages: usize) {
        let path = self.0.join("ballast");
        let dd = Command::new("dd")
            .args(["if=/dev/zero", "bs=4096"])
            .arg(format!("of={}", path.display()))
            .output();
        assert!(String::from_utf8_lossy(&dd.unwrap().stderr).contains("No space left"));
        let length = std::fs::metadata(&path).unwrap().len();
        let kept = length.saturating_sub(4096 * but_pages as u64);
        std::fs::File::options().write(true).open(&path).unwrap().set_len(kept).unwrap();
    }

    pub(crate) fn free(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }

    fn remount(&self, how: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

const FILL: &str = "dd if=/dev/zero of=store/ballast bs=4096 2> /dev/null";

#[test]
fn full_at_the_claim_nothing_runs() {
    let home = Home::new();
    let Some(disk) = Disk::new(&home, "full_at_the_claim_nothing_runs") else { return };
    home.assert_whole();
    disk.fill(0);
    for _ in 0..2 {
        home.run("--job a --once", "echo x >> effects").exits(69).saying("full");
    }
    home.ask("lease acquire r").exits(69).saying("full");
    // what is done is not done again, whether or not the database can still be opened
    let said = home.run("--job whole-old --once", "echo x >> effects");
    assert!([0, 69].contains(&said.code), "{said:?}");
    assert_eq!(home.lines("effects").len(), 0);
    disk.free();
    home.run("--job a --once", "echo $SEMEL_ATTEMPT >> effects").exits(0).silent();
    assert_eq!(home.lines("effects"), ["1"], "the claim that failed left nothing on record");
    home.assert_whole();
}

#[test]
fn full_at_any_write_of_the_first_starts_it_is_said() {
    let home = Home::new();
    let Some(disk) = Disk::new(&home, "full_at_any_write_of_the_first_starts_it_is_said") else { return };
    for pages in 0..8 {
        disk.fill(pages);
        for half in 0..2 {
            let ran = home.lines("effects").len();
            let said = home.run(&format!("--job a --slot {pages}-{half} --ttl 1s"), "echo x >> effects");
            let ran = home.lines("effects").len() - ran;
            match said.code {
                69 => assert!(said.err.contains("full") && ran == 0, "{}", said.err),
                75 => assert!(said.err.contains("could not be recorded") && ran == 1, "{}", said.err),
                code => assert_eq!((code, ran), (0, 1), "{}", said.err),
            }
        }
        disk.free();
    }
    home.assert_whole();
}

#[test]
fn full_at_the_settle_is_said_and_the_next_run_takes_it_for_lost() {
    let home = Home::new();
    let Some(disk) = Disk::new(&home, "full_at_the_settle_is_said_and_the_next_run_takes_it_for_lost") else {
        return;
    };
    home.assert_whole();
    home.executable("probe", "grep -q x effects");
    let said = home.run("--job a --once --ttl 1s", &format!("echo x >> effects; {FILL}; true")).exits(75);
    said.saying("a succeeded, but that could not be recorded").saying("disk is full").saying("for lost");
    assert_eq!(home.lines("effects").len(), 1);
    disk.free();
    home.run("--job a --once --on-lost hold", "echo x >> effects").exits(79).saying("in doubt");
    assert_eq!(home.lines("effects").len(), 1);
    home.assert_whole();
}

#[test]
fn full_at_the_settle_with_a_probe_is_found_done() {
    let home = Home::new();
    let Some(disk) = Disk::new(&home, "full_at_the_settle_with_a_probe_is_found_done") else { return };
    home.assert_whole();
    home.executable("probe", "grep -q x effects");
    home.run("--job a --once --ttl 1s", &format!("echo x >> effects; {FILL}; exit 3"))
        .exits(3)
        .saying("could not be recorded");
    disk.free();
    home.run("--job a --once --probe ./probe --if-busy fail", "echo x >> effects").exits(0).silent();
    home.run("--job a --once", "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 1);
    home.assert_whole();
}

#[test]
fn space_that_is_freed_in_time_saves_the_outcome() {
    let home = Home::new();
    let Some(_disk) = Disk::new(&home, "space_that_is_freed_in_time_saves_the_outcome") else { return };
    home.assert_whole();
    let free = "( sleep 1; rm store/ballast ) > /dev/null 2>&1 &";
    let run = home.start("--job a --once", &format!("echo x >> effects; {FILL}; true"));
    home.wait_lines("effects", 1);
    let freeing = home
        .launch(&mut home.script(&format!("while [ ! -s store/ballast ]; do sleep 0.05; done; {free} wait")));
    run.end().exits(0).silent();
    freeing.end();
    home.run("--job a --once", "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 1);
    home.assert_whole();
}

#[test]
fn a_read_only_disk() {
    let home = Home::new();
    let Some(disk) = Disk::new(&home, "a_read_only_disk") else { return };
    disk.remount("ro");
    home.run("--job a --once", "echo x >> effects").exits(69).saying("ledger.db");
    disk.remount("rw");
    home.assert_whole();
    disk.remount("ro");
    home.run("--job a --once", "echo x >> effects").exits(69).saying("check the owner and the mode");
    home.ask("lease acquire r").exits(69).saying("check the owner and the mode");
    assert_eq!(home.lines("effects").len(), 0);
    disk.remount("rw");
    home.assert_whole();
}
