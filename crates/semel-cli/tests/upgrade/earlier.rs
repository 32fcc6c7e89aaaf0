//! The kept ledgers are read by this build and gone on with; and this build still writes what it kept.

use std::path::Path;

use semel_core::record::FORMAT;
use semel_testkit::{Etcd, NatsVersion, PgServer, Redis, nats};
use serde_json::Value;

use crate::fixture::{SCHEMA_1, dump, folder, kept, load, opened, runtime, shapes, value_of};
use crate::scenario;
use crate::support::{Home, Said};

fn ask(home: &Home, store: &str, args: &str) -> Said {
    home.launch(home.semel(args.split_whitespace()).env("SEMEL_STORE", store)).end()
}

pub(crate) fn run(home: &Home, store: &str, flags: &str, script: &str) -> Said {
    home.launch(home.work(flags, script).env("SEMEL_STORE", store)).end()
}

fn token_of(lines: &[Value], resource: &str) -> u64 {
    let key = format!("lease/{resource}");
    let found = lines.iter().find(|line| line["key"] == key.as_str()).unwrap_or_else(|| panic!("{resource}"));
    found["value"]["grant"]["token"].as_u64().unwrap()
}

/// Everything of the ledger is read, and what each state promises still holds.
pub(crate) fn is_gone_on_with(home: &Home, store: &str, lines: &[Value]) {
    every_record_is_shown(home, store, lines);
    let effect = "echo x >> effects";
    for done in [
        "once --once",
        "done --slot 2026-06-19 --with series=landing",
        "keyed --key a/b#c",
        "probed --once",
        "judged --once",
        "again --once",
        "forgotten --once",
    ] {
        run(home, store, &format!("--job {done}"), effect).exits(0);
    }
    assert_eq!(home.lines("effects").len(), 0, "what was done is not done again");
    for person in ["in-doubt --once", "probed-unknown --once", "quarantined --once", "blocked --once"] {
        let script = if person.starts_with("blocked") {
            "$SEMEL step send -- sh -c 'echo x >> effects'; exit $?"
        } else {
            effect
        };
        run(home, store, &format!("--job {person}"), script).exits(79);
    }
    assert_eq!(home.lines("effects").len(), 0, "what a person must look at is not done by itself");
    let told = ask(home, store, "batch items --job posts --key id --max-failures 2 -- sh -c true {id}");
    told.exits(79).saying("skipped 2");
    // the binding of a payload holds as well
    home.write("other.json", "{\"text\":\"other\",\"at\":1,\"n\":[1,2.5]}");
    run(home, store, "--job done --slot 2026-06-19 --with series=landing --payload other.json", effect)
        .exits(65);
    tokens_go_on(home, store, lines);
    let before = home.lines("effects").len();
    for open in [
        "failed --once",
        "interrupted --once",
        "let-go --once",
        "timed-out --once",
        "killed --once",
        "trace --once",
    ] {
        run(home, store, &format!("--job {open}"), effect).exits(0);
    }
    assert_eq!(home.lines("effects").len(), before + 6, "what was to be done is done");
    ask(home, store, "resolve in-doubt --done --because looked").exits(0);
    run(home, store, "--job in-doubt --once", effect).exits(0);
    assert_eq!(home.lines("effects").len(), before + 6);
    // a step that was done is replayed
    let said = run(home, store, "--job steps --once", "$SEMEL step a -- sh -c 'echo x >> effects'").exits(0);
    assert_eq!((said.text().as_str(), home.lines("effects").len()), ("out", before + 6));
}

fn every_record_is_shown(home: &Home, store: &str, lines: &[Value]) {
    ask(home, store, "status").exits(0);
    ask(home, store, "status --json").exits(0);
    let listed = ask(home, store, "ls --json").exits(0).text().lines().count();
    let entries =
        |room: &str| lines.iter().filter(|line| line["key"].as_str().unwrap().starts_with(room)).count();
    let least = entries("entry/");
    assert!(listed >= least / 2, "{listed} of {least}");
    ask(home, store, "check --json");
    for line in lines {
        let key = line["key"].as_str().unwrap();
        if !["entry/", "step/", "item/"].iter().any(|room| key.starts_with(room)) {
            continue;
        }
        let shown =
            ask(home, store, &format!("show {} --json", key.rsplit('/').next().unwrap())).exits(0).json();
        assert_eq!(
            shown["entry"]["state"].as_str().or(shown["state"].as_str()).map(str::is_empty),
            Some(false),
            "{key}: {shown}"
        );
        // thousands of slots that were missed are all alike
        if !key.starts_with("entry/often") {
            ask(home, store, &format!("why {}", key.rsplit('/').next().unwrap())).exits(0);
        }
    }
    for job in ["done", "steps", "posts", "daily", "alarmed"] {
        ask(home, store, &format!("history {job}")).exits(0);
    }
}

