//! How the faults of a plan strike a round.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use super::super::check;
use super::super::contender::lines;
use super::super::nemesis::{Aim, Fault, Strike};
use super::super::procs;
use super::{LOOK, Round};

/// The longest wait for what a fault is aimed at.
const AIM: Duration = Duration::from_secs(3);
/// The longest that one who is suspended waits for a newer holder's write.
const NEWER: Duration = Duration::from_secs(4);

impl Round<'_> {
    /// Wait for what it is aimed at; false if all had ended before.
    pub(super) fn takes_aim(&mut self, strike: &Strike, is_first: bool) -> bool {
        let begun = Instant::now();
        let at_first = if is_first { 0 } else { self.aimed_at(strike.aim) };
        let is_due = |round: &Self| {
            strike.aim == Aim::Blind || round.aimed_at(strike.aim) > at_first || begun.elapsed() > AIM
        };
        while !is_due(self) {
            if self.alive().is_empty() {
                return false;
            }
            self.sleep(LOOK);
        }
        self.pause(strike.after_ms);
        !self.alive().is_empty()
    }

    /// How much there is of what it is aimed at.
    fn aimed_at(&self, aim: Aim) -> u64 {
        let size = |name: &str| fs::metadata(self.dir.join(name)).map_or(0, |found| found.len());
        match aim {
            Aim::Blind => 0,
            Aim::Begun => size("starts"),
            Aim::Effect if self.contender.has_target() => size("accepted"),
            Aim::Effect => size("effects"),
            Aim::Held => check::begun(self.contender, &self.dir).unwrap_or(0),
        }
    }

    /// The one that holds the lease, as far as is known from outside; or any.
    fn victim(&mut self, strike: &Strike) -> Option<usize> {
        let alive = self.alive();
        let starts = lines(&self.dir, "starts");
        let holder = starts.last().and_then(|line| line.split(' ').nth(1)?.parse::<usize>().ok());
        let holder = holder.filter(|holder| alive.contains(holder));
        // one that is stopped before it begins could begin an unfenced effect on waking
        if strike.fault.is_stop() && !self.contender.has_target() && !self.contender.is_control() {
            return holder;
        }
        let other = alive.get(strike.after_ms as usize % alive.len().max(1)).copied();
        holder.filter(|_| !strike.is_stray).or(other)
    }

    pub(super) fn strike(&mut self, strike: &Strike, index: usize) {
        let fault = strike.fault;
        let Some(victim) = self.victim(strike) else { return };
        let pid = self.firings[victim].pid();
        let struck = match fault {
            Fault::KillSemel => {
                procs::signal(pid, libc::SIGKILL);
                true
            }
            Fault::KillCommand => self.kill_command(strike),
            Fault::KillAll => {
                let all = procs::descendants(pid, &self.mark);
                for pid in std::iter::once(pid).chain(all) {
                    procs::signal(pid, libc::SIGKILL);
                }
                true
            }
            Fault::StopSemel => self.stop(&[pid], strike),
            Fault::Suspend => {
                procs::signal(pid, libc::SIGSTOP);
                let mut all = procs::descendants(pid, &self.mark);
                all.iter().for_each(|pid| procs::signal(*pid, libc::SIGSTOP));
                // what was started meanwhile
                all = procs::descendants(pid, &self.mark);
                all.iter().for_each(|pid| procs::signal(*pid, libc::SIGSTOP));
                all.push(pid);
                self.stop(&all, strike)
            }
            Fault::Cut | Fault::Delay | Fault::LoseReply | Fault::Swallow => self.disturb(strike),
            Fault::Clock => self.step_clock(index + 1),
            Fault::DiskFull => self.fill(strike),
            Fault::KillServer => self.arena.kill_server(),
            // it strikes by itself
            Fault::DiskError => false,
        };
        if struck {
            self.note(format!(
                "{} at firing {victim}, {:?} + {} ms",
                fault.name(),
                strike.aim,
                strike.after_ms
            ));
            self.outcome.faults.push(fault);
            if strike.refires && !fault.is_stop() {
                self.fire(strike.is_stray);
            }
        }
    }

    fn kill_command(&mut self, strike: &Strike) -> bool {
        let pids = lines(&self.dir, "pids");
        let back = if strike.is_stray { 2 } else { 1 };
        let pid = pids.len().checked_sub(back).and_then(|index| pids[index].parse::<i32>().ok());
        match pid.filter(|pid| procs::carries(*pid, &self.mark)) {
            Some(pid) => {
                procs::signal(pid, libc::SIGKILL);
                true
            }
            None => false,
        }
    }

    /// Stopped past the ttl, while another fires.
    fn stop(&mut self, pids: &[i32], strike: &Strike) -> bool {
        pids.iter().for_each(|pid| procs::signal(*pid, libc::SIGSTOP));
        let name = strike.fault.name();
        self.note(format!("{name}: {pids:?} stopped"));
        let before = self.aimed_at(Aim::Effect);
        self.fire(true);
        self.pause(strike.hold_ms);
        // where tokens could be checked it wakes when a newer holder has written, if one does
        if self.contender.has_target() {
            self.watch(NEWER, |round| round.aimed_at(Aim::Effect) > before || round.alive().len() <= 1);
        }
        let written = self.aimed_at(Aim::Effect);
        let newer = if written > before { "a newer one has written" } else { "nobody has written" };
        self.note(format!("{name}: it wakes, {newer}"));
        // stopped inside a write, it may be the one that keeps the newer holder from writing
        let gap_ms = if self.contender.has_target() && written == before { 0 } else { strike.gap_ms };
        // what the command started, before those who would end it
        let commands = lines(&self.dir, "pids");
        let commands: Vec<i32> = commands.iter().filter_map(|pid| pid.parse().ok()).collect();
        let commands: Vec<i32> = pids.iter().copied().filter(|pid| commands.contains(pid)).collect();
        for command in &commands {
            for pid in std::iter::once(*command).chain(procs::descendants(*command, &self.mark)) {
                procs::signal(pid, libc::SIGCONT);
            }
        }
        let mark = self.mark.clone();
        self.watch(Duration::from_millis(gap_ms), |round| {
            let has_ended = !commands.iter().any(|pid| procs::carries(*pid, &mark));
            has_ended || round.aimed_at(Aim::Effect) > written
        });
        pids.iter().for_each(|pid| procs::signal(*pid, libc::SIGCONT));
        true
    }

    /// Look until it is so, or for so long.
    fn watch(&mut self, longest: Duration, is_so: impl Fn(&mut Self) -> bool) {
        let since = Instant::now();
        while since.elapsed() < longest && !is_so(self) {
            self.pause(LOOK.as_millis() as u64);
        }
    }

    fn disturb(&mut self, strike: &Strike) -> bool {
        let Some(proxy) = &self.lane.proxy else { return false };
        let met = proxy.met();
        match strike.fault {
            Fault::Cut => proxy.cut(),
            Fault::Delay => proxy.delay(Duration::from_millis(10 + strike.hold_ms / 8)),
            Fault::LoseReply => proxy.lose_replies(1 + u32::from(strike.is_stray)),
            _ => proxy.swallow(),
        }
        if strike.refires {
            self.fire(strike.is_stray);
        }
        self.pause(strike.hold_ms);
        proxy.pass();
        if strike.fault == Fault::Swallow {
            proxy.break_all();
        }
        self.has_met(strike.fault, proxy.met() > met)
    }

    /// A fault that nobody was there to meet is none.
    fn has_met(&mut self, fault: Fault, met: bool) -> bool {
        if !met {
            self.note(format!("{}: nobody met it", fault.name()));
        }
        met
    }

    pub(super) fn step_clock(&mut self, index: usize) -> bool {
        let at = ["+1h", "-1h", "+0", "+26h"][(self.shim_seed as usize + index) % 4];
        self.note(format!("the clock is at {at}"));
        let draft = self.dir.join("clock.new");
        let written =
            fs::write(&draft, format!("{at}\n")).and_then(|()| fs::rename(draft, self.dir.join("clock")));
        written.is_ok() && at != "+0"
    }

    /// No space left, for a while.
    fn fill(&mut self, strike: &Strike) -> bool {
        use std::io::Write;
        let Some(disk) = &self.lane.disk else { return false };
        let ballast = disk.join("ballast");
        let Ok(mut file) = File::create(&ballast) else { return false };
        let page = [0u8; 4096];
        while file.write_all(&page).is_ok() {}
        drop(file);
        if strike.refires {
            self.fire(strike.is_stray);
        }
        self.pause(strike.hold_ms);
        let emptied = fs::remove_file(ballast).is_ok();
        let met = self.dir.join("full").exists();
        self.has_met(strike.fault, emptied && met)
    }
}
