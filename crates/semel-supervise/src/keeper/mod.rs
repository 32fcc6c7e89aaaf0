//! The keeper: what runs in the forked process between fork and `_exit`.
//!
//! Theory. K is the command's parent and a subreaper, so that every process of the tree is its descendant as
//! long as it lives, whatever the process did (setsid, double fork). "Nothing left" is therefore no guess: it
//! is `ECHILD`. K waits for four things at once (an order, the end of S, the end of a child, the deadline) and
//! in its last state, *killing*, goes on until nothing is left.
//!
//! ```text
//! [told to wait ── order ──▶] running ── command exits ──▶ leftovers ── none ──▶ gone (and idle, if K is to stay)
//!    └──── kill order, S gone, deadline ────▶ killing ──▶ gone
//! ```
//!
//! A keeper that stays ([`Keepers`](crate::Keepers)) takes the next command when nothing is left of the one before:
//! what it is told to run lies in memory that it shares with S, and is read only between the order and the exec. One
//! that had to kill does not stay. One that was made [`Ready`](crate::Ready) waits for its one order in the same way.
//!
//! S may have threads, so K is bound to what is safe after such a fork: it never allocates, locks or panics,
//! and all it needs lies ready in the [`Plan`]. It blocks every signal; only KILL and STOP reach it.
//!
//! Not guaranteed: anything while K itself is stopped (SIGSTOP to it and death of S together leave the tree
//! running until it is continued); and the death signal of a setuid command, which the kernel clears.

mod launch;

use std::os::fd::RawFd;

use crate::cgroup::Leaf;
use crate::plan::Plan;
use crate::sweep::Sweep;
use crate::sys;
use crate::wire::{Inbox, News, Order, Received, receive_with_fd};
use crate::words::Words;
use launch::Command;

pub(crate) use launch::{STAGE_CGROUP, STAGE_CHDIR, STAGE_EXEC, STAGE_LATE, STAGE_STDIO};

/// How long a keeper that stays waits for the end of a short command before it says that it has started.
const MOMENT_MS: i32 = 2;

/// Run as the keeper. Called in the forked process, with every signal blocked.
pub(crate) fn keep(plan: &Plan, socket: RawFd) -> ! {
    let code = Keeper::start(plan, socket).map_or(1, |keeper| match plan.shared {
        Some(words) if plan.stays => keeper.stay(words),
        Some(words) => keeper.once_told(words),
        None => keeper.once(plan.words(), plan.deadline),
    });
    // SAFETY: ends the process without running anything of the caller's.
    unsafe { libc::_exit(code) }
}

struct Keeper<'a> {
    plan: &'a Plan,
    me: i32,
    command: i32,
    in_leaf: bool,
    /// There is no leaf to be born in, or it could not be entered.
    leafless: bool,
    /// Says whether anything is in the leaf; -1: the leaf is removed to find out.
    populated: RawFd,
    socket: RawFd,
    /// Readable when a child has ended; -1 where there is no such thing (then K looks now and then).
    children: RawFd,
    timer: RawFd,
    /// CLOCK_BOOTTIME, nanoseconds; 0: none.
    deadline: u64,
    inbox: Inbox,
    exited: bool,
    /// That it started, if S does not know: where commands follow one another, a short one is told of once.
    late: Option<News>,
    /// How the command ended, as long as S does not know.
    untold: Option<i32>,
    killing: bool,
    by_deadline: bool,
    /// Since when (CLOCK_BOOTTIME, nanoseconds); 0: not yet.
    killing_since: u64,
    /// The next round is not before this (CLOCK_BOOTTIME, nanoseconds).
    next_round: u64,
    /// Processes met by the first sweep, if that came after the command's own end; else none were left behind.
    leftovers: Option<u32>,
}

