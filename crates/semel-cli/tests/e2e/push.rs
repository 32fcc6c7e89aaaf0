//! `semel push`, `semel commit-trailer` and `semel doctor --git`, with a real remote.

use std::path::PathBuf;
use std::process::Command;

use crate::processes::is_stopped;
use crate::support::{Home, Running, SOON, Said, skipped, until};

/// A remote with one commit, and a clone of it that has `origin`.
struct Git {
    home: Home,
    bare: PathBuf,
    repo: PathBuf,
}

/// Nothing of this machine's settings.
fn isolated(command: &mut Command) -> &mut Command {
    let name = [("GIT_AUTHOR_NAME", "A"), ("GIT_COMMITTER_NAME", "A")];
    let mail = [("GIT_AUTHOR_EMAIL", "a@example.org"), ("GIT_COMMITTER_EMAIL", "a@example.org")];
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").envs(name).envs(mail)
}

impl Git {
    fn new() -> Git {
        let home = Home::new();
        let (bare, repo) = (home.path("remote.git"), home.path("repo"));
        let git = Git { home, bare, repo };
        let script =
            "git init -q --bare -b main remote.git && git clone -q remote.git repo 2>/dev/null && cd repo &&
            git checkout -q -b main && git commit -q --allow-empty -m first && git push -q -u origin main";
        git.script(&git.home.path(""), script);
        git
    }

    #[track_caller]
    fn script(&self, dir: &std::path::Path, text: &str) -> String {
        let mut command = self.home.script(text);
        self.home.launch(isolated(&mut command).current_dir(dir)).end().exits(0).text()
    }

    /// In the clone.
    #[track_caller]
    fn here(&self, text: &str) -> String {
        self.script(&self.repo, text)
    }

    fn semel(&self, args: &[&str]) -> Command {
        let mut command = self.home.semel(args);
        isolated(&mut command).current_dir(&self.repo);
        command
    }

    #[track_caller]
    fn ask(&self, args: &[&str]) -> Said {
        self.home.launch(&mut self.semel(args)).end()
    }

    /// A lease of `site`; its token.
    fn acquire(&self) -> String {
        self.ask(&["lease", "acquire", "site", "--ttl", "1h"]).exits(0).text()
    }

    /// A commit of this effect, on top of the remote.
    fn commit(&self, effect: &str) {
        self.here(&format!(
            "git fetch -q && git reset -q --hard origin/main && git commit -q --allow-empty -m work \
             --trailer \"$($SEMEL commit-trailer --effect-id {effect})\""
        ));
    }

    fn start(&self, token: &str, effect: &str, more: &[&str], crash_at: &str) -> Running {
        let mut args = vec!["push", "--resource", "site", "--token", token, "--effect-id", effect];
        args.extend(more);
        let mut command = self.semel(&args);
        command.env("CRASH_AT", crash_at).env("CRASH_DIR", self.home.path(""));
        self.home.launch(&mut command)
    }

    #[track_caller]
    fn push(&self, token: &str, effect: &str, more: &[&str]) -> Said {
        self.start(token, effect, more, "").end()
    }

    /// How many commits of the remote's `main` carry this effect.
    fn count(&self, effect: &str) -> usize {
        let text = format!("git rev-list --count --grep='^Effect-Id: {effect}$' main");
        self.script(&self.bare, &text).parse().unwrap()
    }
}

#[test]
fn the_current_branch_is_pushed_once_however_often_one_pushes() {
    let git = Git::new();
    let token = git.acquire();
    git.commit("e");
    git.push(&token, "e", &[]).exits(0).silent();
    git.push(&token, "e", &[]).exits(0).silent();
    // a retry with another commit
    git.here("git reset -q --hard HEAD~1");
    git.here("git commit -q --allow-empty -m again --trailer \"$($SEMEL commit-trailer --effect-id e)\"");
    let json = git.push(&token, "e", &["--json", "origin", "main"]).exits(0).json();
    assert_eq!((&json["outcome"], &json["exit_code"]), (&"already_there".into(), &0.into()));
    assert_eq!(json["refs"][0]["ref"], "refs/heads/main");
    git.push(&token, "e", &["-v"]).exits(0).saying("already");
    assert_eq!(git.count("e"), 1);
    git.commit("f");
    let json = git.push(&token, "f", &["--json"]).exits(0).json();
    assert_eq!((&json["outcome"], &json["token"]), (&"pushed".into(), &token.parse::<u64>().unwrap().into()));
    assert_eq!(
        git.here("git rev-parse origin/main"),
        json["refs"][0]["commit"],
        "the tracking branch moves along"
    );
}

