#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser};

use super::keys::{KEYS, NO_KEYS};
use super::*;
use crate::args::{Cli, Command};

fn read(text: &str) -> Config {
    Config::read(PathBuf::from("/etc/x/semel.toml"), text)
}

/// All that is wrong with a text, as "line:column: what".
fn faults(text: &str) -> Vec<String> {
    let config = read(text);
    config.faults.iter().map(|fault| format!("{}:{}: {}", fault.line, fault.column, fault.text)).collect()
}

/// A job with this line in it, the third of the file.
#[track_caller]
fn refused(line: &str, why: &str) {
    let text = format!("[jobs.a]\ncommand = [\"x\"]\n{line}\n");
    assert_eq!(faults(&text), [format!("3:{why}")], "{line}");
}

fn typed(words: &[&str]) -> RunArgs {
    let words = ["semel", "run"].iter().chain(words);
    match Cli::try_parse_from(words).unwrap().command {
        Command::Run(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn unknown_keys_are_refused_with_what_was_meant() {
    refused("tll = \"2m\"", "1: unknown key \"tll\": did you mean \"ttl\"?");
    refused("kill_after = \"2s\"", "1: unknown key \"kill_after\": did you mean \"kill-after\"?");
    refused("store = \"x\"", "1: store stands at the top of the file: write it before the first [table]");
    let all = KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
    refused("  schedule = 1", &format!("3: unknown key \"schedule\": write one of {all}"));
    assert_eq!(faults("jbos = 1"), ["1:1: unknown key \"jbos\": did you mean \"jobs\"?"]);
    assert_eq!(
        faults("\n[publish]\ncommand = \"x\""),
        [
            "2:2: unknown key \"publish\": at the top are store, [defaults], [notify.NAME], [jobs.NAME] and [batches.NAME]; if it is a job, write [jobs.publish]"
        ]
    );
    assert_eq!(
        faults("ttl = \"2m\""),
        ["1:1: ttl does not stand at the top: write it under [defaults] or [jobs.NAME]"]
    );
    assert_eq!(
        faults("command = \"x\""),
        ["1:1: command does not stand at the top: write it under [jobs.NAME]"]
    );
    assert_eq!(
        faults("[defaults]\nresource = \"x\""),
        ["2:1: resource belongs to one job: write it under [jobs.NAME], not under [defaults]"]
    );
}

#[test]
fn wrong_kinds_say_what_was_found_and_what_to_write() {
    refused("ttl = 90", "7: ttl: found the number 90: write its unit too, as in ttl = \"90s\"");
    refused(
        "ttl = true",
        "7: ttl: found true: write a length of time in quotes, as in ttl = \"90s\" (500ms, 90s, 1h30m, 7d)",
    );
    refused("ttl = \"5x\"", "7: ttl \"5x\" is not a length of time: write 500ms, 90s, 1h30m or 7d");
    refused(
        "slot = 2026-06-19",
        "8: slot: found the date 2026-06-19: write it in quotes, as in slot = \"2026-06-19\"",
    );
    refused(
        "once = \"true\"",
        "8: once: found the text \"true\": write once = true, without quotes, or leave it out",
    );
    refused(
        "max-failures = -1",
        "16: max-failures: found the number -1: write a number from 0, as in max-failures = 3",
    );
    refused(
        "retries = 4294967296",
        "11: retries: found the number 4294967296: write a number from 0, as in retries = 3",
    );
    refused(
        "skip-code = 256",
        "13: skip-code: found the number 256: write an exit code from 0 to 255, as in skip-code = 3",
    );
    refused(
        "if-busy = \"wait\"",
        "11: if-busy \"wait\" is not known: write if-busy = \"skip\", \"wait=5m\" or \"fail\"",
    );
    refused(
        "on-lost = \"maybe\"",
        "11: on-lost \"maybe\" is not known: write on-lost = \"retry\" or \"hold\" or \"probe\"",
    );
    refused(
        "resource = \"a b\"",
        "12: resource \"a b\": holds ' ' at character 2; allowed are letters, digits and . _ - / :; write a name in quotes, as in resource = \"site\"",
    );
    refused("or = \"b\"", "6: or: found the text \"b\": write a list of names, as in or = [\"site-2\"]");
    refused("or = [\"b\", 3]", "12: or: found the number 3: write a text in quotes");
    refused("key = \"\"", "7: key: it is empty: write a text in quotes, as in key = \"…\", or leave it out");
    refused(
        "with = \"a=b\"",
        "8: with: found the text \"a=b\": write parameters, as in with = { series = \"landing\", n = 3 }",
    );
    refused("with = { d = 2026-06-19 }", "14: with.d: found the date 2026-06-19: write it in quotes");
    refused("with = { n = inf }", "14: with.n: the number is none that JSON has: write it in quotes");
    refused(
        "env = [\"A=b\"]",
        "7: env: found a list: write variables, as in env = { LANG = \"C.UTF-8\", TOKEN = { env = \"TOKEN\" } }",
    );
    refused(
        "env = { A = 1 }",
        "13: env: A: found the number 1: write a text in quotes, or { env = \"NAME\" }",
    );
    refused(
        "env = { \"A B\" = \"x\" }",
        "9: env: \"A B\" is no name of a variable: write letters, digits and _",
    );
    refused("env = { SEMEL_KEY = \"x\" }", "9: env: SEMEL_KEY is Semel's to set: leave it out");
    refused(
        "env = { A = { file = \"x\" } }",
        "13: env: A: this is no reference: write { env = \"NAME\" }, and nothing else in it",
    );
    refused(
        "env = { A = { env = \"$B\" } }",
        "21: env: A: env takes the name of a variable, as in { env = \"SITE_TOKEN\" }",
    );
    assert_eq!(
        faults("[jobs.a]\ncommand = []"),
        [
            "2:11: command: it names no program: write a list of words, as in command = [\"./publish.sh\", \"--now\"], or a text for /bin/sh"
        ]
    );
    assert_eq!(
        faults("[jobs.a]\ncommand = [\"x\", 3]"),
        ["2:17: command: each word is a text: write it in quotes"]
    );
    assert_eq!(faults("jobs = 1"), ["1:8: jobs: found the number 1: write a table, as in [jobs.publish]"]);
    assert_eq!(
        faults("[jobs]\na = 1"),
        ["2:5: jobs.a: found the number 1: write a table, as in [jobs.publish]"]
    );
    assert_eq!(
        faults("defaults = \"x\""),
        ["1:12: defaults: found the text \"x\": write a table, as in [defaults]"]
    );
}

#[test]
fn what_does_not_go_together_is_told_at_its_key() {
    let said = |lines: &str| faults(&format!("\n[jobs.a]\ncommand = [\"x\"]\n{lines}"));
    assert_eq!(
        said("once = true\nslot = \"1\""),
        [
            "4:1: job \"a\": once goes alone: a schedule, a slot, parameters or a key say by themselves what is done once; leave out one or the other"
        ]
    );
    assert_eq!(
        said("always = true\nonce = true"),
        ["4:1: job \"a\": always goes alone: leave out once, every, slot, with and key"]
    );
    assert!(said("every = \"day\"\nslot = \"1\"")[0].contains("every and slot both name the slot"));
    assert!(said("every = \"7m\"")[0].contains("every \"7m\""));
    assert!(said("tz = \"UTC\"")[0].contains("tz goes with a schedule"));
    assert_eq!(said("every = \"day\"\nwith = { a = 1 }"), [""; 0]);
    assert_eq!(
        said("on-lost = \"probe\""),
        ["4:1: job \"a\": on-lost probe has nothing to ask: write probe CMD too"]
    );
    assert!(
        said("ttl = \"5s\"\nkill-after = \"10s\"")[0]
            .starts_with("4:1: job \"a\": ttl 5s leaves no room for kill-after 10s")
    );
    assert_eq!(
        said("volatile = [\"/a\"]"),
        ["4:1: job \"a\": volatile names fields of a payload: say payload FILE too"]
    );
    assert_eq!(said("or = [\"b\", \"b\"]"), ["4:1: job \"a\": or \"b\" is named twice: leave one out"]);
    assert_eq!(
        faults("[jobs.a]\nonce = true"),
        ["1:7: job \"a\" has no command: write command = [\"./publish.sh\", \"--now\"]"]
    );
    assert_eq!(
        faults("[jobs.\"a b\"]\ncommand = \"x\"")[0],
        "1:7: \"a b\" is no name of a job: holds ' ' at character 2; allowed are letters, digits and . _ - / :"
    );
}

#[test]
fn secrets_are_refused_and_never_repeated() {
    let text = "store = \"postgres://me:hunter2@db/x\"\n[jobs.a]\ncommand = \"x\"\nenv = { API_TOKEN = \"hunter2\", URL = \"redis://:hunter2@h\" }\n";
    let config = read(text);
    assert_eq!(
        faults(text),
        [
            "1:9: store: an address with a password does not belong into a file: write store = { env = \"SEMEL_LEDGER\" }, and set SEMEL_LEDGER where Semel is started",
            "4:21: env: API_TOKEN looks like a secret: write API_TOKEN = { env = \"API_TOKEN\" }, and set API_TOKEN where Semel is started",
            "4:38: env: URL looks like a secret: write URL = { env = \"URL\" }, and set URL where Semel is started",
        ]
    );
    for fault in &config.faults {
        assert_eq!(fault.excerpt(text), None);
    }
    let broken = "store = \"postgres://me:hunter2@db/x\nenv.API_TOKEN = 'hunter2\n";
    for fault in &read(broken).faults {
        assert_eq!(fault.excerpt(broken), None, "{fault:?}");
        assert!(!fault.text.contains("hunter2"), "{fault:?}");
    }
    assert_eq!(
        faults("store = 3"),
        [
            "1:9: store: found the number 3: write an address in quotes, as in store = \"sqlite:/var/lib/semel/ledger.db\""
        ]
    );
    assert_eq!(
        faults("store = \"host=db password=hunter2\""),
        ["1:9: store: found a text that is no address: write store = \"sqlite:/var/lib/semel/ledger.db\""]
    );
}

#[test]
fn all_faults_are_told_and_each_stops_only_its_own() {
    let text = "[defaults]\nttl = \"2m\"\n[jobs.a]\ncommand = \"x\"\nretires = 1\nonec = true\n[jobs.b]\ncommand = \"y\"\nonce = true\n";
    assert_eq!(faults(text).len(), 2);
    let config = read(text);
    let trouble = config.job("a", &RunArgs::default()).unwrap_err();
    assert_eq!(trouble.line, "/etc/x/semel.toml:5:1: unknown key \"retires\": did you mean \"retries\"?");
    assert_eq!(trouble.more, ["/etc/x/semel.toml:6:1: unknown key \"onec\": did you mean \"once\"?"]);
    assert!(config.job("b", &RunArgs::default()).is_ok());
    assert!(config.check_store().is_ok());
    let shared = read(&text.replace("2m", "2 parsecs"));
    assert!(shared.job("b", &RunArgs::default()).is_err(), "what all share stops all");
    let line = config.job("bb", &RunArgs::default()).unwrap_err().line;
    assert_eq!(line, "/etc/x/semel.toml has no job \"bb\": did you mean \"b\"?");
}

#[test]
fn syntax_errors_have_their_lines_too() {
    let text = "[jobs.a]\ncommand = [\"x\"\n[jobs.b\ncommand = 'y\n";
    let all = faults(text);
    assert!(all.len() > 1 && all.iter().all(|fault| fault.contains("this is no TOML: ")), "{all:#?}");
    assert!(
        faults("a = 1\na = 2")[0].starts_with("2:1: this is no TOML: duplicate key"),
        "{:?}",
        faults("a = 1\na = 2")
    );
    assert!(read(text).check_store().is_err(), "nobody knows where the ledger is");
    let deep =
        format!("[jobs.a]\ncommand = \"x\"\nwith = {{ a = {}1{} }}", "[".repeat(5_000), "]".repeat(5_000));
    assert!(!faults(&deep).is_empty());
    assert!(faults(&"\"".repeat(10_000)).len() <= 100);
}

#[test]
fn a_fault_shows_its_line() {
    let text = "[jobs.a]\ncommand = \"x\"\n\ttll = \"2m\"\n";
    let fault = &read(text).faults[0];
    assert_eq!(fault.excerpt(text).unwrap(), [" tll = \"2m\"", " ^"]);
}

#[test]
fn flags_go_before_the_job_and_the_job_before_the_defaults() {
    let text = r#"
        [defaults]
        ttl = "2m"
        retries = 1
        keep = "9d"
        [jobs.a]
        command = ["x", "y"]
        ttl = "3m"
        retries = 2
        with = { series = "landing", n = 3, deep = { a = [1, "x"] } }
        or = ["r2"]
        payload = "p.json"
        directory = "sub"
    "#;
    let config = read(text);
    assert_eq!(config.faults, []);
    let args = config.job("a", &typed(&["a", "--retries", "5", "--with", "n=4", "--slot", "s"])).unwrap();
    assert_eq!(args.policy.retries, Some(5));
    assert_eq!(args.policy.ttl.as_deref(), Some("3m"));
    assert_eq!(args.policy.keep.as_deref(), Some("9d"));
    assert_eq!(args.what.slot.as_deref(), Some("s"));
    assert_eq!(args.what.with, ["n=4", "deep:={\"a\":[1,\"x\"]}", "series=landing"]);
    assert_eq!(args.command, ["x", "y"]);
    assert_eq!(args.payload, Some(PathBuf::from("/etc/x/sub/p.json")));
    assert_eq!(args.place.directory, Some(PathBuf::from("/etc/x/sub")));
    let args = config.job("a", &typed(&["a", "--once", "--payload", "here", "--or", "z"])).unwrap();
    assert!(args.what.once && args.what.with.is_empty(), "--once goes alone");
    assert_eq!((args.payload, args.or), (Some(PathBuf::from("here")), vec!["z".to_owned()]));
    let once = read("[jobs.a]\ncommand = \"x\"\nonce = true\n");
    let args = once.job("a", &typed(&["a", "--slot", "s"])).unwrap();
    assert!(!args.what.once && args.what.slot.is_some());
    assert_eq!(args.command, ["/bin/sh", "-c", "x"]);
    assert_eq!(args.place.directory, Some(PathBuf::from("/etc/x")));
}

#[test]
fn a_probe_and_what_is_said_above_it_do_not_fight() {
    let config = read("[defaults]\non-lost = \"hold\"\n[jobs.a]\ncommand = \"x\"\nprobe = \"y\"\n");
    assert_eq!(config.faults, []);
    let args = config.job("a", &typed(&["a"])).unwrap();
    assert!(args.policy.on_lost.is_none() && args.policy.probe.is_some());
    let args = config.job("a", &typed(&["a", "--on-lost", "retry"])).unwrap();
    assert!(args.policy.on_lost.is_some() && args.policy.probe.is_none());
}

#[test]
fn a_relative_ledger_lies_beside_the_file() {
    let plain = |text: &str| read(text).store.unwrap();
    assert_eq!(plain("store = \"sqlite:l.db\""), Reference::Plain("sqlite:/etc/x/l.db".into()));
    assert_eq!(plain("store = \"sqlite:/l.db\""), Reference::Plain("sqlite:/l.db".into()));
    assert_eq!(plain("store = \"sqlite:///l.db\""), Reference::Plain("sqlite:///l.db".into()));
    assert_eq!(plain("store = { env = \"L\" }"), Reference::Variable("L".into()));
}

#[test]
fn every_flag_of_run_is_a_key_or_is_known_not_to_be() {
    let flags = RunArgs::augment_args(clap::Command::new("run"));
    let known = |name: &str| {
        KEYS.iter().any(|key| key.name == name) || NO_KEYS.iter().any(|(other, _)| *other == name)
    };
    for flag in flags.get_arguments().filter_map(|arg| arg.get_long()) {
        assert!(known(flag), "--{flag}: add its line to KEYS, or say in NO_KEYS why it is none");
    }
    let global = Cli::command();
    for flag in global.get_arguments().filter_map(|arg| arg.get_long()) {
        assert!(known(flag), "--{flag}");
    }
    for key in KEYS {
        assert!(!schema::help(key, &flags).is_empty(), "{} has no help", key.name);
        let is_flag = flags.get_arguments().any(|arg| arg.get_long() == Some(key.name));
        assert_eq!(is_flag, key.help.is_none(), "{}: a flag says itself what it means", key.name);
    }
}

#[test]
fn the_schema_in_the_repository_is_the_one_that_is_printed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../schema/semel.schema.json");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(kept, schema::text(), "write it again: semel config schema > schema/semel.schema.json");
}

#[test]
fn the_example_is_right_and_has_every_key() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/semel.toml");
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(faults(&text), [""; 0]);
    let names = KEYS.iter().map(|key| key.name).chain(lanes::LANE_KEYS.into_iter().map(|(name, _)| name));
    for name in names.chain(batches::keys().map(|key| key.name)) {
        let there = |line: &str| line.trim_start_matches('#').trim_start().starts_with(&format!("{name} = "));
        assert!(text.lines().any(there), "{name} is not in the example");
    }
}

/// A lane with these lines in it, from the second of the file on.
#[track_caller]
fn lane_refused(lines: &str, why: &str) {
    assert_eq!(faults(&format!("[notify.ops]\n{lines}\n")), [why.to_owned()], "{lines}");
}

#[test]
fn lanes_that_are_wrong_say_what_to_write() {
    let hook = "webhook = { env = \"H\" }";
    for (lines, why) in [
        (
            "",
            "1:9: notify.ops: it leads nowhere: write command = [\"./tell.sh\"] or webhook = { env = \"OPS_HOOK\" }",
        ),
        (
            "command = \"x\"\nwebhook = { env = \"H\" }",
            "1:9: notify.ops: command and webhook are two lanes: write one of them under another name",
        ),
        (
            "command = \"x\"\nsecret = { env = \"S\" }",
            "1:9: notify.ops: secret goes with a webhook: leave it out",
        ),
        (
            "command = \"x\"\nprivate-addresses = true",
            "1:9: notify.ops: private-addresses goes with a webhook: leave it out",
        ),
        (
            "comand = \"x\"\nwebhook = { env = \"H\" }",
            "2:1: unknown key \"comand\": did you mean \"command\"?",
        ),
        (
            "command = \"x\"\nretries = 3",
            "3:1: unknown key \"retries\": the keys of a lane are command, webhook, secret, private-addresses, timeout",
        ),
        (
            "command = 3",
            "2:11: command: found the number 3: write a list of words, as in command = [\"./publish.sh\", \"--now\"], or a text for /bin/sh",
        ),
        (
            "command = []",
            "2:11: command: it names no program: write a list of words, as in command = [\"./publish.sh\", \"--now\"], or a text for /bin/sh",
        ),
        (
            "command = \" \"",
            "2:11: command: it is empty: write a list of words, as in command = [\"./publish.sh\", \"--now\"], or a text for /bin/sh",
        ),
        (
            "webhook = 3",
            "2:11: webhook: found the number 3: write webhook = { env = \"OPS_HOOK\" }, and set OPS_HOOK where Semel is started",
        ),
        ("webhook = \"ops.example.org\"", "2:11: webhook: it is no address: write https://HOST/PATH"),
        ("webhook = \"ftp://h/\"", "2:11: webhook: it is no address: write https://HOST/PATH"),
        (
            "webhook = \"https://me:hunter2@h/\"",
            "2:11: webhook: a name or a password before the host is not sent: leave out what stands before the @",
        ),
        ("webhook = \"https://h:0/\"", "2:11: webhook: its port is no number from 1 to 65535"),
        ("webhook = \"https://h/#x\"", "2:11: webhook: what follows a # is never sent: leave it out"),
        (
            "webhook = \"https://h/services/T0/B0/hunter2hunter2Xy\"",
            "2:11: webhook: an address with a key in it does not belong into a file: write webhook = { env = \"OPS_HOOK\" }, and set OPS_HOOK where Semel is started",
        ),
        (
            "webhook = \"https://h/?access_token=hunter2\"",
            "2:11: webhook: an address with a key in it does not belong into a file: write webhook = { env = \"OPS_HOOK\" }, and set OPS_HOOK where Semel is started",
        ),
        (
            "webhook = \"http://h/\"",
            "1:9: notify.ops: http: is for private addresses only: write https:, or private-addresses = true if it is on this machine or in its network",
        ),
        (
            "webhook = { file = \"x\" }",
            "2:11: webhook: this is no reference: write { env = \"NAME\" }, and nothing else in it",
        ),
        (
            &format!("{hook}\nsecret = \"hunter2\""),
            "3:10: secret: it does not belong into a file: write secret = { env = \"OPS_SECRET\" }, and set OPS_SECRET where Semel is started",
        ),
        (
            &format!("{hook}\nprivate-addresses = \"yes\""),
            "3:21: private-addresses: found the text \"yes\": write private-addresses = true, without quotes, or leave it out",
        ),
        (
            &format!("{hook}\ntimeout = 10"),
            "3:11: timeout: found the number 10: write its unit too, as in timeout = \"10s\"",
        ),
        (
            &format!("{hook}\ntimeout = true"),
            "3:11: timeout: found true: write a length of time in quotes, as in timeout = \"90s\" (500ms, 90s, 1h30m, 7d)",
        ),
        (
            &format!("{hook}\ntimeout = \"2m\""),
            "3:11: timeout \"2m\" is longer than 60s: a run waits for its notices; write timeout = \"10s\"",
        ),
        (
            &format!("{hook}\ntimeout = \"0s\""),
            "3:11: timeout: it is no time at all: write timeout = \"10s\"",
        ),
        (
            &format!("{hook}\ntimeout = \"soon\""),
            "3:11: timeout \"soon\" is not a length of time: write 500ms, 90s, 1h30m or 7d",
        ),
    ] {
        lane_refused(lines, why);
    }
    let top = "at the top it is a table, as in [notify.ops]; whom a job tells stands under [jobs.NAME] or [defaults]";
    assert_eq!(faults("notify = [\"ops\"]"), [format!("1:10: notify: {top}")]);
    assert_eq!(
        faults("[notify]\nops = \"https://h/hunter2\""),
        ["2:7: notify.ops: found a text: write a table, as in [notify.ops]"]
    );
    for name in ["https://h/hunter2", "a b", "command:x", "a/b"] {
        let text = format!("[notify.\"{name}\"]\ncommand = \"x\"\n");
        assert_eq!(
            faults(&text),
            ["1:9: notify: a lane has a name of letters, digits, _, - and .: write [notify.ops]"],
            "{name}"
        );
    }
}

#[test]
fn who_is_told_must_be_there() {
    let said =
        |line: &str| faults(&format!("[jobs.a]\ncommand = [\"x\"]\n{line}\n[notify.ops]\ncommand = \"x\"\n"));
    assert_eq!(said("notify = [\"ops\"]"), [""; 0]);
    assert_eq!(said("notify = []"), [""; 0]);
    let wanted = "write a list of names of lanes, as in notify = [\"ops\"], and [notify.ops] at the top";
    for (line, why) in [
        ("notify = [\"ops\", \"opz\"]", "3:18: notify: there is no lane \"opz\": did you mean \"ops\"?".to_owned()),
        ("notify = [\"desk\"]", "3:11: notify: there is no lane \"desk\": write [notify.desk] at the top".to_owned()),
        ("notify = [\"https://h/hunter2\"]", format!("3:11: notify: found what is no name: {wanted}")),
        ("notify = [3]", format!("3:11: notify: found what is no name: {wanted}")),
        ("notify = \"https://h/hunter2\"", format!("3:10: notify: found a text: {wanted}")),
        ("notify = true", format!("3:10: notify: found true: {wanted}")),
        ("ping = \"hunter2\"", "3:8: ping: it is no address: write https://HOST/PATH".to_owned()),
        (
            "ping = \"https://h/?access_token=hunter2\"",
            "3:8: ping: an address with a password does not belong into a file: write ping = { env = \"PING_URL\" }, and set PING_URL where Semel is started".to_owned(),
        ),
        (
            "ping = 3",
            "3:8: ping: found the number 3: write an address in quotes, as in ping = \"https://…\", or ping = { env = \"PING_URL\" }".to_owned(),
        ),
        (
            "ping = { env = \"$P\" }",
            "3:16: ping: env takes the name of a variable, as in { env = \"SITE_TOKEN\" }".to_owned(),
        ),
        (
            "summary = \"yes\"",
            "3:11: summary: found the text \"yes\": write summary = true, without quotes, or leave it out".to_owned(),
        ),
    ] {
        assert_eq!(said(line), [why], "{line}");
    }
    assert_eq!(
        said("ping = \"http://h/\""),
        [
            "3:1: job \"a\": ping: http: is for private addresses only: write https:, or private-addresses = true if it is on this machine or in its network"
        ]
    );
    assert_eq!(said("ping = \"http://h/\"\nprivate-addresses = true"), [""; 0]);
}

#[test]
fn what_a_job_says_of_notices_goes_before_the_defaults() {
    let text = r#"
        [notify.ops]
        command = "x"
        [defaults]
        notify = ["ops"]
        private-addresses = true
        summary = true
        ping = { env = "P" }
        [jobs.a]
        command = ["x"]
        notify = []
        private-addresses = false
        [jobs.b]
        command = ["x"]
    "#;
    let config = read(text);
    assert_eq!(config.faults, []);
    let a = config.job("a", &typed(&["a"])).unwrap().place.notices;
    assert_eq!((a.lanes, a.private, a.summary), (Some(vec![]), Some(false), Some(true)));
    let b = config.job("b", &typed(&["b", "--notify", "./x"])).unwrap();
    assert_eq!(b.place.notices.lanes, Some(vec!["ops".to_owned()]));
    assert_eq!(b.notify.notify, ["./x"]);
    assert_eq!(b.place.notices.ping, Some(Reference::Variable("P".into())));
    assert_eq!(config.variables().collect::<Vec<_>>(), ["P"]);
}

#[test]
fn a_faulty_lane_stops_only_those_who_use_it() {
    let text = "[notify.ops]\n[notify.desk]\ncommand = \"x\"\n[jobs.a]\ncommand = \"x\"\nnotify = [\"ops\"]\n[jobs.b]\ncommand = \"x\"\nnotify = [\"desk\"]\n";
    let config = read(text);
    assert_eq!(config.faults.len(), 1);
    assert!(config.job("a", &RunArgs::default()).is_err() && config.job("b", &RunArgs::default()).is_ok());
    assert!(
        config.check_lane("ops").is_err()
            && config.check_lane("desk").is_ok()
            && config.check_store().is_ok()
    );
    assert_eq!(config.lanes.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>(), ["desk", "ops"]);
}

#[test]
fn secrets_of_lanes_are_never_repeated() {
    for text in [
        "[notify.ops]\nwebhook = \"https://h/hunter2hunter2hunter2\"",
        "[notify.ops]\nwebhook = \"hunter2\"",
        "[notify.ops]\nwebhook = [\"hunter2\"]",
        "[notify.ops]\nwebhook = { env = \"H\" }\nsecret = \"hunter2\"",
        "[notify.\"https://h/hunter2\"]\ncommand = \"x\"",
        "[notify]\nops = \"https://h/hunter2\"",
        "notify = [\"https://h/hunter2\"]",
        "notify = \"https://h/hunter2\"",
        "[jobs.a]\ncommand = \"x\"\nnotify = [\"https://h/hunter2\"]",
        "[jobs.a]\ncommand = \"x\"\nnotify = \"https://h/hunter2\"",
        "[jobs.a]\ncommand = \"x\"\nping = \"hunter2\"",
        "[jobs.a]\ncommand = \"x\"\nping = \"https://me:hunter2@h/\"",
    ] {
        let config = read(text);
        assert!(!config.faults.is_empty(), "{text}");
        for fault in &config.faults {
            assert_eq!(fault.excerpt(text), None, "{text}");
            assert!(!fault.text.contains("hunter2"), "{fault:?}");
        }
    }
}
