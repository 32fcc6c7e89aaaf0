//! Seal, look, effect: the push itself.

use std::time::Duration;

use semel_core::name::Name;
use semel_core::token::{Fence as Met, Grant, Token};

use super::fence::Fence;
use super::look::{Look, Seen};
use super::refspec::{Lease, Refspec, Target, resolve};
use super::remote::Remote;
use super::report::{Sent, sent};
use super::run::GitProgram;
use super::text::{EffectId, fence_ref};
use crate::crash::point;

/// How often a push that lost to another is tried again. Somebody wins each time.
const TRIES: u32 = 40;
/// How often an answer may be missing.
const FAULTS: u32 = 2;
/// The longest pause between two tries.
const PAUSE_MS: u64 = 500;

/// A resource's fence on a remote, a grant to pass it with, and the effect that is pushed.
#[derive(Clone, Debug)]
pub struct GitSink {
    /// Which git, and in which repository.
    pub program: GitProgram,
    /// Where to.
    pub remote: Remote,
    /// The resource whose fence it is.
    pub resource: Name,
    /// The grant of this holder.
    pub grant: Grant,
    /// What the pushed commits are known by.
    pub effect: EffectId,
}

/// What a user may ask of a push.
#[derive(Clone, Debug, Default)]
pub struct PushOptions {
    /// Refs that may be rewritten, each with its old value.
    pub leases: Vec<Lease>,
    /// `--push-option`s, for the remote's hooks.
    pub push_options: Vec<String>,
    /// Leave the pre-push hook out.
    pub no_verify: bool,
}

/// A ref of the remote, and the commit (or tag) by which the effect is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The ref's full name.
    pub name: String,
    /// The object.
    pub commit: String,
}

/// How a push came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The remote took it.
    Done(Vec<Landed>),
    /// The remote has this effect from before, perhaps in other commits: nothing was pushed.
    AlreadyThere(Vec<Landed>),
    /// The remote has all that is here, and none of it is marked as this effect: nothing was pushed.
    UpToDate,
}

