//! From the keeper to the running command.
//!
//! The command is cloned as by vfork: it borrows the keeper's memory (on a stack of its own) and the keeper
//! sleeps until the exec, so no page table is copied a second time; and it is born inside its cgroup. An error on
//! the way is left in that memory. Where clone3 is not to be had, a plain fork does the same without the cgroup, and
//! an error comes back through a close-on-exec pipe: the pipe's silent end means that the exec succeeded.
//!
//! The bounds of the keeper hold here too: no allocation, no locks, no panic.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use crate::plan::Plan;
use crate::sys;
use crate::words::Words;

pub(crate) const STAGE_FORK: u8 = 1;
pub(crate) const STAGE_CGROUP: u8 = 2;
pub(crate) const STAGE_STDIO: u8 = 3;
pub(crate) const STAGE_CHDIR: u8 = 4;
pub(crate) const STAGE_EXEC: u8 = 5;
pub(crate) const STAGE_LATE: u8 = 6;

pub(super) struct Launched {
    pub(super) pid: i32,
    pub(super) in_leaf: bool,
}

pub(super) struct Failed {
    pub(super) stage: u8,
    pub(super) errno: i32,
}

/// What is to be run.
pub(super) struct Command<'a> {
    pub(super) plan: &'a Plan,
    pub(super) words: &'a Words,
    /// What becomes its 0, 1, 2.
    pub(super) stdio: [RawFd; 3],
    /// Where it is born.
    pub(super) leaf: Option<RawFd>,
    pub(super) keeper: i32,
}

struct Child<'a> {
    command: &'a Command<'a>,
    /// The pipe for what went wrong; -1: it shares our memory.
    report: RawFd,
    /// 0: nothing.
    stage: AtomicU8,
    errno: AtomicI32,
}

pub(super) fn launch(command: &Command<'_>) -> Result<Launched, Failed> {
    let (stage, errno) = (AtomicU8::new(0), AtomicI32::new(0));
    let child = Child { command, report: -1, stage, errno };
    let pid = vfork_into(command.leaf, &child);
    if pid > 0 {
        let launched = Launched { pid, in_leaf: command.leaf.is_some() };
        return match child.stage.load(Ordering::Acquire) {
            0 => Ok(launched),
            stage => Err(failed(pid, stage, child.errno.load(Ordering::Acquire))),
        };
    }
    if command.plan.must_enter_leaf {
        return Err(Failed { stage: STAGE_CGROUP, errno: pid.wrapping_neg() });
    }
    // clone3 is forbidden (some sandboxes) or unknown, or the cgroup may not be entered.
    fork(command)
}

fn failed(pid: i32, stage: u8, errno: i32) -> Failed {
    let _ = sys::wait(pid, 0);
    Failed { stage, errno }
}

fn fork(command: &Command<'_>) -> Result<Launched, Failed> {
    let (result, report) = sys::pipe().map_err(|errno| Failed { stage: STAGE_FORK, errno })?;
    let child = Child { command, report, stage: AtomicU8::new(0), errno: AtomicI32::new(0) };
    // SAFETY: this process has one thread, and the child only makes system calls until it execs.
    let pid = match unsafe { libc::fork() } {
        0 => become_command(&child),
        pid => pid,
    };
    let errno = sys::errno();
    sys::close(report);
    let mut bytes = [0u8; 5];
    // SAFETY: the buffer is valid for writes of its length.
    let n = unsafe { libc::read(result, bytes.as_mut_ptr().cast(), bytes.len()) };
    sys::close(result);
    if pid < 0 {
        return Err(Failed { stage: STAGE_FORK, errno });
    }
    if n < 5 {
        return Ok(Launched { pid, in_leaf: false });
    }
    let [stage, errno @ ..] = bytes;
    Err(failed(pid, stage, i32::from_ne_bytes(errno)))
}

