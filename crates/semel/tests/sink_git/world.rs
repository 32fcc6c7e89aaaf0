//! A remote, its clones, and nothing of this machine's own settings.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use semel::core::name::Name;
use semel::core::token::{Grant, Nonce, Token};
use semel::sink::git::{EffectId, GitProgram, GitSink, GitSinkError, PushOptions, Pushed, Refspec, Remote};

use crate::http::Server;

/// How git gets to the remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    File,
    Ssh,
    Http,
}

/// How the remote keeps its refs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Files,
    Reftable,
}

/// How often a scene is played.
pub(crate) fn rounds(default: u32) -> u32 {
    std::env::var("SEMEL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Wait for a condition; fails the test if it never comes.
#[track_caller]
pub(crate) fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(60), "still not: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) struct World {
    dir: tempfile::TempDir,
    /// The remote's own repository.
    pub(crate) bare: PathBuf,
    /// Its address.
    pub(crate) url: String,
    _server: Option<Server>,
}

impl World {
    /// A remote with one commit on `main`; `None` if this git cannot keep refs in that way.
    pub(crate) fn with(transport: Transport, backend: Backend) -> Option<World> {
        let dir = tempfile::Builder::new().prefix("semel-git-").tempdir().unwrap();
        let bare = dir.path().join("remote.git");
        let (mut world, path) =
            (World { dir, bare: bare.clone(), url: String::new(), _server: None }, bare.clone());
        let mut init: Vec<&OsStr> =
            ["init", "--quiet", "--bare", "--initial-branch=main"].map(OsStr::new).into();
        if backend == Backend::Reftable {
            init.push(OsStr::new("--ref-format=reftable"));
        }
        init.push(bare.as_os_str());
        if !world.command("git", Path::new("/"), init).output().unwrap().status.success() {
            assert_eq!(backend, Backend::Reftable, "git init failed");
            return None;
        }
        world.url = match transport {
            Transport::File => path.display().to_string(),
            Transport::Ssh => {
                world.executable("ssh", "shift\nexec sh -c \"$1\"");
                format!("ssh://localhost{}", path.display())
            }
            Transport::Http => {
                let server = Server::start(world.dir.path().to_owned());
                let url = format!("http://127.0.0.1:{}/remote.git", server.port);
                world._server = Some(server);
                world.git(&bare, ["config", "http.receivepack", "true"]);
                url
            }
        };
        world.git(&bare, ["config", "core.fsync", "none"]);
        let first = world.commit_on(&bare, None, "the first commit");
        world.git(&bare, ["update-ref", "refs/heads/main", &first]);
        Some(world)
    }

    /// A remote reached by its path, with its refs in files.
    pub(crate) fn new() -> World {
        World::with(Transport::File, Backend::Files).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn settings(&self) -> Vec<(OsString, OsString)> {
        let home = self.dir.path().to_owned();
        let fixed = [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_AUTHOR_NAME", "A"),
            ("GIT_AUTHOR_EMAIL", "a@example.org"),
            ("GIT_COMMITTER_NAME", "A"),
            ("GIT_COMMITTER_EMAIL", "a@example.org"),
            ("GIT_SSH_VARIANT", "simple"),
            // a power cut is not what is tested, and waiting for the disk is most of a round
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "core.fsync"),
            ("GIT_CONFIG_VALUE_0", "none"),
        ];
        let mut env: Vec<(OsString, OsString)> =
            fixed.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        env.push(("GIT_SSH_COMMAND".into(), home.join("ssh").into()));
        env.push(("HOME".into(), home.into()));
        env
    }

    fn command<S: AsRef<OsStr>>(
        &self,
        program: &str,
        dir: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(program);
        command.current_dir(dir).args(args).envs(self.settings()).stdin(Stdio::null());
        command
    }

    /// Plain git.
    pub(crate) fn try_git<S: AsRef<OsStr>>(&self, dir: &Path, args: impl IntoIterator<Item = S>) -> Output {
        self.command("git", dir, args).output().unwrap()
    }

    /// Plain git that works, and its output.
    #[track_caller]
    pub(crate) fn git<S: AsRef<OsStr>>(&self, dir: &Path, args: impl IntoIterator<Item = S>) -> String {
        let output = self.try_git(dir, args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub(crate) fn executable(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path(name);
        write_executable(&path, script);
        path
    }

    /// A clone with the remote as `origin`.
    pub(crate) fn clone(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        self.git(Path::new("/"), [OsStr::new("clone"), "-q".as_ref(), self.url.as_ref(), path.as_os_str()]);
        path
    }

    /// A commit that differs from every other, with this message.
    pub(crate) fn commit_on(&self, repo: &Path, parent: Option<&str>, message: &str) -> String {
        // the last paragraph holds the trailers
        let (subject, trailers) = message.split_once("\n\n").unwrap_or((message, ""));
        let message = format!("{subject}\n\n{:016x}\n\n{trailers}", RandomState::new().hash_one(0));
        // the tree of no files, which every git knows
        let mut args = vec!["commit-tree", "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "-m", &message];
        args.extend(parent.iter().flat_map(|parent| ["-p", parent]));
        self.git(repo, args)
    }

    /// A new commit on `main` of a clone, on top of what the remote has, marked with the effect.
    pub(crate) fn work(&self, repo: &Path, effect: &str) -> String {
        self.git(
            repo,
            [
                "fetch",
                "-q",
                "--no-tags",
                "--no-auto-maintenance",
                &self.url,
                "+main:refs/remotes/origin/main",
            ],
        );
        let commit = self.commit_on(repo, Some("refs/remotes/origin/main"), &marked(effect));
        self.git(repo, ["update-ref", "refs/heads/main", &commit]);
        commit
    }

    pub(crate) fn program(&self, repo: &Path) -> GitProgram {
        GitProgram { dir: repo.to_owned(), env: self.settings(), ..GitProgram::default() }
    }

    /// The sink of a holder with this token.
    pub(crate) fn sink(&self, repo: &Path, token: u64, effect: &str) -> GitSink {
        self.sink_of(self.program(repo), token, effect)
    }

    pub(crate) fn sink_of(&self, program: GitProgram, token: u64, effect: &str) -> GitSink {
        let remote = Remote::resolve(&program, &self.url).unwrap();
        let resource = Name::new("site").unwrap();
        GitSink { program, remote, resource, grant: grant(token), effect: EffectId::new(effect).unwrap() }
    }

    /// How many commits below this ref of the remote carry the effect.
    pub(crate) fn count(&self, name: &str, effect: &str) -> usize {
        let grep = format!("--grep=^Effect-Id: {effect}$");
        self.git(&self.bare, ["rev-list", "--count", &grep, name, "--"]).parse().unwrap()
    }

    /// What a ref of the remote points at.
    pub(crate) fn tip(&self, name: &str) -> String {
        let found = self.try_git(&self.bare, ["rev-parse", "--verify", "--quiet", name]);
        String::from_utf8(found.stdout).unwrap().trim_end().to_owned()
    }
}

pub(crate) fn write_executable(path: &Path, script: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    // under another name first: a program that is open for writing cannot be started
    let draft = path.with_extension("draft");
    std::fs::write(&draft, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&draft, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(draft, path).unwrap();
}

pub(crate) fn marked(effect: &str) -> String {
    format!("work\n\nEffect-Id: {effect}")
}

pub(crate) fn grant(token: u64) -> Grant {
    let mut nonce = [7; 16];
    nonce[..8].copy_from_slice(&token.to_be_bytes());
    Grant { token: Token::new(token).unwrap(), nonce: Nonce::from_bytes(nonce) }
}

/// Push these refs.
pub(crate) fn push(sink: &GitSink, refs: &[&str]) -> Result<Pushed, GitSinkError> {
    push_with(sink, refs, &PushOptions::default())
}

pub(crate) fn push_with(
    sink: &GitSink,
    refs: &[&str],
    options: &PushOptions,
) -> Result<Pushed, GitSinkError> {
    let refs: Vec<Refspec> = refs.iter().map(|text| Refspec::parse(text).unwrap()).collect();
    sink.push(&refs, options, &mut |_| ())
}

pub(crate) fn is_done(pushed: &Result<Pushed, GitSinkError>) -> bool {
    matches!(pushed, Ok(Pushed::Done(_)))
}

pub(crate) fn is_there(pushed: &Result<Pushed, GitSinkError>) -> bool {
    matches!(pushed, Ok(Pushed::AlreadyThere(_)))
}

pub(crate) fn is_stale(pushed: &Result<Pushed, GitSinkError>) -> bool {
    matches!(pushed, Err(GitSinkError::Stale { .. }))
}

/// A place in a push at which git stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Before the fence is read.
    Before,
    /// After the look, before the push.
    Between,
    /// In the push, after it has read the remote.
    Inside,
    /// After the push, before its answer is known.
    After,
}

/// A git that stalls once, at one place, until it is let go.
pub(crate) struct Stall {
    dir: PathBuf,
    go: File,
}

const STALLING: &str = r#"
stall() { : > "$STALL_DIR/reached"; read go < "$STALL_DIR/go"; }
[ -e "$STALL_DIR/reached" ] && exec git "$@"
case "$STALL_AT $*" in
    "Before "*ls-remote*) stall ;;
    "Between "*" push "*--no-verify*) ;;
    "After "*" push "*--no-verify*) ;;
    "Between "*" push "*) stall ;;
    "After "*" push "*) git "$@"; code=$?; stall; exit $code ;;
