//! Which refs are pushed, which are refused, and that no setting adds to them.

use semel::sink::git::{GitSinkError, Lease, PushOptions, Pushed, Refspec, Remote, upstream};

use crate::world::{World, is_done, is_there, marked, push, push_with, write_executable};

#[test]
fn several_branches_and_tags_land_together() {
    let world = World::new();
    let repo = world.clone("repo");
    let main = world.work(&repo, "e");
    let notes = world.commit_on(&repo, None, &marked("e"));
    world.git(&repo, ["branch", "notes", &notes]);
    world.git(&repo, ["tag", "v1", &main]);
    world.git(&repo, ["tag", "-a", "v2", "-m", "two", "-m", "Effect-Id: e", "HEAD~0^{commit}"]);
    let refs = ["main", "notes:refs/heads/docs/notes", "v1", "v2"];
    let done = push(&world.sink(&repo, 1, "e"), &refs);
    let Ok(Pushed::Done(landed)) = &done else { panic!("{done:?}") };
    let names: Vec<_> = landed.iter().map(|landed| landed.name.as_str()).collect();
    assert_eq!(names, ["refs/heads/main", "refs/heads/docs/notes", "refs/tags/v1", "refs/tags/v2"]);
    assert_eq!((world.tip("refs/heads/main"), world.tip("refs/heads/docs/notes")), (main, notes));
    assert!(is_there(&push(&world.sink(&repo, 1, "e"), &refs)), "again");
    // a retry from scratch: other commits, another tag object
    let other = world.clone("other");
    let main = world.work(&other, "e");
    world.git(&other, ["tag", "-f", "v1", &main]);
    world.git(&other, ["tag", "-f", "-a", "v2", "-m", "again", "-m", "Effect-Id: e", &main]);
    assert!(is_there(&push(&world.sink(&other, 2, "e"), &["main", "v1", "v2"])));
    assert_eq!(world.count("--all", "e"), 2, "one on each branch");
}

#[test]
fn one_bad_ref_stops_all() {
    let world = World::new();
    let repo = world.clone("repo");
    let main = world.work(&repo, "e");
    world.git(&repo, ["branch", "plain", "origin/main"]);
    let plain = world.commit_on(&repo, Some("origin/main"), "no trailer");
    world.git(&repo, ["update-ref", "refs/heads/plain", &plain]);
    let before = world.tip("refs/heads/main");
    let pushed = push(&world.sink(&repo, 1, "e"), &["main", "plain"]);
    assert!(matches!(pushed, Err(GitSinkError::NoTrailer { .. })), "{pushed:?}");
    assert_eq!(
        (world.tip("refs/heads/main"), world.tip("refs/heads/plain")),
        (before.clone(), String::new())
    );
    // a hook of the remote's that refuses one of them
    write_executable(&world.bare.join("hooks/update"), "[ $1 != refs/heads/two ]");
    let pushed = push(&world.sink(&repo, 1, "e"), &["main", &format!("{main}:refs/heads/two")]);
    let Err(GitSinkError::Refused(why)) = &pushed else { panic!("{pushed:?}") };
    assert!(why.contains("hook declined"), "{why}");
    assert_eq!(world.tip("refs/heads/main"), before);
}

#[test]
fn without_a_trailer_the_hint_says_what_to_do() {
    let world = World::new();
    let repo = world.clone("repo");
    world.work(&repo, "another-effect");
    let pushed = push(&world.sink(&repo, 1, "e"), &["main"]).unwrap_err().to_string();
    assert!(pushed.contains("git commit --amend --no-edit --trailer \"Effect-Id: e\""), "{pushed}");
    // nor is an id that only starts alike the same
    world.work(&repo, "e2");
    assert!(matches!(push(&world.sink(&repo, 1, "e"), &["main"]), Err(GitSinkError::NoTrailer { .. })));
    // what the remote has all of needs none
    world.git(&repo, ["update-ref", "refs/heads/main", "refs/remotes/origin/main"]);
    assert_eq!(push(&world.sink(&repo, 1, "e"), &["main"]), Ok(Pushed::UpToDate));
}

