//! A full disk and a read-only one, at every write.

use std::path::PathBuf;
use std::process::Command;

use semel::sink::file::{FileSink, FileSinkError};

use crate::skips::skipped;
use crate::support::{Folder, content, grant, name, token_in};

/// A small file system of its own, gone with the test.
struct Disk(PathBuf);

impl Disk {
    fn new(folder: &Folder, test: &str) -> Option<Disk> {
        let path = folder.path("disk");
        std::fs::create_dir(&path).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=128k", "tmpfs"]).arg(&path).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Disk(path)),
            Ok(output) => {
                skipped(test, String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(why) => {
                skipped(test, &why.to_string());
                None
            }
        }
    }

    /// Leave so many pages free.
    fn fill(&self, but_pages: u64) {
        let path = self.0.join("ballast");
        let _ = std::fs::write(&path, vec![0; 256 * 1024]);
        let length = std::fs::metadata(&path).unwrap().len();
        let ballast = std::fs::File::options().write(true).open(&path).unwrap();
        ballast.set_len(length.saturating_sub(4096 * but_pages)).unwrap();
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn full_at_any_page_the_old_content_stays_and_the_fence_is_whole() {
    let folder = Folder::new();
    let Some(disk) = Disk::new(&folder, "full_at_any_page_the_old_content_stays_and_the_fence_is_whole")
    else {
        return;
    };
    let sink = FileSink::new(disk.0.join("target.txt"));
    let put = |token| sink.write(&name("site"), &grant(token), content(token).as_bytes());
    let held = || token_in(&std::fs::read_to_string(disk.0.join("target.txt")).unwrap());
    let fenced = || sink.fence().unwrap().unwrap().last.unwrap().token.value();
    // nine pages long
    let mut token = 999_999_900;
    put(token).unwrap();
    let (mut full, mut done) = (0, 0);
    for pages in 0..14 {
        let before = (token, fenced());
        disk.fill(pages);
        match put(token + 1) {
            Ok(_) => done += 1,
            Err(FileSinkError::Failed(line)) => {
                assert!(line.contains("the disk is full") && line.contains("nothing was written"), "{line}");
                assert_eq!(held(), before.0);
                full += 1;
            }
            Err(why) => panic!("{pages} pages: {why}"),
        }
        assert!(fenced() >= before.1 && fenced() <= token + 1);
        disk.free();
        token += 1;
        put(token).unwrap();
        assert_eq!((held(), fenced()), (token, token));
    }
    assert!(full > 5 && done > 1, "{full} full, {done} done");
    let left = std::fs::read_dir(&disk.0).unwrap().count();
    assert_eq!(left, 2, "the target and its fence");
}

#[test]
fn read_only_it_says_so() {
    let folder = Folder::new();
    let Some(disk) = Disk::new(&folder, "read_only_it_says_so") else { return };
    let sink = FileSink::new(disk.0.join("target.txt"));
    let put = |token| sink.write(&name("site"), &grant(token), content(token).as_bytes());
    put(1).unwrap();
    let remount = |how| Command::new("mount").args(["-o", how]).arg(&disk.0).status().unwrap().success();
    assert!(remount("remount,ro"));
    let line = put(2).unwrap_err().to_string();
    assert!(line.contains("Read-only file system") && line.contains("nothing was written"), "{line}");
    assert_eq!(sink.fence().unwrap().unwrap().last.unwrap().token.value(), 1);
    assert!(remount("remount,rw"));
    put(2).unwrap();
}