/// Why nothing was pushed (or, for [`Unknown`](GitSinkError::Unknown), why that cannot be told).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GitSinkError {
    /// A newer grant has sealed the fence. Stop: the work is another's.
    #[error("the fence of {resource} is sealed by token {}, ours is {ours}: nothing was pushed", .by.token)]
    Stale {
        /// The resource.
        resource: Name,
        /// This holder's token.
        ours: Token,
        /// The newer grant.
        by: Grant,
    },
    /// Two holders were given one token. Stop, and tell a person: the store broke its word.
    #[error(
        "two holders of {resource} have token {token}: nothing was pushed; the store has granted one token twice, check it"
    )]
    Clash {
        /// The resource.
        resource: Name,
        /// The token.
        token: Token,
    },
    /// The remote has commits that this push lacks. Fetch, rebase, push again.
    #[error(
        "{name} of {remote} has commits that are not here: nothing was pushed; fetch, rebase and push again"
    )]
    NotFastForward {
        /// The ref.
        name: String,
        /// The remote.
        remote: String,
    },
    /// The tag is there and is another. Choose a new name, or name its old value.
    #[error(
        "{name} is on {remote} already and is another: nothing was pushed; choose a new name, or say --force-with-lease={name}:OLD"
    )]
    TagExists {
        /// The tag.
        name: String,
        /// The remote.
        remote: String,
    },
    /// A ref that may be rewritten is not what the user named. Look at it first.
    #[error("{name} is {found}, not what --force-with-lease names: nothing was pushed; fetch and look at it")]
    NotAsLeased {
        /// The ref.
        name: String,
        /// What it is.
        found: String,
    },
    /// No commit of a ref carries the effect's id. Mark one and push again.
    #[error(
        "no new commit of {name} says \"{trailer}\": nothing was pushed; add it with: git commit --amend --no-edit --trailer \"{trailer}\""
    )]
    NoTrailer {
        /// The ref.
        name: String,
        /// The line that is missing.
        trailer: String,
    },
    /// The history is cut off, and the effect may lie beyond. Fetch it, push again.
    #[error(
        "this clone is shallow, so whether the effect is there already cannot be told: nothing was pushed; run git fetch --unshallow"
    )]
    Shallow,
    /// The fence ref holds something else. A person must look.
    #[error(
        "{fence} holds what is no fence of Semel's: nothing was pushed; look at it with git ls-remote and git show"
    )]
    Damaged {
        /// The fence's ref.
        fence: String,
    },
    /// Others who hold the same grant were faster, every time. Push again later.
    #[error(
        "{tries} tries were overtaken by other pushes under the same grant: nothing was pushed; push again"
    )]
    Raced {
        /// How many tries.
        tries: u32,
    },
    /// A lock of the remote's own stayed in the way. Push again later, unless a git was killed there.
    #[error(
        "{file} was in the way of {tries} tries: nothing was pushed; if no git is at work in that repository, one was killed there: remove the file, and push again"
    )]
    Locked {
        /// The lock, on the remote's side.
        file: String,
        /// How many tries.
        tries: u32,
    },
    /// The remote, or a hook, does not want it. Its words say why.
    #[error("the push was refused: {0}; nothing was pushed")]
    Refused(String),
    /// The remote cannot be fenced. Use another, or do without the promise.
    #[error("this remote cannot be fenced: {0}; nothing was pushed: semel doctor --git tells more")]
    Unfenced(String),
    /// The push was sent, and what became of it cannot be seen. Push again: if it arrived, that is found out.
    #[error("whether the push arrived is unknown: {0}; push again, it will not land twice")]
    Unknown(String),
    /// What was asked for cannot be pushed.
    #[error("{0}")]
    Usage(String),
    /// There is no git to run.
    #[error("{git} cannot be started: {why}")]
    NoGit {
        /// The program.
        git: String,
        /// The system's words.
        why: String,
    },
    /// Git failed before anything was pushed.
    #[error("{what}: {why}; nothing was pushed")]
    Git {
        /// What failed.
        what: String,
        /// Git's words.
        why: String,
    },
}

impl GitSinkError {
    pub(super) fn git(what: &str, why: String) -> GitSinkError {
        GitSinkError::Git { what: what.to_owned(), why }
    }
}

impl GitSink {
    /// The fence's ref.
    pub fn fence_name(&self) -> String {
        fence_ref(&self.resource)
    }

    /// Push these refs, all or none, unless the grant is stale or the effect is there. Git's own words during
    /// pushes are handed to `hear`, line by line, without passwords.
    pub fn push(
        &self,
        specs: &[Refspec],
        options: &PushOptions,
        hear: &mut dyn FnMut(&str),
    ) -> Result<Pushed, GitSinkError> {
        let targets = resolve(&self.program, specs, &options.leases)?;
        if targets.is_empty() {
            return Err(GitSinkError::Usage("nothing to push: name a branch or a tag".into()));
        }
        // a push whose answer is missing: why
        let mut unanswered: Option<String> = None;
        let mut faults = 0;
        // what was in the way of the last turn, if it was a lock
        let mut lock = None;
        for turn in 0..TRIES {
            pause(turn);
            match self.turn(&targets, options, unanswered.is_some(), hear) {
                Ok(Turn::Ended(pushed)) => {
                    point("git.done");
                    return Ok(pushed);
                }
                Ok(Turn::Again) => lock = None,
                Ok(Turn::Locked(file)) => lock = Some(file),
                Ok(Turn::Silent { why, effect }) => {
                    faults += 1;
                    if effect {
                        unanswered = Some(why.clone());
                    }
                    match &unanswered {
                        _ if faults < FAULTS => {}
                        Some(why) => return Err(GitSinkError::Unknown(why.clone())),
                        None => return Err(GitSinkError::git("the remote gave no answer", why)),
                    }
                }
                // what cannot be looked at after a push without an answer stays unknown
                Err(GitSinkError::Git { why, .. } | GitSinkError::NoGit { why, .. })
                    if unanswered.is_some() =>
                {
                    return Err(GitSinkError::Unknown(why));
                }
                Err(why) => return Err(why),
            }
        }
        Err(match (unanswered, lock) {
            (Some(why), _) => GitSinkError::Unknown(why),
            (None, Some(file)) => GitSinkError::Locked { file, tries: TRIES },
            (None, None) => GitSinkError::Raced { tries: TRIES },
        })
    }

