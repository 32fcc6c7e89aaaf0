//! How a person is told: lanes (a command, a webhook) for notices, and pings for a service that expects to hear of
//! every run.
//!
//! ```text
//! flags, semel.toml ──resolve──▶ Lane ──deliver(Message)──▶ arrived, or Undelivered: why, and whether for good
//!                        └─────▶ Ping ──start … success | exit code | fail──▶ nothing, or why not
//! ```
//!
//! When a notice is raised, and whether one that did not arrive is tried again, is decided elsewhere. A delivery is
//! bounded in time and in memory, never fails what it tells of, and says no secret: a lane is known by its name, an
//! address by its host.
//!
//! A webhook is signed as [Standard Webhooks](https://www.standardwebhooks.com) say. Its host is looked up once; the
//! addresses that were judged are those that are connected to, for the retries too; no redirect is followed and no
//! proxy is used.
//!
//! Not guaranteed: that a message arrives once. A receiver that took it and could not say so gets it again, with the
//! same id. What a command prints is shown if it fails: it should print no secret.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use semel::clock::{Clock, SystemClock};
use semel_core::address::Endpoint;
use serde_json::Value;

use crate::plan::Surroundings;

mod command;
#[cfg(feature = "http")]
mod http;
#[cfg(not(feature = "http"))]
#[path = "no_http.rs"]
mod http;
mod of_run;
mod ping;
mod resolve;
mod send;
#[cfg(feature = "http")]
mod sign;
#[cfg(not(feature = "http"))]
use http as sign;

#[cfg(all(test, feature = "http"))]
mod http_tests;
#[cfg(test)]
mod tests;

pub(crate) use of_run::Pings;
pub(crate) use ping::Ping;
pub(crate) use resolve::{INSECURE, Notify, NotifyArgs, check, lane, name_of, resolve};
pub(crate) use send::send;

/// How long a lane has for one try, unless it says otherwise.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);
/// And at most: a run waits for its notices.
pub(crate) const TIMEOUT_LIMIT: Duration = Duration::from_secs(60);
/// Tries after the first, inside one delivery.
const RETRIES: u32 = 2;

/// One way to tell a person.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// As in `[notify.NAME]`, or made from a digest. Never an address, and no secret.
    pub(crate) name: String,
    pub(crate) to: To,
    /// Its address may be one that only this machine or this network can reach.
    pub(crate) private: bool,
    /// For one try.
    pub(crate) timeout: Duration,
    /// Where a command runs; none: here.
    pub(crate) directory: Option<PathBuf>,
}

/// Where a lane leads.
#[derive(Clone)]
pub(crate) enum To {
    /// A text for `/bin/sh -c`, which reads the message from stdin.
    Command(OsString),
    Webhook {
        url: Endpoint,
        secret: Option<Secret>,
    },
}

impl fmt::Debug for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            To::Command(_) => f.write_str("Command"),
            To::Webhook { url, secret } => {
                write!(f, "Webhook({}, {})", url.host(), if secret.is_some() { "signed" } else { "unsigned" })
            }
        }
    }
}

/// With what a webhook is signed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What is told.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The same for every delivery of it: by this a receiver knows that it has it already.
    pub(crate) id: String,
    /// When it was raised. A signature is dated with the delivery instead: receivers refuse old ones.
    pub(crate) at_ms: u64,
    /// An object.
    pub(crate) body: Value,
}

impl Message {
    /// One line of JSON, with the id and the time unless the body has them.
    fn line(&self) -> String {
        let mut body = self.body.clone();
        if let Some(members) = body.as_object_mut() {
            members.entry("id").or_insert_with(|| self.id.clone().into());
            members.entry("at_ms").or_insert_with(|| self.at_ms.into());
        }
        body.to_string()
    }
}

/// A message that did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undelivered {
    /// Without secrets.
    pub(crate) why: String,
    /// The receiver is gone: there is no sense in another delivery.
    pub(crate) permanent: bool,
}

impl Undelivered {
    fn for_now(why: impl Into<String>) -> Undelivered {
        Undelivered { why: why.into(), permanent: false }
    }
}

/// An exchange with a server: where to, what, and how long it may take.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "http"), allow(dead_code))]
struct Post {
    url: Endpoint,
    private: bool,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Tries after the first.
    retries: u32,
    /// For one try.
    timeout: Duration,
    in_all: Duration,
    /// A file with the authorities to trust instead of those built in.
    authorities: Option<PathBuf>,
}

/// The file that says which authorities are trusted, as other programs take it.
fn authorities(around: &Surroundings) -> Option<PathBuf> {
    around.get("SSL_CERT_FILE").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Hand a message over. Needs a runtime; does not block it.
pub(crate) async fn deliver(
    lane: &Lane,
    message: &Message,
    around: &Surroundings,
) -> Result<(), Undelivered> {
    match &lane.to {
        To::Command(text) => command::tell(lane, text, message, around).await,
        To::Webhook { url, secret } => {
            let at_s = SystemClock.wall_ms() / 1_000;
            let line = message.line();
            let post = Post {
                url: url.clone(),
                private: lane.private,
                headers: sign::headers(&message.id, at_s, &line, secret.as_ref()),
                body: line.into_bytes(),
                retries: RETRIES,
                timeout: lane.timeout,
                // all tries do not get all their time: whoever waits is a run that is done
                in_all: lane.timeout * 5 / 2,
                authorities: authorities(around),
            };
            on_a_thread(post).await
        }
    }
}

/// The client blocks, and a name that nobody answers for blocks longer than it may: so it gets a thread that is left
/// behind in the end.
async fn on_a_thread(post: Post) -> Result<(), Undelivered> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let within = post.in_all;
    let thread = std::thread::Builder::new().name("semel-notify".into()).spawn(move || {
        // nobody listens if it took too long
        let _ = tell.send(http::post(&post, &http::look_up));
    });
    thread.map_err(|why| Undelivered::for_now(format!("no thread for it: {why}")))?;
    match tokio::time::timeout(within, told).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(Undelivered::for_now("the delivery broke off")),
        Err(_) => Err(Undelivered::for_now(too_slow(within))),
    }
}

fn too_slow(within: Duration) -> String {
    format!("no answer within {}", crate::out::span(u64::try_from(within.as_millis()).unwrap_or(u64::MAX)))
}
