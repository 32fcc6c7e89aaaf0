//! Answers of the file server that get lost, as over NFS: the call is made again by the client and then fails because
//! it was done before. A small library in front of libc does the call and tells otherwise.

use std::path::PathBuf;
use std::process::Command;

use semel::store::{Durability, Store};

use crate::support::{Folder, Probe, load, put};
use semel::core::record::Expect;

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
/* "now" is for the kernel to say, whatever else is loaded */
int futimens(int fd, const struct timespec times[2]) {
    return syscall(SYS_utimensat, fd, NULL, times, 0);
}
static int lost(const char *call) {
    const char *which = getenv("LOSE_CALL"), *why = getenv("LOSE_AS");
    if (!which || strcmp(which, call) || !why) return 0;
    return atoi(why);
}
int linkat(int a, const char *b, int c, const char *d, int flags) {
    int (*real)(int, const char *, int, const char *, int) = dlsym(RTLD_NEXT, "linkat");
    int done = real(a, b, c, d, flags), as = lost("linkat");
    if (done == 0 && as) { errno = as; return -1; }
    return done;
}
int renameat(int a, const char *b, int c, const char *d) {
    int (*real)(int, const char *, int, const char *) = dlsym(RTLD_NEXT, "renameat");
    int done = real(a, b, c, d), as = lost("renameat");
    if (done == 0 && as) { errno = as; return -1; }
    return done;
}
"#;

/// The library; built once for each test.
pub(crate) fn library(folder: &Folder) -> String {
    let (source, library): (PathBuf, PathBuf) =
        (folder.temp.path().join("lost.c"), folder.temp.path().join("lost.so"));
    std::fs::write(&source, SOURCE).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").status();
    assert!(built.expect("this test needs cc").success());
    library.display().to_string()
}

fn losing(folder: &Folder, call: &str, why: i32) -> Probe {
    let variables =
        [("LD_PRELOAD", library(folder)), ("LOSE_CALL", call.to_owned()), ("LOSE_AS", why.to_string())];
    Probe::start(folder, &variables)
}

#[tokio::test]
async fn a_link_that_is_told_as_taken_after_its_own_success_is_known_again() {
    for (call, why) in [
        ("linkat", libc::EEXIST),
        // made, and told otherwise in every way that a server can fail
        ("linkat", libc::EIO),
        ("linkat", libc::ETIMEDOUT),
        ("renameat", libc::ENOENT),
        ("renameat", libc::EEXIST),
        ("renameat", libc::ENOTEMPTY),
    ] {
        let folder = Folder::new();
        let mut probe = losing(&folder, call, why);
        for order in
            ["put a/b 1 durable", "put a/b 2 durable", "lease lease/a 60000", "touch lease/a", "remove a/b"]
        {
            let answer = probe.ask(order);
            assert!(answer.starts_with("ok "), "{call} as {why}: {order}: {answer}");
        }
        assert_eq!(probe.ask("claim lease/c 60000"), "won 1", "{call} as {why}");
        assert_eq!(probe.ask("claim lease/c 60000"), "lost");
        assert_eq!(probe.ask("release lease/c 1"), "ok release");
        let store = folder.store();
        assert!(load(&store, "a/b").await.is_none());
        assert!(load(&store, "lease/a").await.is_some());
        assert_eq!(folder.names("drafts"), [""; 0], "{call} as {why}");
    }
}

#[tokio::test]
async fn a_link_of_another_is_not_taken_for_ones_own() {
    let folder = Folder::new();
    let mut probe = losing(&folder, "linkat", libc::EEXIST);
    assert_eq!(probe.ask("claim lease/c 60000"), "won 1");
    let mut other = Probe::start(&folder, &[]);
    assert_eq!(other.ask("claim lease/c 60000"), "lost");
    let store = folder.store();
    let taken = put("lease/c", Expect::Absent, "x", None);
    assert!(store.swap(&[taken], Durability::Durable).await.is_err());
}
