//! The crash matrix: every boundary of a run and of what is inside it, times everything that can be killed there.
//!
//! A process that comes to a named place stops itself; the test kills the victims, lets the rest go on, and starts
//! the run again until it is done. Then each effect must be there exactly once. Where nobody can know, the run must
//! have said so (79), and a person, who looks at the effects and not at the ledger, settles it.

use std::process::Command;

use crate::processes::kill;
use crate::support::{Home, SOON, Said, skipped, until};

/// Who is killed at a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// The process at the boundary.
    Itself,
    /// `semel run`.
    Semel,
    /// The command of the run.
    Script,
    /// Both.
    Both,
    /// Everything that was started.
    All,
}

const VICTIMS: [Victim; 5] = [Victim::Itself, Victim::Semel, Victim::Script, Victim::Both, Victim::All];

/// A home with a script whose effects can be counted.
pub(crate) struct Scene {
    pub(crate) home: Home,
    /// The commands of the script, one a line.
    pub(crate) script: &'static str,
    /// How often each effect is there, counted outside of Semel: the names of steps, and how often.
    pub(crate) count: fn(&Home) -> Vec<(&'static str, usize)>,
}

const STEPS: &str = "
    $SEMEL step one -- sh -c 'echo one >> effects'
    $SEMEL step two -- sh -c 'echo two >> effects'";

fn steps(home: &Home) -> Vec<(&'static str, usize)> {
    let lines = home.lines("effects");
    ["one", "two"].map(|name| (name, lines.iter().filter(|line| *line == name).count())).to_vec()
}

impl Scene {
    fn command(&self) -> Command {
        // a holder that is not provably gone yet is waited for: to yield to it would be no retry
        self.home
            .work("--job j --once --if-busy wait=25s", &format!("set -e; echo $$ > shell; {}", self.script))
    }

