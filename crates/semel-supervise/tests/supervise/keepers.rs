//! Keepers that stay for the next command.

use std::os::fd::OwnedFd;
use std::time::Duration;

use semel_supervise::{
    Contain, Ended, Exit, Keepers, Leftovers, Ready, SpawnError, Spec, Stdin, Tree, boottime,
};

use crate::support::{Mark, SOON, containments, group_of, is_alive, kill, sh, spec, within};

async fn run(keepers: &Keepers, spec: Spec) -> (i32, Ended, Leftovers) {
    let mut tree = keepers.start(spec).await.unwrap();
    let keeper = tree.keeper().pid;
    let ended = tree.wait().await;
    (keeper, ended, tree.finish(Duration::from_millis(200)).await)
}

fn in_it(mark: &Mark, script: &str, contain: Contain) -> Spec {
    Spec { contain, ..sh(mark, script) }
}

/// The script passes if this is so.
async fn holds(keepers: &Keepers, mark: &Mark, contain: Contain, script: &str) -> i32 {
    let (keeper, ended, _) = run(keepers, in_it(mark, script, contain)).await;
    assert_eq!(ended.exit, Some(Exit::Code(0)), "{script}");
    keeper
}

#[tokio::test]
async fn one_after_the_other_has_the_same_keeper_and_each_its_own_end() {
    for contain in containments() {
        let (mark, keepers) = (Mark::new(), Keepers::default());
        let mut seen = Vec::new();
        for code in [0, 3, 0, 255] {
            let (keeper, ended, left) = run(&keepers, in_it(&mark, &format!("exit {code}"), contain)).await;
            assert_eq!(ended, Ended { exit: Some(Exit::Code(code)), by_deadline: false });
            assert_eq!((left.count, left.keeper_died), (0, false));
            seen.push(keeper);
        }
        let (keeper, ended, _) = run(&keepers, in_it(&mark, "kill -9 $$", contain)).await;
        assert_eq!(ended.exit, Some(Exit::Signal(9)));
        seen.push(keeper);
        assert!(seen.iter().all(|keeper| *keeper == seen[0]), "{contain:?}: {seen:?}");
        drop(keepers);
        assert!(!is_alive(seen[0]), "gone with the last handle on it");
    }
}

#[tokio::test]
async fn two_at_once_have_two() {
    let (mark, keepers) = (Mark::new(), Keepers::default());
    let (first, second) =
        tokio::join!(run(&keepers, sh(&mark, "exit 1")), run(&keepers, sh(&mark, "exit 2")));
    assert_ne!(first.0, second.0);
    assert_eq!((first.1.exit, second.1.exit), (Some(Exit::Code(1)), Some(Exit::Code(2))));
}

#[tokio::test]
async fn what_one_leaves_behind_is_ended_before_the_next() {
    for contain in containments() {
        let (mark, keepers) = (Mark::new(), Keepers::default());
        holds(&keepers, &mark, contain, "true").await;
        let script = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' &) ; exit 0";
        let (_, ended, left) = run(&keepers, in_it(&mark, script, contain)).await;
        assert_eq!((ended.exit, left.by_deadline), (Some(Exit::Code(0)), false));
        assert!(left.count >= 1, "{left:?}");
        assert_eq!(mark.alive(), [], "{contain:?}");
        holds(&keepers, &mark, contain, "true").await;
    }
}

#[tokio::test]
async fn what_leaves_by_itself_in_time_does_not_cost_the_keeper() {
    let (mark, keepers) = (Mark::new(), Keepers::default());
    let first = holds(&keepers, &mark, Contain::Auto, "(setsid sleep 0.05 &) ; exit 0").await;
    assert_eq!(holds(&keepers, &mark, Contain::Auto, "true").await, first);
}

