//! Batches in the file: what becomes of their keys, and what is said of those that are wrong.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use clap::Args;

use super::*;
use crate::batch::args::BatchArgs;

fn read(text: &str) -> Config {
    Config::read(PathBuf::from("/etc/x/semel.toml"), text)
}

fn faults(text: &str) -> Vec<String> {
    let config = read(text);
    config.faults.iter().map(|fault| format!("{}:{}: {}", fault.line, fault.column, fault.text)).collect()
}

#[test]
fn every_flag_of_batch_is_a_key_or_is_known_not_to_be() {
    let flags = BatchArgs::augment_args(clap::Command::new("batch"));
    let known = |name: &str| {
        batches::keys().any(|key| key.name == name)
            || batches::NO_BATCH_KEYS.iter().any(|(other, _)| *other == name)
    };
    for flag in flags.get_arguments().filter_map(|arg| arg.get_long()) {
        assert!(known(flag), "--{flag}: add its line to BATCH_KEYS, or say in NO_BATCH_KEYS why it is none");
    }
    for key in batches::keys() {
        assert!(!schema::help(key, &flags).is_empty(), "{} has no help", key.name);
    }
}

#[test]
fn a_batch_is_filled_from_its_table_and_flags_go_before_it() {
    let text = "[defaults]\nretries = 2\n[batches.posts]\ncommand = [\"./p.sh\", \"{slug}\"]\nitems = \"posts.jsonl\"\n\
        key = [\"site\", \"slug\"]\njobs = 4\nresource = \"site/{site}\"\ndirectory = \"agent\"\nfailed-to = \"failed\"\n";
    let config = read(text);
    assert_eq!(faults(text), [""; 0]);
    let typed = BatchArgs { jobs: Some("8".into()), ..Default::default() };
    let batch = config.batch("posts", &typed).unwrap();
    assert_eq!(batch.file.unwrap(), PathBuf::from("/etc/x/agent/posts.jsonl"));
    assert_eq!(batch.failed_to.unwrap(), PathBuf::from("/etc/x/agent/failed"));
    assert_eq!((batch.job.as_deref(), batch.jobs.as_deref()), (Some("posts"), Some("8")));
    assert_eq!(
        (batch.key, batch.resource.as_deref()),
        (vec!["site".into(), "slug".into()], Some("site/{site}"))
    );
    assert_eq!(batch.policy.retries, Some(2));
    assert_eq!(batch.place.directory.unwrap(), PathBuf::from("/etc/x/agent"));
    assert!(config.jobs.is_empty(), "a batch is no job: it is not run, and not missed");
    let missing = config.batch("post", &Default::default()).unwrap_err();
    assert!(missing.line.ends_with("has no batch \"post\": did you mean \"posts\"?"), "{}", missing.line);
}

#[test]
fn batches_that_are_wrong_say_what_to_write() {
    let wrong = |lines: &str| {
        faults(&format!("[batches.a]\ncommand = [\"x\"]\nitems = \"f\"\nkey = [\"id\"]\n{lines}\n"))
    };
    for (lines, why) in [
        ("once = true", "5:1: once is a key of jobs, and means nothing for a batch: leave it out"),
        ("jobs = 0", "5:1: batch \"a\": jobs \"0\": write a number from 1 to 1024"),
        ("pause = \"1m\"", "5:1: batch \"a\": pause without stop-after: say after how many failures"),
        (
            "resource = \"a//b\"",
            "5:1: batch \"a\": resource \"a//b\": has an empty segment at character 3; write single slashes, none at the ends",
        ),
        (
            "format = \"xml\"",
            "5:10: format \"xml\" is not known: write format = \"jsonl\" or \"csv\" or \"lines\" or \"nul\"",
        ),
    ] {
        assert_eq!(wrong(lines), [why], "{lines}");
    }
    assert_eq!(
        faults("[batches.a]\nkey = [\"id\"]\n"),
        [
            "1:10: batch \"a\" has no command: write command = [\"./publish.sh\", \"{slug}\"]",
            "1:10: batch \"a\" has no items: write items = \"posts.jsonl\"",
        ]
    );
    let trouble =
        read("[jobs.a]\ncommand = [\"x\"]\nonce = true\n").batch("a", &Default::default()).unwrap_err();
    assert!(trouble.line.contains("is a job, not a batch: semel run a"), "{}", trouble.line);
}
