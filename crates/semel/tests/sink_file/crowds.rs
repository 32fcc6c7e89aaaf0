//! Many writers at once: what is seen from outside never goes back.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use semel::sink::file::Refusal;
use semel_testkit::{Chance, rounds};

use crate::support::{Folder, content, grant, name, token_in, why};

/// One write: when it began and ended, and whether it was accepted.
#[derive(Clone, Copy, Debug)]
struct Write {
    token: u64,
    began: u64,
    ended: u64,
    accepted: bool,
}

/// What was read of the target, over and over, while `work` lasts; equal neighbours once.
fn watched<T>(target: &Path, work: impl FnOnce() -> T) -> (Vec<u64>, T) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = Vec::new();
            while !over.load(Ordering::Acquire) {
                if let Ok(text) = std::fs::read_to_string(target) {
                    let token = token_in(&text);
                    if seen.last() != Some(&token) {
                        seen.push(token);
                    }
                }
            }
            seen
        });
        let done = work();
        over.store(true, Ordering::Release);
        (watcher.join().unwrap(), done)
    })
}

/// Each of these tokens is written by one of a crowd, in this order as far as they begin.
fn crowd(tokens: &[u64], put: &(impl Fn(u64) -> bool + Sync)) -> Vec<Write> {
    let (clock, next) = (AtomicU64::new(0), AtomicU64::new(0));
    let writes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(token) =
                    tokens.get(usize::try_from(next.fetch_add(1, Ordering::SeqCst)).unwrap()).copied()
                {
                    let began = clock.fetch_add(1, Ordering::SeqCst);
                    let accepted = put(token);
                    let ended = clock.fetch_add(1, Ordering::SeqCst);
                    writes.lock().unwrap().push(Write { token, began, ended, accepted });
                }
            });
        }
    });
    writes.into_inner().unwrap()
}

/// Mostly forward, with neighbours out of order and some tokens twice: as holders that follow each other are.
fn tokens(chance: &mut Chance, from: u64, count: u64) -> Vec<u64> {
    let mut tokens: Vec<u64> = (from..from + count).flat_map(|token| [token; 2]).collect();
    for part in tokens.chunks_mut(usize::try_from(2 + chance.below(8)).unwrap()) {
        chance.shuffle(part);
    }
    tokens
}

fn falls(seen: &[u64]) -> usize {
    seen.windows(2).filter(|pair| pair[1] < pair[0]).count()
}

#[test]
fn what_a_crowd_writes_never_goes_back() {
    let mut chance = Chance::new("a crowd");
    let folder = Folder::new();
    let mut from = 1;
    let (mut accepted, mut all, mut sights) = (0, 0, 0);
    for round in 0..rounds(200).div_ceil(40) {
        let tokens = tokens(&mut chance, from, 40);
        from += 40;
        let put = |token| match folder.write(token) {
            Ok(_) => true,
            result if why(&result) == Some(Refusal::Stale) => false,
            result => panic!("{result:?}"),
        };
        let (seen, writes) = watched(&folder.target(), || crowd(&tokens, &put));
        assert_eq!(falls(&seen), 0, "round {round}: {seen:?}");
        let passed: Vec<Write> = writes.iter().filter(|write| write.accepted).copied().collect();
        for a in &passed {
            for b in &writes {
                // b began when a was answered: an older token has no chance, and a newer one's is not spoilt
                assert!(a.ended > b.began || a.token <= b.token || !b.accepted, "round {round}: {a:?} {b:?}");
            }
        }
        let highest = passed.iter().map(|write| write.token).max().unwrap();
        assert_eq!((folder.holds(), folder.fenced()), (highest, highest), "round {round}");
        assert_eq!(highest, from - 1, "the newest holder is never refused");
        assert_eq!(folder.names(), ["target.txt", "target.txt.fence"]);
        (accepted, all, sights) = (accepted + passed.len(), all + writes.len(), sights + seen.len());
    }
    println!("{accepted} of {all} writes accepted, {sights} contents seen");
    assert!(accepted < all, "no write was ever stale: the test shows nothing");
}

/// The same crowd, each looking at what is there before it moves its own file over it.
#[test]
fn control_a_crowd_that_checks_and_moves_goes_back() {
    let mut chance = Chance::new("a crowd without a fence");
    let folder = Folder::new();
    let count = AtomicU64::new(0);
    let put = |token: u64| {
        if folder.holds() > token {
            return false;
        }
        let temp = folder.path(&format!("temp-{}", count.fetch_add(1, Ordering::Relaxed)));
        let file = std::fs::File::create(&temp).unwrap();
        std::io::Write::write_all(&mut &file, content(token).as_bytes()).unwrap();
        file.sync_all().unwrap();
        std::fs::rename(&temp, folder.target()).unwrap();
        true
    };
    let mut fell = 0;
    for round in 0..200 {
        let tokens = tokens(&mut chance, round * 40 + 1, 40);
        fell += falls(&watched(&folder.target(), || crowd(&tokens, &put)).0);
        if fell > 0 {
            println!("round {round}: it went back");
            return;
        }
    }
    panic!("the naive way never went back: the test shows nothing");
}

/// Many that are first at once: one fence, and the highest token wins.
#[test]
fn many_first_writes_at_once_make_one_fence() {
    for round in 0..rounds(200).div_ceil(4) {
        let folder = Folder::quick();
        let start = std::sync::Barrier::new(6);
        let results: BTreeMap<u64, bool> = std::thread::scope(|scope| {
            let writers: Vec<_> = (1..=6)
                .map(|token| {
                    let (folder, start) = (&folder, &start);
                    scope.spawn(move || {
                        start.wait();
                        let sink = folder.sink().lock_wait(Duration::from_secs(30));
                        let result = sink.write(&name("site"), &grant(token), content(token).as_bytes());
                        assert!(result.is_ok() || why(&result) == Some(Refusal::Stale), "{result:?}");
                        (token, result.is_ok())
                    })
                })
                .collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        assert!(results[&6], "round {round}: {results:?}");
        assert_eq!((folder.holds(), folder.fenced()), (6, 6), "round {round}");
        assert_eq!(folder.names(), ["target.txt", "target.txt.fence"], "round {round}");
    }
}
