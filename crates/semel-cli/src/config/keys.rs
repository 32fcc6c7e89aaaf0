//! Every key of `semel.toml`, once: what it is called, what it takes, and which argument it stands for.
//!
//! A key has the name of its flag, and the flag's help. To make a new flag of `semel run` a key too, add its line; if
//! it says what makes two runs the same work, name it in [`gives_way`] as well.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Reference;
use crate::args::{OnLostArg, RunArgs, WhatArgs};

/// What a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Any text.
    Text,
    /// A name of a job or a resource.
    Name,
    /// Several of them.
    Names,
    /// A length of time.
    Duration,
    /// A number from 0.
    Count,
    /// An exit code.
    Code,
    /// true or false.
    Yes,
    /// `skip`, `wait=DUR` or `fail`.
    IfBusy,
    /// `latest`, `none` or `all=DUR`.
    CatchUp,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A path; a relative one is taken from the job's directory, or the file's folder for the directory itself.
    Path,
    /// JSON pointers.
    Pointers,
    /// Several texts.
    Texts,
    /// Names of lanes.
    Lanes,
    /// An address of the web, or a reference to one.
    Address,
    /// Parameters by their names.
    Params,
    /// A list of words, or a text for `/bin/sh -c`.
    Command,
    /// Variables by their names, each a value or a reference.
    Environment,
}

/// Where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// In a job only.
    Job,
    /// In a job, and in `[defaults]`.
    Policy,
}

/// A key.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) scope: Scope,
    /// What it means, if there is no flag to say it.
    pub(crate) help: Option<&'static str>,
    /// Put it into the arguments, unless something is there already.
    pub(crate) put: fn(&mut RunArgs, &Given),
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A value of the right kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    Text(String),
    Number(u32),
    Yes(bool),
    List(Vec<String>),
    Words(Vec<OsString>),
    Env(Vec<(String, Reference)>),
    Reference(Reference),
}

impl Given {
    pub(super) fn text(&self) -> Option<String> {
        if let Given::Text(text) = self { Some(text.clone()) } else { None }
    }

    fn number(&self) -> Option<u32> {
        if let Given::Number(number) = self { Some(*number) } else { None }
    }

    fn list(&self) -> Vec<String> {
        if let Given::List(list) = self { list.clone() } else { Vec::new() }
    }

    fn reference(&self) -> Option<Reference> {
        if let Given::Reference(reference) = self { Some(reference.clone()) } else { None }
    }

    fn yes(&self) -> bool {
        matches!(self, Given::Yes(true))
    }
}

fn fill<T>(place: &mut Option<T>, value: Option<T>) {
    if place.is_none() {
        *place = value;
    }
}

fn fill_list(place: &mut Vec<String>, list: Vec<String>) {
    if place.is_empty() {
        *place = list;
    }
}

const fn job(name: &'static str, kind: Kind, put: fn(&mut RunArgs, &Given)) -> Key {
    Key { name, kind, scope: Scope::Job, help: None, put }
}

const fn policy(name: &'static str, kind: Kind, put: fn(&mut RunArgs, &Given)) -> Key {
    Key { name, kind, scope: Scope::Policy, help: None, put }
}

