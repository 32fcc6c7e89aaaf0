//! Inputs as lines of a text: one file per target, which a person can read and a diff can show.
//!
//! Bytes that do not show are written as `\n`, `\x00` and so on. A line that begins with `# ` says why the next one is
//! there; an input that begins so is written with `\x23`.

use std::path::{Path, PathBuf};

/// Where the corpus of a target is kept.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{name}.txt"))
}

/// The corpus of a target. Every target has one: without it only its few seeds would be tried, and nobody would know.
pub fn of(name: &str) -> Vec<Vec<u8>> {
    let path = path(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let inputs: Vec<Vec<u8>> = text.lines().filter(|line| !line.starts_with("# ")).map(input).collect();
    assert!(!inputs.is_empty(), "{} has no input", path.display());
    inputs
}

/// An input as a line.
pub fn line(bytes: &[u8]) -> String {
    let line = bytes.escape_ascii().to_string();
    match line.strip_prefix('#') {
        Some(rest) => format!("\\x23{rest}"),
        None => line.replace("\\'", "'").replace("\\\"", "\""),
    }
}

/// The input of a line.
pub fn input(line: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b'r') => bytes.push(b'\r'),
            Some(b't') => bytes.push(b'\t'),
            Some(b'x') => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).unwrap_or(0);
                let byte = digit() * 16 + digit();
                bytes.push(u8::try_from(byte).unwrap_or(0));
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "no_such_target.txt")]
    fn a_corpus_that_is_missing_is_noticed() {
        of("no_such_target");
    }

    #[test]
    fn every_input_comes_back_from_its_line() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&all[..], b"", b"# x", b"#", b"a\\'\"b\n", b"\\\\'", b"\\n"] {
            let line = line(bytes);
            assert!(line.is_ascii() && !line.contains('\n') && !line.starts_with('#'), "{line}");
            assert_eq!(input(&line), bytes, "{line}");
        }
    }
}
