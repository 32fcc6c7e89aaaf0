//! `semel write` and `semel fence`: a stale holder writes nothing.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::processes::is_stopped;
use crate::support::{Home, Running, SOON, Said, mode, until};

/// The token of a new grant; whoever had it before lets it go.
#[track_caller]
fn next_token(home: &Home, resource: &str) -> u64 {
    let shown = home.ask(&format!("lease show {resource} --json")).exits(0).json();
    if shown["held"] == true {
        home.ask(&format!("lease release {resource} --token {}", shown["token"])).exits(0);
    }
    home.ask(&format!("lease acquire {resource}")).exits(0).text().parse().unwrap()
}

/// Start `semel write ARGS` with this on stdin.
fn start(home: &Home, args: &str, content: &str) -> Running {
    let stdin = File::open(home.write("stdin", content)).unwrap();
    let mut command = home.semel(["write"]);
    home.launch(command.args(args.split_whitespace()).stdin(stdin))
}

#[track_caller]
fn write(home: &Home, args: &str, content: &str) -> Said {
    start(home, args, content).end()
}

#[track_caller]
fn read(home: &Home, name: &str) -> String {
    std::fs::read_to_string(home.path(name)).unwrap()
}

#[test]
fn it_writes_in_silence_and_says_what_when_asked() {
    let home = Home::new();
    let token = next_token(&home, "site");
    let args = format!("page.html --resource site --token {token}");
    let said = write(&home, &args, "one").exits(0).silent();
    assert_eq!((said.text(), read(&home, "page.html")), (String::new(), "one".to_owned()));
    assert_eq!((mode(&home.path("page.html")), mode(&home.path("page.html.fence"))), (0o600, 0o600));
    write(&home, &format!("{args} -v"), "three")
        .exits(0)
        .saying("wrote 5 bytes to ")
        .saying(&format!("with token {token} of site"));
    let told = write(&home, &format!("{args} --json"), "four").exits(0).json();
    assert_eq!((&told["v"], &told["outcome"], &told["bytes"]), (&1.into(), &"written".into(), &4.into()));
    assert_eq!((&told["token"], &told["fence_advanced"]), (&token.into(), &false.into()));
    write(&home, &args, "").exits(0).silent();
    assert_eq!(read(&home, "page.html"), "");
}

#[test]
fn a_lease_that_was_taken_over_writes_nothing_and_reads_nothing() {
    let home = Home::new();
    let old = next_token(&home, "site");
    let new = next_token(&home, "site");
    write(&home, &format!("page.html --resource site --token {new}"), "new").exits(0);
    // the store knows it already
    write(&home, &format!("page.html --resource site --token {old}"), "old")
        .exits(77)
        .saying("nothing was done");
    assert_eq!(read(&home, "page.html"), "new");
    // stdin is not waited for
    let mut command = home.semel(["write", "page.html", "--resource", "site", "--token"]);
    let mut running = home.launch(command.arg(old.to_string()).stdin(Stdio::piped()));
    until("it ended without its stdin", SOON, || running.has_ended());
    running.end().exits(77);
}

/// A store that forgot what it gave: the fence beside the file did not.
#[test]
fn the_fence_refuses_what_a_store_without_memory_lets_through() {
    let home = Home::new();
    for _ in 0..3 {
        next_token(&home, "site");
    }
    write(&home, "page.html --resource site --token 3", "three").exits(0);
    std::fs::remove_dir_all(home.path("store")).unwrap();
    assert_eq!(next_token(&home, "site"), 1);
    let args = "page.html --resource site --token 1";
    write(&home, args, "old")
        .exits(77)
        .saying("refused token 1 of site: token 3 wrote last; nothing was written");
    let told = write(&home, &format!("{args} --json"), "old").exits(77).json();
    assert_eq!((&told["outcome"], &told["refusal"]), (&"refused".into(), &"stale".into()));
    assert_eq!((&told["fence"]["token"], &told["alarm"]), (&3.into(), &false.into()));
    next_token(&home, "site");
    assert_eq!(next_token(&home, "site"), 3);
    write(&home, "page.html --resource site --token 3", "other three").exits(77).saying("ALARM: ");
    let told = write(&home, "page.html --resource site --token 3 --json", "other three").exits(77).json();
    assert_eq!((&told["refusal"], &told["alarm"]), (&"clash".into(), &true.into()));
    assert_eq!(read(&home, "page.html"), "three");
    // the way out, as the message of `fence set` tells it
    home.ask("fence set page.html --resource site --token 2 --because restored").exits(77).saying("--back");
    home.ask("fence set page.html --resource site --token 2 --because restored --back").exits(0);
    write(&home, "page.html --resource site --token 3", "other three").exits(0);
    assert_eq!(read(&home, "page.html"), "other three");
}