/// Every key of a job, in the order in which they are shown.
#[rustfmt::skip] // a table
pub(crate) const KEYS: &[Key] = &[
    Key { help: Some("The program and its arguments; a text instead of a list is run by /bin/sh -c"), ..job("command", Kind::Command, put_command) },
    Key { help: Some("Where it runs; relative to the folder of this file, which is also the default"), ..job("directory", Kind::Path, |a, v| fill(&mut a.place.directory, v.text().map(PathBuf::from))) },
    Key { help: Some("Variables on top of those it inherits; a secret only by reference, as in TOKEN = { env = \"TOKEN\" }"), ..job("env", Kind::Environment, put_env) },
    // what makes two runs the same work
    job("every", Kind::Text, |a, v| fill(&mut a.what.every, v.text())),
    job("tz", Kind::Text, |a, v| fill(&mut a.what.tz, v.text())),
    job("max-late", Kind::Duration, |a, v| fill(&mut a.what.max_late, v.text())),
    job("catch-up", Kind::CatchUp, |a, v| fill(&mut a.what.catch_up, v.text())),
    job("keep-going", Kind::Yes, |a, v| a.what.keep_going |= v.yes()),
    job("grace", Kind::Duration, |a, v| fill(&mut a.what.grace, v.text())),
    job("slot", Kind::Text, |a, v| fill(&mut a.what.slot, v.text())),
    job("with", Kind::Params, put_with),
    job("key", Kind::Text, |a, v| fill(&mut a.what.key, v.text())),
    job("once", Kind::Yes, |a, v| a.what.once |= v.yes()),
    job("always", Kind::Yes, |a, v| a.what.always |= v.yes()),
    // resources and payload
    job("resource", Kind::Name, |a, v| fill(&mut a.resource, v.text())),
    job("or", Kind::Names, |a, v| fill_list(&mut a.or, v.list())),
    job("payload", Kind::Path, |a, v| fill(&mut a.payload, v.text().map(PathBuf::from))),
    job("volatile", Kind::Pointers, |a, v| fill_list(&mut a.volatile, v.list())),
    // what is decided once
    job("choose", Kind::Texts, |a, v| fill_list(&mut a.plan.choose, v.list())),
    job("recent", Kind::Texts, |a, v| fill_list(&mut a.plan.recent, v.list())),
    job("plan", Kind::Path, |a, v| fill(&mut a.plan.plan, v.text().map(PathBuf::from))),
    job("plan-cmd", Kind::Text, |a, v| fill(&mut a.plan.plan_cmd, v.text().map(OsString::from))),
    job("fill", Kind::Yes, |a, v| a.fill |= v.yes()),
    // policies
    policy("ttl", Kind::Duration, |a, v| fill(&mut a.policy.ttl, v.text())),
    policy("timeout", Kind::Duration, |a, v| fill(&mut a.policy.timeout, v.text())),
    policy("kill-after", Kind::Duration, |a, v| fill(&mut a.policy.kill_after, v.text())),
    policy("hold-at-least", Kind::Duration, |a, v| fill(&mut a.policy.hold_at_least, v.text())),
    policy("lock-delay", Kind::Duration, |a, v| fill(&mut a.policy.lock_delay, v.text())),
    policy("if-busy", Kind::IfBusy, |a, v| fill(&mut a.policy.if_busy, v.text())),
    policy("on-lost", Kind::OneOf(&["retry", "hold", "probe"]), |a, v| fill(&mut a.policy.on_lost, on_lost(v))),
    policy("probe", Kind::Text, |a, v| fill(&mut a.policy.probe, v.text().map(OsString::from))),
    policy("probe-timeout", Kind::Duration, |a, v| fill(&mut a.policy.probe_timeout, v.text())),
    policy("max-failures", Kind::Count, |a, v| fill(&mut a.policy.max_failures, v.number())),
    policy("retries", Kind::Count, |a, v| fill(&mut a.policy.retries, v.number())),
    policy("backoff", Kind::Duration, |a, v| fill(&mut a.policy.backoff, v.text())),
    policy("keep", Kind::Duration, |a, v| fill(&mut a.policy.keep, v.text())),
    policy("remember", Kind::Duration, |a, v| fill(&mut a.policy.remember, v.text())),
    policy("notify", Kind::Lanes, |a, v| fill(&mut a.place.notices.lanes, Some(v.list()))),
    policy("ping", Kind::Address, |a, v| fill(&mut a.place.notices.ping, v.reference())),
    policy("private-addresses", Kind::Yes, |a, v| fill(&mut a.place.notices.private, Some(v.yes()))),
    policy("summary", Kind::Yes, |a, v| fill(&mut a.place.notices.summary, Some(v.yes()))),
    policy("skip-code", Kind::Code, |a, v| fill(&mut a.skip_code, v.number().and_then(|code| u8::try_from(code).ok()))),
];

