//! Arguments that cannot be: said clearly, and nothing runs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::support::Home;

/// Each of these is refused with 78 and this part of a message; nothing runs, and the ledger is whole.
#[track_caller]
fn refused(cases: &[(&[&str], &str)]) {
    let home = Home::new();
    home.assert_whole();
    for (flags, why) in cases {
        let mut command = home.semel(["run"]);
        command.args(*flags).args(["--", "sh", "-c", "echo x >> effects"]);
        let said = home.launch(&mut command).end();
        assert_eq!(said.code, 78, "{flags:?}: {}", said.err);
        assert!(said.err.contains(why), "{flags:?}: {why:?} is not in {}", said.err);
        assert!(said.out.is_empty());
    }
    assert_eq!(home.lines("effects").len(), 0);
    home.assert_whole();
}

#[test]
fn unknown_words() {
    refused(&[
        (&["--job", "a", "--once", "--no-such-flag"], "--no-such-flag"),
        (&["--job", "a", "--once", "--max-failures", "many"], "many"),
        (&["--job", "a", "--once", "--max-failures", "-1"], "-1"),
        (&["--job", "a", "--once", "--retries", "4294967296"], "4294967296"),
        (&["--job", "a", "--once", "--skip-code", "256"], "256"),
        (&["--job", "a", "--once", "--if-busy", "maybe"], "wait=DUR"),
        (&["--job", "a", "--once", "--if-busy", "wait"], "wait=DUR"),
        (&["--job", "a", "--once", "--if-busy", "wait="], "length of time"),
        (&["--once"], "--job"),
        (&["--job", "a", "--once", "--job", "b"], "--job"),
    ]);
}

#[test]
fn lengths_of_time() {
    let flags = [
        "--ttl",
        "--timeout",
        "--kill-after",
        "--hold-at-least",
        "--lock-delay",
        "--backoff",
        "--keep",
        "--remember",
    ];
    let texts = ["5x", "-1s", "", " 5s", "5 parsecs", "1e9s", "99999999999999999999s", "PT5S", "NaN", "1s2"];
    let home = Home::new();
    home.assert_whole();
    // every flag with one of them, one flag with all of them
    let cases = flags.iter().map(|flag| (*flag, "5x")).chain(texts.iter().map(|text| ("--timeout", *text)));
    for (flag, text) in cases {
        let mut command =
            home.semel(["run", "--job", "a", "--once", &format!("{flag}={text}"), "--", "touch", "ran"]);
        home.launch(&mut command).end().exits(78).saying(flag).saying("is not a length of time");
    }
    assert!(!home.path("ran").exists());
    home.assert_whole();
}

#[test]
fn lengths_of_time_that_do_not_fit() {
    refused(&[
        (&["--job", "a", "--once", "--ttl", "999ms"], "1s to 7d"),
        (&["--job", "a", "--once", "--ttl", "0s"], "1s to 7d"),
        (&["--job", "a", "--once", "--ttl", "8d"], "1s to 7d"),
        (
            &["--job", "a", "--once", "--ttl", "5s", "--kill-after", "10s"],
            "leaves no room for --kill-after 10s",
        ),
        (&["--job", "a", "--once", "--kill-after", "1m"], "use --ttl"),
    ]);
}

#[test]
fn names() {
    let long = "x".repeat(129);
    refused(&[
        (&["--job", "../etc/passwd", "--once"], "starts with '.'"),
        (&["--job", "a/../b", "--once"], "segment '..'"),
        (&["--job", "a/./b", "--once"], "segment '.'"),
        (&["--job", "/etc", "--once"], "empty segment"),
        (&["--job", "a//b", "--once"], "empty segment"),
        (&["--job", "", "--once"], "is empty"),
        (&["--job", "a\nb", "--once"], "holds '\\n' at character 2"),
        (&["--job", "a\u{1b}[31mb", "--once"], "holds '\\u{1b}' at character 2"),
        (&["--job", "caf\u{e9}", "--once"], "at character 4"),
        (&["--job", "a b", "--once"], "holds ' '"),
        (&["--job=-a", "--once"], "starts with '-'"),
        (&["--job", &long, "--once"], "has 129 characters; at most 128"),
        (&["--job", "a", "--once", "--resource", "../x"], "--resource"),
        (&["--job", "a", "--once", "--or", "x\ty"], "--or"),
        (&["--job", "a", "--slot", "2026\n06"], "--slot"),
        (&["--job", "a", "--slot", ""], "--slot"),
        (&["--job", "a", "--key", ""], "key"),
    ]);
}

#[test]
fn a_name_of_128_characters_and_odd_but_allowed_ones_work() {
    let home = Home::new();
    let long = "x".repeat(128);
    for job in [long.as_str(), "a..b", "a:b/c_d-e.f", "_", "0"] {
        home.run(&format!("--job {job} --once"), "echo $SEMEL_JOB >> effects").exits(0).silent();
        assert_eq!(home.lines("effects").last().unwrap(), job);
        home.run(&format!("--job {job} --once"), "echo $SEMEL_JOB >> effects").exits(0).silent();
    }
    assert_eq!(home.lines("effects").len(), 5);
}

#[test]
fn control_characters_are_never_echoed() {
    let home = Home::new();
    let mut command = home.semel(["run", "--job", "a\u{1b}]0;owned\u{7}", "--once", "--", "true"]);
    let said = home.launch(&mut command).end().exits(78);
    assert!(!said.err.contains('\u{1b}') && !said.err.contains('\u{7}'), "{:?}", said.err);
}

#[test]
fn a_missing_command() {
    let home = Home::new();
    for args in ["run --job a --once", "run --job a --once --", "lease hold r --", "lease hold r"] {
        home.ask(args).exits(78).saying("no command");
    }
    home.ask("run").exits(78).saying("--job");
    home.ask("").exits(78);
    home.ask("no-such-command").exits(78).saying("no-such-command");
    home.assert_whole();
}

#[test]
fn words_that_are_not_utf8() {
    let home = Home::new();
    for flag in ["--job", "--resource", "--slot", "--with", "--key", "--store", "--ttl"] {
        let mut command = home.semel(["run", "--job=a", "--key=k", flag]);
        command.arg(OsStr::from_bytes(b"caf\xe9=1")).args(["--", "touch", "ran"]);
        let said = home.launch(&mut command).end();
        assert_eq!(said.code, 78, "{flag}: {}", said.err);
    }
    assert!(!home.path("ran").exists());
    // files may be called anything
    let name = OsStr::from_bytes(b"caf\xe9.json");
    std::fs::write(home.path(".").join(name), "{}").unwrap();
    let mut command = home.semel(["run", "--job=a", "--key=k", "--payload"]);
    home.launch(command.arg(name).args(["--", "touch", "ran"])).end().exits(0).silent();
    assert!(home.path("ran").exists());
    home.assert_whole();
}

#[test]
fn errors_can_be_had_as_json() {
    let home = Home::new();
    let said = home.run("--job a --json", "true").exits(78);
    let json = said.json();
    assert_eq!((&json["v"], &json["outcome"], &json["exit_code"]), (&1.into(), &"error".into(), &78.into()));
    assert!(json["why"].as_str().unwrap().contains("--once"));
}

#[test]
fn help_and_version_are_answers() {
    let home = Home::new();
    assert!(home.ask("--help").exits(0).silent().text().contains("lease"));
    assert!(home.ask("run --help").exits(0).silent().text().contains("--on-lost"));
    assert!(home.ask("--version").exits(0).silent().text().starts_with("semel "));
}
