//! What the address of a Redis means: `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?prefix=NAME][&ca=PATH]`.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use url::Url;

use crate::store::{OpenError, Settings, tls};

/// The port of a server that names none.
const PORT: u16 = 6379;
/// The prefix of a ledger that names none.
const PREFIX: &str = "semel";

/// An address that was read.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    /// The name of the ledger: the hash tag of all its keys.
    pub(super) prefix: String,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// Where it is, and no secret.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "Redis at [{}]:{}", self.host, self.port),
            false => write!(f, "Redis at {}:{}", self.host, self.port),
        }
    }
}

fn wrong<T>(why: impl Into<String>) -> Result<T, OpenError> {
    Err(OpenError::Configuration(why.into()))
}

impl Place {
    /// Read it. What is said of a wrong one repeats neither user nor password.
    pub(super) fn read(text: &str, settings: &Settings) -> Result<Place, OpenError> {
        let Ok(url) = Url::parse(text) else {
            return wrong("the address of Redis cannot be read: write redis://USER:PASSWORD@HOST:6379/0");
        };
        if url.fragment().is_some() {
            return wrong("the address of Redis holds a #: in a password it is written %23");
        }
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return wrong("the address of Redis has no host: write redis://HOST:6379");
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let (prefix, authorities) = options(&url)?;
        let tls = match (url.scheme(), &authorities) {
            ("rediss", _) => {
                let Ok(name) = ServerName::try_from(host.clone()) else {
                    return wrong(format!("{host} is no name that a certificate can have"));
                };
                Some((tls::client(authorities.as_deref())?, name))
            }
            (_, Some(_)) => return wrong("ca= is for TLS: write rediss:// instead of redis://"),
            (_, None) => None,
        };
        let password = match url.password().filter(|password| !password.is_empty()) {
            Some(password) => Some(decoded(password)?),
            None => settings.variable("REDIS_PASSWORD").map(str::to_owned),
        };
        let user = Some(url.username()).filter(|user| !user.is_empty()).map(decoded).transpose()?;
        if user.is_some() && password.is_none() {
            return wrong("the address of Redis has a user and no password: add it, or set REDIS_PASSWORD");
        }
        let database = database(&url)?;
        Ok(Place { host, port: url.port().unwrap_or(PORT), user, password, database, prefix, tls })
    }

    /// The same ledger at another node of its cluster, as a node tells it: `HOST:PORT`, no host where it is this one.
    pub(super) fn at(&self, node: &str) -> Option<Place> {
        let (host, port) = node.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let mut place = self.clone();
        if !matches!(host, "" | "?") {
            place.host = host.to_owned();
        }
        place.port = port.parse().ok()?;
        if let Some((how, _)) = place.tls.take() {
            place.tls = Some((how, ServerName::try_from(place.host.clone()).ok()?));
        }
        Some(place)
    }

    /// A line to say, with the password taken out of it wherever it came from.
    pub(super) fn masked(&self, line: String) -> String {
        let line = line.replace(['\r', '\n'], " ");
        match self.password.as_deref() {
            Some(password) if !password.is_empty() && line.contains(password) => {
                line.replace(password, "***")
            }
            _ => line,
        }
    }

    /// The user's name, as it is said.
    pub(super) fn who(&self) -> &str {
        self.user.as_deref().unwrap_or("default")
    }
}

fn database(url: &Url) -> Result<i64, OpenError> {
    match url.path().trim_matches('/') {
        "" => Ok(0),
        number => number.parse::<u16>().map(i64::from).or_else(|_| {
            wrong("the path of the address is the number of a database, as in redis://HOST:6379/3")
        }),
    }
}

