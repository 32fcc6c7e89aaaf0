//! The remote, refs on it that are nobody else's, and repositories that push to it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use semel::sink::git::{
    EffectId, GitAnswer, GitProgram, GitSink, GitSinkError, PushOptions, Pushed, Refspec, Remote, fence_ref,
    mask,
};
use semel_core::name::Name;
use semel_core::token::{Grant, Nonce, Token};

use super::attack::{PUSHERS, Place, Way};
use super::tally::Landed;
use crate::commands::push;
use crate::interrupt;
use crate::plan::Surroundings;
use crate::scratch::Scratch;
use crate::trouble::Trouble;

/// Who makes the commits: fixed, so that a missing `user.name` is no matter.
const IDENTITY: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "semel"),
    ("GIT_AUTHOR_EMAIL", "semel@localhost"),
    ("GIT_COMMITTER_NAME", "semel"),
    ("GIT_COMMITTER_EMAIL", "semel@localhost"),
];

/// Why a round could not be played.
#[derive(Debug)]
pub(super) enum Fault {
    /// The remote did not do its part.
    Away(String),
    /// Something is wrong here, or with how the remote is set up.
    Here(String),
}

impl Fault {
    pub(super) fn here(why: &str) -> Fault {
        Fault::Here(why.to_owned())
    }

    pub(super) fn away(what: &str, why: &str) -> Fault {
        Fault::Away(format!("{what}: {why}"))
    }

    pub(super) fn trouble(self, what: &str) -> Trouble {
        match self {
            Fault::Away(why) => Trouble::store(format!("{what}: {why}")),
            Fault::Here(why) => Trouble::config(format!("{what}: {why}")),
        }
    }
}

impl From<GitSinkError> for Fault {
    fn from(why: GitSinkError) -> Fault {
        match why {
            GitSinkError::Git { .. }
            | GitSinkError::Unknown(_)
            | GitSinkError::Raced { .. }
            | GitSinkError::Locked { .. } => Fault::Away(why.to_string()),
            why => Fault::Here(why.to_string()),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(why: io::Error) -> Fault {
        Fault::Here(why.to_string())
    }
}

/// A branch of this run's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branch {
    /// Pushed to through the fence.
    Fenced,
    /// Pushed to by the loop of a script.
    Plain,
    /// Where a newer holder does other work, in both ways.
    Aside,
}

impl Branch {
    const ALL: [Branch; 3] = [Branch::Fenced, Branch::Plain, Branch::Aside];

    fn word(self) -> &'static str {
        match self {
            Branch::Fenced => "fenced",
            Branch::Plain => "plain",
            Branch::Aside => "aside",
        }
    }
}

/// A repository that pushes, as another machine would have it.
#[derive(Debug)]
pub(super) struct Pusher {
    pub(super) program: GitProgram,
    remote: Remote,
}

#[derive(Debug)]
pub(super) struct Arena {
    scratch: Scratch,
    address: String,
    /// The remote, as it may be shown.
    pub(super) shown: String,
    /// Full name of the branches' folder, with a slash at its end.
    folder: String,
    resource: Name,
    pushers: Vec<Pusher>,
    tree: String,
    root: String,
}

impl Arena {
    /// Repositories here; the remote is only read.
    pub(super) fn new(url: &str, prefix: &str, around: &Surroundings) -> Result<Arena, Trouble> {
        let here = |why: io::Error| Trouble::config(format!("there is no place for the repositories: {why}"));
        let shown = mask(url);
        let mut program = push::program(around);
        program.prompt = false;
        let wrong = |why: GitSinkError| Trouble::config(why.to_string());
        let address = Remote::resolve(&program, url).map_err(wrong)?.address(&program);
        let random = getrandom::u64().map_err(|why| here(io::Error::other(why.to_string())))?;
        let folder = format!("{}/{random:016x}/", prefix.trim_end_matches('/'));
        let branch = format!("{folder}x");
        let named = program.run(["check-ref-format", &branch]).map_err(wrong)?.ok();
        if !named || !prefix.starts_with("refs/heads/") {
            return Err(Trouble::config(format!(
                "--ref-prefix {prefix}: only branches are pushed; write refs/heads/NAME"
            )));
        }
        // a passphrase is nothing to ask for in the middle of it
        if around.text("GIT_SSH_COMMAND").or(around.text("GIT_SSH")).is_none()
            && !program.run(["config", "core.sshCommand"]).map_err(wrong)?.ok()
        {
            program.env.push(("GIT_SSH_COMMAND".into(), "ssh -oBatchMode=yes".into()));
        }
        let format = reach(&program, &address, &shown)?;
        let scratch = Scratch::new("torture").map_err(here)?;
        let resource = Name::new(&format!("semel-torture-{random:016x}"));
        let resource = resource.map_err(|why| Trouble::config(why.to_string()))?;
        let make = |n| pusher(&program, &address, &scratch.path().join(format!("{n}.git")), format);
        let pushers = (0..PUSHERS).map(make).collect::<Result<Vec<_>, Fault>>();
        let pushers = pushers.map_err(|why| why.trouble("git init"))?;
        let (tree, root) = (String::new(), String::new());
        Arena { scratch, address, shown, folder, resource, pushers, tree, root }.rooted()
    }

