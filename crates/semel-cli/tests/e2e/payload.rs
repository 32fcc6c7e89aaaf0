//! The same key with another payload is refused.

use crate::support::{Home, Said};

const FIRST: &str = r#"{"title":"One","tags":["a","b"],"n":1.0}"#;

fn post(home: &Home, flags: &str) -> Said {
    home.run(&format!("--job post --key 1 {flags}"), "echo x >> effects")
}

#[test]
fn the_same_payload_in_another_layout_is_the_same() {
    let home = Home::new();
    home.write("a.json", FIRST);
    home.write("b.json", "{ \"n\": 1,\n \"tags\": [\"a\", \"b\"], \"title\": \"\\u004fne\" }\n");
    post(&home, "--payload a.json").exits(0).silent();
    post(&home, "--payload a.json").exits(0).silent();
    post(&home, "--payload b.json").exits(0).silent();
    post(&home, "").exits(0).silent();
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn another_payload_is_refused_and_the_difference_named() {
    let home = Home::new();
    home.write("a.json", FIRST);
    home.write("b.json", r#"{"title":"Two","tags":["a"],"n":1,"more":true}"#);
    post(&home, "--payload a.json").exits(0);
    let said = post(&home, "--payload b.json").exits(65);
    let said = said
        .saying("/title changed")
        .saying("/tags/1 removed")
        .saying("/more added")
        .saying("the first is done");
    assert!(!said.err.contains("/n ") && !said.err.contains("Two"), "{}", said.err);
    let json = post(&home, "--payload b.json --json").exits(65).json();
    assert_eq!((&json["outcome"], json["fields"].as_array().unwrap().len()), (&"mismatch".into(), 3));
    assert_eq!(home.lines("effects").len(), 1);
    home.run("--job post --key 2 --payload b.json", "echo x >> effects").exits(0);
    assert_eq!(home.lines("effects").len(), 2);
}

#[test]
fn it_is_bound_by_the_first_attempt_even_if_that_failed() {
    let home = Home::new();
    home.write("a.json", FIRST);
    home.write("b.json", "{}");
    home.run("--job post --key 1 --payload a.json", "exit 3").exits(3);
    post(&home, "--payload b.json").exits(65).saying("the first is failed");
    post(&home, "--payload a.json").exits(0);
    assert_eq!(home.lines("effects").len(), 1);
}

#[test]
fn volatile_fields_may_differ() {
    let home = Home::new();
    home.write("a.json", FIRST);
    home.write("b.json", FIRST.replace("One", "A reworded one"));
    post(&home, "--payload a.json").exits(0);
    post(&home, "--payload b.json --volatile /title").exits(0).silent();
    post(&home, "--payload b.json --volatile /tags --volatile /n").exits(65).saying("/title changed");
    assert_eq!(home.lines("effects").len(), 1);
    post(&home, "--volatile /title").exits(78).saying("--payload");
    post(&home, "--payload a.json --volatile title").exits(78).saying("starts with '/'");
    post(&home, "--payload a.json --volatile /~2").exits(78).saying("'~'");
}

#[test]
fn what_is_not_json_is_compared_as_bytes_unless_it_calls_itself_json() {
    let home = Home::new();
    home.write("a.txt", b"\xff\xfe plain");
    home.write("b.txt", b"\xff\xfe plain ");
    post(&home, "--payload a.txt").exits(0);
    post(&home, "--payload a.txt").exits(0);
    post(&home, "--payload b.txt").exits(65).saying("the payload changed");
    home.write("bad.json", "{\"a\": }");
    home.run("--job other --once --payload bad.json", "echo x >> effects").exits(65).saying("line 1");
    home.write("twice.json", r#"{"a":{"b":1,"b":2}}"#);
    home.run("--job other --once --payload twice.json", "echo x >> effects").exits(65).saying("/a/b");
    assert_eq!(home.lines("effects").len(), 1);
    home.assert_whole();
}

#[test]
fn a_payload_that_cannot_be_read_is_65_and_nothing_runs() {
    let home = Home::new();
    post(&home, "--payload missing.json").exits(65).saying("missing.json").saying("nothing was run");
    post(&home, "--payload .").exits(65).saying("nothing was run");
    let big = std::fs::File::create(home.path("big.bin")).unwrap();
    big.set_len(64 * 1024 * 1024 + 1).unwrap();
    post(&home, "--payload big.bin").exits(65).saying("larger than 67108864 bytes");
    assert_eq!(home.lines("effects").len(), 0);
    home.assert_whole();
}