fn tokens_go_on(home: &Home, store: &str, lines: &[Value]) {
    for resource in ["given-back", "failed"] {
        let token: u64 =
            ask(home, store, &format!("lease acquire {resource} --ttl 60s")).exits(0).text().parse().unwrap();
        assert!(token > token_of(lines, resource), "{resource}: {token}");
        ask(home, store, &format!("lease release {resource} --token {token}")).exits(0);
    }
}

/// The file as that version made it: its own schema, and rows of before a reboot.
pub(crate) fn database(path: &Path, version: &str, lines: &[Value]) {
    let schema = std::fs::read_to_string(folder().join(format!("ledger-{version}.sql"))).unwrap();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let database = rusqlite::Connection::open(path).unwrap();
    database.execute_batch(&schema).unwrap();
    for (at, line) in lines.iter().enumerate() {
        let clock = line["clock"].as_str().map(|_| (60_000_i64, 1_000_000_i64, vec![7_u8; 16]));
        let (ttl, touched, boot) = clock.map_or((None, None, None), |(a, b, c)| (Some(a), Some(b), Some(c)));
        database
            .execute(
                "INSERT INTO records (key, version, ttl_ms, touched_ns, boot, value) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                rusqlite::params![line["key"].as_str(), at as i64 + 1, ttl, touched, boot, value_of(line)],
            )
            .unwrap();
    }
}

pub(crate) fn prepared() -> Home {
    let home = Home::new();
    home.write("items", "{\"id\":1,\"t\":\"a\"}\n{\"id\":3,\"t\":\"c\"}\n{\"id\":2,\"t\":\"b\"}\n");
    home
}

#[test]
fn a_kept_database_is_read_and_gone_on_with() {
    for (version, lines) in kept() {
        let home = prepared();
        database(&home.database(), &version, &lines);
        let store = format!("sqlite:{}", home.database().display());
        is_gone_on_with(&home, &store, &lines);
        // its machine was started anew: whoever ran is gone, and the work is taken up
        run(&home, &store, "--job running --once --resource shared", "echo x >> taken-up").exits(0);
        assert_eq!(home.lines("taken-up").len(), 1, "{version}");
    }
}

/// In a shared store the holder of another machine goes on: nobody takes its work.
fn in_a_shared_store(url: impl Fn(&Home) -> String) {
    for (_, lines) in kept().into_iter().filter(|(version, _)| version != SCHEMA_1) {
        let home = prepared();
        let store = url(&home);
        runtime().block_on(async { load(&*opened(&store), &lines).await });
        is_gone_on_with(&home, &store, &lines);
        run(&home, &store, "--job running --once --resource shared", "echo x >> taken-up").exits(0);
        run(&home, &store, "--job lost --once --if-busy fail", "echo x >> taken-up").exits(75);
        assert_eq!(home.lines("taken-up").len(), 0, "its lease is live there");
    }
}

#[test]
fn a_kept_ledger_in_a_directory() {
    in_a_shared_store(|home| format!("dir:{}", home.path("shared").display()));
}

#[test]
fn a_kept_ledger_in_postgresql() {
    let server = PgServer::start();
    in_a_shared_store(|_| server.url());
}

#[test]
fn a_kept_ledger_in_redis() {
    let server = Redis::start();
    in_a_shared_store(|_| server.url());
}

#[test]
fn a_kept_ledger_in_etcd() {
    let server = Etcd::start();
    in_a_shared_store(|_| server.url("kept"));
}

#[test]
fn a_kept_ledger_in_nats() {
    let server = nats(NatsVersion::Recent, "");
    in_a_shared_store(|_| format!("nats://{}/kept", server.address(0)));
}

