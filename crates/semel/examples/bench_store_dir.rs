//! Claim and settle on a shared directory, beside the bare system calls for the same bytes, in turns.
//!
//! `cargo run --release -p semel --features dir --example bench_store_dir [FOLDER]`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(feature = "dir")]
use semel::core::record::{Expect, RecordKey, Version};
#[cfg(feature = "dir")]
use semel::store::{Change, Durability, Settings, Store, dir::Dir};
#[cfg(feature = "dir")]
use semel_testkit::{Ratio, median};

const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_millis(1_500);
/// About what a lease or an entry takes, with its head.
const BYTES: usize = 400;
const HEAD: usize = 160;
const KEPT: u64 = 16;

#[cfg(feature = "dir")]
fn put(name: &str, version: &Option<Version>, ttl: Option<Duration>) -> Change {
    let expect = version.clone().map_or(Expect::Absent, Expect::Version);
    Change::Put { key: RecordKey::from_stored(name.to_owned()), expect, value: vec![b'x'; BYTES], ttl }
}

/// Claims and settlements of one task, one after the other.
#[cfg(feature = "dir")]
async fn ours(store: Arc<Dir>, task: usize, until: Instant) -> usize {
    let (lease, entry) = (format!("lease/{task}"), format!("entry/job/{task}"));
    let keys = [&lease, &entry].map(|name| RecordKey::from_stored(name.clone()));
    let loaded = store.load(&keys).await.unwrap();
    let mut versions: Vec<Option<Version>> =
        loaded.records.into_iter().map(|record| record.map(|record| record.version)).collect();
    let mut done = 0;
    while Instant::now() < until {
        let claim =
            [put(&lease, &versions[0], Some(Duration::from_secs(60))), put(&entry, &versions[1], None)];
        let made = store.swap(&claim, Durability::Durable).await.unwrap();
        versions = made.into_iter().map(Some).collect();
        let settle = [put(&entry, &versions[1], None), put(&lease, &versions[0], None)];
        let made = store.swap(&settle, Durability::Durable).await.unwrap();
        versions = made.into_iter().rev().map(Some).collect();
        done += 1;
    }
    done
}

/// A record's folder, and the last number in it.
struct Bare {
    path: PathBuf,
    folder: File,
    number: u64,
}

impl Bare {
    fn new(root: &Path, name: &str) -> Bare {
        let path = root.join(name);
        std::fs::create_dir_all(&path).unwrap();
        let numbers = std::fs::read_dir(&path)
            .unwrap()
            .map(|entry| u64::from_str_radix(entry.unwrap().file_name().to_str().unwrap(), 16).unwrap());
        let number = numbers.max().unwrap_or(0);
        Bare { folder: File::open(&path).unwrap(), path, number }
    }

    /// Draft, sync, link, sync: and no question asked.
    fn write(&mut self, drafts: &Path, bytes: &[u8]) {
        self.number += 1;
        let draft = drafts.join(format!("{}-{}", self.path.file_name().unwrap().display(), self.number));
        let mut file = File::create_new(&draft).unwrap();
        file.write_all(bytes).unwrap();
        file.sync_all().unwrap();
        std::fs::hard_link(&draft, self.path.join(format!("{:016x}", self.number))).unwrap();
        std::fs::remove_file(&draft).unwrap();
        self.folder.sync_all().unwrap();
        if let Some(old) = self.number.checked_sub(KEPT).filter(|old| *old > 0) {
            let _ = std::fs::remove_file(self.path.join(format!("{old:016x}")));
        }
    }
}

fn bare(root: &Path, task: usize, until: Instant) -> usize {
    let drafts = root.join("drafts");
    std::fs::create_dir_all(&drafts).unwrap();
    let mut lease = Bare::new(root, &format!("lease-{task}"));
    let mut entry = Bare::new(root, &format!("entry-{task}"));
    let bytes = vec![b'x'; BYTES + HEAD];
    let mut done = 0;
    while Instant::now() < until {
        for record in [0, 1, 1, 0] {
            if record == 0 { lease.write(&drafts, &bytes) } else { entry.write(&drafts, &bytes) }
        }
        done += 1;
    }
    done
}

#[cfg(feature = "dir")]
fn turn_of_ours(path: &Path, tasks: usize) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let begun = Instant::now();
    let done: usize = runtime.block_on(async {
        let store = Arc::new(Dir::open(path, &Settings::default()).unwrap());
        let running: Vec<_> =
            (0..tasks).map(|task| tokio::spawn(ours(Arc::clone(&store), task, begun + TURN))).collect();
        let mut done = 0;
        for task in running {
            done += task.await.unwrap();
        }
        done
    });
    done as f64 / begun.elapsed().as_secs_f64()
}

fn turn_of_bare(path: &Path, tasks: usize) -> f64 {
    let begun = Instant::now();
    let done: usize = std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..tasks).map(|task| scope.spawn(move || bare(path, task, begun + TURN))).collect();
        running.into_iter().map(|task| task.join().unwrap()).sum()
    });
    done as f64 / begun.elapsed().as_secs_f64()
}

#[cfg(feature = "dir")]
fn main() {
    let above = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = tempfile::tempdir_in(above).unwrap();
    for tasks in [1, 16] {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(turn_of_bare(&folder.path().join("bare"), tasks));
            ours.push(turn_of_ours(&folder.path().join("ours"), tasks));
        }
        println!(
            "claim + settle, {tasks} tasks: ours {:.0}/s, bare {:.0}/s, {}",
            median(&ours),
            median(&bare),
            Ratio::new(&ours, &bare)
        );
    }
}

#[cfg(not(feature = "dir"))]
fn main() {
    let _ = (turn_of_bare, Arc::new(()), ROUNDS);
    println!("build it with --features dir");
}
