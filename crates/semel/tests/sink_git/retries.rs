//! Attempts after attempts: lost answers, refs that a dying server left apart, other commits, cut histories.

use semel::core::token::Nonce;
use semel::sink::git::{GitSinkError, Pushed};

use crate::world::{Place, Stall, World, is_done, is_stale, is_there, marked, push, write_executable};

/// A git that pushes the effect and says that it failed; `n` times.
fn deaf(world: &World, n: u32) -> std::path::PathBuf {
    world.executable(
        "deaf-git",
        &format!(
            r#"case "$*" in
    *--no-verify*) exec git "$@" ;;
    *" push "*) echo x >> {0}; git "$@"; [ $(wc -l < {0}) -le {n} ] && {{ echo 'fatal: the line is cut' >&2; exit 128; }} || exit $? ;;
esac
exec git "$@""#,
            world.path("pushes").display()
        ),
    )
}

#[test]
fn an_answer_that_is_lost_is_found_by_looking() {
    let world = World::new();
    let repo = world.clone("repo");
    let mine = world.work(&repo, "e");
    let mut sink = world.sink(&repo, 1, "e");
    sink.program.git = deaf(&world, 1);
    let done = push(&sink, &["main"]);
    let Ok(Pushed::Done(landed)) = &done else { panic!("{done:?}") };
    assert_eq!(landed[0].commit, mine);
    assert_eq!(std::fs::read_to_string(world.path("pushes")).unwrap().lines().count(), 1, "sent once");
    assert_eq!(world.count("refs/heads/main", "e"), 1);
}

/// The push arrives, its answer does not, and by the time one can look the work is another's.
#[test]
fn an_answer_that_is_lost_before_a_takeover_is_found_too() {
    let world = World::new();
    let (repo, other) = (world.clone("repo"), world.clone("other"));
    world.work(&repo, "e");
    let (stall, mut program) = Stall::new(&world, &repo, "stall", Place::After);
    let git = std::fs::read_to_string(&program.git).unwrap();
    program.git = world.path("stalling-and-deaf");
    write_executable(&program.git, &git.replace("exit $code", "exit 128"));
    let sink = world.sink_of(program, 1, "e");
    std::thread::scope(|scope| {
        let woken = scope.spawn(|| push(&sink, &["main"]));
        stall.wait();
        world.work(&other, "f");
        assert!(is_done(&push(&world.sink(&other, 2, "f"), &["main"])));
        stall.go();
        let woken = woken.join().unwrap();
        assert!(is_done(&woken), "it was there before the takeover: {woken:?}");
    });
    assert_eq!((world.count("refs/heads/main", "e"), world.count("refs/heads/main", "f")), (1, 1));
}

