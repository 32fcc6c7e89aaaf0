//! One round: two or three firings of one work, faults while they are at it, peace, retries until it is done, and a
//! count of its effects outside.

mod strike;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use semel_testkit::Chance;

use super::answer::{self, Answer, Said};
use super::arena::{Arena, Lane, isolated};
use super::check::{self, Evidence, Verdicts};
use super::contender::{Contender, Fire, ITEMS, Wrong, fire, lines};
use super::nemesis::{Fault, Plan};
use super::procs;

/// How often conditions are looked at.
const LOOK: Duration = Duration::from_millis(3);
/// The most firings of a round.
const TRIES: usize = 300;
/// How often the ttl is doubled, at the most, once the faults have ended.
const LONGER: u32 = 5;
/// How many firings of a failing round are told in full.
const TOLD: usize = 16;

/// How a round came out.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) faults: Vec<Fault>,
    pub(crate) doubled: u64,
    pub(crate) lost: u64,
    /// An unknown outcome that was not reported: it was repeated, or taken for done.
    pub(crate) unreported: u64,
    /// A token that went back.
    pub(crate) stale: u64,
    /// An answer "done" while the effect was not there.
    pub(crate) untrue: u64,
    /// It did not come to an end.
    pub(crate) stuck: bool,
    /// How often a person was asked for.
    pub(crate) doubts: u64,
    pub(crate) history: Vec<String>,
}

impl Outcome {
    pub(crate) fn is_clean(&self) -> bool {
        Wrong::ALL.into_iter().all(|wrong| self.many(wrong) == 0)
    }

    pub(crate) fn many(&self, wrong: Wrong) -> u64 {
        match wrong {
            Wrong::Doubled => self.doubled,
            Wrong::Lost => self.lost,
            Wrong::Unreported => self.unreported,
            Wrong::Stale => self.stale,
            Wrong::Untrue => self.untrue,
            Wrong::Stuck => u64::from(self.stuck),
        }
    }
}

/// A process of ours: killed and reaped when the round ends.
struct Firing {
    child: Child,
    code: Option<i32>,
    answer: Option<Answer>,
}

impl Firing {
    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn has_ended(&mut self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        if self.code.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            self.code = Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)));
        }
        self.code.is_some()
    }
}

/// A round under way.
pub(crate) struct Round<'a> {
    arena: &'a Arena,
    lane: &'a Lane,
    pub(crate) contender: Contender,
    pub(crate) plan: Plan,
    pub(crate) dir: PathBuf,
    pub(crate) work: String,
    mark: String,
    store: String,
    begun: Instant,
    firings: Vec<Firing>,
    is_at_peace: bool,
    /// How often the ttl was doubled since: on a machine that has too much to do a lease may end before it is renewed.
    longer: u32,
    /// By how much a short sleep came too late, at the most.
    late: Duration,
    pub(crate) outcome: Outcome,
    verdicts: Verdicts,
    /// What the fenced file said, each time that it was looked at.
    pub(crate) seen: Vec<u64>,
    shim_seed: u64,
}

