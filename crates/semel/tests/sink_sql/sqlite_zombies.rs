//! SQLite: zombies, and crowds.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior, params};
use semel::core::token::Grant;
use semel::sink::sql::{self, SqlFenceError, sqlite::fence};
use semel_testkit::{Chance, counted, rounds};
use tempfile::TempDir;

use crate::{ENDS, EVERYWHERE, StallsBefore, Wakes, grant, name};

const SITE: &str = "site";
const BEGINS: [TransactionBehavior; 2] = [TransactionBehavior::Deferred, TransactionBehavior::Immediate];

/// How often anybody had to wait for the write lock: SQLite's busy handler is a plain function.
static WAITS: AtomicU32 = AtomicU32::new(0);

fn wait(_: i32) -> bool {
    WAITS.fetch_add(1, Ordering::SeqCst);
    std::thread::sleep(Duration::from_micros(100));
    true
}

/// The user's database.
struct Stage {
    folder: TempDir,
}

impl Stage {
    fn new() -> Stage {
        let stage = Stage { folder: tempfile::tempdir().unwrap() };
        let db = stage.open();
        db.execute_batch(sql::SQLITE).unwrap();
        db.execute_batch(
            "CREATE TABLE posts (id INTEGER PRIMARY KEY, token INTEGER); CREATE INDEX t ON posts (token)",
        )
        .unwrap();
        stage
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("user.db")
    }

    fn open(&self) -> Connection {
        open(&self.path())
    }
}

fn open(path: &Path) -> Connection {
    let mut db = Connection::open(path).unwrap();
    db.busy_handler(Some(wait)).unwrap();
    db.pragma_update(None, "journal_mode", "wal").unwrap();
    // no power is cut here
    db.pragma_update(None, "synchronous", "off").unwrap();
    db
}

/// Why somebody was not let in.
#[derive(Debug, PartialEq, Eq)]
enum Refused {
    Stale,
    /// Begin anew.
    Busy,
}

fn refused(why: &rusqlite::Error) -> Refused {
    match why.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy) => Refused::Busy,
        _ if why.to_string().starts_with(sql::STALE) => Refused::Stale,
        _ => panic!("{why}"),
    }
}

/// Pass the fence: by the library's call, or as any language would.
fn pass(transaction: &Transaction<'_>, library: bool, grant: &Grant) -> Result<(), Refused> {
    if library {
        return fence(transaction, &name(SITE), grant).map_err(|why| match why {
            SqlFenceError::Stale { .. } => Refused::Stale,
            SqlFenceError::Database(why) => refused(why.downcast_ref().unwrap()),
            other => panic!("{other}"),
        });
    }
    let insert = "INSERT INTO semel_fence (resource, token, nonce) VALUES (?1, ?2, ?3)";
    let params = params![SITE, grant.token.value().cast_signed(), grant.nonce.to_string()];
    transaction.execute(insert, params).map(drop).map_err(|why| refused(&why))
}

fn post(db: &Connection, grant: &Grant) -> rusqlite::Result<usize> {
    db.execute("INSERT INTO posts (token) VALUES (?1)", [grant.token.value().cast_signed()])
}

fn posts(db: &Connection, grant: &Grant) -> i64 {
    let question = "SELECT count(*) FROM posts WHERE token = ?1";
    db.query_row(question, [grant.token.value().cast_signed()], |row| row.get(0)).unwrap()
}

/// The new holder's transaction. Answers how many posts of the old holder it saw once it had passed the fence.
fn take_over(
    db: &mut Connection,
    begins: TransactionBehavior,
    library: bool,
    old: &Grant,
    new: &Grant,
) -> i64 {
    let transaction = db.transaction_with_behavior(begins).unwrap();
    pass(&transaction, library, new).unwrap();
    let seen = posts(&transaction, old);
    post(&transaction, new).unwrap();
    transaction.commit().unwrap();
    seen
}

