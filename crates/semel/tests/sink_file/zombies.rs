//! A holder is stopped at a boundary, a newer holder writes, and the first wakes up: a zombie.
//!
//! Every round has two grants, N and N+1. Nothing of N may be there once the write of N+1 was answered.

use std::time::Duration;

use semel::sink::file::FileSinkError;
use semel_testkit::{Chance, counted, rounds};

use crate::support::{Folder, Probe, content, grant, name};

/// What became of the zombies of a test.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    refused: u64,
    wrote_before: u64,
    newer_was_told_busy: u64,
}

/// The zombie stops at this place, `holding` the lock or not.
fn play(point: &str, holding: bool) -> Tally {
    let mut chance = Chance::new(point);
    let seed = chance.seed();
    let folder = Folder::quick();
    let mut zombie = folder.probe(Some(point));
    let mut tally = Tally::default();
    let rounds = rounds(200);
    for round in 0..rounds {
        let old = round * 2 + 1;
        zombie.order(&format!("write {old} 1 30000"));
        zombie.wait_stopped();
        if holding {
            newer_waits(&folder, &zombie, old + 1, &mut chance, &mut tally);
        } else {
            let wait = Duration::from_secs(10);
            folder
                .sink()
                .lock_wait(wait)
                .write(&name("site"), &grant(old + 1), content(old + 1).as_bytes())
                .unwrap_or_else(|why| panic!("round {round}: nobody has the lock, and yet: {why}"));
            // before the zombie goes on and after
            assert_eq!((folder.holds(), folder.fenced()), (old + 1, old + 1), "round {round}");
            zombie.go_on();
        }
        match zombie.answer().as_str() {
            "refused stale" => tally.refused += 1,
            answer if answer.starts_with("wrote") => tally.wrote_before += 1,
            answer => panic!("round {round}: {answer}"),
        }
        assert_eq!((folder.holds(), folder.fenced()), (old + 1, old + 1), "round {round}");
    }
    assert_eq!(folder.names(), ["target.txt", "target.txt.fence"]);
    println!("{point}: {rounds} rounds: {tally:?}");
    assert_eq!(tally.refused + tally.wrote_before, rounds);
    // a round that went wrong has ended the test
    counted("sinks", point, rounds, "zombies", 0, Some(seed));
    tally
}

/// The zombie has the lock: the newer holder waits for it, or is told that it is busy and comes again.
fn newer_waits(folder: &Folder, zombie: &Probe, token: u64, chance: &mut Chance, tally: &mut Tally) {
    let put =
        |wait| folder.sink().lock_wait(wait).write(&name("site"), &grant(token), content(token).as_bytes());
    if chance.below(4) == 0 {
        let busy = put(Duration::from_millis(chance.below(4)));
        assert!(matches!(busy, Err(FileSinkError::Busy { .. })), "{busy:?}");
        assert_ne!(folder.holds(), token);
        tally.newer_was_told_busy += 1;
    }
    let pause = Duration::from_micros(chance.below(1_500));
    std::thread::scope(|scope| {
        let newer = scope.spawn(|| put(Duration::from_secs(30)));
        // how far the newer one gets before the zombie wakes up is left to chance
        std::thread::sleep(pause);
        zombie.go_on();
        newer.join().unwrap().unwrap();
    });
}

#[test]
fn stopped_before_the_check_it_is_refused() {
    assert_eq!(play("file.begin", false).wrote_before, 0);
}

/// What it opened is no longer the fence when it gets the lock of it.
#[test]
fn stopped_between_opening_and_locking_it_is_refused() {
    assert_eq!(play("file.opened", false).wrote_before, 0);
}

#[test]
fn stopped_before_the_check_with_the_lock_it_never_comes_last() {
    play("file.locked", true);
}

#[test]
fn stopped_between_check_and_fence_it_never_comes_last() {
    play("file.checked", true);
}

#[test]
fn stopped_after_its_fence_it_never_comes_last() {
    play("file.fence.after", true);
}

#[test]
fn stopped_between_check_and_rename_it_is_refused() {
    assert_eq!(play("file.temp.synced", false).wrote_before, 0);
}

#[test]
fn stopped_between_the_last_check_and_the_rename_it_comes_first() {
    assert_eq!(play("file.rechecked", true).refused, 0);
}

#[test]
fn stopped_after_the_rename_it_came_first() {
    assert_eq!(play("file.renamed", true).refused, 0);
}

#[test]
fn stopped_when_all_is_done_it_came_first() {
    assert_eq!(play("file.done", false).refused, 0);
}

/// The same rounds without the fence: how often the zombie's content is there in the end.
fn naive(order: &str, point: &str) -> u64 {
    let folder = Folder::quick();
    let mut zombie = folder.probe(Some(point));
    let mut newer = folder.probe(None);
    let mut stale = 0;
    let rounds = rounds(200);
    for round in 0..rounds {
        let old = round * 2 + 1;
        zombie.order(&format!("{order} {old}"));
        zombie.wait_stopped();
        assert_eq!(newer.ask(&format!("{order} {}", old + 1)), "wrote");
        assert_eq!(folder.holds(), old + 1);
        zombie.go_on();
        assert_eq!(zombie.answer(), "wrote");
        stale += u64::from(folder.holds() == old);
        // the note of the last token went back too
        std::fs::write(folder.path("target.last"), (old + 1).to_string()).unwrap();
    }
    println!("{order} at {point}: {stale} of {rounds} zombies overwrote the newer content");
    assert_eq!(stale, rounds);
    stale
}

#[test]
fn control_a_check_before_the_rename_lets_every_zombie_in() {
    naive("check", "control.checked");
    naive("check", "control.temp");
}

#[test]
fn control_a_plain_move_lets_every_zombie_in() {
    naive("move", "control.temp");
}
