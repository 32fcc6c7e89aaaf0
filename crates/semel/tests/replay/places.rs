//! Real stores whose time passes as told: a tick is an hour.
//!
//! The store in memory has a clock that the test steps. The others keep when a lease was last touched, in a row or as
//! the time of a file; that moment is moved back, which is the same as time that passed.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::clock::{Clock, Moment};
use semel::store::Store;
use semel::store::dir::Dir;
use semel::store::memory::Memory;
use semel::store::sqlite::Sqlite;
use tempfile::TempDir;

/// What a tick of the model is.
pub const TICK: Duration = Duration::from_secs(3_600);
/// By how much a lease is shorter than its ticks: what the test itself takes must not count.
pub const SLACK: Duration = Duration::from_secs(60);

/// A store, and its clock.
pub trait Place {
    fn store(&self) -> Arc<dyn Store>;
    /// So many ticks pass.
    fn pass(&self, ticks: u32);
}

/// A clock that goes only when it is told to.
#[derive(Default)]
pub struct Stepped(Mutex<Duration>);

impl Clock for Stepped {
    fn now(&self) -> Moment {
        Moment::since_boot(*self.0.lock().unwrap())
    }

    fn wall_ms(&self) -> u64 {
        0
    }

    fn sleep_until(&self, _: Moment) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
}

pub struct InMemory {
    clock: Arc<Stepped>,
    memory: Memory,
}

impl InMemory {
    pub fn new() -> InMemory {
        let clock = Arc::new(Stepped::default());
        InMemory { memory: Memory::with_clock(clock.clone()), clock }
    }

    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }
}

impl Place for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.memory.clone())
    }

    fn pass(&self, ticks: u32) {
        *self.clock.0.lock().unwrap() += TICK * ticks;
    }
}

/// A folder in memory, where there is such a place: no power is cut here.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub struct InSqlite {
    store: Arc<Sqlite>,
    path: PathBuf,
    _folder: TempDir,
}

impl InSqlite {
    pub fn new() -> InSqlite {
        let folder = folder();
        let path = folder.path().join("ledger.db");
        InSqlite { store: Arc::new(Sqlite::open(&path).unwrap()), path, _folder: folder }
    }
}

impl Place for InSqlite {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn pass(&self, ticks: u32) {
        let passed_ns = i64::try_from((TICK * ticks).as_nanos()).unwrap();
        let connection = rusqlite::Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        let moved = "UPDATE records SET touched_ns = touched_ns - ?1 WHERE touched_ns IS NOT NULL";
        connection.execute(moved, [passed_ns]).unwrap();
    }
}

pub struct InDir {
    store: Arc<Dir>,
    path: PathBuf,
    _folder: TempDir,
}

impl InDir {
    pub fn new() -> InDir {
        let folder = folder();
        let path = folder.path().join("store");
        let store = Arc::new(Dir::open(&path, &semel::store::Settings::default()).unwrap());
        InDir { store, path, _folder: folder }
    }
}

impl Place for InDir {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn pass(&self, ticks: u32) {
        age(&self.path.join("records"), TICK * ticks);
    }
}

/// The files below this folder were last changed so much earlier.
fn age(folder: &Path, by: Duration) {
    let Ok(listed) = std::fs::read_dir(folder) else { return };
    for found in listed {
        let path = found.unwrap().path();
        if path.is_dir() {
            age(&path, by);
        } else {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            file.set_modified(modified - by).unwrap();
        }
    }
}