fn until_somebody_waits(since: u32) {
    let start = Instant::now();
    while WAITS.load(Ordering::SeqCst) == since {
        assert!(start.elapsed() < Duration::from_secs(30), "the new holder does not wait");
        std::thread::yield_now();
    }
}

#[test]
fn sqlite_a_zombie_never_lands_after_the_new_holder() {
    let mut chance = Chance::new("sqlite_a_zombie_never_lands_after_the_new_holder");
    let seed = chance.seed();
    for stalls in EVERYWHERE {
        let stage = Stage::new();
        let (mut zombie, mut holder, watch) = (stage.open(), stage.open(), stage.open());
        for round in 0..rounds(200) {
            let (old, new) = (grant(2 * round + 1, 1), grant(2 * round + 2, 2));
            let (library, early, wakes) = (chance.coin(), chance.coin(), chance.of(&ENDS));
            let (holder_library, holder_begins) = (chance.coin(), chance.of(&BEGINS));
            let about = format!("{stalls:?} round {round}: library={library} early={early} {wakes:?}");
            if early {
                let first = zombie.transaction().unwrap();
                pass(&first, library, &old).unwrap();
                first.commit().unwrap();
            }
            let take_over =
                |holder: &mut Connection| take_over(holder, holder_begins, holder_library, &old, &new);
            let expected = if stalls == StallsBefore::Fence {
                let look = chance.coin();
                let transaction = zombie.transaction().unwrap();
                if look {
                    posts(&transaction, &old);
                }
                assert_eq!(take_over(&mut holder), 0, "{about}");
                let why = pass(&transaction, library, &old).unwrap_err();
                assert_eq!(why, if look { Refused::Busy } else { Refused::Stale }, "{about}");
                drop(transaction);
                0
            } else {
                let transaction = zombie.transaction_with_behavior(chance.of(&BEGINS)).unwrap();
                pass(&transaction, library, &old).unwrap();
                if stalls == StallsBefore::Commit {
                    post(&transaction, &old).unwrap();
                }
                let waits = WAITS.load(Ordering::SeqCst);
                let seen = std::thread::scope(|scope| {
                    let taken = scope.spawn(|| take_over(&mut holder));
                    until_somebody_waits(waits);
                    if stalls == StallsBefore::Write && wakes != Wakes::Dies {
                        post(&transaction, &old).unwrap();
                    }
                    match wakes {
                        Wakes::Commits => transaction.commit().unwrap(),
                        Wakes::RollsBack => transaction.rollback().unwrap(),
                        Wakes::Dies => drop(transaction),
                    }
                    taken.join().unwrap()
                });
                assert_eq!(seen, i64::from(wakes == Wakes::Commits), "{about}");
                seen
            };
            if wakes == Wakes::Dies {
                zombie = stage.open();
            }
            let again = zombie.transaction().unwrap();
            assert_eq!(pass(&again, library, &old), Err(Refused::Stale), "{about}");
            drop(again);
            assert_eq!((posts(&watch, &old), posts(&watch, &new)), (expected, 1), "{about}");
        }
        counted("sinks", &format!("sqlite.{stalls:?}"), rounds(200), "zombies", 0, Some(seed));
    }
}

/// The zombie is a process, stopped with the fence passed and a post written, and killed while the new holder waits.
#[test]
fn sqlite_a_killed_zombie_leaves_nothing_and_lets_the_new_holder_in() {
    let (old, new) = (grant(1, 1), grant(2, 2));
    if let Some(path) = std::env::var_os("SINK_SQL_ZOMBIE") {
        let mut db = open(Path::new(&path));
        let transaction = db.transaction().unwrap();
        pass(&transaction, true, &old).unwrap();
        post(&transaction, &old).unwrap();
        println!("\nstalled");
        std::thread::sleep(Duration::from_secs(30));
        return;
    }
    let stage = Stage::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--nocapture", "sqlite_a_killed_zombie_leaves_nothing_and_lets_the_new_holder_in"])
        .env("SINK_SQL_ZOMBIE", stage.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.into_iter().any(|line| line == "stalled"));
    let (mut holder, waits) = (stage.open(), WAITS.load(Ordering::SeqCst));
    let seen = std::thread::scope(|scope| {
        let taken = scope.spawn(|| take_over(&mut holder, TransactionBehavior::Immediate, true, &old, &new));
        until_somebody_waits(waits);
        child.kill().unwrap();
        child.wait().unwrap();
        taken.join().unwrap()
    });
    let watch = stage.open();
    assert_eq!((seen, posts(&watch, &old), posts(&watch, &new)), (0, 0, 1));
}

