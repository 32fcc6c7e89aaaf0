//! A command and everything that it starts, stopped before and after each system call.
//!
//! One thread traces, and it is the one that starts the command. The stops of all processes come to it one after the
//! other, so calls have an order, and a number that is the same from run to run as far as the command is.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Longer than any run here; only a failing test waits for it.
const LIMIT: Duration = Duration::from_secs(60);

/// What a process is to the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// The command that was started: `semel run`.
    Semel,
    /// What it forked and what never became another program: its keeper.
    Keeper,
    /// `semel` inside the run.
    Nested,
    /// Its keeper.
    NestedKeeper,
    /// The command of the run, from its fork on.
    Other,
}

/// A process that stands before a call, or after it.
pub(crate) struct Stop {
    /// The thread.
    pub(crate) thread: i32,
    /// Its process.
    pub(crate) process: i32,
    pub(crate) role: Role,
    pub(crate) call: i64,
    pub(crate) args: [u64; 6],
    /// What the call answered; none: it has not been made.
    pub(crate) answer: Option<i64>,
}

impl Stop {
    /// So many bytes of its memory, or as many as there are.
    pub(crate) fn memory(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read =
            File::open(format!("/proc/{}/mem", self.thread)).and_then(|file| file.read_at(&mut bytes, at));
        bytes.truncate(read.unwrap_or(0));
        bytes
    }

    /// The text at this place.
    pub(crate) fn text(&self, at: u64) -> PathBuf {
        use std::os::unix::ffi::OsStringExt;
        let mut bytes = self.memory(at, 4096);
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
        PathBuf::from(std::ffi::OsString::from_vec(bytes))
    }
}

/// Who looks at the stops.
pub(crate) trait Watch {
    /// A process stands before or after a call.
    fn at(&mut self, stop: &Stop, tree: &Tree);
    /// A process has become another program.
    fn became(&mut self, _role: Role) {}
}

struct Thread {
    process: i32,
    role: Role,
    call: Option<(i64, [u64; 6])>,
    /// Its first stop is the tracer's own doing.
    is_new: bool,
}

/// Everything that is traced.
pub(crate) struct Tree {
    pub(crate) main: i32,
    threads: HashMap<i32, Thread>,
}