#[tokio::test]
async fn the_deadline_is_that_of_each() {
    for contain in containments() {
        let (mark, keepers) = (Mark::new(), Keepers::default());
        let mut first = in_it(&mark, "true", contain);
        first.deadline = Some(boottime() + Duration::from_millis(150));
        assert_eq!(run(&keepers, first).await.1.exit, Some(Exit::Code(0)));
        tokio::time::sleep(Duration::from_millis(200)).await;
        // that of the first has passed meanwhile, and is not this one's
        holds(&keepers, &mark, contain, "sleep 0.1").await;
        let mut late = in_it(&mark, "setsid sleep 1000 & sleep 1000", contain);
        late.deadline = Some(boottime() + Duration::from_millis(150));
        let (_, ended, _) = run(&keepers, late).await;
        assert_eq!(ended, Ended { exit: Some(Exit::Signal(9)), by_deadline: true });
        assert_eq!(mark.alive(), []);
        holds(&keepers, &mark, contain, "true").await;
    }
}

#[tokio::test]
async fn one_that_cannot_start_costs_nobody_anything() {
    let (mark, keepers) = (Mark::new(), Keepers::default());
    let first = holds(&keepers, &mark, Contain::Auto, "true").await;
    for _ in 0..3 {
        let mut absent = Spec::new("/no/such/file", vec!["x".into()]);
        absent.stdin = Stdin::Null;
        assert_eq!(keepers.start(absent).await.unwrap_err().exit_code(), Some(127));
        let mut nowhere = sh(&mark, "true");
        nowhere.cwd = Some("/no/such/folder".into());
        assert!(keepers.start(nowhere).await.unwrap_err().to_string().contains("chdir"));
        assert!(keepers.start(spec(&mark, "echo", &["a\0b"])).await.is_err());
    }
    assert_eq!(holds(&keepers, &mark, Contain::Auto, "true").await, first);
}

