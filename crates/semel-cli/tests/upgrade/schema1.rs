//! A database of schema 1: brought to this build's by whoever comes first, with nobody's record lost, and gone on with.

use std::path::Path;

use rusqlite::types::Value as Cell;

use crate::earlier::{database, is_gone_on_with, prepared, run};
use crate::fixture::{SCHEMA_1, kept_by};
use crate::support::{Home, Running};

/// Processes that come at once.
const CROWD: usize = 24;
/// Works that they come for.
const WORKS: usize = 6;

const COLUMNS: [&str; 6] = ["key", "version", "ttl_ms", "touched_ns", "boot", "value"];

/// Every row, by its key.
fn rows(path: &Path) -> Vec<Vec<Cell>> {
    let connection = rusqlite::Connection::open(path).unwrap();
    let all = format!("SELECT {} FROM records ORDER BY key", COLUMNS.join(", "));
    let mut all = connection.prepare(&all).unwrap();
    let row = |row: &rusqlite::Row<'_>| (0..COLUMNS.len()).map(|column| row.get(column)).collect();
    all.query_map([], row).unwrap().map(Result::unwrap).collect()
}

fn schema(path: &Path) -> (i64, String) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let number = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    let tables = "SELECT group_concat(name) FROM sqlite_schema WHERE type = 'table'";
    (number, connection.query_row(tables, [], |row| row.get(0)).unwrap())
}

fn at_home() -> (Home, String) {
    let home = prepared();
    database(&home.database(), SCHEMA_1, &kept_by(SCHEMA_1));
    let store = format!("sqlite:{}", home.database().display());
    assert_eq!(schema(&home.database()).0, 1, "the kept ledger has the schema that it is kept for");
    (home, store)
}

#[test]
fn a_look_brings_it_to_this_schema_and_changes_no_record() {
    let (home, store) = at_home();
    let before = rows(&home.database());
    home.launch(home.semel(["status"]).env("SEMEL_STORE", &store)).end().exits(0);
    assert_eq!(schema(&home.database()), (2, "records".to_owned()));
    assert_eq!(rows(&home.database()), before);
}

/// Half of them are killed wherever they are: what they began is taken back or stays whole.
#[test]
fn many_that_come_at_once_change_it_once_and_do_everything_once() {
    let (home, store) = at_home();
    let before = rows(&home.database());
    let start = |job: &str, script: &str| -> Running {
        let flags = format!("--job {job} --once --if-busy wait=30s");
        home.launch(home.work(&flags, script).env("SEMEL_STORE", &store))
    };
    let killed: Vec<Running> = (0..CROWD / 2).map(|n| start(&format!("killed{n}"), "true")).collect();
    let effect = |n| format!("echo {n} >> crowd");
    let stay: Vec<Running> =
        (0..CROWD).map(|n| start(&format!("new{}", n % WORKS), &effect(n % WORKS))).collect();
    killed.into_iter().for_each(|run| drop(run.kill_9()));
    stay.into_iter().for_each(|run| drop(run.end().exits(0)));
    let mut effects = home.lines("crowd");
    effects.sort();
    assert_eq!(effects, (0..WORKS).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(schema(&home.database()), (2, "records".to_owned()));
    let after = rows(&home.database());
    assert!(before.iter().all(|row| after.contains(row)), "every record is there as it was");
    is_gone_on_with(&home, &store, &kept_by(SCHEMA_1));
    run(&home, &store, "--job running --once --resource shared", "echo x >> taken-up").exits(0);
    assert_eq!(home.lines("taken-up").len(), 1);
}