#[test]
fn branches_move_forward_only_unless_the_old_value_is_named() {
    let world = World::new();
    let (repo, other) = (world.clone("repo"), world.clone("other"));
    let mine = world.work(&repo, "e");
    world.work(&other, "theirs");
    world.git(&other, ["push", "-q", "origin", "main"]);
    let theirs = world.tip("refs/heads/main");
    let sink = world.sink(&repo, 1, "e");
    assert!(matches!(push(&sink, &["main"]), Err(GitSinkError::NotFastForward { .. })));
    let with =
        |lease: String| PushOptions { leases: vec![Lease::parse(&lease).unwrap()], ..PushOptions::default() };
    let wrong = push_with(&sink, &["main"], &with(format!("main:{mine}")));
    assert!(matches!(wrong, Err(GitSinkError::NotAsLeased { .. })), "{wrong:?}");
    let nobody = push_with(&sink, &["main"], &with(format!("elsewhere:{theirs}")));
    assert!(matches!(nobody, Err(GitSinkError::Usage(_))), "{nobody:?}");
    let fence = push_with(&sink, &["main"], &with(format!("refs/fence/site:{theirs}")));
    assert!(matches!(fence, Err(GitSinkError::Usage(_))), "{fence:?}");
    assert_eq!(world.tip("refs/heads/main"), theirs);
    assert!(is_done(&push_with(&sink, &["main"], &with(format!("main:{theirs}")))));
    assert_eq!(world.tip("refs/heads/main"), mine);
}

#[test]
fn a_tag_is_never_moved_unless_told() {
    let world = World::new();
    let repo = world.clone("repo");
    world.git(&repo, ["tag", "v1", "main"]);
    world.git(&repo, ["push", "-q", "origin", "v1"]);
    let old = world.tip("refs/tags/v1");
    let new = world.work(&repo, "e");
    world.git(&repo, ["tag", "-f", "v1", &new]);
    let sink = world.sink(&repo, 1, "e");
    let pushed = push(&sink, &["main", "v1"]);
    assert!(matches!(pushed, Err(GitSinkError::TagExists { .. })), "{pushed:?}");
    assert_eq!(world.tip("refs/tags/v1"), old);
    let lease = Lease::parse(&format!("v1:{old}")).unwrap();
    let options = PushOptions { leases: vec![lease], ..PushOptions::default() };
    assert!(is_done(&push_with(&sink, &["main", "v1"], &options)));
    assert_eq!(world.tip("refs/tags/v1"), new);
}

#[test]
fn settings_do_not_smuggle_anything_in() {
    let world = World::new();
    let repo = world.clone("repo");
    let main = world.work(&repo, "e");
    for (name, value) in [
        ("push.followTags", "true"),
        ("push.default", "matching"),
        ("remote.origin.push", "+refs/heads/*:refs/heads/*"),
        ("remote.origin.mirror", "true"),
        ("remote.origin.tagOpt", "--tags"),
        ("fetch.prune", "true"),
        ("push.recurseSubmodules", "on-demand"),
        ("user.useConfigOnly", "true"),
        ("commit.gpgSign", "true"),
    ] {
        world.git(&repo, ["config", name, value]);
    }
    world.git(&repo, ["tag", "-a", "follows", "-m", "x", &main]);
    world.git(&repo, ["branch", "secret", &main]);
    let mut sink = world.sink(&repo, 1, "e");
    sink.remote = Remote::resolve(&sink.program, "origin").unwrap();
    let before = world.git(&repo, ["for-each-ref", "refs/heads", "refs/tags"]);
    let done = push(&sink, &["main"]);
    assert!(is_done(&done), "{done:?}");
    let names = world.git(&world.bare, ["for-each-ref", "--format=%(refname)"]);
    assert_eq!(names, "refs/fence/site\nrefs/heads/main");
    assert_eq!(world.git(&repo, ["for-each-ref", "refs/heads", "refs/tags"]), before, "nor here");
}

