//! The input of a batch: what the command sees of an item, and what is wrong with some of them.

use std::process::Command;

use crate::support::Home;

/// Each argument in brackets, each item on a line of its own.
const ARGUMENTS: &str = "printf '[%s]' \"$@\" >> seen; echo >> seen";

fn batch(home: &Home, flags: &[&str], script: &str, arguments: &[&str]) -> Command {
    let mut command = home.semel(["batch"]);
    command.args(flags).args(["--job", "posts", "--", "sh", "-c", script, "sh"]).args(arguments);
    command
}

fn text(home: &Home, name: &str) -> String {
    std::fs::read_to_string(home.path(name)).unwrap_or_default()
}

const AWKWARD: &[&str] =
    &["a  b", "it's", "say \"x\"", "$(touch pwned)", "`id`", "*", "-n", "a\\nb", "{line}", "ü 🦀", "; true"];

#[test]
fn a_line_is_an_argument_byte_for_byte() {
    let home = Home::new();
    home.write("items.txt", AWKWARD.join("\n"));
    let flags = ["items.txt", "--key", "line"];
    home.launch(&mut batch(&home, &flags, ARGUMENTS, &["{line}", "x={line}", "{{line}}"])).end().exits(0);
    let expected: Vec<String> = AWKWARD.iter().map(|line| format!("[{line}][x={line}][{{line}}]")).collect();
    assert_eq!(home.lines("seen"), expected);
    assert!(!home.path("pwned").exists());
}

#[test]
fn texts_that_end_with_nul_may_have_line_breaks() {
    let home = Home::new();
    home.write("items", "one\ntwo\0three\0");
    let flags = ["items", "--format", "nul", "--field", "path"];
    home.launch(&mut batch(&home, &flags, ARGUMENTS, &["{path}"])).end().exits(0);
    assert_eq!(text(&home, "seen"), "[one\ntwo]\n[three]\n");
}

#[test]
fn fields_of_json_lines_are_arguments() {
    let home = Home::new();
    let lines = [
        r#"{"site":"x","slug":"a b","n":1.50,"author":{"name":"O'Hara"},"ok":true}"#,
        "",
        r#"{"site":"x","slug":"$(touch pwned)","n":2,"author":{"name":"\"q\"\n"},"ok":false}"#,
    ];
    home.write("items.jsonl", lines.join("\n") + "\n");
    let flags = ["items.jsonl", "--key", "site,slug"];
    home.launch(&mut batch(&home, &flags, ARGUMENTS, &["{slug}", "{author.name}", "{ok}"])).end().exits(0);
    assert_eq!(text(&home, "seen"), "[a b][O'Hara][true]\n[$(touch pwned)][\"q\"\n][false]\n");
    assert!(!home.path("pwned").exists());
}

#[test]
fn rows_of_csv_may_have_quotes_and_line_breaks() {
    let home = Home::new();
    home.write("items.csv", "id,text\r\n1,\"a, \"\"b\"\"\nc\"\r\n2,plain\r\n");
    let flags = ["items.csv", "--key", "id"];
    home.launch(&mut batch(&home, &flags, ARGUMENTS, &["{id}", "{text}"])).end().exits(0);
    assert_eq!(text(&home, "seen"), "[1][a, \"b\"\nc]\n[2][plain]\n");
    // another delimiter
    home.write("items.tsv", "id\ttext\n3\tx\n");
    home.launch(&mut batch(&home, &["items.tsv", "--key", "id"], ARGUMENTS, &["{text}"])).end().exits(0);
    assert_eq!(home.lines("seen").last().unwrap(), "[x]");
}

