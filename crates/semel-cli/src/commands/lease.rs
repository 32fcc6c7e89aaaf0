//! `semel lease`: leases without a ledger, for scripts.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;

use semel::engine::lease::ScriptLease;
use semel::engine::{Engine, RunPlan};
use semel_core::lease::{Lost, SeenLease};
use semel_core::name::Name;
use semel_core::owner::Owner;
use semel_core::policy::{IfBusy, Policy};
use semel_core::record::Standing;
use semel_core::token::Token;
use serde_json::{Value, json};

use super::run::{held, speak, supervise};
use crate::args::{Common, LeaseCommand};
use crate::out::{Voice, print, print_json, span, try_print, try_print_json, when};
use crate::plan::{self, Program, Surroundings, duration_ms, name};
use crate::task::CommandTask;
use crate::trouble::Trouble;
use crate::{exit, runtime};

pub(crate) fn run(common: &Common, command: &LeaseCommand, around: &Surroundings) -> Result<u8, Trouble> {
    match command {
        LeaseCommand::Acquire { resource, ttl, lock_delay, pid } => {
            let policy = policy(ttl.as_deref(), lock_delay.as_deref(), None)?;
            acquire(common, &name("RESOURCE", resource)?, &policy, *pid, around)
        }
        LeaseCommand::Renew { resource, token } => {
            let (resource, token) = (name("RESOURCE", resource)?, token_of(token)?);
            let renewed = runtime()?.block_on(plan::engine(common, around)?.renew(&resource, token))?;
            answer(common, &resource, renewed.map(|ttl_ms| json!({ "renewed": true, "ttl_ms": ttl_ms })))
        }
        LeaseCommand::Release { resource, token } => {
            let (resource, token) = (name("RESOURCE", resource)?, token_of(token)?);
            let released = runtime()?.block_on(plan::engine(common, around)?.release(&resource, token))?;
            answer(common, &resource, released.map(|()| json!({ "released": true })))
        }
        LeaseCommand::Show { resource } => {
            let resource = name("RESOURCE", resource)?;
            let seen = runtime()?.block_on(plan::engine(common, around)?.lease_of(&resource))?;
            show(common, &resource, seen.as_ref());
            Ok(0)
        }
        LeaseCommand::Hold {
            resource,
            or,
            ttl,
            timeout,
            kill_after,
            hold_at_least,
            lock_delay,
            if_busy,
            command,
        } => {
            let mut policy = policy(ttl.as_deref(), lock_delay.as_deref(), kill_after.as_deref())?;
            policy.timeout_ms = timeout.as_deref().map(|text| duration_ms("--timeout", text)).transpose()?;
            let at_least =
                hold_at_least.as_deref().map(|text| duration_ms("--hold-at-least", text)).transpose()?;
            policy.hold_at_least_ms = at_least.unwrap_or(0);
            policy.if_busy = if_busy.as_deref().map_or(Ok(IfBusy::Fail), plan::if_busy)?;
            let resources = plan::resources(name("RESOURCE", resource)?, or)?;
            hold(common, resources, policy, command, around)
        }
    }
}

fn policy(ttl: Option<&str>, lock_delay: Option<&str>, kill_after: Option<&str>) -> Result<Policy, Trouble> {
    let ttl_ms = ttl.map_or(Ok(Policy::default().ttl_ms), |text| duration_ms("--ttl", text))?;
    let kill_after_ms = kill_after
        .map_or(Ok(Policy::default_kill_after_ms(ttl_ms)), |text| duration_ms("--kill-after", text))?;
    let lock_delay_ms = lock_delay.map_or(Ok(0), |text| duration_ms("--lock-delay", text))?;
    let policy = Policy { ttl_ms, kill_after_ms, lock_delay_ms, ..Policy::default() };
    policy.check().map_err(|why| Trouble::config(why.to_string()))?;
    Ok(policy)
}

fn token_of(text: &str) -> Result<Token, Trouble> {
    text.parse().map_err(|why| Trouble::config(format!("--token {text:?}: {why}")))
}

/// The owner of a script's lease: the process that it is bound to, or nobody whom a process table could know.
fn script_owner(pid: Option<i32>) -> Result<Owner, Trouble> {
    let me = plan::me();
    match pid {
        None => Ok(Owner {
            boot: String::new(),
            pid: std::os::unix::process::parent_id().cast_signed(),
            start: 0,
            ..me
        }),
        Some(pid) => {
            let process = semel_supervise::process::find(pid);
            let process =
                process.ok_or_else(|| Trouble::config(format!("--pid {pid}: there is no such process")))?;
            Ok(Owner { pid: process.pid, start: process.start, ..me })
        }
    }
}

