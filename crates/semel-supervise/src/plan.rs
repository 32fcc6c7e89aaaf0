//! Everything the keeper and the command need between fork and exec, made while allocating is still allowed.
//!
//! What the keeper of a [`Ready`](crate::Ready) reads lies in the plan itself or in memory that it shares: the heap of its
//! parent is not there.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::cgroup::{InPlace, Leaf};
use crate::spec::{Contain, Output, SpawnError, Spec, Stdin};
use crate::sys;
use crate::words::{OwnWords, Words};

pub(crate) struct Plan {
    /// What the keeper is called.
    pub(crate) name: InPlace,
    words: OwnWords,
    /// Where the words are found that the keeper is told to start later.
    pub(crate) shared: Option<*const Words>,
    /// It starts one command after the other.
    pub(crate) stays: bool,
    /// What becomes the command's 0, 1, 2.
    pub(crate) stdio: [RawFd; 3],
    /// Keeps those of `stdio` open that are not the caller's own 0, 1, 2.
    _held: Vec<OwnedFd>,
    /// The caller.
    pub(crate) owner: i32,
    pub(crate) owner_group: i32,
    /// The caller sits at a terminal that the command sees too.
    pub(crate) at_terminal: bool,
    /// The command joins the caller's process group; else it gets its own.
    pub(crate) joins_group: bool,
    /// Signals that stay ignored in the command (nohup).
    pub(crate) stay_ignored: [Option<i32>; 3],
    /// Only the process group holds the tree together.
    pub(crate) group_only: bool,
    /// CLOCK_BOOTTIME, nanoseconds; 0: none.
    pub(crate) deadline: u64,
    pub(crate) leaf: Option<Leaf>,
    pub(crate) must_enter_leaf: bool,
}

impl Plan {
    pub(crate) fn new(spec: Spec) -> Result<Plan, SpawnError> {
        let words = OwnWords::new(&spec)?;
        let mut held = Vec::new();
        let stdin = match spec.stdin {
            Stdin::Auto => inherited(0, &mut held)?,
            Stdin::Inherit if is_open(0) => 0,
            Stdin::Inherit => {
                return Err(SpawnError::system("stdin", io::Error::from_raw_os_error(libc::EBADF)));
            }
            Stdin::Null => null(&mut held)?,
            Stdin::Fd(fd) => hold(sys::above_stdio(fd), &mut held)?,
        };
        let stdout = output(1, spec.stdout, &mut held)?;
        let stderr = output(2, spec.stderr, &mut held)?;
        let stdio = [stdin, stdout, stderr];

        let group_only = !cfg!(target_os = "linux") || spec.contain == Contain::Group;
        // SAFETY: asks the kernel about a descriptor; fails unless it is our controlling terminal.
        let at_terminal = stdio.iter().any(|fd| unsafe { libc::tcgetpgrp(*fd) } > 0);
        let mut plan = Plan {
            name: InPlace::new(&crate::process::keeper_name(&spec.tag))
                .ok_or_else(|| SpawnError::system("name", io::ErrorKind::InvalidInput.into()))?,
            words,
            shared: None,
            stays: false,
            stdio,
            _held: held,
            owner: std::process::id().cast_signed(),
            // SAFETY: cannot fail, no memory is involved.
            owner_group: unsafe { libc::getpgrp() },
            at_terminal,
            joins_group: at_terminal && !group_only,
            stay_ignored: [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT]
                .map(|signo| sys::is_ignored(signo).then_some(signo)),
            group_only,
            deadline: spec.deadline.map_or(0, crate::clock::nanos),
            leaf: None,
            must_enter_leaf: spec.contain == Contain::Cgroup,
        };
        // Last: whatever else fails leaves no leaf behind.
        plan.leaf = match spec.contain {
            Contain::Auto => Leaf::make().ok(),
            Contain::Cgroup => Some(Leaf::make().map_err(|error| SpawnError::system("cgroup", error))?),
            Contain::Subreaper | Contain::Group => None,
        };
        Ok(plan)
    }

    /// Of the one command.
    pub(crate) fn words(&self) -> &Words {
        self.words.get()
    }
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

fn inherited(fd: RawFd, held: &mut Vec<OwnedFd>) -> Result<RawFd, SpawnError> {
    if is_open(fd) { Ok(fd) } else { null(held) }
}

fn null(held: &mut Vec<OwnedFd>) -> Result<RawFd, SpawnError> {
    // SAFETY: a valid C string; the result is new and nobody else's.
    let fd = unsafe {
        sys::check(libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC))
            .map(|fd| OwnedFd::from_raw_fd(fd))
    };
    hold(fd.and_then(sys::above_stdio), held)
}

fn output(own: RawFd, output: Output, held: &mut Vec<OwnedFd>) -> Result<RawFd, SpawnError> {
    match output {
        Output::Inherit => inherited(own, held),
        Output::Null => null(held),
        Output::Fd(fd) => hold(sys::above_stdio(fd), held),
    }
}

fn hold(fd: io::Result<OwnedFd>, held: &mut Vec<OwnedFd>) -> Result<RawFd, SpawnError> {
    let fd = fd.map_err(|error| SpawnError::system("stdio", error))?;
    let raw = fd.as_raw_fd();
    held.push(fd);
    Ok(raw)
}