#[test]
fn a_stale_token_is_77_even_where_only_the_remote_knows() {
    let git = Git::new();
    let token = git.acquire();
    git.commit("e");
    git.push(&token, "e", &[]).exits(0);
    git.ask(&["lease", "release", "site", "--token", &token]).exits(0);
    git.commit("f");
    git.push(&token, "f", &[]).exits(77).saying("nothing was done");
    let next = git.acquire();
    git.push(&next, "f", &[]).exits(0);
    // another store that has fallen behind: its token is live, and the fence is further
    git.commit("g");
    let behind = format!("sqlite:{}", git.home.path("behind.db").display());
    let token = git.ask(&["lease", "acquire", "site", "--store", &behind]).exits(0).text();
    let said =
        git.push(&token, "g", &["--store", &behind]).exits(77).saying(&format!("sealed by token {next}"));
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert_eq!((git.count("e"), git.count("f"), git.count("g")), (1, 1, 0));
}

/// A pusher stalls after its look, another takes over and pushes, the first one wakes.
#[test]
fn a_zombie_that_wakes_is_77() {
    if !cfg!(feature = "crash-points") {
        return skipped("a_zombie_that_wakes_is_77", "built without crash points");
    }
    for place in ["git.looked", "git.effect.before"] {
        let git = Git::new();
        let token = git.acquire();
        git.commit("e");
        let zombie = git.start(&token, "e", &[], place);
        until("it has stalled", SOON, || is_stopped(zombie.pid()));
        git.ask(&["lease", "release", "site", "--token", &token]).exits(0);
        let next = git.acquire();
        git.push(&next, "e", &[]).exits(0).silent();
        zombie.signal(libc::SIGCONT);
        zombie.end().exits(77).saying("nothing was pushed");
        assert_eq!(git.count("e"), 1);
    }
}

/// Semel is killed while its git is under way: git lives on, and must not land after the takeover.
#[test]
fn a_git_that_outlives_semel_is_refused_by_the_remote() {
    let git = Git::new();
    let mut gate = git.home.gate("gate");
    let hook =
        git.home.executable("hook", "cd \"$E2E_HOME\"; echo x >> reached; read go < gate; echo x >> woken");
    std::fs::create_dir_all(git.repo.join(".git/hooks")).unwrap();
    std::fs::rename(hook, git.repo.join(".git/hooks/pre-push")).unwrap();
    let token = git.acquire();
    git.commit("e");
    let first = git.start(&token, "e", &[], "");
    // git has read the remote, and is about to send
    git.home.wait_lines("reached", 1);
    first.kill_9();
    git.ask(&["lease", "release", "site", "--token", &token]).exits(0);
    let next = git.acquire();
    git.here("git commit -q --allow-empty -m other --trailer 'Effect-Id: f'");
    git.push(&next, "f", &["--no-verify", "origin", "main:refs/heads/elsewhere"]).exits(0);
    assert_eq!(git.count("e"), 0);
    gate.open(1);
    git.home.wait_lines("woken", 1);
    until("the orphan is gone", SOON, || git.home.alive().is_empty());
    assert_eq!(git.count("e"), 0, "main was not in its way: only the fence was");
}

#[test]
fn killed_at_any_place_and_retried_the_effect_is_there_once() {
    if !cfg!(feature = "crash-points") {
        return skipped(
            "killed_at_any_place_and_retried_the_effect_is_there_once",
            "built without crash points",
        );
    }
    for place in [
        "git.seal.before",
        "git.seal.after",
        "git.looked",
        "git.effect.before",
        "git.effect.after",
        "git.done",
    ] {
        let git = Git::new();
        let token = git.acquire();
        git.commit("e");
        let first = git.start(&token, "e", &[], place);
        until(place, SOON, || is_stopped(first.pid()));
        let landed = git.count("e");
        assert_eq!(landed == 1, matches!(place, "git.effect.after" | "git.done"), "{place}");
        first.kill_9();
        // the next attempt starts from the remote and makes a commit of its own
        git.ask(&["lease", "release", "site", "--token", &token]).exits(0);
        let next = git.acquire();
        git.commit("e");
        git.push(&next, "e", &[]).exits(0);
        assert_eq!(git.count("e"), 1, "{place}");
    }
}

