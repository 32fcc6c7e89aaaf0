//! Five habits that let a zombie in, each tried with plain git (the control: its commit lands) and with ours (it
//! does not, and the habit cannot even be asked for).
//!
//! The scene: the zombie has passed the fence with token 1 and has one more commit to push. Another holder seals
//! with token 2. It does not touch `main`, so that nothing but the fence can stop the zombie.

use std::path::PathBuf;

use semel::sink::git::{GitSinkError, Lease, Refspec, RefspecError};

use crate::world::{World, is_done, is_stale, marked, push, write_executable};

const FENCE: &str = "refs/fence/site";

struct Scene {
    world: World,
    zombie: PathBuf,
    other: PathBuf,
    /// The zombie's commit on `main`, not pushed yet.
    late: String,
    /// The fence as the zombie knows it, and the fence commit it would push.
    fence: String,
    bumped: String,
}

fn scene() -> Scene {
    let world = World::new();
    let (zombie, other) = (world.clone("zombie"), world.clone("other"));
    world.work(&zombie, "first");
    assert!(is_done(&push(&world.sink(&zombie, 1, "first"), &["main"])));
    let late = world.work(&zombie, "late");
    let fence = world.tip(FENCE);
    let bumped = world.commit_on(&zombie, Some(&fence), "a fence commit of the zombie's");
    Scene { world, zombie, other, late, fence, bumped }
}

impl Scene {
    /// The other holder takes the fence over, by work of its own on another branch.
    fn take_over(&self) {
        let commit = self.world.commit_on(&self.other, None, &marked("other"));
        let done = push(&self.world.sink(&self.other, 2, "other"), &[&format!("{commit}:refs/heads/other")]);
        assert!(is_done(&done), "{done:?}");
        assert_ne!(self.world.tip(FENCE), self.fence);
    }

    fn lands(&self) -> bool {
        self.world.tip("refs/heads/main") == self.late
    }

    /// The zombie with plain git.
    fn plain(&self, args: &[&str]) {
        self.world.try_git(&self.zombie, ["push", "-q"].iter().chain(args));
    }

    fn lease(&self) -> String {
        format!("--force-with-lease={FENCE}:{}", self.fence)
    }

    fn bump(&self) -> String {
        format!("{}:{FENCE}", self.bumped)
    }

    /// The zombie with ours, after the takeover.
    fn ours(&self) {
        self.take_over();
        let pushed = push(&self.world.sink(&self.zombie, 1, "late"), &["main"]);
        assert!(is_stale(&pushed), "{pushed:?}");
        assert!(!self.lands());
        let Err(GitSinkError::Stale { by, .. }) = pushed else { panic!() };
        assert_eq!(by.token.value(), 2);
    }
}

/// What is right, with plain git: the fence bumped, atomic, an explicit lease. It stops the zombie, so the controls
/// below differ from it in nothing but the habit.
#[test]
fn without_a_bad_habit_plain_git_stops_the_zombie_too() {
    let scene = scene();
    scene.take_over();
    scene.plain(&["--atomic", &scene.lease(), "origin", "main", &scene.bump()]);
    assert!(!scene.lands());
}

#[test]
fn control_a_fence_pushed_unchanged_is_not_checked() {
    let scene = scene();
    // the takeover comes after git has read the remote
    let fence = scene.world.commit_on(&scene.other, None, "the fence of the other holder");
    let seal = format!("git -C {} push -q -f origin {fence}:{FENCE}", scene.other.display());
    write_executable(&scene.zombie.join(".git/hooks/pre-push"), &format!("unset GIT_DIR; {seal}"));
    scene.plain(&["--atomic", &scene.lease(), "origin", "main", &format!("{}:{FENCE}", scene.fence)]);
    assert_eq!(scene.world.tip(FENCE), fence, "the other holder has sealed");
    assert!(scene.lands(), "and yet the zombie's commit is there");
}

#[test]
fn a_fence_is_never_pushed_unchanged() {
    let scene = scene();
    // the takeover comes after git has read the remote
    let fence = scene.world.commit_on(
        &scene.other,
        None,
        "semel fence\n\nToken: 2\nNonce: 000102030405060708090a0b0c0d0e0f",
    );
    let seal = format!("git -C {} push -q -f origin {fence}:{FENCE}", scene.other.display());
    write_executable(&scene.zombie.join(".git/hooks/pre-push"), &format!("unset GIT_DIR; {seal}"));
    let pushed = push(&scene.world.sink(&scene.zombie, 1, "late"), &["main"]);
    assert!(is_stale(&pushed), "{pushed:?}");
    assert!(!scene.lands());
}

#[test]
fn control_without_atomic_the_branch_lands_alone() {
    let scene = scene();
    scene.take_over();
    scene.plain(&["--no-atomic", &scene.lease(), "origin", "main", &scene.bump()]);
    assert!(scene.lands());
}

#[test]
fn every_push_is_atomic() {
    scene().ours();
}

#[test]
fn control_a_plus_defeats_the_lease() {
    let scene = scene();
    scene.take_over();
    scene.plain(&["--atomic", &scene.lease(), "origin", "main", &format!("+{}", scene.bump())]);
    assert!(scene.lands());
}

#[test]
fn a_plus_is_refused() {
    assert_eq!(Refspec::parse("+main"), Err(RefspecError::Force));
    assert_eq!(Refspec::parse("+main:main"), Err(RefspecError::Force));
    let scene = scene();
    // nor does a setting bring it in
    for setting in ["+refs/heads/*:refs/heads/*", "+refs/fence/*:refs/fence/*"] {
        scene.world.git(&scene.zombie, ["config", "--add", "remote.origin.push", setting]);
    }
    scene.ours();
}

#[test]
fn control_force_defeats_the_lease() {
    let scene = scene();
    scene.take_over();
    scene.plain(&["--atomic", "--force", &scene.lease(), "origin", "main", &scene.bump()]);
    assert!(scene.lands());
}

#[test]
fn force_is_no_refspec_and_no_remote() {
    assert_eq!(Refspec::parse("--force"), Err(RefspecError::Dash));
    let scene = scene();
    let program = scene.world.program(&scene.zombie);
    assert!(semel::sink::git::Remote::resolve(&program, "--force").is_err());
    // nor does a setting bring it in
    scene.world.git(&scene.zombie, ["config", "remote.origin.mirror", "true"]);
    scene.ours();
}

#[test]
fn control_a_bare_lease_is_what_was_fetched_last() {
    let scene = scene();
    scene.take_over();
    // an editor, a prompt, a cron job: something fetches
    scene
        .world
        .git(&scene.zombie, ["fetch", "-q", "origin", &format!("{FENCE}:refs/remotes/origin/fence/site")]);
    scene.world.git(
        &scene.zombie,
        ["config", "--add", "remote.origin.fetch", "+refs/fence/*:refs/remotes/origin/fence/*"],
    );
    scene.plain(&["--atomic", "--force-with-lease", "origin", "main", &scene.bump()]);
    assert!(scene.lands());
}

#[test]
fn a_bare_lease_is_refused() {
    assert_eq!(Lease::parse(""), Err(RefspecError::NoOld));
    assert_eq!(Lease::parse("main"), Err(RefspecError::NoOld));
    let scene = scene();
    scene.world.git(&scene.zombie, ["config", "push.useForceIfIncludes", "true"]);
    scene.ours();
}
