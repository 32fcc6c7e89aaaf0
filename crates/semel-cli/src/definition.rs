//! The definition of a run, as it is recorded: what its job's table in `semel.toml` would say, whichever way it was
//! said, without what makes it this work and without secrets. Arguments, probes and values of variables are known by
//! a digest, references by the variable's name. What is as by default is left out, so that a new policy changes
//! nobody's definition.

use std::os::unix::ffi::OsStrExt;

use semel_core::definition::Definition;
use semel_core::entry::CommandMark;
use semel_core::name::Name;
use semel_core::policy::{IfBusy, OnLost, Policy};
use serde_json::{Map, Value, json};

use crate::args::RunArgs;
use crate::config::Reference;
use crate::{notify, plan};

/// Of these arguments, resolved to these. None if it cannot be written as JSON: it is only for people.
pub(crate) fn of(
    args: &RunArgs,
    job: &Name,
    resources: &[Name],
    policy: &Policy,
    command: &CommandMark,
) -> Option<Definition> {
    let mut all = Map::new();
    let mut say = |key: &str, value: Value| drop(all.insert(key.to_owned(), value));
    say("command", json!({ "program": command.program, "arguments": short(&command.digest) }));
    if let [first, others @ ..] = resources {
        if first != job {
            say("resource", json!(first));
        }
        if !others.is_empty() {
            say("or", json!(others));
        }
    }
    let what = &args.what;
    let texts = [
        ("every", &what.every),
        ("tz", &what.tz),
        ("max-late", &what.max_late),
        ("catch-up", &what.catch_up),
        ("grace", &what.grace),
    ];
    for (key, value) in texts.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))) {
        say(key, json!(value));
    }
    if what.keep_going {
        say("keep-going", json!(true));
    }
    for (key, list) in [("choose", &args.plan.choose), ("recent", &args.plan.recent)] {
        if !list.is_empty() {
            say(key, json!(list));
        }
    }
    if args.plan.plan.is_some() {
        say("plan", json!(true));
    }
    if let Some(command) = &args.plan.plan_cmd {
        say("plan-cmd", json!(digest(command.as_bytes())));
    }
    if args.fill {
        say("fill", json!(true));
    }
    if args.payload.is_some() {
        // its content is bound to the key, and its path may be another each time
        say("payload", json!(true));
    }
    if !args.volatile.is_empty() {
        say("volatile", json!(args.volatile));
    }
    if let Some(code) = args.skip_code.filter(|code| *code != 0) {
        say("skip-code", json!(code));
    }
    if let Some(directory) = &args.place.directory {
        say("directory", json!(directory.to_string_lossy()));
    }
    if !args.place.env.is_empty() {
        let env: Map<String, Value> =
            args.place.env.iter().map(|(name, value)| (name.clone(), marked(value))).collect();
        say("env", env.into());
    }
    notices(args, &mut say);
    if let Some(probe) = &args.policy.probe {
        say("probe", json!(digest(probe.as_bytes())));
        if let Some(timeout) = &args.policy.probe_timeout {
            say("probe-timeout", json!(timeout));
        }
    }
    policies(policy, &mut say);
    Definition::of(&Value::Object(all)).ok()
}

/// Lanes by their names, which are digests where they were given by flag.
fn notices(args: &RunArgs, say: &mut impl FnMut(&str, Value)) {
    let (typed, file) = (&args.notify, &args.place.notices);
    let lanes =
        if typed.notify.is_empty() { file.lanes.as_deref().unwrap_or_default() } else { &typed.notify };
    if !lanes.is_empty() {
        say("notify", lanes.iter().map(|what| notify::name_of(what)).collect());
    }
    if let Some(ping) = typed.ping.clone().map(Reference::Plain).or_else(|| file.ping.clone()) {
        say("ping", marked(&ping));
    }
    let switches = [
        ("private-addresses", typed.private_addresses, file.private),
        ("summary", typed.summary, file.summary),
    ];
    for (key, ..) in switches.into_iter().filter(|(_, typed, file)| *typed || file.unwrap_or(false)) {
        say(key, json!(true));
    }
}

/// How a job of the file is defined, as its run would record it. None if it cannot be run as it stands.
pub(crate) fn of_job(args: &RunArgs) -> Option<Definition> {
    let job = plan::name("--job", args.job.as_deref()?).ok()?;
    let first =
        args.resource.as_deref().map_or(Ok(job.clone()), |text| plan::name("--resource", text)).ok()?;
    let resources = plan::resources(first, &args.or).ok()?;
    let (policy, _) = plan::policy(&args.policy).ok()?;
    of(args, &job, &resources, &policy, &plan::mark(&args.command))
}

fn policies(policy: &Policy, say: &mut impl FnMut(&str, Value)) {
    let default = Policy::default();
    let usual_grace_ms = Policy::default_kill_after_ms(policy.ttl_ms);
    let lengths = [
        ("ttl", Some(policy.ttl_ms), Some(default.ttl_ms)),
        ("kill-after", Some(policy.kill_after_ms), Some(usual_grace_ms)),
        ("timeout", policy.timeout_ms, default.timeout_ms),
        ("hold-at-least", Some(policy.hold_at_least_ms), Some(default.hold_at_least_ms)),
        ("lock-delay", Some(policy.lock_delay_ms), Some(default.lock_delay_ms)),
        ("backoff", Some(policy.backoff_ms), Some(default.backoff_ms)),
        ("keep", Some(policy.keep_ms), Some(default.keep_ms)),
        ("remember", policy.remember_ms, default.remember_ms),
    ];
    for (key, ms, usual_ms) in lengths {
        if let Some(ms) = ms.filter(|_| ms != usual_ms) {
            say(key, json!(exact(ms)));
        }
    }
    for (key, number, usual) in [
        ("max-failures", policy.max_failures, default.max_failures),
        ("retries", policy.retries, default.retries),
    ] {
        if number != usual {
            say(key, json!(number));
        }
    }
    match policy.if_busy {
        IfBusy::Skip => {}
        IfBusy::Fail => say("if-busy", json!("fail")),
        IfBusy::Wait { for_ms } => say("if-busy", json!(format!("wait={}", exact(for_ms)))),
    }
    match policy.on_lost {
        OnLost::Retry => {}
        OnLost::Hold => say("on-lost", json!("hold")),
        OnLost::Probe => say("on-lost", json!("probe")),
    }
}

fn marked(value: &Reference) -> Value {
    match value {
        Reference::Plain(text) => json!(format!("sha256:{}", digest(text.as_bytes()))),
        Reference::Variable(name) => json!({ "env": name }),
    }
}

fn digest(bytes: &[u8]) -> String {
    short(&CommandMark::of("", [bytes]).digest).to_owned()
}

fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

/// A length of time, exactly, in its largest unit.
pub(crate) fn exact(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    let unit = units.into_iter().find(|(length, _)| ms > 0 && ms.is_multiple_of(*length));
    unit.map_or_else(|| format!("{ms}ms"), |(length, name)| format!("{}{name}", ms / length))
}