impl<'a> Keeper<'a> {
    fn start(plan: &'a Plan, socket: RawFd) -> Option<Keeper<'a>> {
        // SAFETY: no memory is involved.
        let me = unsafe {
            libc::setpgid(0, 0);
            libc::getpid()
        };
        #[cfg(target_os = "linux")]
        // SAFETY: a valid C string.
        unsafe {
            libc::prctl(libc::PR_SET_NAME, plan.name.get().as_ptr())
        };
        // SIGCHLD too: inherited as ignored, it would make the kernel reap in our place and lose the command's status.
        launch::default_signals(plan);
        // Even if only the group is to be ended: a dead orphan that nobody reaps would keep the group alive.
        sys::become_subreaper();
        keep_only(plan, socket);
        // S may have died before the fork was done with.
        // SAFETY: no memory is involved.
        if unsafe { libc::getppid() } != plan.owner {
            remove_leaf(plan);
            return None;
        }
        let (children, timer) = event_fds();
        Some(Keeper {
            plan,
            me,
            command: 0,
            in_leaf: false,
            leafless: plan.leaf.is_none(),
            populated: plan.leaf.as_ref().filter(|_| plan.stays).map_or(-1, Leaf::open_events),
            socket,
            children,
            timer,
            deadline: 0,
            inbox: Inbox::default(),
            exited: false,
            late: None,
            untold: None,
            killing: false,
            by_deadline: false,
            killing_since: 0,
            next_round: 0,
            leftovers: None,
        })
    }

    /// The one command, when the order comes; nothing if S goes before.
    fn once_told(self, words: *const Words) -> i32 {
        while let Some((order, _)) = receive_with_fd(self.socket) {
            if let Some(Order::Launch(deadline)) = Order::decode(order) {
                // SAFETY: S laid the words out before it sent the order, and touches them no more before it has our answer.
                return self.once(unsafe { &*words }, deadline);
            }
        }
        remove_leaf(self.plan);
        0
    }

    /// The one command.
    fn once(mut self, words: &Words, deadline: u64) -> i32 {
        let plan = self.plan;
        let launched = self.launch(words, plan.stdio, deadline);
        for fd in plan.stdio {
            // A reader at the other end of the command's output must see it end with the command.
            sys::close(fd);
        }
        match launched {
            true => self.run(),
            false => remove_leaf(plan),
        }
        i32::from(!launched)
    }

    /// One command after the other, until S is gone or something had to be killed.
    fn stay(mut self, words: *const Words) -> i32 {
        let [null, stdout, stderr] = self.plan.stdio;
        while let Some((order, sent)) = receive_with_fd(self.socket) {
            let Some(Order::Launch(deadline)) = Order::decode(order) else {
                // an order about the one before, which was gone when it came
                continue;
            };
            let stdin = if sent >= 0 { sent } else { null };
            // SAFETY: S laid the words out before it sent the order, and touches them no more before it has our answer.
            let launched = self.launch(unsafe { &*words }, [stdin, stdout, stderr], deadline);
            if sent >= 0 {
                sys::close(sent);
            }
            if launched {
                self.run();
                if !self.stays() {
                    break;
                }
                (self.command, self.in_leaf, self.exited, self.leftovers) = (0, false, false, None);
            }
        }
        remove_leaf(self.plan);
        0
    }

    /// A keeper that killed has changed its priority, and one that lost its S has nobody to stay for.
    fn stays(&self) -> bool {
        self.plan.stays && !self.killing && self.socket >= 0 && self.inbox.is_empty()
    }

    /// Start it, and tell. `false`: it did not start.
    fn launch(&mut self, words: &Words, stdio: [RawFd; 3], deadline: u64) -> bool {
        if deadline != self.deadline {
            self.set_deadline(deadline);
        }
        if deadline != 0 && now() >= deadline {
            // S stood still before it gave the order: what it knew when it decided to start this is over
            self.tell(&[News::Failed { stage: STAGE_LATE, errno: libc::ETIME }]);
            return false;
        }
        let leaf = self.plan.leaf.as_ref().filter(|_| !self.leafless).map(Leaf::dir_fd);
        match launch::launch(&Command { plan: self.plan, words, stdio, leaf, keeper: self.me }) {
            Ok(launched) => {
                (self.command, self.in_leaf) = (launched.pid, launched.in_leaf);
                if !self.in_leaf && !self.leafless {
                    self.leafless = true;
                    remove_leaf(self.plan);
                }
                let started = News::Started { pid: launched.pid, in_cgroup: launched.in_leaf };
                match self.plan.stays {
                    true => self.late = Some(started),
                    false => self.tell(&[started]),
                }
                true
            }
            Err(failed) => {
                self.tell(&[News::Failed { stage: failed.stage, errno: failed.errno }]);
                false
            }
        }
    }

    fn run(&mut self) {
        let mut is_first = true;
        loop {
            let childless = self.reap();
            let alone = childless || (self.exited && self.plan.group_only);
            let is_over = alone && self.nothing_left();
            let by_deadline = self.by_deadline;
            let exited = self.untold.take().map(|status| News::Exited { status, by_deadline });
            if is_over {
                self.restore_terminal();
                let leftovers = self.leftovers.unwrap_or(0);
                let gone = News::Gone { leftovers, by_deadline, stays: self.stays() };
                let started = self.late.take();
                self.tell_some([started, exited, Some(gone)]);
                return;
            }
            if exited.is_some() || !is_first {
                let started = self.late.take();
                self.tell_some([started, exited, None]);
            }
            if self.killing && now() >= self.next_round {
                self.kill_round();
            }
            self.await_event(childless);
            is_first = false;
        }
    }

    /// Collect every child that has ended. `true`: there is none left, dead or alive.
    fn reap(&mut self) -> bool {
        loop {
            match sys::wait(-1, libc::WNOHANG | sys::WAIT_ALL) {
                Ok(Some((pid, status))) if pid == self.command => {
                    self.exited = true;
                    self.untold = Some(status);
                }
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    fn nothing_left(&self) -> bool {
        if self.plan.group_only {
            return !sys::kill(self.command.wrapping_neg(), 0) && sys::errno() == libc::ESRCH;
        }
        match &self.plan.leaf {
            Some(leaf) if self.in_leaf && self.populated >= 0 && self.stays() => {
                leaf.is_empty(self.populated)
            }
            Some(leaf) if self.in_leaf => leaf.remove(),
            _ => true,
        }
    }

    fn kill_round(&mut self) {
        let start = now();
        if self.killing_since == 0 {
            self.killing_since = start;
            // A tree that forks as fast as it is killed must not win by its number. Only root may do this.
            // SAFETY: no memory is involved.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
        }
        if self.in_leaf
            && let Some(leaf) = &self.plan.leaf
        {
            // Count first: afterwards they are dead.
            if self.leftovers.is_none() {
                self.signal_tree(&[]);
            }
            leaf.kill();
        }
        self.signal_tree(&[libc::SIGKILL]);
        // The killed need the processor to die, and a sweep over a thousand of them takes it away: sweep for
        // at most half of the time. But be eager, to catch what forks and exits all the while; and after two
        // seconds be patient with what cannot be killed.
        let end = now();
        let patient = end.saturating_sub(self.killing_since) > 2_000_000_000;
        let took = end.saturating_sub(start);
        self.next_round = end.saturating_add(if patient { took.max(50_000_000) } else { took });
    }

    /// Send to every process of the tree, in this order.
    fn signal_tree(&mut self, signals: &[i32]) {
        let met = if self.plan.group_only {
            let mut met = 0;
            for &signo in signals {
                met = u32::from(sys::kill(self.command.wrapping_neg(), signo));
            }
            met
        } else {
            // Should /proc be missing, the command itself and its group are at least reached.
            if !self.exited && signals.contains(&libc::SIGKILL) {
                sys::kill(self.command, libc::SIGKILL);
                if !self.plan.joins_group {
                    sys::kill(self.command.wrapping_neg(), libc::SIGKILL);
                }
            }
            Sweep { root: self.me, signals, spare: &[], since: 0 }.run()
        };
        self.leftovers = self.leftovers.or(Some(if self.exited { met } else { 0 }));
    }

    fn await_event(&mut self, childless: bool) {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut fds = [poll(self.socket), poll(self.children), poll(self.timer)];
        // SAFETY: the array is valid, of the length given. Negative descriptors are skipped.
        let ready = unsafe { libc::poll(fds.as_mut_ptr(), 3, self.patience_ms(childless)) };
        let [socket, children, timer] = fds;
        if ready > 0 {
            if children.revents != 0 {
                drain(self.children);
            }
            if socket.revents != 0 {
                self.obey();
            }
        }
        let late = self.timer < 0 && self.deadline != 0 && now() >= self.deadline;
        if (ready > 0 && timer.revents != 0) || late {
            self.set_deadline(0);
            self.by_deadline = true;
            self.killing = true;
        }
    }

    fn patience_ms(&self, childless: bool) -> i32 {
        if self.late.is_some() {
            return MOMENT_MS;
        }
        // What is left is not all ours to reap, so that nothing would wake us.
        let look_again = self.children < 0 || childless || (self.exited && self.plan.group_only);
        if self.killing {
            let wait = self.next_round.saturating_sub(now());
            return i32::try_from(wait / 1_000_000).unwrap_or(50);
        }
        if look_again { 20 } else { -1 }
    }

    fn obey(&mut self) {
        let order = match self.inbox.receive(self.socket) {
            Received::Message(bytes) => Order::decode(bytes),
            Received::Nothing => None,
            Received::Closed => {
                // S is gone: nobody is left who could ask for mercy.
                sys::close(self.socket);
                self.socket = -1;
                self.killing = true;
                None
            }
        };
        match order {
            Some(Order::Signal(signo)) if !self.exited => {
                let to = if self.plan.joins_group { self.command } else { self.command.wrapping_neg() };
                sys::kill(to, signo);
            }
            // CONT last: a stopped process then wakes up to the TERM.
            Some(Order::TermTree) => self.signal_tree(&[libc::SIGTERM, libc::SIGCONT]),
            Some(Order::KillTree) => self.killing = true,
            Some(Order::Deadline(at)) => self.set_deadline(at),
            Some(Order::Signal(_) | Order::Launch(_)) | None => {}
        }
    }

    fn set_deadline(&mut self, at: u64) {
        self.deadline = at;
        #[cfg(target_os = "linux")]
        crate::clock::arm(self.timer, at);
    }

    fn tell(&self, news: &[News]) {
        let mut bytes = [0; 3 * crate::wire::SIZE];
        let mut length = 0;
        for (news, room) in news.iter().zip(bytes.chunks_exact_mut(crate::wire::SIZE)) {
            room.copy_from_slice(&news.encode());
            length += crate::wire::SIZE;
        }
        if let Some(bytes) = bytes.get(..length).filter(|bytes| !bytes.is_empty()) {
            // S may be gone: then there is nobody to tell.
            let _ = sys::send(self.socket, bytes);
        }
    }

    /// What there is of these, in one.
    fn tell_some(&self, news: [Option<News>; 3]) {
        match news {
            [Some(a), Some(b), Some(c)] => self.tell(&[a, b, c]),
            [Some(a), Some(b), None] | [Some(a), None, Some(b)] | [None, Some(a), Some(b)] => {
                self.tell(&[a, b]);
            }
            [Some(a), None, None] | [None, Some(a), None] | [None, None, Some(a)] => self.tell(&[a]),
            [None, None, None] => {}
        }
    }

    /// With the process group as the only containment the command's group was put in the foreground.
    fn restore_terminal(&self) {
        if self.plan.at_terminal && self.plan.group_only {
            // SAFETY: a valid C string; TTOU is blocked, so this does not stop us.
            unsafe {
                let tty = libc::open(c"/dev/tty".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
                libc::tcsetpgrp(tty, self.plan.owner_group);
                libc::close(tty);
            }
        }
    }
}

fn now() -> u64 {
    crate::clock::nanos(crate::clock::boottime())
}

/// When nothing runs in it, or nothing any more.
fn remove_leaf(plan: &Plan) {
    if let Some(leaf) = &plan.leaf {
        for _ in 0..100 {
            if leaf.remove() {
                return;
            }
            // SAFETY: an empty set of descriptors: sleeps a millisecond.
            unsafe { libc::poll(std::ptr::null_mut(), 0, 1) };
        }
    }
}

fn drain(fd: RawFd) {
    let mut buffer = [0u8; 1024];
    // SAFETY: the buffer is valid for writes of its length; the descriptor does not block.
    unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
}

/// Close all that S had open (its store, other keepers' sockets) but what K and the command need.
fn keep_only(plan: &Plan, socket: RawFd) {
    let [stdin, stdout, stderr] = plan.stdio;
    let [above, dir, kill] = plan.leaf.as_ref().map_or([socket; 3], |leaf| leaf.fds());
    let mut keep = [stdin, stdout, stderr, socket, above, dir, kill];
    keep.sort_unstable();
    sys::close_all_but(&keep);
}

/// One descriptor for ended children, one for the deadline.
#[cfg(target_os = "linux")]
fn event_fds() -> (RawFd, RawFd) {
    // SAFETY: the set is initialised before it is read; no other memory is involved.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        let children = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        let timer = libc::timerfd_create(libc::CLOCK_BOOTTIME, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK);
        (children, timer)
    }
}

#[cfg(not(target_os = "linux"))]
fn event_fds() -> (RawFd, RawFd) {
    (-1, -1)
}
