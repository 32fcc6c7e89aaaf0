//! From what was typed, and what the file says, to lanes and a ping.

use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use clap::Args;
use semel_core::address::Endpoint;
use semel_core::entry::CommandMark;

use super::{Lane, Ping, Secret, TIMEOUT, To, authorities, http, sign};
use crate::args::{Common, RunArgs};
use crate::commands::run::shell_quote;
use crate::config::faults::nearest;
use crate::config::lanes::{LaneTable, Way, is_lane_name};
use crate::config::{Config, Reference};
use crate::plan::Surroundings;
use crate::trouble::Trouble;

/// The variable with the secret for webhooks that are given by flag.
const SECRET_VAR: &str = "SEMEL_WEBHOOK_SECRET";

/// What is wrong with an address in plain text.
pub(crate) const INSECURE: &str = "http: is for private addresses only: write https:, or private-addresses = true if it is on this machine or in its network";

/// Whom to tell, as typed.
#[derive(Clone, Default, Args)]
#[command(next_help_heading = "Notices")]
pub(crate) struct NotifyArgs {
    /// Whom to tell when something is wrong: a lane of semel.toml by its name, an https address, or a command that
    /// takes JSON on stdin; may be repeated
    #[arg(long, value_name = "WHAT")]
    pub(crate) notify: Vec<String>,
    /// Tell this address when a run begins and how it ends, as Healthchecks takes it
    #[arg(long, value_name = "URL")]
    pub(crate) ping: Option<String>,
    /// Let the addresses of --ping and --notify be on this machine or in its network
    #[arg(long)]
    pub(crate) private_addresses: bool,
    /// Say in one line how a run came out
    #[arg(long)]
    pub(crate) summary: bool,
}

/// Addresses are often secrets.
impl fmt::Debug for NotifyArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.notify.iter().map(|what| name_of(what)).collect();
        f.debug_struct("NotifyArgs").field("notify", &names).finish_non_exhaustive()
    }
}

/// Whom to tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notify {
    /// Each once.
    pub(crate) lanes: Vec<Lane>,
    pub(crate) ping: Option<Ping>,
    pub(crate) summary: bool,
    /// Lanes and pings that cannot be used as things stand: said, and no reason not to run.
    pub(crate) broken: Vec<String>,
}

fn is_address(what: &str) -> bool {
    let starts =
        |scheme: &str| what.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    starts("https://") || starts("http://")
}

/// By what a lane is known before the file was looked at: its name there, or a digest.
pub(crate) fn name_of(what: &str) -> String {
    if is_lane_name(what) { what.to_owned() } else { digest_of(what) }
}

/// By what a lane is known that the file does not have.
fn digest_of(what: &str) -> String {
    let digest = CommandMark::of("", [what.as_bytes()]).digest;
    let kind = if is_address(what) { "webhook" } else { "command" };
    format!("{kind}:{}", digest.get(..12).unwrap_or(&digest))
}

/// May the addresses of these arguments be private ones?
fn is_private(args: &RunArgs) -> bool {
    args.notify.private_addresses || args.place.notices.private.unwrap_or(false)
}

/// What can be known of these arguments without looking at anything else.
pub(crate) fn check(args: &RunArgs) -> Result<(), Trouble> {
    if let Some(Reference::Plain(text)) = ping_of(args) {
        read_address("--ping", &text, is_private(args))?;
    }
    Ok(())
}

fn ping_of(args: &RunArgs) -> Option<Reference> {
    args.notify.ping.clone().map(Reference::Plain).or_else(|| args.place.notices.ping.clone())
}

/// Everything: `args` with the job of the file beneath them, if there is one.
pub(crate) fn resolve(common: &Common, args: &RunArgs, around: &Surroundings) -> Result<Notify, Trouble> {
    let typed = &args.notify.notify;
    let names =
        if typed.is_empty() { args.place.notices.lanes.as_deref().unwrap_or_default() } else { typed };
    let (mut lanes, mut broken): (Vec<Lane>, Vec<String>) = (Vec::new(), Vec::new());
    for what in names {
        match one(common, what, is_private(args), around) {
            Ok(lane) if lanes.iter().any(|known| known.name == lane.name) => {}
            Ok(lane) => lanes.push(lane),
            Err(trouble) if is_in_file(common, what, around)? => {
                broken.push(format!("lane {what} is left out: {}", trouble.line));
            }
            Err(trouble) => return Err(trouble),
        }
    }
    let mut ping = None;
    if let Some(reference) = ping_of(args) {
        match (ping_to(args, &reference, around), reference.variable()) {
            (Ok(to), _) => ping = Some(to),
            (Err(trouble), Some(_)) => broken.push(format!("no ping is sent: {}", trouble.line)),
            (Err(trouble), None) => return Err(trouble),
        }
    }
    let summary = args.notify.summary || args.place.notices.summary.unwrap_or(false);
    Ok(Notify { lanes, ping, summary, broken })
}

