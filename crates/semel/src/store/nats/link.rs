//! One connection, and requests on it.
//!
//! The client library connects again by itself and sends then what it still holds: a write that we reported as not made
//! could be made minutes later. So a connection lives once: its pool of servers is replaced by an address that nobody can
//! listen at, so that the library gives up when it breaks, drops what was not sent, and every request on it ends at
//! once. The next verb makes a new connection.
//!
//! A server says that something is not allowed beside the answers, by an error that names the subject; the answer then
//! never comes. So each request listens to those errors too.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::client::{PublishErrorKind, RequestErrorKind};
use async_nats::connection::State;
use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, HeaderMap, Message, Request, ServerAddr,
    ServerError, ServerInfo,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::{broadcast, oneshot};

use super::address::{Address, Who};

/// Why a request came to nothing.
#[derive(Debug)]
pub(super) enum Fault {
    /// It never left: the connection was gone before.
    NotSent(String),
    /// It left, and nobody knows what became of it.
    NoAnswer(String),
    /// The server refused it and did nothing.
    Rejected {
        /// The server's own number; 0 where it has none.
        code: u64,
        /// In one line.
        why: String,
    },
}

impl Fault {
    pub(super) fn rejected(why: impl Into<String>) -> Fault {
        Fault::Rejected { code: 0, why: why.into() }
    }

    /// Is the connection of no use any more?
    pub(super) fn is_broken(&self) -> bool {
        !matches!(self, Fault::Rejected { .. })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Fault::NotSent(why) | Fault::NoAnswer(why) | Fault::Rejected { why, .. }) = self;
        f.write_str(why)
    }
}

/// The code of what nobody was there to take: surely nothing was done.
pub(super) const NOBODY: u64 = u64::MAX;

/// What the JetStream API answers when it does not do what was asked.
#[derive(Debug, Deserialize)]
pub(super) struct ApiError {
    #[serde(default)]
    pub(super) code: u64,
    #[serde(default)]
    pub(super) err_code: u64,
    #[serde(default)]
    pub(super) description: String,
}

#[derive(Deserialize)]
struct ApiAnswer {
    error: Option<ApiError>,
}

/// A connection.
pub(super) struct Link {
    client: Client,
    complaints: broadcast::Sender<Arc<str>>,
    pub(super) info: ServerInfo,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("server", &self.info.server_name).finish()
    }
}

const TOO_LARGE: &str = "the record is larger than the server takes: set max_payload to 1MB or more";
/// Nobody can listen at port 0.
const NOWHERE: &str = "nats://127.0.0.1:0";
/// The oldest server whose streams can do what this needs.
const OLDEST: (u32, u32) = (2, 9);