/// The file is written over for the next item: never into what a command has kept, put in its place or opened to others.
#[test]
fn whatever_a_command_does_with_its_file_the_next_has_its_own() {
    let home = Home::new();
    let items: String = (0..48).map(|n| format!("{}-{n}\n", "x".repeat(50 - n))).collect();
    home.write("items", &items);
    let script = r#"
        [ "$(cat "$SEMEL_ITEM")" = "$1" ] && [ "$(stat -c %a "$SEMEL_ITEM")" = 600 ] || echo "$1" >> wrong
        echo "$1" >> seen
        case $((${1##*-} % 8)) in
            0) rm "$SEMEL_ITEM" ;;
            1) rm "$SEMEL_ITEM" && mkdir "$SEMEL_ITEM" && touch "$SEMEL_ITEM/x" ;;
            2) ln "$SEMEL_ITEM" "kept-$2-$1" ;;
            3) mv "$SEMEL_ITEM" "kept-$2-$1" ;;
            4) mv "$SEMEL_ITEM" "kept-$2-$1" && ln -s "$PWD/kept-$2-$1" "$SEMEL_ITEM" ;;
            5) yes | head -c 5000 > "$SEMEL_ITEM" ;;
            6) chmod 666 "$SEMEL_ITEM" ;;
        esac"#;
    home.write("script", script);
    for workers in ["1", "3"] {
        let job = format!("posts-{workers}");
        let mut command = home.semel(["batch", "items", "--job", &job, "--format", "lines", "-j", workers]);
        command.args(["--", "sh", "script", "{line}", workers]);
        home.launch(&mut command).end().exits(0);
    }
    assert_eq!(home.lines("seen").len(), 96);
    assert!(!home.path("wrong").exists(), "{:?}", home.lines("wrong"));
    for workers in ["1", "3"] {
        let kept =
            |line: &&str| (2..=4).contains(&(line.rsplit('-').next().unwrap().parse::<u32>().unwrap() % 8));
        for line in items.lines().filter(kept) {
            assert_eq!(text(&home, &format!("kept-{workers}-{line}")), line);
        }
    }
}