esac
exec git "$@""#;

const STALLING_HOOK: &str = r#"
[ "$STALL_AT" = Inside ] || exit 0
: > "$STALL_DIR/reached"; read go < "$STALL_DIR/go""#;

impl Stall {
    /// The program for a clone; `name` is new.
    pub(crate) fn new(world: &World, repo: &Path, name: &str, place: Place) -> (Stall, GitProgram) {
        let dir = world.path(name);
        std::fs::create_dir(&dir).unwrap();
        let fifo = std::ffi::CString::new(dir.join("go").as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends with a nul.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        // opened for both, it neither blocks nor forgets
        let go = File::options().read(true).write(true).open(dir.join("go")).unwrap();
        let mut program = world.program(repo);
        program.env.push(("STALL_AT".into(), format!("{place:?}").into()));
        program.env.push(("STALL_DIR".into(), dir.clone().into()));
        if place == Place::Inside {
            write_executable(&repo.join(".git/hooks/pre-push"), STALLING_HOOK);
        } else {
            let git = world.path("stalling-git");
            if !git.exists() {
                write_executable(&git, STALLING);
            }
            program.git = git;
        }
        (Stall { dir, go }, program)
    }

    #[track_caller]
    pub(crate) fn wait(&self) {
        until("it has stalled", || self.dir.join("reached").exists());
    }

    pub(crate) fn go(mut self) {
        self.go.write_all(b"go\n").unwrap();
    }
}
