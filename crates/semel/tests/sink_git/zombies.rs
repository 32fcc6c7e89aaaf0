//! A holder stalls anywhere in a push, another takes over and does the work, the first one wakes.

use std::thread;

use semel_testkit::counted;

use crate::world::{
    Backend, Place, Stall, Transport, World, is_done, is_stale, is_there, marked, push, rounds,
};

/// One holder stalls, the next one does the work, the first one goes on. The effect is there once, each time.
fn play(transport: Transport, place: Place, rounds: u32) {
    let world = World::with(transport, Backend::Files).unwrap();
    let (first, second) = (world.clone("first"), world.clone("second"));
    for round in 0..rounds {
        let effect = format!("e{round}");
        let token = u64::from(round) * 2 + 1;
        world.work(&first, &effect);
        // every other time the fence is the zombie's already when it stalls
        if round % 2 == 1 {
            let other = world.commit_on(&first, None, &marked(&format!("sealed{round}")));
            let sealed = push(
                &world.sink(&first, token, &format!("sealed{round}")),
                &[&format!("{other}:refs/heads/b{round}")],
            );
            assert!(is_done(&sealed), "{sealed:?}");
        }
        let (stall, program) = Stall::new(&world, &first, &format!("stall{round}"), place);
        let zombie = world.sink_of(program, token, &effect);
        thread::scope(|scope| {
            let woken = scope.spawn(move || push(&zombie, &["main"]));
            stall.wait();
            let mine = world.work(&second, &effect);
            let done = push(&world.sink(&second, token + 1, &effect), &["main"]);
            stall.go();
            let woken = woken.join().unwrap();
            match place {
                Place::After => assert!(is_there(&done) && is_done(&woken), "{round}: {done:?} {woken:?}"),
                _ => {
                    assert!(is_done(&done) && is_stale(&woken), "{round}: {done:?} {woken:?}");
                    assert_eq!(world.tip("refs/heads/main"), mine);
                }
            }
        });
        assert_eq!(world.count("refs/heads/main", &effect), 1, "round {round}");
    }
    // a round that went wrong has ended the test
    counted("sinks", &format!("git.{transport:?}.{place:?}"), u64::from(rounds), "zombies", 0, None);
}

/// The same on both cores.
fn play_on_file(place: Place) {
    let rounds = rounds(50).div_ceil(2);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| play(Transport::File, place, rounds));
        }
    });
}

#[test]
fn stalled_before_the_check() {
    play_on_file(Place::Before);
}

#[test]
fn stalled_between_look_and_push() {
    play_on_file(Place::Between);
}

#[test]
fn stalled_inside_the_push() {
    play_on_file(Place::Inside);
}

#[test]
fn stalled_after_the_push() {
    play_on_file(Place::After);
}

#[test]
fn over_ssh() {
    let rounds = rounds(8);
    for place in [Place::Between, Place::Inside, Place::After] {
        play(Transport::Ssh, place, rounds);
    }
}

#[test]
fn over_http() {
    let rounds = rounds(8);
    for place in [Place::Between, Place::Inside, Place::After] {
        play(Transport::Http, place, rounds);
    }
}

/// The zombie checks, stalls, and then does what everybody does: push, and if that fails fetch, replay and push.
#[test]
fn control_check_then_push_lets_the_zombie_in() {
    let world = World::new();
    let (first, second) = (world.clone("first"), world.clone("second"));
    world.work(&first, "e");
    // it has checked that its lease is good; now it stalls, and the other one does the work
    world.work(&second, "e");
    world.git(&second, ["push", "-q", "origin", "main"]);
    assert!(!world.try_git(&first, ["push", "-q", "origin", "main"]).status.success());
    let mine = world.git(&first, ["rev-parse", "main"]);
    world.git(&first, ["fetch", "-q", "origin"]);
    world.git(&first, ["reset", "-q", "--hard", "origin/main"]);
    world.git(&first, ["cherry-pick", "--allow-empty", &mine]);
    world.git(&first, ["push", "-q", "origin", "main"]);
    assert_eq!(world.count("refs/heads/main", "e"), 2);
}
