//! What a batch must not lose or claim too much of: its input, failures that are none, what a joblog says, what a dry run
//! foretells.

use std::process::Command;

use serde_json::Value;

use crate::support::{Home, Said, mode};

fn batch(home: &Home, flags: &[&str], script: &str) -> Command {
    let mut command = home.semel(["batch", "items", "--job", "posts", "--format", "lines"]);
    command.args(flags).args(["--", "sh", "-c", script, "sh", "{line}"]);
    command
}

#[track_caller]
fn run(home: &Home, flags: &[&str], script: &str) -> Said {
    home.launch(&mut batch(home, flags, script)).end()
}

const UNLESS_BAD: &str = "echo $1 >> effects; ! grep -qx -- \"$1\" bad";

fn twenty(home: &Home) -> String {
    let items: String = (1..=20).map(|n| format!("{n}\n")).collect();
    home.write("items", &items);
    items
}

fn read(home: &Home, name: &str) -> String {
    std::fs::read_to_string(home.path(name)).unwrap()
}

#[test]
fn the_input_is_replaced_by_what_failed_of_it_and_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    twenty(&home);
    home.write("bad", "7\n9\n");
    std::fs::set_permissions(home.path("items"), PermissionsExt::from_mode(0o640)).unwrap();
    run(&home, &["--failed-to", "items"], UNLESS_BAD).exits(1).saying("done 18, skipped 0, failed 2,");
    assert_eq!((read(&home, "items").as_str(), mode(&home.path("items"))), ("7\n9\n", 0o640));
}

/// What was not begun is in no ledger: the input is the only place that knows of it.
#[test]
fn a_batch_that_stops_early_leaves_its_input_alone() {
    let home = Home::new();
    let items = twenty(&home);
    home.write("bad", &items);
    run(&home, &["--failed-to", "items", "--stop-after", "3"], UNLESS_BAD)
        .exits(1)
        .saying("the input is left as it is: it has more than what failed that is not done")
        .saying("failed 3,");
    assert_eq!(read(&home, "items"), items);

    let home = Home::new();
    let items = twenty(&home);
    home.write("bad", "1\n");
    let hanging = "echo $1 >> effects; [ $1 != 5 ] || exec sleep 600; ! grep -qx -- \"$1\" bad";
    let running = home.launch(&mut batch(&home, &["--failed-to", "items"], hanging));
    home.wait_lines("effects", 5);
    running.signal(libc::SIGTERM);
    running.end().exits(143).saying("the input is left as it is");
    assert_eq!(read(&home, "items"), items);
    // a list of its own is what failed so far
    home.write("bad", &items);
    run(&home, &["--failed-to", "failed", "--stop-after", "2"], UNLESS_BAD).exits(1);
    assert_eq!(home.lines("failed").len(), 2);
}

#[test]
fn what_is_wrong_input_is_not_lost_with_the_input() {
    let home = Home::new();
    let items = "{\"id\":1,\"text\":\"a\"}\nno JSON\n{\"id\":1,\"text\":\"b\"}\n";
    home.write("items.jsonl", items);
    let mut command = home.semel(["batch", "items.jsonl", "--job", "posts", "--key", "id", "--json"]);
    command.args(["--failed-to", "items.jsonl", "--", "true", "{id}"]);
    let said = home.launch(&mut command).end().exits(65).saying("the input is left as it is");
    assert_eq!(read(&home, "items.jsonl"), items);
    let records: Vec<Value> = said.err.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mismatch = records.iter().find(|record| record["outcome"] == "mismatch").unwrap();
    assert_eq!((&mismatch["exit_code"], &mismatch["fields"][0]["pointer"]), (&65.into(), &"/text".into()));
    let again = home.launch(&mut command).end().exits(65);
    let is_mismatch = |record: &Value| record["outcome"] == "mismatch";
    let records: Vec<Value> = again.err.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mismatch = records.into_iter().find(is_mismatch).unwrap();
    assert_eq!(mismatch["entry"]["state"], "done", "what became of the first: {mismatch}");
}

