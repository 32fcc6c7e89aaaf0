//! Runs one command inside somebody else's tree, and hands on what it writes as it writes it.
//!
//! Nothing is held here: bytes go to this process's own stdout and stderr at once, then to the caller, in the order
//! in which they were read. If nobody reads our stdout any more the command is not disturbed: it is worth more
//! than its display. If our stdout takes nothing more for another reason (a full disk), that is told at its end.
//!
//! The command is in our process group, gets the signals that we get, and dies with us (its death signal). What it
//! leaves behind is not ended here, and what that writes after the command's own end is not seen.

use std::ffi::OsString;
use std::io::{self, Read};
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
/// How long what is left of an ended command's output waits for a reader that takes nothing, if we are to end too.
const FAREWELL_MS: i32 = 1_000;

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

/// How a captured command ended. As long as this lives, INT, TERM, HUP and QUIT do not end this process: it knows
/// what nobody else knows, and is about to record it.
#[derive(Debug)]
pub struct Finished {
    /// How.
    pub exit: Exit,
    /// The signal by which this process was asked to end meanwhile.
    pub asked_to_end: Option<i32>,
    /// Why our stdout did not take all that the command wrote, unless its reader went away.
    pub undelivered: Option<io::Error>,
    _signals: Catcher,
}

/// Run it. Blocks until it has ended and all that it wrote has been handed on.
pub fn capture(command: Capture, keep: &mut dyn FnMut(Stream, &[u8])) -> Result<Finished, SpawnError> {
    let signals = Catcher::install().map_err(|error| SpawnError::system("sigaction", error))?;
    let mut child = spawn(command)?;
    let pidfd = pidfd(&child);
    let mut streams = [
        Reading::new(Stream::Out, child.stdout.take().map(OwnedFd::from)),
        Reading::new(Stream::Err, child.stderr.take().map(OwnedFd::from)),
    ];
    let process = pidfd.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let mut ear =
        Ear { signals: &signals, command: Some(child.id().cast_signed()), process, asked_to_end: None };
    let mut buffer = vec![0; CHUNK];
    let status = loop {
        let [out, err] = &streams;
        let ready = poll([out.fd(), err.fd(), signals.fd(), process], pidfd.is_none());
        if ready[2] {
            ear.hear();
        }
        for (reading, ready) in streams.iter_mut().zip(ready) {
            if ready && reading.once(&mut buffer, keep, &mut ear).is_none() {
                reading.pipe = None;
            }
        }
        // the end is looked at last: what was written before it has a turn first
        if (ready[3] || pidfd.is_none())
            && let Some(status) = ended(&mut child)?
        {
            break status;
        }
    };
    ear.command = None;
    // what ended the command may have reached it a moment before us
    ear.hear();
    let asked_to_end = ear.asked_to_end;
    for reading in &mut streams {
        reading.rest(&mut buffer, keep, &mut ear);
    }
    let [out, _] = streams;
    Ok(Finished { exit: exit(status), asked_to_end, undelivered: out.failed, _signals: signals })
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

/// Hears the signals that reach us, and hands them on.
struct Ear<'a> {
    signals: &'a Catcher,
    /// None when it has ended: the number may be another's by now.
    command: Option<i32>,
    /// Readable when it has ended; -1 where that is not known.
    process: RawFd,
    asked_to_end: Option<i32>,
}

impl Ear<'_> {
    fn hear(&mut self) {
        while let Some(caught) = self.signals.take() {
            self.asked_to_end = Some(caught.signo);
            // what the terminal sent has reached the whole group already
            if let Some(command) = self.command.filter(|_| !caught.from_terminal) {
                sys::kill(command, caught.signo);
            }
        }
    }

    /// Wait until this takes something, and hear meanwhile. Once we were asked to end and the command has ended, whoever
    /// takes nothing for a moment is taken for gone.
    fn until_it_takes(&mut self, fd: RawFd) -> io::Result<()> {
        loop {
            let watched = if self.asked_to_end.is_some() { self.process } else { -1 };
            let over = self.asked_to_end.is_some() && self.command.is_none();
            let polled = |fd, events| libc::pollfd { fd, events, revents: 0 };
            let mut fds = [
                polled(fd, libc::POLLOUT),
                polled(self.signals.fd(), libc::POLLIN),
                polled(if over { -1 } else { watched }, libc::POLLIN),
            ];
            // SAFETY: three valid entries; negative descriptors are left out by the kernel.
            let ready = unsafe { libc::poll(fds.as_mut_ptr(), 3, if over { FAREWELL_MS } else { -1 }) };
            let [takes, heard, ended] = fds.map(|polled| polled.revents != 0);
            if heard {
                self.hear();
            }
            if takes {
                return Ok(());
            }
            if over && ready == 0 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if ended {
                self.command = None;
            }
        }
    }
}

