//! Every format, word by word: what is an item, and what is said of what is none.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::io::{BufReader, Cursor, Read};

use semel_core::canonical::Pointer;
use semel_core::field::Field;
use semel_core::name::Name;
use semel_core::work::Work;
use serde_json::Value;

use super::failed::FailedTo;
use super::fill::ItemFill;
use super::input::{Format, From, ITEM_LIMIT, Items, Next, Reading, Source};
use super::item::{Item, Keys};

pub(super) fn reading(format: Option<Format>, key: &str) -> Reading {
    let fields = key.split(',').map(|name| Field::parse(name).unwrap()).collect();
    let keys = Keys { fields, volatile: Vec::new() };
    Reading { format, delimiter: None, field: "line".to_owned(), is_field_said: false, keys }
}

pub(super) fn source(text: impl AsRef<[u8]>) -> Source {
    Box::new(Cursor::new(text.as_ref().to_vec()))
}

pub(super) fn items(format: Option<Format>, key: &str, text: impl AsRef<[u8]>) -> Items {
    Items::read("input", source(text), reading(format, key)).unwrap_or_else(|why| panic!("{}", why.line))
}

/// Items as `line JSON`, faults as `! words`.
pub(super) fn told(items: Items) -> Vec<String> {
    let told = |next: Next| match next {
        Next::Item(item) => format!("{} {}", item.at, Value::Object(item.fields)),
        Next::Bad(fault) => format!("! {fault}"),
        Next::Broken(fault) => format!("!! {fault}"),
    };
    items.map(told).collect()
}

fn only(items: Items) -> Vec<Item> {
    let one = |next| match next {
        Next::Item(item) => item,
        Next::Bad(fault) | Next::Broken(fault) => panic!("{fault}"),
    };
    items.map(one).collect()
}

/// What was said and would be left out of account is refused, also where the name or the first byte decides.
#[test]
fn what_means_nothing_in_the_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let plain = || reading(None, "id");
    let tabs = || Reading { delimiter: Some(b';'), ..plain() };
    let field = || Reading { is_field_said: true, ..plain() };
    let volatile = || {
        let mut reading = reading(None, "line");
        reading.keys.volatile.push(Pointer::new("/text").unwrap());
        reading
    };
    for (name, text, reading, why) in [
        ("a.jsonl", "{\"id\":1}\n", tabs(), "--delimiter is for CSV"),
        ("a", "{\"id\":1}\n", tabs(), "--delimiter is for CSV"),
        ("a.txt", "x\n", tabs(), "--delimiter is for CSV"),
        ("a.csv", "id\n1\n", field(), "--field names a line"),
        ("a.jsonl", "{\"id\":1}\n", field(), "--field names a line"),
        ("a", "x\n", volatile(), "--volatile names a field"),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let said = Items::open(&From::File(path), reading).err().unwrap();
        assert_eq!(said.code, 78, "{name}");
        assert!(said.line.starts_with(why), "{}", said.line);
    }
    assert!(Items::read("input", source(""), volatile()).is_ok(), "nothing may be of any format");
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "id;b\n1;2\n").unwrap();
    assert!(Items::open(&From::File(path), tabs()).is_ok());
}

fn jsonl(text: impl AsRef<[u8]>) -> Vec<String> {
    told(items(Some(Format::Jsonl), "id", text))
}