    /// With the commit that all branches begin at.
    fn rooted(mut self) -> Result<Arena, Trouble> {
        let root = || -> Result<(String, String), Fault> {
            let first = self.pusher(0)?;
            let tree = made(first.program.run(["mktree"])?)?;
            let message = b"semel torture: may be removed\n";
            let root = made(first.program.feed(["commit-tree", &tree], message, &IDENTITY)?)?;
            Ok((tree, root))
        };
        (self.tree, self.root) = root().map_err(|why| why.trouble("git commit-tree"))?;
        Ok(self)
    }

    /// Make the branches: the first write.
    pub(super) fn open(&self) -> Result<(), Trouble> {
        let first = self.pusher(0).map_err(|why| why.trouble("git"))?;
        let mut args: Vec<String> =
            ["push", "--porcelain", "--no-verify", "--no-follow-tags"].map(str::to_owned).into();
        args.extend(Branch::ALL.iter().map(|branch| format!("--force-with-lease={}:", self.name(*branch))));
        args.extend(["--".to_owned(), self.address.clone()]);
        args.extend(Branch::ALL.iter().map(|branch| format!("{}:{}", self.root, self.name(*branch))));
        let pushed = first.program.run(args).map_err(|why| Fault::from(why).trouble(&self.shown))?;
        if pushed.ok() {
            return Ok(());
        }
        let refused = pushed.out.lines().filter_map(|line| line.strip_prefix("!\t")?.split_once('\t'));
        let why = refused.map(|(_, summary)| summary.to_owned()).next().unwrap_or_else(|| pushed.why());
        Err(Trouble::config(format!(
            "{} cannot be written: {why}; it needs to take branches below {}",
            self.shown, self.folder
        )))
    }

    pub(super) fn folder(&self) -> &str {
        &self.folder
    }

    fn name(&self, branch: Branch) -> String {
        format!("{}{}", self.folder, branch.word())
    }

    pub(super) fn pusher(&self, n: usize) -> Result<&Pusher, Fault> {
        self.pushers.get(n).ok_or_else(|| Fault::here("no such pusher"))
    }

    /// The sink behind `semel push`, for a holder of this token.
    pub(super) fn sink(
        &self,
        program: &GitProgram,
        pusher: &Pusher,
        token: u64,
        effect: &str,
    ) -> Result<GitSink, Fault> {
        let mut nonce = [7; 16];
        nonce[..8].copy_from_slice(&token.to_be_bytes());
        let token = Token::new(token).map_err(|why| Fault::Here(why.to_string()))?;
        Ok(GitSink {
            program: program.clone(),
            remote: pusher.remote.clone(),
            resource: self.resource.clone(),
            grant: Grant { token, nonce: Nonce::from_bytes(nonce) },
            effect: EffectId::new(effect).map_err(|why| Fault::Here(why.to_string()))?,
        })
    }

    pub(super) fn push(&self, sink: &GitSink, commit: &str, branch: Branch) -> Result<Pushed, GitSinkError> {
        let spec = Refspec::parse(&format!("{commit}:{}", self.name(branch)));
        let spec = spec.map_err(|why| GitSinkError::Usage(why.to_string()))?;
        sink.push(&[spec], &PushOptions::default(), &mut |_| ())
    }

    /// Every commit of the rounds that the remote has.
    pub(super) fn landed(&self) -> Result<Vec<Landed>, Fault> {
        let reader = self.pusher(0)?;
        let mut all = Vec::new();
        for branch in Branch::ALL {
            let tip = reader.fetch(self, branch)?;
            let trailers = "--format=%(trailers:key=Effect-Id,valueonly,separator=%x2C) %(trailers:key=Stale,valueonly,separator=%x2C)";
            let log = reader.program.run(["--no-replace-objects", "log", trailers, &tip, "--"])?;
            if !log.ok() {
                return Err(Fault::away("git log", &log.why()));
            }
            all.extend(log.out.lines().filter_map(landed));
        }
        Ok(all)
    }

