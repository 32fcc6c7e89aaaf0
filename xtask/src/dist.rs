//! `cargo xtask dist`: the binary as it is released.
//!
//! On Linux it is linked statically and to fixed addresses: a process that lives for milliseconds spends a good
//! part of them in the dynamic linker. Cargo's flags would reach build scripts and macros too, which cannot be
//! linked so, unless a target is named; hence a command of its own.
//!
//! Then it is linked a second time, with the functions that a run, a skip, a step and a batch go through side by side. They
//! are a small part of the code, spread all over it, and the kernel maps sixteen pages around each that is touched: that
//! is page faults in a process which is over in milliseconds, and memory in one that waits. Which functions those are is
//! seen by callgrind; where there is none, the order stays the compiler's. What a skip goes through comes first, then what a
//! run adds to it, and so on: who does less touches fewer pages.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::tools::{call, cargo, find};

/// Where the linker that Rust brings along takes an order of functions.
const ORDERED: &str = "x86_64-unknown-linux-gnu";

/// One in so many functions that are called by chance, and not each time, is no reason to link again.
const FEW: usize = 50;

/// The one of the commands whose functions are looked for that is to fail.
const FAILS: [&str; 6] = ["run", "--job", "c", "--once", "--", "/bin/false"];

/// Build it, and say where it is.
pub(crate) fn build() -> Result<PathBuf, String> {
    let triple = host()?;
    let target = target_dir()?;
    let order = target.join("order-of-functions");
    if !order.exists() {
        fs::create_dir_all(&target).and_then(|()| fs::write(&order, "")).map_err(|why| why.to_string())?;
    }
    compile(&triple, &order)?;
    let binary = target.join(&triple).join("release/semel");
    if triple != ORDERED {
        return Ok(binary);
    }
    let Some(valgrind) = find("valgrind") else {
        println!("valgrind is missing: the functions of a run stay spread over the binary");
        return Ok(binary);
    };
    let called = called(&valgrind, &binary, &target.join("profile"))?;
    let before = fs::read_to_string(&order).unwrap_or_default();
    let before: HashSet<&str> = before.lines().collect();
    let unknown = called.iter().filter(|name| !before.contains(name.as_str())).count();
    if unknown * FEW <= called.len() {
        return Ok(binary);
    }
    let mut text = called.join("\n");
    text.push('\n');
    fs::write(&order, text).map_err(|why| format!("{}: {why}", order.display()))?;
    // cargo does not know of the file, and would find nothing to do
    call(cargo().args(["clean", "--quiet", "--release", "-p", "semel-cli", "--target", &triple]))?;
    compile(&triple, &order)?;
    Ok(binary)
}

fn compile(triple: &str, order: &Path) -> Result<(), String> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "-p", "semel-cli", "--target", triple]);
    // worth the wait once per release, not in every build
    build.env("CARGO_PROFILE_RELEASE_LTO", "fat").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    let mut flags = Vec::new();
    if triple.ends_with("-linux-gnu") {
        flags.extend(["-Ctarget-feature=+crt-static".to_owned(), "-Crelocation-model=static".to_owned()]);
        // linked statically it would not find the call, and open two devices instead
        flags.push("--cfg=getrandom_backend=\"linux_getrandom\"".to_owned());
    }
    if triple == ORDERED {
        flags.push(format!("-Clink-arg=-Wl,--symbol-ordering-file={}", order.display()));
        // of another build, or of code that is gone: no harm
        flags.push("-Clink-arg=-Wl,--no-warn-symbol-ordering".to_owned());
    }
    if !flags.is_empty() {
        build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    }
    call(&mut build)
}

