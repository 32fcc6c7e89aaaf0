//! What the command is told, and what it may hand back.

use std::collections::BTreeMap;

use crate::support::{Home, Said, mode};

fn environment(said: &Said) -> BTreeMap<String, String> {
    let pairs = said.text();
    pairs.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[test]
fn the_command_knows_its_work_its_attempt_and_its_token() {
    let home = Home::new();
    let said = home.run("--job publish --slot 2026-06-19 --with n:=1 --resource site", "env").exits(0);
    let vars = environment(&said);
    let mut names: Vec<_> = vars.keys().filter(|name| name.starts_with("SEMEL_")).cloned().collect();
    names.retain(|name| name != "SEMEL_HELD");
    assert_eq!(
        names,
        ["ATTEMPT", "JOB", "KEY", "NONCE", "RESOURCE", "RESULT", "RUN", "SEED", "SLOT", "TOKEN"]
            .map(|name| format!("SEMEL_{name}"))
    );
    for (name, value) in
        [("JOB", "publish"), ("SLOT", "2026-06-19"), ("RESOURCE", "site"), ("TOKEN", "1"), ("ATTEMPT", "1")]
    {
        assert_eq!(vars[&format!("SEMEL_{name}")], value);
    }
    assert!(vars["SEMEL_KEY"].len() == 64 && vars["SEMEL_RUN"].len() >= 32, "{vars:?}");
    assert_eq!(vars["SEMEL_NONCE"].len(), 32, "{vars:?}");
    assert!(vars["SEMEL_SEED"].parse::<u64>().unwrap() < 1 << 53, "{vars:?}");
    assert!(vars["SEMEL_RESULT"].starts_with(home.state_dir().to_str().unwrap()));
    assert_eq!(vars["HOME"], home.path("home").to_str().unwrap(), "the rest is passed on");
}

#[test]
fn the_key_is_that_of_the_intent_and_the_run_that_of_the_attempt() {
    let home = Home::new();
    let script = "echo $SEMEL_KEY $SEMEL_TOKEN $SEMEL_ATTEMPT >> seen; echo $SEMEL_RUN >> runs; exit 1";
    for _ in 0..2 {
        home.run("--job a --with y=2 --with x=1", script).exits(1);
    }
    let seen = home.lines("seen");
    let key = seen[0].split(' ').next().unwrap();
    assert_eq!(seen, [format!("{key} 1 1"), format!("{key} 2 2")]);
    assert_ne!(home.lines("runs")[0], home.lines("runs")[1]);
}

#[test]
fn the_address_of_the_store_and_forged_variables_never_reach_the_command() {
    let home = Home::new();
    let mut command = home.work("--job a --once", "env");
    command
        .env("SEMEL_TOKEN", "999")
        .env("SEMEL_PASSWORD", "secret")
        .env("SEMEL_RUN", "forged")
        .env("OTHER", "kept");
    let vars = environment(&home.launch(&mut command).end().exits(0));
    assert_eq!((vars["SEMEL_TOKEN"].as_str(), vars["OTHER"].as_str()), ("1", "kept"));
    assert!(!vars.contains_key("SEMEL_STORE") && !vars.contains_key("SEMEL_PASSWORD"));
    assert_ne!(vars["SEMEL_RUN"], "forged");
    let mut command = home.semel(["run", "--store", &home.store(), "--job", "b", "--once", "--", "env"]);
    let said = home.launch(&mut command).end().exits(0);
    assert!(!said.text().contains("ledger.db"), "{}", said.text());
}

#[test]
fn json_written_to_the_result_file_is_kept() {
    let home = Home::new();
    let json = r#"{"url":"https://example.org/1","n":[1,2.5,null]}"#;
    let script = format!("cat > $SEMEL_RESULT <<'X'\n{json}\nX");
    let said = home.run("--job a --once --json", &script).exits(0);
    let expected: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(said.json()["result"], expected);
    assert_eq!(home.entry("a")["result"], expected);
    // a failure has no result
    home.run("--job b --once", "echo 1 > $SEMEL_RESULT; exit 3").exits(3);
    home.run("--job b --once", "true").exits(0).silent();
    assert_eq!(home.entry("b")["result"], serde_json::Value::Null);
    // nor has the success of a later try what an earlier one wrote
    let script = "[ $SEMEL_ATTEMPT = 2 ] || { echo 1 > $SEMEL_RESULT; exit 3; }";
    home.run("--job c --once --retries 1 --backoff 1ms", script).exits(0);
    assert_eq!(home.entry("c")["result"], serde_json::Value::Null);
    home.run("--job d --once", "echo 7 > real; ln -s $PWD/real $SEMEL_RESULT").exits(0).silent();
    assert_eq!(home.entry("d")["result"], 7);
}

#[test]
fn a_result_that_cannot_be_kept_is_said_and_the_work_is_done() {
    let home = Home::new();
    let cases = [
        ("echo nonsense > $SEMEL_RESULT", "not JSON"),
        ("echo '{} {}' > $SEMEL_RESULT", "not JSON"),
        ("echo '{\"a\":1,\"a\":2}' > $SEMEL_RESULT", "/a"),
        ("printf '\"\\377\"' > $SEMEL_RESULT", "UTF-8"),
        ("head -c 65537 /dev/zero | tr '\\0' 1 > $SEMEL_RESULT", "larger than 65536 bytes"),
        ("yes | head -c 100000000 > $SEMEL_RESULT", "larger than 65536 bytes"),
        ("mkdir $SEMEL_RESULT", "directory"),
        ("ln -s /no/such/file $SEMEL_RESULT", "SEMEL_RESULT was not kept"),
        ("mkfifo $SEMEL_RESULT", "SEMEL_RESULT was not kept"),
        ("ln -s /dev/zero $SEMEL_RESULT", "SEMEL_RESULT was not kept"),
    ];
    for (n, (script, why)) in cases.into_iter().enumerate() {
        let flags = format!("--job a --key {n}");
        let said = home.run(&flags, &format!("{script}; echo x >> effects")).exits(0);
        let said = said.saying("SEMEL_RESULT was not kept").saying(why).saying("the work itself is done");
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        home.run(&flags, "echo x >> effects").exits(0).silent();
        assert_eq!(home.lines("effects").len(), n + 1, "{script}");
    }
    home.assert_whole();
}

#[test]
fn no_result_or_an_empty_one_is_no_trouble() {
    let home = Home::new();
    home.run("--job a --once", "true").exits(0).silent();
    home.run("--job b --once", ": > $SEMEL_RESULT").exits(0).silent();
    let limit = "{ printf '\"'; head -c 65534 /dev/zero | tr '\\0' 1; printf '\"'; } > $SEMEL_RESULT";
    home.run("--job c --once", limit).exits(0).silent();
    assert_eq!(home.entry("c")["result"].as_str().unwrap().len(), 65534);
}

#[test]
fn the_result_lies_in_a_private_directory_and_goes_away() {
    let home = Home::new();
    let script = "echo 1 > $SEMEL_RESULT; stat -c %a $(dirname $SEMEL_RESULT)";
    for (job, script, code) in [("a", script.to_owned(), 0), ("b", format!("{script}; exit 3"), 3)] {
        let said = home.run(&format!("--job {job} --once"), &script).exits(code);
        assert_eq!(said.text(), "700");
    }
    assert_eq!(std::fs::read_dir(home.state_dir().join("run")).unwrap().count(), 0);
}

#[test]
fn files_and_directories_are_for_their_owner_alone() {
    let home = Home::new();
    let mut command = home.script("umask 0; exec \"$SEMEL\" run --job a --once -- true");
    home.launch(&mut command).end().exits(0).silent();
    let mut seen = 0;
    for path in [home.path("state"), home.state_dir(), home.state_dir().join("run")] {
        assert_eq!(mode(&path), 0o700, "{}", path.display());
    }
    for entry in std::fs::read_dir(home.state_dir()).unwrap().flatten() {
        if entry.file_type().unwrap().is_file() {
            seen += 1;
            assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
        }
    }
    assert!(seen >= 1, "the default ledger lies in the state directory");
}

#[test]
fn the_default_ledger_needs_only_a_home() {
    let home = Home::new();
    for _ in 0..2 {
        let mut command = home.work("--job a --once", "echo x >> effects");
        home.launch(command.env_remove("SEMEL_STORE").env_remove("XDG_STATE_HOME")).end().exits(0).silent();
    }
    assert_eq!(home.lines("effects").len(), 1);
    assert!(home.path("home/.local/state/semel").is_dir());
    let mut command = home.work("--job b --once", "echo x >> effects");
    command.env_remove("SEMEL_STORE").env_remove("XDG_STATE_HOME").env_remove("HOME");
    home.launch(&mut command).end().exits(78).saying("HOME");
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn without_a_home_a_ledger_that_is_named_is_enough() {
    let home = Home::new();
    let mut command = home.work("--job a --once", "echo 1 > $SEMEL_RESULT");
    home.launch(command.env_remove("HOME").env_remove("XDG_STATE_HOME")).end().exits(0).silent();
    assert_eq!(home.entry("a")["result"], 1);
    let mut nowhere = home.semel(["run", "--job", "b", "--once", "--", "true"]);
    nowhere.env_remove("HOME").env_remove("XDG_STATE_HOME").env_remove("SEMEL_STORE");
    home.launch(&mut nowhere).end().exits(78).saying("HOME");
}