impl<'a> Round<'a> {
    /// Play it to its end.
    pub(crate) fn play(
        arena: &'a Arena,
        lane: &'a Lane,
        contender: Contender,
        name: &str,
        chance: &mut Chance,
    ) -> Result<Outcome, String> {
        let plan = Plan::draw(chance, contender, &arena.arms);
        let dir = arena.base.join(name);
        fs::create_dir_all(&dir).map_err(|why| format!("{}: {why}", dir.display()))?;
        let store = match &lane.disk {
            Some(disk) if plan.has(Fault::DiskFull) => {
                let _ = fs::create_dir(disk.join(name));
                let scheme = lane.store.split(':').next().unwrap_or("sqlite");
                format!("{scheme}:{}/{name}/ledger", disk.display())
            }
            _ => lane.store.clone(),
        };
        let mut round = Round {
            arena,
            lane,
            contender,
            mark: format!("TORTURE={}", dir.display()),
            work: name.to_owned(),
            dir,
            store,
            plan,
            begun: Instant::now(),
            firings: Vec::new(),
            is_at_peace: false,
            longer: 0,
            late: Duration::ZERO,
            outcome: Outcome::default(),
            verdicts: Verdicts::default(),
            seen: Vec::new(),
            shim_seed: chance.next(),
        };
        round.prepare()?;
        round.attack();
        round.make_peace();
        if !round.outcome.stuck {
            round.converge();
        }
        round.judge();
        Ok(round.close())
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            contender: self.contender,
            dir: &self.dir,
            work: &self.work,
            sink: self.arena.sink.as_deref(),
            has_stops: self.plan.strikes.iter().any(|strike| strike.fault.is_stop()),
            shares: self.plan.shares,
            seen: &self.seen,
            verdicts: &self.verdicts,
            is_done: self.firings.iter().filter_map(|firing| firing.answer.as_ref()).any(Answer::says_done),
        }
    }

    fn judge(&mut self) {
        match check::check(&self.evidence()) {
            Ok(found) => {
                self.outcome.doubled += found.doubled;
                self.outcome.lost += found.lost;
                self.outcome.unreported += found.unreported;
                self.outcome.stale += found.stale;
                found.notes.into_iter().for_each(|line| self.note(line));
            }
            Err(why) => self.uncounted(why),
        }
    }

    /// What cannot be counted is not taken for well.
    fn uncounted(&mut self, why: String) {
        self.note(why);
        self.outcome.stuck = true;
    }

    pub(crate) fn note(&mut self, what: impl std::fmt::Display) {
        let line = format!("{:6} ms  {what}", self.begun.elapsed().as_millis());
        self.outcome.history.push(line);
    }

    fn prepare(&mut self) -> Result<(), String> {
        self.note(format!("{:?}", self.plan));
        let write =
            |name: &str, text: &str| fs::write(self.dir.join(name), text).map_err(|why| why.to_string());
        write("effects", "")?;
        write("clock", "+0\n")?;
        match self.contender {
            Contender::Batch => {
                let items: String = (0..ITEMS).map(|n| format!("item-{n}\n")).collect();
                write("items", &items)
            }
            Contender::Push | Contender::GitLoop => {
                copy(&self.arena.template("remote.git"), &self.dir.join("remote.git"))
                    .map_err(|why| why.to_string())
            }
            Contender::Sql | Contender::PlainSql => {
                let copied = fs::copy(self.arena.template("user.db"), self.dir.join("user.db"));
                copied.map(drop).map_err(|why| why.to_string())
            }
            _ => Ok(()),
        }
    }

    /// Any program of this round.
    pub(crate) fn furnished(&self, command: &mut Command) {
        command.env_clear().current_dir(&self.dir).stdin(Stdio::null()).stdout(Stdio::null());
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        let state = match &self.lane.disk {
            Some(disk) if self.plan.has(Fault::DiskFull) => disk.join(&self.work),
            _ => self.arena.base.join(format!("state{}", self.lane.number)),
        };
        command.env("HOME", &self.dir).env("XDG_STATE_HOME", state).env("TZ", "UTC").env("LANG", "C.UTF-8");
        command.env("TORTURE", &self.dir).env("SEMEL", &self.arena.semel).env("SEMEL_STORE", &self.store);
        command.env("WORK", &self.work).envs(self.arena.variables.iter().map(|(name, value)| (*name, value)));
        if let Some(port) = self.arena.redis_port() {
            command.env("REDIS", port.to_string());
        }
        if let Some(sink) = &self.arena.sink {
            command.env("SINK", sink);
        }
        if self.contender.is_plain() {
            command.env("PLAIN", "1");
        }
        isolated(command);
    }

    /// Preloaded libraries: only while the attack lasts.
    fn armed(&self, command: &mut Command) {
        if self.is_at_peace {
            return;
        }
        let Some(shim) = &self.arena.shim else { return };
        let mut libraries = vec![shim.display().to_string()];
        if self.plan.has(Fault::DiskError) {
            let mut chance = Chance::with_seed(self.shim_seed.wrapping_add(self.firings.len() as u64));
            let under = self.arena.files.clone().unwrap_or_else(|| self.arena.base.join("store"));
            command.env("SHIM_UNDER", under).env("SHIM_SEED", chance.next().to_string());
            command.env("SHIM_ODDS", chance.of(&["4", "12", "40"])).env("SHIM_LOG", self.dir.join("shim"));
            command.env("SHIM_KIND", chance.of(&["eio", "enospc", "short"]));
        }
        if let Some(library) = self.arena.faketime.as_ref().filter(|_| self.plan.has(Fault::Clock)) {
            libraries.push(library.display().to_string());
            command.env("FAKETIME_TIMESTAMP_FILE", self.dir.join("clock")).env("FAKETIME_NO_CACHE", "1");
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("NO_FAKE_STAT", "1");
        }
        if let Some(disk) = self.lane.disk.as_ref().filter(|_| self.plan.has(Fault::DiskFull)) {
            command.env("SHIM_WATCH", disk).env("SHIM_FULL", self.dir.join("full"));
        }
        if [Fault::DiskError, Fault::DiskFull, Fault::Clock].into_iter().any(|fault| self.plan.has(fault)) {
            command.env("LD_PRELOAD", libraries.join(" "));
        }
    }

    fn fire(&mut self, waits: bool) -> usize {
        let number = self.firings.len();
        let mut command = fire(
            self.contender,
            &Fire {
                semel: &self.arena.semel,
                scripts: &self.arena.scripts(),
                work: &self.work,
                ttl_ms: self.plan.ttl_ms << self.longer,
                waits,
                shares: self.plan.shares,
                in_postgres: self.arena.sink.is_some(),
            },
        );
        self.furnished(&mut command);
        self.armed(&mut command);
        command.env("FIRING", number.to_string());
        command.env("FIRST", seconds(self.plan.first_before_ms)).env("BEFORE", seconds(self.plan.before_ms));
        command.env("AFTER", seconds(self.plan.after_ms));
        match File::create(self.dir.join(format!("err.{number}"))) {
            Ok(file) => command.stderr(file),
            Err(_) => command.stderr(Stdio::null()),
        };
        match command.spawn() {
            Ok(child) => {
                self.note(format!(
                    "firing {number}: pid {}{}",
                    child.id(),
                    if waits { ", waits" } else { "" }
                ));
                self.firings.push(Firing { child, code: None, answer: None });
            }
            Err(why) => self.note(format!("firing {number}: {why}")),
        }
        number
    }

    /// Which of them live.
    fn alive(&mut self) -> Vec<usize> {
        let mut alive = Vec::new();
        let mut ended = Vec::new();
        for (number, firing) in self.firings.iter_mut().enumerate() {
            let was_known = firing.code.is_some();
            match (firing.has_ended(), firing.code) {
                (true, Some(code)) if !was_known => ended.push((number, code)),
                (false, _) => alive.push(number),
                _ => {}
            }
        }
        self.look_at_target();
        for (number, code) in ended {
            self.hears(number, code);
        }
        alive
    }

    /// What a firing answered, held against what is there now.
    fn hears(&mut self, number: usize, code: i32) {
        let answer = match self.contender.is_control() && !self.contender.is_plain() {
            true => Answer::of_control(code),
            false => Answer::of_semel(code, &lines(&self.dir, &format!("err.{number}"))),
        };
        self.note(format!("firing {number}: exit {code}: {}", answer.word));
        if self.contender.shows(Wrong::Untrue) {
            match check::missing(&self.evidence(), &answer) {
                Ok(0) => {}
                Ok(many) => {
                    self.outcome.untrue += many;
                    self.note(format!("firing {number} says done, and {many} effects are not there"));
                }
                Err(why) => self.uncounted(why),
            }
        }
        self.firings[number].answer = Some(answer);
    }

    fn said_by(&self, number: usize) -> Option<Said> {
        self.firings.get(number)?.answer.as_ref().map(|answer| answer.said)
    }

    /// What the fenced file says now.
    fn look_at_target(&mut self) {
        if matches!(self.contender, Contender::Write | Contender::PlainWrite)
            && let Ok(text) = fs::read_to_string(self.dir.join("target"))
            && let Ok(token) = text.trim().parse()
            && self.seen.last() != Some(&token)
        {
            self.seen.push(token);
        }
    }

    fn attack(&mut self) {
        let kills = self.arena.kills.load(Ordering::SeqCst);
        if self.plan.has(Fault::Clock) && self.step_clock(0) {
            self.outcome.faults.push(Fault::Clock);
        }
        let firings = self.plan.firings.clone();
        for (after_ms, waits) in firings {
            self.pause(after_ms);
            self.fire(waits);
        }
        let strikes = self.plan.strikes.clone();
        for (index, strike) in strikes.iter().enumerate() {
            if !self.takes_aim(strike, index == 0) && strike.fault != Fault::DiskError {
                self.note(format!("{}: nobody is left to strike", strike.fault.name()));
                break;
            }
            self.strike(strike, index);
        }
        if self.plan.has(Fault::DiskError) && self.dir.join("shim").exists() {
            self.note("disk-error: some calls failed");
            self.outcome.faults.push(Fault::DiskError);
        }
        if kills != self.arena.kills.load(Ordering::SeqCst)
            && !self.outcome.faults.contains(&Fault::KillServer)
        {
            self.note("kill-server: another round killed it under this one");
            self.outcome.faults.push(Fault::KillServer);
        }
    }

    /// Sleep, and see what ends.
    fn pause(&mut self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.sleep(left.min(LOOK));
            self.look_at_target();
        }
    }

    /// Sleep, and see how late it gets.
    fn sleep(&mut self, time: Duration) {
        let begun = Instant::now();
        std::thread::sleep(time);
        self.late = self.late.max(begun.elapsed().saturating_sub(time));
    }

    /// It does not come to its end; what the machine had to do with it is told.
    fn is_stuck(&mut self) {
        self.outcome.stuck = true;
        self.note(format!("stuck; a sleep of a few ms took up to {} ms longer", self.late.as_millis()));
    }

    /// The faults end; all that was fired comes to its end.
    fn make_peace(&mut self) {
        self.is_at_peace = true;
        let _ = fs::write(self.dir.join("clock"), "+0\n");
        self.wait_for_all();
        self.note("peace");
    }

    fn wait_for_all(&mut self) {
        let begun = Instant::now();
        while !self.alive().is_empty() {
            if begun.elapsed() > self.arena.patience {
                self.note("they do not end");
                return self.is_stuck();
            }
            self.sleep(LOOK);
        }
    }

    /// Fire until it is done.
    fn converge(&mut self) {
        self.fire_until_done();
        self.arena.spared.store(false, Ordering::SeqCst);
    }

    fn fire_until_done(&mut self) {
        let begun = Instant::now();
        let mut pause_ms = 0;
        while begun.elapsed() < self.arena.patience && self.firings.len() < TRIES {
            let number = self.fire(true);
            self.wait_for_all();
            if begun.elapsed() > self.arena.patience / 9 {
                // the faults have ended for this one: those of the server, too
                self.arena.spared.store(true, Ordering::SeqCst);
            }
            match self.said_by(number) {
                Some(Said::Done | Said::WasDone) => {
                    if self.plan.has_late {
                        self.fire(false);
                        self.wait_for_all();
                    }
                    return;
                }
                Some(Said::Doubt) => self.resolve(number),
                Some(_) if self.is_locked(number) => self.unlock(),
                // one who is told that the lease was lost, and nobody is there to take it, asks for a longer one
                Some(Said::Lost) => self.longer = (self.longer + 1).min(LONGER),
                // a lock that nobody gives back: 100 ms are short enough for its ttl
                _ => pause_ms = (pause_ms * 2).clamp(20, 500),
            }
            self.pause(pause_ms);
        }
        self.is_stuck();
    }

    /// A git that was killed in the remote left its lock there, and that was said.
    fn is_locked(&self, number: usize) -> bool {
        matches!(self.contender, Contender::Push | Contender::GitLoop) && self.said(number).contains(".lock")
    }

    /// The person who is told so: nobody of this round is at work now.
    fn unlock(&mut self) {
        let mut folders = vec![self.dir.join("remote.git")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|ending| ending == "lock") {
                    self.note(format!("a person removes {}", path.display()));
                    let _ = fs::remove_file(path);
                }
            }
        }
    }

    /// A person is asked: the truth is outside.
    fn resolve(&mut self, number: usize) {
        self.outcome.doubts += 1;
        let said = self.said(number);
        let key = said.split("semel resolve ").nth(1).and_then(|rest| rest.split(' ').next());
        let Some(key) = key.map(|key| key.trim_matches('\'').to_owned()) else {
            self.note(format!("79 without a hint: {said}"));
            return;
        };
        let effects = lines(&self.dir, "effects");
        let happened = match self.contender {
            Contender::Steps => {
                key.rsplit('~').next().is_some_and(|step| effects.iter().any(|line| line == step))
            }
            Contender::Batch => {
                let item = answer::item(&key);
                effects.iter().any(|line| line.split(' ').next() == item.as_deref())
            }
            _ => !effects.is_empty(),
        };
        let verdict = if happened { "--done" } else { "--not-done" };
        let mut command = Command::new(&self.arena.semel);
        command.args(["resolve", &key, verdict, "--because", "it was looked for"]);
        self.furnished(&mut command);
        let code = command.stderr(Stdio::null()).status().ok().and_then(|status| status.code());
        self.note(format!("resolve {key} {verdict}: {code:?}"));
        // 69: the store was asked, and its answer was lost; the verdict may stand
        let is_judged = self.contender != Contender::Steps || key.rsplit('~').next() == Some("three");
        match code {
            Some(0 | 69) if is_judged && happened => self.verdicts.done += 1,
            Some(0 | 69) if is_judged => {
                self.verdicts.not_done.extend(check::begun(self.contender, &self.dir))
            }
            _ => {}
        }
    }

    /// What a firing said on stderr.
    pub(crate) fn said(&self, number: usize) -> String {
        lines(&self.dir, &format!("err.{number}")).join(" / ")
    }

    /// What is left is ended; a clean round leaves nothing.
    fn close(mut self) -> Outcome {
        for index in self.alive() {
            let pid = self.firings[index].pid();
            for pid in std::iter::once(pid).chain(procs::descendants(pid, &self.mark)) {
                procs::signal(pid, libc::SIGKILL);
            }
            let _ = self.firings[index].child.wait();
        }
        for pid in lines(&self.dir, "pids").iter().filter_map(|pid| pid.parse().ok()) {
            if procs::carries(pid, &self.mark) {
                procs::signal(pid, libc::SIGKILL);
            }
        }
        if let Some(proxy) = &self.lane.proxy {
            proxy.pass();
            proxy.break_all();
        }
        if let Some(disk) = &self.lane.disk {
            let _ = fs::remove_file(disk.join("ballast"));
            let _ = fs::remove_dir_all(disk.join(&self.work));
        }
        if self.outcome.is_clean() || self.contender.is_control() {
            let _ = fs::remove_dir_all(&self.dir);
        } else {
            for number in (0..self.firings.len()).take(TOLD) {
                let said = self.said(number);
                self.outcome.history.push(format!("           firing {number} said: {said}"));
            }
            for name in ["starts", "effects", "begun", "ended", "accepted"] {
                let said = lines(&self.dir, name).join(", ");
                self.outcome.history.push(format!("           {name}: {said}"));
            }
        }
        self.outcome
    }
}

fn seconds(ms: u64) -> String {
    if ms == 0 { "0".to_owned() } else { format!("{}.{:03}", ms / 1_000, ms % 1_000) }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to).map(drop)?;
        }
    }
    Ok(())
}
