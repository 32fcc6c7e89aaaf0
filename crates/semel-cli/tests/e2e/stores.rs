//! Addresses of stores from the outside: another store by another address, a ledger that is carried over, and every
//! wrong address in one clear line without its secret.

use crate::support::{Home, Said};

fn ask(home: &Home, store: &str, args: &[&str]) -> Said {
    home.launch(home.semel(args).env("SEMEL_STORE", store)).end()
}

fn run(home: &Home, store: &str, job: &str) -> Said {
    ask(home, store, &["run", "--job", job, "--once", "--", "sh", "-c", "echo x >> effects"])
}

#[test]
fn a_ledger_is_carried_and_what_was_done_stays_done() {
    let home = Home::new();
    let (from, to) =
        (format!("sqlite:{}", home.path("l.db").display()), format!("dir:{}", home.path("shared").display()));
    for job in ["a", "b", "c"] {
        run(&home, &from, job).exits(0);
    }
    let copied =
        home.launch(home.semel(["store", "copy", &from, "env:TARGET"]).env("TARGET", &to)).end().exits(0);
    assert!(copied.text().contains("compared and equal"), "{}", copied.text());
    for job in ["a", "b", "c"] {
        run(&home, &to, job).exits(0);
    }
    assert_eq!(home.lines("effects").len(), 3, "nothing ran again");
    run(&home, &to, "d").exits(0);
    assert_eq!(home.lines("effects").len(), 4);
    // the target has gone on: it is somebody's ledger now
    ask(&home, &from, &["store", "copy", &from, &to]).exits(65).saying("other records");
    ask(&home, &from, &["store", "copy", &from, &from]).exits(78).saying("the same store");
    let nothing = format!("sqlite:{}", home.path("none.db").display());
    ask(&home, &from, &["store", "copy", &nothing, &to]).exits(78).saying("there is no ledger");
    ask(&home, &from, &["store", "copy", &from, "env:NOT_SET"]).exits(78).saying("NOT_SET is not set");
}

#[test]
fn a_ledger_in_use_is_not_carried() {
    let home = Home::new();
    let (from, to) =
        (format!("sqlite:{}", home.path("l.db").display()), format!("dir:{}", home.path("shared").display()));
    let mut gate = home.gate("go");
    let long = ["run", "--job", "long", "--once", "--", "sh", "-c", "echo x >> begun; read go < go"];
    let running = home.launch(home.semel(long).env("SEMEL_STORE", &from));
    home.wait_lines("begun", 1);
    ask(&home, &from, &["store", "copy", &from, &to]).exits(75).saying("long is held in the source");
    gate.open(1);
    running.end().exits(0);
    ask(&home, &from, &["store", "copy", &from, &to]).exits(0);
}

#[test]
fn doctor_proves_a_shared_directory() {
    let home = Home::new();
    let store = format!("dir:{}", home.path("shared").display());
    let said = ask(&home, &store, &["doctor"]).text();
    assert!(said.contains("none was lost") && said.contains("a short lease lapsed"), "{said}");
}

#[test]
fn the_schema_of_postgresql_is_printed() {
    let home = Home::new();
    let said = home.ask("store schema --schema jobs").exits(0).text();
    assert!(said.contains("CREATE TABLE IF NOT EXISTS jobs.records"), "{said}");
    home.ask("store schema --schema a;b").exits(78).saying("schema");
}

/// Nobody listens at port 1 of this machine.
#[test]
fn a_store_that_is_down_is_69_and_nothing_runs() {
    let home = Home::new();
    for store in [
        "postgres://me:hunter2@127.0.0.1:1/db",
        "redis://me:hunter2@127.0.0.1:1/0",
        "etcd://me:hunter2@127.0.0.1:1/p",
        "nats://me:hunter2@127.0.0.1:1/b",
    ] {
        let said = run(&home, store, "x").exits(69);
        assert_eq!(said.err.lines().count(), 1, "{store}: {}", said.err);
        assert!(!said.err.contains("hunter2"), "{store}: {}", said.err);
    }
    assert_eq!(home.lines("effects").len(), 0);
}

#[test]
fn wrong_addresses_are_told_without_their_secret() {
    let home = Home::new();
    for store in [
        "mysql://me:hunter2@h/db",
        "postgres:hunter2",
        "redis://me:hunter2@h/x",
        "redis://me:hunter2@h/0?prefx=y",
        "postgres://me:hunter2@h/db?schema=A;B",
        "etcd://me:hunter2@/p",
        "nats://me:hunter2@h/a.b",
        "s3://?secret=hunter2",
        "dir:",
        "hunter2",
    ] {
        let said = run(&home, store, "x").exits(78);
        assert_eq!(said.err.lines().count(), 1, "{store}: {}", said.err);
        assert!(!said.err.contains("hunter2"), "{store}: {}", said.err);
    }
}
