//! Under which grant a nested command (`step`, `gate`, `write`, `push`) acts: that of the run it belongs to, or one
//! that is named in so many words.

use clap::Args;
use semel::engine::socket::{Address, Answer, Ask, Client, Gone, Kind};
use semel_core::lease::SeenLease;
use semel_core::name::Name;
use semel_core::token::{Grant, Token};
use semel_core::work::Work;

use crate::args::Common;
use crate::neighbours::RUN_VAR;
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

impl AuthorityArgs {
    /// The lease that was named in so many words, if one was.
    pub(crate) fn named(&self) -> Result<Option<(Name, Token)>, Trouble> {
        let (Some(resource), Some(token)) = (&self.resource, &self.token) else { return Ok(None) };
        let token = token.parse().map_err(|why| Trouble::config(format!("--token {token:?}: {why}")))?;
        Ok(Some((name("--resource", resource)?, token)))
    }
}

/// What a nested command acts under.
#[derive(Clone, Debug)]
pub(crate) struct Authority {
    /// The resource that is held.
    pub(crate) resource: Name,
    /// Its grant; none in a rehearsal.
    pub(crate) grant: Option<Grant>,
    /// The work of the run; `None` for a lease without a ledger.
    pub(crate) work: Option<Work>,
}

/// The run is gone, or its lease is: nothing may be done in its name.
pub(crate) fn stale(why: impl std::fmt::Display) -> Trouble {
    Trouble::with_code(exit::STALE, format!("{why}: nothing was done"))
}

/// A connection to the run around this command. `None` outside of one.
pub(crate) fn connect(around: &Surroundings) -> Result<Option<Client>, Trouble> {
    let Some(value) = around.get(RUN_VAR) else { return Ok(None) };
    match Address::parse(value) {
        Some(address) => Client::connect(address).map(Some).map_err(stale),
        None => Err(Trouble::config(format!(
            "{RUN_VAR} does not say how to reach the run around this command: start it with semel run, and leave {RUN_VAR} as it is"
        ))),
    }
}

/// Ask the run around this command.
pub(crate) fn ask(client: &mut Client, ask: &Ask, body: &[u8]) -> Result<(Answer, Vec<u8>), Trouble> {
    accepted(client.ask(ask, body))
}

/// An answer that is not a refusal.
pub(crate) fn accepted(answered: Result<(Answer, Vec<u8>), Gone>) -> Result<(Answer, Vec<u8>), Trouble> {
    let (answer, body) = answered.map_err(stale)?;
    match answer {
        Answer::Refused { kind: Kind::Stale, why } => Err(stale(why)),
        Answer::Refused { kind: Kind::Wrong | Kind::Twice, why } => Err(Trouble::config(why)),
        Answer::Refused { kind: Kind::StoreDown, why } => Err(Trouble::store(why)),
        answer => Ok((answer, body)),
    }
}

/// An answer to another question.
pub(crate) fn strange(answer: &Answer) -> Trouble {
    Trouble::config(format!(
        "the run answered another question: {answer:?}; use one version of semel for both"
    ))
}

/// The authority of this command, verified just now. Not held any more: 77.
pub(crate) fn authority(
    common: &Common,
    args: &AuthorityArgs,
    around: &Surroundings,
) -> Result<Authority, Trouble> {
    if let Some((resource, token)) = args.named()? {
        return named(common, resource, token, around);
    }
    let mut client = inside(around)?;
    match ask(&mut client, &Ask::Grant, &[])?.0 {
        Answer::Granted { resource, grant, work } => Ok(Authority { resource, grant: Some(grant), work }),
        Answer::Rehearsal { resource, work } => Ok(Authority { resource, grant: None, work }),
        other => Err(strange(&other)),
    }
}

/// The store says whose nonce the token has, and whether its lease is live.
fn named(common: &Common, resource: Name, token: Token, around: &Surroundings) -> Result<Authority, Trouble> {
    let seen = held(common, &resource, token, around)?;
    Ok(Authority { resource, grant: Some(seen.record.value.grant), work: None })
}

/// The lease of this resource, if it is held with this token.
pub(crate) fn held(
    common: &Common,
    resource: &Name,
    token: Token,
    around: &Surroundings,
) -> Result<SeenLease, Trouble> {
    let seen = runtime()?.block_on(plan::engine(common, around)?.lease_of(resource))?;
    seen.filter(|seen| seen.is_held() && seen.record.value.grant.token == token)
        .ok_or_else(|| stale(format!("the lease of {resource} is no longer held with token {token}")))
}

/// A connection to the run around this command, or what to say instead.
pub(crate) fn inside(around: &Surroundings) -> Result<Client, Trouble> {
    connect(around)?.ok_or_else(|| {
        Trouble::config(
            "not inside a run: start the script with semel run, or say --resource and --token (and --store)",
        )
    })
}
