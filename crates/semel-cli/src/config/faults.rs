//! What is wrong with a file: where, what was found, and what to write instead.

use std::ops::Range;
use std::path::Path;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// From 1.
    pub(crate) line: usize,
    /// From 1, in characters.
    pub(crate) column: usize,
    /// What, and what to write instead.
    pub(crate) text: String,
    /// Of what.
    pub(crate) of: Of,
    /// The line may hold a secret: it is not shown.
    pub(crate) secret: bool,
}

/// What a fault belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// It is no TOML.
    Syntax,
    /// Where the ledger is.
    Store,
    /// What all jobs share.
    All,
    /// This lane.
    Lane(String),
    /// This job.
    Job(String),
    /// This batch.
    Batch(String),
}

impl Fault {
    /// As compilers write it.
    pub(crate) fn line(&self, path: &Path) -> String {
        format!("{}:{}:{}: {}", path.display(), self.line, self.column, self.text)
    }

    /// The line of the file with a mark below it, unless it may hold a secret.
    pub(crate) fn excerpt(&self, text: &str) -> Option<[String; 2]> {
        const LONGEST: usize = 100;
        let line = text.lines().nth(self.line - 1)?.trim_end();
        let hidden = self.secret || looks_secret(line);
        if hidden || line.is_empty() || line.chars().count() > LONGEST {
            return None;
        }
        let shown: String = line.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
        Some([shown, format!("{}^", " ".repeat(self.column - 1))])
    }
}

/// Could this line of a file hold something that must not be shown again?
fn looks_secret(line: &str) -> bool {
    let (name, _) = line.split_once('=').unwrap_or((line, ""));
    (line.contains("://") && line.contains('@'))
        || line.split(['{', ',', '=']).any(is_secret_name)
        || is_secret_name(name)
}

/// Is a variable of this name a secret, by all that is usual?
pub(crate) fn is_secret_name(name: &str) -> bool {
    let name = name.trim().trim_matches(['"', '\'']).to_ascii_uppercase();
    let words = ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIALS"];
    let last = name.rsplit(['_', '-']).next().unwrap_or_default();
    words.contains(&last)
        || ["API_KEY", "ACCESS_KEY", "PRIVATE_KEY", "SECRET_KEY"].iter().any(|end| name.ends_with(end))
}

/// Does this address hold a password?
pub(crate) fn has_password(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let in_userinfo = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    // a password with a slash in it ends the authority too soon
    let odd = rest
        .split('?')
        .next()
        .is_some_and(|before| before.contains('@') && before.contains(':') && !authority.contains('@'));
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let in_query =
        query.split(['&', ';']).any(|pair| is_secret_name(pair.split('=').next().unwrap_or_default()));
    in_userinfo || odd || in_query
}

/// Where things stand in a text.
pub(crate) struct Lines<'a>(pub(crate) &'a str);

impl Lines<'_> {
    /// The line and the column of a place, both from 1.
    pub(crate) fn at(&self, span: &Range<usize>) -> (usize, usize) {
        let mut end = span.start.min(self.0.len());
        while !self.0.is_char_boundary(end) {
            end -= 1;
        }
        let before = self.0.get(..end).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |n| n + 1);
        let column = before.get(start..).unwrap_or_default().chars().count() + 1;
        (before.matches('\n').count() + 1, column)
    }
}

/// The known word that was most likely meant.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // longer words are no slips of the pen, and cost time
    if word.chars().count() > 64 {
        return None;
    }
    let most = (word.chars().count() / 3).clamp(1, 3);
    let lower = word.to_lowercase().replace('_', "-");
    known
        .map(|name| (distance(&lower, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// How many letters must be put, taken, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let above = rows.last().map_or(&[][..], Vec::as_slice);
            let at = |row: &[usize], n: usize| row.get(n).copied().unwrap_or(usize::MAX / 2);
            let mut least =
                (at(above, j) + usize::from(x != y)).min(at(above, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if let (true, Some(two)) = (swapped, rows.len().checked_sub(2).and_then(|n| rows.get(n))) {
                least = least.min(at(two, j - 1) + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows.last().and_then(|row| row.last()).copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_and_no_far_one() {
        let known = ["ttl", "timeout", "kill-after", "if-busy", "command"];
        let near = |word| nearest(word, known.into_iter());
        assert_eq!(near("tll"), Some("ttl"));
        assert_eq!(near("timeuot"), Some("timeout"));
        assert_eq!(near("kill_after"), Some("kill-after"));
        assert_eq!(near("IfBusy"), Some("if-busy"));
        assert_eq!(near("comand"), Some("command"));
        assert_eq!(near("schedule"), None);
        assert_eq!(near(&"t".repeat(1_000)), None);
        assert_eq!((distance("ab", "ba"), distance("", "abc"), distance("abc", "abc")), (1, 3, 0));
    }

    #[test]
    fn passwords_are_seen_in_addresses() {
        for url in [
            "postgres://me:pw@db/x",
            "postgres://me:p/w@db/x",
            "redis://:pw@h",
            "postgres://db/x?password=y",
            "https://h/?a=b&access_token=c",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in
            ["sqlite:/var/lib/a@b:c.db", "postgres://me@db:5432/x", "postgres://db:5432/x?sslmode=require"]
        {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn names_of_secrets_are_known() {
        for name in ["TOKEN", "github_token", "DB_PASSWORD", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["MAX_TOKENS", "TOKEN_FILE", "KEY", "CACHE_KEY", "PATH", "PASSWORD_STORE_DIR"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn columns_count_characters() {
        let lines = Lines("a\n\u{e4}\u{f6}x\n");
        assert_eq!((lines.at(&(0..1)), lines.at(&(6..7)), lines.at(&(3..4))), ((1, 1), (2, 3), (2, 1)));
        assert_eq!(lines.at(&(999..1000)), (3, 1));
    }
}
