//! Does this remote really refuse a stale push? Tried, not asked.
//!
//! Two refs of a random name below `refs/fence/` (no branch, so that nobody's builds start) stand for fence and
//! branch. A push is held up after it has read the remote (git calls the pre-push hook then) until another one has
//! sealed the fence, and goes on: just what a stalled holder does. The remote must refuse all of it.

use std::path::Path;

use super::fence::tips;
use super::remote::Remote;
use super::report::{Sent, sent};
use super::run::{Answer, GitProgram};
use super::sink::GitSinkError;

/// What a trial found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitProof {
    /// Why the remote is unfenced; `None`: it refused the stale push.
    pub unfenced: Option<String>,
    /// Refs that the remote would not remove again.
    pub left: Vec<String>,
}

/// Constant: all that it uses comes in its environment. It takes the fence over while the stale push waits.
const TAKEOVER: &str = "#!/bin/sh
exec \"$SEMEL_PROOF_GIT\" push --quiet --no-verify --atomic --force-with-lease=\"$SEMEL_PROOF_LEASE\" \\
    -- \"$SEMEL_PROOF_REMOTE\" \"$SEMEL_PROOF_REF\" >&2
";

/// Try this remote (a name or an address) out, from an empty repository in `dir`, which is the caller's to make and to remove. An error
/// means that nothing was found out: the remote could not be reached.
pub fn prove(program: &GitProgram, address: &str, dir: &Path) -> Result<GitProof, GitSinkError> {
    // the trial is made elsewhere
    let url = Remote::resolve(program, address)?.address(program);
    let address = url.as_str();
    let mut git = GitProgram { dir: dir.to_owned(), ..program.clone() };
    // whatever repository the user's environment names, this one is meant
    git.env.push(("GIT_DIR".into(), dir.into()));
    git.env.push(("GIT_OBJECT_DIRECTORY".into(), dir.join("objects").into()));
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).map_err(|why| GitSinkError::git("no random bytes", why.to_string()))?;
    let name: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    // what can be told only by trying should not be blamed on an address that does not answer
    let trial = Trial {
        format: trial_format(&git, address)?,
        fence: format!("refs/fence/semel-doctor-{name}"),
        mark: format!("refs/fence/semel-doctor-{name}-branch"),
        git,
        address,
    };
    trial.prepare()?;
    let found = trial.run();
    let left = trial.clean_up();
    Ok(GitProof { unfenced: found?, left })
}

/// The object format of the remote, if it has one already.
fn trial_format(git: &GitProgram, address: &str) -> Result<&'static str, GitSinkError> {
    let answer = git.run(["ls-remote", "--quiet", "--", address])?;
    if !answer.ok() {
        return Err(GitSinkError::git("the remote cannot be read", answer.why()));
    }
    let oid = answer.out.split('\t').next().unwrap_or_default();
    Ok(if oid.len() == 64 { "sha256" } else { "sha1" })
}

struct Trial<'a> {
    git: GitProgram,
    address: &'a str,
    format: &'static str,
    fence: String,
    mark: String,
}

