//! What is to be run, and the ways it can fail to start.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

/// A command, fully decided: nothing is looked up in the environment of the caller.
#[derive(Debug)]
pub struct Spec {
    /// The file to execute, as [`resolve`](crate::resolve) gives it.
    pub program: PathBuf,
    /// All arguments, the zeroth (what the command is called) included.
    pub argv: Vec<OsString>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where to run; `None`: where the caller is.
    pub cwd: Option<PathBuf>,
    /// The command's descriptor 0.
    pub stdin: Stdin,
    /// The command's descriptor 1.
    pub stdout: Output,
    /// The command's descriptor 2.
    pub stderr: Output,
    /// How the tree is to be held together.
    pub contain: Contain,
    /// The first deadline, as for [`Tree::set_deadline`](crate::Tree::set_deadline): set here it holds before
    /// the command runs, so that there is no moment in which the command runs and nothing would end it; and one that has passed starts
    /// nothing ([`SpawnError::TooLate`]).
    pub deadline: Option<Duration>,
    /// By what [`run_is_gone`](crate::process::run_is_gone) knows the keeper: the first nine letters and digits.
    pub tag: String,
}

impl Spec {
    /// `program` with these arguments (the zeroth included), an empty environment and inherited descriptors.
    pub fn new(program: impl Into<PathBuf>, argv: Vec<OsString>) -> Spec {
        Spec {
            program: program.into(),
            argv,
            env: Vec::new(),
            cwd: None,
            stdin: Stdin::Auto,
            stdout: Output::Inherit,
            stderr: Output::Inherit,
            contain: Contain::Auto,
            deadline: None,
            tag: String::new(),
        }
    }
}

/// Where the command reads from.
#[derive(Debug)]
pub enum Stdin {
    /// What the caller has (terminal, pipe, file), or `/dev/null` if its descriptor 0 is closed.
    Auto,
    /// What the caller has; an error if that is closed.
    Inherit,
    /// `/dev/null`.
    Null,
    /// This descriptor, which is closed here once the command has it.
    Fd(OwnedFd),
}

/// Where the command writes to.
#[derive(Debug)]
pub enum Output {
    /// What the caller has, or `/dev/null` if that is closed.
    Inherit,
    /// `/dev/null`.
    Null,
    /// This descriptor, which is closed here once the command has it.
    Fd(OwnedFd),
}

/// Which containment is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contain {
    /// The strongest that can be had.
    Auto,
    /// A cgroup leaf, or an error.
    Cgroup,
    /// The keeper as subreaper, without a cgroup.
    Subreaper,
    /// The process group only.
    Group,
}

/// Which containment the tree has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Containment {
    /// A cgroup leaf of its own: killed as one, atomically. The keeper is a subreaper as well.
    Cgroup,
    /// The keeper adopts every orphan and sweeps its descendants until none is left.
    Subreaper,
    /// The process group: a descendant that leaves it (setsid) is not ended.
    Group,
}

impl Containment {
    /// A word for messages: `cgroup`, `subreaper` or `group`.
    pub fn as_str(self) -> &'static str {
        match self {
            Containment::Cgroup => "cgroup",
            Containment::Subreaper => "subreaper",
            Containment::Group => "group",
        }
    }
}

/// Why the command did not start. Nothing of it runs when this is returned.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program. A shell exits 127.
    #[error("{}: command not found", program.display())]
    NotFound {
        /// As it was given.
        program: PathBuf,
    },
    /// The program is there and cannot be executed. A shell exits 126.
    #[error("{}: cannot execute: {source}", program.display())]
    CannotExecute {
        /// The file that was found.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something else on the way.
    #[error("cannot start the command: {call}: {source}")]
    System {
        /// The call that failed.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The deadline had passed before the keeper could start it.
    #[error("the command was not started: its time had run out")]
    TooLate,
    /// Its keeper was killed before it said a word: the command may have run, and was ended if so.
    #[error("its keeper was killed while the command was started: whether it ran is not known")]
    KeeperDied,
}

impl SpawnError {
    pub(crate) fn system(call: &'static str, source: io::Error) -> SpawnError {
        SpawnError::System { call, source }
    }

    /// The exit code a shell gives for this: 127, 126, or `None` for a failure of the system.
    pub fn exit_code(&self) -> Option<u8> {
        match self {
            SpawnError::NotFound { .. } => Some(127),
            SpawnError::CannotExecute { .. } => Some(126),
            SpawnError::System { .. } | SpawnError::TooLate | SpawnError::KeeperDied => None,
        }
    }
}
