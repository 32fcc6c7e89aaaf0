//! What is said of a server that cannot be used, in one line and without a secret, and whether a write was made.

use std::io;
use std::time::Duration;

use redis::{ErrorKind, RedisError};

use super::address::Place;
use super::link::NoLink;
use crate::store::StoreError;

/// The commands that a user needs: those that connect, those that call the scripts, those that the scripts call.
pub(super) const COMMANDS: &str = "+hello +select +eval +evalsha +time +get +getrange +set +setrange +del +zadd +zrem \
                                   +zrangebylex +publish +subscribe +unsubscribe";

/// What was asked: a write that got no answer may have been made, a read is simply asked again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Read,
    Write,
}

/// Nothing was sent.
pub(super) fn unconnected(place: &Place, why: &NoLink) -> StoreError {
    let line = match why {
        NoLink::Connect(why) if why.kind() == io::ErrorKind::ConnectionRefused => {
            format!("{place} refused the connection: is it running there?")
        }
        NoLink::Connect(why) => format!("{place} cannot be reached: {why}: check the address"),
        NoLink::Tls(why) => tls(place, why),
        NoLink::Greeting(why) => match why.code() {
            Some(code) => refusal(place, code, why.detail().unwrap_or_default()),
            None => greeting(place, why),
        },
    };
    StoreError::Unavailable(place.masked(line))
}

fn tls(place: &Place, why: &io::Error) -> String {
    let cause = why.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(what)) => format!(
            "the certificate of {place} is not trusted: {what}: check its name and give its authority with ca=PATH"
        ),
        Some(rustls::Error::InvalidMessage(_)) => {
            format!("{place} does not speak TLS: write redis:// instead of rediss://")
        }
        Some(rustls::Error::AlertReceived(alert)) => {
            format!("{place} refused TLS: {alert:?}: does it want a certificate of its clients?")
        }
        _ => format!("TLS with {place} failed: {why}"),
    }
}

fn greeting(place: &Place, why: &RedisError) -> String {
    match why.kind() {
        ErrorKind::RESP3NotSupported => too_old(place),
        ErrorKind::Io if place.tls.is_none() => {
            format!("{place} closed the connection instead of greeting: does it want rediss://?")
        }
        // the crate's own word for a SELECT that was refused; the server's is inside
        _ if why.to_string().contains("database") => {
            format!("{place} has no database {}: check the number in the address", place.database)
        }
        _ => format!("{place} does not greet as Redis does: check the address"),
    }
}

fn too_old(place: &Place) -> String {
    format!("{place} is too old: Redis 7.0 or newer, or Valkey, is needed")
}

/// No answer came before the deadline.
pub(super) fn too_late(place: &Place, asked: Option<Asked>, deadline: Duration) -> StoreError {
    let ms = deadline.as_millis();
    match asked {
        None if place.tls.is_some() => StoreError::Unavailable(format!(
            "{place} was not connected within {ms} ms: does it speak TLS at this port?"
        )),
        None => StoreError::Unavailable(format!("{place} was not connected within {ms} ms")),
        Some(Asked::Read) => StoreError::Unavailable(format!("{place} did not answer within {ms} ms")),
        Some(Asked::Write) => StoreError::Unknown(format!("{place} did not answer within {ms} ms")),
    }
}

/// An answer that no script of ours gives.
pub(super) fn strange(place: &Place, asked: Asked) -> StoreError {
    let line = format!("{place} holds something under the prefix {:?} that is no ledger", place.prefix);
    match asked {
        Asked::Read => StoreError::Unavailable(line),
        Asked::Write => StoreError::Unknown(line),
    }
}

