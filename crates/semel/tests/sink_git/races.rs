//! Four pushers that all hold the valid lease: one wins, the others find its commit.

use std::sync::Barrier;
use std::thread;

use semel::sink::git::{GitSinkError, Pushed};
use semel_testkit::counted;

use crate::skips::skipped;
use crate::world::{Backend, Transport, World, is_done, is_there, push, rounds};

const PUSHERS: usize = 4;

type Outcome = Result<Pushed, GitSinkError>;

fn race(name: &str, transport: Transport, backend: Backend, rounds: u32) {
    let Some(world) = World::with(transport, backend) else {
        return skipped(name, "this git has no reftable");
    };
    let clones: Vec<_> = (0..PUSHERS).map(|n| world.clone(&format!("clone{n}"))).collect();
    for round in 0..rounds {
        let effect = format!("e{round}");
        // every fourth time all of them come with a new grant, and race for the seal too
        let token = u64::from(round / 4) + 1;
        let gate = Barrier::new(PUSHERS);
        let outcomes: Vec<_> = thread::scope(|scope| {
            let pushers: Vec<_> = clones
                .iter()
                .map(|clone| {
                    let (world, gate, effect) = (&world, &gate, effect.as_str());
                    scope.spawn(move || {
                        world.work(clone, effect);
                        let sink = world.sink(clone, token, effect);
                        gate.wait();
                        push(&sink, &["main"])
                    })
                })
                .collect();
            pushers.into_iter().map(|pusher| pusher.join().unwrap()).collect()
        });
        let count = |of: fn(&Outcome) -> bool| outcomes.iter().filter(|outcome| of(outcome)).count();
        assert_eq!((count(is_done), count(is_there)), (1, PUSHERS - 1), "round {round}: {outcomes:?}");
        assert_eq!(world.count("refs/heads/main", &effect), 1, "round {round}");
    }
    // a round that went wrong has ended the test
    counted("sinks", &format!("git.races.{name}"), u64::from(rounds), "races", 0, None);
}

#[test]
fn over_files() {
    race("over_files", Transport::File, Backend::Files, rounds(50));
}

#[test]
fn over_files_in_reftable() {
    race("over_files_in_reftable", Transport::File, Backend::Reftable, rounds(25));
}

#[test]
fn over_ssh() {
    race("over_ssh", Transport::Ssh, Backend::Files, rounds(50));
}

#[test]
fn over_http() {
    race("over_http", Transport::Http, Backend::Files, rounds(50));
}

/// The usual loop: push, and if that is refused fetch, replay, push.
#[test]
fn control_the_usual_loop_duplicates() {
    let world = World::new();
    let clones: Vec<_> = (0..PUSHERS).map(|n| world.clone(&format!("clone{n}"))).collect();
    let gate = Barrier::new(PUSHERS);
    thread::scope(|scope| {
        for clone in &clones {
            let (world, gate) = (&world, &gate);
            scope.spawn(move || {
                world.work(clone, "e");
                gate.wait();
                while !world.try_git(clone, ["push", "-q", "origin", "main"]).status.success() {
                    world.work(clone, "e");
                }
            });
        }
    });
    assert_eq!(world.count("refs/heads/main", "e"), PUSHERS);
}