/// The same with plain git: killed after the push, retried from the remote.
#[test]
fn control_a_plain_push_that_is_retried_lands_twice() {
    let git = Git::new();
    for _ in 0..2 {
        git.commit("e");
        git.here("git push -q origin main");
    }
    assert_eq!(git.count("e"), 2);
}

#[test]
fn what_would_let_a_stale_push_in_is_78_with_a_hint() {
    let git = Git::new();
    let token = git.acquire();
    git.commit("e");
    for (words, hint) in [
        ("--force", "--force-with-lease=REF:OLD"),
        ("-f", "--force-with-lease=REF:OLD"),
        ("--force-with-lease", "write REF:OLD"),
        ("--force-with-lease=main", "write REF:OLD"),
        ("--no-force-with-lease", "leave it out"),
        ("--no-atomic", "leave it out"),
        ("--mirror", "name each"),
        ("--all", "name each"),
        ("--tags", "name each"),
        ("--prune", "use git push"),
        ("origin --delete main", "use git push"),
        ("origin +main", "--force-with-lease=REF:OLD"),
        ("origin +main:main", "--force-with-lease=REF:OLD"),
        ("origin :main", "use git push"),
        ("origin refs/heads/*", "name each"),
        ("-- --receive-pack=x main", "starts with a dash"),
        ("origin -- -evil", "starts with a dash"),
    ] {
        let words: Vec<&str> = words.split(' ').collect();
        git.push(&token, "e", &words).exits(78).saying(hint);
    }
    assert_eq!(git.count("e"), 0);
    let old = git.script(&git.bare, "git rev-parse main");
    git.push(&token, "e", &[&format!("--force-with-lease=main:{old}"), "--atomic", "origin", "main"])
        .exits(0);
    assert_eq!(git.count("e"), 1);
}

#[test]
fn what_is_missing_is_said() {
    let git = Git::new();
    git.commit("other");
    git.ask(&["push"]).exits(78);
    let token = git.acquire();
    let hint = "git commit --amend --no-edit --trailer \"Effect-Id: e\"";
    git.push(&token, "e", &[]).exits(78).saying(hint);
    git.here("git commit -q --allow-empty --amend --no-edit --trailer 'Effect-Id: e'");
    git.push(&token, "e", &["/nowhere", "main"]).exits(1).saying("nothing was pushed");
    let said = git.push(&token, "e", &["http://me:secret@127.0.0.1:1/x", "main"]).exits(1);
    assert!(!said.err.contains("secret"), "{}", said.err);
    git.push(&token, "not an id", &[]).exits(78).saying("--effect-id");
    git.ask(&["push", "--resource", "site", "--token", &token]).exits(78).saying("--effect-id ID");
    let refusing = git.bare.join("hooks/pre-receive");
    std::fs::create_dir_all(refusing.parent().unwrap()).unwrap();
    let hook = git.home.executable("hook", "grep -q refs/heads/ || exit 0; echo 'not on a Friday'; exit 1");
    std::fs::rename(hook, refusing).unwrap();
    git.push(&token, "e", &[]).exits(1).saying("not on a Friday").saying("declined");
    assert_eq!(git.count("e"), 0);
    let no_git = git.home.launch(
        git.semel(&["push", "--resource", "site", "--token", &token, "--effect-id", "e"])
            .env("PATH", "/nowhere"),
    );
    no_git.end().exits(78).saying("cannot be started");
}