/// It was sent, and an error came back.
pub(super) fn answered(place: &Place, asked: Asked, why: &RedisError) -> StoreError {
    let Some(code) = why.code() else {
        let line = place.masked(format!("the connection to {place} broke: {why}"));
        return match asked {
            Asked::Read => StoreError::Unavailable(line),
            Asked::Write => StoreError::Unknown(line),
        };
    };
    let detail = why.detail().unwrap_or_default();
    let line = place.masked(refusal(place, code, detail));
    // a script looks before it writes, and writes nothing that can be refused after something that counts
    match asked {
        Asked::Write if !is_before_any_write(code, detail) => StoreError::Unknown(line),
        _ => StoreError::Unavailable(line),
    }
}

fn is_before_any_write(code: &str, detail: &str) -> bool {
    let known = [
        "NOSCRIPT",
        "NOPERM",
        "NOAUTH",
        "WRONGPASS",
        "READONLY",
        "OOM",
        "MISCONF",
        "NOREPLICAS",
        "LOADING",
        "BUSY",
        "MASTERDOWN",
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "CROSSSLOT",
        "WRONGTYPE",
        "DENIED",
    ];
    known.contains(&code) || (code == "ERR" && (is_of_old_server(detail) || is_of_permissions(detail)))
}

/// As Redis 7.0 says NOPERM inside a script.
fn is_of_permissions(detail: &str) -> bool {
    detail.starts_with("The user executing the script can't")
}

/// A server before 7.0 cannot read the first line of a script.
fn is_of_old_server(detail: &str) -> bool {
    detail.contains("compiling script") || detail.to_ascii_lowercase().contains("unknown command")
}

/// What the server's word means here. Unknown commands are repeated by it with their arguments: never said again.
fn refusal(place: &Place, code: &str, detail: &str) -> String {
    let Place { prefix, database, .. } = place;
    let who = place.who();
    let code = if is_of_permissions(detail) { "NOPERM" } else { code };
    match code {
        "WRONGPASS" => {
            format!("{place} refused the password of user {who}: check the address, or REDIS_PASSWORD")
        }
        "NOAUTH" => format!("{place} wants a password: put it into the address, or set REDIS_PASSWORD"),
        "NOPERM" => format!(
            "{place} does not let user {who} do this: ACL SETUSER {who} ~{{{prefix}}}:* &{{{prefix}}}:* {COMMANDS}"
        ),
        "READONLY" => format!("{place} is a replica and takes no writes: give the address of the primary"),
        "OOM" => format!("{place} is full: raise maxmemory, or run semel gc"),
        "MISCONF" => format!("{place} cannot write to its disk and takes no writes: look at its log"),
        "NOREPLICAS" => {
            format!("{place} has fewer replicas than it wants (min-replicas-to-write): nothing was written")
        }
        "LOADING" => format!("{place} is still loading its data: try again soon"),
        "BUSY" => format!("{place} is busy with somebody's script: try again soon"),
        "MASTERDOWN" => format!("{place} is a replica without its primary: give the address of the primary"),
        "MOVED" | "ASK" => match detail.split_ascii_whitespace().nth(1) {
            Some(node) => format!(
                "{place} is a node of a cluster, and the ledger {prefix} lies on {node}: give that address"
            ),
            None => format!(
                "{place} is a node of a cluster, and the ledger {prefix} lies on another: give its address"
            ),
        },
        "TRYAGAIN" | "CLUSTERDOWN" => {
            format!("{place} is a node of a cluster that is not whole now: try again soon")
        }
        "WRONGTYPE" => format!(
            "{place} holds something under the prefix {prefix:?} that is no ledger: choose another with prefix="
        ),
        "DENIED" => {
            format!("{place} runs in protected mode and takes no connection from here: give it a password")
        }
        "ERR" if is_of_old_server(detail) => too_old(place),
        "ERR" if detail.starts_with("DB index") || detail.contains("SELECT is not allowed") => {
            format!("{place} has no database {database}: check the number in the address")
        }
        "ERR" if detail.starts_with("max number of clients") => {
            format!("{place} takes no more clients (maxclients)")
        }
        _ => format!("{place} refused: {code} {detail}"),
    }
}
