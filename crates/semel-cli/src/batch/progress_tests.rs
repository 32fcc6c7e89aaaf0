//! What is drawn, on a terminal that writes down what it is told.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::sync::{Arc, Mutex};

use indicatif::TermLike;

use super::*;

/// Shared by the bar and by who writes above it.
#[derive(Clone, Debug, Default)]
struct Paper(Arc<Mutex<Vec<String>>>);

impl Paper {
    fn note(&self, text: String) -> std::io::Result<()> {
        self.0.lock().unwrap().push(text);
        Ok(())
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl TermLike for Paper {
    fn width(&self) -> u16 {
        120
    }
    fn move_cursor_up(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn move_cursor_down(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn move_cursor_right(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn move_cursor_left(&self, _: usize) -> std::io::Result<()> {
        Ok(())
    }
    fn write_line(&self, text: &str) -> std::io::Result<()> {
        self.note(format!("{text}\n"))
    }
    fn write_str(&self, text: &str) -> std::io::Result<()> {
        self.note(text.to_owned())
    }
    fn clear_line(&self) -> std::io::Result<()> {
        self.note("<clear>".to_owned())
    }
    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.note(String::from_utf8(bytes.to_vec()).unwrap())?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn drawn(bytes: Option<u64>) -> (Progress, Paper) {
    let paper = Paper::default();
    let target = ProgressDrawTarget::term_like(Box::new(paper.clone()));
    let bar = Some(bar("posts", bytes, target));
    (Progress { job: "posts".to_owned(), bar, log: None, rate: Rate::new(0), started_ms: 0 }, paper)
}

fn logged() -> (Progress, Paper) {
    let paper = Paper::default();
    let log: Option<(Box<dyn Write + Send>, u64)> = Some((Box::new(paper.clone()), 0));
    (Progress { job: "posts".to_owned(), bar: None, log, rate: Rate::new(0), started_ms: 0 }, paper)
}

const SOME: Counts = Counts {
    done: 7,
    skipped: 3,
    failed: 0,
    quarantined: 0,
    in_doubt: 0,
    duplicates: 0,
    mismatched: 0,
    wrong: 0,
    left: 0,
    held: 0,
};

#[test]
fn the_closing_line_only_grows_at_its_end() {
    assert_eq!(
        SOME.closing("posts", 41_000),
        "posts: done 7, skipped 3, failed 0, quarantined 0, in doubt 0 in 41s"
    );
    let more = Counts { duplicates: 2, mismatched: 1, wrong: 4, left: 9, ..SOME };
    assert_eq!(
        more.closing("posts", 41_000),
        "posts: done 7, skipped 3, failed 0, quarantined 0, in doubt 0 in 41s, duplicates 2, mismatched 1, wrong input 4, left 9"
    );
}

#[test]
fn a_terminal_sees_how_far_how_fast_and_what_came_out() {
    let (mut progress, paper) = drawn(Some(1000));
    progress.update(&SOME, 500, 1_000);
    let text = paper.taken().concat();
    assert!(text.contains("posts [==========>         ] 50%"), "{text}");
    assert!(text.contains("10/s, done 7, skipped 3, failed 0"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours: {text:?}");
    let closing = progress.finish(&SOME, 41_000);
    assert_eq!(closing, "posts: done 7, skipped 3, failed 0, quarantined 0, in doubt 0 in 41s");
    assert_eq!(paper.taken().last().map(String::as_str), Some("<clear>"));
}

#[test]
fn a_bar_is_for_a_terminal_that_can_draw_it() {
    let of = |json, terminal, term: Option<&str>| Watcher::of(json, terminal, term.map(OsStr::new));
    assert_eq!(of(false, true, Some("xterm")), Watcher::Terminal);
    assert_eq!(of(false, true, Some("dumb")), Watcher::Log);
    assert_eq!(of(false, true, None), Watcher::Log);
    assert_eq!(of(false, false, Some("xterm")), Watcher::Log);
    assert_eq!(of(true, true, Some("xterm")), Watcher::Nobody);
}

#[test]
fn a_stream_has_no_end_to_wait_for() {
    let (mut progress, paper) = drawn(None);
    progress.update(&SOME, 500, 1_000);
    let text = paper.taken().concat();
    assert!(text.contains("posts ") && text.contains("10/s, done 7") && !text.contains('%'), "{text}");
}

#[test]
fn a_log_gets_one_line_a_minute_at_most() {
    let (mut progress, paper) = logged();
    for second in 0..=150 {
        progress.update(&SOME, 0, second * 1_000);
    }
    let told = paper.taken().concat();
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(
        told.starts_with("semel: posts: done 7, skipped 3, failed 0, quarantined 0, in doubt 0 after 60s, "),
        "{told}"
    );
    let quick = logged();
    quick.0.finish(&SOME, 1_000);
    assert_eq!(quick.1.taken(), [""; 0]);
}

#[test]
fn the_rate_follows_what_happens_now() {
    let mut rate = Rate::new(0);
    assert_eq!(rate.words(), "-/s");
    rate.update(1_000_000, 100);
    assert_eq!(rate.words(), "-/s", "too short to say");
    rate.update(1_000, 1_000);
    assert_eq!(rate.words(), "1000/s");
    (2..=120).for_each(|second| rate.update(1_000 + second, second * 1_000));
    assert_eq!(rate.words(), "1.4/s");
    rate.update(0, 500_000);
    assert_eq!(rate.words(), "0.0/s");
}