    /// Once through seal, look and effect.
    fn turn(
        &self,
        targets: &[Target],
        options: &PushOptions,
        unanswered: bool,
        hear: &mut dyn FnMut(&str),
    ) -> Result<Turn, GitSinkError> {
        let Some(fence) = self.read_fence()? else { return Ok(Turn::Again) };
        let fence = match self.grant.against(fence.grant.as_ref()) {
            Met::Same => fence,
            Met::Advance => match self.seal(&fence, hear)? {
                Sealed::Yes(fence) => fence,
                Sealed::Again(turn) => return Ok(turn),
            },
            Met::Stale | Met::Clash if unanswered => return self.afterwards(targets, &fence),
            Met::Stale | Met::Clash => return Err(self.refusal(&fence)),
        };
        let Look::Seen(seen) = self.look(targets)? else { return Ok(Turn::Again) };
        point("git.looked");
        if let Some(landed) = self.landed(targets, &seen).filter(|_| unanswered) {
            return Ok(Turn::Ended(Pushed::Done(landed)));
        }
        let pending: Vec<(&Target, &Option<String>)> = targets
            .iter()
            .zip(&seen)
            .filter_map(|(target, seen)| match seen {
                Seen::Pending { lease } => Some((target, lease)),
                _ => None,
            })
            .collect();
        if pending.is_empty() {
            return Ok(Turn::Ended(already(targets, seen)));
        }
        self.send(&fence, &pending, options, hear)
    }

    /// Take the fence over: from now on no older grant gets through.
    fn seal(&self, fence: &Fence, hear: &mut dyn FnMut(&str)) -> Result<Sealed, GitSinkError> {
        let (name, oid) = (self.fence_name(), self.make_fence(fence, "seal")?);
        let mut args = self.remote.settings();
        // nothing of the user's is pushed: their hook and their remote's options are for the effect
        args.extend(["-c", "push.pushOption=", "push", "--porcelain", "--no-verify"].map(str::to_owned));
        args.push(format!("--force-with-lease={name}:{}", fence.oid));
        args.extend(tail_of_push(&self.remote, [format!("{oid}:{name}")]));
        point("git.seal.before");
        let answer = self.program.run(args)?;
        point("git.seal.after");
        Ok(match sent(&answer) {
            Sent::Taken => Sealed::Yes(Fence { oid, grant: Some(self.grant) }),
            Sent::Moved => Sealed::Again(Turn::Again),
            Sent::Locked(file) => Sealed::Again(Turn::Locked(file)),
            Sent::Unknown(why) => Sealed::Again(Turn::Silent { why, effect: false }),
            Sent::Refused(why) | Sent::Unfenced(why) => {
                answer.err.lines().for_each(hear);
                return Err(GitSinkError::Unfenced(format!("it does not take {name}: {why}")));
            }
        })
    }

