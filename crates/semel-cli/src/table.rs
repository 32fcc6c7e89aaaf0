//! Tables and lines that fit the terminal. Colour goes only through `anstream`; text from records is cleaned of
//! everything that could steer a terminal.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};
use semel_core::name::is_plain;
use semel_core::story::Condition;

use crate::out::print;
use crate::plan::Surroundings;

/// What stands where something was cut off.
const CUT: char = '…';
/// Between two columns.
const GAP: usize = 2;

/// Text as it may be shown: what does not show, or would steer the terminal, is written as an escape.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_plain(c) { out.push(c) } else { out.extend(c.escape_default()) }
    }
    out
}

/// How many cells of a terminal a character takes.
fn cells(c: char) -> usize {
    match c {
        '\u{300}'..='\u{36f}' | '\u{fe00}'..='\u{fe0f}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

fn length(text: &str) -> usize {
    text.chars().map(cells).sum()
}

/// The text, cut to so many cells.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if length(text) <= most {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut left = most.saturating_sub(1);
    for c in text.chars() {
        match left.checked_sub(cells(c)) {
            Some(rest) => left = rest,
            None => break,
        }
        out.push(c);
    }
    if most > 0 {
        out.push(CUT);
    }
    out
}

/// How wide a line may be; nothing where nobody reads it on a terminal.
pub(crate) fn line_width(around: &Surroundings) -> Option<usize> {
    let told = around.get("COLUMNS").and_then(|text| text.to_str()?.parse().ok());
    told.filter(|columns| *columns > 0)
        .or_else(|| std::io::stdout().is_terminal().then(window_width).flatten())
}

fn window_width() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes one `winsize`, which `size` is.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    (answer == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// The colour of a state.
pub(crate) fn style_of(condition: Condition) -> Style {
    match condition {
        Condition::Running => colour(AnsiColor::Cyan),
        Condition::Done => colour(AnsiColor::Green),
        Condition::Open => Style::new().dimmed(),
        Condition::Lost | Condition::Failed | Condition::Missed => colour(AnsiColor::Yellow),
        Condition::Quarantined | Condition::InDoubt => colour(AnsiColor::Red).bold(),
    }
}

/// A plain colour.
pub(crate) fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(colour.into()))
}

/// The text in a style.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    right: bool,
    /// It may be cut to so many cells; never, if none.
    least: Option<usize>,
}

/// A column as wide as it needs to be.
pub(crate) const fn whole(title: &'static str) -> Column {
    Column { title, right: false, least: None }
}

/// A column of numbers.
pub(crate) const fn number(title: &'static str) -> Column {
    Column { title, right: true, least: None }
}

/// A column that is cut where the line is too long.
pub(crate) const fn flexible(title: &'static str, least: usize) -> Column {
    Column { title, right: false, least: Some(least) }
}

/// Rows under titles.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<(String, Style)>>,
    /// Every line begins with so many spaces.
    indent: usize,
}

impl Table {
    pub(crate) fn new(columns: impl Into<Vec<Column>>) -> Table {
        Table { columns: columns.into(), rows: Vec::new(), indent: 0 }
    }

    pub(crate) fn indented(mut self, indent: usize) -> Table {
        self.indent = indent;
        self
    }