#[test]
fn a_file_of_another_resource_needs_a_persons_word() {
    let home = Home::new();
    let site = format!("page.html --resource site --token {}", next_token(&home, "site"));
    write(&home, &site, "site").exits(0);
    let token = next_token(&home, "shop");
    let shop = format!("page.html --resource shop --token {token}");
    let said = write(&home, &shop, "shop").exits(77);
    // the command that it tells is the command that helps
    let (_, command) = said.err.trim_end().split_once(": semel fence set ").unwrap();
    let words = format!("fence set {}", command.replace("TEXT", "moved"));
    let below = token - 1;
    assert!(words.contains(&format!("--resource shop --token {below}")), "{words}");
    let said = home.ask(&words).exits(0).silent().text();
    assert!(said.contains("belongs to shop"), "{said}");
    assert!(below > 0 || said.contains("let every token pass"), "{said}");
    write(&home, &shop, "shop").exits(0);
    write(&home, &site, "site").exits(77).saying("belongs to shop");
    assert_eq!(read(&home, "page.html"), "shop");
}

#[test]
fn a_fence_is_shown_and_set() {
    let home = Home::new();
    assert!(home.ask("fence show page.html").exits(0).text().contains("no fence yet"));
    assert_eq!(home.ask("fence show page.html --json").exits(0).json()["fence"], serde_json::Value::Null);
    let token = next_token(&home, "site");
    let (args, above) = (format!("page.html --resource site --token {token}"), token + 4);
    write(&home, &args, "x").exits(0);
    assert_eq!(
        home.ask("fence show page.html").exits(0).text(),
        format!("page.html: belongs to site; token {token} wrote last")
    );
    home.ask(&format!("fence set page.html --resource site --token {above} --because maintenance"))
        .exits(0)
        .silent();
    let told = home.ask("fence show page.html --json").exits(0).json();
    assert_eq!((&told["fence"]["token"], &told["fence"]["by_a_person"]), (&above.into(), &true.into()));
    assert_eq!(told["fence"]["set"]["because"], "maintenance");
    write(&home, &args, "y").exits(77).saying(&format!("set its fence to {above}"));
    assert_eq!(read(&home, "page.html"), "x");
    for (args, part) in [
        ("page.html --resource site --token 6 --because ", "--because"),
        ("page.html --resource ../x --token 6 --because x", "--resource"),
        ("page.html --resource site --token x --because x", "--token"),
        ("page.html --resource site --token -1 --because x", "--token"),
        ("no/page.html --resource site --token 6 --because x", "there is no folder"),
    ] {
        let mut command = home.semel(["fence", "set"]);
        home.launch(command.args(args.split(' '))).end().exits(78).saying(part);
    }
    std::fs::write(home.path("page.html.fence"), "").unwrap();
    home.ask("fence show page.html").exits(78).saying("damaged");
    write(&home, &args, "y").exits(78).saying("damaged");
}

#[test]
fn links_are_followed_unless_refused() {
    let home = Home::new();
    let token = next_token(&home, "site");
    std::fs::create_dir(home.path("real")).unwrap();
    symlink("real/page.html", home.path("link")).unwrap();
    write(&home, &format!("link --no-follow --resource site --token {token}"), "x")
        .exits(78)
        .saying("--no-follow");
    write(&home, &format!("link --resource site --token {token}"), "x").exits(0);
    assert_eq!(read(&home, "real/page.html"), "x");
    assert!(home.path("real/page.html.fence").exists() && !home.path("link.fence").exists());
    write(&home, &format!("real --resource site --token {token}"), "x").exits(78).saying("is a folder");
    write(&home, &format!("none/page.html --resource site --token {token}"), "x")
        .exits(78)
        .saying("there is no folder");
}

#[test]
fn outside_of_a_run_the_lease_must_be_named() {
    let home = Home::new();
    write(&home, "page.html", "x").exits(78);
    write(&home, "page.html --resource site", "x").exits(78);
    write(&home, "page.html --resource site --token 1", "x").exits(77).saying("no longer held");
    assert!(!home.path("page.html").exists() && !home.path("page.html.fence").exists());
}

#[test]
fn the_content_is_never_whole_in_memory() {
    let home = Home::new();
    let token = next_token(&home, "site");
    let script = format!(
        "head -c 150000000 /dev/zero | (ulimit -v 100000; exec \"$SEMEL\" write big --resource site --token {token})"
    );
    home.launch(home.script(&script).env("SEMEL_STORE", home.store())).end().exits(0).silent();
    assert_eq!(std::fs::metadata(home.path("big")).unwrap().len(), 150_000_000);
}

#[test]
fn a_full_disk_leaves_the_old_content() {
    let home = Home::new();
    let token = next_token(&home, "site");
    write(&home, &format!("page.html --resource site --token {token}"), "old").exits(0);
    // as a disk that is full: no file of this process grows beyond a megabyte
    let script = format!(
        "trap '' XFSZ; ulimit -f 2000; head -c 5000000 /dev/zero | \"$SEMEL\" write page.html --resource site --token {token}"
    );
    let said = home.launch(home.script(&script).env("SEMEL_STORE", home.store())).end();
    said.exits(69).saying("nothing was written");
    assert_eq!(read(&home, "page.html"), "old");
    let left = std::fs::read_dir(home.path("")).unwrap().flatten();
    assert!(!left.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().contains(".semel-")));
}

