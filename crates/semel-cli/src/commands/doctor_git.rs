//! `semel doctor --git`: does this remote really refuse a stale push?

use std::path::PathBuf;

use semel::sink::git::{GitSinkError, mask, prove};

use super::doctor::{Check, good, note, wrong};
use super::push::program;
use crate::plan::Surroundings;

/// Try the remote out with a push that must be refused. Answers what to say, in order.
pub(super) fn examine(address: &str, around: &Surroundings) -> Vec<Check> {
    let shown = mask(address);
    let program = program(around);
    let dir = match private_dir() {
        Ok(dir) => dir,
        Err(why) => return vec![wrong("git", format!("no directory for the trial: {why}"), "check TMPDIR")],
    };
    let proof = prove(&program, address, &dir);
    // what is left there holds no secret, and the next boot removes it
    let _ = std::fs::remove_dir_all(&dir);
    let proof = match proof {
        Ok(proof) => proof,
        Err(why @ GitSinkError::Usage(_)) => return vec![wrong("git", why.to_string(), "check the address")],
        Err(GitSinkError::Git { what, why }) => {
            let mend = "nothing was found out; check the address and that you may push there";
            return vec![wrong("git", format!("{shown}: {what}: {why}"), mend)];
        }
        Err(why) => return vec![wrong("git", format!("{shown}: {why}"), "check that git works there")],
    };
    let mut checks = vec![match proof.unfenced {
        None => good("git", format!("{shown} is fenced: it refused a stale push, all of it")),
        Some(why) => wrong(
            "git",
            format!("{shown} is UNFENCED: {why}"),
            "a stale holder's push can land there; allow refs/fence/ and atomic pushes, or use another remote",
        ),
    }];
    if !proof.left.is_empty() {
        let left = format!("{} could not be removed from {shown}", proof.left.join(" and "));
        checks.push(note("git", left, "it does no harm; remove it on the remote"));
    }
    checks
}

fn private_dir() -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let random = getrandom::u64().map_err(|why| std::io::Error::other(why.to_string()))?;
    let dir = std::env::temp_dir().join(format!("semel-doctor-{random:016x}"));
    std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
    Ok(dir)
}
