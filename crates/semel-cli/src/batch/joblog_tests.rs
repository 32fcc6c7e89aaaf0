//! Joblogs: as they are documented, as GNU parallel really writes them, and as they are not.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::ffi::OsString;

use super::input_tests::source;
use super::joblog::{Joblog, JoblogError, Row, Rows};

const HEADER: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

fn log(rows: &[(u64, i32, i32, &str)]) -> String {
    let row = |(seq, exit, signal, command): &(u64, i32, i32, &str)| {
        format!("{seq}\t:\t1794832804.882\t     0.010\t0\t4\t{exit}\t{signal}\t{command}\n")
    };
    rows.iter().map(row).fold(HEADER.to_owned(), |text, row| text + &row)
}

fn words(text: &str) -> Vec<OsString> {
    text.split('|').map(Into::into).collect()
}

fn read(text: &str) -> Joblog {
    Joblog::read(source(text)).unwrap()
}

#[test]
fn a_row_has_its_number_its_end_and_its_command() {
    let text = log(&[(2, 0, 0, "echo 'a\tb'"), (1, 3, 0, "x"), (3, 0, 9, "printf 'a\0b'")]);
    let rows: Vec<Row> = Rows::new(source(text)).unwrap().map(Result::unwrap).collect();
    let row = |seq, exit, signal, command: &str| Row { seq, exit, signal, command: command.into() };
    assert_eq!(rows, [row(2, 0, 0, "echo 'a\tb'"), row(1, 3, 0, "x"), row(3, 0, 9, "printf 'a\nb'")]);
}

#[test]
fn what_is_no_joblog_is_said_with_its_line() {
    for (text, why) in [
        (String::new(), JoblogError::NoHeader.to_string()),
        ("a b c\n".to_owned(), JoblogError::NoHeader.to_string()),
        (log(&[]) + "1\t:\t2\n", "line 2: has 3 columns, a row has 9".to_owned()),
        (
            log(&[(1, 0, 0, "x")]) + "one\t:\t0\t0\t0\t0\t0\t0\tx\n",
            "line 3: Seq is \"one\", not a number".to_owned(),
        ),
        (log(&[]) + "1\t:\t0\t0\t0\t0\t\t0\tx\n", "line 2: Exitval is \"\", not a number".to_owned()),
    ] {
        assert_eq!(Joblog::read(source(text)).unwrap_err().to_string(), why);
    }
    let why = Joblog::open(std::path::Path::new("/no/such/log")).unwrap_err();
    assert_eq!(
        (why.code, why.line.as_str()),
        (65, "--import-joblog /no/such/log: No such file or directory (os error 2); nothing was run")
    );
}

#[test]
fn an_item_is_done_if_its_own_command_ended_well() {
    let mut joblog = read(&log(&[
        (1, 0, 0, "./p 'a b'"),
        (2, 1, 0, "./p c"),
        (3, 0, 9, "./p d"),
        (4, 0, 0, "./p e > out"),
        (5, -1, 0, "./p f"),
    ]));
    assert_eq!((joblog.rows, joblog.not_words, joblog.left_over()), (5, 1, 1));
    // a line was added before it: it is still the same item
    assert_eq!(joblog.take(&words("./p|a b")), Some(1));
    for failed in ["./p|c", "./p|d", "./p|e", "./p|f", "./p|a|b", "./p"] {
        assert_eq!(joblog.take(&words(failed)), None, "{failed}");
    }
    // a row counts once
    assert_eq!((joblog.take(&words("./p|a b")), joblog.left_over()), (None, 0));
}

/// Which of its items failed nobody can know: line 2 of the items is line 3 of a CSV file with a header.
#[test]
fn a_command_that_does_not_tell_its_items_apart_is_done_only_if_all_its_rows_ended_well() {
    let mut joblog = read(&log(&[
        (1, 0, 0, "./p x"),
        (2, 1, 0, "./p x"),
        (3, 0, 0, "./p x"),
        (4, 0, 0, "./p y"),
        (5, 0, 0, "./p y"),
    ]));
    for _ in 0..3 {
        assert_eq!(joblog.take(&words("./p|x")), None);
    }
    let y = words("./p|y");
    assert_eq!([joblog.take(&y), joblog.take(&y), joblog.take(&y)], [Some(4), Some(5), None]);
}

#[test]
fn what_is_left_out_is_said() {
    let text = log(&[(1, 0, 0, "./p x > y"), (2, 0, 0, "./p $x"), (3, 0, 0, "./p x")]);
    let joblog = read(&(text + "4\t:\t0"));
    assert_eq!(
        joblog.left_out(),
        [
            "2 rows of the joblog left out: only a shell can read the command; its item is run",
            "the last line of the joblog is cut, and was left out: its item is run",
        ]
    );
    assert!(read(&log(&[(1, 0, 0, "./p x")])).left_out().is_empty());
}

#[test]
fn a_number_that_is_there_again_counts_as_it_ended_last() {
    let text =
        log(&[(1, 1, 0, "./p x"), (2, 0, 0, "./p y")]) + &log(&[(1, 0, 0, "./p x"), (2, 7, 0, "./p y")]);
    let mut joblog = read(&text);
    assert_eq!((joblog.take(&words("./p|x")), joblog.take(&words("./p|y"))), (Some(1), None));
}

#[test]
fn a_line_that_was_cut_is_left_out() {
    let text = log(&[(1, 0, 0, "./p x")]) + "2\t:\t0\t0\t0\t0\t0\t0\t./p y";
    let mut joblog = read(&text);
    assert!(joblog.is_cut);
    assert_eq!((joblog.rows, joblog.take(&words("./p|y"))), (1, None));
}

/// The program itself, if it is here.
#[test]
#[allow(clippy::disallowed_methods)]
fn the_real_parallel_writes_what_is_read() {
    use std::process::{Command, Stdio};
    let dir = tempfile::tempdir().unwrap();
    let lines = [
        "a b",
        "it's $x `y`",
        "c*d ? [e]",
        "",
        "üé \"q\" \\ {z}",
        "#h",
        "~t",
        "tab\there",
        "-n",
        "new\nline",
        "3",
    ];
    let list = dir.path().join("list");
    std::fs::write(&list, lines.join("\0")).unwrap();
    let log = dir.path().join("log");
    let mut parallel = Command::new("parallel");
    parallel.args(["--will-cite", "-0", "-j2", "--joblog"]).arg(&log);
    // fails for the last one alone
    parallel.args(["test", "x{}", "!=", "x3", "::::"]).arg(&list);
    parallel.env("HOME", dir.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Err(why) = parallel.status() {
        println!("SKIPPED: the_real_parallel_writes_what_is_read: parallel: {why}");
        if let Some(skips) = std::env::var_os("SEMEL_SKIP_LOG") {
            let mut skips = std::fs::File::options().create(true).append(true).open(skips).unwrap();
            let line = format!("semel-cli the_real_parallel_writes_what_is_read: parallel: {why}\n");
            std::io::Write::write_all(&mut skips, line.as_bytes()).unwrap();
        }
        return;
    }
    let mut joblog = Joblog::open(&log).unwrap();
    assert_eq!((joblog.rows, joblog.not_words), (lines.len() as u64, 0));
    for (at, line) in lines.iter().enumerate().rev() {
        let argv: Vec<OsString> = ["test", &format!("x{line}"), "!=", "x3"].map(Into::into).into();
        let seq = (*line != "3").then_some(at as u64 + 1);
        assert_eq!(joblog.take(&argv), seq, "{line:?}");
    }
    assert_eq!(joblog.left_over(), 0);
}
