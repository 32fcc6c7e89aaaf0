//! Real stores whose time passes as told: a tick is an hour.
//!
//! The store in memory has a clock that the test steps. The others keep when a lease was last touched, in a row or as
//! the time of a file; that moment is moved back, which is the same as time that passed.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use semel::clock::{Clock, Moment};
use semel::store::dir::Dir;
use semel::store::memory::Memory;
use semel::store::sqlite::Sqlite;
use semel::store::{Settings, Store, open};
use semel_testkit::PgServer;
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
    /// Make a copy of it.
    fn leave_behind(&self) {
        unreachable!("it has no copy");
    }
    /// Put the copy back, as whoever restores one does.
    fn fall_back(&self) {
        unreachable!("it has no copy");
    }
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

    /// A connection that sees the copy too.
    fn connect(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(&self.path).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        let copy = self.path.with_extension("copy");
        connection.execute("ATTACH ?1 AS copy", [copy.to_str().unwrap()]).unwrap();
        connection
    }
}

impl Place for InSqlite {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn pass(&self, ticks: u32) {
        let passed_ns = i64::try_from((TICK * ticks).as_nanos()).unwrap();
        let connection = self.connect();
        let is_there = "SELECT count(*) FROM copy.sqlite_schema WHERE name = 'records'";
        let copied: i64 = connection.query_row(is_there, [], |row| row.get(0)).unwrap();
        for table in ["main", "copy"].iter().take(1 + usize::try_from(copied).unwrap()) {
            let moved = format!(
                "UPDATE {table}.records SET touched_ns = touched_ns - ?1 WHERE touched_ns IS NOT NULL"
            );
            connection.execute(&moved, [passed_ns]).unwrap();
        }
    }

    fn leave_behind(&self) {
        let copy =
            "DROP TABLE IF EXISTS copy.records; CREATE TABLE copy.records AS SELECT * FROM main.records";
        self.connect().execute_batch(copy).unwrap();
    }

    fn fall_back(&self) {
        let restore = "BEGIN IMMEDIATE; DELETE FROM main.records; INSERT INTO main.records SELECT * FROM copy.records; \
             DROP TABLE copy.records; COMMIT";
        self.connect().execute_batch(restore).unwrap();
    }
}

/// A server for all paths, and who sets its clocks. Nothing is killed here, so nothing needs to be on disk.
pub struct Pg {
    server: PgServer,
    orders: mpsc::Sender<(String, mpsc::Sender<()>)>,
}

impl Pg {
    pub fn start() -> Pg {
        let server = PgServer::start_with(&["fsync=off"]);
        let (orders, taken) = mpsc::channel::<(String, mpsc::Sender<()>)>();
        let url = server.url();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (client, connection) =
                    tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
                tokio::spawn(connection);
                for (sql, done) in taken {
                    client.batch_execute(&sql).await.unwrap();
                    done.send(()).unwrap();
                }
            });
        });
        Pg { server, orders }
    }

    fn ask(&self, sql: String) {
        let (done, is_done) = mpsc::channel();
        self.orders.send((sql, done)).unwrap();
        is_done.recv().unwrap();
    }
}

/// A schema of its own on that server.
pub struct InPostgres {
    store: Arc<dyn Store>,
    schema: String,
    pg: Arc<Pg>,
}

impl InPostgres {
    pub fn new(pg: &Arc<Pg>) -> InPostgres {
        static PATHS: AtomicU32 = AtomicU32::new(0);
        let schema = format!("path{}", PATHS.fetch_add(1, Ordering::Relaxed));
        let url = format!("{}?schema={schema}", pg.server.url());
        let store = open(&url, &Settings::default()).unwrap();
        InPostgres { store, schema, pg: Arc::clone(pg) }
    }
}

impl Place for InPostgres {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn pass(&self, ticks: u32) {
        // there is no table before the first verb
        let schema = &self.schema;
        self.pg.ask(format!(
            "DO $$ BEGIN IF to_regclass('{schema}.records') IS NOT NULL THEN \
             UPDATE {schema}.records SET expires = expires - interval '{ticks} hours'; END IF; END $$"
        ));
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
        let store = Arc::new(Dir::open(&path, &Settings::default()).unwrap());
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