/// Who changes what records look like must say so: by a new format, or by a new kept ledger that both versions read.
#[test]
fn this_build_writes_what_it_kept() {
    let home = Home::new();
    let running = scenario::make(&home);
    let is = shapes(&dump(&home.store()));
    drop(running);
    let all = kept();
    let (version, lines) = all.last().unwrap();
    let was = shapes(lines);
    let formats: Vec<&str> = was
        .iter()
        .filter(|shape| shape.contains(".v="))
        .map(|shape| shape.rsplit('=').next().unwrap())
        .collect();
    assert!(
        formats.iter().all(|format| *format == FORMAT.to_string()),
        "records have format {FORMAT} now, and the newest kept ledger ({version}) another: raise the version of the workspace, then cargo xtask fixture"
    );
    let (new, gone): (Vec<_>, Vec<_>) = (is.difference(&was).collect(), was.difference(&is).collect());
    assert!(
        new.is_empty() && gone.is_empty(),
        "records no longer look like those of {version}: new {new:#?}, gone {gone:#?}. If {version} reads the new ones and \
         loses nothing by writing them back, keep a ledger of the new version (cargo xtask fixture); else raise FORMAT in \
         semel-core/src/record.rs first"
    );
}

/// `cargo xtask fixture`: not a test. With `SEMEL_BUILD` and `SEMEL_KEPT_AS` it keeps a ledger of another build by another name;
/// `schema1` was made so by the build of commit 5a8a2b7.
#[test]
#[ignore = "writes fixtures/ledger-VERSION: cargo xtask fixture"]
fn keep_this_ledger() {
    let home = Home::new();
    let running = scenario::make(&home);
    let schema = schema_of(&home);
    let mut lines = dump(&home.store());
    drop(running);
    // a thousand missed slots are all alike
    let mut often = 0;
    lines.retain(|line| {
        often += usize::from(line["key"].as_str().unwrap().starts_with("entry/often/"));
        often <= 3 || !line["key"].as_str().unwrap().starts_with("entry/often/")
    });
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned();
    let place = home.path("").display().to_string();
    let mut text = String::new();
    for line in lines {
        // nothing of this machine is kept
        let line = line.to_string().replace(&boot, "00000000-0000-4000-8000-000000000000");
        let line = line.replace(&format!("\"host\":\"{host}\""), "\"host\":\"fixture\"");
        let line = line
            .replace(&format!("@{host}\""), "@fixture\"")
            .replace(place.trim_end_matches('/'), "/home/fixture");
        text.push_str(&format!("{line}\n"));
    }
    let version = std::env::var("SEMEL_KEPT_AS").unwrap_or_else(|_| env!("CARGO_PKG_VERSION").to_owned());
    let name = format!("ledger-{version}");
    std::fs::write(folder().join(format!("{name}.jsonl")), text).unwrap();
    std::fs::write(folder().join(format!("{name}.sql")), schema).unwrap();
}

/// As the build that made it has it: whoever else opens it may bring it to a later one.
fn schema_of(home: &Home) -> String {
    let database = rusqlite::Connection::open(home.database()).unwrap();
    let number =
        |name: &str| database.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).unwrap();
    let mut schema = format!(
        "PRAGMA application_id = {};\nPRAGMA user_version = {};\nPRAGMA journal_mode = WAL;\n",
        number("application_id"),
        number("user_version")
    );
    let mut tables = database.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").unwrap();
    for sql in tables.query_map([], |row| row.get::<_, String>(0)).unwrap() {
        schema.push_str(&format!("{};\n", sql.unwrap()));
    }
    schema
}

/// The schema of a database is kept too: who changes it raises its version.
#[test]
fn this_build_makes_the_schema_it_kept() {
    let home = Home::new();
    home.run("--job a --once", "true").exits(0);
    let all = kept();
    let (version, _) = all.last().unwrap();
    let wanted = std::fs::read_to_string(folder().join(format!("ledger-{version}.sql"))).unwrap();
    let database = rusqlite::Connection::open(home.database()).unwrap();
    let schema: String = database
        .query_row("SELECT sql FROM sqlite_schema WHERE name = 'records'", [], |row| row.get(0))
        .unwrap();
    let number: i64 = database.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert!(
        wanted.contains(&schema) && wanted.contains(&format!("user_version = {number};")),
        "another schema than that of {version}: raise SCHEMA, and keep a ledger of the new version"
    );
}