const HEADER: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

fn row(seq: u32, exit: u32, command: &str) -> String {
    format!("{seq}\t:\t1794832804.882\t     0.010\t0\t4\t{exit}\t0\t{command}\n")
}

/// The second item of a CSV file stands on its third line.
#[test]
fn a_joblog_marks_nothing_done_by_its_place() {
    let home = Home::new();
    home.executable("p.sh", "echo \"$SEMEL_KEY $1\" >> effects");
    home.write("items.csv", "id,site\n1,x\n2,x\n3,y\n");
    let log = [row(1, 1, "./p.sh x"), row(2, 0, "./p.sh x"), row(3, 0, "./p.sh y"), row(4, 0, "./p.sh > z")];
    home.write("log", format!("{HEADER}{}5\t:\t1", log.concat()));
    let mut command = home.semel(["batch", "items.csv", "--job", "posts", "--key", "id"]);
    command.args(["--import-joblog", "log", "--", "./p.sh", "{site}"]);
    let foretold = home.launch(home_dry(&home, &mut command)).end().exits(0);
    let foretold: Vec<String> = foretold.text().lines().map(str::to_owned).collect();
    assert!(foretold[0].contains("would run it for the first time"), "{foretold:?}");
    assert!(foretold[1].contains("would run it for the first time"), "{foretold:?}");
    assert!(foretold[2].contains("would take it for done: row 3 of the joblog says so"), "{foretold:?}");
    let mut command = home.semel(["batch", "items.csv", "--job", "posts", "--key", "id"]);
    command.args(["--import-joblog", "log", "--", "./p.sh", "{site}"]);
    home.launch(&mut command)
        .end()
        .exits(0)
        .saying("1 row of the joblog left out: only a shell can read the command; its item is run")
        .saying("the last line of the joblog is cut, and was left out")
        .saying("done 3,");
    assert_eq!(home.lines("effects").len(), 2, "both that one of them failed, nobody knows which");
}

/// The same command, with `--dry-run` before its `--`.
fn home_dry<'a>(home: &Home, command: &'a mut Command) -> &'a mut Command {
    let args: Vec<_> = command.get_args().map(std::ffi::OsStr::to_owned).collect();
    let at = args.iter().position(|word| word == "--").unwrap();
    let (flags, rest) = args.split_at(at);
    let mut dry = home.semel(flags);
    dry.arg("--dry-run").args(rest);
    *command = dry;
    command
}

