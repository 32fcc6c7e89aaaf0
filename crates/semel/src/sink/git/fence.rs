//! The fence: read, written anew, never moved without naming what it was.

use semel_core::token::Grant;

use super::run::{Answer, GitProgram};
use super::sink::{GitSink, GitSinkError};

/// Who makes the fence's commits: fixed, so that a missing `user.name` is no matter.
const IDENTITY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "semel"),
    ("GIT_AUTHOR_EMAIL", "semel@localhost"),
    ("GIT_COMMITTER_NAME", "semel"),
    ("GIT_COMMITTER_EMAIL", "semel@localhost"),
];

/// A fence as it stands on the remote.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    /// Its commit; empty: there is none yet. In this form it is what a lease names.
    pub(super) oid: String,
    /// The grant it names.
    pub(super) grant: Option<Grant>,
}

/// The refs of the remote that have these names, with what they point at.
pub(super) fn tips<'a>(
    git: &GitProgram,
    remote: &'a str,
    names: impl IntoIterator<Item = &'a str> + Clone,
) -> Result<Vec<(String, String)>, GitSinkError> {
    let asked = ["ls-remote", "--quiet", "--", remote].into_iter().chain(names.clone());
    let answer = git.run(asked)?;
    if !answer.ok() {
        return Err(GitSinkError::git("the remote cannot be read", answer.why()));
    }
    // a pattern also matches the end of a longer name
    let wanted = |name: &str| names.clone().into_iter().any(|wanted| wanted == name);
    let lines = answer.out.lines().filter_map(|line| line.split_once('\t'));
    Ok(lines.filter(|(_, name)| wanted(name)).map(|(oid, name)| (name.to_owned(), oid.to_owned())).collect())
}

/// Fetch these refs' objects, and nothing else: no ref, no tag, no FETCH_HEAD of the user's is touched.
pub(super) fn fetch<'a>(
    git: &GitProgram,
    remote: &'a str,
    names: impl IntoIterator<Item = &'a str>,
) -> Result<Answer, GitSinkError> {
    let quietly = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"];
    let alone = ["--no-auto-maintenance", "--no-prune", "--refmap=", "--", remote];
    git.run(quietly.into_iter().chain(alone).chain(names))
}

impl GitSink {
    /// The fence as it stands. `None`: it moved while it was read.
    pub(super) fn read_fence(&self) -> Result<Option<Fence>, GitSinkError> {
        let (git, name) = (&self.program, self.fence_name());
        let Some((_, oid)) = tips(git, &self.remote.read, [name.as_str()])?.pop() else {
            return Ok(Some(Fence { oid: String::new(), grant: None }));
        };
        let mut commit = git.run(["cat-file", "commit", &oid])?;
        if !commit.ok() {
            let fetched = fetch(git, &self.remote.read, [name.as_str()])?;
            commit = git.run(["cat-file", "commit", &oid])?;
            if !fetched.ok() && !commit.ok() {
                return Err(GitSinkError::git("the fence cannot be fetched", fetched.why()));
            }
            if !commit.ok() {
                return Ok(None);
            }
            self.keep(&oid);
        }
        match grant_in(&commit.out) {
            Some(grant) => Ok(Some(Fence { oid, grant: Some(grant) })),
            None => Err(GitSinkError::Damaged { fence: name }),
        }
    }

    /// A local ref to the fence: what is known need not be fetched again, and is not collected. Without it, it is.
    pub(super) fn keep(&self, oid: &str) {
        let name = self.fence_name().replacen("refs/fence/", "refs/semel/fence/", 1);
        let _ = self.program.run(["update-ref", "--no-deref", &name, oid]);
    }

    /// A new commit for the fence, unlike any other.
    pub(super) fn make_fence(&self, on: &Fence, purpose: &str) -> Result<String, GitSinkError> {
        let tree = self.made("mktree", self.program.run(["mktree"])?)?;
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|why| GitSinkError::git("no random bytes", why.to_string()))?;
        let mark: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
        let Grant { token, nonce } = self.grant;
        let message = format!(
            "semel fence of {}\n\nToken: {token}\nNonce: {nonce}\nPurpose: {purpose}\nEffect: {}\nMark: {mark}\n",
            self.resource, self.effect
        );
        let mut args = vec!["-c", "i18n.commitEncoding=UTF-8", "commit-tree", &tree];
        if !on.oid.is_empty() {
            args.extend(["-p", &on.oid]);
        }
        self.made("commit-tree", self.program.feed(args, message.as_bytes(), &IDENTITY)?)
    }

    fn made(&self, what: &str, answer: Answer) -> Result<String, GitSinkError> {
        let oid = answer.out.trim();
        if answer.ok() && oid.len() >= 40 {
            return Ok(oid.to_owned());
        }
        Err(GitSinkError::git(what, answer.why()))
    }
}

/// The grant that a fence's commit names.
fn grant_in(commit: &str) -> Option<Grant> {
    let (_, message) = commit.split_once("\n\n")?;
    let field = |name: &str| message.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Some(Grant { token: field("Token")?.parse().ok()?, nonce: field("Nonce")?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_that_is_none_names_no_grant() {
        let good = "tree x\n\nsemel fence of a\n\nToken: 7\nNonce: 000102030405060708090a0b0c0d0e0f\n";
        assert_eq!(grant_in(good).map(|grant| grant.token.value()), Some(7));
        for bad in
            ["", "tree x\n\n", "tree x\n\nToken: 7\n", "Token: 7\nNonce: 00\n\n", "t\n\nToken: 0\nNonce: x"]
        {
            assert_eq!(grant_in(bad), None, "{bad:?}");
        }
    }
}