impl Trial<'_> {
    fn prepare(&self) -> Result<(), GitSinkError> {
        let format = format!("--object-format={}", self.format);
        let made = self.git.run(["init", "--quiet", "--bare", &format, "."])?;
        if !made.ok() {
            return Err(GitSinkError::git("git init", made.why()));
        }
        let hooks = self.git.dir.join("hooks");
        let hook = hooks.join("pre-push");
        let write = || {
            use std::os::unix::fs::PermissionsExt;
            std::fs::create_dir_all(&hooks)?;
            std::fs::write(&hook, TAKEOVER)?;
            std::fs::set_permissions(&hook, PermissionsExt::from_mode(0o700))
        };
        write().map_err(|why: std::io::Error| GitSinkError::git("the trial's repository", why.to_string()))
    }

    /// Why the remote is unfenced, if it is.
    fn run(&self) -> Result<Option<String>, GitSinkError> {
        let [first, second, stale, before, after] = self.commits()?;
        let (fence, mark) = (&self.fence, &self.mark);
        let new = [format!("--force-with-lease={fence}:"), format!("--force-with-lease={mark}:")];
        let refs = [format!("{first}:{fence}"), format!("{before}:{mark}")];
        match sent(&self.push(&new, &refs, None)?) {
            Sent::Taken => {}
            Sent::Unknown(why) => return Err(GitSinkError::git("the remote gave no answer", why)),
            Sent::Refused(why) | Sent::Unfenced(why) => {
                return Ok(Some(format!("it does not take {fence}: {why}")));
            }
            Sent::Moved => return Ok(Some(format!("it did not create {fence}"))),
            Sent::Locked(file) => return Err(GitSinkError::Locked { file, tries: 1 }),
        }
        // the stale push has read the remote when the hook takes the fence over
        let lease = format!("{fence}:{first}");
        let takeover = (lease.as_str(), format!("{second}:{fence}"));
        let refs = [format!("{after}:{mark}"), format!("{stale}:{fence}")];
        let answer = self.push(&[format!("--force-with-lease={lease}")], &refs, Some(&takeover))?;
        let found = tips(&self.git, self.address, [fence.as_str(), mark.as_str()])?;
        let at = |name: &str| found.iter().find(|(found, _)| found == name).map(|(_, oid)| oid.as_str());
        Ok(match (at(fence), at(mark)) {
            _ if answer.ok() => Some("it took a push whose fence had been sealed by another".to_owned()),
            (Some(fence), Some(mark)) if *fence == second && *mark == before => None,
            (Some(fence), _) if *fence == first => {
                Some(format!("the fence could not be moved: {}", answer.why()))
            }
            (_, Some(mark)) if *mark == after => {
                Some("it refused the fence of a stale push and yet took its other ref".to_owned())
            }
            _ => Some("its refs are not what a refused push leaves behind".to_owned()),
        })
    }

    fn push(
        &self,
        leases: &[String],
        refs: &[String],
        takeover: Option<&(&str, String)>,
    ) -> Result<Answer, GitSinkError> {
        let hooks = format!("core.hooksPath={}", self.git.dir.join("hooks").display());
        let mut args = vec!["-c", hooks.as_str(), "-c", "push.followTags=false", "-c", "push.pushOption="];
        args.extend(["push", "--porcelain", "--atomic", "--no-follow-tags"]);
        if takeover.is_none() {
            args.push("--no-verify");
        }
        args.extend(leases.iter().map(String::as_str));
        args.extend(["--", self.address]);
        args.extend(refs.iter().map(String::as_str));
        let git = self.git.git.to_string_lossy();
        let (lease, to) = takeover.map_or(("", ""), |(lease, to)| (*lease, to.as_str()));
        let env = [
            ("SEMEL_PROOF_GIT", &*git),
            ("SEMEL_PROOF_REMOTE", self.address),
            ("SEMEL_PROOF_LEASE", lease),
            ("SEMEL_PROOF_REF", to),
        ];
        self.git.feed(args, b"", &env)
    }

    /// Five commits: two of the fence's holders, the stale one's, and the other ref before and after.
    fn commits(&self) -> Result<[String; 5], GitSinkError> {
        let made = |answer: Answer| {
            let oid = answer.out.trim().to_owned();
            if answer.ok() { Ok(oid) } else { Err(GitSinkError::git("the trial's commits", answer.why())) }
        };
        let tree = made(self.git.run(["mktree"])?)?;
        let commit = |message: &str, on: Option<&str>| {
            let mut args = vec!["commit-tree", tree.as_str()];
            args.extend(on.iter().flat_map(|on| ["-p", on]));
            let env = [
                ("GIT_AUTHOR_NAME", "semel"),
                ("GIT_AUTHOR_EMAIL", "semel@localhost"),
                ("GIT_COMMITTER_NAME", "semel"),
                ("GIT_COMMITTER_EMAIL", "semel@localhost"),
            ];
            made(self.git.feed(args, message.as_bytes(), &env)?)
        };
        let first = commit("semel doctor: a fence", None)?;
        let second = commit("semel doctor: sealed by another", Some(&first))?;
        let stale = commit("semel doctor: a stale push", Some(&first))?;
        let before = commit("semel doctor: before", None)?;
        let after = commit("semel doctor: after a stale push", Some(&before))?;
        Ok([first, second, stale, before, after])
    }

    /// Remove both refs; what cannot be removed is named.
    fn clean_up(&self) -> Vec<String> {
        let names = [self.fence.as_str(), self.mark.as_str()];
        let there = || tips(&self.git, self.address, names).unwrap_or_default();
        for (name, _) in there() {
            let gone = format!(":{name}");
            let _ = self.git.run(["push", "--quiet", "--no-verify", "--", self.address, &gone]);
        }
        there().into_iter().map(|(name, _)| name).collect()
    }
}
