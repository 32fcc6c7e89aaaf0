//! Modes, owners and attributes.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::skips::skipped;
use crate::support::{Folder, Probe};

/// Nobody, on most systems; any other than ours will do.
const OTHER: u32 = 65_534;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    // SAFETY: it cannot fail and touches no memory.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn the_mode_is_kept_and_the_fence_has_it_too() {
    let folder = Folder::new();
    folder.write(1).unwrap();
    assert_eq!((mode(&folder.target()), mode(&folder.path("target.txt.fence"))), (0o600, 0o600));
    for (token, bits) in [(2, 0o644), (3, 0o400), (4, 0o664), (5, 0o751)] {
        set_mode(&folder.target(), bits);
        folder.write(token).unwrap();
        assert_eq!((mode(&folder.target()), mode(&folder.path("target.txt.fence"))), (bits, bits));
    }
    // a write takes these away, whoever it is by
    set_mode(&folder.target(), 0o6755);
    folder.write(6).unwrap();
    assert_eq!(mode(&folder.target()), 0o755);
}

#[test]
fn the_owner_is_kept() {
    if !is_root() {
        return skipped("the_owner_is_kept", "needs root");
    }
    let folder = Folder::new();
    std::fs::write(folder.target(), "old").unwrap();
    set_mode(&folder.target(), 0o640);
    chown(folder.target(), Some(OTHER), Some(OTHER)).unwrap();
    assert!(folder.write(1).unwrap().owner_kept);
    for path in [folder.target(), folder.path("target.txt.fence")] {
        let found = std::fs::metadata(path).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (OTHER, OTHER, 0o640));
    }
}

#[test]
fn an_owner_that_cannot_be_kept_gives_nobody_more_than_before() {
    let name = "an_owner_that_cannot_be_kept_gives_nobody_more_than_before";
    if !is_root() {
        return skipped(name, "needs root");
    }
    let folder = Folder::new();
    chown(folder.path(""), Some(OTHER), Some(OTHER)).unwrap();
    for (token, before, after) in [(1, 0o664, 0o644), (2, 0o660, 0o600)] {
        std::fs::write(folder.target(), "old").unwrap();
        chown(folder.target(), Some(0), Some(0)).unwrap();
        set_mode(&folder.target(), before);
        // as somebody who may replace the file, but not give it away
        let started = Probe::start_with(&folder.target(), None, |command| {
            command.uid(OTHER).gid(OTHER);
        });
        let Ok(mut probe) = started else { return skipped(name, "the helper program is not for everybody") };
        let answer = probe.ask(&format!("write {token} 1 1000"));
        assert!(answer.starts_with("wrote") && answer.ends_with("changed"), "{answer}");
        let found = std::fs::metadata(folder.target()).unwrap();
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (OTHER, OTHER, after));
        assert_eq!(mode(&folder.path("target.txt.fence")), after);
    }
}

#[test]
fn somebody_who_may_not_write_there_is_told_so() {
    let name = "somebody_who_may_not_write_there_is_told_so";
    if !is_root() {
        return skipped(name, "needs root");
    }
    let folder = Folder::new();
    set_mode(&folder.path(""), 0o755);
    folder.write(1).unwrap();
    let started = Probe::start_with(&folder.target(), None, |command| {
        command.uid(OTHER).gid(OTHER);
    });
    let Ok(mut probe) = started else { return skipped(name, "the helper program is not for everybody") };
    let answer = probe.ask("write 2 1 1000");
    assert!(answer.contains("Permission denied") && answer.contains("nothing was written"), "{answer}");
    assert_eq!((folder.holds(), folder.fenced()), (1, 1));
}

#[cfg(target_os = "linux")]
fn attribute(path: &Path, name: &CStr) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut value = vec![0_u8; 1024];
    // SAFETY: path and name end with a nul, and the buffer is as long as it says.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}

#[cfg(target_os = "linux")]
fn set_attribute(path: &Path, name: &CStr, value: &[u8]) -> bool {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: path and name end with a nul, and the value is as long as it says.
    unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) == 0 }
}

#[cfg(target_os = "linux")]
#[test]
fn the_access_list_and_the_users_attributes_are_kept() {
    // tag, permissions, id: the owner, one other user, the group, the mask, everybody
    let entries =
        [(1_u16, 6_u16, u32::MAX), (2, 4, OTHER), (4, 0, u32::MAX), (16, 4, u32::MAX), (32, 0, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let folder = Folder::new();
    std::fs::write(folder.target(), "old").unwrap();
    let (access, note) = (c"system.posix_acl_access", c"user.note");
    if !set_attribute(&folder.target(), access, &list) || !set_attribute(&folder.target(), note, b"mine") {
        return skipped("the_access_list_and_the_users_attributes_are_kept", "this file system has none");
    }
    folder.write(1).unwrap();
    assert_eq!(attribute(&folder.target(), access), Some(list.clone()));
    assert_eq!(attribute(&folder.target(), note), Some(b"mine".to_vec()));
    assert_eq!(attribute(&folder.path("target.txt.fence"), access), Some(list));
    assert_eq!(attribute(&folder.path("target.txt.fence"), note), None);
}