/// The functions that common commands go through, by the names that the linker knows them by: those of the first command
/// first.
fn called(valgrind: &Path, semel: &Path, folder: &Path) -> Result<Vec<String>, String> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let item = folder.join("items.txt");
    fs::write(&item, "a\nb\nc\n").map_err(|why| why.to_string())?;
    let item = item.display().to_string();
    let nested = format!("{0} step one -- /bin/true && {0} gate -- /bin/true", semel.display());
    let fresh: &[&str] = &["run", "--job", "a", "--once", "--", "/bin/true"];
    // makes the ledger, which is seldom, and is of no interest
    profile(valgrind, semel, folder, fresh)?;
    let run: [&[&str]; 7] = [
        // skipped
        fresh,
        &["run", "--job", "g", "--once", "--", "/bin/true"],
        &["run", "--job", "b", "--every", "day", "--", "/bin/true"],
        &FAILS,
        &["run", "--job", "d", "--once", "--", "/bin/sh", "-c", &nested],
        &["batch", &item, "--job", "e", "--key", "line", "-j", "2", "--", "/bin/true", "{}"],
        &["lease", "hold", "f", "--", "/bin/true"],
    ];
    let (mut called, mut known) = (Vec::new(), HashSet::new());
    for words in run {
        for name in profile(valgrind, semel, folder, words)? {
            if known.insert(name.clone()) {
                called.push(name);
            }
        }
    }
    if called.is_empty() { Err("valgrind saw no function of semel".to_owned()) } else { Ok(called) }
}

/// The functions that one command goes through, and whatever it starts of this program.
fn profile(valgrind: &Path, semel: &Path, folder: &Path, words: &[&str]) -> Result<BTreeSet<String>, String> {
    let calls = folder.join("calls");
    let _ = fs::remove_dir_all(&calls);
    fs::create_dir_all(&calls).map_err(|why| format!("{}: {why}", calls.display()))?;
    let mut profile = Command::new(valgrind);
    profile.args(["--tool=callgrind", "--demangle=no", "--trace-children=yes", "--quiet"]);
    profile.arg(format!("--callgrind-out-file={}", calls.join("%p").display()));
    profile
        .arg(semel)
        .args(words)
        .env("SEMEL_STORE", format!("sqlite:{}", folder.join("ledger.db").display()));
    profile.env("XDG_STATE_HOME", folder).env_remove("SEMEL_CONFIG");
    profile.current_dir(folder).stdin(Stdio::null());
    let ended = profile.output().map_err(|why| format!("valgrind: {why}"))?;
    // one that was refused would show nothing of what it is here for
    if ended.status.code() != Some(i32::from(words == FAILS)) {
        let why = String::from_utf8_lossy(&ended.stderr);
        return Err(format!("semel {} ended with {}: {}", words.join(" "), ended.status, why.trim()));
    }
    let files = fs::read_dir(&calls).map_err(|why| why.to_string())?;
    let texts = files.flatten().map(|file| fs::read_to_string(file.path()).unwrap_or_default());
    Ok(texts.flat_map(|text| names(&text, semel)).collect())
}

/// The functions of this program in what callgrind wrote. A name stands with its number where it comes first, and the
/// files and programs that it belongs to stand before it in the same way.
fn names(text: &str, semel: &Path) -> Vec<String> {
    let semel = semel.display().to_string();
    if !text
        .lines()
        .any(|line| line.strip_prefix("cmd:").is_some_and(|cmd| cmd.trim_start().starts_with(&semel)))
    {
        return Vec::new();
    }
    let name = |line: &str| {
        let named = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn="))?;
        let (_, name) = named.split_once(") ")?;
        // one that calls itself is told apart by a number; what has no name is known by its place, or in brackets
        let name = name.split('\'').next().unwrap_or(name);
        (!name.starts_with("0x") && !name.starts_with('(')).then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    std::path::absolute(target).map_err(|why| why.to_string())
}

fn host() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|why| format!("rustc: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc does not say what it builds for".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_read_from_what_callgrind_wrote() {
        let text = "version: 1\ncmd:  /s/semel run --once\n\nfn=(1) main\n0 5\ncfn=(2) _ZN4core17hE\ncalls=1 0\n0 3\n\nfn=(3) walk'2\nfn=(1)\n\
                    fn=(4) 0x0000000000605740\nfn=(5) (below main)\n";
        assert_eq!(names(text, Path::new("/s/semel")), ["main", "_ZN4core17hE", "walk"]);
        assert!(names(text, Path::new("/s/other")).is_empty());
    }
}
