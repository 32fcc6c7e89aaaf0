//! Where a push goes, and where its remote is read: always the same repository.

use super::refspec::Refspec;
use super::run::GitProgram;
use super::sink::GitSinkError;
use super::text::mask;

/// A remote, resolved.
#[derive(Clone, Debug)]
pub struct Remote {
    /// What git pushes to: the name, so that its settings, hooks and tracking branches work as usual.
    pub(super) push: String,
    /// What git reads: the same repository, even if the remote is usually fetched from another one.
    pub(super) read: String,
    /// The address that a push goes to.
    pub(super) url: String,
    /// As it may be shown.
    pub(super) shown: String,
    /// A remote with a name has settings.
    named: bool,
}

fn wrong(line: String) -> GitSinkError {
    GitSinkError::Usage(line)
}

impl Remote {
    /// The remote of this name or address.
    pub fn resolve(git: &GitProgram, text: &str) -> Result<Remote, GitSinkError> {
        let shown = mask(text);
        if text.is_empty() || text.chars().any(char::is_control) {
            return Err(wrong(
                "the remote is empty or holds control characters: write a name or an address".into(),
            ));
        }
        if text.starts_with('-') {
            return Err(wrong(format!("the remote {shown} starts with a dash: write a path as ./{shown}")));
        }
        let named = git.run(["remote", "get-url", "--push", "--all", text])?;
        let (urls, fetched) = match named.ok() {
            true => (named.out, git.run(["remote", "get-url", text])?.out.trim_end().to_owned()),
            // git rewrites what it pushes to by rules of its own (`pushInsteadOf`): it says the result for a remote
            false => {
                let url = format!("remote.semel-push.url={text}");
                (
                    git.run(["-c", &url, "remote", "get-url", "--push", "--all", "semel-push"])?.out,
                    text.to_owned(),
                )
            }
        };
        let named = named.code == Some(0);
        let urls: Vec<&str> = urls.lines().collect();
        let url = match urls.as_slice() {
            [] => text,
            [url] => url,
            more => {
                return Err(wrong(format!(
                    "{shown} has {} push addresses, each with a fence of its own: push to one at a time",
                    more.len()
                )));
            }
        };
        if url.starts_with('-') || named && text.contains('=') {
            return Err(wrong(format!(
                "the remote {shown} has a name or an address that cannot be told to git safely"
            )));
        }
        let read = if url == fetched { text } else { url };
        Ok(Remote { push: text.to_owned(), read: read.to_owned(), url: url.to_owned(), shown, named })
    }

    /// The address that a push goes to, from wherever it is made: a path is told in full. It may hold a password.
    pub fn address(&self, git: &GitProgram) -> String {
        let path = std::fs::canonicalize(git.dir.join(&self.url)).ok();
        path.and_then(|path| path.to_str().map(str::to_owned)).unwrap_or_else(|| self.url.clone())
    }

    /// The settings that would add refs to a push, or force it, turned off.
    pub(super) fn settings(&self) -> Vec<String> {
        let mut settings: Vec<String> =
            ["push.followTags=false", "push.default=nothing", "push.recurseSubmodules=no"]
                .map(str::to_owned)
                .into();
        if self.named {
            settings.push(format!("remote.{}.mirror=false", self.push));
        }
        settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
    }
}

/// What `git push` would push without a refspec: the current branch, to its upstream or to the same name.
pub fn upstream(git: &GitProgram, remote: Option<&str>) -> Result<(String, Refspec), GitSinkError> {
    let head = git.run(["symbolic-ref", "--quiet", "HEAD"])?;
    let branch = head.out.trim();
    match head.code {
        Some(0) if branch.starts_with("refs/heads/") => {}
        Some(0 | 1) => {
            return Err(wrong(
                "no branch is checked out: name what to push, as in HEAD:refs/heads/main".into(),
            ));
        }
        _ => return Err(GitSinkError::git("symbolic-ref", head.why())),
    }
    let format = "--format=%(refname)%00%(push:remotename)%00%(upstream:remotename)%00%(upstream:remoteref)";
    let found = git.run(["for-each-ref", format, branch])?;
    let Some(fields) = found
        .out
        .lines()
        .map(|line| line.split('\0').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&branch))
    else {
        return Err(wrong(format!("{branch} has no commit yet: nothing to push")));
    };
    let field = |n: usize| fields.get(n).copied().filter(|text| !text.is_empty());
    let to = remote.or(field(1)).unwrap_or("origin");
    let dst = field(3).filter(|_| field(2) == Some(to)).unwrap_or(branch);
    Ok((to.to_owned(), Refspec::exactly(branch.to_owned(), dst.to_owned())))
}
