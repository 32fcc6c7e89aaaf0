//! `[notify.NAME]`: a lane, as the file says it. What its references stand for is found out when it is used.

use std::borrow::Cow;
use std::ffi::OsString;

use semel_core::address::Endpoint;
use semel_core::name::Name;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Reference;
use super::faults::{has_password, nearest};
use super::keys::Kind;
use super::values::{self, Wrong, found, wrong};
use crate::{notify, plan};

/// The keys of a lane, in the order in which they are shown, and what each means.
pub(super) const LANE_KEYS: [(&str, &str); 5] = [
    (
        "command",
        "Gets the message as JSON on stdin; exit 0 is delivered; a text instead of a list is run by /bin/sh -c",
    ),
    (
        "webhook",
        "Gets the message as a POST; an address with a key in it only by reference, as in { env = \"OPS_HOOK\" }",
    ),
    ("secret", "Signs what goes to the webhook, as Standard Webhooks say; only by reference"),
    ("private-addresses", "The webhook may be on this machine or in its network"),
    ("timeout", "How long one try may take, at most 60s [default: 10s]"),
];

/// A lane of the file.
#[derive(Debug)]
pub(crate) struct LaneTable {
    /// What it is called.
    pub(crate) name: String,
    /// Where its name stands, from 1.
    pub(crate) line: usize,
    /// Where it leads; none if that is faulty.
    pub(crate) way: Option<Way>,
    pub(crate) private: bool,
    pub(crate) timeout_ms: Option<u64>,
}

/// Where a lane of the file leads.
#[derive(Debug)]
pub(crate) enum Way {
    Command(Vec<OsString>),
    Webhook { address: Reference, secret: Option<Reference> },
}

impl LaneTable {
    /// The variables that hold its secrets.
    pub(crate) fn variables(&self) -> impl Iterator<Item = &str> {
        let references = match &self.way {
            Some(Way::Webhook { address, secret }) => [Some(address), secret.as_ref()],
            _ => [None, None],
        };
        references.into_iter().flatten().filter_map(Reference::variable)
    }
}

/// Can a lane be called so? Addresses, commands and the names that are made for them must be told from it.
pub(crate) fn is_lane_name(text: &str) -> bool {
    Name::new(text).is_ok() && !text.contains([':', '/'])
}

/// Read one, with all that is wrong with it.
pub(super) fn read(
    name: &Spanned<Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
    line: usize,
) -> (LaneTable, Vec<Wrong>) {
    let mut reading = Reading::default();
    let called = name.get_ref().as_ref();
    let mut lane = LaneTable { name: called.to_owned(), line, way: None, private: false, timeout_ms: None };
    if !is_lane_name(called) {
        // somebody may have written an address there
        reading.refuse(
            name.span(),
            "notify: a lane has a name of letters, digits, _, - and .: write [notify.ops]".into(),
        );
    }
    match value.get_ref() {
        DeValue::Table(table) => {
            for (key, value) in table {
                reading.key(key, value, &mut lane);
            }
            reading.together(name, table, &mut lane);
        }
        other => {
            let text =
                format!("notify.{called}: found {}: write a table, as in [notify.ops]", kind_of(other));
            reading.refuse(value.span(), text);
        }
    }
    (lane, reading.wrong)
}

/// What was found, without its content: it may be an address with a key in it.
fn kind_of(value: &DeValue<'_>) -> String {
    if value.is_str() { "a text".to_owned() } else { found(value) }
}

#[derive(Default)]
struct Reading {
    command: Option<Vec<OsString>>,
    webhook: Option<Reference>,
    secret: Option<Reference>,
    wrong: Vec<Wrong>,
}

impl Reading {
    fn refuse(&mut self, span: std::ops::Range<usize>, text: String) {
        self.wrong.push(Wrong { secret: true, ..wrong(span, text) });
    }

    fn keep<T>(&mut self, read: Result<T, Wrong>) -> Option<T> {
        read.map_err(|wrong| self.wrong.push(wrong)).ok()
    }

    fn key(&mut self, key: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>, lane: &mut LaneTable) {
        match key.get_ref().as_ref() {
            "command" => match values::command("command", value) {
                Ok(words) => self.command = Some(words),
                Err(all) => self.wrong.extend(all),
            },
            "webhook" => self.webhook = self.keep(webhook(value)),
            "secret" => self.secret = self.keep(secret(value)),
            "timeout" => lane.timeout_ms = self.keep(timeout(value)),
            "private-addresses" => match value.get_ref() {
                DeValue::Boolean(yes) => lane.private = *yes,
                other => {
                    let wanted = Kind::Yes.wanted("private-addresses");
                    let text = format!("private-addresses: found {}: write {wanted}", found(other));
                    self.wrong.push(wrong(value.span(), text));
                }
            },
            name => {
                let known = LANE_KEYS.into_iter().map(|(known, _)| known);
                self.wrong.push(wrong(
                    key.span(),
                    match nearest(name, known.clone()) {
                        Some(near) => format!("unknown key {name:?}: did you mean {near:?}?"),
                        None => format!(
                            "unknown key {name:?}: the keys of a lane are {}",
                            known.collect::<Vec<_>>().join(", ")
                        ),
                    },
                ));
            }
        }
    }