    /// Remove what was made there. Answers what could not be removed.
    pub(super) fn clean_up(&self) -> Vec<String> {
        let mut names: Vec<String> = Branch::ALL.iter().map(|branch| self.name(*branch)).collect();
        names.push(fence_ref(&self.resource));
        let Ok(first) = self.pusher(0) else { return names };
        let there = || {
            let asked = ["ls-remote", "--quiet", "--", &self.address].into_iter().map(str::to_owned);
            let answer = first.program.run(asked.chain(names.iter().cloned())).ok().filter(GitAnswer::ok)?;
            let found = answer.out.lines().filter_map(|line| line.split_once('\t'));
            let found = found.map(|(_, name)| name.to_owned()).filter(|name| names.contains(name));
            Some(found.collect::<Vec<_>>())
        };
        let gone = |names: &[String]| {
            let args = ["push", "--quiet", "--no-verify", "--", &self.address].into_iter().map(str::to_owned);
            let _ = first.program.run(args.chain(names.iter().map(|name| format!(":{name}"))));
        };
        match there() {
            Some(found) if found.is_empty() => return found,
            Some(found) => gone(&found),
            // it cannot be read: perhaps it can be written
            None => gone(&names),
        }
        there().unwrap_or(names)
    }
}

/// `EFFECT STALE`, as git prints the trailers.
fn landed(line: &str) -> Option<Landed> {
    let (effect, stale) = line.split_once(' ')?;
    let way = match effect.split_once('.')?.0 {
        "fenced" => Way::Fenced,
        "plain" => Way::Plain,
        _ => return None,
    };
    Some(Landed { way, effect: effect.to_owned(), stale: stale == "yes" })
}

/// Is the remote there? Answers its object format.
fn reach(program: &GitProgram, address: &str, shown: &str) -> Result<&'static str, Trouble> {
    let answer = program.run(["ls-remote", "--quiet", "--", address]);
    let answer = answer.map_err(|why| Trouble::config(why.to_string()))?;
    if answer.ok() {
        let oid = answer.out.split('\t').next().unwrap_or_default();
        return Ok(if oid.len() == 64 { "sha256" } else { "sha1" });
    }
    let why = answer.why();
    // what no waiting would mend
    let scheme = ["not allowed", "Unable to find remote helper", "remote-helper", "is not a git command"];
    if scheme.iter().any(|words| answer.err.contains(words)) {
        return Err(Trouble::config(format!(
            "{shown} is no address that is pushed to: {why}; use a path, ssh or https"
        )));
    }
    Err(Trouble::store(format!(
        "{shown} cannot be reached: {why}; nothing was pushed; check the address and your access"
    )))
}

fn made(answer: GitAnswer) -> Result<String, Fault> {
    let oid = answer.out.trim();
    if answer.ok() { Ok(oid.to_owned()) } else { Err(Fault::Here(answer.why())) }
}

/// A repository of its own, whatever the user's environment names.
fn pusher(program: &GitProgram, address: &str, dir: &Path, format: &str) -> Result<Pusher, Fault> {
    fs::create_dir(dir)?;
    let mut program = GitProgram { dir: dir.to_owned(), ..program.clone() };
    program.env.push(("GIT_DIR".into(), dir.into()));
    program.env.push(("GIT_OBJECT_DIRECTORY".into(), dir.join("objects").into()));
    let format = format!("--object-format={format}");
    made(program.run(["init", "--quiet", "--bare", "--template=", &format, "."])?)?;
    let hooks = dir.join("own-hooks");
    fs::create_dir(&hooks)?;
    // the user's hooks are for the user's pushes
    made(program.run(["config", "core.hooksPath", &hooks.to_string_lossy()])?)?;
    let remote = Remote::resolve(&program, address)?;
    Ok(Pusher { program, remote })
}

impl Pusher {
    /// What the remote's branch points at, fetched.
    pub(super) fn fetch(&self, arena: &Arena, branch: Branch) -> Result<String, Fault> {
        let to = format!("+{}:refs/torture/{}", arena.name(branch), branch.word());
        let quietly = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance"];
        let fetched = self.program.run(quietly.into_iter().chain(["--", &arena.address, &to]))?;
        if !fetched.ok() {
            return Err(Fault::away("git fetch", &fetched.why()));
        }
        made(self.program.run(["rev-parse", "--verify", &format!("refs/torture/{}", branch.word())])?)
    }

    /// Does a commit below `tip` carry the effect's id?
    pub(super) fn has(&self, tip: &str, effect: &str) -> Result<bool, Fault> {
        let grep = format!("--grep=^Effect-Id: {effect}$");
        Ok(!made(self.program.run(["rev-list", "--max-count=1", &grep, tip, "--"])?)?.is_empty())
    }

    /// A commit for this effect, unlike any other.
    pub(super) fn commit(
        &self,
        arena: &Arena,
        tip: &str,
        effect: &str,
        stale: bool,
    ) -> Result<String, Fault> {
        let mark = getrandom::u64().map_err(|why| Fault::Here(why.to_string()))?;
        let stale = if stale { "Stale: yes\n" } else { "" };
        let message = format!("semel torture\n\nEffect-Id: {effect}\n{stale}Mark: {mark:016x}\n");
        let args = ["commit-tree", &arena.tree, "-p", tip];
        made(self.program.feed(args, message.as_bytes(), &IDENTITY)?)
    }