#[tokio::test]
async fn the_second_finds_what_the_first_found() {
    let (mark, keepers) = (Mark::new(), Keepers::default());
    unsafe {
        libc::signal(libc::SIGUSR2, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
    }
    for contain in containments() {
        for _ in 0..2 {
            // 3 is the folder that ls reads
            let fds = "test \"$(exec ls /proc/self/fd | tr -d '\\n')\" = 0123";
            holds(&keepers, &mark, contain, fds).await;
            let signals = "! grep -E '^Sig(Pnd|Blk|Ign):' /proc/self/status | grep -v 0000000000000000";
            holds(&keepers, &mark, contain, signals).await;
            holds(&keepers, &mark, contain, "test \"$(readlink /proc/self/fd/0)\" = /dev/null").await;
            let mut there = in_it(&mark, "test \"$PWD$X\" = /tmpy && test -z \"$Y\"", contain);
            there.cwd = Some("/tmp".into());
            there.env.push(("X".into(), "y".into()));
            assert_eq!(run(&keepers, there).await.1.exit, Some(Exit::Code(0)));
            // and nothing of that stays
            let mut blank =
                in_it(&mark, "test -z \"$X\" && test \"$PWD\" != /tmp && test \"$Y\" = z", contain);
            blank.env.push(("Y".into(), "z".into()));
            assert_eq!(run(&keepers, blank).await.1.exit, Some(Exit::Code(0)));
        }
    }
}

#[tokio::test]
async fn each_reads_its_own_file() {
    let (mark, keepers, dir) = (Mark::new(), Keepers::default(), tempfile::tempdir().unwrap());
    let path = dir.path().join("in");
    for text in ["one", "two", "three"] {
        std::fs::write(&path, text).unwrap();
        let mut reads = sh(&mark, &format!("test \"$(cat)\" = {text}"));
        reads.stdin = Stdin::Fd(OwnedFd::from(std::fs::File::open(&path).unwrap()));
        assert_eq!(run(&keepers, reads).await.1.exit, Some(Exit::Code(0)));
        holds(&keepers, &mark, Contain::Auto, "test -z \"$(cat)\"").await;
    }
}

#[tokio::test]
async fn a_script_without_a_first_line_is_run_by_sh_there_too() {
    use std::os::unix::fs::PermissionsExt;
    let (mark, keepers, dir) = (Mark::new(), Keepers::default(), tempfile::tempdir().unwrap());
    let path = dir.path().join("script");
    std::fs::write(&path, "test \"$1-$2\" = 'a b-c'\n").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let script = spec(&mark, path.to_str().unwrap(), &["a b", "c"]);
    assert_eq!(run(&keepers, script).await.1.exit, Some(Exit::Code(0)));
}

#[tokio::test]
async fn an_idle_keeper_that_was_killed_is_replaced() {
    let (mark, keepers) = (Mark::new(), Keepers::default());
    let first = holds(&keepers, &mark, Contain::Auto, "true").await;
    kill(first, libc::SIGKILL);
    within(SOON, "its end", || !is_alive(first));
    let second = holds(&keepers, &mark, Contain::Auto, "true").await;
    assert_ne!(first, second);
    assert_eq!(holds(&keepers, &mark, Contain::Auto, "true").await, second);
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_is_ended_and_its_keeper_with_it() {
    for contain in containments() {
        let (mark, keepers) = (Mark::new(), Keepers::default());
        holds(&keepers, &mark, contain, "true").await;
        tokio::select! {
            biased;
            _ = keepers.start(in_it(&mark, "sleep 600", contain)) => {}
            () = std::future::ready(()) => {}
        }
        within(Duration::from_secs(10), "its end", || mark.alive().is_empty());
    }
}

#[tokio::test]
async fn one_that_is_stopped_takes_its_keeper_along() {
    let (mark, keepers) = (Mark::new(), Keepers::default());
    let first = holds(&keepers, &mark, Contain::Auto, "true").await;
    let mut tree = keepers.start(sh(&mark, "trap '' TERM; sleep 1000; sleep 1000")).await.unwrap();
    assert_eq!((group_of(tree.pid()), tree.keeper().pid), (tree.pid(), first));
    tree.stop(Duration::from_millis(50)).await;
    tree.finish(Duration::ZERO).await;
    assert_eq!(mark.alive(), []);
    within(SOON, "the end of its keeper", || !is_alive(first));
    let own = std::fs::read_to_string("/proc/self/stat").unwrap();
    let own = own.split(' ').nth(18).unwrap();
    let niceness = format!("test \"$(cut -d' ' -f19 /proc/self/stat)\" = {own}");
    holds(&keepers, &mark, Contain::Auto, &niceness).await;
}

#[tokio::test]
async fn what_has_no_room_before_a_keeper_gets_one_of_its_own() {
    let (mark, keepers) = (Mark::new(), Keepers::default());
    let first = holds(&keepers, &mark, Contain::Auto, "true").await;
    let mut large = sh(&mark, "test ${#A0} = 100000 && test ${#A11} = 100000");
    large.env.extend((0..12).map(|n| (format!("A{n}").into(), "x".repeat(100_000).into())));
    let (other, ended, _) = run(&keepers, large).await;
    assert_eq!(ended.exit, Some(Exit::Code(0)));
    assert_ne!(other, first);
    assert_eq!(holds(&keepers, &mark, Contain::Auto, "true").await, first);
    drop(Tree::start(sh(&mark, "true")).await);
}

fn ready(mark: &Mark, contain: Contain) -> Ready {
    Ready::new(Spec { contain, ..sh(mark, "") }).unwrap()
}

/// Our processes that are called as keepers are.
fn keepers_alive() -> Vec<i32> {
    let me = std::process::id().to_string();
    let found = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, rest) = stat.rsplit_once(')')?;
        (name.contains("(semel-") && rest.split_whitespace().nth(1) == Some(&me)).then_some(pid)
    });
    found.collect()
}

