//! Whatever bytes come: nothing panics, lines are counted right, and what is well-formed is delivered, before and after
//! what is not.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::io::{BufReader, Cursor, Read};

use proptest::prelude::*;

use super::input::{Format, Items, Next};
use super::input_tests::reading;
use super::item::At;
use super::joblog::Joblog;
use super::shell_words::words;

/// Hands out a few bytes at a time, so that everything is cut somewhere.
struct Bits(Cursor<Vec<u8>>, usize);

impl Read for Bits {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = into.len().min(self.1);
        self.0.read(&mut into[..most])
    }
}

fn items(format: Format, key: &str, text: Vec<u8>, step: usize) -> Option<Items> {
    let from = Box::new(BufReader::with_capacity(step, Bits(Cursor::new(text), step)));
    Items::read("input", from, reading(Some(format), key)).ok()
}

/// A line that looks like something, or like nothing.
fn a_line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>().prop_filter("no end", |byte| *byte != b'\n'), 0..40),
        "[{}\\[\\]\",: a-z0-9\\\\\r]{0,30}".prop_map(String::into_bytes),
        Just(Vec::new()),
        Just(b"{\"id\":1".to_vec()),
        Just(b"{\"id\":1e999}".to_vec()),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_items_or_faults(
        text in prop::collection::vec(any::<u8>(), 0..400), step in 1_usize..50,
    ) {
        for (format, key) in [(Format::Jsonl, "a"), (Format::Csv, "a"), (Format::Lines, "line"), (Format::Nul, "line")] {
            let ends = text.iter().filter(|byte| matches!(byte, b'\n' | b'\r' | 0)).count() as u64;
            for next in items(format, key, text.clone(), step).into_iter().flatten() {
                let (Next::Item(super::item::Item { at, .. }) | Next::Bad(super::item::Fault { at, .. })) = next else {
                    panic!("{next:?}");
                };
                let (At::Line(line) | At::Record(line)) = at;
                prop_assert!((1..=ends + 1).contains(&line));
            }
        }
        let _ = words(&text);
        let _ = Joblog::read(Box::new(Cursor::new(text)));
    }

    #[test]
    fn good_lines_arrive_whatever_stands_between_them(
        lines in prop::collection::vec(prop::option::of(a_line()), 0..30), step in 1_usize..50,
    ) {
        let mut text = Vec::new();
        for (n, line) in lines.iter().enumerate() {
            match line {
                Some(line) => text.extend_from_slice(line),
                None => text.extend_from_slice(format!("{{\"good\":{}}}", n + 1).as_bytes()),
            }
            text.push(b'\n');
        }
        let wanted: Vec<u64> = (1..).zip(&lines).filter(|(_, line)| line.is_none()).map(|(n, _)| n).collect();
        let mut found = Vec::new();
        let mut last = 0;
        for next in items(Format::Jsonl, "good", text.clone(), step).into_iter().flatten() {
            let (Next::Item(super::item::Item { at: At::Line(line), .. })
            | Next::Bad(super::item::Fault { at: At::Line(line), .. })) = next else { panic!("{next:?}") };
            prop_assert!(line > last, "in their order");
            last = line;
            if let Next::Item(item) = next {
                prop_assert_eq!(item.key.get("good"), Some(&serde_json::json!(line)));
                found.push(line);
            }
        }
        prop_assert_eq!(found, wanted);

        let lines: Vec<_> = text.split(|byte| *byte == b'\n').collect();
        for next in items(Format::Lines, "line", text.clone(), step).into_iter().flatten() {
            let (Next::Item(super::item::Item { at: At::Line(line), raw, .. })
            | Next::Bad(super::item::Fault { at: At::Line(line), raw: Some(raw), .. })) = next else { panic!("{next:?}") };
            let stood = lines[usize::try_from(line).unwrap() - 1];
            prop_assert_eq!(&raw, stood.strip_suffix(b"\r").unwrap_or(stood));
        }
    }

    #[test]
    fn good_rows_arrive_whatever_stands_between_them(
        rows in prop::collection::vec(
            prop::option::of(prop::collection::vec(any::<u8>().prop_filter("plain", |b| !matches!(b, b'"' | b'\n' | b'\r')), 0..30)),
            0..30,
        ),
        step in 1_usize..50,
    ) {
        let mut text = b"n,good\n".to_vec();
        for (n, row) in rows.iter().enumerate() {
            match row {
                Some(row) => text.extend_from_slice(row),
                None => text.extend_from_slice(format!("{},good", n + 2).as_bytes()),
            }
            text.push(b'\n');
        }
        let wanted: Vec<u64> = (2..).zip(&rows).filter(|(_, row)| row.is_none()).map(|(n, _)| n).collect();
        let mut found = Vec::new();
        for next in items(Format::Csv, "n", text, step).into_iter().flatten() {
            if let Next::Item(item) = next && item.fields.get("good").is_some_and(|word| word == "good") {
                let At::Line(line) = item.at else { panic!("{item:?}") };
                prop_assert_eq!(item.key.get("n"), Some(&serde_json::json!(line.to_string())));
                found.push(line);
            }
        }
        prop_assert_eq!(found, wanted);
    }
}
