//! Wrong setups, each with one clear line; modes; and what `semel doctor` is told.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use semel::core::record::Expect;
use semel::store::{Durability, Grade, Store, StoreError};

use crate::skips;
use crate::support::{Folder, PROBE, key, open, put};

async fn told(path: &std::path::Path) -> String {
    let store = open(path);
    let keys = [key("a")];
    match store.load(&keys).await {
        Err(StoreError::Unavailable(why)) => {
            assert!(!why.contains('\n'), "{why}");
            why
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_folder_above_that_is_missing_is_told_and_nothing_is_made() {
    let folder = Folder::new();
    let why = told(&folder.path.join("below")).await;
    assert!(why.contains("does not exist: is it mounted?"), "{why}");
    assert!(!folder.path.exists());
}

#[tokio::test]
async fn a_file_or_a_folder_of_other_things_is_refused() {
    let folder = Folder::new();
    std::fs::write(&folder.path, "x").unwrap();
    let why = told(&folder.path).await;
    assert!(why.contains("is not a folder"), "{why}");
    let why = told(folder.temp.path()).await;
    assert!(why.contains("holds other files (\"store\") and no store"), "{why}");
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let folder = Folder::new();
    std::fs::create_dir(&folder.path).unwrap();
    std::fs::write(folder.path.join("semel-dir"), "semel-dir 2: x\n").unwrap();
    let why = told(&folder.path).await;
    assert!(why.contains("newer Semel") && why.contains("upgrade"), "{why}");
}

#[tokio::test]
async fn a_damaged_file_is_told_and_no_other_record_suffers() {
    let folder = Folder::new();
    let store = folder.store();
    for name in ["a", "b"] {
        store.swap(&[put(name, Expect::Absent, "x", None)], Durability::Durable).await.unwrap();
    }
    std::fs::write(folder.path.join("records/=a/0000000000000001"), "semel-dir 1 put").unwrap();
    let why = told(&folder.path).await;
    assert!(why.contains("cannot be read: it is cut short"), "{why}");
    assert!(store.load(&[key("b")]).await.unwrap().records[0].is_some());
}

/// Where upper and lower case are one, two keys must not become one record.
#[tokio::test]
async fn a_name_that_stands_for_two_keys_is_refused() {
    let folder = Folder::new();
    let store = folder.store();
    store.swap(&[put("A", Expect::Absent, "x", None)], Durability::Durable).await.unwrap();
    std::fs::rename(folder.path.join("records/=A"), folder.path.join("records/=a")).unwrap();
    let why = told(&folder.path).await;
    assert!(why.contains("upper from lower case"), "{why}");
}

/// Orders in a mount namespace of their own, where the store's folder is mounted so.
fn mounted(folder: &Folder, mount: &str, orders: &str) -> Option<Vec<String>> {
    std::fs::create_dir_all(&folder.path).unwrap();
    let file = folder.temp.path().join("orders");
    std::fs::write(&file, orders).unwrap();
    let script = format!("{mount} && {PROBE} dir:$STORE < {}", file.display());
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .env("STORE", &folder.path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let answers: Vec<_> = text.lines().map(str::to_owned).collect();
    if answers.is_empty() {
        println!("{}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    Some(answers)
}

#[test]
fn a_full_disk_is_told_and_what_stands_there_can_be_read() {
    let folder = Folder::new();
    let large = "x".repeat(120_000);
    let orders =
        format!("open\nput a {large} durable\nput b {large} durable\nput c {large} durable\nload a\n");
    let mount = "mount -t tmpfs -o size=320k tmpfs $STORE";
    let Some(answers) = mounted(&folder, mount, &orders) else {
        skips::skipped("a full disk", "no file system can be mounted here");
        return;
    };
    let full = answers.iter().find(|answer| answer.starts_with("error")).expect("it was never full");
    assert!(full.contains("free some space"), "{full}");
    assert!(full.contains("the store is unavailable"), "surely not applied: {full}");
    assert!(answers.last().unwrap().starts_with("found xxx"), "{}", answers.last().unwrap());
}

#[tokio::test]
async fn a_read_only_folder_is_told_and_can_be_read() {
    let folder = Folder::new();
    folder.store().swap(&[put("a", Expect::Absent, "x", None)], Durability::Durable).await.unwrap();
    let mount = "mount --bind $STORE $STORE && mount -o remount,bind,ro $STORE";
    let Some(answers) = mounted(&folder, mount, "open\nload a\nput a y durable\nput b y durable\n") else {
        skips::skipped("a read-only folder", "nothing can be mounted here");
        return;
    };
    assert_eq!(answers[..2], ["ok open", "found x"]);
    for answer in &answers[2..] {
        assert!(
            answer.contains("the store is unavailable") && answer.contains("mounted read-only"),
            "{answer}"
        );
    }
}

#[test]
fn a_folder_of_another_user_is_told() {
    let folder = Folder::new();
    std::fs::create_dir(&folder.path).unwrap();
    let modes = [(&folder.path, 0o755), (&folder.temp.path().to_owned(), 0o755)];
    for (path, mode) in modes {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        skips::skipped("a folder of another user", "only root can become another");
        return;
    }
    let copy = folder.temp.path().join("probe");
    std::fs::copy(PROBE, &copy).unwrap();
    let mut child = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args([copy.as_os_str(), folder.url().as_ref()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("this test needs setpriv");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"open\nput a x durable\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("check the owner and the mode"), "{text}");
}

fn modes_below(path: &std::path::Path, all: &mut Vec<(bool, u32)>) {
    for entry in std::fs::read_dir(path).unwrap() {
        let found = entry.unwrap();
        let metadata = found.metadata().unwrap();
        all.push((metadata.is_dir(), metadata.permissions().mode() & 0o777));
        if metadata.is_dir() {
            modes_below(&found.path(), all);
        }
    }
}

#[tokio::test]
async fn what_is_made_is_private_unless_the_folder_is_shared_within_a_group() {
    for (given, folders, files) in
        [(None, 0o700, 0o600), (Some(0o755), 0o700, 0o600), (Some(0o2770), 0o770, 0o660)]
    {
        let folder = Folder::new();
        if let Some(mode) = given {
            std::fs::create_dir(&folder.path).unwrap();
            std::fs::set_permissions(&folder.path, PermissionsExt::from_mode(mode)).unwrap();
        }
        let store = folder.store();
        store.swap(&[put("a/b", Expect::Absent, "x", None)], Durability::Durable).await.unwrap();
        let mut all = Vec::new();
        modes_below(&folder.path, &mut all);
        assert!(all.len() > 6);
        for (is_folder, mode) in all {
            assert_eq!(mode, if is_folder { folders } else { files }, "{given:?}: {mode:o}");
        }
    }
}

#[tokio::test]
async fn the_doctor_is_told_of_links_clock_space_and_mode() {
    let folder = Folder::new();
    let store = folder.store();
    let findings = store.examine().await.unwrap();
    for name in ["file system", "compare and swap", "clock", "space", "mode"] {
        let finding = findings.iter().find(|finding| finding.name == name).expect(name);
        println!("{name}: {:?}: {}", finding.grade, finding.what);
    }
    let raced = findings.iter().find(|finding| finding.name == "compare and swap").unwrap();
    assert_eq!(raced.grade, Grade::Good, "{raced:?}");
    assert_eq!(folder.names("drafts"), [""; 0]);
    std::fs::set_permissions(&folder.path, PermissionsExt::from_mode(0o777)).unwrap();
    let findings = folder.store().examine().await.unwrap();
    let mode = findings.iter().find(|finding| finding.name == "mode").unwrap();
    assert!(mode.grade == Grade::Wrong && mode.mend.contains("chmod"), "{mode:?}");
}
