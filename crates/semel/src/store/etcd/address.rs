//! Where etcd is, and as whom to speak to it.
//!
//! `etcd://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/PREFIX][?ca=PATH][&cert=PATH&key=PATH]`; `etcds://` for TLS.

use std::fmt;
use std::time::Duration;

use tonic::transport::{ClientTlsConfig, Endpoint, Identity};

use super::super::{OpenError, tls};

/// Where etcd listens, if nobody says otherwise.
const PORT: u16 = 2379;
/// Under which all our keys lie, if nobody says otherwise.
const PREFIX: &str = "semel";

/// An address, read and checked.
pub(super) struct Address {
    /// In the order in which they are tried, each with its name for people.
    pub(super) endpoints: Vec<(String, Endpoint)>,
    pub(super) user: Option<User>,
    /// With a slash at its end.
    pub(super) prefix: String,
}

/// As whom to speak.
#[derive(Clone)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: String,
}

/// Without the password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<&String> = self.endpoints.iter().map(|(name, _)| name).collect();
        let user = self.user.as_ref().map(|user| &user.name);
        f.debug_struct("Address")
            .field("hosts", &hosts)
            .field("user", &user)
            .field("prefix", &self.prefix)
            .finish()
    }
}

fn wrong<T>(why: impl Into<String>) -> Result<T, OpenError> {
    Err(OpenError::Configuration(why.into()))
}

impl Address {
    /// Read it. What is said of a wrong one never repeats it: it may hold a password.
    pub(super) fn parse(url: &str, connect_within: Duration) -> Result<Address, OpenError> {
        let (secure, rest) = match url.split_once("://") {
            Some(("etcd", rest)) => (false, rest),
            Some(("etcds", rest)) => (true, rest),
            _ => return wrong("etcd is reached by etcd://HOST:PORT/PREFIX"),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // a piece of a password, more likely than a prefix: what stands before it must not be asked for in the DNS
        if path.contains(['#', '@']) || query.contains(['#', '@']) {
            return wrong(
                "etcd:// has a # or an @ behind its host: in a prefix they are written as %23 and %40, and in a password / and ? as %2F and %3F",
            );
        }
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(read_user(user)?), hosts),
            None => (None, authority),
        };
        let options = Options::read(query)?;
        let tls = match secure {
            true => Some(options.tls()?),
            false if options.any() => return wrong("ca, cert and key are for TLS: write etcds://"),
            false => None,
        };
        let mut endpoints = Vec::new();
        for host in hosts.split(',') {
            endpoints.push(endpoint(host, tls.as_ref(), connect_within)?);
        }
        let path = match decoded(path.trim_matches('/')) {
            Some(path) if path.is_empty() => PREFIX.to_owned(),
            Some(path) => path,
            None => return wrong("the prefix of etcd:// holds a % that stands for nothing: write it as %25"),
        };
        Ok(Address { endpoints, user, prefix: format!("{path}/") })
    }
}

fn read_user(text: &str) -> Result<User, OpenError> {
    let read = text.split_once(':').and_then(|(name, password)| Some((decoded(name)?, decoded(password)?)));
    match read {
        Some((name, password)) if !name.is_empty() => Ok(User { name, password }),
        _ => wrong("the user of etcd:// is written as USER:PASSWORD@HOST, with %40 for @ and %25 for %"),
    }
}

fn endpoint(
    host: &str,
    tls: Option<&ClientTlsConfig>,
    within: Duration,
) -> Result<(String, Endpoint), OpenError> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let parsed = url::Url::parse(&format!("{scheme}://{host}"))
        .ok()
        .filter(|url| url.path() == "/" && url.username().is_empty());
    let Some((url, name)) = parsed.as_ref().and_then(|url| Some((url, url.host_str()?))) else {
        return wrong("etcd:// has no host that can be read: write etcd://HOST:PORT/PREFIX");
    };
    // the parser leaves out a scheme's own port, which somebody may well have written
    let own = if tls.is_some() { ":443" } else { ":80" };
    let port = url.port().unwrap_or_else(|| match host.strip_suffix(own) {
        Some(_) => url.port_or_known_default().unwrap_or(PORT),
        None => PORT,
    });
    let name = format!("{name}:{port}");
    let made = Endpoint::from_shared(format!("{scheme}://{name}"))
        .map(|endpoint| endpoint.connect_timeout(within).tcp_nodelay(true))
        .and_then(|endpoint| match tls {
            Some(tls) => endpoint.tls_config(tls.clone()),
            None => Ok(endpoint),
        });
    match made {
        Ok(endpoint) => Ok((name, endpoint)),
        Err(why) => {
            wrong(format!("{name} cannot be reached with these settings: {}", super::fault::deepest(&why)))
        }
    }
}

/// What stands behind the question mark.
#[derive(Default)]
struct Options {
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl Options {
    fn read(query: &str) -> Result<Options, OpenError> {
        let mut options = Options::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let slot = match name.as_ref() {
                "ca" => &mut options.ca,
                "cert" => &mut options.cert,
                "key" => &mut options.key,
                _ => return wrong("etcd:// knows the options ca, cert and key, and no others"),
            };
            *slot = Some(value.into_owned());
        }
        Ok(options)
    }

    fn any(&self) -> bool {
        self.ca.is_some() || self.cert.is_some() || self.key.is_some()
    }

    fn tls(&self) -> Result<ClientTlsConfig, OpenError> {
        let tls = ClientTlsConfig::new().trust_anchors(tls::roots(self.ca.as_deref())?.roots);
        match (&self.cert, &self.key) {
            (None, None) => Ok(tls),
            (Some(cert), Some(key)) => Ok(tls.identity(Identity::from_pem(pem(cert)?, pem(key)?))),
            _ => wrong("a certificate of our own needs both ?cert=PATH and &key=PATH"),
        }
    }
}

fn pem(path: &str) -> Result<Vec<u8>, OpenError> {
    std::fs::read(path).or_else(|why| wrong(format!("{path} cannot be read: {why}")))
}

/// Text as it was before it was escaped for an address.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok())?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after.get(2..)?;
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(url: &str) -> Result<Address, OpenError> {
        Address::parse(url, Duration::from_secs(1))
    }

    #[test]
    fn an_address_is_read_with_all_its_parts() {
        let address = parse("etcd://me:a%40b@h1:1,h2,[::1]:80/team/semel/").unwrap();
        let names: Vec<&str> = address.endpoints.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["h1:1", "h2:2379", "[::1]:80"]);
        let user = address.user.as_ref().unwrap();
        assert_eq!((user.name.as_str(), user.password.as_str()), ("me", "a@b"));
        assert_eq!(address.prefix, "team/semel/");
        assert_eq!(parse("etcd://h").unwrap().prefix, "semel/");
        assert!(!format!("{address:?}").contains("a@b"));
    }

    #[test]
    fn what_is_said_of_a_wrong_address_repeats_no_secret() {
        for url in [
            "etcd://",
            "etcd://me:hunter2@",
            "etcd://hunter2@h",
            "etcd://me:hunter2%@h",
            "etcd://me:hunter2@h:x/p",
            "etcd://h/p?password=hunter2",
            "etcd://me:hunter2@h?ca=/x",
            "etcds://me:hunter2@h?ca=/nowhere",
            "etcds://me:hunter2@h?cert=/nowhere",
            "etcd://h/%zz",
            "etcd://h/p#hunter2",
            "etcd://me:12/hunter2@h",
            "etcd://hunter2:12/x@h",
        ] {
            let why = parse(url).unwrap_err().to_string();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