    /// The refs and the fence, in one.
    fn send(
        &self,
        fence: &Fence,
        pending: &[(&Target, &Option<String>)],
        options: &PushOptions,
        hear: &mut dyn FnMut(&str),
    ) -> Result<Turn, GitSinkError> {
        let (name, oid) = (self.fence_name(), self.make_fence(fence, "effect")?);
        let mut args = self.remote.settings();
        args.extend(["push", "--porcelain"].map(str::to_owned));
        if options.no_verify {
            args.push("--no-verify".into());
        }
        args.extend(options.push_options.iter().map(|option| format!("--push-option={option}")));
        args.push(format!("--force-with-lease={name}:{}", fence.oid));
        let leased = pending.iter().filter_map(|(target, lease)| Some((target, lease.as_ref()?)));
        args.extend(leased.map(|(target, old)| format!("--force-with-lease={}:{old}", target.dst)));
        let refs = pending.iter().map(|(target, _)| format!("{}:{}", target.oid, target.dst));
        args.extend(tail_of_push(&self.remote, refs.chain([format!("{oid}:{name}")])));
        point("git.effect.before");
        let answer = match self.program.run(args) {
            // it was started, and nobody knows how far it got
            Err(GitSinkError::Git { why, .. }) => return Ok(Turn::Silent { why, effect: true }),
            answer => answer?,
        };
        point("git.effect.after");
        let outcome = sent(&answer);
        if !matches!(outcome, Sent::Moved | Sent::Locked(_)) {
            answer.err.lines().for_each(hear);
        }
        match outcome {
            Sent::Taken => {
                self.keep(&oid);
                let landed = |(target, _): &(&Target, _)| Landed {
                    name: target.dst.clone(),
                    commit: target.oid.clone(),
                };
                Ok(Turn::Ended(Pushed::Done(pending.iter().map(landed).collect())))
            }
            Sent::Moved => Ok(Turn::Again),
            Sent::Locked(file) => Ok(Turn::Locked(file)),
            Sent::Unknown(why) => Ok(Turn::Silent { why, effect: true }),
            Sent::Refused(why) => Err(GitSinkError::Refused(why)),
            Sent::Unfenced(why) => Err(GitSinkError::Unfenced(why)),
        }
    }

    /// The fence is another's by now, so what was sent without an answer has arrived or never will.
    fn afterwards(&self, targets: &[Target], fence: &Fence) -> Result<Turn, GitSinkError> {
        match self.look(targets) {
            Ok(Look::Moved) => Ok(Turn::Again),
            Ok(Look::Seen(seen)) => match self.landed(targets, &seen) {
                Some(landed) => Ok(Turn::Ended(Pushed::Done(landed))),
                None => Err(self.refusal(fence)),
            },
            Err(why @ GitSinkError::Git { .. }) => Err(why),
            Err(_) => Err(self.refusal(fence)),
        }
    }

    fn refusal(&self, fence: &Fence) -> GitSinkError {
        let (resource, ours) = (self.resource.clone(), self.grant.token);
        match fence.grant {
            Some(by) if by.token != ours => GitSinkError::Stale { resource, ours, by },
            _ => GitSinkError::Clash { resource, token: ours },
        }
    }
}

enum Turn {
    Ended(Pushed),
    /// Somebody else moved a ref: read all of it again.
    Again,
    /// A lock was there.
    Locked(String),
    /// No answer to the seal, or to the effect.
    Silent {
        why: String,
        effect: bool,
    },
}

enum Sealed {
    Yes(Fence),
    Again(Turn),
}

/// Atomic, no tag that merely follows, no submodule; then only data.
fn tail_of_push(remote: &Remote, refs: impl IntoIterator<Item = String>) -> Vec<String> {
    let fixed = ["--atomic", "--no-follow-tags", "--recurse-submodules=no", "--", &remote.push];
    fixed.into_iter().map(str::to_owned).chain(refs).collect()
}

/// Nothing is left to push.
fn already(targets: &[Target], seen: Vec<Seen>) -> Pushed {
    let at = |seen| match seen {
        Seen::There { at } => Some(at),
        Seen::UpToDate { marked } => marked,
        Seen::Pending { .. } => None,
    };
    let there: Vec<Landed> = targets
        .iter()
        .zip(seen)
        .filter_map(|(target, seen)| Some(Landed { name: target.dst.clone(), commit: at(seen)? }))
        .collect();
    if there.is_empty() { Pushed::UpToDate } else { Pushed::AlreadyThere(there) }
}

/// Longer from turn to turn, and never the same for two.
fn pause(turn: u32) {
    if turn > 0 {
        let most = (5 << turn.min(7)).min(PAUSE_MS);
        std::thread::sleep(Duration::from_millis(getrandom::u64().unwrap_or(most) % (most + 1)));
    }
}
