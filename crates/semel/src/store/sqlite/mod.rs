//! SQLite, the default store: one file on a local disk, for all processes of one machine.
//!
//! | promise | kept by |
//! |---|---|
//! | a swap is all or nothing, against every other process | `BEGIN IMMEDIATE`: one writer at a time |
//! | an answered [`Durable`](super::Durability::Durable) swap survives a power cut | `synchronous=FULL`: one sync of the write-ahead log per commit |
//! | a lease ends by the host's clock | `CLOCK_BOOTTIME` with the boot's id, read under the lock |
//! | a reboot ends every lease | the boot's id |
//! | nobody starves for the lock | short random waits, shorter still for a renewal |
//!
//! A [`Relaxed`](super::Durability::Relaxed) swap and a touch are not synced: they survive a crash of the process,
//! and a power cut may forget them unless a durable swap, of any process, came after. For a touch that is no
//! loss, since a reboot ends the lease anyway. The first commit after a checkpoint syncs once more, for the head
//! of the log begun anew.
//!
//! What is not promised: anything on a network file system (refused where it can be told), and that the file may
//! be opened, copied or checksummed by other means than SQLite while a process has it open. Back it up with
//! [`Sqlite::backup`].
//!
//! | module | what it knows |
//! |---|---|
//! | `place` | folder, mode and file system |
//! | `open` | whose the file is, the schema, the settings |
//! | `worker` | the thread that owns the connection, group commit, checkpoints |
//! | `rows` | the statements |
//! | `boot` | the clock |
//! | `busy` | waiting for the lock |
//! | `vfs` | one sync per commit, not two |
//! | `fault` | errors in words |

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;
use rusqlite::wal::CheckpointMode;
use semel_core::record::{RecordKey, Version};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;

use super::{Change, Durability, Loaded, OpenError, Pending, Record, Store, StoreError};
use boot::Boot;
use busy::Pace;
use open::Opened;
use worker::{Job, Read, Reply, Task, Worker, Write};

mod boot;
mod busy;
mod fault;
mod open;
mod place;
mod rows;
mod vfs;
mod worker;

/// The most jobs that wait for the thread; whoever comes later waits to be let in.
const QUEUE: usize = 1024;
/// How often another process's write is looked for: at first, and once a wait has become long.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_LATER: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_secs(1);

/// A store in one SQLite database.
pub struct Sqlite {
    path: PathBuf,
    patience: Duration,
    lane: Mutex<Lane>,
    places: Arc<Semaphore>,
    written: Arc<Notify>,
}

/// The way to the connection.
enum Lane {
    /// Nothing was asked yet: the thread is started by the first job.
    Parked(Box<(Opened, Boot)>),
    /// There is no thread: whoever asks does it.
    Here(Box<Worker>),
    Running(Sender<Job>, JoinHandle<()>),
    Closed,
}

/// What `semel doctor` wants to know of a database.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Facts {
    /// Where it lies.
    pub path: PathBuf,
    /// Bytes of the database file.
    pub bytes: u64,
    /// Bytes of its write-ahead log.
    pub wal_bytes: u64,
    /// The version of its schema.
    pub schema: i64,
    /// The version of SQLite that this program carries.
    pub sqlite: &'static str,
    /// The permission bits of the file.
    pub mode: u32,
}

impl Facts {
    /// May anybody but its owner read or write the file?
    pub fn is_open_to_others(&self) -> bool {
        self.mode & 0o077 != 0
    }
}

impl Sqlite {
    /// Open the database at this path; make it, and its folder, if there is none.
    ///
    /// Done on the caller's thread: a fraction of a millisecond, unless it must wait for other processes that make
    /// the database at the same time.
    pub fn open(path: &Path) -> Result<Sqlite, OpenError> {
        Sqlite::open_with_patience(path, busy::PATIENCE)
    }

    /// As [`open`](Sqlite::open), with how long an operation waits for other processes before it is unavailable.
    pub fn open_with_patience(path: &Path, patience: Duration) -> Result<Sqlite, OpenError> {
        Sqlite::prepare(path, patience, |_, opened, boot, _| Lane::Parked(Box::new((opened, boot))))
    }

    /// As [`open`](Sqlite::open), but everything is done on the thread of whoever asks, which waits for it: for a
    /// process that does one thing at a time and is gone soon, and would start a thread for two writes. A renewal
    /// waits only a moment for other processes, so that whatever else that thread does is not held up.
    pub fn open_in_place(path: &Path) -> Result<Sqlite, OpenError> {
        Sqlite::prepare(path, busy::PATIENCE, |path, opened, boot, written| {
            Lane::Here(Box::new(Worker::in_place(
                path.to_owned(),
                opened,
                boot,
                busy::PATIENCE,
                Arc::clone(written),
            )))
        })
    }

