//! `semel write`: fenced, atomic file write from stdin.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use semel::sink::file::{FileSink, FileSinkError, LOCK_WAIT, Refused, Wrote};
use serde_json::json;

use super::fence_file::as_json;
use crate::args::Common;
use crate::exit;
use crate::nested::{Authority, AuthorityArgs, authority};
use crate::out::Voice;
use crate::plan::{Surroundings, duration_ms};
use crate::trouble::Trouble;

/// `semel write`
#[derive(Debug, Args)]
#[command(
    after_help = "Readers see the old content or the new, never a part. Beside the file lies TARGET.fence, which \
remembers the last token that was accepted and must stay there; it is looked at before stdin is read, and again at the \
moment of the replacement. Mode, owner and group are kept where permitted; a new file is private (0600). A symbolic \
link is followed; of several hard links this name alone is replaced.\n\n\
An end of stdin is an end: if what feeds it may fail half-way, let it write to a file of its own first, and use \
semel write TARGET < FILE."
)]
pub(crate) struct WriteArgs {
    /// The file to replace; its folder must exist
    #[arg(value_name = "TARGET")]
    target: PathBuf,
    /// Refuse a target that is a symbolic link
    #[arg(long)]
    no_follow: bool,
    /// Longest wait for another writer of the same file; then 75 [default: 30s]
    #[arg(long, value_name = "DUR")]
    lock_wait: Option<String>,
    #[command(flatten)]
    authority: AuthorityArgs,
}

pub(crate) fn run(common: &Common, args: &WriteArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let voice = Voice::new(common);
    let lock_wait = match args.lock_wait.as_deref() {
        Some(text) => Duration::from_millis(duration_ms("--lock-wait", text)?),
        None => LOCK_WAIT,
    };
    let Authority { resource, grant, .. } = authority(common, &args.authority, around)?;
    let Some(grant) = grant else { return rehearsed(&voice, args) };
    let sink = FileSink::new(&args.target).no_follow(args.no_follow).lock_wait(lock_wait);
    match sink.write(&resource, &grant, std::io::stdin().lock()) {
        Ok(wrote) => {
            let Wrote { path, bytes, created, advanced, owner_kept } = &wrote;
            voice.outcome(|| {
                json!({
                    "kind": "outcome", "outcome": "written", "exit_code": 0, "target": args.target.to_string_lossy(),
                    "path": path.to_string_lossy(), "bytes": bytes, "created": created, "fence_advanced": advanced,
                    "owner_kept": owner_kept, "resource": resource, "token": grant.token,
                })
            });
            let owner = if *owner_kept { "" } else { "; its owner or group could not be kept" };
            voice.detail(|| {
                format!(
                    "wrote {bytes} bytes to {} with token {} of {resource}{owner}",
                    path.display(),
                    grant.token
                )
            });
            Ok(0)
        }
        Err(FileSinkError::Refused(refused)) => Ok(tell_refused(&voice, &refused)),
        Err(why) => Err(trouble(why)),
    }
}

/// What would be written is read, so that whoever writes it is not disturbed.
fn rehearsed(voice: &Voice, args: &WriteArgs) -> Result<u8, Trouble> {
    let read = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    let bytes = read.map_err(|why| Trouble::input(format!("stdin cannot be read: {why}")))?;
    voice.say(&format!("rehearsal: {bytes} bytes would be written to {}", args.target.display()));
    Ok(0)
}

fn tell_refused(voice: &Voice, refused: &Refused) -> u8 {
    let line = refused.to_string();
    if voice.json {
        voice.outcome(|| {
            json!({
                "kind": "outcome", "outcome": "refused", "exit_code": exit::STALE, "refusal": refused.why.word(),
                "alarm": refused.is_alarm(), "path": refused.target.to_string_lossy(), "resource": refused.resource,
                "token": refused.grant.token, "fence": as_json(&refused.fence), "why": line,
            })
        });
    } else {
        voice.say(&line);
    }
    exit::STALE
}

/// The code for what a file sink cannot do.
pub(super) fn trouble(why: FileSinkError) -> Trouble {
    let code = match why {
        FileSinkError::Refused(_) | FileSinkError::GoesBack { .. } => exit::STALE,
        FileSinkError::Busy { .. } => exit::BUSY,
        FileSinkError::Source(_) => exit::INPUT,
        FileSinkError::Failed(_) | FileSinkError::Unknown { .. } => exit::STORE,
        _ => exit::CONFIG,
    };
    Trouble::with_code(code, why.to_string())
}