    /// What is well by itself may not go together.
    fn together(&mut self, name: &Spanned<Cow<'_, str>>, table: &DeTable<'_>, lane: &mut LaneTable) {
        let has = |wanted: &str| table.keys().any(|key| key.get_ref() == wanted);
        let called = format!("notify.{}", name.get_ref());
        let why = match (has("command"), has("webhook")) {
            (true, true) => {
                Some("command and webhook are two lanes: write one of them under another name".to_owned())
            }
            (false, false) => Some(
                "it leads nowhere: write command = [\"./tell.sh\"] or webhook = { env = \"OPS_HOOK\" }"
                    .to_owned(),
            ),
            (true, false) => ["secret", "private-addresses"]
                .into_iter()
                .find(|key| has(key))
                .map(|key| format!("{key} goes with a webhook: leave it out")),
            (false, true) => match &self.webhook {
                Some(Reference::Plain(text)) if !lane.private => insecure(text),
                _ => None,
            },
        };
        if let Some(why) = why {
            self.refuse(name.span(), format!("{called}: {why}"));
        }
        if self.wrong.is_empty() {
            let webhook =
                self.webhook.take().map(|address| Way::Webhook { address, secret: self.secret.take() });
            lane.way = self.command.take().map(Way::Command).or(webhook);
        }
    }
}

fn insecure(address: &str) -> Option<String> {
    let is_secure = Endpoint::parse(address).is_ok_and(|address| address.is_secure());
    (!is_secure).then(|| notify::INSECURE.to_owned())
}

const BY_REFERENCE: &str = "and set OPS_HOOK where Semel is started";

fn webhook(value: &Spanned<DeValue<'_>>) -> Result<Reference, Wrong> {
    let refuse = |why: &str| Err(Wrong { secret: true, ..wrong(value.span(), format!("webhook: {why}")) });
    match value.get_ref() {
        DeValue::Table(table) => values::reference("webhook", table, value.span()),
        DeValue::String(text) => match Endpoint::parse(text) {
            Err(why) => refuse(&why.to_string()),
            Ok(address) if address.looks_secret() || has_password(text) => refuse(&format!(
                "an address with a key in it does not belong into a file: write webhook = {{ env = \"OPS_HOOK\" }}, {BY_REFERENCE}"
            )),
            Ok(_) => Ok(Reference::Plain(text.to_string())),
        },
        other => refuse(&format!(
            "found {}: write webhook = {{ env = \"OPS_HOOK\" }}, {BY_REFERENCE}",
            kind_of(other)
        )),
    }
}

fn secret(value: &Spanned<DeValue<'_>>) -> Result<Reference, Wrong> {
    match value.get_ref() {
        DeValue::Table(table) => values::reference("secret", table, value.span()),
        _ => {
            let text = "secret: it does not belong into a file: write secret = { env = \"OPS_SECRET\" }, and set OPS_SECRET where Semel is started";
            Err(Wrong { secret: true, ..wrong(value.span(), text) })
        }
    }
}

fn timeout(value: &Spanned<DeValue<'_>>) -> Result<u64, Wrong> {
    let most = notify::TIMEOUT_LIMIT.as_secs();
    let refuse = |why: String| wrong(value.span(), why);
    match value.get_ref() {
        DeValue::String(text) => match plan::duration_ms("timeout", text) {
            Ok(0) => Err(refuse("timeout: it is no time at all: write timeout = \"10s\"".to_owned())),
            Ok(ms) if ms > most * 1_000 => Err(refuse(format!(
                "timeout {text:?} is longer than {most}s: a run waits for its notices; write timeout = \"10s\""
            ))),
            Ok(ms) => Ok(ms),
            Err(trouble) => Err(refuse(trouble.line)),
        },
        DeValue::Integer(number) => Err(refuse(format!(
            "timeout: found the number {number}: write its unit too, as in timeout = \"{number}s\""
        ))),
        other => Err(refuse(format!(
            "timeout: found {}: write {}",
            found(other),
            Kind::Duration.wanted("timeout")
        ))),
    }
}
