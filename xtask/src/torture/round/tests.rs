//! Rounds of a Semel that does not keep its word: all of the machine, and each must be found out.

use super::*;

/// A program that takes the words of `semel run`, and does as `how` says with the command after `--`.
fn broken(folder: &Path, how: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = run ] || exit 0\nwhile [ $# -gt 0 ] && [ \"$1\" != -- ]; do shift; done\n[ $# -gt 0 ] || exit 0\nshift\n\
         say() {{ echo \"{{\\\"kind\\\":\\\"outcome\\\",\\\"outcome\\\":\\\"$1\\\"}}\" >&2; }}\n{how}\n"
    );
    let path = folder.join("semel");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn played(contender: Contender, how: &str) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let semel = broken(folder.path(), how);
    let base = folder.path().join("base");
    fs::create_dir(&base).unwrap();
    let mut arena = Arena::open("sqlite", &semel, &base, false, |_| false).unwrap();
    arena.patience = Duration::from_secs(2);
    let lane = arena.lane(0);
    Round::play(&arena, &lane, contender, "t", &mut Chance::with_seed(3)).unwrap()
}

#[test]
fn one_that_runs_whatever_it_is_given_doubles() {
    let outcome = played(Contender::Probe, "\"$@\" && say done");
    assert!(outcome.doubled > 0 && outcome.lost == 0, "{outcome:#?}");
}

#[test]
fn one_that_says_done_and_does_nothing_loses_and_lies() {
    let outcome = played(Contender::Probe, "say done");
    assert!(outcome.lost == 1 && outcome.untrue > 0 && outcome.doubled == 0, "{outcome:#?}");
}

#[test]
fn one_that_never_comes_to_an_end_is_stuck() {
    let outcome = played(Contender::Probe, "\"$@\"; say failed; exit 1");
    assert!(outcome.stuck, "{outcome:#?}");
}

#[test]
fn one_that_repeats_without_asking_is_unreported() {
    let outcome = played(Contender::Hold, "mkdir was 2>/dev/null && { \"$@\"; exit 75; }\n\"$@\"; say done");
    assert!(outcome.unreported > 0, "{outcome:#?}");
}

#[test]
fn one_that_takes_a_torn_attempt_for_done_is_unreported() {
    let outcome = played(
        Contender::Hold,
        "mkdir was 2>/dev/null && { echo 1 0 >> starts; echo 1 0 >> effects; exit 137; }\nsay done",
    );
    assert!(outcome.unreported == 1 && outcome.lost + outcome.doubled == 0, "{outcome:#?}");
}

#[test]
fn one_that_keeps_its_word_is_clean() {
    let lock = "exec 9> lock; flock 9; { [ -s effects ] || \"$@\"; } && say done";
    let outcome = played(Contender::Probe, lock);
    assert!(outcome.doubled + outcome.lost + outcome.untrue + outcome.unreported == 0, "{outcome:#?}");
}
