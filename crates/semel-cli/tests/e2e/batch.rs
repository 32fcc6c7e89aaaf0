//! `semel batch`: how items end, what is said of them, and what the next start does.

use std::process::Command;

use serde_json::Value;

use crate::support::{Home, SOON, Said, skipped, until};

fn batch(home: &Home, flags: &[&str], script: &str) -> Command {
    let mut command = home.semel(["batch", "items", "--job", "posts", "--format", "lines"]);
    command.args(flags).args(["--", "sh", "-c", script, "sh", "{line}"]);
    command
}

#[track_caller]
fn run(home: &Home, flags: &[&str], script: &str) -> Said {
    home.launch(&mut batch(home, flags, script)).end()
}

/// An item is done, unless it stands in `bad`.
const UNLESS_BAD: &str = "echo $1 >> effects; ! grep -qx -- \"$1\" bad";

fn records(said: &Said) -> Vec<Value> {
    said.err
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}")))
        .collect()
}

/// A line that is put in front moves all positions, and no item.
#[test]
fn after_a_failure_a_line_in_front_runs_that_line_and_what_failed() {
    let home = Home::new();
    home.write("bad", "b\n");
    home.write("items", "a\nb\nc\n");
    run(&home, &[], UNLESS_BAD).exits(1).saying("done 2, skipped 0, failed 1,");
    home.write("bad", "");
    home.write("items", "new\na\nb\nc\n");
    run(&home, &[], UNLESS_BAD).exits(0).saying("done 2, skipped 2, failed 0,");
    let mut then = home.lines("effects")[3..].to_vec();
    then.sort();
    assert_eq!(then, ["b", "new"]);
}

/// Control: who notes how far it came does the wrong ones.
#[test]
fn a_file_with_positions_runs_others() {
    let home = Home::new();
    home.write("bad", "b\n");
    home.write("items", "a\nb\nc\n");
    let script = "n=$(cat position 2> /dev/null || echo 0); \
        tail -n +$((n + 1)) items | while read -r item; do \
        echo $item >> effects; ! grep -qx $item bad || exit 1; n=$((n + 1)); echo $n > position; done";
    home.launch(&mut home.script(script)).end().exits(1);
    home.write("bad", "");
    home.write("items", "new\na\nb\nc\n");
    home.launch(&mut home.script(script)).end().exits(0);
    let effects = home.lines("effects");
    assert!(!effects.contains(&"new".to_owned()), "{effects:?}");
    assert_eq!(effects.iter().filter(|item| *item == "a").count(), 2, "{effects:?}");
}

#[test]
fn the_closing_line_is_one_line_and_nothing_left_is_silent() {
    let home = Home::new();
    home.write("bad", "");
    home.write("items", "a\nb\n");
    let said = run(&home, &["-j", "2"], UNLESS_BAD).exits(0);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(
        said.err.starts_with("semel: posts: done 2, skipped 0, failed 0, quarantined 0, in doubt 0 in "),
        "{}",
        said.err
    );
    assert!(said.out.is_empty());
    run(&home, &["-j", "2"], UNLESS_BAD).exits(0).silent();
    assert_eq!(home.lines("effects").len(), 2);
}

#[test]
fn too_many_failures_need_a_person_who_lets_it_run_again() {
    let home = Home::new();
    home.write("bad", "b\n");
    home.write("items", "a\nb\nc\n");
    run(&home, &[], UNLESS_BAD).exits(1).saying("(failure 1 of 3)");
    run(&home, &[], UNLESS_BAD).exits(1).saying("(failure 2 of 3)");
    run(&home, &[], UNLESS_BAD).exits(79).saying("is quarantined").saying("quarantined 1,");
    let came = home.lines("effects").len();
    run(&home, &[], UNLESS_BAD).exits(79);
    assert_eq!(home.lines("effects").len(), came, "a person is needed first");
    let listed = home.ask("ls --job posts --state quarantined").exits(0).text();
    assert!(listed.contains("posts"), "{listed}");
    home.write("bad", "");
    let said = home.ask("retry posts --quarantined").exits(0).text();
    assert_eq!(said, "posts: 1 may run again (failed 0, quarantined 1)");
    run(&home, &[], UNLESS_BAD).exits(0).saying("done 1, skipped 2,");
    assert_eq!(home.lines("effects")[came..], ["b"]);
}

