//! What the command finds when it starts, and what happens when it cannot.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use semel_supervise::{Contain, Containment, Exit, SpawnError, Spec, Tree};

use crate::support::{Mark, capture, containments, group_of, sh, spec, within};

async fn output_of(mut spec: Spec) -> String {
    let out = capture(&mut spec);
    let mut tree = Tree::spawn(spec).unwrap();
    assert_eq!(tree.wait().await.exit, Some(Exit::Code(0)));
    tree.finish(Duration::ZERO).await;
    out.text()
}

fn file(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    path
}

fn error_of(spec: Spec) -> SpawnError {
    Tree::spawn(spec).expect_err("it must not start")
}

#[tokio::test]
async fn what_is_not_there_is_127_and_what_cannot_be_executed_126() {
    let dir = tempfile::tempdir().unwrap();
    let run = |path: PathBuf| error_of(Spec::new(path, vec!["x".into()]));
    let absent = run(dir.path().join("absent"));
    assert!(matches!(absent, SpawnError::NotFound { .. }), "{absent}");
    assert_eq!(absent.exit_code(), Some(127));
    let plain = run(file(dir.path(), "plain", "#!/bin/sh\n", 0o644));
    assert_eq!(plain.exit_code(), Some(126), "{plain}");
    let folder = run(dir.path().to_path_buf());
    assert_eq!(folder.exit_code(), Some(126), "{folder}");
    let widow = run(file(dir.path(), "widow", "#!/no/such/interpreter\n", 0o755));
    assert_eq!(widow.exit_code(), Some(126), "its interpreter is missing: {widow}");
    assert_eq!(absent.to_string().lines().count(), 1);
}

#[tokio::test]
async fn many_start_at_once_on_one_thread_and_each_failure_is_its_own() {
    let mark = Mark::new();
    let good = |code: u8| Tree::start(sh(&mark, &format!("exit {code}")));
    let absent = Tree::start(Spec::new("/no/such/file", vec!["x".into()]));
    let (first, absent, second) = tokio::join!(good(3), absent, good(4));
    assert_eq!(absent.unwrap_err().exit_code(), Some(127));
    for (tree, code) in [(first, 3), (second, 4)] {
        let mut tree = tree.unwrap();
        assert_eq!(tree.wait().await.exit, Some(Exit::Code(code)));
        assert_eq!(tree.finish(Duration::ZERO).await.count, 0);
    }
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_is_ended() {
    for contain in containments() {
        let mark = Mark::new();
        let mut spec = sh(&mark, "sleep 600");
        spec.contain = contain;
        // polled once: forked, and not heard of
        tokio::select! {
            biased;
            _ = Tree::start(spec) => {}
            () = std::future::ready(()) => {}
        }
        within(Duration::from_secs(10), "its end", || mark.alive().is_empty());
    }
}

#[tokio::test]
async fn a_start_that_fails_leaves_nothing_behind() {
    for contain in containments() {
        for _ in 0..50 {
            let mut spec = Spec::new("/no/such/file", vec!["x".into()]);
            spec.contain = contain;
            error_of(spec);
        }
    }
    let own = format!("semel-{}-", std::process::id());
    for mount in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
        let entries = std::fs::read_dir(mount).into_iter().flatten().flatten();
        let leaves: Vec<_> = entries
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().starts_with(&own))
            .collect();
        assert!(leaves.is_empty(), "{leaves:?}");
    }
    let children = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
    assert_eq!(children.collect::<String>(), "", "no keeper, no zombie");
}

#[tokio::test]
async fn a_script_without_a_first_line_is_run_by_sh() {
    let (mark, dir) = (Mark::new(), tempfile::tempdir().unwrap());
    let path = file(dir.path(), "script", "echo \"$1-$2\"\n", 0o755);
    assert_eq!(output_of(spec(&mark, path.to_str().unwrap(), &["a b", "c"])).await, "a b-c\n");
}

#[tokio::test]
async fn the_environment_is_exactly_the_one_given() {
    let mark = Mark::new();
    let mut spec = spec(&mark, "env", &[]);
    spec.env = vec![("A".into(), "1 2".into()), ("TREE_MARK".into(), mark.0.clone().into())];
    assert_eq!(output_of(spec).await, format!("A=1 2\nTREE_MARK={}\n", mark.0));
}