impl Link {
    /// Connect; else one line that says why not, and nothing secret.
    pub(super) async fn connect(address: &Address, timeout: Duration) -> Result<Link, String> {
        let place = address.place();
        let (complaints, _) = broadcast::channel(64);
        let told = complaints.clone();
        let mut options = signed_in(&address.who)?
            .name("semel")
            .connection_timeout(share(timeout, address.servers.len()))
            .request_timeout(None)
            .max_reconnects(address.servers.len())
            .ignore_discovered_servers()
            .skip_subject_validation(true)
            // hints: who is late looks anyway
            .subscription_capacity(64)
            .require_tls(address.tls)
            .event_callback(move |event| {
                let told = told.clone();
                async move {
                    if let Event::ServerError(ServerError::Other(text)) = event {
                        // nobody may be asking just now
                        let _ = told.send(Arc::from(text));
                    }
                }
            });
        if let Some(config) = &address.tls_config {
            options = options.tls_client_config(config.as_ref().clone());
        }
        let servers: Result<Vec<ServerAddr>, _> =
            address.servers.iter().map(|server| format!("nats://{server}").parse()).collect();
        let servers = servers.map_err(|_| format!("the address {place} cannot be read"))?;
        let client = options.connect(servers).await.map_err(|why| unconnected(&place, &why, &address.who))?;
        let nowhere: Result<ServerAddr, _> = NOWHERE.parse();
        let once = async { client.set_server_pool(nowhere.ok()?).await.ok() };
        once.await.ok_or_else(|| format!("{place} broke the connection at once"))?;
        let info = client.server_info();
        if version(&info.version).is_some_and(|found| found < OLDEST) {
            return Err(format!(
                "the server at {place} is NATS {}: use {}.{} or later",
                info.version, OLDEST.0, OLDEST.1
            ));
        }
        Ok(Link { client, complaints, info })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Is the server at least of this version?
    pub(super) fn is_at_least(&self, least: (u32, u32)) -> bool {
        version(&self.info.version).is_some_and(|found| found >= least)
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Ask, and wait for the answer as long as the connection lives.
    pub(super) async fn ask(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Vec<u8>,
    ) -> Result<Message, Fault> {
        let mut complaints = self.complaints.subscribe();
        let request = Request { payload: Some(payload.into()), headers, timeout: Some(None), inbox: None };
        let answer = self.client.send_request(subject.to_owned(), request);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return answer.map_err(|why| fault(subject, &why)),
                Ok(said) = complaints.recv() => {
                    if let Some(why) = forbidden(subject, &said) {
                        return Err(Fault::rejected(why));
                    }
                }
                // all complaints that came too fast: the answer, or the deadline
                else => return answer.await.map_err(|why| fault(subject, &why)),
            }
        }
    }

    /// Send, and ask for no answer.
    pub(super) async fn send(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Vec<u8>,
    ) -> Result<(), Fault> {
        let sent = self.client.publish_with_headers(subject, headers, payload.into()).await;
        sent.map_err(|why| match why.kind() {
            PublishErrorKind::MaxPayloadExceeded => Fault::rejected(TOO_LARGE),
            _ => Fault::NotSent("the connection is gone".to_owned()),
        })
    }

    /// Wait until all that was sent has left this process.
    pub(super) async fn left(&self) -> Result<(), String> {
        self.client.flush().await.map_err(|_| "the connection broke".to_owned())
    }

    /// Ask the JetStream API.
    pub(super) async fn api<T: DeserializeOwned>(
        &self,
        what: &str,
        body: &serde_json::Value,
    ) -> Result<T, Fault> {
        let payload = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = self.ask(&format!("$JS.API.{what}"), None, payload).await?;
        let unread =
            |why: serde_json::Error| Fault::NoAnswer(format!("the answer to {what} cannot be read: {why}"));
        let said: ApiAnswer = serde_json::from_slice(&answer.payload).map_err(unread)?;
        match said.error {
            Some(error) => Err(Fault::Rejected { code: error.err_code, why: error.description }),
            None => serde_json::from_slice(&answer.payload).map_err(unread),
        }
    }
}

/// How long each of so many servers may take to connect and greet, so that all of them fit into the deadline with a share
/// left for the verb.
fn share(deadline: Duration, servers: usize) -> Duration {
    match u32::try_from(servers) {
        Ok(servers @ 2..) => deadline / servers.saturating_add(1),
        _ => deadline,
    }
}

fn fault(subject: &str, why: &async_nats::RequestError) -> Fault {
    match why.kind() {
        RequestErrorKind::NoResponders => {
            let why = match subject.starts_with("$JS.") {
                true => {
                    "JetStream does not answer: start the server with JetStream (-js), or ask for an account that has it"
                }
                false => "no bucket takes this record: was it deleted while it was in use?",
            };
            Fault::Rejected { code: NOBODY, why: why.to_owned() }
        }
        RequestErrorKind::MaxPayloadExceeded => Fault::rejected(TOO_LARGE),
        RequestErrorKind::InvalidSubject => Fault::rejected("the server takes no such name"),
        _ => {
            // an answer that will never come was asked for; anything else was not taken from us
            let source = std::error::Error::source(why);
            let was_sent = source.is_some_and(|source| source.is::<oneshot::error::RecvError>());
            match was_sent {
                true => Fault::NoAnswer("the connection broke".to_owned()),
                false => Fault::NotSent("the connection is gone".to_owned()),
            }
        }
    }
}