/// The control: a look at the token, then the write. Between the two the new holder comes and goes.
#[test]
fn sqlite_control_check_then_act_lets_the_zombie_in() {
    let stage = Stage::new();
    let (mut zombie, mut holder, watch) = (stage.open(), stage.open(), stage.open());
    let (old, new) = (grant(1, 1), grant(2, 2));
    let first = zombie.transaction().unwrap();
    pass(&first, true, &old).unwrap();
    first.commit().unwrap();
    let last: i64 = zombie.query_row("SELECT token FROM semel_fence", [], |row| row.get(0)).unwrap();
    assert_eq!(last, 1, "the token is not stale, says the look");
    assert_eq!(take_over(&mut holder, TransactionBehavior::Immediate, true, &old, &new), 0);
    post(&zombie, &old).unwrap();
    assert_eq!(posts(&watch, &old), 1, "it landed after the new holder");
}

/// Many at once with all kinds of tokens. Answers the tokens in the order of commits, and how many were refused.
fn crowd(fenced: bool, chance: &mut Chance) -> (Vec<i64>, u64) {
    let (stage, each) = (Stage::new(), rounds(200).div_ceil(4));
    let start = Barrier::new(8);
    let refusals = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (mut db, mut chance, start) = (stage.open(), chance.split(), &start);
                scope.spawn(move || {
                    start.wait();
                    let mut refusals = 0;
                    for turn in 0..each {
                        let token = 1 + turn + chance.below(8);
                        let grant = grant(token, u8::try_from(token % 251).unwrap());
                        let nap = Duration::from_micros(chance.below(500));
                        let done = if fenced {
                            let transaction = db.transaction_with_behavior(chance.of(&BEGINS)).unwrap();
                            let passed = pass(&transaction, chance.coin(), &grant);
                            std::thread::sleep(nap);
                            passed.is_ok()
                                && post(&transaction, &grant).is_ok()
                                && transaction.commit().is_ok()
                        } else {
                            let question = "SELECT coalesce(max(token), 0) FROM posts";
                            let last: i64 = db.query_row(question, [], |row| row.get(0)).unwrap();
                            std::thread::sleep(nap);
                            last <= token.cast_signed() && post(&db, &grant).is_ok()
                        };
                        refusals += u64::from(!done);
                    }
                    refusals
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
    });
    let db = stage.open();
    let mut order = db.prepare("SELECT token FROM posts ORDER BY id").unwrap();
    let tokens: Vec<i64> = order.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(tokens.len() as u64 + refusals, 8 * each, "every turn was one or the other");
    (tokens, refusals)
}

#[test]
fn sqlite_in_a_crowd_commits_follow_the_tokens() {
    let mut chance = Chance::new("sqlite_in_a_crowd_commits_follow_the_tokens");
    let seed = chance.seed();
    let (tokens, refusals) = crowd(true, &mut chance);
    assert!(tokens.is_sorted(), "{tokens:?}");
    counted("sinks", "sqlite.crowd", tokens.len() as u64 + refusals, "writes", 0, Some(seed));
    assert!(tokens.len() > 10 && refusals > 10, "{} passed, {refusals} were refused", tokens.len());
    // by chance a crowd may be in order; not one after the other
    let goes_back = (0..20).any(|_| !crowd(false, &mut chance).0.is_sorted());
    assert!(goes_back, "the control must go back");
}