    fn prepare(
        path: &Path,
        patience: Duration,
        lane: impl FnOnce(&Path, Opened, Boot, &Arc<Notify>) -> Lane,
    ) -> Result<Sqlite, OpenError> {
        let boot = Boot::read().map_err(OpenError::Unavailable)?;
        let (path, opened) = open::prepare_and_open(path, patience)?;
        let written = Arc::new(Notify::new());
        let lane = Mutex::new(lane(&path, opened, boot, &written));
        Ok(Sqlite { path, patience, lane, places: Arc::new(Semaphore::new(QUEUE)), written })
    }

    /// Where the database lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Wait until everything queued is done and the database is closed. Dropping does the same in the background.
    pub fn close(self) {
        let lane =
            std::mem::replace(&mut *self.lane.lock().unwrap_or_else(PoisonError::into_inner), Lane::Closed);
        if let Lane::Running(sender, thread) = lane {
            drop(sender);
            // it has answered or dropped every job by then, so there is nobody left to tell
            let _ = thread.join();
        }
    }

    /// Copy the whole write-ahead log back into the database and empty it.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        self.aside(|connection| {
            loop {
                // while another one is being made, it is refused at once, without a call of the busy handler
                match connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::TRUNCATE) {
                    Err(why) if fault::is_busy(&why) && busy::nap() => {}
                    done => return done.map(drop),
                }
            }
        })
        .await
    }

    /// Write a copy, as it stands at one moment, to a new file for its owner alone.
    pub async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let to = to.to_owned();
        place::make_file(&to).map_err(|why| {
            StoreError::Unavailable(format!(
                "cannot make the backup {} ({why}): give a new path",
                to.display()
            ))
        })?;
        let patience = self.patience;
        self.aside(move |connection| {
            busy::wait_at_most(patience, Pace::Other);
            let mut copy = Connection::open(&to)?;
            Backup::new(connection, &mut copy)?.run_to_completion(i32::MAX, Duration::from_millis(1), None)
        })
        .await
    }

    /// What SQLite's own quick check finds wrong; nothing if the database is sound.
    pub async fn integrity(&self) -> Result<Vec<String>, StoreError> {
        self.aside(|connection| {
            let mut check = connection.prepare("PRAGMA quick_check")?;
            let lines = check.query_map([], |row| row.get::<_, String>(0))?;
            lines.filter(|line| !matches!(line, Ok(line) if line == "ok")).collect()
        })
        .await
    }

    /// Size, versions and mode.
    pub async fn facts(&self) -> Result<Facts, StoreError> {
        let unreachable = |why: std::io::Error| {
            StoreError::Unavailable(format!("cannot look at {} ({why}): was it moved?", self.path.display()))
        };
        let found = std::fs::metadata(&self.path).map_err(unreachable)?;
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        let wal_bytes = std::fs::metadata(&log).map_or(0, |log| log.len());
        Ok(Facts {
            path: self.path.clone(),
            bytes: found.len(),
            wal_bytes,
            schema: open::SCHEMA,
            sqlite: rusqlite::version(),
            mode: found.permissions().mode() & 0o7777,
        })
    }

    /// Do something long on a connection of its own, so that renewals do not wait for it.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (path, patience) = (self.path.clone(), self.patience);
        let done = tokio::task::spawn_blocking(move || {
            let opened =
                open::open(&path, patience).map_err(|why| StoreError::Unavailable(why.to_string()))?;
            busy::wait_at_most(patience, Pace::Other);
            work(&opened.connection).map_err(|why| StoreError::Unavailable(fault::line(&path, &why)))
        });
        done.await
            .unwrap_or_else(|why| Err(StoreError::Unavailable(format!("the database's thread ended: {why}"))))
    }

    /// Queue a task for the thread and wait for its answer. `lost` is what it means if the thread ends without one.
    async fn ask<T>(
        &self,
        lost: fn(String) -> StoreError,
        task: impl FnOnce(Reply<T>) -> Task,
    ) -> Result<T, StoreError> {
        let gone = || format!("the thread of {} has ended: restart this program", self.path.display());
        let place =
            Arc::clone(&self.places).acquire_owned().await.map_err(|_| StoreError::Unavailable(gone()))?;
        let (reply, answer) = oneshot::channel();
        self.send(Job { task: task(reply), _place: place })
            .map_err(|why| StoreError::Unavailable(why.unwrap_or_else(gone)))?;
        answer.await.unwrap_or_else(|_| Err(lost(gone())))
    }

    /// Hand a job to the thread, which is started by the first one. An error: it surely was not done.
    fn send(&self, job: Job) -> Result<(), Option<String>> {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        if let Lane::Parked(_) = *lane {
            let Lane::Parked(parked) = std::mem::replace(&mut *lane, Lane::Closed) else { return Err(None) };
            let (opened, boot) = *parked;
            let worker =
                Worker::new(self.path.clone(), opened, boot, self.patience, Arc::clone(&self.written));
            let (sender, jobs) = channel();
            let thread = std::thread::Builder::new().name("semel-sqlite".to_owned());
            let thread = thread.spawn(move || worker.run(&jobs)).map_err(|why| {
                Some(format!("cannot start a thread ({why}): is a limit on processes reached?"))
            })?;
            *lane = Lane::Running(sender, thread);
        }
        match &mut *lane {
            Lane::Here(worker) => {
                worker.serve(job);
                Ok(())
            }
            Lane::Running(sender, _) => sender.send(job).map_err(|_| None),
            Lane::Parked(_) | Lane::Closed => Err(None),
        }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Store for Sqlite {
    fn load<'a>(&'a self, keys: &'a [RecordKey]) -> Pending<'a, Loaded> {
        let keys = keys.to_vec();
        Box::pin(self.ask(StoreError::Unavailable, move |reply| Task::Read(Read::Load { keys, reply })))
    }

    fn swap<'a>(&'a self, changes: &'a [Change], durability: Durability) -> Pending<'a, Vec<Version>> {
        let changes = changes.to_vec();
        let task = move |reply| Task::Write(Write::Swap { changes, durability, reply });
        Box::pin(self.ask(StoreError::Unknown, task))
    }

    fn touch<'a>(&'a self, key: &'a RecordKey, version: &'a Version) -> Pending<'a, ()> {
        let (key, version) = (key.clone(), version.clone());
        Box::pin(
            self.ask(StoreError::Unknown, move |reply| Task::Write(Write::Touch { key, version, reply })),
        )
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a RecordKey>,
        limit: usize,
    ) -> Pending<'a, Vec<Record>> {
        let (prefix, after) = (prefix.to_owned(), after.cloned());
        let task = move |reply| Task::Read(Read::Scan { prefix, after, limit, reply });
        Box::pin(self.ask(StoreError::Unavailable, task))
    }

    /// A thread serves many with one commit; alone, each is served faster where it asks.
    fn expect_many(&self) {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*lane, Lane::Here(_)) {
            return;
        }
        let (hand_over, worker) = channel::<Worker>();
        let (sender, jobs) = channel();
        let thread = std::thread::Builder::new().name("semel-sqlite".to_owned()).spawn(move || {
            if let Ok(worker) = worker.recv() {
                worker.run(&jobs);
            }
        });
        // it goes on where it is if there can be no thread
        let Ok(thread) = thread else { return };
        if let Lane::Here(worker) = std::mem::replace(&mut *lane, Lane::Running(sender, thread)) {
            let _ = hand_over.send(worker.on_a_thread());
        }
    }

    fn leave(&self) {
        let mut lane = self.lane.lock().unwrap_or_else(PoisonError::into_inner);
        if let Lane::Here(_) = *lane
            && let Lane::Here(worker) = std::mem::replace(&mut *lane, Lane::Closed)
        {
            worker.leave();
        }
    }

    fn tidy(&self) -> Pending<'_, ()> {
        Box::pin(self.checkpoint())
    }

    /// Writes of this handle wake it at once. No other process can, so the record's version is looked at in short
    /// turns: a read of memory shared between the processes, of a few microseconds.
    fn changed<'a>(
        &'a self,
        key: &'a RecordKey,
        version: Option<&'a Version>,
        within: Duration,
    ) -> Pending<'a, bool> {
        Box::pin(async move {
            let begun = Instant::now();
            loop {
                // listened to before the look, so that no write falls between the two
                let written = self.written.notified();
                tokio::pin!(written);
                written.as_mut().enable();
                let key = key.clone();
                let look = move |reply| Task::Read(Read::Version { key, reply });
                if self.ask(StoreError::Unavailable, look).await?.as_ref() != version {
                    return Ok(true);
                }
                let waited = begun.elapsed();
                if waited >= within {
                    return Ok(false);
                }
                let turn = if waited < LATER { LOOK } else { LOOK_LATER };
                // woken or not, the record is looked at again
                let _ = tokio::time::timeout(turn.min(within - waited), written).await;
            }
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use semel_core::record::Expect;

    #[tokio::test]
    async fn a_thread_that_ended_is_unavailable_to_a_look_and_unknown_to_a_write_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&folder.path().join("state.db")).unwrap();
        let (sender, jobs) = channel::<Job>();
        // it takes every job and answers none, as a thread that dies in the middle
        let thread = std::thread::spawn(move || jobs.iter().take(2).for_each(drop));
        *store.lane.lock().unwrap() = Lane::Running(sender, thread);
        let key = RecordKey::from_stored("a".to_owned());
        let write = [Change::Put { key: key.clone(), expect: Expect::Absent, value: Vec::new(), ttl: None }];
        let keys = [key];
        assert!(matches!(store.load(&keys).await, Err(StoreError::Unavailable(_))));
        assert!(matches!(store.swap(&write, Durability::Durable).await, Err(StoreError::Unknown(_))));
        while let Lane::Running(_, thread) = &*store.lane.lock().unwrap() {
            if thread.is_finished() {
                break;
            }
            std::thread::yield_now();
        }
        // no longer handed over at all: surely not applied
        assert!(matches!(store.swap(&write, Durability::Durable).await, Err(StoreError::Unavailable(_))));
    }
}