impl Tree {
    /// The processes of this role that live.
    pub(crate) fn of(&self, role: Role) -> Vec<i32> {
        let mut found: Vec<i32> =
            self.threads.values().filter(|thread| thread.role == role).map(|thread| thread.process).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Is the command of the run there? It is from its fork on, and that is told only when the call has returned.
    pub(crate) fn is_under_way(&self) -> bool {
        let is_fork =
            |call: i64| [libc::SYS_fork, libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3].contains(&call);
        self.threads.values().any(|thread| {
            thread.role == Role::Other
                || thread.role == Role::Keeper && thread.call.is_some_and(|(call, _)| is_fork(call))
        })
    }

    /// End these now.
    pub(crate) fn kill(&self, processes: &[i32]) {
        for process in processes {
            // SAFETY: no memory is involved; it is traced by us, so its number is not another's.
            unsafe { libc::kill(*process, libc::SIGKILL) };
        }
    }
}

#[repr(C)]
#[derive(Default)]
struct CallInfo {
    op: u8,
    _pad: [u8; 3],
    _arch: u32,
    _instruction: u64,
    _stack: u64,
    data: [u64; 8],
}

const GET_CALL_INFO: libc::c_uint = 0x420e;
const BEFORE: u8 = 1;
const AFTER: u8 = 2;

fn request(what: libc::c_uint, thread: i32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: pointers among the arguments are the caller's own and outlive the call.
    let answer = unsafe { libc::ptrace(what, thread, address, data) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Start a command, and see it and all that it starts to their ends. Answers how it ended itself, as a shell says it.
pub(crate) fn trace(command: &mut Command, watch: &mut dyn Watch) -> i32 {
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
    let main = command.spawn().expect("a command that can be traced").id().cast_signed();
    let thread = Thread { process: main, role: Role::Semel, call: None, is_new: true };
    let mut tree = Tree { main, threads: HashMap::from([(main, thread)]) };
    let (ended, end) = channel::<()>();
    let late = std::thread::spawn(move || {
        let late = matches!(end.recv_timeout(LIMIT), Err(RecvTimeoutError::Timeout));
        if late {
            // its keeper takes the rest with it
            // SAFETY: no memory is involved; the command is not reaped before this thread is told.
            unsafe { libc::kill(main, libc::SIGKILL) };
        }
        late
    });
    let code = follow(&mut tree, watch);
    drop(ended);
    assert!(!late.join().unwrap(), "it does not end within {LIMIT:?}");
    code
}

fn follow(tree: &mut Tree, watch: &mut dyn Watch) -> i32 {
    let mut code = -1;
    loop {
        let mut status = 0;
        // children of this thread only: other tests may run beside it
        // SAFETY: `status` outlives the call.
        let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        if thread < 0 {
            let why = io::Error::last_os_error();
            assert_eq!(why.raw_os_error(), Some(libc::ECHILD), "{why}");
            return code;
        }
        if libc::WIFSTOPPED(status) {
            let signal = stopped(tree, watch, thread, status);
            // it may have been killed meanwhile
            let _ = request(libc::PTRACE_SYSCALL, thread, 0, usize::try_from(signal).unwrap());
            continue;
        }
        if thread == tree.main {
            code = if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                128 + libc::WTERMSIG(status)
            };
        }
        tree.threads.remove(&thread);
    }
}

/// What a stopped thread is to be told: the signal that it goes on with, or 0.
fn stopped(tree: &mut Tree, watch: &mut dyn Watch, thread: i32, status: i32) -> i32 {
    const OPTIONS: i32 = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
    match event {
        libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
            let mut new: libc::c_ulong = 0;
            if request(libc::PTRACE_GETEVENTMSG, thread, 0, &raw mut new as usize).is_ok() {
                born(tree, thread, i32::try_from(new).unwrap());
            }
            return 0;
        }
        libc::PTRACE_EVENT_EXEC => {
            let is_ours = is_semel(thread);
            let main = tree.main;
            if let Some(known) = tree.threads.get_mut(&thread) {
                known.role = match () {
                    () if known.process == main => Role::Semel,
                    () if is_ours => Role::Nested,
                    () => Role::Other,
                };
                watch.became(known.role);
            }
            return 0;
        }
        _ => {}
    }
    if signal == libc::SIGTRAP | 0x80 {
        called(tree, watch, thread);
        return 0;
    }
    let Some(known) = tree.threads.get_mut(&thread) else {
        // its parent's stop, which tells who it is, is yet to come
        let thread_of = Thread { process: process_of(thread), role: Role::Other, call: None, is_new: false };
        tree.threads.insert(thread, thread_of);
        return 0;
    };
    if known.is_new {
        known.is_new = false;
        if thread == tree.main {
            request(libc::PTRACE_SETOPTIONS, thread, 0, usize::try_from(OPTIONS).unwrap()).unwrap();
        }
        return 0;
    }
    // one that is told to stop is not held up: nobody here waits for a stop
    if matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) { 0 } else { signal }
}

fn born(tree: &mut Tree, parent: i32, new: i32) {
    let Some(parent) = tree.threads.get(&parent) else { return };
    let process = process_of(new);
    let role = match parent.role {
        role if process == parent.process => role,
        Role::Semel => Role::Keeper,
        Role::Nested => Role::NestedKeeper,
        Role::Keeper | Role::NestedKeeper | Role::Other => Role::Other,
    };
    // seen before: it has had its first stop
    let is_new = !tree.threads.contains_key(&new);
    tree.threads.insert(new, Thread { process, role, call: None, is_new });
}

fn called(tree: &mut Tree, watch: &mut dyn Watch, thread: i32) {
    let mut info = CallInfo::default();
    let size = std::mem::size_of::<CallInfo>();
    if request(GET_CALL_INFO, thread, size, &raw mut info as usize).is_err() {
        return;
    }
    let Some(known) = tree.threads.get_mut(&thread) else { return };
    let (call, answer) = match info.op {
        BEFORE => {
            let mut args = [0; 6];
            args.copy_from_slice(&info.data[1..7]);
            let call = (info.data[0].cast_signed(), args);
            known.call = Some(call);
            (Some(call), None)
        }
        AFTER => (known.call.take(), Some(info.data[0].cast_signed())),
        _ => (None, None),
    };
    let Some((call, args)) = call else { return };
    let stop = Stop { thread, process: known.process, role: known.role, call, args, answer };
    watch.at(&stop, tree);
}

fn process_of(thread: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(thread)
}

fn is_semel(process: i32) -> bool {
    let semel = std::fs::canonicalize(env!("CARGO_BIN_EXE_semel")).ok();
    semel.is_some() && std::fs::read_link(format!("/proc/{process}/exe")).ok() == semel
}
