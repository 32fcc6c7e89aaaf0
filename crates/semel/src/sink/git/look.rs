//! The look: what of a push is on the remote already.

use super::fence::{fetch, tips};
use super::refspec::{Kind, Target};
use super::sink::{GitSink, GitSinkError, Landed};

/// One ref of the push, against the remote.
#[derive(Debug)]
pub(super) enum Seen {
    /// The remote has all of it.
    UpToDate {
        /// The commit there that carries the effect's id, if one does.
        marked: Option<String>,
    },
    /// The remote has the effect, in a commit of another attempt.
    There { at: String },
    /// It is to be pushed; a lease for it, if one is due.
    Pending { lease: Option<String> },
}

/// The remote, against the push.
#[derive(Debug)]
pub(super) enum Look {
    /// Each target's state, in order.
    Seen(Vec<Seen>),
    /// A ref moved while it was looked at.
    Moved,
}

impl GitSink {
    pub(super) fn look(&self, targets: &[Target]) -> Result<Look, GitSinkError> {
        let names = targets.iter().map(|target| target.dst.as_str());
        let tips = tips(&self.program, &self.remote.read, names)?;
        let tip =
            |target: &Target| tips.iter().find(|(name, _)| *name == target.dst).map(|(_, oid)| oid.as_str());
        let unlike: Vec<&str> = targets
            .iter()
            .filter(|t| tip(t).is_some_and(|oid| oid != t.oid))
            .map(|t| t.dst.as_str())
            .collect();
        if !unlike.is_empty() {
            let fetched = fetch(&self.program, &self.remote.read, unlike)?;
            if !fetched.ok() && fetched.err.contains("find remote ref") {
                return Ok(Look::Moved);
            }
            if !fetched.ok() {
                return Err(GitSinkError::git("the remote cannot be fetched", fetched.why()));
            }
        }
        let mut all = Vec::new();
        for target in targets {
            let seen = match (target.kind, tip(target)) {
                (Kind::Branch, tip) => self.branch(target, tip),
                (Kind::Tag, tip) => self.tag(target, tip),
            };
            match (seen, tip(target)) {
                (Ok(seen), _) => all.push(seen),
                // it was rewritten between the two looks, so what was there before did not come along
                (Err(GitSinkError::Git { .. }), Some(tip))
                    if !self.program.run(["cat-file", "-e", tip])?.ok() =>
                {
                    return Ok(Look::Moved);
                }
                (Err(why), _) => return Err(why),
            }
        }
        let old_branch = |(target, seen): (&Target, &Seen)| {
            matches!(seen, Seen::Pending { .. }) && target.kind == Kind::Branch && tip(target).is_some()
        };
        if targets.iter().zip(&all).any(old_branch) && self.is_shallow()? {
            return Err(GitSinkError::Shallow);
        }
        Ok(Look::Seen(all))
    }

    fn branch(&self, target: &Target, tip: Option<&str>) -> Result<Seen, GitSinkError> {
        let there = tip.map_or(Ok(None), |tip| self.marked(tip, None))?;
        if tip == Some(&target.oid) {
            return Ok(Seen::UpToDate { marked: there });
        }
        if self.marked(&target.oid, tip)?.is_none() {
            return match self.first(&[], &target.oid, tip)? {
                None => Ok(Seen::UpToDate { marked: there }),
                Some(_) => Err(self.no_trailer(target)),
            };
        }
        if let Some(at) = there {
            return Ok(Seen::There { at });
        }
        if let (Some(tip), None) = (tip, &target.lease)
            && !self.program.run(["merge-base", "--is-ancestor", tip, &target.oid])?.ok()
        {
            return Err(GitSinkError::NotFastForward {
                name: target.dst.clone(),
                remote: self.remote.shown.clone(),
            });
        }
        self.as_leased(target, tip)?;
        Ok(Seen::Pending { lease: target.lease.clone() })
    }

    fn tag(&self, target: &Target, tip: Option<&str>) -> Result<Seen, GitSinkError> {
        let marked = match tip {
            Some(tip) => self.tag_marked(tip)?,
            None => None,
        };
        match tip {
            Some(tip) if tip == target.oid => return Ok(Seen::UpToDate { marked }),
            Some(_) if marked.is_none() && target.lease.is_none() => {
                return Err(GitSinkError::TagExists {
                    name: target.dst.clone(),
                    remote: self.remote.shown.clone(),
                });
            }
            _ => {}
        }
        if self.tag_marked(&target.oid)?.is_none() {
            return Err(self.no_trailer(target));
        }
        if let Some(at) = marked {
            return Ok(Seen::There { at });
        }
        self.as_leased(target, tip)?;
        // a tag that nobody told to move must not be there yet
        Ok(Seen::Pending { lease: Some(target.lease.clone().unwrap_or_default()) })
    }

    /// What the user expects to be there is there.
    fn as_leased(&self, target: &Target, tip: Option<&str>) -> Result<(), GitSinkError> {
        match &target.lease {
            Some(old) if old != tip.unwrap_or_default() => Err(GitSinkError::NotAsLeased {
                name: target.dst.clone(),
                found: tip.unwrap_or("not there").to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn no_trailer(&self, target: &Target) -> GitSinkError {
        GitSinkError::NoTrailer { name: target.dst.clone(), trailer: self.effect.trailer() }
    }

    /// The newest commit below `tip`, and not below `without`, that carries the effect's id.
    fn marked(&self, tip: &str, without: Option<&str>) -> Result<Option<String>, GitSinkError> {
        let grep = format!("--grep={}", self.effect.pattern());
        self.first(&["--extended-regexp", &grep], tip, without)
    }

    fn tag_marked(&self, oid: &str) -> Result<Option<String>, GitSinkError> {
        let tag = self.program.run(["cat-file", "tag", oid])?;
        let message = tag.out.split_once("\n\n").map_or("", |(_, message)| message);
        if tag.ok() && self.effect.is_in(message) {
            return Ok(Some(oid.to_owned()));
        }
        self.marked(oid, None)
    }

    fn first(&self, how: &[&str], tip: &str, without: Option<&str>) -> Result<Option<String>, GitSinkError> {
        // what the remote has counts, not what is replaced here
        let mut args = vec!["--no-replace-objects", "rev-list", "--max-count=1"];
        args.extend(how);
        args.push(tip);
        let without = without.map(|oid| format!("^{oid}"));
        args.extend(without.as_deref());
        let answer = self.program.run(args.iter().chain(&["--"]))?;
        if !answer.ok() {
            return Err(GitSinkError::git("the commits cannot be listed", answer.why()));
        }
        Ok(answer.out.lines().next().map(str::to_owned))
    }

    fn is_shallow(&self) -> Result<bool, GitSinkError> {
        Ok(self.program.run(["rev-parse", "--is-shallow-repository"])?.out.trim() == "true")
    }

    /// Is all of the push on the remote, in these very commits?
    pub(super) fn landed(&self, targets: &[Target], seen: &[Seen]) -> Option<Vec<Landed>> {
        let whole = seen.iter().all(|seen| matches!(seen, Seen::UpToDate { marked: Some(_) }));
        let landed = |target: &Target| Landed { name: target.dst.clone(), commit: target.oid.clone() };
        whole.then(|| targets.iter().map(landed).collect())
    }
}
