//! The one thread that owns the connection, and its group commit.
//!
//! Whatever is queued when the thread comes round is done together: the looks first, then all writes in one
//! transaction with one sync, each answered after the commit. One writer gets one sync per write; thirty-two get
//! a fraction of one.
//!
//! The thread also copies the log back into the database (a checkpoint). A lone process reads the whole log when
//! it opens the database, about 2 µs a frame, so the log is kept short where processes come and go, and may be
//! longer where one stays and writes:
//!
//! | frames in the log | and | a checkpoint is made |
//! |---|---|---|
//! | [`IDLE_FRAMES`] | nothing is queued for a moment ([`IDLE`], or [`IDLE_BUSY`] after [`MANY`] writes) | then, and the log is emptied |
//! | [`IDLE_FRAMES`] | a handle that made [`MANY`] writes is closed | then, and the log is emptied |
//! | [`IDLE_FRAMES`] | it was this handle's first write | after the answer, and the log is emptied, or begun anew by the outcome if this was an intent |
//! | [`FIRST_FRAMES`] | it was this handle's first write | before the answer: those before it may all have left in the middle |
//! | [`MOST_FRAMES`], or [`MOST_FRAMES_BUSY`] after [`MANY`] writes | | after the answer; the log is begun anew in place |

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, Error};
use semel_core::record::{RecordKey, Version};
use tokio::sync::{Notify, OwnedSemaphorePermit, oneshot};

use super::super::{Change, Durability, Loaded, Record, StoreError};
use super::boot::Boot;
use super::busy::{self, Pace};
use super::rows::{self, Now, Swapped};
use super::{fault, open::Opened};

/// The most jobs that are done together.
const GROUP: usize = 128;
/// The most bytes of values that are written together, give or take one job.
const GROUP_BYTES: usize = 8 << 20;
/// Nothing queued for so long: time to tidy up.
const IDLE: Duration = Duration::from_millis(1);
/// The same for one that has written so often that it will again: to tidy up after each write costs more than the write.
const IDLE_BUSY: Duration = Duration::from_millis(25);
/// So often.
const MANY: u32 = 16;
/// Frames in the log from which it is worth tidying up.
const IDLE_FRAMES: u32 = 64;
/// Frames in the log from which the first write of a handle waits for a checkpoint.
const FIRST_FRAMES: u32 = 512;
/// Frames in the log from which a checkpoint is made however busy the thread is.
const MOST_FRAMES: u32 = 1_000;
/// The same for one that writes a lot: a page that is written again before then is copied back once.
const MOST_FRAMES_BUSY: u32 = 2_000;
/// How many jobs make a handle one that stays, and that is worth a larger cache of pages, of so many KiB: what is looked
/// at is soon claimed, and what is claimed soon settled.
const STAYS: u32 = 64;
const CACHE_KIB: u32 = 16_384;
/// How long a checkpoint waits for other processes once the log is several times that long.
const CHECKPOINT_PATIENCE: Duration = Duration::from_millis(50);

/// How long a renewal on the thread of whoever asks waits for other processes; it is tried again.
const IN_PLACE_RENEWAL: Duration = Duration::from_millis(250);

pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the thread is asked to do; its place in the queue goes with it.
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) _place: OwnedSemaphorePermit,
}

pub(super) enum Task {
    Read(Read),
    Write(Write),
}

pub(super) enum Read {
    Load { keys: Vec<RecordKey>, reply: Reply<Loaded> },
    Scan { prefix: String, after: Option<RecordKey>, limit: usize, reply: Reply<Vec<Record>> },
    Version { key: RecordKey, reply: Reply<Option<Version>> },
}

pub(super) enum Write {
    Swap { changes: Vec<Change>, durability: Durability, reply: Reply<Vec<Version>> },
    Touch { key: RecordKey, version: Version, reply: Reply<()> },
}

impl Write {
    fn bytes(&self) -> usize {
        match self {
            Write::Swap { changes, .. } => changes.iter().map(size).sum(),
            Write::Touch { .. } => 0,
        }
    }