#[test]
fn status_counts_items_and_those_that_failed_are_listed_without_their_job() {
    let home = Home::new();
    home.write("bad", "b\n");
    home.write("items", "a\nb\nc\n");
    run(&home, &[], UNLESS_BAD).exits(1);
    let told = home.ask("status").exits(0).text();
    assert!(told.contains("posts: 2 done, 1 failed"), "{told}");
    let told = home.ask("status --json").exits(0).json();
    assert_eq!((&told["items"]["posts"]["done"], &told["items"]["posts"]["failed"]), (&2.into(), &1.into()));
    let listed = home.ask("ls --state failed").exits(0).text();
    assert!(listed.contains("posts;line=b") && !listed.contains("line=a"), "{listed}");
    assert!(!home.ask("ls").exits(0).text().contains("line="));
}

#[test]
fn one_sharer_too_many_says_so() {
    let home = Home::new();
    home.write("items", "a\n");
    let acquire =
        "for n in $(seq 64); do $SEMEL --store $1 lease acquire posts/runner/$n > /dev/null || exit 1; done";
    home.launch(home.script(acquire).args(["sh", &home.store()])).end().exits(0);
    run(&home, &["--share"], "echo $1 >> effects").exits(0).saying("64 runners share it already");
    assert!(!home.path("effects").exists());
}

#[test]
fn retries_are_made_within_a_run() {
    let home = Home::new();
    home.write("items", "a\nb\n");
    let script = "echo $1 >> effects; [ $(grep -cx $1 effects) -ge 3 ]";
    run(&home, &["--retries", "2", "--backoff", "1ms"], script).exits(0).saying("done 2,");
    assert_eq!(home.lines("effects").len(), 6);
}

#[test]
fn what_failed_is_the_input_of_the_next() {
    let home = Home::new();
    home.write("bad", "b\nd\n");
    home.write("items", "a\nb\nc\nd\n");
    run(&home, &["--failed-to", "failed"], UNLESS_BAD).exits(1).saying("failed 2,");
    assert_eq!(home.lines("failed"), ["b", "d"]);
    home.write("bad", "");
    std::fs::rename(home.path("failed"), home.path("items")).unwrap();
    run(&home, &["--failed-to", "failed"], UNLESS_BAD).exits(0).saying("done 2, skipped 0,");
    assert_eq!(home.lines("effects"), ["a", "b", "c", "d", "b", "d"]);
    assert!(home.lines("failed").is_empty());
}

#[test]
fn a_dry_run_says_what_would_run_and_runs_nothing() {
    let home = Home::new();
    home.write("bad", "b\n");
    home.write("items", "a\nb\n");
    run(&home, &[], UNLESS_BAD).exits(1);
    home.write("items", "a\nb\nit's\n");
    let text = run(&home, &["--dry-run"], UNLESS_BAD).exits(0).silent().text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].contains("would skip it: it is done"), "{text}");
    assert!(lines[1].contains("would run it (attempt 2)"), "{text}");
    assert!(
        lines[2].contains("would run it for the first time") && lines[2].ends_with(r"sh 'it'\''s'"),
        "{text}"
    );
    assert_eq!(home.lines("effects").len(), 2);
}

#[test]
fn with_json_there_is_one_record_per_item_and_a_closing_one() {
    let home = Home::new();
    home.write("bad", "b\n");
    home.write("items", "a\nb\na\n");
    let said = run(&home, &["--json"], UNLESS_BAD).exits(1);
    let records = records(&said);
    let (closing, items) = records.split_last().unwrap();
    let mut outcomes: Vec<_> =
        items.iter().map(|one| (one["line"].as_u64().unwrap(), one["outcome"].as_str().unwrap())).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, [(1, "done"), (2, "failed"), (3, "duplicate")]);
    assert!(items.iter().all(|one| one["kind"] == "item" && one["key"].is_string()));
    assert_eq!((&closing["kind"], &closing["exit_code"]), (&"batch".into(), &1.into()));
    assert_eq!(
        (&closing["done"], &closing["failed"], &closing["duplicates"]),
        (&1.into(), &1.into(), &1.into())
    );
}

#[test]
fn a_row_of_failures_stops_the_batch_and_leaves_the_rest() {
    let home = Home::new();
    let items: Vec<String> = (1..=20).map(|n| n.to_string()).collect();
    home.write("items", items.join("\n"));
    home.write("bad", items.join("\n"));
    run(&home, &["--stop-after", "3"], UNLESS_BAD)
        .exits(1)
        .saying("stopped after 3 failures in a row (--stop-after)")
        .saying("failed 3,");
    assert_eq!(home.lines("effects"), ["1", "2", "3"]);
    home.write("bad", "");
    run(&home, &["--stop-after", "3"], UNLESS_BAD).exits(0).saying("done 20,");
    assert_eq!(home.lines("effects").len(), 23);
}

