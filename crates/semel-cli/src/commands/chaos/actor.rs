//! A process of a round, with everything that it started.

#![allow(clippy::disallowed_methods)] // it plays the outside world: schedulers, crashes, power cuts

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

/// The variable by which all processes of an actor are known, whatever their parents and groups are.
const MARK: &str = "CHAOS_MARK";

/// A process and its tree. Killed when dropped.
pub(super) struct Actor {
    child: Child,
    mark: String,
    err: PathBuf,
}

impl Actor {
    /// Start it, with what it says in a file.
    pub(super) fn start(command: &mut Command, err: PathBuf) -> io::Result<Actor> {
        use std::os::unix::process::CommandExt;
        let mark = getrandom::u64().map_err(|why| io::Error::other(why.to_string()))?;
        let mark = format!("{mark:016x}");
        command.env(MARK, &mark).stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&err)?);
        // a group of its own, as a scheduler would give it; Ctrl-C is for us
        let child = command.process_group(0).spawn()?;
        Ok(Actor { child, mark, err })
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Was it itself killed? A run whose command was killed says the same by its exit code.
    pub(super) fn was_killed(&mut self) -> io::Result<bool> {
        use std::os::unix::process::ExitStatusExt;
        Ok(self.ended()?.and_then(|status| status.signal()) == Some(libc::SIGKILL))
    }

    /// The last line that it said: the command's own, if it said anything.
    pub(super) fn said(&self) -> String {
        let text = fs::read(&self.err).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
        let line = lines().rfind(|line| !line.starts_with("semel: ")).or_else(|| lines().next_back());
        line.unwrap_or("it said nothing").to_owned()
    }

    /// The process alone.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// To all that it started, and to itself.
    pub(super) fn signal_all(&self, signo: i32) {
        for pid in carrying(&self.mark) {
            send(pid, signo);
        }
    }

    /// Has all of it come to stand, as far as it lives?
    pub(super) fn is_stopped(&self) -> bool {
        let stands = |pid: i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            // one that waits for a child which is to become another program stands when that one goes on
            matches!(state, None | Some('T' | 't' | 'D' | 'Z' | 'X'))
        };
        carrying(&self.mark).into_iter().all(stands)
    }

    /// To what it runs, not to Semel and its keepers.
    pub(super) fn signal_command(&self, signo: i32) {
        self.command().into_iter().for_each(|pid| send(pid, signo));
    }

    /// Is anything of the command alive?
    pub(super) fn runs_its_command(&self) -> bool {
        !self.command().is_empty()
    }

    fn command(&self) -> Vec<i32> {
        let is_semel = |pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with("semel"))
        };
        let mut alive = carrying(&self.mark);
        alive.retain(|pid| !is_semel(pid));
        alive
    }

    /// End all of it, as a power cut would.
    pub(super) fn kill_all(&mut self) {
        // what forks meanwhile is found the next time
        for _ in 0..100 {
            let alive = carrying(&self.mark);
            if alive.is_empty() {
                break;
            }
            alive.into_iter().for_each(|pid| send(pid, libc::SIGKILL));
            let _ = self.child.try_wait();
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.kill_all();
    }
}

fn send(pid: i32, signo: i32) {
    // SAFETY: no memory is involved; a process that is gone is no concern here.
    unsafe { libc::kill(pid, signo) };
}

/// The living processes that were started with this mark.
fn carrying(mark: &str) -> Vec<i32> {
    let wanted = format!("{MARK}={mark}");
    let is_ours = |pid: &i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|part| part == wanted.as_bytes())
    };
    let listed = fs::read_dir("/proc").into_iter().flatten().flatten();
    listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ours).collect()
}
