//! Lanes that are commands, run for real; and what flags stand for.

#![allow(clippy::unwrap_used, clippy::panic)]
// a test looks at the clock
#![allow(clippy::disallowed_methods)]

use std::time::Instant;

use clap::Parser;
use serde_json::json;

use super::*;
use crate::args::{Cli, Command, Common};
use crate::trouble::Trouble;

/// Long enough for anything on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(30);

pub(super) fn lane(to: To) -> Lane {
    Lane { name: "ops".into(), to, private: true, timeout: SOON, directory: None }
}

pub(super) fn message() -> Message {
    Message { id: "msg_1".into(), at_ms: 5, body: json!({ "kind": "test", "text": "a\nb" }) }
}

async fn tell(script: &str, timeout: Duration) -> Result<(), Undelivered> {
    let around =
        Surroundings::of(&[("PATH", "/usr/bin:/bin"), ("SEMEL_STORE", "hunter2"), ("COLOUR", "blue")]);
    deliver(&Lane { timeout, ..lane(To::Command(script.into())) }, &message(), &around).await
}

#[tokio::test(flavor = "current_thread")]
async fn a_command_gets_one_line_and_says_by_its_exit_whether_it_arrived() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("told");
    let script = format!(
        "cat > {0}; echo \"$SEMEL_NOTICE_ID ${{SEMEL_STORE-none}} $COLOUR\" >> {0}; echo noise; echo noise >&2",
        file.display()
    );
    tell(&script, SOON).await.unwrap();
    let told = std::fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    let sent: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(sent, json!({ "kind": "test", "text": "a\nb", "id": "msg_1", "at_ms": 5 }));
    assert_eq!(lines[1], "msg_1 none blue");
    let why = tell("echo out; echo 'no  route' >&2; exit 3", SOON).await.unwrap_err();
    assert_eq!((why.why.as_str(), why.permanent), ("its command ended with 3: out no route", false));
    assert_eq!(tell("exit 4", SOON).await.unwrap_err().why, "its command ended with 4");
    assert_eq!(tell("kill -9 $$", SOON).await.unwrap_err().why, "its command was ended by signal 9");
    assert!(tell("/none/at/all", SOON).await.unwrap_err().why.starts_with("its command ended with 127"));
    let nowhere = Lane { directory: Some("/none".into()), ..lane(To::Command("true".into())) };
    let why = deliver(&nowhere, &message(), &Surroundings::of(&[])).await.unwrap_err().why;
    assert!(why.starts_with("its command did not start"), "{why}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_command_that_writes_a_lot_or_reads_nothing_does_no_harm() {
    let lots = "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo the end >&2;";
    tell(&format!("{lots} exit 0"), SOON).await.unwrap();
    let why = tell(&format!("{lots} exit 1"), SOON).await.unwrap_err().why;
    assert!(why.ends_with("x the end") && why.len() < 1_200, "{}", why.len());
    let long = Message { body: json!({ "text": "x".repeat(1 << 20) }), ..message() };
    let around = Surroundings::of(&[("PATH", "/usr/bin:/bin")]);
    deliver(&lane(To::Command("true".into())), &long, &around).await.unwrap();
    deliver(&lane(To::Command("test $(wc -c) -gt 1000000".into())), &long, &around).await.unwrap();
    let deaf = Lane { timeout: Duration::from_millis(300), ..lane(To::Command("sleep 300".into())) };
    let why = deliver(&deaf, &long, &around).await.unwrap_err().why;
    assert_eq!(why, "its command was ended: no answer within 300ms");
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[tokio::test(flavor = "current_thread")]
async fn a_command_that_hangs_is_ended_with_its_whole_tree() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let started = Instant::now();
    let script = format!(
        "trap '' TERM; echo $$ >> {0}; (trap '' TERM; setsid sh -c 'echo $$ >> {0}; sleep 300') & echo waiting; sleep 300",
        pids.display()
    );
    let why = tell(&script, Duration::from_secs(2)).await.unwrap_err().why;
    assert_eq!(why, "its command was ended: no answer within 2.0s: waiting");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.lines().count(), 2, "{pids}");
    assert!(!pids.lines().any(is_alive), "{pids}");
}

#[tokio::test(flavor = "current_thread")]
async fn what_a_command_leaves_behind_is_not_waited_for() {
    let started = Instant::now();
    tell("setsid sleep 300 & exit 0", SOON).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

/// What these flags stand for, where there is no file.
fn resolved(words: &[&str], vars: &[(&str, &str)]) -> Result<Notify, Trouble> {
    let common = Common { store: None, config: None, json: false, verbose: false };
    let cli = Cli::try_parse_from(["semel", "run", "--job", "x", "--once"].iter().chain(words)).unwrap();
    let Command::Run(args) = cli.command else { panic!("{cli:?}") };
    let shown = format!("{args:?}");
    assert!(!shown.contains("hunter"), "{shown}");
    resolve(&common, &args, &Surroundings::of(vars))
}

#[test]
fn a_command_is_known_by_a_digest() {
    let notify =
        resolved(&["--notify", "mail -s hunter2 ops", "--notify", "mail -s hunter2 ops"], &[]).unwrap();
    assert_eq!(notify.lanes.len(), 1, "each once");
    assert_eq!(notify.lanes[0].name, "command:6de4e22b213c", "ledgers remember it");
    assert!(!format!("{notify:?}").contains("hunter"), "{notify:?}");
    assert!(notify.ping.is_none() && !notify.summary);
    assert!(resolved(&["--summary"], &[]).unwrap().summary);
    let word = resolved(&["--notify", "true"], &[("PATH", "/usr/bin:/bin")]).unwrap();
    assert!(word.lanes[0].name.starts_with("command:") && !word.lanes[0].name.contains("true"));
}

#[cfg(feature = "http")]
#[test]
fn an_address_is_known_by_a_digest() {
    let words = ["--notify", "https://h/hunter2", "--ping", "http://h/hunter2", "--private-addresses"];
    let notify = resolved(&words, &[("SEMEL_WEBHOOK_SECRET", "hunter3")]).unwrap();
    assert!(notify.lanes[0].name.starts_with("webhook:") && notify.lanes[0].private);
    assert!(matches!(&notify.lanes[0].to, To::Webhook { secret: Some(_), .. }));
    assert!(notify.ping.as_ref().unwrap().private);
    assert!(!format!("{notify:?}").contains("hunter"), "{notify:?}");
}

#[cfg(not(feature = "http"))]
#[test]
fn a_build_without_http_says_so() {
    for words in [["--notify", "https://h/hunter2"], ["--ping", "https://h/hunter2"]] {
        let trouble = resolved(&words, &[]).unwrap_err();
        assert_eq!(trouble.code, 78);
        assert!(trouble.line.contains("this build of semel speaks no HTTP"), "{trouble:?}");
    }
}
