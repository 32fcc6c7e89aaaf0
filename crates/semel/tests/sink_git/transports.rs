//! Every way to a remote, every way to keep its refs, and remotes that cannot be fenced.

use semel::core::name::Name;
use semel::sink::git::{GitSinkError, Pushed, Remote, prove};

use crate::skips::skipped;
use crate::world::{Backend, Transport, World, is_done, is_stale, is_there, marked, push, write_executable};

/// First push, retry with another commit, takeover, zombie.
fn works(name: &str, transport: Transport, backend: Backend) {
    let Some(world) = World::with(transport, backend) else {
        return skipped(name, "this git has no reftable");
    };
    let (one, two) = (world.clone("one"), world.clone("two"));
    let first = world.work(&one, "a");
    let done = push(&world.sink(&one, 5, "a"), &["main"]);
    let Ok(Pushed::Done(landed)) = &done else { panic!("{done:?}") };
    assert_eq!((landed[0].name.as_str(), &landed[0].commit), ("refs/heads/main", &first));
    assert!(is_there(&push(&world.sink(&one, 5, "a"), &["main"])), "again");
    world.work(&two, "a");
    let there = push(&world.sink(&two, 6, "a"), &["main"]);
    let Ok(Pushed::AlreadyThere(landed)) = &there else { panic!("{there:?}") };
    assert_eq!(landed[0].commit, first, "the commit that is there is named");
    world.work(&one, "b");
    assert!(is_stale(&push(&world.sink(&one, 5, "b"), &["main"])));
    world.work(&two, "b");
    assert!(is_done(&push(&world.sink(&two, 6, "b"), &["main"])));
    assert_eq!((world.count("refs/heads/main", "a"), world.count("refs/heads/main", "b")), (1, 1));
    assert_eq!(
        world.git(&world.bare, ["for-each-ref", "--format=%(refname)"]),
        "refs/fence/site\nrefs/heads/main"
    );
    // the fence is a chain of commits without files
    assert_eq!(world.git(&world.bare, ["ls-tree", "refs/fence/site"]), "");
    assert_eq!(world.git(&world.bare, ["rev-list", "--count", "refs/fence/site"]), "4");
    assert_eq!(prove(&world.program(&one), &world.url, &empty(&world, "trial")).unwrap().unfenced, None);
    assert_eq!(
        world.git(&world.bare, ["for-each-ref", "--format=%(refname)"]),
        "refs/fence/site\nrefs/heads/main"
    );
}

fn empty(world: &World, name: &str) -> std::path::PathBuf {
    std::fs::create_dir(world.path(name)).unwrap();
    world.path(name)
}

#[test]
fn file_and_files() {
    works("file_and_files", Transport::File, Backend::Files);
}

#[test]
fn file_and_reftable() {
    works("file_and_reftable", Transport::File, Backend::Reftable);
}

#[test]
fn ssh_and_files() {
    works("ssh_and_files", Transport::Ssh, Backend::Files);
}

#[test]
fn ssh_and_reftable() {
    works("ssh_and_reftable", Transport::Ssh, Backend::Reftable);
}

#[test]
fn http_and_files() {
    works("http_and_files", Transport::Http, Backend::Files);
}

#[test]
fn http_and_reftable() {
    works("http_and_reftable", Transport::Http, Backend::Reftable);
}

#[test]
fn any_resource_has_a_fence_that_git_takes() {
    let world = World::new();
    let repo = world.clone("repo");
    let long = vec!["a"; 64].join("/");
    for (round, name) in ["a", "a/b", "a..b", "x.lock", "a:b.", "_", &long].into_iter().enumerate() {
        let effect = format!("e{round}");
        world.work(&repo, &effect);
        let mut sink = world.sink(&repo, 1, &effect);
        sink.resource = Name::new(name).unwrap();
        let pushed = push(&sink, &["main"]);
        assert!(is_done(&pushed), "{name}: {pushed:?}");
    }
}

