//! What is replaced, what is kept, what is refused.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use semel::sink::file::{FileSink, FileSinkError, Refusal, Wrote};

use crate::support::{Folder, content, grant, grant_with, name, why};

fn put(path: &Path, token: u64, text: &str) -> Result<Wrote, FileSinkError> {
    FileSink::new(path).write(&name("site"), &grant(token), text.as_bytes())
}

#[track_caller]
fn unusable(result: Result<Wrote, FileSinkError>, part: &str) {
    match result {
        Err(FileSinkError::Unusable(line)) => assert!(line.contains(part), "{part:?} is not in: {line}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn newer_tokens_and_the_same_grant_write_and_older_ones_do_not() {
    let folder = Folder::new();
    let first = folder.write(3).unwrap();
    assert!(first.created && first.advanced && first.owner_kept);
    assert_eq!((first.bytes, first.path), (content(3).len() as u64, folder.target().canonicalize().unwrap()));
    let again = folder.write(3).unwrap();
    assert!(!again.created && !again.advanced);
    assert_eq!(why(&folder.write(2)), Some(Refusal::Stale));
    assert_eq!((folder.holds(), folder.fenced()), (3, 3));
    folder.write(7).unwrap();
    for old in [1, 3, 6] {
        assert_eq!(why(&folder.write(old)), Some(Refusal::Stale));
    }
    assert_eq!((folder.holds(), folder.fenced()), (7, 7));
    assert_eq!(folder.names(), ["target.txt", "target.txt.fence"]);
}

#[test]
fn one_token_given_twice_is_an_alarm() {
    let folder = Folder::new();
    folder.write(3).unwrap();
    let Err(FileSinkError::Refused(refused)) =
        folder.sink().write(&name("site"), &grant_with(3, 2), "x".as_bytes())
    else {
        panic!("it was let through");
    };
    assert!(refused.why == Refusal::Clash && refused.is_alarm());
    assert!(refused.to_string().starts_with("ALARM: "), "{refused}");
    assert_eq!(folder.holds(), 3);
    folder.write(3).unwrap();
}

#[test]
fn a_file_belongs_to_one_resource() {
    let folder = Folder::new();
    folder.write(3).unwrap();
    let result = folder.sink().write(&name("shop"), &grant(9), "x".as_bytes());
    assert_eq!(why(&result), Some(Refusal::OtherResource));
    let line = result.unwrap_err().to_string();
    let target = folder.target().canonicalize().unwrap();
    let command = format!("semel fence set {} --resource shop --token 8 --because TEXT", target.display());
    assert!(line.contains("belongs to site (its last token was 3)") && line.contains(&command), "{line}");
    assert_eq!(folder.holds(), 3);
}

#[test]
fn the_content_is_not_read_before_the_fence_lets_it_through() {
    struct Never;
    impl Read for Never {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            panic!("it was read");
        }
    }
    let folder = Folder::new();
    folder.write(3).unwrap();
    assert_eq!(why(&folder.sink().write(&name("site"), &grant(2), Never)), Some(Refusal::Stale));
}

/// The content of a slow source keeps nobody waiting, and is worth nothing once a newer holder has written.
#[test]
fn a_newer_holder_writes_while_the_content_of_an_older_one_comes_in() {
    struct Slow<'a>(&'a Folder, u32);
    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            match self.1 {
                2 => self.0.write(5).map(|_| ()).map_err(io::Error::other)?,
                1 | 3 => {}
                _ => return Ok(0),
            }
            buffer[0] = b'x';
            Ok(1)
        }
    }
    let folder = Folder::new();
    folder.write(3).unwrap();
    let late = folder.sink().write(&name("site"), &grant(4), Slow(&folder, 0));
    assert_eq!(why(&late), Some(Refusal::Stale));
    assert_eq!((folder.holds(), folder.fenced()), (5, 5));
    assert_eq!(folder.names(), ["target.txt", "target.txt.fence"]);
}

#[test]
fn a_source_that_fails_half_way_changes_nothing_but_the_fence() {
    struct Breaks(u32);
    impl Read for Breaks {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            match self.0 {
                1 => Err(io::ErrorKind::Interrupted.into()),
                2 => Ok(buffer.len()),
                _ => Err(io::Error::other("the cable is cut")),
            }
        }
    }
    let folder = Folder::new();
    folder.write(3).unwrap();
    let result = folder.sink().write(&name("site"), &grant(4), Breaks(0));
    assert!(
        matches!(&result, Err(FileSinkError::Source(why)) if why.to_string().contains("cable")),
        "{result:?}"
    );
    assert_eq!((folder.holds(), folder.fenced()), (3, 4));
    assert_eq!(folder.names(), ["target.txt", "target.txt.fence"]);
    folder.write(4).unwrap();
}

