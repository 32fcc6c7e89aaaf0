//! `nats://[USER:PASSWORD@|TOKEN@]HOST[:PORT][,HOST[:PORT]…]/BUCKET[?replicas=N&marks=SECONDS&tls=on&ca=PATH]`

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use url::Url;

use crate::store::{OpenError, Settings, tls};

/// A server that is killed may forget, for minutes, that an older message gave way to a later one: with the later one purged,
/// the older one would be the last of its subject again. It writes down what it dropped every two minutes.
const MARKS: Duration = Duration::from_secs(600);

/// An address that was read.
#[derive(Clone)]
pub(super) struct Address {
    /// Each as `HOST:PORT`, without a secret.
    pub(super) servers: Vec<String>,
    pub(super) bucket: String,
    pub(super) who: Who,
    /// How many servers keep each record, when the bucket is made.
    pub(super) replicas: usize,
    /// How long the mark of a removal is kept.
    pub(super) marks: Duration,
    /// Must the connection be encrypted, whatever the server asks for?
    pub(super) tls: bool,
    pub(super) tls_config: Option<Arc<ClientConfig>>,
}

/// As whom.
#[derive(Clone)]
pub(super) enum Who {
    Nobody,
    Token(String),
    User(String, String),
    /// What a file of credentials holds.
    Credentials(String),
    /// A file of credentials.
    CredentialsFile(PathBuf),
}

/// Without what is secret.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("servers", &self.servers).field("bucket", &self.bucket).finish()
    }
}

const SHAPE: &str = "write it as in nats://HOST:4222/BUCKET";

fn wrong<T>(why: impl Into<String>) -> Result<T, OpenError> {
    Err(OpenError::Configuration(why.into()))
}

impl Address {
    /// Read it. What is said of a wrong one never repeats what may be a secret.
    pub(super) fn parse(url: &str, settings: &Settings) -> Result<Address, OpenError> {
        let Some(rest) = url.strip_prefix("nats://") else {
            return wrong(format!("it is no address of NATS: {SHAPE}"));
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
        let servers = hosts.split(',').map(server).collect::<Result<Vec<String>, OpenError>>()?;
        let Ok(tail) = Url::parse(&format!("nats://host{tail}")) else {
            return wrong(format!("the address cannot be read: {SHAPE}"));
        };
        let mut address = Address {
            servers,
            bucket: bucket(tail.path())?,
            who: who(user, settings)?,
            replicas: 1,
            marks: MARKS,
            tls: false,
            tls_config: None,
        };
        let mut authorities = None;
        for (name, value) in tail.query_pairs() {
            match (name.as_ref(), value.as_ref()) {
                ("replicas", value) => match value.parse() {
                    Ok(replicas @ 1..=5) => address.replicas = replicas,
                    _ => return wrong("replicas is a number from 1 to 5"),
                },
                ("marks", value) => match value.parse() {
                    Ok(seconds) => address.marks = Duration::from_secs(seconds),
                    Err(_) => return wrong("marks is a number of seconds"),
                },
                ("tls", "on" | "true" | "1") => address.tls = true,
                ("tls", "off" | "false" | "0") => address.tls = false,
                ("tls", _) => return wrong("tls is on or off"),
                ("ca", path) if !path.is_empty() => authorities = Some(path.to_owned()),
                ("ca", _) => return wrong("ca has no path: give a file with certificates (PEM)"),
                _ => {
                    return wrong(
                        "the address has an option that NATS does not know: use replicas, marks, tls or ca",
                    );
                }
            }
        }
        address.tls |= authorities.is_some();
        if address.tls {
            address.tls_config = Some(tls::client(authorities.as_deref())?);
        }
        Ok(address)
    }

    /// Where, for a message.
    pub(super) fn place(&self) -> String {
        self.servers.join(",")
    }
}

/// A host with its port.
fn server(text: &str) -> Result<String, OpenError> {
    let Some(url) = Url::parse(&format!("nats://{text}")).ok().filter(|url| url.username().is_empty()) else {
        return wrong(format!("the host of the address cannot be read: {SHAPE}"));
    };
    match url.host_str() {
        Some(host) if !host.is_empty() => Ok(format!("{host}:{}", url.port().unwrap_or(4222))),
        _ => wrong(format!("the address has no host: {SHAPE}")),
    }
}

fn bucket(path: &str) -> Result<String, OpenError> {
    let name = path.trim_start_matches('/');
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    match name {
        "" => wrong(format!("the address names no bucket: {SHAPE}")),
        _ if name.len() <= 64 && name.bytes().all(fits) => Ok(name.to_owned()),
        _ => wrong("a bucket is 1 to 64 of letters, digits, - and _"),
    }
}

fn who(user: &str, settings: &Settings) -> Result<Who, OpenError> {
    let decode = |text: &str| match decoded(text) {
        Some(text) => Ok(text),
        None => wrong("the user or the password is not escaped as a URL wants it: write % as %25"),
    };
    Ok(match user.split_once(':') {
        Some((user, password)) => Who::User(decode(user)?, decode(password)?),
        None if !user.is_empty() => Who::Token(decode(user)?),
        None => match settings.variable("NATS_CREDS") {
            Some(text) if text.contains("-----BEGIN") => Who::Credentials(text.to_owned()),
            Some(path) => Who::CredentialsFile(PathBuf::from(path)),
            None => Who::Nobody,
        },
    })
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn parse(url: &str) -> Result<Address, OpenError> {
        Address::parse(url, &Settings::default())
    }

    #[test]
    fn an_address_is_read() {
        let address = parse("nats://h/b").unwrap();
        assert_eq!((address.servers, address.bucket.as_str()), (vec!["h:4222".to_owned()], "b"));
        let address = parse("nats://me:p%40ss@a:1,[::1]:2,c/led-ger_1?replicas=3").unwrap();
        assert_eq!(address.servers, ["a:1", "[::1]:2", "c:4222"]);
        assert_eq!((address.replicas, address.tls), (3, false));
        let Who::User(user, password) = address.who else { panic!() };
        assert_eq!((user.as_str(), password.as_str()), ("me", "p@ss"));
        assert!(matches!(parse("nats://t0ken@h/b").unwrap().who, Who::Token(token) if token == "t0ken"));
    }

    #[test]
    fn what_is_said_of_a_wrong_one_repeats_no_secret() {
        for url in [
            "nats://",
            "nats://hunter2@/b",
            "nats://me:hunter2@h",
            "nats://me:hunter2@h/",
            "nats://me:hunter2@h/b/c",
            "nats://me:hunter2@h:x/b",
            "nats://me:hunter2%zz@h/b",
            "nats://me:hunter2@h/b?replicas=9",
            "nats://me:hunter2@h/b?password=hunter2",
            "nats://me:hunter2@h/b?ca=/no/such/file",
        ] {
            let why = parse(url).unwrap_err().to_string();
            assert!(!why.contains("hunter2") && !why.contains('\n'), "{why}");
        }
        let shown = format!("{:?}", parse("nats://me:hunter2@h/b").unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn credentials_come_from_the_variable_unless_the_address_says_otherwise() {
        let variables = [("NATS_CREDS".to_owned(), "/etc/nats.creds".to_owned())].into();
        let settings = Settings { variables, ..Settings::default() };
        assert!(matches!(Address::parse("nats://h/b", &settings).unwrap().who, Who::CredentialsFile(_)));
        assert!(matches!(Address::parse("nats://u:p@h/b", &settings).unwrap().who, Who::User(..)));
    }
}
