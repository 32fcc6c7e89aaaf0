//! What became of a push, from git's own report.

use super::run::Answer;

/// What a push came to, as far as this side can tell.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The remote took all of it.
    Taken,
    /// Nothing was taken: a ref was not what was expected, or was being written. Look again.
    Moved,
    /// Nothing was taken: this lock of the remote's own was there. It is being written, or a git was killed there.
    Locked(String),
    /// Nothing was taken, and trying again will not help.
    Refused(String),
    /// The remote cannot do what the fence needs.
    Unfenced(String),
    /// No answer: perhaps taken.
    Unknown(String),
}

/// Read `git push --porcelain`.
pub(super) fn sent(answer: &Answer) -> Sent {
    if answer.ok() {
        return Sent::Taken;
    }
    if answer.err.contains("does not support --atomic") {
        return Sent::Unfenced("it does not support atomic pushes".into());
    }
    // `!<tab>from:to<tab>[rejected] (reason)`
    let refused: Vec<(&str, &str)> = answer
        .out
        .lines()
        .filter_map(|line| line.strip_prefix("!\t"))
        .filter_map(|line| line.split_once('\t'))
        .map(|(refs, summary)| (refs.rsplit(':').next().unwrap_or(refs), summary))
        .collect();
    if refused.is_empty() {
        // 1 without a report: a hook on this side; anything else ended before the remote answered
        return match answer.code {
            Some(1) => Sent::Refused(format!("git or its pre-push hook gave it up: {}", answer.why())),
            _ => Sent::Unknown(answer.why()),
        };
    }
    if refused.iter().any(|(_, summary)| summary.contains("[remote failure]")) {
        return Sent::Unknown(format!("the remote did not say what became of it: {}", answer.why()));
    }
    match refused.iter().find(|(_, summary)| !is_passing(summary)) {
        None => lock(&answer.err).map_or(Sent::Moved, Sent::Locked),
        Some((to, summary)) => Sent::Refused(format!("{to}: {summary}")),
    }
}

/// The lock that was in the way, from `Unable to create '…/main.lock': File exists`.
fn lock(err: &str) -> Option<String> {
    let named = err.lines().filter(|line| line.contains(": File exists"));
    named
        .filter_map(|line| line.split_once("Unable to create '")?.1.split_once("': File exists"))
        .next()
        .map(|(file, _)| file.to_owned())
}

/// A reason that is gone when one looks again: a ref has moved, or is just being written by another.
fn is_passing(summary: &str) -> bool {
    const PASSING: [&str; 13] = [
        "stale info",
        "fetch first",
        "non-fast-forward",
        "needs force",
        "already exists",
        "remote ref updated since checkout",
        "atomic push fail",
        "transaction failed",
        "failed to update ref",
        "failed to lock",
        "cannot lock ref",
        "incorrect old value",
        "reference conflict",
    ];
    PASSING.iter().any(|reason| summary.contains(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(code: i32, out: &str, err: &str) -> Sent {
        sent(&Answer { code: Some(code), out: out.into(), err: err.into() })
    }

    #[test]
    fn reports_are_told_apart() {
        assert_eq!(read(0, "", ""), Sent::Taken);
        let stale = "To x\n!\ta:refs/heads/m\t[rejected] (atomic push failed)\n!\tb:refs/fence/x\t[rejected] (stale info)\nDone\n";
        assert_eq!(read(1, stale, ""), Sent::Moved);
        let busy = "!\ta:refs/heads/m\t[remote rejected] (failed to update ref)\n";
        let words = "remote: error: cannot lock ref 'refs/heads/m': Unable to create '/r.git/./refs/heads/m.lock': File exists.";
        assert_eq!(read(1, busy, words), Sent::Locked("/r.git/./refs/heads/m.lock".into()));
        assert_eq!(read(1, busy, "remote: error: it is at 1 but expected 2"), Sent::Moved);
        let hook = "!\ta:refs/heads/m\t[remote rejected] (hook declined)\n!\tb:refs/fence/x\t[remote rejected] (atomic push failure)\n";
        assert_eq!(
            read(1, hook, ""),
            Sent::Refused("refs/heads/m: [remote rejected] (hook declined)".into())
        );
        assert!(matches!(read(1, "", "error: failed to push"), Sent::Refused(_)));
        assert!(matches!(read(128, "", "fatal: gone"), Sent::Unknown(_)));
        let silent = "!\ta:refs/heads/m\t[remote failure] (remote failed to report status)\n";
        assert!(matches!(read(1, silent, ""), Sent::Unknown(_)));
        let old = "fatal: the receiving end does not support --atomic push";
        assert!(matches!(read(128, "", old), Sent::Unfenced(_)));
    }
}
