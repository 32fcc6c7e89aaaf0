//! Databases that cannot be used: said clearly, nothing runs, and the file is left as it was.

use std::path::Path;

use rusqlite::Connection;

use crate::support::{Home, Said, skipped};

const EFFECT: &str = "echo x >> effects";

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// A home whose ledger knows something.
fn used() -> Home {
    let home = Home::new();
    home.assert_whole();
    home
}

/// A run on this store; nothing may have happened.
#[track_caller]
fn refused(home: &Home, store: &str, code: i32, why: &str) {
    let mut command = home.work("--job a --once", EFFECT);
    home.launch(command.env("SEMEL_STORE", store)).end().exits(code).saying(why);
    let mut command = home.semel(["lease", "acquire", "r", "--store", store]);
    let said: Said = home.launch(&mut command).end().exits(code).saying(why);
    assert_eq!(said.text(), "", "no token");
    assert_eq!(home.lines("effects").len(), 0);
}

#[test]
fn addresses_that_name_no_store() {
    let home = used();
    refused(&home, "cassandra://host/x", 78, "no store \"cassandra\"");
    refused(&home, "/var/lib/x.db", 78, "sqlite:");
    refused(&home, "sqlite:", 78, "has no path");
    home.assert_whole();
}

#[test]
fn an_address_that_is_not_utf8_is_not_taken_for_none() {
    use std::os::unix::ffi::OsStrExt;
    let home = used();
    let mut command = home.work("--job a --once", EFFECT);
    command.env("SEMEL_STORE", std::ffi::OsStr::from_bytes(b"sqlite:caf\xe9.db"));
    home.launch(&mut command).end().exits(78).saying("SEMEL_STORE is not UTF-8");
    assert!(!home.path("effects").exists() && !home.state_dir().join("ledger.db").exists());
    home.assert_whole();
}

#[test]
fn a_directory_a_device_and_a_path_through_a_file() {
    let home = used();
    home.write("file", "");
    let path = |name: &str| format!("sqlite:{}", home.path(name).display());
    refused(&home, &path("."), 78, "is a directory");
    refused(&home, "sqlite:/dev/null", 78, "is a device");
    refused(&home, &path("file/ledger.db"), 78, "cannot be a file");
    std::os::unix::fs::symlink("nowhere", home.path("dangling")).unwrap();
    refused(&home, &path("dangling"), 78, "link to a file that does not exist");
    home.assert_whole();
}

#[test]
fn a_file_that_is_no_database() {
    let home = used();
    let file = home.write(
        "notes.txt",
        "These are notes, and they are longer than the header of a database would be, by some bytes.",
    );
    let before = bytes(&file);
    refused(&home, &format!("sqlite:{}", file.display()), 78, "is not a SQLite database");
    assert_eq!(bytes(&file), before, "it is not ours to touch");
    home.assert_whole();
}

#[test]
fn a_database_of_another_program() {
    let home = used();
    let file = home.path("photos.db");
    let other = Connection::open(&file).unwrap();
    other.execute_batch("CREATE TABLE photos (id INTEGER); INSERT INTO photos VALUES (1)").unwrap();
    drop(other);
    let before = bytes(&file);
    refused(&home, &format!("sqlite:{}", file.display()), 78, "another program");
    assert_eq!(bytes(&file), before, "it is not ours to touch");
    home.assert_whole();
}

#[test]
fn a_database_of_a_newer_semel() {
    let home = used();
    let newer = Connection::open(home.database()).unwrap();
    newer.execute_batch("PRAGMA user_version = 99").unwrap();
    refused(&home, &home.store(), 78, "newer Semel (schema 99");
    newer.execute_batch("PRAGMA user_version = 2").unwrap();
    drop(newer);
    home.assert_whole();
}

#[test]
fn a_record_of_a_newer_semel_or_a_damaged_one_stops_only_its_work() {
    let home = used();
    home.run("--job a --once", "exit 3").exits(3);
    let database = Connection::open(home.database()).unwrap();
    let value: Vec<u8> = database
        .query_row("SELECT value FROM records WHERE key LIKE 'entry/a/%'", [], |row| row.get(0))
        .unwrap();
    let write = |value: &[u8]| {
        let changed =
            database.execute("UPDATE records SET value = ?1 WHERE key LIKE 'entry/a/%'", [value]).unwrap();
        assert_eq!(changed, 1);
    };
    write(b"{\"nonsense");
    home.run("--job a --once", EFFECT).exits(78).saying("damaged");
    home.assert_whole();
    write(&value);
    home.run("--job a --once", EFFECT).exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn a_damaged_database() {
    let home = used();
    // everything into one file, then its pages overwritten, the header left
    let database = Connection::open(home.database()).unwrap();
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    drop(database);
    let good = bytes(&home.database());
    let mut bad = good.clone();
    bad[100..].fill(0xa5);
    std::fs::write(home.database(), &bad).unwrap();
    let said = home.run("--job a --once", EFFECT);
    assert!([69, 78].contains(&said.code), "{said:?}");
    said.saying("ledger.db");
    assert_eq!(home.lines("effects").len(), 0);
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(home.path(&format!("store/ledger.db{suffix}")));
    }
    std::fs::write(home.database(), &good).unwrap();
    home.assert_whole();
}

#[test]
fn garbage_in_place_of_the_database() {
    let home = used();
    let good = home.path("store-good");
    std::fs::rename(home.path("store"), &good).unwrap();
    std::fs::create_dir(home.path("store")).unwrap();
    std::fs::write(home.database(), [0x5a; 20_000]).unwrap();
    refused(&home, &home.store(), 78, "is not a SQLite database");
    std::fs::remove_dir_all(home.path("store")).unwrap();
    std::fs::rename(&good, home.path("store")).unwrap();
    home.assert_whole();
}

#[test]
fn a_database_that_may_not_be_read() {
    let home = Home::new();
    // root may read anything: become somebody who may not
    let setpriv = "setpriv --reuid=65534 --regid=65534 --clear-groups true";
    if home.launch(&mut home.script(setpriv)).end().code != 0 {
        return skipped("a_database_that_may_not_be_read", "setpriv cannot change the user");
    }
    home.assert_whole();
    let open = |path: &Path, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    open(&home.path("."), 0o755);
    let script = "exec setpriv --reuid=65534 --regid=65534 --clear-groups $SEMEL run --job a --once -- touch /tmp/never-$$";
    for (folder, file) in [(0o755, 0o600), (0o700, 0o600), (0o755, 0o444)] {
        open(&home.path("store"), folder);
        open(&home.database(), file);
        let binary = home.path("semel");
        std::fs::copy(env!("CARGO_BIN_EXE_semel"), &binary).unwrap();
        let mut command = home.script(script);
        let said = home.launch(command.env("SEMEL", &binary).env("SEMEL_STORE", home.store())).end();
        said.exits(69).saying("check the owner and the mode");
    }
    open(&home.path("store"), 0o700);
    open(&home.database(), 0o600);
    home.assert_whole();
}

#[test]
fn a_ledger_that_is_moved_under_a_run_keeps_the_outcome() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let run = home.start("--job a --once", "echo x >> effects; read go < gate");
    home.wait_lines("effects", 1);
    std::fs::rename(home.path("store"), home.path("store-away")).unwrap();
    gate.open(1);
    run.end().exits(0).silent();
    std::fs::rename(home.path("store-away"), home.path("store")).unwrap();
    home.run("--job a --once", "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 1, "SQLite still had the file, so the outcome is in it");
}
