//! `semel torture git`: the fence on a real remote, and the same attacks without it.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Home, SOON, Said, until};

struct Remote {
    home: Home,
    bare: PathBuf,
}

impl Remote {
    /// A remote with a branch of the user's.
    fn new() -> Remote {
        let home = Home::new();
        let bare = home.path("remote.git");
        let remote = Remote { home, bare };
        remote.script(
            "git init -q --bare -b main remote.git && git -C remote.git config user.name a && cd remote.git &&
             git update-ref refs/heads/main $(git -c user.email=a@b -c user.name=a commit-tree -m first $(git mktree < /dev/null))",
        );
        remote
    }

    #[track_caller]
    fn script(&self, text: &str) -> String {
        let mut command = self.home.script(text);
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        self.home.launch(&mut command).end().exits(0).text()
    }

    fn torture(&self, url: &str, flags: &str) -> std::process::Command {
        let mut command = self.home.semel(["torture", "git", url]);
        command.args(flags.split_whitespace());
        command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        command
    }

    #[track_caller]
    fn ask(&self, url: &str, flags: &str) -> Said {
        self.home.launch(&mut self.torture(url, flags)).end()
    }

    fn refs(&self) -> String {
        self.script("git -C remote.git for-each-ref --format='%(objectname) %(refname)'")
    }

    fn hook(&self, name: &str, script: &str) {
        let hook = self.home.executable(&format!("{name}.hook"), script);
        std::fs::create_dir_all(self.bare.join("hooks")).unwrap();
        std::fs::rename(hook, self.bare.join("hooks").join(name)).unwrap();
    }
}

fn all_held(said: &Value) {
    assert_eq!((&said["held"], &said["left"]), (&true.into(), &serde_json::json!([])), "{said}");
    let fenced = &said["fenced"];
    assert_eq!(fenced["stale_refused"], fenced["stale_tried"], "{said}");
    for none in ["stale_accepted", "rounds_with_duplicates", "duplicates", "lost"] {
        assert_eq!(fenced[none], 0, "{said}");
    }
}

#[test]
fn the_fence_holds_and_the_usual_loop_duplicates_and_nothing_is_left() {
    let remote = Remote::new();
    let before = remote.refs();
    let url = remote.bare.display().to_string();
    let first = remote.ask(&url, "--rounds 4 --seed 5 --json").exits(0).json();
    all_held(&first);
    assert_eq!((&first["rounds"], &first["races"], &first["seed"]), (&4.into(), &2.into(), &5.into()));
    let plain = &first["plain"];
    assert_eq!((&plain["stale_refused"], &plain["stale_accepted"]), (&0.into(), &2.into()), "{first}");
    assert!(plain["rounds_with_duplicates"].as_u64().unwrap() >= 2, "{first}");
    assert_eq!(remote.refs(), before, "refs of others are as they were, and none of ours is left");
    // the same seed, from a file's address, and for people
    let said = remote.ask(&format!("file://{url}"), "--rounds 2 --seed 5").exits(0).silent().text();
    assert!(said.contains("2 rounds (1 stale holders, 1 races), seed 5"), "{said}");
    assert!(said.contains("held") && said.contains("3/2"), "{said}");
    assert_eq!(remote.refs(), before);
}

/// Both ways stall at the same places: one who looks late enough sees the work, one who looked before pushes it again.
#[test]
fn the_usual_loop_meets_the_very_same_attack() {
    let remote = Remote::new();
    let said = remote.ask("remote.git", "--rounds 6 --seed 15 --json").exits(0).json();
    all_held(&said);
    assert_eq!(said["stalls"], serde_json::json!({"before": 1, "between": 1, "inside": 1}), "{said}");
    assert_eq!(said["fenced"]["stale_found"], 0, "{said}");
    let plain = &said["plain"];
    assert_eq!((&plain["stale_found"], &plain["stale_accepted"]), (&1.into(), &2.into()), "{said}");
    assert!(plain["rounds_with_duplicates"].as_u64().unwrap() >= 2, "{said}");
}

#[test]
fn a_seed_repeats_its_choices_and_a_name_stands_for_its_remote() {
    let remote = Remote::new();
    remote.script("git clone -q remote.git repo");
    let stalls = |seed: &str| {
        let mut command =
            remote.torture("origin", &format!("--rounds 1 --json --seed {seed} --ref-prefix refs/heads/x/y"));
        let said = remote.home.launch(command.current_dir(remote.home.path("repo"))).end().exits(0).json();
        assert!(said["prefix"].as_str().unwrap().starts_with("refs/heads/x/y/"), "{said}");
        all_held(&said);
        said["stalls"].clone()
    };
    assert_eq!(stalls("11"), stalls("11"));
}

#[test]
fn a_remote_that_is_not_there_or_cannot_be_written_is_one_line() {
    let remote = Remote::new();
    let one_line = |said: Said| assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    one_line(remote.ask("/nowhere/at/all.git", "").exits(69).saying("cannot be reached"));
    one_line(remote.ask("https://127.0.0.1:1/x.git", "").exits(69).saying("cannot be reached"));
    one_line(remote.ask("ext::sh -c true", "").exits(78).saying("not allowed"));
    one_line(remote.ask("nosuch://host/x", "").exits(78));
    one_line(remote.ask("remote.git", "--ref-prefix refs/tags/x").exits(78).saying("refs/heads/"));
    one_line(remote.ask("", "").exits(78));
    let before = remote.refs();
    remote.hook("pre-receive", "exit 1");
    one_line(remote.ask("remote.git", "").exits(78).saying("cannot be written").saying("hook declined"));
    // branches, but no fence
    remote.hook("pre-receive", "! grep -q refs/fence/");
    one_line(remote.ask("remote.git", "--rounds 2").exits(78).saying("cannot be fenced"));
    assert_eq!(remote.refs(), before, "what it could write before is gone");
}

#[test]
fn what_cannot_be_removed_is_named() {
    let remote = Remote::new();
    remote.script("git -C remote.git config receive.denyDeletes true");
    let said = remote.ask("remote.git", "--rounds 1 --json").exits(0);
    let said = said.saying("could not be removed from remote.git").json();
    let left = said["left"].as_array().unwrap();
    assert_eq!(left.len(), 3, "its branches; such a remote lets other refs go: {said}");
    for name in left {
        assert!(remote.refs().contains(name.as_str().unwrap()));
    }
}

/// A remote that takes whatever comes: a fence that does not hold is told, and is 1.
#[test]
fn a_stale_push_that_lands_is_found_in_the_log() {
    let remote = Remote::new();
    // after every push of a fence the branch is moved to what a stale holder wanted, as a broken server might
    remote.hook(
        "post-receive",
        "while read old new name; do case $name in refs/heads/semel-torture/*/fenced)
            tree=$(git mktree < /dev/null); export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
            git log -1 --format=%B $new | grep Effect-Id: || continue
            git update-ref $name $(git log -1 --format=%B $new | git commit-tree $tree -p $new) ;; esac; done >&2",
    );
    let said = remote.ask("remote.git", "--rounds 2 --seed 1").exits(1);
    assert!(said.text().contains("DID NOT HOLD"), "{}", said.text());
}

#[test]
fn ctrl_c_ends_it_and_removes_what_it_made() {
    let remote = Remote::new();
    let before = remote.refs();
    let running = remote.home.launch(&mut remote.torture("remote.git", "--rounds 5000"));
    until("it has pushed", SOON, || remote.refs().contains("refs/fence/"));
    running.signal(libc::SIGINT);
    running.end().exits(128 + libc::SIGINT);
    assert_eq!(remote.refs(), before);
}
