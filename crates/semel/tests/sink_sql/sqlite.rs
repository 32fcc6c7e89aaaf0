//! SQLite: what the fence takes and refuses, and how it is installed.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};
use semel::core::token::{Fence, Grant, TOKEN_MAX};
use semel::sink::sql::{self, SqlFenceError, sqlite::fence};

use crate::{grant, name};

const INSERT: &str = "INSERT INTO semel_fence (resource, token, nonce) VALUES (?1, ?2, ?3)";

fn memory() -> Connection {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(sql::SQLITE).unwrap();
    db.execute_batch("CREATE TABLE posts (title TEXT)").unwrap();
    db
}

fn insert(db: &Connection, site: &str, grant: &Grant) -> Result<usize, String> {
    let params = params![site, grant.token.value().cast_signed(), grant.nonce.to_string()];
    db.execute(INSERT, params).map_err(|why| why.to_string())
}

fn row(db: &Connection, site: &str) -> (i64, String) {
    let question = "SELECT token, nonce FROM semel_fence WHERE resource = ?1";
    db.query_row(question, [site], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

fn all() -> Vec<Grant> {
    [1, 2, 7, 1 << 32, TOKEN_MAX].into_iter().flat_map(|t| [grant(t, 1), grant(t, 2)]).collect()
}

#[test]
fn sqlite_the_librarys_rule_is_the_one_of_the_core() {
    // also where somebody has switched triggers off
    for triggers in [true, false] {
        let mut db = memory();
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, triggers).unwrap();
        for last in all() {
            for next in all() {
                let transaction = db.transaction().unwrap();
                fence(&transaction, &name("site"), &last).unwrap();
                let passed = fence(&transaction, &name("site"), &next);
                match next.against(Some(&last)) {
                    Fence::Advance | Fence::Same => {
                        passed.unwrap();
                        let stands = row(&transaction, "site");
                        assert_eq!(stands, (next.token.value().cast_signed(), next.nonce.to_string()));
                    }
                    Fence::Stale => match passed {
                        Err(SqlFenceError::Stale { last: found }) => assert_eq!(found, last.token),
                        other => panic!("{last:?} {next:?}: {other:?}"),
                    },
                    Fence::Clash => assert!(matches!(passed, Err(SqlFenceError::Clash)), "{passed:?}"),
                }
            }
        }
    }
}

#[test]
fn sqlite_a_plain_insert_follows_the_same_rule() {
    let mut db = memory();
    for last in all() {
        for next in all() {
            let transaction = db.transaction().unwrap();
            insert(&transaction, "site", &last).unwrap();
            let passed = insert(&transaction, "site", &next);
            match next.against(Some(&last)) {
                Fence::Advance | Fence::Same => assert_eq!(passed, Ok(1)),
                Fence::Stale => assert!(passed.unwrap_err().starts_with(sql::STALE)),
                Fence::Clash => assert!(passed.unwrap_err().starts_with(sql::CLASH)),
            }
        }
    }
}

/// However the statement is written, and whatever the token's type is.
#[test]
fn sqlite_no_spelling_gets_around_the_fence() {
    let db = memory();
    insert(&db, "site", &grant(10, 1)).unwrap();
    let upsert = "ON CONFLICT (resource) DO UPDATE SET token = excluded.token, nonce = excluded.nonce";
    let values =
        |token: &str| format!("semel_fence (resource, token, nonce) VALUES ('site', {token}, 'zombie')");
    let mut stale: Vec<String> =
        ["INSERT", "REPLACE", "INSERT OR IGNORE", "INSERT OR REPLACE", "INSERT OR FAIL"]
            .iter()
            .flat_map(|verb| ["9", "'9'", "9.0"].map(|token| format!("{verb} INTO {}", values(token))))
            .collect();
    stale.push(format!("INSERT INTO {} {upsert}", values("9")));
    stale.push(format!("INSERT INTO {} ON CONFLICT DO NOTHING", values("9")));
    stale.push("UPDATE semel_fence SET token = 9".into());
    stale.push("UPDATE OR REPLACE semel_fence SET token = 9, nonce = 'zombie'".into());
    for statement in &stale {
        let why = db.execute(statement, []).unwrap_err();
        assert!(why.to_string().starts_with(sql::STALE), "{statement}: {why}");
        assert_eq!(why.sqlite_error_code(), Some(ErrorCode::ConstraintViolation));
    }
    for statement in [
        "UPDATE semel_fence SET nonce = 'zombie'".to_owned(),
        format!("INSERT INTO {}", values("10")),
        format!("INSERT INTO {} {upsert}", values("'10'")),
    ] {
        let why = db.execute(&statement, []).unwrap_err();
        assert!(why.to_string().starts_with(sql::CLASH), "{statement}: {why}");
    }
    // what is no grant at all
    for (resource, token, nonce) in [
        ("'site'", "NULL", "'n'"),
        ("'site'", "'many'", "'n'"),
        ("'site'", "10.5", "'n'"),
        ("'site'", "9007199254740992", "'n'"),
        ("'site'", "11", "NULL"),
        ("'site'", "11", "x'00'"),
        ("x'73697465'", "11", "'n'"),
        ("NULL", "11", "'n'"),
        ("'new'", "0", "'n'"),
    ] {
        let statement =
            format!("INSERT INTO semel_fence (resource, token, nonce) VALUES ({resource}, {token}, {nonce})");
        assert!(db.execute(&statement, []).is_err(), "{statement}");
    }
    assert_eq!(row(&db, "site"), (10, grant(10, 1).nonce.to_string()));
    db.execute(&format!("INSERT INTO {} {upsert}", values("'11'")), []).unwrap();
    assert_eq!(row(&db, "site"), (11, "zombie".to_owned()));
}

#[test]
fn sqlite_the_fence_is_installed_again_and_its_absence_is_said() {
    let mut db = Connection::open_in_memory().unwrap();
    let transaction = db.transaction().unwrap();
    let missing = fence(&transaction, &name("site"), &grant(1, 1)).unwrap_err();
    assert!(matches!(missing, SqlFenceError::NotInstalled), "{missing:?}");
    assert!(missing.to_string().contains("semel fence sql"));
    drop(transaction);
    db.execute_batch(sql::SQLITE).unwrap();
    insert(&db, "site", &grant(7, 1)).unwrap();
    db.execute_batch(sql::SQLITE).unwrap();
    assert_eq!(row(&db, "site").0, 7);
}

/// A transaction that has read before the new holder came is refused by SQLite itself, in both kinds of journal.
#[test]
fn sqlite_a_deferred_transaction_that_read_the_past_writes_nothing() {
    for journal in ["wal", "delete"] {
        let folder = tempfile::tempdir().unwrap();
        let open = || Connection::open(folder.path().join("user.db")).unwrap();
        let (mut zombie, mut holder) = (open(), open());
        for db in [&zombie, &holder] {
            db.busy_timeout(std::time::Duration::ZERO).unwrap();
            db.pragma_update(None, "journal_mode", journal).unwrap();
            db.execute_batch(sql::SQLITE).unwrap();
        }
        holder.execute_batch("CREATE TABLE posts (title TEXT)").unwrap();
        insert(&zombie, "site", &grant(1, 1)).unwrap();

        let old = zombie.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
        assert_eq!(row(&old, "site").0, 1);
        let new = holder.transaction().unwrap();
        fence(&new, &name("site"), &grant(2, 2)).unwrap();
        new.execute("INSERT INTO posts VALUES ('new')", []).unwrap();
        // without WAL a reader keeps the writer from committing for a while, and may not write itself
        let committed = new.execute_batch("COMMIT");
        assert_eq!(committed.is_ok(), journal == "wal", "{committed:?}");

        let SqlFenceError::Database(why) = fence(&old, &name("site"), &grant(1, 1)).unwrap_err() else {
            panic!("{journal}: it is SQLite that refuses")
        };
        let why = why.downcast_ref::<rusqlite::Error>().unwrap();
        assert_eq!(why.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{journal}: {why}");
        assert!(old.execute("INSERT INTO posts VALUES ('old')", []).is_err());
        drop(old);
        if journal == "delete" {
            new.execute_batch("COMMIT").unwrap();
        }
        let titles: String =
            open().query_row("SELECT group_concat(title) FROM posts", [], |row| row.get(0)).unwrap();
        assert_eq!(titles, "new", "{journal}");
        let old = zombie.transaction().unwrap();
        assert!(matches!(fence(&old, &name("site"), &grant(1, 1)), Err(SqlFenceError::Stale { .. })));
    }
}