#[test]
fn content_of_any_length_goes_through() {
    let folder = Folder::new();
    for (token, length) in [(1, 0), (2, 1), (3, 128 * 1024), (4, 128 * 1024 + 1), (5, 20_000_000)] {
        let wrote = folder.sink().write(&name("site"), &grant(token), io::repeat(b'x').take(length)).unwrap();
        assert_eq!((wrote.bytes, std::fs::metadata(folder.target()).unwrap().len()), (length, length));
    }
}

#[test]
fn a_link_is_followed_to_the_file_which_is_fenced_where_it_lies() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("real")).unwrap();
    std::fs::create_dir(folder.path("other")).unwrap();
    let real = folder.path("real/file");
    std::fs::write(&real, "old").unwrap();
    symlink("../real/file", folder.path("other/a")).unwrap();
    symlink(folder.path("other/a"), folder.path("b")).unwrap();
    symlink("other", folder.path("side")).unwrap();
    put(&folder.path("b"), 5, "new").unwrap();
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "new");
    assert!(folder.path("b").is_symlink() && folder.path("other/a").is_symlink());
    assert!(folder.path("real/file.fence").is_file() && !folder.path("b.fence").exists());
    // whatever name it is written by, the fence is one
    for spelling in ["real/file", "other/a", "side/a", "side/../real/./file"] {
        assert_eq!(why(&put(&folder.path(spelling), 4, "stale")), Some(Refusal::Stale), "{spelling}");
    }
    // a link to nothing yet: as with `>`, what it names is made
    symlink("real/fresh", folder.path("c")).unwrap();
    put(&folder.path("c"), 1, "fresh").unwrap();
    assert_eq!(std::fs::read_to_string(folder.path("real/fresh")).unwrap(), "fresh");
    symlink("round", folder.path("round")).unwrap();
    unusable(put(&folder.path("round"), 1, "x"), "round in circles");
    symlink("nowhere/file", folder.path("lost")).unwrap();
    unusable(put(&folder.path("lost"), 1, "x"), "there is no folder");
}

#[test]
fn a_link_is_refused_if_so_said() {
    let folder = Folder::new();
    std::fs::write(folder.target(), "old").unwrap();
    symlink("target.txt", folder.path("link")).unwrap();
    symlink(".", folder.path("side")).unwrap();
    let put = |path: &str| {
        FileSink::new(folder.path(path)).no_follow(true).write(&name("site"), &grant(1), "new".as_bytes())
    };
    unusable(put("link"), "--no-follow");
    assert_eq!(folder.names(), ["link", "side", "target.txt"]);
    put("side/target.txt").unwrap();
    put("target.txt").unwrap();
}

#[test]
fn of_several_hard_links_this_name_is_replaced() {
    let folder = Folder::new();
    std::fs::write(folder.target(), "old").unwrap();
    std::fs::hard_link(folder.target(), folder.path("other")).unwrap();
    folder.write(1).unwrap();
    assert_eq!(folder.holds(), 1);
    assert_eq!(std::fs::read_to_string(folder.path("other")).unwrap(), "old");
}

#[test]
fn what_is_not_a_file_is_refused_and_left_alone() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("folder")).unwrap();
    let fifo = std::ffi::CString::new(folder.path("fifo").as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends with a nul.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    symlink("/dev/null", folder.path("null")).unwrap();
    let before = folder.names();
    for (path, part) in [
        ("folder", "is a folder"),
        ("fifo", "is a pipe"),
        ("null", "is a device"),
        ("folder/", "names a folder"),
        ("folder/.", "names a folder"),
        ("folder/..", "names a folder"),
        ("none/file", "there is no folder"),
        ("target.txt/file", "there is no folder"),
        ("x.fence", "a name that Semel keeps"),
        (".x.semel-0123456789abcdef", "a name that Semel keeps"),
    ] {
        unusable(put(&folder.path(path), 1, "x"), part);
    }
    unusable(put(Path::new(""), 1, "x"), "empty");
    unusable(put(Path::new("/"), 1, "x"), "names a folder");
    unusable(put(&folder.path(&"n".repeat(240)), 1, "x"), "too long a name");
    unusable(put(&folder.path("a\0b"), 1, "x"), "zero byte");
    put(&folder.path(&"n".repeat(225)), 1, "x").unwrap();
    std::fs::remove_file(folder.path(&"n".repeat(225))).unwrap();
    std::fs::remove_file(folder.path(&format!("{}.fence", "n".repeat(225)))).unwrap();
    assert_eq!(folder.names(), before);
    assert!(std::fs::metadata("/dev/null").unwrap().rdev() != 0);
}

#[test]
fn names_of_any_bytes_are_written() {
    let folder = Folder::new();
    for bytes in [&b"with space"[..], b"-dash", b"new\nline", b"\xff\xfe", "ümläut".as_bytes(), b".hidden"]
    {
        let path = folder.path("").join(std::ffi::OsStr::from_bytes(bytes));
        put(&path, 2, "x").unwrap();
        assert_eq!(why(&put(&path, 1, "y")), Some(Refusal::Stale));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
    }
}
