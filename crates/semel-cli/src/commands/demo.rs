//! `semel demo`: real processes, really killed, once through plain commands and once through Semel.
//!
//! What happened is counted in files that the commands write, never in Semel's own ledger. The plain column is
//! not a straw man: its scripts look before they act and lock with a time limit, as such scripts do.

#![allow(clippy::disallowed_methods)] // it plays the outside world: other schedulers, other processes, a stopwatch

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::args::{Common, DemoArgs};
use crate::out::{print, print_json};
use crate::trouble::Trouble;

/// What one way of doing it came to.
struct Count {
    /// Effects in the world, or stale writes that landed.
    found: usize,
    right: usize,
}

struct Scene {
    title: &'static str,
    unit: &'static str,
    plain: Count,
    semel: Count,
}

/// How long anything here may take before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn run(common: &Common, args: &DemoArgs) -> Result<u8, Trouble> {
    let began = Instant::now();
    let stage = Stage::new(args.seed)
        .map_err(|why| Trouble::config(format!("the demo has no place to play: {why}")))?;
    if !common.json {
        print("Each scene runs twice, with real processes: as a plain script, and through Semel.");
        print("");
    }
    let scenes = [Stage::two_triggers, Stage::killed_after_the_effect, Stage::stalled_holder];
    let mut played = Vec::new();
    for scene in scenes {
        let scene = scene(&stage).map_err(|why| Trouble::config(format!("the demo failed: {why}")))?;
        if common.json {
            print_json(json!({
                "kind": "scene", "title": scene.title, "counts": scene.unit,
                "plain": scene.plain.found, "semel": scene.semel.found, "right": scene.semel.right,
            }));
        }
        played.push(scene);
    }
    let wrong = played.iter().any(|scene| scene.semel.found != scene.semel.right);
    if !common.json {
        table(&played, began.elapsed());
    }
    Ok(u8::from(wrong))
}

fn table(scenes: &[Scene], took: Duration) {
    let line = |a: &str, b: &str, c: &str| print(format!("  {a:<62} {b:>12}  {c:>12}").trim_end());
    line("", "plain script", "with Semel");
    for scene in scenes {
        let cell = |count: &Count| {
            let mark = if count.found == count.right { "✓" } else { "✗" };
            let unit = if count.found == 1 { scene.unit.trim_end_matches('s') } else { scene.unit };
            format!("{} {unit} {mark}", count.found)
        };
        line(scene.title, &cell(&scene.plain), &cell(&scene.semel));
    }
    print("");
    print(&format!(
        "Counted in the files that the commands wrote, in {:.1} s. Try it: semel run --job hello --once -- echo hello",
        took.as_secs_f64()
    ));
}

/// A private directory, and what is started in it.
struct Stage {
    dir: PathBuf,
    seed: u64,
}