#[test]
fn json_lines_are_objects_and_blank_lines_are_none() {
    let text = "{\"id\":1}\n\n  \t\r\n{\"id\":\"a\",\"b\":[1.0,null]}\r\n{\"id\":3}";
    assert_eq!(
        jsonl(text),
        [r#"line 1 {"id":1}"#, r#"line 4 {"b":[1,null],"id":"a"}"#, r#"line 5 {"id":3}"#]
    );
    assert_eq!(jsonl(""), [""; 0]);
    assert_eq!(jsonl("\n\n"), [""; 0]);
}

#[test]
fn a_line_that_is_no_object_is_said_with_its_line_and_the_others_go_on() {
    let long = format!("{{\"id\":\"{}\"}}", "x".repeat(ITEM_LIMIT));
    for (line, why) in [
        ("{\"id\":", "is no JSON at character 7: the text ends where a value is expected"),
        ("{\"id\":1} x", "is no JSON at character 10: something follows the value"),
        ("nonsense", "is no JSON at character 1: expected a value"),
        ("[1]", "is an array, not an object: write one object a line"),
        ("\"a\"", "is a string, not an object: write one object a line"),
        ("7", "is a number, not an object: write one object a line"),
        ("true", "is true or false, not an object: write one object a line"),
        ("null", "is null, not an object: write one object a line"),
        ("{}", "the key field id is missing"),
        ("{\"id\":null}", "the key field id is null"),
        ("{\"id\":1,\"id\":1}", "/id appears twice; keep one"),
        (
            "{\"id\":9007199254740993}",
            "/id is an integer beyond ±(2^53-1), which other programs round; write it as a string",
        ),
        (&long, "is longer than 1048576 bytes: it was left out"),
    ] {
        let text = format!("{{\"id\":1}}\n{line}\n{{\"id\":3}}\n");
        assert_eq!(
            jsonl(text),
            [r#"line 1 {"id":1}"#.to_owned(), format!("! line 2: {why}"), r#"line 3 {"id":3}"#.to_owned()]
        );
    }
    assert_eq!(
        jsonl(b"{\"id\":\"\xff\"}\n{\"id\":2}\n"),
        ["! line 1: is not UTF-8 (byte 8)", r#"line 2 {"id":2}"#]
    );
    assert_eq!(
        jsonl("{\"id\":1}\n{\"id\":2,\"te"),
        [
            r#"line 1 {"id":1}"#,
            "! line 2: is no JSON at character 12: the string does not end; the input ends there: was it cut short?"
        ]
    );
}

#[test]
fn a_line_of_just_the_limit_is_an_item() {
    let text = |length: usize| format!("{{\"id\":\"{}\"}}", "x".repeat(length - 9));
    assert_eq!(only(items(Some(Format::Jsonl), "id", text(ITEM_LIMIT) + "\n")).len(), 1);
    assert_eq!(only(items(Some(Format::Jsonl), "id", text(ITEM_LIMIT))).len(), 1);
    for over in [ITEM_LIMIT + 1, ITEM_LIMIT + 2, 3 * ITEM_LIMIT] {
        let said = jsonl(text(over) + "\n{\"id\":2}");
        assert_eq!(said, ["! line 1: is longer than 1048576 bytes: it was left out", r#"line 2 {"id":2}"#]);
    }
}

#[test]
fn lines_and_nuls_have_one_field_and_the_end_is_no_item() {
    assert_eq!(
        told(items(Some(Format::Lines), "line", "a b\r\n\n{x}")),
        [r#"line 1 {"line":"a b"}"#, r#"line 2 {"line":""}"#, r#"line 3 {"line":"{x}"}"#]
    );
    assert_eq!(
        told(items(Some(Format::Nul), "line", "a\nb\r\0c\0")),
        [r#"item 1 {"line":"a\nb\r"}"#, r#"item 2 {"line":"c"}"#]
    );
    assert_eq!(
        told(items(Some(Format::Nul), "line", b"\xff\0c")),
        ["! item 1: is not UTF-8 (byte 1)", r#"item 2 {"line":"c"}"#]
    );
}

#[test]
fn rows_have_the_columns_of_the_header() {
    let text = "\u{feff}id,text,\"the,rest\"\r\n1,\"a \"\"b\"\"\nc\",\r\n\r\n2,ü,x\n";
    assert_eq!(
        told(items(Some(Format::Csv), "id", text)),
        [
            r#"line 2 {"id":"1","text":"a \"b\"\nc","the,rest":""}"#,
            r#"line 5 {"id":"2","text":"ü","the,rest":"x"}"#
        ]
    );
    let tabs = Reading { delimiter: Some(b'\t'), ..reading(Some(Format::Csv), "id") };
    let tabs = Items::read("input", source("id\tx\n1\ta,b\n"), tabs).ok().unwrap();
    assert_eq!(told(tabs), [r#"line 2 {"id":"1","x":"a,b"}"#]);
    assert_eq!(told(items(Some(Format::Csv), "id", "")), [""; 0]);
    assert_eq!(told(items(Some(Format::Csv), "id", "id\n")), [""; 0]);
}

#[test]
fn a_row_that_is_wrong_is_said_with_the_line_it_starts_in() {
    let wide = vec!["x"; 5000].join(",");
    let long = "x".repeat(ITEM_LIMIT + 1);
    let text = format!("id,a\n1,x\n2\n3,\"b\nc\"\n4,x,y\n,x\n{wide}\n5,{long}\n6,z\n7,\"open\nand on\n");
    assert_eq!(
        told(items(Some(Format::Csv), "id", text)),
        [
            r#"line 2 {"a":"x","id":"1"}"#,
            "! line 3: has 1 fields, and the header has 2",
            r#"line 4 {"a":"b\nc","id":"3"}"#,
            "! line 6: has 3 fields, and the header has 2",
            "! line 7: the key field id is empty",
            "! line 8: has more than 4096 fields: it was left out",
            "! line 9: is longer than 1048576 bytes: it was left out; is a quote not closed?",
            r#"line 10 {"a":"z","id":"6"}"#,
            "! line 11: a quote is not closed before the input ends: was it cut short?",
        ]
    );
    assert_eq!(
        told(items(Some(Format::Csv), "id", b"id,a\n1,\xffx\n2,y\r3,z")),
        ["! line 2: is not UTF-8 (byte 2)", r#"line 3 {"a":"y","id":"2"}"#, r#"line 4 {"a":"z","id":"3"}"#,]
    );
}

#[test]
fn a_header_that_cannot_be_used_is_said_before_anything_runs() {
    for (text, why) in [
        (&b"id,a,id\n"[..], "line 1: the header has two columns called \"id\": rename one"),
        (b"\n\n\"id\n", "line 3: the header a quote is not closed before the input ends: was it cut short?"),
        (b"id,\xff\n", "line 1: the header is not UTF-8 (byte 3)"),
    ] {
        let why_not = Items::read("posts.csv", source(text), reading(Some(Format::Csv), "id")).err().unwrap();
        assert_eq!((why_not.code, why_not.line), (65, format!("posts.csv: {why}; nothing was run")));
    }
    let why =
        Items::read("posts.csv", source("id,a\n"), reading(Some(Format::Csv), "id,slug")).err().unwrap();
    assert_eq!(
        (why.code, why.line.as_str()),
        (65, "--key slug: posts.csv has no such field, it has id, a; nothing was run")
    );
    let why = Items::read("stdin", source("a\n"), reading(None, "slug")).err().unwrap();
    assert_eq!(why.line, "--key slug: stdin has no such field, it has line; nothing was run");
}

#[test]
fn the_format_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text, key, format) in [
        ("a.jsonl", "x", "id", Format::Jsonl),
        ("a.ndjson", "", "id", Format::Jsonl),
        ("a.CSV", "id\n1", "id", Format::Csv),
        ("a.tsv", "id\tb\n1\t2", "id", Format::Csv),
        ("a.txt", "\u{feff} \n{\"id\":1}", "id", Format::Jsonl),
        ("a.txt", "id\n{}", "line", Format::Lines),
        ("a", "", "line", Format::Lines),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let found = Items::open(&From::File(path.clone()), reading(None, key)).ok().unwrap();
        assert_eq!((found.format(), found.bytes), (format, Some(text.len() as u64)), "{name}");
        let said = Items::open(&From::File(path), reading(Some(Format::Nul), "line")).ok().unwrap();
        assert_eq!(said.format(), Format::Nul);
    }
    let why = |from: From| Items::open(&from, reading(None, "id")).err().unwrap();
    let here = dir.path().display().to_string();
    assert_eq!(
        why(From::File(here.clone().into())).line,
        format!("{here} is a directory: name a file; nothing was run")
    );
    let no = format!("{here}/no");
    assert_eq!(
        why(From::File(no.clone().into())).line,
        format!("{no}: No such file or directory (os error 2); nothing was run")
    );
}

/// Gives what it has in small pieces, then fails.
pub(super) struct Broken(pub(super) Cursor<Vec<u8>>);

impl Read for Broken {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = into.len().min(7);
        match self.0.read(into.get_mut(..most).unwrap_or_default())? {
            0 => Err(std::io::Error::from_raw_os_error(libc::EIO)),
            read => Ok(read),
        }
    }
}

#[test]
fn an_input_that_breaks_half_way_loses_nothing_that_came_before() {
    let broken = "the input cannot be read any further: Input/output error (os error 5); what came before it stays, give it again to go on";
    for (format, text, wanted) in [
        (
            Format::Jsonl,
            "{\"id\":1}\n{\"id\":2}\n{\"id\":3}",
            vec!["line 1 {\"id\":1}", "line 2 {\"id\":2}", "!! line 3"],
        ),
        (Format::Csv, "id\n1\n2\n3", vec!["line 2 {\"id\":\"1\"}", "line 3 {\"id\":\"2\"}", "!! line 4"]),
        (Format::Jsonl, "", vec!["!! line 1"]),
    ] {
        let from = Box::new(BufReader::new(Broken(Cursor::new(text.into()))));
        let said = told(Items::read("input", from, reading(Some(format), "id")).ok().unwrap());
        let last = format!("{}: {broken}", wanted.last().unwrap());
        let wanted: Vec<_> =
            wanted.iter().rev().skip(1).rev().map(|line| (*line).to_owned()).chain([last]).collect();
        assert_eq!(said, wanted);
    }
}

#[test]
fn an_item_knows_its_key_its_payload_and_its_text() {
    let batch = Work::once(Name::new("posts").unwrap());
    let text = "{\"a\":{\"site\":\"x\",\"n\":1.0},\"slug\":\"s\",\"rest\":[1]}\n{\"slug\":\"s\",\"a\":{\"n\":1,\"site\":\"x\"},\"rest\":[2]}\n";
    let found = only(items(Some(Format::Jsonl), "/a/site,slug", text));
    let work = found[0].work(&batch).unwrap();
    assert_eq!(work.to_string(), "posts;a.site=x&slug=s");
    assert_eq!(work.key(), found[1].work(&batch).unwrap().key());
    let keys = reading(None, "a.site,slug").keys;
    let (first, second) =
        (found[0].payload(&keys).unwrap().unwrap(), found[1].payload(&keys).unwrap().unwrap());
    let changed = first.diff(&second);
    assert_eq!(changed.iter().map(|change| change.pointer.as_str()).collect::<Vec<_>>(), ["/rest/0"]);
    let keys = Keys { volatile: vec![Pointer::new("/rest").unwrap()], ..keys };
    assert_eq!(found[0].payload(&keys).unwrap(), found[1].payload(&keys).unwrap());
    assert_eq!(found[0].text().as_ref(), text.lines().next().unwrap().as_bytes());

    let row = only(items(Some(Format::Csv), "id", "id,b\n7,\"x\"\"y\"\n")).remove(0);
    assert_eq!(
        (row.text().as_ref(), row.raw.as_slice()),
        (&br#"{"b":"x\"y","id":"7"}"#[..], &br#"7,"x""y""#[..])
    );
    let line = only(items(Some(Format::Lines), "line", "a b\n")).remove(0);
    assert_eq!((line.text().as_ref(), line.payload(&keys).unwrap()), (&b"a b"[..], None));
    assert_eq!(line.work(&batch).unwrap().to_string(), "posts;line=a%20b");
}

#[test]
fn a_key_that_no_ledger_can_hold_is_said_with_its_line() {
    let batch = Work::once(Name::new("posts").unwrap());
    let text = format!("\n{{\"id\":\"{}\"}}", "x".repeat(70_000));
    let item = only(items(Some(Format::Jsonl), "id", text)).remove(0);
    assert_eq!(
        item.work(&batch).unwrap_err().to_string(),
        "line 2: its key has 70042 bytes; at most 65536 are allowed: pass a digest instead"
    );
}

fn argv(words: &[&str], item: &Item) -> Result<Vec<String>, String> {
    let batch = Work::once(Name::new("posts").unwrap());
    let words: Vec<std::ffi::OsString> = words.iter().map(Into::into).collect();
    let fill = ItemFill::parse(&words, &batch, Some("line")).map_err(|why| why.line)?;
    let work = item.work(&batch).unwrap();
    let argv = fill.argv(&words[0], &work, item).map_err(|fault| fault.to_string())?;
    Ok(argv.into_iter().map(|word| word.into_string().unwrap()).collect())
}

#[test]
fn placeholders_become_parts_of_their_one_argument() {
    let text = r#"{"id":1,"slug":"a b; $(x) 'q' {id}\n","n":1.50,"o":{"p":[true]},"nul":"\u0000","no":null,"key":"k"}"#;
    let item = only(items(Some(Format::Jsonl), "id", text)).remove(0);
    assert_eq!(
        argv(&["p", "{slug}", "x={n},{o.p}", "{{{id}}}", "{/o/p/0}", "{item.key}", "plain", "{job}"], &item)
            .unwrap(),
        ["p", "a b; $(x) 'q' {id}\n", "x=1.5,[true]", "{1}", "true", "k", "plain", "posts"]
    );
    for (word, why) in [
        ("{none}", "line 1: argument 1: {none}: the item has no field none; write {{ and }} for braces"),
        ("{no}", "line 1: argument 1: {no}: the item's field no is null, which no argument can be"),
        ("{nul}", "line 1: argument 1: {nul}: its value holds a NUL, which no argument can"),
        (
            "{key}",
            "line 1: argument 1: {key}: the items have a field key too: write {item.key} for that; what the work has is in SEMEL_JOB, SEMEL_SLOT and SEMEL_KEY",
        ),
        ("{", "argument 1: { without }: write {{ for a brace"),
        ("}", "argument 1: } without {: write }} for a brace"),
        (
            "{a..b}",
            "argument 1: {a..b} is no placeholder: a..b has a dot too many: write a.b for the field b inside a; write {{ and }} for braces",
        ),
        ("{slot}", "argument 1: {slot}: the work has no slot; give it with --every SCHEDULE or --slot ID"),
        (
            "{plan.x}",
            "argument 1: {plan.x}: a batch has no plan; write {item.plan.x} for a field of the items",
        ),
    ] {
        assert_eq!(argv(&["p", word], &item).unwrap_err(), why);
    }
    assert_eq!(
        argv(&["sh", "-c", "echo {slug}"], &item).unwrap_err(),
        "argument 2: a placeholder in a shell's script would be read by the shell: hand it over as an argument, as in: sh -c 'echo \"$1\"' sh {slug}"
    );
    let line = only(items(Some(Format::Lines), "line", "a b")).remove(0);
    assert_eq!(argv(&["p", "<{}>", "{line}"], &line).unwrap(), ["p", "<a b>", "a b"]);
}

#[test]
fn an_unknown_name_is_refused_before_anything_runs_where_the_fields_are_known() {
    let batch = Work::once(Name::new("posts").unwrap());
    let words = ["p".into(), "{slug}".into(), "{titel}".into()];
    let fill = ItemFill::parse(&words, &batch, None).ok().unwrap();
    let has = |columns: &[&str]| columns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let why = fill.check("posts.csv", Some(&has(&["slug", "title", "site"]))).unwrap_err();
    assert_eq!(
        (why.code, why.line.as_str()),
        (
            65,
            "argument 2: {titel}: the item has no field titel; write {{ and }} for braces; posts.csv has slug, title, site; nothing was run"
        )
    );
    assert!(fill.check("posts.csv", None).is_ok());
    let why = ItemFill::parse(&["p".into(), "{}".into()], &batch, None).err().unwrap();
    assert_eq!(
        why.line,
        "argument 1: {} stands for a line, and the items are no lines: name a field, as in {slug}"
    );
}

#[test]
fn what_failed_is_input_again() {
    let dir = tempfile::tempdir().unwrap();
    for (format, key, text) in [
        (Format::Jsonl, "id", "{\"id\":1,  \"x\":1.0}\n\n{\"id\":2}\r\n{\"id\":3}"),
        (Format::Csv, "id", "\u{feff}id,\"x\ny\"\r\n1,\"a\r\n\"\"b\"\"\"\r\n\r\n2,c\n3,"),
        (Format::Lines, "line", "a\r\n\nb b\n"),
        (Format::Nul, "line", "a\nb\0\0c"),
    ] {
        let path = dir.path().join("failed");
        let from = items(Some(format), key, text);
        let mut list = FailedTo::create(&path, format, from.header()).ok().unwrap();
        let first = only(from);
        first.iter().for_each(|item| list.push(&item.raw));
        list.finish().unwrap();
        let again = only(Items::open(&From::File(path), reading(Some(format), key)).ok().unwrap());
        let told = |items: &[Item]| {
            items.iter().map(|item| (item.fields.clone(), item.raw.clone())).collect::<Vec<_>>()
        };
        assert_eq!(told(&first), told(&again), "{format:?}");
        assert!(!first.is_empty());
    }
}

/// How fast it is: `cargo nextest run --release -p semel-cli --run-ignored only --no-capture how_many_items`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods)]
fn how_many_items_are_read_in_a_second() {
    const COUNT: u64 = 500_000;
    // of this thread alone: others may use the machine as well
    let cpu_s = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it writes to the place that it is given.
        assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    struct Made(u64, Vec<u8>, bool);
    impl Read for Made {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            if self.1.is_empty() && self.0 > 0 {
                for _ in 0..self.0.min(1000) {
                    let n = COUNT - self.0;
                    let line = match self.2 {
                        true => format!(
                            "{{\"site\":\"blog{}\",\"slug\":\"post-{n}\",\"title\":\"The title of a post\",\"words\":{n}}}\n",
                            n % 7
                        ),
                        false => format!("blog{},post-{n},The title of a post,{n}\n", n % 7),
                    };
                    self.1.extend_from_slice(line.as_bytes());
                    self.0 -= 1;
                }
            }
            let most = into.len().min(self.1.len());
            into[..most].copy_from_slice(&self.1[..most]);
            self.1.drain(..most);
            Ok(most)
        }
    }
    let resident_kib = || {
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let batch = Work::once(Name::new("posts").unwrap());
    for format in [Format::Jsonl, Format::Csv] {
        for (what, depth) in [("items", 0), ("items and keys", 1), ("items, keys and payloads", 2)] {
            let header = if format == Format::Csv { "site,slug,title,words\n" } else { "" };
            let made = Cursor::new(header).chain(Made(COUNT, Vec::new(), format == Format::Jsonl));
            let from = Box::new(BufReader::with_capacity(128 * 1024, made));
            let items = Items::read("made", from, reading(Some(format), "site,slug")).ok().unwrap();
            let keys = items.keys().clone();
            let (start, before) = (cpu_s(), resident_kib());
            let mut count = 0;
            for next in items {
                let Next::Item(item) = next else { panic!("{next:?}") };
                if depth > 0 {
                    std::hint::black_box(item.work(&batch).unwrap().key());
                }
                if depth > 1 {
                    std::hint::black_box(item.payload(&keys).unwrap());
                }
                count += 1;
            }
            assert_eq!(count, COUNT);
            let rate = COUNT as f64 / (cpu_s() - start);
            println!(
                "{format:?}: {rate:.0} {what} a second of one core, {} KiB more resident",
                resident_kib() - before.min(resident_kib())
            );
        }
    }
}
