//! What is cleared away, and that nothing else is.

use semel::core::record::{Expect, Version};
use semel::store::{Change, Durability, Store};

use crate::support::{Folder, MINUTE, key, load, put};

async fn write(store: &dyn Store, name: &str, expect: Expect) -> Version {
    store.swap(&[put(name, expect, "x", None)], Durability::Durable).await.unwrap().remove(0)
}

#[tokio::test]
async fn old_versions_are_collected_by_who_writes() {
    let folder = Folder::new();
    let store = folder.store();
    let mut version = write(&store, "a", Expect::Absent).await;
    for _ in 0..60 {
        version = write(&store, "a", Expect::Version(version)).await;
    }
    let names = folder.names("records/=a");
    assert!(names.len() <= 18, "{names:?}");
    assert_eq!(names.first().unwrap(), "0000000000000000");
    assert_eq!(names.last().unwrap(), &format!("{:016x}", 61));
    assert_eq!(load(&store, "a").await.unwrap().version, version);
    // relaxed ones as well, only later
    for _ in 0..100 {
        let change = put("a", Expect::Version(version), "x", None);
        version = store.swap(&[change], Durability::Relaxed).await.unwrap().remove(0);
    }
    assert!(folder.names("records/=a").len() < 80);
}

#[tokio::test]
async fn renewals_are_collected_and_keep_the_version() {
    let folder = Folder::new();
    let store = folder.store();
    let lease = put("lease/a", Expect::Absent, "x", MINUTE);
    let version = store.swap(&[lease], Durability::Durable).await.unwrap().remove(0);
    for _ in 0..40 {
        store.touch(&key("lease/a"), &version).await.unwrap();
    }
    assert!(folder.names("records/@lease/=a").len() <= 18);
    assert_eq!(load(&store, "lease/a").await.unwrap().version, version);
}

#[tokio::test]
async fn a_removed_record_leaves_nothing_but_the_folders_above() {
    let folder = Folder::new();
    let store = folder.store();
    let version = write(&store, "a/b/c", Expect::Absent).await;
    write(&store, "a/b", Expect::Absent).await;
    let remove = Change::Remove { key: key("a/b/c"), expect: Expect::Version(version) };
    store.swap(&[remove], Durability::Durable).await.unwrap();
    assert_eq!(folder.names("records/@a/@b"), [""; 0]);
    assert_eq!(folder.names("drafts"), [""; 0]);
    // an empty folder goes once it is old, and not before
    store.tidy().await.unwrap();
    assert_eq!(folder.names("records/@a"), ["=b", "@b"]);
    folder.age("records/@a/@b");
    store.tidy().await.unwrap();
    assert_eq!(folder.names("records/@a"), ["=b"]);
    write(&store, "a/b/c", Expect::Absent).await;
}

#[tokio::test]
async fn a_draft_is_swept_once_it_is_old() {
    let folder = Folder::new();
    let store = folder.store();
    write(&store, "a", Expect::Absent).await;
    std::fs::write(folder.path.join("drafts/1-dead"), "half").unwrap();
    std::fs::create_dir(folder.path.join("drafts/2-dead")).unwrap();
    std::fs::write(folder.path.join("drafts/2-dead/0000000000000000"), "").unwrap();
    store.tidy().await.unwrap();
    assert_eq!(folder.names("drafts"), ["1-dead", "2-dead"]);
    folder.age("drafts");
    store.tidy().await.unwrap();
    assert_eq!(folder.names("drafts"), [""; 0]);
    assert!(load(&store, "a").await.is_some());
}

/// What a writer leaves behind that slept while its number was used and cleared away.
#[tokio::test]
async fn what_a_sleeper_links_below_the_newest_means_nothing() {
    let folder = Folder::new();
    let store = folder.store();
    let mut version = write(&store, "a", Expect::Absent).await;
    let first = std::fs::read(folder.path.join("records/=a/0000000000000001")).unwrap();
    for _ in 0..40 {
        version = write(&store, "a", Expect::Version(version)).await;
    }
    std::fs::write(folder.path.join("records/=a/0000000000000003"), &first).unwrap();
    assert_eq!(load(&store, "a").await.unwrap().version, version);
    version = write(&store, "a", Expect::Version(version)).await;
    assert!(!folder.names("records/=a").contains(&"0000000000000003".to_owned()));
    assert_eq!(load(&store, "a").await.unwrap().version, version);
}

/// A folder that was closed and not yet cleared away: in each state that a crash may leave it in.
#[tokio::test]
async fn a_folder_without_its_first_name_is_dead_whatever_is_in_it() {
    let folder = Folder::new();
    let store = folder.store();
    let old = write(&store, "a", Expect::Absent).await;
    std::fs::remove_file(folder.path.join("records/=a/0000000000000000")).unwrap();
    assert!(load(&store, "a").await.is_none());
    assert!(store.scan("", None, 10).await.unwrap().is_empty());
    let stale = put("a", Expect::Version(old), "zombie", None);
    assert!(store.swap(&[stale], Durability::Durable).await.is_err());
    let new = write(&store, "a", Expect::Absent).await;
    assert_eq!(load(&store, "a").await.unwrap().version, new);
    assert_eq!(folder.names("records/=a").len(), 2);
    // and swept, if nobody wants it
    std::fs::remove_file(folder.path.join("records/=a/0000000000000000")).unwrap();
    store.tidy().await.unwrap();
    assert_eq!(folder.names("records"), [""; 0]);
}