impl Stage {
    fn new(seed: u64) -> io::Result<Stage> {
        use std::os::unix::fs::DirBuilderExt;
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|why| io::Error::other(why.to_string()))?;
        let dir = std::env::temp_dir().join(format!("semel-demo-{:016x}", u64::from_ne_bytes(bytes)));
        fs::DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(Stage { dir, seed })
    }

    /// A fresh place for one scene in one of the two ways.
    fn place(&self, name: &str) -> io::Result<Place> {
        let dir = self.dir.join(name);
        fs::create_dir(&dir)?;
        Ok(Place { dir })
    }

    /// A pause that the seed decides: which moment is hit must not matter.
    fn pause(&self, scene: u64) {
        let mixed =
            (self.seed ^ scene.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        std::thread::sleep(Duration::from_millis((mixed >> 32) % 40));
    }

    /// The scheduler fires twice. Both look whether it was done, both find that it was not, both do it.
    fn two_triggers(&self) -> io::Result<Scene> {
        let post = "grep -qs post effects || { sleep 0.3; echo post >> effects; }";
        let play = |place: Place, trigger: &dyn Fn(&Place) -> Command| -> io::Result<usize> {
            let mut first = place.start(&mut trigger(&place))?;
            self.pause(1);
            let mut second = place.start(&mut trigger(&place))?;
            first.wait()?;
            second.wait()?;
            place.effects()
        };
        let plain = play(self.place("1-plain")?, &|_| sh(post))?;
        let semel = play(self.place("1-semel")?, &|place| place.semel(&["--job", "post", "--once"], post))?;
        Ok(Scene {
            title: "two triggers fire the same work at once",
            unit: "posts",
            plain: Count { found: plain, right: 1 },
            semel: Count { found: semel, right: 1 },
        })
    }

    /// The run dies after its effect and before anybody could write that down. The scheduler tries again.
    fn killed_after_the_effect(&self) -> io::Result<Scene> {
        let post = "echo post >> effects; touch posted; sleep 30";
        let again = "echo post >> effects";
        let play = |place: Place, trigger: &dyn Fn(&Place, &str) -> Command| -> io::Result<usize> {
            let mut first = place.start(&mut trigger(&place, post))?;
            place.wait_for("posted")?;
            self.pause(2);
            first.kill()?;
            place.start(&mut trigger(&place, again))?.wait()?;
            place.effects()
        };
        let plain = play(self.place("2-plain")?, &|_, script| sh(&format!("exec sh -c '{script}'")))?;
        let semel = play(self.place("2-semel")?, &|place, script| {
            place.semel(&["--job", "post", "--once", "--probe", "grep -q post effects"], script)
        })?;
        Ok(Scene {
            title: "killed -9 right after its effect, then retried (with a probe)",
            unit: "posts",
            plain: Count { found: plain, right: 1 },
            semel: Count { found: semel, right: 1 },
        })
    }

    /// A holder stalls, its lock runs out, another takes over and writes. Then the first wakes up and writes.
    fn stalled_holder(&self) -> io::Result<Scene> {
        // a lock file with a time limit: taken if it is missing or older than a second
        let lock = "if [ -e lock ] && [ $(( $(date +%s%N) - $(cat lock) )) -lt 1000000000 ]; then exit 1; fi; date +%s%N > lock;";
        let old =
            "touch holding; while [ ! -e go ]; do sleep 0.02; done; echo old > site && echo old >> effects";
        let new = "echo new > site";
        let play = |place: Place, trigger: &dyn Fn(&Place, &str) -> Command| -> io::Result<usize> {
            let mut first = place.start(&mut trigger(&place, old))?;
            place.wait_for("holding")?;
            self.pause(3);
            let stalled = place.stall(&first)?;
            place.until("the second writer had its turn", || {
                let second = place.start(&mut trigger(&place, new))?.wait()?;
                Ok(second.success() && place.dir.join("site").exists())
            })?;
            fs::write(place.dir.join("go"), "")?;
            stalled.wake();
            first.wait()?;
            let site = fs::read_to_string(place.dir.join("site"))?;
            Ok(place.effects()?.max(usize::from(site.trim() != "new")))
        };
        let plain = play(self.place("3-plain")?, &|_, script| sh(&format!("{lock} {script}")))?;
        let semel = play(self.place("3-semel")?, &|place, script| {
            let slot = if script == new { "new" } else { "old" };
            let with = ["--job", "deploy", "--slot", slot, "--ttl", "1s", "--if-busy", "fail"];
            // the one difference inside: the write is fenced
            let fenced =
                script.replace(&format!("echo {slot} > site"), &format!("echo {slot} | \"$0\" write site"));
            place.semel(&with, &fenced)
        })?;
        Ok(Scene {
            title: "a stalled holder wakes after a takeover and writes",
            unit: "stale",
            plain: Count { found: plain, right: 0 },
            semel: Count { found: semel, right: 0 },
        })
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn sh(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

/// Where one scene plays in one way.
struct Place {
    dir: PathBuf,
}

impl Place {
    /// The script through `semel run`, on a ledger of its own.
    fn semel(&self, with: &[&str], script: &str) -> Command {
        let me = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("semel"));
        let mut command = Command::new(&me);
        let store = format!("sqlite:{}", self.dir.join("ledger.db").display());
        command.args(["run", "--store", &store]).args(with).args(["--", "/bin/sh", "-c", script]).arg(&me);
        command.env("XDG_STATE_HOME", self.dir.join("state")).env_remove("SEMEL_STORE");
        command
    }

    fn start(&self, command: &mut Command) -> io::Result<Actor> {
        use std::os::unix::process::CommandExt;
        let command =
            command.current_dir(&self.dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // a group of its own, as a scheduler would give it: it is stalled and cleared as one
        command.process_group(0).spawn().map(Actor)
    }

    fn effects(&self) -> io::Result<usize> {
        match fs::read_to_string(self.dir.join("effects")) {
            Ok(text) => Ok(text.lines().count()),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(why) => Err(why),
        }
    }

    fn wait_for(&self, file: &str) -> io::Result<()> {
        self.until(file, || Ok(self.dir.join(file).exists()))
    }

    fn until(&self, what: &str, holds: impl Fn() -> io::Result<bool>) -> io::Result<()> {
        let began = Instant::now();
        while !holds()? {
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("{what}: not within {} s", PATIENCE.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Stop this process and every process that works in this place: the script, or Semel, its keeper and its command,
    /// as a machine that stops dead would. What is written on waking only a fence at the target can refuse.
    fn stall(&self, actor: &Actor) -> io::Result<Stalled> {
        let first = actor.0.id().cast_signed();
        let others = working_in(&self.dir)?.into_iter().filter(|pid| *pid != first);
        let pids: Vec<i32> = std::iter::once(first).chain(others).collect();
        for pid in &pids {
            send(*pid, libc::SIGSTOP);
        }
        Ok(Stalled { pids })
    }
}

/// The commands that work in this directory: known by where they are, not by their parents.
fn working_in(dir: &Path) -> io::Result<Vec<i32>> {
    let dir = dir.canonicalize()?;
    let mut pids = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let here = fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == dir);
        if here {
            pids.push(pid);
        }
    }
    Ok(pids)
}

fn send(pid: i32, signal: i32) {
    // SAFETY: no memory is involved; a process that is gone is no concern here.
    unsafe { libc::kill(pid, signal) };
}

/// A job that does not move.
struct Stalled {
    pids: Vec<i32>,
}

impl Stalled {
    fn wake(self) {
        for pid in &self.pids {
            send(*pid, libc::SIGCONT);
        }
    }
}

/// A process of the demo's, ended with it.
struct Actor(Child);

impl Actor {
    fn wait(&mut self) -> io::Result<std::process::ExitStatus> {
        self.0.wait()
    }

    /// Kill -9 of the process alone, as it happens; what it leaves behind in its group is cleared, uncounted.
    fn kill(&mut self) -> io::Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        send(-self.0.id().cast_signed(), libc::SIGKILL);
        Ok(())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            send(-self.0.id().cast_signed(), libc::SIGCONT);
            send(-self.0.id().cast_signed(), libc::SIGKILL);
            let _ = self.0.wait();
        }
    }
}