/// Is it of this request that the server says: not allowed?
fn forbidden(subject: &str, said: &str) -> Option<String> {
    let lower = said.to_ascii_lowercase();
    if !lower.contains("permissions violation") {
        return None;
    }
    if lower.contains("for subscription to \"_inbox") {
        return Some("this user may not subscribe to _INBOX.>: allow it, answers come there".to_owned());
    }
    let ours = said.contains(&format!("\"{subject}\""));
    ours.then(|| match subject.strip_prefix("$JS.API.") {
        Some(_) => format!("this user may not publish to {subject}: allow $JS.API.>"),
        None if subject.starts_with("$SYS.") => format!("this user may not publish to {subject}: allow it"),
        None => {
            let room: Vec<&str> = subject.splitn(3, '.').take(2).collect();
            format!("this user may not write: allow it to publish to {}.>", room.join("."))
        }
    })
}

fn signed_in(who: &Who) -> Result<ConnectOptions, String> {
    let options = ConnectOptions::new();
    match who {
        Who::Nobody => Ok(options),
        Who::Token(token) => Ok(options.token(token.clone())),
        Who::User(user, password) => Ok(options.user_and_password(user.clone(), password.clone())),
        Who::Credentials(text) => options
            .credentials(text)
            .map_err(|_| "NATS_CREDS holds no credentials: give a file made by nsc".to_owned()),
        Who::CredentialsFile(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|why| format!("the credentials in {} cannot be read: {why}", path.display()))?;
            options
                .credentials(&text)
                .map_err(|_| format!("{} holds no credentials: give a file made by nsc", path.display()))
        }
    }
}

fn unconnected(place: &str, why: &ConnectError, who: &Who) -> String {
    let said = chain(why);
    match why.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => match who {
            Who::Nobody => {
                format!("{place} wants to know who asks: give a user and password, a token or NATS_CREDS")
            }
            Who::Token(_) => format!("{place} refuses this token"),
            Who::User(user, _) => format!("{place} refuses the user {user:?} or its password"),
            _ => format!("{place} refuses these credentials (NATS_CREDS)"),
        },
        ConnectErrorKind::Dns => format!("the host of {place} is not known: {said}"),
        ConnectErrorKind::TimedOut => format!("{place} does not answer"),
        _ if said.contains("certificate") || said.contains("UnknownIssuer") => {
            format!("the certificate of {place} is not accepted: give its authority with ca=PATH ({said})")
        }
        ConnectErrorKind::Tls => format!("no TLS with {place}: {said}"),
        _ if said.contains("InvalidContentType") || said.contains("corrupt message") => {
            format!("{place} speaks no TLS: leave tls and ca out, or turn TLS on at the server")
        }
        _ if said.contains("refused") => format!("{place} refuses connections: is NATS running there?"),
        _ => format!("{place} cannot be reached: {said}"),
    }
}

/// What an error says, and what is behind it, in one line.
fn chain(why: &dyn std::error::Error) -> String {
    let mut said = why.to_string();
    let mut behind = why.source();
    while let Some(source) = behind {
        let text = source.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        behind = source.source();
    }
    said.replace('\n', " ")
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim_start_matches('v').split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_not_allowed_is_told_to_who_asked() {
        let said = r#"Permissions Violation for Publish to "$KV.b.a""#;
        assert!(forbidden("$KV.b.a", said).unwrap().contains("$KV.b.>"));
        assert_eq!(forbidden("$KV.b.ab", said), None);
        let inbox = r#"Permissions Violation for Subscription to "_INBOX.x.*""#;
        assert!(forbidden("$KV.b.ab", inbox).unwrap().contains("_INBOX"));
        assert_eq!(forbidden("$KV.b.a", "Slow Consumer"), None);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(version("2.9.10"), Some((2, 9)));
        assert!(version("2.10.1") > version("2.9.10"));
        assert_eq!(version("dev"), None);
    }
}
