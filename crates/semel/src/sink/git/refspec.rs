//! What is to be pushed, as typed and as resolved: full names on both sides, and the object itself, so that nothing
//! that git is configured for can add to it or force it.

use super::run::GitProgram;
use super::sink::GitSinkError;

/// `SRC` or `SRC:DST`, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refspec {
    src: String,
    dst: Option<String>,
}

impl std::fmt::Display for Refspec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.dst {
            Some(dst) => write!(f, "{}:{dst}", self.src),
            None => f.write_str(&self.src),
        }
    }
}

/// `REF:OLD`: this ref may be rewritten, if it is OLD (empty: if it does not exist).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    name: String,
    old: String,
}

/// Why a text is not pushed, and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefspecError {
    /// Nothing.
    #[error("is empty: write BRANCH or SRC:DST")]
    Empty,
    /// `-x`: an option to git.
    #[error("starts with a dash: no ref does")]
    Dash,
    /// `+x`: a force, which would let a stale push in.
    #[error(
        "starts with '+', which would let a stale push in: name the old value with --force-with-lease=REF:OLD"
    )]
    Force,
    /// `:x`: a deletion.
    #[error("deletes a ref, and leaves no commit to know it by: use git push")]
    Delete,
    /// `refs/heads/*`, `^x` or `:`.
    #[error("is a pattern: name each ref")]
    Pattern,
    /// `--force-with-lease` without a value, or with a ref alone.
    #[error("names no old value; git would take its own guess, which lets a stale push in: write REF:OLD")]
    NoOld,
}

impl Refspec {
    /// The refspec, if it is one that may be pushed.
    pub fn parse(text: &str) -> Result<Refspec, RefspecError> {
        let (src, dst) = match text.split_once(':') {
            Some((src, dst)) => (src, Some(dst)),
            None => (text, None),
        };
        let starts = |c: char| src.starts_with(c) || dst.is_some_and(|dst| dst.starts_with(c));
        match (src, dst) {
            ("", None) | (_, Some("")) => Err(RefspecError::Empty),
            _ if starts('+') => Err(RefspecError::Force),
            _ if starts('-') => Err(RefspecError::Dash),
            _ if starts('^') && dst.is_none() || text.contains('*') => Err(RefspecError::Pattern),
            ("", _) => Err(RefspecError::Delete),
            _ => Ok(Refspec { src: src.to_owned(), dst: dst.map(str::to_owned) }),
        }
    }

    /// This local ref to that remote one.
    pub(super) fn exactly(src: String, dst: String) -> Refspec {
        Refspec { src, dst: Some(dst) }
    }
}

impl Lease {
    /// The lease, if it names a value.
    pub fn parse(text: &str) -> Result<Lease, RefspecError> {
        let (name, old) = text.split_once(':').ok_or(RefspecError::NoOld)?;
        match name {
            "" => Err(RefspecError::Empty),
            _ if name.starts_with('-') || old.starts_with('-') => Err(RefspecError::Dash),
            _ => Ok(Lease { name: name.to_owned(), old: old.to_owned() }),
        }
    }

