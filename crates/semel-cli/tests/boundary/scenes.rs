//! What is killed: runs by their policy, steps, a batch, and the ways without Semel.

use std::process::Command;

use crate::crash::Victim::{self, Both, Itself, Keeper, Semel};
use crate::home::{Home, SEMEL};

/// How often an effect may be there in the end, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Once, and nobody is asked: a probe tells.
    Once,
    /// Once; where nobody can know, a person was asked (79), looked and said.
    OnceOrAsked,
    /// At least once; twice only if it was under way when the kill fell.
    AtLeastOnce,
    /// Nothing: a control.
    Nothing,
}

/// A command that is killed and tried again.
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) promise: Promise,
    pub(crate) victims: &'static [Victim],
    pub(crate) prepare: fn(&Home),
    pub(crate) command: fn(&Home) -> Command,
    /// The line of each effect, and the work that records it; empty where none does.
    pub(crate) effects: &'static [(&'static str, &'static str)],
    /// What it holds while it runs, if it is one thing.
    pub(crate) resource: Option<&'static str>,
}

const EFFECT: &str = "echo x >> effects";

fn nothing(_: &Home) {}

fn probe(home: &Home) {
    home.executable("probe", "grep -qx x effects 2> /dev/null || exit 1");
}

/// `semel run FLAGS -- sh -c SCRIPT`. One that is not provably gone yet is waited for: to yield to it would be no retry.
fn run(home: &Home, flags: &[&str], script: &str) -> Command {
    let before = ["run", "--job", "pay", "--once", "--if-busy", "wait=25s"];
    home.command(SEMEL, &[&before, flags, &["--", "sh", "-c", script]].concat())
}

pub(crate) const PROBED: Scene = Scene {
    name: "a run with a probe",
    promise: Promise::Once,
    victims: &[Semel, Keeper, Both],
    prepare: probe,
    command: |home| run(home, &["--probe", "./probe"], EFFECT),
    effects: &[("x", "pay")],
    resource: Some("pay"),
};

pub(crate) const HELD: Scene = Scene {
    name: "a run that is held",
    promise: Promise::OnceOrAsked,
    victims: &[Semel, Keeper, Both],
    prepare: nothing,
    command: |home| run(home, &["--on-lost", "hold"], EFFECT),
    effects: &[("x", "pay")],
    resource: Some("pay"),
};

pub(crate) const RETRIED: Scene = Scene {
    name: "a run that is retried",
    promise: Promise::AtLeastOnce,
    victims: &[Semel, Keeper, Both],
    prepare: nothing,
    command: |home| run(home, &[], EFFECT),
    effects: &[("x", "pay")],
    resource: Some("pay"),
};

pub(crate) const STEPS: Scene = Scene {
    name: "a run with two steps",
    promise: Promise::OnceOrAsked,
    victims: &[Semel, Itself, Keeper, Both],
    prepare: nothing,
    command: |home| {
        let script = "set -e
            $SEMEL step one -- sh -c 'echo one >> effects'
            $SEMEL step two -- sh -c 'echo two >> effects'";
        run(home, &[], script)
    },
    effects: &[("one", "pay~one"), ("two", "pay~two")],
    resource: Some("pay"),
};

pub(crate) const BATCH: Scene = Scene {
    name: "a batch of three items with a probe",
    promise: Promise::Once,
    victims: &[Semel, Keeper, Both],
    prepare: |home| {
        home.write("items", "a\nb\nc\n");
        home.executable("probe", "grep -qx \"$(cat $SEMEL_ITEM)\" effects 2> /dev/null || exit 1");
    },
    command: |home| {
        let flags = ["--job", "posts", "--format", "lines", "-j", "1", "--if-busy", "wait=25s"];
        let before = [&["batch", "items"], flags.as_slice(), &["--probe", "./probe"]].concat();
        home.command(
            SEMEL,
            &[&before, ["--", "sh", "-c", "echo $1 >> effects", "sh", "{line}"].as_slice()].concat(),
        )
    },
    effects: &[("a", ""), ("b", ""), ("c", "")],
    resource: None,
};

pub(crate) const SCENES: [&Scene; 5] = [&PROBED, &HELD, &RETRIED, &STEPS, &BATCH];

fn locked(home: &Home, script: &str) -> Command {
    home.command("flock", &["--no-fork", "lock", "sh", "-c", script])
}

/// A lock, and a marker after the effect.
pub(crate) const MARKED_AFTER: Scene = Scene {
    name: "control: flock and a marker after the effect",
    promise: Promise::Nothing,
    victims: &[Semel],
    prepare: nothing,
    command: |home| locked(home, "[ -e done ] && exit 0; echo x >> effects; : > done"),
    effects: &[("x", "")],
    resource: None,
};

/// A lock, and a marker before it.
pub(crate) const MARKED_BEFORE: Scene = Scene {
    name: "control: flock and a marker before the effect",
    promise: Promise::Nothing,
    victims: &[Semel],
    prepare: nothing,
    command: |home| locked(home, "[ -e done ] && exit 0; : > done; echo x >> effects"),
    effects: &[("x", "")],
    resource: None,
};