#[tokio::test]
async fn one_that_is_ready_starts_what_it_is_told_as_a_new_one_would() {
    for contain in containments() {
        let mark = Mark::new();
        let ready = ready(&mark, contain);
        within(SOON, "it is there before anything is to be run", || keepers_alive().len() == 1);
        let mut tree = ready.spawn(in_it(&mark, "exit 7", contain)).unwrap();
        assert_eq!(tree.wait().await, Ended { exit: Some(Exit::Code(7)), by_deadline: false });
        let left = tree.finish(Duration::from_millis(200)).await;
        assert_eq!((left.count, left.keeper_died), (0, false));
        assert_eq!(keepers_alive(), [], "it is gone with its one command");
    }
}

#[tokio::test]
async fn one_that_is_ready_ends_what_its_command_left_and_what_is_late() {
    for contain in containments() {
        let mark = Mark::new();
        let mut tree = ready(&mark, contain)
            .spawn(in_it(
                &mark,
                "(setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' &) ; exit 0",
                contain,
            ))
            .unwrap();
        assert_eq!(tree.wait().await.exit, Some(Exit::Code(0)));
        assert!(tree.finish(Duration::from_millis(100)).await.count >= 1);
        assert_eq!(mark.alive(), []);

        let mut late = in_it(&mark, "setsid sleep 1000 & sleep 1000", contain);
        late.deadline = Some(boottime() + Duration::from_millis(150));
        let mut tree = ready(&mark, contain).spawn(late).unwrap();
        assert_eq!(tree.wait().await, Ended { exit: Some(Exit::Signal(9)), by_deadline: true });
        tree.finish(Duration::ZERO).await;
        assert_eq!(mark.alive(), []);

        let mut too_late = in_it(&mark, "true", contain);
        too_late.deadline = Some(boottime());
        assert!(matches!(ready(&mark, contain).spawn(too_late), Err(SpawnError::TooLate)));
    }
}

#[tokio::test]
async fn one_that_is_ready_and_never_told_goes_at_once() {
    for contain in containments() {
        let mark = Mark::new();
        let ready = ready(&mark, contain);
        let began = boottime();
        drop(ready);
        assert!(boottime() - began < Duration::from_millis(900), "nobody waits for it in vain");
        assert_eq!(keepers_alive(), []);
    }
}

#[tokio::test]
async fn one_that_was_killed_before_it_was_told_is_replaced() {
    let mark = Mark::new();
    let ready = ready(&mark, Contain::Auto);
    within(SOON, "the keeper has its name", || keepers_alive().len() == 1);
    let keeper = keepers_alive()[0];
    kill(keeper, libc::SIGKILL);
    let stat = || std::fs::read_to_string(format!("/proc/{keeper}/stat")).unwrap_or_default();
    within(SOON, "the keeper is dead", || stat().is_empty() || stat().contains(") Z "));
    let mut tree = ready.spawn(in_it(&mark, "exit 5", Contain::Auto)).unwrap();
    assert_eq!(tree.wait().await.exit, Some(Exit::Code(5)));
}

#[tokio::test]
async fn words_without_number_and_words_that_are_none_are_as_for_a_new_one() {
    let mark = Mark::new();
    let mut many = in_it(&mark, "test ${#0} -gt 100000", Contain::Auto);
    many.argv.push("x".repeat(110_000).into());
    many.env.extend((0..12).map(|n| (format!("LONG{n}").into(), "y".repeat(100_000).into())));
    let mut tree = ready(&mark, Contain::Auto).spawn(many).unwrap();
    assert_eq!(tree.wait().await.exit, Some(Exit::Code(0)));
    drop(tree);
    assert!(ready(&mark, Contain::Auto).spawn(spec(&mark, "echo", &["a\0b"])).is_err());
    let absent = Spec::new("/no/such/file", vec!["x".into()]);
    assert_eq!(ready(&mark, Contain::Auto).spawn(absent).unwrap_err().exit_code(), Some(127));
}