#[test]
fn after_a_pause_one_is_tried_and_if_that_is_done_it_goes_on() {
    let home = Home::new();
    let items: Vec<String> = (1..=12).map(|n| n.to_string()).collect();
    home.write("items", items.join("\n"));
    // the provider is down for the first four
    let script = "echo $1 >> effects; [ $(wc -l < effects) -gt 4 ]";
    run(&home, &["--stop-after", "3", "--pause", "200ms"], script)
        .exits(1)
        .saying("3 items failed in a row: nothing is begun for ")
        .saying("then one is tried")
        .saying("done 8, skipped 0, failed 4,");
    assert_eq!(home.lines("effects"), items, "each was tried once");
}

#[test]
fn a_flood_of_output_holds_nothing_up() {
    let home = Home::new();
    home.write("items", (1..=20).map(|n| format!("{n}\n")).collect::<String>());
    let script =
        "head -c 1000000 /dev/zero | tr '\\0' x; head -c 1000 /dev/zero | tr '\\0' e >&2; echo $1 >> effects";
    let said = run(&home, &["-j", "4"], script).exits(0).saying("done 20,");
    assert_eq!(home.lines("effects").len(), 20);
    assert_eq!(said.out.len(), 20_000_000);
    assert_eq!(said.err.bytes().filter(|byte| *byte == b'e').count() / 1000, 20);
}

#[test]
fn steps_of_an_item_are_not_done_again_when_it_is() {
    let home = Home::new();
    home.write("items", "a\nb\n");
    home.write("bad", "a\n");
    let script = "$SEMEL step fetch -- sh -c 'echo fetch $0 >> effects' $1 && \
        echo end $1 >> effects && ! grep -qx $1 bad";
    run(&home, &[], script).exits(1);
    home.write("bad", "");
    run(&home, &[], script).exits(0);
    let count = |line: &str| home.lines("effects").iter().filter(|one| *one == line).count();
    assert_eq!([count("fetch a"), count("end a"), count("fetch b"), count("end b")], [1, 2, 1, 1]);
}

#[test]
fn a_batch_that_is_asked_to_end_stops_its_items_and_the_next_start_does_the_rest() {
    let home = Home::new();
    let items: Vec<String> = (1..=9).map(|n| n.to_string()).collect();
    home.write("items", items.join("\n"));
    let script = "[ -e go ] || [ $1 -le 3 ] || { echo $1 >> hanging; exec sleep 600; }; echo $1 >> effects"
        .replace('{', "{{")
        .replace('}', "}}");
    let running = home.launch(&mut batch(&home, &["-j", "2"], &script));
    home.wait_lines("hanging", 2);
    running.signal(libc::SIGTERM);
    running
        .end()
        .exits(143)
        .saying("posts: interrupted by signal 15; start it again to go on")
        .saying("done 3,");
    until("nothing lives on", SOON, || home.alive().is_empty());
    home.write("go", "");
    run(&home, &["-j", "2"], &script).exits(0).saying("done 6, skipped 3, failed 0,");
    let mut effects = home.lines("effects");
    effects.sort();
    assert_eq!(effects, items);
}

#[test]
fn a_joblog_of_parallel_says_what_is_done() {
    let name = "batch::a_joblog_of_parallel_says_what_is_done";
    let home = Home::new();
    if home.launch(&mut home.script("command -v parallel > /dev/null")).end().code != 0 {
        return skipped(name, "parallel is not there");
    }
    home.write("items", "a\nb c\nd\n");
    home.write("more", "e\n");
    home.executable("publish.sh", "echo \"$1\" >> effects; [ \"$1\" != d ] || [ -e go ]");
    let said = home
        .launch(
            &mut home.script("mkdir -p home; parallel --will-cite --joblog log -j 2 ./publish.sh {} < items"),
        )
        .end();
    if !home.path("log").exists() {
        return skipped(name, format!("parallel writes no joblog: {}", said.err));
    }
    let mut before = home.lines("effects");
    before.sort();
    assert_eq!(before, ["a", "b c", "d"]);
    home.write("items", "e\na\nb c\nd\n");
    home.write("go", "");
    let mut command =
        home.semel(["batch", "items", "--job", "posts", "--format", "lines", "--import-joblog", "log"]);
    home.launch(command.args(["--", "./publish.sh", "{line}"])).end().exits(0);
    let mut after = home.lines("effects")[3..].to_vec();
    after.sort();
    assert_eq!(after, ["d", "e"], "what had failed, and what is new");
    home.launch(&mut command).end().exits(0).silent();
}