#[test]
fn a_dry_run_decides_as_a_run_does() {
    let home = Home::new();
    let jsonl = |lines: &[&str]| home.write("items.jsonl", lines.join("\n"));
    let command = |flags: &[&str], last: &str| {
        let mut command = home.semel(["batch", "items.jsonl", "--job", "posts", "--key", "id"]);
        command.args(flags).args(["--", "./p.sh", last]);
        command
    };
    home.executable("p.sh", "echo $1 >> effects; [ $1 != 2 ]");
    jsonl(&[r#"{"id":1,"text":"a"}"#, r#"{"id":2,"text":"a"}"#]);
    home.launch(&mut command(&[], "{id}")).end().exits(1);
    let effects = home.lines("effects").len();
    jsonl(&[
        r#"{"id":1,"text":"b"}"#,
        r#"{"id":2,"text":"a"}"#,
        r#"{"id":3,"text":"a"}"#,
        r#"{"id":3,"text":"a"}"#,
        r#"{"id":3,"text":"c"}"#,
    ]);
    let said = home.launch(&mut command(&["--dry-run"], "{id}")).end().exits(65);
    let lines: Vec<String> = said.text().lines().map(str::to_owned).collect();
    assert!(
        lines[0].contains("not run it: it was given other fields before (/text), and is done"),
        "{lines:?}"
    );
    assert!(lines[1].contains("would run it (attempt 2)"), "{lines:?}");
    assert!(lines[2].contains("would run it for the first time"), "{lines:?}");
    assert!(lines[3].contains("its key comes before in this input:"), "{lines:?}");
    assert!(lines[4].contains("its key comes before in this input, with other fields (/text)"), "{lines:?}");
    // by the policy of this start, not by that of the last
    jsonl(&[r#"{"id":2,"text":"a"}"#]);
    let said = home.launch(&mut command(&["--dry-run", "--max-failures", "1"], "{id}")).end().exits(79);
    assert!(said.text().contains("ask a person (79): quarantined"), "{}", said.text());
    // by what the item names
    let flags = ["--dry-run", "--resource", "site/{id}"];
    home.ask("lease acquire site/2").exits(0);
    let said = home.launch(&mut command(&flags, "{id}")).end().exits(0);
    assert!(said.text().contains("site/2 is held"), "{}", said.text());
    // what cannot be filled is wrong input, as it is in a run
    home.launch(&mut command(&["--dry-run"], "{slug}")).end().exits(65).saying("line 1: ");
    home.launch(&mut command(&[], "{slug}")).end().exits(65).saying("line 1: ");
    assert_eq!(home.lines("effects").len(), effects, "nothing was run");
}

#[test]
fn a_dry_run_beside_a_run_says_that_it_is_busy() {
    let home = Home::new();
    home.write("items", "a\nb\n");
    let running = home.launch(&mut batch(&home, &[], "echo $1 >> effects; exec sleep 600"));
    home.wait_lines("effects", 1);
    let said = run(&home, &["--dry-run"], "true").exits(0).saying("a start of posts now would find it busy");
    assert!(said.text().contains("another runner is at it"), "{}", said.text());
    running.kill_9();
}

/// A state directory that cannot be written is no failure of any item.
#[test]
fn a_machine_without_room_stops_the_batch_and_counts_nothing_as_failed() {
    let home = Home::new();
    twenty(&home);
    home.write("bad", "");
    let private = home.state_dir().join("run");
    std::fs::create_dir_all(home.state_dir()).unwrap();
    std::fs::write(&private, "in the way").unwrap();
    for _ in 0..4 {
        run(&home, &["-j", "2"], UNLESS_BAD)
            .exits(75)
            .saying("cannot write the item: ")
            .saying("nothing counts as failed: start it again to go on")
            .saying("done 0, skipped 0, failed 0, quarantined 0, in doubt 0");
    }
    assert!(!home.path("effects").exists());
    std::fs::remove_file(&private).unwrap();
    run(&home, &["-j", "2"], UNLESS_BAD).exits(0).saying("done 20,");
    let shown = home.launch(&mut home.semel(["show", "posts;line=1", "--json"])).end().exits(0).json();
    assert_eq!((&shown["entry"]["attempts"], &shown["entry"]["failures"]), (&1.into(), &0.into()), "{shown}");
}

#[test]
fn a_pause_is_told_as_json_too() {
    let home = Home::new();
    home.write("items", "1\n2\n3\n4\n");
    let script = "echo $1 >> effects; [ $(wc -l < effects) -gt 2 ]";
    let said = run(&home, &["--json", "--stop-after", "2", "--pause", "50ms"], script).exits(1);
    let records: Vec<Value> = said.err.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let pause = records.iter().find(|record| record["kind"] == "pause").unwrap();
    assert_eq!(pause["failed_in_a_row"], 2);
}

#[test]
fn a_slot_that_is_too_late_is_not_waited_for() {
    let home = Home::new();
    home.write("items", "a\n");
    home.ask("lease acquire posts --ttl 60s").exits(0);
    // it fell due at midnight, and may begin within the next seconds
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let late = format!("{}s", now % 86_400 + 3);
    let flags = ["--every", "day", "--tz", "UTC", "--max-late", &late, "--if-busy", "wait=25s"];
    run(&home, &flags, "echo $1 >> effects").exits(75).saying("not run");
    assert!(!home.path("effects").exists());
}