#[test]
fn the_trailer_is_that_of_the_step_or_the_run() {
    let git = Git::new();
    let trailer = |vars: &[(&str, &str)], args: &[&str]| {
        let mut words = vec!["commit-trailer"];
        words.extend(args);
        git.home.launch(git.semel(&words).envs(vars.iter().copied())).end()
    };
    assert_eq!(trailer(&[("SEMEL_KEY", "abc")], &[]).exits(0).silent().text(), "Effect-Id: abc");
    let both = [("SEMEL_KEY", "abc"), ("SEMEL_IDEMPOTENCY_KEY", "abc/step")];
    assert_eq!(trailer(&both, &[]).exits(0).text(), "Effect-Id: abc/step");
    assert_eq!(trailer(&both, &["--effect-id", "mine"]).exits(0).text(), "Effect-Id: mine");
    trailer(&[], &[]).exits(78).saying("--effect-id");
    trailer(&[("SEMEL_KEY", "a\nb")], &[]).exits(78);
    // both documented ways put it where it is found
    git.here("echo subject > m; git interpret-trailers --in-place --trailer \"$($SEMEL commit-trailer --effect-id e)\" m");
    assert_eq!(git.here("git interpret-trailers --parse m"), "Effect-Id: e");
    // in a run it is the run's key
    let out =
        git.home.run("--job a --once", "$SEMEL commit-trailer; echo Effect-Id: $SEMEL_KEY").exits(0).text();
    assert_eq!(out.lines().next(), out.lines().last());
}

#[test]
fn doctor_proves_that_a_remote_is_fenced_or_calls_it_unfenced() {
    let git = Git::new();
    let url = git.bare.to_str().unwrap();
    for address in [url, "origin", "../remote.git"] {
        let well = git.ask(&["doctor", "--git", address]).exits(0).text();
        assert!(well.contains("is fenced"), "{well}");
    }
    let refs = || git.script(&git.bare, "git for-each-ref --format='%(refname)'");
    assert_eq!(refs(), "refs/heads/main", "all cleaned up");
    assert!(!git.home.database().exists(), "and no ledger is made for it");
    git.script(&git.bare, "git config receive.advertiseAtomic false");
    let ill = git.ask(&["doctor", "--git", url]).exits(1).text();
    assert!(ill.contains("UNFENCED"), "{ill}");
    assert_eq!(git.ask(&["doctor", "--git", url, "--json"]).exits(1).json()["wrong"], 1);
    let gone = git.ask(&["doctor", "--git", "https://me:secret@127.0.0.1:1/x"]).exits(1).text();
    assert!(gone.contains("***@") && !gone.contains("secret"), "{gone}");
    git.ask(&["doctor", "--git", "-evil"]).exits(78);
    git.ask(&["doctor", "--git=-evil"]).exits(1);
    assert_eq!(refs(), "refs/heads/main");
}

const POST: &str = "git fetch -q && git reset -q --hard origin/main && git commit -q --allow-empty -m post \
    --trailer \"$($SEMEL commit-trailer)\" && $SEMEL push origin main";

/// In a run nothing is named: the lease, the token and the effect are the run's, or the step's.
#[test]
fn in_a_run_the_effect_is_known_by_the_run_and_in_a_step_by_the_step() {
    let git = Git::new();
    let run = |flags: &str, script: &str| {
        let mut command = git.home.work(flags, script);
        git.home.launch(isolated(&mut command).current_dir(&git.repo)).end()
    };
    // pushed, and then it failed: the retry finds it there
    run("--job a --once", &format!("{POST}; test -e ok")).exits(1);
    std::fs::write(git.repo.join("ok"), "").unwrap();
    run("--job a --once", &format!("{POST}; test -e ok")).exits(0);
    // two pushes of one run are two steps, each with its own mark
    let steps = format!("set -e; $SEMEL step one -- sh -c '{POST}'; $SEMEL step two -- sh -c '{POST}'");
    run("--job b --once", &steps).exits(0);
    run("--job c --always", POST).exits(78).saying("--effect-id");
    let log = git.script(&git.bare, "git log --format=%s main");
    assert_eq!(log.lines().filter(|subject| *subject == "post").count(), 3, "{log}");
}

#[test]
fn a_rehearsal_pushes_nothing() {
    let git = Git::new();
    let before = git.script(&git.bare, "git for-each-ref");
    let mut command = git.home.work("--job a --once --rehearse", POST);
    let said = git.home.launch(isolated(&mut command).current_dir(&git.repo)).end().exits(0);
    said.saying("rehearsal: main would be pushed to origin, as ");
    assert_eq!(git.script(&git.bare, "git for-each-ref"), before);
}
