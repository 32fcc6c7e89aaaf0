//! One POST: looked up once, judged, sent only there, and never longer than it may take.
//!
//! What of the answer counts is its status. Its body is not read: it may be endless, and it may repeat to us what we
//! must not print.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use semel_core::address::is_public;
use ureq::http::Uri;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

use super::{Post, Undelivered, too_slow};
use crate::plan::read_bounded;

/// Is it built in?
pub(super) const BUILT_IN: bool = true;

/// The longest head of an answer.
const HEAD_LIMIT: usize = 16 * 1024;
/// The most addresses of a host that are tried.
const ADDRESSES_MOST: usize = 8;
/// The largest file of authorities.
const AUTHORITIES_LIMIT: u64 = 8 << 20;
/// The pause before the first retry; then doubled.
const PAUSE: Duration = Duration::from_millis(250);

/// The addresses of a host, by the system.
pub(super) fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((host, port).to_socket_addrs()?.collect())
}

/// Those that were judged: the client gets no others, whatever the name means by then.
#[derive(Debug)]
struct Judged(Vec<SocketAddr>);

impl Resolver for Judged {
    fn resolve(
        &self,
        _uri: &Uri,
        _config: &ureq::config::Config,
        _timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        self.0.iter().take(ADDRESSES_MOST).for_each(|address| addresses.push(*address));
        Ok(addresses)
    }
}

/// What came of one try.
enum Tried {
    Arrived,
    /// Another try may help.
    Again(String),
    /// No other would.
    Refused(Undelivered),
}

/// Send it. Blocks, at most as long as it may take and as long as the system takes to look up a name.
pub(super) fn post(
    post: &Post,
    look_up: &dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> Result<(), Undelivered> {
    let end = semel_supervise::boottime().saturating_add(post.in_all);
    let left = || end.saturating_sub(semel_supervise::boottime());
    let agent = agent(post, judge(post, look_up)?)?;
    let mut pause = PAUSE;
    let mut tries = 0;
    loop {
        tries += 1;
        let why = match try_once(&agent, post, post.timeout.min(left())) {
            Tried::Arrived => return Ok(()),
            Tried::Refused(why) => return Err(why),
            Tried::Again(why) => why,
        };
        let wait = jittered(pause);
        if tries > post.retries || left() <= wait {
            let times = if tries == 1 { String::new() } else { format!(" ({tries} tries)") };
            return Err(Undelivered::for_now(format!("{}: {why}{times}", post.url.host())));
        }
        std::thread::sleep(wait);
        pause *= 2;
    }
}

/// Between half of it and all of it: many runs that fail at once do not knock at once.
fn jittered(pause: Duration) -> Duration {
    let half = pause / 2;
    // without random bytes it is only less polite
    let share = getrandom::u32().unwrap_or(0);
    half + half.mul_f64(f64::from(share) / f64::from(u32::MAX))
}

/// Where the host is, if we may go there.
fn judge(
    post: &Post,
    look_up: &dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> Result<Vec<SocketAddr>, Undelivered> {
    let host = post.url.host();
    let refuse = |why: &str| Err(Undelivered::for_now(format!("{host}: {why}")));
    let found = match look_up(host, post.url.port()) {
        Ok(found) if !found.is_empty() => found,
        Ok(_) => return refuse("it has no address"),
        Err(why) => return refuse(&format!("it cannot be looked up: {why}")),
    };
    let is_private = |address: &SocketAddr| !is_public(address.ip());
    if !post.private && found.iter().any(is_private) {
        return refuse(
            "it is at a private address, and was not asked: allow that with private-addresses, if it is meant",
        );
    }
    if !post.url.is_secure() && !found.iter().all(is_private) {
        return refuse("it is at a public address, and http: is for private ones only: write https:");
    }
    Ok(found)
}

fn agent(post: &Post, judged: Vec<SocketAddr>) -> Result<Agent, Undelivered> {
    let mut tls = TlsConfig::builder();
    if let Some(path) = post.authorities.as_deref().filter(|_| post.url.is_secure()) {
        tls = tls.root_certs(read_authorities(path).map_err(|why| {
            Undelivered::for_now(format!("SSL_CERT_FILE {}: {why}: name a file in PEM", path.display()))
        })?);
    }
    let config = Agent::config_builder()
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_response_header_size(HEAD_LIMIT)
        .input_buffer_size(HEAD_LIMIT)
        .output_buffer_size(HEAD_LIMIT)
        .max_idle_connections(0)
        .user_agent(concat!("semel/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls.build())
        .build();
    Ok(Agent::with_parts(config, DefaultConnector::default(), Judged(judged)))
}

fn read_authorities(path: &Path) -> Result<RootCerts, String> {
    let bytes = read_bounded(path, AUTHORITIES_LIMIT)?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        if let PemItem::Certificate(certificate) = item.map_err(|_| "it is no PEM".to_owned())? {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err("it holds no certificate".to_owned()) } else { Ok(RootCerts::from(found)) }
}

fn try_once(agent: &Agent, post: &Post, timeout: Duration) -> Tried {
    let mut request = agent.post(post.url.reveal());
    for (name, value) in &post.headers {
        request = request.header(*name, value);
    }
    let request = request.config().timeout_global(Some(timeout)).build();
    match request.send(post.body.as_slice()) {
        Ok(answer) => judge_status(post.url.host(), answer.status().as_u16()),
        // the last try may get less time: told is what the lane had
        Err(why) => {
            judge_error(post.url.host(), &why, if timeout < post.timeout { post.in_all } else { timeout })
        }
    }
}

fn judge_status(host: &str, status: u16) -> Tried {
    let refused =
        |why: &str| Tried::Refused(Undelivered::for_now(format!("{host}: it answered {status}{why}")));
    match status {
        200..=299 => Tried::Arrived,
        300..=399 => refused(", a redirect, and none is followed: write the address that it leads to"),
        410 => Tried::Refused(Undelivered {
            why: format!("{host}: it answered 410: there is nobody any more"),
            permanent: true,
        }),
        429 | 500..=599 => Tried::Again(format!("it answered {status}")),
        401 | 403 => refused(": check the secret"),
        404 => refused(": check the address"),
        _ => refused(""),
    }
}

/// In our own words: the client's may repeat the address.
fn judge_error(host: &str, why: &Error, timeout: Duration) -> Tried {
    let refused = |why: &str| Tried::Refused(Undelivered::for_now(format!("{host}: {why}")));
    match why {
        Error::Timeout(_) => Tried::Again(too_slow(timeout)),
        // how a handshake fails: the same the next time
        Error::Io(why) if why.kind() == io::ErrorKind::InvalidData => {
            refused(&format!("no trust in it: {why}"))
        }
        Error::Io(why) => Tried::Again(why.to_string()),
        Error::ConnectionFailed => Tried::Again("it cannot be connected to".to_owned()),
        Error::Rustls(why) => refused(&format!("no trust in it: {why}")),
        Error::Tls(why) => refused(&format!("no trust in it: {why}")),
        Error::LargeResponseHeader(..) => refused("its answer begins with more than 16 KiB"),
        Error::Protocol(_) => Tried::Again("its answer is no HTTP".to_owned()),
        _ => refused("it could not be asked"),
    }
}
