//! Runs one command inside somebody else's tree, and hands on what it writes as it writes it.
//!
//! Nothing is held here: bytes go to this process's own stdout and stderr at once, then to the caller, in the order
//! in which they were read. If nobody reads our stdout any more the command is not disturbed: it is worth more
//! than its display.
//!
//! The command is in our process group, gets the signals that we get, and dies with us (its death signal). What it
//! leaves behind is not ended here, and what that writes after the command's own end is not seen.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};

use crate::signals::Catcher;
use crate::spec::SpawnError;
use crate::sys;
use crate::tree::Exit;

/// What is read at once.
const CHUNK: usize = 64 * 1024;

/// Which of its two the command wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// A command whose output is wanted.
#[derive(Debug)]
pub struct Capture {
    /// The file to execute, as [`resolve`](crate::resolve) gives it.
    pub program: PathBuf,
    /// All arguments, the zeroth included.
    pub argv: Vec<OsString>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
}

/// How a captured command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// How.
    pub exit: Exit,
    /// The signal by which this process was asked to end meanwhile.
    pub asked_to_end: Option<i32>,
}

/// Run it. Blocks until it has ended and all that it wrote has been handed on.
pub fn capture(command: Capture, keep: &mut dyn FnMut(Stream, &[u8])) -> Result<Finished, SpawnError> {
    let signals = Catcher::install().map_err(|error| SpawnError::system("sigaction", error))?;
    let mut child = spawn(command)?;
    let pidfd = pidfd(&child);
    let mut streams = [
        child.stdout.take().map(|pipe| Reading::new(Stream::Out, pipe.into())),
        child.stderr.take().map(|pipe| Reading::new(Stream::Err, pipe.into())),
    ];
    let mut asked_to_end = None;
    let mut buffer = vec![0; CHUNK];
    let status = loop {
        let out = streams[0].as_ref().map_or(-1, Reading::fd);
        let err = streams[1].as_ref().map_or(-1, Reading::fd);
        let process = pidfd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let ready = poll([out, err, signals.fd(), process], pidfd.is_none());
        if ready[2] {
            while let Some(caught) = signals.take() {
                asked_to_end = Some(caught.signo);
                // what the terminal sent has reached the whole group already
                if !caught.from_terminal {
                    sys::kill(child.id().cast_signed(), caught.signo);
                }
            }
        }
        for (stream, ready) in streams.iter_mut().zip(ready) {
            if ready && stream.as_mut().is_some_and(|reading| reading.once(&mut buffer, keep).is_none()) {
                *stream = None;
            }
        }
        // the end is looked at last: what was written before it has a turn first
        if (ready[3] || pidfd.is_none())
            && let Some(status) = ended(&mut child)?
        {
            break status;
        }
    };
    for reading in streams.iter_mut().flatten() {
        reading.rest(&mut buffer, keep);
    }
    Ok(Finished { exit: exit(status), asked_to_end })
}

fn exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, signal) => Exit::Signal(signal.unwrap_or(libc::SIGKILL)),
    }
}

fn ended(child: &mut Child) -> Result<Option<ExitStatus>, SpawnError> {
    child.try_wait().map_err(|error| SpawnError::system("wait", error))
}

#[allow(clippy::disallowed_methods)] // this is the crate that starts processes
fn spawn(command: Capture) -> Result<Child, SpawnError> {
    let Capture { program, argv, env } = command;
    let mut spawning = std::process::Command::new(&program);
    let mut words = argv.into_iter();
    if let Some(zeroth) = words.next() {
        spawning.arg0(zeroth);
    }
    spawning.args(words).env_clear().envs(env).stdout(Stdio::piped()).stderr(Stdio::piped());
    let parent = std::process::id().cast_signed();
    // SAFETY: only system calls that are safe between fork and exec.
    unsafe { spawning.pre_exec(move || die_with(parent)) };
    spawning.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => SpawnError::NotFound { program },
        _ => SpawnError::CannotExecute { program, source },
    })
}

/// Have the kernel end this process when its parent ends, even if that has happened already.
fn die_with(parent: i32) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is involved.
    sys::check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    // SAFETY: it cannot fail.
    match unsafe { libc::getppid() } == parent {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

#[cfg(target_os = "linux")]
fn pidfd(child: &Child) -> Option<OwnedFd> {
    // SAFETY: the child is ours and not yet reaped, so the number is its own.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: it is new and nobody else's.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(not(target_os = "linux"))]
fn pidfd(_: &Child) -> Option<OwnedFd> {
    None
}

/// Which of these can be read. Without a descriptor for the process, wakes now and then to look at it.
fn poll(fds: [RawFd; 4], in_turns: bool) -> [bool; 4] {
    let mut polled = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let timeout = if in_turns { 10 } else { -1 };
    // SAFETY: four valid entries; negative descriptors are left out by the kernel.
    unsafe { libc::poll(polled.as_mut_ptr(), 4, timeout) };
    polled.map(|polled| polled.revents != 0)
}

/// One of the command's two streams.
struct Reading {
    stream: Stream,
    pipe: std::fs::File,
    /// Somebody still reads what we write.
    live: bool,
}

impl Reading {
    fn new(stream: Stream, pipe: OwnedFd) -> Reading {
        // what is left when the command has ended must be read without waiting for who else holds the pipe
        let _ = sys::set_nonblocking(pipe.as_raw_fd());
        Reading { stream, pipe: pipe.into(), live: true }
    }

    fn fd(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Read what is there; `None` at the end.
    fn once(&mut self, buffer: &mut [u8], keep: &mut dyn FnMut(Stream, &[u8])) -> Option<usize> {
        match self.pipe.read(buffer) {
            Ok(0) => None,
            Ok(n) => {
                let bytes = buffer.get(..n).unwrap_or_default();
                self.live = self.live && pass_on(self.stream, bytes).is_ok();
                keep(self.stream, bytes);
                Some(n)
            }
            Err(why) if matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Some(0)
            }
            Err(_) => None,
        }
    }

    fn rest(&mut self, buffer: &mut [u8], keep: &mut dyn FnMut(Stream, &[u8])) {
        while self.once(buffer, keep).is_some_and(|n| n > 0) {}
    }
}

/// To our own stdout or stderr, at once.
pub fn pass_on(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Stream::Err => io::stderr().lock().write_all(bytes),
    }
}