    /// The work: a commit on top of what the remote has.
    pub(super) fn work(
        &self,
        arena: &Arena,
        branch: Branch,
        effect: &str,
        stale: bool,
    ) -> Result<String, Fault> {
        let tip = self.fetch(arena, branch)?;
        self.commit(arena, &tip, effect, stale)
    }

    /// `git push`, as anybody does it, by this git of the pusher's. Its hooks are our own.
    pub(super) fn plain_push(
        &self,
        arena: &Arena,
        program: &GitProgram,
        commit: &str,
        branch: Branch,
    ) -> Result<GitAnswer, Fault> {
        let to = format!("{commit}:{}", arena.name(branch));
        Ok(program.run(["push", "--quiet", "--no-follow-tags", "--", &arena.address, &to])?)
    }
}

/// A git that stalls once, at one place, until it is let go.
pub(super) struct Stall {
    dir: PathBuf,
    place: Place,
    go: File,
}

/// Constant: all that it uses comes in its environment.
const STALLING: &str = r#"#!/bin/sh
stall() { : > "$SEMEL_STALL/reached"; read go < "$SEMEL_STALL/go" || exit 1; }
[ -e "$SEMEL_STALL/reached" ] && exec "$SEMEL_STALL_GIT" "$@"
case "$SEMEL_STALL_AT $*" in
    "Before "*ls-remote*) stall ;;
    "Between "*" push "*--no-verify*) ;;
    "Between "*" push "*) stall ;;
esac
exec "$SEMEL_STALL_GIT" "$@"
"#;

const STALLING_HOOK: &str = r#"#!/bin/sh
[ "$SEMEL_STALL_AT" = Inside ] || exit 0
: > "$SEMEL_STALL/reached"; read go < "$SEMEL_STALL/go"
"#;

/// How long a push may take to its stall.
const PATIENCE: Duration = Duration::from_secs(300);

impl Stall {
    /// `name`: no other has it.
    pub(super) fn new(arena: &Arena, name: &str, place: Place) -> Result<Stall, Fault> {
        let dir = arena.scratch.path().join(format!("stall-{name}"));
        fs::create_dir(&dir)?;
        let fifo = CString::new(dir.join("go").as_os_str().as_bytes()).map_err(io::Error::other)?;
        // SAFETY: the name ends with a nul.
        if unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        // opened for both, it neither blocks nor forgets
        let go = File::options().read(true).write(true).open(dir.join("go"))?;
        executable(&dir.join("git"), STALLING)?;
        let hooks = arena.pusher(0)?.program.dir.join("own-hooks");
        executable(&hooks.join("pre-push"), STALLING_HOOK)?;
        Ok(Stall { dir, place, go })
    }

    /// The first pusher's git, which stalls.
    pub(super) fn stalled(&self, first: &Pusher) -> GitProgram {
        let mut program = first.program.clone();
        program.env.push(("SEMEL_STALL".into(), self.dir.clone().into()));
        program.env.push(("SEMEL_STALL_AT".into(), format!("{:?}", self.place).into()));
        program.env.push(("SEMEL_STALL_GIT".into(), program.git.clone().into()));
        if self.place != Place::Inside {
            program.git = self.dir.join("git");
        }
        program
    }

    /// Wait until it stalls; `ended`: it no longer can.
    pub(super) fn reached(&self, ended: impl Fn() -> bool) -> Result<(), Fault> {
        let begun = semel::clock::boottime();
        while !self.dir.join("reached").exists() {
            if ended() {
                return Err(Fault::here("the stale holder's push ended before it stalled"));
            }
            if interrupt::caught().is_some() || semel::clock::boottime().saturating_sub(begun) > PATIENCE {
                self.let_go_for_good();
                return Err(Fault::away("the stale holder", "its push did not come to its stall"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Let it go on.
    pub(super) fn go(self) {
        // it is a pipe with room
        let _ = (&self.go).write_all(b"go\n");
    }

    /// Let it go on whenever it comes to its stall: it would wait for ever for a word that nobody can send any more.
    fn let_go_for_good(&self) {
        let _ = (&self.go).write_all(b"go\n");
        // what is in a pipe is lost when nobody has it open
        std::mem::forget(self.go.try_clone());
    }
}

fn executable(path: &Path, script: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if path.exists() {
        return Ok(());
    }
    // under another name first: a program that is open for writing cannot be started
    let draft = path.with_extension("draft");
    fs::write(&draft, script)?;
    fs::set_permissions(&draft, PermissionsExt::from_mode(0o700))?;
    fs::rename(draft, path)
}
