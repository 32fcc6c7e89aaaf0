//! A person sets the fence; a fence that is damaged, strange or busy.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use semel::sink::file::{FileSinkError, Refusal, Setting};
use semel_core::token::Token;

use crate::support::{Folder, content, grant, name, why};

fn setting(resource: &str, last: u64, back: bool) -> Setting {
    let last = Token::new(last).ok();
    Setting { resource: name(resource), last, by: "anna".into(), because: "it moved".into(), back }
}

#[test]
fn the_fence_is_one_line_that_people_can_read() {
    let folder = Folder::new();
    assert_eq!(folder.fence(), None);
    folder.write(3).unwrap();
    let text = std::fs::read_to_string(folder.path("target.txt.fence")).unwrap();
    let nonce = "01".repeat(16);
    assert_eq!(
        text,
        format!(
            "{{\"v\":1,\"fence\":{{\"resource\":\"site\",\"last\":{{\"token\":3,\"nonce\":\"{nonce}\"}}}}}}\n"
        )
    );
}

#[test]
fn a_person_gives_a_file_to_another_resource() {
    let folder = Folder::new();
    folder.write(9).unwrap();
    let set = folder.sink().set_fence(&setting("shop", 2, false)).unwrap();
    assert!(set.is_persons() && folder.fence() == Some(set));
    assert_eq!(why(&folder.write(10)), Some(Refusal::OtherResource));
    let put = |token| folder.sink().write(&name("shop"), &grant(token), content(token).as_bytes());
    for shut_out in [1, 2] {
        let Err(FileSinkError::Refused(refused)) = put(shut_out) else {
            panic!("{shut_out} was let through")
        };
        assert!(!refused.is_alarm() && refused.to_string().contains("anna set its fence to 2"), "{refused}");
    }
    put(3).unwrap();
    let fence = folder.fence().unwrap();
    assert!(!fence.is_persons() && fence.set.unwrap().because == "it moved");
    // and back to the first, from its first token on
    folder.sink().set_fence(&setting("site", 0, false)).unwrap();
    folder.write(1).unwrap();
}

#[test]
fn a_person_sets_it_back_only_when_that_is_said() {
    let folder = Folder::new();
    folder.write(9).unwrap();
    for back in [0, 8] {
        let line = folder.sink().set_fence(&setting("site", back, false)).unwrap_err().to_string();
        assert!(line.contains("stands at token 9 of site") && line.contains("--back"), "{line}");
    }
    assert_eq!(folder.fenced(), 9);
    folder.write(9).unwrap();
    // forward to the token itself: its holder is shut out
    folder.sink().set_fence(&setting("site", 9, false)).unwrap();
    assert_eq!(why(&folder.write(9)), Some(Refusal::Clash));
    folder.sink().set_fence(&setting("site", 3, true)).unwrap();
    assert_eq!(why(&folder.write(2)), Some(Refusal::Stale));
    folder.write(4).unwrap();
    assert_eq!(folder.holds(), 4);
}

#[test]
fn a_damaged_fence_lets_nobody_through_until_a_person_sets_it() {
    for text in ["", "{", "\0\0\0\0", "{\"v\":1}x", "{\"v\":1,\"fence\":{\"resource\":\"\"}}"] {
        let folder = Folder::new();
        folder.write(3).unwrap();
        std::fs::write(folder.path("target.txt.fence"), text).unwrap();
        for line in [
            folder.write(4).unwrap_err().to_string(),
            folder.sink().fence().unwrap_err().to_string(),
            folder.sink().set_fence(&setting("site", 9, false)).unwrap_err().to_string(),
        ] {
            assert!(line.contains("damaged") && line.contains("semel fence set"), "{text:?}: {line}");
        }
        assert_eq!(std::fs::read_to_string(folder.path("target.txt.fence")).unwrap(), text);
        assert_eq!(folder.holds(), 3);
        folder.sink().set_fence(&setting("site", 3, true)).unwrap();
        folder.write(4).unwrap();
    }
}

#[test]
fn a_fence_of_a_newer_version_is_left_alone() {
    let folder = Folder::new();
    let text = "{\"v\":2,\"fences\":[]}\n";
    std::fs::write(folder.path("target.txt.fence"), text).unwrap();
    for line in [
        folder.write(4).unwrap_err().to_string(),
        folder.sink().set_fence(&setting("site", 9, true)).unwrap_err().to_string(),
    ] {
        assert!(line.contains("newer Semel (format 2"), "{line}");
    }
    assert_eq!(std::fs::read_to_string(folder.path("target.txt.fence")).unwrap(), text);
    assert_eq!(folder.names(), ["target.txt.fence"]);
}

#[test]
fn what_stands_where_the_fence_should_be_is_not_touched() {
    let strange = |make: &dyn Fn(&Folder)| {
        let folder = Folder::new();
        make(&folder);
        let names = folder.names();
        let line = folder.write(1).unwrap_err().to_string();
        assert!(line.contains("is not a file"), "{line}");
        assert_eq!(folder.names(), names);
    };
    strange(&|folder| symlink("/etc/passwd", folder.path("target.txt.fence")).unwrap());
    strange(&|folder| std::fs::create_dir(folder.path("target.txt.fence")).unwrap());
    strange(&|folder| drop(std::os::unix::net::UnixListener::bind(folder.path("target.txt.fence")).unwrap()));
}

#[test]
fn the_wait_for_the_lock_ends() {
    let folder = Folder::new();
    folder.write(1).unwrap();
    let fence = File::open(folder.path("target.txt.fence")).unwrap();
    fence.lock().unwrap();
    let start = Instant::now();
    let busy =
        folder.sink().lock_wait(Duration::from_millis(50)).write(&name("site"), &grant(2), "x".as_bytes());
    let line = match busy {
        Err(why @ FileSinkError::Busy { .. }) => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(line.contains("locked by another writer") && line.contains("nothing was written"), "{line}");
    assert!((50..5_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    // looking needs no lock
    assert_eq!((folder.fenced(), folder.holds()), (1, 1));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| folder.write(2));
        drop(fence);
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(folder.holds(), 2);
}

#[test]
fn only_what_a_dead_writer_left_for_this_file_is_swept() {
    let folder = Folder::new();
    folder.write(1).unwrap();
    let dead = [".target.txt.semel-00000000000000aa", ".target.txt.fence.semel-00000000000000bb"];
    let kept = [
        ".other.txt.semel-00000000000000aa",
        ".target.txt.semel-00000000000000AA",
        ".target.txt.semel-",
        "target.txt.semel-00000000000000aa",
    ];
    for name in dead.iter().chain(&kept) {
        std::fs::write(folder.path(name), "x").unwrap();
    }
    let alive = folder.path(".target.txt.semel-00000000000000cc");
    let lock = File::create(&alive).unwrap();
    lock.lock().unwrap();
    folder.write(2).unwrap();
    assert!(alive.exists() && kept.iter().all(|name| folder.path(name).exists()));
    assert!(!dead.iter().any(|name| folder.path(name).exists()), "{:?}", folder.names());
    drop(lock);
    folder.write(3).unwrap();
    assert!(!alive.exists());
}