    fn refuse(self, why: StoreError) {
        // whoever asked may have stopped listening
        match self {
            Write::Swap { reply, .. } => drop(reply.send(Err(why))),
            Write::Touch { reply, .. } => drop(reply.send(Err(why))),
        }
    }
}

fn is_durable(write: &Write) -> bool {
    matches!(write, Write::Swap { durability: Durability::Durable, .. })
}

fn size(change: &Change) -> usize {
    match change {
        Change::Put { value, .. } => value.len(),
        Change::Guard { .. } | Change::Remove { .. } => 0,
    }
}

/// What came of a write within its transaction.
enum Outcome {
    Swap(Swapped),
    Touch(Option<Box<super::super::Conflict>>),
}

/// How far a group got.
enum Failure {
    /// Rolled back: surely nothing was applied.
    Before(Error),
    /// The commit itself failed: perhaps applied.
    AtCommit(Error),
}

pub(super) struct Worker {
    pub(super) path: PathBuf,
    pub(super) connection: Connection,
    pub(super) frames: Arc<AtomicU32>,
    pub(super) boot: Boot,
    pub(super) patience: Duration,
    /// Told after every group that wrote something.
    pub(super) written: Arc<Notify>,
    /// What `PRAGMA synchronous` is set to.
    synchronous: Durability,
    /// How many groups were written.
    groups: u32,
    /// How many jobs were done, up to those that make it one that stays.
    jobs: u32,
    /// How long a renewal waits for other processes.
    renewal_patience: Duration,
    /// The log was copied back and not begun anew since.
    copied: bool,
}

impl Drop for Worker {
    /// Whoever opens the database next reads a log that was only copied back, and would copy it again.
    fn drop(&mut self) {
        self.tidy_at_the_end();
    }
}

impl Worker {
    fn tidy_at_the_end(&mut self) {
        if self.copied || (self.groups >= MANY && self.log_exceeds(IDLE_FRAMES)) {
            self.tidy();
        }
    }

    /// As dropping it, but that its locks, files and memory are left to the end of the process.
    pub(super) fn leave(mut self) {
        self.tidy_at_the_end();
        std::mem::forget(self);
    }

    pub(super) fn new(
        path: PathBuf,
        opened: Opened,
        boot: Boot,
        patience: Duration,
        written: Arc<Notify>,
    ) -> Worker {
        let Opened { connection, frames } = opened;
        // FULL is SQLite's own default
        Worker {
            path,
            connection,
            frames,
            boot,
            patience,
            written,
            synchronous: Durability::Durable,
            renewal_patience: patience,
            copied: false,
            groups: 0,
            jobs: 0,
        }
    }

    /// One that works on the thread of whoever asks.
    pub(super) fn in_place(
        path: PathBuf,
        opened: Opened,
        boot: Boot,
        patience: Duration,
        written: Arc<Notify>,
    ) -> Worker {
        let mut worker = Worker::new(path, opened, boot, patience, written);
        worker.renewal_patience = IN_PLACE_RENEWAL.min(patience);
        worker
    }

    /// The same, for a thread of its own: a renewal there holds up nothing else.
    pub(super) fn on_a_thread(mut self: Box<Worker>) -> Worker {
        self.renewal_patience = self.patience;
        *self
    }

    /// Do one job now.
    pub(super) fn serve(&mut self, job: Job) {
        match job.task {
            Task::Read(read) => self.read(read),
            Task::Write(write) => self.write(vec![write]),
        }
    }