#[test]
fn the_whole_item_is_in_a_file_and_on_stdin_if_asked_for() {
    let home = Home::new();
    let line = r#"{"slug": "a",  "body":"x y"}"#;
    home.write("items.jsonl", format!("{line}\n"));
    let script =
        "cat $SEMEL_ITEM >> file; echo >> file; cat >> stdin; echo >> stdin; stat -c %a $SEMEL_ITEM >> mode";
    let flags = ["items.jsonl", "--key", "slug"];
    home.launch(&mut batch(&home, &[&flags[..], &["--stdin"]].concat(), script, &[])).end().exits(0);
    assert_eq!((text(&home, "file"), text(&home, "stdin")), (format!("{line}\n"), format!("{line}\n")));
    assert_eq!(home.lines("mode"), ["600"]);
    // from a stream, the command does not read what is the batch's to read
    let items = home.write("two", "{\"slug\":\"b\"}\n{\"slug\":\"c\"}\n");
    let mut command = batch(&home, &["-", "--key", "slug"], "cat >> rest; echo x >> ran", &[]);
    home.launch(command.stdin(std::fs::File::open(items).unwrap())).end().exits(0);
    assert_eq!((text(&home, "rest").as_str(), home.lines("ran").len()), ("", 2));
    // nothing of the items is left behind
    let left: Vec<_> = std::fs::read_dir(home.state_dir().join("run")).map_or_else(
        |_| Vec::new(),
        |files| {
            files
                .map(|file| file.unwrap().file_name())
                .filter(|name| name.to_string_lossy().contains("item"))
                .collect()
        },
    );
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn duplicates_run_once_and_are_counted() {
    let home = Home::new();
    home.write("items", "a\nb\na\na\n");
    let flags = ["items", "--key", "line"];
    let run = || home.launch(&mut batch(&home, &flags, ARGUMENTS, &["{line}"])).end();
    run()
        .exits(0)
        .saying("posts: done 2, skipped 0, failed 0, quarantined 0, in doubt 0 in ")
        .saying(", duplicates 2");
    assert_eq!(home.lines("seen"), ["[a]", "[b]"]);
    run().exits(0).silent();
}

#[test]
fn the_same_key_with_other_fields_is_not_run_and_the_others_are() {
    let home = Home::new();
    home.write("items.jsonl", "{\"id\":1,\"t\":\"x\"}\n{\"id\":1,\"t\":\"y\"}\n{\"id\":2,\"t\":\"z\"}\n");
    let flags = ["items.jsonl", "--key", "id"];
    let run = |flags: &[&str]| home.launch(&mut batch(&home, flags, ARGUMENTS, &["{t}"])).end();
    run(&flags).exits(65).saying("(/t)").saying("--volatile").saying("mismatched 1");
    assert_eq!(home.lines("seen"), ["[x]", "[z]"]);
    // also against what an earlier start did
    home.write("items.jsonl", "{\"id\":2,\"t\":\"other\"}\n{\"id\":3,\"t\":\"w\"}\n");
    run(&flags).exits(65).saying("done 1").saying("mismatched 1");
    assert_eq!(home.lines("seen").last().unwrap(), "[w]");
}

#[test]
fn what_may_differ_is_no_mismatch() {
    let home = Home::new();
    let flags = ["items.jsonl", "--key", "id", "--volatile", "/t"];
    let run = || home.launch(&mut batch(&home, &flags, ARGUMENTS, &["{t}"])).end();
    home.write("items.jsonl", "{\"id\":1,\"t\":\"x\"}\n{\"id\":1,\"t\":\"y\"}\n");
    run().exits(0).saying("done 1,").saying("duplicates 1");
    home.write("items.jsonl", "{\"id\":1,\"t\":\"z\"}\n");
    run().exits(0).silent();
    assert_eq!(home.lines("seen"), ["[x]"]);
}

#[test]
fn what_is_no_json_is_said_with_its_line_and_the_others_are_done() {
    let home = Home::new();
    let mut lines: Vec<String> = (1..=300).map(|n| format!("{{\"id\":{n}}}")).collect();
    lines[146] = "{\"id\":147".to_owned();
    lines[199] = "[1]".to_owned();
    home.write("items.jsonl", lines.join("\n") + "\n");
    let flags = ["items.jsonl", "--key", "id", "-j", "2"];
    home.launch(&mut batch(&home, &flags, "echo $1 >> seen", &["{id}"]))
        .end()
        .exits(65)
        .saying("line 147: is no JSON at character ")
        .saying("line 200: is an array, not an object")
        .saying("done 298, ")
        .saying("wrong input 2");
    assert_eq!(home.lines("seen").len(), 298);
}

#[test]
fn a_key_field_that_is_missing_is_of_that_item_or_of_the_whole_file() {
    let home = Home::new();
    home.write("items.jsonl", "{\"id\":1}\n{\"no\":2}\n{\"id\":null}\n{\"id\":3}\n");
    home.launch(&mut batch(&home, &["items.jsonl", "--key", "id"], "echo $1 >> seen", &["{id}"]))
        .end()
        .exits(65)
        .saying("line 2: the key field id is missing")
        .saying("line 3: the key field id is null");
    assert_eq!(home.lines("seen"), ["1", "3"]);
    home.write("items.csv", "id,t\n1,x\n");
    home.launch(&mut batch(&home, &["items.csv", "--key", "slug"], "echo x >> seen", &[]))
        .end()
        .exits(65)
        .saying("--key slug: items.csv has no such field, it has id, t; nothing was run");
    // a placeholder that an item lacks
    home.write("more.jsonl", "{\"id\":8}\n{\"id\":9,\"t\":\"x\"}\n");
    let said =
        home.launch(&mut batch(&home, &["more.jsonl", "--key", "id"], "echo $1 >> seen", &["{t}"])).end();
    assert_eq!(home.lines("seen").last().unwrap(), "x");
    said.exits(65).saying("line 1: argument").saying("wrong input 1");
}

#[test]
fn an_input_that_is_not_there_runs_nothing() {
    let home = Home::new();
    let run =
        |file: &str| home.launch(&mut batch(&home, &[file, "--key", "line"], "echo x >> seen", &[])).end();
    run("nowhere").exits(65).saying("nowhere: No such file or directory");
    run(".").exits(65).saying("is a directory");
    home.write("empty", "");
    run("empty").exits(0).silent();
    assert!(home.lines("seen").is_empty());
}

/// The other end of a pipe breaks off in the middle of an item.
#[test]
fn an_input_that_is_cut_short_loses_nothing_that_came_before() {
    let home = Home::new();
    let cut = home.write("cut", "{\"id\":1}\n{\"id\":2}\n{\"id\":3,\"te");
    let mut command = batch(&home, &["-", "--key", "id"], "echo $1 >> seen", &["{id}"]);
    home.launch(command.stdin(std::fs::File::open(cut).unwrap()))
        .end()
        .exits(65)
        .saying("line 3: ")
        .saying("was it cut short?");
    assert_eq!(home.lines("seen"), ["1", "2"]);
}