/// `semel write`, stopped while its content comes in, and woken when another has written.
#[test]
fn a_zombie_that_wakes_up_in_the_middle_of_its_content_is_refused() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let old = next_token(&home, "site");
    let script =
        format!("(echo stale; read go < gate) | \"$SEMEL\" write page.html --resource site --token {old}");
    let zombie = home.launch(home.script(&script).env("SEMEL_STORE", home.store()));
    until("it has passed the fence", SOON, || {
        let shown = home.ask("fence show page.html --json").exits(0).json();
        shown["fence"]["token"] == old
    });
    let new = next_token(&home, "site");
    write(&home, &format!("page.html --resource site --token {new} --lock-wait 5s"), "new").exits(0).silent();
    gate.open(1);
    zombie.end().exits(77).saying(&format!("token {new} wrote last"));
    assert_eq!(read(&home, "page.html"), "new");
}

/// The same by hand: a temp file, and `mv` when it is whole.
#[test]
fn control_mv_lets_the_zombie_overwrite() {
    let home = Home::new();
    let mut gate = home.gate("gate");
    let zombie =
        home.launch(&mut home.script("(echo stale; read go < gate) > .page.tmp && mv .page.tmp page.html"));
    until("it has begun", SOON, || home.path(".page.tmp").exists());
    home.launch(&mut home.script("echo new > .page.tmp2 && mv .page.tmp2 page.html")).end().exits(0);
    assert_eq!(read(&home, "page.html"), "new\n");
    gate.open(1);
    zombie.end().exits(0);
    assert_eq!(read(&home, "page.html"), "stale\n", "a move knows nothing of tokens");
}

/// The same under a lock: it orders the writes, and lets the late one be last.
#[test]
fn control_a_lock_alone_lets_the_zombie_overwrite() {
    let home = Home::new();
    let move_it = |word: &str| format!("echo {word} > tmp.{word} && flock lock mv tmp.{word} page.html");
    let stopped = home.launch(&mut home.script(&format!("kill -STOP $$; {}", move_it("stale"))));
    until("it is stopped", SOON, || is_stopped(stopped.pid()));
    home.launch(&mut home.script(&move_it("new"))).end().exits(0);
    stopped.signal(libc::SIGCONT);
    stopped.end().exits(0);
    assert_eq!(read(&home, "page.html"), "stale\n");
}

#[cfg(feature = "crash-points")]
mod stopped {
    use super::*;

    /// Start a write that stops itself at this place.
    fn stopped_at(home: &Home, place: &str, args: &str, content: &str) -> Running {
        let marks = home.path("marks");
        let _ = std::fs::remove_dir_all(&marks);
        std::fs::create_dir(&marks).unwrap();
        let stdin = File::open(home.write("stdin", content)).unwrap();
        let mut command = home.semel(["write"]);
        command.args(args.split_whitespace()).stdin(stdin).env("CRASH_AT", place).env("CRASH_DIR", &marks);
        let running = home.launch(&mut command);
        until("it is stopped", SOON, || Path::exists(&marks.join("reached")) && is_stopped(running.pid()));
        running
    }

    /// Stopped with the lock in its hands, it keeps the newer holder waiting; not for ever, and it never comes last.
    #[test]
    fn a_zombie_with_the_lock_delays_but_never_overwrites() {
        let home = Home::new();
        for place in ["file.locked", "file.fence.after", "file.rechecked", "file.renamed"] {
            let old = next_token(&home, "site");
            let zombie =
                stopped_at(&home, place, &format!("page.html --resource site --token {old}"), "stale");
            let new = next_token(&home, "site");
            let args = format!("page.html --resource site --token {new}");
            let busy = write(&home, &format!("{args} --lock-wait 50ms"), "new").exits(75);
            busy.saying("locked by another writer").saying("nothing was written");
            let newer = start(&home, &args, "new");
            // so that it waits, in most rounds; it must hold in the others too
            std::thread::sleep(Duration::from_millis(20));
            zombie.signal(libc::SIGCONT);
            newer.end().exits(0).silent();
            let code = zombie.end().code;
            assert!(code == 0 || code == 77, "{place}: {code}");
            assert_eq!(read(&home, "page.html"), "new", "{place}");
        }
    }

    #[test]
    fn killed_there_it_leaves_old_or_new_and_the_next_one_writes() {
        let home = Home::new();
        let token = next_token(&home, "site");
        let args = format!("page.html --resource site --token {token}");
        write(&home, &args, "old").exits(0);
        for (place, after) in [
            ("file.locked", "old"),
            ("file.temp.synced", "old"),
            ("file.rechecked", "old"),
            ("file.renamed", "new"),
        ] {
            write(&home, &args, "old").exits(0);
            stopped_at(&home, place, &args, "new").kill_9().exits(128 + 9);
            assert_eq!(read(&home, "page.html"), after, "{place}");
            write(&home, &format!("{args} --lock-wait 0s"), "next").exits(0).silent();
            assert_eq!(read(&home, "page.html"), "next", "{place}");
        }
    }
}