    /// Add a row: one text, with its style, for each column.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = (String, Style)>) {
        self.rows.push(cells.into_iter().map(|(text, style)| (clean(&text), style)).collect());
    }

    /// Print it.
    pub(crate) fn print(&self, width: Option<usize>) {
        self.lines(width).iter().for_each(|line| print(line));
    }

    fn lines(&self, width: Option<usize>) -> Vec<String> {
        let widths = self.widths(width);
        let titles = self.columns.iter().map(|column| (column.title.to_owned(), Style::new().bold()));
        let titles: Vec<_> = titles.collect();
        std::iter::once(&titles).chain(&self.rows).map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[(String, Style)], widths: &[usize]) -> String {
        let mut line = " ".repeat(self.indent);
        let last = self.columns.len().saturating_sub(1);
        for (nth, ((column, width), (text, style))) in self.columns.iter().zip(widths).zip(row).enumerate() {
            let text = cut(text, *width);
            let space = " ".repeat(width.saturating_sub(length(&text)));
            let text = if text.is_empty() { text } else { styled(*style, &text) };
            match (column.right, nth == last) {
                (true, _) => line.extend([space.as_str(), text.as_str()]),
                (false, true) => line.push_str(&text),
                (false, false) => line.extend([text.as_str(), space.as_str()]),
            }
            if nth != last {
                line.push_str(&" ".repeat(GAP));
            }
        }
        line.truncate(line.trim_end().len());
        line
    }

    /// The widest cell of each column, and less where the line would be too long: first of what may be cut, the
    /// widest of it, then of anything.
    fn widths(&self, most: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.columns.iter().map(|column| length(column.title)).collect();
        for row in &self.rows {
            for (width, (text, _)) in widths.iter_mut().zip(row) {
                *width = (*width).max(length(text));
            }
        }
        let Some(most) = most else { return widths };
        let around = self.indent + GAP * self.columns.len().saturating_sub(1);
        for may_cut_all in [false, true] {
            loop {
                if widths.iter().sum::<usize>() + around <= most {
                    return widths;
                }
                let least = |column: &Column| if may_cut_all { Some(1) } else { column.least };
                let cuttable = self.columns.iter().zip(widths.iter_mut());
                let cuttable =
                    cuttable.filter(|(column, width)| least(column).is_some_and(|least| **width > least));
                match cuttable.map(|(_, width)| width).max() {
                    Some(width) => *width -= 1,
                    None => break,
                }
            }
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 3]]) -> Table {
        let mut table = Table::new([whole("STATE"), flexible("WORK", 6), number("N")]);
        for row in rows {
            table.row(row.iter().map(|text| ((*text).to_owned(), Style::new())));
        }
        table
    }

    fn plain(lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| anstream::adapter::strip_str(line).to_string()).collect()
    }

    #[test]
    fn columns_are_aligned_under_their_titles() {
        let table = table(&[["done", "a", "1"], ["running", "publish@2026", "12"]]);
        assert_eq!(
            plain(&table.lines(None)),
            ["STATE    WORK           N", "done     a              1", "running  publish@2026  12",]
        );
    }

    #[test]
    fn what_may_be_cut_is_cut_to_the_width_and_then_the_rest() {
        let table = table(&[["running", "publish@2026-06-19", "12"]]);
        for width in [8, 12, 16, 20, 24, 40] {
            let lines = plain(&table.lines(Some(width)));
            assert!(lines.iter().all(|line| length(line) <= width), "{width}: {lines:?}");
        }
        assert_eq!(plain(&table.lines(Some(24)))[1], "running  publish@20…  12");
        assert_eq!(plain(&table.lines(Some(1000))), plain(&table.lines(None)));
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(
            (cut("日本語", 6), cut("日本語", 5), cut("日本語", 4)),
            ("日本語".into(), "日本…".into(), "日…".into())
        );
        assert_eq!((cut("abc", 3), cut("abc", 2), cut("abc", 0)), ("abc".into(), "a…".into(), String::new()));
        let lines = plain(&table(&[["日本", "a", "1"], ["x", "b", "2"]]).lines(None));
        assert_eq!(lines.iter().map(|line| length(line)).collect::<Vec<_>>(), [14, 14, 14]);
    }

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        assert_eq!(
            clean("a\u{1b}[31mb\r\n\u{7}\u{9b}\u{202e}ü"),
            "a\\u{1b}[31mb\\r\\n\\u{7}\\u{9b}\\u{202e}ü"
        );
        let lines = table(&[["\u{1b}]0;x\u{7}", "a\tb", "1"]]).lines(None);
        assert!(plain(&lines).iter().all(|line| line.chars().all(|c| !c.is_control())), "{lines:?}");
    }
}