/// Is it a lane that the file has, without a fault? Then only the surroundings are at fault, and the job still runs.
fn is_in_file(common: &Common, what: &str, around: &Surroundings) -> Result<bool, Trouble> {
    let config = around.config(common)?;
    Ok(config.is_some_and(|config| {
        config.lanes.iter().any(|lane| lane.name == what) && config.check_lane(what).is_ok()
    }))
}

fn ping_to(args: &RunArgs, reference: &Reference, around: &Surroundings) -> Result<Ping, Trouble> {
    let text = around.resolve("ping", reference)?;
    let what = reference.variable().map_or_else(|| "--ping".to_owned(), |name| format!("ping, in {name},"));
    let url = address(&what, &text.to_string_lossy(), is_private(args))?;
    Ok(Ping { url, private: is_private(args), authorities: authorities(around) })
}

/// A lane's name, an address or a command.
fn one(common: &Common, what: &str, private: bool, around: &Surroundings) -> Result<Lane, Trouble> {
    let by_flag = |to| Lane { name: digest_of(what), to, private, timeout: TIMEOUT, directory: None };
    if is_address(what) {
        let secret = around.get(SECRET_VAR).map(|text| secret(SECRET_VAR, &text.to_string_lossy()));
        let to = To::Webhook { url: address("--notify", what, private)?, secret: secret.transpose()? };
        return Ok(by_flag(to));
    }
    if what.trim().is_empty() {
        return Err(Trouble::config(
            "--notify is empty: name a lane of semel.toml, an https address or a command",
        ));
    }
    if !is_lane_name(what) {
        return Ok(by_flag(To::Command(what.into())));
    }
    let config = around.config(common)?;
    if let Some(config) = config {
        config.check_lane(what)?;
        if config.lanes.iter().any(|lane| lane.name == what) {
            return lane(config, what, around);
        }
    }
    // a slip of the pen must not become a command that is not there, found out on the worst day
    let word = OsString::from(what);
    match semel_supervise::resolve(&word, around.get("PATH"), None) {
        Ok(_) => Ok(by_flag(To::Command(word))),
        Err(_) => Err(no_such(config, what, "--notify")),
    }
}

fn no_such(config: Option<&Config>, name: &str, flag: &str) -> Trouble {
    let names = config.iter().flat_map(|config| &config.lanes).map(|lane| lane.name.as_str());
    Trouble::config(match nearest(name, names) {
        Some(near) => format!("{flag} {name}: semel.toml has no such lane: did you mean {near:?}?"),
        None => format!(
            "{flag} {name}: semel.toml has no such lane, and there is no such command: write [notify.{name}]"
        ),
    })
}

/// A lane of the file.
pub(crate) fn lane(config: &Config, name: &str, around: &Surroundings) -> Result<Lane, Trouble> {
    config.check_lane(name)?;
    let table = config.lanes.iter().find(|lane| lane.name == name);
    let Some(LaneTable { line, way: Some(way), private, timeout_ms, .. }) = table else {
        return Err(no_such(Some(config), name, "notify"));
    };
    let here = |key: &str| format!("{}:{line}: notify.{name}: {key}", config.path.display());
    let value = |key: &str, reference: &Reference| -> Result<String, Trouble> {
        let text = around.resolve(&here(key), reference)?;
        text.to_str().map(str::to_owned).ok_or_else(|| Trouble::config(format!("{} is not UTF-8", here(key))))
    };
    let to = match way {
        Way::Command(words) => To::Command(script(words)),
        Way::Webhook { address: reference, secret: signed } => To::Webhook {
            url: address(&here("webhook"), &value("webhook", reference)?, *private)?,
            secret: match signed {
                Some(reference) => Some(secret(&here("secret"), &value("secret", reference)?)?),
                None => None,
            },
        },
    };
    Ok(Lane {
        name: name.to_owned(),
        to,
        private: *private,
        timeout: timeout_ms.map_or(TIMEOUT, Duration::from_millis),
        directory: Some(config.folder().to_owned()),
    })
}

/// The words of a command as a text for a shell.
fn script(words: &[OsString]) -> OsString {
    match words {
        [sh, flag, text] if sh == "/bin/sh" && flag == "-c" => text.clone(),
        // they come from a file that is UTF-8
        words => {
            words.iter().map(|word| shell_quote(&word.to_string_lossy())).collect::<Vec<_>>().join(" ").into()
        }
    }
}

/// An address that this build can use.
fn address(what: &str, text: &str, private: bool) -> Result<Endpoint, Trouble> {
    if !http::BUILT_IN {
        return Err(Trouble::config(format!(
            "{what}: this build of semel speaks no HTTP: use a command, or a build with the feature http"
        )));
    }
    read_address(what, text, private)
}

/// An address that may be used; what is wrong with it is said without it.
fn read_address(what: &str, text: &str, private: bool) -> Result<Endpoint, Trouble> {
    let read = Endpoint::parse(text.trim()).map_err(|why| Trouble::config(format!("{what}: {why}")))?;
    if !read.is_secure() && !private {
        return Err(Trouble::config(format!("{what}: {INSECURE}")));
    }
    Ok(read)
}

fn secret(what: &str, text: &str) -> Result<Secret, Trouble> {
    sign::secret(text).map_err(|why| Trouble::config(format!("{what}: {why}")))
}