    fn is_for(&self, dst: &str) -> bool {
        dst == self.name
            || dst.strip_prefix("refs/heads/") == Some(&self.name)
            || dst.strip_prefix("refs/tags/") == Some(&self.name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Branch,
    Tag,
}

/// One ref of a push.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) kind: Kind,
    /// The object that is pushed.
    pub(super) oid: String,
    /// The full name on the remote.
    pub(super) dst: String,
    /// The old value that the user named.
    pub(super) lease: Option<String>,
}

fn wrong(line: String) -> GitSinkError {
    GitSinkError::Usage(line)
}

/// Resolve what was typed.
pub(super) fn resolve(
    git: &GitProgram,
    specs: &[Refspec],
    leases: &[Lease],
) -> Result<Vec<Target>, GitSinkError> {
    let mut targets: Vec<Target> = Vec::new();
    for spec in specs {
        let target = one(git, spec)?;
        if targets.iter().any(|other| other.dst == target.dst) {
            return Err(wrong(format!("{} is pushed to twice: name it once", target.dst)));
        }
        targets.push(target);
    }
    for lease in leases {
        let Some(target) = targets.iter_mut().find(|target| lease.is_for(&target.dst)) else {
            return Err(wrong(format!("--force-with-lease names {}, which is not pushed", lease.name)));
        };
        let old = match lease.old.as_str() {
            "" => String::new(),
            old => object(git, old)?.ok_or_else(|| {
                wrong(format!(
                    "--force-with-lease={}:{old}: there is no such object here: fetch it first",
                    lease.name
                ))
            })?,
        };
        target.lease = Some(old);
    }
    Ok(targets)
}

fn one(git: &GitProgram, spec: &Refspec) -> Result<Target, GitSinkError> {
    let src = &spec.src;
    let local = local(git, src)?;
    let dst = match (&spec.dst, &local) {
        (Some(dst), _) if dst.starts_with("refs/") => dst.clone(),
        (Some(dst), Some(local)) if local.name.starts_with("refs/tags/") => format!("refs/tags/{dst}"),
        (Some(dst), Some(_)) => format!("refs/heads/{dst}"),
        (Some(dst), None) => {
            return Err(wrong(format!(
                "{src} is no branch and no tag: say where to, as in {src}:refs/heads/{dst}"
            )));
        }
        (None, Some(local)) => local.name.clone(),
        (None, None) => {
            return Err(wrong(format!(
                "{src} is no branch and no tag here: name one, or say where to with SRC:DST"
            )));
        }
    };
    let kind = match () {
        () if dst.starts_with("refs/heads/") => Kind::Branch,
        () if dst.starts_with("refs/tags/") => Kind::Tag,
        () => {
            return Err(wrong(format!(
                "{dst} is no branch and no tag: only refs/heads/ and refs/tags/ are pushed"
            )));
        }
    };
    if spec.dst.is_some() && !git.run(["check-ref-format", &dst])?.ok() {
        return Err(wrong(format!("{dst} is no name that git takes for a ref")));
    }
    let oid = match local {
        Some(local) if kind == Kind::Tag || !local.name.starts_with("refs/tags/") => Some(local.oid),
        _ if kind == Kind::Branch => object(git, &format!("{src}^{{commit}}"))?,
        _ => object(git, src)?,
    };
    let oid = oid.ok_or_else(|| wrong(format!("there is no commit {src} here")))?;
    Ok(Target { kind, oid, dst, lease: None })
}

/// A branch or a tag of this repository.
struct Local {
    name: String,
    oid: String,
}

/// The local branch or tag of this name; `None` for any other revision.
fn local(git: &GitProgram, src: &str) -> Result<Option<Local>, GitSinkError> {
    let names = match src {
        "HEAD" | "@" => {
            let head = git.run(["symbolic-ref", "--quiet", "HEAD"])?;
            match head.out.trim() {
                name if head.ok() && name.starts_with("refs/heads/") => vec![name.to_owned()],
                _ => return Ok(None),
            }
        }
        full if full.starts_with("refs/heads/") || full.starts_with("refs/tags/") => vec![full.to_owned()],
        full if full.starts_with("refs/") => return Ok(None),
        short => vec![format!("refs/heads/{short}"), format!("refs/tags/{short}")],
    };
    let asked = ["for-each-ref", "--format=%(objectname) %(refname)"].into_iter();
    let answer = git.run(asked.chain(names.iter().map(String::as_str)))?;
    if !answer.ok() {
        return Err(GitSinkError::git("for-each-ref", answer.why()));
    }
    // a pattern also matches what lies below it
    let exact = |line: &str| {
        line.split_once(' ')
            .filter(|(_, name)| names.iter().any(|wanted| wanted == name))
            .map(|(oid, name)| Local { name: name.to_owned(), oid: oid.to_owned() })
    };
    let mut found: Vec<Local> = answer.out.lines().filter_map(exact).collect();
    if found.len() > 1 {
        return Err(wrong(format!("{src} is a branch and a tag: write refs/heads/{src} or refs/tags/{src}")));
    }
    Ok(found.pop())
}

/// The object of a revision.
pub(super) fn object(git: &GitProgram, revision: &str) -> Result<Option<String>, GitSinkError> {
    let answer = git.run(["rev-parse", "--verify", "--quiet", revision])?;
    let oid = answer.out.trim();
    let whole = oid.len() >= 40 && oid.bytes().all(|b| b.is_ascii_hexdigit());
    // 1: no such revision; 128: no repository at all, say
    match answer.code {
        Some(0) if whole => Ok(Some(oid.to_owned())),
        Some(0 | 1) => Ok(None),
        _ if answer.err.contains("ambiguous") || answer.err.contains("Needed a single revision") => Ok(None),
        _ => Err(GitSinkError::git("rev-parse", answer.why())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_the_fence_is_no_refspec() {
        for (text, why) in [
            ("+main", RefspecError::Force),
            ("+main:main", RefspecError::Force),
            ("main:+main", RefspecError::Force),
            ("-evil", RefspecError::Dash),
            ("main:-evil", RefspecError::Dash),
            ("--force", RefspecError::Dash),
            (":main", RefspecError::Delete),
            (":", RefspecError::Empty),
            ("main:", RefspecError::Empty),
            ("", RefspecError::Empty),
            ("^main", RefspecError::Pattern),
            ("refs/heads/*:refs/heads/*", RefspecError::Pattern),
        ] {
            assert_eq!(Refspec::parse(text), Err(why), "{text}");
        }
        assert!(Refspec::parse("main").is_ok() && Refspec::parse("a/b:refs/heads/c").is_ok());
    }

    #[test]
    fn a_lease_names_its_value() {
        assert_eq!(Lease::parse("main"), Err(RefspecError::NoOld));
        assert_eq!(Lease::parse(""), Err(RefspecError::NoOld));
        assert_eq!(Lease::parse(":abc"), Err(RefspecError::Empty));
        assert_eq!(Lease::parse("-main:abc"), Err(RefspecError::Dash));
        assert!(Lease::parse("main:").is_ok_and(|lease| lease.is_for("refs/heads/main")));
        assert!(Lease::parse("refs/tags/v1:abc").is_ok_and(|lease| !lease.is_for("refs/heads/v1")));
    }
}