/// A child on a stack of its own in our memory, while we sleep until it execs or ends. Negative: -errno.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
fn vfork_into(leaf: Option<RawFd>, child: &Child<'_>) -> i32 {
    #[repr(align(16))]
    struct Stack(#[allow(dead_code)] [u8; 32 * 1024]);
    let mut stack = std::mem::MaybeUninit::<Stack>::uninit();
    // SAFETY: an all-zero clone_args is valid.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    args.stack = stack.as_mut_ptr() as u64;
    args.stack_size = size_of::<Stack>() as u64;
    if let Some(leaf) = leaf {
        args.flags |= 0x2_0000_0000; // CLONE_INTO_CGROUP; libc has it as a c_int, which cannot hold it
        args.cgroup = u64::from(leaf.unsigned_abs());
    }
    let result: isize;
    // SAFETY: the child runs `entry` on `stack`, which outlives it as ours: CLONE_VFORK keeps us here until
    // it has left this memory. It never returns from `entry`. In the parent only the result (and what a
    // system call clobbers) changes. The stack's top is 16-aligned, as the ABI wants it before a call.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, rdx",
            "call r8",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 as isize => result,
            in("rdi") &raw const args,
            in("rsi") size_of::<libc::clone_args>(),
            in("rdx") std::ptr::from_ref(child),
            in("r8") entry as extern "C" fn(*const c_void) -> !,
            lateout("rcx") _,
            lateout("r11") _,
        );
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x0, x2",
            "blr x3",
            "brk #1",
            "2:",
            inlateout("x0") (&raw const args) as isize => result,
            in("x1") size_of::<libc::clone_args>(),
            in("x2") std::ptr::from_ref(child),
            in("x3") entry as extern "C" fn(*const c_void) -> !,
            in("x8") libc::SYS_clone3,
        );
    }
    i32::try_from(result).unwrap_or(-libc::EOVERFLOW)
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn vfork_into(_leaf: Option<RawFd>, _child: &Child<'_>) -> i32 {
    -libc::ENOSYS
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
extern "C" fn entry(child: *const c_void) -> ! {
    // SAFETY: `vfork_into` passes a Child that lives until we exec.
    become_command(unsafe { &*child.cast::<Child<'_>>() })
}

fn become_command(child: &Child<'_>) -> ! {
    let (stage, errno) = try_become(child.command);
    child.errno.store(errno, Ordering::Release);
    child.stage.store(stage, Ordering::Release);
    let [a, b, c, d] = errno.to_ne_bytes();
    let bytes = [stage, a, b, c, d];
    // SAFETY: the bytes are valid for reads; `_exit` runs nothing of the caller's.
    unsafe {
        if child.report >= 0 {
            libc::write(child.report, bytes.as_ptr().cast(), bytes.len());
        }
        libc::_exit(127)
    }
}

/// Comes back only with the stage that failed, and why.
fn try_become(command: &Command<'_>) -> (u8, i32) {
    let Command { plan, words, .. } = command;
    #[cfg(target_os = "linux")]
    // SAFETY: no memory is involved. The death signal hangs on the thread that forked: the keeper has only one.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != command.keeper {
            libc::_exit(127);
        }
    }
    // SAFETY: no memory is involved. A group that is gone: then we stay in the keeper's, which is no harm.
    unsafe { libc::setpgid(0, if plan.joins_group { plan.owner_group } else { 0 }) };
    if let Err(errno) = arrange_stdio(command.stdio) {
        return (STAGE_STDIO, errno);
    }
    if plan.at_terminal && plan.group_only {
        // SAFETY: no memory is involved; TTOU is blocked, so this does not stop us.
        (0..3).for_each(|fd| unsafe {
            libc::tcsetpgrp(fd, libc::getpid());
        });
    }
    if !words.cwd.is_null() {
        // SAFETY: a valid C string.
        if unsafe { libc::chdir(words.cwd) } != 0 {
            return (STAGE_CHDIR, sys::errno());
        }
    }
    unblock_signals();
    // SAFETY: all are NULL-terminated arrays of C strings that live as long as the words do.
    unsafe {
        libc::execve(words.program, words.argv, words.envp);
        if sys::errno() == libc::ENOEXEC {
            libc::execve(c"/bin/sh".as_ptr(), words.sh_argv, words.envp);
        }
    }
    (STAGE_EXEC, sys::errno())
}

/// For the keeper, which blocks them all, and so for whatever it starts: handlers away before a mask is lifted, so
/// that none of the caller's runs there.
pub(super) fn default_signals(plan: &Plan) {
    for signo in 1..=64 {
        let ignored = plan.stay_ignored.contains(&Some(signo));
        sys::set_disposition(signo, if ignored { libc::SIG_IGN } else { libc::SIG_DFL });
    }
    // libc keeps 32 and 33 to itself and refuses to touch them, but they may have been inherited as ignored.
    #[cfg(target_os = "linux")]
    for signo in 32..=33 {
        let default = [0u64; 8];
        // SAFETY: an all-zero kernel sigaction (smaller than this) means the default.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signo, default.as_ptr(), std::ptr::null::<u64>(), 8) };
    }
}

fn unblock_signals() {
    // SAFETY: the set is initialised before it is read.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        sys::set_mask(&none);
    }
}

fn arrange_stdio(mut from: [RawFd; 3]) -> Result<(), i32> {
    for (to, fd) in (0..).zip(&mut from) {
        // A source that is itself one of 0, 1, 2 must not be overwritten before it is used.
        if *fd < 3 && *fd != to {
            // SAFETY: no memory is involved.
            *fd = unsafe { libc::fcntl(*fd, libc::F_DUPFD_CLOEXEC, 3) };
        }
    }
    for (to, fd) in (0..).zip(from) {
        // SAFETY: no memory is involved.
        let result = unsafe { if fd == to { libc::fcntl(fd, libc::F_SETFD, 0) } else { libc::dup2(fd, to) } };
        if result < 0 {
            return Err(sys::errno());
        }
    }
    // Only what the caller passed in can be open without close-on-exec, and all of it is in `from`.
    for fd in from.into_iter().filter(|fd| *fd > 2) {
        sys::close(fd);
    }
    Ok(())
}
