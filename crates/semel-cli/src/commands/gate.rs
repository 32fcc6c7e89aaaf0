//! `semel gate`: verify the lease with the store, then execute at once.
//!
//! A narrowed window, not a closed one: between the check and the effect of the command the lease may still be
//! lost. Where the target can check the token itself, use a fenced write.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use clap::Args;
use semel::engine::socket::{Answer, Ask};
use semel_core::record::Standing;

use crate::args::Common;
use crate::nested::{self, AuthorityArgs, stale};
use crate::out::{Voice, span};
use crate::plan::{self, Surroundings, duration_ms};
use crate::trouble::Trouble;

/// `semel gate`
#[derive(Debug, Args)]
#[command(override_usage = "semel gate [OPTIONS] -- CMD...")]
pub(crate) struct GateArgs {
    /// The lease must live at least that long
    #[arg(long, value_name = "DUR", default_value = "0s")]
    pub(crate) need: String,
    #[command(flatten)]
    pub(crate) authority: AuthorityArgs,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

pub(crate) fn run(common: &Common, args: &GateArgs, around: &Surroundings) -> Result<u8, Trouble> {
    let need_ms = duration_ms("--need", &args.need)?;
    let program = plan::program(&args.command, around)?;
    let voice = Voice::new(common);
    let Some(left_ms) = left_ms(common, args, need_ms, around)? else {
        let program = program.path.display();
        voice.say(&format!("rehearsal: the gate would check the lease, and execute {program} at once"));
        return Ok(0);
    };
    voice.detail(|| format!("the lease is held for {} more: executing", span(left_ms)));
    // at once: nothing may come between
    #[allow(clippy::disallowed_methods)] // it takes the place of this process
    let mut command = std::process::Command::new(&program.path);
    if let Some((zeroth, words)) = program.argv.split_first() {
        command.arg0(zeroth).args(words);
    }
    // outside of a run the store's address may be around: it is not the command's
    let why = command.env_remove("SEMEL_STORE").exec();
    Err(Trouble::with_code(126, format!("{}: cannot execute: {why}", program.path.display())))
}

/// How long the lease lives, if it is held and that is enough. Nothing in a rehearsal.
fn left_ms(
    common: &Common,
    args: &GateArgs,
    need_ms: u64,
    around: &Surroundings,
) -> Result<Option<u64>, Trouble> {
    if let Some((resource, token)) = args.authority.named()? {
        let left_ms = match nested::held(common, &resource, token, around)?.standing {
            Standing::Live { left_ms } => left_ms,
            Standing::Lapsed { .. } => 0,
        };
        return match left_ms >= need_ms {
            true => Ok(Some(left_ms)),
            false => Err(stale(format!(
                "the lease of {resource} ends in {}, and {} are needed; renew it with: semel lease renew",
                span(left_ms),
                span(need_ms)
            ))),
        };
    }
    let mut client = nested::inside(around)?;
    match nested::ask(&mut client, &Ask::Gate { need_ms }, &[])?.0 {
        Answer::Open { left_ms } => Ok(Some(left_ms)),
        Answer::Would { .. } => Ok(None),
        other => Err(nested::strange(&other)),
    }
}
