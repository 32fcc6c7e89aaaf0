//! Where a step stands in the script that called it: found by reading the script again, as a courtesy in a message.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::plan::read_bounded;

/// The longest script that is looked at.
const SCRIPT_LIMIT: u64 = 1 << 20;
/// The most lines that are named.
const LINES_LIMIT: usize = 5;

/// The lines on which the script around this process uses this step, as "publish.sh lines 4 and 9".
pub(crate) fn lines_of(step: &str) -> Option<String> {
    let parent = Path::new("/proc").join(std::os::unix::process::parent_id().to_string());
    let words = read_bounded(&parent.join("cmdline"), SCRIPT_LIMIT).ok()?;
    let words: Vec<&OsStr> = words.split(|byte| *byte == 0).skip(1).map(OsStr::from_bytes).collect();
    for (n, word) in words.iter().enumerate() {
        let inline = n > 0 && words.get(n - 1).is_some_and(|flag| flag.as_bytes() == b"-c");
        let (name, text) = if inline {
            ("its script".to_owned(), word.as_bytes().to_vec())
        } else {
            let path = parent.join("cwd").join(word);
            if word.is_empty() || !std::fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                continue;
            }
            (word.to_string_lossy().into_owned(), read_bounded(&path, SCRIPT_LIMIT).ok()?)
        };
        let lines = uses(&text, step);
        if !lines.is_empty() {
            return Some(format!("{name} {}", listed(&lines)));
        }
    }
    None
}

/// The numbers of the lines that call this step, as far as that can be told from the outside.
fn uses(script: &[u8], step: &str) -> Vec<usize> {
    let text = String::from_utf8_lossy(script);
    let is_word = |c: char| c.is_alphanumeric() || "._-/:".contains(c);
    let has = |line: &str, wanted: &str| line.split(|c| !is_word(c)).any(|word| word == wanted);
    let calls = |line: &str| has(line, "step") && has(line, step) && !line.trim_start().starts_with('#');
    let numbered = text.lines().enumerate().filter(|(_, line)| calls(line));
    numbered.map(|(n, _)| n + 1).take(LINES_LIMIT).collect()
}

fn listed(lines: &[usize]) -> String {
    let numbers: Vec<String> = lines.iter().map(ToString::to_string).collect();
    match numbers.split_last() {
        Some((only, [])) => format!("line {only}"),
        Some((last, others)) => format!("lines {} and {last}", others.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_step_are_found_and_no_others() {
        let script = b"set -e\nsemel step a -- x\n# semel step a\nsemel step ab -- y\n$SEMEL step \"a\" -- z\n\xff step b";
        assert_eq!(uses(script, "a"), [2, 5]);
        assert_eq!(uses(script, "b"), [6]);
        assert_eq!(uses(script, "c"), [0_usize; 0]);
        assert_eq!(listed(&[2, 5]), "lines 2 and 5");
        assert_eq!(listed(&[1, 2, 5]), "lines 1, 2 and 5");
        assert_eq!(listed(&[7]), "line 7");
    }
}
