//! Words and files that nobody would write: an answer in time, and never a panic.

use std::time::{Duration, Instant};

use semel_testkit::{Chance, rounds};

use crate::bad_words::check;
use crate::support::Home;

/// Letters that parsers trip over.
const LETTERS: &[&str] = &[
    "0",
    "1",
    "9",
    "5",
    "a",
    "z",
    "day",
    "m",
    "h",
    "s",
    "d",
    " ",
    "*",
    "/",
    "-",
    ",",
    ":",
    "=",
    ":=",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "@",
    "#",
    "?",
    "%",
    ".",
    "..",
    "\\",
    "\n",
    "\t",
    "\r",
    "T",
    "Z",
    "+",
    "~",
    "~0",
    "\u{e4}",
    "\u{1f600}",
    "\u{202e}",
    "\u{7f}",
    "2026",
    "-06",
    "null",
    "1e9",
    "plan.",
    "slot",
    "with.x",
    "&",
    "|",
    "<",
    ">",
    "$(",
    "`",
    "=a,b",
];

fn word(chance: &mut Chance) -> String {
    (0..chance.below(12)).map(|_| chance.of(LETTERS)).collect()
}

/// Real processes with random words: an answer in time, and never a panic.
#[test]
fn any_words() {
    let home = Home::new();
    let mut chance = Chance::new("any_words");
    let flags = [
        "--every",
        "--tz",
        "--slot",
        "--scheduled-for",
        "--max-late",
        "--choose",
        "--recent",
        "--with",
        "--key",
        "--resource",
        "--or",
        "--if-busy",
        "--remember",
        "--volatile",
        "--job",
    ];
    for _ in 0..rounds(60) {
        let (flag, given) = (chance.of(&flags), word(&mut chance));
        let mut command = home.semel(["run"]);
        if flag != "--job" {
            command.args(["--job", "j"]);
        }
        match flag {
            "--tz" | "--scheduled-for" | "--max-late" => drop(command.args(["--every", "day"])),
            "--every" | "--slot" | "--with" | "--key" => {}
            _ => drop(command.args(["--slot", "s"])),
        }
        command.arg(format!("{flag}={given}"));
        if chance.coin() {
            command.args(["--fill", "--", "true", &word(&mut chance)]);
        } else {
            command.args(["--", "true"]);
        }
        let began = Instant::now();
        let said = home.launch(&mut command).end();
        assert!(matches!(said.code, 0 | 65 | 78), "{flag}={given:?}: {} {}", said.code, said.err);
        assert!(!said.err.contains("panicked"), "{flag}={given:?}: {}", said.err);
        assert!(began.elapsed() < Duration::from_secs(20), "{flag}={given:?}");
        assert!((said.code == 0) == said.err.is_empty(), "{flag}={given:?}: {} {}", said.code, said.err);
    }
    home.assert_whole();
}

/// And with random files.
#[test]
fn any_files() {
    let home = Home::new();
    let mut chance = Chance::new("any_files");
    let keys =
        ["every", "tz", "slot", "choose", "with", "remember", "env", "or", "ttl", "fill", "once", "nonsense"];
    let signs = [
        "[jobs.",
        "[jobs.a]",
        "]",
        "=",
        "\n",
        "{",
        "}",
        "\"",
        "'''",
        "[[",
        ",",
        "#",
        "1979-05-27",
        "true",
        "store",
    ];
    for _ in 0..rounds(60).min(400) {
        let mut text = String::from(if chance.coin() { "[jobs.a]\ncommand = \"true\"\n" } else { "" });
        for _ in 0..chance.below(6) {
            match chance.below(3) {
                0 => text.push_str(&format!("{} = {:?}\n", chance.of(&keys), word(&mut chance))),
                1 => text.push_str(&format!("{} = [{:?}]\n", chance.of(&keys), word(&mut chance))),
                _ => (0..chance.below(8)).for_each(|_| text.push_str(chance.of(&signs))),
            }
        }
        home.write("semel.toml", &text);
        let began = Instant::now();
        let said = check(&home);
        assert!(matches!(said.code, 0 | 78), "{text}: {} {}", said.code, said.err);
        let all = format!("{}{}", String::from_utf8_lossy(&said.out), said.err);
        assert!(!all.contains("panicked"), "{text}: {all}");
        assert!(began.elapsed() < Duration::from_secs(20), "{text}");
        if said.code == 78 {
            assert!(all.contains("semel.toml:"), "{text}: {all}");
        }
    }
}
