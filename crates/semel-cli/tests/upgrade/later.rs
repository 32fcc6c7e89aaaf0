//! What a later version wrote: refused by every command in one clear line, and never written over.

use semel_testkit::{Etcd, NatsVersion, PgServer, Redis, nats};
use serde_json::Value;

use crate::fixture::{dump, kept, load, opened, runtime};
use crate::support::Home;

/// Every command that opens a ledger, with a work that is in it.
const COMMANDS: &[&str] = &[
    "run --job once --once -- touch effect",
    "run --job failed --once -- touch effect",
    "run --job running --once --resource shared -- touch effect",
    "run --job resting --once -- touch effect",
    "run daily",
    "batch items --job posts --key id -- touch effect",
    "lease acquire given-back",
    "lease renew given-back --token 1",
    "lease release given-back --token 1",
    "lease show given-back",
    "lease hold given-back -- touch effect",
    "show once",
    "why once",
    "resolve in-doubt --done --because x",
];

/// Commands that go through all of a ledger: they pass over a record that they cannot read, and say so.
const LOOKS: &[&str] = &["status", "ls", "history once", "retry failed --failed", "gc", "check", "doctor"];

const CONFIG: &str =
    "[jobs.daily]\ncommand = \"touch effect\"\nevery = \"day\"\ntz = \"UTC\"\nwith = { shop = \"x\" }\n";

/// The kept ledger as a later version would have it.
fn later() -> Vec<Value> {
    let (_, mut lines) = kept().pop().unwrap();
    lines.retain(|line| !line["key"].as_str().unwrap().starts_with("entry/often"));
    for line in &mut lines {
        if line["value"].is_object() {
            line["value"]["v"] = 2.into();
            line["value"]["something"] = "new".into();
        }
    }
    lines
}

fn prepared() -> Home {
    let home = Home::new();
    home.write("semel.toml", CONFIG);
    home.write("items", "{\"id\":1,\"t\":\"a\"}\n{\"id\":2,\"t\":\"b\"}\n");
    home
}

/// What is refused, and what must stand in the line.
#[track_caller]
fn every_command_is_refused(home: &Home, store: &str, code: i32, says: &[&str]) {
    for command in COMMANDS {
        let said = home.launch(home.semel(command.split_whitespace()).env("SEMEL_STORE", store)).end();
        assert!(said.code == code, "semel {command} on {store}: {} {} {}", said.code, said.err, said.text());
        for part in says {
            assert!(said.err.contains(part), "semel {command} on {store}: {part:?} is not in {}", said.err);
        }
    }
    assert!(!home.path("effect").exists(), "something ran");
}

/// A ledger that cannot be opened at all is refused by those that look, too.
#[track_caller]
fn every_look_is_refused(home: &Home, store: &str, code: i32, part: &str) {
    for command in LOOKS.iter().filter(|command| **command != "doctor") {
        home.launch(home.semel(command.split_whitespace()).env("SEMEL_STORE", store))
            .end()
            .exits(code)
            .saying(part);
    }
}

fn later_records_are_refused(store: &str, home: &Home) {
    let lines = later();
    runtime().block_on(async { load(&*opened(store), &lines).await });
    let before = dump(store);
    every_command_is_refused(home, store, 78, &["newer Semel", "format 2", "this one reads 1", "upgrade"]);
    for command in LOOKS {
        let said = home.launch(home.semel(command.split_whitespace()).env("SEMEL_STORE", store)).end();
        let all = format!("{}{}", said.text(), said.err);
        assert!(
            all.contains("newer Semel (format 2") || all.contains("cannot be read"),
            "semel {command} on {store}: {} {all}",
            said.code
        );
    }
    let after = dump(store);
    for (was, is) in before.iter().zip(&after) {
        assert_eq!(was["value"], is["value"], "written over");
        assert_eq!(was["key"], is["key"]);
    }
    assert_eq!(before.len(), after.len());
    // and it is not carried elsewhere as if it were understood
    let elsewhere = format!("sqlite:{}", home.path("elsewhere.db").display());
    let said = home.launch(&mut home.semel(["store", "copy", store, elsewhere.as_str()])).end();
    assert_ne!(said.code, 0, "{}", said.text());
}

#[test]
fn later_records_in_sqlite() {
    let home = prepared();
    std::fs::create_dir_all(home.path("store")).unwrap();
    later_records_are_refused(&format!("sqlite:{}", home.database().display()), &home);
}

#[test]
fn later_records_in_a_directory() {
    let home = prepared();
    later_records_are_refused(&format!("dir:{}", home.path("shared").display()), &home);
}

#[test]
fn later_records_in_postgresql() {
    let server = PgServer::start();
    later_records_are_refused(&server.url(), &prepared());
}

#[test]
fn later_records_in_redis() {
    let server = Redis::start();
    later_records_are_refused(&server.url(), &prepared());
}

#[test]
fn later_records_in_etcd() {
    let server = Etcd::start();
    later_records_are_refused(&server.url("later"), &prepared());
}

#[test]
fn later_records_in_nats() {
    let server = nats(NatsVersion::Recent, "");
    later_records_are_refused(&format!("nats://{}/later", server.address(0)), &prepared());
}

#[test]
fn a_later_schema_of_sqlite() {
    let home = prepared();
    home.run("--job once --once", "true").exits(0);
    let database = rusqlite::Connection::open(home.database()).unwrap();
    database.execute_batch("PRAGMA user_version = 3; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let before = std::fs::read(home.database()).unwrap();
    let store = format!("sqlite:{}", home.database().display());
    every_command_is_refused(&home, &store, 78, &["newer Semel", "schema 3", "this one knows 2", "upgrade"]);
    every_look_is_refused(&home, &store, 78, "newer Semel (schema 3");
    assert_eq!(std::fs::read(home.database()).unwrap(), before);
}

#[test]
fn a_later_marker_of_a_directory() {
    let home = prepared();
    let store = format!("dir:{}", home.path("shared").display());
    home.launch(home.work("--job once --once", "true").env("SEMEL_STORE", &store)).end().exits(0);
    let marker = home.path("shared/semel-dir");
    let text = std::fs::read_to_string(&marker).unwrap().replace("semel-dir 1", "semel-dir 2");
    std::fs::write(&marker, &text).unwrap();
    every_command_is_refused(&home, &store, 69, &["newer Semel", "format 2", "this one knows 1", "upgrade"]);
    every_look_is_refused(&home, &store, 69, "newer Semel (format 2");
    assert_eq!(std::fs::read_to_string(&marker).unwrap(), text);
}

#[test]
fn a_later_schema_of_postgresql() {
    let server = PgServer::start();
    let home = prepared();
    home.launch(home.work("--job once --once", "true").env("SEMEL_STORE", server.url())).end().exits(0);
    // its functions have other names then
    server.psql("UPDATE semel.ledger SET version = 2; DROP SCHEMA IF EXISTS other; \
        DO $$ DECLARE f record; BEGIN FOR f IN SELECT oid::regprocedure AS name FROM pg_proc WHERE pronamespace = 'semel'::regnamespace \
        LOOP EXECUTE 'DROP FUNCTION ' || f.name || ' CASCADE'; END LOOP; END $$");
    every_command_is_refused(
        &home,
        &server.url(),
        69,
        &["newer Semel", "schema 2", "this one knows 1", "upgrade"],
    );
}
