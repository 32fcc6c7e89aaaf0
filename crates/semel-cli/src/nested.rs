//! Under which grant a nested command (`step`, `gate`, `write`, `push`) acts: that of the run it belongs to, or one
//! that is named in so many words.

use clap::Args;
use semel_core::name::Name;
use semel_core::token::{Grant, Token};
use semel_core::work::Work;

use crate::args::Common;
use crate::plan::{self, Surroundings, name};
use crate::trouble::Trouble;
use crate::{exit, runtime};

/// Whose token, outside of a run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Outside of a run")]
pub(crate) struct AuthorityArgs {
    /// The resource whose lease is held; with --token
    #[arg(long, value_name = "NAME", requires = "token")]
    pub(crate) resource: Option<String>,
    /// The token that `semel lease acquire` printed; with --resource
    #[arg(long, value_name = "N", requires = "resource")]
    pub(crate) token: Option<String>,
}

/// What a nested command acts under.
#[derive(Clone, Debug)]
pub(crate) struct Authority {
    /// The resource that is held.
    pub(crate) resource: Name,
    /// Its grant.
    pub(crate) grant: Grant,
    /// The work of the run; `None` for a lease without a ledger.
    pub(crate) work: Option<Work>,
}

/// The authority of this command, verified just now. Not held any more: 77.
pub(crate) fn authority(
    common: &Common,
    args: &AuthorityArgs,
    around: &Surroundings,
) -> Result<Authority, Trouble> {
    match (&args.resource, &args.token) {
        (Some(resource), Some(token)) => named(common, resource, token, around),
        _ => Err(Trouble::config("not inside a run: say --store, --resource and --token")),
    }
}

/// The store says whose nonce the token has, and whether its lease is live.
fn named(common: &Common, resource: &str, token: &str, around: &Surroundings) -> Result<Authority, Trouble> {
    let resource = name("--resource", resource)?;
    let token: Token = token.parse().map_err(|why| Trouble::config(format!("--token {token:?}: {why}")))?;
    let seen = runtime()?.block_on(plan::engine(common, around)?.lease_of(&resource))?;
    let held = seen.filter(|seen| seen.is_held() && seen.record.value.grant.token == token);
    let Some(held) = held else {
        return Err(Trouble::with_code(
            exit::STALE,
            format!("the lease of {resource} is no longer held with token {token}: nothing was written"),
        ));
    };
    Ok(Authority { resource, grant: held.record.value.grant, work: None })
}