    /// Start it, and kill these where it comes to that place.
    fn crash(&self, point: &str, victim: Victim) {
        let dir = self.home.path("crash");
        std::fs::create_dir_all(&dir).unwrap();
        let mut command = self.command();
        let mut run = self.home.launch(command.env("CRASH_AT", point).env("CRASH_DIR", &dir));
        let reached = dir.join("reached");
        until(&format!("{point} is reached"), SOON, || reached.exists() || run.has_ended());
        assert!(reached.exists(), "the run ended without coming to {point}: {}", run.err());
        let stopped: i32 = std::fs::read_to_string(&reached).unwrap().parse().unwrap();
        let script =
            || -> Option<i32> { std::fs::read_to_string(self.home.path("shell")).ok()?.trim().parse().ok() };
        let strike = |victims: &[Option<i32>]| {
            for pid in victims.iter().flatten() {
                // SAFETY: no memory is involved; it may be gone.
                unsafe { libc::kill(*pid, libc::SIGKILL) };
            }
        };
        match victim {
            Victim::Itself => strike(&[Some(stopped)]),
            Victim::Semel => strike(&[Some(run.pid())]),
            Victim::Script => strike(&[script()]),
            Victim::Both => strike(&[Some(run.pid()), script()]),
            Victim::All => {
                let all: Vec<_> = self.home.alive().into_iter().map(Some).collect();
                strike(&all);
            }
        }
        if self.home.alive().contains(&stopped) {
            // SAFETY: no memory is involved; it may have been ended just now.
            unsafe { libc::kill(stopped, libc::SIGCONT) };
        }
        until("the run has ended", SOON, || run.has_ended());
        until("nothing of it is left", SOON, || self.home.alive().is_empty());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// Run it again until it is done; a person settles what is in doubt by looking at the effects.
    fn recover(&self, what: &str) -> bool {
        let mut doubted = false;
        for _ in 0..8 {
            let said: Said = self.home.launch(&mut self.command()).end();
            match said.code {
                0 => return doubted,
                79 => {
                    doubted = true;
                    let step = said.err.split("its step ").nth(1).and_then(|rest| rest.split(' ').next());
                    let step =
                        step.unwrap_or_else(|| panic!("{what}: it does not say which step: {}", said.err));
                    assert!(said.err.contains("semel resolve 'j~"), "{what}: {}", said.err);
                    let counts = (self.count)(&self.home);
                    let (_, count) = counts.iter().find(|(name, _)| *name == step).unwrap();
                    let verdict = if *count > 0 { "--done" } else { "--not-done" };
                    self.home.ask(&format!("resolve j~{step} {verdict} --because looked")).exits(0);
                }
                code => panic!("{what}: the retry ended with {code}: {}", said.err),
            }
        }
        panic!("{what}: it is never done");
    }

    fn check(&self, what: &str) {
        for (name, count) in (self.count)(&self.home) {
            assert_eq!(count, 1, "{what}: {name} is there {count} times");
        }
    }
}

/// Every point of these, times every victim. Answers how often a person was needed.
pub(crate) fn matrix(points: &[&str], scene: impl Fn() -> Scene) -> Vec<String> {
    let mut doubts = Vec::new();
    for point in points {
        for victim in VICTIMS {
            let what = format!("{point} × {victim:?}");
            let scene = scene();
            scene.crash(point, victim);
            if scene.recover(&what) {
                doubts.push(what.clone());
            }
            scene.check(&what);
        }
    }
    doubts
}

/// The named places are compiled only into the test build.
pub(crate) fn has_crash_points(test: &str) -> bool {
    if cfg!(feature = "crash-points") {
        return true;
    }
    skipped(test, "needs the feature crash-points: cargo xtask test turns it on");
    false
}

fn scene() -> Scene {
    Scene { home: Home::new(), script: STEPS, count: steps }
}

#[test]
fn a_crash_at_every_boundary_of_a_run() {
    if !has_crash_points("a_crash_at_every_boundary_of_a_run") {
        return;
    }
    let points = ["run.planned", "run.claim.before", "run.claim.after", "run.started", "run.ended"];
    let doubts = matrix(&points, scene);
    // at these places no step is under way, or it may be: a run that has just started has begun its first
    assert!(doubts.iter().all(|what| what.starts_with("run.started")), "{doubts:?}");
}

#[test]
fn a_crash_around_the_outcome_of_a_run() {
    if !has_crash_points("a_crash_around_the_outcome_of_a_run") {
        return;
    }
    // the script has ended: there is nothing left of it to kill
    let doubts = matrix(&["run.settle.before", "run.settle.after"], scene);
    assert_eq!(doubts, Vec::<String>::new());
}

#[test]
fn a_crash_at_every_boundary_of_a_step_in_the_run() {
    if !has_crash_points("a_crash_at_every_boundary_of_a_step_in_the_run") {
        return;
    }
    let points = ["step.claim.before", "step.claim.after", "step.settle.before", "step.settle.after"];
    let doubts = matrix(&points, scene);
    // killed between the effect and its record: nobody can know
    assert!(doubts.contains(&"step.settle.before × Semel".to_owned()), "{doubts:?}");
    assert!(!doubts.contains(&"step.claim.before × Semel".to_owned()), "{doubts:?}");
    assert!(!doubts.contains(&"step.settle.after × Semel".to_owned()), "{doubts:?}");
}

#[test]
fn a_crash_at_every_boundary_of_a_step_in_its_own_process() {
    if !has_crash_points("a_crash_at_every_boundary_of_a_step_in_its_own_process") {
        return;
    }
    let doubts = matrix(&["step.begun", "step.ended", "step.settled"], scene);
    assert!(doubts.contains(&"step.ended × Itself".to_owned()), "{doubts:?}");
    assert!(!doubts.iter().any(|what| what.starts_with("step.settled")), "{doubts:?}");
}

const WRITE: &str = "echo content | $SEMEL write target";

/// Whole, or it is not there; and nothing of the crash is left once it is.
fn written(home: &Home) -> Vec<(&'static str, usize)> {
    let content = std::fs::read_to_string(home.path("target")).unwrap_or_default();
    let drafts = std::fs::read_dir(home.path("")).unwrap().flatten();
    let drafts = drafts.filter(|file| file.file_name().to_string_lossy().contains(".semel-")).count();
    vec![("target", usize::from(content == "content\n")), ("no draft", usize::from(drafts == 0))]
}

#[test]
fn a_crash_at_every_boundary_of_a_write() {
    if !has_crash_points("a_crash_at_every_boundary_of_a_write") {
        return;
    }
    let points = [
        "file.begin",
        "file.locked",
        "file.checked",
        "file.fence.before",
        "file.fence.after",
        "file.temp.synced",
        "file.rechecked",
        "file.renamed",
        "file.done",
    ];
    let doubts = matrix(&points, || Scene { home: Home::new(), script: WRITE, count: written });
    assert_eq!(doubts, Vec::<String>::new(), "a fenced write is never in doubt: it is done again");
}

const GIT: &str = "export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.org
    export GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org";

/// A retry makes another commit, with the same mark.
const PUSH: &str = "cd repo; git fetch -q; git reset -q --hard origin/main
    date +%s%N > post; git add post; git commit -q -m post --trailer \"$($SEMEL commit-trailer)\"
    $SEMEL push origin main";

/// The usual way.
const PLAIN_PUSH: &str = "cd repo; git fetch -q; git reset -q --hard origin/main
    date +%s%N > post; git add post; git commit -q -m post; git push -q origin main";

fn repository() -> Home {
    let home = Home::new();
    let made =
        "git init -q --bare -b main remote.git && git clone -q remote.git repo 2>/dev/null && cd repo &&
        git checkout -q -b main && git commit -q --allow-empty -m first && git push -q -u origin main";
    home.launch(&mut home.script(&format!("{GIT}; {made}"))).end().exits(0);
    home
}

fn pushed(home: &Home) -> Vec<(&'static str, usize)> {
    let log = home.launch(&mut home.script("git -C remote.git log --format=%s main")).end().exits(0).text();
    vec![("post", log.lines().filter(|subject| *subject == "post").count())]
}

fn crashed_pushes(points: &[&str]) {
    let script: &str = Box::leak(format!("{GIT}; {PUSH}").into_boxed_str());
    let doubts = matrix(points, || Scene { home: repository(), script, count: pushed });
    assert_eq!(doubts, Vec::<String>::new(), "a fenced push is never in doubt: it is looked for");
}

#[test]
fn a_crash_at_every_boundary_of_the_seal_of_a_push() {
    if has_crash_points("a_crash_at_every_boundary_of_the_seal_of_a_push") {
        crashed_pushes(&["git.seal.before", "git.seal.after", "git.looked"]);
    }
}

#[test]
fn a_crash_at_every_boundary_of_the_effect_of_a_push() {
    if has_crash_points("a_crash_at_every_boundary_of_the_effect_of_a_push") {
        crashed_pushes(&["git.effect.before", "git.effect.after", "git.done"]);
    }
}

/// Killed after the push and before anybody could write that down.
#[test]
fn control_a_plain_push_that_is_retried_is_there_twice() {
    let home = repository();
    let script = format!("{GIT}; set -e; {PLAIN_PUSH}; test -e ../again || kill -9 $$");
    home.run("--job j --once", &script).exits(137);
    std::fs::write(home.path("again"), "").unwrap();
    home.run("--job j --once", &script).exits(0);
    assert_eq!(pushed(&home), [("post", 2)]);
}

/// The same without Semel: killed between the two effects, and started again.
#[test]
fn control_a_plain_script_repeats_its_effects() {
    for victim in [Victim::Script, Victim::All] {
        let home = Home::new();
        let script =
            "echo $$ > shell; echo one >> effects; test -e again || kill -STOP $$; echo two >> effects";
        let run = home.launch(&mut home.script(script));
        until("it has stopped", SOON, || crate::processes::is_stopped(run.pid()));
        match victim {
            Victim::All => home.alive().into_iter().for_each(|pid| kill(pid, libc::SIGKILL)),
            _ => kill(run.pid(), libc::SIGKILL),
        }
        run.end().exits(137);
        std::fs::write(home.path("again"), "").unwrap();
        home.launch(&mut home.script(script)).end().exits(0);
        assert_eq!(steps(&home), [("one", 2), ("two", 1)], "{victim:?}");
    }
}
