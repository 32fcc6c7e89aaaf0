//! The words of a shell's command line, as far as they are plain: quotes and backslashes are undone, and a line that
//! asks the shell for anything more (variables, pipes, patterns) has no words here.

/// The words; nothing if a shell would do more than split them.
pub(super) fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut word): (Vec<Vec<u8>>, Option<Vec<u8>>) = (Vec::new(), None);
    let mut rest = line.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b' ' | b'\t' => words.extend(word.take()),
            b'\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match rest.next()? {
                        b'\'' => break,
                        inside => word.push(inside),
                    }
                }
            }
            b'"' => double_quoted(&mut rest, word.get_or_insert_default())?,
            b'\\' => match rest.next()? {
                // a line that goes on
                b'\n' => {}
                next => word.get_or_insert_default().push(next),
            },
            b'~' | b'#' if word.is_none() => return None,
            b'$' | b'`' | b';' | b'|' | b'&' | b'<' | b'>' | b'(' | b')' | b'*' | b'?' | b'[' | b'\n' => {
                return None;
            }
            // the shell would take braces with a comma, or two dots, apart
            b'{' | b'}' => return None,
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word);
    Some(words)
}

fn double_quoted(rest: &mut impl Iterator<Item = u8>, word: &mut Vec<u8>) -> Option<()> {
    loop {
        match rest.next()? {
            b'"' => return Some(()),
            b'$' | b'`' => return None,
            b'\\' => match rest.next()? {
                b'\n' => {}
                next @ (b'"' | b'\\' | b'$' | b'`') => word.push(next),
                next => word.extend([b'\\', next]),
            },
            inside => word.push(inside),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_are_undone() {
        for (line, wanted) in [
            ("a b  c", vec!["a", "b", "c"]),
            (r"a\ b 'c d' \'e\'", vec!["a b", "c d", "'e'"]),
            (r#""a \"b\" \x" ''"#, vec![r#"a "b" \x"#, ""]),
            ("x'y'\"z\"", vec!["xyz"]),
            ("a#b c~", vec!["a#b", "c~"]),
            ("", vec![]),
        ] {
            let found = words(line.as_bytes()).map(|words| {
                words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<Vec<_>>()
            });
            assert_eq!(found, Some(wanted.into_iter().map(str::to_owned).collect()), "{line}");
        }
    }

    #[test]
    fn what_a_shell_would_do_more_with_has_no_words() {
        for line in [
            "a | b",
            "a > b",
            "echo $x",
            "echo \"$x\"",
            "echo `x`",
            "a; b",
            "a &",
            "ls *",
            "~/x",
            "# a",
            "'a",
            "\"a",
            "a\\",
            "{a,b}",
        ] {
            assert_eq!(words(line.as_bytes()), None, "{line}");
        }
    }
}
