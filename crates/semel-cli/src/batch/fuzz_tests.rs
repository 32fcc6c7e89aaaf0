//! What a batch reads, from whatever bytes: each test is a target of `semel-fuzz`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::io::{BufReader, Cursor};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use semel_core::name::Name;
use semel_core::work::Work;
use semel_fuzz::{Target, check};

use super::fill::ItemFill;
use super::input::{Format, Items, Next};
use super::input_tests::{reading, source};
use super::item::{Fault, Item};
use super::joblog::Joblog;
use super::shell_words::words;

const WORDS: &[&str] = &[
    "\n",
    "\r\n",
    "\0",
    "\"",
    "\"\"",
    ",",
    "{\"a\":1}",
    "{\"a\":null}",
    "a,b",
    "\u{feff}",
    "{",
    "}",
    "[",
    "]",
    "\\u0000",
    "1e999",
    "\t",
];

/// Items and faults as text, read with a buffer of so many bytes.
fn told(format: Format, key: &str, text: &[u8], step: usize) -> Option<Vec<String>> {
    let from = Box::new(BufReader::with_capacity(step, Cursor::new(text.to_vec())));
    let items = Items::read("input", from, reading(Some(format), key)).ok()?;
    let mut last = 0;
    let told = items.map(|next| match next {
        Next::Item(Item { at, end, raw, fields, key, .. }) => {
            assert!(end >= last && end <= text.len() as u64, "{end} after {last}");
            last = end;
            assert!(!key.is_empty() && raw.len() <= text.len());
            format!("{at} {end} {fields:?} {key:?}")
        }
        Next::Bad(Fault { at, why, .. }) => format!("! {at} {why}"),
        Next::Broken(fault) => panic!("memory can be read: {fault}"),
    });
    Some(told.collect())
}

#[test]
fn batch_input() {
    const SEEDS: &[&str] = &[
        "j{\"a\":1,\"b\":\"x\"}\n\n{\"a\":\"y\"}\r\n{\"a\":",
        "ca,b\n1,\"two\nlines\"\n3,\"q\"\"q\"\n\n4",
        "lone\ntwo\r\n\nthree",
        "none\0two\0\0three",
        "t\u{feff}a\tb\n1\t2\n",
    ];
    // the parser of CSV has a table of its own, and a row's columns are kept with their names
    check(&Target { memory_plus: 4 << 20, ..Target::new("batch_input", SEEDS, WORDS) }, |bytes| {
        let Some((first, text)) = bytes.split_first() else { return };
        let (format, key) = match first % 4 {
            0 => (Format::Jsonl, "a"),
            1 => (Format::Csv, "a"),
            2 => (Format::Lines, "line"),
            _ => (Format::Nul, "line"),
        };
        let whole = told(format, key, text, 64 * 1024);
        for step in [1, 7] {
            assert_eq!(told(format, key, text, step), whole, "however the bytes come in");
        }
        let _ = Items::read("input", source(text), reading(None, key)).map(Iterator::count);
    });
}

#[test]
fn batch_fill() {
    const SEEDS: &[&str] = &[
        "echo\0{a}\0x{b.c}y\n{\"a\":\"-rf / ; $(x) {b}\",\"b\":{\"c\":1}}",
        "sh\0-c\0echo \"$1\"\0sh\0{a}\n{\"a\":\" \"}",
        "sh\0-c\0echo {a}\n{\"a\":\"$(x)\"}",
    ];
    const WORDS: &[&str] = &[
        "\0",
        "{",
        "}",
        "{{",
        "}}",
        "{a}",
        "{a}{a}",
        "{item.",
        "{}",
        "sh\0-c\0",
        "\n{\"a\":",
        "\\n",
        "\\u0000",
    ];
    check(&Target::new("batch_fill", SEEDS, WORDS), |bytes| {
        let at = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let (command, item) = bytes.split_at(at);
        let argv: Vec<OsString> =
            command.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
        let work = Work::once(Name::new("job").unwrap());
        let Ok(fill) = ItemFill::parse(&argv, &work, None) else { return };
        let read = Items::read("input", source(item), reading(Some(Format::Jsonl), "a"));
        for next in read.into_iter().flatten() {
            let Next::Item(item) = next else { continue };
            let Ok(filled) = fill.argv(&argv[0], &work, &item) else { continue };
            assert_eq!(filled.len(), argv.len(), "one word stays one word");
            assert_eq!(filled[0], argv[0], "the program is never filled");
            for (was, is) in argv.iter().zip(&filled).skip(1) {
                assert!(!is.as_bytes().contains(&0));
                let has_braces = was.as_bytes().iter().any(|byte| matches!(byte, b'{' | b'}'));
                assert!(has_braces || was == is, "{was:?} became {is:?}");
            }
        }
    });
}

#[test]
fn joblogs() {
    const HEAD: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";
    const SEEDS: &[&str] = &[
        "1\t:\t1.5\t0.1\t0\t0\t0\t0\techo 'a b' \\\"c \"d\\$\"\n2\t:\t1\t1\t0\t0\t1\t9\techo x | y\n",
        "18446744073709551615\th\t\t\t\t\t-1\t0\t",
    ];
    const WORDS: &[&str] = &["\t", "\n", "'", "\"", "\\", " ", "$", "`", "\\\n", "~", "#", "{a,b}", "\0"];
    check(&Target::new("joblogs", SEEDS, WORDS), |bytes| {
        let _ = Joblog::read(source([HEAD.as_bytes(), bytes].concat()));
        if let Some(found) = words(bytes) {
            let quote = |word: &Vec<u8>| [b"'", word.as_slice(), b"'"].concat();
            if found.iter().all(|word| !word.contains(&b'\'')) {
                let line = found.iter().map(quote).collect::<Vec<_>>().join(&b' ');
                assert_eq!(words(&line), Some(found), "quoted, they are the same words");
            }
        }
    });
}