fn acquire(
    common: &Common,
    resource: &Name,
    policy: &Policy,
    pid: Option<i32>,
    around: &Surroundings,
) -> Result<u8, Trouble> {
    let owner = script_owner(pid)?;
    let engine = plan::engine(common, around)?;
    let resources = std::slice::from_ref(resource);
    let runtime = runtime()?;
    let got = runtime.block_on(engine.acquire(resources, policy, &owner, "a script"))?;
    let voice = Voice::new(common);
    match got {
        ScriptLease::Granted { resource, grant } => {
            let told = match common.json {
                true => try_print_json(
                    json!({ "kind": "lease", "resource": resource, "held": true, "token": grant.token, "ttl_ms": policy.ttl_ms }),
                ),
                false => try_print(&grant.token.to_string()),
            };
            if !told {
                // nobody could renew or release it
                runtime.block_on(engine.release(&resource, grant.token))?.ok();
                let line = format!(
                    "the token could not be written to stdout: the lease on {resource} was given back"
                );
                return Err(Trouble::with_code(exit::LOST, line));
            }
            Ok(0)
        }
        ScriptLease::Busy(busy) => {
            voice.outcome(|| json!({ "kind": "outcome", "outcome": "held", "resource": busy.resource, "token": busy.held.token, "hold": busy.held.hold, "wait_ms": busy.held.wait_ms }));
            voice.mention(|| held(&busy));
            Ok(exit::HELD)
        }
    }
}

fn answer(common: &Common, resource: &Name, answer: Result<Value, Lost>) -> Result<u8, Trouble> {
    match answer {
        Ok(object) => {
            if common.json {
                print_json(object);
            }
            Ok(0)
        }
        Err(lost) => Err(Trouble::with_code(exit::LOST, format!("the lease on {resource} is lost: {lost}"))),
    }
}

fn show(common: &Common, resource: &Name, seen: Option<&SeenLease>) {
    let lease = seen.map(|seen| &seen.record.value);
    let held = seen.is_some_and(SeenLease::is_held);
    if common.json {
        let left_ms = seen.and_then(|seen| match seen.standing {
            Standing::Live { left_ms } => Some(left_ms),
            Standing::Lapsed { .. } => None,
        });
        print_json(json!({
            "kind": "lease", "resource": resource, "held": held, "token": lease.map(|lease| lease.grant.token),
            "hold": lease.and_then(|lease| lease.hold.as_ref()), "left_ms": left_ms,
            "owner_gone": seen.is_some_and(|seen| seen.owner_gone),
        }));
        return;
    }
    let line = match (seen, lease.and_then(|lease| lease.hold.as_ref())) {
        (None, _) => "free; it was never held".to_owned(),
        (Some(seen), None) => format!("free; its last token was {}", seen.record.value.grant.token),
        (Some(seen), Some(hold)) => {
            let token = seen.record.value.grant.token;
            let how = match seen.standing {
                Standing::Lapsed { for_ms } => format!("lapsed {} ago", for_human(for_ms)),
                Standing::Live { left_ms } if hold.resting => {
                    format!("rests for {} more (--hold-at-least)", span(left_ms))
                }
                Standing::Live { left_ms } if seen.owner_gone => {
                    format!(
                        "its holder is gone, so the next run takes it at once (it would lapse in {})",
                        span(left_ms)
                    )
                }
                Standing::Live { left_ms } => format!("ends in {} unless renewed", span(left_ms)),
            };
            let (what, owner, since) = (&hold.what, &hold.owner, when(hold.since_ms));
            format!("held for {what} by {owner} since {since} with token {token}; {how}")
        }
    };
    print(&format!("{resource}: {line}"));
}

fn for_human(ms: u64) -> String {
    // a lease of an earlier boot lapsed at a time that nobody knows
    if ms > u64::from(u32::MAX) * 1_000 { "before this boot, some time".into() } else { span(ms) }
}

fn hold(
    common: &Common,
    resources: Vec<Name>,
    policy: Policy,
    command: &[OsString],
    around: &Surroundings,
) -> Result<u8, Trouble> {
    let voice = Voice::new(common);
    let command = plan::program(command, around)?;
    let engine = plan::engine(common, around)?;
    let runtime = runtime()?;
    if runtime.block_on(held_around_us(&engine, &resources, around))? {
        voice.detail(|| "a run around this one holds it already: going on under its lease".to_owned());
        return Err(exec(&command));
    }
    let what =
        format!("lease hold {}", command.argv.first().map(|word| word.to_string_lossy()).unwrap_or_default());
    let what: String = what.chars().filter(|c| !c.is_control()).collect();
    let nested = Some(plan::private_dir(common, around)?.join("run"));
    let plan = RunPlan {
        work: None,
        what,
        resources,
        policy,
        payload: None,
        command: None,
        definition: None,
        nested,
        start_within_ms: None,
    };
    let mut task = CommandTask::new(command, None, around, &plan::private_dir(common, around)?, voice);
    let report = runtime.block_on(supervise(&engine, &plan, &mut task, voice, &mut || ()))?;
    let code = exit::code(&report, 0);
    speak(&voice, &plan.what, &report, code);
    Ok(code)
}

/// Is one of these held by a run that this process is part of, and still so by the store's word?
async fn held_around_us(engine: &Engine, resources: &[Name], around: &Surroundings) -> Result<bool, Trouble> {
    for (resource, token) in around.held() {
        let ours = resources.iter().find(|name| name.as_str() == resource);
        if let (Some(resource), Ok(token)) = (ours, Token::new(token))
            && engine.holds(resource, token).await?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Become the command: the run around us supervises it.
#[allow(clippy::disallowed_methods)] // nothing is started: this process becomes it
fn exec(program: &Program) -> Trouble {
    let mut command = std::process::Command::new(&program.path);
    if let Some(first) = program.argv.first() {
        command.arg0(first);
    }
    let why = command.args(program.argv.iter().skip(1)).exec();
    Trouble::with_code(126, format!("{}: cannot execute: {why}", program.path.display()))
}
