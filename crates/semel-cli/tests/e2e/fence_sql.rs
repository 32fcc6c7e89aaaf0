//! `semel fence sql`: what it prints makes a fence, and a run's own variables pass it.

use rusqlite::Connection;

use crate::support::Home;

#[test]
fn the_printed_migration_is_the_librarys() {
    let home = Home::new();
    for (dialect, migration) in [
        ("postgres", semel::sink::sql::POSTGRES),
        ("postgresql", semel::sink::sql::POSTGRES),
        ("sqlite", semel::sink::sql::SQLITE),
    ] {
        let mut command = home.semel(["fence", "sql", "--dialect", dialect]);
        let said = home.launch(&mut command).end().exits(0).silent();
        assert_eq!(String::from_utf8(said.out).unwrap(), migration);
    }
    let mut command = home.semel(["fence", "sql", "--dialect", "oracle"]);
    home.launch(&mut command).end().exits(78).saying("postgres").saying("sqlite");
    let mut command = home.semel(["fence", "sql"]);
    home.launch(&mut command).end().exits(78).saying("--dialect");
    // half of a migration is no answer
    let full = home.script("exec $SEMEL fence sql --dialect sqlite > /dev/full").status().unwrap();
    assert_eq!(full.code(), Some(78));
}

/// In a script: `fence`, then the post, in one transaction.
const PUBLISH: &str = r#"exec python3 - <<'END'
import os, sqlite3, sys
db = sqlite3.connect("user.db", isolation_level=None)
try:
    db.execute("BEGIN")
    db.execute("INSERT INTO semel_fence (resource, token, nonce) VALUES (?, ?, ?)",
               (os.environ["SEMEL_RESOURCE"], int(os.environ["SEMEL_TOKEN"]), os.environ["SEMEL_NONCE"]))
    db.execute("INSERT INTO posts VALUES (?)", (os.environ["SEMEL_TOKEN"],))
    db.execute("COMMIT")
except sqlite3.IntegrityError as why:
    sys.exit(77 if str(why).startswith("SM077") else 79)
END"#;

#[test]
fn a_run_passes_with_its_own_variables_until_another_has_taken_over() {
    let home = Home::new();
    let mut command = home.semel(["fence", "sql", "--dialect", "sqlite"]);
    let migration = home.launch(&mut command).end().exits(0).text();
    let user = Connection::open(home.path("user.db")).unwrap();
    user.execute_batch(&migration).unwrap();
    user.execute_batch("CREATE TABLE posts (title TEXT)").unwrap();
    home.run("--job publish --slot 1 --resource site", PUBLISH).exits(0).silent();
    home.run("--job publish --slot 2 --resource site", PUBLISH).exits(0).silent();
    let titles: String =
        user.query_row("SELECT group_concat(title) FROM posts", [], |row| row.get(0)).unwrap();
    assert_eq!(titles, "1,2");
    // another, on a ledger that is ahead
    user.execute("UPDATE semel_fence SET token = 9", []).unwrap();
    home.run("--job publish --slot 3 --resource site", PUBLISH).exits(77);
    let posts: i64 = user.query_row("SELECT count(*) FROM posts", [], |row| row.get(0)).unwrap();
    assert_eq!(posts, 2, "nothing of the third");
}
