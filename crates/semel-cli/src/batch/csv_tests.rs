//! CSV, against another reader: python's own.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::input::{Format, Items, Next};
use super::input_tests::{items, source};

/// The line that it starts in, and its fields.
type Row = (u64, Vec<String>);

/// Writes tables with python's writer, and says what python's reader makes of them.
const PYTHON: &str = r#"
import csv, io, json, random, sys
random.seed(int(sys.argv[1]))
SIGNS = ['a', 'b', ' ', ',', ';', '"', "'", '\n', '\r\n', '\t', 'ü', '', '{', '\\', '0', '\u2028']
for _ in range(300):
    text = io.StringIO()
    quoting = random.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
    writer = csv.writer(text, quoting=quoting, lineterminator=random.choice(['\n', '\r\n']))
    width = random.randint(1, 5)
    rows = [['key'] + ['c%d' % n for n in range(width)]]
    for n in range(random.randint(0, 8)):
        field = lambda: ''.join(random.choice(SIGNS) for _ in range(random.randint(0, 6)))
        row = ['k%d' % n] + [field() for _ in range(width)]
        if random.random() < 0.1:
            row = row[:-1] if random.random() < 0.5 else row + ['more']
        rows.append(row)
    writer.writerows(rows)
    text = text.getvalue()
    if random.random() < 0.2:
        text = text.rstrip('\r\n')
    reader = csv.reader(io.StringIO(text, newline=''))
    header = next(reader)
    out, line = [], reader.line_num
    for row in reader:
        # the line that it starts in
        out.append([line + 1, row])
        line = reader.line_num
    print(json.dumps([text, header, out]))
"#;

#[test]
#[allow(clippy::disallowed_methods)]
fn pythons_reader_and_ours_read_the_same() {
    const SEED: &str = "20260619";
    let mut python = Command::new("python3");
    python.args(["-c", PYTHON, SEED]).stdin(Stdio::null()).stdout(Stdio::piped());
    // one of the programs that every test machine has
    let said = python.output().unwrap();
    assert!(said.status.success());
    let mut tables = 0;
    for line in String::from_utf8(said.stdout).unwrap().lines() {
        let (text, header, rows): (String, Vec<String>, Vec<Row>) = serde_json::from_str(line).unwrap();
        let mut ours = items(Some(Format::Csv), "key", &text);
        assert_eq!(ours.columns().unwrap(), header, "{text:?}");
        for (line, row) in rows {
            let at = format!("line {line}");
            match ours.next().unwrap() {
                Next::Item(item) => {
                    let wanted = header.iter().cloned().zip(row.into_iter().map(Value::String)).collect();
                    assert_eq!((item.at.to_string(), item.fields), (at, wanted), "{text:?}");
                }
                Next::Bad(fault) => {
                    let why = format!("{at}: has {} fields, and the header has {}", row.len(), header.len());
                    assert_eq!(fault.to_string(), why, "{text:?}");
                }
                broken @ Next::Broken(_) => panic!("{broken:?}"),
            }
        }
        assert!(ours.next().is_none(), "{text:?}");
        tables += 1;
    }
    assert_eq!(tables, 300);
}

/// A quote that is not closed must not gather the rest of a large file.
#[test]
fn an_open_quote_does_not_fill_the_memory() {
    let mut text = b"id,a\n1,\"open\n".to_vec();
    for n in 0..400_000 {
        writeln!(text, "{n},some text").unwrap();
    }
    let read = Items::read("input", source(text), super::input_tests::reading(Some(Format::Csv), "id"));
    let said: Vec<String> = super::input_tests::told(read.ok().unwrap());
    assert_eq!(said, ["! line 2: is longer than 1048576 bytes: it was left out; is a quote not closed?"]);
}