#[tokio::test]
async fn it_runs_where_it_is_told_to() {
    let (mark, dir) = (Mark::new(), tempfile::tempdir().unwrap());
    let mut there = spec(&mark, "pwd", &["-P"]);
    there.cwd = Some(dir.path().to_path_buf());
    let real = dir.path().canonicalize().unwrap();
    assert_eq!(output_of(there).await.trim_end(), real.to_str().unwrap());
    let mut nowhere = spec(&mark, "pwd", &[]);
    nowhere.cwd = Some("/no/such/folder".into());
    let error = error_of(nowhere);
    assert!(matches!(error, SpawnError::System { call: "chdir", .. }), "{error}");
}

#[tokio::test]
async fn an_argument_with_nul_is_refused() {
    let mark = Mark::new();
    let error = error_of(spec(&mark, "echo", &["a\0b"]));
    assert!(matches!(error, SpawnError::System { call: "arguments", .. }), "{error}");
}

#[tokio::test]
async fn no_descriptor_but_the_standard_three_is_inherited() {
    let mark = Mark::new();
    // One of ours that an exec does not close, as a careless library would leave it.
    let leaky =
        unsafe { OwnedFd::from_raw_fd(libc::dup(std::fs::File::open("/dev/null").unwrap().into_raw_fd())) };
    for contain in containments() {
        let mut ls = spec(&mark, "ls", &["/proc/self/fd"]);
        ls.contain = contain;
        // 3 is the folder ls reads.
        assert_eq!(output_of(ls).await, "0\n1\n2\n3\n", "{contain:?}");
    }
    drop(leaky);
}

#[tokio::test]
async fn signals_are_neither_blocked_nor_ignored() {
    let mark = Mark::new();
    unsafe {
        libc::signal(libc::SIGUSR2, libc::SIG_IGN);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
    }
    let text = output_of(spec(&mark, "cat", &["/proc/self/status"])).await;
    for set in ["SigPnd", "SigBlk", "SigIgn", "SigCgt"] {
        assert!(text.contains(&format!("{set}:\t0000000000000000\n")), "{text}");
    }
}

#[tokio::test]
async fn what_nohup_ignores_stays_ignored() {
    let mark = Mark::new();
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    let text = output_of(spec(&mark, "cat", &["/proc/self/status"])).await;
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    assert!(text.contains("SigIgn:\t0000000000000001\n"), "{text}");
}

#[tokio::test]
async fn the_status_survives_an_ignored_sigchld() {
    let mark = Mark::new();
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    let mut tree = Tree::spawn(sh(&mark, "exit 5")).unwrap();
    assert_eq!(tree.wait().await.exit, Some(Exit::Code(5)));
    assert!(!tree.finish(Duration::ZERO).await.keeper_died);
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

#[tokio::test]
async fn command_and_keeper_have_groups_of_their_own() {
    let mark = Mark::new();
    let tree = Tree::spawn(spec(&mark, "sleep", &["1000"])).unwrap();
    let keeper = tree.keeper().pid;
    assert_eq!(group_of(tree.pid()), tree.pid());
    assert_eq!(group_of(keeper), keeper);
    assert_eq!(std::fs::read_to_string(format!("/proc/{keeper}/comm")).unwrap(), "semel-keeper\n");
}

#[tokio::test]
async fn the_containment_is_as_asked_and_said() {
    let mark = Mark::new();
    for contain in containments() {
        let mut spec = spec(&mark, "sleep", &["1000"]);
        spec.contain = contain;
        let tree = Tree::spawn(spec).unwrap();
        let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", tree.pid())).unwrap();
        match contain {
            Contain::Cgroup => {
                assert_eq!(tree.containment(), Containment::Cgroup);
                let name = tree.cgroup().unwrap().file_name().unwrap().to_str().unwrap();
                assert!(cgroup.contains(name), "{cgroup}");
            }
            _ => {
                assert_eq!((tree.containment(), tree.cgroup()), (Containment::Subreaper, None));
                assert!(!cgroup.contains("semel-"), "{cgroup}");
            }
        }
    }
}