#[track_caller]
fn is_unfenced(world: &World) {
    let repo = world.clone("repo");
    world.work(&repo, "e");
    let before = world.tip("refs/heads/main");
    let pushed = push(&world.sink(&repo, 1, "e"), &["main"]);
    assert!(matches!(pushed, Err(GitSinkError::Unfenced(_))), "{pushed:?}");
    assert_eq!(world.tip("refs/heads/main"), before);
    let proof = prove(&world.program(&repo), &world.url, &empty(world, "trial")).unwrap();
    assert!(proof.unfenced.is_some(), "{proof:?}");
    assert_eq!(
        world.git(&world.bare, ["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main",
        "all cleaned up"
    );
}

#[test]
fn a_remote_without_atomic_pushes_is_unfenced() {
    let world = World::new();
    world.git(&world.bare, ["config", "receive.advertiseAtomic", "false"]);
    is_unfenced(&world);
}

/// Git takes the other refs of an atomic push when one of them is hidden: the seal finds out first.
#[test]
fn a_remote_that_hides_the_fence_is_unfenced() {
    let world = World::new();
    world.git(&world.bare, ["config", "transfer.hideRefs", "refs/fence"]);
    is_unfenced(&world);
}

#[test]
fn a_remote_whose_hook_refuses_the_fence_is_unfenced() {
    let world = World::new();
    write_executable(&world.bare.join("hooks/update"), "case $1 in refs/heads/*) ;; *) exit 1 ;; esac");
    is_unfenced(&world);
}

#[test]
fn control_an_atomic_push_with_a_hidden_ref_lands_in_part() {
    let world = World::new();
    world.git(&world.bare, ["config", "transfer.hideRefs", "refs/fence"]);
    let repo = world.clone("repo");
    let late = world.work(&repo, "e");
    world.try_git(&repo, ["push", "-q", "--atomic", "origin", "main", "main:refs/fence/site"]);
    assert_eq!(world.tip("refs/heads/main"), late);
}

#[test]
fn what_the_trial_cannot_remove_is_named() {
    let world = World::new();
    write_executable(&world.bare.join("hooks/update"), "case $3 in *[1-9a-f]*) ;; *) exit 1 ;; esac");
    let repo = world.clone("repo");
    let proof = prove(&world.program(&repo), "origin", &empty(&world, "trial")).unwrap();
    assert_eq!((proof.unfenced, proof.left.len()), (None, 2));
}

#[test]
fn a_remote_that_is_not_there_is_an_error_and_no_verdict() {
    let world = World::new();
    let repo = world.clone("repo");
    let proof = prove(&world.program(&repo), "/nowhere", &empty(&world, "trial"));
    assert!(matches!(proof, Err(GitSinkError::Git { .. })), "{proof:?}");
    let commit = world.commit_on(&repo, None, &marked("e"));
    let mut sink = world.sink(&repo, 1, "e");
    sink.remote = Remote::resolve(&sink.program, "http://me:secret@127.0.0.1:1/x").unwrap();
    let pushed = push(&sink, &[&format!("{commit}:refs/heads/x")]).unwrap_err().to_string();
    assert!(pushed.contains("nothing was pushed") && !pushed.contains("secret"), "{pushed}");
}

#[test]
fn an_address_that_starts_programs_is_not_followed() {
    let world = World::new();
    let repo = world.clone("repo");
    let commit = world.commit_on(&repo, None, &marked("e"));
    let trap = world.path("trapped");
    let mut sink = world.sink(&repo, 1, "e");
    sink.remote = Remote::resolve(&sink.program, &format!("ext::sh -c touch% {}", trap.display())).unwrap();
    let pushed = push(&sink, &[&format!("{commit}:refs/heads/x")]);
    assert!(pushed.is_err() && !trap.exists(), "{pushed:?}");
    // and what the user allows is never widened
    let mut sink = world.sink(&repo, 1, "e");
    sink.program.protocols = Some("https".into());
    assert!(push(&sink, &[&format!("{commit}:refs/heads/x")]).is_err());
}
