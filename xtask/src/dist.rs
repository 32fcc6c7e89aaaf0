//! `cargo xtask dist`: the binary as it is released.
//!
//! On Linux it is linked statically and to fixed addresses: a process that lives for milliseconds spends a good
//! part of them in the dynamic linker. Cargo's flags would reach build scripts and macros too, which cannot be
//! linked so, unless a target is named; hence a command of its own.

use std::path::PathBuf;
use std::process::Command;

use crate::tools::{call, cargo};

/// Build it, and say where it is.
pub(crate) fn build() -> Result<PathBuf, String> {
    let triple = host()?;
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "-p", "semel-cli", "--target", &triple]);
    // worth the wait once per release, not in every build
    build.env("CARGO_PROFILE_RELEASE_LTO", "fat").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    if triple.ends_with("-linux-gnu") {
        build.env("RUSTFLAGS", "-C target-feature=+crt-static -C relocation-model=static");
    }
    call(&mut build)?;
    Ok(target_dir()?.join(triple).join("release/semel"))
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