#[test]
fn what_looks_like_an_option_is_data() {
    let world = World::new();
    let repo = world.clone("repo");
    let commit = world.work(&repo, "e");
    let program = world.program(&repo);
    for remote in ["-evil", "--upload-pack=touch x", "--mirror", "", "a\nb"] {
        assert!(matches!(Remote::resolve(&program, remote), Err(GitSinkError::Usage(_))), "{remote:?}");
    }
    for refspec in ["-evil", "--force", "main:-evil", "--receive-pack=x"] {
        assert!(Refspec::parse(refspec).is_err(), "{refspec:?}");
    }
    // names that git takes, or not, for what they are
    world.git(&repo, ["update-ref", "refs/heads/-evil", &commit]);
    assert!(is_done(&push(&world.sink(&repo, 1, "e"), &["refs/heads/-evil"])));
    assert_eq!(world.tip("refs/heads/-evil"), commit);
    for refspec in ["main:a..b", "main:x.lock", "main:refs/notes/x", "nothing", "nothing:main", "main~0"] {
        let pushed = push(&world.sink(&repo, 1, "e"), &[refspec]);
        assert!(matches!(pushed, Err(GitSinkError::Usage(_))), "{refspec}: {pushed:?}");
    }
    let twice = push(&world.sink(&repo, 1, "e"), &["main", "refs/heads/-evil:main"]);
    assert!(matches!(twice, Err(GitSinkError::Usage(_))), "{twice:?}");
    world.git(&repo, ["tag", "both", &commit]);
    world.git(&repo, ["branch", "both", &commit]);
    assert!(matches!(push(&world.sink(&repo, 1, "e"), &["both"]), Err(GitSinkError::Usage(_))));
}

#[test]
fn without_a_refspec_the_current_branch_goes_to_its_upstream() {
    let world = World::new();
    let repo = world.clone("repo");
    let program = world.program(&repo);
    let pushed = |to: Option<&str>| upstream(&program, to).map(|(remote, spec)| format!("{remote} {spec:?}"));
    assert!(pushed(None).unwrap().starts_with("origin") && pushed(None).unwrap().contains("refs/heads/main"));
    world.git(&repo, ["config", "branch.main.merge", "refs/heads/other"]);
    assert!(pushed(None).unwrap().contains("refs/heads/other"));
    assert!(!pushed(Some("elsewhere")).unwrap().contains("refs/heads/other"));
    world.git(&repo, ["config", "remote.pushDefault", "mine"]);
    assert!(pushed(None).unwrap().starts_with("mine"));
    world.git(&repo, ["checkout", "-q", "--detach"]);
    assert!(matches!(upstream(&program, None), Err(GitSinkError::Usage(_))));
}

#[test]
fn the_remote_is_read_where_it_is_pushed_to() {
    let world = World::new();
    let repo = world.clone("repo");
    // fetched from a mirror that lags behind, pushed to the real one
    let mirror = world.path("mirror.git");
    world.git(&world.path(""), ["clone", "-q", "--mirror", &world.url, mirror.to_str().unwrap()]);
    world.git(&repo, ["config", "remote.origin.url", mirror.to_str().unwrap()]);
    world.git(&repo, ["config", "remote.origin.pushurl", &world.url]);
    for effect in ["a", "b"] {
        world.work(&repo, effect);
        let mut sink = world.sink(&repo, 1, effect);
        sink.remote = Remote::resolve(&sink.program, "origin").unwrap();
        assert!(is_done(&push(&sink, &["main"])));
        assert!(is_there(&push(&sink, &["main"])));
    }
    world.git(&repo, ["config", "--add", "remote.origin.pushurl", mirror.to_str().unwrap()]);
    let two = Remote::resolve(&world.program(&repo), "origin");
    assert!(matches!(two, Err(GitSinkError::Usage(_))), "{two:?}");
}

#[test]
fn the_users_hook_runs_for_the_effect_and_may_refuse_it() {
    let world = World::new();
    let repo = world.clone("repo");
    let main = world.work(&repo, "e");
    let log = world.path("log");
    write_executable(
        &repo.join(".git/hooks/pre-push"),
        &format!("cat >> {}; echo >> {0}; exit 1", log.display()),
    );
    let pushed = push(&world.sink(&repo, 1, "e"), &["main"]);
    assert!(matches!(pushed, Err(GitSinkError::Refused(_))), "{pushed:?}");
    let heard = std::fs::read_to_string(&log).unwrap();
    assert!(heard.contains(&main) && heard.contains("refs/fence/site"), "{heard}");
    assert_eq!(heard.matches("refs/fence/site").count(), 1, "once, and not for the seal");
    let options = PushOptions { no_verify: true, ..PushOptions::default() };
    assert!(is_done(&push_with(&world.sink(&repo, 1, "e"), &["main"], &options)));
}