fn options(url: &Url) -> Result<(String, Option<String>), OpenError> {
    let (mut prefix, mut authorities) = (PREFIX.to_owned(), None);
    for (name, value) in url.query_pairs() {
        match &*name {
            "prefix" => prefix = value.into_owned(),
            "ca" => authorities = Some(value.into_owned()),
            name if name.len() <= 16 && name.bytes().all(|b| b.is_ascii_alphanumeric()) => {
                return wrong(format!("Redis has no option {name}: it has prefix and ca"));
            }
            _ => return wrong("Redis has no such option: it has prefix and ca"),
        }
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if prefix.is_empty() || prefix.len() > 64 || !prefix.bytes().all(plain) {
        return wrong("prefix= is 1 to 64 of letters, digits and . _ -");
    }
    Ok((prefix, authorities))
}

/// Text with its `%XX` made bytes again.
fn decoded(text: &str) -> Result<String, OpenError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return wrong("a % in the user or the password of Redis is written %25"),
        }
    }
    String::from_utf8(bytes).or_else(|_| wrong("the user or the password of Redis is no text"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn read(text: &str) -> Result<Place, OpenError> {
        Place::read(text, &Settings::default())
    }

    #[test]
    fn an_address_is_read() {
        let place = read("redis://me:p%40ss%23@[::1]:7000/3?prefix=team-a").unwrap();
        assert_eq!((place.host.as_str(), place.port, place.database), ("::1", 7000, 3));
        assert_eq!((place.who(), place.password.as_deref()), ("me", Some("p@ss#")));
        assert_eq!(place.prefix, "team-a");
        assert_eq!(place.to_string(), "Redis at [::1]:7000");
        let plain = read("redis://db.example").unwrap();
        assert_eq!((plain.port, plain.database, plain.prefix.as_str()), (6379, 0, "semel"));
        assert!(plain.tls.is_none() && read("rediss://db.example").unwrap().tls.is_some());
    }

    #[test]
    fn another_node_is_the_same_ledger_elsewhere() {
        let place = read("rediss://me:x@db.example:7000?prefix=p").unwrap();
        let at = |node: &str| place.at(node).map(|place| format!("{}|{}", place.host, place.port));
        assert_eq!(at("10.0.0.2:7001").as_deref(), Some("10.0.0.2|7001"));
        assert_eq!(at("::1:7001").as_deref(), Some("::1|7001"));
        assert_eq!(at(":7001").as_deref(), Some("db.example|7001"), "the host that was asked");
        assert_eq!(at("?:7001").as_deref(), Some("db.example|7001"));
        assert_eq!(at("nonsense"), None);
        let moved = place.at("h2:1").unwrap();
        assert_eq!((moved.prefix.as_str(), moved.password.as_deref()), ("p", Some("x")));
        assert_eq!(moved.tls.unwrap().1, ServerName::try_from("h2").unwrap());
    }

    #[test]
    fn the_password_may_come_from_beside_the_address() {
        let variables = [("REDIS_PASSWORD".to_owned(), "hunter2".to_owned())].into();
        let settings = Settings { variables, ..Settings::default() };
        let place = |text| Place::read(text, &settings).unwrap().password;
        assert_eq!(place("redis://h").as_deref(), Some("hunter2"));
        assert_eq!(place("redis://me@h").as_deref(), Some("hunter2"));
        assert_eq!(place("redis://me:other@h").as_deref(), Some("other"));
    }

    #[test]
    fn a_wrong_address_is_refused_without_its_secret() {
        let wrong = [
            "redis://",
            "redis://me:hunter2@",
            "redis://:hunter2@h/db",
            "redis://:hunter2@h/1/2",
            "redis://:hunter2@h?prefix=a{b}",
            "redis://:hunter2@h?prefix=",
            "redis://:hunter2@h?hunter2!=1",
            "redis://:hunter2@h?ca=/etc/ca.pem",
            "rediss://:hunter2@h?ca=/no/such/file",
            "redis://:hunter2#@h",
            "redis://:hunter2%zz@h",
            "redis://me@h",
        ];
        for text in wrong {
            let Err(OpenError::Configuration(why)) = read(text) else { panic!("{text} was taken") };
            assert!(!why.contains("hunter2") && !why.contains('\n'), "{why}");
        }
    }
}