    /// Work until nobody can ask any more. The database is closed without a checkpoint.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let first = if self.frames.load(Ordering::Relaxed) > IDLE_FRAMES {
                let idle = if self.groups < MANY { IDLE } else { IDLE_BUSY };
                match jobs.recv_timeout(idle) {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Timeout) => {
                        self.tidy();
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            } else {
                match jobs.recv() {
                    Ok(job) => job,
                    Err(_) => return,
                }
            };
            self.work_off(first, jobs);
        }
    }

    fn work_off(&mut self, first: Job, jobs: &Receiver<Job>) {
        let mut writes = Vec::new();
        let (mut count, mut bytes) = (0, 0);
        let mut next = Some(first);
        self.settle_in();
        // places in the queue are given back as jobs are taken from it: the group has a bound of its own
        while let Some(Job { task, .. }) = next {
            count += 1;
            match task {
                Task::Read(read) => self.read(read),
                Task::Write(write) => {
                    bytes += write.bytes();
                    writes.push(write);
                }
            }
            next = if count < GROUP && bytes < GROUP_BYTES { jobs.try_recv().ok() } else { None };
        }
        if !writes.is_empty() {
            self.write(writes);
        }
    }

    /// One that stays is given more memory. If it cannot be had, it is slower.
    fn settle_in(&mut self) {
        if self.jobs < STAYS {
            self.jobs += 1;
            if self.jobs == STAYS {
                let _ = self.connection.execute_batch(&format!("PRAGMA cache_size = -{CACHE_KIB}"));
            }
        }
    }

    fn read(&self, read: Read) {
        busy::wait_at_most(self.patience, Pace::Other);
        let failed = |why: Error| StoreError::Unavailable(fault::line(&self.path, &why));
        match read {
            Read::Load { keys, reply } => drop(reply.send(self.load(&keys).map_err(failed))),
            Read::Scan { prefix, after, limit, reply } => {
                let now = || self.boot.now_ns();
                let found = rows::scan(&self.connection, &prefix, after.as_ref(), limit, now, &self.boot);
                drop(reply.send(found.map_err(failed)));
            }
            Read::Version { key, reply } => {
                drop(reply.send(rows::version(&self.connection, &key).map_err(failed)));
            }
        }
    }

    fn load(&self, keys: &[RecordKey]) -> Result<Loaded, Error> {
        self.execute("BEGIN")?;
        let records = self.load_inside(keys);
        // nothing was written: ending it cannot lose anything
        let ended = self.execute("COMMIT");
        let records = records?;
        ended.map(|()| Loaded { records, token_floor: 0 })
    }

    fn load_inside(&self, keys: &[RecordKey]) -> Result<Vec<Option<Record>>, Error> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        // a deferred transaction has its snapshot only after the first look: the clock must not be older
        rows::version(&self.connection, first)?;
        let now = Now::read(&self.boot);
        keys.iter().map(|key| rows::load(&self.connection, key, now)).collect()
    }

    fn write(&mut self, writes: Vec<Write>) {
        let renews = writes.iter().any(|write| matches!(write, Write::Touch { .. }));
        match renews {
            true => busy::wait_at_most(self.renewal_patience, Pace::Renewal),
            false => busy::wait_at_most(self.patience, Pace::Other),
        }
        match self.transact(&writes) {
            Ok(outcomes) => {
                self.written.notify_waiters();
                let first = self.groups == 0;
                self.groups = self.groups.saturating_add(1);
                self.copied = false;
                if first && self.log_exceeds(FIRST_FRAMES) {
                    self.tidy();
                }
                let intends = writes.iter().any(is_durable);
                writes.into_iter().zip(outcomes).for_each(|(write, outcome)| answer(write, outcome));
                if first && self.log_exceeds(IDLE_FRAMES) {
                    // who writes an intent comes back with its outcome, and that write begins the log anew in place:
                    // to sync a file that keeps its size is cheaper than to let it grow again
                    if intends {
                        self.copied = self.copy_back();
                    } else {
                        self.tidy();
                    }
                } else if self.log_exceeds(self.most_frames()) {
                    self.shorten();
                }
            }
            Err(Failure::Before(why)) => {
                let line = fault::line(&self.path, &why);
                writes.into_iter().for_each(|write| write.refuse(StoreError::Unavailable(line.clone())));
            }
            Err(Failure::AtCommit(why)) => {
                let line = fault::line(&self.path, &why);
                writes.into_iter().for_each(|write| write.refuse(StoreError::Unknown(line.clone())));
            }
        }
    }

    /// All writes in one transaction.
    fn transact(&mut self, writes: &[Write]) -> Result<Vec<Outcome>, Failure> {
        self.synchronise(writes).map_err(Failure::Before)?;
        self.execute("BEGIN IMMEDIATE").map_err(Failure::Before)?;
        // read under the lock: a wait for it must not make a lease look younger
        let now = Now::read(&self.boot);
        let made: Result<Vec<Outcome>, Error> = writes.iter().map(|write| self.make(write, now)).collect();
        let result = match made {
            Ok(outcomes) => self.execute("COMMIT").map(|()| outcomes).map_err(Failure::AtCommit),
            Err(why) => Err(Failure::Before(why)),
        };
        if result.is_err() && !self.connection.is_autocommit() {
            // what made it fail is what is told
            let _ = self.execute("ROLLBACK");
        }
        result
    }

    fn make(&self, write: &Write, now: Now<'_>) -> Result<Outcome, Error> {
        Ok(match write {
            Write::Swap { changes, .. } => Outcome::Swap(rows::swap(&self.connection, changes, now)?),
            Write::Touch { key, version, .. } => {
                Outcome::Touch(rows::touch(&self.connection, key, version, now)?)
            }
        })
    }

    /// Sync this group's commit only if one of it must survive a power cut. A later sync covers all commits
    /// before it. NORMAL, not OFF: the first frame of a log begun anew must still be synced, else a power cut
    /// could mix old and new frames. A renewal needs no sync: a power cut is a reboot, which ends every lease.
    fn synchronise(&mut self, writes: &[Write]) -> Result<(), Error> {
        let wanted = if writes.iter().any(is_durable) { Durability::Durable } else { Durability::Relaxed };
        if wanted == self.synchronous {
            return Ok(());
        }
        // never a cached statement: this pragma acts when it is prepared
        self.connection.execute_batch(match wanted {
            Durability::Durable => "PRAGMA synchronous = FULL",
            Durability::Relaxed => "PRAGMA synchronous = NORMAL",
        })?;
        self.synchronous = wanted;
        Ok(())
    }

    fn execute(&self, sql: &str) -> Result<(), Error> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }

    fn most_frames(&self) -> u32 {
        if self.groups < MANY { MOST_FRAMES } else { MOST_FRAMES_BUSY }
    }

    fn log_exceeds(&self, frames: u32) -> bool {
        self.frames.load(Ordering::Relaxed) > frames
    }

    /// Copy the log back beside the writers and, if no other process is in the way, empty it. Emptied, and not
    /// only marked as copied: the mark is in shared memory and is gone with the last process. Where it fails
    /// nothing is lost, the next one copies more.
    fn tidy(&self) {
        if self.copy_back() {
            let _ = self.connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::TRUNCATE);
        }
    }

    /// Copy the log back beside the writers. `true`: as far as it went.
    fn copy_back(&self) -> bool {
        self.frames.store(0, Ordering::Relaxed);
        busy::wait_at_most(Duration::ZERO, Pace::Other);
        self.connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE).is_ok()
    }

    /// Copy the log back beside the writers; the next write begins it anew in place. If the writers are so many
    /// that there always is a next frame, hold them off for a moment.
    fn shorten(&self) {
        self.frames.store(0, Ordering::Relaxed);
        busy::wait_at_most(CHECKPOINT_PATIENCE, Pace::Renewal);
        let copied = self.connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE);
        let most = 4 * self.most_frames();
        if copied.is_ok_and(|(frames, _)| u32::try_from(frames).is_ok_and(|frames| frames > most)) {
            let _ = self.connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::RESTART);
        }
    }
}

fn answer(write: Write, outcome: Outcome) {
    match (write, outcome) {
        (Write::Swap { reply, .. }, Outcome::Swap(Swapped::Made(versions))) => drop(reply.send(Ok(versions))),
        (Write::Swap { reply, .. }, Outcome::Swap(Swapped::Refused(conflict))) => {
            drop(reply.send(Err(StoreError::Refused(conflict))));
        }
        (Write::Touch { reply, .. }, Outcome::Touch(None)) => drop(reply.send(Ok(()))),
        (Write::Touch { reply, .. }, Outcome::Touch(Some(conflict))) => {
            drop(reply.send(Err(StoreError::Refused(conflict))));
        }
        // outcomes are made from the writes, one by one, in order
        (write, _) => write.refuse(StoreError::Unknown("an answer of another kind".to_owned())),
    }
}