/// A git that is killed in the remote leaves its locks there. Nobody but a person can know that it is no longer at work.
#[test]
fn a_lock_that_a_killed_git_left_is_named_and_not_taken_for_a_race() {
    let world = World::new();
    let repo = world.clone("repo");
    world.work(&repo, "e");
    let lock = world.path("remote.git/refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    let sink = world.sink(&repo, 1, "e");
    let refused = push(&sink, &["main"]);
    let Err(GitSinkError::Locked { file, .. }) = &refused else { panic!("{refused:?}") };
    assert!(file.ends_with("refs/heads/main.lock"), "{file}");
    assert_eq!(world.count("refs/heads/main", "e"), 0);
    std::fs::remove_file(lock).unwrap();
    assert!(is_done(&push(&sink, &["main"])));
    assert_eq!(world.count("refs/heads/main", "e"), 1);
}

#[test]
fn a_push_that_never_arrives_and_never_answers_is_unknown() {
    let world = World::new();
    let repo = world.clone("repo");
    world.work(&repo, "e");
    let mut sink = world.sink(&repo, 1, "e");
    sink.program.git = world.executable(
        "cut-git",
        r#"case "$*" in *--no-verify*) ;; *" push "*) echo 'fatal: the line is cut' >&2; exit 128 ;; esac
exec git "$@""#,
    );
    let pushed = push(&sink, &["main"]);
    assert!(matches!(pushed, Err(GitSinkError::Unknown(_))), "{pushed:?}");
    assert!(is_done(&push(&world.sink(&repo, 1, "e"), &["main"])), "pushing again is safe");
    assert_eq!(world.count("refs/heads/main", "e"), 1);
}

/// A server that is killed between two refs leaves one without the other.
#[test]
fn torn_refs_are_mended_by_the_next_push() {
    let world = World::new();
    let (repo, other) = (world.clone("repo"), world.clone("other"));
    let before = world.tip("refs/heads/main");
    world.work(&repo, "e");
    assert!(is_done(&push(&world.sink(&repo, 1, "e"), &["main"])));
    // the fence without the branch: nothing is concluded from it
    let fence = world.tip("refs/fence/site");
    world.git(&world.bare, ["update-ref", "refs/heads/main", &before]);
    world.work(&other, "e");
    assert!(is_done(&push(&world.sink(&other, 2, "e"), &["main"])));
    assert_eq!(world.count("refs/heads/main", "e"), 1);
    // the branch without the fence
    world.git(&world.bare, ["update-ref", "refs/fence/site", &fence]);
    world.work(&repo, "e");
    assert!(is_there(&push(&world.sink(&repo, 2, "e"), &["main"])));
    assert_eq!(world.count("refs/heads/main", "e"), 1);
    // one of two branches
    let two = world.commit_on(&repo, None, &marked("e"));
    let done = push(&world.sink(&repo, 2, "e"), &["main", &format!("{two}:refs/heads/two")]);
    let Ok(Pushed::Done(landed)) = &done else { panic!("{done:?}") };
    assert_eq!(landed.len(), 1, "only the one that is missing");
    assert_eq!(world.tip("refs/heads/two"), two);
}

/// A fresh clone holds the first attempt's commit, and others on top: the new commit is unlike it, and forward.
#[test]
fn an_effect_deep_in_the_history_is_found() {
    let world = World::new();
    let (repo, other) = (world.clone("repo"), world.clone("other"));
    world.work(&repo, "e");
    assert!(is_done(&push(&world.sink(&repo, 1, "e"), &["main"])));
    for _ in 0..3 {
        let tip = world.tip("refs/heads/main");
        let more = world.commit_on(&world.bare, Some(&tip), "somebody else's");
        world.git(&world.bare, ["update-ref", "refs/heads/main", &more]);
    }
    world.work(&other, "e");
    let there = push(&world.sink(&other, 2, "e"), &["main"]);
    assert!(is_there(&there), "{there:?}");
    assert_eq!(world.count("refs/heads/main", "e"), 1);
}

#[test]
fn a_squashed_effect_is_found() {
    let world = World::new();
    let repo = world.clone("repo");
    let tip = world.tip("refs/heads/main");
    let squashed =
        world.commit_on(&world.bare, Some(&tip), "all\n\n* work\n\nEffect-Id: e\n\n* more\n\nReviewed-by: B");
    world.git(&world.bare, ["update-ref", "refs/heads/main", &squashed]);
    world.work(&repo, "e");
    assert!(is_there(&push(&world.sink(&repo, 1, "e"), &["main"])));
}

#[test]
fn a_cut_history_is_refused_not_guessed_at() {
    let world = World::new();
    let repo = world.clone("repo");
    world.work(&repo, "e");
    assert!(is_done(&push(&world.sink(&repo, 1, "e"), &["main"])));
    world.work(&repo, "f");
    assert!(is_done(&push(&world.sink(&repo, 1, "f"), &["main"])));
    let shallow = world.path("shallow");
    let url = format!("file://{}", world.bare.display());
    world.git(&world.path(""), ["clone", "-q", "--depth=1", &url, shallow.to_str().unwrap()]);
    world.work(&shallow, "e");
    let pushed = push(&world.sink(&shallow, 2, "e"), &["main"]);
    assert_eq!(pushed, Err(GitSinkError::Shallow));
    world.git(&shallow, ["fetch", "-q", "--unshallow", "origin"]);
    assert!(is_there(&push(&world.sink(&shallow, 2, "e"), &["main"])));
    assert_eq!(world.count("refs/heads/main", "e"), 1);
}

#[test]
fn one_token_with_two_nonces_is_an_alarm() {
    let world = World::new();
    let repo = world.clone("repo");
    world.work(&repo, "e");
    assert!(is_done(&push(&world.sink(&repo, 1, "e"), &["main"])));
    world.work(&repo, "f");
    let mut sink = world.sink(&repo, 1, "f");
    sink.grant.nonce = Nonce::from_bytes([9; 16]);
    assert!(matches!(push(&sink, &["main"]), Err(GitSinkError::Clash { .. })));
    assert_eq!(world.count("refs/heads/main", "f"), 0);
}

#[test]
fn a_fence_that_is_something_else_is_left_alone() {
    let world = World::new();
    let repo = world.clone("repo");
    let mine = world.work(&repo, "e");
    let tip = world.tip("refs/heads/main");
    world.git(&world.bare, ["update-ref", "refs/fence/site", &tip]);
    let pushed = push(&world.sink(&repo, 1, "e"), &["main"]);
    assert!(matches!(pushed, Err(GitSinkError::Damaged { .. })), "{pushed:?}");
    assert_ne!(world.tip("refs/heads/main"), mine);
}

/// Several pushes of one run at once, each with an effect of its own: they wait for each other, and all land.
#[test]
fn different_effects_under_one_grant_all_land() {
    let world = World::new();
    let clones: Vec<_> = (0..4).map(|n| world.clone(&format!("clone{n}"))).collect();
    std::thread::scope(|scope| {
        for (n, clone) in clones.iter().enumerate() {
            let world = &world;
            scope.spawn(move || {
                let effect = format!("e{n}");
                let commit = world.commit_on(clone, None, &marked(&effect));
                let done = push(&world.sink(clone, 1, &effect), &[&format!("{commit}:refs/heads/b{n}")]);
                assert!(is_done(&done), "{done:?}");
            });
        }
    });
    for n in 0..4 {
        assert_eq!(world.count(&format!("refs/heads/b{n}"), &format!("e{n}")), 1);
    }
    // and the next grant ends all of that
    let repo = &clones[0];
    let commit = world.commit_on(repo, None, &marked("next"));
    assert!(is_done(&push(&world.sink(repo, 2, "next"), &[&format!("{commit}:refs/heads/next")])));
    let commit = world.commit_on(repo, None, &marked("late"));
    assert!(is_stale(&push(&world.sink(repo, 1, "late"), &[&format!("{commit}:refs/heads/late")])));
}