/// One of the command's two streams.
struct Reading {
    stream: Stream,
    /// What our own end of it takes without having to wait: at least this, if it takes something.
    part: usize,
    /// And this, if it is empty.
    whole: usize,
    /// None at its end.
    pipe: Option<std::fs::File>,
    /// Somebody still takes what we write.
    live: bool,
    /// Why not, unless they went away.
    failed: Option<io::Error>,
}

impl Reading {
    fn new(stream: Stream, pipe: Option<OwnedFd>) -> Reading {
        if let Some(pipe) = &pipe {
            // what is left when the command has ended must be read without waiting for who else holds the pipe
            let _ = sys::set_nonblocking(pipe.as_raw_fd());
        }
        // what is no file may fill up
        let part = if is_file(stream.fd()) { CHUNK } else { libc::PIPE_BUF };
        let whole = part.max(pipe_size(stream.fd()).unwrap_or(0));
        Reading { stream, part, whole, pipe: pipe.map(Into::into), live: true, failed: None }
    }

    fn fd(&self) -> RawFd {
        self.pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Read what is there; `None` at the end.
    fn once(
        &mut self,
        buffer: &mut [u8],
        keep: &mut dyn FnMut(Stream, &[u8]),
        ear: &mut Ear<'_>,
    ) -> Option<usize> {
        match self.pipe.as_mut()?.read(buffer) {
            Ok(0) => None,
            Ok(n) => {
                let bytes = buffer.get(..n).unwrap_or_default();
                if self.live
                    && let Err(why) = self.deliver(bytes, ear)
                {
                    self.live = false;
                    self.failed = Some(why).filter(|why| why.kind() != io::ErrorKind::BrokenPipe);
                }
                keep(self.stream, bytes);
                Some(n)
            }
            Err(why) if matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Some(0)
            }
            Err(_) => None,
        }
    }

    fn deliver(&self, bytes: &[u8], ear: &mut Ear<'_>) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            ear.until_it_takes(self.stream.fd())?;
            let is_empty = self.whole > self.part && waiting(self.stream.fd()) == 0;
            let room = if is_empty { self.whole } else { self.part };
            let (part, later) = rest.split_at(rest.len().min(room));
            pass_on(self.stream, part)?;
            rest = later;
        }
        Ok(())
    }

    /// What is in the pipe now, and no more: whoever else holds it may write for ever.
    fn rest(&mut self, buffer: &mut [u8], keep: &mut dyn FnMut(Stream, &[u8]), ear: &mut Ear<'_>) {
        let mut left = waiting(self.fd());
        while left > 0 {
            let room = left.min(buffer.len());
            match buffer.get_mut(..room).and_then(|buffer| self.once(buffer, keep, ear)) {
                Some(n) if n > 0 => left = left.saturating_sub(n),
                _ => return,
            }
        }
    }
}

/// How many bytes are in this pipe.
fn waiting(fd: RawFd) -> usize {
    let mut waiting: libc::c_int = 0;
    // SAFETY: the number is valid for writes; a descriptor that is none is an error.
    let asked = unsafe { libc::ioctl(fd, libc::FIONREAD, &mut waiting) };
    if asked == 0 { usize::try_from(waiting).unwrap_or(0) } else { 0 }
}

/// How much fits into this, if it is a pipe.
#[cfg(target_os = "linux")]
fn pipe_size(fd: RawFd) -> Option<usize> {
    // SAFETY: no memory is involved.
    usize::try_from(unsafe { libc::fcntl(fd, libc::F_GETPIPE_SZ) }).ok()
}

#[cfg(not(target_os = "linux"))]
fn pipe_size(_: RawFd) -> Option<usize> {
    None
}

impl Stream {
    fn fd(self) -> RawFd {
        match self {
            Stream::Out => libc::STDOUT_FILENO,
            Stream::Err => libc::STDERR_FILENO,
        }
    }
}

fn is_file(fd: RawFd) -> bool {
    // SAFETY: stat is plain memory, read only if it was filled.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &mut found) == 0 && found.st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// To our own stdout or stderr, at once and all of it, also where whoever shares it with us has made it
/// non-blocking. `BrokenPipe`: nobody is there to take it, be it a reader or a terminal.
pub fn pass_on(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    let fd = stream.fd();
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: the bytes are valid for reads of their length.
        let wrote = unsafe { libc::write(fd, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(wrote) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => rest = rest.get(n..).unwrap_or_default(),
            Err(_) => match io::Error::last_os_error() {
                why if why.kind() == io::ErrorKind::Interrupted => {}
                why if why.kind() == io::ErrorKind::WouldBlock => writable(fd),
                // a terminal that was hung up
                why if why.raw_os_error() == Some(libc::EIO) && !is_file(fd) => {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                why => return Err(why),
            },
        }
    }
    Ok(())
}

/// Wait until it takes something, or nobody is there to take it.
fn writable(fd: RawFd) {
    let mut polled = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut polled, 1, -1) };
}
