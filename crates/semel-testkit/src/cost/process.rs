//! What the kernel counts of a process: memory, page faults, and how often it was woken.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::time::{Duration, Instant};

use super::home::{Home, LONG};

/// What a process had used when it ended.
#[derive(Clone, Copy, Debug)]
pub struct AtEnd {
    /// The most memory that it held at once.
    pub peak_kib: u64,
    /// Pages that it had to be given.
    pub page_faults: u64,
}

/// Stopped when it is about to end, so that it can be asked.
pub(super) fn at_end(home: &Home, words: &[String]) -> AtEnd {
    let mut command = home.command(home.semel());
    // SAFETY: one system call between fork and exec.
    unsafe {
        command.args(words).pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
    // reaped below
    let pid = command.spawn().unwrap().id().cast_signed();
    let (mut found, mut is_first) = (None, true);
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call, and the child is this thread's own.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) }, pid);
        if !libc::WIFSTOPPED(status) {
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:x}");
            return found.expect("a process that was seen to end");
        }
        let (mut signal, event) = (libc::WSTOPSIG(status), status >> 16);
        if is_first {
            let ends = libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_EXITKILL;
            // SAFETY: no memory is involved.
            assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, ends) }, 0);
        } else if event == libc::PTRACE_EVENT_EXIT {
            found = Some(AtEnd { peak_kib: field(pid, "VmHWM:"), page_faults: faults(pid) });
        }
        if is_first || event != 0 {
            signal = 0;
        }
        is_first = false;
        // SAFETY: no memory is involved.
        unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, signal) };
    }
}

/// A run that supervises a command which does nothing. Ended when it is dropped.
#[derive(Debug)]
pub struct Supervised {
    semel: Child,
    _home: Home,
}

impl Supervised {
    pub(super) fn start(home: Home, ttl: &str) -> Supervised {
        let mut command = home.command(home.semel());
        let script = "echo x > started; exec sleep 600";
        command.args(["run", "--job", "long", "--once", "--ttl", ttl, "--", "/bin/sh", "-c", script]);
        let started = home.path("started");
        let supervised = Supervised { semel: command.spawn().unwrap(), _home: home };
        until("the command has started", || started.exists());
        supervised
    }

    /// The most memory that Semel has held so far.
    pub fn peak_kib(&self) -> u64 {
        field(self.semel.id().cast_signed(), "VmHWM:")
    }

    /// How often Semel and its keeper woke in such a time, once they had come to rest after the start.
    pub fn wakes(&self, rest: Duration, during: Duration) -> u64 {
        let semel = self.semel.id().cast_signed();
        let keepers = std::fs::read_to_string(format!("/proc/{semel}/task/{semel}/children")).unwrap();
        let keepers = keepers.split_whitespace().map(|pid| pid.parse().unwrap());
        let ours: Vec<i32> = keepers.chain([semel]).collect();
        assert_eq!(ours.len(), 2, "semel has one keeper");
        let so_far = || ours.iter().map(|pid| waits(*pid)).sum::<u64>();
        let mut before = so_far();
        until("semel has come to rest", || {
            std::thread::sleep(rest);
            let (was, now) = (before, so_far());
            before = now;
            was == now
        });
        std::thread::sleep(during);
        so_far() - before
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // its keeper takes the command with it
        let _ = self.semel.kill();
        let _ = self.semel.wait();
    }
}

fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < LONG, "after {LONG:?} still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How often the threads of a process began to wait.
fn waits(pid: i32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let threads = threads.map(|thread| thread.unwrap().file_name().to_string_lossy().into_owned());
    threads
        .map(|thread| field_of(&format!("/proc/{pid}/task/{thread}/status"), "voluntary_ctxt_switches:"))
        .sum()
}

fn field(pid: i32, name: &str) -> u64 {
    field_of(&format!("/proc/{pid}/status"), name)
}

fn field_of(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    value.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Those that needed no disk, of all its threads.
fn faults(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // after the name, which may hold anything: state, parent, group, session, terminal, its group, flags, faults
    let (_, after) = stat.rsplit_once(')').unwrap();
    after.split_whitespace().nth(7).unwrap().parse().unwrap()
}