/// Every flag of `semel run` that is no key, and why.
#[cfg(test)]
pub(crate) const NO_KEYS: &[(&str, &str)] = &[
    ("job", "a job is named by its table"),
    ("store", "it stands at the top"),
    ("config", "it says where the file is"),
    ("scheduled-for", "the scheduler says it, each time"),
    ("rehearse", "how one invocation is made"),
    ("crash-at", "how semel chaos ends one invocation"),
    ("json", "how one invocation is told"),
    ("verbose", "how one invocation is told"),
];

/// Does what was typed leave no room for this key? `--once` and `--always` go alone, so they replace whatever the
/// file says of what makes two runs the same work, and are replaced by anything that was typed.
pub(crate) fn gives_way(key: &Key, typed: &WhatArgs) -> bool {
    let alone = typed.once || typed.always;
    match key.name {
        "once" | "always" => alone || typed.is_more(),
        "every" | "tz" | "max-late" | "catch-up" | "keep-going" | "grace" => {
            alone || typed.slot.is_some() || typed.key.is_some()
        }
        "slot" | "key" => alone || typed.every.is_some(),
        "with" => alone,
        _ => false,
    }
}

fn put_command(args: &mut RunArgs, value: &Given) {
    if let (true, Given::Words(words)) = (args.command.is_empty(), value) {
        args.command.clone_from(words);
    }
}

fn put_env(args: &mut RunArgs, value: &Given) {
    if let Given::Env(env) = value {
        args.place.env.clone_from(env);
    }
}

/// Parameter by parameter.
fn put_with(args: &mut RunArgs, value: &Given) {
    let name = |word: &str| word.split('=').next().map(|name| name.trim_end_matches(':').to_owned());
    let typed: Vec<_> = args.what.with.iter().map(|word| name(word)).collect();
    args.what.with.extend(value.list().into_iter().filter(|word| !typed.contains(&name(word))));
}

fn on_lost(value: &Given) -> Option<OnLostArg> {
    match value.text()?.as_str() {
        "retry" => Some(OnLostArg::Retry),
        "hold" => Some(OnLostArg::Hold),
        "probe" => Some(OnLostArg::Probe),
        _ => None,
    }
}

impl Kind {
    /// What to write, after "write".
    pub(crate) fn wanted(self, name: &str) -> String {
        match self {
            Kind::Text => format!("a text in quotes, as in {name} = \"…\""),
            Kind::Name => format!("a name in quotes, as in {name} = \"site\""),
            Kind::Names => format!("a list of names, as in {name} = [\"site-2\"]"),
            Kind::Duration => {
                format!("a length of time in quotes, as in {name} = \"90s\" (500ms, 90s, 1h30m, 7d)")
            }
            Kind::Count => format!("a number from 0, as in {name} = 3"),
            Kind::Code => format!("an exit code from 0 to 255, as in {name} = 3"),
            Kind::Yes => format!("{name} = true, without quotes, or leave it out"),
            Kind::IfBusy => format!("{name} = \"skip\", \"wait=5m\" or \"fail\""),
            Kind::CatchUp => format!("{name} = \"latest\", \"none\" or \"all=7d\""),
            Kind::OneOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                format!("{name} = {}", words.join(" or "))
            }
            Kind::Path => format!("a path in quotes, as in {name} = \"/srv/site\""),
            Kind::Texts => format!("a list of texts, as in {name} = [\"NAME=a,b\"]"),
            Kind::Lanes => {
                format!("a list of names of lanes, as in {name} = [\"ops\"], and [notify.ops] at the top")
            }
            Kind::Address => {
                format!(
                    "an address in quotes, as in {name} = \"https://…\", or {name} = {{ env = \"PING_URL\" }}"
                )
            }
            Kind::Pointers => format!("a list of JSON pointers, as in {name} = [\"/text\"]"),
            Kind::Params => format!("parameters, as in {name} = {{ series = \"landing\", n = 3 }}"),
            Kind::Command => format!(
                "a list of words, as in {name} = [\"./publish.sh\", \"--now\"], or a text for /bin/sh"
            ),
            Kind::Environment => {
                format!("variables, as in {name} = {{ LANG = \"C.UTF-8\", TOKEN = {{ env = \"TOKEN\" }} }}")
            }
        }
    }
}
